/* Optimizer.zero_grad, for plain tensors (optim.h). */
#include "py/optim/optim.h"

#include <string.h>

#include "py/aten/make.h"
#include "py/aten/modes.h"
#include "py/aten/tensor.h"
#include "py/compat/heap.h"
#include "py/optim/optim_priv.h"

/* Who profiles sees a row for the call: the library makes it. */
static bool
is_profiled(void)
{
    PyObject *module = PyDict_GetItemString(PyImport_GetModuleDict(), "torch.autograd.profiler"); /* borrowed */
    return module == NULL || PyDict_GetItemString(PyModule_GetDict(module), "_is_profiler_enabled") != Py_False;
}

/* Is the gradient one that zero_() fills, and nothing else has to be done to? */
static bool
is_plain(PyObject *grad, size_t *bytes)
{
    kin_dtype dtype;
    int64_t numel;
    if (!kin_is_plain_tensor(grad) || !kin_tensor_is_ordinary(grad) || kin_tensor_is_inference(grad) || kin_tensor_requires_grad(grad) ||
        !kin_tensor_dtype(grad, &dtype) ||
        !optim_is_dense(kin_tensor_sizes(grad), kin_tensor_strides(grad), kin_tensor_dim(grad), &numel))
        return false;
    *bytes = (size_t)numel * kin_dtype_bytes(dtype);
    return *bytes == 0 || kin_tensor_data(grad) != NULL;
}

static bool
zero_param(PyObject *param, bool to_none, bool look)
{
    PyObject *grad = kin_is_plain_tensor(param) ? PyObject_GetAttr(param, optim_name_grad()) : NULL;
    size_t bytes;
    bool ok = grad != NULL && (grad == Py_None || to_none || is_plain(grad, &bytes));
    if (ok && grad != Py_None && !look) {
        if (to_none) {
            ok = PyObject_SetAttr(param, optim_name_grad(), Py_None) == 0;
        } else {
            if (bytes > 0)
                memset(kin_tensor_data(grad), 0, bytes);
            kin_tensor_bump(grad, 1);
        }
    }
    Py_XDECREF(grad);
    return ok;
}

/* First with `look`, which changes nothing. */
static bool
zero_all(PyObject *groups, bool to_none, bool look)
{
    for (Py_ssize_t g = 0; g < PyList_GET_SIZE(groups); g++) {
        PyObject *group = PyList_GET_ITEM(groups, g);
        PyObject *params = PyDict_CheckExact(group) ? PyDict_GetItemString(group, "params") : NULL;
        if (params == NULL || !PyList_CheckExact(params))
            return false;
        for (Py_ssize_t i = 0; i < PyList_GET_SIZE(params); i++)
            if (!zero_param(PyList_GET_ITEM(params, i), to_none, look))
                return false;
    }
    return true;
}

bool
optim_zero(PyObject *self, bool to_none)
{
    PyObject *groups = optim_groups(self);
    bool done = groups != NULL && !is_profiled() && !kin_foreign_modes() && !kin_modes_active() && optim_was_patched(self) &&
                zero_all(groups, to_none, true) && zero_all(groups, to_none, false);
    PyErr_Clear();
    return done;
}
