/* How a kernel's loops run: how many lanes, over elements, rows or columns, and how much work one call does.
 */
#include "core/codegen/emit.h"

#ifdef KIN_LLVM

static unsigned
widest_lanes(const kin_loops *k, const kin_machine *t)
{
    unsigned bytes = 1;
    for (uint32_t i = 1; i < k->insts.len; i++) {
        const kin_loop_inst *in = &k->insts.at[i];
        unsigned b = kin_dtype_bytes(in->dtype);
        if (in->kind != KIN_LI_INDEX && in->kind != KIN_LI_CONST && in->kind != KIN_LI_CHECK)
            bytes = b > bytes ? b : bytes;
    }
    if (bytes < 4) /* half precision is float in registers */
        bytes = 4;
    unsigned lanes = t->vector_bytes / bytes;
    return lanes < 4 ? 4 : lanes;
}

/* Cheap bodies that reduce want several vectors in flight: wider vectors, which LLVM divides up. */
static unsigned
unrolled(const kin_loops *k, unsigned lanes)
{
    bool reduces = false;
    for (uint32_t i = 0; i < k->actions.len; i++)
        reduces |= k->actions.at[i].kind == KIN_LA_REDUCE;
    if (reduces && k->insts.len < 24)
        return lanes * 4 > 64 ? 64 : lanes * 4;
    return k->insts.len < 24 ? lanes * 2 : lanes;
}

/* How many instructions that differ from lane to lane the loops of a reduction repeat; those behind it are done once for a row. */
static unsigned
count_repeated(const kin_loops *k)
{
    uint64_t *deps = calloc(k->insts.len + 1, sizeof *deps);
    bool *wanted = calloc(k->insts.len + 1, sizeof *wanted);
    unsigned n = deps && wanted ? 0 : UINT32_MAX;
    if (n == 0)
        kin_loops_deps(k, deps);
    for (uint32_t a = 0; n == 0 && a < k->actions.len; a++)
        wanted[k->actions.at[a].value] |= k->actions.at[a].kind == KIN_LA_REDUCE;
    for (uint32_t i = k->insts.len; deps && wanted && i-- > 1;) {
        const kin_loop_inst *in = &k->insts.at[i];
        n += wanted[i] && deps[i] >> (k->vector_var > 63 ? 63 : k->vector_var) & 1;
        for (int a = 0; a < 3 && wanted[i]; a++)
            wanted[in->args[a]] = true;
        wanted[in->mask] |= wanted[i];
    }
    free(deps);
    free(wanted);
    return n;
}

/* Sums of columns that do little but load, as products of a row and a matrix are: a wide strip of a matrix at a time, as many columns as there are
 * registers for sums. Of each row of it the memory then gives several neighbouring lines, not one or two. */
static unsigned
widest_strip(const kin_loops *k, const kin_machine *t, unsigned lanes)
{
    enum { FEW = 5 };
    unsigned sums = t->vector_bytes == 64 ? 16 : 8, n = 0;
    for (uint32_t i = 0; i < k->actions.len; i++) {
        if (!k->actions.at[i].row && k->actions.at[i].kind != KIN_LA_REDUCE)
            return 0;
        n += k->actions.at[i].kind == KIN_LA_REDUCE;
    }
    if (n != 1 || k->nphases != 1 || count_repeated(k) > FEW)
        return 0;
    return lanes * sums < KIN_EMIT_MAX_LANES ? lanes * sums : KIN_EMIT_MAX_LANES;
}

static double
cost_of_one(const kin_loops *k)
{
    double one = 0;
    for (uint32_t i = 1; i < k->insts.len; i++) {
        const kin_loop_inst *in = &k->insts.at[i];
        bool heavy = in->kind == KIN_LI_OP && kin_ir_op_is_slow(in->op);
        one += heavy ? 0.8 : in->kind == KIN_LI_LOAD ? 0.12 : 0.04;
    }
    return one + 0.1 * k->actions.len;
}

static uint32_t
count_arithmetic(const kin_loops *k)
{
    uint32_t n = 0;
    for (uint32_t i = 1; i < k->insts.len; i++)
        n += k->insts.at[i].kind == KIN_LI_OP;
    for (uint32_t i = 0; i < k->actions.len; i++)
        n += k->actions.at[i].kind == KIN_LA_REDUCE;
    return n;
}

/* How many elements of the vector variable are computed at once. any: for every length, with what is left over masked; otherwise as many as its size fits. `linear`
 * loops have a tail of their own. */
static unsigned
choose_lanes(const kin_loops *k, const kin_machine *t, const kin_loop_var *v, bool any, bool reduces, bool linear)
{
    unsigned base = widest_lanes(k, t);
    if (any)
        return unrolled(k, base);
    unsigned strip = v->inner || !reduces ? 0 : widest_strip(k, t, base), lanes = strip ? strip : unrolled(k, base);
    while (lanes > 4 * base && v->size < 4 * (int64_t)lanes)
        lanes /= 2;
    while (lanes > 2 && lanes / 2 >= v->size)
        lanes /= 2;
    bool has_tail = linear && v->size >= KIN_EMIT_ANY_LENGTH;
    while (lanes > base && v->size % lanes && !has_tail && !(strip && v->size >= 8 * lanes))
        lanes /= 2;
    return lanes;
}

kin_kernel_plan
kin_emit_plan(const kin_loops *k, const kin_machine *t, bool any)
{
    kin_kernel_plan r = {.kind = KIN_RUN_ROWS, .lanes = 1, .work = {.rows = 1, .along = 1, .lanes = 1}};
    int64_t elements = 1;
    unsigned outer = 0, inner = 0;
    for (uint32_t v = 0; v < k->vars.len; v++) {
        const kin_loop_var *var = &k->vars.at[v];
        elements *= var->size;
        if (var->size > 1 && var->inner)
            inner++;
        else if (var->size > 1)
            outer++, r.work.rows *= var->size;
    }
    bool reduces = false;
    for (uint32_t i = 0; i < k->actions.len; i++)
        reduces |= k->actions.at[i].kind != KIN_LA_STORE;
    if (k->vector_var != KIN_LOOP_NO_VAR) {
        const kin_loop_var *v = &k->vars.at[k->vector_var];
        bool linear = v->inner && outer == 0 && inner == 1 && !reduces && !k->window;
        r.lanes = choose_lanes(k, t, v, any, reduces, linear);
        if (!v->inner && inner && !reduces && r.lanes > 8) /* a tile: its lines must fit one set of the cache */
            r.lanes = 8;
        if (!v->inner) {
            r.kind = KIN_RUN_COLUMNS;
            r.work.rows /= v->size;
            r.work.along = v->size;
            r.work.lanes = r.lanes;
        } else if (linear) {
            r.kind = KIN_RUN_LINEAR;
            r.work.rows = v->size;
            r.work.linear = true;
        }
    }
    r.work.elements = elements;
    r.work.each = cost_of_one(k);
    r.work.arithmetic = count_arithmetic(k);
    return r;
}

#endif
