/* Matrix products: small ones become reductions, others MATMUL calls with the bias taken out. Half-precision products are summed in float and
 * rounded once, after the bias. */
#include "core/ir/scalar.h"
#include "core/rewrite/rewrite_priv.h"

#include <string.h>

#include "core/tiles/tile.h"

enum {
    SMALL_PRODUCT = 32768, /* multiplications: below, a call costs more than the arithmetic */
    SMALL_SIDE = 64,       /* elements of the right side: the same where the number of rows should not decide */
    MOST_TOGETHER = 8
};

typedef struct {
    kin_irn a, b, bias;     /* nodes of p; bias 0 = none */
    int64_t batch, m, k, n; /* batch 0: two dims */
    double alpha, beta;     /* alpha a b + beta bias */
    kin_dtype dtype;        /* of all of them */
} product;

/* A factor that is given as a number, 1 if it is not given. */
static bool
read_factor(const rewriting *r, const kin_aten_call *call, const char *keyword, double *out)
{
    const kin_aten_arg *arg = kin_aten_find(r->g, call, UINT32_MAX, keyword);
    *out = arg == NULL ? 1 : arg->kind == KIN_ATEN_INT ? (double)arg->i : arg->f;
    return arg == NULL || arg->kind == KIN_ATEN_INT || arg->kind == KIN_ATEN_FLOAT;
}

/* What is added, and the factors. With a beta of 0 nothing of it is read; with an alpha of 0 nothing is multiplied: torch's, then. */
static bool
read_added(const rewriting *r, kin_irn call, product *out)
{
    const kin_aten_call *captured = rewrite_captured(r, call);
    out->bias = kin_ir_arg(r->p, call, 0);
    if (!read_factor(r, captured, "alpha", &out->alpha) || !read_factor(r, captured, "beta", &out->beta) || out->alpha == 0)
        return false;
    out->bias = out->beta == 0 ? 0 : out->bias;
    return true;
}

/* Where the processor multiplies whole matrices of bfloat16, PyTorch's product (oneDNN's) is several times as fast as ours by pairs. A right side that is packed
 * once, and what is fused behind, make up for that; one that changes from call to call does not. */
static bool
stays_a_call(const rewriting *r, const product *x)
{
    enum { LEAST = 1 << 20 };
    return x->dtype == KIN_BF16 && x->batch == 0 && !r->frozen[x->b] && x->m * x->k * x->n >= LEAST && r->may.pairs && kin_tile_has_matrices();
}

static bool
read_product(const rewriting *r, kin_irn call, product *out)
{
    bool add = rewrite_is(r, call, KIN_ATEN_OP(addmm, default)) || rewrite_is(r, call, KIN_ATEN_OP(baddbmm, default));
    bool batched = rewrite_is(r, call, KIN_ATEN_OP(bmm, default)) || rewrite_is(r, call, KIN_ATEN_OP(baddbmm, default));
    if (!batched && !add && !rewrite_is(r, call, KIN_ATEN_OP(mm, default)))
        return false;
    unsigned nargs = kin_ir_at(r->p, call)->nargs, first = add ? 1 : 0;
    *out = (product){.alpha = 1, .beta = 1};
    if (nargs != first + 2 || rewrite_captured(r, call)->nargs < nargs || (add && !read_added(r, call, out)))
        return false;
    out->a = kin_ir_arg(r->p, call, first);
    out->b = kin_ir_arg(r->p, call, first + 1);
    const int64_t *a = kin_ir_sizes(r->p, out->a) + batched, *b = kin_ir_sizes(r->p, out->b) + batched;
    out->batch = batched ? a[-1] : 0;
    out->m = a[0];
    out->k = a[1];
    out->n = b[1];
    out->dtype = kin_ir_at(r->p, out->a)->dtype;
    return rewrite_is_float(r, out->a) && kin_ir_at(r->p, out->b)->dtype == out->dtype && !stays_a_call(r, out) &&
           (out->bias == 0 || kin_ir_at(r->p, out->bias)->dtype == out->dtype);
}

static bool
is_small(const rewriting *r, const product *x)
{
    int64_t all = (x->batch ? x->batch : 1) * x->m * x->k * x->n;
    return x->m == 1 || x->n == 1 || (r->may.varying ? x->k * x->n <= SMALL_SIDE : all <= SMALL_PRODUCT);
}

/* Are neighbours along the last dim neighbours in memory? Looks through transposes to what is stored. */
static bool
is_row_major(const rewriting *r, kin_irn n)
{
    int64_t dims[KIN_IR_MAX_DIMS];
    unsigned ndim = kin_ir_at(r->p, n)->ndim;
    for (unsigned d = 0; d < ndim; d++)
        dims[d] = d;
    for (; kin_ir_at(r->p, n)->op == KIN_IR_PERMUTE; n = kin_ir_arg(r->p, n, 0))
        for (unsigned d = 0; d < ndim; d++)
            dims[d] = kin_ir_attrs(r->p, n)[dims[d]];
    return dims[ndim - 1] == ndim - 1;
}

/* The left side as the product wants it (gemm_blocked.h); the right side is taken as it is. */
static kin_irn
left_of(rewriting *r, const product *x)
{
    kin_irn a = rewrite_copy(r, x->a);
    return x->dtype == KIN_BF16 && r->may.pairs ? a : rewrite_cast(r, a, KIN_F32);
}

/* sum over k of a[.., m, k] * b[.., k, n]. With b stored along n its rows are added up, else each element is a dot product. */
static kin_irn
emit_reduction(rewriting *r, const product *x)
{
    kin_ir *q = r->out->ir;
    bool rows = is_row_major(r, x->b) && x->n > 1;
    unsigned d = x->batch ? 1 : 0, ndim = 3 + d;
    int64_t full[4] = {x->batch, 0, 0, 0}, one_a[4] = {x->batch, 0, 0, 0}, one_b[4] = {x->batch, 1, 0, 0}, to[3];
    full[d] = one_a[d] = x->m;
    full[d + 1] = rows ? x->k : x->n;
    full[d + 2] = rows ? x->n : x->k;
    one_a[d + 1] = rows ? x->k : 1;
    one_a[d + 2] = rows ? 1 : x->k;
    one_b[d] = 1;
    one_b[d + 1] = full[d + 1];
    one_b[d + 2] = full[d + 2];
    kin_irn a = rewrite_copy(r, x->a), b = rewrite_copy(r, x->b);
    if (!rows)
        b = kin_ir_permute(q, b, d ? (int64_t[]){0, 2, 1} : (int64_t[]){1, 0});
    a = rewrite_cast(r, kin_ir_reshape(q, a, ndim, one_a), KIN_F32); /* behind the views, which merge with those before */
    b = rewrite_cast(r, kin_ir_reshape(q, b, ndim, one_b), KIN_F32);
    kin_irn left = kin_ir_expand(q, a, ndim, full), right = kin_ir_expand(q, b, ndim, full);
    kin_irn sum = kin_ir_reduce(q, KIN_IR_REDUCE_SUM, kin_ir_binary(q, KIN_IR_MUL, left, right), 1,
                                (int64_t[]){rows ? d + 1 : d + 2});
    to[0] = x->batch;
    to[d] = x->m;
    to[d + 1] = x->n;
    return kin_ir_reshape(q, sum, 2 + d, to);
}

static kin_irn
emit_call(rewriting *r, const product *x, uint32_t number)
{
    kin_library_call call = {.kind = KIN_LIBRARY_MATMUL, .frozen = x->batch == 0 && r->frozen[x->b], .call = number};
    kin_irn args[2] = {left_of(r, x), rewrite_copy(r, x->b)};
    const int64_t sizes[3] = {x->batch, x->m, x->n};
    unsigned ndim = x->batch == 0 ? 2 : 3;
    return rewrite_emit(r, &call, "library.matmul", args, 2, KIN_F32, ndim, sizes + 3 - ndim, NULL);
}

static kin_irn
scale(rewriting *r, kin_irn n, double by)
{
    kin_ir *q = r->out->ir;
    kin_scalar factor = kin_scalar_settle(KIN_F32, (kin_scalar){.f = by});
    int64_t sizes[KIN_IR_MAX_DIMS];
    unsigned ndim = kin_ir_at(q, n)->ndim;
    memcpy(sizes, kin_ir_sizes(q, n), ndim * sizeof *sizes);
    return by == 1 ? n : kin_ir_binary(q, KIN_IR_MUL, n, kin_ir_const(q, KIN_F32, factor, ndim, sizes));
}

/* What was made in float, with bias, as the operator gives it. */
static kin_irn
finish(rewriting *r, const product *x, kin_irn made)
{
    kin_ir *q = r->out->ir;
    const int64_t sizes[3] = {x->batch, x->m, x->n};
    unsigned ndim = x->batch == 0 ? 2 : 3;
    made = scale(r, made, x->alpha);
    if (x->bias != 0) {
        kin_irn bias = scale(r, rewrite_cast(r, rewrite_copy(r, x->bias), KIN_F32), x->beta);
        made = kin_ir_binary(q, KIN_IR_ADD, made, kin_ir_expand(q, bias, ndim, sizes + 3 - ndim));
    }
    return rewrite_cast(r, made, x->dtype);
}

/* -- several products of one matrix ------------------------------------------------------------------------------- */

typedef struct {
    kin_irn result;
    product x;
} member;

/* Do we compute products like this one ourselves? */
static bool
is_ours(const rewriting *r, const product *x)
{
    return x->dtype == KIN_F32 ? r->may.products : r->may.own;
}

/* Is `n` a product that can be a part of one wider product, apart from what is multiplied? */
static bool
read_member(const rewriting *r, kin_irn n, member *out)
{
    out->result = n;
    return kin_ir_at(r->p, n)->op == KIN_IR_RESULT && read_product(r, kin_ir_arg(r->p, n, 0), &out->x) && out->x.batch == 0 &&
           out->x.alpha == 1 && out->x.beta == 1 && !is_small(r, &out->x) && out->x.m > (is_ours(r, &out->x) ? 1 : rewrite_few_rows(r)) && r->frozen[out->x.b] && !r->frozen[out->x.a] &&
           (out->x.bias == 0 || r->frozen[out->x.bias]);
}

/* Biases side by side, for all columns at once; where a product has none, what changes nothing. 0: they are not of that kind, or there are
 * none. */
static kin_irn
wide_bias(rewriting *r, const member *all, unsigned count, int64_t width)
{
    kin_ir *q = r->out->ir;
    kin_irn parts[MOST_TOGETHER];
    bool some = false;
    for (unsigned i = 0; i < count; i++) {
        some |= all[i].x.bias != 0;
        if (all[i].x.bias != 0 && (kin_ir_at(r->p, all[i].x.bias)->ndim != 1 || kin_ir_numel(r->p, all[i].x.bias) != all[i].x.n))
            return 0;
    }
    for (unsigned i = 0; some && i < count; i++)
        parts[i] = all[i].x.bias != 0 ? rewrite_cast(r, rewrite_copy(r, all[i].x.bias), KIN_F32)
                                      : kin_ir_const(q, KIN_F32, (kin_scalar){.f = -0.0}, 1, &all[i].x.n);
    return some ? kin_ir_expand(q, kin_ir_cat(q, parts, count, 0), 2, (int64_t[]){all[0].x.m, width}) : 0;
}

/* The product `n` and later ones with the same left side, as slices of one with the right sides (all frozen, so put together
 * ahead of calls) side by side; 0: there are none. */
static kin_irn
emit_together(rewriting *r, kin_irn n, uint32_t number)
{
    member all[MOST_TOGETHER];
    unsigned count = 1;
    if (!read_member(r, n, &all[0]))
        return 0;
    for (kin_irn next = n + 1; next < r->p->nodes.len && count < MOST_TOGETHER; next++)
        if (read_member(r, next, &all[count]) && all[count].x.a == all[0].x.a && all[count].x.dtype == all[0].x.dtype)
            count++;
    if (count == 1)
        return 0;
    kin_ir *q = r->out->ir;
    kin_irn parts[MOST_TOGETHER];
    int64_t width = 0, m = all[0].x.m, at = 0;
    for (unsigned i = 0; i < count; i++) {
        parts[i] = rewrite_copy(r, all[i].x.b);
        width += all[i].x.n;
    }
    kin_library_call call = {.kind = KIN_LIBRARY_MATMUL, .frozen = true, .call = number};
    kin_irn args[2] = {left_of(r, &all[0].x), kin_ir_cat(q, parts, count, 1)};
    kin_irn wide = rewrite_emit(r, &call, "library.matmul", args, 2, KIN_F32, 2, (int64_t[]){m, width}, NULL);
    kin_irn bias = wide_bias(r, all, count, width), sum = bias != 0 ? kin_ir_binary(q, KIN_IR_ADD, wide, bias) : wide;
    for (unsigned i = 0; i < count; i++) {
        const product *x = &all[i].x;
        kin_irn slice = kin_ir_slice(q, sum, (int64_t[]){0, at}, (int64_t[]){1, 1}, (int64_t[]){m, x->n});
        r->map[all[i].result] = bias != 0 ? rewrite_cast(r, slice, x->dtype) : finish(r, x, slice);
        at += x->n;
    }
    return r->map[n];
}

kin_irn
rewrite_product(rewriting *r, kin_irn n)
{
    kin_irn call = kin_ir_arg(r->p, n, 0);
    product x;
    if (!read_product(r, call, &x) || x.k == 0 || kin_ir_numel(r->p, n) == 0)
        return 0;
    if (!is_small(r, &x) && x.batch != 0 && (!is_ours(r, &x) || x.m <= rewrite_few_rows(r)))
        return 0;
    uint32_t number = (uint32_t)kin_ir_attrs(r->p, call)[0];
    kin_irn together = emit_together(r, n, number);
    if (together != 0)
        return together;
    return finish(r, &x, is_small(r, &x) ? emit_reduction(r, &x) : emit_call(r, &x, number));
}
