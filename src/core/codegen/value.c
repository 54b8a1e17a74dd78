/* Emits instructions: constants, indices, loads and stores in every form an index can take; arithmetic.c has the rest. A value is a scalar if it is the
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

bool
kin_em_is_open(const kin_em *e, uint32_t number)
{
    return number != KIN_NUMBER_NONE && e->loaded[number - 1] != NULL;
}

LLVMValueRef
kin_em_number(const kin_em *e, uint32_t number, int64_t fixed)
{
    if (kin_em_is_open(e, number))
        return e->loaded[number - 1];
    return LLVMConstInt(LLVMInt64TypeInContext(e->context), (unsigned long long)fixed, true);
}

uint32_t
kin_em_size_of(const kin_em *e, uint32_t var)
{
    return e->open->open == NULL ? KIN_NUMBER_NONE : e->open->numbers->of_var[var];
}

/* -- types ------------------------------------------------------------------------------------------------------- */

bool
kin_em_is_half(unsigned dtype)
{
    return dtype == KIN_F16 || dtype == KIN_BF16;
}

LLVMTypeRef
kin_em_scalar_type(const kin_em *e, unsigned dtype)
{
    if (dtype == KIN_BOOL)
        return LLVMInt1TypeInContext(e->context);
    if (dtype == KIN_F64)
        return LLVMDoubleTypeInContext(e->context);
    if (kin_dtype_is_float(dtype))
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
    LLVMTypeRef t = kin_em_scalar_type(e, dtype);
    return vector ? widen_type(e, t) : t;
}

static LLVMTypeRef
memory_type(const kin_em *e, unsigned dtype, bool vector)
{
    LLVMTypeRef t = dtype == KIN_BOOL || kin_em_is_half(dtype) ? LLVMIntTypeInContext(e->context, 8 * kin_dtype_bytes(dtype))
                                                        : kin_em_scalar_type(e, dtype);
    return vector ? widen_type(e, t) : t;
}

static bool
is_vector_type(LLVMTypeRef t)
{
    return LLVMGetTypeKind(t) == LLVMVectorTypeKind;
}

LLVMTypeRef
kin_em_with_element(LLVMTypeRef shape, LLVMTypeRef element)
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
kin_em_const_like(LLVMTypeRef type, unsigned dtype, kin_scalar value)
{
    LLVMTypeRef t = element_of(type);
    return splat(type, kin_dtype_is_float(dtype) ? LLVMConstReal(t, value.f) : LLVMConstInt(t, (unsigned long long)value.i, true));
}

LLVMValueRef
kin_em_int_like(LLVMTypeRef type, int64_t v)
{
    return splat(type, LLVMConstInt(element_of(type), (unsigned long long)v, true));
}

LLVMValueRef
kin_em_widen(kin_em *e, LLVMValueRef v)
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

unsigned
kin_em_level_of(const kin_em *e, uint64_t deps)
{
    for (unsigned i = e->ninner; i > 0; i--)
        if (deps >> e->inner[i - 1] & 1)
            return i;
    return 0;
}

bool
kin_em_is_vector(const kin_em *e, uint32_t inst)
{
    return kin_em_deps_vector(e, e->deps[inst]);
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
LLVMValueRef
kin_em_mask_for(kin_em *e, uint32_t mask, bool vector)
{
    LLVMValueRef m = mask ? e->memo[mask] : NULL;
    if (!vector)
        return m ? any_lane(e, m) : NULL;
    if (m)
        m = kin_em_widen(e, m);
    if (e->lanes == NULL || e->run->lanes == 1)
        return m;
    return m ? LLVMBuildAnd(e->b, m, e->lanes, "") : e->lanes;
}

/* Stored to the first place or to the second, which nobody reads: taking the earlier answer in would make every step wait for the one before it. */
void
kin_em_error_if(kin_em *e, LLVMValueRef condition)
{
    LLVMTypeRef i32 = LLVMInt32TypeInContext(e->context);
    LLVMValueRef fine = LLVMBuildZExt(e->b, LLVMBuildNot(e->b, any_lane(e, condition), ""), i32, "");
    LLVMBuildStore(e->b, LLVMConstInt(i32, 1, false), LLVMBuildGEP2(e->b, i32, e->error, &fine, 1, ""));
}

/* -- memory ------------------------------------------------------------------------------------------------------ */

static LLVMValueRef
from_memory(kin_em *e, LLVMValueRef v, unsigned dtype)
{
    LLVMTypeRef t = LLVMTypeOf(v), i32 = kin_em_with_element(t, LLVMInt32TypeInContext(e->context));
    LLVMTypeRef f32 = kin_em_with_element(t, LLVMFloatTypeInContext(e->context));
    switch (dtype) {
    case KIN_BOOL: return LLVMBuildICmp(e->b, LLVMIntNE, v, LLVMConstNull(t), "");
    case KIN_BF16:
        v = LLVMBuildShl(e->b, LLVMBuildZExt(e->b, v, i32, ""), kin_em_int_like(i32, 16), "");
        return LLVMBuildBitCast(e->b, v, f32, "");
    case KIN_F16:
        v = LLVMBuildBitCast(e->b, v, kin_em_with_element(t, LLVMHalfTypeInContext(e->context)), "");
        return LLVMBuildFPExt(e->b, v, f32, "");
    default: return v;
    }
}

static LLVMValueRef
to_memory(kin_em *e, LLVMValueRef v, unsigned dtype)
{
    LLVMTypeRef t = LLVMTypeOf(v), i32 = kin_em_with_element(t, LLVMInt32TypeInContext(e->context));
    LLVMTypeRef i16 = kin_em_with_element(t, LLVMInt16TypeInContext(e->context));
    switch (dtype) {
    case KIN_BOOL: return LLVMBuildZExt(e->b, v, kin_em_with_element(t, LLVMInt8TypeInContext(e->context)), "");
    case KIN_BF16:
        v = LLVMBuildLShr(e->b, LLVMBuildBitCast(e->b, v, i32, ""), kin_em_int_like(i32, 16), "");
        return LLVMBuildTrunc(e->b, v, i16, "");
    case KIN_F16:
        v = LLVMBuildFPTrunc(e->b, v, kin_em_with_element(t, LLVMHalfTypeInContext(e->context)), "");
        return LLVMBuildBitCast(e->b, v, i16, "");
    default: return v;
    }
}

/* Float to the nearest that the half dtype holds, still as a float. */
LLVMValueRef
kin_em_round_half(kin_em *e, LLVMValueRef v, unsigned dtype)
{
    LLVMTypeRef t = LLVMTypeOf(v), i32 = kin_em_with_element(t, LLVMInt32TypeInContext(e->context));
    if (dtype == KIN_F16) {
        LLVMValueRef half = LLVMBuildFPTrunc(e->b, v, kin_em_with_element(t, LLVMHalfTypeInContext(e->context)), "");
        return LLVMBuildFPExt(e->b, half, t, "");
    }
    LLVMValueRef bits = LLVMBuildBitCast(e->b, v, i32, "");
    LLVMValueRef odd = LLVMBuildAnd(e->b, LLVMBuildLShr(e->b, bits, kin_em_int_like(i32, 16), ""), kin_em_int_like(i32, 1), "");
    bits = LLVMBuildAdd(e->b, bits, LLVMBuildAdd(e->b, odd, kin_em_int_like(i32, 0x7fff), ""), "");
    bits = LLVMBuildAnd(e->b, bits, kin_em_int_like(i32, (int32_t)0xffff0000), "");
    LLVMValueRef nan = LLVMBuildFCmp(e->b, LLVMRealUNO, v, v, "");
    return LLVMBuildBitCast(e->b, LLVMBuildSelect(e->b, nan, kin_em_int_like(i32, 0x7fc00000), bits, ""), t, "");
}

static LLVMValueRef
align_const(const kin_em *e, unsigned dtype)
{
    return LLVMConstInt(LLVMInt32TypeInContext(e->context), kin_dtype_bytes(dtype), false);
}

/* Where nothing may be read, some other place is. */
static LLVMValueRef
load_one(kin_em *e, unsigned dtype, LLVMValueRef p, LLVMValueRef mask)
{
    if (mask) {
        LLVMTypeRef i64 = LLVMInt64TypeInContext(e->context);
        LLVMValueRef other = kin_em_alloca(e, LLVMArrayType2(i64, 2), 16);
        LLVMBuildStore(e->b, LLVMConstNull(LLVMArrayType2(i64, 2)), other);
        p = LLVMBuildSelect(e->b, mask, p, other, "");
    }
    LLVMValueRef v = LLVMBuildLoad2(e->b, memory_type(e, dtype, false), p, "");
    LLVMSetAlignment(v, kin_dtype_bytes(dtype));
    return v;
}

/* A processor takes hundreds of cycles where no lane counts and the address is not in memory, as beside a tensor that is padded: the buffer's first
 * element is read then. */
static LLVMValueRef
load_lanes(kin_em *e, uint32_t buffer, unsigned dtype, LLVMValueRef p, LLVMValueRef mask)
{
    LLVMTypeRef t = memory_type(e, dtype, true);
    p = LLVMBuildSelect(e->b, any_lane(e, mask), p, e->bases[buffer], "");
    LLVMTypeRef types[] = {t, LLVMTypeOf(p)};
    LLVMValueRef args[] = {p, align_const(e, dtype), mask, LLVMConstNull(t)};
    return kin_em_intrinsic(e, "llvm.masked.load", types, 2, args, 4);
}

static LLVMValueRef
load_run(kin_em *e, uint32_t buffer, unsigned dtype, LLVMValueRef p, LLVMValueRef mask)
{
    LLVMTypeRef t = memory_type(e, dtype, true);
    if (mask)
        return load_lanes(e, buffer, dtype, p, mask);
    LLVMValueRef v = LLVMBuildLoad2(e->b, t, p, "");
    LLVMSetAlignment(v, kin_dtype_bytes(dtype));
    return v;
}

static LLVMValueRef
all_lanes(const kin_em *e)
{
    return kin_em_int_like(kin_em_type(e, KIN_BOOL, true), 1);
}

static LLVMValueRef
load_gather(kin_em *e, uint32_t buffer, unsigned dtype, LLVMValueRef indices, LLVMValueRef mask)
{
    LLVMTypeRef t = memory_type(e, dtype, true);
    LLVMValueRef p = kin_em_pointers_at(e, buffer, indices);
    LLVMTypeRef types[] = {t, LLVMTypeOf(p)};
    LLVMValueRef args[] = {p, align_const(e, dtype), mask ? mask : all_lanes(e), LLVMConstNull(t)};
    return kin_em_intrinsic(e, "llvm.masked.gather", types, 2, args, 4);
}

/* -- from the end to the start ----------------------------------------------------------------------------------- */

static bool
is_backwards(const kin_em *e, kin_lane_step s)
{
    return !s.irregular && s.step == -1 && !kin_em_is_open(e, s.number);
}

static LLVMValueRef
turn_lanes(kin_em *e, LLVMValueRef v)
{
    LLVMTypeRef i32 = LLVMInt32TypeInContext(e->context);
    LLVMValueRef lanes[KIN_EMIT_MAX_LANES];
    for (unsigned i = 0; i < e->run->lanes; i++)
        lanes[i] = LLVMConstInt(i32, e->run->lanes - 1 - i, false);
    return LLVMBuildShuffleVector(e->b, v, LLVMGetPoison(LLVMTypeOf(v)), LLVMConstVector(lanes, e->run->lanes), "");
}

/* p: of the last lane, the first one in memory. */
static LLVMValueRef
load_backwards(kin_em *e, uint32_t buffer, unsigned dtype, LLVMValueRef p, LLVMValueRef mask)
{
    return turn_lanes(e, load_run(e, buffer, dtype, p, mask ? turn_lanes(e, mask) : NULL));
}

/* -- every other element -------------------------------------------------------------------------------------------
 * Two vectors next to each other with every second lane masked cost a tenth of what a gather or a scatter does. */

static bool
is_every_other(const kin_em *e, kin_lane_step s, unsigned dtype)
{
    return !s.irregular && s.step == 2 && kin_dtype_bytes(dtype) >= 4 && e->target->vector_bytes == 64 && e->run->lanes >= 4 && e->run->lanes <= 32;
}

/* Lanes of two vectors, the second one's numbered after the first one's. */
static LLVMValueRef
choose_lanes(kin_em *e, LLVMValueRef a, LLVMValueRef b, const unsigned *which)
{
    LLVMTypeRef i32 = LLVMInt32TypeInContext(e->context);
    LLVMValueRef lanes[32];
    for (unsigned i = 0; i < e->run->lanes; i++)
        lanes[i] = LLVMConstInt(i32, which[i], false);
    return LLVMBuildShuffleVector(e->b, a, b, LLVMConstVector(lanes, e->run->lanes), "");
}

/* Half `h` of the lanes, each in front of one of `rest`. */
static LLVMValueRef
spread_half(kin_em *e, LLVMValueRef v, LLVMValueRef rest, unsigned h)
{
    unsigned which[32], n = e->run->lanes;
    for (unsigned i = 0; i < n; i++)
        which[i] = i % 2 == 0 ? h * n / 2 + i / 2 : n;
    return choose_lanes(e, v, rest, which);
}

static LLVMValueRef
half_mask(kin_em *e, LLVMValueRef mask, unsigned h)
{
    LLVMValueRef all = mask ? mask : all_lanes(e);
    return spread_half(e, all, LLVMConstNull(LLVMTypeOf(all)), h);
}

static LLVMValueRef
load_every_other(kin_em *e, const kin_loop_inst *in, unsigned level, LLVMValueRef mask)
{
    LLVMValueRef halves[2];
    unsigned which[32];
    for (unsigned h = 0; h < 2; h++)
        halves[h] = load_lanes(e, in->buffer, in->dtype, kin_em_pointer_at(e, in->buffer, in->index, level, h * e->run->lanes), half_mask(e, mask, h));
    for (unsigned i = 0; i < e->run->lanes; i++)
        which[i] = 2 * i;
    return choose_lanes(e, halves[0], halves[1], which);
}

static void
store_every_other(kin_em *e, const kin_loop_action *a, LLVMValueRef v, LLVMValueRef mask)
{
    for (unsigned h = 0; h < 2; h++) {
        LLVMValueRef p = kin_em_pointer_at(e, a->buffer, a->index, e->depth, h * e->run->lanes);
        LLVMTypeRef types[] = {LLVMTypeOf(v), LLVMTypeOf(p)};
        LLVMValueRef args[] = {spread_half(e, v, LLVMGetPoison(LLVMTypeOf(v)), h), p, align_const(e, a->dtype), half_mask(e, mask, h)};
        kin_em_intrinsic(e, "llvm.masked.store", types, 2, args, 4);
    }
}

static bool
is_local_columns(const kin_em *e, uint32_t buffer)
{
    return e->k->buffers.at[buffer].local && e->run->kind == KIN_RUN_COLUMNS;
}

static LLVMValueRef
emit_load(kin_em *e, const kin_loop_inst *in, bool vector, unsigned level)
{
    kin_lane_step s = kin_em_lanes_of(e, in->index);
    bool run = vector && !s.irregular && s.step == 1;
    if (is_local_columns(e, in->buffer))
        return from_memory(e, load_run(e, in->buffer, in->dtype, kin_em_pointer_at(e, in->buffer, in->index, level, 0), NULL), in->dtype);
    LLVMValueRef v;
    if (vector && is_every_other(e, s, in->dtype)) {
        v = load_every_other(e, in, level, kin_em_mask_for(e, in->mask, true));
    } else if (vector && is_backwards(e, s)) {
        LLVMValueRef p = kin_em_pointer_at(e, in->buffer, in->index, level, 1 - (int64_t)e->run->lanes);
        v = load_backwards(e, in->buffer, in->dtype, p, kin_em_mask_for(e, in->mask, true));
    } else if (vector && (s.irregular || (s.step != 0 && s.step != 1))) {
        LLVMValueRef indices = kin_em_index_vector(e, in->index, level);
        v = load_gather(e, in->buffer, in->dtype, indices, kin_em_mask_for(e, in->mask, true));
    } else {
        LLVMValueRef p = kin_em_pointer_at(e, in->buffer, in->index, level, 0);
        LLVMValueRef mask = kin_em_mask_for(e, in->mask, run);
        v = run ? load_run(e, in->buffer, in->dtype, p, mask) : load_one(e, in->dtype, p, mask);
    }
    v = from_memory(e, v, in->dtype);
    return vector ? kin_em_widen(e, v) : v;
}

LLVMValueRef
kin_em_load_for_update(kin_em *e, const kin_loop_action *a, bool vector)
{
    kin_loop_inst in = {.kind = KIN_LI_LOAD, .dtype = a->dtype, .buffer = a->buffer, .index = a->index};
    kin_em_need_values(e, a->index);
    kin_em_place(e, e->depth);
    return emit_load(e, &in, vector, e->depth);
}

static void
store_scatter(kin_em *e, const kin_loop_action *a, LLVMValueRef v, LLVMValueRef mask)
{
    LLVMValueRef p = kin_em_pointers_at(e, a->buffer, kin_em_index_vector(e, a->index, e->depth));
    LLVMTypeRef types[] = {LLVMTypeOf(v), LLVMTypeOf(p)};
    LLVMValueRef args[] = {v, p, align_const(e, a->dtype), mask ? mask : all_lanes(e)};
    kin_em_intrinsic(e, "llvm.masked.scatter", types, 2, args, 4);
}

/* What every vector that is stored is a multiple of, at most 64; the base is a multiple of 64. 0: of nothing useful. */
static unsigned
alignment_of(const kin_em *e, const kin_loop_action *a)
{
    int64_t bytes = (int64_t)e->run->lanes * kin_dtype_bytes(a->dtype), wanted = bytes < 64 ? bytes : 64;
    const kin_ix_expr *x = kin_ix_at(&e->k->ix, a->index);
    bool aligned = x->constant * kin_dtype_bytes(a->dtype) % wanted == 0 && !kin_em_is_open(e, NUMBER_OF(e, of_expr, a->index));
    for (uint32_t i = 0; i < x->nterms && aligned; i++) {
        const kin_ix_term *t = &e->k->ix.terms.at[x->terms + i];
        const kin_ix_atom *atom = &e->k->ix.atoms.at[t->atom];
        int64_t step = t->coef * kin_dtype_bytes(a->dtype);
        if (atom->kind == KIN_IX_VAR && atom->of == e->k->vector_var)
            step *= e->run->lanes;
        aligned = step % wanted == 0 && !kin_em_is_open(e, NUMBER_OF(e, of_term, x->terms + i));
    }
    return aligned && wanted >= 16 ? (unsigned)wanted : 0;
}

/* Past the caches: they would first read the memory, then hold data that is not read again. */
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
    LLVMValueRef p = kin_em_pointer_at(e, a->buffer, a->index, e->depth, 0);
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
    kin_em_need_values(e, a->index);
    kin_em_place(e, e->depth);
    kin_lane_step s = kin_em_lanes_of(e, a->index);
    bool local = is_local_columns(e, a->buffer);
    vector = e->run->lanes > 1 && (local || vector || s.step || s.irregular);
    LLVMValueRef v = to_memory(e, vector ? kin_em_widen(e, value) : value, a->dtype);
    LLVMValueRef mask = vector && !local ? kin_em_mask_for(e, 0, true) : NULL;
    if (vector && !local && is_every_other(e, s, a->dtype))
        store_every_other(e, a, v, mask);
    else if (vector && !local && (s.irregular || s.step != 1))
        store_scatter(e, a, v, mask);
    else
        store_run(e, a, v, mask);
}

/* -- instructions ------------------------------------------------------------------------------------------------ */

static LLVMValueRef
emit_check(kin_em *e, const kin_loop_inst *in, bool vector)
{
    LLVMValueRef v = e->memo[in->args[0]];
    if (vector)
        v = kin_em_widen(e, v);
    LLVMValueRef limit = kin_em_number(e, NUMBER_OF(e, of_inst, in - e->k->insts.at), in->value.i);
    LLVMValueRef bad = LLVMBuildICmp(e->b, LLVMIntUGE, v, vector ? kin_em_widen(e, limit) : limit, "");
    LLVMValueRef counts = kin_em_mask_for(e, in->mask, vector);
    kin_em_error_if(e, counts ? LLVMBuildAnd(e->b, bad, counts, "") : bad);
    return LLVMBuildSelect(e->b, bad, LLVMConstNull(LLVMTypeOf(v)), v, "");
}

static LLVMValueRef
emit_const(kin_em *e, const kin_loop_inst *in, uint32_t number)
{
    LLVMTypeRef t = kin_em_type(e, in->dtype, false), real = LLVMDoubleTypeInContext(e->context);
    if (!kin_em_is_open(e, number))
        return kin_em_const_like(t, in->dtype, in->value);
    LLVMValueRef bits = kin_em_number(e, number, 0);
    if (!kin_dtype_is_float(in->dtype))
        return in->dtype == KIN_I64 ? bits : LLVMBuildTrunc(e->b, bits, t, "");
    LLVMValueRef v = LLVMBuildBitCast(e->b, bits, real, "");
    return t == real ? v : LLVMBuildFPTrunc(e->b, v, t, "");
}

static LLVMValueRef
emit_inst(kin_em *e, uint32_t n, bool vector, unsigned level)
{
    const kin_loop_inst *in = &e->k->insts.at[n];
    switch ((kin_loop_inst_kind)in->kind) {
    case KIN_LI_CONST: return emit_const(e, in, NUMBER_OF(e, of_inst, n));
    case KIN_LI_INDEX: return vector ? kin_em_index_vector(e, in->index, level) : kin_em_index_scalar(e, in->index, level);
    case KIN_LI_LOAD: return emit_load(e, in, vector, level);
    case KIN_LI_CHECK: return emit_check(e, in, vector);
    case KIN_LI_ACC:
        if (e->accs[in->buffer] == NULL)
            kin_em_fail(e, "accumulator used before its phase");
        else
            return vector ? kin_em_widen(e, e->accs[in->buffer]) : e->accs[in->buffer];
        return LLVMGetPoison(kin_em_type(e, in->dtype, vector));
    case KIN_LI_OP: return kin_em_op(e, in, vector);
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
        kin_em_need_values(e, in->index);
    unsigned level = kin_em_level_of(e, e->deps[n]);
    kin_em_place(e, level);
    LLVMValueRef v = emit_inst(e, n, kin_em_is_vector(e, n), level);
    if (v == NULL) {
        kin_em_fail(e, kin_ir_op_name(in->op));
        v = LLVMGetPoison(kin_em_type(e, in->dtype, kin_em_is_vector(e, n)));
    }
    e->memo_level[n] = (uint8_t)level;
    return e->memo[n] = v;
}

#endif
