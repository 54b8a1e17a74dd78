/* One call of a compiled function: replay an entry whose guards hold, else record, else run the function. */
#ifndef KIN_PY_MODULE_DISPATCH_H
#define KIN_PY_MODULE_DISPATCH_H

#include "py/module/compiled.h"

/* vectorcall of Compiled objects. */
PyObject *kin_dispatch(PyObject *self, PyObject *const *args, size_t nargsf, PyObject *kwnames);

/* Nanoseconds per evaluation of the guards of the entry that would be hit by fn(*args, **kwargs); -1 with an exception.
 * `kwargs` may be NULL. */
double kin_dispatch_time_guards(kin_compiled *self, PyObject *args, PyObject *kwargs, Py_ssize_t count);

#endif
