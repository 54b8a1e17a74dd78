/* Finds polynomials in the sizes, and in sizes divided and rounded, for the numbers of plans (sizes.h). */
#include "core/program/sizes_priv.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/bits.h"
#include "core/base/hash.h"
#include "core/base/table.h"

kin_sizes *
kin_sizes_new(uint32_t ninputs, uint32_t nnumbers, const bool *input_dims, const bool *number_dims)
{
    kin_sizes *s = calloc(1, sizeof *s);
    if (s == NULL)
        return NULL;
    s->ninputs = ninputs;
    s->n = ninputs + nnumbers;
    s->column_of = calloc((size_t)s->n + 1, sizeof *s->column_of);
    s->dims = calloc((size_t)s->n + 1, sizeof *s->dims);
    if (s->column_of == NULL || s->dims == NULL) {
        kin_sizes_free(s);
        return NULL;
    }
    for (uint32_t i = 0; i < s->n; i++)
        s->dims[i] = i < ninputs ? input_dims[i] : number_dims[i - ninputs];
    return s;
}

void
kin_sizes_free(kin_sizes *s)
{
    if (s == NULL)
        return;
    kin_vec_deinit(&s->samples);
    kin_vec_deinit(&s->columns);
    kin_vec_deinit(&s->order);
    kin_vec_deinit(&s->asked);
    kin_vec_deinit(&s->rivals);
    free(s->column_of);
    free(s->dims);
    free(s);
}

bool
kin_sizes_ask(kin_sizes *s, kin_sizes_asks asks, uint32_t number)
{
    asked q = {.asks = asks, .number = s->ninputs + number};
    return kin_vec_push(&s->asked, q) == KIN_OK;
}

static bool agrees(kin_sizes *s);

bool
kin_sizes_add(kin_sizes *s, const int64_t *inputs, const int64_t *numbers)
{
    if (s->nsamples == MOST_SAMPLES)
        return true;
    if (kin_vec_reserve(&s->samples, s->n) != KIN_OK)
        return false;
    memcpy(s->samples.at + s->samples.len, inputs, s->ninputs * sizeof *inputs);
    memcpy(s->samples.at + s->samples.len + s->ninputs, numbers, (s->n - s->ninputs) * sizeof *numbers);
    s->samples.len += s->n;
    s->nsamples++;
    s->fresh = !(s->known && !s->fresh && agrees(s));
    return true;
}

bool
kin_sizes_known(const kin_sizes *s)
{
    return s->known;
}

/* -- columns ------------------------------------------------------------------------------------------------------------- */

static int64_t
raw(const kin_sizes *s, uint32_t sample, uint32_t number)
{
    return s->samples.at[(size_t)sample * s->n + number];
}

/* A number as it is read, and back. */
int64_t
kin_sizes_write(reading as, int64_t value, int64_t by)
{
    switch (as) {
    case AS_INTEGER: return value;
    case AS_DOUBLE: return (int64_t)kin_bits_of_double((double)value);
    case AS_SHARE: return (int64_t)kin_bits_of_double(1.0 / (double)value);
    case AS_SINGLE_SHARE: return (int64_t)kin_bits_of_double((double)(float)(1.0 / (double)value));
    case AS_CORRECTION: return (int64_t)kin_bits_of_double((double)value / (double)(value - 1));
    case AS_QUOTIENT: return (int64_t)kin_bits_of_double((double)value / (double)by);
    case AS_SINGLE_QUOTIENT: return (int64_t)kin_bits_of_double((double)(float)((double)value / (double)by));
    }
    return 0;
}

static bool
read_as(reading as, int64_t number, int64_t by, int64_t *value)
{
    double d = kin_double_of_bits((uint64_t)number);
    if (as == AS_SHARE || as == AS_SINGLE_SHARE)
        d = 1.0 / d;
    if (as == AS_CORRECTION)
        d = d / (d - 1);
    if (as == AS_QUOTIENT || as == AS_SINGLE_QUOTIENT)
        d *= (double)by;
    if (as != AS_INTEGER && !(fabs(d) < 1e15))
        return false;
    *value = as == AS_INTEGER ? number : llround(d);
    return kin_sizes_write(as, *value, by) == number;
}

/* What the number is divided by; params are integers. */
static int64_t
by_of(const kin_sizes *s, const column *c, uint32_t sample)
{
    return c->by == 0 ? 1 : raw(s, sample, s->columns.at[s->params[c->by - 1].column].first);
}

int64_t
kin_sizes_value(const kin_sizes *s, const column *c, uint32_t sample)
{
    int64_t value = 0;
    (void)read_as(c->as, raw(s, sample, c->first), by_of(s, c, sample), &value);
    return value;
}

static bool
is_same(const kin_sizes *s, uint32_t a, uint32_t b)
{
    for (uint32_t k = 0; k < s->nsamples; k++)
        if (raw(s, k, a) != raw(s, k, b))
            return false;
    return true;
}

/* Each number its column; those of inputs come first. False without memory. */
static bool
make_columns(kin_sizes *s)
{
    kin_table table = {0};
    bool ok = true;
    s->columns.len = 0;
    for (uint32_t i = 0; i < s->n && ok; i++) {
        uint64_t hash = 0;
        uint32_t at = 0, c;
        for (uint32_t k = 0; k < s->nsamples; k++)
            hash = kin_hash_word(hash, (uint64_t)raw(s, k, i));
        while ((c = kin_table_next(&table, hash, &at)) != KIN_TABLE_NONE && !is_same(s, s->columns.at[c].first, i))
            ;
        if (c == KIN_TABLE_NONE) {
            c = s->columns.len;
            ok = kin_table_add(&table, hash, c) == KIN_OK && kin_vec_push(&s->columns, (column){.first = i}) == KIN_OK;
        }
        s->column_of[i] = c;
        if (ok)
            s->columns.at[c].dim |= s->dims[i];
    }
    kin_table_deinit(&table);
    return ok;
}

/* -- solving --------------------------------------------------------------------------------------------------------------- */

typedef __int128 wide;

static wide
gcd(wide a, wide b)
{
    while (b != 0) {
        wide rest = a % b;
        a = b;
        b = rest;
    }
    return a < 0 ? -a : a;
}

static wide
product_of(term t, const int64_t values[MOST_PARAMS])
{
    wide value = 1;
    for (unsigned k = 0; k < MOST_FACTORS; k++)
        value *= t.of[k] == 0 ? 1 : values[t.of[k] - 1];
    return value;
}

static void
push_param(kin_sizes *s, param p)
{
    for (uint32_t k = 0; k < s->nsamples; k++)
        s->met[k][s->nparams] = kin_sizes_value(s, &s->columns.at[p.column], k);
    s->params[s->nparams++] = p;
}

/* False: it is no integer, or a very large one. */
bool
kin_sizes_evaluate(const poly *f, const int64_t values[MOST_PARAMS], int64_t *out)
{
    const wide limit = (wide)1 << 62;
    wide sum = f->of[0];
    for (unsigned k = 0; k < f->nterms; k++)
        sum += f->of[k + 1] * product_of(f->term[k], values);
    if (sum % f->by != 0 || sum / f->by > limit || sum / f->by < -limit)
        return false;
    *out = (int64_t)(sum / f->by);
    return true;
}

enum { WIDE_ROW = MOST_TERMS + 2 };

/* Takes what is known away from the row, and what its numbers have in common. */
static void
reduce(wide *row, const wide known[][WIDE_ROW], const unsigned *lead, unsigned n, unsigned unknowns)
{
    for (unsigned r = 0; r < n; r++) {
        wide a = known[r][lead[r]], b = row[lead[r]], common = 0;
        if (b == 0)
            continue;
        for (unsigned k = 0; k <= unknowns; k++) {
            row[k] = row[k] * a - known[r][k] * b;
            common = gcd(common, row[k]);
        }
        for (unsigned k = 0; common > 1 && k <= unknowns; k++)
            row[k] /= common;
    }
}

enum { ALL_PLANS = -1 };

/* The polynomial with these terms through the first of the plans (a bit each) that decide it. False: they do not, or it has no small numbers. */
static bool
solve(const kin_sizes *s, poly *f, uint32_t plans)
{
    wide known[MOST_TERMS + 1][WIDE_ROW];
    unsigned lead[MOST_TERMS + 1], n = 0, unknowns = f->nterms + 1u;
    for (uint32_t k = 0; k < s->nsamples && n < unknowns; k++) {
        wide row[WIDE_ROW] = {(plans >> k & 1) != 0};
        for (unsigned t = 0; t < f->nterms && row[0] != 0; t++)
            row[t + 1] = product_of(f->term[t], s->met[k]);
        row[unknowns] = row[0] * s->now[k];
        reduce(row, known, lead, n, unknowns);
        unsigned first = 0;
        while (first < unknowns && row[first] == 0)
            first++;
        if (first == unknowns)
            continue;
        for (unsigned r = 0; r < n; r++) { /* nothing of it is left in those before */
            const wide mine[1][WIDE_ROW] = {{row[0], row[1], row[2], row[3], row[4]}};
            reduce(known[r], mine, &first, 1, unknowns);
        }
        memcpy(known[n], row, sizeof row);
        lead[n++] = first;
    }
    wide by = 1;
    for (unsigned r = 0; r < n; r++)
        by = by / gcd(by, known[r][lead[r]]) * known[r][lead[r]];
    by = by < 0 ? -by : by;
    if (n < unknowns || by > 1 << 20)
        return false;
    f->by = (int64_t)by;
    for (unsigned r = 0; r < n; r++) {
        wide of = known[r][unknowns] * (by / known[r][lead[r]]);
        if (of > INT64_MAX || of < -INT64_MAX)
            return false;
        f->of[lead[r]] = (int64_t)of;
    }
    return true;
}

static bool
holds(const kin_sizes *s, const poly *f)
{
    int64_t value;
    for (uint32_t k = 0; k < s->nsamples; k++)
        if (!kin_sizes_evaluate(f, s->met[k], &value) || value != s->now[k])
            return false;
    return true;
}

static bool
is_of(term t, uint8_t number)
{
    return t.of[0] == number || t.of[1] == number || t.of[2] == number;
}

bool
kin_sizes_has_divided(const kin_sizes *s, const poly *f)
{
    for (unsigned k = 0; k < f->nterms; k++)
        for (unsigned n = 0; n < MOST_FACTORS; n++)
            if (f->term[k].of[n] > 0 && s->params[f->term[k].of[n] - 1].kind == DIVIDED)
                return true;
    return false;
}

/* With how many different values of its terms was it met? Counted up to `enough`. */
static unsigned
count_rows(const kin_sizes *s, const poly *f, unsigned enough)
{
    wide rows[MOST_TERMS + 2][MOST_TERMS];
    unsigned n = 0;
    for (uint32_t k = 0; k < s->nsamples && n < enough; k++) {
        bool met = false;
        for (unsigned t = 0; t < f->nterms; t++)
            rows[n][t] = product_of(f->term[t], s->met[k]);
        for (unsigned r = 0; r < n && !met; r++)
            met = memcmp(rows[r], rows[n], f->nterms * sizeof *rows[n]) == 0;
        n += !met;
    }
    return n;
}

/* Is it more than a line through the points there are? A size that has had three values only fits whatever depends on anything else, and what a single plan decides about
 * one of several terms is confirmed by none. */
static bool
is_supported(const kin_sizes *s, const poly *f)
{
    unsigned unknowns = 0;
    poly again = *f;
    for (uint32_t k = 0; k < s->nsamples && f->nterms > 1; k++)
        if (!solve(s, &again, ~((uint32_t)1 << k)))
            return false;
    for (unsigned k = 0; k <= f->nterms; k++)
        unknowns += f->of[k] != 0;
    return count_rows(s, f, unknowns + 1) > unknowns;
}

/* Of several terms, one times zero is none, though it takes many values: it would support what the others say of two plans. */
static bool
has_all_terms(const poly *f)
{
    bool all = true;
    for (unsigned k = 1; k <= f->nterms && f->nterms > 1; k++)
        all = all && f->of[k] != 0;
    return all;
}

/* One plan more than it has unknowns has to agree, one for each further size, one for several terms of several sizes, and two for what is divided. */
static bool
try_terms(const kin_sizes *s, column *c, poly f)
{
    unsigned several = f.nterms > 1 && s->nfree > 1, more = several + (kin_sizes_has_divided(s, &f) ? 2u : 0u);
    if (s->nsamples < f.nterms + 1u + s->nfree + more || !solve(s, &f, (uint32_t)ALL_PLANS) || !has_all_terms(&f) || !holds(s, &f) || !is_supported(s, &f))
        return false;
    c->is = f;
    return true;
}

/* Is it a multiple of the term and a constant? Looked at modulo 2^64, so that few have to be solved. */
static bool
may_be(const kin_sizes *s, term t)
{
    uint64_t first = 0, before = 0, slope = 0, rise = 0;
    for (uint32_t k = 0; k < s->nsamples; k++) {
        uint64_t x = (uint64_t)product_of(t, s->met[k]), y = (uint64_t)s->now[k];
        if (k == 0) {
            first = x;
            before = y;
        } else if (slope == 0) {
            slope = x - first;
            rise = y - before;
            if (slope == 0 && rise != 0)
                return false;
        } else if ((x - first) * rise != (y - before) * slope) {
            return false;
        }
    }
    return slope != 0;
}

/* A constant and one term, of fewer factors first. */
static bool
find_single(const kin_sizes *s, column *c)
{
    uint8_t n = (uint8_t)s->nparams;
    for (unsigned factors = 1; factors <= MOST_FACTORS; factors++)
        for (uint8_t x = factors < 3 ? 0 : 1; x <= (factors < 3 ? 0 : n); x++)
            for (uint8_t y = factors < 2 ? 0 : x > 0 ? x : 1; y <= (factors < 2 ? 0 : n); y++)
                for (uint8_t z = y > 0 ? y : 1; z <= n; z++) {
                    term t = {{x, y, z}};
                    if ((x != z || factors < 3) && may_be(s, t) && try_terms(s, c, (poly){.nterms = 1, .term = {t}}))
                        return true;
                }
    return false;
}

/* Two terms of one or two params. */
static bool
find_double(const kin_sizes *s, column *c, uint8_t p, uint8_t q)
{
    const term of[] = {{{0, 0, p}}, {{0, p, p}}, {{0, 0, q}}, {{0, p, q}}, {{0, q, q}}, {{p, p, q}}, {{p, q, q}}};
    uint8_t n = p == q ? 2 : sizeof of / sizeof *of;
    for (uint8_t a = 0; a < n; a++)
        for (uint8_t b = a + 1; b < n; b++)
            if ((p == q || is_of(of[a], q) || is_of(of[b], q)) && try_terms(s, c, (poly){.nterms = 2, .term = {of[a], of[b]}}))
                return true;
    return p != q && (try_terms(s, c, (poly){.nterms = 3, .term = {of[0], of[2], of[3]}}) || try_terms(s, c, (poly){.nterms = 3, .term = {of[0], of[3], of[6]}}) ||
                      try_terms(s, c, (poly){.nterms = 3, .term = {of[2], of[3], of[5]}}));
}

/* A size and what is left of it when it is divided are nearly multiples: a few plans would fit anything said of both. */
static bool
go_together(const kin_sizes *s, uint8_t p, uint8_t q)
{
    bool shifted = s->params[p - 1].kind == SHIFTED || s->params[q - 1].kind == SHIFTED;
    return !shifted && (p == q || kin_sizes_root(s, p - 1) != kin_sizes_root(s, q - 1));
}

static bool
find_several(const kin_sizes *s, column *c)
{
    for (uint8_t q = 1; q <= s->nparams; q++)
        for (uint8_t p = 1; p <= q; p++)
            if (go_together(s, p, q) && find_double(s, c, p, q))
                return true;
    return false;
}

/* -- sizes divided and rounded ------------------------------------------------------------------------------------------------- */

/* How many values it has had, and are none of them so large that products of three get out of hand? 0: some are. */
static uint32_t
count_values(const kin_sizes *s, const column *c)
{
    const int64_t limit = (int64_t)1 << 32;
    uint32_t n = 0;
    for (uint32_t k = 0; k < s->nsamples; k++) {
        int64_t value = kin_sizes_value(s, c, k);
        bool met = false;
        for (uint32_t before = 0; before < k && !met; before++)
            met = kin_sizes_value(s, c, before) == value;
        if (value > limit || value < -limit)
            return 0;
        n += !met;
    }
    return n;
}

/* The number becomes a param of its own, if it is one of the sizes, divided, or one of these, divided once more (layers with strides). A few plans fit many a rule, so
 * several values are asked for. */
static bool
find_divided(kin_sizes *s, uint32_t number)
{
    enum { FEWEST = 3, BOTH = 9 };
    const column *c = &s->columns.at[number];
    uint32_t n = count_values(s, c);
    if (s->nparams == MOST_PARAMS || n < FEWEST)
        return false;
    for (uint32_t k = 0; k < s->nparams; k++) {
        const column *size = &s->columns.at[s->params[k].column];
        param p = {.column = number, .kind = DIVIDED, .size = (uint8_t)k};
        if (s->params[k].kind == SHIFTED || n + count_values(s, size) < BOTH || !kin_sizes_is_divided(s, size, c, &p))
            continue;
        push_param(s, p);
        return true;
    }
    return false;
}

/* ... or if it is what each of one size gets of another. */
static bool
find_shared(kin_sizes *s, uint32_t number)
{
    const column *c = &s->columns.at[number];
    uint8_t n = s->nparams < MOST_PARAMS && count_values(s, c) >= 3 ? (uint8_t)s->nparams : 0;
    for (uint8_t of = 0; of < n; of++)
        for (uint8_t among = 0; among < n; among++) {
            bool shared = of != among;
            for (uint32_t k = 0; k < s->nsamples && shared; k++)
                shared = s->met[k][among] > 0 && (wide)kin_sizes_value(s, c, k) * s->met[k][among] == s->met[k][of];
            if (shared) {
                push_param(s, (param){.column = number, .kind = SHARED, .size = of, .among = among});
                return true;
            }
        }
    return false;
}

/* -- what the columns are ---------------------------------------------------------------------------------------------------- */

static bool
is_constant(const kin_sizes *s, const column *c)
{
    for (uint32_t k = 1; k < s->nsamples; k++)
        if (raw(s, k, c->first) != raw(s, 0, c->first))
            return false;
    return true;
}

/* Takes it as the column that is being explained. */
static bool
can_read(kin_sizes *s, const column *c)
{
    for (uint32_t k = 0; k < s->nsamples; k++)
        if (!read_as(c->as, raw(s, k, c->first), by_of(s, c, k), &s->now[k]))
            return false;
    return true;
}

bool
kin_sizes_is_decided(kin_sizes *s, const column *c, uint32_t plans)
{
    poly f = c->is;
    return can_read(s, c) && solve(s, &f, plans);
}

/* A number over one of the params: what a size is enlarged by. */
static bool
find_quotient(kin_sizes *s, column *c)
{
    for (c->as = AS_QUOTIENT; c->as <= AS_SINGLE_QUOTIENT; c->as++)
        for (c->by = 1; c->by <= s->nparams; c->by++)
            if (can_read(s, c) && find_single(s, c))
                return true;
    c->by = 0;
    return false;
}

/* Is the one a multiple of the other? */
static bool
is_multiple(const poly *f, const poly *of)
{
    return of->nterms == 1 && memcmp(&f->term[0], &of->term[0], sizeof f->term[0]) == 0 && (wide)f->of[0] * of->of[1] == (wide)f->of[1] * of->of[0];
}

/* Products with it are easier said of it than of what it is made of: the rows of a batch of images with a class token each are b * (h * w / 64 + 1). */
static void
note_shifted(kin_sizes *s, uint32_t number)
{
    const poly *f = &s->columns.at[number].is;
    bool shifted = s->columns.at[number].as == AS_INTEGER && f->nterms == 1 && f->of[0] != 0 && s->nparams < MOST_PARAMS;
    for (unsigned k = 0; k < MOST_FACTORS && shifted; k++)
        shifted = f->term[0].of[k] == 0 || s->params[f->term[0].of[k] - 1].kind != SHIFTED;
    for (uint32_t p = 0; p < s->nparams && shifted; p++)
        shifted = s->params[p].kind != SHIFTED || !is_multiple(f, &s->columns.at[s->params[p].column].is);
    if (shifted)
        push_param(s, (param){.column = number, .kind = SHIFTED});
}

/* The number is a param. */
static bool
add_param(kin_sizes *s, uint32_t number)
{
    column *c = &s->columns.at[number];
    if (c->first >= s->ninputs ? !find_divided(s, number) && !find_shared(s, number) : s->nfree == MOST_FREE || count_values(s, c) == 0)
        return false;
    if (c->first < s->ninputs) {
        push_param(s, (param){.column = number, .kind = FREE});
        s->nfree++;
    }
    c->is = (poly){.nterms = 1, .term = {{{0, 0, (uint8_t)s->nparams}}}, .of = {0, 1}, .by = 1};
    return true;
}

/* In one of the ways that take no time. */
static bool
explain_simply(kin_sizes *s, uint32_t number)
{
    column *c = &s->columns.at[number];
    if (is_constant(s, c)) {
        c->is = (poly){.of = {raw(s, 0, c->first)}, .by = 1};
        return true;
    }
    for (c->as = AS_INTEGER; c->as <= AS_CORRECTION; c->as++)
        if (can_read(s, c) && find_single(s, c)) {
            if (c->first >= s->ninputs)
                note_shifted(s, number);
            return true;
        }
    if (c->first >= s->ninputs && find_quotient(s, c))
        return true;
    c->as = AS_INTEGER;
    return c->first >= s->ninputs && add_param(s, number);
}

static bool
explain(kin_sizes *s, uint32_t number)
{
    column *c = &s->columns.at[number];
    if (explain_simply(s, number))
        return true;
    for (c->as = AS_INTEGER; c->as <= AS_CORRECTION; c->as++)
        if (can_read(s, c) && find_several(s, c))
            return true;
    c->as = AS_INTEGER;
    return c->first < s->ninputs && add_param(s, number);
}

static void
widen(column *c, int64_t v)
{
    c->least = v < c->least ? v : c->least;
    c->most = v > c->most ? v : c->most;
    c->step = (int64_t)gcd(c->step, (wide)v - c->at);
    if (v == 0 || v == 1)
        c->met[v] = true;
}

static void
look_at_range(const kin_sizes *s, column *c)
{
    c->least = c->most = c->at = kin_sizes_value(s, c, 0);
    c->step = 0;
    c->met[0] = c->met[1] = false;
    for (uint32_t k = 0; k < s->nsamples; k++)
        widen(c, kin_sizes_value(s, c, k));
}

/* Is the one column never greater than the other in the plans met? */
static bool
compare(const kin_sizes *s, uint32_t a, uint32_t b, pair *out)
{
    bool less = false, greater = false, equal = false;
    for (uint32_t k = 0; k < s->nsamples && !(less && greater); k++) {
        int64_t x = kin_sizes_value(s, &s->columns.at[a], k), y = kin_sizes_value(s, &s->columns.at[b], k);
        less |= x < y;
        greater |= x > y;
        equal |= x == y;
    }
    *out = (pair){less ? a : b, less ? b : a, !equal};
    return less != greater;
}

static bool
note_order(kin_sizes *s)
{
    pair found;
    s->order.len = 0;
    for (uint32_t a = 0; a < s->columns.len; a++)
        for (uint32_t b = a + 1; b < s->columns.len; b++) {
            const column *x = &s->columns.at[a], *y = &s->columns.at[b];
            bool varies = x->as == AS_INTEGER && y->as == AS_INTEGER && x->step != 0 && y->step != 0;
            if (varies && x->dim && y->dim && compare(s, a, b, &found) && kin_vec_push(&s->order, found) != KIN_OK)
                return false;
        }
    return true;
}

typedef struct {
    uint64_t size;
    uint32_t column;
} ranked;

static int
by_size(const void *a, const void *b)
{
    const ranked *x = a, *y = b;
    return x->size != y->size ? (x->size > y->size) - (x->size < y->size) : (x->column > y->column) - (x->column < y->column);
}

/* What inputs have comes first, as it is; then small numbers, which large ones are made of: that b * ceil(n / 16) * 16 is one of b and ceil(n / 16), is found once the latter
 * is known. NULL: no memory. */
static ranked *
in_order(const kin_sizes *s)
{
    ranked *all = malloc((s->columns.len + 1) * sizeof *all);
    uint32_t ninputs = 0;
    for (uint32_t c = 0; all != NULL && c < s->columns.len; c++) {
        int64_t value = raw(s, 0, s->columns.at[c].first);
        all[c] = (ranked){.size = value < 0 ? 0 - (uint64_t)value : (uint64_t)value, .column = c};
        ninputs += s->columns.at[c].first < s->ninputs;
    }
    if (all != NULL)
        qsort(all + ninputs, s->columns.len - ninputs, sizeof *all, by_size);
    return all;
}

/* Those that are not explained come to the front: how many. What is found behind them may explain them (layers with strides: what is small is a part of what is large). */
static uint32_t
explain_all(kin_sizes *s, ranked *order, uint32_t n)
{
    uint32_t left = 0;
    for (uint32_t c = 0; c < n; c++)
        if (!(s->columns.at[order[c].column].first < s->ninputs ? explain : explain_simply)(s, order[c].column))
            order[left++] = order[c];
    return left;
}

static bool
learn(kin_sizes *s)
{
    enum { FEWEST = 3 };
    s->fresh = false;
    s->nparams = s->nfree = 0;
    if (s->nsamples < FEWEST || !make_columns(s))
        return false;
    ranked *order = in_order(s);
    uint32_t left = s->columns.len;
    for (uint32_t before = left + 1; order != NULL && left > 0 && left < before;) {
        before = left;
        left = explain_all(s, order, left);
    }
    bool ok = order != NULL;
    for (uint32_t c = 0; c < left && ok; c++)
        ok = explain(s, order[c].column);
    free(order);
    for (uint32_t c = 0; c < s->columns.len && ok; c++)
        look_at_range(s, &s->columns.at[c]);
    return ok && note_order(s) && kin_sizes_note_rivals(s);
}

/* Does the last plan obey what was learnt before? Then only ranges change. */
static bool
agrees(kin_sizes *s)
{
    uint32_t last = s->nsamples - 1, kept = 0;
    int64_t *values = s->met[last], value;
    for (uint32_t k = 0; k < s->nparams; k++)
        values[k] = kin_sizes_value(s, &s->columns.at[s->params[k].column], last);
    for (uint32_t k = s->nfree; k < s->nparams; k++)
        if ((s->params[k].kind == DIVIDED && !kin_sizes_narrow(&s->params[k], values[s->params[k].size], values[k])) ||
            (s->params[k].kind == SHARED && !(kin_sizes_divide(&s->params[k], values, &value) && value == values[k])))
            return false;
    for (uint32_t i = 0; i < s->n; i++) {
        const column *c = &s->columns.at[s->column_of[i]];
        if (c->is.nterms == 0 ? raw(s, last, i) != c->is.of[0] : !kin_sizes_evaluate(&c->is, values, &value) || kin_sizes_write(c->as, value, c->by == 0 ? 1 : values[c->by - 1]) != raw(s, last, i))
            return false;
    }
    for (uint32_t c = 0; c < s->columns.len; c++)
        if (s->columns.at[c].is.nterms > 0)
            widen(&s->columns.at[c], kin_sizes_value(s, &s->columns.at[c], last));
    for (uint32_t k = 0; k < s->order.len; k++) {
        pair p = s->order.at[k];
        int64_t x = kin_sizes_value(s, &s->columns.at[p.small], last), y = kin_sizes_value(s, &s->columns.at[p.great], last);
        p.strict = p.strict && x != y;
        if (x <= y)
            s->order.at[kept++] = p;
    }
    s->order.len = kept;
    kin_sizes_keep_rivals(s, last);
    return true;
}

void
kin_sizes_update(kin_sizes *s)
{
    if (s->fresh)
        s->known = learn(s);
}
