/* Sizes of tensors as Python objects: torch.Size without its constructor, one size without the tuple. */
#ifndef KIN_PY_SIZES_H
#define KIN_PY_SIZES_H

#include "core/base/status.h"
#include <Python.h>
#include <stdbool.h>

kin_status kin_sizes_init(PyObject *torch_module) KIN_MUST_CHECK;
/* Exactly torch.Size. */
bool kin_is_size(PyObject *obj);
bool kin_is_size_type(PyTypeObject *type);
PyTypeObject *kin_size_type(void);
/* torch.Size of the ints; new reference. */
PyObject *kin_size_new(PyObject *const *items, Py_ssize_t n);
/* Size number `dim` as a new int; an IndexError where the tensor has fewer. */
PyObject *kin_size_at(PyObject *tensor, unsigned dim);

/* Do the elements lie row by row? */
bool kin_lies_by_rows(const int64_t *sizes, const int64_t *strides, int64_t ndim);

/* ", dynamic dims [0, 2]" of a metadata record with dynamic dims, or "": new str. */
PyObject *kin_open_text(PyObject *record);

#endif
