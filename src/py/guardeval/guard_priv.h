/* What the files of guard evaluation share. */
#ifndef KIN_PY_GUARD_PRIV_H
#define KIN_PY_GUARD_PRIV_H

#include "py/guardeval/guard.h"

/* The objects start, stop, step, length of a range; NULL when its layout is unknown. */
PyObject *const *kin_range_parts(PyObject *range);
/* len() of an exact builtin, -1 for anything else. */
Py_ssize_t kin_exact_len(PyObject *obj);
/* bool() of an exact builtin, -1 for anything else. */
int kin_exact_truth(PyObject *obj);

/* Byte offset in `obj` of the pointer that the access reads, for accesses that are one fixed word of the object
 * (function fields, method and partial parts, cell contents, __slots__); 0 when the access is of another sort or
 * the object of another type. */
Py_ssize_t kin_guard_field(const kin_val *val, PyObject *obj);

#endif
