/* Which steps a replay visits, as a bit set, and which values are constants: a trace of sixteen thousand steps of which four
 * thousand run is walked through a few kilobytes instead of a megabyte.
 */
#include "core/trace/trace_priv.h"

static void
set_bit(uint64_t *bits, uint32_t i)
{
    bits[i / 64] |= UINT64_C(1) << (i % 64);
}

void
kin_trace_free_stops(kin_trace *t)
{
    free(t->stops.runs); /* the other arrays are in the same block */
    t->stops = (kin_stops){0};
}

kin_status
kin_trace_find_stops(kin_trace *t)
{
    size_t words = t->steps.len / 64 + 1;
    uint64_t *made = calloc(2 * words + t->vals.len / 2 + 1, sizeof *made);
    if (made == NULL)
        return KIN_NOMEM;
    kin_trace_free_stops(t);
    t->stops = (kin_stops){t->steps.len, t->vals.len, made, made + words, (kin_ref *)(made + 2 * words)};
    for (uint32_t i = 0; i < t->steps.len; i++) {
        const kin_step *s = &t->steps.at[i];
        if (!(s->flags & KIN_STEP_SUNK) || s->nfrees != 0)
            set_bit(t->stops.runs, i);
        if (!(s->flags & KIN_STEP_SUNK) || s->nfrees != 0 || (s->flags & KIN_STEP_MUTATES))
            set_bit(t->stops.passes, i);
    }
    for (kin_vid v = 0; v < t->vals.len; v++)
        if (t->vals.at[v].kind == KIN_VAL_CONST)
            t->stops.consts[v] = t->vals.at[v].key;
    return KIN_OK;
}
