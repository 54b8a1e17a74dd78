/* Builds the loops of a group of statements. Each statement is followed from the coordinates of its result back to
 * memory; index maps become arithmetic on coordinates. If a coordinate needs a variable to be divided, that variable is split, and
 * the group is walked again with two variables in its place.
 */
#include "core/fuse/fuse_priv.h"
#include "core/fuse/places.h"
#include "core/ir/scalar.h"

#include <math.h>

typedef struct {
    fuse *f;
    fuse_scratch *made;
    kin_loops *k;
    kin_irn_list *of_buffers;
    const char *why;           /* the first thing that went wrong */
    uint32_t depth;
} walk;

static uint32_t
fail(walk *w, const char *why)
{
    if (w->why == NULL)
        w->why = why;
    return 0;
}

/* -- instructions ------------------------------------------------------------------------------------------------ */

static uint32_t
index_phase(const walk *w, kin_ix e)
{
    uint32_t phase = 0;
    const kin_ix_expr *x = kin_ix_at(&w->k->ix, e);
    for (uint32_t i = 0; i < x->nterms; i++) {
        const kin_ix_atom *a = &w->k->ix.atoms.at[w->k->ix.terms.at[x->terms + i].atom];
        uint32_t p = a->kind == KIN_IX_VAR ? 0 : a->kind == KIN_IX_VALUE ? w->made->phases.at[a->of] : index_phase(w, a->of);
        phase = p > phase ? p : phase;
    }
    return phase;
}

static uint32_t
add_inst(walk *w, kin_loop_inst in, uint32_t phase)
{
    bool fresh;
    if (w->why)
        return 0;
    uint32_t n = kin_intern_put(&w->made->inst_keys, &in, sizeof in, &fresh) + 1;
    if (!fresh)
        return w->made->inst_keys.failed ? fail(w, "memory") : n;
    for (int a = 0; a < 3; a++)
        if (in.args[a] && w->made->phases.at[in.args[a]] > phase)
            phase = w->made->phases.at[in.args[a]];
    if (in.mask && w->made->phases.at[in.mask] > phase)
        phase = w->made->phases.at[in.mask];
    uint32_t p = in.kind == KIN_LI_LOAD || in.kind == KIN_LI_INDEX ? index_phase(w, in.index) : 0;
    phase = p > phase ? p : phase;
    if (kin_vec_push(&w->k->insts, in) != KIN_OK || kin_vec_push(&w->made->phases, phase) != KIN_OK)
        return fail(w, "memory");
    if (n > FUSE_MOST_INSTS)
        return fail(w, "too much for one kernel");
    return n;
}

static uint32_t
add_op(walk *w, unsigned op, unsigned dtype, uint32_t a, uint32_t b, uint32_t c)
{
    kin_loop_inst in = {.kind = KIN_LI_OP, .op = (uint8_t)op, .dtype = (uint8_t)dtype, .args = {a, b, c}};
    return add_inst(w, in, 0);
}

static uint32_t
add_const(walk *w, unsigned dtype, kin_scalar value)
{
    return add_inst(w, (kin_loop_inst){.kind = KIN_LI_CONST, .dtype = (uint8_t)dtype, .value = value}, 0);
}

static uint32_t
add_index(walk *w, kin_ix e)
{
    if (kin_ix_is_const(&w->k->ix, e))
        return add_const(w, KIN_I64, (kin_scalar){.i = kin_ix_at(&w->k->ix, e)->constant});
    return add_inst(w, (kin_loop_inst){.kind = KIN_LI_INDEX, .dtype = KIN_I64, .index = e}, 0);
}

static uint32_t
both(walk *w, uint32_t a, uint32_t b)
{
    return a == 0 ? b : b == 0 || a == b ? a : add_op(w, KIN_IR_AND, KIN_BOOL, a, b, 0);
}

/* The number of the kernel's buffer for a value in memory. */
static uint32_t
buffer_of(walk *w, kin_irn n, bool written)
{
    for (uint32_t i = 0; i < w->of_buffers->len; i++)
        if (w->of_buffers->at[i] == n) {
            w->k->buffers.at[i].written |= written;
            return i;
        }
    kin_loop_buffer b = {.dtype = fuse_node(w->f, n)->dtype, .written = written};
    if (kin_vec_push(w->of_buffers, n) != KIN_OK || kin_vec_push(&w->k->buffers, b) != KIN_OK)
        return fail(w, "memory");
    if (w->of_buffers->len > FUSE_MOST_BUFFERS)
        return fail(w, "too many buffers");
    return w->of_buffers->len - 1;
}

static kin_ix
memory_index(walk *w, kin_irn n, const kin_ix *coords)
{
    kin_ix sum = 0;
    const int64_t *strides = fuse_strides(w->f, n);
    for (unsigned d = 0; d < fuse_node(w->f, n)->ndim; d++)
        sum = kin_ix_add(&w->k->ix, sum, kin_ix_affine(&w->k->ix, coords[d], strides[d], 0));
    return sum;
}

/* -- coordinates ------------------------------------------------------------------------------------------------- */

/* The row-major number, back into coordinates of these sizes. Nothing empty is read, but what reads it may be written down, under a mask that never holds. */
static void
delinearise(kin_ix_space *s, kin_ix number, unsigned ndim, const int64_t *sizes, kin_ix *coords)
{
    int64_t below = 1;
    for (unsigned d = ndim; d-- > 0;) {
        coords[d] = sizes[d] <= 1 ? 0 : kin_ix_mod(s, kin_ix_div(s, number, below), sizes[d]);
        below *= sizes[d] > 1 ? sizes[d] : 1;
    }
}

static kin_ix
linearise(kin_ix_space *s, unsigned ndim, const int64_t *sizes, const kin_ix *coords)
{
    kin_ix number = 0;
    int64_t below = 1;
    for (unsigned d = ndim; d-- > 0;) {
        number = kin_ix_add(s, number, kin_ix_affine(s, coords[d], below, 0));
        below *= sizes[d];
    }
    return number;
}

/* An element of `to` as that of `from` with the same row-major number. Coordinates that reach out of their dimension are read under a mask. */
static void
reshape(kin_ix_space *s, unsigned nto, const int64_t *to, const kin_ix *coords, unsigned nfrom, const int64_t *from, kin_ix *out)
{
    kin_ix inside[KIN_IR_MAX_DIMS] = {0};
    bool masked = false;
    for (unsigned d = 0; d < nto; d++) {
        inside[d] = kin_ix_within(s, coords[d], to[d]);
        masked |= inside[d] != coords[d];
    }
    delinearise(s, linearise(s, nto, to, inside), nfrom, from, out);
    for (unsigned d = 0; d < nfrom && masked; d++)
        out[d] = kin_ix_plain(s, out[d]);
}

/* -- values ------------------------------------------------------------------------------------------------------ */

static uint32_t value(walk *w, kin_irn n, const kin_ix *coords, uint32_t mask);

static uint32_t
load(walk *w, kin_irn n, const kin_ix *coords, uint32_t mask)
{
    for (uint32_t i = 0; i < w->made->known.len; i++) {
        const fuse_known *k = &w->made->known.at[i];
        if (k->node != n)
            continue;
        if (k->inst == 0)
            return fail(w, "a value is read where it is put together");
        unsigned ndim = fuse_node(w->f, n)->ndim;
        if (ndim == 0 || memcmp(k->coords, coords, ndim * sizeof *coords) == 0)
            return k->inst;
        return fail(w, "a value of the same kernel is read at other places than it is made at");
    }
    kin_loop_inst in = {.kind = KIN_LI_LOAD, .dtype = fuse_node(w->f, n)->dtype, .mask = mask};
    in.buffer = buffer_of(w, n, false);
    in.index = memory_index(w, n, coords);
    return add_inst(w, in, 0);
}

/* lo <= coordinate < hi, as an instruction; 0 when that is always so (for other sizes, too, where these vary). */
static uint32_t
within(walk *w, kin_ix c, int64_t lo, int64_t hi)
{
    uint32_t v, a = 0, b = 0;
    bool begins = kin_ix_begins_at(&w->k->ix, c, lo);
    bool above = kin_ix_reaches(&w->k->ix, c, hi) || (w->f->varying && kin_ix_has_steps(&w->k->ix, c)); /* every second row fits if their number is even */
    if (begins && !above)
        return 0;
    v = add_index(w, c);
    if (!begins)
        a = add_op(w, KIN_IR_GE, KIN_BOOL, v, add_const(w, KIN_I64, (kin_scalar){.i = lo}), 0);
    if (above)
        b = add_op(w, KIN_IR_LT, KIN_BOOL, v, add_const(w, KIN_I64, (kin_scalar){.i = hi}), 0);
    return both(w, a, b);
}

static uint32_t
value_pad(walk *w, kin_irn n, const kin_ix *coords, uint32_t mask)
{
    const int64_t *low = kin_ir_attrs(w->f->ir, n);
    kin_irn a = kin_ir_arg(w->f->ir, n, 0), fill = kin_ir_arg(w->f->ir, n, 1);
    const int64_t *sizes = fuse_sizes(w->f, a);
    kin_ix in[KIN_IR_MAX_DIMS];
    uint32_t inside = 0;
    bool never = false;
    for (unsigned d = 0; d < fuse_node(w->f, n)->ndim; d++) {
        in[d] = kin_ix_affine(&w->k->ix, coords[d], 1, -low[d]);
        bool padded = low[d] != 0 || fuse_sizes(w->f, n)[d] != sizes[d];
        never |= sizes[d] == 0 || (padded && (!kin_ix_reaches(&w->k->ix, in[d], 0) || kin_ix_begins_at(&w->k->ix, in[d], sizes[d])));
        inside = padded ? both(w, inside, within(w, in[d], 0, sizes[d])) : inside;
    }
    if (never)
        return value(w, fill, NULL, mask);
    uint32_t v = value(w, a, in, both(w, mask, inside));
    return inside ? add_op(w, KIN_IR_WHERE, fuse_node(w->f, n)->dtype, inside, v, value(w, fill, NULL, mask)) : v;
}

static uint32_t
value_cat(walk *w, kin_irn n, const kin_ix *coords, uint32_t mask)
{
    unsigned dim = (unsigned)kin_ir_attrs(w->f->ir, n)[0], ndim = fuse_node(w->f, n)->ndim;
    int64_t end = fuse_sizes(w->f, n)[dim];
    uint32_t result = 0;
    kin_ix in[KIN_IR_MAX_DIMS];
    memcpy(in, coords, ndim * sizeof *in);
    for (unsigned i = fuse_node(w->f, n)->nargs; i-- > 0 && !w->why;) {
        kin_irn part = kin_ir_arg(w->f->ir, n, i);
        int64_t size = fuse_sizes(w->f, part)[dim], start = end - size;
        end = start;
        if (size == 0 || !kin_ix_reaches(&w->k->ix, coords[dim], start) || kin_ix_begins_at(&w->k->ix, coords[dim], start + size))
            continue;
        uint32_t here = within(w, coords[dim], start, start + size);
        in[dim] = size == 1 ? 0 : kin_ix_affine(&w->k->ix, coords[dim], 1, -start);
        uint32_t v = value(w, part, in, both(w, mask, here));
        result = result ? add_op(w, KIN_IR_WHERE, fuse_node(w->f, n)->dtype, here, v, result) : v;
        if (here == 0)
            break;
    }
    return result ? result : fail(w, "cat of nothing");
}

/* The coordinate that an index value gives: as an expression when it is one, else `check` is the instruction that gives it. */
static kin_ix
indexed(walk *w, uint32_t inst, int64_t size, uint32_t mask, uint32_t *check)
{
    *check = 0;
    if (w->why)
        return 0;
    const kin_loop_inst *in = &w->k->insts.at[inst];
    kin_ix_space *s = &w->k->ix;
    if (in->kind == KIN_LI_CONST && kin_ix_is_at_least(s, in->value.i, 0) && !kin_ix_is_at_least(s, in->value.i, size))
        return kin_ix_const(s, in->value.i);
    if (in->kind == KIN_LI_INDEX && kin_ix_begins_at(s, in->index, 0) && !kin_ix_reaches(s, in->index, size))
        return in->index;
    double lo, hi;
    if (kin_place_range(w->k, inst, &lo, &hi) && kin_ix_is_at_least(s, (int64_t)floor(lo), 0) && !kin_ix_is_at_least(s, (int64_t)floor(hi), size))
        return kin_ix_value(s, inst, (int64_t)lo, (int64_t)hi);
    w->k->checks = true;
    *check = add_inst(w, (kin_loop_inst){.kind = KIN_LI_CHECK, .dtype = KIN_I64, .args = {inst}, .mask = mask, .value.i = size}, 0);
    return *check ? kin_ix_value(&w->k->ix, *check, 0, size - 1) : 0;
}

static void
index_coords(walk *w, kin_irn n, const int64_t *map, kin_irn target, const kin_ix *coords, uint32_t mask, unsigned first,
             kin_ix *in, uint32_t *checks)
{
    for (unsigned d = 0; d < fuse_node(w->f, target)->ndim; d++) {
        checks[d] = 0;
        if (map[d] >= 0) {
            in[d] = coords[map[d]];
            continue;
        }
        kin_irn index = kin_ir_arg(w->f->ir, n, first + (unsigned)(-1 - map[d]));
        in[d] = indexed(w, value(w, index, coords, mask), fuse_sizes(w->f, target)[d], mask, &checks[d]);
    }
}

enum { READS_LOOK = 64 };

static bool reads(const walk *w, uint32_t inst, uint32_t check, unsigned *left);

static bool
index_reads(const walk *w, kin_ix e, uint32_t check, unsigned *left)
{
    const kin_ix_expr *expr = kin_ix_at(&w->k->ix, e);
    for (uint32_t i = 0; i < expr->nterms; i++) {
        const kin_ix_atom *a = &w->k->ix.atoms.at[w->k->ix.terms.at[expr->terms + i].atom];
        if (a->kind == KIN_IX_VALUE ? reads(w, a->of, check, left) : a->kind != KIN_IX_VAR && index_reads(w, a->of, check, left))
            return true;
    }
    return false;
}

/* Whether computing a value computes the check; "no" after so many instructions. */
static bool
reads(const walk *w, uint32_t inst, uint32_t check, unsigned *left)
{
    if (inst == check)
        return true;
    if (inst == 0 || *left == 0)
        return false;
    --*left;
    const kin_loop_inst *in = &w->k->insts.at[inst];
    for (int a = 0; in->kind != KIN_LI_ACC && a < 3; a++)
        if (reads(w, in->args[a], check, left))
            return true;
    if (in->kind != KIN_LI_LOAD && in->kind != KIN_LI_INDEX)
        return false;
    return index_reads(w, in->index, check, left) || reads(w, in->mask, check, left);
}

/* Code is made for what is asked for: a check that the value does without (what is indexed is the same everywhere) is made a part of it. */
static uint32_t
with_checks(walk *w, kin_irn n, uint32_t v, const uint32_t *checks, unsigned count)
{
    for (unsigned d = 0; d < count; d++) {
        unsigned left = READS_LOOK;
        if (w->why || checks[d] == 0 || reads(w, v, checks[d], &left))
            continue;
        uint8_t dtype = fuse_node(w->f, n)->dtype;
        uint32_t zero = add_const(w, KIN_I64, (kin_scalar){.i = 0}), other = add_const(w, dtype, (kin_scalar){.i = 0});
        v = add_op(w, KIN_IR_WHERE, dtype, add_op(w, KIN_IR_GE, KIN_BOOL, checks[d], zero, 0), v, other);
    }
    return v;
}

static uint32_t
value_view(walk *w, kin_irn n, const kin_ix *coords, uint32_t mask)
{
    const kin_ir_node *node = fuse_node(w->f, n);
    const int64_t *attrs = kin_ir_attrs(w->f->ir, n);
    kin_irn a = kin_ir_arg(w->f->ir, n, 0);
    const kin_ir_node *from = fuse_node(w->f, a);
    const int64_t *sizes = fuse_sizes(w->f, a);
    kin_ix in[KIN_IR_MAX_DIMS];
    kin_ix_space *s = &w->k->ix;
    switch (node->op) {
    case KIN_IR_EXPAND:
        for (unsigned d = 0; d < from->ndim; d++)
            in[d] = sizes[d] == 1 ? 0 : coords[d + node->ndim - from->ndim];
        break;
    case KIN_IR_PERMUTE:
        for (unsigned d = 0; d < node->ndim; d++)
            in[attrs[d]] = coords[d];
        break;
    case KIN_IR_RESHAPE: reshape(s, node->ndim, fuse_sizes(w->f, n), coords, from->ndim, sizes, in); break;
    case KIN_IR_SLICE:
        for (unsigned d = 0; d < node->ndim; d++)
            in[d] = kin_ix_affine(s, coords[d], attrs[node->ndim + d], attrs[d]);
        break;
    case KIN_IR_PAD: return value_pad(w, n, coords, mask);
    case KIN_IR_CAT: return value_cat(w, n, coords, mask);
    case KIN_IR_INDEX: {
        uint32_t checks[KIN_IR_MAX_DIMS];
        index_coords(w, n, attrs, a, coords, mask, 1, in, checks);
        return with_checks(w, n, value(w, a, in, mask), checks, from->ndim);
    }
    default: return fail(w, "an index map without code");
    }
    return value(w, a, in, mask);
}

static bool
divides_ints(const kin_ir_node *node)
{
    return !kin_dtype_is_float(node->dtype)
        && (node->op == KIN_IR_DIV || node->op == KIN_IR_FLOOR_DIV || node->op == KIN_IR_REM || node->op == KIN_IR_FMOD);
}

static uint32_t
value_pointwise(walk *w, kin_irn n, const kin_ix *coords, uint32_t mask)
{
    const kin_ir_node *node = fuse_node(w->f, n);
    kin_loop_inst in = {.kind = KIN_LI_OP, .op = node->op, .dtype = node->dtype};
    for (unsigned a = 0; a < node->nargs; a++)
        in.args[a] = value(w, kin_ir_arg(w->f->ir, n, a), coords, mask);
    kin_ix place;
    if (w->why)
        return 0;
    if (node->dtype == KIN_I64 && kin_place_fold(w->k, node->op, in.args, &place))
        return add_index(w, place);
    if (divides_ints(node)) {
        in.mask = mask;
        w->k->checks = true;
    }
    if (node->op == KIN_IR_POW && kin_dtype_is_float(node->dtype)) { /* squares are most of them */
        const kin_loop_inst *power = &w->k->insts.at[in.args[1]];
        if (power->kind == KIN_LI_CONST && power->value.f == 2.0)
            return add_op(w, KIN_IR_MUL, node->dtype, in.args[0], in.args[0], 0);
    }
    return add_inst(w, in, 0);
}

static uint32_t
value_inline(walk *w, kin_irn n, const kin_ix *coords, uint32_t mask)
{
    const kin_ir_node *node = fuse_node(w->f, n);
    if (node->dtype == KIN_C64 || node->dtype == KIN_C128)
        return fail(w, "complex values");
    switch (kin_ir_op_class(node->op)) {
    case KIN_IR_CLASS_POINTWISE:
    case KIN_IR_CLASS_COMPARE: return value_pointwise(w, n, coords, mask);
    case KIN_IR_CLASS_VIEW: return value_view(w, n, coords, mask);
    case KIN_IR_CLASS_LEAF: break;
    default: return fail(w, "a value that has no code");
    }
    if (node->op == KIN_IR_CONST)
        return add_const(w, node->dtype, kin_scalar_settle(node->dtype, node->value));
    uint32_t i = add_index(w, coords[kin_ir_attrs(w->f->ir, n)[0]]);
    return node->dtype == KIN_I64 ? i : add_op(w, KIN_IR_CAST, node->dtype, i, 0, 0);
}

/* The instruction for one element; each (node, place, condition) is computed once. */
static uint32_t
value(walk *w, kin_irn n, const kin_ix *coords, uint32_t mask)
{
    struct {
        uint32_t node, mask;
        kin_ix coords[KIN_IR_MAX_DIMS];
    } key = {n, mask, {0}};
    unsigned ndim = fuse_node(w->f, n)->ndim;
    bool fresh;
    if (w->why)
        return 0;
    if (ndim)
        memcpy(key.coords, coords, ndim * sizeof *coords);
    uint32_t m = kin_intern_put(&w->made->memo_keys, &key, 2 * sizeof(uint32_t) + ndim * sizeof *coords, &fresh);
    if (w->made->memo_keys.failed || (fresh && kin_vec_push(&w->made->memo, 0u) != KIN_OK))
        return fail(w, "memory");
    if (!fresh)
        return w->made->memo.at[m];
    if (++w->depth > 4000)
        return fail(w, "too deep");
    uint32_t v = fuse_in_memory(w->f, n) ? load(w, n, coords, mask) : value_inline(w, n, coords, mask);
    w->depth--;
    return w->made->memo.at[m] = v;
}

/* -- statements -------------------------------------------------------------------------------------------------- */

/* The space of a kernel: variables of the statement that has the most, in row-major order. */
static kin_ix
all_vars(walk *w, bool with_inner)
{
    kin_ix number = 0;
    int64_t below = 1;
    for (uint32_t v = w->k->vars.len; v-- > 0;) {
        const kin_loop_var *var = &w->k->vars.at[v];
        if (var->inner && !with_inner)
            continue;
        kin_ix x = kin_ix_var(&w->k->ix, v, var->size);
        number = kin_ix_add(&w->k->ix, number, kin_ix_affine(&w->k->ix, x, below, 0));
        below *= var->size;
    }
    return number;
}

static int64_t
numel_of_vars(const walk *w, bool with_inner)
{
    int64_t n = 1;
    for (uint32_t v = 0; v < w->k->vars.len; v++)
        n *= w->k->vars.at[v].inner && !with_inner ? 1 : w->k->vars.at[v].size;
    return n;
}

/* Does it consist of plain variables, all inner or all outer? */
static bool
only(const walk *w, kin_ix e, bool inner)
{
    const kin_ix_expr *x = kin_ix_at(&w->k->ix, e);
    for (uint32_t i = 0; i < x->nterms; i++) {
        const kin_ix_atom *a = &w->k->ix.atoms.at[w->k->ix.terms.at[x->terms + i].atom];
        if (a->kind != KIN_IX_VAR || w->k->vars.at[a->of].inner != inner)
            return false;
    }
    return true;
}

static bool
plain(const walk *w, kin_ix e)
{
    const kin_ix_expr *x = kin_ix_at(&w->k->ix, e);
    for (uint32_t i = 0; i < x->nterms; i++)
        if (w->k->ix.atoms.at[w->k->ix.terms.at[x->terms + i].atom].kind != KIN_IX_VAR)
            return false;
    return true;
}

static void
remember(walk *w, kin_irn n, uint32_t inst, const kin_ix *coords)
{
    fuse_known k = {.node = n, .inst = inst};
    memcpy(k.coords, coords, fuse_node(w->f, n)->ndim * sizeof *coords);
    if (kin_vec_push(&w->made->known, k) != KIN_OK)
        fail(w, "memory");
}

static void
act(walk *w, kin_loop_action a)
{
    if (w->why == NULL && kin_vec_push(&w->k->actions, a) != KIN_OK)
        fail(w, "memory");
}

/* The coordinates of a whole value in the kernel's space, by its number of elements. */
static bool
coords_of(walk *w, kin_irn n, kin_ix *coords, bool *row, bool alone)
{
    const kin_ir_node *node = fuse_node(w->f, n);
    int64_t numel = kin_ir_numel(w->f->ir, n);
    *row = numel != numel_of_vars(w, true);
    if (*row && numel != numel_of_vars(w, false)) {
        fail(w, "another number of elements");
        return false;
    }
    delinearise(&w->k->ix, all_vars(w, !*row), node->ndim, fuse_sizes(w->f, n), coords);
    for (unsigned d = 0; d < node->ndim && !alone; d++)
        if (!plain(w, coords[d]) && !w->k->ix.split) {
            fail(w, "sizes that do not divide up alike");
            return false;
        }
    return w->why == NULL;
}

/* Where the elements of operand `arg` are that the statement takes; false: it cannot. */
static bool
operand_coords(walk *w, const statement *s, unsigned arg, kin_ix *coords, kin_irn *operand)
{
    bool row;
    *operand = kin_ir_arg(w->f->ir, s->node, arg);
    return coords_of(w, *operand, coords, &row, false);
}

/* An action that writes to the statement's result at these coordinates. */
static void
act_on_result(walk *w, const statement *s, const kin_ix *coords, kin_loop_action a)
{
    a.buffer = buffer_of(w, s->node, true);
    a.index = memory_index(w, s->node, coords);
    act(w, a);
}

static void
do_value(walk *w, const statement *s, bool final, bool alone)
{
    kin_ix coords[KIN_IR_MAX_DIMS];
    bool row;
    if (!coords_of(w, s->value, coords, &row, alone))
        return;
    const kin_ir_node *node = fuse_node(w->f, s->value);
    /* the value itself is in memory only after this */
    uint32_t v = s->value == s->node ? value_inline(w, s->value, coords, 0) : value(w, s->value, coords, 0);
    if (w->why)
        return;
    remember(w, s->node, s->kind == ST_VALUE ? v : 0, coords); /* of a part no coordinates are looked at */
    if (final && !w->f->nodes[s->node].needed)
        return;
    if (s->kind == ST_PART)
        coords[s->dim] = kin_ix_affine(&w->k->ix, coords[s->dim], 1, s->offset);
    if (s->kind == ST_PART && s->cat != s->node) {
        kin_ix number = linearise(&w->k->ix, fuse_node(w->f, s->cat)->ndim, fuse_sizes(w->f, s->cat), coords);
        delinearise(&w->k->ix, number, fuse_node(w->f, s->node)->ndim, fuse_sizes(w->f, s->node), coords);
    }
    act_on_result(w, s, coords, (kin_loop_action){.kind = KIN_LA_STORE, .dtype = node->dtype, .row = row, .phase = w->made->phases.at[v], .value = v});
}

static bool
has_dim(const fuse *f, kin_irn n, unsigned d)
{
    for (unsigned i = 0; i < fuse_node(f, n)->nattrs; i++)
        if (kin_ir_attrs(f->ir, n)[i] == (int64_t)d)
            return true;
    return false;
}

/* Which number an element has among those that are reduced together. */
static uint32_t
position_of(walk *w, kin_irn n, kin_irn from, const kin_ix *coords)
{
    kin_ix number = 0;
    int64_t below = 1;
    for (unsigned d = fuse_node(w->f, from)->ndim; d-- > 0;)
        if (has_dim(w->f, n, d)) {
            number = kin_ix_add(&w->k->ix, number, kin_ix_affine(&w->k->ix, coords[d], below, 0));
            below *= fuse_sizes(w->f, from)[d];
        }
    return add_index(w, number);
}

static void
do_reduce(walk *w, const statement *s, bool final)
{
    kin_irn from;
    const kin_ir_node *node = fuse_node(w->f, s->node);
    kin_ix coords[KIN_IR_MAX_DIMS];
    if (!operand_coords(w, s, 0, coords, &from))
        return;
    for (unsigned d = 0; d < fuse_node(w->f, from)->ndim; d++)
        if (!only(w, coords[d], has_dim(w->f, s->node, d)) && !w->k->ix.split) {
            fail(w, "reduces over other dimensions");
            return;
        }
    uint32_t v = value(w, from, coords, 0);
    if (w->why)
        return;
    kin_loop_action a = {.kind = KIN_LA_REDUCE, .op = node->op, .dtype = node->dtype, .phase = w->made->phases.at[v], .value = v};
    uint32_t r;
    if (kin_ir_numel(w->f->ir, from) == kin_ir_numel(w->f->ir, s->node)) { /* the first of one */
        r = add_const(w, KIN_I64, (kin_scalar){.i = 0});
    } else {
        a.acc = w->k->naccs++;
        if (kin_ir_op_is_arg(node->op))
            a.position = position_of(w, s->node, from, coords);
        act(w, a);
        r = add_inst(w, (kin_loop_inst){.kind = KIN_LI_ACC, .dtype = node->dtype, .buffer = a.acc}, a.phase + 1);
    }
    for (unsigned d = 0; d < node->ndim; d++)
        if (has_dim(w->f, s->node, d))
            coords[d] = 0;
    if (w->why)
        return;
    remember(w, s->node, r, coords);
    if (final && !w->f->nodes[s->node].needed)
        return;
    bool one = numel_of_vars(w, true) == numel_of_vars(w, false);
    act_on_result(w, s, coords, (kin_loop_action){.kind = KIN_LA_STORE, .dtype = node->dtype, .row = !one, .phase = w->made->phases.at[r], .value = r});
}

static void
do_scan(walk *w, const statement *s)
{
    kin_irn from;
    const kin_ir_node *node = fuse_node(w->f, s->node);
    kin_ix coords[KIN_IR_MAX_DIMS];
    if (!operand_coords(w, s, 0, coords, &from))
        return;
    uint32_t v = value(w, from, coords, 0);
    w->k->ordered = true;
    act_on_result(w, s, coords, (kin_loop_action){.kind = KIN_LA_SCAN, .op = node->op, .dtype = node->dtype, .value = v, .acc = w->k->naccs++});
}

static void
do_update(walk *w, const statement *s)
{
    const kin_ir_node *node = fuse_node(w->f, s->node);
    const int64_t *attrs = kin_ir_attrs(w->f->ir, s->node);
    kin_irn source;
    kin_ix coords[KIN_IR_MAX_DIMS], to[KIN_IR_MAX_DIMS];
    uint32_t checks[KIN_IR_MAX_DIMS];
    if (!operand_coords(w, s, 1, coords, &source))
        return;
    index_coords(w, s->node, attrs + 1, s->node, coords, 0, 2, to, checks);
    uint32_t v = value(w, source, coords, 0);
    w->k->ordered = true;
    act_on_result(w, s, to, (kin_loop_action){.kind = KIN_LA_UPDATE, .op = (uint8_t)attrs[0], .dtype = node->dtype, .value = v});
}

static void
do_statement(walk *w, const statement *s, bool final, bool alone)
{
    switch ((statement_kind)s->kind) {
    case ST_VALUE:
    case ST_PART:
    case ST_BASE: do_value(w, s, final, alone); break;
    case ST_REDUCE: do_reduce(w, s, final); break;
    case ST_SCAN: do_scan(w, s); break;
    case ST_UPDATE: do_update(w, s); break;
    }
}

/* -- the group --------------------------------------------------------------------------------------------------- */

static bool
updates_along(const fuse *f, kin_irn n, unsigned d)
{
    const int64_t *map = kin_ir_attrs(f->ir, n) + 1;
    for (unsigned i = 0; i < fuse_node(f, n)->ndim; i++)
        if (map[i] == (int64_t)d)
            return false;
    return true;
}

/* The variables come from the first statement that reduces, else the first. */
static void
start_vars(walk *w, const statement *all, uint32_t n)
{
    const statement *lead = all;
    for (uint32_t i = n; i-- > 0;)
        if (all[i].kind >= ST_REDUCE)
            lead = &all[i];
    kin_irn of = lead->kind == ST_UPDATE ? kin_ir_arg(w->f->ir, lead->node, 1)
               : lead->kind >= ST_REDUCE ? kin_ir_arg(w->f->ir, lead->node, 0) : lead->value;
    for (unsigned d = 0; d < fuse_node(w->f, of)->ndim; d++) {
        kin_loop_var v = {.size = fuse_sizes(w->f, of)[d]};
        v.inner = lead->kind == ST_UPDATE ? updates_along(w->f, lead->node, d)
                : lead->kind >= ST_REDUCE ? has_dim(w->f, lead->node, d) : false;
        if (v.size > 1 && kin_vec_push(&w->k->vars, v) != KIN_OK)
            fail(w, "memory");
    }
}

static void
split_var(walk *w)
{
    kin_ix_space *s = &w->k->ix;
    uint32_t at = s->split_var;
    if (kin_vec_push(&w->k->vars, w->k->vars.at[at]) != KIN_OK) {
        fail(w, "memory");
        return;
    }
    memmove(w->k->vars.at + at + 1, w->k->vars.at + at, (w->k->vars.len - 1 - at) * sizeof *w->k->vars.at);
    w->k->vars.at[at].size /= s->split_at;
    w->k->vars.at[at + 1].size = s->split_at;
    if (w->k->vars.len > FUSE_MOST_VARS)
        fail(w, "too many loops");
}

static void
forget(walk *w)
{
    kin_loops *k = w->k;
    k->insts.len = 1;
    k->actions.len = k->buffers.len = k->naccs = w->of_buffers->len = 0;
    k->checks = k->ordered = false;
    kin_ix_clear(&k->ix);
    kin_intern_clear(&w->made->inst_keys);
    kin_intern_clear(&w->made->memo_keys);
    w->made->memo.len = w->made->known.len = w->depth = 0;
    w->made->phases.len = 0;
    if (kin_vec_push(&w->made->phases, 0u) != KIN_OK)
        fail(w, "memory");
}

static uint32_t
count_phases(const kin_loops *k)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < k->actions.len; i++)
        if (!k->actions.at[i].row && k->actions.at[i].phase >= n)
            n = k->actions.at[i].phase + 1;
    return n;
}

static void
begin(walk *w)
{
    w->of_buffers->len = w->k->vars.len = w->k->ix.asked.len = 0;
    w->k->vector_var = KIN_LOOP_NO_VAR;
    w->k->window = false;
    w->k->varying = w->k->ix.varying = w->f->varying;
}

const char *
fuse_build(fuse *f, const statement *s, uint32_t n, bool final, kin_loops *k, kin_irn_list *of_buffers)
{
    walk w = {.f = f, .made = &f->scratch, .k = k, .of_buffers = of_buffers};
    if (k->ix.failed)
        return "memory";
    begin(&w);
    start_vars(&w, s, n);
    for (int round = 0; round < 40 && w.why == NULL; round++) {
        forget(&w);
        for (uint32_t i = 0; i < n && w.why == NULL; i++)
            do_statement(&w, &s[i], final, n == 1);
        if (w.k->ix.failed)
            fail(&w, "indices with too many terms");
        if (!k->ix.split)
            break;
        w.why = NULL; /* whatever it was, the next round decides */
        split_var(&w);
    }
    k->nphases = count_phases(k);
    if (final && w.why == NULL && !kin_loops_finish(k))
        fail(&w, "memory");
    return w.why;
}

void
fuse_scratch_init(fuse_scratch *s)
{
    *s = (fuse_scratch){0};
    kin_loops_init(&s->trial);
}

void
fuse_scratch_deinit(fuse_scratch *s)
{
    kin_vec_deinit(&s->known);
    kin_vec_deinit(&s->memo);
    kin_vec_deinit(&s->phases);
    kin_vec_deinit(&s->trial_of);
    kin_intern_deinit(&s->inst_keys);
    kin_intern_deinit(&s->memo_keys);
    kin_loops_deinit(&s->trial);
}
