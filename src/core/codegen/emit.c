/* Emits the loops of a kernel: the range given by the caller, phases, inner loops with their accumulators, and the vector loop
 * with a masked last step. value.c emits an instruction when an action needs it.
 */
#include "core/codegen/emit.h"
#include "core/codegen/target.h"

#include <stdio.h>

#ifdef KIN_LLVM

/* -- actions ----------------------------------------------------------------------------------------------------- */

static void
run_scan(kin_em *e, const kin_loop_action *a)
{
    kin_em_reduce(e, a);
    kin_em_store(e, a, kin_em_scanned(e, a), kin_em_state_is_vector(e, a));
}

static void
run_update(kin_em *e, const kin_loop_action *a)
{
    static const unsigned ops[] = {0, KIN_IR_REDUCE_SUM, KIN_IR_REDUCE_PROD, KIN_IR_REDUCE_MAX, KIN_IR_REDUCE_MIN};
    LLVMValueRef v = kin_em_value(e, a->value);
    bool vector = e->run->lanes > 1;
    LLVMPositionBuilderAtEnd(e->b, e->here);
    if (vector)
        v = kin_em_widen(e, v);
    if (a->op != KIN_IR_SCATTER_SET) {
        LLVMValueRef old = kin_em_load_for_update(e, a, vector);
        if (a->dtype == KIN_BOOL)
            v = a->op == KIN_IR_SCATTER_ADD || a->op == KIN_IR_SCATTER_MAX ? LLVMBuildOr(e->b, old, v, "")
                                                                           : LLVMBuildAnd(e->b, old, v, "");
        else
            v = kin_em_combine(e, ops[a->op], a->dtype, old, v);
        if (a->dtype == KIN_F16 || a->dtype == KIN_BF16)
            v = kin_em_round_half(e, v, a->dtype);
    }
    kin_em_store(e, a, v, vector);
}

static void
run_action(kin_em *e, const kin_loop_action *a)
{
    switch ((kin_loop_action_kind)a->kind) {
    case KIN_LA_STORE: {
        LLVMValueRef v = kin_em_value(e, a->value);
        kin_em_store(e, a, v, kin_em_is_vector(e, a->value));
        break;
    }
    case KIN_LA_REDUCE: kin_em_reduce(e, a); break;
    case KIN_LA_SCAN: run_scan(e, a); break;
    case KIN_LA_UPDATE: run_update(e, a); break;
    }
}

static void
run_phase_actions(kin_em *e, uint32_t phase)
{
    for (uint32_t i = 0; i < e->k->actions.len; i++)
        if (e->k->actions.at[i].phase == phase && !e->k->actions.at[i].row)
            run_action(e, &e->k->actions.at[i]);
}

/* -- loops ------------------------------------------------------------------------------------------------------- */

static void
forget(kin_em *e, unsigned level)
{
    for (uint32_t i = 1; i < e->k->insts.len; i++)
        if (e->memo[i] && e->memo_level[i] >= level)
            e->memo[i] = NULL;
}

static LLVMBasicBlockRef
new_block(kin_em *e)
{
    return LLVMAppendBasicBlockInContext(e->context, e->fn, "");
}

static LLVMTypeRef
i64(const kin_em *e)
{
    return LLVMInt64TypeInContext(e->context);
}

static LLVMValueRef
int_of(const kin_em *e, int64_t v)
{
    return LLVMConstInt(i64(e), (unsigned long long)v, true);
}

static LLVMValueRef
start_phi(kin_em *e, LLVMValueRef first, LLVMBasicBlockRef from)
{
    LLVMValueRef phi = LLVMBuildPhi(e->b, LLVMTypeOf(first), "");
    LLVMAddIncoming(phi, &first, &from, 1);
    return phi;
}

typedef struct {
    LLVMBasicBlockRef body;
    LLVMValueRef i;
    kin_emit_state *phis; /* by accumulator */
} loop;

/* Body, counter and phis of a loop that runs at least once. */
static bool
begin_loop(kin_em *e, loop *l, LLVMValueRef first)
{
    LLVMBasicBlockRef from = e->here;
    l->phis = calloc(e->k->naccs + 1, sizeof *l->phis);
    if (l->phis == NULL) {
        kin_em_fail(e, "memory");
        return false;
    }
    l->body = new_block(e);
    LLVMPositionBuilderAtEnd(e->b, from);
    LLVMBuildBr(e->b, l->body);
    e->here = l->body;
    LLVMPositionBuilderAtEnd(e->b, l->body);
    l->i = start_phi(e, first, from);
    for (uint32_t a = 0; a < e->k->naccs; a++) {
        if (e->states[a].value)
            e->states[a].value = l->phis[a].value = start_phi(e, e->states[a].value, from);
        if (e->states[a].position)
            e->states[a].position = l->phis[a].position = start_phi(e, e->states[a].position, from);
    }
    return true;
}

/* Goes round while i + step < end. */
static void
end_loop(kin_em *e, loop *l, int64_t step, LLVMValueRef end)
{
    LLVMBasicBlockRef last = e->here, after = new_block(e);
    LLVMPositionBuilderAtEnd(e->b, last);
    LLVMValueRef next = LLVMBuildAdd(e->b, l->i, int_of(e, step), "");
    LLVMBuildCondBr(e->b, LLVMBuildICmp(e->b, LLVMIntSLT, next, end, ""), l->body, after);
    LLVMAddIncoming(l->i, &next, &last, 1);
    for (uint32_t a = 0; a < e->k->naccs; a++) {
        if (l->phis[a].value)
            LLVMAddIncoming(l->phis[a].value, &e->states[a].value, &last, 1);
        if (l->phis[a].position)
            LLVMAddIncoming(l->phis[a].position, &e->states[a].position, &last, 1);
    }
    free(l->phis);
    e->here = after;
    LLVMPositionBuilderAtEnd(e->b, after);
}

/* A loop whose body runs at least once; the counter is var's value. Opens level depth + 1. */
static bool
open_loop(kin_em *e, loop *l, LLVMValueRef first)
{
    LLVMBasicBlockRef from = e->here;
    if (!begin_loop(e, l, first))
        return false;
    e->before[++e->depth] = from;
    return true;
}

static void
close_loop(kin_em *e, loop *l, int64_t step, LLVMValueRef end)
{
    end_loop(e, l, step, end);
    forget(e, e->depth);
    e->depth--;
}

static LLVMValueRef
first_lanes(kin_em *e, int64_t n)
{
    LLVMValueRef lanes[KIN_EMIT_MAX_LANES];
    for (unsigned i = 0; i < e->run->lanes; i++)
        lanes[i] = LLVMConstInt(LLVMInt1TypeInContext(e->context), i < n, false);
    return LLVMConstVector(lanes, e->run->lanes);
}

/* One step of the vector's loop with only some lanes; a level of its own, in front of which is a block that can take what
 * does not depend on it. */
static void
masked_step(kin_em *e, uint32_t phase, uint32_t var, LLVMValueRef at, LLVMValueRef lanes)
{
    LLVMBasicBlockRef body = new_block(e);
    LLVMPositionBuilderAtEnd(e->b, e->here);
    LLVMBuildBr(e->b, body);
    e->before[++e->depth] = e->here;
    e->here = body;
    e->vars[var] = at;
    e->lanes = lanes;
    run_phase_actions(e, phase);
    e->lanes = NULL;
    forget(e, e->depth);
    e->depth--;
}

/* [begin, end) may be empty. */
static LLVMBasicBlockRef
enter_if(kin_em *e, LLVMValueRef condition)
{
    LLVMBasicBlockRef then = new_block(e), after = new_block(e);
    LLVMBuildCondBr(e->b, condition, then, after);
    e->here = then;
    LLVMPositionBuilderAtEnd(e->b, then);
    return after;
}

static void
leave_to(kin_em *e, LLVMBasicBlockRef after)
{
    LLVMPositionBuilderAtEnd(e->b, e->here);
    LLVMBuildBr(e->b, after);
    e->here = after;
    LLVMPositionBuilderAtEnd(e->b, after);
}

/* Lanes in front of `n` (I64), more or fewer than there are. */
static LLVMValueRef
lanes_before(kin_em *e, LLVMValueRef n)
{
    LLVMTypeRef i32 = LLVMInt32TypeInContext(e->context);
    LLVMValueRef numbers[KIN_EMIT_MAX_LANES];
    for (unsigned i = 0; i < e->run->lanes; i++)
        numbers[i] = LLVMConstInt(i32, i, false);
    LLVMValueRef left = kin_em_widen(e, LLVMBuildTrunc(e->b, n, i32, ""));
    return LLVMBuildICmp(e->b, LLVMIntSLT, LLVMConstVector(numbers, e->run->lanes), left, "");
}

/* A conditional part of a phase: accumulators are afterwards what they were before, or what the part made of them. */
typedef struct {
    LLVMBasicBlockRef after, skipped;
    kin_emit_state *before;
} optional;

static bool
open_part(kin_em *e, optional *p, LLVMValueRef condition)
{
    p->before = malloc((e->k->naccs + 1) * sizeof *p->before);
    if (p->before == NULL) {
        kin_em_fail(e, "memory");
        return false;
    }
    memcpy(p->before, e->states, e->k->naccs * sizeof *p->before);
    p->skipped = e->here;
    LLVMPositionBuilderAtEnd(e->b, e->here);
    p->after = enter_if(e, condition);
    return true;
}

static LLVMValueRef
either(kin_em *e, const optional *p, LLVMValueRef before, LLVMValueRef now, LLVMBasicBlockRef last)
{
    if (before == now)
        return now;
    LLVMValueRef phi = start_phi(e, before, p->skipped);
    LLVMAddIncoming(phi, &now, &last, 1);
    return phi;
}

/* What was computed in the part is not there behind it. */
static void
close_part(kin_em *e, optional *p)
{
    LLVMBasicBlockRef last = e->here;
    leave_to(e, p->after);
    for (uint32_t a = 0; a < e->k->naccs; a++) {
        if (p->before[a].value)
            e->states[a].value = either(e, p, p->before[a].value, e->states[a].value, last);
        if (p->before[a].position)
            e->states[a].position = either(e, p, p->before[a].position, e->states[a].position, last);
    }
    free(p->before);
    forget(e, e->depth);
}

/* -- long sums ----------------------------------------------------------------------------------------------------- */

/* Each number added to a sum of floats costs it up to half a unit in the last place of what is there already. So what MOST_ADDED steps have added is put aside, and the
 * next ones begin at zero: the error grows with the number of blocks, as that of PyTorch's cascades does. Where there are many blocks, so it goes with them. */
enum { MOST_ADDED = 64 };

static bool
is_float_sum(const kin_em *e, const kin_loop_action *a, uint32_t phase)
{
    return a->phase == phase && a->kind == KIN_LA_REDUCE && a->op == KIN_IR_REDUCE_SUM && kin_dtype_is_float(e->k->insts.at[a->value].dtype);
}

static bool
sums_floats(const kin_em *e, uint32_t phase)
{
    for (uint32_t i = 0; i < e->k->actions.len; i++)
        if (is_float_sum(e, &e->k->actions.at[i], phase))
            return true;
    return false;
}

/* Steps of an inner loop that are known when code is made; 0: they are not. */
static int64_t
known_steps(const kin_em *e, unsigned from)
{
    uint32_t var = e->inner[from];
    int64_t size = e->k->vars.at[var].size, lanes = var == e->k->vector_var ? e->run->lanes : 1;
    return kin_em_is_open(e, kin_em_size_of(e, var)) ? 0 : (size + lanes - 1) / lanes;
}

/* Steps of a block of this loop; 0: it is not divided, being short, or as those inside of it are. */
static int64_t
block_of(const kin_em *e, uint32_t phase, unsigned from)
{
    int64_t inside = 1, steps = known_steps(e, from);
    for (unsigned i = from + 1; i < e->ninner; i++) {
        if (known_steps(e, i) == 0 || (inside *= known_steps(e, i)) > MOST_ADDED)
            return 0;
    }
    return (steps == 0 || steps * inside > MOST_ADDED) && sums_floats(e, phase) ? MOST_ADDED / inside : 0;
}

/* The loop over blocks, outside of all levels; sums begin anew in each. Returns where they stood, by accumulator; NULL without memory. */
static kin_emit_state *
open_blocks(kin_em *e, loop *l, uint32_t phase, LLVMValueRef first)
{
    kin_emit_state *aside = malloc((e->k->naccs + 1) * sizeof *aside);
    if (aside == NULL || !begin_loop(e, l, first)) {
        kin_em_fail(e, "memory");
        free(aside);
        return NULL;
    }
    memcpy(aside, e->states, e->k->naccs * sizeof *aside);
    for (uint32_t i = 0; i < e->k->actions.len; i++)
        if (is_float_sum(e, &e->k->actions.at[i], phase))
            kin_em_start_state(e, &e->k->actions.at[i]);
    return aside;
}

static void
close_blocks(kin_em *e, loop *l, uint32_t phase, kin_emit_state *aside, int64_t step, LLVMValueRef end)
{
    for (uint32_t i = 0; i < e->k->actions.len; i++)
        if (is_float_sum(e, &e->k->actions.at[i], phase))
            kin_em_add_state(e, &e->k->actions.at[i], aside[e->k->actions.at[i].acc]);
    free(aside);
    end_loop(e, l, step, end);
}

static void inner_loops(kin_em *e, uint32_t phase, unsigned from);

/* Many blocks? Unknown numbers of rows are taken to be; lanes of a vector are several sums already. */
static bool
has_many(const kin_em *e, unsigned from, int64_t block)
{
    int64_t steps = known_steps(e, from);
    return steps == 0 ? e->inner[from] != e->k->vector_var : steps > block * MOST_ADDED;
}

/* The loop over an inner variable from `first` to `end`, at least one step; in blocks of `block` if `levels` is not 0, and these in MOST_ADDED ones each if it
 * is more than 1. */
static void
blocks_loop(kin_em *e, uint32_t phase, unsigned from, int64_t step, int64_t block, unsigned levels, LLVMValueRef first, LLVMValueRef end)
{
    loop l;
    if (levels == 0) {
        if (!open_loop(e, &l, first))
            return;
        e->vars[e->inner[from]] = l.i;
        inner_loops(e, phase, from + 1);
        close_loop(e, &l, step, end);
        return;
    }
    kin_emit_state *aside = open_blocks(e, &l, phase, first);
    if (aside == NULL)
        return;
    LLVMValueRef stop = LLVMBuildAdd(e->b, l.i, int_of(e, block), "");
    stop = LLVMBuildSelect(e->b, LLVMBuildICmp(e->b, LLVMIntSLT, stop, end, ""), stop, end, "");
    blocks_loop(e, phase, from, step, block / MOST_ADDED, levels - 1, l.i, stop);
    close_blocks(e, &l, phase, aside, block, end);
}

/* The loop over an inner variable from 0 to `end`, at least one step. */
static void
steps_loop(kin_em *e, uint32_t phase, unsigned from, int64_t step, LLVMValueRef end)
{
    int64_t block = block_of(e, phase, from);
    bool many = block > 0 && has_many(e, from, block);
    blocks_loop(e, phase, from, step, block * step * (many ? MOST_ADDED : 1), many ? 2 : block > 0, int_of(e, 0), end);
}

/* Any number of steps, then what is left. */
static void
vector_loop_of_any(kin_em *e, uint32_t phase, uint32_t var)
{
    int64_t lanes = e->run->lanes;
    LLVMValueRef size = kin_em_number(e, kin_em_size_of(e, var), 0);
    LLVMPositionBuilderAtEnd(e->b, e->here);
    LLVMValueRef full = LLVMBuildAnd(e->b, size, int_of(e, -lanes), "");
    optional p;
    if (!open_part(e, &p, LLVMBuildICmp(e->b, LLVMIntSGT, full, int_of(e, 0), "")))
        return;
    steps_loop(e, phase, e->ninner - 1, lanes, full);
    close_part(e, &p);
    if (!open_part(e, &p, LLVMBuildICmp(e->b, LLVMIntSLT, full, size, "")))
        return;
    masked_step(e, phase, var, full, lanes_before(e, LLVMBuildSub(e->b, size, full, "")));
    close_part(e, &p);
}

static void
vector_loop(kin_em *e, uint32_t phase, uint32_t var)
{
    int64_t size = e->k->vars.at[var].size, lanes = e->run->lanes, full = size / lanes * lanes;
    if (kin_em_is_open(e, kin_em_size_of(e, var))) {
        vector_loop_of_any(e, phase, var);
        return;
    }
    if (full)
        steps_loop(e, phase, e->ninner - 1, lanes, int_of(e, full));
    if (full < size)
        masked_step(e, phase, var, int_of(e, full), first_lanes(e, size - full));
}

/* The same, of the columns in the window. What one part computed ahead of its loop is not there in the other. */
static void
window_loop(kin_em *e, uint32_t phase, uint32_t var)
{
    int64_t size = e->k->vars.at[var].size, lanes = e->run->lanes, full = size / lanes * lanes;
    bool any = kin_em_is_open(e, kin_em_size_of(e, var));
    LLVMValueRef from = e->window[0], to = e->window[1], all = kin_em_number(e, kin_em_size_of(e, var), size);
    LLVMValueRef steps = any ? LLVMBuildAnd(e->b, all, int_of(e, -lanes), "") : int_of(e, full);
    LLVMValueRef whole = LLVMBuildICmp(e->b, LLVMIntSLT, to, steps, "");
    LLVMValueRef stop = LLVMBuildSelect(e->b, whole, to, steps, "");
    LLVMBasicBlockRef after = enter_if(e, LLVMBuildICmp(e->b, LLVMIntSLT, from, stop, ""));
    loop l;
    if (open_loop(e, &l, from)) {
        e->vars[var] = l.i;
        run_phase_actions(e, phase);
        close_loop(e, &l, lanes, stop);
    }
    leave_to(e, after);
    forget(e, 0);
    if (full == size && !any)
        return;
    after = enter_if(e, LLVMBuildICmp(e->b, LLVMIntSGT, to, steps, ""));
    masked_step(e, phase, var, steps, any ? lanes_before(e, LLVMBuildSub(e->b, all, steps, "")) : first_lanes(e, size - full));
    leave_to(e, after);
    forget(e, 0);
}

static void
inner_loops(kin_em *e, uint32_t phase, unsigned from)
{
    if (from == e->ninner) {
        run_phase_actions(e, phase);
        return;
    }
    uint32_t var = e->inner[from];
    if (e->k->window)
        window_loop(e, phase, var);
    else if (e->run->lanes > 1 && var == e->k->vector_var)
        vector_loop(e, phase, var);
    else
        steps_loop(e, phase, from, 1, kin_em_number(e, kin_em_size_of(e, var), e->k->vars.at[var].size));
}

/* Everything for one combination of the outer variables. */
static void
run_row(kin_em *e)
{
    const kin_loops *k = e->k;
    for (uint32_t phase = 0; phase < k->nphases && !e->failed; phase++) {
        memset(e->states, 0, k->naccs * sizeof *e->states);
        for (uint32_t i = 0; i < k->actions.len; i++)
            if (k->actions.at[i].phase == phase && (k->actions.at[i].kind == KIN_LA_REDUCE || k->actions.at[i].kind == KIN_LA_SCAN))
                kin_em_start_state(e, &k->actions.at[i]);
        inner_loops(e, phase, 0);
        for (uint32_t i = 0; i < k->actions.len; i++)
            if (k->actions.at[i].phase == phase && k->actions.at[i].kind == KIN_LA_REDUCE)
                kin_em_finish_state(e, &k->actions.at[i]);
    }
    memset(e->states, 0, k->naccs * sizeof *e->states);
    for (uint32_t i = 0; i < k->actions.len && !e->failed; i++)
        if (k->actions.at[i].row)
            run_action(e, &k->actions.at[i]);
}

/* -- the range --------------------------------------------------------------------------------------------------- */

static void
start_row(kin_em *e)
{
    forget(e, 0);
    memset(e->accs, 0, e->k->naccs * sizeof *e->accs);
}

static uint32_t
first_outer(const kin_loops *k, uint32_t skip)
{
    for (uint32_t v = 0; v < k->vars.len; v++)
        if (!k->vars.at[v].inner && k->vars.at[v].size > 1 && v != skip)
            return v;
    return UINT32_MAX;
}

uint32_t
kin_emit_open_var(const kin_loops *k, const kin_kernel_plan *run, bool any)
{
    if (run->kind == KIN_RUN_LINEAR)
        return any || k->vars.at[k->vector_var].size >= KIN_EMIT_ANY_LENGTH ? k->vector_var : UINT32_MAX;
    return first_outer(k, run->kind == KIN_RUN_COLUMNS ? k->vector_var : UINT32_MAX);
}

/* Divides the number of a row into outer variables, the last one quickest. `skip`: not of them. */
static void
divide_row(kin_em *e, LLVMValueRef row, uint32_t skip)
{
    uint32_t first = first_outer(e->k, skip);
    for (uint32_t v = e->k->vars.len; v-- > 0;) {
        const kin_loop_var *var = &e->k->vars.at[v];
        if (var->inner || var->size == 1 || v == skip)
            continue;
        LLVMValueRef size = kin_em_number(e, kin_em_size_of(e, v), var->size);
        e->vars[v] = v == first ? row : LLVMBuildURem(e->b, row, size, "");
        if (v != first)
            row = LLVMBuildUDiv(e->b, row, size, "");
    }
}

/* A chunk of lanes: whole, or the last one of a size that is no multiple. */
static void
run_chunk(kin_em *e, LLVMValueRef at)
{
    int64_t size = e->k->vars.at[e->k->vector_var].size, full = size / e->run->lanes * e->run->lanes;
    uint32_t number = kin_em_size_of(e, e->k->vector_var);
    bool any = kin_em_is_open(e, number);
    LLVMValueRef all = kin_em_number(e, number, size), steps = any ? LLVMBuildAnd(e->b, all, int_of(e, -(int64_t)e->run->lanes), "") : int_of(e, full);
    e->vars[e->k->vector_var] = at;
    if (!any && (full == size || full == 0)) {
        start_row(e);
        e->lanes = full ? NULL : first_lanes(e, size);
        run_row(e);
        e->lanes = NULL;
        return;
    }
    LLVMBasicBlockRef whole = new_block(e), part = new_block(e), after = new_block(e);
    LLVMBuildCondBr(e->b, LLVMBuildICmp(e->b, LLVMIntSLT, at, steps, ""), whole, part);
    e->here = whole;
    LLVMPositionBuilderAtEnd(e->b, whole);
    start_row(e);
    run_row(e);
    LLVMPositionBuilderAtEnd(e->b, e->here);
    LLVMBuildBr(e->b, after);
    e->here = part;
    LLVMPositionBuilderAtEnd(e->b, part);
    start_row(e);
    e->lanes = any ? lanes_before(e, LLVMBuildSub(e->b, all, at, "")) : first_lanes(e, size - full);
    run_row(e);
    e->lanes = NULL;
    leave_to(e, after);
}

static void
run_range(kin_em *e, LLVMValueRef begin, LLVMValueRef end)
{
    LLVMBasicBlockRef after = enter_if(e, LLVMBuildICmp(e->b, LLVMIntSLT, begin, end, "")), from = e->here;
    LLVMBasicBlockRef body = new_block(e);
    LLVMBuildBr(e->b, body);
    e->here = body;
    LLVMPositionBuilderAtEnd(e->b, body);
    LLVMValueRef row = start_phi(e, begin, from), rest = row;
    uint32_t vector = e->run->kind == KIN_RUN_COLUMNS ? e->k->vector_var : UINT32_MAX;
    if (vector != UINT32_MAX) {
        uint32_t number = kin_em_size_of(e, vector);
        LLVMValueRef chunks = int_of(e, (e->k->vars.at[vector].size + e->run->lanes - 1) / e->run->lanes);
        if (kin_em_is_open(e, number))
            chunks = LLVMBuildUDiv(e->b, LLVMBuildAdd(e->b, kin_em_number(e, number, 0), int_of(e, e->run->lanes - 1), ""), int_of(e, e->run->lanes), "");
        LLVMValueRef chunk = LLVMBuildURem(e->b, row, chunks, "");
        divide_row(e, LLVMBuildUDiv(e->b, row, chunks, ""), vector);
        run_chunk(e, LLVMBuildMul(e->b, chunk, int_of(e, e->run->lanes), ""));
    } else {
        divide_row(e, rest, UINT32_MAX);
        start_row(e);
        run_row(e);
    }
    LLVMPositionBuilderAtEnd(e->b, e->here);
    LLVMValueRef next = LLVMBuildAdd(e->b, row, int_of(e, 1), "");
    LLVMAddIncoming(row, &next, &e->here, 1);
    LLVMBuildCondBr(e->b, LLVMBuildICmp(e->b, LLVMIntSLT, next, end, ""), body, after);
    e->here = after;
    LLVMPositionBuilderAtEnd(e->b, after);
}

/* One variable, [begin, end) of it. */
static void
run_linear(kin_em *e, LLVMValueRef begin, LLVMValueRef end)
{
    uint32_t var = e->k->vector_var;
    int64_t lanes = e->run->lanes;
    loop l;
    start_row(e);
    LLVMValueRef count = LLVMBuildSub(e->b, end, begin, "");
    LLVMValueRef whole = LLVMBuildAnd(e->b, count, int_of(e, -lanes), ""); /* a power of two */
    LLVMValueRef stop = LLVMBuildAdd(e->b, begin, whole, "");
    LLVMBasicBlockRef after = enter_if(e, LLVMBuildICmp(e->b, LLVMIntSLT, begin, stop, ""));
    if (open_loop(e, &l, begin)) {
        e->vars[var] = l.i;
        run_phase_actions(e, 0);
        close_loop(e, &l, lanes, stop);
    }
    leave_to(e, after);
    start_row(e);
    if (e->open->open == NULL && e->k->vars.at[var].size < KIN_EMIT_ANY_LENGTH && e->k->vars.at[var].size % lanes == 0)
        return;
    LLVMValueRef some = LLVMBuildICmp(e->b, LLVMIntSLT, stop, end, "");
    after = enter_if(e, some);
    LLVMValueRef mask = lanes_before(e, LLVMBuildSub(e->b, end, stop, ""));
    masked_step(e, 0, var, stop, mask);
    leave_to(e, after);
}

/* -- the function ------------------------------------------------------------------------------------------------ */

static void
add_attribute(kin_em *e, const char *name, const char *value)
{
    LLVMAttributeRef a = LLVMCreateStringAttribute(e->context, name, (unsigned)strlen(name), value, (unsigned)strlen(value));
    LLVMAddAttributeAtIndex(e->fn, (LLVMAttributeIndex)LLVMAttributeFunctionIndex, a);
}

static void
make_function(kin_em *e)
{
    LLVMTypeRef pointer = LLVMPointerTypeInContext(e->context, 0), params[] = {pointer, i64(e), i64(e), pointer};
    LLVMTypeRef type = LLVMFunctionType(LLVMInt32TypeInContext(e->context), params, 4, false);
    char width[16];
    snprintf(width, sizeof width, "%u", 8 * e->target->vector_bytes);
    e->fn = LLVMAddFunction(e->module, "kernel", type);
    add_attribute(e, "target-cpu", e->target->cpu);
    add_attribute(e, "target-features", e->target->features);
    add_attribute(e, "min-legal-vector-width", width);
    add_attribute(e, "prefer-vector-width", width);
    add_attribute(e, "frame-pointer", "all");
    unsigned nounwind = LLVMGetEnumAttributeKindForName("nounwind", 8);
    LLVMAddAttributeAtIndex(e->fn, (LLVMAttributeIndex)LLVMAttributeFunctionIndex, LLVMCreateEnumAttribute(e->context, nounwind, 0));
}

static void
load_numbers(kin_em *e)
{
    unsigned given = 0;
    for (uint32_t i = 0; e->open->open != NULL && i < e->open->numbers->at.len; i++) {
        if (!e->open->open[i])
            continue;
        LLVMValueRef at = LLVMConstInt(i64(e), given++, false);
        e->loaded[i] = LLVMBuildLoad2(e->b, i64(e), LLVMBuildGEP2(e->b, i64(e), LLVMGetParam(e->fn, 3), &at, 1, ""), "");
    }
}

/* Memory for one row whose length is not known before. */
static LLVMValueRef
local_of_any(kin_em *e, uint32_t buffer)
{
    const kin_loop_buffer *b = &e->k->buffers.at[buffer];
    int64_t bytes = kin_dtype_bytes(b->dtype) * (e->run->kind == KIN_RUN_COLUMNS ? e->run->lanes : 1);
    LLVMValueRef n = LLVMBuildMul(e->b, kin_em_number(e, e->open->numbers->of_buffer[buffer], 0), int_of(e, bytes), "");
    LLVMValueRef at = LLVMBuildArrayAlloca(e->b, LLVMInt8TypeInContext(e->context), LLVMBuildAdd(e->b, n, int_of(e, 64), ""), "");
    LLVMSetAlignment(at, 64);
    return at;
}

static void
load_bases(kin_em *e)
{
    LLVMTypeRef pointer = LLVMPointerTypeInContext(e->context, 0);
    unsigned given = 0;
    for (uint32_t i = 0; i < e->k->buffers.len; i++) {
        const kin_loop_buffer *b = &e->k->buffers.at[i];
        if (b->local && e->open->open != NULL && kin_em_is_open(e, e->open->numbers->of_buffer[i])) {
            e->bases[i] = local_of_any(e, i);
            continue;
        }
        if (b->local) {
            uint64_t n = (uint64_t)b->elements * kin_dtype_bytes(b->dtype) * (e->run->kind == KIN_RUN_COLUMNS ? e->run->lanes : 1);
            e->bases[i] = kin_em_alloca(e, LLVMArrayType2(LLVMInt8TypeInContext(e->context), n), 64);
            continue;
        }
        LLVMValueRef at = LLVMConstInt(i64(e), given++, false);
        LLVMValueRef slot = LLVMBuildGEP2(e->b, pointer, LLVMGetParam(e->fn, 0), &at, 1, "");
        e->bases[i] = LLVMBuildLoad2(e->b, pointer, slot, "");
    }
    for (unsigned i = 0; e->k->window && i < 2; i++) {
        LLVMValueRef at = LLVMConstInt(i64(e), given, false), which = LLVMConstInt(i64(e), i, false);
        LLVMValueRef slot = LLVMBuildGEP2(e->b, pointer, LLVMGetParam(e->fn, 0), &at, 1, "");
        LLVMValueRef words = LLVMBuildLoad2(e->b, pointer, slot, "");
        e->window[i] = LLVMBuildLoad2(e->b, i64(e), LLVMBuildGEP2(e->b, i64(e), words, &which, 1, ""), "");
    }
}

static void
find_inner(kin_em *e)
{
    const kin_loops *k = e->k;
    for (uint32_t v = 0; v < k->vars.len; v++)
        if (k->vars.at[v].inner && k->vars.at[v].size > 1 && v != k->vector_var) {
            if (e->ninner == KIN_EMIT_MAX_INNER - 1)
                kin_em_fail(e, "too many loops");
            else
                e->inner[e->ninner++] = v;
        }
    if (k->vector_var != KIN_LOOP_NO_VAR && k->vars.at[k->vector_var].inner)
        e->inner[e->ninner++] = k->vector_var;
}

static void
emit_function(kin_em *e)
{
    make_function(e);
    e->entry = new_block(e);
    LLVMBasicBlockRef first = e->here = new_block(e);
    e->error = kin_em_alloca(e, LLVMArrayType(LLVMInt32TypeInContext(e->context), 2), 4);
    LLVMPositionBuilderAtEnd(e->b, first);
    LLVMBuildStore(e->b, LLVMConstNull(LLVMInt32TypeInContext(e->context)), e->error);
    load_numbers(e);
    load_bases(e);
    kin_loops_deps(e->k, e->deps);
    find_inner(e);
    for (uint32_t v = 0; v < e->k->vars.len; v++)
        e->vars[v] = int_of(e, 0);
    if (e->run->kind == KIN_RUN_LINEAR)
        run_linear(e, LLVMGetParam(e->fn, 1), LLVMGetParam(e->fn, 2));
    else
        run_range(e, LLVMGetParam(e->fn, 1), LLVMGetParam(e->fn, 2));
    LLVMPositionBuilderAtEnd(e->b, e->here);
    if (e->streamed && kin_target_here.stream_fence) /* such writes are ordered with no others */
        kin_em_intrinsic(e, kin_target_here.stream_fence, NULL, 0, NULL, 0);
    LLVMBuildRet(e->b, LLVMBuildLoad2(e->b, LLVMInt32TypeInContext(e->context), e->error, ""));
    LLVMPositionBuilderAtEnd(e->b, e->entry);
    LLVMBuildBr(e->b, first);
}

bool
kin_emit(const kin_loops *k, const kin_machine *t, const kin_kernel_plan *run, const kin_open *open, LLVMModuleRef module, kin_text *why)
{
    kin_em e = {.k = k, .target = t, .run = run, .open = open, .why = why, .module = module, .context = LLVMGetModuleContext(module)};
    e.bases = calloc(k->buffers.len + 1, sizeof *e.bases);
    e.vars = calloc(k->vars.len + 1, sizeof *e.vars);
    e.deps = calloc(k->insts.len + 1, sizeof *e.deps);
    e.memo = calloc(k->insts.len + 1, sizeof *e.memo);
    e.memo_level = calloc(k->insts.len + 1, 1);
    e.accs = calloc(k->naccs + 1, sizeof *e.accs);
    e.states = calloc(k->naccs + 1, sizeof *e.states);
    e.loaded = calloc(open->open == NULL ? 1 : open->numbers->at.len + 1, sizeof *e.loaded);
    if (e.loaded && e.bases && e.vars && e.deps && e.memo && e.memo_level && e.accs && e.states) {
        e.b = LLVMCreateBuilderInContext(e.context);
        emit_function(&e);
        LLVMDisposeBuilder(e.b);
    } else {
        kin_em_fail(&e, "memory");
    }
    void *all[] = {e.bases, e.vars, e.deps, e.memo, e.memo_level, e.accs, e.states, e.loaded};
    for (unsigned i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i]);
    return !e.failed;
}

#endif
