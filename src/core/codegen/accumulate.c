/* Accumulators of reductions and scans: their initial values, adding one more value, combining lanes.
 */
#include "core/codegen/emit.h"

#ifdef KIN_LLVM

static bool
vector_inner(const kin_em *e)
{
    return e->run->lanes > 1 && e->k->vars.at[e->k->vector_var].inner;
}

/* Half precision accumulates in float; the values in registers are floats anyway. */
static kin_scalar
identity(unsigned op, unsigned dtype)
{
    bool f = kin_dtype_is_float(dtype);
    static const int64_t lowest[] = {[KIN_I8] = INT8_MIN, [KIN_I16] = INT16_MIN, [KIN_I32] = INT32_MIN, [KIN_I64] = INT64_MIN};
    static const int64_t highest[] = {[KIN_BOOL] = 1, [KIN_U8] = UINT8_MAX, [KIN_I8] = INT8_MAX, [KIN_I16] = INT16_MAX,
                                      [KIN_I32] = INT32_MAX, [KIN_I64] = INT64_MAX};
    kin_scalar s = {.i = 0};
    switch (op) {
    case KIN_IR_REDUCE_PROD: case KIN_IR_CUMPROD:
        if (f)
            s.f = 1;
        else
            s.i = 1;
        break;
    case KIN_IR_REDUCE_ALL: s.i = 1; break;
    case KIN_IR_REDUCE_MAX: case KIN_IR_ARGMAX: case KIN_IR_CUMMAX:
        if (f)
            s.f = -__builtin_inf();
        else
            s.i = lowest[dtype];
        break;
    case KIN_IR_REDUCE_MIN: case KIN_IR_ARGMIN: case KIN_IR_CUMMIN:
        if (f)
            s.f = __builtin_inf();
        else
            s.i = highest[dtype];
        break;
    case KIN_IR_REDUCE_SUM: case KIN_IR_CUMSUM:
        if (f)
            s.f = -0.0;
        break;
    default: break;
    }
    return s;
}

static unsigned
value_dtype(const kin_em *e, const kin_loop_action *a)
{
    return e->k->insts.at[a->value].dtype;
}

/* Scans of floats are done in double, as in eager: each of their sums is a result, so blocks (emit.c) cannot keep the error small. */
static unsigned
state_dtype(const kin_em *e, const kin_loop_action *a)
{
    unsigned dtype = value_dtype(e, a);
    return dtype == KIN_F32 && (a->op == KIN_IR_CUMSUM || a->op == KIN_IR_CUMPROD) ? KIN_F64 : dtype;
}

bool
kin_em_state_is_vector(const kin_em *e, const kin_loop_action *a)
{
    return e->run->lanes > 1 && (vector_inner(e) || kin_em_is_vector(e, a->value));
}

void
kin_em_start_state(kin_em *e, const kin_loop_action *a)
{
    unsigned dtype = state_dtype(e, a);
    bool vector = kin_em_state_is_vector(e, a);
    kin_emit_state *s = &e->states[a->acc];
    s->value = kin_em_const_like(kin_em_type(e, dtype, vector), dtype, identity(a->op, dtype));
    s->position = kin_ir_op_is_arg(a->op) ? LLVMConstAllOnes(kin_em_type(e, KIN_I64, vector)) : NULL;
}

/* Is b (at pb) to be kept rather than a (at pa)? Equal ones: the first. A position of -1 is "nothing yet". */
static LLVMValueRef
better(kin_em *e, const kin_loop_action *a, LLVMValueRef va, LLVMValueRef pa, LLVMValueRef vb, LLVMValueRef pb)
{
    unsigned dtype = value_dtype(e, a);
    bool max = a->op == KIN_IR_ARGMAX, f = kin_dtype_is_float(dtype);
    bool uns = dtype == KIN_BOOL || dtype == KIN_U8;
    LLVMValueRef wins, same;
    if (f) {
        wins = LLVMBuildFCmp(e->b, max ? LLVMRealOGT : LLVMRealOLT, vb, va, "");
        LLVMValueRef na = LLVMBuildFCmp(e->b, LLVMRealUNO, va, va, ""), nb = LLVMBuildFCmp(e->b, LLVMRealUNO, vb, vb, "");
        wins = LLVMBuildOr(e->b, wins, LLVMBuildAnd(e->b, nb, LLVMBuildNot(e->b, na, ""), ""), "");
        same = LLVMBuildOr(e->b, LLVMBuildFCmp(e->b, LLVMRealOEQ, va, vb, ""), LLVMBuildAnd(e->b, na, nb, ""), "");
    } else {
        LLVMIntPredicate p = max ? (uns ? LLVMIntUGT : LLVMIntSGT) : (uns ? LLVMIntULT : LLVMIntSLT);
        wins = LLVMBuildICmp(e->b, p, vb, va, "");
        same = LLVMBuildICmp(e->b, LLVMIntEQ, va, vb, "");
    }
    LLVMValueRef earlier = LLVMBuildICmp(e->b, LLVMIntULT, pb, pa, ""); /* -1 is the last */
    return LLVMBuildOr(e->b, wins, LLVMBuildAnd(e->b, same, earlier, ""), "");
}

static kin_emit_state
merge_states(kin_em *e, const kin_loop_action *a, kin_emit_state s, kin_emit_state with)
{
    if (!kin_ir_op_is_arg(a->op)) {
        s.value = kin_em_combine(e, a->op, state_dtype(e, a), s.value, with.value);
        return s;
    }
    LLVMValueRef b = better(e, a, s.value, s.position, with.value, with.position);
    s.value = LLVMBuildSelect(e->b, b, with.value, s.value, "");
    s.position = LLVMBuildSelect(e->b, b, with.position, s.position, "");
    return s;
}

void
kin_em_reduce(kin_em *e, const kin_loop_action *a)
{
    kin_emit_state with = {.value = kin_em_value(e, a->value)}, old = e->states[a->acc];
    if (kin_ir_op_is_arg(a->op))
        with.position = kin_em_value(e, a->position);
    LLVMPositionBuilderAtEnd(e->b, e->here);
    bool vector = kin_em_state_is_vector(e, a);
    if (vector) {
        with.value = kin_em_widen(e, with.value);
        with.position = with.position ? kin_em_widen(e, with.position) : NULL;
    }
    if (state_dtype(e, a) != value_dtype(e, a))
        with.value = LLVMBuildFPExt(e->b, with.value, kin_em_type(e, state_dtype(e, a), vector), "");
    kin_emit_state s = merge_states(e, a, old, with);
    if (vector && e->lanes && vector_inner(e)) {
        s.value = LLVMBuildSelect(e->b, e->lanes, s.value, old.value, "");
        s.position = s.position ? LLVMBuildSelect(e->b, e->lanes, s.position, old.position, "") : NULL;
    }
    e->states[a->acc] = s;
}

LLVMValueRef
kin_em_scanned(kin_em *e, const kin_loop_action *a)
{
    LLVMValueRef v = e->states[a->acc].value;
    if (state_dtype(e, a) != value_dtype(e, a))
        v = LLVMBuildFPTrunc(e->b, v, kin_em_type(e, value_dtype(e, a), kin_em_state_is_vector(e, a)), "");
    return a->dtype == KIN_F16 || a->dtype == KIN_BF16 ? kin_em_round_half(e, v, a->dtype) : v;
}

void
kin_em_add_state(kin_em *e, const kin_loop_action *a, kin_emit_state with)
{
    LLVMPositionBuilderAtEnd(e->b, e->here);
    e->states[a->acc] = merge_states(e, a, with, e->states[a->acc]);
}

/* The upper half of the lanes, beside the lower one. */
static LLVMValueRef
half_of(kin_em *e, LLVMValueRef v, unsigned lanes, bool upper)
{
    LLVMValueRef which[KIN_EMIT_MAX_LANES / 2];
    for (unsigned i = 0; i < lanes / 2; i++)
        which[i] = LLVMConstInt(LLVMInt32TypeInContext(e->context), i + (upper ? lanes / 2 : 0), false);
    return LLVMBuildShuffleVector(e->b, v, LLVMGetPoison(LLVMTypeOf(v)), LLVMConstVector(which, lanes / 2), "");
}

static kin_emit_state
across_lanes(kin_em *e, const kin_loop_action *a, kin_emit_state s)
{
    for (unsigned n = e->run->lanes; n > 1; n /= 2) {
        kin_emit_state low = {.value = half_of(e, s.value, n, false)}, high = {.value = half_of(e, s.value, n, true)};
        if (s.position) {
            low.position = half_of(e, s.position, n, false);
            high.position = half_of(e, s.position, n, true);
        }
        s = merge_states(e, a, low, high);
    }
    LLVMValueRef zero = LLVMConstInt(LLVMInt32TypeInContext(e->context), 0, false);
    s.value = LLVMBuildExtractElement(e->b, s.value, zero, "");
    s.position = s.position ? LLVMBuildExtractElement(e->b, s.position, zero, "") : NULL;
    return s;
}

void
kin_em_finish_state(kin_em *e, const kin_loop_action *a)
{
    kin_emit_state s = e->states[a->acc];
    LLVMPositionBuilderAtEnd(e->b, e->here);
    if (kin_em_state_is_vector(e, a) && vector_inner(e))
        s = across_lanes(e, a, s);
    if (kin_ir_op_is_arg(a->op)) {
        e->accs[a->acc] = s.position;
        return;
    }
    e->accs[a->acc] = a->dtype == KIN_F16 || a->dtype == KIN_BF16 ? kin_em_round_half(e, s.value, a->dtype) : s.value;
}

#endif
