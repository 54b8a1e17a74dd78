/* The interpreter, used as oracle: evaluates a tensor program node after node, element after element, in row-major arrays of scalars. Slow and
 * plain on purpose: compiled kernels are compared with it.
 */
#include "core/ir/ir.h"
#include "core/ir/scalar.h"

#include <math.h>

typedef struct {
    const kin_ir *p;
    kin_irn i;
    const kin_ir_node *n;
    const int64_t *sizes, *attrs;
    kin_scalar *out;
    kin_scalar **values;   /* of all nodes so far */
    int64_t count;
} eval;

static kin_irn arg_of(const eval *e, unsigned k) { return kin_ir_arg(e->p, e->i, k); }
static const kin_scalar *arg_values(const eval *e, unsigned k) { return e->values[arg_of(e, k)]; }
static const int64_t *arg_sizes(const eval *e, unsigned k) { return kin_ir_sizes(e->p, arg_of(e, k)); }
static kin_dtype arg_dtype(const eval *e, unsigned k) { return (kin_dtype)kin_ir_at(e->p, arg_of(e, k))->dtype; }

static void
unravel(int64_t linear, unsigned ndim, const int64_t *sizes, int64_t *at)
{
    for (unsigned d = ndim; d-- > 0; linear /= sizes[d])
        at[d] = linear % sizes[d];
}

static int64_t
ravel(unsigned ndim, const int64_t *sizes, const int64_t *at)
{
    int64_t linear = 0;
    for (unsigned d = 0; d < ndim; d++)
        linear = linear * sizes[d] + at[d];
    return linear;
}

static kin_status
eval_leaf(eval *e, const void *const *inputs)
{
    kin_dtype dtype = (kin_dtype)e->n->dtype;
    int64_t at[KIN_IR_MAX_DIMS];
    for (int64_t i = 0; i < e->count; i++) {
        if (e->n->op == KIN_IR_INPUT)
            e->out[i] = kin_scalar_load(dtype, inputs[e->attrs[0]], i);
        else if (e->n->op == KIN_IR_CONST)
            e->out[i] = kin_scalar_settle(dtype, e->n->value);
        else {
            unravel(i, e->n->ndim, e->sizes, at);
            e->out[i] = kin_scalar_settle(dtype, (kin_scalar){.i = at[e->attrs[0]]});
        }
    }
    return KIN_OK;
}

static kin_status
eval_pointwise(eval *e)
{
    for (int64_t i = 0; i < e->count; i++) {
        kin_scalar args[3];
        for (unsigned k = 0; k < e->n->nargs; k++)
            args[k] = arg_values(e, k)[i];
        if (!kin_scalar_compute((kin_ir_op)e->n->op, arg_dtype(e, e->n->nargs - 1u), (kin_dtype)e->n->dtype, args, &e->out[i]))
            return KIN_BREAK;
    }
    return KIN_OK;
}

/* Where the element at `at` comes from, in the argument with `sizes`; false: from outside. For EXPAND, PERMUTE, SLICE, PAD. */
static bool
source_of(const eval *e, const int64_t *at, unsigned ndim, const int64_t *sizes, int64_t *from)
{
    unsigned shift = e->n->ndim - ndim;
    for (unsigned d = 0; d < ndim; d++) {
        switch (e->n->op) {
        case KIN_IR_EXPAND: from[d] = sizes[d] == 1 ? 0 : at[shift + d]; break;
        case KIN_IR_PERMUTE: from[e->attrs[d]] = at[d]; break;
        case KIN_IR_SLICE: from[d] = e->attrs[d] + at[d] * e->attrs[ndim + d]; break;
        default: from[d] = at[d] - e->attrs[d]; break;
        }
    }
    for (unsigned d = 0; d < ndim; d++)
        if (from[d] < 0 || from[d] >= sizes[d])
            return false;
    return true;
}

/* Coordinates in a value of `ndim` and `sizes` by the map of INDEX or SCATTER; false: an index is out of bounds. */
static bool
map_to(const eval *e, const int64_t *map, const int64_t *at, int64_t linear, unsigned first, unsigned ndim,
       const int64_t *sizes, int64_t *to)
{
    for (unsigned d = 0; d < ndim; d++) {
        to[d] = map[d] >= 0 ? at[map[d]] : arg_values(e, first + (unsigned)(-1 - map[d]))[linear].i;
        if (to[d] < 0 || to[d] >= sizes[d])
            return false;
    }
    return true;
}

static const kin_scalar *
find_part(const eval *e, int64_t *at)
{
    int64_t dim = e->attrs[0];
    unsigned k = 0;
    for (; at[dim] >= arg_sizes(e, k)[dim]; k++)
        at[dim] -= arg_sizes(e, k)[dim];
    return arg_values(e, k) + ravel(e->n->ndim, arg_sizes(e, k), at);
}

static kin_status
eval_view(eval *e)
{
    unsigned ndim = kin_ir_at(e->p, arg_of(e, 0))->ndim;
    const int64_t *sizes = arg_sizes(e, 0);
    int64_t at[KIN_IR_MAX_DIMS], from[KIN_IR_MAX_DIMS];
    for (int64_t i = 0; i < e->count; i++) {
        if (e->n->op == KIN_IR_RESHAPE) {
            e->out[i] = arg_values(e, 0)[i];
            continue;
        }
        unravel(i, e->n->ndim, e->sizes, at);
        if (e->n->op == KIN_IR_CAT) {
            e->out[i] = *find_part(e, at);
            continue;
        }
        bool inside = e->n->op == KIN_IR_INDEX ? map_to(e, e->attrs, at, i, 1, ndim, sizes, from)
                                               : source_of(e, at, ndim, sizes, from);
        if (!inside && e->n->op != KIN_IR_PAD)
            return KIN_BREAK;
        e->out[i] = inside ? arg_values(e, 0)[ravel(ndim, sizes, from)] : arg_values(e, 1)[0];
    }
    return KIN_OK;
}

static kin_status
eval_scatter(eval *e)
{
    static const kin_ir_op ops[] = {[KIN_IR_SCATTER_ADD] = KIN_IR_ADD, [KIN_IR_SCATTER_MUL] = KIN_IR_MUL,
                                    [KIN_IR_SCATTER_MAX] = KIN_IR_MAX, [KIN_IR_SCATTER_MIN] = KIN_IR_MIN};
    kin_dtype dtype = (kin_dtype)e->n->dtype;
    unsigned ndim = kin_ir_at(e->p, arg_of(e, 1))->ndim;
    int64_t many = kin_ir_numel(e->p, arg_of(e, 1)), at[KIN_IR_MAX_DIMS], to[KIN_IR_MAX_DIMS];
    for (int64_t i = 0; i < e->count; i++)
        e->out[i] = arg_values(e, 0)[i];
    for (int64_t i = 0; i < many; i++) {
        unravel(i, ndim, arg_sizes(e, 1), at);
        if (!map_to(e, e->attrs + 1, at, i, 2, e->n->ndim, e->sizes, to))
            return KIN_BREAK;
        kin_scalar *place = &e->out[ravel(e->n->ndim, e->sizes, to)], two[2] = {*place, arg_values(e, 1)[i]};
        if (e->attrs[0] == KIN_IR_SCATTER_SET)
            *place = two[1];
        else if (!kin_scalar_compute(ops[e->attrs[0]], dtype, dtype, two, place))
            return KIN_BREAK;
    }
    return KIN_OK;
}

/* One more element for an accumulator, in double for floating dtypes. */
static kin_scalar
accumulate(kin_ir_op op, kin_dtype dtype, kin_scalar so_far, kin_scalar x)
{
    kin_ir_op step = op == KIN_IR_REDUCE_SUM || op == KIN_IR_CUMSUM ? KIN_IR_ADD
                     : op == KIN_IR_REDUCE_PROD || op == KIN_IR_CUMPROD ? KIN_IR_MUL
                     : op == KIN_IR_REDUCE_MAX || op == KIN_IR_CUMMAX || op == KIN_IR_REDUCE_ANY ? KIN_IR_MAX
                     : KIN_IR_MIN;
    kin_dtype wide = kin_dtype_is_float(dtype) ? KIN_F64 : dtype;
    kin_scalar out = so_far;
    (void)kin_scalar_compute(step, wide, wide, (kin_scalar[]){so_far, x}, &out);
    return out;
}

static kin_scalar
start_of(kin_ir_op op, kin_dtype dtype)
{
    int one = op == KIN_IR_REDUCE_PROD || op == KIN_IR_REDUCE_ALL;
    return kin_dtype_is_float(dtype) ? (kin_scalar){.f = one} : (kin_scalar){.i = one};
}

/* Whether x beats the best so far: NaN beats everything, the first of equals stays. */
static bool
beats(kin_ir_op op, kin_dtype dtype, kin_scalar x, kin_scalar best)
{
    if (!kin_dtype_is_float(dtype))
        return op == KIN_IR_ARGMAX ? x.i > best.i : x.i < best.i;
    if (isnan(x.f) || isnan(best.f))
        return isnan(x.f) && !isnan(best.f);
    return op == KIN_IR_ARGMAX ? x.f > best.f : x.f < best.f;
}

/* `best` and `seen` have an element for each of the result's. */
static void
reduce_all(eval *e, kin_scalar *best, bool *seen)
{
    kin_ir_op op = (kin_ir_op)e->n->op;
    kin_dtype dtype = arg_dtype(e, 0);
    bool is_arg = kin_ir_op_is_arg(op);
    int64_t many = kin_ir_numel(e->p, arg_of(e, 0)), at[KIN_IR_MAX_DIMS];
    for (int64_t i = 0; i < many; i++) {
        unravel(i, e->n->ndim, arg_sizes(e, 0), at);
        int64_t place = e->n->nattrs == 1 ? at[e->attrs[0]] : i;
        for (unsigned k = 0; k < e->n->nattrs; k++)
            at[e->attrs[k]] = 0;
        int64_t o = ravel(e->n->ndim, e->sizes, at);
        kin_scalar x = arg_values(e, 0)[i];
        if (is_arg && (!seen[o] || beats(op, dtype, x, best[o]))) {
            best[o] = x;
            e->out[o].i = place;
        } else if (!is_arg)
            best[o] = seen[o] ? accumulate(op, dtype, best[o], x) : x;
        seen[o] = true;
    }
    for (int64_t o = 0; o < e->count && !is_arg; o++)
        e->out[o] = kin_scalar_settle(dtype, seen[o] ? best[o] : start_of(op, dtype));
}

static kin_status
eval_reduce(eval *e)
{
    kin_scalar *best = calloc((size_t)e->count + 1, sizeof *best);
    bool *seen = calloc((size_t)e->count + 1, sizeof *seen);
    if (best != NULL && seen != NULL)
        reduce_all(e, best, seen);
    kin_status status = best != NULL && seen != NULL ? KIN_OK : KIN_NOMEM;
    free(best);
    free(seen);
    return status;
}

static kin_status
eval_scan(eval *e)
{
    kin_dtype dtype = (kin_dtype)e->n->dtype;
    int64_t dim = e->attrs[0], length = e->sizes[dim], step = 1;
    for (unsigned d = (unsigned)dim + 1; d < e->n->ndim; d++)
        step *= e->sizes[d];
    for (int64_t i = 0; i < e->count; i++) {
        if (i / step % length != 0)
            continue;
        kin_scalar so_far = arg_values(e, 0)[i];
        for (int64_t k = 0; k < length; k++) {
            if (k > 0)
                so_far = accumulate((kin_ir_op)e->n->op, dtype, so_far, arg_values(e, 0)[i + k * step]);
            e->out[i + k * step] = kin_scalar_settle(dtype, so_far);
        }
    }
    return KIN_OK;
}

static kin_status
eval_node(eval *e, const void *const *inputs)
{
    e->out = calloc((size_t)e->count + 1, sizeof *e->out);
    if (e->out == NULL)
        return KIN_NOMEM;
    e->values[e->i] = e->out;
    switch (kin_ir_op_class((kin_ir_op)e->n->op)) {
    case KIN_IR_CLASS_LEAF: return eval_leaf(e, inputs);
    case KIN_IR_CLASS_POINTWISE:
    case KIN_IR_CLASS_COMPARE: return eval_pointwise(e);
    case KIN_IR_CLASS_VIEW: return eval_view(e);
    case KIN_IR_CLASS_SCATTER: return eval_scatter(e);
    case KIN_IR_CLASS_REDUCE: return eval_reduce(e);
    case KIN_IR_CLASS_SCAN: return eval_scan(e);
    case KIN_IR_CLASS_EXTERN:
    case KIN_IR_CLASS_RESULT: return KIN_BREAK;
    }
    return KIN_BUG;
}

/* What nothing depends on is not computed by anybody else either, so that it does not fail. */
static bool *
find_live(const kin_ir *p)
{
    bool *live = calloc(p->nodes.len, sizeof *live);
    for (uint32_t o = 0; live != NULL && o < p->outputs.len; o++)
        live[p->outputs.at[o].node] = true;
    for (kin_irn i = p->nodes.len; live != NULL && i-- > 1;) {
        live[i] |= kin_ir_at(p, i)->op == KIN_IR_EXTERN;
        for (unsigned a = 0; live[i] && a < kin_ir_at(p, i)->nargs; a++)
            live[kin_ir_arg(p, i, a)] = true;
    }
    return live;
}

static kin_status
eval_nodes(const kin_ir *p, const void *const *inputs, const bool *live, kin_scalar **values)
{
    for (kin_irn i = 1; i < p->nodes.len; i++) {
        if (!live[i])
            continue;
        eval e = {.p = p, .i = i, .n = kin_ir_at(p, i), .sizes = kin_ir_sizes(p, i), .attrs = kin_ir_attrs(p, i),
                  .values = values, .count = kin_ir_numel(p, i)};
        KIN_TRY(eval_node(&e, inputs));
    }
    return KIN_OK;
}

static kin_status
store_outputs(const kin_ir *p, kin_scalar **values, void **outputs)
{
    for (uint32_t o = 0; o < p->outputs.len; o++) {
        kin_irn n = p->outputs.at[o].node;
        kin_dtype dtype = (kin_dtype)kin_ir_at(p, n)->dtype;
        int64_t count = kin_ir_numel(p, n);
        outputs[o] = malloc((size_t)count * kin_dtype_bytes(dtype) + 1);
        if (outputs[o] == NULL)
            return KIN_NOMEM;
        for (int64_t i = 0; i < count; i++)
            kin_scalar_store(dtype, outputs[o], i, values[n][i]);
    }
    return KIN_OK;
}

kin_status
kin_ir_eval(const kin_ir *p, const void *const *inputs, void **outputs)
{
    kin_scalar **values = calloc(p->nodes.len, sizeof *values);
    bool *live = find_live(p);
    for (uint32_t o = 0; o < p->outputs.len; o++)
        outputs[o] = NULL;
    kin_status status = values && live ? eval_nodes(p, inputs, live, values) : KIN_NOMEM;
    free(live);
    if (status == KIN_OK)
        status = store_outputs(p, values, outputs);
    for (uint32_t o = 0; o < p->outputs.len && status != KIN_OK; o++) {
        free(outputs[o]);
        outputs[o] = NULL;
    }
    for (kin_irn i = 1; values != NULL && i < p->nodes.len; i++)
        free(values[i]);
    free(values);
    return status;
}
