/* Gradients of convolutions. The gradient of the image is a transposed convolution of the incoming gradient; that of the filters is a sum over positions
 * (core/kernels/convolution_weight.h), that of the bias a sum over everything but the filters. If the kernel is a single pixel, these are matrix products.
 * For a transposed convolution, the gradient of the image is a plain one, and for that of the filters image and incoming gradient are exchanged.
 */
#include "core/rewrite/rewrite_priv.h"

#include <string.h>

#include "core/kernels/convolution.h"
#include "core/kernels/convolution_weight.h"

/* Image, filters, bias: which of them is a result of the call? Results are counted without those that were not asked for. */
static int
role_of(const rewriting *r, kin_irn call, int64_t which)
{
    const kin_aten_call *captured = rewrite_captured(r, call);
    const kin_aten_arg *mask = &r->g->args.at[captured->args + 10];
    for (int i = 0; i < 3; i++)
        if (r->g->args.at[mask->list.child + (uint32_t)i].i && which-- == 0)
            return i;
    return -1;
}

static bool
is_mask(const rewriting *r, const kin_aten_arg *arg)
{
    if (arg->kind != KIN_ATEN_LIST || arg->list.count != 3)
        return false;
    for (uint32_t i = 0; i < 3; i++)
        if (r->g->args.at[arg->list.child + i].kind != KIN_ATEN_BOOL)
            return false;
    return true;
}

/* Filters of several taps are made into panels, and their gradient is turned from channels last: with few places that takes longer than the products, unless
 * a cache holds all of it. */
static bool
pays_to_turn(const rewriting *r, kin_irn call)
{
    enum { PLACES = 256, CACHED = 1 << 16 };
    kin_irn back = kin_ir_arg(r->p, call, 0), weight = kin_ir_arg(r->p, call, 2);
    const int64_t *sizes = kin_ir_sizes(r->p, weight);
    int64_t elements = kin_ir_numel(r->p, weight);
    return elements <= CACHED || elements == sizes[0] * sizes[1] || kin_ir_numel(r->p, back) / kin_ir_sizes(r->p, back)[1] >= PLACES;
}

/* One group, as many as channels and filters, or some of which each has enough of both. */
static bool
suits_groups(const rewriting *r, kin_irn call, const kin_library_call *c)
{
    enum { LEAST = 8 };
    int64_t channels = kin_ir_sizes(r->p, kin_ir_arg(r->p, call, 1))[1], filters = kin_ir_sizes(r->p, kin_ir_arg(r->p, call, 0))[1], groups = c->groups;
    if (groups == 1 || c->transposed)
        return groups == 1;
    return (groups == channels && groups == filters) || (groups > 0 && channels / groups >= LEAST && filters / groups >= LEAST);
}

/* (grad, input, weight, bias sizes, stride, padding, dilation, transposed, output padding, groups, mask) -> their gradients */
bool
rewrite_reads_convolution_backward(const rewriting *r, kin_irn call, kin_library_call *out)
{
    const kin_aten_call *captured = rewrite_captured(r, call);
    if (!r->may.own || !rewrite_is(r, call, KIN_ATEN_OP(convolution_backward, default)) || captured->nargs != 11 || kin_ir_at(r->p, call)->nargs != 3)
        return false;
    const kin_aten_arg *args = &r->g->args.at[captured->args];
    kin_irn x = kin_ir_arg(r->p, call, 1), weight = kin_ir_arg(r->p, call, 2);
    const kin_ir_node *node = kin_ir_at(r->p, x);
    unsigned n = node->ndim - 2u;
    *out = (kin_library_call){.kind = KIN_LIBRARY_CONV, .nspatial = (uint8_t)n, .groups = args[9].i, .own = true, .transposed = args[7].kind == KIN_ATEN_BOOL && args[7].i,
                              .call = (uint32_t)kin_ir_attrs(r->p, call)[0]};
    if (node->ndim < 3 || n > 2 || node->dtype != KIN_F32 || args[7].kind != KIN_ATEN_BOOL || args[9].kind != KIN_ATEN_INT || !suits_groups(r, call, out) ||
        !is_mask(r, &args[10]) || !rewrite_read_ints(r, &args[4], n, out->stride) || !rewrite_read_ints(r, &args[5], n, out->padding) ||
        !rewrite_read_ints(r, &args[6], n, out->dilation))
        return false;
    for (unsigned d = 0; d < n; d++)
        if (out->dilation[d] != 1 && out->stride[d] != 1 && !out->transposed)
            return false;
    return kin_ir_numel(r->p, x) > 0 && kin_ir_numel(r->p, weight) > 0 && kin_ir_numel(r->p, kin_ir_arg(r->p, call, 0)) > 0 && pays_to_turn(r, call);
}

/* A kernel of one pixel, and all pixels: products of matrices. */
static bool
is_product(const rewriting *r, kin_irn call, const kin_library_call *c)
{
    const int64_t *weight = kin_ir_sizes(r->p, kin_ir_arg(r->p, call, 2));
    bool plain = c->nspatial == 2 && !c->transposed && c->groups == 1;
    for (unsigned d = 0; d < c->nspatial; d++)
        plain = plain && weight[2 + d] == 1 && c->stride[d] == 1 && c->padding[d] == 0;
    return plain;
}

/* [N, C, H, W] as [N H W, C]. */
static kin_irn
as_rows(kin_ir *q, kin_irn x)
{
    const int64_t *s = kin_ir_sizes(q, x), rows[2] = {s[0] * s[2] * s[3], s[1]};
    return kin_ir_reshape(q, kin_ir_permute(q, x, (int64_t[]){0, 2, 3, 1}), 2, rows);
}

static kin_irn
emit_product(rewriting *r, const kin_library_call *c, kin_irn a, kin_irn b)
{
    kin_library_call call = {.kind = KIN_LIBRARY_MATMUL, .nspatial = c->nspatial, .call = c->call};
    const int64_t sizes[2] = {kin_ir_sizes(r->out->ir, a)[0], kin_ir_sizes(r->out->ir, b)[1]};
    return rewrite_emit(r, &call, "library.matmul", (kin_irn[]){a, b}, 2, KIN_F32, 2, sizes, NULL);
}

static kin_irn
turned(kin_ir *q, kin_irn matrix)
{
    return kin_ir_permute(q, matrix, (int64_t[]){1, 0});
}

/* Of the image `n`, from what comes back and the filters. */
static kin_irn
emit_image(rewriting *r, kin_irn n, kin_irn call, const kin_library_call *c)
{
    kin_ir *q = r->out->ir;
    kin_irn back = rewrite_image(r, kin_ir_arg(r->p, call, 0), false), weight = rewrite_copy(r, kin_ir_arg(r->p, call, 2));
    int64_t sizes[KIN_IR_MAX_DIMS], strides[KIN_IR_MAX_DIMS];
    unsigned ndim = kin_ir_at(r->p, n)->ndim;
    memcpy(sizes, kin_ir_sizes(r->p, n), ndim * sizeof *sizes);
    rewrite_channels_last(sizes, ndim, strides);
    if (!is_product(r, call, c)) {
        kin_library_call made = *c;
        made.transposed = !c->transposed;
        return rewrite_lay_out_as_before(r, n, n, rewrite_emit(r, &made, "library.conv_backward_image", (kin_irn[]){back, weight}, 2, KIN_F32, ndim, sizes, strides));
    }
    const int64_t filters[2] = {kin_ir_sizes(q, weight)[0], sizes[1]}, pixels[4] = {sizes[0], sizes[2], sizes[3], sizes[1]};
    kin_irn made = emit_product(r, c, as_rows(q, back), kin_ir_reshape(q, weight, 2, filters));
    made = kin_ir_permute(q, kin_ir_reshape(q, made, 4, pixels), (int64_t[]){0, 3, 1, 2});
    kin_ir_set_strides(q, made, strides);
    return rewrite_lay_out_as_before(r, n, n, made);
}

/* Of the filters `n`, from what comes back and the image. */
static kin_irn
emit_filters(rewriting *r, kin_irn n, kin_irn call, const kin_library_call *c)
{
    kin_ir *q = r->out->ir;
    kin_irn back = rewrite_image(r, kin_ir_arg(r->p, call, c->transposed ? 1 : 0), false), image = kin_ir_arg(r->p, call, c->transposed ? 0 : 1);
    int64_t sizes[KIN_IR_MAX_DIMS], last[KIN_IR_MAX_DIMS], dims[KIN_IR_MAX_DIMS] = {0};
    unsigned ndim = kin_ir_at(r->p, n)->ndim;
    memcpy(sizes, kin_ir_sizes(r->p, n), ndim * sizeof *sizes);
    kin_irn x = c->groups > 1 || kin_convolution_weight_wants_last(sizes[1]) ? rewrite_image(r, image, false) : rewrite_copy(r, image);
    if (is_product(r, call, c))
        return kin_ir_reshape(q, emit_product(r, c, turned(q, as_rows(q, back)), as_rows(q, x)), ndim, sizes);
    kin_library_call made = *c;
    made.kind = KIN_LIBRARY_CONV_WEIGHT;
    made.transposed = false;
    for (unsigned d = 0; d < ndim; d++) { /* channels come last there */
        last[d] = d == 0 ? sizes[0] : d + 1 < ndim ? sizes[d + 1] : sizes[1];
        dims[d] = d == 0 ? 0 : d == 1 ? ndim - 1 : d - 1;
    }
    return kin_ir_permute(q, rewrite_emit(r, &made, "library.conv_backward_weight", (kin_irn[]){back, x}, 2, KIN_F32, ndim, last, NULL), dims);
}

static kin_irn
emit_bias(rewriting *r, kin_irn n, kin_irn call)
{
    kin_ir *q = r->out->ir;
    kin_irn back = rewrite_copy(r, kin_ir_arg(r->p, call, 0));
    unsigned ndim = kin_ir_at(q, back)->ndim;
    int64_t dims[KIN_IR_MAX_DIMS] = {0}, filters = kin_ir_sizes(r->p, n)[0];
    for (unsigned d = 2; d < ndim; d++)
        dims[d - 1] = d;
    return kin_ir_reshape(q, kin_ir_reduce(q, KIN_IR_REDUCE_SUM, back, ndim - 1, dims), 1, &filters);
}

kin_irn
rewrite_convolution_backward(rewriting *r, kin_irn n)
{
    kin_irn call = kin_ir_arg(r->p, n, 0);
    kin_library_call c;
    if (!rewrite_reads_convolution_backward(r, call, &c))
        return 0;
    switch (role_of(r, call, kin_ir_attrs(r->p, n)[0])) {
    case 0: return emit_image(r, n, call, &c);
    case 1: return emit_filters(r, n, call, &c);
    case 2: return emit_bias(r, n, call);
    default: return 0;
    }
}
