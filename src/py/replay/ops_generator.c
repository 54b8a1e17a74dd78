/* Steps about generators: creating one, and setting the state in which it is suspended. Real generators only exist where an exit or
 * code that is not watched needs them; their bodies never run in a replay. */
#include "py/compat/generator.h"
#include "py/replay/iterator_state.h"
#include "py/replay/ops_priv.h"
#include <string.h>

/* Calling a generator function runs none of its code. */
PyObject *
kin_op_build_generator(const kin_op_args *o)
{
    Py_ssize_t nkw = o->ref ? PyTuple_GET_SIZE(o->ref) : 0;
    return PyObject_Vectorcall(o->arg[0], o->arg + 1, (size_t)(o->nargs - 1 - nkw), nkw ? o->ref : NULL);
}

/* Without a state the generator has ended. */
PyObject *
kin_op_generator_state(const kin_op_args *o)
{
    if (o->ref == NULL)
        return kin_generator_end(o->arg[0]) == KIN_OK ? Py_NewRef(Py_None) : NULL;
    PyCodeObject *code = (PyCodeObject *)PyTuple_GET_ITEM(o->ref, 0);
    uint32_t offset = (uint32_t)PyLong_AsUnsignedLong(PyTuple_GET_ITEM(o->ref, 1));
    int handles = PyObject_IsTrue(PyTuple_GET_ITEM(o->ref, 2)), n = o->nargs - 1 - handles;
    if (kin_generator_suspend(o->arg[0], code, offset, o->arg + 1, n, handles ? o->arg[1 + n] : NULL) != KIN_OK)
        return NULL;
    return Py_NewRef(Py_None);
}

PyObject *
kin_op_iterator_at(const kin_op_args *o)
{
    return kin_iterator_set(o->arg[0], o->arg[1]) ? Py_NewRef(Py_None) : NULL;
}

/* The beginning of a starmap object, as CPython 3.11 to 3.14 lay it out. Its __reduce__ warns on 3.12 and 3.13 and is gone on 3.14. */
typedef struct {
    PyObject_HEAD
    PyObject *func, *it;
} starmap_head;

static PyObject *
parts_of_lazy(PyObject *lazy)
{
    if (strcmp(Py_TYPE(lazy)->tp_name, "itertools.starmap") != 0)
        return PyObject_CallMethod(lazy, "__reduce__", NULL);
    const starmap_head *head = (starmap_head *)lazy;
    return Py_BuildValue("O(OO)", (PyObject *)Py_TYPE(lazy), head->func, head->it);
}

/* The iterators behind a map or filter object are used up as it would have done it, item by item from the left. They are those of builtin
 * containers. */
PyObject *
kin_op_use_up(const kin_op_args *o)
{
    PyObject *parts = parts_of_lazy(o->arg[0]), *item = Py_None;
    PyObject *of = parts != NULL ? PyTuple_GET_ITEM(parts, 1) : NULL; /* the callback, then the iterators */
    while (of != NULL && item != NULL)
        for (Py_ssize_t i = 1; item != NULL && i < PyTuple_GET_SIZE(of); i++) {
            item = PyIter_Next(PyTuple_GET_ITEM(of, i));
            Py_XDECREF(item);
        }
    Py_XDECREF(parts);
    return PyErr_Occurred() ? NULL : Py_NewRef(Py_None);
}
