/* What is known of plans, for people (sizes.h). */
#include "core/program/sizes_priv.h"

static void print_poly(const kin_sizes *s, const poly *f, kin_text *out);

static void
print_param(const kin_sizes *s, uint32_t number, kin_text *out)
{
    const param *p = &s->params[number];
    int64_t by = 2;
    switch (p->kind) {
    case FREE:
        kin_text_addf(out, "*s%u", number);
        return;
    case DIVIDED:
        while (p->least[by] > p->most[by])
            by++;
        kin_text_addf(out, "*[(s%u + %lld) / %lld]", p->size, (long long)p->least[by], (long long)by);
        return;
    case SHARED:
        kin_text_addf(out, "*[s%u / s%u]", p->size, p->among);
        return;
    case SHIFTED:
        kin_text_add(out, "*(");
        print_poly(s, &s->columns.at[p->column].is, out);
        kin_text_add(out, ")");
    }
}

static void
print_poly(const kin_sizes *s, const poly *f, kin_text *out)
{
    bool any = false;
    for (unsigned k = 0; k < f->nterms; k++) {
        if (f->of[k + 1] == 0)
            continue;
        kin_text_addf(out, "%s%lld", any ? " + " : "", (long long)f->of[k + 1]);
        any = true;
        for (unsigned n = 0; n < MOST_FACTORS; n++)
            if (f->term[k].of[n] > 0)
                print_param(s, f->term[k].of[n] - 1u, out);
    }
    if (f->of[0] != 0 || !any)
        kin_text_addf(out, "%s%lld", any ? " + " : "", (long long)f->of[0]);
    if (f->by != 1)
        kin_text_addf(out, " over %lld", (long long)f->by);
}

bool
kin_sizes_print(kin_sizes *s, kin_text *out)
{
    static const char *const readings[] = {"", "double of ", "1 over ", "single 1 over ", "correction of ", "quotient of ", "single quotient of "};
    kin_sizes_update(s);
    for (uint32_t i = 0; i < s->n && s->known; i++) {
        const column *c = &s->columns.at[s->column_of[i]];
        if (c->is.nterms == 0)
            continue;
        kin_text_addf(out, "%s %u = %s", i < s->ninputs ? "input" : "number", i < s->ninputs ? i : i - s->ninputs, readings[c->as]);
        print_poly(s, &c->is, out);
        if (c->by > 0) {
            kin_text_add(out, " over ");
            print_param(s, c->by - 1u, out);
        }
        kin_text_addf(out, "\n");
    }
    return !out->failed;
}
