/* Where a graph is better cut in two: a program that goes back from one result and later from another, which shares nothing with it that is saved (the
 * generator's images and the loss of the discriminator that has seen them detached), finds the node's tensors freed, and torch goes over the operators once
 * more, each time. Two graphs have a node each.
 */
#include "py/training/training_priv.h"

#include <stdlib.h>

#include "core/tier/tier.h"

/* All results that share something saved with the first one, and so on. */
static uint64_t
group_of(const launch_training *t, uint32_t first)
{
    uint64_t group = (uint64_t)1 << first, before = 0;
    while (group != before) {
        before = group;
        for (uint32_t i = 0; i < t->nresults; i++)
            if (group >> i & 1)
                group |= t->capture.joint.saving.at[i];
    }
    return group;
}

/* The calls that an operator which is called as a whole came as count, too. */
static bool
find_needed(const launch_training *t, uint64_t results, launch_needed *out)
{
    PyObject *marks = PyTuple_New(t->nresults);
    for (uint32_t i = 0; marks != NULL && i < t->nresults; i++)
        PyTuple_SET_ITEM(marks, i, Py_NewRef(results >> i & 1 ? Py_True : Py_None));
    bool ok = marks != NULL && launch_needed_find(t, marks, false, out);
    for (uint32_t w = 0; ok && w < t->capture.joint.wholes.len; w++) {
        const kin_capture_whole *whole = &t->capture.joint.wholes.at[w];
        for (uint32_t i = whole->first; out->wholes[w] && i < whole->end; i++)
            out->calls[i] = true;
    }
    Py_XDECREF(marks);
    return ok;
}

/* Does the call look at memory that is there already, and do nothing else? On which side of the cut that happens does not matter: `images.detach()`. */
static bool
only_views(const kin_aten *g, const kin_aten_call *call)
{
    for (uint32_t i = call->args; i < call->args + call->nargs; i++)
        if (g->args.at[i].written)
            return false;
    for (uint32_t r = 0; r < call->nresults; r++) {
        uint32_t storage = kin_aten_at(g, call->results + r)->storage;
        bool older = false;
        for (kin_aten_val v = 1; !older && v < call->results; v++)
            older = kin_aten_at(g, v)->storage == storage;
        if (!older)
            return false;
    }
    return call->nresults > 0;
}

/* The first call that only the others need, if all that this group needs stands before it. */
static uint32_t
first_of_others(const launch_training *t, const launch_needed *group, const launch_needed *others)
{
    const kin_capture *c = &t->capture;
    uint32_t cut = UINT32_MAX;
    for (uint32_t i = 0; i < c->joint.ncalls; i++) {
        uint32_t step = c->calls.at[i].step;
        if (group->calls[i] && cut != UINT32_MAX && step >= cut && !only_views(c->graph, &c->graph->calls.at[i]))
            return UINT32_MAX;
        if (!group->calls[i] && others->calls[i] && cut == UINT32_MAX)
            cut = step;
    }
    return cut;
}

static uint32_t
find_cut(const launch_training *t)
{
    uint64_t all = t->nresults < 64 ? ((uint64_t)1 << t->nresults) - 1 : 0;
    uint32_t cut = UINT32_MAX;
    for (uint32_t i = 0; all != 0 && cut == UINT32_MAX && i < t->nresults; i++) {
        uint64_t group = group_of(t, i);
        launch_needed some = {0}, others = {0};
        if (group != all && find_needed(t, group, &some) && find_needed(t, all & ~group, &others))
            cut = first_of_others(t, &some, &others);
        launch_needed_deinit(&some);
        launch_needed_deinit(&others);
    }
    PyErr_Clear();
    return cut;
}

uint32_t
launch_training_cut(const launch_code *code)
{
    launch_training *t = code == NULL ? NULL : (launch_training *)code->training;
    if (t == NULL || t->whole || t->apart < KIN_TIER_APART)
        return UINT32_MAX;
    uint32_t cut = find_cut(t);
    t->whole = true;
    return cut;
}
