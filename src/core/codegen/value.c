/* Instructions: loads and stores in every form an index can take, arithmetic by dtype. A value is a scalar when it is the
 * same for all lanes, else a vector. BOOL is i1 in registers and a byte in memory; half precision is float in registers,
 * rounded to what the dtype can hold.
 */
#include "core/codegen/emit.h"

#ifdef KIN_LLVM

void
kin_em_fail(kin_em *e, const char *what)
{
    if (!e->failed)
        kin_text_addf(e->why, "%s", what);
    e->failed = true;
}

/* -- types ------------------------------------------------------------------------------------------------------- */

static bool
is_half(unsigned dtype)
{
    return dtype == KIN_F16 || dtype == KIN_BF16;
}

static bool
is_float(unsigned dtype)
{
    return kin_dtype_is_float(dtype);
}

static LLVMTypeRef
scalar_type(const kin_em *e, unsigned dtype)
{
    if (dtype == KIN_BOOL)
        return LLVMInt1TypeInContext(e->context);
    if (dtype == KIN_F64)
        return LLVMDoubleTypeInContext(e->context);
    if (is_float(dtype))
        return LLVMFloatTypeInContext(e->context);
    return LLVMIntTypeInContext(e->context, 8 * kin_dtype_bytes(dtype));
}

static LLVMTypeRef
widen_type(const kin_em *e, LLVMTypeRef t)
{
    return e->run->lanes > 1 ? LLVMVectorType(t, e->run->lanes) : t;
}

LLVMTypeRef
kin_em_type(const kin_em *e, unsigned dtype, bool vector)
{
    LLVMTypeRef t = scalar_type(e, dtype);
    return vector ? widen_type(e, t) : t;
}

static LLVMTypeRef
memory_type(const kin_em *e, unsigned dtype, bool vector)
{
    LLVMTypeRef t = dtype == KIN_BOOL || is_half(dtype) ? LLVMIntTypeInContext(e->context, 8 * kin_dtype_bytes(dtype))
                                                        : scalar_type(e, dtype);
    return vector ? widen_type(e, t) : t;
}

static bool
is_vector_type(LLVMTypeRef t)
{
    return LLVMGetTypeKind(t) == LLVMVectorTypeKind;
}

static LLVMTypeRef
with_element(LLVMTypeRef shape, LLVMTypeRef element)
{
    return is_vector_type(shape) ? LLVMVectorType(element, LLVMGetVectorSize(shape)) : element;
}

static LLVMValueRef
splat(LLVMTypeRef type, LLVMValueRef constant)
{
    if (!is_vector_type(type))
        return constant;
    LLVMValueRef lanes[KIN_EMIT_MAX_LANES];
    unsigned n = LLVMGetVectorSize(type);
    for (unsigned i = 0; i < n; i++)
        lanes[i] = constant;
    return LLVMConstVector(lanes, n);
}

static LLVMTypeRef
element_of(LLVMTypeRef t)
{
    return is_vector_type(t) ? LLVMGetElementType(t) : t;
}

LLVMValueRef
kin_em_const_like(kin_em *e, LLVMTypeRef type, unsigned dtype, kin_scalar value)
{
    LLVMTypeRef t = element_of(type);
    return splat(type, is_float(dtype) ? LLVMConstReal(t, value.f) : LLVMConstInt(t, (unsigned long long)value.i, true));
}

static LLVMValueRef
int_like(LLVMTypeRef type, int64_t v)
{
    return splat(type, LLVMConstInt(element_of(type), (unsigned long long)v, true));
}

static LLVMValueRef
real_like(LLVMTypeRef type, double v)
{
    return splat(type, LLVMConstReal(element_of(type), v));
}

LLVMValueRef
kin_em_widen(kin_em *e, LLVMValueRef v, unsigned dtype)
{
    LLVMTypeRef t = LLVMTypeOf(v);
    if (e->run->lanes == 1 || is_vector_type(t))
        return v;
    LLVMTypeRef wide = LLVMVectorType(t, e->run->lanes);
    if (LLVMIsConstant(v) && !LLVMIsAGlobalValue(v))
        return splat(wide, v);
    LLVMTypeRef i32 = LLVMInt32TypeInContext(e->context);
    LLVMValueRef one = LLVMBuildInsertElement(e->b, LLVMGetPoison(wide), v, LLVMConstInt(i32, 0, false), "");
    return LLVMBuildShuffleVector(e->b, one, LLVMGetPoison(wide), LLVMConstNull(LLVMVectorType(i32, e->run->lanes)), "");
}

/* -- places ------------------------------------------------------------------------------------------------------ */

static unsigned
level_of(const kin_em *e, uint64_t deps)
{
    for (unsigned i = e->ninner; i > 0; i--)
        if (deps >> e->inner[i - 1] & 1)
            return i;
    return 0;
}

static bool
deps_vector(const kin_em *e, uint64_t deps)
{
    return e->run->lanes > 1 && deps >> e->k->vector_var & 1;
}

bool
kin_em_is_vector(const kin_em *e, uint32_t inst)
{
    return deps_vector(e, e->deps[inst]);
}

/* Code that follows is of this level: in the innermost open block, or in front of the loop that need not repeat it. */
static void
place(kin_em *e, unsigned level)
{
    if (level < e->depth)
        LLVMPositionBuilderBefore(e->b, LLVMGetBasicBlockTerminator(e->before[level + 1]));
    else
        LLVMPositionBuilderAtEnd(e->b, e->here);
}

LLVMValueRef
kin_em_alloca(kin_em *e, LLVMTypeRef type, unsigned align)
{
    LLVMBuilderRef own = LLVMCreateBuilderInContext(e->context);
    LLVMPositionBuilderAtEnd(own, e->entry);
    LLVMValueRef a = LLVMBuildAlloca(own, type, "");
    LLVMSetAlignment(a, align);
    LLVMDisposeBuilder(own);
    return a;
}

LLVMValueRef
kin_em_intrinsic(kin_em *e, const char *name, LLVMTypeRef *types, unsigned ntypes, LLVMValueRef *args, unsigned nargs)
{
    unsigned id = LLVMLookupIntrinsicID(name, strlen(name));
    LLVMValueRef f = LLVMGetIntrinsicDeclaration(e->module, id, types, ntypes);
    return LLVMBuildCall2(e->b, LLVMIntrinsicGetType(e->context, id, types, ntypes), f, args, nargs, "");
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
static void
need_values(kin_em *e, kin_ix x)
{
    const kin_ix_expr *expr = kin_ix_at(&e->k->ix, x);
    for (uint32_t i = 0; i < expr->nterms; i++) {
        const kin_ix_atom *a = &e->k->ix.atoms.at[e->k->ix.terms.at[expr->terms + i].atom];
        if (a->kind == KIN_IX_VALUE)
            (void)kin_em_value(e, a->of);
        else if (a->kind != KIN_IX_VAR)
            need_values(e, a->of);
    }
}

static LLVMValueRef index_scalar(kin_em *e, kin_ix x, unsigned level);

static LLVMValueRef
atom_scalar(kin_em *e, const kin_ix_atom *a, unsigned level)
{
    if (a->kind == KIN_IX_VAR)
        return e->vars[a->of];
    if (a->kind == KIN_IX_VALUE)
        return e->memo[a->of];
    LLVMValueRef of = index_scalar(e, a->of, level), by = LLVMConstInt(i64_type(e), (unsigned long long)a->by, true);
    place(e, level);
    return a->kind == KIN_IX_DIV ? LLVMBuildUDiv(e->b, of, by, "") : LLVMBuildURem(e->b, of, by, "");
}

/* At lane 0, without what differs between lanes in other ways than by a multiple; each term as far out as it may be. */
static LLVMValueRef
index_scalar(kin_em *e, kin_ix x, unsigned level)
{
    const kin_ix_expr *expr = kin_ix_at(&e->k->ix, x);
    LLVMValueRef sum = NULL;
    for (unsigned l = 0; l <= level; l++)
        for (uint32_t i = 0; i < expr->nterms; i++) {
            kin_ix_term t = e->k->ix.terms.at[expr->terms + i];
            const kin_ix_atom *a = &e->k->ix.atoms.at[t.atom];
            uint64_t d = atom_deps(e, a);
            if (level_of(e, d) != l || (a->kind != KIN_IX_VAR && deps_vector(e, d)))
                continue;
            LLVMValueRef v = atom_scalar(e, a, l);
            place(e, l);
            if (t.coef != 1)
                v = LLVMBuildMul(e->b, v, LLVMConstInt(i64_type(e), (unsigned long long)t.coef, true), "");
            sum = sum ? LLVMBuildAdd(e->b, sum, v, "") : v;
        }
    place(e, level);
    LLVMValueRef c = LLVMConstInt(i64_type(e), (unsigned long long)expr->constant, true);
    return sum == NULL ? c : expr->constant ? LLVMBuildAdd(e->b, sum, c, "") : sum;
}

/* How an index moves from lane to lane. */
typedef struct {
    int64_t step;
    bool irregular;
} lane_step;

static lane_step
lanes_of(const kin_em *e, kin_ix x)
{
    lane_step s = {0};
    const kin_ix_expr *expr = kin_ix_at(&e->k->ix, x);
    for (uint32_t i = 0; i < expr->nterms && e->run->lanes > 1; i++) {
        kin_ix_term t = e->k->ix.terms.at[expr->terms + i];
        const kin_ix_atom *a = &e->k->ix.atoms.at[t.atom];
        if (a->kind == KIN_IX_VAR && a->of == e->k->vector_var)
            s.step = t.coef;
        else if (a->kind != KIN_IX_VAR && deps_vector(e, atom_deps(e, a)))
            s.irregular = true;
    }
    return s;
}

static LLVMValueRef index_vector(kin_em *e, kin_ix x, unsigned level);

static LLVMValueRef
atom_vector(kin_em *e, const kin_ix_atom *a, unsigned level)
{
    if (a->kind == KIN_IX_VALUE)
        return e->memo[a->of];
    const kin_ix_expr *of = kin_ix_at(&e->k->ix, a->of);
    LLVMValueRef v = index_vector(e, a->of, level);
    LLVMTypeRef wide = LLVMTypeOf(v), narrow = with_element(wide, LLVMInt32TypeInContext(e->context));
    bool small = of->lo >= 0 && of->hi < INT32_MAX; /* 64-bit vector division has no instruction worth the name */
    if (small)
        v = LLVMBuildTrunc(e->b, v, narrow, "");
    LLVMValueRef by = int_like(LLVMTypeOf(v), a->by);
    v = a->kind == KIN_IX_DIV ? LLVMBuildUDiv(e->b, v, by, "") : LLVMBuildURem(e->b, v, by, "");
    return small ? LLVMBuildZExt(e->b, v, wide, "") : v;
}

static LLVMValueRef
index_vector(kin_em *e, kin_ix x, unsigned level)
{
    const kin_ix_expr *expr = kin_ix_at(&e->k->ix, x);
    lane_step s = lanes_of(e, x);
    LLVMValueRef v = kin_em_widen(e, index_scalar(e, x, level), KIN_I64);
    if (s.step)
        v = LLVMBuildAdd(e->b, v, iota(e, s.step), "");
    for (uint32_t i = 0; i < expr->nterms; i++) {
        kin_ix_term t = e->k->ix.terms.at[expr->terms + i];
        const kin_ix_atom *a = &e->k->ix.atoms.at[t.atom];
        if (a->kind == KIN_IX_VAR || !deps_vector(e, atom_deps(e, a)))
            continue;
        LLVMValueRef one = atom_vector(e, a, level);
        if (t.coef != 1)
            one = LLVMBuildMul(e->b, one, int_like(LLVMTypeOf(one), t.coef), "");
        v = LLVMBuildAdd(e->b, v, one, "");
    }
    return v;
}

/* -- masks ------------------------------------------------------------------------------------------------------- */

static LLVMValueRef
any_lane(kin_em *e, LLVMValueRef m)
{
    if (!is_vector_type(LLVMTypeOf(m)))
        return m;
    LLVMTypeRef bits = LLVMIntTypeInContext(e->context, LLVMGetVectorSize(LLVMTypeOf(m)));
    return LLVMBuildICmp(e->b, LLVMIntNE, LLVMBuildBitCast(e->b, m, bits, ""), LLVMConstNull(bits), "");
}

/* The instruction's own mask and the lanes that count; NULL = always. */
static LLVMValueRef
mask_for(kin_em *e, uint32_t mask, bool vector)
{
    LLVMValueRef m = mask ? e->memo[mask] : NULL;
    if (!vector)
        return m ? any_lane(e, m) : NULL;
    if (m)
        m = kin_em_widen(e, m, KIN_BOOL);
    if (e->lanes == NULL || e->run->lanes == 1)
        return m;
    return m ? LLVMBuildAnd(e->b, m, e->lanes, "") : e->lanes;
}

void
kin_em_error_if(kin_em *e, LLVMValueRef condition)
{
    LLVMTypeRef i32 = LLVMInt32TypeInContext(e->context);
    LLVMValueRef bad = LLVMBuildZExt(e->b, any_lane(e, condition), i32, "");
    LLVMValueRef old = LLVMBuildLoad2(e->b, i32, e->error, "");
    LLVMBuildStore(e->b, LLVMBuildOr(e->b, old, bad, ""), e->error);
}

/* -- memory ------------------------------------------------------------------------------------------------------ */

static LLVMValueRef
from_memory(kin_em *e, LLVMValueRef v, unsigned dtype)
{
    LLVMTypeRef t = LLVMTypeOf(v), i32 = with_element(t, LLVMInt32TypeInContext(e->context));
    LLVMTypeRef f32 = with_element(t, LLVMFloatTypeInContext(e->context));
    switch (dtype) {
    case KIN_BOOL: return LLVMBuildICmp(e->b, LLVMIntNE, v, LLVMConstNull(t), "");
    case KIN_BF16:
        v = LLVMBuildShl(e->b, LLVMBuildZExt(e->b, v, i32, ""), int_like(i32, 16), "");
        return LLVMBuildBitCast(e->b, v, f32, "");
    case KIN_F16:
        v = LLVMBuildBitCast(e->b, v, with_element(t, LLVMHalfTypeInContext(e->context)), "");
        return LLVMBuildFPExt(e->b, v, f32, "");
    default: return v;
    }
}

static LLVMValueRef
to_memory(kin_em *e, LLVMValueRef v, unsigned dtype)
{
    LLVMTypeRef t = LLVMTypeOf(v), i32 = with_element(t, LLVMInt32TypeInContext(e->context));
    LLVMTypeRef i16 = with_element(t, LLVMInt16TypeInContext(e->context));
    switch (dtype) {
    case KIN_BOOL: return LLVMBuildZExt(e->b, v, with_element(t, LLVMInt8TypeInContext(e->context)), "");
    case KIN_BF16:
        v = LLVMBuildLShr(e->b, LLVMBuildBitCast(e->b, v, i32, ""), int_like(i32, 16), "");
        return LLVMBuildTrunc(e->b, v, i16, "");
    case KIN_F16:
        v = LLVMBuildFPTrunc(e->b, v, with_element(t, LLVMHalfTypeInContext(e->context)), "");
        return LLVMBuildBitCast(e->b, v, i16, "");
    default: return v;
    }
}

/* Float to the nearest that the half dtype holds, still as a float. */
LLVMValueRef
kin_em_round_half(kin_em *e, LLVMValueRef v, unsigned dtype)
{
    LLVMTypeRef t = LLVMTypeOf(v), i32 = with_element(t, LLVMInt32TypeInContext(e->context));
    if (dtype == KIN_F16) {
        LLVMValueRef half = LLVMBuildFPTrunc(e->b, v, with_element(t, LLVMHalfTypeInContext(e->context)), "");
        return LLVMBuildFPExt(e->b, half, t, "");
    }
    LLVMValueRef bits = LLVMBuildBitCast(e->b, v, i32, "");
    LLVMValueRef odd = LLVMBuildAnd(e->b, LLVMBuildLShr(e->b, bits, int_like(i32, 16), ""), int_like(i32, 1), "");
    bits = LLVMBuildAdd(e->b, bits, LLVMBuildAdd(e->b, odd, int_like(i32, 0x7fff), ""), "");
    bits = LLVMBuildAnd(e->b, bits, int_like(i32, (int32_t)0xffff0000), "");
    LLVMValueRef nan = LLVMBuildFCmp(e->b, LLVMRealUNO, v, v, "");
    return LLVMBuildBitCast(e->b, LLVMBuildSelect(e->b, nan, int_like(i32, 0x7fc00000), bits, ""), t, "");
}

static LLVMValueRef
pointer_at(kin_em *e, uint32_t buffer, LLVMValueRef index)
{
    const kin_loop_buffer *b = &e->k->buffers.at[buffer];
    int64_t scale = kin_dtype_bytes(b->dtype);
    if (b->local && e->run->kind == KIN_RUN_COLUMNS)
        scale *= e->run->lanes;
    LLVMValueRef bytes = LLVMBuildMul(e->b, index, int_like(LLVMTypeOf(index), scale), "");
    return LLVMBuildGEP2(e->b, LLVMInt8TypeInContext(e->context), e->bases[buffer], &bytes, 1, "");
}

static LLVMValueRef
align_const(const kin_em *e, unsigned dtype)
{
    return LLVMConstInt(LLVMInt32TypeInContext(e->context), kin_dtype_bytes(dtype), false);
}

/* Where nothing may be read, some other place is. */
static LLVMValueRef
load_one(kin_em *e, uint32_t buffer, unsigned dtype, LLVMValueRef index, LLVMValueRef mask)
{
    LLVMValueRef p = pointer_at(e, buffer, index);
    if (mask) {
        LLVMTypeRef i64 = i64_type(e);
        LLVMValueRef other = kin_em_alloca(e, LLVMArrayType2(i64, 2), 16);
        LLVMBuildStore(e->b, LLVMConstNull(LLVMArrayType2(i64, 2)), other);
        p = LLVMBuildSelect(e->b, mask, p, other, "");
    }
    LLVMValueRef v = LLVMBuildLoad2(e->b, memory_type(e, dtype, false), p, "");
    LLVMSetAlignment(v, kin_dtype_bytes(dtype));
    return v;
}

static LLVMValueRef
load_run(kin_em *e, uint32_t buffer, unsigned dtype, LLVMValueRef index, LLVMValueRef mask)
{
    LLVMTypeRef t = memory_type(e, dtype, true);
    LLVMValueRef p = pointer_at(e, buffer, index);
    if (mask) {
        LLVMTypeRef types[] = {t, LLVMTypeOf(p)};
        LLVMValueRef args[] = {p, align_const(e, dtype), mask, LLVMConstNull(t)};
        return kin_em_intrinsic(e, "llvm.masked.load", types, 2, args, 4);
    }
    LLVMValueRef v = LLVMBuildLoad2(e->b, t, p, "");
    LLVMSetAlignment(v, kin_dtype_bytes(dtype));
    return v;
}

static LLVMValueRef
all_lanes(const kin_em *e)
{
    return int_like(kin_em_type(e, KIN_BOOL, true), 1);
}

static LLVMValueRef
load_gather(kin_em *e, uint32_t buffer, unsigned dtype, LLVMValueRef index, LLVMValueRef mask)
{
    LLVMTypeRef t = memory_type(e, dtype, true);
    LLVMValueRef p = pointer_at(e, buffer, index);
    LLVMTypeRef types[] = {t, LLVMTypeOf(p)};
    LLVMValueRef args[] = {p, align_const(e, dtype), mask ? mask : all_lanes(e), LLVMConstNull(t)};
    return kin_em_intrinsic(e, "llvm.masked.gather", types, 2, args, 4);
}

static bool
is_local_columns(const kin_em *e, uint32_t buffer)
{
    return e->k->buffers.at[buffer].local && e->run->kind == KIN_RUN_COLUMNS;
}

static LLVMValueRef
emit_load(kin_em *e, const kin_loop_inst *in, bool vector, unsigned level)
{
    lane_step s = lanes_of(e, in->index);
    bool run = vector && !s.irregular && s.step == 1;
    if (is_local_columns(e, in->buffer)) {
        LLVMValueRef index = index_scalar(e, in->index, level);
        return from_memory(e, load_run(e, in->buffer, in->dtype, index, NULL), in->dtype);
    }
    LLVMValueRef v;
    if (vector && (s.irregular || (s.step != 0 && s.step != 1))) {
        LLVMValueRef index = index_vector(e, in->index, level);
        v = load_gather(e, in->buffer, in->dtype, index, mask_for(e, in->mask, true));
    } else {
        LLVMValueRef index = index_scalar(e, in->index, level);
        LLVMValueRef mask = mask_for(e, in->mask, run);
        v = run ? load_run(e, in->buffer, in->dtype, index, mask) : load_one(e, in->buffer, in->dtype, index, mask);
    }
    v = from_memory(e, v, in->dtype);
    return vector ? kin_em_widen(e, v, in->dtype) : v;
}

LLVMValueRef
kin_em_load_for_update(kin_em *e, const kin_loop_action *a, bool vector)
{
    kin_loop_inst in = {.kind = KIN_LI_LOAD, .dtype = a->dtype, .buffer = a->buffer, .index = a->index};
    need_values(e, a->index);
    place(e, e->depth);
    return emit_load(e, &in, vector, e->depth);
}

static void
store_scatter(kin_em *e, const kin_loop_action *a, LLVMValueRef v, LLVMValueRef mask)
{
    LLVMValueRef p = pointer_at(e, a->buffer, index_vector(e, a->index, e->depth));
    LLVMTypeRef types[] = {LLVMTypeOf(v), LLVMTypeOf(p)};
    LLVMValueRef args[] = {v, p, align_const(e, a->dtype), mask ? mask : all_lanes(e)};
    kin_em_intrinsic(e, "llvm.masked.scatter", types, 2, args, 4);
}

/* What every vector that is stored is a multiple of, at most 64; the base is a multiple of 64. 0: of nothing useful. */
static unsigned
alignment_of(const kin_em *e, const kin_loop_action *a)
{
    int64_t bytes = (int64_t)e->run->lanes * kin_dtype_bytes(a->dtype), unit = bytes < 64 ? bytes : 64;
    const kin_ix_expr *x = kin_ix_at(&e->k->ix, a->index);
    bool aligned = x->constant * kin_dtype_bytes(a->dtype) % unit == 0;
    for (uint32_t i = 0; i < x->nterms && aligned; i++) {
        const kin_ix_term *t = &e->k->ix.terms.at[x->terms + i];
        const kin_ix_atom *atom = &e->k->ix.atoms.at[t->atom];
        int64_t step = t->coef * kin_dtype_bytes(a->dtype);
        if (atom->kind == KIN_IX_VAR && atom->of == e->k->vector_var)
            step *= e->run->lanes;
        aligned = step % unit == 0;
    }
    return aligned && unit >= 16 ? (unsigned)unit : 0;
}

/* Past the caches, which would read the memory first and then hold what nobody asks for. */
static void
mark_streaming(kin_em *e, LLVMValueRef store, unsigned align)
{
    LLVMMetadataRef one = LLVMValueAsMetadata(LLVMConstInt(LLVMInt32TypeInContext(e->context), 1, false));
    LLVMMetadataRef node = LLVMMDNodeInContext2(e->context, &one, 1);
    unsigned kind = LLVMGetMDKindIDInContext(e->context, "nontemporal", 11);
    LLVMSetMetadata(store, kind, LLVMMetadataAsValue(e->context, node));
    LLVMSetAlignment(store, align);
    e->streamed = true;
}

static void
store_run(kin_em *e, const kin_loop_action *a, LLVMValueRef v, LLVMValueRef mask)
{
    LLVMValueRef p = pointer_at(e, a->buffer, index_scalar(e, a->index, e->depth));
    if (mask) {
        LLVMTypeRef types[] = {LLVMTypeOf(v), LLVMTypeOf(p)};
        LLVMValueRef args[] = {v, p, align_const(e, a->dtype), mask};
        kin_em_intrinsic(e, "llvm.masked.store", types, 2, args, 4);
        return;
    }
    LLVMValueRef store = LLVMBuildStore(e->b, v, p);
    LLVMSetAlignment(store, kin_dtype_bytes(a->dtype));
    bool may = e->k->buffers.at[a->buffer].streams && e->run->lanes > 1 && is_vector_type(LLVMTypeOf(v));
    unsigned align = may ? alignment_of(e, a) : 0;
    if (align)
        mark_streaming(e, store, align);
}

void
kin_em_store(kin_em *e, const kin_loop_action *a, LLVMValueRef value, bool vector)
{
    need_values(e, a->index);
    place(e, e->depth);
    lane_step s = lanes_of(e, a->index);
    bool local = is_local_columns(e, a->buffer);
    vector = e->run->lanes > 1 && (local || vector || s.step || s.irregular);
    LLVMValueRef v = to_memory(e, vector ? kin_em_widen(e, value, a->dtype) : value, a->dtype);
    LLVMValueRef mask = vector && !local ? mask_for(e, 0, true) : NULL;
    if (vector && !local && (s.irregular || s.step != 1))
        store_scatter(e, a, v, mask);
    else
        store_run(e, a, v, mask);
}

/* -- arithmetic -------------------------------------------------------------------------------------------------- */

static bool
is_unsigned(unsigned dtype)
{
    return dtype == KIN_U8 || dtype == KIN_BOOL;
}

static LLVMValueRef
one_arg(kin_em *e, const char *name, LLVMValueRef a)
{
    LLVMTypeRef t = LLVMTypeOf(a);
    return kin_em_intrinsic(e, name, &t, 1, &a, 1);
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
    if (!is_float(dtype)) {
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
    LLVMTypeRef ft = LLVMTypeOf(a), t = with_element(ft, scalar_type(e, to));
    if (from == to)
        return a;
    if (to == KIN_BOOL)
        return is_float(from) ? LLVMBuildFCmp(e->b, LLVMRealUNE, a, LLVMConstNull(ft), "")
                              : LLVMBuildICmp(e->b, LLVMIntNE, a, LLVMConstNull(ft), "");
    if (is_float(to)) {
        if (is_float(from))
            a = from == KIN_F64 && to != KIN_F64 ? LLVMBuildFPTrunc(e->b, a, t, "")
                : from != KIN_F64 && to == KIN_F64 ? LLVMBuildFPExt(e->b, a, t, "") : a;
        else
            a = is_unsigned(from) ? LLVMBuildUIToFP(e->b, a, t, "") : LLVMBuildSIToFP(e->b, a, t, "");
        return is_half(to) && from != KIN_BOOL ? kin_em_round_half(e, a, to) : a;
    }
    if (is_float(from)) { /* by way of a type that holds more, as the machine's conversions have it */
        unsigned bits = kin_dtype_bytes(to) < 4 ? 32 : 8 * kin_dtype_bytes(to);
        a = LLVMBuildFPToSI(e->b, a, with_element(ft, LLVMIntTypeInContext(e->context, bits)), "");
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
    if (is_float(dtype))
        return LLVMBuildFCmp(e->b, reals[i], a, b, "");
    return LLVMBuildICmp(e->b, is_unsigned(dtype) ? unsigneds[i] : ints[i], a, b, "");
}

/* Division, remainder: a zero divisor is reported and replaced by 1; so is -1, whose overflow traps. */
static LLVMValueRef
divide_ints(kin_em *e, const kin_loop_inst *in, LLVMValueRef a, LLVMValueRef b, bool vector)
{
    LLVMTypeRef t = LLVMTypeOf(a);
    LLVMValueRef zero = LLVMBuildICmp(e->b, LLVMIntEQ, b, LLVMConstNull(t), ""), counts = mask_for(e, in->mask, vector);
    kin_em_error_if(e, counts ? LLVMBuildAnd(e->b, zero, counts, "") : zero);
    bool modulo = in->op == KIN_IR_REM || in->op == KIN_IR_FMOD;
    if (is_unsigned(in->dtype)) {
        b = LLVMBuildSelect(e->b, zero, int_like(t, 1), b, "");
        return modulo ? LLVMBuildURem(e->b, a, b, "") : LLVMBuildUDiv(e->b, a, b, "");
    }
    LLVMValueRef minus = LLVMBuildICmp(e->b, LLVMIntEQ, b, int_like(t, -1), "");
    LLVMValueRef by = LLVMBuildSelect(e->b, LLVMBuildOr(e->b, zero, minus, ""), int_like(t, 1), b, "");
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
    return LLVMBuildSelect(e->b, adjust, LLVMBuildSub(e->b, q, int_like(t, 1), ""), q, "");
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
    LLVMValueRef down = one_arg(e, "llvm.floor", div);
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
    LLVMValueRef over = LLVMBuildICmp(e->b, LLVMIntUGE, b, int_like(t, width), "");
    LLVMValueRef by = LLVMBuildSelect(e->b, over, int_like(t, width - 1), b, "");
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
    LLVMValueRef result = int_like(t, 1);
    for (unsigned bit = 0; bit < 8 * kin_dtype_bytes(in->dtype) - !is_unsigned(in->dtype); bit++) {
        LLVMValueRef set = LLVMBuildAnd(e->b, LLVMBuildLShr(e->b, b, int_like(t, bit), ""), int_like(t, 1), "");
        LLVMValueRef factor = LLVMBuildSelect(e->b, LLVMBuildICmp(e->b, LLVMIntNE, set, LLVMConstNull(t), ""), a,
                                              int_like(t, 1), "");
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
    if (is_float(dtype)) {
        LLVMValueRef up = LLVMBuildSelect(e->b, LLVMBuildFCmp(e->b, LLVMRealOGT, a, zero, ""), real_like(t, 1), zero, "");
        return LLVMBuildSelect(e->b, LLVMBuildFCmp(e->b, LLVMRealOLT, a, zero, ""), real_like(t, -1), up, "");
    }
    LLVMIntPredicate more = is_unsigned(dtype) ? LLVMIntUGT : LLVMIntSGT;
    LLVMValueRef up = LLVMBuildSelect(e->b, LLVMBuildICmp(e->b, more, a, zero, ""), int_like(t, 1), zero, "");
    if (is_unsigned(dtype))
        return up;
    return LLVMBuildSelect(e->b, LLVMBuildICmp(e->b, LLVMIntSLT, a, zero, ""), int_like(t, -1), up, "");
}

static LLVMValueRef
emit_unary(kin_em *e, const kin_loop_inst *in, LLVMValueRef a)
{
    LLVMTypeRef t = LLVMTypeOf(a);
    bool f = is_float(in->dtype);
    switch (in->op) {
    case KIN_IR_NEG: return f ? LLVMBuildFNeg(e->b, a, "") : LLVMBuildNeg(e->b, a, "");
    case KIN_IR_ABS:
        if (f)
            return one_arg(e, "llvm.fabs", a);
        if (is_unsigned(in->dtype))
            return a;
        return LLVMBuildSelect(e->b, LLVMBuildICmp(e->b, LLVMIntSLT, a, LLVMConstNull(t), ""), LLVMBuildNeg(e->b, a, ""), a, "");
    case KIN_IR_SIGN: return sign_of(e, in->dtype, a);
    case KIN_IR_SQRT: return one_arg(e, "llvm.sqrt", a);
    case KIN_IR_RSQRT: return LLVMBuildFDiv(e->b, real_like(t, 1), one_arg(e, "llvm.sqrt", a), "");
    case KIN_IR_RECIPROCAL: return LLVMBuildFDiv(e->b, real_like(t, 1), a, "");
    case KIN_IR_FLOOR: return f ? one_arg(e, "llvm.floor", a) : a;
    case KIN_IR_CEIL: return f ? one_arg(e, "llvm.ceil", a) : a;
    case KIN_IR_TRUNC: return f ? one_arg(e, "llvm.trunc", a) : a;
    case KIN_IR_ROUND: return f ? one_arg(e, "llvm.rint", a) : a;
    case KIN_IR_NOT: return LLVMBuildNot(e->b, a, "");
    default: return kin_em_math(e, in->op, in->dtype, a, NULL);
    }
}

/* With fast_math a product may go into the sum that takes it. */
static LLVMValueRef
relaxed(const kin_em *e, LLVMValueRef v)
{
    if (e->k->fast_math && LLVMIsAInstruction(v) != NULL && LLVMCanValueUseFastMathFlags(v))
        LLVMSetFastMathFlags(v, LLVMFastMathAllowContract);
    return v;
}

static LLVMValueRef
emit_binary(kin_em *e, const kin_loop_inst *in, LLVMValueRef a, LLVMValueRef b, bool vector)
{
    LLVMTypeRef t = LLVMTypeOf(a);
    bool f = is_float(in->dtype), boolean = in->dtype == KIN_BOOL;
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
        e->memo[n] = is_half(in->dtype) ? kin_em_round_half(e, other, in->dtype) : other;
        e->memo_level[n] = (uint8_t)level_of(e, e->deps[n]);
    }
    return v && is_half(in->dtype) ? kin_em_round_half(e, v, in->dtype) : v;
}

static LLVMValueRef
emit_op(kin_em *e, const kin_loop_inst *in, bool vector)
{
    LLVMValueRef args[3] = {0};
    unsigned n = 0, dtype = e->k->insts.at[in->args[0]].dtype;
    for (; n < 3 && in->args[n]; n++) {
        args[n] = e->memo[in->args[n]];
        if (vector)
            args[n] = kin_em_widen(e, args[n], e->k->insts.at[in->args[n]].dtype);
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
    return v && is_half(in->dtype) && !is_exact(in->op) ? kin_em_round_half(e, v, in->dtype) : v;
}

/* a with b taken in, for accumulators. */
LLVMValueRef
kin_em_combine(kin_em *e, unsigned op, unsigned dtype, LLVMValueRef a, LLVMValueRef b)
{
    bool f = is_float(dtype);
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

static LLVMValueRef
emit_check(kin_em *e, const kin_loop_inst *in, bool vector)
{
    LLVMValueRef v = e->memo[in->args[0]];
    if (vector)
        v = kin_em_widen(e, v, KIN_I64);
    LLVMValueRef bad = LLVMBuildICmp(e->b, LLVMIntUGE, v, int_like(LLVMTypeOf(v), in->value.i), "");
    LLVMValueRef counts = mask_for(e, in->mask, vector);
    kin_em_error_if(e, counts ? LLVMBuildAnd(e->b, bad, counts, "") : bad);
    return LLVMBuildSelect(e->b, bad, LLVMConstNull(LLVMTypeOf(v)), v, "");
}

static LLVMValueRef
emit_inst(kin_em *e, uint32_t n, bool vector, unsigned level)
{
    const kin_loop_inst *in = &e->k->insts.at[n];
    switch ((kin_loop_inst_kind)in->kind) {
    case KIN_LI_CONST: return kin_em_const_like(e, kin_em_type(e, in->dtype, false), in->dtype, in->value);
    case KIN_LI_INDEX: return vector ? index_vector(e, in->index, level) : index_scalar(e, in->index, level);
    case KIN_LI_LOAD: return emit_load(e, in, vector, level);
    case KIN_LI_CHECK: return emit_check(e, in, vector);
    case KIN_LI_ACC:
        if (e->accs[in->buffer] == NULL)
            kin_em_fail(e, "accumulator used before its phase");
        else
            return vector ? kin_em_widen(e, e->accs[in->buffer], in->dtype) : e->accs[in->buffer];
        return LLVMGetPoison(kin_em_type(e, in->dtype, vector));
    case KIN_LI_OP: return emit_op(e, in, vector);
    case KIN_LI_NONE: break;
    }
    kin_em_fail(e, "no such instruction");
    return LLVMGetPoison(kin_em_type(e, in->dtype, vector));
}

LLVMValueRef
kin_em_value(kin_em *e, uint32_t n)
{
    if (e->memo[n])
        return e->memo[n];
    const kin_loop_inst *in = &e->k->insts.at[n];
    for (int a = 0; a < 3; a++)
        if (in->args[a])
            (void)kin_em_value(e, in->args[a]);
    if (in->mask)
        (void)kin_em_value(e, in->mask);
    if (in->kind == KIN_LI_INDEX || in->kind == KIN_LI_LOAD)
        need_values(e, in->index);
    unsigned level = level_of(e, e->deps[n]);
    place(e, level);
    LLVMValueRef v = emit_inst(e, n, kin_em_is_vector(e, n), level);
    if (v == NULL) {
        kin_em_fail(e, kin_ir_op_name(in->op));
        v = LLVMGetPoison(kin_em_type(e, in->dtype, kin_em_is_vector(e, n)));
    }
    e->memo_level[n] = (uint8_t)level;
    return e->memo[n] = v;
}

#endif
