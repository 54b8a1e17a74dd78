/* Results that share memory with an input or with another result: torch derives them from that tensor, as views (joint.c). Where eager's tensor is more than that, the
 * steps that make it so stay by themselves: it has gradients of its own (`h.detach()` that is written to, views made while gradients are off), or the program looks at
 * what arrives there on the way back (hooks, retain_grad, torch.autograd.grad), and the graph's node would pass it by.
 */
#include "py/capture/capture_priv.h"

static bool
is_written(const capturing *c, uint32_t call, uint32_t storage)
{
    const kin_aten_arg *written = kin_aten_written(c->out->graph, &c->out->graph->calls.at[call]);
    return written != NULL && kin_aten_at(c->out->graph, written->value)->storage == storage;
}

/* Does what the call makes have gradients of its own, not those of what it shares memory with: does it share the memory without being a view (detach), and something has
 * been written there, or is it a view that was made while gradients were off? */
static bool
has_own(const capturing *c, uint32_t call, bool written)
{
    return kin_aten_op_is(kin_aten_op_of(&c->out->graph->calls.at[call]), KIN_ATEN_NO_VIEW) ? written : c->out->calls.at[call].untracked;
}

/* The call that made a value, if it made another tensor of memory that was there; UINT32_MAX: none. What was written to is the tensor that it was. */
static uint32_t
shared_by(const kin_aten *g, kin_aten_val *val)
{
    while (kin_aten_at(g, *val)->call != UINT32_MAX) {
        uint32_t number = kin_aten_at(g, *val)->call, storage = kin_aten_at(g, *val)->storage, i = 0;
        const kin_aten_call *call = &g->calls.at[number];
        bool write = kin_aten_written(g, call) != NULL;
        while (i < call->nargs && (g->args.at[call->args + i].kind != KIN_ATEN_VALUE || kin_aten_at(g, g->args.at[call->args + i].value)->storage != storage))
            i++;
        if (i == call->nargs)
            return UINT32_MAX;
        *val = g->args.at[call->args + i].value;
        if (!write)
            return number;
    }
    return UINT32_MAX;
}

bool
kin_derived_fits(capturing *c, uint32_t number)
{
    const kin_aten *g = c->out->graph;
    kin_aten_val val = c->entries.at[number].val;
    uint32_t storage = kin_aten_at(g, val)->storage;
    bool written = false, wants = kin_tensor_requires_grad(PyList_GET_ITEM(c->out->fakes, number));
    for (uint32_t i = 0; wants && !written && i < c->out->calls.len; i++)
        written = is_written(c, i, storage);
    for (uint32_t call = shared_by(g, &val); wants && call != UINT32_MAX; call = shared_by(g, &val)) {
        if (!has_own(c, call, written) || c->out->calls.at[call].step == UINT32_MAX)
            continue;
        kin_capture_refuse(c, "a result shares memory with another tensor, and has gradients of its own");
        if (!kin_capture_refuse_step(c, c->out->calls.at[call].step))
            return false;
    }
    return c->out->reason[0] == 0;
}

/* The steps that write to the memory of this tensor stay by themselves. False with an exception. */
static bool
refuse_writes(capturing *c, uint32_t number)
{
    uint32_t storage = kin_aten_at(c->out->graph, c->entries.at[number].val)->storage;
    for (uint32_t i = 0; i < c->out->calls.len; i++)
        if (is_written(c, i, storage) && c->out->calls.at[i].step != UINT32_MAX && !kin_capture_refuse_step(c, c->out->calls.at[i].step))
            return false;
    return true;
}

void
kin_derived_refuse_writes(capturing *c, uint32_t input)
{
    kin_capture_refuse(c, "an input requires gradients from this call on");
    (void)refuse_writes(c, input);
}

/* -- what the program looks at ------------------------------------------------------------------------------------- */

static bool
is_result(const capturing *c, uint32_t number)
{
    for (uint32_t i = 0; i < c->out->joint.results.len; i++)
        if (c->out->joint.results.at[i] == number)
            return true;
    return false;
}

/* (node, number among its results) */
static PyObject *
edge_of(PyObject *fake)
{
    PyObject *node = PyObject_GetAttrString(fake, "grad_fn"), *nr = node == NULL ? NULL : PyObject_GetAttrString(fake, "output_nr");
    PyObject *edge = nr == NULL ? NULL : PyTuple_Pack(2, node, nr);
    Py_XDECREF(nr);
    Py_XDECREF(node);
    return edge;
}

/* Puts the nodes that come behind the node at the end of the list, unless they are in the set. */
static bool
push_next(PyObject *seen, PyObject *list)
{
    PyObject *node = PyList_GET_ITEM(list, PyList_GET_SIZE(list) - 1), *edges = PyObject_GetAttrString(node, "next_functions");
    bool ok = edges != NULL && PyTuple_Check(edges) && PyList_SetSlice(list, PyList_GET_SIZE(list) - 1, PyList_GET_SIZE(list), NULL) == 0;
    for (Py_ssize_t i = 0; ok && i < PyTuple_GET_SIZE(edges); i++) {
        PyObject *edge = PyTuple_GET_ITEM(edges, i), *next = PyTuple_GET_ITEM(edge, 0);
        int known = next == Py_None ? 1 : PySet_Contains(seen, next);
        ok = known >= 0 && PySet_Add(seen, edge) == 0 && (known || (PySet_Add(seen, next) == 0 && PyList_Append(list, next) == 0));
    }
    Py_XDECREF(edges);
    return ok;
}

/* Nodes and edges on the way back from the results: new set, NULL with an exception. */
static PyObject *
ways_back(const capturing *c)
{
    PyObject *seen = PySet_New(NULL), *list = PyList_New(0);
    bool ok = seen != NULL && list != NULL;
    for (uint32_t i = 0; ok && i < c->out->joint.results.len; i++) {
        PyObject *node = PyObject_GetAttrString(PyList_GET_ITEM(c->out->fakes, c->out->joint.results.at[i]), "grad_fn");
        ok = node != NULL && (node == Py_None || PyList_Append(list, node) == 0);
        Py_XDECREF(node);
        while (ok && PyList_GET_SIZE(list) > 0)
            ok = push_next(seen, list);
    }
    Py_XDECREF(list);
    if (!ok)
        Py_CLEAR(seen);
    return seen;
}

/* A result that is written to is known to the other results as what it was before, one that is derived not at all: the steps that write, or make the view, stay by themselves. */
static bool
refuse_making(capturing *c, uint32_t number, uint32_t call)
{
    kin_capture_refuse(c, "the program looks at the gradient of a result from which other results are computed");
    return call != UINT32_MAX ? kin_capture_refuse_step(c, c->out->calls.at[call].step) : refuse_writes(c, number);
}

/* Does another result know of it only as what it is derived from, or as what it was? Notes the call that derived it; UINT32_MAX: it is a result of its own. */
static bool
is_bypassed(const capturing *c, uint32_t number, uint32_t *call)
{
    kin_aten_val val = c->entries.at[number].val;
    uint32_t storage = kin_aten_at(c->out->graph, val)->storage;
    *call = is_result(c, number) ? UINT32_MAX : shared_by(c->out->graph, &val);
    if (*call != UINT32_MAX)
        return c->out->calls.at[*call].step != UINT32_MAX;
    for (uint32_t i = 0; is_result(c, number) && i < c->out->calls.len; i++)
        if (is_written(c, i, storage))
            return true;
    return false;
}

bool
kin_derived_pass(capturing *c)
{
    PyObject *seen = NULL;
    bool ok = true;
    for (uint32_t i = 0; ok && i < c->observed.len; i++) {
        uint32_t number = c->observed.at[i], call;
        if (!kin_tensor_requires_grad(PyList_GET_ITEM(c->out->fakes, number)) || !is_bypassed(c, number, &call))
            continue;
        seen = seen == NULL ? ways_back(c) : seen;
        PyObject *edge = seen == NULL ? NULL : edge_of(PyList_GET_ITEM(c->out->fakes, number));
        int passes = edge == NULL ? -1 : PySet_Contains(seen, edge);
        Py_XDECREF(edge);
        ok = passes == 0 || (passes > 0 && refuse_making(c, number, call));
    }
    Py_XDECREF(seen);
    return ok && c->out->reason[0] == 0;
}
