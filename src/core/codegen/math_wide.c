/* Mathematical functions that compute with doubles: those of doubles (errors below 2 units of the last place), and the less common ones of
 * floats, which are widened first, so that nearly every result is the correctly rounded float. Coefficients are Chebyshev fits over the range that
 * is given with each. Functions of doubles that would lose digits this way (pow, log10, asin ...) are left to libm. */
#include "core/codegen/math_priv.h"

#ifdef KIN_LLVM

static const double HALF_PI = 1.57079632679489661923, LOG2_E = 1.44269504088896340736, LOG10_E = 0.43429448190325182765;

static LLVMTypeRef
ints_like(kin_em *e, LLVMValueRef like)
{
    return like_with(like, LLVMInt64TypeInContext(e->context));
}

static LLVMValueRef
wide_whole(kin_em *e, LLVMValueRef like, int64_t v)
{
    return kin_em_int_like(ints_like(e, like), v);
}

/* Whole doubles within 32 bits; processors without AVX-512 convert no wider ones. */
static LLVMValueRef
to_int(kin_em *e, LLVMValueRef n)
{
    LLVMValueRef narrow = LLVMBuildFPToSI(e->b, n, bits_like(e, n), "");
    return LLVMBuildSExt(e->b, narrow, ints_like(e, n), "");
}

/* 2^k for k in [-1022, 1023]. */
static LLVMValueRef
power_of_two(kin_em *e, LLVMValueRef k)
{
    LLVMValueRef bits = LLVMBuildShl(e->b, LLVMBuildAdd(e->b, k, wide_whole(e, k, 1023), ""), wide_whole(e, k, 52), "");
    return LLVMBuildBitCast(e->b, bits, like_with(k, LLVMDoubleTypeInContext(e->context)), "");
}

static LLVMValueRef
magnitude(kin_em *e, LLVMValueRef a)
{
    return apply(e, "llvm.fabs", a);
}

/* True where the number is negative, -0 included. */
static LLVMValueRef
has_minus(kin_em *e, LLVMValueRef a)
{
    LLVMValueRef bits = LLVMBuildBitCast(e->b, a, ints_like(e, a), "");
    return LLVMBuildICmp(e->b, LLVMIntSLT, bits, wide_whole(e, a, 0), "");
}

/* -- exponentials ------------------------------------------------------------------------------------------------------------ */

/* x = n ln 2 + r: e^r - 1, and 2^n as the product of two powers, so that small results are rounded once. */
typedef struct {
    LLVMValueRef rest, first, second; /* second: as whole number, the exponent */
} exponential;

/* The same of 2^x, where r is what is behind the nearest whole number: two = true. */
static exponential
take_apart(kin_em *e, LLVMValueRef x, bool two)
{
    static const double c[] = {0.500000000000000103,      0.166666666666666675,      0.0416666666666237416,    0.00833333333333003212,
                               0.00138888889174064456,    0.000198412698632018284,   0.0000248015209968256958, 2.75572682299632257e-6,
                               2.76202305675068979e-7,    2.51004947889050405e-8}; /* (e^r - 1 - r) / r^2, |r| <= 0.347 */
    double top = two ? 1025 : 710.5, bottom = two ? -1080 : -748;
    x = choose(e, LLVMRealOGT, x, top, number(x, top), x); /* NaN stays */
    x = choose(e, LLVMRealOLT, x, bottom, number(x, bottom), x);
    LLVMValueRef n = apply(e, "llvm.rint", two ? x : LLVMBuildFMul(e->b, x, number(x, LOG2_E), "")), r;
    if (two) {
        r = LLVMBuildFMul(e->b, LLVMBuildFSub(e->b, x, n, ""), number(x, 0.69314718055994530942), "");
    } else {
        r = multiply_add(e, n, number(x, -0.6931471805582987), x); /* so few bits that n times it is exact */
        r = multiply_add(e, n, number(x, -1.6465949582897082e-12), r);
    }
    LLVMValueRef p = multiply_add(e, polynomial(e, r, c, 10), LLVMBuildFMul(e->b, r, r, ""), r);
    LLVMValueRef k = to_int(e, n), half = LLVMBuildAShr(e->b, k, wide_whole(e, x, 1), "");
    return (exponential){p, power_of_two(e, half), LLVMBuildSub(e->b, k, half, "")};
}

static LLVMValueRef
exp_wide(kin_em *e, LLVMValueRef x, bool two)
{
    exponential at = take_apart(e, x, two);
    LLVMValueRef p = LLVMBuildFMul(e->b, LLVMBuildFAdd(e->b, at.rest, number(x, 1), ""), at.first, "");
    return LLVMBuildFMul(e->b, p, power_of_two(e, at.second), "");
}

/* 2^n (e^r - 1) + 2^n - 1, in two steps as well. */
static LLVMValueRef
expm1_wide(kin_em *e, LLVMValueRef x)
{
    exponential at = take_apart(e, x, false);
    LLVMValueRef one = power_of_two(e, LLVMBuildNeg(e->b, at.second, "")); /* what 1 is before the second step */
    LLVMValueRef p = multiply_add(e, at.rest, at.first, LLVMBuildFSub(e->b, at.first, one, ""));
    return choose(e, LLVMRealOEQ, x, 0, x, LLVMBuildFMul(e->b, p, power_of_two(e, at.second), ""));
}

/* t / (t + 2) for t = e^2|x| - 1 */
static LLVMValueRef
tanh_wide(kin_em *e, LLVMValueRef x)
{
    LLVMValueRef a = magnitude(e, x);
    a = choose(e, LLVMRealOGT, a, 20, number(x, 20), a);
    LLVMValueRef t = expm1_wide(e, LLVMBuildFAdd(e->b, a, a, ""));
    return with_sign(e, LLVMBuildFDiv(e->b, t, LLVMBuildFAdd(e->b, t, number(x, 2), ""), ""), x);
}

/* Infinite from 709.8 on, as eager's; floats end before that. */
static LLVMValueRef
sinh_wide(kin_em *e, LLVMValueRef x)
{
    LLVMValueRef t = expm1_wide(e, magnitude(e, x)), one = number(x, 1);
    LLVMValueRef sum = LLVMBuildFAdd(e->b, t, LLVMBuildFSub(e->b, one, LLVMBuildFDiv(e->b, one, LLVMBuildFAdd(e->b, t, one, ""), ""), ""), "");
    LLVMValueRef small = LLVMBuildFAdd(e->b, t, LLVMBuildFDiv(e->b, t, LLVMBuildFAdd(e->b, t, one, ""), ""), "");
    sum = choose(e, LLVMRealOLT, t, 1, small, sum);
    return with_sign(e, LLVMBuildFMul(e->b, sum, number(x, 0.5), ""), x);
}

static LLVMValueRef
cosh_wide(kin_em *e, LLVMValueRef x)
{
    LLVMValueRef t = exp_wide(e, magnitude(e, x), false);
    LLVMValueRef sum = LLVMBuildFAdd(e->b, t, LLVMBuildFDiv(e->b, number(x, 1), t, ""), "");
    return LLVMBuildFMul(e->b, sum, number(x, 0.5), "");
}

/* -- logarithms -------------------------------------------------------------------------------------------------------------- */

/* x = 2^k (1 + f), sqrt(1/2) <= 1 + f < sqrt(2): log(1 + f) = f - (half - rest). */
typedef struct {
    LLVMValueRef k, f, half, rest;
} logarithm;

static logarithm
take_exponent(kin_em *e, LLVMValueRef x)
{
    static const double c[] = {0.66666666666666697,  0.39999999999899239,  0.285714286260958915, 0.222222111151441615,
                               0.181828905566956035, 0.153316740301678619, 0.146170375487916501}; /* of log(1 + f) by f / (2 + f), squared */
    int64_t root = 0x3fe6a09e667f3bcd; /* sqrt(1/2) */
    LLVMTypeRef t = LLVMTypeOf(x);
    LLVMValueRef tiny = LLVMBuildFCmp(e->b, LLVMRealOLT, x, number(x, 2.2250738585072014e-308), "");
    LLVMValueRef y = LLVMBuildSelect(e->b, tiny, LLVMBuildFMul(e->b, x, number(x, 18014398509481984.0), ""), x, "");
    LLVMValueRef bits = LLVMBuildSub(e->b, LLVMBuildBitCast(e->b, y, ints_like(e, x), ""), wide_whole(e, x, root), "");
    LLVMValueRef k = LLVMBuildTrunc(e->b, LLVMBuildAShr(e->b, bits, wide_whole(e, x, 52), ""), bits_like(e, x), "");
    LLVMValueRef n = LLVMBuildSIToFP(e->b, k, t, "");
    n = LLVMBuildSelect(e->b, tiny, LLVMBuildFSub(e->b, n, number(x, 54), ""), n, "");
    bits = LLVMBuildAdd(e->b, LLVMBuildAnd(e->b, bits, wide_whole(e, x, 0xfffffffffffff), ""), wide_whole(e, x, root), "");
    LLVMValueRef f = LLVMBuildFSub(e->b, LLVMBuildBitCast(e->b, bits, t, ""), number(x, 1), "");
    LLVMValueRef s = LLVMBuildFDiv(e->b, f, LLVMBuildFAdd(e->b, f, number(x, 2), ""), "");
    LLVMValueRef z = LLVMBuildFMul(e->b, s, s, ""), half = LLVMBuildFMul(e->b, LLVMBuildFMul(e->b, f, f, ""), number(x, 0.5), "");
    LLVMValueRef rest = LLVMBuildFMul(e->b, s, multiply_add(e, z, polynomial(e, z, c, 7), half), "");
    return (logarithm){n, f, half, rest};
}

/* What 0, infinity, negative numbers and NaN give. */
static LLVMValueRef
log_edges(kin_em *e, LLVMValueRef x, LLVMValueRef v)
{
    v = choose(e, LLVMRealOEQ, x, __builtin_inf(), x, v);
    v = choose(e, LLVMRealOEQ, x, 0, number(x, -__builtin_inf()), v);
    return choose(e, LLVMRealULT, x, 0, number(x, __builtin_nan("")), v);
}

static LLVMValueRef
log_wide(kin_em *e, LLVMValueRef x)
{
    logarithm at = take_exponent(e, x);
    LLVMValueRef low = multiply_add(e, at.k, number(x, 1.6465949582897082e-12), at.rest);
    LLVMValueRef v = LLVMBuildFSub(e->b, at.f, LLVMBuildFSub(e->b, at.half, low, ""), "");
    return log_edges(e, x, multiply_add(e, at.k, number(x, 0.6931471805582987), v));
}

/* To another base: exact for powers of two. */
static LLVMValueRef
log_of_base(kin_em *e, LLVMValueRef x, double of_two, double of_e)
{
    logarithm at = take_exponent(e, x);
    LLVMValueRef v = LLVMBuildFSub(e->b, at.f, LLVMBuildFSub(e->b, at.half, at.rest, ""), "");
    return log_edges(e, x, multiply_add(e, at.k, number(x, of_two), LLVMBuildFMul(e->b, v, number(x, of_e), "")));
}

/* log(1 + x), and what was lost in that sum. */
static LLVMValueRef
log1p_wide(kin_em *e, LLVMValueRef x)
{
    LLVMValueRef u = LLVMBuildFAdd(e->b, x, number(x, 1), "");
    LLVMValueRef lost = LLVMBuildFSub(e->b, x, LLVMBuildFSub(e->b, u, number(x, 1), ""), "");
    LLVMValueRef more = LLVMBuildFDiv(e->b, lost, u, "");
    more = choose(e, LLVMRealOGT, x, 1e30, number(x, 0), more); /* infinity, above all */
    more = choose(e, LLVMRealOEQ, u, 0, number(x, 0), more);
    return choose(e, LLVMRealOEQ, x, 0, x, LLVMBuildFAdd(e->b, log_wide(e, u), more, ""));
}

/* Inverse hyperbolic functions of floats, from log1p. */
static LLVMValueRef
area_wide(kin_em *e, unsigned op, LLVMValueRef x)
{
    LLVMValueRef a = magnitude(e, x), one = number(x, 1), t;
    if (op == KIN_IR_ATANH) { /* log1p(2a / (1 - a)) / 2 */
        t = LLVMBuildFDiv(e->b, LLVMBuildFAdd(e->b, a, a, ""), LLVMBuildFSub(e->b, one, a, ""), "");
        return with_sign(e, LLVMBuildFMul(e->b, log1p_wide(e, t), number(x, 0.5), ""), x);
    }
    if (op == KIN_IR_ACOSH) { /* log1p(t + sqrt(t (t + 2))), t = x - 1 */
        t = LLVMBuildFSub(e->b, x, one, "");
        LLVMValueRef root = apply(e, "llvm.sqrt", LLVMBuildFMul(e->b, t, LLVMBuildFAdd(e->b, t, number(x, 2), ""), ""));
        return log1p_wide(e, choose(e, LLVMRealOLT, t, 0, number(x, __builtin_nan("")), LLVMBuildFAdd(e->b, t, root, "")));
    }
    LLVMValueRef square = LLVMBuildFMul(e->b, a, a, ""), root = apply(e, "llvm.sqrt", LLVMBuildFAdd(e->b, square, one, ""));
    t = LLVMBuildFAdd(e->b, a, LLVMBuildFDiv(e->b, square, LLVMBuildFAdd(e->b, root, one, ""), ""), "");
    t = choose(e, LLVMRealOEQ, a, __builtin_inf(), a, t);
    return with_sign(e, log1p_wide(e, t), x);
}

/* -- powers ------------------------------------------------------------------------------------------------------------------ */

/* Of floats: e^(y log|x|), with C's answers for what is negative, zero or infinite. */
static LLVMValueRef
pow_wide(kin_em *e, LLVMValueRef x, LLVMValueRef y)
{
    LLVMValueRef a = magnitude(e, x), one = number(x, 1);
    LLVMValueRef v = exp_wide(e, LLVMBuildFMul(e->b, y, log_wide(e, a), ""), false);
    LLVMValueRef is_whole = LLVMBuildFCmp(e->b, LLVMRealOEQ, apply(e, "llvm.rint", y), y, "");
    LLVMValueRef half = LLVMBuildFMul(e->b, y, number(x, 0.5), "");
    LLVMValueRef is_odd = LLVMBuildAnd(e->b, is_whole, LLVMBuildFCmp(e->b, LLVMRealUNE, apply(e, "llvm.rint", half), half, ""), "");
    v = LLVMBuildSelect(e->b, is_odd, with_sign(e, v, x), v, "");
    LLVMValueRef below = LLVMBuildAnd(e->b, LLVMBuildFCmp(e->b, LLVMRealOLT, x, number(x, 0), ""),
                                      LLVMBuildFCmp(e->b, LLVMRealOLT, a, number(x, __builtin_inf()), ""), "");
    LLVMValueRef none = LLVMBuildAnd(e->b, below, LLVMBuildNot(e->b, is_whole, ""), "");
    v = LLVMBuildSelect(e->b, none, number(x, __builtin_nan("")), v, "");
    LLVMValueRef infinite = LLVMBuildFCmp(e->b, LLVMRealOEQ, magnitude(e, y), number(x, __builtin_inf()), "");
    LLVMValueRef unit = LLVMBuildAnd(e->b, infinite, LLVMBuildFCmp(e->b, LLVMRealOEQ, a, one, ""), "");
    unit = LLVMBuildOr(e->b, unit, LLVMBuildFCmp(e->b, LLVMRealOEQ, x, one, ""), "");
    unit = LLVMBuildOr(e->b, unit, LLVMBuildFCmp(e->b, LLVMRealOEQ, y, number(x, 0), ""), "");
    return LLVMBuildSelect(e->b, unit, one, v, "");
}

static LLVMValueRef
hypot_wide(kin_em *e, LLVMValueRef x, LLVMValueRef y)
{
    LLVMValueRef v = apply(e, "llvm.sqrt", multiply_add(e, x, x, LLVMBuildFMul(e->b, y, y, "")));
    v = choose(e, LLVMRealOEQ, magnitude(e, x), __builtin_inf(), magnitude(e, x), v);
    return choose(e, LLVMRealOEQ, magnitude(e, y), __builtin_inf(), magnitude(e, y), v);
}

/* Of floats whose quotient has fewer than 30 bits: the product with it is exact, and the quotient at most one too large. */
static LLVMValueRef
fmod_wide(kin_em *e, LLVMValueRef x, LLVMValueRef y)
{
    LLVMValueRef a = magnitude(e, x), b = magnitude(e, y), zero = number(x, 0);
    LLVMValueRef q = apply(e, "llvm.trunc", LLVMBuildFDiv(e->b, a, b, ""));
    LLVMValueRef r = multiply_add(e, LLVMBuildFNeg(e->b, q, ""), b, a);
    r = LLVMBuildSelect(e->b, LLVMBuildFCmp(e->b, LLVMRealOLT, r, zero, ""), LLVMBuildFAdd(e->b, r, b, ""), r, "");
    return with_sign(e, r, x);
}

/* -- angles ------------------------------------------------------------------------------------------------------------------ */

/* (atan t - t) / t^3 for |t| <= tan(pi / 8); exact: as doubles want it. */
static LLVMValueRef
atan_series(kin_em *e, LLVMValueRef z, bool exact)
{
    static const double c[] = {-0.333333333314315688,  0.199999989128513148,  -0.142856121693511988, 0.111074856274042713,
                               -0.0902886535396371723, 0.0713465466927253666, -0.0404180893709765586};
    static const double d[] = {-0.333333333333333333, 0.199999999999999915,  -0.142857142857114979, 0.111111111107523251,   -0.0909090906686644551,
                               0.0769230673096179605, -0.0666664190830205141, 0.0588192362613330066, -0.0525802579200734236, 0.0471929440547383646,
                               -0.041040297505018209, 0.0306262878284758955,  -0.0139087034472882246};
    return exact ? polynomial(e, z, d, 13) : polynomial(e, z, c, 7);
}

/* The angle of (x, y), by the quotient of the smaller by the larger side. */
static LLVMValueRef
atan2_wide(kin_em *e, LLVMValueRef y, LLVMValueRef x, bool exact)
{
    LLVMValueRef a = magnitude(e, x), b = magnitude(e, y), one = number(x, 1);
    LLVMValueRef steep = LLVMBuildFCmp(e->b, LLVMRealOGT, b, a, "");
    LLVMValueRef large = LLVMBuildSelect(e->b, steep, b, a, ""), small = LLVMBuildSelect(e->b, steep, a, b, "");
    LLVMValueRef t = LLVMBuildFDiv(e->b, small, large, "");
    t = choose(e, LLVMRealOEQ, large, 0, number(x, 0), t);
    t = choose(e, LLVMRealOEQ, small, __builtin_inf(), one, t);
    LLVMValueRef wide = LLVMBuildFCmp(e->b, LLVMRealOGT, t, number(x, 0.41421356237309503), ""); /* atan t = pi/4 + atan((t - 1) / (t + 1)) */
    LLVMValueRef turned = LLVMBuildFDiv(e->b, LLVMBuildFSub(e->b, t, one, ""), LLVMBuildFAdd(e->b, t, one, ""), "");
    t = LLVMBuildSelect(e->b, wide, turned, t, "");
    LLVMValueRef z = LLVMBuildFMul(e->b, t, t, "");
    LLVMValueRef v = multiply_add(e, LLVMBuildFMul(e->b, atan_series(e, z, exact), z, ""), t, t);
    v = LLVMBuildFAdd(e->b, v, LLVMBuildSelect(e->b, wide, number(x, HALF_PI / 2), number(x, 0), ""), "");
    v = LLVMBuildSelect(e->b, steep, LLVMBuildFSub(e->b, number(x, HALF_PI), v, ""), v, "");
    v = LLVMBuildSelect(e->b, has_minus(e, x), LLVMBuildFSub(e->b, number(x, 2 * HALF_PI), v, ""), v, "");
    v = LLVMBuildSelect(e->b, LLVMBuildFCmp(e->b, LLVMRealUNO, x, y, ""), LLVMBuildFAdd(e->b, x, y, ""), with_sign(e, v, y), "");
    return v;
}

/* The other side of a triangle whose longest is 1. */
static LLVMValueRef
other_side(kin_em *e, LLVMValueRef x)
{
    LLVMValueRef one = number(x, 1);
    return apply(e, "llvm.sqrt", LLVMBuildFMul(e->b, LLVMBuildFSub(e->b, one, x, ""), LLVMBuildFAdd(e->b, one, x, ""), ""));
}

typedef struct {
    LLVMValueRef sine, cosine;
} circle;

/* x = n pi/2 + r, pi/2 in three parts. */
static circle
circle_wide(kin_em *e, LLVMValueRef x)
{
    static const double parts[] = {-1.5707963267948966, -6.123233995736766e-17, 1.497384905065873e-33};
    static const double s[] = {-0.166666666666666646, 0.00833333333333091799, -0.000198412698367124944, 2.75573160786806706e-6,
                               -2.50511268760853375e-8, 1.59177717593419159e-10}; /* (sin r - r) / r^3 by r^2, |r| <= pi / 4 */
    static const double c[] = {0.0416666666666666654, -0.00138888888888873782, 0.0000248015872987368615, -2.75573172567960406e-7,
                               2.08761431599094387e-9, -1.13824087541532546e-11}; /* (cos r - 1 + r^2 / 2) / r^4 */
    LLVMValueRef n = apply(e, "llvm.rint", LLVMBuildFMul(e->b, x, number(x, 1 / HALF_PI), "")), r = x;
    for (int i = 0; i < 3; i++)
        r = multiply_add(e, n, number(x, parts[i]), r);
    LLVMValueRef z = LLVMBuildFMul(e->b, r, r, ""), half = LLVMBuildFMul(e->b, z, number(x, 0.5), ""), one = number(x, 1);
    LLVMValueRef sine = multiply_add(e, LLVMBuildFMul(e->b, polynomial(e, z, s, 6), z, ""), r, r);
    LLVMValueRef near = LLVMBuildFSub(e->b, one, half, "");
    LLVMValueRef lost = LLVMBuildFSub(e->b, LLVMBuildFSub(e->b, one, near, ""), half, "");
    LLVMValueRef cosine = LLVMBuildFAdd(e->b, near, multiply_add(e, LLVMBuildFMul(e->b, z, z, ""), polynomial(e, z, c, 6), lost), "");
    LLVMValueRef k = to_int(e, n), turns[2];
    for (int i = 0; i < 2; i++) {
        LLVMValueRef quarter = LLVMBuildAdd(e->b, k, wide_whole(e, x, i), "");
        LLVMValueRef odd = LLVMBuildICmp(e->b, LLVMIntNE, LLVMBuildAnd(e->b, quarter, wide_whole(e, x, 1), ""), wide_whole(e, x, 0), "");
        LLVMValueRef v = LLVMBuildBitCast(e->b, LLVMBuildSelect(e->b, odd, cosine, sine, ""), ints_like(e, x), "");
        LLVMValueRef flip = LLVMBuildShl(e->b, LLVMBuildAnd(e->b, quarter, wide_whole(e, x, 2), ""), wide_whole(e, x, 62), "");
        turns[i] = LLVMBuildBitCast(e->b, LLVMBuildXor(e->b, v, flip, ""), LLVMTypeOf(x), "");
    }
    return (circle){choose(e, LLVMRealOEQ, x, 0, x, turns[0]), turns[1]}; /* the sign of 0 */
}

/* -- which one --------------------------------------------------------------------------------------------------------------- */

/* Good to a double's last places but one; other: see math_priv.h. */
static LLVMValueRef
of_doubles(kin_em *e, unsigned op, LLVMValueRef x, LLVMValueRef y, LLVMValueRef *other)
{
    circle at;
    switch (op) {
    case KIN_IR_EXP: return exp_wide(e, x, false);
    case KIN_IR_EXP2: return exp_wide(e, x, true);
    case KIN_IR_EXPM1: return expm1_wide(e, x);
    case KIN_IR_LOG: return log_wide(e, x);
    case KIN_IR_LOG2: return log_of_base(e, x, 1, LOG2_E);
    case KIN_IR_LOG1P: return log1p_wide(e, x);
    case KIN_IR_SINH: return sinh_wide(e, x);
    case KIN_IR_COSH: return cosh_wide(e, x);
    case KIN_IR_TANH: return tanh_wide(e, x);
    case KIN_IR_ATAN: return atan2_wide(e, x, number(x, 1), true);
    case KIN_IR_ATAN2: return atan2_wide(e, x, y, true);
    case KIN_IR_TAN:
        at = circle_wide(e, x);
        return LLVMBuildFDiv(e->b, at.sine, at.cosine, "");
    case KIN_IR_SIN: case KIN_IR_COS:
        at = circle_wide(e, x);
        if (other)
            *other = op == KIN_IR_SIN ? at.cosine : at.sine;
        return op == KIN_IR_SIN ? at.sine : at.cosine;
    default: return NULL;
    }
}

/* Good to a float's last place. */
static LLVMValueRef
of_floats(kin_em *e, unsigned op, LLVMValueRef x, LLVMValueRef y)
{
    switch (op) {
    case KIN_IR_LOG10: return log_of_base(e, x, LOG10_E / LOG2_E, LOG10_E);
    case KIN_IR_ASINH: case KIN_IR_ACOSH: case KIN_IR_ATANH: return area_wide(e, op, x);
    case KIN_IR_ATAN: return atan2_wide(e, x, number(x, 1), false);
    case KIN_IR_ASIN: return atan2_wide(e, x, other_side(e, x), false);
    case KIN_IR_ACOS: return atan2_wide(e, other_side(e, x), x, false);
    case KIN_IR_ATAN2: return atan2_wide(e, x, y, false);
    case KIN_IR_POW: return pow_wide(e, x, y);
    case KIN_IR_HYPOT: return hypot_wide(e, x, y);
    case KIN_IR_FMOD: return fmod_wide(e, x, y);
    default: return of_doubles(e, op, x, NULL, NULL);
    }
}

LLVMValueRef
math_wide(kin_em *e, unsigned op, unsigned dtype, LLVMValueRef a, LLVMValueRef b, LLVMValueRef *other)
{
    if (dtype == KIN_F64)
        return of_doubles(e, op, a, b, other);
    LLVMTypeRef wide = like_with(a, LLVMDoubleTypeInContext(e->context));
    LLVMValueRef x = LLVMBuildFPExt(e->b, a, wide, ""), y = b ? LLVMBuildFPExt(e->b, b, wide, "") : NULL;
    LLVMValueRef v = of_floats(e, op, x, y);
    return v ? LLVMBuildFPTrunc(e->b, v, LLVMTypeOf(a), "") : NULL;
}

bool
math_is_bounded(unsigned op, unsigned dtype)
{
    return op == KIN_IR_SIN || op == KIN_IR_COS || op == KIN_IR_TAN || (op == KIN_IR_FMOD && dtype != KIN_F64);
}

LLVMValueRef
math_is_far(kin_em *e, unsigned op, LLVMValueRef a, LLVMValueRef b)
{
    LLVMValueRef x = magnitude(e, a);
    if (op != KIN_IR_FMOD) /* the parts of pi/2 end there */
        return LLVMBuildFCmp(e->b, LLVMRealOGT, x, number(a, math_has_fma(e) ? 1e6 : 1e8), "");
    LLVMValueRef y = magnitude(e, b);
    LLVMValueRef long_one = LLVMBuildFCmp(e->b, LLVMRealUGE, x, LLVMBuildFMul(e->b, y, number(a, 536870912), ""), "");
    return LLVMBuildOr(e->b, long_one, LLVMBuildFCmp(e->b, LLVMRealOEQ, y, number(a, __builtin_inf()), ""), "");
}

#endif
