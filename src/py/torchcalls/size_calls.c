/* Calls that read the sizes of tensors with dynamic dims: x.shape, x.size(d), x.numel() ... (recorder/sizes.c), and calls of such methods by C code. */
#include "py/aten/modes.h"
#include "py/compat/heap.h"
#include "py/torchcalls/torchcalls.h"
#include <string.h>

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
        if (!(rec_dynamic_dims(r, tensor) >> d & 1))
            fixed *= kin_tensor_sizes(O(r, tensor))[d];
    all = fixed;
    product = rec_known_size(r, fixed);
    for (int d = 0; d < dim; d++) {
        if (!(rec_dynamic_dims(r, tensor) >> d & 1))
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

/* x.size(), x.numel(), x.stride() ... of a tensor with dynamic dims; the other arguments are constants. */
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

/* Of a plain tensor, whose methods run no Python code; the other operands are constants. */
static kin_vid
ask_now(rec *r, kin_vid callee, const kin_vid *args, uint32_t n)
{
    PyObject *objs[8] = {O(r, args[0])};
    for (uint32_t i = 1; i < n; i++) {
        kin_vid c = O(r, args[i]) != NULL && kin_is_exact_immutable(O(r, args[i])) ? rec_need_const(r, args[i]) : 0;
        if (c == 0)
            return 0;
        objs[i] = O(r, c);
    }
    PyObject *answer = PyObject_Vectorcall(O(r, callee), objs, n, NULL);
    kin_vid value = answer != NULL && kin_is_exact_immutable(answer) ? rec_const(r, answer) : 0;
    Py_XDECREF(answer);
    PyErr_Clear();
    return value;
}

kin_vid
rec_apply_metadata(rec *r, kin_vid callee, const kin_vid *args, uint32_t n)
{
    PyObject *obj = n > 0 && n <= 8 && VIRTUAL(r, args[0]) == NULL ? O(r, args[0]) : NULL;
    const char *name = kin_callable_name(O(r, callee));
    unsigned mask = rec_meta_mask(name);
    bool method = Py_TYPE(O(r, callee)) == &PyMethodDescr_Type && rec_is_of_tensors(O(r, callee)), count = strcmp(name, "numel") == 0 || strcmp(name, "nelement") == 0;
    if (obj == NULL || mask == 0 || !(method || count) || !kin_is_plain_tensor(obj) || !kin_tensor_is_readable(obj, mask) || kin_foreign_modes())
        return 0;
    rec_need_type(r, args[0]);
    if (!rec_meta(r, args[0], mask))
        return 0;
    if (n == 1 && strcmp(name, "size") == 0)
        return rec_shape(r, args[0]);
    if (n == 1 && count)
        return count_elements(r, args[0]);
    return mask & KIN_META_SIZES && rec_dynamic_dims(r, args[0]) != 0 ? 0 : ask_now(r, callee, args, n);
}
