/* Shared by the files with mathematical functions: constants, and arithmetic on a float or a vector of floats, or doubles. */
#ifndef KIN_CODEGEN_MATH_PRIV_H
#define KIN_CODEGEN_MATH_PRIV_H

#include "core/codegen/emit.h"

#include <string.h>

#ifdef KIN_LLVM

static inline LLVMValueRef
number(LLVMValueRef like, double v)
{
    LLVMTypeRef t = LLVMTypeOf(like);
    if (LLVMGetTypeKind(t) != LLVMVectorTypeKind)
        return LLVMConstReal(t, v);
    LLVMValueRef lanes[KIN_EMIT_MAX_LANES];
    unsigned n = LLVMGetVectorSize(t);
    for (unsigned i = 0; i < n; i++)
        lanes[i] = LLVMConstReal(LLVMGetElementType(t), v);
    return LLVMConstVector(lanes, n);
}

static inline LLVMTypeRef
like_with(LLVMValueRef like, LLVMTypeRef element)
{
    LLVMTypeRef t = LLVMTypeOf(like);
    return LLVMGetTypeKind(t) == LLVMVectorTypeKind ? LLVMVectorType(element, LLVMGetVectorSize(t)) : element;
}

static inline LLVMTypeRef
bits_like(kin_em *e, LLVMValueRef like)
{
    return like_with(like, LLVMInt32TypeInContext(e->context));
}

static inline LLVMValueRef
whole(kin_em *e, LLVMValueRef like, int64_t v)
{
    return kin_em_const_like(bits_like(e, like), KIN_I32, (kin_scalar){.i = v});
}

/* a * b + c */
static inline LLVMValueRef
multiply_add(kin_em *e, LLVMValueRef a, LLVMValueRef b, LLVMValueRef c)
{
    LLVMTypeRef t = LLVMTypeOf(a);
    LLVMValueRef args[] = {a, b, c};
    return kin_em_intrinsic(e, "llvm.fmuladd", &t, 1, args, 3);
}

static inline LLVMValueRef
apply(kin_em *e, const char *name, LLVMValueRef a)
{
    LLVMTypeRef t = LLVMTypeOf(a);
    return kin_em_intrinsic(e, name, &t, 1, &a, 1);
}

/* c[0] + c[1] x + ... + c[n - 1] x^(n - 1) */
static inline LLVMValueRef
polynomial(kin_em *e, LLVMValueRef x, const double *c, unsigned n)
{
    LLVMValueRef sum = number(x, c[n - 1]);
    for (unsigned i = n - 1; i-- > 0;)
        sum = multiply_add(e, sum, x, number(x, c[i]));
    return sum;
}

static inline LLVMValueRef
choose(kin_em *e, LLVMRealPredicate p, LLVMValueRef a, double limit, LLVMValueRef yes, LLVMValueRef no)
{
    return LLVMBuildSelect(e->b, LLVMBuildFCmp(e->b, p, a, number(a, limit), ""), yes, no, "");
}

static inline LLVMValueRef
with_sign(kin_em *e, LLVMValueRef a, LLVMValueRef sign)
{
    LLVMTypeRef t = LLVMTypeOf(a);
    LLVMValueRef args[] = {a, sign};
    return kin_em_intrinsic(e, "llvm.copysign", &t, 1, args, 2);
}

/* Does the machine multiply and add without rounding in between? */
static inline bool
math_has_fma(const kin_em *e)
{
    return strstr(e->target->features, "+fma,") != NULL;
}

/* -- math_wide.c: functions that are computed with doubles; NULL: not this one. other: the cosine that goes with a sine, or the sine. */
LLVMValueRef math_wide(kin_em *e, unsigned op, unsigned dtype, LLVMValueRef a, LLVMValueRef b, LLVMValueRef *other);
bool math_is_bounded(unsigned op, unsigned dtype);                                /* right for some arguments only */
LLVMValueRef math_is_far(kin_em *e, unsigned op, LLVMValueRef a, LLVMValueRef b); /* by lane: not for these */

#endif
#endif
