/* Arithmetic by dtype. Half precision is computed as float and rounded to what the dtype can hold (value.c). */
#include "core/codegen/math_priv.h"

#ifdef KIN_LLVM
#include <llvm/Config/llvm-config.h>

static LLVMValueRef
real_like(LLVMTypeRef type, double v)
{
    return kin_em_const_like(type, KIN_F64, (kin_scalar){.f = v});
}

static bool
is_unsigned(unsigned dtype)
{
    return dtype == KIN_U8 || dtype == KIN_BOOL;
}

static LLVMValueRef
is_nan(kin_em *e, LLVMValueRef a)
{
    return LLVMBuildFCmp(e->b, LLVMRealUNO, a, a, "");
}

/* want_nan: NaN wins, else it loses. */
static LLVMValueRef
extreme(kin_em *e, bool max, bool want_nan, unsigned dtype, LLVMValueRef a, LLVMValueRef b)
{
    if (dtype == KIN_BOOL)
        return max ? LLVMBuildOr(e->b, a, b, "") : LLVMBuildAnd(e->b, a, b, "");
    if (!kin_dtype_is_float(dtype)) {
        LLVMIntPredicate p = is_unsigned(dtype) ? (max ? LLVMIntUGT : LLVMIntULT) : (max ? LLVMIntSGT : LLVMIntSLT);
        return LLVMBuildSelect(e->b, LLVMBuildICmp(e->b, p, a, b, ""), a, b, "");
    }
    LLVMValueRef r = LLVMBuildSelect(e->b, LLVMBuildFCmp(e->b, max ? LLVMRealOGT : LLVMRealOLT, a, b, ""), a, b, "");
    /* the compare is false for any NaN: r is b then */
    return want_nan ? LLVMBuildSelect(e->b, is_nan(e, a), a, r, "") : LLVMBuildSelect(e->b, is_nan(e, b), a, r, "");
}

static LLVMValueRef
emit_cast(kin_em *e, LLVMValueRef a, unsigned from, unsigned to)
{
    LLVMTypeRef ft = LLVMTypeOf(a), t = kin_em_with_element(ft, kin_em_scalar_type(e, to));
    if (from == to)
        return a;
    if (to == KIN_BOOL)
        return kin_dtype_is_float(from) ? LLVMBuildFCmp(e->b, LLVMRealUNE, a, LLVMConstNull(ft), "")
                              : LLVMBuildICmp(e->b, LLVMIntNE, a, LLVMConstNull(ft), "");
    if (kin_dtype_is_float(to)) {
        if (kin_dtype_is_float(from))
            a = from == KIN_F64 && to != KIN_F64 ? LLVMBuildFPTrunc(e->b, a, t, "")
                : from != KIN_F64 && to == KIN_F64 ? LLVMBuildFPExt(e->b, a, t, "") : a;
        else
            a = is_unsigned(from) ? LLVMBuildUIToFP(e->b, a, t, "") : LLVMBuildSIToFP(e->b, a, t, "");
        return kin_em_is_half(to) && from != KIN_BOOL ? kin_em_round_half(e, a, to) : a;
    }
    if (kin_dtype_is_float(from)) { /* by way of a type that holds more, as the machine's conversions have it */
        unsigned bits = kin_dtype_bytes(to) < 4 ? 32 : 8 * kin_dtype_bytes(to);
        a = LLVMBuildFPToSI(e->b, a, kin_em_with_element(ft, LLVMIntTypeInContext(e->context, bits)), "");
        return LLVMTypeOf(a) == t ? a : LLVMBuildTrunc(e->b, a, t, "");
    }
    unsigned have = kin_dtype_bytes(from), want = kin_dtype_bytes(to);
    if (from != KIN_BOOL && have == want)
        return a;
    if (have > want)
        return LLVMBuildTrunc(e->b, a, t, "");
    return is_unsigned(from) ? LLVMBuildZExt(e->b, a, t, "") : LLVMBuildSExt(e->b, a, t, "");
}

static LLVMValueRef
compare(kin_em *e, unsigned op, unsigned dtype, LLVMValueRef a, LLVMValueRef b)
{
    static const LLVMRealPredicate reals[] = {LLVMRealOEQ, LLVMRealUNE, LLVMRealOLT, LLVMRealOLE, LLVMRealOGT, LLVMRealOGE};
    static const LLVMIntPredicate ints[] = {LLVMIntEQ, LLVMIntNE, LLVMIntSLT, LLVMIntSLE, LLVMIntSGT, LLVMIntSGE};
    static const LLVMIntPredicate unsigneds[] = {LLVMIntEQ, LLVMIntNE, LLVMIntULT, LLVMIntULE, LLVMIntUGT, LLVMIntUGE};
    unsigned i = op - KIN_IR_EQ;
    if (kin_dtype_is_float(dtype))
        return LLVMBuildFCmp(e->b, reals[i], a, b, "");
    return LLVMBuildICmp(e->b, is_unsigned(dtype) ? unsigneds[i] : ints[i], a, b, "");
}

/* Division, remainder: a zero divisor is reported and replaced by 1; so is -1, whose overflow traps. */
static LLVMValueRef
divide_ints(kin_em *e, const kin_loop_inst *in, LLVMValueRef a, LLVMValueRef b, bool vector)
{
    LLVMTypeRef t = LLVMTypeOf(a);
    LLVMValueRef zero = LLVMBuildICmp(e->b, LLVMIntEQ, b, LLVMConstNull(t), ""), counts = kin_em_mask_for(e, in->mask, vector);
    kin_em_error_if(e, counts ? LLVMBuildAnd(e->b, zero, counts, "") : zero);
    bool modulo = in->op == KIN_IR_REM || in->op == KIN_IR_FMOD;
    if (is_unsigned(in->dtype)) {
        b = LLVMBuildSelect(e->b, zero, kin_em_int_like(t, 1), b, "");
        return modulo ? LLVMBuildURem(e->b, a, b, "") : LLVMBuildUDiv(e->b, a, b, "");
    }
    LLVMValueRef minus = LLVMBuildICmp(e->b, LLVMIntEQ, b, kin_em_int_like(t, -1), "");
    LLVMValueRef by = LLVMBuildSelect(e->b, LLVMBuildOr(e->b, zero, minus, ""), kin_em_int_like(t, 1), b, "");
    LLVMValueRef q = LLVMBuildSDiv(e->b, a, by, ""), r = LLVMBuildSRem(e->b, a, by, "");
    q = LLVMBuildSelect(e->b, minus, LLVMBuildNeg(e->b, a, ""), q, "");
    if (in->op == KIN_IR_FMOD)
        return r;
    if (in->op == KIN_IR_DIV)
        return q;
    LLVMValueRef differ = LLVMBuildICmp(e->b, LLVMIntSLT, LLVMBuildXor(e->b, r, b, ""), LLVMConstNull(t), "");
    LLVMValueRef adjust = LLVMBuildAnd(e->b, differ, LLVMBuildICmp(e->b, LLVMIntNE, r, LLVMConstNull(t), ""), "");
    if (in->op == KIN_IR_REM)
        return LLVMBuildSelect(e->b, adjust, LLVMBuildAdd(e->b, r, b, ""), r, "");
    return LLVMBuildSelect(e->b, adjust, LLVMBuildSub(e->b, q, kin_em_int_like(t, 1), ""), q, "");
}

/* Remainder with the divisor's sign, and the quotient that goes with it, as eager has them for floats. */
static LLVMValueRef
divide_floats(kin_em *e, const kin_loop_inst *in, LLVMValueRef a, LLVMValueRef b)
{
    LLVMTypeRef t = LLVMTypeOf(a);
    LLVMValueRef zero = LLVMConstNull(t), mod = kin_em_math(e, KIN_IR_FMOD, in->dtype, a, b);
    LLVMValueRef differ = LLVMBuildXor(e->b, LLVMBuildFCmp(e->b, LLVMRealOLT, b, zero, ""),
                                       LLVMBuildFCmp(e->b, LLVMRealOLT, mod, zero, ""), "");
    LLVMValueRef adjust = LLVMBuildAnd(e->b, LLVMBuildFCmp(e->b, LLVMRealUNE, mod, zero, ""), differ, "");
    if (in->op == KIN_IR_REM)
        return LLVMBuildSelect(e->b, adjust, LLVMBuildFAdd(e->b, mod, b, ""), mod, "");
    LLVMValueRef div = LLVMBuildFDiv(e->b, LLVMBuildFSub(e->b, a, mod, ""), b, "");
    div = LLVMBuildSelect(e->b, adjust, LLVMBuildFSub(e->b, div, real_like(t, 1), ""), div, "");
    LLVMValueRef down = apply(e, "llvm.floor", div);
    LLVMValueRef up = LLVMBuildFAdd(e->b, down, real_like(t, 1), "");
    LLVMValueRef far = LLVMBuildFCmp(e->b, LLVMRealOGT, LLVMBuildFSub(e->b, div, down, ""), real_like(t, 0.5), "");
    LLVMValueRef near = LLVMBuildSelect(e->b, far, up, down, ""), plain = LLVMBuildFDiv(e->b, a, b, "");
    LLVMTypeRef types[] = {t};
    LLVMValueRef sign[] = {zero, plain}, signed_zero = kin_em_intrinsic(e, "llvm.copysign", types, 1, sign, 2);
    LLVMValueRef r = LLVMBuildSelect(e->b, LLVMBuildFCmp(e->b, LLVMRealUNE, div, zero, ""), near, signed_zero, "");
    return LLVMBuildSelect(e->b, LLVMBuildFCmp(e->b, LLVMRealOEQ, b, zero, ""), plain, r, "");
}

static LLVMValueRef
shift(kin_em *e, const kin_loop_inst *in, LLVMValueRef a, LLVMValueRef b)
{
    LLVMTypeRef t = LLVMTypeOf(a);
    int64_t width = 8 * (int64_t)kin_dtype_bytes(in->dtype);
    LLVMValueRef over = LLVMBuildICmp(e->b, LLVMIntUGE, b, kin_em_int_like(t, width), "");
    LLVMValueRef by = LLVMBuildSelect(e->b, over, kin_em_int_like(t, width - 1), b, "");
    if (in->op == KIN_IR_SHL)
        return LLVMBuildSelect(e->b, over, LLVMConstNull(t), LLVMBuildShl(e->b, a, by, ""), "");
    if (!is_unsigned(in->dtype))
        return LLVMBuildAShr(e->b, a, by, "");
    return LLVMBuildSelect(e->b, over, LLVMConstNull(t), LLVMBuildLShr(e->b, a, by, ""), "");
}

/* By squaring; the exponent is not negative. */
static LLVMValueRef
int_power(kin_em *e, const kin_loop_inst *in, LLVMValueRef a, LLVMValueRef b)
{
    LLVMTypeRef t = LLVMTypeOf(a);
    LLVMValueRef result = kin_em_int_like(t, 1);
    for (unsigned bit = 0; bit < 8 * kin_dtype_bytes(in->dtype) - !is_unsigned(in->dtype); bit++) {
        LLVMValueRef set = LLVMBuildAnd(e->b, LLVMBuildLShr(e->b, b, kin_em_int_like(t, bit), ""), kin_em_int_like(t, 1), "");
        LLVMValueRef factor = LLVMBuildSelect(e->b, LLVMBuildICmp(e->b, LLVMIntNE, set, LLVMConstNull(t), ""), a,
                                              kin_em_int_like(t, 1), "");
        result = LLVMBuildMul(e->b, result, factor, "");
        a = LLVMBuildMul(e->b, a, a, "");
    }
    return result;
}

static LLVMValueRef
sign_of(kin_em *e, unsigned dtype, LLVMValueRef a)
{
    LLVMTypeRef t = LLVMTypeOf(a);
    LLVMValueRef zero = LLVMConstNull(t);
    if (dtype == KIN_BOOL)
        return a;
    if (kin_dtype_is_float(dtype)) {
        LLVMValueRef up = LLVMBuildSelect(e->b, LLVMBuildFCmp(e->b, LLVMRealOGT, a, zero, ""), real_like(t, 1), zero, "");
        return LLVMBuildSelect(e->b, LLVMBuildFCmp(e->b, LLVMRealOLT, a, zero, ""), real_like(t, -1), up, "");
    }
    LLVMIntPredicate more = is_unsigned(dtype) ? LLVMIntUGT : LLVMIntSGT;
    LLVMValueRef up = LLVMBuildSelect(e->b, LLVMBuildICmp(e->b, more, a, zero, ""), kin_em_int_like(t, 1), zero, "");
    if (is_unsigned(dtype))
        return up;
    return LLVMBuildSelect(e->b, LLVMBuildICmp(e->b, LLVMIntSLT, a, zero, ""), kin_em_int_like(t, -1), up, "");
}

static LLVMValueRef
emit_unary(kin_em *e, const kin_loop_inst *in, LLVMValueRef a)
{
    LLVMTypeRef t = LLVMTypeOf(a);
    bool f = kin_dtype_is_float(in->dtype);
    switch (in->op) {
    case KIN_IR_NEG: return f ? LLVMBuildFNeg(e->b, a, "") : LLVMBuildNeg(e->b, a, "");
    case KIN_IR_ABS:
        if (f)
            return apply(e, "llvm.fabs", a);
        if (is_unsigned(in->dtype))
            return a;
        return LLVMBuildSelect(e->b, LLVMBuildICmp(e->b, LLVMIntSLT, a, LLVMConstNull(t), ""), LLVMBuildNeg(e->b, a, ""), a, "");
    case KIN_IR_SIGN: return sign_of(e, in->dtype, a);
    case KIN_IR_SQRT: return apply(e, "llvm.sqrt", a);
    case KIN_IR_RSQRT: return LLVMBuildFDiv(e->b, real_like(t, 1), apply(e, "llvm.sqrt", a), "");
    case KIN_IR_RECIPROCAL: return LLVMBuildFDiv(e->b, real_like(t, 1), a, "");
    case KIN_IR_FLOOR: return f ? apply(e, "llvm.floor", a) : a;
    case KIN_IR_CEIL: return f ? apply(e, "llvm.ceil", a) : a;
    case KIN_IR_TRUNC: return f ? apply(e, "llvm.trunc", a) : a;
    case KIN_IR_ROUND: return f ? apply(e, "llvm.rint", a) : a;
    case KIN_IR_NOT: return LLVMBuildNot(e->b, a, "");
    default: return kin_em_math(e, in->op, in->dtype, a, NULL);
    }
}

/* With fast_math a product may go into the sum that takes it. LLVM 17's C API cannot say so. */
static LLVMValueRef
relaxed(const kin_em *e, LLVMValueRef v)
{
#if LLVM_VERSION_MAJOR >= 18
    if (e->k->fast_math && LLVMIsAInstruction(v) != NULL && LLVMCanValueUseFastMathFlags(v))
        LLVMSetFastMathFlags(v, LLVMFastMathAllowContract);
#endif
    return v;
}

static LLVMValueRef
emit_binary(kin_em *e, const kin_loop_inst *in, LLVMValueRef a, LLVMValueRef b, bool vector)
{
    LLVMTypeRef t = LLVMTypeOf(a);
    bool f = kin_dtype_is_float(in->dtype), boolean = in->dtype == KIN_BOOL;
    switch (in->op) {
    case KIN_IR_ADD: return f ? relaxed(e, LLVMBuildFAdd(e->b, a, b, "")) : boolean ? LLVMBuildOr(e->b, a, b, "") : LLVMBuildAdd(e->b, a, b, "");
    case KIN_IR_SUB: return f ? relaxed(e, LLVMBuildFSub(e->b, a, b, "")) : LLVMBuildSub(e->b, a, b, "");
    case KIN_IR_MUL: return f ? relaxed(e, LLVMBuildFMul(e->b, a, b, "")) : boolean ? LLVMBuildAnd(e->b, a, b, "") : LLVMBuildMul(e->b, a, b, "");
    case KIN_IR_DIV: return f ? LLVMBuildFDiv(e->b, a, b, "") : divide_ints(e, in, a, b, vector);
    case KIN_IR_FLOOR_DIV:
    case KIN_IR_REM: return f ? divide_floats(e, in, a, b) : divide_ints(e, in, a, b, vector);
    case KIN_IR_FMOD: return f ? kin_em_math(e, in->op, in->dtype, a, b) : divide_ints(e, in, a, b, vector);
    case KIN_IR_POW: return f ? kin_em_math(e, in->op, in->dtype, a, b) : int_power(e, in, a, b);
    case KIN_IR_MAX: return extreme(e, true, true, in->dtype, a, b);
    case KIN_IR_MIN: return extreme(e, false, true, in->dtype, a, b);
    case KIN_IR_FMAX: return extreme(e, true, false, in->dtype, a, b);
    case KIN_IR_FMIN: return extreme(e, false, false, in->dtype, a, b);
    case KIN_IR_COPYSIGN: {
        LLVMValueRef args[] = {a, b};
        return kin_em_intrinsic(e, "llvm.copysign", &t, 1, args, 2);
    }
    case KIN_IR_AND: return LLVMBuildAnd(e->b, a, b, "");
    case KIN_IR_OR: return LLVMBuildOr(e->b, a, b, "");
    case KIN_IR_XOR: return LLVMBuildXor(e->b, a, b, "");
    case KIN_IR_SHL:
    case KIN_IR_SHR: return shift(e, in, a, b);
    default: return kin_em_math(e, in->op, in->dtype, a, b);
    }
}

/* Operators whose result the half dtype holds whenever it holds the arguments. */
static bool
is_exact(unsigned op)
{
    switch (op) {
    case KIN_IR_NEG: case KIN_IR_ABS: case KIN_IR_SIGN: case KIN_IR_FLOOR: case KIN_IR_CEIL: case KIN_IR_TRUNC: case KIN_IR_ROUND:
    case KIN_IR_MAX: case KIN_IR_MIN: case KIN_IR_FMAX: case KIN_IR_FMIN: case KIN_IR_COPYSIGN: case KIN_IR_WHERE: return true;
    default: return false;
    }
}

/* The cosine of what this is the sine of, or the other way about; 0: nobody wants it, or it is there. */
static uint32_t
find_other(const kin_em *e, const kin_loop_inst *in)
{
    unsigned op = in->op == KIN_IR_SIN ? KIN_IR_COS : KIN_IR_SIN;
    for (uint32_t i = 1; i < e->k->insts.len; i++) {
        const kin_loop_inst *x = &e->k->insts.at[i];
        if (x->kind == KIN_LI_OP && x->op == op && x->args[0] == in->args[0] && x->dtype == in->dtype && e->memo[i] == NULL)
            return i;
    }
    return 0;
}

/* Sine and cosine of one angle share most of the work. */
static LLVMValueRef
emit_circle(kin_em *e, const kin_loop_inst *in, LLVMValueRef a)
{
    uint32_t n = find_other(e, in);
    LLVMValueRef other = NULL;
    e->other = n ? &other : NULL;
    LLVMValueRef v = kin_em_math(e, in->op, in->dtype, a, NULL);
    e->other = NULL;
    if (other) {
        e->memo[n] = kin_em_is_half(in->dtype) ? kin_em_round_half(e, other, in->dtype) : other;
        e->memo_level[n] = (uint8_t)kin_em_level_of(e, e->deps[n]);
    }
    return v && kin_em_is_half(in->dtype) ? kin_em_round_half(e, v, in->dtype) : v;
}

LLVMValueRef
kin_em_op(kin_em *e, const kin_loop_inst *in, bool vector)
{
    LLVMValueRef args[3] = {0};
    unsigned n = 0, dtype = e->k->insts.at[in->args[0]].dtype;
    for (; n < 3 && in->args[n]; n++) {
        args[n] = e->memo[in->args[n]];
        if (vector)
            args[n] = kin_em_widen(e, args[n]);
    }
    LLVMValueRef v;
    if (in->op == KIN_IR_CAST)
        return emit_cast(e, args[0], dtype, in->dtype);
    if (in->op == KIN_IR_WHERE)
        return LLVMBuildSelect(e->b, args[0], args[1], args[2], "");
    if (kin_ir_op_class(in->op) == KIN_IR_CLASS_COMPARE)
        return compare(e, in->op, dtype, args[0], args[1]);
    if (n == 1 && vector && (in->op == KIN_IR_SIN || in->op == KIN_IR_COS))
        return emit_circle(e, in, args[0]);
    v = n == 1 ? emit_unary(e, in, args[0]) : emit_binary(e, in, args[0], args[1], vector);
    return v && kin_em_is_half(in->dtype) && !is_exact(in->op) ? kin_em_round_half(e, v, in->dtype) : v;
}

/* a with b taken in, for accumulators. */
LLVMValueRef
kin_em_combine(kin_em *e, unsigned op, unsigned dtype, LLVMValueRef a, LLVMValueRef b)
{
    bool f = kin_dtype_is_float(dtype);
    switch (op) {
    case KIN_IR_REDUCE_SUM: case KIN_IR_CUMSUM: return f ? relaxed(e, LLVMBuildFAdd(e->b, a, b, "")) : LLVMBuildAdd(e->b, a, b, "");
    case KIN_IR_REDUCE_PROD: case KIN_IR_CUMPROD: return f ? LLVMBuildFMul(e->b, a, b, "") : LLVMBuildMul(e->b, a, b, "");
    case KIN_IR_REDUCE_MAX: case KIN_IR_CUMMAX: return extreme(e, true, true, dtype, b, a);
    case KIN_IR_REDUCE_MIN: case KIN_IR_CUMMIN: return extreme(e, false, true, dtype, b, a);
    case KIN_IR_REDUCE_ANY: return LLVMBuildOr(e->b, a, b, "");
    case KIN_IR_REDUCE_ALL: return LLVMBuildAnd(e->b, a, b, "");
    default: kin_em_fail(e, kin_ir_op_name(op)); return a;
    }
}

#endif
