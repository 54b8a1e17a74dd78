/* Backward by torch itself (training_priv.h): runs the operators of the forward part again, on the original tensors, with autograd
 * on, and then torch's backward from their results. So gradients can be differentiated again, and nothing is lost if the compiled backward
 * cannot be used.
 *
 * Inputs are passed as aliases, because one input may depend on another, and the gradient through this node only is wanted.
 * Random numbers are drawn as in the first run; inputs that were written to are passed as copies.
 */
#include "py/compat/imports.h"
#include "py/refs/sequence.h"
#include "py/training/training_priv.h"

#include <stdlib.h>

#include "py/aten/make.h"
#include "py/aten/tensor.h"

/* -- the note ------------------------------------------------------------------------------------------------------ */

static PyObject *
version_of(PyObject *tensor)
{
    return kin_tensor_is_inference(tensor) ? Py_NewRef(Py_None) : PyObject_GetAttrString(tensor, "_version");
}

/* A buffer that eager reads and does not save may be written to before backward (a counter, a running mean); going through the operators again
 * needs what it was. */
static bool
is_small_buffer(PyObject *tensor)
{
    enum { SMALL = 512 }; /* elements: nothing, beside a launch */
    int64_t n = kin_tensor_requires_grad(tensor) || !kin_tensor_is_ordinary(tensor) || kin_tensor_is_inference(tensor) ? SMALL + 1 : 1;
    for (int64_t d = 0; n <= SMALL && d < kin_tensor_dim(tensor); d++)
        n *= kin_tensor_sizes(tensor)[d];
    return n <= SMALL;
}

/* Nobody writes to it. */
bool
launch_again_is_number(const launch_training *t, uint32_t input)
{
    for (uint32_t k = 0; k < t->capture.numbers.len; k++)
        if (t->capture.numbers.at[k] == input)
            return true;
    return false;
}

PyObject *
launch_again_note(const launch_code *code, PyObject *const *in, PyObject *random, PyObject *region)
{
    const launch_training *t = (launch_training *)code->training;
    PyObject *tensors = PyTuple_New(code->ninputs), *versions = PyTuple_New(code->ninputs), *writes = PyList_New(0), *note = NULL;
    bool ok = tensors != NULL && versions != NULL && writes != NULL;
    for (uint32_t i = 0; ok && i < code->ninputs; i++) {
        PyObject *tensor = in[code->input_of[i]];
        bool copied = !t->written[i] && !launch_again_is_number(t, i) && is_small_buffer(tensor);
        PyObject *kept = copied ? PyObject_CallMethod(tensor, "clone", NULL) : Py_NewRef(tensor), *version = kept == NULL ? NULL : version_of(kept);
        ok = version != NULL;
        PyTuple_SET_ITEM(tensors, i, kept);
        PyTuple_SET_ITEM(versions, i, version);
    }
    if (ok)
        note = PyTuple_Pack(5, tensors, versions, random == NULL ? Py_None : random, region, writes);
    Py_XDECREF(writes);
    Py_XDECREF(tensors);
    Py_XDECREF(versions);
    return note;
}

/* -- the operators ------------------------------------------------------------------------------------------------- */

typedef struct {
    const launch_training *t;
    PyObject **of; /* by fake tensor: what it stands for now; owned */
    uint32_t n;
    launch_needed needed; /* nothing of it there: all is needed */
    const launch_cut *cut;
    bool create_graph;
} replayed;

static PyObject *
put_in_place(void *arg, PyObject *obj)
{
    const replayed *r = arg;
    uint32_t number = kin_capture_number(obj);
    if (number != UINT32_MAX) {
        if (number < r->n && r->of[number] != NULL)
            return Py_NewRef(r->of[number]);
        PyErr_SetString(PyExc_RuntimeError, "kintsugi: an operator uses a tensor that is not there");
        return NULL;
    }
    if (!PyList_CheckExact(obj) && !PyTuple_CheckExact(obj))
        return Py_NewRef(obj);
    return kin_map_items(obj, put_in_place, arg);
}

static PyObject *
alias_of(PyObject *tensor, bool create_graph)
{
    if (create_graph)
        return PyObject_CallMethod(tensor, "view_as", "O", tensor);
    PyObject *alias = PyObject_CallMethod(tensor, "detach", NULL);
    PyObject *done = alias == NULL ? NULL : PyObject_CallMethod(alias, "requires_grad_", NULL);
    Py_XDECREF(alias);
    return done;
}

/* What stands for a tensor from here on: at a result of the cut nothing goes back any further. New reference. */
static PyObject *
stand_for(const replayed *r, uint32_t number, PyObject *made)
{
    const kin_capture_numbers *results = &r->t->capture.joint.results;
    for (uint32_t i = 0; r->cut != NULL && i < results->len; i++)
        if (r->cut->results >> i & 1 && results->at[i] == number) {
            bool joined = r->create_graph && r->cut->alive[i] != NULL;
            return alias_of(joined ? r->cut->alive[i] : made, joined);
        }
    return Py_NewRef(made);
}

/* Results take the places of the fake tensors that stood for them. */
static bool
bind(replayed *r, PyObject *stands, PyObject *result)
{
    uint32_t number = kin_capture_number(stands);
    if (number != UINT32_MAX) {
        if (number >= r->n || !kin_is_tensor(result))
            return false;
        Py_XSETREF(r->of[number], stand_for(r, number, result));
        return r->of[number] != NULL;
    }
    if (!PyTuple_Check(stands) && !PyList_CheckExact(stands))
        return true;
    bool ok = (PyTuple_Check(result) || PyList_CheckExact(result)) && PySequence_Fast_GET_SIZE(result) == PySequence_Fast_GET_SIZE(stands);
    for (Py_ssize_t i = 0; ok && i < PySequence_Fast_GET_SIZE(stands); i++)
        ok = bind(r, PySequence_Fast_GET_ITEM(stands, i), PySequence_Fast_GET_ITEM(result, i));
    return ok;
}

static bool
replay_call(replayed *r, const kin_capture_call *call)
{
    PyObject *args = put_in_place(r, call->args), *result = NULL;
    PyObject *kwargs = args == NULL || call->kwargs == NULL ? NULL : kin_map_values(call->kwargs, put_in_place, r);
    kin_grad_set(!call->untracked);
    if (args != NULL && (kwargs != NULL || call->kwargs == NULL))
        result = PyObject_Call(call->op, args, kwargs);
    kin_grad_set(true);
    bool ok = result != NULL && bind(r, call->made, result);
    if (result != NULL && !ok)
        PyErr_SetString(PyExc_RuntimeError, "kintsugi: an operator gave something else than before");
    Py_XDECREF(result);
    Py_XDECREF(args);
    Py_XDECREF(kwargs);
    return ok;
}

/* -- inputs ------------------------------------------------------------------------------------------------------- */

void
launch_again_find_written(const kin_aten *g, bool *written)
{
    for (uint32_t i = 0; i < g->args.len; i++)
        for (uint32_t input = 0; g->args.at[i].kind == KIN_ATEN_VALUE && g->args.at[i].written && input < g->ninputs; input++)
            written[input] |= kin_aten_at(g, g->args.at[i].value)->storage == kin_aten_at(g, input + 1)->storage;
}

static bool
is_as_it_was(PyObject *tensor, PyObject *version)
{
    PyObject *now = version == Py_None ? Py_NewRef(version) : version_of(tensor);
    bool same = now != NULL && PyObject_RichCompareBool(now, version, Py_EQ) == 1;
    Py_XDECREF(now);
    if (!same && !PyErr_Occurred())
        PyErr_SetString(PyExc_RuntimeError, "one of the variables needed for gradient computation has been modified by an inplace operation");
    return same;
}

static bool
fill_inputs(replayed *r, PyObject *note)
{
    PyObject *tensors = PyTuple_GET_ITEM(note, 0), *versions = PyTuple_GET_ITEM(note, 1);
    for (uint32_t i = 0; i < PyTuple_GET_SIZE(tensors); i++) {
        PyObject *tensor = PyTuple_GET_ITEM(tensors, i);
        bool idle = r->needed.inputs != NULL && !r->needed.inputs[i];
        if (launch_again_is_number(r->t, i))
            r->of[i] = PyObject_CallMethod(tensor, "item", NULL);
        else if (r->t->written[i])
            r->of[i] = PyObject_CallMethod(tensor, "clone", NULL);
        else if (!idle && !is_as_it_was(tensor, PyTuple_GET_ITEM(versions, i)))
            return false;
        else
            r->of[i] = launch_has(r->t->wanting, r->t->nwanting, i) ? alias_of(tensor, r->create_graph) : Py_NewRef(tensor);
        if (r->of[i] == NULL)
            return false;
    }
    return true;
}

/* -- random numbers ------------------------------------------------------------------------------------------------- */

static PyObject *
generator_call(const char *name, PyObject *arg)
{
    PyObject *generator = kin_import("torch", "default_generator");
    PyObject *result = generator == NULL ? NULL : arg == NULL ? PyObject_CallMethod(generator, name, NULL) : PyObject_CallMethod(generator, name, "O", arg);
    Py_XDECREF(generator);
    return result;
}

PyObject *
launch_again_random(void)
{
    return generator_call("get_state", NULL);
}

bool
launch_again_set_random(PyObject *state)
{
    PyObject *done = generator_call("set_state", state);
    Py_XDECREF(done);
    return done != NULL;
}

static bool
replay_calls(replayed *r, PyObject *random)
{
    PyObject *now = random == Py_None ? NULL : generator_call("get_state", NULL);
    const kin_capture *c = &r->t->capture;
    bool ok = random == Py_None || (now != NULL && launch_again_set_random(random));
    uint32_t w = 0;
    for (uint32_t i = 0, next; ok && i < c->joint.ncalls; i = next) {
        const kin_capture_whole *whole = w < c->joint.wholes.len && c->joint.wholes.at[w].first == i ? &c->joint.wholes.at[w++] : NULL;
        bool as_whole = whole != NULL && (r->needed.wholes == NULL || r->needed.wholes[w - 1]);
        next = as_whole ? whole->end : i + 1;
        ok = as_whole ? replay_call(r, &whole->call) : (r->needed.calls != NULL && !r->needed.calls[i]) || replay_call(r, &c->calls.at[i]);
    }
    if (now != NULL) {
        PyObject *type, *error, *tb;
        PyErr_Fetch(&type, &error, &tb);
        launch_again_set_random(now);
        PyErr_Restore(type, error, tb);
    }
    Py_XDECREF(now);
    return ok;
}

/* -- all of it ------------------------------------------------------------------------------------------------------ */

/* Inputs that want gradients, and the cut: new tuple. */
static PyObject *
inputs_of(const replayed *r)
{
    const launch_training *t = r->t;
    PyObject *list = PyList_New(0);
    bool ok = list != NULL;
    for (uint32_t i = 0; ok && i < t->nwanting; i++)
        ok = PyList_Append(list, r->of[t->wanting[i]]) == 0;
    for (uint32_t i = 0; ok && r->cut != NULL && i < t->nresults; i++)
        ok = !(r->cut->results >> i & 1) || PyList_Append(list, r->of[t->capture.joint.results.at[i]]) == 0;
    PyObject *tuple = ok ? PyList_AsTuple(list) : NULL;
    Py_XDECREF(list);
    return tuple;
}

/* From those results for which something comes back. */
static PyObject *
go_back(const replayed *r, PyObject *grads)
{
    const launch_training *t = r->t;
    PyObject *results = PyList_New(0), *tangents = PyList_New(0), *wanted = inputs_of(r), *given = NULL;
    bool ok = results != NULL && tangents != NULL && wanted != NULL;
    for (uint32_t i = 0; ok && i < t->nresults; i++)
        if (PyTuple_GET_ITEM(grads, i) != Py_None)
            ok = PyList_Append(results, r->of[t->capture.joint.results.at[i]]) == 0 && PyList_Append(tangents, PyTuple_GET_ITEM(grads, i)) == 0;
    PyObject *from = ok ? PyList_AsTuple(results) : NULL, *with = from == NULL ? NULL : PyList_AsTuple(tangents);
    if (with != NULL)
        given = kin_engine_run(from, with, r->create_graph, wanted);
    Py_XDECREF(from);
    Py_XDECREF(with);
    Py_XDECREF(results);
    Py_XDECREF(tangents);
    Py_XDECREF(wanted);
    return given;
}

static PyObject *
results_of(const replayed *r)
{
    const kin_capture_numbers *results = &r->t->capture.joint.results;
    PyObject *tuple = PyTuple_New(results->len);
    for (uint32_t i = 0; tuple != NULL && i < results->len; i++)
        PyTuple_SET_ITEM(tuple, i, Py_NewRef(r->of[results->at[i]]));
    return tuple;
}

PyObject *
launch_again(const launch_training *t, PyObject *note, PyObject *grads, bool create_graph, const launch_cut *cut, PyObject **results)
{
    uint32_t n = t->has_capture ? (uint32_t)PyList_GET_SIZE(t->capture.fakes) : 0;
    replayed r = {.t = t, .of = calloc(n + 1, sizeof *r.of), .n = n, .cut = cut, .create_graph = create_graph};
    PyObject *given = NULL;
    bool before = kin_grad_enabled();
    if (!PyTuple_Check(note) || n == 0 || r.of == NULL) {
        PyErr_SetString(PyExc_RuntimeError, "Trying to backward through the graph a second time");
    } else {
        kin_grad_set(true);
        bool all = results != NULL || t->nresults == 1;
        if ((all || launch_needed_find(t, grads, true, &r.needed)) && fill_inputs(&r, note) && replay_calls(&r, PyTuple_GET_ITEM(note, 2)))
            given = go_back(&r, grads);
        if (given != NULL && results != NULL)
            *results = results_of(&r);
        kin_grad_set(before);
    }
    for (uint32_t i = 0; r.of != NULL && i < n; i++)
        Py_XDECREF(r.of[i]);
    free(r.of);
    launch_needed_deinit(&r.needed);
    return given;
}
