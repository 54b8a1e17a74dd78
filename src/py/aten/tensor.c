/* Tensor metadata through PyTorch's C ABI.
 *
 * A Tensor object holds a `TensorImpl *`; the address of that word serves as the C ABI's tensor handle. Where the
 * word lies differs between builds, so it is found at start by comparing with `tensor._cdata`, as is the dispatch
 * key set inside the TensorImpl (no getter exists for it; it is compared with what torch says about tensors whose
 * key sets differ). Everything found is checked against torch's own answers before it is believed.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* RTLD_NOLOAD */
#endif
#include "py/aten/make.h"
#include "py/aten/modes.h"
#include "py/aten/sizes.h"
#include "py/aten/tensor.h"
#include "py/aten/tensor_priv.h"
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

typedef int32_t (*int32_fn)(void);
typedef int (*get_int32)(void *, int32_t *);
typedef int (*get_int64)(void *, int64_t *);
typedef int (*get_array)(void *, int64_t **);

enum { DEVICE_CPU = 0, DEVICE_META = 14 }; /* torch's device type numbers */

static struct {
    get_int64 dim, numel, storage_offset;
    get_array sizes, strides;
    get_int32 dtype, device_type, device_index, layout;
    bool (*requires_grad)(const void *impl);
    int32_t layout_strided;
    Py_ssize_t impl_offset; /* of the TensorImpl pointer in the Tensor object */
    Py_ssize_t keys_offset; /* of the key set in the TensorImpl; 0 = unknown */
    uint64_t strided_keys;  /* all that a strided tensor may have; 0 = unknown */
    uint64_t sized_keys;    /* ... that a tensor may have whose sizes lie where a strided one's do */
    PyTypeObject *tensor, *parameter;
    PyTypeObject *own;      /* the stand-ins of capture */
    bool ready;
} aten;

/* ---- start ---------------------------------------------------------------------------------------------------- */

void *
kin_aten_library(PyObject *torch_module, const char *name)
{
    void *lib = dlopen(name, RTLD_NOLOAD | RTLD_LAZY);
    if (lib)
        return lib;
    PyObject *file = PyObject_GetAttrString(torch_module, "__file__");
    const char *path = file ? PyUnicode_AsUTF8(file) : NULL;
    const char *slash = path ? strrchr(path, '/') : NULL;
    char full[4096];
    if (slash && snprintf(full, sizeof full, "%.*s/lib/%s", (int)(slash - path), path, name) < (int)sizeof full)
        lib = dlopen(full, RTLD_NOLOAD | RTLD_LAZY);
    Py_XDECREF(file);
    PyErr_Clear();
    return lib;
}

static kin_status
fail(const char *what)
{
    PyErr_Format(PyExc_RuntimeError, "kintsugi cannot use this build of torch: %s", what);
    return KIN_PYERR;
}

/* dlsym gives an object pointer; the copy avoids a cast that ISO C does not define. */
bool
kin_aten_symbol(void *lib, const char *name, void *fn)
{
    void *at = lib ? dlsym(lib, name) : NULL;
    memcpy(fn, &at, sizeof at);
    return at != NULL;
}

/* Keys tell which tensors are strided; of the others this says nothing, and torch is asked step by step. */
static int
layout_by_keys(void *handle, int32_t *out)
{
    const char *impl = *(char **)handle;
    uint64_t keys;
    if (aten.keys_offset == 0 || impl == NULL)
        return 1;
    memcpy(&keys, impl + aten.keys_offset, sizeof keys);
    *out = aten.layout_strided;
    return (keys & ~aten.strided_keys) != 0;
}

static kin_status
find_symbols(PyObject *torch_module)
{
    void *cpu = kin_aten_library(torch_module, "libtorch_cpu.so");
    void *c10 = kin_aten_library(torch_module, "libc10.so");
    int32_fn strided;
    if (!kin_aten_symbol(cpu, "aoti_torch_get_dim", &aten.dim) || !kin_aten_symbol(cpu, "aoti_torch_get_numel", &aten.numel) ||
        !kin_aten_symbol(cpu, "aoti_torch_get_storage_offset", &aten.storage_offset) ||
        !kin_aten_symbol(cpu, "aoti_torch_get_sizes", &aten.sizes) ||
        !kin_aten_symbol(cpu, "aoti_torch_get_strides", &aten.strides) ||
        !kin_aten_symbol(cpu, "aoti_torch_get_dtype", &aten.dtype) ||
        !kin_aten_symbol(cpu, "aoti_torch_get_device_type", &aten.device_type) ||
        !kin_aten_symbol(cpu, "aoti_torch_get_device_index", &aten.device_index) ||
        !kin_aten_symbol(cpu, "aoti_torch_layout_strided", &strided))
        return fail("a function of its C interface is missing");
    if (!kin_aten_symbol(c10, "_ZNK3c1010TensorImpl13requires_gradEv", &aten.requires_grad) &&
        !kin_aten_symbol(cpu, "_ZNK3c1010TensorImpl13requires_gradEv", &aten.requires_grad))
        return fail("TensorImpl::requires_grad is missing");
    aten.layout_strided = strided();
    if (!kin_aten_symbol(cpu, "aoti_torch_get_layout", &aten.layout))
        aten.layout = layout_by_keys; /* before torch 2.7 */
    return kin_modes_init(torch_module, cpu, c10);
}

/* An attribute that is an int, or the int that a method returns; -1 with an exception on failure. */
static int
read_address(PyObject *obj, const char *attr, uintptr_t *out)
{
    PyObject *value = PyObject_GetAttrString(obj, attr);
    if (value == NULL)
        return -1;
    *out = (uintptr_t)PyLong_AsVoidPtr(value);
    Py_DECREF(value);
    return PyErr_Occurred() ? -1 : 0;
}

static kin_status
calibrate_handle(PyObject *tensor)
{
    uintptr_t cdata, word;
    if (read_address(tensor, "_cdata", &cdata) < 0)
        return KIN_PYERR;
    Py_ssize_t size = Py_TYPE(tensor)->tp_basicsize;
    for (Py_ssize_t at = (Py_ssize_t)sizeof(PyObject); at + (Py_ssize_t)sizeof word <= size; at += (Py_ssize_t)sizeof word) {
        memcpy(&word, (char *)tensor + at, sizeof word);
        if (word == cdata) {
            aten.impl_offset = at;
            return KIN_OK;
        }
    }
    return fail("the handle was not found in a Tensor object");
}

void *
kin_aten_handle(PyObject *tensor)
{
    return (char *)tensor + aten.impl_offset;
}

void *
kin_aten_impl(PyObject *tensor)
{
    return *(void **)kin_aten_handle(tensor);
}

/* torch's own answer; false (no exception left) when it gives none. */
static bool
ask_keys(PyObject *torch_c, PyObject *tensor, uint64_t *out)
{
    PyObject *set = PyObject_CallMethod(torch_c, "_dispatch_keys", "O", tensor);
    PyObject *raw = set ? PyObject_CallMethod(set, "raw_repr", NULL) : NULL;
    *out = raw ? PyLong_AsUnsignedLongLong(raw) : 0;
    Py_XDECREF(raw);
    Py_XDECREF(set);
    bool ok = !PyErr_Occurred();
    PyErr_Clear();
    return ok;
}

/* The offset at which all samples hold their own key set; their sets must differ, or nothing is proved. */
static void
calibrate_keys(PyObject *torch_c, PyObject *const *samples, int n)
{
    enum { MAX = 4, REACH = 256 };
    uint64_t want[MAX];
    bool differ = false;
    aten.keys_offset = 0;
    for (int i = 0; i < n; i++) {
        if (!ask_keys(torch_c, samples[i], &want[i]))
            return;
        differ |= want[i] != want[0];
    }
    for (Py_ssize_t at = 8; differ && at < REACH && aten.keys_offset == 0; at += 8) {
        int same = 0;
        for (int i = 0; i < n; i++)
            same += memcmp((char *)kin_aten_impl(samples[i]) + at, &want[i], 8) == 0;
        if (same == n)
            aten.keys_offset = at;
    }
}

/* The bits of the key in a key set; 0 in a build of torch that does not know it. */
static uint64_t
ask_key_bits(PyObject *torch_c, const char *name)
{
    PyObject *keys = PyObject_GetAttrString(torch_c, "DispatchKey");
    PyObject *key = keys ? PyObject_GetAttrString(keys, name) : NULL;
    PyObject *set = key ? PyObject_CallMethod(torch_c, "DispatchKeySet", "O", key) : NULL;
    PyObject *raw = set ? PyObject_CallMethod(set, "raw_repr", NULL) : NULL;
    uint64_t bits = raw ? PyLong_AsUnsignedLongLong(raw) : 0;
    Py_XDECREF(raw);
    Py_XDECREF(set);
    Py_XDECREF(key);
    Py_XDECREF(keys);
    if (PyErr_Occurred()) {
        PyErr_Clear();
        return 0;
    }
    return bits;
}

static uint64_t
ask_all_bits(PyObject *torch_c, const char *const *names)
{
    uint64_t all = 0;
    for (int i = 0; names[i] != NULL; i++)
        all |= ask_key_bits(torch_c, names[i]);
    return all;
}

/* Strided tensors, which keep sizes and strides in words of their own, have keys of the first list only; sparse and quantised ones keep
 * their sizes there. Nested, MKL-DNN, lazy, batched and functional tensors and those with a __torch_dispatch__ have another key,
 * and the getters of some of them throw, or run Python code. */
static void
find_readable_keys(PyObject *torch_c)
{
    static const char *const strided[] = {"CPU", "CUDA", "XPU", "MPS", "Meta", "AutogradCPU", "AutogradCUDA", "AutogradXPU",
        "AutogradMPS", "AutogradMeta", "ADInplaceOrView", "AutocastCPU", "AutocastCUDA", "AutocastXPU", "AutocastMPS",
        "Conjugate", "Negative", "ZeroTensor", NULL};
    static const char *const sized[] = {"SparseCPU", "SparseCUDA", "SparseCsrCPU", "SparseCsrCUDA", "QuantizedCPU", NULL};
    aten.strided_keys = ask_all_bits(torch_c, strided);
    aten.sized_keys = aten.strided_keys | ask_all_bits(torch_c, sized);
}

static kin_status
self_check(PyObject *plain, PyObject *grad)
{
    const int64_t *sizes = kin_tensor_sizes(plain), *strides = kin_tensor_strides(plain);
    if (kin_tensor_dim(plain) != 2 || !sizes || sizes[0] != 3 || sizes[1] != 4 || !strides || strides[0] != 4)
        return fail("sizes read through the C interface are wrong");
    if (aten.requires_grad(kin_aten_impl(plain)) || !aten.requires_grad(kin_aten_impl(grad)))
        return fail("requires_grad read through the C interface is wrong");
    return KIN_OK;
}

/* Modes of the program off, or on again: under export or FakeTensorMode the samples below would be no plain tensors. */
static PyObject *
modes_off(void)
{
    PyObject *module = PyImport_ImportModule("torch.utils._python_dispatch");
    PyObject *off = module ? PyObject_CallMethod(module, "_disable_current_modes", NULL) : NULL;
    PyObject *entered = off ? PyObject_CallMethod(off, "__enter__", NULL) : NULL;
    if (entered == NULL)
        Py_CLEAR(off);
    Py_XDECREF(entered);
    Py_XDECREF(module);
    return off;
}

static bool
modes_on(PyObject *off)
{
    PyObject *type, *error, *traceback;
    PyErr_Fetch(&type, &error, &traceback);
    PyObject *left = PyObject_CallMethod(off, "__exit__", "OOO", Py_None, Py_None, Py_None);
    Py_DECREF(off);
    bool ok = left != NULL;
    Py_XDECREF(left);
    if (type != NULL) {
        PyErr_Clear();
        PyErr_Restore(type, error, traceback);
    }
    return ok;
}

static kin_status
calibrate(PyObject *torch_module)
{
    kin_status status = KIN_PYERR;
    PyObject *samples[3] = {0};
    PyObject *c = PyObject_GetAttrString(torch_module, "_C");
    samples[0] = c ? PyObject_CallMethod(torch_module, "zeros", "ii", 3, 4) : NULL;
    samples[1] = samples[0] ? PyObject_CallFunction((PyObject *)aten.parameter, "O", samples[0]) : NULL;
    PyObject *meta = samples[1] ? PyUnicode_FromString("meta") : NULL;
    samples[2] = meta ? PyObject_CallMethod(samples[0], "to", "O", meta) : NULL;
    if (samples[2]) {
        status = calibrate_handle(samples[0]);
        if (status == KIN_OK) {
            calibrate_keys(c, samples, 3);
            if (aten.keys_offset)
                find_readable_keys(c);
            status = self_check(samples[0], samples[1]);
        }
    }
    Py_XDECREF(meta);
    for (int i = 0; i < 3; i++)
        Py_XDECREF(samples[i]);
    Py_XDECREF(c);
    return status;
}

static PyTypeObject *
find_class(PyObject *from, const char *name)
{
    PyObject *cls = PyObject_GetAttrString(from, name);
    if (cls && !PyType_Check(cls)) {
        Py_DECREF(cls);
        PyErr_Format(PyExc_TypeError, "torch's %s is not a class", name);
        return NULL;
    }
    return (PyTypeObject *)cls;
}

kin_status
kin_aten_init(PyObject *torch_module)
{
    if (aten.ready)
        return KIN_OK;
    KIN_TRY(find_symbols(torch_module));
    KIN_TRY(kin_sizes_init(torch_module));
    PyObject *nn = PyObject_GetAttrString(torch_module, "nn");
    if (nn == NULL)
        return KIN_PYERR;
    /* The two classes are kept for the life of the process: torch is never unloaded. */
    aten.tensor = find_class(torch_module, "Tensor");
    aten.parameter = aten.tensor ? find_class(nn, "Parameter") : NULL;
    Py_DECREF(nn);
    PyObject *off = aten.parameter ? modes_off() : NULL;
    kin_status status = off ? calibrate(torch_module) : KIN_PYERR;
    if (off != NULL && !modes_on(off))
        status = KIN_PYERR;
    if (status != KIN_OK) {
        Py_CLEAR(aten.tensor);
        Py_CLEAR(aten.parameter);
        return status;
    }
    aten.ready = true;
    return KIN_OK;
}

/* ---- type tests and getters ----------------------------------------------------------------------------------- */

bool
kin_is_plain_tensor(PyObject *obj)
{
    return obj != NULL && (Py_TYPE(obj) == aten.tensor || Py_TYPE(obj) == aten.parameter) && aten.tensor != NULL;
}

bool
kin_is_tensor(PyObject *obj)
{
    return obj != NULL && aten.tensor != NULL &&
           (kin_is_plain_tensor(obj) || PyType_IsSubtype(Py_TYPE(obj), aten.tensor));
}

bool
kin_is_tensor_type(PyObject *type)
{
    return type != NULL && type == (PyObject *)aten.tensor;
}

/* The one place that says whether what lies in a tensor's own words may be read. A Tensor whose class was made by hand may hold
 * nothing at all. */
static bool
has_keys_of(PyObject *tensor, uint64_t allowed)
{
    return kin_aten_impl(tensor) != NULL && allowed != 0 &&
           ((kin_tensor_keys(tensor) & ~allowed) == 0 || Py_TYPE(tensor) == aten.own);
}

static bool
has_sizes(PyObject *tensor)
{
    return has_keys_of(tensor, aten.sized_keys);
}

static bool
has_strides(PyObject *tensor)
{
    return has_keys_of(tensor, aten.strided_keys);
}

bool
kin_tensor_is_strided(PyObject *obj)
{
    return kin_is_tensor(obj) && has_strides(obj);
}

bool
kin_tensor_is_readable(PyObject *obj, unsigned mask)
{
    return kin_is_tensor(obj) && (mask & (KIN_META_STRIDES | KIN_META_OFFSET) ? has_strides(obj) : has_sizes(obj));
}

bool
kin_is_plain_strided(PyObject *obj)
{
    return kin_is_plain_tensor(obj) && has_strides(obj);
}

void
kin_aten_own_class(PyTypeObject *type)
{
    aten.own = type;
}

int64_t
kin_tensor_dim(PyObject *tensor)
{
    int64_t dim;
    return has_sizes(tensor) && aten.dim(kin_aten_handle(tensor), &dim) == 0 ? dim : -1;
}

const int64_t *
kin_tensor_sizes(PyObject *tensor)
{
    int64_t *sizes;
    return has_sizes(tensor) && aten.sizes(kin_aten_handle(tensor), &sizes) == 0 ? sizes : NULL;
}

const int64_t *
kin_tensor_strides(PyObject *tensor)
{
    int64_t *strides;
    return has_strides(tensor) && aten.strides(kin_aten_handle(tensor), &strides) == 0 ? strides : NULL;
}

int64_t
kin_tensor_offset(PyObject *tensor)
{
    int64_t offset;
    return has_strides(tensor) && aten.storage_offset(kin_aten_handle(tensor), &offset) == 0 ? offset : -1;
}

bool
kin_tensor_requires_grad(PyObject *tensor)
{
    void *impl = kin_aten_impl(tensor);
    return impl != NULL && aten.requires_grad(impl);
}

int32_t
kin_aten_dtype(PyObject *tensor)
{
    int32_t value;
    return aten.dtype(kin_aten_handle(tensor), &value) == 0 ? value : -1;
}

int32_t
kin_aten_device(PyObject *tensor)
{
    int32_t value;
    return aten.device_type(kin_aten_handle(tensor), &value) == 0 ? value : -1;
}

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
    if (aten.keys_offset && kin_aten_impl(tensor) != NULL)
        memcpy(&keys, (char *)kin_aten_impl(tensor) + aten.keys_offset, sizeof keys);
    return keys;
}

static bool
is_sized(PyObject *tensor)
{
    return kin_is_tensor(tensor) && has_sizes(tensor);
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
    if (aten.dim(h, &dim) != 0)
        return false;
    if (is_wanted(mask, KIN_META_DIM | KIN_META_SIZES | KIN_META_STRIDES))
        m->dim = (int32_t)dim;
    if (is_wanted(mask, KIN_META_DTYPE) && aten.dtype(h, &m->dtype) != 0)
        return false;
    if (is_wanted(mask, KIN_META_LAYOUT | KIN_META_STRIDES) && aten.layout(h, &m->layout) != 0)
        return false;
    m->has_strides = is_wanted(mask, KIN_META_STRIDES) && has_strides(tensor);
    if (is_wanted(mask, KIN_META_DEVICE) &&
        (aten.device_type(h, &m->device_type) != 0 || aten.device_index(h, &m->device_index) != 0))
        return false;
    if (is_wanted(mask, KIN_META_REQUIRES_GRAD))
        m->requires_grad = aten.requires_grad(kin_aten_impl(tensor));
    if (is_wanted(mask, KIN_META_KEYS))
        m->keys = kin_tensor_keys(tensor);
    if (is_wanted(mask, KIN_META_OFFSET) && (!has_strides(tensor) || aten.storage_offset(h, &m->storage_offset) != 0))
        return false;
    return !is_wanted(mask, KIN_META_NUMEL) || aten.numel(h, &m->numel) == 0;
}

static size_t
count_dims(const meta_record *m)
{
    return (size_t)m->dim * ((is_wanted(m->mask, KIN_META_SIZES) ? 1u : 0u) + (m->has_strides ? 1u : 0u));
}

/* In place of a size that may be another one in the next call. */
static void
open_sizes(int64_t *row, int32_t dim, uint64_t open, int64_t as)
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
        open_sizes((int64_t *)(void *)at, head.dim, open, as);
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
    bool keys = is_wanted(want->mask, KIN_META_KEYS) && aten.keys_offset != 0;
    if (keys && kin_tensor_keys(tensor) != want->keys)
        return false;
    if (is_wanted(want->mask, KIN_META_LAYOUT | KIN_META_STRIDES) && !(keys && want->layout == aten.layout_strided) &&
        (aten.layout(h, &value) != 0 || value != want->layout))
        return false;
    if (!is_wanted(want->mask, KIN_META_DEVICE))
        return true;
    if (keys && (want->device_type == DEVICE_CPU || want->device_type == DEVICE_META))
        return true;
    return aten.device_type(h, &value) == 0 && value == want->device_type && aten.device_index(h, &value) == 0 &&
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
        (aten.dim(h, &wide) != 0 || wide != want->dim))
        return false;
    if (is_wanted(mask, KIN_META_DTYPE) && (aten.dtype(h, &value) != 0 || value != want->dtype))
        return false;
    if (is_wanted(mask, KIN_META_REQUIRES_GRAD) && aten.requires_grad(kin_aten_impl(tensor)) != (want->requires_grad != 0))
        return false;
    if (is_wanted(mask, KIN_META_OFFSET) && (!has_strides(tensor) || aten.storage_offset(h, &wide) != 0 || wide != want->storage_offset))
        return false;
    return !is_wanted(mask, KIN_META_NUMEL) || (aten.numel(h, &wide) == 0 && wide == want->numel);
}

static bool
match_rows(PyObject *tensor, const meta_record *want, const int64_t *row)
{
    int64_t *have;
    if (is_wanted(want->mask, KIN_META_SIZES)) {
        if (aten.sizes(kin_aten_handle(tensor), &have) != 0 || !match_sizes(have, row, want->dim))
            return false;
        row += want->dim;
    }
    return !want->has_strides || (has_strides(tensor) && aten.strides(kin_aten_handle(tensor), &have) == 0 &&
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
    {"Int7", "i7"}, {"Float8_e8m0fnu", "f8e8m0fnu"}, {"Float4_e2m1fn_x2", "f4e2m1fnx2"}};
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
        snprintf(buf, size, "%s", name);
    else
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
    if (!has_sizes(tensor) || !read_fields(tensor, want->mask, &have))
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

/* Appends "[3, 4]"; returns how far the buffer is filled. */
static size_t
append_row(char *buf, size_t len, size_t size, const int64_t *row, int64_t dim)
{
    buf[len++] = '[';
    for (int64_t i = 0; i < dim && len + 32 < size; i++)
        len += (size_t)snprintf(buf + len, size - len, i ? ", %lld" : "%lld", (long long)row[i]);
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
    size_t len = (size_t)snprintf(buf, sizeof buf, "%s", dtype_text(m.dtype, 1));
    len = append_row(buf, len, sizeof buf / 2, sizes, sizes ? m.dim : 0);
    if (strides)
        len = append_row(buf, len, sizeof buf - sizeof device, strides, m.dim);
    const char *where = device_text(m.device_type, m.device_index, device, sizeof device);
    size_t rest = strlen(where);
    memcpy(buf + len, where, rest);
    return PyUnicode_FromStringAndSize(buf, (Py_ssize_t)(len + rest));
}
