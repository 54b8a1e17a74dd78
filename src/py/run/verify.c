/* Compares the results of a subgraph's steps with what its code would return: sizes, strides, dtypes and aliasing.
 *
 * Capture predicts all of these, from shape rules, PyTorch's meta kernels, and the operators that composite operators call. None of these can be trusted
 * blindly (some operators take another path under a dispatch mode), and the steps run before the code anyway.
 */
#include "py/aten/make.h"
#include "py/aten/tensor.h"
#include "py/run/run.h"

static bool
is_dims(PyObject *tuple, const int64_t *dims, int64_t ndim)
{
    if (PyTuple_GET_SIZE(tuple) != ndim)
        return false;
    for (int64_t d = 0; d < ndim; d++)
        if (PyLong_AsLongLong(PyTuple_GET_ITEM(tuple, d)) != dims[d])
            return false;
    return true;
}

/* Strides of dimensions that have one element do not matter, nor those of no elements at all. */
static bool
lies_so(const launch_out *o, PyObject *tensor)
{
    kin_dtype dtype;
    int64_t ndim = kin_tensor_dim(tensor);
    const int64_t *sizes = kin_tensor_sizes(tensor), *strides = kin_tensor_strides(tensor);
    bool same = kin_tensor_dtype(tensor, &dtype) && dtype == o->dtype;
    if (!is_dims(o->sizes, sizes, ndim))
        return false;
    for (int64_t d = 0; d < ndim; d++) {
        if (sizes[d] == 0)
            return same;
        same = same && (sizes[d] == 1 || PyLong_AsLongLong(PyTuple_GET_ITEM(o->strides, d)) == strides[d]);
    }
    return same;
}

static bool
is_empty(PyObject *tensor)
{
    const int64_t *sizes = kin_tensor_sizes(tensor);
    for (int64_t d = 0; d < kin_tensor_dim(tensor); d++)
        if (sizes[d] == 0)
            return true;
    return false;
}

/* Do they share memory as the code's results would? */
static bool
relate(const launch_out *a, PyObject *x, const launch_out *b, PyObject *y)
{
    bool shared = (a->kind == KIN_OUT_INPUT) == (b->kind == KIN_OUT_INPUT) && a->index == b->index;
    if (a == b || x == y)
        return (a == b) == (x == y);
    if (a->kind == KIN_OUT_INPUT && b->kind == KIN_OUT_INPUT) /* two inputs may share */
        return true;
    return is_empty(x) || is_empty(y) || shared == (kin_tensor_storage(x) == kin_tensor_storage(y));
}

static bool
relates_to_input(const launch_out *o, PyObject *x, uint32_t i, PyObject *input)
{
    if (!kin_tensor_is_ordinary(input) || is_empty(x))
        return true;
    if (o->kind == KIN_OUT_INPUT && o->index == i)
        return o->whole == (x == input) && kin_tensor_storage(x) == kin_tensor_storage(input);
    return o->kind == KIN_OUT_INPUT || kin_tensor_storage(x) != kin_tensor_storage(input);
}

static bool
is_as_steps_gave(const launch_code *code, uint32_t nin, PyObject *const *in, PyObject *const *out, uint32_t k)
{
    const launch_give *g = &code->give[k];
    if (out[k] == NULL) /* it is gone already */
        return false;
    if (g->kind == LAUNCH_GIVE_INPUT)
        return out[k] == in[g->index];
    if (g->kind != LAUNCH_GIVE_OUT && PyLong_CheckExact(g->shape)) /* a size */
        return PyLong_CheckExact(out[k]) && PyObject_RichCompareBool(g->shape, out[k], Py_EQ) == 1;
    if (g->kind != LAUNCH_GIVE_OUT)
        return true; /* a container: its tensors are not looked at */
    const launch_out *o = &code->outs[g->index];
    if (!kin_is_tensor(out[k]) || !kin_tensor_is_ordinary(out[k]) || !lies_so(o, out[k]))
        return false;
    for (uint32_t i = 0; i < nin; i++)
        if (kin_is_tensor(in[i]) && !relates_to_input(o, out[k], i, in[i]))
            return false;
    for (uint32_t i = 0; i < k; i++)
        if (code->give[i].kind == LAUNCH_GIVE_OUT && !relate(&code->outs[code->give[i].index], out[i], o, out[k]))
            return false;
    return true;
}

bool
launch_gives_the_same(const launch_code *code, uint32_t nin, PyObject *const *in, PyObject *const *out)
{
    for (uint32_t k = 0; k < code->ngive; k++)
        if (!is_as_steps_gave(code, nin, in, out, k))
            return false;
    return true;
}
