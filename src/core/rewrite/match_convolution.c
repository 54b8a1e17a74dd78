/* Convolutions, with what can be folded into them. Factors and terms per channel go into weights
 * and bias (a batch norm in evaluation); adding a value of the same sizes and a relu are done by the library call.
 */
#include "core/rewrite/rewrite_priv.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/kernels/convolution.h"

void
rewrite_channels_last(const int64_t *sizes, unsigned ndim, int64_t *strides)
{
    int64_t step = sizes[1];
    strides[1] = 1;
    for (unsigned d = ndim; d-- > 2;) {
        strides[d] = step;
        step *= sizes[d];
    }
    strides[0] = step;
}

/* -- reading the captured call ------------------------------------------------------------------------------------ */

bool
rewrite_read_ints(const rewriting *r, const kin_aten_arg *arg, unsigned n, int64_t *out)
{
    if (arg->kind != KIN_ATEN_LIST || (arg->list.count != n && arg->list.count != 1))
        return false;
    for (unsigned i = 0; i < n; i++) {
        const kin_aten_arg *element = &r->g->args.at[arg->list.child + (arg->list.count == 1 ? 0 : i)];
        if (element->kind != KIN_ATEN_INT)
            return false;
        out[i] = element->i;
    }
    return true;
}

static bool
suits_us(const rewriting *r, kin_irn call, const kin_library_call *conv)
{
    kin_irn x = kin_ir_arg(r->p, call, 0), weight = kin_ir_arg(r->p, call, 1);
    const int64_t *sizes = kin_ir_sizes(r->p, weight);
    kin_convolution c = {.channels = kin_ir_sizes(r->p, x)[1], .filters = sizes[0], .groups = conv->groups};
    bool any = kin_ir_numel(r->p, x) > 0 && kin_ir_numel(r->p, weight) > 0;
    if (!any || !conv->transposed)
        return any && kin_convolution_suits(&c);
    for (unsigned d = 0; d < KIN_CONVOLUTION_SPACE; d++) {
        bool there = d < conv->nspatial;
        c.kernel[d] = there ? sizes[2 + d] : 1;
        c.stride[d] = there ? conv->stride[d] : 1;
        c.dilation[d] = there ? conv->dilation[d] : 1;
    }
    return kin_transposed_suits(&c);
}

/* Filters that change between calls are made into panels in each of them: the more places there are, the less that counts. */
static bool
pays_to_pack(const rewriting *r, kin_irn call)
{
    enum { PLACES = 256 };
    kin_irn x = kin_ir_arg(r->p, call, 0);
    return kin_ir_at(r->p, x)->dtype == KIN_F32 && kin_ir_numel(r->p, x) / kin_ir_sizes(r->p, x)[1] >= PLACES;
}

/* aten.convolution(input, weight, bias, stride, padding, dilation, transposed, output_padding, groups) */
bool
rewrite_reads_convolution(const rewriting *r, kin_irn call, kin_library_call *conv)
{
    const kin_aten_call *captured = rewrite_captured(r, call);
    if (!rewrite_is(r, call, KIN_ATEN_OP(convolution, default)) || captured->nargs != 9)
        return false;
    const kin_aten_arg *args = &r->g->args.at[captured->args];
    kin_irn x = kin_ir_arg(r->p, call, 0), weight = kin_ir_arg(r->p, call, 1);
    unsigned n = kin_ir_at(r->p, x)->ndim - 2u;
    *conv = (kin_library_call){.kind = KIN_LIBRARY_CONV, .has_bias = args[2].kind == KIN_ATEN_VALUE,
                               .nspatial = (uint8_t)n, .groups = args[8].i,
                               .call = (uint32_t)kin_ir_attrs(r->p, call)[0]};
    conv->frozen = r->frozen[weight] && (!conv->has_bias || r->frozen[kin_ir_arg(r->p, call, 2)]);
    conv->transposed = args[6].kind == KIN_ATEN_BOOL && args[6].i;
    return n >= 1 && n <= 3 && rewrite_is_float(r, x) && kin_ir_at(r->p, weight)->dtype == kin_ir_at(r->p, x)->dtype &&
                 args[6].kind == KIN_ATEN_BOOL && args[8].kind == KIN_ATEN_INT &&
                 rewrite_read_ints(r, &args[3], n, conv->stride) && rewrite_read_ints(r, &args[4], n, conv->padding) &&
                 rewrite_read_ints(r, &args[5], n, conv->dilation);
}

/* Is it one that is done in a kernel of its own, ours or the library's? */
static bool
is_planned(const rewriting *r, kin_irn call, kin_library_call *conv)
{
    if (!rewrite_reads_convolution(r, call, conv) || rewrite_is_filter(r, call, conv))
        return false;
    conv->own = r->may.own && suits_us(r, call, conv) && (conv->frozen || pays_to_pack(r, call));
    return conv->own || (conv->frozen && conv->nspatial == 2 && !conv->transposed && kin_ir_at(r->p, kin_ir_arg(r->p, call, 0))->dtype == KIN_F32);
}

/* -- planning ------------------------------------------------------------------------------------------------------ */

/* The number that every element is; NaN: it is not of that kind. */
static double
number_of(const kin_ir *p, kin_irn n)
{
    while (kin_ir_at(p, n)->op == KIN_IR_EXPAND || kin_ir_at(p, n)->op == KIN_IR_RESHAPE)
        n = kin_ir_arg(p, n, 0);
    return kin_ir_at(p, n)->op == KIN_IR_CONST && kin_ir_at(p, n)->dtype == KIN_F32 ? kin_ir_at(p, n)->value.f : NAN;
}

/* A relu, or, for our own, limits below and above, in this order. */
static bool
take_limit(const rewriting *r, kin_library_call *conv, kin_ir_op op, double number)
{
    if (conv->own && op == KIN_IR_MAX && conv->post == KIN_POST_NONE && !isnan(number)) {
        conv->post = KIN_POST_LIMIT;
        conv->least = number;
        conv->most = INFINITY;
        return true;
    }
    if (conv->own && op == KIN_IR_MIN && !isnan(number) && (conv->post == KIN_POST_NONE || conv->most == INFINITY)) {
        conv->least = conv->post == KIN_POST_NONE ? -INFINITY : conv->least;
        conv->post = KIN_POST_LIMIT;
        conv->most = number;
        return true;
    }
    if (conv->own || op != KIN_IR_MAX || number != 0 || !r->may.post || conv->post != KIN_POST_NONE)
        return false;
    conv->post = KIN_POST_RELU;
    return true;
}

/* The value per channel (channels elements, or one) that an [N, C, space...] operand repeats; 0: it is not of that kind. */
static kin_irn
per_channel(const rewriting *r, kin_irn n, int64_t channels)
{
    const kin_ir *p = r->p;
    if (!r->frozen[n] && kin_ir_at(p, n)->op != KIN_IR_EXPAND)
        return 0;
    if (kin_ir_at(p, n)->op != KIN_IR_EXPAND)
        return 0;
    kin_irn a = kin_ir_arg(p, n, 0);
    const kin_ir_node *node = kin_ir_at(p, a);
    if (!r->frozen[a] || node->dtype != KIN_F32)
        return 0;
    if (kin_ir_numel(p, a) == 1)
        return a;
    /* aligned at the right */
    const int64_t *sizes = kin_ir_sizes(p, a);
    unsigned behind = kin_ir_at(p, n)->ndim - 2u;
    return node->ndim > behind && sizes[node->ndim - 1 - behind] == channels && kin_ir_numel(p, a) == channels ? a : 0;
}

/* What else the node takes beside `n`, when `n` is an argument that the operation allows there; 0 = not. */
static kin_irn
other_operand(const kin_ir *p, kin_irn node, kin_irn n)
{
    kin_ir_op op = kin_ir_at(p, node)->op;
    bool commutes = op == KIN_IR_ADD || op == KIN_IR_MUL || op == KIN_IR_MAX || op == KIN_IR_MIN;
    if (!commutes && op != KIN_IR_SUB && op != KIN_IR_DIV)
        return 0;
    kin_irn a = kin_ir_arg(p, node, 0), b = kin_ir_arg(p, node, 1);
    if (a == b)
        return 0;
    return a == n ? b : commutes && b == n ? a : 0;
}

/* Every element of the result is a product of a pixel's channels with the weight's: one matrix with another, channels-last. */
static bool
is_product(const rewriting *r, const conv_plan *plan)
{
    enum { LEAST = 32 /* channels: with fewer, reading and writing is what counts */ };
    const int64_t *weight = kin_ir_sizes(r->p, kin_ir_arg(r->p, plan->call, 1)), *sizes = kin_ir_sizes(r->p, plan->result);
    bool plain = !plan->conv.transposed && plan->conv.nspatial == 2 && r->may.own && plan->conv.groups == 1 && weight[0] >= LEAST && weight[1] >= LEAST;
    for (unsigned d = 0; d < plan->conv.nspatial; d++)
        plain = plain && weight[2 + d] == 1 && plan->conv.padding[d] == 0;
    return plain && kin_ir_numel(r->p, plan->result) / sizes[1] > rewrite_few_rows(r);
}

/* Takes the next node in, when it can be; false: the plan ends. */
static bool
extend(rewriting *r, conv_plan *plan)
{
    const kin_ir *p = r->p;
    if (r->users[plan->end] != 1 || r->user[plan->end] == 0)
        return false;
    kin_irn next = r->user[plan->end], other = other_operand(p, next, plan->end);
    if (other == 0 || r->inside[next] || r->fused[next] != 0)
        return false;
    kin_ir_op op = kin_ir_at(p, next)->op;
    bool limits = op == KIN_IR_MAX || op == KIN_IR_MIN;
    if (limits || plan->conv.post != KIN_POST_NONE) {
        if (plan->product || !limits || !take_limit(r, &plan->conv, op, number_of(p, other)))
            return false;
    } else if (!plan->conv.has_add && per_channel(r, other, kin_ir_sizes(p, plan->result)[1]) != 0) {
        if (kin_vec_push(&plan->affine, next) != KIN_OK)
            return false;
    } else if (op == KIN_IR_ADD && !plan->product && !plan->conv.transposed && !plan->conv.has_add && !r->frozen[other] && kin_ir_same_sizes(p, other, next) &&
               kin_ir_at(p, other)->op != KIN_IR_EXPAND) {
        plan->conv.has_add = true;
        plan->added = other;
    } else {
        return false;
    }
    r->inside[plan->end] = true;
    plan->end = next;
    return true;
}

kin_status
rewrite_plan_convolutions(rewriting *r, conv_plans *plans)
{
    const kin_ir *p = r->p;
    for (kin_irn n = 1; n < p->nodes.len; n++) {
        conv_plan plan = {.result = n, .end = n};
        if (kin_ir_at(p, n)->op != KIN_IR_RESULT)
            continue;
        plan.call = kin_ir_arg(p, n, 0);
        if (!is_planned(r, plan.call, &plan.conv))
            continue;
        plan.product = is_product(r, &plan);
        while (kin_ir_at(p, n)->dtype == KIN_F32 && extend(r, &plan)) /* others are rounded first */
            ;
        if (kin_vec_push(plans, plan) != KIN_OK) {
            kin_vec_deinit(&plan.affine);
            return KIN_NOMEM;
        }
        r->fused[plan.end] = plans->len;
    }
    return KIN_OK;
}

void
rewrite_free_plans(conv_plans *plans)
{
    for (uint32_t i = 0; i < plans->len; i++)
        kin_vec_deinit(&plans->at[i].affine);
    kin_vec_deinit(plans);
}

/* -- emitting ------------------------------------------------------------------------------------------------------- */

static kin_irn
as_vector(rewriting *r, kin_irn n, int64_t channels)
{
    kin_ir *q = r->out->ir;
    kin_irn copy = rewrite_copy(r, n);
    int64_t size = kin_ir_numel(q, copy);
    return kin_ir_expand(q, kin_ir_reshape(q, copy, 1, &size), 1, &channels);
}

/* scale * conv + shift = conv with other weights and another bias. `bias` may be 0. */
static void
fold_affine(rewriting *r, const conv_plan *plan, kin_irn *weight, kin_irn *bias)
{
    kin_ir *q = r->out->ir;
    int64_t channels = kin_ir_sizes(r->p, plan->result)[1];
    kin_irn scale = 0, previous = plan->result;
    for (uint32_t i = 0; i < plan->affine.len; i++) {
        kin_irn node = plan->affine.at[i];
        kin_ir_op op = kin_ir_at(r->p, node)->op;
        kin_irn e = as_vector(r, per_channel(r, other_operand(r->p, node, previous), channels), channels);
        if (op == KIN_IR_MUL || op == KIN_IR_DIV) {
            scale = scale != 0 ? kin_ir_binary(q, op, scale, e) : op == KIN_IR_MUL ? e : kin_ir_unary(q, KIN_IR_RECIPROCAL, e);
            *bias = *bias != 0 ? kin_ir_binary(q, op, *bias, e) : 0;
        } else if (*bias != 0) {
            *bias = kin_ir_binary(q, op, *bias, e);
        } else {
            *bias = op == KIN_IR_SUB ? kin_ir_unary(q, KIN_IR_NEG, e) : e;
        }
        previous = node;
    }
    if (scale == 0)
        return;
    int64_t column[KIN_IR_MAX_DIMS] = {1, 1, 1, 1, 1}, sizes[KIN_IR_MAX_DIMS];
    column[plan->conv.transposed ? 1 : 0] = channels;
    unsigned ndim = kin_ir_at(q, *weight)->ndim;
    memcpy(sizes, kin_ir_sizes(q, *weight), ndim * sizeof *sizes);
    *weight = kin_ir_binary(q, KIN_IR_MUL, *weight, kin_ir_expand(q, kin_ir_reshape(q, scale, ndim, column), ndim, sizes));
}

/* An input image with several channels and another layout is copied first; values between calls get their layout later (channels_last.c). */
kin_irn
rewrite_image(rewriting *r, kin_irn n, bool pairs)
{
    kin_irn image = rewrite_copy(r, n);
    if (!pairs)
        image = rewrite_cast(r, image, KIN_F32);
    const kin_ir *q = r->out->ir;
    const kin_ir_node *node = kin_ir_at(q, image);
    int64_t strides[KIN_IR_MAX_DIMS];
    if (node->op != KIN_IR_INPUT && !r->fixed[n])
        return image;
    rewrite_channels_last(kin_ir_sizes(q, image), node->ndim, strides);
    if (node->op == KIN_IR_INPUT && node->strides != 0 && memcmp(q->ints.at + node->strides, strides, node->ndim * sizeof *strides) == 0)
        return image;
    image = kin_ir_unary(r->out->ir, KIN_IR_CAST, image);
    kin_ir_set_strides(r->out->ir, image, strides);
    return image;
}

kin_irn
rewrite_lay_out_as_before(rewriting *r, kin_irn end, kin_irn result, kin_irn made)
{
    kin_dtype dtype = kin_ir_at(r->p, end)->dtype;
    if (!r->fixed[end])
        return rewrite_cast(r, made, dtype);
    kin_irn copy = kin_ir_at(r->out->ir, made)->dtype != dtype ? kin_ir_cast(r->out->ir, made, dtype) : kin_ir_unary(r->out->ir, KIN_IR_CAST, made); /* as it lay before */
    const kin_ir_node *old = kin_ir_at(r->p, result);
    if (copy != 0 && old->strides != 0)
        kin_ir_set_strides(r->out->ir, copy, r->p->ints.at + old->strides);
    return copy;
}

/* [N, C, H, W] to [N H W, C], times the weight, and back: views of channels-last memory, but for pixels that are left out. */
static kin_irn
emit_product(rewriting *r, const conv_plan *plan, kin_irn weight, kin_irn bias)
{
    kin_ir *q = r->out->ir;
    kin_irn x = rewrite_copy(r, kin_ir_arg(r->p, plan->call, 0));
    if (kin_ir_at(q, x)->dtype != KIN_BF16 || !r->may.pairs)
        x = rewrite_cast(r, x, KIN_F32);
    int64_t sizes[4], strides[4], in = kin_ir_sizes(q, x)[1];
    memcpy(sizes, kin_ir_sizes(r->p, plan->end), sizeof sizes);
    rewrite_channels_last(sizes, 4, strides);
    const int64_t steps[4] = {1, 1, plan->conv.stride[0], plan->conv.stride[1]};
    x = kin_ir_slice(q, x, (int64_t[4]){0}, steps, (int64_t[]){sizes[0], in, sizes[2], sizes[3]});
    int64_t rows = sizes[0] * sizes[2] * sizes[3], out = sizes[1], pixels[4] = {sizes[0], sizes[2], sizes[3], out};
    kin_library_call call = {.kind = KIN_LIBRARY_MATMUL, .frozen = plan->conv.frozen, .nspatial = plan->conv.nspatial, .call = plan->conv.call};
    kin_irn args[2] = {kin_ir_reshape(q, kin_ir_permute(q, x, (int64_t[]){0, 2, 3, 1}), 2, (int64_t[]){rows, in}),
                       kin_ir_permute(q, kin_ir_reshape(q, weight, 2, (int64_t[]){out, in}), (int64_t[]){1, 0})};
    kin_irn made = rewrite_emit(r, &call, "library.matmul", args, 2, KIN_F32, 2, (int64_t[]){rows, out}, NULL);
    if (bias != 0)
        made = kin_ir_binary(q, KIN_IR_ADD, made, kin_ir_expand(q, bias, 2, (int64_t[]){rows, out}));
    made = kin_ir_permute(q, kin_ir_reshape(q, made, 4, pixels), (int64_t[]){0, 3, 1, 2});
    kin_ir_set_strides(q, made, strides);
    return made;
}

/* Is it done on bfloat16 as it is? Others of half precision are float inside. */
static bool
has_pairs(const rewriting *r, const conv_plan *plan)
{
    kin_irn x = kin_ir_arg(r->p, plan->call, 0);
    return kin_ir_at(r->p, x)->dtype == KIN_BF16 && r->may.pairs && plan->conv.own && !plan->conv.transposed &&
           kin_convolution_has_pairs(kin_ir_sizes(r->p, x)[1], plan->conv.groups);
}

kin_irn
rewrite_convolution(rewriting *r, const conv_plan *plan)
{
    kin_library_call conv = plan->conv;
    kin_irn weight = rewrite_copy(r, kin_ir_arg(r->p, plan->call, 1));
    bool pairs = has_pairs(r, plan);
    if (!plan->product && !pairs)
        weight = rewrite_cast(r, weight, KIN_F32);
    kin_irn bias = conv.has_bias ? rewrite_cast(r, rewrite_copy(r, kin_ir_arg(r->p, plan->call, 2)), KIN_F32) : 0;
    fold_affine(r, plan, &weight, &bias);
    if (plan->product)
        return rewrite_lay_out_as_before(r, plan->end, plan->result, emit_product(r, plan, weight, bias));
    kin_irn x = kin_ir_arg(r->p, plan->call, 0), args[4] = {conv.own ? rewrite_image(r, x, pairs) : rewrite_copy(r, x), weight};
    unsigned nargs = 2;
    conv.has_bias = bias != 0;
    if (bias != 0)
        args[nargs++] = bias;
    if (conv.has_add)
        args[nargs++] = rewrite_copy(r, plan->added);
    char name[64];
    snprintf(name, sizeof name, "library.%s%s%s%s", conv.transposed ? "transposed" : "conv", bias != 0 ? "+bias" : "", conv.has_add ? "+add" : "",
             conv.post == KIN_POST_NONE ? "" : conv.post == KIN_POST_RELU || (conv.least == 0 && conv.most == INFINITY) ? "+relu" : "+limit");
    int64_t sizes[KIN_IR_MAX_DIMS], strides[KIN_IR_MAX_DIMS];
    unsigned ndim = kin_ir_at(r->p, plan->end)->ndim;
    memcpy(sizes, kin_ir_sizes(r->p, plan->end), ndim * sizeof *sizes);
    rewrite_channels_last(sizes, ndim, strides);
    kin_irn result = rewrite_emit(r, &conv, name, args, nargs, KIN_F32, ndim, sizes, strides);
    return rewrite_lay_out_as_before(r, plan->end, plan->result, result);
}
