/* Signatures of inputs (launch_priv.h). Matching runs at every launch: no Python code, no allocation. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/hash.h"
#include "py/aten/make.h"
#include "py/aten/sizes.h"
#include "py/aten/tensor.h"
#include "py/guardeval/guard.h"
#include "py/launch/signature.h"

/* Objects compared by identity, whose lifetime nobody observes. */
static bool
is_fixed(PyObject *obj)
{
    return PyCFunction_Check(obj) || PyFunction_Check(obj) || PyType_Check(obj) || Py_IS_TYPE(obj, &PyMethodDescr_Type) ||
           Py_IS_TYPE(obj, &PyWrapperDescr_Type) || PyModule_Check(obj) || strncmp(Py_TYPE(obj)->tp_name, "torch.", 6) == 0;
}

static bool
is_same_value(PyObject *a, PyObject *b)
{
    return a == b || kin_exact_equal(a, b);
}

/* -- numbers ------------------------------------------------------------------------------------------------------ */

/* The limits of dtypes: a number beyond them may cause an error. */
static const double ends[] = {1, 127, 255, 32767, 65504, 2147483647.0, 3.3895313892515355e38, 3.4028234663852886e38};

static uint32_t
stretch_of(double magnitude)
{
    uint32_t i = 0;
    while (i < sizeof ends / sizeof *ends && magnitude > ends[i])
        i++;
    return i;
}

static bool
is_special(double v)
{
    double magnitude = fabs(v);
    return !isfinite(v) || magnitude == 0 || magnitude == 0.5 || magnitude == 1 || magnitude == 2 || magnitude > 1.7e308 || magnitude < 2.3e-308;
}

uint32_t
launch_number_kind(PyObject *obj)
{
    enum { FLOAT = 16, NEGATIVE = 32, INT = 64 };
    int over = 0;
    if (PyFloat_CheckExact(obj)) {
        double v = PyFloat_AS_DOUBLE(obj);
        return is_special(v) ? 0 : FLOAT | (v < 0 ? NEGATIVE : 0) | stretch_of(fabs(v));
    }
    int64_t i = PyLong_CheckExact(obj) ? PyLong_AsLongLongAndOverflow(obj, &over) : 0;
    bool exact = i > -(1LL << 53) && i < 1LL << 53;
    return over != 0 || !exact || is_special((double)i) ? 0 : INT | (i < 0 ? NEGATIVE : 0) | stretch_of(fabs((double)i));
}

void
launch_int_kind(int64_t magnitude, int64_t *least, int64_t *most)
{
    const int64_t exact = 1LL << 53;
    uint32_t at = stretch_of((double)magnitude);
    *least = at == 0 ? 0 : (int64_t)ends[at - 1] + 1;
    *least += *least == 2; /* a kind of its own */
    *most = at < sizeof ends / sizeof *ends && ends[at] < (double)exact ? (int64_t)ends[at] : exact - 1;
}

/* -- inputs ------------------------------------------------------------------------------------------------------- */

static kin_status
describe_tensor(PyObject *tensor, bool anywhere, launch_input *in, launch_signature *s)
{
    kin_dtype dtype;
    if (!(anywhere ? kin_tensor_has_plain_data(tensor) : kin_tensor_has_ordinary_data(tensor)) || !kin_tensor_dtype(tensor, &dtype)) /* whatever its class */
        return KIN_BREAK;
    int64_t dim = kin_tensor_dim(tensor);
    *in = (launch_input){.type = Py_TYPE(tensor), .keys = kin_tensor_keys(tensor), .dtype = (int32_t)dtype, .ndim = (int32_t)dim,
                         .requires_grad = kin_tensor_requires_grad(tensor), .dims = s->dims.len};
    const int64_t *sizes = kin_tensor_sizes(tensor), *strides = kin_tensor_strides(tensor);
    for (int64_t d = 0; d < dim; d++)
        KIN_TRY(kin_vec_push(&s->dims, sizes[d]));
    for (int64_t d = 0; d < dim; d++)
        KIN_TRY(kin_vec_push(&s->dims, strides[d]));
    return KIN_OK;
}

kin_status
launch_signature_make(PyObject *const *in, uint32_t n, const bool *open, bool anywhere, launch_signature *out, uint32_t *which)
{
    *out = (launch_signature){.ambient = kin_ambient_state(), .inputs = calloc(n + 1, sizeof *out->inputs)};
    kin_status status = out->inputs == NULL ? KIN_NOMEM : KIN_OK;
    for (uint32_t i = 0; status == KIN_OK && i < n; i++) {
        *which = i;
        if (kin_is_tensor(in[i]))
            status = describe_tensor(in[i], anywhere, &out->inputs[i], out);
        else if (kin_is_exact_immutable(in[i]) || is_fixed(in[i]))
            out->inputs[i] = (launch_input){.value = Py_NewRef(in[i]), .open = launch_number_is_open(open, i, in[i])};
        else
            status = KIN_BREAK;
        out->n = i + 1;
        out->nopen += out->inputs[i].open;
        out->requires = out->requires || out->inputs[i].requires_grad;
    }
    out->wants = out->requires && kin_grad_enabled();
    if (status != KIN_OK)
        launch_signature_deinit(out);
    return status;
}

static bool
fits_tensor(const launch_input *want, const int64_t *dims, PyObject *tensor)
{
    kin_dtype dtype;
    size_t row = (size_t)want->ndim * sizeof *dims;
    return Py_IS_TYPE(tensor, want->type) && kin_tensor_keys(tensor) == want->keys && kin_tensor_dim(tensor) == want->ndim &&
           kin_tensor_dtype(tensor, &dtype) && (int32_t)dtype == want->dtype &&
           kin_tensor_requires_grad(tensor) == want->requires_grad &&
           memcmp(kin_tensor_sizes(tensor), dims, row) == 0 &&
           memcmp(kin_tensor_strides(tensor), dims + want->ndim, row) == 0;
}

bool
launch_signature_fits_one(const launch_signature *s, uint32_t i, PyObject *obj)
{
    const launch_input *want = &s->inputs[i];
    if (want->open)
        return launch_number_kind(want->value) == launch_number_kind(obj);
    return want->value != NULL ? is_same_value(want->value, obj) : fits_tensor(want, s->dims.at + want->dims, obj);
}

bool
launch_may_be_sizes(PyObject *obj)
{
    bool any = PyLong_CheckExact(obj), tuple = PyTuple_CheckExact(obj) || Py_IS_TYPE(obj, kin_size_type());
    for (Py_ssize_t i = 0; tuple && i < PyTuple_GET_SIZE(obj); i++) {
        any = any || PyLong_CheckExact(PyTuple_GET_ITEM(obj, i));
        if (!PyLong_CheckExact(PyTuple_GET_ITEM(obj, i)) && PyTuple_GET_ITEM(obj, i) != Py_None)
            return false;
    }
    return any;
}

/* Values that sizes may be, of the same form. */
static bool
is_like_sizes(PyObject *a, PyObject *b)
{
    if (!launch_may_be_sizes(a) || !launch_may_be_sizes(b) || !Py_IS_TYPE(a, Py_TYPE(b)))
        return false;
    if (PyLong_CheckExact(a))
        return true;
    bool like = PyTuple_GET_SIZE(a) == PyTuple_GET_SIZE(b);
    for (Py_ssize_t i = 0; like && i < PyTuple_GET_SIZE(a); i++)
        like = Py_IS_TYPE(PyTuple_GET_ITEM(a, i), Py_TYPE(PyTuple_GET_ITEM(b, i)));
    return like;
}

bool
launch_signature_is_like(const launch_signature *s, uint32_t i, PyObject *obj)
{
    const launch_input *want = &s->inputs[i];
    kin_dtype dtype;
    if (want->open)
        return launch_number_kind(want->value) == launch_number_kind(obj);
    if (want->value != NULL)
        return is_same_value(want->value, obj) || is_like_sizes(want->value, obj);
    return Py_IS_TYPE(obj, want->type) && kin_tensor_keys(obj) == want->keys && kin_tensor_dim(obj) == want->ndim &&
           kin_tensor_dtype(obj, &dtype) && (int32_t)dtype == want->dtype && kin_tensor_requires_grad(obj) == want->requires_grad;
}

bool
launch_signature_fits_ambient(const launch_signature *s)
{
    return s->ambient == kin_ambient_state() && (!s->requires || s->wants == kin_grad_enabled());
}

bool
launch_signature_fits(const launch_signature *s, PyObject *const *in)
{
    if (!launch_signature_fits_ambient(s))
        return false;
    for (uint32_t i = 0; i < s->n; i++)
        if (!launch_signature_fits_one(s, i, in[i]))
            return false;
    return true;
}

static uint64_t
hash_tensor(uint64_t hash, PyObject *tensor, bool sizes_open)
{
    kin_dtype dtype = KIN_BOOL;
    int64_t ndim = kin_tensor_dim(tensor);
    const int64_t *sizes = kin_tensor_sizes(tensor), *strides = kin_tensor_strides(tensor);
    kin_tensor_dtype(tensor, &dtype);
    hash = kin_hash_word(kin_hash_word(hash, kin_tensor_keys(tensor)), (uint64_t)dtype << 1 | kin_tensor_requires_grad(tensor));
    for (int64_t d = 0; d < ndim && sizes_open; d++)
        hash = kin_hash_word(hash, sizes[d] < 2 ? (uint64_t)sizes[d] : 2);
    for (int64_t d = 0; d < ndim && !sizes_open; d++)
        hash = kin_hash_word(kin_hash_word(hash, (uint64_t)sizes[d]), (uint64_t)strides[d]);
    return hash;
}

static uint64_t
hash_value(uint64_t hash, PyObject *value)
{
    if (PySlice_Check(value)) { /* cannot be hashed */
        const PySliceObject *slice = (PySliceObject *)value;
        return hash_value(hash_value(hash_value(hash, slice->start), slice->stop), slice->step);
    }
    hash = kin_hash_word(hash, (uint64_t)PyObject_Hash(value));
    PyErr_Clear(); /* a tuple of slices */
    return hash;
}

/* Of a size only whether it is 0 or 1. */
static uint64_t
hash_size(uint64_t hash, PyObject *size)
{
    int over = 0;
    long value = PyLong_CheckExact(size) ? PyLong_AsLongAndOverflow(size, &over) : -1;
    return kin_hash_word(hash, value == 0 || value == 1 ? (uint64_t)value : 2);
}

static uint64_t
hash_sizes(uint64_t hash, PyObject *sizes)
{
    if (!PyTuple_CheckExact(sizes))
        return hash_size(hash, sizes);
    hash = kin_hash_word(hash, (uint64_t)PyTuple_GET_SIZE(sizes));
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(sizes); i++)
        hash = hash_size(hash, PyTuple_GET_ITEM(sizes, i));
    return hash;
}

static uint64_t
hash_inputs(PyObject *const *in, uint32_t n, const bool *open, bool sizes_open)
{
    uint64_t hash = kin_hash_word(n, kin_ambient_state());
    bool requires = false;
    for (uint32_t i = 0; i < n; i++)
        requires = requires || (kin_is_tensor(in[i]) && kin_tensor_requires_grad(in[i]));
    hash = kin_hash_word(hash, requires && kin_grad_enabled());
    for (uint32_t i = 0; i < n; i++) {
        hash = kin_hash_word(hash, (uintptr_t)Py_TYPE(in[i]));
        if (kin_is_tensor(in[i]))
            hash = kin_tensor_is_ordinary(in[i]) ? hash_tensor(hash, in[i], sizes_open) : hash;
        else if (launch_number_is_open(open, i, in[i]))
            hash = kin_hash_word(hash, launch_number_kind(in[i]));
        else if (sizes_open && launch_may_be_sizes(in[i]))
            hash = hash_sizes(hash, in[i]);
        else if (kin_is_exact_immutable(in[i]))
            hash = hash_value(hash, in[i]);
    }
    return hash;
}

uint64_t
launch_signature_hash(PyObject *const *in, uint32_t n, const bool *open)
{
    return hash_inputs(in, n, open, false);
}

uint64_t
launch_signature_class(PyObject *const *in, uint32_t n, const bool *open)
{
    return hash_inputs(in, n, open, true);
}

void
launch_signature_deinit(launch_signature *s)
{
    for (uint32_t i = 0; i < s->n; i++)
        Py_XDECREF(s->inputs[i].value);
    free(s->inputs);
    kin_vec_deinit(&s->dims);
    *s = (launch_signature){0};
}
