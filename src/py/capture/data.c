/* Calls that need data, while something is to be shown of a graph that is not compiled from the capture (KIN_CAPTURE_DATA): they run on
 * tensors of ones, outside of the dispatch mode, and stand-ins are put in the place of what they give.
 */
#include "py/capture/capture_priv.h"
#include "py/refs/sequence.h"

#define T kin_capture_torch

enum { DEPTH = 6 };

static PyObject *
ones_like(PyObject *stand_in)
{
    kin_dtype dtype;
    PyObject *torch = PyImport_ImportModule("torch"), *made = NULL;
    PyObject *sizes = PyObject_GetAttrString(stand_in, "shape");
    if (torch != NULL && sizes != NULL && kin_tensor_dtype(stand_in, &dtype) && T.dtypes[dtype] != NULL) {
        PyObject *make = PyObject_GetAttrString(torch, "ones"), *args = PyTuple_Pack(1, sizes);
        PyObject *kwargs = Py_BuildValue("{s:O,s:O}", "dtype", T.dtypes[dtype], "requires_grad",
                                         kin_tensor_requires_grad(stand_in) ? Py_True : Py_False);
        if (make != NULL && args != NULL && kwargs != NULL)
            made = PyObject_Call(make, args, kwargs);
        Py_XDECREF(make);
        Py_XDECREF(args);
        Py_XDECREF(kwargs);
    } else if (!PyErr_Occurred()) {
        PyErr_SetString(PyExc_RuntimeError, "kintsugi: no data for a stand-in");
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

static PyObject *
to_data(void *arg, PyObject *obj, int depth)
{
    if (kin_capture_number(obj) != UINT32_MAX)
        return ones_like(obj);
    if (depth < DEPTH && (PyTuple_CheckExact(obj) || PyList_CheckExact(obj)))
        return rebuild(obj, depth, to_data, arg);
    return Py_NewRef(obj);
}

PyObject *
kin_capture_data_of(PyObject *obj)
{
    return to_data(NULL, obj, 0);
}

static PyObject *
to_stand_in(void *arg, PyObject *obj, int depth)
{
    capturing *c = arg;
    kin_dtype dtype;
    if (depth < DEPTH && (PyTuple_Check(obj) || PyList_CheckExact(obj)))
        return rebuild(obj, depth, to_stand_in, arg);
    if (!kin_is_tensor(obj))
        return Py_NewRef(obj);
    uint32_t storage = kin_tensor_dtype(obj, &dtype) ? kin_stand_in_new_storage(c) : 0;
    kin_aten_val val = storage == 0 ? 0 : kin_aten_input(c->out->graph, dtype, (unsigned)kin_tensor_dim(obj), kin_tensor_sizes(obj),
                                                         kin_tensor_strides(obj), storage, 0);
    return kin_stand_in_new(c, NULL, kin_tensor_requires_grad(obj), val);
}

PyObject *
kin_capture_stand_in_for(capturing *c, PyObject *obj)
{
    return to_stand_in(c, obj, 0);
}
