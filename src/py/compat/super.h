/* Creates super objects from their parts. */
#ifndef KIN_PY_SUPER_H
#define KIN_PY_SUPER_H

#include <Python.h>

/* What super(after, self) gives when it looks in `in`: new reference or NULL. Asks no `__class__`, so it can be made late. */
PyObject *kin_super_new(PyTypeObject *after, PyObject *self, PyTypeObject *in);

#endif
