/* Creates tensors (make.h). Symbols are found with dlsym. Where a tensor keeps its storage is found by comparing with
 * torch's own answers, and checked, as tensor.c does for the rest.
 */
#include "py/aten/make.h"

#include <string.h>

#include "py/aten/modes.h"
#include "py/aten/tensor.h"
#include "py/aten/tensor_priv.h"
#include "py/aten/threads.h"

typedef int (*new_fn)(int64_t, const int64_t *, const int64_t *, int32_t, int32_t, int32_t, void **);
typedef int (*over_fn)(void *, int64_t, const int64_t *, const int64_t *, int64_t, int32_t, int32_t, int32_t, void **);
typedef int (*view_fn)(void *, int64_t, const int64_t *, const int64_t *, int64_t, void **);
typedef int (*delete_fn)(void *);
typedef int (*data_fn)(void *, void **);
typedef PyObject *(*wrap_fn)(const void *);

static struct {
    void *cpu;
    new_fn new_strided;
    over_fn over;
    view_fn view;
    delete_fn delete;
    data_fn data;
    wrap_fn wrap;
    bool (*grad_enabled)(void);
    void (*grad_set)(bool);
    bool (*inference)(void);
    void (*bump)(const void *tensor);
    int64_t (*function_modes)(void), (*dispatch_modes)(void);
    bool (*autocast_on)(int8_t device);
    int8_t (*autocast_dtype)(int8_t device), (*default_dtype)(void);
    void *context;             /* of torch as a whole */
    bool (*deterministic)(const void *context);
    PyObject *forward, *level; /* dict of torch.autograd.forward_ad; the name of its depth in there, -1 = none */
    Py_ssize_t storage_offset; /* of the StorageImpl pointer in the TensorImpl */
    uint64_t keys[2];          /* of tensors made outside and inside of inference mode */
    bool ready, failed;
} make;

/* torch's numbers of the dtypes that graphs know. */
static const int32_t dtype_numbers[KIN_DTYPE__COUNT] = {
    [KIN_BOOL] = 11, [KIN_U8] = 0, [KIN_I8] = 1, [KIN_I16] = 2, [KIN_I32] = 3, [KIN_I64] = 4, [KIN_F16] = 5,
    [KIN_BF16] = 15, [KIN_F32] = 6, [KIN_F64] = 7, [KIN_C64] = 9, [KIN_C128] = 10};

/* -- start ------------------------------------------------------------------------------------------------------ */

static bool
find_functions(PyObject *torch_module)
{
    void *cpu = make.cpu = kin_aten_library(torch_module, "libtorch_cpu.so");
    void *c10 = kin_aten_library(torch_module, "libc10.so");
    void *python = kin_aten_library(torch_module, "libtorch_python.so");
    void *(*global_context)(void);
    kin_threads_init(cpu);
    if (!kin_aten_symbol(cpu, "_ZN2at13globalContextEv", &global_context))
        return false;
    make.context = global_context();
    return kin_aten_symbol(cpu, "_ZNK2at7Context23deterministicAlgorithmsEv", &make.deterministic) &&
           kin_aten_symbol(cpu, "aoti_torch_empty_strided", &make.new_strided) &&
           kin_aten_symbol(cpu, "aoti_torch_create_tensor_from_blob", &make.over) &&
           kin_aten_symbol(cpu, "aoti_torch__reinterpret_tensor", &make.view) &&
           kin_aten_symbol(cpu, "aoti_torch_delete_tensor_object", &make.delete) &&
           kin_aten_symbol(cpu, "aoti_torch_get_data_ptr", &make.data) &&
           kin_aten_symbol(cpu, "aoti_torch_grad_mode_is_enabled", &make.grad_enabled) &&
           kin_aten_symbol(cpu, "aoti_torch_grad_mode_set_enabled", &make.grad_set) &&
           kin_aten_symbol(cpu, "_ZN5torch8autograd4impl12bump_versionERKN2at6TensorE", &make.bump) &&
           kin_aten_symbol(c10, "_ZN3c1013InferenceMode10is_enabledEv", &make.inference) &&
           kin_aten_symbol(cpu, "_ZN2at4impl22PythonTorchFunctionTLS9stack_lenEv", &make.function_modes) &&
           kin_aten_symbol(cpu, "_ZN2at8autocast19is_autocast_enabledEN3c1010DeviceTypeE", &make.autocast_on) &&
           kin_aten_symbol(cpu, "_ZN2at8autocast18get_autocast_dtypeEN3c1010DeviceTypeE", &make.autocast_dtype) &&
           kin_aten_symbol(c10, "_ZN3c1031get_default_dtype_as_scalartypeEv", &make.default_dtype) &&
           kin_aten_symbol(c10, "_ZN3c104impl20TorchDispatchModeTLS9stack_lenEv", &make.dispatch_modes) &&
           kin_aten_symbol(python, "_Z16THPVariable_WrapRKN2at10TensorBaseE", &make.wrap);
}

/* torch's own name of a tensor's storage; 0 when it gives none. */
static uintptr_t
ask_storage(PyObject *tensor)
{
    PyObject *storage = PyObject_CallMethod(tensor, "untyped_storage", NULL);
    PyObject *word = storage == NULL ? NULL : PyObject_GetAttrString(storage, "_cdata");
    uintptr_t address = word == NULL ? 0 : (uintptr_t)PyLong_AsVoidPtr(word);
    Py_XDECREF(word);
    Py_XDECREF(storage);
    PyErr_Clear();
    return address;
}

/* The offset at which each sample holds its own storage. */
static bool
calibrate_storage(PyObject *const *samples, int n)
{
    enum { REACH = 128 };
    for (Py_ssize_t at = 8; at < REACH; at += 8) {
        int same = 0;
        for (int i = 0; i < n; i++) {
            uintptr_t want = ask_storage(samples[i]);
            same += want != 0 && memcmp((char *)kin_aten_impl(samples[i]) + at, &want, sizeof want) == 0;
        }
        if (same == n) {
            make.storage_offset = at;
            return true;
        }
    }
    return false;
}

static bool
check_samples(void)
{
    static const int64_t sizes[2] = {3, 4}, strides[2] = {1, 3};
    float memory[12];
    PyObject *samples[3] = {kin_tensor_new(KIN_F32, 2, sizes, strides, false), kin_tensor_new(KIN_I64, 2, sizes, strides, true),
                            kin_tensor_over(memory, KIN_F32, 2, sizes, strides)};
    bool ok = samples[0] != NULL && samples[1] != NULL && samples[2] != NULL && calibrate_storage(samples, 3) &&
              kin_tensor_data(samples[2]) == memory && kin_tensor_is_dense(samples[0], false) &&
              kin_tensor_is_dense(samples[1], true) && kin_tensor_strides(samples[0])[1] == 3;
    for (int i = 0; i < 3; i++)
        Py_XDECREF(samples[i]);
    PyErr_Clear();
    return ok;
}

/* Keys of tensors of both kinds, whatever mode is on just now. */
static bool
find_keys(PyObject *torch_module)
{
    for (int inference = 0; inference < 2; inference++) {
        PyObject *guard = PyObject_CallMethod(torch_module, "inference_mode", "O", inference ? Py_True : Py_False);
        PyObject *entered = guard == NULL ? NULL : PyObject_CallMethod(guard, "__enter__", NULL);
        PyObject *sample = entered == NULL ? NULL : kin_tensor_new(KIN_F32, 0, NULL, NULL, false);
        PyObject *left = entered == NULL ? NULL : PyObject_CallMethod(guard, "__exit__", "OOO", Py_None, Py_None, Py_None);
        make.keys[inference] = sample == NULL ? 0 : kin_tensor_keys(sample);
        Py_XDECREF(left);
        Py_XDECREF(sample);
        Py_XDECREF(entered);
        Py_XDECREF(guard);
        if (PyErr_Occurred())
            PyErr_Clear();
    }
    return make.keys[0] != 0 && make.keys[1] != 0 && make.keys[0] != make.keys[1];
}

static bool
find_forward(void)
{
    PyObject *module = PyImport_ImportModule("torch.autograd.forward_ad");
    make.level = module == NULL ? NULL : PyUnicode_InternFromString("_current_level");
    make.forward = make.level == NULL ? NULL : Py_NewRef(PyModule_GetDict(module));
    Py_XDECREF(module);
    PyErr_Clear();
    return make.forward != NULL && PyDict_GetItem(make.forward, make.level) != NULL;
}

kin_status
kin_make_init(PyObject *torch_module)
{
    if (!make.ready && !make.failed && kin_undisturbed()) {
        make.ready = find_functions(torch_module) && check_samples() && find_keys(torch_module) && find_forward();
        make.failed = !make.ready;
    }
    return make.ready ? KIN_OK : KIN_BREAK;
}

bool
kin_make_ready(void)
{
    return make.ready;
}

/* -- making ----------------------------------------------------------------------------------------------------- */

/* The Tensor object of a handle, which is given up. */
static PyObject *
wrap(int failed, void *handle)
{
    if (failed) {
        PyErr_SetString(PyExc_RuntimeError, "kintsugi: torch could not make a tensor");
        return NULL;
    }
    PyObject *tensor = make.wrap(handle);
    make.delete(handle);
    return tensor;
}

PyObject *
kin_tensor_new(kin_dtype dtype, unsigned ndim, const int64_t *sizes, const int64_t *strides, bool meta)
{
    void *handle = NULL;
    int failed = make.new_strided(ndim, sizes, strides, dtype_numbers[dtype], meta ? DEVICE_META : DEVICE_CPU,
                                  meta ? -1 : 0, &handle);
    return wrap(failed, handle);
}

PyObject *
kin_tensor_over(void *data, kin_dtype dtype, unsigned ndim, const int64_t *sizes, const int64_t *strides)
{
    void *handle = NULL;
    int failed = make.over(data, ndim, sizes, strides, 0, dtype_numbers[dtype], DEVICE_CPU, 0, &handle);
    return wrap(failed, handle);
}

PyObject *
kin_tensor_view(PyObject *tensor, unsigned ndim, const int64_t *sizes, const int64_t *strides, int64_t offset)
{
    void *handle = NULL; /* offsets are counted from the tensor's own */
    int failed = make.view(kin_aten_handle(tensor), ndim, sizes, strides, offset - kin_tensor_offset(tensor), &handle);
    return wrap(failed, handle);
}

void *
kin_tensor_data(PyObject *tensor)
{
    void *data;
    return kin_tensor_is_strided(tensor) && make.data(kin_aten_handle(tensor), &data) == 0 ? data : NULL;
}

const void *
kin_tensor_storage(PyObject *tensor)
{
    const void *storage;
    memcpy(&storage, (char *)kin_aten_impl(tensor) + make.storage_offset, sizeof storage);
    return storage;
}

static bool
dtype_of_number(int32_t number, kin_dtype *out)
{
    for (int i = 0; i < KIN_DTYPE__COUNT; i++)
        if (dtype_numbers[i] == number) {
            *out = (kin_dtype)i;
            return true;
        }
    return false;
}

bool
kin_tensor_dtype(PyObject *tensor, kin_dtype *out)
{
    return dtype_of_number(kin_aten_dtype(tensor), out);
}

bool
kin_tensor_is_dense(PyObject *tensor, bool meta)
{
    return kin_tensor_strides(tensor) != NULL && kin_aten_device(tensor) == (meta ? DEVICE_META : DEVICE_CPU);
}

bool
kin_grad_enabled(void)
{
    return make.grad_enabled();
}

void
kin_grad_set(bool enabled)
{
    make.grad_set(enabled);
}

bool
kin_tensor_is_inference(PyObject *tensor)
{
    return kin_tensor_keys(tensor) == make.keys[1];
}

bool
kin_inference_enabled(void)
{
    return make.inference();
}

void
kin_tensor_bump(PyObject *tensor, uint32_t times)
{
    for (uint32_t i = 0; i < times && !kin_tensor_is_inference(tensor); i++)
        make.bump(kin_aten_handle(tensor));
}

uint32_t
kin_ambient_state(void)
{
    uint32_t autocast = make.autocast_on(DEVICE_CPU) ? 1 + (uint32_t)(uint8_t)make.autocast_dtype(DEVICE_CPU) : 0;
    uint32_t on_gpu = make.autocast_on(DEVICE_CUDA) ? 1 + (uint32_t)(uint8_t)make.autocast_dtype(DEVICE_CUDA) : 0;
    return on_gpu << 20 | autocast << 8 | (uint8_t)make.default_dtype();
}

bool
kin_default_is_f64(void)
{
    return make.default_dtype() == dtype_numbers[KIN_F64];
}

bool
kin_ambient_special(void)
{
    PyObject *level = PyDict_GetItem(make.forward, make.level); /* borrowed */
    bool dual = level == NULL || !PyLong_CheckExact(level) || PyLong_AsLong(level) >= 0;
    int8_t dtype = make.default_dtype();
    return dual || make.deterministic(make.context) || (dtype != dtype_numbers[KIN_F64] && dtype != dtype_numbers[KIN_F32]);
}

bool
kin_default_dtype(kin_dtype *out)
{
    return dtype_of_number(make.default_dtype(), out);
}

bool
kin_modes_active(void)
{
    return make.function_modes() != 0 || make.dispatch_modes() != 0;
}

bool
kin_tensor_has_ordinary_data(PyObject *tensor)
{
    uint64_t keys = kin_tensor_is_strided(tensor) ? kin_tensor_keys(tensor) : 0;
    return keys != 0 && (keys == make.keys[0] || keys == make.keys[1]) && kin_tensor_is_dense(tensor, false);
}

bool
kin_tensor_has_plain_data(PyObject *tensor)
{
    uint64_t keys = kin_tensor_is_strided(tensor) ? kin_tensor_keys(tensor) : 0;
    return keys != 0 && (keys & kin_torch.lazy_keys) == 0;
}

bool
kin_tensor_is_ordinary(PyObject *tensor)
{
    return kin_is_plain_tensor(tensor) && kin_tensor_has_ordinary_data(tensor);
}

void *
kin_torch_symbol(const char *name)
{
    void *at;
    return kin_aten_symbol(make.cpu, name, &at) ? at : NULL;
}

PyObject *
kin_tuple_of_ints(const int64_t *numbers, Py_ssize_t n)
{
    PyObject *tuple = PyTuple_New(n);
    for (Py_ssize_t i = 0; tuple != NULL && i < n; i++) {
        PyObject *number = PyLong_FromLongLong(numbers[i]);
        if (number == NULL)
            Py_CLEAR(tuple);
        else
            PyTuple_SET_ITEM(tuple, i, number);
    }
    return tuple;
}
