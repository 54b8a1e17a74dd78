/* Arithmetic on single elements: double for floating dtypes, int64 for the others, then rounded or wrapped. Half precision
 * is rounded through float, as eager does.
 */
#include "core/ir/scalar.h"
#include "core/ir/half.h"

#include <math.h>

static double
round_to(kin_dtype dtype, double f)
{
    switch (dtype) {
    case KIN_F16: return kin_f16_to_float(kin_f16_from_float((float)f));
    case KIN_BF16: return kin_bf16_to_float(kin_bf16_from_float((float)f));
    case KIN_F32: return (float)f;
    default: return f;
    }
}

static int64_t
wrap_to(kin_dtype dtype, int64_t i)
{
    switch (dtype) {
    case KIN_BOOL: return i != 0;
    case KIN_U8: return (uint8_t)i;
    case KIN_I8: return (int8_t)i;
    case KIN_I16: return (int16_t)i;
    case KIN_I32: return (int32_t)i;
    default: return i;
    }
}

kin_scalar
kin_scalar_settle(kin_dtype dtype, kin_scalar value)
{
    if (kin_dtype_is_float(dtype))
        return (kin_scalar){.f = round_to(dtype, value.f)};
    return (kin_scalar){.i = wrap_to(dtype, value.i)};
}

/* Truncates; what does not fit (C leaves it open) becomes what the processor's instruction makes of it: the smallest number on x86,
 * the nearest one and 0 for what is no number on ARM. Narrow dtypes go through 32 bits there.
 */
static int64_t
truncate_to_int(double f, kin_dtype to)
{
    bool fits = to == KIN_I64 ? f >= -9223372036854775808.0 && f < 9223372036854775808.0 : f > -2147483649.0 && f < 2147483648.0;
    int64_t smallest = to == KIN_I64 ? INT64_MIN : INT32_MIN;
    if (fits)
        return (int64_t)f;
#if defined(__aarch64__)
    return f != f ? 0 : f < 0 ? smallest : to == KIN_I64 ? INT64_MAX : INT32_MAX;
#else
    return smallest;
#endif
}

static kin_scalar
cast_scalar(kin_dtype from, kin_dtype to, kin_scalar value)
{
    kin_scalar out;
    if (kin_dtype_is_float(from) && kin_dtype_is_float(to))
        out.f = value.f;
    else if (kin_dtype_is_float(from))
        out.i = to == KIN_BOOL ? value.f != 0 : truncate_to_int(value.f, to);
    else if (kin_dtype_is_float(to)) /* rounded once, to float, on the way to float and half */
        out.f = to == KIN_F64 ? (double)value.i : (float)value.i;
    else
        out.i = value.i;
    return kin_scalar_settle(to, out);
}

/* -- floating ---------------------------------------------------------------------------------------------------- */

/* As eager: the quotient of what is left after taking off the remainder, corrected where the division rounded. Done in
 * the dtype's own precision, since the corrections depend on it. */
static double
floor_div_double(double a, double b)
{
    if (b == 0)
        return a / b;
    double mod = fmod(a, b), div = (a - mod) / b;
    if (mod != 0 && (b < 0) != (mod < 0))
        div -= 1;
    if (div == 0)
        return copysign(0, a / b);
    double floored = floor(div);
    return div - floored > 0.5 ? floored + 1 : floored;
}

static float
floor_div_float(float a, float b)
{
    if (b == 0)
        return a / b;
    float mod = fmodf(a, b), div = (a - mod) / b;
    if (mod != 0 && (b < 0) != (mod < 0))
        div -= 1;
    if (div == 0)
        return copysignf(0, a / b);
    float floored = floorf(div);
    return div - floored > 0.5f ? floored + 1 : floored;
}

static double
rem(double a, double b)
{
    double mod = fmod(a, b);
    return mod != 0 && (b < 0) != (mod < 0) ? mod + b : mod;
}

static double
one_float(kin_ir_op op, double x)
{
    switch (op) {
    case KIN_IR_NEG: return -x;
    case KIN_IR_ABS: return fabs(x);
    case KIN_IR_SIGN: return (x > 0) - (x < 0);
    case KIN_IR_EXP: return exp(x);
    case KIN_IR_EXP2: return exp2(x);
    case KIN_IR_EXPM1: return expm1(x);
    case KIN_IR_LOG: return log(x);
    case KIN_IR_LOG2: return log2(x);
    case KIN_IR_LOG10: return log10(x);
    case KIN_IR_LOG1P: return log1p(x);
    case KIN_IR_SQRT: return sqrt(x);
    case KIN_IR_RSQRT: return 1 / sqrt(x);
    case KIN_IR_RECIPROCAL: return 1 / x;
    case KIN_IR_SIN: return sin(x);
    case KIN_IR_COS: return cos(x);
    case KIN_IR_TAN: return tan(x);
    case KIN_IR_ASIN: return asin(x);
    case KIN_IR_ACOS: return acos(x);
    case KIN_IR_ATAN: return atan(x);
    case KIN_IR_SINH: return sinh(x);
    case KIN_IR_COSH: return cosh(x);
    case KIN_IR_TANH: return tanh(x);
    case KIN_IR_ASINH: return asinh(x);
    case KIN_IR_ACOSH: return acosh(x);
    case KIN_IR_ATANH: return atanh(x);
    case KIN_IR_ERF: return erf(x);
    case KIN_IR_ERFC: return erfc(x);
    case KIN_IR_SIGMOID: return 1 / (1 + exp(-x));
    case KIN_IR_FLOOR: return floor(x);
    case KIN_IR_CEIL: return ceil(x);
    case KIN_IR_TRUNC: return trunc(x);
    case KIN_IR_ROUND: return rint(x);
    default: return NAN;
    }
}

static double
two_floats(kin_ir_op op, kin_dtype dtype, double a, double b)
{
    switch (op) {
    case KIN_IR_ADD: return a + b;
    case KIN_IR_SUB: return a - b;
    case KIN_IR_MUL: return a * b;
    case KIN_IR_DIV: return a / b;
    case KIN_IR_FLOOR_DIV: return dtype == KIN_F64 ? floor_div_double(a, b) : floor_div_float((float)a, (float)b);
    case KIN_IR_REM: return rem(a, b);
    case KIN_IR_FMOD: return fmod(a, b);
    case KIN_IR_POW: return pow(a, b);
    case KIN_IR_ATAN2: return atan2(a, b);
    case KIN_IR_MAX: return isnan(a) || isnan(b) ? NAN : a > b ? a : b;
    case KIN_IR_MIN: return isnan(a) || isnan(b) ? NAN : a < b ? a : b;
    case KIN_IR_FMAX: return fmax(a, b);
    case KIN_IR_FMIN: return fmin(a, b);
    case KIN_IR_HYPOT: return hypot(a, b);
    case KIN_IR_COPYSIGN: return copysign(a, b);
    default: return NAN;
    }
}

/* -- integers ---------------------------------------------------------------------------------------------------- */

static int64_t
power(int64_t base, int64_t exponent)
{
    if (exponent < 0)
        return base == 1 ? 1 : base == -1 ? (exponent % 2 ? -1 : 1) : 0;
    uint64_t result = 1, square = (uint64_t)base;
    for (; exponent != 0; exponent >>= 1, square *= square)
        if (exponent & 1)
            result *= square;
    return (int64_t)result;
}

static int64_t
shift(kin_ir_op op, kin_dtype dtype, int64_t a, int64_t by)
{
    bool all = by < 0 || by >= 8 * (int64_t)kin_dtype_bytes(dtype);
    if (op == KIN_IR_SHL)
        return all ? 0 : (int64_t)((uint64_t)a << by);
    return all ? -(a < 0) : a >> by;
}

/* Divisor not 0. The quotient by -1 is a negation, which wraps instead of trapping. */
static int64_t
divide(kin_ir_op op, int64_t a, int64_t b)
{
    int64_t quotient = b == -1 ? (int64_t)(0 - (uint64_t)a) : a / b, left = b == -1 ? 0 : a % b;
    bool below = left != 0 && (left < 0) != (b < 0);
    switch (op) {
    case KIN_IR_DIV: return quotient;
    case KIN_IR_FLOOR_DIV: return quotient - below;
    case KIN_IR_REM: return below ? left + b : left;
    default: return left;
    }
}

static bool
ints(kin_ir_op op, kin_dtype dtype, int64_t a, int64_t b, int64_t *out)
{
    uint64_t ua = (uint64_t)a, ub = (uint64_t)b;
    switch (op) {
    case KIN_IR_NEG: *out = (int64_t)(0 - ua); return true;
    case KIN_IR_ABS: *out = a < 0 ? (int64_t)(0 - ua) : a; return true;
    case KIN_IR_SIGN: *out = (a > 0) - (a < 0); return true;
    case KIN_IR_NOT: *out = dtype == KIN_BOOL ? !a : ~a; return true;
    case KIN_IR_ADD: *out = (int64_t)(ua + ub); return true;
    case KIN_IR_SUB: *out = (int64_t)(ua - ub); return true;
    case KIN_IR_MUL: *out = (int64_t)(ua * ub); return true;
    case KIN_IR_POW: *out = power(a, b); return true;
    case KIN_IR_MAX: *out = a > b ? a : b; return true;
    case KIN_IR_MIN: *out = a < b ? a : b; return true;
    case KIN_IR_AND: *out = a & b; return true;
    case KIN_IR_OR: *out = a | b; return true;
    case KIN_IR_XOR: *out = a ^ b; return true;
    case KIN_IR_SHL:
    case KIN_IR_SHR: *out = shift(op, dtype, a, b); return true;
    default:
        *out = b != 0 ? divide(op, a, b) : 0;
        return b != 0;
    }
}

/* -- all together ------------------------------------------------------------------------------------------------ */

static bool
compare(kin_ir_op op, bool is_float, kin_scalar a, kin_scalar b)
{
    bool less = is_float ? a.f < b.f : a.i < b.i, equal = is_float ? a.f == b.f : a.i == b.i;
    bool more = is_float ? a.f > b.f : a.i > b.i;
    switch (op) {
    case KIN_IR_EQ: return equal;
    case KIN_IR_NE: return !equal;
    case KIN_IR_LT: return less;
    case KIN_IR_LE: return less || equal;
    case KIN_IR_GT: return more;
    default: return more || equal;
    }
}

bool
kin_scalar_compute(kin_ir_op op, kin_dtype from, kin_dtype to, const kin_scalar *args, kin_scalar *out)
{
    bool is_float = kin_dtype_is_float(from), good = true;
    bool is_unary = op < KIN_IR_ADD;
    if (op == KIN_IR_CAST)
        *out = cast_scalar(from, to, args[0]);
    else if (op == KIN_IR_WHERE)
        *out = args[0].i ? args[1] : args[2];
    else if (kin_ir_op_class(op) == KIN_IR_CLASS_COMPARE)
        out->i = compare(op, is_float, args[0], args[1]);
    else if (is_float)
        out->f = is_unary ? one_float(op, args[0].f) : two_floats(op, from, args[0].f, args[1].f);
    else
        good = ints(op, from, args[0].i, is_unary ? 0 : args[1].i, &out->i);
    *out = kin_scalar_settle(to, *out);
    return good;
}

kin_scalar
kin_scalar_load(kin_dtype dtype, const void *array, int64_t i)
{
    switch (dtype) {
    case KIN_BOOL: return (kin_scalar){.i = ((const uint8_t *)array)[i] != 0};
    case KIN_U8: return (kin_scalar){.i = ((const uint8_t *)array)[i]};
    case KIN_I8: return (kin_scalar){.i = ((const int8_t *)array)[i]};
    case KIN_I16: return (kin_scalar){.i = ((const int16_t *)array)[i]};
    case KIN_I32: return (kin_scalar){.i = ((const int32_t *)array)[i]};
    case KIN_I64: return (kin_scalar){.i = ((const int64_t *)array)[i]};
    case KIN_F16: return (kin_scalar){.f = kin_f16_to_float(((const uint16_t *)array)[i])};
    case KIN_BF16: return (kin_scalar){.f = kin_bf16_to_float(((const uint16_t *)array)[i])};
    case KIN_F32: return (kin_scalar){.f = ((const float *)array)[i]};
    case KIN_F64: return (kin_scalar){.f = ((const double *)array)[i]};
    default: return (kin_scalar){.i = 0};
    }
}

void
kin_scalar_store(kin_dtype dtype, void *array, int64_t i, kin_scalar value)
{
    switch (dtype) {
    case KIN_BOOL:
    case KIN_U8:
    case KIN_I8: ((uint8_t *)array)[i] = (uint8_t)value.i; break;
    case KIN_I16: ((int16_t *)array)[i] = (int16_t)value.i; break;
    case KIN_I32: ((int32_t *)array)[i] = (int32_t)value.i; break;
    case KIN_I64: ((int64_t *)array)[i] = value.i; break;
    case KIN_F16: ((uint16_t *)array)[i] = kin_f16_from_float((float)value.f); break;
    case KIN_BF16: ((uint16_t *)array)[i] = kin_bf16_from_float((float)value.f); break;
    case KIN_F32: ((float *)array)[i] = (float)value.f; break;
    case KIN_F64: ((double *)array)[i] = value.f; break;
    default: break;
    }
}
