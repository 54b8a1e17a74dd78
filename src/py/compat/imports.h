/* Attributes of Python modules, by name: kin_import("torch", "ops.mkldnn"). */
#ifndef KIN_PY_COMPAT_IMPORTS_H
#define KIN_PY_COMPAT_IMPORTS_H

#include <Python.h>
#include <stdbool.h>

/* New reference; NULL with an exception. path: attributes, with dots between them. */
PyObject *kin_import(const char *module, const char *path);
/* Kept for the life of the process in *kept, NULL at first: borrowed; NULL without an exception. */
PyObject *kin_import_once(PyObject **kept, const char *module, const char *path);
/* What calling it returns; arg: or NULL. */
PyObject *kin_import_call(const char *module, const char *path, PyObject *arg);
/* Is the answer of a function of ours True? Steals it; NULL: it raised, and what it raised is dropped. */
bool kin_says_yes(PyObject *answer);

#endif
