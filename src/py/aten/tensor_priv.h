/* Private to src/py/aten: the layout of a Tensor object. */
#ifndef KIN_PY_TENSOR_PRIV_H
#define KIN_PY_TENSOR_PRIV_H

#include <Python.h>
#include <stdbool.h>
#include <stdint.h>

typedef int32_t (*int32_fn)(void);
typedef int (*get_int32)(void *, int32_t *);
typedef int (*get_int64)(void *, int64_t *);
typedef int (*get_array)(void *, int64_t **);

enum { DEVICE_CPU = 0, DEVICE_CUDA = 1, DEVICE_META = 14 }; /* torch's device type numbers */

typedef struct {
    get_int64 dim, numel, storage_offset;
    get_array sizes, strides;
    get_int32 dtype, device_type, device_index, layout;
    bool (*requires_grad)(const void *impl);
    int32_t layout_strided;
    Py_ssize_t impl_offset; /* of the TensorImpl pointer in the Tensor object */
    Py_ssize_t keys_offset; /* of the key set in the TensorImpl; 0 = unknown */
    uint64_t strided_keys;  /* all that a strided tensor may have; 0 = unknown */
    uint64_t lazy_keys;     /* ... of those whose data are not what they give: conjugated, negated, zero */
    uint64_t sized_keys;    /* ... that a tensor may have whose sizes lie where a strided one's do */
    PyTypeObject *tensor, *parameter;
    PyTypeObject *own;      /* the fake tensors of capture */
    bool ready;
} kin_torch_access;
/* Filled by kin_aten_init. */
extern kin_torch_access kin_torch;

/* A library that torch has loaded, and a symbol in it (`fn` points to a function pointer). */
void *kin_aten_library(PyObject *torch_module, const char *name);
bool kin_aten_symbol(void *lib, const char *name, void *fn);
/* The C ABI's handle of a tensor, and its TensorImpl. */
void *kin_aten_handle(PyObject *tensor);
void *kin_aten_impl(PyObject *tensor);
/* Do its sizes, and its strides, lie where they do in a strided tensor? */
bool kin_aten_has_sizes(PyObject *tensor);
bool kin_aten_has_strides(PyObject *tensor);
/* torch's numbers; -1 on failure. */
int32_t kin_aten_dtype(PyObject *tensor);
int32_t kin_aten_device(PyObject *tensor);

#endif
