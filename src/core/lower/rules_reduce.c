/* Rules for reductions and scans. Reduced dims stay with size 1 in the tensor program; the reshape to the result's sizes
 * drops them if eager does.
 */
#include "core/lower/lower_priv.h"

#include <math.h>

typedef struct {
    unsigned count;
    int64_t dims[KIN_IR_MAX_DIMS];
    int64_t elements; /* how many become one */
} reduced;

/* A list of dims or one dim; none given = all of them. */
static bool
read_dims(low_call *c, kin_irn x, const kin_aten_arg *a, reduced *r)
{
    unsigned ndim = low_ndim_of(c, x), seen = 0;
    int64_t given[KIN_IR_MAX_DIMS];
    int count = a != NULL ? low_ints(c, a, given) : 0;
    *r = (reduced){.elements = 1};
    if (count < 0)
        return false;
    for (int k = 0; k < count && ndim > 0; k++) {
        int d = low_dim(given[k], ndim);
        if (d < 0 || (seen >> d & 1))
            return false;
        seen |= 1u << d;
    }
    for (unsigned d = 0; d < ndim; d++)
        if (count == 0 || (seen >> d & 1)) {
            r->dims[r->count++] = d;
            r->elements *= low_sizes_of(c, x)[d];
        }
    return true;
}

static kin_irn
reduce(low_call *c, kin_ir_op op, kin_irn x, const reduced *r)
{
    return kin_ir_reduce(c->ir, op, x, r->count, r->dims);
}

static bool
done(low_call *c, unsigned k, kin_irn x)
{
    return low_done(c, k, low_reshape_like(c, x, k));
}

/* max, min and their places need something to choose from. */
static bool
is_empty(const reduced *r)
{
    return r->elements == 0;
}

/* sum, prod: in the result's dtype, to which eager casts first */
bool
rule_sum(low_call *c, int op)
{
    kin_irn x = low_read(c, low_arg(c, 0, "self"));
    reduced r;
    if (x == 0 || !read_dims(c, x, low_arg(c, 1, "dim"), &r) || low_dtype(c, 0) == KIN_BOOL)
        return false;
    return done(c, 0, reduce(c, (kin_ir_op)op, kin_ir_cast(c->ir, x, low_dtype(c, 0)), &r));
}

/* Without NaNs. */
bool
rule_nansum(low_call *c, int row)
{
    kin_irn x = low_read(c, low_arg(c, 0, "self"));
    reduced r;
    if (x == 0 || !read_dims(c, x, low_arg(c, 1, "dim"), &r) || !kin_dtype_is_float(low_dtype_of(c, x)))
        return false;
    x = kin_ir_where(c->ir, low_bi(c, KIN_IR_NE, x, x), low_like(c, x, 0), x);
    return done(c, 0, reduce(c, KIN_IR_REDUCE_SUM, kin_ir_cast(c->ir, x, low_dtype(c, 0)), &r));
}

bool
rule_mean(low_call *c, int row)
{
    kin_irn x = low_read(c, low_arg(c, 0, "self"));
    reduced r;
    if (x == 0 || !read_dims(c, x, low_arg(c, 1, "dim"), &r) || !kin_dtype_is_float(low_dtype(c, 0)))
        return false;
    kin_irn sum = reduce(c, KIN_IR_REDUCE_SUM, kin_ir_cast(c->ir, x, low_wide(low_dtype(c, 0))), &r);
    return done(c, 0, low_bin(c, KIN_IR_DIV, sum, (double)r.elements));
}

/* amax, amin, max, min of everything, argmax, argmin */
bool
rule_extreme_of(low_call *c, int op)
{
    kin_irn x = low_read(c, low_arg(c, 0, "self"));
    reduced r;
    if (x == 0 || !read_dims(c, x, low_arg(c, 1, "dim"), &r) || is_empty(&r))
        return false;
    return done(c, 0, reduce(c, (kin_ir_op)op, x, &r));
}

/* max and min along a dim: values and places */
bool
rule_extreme_dim(low_call *c, int op)
{
    kin_irn x = low_read(c, low_arg(c, 0, "self"));
    reduced r;
    if (x == 0 || !read_dims(c, x, low_arg(c, 1, "dim"), &r) || is_empty(&r))
        return false;
    kin_ir_op places = op == KIN_IR_REDUCE_MAX ? KIN_IR_ARGMAX : KIN_IR_ARGMIN;
    return done(c, 0, reduce(c, (kin_ir_op)op, x, &r)) && done(c, 1, reduce(c, places, x, &r));
}

bool
rule_aminmax(low_call *c, int row)
{
    kin_irn x = low_read(c, low_arg(c, 0, "self"));
    reduced r;
    if (x == 0 || !read_dims(c, x, low_arg(c, UINT32_MAX, "dim"), &r) || is_empty(&r))
        return false;
    return done(c, 0, reduce(c, KIN_IR_REDUCE_MIN, x, &r)) && done(c, 1, reduce(c, KIN_IR_REDUCE_MAX, x, &r));
}

bool
rule_any(low_call *c, int op)
{
    kin_irn x = low_read(c, low_arg(c, 0, "self"));
    reduced r;
    if (x == 0 || !read_dims(c, x, low_arg(c, 1, "dim"), &r))
        return false;
    x = kin_ir_cast(c->ir, x, KIN_BOOL);
    return done(c, 0, reduce(c, (kin_ir_op)op, op == KIN_IR_REDUCE_SUM ? kin_ir_cast(c->ir, x, KIN_I64) : x, &r));
}

/* In two passes: the mean, then the squared distances from it. Eager warns where no degree of freedom is left. */
bool
rule_var(low_call *c, int row)
{
    kin_irn x = low_read(c, low_arg(c, 0, "self"));
    reduced r;
    if (x == 0 || !read_dims(c, x, low_arg(c, 1, "dim"), &r) || !kin_dtype_is_float(low_dtype_of(c, x)))
        return false;
    double left = (double)r.elements - low_float_or(c, 2, "correction", 1);
    if (left <= 0)
        return false;
    x = kin_ir_cast(c->ir, x, low_wide(low_dtype_of(c, x)));
    kin_irn mean = low_bin(c, KIN_IR_DIV, reduce(c, KIN_IR_REDUCE_SUM, x, &r), (double)r.elements);
    kin_irn away = low_bi(c, KIN_IR_SUB, x, low_expand_like(c, mean, x));
    kin_irn sum = reduce(c, KIN_IR_REDUCE_SUM, low_bi(c, KIN_IR_MUL, away, away), &r);
    kin_irn spread = low_bin(c, KIN_IR_DIV, sum, left);
    if (row == STD || row == STD_MEAN)
        spread = low_un(c, KIN_IR_SQRT, spread);
    return done(c, 0, spread) && (row < VAR_MEAN || done(c, 1, mean));
}

bool
rule_logsumexp(low_call *c, int row)
{
    kin_irn x = low_read(c, low_arg(c, 0, "self"));
    reduced r;
    if (x == 0 || !read_dims(c, x, low_arg(c, 1, "dim"), &r) || is_empty(&r) || !kin_dtype_is_float(low_dtype(c, 0)))
        return false;
    x = kin_ir_cast(c->ir, x, low_wide(low_dtype(c, 0)));
    /* A chain of operators in eager: each stores its result. */
    kin_irn most = reduce(c, KIN_IR_REDUCE_MAX, x, &r);
    kin_irn infinite = low_compare(c, KIN_IR_EQ, low_un(c, KIN_IR_ABS, most), INFINITY);
    most = kin_ir_where(c->ir, infinite, low_like(c, most, 0), most);
    kin_irn e = low_stored(c, low_un(c, KIN_IR_EXP, low_stored(c, low_bi(c, KIN_IR_SUB, x, low_expand_like(c, most, x)))));
    kin_irn sum = low_stored(c, reduce(c, KIN_IR_REDUCE_SUM, e, &r));
    return done(c, 0, low_bi(c, KIN_IR_ADD, low_stored(c, low_un(c, KIN_IR_LOG, sum)), most));
}

static kin_irn
norm_of(low_call *c, kin_irn x, double order, const reduced *r)
{
    kin_irn size = low_un(c, KIN_IR_ABS, x);
    if (order == 2)
        return low_un(c, KIN_IR_SQRT, reduce(c, KIN_IR_REDUCE_SUM, low_bi(c, KIN_IR_MUL, x, x), r));
    if (order == 1)
        return reduce(c, KIN_IR_REDUCE_SUM, size, r);
    if (order == 0)
        return reduce(c, KIN_IR_REDUCE_SUM, kin_ir_cast(c->ir, low_compare(c, KIN_IR_NE, x, 0), low_dtype_of(c, x)), r);
    if (isinf(order))
        return is_empty(r) ? 0 : reduce(c, order > 0 ? KIN_IR_REDUCE_MAX : KIN_IR_REDUCE_MIN, size, r);
    return low_bin(c, KIN_IR_POW, reduce(c, KIN_IR_REDUCE_SUM, low_bin(c, KIN_IR_POW, size, order), r), 1 / order);
}

bool
rule_vector_norm(low_call *c, int row)
{
    kin_irn x = low_read(c, low_arg(c, 0, "self"));
    const kin_aten_arg *order = low_arg(c, 1, row == 0 ? "ord" : "p");
    reduced r;
    if (x == 0 || !read_dims(c, x, low_arg(c, 2, "dim"), &r) || (order != NULL && !low_is_number(order))
        || !kin_dtype_is_float(low_dtype(c, 0)) || !kin_dtype_is_float(low_dtype_of(c, x)))
        return false;
    x = kin_ir_cast(c->ir, x, low_wide(low_dtype(c, 0)));
    return done(c, 0, norm_of(c, x, low_float_or(c, 1, row == 0 ? "ord" : "p", 2), &r));
}

bool
rule_scan(low_call *c, int op)
{
    kin_irn x = low_read(c, low_arg(c, 0, "self"));
    if (x == 0 || low_dtype(c, 0) == KIN_BOOL)
        return false;
    int dim = low_dim(low_int_or(c, 1, "dim", 0), low_ndim_of(c, x));
    x = kin_ir_cast(c->ir, x, low_dtype(c, 0));
    if (dim < 0 || low_ndim_of(c, x) == 0)
        return dim >= 0 && low_done(c, 0, x);
    return low_done(c, 0, kin_ir_scan(c->ir, (kin_ir_op)op, x, (unsigned)dim));
}

/* -- softmax ------------------------------------------------------------------------------------------------------ */

/* The safe one gives zeros where all of a row is -inf. */
static kin_irn
softmax_safe(low_call *c, kin_irn x, kin_irn y, const reduced *r)
{
    kin_irn masked = reduce(c, KIN_IR_REDUCE_ALL, low_compare(c, KIN_IR_EQ, x, -INFINITY), r);
    return kin_ir_where(c->ir, low_expand_like(c, masked, x), low_like(c, y, 0), y);
}

bool
rule_softmax(low_call *c, int row)
{
    kin_irn x = low_read(c, low_arg(c, 0, "self"));
    reduced r;
    if (x == 0 || !kin_dtype_is_float(low_dtype(c, 0)) || !read_dims(c, x, low_arg(c, 1, "dim"), &r))
        return false;
    x = kin_ir_cast(c->ir, x, low_wide(low_dtype(c, 0)));
    if (is_empty(&r))
        return low_done(c, 0, x);
    kin_irn away = low_bi(c, KIN_IR_SUB, x, low_expand_like(c, reduce(c, KIN_IR_REDUCE_MAX, x, &r), x));
    kin_irn e = low_un(c, KIN_IR_EXP, away), sum = reduce(c, KIN_IR_REDUCE_SUM, e, &r);
    if (row == LOG_SOFTMAX && r.dims[0] + 1 == low_ndim_of(c, x)) /* along the last dim eager stores sums and logarithms */
        return low_done(c, 0, low_bi(c, KIN_IR_SUB, away, low_expand_like(c, low_stored(c, low_un(c, KIN_IR_LOG, low_stored(c, sum))), x)));
    if (row == LOG_SOFTMAX)
        return low_done(c, 0, low_bi(c, KIN_IR_SUB, away, low_expand_like(c, low_un(c, KIN_IR_LOG, sum), x)));
    kin_irn y = low_bi(c, KIN_IR_DIV, e, low_expand_like(c, sum, x));
    return low_done(c, 0, row == SAFE_SOFTMAX ? softmax_safe(c, x, y, &r) : y);
}
