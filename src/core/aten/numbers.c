/* Numbers that differ from run to run (a temperature, a scale, a counter) as inputs of the graph. A graph holds them as plain numbers, because that is
 * how operators get them; a second capture with other numbers shows which ones they are.
 */
#include "core/aten/aten.h"

static bool
is_same_number(const kin_aten_arg *a, const kin_aten_arg *b)
{
    return memcmp(&a->i, &b->i, sizeof a->i) == 0;
}

/* The input that has this number in one graph and that in the other; 0: none. */
static kin_aten_val
origin_of(const kin_aten_arg *a, const kin_aten_arg *b, const kin_aten_number *numbers, uint32_t n)
{
    for (uint32_t k = 0; k < n; k++)
        if (numbers[k].kind == (kin_aten_arg_kind)a->kind && memcmp(&numbers[k].now, &a->i, sizeof a->i) == 0 && memcmp(&numbers[k].probe, &b->i, sizeof b->i) == 0)
            return numbers[k].input;
    return 0;
}

static bool
is_same_arg(const kin_aten *g, const kin_aten_arg *a, const kin_aten *h, const kin_aten_arg *b)
{
    if (a->kind != b->kind || a->written != b->written || strcmp(kin_aten_text(g, a->name), kin_aten_text(h, b->name)) != 0)
        return false;
    switch ((kin_aten_arg_kind)a->kind) {
    case KIN_ATEN_NONE: case KIN_ATEN_INT: case KIN_ATEN_FLOAT: return true; /* numbers are compared by themselves */
    case KIN_ATEN_BOOL: case KIN_ATEN_DTYPE: return a->i == b->i;
    case KIN_ATEN_STR: case KIN_ATEN_WORD: return strcmp(kin_aten_text(g, a->text), kin_aten_text(h, b->text)) == 0;
    case KIN_ATEN_VALUE: return a->value == b->value;
    case KIN_ATEN_LIST: return a->list.child == b->list.child && a->list.count == b->list.count;
    }
    return false;
}

static bool
is_same_value(const kin_aten *g, const kin_aten *h, kin_aten_val v)
{
    const kin_aten_value *a = kin_aten_at(g, v), *b = kin_aten_at(h, v);
    size_t row = a->ndim * sizeof(int64_t);
    return a->dtype == b->dtype && a->ndim == b->ndim && a->storage == b->storage && a->offset == b->offset && a->call == b->call &&
           memcmp(kin_aten_sizes(g, v), kin_aten_sizes(h, v), row) == 0 && memcmp(kin_aten_strides(g, v), kin_aten_strides(h, v), row) == 0;
}

/* Is everything but numbers the same? */
static bool
is_alike(const kin_aten *g, const kin_aten *h)
{
    bool same = g->calls.len == h->calls.len && g->args.len == h->args.len && g->values.len == h->values.len;
    for (uint32_t c = 0; same && c < g->calls.len; c++) {
        const kin_aten_call *a = &g->calls.at[c], *b = &h->calls.at[c];
        same = a->args == b->args && a->nargs == b->nargs && a->results == b->results && a->nresults == b->nresults &&
               strcmp(kin_aten_text(g, a->op), kin_aten_text(h, b->op)) == 0;
    }
    for (uint32_t i = 0; same && i < g->args.len; i++)
        same = is_same_arg(g, &g->args.at[i], h, &h->args.at[i]);
    for (kin_aten_val v = 1; same && v < g->values.len; v++)
        same = is_same_value(g, h, v);
    return same;
}

/* Do the operators get each number that differs? What became of one that does not show was decided by its value (a size, a whole number made of it). */
static bool
all_show(const kin_aten *g, const kin_aten_number *numbers, uint32_t n)
{
    bool all = true;
    for (uint32_t k = 0; all && k < n; k++) {
        bool shows = memcmp(&numbers[k].now, &numbers[k].probe, sizeof numbers[k].now) == 0;
        for (uint32_t i = 0; !shows && i < g->args.len; i++)
            shows = g->args.at[i].open == numbers[k].input;
        all = shows;
    }
    return all;
}

bool
kin_aten_find_numbers(kin_aten *g, const kin_aten *probe, const kin_aten_number *numbers, uint32_t n)
{
    free(g->asked);
    g->asked = NULL;
    bool found = is_alike(g, probe) && (g->asked = calloc(g->ninputs + 1, sizeof *g->asked)) != NULL;
    for (uint32_t i = 0; found && i < g->args.len; i++) {
        kin_aten_arg *a = &g->args.at[i];
        if ((a->kind != KIN_ATEN_INT && a->kind != KIN_ATEN_FLOAT) || is_same_number(a, &probe->args.at[i]))
            continue;
        a->open = origin_of(a, &probe->args.at[i], numbers, n);
        found = a->open != 0;
    }
    found = found && all_show(g, numbers, n);
    for (uint32_t i = 0; !found && i < g->args.len; i++)
        g->args.at[i].open = 0;
    return found;
}

void
kin_aten_ask(const kin_aten *g, const kin_aten_arg *a)
{
    if (a->open != 0)
        g->asked[kin_aten_at(g, a->open)->input] = true;
}

bool
kin_aten_is_asked(const kin_aten *g)
{
    bool any = false;
    for (uint32_t i = 0; g->asked != NULL && i < g->ninputs; i++)
        any = any || g->asked[i];
    return any;
}
