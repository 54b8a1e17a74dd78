/* Finds polynomials in the sizes for the numbers of plans (sizes.h). */
#include "core/program/sizes.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/bits.h"
#include "core/base/hash.h"
#include "core/base/table.h"
#include "core/base/vec.h"

enum { MOST_PARAMS = 2, MOST_TERMS = 3, MOST_SAMPLES = 32, NO_HOPE = 10, NONE = UINT32_MAX };

/* Powers of the two sizes in each term; those of one size first. */
static const uint8_t powers[][2] = {{1, 0}, {2, 0}, {0, 1}, {1, 1}, {0, 2}, {2, 1}, {1, 2}};
enum { NPOWERS = sizeof powers / sizeof *powers, NPOWERS_OF_ONE = 2 };

/* (of[0] + of[1] * power + ...) / by */
typedef struct {
    uint8_t nterms, term[MOST_TERMS];
    int64_t of[MOST_TERMS + 1], by;
} poly;

/* Numbers that are the bits of a double: that of an integer, or one over it, perhaps rounded to single precision. */
typedef enum { AS_INTEGER, AS_DOUBLE, AS_SHARE, AS_SINGLE_SHARE } reading;

/* Inputs and numbers that were the same in all plans. */
typedef struct {
    uint32_t first;       /* of the inputs and numbers */
    reading as;
    poly is;
    int64_t least, most, at, step; /* all are at + some times step */
    bool met[2];          /* 0, 1: they decide what there is at all */
} column;

struct kin_sizes {
    uint32_t ninputs, n;      /* n: with the numbers */
    uint32_t nsamples;
    KIN_VEC(int64_t) samples; /* n each */
    bool fresh, known;        /* fresh: samples were added since the columns were made */
    uint32_t *column_of;      /* by input, number */
    KIN_VEC(column) columns;
    KIN_VEC(uint32_t) order;  /* pairs of columns, the first smaller in all plans */
    uint32_t params[MOST_PARAMS], nparams; /* columns */
    uint32_t ahead;           /* samples when one was asked for ahead */
};

kin_sizes *
kin_sizes_new(uint32_t ninputs, uint32_t nnumbers)
{
    kin_sizes *s = calloc(1, sizeof *s);
    if (s == NULL || (s->column_of = calloc((size_t)ninputs + nnumbers + 1, sizeof *s->column_of)) == NULL) {
        free(s);
        return NULL;
    }
    s->ninputs = ninputs;
    s->n = ninputs + nnumbers;
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
    free(s->column_of);
    free(s);
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

bool
kin_sizes_wants_more(const kin_sizes *s)
{
    return s->nsamples < NO_HOPE && !s->known;
}

/* -- columns ------------------------------------------------------------------------------------------------------------- */

static int64_t
raw(const kin_sizes *s, uint32_t sample, uint32_t number)
{
    return s->samples.at[(size_t)sample * s->n + number];
}

/* A number as it is read, and back. */
static int64_t
write_as(reading as, int64_t value)
{
    switch (as) {
    case AS_INTEGER: return value;
    case AS_DOUBLE: return (int64_t)kin_bits_of_double((double)value);
    case AS_SHARE: return (int64_t)kin_bits_of_double(1.0 / (double)value);
    case AS_SINGLE_SHARE: return (int64_t)kin_bits_of_double((double)(float)(1.0 / (double)value));
    }
    return 0;
}

static bool
read_as(reading as, int64_t number, int64_t *value)
{
    double d = kin_double_of_bits((uint64_t)number);
    if (as == AS_SHARE || as == AS_SINGLE_SHARE)
        d = 1.0 / d;
    if (as != AS_INTEGER && !(fabs(d) < 1e15))
        return false;
    *value = as == AS_INTEGER ? number : llround(d);
    return write_as(as, *value) == number;
}

static int64_t
value_of(const kin_sizes *s, const column *c, uint32_t sample)
{
    int64_t value = 0;
    (void)read_as(c->as, raw(s, sample, c->first), &value);
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
power_of(uint8_t term, int64_t p, int64_t q)
{
    wide value = 1;
    for (unsigned k = 0; k < powers[term][0]; k++)
        value *= p;
    for (unsigned k = 0; k < powers[term][1]; k++)
        value *= q;
    return value;
}

static void
params_at(const kin_sizes *s, uint32_t sample, int64_t pq[MOST_PARAMS])
{
    for (uint32_t k = 0; k < MOST_PARAMS; k++)
        pq[k] = k < s->nparams ? value_of(s, &s->columns.at[s->params[k]], sample) : 0;
}

/* False: it is no integer, or a very large one. */
static bool
evaluate(const poly *f, const int64_t pq[MOST_PARAMS], int64_t *out)
{
    const wide limit = (wide)1 << 62;
    wide sum = f->of[0];
    for (unsigned k = 0; k < f->nterms; k++)
        sum += f->of[k + 1] * power_of(f->term[k], pq[0], pq[1]);
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

/* The polynomial with these terms through the first plans that decide it. False: they do not, or it has no small numbers. */
static bool
solve(const kin_sizes *s, const column *c, poly *f)
{
    wide known[MOST_TERMS + 1][WIDE_ROW];
    unsigned lead[MOST_TERMS + 1], n = 0, unknowns = f->nterms + 1u;
    for (uint32_t k = 0; k < s->nsamples && n < unknowns; k++) {
        wide row[WIDE_ROW] = {1};
        int64_t pq[MOST_PARAMS];
        params_at(s, k, pq);
        for (unsigned t = 0; t < f->nterms; t++)
            row[t + 1] = power_of(f->term[t], pq[0], pq[1]);
        row[unknowns] = value_of(s, c, k);
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
holds(const kin_sizes *s, const column *c, const poly *f)
{
    for (uint32_t k = 0; k < s->nsamples; k++) {
        int64_t pq[MOST_PARAMS], value;
        params_at(s, k, pq);
        if (!evaluate(f, pq, &value) || value != value_of(s, c, k))
            return false;
    }
    return true;
}

/* One plan more than it has unknowns has to agree, with two sizes two. */
static bool
try_terms(const kin_sizes *s, column *c, poly f)
{
    if (s->nsamples < f.nterms + 1u + s->nparams || !solve(s, c, &f) || !holds(s, c, &f))
        return false;
    c->is = f;
    return true;
}

/* The simplest polynomial first. */
static bool
find_poly(const kin_sizes *s, column *c)
{
    uint8_t n = s->nparams == 0 ? 0 : s->nparams == 1 ? NPOWERS_OF_ONE : NPOWERS;
    for (uint8_t a = 0; a < n; a++)
        if (try_terms(s, c, (poly){.nterms = 1, .term = {a}}))
            return true;
    for (uint8_t a = 0; a < n; a++)
        for (uint8_t b = a + 1; b < n; b++)
            if (try_terms(s, c, (poly){.nterms = 2, .term = {a, b}}))
                return true;
    return s->nparams == 2 && try_terms(s, c, (poly){.nterms = 3, .term = {0, 2, 3}});
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

static bool
can_read(const kin_sizes *s, const column *c)
{
    int64_t value;
    for (uint32_t k = 0; k < s->nsamples; k++)
        if (!read_as(c->as, raw(s, k, c->first), &value))
            return false;
    return true;
}

static bool
explain(kin_sizes *s, uint32_t number)
{
    column *c = &s->columns.at[number];
    if (is_constant(s, c)) {
        c->is = (poly){.of = {raw(s, 0, c->first)}, .by = 1};
        return true;
    }
    for (c->as = AS_INTEGER; c->as <= AS_SINGLE_SHARE; c->as++)
        if (can_read(s, c) && find_poly(s, c))
            return true;
    c->as = AS_INTEGER;
    if (c->first >= s->ninputs || s->nparams == MOST_PARAMS)
        return false;
    s->params[s->nparams] = number;
    c->is = (poly){.nterms = 1, .term = {s->nparams == 0 ? 0 : 2}, .of = {0, 1}, .by = 1};
    s->nparams++;
    return true;
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
    c->least = c->most = c->at = value_of(s, c, 0);
    c->step = 0;
    c->met[0] = c->met[1] = false;
    for (uint32_t k = 0; k < s->nsamples; k++)
        widen(c, value_of(s, c, k));
}

/* -1, 1: column a is the smaller, the greater one in all plans; 0: neither. */
static int
compare(const kin_sizes *s, const column *a, const column *b)
{
    int all = 0;
    for (uint32_t k = 0; k < s->nsamples; k++) {
        int64_t x = value_of(s, a, k), y = value_of(s, b, k);
        int one = x < y ? -1 : x > y;
        if (one == 0 || (all != 0 && one != all))
            return 0;
        all = one;
    }
    return all;
}

static bool
note_order(kin_sizes *s)
{
    s->order.len = 0;
    for (uint32_t a = 0; a < s->columns.len; a++)
        for (uint32_t b = a + 1; b < s->columns.len; b++) {
            const column *x = &s->columns.at[a], *y = &s->columns.at[b];
            int order = x->as != AS_INTEGER || y->as != AS_INTEGER || x->step == 0 || y->step == 0 ? 0 : compare(s, x, y);
            if (order != 0 && (kin_vec_push(&s->order, order < 0 ? a : b) != KIN_OK || kin_vec_push(&s->order, order < 0 ? b : a) != KIN_OK))
                return false;
        }
    return true;
}

static bool
learn(kin_sizes *s)
{
    enum { FEWEST = 3 };
    s->fresh = false;
    s->nparams = 0;
    if (s->nsamples < FEWEST || !make_columns(s))
        return false;
    for (uint32_t c = 0; c < s->columns.len; c++) {
        if (!explain(s, c))
            return false;
        look_at_range(s, &s->columns.at[c]);
    }
    return note_order(s);
}

/* Does the last plan obey what was learnt before? Then only ranges change. */
static bool
agrees(kin_sizes *s)
{
    uint32_t last = s->nsamples - 1, kept = 0;
    int64_t pq[MOST_PARAMS], value;
    params_at(s, last, pq);
    for (uint32_t i = 0; i < s->n; i++) {
        const column *c = &s->columns.at[s->column_of[i]];
        if (c->is.nterms == 0 ? raw(s, last, i) != c->is.of[0] : !evaluate(&c->is, pq, &value) || write_as(c->as, value) != raw(s, last, i))
            return false;
    }
    for (uint32_t c = 0; c < s->columns.len; c++)
        if (s->columns.at[c].is.nterms > 0)
            widen(&s->columns.at[c], value_of(s, &s->columns.at[c], last));
    for (uint32_t k = 0; k < s->order.len; k += 2) {
        const column *x = &s->columns.at[s->order.at[k]], *y = &s->columns.at[s->order.at[k + 1]];
        if (value_of(s, x, last) >= value_of(s, y, last))
            continue;
        s->order.at[kept++] = s->order.at[k];
        s->order.at[kept++] = s->order.at[k + 1];
    }
    s->order.len = kept;
    return true;
}

/* -- answers ----------------------------------------------------------------------------------------------------------------- */

static bool
is_like_those_met(const column *c, int64_t v)
{
    return v >= c->least && v <= c->most && (v - c->at) % c->step == 0 && ((v != 0 && v != 1) || c->met[v]);
}

/* Values of all columns; false: one is not like those met. */
static bool
values_for(const kin_sizes *s, const int64_t *inputs, int64_t *values)
{
    int64_t pq[MOST_PARAMS] = {0};
    for (uint32_t k = 0; k < s->nparams; k++)
        pq[k] = inputs[s->columns.at[s->params[k]].first];
    for (uint32_t c = 0; c < s->columns.len; c++) {
        const column *x = &s->columns.at[c];
        if (x->is.nterms == 0) /* perhaps bits */
            values[c] = x->is.of[0];
        else if (!evaluate(&x->is, pq, &values[c]) || !is_like_those_met(x, values[c]))
            return false;
    }
    for (uint32_t k = 0; k < s->order.len; k += 2)
        if (values[s->order.at[k]] >= values[s->order.at[k + 1]])
            return false;
    return true;
}

bool
kin_sizes_eval(kin_sizes *s, const int64_t *inputs, int64_t *numbers)
{
    if (s->fresh)
        s->known = learn(s);
    int64_t *values = s->known ? malloc((s->columns.len + 1) * sizeof *values) : NULL;
    bool ok = values != NULL && values_for(s, inputs, values);
    for (uint32_t i = 0; i < s->n && ok; i++) {
        const column *c = &s->columns.at[s->column_of[i]];
        int64_t number = write_as(c->as, values[s->column_of[i]]);
        if (i < s->ninputs)
            ok = inputs[i] == number;
        else
            numbers[i - s->ninputs] = number;
    }
    free(values);
    return ok;
}

/* In the last plan it is greater than in all before. */
static bool
is_new_most(const kin_sizes *s, const column *c)
{
    int64_t last = value_of(s, c, s->nsamples - 1);
    for (uint32_t k = 0; k + 1 < s->nsamples; k++)
        if (value_of(s, c, k) >= last)
            return false;
    return true;
}

bool
kin_sizes_ahead(kin_sizes *s, int64_t *inputs)
{
    if (s->fresh)
        s->known = learn(s);
    if (!s->known || s->nparams == 0 || s->ahead == s->nsamples)
        return false;
    s->ahead = s->nsamples;
    int64_t pq[MOST_PARAMS];
    bool grows = false;
    params_at(s, s->nsamples - 1, pq);
    for (uint32_t k = 0; k < s->nparams; k++) {
        const column *c = &s->columns.at[s->params[k]];
        if (!is_new_most(s, c))
            continue;
        int64_t far = 2 * pq[k];
        pq[k] = c->step > 0 ? far - (far - c->at) % c->step : far;
        grows = grows || pq[k] > c->most;
    }
    for (uint32_t i = 0; i < s->ninputs && grows; i++) {
        const column *c = &s->columns.at[s->column_of[i]];
        grows = c->as == AS_INTEGER && evaluate(&c->is, pq, &inputs[i]);
    }
    return grows;
}

/* -- for people ---------------------------------------------------------------------------------------------------------------- */

static void
print_poly(const poly *f, kin_text *out)
{
    bool any = false;
    for (unsigned k = 0; k < f->nterms; k++) {
        if (f->of[k + 1] == 0)
            continue;
        kin_text_addf(out, "%s%lld", any ? " + " : "", (long long)f->of[k + 1]);
        any = true;
        for (unsigned p = 0; p < MOST_PARAMS; p++)
            for (unsigned n = 0; n < powers[f->term[k]][p]; n++)
                kin_text_addf(out, "*s%u", p);
    }
    if (f->of[0] != 0 || !any)
        kin_text_addf(out, "%s%lld", any ? " + " : "", (long long)f->of[0]);
    if (f->by != 1)
        kin_text_addf(out, " over %lld", (long long)f->by);
}

bool
kin_sizes_print(kin_sizes *s, kin_text *out)
{
    static const char *const readings[] = {"", "double of ", "1 over ", "single 1 over "};
    if (s->fresh)
        s->known = learn(s);
    for (uint32_t i = 0; i < s->n && s->known; i++) {
        const column *c = &s->columns.at[s->column_of[i]];
        if (c->is.nterms == 0)
            continue;
        kin_text_addf(out, "%s %u = %s", i < s->ninputs ? "input" : "number", i < s->ninputs ? i : i - s->ninputs, readings[c->as]);
        print_poly(&c->is, out);
        kin_text_addf(out, "\n");
    }
    return !out->failed;
}
