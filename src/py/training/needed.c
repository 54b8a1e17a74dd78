/* Which of the captured operators a result comes from (training_priv.h): going back from one result asks for nothing that only the others need, so that
 * what has happened to their inputs since does not matter.
 *
 * Followed by memory, from the last operator to the first: one that makes or writes memory that is needed, or does something else beside
 * (draws random numbers), is needed, and so is all that it takes.
 */
#include "py/training/training_priv.h"

#include <stdlib.h>

static void
mark_args(const kin_aten *g, uint32_t first, uint32_t n, bool *storages)
{
    for (uint32_t i = first; i < first + n; i++) {
        const kin_aten_arg *a = &g->args.at[i];
        if (a->kind == KIN_ATEN_VALUE)
            storages[kin_aten_at(g, a->value)->storage] = true;
        else if (a->kind == KIN_ATEN_LIST)
            mark_args(g, a->list.child, a->list.count, storages);
    }
}

static bool
writes(const kin_aten *g, uint32_t first, uint32_t n, const bool *storages)
{
    bool does = false;
    for (uint32_t i = first; !does && i < first + n; i++) {
        const kin_aten_arg *a = &g->args.at[i];
        does = a->kind == KIN_ATEN_VALUE ? a->written && storages[kin_aten_at(g, a->value)->storage]
                                         : a->kind == KIN_ATEN_LIST && writes(g, a->list.child, a->list.count, storages);
    }
    return does;
}

static bool
is_needed(const kin_aten *g, const kin_aten_call *call, const bool *storages)
{
    bool is = kin_aten_has_effect(g, call) || kin_aten_writes_unsaid(g, call) || writes(g, call->args, call->nargs, storages);
    for (uint32_t r = 0; !is && r < call->nresults; r++)
        is = storages[kin_aten_at(g, call->results + r)->storage];
    return is;
}

bool
launch_needed_find(const launch_training *t, PyObject *grads, launch_needed *out)
{
    const kin_capture *capture = &t->capture;
    const kin_aten *g = capture->graph;
    bool *storages = calloc(g->nstorages + 2, 1);
    *out = (launch_needed){.calls = calloc(capture->joint.ncalls + 1, 1), .inputs = calloc(capture->ninputs + 1, 1)};
    bool ok = storages != NULL && out->calls != NULL && out->inputs != NULL;
    for (uint32_t i = 0; ok && i < t->nresults; i++)
        if (PyTuple_GET_ITEM(grads, i) != Py_None)
            storages[kin_aten_at(g, capture->values[capture->joint.results.at[i]])->storage] = true;
    for (uint32_t i = ok ? capture->joint.ncalls : 0; i-- > 0;) {
        const kin_aten_call *call = &g->calls.at[i];
        out->calls[i] = is_needed(g, call, storages);
        if (out->calls[i])
            mark_args(g, call->args, call->nargs, storages);
    }
    for (uint32_t i = 0; ok && i < capture->ninputs; i++)
        out->inputs[i] = storages[kin_aten_at(g, capture->values[i])->storage];
    free(storages);
    return ok;
}

void
launch_needed_deinit(launch_needed *n)
{
    free(n->calls);
    free(n->inputs);
    *n = (launch_needed){0};
}
