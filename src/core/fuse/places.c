/* Arithmetic on coordinates (places.h). What is computed from an iota stays an index expression if possible: reading an element at such
 * a position is a plain load, not a gather with a bounds check. For the rest, the range is derived from loop bounds and
 * constants if possible, so that clamped positions need no check either.
 */
#include "core/fuse/places.h"

#include <math.h>

enum { DEPTH = 16 };

static bool
as_index(kin_loops *k, uint32_t inst, kin_ix *e)
{
    const kin_loop_inst *in = &k->insts.at[inst];
    if (in->kind == KIN_LI_INDEX)
        *e = in->index;
    else if (in->kind == KIN_LI_CONST && in->dtype == KIN_I64 && in->value.i > INT32_MIN && in->value.i < INT32_MAX)
        *e = kin_ix_const(&k->ix, in->value.i);
    else
        return false;
    return true;
}

/* Where sizes vary, how far every second element reaches is above a limit for some sizes and not for others, in one kernel. */
static bool
depends_on_parity(const kin_loops *k, kin_ix e)
{
    return k->varying && kin_ix_has_steps(&k->ix, e);
}

/* The greater (or lesser) of two, where one always is. */
static bool
choose(kin_loops *k, bool greater, kin_ix a, kin_ix b, kin_ix *out)
{
    bool above = kin_ix_is_above(&k->ix, a, b), below = kin_ix_is_above(&k->ix, b, a);
    if ((!above && !below) || depends_on_parity(k, a) || depends_on_parity(k, b))
        return false;
    *out = above == greater ? a : b;
    return true;
}

static bool
divide(kin_loops *k, bool quotient, kin_ix a, kin_ix b, kin_ix *out)
{
    kin_ix_space *s = &k->ix;
    int64_t by = kin_ix_at(s, b)->constant;
    if (!kin_ix_is_const(s, b) || by <= 0 || !kin_ix_begins_at(s, a, 0) || depends_on_parity(k, a))
        return false;
    kin_ix_note_division(s, a, by);
    *out = quotient ? kin_ix_div(s, a, by) : kin_ix_mod(s, a, by);
    return true;
}

static bool
multiply(kin_ix_space *s, kin_ix a, kin_ix b, kin_ix *out)
{
    if (!kin_ix_is_const(s, a) && !kin_ix_is_const(s, b))
        return false;
    kin_ix factor = kin_ix_is_const(s, a) ? a : b;
    *out = kin_ix_affine(s, factor == a ? b : a, kin_ix_at(s, factor)->constant, 0);
    return true;
}

bool
kin_place_fold(kin_loops *k, unsigned op, const uint32_t *args, kin_ix *out)
{
    kin_ix a, b = 0;
    kin_ix_space *s = &k->ix;
    if (!as_index(k, args[0], &a) || (args[1] != 0 && !as_index(k, args[1], &b)))
        return false;
    switch (op) {
    case KIN_IR_ADD: *out = kin_ix_add(s, a, b); return true;
    case KIN_IR_SUB: *out = kin_ix_add(s, a, kin_ix_affine(s, b, -1, 0)); return true;
    case KIN_IR_NEG: *out = kin_ix_affine(s, a, -1, 0); return true;
    case KIN_IR_ABS: b = kin_ix_affine(s, a, -1, 0); return choose(k, true, a, b, out);
    case KIN_IR_MUL: return multiply(s, a, b, out);
    case KIN_IR_MAX: return choose(k, true, a, b, out);
    case KIN_IR_MIN: return choose(k, false, a, b, out);
    case KIN_IR_FLOOR_DIV:
    case KIN_IR_DIV: return divide(k, true, a, b, out);
    case KIN_IR_REM:
    case KIN_IR_FMOD: return divide(k, false, a, b, out);
    default: return false;
    }
}

/* -- ranges --------------------------------------------------------------------------------------------------------- */

typedef struct {
    double lo, hi;
} range;

static bool range_of(kin_loops *k, uint32_t inst, unsigned depth, range *r);

static range
product(range a, range b)
{
    double p[] = {a.lo * b.lo, a.lo * b.hi, a.hi * b.lo, a.hi * b.hi};
    return (range){fmin(fmin(p[0], p[1]), fmin(p[2], p[3])), fmax(fmax(p[0], p[1]), fmax(p[2], p[3]))};
}

/* The greater of two ends of ranges, or the lesser one; which it is, is asked of the plan's numbers. */
static double
extreme(kin_loops *k, bool greater, double a, double b)
{
    bool whole = floor(a) == a && floor(b) == b && fabs(a) < 1e15 && fabs(b) < 1e15;
    bool above = whole ? kin_ix_is_at_least(&k->ix, (int64_t)a, (int64_t)b) : a >= b;
    return above == greater ? a : b;
}

/* Each of these operations and its rounding keeps order, so the ends of a range become the ends of the result's. */
static bool
range_of_op(kin_loops *k, const kin_loop_inst *in, unsigned depth, range *r)
{
    range a, b = {0, 0};
    if (!range_of(k, in->args[0], depth, &a) || (in->args[1] != 0 && !range_of(k, in->args[1], depth, &b)))
        return false;
    switch (in->op) {
    case KIN_IR_ADD: *r = (range){a.lo + b.lo, a.hi + b.hi}; break;
    case KIN_IR_SUB: *r = (range){a.lo - b.hi, a.hi - b.lo}; break;
    case KIN_IR_MUL: *r = product(a, b); break;
    case KIN_IR_NEG: *r = (range){-a.hi, -a.lo}; break;
    case KIN_IR_ABS: *r = (range){a.lo > 0 ? a.lo : a.hi < 0 ? -a.hi : 0, fmax(fabs(a.lo), fabs(a.hi))}; break;
    case KIN_IR_MAX: *r = (range){extreme(k, true, a.lo, b.lo), extreme(k, true, a.hi, b.hi)}; break;
    case KIN_IR_MIN: *r = (range){extreme(k, false, a.lo, b.lo), extreme(k, false, a.hi, b.hi)}; break;
    case KIN_IR_FLOOR: *r = (range){floor(a.lo), floor(a.hi)}; break;
    case KIN_IR_CAST: *r = kin_dtype_is_float(in->dtype) ? a : (range){trunc(a.lo), trunc(a.hi)}; break;
    default: return false;
    }
    return true;
}

static bool
range_of(kin_loops *k, uint32_t inst, unsigned depth, range *r)
{
    const double most = 1ll << 52; /* whole numbers up to here are exact */
    const kin_loop_inst *in = &k->insts.at[inst];
    bool known = false;
    if (depth > DEPTH || (in->dtype != KIN_I64 && in->dtype != KIN_F32 && in->dtype != KIN_F64))
        return false;
    if (in->kind == KIN_LI_CONST)
        r->lo = r->hi = in->dtype == KIN_I64 ? (double)in->value.i : in->value.f, known = true;
    else if (in->kind == KIN_LI_INDEX)
        *r = (range){(double)kin_ix_at(&k->ix, in->index)->lo, (double)kin_ix_at(&k->ix, in->index)->hi}, known = true;
    else if (in->kind == KIN_LI_OP)
        known = range_of_op(k, in, depth + 1, r);
    if (in->dtype == KIN_F32)
        *r = (range){(float)r->lo, (float)r->hi};
    return known && r->lo > -most && r->hi < most;
}

bool
kin_place_range(kin_loops *k, uint32_t inst, double *lo, double *hi)
{
    range r = {0, 0};
    bool known = range_of(k, inst, 0, &r);
    *lo = r.lo, *hi = r.hi;
    return known;
}
