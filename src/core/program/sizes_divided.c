/* Sizes divided and rounded (sizes.h), and whose they are: what pools leave of two lengths is alike, or one apart, in all plans, whatever the lengths are. A number may then be made
 * of the one length or of the other. Both rules are kept, and there is an answer only where they agree. */
#include "core/program/sizes_priv.h"

static int64_t
floor_of(int64_t x, int64_t by)
{
    return x / by - (x % by < 0);
}

bool
kin_sizes_narrow(param *p, int64_t size, int64_t value)
{
    const int64_t limit = (int64_t)1 << 40; /* multiples of larger ones get out of hand */
    bool any = false;
    if (value > limit || value < -limit)
        return false;
    for (int64_t by = 2; by <= MOST_BY; by++) {
        int64_t least = value * by - size, most = least + by - 1;
        p->least[by] = least > p->least[by] ? least : p->least[by];
        p->most[by] = most < p->most[by] ? most : p->most[by];
        any = any || p->least[by] <= p->most[by];
    }
    return any;
}

bool
kin_sizes_divide(const param *p, const int64_t of[MOST_PARAMS], int64_t *value)
{
    int64_t size = of[p->size], among = of[p->among];
    bool any = false;
    if (p->kind == SHARED) {
        *value = among > 0 ? size / among : 0;
        return among > 0 && size % among == 0;
    }
    for (int64_t by = 2; by <= MOST_BY; by++) {
        if (p->least[by] > p->most[by])
            continue;
        int64_t one = floor_of(size + p->least[by], by);
        if (one != floor_of(size + p->most[by], by) || (any && one != *value))
            return false;
        *value = one;
        any = true;
    }
    return any;
}

bool
kin_sizes_is_divided(const kin_sizes *s, const column *size, const column *c, param *p)
{
    for (int64_t by = 2; by <= MOST_BY; by++) {
        p->least[by] = INT64_MIN;
        p->most[by] = INT64_MAX;
    }
    for (uint32_t k = 0; k < s->nsamples; k++)
        if (!kin_sizes_narrow(p, kin_sizes_value(s, size, k), kin_sizes_value(s, c, k)))
            return false;
    return true;
}

uint8_t
kin_sizes_root(const kin_sizes *s, uint8_t number)
{
    while (s->params[number].kind == DIVIDED)
        number = s->params[number].size;
    return number;
}

/* Is the column's polynomial made of this size, or of what is left of it? */
static bool
is_made_of(const kin_sizes *s, const poly *f, uint8_t size)
{
    for (unsigned k = 0; k < f->nterms; k++)
        for (unsigned n = 0; n < MOST_FACTORS; n++) {
            if (f->term[k].of[n] == 0)
                continue;
            const param *p = &s->params[f->term[k].of[n] - 1];
            if (p->kind == SHIFTED ? is_made_of(s, &s->columns.at[p->column].is, size)
                                   : kin_sizes_root(s, f->term[k].of[n] - 1) == size || (p->kind == SHARED && (kin_sizes_root(s, p->size) == size || kin_sizes_root(s, p->among) == size)))
                return true;
        }
    return false;
}

bool
kin_sizes_note_rivals(kin_sizes *s)
{
    s->rivals.len = 0;
    for (uint32_t c = 0; c < s->columns.len; c++)
        for (uint32_t k = 0; k < s->nparams && s->nfree > 1; k++) {
            param p = {.column = c, .kind = DIVIDED, .size = (uint8_t)k};
            const column *x = &s->columns.at[c], *size = &s->columns.at[s->params[k].column];
            bool other = s->params[k].kind <= DIVIDED && x->step != 0 && x->is.nterms > 0 && !is_made_of(s, &x->is, kin_sizes_root(s, (uint8_t)k));
            if (other && kin_sizes_is_divided(s, size, x, &p) && kin_vec_push(&s->rivals, p) != KIN_OK)
                return false;
        }
    return true;
}

void
kin_sizes_keep_rivals(kin_sizes *s, uint32_t sample)
{
    uint32_t kept = 0;
    for (uint32_t k = 0; k < s->rivals.len; k++) {
        param *p = &s->rivals.at[k];
        if (kin_sizes_narrow(p, s->met[sample][p->size], kin_sizes_value(s, &s->columns.at[p->column], sample)))
            s->rivals.at[kept++] = *p;
    }
    s->rivals.len = kept;
}

bool
kin_sizes_rivals_agree(const kin_sizes *s, const int64_t of[MOST_PARAMS], const int64_t *values)
{
    int64_t other;
    for (uint32_t k = 0; k < s->rivals.len; k++)
        if (!kin_sizes_divide(&s->rivals.at[k], of, &other) || other != values[s->rivals.at[k].column])
            return false;
    return true;
}
