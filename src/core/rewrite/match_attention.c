/* Attention operators of which only the result is used become ATTENTION calls. */
#include "core/rewrite/rewrite_priv.h"

#include <math.h>

static bool
is_float_4d(const rewriting *r, kin_irn n)
{
    return rewrite_is_float(r, n) && kin_ir_at(r->p, n)->ndim == 4 && kin_ir_numel(r->p, n) > 0;
}

/* A mask is [1 or batch, 1 or heads, 1 or rows, 1 or keys], perhaps without the first dims. */
static bool
fits_mask(const rewriting *r, kin_irn mask, const int64_t *q, int64_t keys)
{
    const kin_ir_node *node = kin_ir_at(r->p, mask);
    int64_t full[4] = {q[0], q[1], q[2], keys};
    if (!rewrite_is_float(r, mask) || node->ndim > 4 || node->ndim < 2)
        return false;
    for (unsigned d = 0; d < node->ndim; d++) {
        int64_t size = kin_ir_sizes(r->p, mask)[d];
        if (size != 1 && size != full[4 - node->ndim + d])
            return false;
    }
    return true;
}

/* (query, key, value, dropout, causal, *, mask, scale) -> attention, logsumexp */
static bool
read_attention(const rewriting *r, kin_irn call, kin_library_call *out)
{
    const kin_aten_call *captured = rewrite_captured(r, call);
    if (!rewrite_is(r, call, KIN_ATEN_OP(_scaled_dot_product_flash_attention_for_cpu, default)))
        return false;
    const kin_aten_arg *dropout = kin_aten_find(r->g, captured, 3, "dropout_p"), *causal = kin_aten_find(r->g, captured, 4, "is_causal");
    const kin_aten_arg *mask = kin_aten_find(r->g, captured, 5, "attn_mask"), *scale = kin_aten_find(r->g, captured, 6, "scale");
    unsigned nargs = kin_ir_at(r->p, call)->nargs;
    if ((dropout != NULL && (dropout->kind != KIN_ATEN_FLOAT || dropout->f != 0)) || (causal != NULL && causal->kind != KIN_ATEN_BOOL) ||
        (scale != NULL && scale->kind != KIN_ATEN_FLOAT) || nargs != (mask != NULL ? 4u : 3u))
        return false;
    kin_irn q = kin_ir_arg(r->p, call, 0), k = kin_ir_arg(r->p, call, 1), v = kin_ir_arg(r->p, call, 2);
    if (!is_float_4d(r, q) || !is_float_4d(r, k) || !is_float_4d(r, v))
        return false;
    const int64_t *qs = kin_ir_sizes(r->p, q), *ks = kin_ir_sizes(r->p, k), *vs = kin_ir_sizes(r->p, v);
    *out = (kin_library_call){.kind = KIN_LIBRARY_ATTENTION, .has_add = mask != NULL, .causal = causal != NULL && causal->i != 0,
                              .scale = scale != NULL ? scale->f : 1 / sqrt((double)qs[3]),
                              .call = (uint32_t)kin_ir_attrs(r->p, call)[0]};
    return qs[0] == ks[0] && ks[0] == vs[0] && ks[1] == vs[1] && ks[2] == vs[2] && qs[1] % ks[1] == 0 && qs[3] == ks[3] &&
           qs[2] > rewrite_few_rows(r) && !(out->causal && mask != NULL) &&
           (mask == NULL || fits_mask(r, kin_ir_arg(r->p, call, 3), qs, ks[2]));
}

/* Is a result of the call used, other than the first? */
static bool
gives_more(const rewriting *r, kin_irn call)
{
    for (kin_irn n = call + 1; n < r->p->nodes.len; n++)
        if (kin_ir_at(r->p, n)->op == KIN_IR_RESULT && kin_ir_arg(r->p, n, 0) == call && kin_ir_attrs(r->p, n)[0] != 0 &&
            r->users[n] > 0)
            return true;
    return false;
}

kin_irn
rewrite_attention(rewriting *r, kin_irn n)
{
    kin_irn call = kin_ir_arg(r->p, n, 0), args[4];
    const kin_ir_node *node = kin_ir_at(r->p, n);
    kin_library_call made;
    if (kin_ir_attrs(r->p, n)[0] != 0 || !read_attention(r, call, &made) || gives_more(r, call))
        return 0;
    unsigned nargs = kin_ir_at(r->p, call)->nargs;
    for (unsigned a = 0; a < nargs; a++)
        args[a] = rewrite_cast(r, rewrite_copy(r, kin_ir_arg(r->p, call, a)), KIN_F32);
    kin_irn out = rewrite_emit(r, &made, "library.attention", args, nargs, KIN_F32, 4, kin_ir_sizes(r->p, n),
                                   node->strides != 0 ? r->p->ints.at + node->strides : NULL);
    return rewrite_cast(r, out, node->dtype);
}
