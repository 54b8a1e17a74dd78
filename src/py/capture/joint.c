/* Captures backward: after a subgraph's steps ran on fake tensors, torch's own autograd runs backward from their results, with fake tensors for the incoming
 * gradients (*tangents*), and the dispatch mode (mode.c) records the operators that it calls. So every operator is differentiated exactly as torch does it, and
 * forward and backward are one graph.
 *
 * If results share memory, only the tensor that the memory was made for is an output of the autograd node; torch derives the others from it, and
 * views of an input from the input.
 */
#include "core/aten/order.h"
#include "py/capture/capture_priv.h"
#include "py/compat/imports.h"


/* -- results ------------------------------------------------------------------------------------------------------ */

static uint32_t
storage_of(const capturing *c, uint32_t number)
{
    return kin_aten_at(c->out->graph, c->entries.at[number].val)->storage;
}

static bool
is_of_input(const capturing *c, uint32_t number)
{
    return storage_of(c, number) <= c->out->ninputs; /* storages are numbered from the inputs on */
}

static bool
wants(const capturing *c, uint32_t number)
{
    return kin_tensor_requires_grad(PyList_GET_ITEM(c->out->fakes, number));
}

/* Is it a view that an autograd function has given? Where it leaves the graph beside what it is a view of, torch would derive it without that function. */
static bool
is_passed(capturing *c, uint32_t number)
{
    for (uint32_t i = 0; i < c->passed.len; i++)
        if (c->passed.at[i] == storage_of(c, number) && wants(c, number)) {
            kin_capture_refuse(c, "a view that an autograd function has given is a result of the graph");
            return true;
        }
    return false;
}

/* Fake tensors among the results that have memory of their own, each once. */
static bool
collect(capturing *c, PyObject *obj, kin_capture_numbers *all)
{
    uint32_t number = kin_capture_number(obj);
    if (number != UINT32_MAX) {
        for (uint32_t i = 0; i < all->len; i++)
            if (all->at[i] == number)
                return true;
        if (number >= c->out->ninputs && is_of_input(c, number))
            return !is_passed(c, number) && kin_derived_fits(c, number);
        return number < c->out->ninputs || kin_vec_push(all, number) == KIN_OK;
    }
    if (PyTuple_Check(obj) || PyList_CheckExact(obj))
        for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(obj); i++)
            if (!collect(c, PySequence_Fast_GET_ITEM(obj, i), all))
                return false;
    return true;
}

/* Who speaks for a result: itself, or where several results share memory the tensor that this memory was made for; the others are
 * views of it, which torch makes. */
static uint32_t
speaker_of(const capturing *c, const kin_capture_numbers *all, uint32_t number)
{
    uint32_t sharing = 0, first = number;
    for (uint32_t i = 0; i < all->len; i++)
        sharing += storage_of(c, all->at[i]) == storage_of(c, number);
    for (uint32_t i = c->out->ninputs; sharing > 1 && i < first; i++)
        if (storage_of(c, i) == storage_of(c, number))
            first = i;
    return first;
}

static bool
add_result(capturing *c, uint32_t number)
{
    kin_capture_numbers *results = &c->out->joint.results;
    for (uint32_t i = 0; i < results->len; i++)
        if (results->at[i] == number)
            return true;
    return kin_vec_push(results, number) == KIN_OK;
}

static bool
find_results(capturing *c)
{
    kin_capture_numbers all = {0};
    bool ok = true;
    for (uint32_t i = 0; ok && i < c->out->nout; i++)
        ok = collect(c, c->out->out[i], &all);
    for (uint32_t i = 0; ok && i < all.len; i++) {
        uint32_t speaker = speaker_of(c, &all, all.at[i]);
        if (!wants(c, all.at[i]))
            continue;
        ok = wants(c, speaker) && (speaker == all.at[i] || (!is_passed(c, all.at[i]) && kin_derived_fits(c, all.at[i]))) && add_result(c, speaker);
        if (!wants(c, speaker))
            kin_capture_refuse(c, "a result with gradients shares memory with one without");
    }
    kin_vec_deinit(&all);
    return ok;
}

static bool
find_wanting(capturing *c)
{
    for (uint32_t i = 0; i < c->out->ninputs; i++)
        if (kin_tensor_requires_grad(PyList_GET_ITEM(c->out->fakes, i)) && kin_vec_push(&c->out->joint.wanting, i) != KIN_OK)
            return false;
    return true;
}

/* -- tangents ----------------------------------------------------------------------------------------------------- */

/* Gradients lie as their tensors do, if these fill a stretch of memory; else row by row. */
static void
lay_tangent(const kin_aten *g, kin_aten_val v, int64_t *strides)
{
    unsigned ndim = kin_aten_at(g, v)->ndim;
    const int64_t *sizes = kin_aten_sizes(g, v);
    int64_t below = 1;
    for (unsigned d = ndim; d-- > 0; below *= sizes[d] > 0 ? sizes[d] : 1)
        strides[d] = below;
    if (kin_aten_is_dense(g, v) && ndim > 0)
        memcpy(strides, kin_aten_strides(g, v), ndim * sizeof *strides);
}

static PyObject *
make_tangents(capturing *c)
{
    const kin_capture_numbers *results = &c->out->joint.results;
    PyObject *tuple = PyTuple_New(results->len);
    for (uint32_t i = 0; tuple != NULL && i < results->len; i++) {
        kin_aten *g = c->out->graph;
        kin_aten_val of = c->entries.at[results->at[i]].val;
        int64_t sizes[KIN_IR_MAX_DIMS], strides[KIN_IR_MAX_DIMS];
        unsigned ndim = kin_aten_at(g, of)->ndim;
        lay_tangent(g, of, strides);
        memcpy(sizes, kin_aten_sizes(g, of), ndim * sizeof *sizes);
        uint32_t storage = kin_fake_new_storage(c);
        kin_aten_val val = storage == 0 ? 0 : kin_aten_input(g, (kin_dtype)kin_aten_at(g, of)->dtype, ndim, sizes, strides, storage, 0);
        PyObject *tangent = kin_fake_new(c, NULL, false, val);
        if (tangent == NULL)
            Py_CLEAR(tuple);
        else
            PyTuple_SET_ITEM(tuple, i, tangent);
    }
    return tuple;
}

static PyObject *
tuple_of(const capturing *c, const uint32_t *at, uint32_t n)
{
    PyObject *tuple = PyTuple_New(n);
    for (uint32_t i = 0; tuple != NULL && i < n; i++)
        PyTuple_SET_ITEM(tuple, i, Py_NewRef(PyList_GET_ITEM(c->out->fakes, at[i])));
    return tuple;
}

/* -- the order of gradients --------------------------------------------------------------------------------------- */

/* A hook: notes (list, place) that this gradient is ready. */
static PyObject *
note_arrival(PyObject *self, PyObject *gradient)
{
    return PyList_Append(PyTuple_GET_ITEM(self, 0), PyTuple_GET_ITEM(self, 1)) < 0 ? NULL : Py_NewRef(Py_None);
}

static PyMethodDef note_method = {"note_arrival", note_arrival, METH_O, NULL};

static bool
hook_input(PyObject *fake, PyObject *list, uint32_t place)
{
    PyObject *self = Py_BuildValue("OI", list, place), *hook = self == NULL ? NULL : PyCFunction_New(&note_method, self);
    PyObject *handle = hook == NULL ? NULL : PyObject_CallMethod(fake, "register_hook", "O", hook);
    Py_XDECREF(handle);
    Py_XDECREF(hook);
    Py_XDECREF(self);
    return handle != NULL;
}

/* Hooks of inputs are called in eager's order (py/training/order.c): new list, filled while torch goes back. torch numbers the hooks of a process; the
 * program's next one gets the number that it would have had. */
static PyObject *
watch_arrivals(const capturing *c)
{
    const kin_capture_numbers *wanting = &c->out->joint.wanting;
    PyObject *numbers = kin_import("torch.utils.hooks", "RemovableHandle"), *next = numbers == NULL ? NULL : PyObject_GetAttrString(numbers, "next_id");
    PyObject *list = next == NULL ? NULL : PyList_New(0);
    bool ok = list != NULL;
    for (uint32_t i = 0; ok && wanting->len > 1 && i < wanting->len; i++)
        ok = hook_input(PyList_GET_ITEM(c->out->fakes, wanting->at[i]), list, i);
    ok = next != NULL && PyObject_SetAttrString(numbers, "next_id", next) == 0 && ok;
    Py_XDECREF(numbers);
    Py_XDECREF(next);
    if (!ok)
        Py_CLEAR(list);
    return list;
}

static bool
keep_arrivals(capturing *c, PyObject *list)
{
    bool ok = true;
    for (Py_ssize_t i = 0; ok && i < PyList_GET_SIZE(list); i++)
        ok = kin_vec_push(&c->out->joint.arriving, (uint32_t)PyLong_AsUnsignedLong(PyList_GET_ITEM(list, i))) == KIN_OK;
    return ok;
}

/* -- back --------------------------------------------------------------------------------------------------------- */

PyObject *
kin_engine_run(PyObject *results, PyObject *tangents, bool create_graph, PyObject *inputs)
{
    PyObject *run = kin_import("torch.autograd.variable", "Variable._execution_engine.run_backward"), *given = NULL;
    PyObject *graph = create_graph ? Py_True : Py_False;
    PyObject *args = run == NULL ? NULL : PyTuple_Pack(5, results, tangents, graph, graph, inputs);
    PyObject *kwargs = args == NULL ? NULL : Py_BuildValue("{s:O,s:O}", "allow_unreachable", Py_True, "accumulate_grad", Py_False);
    if (kwargs != NULL)
        given = PyObject_Call(run, args, kwargs);
    Py_XDECREF(kwargs);
    Py_XDECREF(args);
    Py_XDECREF(run);
    return given;
}

static bool
keep_gradients(capturing *c, PyObject *given)
{
    if (!PyTuple_Check(given) || PyTuple_GET_SIZE(given) != (Py_ssize_t)c->out->joint.wanting.len)
        return false;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(given); i++) {
        PyObject *one = PyTuple_GET_ITEM(given, i);
        uint32_t number = kin_capture_number(one);
        if ((number == UINT32_MAX && one != Py_None) || kin_vec_push(&c->out->joint.gradients, number) != KIN_OK)
            return false;
    }
    return true;
}

bool
kin_joint_run(capturing *c)
{
    kin_capture_joint *j = &c->out->joint;
    if (!find_results(c) || !find_wanting(c) || !kin_derived_pass(c))
        return false;
    j->ncalls = c->out->calls.len;
    if (j->results.len == 0)
        return true;
    c->step = UINT32_MAX;
    c->may_write = false;
    kin_joint_find_saved(c);
    PyObject *tangents = kin_joint_saves(c) ? make_tangents(c) : NULL, *given = NULL;
    PyObject *results = tangents == NULL ? NULL : tuple_of(c, j->results.at, j->results.len);
    PyObject *inputs = results == NULL ? NULL : tuple_of(c, j->wanting.at, j->wanting.len);
    PyObject *arrivals = inputs == NULL ? NULL : watch_arrivals(c);
    if (arrivals != NULL)
        given = kin_engine_run(results, tangents, false, inputs);
    bool ok = given != NULL && keep_gradients(c, given) && keep_arrivals(c, arrivals);
    Py_XDECREF(given);
    Py_XDECREF(arrivals);
    Py_XDECREF(inputs);
    Py_XDECREF(results);
    Py_XDECREF(tangents);
    return ok;
}

void
kin_joint_order(capturing *c)
{
    kin_aten *g = c->out->graph;
    kin_aten_val *now = malloc((g->values.len + 1) * sizeof *now);
    if (now == NULL || !kin_aten_inputs_first(g, now)) {
        g->failed = true;
        free(now);
        return;
    }
    for (uint32_t i = 0; i < c->entries.len; i++)
        c->entries.at[i].val = now[c->entries.at[i].val];
    free(now);
}
