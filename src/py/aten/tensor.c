/* Tensor metadata through PyTorch's C ABI.
 *
 * A Tensor object holds a `TensorImpl *`; the address of that word serves as the C ABI's tensor handle. The position of the
 * word differs between builds, so it is found at start by comparing with `tensor._cdata`. So is the dispatch
 * key set inside the TensorImpl, which has no getter: it is compared with what torch says about tensors whose
 * key sets differ. Everything found is checked against torch's own answers before it is used.
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

kin_torch_access kin_torch;

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
    if (kin_torch.keys_offset == 0 || impl == NULL)
        return 1;
    memcpy(&keys, impl + kin_torch.keys_offset, sizeof keys);
    *out = kin_torch.layout_strided;
    return (keys & ~kin_torch.strided_keys) != 0;
}

static kin_status
find_symbols(PyObject *torch_module)
{
    void *cpu = kin_aten_library(torch_module, "libtorch_cpu.so");
    void *c10 = kin_aten_library(torch_module, "libc10.so");
    int32_fn strided;
    if (!kin_aten_symbol(cpu, "aoti_torch_get_dim", &kin_torch.dim) || !kin_aten_symbol(cpu, "aoti_torch_get_numel", &kin_torch.numel) ||
        !kin_aten_symbol(cpu, "aoti_torch_get_storage_offset", &kin_torch.storage_offset) ||
        !kin_aten_symbol(cpu, "aoti_torch_get_sizes", &kin_torch.sizes) ||
        !kin_aten_symbol(cpu, "aoti_torch_get_strides", &kin_torch.strides) ||
        !kin_aten_symbol(cpu, "aoti_torch_get_dtype", &kin_torch.dtype) ||
        !kin_aten_symbol(cpu, "aoti_torch_get_device_type", &kin_torch.device_type) ||
        !kin_aten_symbol(cpu, "aoti_torch_get_device_index", &kin_torch.device_index) ||
        !kin_aten_symbol(cpu, "aoti_torch_layout_strided", &strided))
        return fail("a function of its C interface is missing");
    if (!kin_aten_symbol(c10, "_ZNK3c1010TensorImpl13requires_gradEv", &kin_torch.requires_grad) &&
        !kin_aten_symbol(cpu, "_ZNK3c1010TensorImpl13requires_gradEv", &kin_torch.requires_grad))
        return fail("TensorImpl::requires_grad is missing");
    kin_torch.layout_strided = strided();
    if (!kin_aten_symbol(cpu, "aoti_torch_get_layout", &kin_torch.layout))
        kin_torch.layout = layout_by_keys; /* before torch 2.7 */
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
            kin_torch.impl_offset = at;
            return KIN_OK;
        }
    }
    return fail("the handle was not found in a Tensor object");
}

void *
kin_aten_handle(PyObject *tensor)
{
    return (char *)tensor + kin_torch.impl_offset;
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
    kin_torch.keys_offset = 0;
    for (int i = 0; i < n; i++) {
        if (!ask_keys(torch_c, samples[i], &want[i]))
            return;
        differ |= want[i] != want[0];
    }
    for (Py_ssize_t at = 8; differ && at < REACH && kin_torch.keys_offset == 0; at += 8) {
        int same = 0;
        for (int i = 0; i < n; i++)
            same += memcmp((char *)kin_aten_impl(samples[i]) + at, &want[i], 8) == 0;
        if (same == n)
            kin_torch.keys_offset = at;
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
        NULL};
    static const char *const lazy[] = {"Conjugate", "Negative", "ZeroTensor", NULL};
    static const char *const sized[] = {"SparseCPU", "SparseCUDA", "SparseCsrCPU", "SparseCsrCUDA", "QuantizedCPU", NULL};
    kin_torch.lazy_keys = ask_all_bits(torch_c, lazy);
    kin_torch.strided_keys = ask_all_bits(torch_c, strided) | kin_torch.lazy_keys;
    kin_torch.sized_keys = kin_torch.strided_keys | ask_all_bits(torch_c, sized);
}

static kin_status
self_check(PyObject *plain, PyObject *grad)
{
    const int64_t *sizes = kin_tensor_sizes(plain), *strides = kin_tensor_strides(plain);
    if (kin_tensor_dim(plain) != 2 || !sizes || sizes[0] != 3 || sizes[1] != 4 || !strides || strides[0] != 4)
        return fail("sizes read through the C interface are wrong");
    if (kin_torch.requires_grad(kin_aten_impl(plain)) || !kin_torch.requires_grad(kin_aten_impl(grad)))
        return fail("requires_grad read through the C interface is wrong");
    return KIN_OK;
}

static kin_status
calibrate(PyObject *torch_module)
{
    kin_status status = KIN_PYERR;
    PyObject *samples[3] = {0};
    PyObject *c = PyObject_GetAttrString(torch_module, "_C");
    samples[0] = c ? PyObject_CallMethod(torch_module, "zeros", "ii", 3, 4) : NULL;
    samples[1] = samples[0] ? PyObject_CallFunction((PyObject *)kin_torch.parameter, "O", samples[0]) : NULL;
    PyObject *meta = samples[1] ? PyUnicode_FromString("meta") : NULL;
    samples[2] = meta ? PyObject_CallMethod(samples[0], "to", "O", meta) : NULL;
    if (samples[2]) {
        status = calibrate_handle(samples[0]);
        if (status == KIN_OK) {
            calibrate_keys(c, samples, 3);
            if (kin_torch.keys_offset)
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
    if (kin_torch.ready)
        return KIN_OK;
    KIN_TRY(find_symbols(torch_module));
    KIN_TRY(kin_sizes_init(torch_module));
    PyObject *nn = PyObject_GetAttrString(torch_module, "nn");
    if (nn == NULL)
        return KIN_PYERR;
    /* The two classes are kept for the life of the process: torch is never unloaded. */
    kin_torch.tensor = find_class(torch_module, "Tensor");
    kin_torch.parameter = kin_torch.tensor ? find_class(nn, "Parameter") : NULL;
    Py_DECREF(nn);
    PyObject *off = kin_torch.parameter ? kin_modes_off() : NULL;
    kin_status status = off ? calibrate(torch_module) : KIN_PYERR;
    if (off != NULL && !kin_modes_on(off))
        status = KIN_PYERR;
    if (status != KIN_OK) {
        Py_CLEAR(kin_torch.tensor);
        Py_CLEAR(kin_torch.parameter);
        return status;
    }
    kin_torch.ready = true;
    return KIN_OK;
}

/* ---- type tests and getters ----------------------------------------------------------------------------------- */

bool
kin_is_plain_tensor(PyObject *obj)
{
    return obj != NULL && (Py_TYPE(obj) == kin_torch.tensor || Py_TYPE(obj) == kin_torch.parameter) && kin_torch.tensor != NULL;
}

bool
kin_is_tensor(PyObject *obj)
{
    return obj != NULL && kin_torch.tensor != NULL &&
           (kin_is_plain_tensor(obj) || PyType_IsSubtype(Py_TYPE(obj), kin_torch.tensor));
}

bool
kin_is_tensor_type(PyObject *type)
{
    return type != NULL && type == (PyObject *)kin_torch.tensor;
}

bool
kin_is_class_of_tensors(PyObject *type)
{
    return type != NULL && PyType_Check(type) && PyType_IsSubtype((PyTypeObject *)type, kin_torch.tensor);
}

/* The one place that says whether what lies in a tensor's own words may be read. A Tensor whose class was made by hand may hold
 * nothing at all. */
static bool
has_keys_of(PyObject *tensor, uint64_t allowed)
{
    return kin_aten_impl(tensor) != NULL && allowed != 0 &&
           ((kin_tensor_keys(tensor) & ~allowed) == 0 || Py_TYPE(tensor) == kin_torch.own);
}

bool
kin_aten_has_sizes(PyObject *tensor)
{
    return has_keys_of(tensor, kin_torch.sized_keys);
}

bool
kin_aten_has_strides(PyObject *tensor)
{
    return has_keys_of(tensor, kin_torch.strided_keys);
}

bool
kin_tensor_is_strided(PyObject *obj)
{
    return kin_is_tensor(obj) && kin_aten_has_strides(obj);
}

bool
kin_tensor_is_readable(PyObject *obj, unsigned mask)
{
    return kin_is_tensor(obj) && (mask & (KIN_META_STRIDES | KIN_META_OFFSET) ? kin_aten_has_strides(obj) : kin_aten_has_sizes(obj));
}

bool
kin_is_plain_strided(PyObject *obj)
{
    return kin_is_plain_tensor(obj) && kin_aten_has_strides(obj);
}

void
kin_aten_own_class(PyTypeObject *type)
{
    kin_torch.own = type;
}

int64_t
kin_tensor_dim(PyObject *tensor)
{
    int64_t dim;
    return kin_aten_has_sizes(tensor) && kin_torch.dim(kin_aten_handle(tensor), &dim) == 0 ? dim : -1;
}

const int64_t *
kin_tensor_sizes(PyObject *tensor)
{
    int64_t *sizes;
    return kin_aten_has_sizes(tensor) && kin_torch.sizes(kin_aten_handle(tensor), &sizes) == 0 ? sizes : NULL;
}

const int64_t *
kin_tensor_strides(PyObject *tensor)
{
    int64_t *strides;
    return kin_aten_has_strides(tensor) && kin_torch.strides(kin_aten_handle(tensor), &strides) == 0 ? strides : NULL;
}

int64_t
kin_tensor_offset(PyObject *tensor)
{
    int64_t offset;
    return kin_aten_has_strides(tensor) && kin_torch.storage_offset(kin_aten_handle(tensor), &offset) == 0 ? offset : -1;
}

bool
kin_tensor_requires_grad(PyObject *tensor)
{
    void *impl = kin_aten_impl(tensor);
    return impl != NULL && kin_torch.requires_grad(impl);
}

int32_t
kin_aten_dtype(PyObject *tensor)
{
    int32_t value;
    return kin_torch.dtype(kin_aten_handle(tensor), &value) == 0 ? value : -1;
}

int32_t
kin_aten_device(PyObject *tensor)
{
    int32_t value;
    return kin_torch.device_type(kin_aten_handle(tensor), &value) == 0 ? value : -1;
}
