/* Values that are expensive to compute in one phase and needed again in a later one are kept in memory local to the kernel for the
 * length of a row (the exponentials of a softmax), if a row is small enough; cheap ones are computed again.
 */
#include "core/fuse/loops.h"

enum { LEAST_COST = 8, MOST_BYTES = 128 << 10, MOST_LANES = 64 };

typedef struct {
    kin_loops *k;
    uint64_t *deps, inner;   /* by instruction; the inner variables */
    uint32_t *first;         /* by instruction: the first phase that computes it + 1 */
    double *cost;
    uint32_t *buffer;        /* by instruction: where it is kept + 1 */
    uint32_t *copy;          /* by instruction, for the phase at hand: what takes its place, + 1 */
    uint32_t n;              /* instructions when all began */
    uint32_t phase;
    bool failed;
} spill;

static double
own_cost(const kin_loop_inst *in)
{
    if (in->kind == KIN_LI_LOAD)
        return in->mask ? 2 : 1;
    if (in->kind != KIN_LI_OP)
        return 0.5;
    bool heavy = kin_ir_op_is_slow(in->op) && in->op != KIN_IR_SQRT;
    return heavy ? 12 : in->op == KIN_IR_DIV || in->op == KIN_IR_SQRT ? 4 : 1;
}

static void
visit(spill *s, uint32_t i, uint32_t phase)
{
    if (i == 0 || s->first[i])
        return;
    const kin_loop_inst *in = &s->k->insts.at[i];
    s->first[i] = phase + 1;
    s->cost[i] = own_cost(in);
    for (int a = 0; a < 3; a++) {
        visit(s, in->args[a], phase);
        s->cost[i] += in->args[a] && s->deps[in->args[a]] & s->inner ? s->cost[in->args[a]] : 0;
    }
    visit(s, in->mask, phase);
}

static int64_t
row_elements(const kin_loops *k)
{
    int64_t n = 1;
    for (uint32_t v = 0; v < k->vars.len; v++)
        n *= k->vars.at[v].inner ? k->vars.at[v].size : 1;
    return n;
}

/* Inner variables in their order, the vector's last. */
static kin_ix
row_index(kin_loops *k)
{
    kin_ix at = 0;
    int64_t below = 1;
    uint32_t last = k->vector_var;
    if (last != KIN_LOOP_NO_VAR && k->vars.at[last].inner) {
        at = kin_ix_var(&k->ix, last, k->vars.at[last].size);
        below = k->vars.at[last].size;
    }
    for (uint32_t v = k->vars.len; v-- > 0;) {
        if (v == last || !k->vars.at[v].inner)
            continue;
        at = kin_ix_add(&k->ix, at, kin_ix_affine(&k->ix, kin_ix_var(&k->ix, v, k->vars.at[v].size), below, 0));
        below *= k->vars.at[v].size;
    }
    return at;
}

static bool
fits(const spill *s, uint32_t i)
{
    const kin_loops *k = s->k;
    bool columns = k->vector_var != KIN_LOOP_NO_VAR && !k->vars.at[k->vector_var].inner;
    int64_t held = 0;
    for (uint32_t b = 0; b < k->buffers.len; b++)
        held += k->buffers.at[b].local ? k->buffers.at[b].elements * kin_dtype_bytes(k->buffers.at[b].dtype) : 0;
    held += row_elements(k) * kin_dtype_bytes(k->insts.at[i].dtype);
    return held * (columns ? MOST_LANES : 1) <= MOST_BYTES;
}

/* The first phase keeps instruction i. */
static bool
keep(spill *s, uint32_t i)
{
    kin_loops *k = s->k;
    if (s->buffer[i])
        return true;
    if (!fits(s, i))
        return false;
    kin_loop_buffer b = {.dtype = k->insts.at[i].dtype, .written = true, .local = true, .elements = row_elements(k)};
    kin_loop_action a = {.kind = KIN_LA_STORE, .dtype = b.dtype, .phase = s->first[i] - 1, .value = i, .buffer = k->buffers.len};
    a.index = row_index(k);
    if (kin_vec_push(&k->buffers, b) != KIN_OK || kin_vec_push(&k->actions, a) != KIN_OK) {
        s->failed = true;
        return false;
    }
    s->buffer[i] = k->buffers.len;
    return true;
}

static uint32_t
add(spill *s, kin_loop_inst in)
{
    if (kin_vec_push(&s->k->insts, in) != KIN_OK)
        s->failed = true;
    return s->k->insts.len - 1;
}

/* Instruction i for a phase after the first that computes it. */
static uint32_t
again(spill *s, uint32_t i)
{
    if (i == 0 || i >= s->n || !(s->deps[i] & s->inner))
        return i;
    if (s->copy[i])
        return s->copy[i] - 1;
    kin_loop_inst in = s->k->insts.at[i];
    uint32_t made = i;
    if (in.kind == KIN_LI_OP && s->cost[i] >= LEAST_COST && s->first[i] - 1 < s->phase && keep(s, i)) {
        kin_loop_inst load = {.kind = KIN_LI_LOAD, .dtype = in.dtype, .buffer = s->buffer[i] - 1, .index = row_index(s->k)};
        made = add(s, load);
    } else if (in.kind == KIN_LI_OP) {
        for (int a = 0; a < 3; a++)
            in.args[a] = again(s, in.args[a]);
        if (memcmp(in.args, s->k->insts.at[i].args, sizeof in.args) != 0)
            made = add(s, in);
    }
    s->copy[i] = made + 1;
    return made;
}

static void
spill_all(spill *s)
{
    kin_loops *k = s->k;
    for (uint32_t p = 0; p < k->nphases; p++)
        for (uint32_t i = 0; i < k->actions.len; i++)
            if (k->actions.at[i].phase == p && !k->actions.at[i].row)
                visit(s, k->actions.at[i].value, p);
    for (s->phase = k->nphases; s->phase-- > 1 && !s->failed;) { /* last one first: what it wants kept is stored by earlier ones, with their own values */
        memset(s->copy, 0, s->n * sizeof *s->copy);
        for (uint32_t i = 0; i < k->actions.len; i++)
            if (k->actions.at[i].phase == s->phase && !k->actions.at[i].row) {
                uint32_t v = again(s, k->actions.at[i].value); /* may move the actions */
                k->actions.at[i].value = v;
            }
    }
}

bool
kin_loops_spill(kin_loops *k)
{
    if (k->nphases < 2 || k->ordered)
        return true;
    spill s = {.k = k, .n = k->insts.len};
    s.deps = calloc(s.n, sizeof *s.deps);
    s.first = calloc(s.n, sizeof *s.first);
    s.cost = calloc(s.n, sizeof *s.cost);
    s.buffer = calloc(s.n, sizeof *s.buffer);
    s.copy = calloc(s.n, sizeof *s.copy);
    s.failed = !(s.deps && s.first && s.cost && s.buffer && s.copy);
    if (!s.failed) {
        for (uint32_t v = 0; v < k->vars.len; v++)
            s.inner |= k->vars.at[v].inner && k->vars.at[v].size > 1 ? 1ull << v : 0;
        kin_loops_deps(k, s.deps);
        spill_all(&s);
    }
    free(s.deps);
    free(s.first);
    free(s.cost);
    free(s.buffer);
    free(s.copy);
    return !s.failed && !k->ix.failed;
}
