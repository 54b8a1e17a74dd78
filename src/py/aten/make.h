/* Creates and takes apart tensors through PyTorch's C ABI: what capture and launching need beyond metadata. */
#ifndef KIN_PY_ATEN_MAKE_H
#define KIN_PY_ATEN_MAKE_H

#include "core/base/status.h"
#include "core/ir/ir.h"
#include <Python.h>

/* After kin_aten_init. KIN_BREAK: this build of torch lacks something, so graphs are not compiled. */
kin_status kin_make_init(PyObject *torch_module) KIN_MUST_CHECK;
bool kin_make_ready(void); /* has it succeeded? */

/* A new tensor with undefined contents; strides in elements. NULL with an exception. */
PyObject *kin_tensor_new(kin_dtype dtype, unsigned ndim, const int64_t *sizes, const int64_t *strides, bool meta);
/* A tensor over memory that the caller keeps alive and at its place. */
PyObject *kin_tensor_over(void *data, kin_dtype dtype, unsigned ndim, const int64_t *sizes, const int64_t *strides);
/* First element; NULL on failure (also of empty tensors). */
void *kin_tensor_data(PyObject *tensor);
/* New tuple; NULL with an exception. */
PyObject *kin_tuple_of_ints(const int64_t *numbers, Py_ssize_t n);
int64_t kin_tensor_offset(PyObject *tensor);
/* Names the memory of a strided tensor: equal for two tensors alive at the same time if they share it. */
const void *kin_tensor_storage(PyObject *tensor);
/* False for an unsupported dtype. */
bool kin_tensor_dtype(PyObject *tensor, kin_dtype *out);
/* Is it on the CPU (meta: on the meta device) and strided? */
bool kin_tensor_is_dense(PyObject *tensor, bool meta);
/* torch.Tensor or Parameter, on the CPU, strided, and nothing special about it (no transform, no lazy conjugate): the
 * dispatch keys tell. */
bool kin_tensor_is_ordinary(PyObject *tensor);
bool kin_tensor_has_ordinary_data(PyObject *tensor); /* the same of a tensor of whatever class */
bool kin_tensor_has_plain_data(PyObject *tensor);    /* ... and on whatever device */
uint64_t kin_tensor_keys(PyObject *tensor);
bool kin_tensor_requires_grad(PyObject *tensor);

/* Made in inference mode: its versions are not counted. */
bool kin_tensor_is_inference(PyObject *tensor);
bool kin_inference_enabled(void);
/* As an operator that wrote to it would. */
void kin_tensor_bump(PyObject *tensor, uint32_t times);

/* Is a gradient recorded for what requires one? */
bool kin_grad_enabled(void);
void kin_grad_set(bool enabled);
/* What the results of operators depend on beside their operands: autocast on the CPU and the default dtype, in one number. */
uint32_t kin_ambient_state(void);
bool kin_default_is_f64(void);
/* Must all operators be left to torch? Where it promises to repeat every bit (and fills new memory), where tensors carry tangents
 * of forward differentiation unseen, and with a default dtype of half precision. */
bool kin_ambient_special(void);
/* False for one that graphs do not know. */
bool kin_default_dtype(kin_dtype *out);
/* Another tensor over the memory of this one, with its dtype. */
PyObject *kin_tensor_view(PyObject *tensor, unsigned ndim, const int64_t *sizes, const int64_t *strides, int64_t offset);
/* Does a torch-function or dispatch mode see calls in this thread? */
bool kin_modes_active(void);

/* An entry point of torch's CPU library (data, to be copied into a function pointer); NULL: there is none of that name. */
void *kin_torch_symbol(const char *name);

#endif
