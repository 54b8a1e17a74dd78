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

/* Plans with other sizes of 0 and 1 say too little of numbers that several terms are added up to. */
static bool
are_decided(kin_sizes *s, uint32_t plans)
{
    for (uint32_t c = 0; c < s->columns.len; c++)
        if (s->columns.at[c].is.nterms > 1 && !kin_sizes_is_decided(s, &s->columns.at[c], plans))
            return false;
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
    return are_answered_as_before(s, values) && are_decided(s, small_where_met(s, of, values));
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
