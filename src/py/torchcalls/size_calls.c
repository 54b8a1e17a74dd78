/* Calls that read the sizes of tensors with dynamic dims: x.shape, x.size(d), x.numel() ... (recorder/sizes.c). */
#include "py/torchcalls/torchcalls.h"

bool
rec_size_attr(rec *r, kin_vid tensor, const char *name, attr_result *out)
{
    if (!rec_meta(r, tensor, KIN_META_SIZES))
        return false;
    if (strcmp(name, "shape") == 0) {
        out->kind = ATTR_VALUE;
        out->value = rec_shape(r, tensor);
        return true;
    }
    out->kind = ATTR_STEP;
    out->flags = 0;
    return strcmp(name, "nbytes") == 0;
}

/* size(d): the dimension as an index from 0 on; -1: not understood. */
static int
asked_dim(rec *r, const kin_vid *args, uint32_t npos, uint32_t nkw)
{
    int dim = (int)kin_tensor_dim(O(r, args[0]));
    if (npos + nkw != 2 || !PyLong_CheckExact(O(r, args[1])))
        return -1;
    long d = PyLong_AsLong(O(r, args[1]));
    PyErr_Clear();
    d += d < 0 ? dim : 0;
    return d >= 0 && d < dim ? (int)d : -1;
}

/* Product of the sizes. */
static kin_vid
count_elements(rec *r, kin_vid tensor)
{
    int64_t fixed = 1, all = 1;
    kin_vid product = 0;
    int dim = (int)kin_tensor_dim(O(r, tensor));
    for (int d = 0; d < dim; d++)
        if (!(rec_open_sizes(r, tensor) >> d & 1))
            fixed *= kin_tensor_sizes(O(r, tensor))[d];
    all = fixed;
    product = rec_known_size(r, fixed);
    for (int d = 0; d < dim; d++) {
        if (!(rec_open_sizes(r, tensor) >> d & 1))
            continue;
        kin_vid pair[2] = {product, rec_size(r, tensor, d)};
        all *= kin_tensor_sizes(O(r, tensor))[d];
        product = rec_step_out(r, KIN_STEP_BINARY, KIN_STEP_PURE, pair, 2);
        r->t->steps.at[r->t->vals.at[product].step].imm = KIN_BINARY_MULTIPLY;
        PyObject *number = PyLong_FromLongLong(all);
        if (number != NULL)
            rec_set_obj(r, product, number);
        Py_XDECREF(number);
        r->info.at[product].type = &PyLong_Type;
    }
    return product;
}

/* x.size(), x.numel(), x.stride() ... of a tensor with open sizes; the other arguments are constants. */
bool
rec_size_call(rec *r, const rec_args *a)
{
    const char *name = kin_callable_name(O(r, a->callee));
    kin_vid value = 0;
    if (!rec_meta(r, a->args[0], KIN_META_SIZES))
        return false;
    if (strcmp(name, "size") == 0 && a->npos + a->nkw == 1)
        value = rec_shape(r, a->args[0]);
    else if (strcmp(name, "size") == 0 && asked_dim(r, a->args, a->npos, a->nkw) >= 0)
        value = rec_size(r, a->args[0], asked_dim(r, a->args, a->npos, a->nkw));
    else if ((strcmp(name, "numel") == 0 || strcmp(name, "nelement") == 0) && a->npos + a->nkw == 1)
        value = count_elements(r, a->args[0]);
    else if (strcmp(name, "__len__") == 0 && a->npos + a->nkw == 1 && kin_tensor_dim(O(r, a->args[0])) > 0)
        value = rec_size(r, a->args[0], 0);
    if (value == 0) { /* strides, or something that raises: asked again */
        rec_call_step(r, a, 0, -1);
        return true;
    }
    r->skip_expected = true;
    rec_drop(r, a->ndrop);
    rec_push(r, value);
    return true;
}
