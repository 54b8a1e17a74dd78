/* Torch operators in a compiled program (running.h): takes their arguments from buffers and puts their results into buffers. */
#include "py/compat/imports.h"
#include "py/refs/sequence.h"
#include "py/run/running.h"

#include <stdio.h>
#include <string.h>

#include "py/aten/make.h"
#include "py/aten/tensor.h"
#include "py/aten/warn.h"

/* A tensor for (part of) a buffer: new reference. */
PyObject *
launch_make_argument(launch_running *r, const kin_extern_arg *arg)
{
    const kin_buf *buf = &r->p->buffers.at[arg->buffer];
    if (arg->whole && r->tensors[arg->buffer] != NULL)
        return Py_NewRef(r->tensors[arg->buffer]);
    kin_dtype dtype = (kin_dtype)buf->dtype;
    char *data = r->data[arg->buffer];
    if (arg->whole)
        return kin_tensor_over(data, dtype, buf->ndim, buf->sizes, buf->strides);
    return kin_tensor_over(data + arg->offset * (int64_t)kin_dtype_bytes(dtype), dtype, arg->ndim, arg->sizes, arg->strides);
}

typedef struct {
    launch_running *r;
    const kin_extern_call *call;
    uint32_t next; /* of call->args */
} filler;

/* The captured argument with tensors in place of fake tensors: new reference. */
static PyObject *
fill_argument(void *arg, PyObject *obj)
{
    filler *f = arg;
    if (kin_capture_number(obj) != UINT32_MAX) {
        if (f->next < f->call->nargs)
            return launch_make_argument(f->r, &f->call->args[f->next++]);
        PyErr_SetString(PyExc_RuntimeError, "kintsugi: an extern call has too few tensors");
        return NULL;
    }
    if (!PyList_CheckExact(obj) && !PyTuple_CheckExact(obj))
        return Py_NewRef(obj);
    return kin_map_items(obj, fill_argument, f);
}

bool
launch_is_as_foreseen(const kin_buf *buf, PyObject *tensor)
{
    kin_dtype dtype;
    if (!kin_tensor_is_ordinary(tensor) || !kin_tensor_dtype(tensor, &dtype) || (uint8_t)dtype != buf->dtype ||
        kin_tensor_dim(tensor) != buf->ndim)
        return false;
    const int64_t *sizes = kin_tensor_sizes(tensor), *strides = kin_tensor_strides(tensor);
    bool empty = false, same = true;
    for (unsigned d = 0; d < buf->ndim; d++) {
        empty = empty || sizes[d] == 0;
        same = same && (sizes[d] <= 1 || strides[d] == buf->strides[d]);
        if (sizes[d] != buf->sizes[d])
            return false;
    }
    return empty || same;
}

/* Strides of no elements follow from those of the arguments, which may be other ones here than in eager code. */
static bool
is_empty_and_unlike(const kin_buf *buf, PyObject *tensor)
{
    bool empty = false, same = true;
    for (unsigned d = 0; d < buf->ndim; d++) {
        empty = empty || buf->sizes[d] == 0;
        same = same && kin_tensor_strides(tensor)[d] == buf->strides[d];
    }
    return empty && !same;
}

/* A result with other strides than captured: copied. */
PyObject *
launch_lay_out_again(const kin_buf *buf, PyObject *tensor)
{
    PyObject *copy = kin_tensor_new((kin_dtype)buf->dtype, buf->ndim, buf->sizes, buf->strides, false);
    PyObject *done = copy == NULL ? NULL : PyObject_CallMethod(copy, "copy_", "O", tensor);
    if (done == NULL)
        Py_CLEAR(copy);
    Py_XDECREF(done);
    return copy;
}

/* Results are memory of their own: what shares an argument's would be lost with it. */
static bool
shares_argument(PyObject *tensor, PyObject *args)
{
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(args); i++) {
        PyObject *arg = PyTuple_GET_ITEM(args, i);
        if (kin_is_tensor(arg) && kin_tensor_storage(arg) == kin_tensor_storage(tensor))
            return true;
    }
    return false;
}

/* Whoever compiles the subgraph again will know better. False: the result is another one altogether. */
static bool
note_foreign(launch_running *r, const kin_extern_call *call, uint32_t which, PyObject *result)
{
    const kin_buf *buf = &r->p->buffers.at[call->results[which]];
    kin_dtype dtype;
    size_t row = buf->ndim * sizeof(int64_t);
    snprintf(r->outcome->foreign, sizeof r->outcome->foreign, "%s", call->name);
    bool same = kin_tensor_is_ordinary(result) && kin_tensor_dtype(result, &dtype) && (uint8_t)dtype == buf->dtype &&
                kin_tensor_dim(result) == buf->ndim && buf->ndim <= 8 &&
                memcmp(kin_tensor_sizes(result), buf->sizes, row) == 0;
    kin_capture_hint hint = {.call = call->number, .which = which, .ndim = buf->ndim};
    if (!same)
        return false;
    memcpy(hint.strides, kin_tensor_strides(result), row);
    return kin_vec_push(&r->outcome->hints, hint) == KIN_OK;
}

/* A result that was foreseen without elements, bytes in one dim, is an operator's workspace (oneDNN's recurrent layers keep their gates there): how long it
 * is only the operator knows, and only operators read it. It is handed on as it is. */
static bool
keeps_workspace(const kin_buf *buf)
{
    return buf->dtype == KIN_U8 && buf->ndim == 1 && buf->sizes[0] == 0;
}

static bool
is_workspace(const kin_buf *buf, PyObject *tensor)
{
    kin_dtype dtype;
    return keeps_workspace(buf) && kin_tensor_is_ordinary(tensor) && kin_tensor_dtype(tensor, &dtype) && dtype == KIN_U8 && kin_tensor_dim(tensor) == 1;
}

/* Takes the `*next`-th and following results out of what the operator gave. */
static bool
take_results(launch_running *r, const kin_extern_call *call, PyObject *args, PyObject *result, uint32_t *next)
{
    if (!kin_is_tensor(result)) {
        if (!PyTuple_Check(result) && !PyList_CheckExact(result))
            return result == Py_None;
        for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(result); i++)
            if (!take_results(r, call, args, PySequence_Fast_GET_ITEM(result, i), next))
                return false;
        return true;
    }
    uint32_t which = (*next)++, b = which < call->nresults ? call->results[which] : UINT32_MAX;
    if (b == UINT32_MAX)
        return true;
    const kin_buf *buf = &r->p->buffers.at[b];
    if ((launch_is_as_foreseen(buf, result) || is_workspace(buf, result)) && !shares_argument(result, args))
        r->tensors[b] = is_empty_and_unlike(buf, result) ? launch_lay_out_again(buf, result) : Py_NewRef(result);
    else if (note_foreign(r, call, which, result))
        r->tensors[b] = launch_lay_out_again(buf, result);
    if (r->tensors[b] == NULL)
        return false;
    r->data[b] = kin_tensor_data(r->tensors[b]);
    return true;
}

/* -- operators -------------------------------------------------------------------------------------------------- */

/* Such operators keep something only while gradients are on; what they are given wants none, so that autograd does not look at it. */
static bool
gives_workspace(const launch_running *r, const kin_extern_call *call)
{
    for (uint32_t i = 0; i < call->nresults; i++)
        if (call->results[i] != UINT32_MAX && keeps_workspace(&r->p->buffers.at[call->results[i]]))
            return true;
    return false;
}

static PyObject *
call_with_gradients(PyObject *op, PyObject *args, PyObject *kwargs)
{
    PyObject *plain = PyTuple_New(PyTuple_GET_SIZE(args));
    for (Py_ssize_t i = 0; plain != NULL && i < PyTuple_GET_SIZE(args); i++) {
        PyObject *arg = PyTuple_GET_ITEM(args, i), *one = kin_is_tensor(arg) ? PyObject_CallMethod(arg, "detach", NULL) : Py_NewRef(arg);
        if (one == NULL)
            Py_CLEAR(plain);
        else
            PyTuple_SET_ITEM(plain, i, one);
    }
    bool before = kin_grad_enabled();
    kin_grad_set(true);
    PyObject *result = plain == NULL ? NULL : PyObject_Call(op, plain, kwargs);
    kin_grad_set(before);
    Py_XDECREF(plain);
    return result;
}

bool
launch_run_extern(launch_running *r, uint32_t index)
{
    const launch_extern *e = &r->lp->externs[index];
    if (e->library != NULL)
        return launch_run_library(r, index);
    filler f = {.r = r, .call = &r->p->externs.at[index]};
    PyObject *args = fill_argument(&f, e->args), *result = NULL;
    PyObject *kwargs = args == NULL || e->kwargs == NULL ? NULL : kin_map_values(e->kwargs, fill_argument, &f);
    if (args != NULL && (kwargs != NULL || e->kwargs == NULL) && (!e->effect || launch_keep_random(r))) {
        kin_warning_catch catch;
        kin_warnings_begin(&catch);
        result = gives_workspace(r, f.call) ? call_with_gradients(e->op, args, kwargs) : PyObject_Call(e->op, args, kwargs);
        r->outcome->warned = kin_warnings_end(&catch) || r->outcome->warned;
    }
    uint32_t next = 0;
    bool ok = result != NULL && !r->outcome->warned && take_results(r, f.call, args, result, &next);
    Py_XDECREF(result);
    Py_XDECREF(args);
    Py_XDECREF(kwargs);
    return ok;
}
