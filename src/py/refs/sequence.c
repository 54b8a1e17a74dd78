/* Builds lists, tuples and dicts item by item from others. */
#include "py/refs/sequence.h"

void
kin_sequence_put(PyObject **made, Py_ssize_t i, PyObject *item)
{
    if (item == NULL)
        Py_CLEAR(*made);
    else if (PyList_CheckExact(*made))
        PyList_SET_ITEM(*made, i, item);
    else
        PyTuple_SET_ITEM(*made, i, item);
}

PyObject *
kin_map_items(PyObject *obj, kin_item_fn *one, void *arg)
{
    Py_ssize_t n = PySequence_Fast_GET_SIZE(obj);
    PyObject *made = PyList_Check(obj) ? PyList_New(n) : PyTuple_New(n);
    for (Py_ssize_t i = 0; made != NULL && i < n; i++)
        kin_sequence_put(&made, i, one(arg, PySequence_Fast_GET_ITEM(obj, i)));
    return made;
}

PyObject *
kin_map_values(PyObject *dict, kin_item_fn *one, void *arg)
{
    PyObject *made = PyDict_New(), *key, *value;
    Py_ssize_t pos = 0;
    while (made != NULL && dict != NULL && PyDict_Next(dict, &pos, &key, &value)) {
        PyObject *item = one(arg, value);
        if (item == NULL || PyDict_SetItem(made, key, item) < 0)
            Py_CLEAR(made);
        Py_XDECREF(item);
    }
    return made;
}
