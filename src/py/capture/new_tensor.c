/* Tensors that torch.tensor() and the like make of numbers, as operators of the graph. */
#include <math.h>

#include "py/aten/make.h"
#include "py/aten/tensor.h"
#include "py/capture/capture_priv.h"

#define T kin_capture_torch

/* One element of a new tensor. */
static PyObject *
note_element(capturing *c, PyObject *value, PyObject *dtype)
{
    PyObject *args = Py_BuildValue("([]O)", value), *kwargs = Py_BuildValue("{s:O}", "dtype", dtype);
    return kin_mode_call_default(c, "full", args, kwargs);
}

static PyObject *
note_elements(capturing *c, PyObject *values, PyObject *dtype, PyObject *sizes)
{
    Py_ssize_t n = PyList_GET_SIZE(values);
    PyObject *parts = PyList_New(n), *made = NULL;
    for (Py_ssize_t i = 0; parts != NULL && i < n; i++) {
        PyObject *part = note_element(c, PyList_GET_ITEM(values, i), dtype);
        if (part == NULL)
            Py_CLEAR(parts);
        else
            PyList_SET_ITEM(parts, i, part);
    }
    if (parts != NULL)
        made = kin_mode_call_default(c, "stack", PyTuple_Pack(1, parts), NULL);
    Py_XDECREF(parts);
    if (made != NULL && PySequence_Size(sizes) > 1)
        Py_SETREF(made, kin_mode_call_default(c, "view", PyTuple_Pack(2, made, sizes), NULL));
    return made;
}

/* A new tensor without elements, as one for what comes later is (torch.tensor([])). */
static PyObject *
note_empty(capturing *c, PyObject *tensor, PyObject *dtype)
{
    PyObject *size = PyObject_CallMethod(tensor, "size", NULL), *sizes = size == NULL ? NULL : PySequence_List(size);
    PyObject *args = sizes == NULL ? NULL : Py_BuildValue("(Oi)", sizes, 0);
    PyObject *kwargs = args == NULL ? NULL : Py_BuildValue("{s:O}", "dtype", dtype);
    Py_XDECREF(size);
    Py_XDECREF(sizes);
    return args == NULL ? NULL : kin_mode_call_default(c, "full", args, kwargs);
}

static bool
holds_float(PyObject *obj, int depth)
{
    bool items = (PyList_CheckExact(obj) || PyTuple_CheckExact(obj)) && depth < 8, found = PyFloat_CheckExact(obj);
    for (Py_ssize_t i = 0; items && !found && i < PySequence_Fast_GET_SIZE(obj); i++)
        found = holds_float(PySequence_Fast_GET_ITEM(obj, i), depth + 1);
    return found;
}

/* Appends the numbers of nested lists and tuples. False: there is something else, or an exception is set. */
static bool
collect_numbers(PyObject *obj, PyObject *out, int depth)
{
    if (PyFloat_CheckExact(obj) || PyLong_CheckExact(obj))
        return PyList_Append(out, obj) == 0;
    bool numbers = (PyList_CheckExact(obj) || PyTuple_CheckExact(obj)) && depth < 8;
    for (Py_ssize_t i = 0; numbers && i < PySequence_Fast_GET_SIZE(obj); i++)
        numbers = collect_numbers(PySequence_Fast_GET_ITEM(obj, i), out, depth + 1);
    return numbers;
}

/* Are these the numbers that were rounded to the tensor's elements? Ints are replaced by what they became: only floats are told from others by their last bits.
 * One that float32 cannot hold is none that another call may have in its place. */
static bool
round_to(PyObject *numbers, PyObject *elements)
{
    bool same = PyList_GET_SIZE(numbers) == PyList_GET_SIZE(elements);
    for (Py_ssize_t i = 0; same && i < PyList_GET_SIZE(numbers); i++) {
        PyObject *number = PyList_GET_ITEM(numbers, i), *element = PyList_GET_ITEM(elements, i);
        double value = PyFloat_AsDouble(element);
        if (PyFloat_CheckExact(number))
            same = isfinite(value) && (double)(float)PyFloat_AS_DOUBLE(number) == value;
        else
            same = PyList_SetItem(numbers, i, Py_NewRef(element)) == 0;
    }
    return same;
}

/* The elements of a float32 tensor as the program gave them, before they were rounded: a float that differs from call to call is known by its value. Borrowed from
 * `found`, or `elements` themselves where it is not certain. */
static PyObject *
unrounded(const capturing *c, PyObject *elements, PyObject *found)
{
    bool certain = c->operands != NULL, any = false;
    for (uint32_t i = 0; certain && i < c->noperands; i++) {
        PyObject *operand = c->operands[i];
        bool holds = operand != NULL && holds_float(operand, 0);
        certain = !holds || (!any && collect_numbers(operand, found, 0));
        any = any || holds;
    }
    if (PyErr_Occurred())
        PyErr_Clear();
    return certain && any && round_to(found, elements) ? found : elements;
}

PyObject *
kin_capture_new_tensor(capturing *c, PyObject *args)
{
    enum { MOST = 64 };
    PyObject *tensor = PyTuple_GET_SIZE(args) == 1 ? PyTuple_GET_ITEM(args, 0) : NULL;
    kin_dtype dtype;
    if (tensor == NULL || !kin_is_tensor(tensor) || kin_capture_number(tensor) != UINT32_MAX || !kin_tensor_is_ordinary(tensor) || c->device != NULL ||
        !kin_tensor_dtype(tensor, &dtype) || dtype >= KIN_C64 || kin_tensor_requires_grad(tensor))
        return NULL;
    int64_t n = 1;
    for (int64_t d = 0; d < kin_tensor_dim(tensor) && n <= MOST; d++)
        n *= kin_tensor_sizes(tensor)[d];
    if (n > MOST)
        return NULL;
    if (n == 0)
        return note_empty(c, tensor, T.dtypes[dtype]);
    PyObject *flat = PyObject_CallMethod(tensor, "reshape", "i", -1), *made = NULL;
    PyObject *values = flat == NULL ? NULL : PyObject_CallMethod(flat, "tolist", NULL);
    PyObject *size = values == NULL ? NULL : PyObject_CallMethod(tensor, "size", NULL);
    PyObject *sizes = size == NULL ? NULL : PySequence_List(size);
    Py_XDECREF(size);
    PyObject *found = sizes == NULL ? NULL : PyList_New(0), *numbers = found == NULL ? NULL : dtype == KIN_F32 ? unrounded(c, values, found) : values;
    if (numbers != NULL)
        made = kin_tensor_dim(tensor) == 0 ? note_element(c, PyList_GET_ITEM(numbers, 0), T.dtypes[dtype])
                                           : note_elements(c, numbers, T.dtypes[dtype], sizes);
    Py_XDECREF(flat);
    Py_XDECREF(found);
    Py_XDECREF(values);
    Py_XDECREF(sizes);
    return made;
}
