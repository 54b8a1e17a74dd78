/* Builds lists, tuples and dicts item by item from others. */
#ifndef KIN_PY_REFS_SEQUENCE_H
#define KIN_PY_REFS_SEQUENCE_H

#include <Python.h>

/* Puts `item`, whose reference it takes, into a new list or tuple. NULL is an error, and then the sequence is gone too. */
void kin_sequence_put(PyObject **made, Py_ssize_t i, PyObject *item);

/* What becomes of an item: new reference, or NULL with an exception. */
typedef PyObject *kin_item_fn(void *arg, PyObject *item);

/* A list or tuple, as `obj` is one, of what becomes of its items: new reference. */
PyObject *kin_map_items(PyObject *obj, kin_item_fn *one, void *arg);
/* A dict with the keys of `dict` (NULL: none) and what becomes of its values: new reference. */
PyObject *kin_map_values(PyObject *dict, kin_item_fn *one, void *arg);

#endif
