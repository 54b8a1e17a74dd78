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

static bool
zero(PyObject *self, bool to_none)
{
    PyObject *groups = optim_groups(self);
    bool done = groups != NULL && !is_profiled() && !kin_foreign_modes() && !kin_modes_active() && optim_was_patched(self) &&
                zero_all(groups, to_none, true) && zero_all(groups, to_none, false);
    PyErr_Clear();
    return done;
}

/* -- in place of the method --------------------------------------------------------------------------------------------- */

static PyObject *zero_original, *zero_code, *zero_native;

/* zero_grad(self, set_to_none=True) */
static PyObject *
native_zero(PyObject *unused, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    Py_ssize_t n = nargs + (kwnames != NULL ? PyTuple_GET_SIZE(kwnames) : 0);
    bool known = nargs >= 1 && (n == 1 || (n == 2 && PyBool_Check(args[1]) &&
                                           (kwnames == NULL || PyUnicode_CompareWithASCIIString(PyTuple_GET_ITEM(kwnames, 0), "set_to_none") == 0)));
    if (known && zero(args[0], n == 1 || args[1] == Py_True))
        Py_RETURN_NONE;
    return PyObject_Vectorcall(zero_original, args, (size_t)nargs, kwnames);
}

static PyMethodDef zero_def = {"zero_grad", (PyCFunction)(void (*)(void))native_zero, METH_FASTCALL | METH_KEYWORDS, "zero_grad of an optimizer."};

static bool
find_zero(void)
{
    PyObject *inner = optim_find("torch.optim.optimizer", "Optimizer", "zero_grad");
    PyObject *module = PyDict_GetItemString(PyImport_GetModuleDict(), "torch.optim.optimizer"); /* borrowed */
    PyObject *type = inner != NULL ? PyObject_GetAttrString(module, "Optimizer") : NULL;
    if (type != NULL && (zero_original = PyObject_GetAttrString(type, "zero_grad")) != NULL) {
        zero_code = Py_NewRef(PyFunction_GET_CODE(inner));
        zero_native = optim_native(&zero_def, NULL, "torch.optim.%s", "Optimizer");
    }
    Py_XDECREF(type);
    Py_XDECREF(inner);
    PyErr_Clear();
    return zero_native != NULL;
}

PyObject *
kin_optim_native_zero(PyObject *func)
{
    static PyObject *wrapped;
    if (wrapped == NULL && (wrapped = PyUnicode_InternFromString("__wrapped__")) == NULL)
        return NULL;
    PyObject *dict = ((PyFunctionObject *)func)->func_dict;
    PyObject *inner = dict != NULL ? PyDict_GetItemWithError(dict, wrapped) : NULL;
    if (inner == NULL || !PyFunction_Check(inner) ||
        PyUnicode_CompareWithASCIIString(((PyCodeObject *)PyFunction_GET_CODE(inner))->co_name, "zero_grad") != 0)
        return NULL;
    return (zero_native != NULL || find_zero()) && func == zero_original && PyFunction_GET_CODE(inner) == zero_code ? zero_native : NULL;
}
