/* Moves inputs to the front of an ATen graph. Some become known only later (tangents), so values are renumbered. */
#include "core/aten/order.h"

#include <stdlib.h>
#include <string.h>

bool
kin_aten_inputs_first(kin_aten *g, kin_aten_val *now)
{
    kin_aten_value *values = malloc(g->values.len * sizeof *values);
    kin_aten_val next = 1;
    if (values == NULL)
        return false;
    now[0] = 0;
    for (int inputs = 1; inputs >= 0; inputs--)
        for (kin_aten_val v = 1; v < g->values.len; v++)
            if ((g->values.at[v].call == UINT32_MAX) == (inputs == 1)) {
                values[next] = g->values.at[v];
                now[v] = next++;
            }
    memcpy(g->values.at + 1, values + 1, (g->values.len - 1) * sizeof *values);
    free(values);
    for (uint32_t i = 0; i < g->args.len; i++)
        if (g->args.at[i].kind == KIN_ATEN_VALUE)
            g->args.at[i].value = now[g->args.at[i].value];
    for (uint32_t i = 0; i < g->calls.len; i++)
        g->calls.at[i].results = now[g->calls.at[i].results];
    for (uint32_t i = 0; i < g->outputs.len; i++)
        g->outputs.at[i] = now[g->outputs.at[i]];
    return true;
}

bool
kin_aten_is_dense(const kin_aten *g, kin_aten_val v)
{
    const int64_t *sizes = kin_aten_sizes(g, v), *strides = kin_aten_strides(g, v);
    bool done[KIN_IR_MAX_DIMS] = {false};
    int64_t below = 1;
    for (unsigned n = 0; n < kin_aten_at(g, v)->ndim; n++) {
        int next = -1;
        for (unsigned d = 0; d < kin_aten_at(g, v)->ndim && next < 0; d++)
            if (!done[d] && (sizes[d] == 1 || strides[d] == below))
                next = (int)d;
        if (next < 0)
            return false;
        done[next] = true;
        below *= sizes[next];
    }
    return true;
}

void
kin_aten_mark_used(const kin_aten *g, uint32_t at, uint32_t n, bool *used)
{
    for (uint32_t i = at; i < at + n; i++) {
        const kin_aten_arg *a = &g->args.at[i];
        if (a->kind == KIN_ATEN_VALUE)
            used[kin_aten_at(g, a->value)->storage] = true;
        else if (a->kind == KIN_ATEN_LIST)
            kin_aten_mark_used(g, a->list.child, a->list.count, used);
    }
}

void
kin_aten_used_from(const kin_aten *g, uint32_t first, bool *used)
{
    memset(used, 0, (g->nstorages + 1) * sizeof *used);
    for (uint32_t c = first; c < g->calls.len; c++)
        kin_aten_mark_used(g, g->calls.at[c].args, g->calls.at[c].nargs, used);
}
