/* Mathematical functions for scalars and vectors. Emitted for float: exp, log and functions based on them, tanh, erf, sine and cosine
 * (each states its error in units of the last place). math_wide.c has those that compute with doubles. All others call libm through runtime.c, lane by lane. */
#include "core/codegen/math_priv.h"

#include <stdio.h>

#ifdef KIN_LLVM

static const char *
libm_name(unsigned op)
{
    switch (op) {
    case KIN_IR_EXP: return "exp";
    case KIN_IR_EXP2: return "exp2";
    case KIN_IR_EXPM1: return "expm1";
    case KIN_IR_LOG: return "log";
    case KIN_IR_LOG2: return "log2";
    case KIN_IR_LOG10: return "log10";
    case KIN_IR_LOG1P: return "log1p";
    case KIN_IR_SIN: return "sin";
    case KIN_IR_COS: return "cos";
    case KIN_IR_TAN: return "tan";
    case KIN_IR_ASIN: return "asin";
    case KIN_IR_ACOS: return "acos";
    case KIN_IR_ATAN: return "atan";
    case KIN_IR_SINH: return "sinh";
    case KIN_IR_COSH: return "cosh";
    case KIN_IR_TANH: return "tanh";
    case KIN_IR_ASINH: return "asinh";
    case KIN_IR_ACOSH: return "acosh";
    case KIN_IR_ATANH: return "atanh";
    case KIN_IR_ERF: return "erf";
    case KIN_IR_ERFC: return "erfc";
    case KIN_IR_POW: return "pow";
    case KIN_IR_ATAN2: return "atan2";
    case KIN_IR_HYPOT: return "hypot";
    case KIN_IR_FMOD: return "fmod";
    default: return NULL;
    }
}

/* Through memory: x[0..n) = f(x, y). */
static LLVMValueRef
call_libm(kin_em *e, unsigned op, unsigned dtype, LLVMValueRef a, LLVMValueRef b)
{
    const char *name = libm_name(op);
    if (name == NULL)
        return NULL;
    char full[32];
    snprintf(full, sizeof full, "kin_%s_%s", name, dtype == KIN_F64 ? "f64" : "f32");
    LLVMTypeRef t = LLVMTypeOf(a), pointer = LLVMPointerTypeInContext(e->context, 0);
    LLVMTypeRef params[] = {pointer, pointer, LLVMInt64TypeInContext(e->context)};
    LLVMTypeRef type = LLVMFunctionType(LLVMVoidTypeInContext(e->context), params, 3, false);
    LLVMValueRef f = LLVMGetNamedFunction(e->module, full);
    if (f == NULL)
        f = LLVMAddFunction(e->module, full, type);
    unsigned n = LLVMGetTypeKind(t) == LLVMVectorTypeKind ? LLVMGetVectorSize(t) : 1;
    LLVMValueRef x = kin_em_alloca(e, t, 64), y = b ? kin_em_alloca(e, t, 64) : x;
    LLVMBuildStore(e->b, a, x);
    if (b)
        LLVMBuildStore(e->b, b, y);
    LLVMValueRef args[] = {x, y, LLVMConstInt(LLVMInt64TypeInContext(e->context), n, false)};
    LLVMBuildCall2(e->b, type, f, args, 3, "");
    return LLVMBuildLoad2(e->b, t, x, "");
}

/* -- written out for float ---------------------------------------------------------------------------------------- */

/* 2^n for whole n in [-126, 127], as floats. */
static LLVMValueRef
power_of_two(kin_em *e, LLVMValueRef n)
{
    LLVMValueRef bits = LLVMBuildAdd(e->b, n, whole(e, n, 127), "");
    bits = LLVMBuildShl(e->b, bits, whole(e, n, 23), "");
    return LLVMBuildBitCast(e->b, bits, like_with(n, LLVMFloatTypeInContext(e->context)), "");
}

/* e^r, |r| <= ln 2 / 2 */
static LLVMValueRef
exp_rest_f32(kin_em *e, LLVMValueRef r)
{
    static const double c[] = {0.50000001, 0.166665183, 0.0416662042, 0.00836895371, 0.00139506003};
    LLVMValueRef p = multiply_add(e, polynomial(e, r, c, 5), LLVMBuildFMul(e->b, r, r, ""), r);
    return LLVMBuildFAdd(e->b, p, number(r, 1), "");
}

/* 2^n e^r, |r| <= ln 2 / 2; the power in two steps, so that small results are rounded once. 1 ulp. */
static LLVMValueRef
exp_parts_f32(kin_em *e, LLVMValueRef n, LLVMValueRef r)
{
    LLVMValueRef k = LLVMBuildFPToSI(e->b, n, bits_like(e, r), ""), half = LLVMBuildAShr(e->b, k, whole(e, r, 1), "");
    LLVMValueRef p = LLVMBuildFMul(e->b, exp_rest_f32(e, r), power_of_two(e, half), "");
    return LLVMBuildFMul(e->b, p, power_of_two(e, LLVMBuildSub(e->b, k, half, "")), "");
}

/* x = n ln 2 + r. Gives n. */
static LLVMValueRef
divide_by_ln2(kin_em *e, LLVMValueRef x, LLVMValueRef *r)
{
    LLVMValueRef n = apply(e, "llvm.rint", LLVMBuildFMul(e->b, x, number(x, 1.44269504088896340736), ""));
    *r = multiply_add(e, n, number(x, -0.693145751953125), x); /* so few bits that n times it is exact */
    *r = multiply_add(e, n, number(x, -1.42860682030941723212e-6), *r);
    return n;
}

static LLVMValueRef
exp_f32(kin_em *e, LLVMValueRef x)
{
    LLVMValueRef r;
    x = choose(e, LLVMRealOGT, x, 89, number(x, 89), x); /* NaN stays */
    x = choose(e, LLVMRealOLT, x, -105, number(x, -105), x);
    LLVMValueRef n = divide_by_ln2(e, x, &r);
    return exp_parts_f32(e, n, r);
}

/* x: from -87 to 88, or NaN. 1 ulp. */
static LLVMValueRef
exp_near_f32(kin_em *e, LLVMValueRef x)
{
    LLVMValueRef r, n = divide_by_ln2(e, x, &r);
    return LLVMBuildFMul(e->b, exp_rest_f32(e, r), power_of_two(e, LLVMBuildFPToSI(e->b, n, bits_like(e, x), "")), "");
}

/* Exact for whole numbers. */
static LLVMValueRef
exp2_f32(kin_em *e, LLVMValueRef x)
{
    x = choose(e, LLVMRealOGT, x, 129, number(x, 129), x);
    x = choose(e, LLVMRealOLT, x, -152, number(x, -152), x);
    LLVMValueRef n = apply(e, "llvm.rint", x);
    return exp_parts_f32(e, n, LLVMBuildFMul(e->b, LLVMBuildFSub(e->b, x, n, ""), number(x, 0.69314718055994530942), ""));
}

/* As exp: 2^n (e^r - 1) + 2^n - 1, in two steps as well. 3 ulp. */
static LLVMValueRef
expm1_f32(kin_em *e, LLVMValueRef x)
{
    static const double c[] = {0.50000001, 0.166665183, 0.0416662042, 0.00836895371, 0.00139506003};
    LLVMValueRef y = choose(e, LLVMRealOGT, x, 89, number(x, 89), x);
    y = choose(e, LLVMRealOLT, y, -105, number(x, -105), y);
    LLVMValueRef r, n = divide_by_ln2(e, y, &r), p = multiply_add(e, polynomial(e, r, c, 5), LLVMBuildFMul(e->b, r, r, ""), r);
    LLVMValueRef k = LLVMBuildFPToSI(e->b, n, bits_like(e, x), ""), half = LLVMBuildAShr(e->b, k, whole(e, x, 1), "");
    LLVMValueRef rest = LLVMBuildSub(e->b, k, half, ""), power = power_of_two(e, half);
    LLVMValueRef one = power_of_two(e, LLVMBuildNeg(e->b, rest, "")); /* what 1 is before the second step */
    p = multiply_add(e, p, power, LLVMBuildFSub(e->b, power, one, ""));
    return choose(e, LLVMRealOEQ, x, 0, x, LLVMBuildFMul(e->b, p, power_of_two(e, rest), ""));
}

/* x = 2^k (1 + f), sqrt(1/2) <= 1 + f < sqrt(2). 1 ulp. */
static LLVMValueRef
log_f32(kin_em *e, LLVMValueRef x)
{
    static const double c[] = {0.333333167, -0.250008104, 0.200022861, -0.166245531, 0.141811961, -0.131287676, 0.128816224,
                               -0.0785954587};
    LLVMTypeRef t = LLVMTypeOf(x);
    LLVMValueRef tiny = LLVMBuildFCmp(e->b, LLVMRealOLT, x, number(x, 1.17549435e-38), "");
    LLVMValueRef y = LLVMBuildSelect(e->b, tiny, LLVMBuildFMul(e->b, x, number(x, 8388608), ""), x, "");
    LLVMValueRef bits = LLVMBuildBitCast(e->b, y, bits_like(e, x), "");
    bits = LLVMBuildSub(e->b, bits, whole(e, x, 0x3f3504f3), ""); /* of sqrt(1/2): the exponent's bits now say k */
    LLVMValueRef k = LLVMBuildAShr(e->b, bits, whole(e, x, 23), "");
    bits = LLVMBuildAdd(e->b, LLVMBuildAnd(e->b, bits, whole(e, x, 0x7fffff), ""), whole(e, x, 0x3f3504f3), "");
    LLVMValueRef f = LLVMBuildFSub(e->b, LLVMBuildBitCast(e->b, bits, t, ""), number(x, 1), "");
    LLVMValueRef n = LLVMBuildSIToFP(e->b, k, t, "");
    n = LLVMBuildSelect(e->b, tiny, LLVMBuildFSub(e->b, n, number(x, 23), ""), n, "");
    LLVMValueRef f2 = LLVMBuildFMul(e->b, f, f, "");
    LLVMValueRef p = LLVMBuildFMul(e->b, LLVMBuildFMul(e->b, f2, f, ""), polynomial(e, f, c, 8), "");
    p = multiply_add(e, n, number(x, -2.12194440e-4), p);
    p = multiply_add(e, f2, number(x, -0.5), p);
    p = multiply_add(e, n, number(x, 0.693359375), LLVMBuildFAdd(e->b, f, p, ""));
    p = choose(e, LLVMRealOEQ, x, __builtin_inf(), x, p);
    p = choose(e, LLVMRealOEQ, x, 0, number(x, -__builtin_inf()), p);
    return choose(e, LLVMRealULT, x, 0, number(x, __builtin_nan("")), p);
}

/* log(1 + x), and what was lost in that sum. 2 ulp. */
static LLVMValueRef
log1p_f32(kin_em *e, LLVMValueRef x)
{
    LLVMValueRef u = LLVMBuildFAdd(e->b, x, number(x, 1), "");
    LLVMValueRef lost = LLVMBuildFSub(e->b, x, LLVMBuildFSub(e->b, u, number(x, 1), ""), "");
    LLVMValueRef more = LLVMBuildFDiv(e->b, lost, u, "");
    more = choose(e, LLVMRealOGT, x, 1e15, number(x, 0), more); /* infinity, above all */
    more = choose(e, LLVMRealOEQ, u, 0, number(x, 0), more);
    return choose(e, LLVMRealOEQ, x, 0, x, LLVMBuildFAdd(e->b, log_f32(e, u), more, ""));
}

/* Near 0 a polynomial, else 1 - 2 / (e^2x + 1). 2 ulp. */
static LLVMValueRef
tanh_f32(kin_em *e, LLVMValueRef x)
{
    static const double c[] = {-0.333332839, 0.133314912, -0.0537434953, 0.020650579, -0.00571703656};
    LLVMValueRef a = apply(e, "llvm.fabs", x), z = LLVMBuildFMul(e->b, x, x, ""), one = number(x, 1);
    LLVMValueRef small = multiply_add(e, LLVMBuildFMul(e->b, polynomial(e, z, c, 5), z, ""), x, x);
    LLVMValueRef most = choose(e, LLVMRealOGT, a, 10, number(x, 10), a); /* of which it is 1 */
    LLVMValueRef big = LLVMBuildFAdd(e->b, exp_near_f32(e, LLVMBuildFAdd(e->b, most, most, "")), one, "");
    big = LLVMBuildFSub(e->b, one, LLVMBuildFDiv(e->b, number(x, 2), big, ""), "");
    return with_sign(e, choose(e, LLVMRealOLT, a, 0.625, small, big), x);
}

/* Below 1 a polynomial, above it 1 - e^Q(|x|) with Q near log(erfc). 2 ulp. */
static LLVMValueRef
erf_f32(kin_em *e, LLVMValueRef x)
{
    static const double c[] = {1.12837917, -0.376126271, 0.112836002, -0.0268544446, 0.00518953533, -0.000802084122,
                               7.88911935e-05};
    static const double q[] = {0.000188040233, -1.12957842, -0.633219893, -0.108418577, 0.0252082568, -0.00420456188,
                               0.000441336378, -2.168685e-05};
    LLVMValueRef a = apply(e, "llvm.fabs", x);
    a = choose(e, LLVMRealOGT, a, 4, number(x, 4), a);
    LLVMValueRef small = LLVMBuildFMul(e->b, x, polynomial(e, LLVMBuildFMul(e->b, x, x, ""), c, 7), "");
    LLVMValueRef big = LLVMBuildFSub(e->b, number(x, 1), exp_near_f32(e, polynomial(e, a, q, 8)), "");
    return choose(e, LLVMRealOLT, a, 1, small, with_sign(e, big, x));
}

/* x = n pi/2 + r */
typedef struct {
    LLVMValueRef n, r; /* n as floats of some kind */
} turn;

/* In double; good to where n has 26 bits. */
static turn
divide_by_quarter(kin_em *e, LLVMValueRef x)
{
    LLVMTypeRef wide = like_with(x, LLVMDoubleTypeInContext(e->context));
    LLVMValueRef d = LLVMBuildFPExt(e->b, x, wide, "");
    LLVMValueRef n = apply(e, "llvm.rint", LLVMBuildFMul(e->b, d, number(d, 0.63661977236758134308), ""));
    d = multiply_add(e, n, number(d, -1.57079632679489655800), d);
    d = multiply_add(e, n, number(d, -6.12323399573676603587e-17), d);
    return (turn){n, LLVMBuildFPTrunc(e->b, d, LLVMTypeOf(x), "")};
}

/* In float, pi/2 in three parts, for angles up to a million; products must not be rounded. */
static turn
divide_quickly(kin_em *e, LLVMValueRef x)
{
    static const double parts[] = {-1.57079637050628662109375, 4.37113900018624283e-8, 1.71512451000588e-15};
    LLVMTypeRef t = LLVMTypeOf(x);
    LLVMValueRef n = apply(e, "llvm.rint", LLVMBuildFMul(e->b, x, number(x, 0.63661977236758134308), "")), r = x;
    for (int i = 0; i < 3; i++) {
        LLVMValueRef args[] = {n, number(x, parts[i]), r};
        r = kin_em_intrinsic(e, "llvm.fma", &t, 1, args, 3);
    }
    return (turn){n, r};
}

/* Sine and cosine of r, and which of them, with which sign, is that of n quarters more. */
static LLVMValueRef
pick_quarter(kin_em *e, LLVMValueRef k, LLVMValueRef sine, LLVMValueRef cosine)
{
    LLVMTypeRef t = LLVMTypeOf(sine);
    LLVMValueRef odd = LLVMBuildICmp(e->b, LLVMIntNE, LLVMBuildAnd(e->b, k, whole(e, sine, 1), ""), whole(e, sine, 0), "");
    LLVMValueRef v = LLVMBuildBitCast(e->b, LLVMBuildSelect(e->b, odd, cosine, sine, ""), bits_like(e, sine), "");
    LLVMValueRef flip = LLVMBuildShl(e->b, LLVMBuildAnd(e->b, k, whole(e, sine, 2), ""), whole(e, sine, 30), "");
    return LLVMBuildBitCast(e->b, LLVMBuildXor(e->b, v, flip, ""), t, "");
}

/* 2 ulp. other, if not NULL: the other function as well. */
static LLVMValueRef
circle_f32(kin_em *e, LLVMValueRef x, bool cosine, LLVMValueRef *other)
{
    static const double s[] = {-0.166666666, 0.00833332936, -0.000198393271, 2.71823718e-06};
    static const double c[] = {0.0416666666, -0.00138888837, 2.47995117e-05, -2.72095448e-07};
    turn at = math_has_fma(e) ? divide_quickly(e, x) : divide_by_quarter(e, x);
    LLVMValueRef r = at.r, z = LLVMBuildFMul(e->b, r, r, ""), k = LLVMBuildFPToSI(e->b, at.n, bits_like(e, x), "");
    LLVMValueRef sin = multiply_add(e, LLVMBuildFMul(e->b, polynomial(e, z, s, 4), z, ""), r, r);
    LLVMValueRef cos = LLVMBuildFMul(e->b, LLVMBuildFMul(e->b, z, z, ""), polynomial(e, z, c, 4), "");
    cos = LLVMBuildFAdd(e->b, number(x, 1), multiply_add(e, z, number(x, -0.5), cos), "");
    LLVMValueRef next = LLVMBuildAdd(e->b, k, whole(e, x, 1), ""), sine = NULL, cosines = NULL;
    if (!cosine || other)
        sine = choose(e, LLVMRealOEQ, x, 0, x, pick_quarter(e, k, sin, cos)); /* the sign of 0 */
    if (cosine || other)
        cosines = pick_quarter(e, next, sin, cos);
    if (other)
        *other = cosine ? sine : cosines;
    return cosine ? cosines : sine;
}

static LLVMValueRef
merge_ways(kin_em *e, LLVMValueRef *values, LLVMBasicBlockRef *from)
{
    LLVMValueRef v = LLVMBuildPhi(e->b, LLVMTypeOf(values[0]), "");
    LLVMAddIncoming(v, values, from, 2);
    return v;
}

/* Arguments of one call: b NULL where the function has one; other: see kin_em. */
typedef struct {
    unsigned op, dtype;
    LLVMValueRef a, b, *other;
} request;

static LLVMValueRef
write_out(kin_em *e, const request *q)
{
    if (q->dtype != KIN_F64 && (q->op == KIN_IR_SIN || q->op == KIN_IR_COS))
        return circle_f32(e, q->a, q->op == KIN_IR_COS, q->other);
    return math_wide(e, q->op, q->dtype, q->a, q->b, q->other);
}

/* Where one lane is out of the range of what is written out, all go to libm; that needs a branch, so only code of the innermost loop can do it. */
static LLVMValueRef
write_out_or_libm(kin_em *e, const request *q)
{
    LLVMTypeRef bits = LLVMIntTypeInContext(e->context, LLVMGetVectorSize(LLVMTypeOf(q->a)));
    LLVMBasicBlockRef slow = LLVMAppendBasicBlockInContext(e->context, e->fn, "");
    LLVMBasicBlockRef fast = LLVMAppendBasicBlockInContext(e->context, e->fn, "");
    LLVMBasicBlockRef after = LLVMAppendBasicBlockInContext(e->context, e->fn, ""), from[2] = {slow, fast};
    LLVMValueRef values[2], others[2];
    LLVMValueRef far = math_is_far(e, q->op, q->a, q->b);
    far = LLVMBuildICmp(e->b, LLVMIntNE, LLVMBuildBitCast(e->b, far, bits, ""), LLVMConstNull(bits), "");
    LLVMBuildCondBr(e->b, far, slow, fast);
    LLVMPositionBuilderAtEnd(e->b, slow);
    values[0] = call_libm(e, q->op, q->dtype, q->a, q->b);
    others[0] = q->other ? call_libm(e, q->op == KIN_IR_SIN ? KIN_IR_COS : KIN_IR_SIN, q->dtype, q->a, NULL) : NULL;
    LLVMBuildBr(e->b, after);
    LLVMPositionBuilderAtEnd(e->b, fast);
    request inner = *q;
    inner.other = q->other ? &others[1] : NULL;
    values[1] = write_out(e, &inner);
    LLVMBuildBr(e->b, after);
    e->here = after;
    LLVMPositionBuilderAtEnd(e->b, after);
    if (q->other)
        *q->other = merge_ways(e, others, from);
    return merge_ways(e, values, from);
}

static LLVMValueRef
written_out(kin_em *e, const request *q)
{
    bool vector = LLVMGetTypeKind(LLVMTypeOf(q->a)) == LLVMVectorTypeKind;
    if (q->dtype != KIN_F64)
        switch (q->op) {
        case KIN_IR_EXP: return exp_f32(e, q->a);
        case KIN_IR_EXP2: return exp2_f32(e, q->a);
        case KIN_IR_EXPM1: return expm1_f32(e, q->a);
        case KIN_IR_LOG: return log_f32(e, q->a);
        case KIN_IR_LOG1P: return log1p_f32(e, q->a);
        case KIN_IR_TANH: return tanh_f32(e, q->a);
        case KIN_IR_ERF: return erf_f32(e, q->a);
        default: break;
        }
    if (math_is_bounded(q->op, q->dtype))
        return vector && LLVMGetInsertBlock(e->b) == e->here && (q->dtype != KIN_F64 || math_has_fma(e)) ? write_out_or_libm(e, q) : NULL;
    return vector ? math_wide(e, q->op, q->dtype, q->a, q->b, NULL) : NULL;
}

LLVMValueRef
kin_em_math(kin_em *e, unsigned op, unsigned dtype, LLVMValueRef a, LLVMValueRef b)
{
    if (op == KIN_IR_SIGMOID) {
        LLVMValueRef one = number(a, 1), x = kin_em_math(e, KIN_IR_EXP, dtype, LLVMBuildFNeg(e->b, a, ""), NULL);
        return x ? LLVMBuildFDiv(e->b, one, LLVMBuildFAdd(e->b, one, x, ""), "") : NULL;
    }
    request q = {op, dtype, a, b, e->other};
    LLVMValueRef v = written_out(e, &q);
    return v ? v : call_libm(e, op, dtype, a, b);
}

#endif
