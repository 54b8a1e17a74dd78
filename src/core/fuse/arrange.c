/* Puts loops into the order and shape that runs fastest: merges variables that every index uses like one, and chooses as the vector's
 * variable the one along which most accesses are contiguous. */
#include "core/fuse/loops.h"

/* The first cache: bytes of a line and of a way; how many ways. */
enum { LINE = 64, WAY = 4096, WAYS = 8 };

void
kin_loops_init(kin_loops *k)
{
    *k = (kin_loops){.vector_var = KIN_LOOP_NO_VAR};
    kin_ix_init(&k->ix);
    kin_loop_inst none = {0};
    if (kin_vec_push(&k->insts, none) != KIN_OK)
        k->ix.failed = true;
}

void
kin_loops_deinit(kin_loops *k)
{
    kin_vec_deinit(&k->vars);
    kin_vec_deinit(&k->insts);
    kin_vec_deinit(&k->actions);
    kin_vec_deinit(&k->buffers);
    kin_ix_deinit(&k->ix);
}

uint64_t
kin_loops_index_deps(const kin_loops *k, kin_ix e, const uint64_t *deps)
{
    uint64_t d = 0;
    const kin_ix_expr *x = kin_ix_at(&k->ix, e);
    for (uint32_t i = 0; i < x->nterms; i++) {
        const kin_ix_atom *a = &k->ix.atoms.at[k->ix.terms.at[x->terms + i].atom];
        if (a->kind == KIN_IX_VAR)
            d |= 1ull << (a->of > 63 ? 63 : a->of);
        else if (a->kind == KIN_IX_VALUE)
            d |= deps[a->of];
        else
            d |= kin_loops_index_deps(k, a->of, deps);
    }
    return d;
}

void
kin_loops_deps(const kin_loops *k, uint64_t *deps)
{
    deps[0] = 0;
    for (uint32_t i = 1; i < k->insts.len; i++) {
        const kin_loop_inst *in = &k->insts.at[i];
        uint64_t d = in->mask ? deps[in->mask] : 0;
        for (int a = 0; a < 3; a++)
            d |= in->args[a] ? deps[in->args[a]] : 0;
        if (in->kind == KIN_LI_INDEX || in->kind == KIN_LI_LOAD)
            d |= kin_loops_index_deps(k, in->index, deps);
        if (in->kind == KIN_LI_ACC || (in->kind == KIN_LI_LOAD && k->buffers.at[in->buffer].local)) /* whatever the row depends on */
            for (uint32_t v = 0; v < k->vars.len; v++)
                d |= k->vars.at[v].inner ? 0 : 1ull << (v > 63 ? 63 : v);
        deps[i] = d;
    }
}

/* -- merging ----------------------------------------------------------------------------------------------------- */

/* Which expressions anything uses, their sub-expressions included. */
static void
mark_used(const kin_loops *k, kin_ix e, bool *used)
{
    if (used[e])
        return;
    used[e] = true;
    const kin_ix_expr *x = kin_ix_at(&k->ix, e);
    for (uint32_t i = 0; i < x->nterms; i++) {
        const kin_ix_atom *a = &k->ix.atoms.at[k->ix.terms.at[x->terms + i].atom];
        if (a->kind == KIN_IX_DIV || a->kind == KIN_IX_MOD)
            mark_used(k, a->of, used);
    }
}

static int64_t
coef_of(const kin_loops *k, kin_ix e, uint32_t var)
{
    const kin_ix_expr *x = kin_ix_at(&k->ix, e);
    for (uint32_t i = 0; i < x->nterms; i++) {
        const kin_ix_term *t = &k->ix.terms.at[x->terms + i];
        const kin_ix_atom *a = &k->ix.atoms.at[t->atom];
        if (a->kind == KIN_IX_VAR && a->of == var)
            return t->coef;
    }
    return 0;
}

/* Terms of `var` go: its neighbour's now count for both. */
static void
drop_terms(kin_loops *k, kin_ix e, uint32_t var)
{
    kin_ix_expr *x = &k->ix.exprs.at[e];
    for (uint32_t i = 0; i < x->nterms; i++) {
        kin_ix_term *t = &k->ix.terms.at[x->terms + i];
        const kin_ix_atom *a = &k->ix.atoms.at[t->atom];
        if (a->kind == KIN_IX_VAR && a->of == var) {
            memmove(t, t + 1, (x->nterms - i - 1) * sizeof *t);
            x->nterms--;
            return;
        }
    }
}

/* Does the access leave elements out between two of b's? Then how far a's lie apart fits b's number of them for some sizes only: every second row of an
 * image is followed by the next image's where the height is even. */
static bool
leaves_out(const kin_loops *k, kin_ix e, uint32_t b)
{
    int64_t apart = coef_of(k, e, b), within = 1;
    for (uint32_t v = 0; v < k->vars.len; v++) {
        int64_t c = coef_of(k, e, v);
        within += c > 0 && c < apart ? c * (k->vars.at[v].size - 1) : 0;
    }
    return apart > within;
}

static bool
can_merge(const kin_loops *k, const bool *used, uint32_t a, uint32_t b)
{
    const kin_loop_var *va = &k->vars.at[a], *vb = &k->vars.at[b];
    if (va->size == 1 || vb->size == 1 || va->inner != vb->inner || va->column != vb->column || (k->ordered && va->inner))
        return false;
    for (kin_ix e = 0; e < k->ix.exprs.len; e++)
        if (used[e] && (coef_of(k, e, a) != coef_of(k, e, b) * vb->size || (k->varying && leaves_out(k, e, b))))
            return false;
    return true;
}

static void
merge(kin_loops *k, const bool *used, uint32_t a, uint32_t b)
{
    for (kin_ix e = 0; e < k->ix.exprs.len; e++)
        if (used[e])
            drop_terms(k, e, a);
    k->vars.at[b].size *= k->vars.at[a].size;
    k->vars.at[a].size = 1;
    for (uint32_t i = 0; i < k->ix.atoms.len; i++) {
        kin_ix_atom *atom = &k->ix.atoms.at[i];
        if (atom->kind == KIN_IX_VAR && atom->of == b)
            atom->hi = k->vars.at[b].size - 1;
    }
}

static void
merge_all(kin_loops *k, bool *used)
{
    for (uint32_t i = 1; i < k->insts.len; i++)
        if (k->insts.at[i].kind == KIN_LI_INDEX || k->insts.at[i].kind == KIN_LI_LOAD)
            mark_used(k, k->insts.at[i].index, used);
    for (uint32_t i = 0; i < k->actions.len; i++)
        mark_used(k, k->actions.at[i].index, used);
    for (uint32_t b = k->vars.len; b-- > 0;)
        for (uint32_t a = k->vars.len; a-- > 0;)
            if (a != b && can_merge(k, used, a, b)) {
                merge(k, used, a, b);
                a = k->vars.len;
            }
}

/* -- the vector's variable ---------------------------------------------------------------------------------------- */

/* Does the index use var in other ways than as a plain multiple? */
static bool
irregular(const kin_loops *k, kin_ix e, uint32_t var, const uint64_t *deps)
{
    const kin_ix_expr *x = kin_ix_at(&k->ix, e);
    for (uint32_t i = 0; i < x->nterms; i++) {
        const kin_ix_atom *a = &k->ix.atoms.at[k->ix.terms.at[x->terms + i].atom];
        uint64_t d = a->kind == KIN_IX_VALUE ? deps[a->of] : a->kind == KIN_IX_VAR ? 0 : kin_loops_index_deps(k, a->of, deps);
        if (d >> (var > 63 ? 63 : var) & 1)
            return true;
    }
    return false;
}

static int64_t
score_access(const kin_loops *k, kin_ix e, uint32_t var, const uint64_t *deps)
{
    if (irregular(k, e, var, deps))
        return -12;
    int64_t c = coef_of(k, e, var);
    return c == 1 ? 4 : c == 2 ? 2 : c == 0 ? 1 : -8; /* every other element: two vectors and a mask (codegen/value.c) */
}

static bool
may_be_vector(const kin_loops *k, uint32_t v)
{
    return k->vars.at[v].size > 1 && !(k->ordered && k->vars.at[v].inner) && (!k->window || k->vars.at[v].column);
}

static int64_t
score_var(const kin_loops *k, uint32_t v, const uint64_t *deps)
{
    int64_t score = 0, inner = 1;
    for (uint32_t u = 0; u < k->vars.len; u++)
        inner *= k->vars.at[u].inner ? k->vars.at[u].size : 1;
    for (uint32_t i = 1; i < k->insts.len; i++)
        if (k->insts.at[i].kind == KIN_LI_LOAD)
            score += score_access(k, k->insts.at[i].index, v, deps);
    for (uint32_t i = 0; i < k->actions.len; i++) {
        const kin_loop_action *a = &k->actions.at[i];
        if (a->kind != KIN_LA_REDUCE && !(a->row && k->vars.at[v].inner))
            score += 2 * score_access(k, a->index, v, deps) / (a->row ? inner : 1); /* done once, where others are done often */
    }
    if (k->vars.at[v].size < 4)
        score -= 20;
    if (k->vars.at[v].size >= 16) /* fewer leave lanes empty */
        score += 4;
    return score;
}

/* Do all lanes' elements of an access lie at the same place of the first cache? Then each step of a scan along rows throws the lines out that
 * the next one wants. */
static bool
collides(const kin_loops *k, kin_ix e, unsigned dtype, uint32_t v, const uint64_t *deps)
{
    return !irregular(k, e, v, deps) && coef_of(k, e, v) != 0 && coef_of(k, e, v) * kin_dtype_bytes((kin_dtype)dtype) % WAY == 0;
}

/* Is a scan better done one element after the other? Not where a function is to be computed on the way. */
static bool
crowds_cache(const kin_loops *k, uint32_t v, const uint64_t *deps)
{
    bool crowded = false;
    if (!k->ordered || k->vars.at[v].size <= WAYS)
        return false;
    for (uint32_t i = 1; i < k->insts.len; i++) {
        const kin_loop_inst *in = &k->insts.at[i];
        if (in->kind == KIN_LI_OP && kin_ir_op_is_slow(in->op))
            return false;
        crowded = crowded || (in->kind == KIN_LI_LOAD && collides(k, in->index, in->dtype, v, deps));
    }
    for (uint32_t i = 0; i < k->actions.len; i++)
        crowded = crowded || (k->actions.at[i].kind == KIN_LA_SCAN && collides(k, k->actions.at[i].index, k->actions.at[i].dtype, v, deps));
    return crowded;
}

static bool
is_next_to(const kin_loops *k, kin_ix e, uint32_t v, const uint64_t *deps)
{
    return !irregular(k, e, v, deps) && (coef_of(k, e, v) == 1 || coef_of(k, e, v) == 2);
}

/* Does each lane read and write at a place of its own? A gather and a scatter for each step cost more than its elements one after the other. */
static bool
only_jumps(const kin_loops *k, uint32_t v, const uint64_t *deps)
{
    if (!k->ordered)
        return false;
    for (uint32_t i = 1; i < k->insts.len; i++) {
        const kin_loop_inst *in = &k->insts.at[i];
        if (in->kind == KIN_LI_OP && kin_ir_op_is_slow(in->op))
            return false;
        if (in->kind == KIN_LI_LOAD && is_next_to(k, in->index, v, deps))
            return false;
    }
    for (uint32_t i = 0; i < k->actions.len; i++)
        if (k->actions.at[i].kind != KIN_LA_REDUCE && is_next_to(k, k->actions.at[i].index, v, deps))
            return false;
    return true;
}

static void
choose_vector(kin_loops *k, const uint64_t *deps)
{
    int64_t best = 0;
    k->vector_var = KIN_LOOP_NO_VAR;
    for (uint32_t v = k->vars.len; v-- > 0;) {
        if (!may_be_vector(k, v) || crowds_cache(k, v, deps) || only_jumps(k, v, deps))
            continue;
        int64_t score = score_var(k, v, deps);
        if (k->vector_var == KIN_LOOP_NO_VAR || score > best) {
            best = score;
            k->vector_var = v;
        }
    }
}

/* -- tiles ------------------------------------------------------------------------------------------------------- */

/* Do all the lines that the vector's loop reads stay in the first cache until their neighbours are read? They lie so many bytes apart. */
static bool
stays_cached(const kin_loops *k, int64_t apart)
{
    enum { SHARE = 2 /* one in so many, as others are used, too */ };
    int64_t common = apart & -apart; /* the largest power of two that divides it */
    int64_t sets = WAY / (common < LINE ? LINE : common > WAY ? WAY : common);
    return k->vars.at[k->vector_var].size <= sets * WAYS / SHARE;
}

/* The variable in whose direction an access that jumps from lane to lane has its neighbours, or KIN_LOOP_NO_VAR. */
static uint32_t
neighbour_of(const kin_loops *k, const uint64_t *deps)
{
    for (uint32_t i = 1; i < k->insts.len; i++) {
        const kin_loop_inst *in = &k->insts.at[i];
        if (in->kind != KIN_LI_LOAD || irregular(k, in->index, k->vector_var, deps))
            continue;
        int64_t apart = coef_of(k, in->index, k->vector_var);
        if (apart < 8 || stays_cached(k, apart * kin_dtype_bytes((kin_dtype)in->dtype)))
            continue;
        for (uint32_t v = 0; v < k->vars.len; v++)
            if (v != k->vector_var && k->vars.at[v].size >= 8 && coef_of(k, in->index, v) == 1)
                return v;
    }
    return KIN_LOOP_NO_VAR;
}

static int64_t
tile_size(int64_t size)
{
    for (int64_t t = 16; t <= 32; t++)
        if (size % t == 0)
            return t;
    for (int64_t t = 15; t >= 4; t--)
        if (size % t == 0)
            return t;
    return size <= 64 ? size : 1;
}

/* var counts in steps of `by`; the new last variable counts within one. */
static bool
split_in_place(kin_loops *k, uint32_t var, int64_t by)
{
    kin_loop_var low = {.size = by, .inner = true};
    kin_ix_atom atom = {.kind = KIN_IX_VAR, .of = k->vars.len, .hi = by - 1};
    k->vars.at[var].size /= by;
    if (kin_vec_push(&k->vars, low) != KIN_OK || kin_vec_push(&k->ix.atoms, atom) != KIN_OK)
        return false;
    for (kin_ix e = 0; e < k->ix.exprs.len; e++) {
        kin_ix_expr *x = &k->ix.exprs.at[e];
        int64_t c = coef_of(k, e, var);
        if (c == 0)
            continue;
        if (kin_vec_reserve(&k->ix.terms, x->nterms + 1) != KIN_OK)
            return false;
        kin_ix_term *to = k->ix.terms.at + k->ix.terms.len;
        memcpy(to, k->ix.terms.at + x->terms, x->nterms * sizeof *to);
        for (uint32_t i = 0; i < x->nterms; i++) {
            const kin_ix_atom *a = &k->ix.atoms.at[to[i].atom];
            if (a->kind == KIN_IX_VAR && a->of == var)
                to[i].coef *= by;
        }
        to[x->nterms] = (kin_ix_term){.coef = c, .atom = k->ix.atoms.len - 1};
        x->terms = k->ix.terms.len;
        x->nterms++;
        k->ix.terms.len += x->nterms;
    }
    return true;
}

/* Transposing: a tile's lines of memory are read once, whichever way they are turned. */
static bool
tile(kin_loops *k, const uint64_t *deps)
{
    uint32_t v = neighbour_of(k, deps);
    if (v == KIN_LOOP_NO_VAR)
        return false;
    int64_t by = tile_size(k->vars.at[v].size);
    return by > 1 && split_in_place(k, v, by);
}

static bool
has_inner(const kin_loops *k)
{
    for (uint32_t v = 0; v < k->vars.len; v++)
        if (k->vars.at[v].inner && k->vars.at[v].size > 1)
            return true;
    return false;
}

bool
kin_loops_arrange(kin_loops *k)
{
    bool *used = calloc(k->ix.exprs.len + 1, sizeof *used);
    uint64_t *deps = calloc(k->insts.len + 1, sizeof *deps);
    if (used && deps) {
        merge_all(k, used);
        kin_loops_deps(k, deps);
        choose_vector(k, deps);
        /* without a reduction the vector's loop is the inner one, or a tile's */
        if (k->vector_var != KIN_LOOP_NO_VAR && !has_inner(k) && (k->ordered || k->window || !tile(k, deps)))
            k->vars.at[k->vector_var].inner = true;
    }
    bool ok = used && deps && !k->ix.failed;
    free(used);
    free(deps);
    return ok;
}

/* The variable is in no expression. */
static void
forget_var(kin_loops *k, uint32_t var)
{
    for (kin_ix e = 0; e < k->ix.exprs.len; e++)
        drop_terms(k, e, var);
    for (uint32_t i = 0; i < k->ix.atoms.len; i++)
        if (k->ix.atoms.at[i].kind == KIN_IX_VAR && k->ix.atoms.at[i].of == var)
            k->ix.atoms.at[i] = (kin_ix_atom){.kind = KIN_IX_VALUE};
}

static void
rename_var(kin_loops *k, uint32_t var, uint32_t to)
{
    k->vars.at[to] = k->vars.at[var];
    if (k->vector_var == var)
        k->vector_var = to;
    for (uint32_t i = 0; i < k->ix.atoms.len; i++)
        if (k->ix.atoms.at[i].kind == KIN_IX_VAR && k->ix.atoms.at[i].of == var)
            k->ix.atoms.at[i].of = to;
}

void
kin_loops_number(kin_loops *k)
{
    uint32_t n = 0;
    for (uint32_t v = 0; v < k->vars.len; v++)
        if (k->vars.at[v].size == 1 && v != k->vector_var)
            forget_var(k, v);
    for (uint32_t v = 0; v < k->vars.len; v++) {
        if (k->vars.at[v].size == 1 && v != k->vector_var)
            continue;
        if (v != n)
            rename_var(k, v, n);
        n++;
    }
    k->vars.len = n;
}

bool
kin_loops_finish(kin_loops *k)
{
    bool ok = kin_loops_arrange(k) && kin_loops_spill(k);
    if (ok)
        kin_loops_number(k);
    return ok;
}
