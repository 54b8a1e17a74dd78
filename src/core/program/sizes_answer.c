/* Answers for further sizes from the polynomials that sizes.c has found (sizes.h), and plans that would allow more of them. */
#include <stdlib.h>

#include "core/program/sizes_priv.h"

/* Which numbers lie outside of what was met: more than the largest, less than the smallest. */
typedef struct {
    bool above, below;
} beyond;

/* Apart from the range. */
static bool
is_like_those_met(const column *c, int64_t v)
{
    return (c->step != 0 || v == c->at) && ((v != 0 && v != 1) || c->met[v]); /* 0: a constant over a param */
}

static void
note_range(const column *c, int64_t v, beyond *out)
{
    out->above |= v > c->most;
    out->below |= v < c->least;
}

static bool
is_in_order(const pair *p, const int64_t *values)
{
    return p->strict ? values[p->small] < values[p->great] : values[p->small] <= values[p->great];
}

/* What the column's number is in a plan, when all values are known. */
static int64_t
number_of(const kin_sizes *s, uint32_t column_number, const int64_t *values)
{
    const column *c = &s->columns.at[column_number];
    return kin_sizes_write(c->as, values[column_number], c->by == 0 ? 1 : values[s->params[c->by - 1].column]);
}

static bool
are_alike_small(int64_t a, int64_t b)
{
    return a == b || ((a != 0 && a != 1) && (b != 0 && b != 1));
}

/* The plans (a bit each) with 0 and 1 in the same places: among the params and the sizes of all that there is. If one of two sizes was 1 in all of them, whichever, nothing
 * is known of plans for two larger ones. */
static uint32_t
small_where_met(const kin_sizes *s, const int64_t of[MOST_PARAMS], const int64_t *values)
{
    uint32_t plans = 0;
    for (uint32_t k = 0; k < s->nsamples; k++) {
        bool alike = true;
        for (uint32_t p = 0; p < s->nparams && alike; p++)
            alike = are_alike_small(of[p], s->met[k][p]);
        for (uint32_t c = 0; c < s->columns.len && alike; c++) {
            const column *x = &s->columns.at[c];
            alike = !x->dim || x->is.nterms == 0 || x->as != AS_INTEGER || are_alike_small(values[c], s->samples.at[(size_t)k * s->n + x->first]);
        }
        plans |= (uint32_t)alike << k;
    }
    return plans;
}

/* -- sizes that the plans met decide ------------------------------------------------------------------------------------------- */

/* Plans that lie on lines (rows 4 apart of any number, two rows any distance apart) fit sums as well as products: 4n + d - 4 and (n - 1)d + 4 are the same there. A number is decided
 * for sizes whose products, of two params each, are a sum of multiples of those in the plans: then all that fit the plans are the same for these sizes. Linear algebra modulo a prime,
 * where numbers stay small. */
typedef unsigned __int128 product;
enum { MOST_MONOMIALS = 1 + 4 + 6 + MOST_TERMS };
static const uint64_t PRIME = ((uint64_t)1 << 61) - 1;

static uint64_t
times(uint64_t a, uint64_t b)
{
    product all = (product)a * b;
    uint64_t sum = (uint64_t)(all & PRIME) + (uint64_t)(all >> 61);
    return sum >= PRIME ? sum - PRIME : sum;
}

static uint64_t
inverse_of(uint64_t a)
{
    uint64_t power = 1;
    for (uint64_t by = PRIME - 2; by > 0; by /= 2, a = times(a, a))
        power = by % 2 != 0 ? times(power, a) : power;
    return power;
}

static uint64_t
reduced(int64_t v)
{
    int64_t rest = v % (int64_t)PRIME;
    return (uint64_t)(rest < 0 ? rest + (int64_t)PRIME : rest);
}

/* The params that a polynomial is of, in ascending order. False: more than are looked at. */
static bool
params_of(const poly *f, uint8_t params[4], unsigned *n)
{
    *n = 0;
    for (uint8_t p = 1; p <= MOST_PARAMS; p++) {
        bool any = false;
        for (unsigned t = 0; t < f->nterms; t++)
            for (unsigned k = 0; k < MOST_FACTORS; k++)
                any = any || f->term[t].of[k] == p;
        if (any && *n == 4)
            return false;
        if (any)
            params[(*n)++] = p;
    }
    return true;
}

static bool
is_product_of_two(term t)
{
    return t.of[0] == 0 && t.of[1] != t.of[2]; /* or one param alone */
}

static uint64_t
product_of(term t, const int64_t *values)
{
    uint64_t value = 1;
    for (unsigned k = 0; k < MOST_FACTORS; k++)
        value = t.of[k] == 0 ? value : times(value, reduced(values[t.of[k] - 1]));
    return value;
}

/* 1, the params, their products, and what else the polynomial is made of. */
static unsigned
monomials(const poly *f, const uint8_t *params, unsigned n, const int64_t *values, uint64_t out[MOST_MONOMIALS])
{
    unsigned count = 0;
    out[count++] = 1;
    for (unsigned i = 0; i < n; i++) {
        out[count++] = reduced(values[params[i] - 1]);
        for (unsigned j = 0; j < i; j++)
            out[count++] = times(reduced(values[params[i] - 1]), reduced(values[params[j] - 1]));
    }
    for (unsigned t = 0; t < f->nterms; t++)
        if (!is_product_of_two(f->term[t]))
            out[count++] = product_of(f->term[t], values);
    return count;
}

/* Takes away what the rows, each led by a 1, already say; the first that is left, or `count`. */
static unsigned
take_away(uint64_t *row, uint64_t known[][MOST_MONOMIALS], const unsigned *lead, unsigned n, unsigned count)
{
    for (unsigned r = 0; r < n; r++) {
        uint64_t by = row[lead[r]];
        for (unsigned k = 0; k < count && by != 0; k++)
            row[k] = (row[k] + times(PRIME - by, known[r][k])) % PRIME;
    }
    unsigned first = 0;
    while (first < count && row[first] == 0)
        first++;
    return first;
}

/* Are the products at these sizes a sum of multiples of those in the plans? */
static bool
is_spanned(const kin_sizes *s, const poly *f, const uint8_t *params, unsigned nparams, const int64_t of[MOST_PARAMS])
{
    uint64_t known[MOST_MONOMIALS][MOST_MONOMIALS], row[MOST_MONOMIALS];
    unsigned lead[MOST_MONOMIALS], n = 0;
    for (uint32_t k = 0; k < s->nsamples; k++) {
        unsigned count = monomials(f, params, nparams, s->met[k], row), first = take_away(row, known, lead, n, count);
        if (n == count)
            return true;
        if (first == count)
            continue;
        uint64_t by = inverse_of(row[first]);
        for (unsigned i = 0; i < count; i++)
            known[n][i] = times(row[i], by);
        lead[n++] = first;
    }
    unsigned count = monomials(f, params, nparams, of, row);
    return take_away(row, known, lead, n, count) == count;
}

static bool
is_decided_for(const kin_sizes *s, const poly *f, const int64_t of[MOST_PARAMS])
{
    unsigned nparams;
    uint8_t params[4];
    return params_of(f, params, &nparams) && (nparams < 2 || is_spanned(s, f, params, nparams, of));
}

/* Is the product of these params (from 1; 0: none) another one here, though it was the same in all plans? */
static bool
leaves_constant(const kin_sizes *s, const int64_t of[MOST_PARAMS], term t)
{
    uint64_t first = product_of(t, s->met[0]);
    for (uint32_t k = 1; k < s->nsamples; k++)
        if (product_of(t, s->met[k]) != first)
            return false;
    return product_of(t, of) != first;
}

/* Which side of the line from plan 0 to plan `to` the pair lies on, modulo a prime; 0: it lies on it. */
static uint64_t
beside(const kin_sizes *s, uint32_t to, uint8_t p, uint8_t q, const int64_t *values)
{
    const int64_t *from = s->met[0], *on = s->met[to];
    uint64_t left = times(reduced(on[p - 1] - from[p - 1]), reduced(values[q - 1] - from[q - 1]));
    return (left + PRIME - times(reduced(on[q - 1] - from[q - 1]), reduced(values[p - 1] - from[p - 1]))) % PRIME;
}

/* Did these params (from 1) lie on one line in all plans, and do not now? Sums of both may have been constant. */
static bool
leaves_line(const kin_sizes *s, const int64_t of[MOST_PARAMS], uint8_t p, uint8_t q)
{
    uint32_t to = 0;
    for (uint32_t k = 1; k < s->nsamples; k++) {
        bool here = s->met[k][p - 1] == s->met[0][p - 1] && s->met[k][q - 1] == s->met[0][q - 1];
        to = to == 0 && !here ? k : to;
        if (beside(s, to, p, q, s->met[k]) != 0)
            return false;
    }
    return to != 0 && beside(s, to, p, q, of) != 0;
}

static bool
are_free_spanned(const kin_sizes *s, const int64_t of[MOST_PARAMS])
{
    static const uint8_t free_ones[MOST_FREE] = {1, 2, 3, 4};
    const poly three = {.nterms = 1, .term = {{{1, 2, 3}}}}, none = {0};
    return s->nfree < 2 || is_spanned(s, s->nfree == 3 ? &three : &none, free_ones, s->nfree, of);
}

/* Batches that are filled up to a number of elements (12 rows of 1, 6 of 2, 4 of 3) have that number in all plans: it is no constant, and 2 and 11 of them are another one. So the products
 * of the sizes that vary must be decided by the plans, whatever the numbers are made of; and what was constant, or on a line, must be, for what is left of sizes that are divided, too. */
static bool
are_products_decided(const kin_sizes *s, const int64_t of[MOST_PARAMS])
{
    if (!are_free_spanned(s, of))
        return false;
    for (uint8_t q = 2; q <= s->nparams; q++)
        for (uint8_t p = 1; p < q; p++)
            if (leaves_constant(s, of, (term){{0, p, q}}) || leaves_constant(s, of, (term){{p, p, q}}) || leaves_constant(s, of, (term){{p, q, q}}) ||
                (q > s->nfree && leaves_line(s, of, p, q)))
                return false;
    return true;
}

bool
kin_sizes_wants_more(const kin_sizes *s)
{
    static const int64_t any[MOST_PARAMS] = {1000003, 2000029, 4000037, 8000009}; /* a combination of those in the plans only if all sizes are */
    return s->nsamples < NO_HOPE && (!s->known || s->fresh || !are_free_spanned(s, any));
}

/* Plans with other sizes of 0 and 1 say too little of numbers that several terms are added up to. */
static bool
are_decided(kin_sizes *s, uint32_t plans, const int64_t of[MOST_PARAMS])
{
    for (uint32_t c = 0; c < s->columns.len; c++) {
        const poly *f = &s->columns.at[c].is;
        if (f->nterms > 1 && (!kin_sizes_is_decided(s, &s->columns.at[c], plans) || !is_decided_for(s, f, of)))
            return false;
    }
    return plans != 0;
}

/* -- what programs ask -------------------------------------------------------------------------------------------------------- */

static int64_t
remainder_of(int64_t a, int64_t b)
{
    int64_t rest = a % b;
    return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}

/* a, b and what is given, in the plan asked for and in one that was met. What is found by dividing a size is right for all remainders. */
static bool
has_same_answer(const kin_sizes *s, const asked *q, const int64_t now[3], const int64_t then[3])
{
    bool any = now[1] != 0 && now[1] != -1; /* by which the least of all numbers cannot be divided */
    int64_t rest = any ? remainder_of(now[0], now[1]) : 0;
    bool order = (now[0] < now[1]) == (then[0] < then[1]) && (now[0] > now[1]) == (then[0] > then[1]);
    bool divides = any && now[1] == then[1] && (rest == remainder_of(then[0], then[1]) || kin_sizes_has_divided(s, &s->columns.at[s->column_of[q->number + 2]].is));
    switch (q->asks) {
    case KIN_SIZES_REMAINDER: return divides && now[2] == rest;
    case KIN_SIZES_QUOTIENT: return divides && now[2] == (now[0] - rest) / now[1];
    case KIN_SIZES_ORDER: return order;
    case KIN_SIZES_EXTREME: return order && now[2] == (then[2] == then[0] ? now[0] : now[1]);
    case KIN_SIZES_EQUAL: return (now[0] == now[1]) == (then[0] == then[1]);
    case KIN_SIZES_DIVIDES: return any && then[1] != 0 && (rest == 0) == (then[0] % then[1] == 0);
    case KIN_SIZES_VALUE: return now[0] == then[0];
    case KIN_SIZES_WRAPPED: return any && now[2] == rest;
    case KIN_SIZES_PLACE: return now[2] == kin_sizes_place(now[0], now[1]);
    case KIN_SIZES_BETWEEN: return now[2] == (now[0] > now[1] ? now[0] - now[1] : 0);
    case KIN_SIZES_PARTS: return any && now[2] == (now[0] - rest) / now[1] + (rest != 0);
    }
    return false;
}

/* Was there a plan for which all questions had the answers that they have now? */
static bool
are_answered_as_before(const kin_sizes *s, const int64_t *values)
{
    bool same = s->asked.len == 0;
    for (uint32_t k = 0; k < s->nsamples && !same; k++) {
        const int64_t *sample = s->samples.at + (size_t)k * s->n;
        same = true;
        for (uint32_t i = 0; i < s->asked.len && same; i++) {
            const asked *q = &s->asked.at[i];
            int64_t now[3];
            for (uint32_t n = 0; n < 3; n++)
                now[n] = number_of(s, s->column_of[q->number + n], values);
            same = has_same_answer(s, q, now, sample + q->number);
        }
    }
    return same;
}

/* Values of all columns; false: one is not like those met. */
static bool
values_for(kin_sizes *s, const int64_t *inputs, int64_t *values, beyond *out)
{
    int64_t of[MOST_PARAMS] = {0};
    for (uint32_t k = 0; k < s->nparams; k++) {
        const param *p = &s->params[k];
        const column *c = &s->columns.at[p->column];
        if (p->kind == FREE)
            of[k] = inputs[c->first];
        else if (p->kind != SHIFTED ? !kin_sizes_divide(p, of, &of[k]) : !kin_sizes_evaluate(&c->is, of, &of[k]))
            return false;
        if (!is_like_those_met(c, of[k]))
            return false;
        note_range(c, of[k], out);
    }
    for (uint32_t c = 0; c < s->columns.len; c++) {
        const column *x = &s->columns.at[c];
        if (x->is.nterms == 0) { /* perhaps bits */
            values[c] = x->is.of[0];
            continue;
        }
        if (!kin_sizes_evaluate(&x->is, of, &values[c]) || !is_like_those_met(x, values[c]))
            return false;
        note_range(x, values[c], out);
    }
    for (uint32_t k = 0; k < s->order.len; k++)
        if (!is_in_order(&s->order.at[k], values))
            return false;
    for (uint32_t i = 0; i < s->ninputs; i++)
        if (inputs[i] != number_of(s, s->column_of[i], values))
            return false;
    return kin_sizes_rivals_agree(s, of, values) && are_answered_as_before(s, values) && are_products_decided(s, of) && are_decided(s, small_where_met(s, of, values), of);
}

/* New memory: the values of all columns for these inputs; NULL: they are not known, if it were not for what is `out` of the ranges met. */
static int64_t *
find_values(kin_sizes *s, const int64_t *inputs, beyond *out)
{
    kin_sizes_update(s);
    int64_t *values = s->known ? malloc((s->columns.len + 1) * sizeof *values) : NULL;
    if (values != NULL && values_for(s, inputs, values, out))
        return values;
    free(values);
    return NULL;
}

bool
kin_sizes_eval(kin_sizes *s, const int64_t *inputs, int64_t *numbers)
{
    beyond out = {0};
    int64_t *values = find_values(s, inputs, &out);
    bool ok = values != NULL && !out.above && !out.below;
    for (uint32_t i = s->ninputs; i < s->n && ok; i++)
        numbers[i - s->ninputs] = number_of(s, s->column_of[i], values);
    free(values);
    return ok;
}

/* -- wider ranges --------------------------------------------------------------------------------------------------------------- */

/* The largest power of two that is not larger. */
static int64_t
power_below(int64_t v)
{
    int64_t power = 1;
    while (power <= v / 2)
        power *= 2;
    return power;
}

/* The number before a power of two, at least a third larger. Passes mostly decide at such numbers. */
static int64_t
edge_above(int64_t v)
{
    int64_t power = power_below(v);
    return 2 * power - 1 - v < v / 3 ? 4 * power - 1 : 2 * power - 1;
}

/* Where the range of a size that is v now is to end. */
static int64_t
end_of_range(const column *c, int64_t v, const beyond *out, bool far)
{
    if (far && out->above && !out->below)
        return edge_above(v > c->most ? v : c->most);
    if (far && out->below && !out->above) {
        int64_t power = power_below(v < c->least ? v : c->least);
        return power > 8 ? power / 4 : power > 2 ? 2 : power;
    }
    if (v > c->most || v < c->least)
        return v > c->most ? edge_above(v) : power_below(v);
    return out->above && out->below ? v : out->above ? c->most : c->least;
}

/* What a size is in the plan that widens the range. If only numbers that are made of sizes lie outside, all sizes are as large, or as small, as they were;
 * at first (`far`), all are as far outside as they may well be in other calls, so that no further plan is needed for those. */
static int64_t
wider(const column *c, int64_t v, const beyond *out, bool far)
{
    int64_t by = c->step > 0 ? kin_sizes_divisor(c) : 1, end = end_of_range(c, v, out, far);
    return end == c->most || end == c->least ? end : end - (end - v) % by; /* of the same remainder, and between v and the end */
}

/* Is it as large as one before it, though those asked for differ? Passes would take the two for the same size. */
static bool
meets_another(const kin_sizes *s, const int64_t *inputs, const int64_t *values, uint32_t k)
{
    for (uint32_t j = 0; j < k; j++)
        if (values[j] == values[k] && inputs[s->columns.at[s->params[j].column].first] != inputs[s->columns.at[s->params[k].column].first])
            return true;
    return false;
}

bool
kin_sizes_widen(kin_sizes *s, const int64_t *inputs, int64_t *far)
{
    enum { MOST_VAIN = 3 }; /* the first of them far */
    beyond out = {0};
    int64_t values[MOST_PARAMS] = {0}, *now = s->vain < MOST_VAIN ? find_values(s, inputs, &out) : NULL;
    bool ok = now != NULL && (out.above || out.below), other = false;
    free(now);
    for (uint32_t k = 0; k < s->nfree && ok; k++) {
        const column *c = &s->columns.at[s->params[k].column];
        int64_t v = inputs[c->first], by = c->step > 0 ? kin_sizes_divisor(c) : 1;
        values[k] = wider(c, v, &out, s->vain == 0);
        for (int64_t step = values[k] > c->most ? -by : by; meets_another(s, inputs, values, k);) /* at most one for each size before it */
            values[k] += step;
        other = other || values[k] != inputs[c->first];
    }
    for (uint32_t i = 0; i < s->ninputs && ok; i++) {
        const column *c = &s->columns.at[s->column_of[i]];
        ok = c->as == AS_INTEGER && kin_sizes_evaluate(&c->is, values, &far[i]);
    }
    return ok && other;
}

void
kin_sizes_in_vain(kin_sizes *s)
{
    s->vain++;
}
