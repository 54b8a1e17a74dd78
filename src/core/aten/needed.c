/* Finds calls that may raise and whose results are not needed in full (aten.h).
 *
 * Kernels compute only what is asked for, so they notice an index out of bounds only if its element is read. Eager notices all of them.
 */
#include "core/aten/aten.h"

#include <stdlib.h>

enum { USED = 1, WHOLE = 2 };

static void
need(const kin_aten *g, uint32_t at, uint32_t n, uint8_t how, uint8_t *needs)
{
    for (uint32_t i = at; i < at + n; i++) {
        const kin_aten_arg *a = &g->args.at[i];
        if (a->kind == KIN_ATEN_VALUE)
            needs[a->value] |= how;
        else if (a->kind == KIN_ATEN_LIST)
            need(g, a->list.child, a->list.count, how, needs);
    }
}

static bool
are_empty(const kin_aten *g, const kin_aten_call *call)
{
    for (uint32_t r = 0; r < call->nresults; r++) {
        bool empty = false;
        for (unsigned d = 0; d < kin_aten_at(g, call->results + r)->ndim; d++)
            empty = empty || kin_aten_sizes(g, call->results + r)[d] == 0;
        if (!empty)
            return false;
    }
    return true;
}

/* The call's arguments, from what is needed of its results. */
static void
pass_on(const kin_aten *g, const kin_aten_call *call, uint8_t *needs)
{
    kin_aten_op op = kin_aten_op_of(call);
    uint8_t how = kin_aten_written(g, call) != NULL ? USED | WHOLE : 0;
    for (uint32_t r = 0; r < call->nresults; r++)
        how |= needs[call->results + r];
    if (how == 0 || call->nargs == 0)
        return;
    if (op == KIN_ATEN_OPS || kin_aten_op_is(op, KIN_ATEN_NEEDS_ALL))
        how = USED | WHOLE;
    uint8_t of_first = !kin_aten_op_is(op, KIN_ATEN_READS_PART) ? how : are_empty(g, call) ? 0 : USED;
    need(g, call->args, 1, of_first, needs);
    need(g, call->args + 1, call->nargs - 1, how, needs);
}

/* Kernels compute elements. Operators of which nothing is known are called as a whole or not at all, and what needs all of its arguments for an element has read all of them. */
static uint8_t
enough_of(const kin_aten_call *call)
{
    kin_aten_op op = kin_aten_op_of(call);
    return op == KIN_ATEN_OPS || kin_aten_op_is(op, KIN_ATEN_NEEDS_ALL) ? USED : WHOLE;
}

uint32_t
kin_aten_raises_unseen(const kin_aten *g)
{
    uint8_t *needs = calloc(g->values.len + 1, 1);
    int64_t *bounds = NULL; /* looked for when they are asked for first */
    uint32_t found = UINT32_MAX;
    for (uint32_t o = 0; needs != NULL && o < g->outputs.len; o++)
        needs[g->outputs.at[o]] = USED | WHOLE;
    for (uint32_t c = g->calls.len; needs != NULL && c-- > 0;) {
        const kin_aten_call *call = &g->calls.at[c];
        uint8_t how = kin_aten_written(g, call) != NULL || kin_aten_has_effect(g, call) ? USED | WHOLE : 0;
        for (uint32_t r = 0; r < call->nresults; r++)
            how |= needs[call->results + r];
        if (!(how & enough_of(call)) && kin_aten_raises(g, call)) {
            bounds = bounds == NULL ? kin_aten_find_bounds(g) : bounds;
            found = kin_aten_places_fit(g, call, bounds) ? found : c;
        }
        pass_on(g, call, needs);
    }
    free(bounds);
    free(needs);
    return found;
}
