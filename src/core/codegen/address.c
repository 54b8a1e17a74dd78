/* Indices and the addresses made of them: each part as far out as it may be. An index is a scalar, of lane 0, where all lanes follow from that one. */
#include "core/codegen/emit.h"

#ifdef KIN_LLVM

/* -- where code goes ----------------------------------------------------------------------------------------------- */

bool
kin_em_deps_vector(const kin_em *e, uint64_t deps)
{
    return e->run->lanes > 1 && deps >> e->k->vector_var & 1;
}

/* Code that follows is of this level: in the innermost open block, or in front of the loop that need not repeat it. */
void
kin_em_place(kin_em *e, unsigned level)
{
    if (level < e->depth)
        LLVMPositionBuilderBefore(e->b, LLVMGetBasicBlockTerminator(e->before[level + 1]));
    else
        LLVMPositionBuilderAtEnd(e->b, e->here);
}

static LLVMTypeRef
i64_type(const kin_em *e)
{
    return LLVMInt64TypeInContext(e->context);
}

static LLVMValueRef
iota(const kin_em *e, int64_t step)
{
    LLVMValueRef lanes[KIN_EMIT_MAX_LANES];
    for (unsigned i = 0; i < e->run->lanes; i++)
        lanes[i] = LLVMConstInt(i64_type(e), (unsigned long long)(step * i), true);
    return LLVMConstVector(lanes, e->run->lanes);
}

/* -- indices ----------------------------------------------------------------------------------------------------- */

static uint64_t
atom_deps(const kin_em *e, const kin_ix_atom *a)
{
    if (a->kind == KIN_IX_VAR)
        return 1ull << a->of;
    return a->kind == KIN_IX_VALUE ? e->deps[a->of] : kin_loops_index_deps(e->k, a->of, e->deps);
}

/* Values that the index contains come first: computing them moves the builder. */
void
kin_em_need_values(kin_em *e, kin_ix x)
{
    const kin_ix_expr *expr = kin_ix_at(&e->k->ix, x);
    for (uint32_t i = 0; i < expr->nterms; i++) {
        const kin_ix_atom *a = &e->k->ix.atoms.at[e->k->ix.terms.at[expr->terms + i].atom];
        if (a->kind == KIN_IX_VALUE)
            (void)kin_em_value(e, a->of);
        else if (a->kind != KIN_IX_VAR)
            kin_em_need_values(e, a->of);
    }
}

static LLVMValueRef
atom_scalar(kin_em *e, const kin_ix_atom *a, unsigned level)
{
    if (a->kind == KIN_IX_VAR)
        return e->vars[a->of];
    if (a->kind == KIN_IX_VALUE)
        return e->memo[a->of];
    LLVMValueRef of = kin_em_index_scalar(e, a->of, level), by = kin_em_number(e, NUMBER_OF(e, of_atom, a - e->k->ix.atoms.at), a->by);
    kin_em_place(e, level);
    return a->kind == KIN_IX_DIV ? LLVMBuildUDiv(e->b, of, by, "") : LLVMBuildURem(e->b, of, by, "");
}

/* The terms that the levels `from` to `to` add, NULL for none: at lane 0, without what differs between lanes in other ways than by a multiple; each
 * term as far out as it may be. */
static LLVMValueRef
sum_of_levels(kin_em *e, kin_ix x, unsigned from, unsigned to)
{
    const kin_ix_expr *expr = kin_ix_at(&e->k->ix, x);
    LLVMValueRef sum = NULL;
    for (unsigned l = from; l <= to; l++)
        for (uint32_t i = 0; i < expr->nterms; i++) {
            kin_ix_term t = e->k->ix.terms.at[expr->terms + i];
            const kin_ix_atom *a = &e->k->ix.atoms.at[t.atom];
            uint64_t d = atom_deps(e, a);
            if (kin_em_level_of(e, d) != l || (a->kind != KIN_IX_VAR && kin_em_deps_vector(e, d)))
                continue;
            LLVMValueRef v = atom_scalar(e, a, l);
            kin_em_place(e, l);
            if (t.coef != 1)
                v = LLVMBuildMul(e->b, v, kin_em_number(e, NUMBER_OF(e, of_term, expr->terms + i), t.coef), "");
            sum = sum ? LLVMBuildAdd(e->b, sum, v, "") : v;
        }
    return sum;
}

LLVMValueRef
kin_em_index_scalar(kin_em *e, kin_ix x, unsigned level)
{
    const kin_ix_expr *expr = kin_ix_at(&e->k->ix, x);
    LLVMValueRef sum = sum_of_levels(e, x, 0, level);
    kin_em_place(e, level);
    LLVMValueRef c = kin_em_number(e, NUMBER_OF(e, of_expr, x), expr->constant);
    return sum == NULL ? c : expr->constant ? LLVMBuildAdd(e->b, sum, c, "") : sum;
}

kin_lane_step
kin_em_lanes_of(const kin_em *e, kin_ix x)
{
    kin_lane_step s = {0};
    const kin_ix_expr *expr = kin_ix_at(&e->k->ix, x);
    for (uint32_t i = 0; i < expr->nterms && e->run->lanes > 1; i++) {
        kin_ix_term t = e->k->ix.terms.at[expr->terms + i];
        const kin_ix_atom *a = &e->k->ix.atoms.at[t.atom];
        if (a->kind == KIN_IX_VAR && a->of == e->k->vector_var)
            s.step = t.coef, s.number = NUMBER_OF(e, of_term, expr->terms + i);
        else if (a->kind != KIN_IX_VAR && kin_em_deps_vector(e, atom_deps(e, a)))
            s.irregular = true;
    }
    return s;
}

/* By a number that the code does not know: there is no instruction for it, but the quotient of two numbers below 2^32 is exact enough in double. */
static LLVMValueRef
divide_lanes(kin_em *e, bool quotient, LLVMValueRef v, LLVMValueRef by, LLVMTypeRef wide)
{
    LLVMTypeRef t = LLVMTypeOf(v), real = kin_em_with_element(t, LLVMDoubleTypeInContext(e->context));
    LLVMValueRef n = kin_em_widen(e, wide ? LLVMBuildTrunc(e->b, by, LLVMGetElementType(t), "") : by), q;
    if (wide)
        q = LLVMBuildFPToUI(e->b, LLVMBuildFDiv(e->b, LLVMBuildUIToFP(e->b, v, real, ""), LLVMBuildUIToFP(e->b, n, real, ""), ""), t, "");
    else
        q = LLVMBuildUDiv(e->b, v, n, "");
    v = quotient ? q : LLVMBuildSub(e->b, v, LLVMBuildMul(e->b, q, n, ""), "");
    return wide ? LLVMBuildZExt(e->b, v, wide, "") : v;
}

static LLVMValueRef
atom_vector(kin_em *e, const kin_ix_atom *a, unsigned level)
{
    if (a->kind == KIN_IX_VALUE)
        return e->memo[a->of];
    const kin_ix_expr *of = kin_ix_at(&e->k->ix, a->of);
    LLVMValueRef v = kin_em_index_vector(e, a->of, level);
    LLVMTypeRef wide = LLVMTypeOf(v), narrow = kin_em_with_element(wide, LLVMInt32TypeInContext(e->context));
    bool small = of->lo >= 0 && of->hi < INT32_MAX; /* 64-bit vector division has no instruction worth the name */
    if (small)
        v = LLVMBuildTrunc(e->b, v, narrow, "");
    uint32_t number = NUMBER_OF(e, of_atom, a - e->k->ix.atoms.at);
    if (kin_em_is_open(e, number))
        return divide_lanes(e, a->kind == KIN_IX_DIV, v, kin_em_number(e, number, 0), small ? wide : NULL);
    LLVMValueRef by = kin_em_int_like(LLVMTypeOf(v), a->by);
    v = a->kind == KIN_IX_DIV ? LLVMBuildUDiv(e->b, v, by, "") : LLVMBuildURem(e->b, v, by, "");
    return small ? LLVMBuildZExt(e->b, v, wide, "") : v;
}

/* By lane: how far it is from lane 0. */
static LLVMValueRef
steps_of(kin_em *e, kin_lane_step s)
{
    if (!kin_em_is_open(e, s.number))
        return iota(e, s.step);
    return LLVMBuildMul(e->b, iota(e, 1), kin_em_widen(e, kin_em_number(e, s.number, 0)), "");
}

LLVMValueRef
kin_em_index_vector(kin_em *e, kin_ix x, unsigned level)
{
    const kin_ix_expr *expr = kin_ix_at(&e->k->ix, x);
    kin_lane_step s = kin_em_lanes_of(e, x);
    LLVMValueRef v = kin_em_widen(e, kin_em_index_scalar(e, x, level));
    if (s.step)
        v = LLVMBuildAdd(e->b, v, steps_of(e, s), "");
    for (uint32_t i = 0; i < expr->nterms; i++) {
        kin_ix_term t = e->k->ix.terms.at[expr->terms + i];
        const kin_ix_atom *a = &e->k->ix.atoms.at[t.atom];
        if (a->kind == KIN_IX_VAR || !kin_em_deps_vector(e, atom_deps(e, a)))
            continue;
        LLVMValueRef one = atom_vector(e, a, level);
        if (t.coef != 1)
            one = LLVMBuildMul(e->b, one, kin_em_widen(e, kin_em_number(e, NUMBER_OF(e, of_term, expr->terms + i), t.coef)), "");
        v = LLVMBuildAdd(e->b, v, one, "");
    }
    return v;
}

/* -- addresses ------------------------------------------------------------------------------------------------------- */

static LLVMValueRef
move_pointer(kin_em *e, uint32_t buffer, LLVMValueRef from, LLVMValueRef elements)
{
    const kin_loop_buffer *b = &e->k->buffers.at[buffer];
    int64_t scale = kin_dtype_bytes(b->dtype);
    if (b->local && e->run->kind == KIN_RUN_COLUMNS)
        scale *= e->run->lanes;
    LLVMValueRef bytes = LLVMBuildMul(e->b, elements, kin_em_int_like(LLVMTypeOf(elements), scale), "");
    return LLVMBuildGEP2(e->b, LLVMInt8TypeInContext(e->context), from, &bytes, 1, "");
}

/* By lane, of a vector of indices. */
LLVMValueRef
kin_em_pointers_at(kin_em *e, uint32_t buffer, LLVMValueRef indices)
{
    return move_pointer(e, buffer, e->bases[buffer], indices);
}

/* Of lane 0, `further` elements on. What does not change in the innermost loop is added in front of it, so that each access there is a pointer and the
 * variable of the loop. LLVM's loop strength reduction finds the same, and takes a fifth of its time to do so: it is off (target.c). */
LLVMValueRef
kin_em_pointer_at(kin_em *e, uint32_t buffer, kin_ix x, unsigned level, int64_t further)
{
    LLVMValueRef p = e->bases[buffer], constant = kin_em_number(e, NUMBER_OF(e, of_expr, x), kin_ix_at(&e->k->ix, x)->constant);
    LLVMValueRef outer = level ? sum_of_levels(e, x, 0, level - 1) : NULL;
    if (outer) {
        kin_em_place(e, level - 1);
        p = move_pointer(e, buffer, p, outer);
    }
    LLVMValueRef inner = sum_of_levels(e, x, level, level);
    kin_em_place(e, level);
    if (inner)
        p = move_pointer(e, buffer, p, inner);
    constant = LLVMBuildAdd(e->b, constant, kin_em_int_like(i64_type(e), further), "");
    return LLVMIsConstant(constant) && LLVMIsNull(constant) ? p : move_pointer(e, buffer, p, constant);
}

#endif
