/* Private to src/py/aten: how a Tensor object is taken apart. */
#ifndef KIN_PY_TENSOR_PRIV_H
#define KIN_PY_TENSOR_PRIV_H

#include <Python.h>
#include <stdbool.h>
#include <stdint.h>

/* A library that torch has loaded, and a symbol in it (`fn` points to a function pointer). */
void *kin_aten_library(PyObject *torch_module, const char *name);
bool kin_aten_symbol(void *lib, const char *name, void *fn);
/* The C ABI's handle of a tensor, and its TensorImpl. */
void *kin_aten_handle(PyObject *tensor);
void *kin_aten_impl(PyObject *tensor);
/* torch's numbers; -1 on failure. */
int32_t kin_aten_dtype(PyObject *tensor);
int32_t kin_aten_device(PyObject *tensor);

#endif
