/* Which of the captured operators a result depends on (training_priv.h): backward from one result does not run the operators that only other results need, so
 * changes to their inputs do not matter.
 *
 * Found by following memory from the last operator to the first: an operator that creates or writes needed memory, or has another effect
 * (draws random numbers), is needed, and so are all its arguments.
 */
#include "py/training/training_priv.h"

#include <stdlib.h>

#include "core/aten/order.h"
#include "py/refs/sequence.h"

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
makes_needed(const kin_aten *g, const kin_aten_call *call, const bool *storages)
{
    bool does = writes(g, call->args, call->nargs, storages);
    for (uint32_t r = 0; !does && r < call->nresults; r++)
        does = storages[kin_aten_at(g, call->results + r)->storage];
    return does;
}

static bool
is_needed(const kin_aten *g, const kin_aten_call *call, bool effects, const bool *storages)
{
    return (effects && (kin_aten_has_effect(g, call) || kin_aten_writes_unsaid(g, call))) || makes_needed(g, call, storages);
}

typedef struct {
    const kin_capture *capture;
    bool *storages;
} marking;

static PyObject *
mark_object(void *arg, PyObject *obj)
{
    const marking *m = arg;
    uint32_t number = kin_capture_number(obj);
    if (number != UINT32_MAX)
        m->storages[kin_aten_at(m->capture->graph, m->capture->values[number])->storage] = true;
    else if (PyList_CheckExact(obj) || PyTuple_CheckExact(obj))
        return kin_map_items(obj, mark_object, arg);
    return Py_NewRef(obj);
}

/* An operator that came as smaller ones is called as a whole, with all that it takes, if anything that it makes is needed. Else only those of its parts
 * are called that do something beside. */
static bool
mark_whole(const kin_capture *capture, const kin_capture_whole *whole, bool *storages, bool *needed)
{
    const kin_aten *g = capture->graph;
    for (uint32_t i = whole->first; !*needed && i < whole->end; i++)
        *needed = makes_needed(g, &g->calls.at[i], storages);
    if (!*needed)
        return true;
    marking m = {capture, storages};
    PyObject *args = mark_object(&m, whole->call.args);
    PyObject *kwargs = args == NULL || whole->call.kwargs == NULL ? NULL : kin_map_values(whole->call.kwargs, mark_object, &m);
    bool ok = args != NULL && (kwargs != NULL || whole->call.kwargs == NULL);
    Py_XDECREF(args);
    Py_XDECREF(kwargs);
    return ok;
}

bool
launch_needed_find(const launch_training *t, PyObject *grads, bool effects, launch_needed *out)
{
    const kin_capture *capture = &t->capture;
    const kin_aten *g = capture->graph;
    bool *storages = calloc(g->nstorages + 2, 1);
    *out = (launch_needed){.calls = calloc(capture->joint.ncalls + 1, 1), .wholes = calloc(capture->joint.wholes.len + 1, 1),
                           .inputs = calloc(capture->ninputs + 1, 1)};
    bool ok = storages != NULL && out->calls != NULL && out->wholes != NULL && out->inputs != NULL;
    for (uint32_t i = 0; ok && i < t->nresults; i++)
        if (PyTuple_GET_ITEM(grads, i) != Py_None)
            storages[kin_aten_at(g, capture->values[capture->joint.results.at[i]])->storage] = true;
    uint32_t w = capture->joint.wholes.len;
    for (uint32_t end = ok ? capture->joint.ncalls : 0, first; ok && end > 0; end = first) {
        const kin_capture_whole *whole = w > 0 && capture->joint.wholes.at[w - 1].end == end ? &capture->joint.wholes.at[--w] : NULL;
        first = whole ? whole->first : end - 1;
        ok = whole == NULL || mark_whole(capture, whole, storages, &out->wholes[w]);
        for (uint32_t i = whole && out->wholes[w] ? first : end; i-- > first;) {
            const kin_aten_call *call = &g->calls.at[i];
            out->calls[i] = is_needed(g, call, effects, storages);
            if (out->calls[i])
                kin_aten_mark_used(g, call->args, call->nargs, storages);
        }
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
    free(n->wholes);
    free(n->inputs);
    *n = (launch_needed){0};
}

/* -- inputs -------------------------------------------------------------------------------------------------------- */

static bool
takes(const kin_aten *g, uint32_t first, uint32_t n, kin_aten_val value)
{
    bool does = false;
    for (uint32_t i = first; !does && i < first + n; i++) {
        const kin_aten_arg *a = &g->args.at[i];
        does = a->kind == KIN_ATEN_VALUE ? a->value == value : a->kind == KIN_ATEN_LIST && takes(g, a->list.child, a->list.count, value);
    }
    return does;
}

bool
launch_needed_as_view(const kin_capture *capture, uint32_t input)
{
    const kin_aten *g = capture->graph;
    for (uint32_t i = capture->joint.ncalls; i < g->calls.len; i++)
        if (takes(g, g->calls.at[i].args, g->calls.at[i].nargs, input + 1))
            return false;
    return true;
}
