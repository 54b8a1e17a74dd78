/* Index expressions in a canonical form: terms sorted by atom, no zero coefficients, equal ones numbered once. */
#include "core/fuse/index.h"

#include <stddef.h>

enum { MOST_TERMS = 64 };

typedef struct {
    int64_t constant;
    int64_t claimed;               /* its range is narrower than that of its terms: the last "term", which is none, is the range */
    kin_ix_term terms[MOST_TERMS + 1]; /* behind the others: the bytes up to the last term are the key */
    uint32_t nterms;
} sum;

/* Without clearing the room for its terms, which would take longer than what is mostly done with it. */
static void
begin_sum(sum *s, int64_t constant)
{
    s->constant = constant;
    s->claimed = 0;
    s->nterms = 0;
}

void
kin_ix_init(kin_ix_space *s)
{
    *s = (kin_ix_space){0};
    (void)kin_ix_const(s, 0);
}

/* All but those for which variables were split, as they stay split. */
static void
forget_questions(kin_ix_space *s)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < s->asked.len; i++)
        if (s->asked.at[i].is.asks == KIN_SIZES_DIVIDES)
            s->asked.at[kept++] = s->asked.at[i];
    s->asked.len = kept;
}

void
kin_ix_clear(kin_ix_space *s)
{
    s->exprs.len = s->terms.len = s->atoms.len = 0;
    forget_questions(s);
    kin_intern_clear(&s->expr_keys);
    kin_intern_clear(&s->atom_keys);
    s->split = s->failed = false;
    (void)kin_ix_const(s, 0);
}

void
kin_ix_deinit(kin_ix_space *s)
{
    kin_vec_deinit(&s->exprs);
    kin_vec_deinit(&s->terms);
    kin_vec_deinit(&s->atoms);
    kin_vec_deinit(&s->asked);
    kin_intern_deinit(&s->expr_keys);
    kin_intern_deinit(&s->atom_keys);
}

static void
range_of(const kin_ix_space *s, kin_ix_expr *e, const sum *from)
{
    e->lo = e->hi = from->constant;
    for (uint32_t i = 0; i < from->nterms; i++) {
        const kin_ix_atom *a = &s->atoms.at[from->terms[i].atom];
        int64_t c = from->terms[i].coef;
        e->lo += c * (c > 0 ? a->lo : a->hi);
        e->hi += c * (c > 0 ? a->hi : a->lo);
    }
}

/* Expressions with the same terms and different claims are different ones. */
static kin_ix
intern_expr(kin_ix_space *s, const sum *from, const kin_ix_expr *claim)
{
    if (s->failed)
        return 0;
    bool fresh;
    uint32_t n = kin_intern_put(&s->expr_keys, from, offsetof(sum, terms) + (from->nterms + (claim != NULL)) * sizeof *from->terms, &fresh);
    if (!fresh) {
        s->failed |= s->expr_keys.failed;
        return n;
    }
    kin_ix_expr e = {.constant = from->constant, .terms = s->terms.len, .nterms = from->nterms};
    range_of(s, &e, from);
    if (claim != NULL)
        e.lo = claim->lo, e.hi = claim->hi;
    for (uint32_t i = 0; i < from->nterms; i++)
        s->failed |= kin_vec_push(&s->terms, from->terms[i]) != KIN_OK;
    s->failed |= kin_vec_push(&s->exprs, e) != KIN_OK;
    return s->failed ? 0 : n;
}

static kin_ix
intern_sum(kin_ix_space *s, const sum *from)
{
    return intern_expr(s, from, NULL);
}

static void
sum_of(const kin_ix_space *s, kin_ix e, sum *out)
{
    const kin_ix_expr *x = kin_ix_at(s, e);
    out->constant = x->constant;
    out->claimed = 0;
    out->nterms = x->nterms;
    if (x->nterms)
        memcpy(out->terms, s->terms.at + x->terms, x->nterms * sizeof *out->terms);
}

static kin_ix
one_term(kin_ix_space *s, uint64_t atom)
{
    if (s->failed)
        return 0;
    sum one;
    begin_sum(&one, 0);
    one.terms[one.nterms++] = (kin_ix_term){.coef = 1, .atom = atom};
    return intern_sum(s, &one);
}

static uint64_t
intern_atom(kin_ix_space *s, uint32_t kind, uint32_t of, int64_t by, int64_t lo, int64_t hi)
{
    struct {
        uint32_t kind, of;
        int64_t by;
    } key = {kind, of, by};
    bool fresh;
    uint32_t n = kin_intern_put(&s->atom_keys, &key, sizeof key, &fresh);
    kin_ix_atom a = {.kind = kind, .of = of, .by = by, .lo = lo, .hi = hi};
    if (fresh)
        s->failed |= kin_vec_push(&s->atoms, a) != KIN_OK;
    s->failed |= s->atom_keys.failed;
    return n;
}

kin_ix
kin_ix_const(kin_ix_space *s, int64_t c)
{
    sum one;
    begin_sum(&one, c);
    return intern_sum(s, &one);
}

kin_ix
kin_ix_var(kin_ix_space *s, uint32_t var, int64_t size)
{
    return size <= 1 ? 0 : one_term(s, intern_atom(s, KIN_IX_VAR, var, 0, 0, size - 1));
}

kin_ix
kin_ix_value(kin_ix_space *s, uint32_t inst, int64_t lo, int64_t hi)
{
    return one_term(s, intern_atom(s, KIN_IX_VALUE, inst, 0, lo, hi));
}

/* -- quotient and remainder of the same make the whole: x % n + x / n * n ----------------------------------------- */

/* Does `of` name y / q? */
static bool
is_quotient(const kin_ix_space *s, kin_ix of, kin_ix y, int64_t q)
{
    const kin_ix_expr *x = kin_ix_at(s, of);
    if (x->nterms != 1 || x->constant || s->terms.at[x->terms].coef != 1)
        return false;
    const kin_ix_atom *a = &s->atoms.at[s->terms.at[x->terms].atom];
    return a->kind == KIN_IX_DIV && a->of == y && a->by == q;
}

static bool
belong_together(const kin_ix_space *s, const kin_ix_term *rest, const kin_ix_term *multiple)
{
    const kin_ix_atom *m = &s->atoms.at[rest->atom], *d = &s->atoms.at[multiple->atom];
    if (m->kind != KIN_IX_MOD || d->kind != KIN_IX_DIV || multiple->coef != rest->coef * m->by || d->by % m->by)
        return false;
    return d->by == m->by ? d->of == m->of : is_quotient(s, m->of, d->of, d->by / m->by);
}

static void
drop_term(sum *z, uint32_t i)
{
    memmove(z->terms + i, z->terms + i + 1, (z->nterms - i - 1) * sizeof *z->terms);
    z->nterms--;
}

/* Takes such a pair out of z and gives what it makes; 0: there is none. */
static kin_ix
take_whole(kin_ix_space *s, sum *z)
{
    for (uint32_t i = 0; i < z->nterms; i++)
        for (uint32_t j = 0; j < z->nterms; j++)
            if (belong_together(s, &z->terms[i], &z->terms[j])) {
                kin_ix whole = kin_ix_affine(s, s->atoms.at[z->terms[i].atom].of, z->terms[i].coef, 0);
                drop_term(z, i > j ? i : j);
                drop_term(z, i > j ? j : i);
                return whole;
            }
    return 0;
}

kin_ix
kin_ix_add(kin_ix_space *s, kin_ix a, kin_ix b)
{
    sum x, y, z;
    sum_of(s, a, &x);
    sum_of(s, b, &y);
    begin_sum(&z, x.constant + y.constant);
    uint32_t i = 0, j = 0;
    while (i < x.nterms || j < y.nterms) {
        if (z.nterms == MOST_TERMS) {
            s->failed = true;
            return 0;
        }
        kin_ix_term t;
        if (j == y.nterms || (i < x.nterms && x.terms[i].atom < y.terms[j].atom)) {
            t = x.terms[i++];
        } else if (i == x.nterms || y.terms[j].atom < x.terms[i].atom) {
            t = y.terms[j++];
        } else {
            t = x.terms[i++];
            t.coef += y.terms[j++].coef;
        }
        if (t.coef)
            z.terms[z.nterms++] = t;
    }
    kin_ix whole = take_whole(s, &z);
    return whole && !s->failed ? kin_ix_add(s, intern_sum(s, &z), whole) : intern_sum(s, &z);
}

kin_ix
kin_ix_affine(kin_ix_space *s, kin_ix a, int64_t factor, int64_t c)
{
    sum x;
    sum_of(s, a, &x);
    if (factor == 0)
        x.nterms = 0;
    x.constant = x.constant * factor + c;
    for (uint32_t i = 0; i < x.nterms; i++)
        x.terms[i].coef *= factor;
    return intern_sum(s, &x);
}

static int64_t
floor_mod(int64_t a, int64_t by)
{
    int64_t r = a % by;
    return r < 0 ? r + by : r;
}

/* a = *multiple * by + *rest, with terms divided up by whether their coefficient is a multiple. */
static void
divide(kin_ix_space *s, kin_ix a, int64_t by, kin_ix *multiple, kin_ix *rest)
{
    sum x, m, r;
    sum_of(s, a, &x);
    begin_sum(&r, floor_mod(x.constant, by));
    begin_sum(&m, (x.constant - r.constant) / by);
    for (uint32_t i = 0; i < x.nterms; i++) {
        kin_ix_term t = x.terms[i];
        if (t.coef % by == 0) {
            t.coef /= by;
            m.terms[m.nterms++] = t;
        } else {
            r.terms[r.nterms++] = t;
        }
    }
    *multiple = intern_sum(s, &m);
    *rest = intern_sum(s, &r);
}

/* x = k * *whole + *small with 0 <= *small < k and nothing negative? */
static bool
take_out(kin_ix_space *s, const sum *x, int64_t k, kin_ix *whole, kin_ix *small)
{
    sum w, r;
    begin_sum(&w, x->constant / k);
    begin_sum(&r, x->constant % k);
    for (uint32_t i = 0; i < x->nterms; i++) {
        kin_ix_term t = x->terms[i];
        bool multiple = t.coef % k == 0;
        t.coef /= multiple ? k : 1;
        *(multiple ? &w.terms[w.nterms++] : &r.terms[r.nterms++]) = t;
    }
    *whole = intern_sum(s, &w);
    *small = intern_sum(s, &r);
    const kin_ix_expr *e = kin_ix_at(s, *small);
    return e->lo >= 0 && e->hi < k && kin_ix_at(s, *whole)->lo >= 0;
}

/* rest / by or rest % by remains. When rest = k * whole + small with k dividing by and 0 <= small < k, only the whole matters; the largest such k. */
static bool
leading_part(kin_ix_space *s, kin_ix rest, int64_t by, int64_t *k, kin_ix *whole, kin_ix *small)
{
    sum x;
    int64_t below = by;
    sum_of(s, rest, &x);
    do {
        *k = 1;
        for (uint32_t i = 0; i < x.nterms; i++)
            if (x.terms[i].coef > *k && x.terms[i].coef < below && by % x.terms[i].coef == 0)
                *k = x.terms[i].coef;
        below = *k;
        if (*k > 1 && take_out(s, &x, *k, whole, small))
            return true;
    } while (*k > 1);
    return false;
}

/* For sizes that do not divide up, another kernel is needed. */
static void
note_split(kin_ix_space *s, int64_t size, int64_t by)
{
    if (s->varying && kin_vec_push(&s->asked, ((kin_ix_asked){{.asks = KIN_SIZES_DIVIDES, .a = size, .b = by}, 0, 0})) != KIN_OK)
        s->failed = true;
}

static void
ask_for_split(kin_ix_space *s, kin_ix e, int64_t by)
{
    const kin_ix_expr *x = kin_ix_at(s, e);
    if (s->split || x->nterms != 1 || x->constant || s->terms.at[x->terms].coef != 1)
        return;
    const kin_ix_atom *a = &s->atoms.at[s->terms.at[x->terms].atom];
    if (a->kind != KIN_IX_VAR || (a->hi + 1) % by)
        return;
    note_split(s, a->hi + 1, by);
    s->split = true;
    s->split_var = a->of;
    s->split_at = by;
}

kin_ix
kin_ix_div(kin_ix_space *s, kin_ix a, int64_t by)
{
    kin_ix multiple, rest, whole, small;
    int64_t k;
    if (by == 1)
        return a;
    divide(s, a, by, &multiple, &rest);
    if (kin_ix_at(s, rest)->lo >= 0 && kin_ix_at(s, rest)->hi < by)
        return multiple;
    if (leading_part(s, rest, by, &k, &whole, &small))
        return kin_ix_add(s, multiple, kin_ix_div(s, whole, by / k));
    if (kin_ix_at(s, rest)->lo < 0) { /* the multiples matter for the sign: one quotient of the whole */
        rest = a;
        multiple = 0;
    }
    ask_for_split(s, rest, by);
    kin_ix_expr e = *kin_ix_at(s, rest);
    return kin_ix_add(s, multiple, one_term(s, intern_atom(s, KIN_IX_DIV, rest, by, e.lo / by, e.hi / by)));
}

kin_ix
kin_ix_mod(kin_ix_space *s, kin_ix a, int64_t by)
{
    kin_ix multiple, rest, whole, small;
    int64_t k;
    if (by == 1)
        return 0;
    divide(s, a, by, &multiple, &rest);
    if (kin_ix_at(s, rest)->lo >= 0 && kin_ix_at(s, rest)->hi < by)
        return rest;
    if (leading_part(s, rest, by, &k, &whole, &small))
        return kin_ix_add(s, small, kin_ix_affine(s, kin_ix_mod(s, whole, by / k), k, 0));
    if (kin_ix_at(s, rest)->lo < 0)
        rest = a;
    ask_for_split(s, rest, by);
    return one_term(s, intern_atom(s, KIN_IX_MOD, rest, by, 0, by - 1));
}

/* -- what depends on how numbers compare ------------------------------------------------------------------------------ */

/* Two ends of ranges, by what they are the ends of: END_OF(LARGEST, e). Numbers that happen to be equal for the sizes at hand (a batch of four, four heads) stay two, so that
 * plans for all sizes have the same questions. */
enum { NUMBER, LARGEST, SMALLEST, DIVIDED_LARGEST, DIVIDED_SMALLEST, WRAPPED, PARTS };
#define END_OF(which, e) ((uint64_t)(which) << 32 | (e))

/* `of`, `than`: what a and b are the ends of; 0: numbers, which are told apart by their values. */
static void
note(kin_ix_space *s, kin_sizes_question q, uint64_t of, uint64_t than)
{
    for (uint32_t i = 0; i < s->asked.len; i++) {
        const kin_ix_asked *one = &s->asked.at[i];
        if (one->of == of && one->than == than && one->is.asks == q.asks && (of != 0 || one->is.a == q.a) && (than != 0 || one->is.b == q.b))
            return;
    }
    s->failed = s->failed || kin_vec_push(&s->asked, ((kin_ix_asked){q, of, than})) != KIN_OK;
}

static bool
is_at_least(kin_ix_space *s, int64_t a, int64_t b, uint64_t of, uint64_t than)
{
    const int64_t most = (int64_t)1 << 59;
    if (s->varying && a > -most && a < most && b > -most && b < most)
        note(s, kin_sizes_is_at_least(a, b), of, than);
    return a >= b;
}

bool
kin_ix_is_at_least(kin_ix_space *s, int64_t a, int64_t b)
{
    return is_at_least(s, a, b, 0, 0);
}

bool
kin_ix_is_above(kin_ix_space *s, kin_ix a, kin_ix b)
{
    return is_at_least(s, kin_ix_at(s, a)->lo, kin_ix_at(s, b)->hi, END_OF(SMALLEST, a), END_OF(LARGEST, b));
}

bool
kin_ix_reaches(kin_ix_space *s, kin_ix e, int64_t at)
{
    return is_at_least(s, kin_ix_at(s, e)->hi, at, END_OF(LARGEST, e), 0);
}

bool
kin_ix_begins_at(kin_ix_space *s, kin_ix e, int64_t at)
{
    return is_at_least(s, kin_ix_at(s, e)->lo, at, END_OF(SMALLEST, e), 0);
}

void
kin_ix_note_division(kin_ix_space *s, kin_ix a, int64_t by)
{
    const kin_ix_expr *x = kin_ix_at(s, a);
    int64_t rest = (x->constant % by + by) % by, multiple = x->constant - rest;
    if (s->varying && x->constant != 0) {
        note(s, (kin_sizes_question){.asks = KIN_SIZES_WRAPPED, .a = x->constant, .b = by, .gives = rest}, END_OF(WRAPPED, a), 0);
        note(s, (kin_sizes_question){.asks = KIN_SIZES_PARTS, .a = multiple, .b = by, .gives = multiple / by}, END_OF(PARTS, a), 0);
    }
    is_at_least(s, x->hi - multiple, by, END_OF(DIVIDED_LARGEST, a), 0);
    is_at_least(s, x->lo - multiple, 0, END_OF(DIVIDED_SMALLEST, a), 0);
}

/* -- what masks say ------------------------------------------------------------------------------------------------ */

kin_ix
kin_ix_within(kin_ix_space *s, kin_ix a, int64_t size)
{
    bool begins = kin_ix_begins_at(s, a, 0), ends = !kin_ix_reaches(s, a, size);
    if ((begins && ends) || !kin_ix_reaches(s, a, 0) || kin_ix_begins_at(s, a, size) || size <= 0 || s->failed)
        return a;
    const kin_ix_expr *x = kin_ix_at(s, a);
    return one_term(s, intern_atom(s, KIN_IX_WITHIN, a, size, x->lo < 0 ? 0 : x->lo, x->hi < size ? x->hi : size - 1));
}

/* The expression behind what is divided, which is read as far as it reached before. */
static kin_ix
claim(kin_ix_space *s, kin_ix plain, kin_ix as)
{
    sum x;
    kin_ix_expr range = *kin_ix_at(s, as);
    if (plain == as)
        return plain;
    sum_of(s, plain, &x);
    x.claimed = 1;
    x.terms[x.nterms] = (kin_ix_term){.coef = range.lo, .atom = (uint64_t)range.hi};
    return intern_expr(s, &x, &range);
}

static kin_ix
plain_atom(kin_ix_space *s, uint64_t atom)
{
    kin_ix_atom a = s->atoms.at[atom];
    if (a.kind == KIN_IX_VAR || a.kind == KIN_IX_VALUE)
        return one_term(s, atom);
    if (a.kind == KIN_IX_WITHIN)
        return a.of;
    kin_ix of = claim(s, kin_ix_plain(s, a.of), a.of);
    return one_term(s, of == a.of ? atom : intern_atom(s, a.kind, of, a.by, a.lo, a.hi));
}

kin_ix
kin_ix_plain(kin_ix_space *s, kin_ix a)
{
    sum x;
    sum_of(s, a, &x);
    kin_ix plain = kin_ix_const(s, x.constant);
    for (uint32_t i = 0; i < x.nterms; i++)
        plain = kin_ix_add(s, plain, kin_ix_affine(s, plain_atom(s, x.terms[i].atom), x.terms[i].coef, 0));
    return s->failed ? 0 : plain;
}

bool
kin_ix_has_steps(const kin_ix_space *s, kin_ix e)
{
    const kin_ix_expr *x = kin_ix_at(s, e);
    for (uint32_t t = 0; t < x->nterms; t++)
        if (s->terms.at[x->terms + t].coef > 1)
            return true;
    return false;
}
