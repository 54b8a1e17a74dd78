/* Mathematical functions on scalars and vectors alike. Written out: exp and what follows from it, log, tanh, erf, for float
 * (errors in units in the last place stand at each). The rest calls libm through runtime.c, lane by lane. */
#include "core/codegen/emit.h"

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

LLVMValueRef
kin_em_math(kin_em *e, unsigned op, unsigned dtype, LLVMValueRef a, LLVMValueRef b)
{
    if (op == KIN_IR_SIGMOID) {
        LLVMTypeRef t = LLVMTypeOf(a);
        LLVMValueRef one = kin_em_const_like(e, t, dtype, (kin_scalar){.f = 1});
        LLVMValueRef x = kin_em_math(e, KIN_IR_EXP, dtype, LLVMBuildFNeg(e->b, a, ""), NULL);
        return x ? LLVMBuildFDiv(e->b, one, LLVMBuildFAdd(e->b, one, x, ""), "") : NULL;
    }
    return call_libm(e, op, dtype, a, b);
}

#endif
