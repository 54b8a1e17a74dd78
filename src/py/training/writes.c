/* Writes to what eager has saved (training_priv.h). torch notices a write to a tensor that the graph's node saves; what eager's nodes save beyond that, because their
 * formulas read it and the compiled backward does not (an activation's result, an input that is computed from again), is *watched*: how often it has been written to is
 * noted behind the forward part and compared before the way back.
 *
 * Eager compares where a node runs that saves it. That is asked only where there was a write: which results gradients have come to, and to which inputs the engine goes on.
 */
#include "py/compat/imports.h"
#include "py/training/training_priv.h"

#include "py/aten/make.h"
#include "py/aten/tensor.h"

/* -- what is watched ----------------------------------------------------------------------------------------------- */

bool
launch_writes_find(launch_training *t, const kin_capture *capture, const launch_code *forward)
{
    const kin_capture_joint *j = &capture->joint;
    if (!(t->watched = calloc(j->saved.len + 1, sizeof *t->watched)))
        return false;
    for (uint32_t i = 0; i < j->saved.len; i++) {
        kin_capture_saved s = j->saved.at[i];
        if (s.results == 0)
            continue;
        launch_watched w = {.results = s.results, .wanting = s.wanting, .is_input = s.number < capture->ninputs, .at = s.number};
        if (!w.is_input) {
            const launch_give *g = &forward->by_fake[s.number];
            const launch_out *o = &forward->outs[g->index];
            w.at = g->index;
            /* Of several results the program gets others from nodes of their own (results.c), and torch does not count writes to these for what the graph's node saves. */
            bool own = o->kind == KIN_OUT_FRESH || o->kind == KIN_OUT_EXTERN;
            if (g->kind != LAUNCH_GIVE_OUT || o->kind == KIN_OUT_INPUT || (own && t->nresults == 1 && launch_has(t->handed, t->nhanded, o->index)))
                continue;
        } else if ((t->nresults == 1 && launch_has(t->kept, t->nkept, s.number)) || launch_again_is_number(t, s.number))
            continue; /* of several results, others than the one that needs it may be gone back from (go_back_apart) */
        t->watched[t->nwatched++] = w;
    }
    return true;
}

/* -- forward ------------------------------------------------------------------------------------------------------- */

/* What counts the writes to a result, without the result and its memory: (tensor, version, sizes). */
static PyObject *
counter_of(PyObject *result)
{
    PyObject *alias = PyObject_CallMethod(result, "detach", NULL), *sizes = PyObject_GetAttrString(result, "shape");
    PyObject *version = alias == NULL ? NULL : PyObject_GetAttrString(alias, "_version"), *nothing = NULL, *counter = NULL;
    if (version != NULL && sizes != NULL && (nothing = PyObject_CallMethod(alias, "new_empty", "(i)", 0)) != NULL &&
        PyObject_SetAttrString(alias, "data", nothing) == 0)
        counter = PyTuple_Pack(3, alias, version, sizes);
    Py_XDECREF(nothing);
    Py_XDECREF(version);
    Py_XDECREF(sizes);
    Py_XDECREF(alias);
    return counter;
}

static PyObject *
counter_of_input(PyObject *input)
{
    if (kin_tensor_is_inference(input))
        return Py_NewRef(Py_None);
    PyObject *version = PyObject_GetAttrString(input, "_version"), *counter = version == NULL ? NULL : PyTuple_Pack(2, input, version);
    Py_XDECREF(version);
    return counter;
}

bool
launch_writes_note(const launch_training *t, const launch_code *code, PyObject *const *in, PyObject *const *made, PyObject *list)
{
    bool ok = true;
    for (uint32_t i = 0; ok && i < t->nwatched; i++) {
        const launch_watched *w = &t->watched[i];
        PyObject *before = i > 0 && w->is_input == w[-1].is_input && w->at == w[-1].at ? Py_NewRef(PyList_GET_ITEM(list, i - 1)) : NULL;
        PyObject *counter = before != NULL ? before : w->is_input ? counter_of_input(in[code->input_of[w->at]]) : counter_of(made[w->at]);
        ok = counter != NULL && PyList_Append(list, counter) == 0;
        Py_XDECREF(counter);
    }
    return ok;
}

/* -- back ---------------------------------------------------------------------------------------------------------- */

/* Is it an input of the graph's node? Others get no gradient, or stand behind groups' nodes: of these it is not known whether the engine goes there. */
static bool
is_joined(const launch_training *t, uint32_t place)
{
    return t->group[place] == 0 && (t->ngradients == 0 || t->gradient[place] != UINT32_MAX);
}

/* Does the engine go on to this wanting input? */
static bool
is_gone_to(const launch_training *t, PyObject *edges, uint32_t place)
{
    static PyObject *goes_to;
    Py_ssize_t edge = 0;
    for (uint32_t i = 0; i < place; i++)
        edge += is_joined(t, i);
    if (!is_joined(t, place) || !PyTuple_Check(edges) || edge >= PyTuple_GET_SIZE(edges) || kin_import_once(&goes_to, "torch._C", "_will_engine_execute_node") == NULL)
        return false;
    PyObject *next = PyTuple_GET_ITEM(PyTuple_GET_ITEM(edges, edge), 0);
    PyObject *goes = next == Py_None ? Py_NewRef(Py_False) : PyObject_CallOneArg(goes_to, next);
    bool leaf = goes == NULL; /* one whose gradient torch.autograd.grad() was asked for: torch will not say so of it */
    PyErr_Clear();
    Py_XDECREF(goes);
    return leaf || goes == Py_True;
}

static bool
is_passed(const launch_training *t, PyObject *node, const launch_watched *w, uint64_t there)
{
    if (!(w->results & there))
        return false;
    if (!launch_groups_is_asked_for_some())
        return true;
    PyObject *edges = PyObject_GetAttrString(node, "next_functions");
    bool passed = false;
    for (uint32_t i = 0; edges != NULL && !passed && i < t->nwanting; i++)
        passed = w->wanting >> (i < 63 ? i : 63) & 1 && is_gone_to(t, edges, i);
    Py_XDECREF(edges);
    return passed;
}

static void
raise_written(PyObject *counter, PyObject *now, bool is_input)
{
    PyObject *tensor = PyTuple_GET_ITEM(counter, 0), *type = PyObject_CallMethod(tensor, "type", NULL);
    PyObject *sizes = is_input ? PyObject_GetAttrString(tensor, "shape") : Py_NewRef(PyTuple_GET_ITEM(counter, 2)), *list = sizes == NULL ? NULL : PySequence_List(sizes);
    if (type != NULL && list != NULL)
        PyErr_Format(PyExc_RuntimeError,
                     "one of the variables needed for gradient computation has been modified by an inplace operation: [%U %R]%s is at version %S; expected version %S "
                     "instead. Hint: enable anomaly detection to find the operation that failed to compute its gradient, with torch.autograd.set_detect_anomaly(True, check_nan=False).",
                     type, list, is_input ? "" : ", which is output 0 of CompiledFunction,", now, PyTuple_GET_ITEM(counter, 1));
    Py_XDECREF(list);
    Py_XDECREF(sizes);
    Py_XDECREF(type);
}

bool
launch_writes_check(const launch_training *t, PyObject *node, PyObject *list, uint64_t there)
{
    for (uint32_t i = 0; i < t->nwatched && i < PyList_GET_SIZE(list); i++) {
        PyObject *counter = PyList_GET_ITEM(list, i);
        if (counter == Py_None)
            continue;
        PyObject *now = PyObject_GetAttrString(PyTuple_GET_ITEM(counter, 0), "_version");
        int same = now == NULL ? -1 : PyObject_RichCompareBool(now, PyTuple_GET_ITEM(counter, 1), Py_EQ);
        if (same == 0 && is_passed(t, node, &t->watched[i], there))
            raise_written(counter, now, t->watched[i].is_input);
        Py_XDECREF(now);
        if (same < 0 || PyErr_Occurred())
            return false;
    }
    return true;
}
