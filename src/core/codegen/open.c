/* Separates kernels into shape and numbers, and decides which numbers are open (open.h). */
#include "core/codegen/open.h"

#include "core/base/words.h"

enum { MOST_WIDENED = 2 };

/* -- shape and numbers ------------------------------------------------------------------------------------------------ */

typedef struct {
    const kin_loops *k;
    kin_numbers *out;
    kin_text *shape;
    uint32_t *expr_met, *atom_met; /* by expression, atom: when it was met, counted from 1 */
    uint32_t nexprs, natoms;
    bool failed;
} walk;

static void
say(walk *w, uint32_t word)
{
    kin_text_add_len(w->shape, (const char *)&word, sizeof word);
}

/* The next number; 0 and 1 decide what there is at all, and stay in the shape. */
static uint32_t
number(walk *w, int64_t value)
{
    if (value == 0 || value == 1) {
        say(w, value ? 'I' : 'O');
        return KIN_NUMBER_NONE;
    }
    say(w, '#');
    w->failed |= kin_vec_push(&w->out->at, value) != KIN_OK;
    return w->out->at.len;
}

/* What code is chosen by. */
static void
fixed(walk *w, int64_t value)
{
    kin_text_add_len(w->shape, (const char *)&value, sizeof value);
}

static void walk_index(walk *w, kin_ix e);

static void
walk_atom(walk *w, uint64_t n)
{
    const kin_ix_atom *a = &w->k->ix.atoms.at[n];
    if (w->atom_met[n] != 0) {
        say(w, 'a');
        say(w, w->atom_met[n]);
        return;
    }
    w->atom_met[n] = ++w->natoms;
    say(w, 'A' + a->kind);
    if (a->kind == KIN_IX_VAR || a->kind == KIN_IX_VALUE) {
        say(w, a->of);
        return;
    }
    w->out->of_atom[n] = number(w, a->by);
    walk_index(w, a->of);
}

/* Is it part of the code how an index moves from lane to lane? Neighbours, every other one and the same for all; the rest is gathered. */
static bool
is_lane_step(const walk *w, const kin_ix_atom *a, int64_t coef)
{
    return a->kind == KIN_IX_VAR && a->of == w->k->vector_var && coef >= 0 && coef <= 2;
}

/* Whether it fits 32 bits is part of the code, too. */
static void
walk_index(walk *w, kin_ix e)
{
    const kin_loops *k = w->k;
    const kin_ix_expr *x = kin_ix_at(&k->ix, e);
    if (w->expr_met[e] != 0) {
        say(w, 'e');
        say(w, w->expr_met[e]);
        return;
    }
    w->expr_met[e] = ++w->nexprs;
    say(w, 'E');
    say(w, x->lo >= 0 && x->hi < INT32_MAX);
    say(w, x->nterms);
    w->out->of_expr[e] = number(w, x->constant);
    for (uint32_t i = 0; i < x->nterms; i++) {
        const kin_ix_term *t = &k->ix.terms.at[x->terms + i];
        const kin_ix_atom *a = &k->ix.atoms.at[t->atom];
        if (is_lane_step(w, a, t->coef))
            fixed(w, t->coef);
        else
            w->out->of_term[x->terms + i] = number(w, t->coef);
        walk_atom(w, t->atom);
    }
}

static void
walk_instructions(walk *w)
{
    for (uint32_t i = 1; i < w->k->insts.len; i++) {
        kin_loop_inst in = w->k->insts.at[i];
        bool counts = in.kind == KIN_LI_CHECK || (in.kind == KIN_LI_CONST && in.dtype != KIN_BOOL);
        int64_t value = in.value.i;
        in.index = 0;
        in.value.i = counts ? 0 : value;
        kin_text_add_len(w->shape, (const char *)&in, sizeof in);
        if (counts)
            w->out->of_inst[i] = number(w, value);
        if (in.kind == KIN_LI_LOAD || in.kind == KIN_LI_INDEX)
            walk_index(w, w->k->insts.at[i].index);
    }
}

static void
walk_actions(walk *w)
{
    for (uint32_t i = 0; i < w->k->actions.len; i++) {
        const kin_loop_action *a = &w->k->actions.at[i];
        uint32_t words[9] = {a->kind, a->op, a->dtype, a->row, a->phase, a->value, a->buffer, a->acc, a->position};
        kin_text_add_len(w->shape, (const char *)words, sizeof words);
        if (a->kind != KIN_LA_REDUCE)
            walk_index(w, a->index);
    }
}

static void
walk_all(walk *w, uint32_t run)
{
    const kin_loops *k = w->k;
    uint32_t head[9] = {k->vars.len, k->insts.len, k->actions.len, k->buffers.len, k->nphases, k->naccs, k->vector_var, k->ordered,
                        k->checks | k->fast_math << 1 | k->window << 2};
    kin_text_add_len(w->shape, (const char *)head, sizeof head);
    for (uint32_t v = 0; v < k->vars.len; v++) {
        say(w, k->vars.at[v].inner);
        if (v == run)
            say(w, 'R');
        else
            w->out->of_var[v] = number(w, k->vars.at[v].size);
    }
    for (uint32_t b = 0; b < k->buffers.len; b++) {
        const kin_loop_buffer *f = &k->buffers.at[b];
        uint32_t words[3] = {f->dtype, f->written | f->streams << 1, f->local};
        kin_text_add_len(w->shape, (const char *)words, sizeof words);
        if (f->local)
            w->out->of_buffer[b] = number(w, f->elements);
    }
    walk_instructions(w);
    walk_actions(w);
}

bool
kin_numbers_of(const kin_loops *k, uint32_t run, kin_numbers *out, kin_text *shape)
{
    size_t lens[] = {k->vars.len, k->ix.exprs.len, k->ix.terms.len, k->ix.atoms.len, k->insts.len, k->buffers.len}, all = 1;
    uint32_t **lists[] = {&out->of_var, &out->of_expr, &out->of_term, &out->of_atom, &out->of_inst, &out->of_buffer};
    *out = (kin_numbers){0};
    for (unsigned i = 0; i < 6; i++)
        all += lens[i];
    walk w = {.k = k, .out = out, .shape = shape};
    uint32_t *at = out->memory = calloc(all, sizeof *at);
    w.expr_met = calloc(k->ix.exprs.len + 1, sizeof *w.expr_met);
    w.atom_met = calloc(k->ix.atoms.len + 1, sizeof *w.atom_met);
    w.failed = out->memory == NULL || w.expr_met == NULL || w.atom_met == NULL;
    for (unsigned i = 0; i < 6 && !w.failed; at += lens[i++])
        *lists[i] = at;
    if (!w.failed)
        walk_all(&w, run);
    free(w.expr_met);
    free(w.atom_met);
    if (w.failed || shape->failed)
        kin_numbers_deinit(out);
    return !w.failed && !shape->failed;
}

void
kin_numbers_deinit(kin_numbers *n)
{
    kin_vec_deinit(&n->at);
    free(n->memory);
    *n = (kin_numbers){0};
}

/* -- families ---------------------------------------------------------------------------------------------------------- */

kin_family *
kin_family_new(bool all)
{
    kin_family *f = calloc(1, sizeof *f);
    if (f != NULL)
        f->all = all;
    return f;
}

void
kin_family_free(kin_family *f)
{
    if (f == NULL)
        return;
    for (uint32_t i = 0; i < f->kernels.len; i++) {
        free(f->kernels.at[i].base);
        free(f->kernels.at[i].open);
    }
    kin_intern_deinit(&f->shapes);
    kin_vec_deinit(&f->kernels);
    kin_vec_deinit(&f->places);
    kin_vec_deinit(&f->constant);
    kin_vec_deinit(&f->seen);
    free(f);
}

uint32_t
kin_family_made(const kin_family *f)
{
    return f->made;
}

kin_status
kin_family_begin(kin_family *f)
{
    f->seen.len = 0;
    for (uint32_t i = 0; i < f->places.len; i++)
        f->places.at[i] = 0;
    return KIN_OK;
}

kin_status
kin_family_add(kin_family *f, const kin_numbers *numbers)
{
    for (uint32_t i = 0; i < numbers->at.len; i++)
        KIN_TRY(kin_vec_push(&f->seen, numbers->at.at[i]));
    return KIN_OK;
}

kin_status
kin_family_settle(kin_family *f)
{
    uint32_t kept = 0;
    kin_words_sort((uint64_t *)f->seen.at, f->seen.len);
    if (f->programs++ == 0) {
        KIN_TRY(kin_vec_reserve(&f->constant, f->seen.len + 1));
        for (uint32_t i = 0; i < f->seen.len; i++)
            if (i == 0 || f->seen.at[i] != f->seen.at[i - 1])
                f->constant.at[f->constant.len++] = f->seen.at[i];
        return KIN_OK;
    }
    for (uint32_t i = 0; i < f->constant.len; i++)
        if (kin_words_have((uint64_t *)f->seen.at, f->seen.len, (uint64_t)f->constant.at[i]))
            f->constant.at[kept++] = f->constant.at[i];
    f->constant.len = kept;
    return KIN_OK;
}

/* A number is opened that differed, or that some program did not have anywhere: then it is no size of the model. */
static void
widen(const kin_family *f, kin_family_kernel *k, const int64_t *now)
{
    k->widened++;
    for (uint32_t i = 0; i < k->n; i++)
        k->open[i] = k->open[i] || k->widened > MOST_WIDENED || f->all || now[i] != k->base[i] || !kin_words_have((uint64_t *)f->constant.at, f->constant.len, (uint64_t)k->base[i]);
}

static bool
fits(const kin_family_kernel *k, const int64_t *now)
{
    for (uint32_t i = 0; i < k->n; i++)
        if (!k->open[i] && now[i] != k->base[i])
            return false;
    return true;
}

static kin_status
add_kernel(kin_family *f, uint32_t shape, uint32_t place, const kin_numbers *numbers, kin_family_kernel **out)
{
    kin_family_kernel k = {.shape = shape, .place = place, .n = numbers->at.len, .base = malloc((numbers->at.len + 1) * sizeof *k.base),
                           .open = calloc(numbers->at.len + 1, sizeof *k.open)};
    if (k.base == NULL || k.open == NULL || kin_vec_push(&f->kernels, k) != KIN_OK) {
        free(k.base);
        free(k.open);
        return KIN_NOMEM;
    }
    if (k.n > 0)
        memcpy(k.base, numbers->at.at, k.n * sizeof *k.base);
    *out = &f->kernels.at[f->kernels.len - 1];
    return KIN_OK;
}

kin_status
kin_family_match(kin_family *f, const kin_text *shape, const kin_numbers *numbers, const bool **open)
{
    bool fresh;
    *open = NULL;
    uint32_t number = kin_intern_put(&f->shapes, shape->at, shape->len, &fresh);
    if (f->shapes.failed || (fresh && kin_vec_push(&f->places, 0u) != KIN_OK))
        return KIN_NOMEM;
    uint32_t place = f->places.at[number]++;
    kin_family_kernel *k = NULL;
    for (uint32_t i = 0; i < f->kernels.len && k == NULL; i++)
        if (f->kernels.at[i].shape == number && f->kernels.at[i].place == place && f->kernels.at[i].n == numbers->at.len)
            k = &f->kernels.at[i];
    if (k == NULL)
        KIN_TRY(add_kernel(f, number, place, numbers, &k));
    if ((f->programs > 1 || f->all) && !k->met_again) {
        k->met_again = true;
        widen(f, k, numbers->at.at);
    }
    while (!fits(k, numbers->at.at))
        widen(f, k, numbers->at.at);
    *open = k->met_again ? k->open : NULL;
    return KIN_OK;
}
