/* Records of tensor metadata: created, compared, described as text. */
#include "py/aten/make.h"
#include "py/aten/tensor.h"
#include "py/aten/tensor_priv.h"
#include <stdio.h>
#include <string.h>

/* ---- records -------------------------------------------------------------------------------------------------- */

/* What a record holds; fields that the mask does not name are zero. Sizes, then strides, follow. */
typedef struct {
    uint32_t mask;
    int32_t dim;
    int32_t dtype;
    int32_t layout;
    int32_t device_type;
    int32_t device_index;
    int32_t requires_grad;
    int32_t has_strides;
    uint64_t keys;
    int64_t storage_offset;
    int64_t numel;
    int64_t dims[];
} meta_record;

uint64_t
kin_tensor_keys(PyObject *tensor)
{
    uint64_t keys = 0;
    if (kin_torch.keys_offset && kin_aten_impl(tensor) != NULL)
        memcpy(&keys, (char *)kin_aten_impl(tensor) + kin_torch.keys_offset, sizeof keys);
    return keys;
}

static bool
is_sized(PyObject *tensor)
{
    return kin_is_tensor(tensor) && kin_aten_has_sizes(tensor);
}

static bool
is_wanted(unsigned mask, unsigned bit)
{
    return (mask & bit) != 0;
}

/* Reads the fixed fields; false when the library refuses one. */
static bool
read_fields(PyObject *tensor, unsigned mask, meta_record *m)
{
    void *h = kin_aten_handle(tensor);
    int64_t dim;
    memset(m, 0, sizeof *m);
    m->mask = mask;
    if (kin_torch.dim(h, &dim) != 0)
        return false;
    if (is_wanted(mask, KIN_META_DIM | KIN_META_SIZES | KIN_META_STRIDES))
        m->dim = (int32_t)dim;
    if (is_wanted(mask, KIN_META_DTYPE) && kin_torch.dtype(h, &m->dtype) != 0)
        return false;
    if (is_wanted(mask, KIN_META_LAYOUT | KIN_META_STRIDES) && kin_torch.layout(h, &m->layout) != 0)
        return false;
    m->has_strides = is_wanted(mask, KIN_META_STRIDES) && kin_aten_has_strides(tensor);
    if (is_wanted(mask, KIN_META_DEVICE) &&
        (kin_torch.device_type(h, &m->device_type) != 0 || kin_torch.device_index(h, &m->device_index) != 0))
        return false;
    if (is_wanted(mask, KIN_META_REQUIRES_GRAD))
        m->requires_grad = kin_torch.requires_grad(kin_aten_impl(tensor));
    if (is_wanted(mask, KIN_META_KEYS))
        m->keys = kin_tensor_keys(tensor);
    if (is_wanted(mask, KIN_META_OFFSET) && (!kin_aten_has_strides(tensor) || kin_torch.storage_offset(h, &m->storage_offset) != 0))
        return false;
    return !is_wanted(mask, KIN_META_NUMEL) || kin_torch.numel(h, &m->numel) == 0;
}

static size_t
count_dims(const meta_record *m)
{
    return (size_t)m->dim * ((is_wanted(m->mask, KIN_META_SIZES) ? 1u : 0u) + (m->has_strides ? 1u : 0u));
}

/* In place of a size that may be another one in the next call. */
static void
set_dynamic(int64_t *row, int32_t dim, uint64_t open, int64_t as)
{
    for (int32_t i = 0; i < dim && i < 64; i++)
        if (open >> i & 1)
            row[i] = as;
}

PyObject *
kin_meta_make(PyObject *tensor, unsigned mask)
{
    return kin_meta_make_open(tensor, mask, 0, KIN_SIZE_ANY);
}

PyObject *
kin_meta_make_open(PyObject *tensor, unsigned mask, uint64_t open, int64_t as)
{
    meta_record head;
    if (!is_sized(tensor) || !read_fields(tensor, mask, &head)) {
        PyErr_SetString(PyExc_TypeError, "the metadata of this object cannot be read");
        return NULL;
    }
    size_t bytes = sizeof head + count_dims(&head) * sizeof(int64_t);
    PyObject *record = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)bytes);
    if (record == NULL)
        return NULL;
    char *at = PyBytes_AS_STRING(record);
    memcpy(at, &head, sizeof head);
    at += sizeof head;
    size_t row = (size_t)head.dim * sizeof(int64_t);
    if (is_wanted(mask, KIN_META_SIZES) && row) {
        memcpy(at, kin_tensor_sizes(tensor), row);
        set_dynamic((int64_t *)(void *)at, head.dim, open, as);
        at += row;
    }
    if (head.has_strides && row)
        memcpy(at, kin_tensor_strides(tensor), row);
    return record;
}

static bool
match_sizes(const int64_t *have, const int64_t *want, int32_t dim)
{
    for (int32_t i = 0; i < dim; i++)
        if (have[i] != want[i] && want[i] != KIN_SIZE_ANY && !(want[i] == KIN_SIZE_SOME && have[i] > 1))
            return false;
    return true;
}

static bool
match_row(const int64_t *have, const int64_t *want, int32_t dim)
{
    for (int32_t i = 0; i < dim; i++)
        if (have[i] != want[i])
            return false;
    return true;
}

/* The key set names the backend and the kind of storage: an equal one settles layout and device type, and CPU and
 * meta tensors have no index that could differ. */
static bool
match_place(PyObject *tensor, const meta_record *want)
{
    void *h = kin_aten_handle(tensor);
    int32_t value;
    bool keys = is_wanted(want->mask, KIN_META_KEYS) && kin_torch.keys_offset != 0;
    if (keys && kin_tensor_keys(tensor) != want->keys)
        return false;
    if (is_wanted(want->mask, KIN_META_LAYOUT | KIN_META_STRIDES) && !(keys && want->layout == kin_torch.layout_strided) &&
        (kin_torch.layout(h, &value) != 0 || value != want->layout))
        return false;
    if (!is_wanted(want->mask, KIN_META_DEVICE))
        return true;
    if (keys && (want->device_type == DEVICE_CPU || want->device_type == DEVICE_META))
        return true;
    return kin_torch.device_type(h, &value) == 0 && value == want->device_type && kin_torch.device_index(h, &value) == 0 &&
           value == want->device_index;
}

static bool
match_scalars(PyObject *tensor, const meta_record *want)
{
    void *h = kin_aten_handle(tensor);
    unsigned mask = want->mask;
    int64_t wide;
    int32_t value;
    if (is_wanted(mask, KIN_META_DIM | KIN_META_SIZES | KIN_META_STRIDES) &&
        (kin_torch.dim(h, &wide) != 0 || wide != want->dim))
        return false;
    if (is_wanted(mask, KIN_META_DTYPE) && (kin_torch.dtype(h, &value) != 0 || value != want->dtype))
        return false;
    if (is_wanted(mask, KIN_META_REQUIRES_GRAD) && kin_torch.requires_grad(kin_aten_impl(tensor)) != (want->requires_grad != 0))
        return false;
    if (is_wanted(mask, KIN_META_OFFSET) && (!kin_aten_has_strides(tensor) || kin_torch.storage_offset(h, &wide) != 0 || wide != want->storage_offset))
        return false;
    return !is_wanted(mask, KIN_META_NUMEL) || (kin_torch.numel(h, &wide) == 0 && wide == want->numel);
}

static bool
match_rows(PyObject *tensor, const meta_record *want, const int64_t *row)
{
    int64_t *have;
    if (is_wanted(want->mask, KIN_META_SIZES)) {
        if (kin_torch.sizes(kin_aten_handle(tensor), &have) != 0 || !match_sizes(have, row, want->dim))
            return false;
        row += want->dim;
    }
    return !want->has_strides || (kin_aten_has_strides(tensor) && kin_torch.strides(kin_aten_handle(tensor), &have) == 0 &&
                                  match_row(have, row, want->dim));
}

bool
kin_meta_match(PyObject *tensor, PyObject *record)
{
    /* A bytes object's payload is as aligned as its header. */
    const meta_record *want = (const meta_record *)(const void *)PyBytes_AS_STRING(record);
    return is_sized(tensor) && match_place(tensor, want) && match_scalars(tensor, want) &&
           match_rows(tensor, want, want->dims);
}

bool
kin_meta_match_kind(PyObject *tensor, PyObject *record)
{
    const meta_record *want = (const meta_record *)(const void *)PyBytes_AS_STRING(record);
    meta_record head;
    memcpy(&head, want, sizeof head);
    head.mask &= ~(unsigned)KIN_META_KEYS;
    return is_sized(tensor) && match_place(tensor, &head) && match_scalars(tensor, &head) &&
           match_rows(tensor, &head, want->dims);
}

unsigned
kin_meta_mask(PyObject *record)
{
    return ((const meta_record *)(const void *)PyBytes_AS_STRING(record))->mask;
}

/* The record's sizes; NULL when it has none. */
static const int64_t *
recorded_sizes(PyObject *record, int32_t *dim)
{
    const meta_record *want = (const meta_record *)(const void *)PyBytes_AS_STRING(record);
    *dim = want->dim;
    return is_wanted(want->mask, KIN_META_SIZES) ? want->dims : NULL;
}

uint64_t
kin_meta_open(PyObject *record)
{
    int32_t dim;
    const int64_t *sizes = recorded_sizes(record, &dim);
    uint64_t open = 0;
    for (int32_t i = 0; sizes != NULL && i < dim && i < 64; i++)
        open |= (uint64_t)(sizes[i] < 0) << i;
    return open;
}

bool
kin_meta_requires_grad(PyObject *record, bool *asked)
{
    const meta_record *want = (const meta_record *)(const void *)PyBytes_AS_STRING(record);
    *asked = is_wanted(want->mask, KIN_META_REQUIRES_GRAD);
    return *asked && want->requires_grad;
}

int64_t
kin_meta_size(PyObject *record, int i)
{
    int32_t dim;
    const int64_t *sizes = recorded_sizes(record, &dim);
    return sizes != NULL && i < dim ? sizes[i] : KIN_SIZE_ANY;
}

bool
kin_meta_only_sizes(PyObject *tensor, PyObject *record, uint64_t *differ)
{
    const meta_record *want = (const meta_record *)(const void *)PyBytes_AS_STRING(record);
    int32_t dim;
    const int64_t *sizes = recorded_sizes(record, &dim), *have;
    *differ = 0;
    if (sizes == NULL || !is_sized(tensor) || !match_place(tensor, want) || !match_scalars(tensor, want))
        return false;
    have = kin_tensor_sizes(tensor);
    for (int32_t i = 0; have != NULL && i < dim && i < 64; i++)
        *differ |= (uint64_t)(sizes[i] >= 0 && have[i] != sizes[i]) << i;
    return *differ != 0;
}

/* ---- words ---------------------------------------------------------------------------------------------------- */

/* By torch's scalar type number: the name in messages and the short name in graph text. */
static const char *const dtype_names[][2] = {
    {"Byte", "u8"}, {"Char", "i8"}, {"Short", "i16"}, {"Int", "i32"}, {"Long", "i64"}, {"Half", "f16"},
    {"Float", "f32"}, {"Double", "f64"}, {"ComplexHalf", "c32"}, {"ComplexFloat", "c64"}, {"ComplexDouble", "c128"},
    {"Bool", "b8"}, {"QInt8", "qi8"}, {"QUInt8", "qu8"}, {"QInt32", "qi32"}, {"BFloat16", "bf16"},
    {"QUInt4x2", "qu4x2"}, {"QUInt2x4", "qu2x4"}, {"Bits1x8", "b1x8"}, {"Bits2x4", "b2x4"},
    {"Bits4x2", "b4x2"}, {"Bits8", "b8x1"}, {"Bits16", "b16x1"}, {"Float8_e5m2", "f8e5m2"},
    {"Float8_e4m3fn", "f8e4m3fn"}, {"Float8_e5m2fnuz", "f8e5m2fnuz"}, {"Float8_e4m3fnuz", "f8e4m3fnuz"},
    {"UInt16", "u16"}, {"UInt32", "u32"}, {"UInt64", "u64"},
    {"UInt1", "u1"}, {"UInt2", "u2"}, {"UInt3", "u3"}, {"UInt4", "u4"}, {"UInt5", "u5"}, {"UInt6", "u6"},
    {"UInt7", "u7"}, {"Int1", "i1"}, {"Int2", "i2"}, {"Int3", "i3"}, {"Int4", "i4"}, {"Int5", "i5"}, {"Int6", "i6"},
    {"Int7", "i7"}, {"Float8_e8m0fnu", "f8e8m0fnu"}, {"Float4_e2m1fn_x2", "f4e2m1fnx2"},
    {"BComplex32", "bc32"}};
static const char *const device_names[] = {"cpu", "cuda", "mkldnn", "opengl", "opencl", "ideep", "hip", "fpga",
                                           "maia", "xla", "vulkan", "metal", "xpu", "mps", "meta", "hpu",
                                           "ve", "lazy", "ipu", "mtia", "privateuseone"};

#define COUNT(a) ((int32_t)(sizeof(a) / sizeof(a)[0]))

static const char *
dtype_text(int32_t dtype, int column)
{
    return dtype >= 0 && dtype < COUNT(dtype_names) ? dtype_names[dtype][column] : "?";
}

/* "cpu", "cuda:0": the index only where the device has one. */
static const char *
device_text(int32_t type, int32_t index, char *buf, size_t size)
{
    const char *name = type >= 0 && type < COUNT(device_names) ? device_names[type] : "device";
    if (type == DEVICE_CPU || type == DEVICE_META || index < 0)
        return name;
    snprintf(buf, size, "%s:%d", name, (int)index);
    return buf;
}

static PyObject *
explain_row(const char *what, const int64_t *have, const int64_t *want, int32_t dim)
{
    for (int32_t i = 0; have && i < dim; i++)
        if (want[i] == KIN_SIZE_SOME && have[i] < 2)
            return PyUnicode_FromFormat("%s mismatch at index %d. expected at least 2, actual %lld", what, (int)i,
                                        (long long)have[i]);
        else if (have[i] != want[i] && want[i] >= 0)
            return PyUnicode_FromFormat("%s mismatch at index %d. expected %lld, actual %lld", what, (int)i,
                                        (long long)want[i], (long long)have[i]);
    return NULL;
}

static PyObject *
explain_device(const meta_record *want, const meta_record *have)
{
    char a[40], b[40];
    return PyUnicode_FromFormat("device mismatch. expected %s, actual %s",
                                device_text(want->device_type, want->device_index, a, sizeof a),
                                device_text(have->device_type, have->device_index, b, sizeof b));
}

/* The fixed fields; NULL without an exception when they agree. */
static PyObject *
explain_fields(const meta_record *want, const meta_record *have)
{
    if (have->dtype != want->dtype)
        return PyUnicode_FromFormat("dtype mismatch. expected %s, actual %s", dtype_text(want->dtype, 0),
                                    dtype_text(have->dtype, 0));
    if (have->device_type != want->device_type || have->device_index != want->device_index)
        return explain_device(want, have);
    if (have->requires_grad != want->requires_grad)
        return PyUnicode_FromFormat("requires_grad mismatch. expected requires_grad=%d", (int)want->requires_grad);
    if (have->layout != want->layout)
        return PyUnicode_FromFormat("layout mismatch. expected %d, actual %d", (int)want->layout, (int)have->layout);
    if (have->dim != want->dim)
        return PyUnicode_FromFormat("rank mismatch. expected %d, actual %d", (int)want->dim, (int)have->dim);
    return NULL;
}

static PyObject *
explain_rest(const meta_record *want, const meta_record *have)
{
    if (have->numel != want->numel)
        return PyUnicode_FromFormat("numel mismatch. expected %lld, actual %lld", (long long)want->numel,
                                    (long long)have->numel);
    if (have->storage_offset != want->storage_offset)
        return PyUnicode_FromFormat("storage offset mismatch. expected %lld, actual %lld",
                                    (long long)want->storage_offset, (long long)have->storage_offset);
    if (have->keys != want->keys)
        return PyUnicode_FromFormat("dispatch key set mismatch. expected %llx, actual %llx",
                                    (unsigned long long)want->keys, (unsigned long long)have->keys);
    return PyUnicode_FromString("no difference");
}

PyObject *
kin_meta_explain(PyObject *tensor, PyObject *record)
{
    const meta_record *want = (const meta_record *)(const void *)PyBytes_AS_STRING(record);
    meta_record have;
    if (!kin_is_tensor(tensor))
        return PyUnicode_FromFormat("type mismatch. expected a tensor, actual %s", Py_TYPE(tensor)->tp_name);
    if (!kin_aten_has_sizes(tensor) || !read_fields(tensor, want->mask, &have))
        return PyUnicode_FromString("layout mismatch. expected a tensor with sizes of its own");
    PyObject *text = explain_fields(want, &have);
    const int64_t *row = want->dims;
    if (text == NULL && !PyErr_Occurred() && is_wanted(want->mask, KIN_META_SIZES)) {
        text = explain_row("size", kin_tensor_sizes(tensor), row, want->dim);
        row += want->dim;
    }
    if (text == NULL && !PyErr_Occurred() && want->has_strides)
        text = explain_row("stride", kin_tensor_strides(tensor), row, want->dim);
    if (text == NULL && !PyErr_Occurred())
        text = explain_rest(want, &have);
    return text;
}

/* Appends a number, at most 20 characters; returns how far the buffer is filled. Each tensor that is recorded has a note, so no snprintf. */
static size_t
append_number(char *buf, size_t len, int64_t number)
{
    char digits[20];
    size_t n = 0;
    uint64_t left = number < 0 ? 0 - (uint64_t)number : (uint64_t)number;
    do
        digits[n++] = (char)('0' + left % 10);
    while ((left /= 10) != 0);
    if (number < 0)
        buf[len++] = '-';
    while (n > 0)
        buf[len++] = digits[--n];
    return len;
}

/* Appends "[3, 4]"; returns how far the buffer is filled. */
static size_t
append_row(char *buf, size_t len, size_t size, const int64_t *row, int64_t dim)
{
    buf[len++] = '[';
    for (int64_t i = 0; i < dim && len + 32 < size; i++) {
        if (i > 0) {
            buf[len++] = ',';
            buf[len++] = ' ';
        }
        len = append_number(buf, len, row[i]);
    }
    buf[len++] = ']';
    return len;
}

PyObject *
kin_tensor_note(PyObject *tensor)
{
    meta_record m;
    char buf[1024], device[40];
    const unsigned mask = KIN_META_DTYPE | KIN_META_DEVICE | KIN_META_DIM;
    if (!is_sized(tensor) || !read_fields(tensor, mask, &m))
        return PyUnicode_FromString("tensor");
    const int64_t *strides = kin_tensor_strides(tensor), *sizes = kin_tensor_sizes(tensor);
    const char *dtype = dtype_text(m.dtype, 1);
    size_t len = strlen(dtype);
    memcpy(buf, dtype, len);
    len = append_row(buf, len, sizeof buf / 2, sizes, sizes ? m.dim : 0);
    if (strides)
        len = append_row(buf, len, sizeof buf - sizeof device, strides, m.dim);
    const char *where = device_text(m.device_type, m.device_index, device, sizeof device);
    size_t rest = strlen(where);
    memcpy(buf + len, where, rest);
    return PyUnicode_FromStringAndSize(buf, (Py_ssize_t)(len + rest));
}
