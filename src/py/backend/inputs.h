/* What the inputs of a graph were when code was made for them, and whether others are alike: for kintsugi._cuda_graphs. */
#ifndef KIN_PY_BACKEND_INPUTS_H
#define KIN_PY_BACKEND_INPUTS_H

#include <Python.h>
#include <stdbool.h>

/* A tuple with a record for each input (kin_meta_make); NULL without an exception: one is no plain strided tensor, or none can be read. */
PyObject *kin_inputs_describe(PyObject *const *inputs, Py_ssize_t n);
/* With such records: are these inputs of the same kinds as those of the records, and where `addresses` (uint64, native) is not 0 at that address? */
bool kin_inputs_fit(PyObject *const *inputs, Py_ssize_t n, PyObject *records, const char *addresses);

#endif
