/* Filters over images: convolutions with few filters of one channel each (a blur, an edge detector). Convolution kernels work on many
 * filters or channels at a time and would leave most lanes of a vector empty. As a sum over the filter's taps they run along the image's lines. A few taps are
 * written out and fuse with the nodes around them; with many, each result is a reduction over its window.
 */
#include "core/rewrite/rewrite_priv.h"

#include <string.h>

enum { FEW = 3, WRITTEN_OUT = 32, TAPS = 1024, LEAST_LINE = 16 };

static int64_t
taps_of(const int64_t *weight, unsigned nspatial)
{
    int64_t taps = 1;
    for (unsigned d = 0; d < nspatial; d++)
        taps *= weight[2 + d];
    return taps;
}

bool
rewrite_is_filter(const rewriting *r, kin_irn call, const kin_library_call *conv)
{
    kin_irn x = kin_ir_arg(r->p, call, 0), weight = kin_ir_arg(r->p, call, 1);
    const int64_t *image = kin_ir_sizes(r->p, x), *filters = kin_ir_sizes(r->p, weight);
    unsigned ndim = kin_ir_at(r->p, x)->ndim;
    bool plain = kin_ir_at(r->p, x)->dtype == KIN_F32 && ndim == kin_ir_at(r->p, weight)->ndim && conv->nspatial <= 2 && !conv->transposed;
    if (!plain || !r->may.own || kin_ir_numel(r->p, x) == 0 || kin_ir_numel(r->p, weight) == 0)
        return false;
    bool single = filters[1] == 1 && (image[1] == 1 || image[1] == filters[0]);
    return single && filters[0] <= FEW && taps_of(filters, conv->nspatial) <= TAPS && image[ndim - 1] >= LEAST_LINE;
}

/* One number of each filter, for all places. */
static kin_irn
spread(kin_ir *q, kin_irn numbers, unsigned ndim, const int64_t *sizes)
{
    int64_t one[KIN_IR_MAX_DIMS];
    for (unsigned d = 0; d < ndim; d++)
        one[d] = d == 1 ? sizes[1] : 1;
    return kin_ir_expand(q, kin_ir_reshape(q, numbers, ndim, one), ndim, sizes);
}

/* The image with zeros around it, once for each filter. */
static kin_irn
pad_image(kin_ir *q, kin_irn x, const kin_library_call *conv, int64_t filters)
{
    unsigned ndim = kin_ir_at(q, x)->ndim;
    int64_t low[KIN_IR_MAX_DIMS] = {0}, sizes[KIN_IR_MAX_DIMS];
    memcpy(sizes, kin_ir_sizes(q, x), ndim * sizeof *sizes);
    bool padded = false;
    for (unsigned d = 0; d < conv->nspatial; d++) {
        low[2 + d] = conv->padding[d];
        sizes[2 + d] += 2 * conv->padding[d];
        padded |= conv->padding[d] != 0;
    }
    if (padded)
        x = kin_ir_pad(q, x, kin_ir_const(q, KIN_F32, (kin_scalar){.f = 0}, 0, NULL), low, sizes);
    sizes[1] = filters;
    return kin_ir_expand(q, x, ndim, sizes);
}

/* What the tap at these places adds. */
static kin_irn
emit_tap(kin_ir *q, kin_irn x, kin_irn weight, const kin_library_call *conv, const int64_t *tap, const int64_t *sizes)
{
    unsigned ndim = conv->nspatial + 2u;
    int64_t starts[KIN_IR_MAX_DIMS] = {0}, steps[KIN_IR_MAX_DIMS] = {1, 1}, from[KIN_IR_MAX_DIMS] = {0}, ones[KIN_IR_MAX_DIMS], one[KIN_IR_MAX_DIMS];
    for (unsigned d = 0; d < ndim; d++)
        ones[d] = one[d] = 1;
    one[0] = sizes[1];
    for (unsigned d = 0; d < conv->nspatial; d++) {
        starts[2 + d] = tap[d] * conv->dilation[d];
        steps[2 + d] = conv->stride[d];
        from[2 + d] = tap[d];
    }
    kin_irn part = kin_ir_slice(q, x, starts, steps, sizes);
    return kin_ir_binary(q, KIN_IR_MUL, part, spread(q, kin_ir_slice(q, weight, from, ones, one), ndim, sizes));
}

static kin_irn
sum_written_out(kin_ir *q, kin_irn x, kin_irn weight, const kin_library_call *conv, const int64_t *filters, const int64_t *sizes)
{
    kin_irn sum = 0;
    int64_t tap[2], last = filters[conv->nspatial + 1];
    for (int64_t i = 0; i < taps_of(filters, conv->nspatial); i++) {
        tap[0] = conv->nspatial == 2 ? i / last : i;
        tap[1] = i % last;
        kin_irn part = emit_tap(q, x, weight, conv, tap, sizes);
        sum = sum == 0 ? part : kin_ir_binary(q, KIN_IR_ADD, sum, part);
    }
    return sum;
}

/* The window of each result, as dims behind its own. The padded image is a copy in memory: else each tap would have to ask whether it lies in the image. */
static kin_irn
windows_of(kin_ir *q, kin_irn x, const kin_library_call *conv, const int64_t *wide)
{
    unsigned ndim = conv->nspatial + 2u, nwide = ndim + conv->nspatial;
    int64_t map[KIN_IR_MAX_DIMS] = {0, 1};
    kin_irn places[2];
    for (unsigned d = 0; d < conv->nspatial; d++) {
        const int64_t factor[2] = {conv->stride[d], conv->dilation[d]};
        kin_irn parts[2];
        for (unsigned i = 0; i < 2; i++) {
            kin_irn times = kin_ir_const(q, KIN_I64, (kin_scalar){.i = factor[i]}, nwide, wide);
            parts[i] = kin_ir_binary(q, KIN_IR_MUL, kin_ir_iota(q, KIN_I64, (i == 0 ? 2 : ndim) + d, nwide, wide), times);
        }
        places[d] = kin_ir_binary(q, KIN_IR_ADD, parts[0], parts[1]);
        map[2 + d] = -1 - (int64_t)d;
    }
    return kin_ir_index(q, kin_ir_unary(q, KIN_IR_CAST, x), map, places, conv->nspatial, nwide, wide);
}

static kin_irn
sum_windows(kin_ir *q, kin_irn x, kin_irn weight, const kin_library_call *conv, const int64_t *filters, const int64_t *sizes)
{
    unsigned ndim = conv->nspatial + 2u, nwide = ndim + conv->nspatial;
    int64_t wide[KIN_IR_MAX_DIMS], one[KIN_IR_MAX_DIMS], dims[2] = {ndim, ndim + 1};
    for (unsigned d = 0; d < nwide; d++) {
        wide[d] = d < ndim ? sizes[d] : filters[2 + d - ndim];
        one[d] = d < ndim ? 1 : wide[d];
    }
    one[1] = filters[0];
    kin_irn taps = kin_ir_expand(q, kin_ir_reshape(q, weight, nwide, one), nwide, wide);
    kin_irn products = kin_ir_binary(q, KIN_IR_MUL, windows_of(q, x, conv, wide), taps);
    return kin_ir_reshape(q, kin_ir_reduce(q, KIN_IR_REDUCE_SUM, products, conv->nspatial, dims), ndim, sizes);
}

kin_irn
rewrite_filter(rewriting *r, kin_irn n)
{
    kin_ir *q = r->out->ir;
    kin_irn call = kin_ir_arg(r->p, n, 0);
    kin_library_call conv;
    if (!rewrite_reads_convolution(r, call, &conv) || !rewrite_is_filter(r, call, &conv))
        return 0;
    int64_t sizes[KIN_IR_MAX_DIMS], filters[KIN_IR_MAX_DIMS];
    unsigned ndim = kin_ir_at(r->p, n)->ndim;
    memcpy(sizes, kin_ir_sizes(r->p, n), ndim * sizeof *sizes);
    memcpy(filters, kin_ir_sizes(r->p, kin_ir_arg(r->p, call, 1)), ndim * sizeof *filters);
    kin_irn weight = rewrite_copy(r, kin_ir_arg(r->p, call, 1)), x = pad_image(q, rewrite_copy(r, kin_ir_arg(r->p, call, 0)), &conv, filters[0]);
    bool few = taps_of(filters, conv.nspatial) <= WRITTEN_OUT;
    kin_irn sum = (few ? sum_written_out : sum_windows)(q, x, weight, &conv, filters, sizes);
    if (conv.has_bias)
        sum = kin_ir_binary(q, KIN_IR_ADD, spread(q, rewrite_copy(r, kin_ir_arg(r->p, call, 2)), ndim, sizes), sum);
    return rewrite_lay_out_as_before(r, n, n, sum);
}
