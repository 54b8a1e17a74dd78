/* Calls that need data, in a capture that is only to prove something about a graph and is not compiled (KIN_CAPTURE_DATA): they run on
 * tensors of ones, outside of the dispatch mode, and fake tensors take the place of their results.
 */
#include "py/capture/capture_priv.h"
#include "py/refs/sequence.h"

#define T kin_capture_torch

enum { DEPTH = 6 };

/* The last element becomes zero. */
static bool
end_with_zero(PyObject *tensor)
{
    PyObject *flat = PyObject_CallMethod(tensor, "detach", NULL);
    Py_XSETREF(flat, flat == NULL ? NULL : PyObject_CallMethod(flat, "view", "i", -1));
    PyObject *begin = PyLong_FromLong(-1), *end = begin == NULL ? NULL : PySlice_New(begin, Py_None, Py_None);
    PyObject *last = flat == NULL || end == NULL ? NULL : PyObject_GetItem(flat, end);
    PyObject *done = last == NULL ? NULL : PyObject_CallMethod(last, "zero_", NULL);
    Py_XDECREF(done);
    Py_XDECREF(last);
    Py_XDECREF(end);
    Py_XDECREF(begin);
    Py_XDECREF(flat);
    return done != NULL;
}

static PyObject *
ones_like(const capturing *c, PyObject *fake)
{
    kin_dtype dtype;
    PyObject *torch = PyImport_ImportModule("torch"), *made = NULL;
    PyObject *sizes = PyObject_GetAttrString(fake, "shape");
    if (torch != NULL && sizes != NULL && kin_tensor_dtype(fake, &dtype) && T.dtypes[dtype] != NULL) {
        PyObject *make = PyObject_GetAttrString(torch, "ones"), *args = PyTuple_Pack(1, sizes);
        PyObject *kwargs = Py_BuildValue("{s:O,s:O,s:O}", "dtype", T.dtypes[dtype], "device", c->device != NULL ? c->device : T.cpu,
                                         "requires_grad", kin_tensor_requires_grad(fake) ? Py_True : Py_False);
        if (make != NULL && args != NULL && kwargs != NULL)
            made = PyObject_Call(make, args, kwargs);
        if (made != NULL && c->other_data && !end_with_zero(made))
            Py_CLEAR(made);
        Py_XDECREF(make);
        Py_XDECREF(args);
        Py_XDECREF(kwargs);
    } else if (!PyErr_Occurred()) {
        PyErr_SetString(PyExc_RuntimeError, "kintsugi: no data for a fake tensor");
    }
    Py_XDECREF(sizes);
    Py_XDECREF(torch);
    return made;
}

/* The object with `one` done to what it holds: new reference. */
static PyObject *
rebuild(PyObject *obj, int depth, PyObject *(*one)(void *arg, PyObject *obj, int depth), void *arg)
{
    Py_ssize_t n = PySequence_Fast_GET_SIZE(obj);
    PyObject *made = PyList_Check(obj) ? PyList_New(n) : PyTuple_New(n);
    for (Py_ssize_t i = 0; made != NULL && i < n; i++)
        kin_sequence_put(&made, i, one(arg, PySequence_Fast_GET_ITEM(obj, i), depth + 1));
    return made;
}

static PyObject *to_data(void *arg, PyObject *obj, int depth);

/* The function with data in the place of fake tensors among what its cells hold. */
static PyObject *
function_of_data(void *arg, PyObject *function, int depth)
{
    PyObject *cells = PyFunction_GET_CLOSURE(function);
    PyObject *made = PyFunction_New(PyFunction_GET_CODE(function), PyFunction_GET_GLOBALS(function));
    PyObject *closure = PyTuple_New(PyTuple_GET_SIZE(cells));
    bool ok = made != NULL && closure != NULL;
    for (Py_ssize_t i = 0; ok && i < PyTuple_GET_SIZE(cells); i++) {
        PyObject *held = PyCell_GET(PyTuple_GET_ITEM(cells, i)), *data = held == NULL ? NULL : to_data(arg, held, depth + 1);
        PyObject *cell = held != NULL && data == NULL ? NULL : PyCell_New(data);
        Py_XDECREF(data);
        ok = cell != NULL;
        if (ok)
            PyTuple_SET_ITEM(closure, i, cell);
    }
    ok = ok && PyFunction_SetClosure(made, closure) == 0 &&
         (PyFunction_GET_DEFAULTS(function) == NULL || PyFunction_SetDefaults(made, PyFunction_GET_DEFAULTS(function)) == 0) &&
         (PyFunction_GET_KW_DEFAULTS(function) == NULL || PyFunction_SetKwDefaults(made, PyFunction_GET_KW_DEFAULTS(function)) == 0);
    Py_XDECREF(closure);
    if (!ok)
        Py_CLEAR(made);
    return made;
}

static PyObject *
to_data(void *arg, PyObject *obj, int depth)
{
    if (depth < DEPTH && PyFunction_Check(obj) && PyFunction_GET_CLOSURE(obj) != NULL)
        return function_of_data(arg, obj, depth);
    if (kin_capture_number(obj) != UINT32_MAX)
        return ones_like(arg, obj);
    if (depth < DEPTH && (PyTuple_CheckExact(obj) || PyList_CheckExact(obj)))
        return rebuild(obj, depth, to_data, arg);
    return Py_NewRef(obj);
}

PyObject *
kin_capture_data_of(capturing *c, PyObject *obj)
{
    return to_data(c, obj, 0);
}

static PyObject *
to_fake(void *arg, PyObject *obj, int depth)
{
    capturing *c = arg;
    kin_dtype dtype;
    if (depth < DEPTH && (PyTuple_Check(obj) || PyList_CheckExact(obj)))
        return rebuild(obj, depth, to_fake, arg);
    if (!kin_is_tensor(obj))
        return Py_NewRef(obj);
    if (!kin_tensor_is_strided(obj) || !kin_tensor_dtype(obj, &dtype)) { /* it may have neither sizes nor strides to be read */
        kin_capture_refuse(c, "an unsupported kind of result");
        return NULL;
    }
    uint32_t storage = kin_fake_new_storage(c);
    kin_aten_val val = storage == 0 ? 0 : kin_aten_input(c->out->graph, dtype, (unsigned)kin_tensor_dim(obj), kin_tensor_sizes(obj),
                                                         kin_tensor_strides(obj), storage, 0);
    return kin_fake_new(c, NULL, kin_tensor_requires_grad(obj), val);
}

PyObject *
kin_capture_fake_for(capturing *c, PyObject *obj)
{
    return to_fake(c, obj, 0);
}
