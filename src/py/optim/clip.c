/* The two halves of torch.nn.utils.clip_grad_norm_ for plain float32 gradients (optim.h): the norm of all of them, and scaling them. */
#include "py/aten/threads.h"
#include "py/optim/optim.h"

#include <stdlib.h>

#include "py/aten/make.h"
#include "py/aten/modes.h"
#include "py/aten/tensor.h"
#include "py/optim/optim_priv.h"

typedef struct {
    kin_optim_part *at;
    PyObject **tensors; /* owned */
    size_t n;
} parts;

static void
let_go(parts *p)
{
    for (size_t i = 0; i < p->n; i++)
        Py_DECREF(p->tensors[i]);
    free(p->at);
    free(p->tensors);
}

static bool
begin(parts *p, Py_ssize_t most)
{
    *p = (parts){.at = calloc((size_t)most + 1, sizeof *p->at), .tensors = calloc((size_t)most + 1, sizeof *p->tensors)};
    return p->at != NULL && p->tensors != NULL && !kin_foreign_modes() && !kin_modes_active() && !kin_ambient_special() && !kin_grad_enabled();
}

/* Takes the reference. */
static bool
take(parts *p, PyObject *tensor)
{
    kin_dtype dtype;
    int64_t numel;
    p->tensors[p->n] = tensor;
    kin_optim_part *part = &p->at[p->n++];
    if (!kin_is_plain_tensor(tensor) || !kin_tensor_is_ordinary(tensor) || kin_tensor_is_inference(tensor) || !kin_tensor_dtype(tensor, &dtype) ||
        dtype != KIN_F32 || !optim_is_dense(kin_tensor_sizes(tensor), kin_tensor_strides(tensor), kin_tensor_dim(tensor), &numel))
        return false;
    part->data = kin_tensor_data(tensor);
    part->n = numel;
    return numel == 0 || part->data != NULL;
}

static bool
is_list(PyObject *obj)
{
    return PyList_CheckExact(obj) || PyTuple_CheckExact(obj);
}

/* _get_total_norm(tensors, norm_type, error_if_nonfinite, foreach); NULL without an exception: it is for the library. */
static PyObject *
total_norm(PyObject *const *args, Py_ssize_t nargs)
{
    if (nargs < 1 || !is_list(args[0]) || PySequence_Fast_GET_SIZE(args[0]) == 0 || (nargs > 1 && !PyFloat_CheckExact(args[1])) ||
        (nargs > 1 && PyFloat_AS_DOUBLE(args[1]) != 2.0) || (nargs > 2 && args[2] != Py_False))
        return NULL;
    Py_ssize_t n = PySequence_Fast_GET_SIZE(args[0]);
    parts p;
    double norm = 0;
    bool ok = begin(&p, n);
    for (Py_ssize_t i = 0; ok && i < n; i++)
        ok = take(&p, Py_NewRef(PySequence_Fast_GET_ITEM(args[0], i)));
    ok = ok && kin_optim_norm(p.at, p.n, kin_parallel_for, &norm) == KIN_OK;
    let_go(&p);
    PyObject *made = ok ? kin_tensor_new(KIN_F32, 0, NULL, NULL, false) : NULL;
    float *to = made != NULL ? kin_tensor_data(made) : NULL;
    if (to != NULL)
        *to = (float)norm;
    else
        Py_CLEAR(made);
    PyErr_Clear();
    return made;
}

/* What the gradients are multiplied with, as the library computes it in tensors of float32. */
static bool
find_factor(PyObject *most, PyObject *norm, float *factor)
{
    kin_dtype dtype;
    if ((!PyFloat_CheckExact(most) && !PyLong_CheckExact(most)) || !kin_is_plain_tensor(norm) || !kin_tensor_is_ordinary(norm) || kin_tensor_dim(norm) != 0 ||
        !kin_tensor_dtype(norm, &dtype) || dtype != KIN_F32 || kin_tensor_data(norm) == NULL)
        return false;
    float below = *(const float *)kin_tensor_data(norm) + (float)1e-6, by = (float)PyFloat_AsDouble(most) / below;
    *factor = by > 1 ? 1 : by;
    return !PyErr_Occurred();
}

/* Gradients share memory rarely; then the library scales it as often as it is asked to. */
static bool
are_apart(const parts *p)
{
    optim_stretch *all = malloc((p->n + 1) * sizeof *all);
    uint32_t n = 0;
    for (size_t i = 0; all != NULL && i < p->n; i++)
        if (p->at[i].n > 0)
            all[n++] = (optim_stretch){(const char *)p->at[i].data, (const char *)(p->at[i].data + p->at[i].n), false};
    bool apart = all != NULL && !optim_overlaps(all, n);
    free(all);
    return apart;
}

/* _clip_grads_with_norm_(parameters, max_norm, total_norm, foreach) */
static bool
clip(PyObject *const *args, Py_ssize_t nargs)
{
    float by;
    if (nargs < 3 || !is_list(args[0]) || !find_factor(args[1], args[2], &by))
        return false;
    Py_ssize_t n = PySequence_Fast_GET_SIZE(args[0]);
    parts p;
    bool ok = begin(&p, n);
    for (Py_ssize_t i = 0; ok && i < n; i++) {
        PyObject *param = PySequence_Fast_GET_ITEM(args[0], i);
        PyObject *grad = kin_is_plain_tensor(param) ? PyObject_GetAttr(param, optim_name_grad()) : NULL;
        if (grad == Py_None)
            Py_DECREF(grad);
        else
            ok = grad != NULL && take(&p, grad);
    }
    ok = ok && are_apart(&p);
    if (ok && by != 1)
        kin_optim_scale(p.at, p.n, by, kin_parallel_for);
    for (size_t i = 0; ok && i < p.n; i++)
        kin_tensor_bump(p.tensors[i], 1);
    let_go(&p);
    PyErr_Clear();
    return ok;
}

static PyObject *norm_original, *clip_original;

static PyObject *
native_norm(PyObject *unused, PyObject *const *args, Py_ssize_t nargs)
{
    PyObject *norm = total_norm(args, nargs);
    return norm != NULL ? norm : PyObject_Vectorcall(norm_original, args, (size_t)nargs, NULL);
}

static PyObject *
native_clip(PyObject *unused, PyObject *const *args, Py_ssize_t nargs)
{
    return clip(args, nargs) ? Py_NewRef(Py_None) : PyObject_Vectorcall(clip_original, args, (size_t)nargs, NULL);
}

static PyMethodDef defs[] = {{"get_total_norm", (PyCFunction)(void (*)(void))native_norm, METH_FASTCALL, "The norm of many tensors."},
                             {"clip_grads_with_norm_", (PyCFunction)(void (*)(void))native_clip, METH_FASTCALL, "Scales gradients."}};

PyObject *
kin_optim_native_clip(PyObject *func)
{
    static const char *const names[] = {"_get_total_norm", "_clip_grads_with_norm_"};
    static PyObject *const *const originals[] = {&norm_original, &clip_original};
    static PyObject *natives[2], *codes[2];
    for (int i = 0; i < 2; i++) {
        PyCodeObject *code = (PyCodeObject *)PyFunction_GET_CODE(func);
        if (PyUnicode_CompareWithASCIIString(code->co_name, names[i]) != 0)
            continue;
        if (natives[i] == NULL) {
            PyObject *found = optim_find("torch.nn.utils.clip_grad", NULL, names[i]);
            if (found == NULL)
                return NULL;
            *(PyObject **)originals[i] = found;
            codes[i] = Py_NewRef(PyFunction_GET_CODE(found));
            natives[i] = optim_native(&defs[i], NULL, "torch.nn.utils.%s", "clip_grad");
        }
        PyErr_Clear();
        return codes[i] == (PyObject *)code ? natives[i] : NULL;
    }
    return NULL;
}
