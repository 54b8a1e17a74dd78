/* Unpacking into names, as CPython's own instruction does it: how often the iterator is asked can be seen, and so can the words of its errors. */
#include "py/compat/kinds.h"
#include "py/replay/ops_priv.h"
#include <stdbool.h>

static PyObject *
iterator_of(PyObject *iterable)
{
    PyObject *it = PyObject_GetIter(iterable);
    if (it == NULL && PyErr_ExceptionMatches(PyExc_TypeError) && Py_TYPE(iterable)->tp_iter == NULL && !PySequence_Check(iterable))
        PyErr_Format(PyExc_TypeError, "cannot unpack non-iterable %.200s object", Py_TYPE(iterable)->tp_name);
    return it;
}

static void
raise_too_few(Py_ssize_t before, Py_ssize_t after, Py_ssize_t got)
{
    if (after < 0)
        PyErr_Format(PyExc_ValueError, "not enough values to unpack (expected %zd, got %zd)", before, got);
    else
        PyErr_Format(PyExc_ValueError, "not enough values to unpack (expected at least %zd, got %zd)", before + after, got);
}

static void
raise_too_many(PyObject *iterable, Py_ssize_t before)
{
    bool sized = PyList_CheckExact(iterable) || PyTuple_CheckExact(iterable) || PyDict_CheckExact(iterable);
    Py_ssize_t got = sized && kin_counts_what_is_unpacked ? PyObject_Size(iterable) : 0;
    if (got > before) {
        PyErr_Format(PyExc_ValueError, "too many values to unpack (expected %zd, got %zd)", before, got);
        return;
    }
    PyErr_Format(PyExc_ValueError, "too many values to unpack (expected %zd)", before);
}

/* The first items go to the tuple. False: it raised. */
static bool
take_first(PyObject *it, PyObject *items, Py_ssize_t before, Py_ssize_t after)
{
    for (Py_ssize_t i = 0; i < before; i++) {
        PyObject *item = PyIter_Next(it);
        if (item == NULL) {
            if (!PyErr_Occurred())
                raise_too_few(before, after, i);
            return false;
        }
        PyTuple_SET_ITEM(items, i, item);
    }
    return true;
}

/* Nothing may come behind them. */
static bool
is_at_end(PyObject *it, PyObject *iterable, Py_ssize_t before)
{
    PyObject *more = PyIter_Next(it);
    if (more != NULL)
        raise_too_many(iterable, before);
    Py_XDECREF(more);
    return more == NULL && !PyErr_Occurred();
}

/* The starred name's list, and the items behind it. */
static bool
take_rest(PyObject *it, PyObject *items, Py_ssize_t before, Py_ssize_t after)
{
    PyObject *rest = PySequence_List(it);
    Py_ssize_t n = rest != NULL ? PyList_GET_SIZE(rest) : 0;
    if (rest == NULL)
        return false;
    PyTuple_SET_ITEM(items, before, rest);
    if (n < after) {
        raise_too_few(before, after, before + n);
        return false;
    }
    for (Py_ssize_t i = 0; i < after; i++)
        PyTuple_SET_ITEM(items, before + 1 + i, Py_NewRef(PyList_GET_ITEM(rest, n - after + i)));
    return PyList_SetSlice(rest, n - after, n, NULL) == 0;
}

/* The items in order, as a tuple: `before` of them, and where after >= 0 a list of those in the middle and `after` more. */
static PyObject *
unpack(PyObject *iterable, Py_ssize_t before, Py_ssize_t after)
{
    PyObject *it = iterator_of(iterable), *items = it != NULL ? PyTuple_New(after < 0 ? before : before + 1 + after) : NULL;
    bool ok = items != NULL && take_first(it, items, before, after) && (after < 0 ? is_at_end(it, iterable, before) : take_rest(it, items, before, after));
    Py_XDECREF(it);
    if (!ok)
        Py_CLEAR(items);
    return items;
}

PyObject *
kin_op_unpack(const kin_op_args *o)
{
    return unpack(o->arg[0], PyLong_AsSsize_t(o->arg[1]), PyLong_AsSsize_t(o->arg[2]));
}
