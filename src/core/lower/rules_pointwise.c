/* Rules for element-wise operators. Half precision is computed in f32 and rounded once per operator, as in
 * eager; what is exact in the dtype itself (comparing, selecting, changing the sign) is done in it.
 */
#include "core/lower/lower_priv.h"

#include <math.h>

/* An operand of result 0's sizes, in the dtype that eager computes in. */
static kin_irn
wide(low_call *c, unsigned at, const char *keyword)
{
    return low_operand(c, low_arg(c, at, keyword), low_wide(low_dtype(c, 0)));
}

kin_irn
low_stored(low_call *c, kin_irn x)
{
    return kin_ir_cast(c->ir, kin_ir_cast(c->ir, x, low_dtype(c, 0)), low_dtype_of(c, x));
}

static bool
is_float(const low_call *c)
{
    return kin_dtype_is_float(low_dtype(c, 0));
}

/* -- one argument ------------------------------------------------------------------------------------------------- */

bool
rule_float_unary(low_call *c, int op)
{
    kin_irn x = wide(c, 0, "self");
    return x != 0 && is_float(c) && low_done(c, 0, low_un(c, (kin_ir_op)op, x));
}

/* Exact in every dtype. */
bool
rule_sign_unary(low_call *c, int op)
{
    kin_irn x = low_operand(c, low_arg(c, 0, "self"), low_dtype(c, 0));
    return x != 0 && low_dtype(c, 0) != KIN_BOOL && low_done(c, 0, low_un(c, (kin_ir_op)op, x));
}

bool
rule_round_unary(low_call *c, int op)
{
    kin_irn x = wide(c, 0, "self");
    return x != 0 && low_done(c, 0, is_float(c) ? low_un(c, (kin_ir_op)op, x) : x);
}

bool
rule_bitwise_not(low_call *c, int op)
{
    kin_irn x = low_operand(c, low_arg(c, 0, "self"), low_dtype(c, 0));
    return x != 0 && !is_float(c) && low_done(c, 0, low_un(c, (kin_ir_op)op, x));
}

bool
rule_logical_not(low_call *c, int op)
{
    kin_irn x = low_operand(c, low_arg(c, 0, "self"), KIN_BOOL);
    return x != 0 && low_done(c, 0, low_un(c, KIN_IR_NOT, x));
}

bool
rule_frac(low_call *c, int row)
{
    kin_irn x = wide(c, 0, "self");
    return x != 0 && is_float(c) && low_done(c, 0, low_bi(c, KIN_IR_SUB, x, low_un(c, KIN_IR_TRUNC, x)));
}

bool
rule_square(low_call *c, int row)
{
    kin_irn x = wide(c, 0, "self");
    return x != 0 && low_done(c, 0, low_bi(c, KIN_IR_MUL, x, x));
}

/* Questions about floating values, answered in b8. */
bool
rule_classify(low_call *c, int question)
{
    kin_irn x = low_read(c, low_arg(c, 0, "self"));
    if (x == 0 || !kin_dtype_is_float(low_dtype_of(c, x)))
        return false;
    switch (question) {
    case IS_NAN: return low_done(c, 0, low_bi(c, KIN_IR_NE, x, x));
    case IS_INF: return low_done(c, 0, low_compare(c, KIN_IR_EQ, low_un(c, KIN_IR_ABS, x), INFINITY));
    case IS_FINITE: return low_done(c, 0, low_compare(c, KIN_IR_LT, low_un(c, KIN_IR_ABS, x), INFINITY));
    case IS_POSINF: return low_done(c, 0, low_compare(c, KIN_IR_EQ, x, INFINITY));
    default: return low_done(c, 0, low_compare(c, KIN_IR_EQ, x, -INFINITY));
    }
}

bool
rule_nan_to_num(low_call *c, int row)
{
    static const double most[] = {[KIN_F16] = 65504, [KIN_BF16] = 3.3895313892515355e38, [KIN_F32] = 3.4028234663852886e38,
                                  [KIN_F64] = 1.7976931348623157e308};
    kin_irn x = low_operand(c, low_arg(c, 0, "self"), low_dtype(c, 0));
    if (x == 0)
        return false;
    if (!is_float(c))
        return low_done(c, 0, x);
    double top = most[low_dtype(c, 0)];
    kin_irn nan = low_like(c, x, low_float_or(c, 1, "nan", 0));
    kin_irn posinf = low_like(c, x, low_float_or(c, 2, "posinf", top)), neginf = low_like(c, x, low_float_or(c, 3, "neginf", -top));
    kin_irn y = kin_ir_where(c->ir, low_compare(c, KIN_IR_EQ, x, INFINITY), posinf, x);
    y = kin_ir_where(c->ir, low_compare(c, KIN_IR_EQ, x, -INFINITY), neginf, y);
    return low_done(c, 0, kin_ir_where(c->ir, low_bi(c, KIN_IR_NE, x, x), nan, y));
}

/* -- two arguments ------------------------------------------------------------------------------------------------ */

/* In the dtype in which eager brings the operands together: for a write in place that is not the result's. */
static kin_dtype
common_of_two(const low_call *c)
{
    const kin_aten_arg *args[] = {low_arg(c, 0, "self"), low_arg(c, 1, "other")};
    return low_common(c, args, 2);
}

/* An operand for arithmetic in `dtype`: eager first brings it to that dtype, so a number may be rounded to half precision. */
static kin_irn
rounded(low_call *c, const kin_aten_arg *a, kin_dtype dtype)
{
    kin_irn x = low_operand(c, a, dtype);
    return x != 0 ? kin_ir_cast(c->ir, x, low_wide(dtype)) : 0;
}

/* Multiplications and divisions take numbers (and tensors without dims) as they are. */
bool
rule_binary(low_call *c, int op)
{
    kin_dtype dtype = common_of_two(c);
    bool exact = op == KIN_IR_MUL || op == KIN_IR_FLOOR_DIV;
    kin_irn a = rounded(c, low_arg(c, 0, "self"), exact ? low_wide(dtype) : dtype);
    kin_irn b = rounded(c, low_arg(c, 1, "other"), exact ? low_wide(dtype) : dtype);
    if (a == 0 || b == 0 || (dtype == KIN_BOOL && op != KIN_IR_MUL))
        return false;
    return low_done(c, 0, low_bi(c, (kin_ir_op)op, a, b));
}

/* Integers become floating numbers first. */
bool
rule_float_binary(low_call *c, int op)
{
    kin_dtype dtype = common_of_two(c);
    if (!kin_dtype_is_float(dtype))
        dtype = c->l->options->default_f64 ? KIN_F64 : KIN_F32;
    kin_irn a = rounded(c, low_arg(c, 0, "self"), dtype), b = rounded(c, low_arg(c, 1, "other"), dtype);
    return a != 0 && b != 0 && low_done(c, 0, low_bi(c, (kin_ir_op)op, a, b));
}

/* add, sub and rsub have a factor for the second operand. */
static kin_irn
times_alpha(low_call *c, kin_irn x, kin_dtype dtype)
{
    const kin_aten_arg *alpha = low_arg(c, 2, "alpha");
    if (alpha == NULL || x == 0)
        return x;
    if (!low_is_number(alpha) || dtype == KIN_BOOL)
        return low_is_number(alpha) && low_float_or(c, 2, "alpha", 0) == 1 ? x : 0;
    kin_irn factor = low_scalar(c, alpha, dtype, low_ndim_of(c, x), low_sizes_of(c, x));
    return low_bi(c, KIN_IR_MUL, x, kin_ir_cast(c->ir, factor, low_dtype_of(c, x)));
}

bool
rule_add(low_call *c, int op)
{
    kin_dtype dtype = common_of_two(c);
    kin_irn a = rounded(c, low_arg(c, 0, "self"), dtype), b = times_alpha(c, rounded(c, low_arg(c, 1, "other"), dtype), dtype);
    if (a == 0 || b == 0 || (dtype == KIN_BOOL && op != KIN_IR_ADD))
        return false;
    return low_done(c, 0, low_bi(c, (kin_ir_op)op, a, b));
}

bool
rule_rsub(low_call *c, int row)
{
    kin_dtype dtype = common_of_two(c);
    kin_irn a = times_alpha(c, rounded(c, low_arg(c, 0, "self"), dtype), dtype), b = rounded(c, low_arg(c, 1, "other"), dtype);
    return a != 0 && b != 0 && dtype != KIN_BOOL && low_done(c, 0, low_bi(c, KIN_IR_SUB, b, a));
}

/* A number, or a tensor with one element: eager keeps such a divisor in float. */
static bool
is_single(low_call *c, const kin_aten_arg *a)
{
    return !low_is_value(a) || kin_ir_numel(c->ir, low_read(c, a)) == 1;
}

bool
rule_div(low_call *c, int row)
{
    kin_dtype dtype = common_of_two(c);
    const char *mode = low_str(c, low_arg(c, 2, "rounding_mode"));
    if (*mode == '\0' && !kin_dtype_is_float(dtype))
        dtype = c->l->options->default_f64 ? KIN_F64 : KIN_F32;
    dtype = low_wide(dtype);
    kin_irn a = low_operand(c, low_arg(c, 0, "self"), dtype), b = low_operand(c, low_arg(c, 1, "other"), dtype);
    if (a == 0 || b == 0 || dtype == KIN_BOOL)
        return false;
    if (strcmp(mode, "floor") == 0)
        return low_done(c, 0, low_bi(c, KIN_IR_FLOOR_DIV, a, b));
    kin_irn quotient = low_bi(c, KIN_IR_DIV, a, b);
    if (*mode == '\0')
        return low_done(c, 0, quotient);
    if (!is_single(c, low_arg(c, 1, "other")))
        quotient = low_stored(c, quotient);
    return strcmp(mode, "trunc") == 0
           && low_done(c, 0, kin_dtype_is_float(dtype) ? low_un(c, KIN_IR_TRUNC, quotient) : quotient);
}

bool
rule_compare(low_call *c, int op)
{
    kin_dtype dtype = common_of_two(c);
    kin_irn a = low_operand(c, low_arg(c, 0, "self"), dtype), b = low_operand(c, low_arg(c, 1, "other"), dtype);
    return a != 0 && b != 0 && low_done(c, 0, low_bi(c, (kin_ir_op)op, a, b));
}

bool
rule_logical(low_call *c, int op)
{
    kin_irn a = low_operand(c, low_arg(c, 0, "self"), KIN_BOOL), b = low_operand(c, low_arg(c, 1, "other"), KIN_BOOL);
    return a != 0 && b != 0 && low_done(c, 0, low_bi(c, (kin_ir_op)op, a, b));
}

bool
rule_bitwise(low_call *c, int op)
{
    kin_dtype dtype = common_of_two(c);
    kin_irn a = low_operand(c, low_arg(c, 0, "self"), dtype), b = low_operand(c, low_arg(c, 1, "other"), dtype);
    bool shifts_bool = dtype == KIN_BOOL && (op == KIN_IR_SHL || op == KIN_IR_SHR);
    return a != 0 && b != 0 && !kin_dtype_is_float(dtype) && !shifts_bool && low_done(c, 0, low_bi(c, (kin_ir_op)op, a, b));
}

/* maximum, minimum, fmax, fmin: the last two differ for NaN only. */
bool
rule_extreme(low_call *c, int op)
{
    kin_dtype dtype = common_of_two(c);
    kin_irn a = low_operand(c, low_arg(c, 0, "self"), dtype), b = low_operand(c, low_arg(c, 1, "other"), dtype);
    if (!kin_dtype_is_float(dtype) && (op == KIN_IR_FMAX || op == KIN_IR_FMIN))
        op = op == KIN_IR_FMAX ? KIN_IR_MAX : KIN_IR_MIN;
    return a != 0 && b != 0 && low_done(c, 0, low_bi(c, (kin_ir_op)op, a, b));
}

static kin_irn
power_by_number(low_call *c, kin_irn x, double exponent)
{
    kin_irn square = low_bi(c, KIN_IR_MUL, x, x);
    if (exponent == 2)
        return square;
    if (low_dtype(c, 0) == KIN_BF16) /* measured: the square is rounded, which f16 does not do */
        square = low_stored(c, square);
    if (exponent == 3)
        return low_bi(c, KIN_IR_MUL, square, x);
    if (exponent == 1)
        return x;
    if (!kin_dtype_is_float(low_dtype_of(c, x)))
        return exponent >= 0 ? low_bin(c, KIN_IR_POW, x, exponent) : 0;
    if (exponent == 0.5)
        return low_un(c, KIN_IR_SQRT, x);
    if (exponent == -0.5)
        return low_un(c, KIN_IR_RSQRT, x);
    if (exponent == -1)
        return low_un(c, KIN_IR_RECIPROCAL, x);
    if (exponent == -2)
        return low_un(c, KIN_IR_RECIPROCAL, square);
    return low_bi(c, KIN_IR_POW, x, low_stored(c, low_like(c, x, exponent)));
}

bool
rule_pow(low_call *c, int row)
{
    const kin_aten_arg *base = low_arg(c, 0, "self"), *exponent = low_arg(c, 1, "exponent");
    const kin_aten_arg *args[] = {base, exponent};
    kin_dtype dtype = low_common(c, args, 2);
    kin_irn x = rounded(c, base, dtype);
    if (x == 0 || exponent == NULL || dtype == KIN_BOOL)
        return false;
    if (low_is_number(exponent)) {
        if (!low_holds(low_dtype(c, 0), exponent))
            return false;
        double e = low_number_of(c, exponent);
        return low_done(c, 0, e == 0 ? low_like(c, x, 1) : power_by_number(c, x, e));
    }
    /* A negative integer exponent known only at run time is eager's business. */
    kin_irn y = kin_dtype_is_float(dtype) ? rounded(c, exponent, dtype) : 0;
    return y != 0 && low_done(c, 0, low_bi(c, KIN_IR_POW, x, y));
}

/* -- choosing ----------------------------------------------------------------------------------------------------- */

bool
rule_where(low_call *c, int row)
{
    kin_dtype dtype = low_dtype(c, 0);
    kin_irn condition = low_operand(c, low_arg(c, 0, "condition"), KIN_BOOL);
    kin_irn a = low_operand(c, low_arg(c, 1, "self"), dtype), b = low_operand(c, low_arg(c, 2, "other"), dtype);
    return condition != 0 && a != 0 && b != 0 && low_done(c, 0, kin_ir_where(c->ir, condition, a, b));
}

/* Eager raises for a tensor's number that the dtype cannot hold. */
static bool
may_overflow(const low_call *c, const kin_aten_arg *value, kin_dtype dtype)
{
    if (!low_is_value(value))
        return false;
    kin_dtype from = (kin_dtype)kin_aten_at(c->l->g, value->value)->dtype;
    return kin_aten_promote(from, dtype) != dtype || (kin_dtype_is_integer(from) && dtype == KIN_F16);
}

bool
rule_masked_fill(low_call *c, int row)
{
    kin_dtype dtype = low_dtype(c, 0);
    if (may_overflow(c, low_arg(c, 2, "value"), dtype))
        return false;
    kin_irn x = low_operand(c, low_arg(c, 0, "self"), dtype), mask = low_operand(c, low_arg(c, 1, "mask"), KIN_BOOL);
    kin_irn value = low_operand(c, low_arg(c, 2, "value"), dtype);
    return x != 0 && mask != 0 && value != 0 && low_done(c, 0, kin_ir_where(c->ir, mask, value, x));
}

bool
rule_clamp(low_call *c, int bounds)
{
    const kin_aten_arg *low_bound = bounds == UPPER ? NULL : low_arg(c, 1, "min");
    const kin_aten_arg *high = bounds == LOWER ? NULL : low_arg(c, bounds == UPPER ? 1 : 2, "max");
    kin_dtype dtype = low_dtype(c, 0);
    kin_irn x = low_operand(c, low_arg(c, 0, "self"), dtype);
    kin_irn a = low_operand(c, low_bound, dtype), b = low_operand(c, high, dtype);
    if (x == 0 || (low_bound != NULL && a == 0) || (high != NULL && b == 0))
        return false;
    if (a != 0)
        x = low_bi(c, KIN_IR_MAX, x, a);
    if (b != 0)
        x = low_bi(c, KIN_IR_MIN, x, b);
    return low_done(c, 0, x);
}

bool
rule_lerp(low_call *c, int row)
{
    kin_irn a = wide(c, 0, "self"), b = wide(c, 1, "end"), w = wide(c, 2, "weight");
    if (a == 0 || b == 0 || w == 0 || !is_float(c))
        return false;
    kin_irn way = low_bi(c, KIN_IR_SUB, b, a), rest = low_bi(c, KIN_IR_SUB, low_like(c, w, 1), w);
    kin_irn near = low_bi(c, KIN_IR_ADD, a, low_bi(c, KIN_IR_MUL, w, way));
    kin_irn far = low_bi(c, KIN_IR_SUB, b, low_bi(c, KIN_IR_MUL, way, rest));
    kin_irn small = low_compare(c, KIN_IR_LT, low_un(c, KIN_IR_ABS, w), 0.5);
    return low_done(c, 0, kin_ir_where(c->ir, small, near, far));
}

/* addcmul, addcdiv: self + value * a (*, /) b */
bool
rule_addc(low_call *c, int op)
{
    kin_dtype dtype = low_wide(low_dtype(c, 0));
    const kin_aten_arg *value = low_arg(c, 3, "value");
    kin_irn x = wide(c, 0, "self"), a = wide(c, 1, "tensor1"), b = wide(c, 2, "tensor2");
    if (x == 0 || a == 0 || b == 0 || dtype == KIN_BOOL || (op == KIN_IR_DIV && !is_float(c)))
        return false;
    if (value != NULL)
        a = low_bi(c, KIN_IR_MUL, low_scalar(c, value, dtype, low_ndim_of(c, a), low_sizes_of(c, a)), a);
    return low_done(c, 0, low_bi(c, KIN_IR_ADD, x, low_bi(c, (kin_ir_op)op, a, b)));
}

/* -- activations -------------------------------------------------------------------------------------------------- */

bool
rule_relu(low_call *c, int row)
{
    kin_irn x = low_operand(c, low_arg(c, 0, "self"), low_dtype(c, 0));
    return x != 0 && low_dtype(c, 0) != KIN_BOOL && low_done(c, 0, low_bin(c, KIN_IR_MAX, x, 0));
}

bool
rule_threshold(low_call *c, int row)
{
    kin_irn x = low_operand(c, low_arg(c, 0, "self"), low_dtype(c, 0));
    kin_irn limit = low_operand(c, low_arg(c, 1, "threshold"), low_dtype(c, 0));
    kin_irn value = low_operand(c, low_arg(c, 2, "value"), low_dtype(c, 0));
    return x != 0 && limit != 0 && value != 0 && low_done(c, 0, kin_ir_where(c->ir, low_bi(c, KIN_IR_LE, x, limit), value, x));
}

bool
rule_hardtanh(low_call *c, int row)
{
    double least = low_float_or(c, 1, "min_val", -1), most = low_float_or(c, 2, "max_val", 1);
    kin_irn x = low_operand(c, low_arg(c, 0, "self"), low_dtype(c, 0));
    return x != 0 && is_float(c) && low_done(c, 0, low_bin(c, KIN_IR_MIN, low_bin(c, KIN_IR_MAX, x, least), most));
}

/* min(max(x + 3, 0), 6), times x for hardswish, divided by 6 */
bool
rule_hard(low_call *c, int is_swish)
{
    kin_irn x = wide(c, 0, "self");
    if (x == 0 || !is_float(c))
        return false;
    kin_irn y = low_bin(c, KIN_IR_MIN, low_bin(c, KIN_IR_MAX, low_bin(c, KIN_IR_ADD, x, 3), 0), 6);
    if (is_swish)
        y = low_bi(c, KIN_IR_MUL, x, y);
    return low_done(c, 0, low_bin(c, KIN_IR_DIV, y, 6));
}

bool
rule_silu(low_call *c, int row)
{
    kin_irn x = wide(c, 0, "self");
    if (x == 0 || !is_float(c))
        return false;
    kin_irn below = low_bin(c, KIN_IR_ADD, low_un(c, KIN_IR_EXP, low_un(c, KIN_IR_NEG, x)), 1);
    return low_done(c, 0, low_bi(c, KIN_IR_DIV, x, below));
}

bool
rule_gelu(low_call *c, int row)
{
    kin_irn x = wide(c, 0, "self");
    if (x == 0 || !is_float(c))
        return false;
    kin_irn half = low_bin(c, KIN_IR_MUL, x, 0.5), inner;
    if (strcmp(low_str(c, low_arg(c, 1, "approximate")), "tanh") == 0) {
        kin_irn cube = low_bi(c, KIN_IR_MUL, low_bi(c, KIN_IR_MUL, x, x), x);
        inner = low_bi(c, KIN_IR_ADD, x, low_bin(c, KIN_IR_MUL, cube, 0.044715));
        inner = low_un(c, KIN_IR_TANH, low_bin(c, KIN_IR_MUL, inner, M_SQRT2 * M_2_SQRTPI * 0.5));
    } else
        inner = low_un(c, KIN_IR_ERF, low_bin(c, KIN_IR_MUL, x, M_SQRT1_2));
    return low_done(c, 0, low_bi(c, KIN_IR_MUL, half, low_bin(c, KIN_IR_ADD, inner, 1)));
}

bool
rule_mish(low_call *c, int row)
{
    kin_irn x = wide(c, 0, "self");
    if (x == 0 || !is_float(c))
        return false;
    kin_irn soft = low_un(c, KIN_IR_LOG1P, low_un(c, KIN_IR_EXP, x));
    return low_done(c, 0, low_bi(c, KIN_IR_MUL, x, low_un(c, KIN_IR_TANH, soft)));
}

bool
rule_softplus(low_call *c, int row)
{
    double beta = low_float_or(c, 1, "beta", 1), threshold = low_float_or(c, 2, "threshold", 20);
    kin_irn x = wide(c, 0, "self");
    if (x == 0 || !is_float(c))
        return false;
    kin_irn scaled = low_bin(c, KIN_IR_MUL, x, beta);
    kin_irn soft = low_bin(c, KIN_IR_DIV, low_un(c, KIN_IR_LOG1P, low_un(c, KIN_IR_EXP, scaled)), beta);
    return low_done(c, 0, kin_ir_where(c->ir, low_compare(c, KIN_IR_GT, scaled, threshold), x, soft));
}

/* elu, and celu(alpha), which is elu(alpha, 1, 1 / alpha) */
bool
rule_elu(low_call *c, int is_celu)
{
    double alpha = low_float_or(c, 1, "alpha", 1), scale = is_celu ? 1 : low_float_or(c, 2, "scale", 1);
    double inside = is_celu ? 1 / alpha : low_float_or(c, 3, "input_scale", 1);
    kin_irn x = wide(c, 0, "self");
    if (x == 0 || !is_float(c) || alpha == 0)
        return false;
    kin_irn below = low_un(c, KIN_IR_EXPM1, low_bin(c, KIN_IR_MUL, x, inside));
    below = low_bin(c, KIN_IR_MUL, below, alpha * scale);
    kin_irn y = kin_ir_where(c->ir, low_compare(c, KIN_IR_LE, x, 0), below, low_bin(c, KIN_IR_MUL, x, scale));
    return low_done(c, 0, y);
}

bool
rule_leaky_relu(low_call *c, int row)
{
    kin_irn x = wide(c, 0, "self");
    if (x == 0 || !is_float(c))
        return false;
    kin_irn below = low_bin(c, KIN_IR_MUL, x, low_float_or(c, 1, "negative_slope", 0.01));
    return low_done(c, 0, kin_ir_where(c->ir, low_compare(c, KIN_IR_GT, x, 0), x, below));
}

bool
rule_prelu(low_call *c, int row)
{
    kin_irn x = wide(c, 0, "self"), w = wide(c, 1, "weight");
    if (x == 0 || w == 0 || !is_float(c))
        return false;
    return low_done(c, 0, kin_ir_where(c->ir, low_compare(c, KIN_IR_GT, x, 0), x, low_bi(c, KIN_IR_MUL, w, x)));
}

bool
rule_shrink(low_call *c, int is_soft)
{
    double lambda = low_float_or(c, 1, is_soft ? "lambda" : "lambd", 0.5);
    kin_irn x = wide(c, 0, "self");
    if (x == 0 || !is_float(c))
        return false;
    kin_irn above = low_compare(c, KIN_IR_GT, x, lambda), under = low_compare(c, KIN_IR_LT, x, -lambda);
    if (is_soft) { /* NaN stays, as x * 0 */
        kin_irn rest = low_bin(c, KIN_IR_MUL, x, 0);
        kin_irn y = kin_ir_where(c->ir, under, low_bin(c, KIN_IR_ADD, x, lambda), rest);
        return low_done(c, 0, kin_ir_where(c->ir, above, low_bin(c, KIN_IR_SUB, x, lambda), y));
    }
    kin_irn inside = low_bi(c, KIN_IR_AND, low_compare(c, KIN_IR_GE, x, -lambda), low_compare(c, KIN_IR_LE, x, lambda));
    return low_done(c, 0, kin_ir_where(c->ir, inside, low_like(c, x, 0), x));
}

bool
rule_logit(low_call *c, int row)
{
    const kin_aten_arg *eps = low_arg(c, 1, "eps");
    kin_irn x = wide(c, 0, "self");
    if (x == 0 || !is_float(c))
        return false;
    if (eps != NULL) {
        kin_irn least = low_stored(c, low_like(c, x, low_float_or(c, 1, "eps", 0)));
        kin_irn most = low_stored(c, low_bi(c, KIN_IR_SUB, low_like(c, x, 1), least));
        x = low_bi(c, KIN_IR_MIN, low_bi(c, KIN_IR_MAX, x, least), most);
    }
    kin_irn rest = low_stored(c, low_bi(c, KIN_IR_SUB, low_like(c, x, 1), x));
    return low_done(c, 0, low_un(c, KIN_IR_LOG, low_stored(c, low_bi(c, KIN_IR_DIV, x, rest))));
}

/* min(x, 0) - log1p(exp(-|x|)) */
static kin_irn
log_sigmoid(low_call *c, kin_irn x, kin_irn *e)
{
    *e = low_un(c, KIN_IR_EXP, low_un(c, KIN_IR_NEG, low_un(c, KIN_IR_ABS, x)));
    return low_bi(c, KIN_IR_SUB, low_bin(c, KIN_IR_MIN, x, 0), low_un(c, KIN_IR_LOG1P, *e));
}

/* The second result is what eager keeps for the backward pass. */
bool
rule_log_sigmoid(low_call *c, int row)
{
    kin_irn x = wide(c, 0, "self"), e;
    return x != 0 && is_float(c) && low_done(c, 0, log_sigmoid(c, x, &e)) && (!low_wanted(c, 1) || low_done(c, 1, e));
}

/* reduction: 0 none, 1 mean, 2 sum */
static bool
reduce_loss(low_call *c, kin_irn elements, int64_t reduction)
{
    unsigned ndim = low_ndim_of(c, elements);
    int64_t dims[KIN_IR_MAX_DIMS], count = kin_ir_numel(c->ir, elements);
    for (unsigned d = 0; d < ndim; d++)
        dims[d] = d;
    if (reduction == 0)
        return low_done(c, 0, elements);
    kin_irn sum = kin_ir_reduce(c->ir, KIN_IR_REDUCE_SUM, elements, ndim, dims);
    if (reduction == 1)
        sum = low_bin(c, KIN_IR_DIV, sum, (double)count);
    return low_done(c, 0, low_reshape_like(c, sum, 0));
}

/* The arguments of a loss, broadcast to each other. */
static bool
loss_operands(low_call *c, kin_irn *a, kin_irn *b)
{
    kin_dtype dtype = low_wide(low_dtype(c, 0));
    *a = low_read(c, low_arg(c, 0, "self"));
    *b = low_read(c, low_arg(c, 1, "target"));
    if (*a == 0 || *b == 0 || !is_float(c) || low_ndim_of(c, *a) != low_ndim_of(c, *b))
        return false;
    for (unsigned d = 0; d < low_ndim_of(c, *a); d++)
        if (low_sizes_of(c, *a)[d] != low_sizes_of(c, *b)[d])
            return false;
    *a = kin_ir_cast(c->ir, *a, dtype);
    *b = kin_ir_cast(c->ir, *b, dtype);
    return true;
}

bool
rule_mse_loss(low_call *c, int row)
{
    kin_irn a, b;
    if (!loss_operands(c, &a, &b))
        return false;
    kin_irn d = low_bi(c, KIN_IR_SUB, a, b);
    return reduce_loss(c, low_bi(c, KIN_IR_MUL, d, d), low_int_or(c, 2, "reduction", 1));
}

/* (1 - target) * x - log_sigmoid(x), in single precision and above */
bool
rule_bce_with_logits(low_call *c, int row)
{
    kin_irn x, target, e;
    if (low_arg(c, 2, "weight") != NULL || low_arg(c, 3, "pos_weight") != NULL || !loss_operands(c, &x, &target)
        || low_dtype(c, 0) != low_dtype_of(c, x))
        return false;
    kin_irn rest = low_bi(c, KIN_IR_SUB, low_like(c, x, 1), target);
    kin_irn loss = low_bi(c, KIN_IR_SUB, low_bi(c, KIN_IR_MUL, rest, x), log_sigmoid(c, x, &e));
    return reduce_loss(c, loss, low_int_or(c, 4, "reduction", 1));
}

/* Smooth L1 (row 0) and Huber (row 1): quadratic near zero. */
bool
rule_smooth_loss(low_call *c, int is_huber)
{
    kin_irn a, b;
    double beta = low_float_or(c, 3, is_huber ? "delta" : "beta", 1);
    if (!loss_operands(c, &a, &b) || beta <= 0)
        return false;
    kin_irn d = low_un(c, KIN_IR_ABS, low_bi(c, KIN_IR_SUB, a, b));
    kin_irn square = low_bi(c, KIN_IR_MUL, low_bin(c, KIN_IR_MUL, d, 0.5), d);
    kin_irn line = low_bin(c, KIN_IR_SUB, d, 0.5 * beta);
    if (is_huber)
        line = low_bin(c, KIN_IR_MUL, line, beta);
    else
        square = low_bin(c, KIN_IR_DIV, square, beta);
    kin_irn near = low_compare(c, is_huber ? KIN_IR_LE : KIN_IR_LT, d, beta);
    return reduce_loss(c, kin_ir_where(c->ir, near, square, line), low_int_or(c, 2, "reduction", 1));
}

/* -- seldom asked for --------------------------------------------------------------------------------------------- */

/* Both in what eager computes in, or 0. */
static bool
float_operands(low_call *c, const char *first, const char *second, kin_irn *a, kin_irn *b)
{
    kin_dtype dtype = low_wide(low_dtype(c, 0));
    if (!is_float(c))
        return false;
    *a = low_operand(c, low_arg(c, 0, first), dtype);
    *b = low_operand(c, low_arg(c, 1, second), dtype);
    return *a != 0 && *b != 0;
}

/* x * log(y), row 1: x * log(1 + y). 0 where x is 0, unless y is NaN */
bool
rule_xlogy(low_call *c, int of_one_more)
{
    kin_irn x, y;
    if (!float_operands(c, "self", "other", &x, &y))
        return false;
    kin_irn plain = low_bi(c, KIN_IR_MUL, x, low_un(c, of_one_more ? KIN_IR_LOG1P : KIN_IR_LOG, y));
    kin_irn zero = kin_ir_where(c->ir, low_compare(c, KIN_IR_EQ, x, 0), low_like(c, x, 0), plain);
    return low_done(c, 0, kin_ir_where(c->ir, low_bi(c, KIN_IR_NE, y, y), y, zero));
}

/* log(exp(a) + exp(b)), row 1: of powers of two */
bool
rule_logaddexp(low_call *c, int of_two)
{
    kin_irn a, b;
    if (!float_operands(c, "self", "other", &a, &b))
        return false;
    kin_irn away = low_un(c, KIN_IR_NEG, low_un(c, KIN_IR_ABS, low_bi(c, KIN_IR_SUB, a, b)));
    kin_irn more = low_un(c, KIN_IR_LOG1P, low_un(c, of_two ? KIN_IR_EXP2 : KIN_IR_EXP, away));
    if (of_two)
        more = low_bin(c, KIN_IR_MUL, more, 1.4426950408889634);
    kin_irn sum = low_bi(c, KIN_IR_ADD, low_bi(c, KIN_IR_MAX, a, b), more);
    kin_irn same = low_bi(c, KIN_IR_AND, low_bi(c, KIN_IR_EQ, a, b), low_compare(c, KIN_IR_EQ, low_un(c, KIN_IR_ABS, a), INFINITY));
    return low_done(c, 0, kin_ir_where(c->ir, same, a, sum));
}

bool
rule_heaviside(low_call *c, int row)
{
    kin_dtype dtype = low_dtype(c, 0);
    kin_irn x = low_operand(c, low_arg(c, 0, "self"), dtype), value = low_operand(c, low_arg(c, 1, "values"), dtype);
    if (x == 0 || value == 0 || dtype == KIN_BOOL)
        return false;
    kin_irn step = kin_ir_cast(c->ir, low_compare(c, KIN_IR_GT, x, 0), dtype);
    return low_done(c, 0, kin_ir_where(c->ir, low_compare(c, KIN_IR_EQ, x, 0), value, step));
}

/* self + alpha * a * b, each a's element with each of b's */
bool
rule_addr(low_call *c, int row)
{
    kin_dtype dtype = low_dtype(c, 0);
    kin_irn a = low_read(c, low_arg(c, 1, "vec1")), b = low_operand(c, low_arg(c, 2, "vec2"), dtype);
    kin_irn self = low_operand(c, low_arg(c, 0, "self"), dtype);
    const kin_aten_arg *alpha = low_arg(c, UINT32_MAX, "alpha");
    if (a == 0 || b == 0 || self == 0 || low_float_or(c, UINT32_MAX, "beta", 1) != 1 || low_ndim(c, 0) != 2 || low_ndim_of(c, a) != 1
        || dtype == KIN_BOOL || low_wide(dtype) != dtype || (alpha != NULL && !low_is_number(alpha)))
        return false;
    int64_t column[2] = {low_sizes_of(c, a)[0], 1};
    a = kin_ir_expand(c->ir, kin_ir_reshape(c->ir, kin_ir_cast(c->ir, a, dtype), 2, column), 2, low_sizes(c, 0));
    if (alpha != NULL)
        a = low_bi(c, KIN_IR_MUL, low_scalar(c, alpha, dtype, 2, low_sizes(c, 0)), a);
    return low_done(c, 0, low_bi(c, KIN_IR_ADD, self, low_bi(c, KIN_IR_MUL, a, b)));
}

bool
rule_sinc(low_call *c, int row)
{
    kin_irn x = low_operand(c, low_arg(c, 0, "self"), low_wide(low_dtype(c, 0)));
    if (x == 0 || !is_float(c))
        return false;
    kin_irn turned = low_bin(c, KIN_IR_MUL, x, 3.14159265358979323846);
    kin_irn y = low_bi(c, KIN_IR_DIV, low_un(c, KIN_IR_SIN, turned), turned);
    return low_done(c, 0, kin_ir_where(c->ir, low_compare(c, KIN_IR_EQ, x, 0), low_like(c, x, 1), y));
}

bool
rule_degrees(low_call *c, int to_degrees)
{
    kin_irn x = low_operand(c, low_arg(c, 0, "self"), low_wide(low_dtype(c, 0)));
    if (x == 0 || !is_float(c))
        return false;
    return low_done(c, 0, low_bin(c, KIN_IR_MUL, x, to_degrees ? 57.29577951308232 : 0.017453292519943295));
}

/* Also of zeros and NaN. */
bool
rule_signbit(low_call *c, int row)
{
    kin_irn x = low_read(c, low_arg(c, 0, "self"));
    if (x == 0 || low_dtype_of(c, x) == KIN_BOOL)
        return false;
    if (kin_dtype_is_float(low_dtype_of(c, x)))
        x = low_bi(c, KIN_IR_COPYSIGN, low_like(c, x, 1), x);
    return low_done(c, 0, low_compare(c, KIN_IR_LT, x, 0));
}

/* -- the same elements -------------------------------------------------------------------------------------------- */

/* clone, _to_copy, ...: stored anew when eager lays them out differently. */
bool
rule_copy(low_call *c, int row)
{
    const kin_aten_arg *a = low_arg(c, 0, "self");
    kin_irn x = low_read(c, a);
    if (x == 0 || low_ndim_of(c, x) != low_ndim(c, 0))
        return false;
    bool same = low_dtype_of(c, x) == low_dtype(c, 0);
    size_t bytes = low_ndim(c, 0) * sizeof(int64_t);
    if (same && bytes > 0 && memcmp(low_strides(c, 0), kin_aten_strides(c->l->g, a->value), bytes) != 0)
        x = low_copy(c, x);
    return low_done(c, 0, x);
}

bool
rule_alias(low_call *c, int row)
{
    const kin_aten_arg *a = low_arg(c, 0, "self");
    if (low_is_number(a))
        return low_done(c, 0, low_scalar(c, a, low_dtype(c, 0), low_ndim(c, 0), low_sizes(c, 0)));
    return low_done(c, 0, low_read(c, a));
}

/* copy(self, src): src with self's dtype and sizes */
bool
rule_copy_from(low_call *c, int row)
{
    return low_done(c, 0, low_operand(c, low_arg(c, 1, "src"), low_dtype(c, 0)));
}

bool
rule_fill(low_call *c, int row)
{
    return low_done(c, 0, low_operand(c, low_arg(c, 1, "value"), low_dtype(c, 0)));
}
