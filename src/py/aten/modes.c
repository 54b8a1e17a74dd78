/* Reads torch's thread-local stacks of modes (modes.h) through its C++ functions, in a few nanoseconds each. */
#include "py/compat/heap.h"
#include "py/aten/modes.h"

#include "py/aten/tensor_priv.h"

#include <stdint.h>
#include <string.h>

static struct {
    int64_t (*count_functions)(void); /* torch-function modes */
    bool (*any_dispatch)(bool skip_infra);
    int8_t (*disabled)(void);         /* 0: classes of tensors are asked (__torch_function__) */
    void *const *(*tracing)(void);    /* the state of torch.jit.trace: a shared_ptr */
    PyObject *function_at;            /* torch._C._get_function_stack_at */
} modes;

kin_status
kin_modes_init(PyObject *torch_module, void *torch_cpu, void *c10)
{
    PyObject *c = PyObject_GetAttrString(torch_module, "_C");
    PyObject *at = c ? PyObject_GetAttrString(c, "_get_function_stack_at") : NULL;
    Py_XDECREF(c);
    if (at == NULL)
        return KIN_PYERR;
    Py_XSETREF(modes.function_at, at);
    if (!kin_aten_symbol(torch_cpu, "_ZN2at4impl22PythonTorchFunctionTLS9stack_lenEv", &modes.count_functions) ||
        !kin_aten_symbol(torch_cpu, "_ZN2at4impl22PythonTorchFunctionTLS18get_disabled_stateEv", &modes.disabled) ||
        !kin_aten_symbol(torch_cpu, "_ZN5torch3jit6tracer15getTracingStateEv", &modes.tracing) ||
        !kin_aten_symbol(c10, "_ZN3c104impl20TorchDispatchModeTLS13any_modes_setEb", &modes.any_dispatch)) {
        PyErr_SetString(PyExc_RuntimeError, "kintsugi cannot use this build of torch: its stacks of modes are not found");
        return KIN_PYERR;
    }
    return KIN_OK;
}

/* The mode of default devices, and the recorder's own crosscheck. */
static bool
is_harmless(PyObject *mode)
{
    static const char *const names[][2] = {{"DeviceContext", "torch.utils._device"}, {"Crosscheck", "kintsugi._kintsugi"}};
    PyTypeObject *type = Py_TYPE(mode);
    const char *dot = strrchr(type->tp_name, '.'), *name = dot ? dot + 1 : type->tp_name;
    PyObject *module = PyDict_GetItemString(kin_type_dict(type), "__module__"); /* borrowed */
    for (int i = 0; i < 2; i++)
        if (strcmp(name, names[i][0]) == 0 && module != NULL && PyUnicode_Check(module) &&
            PyUnicode_CompareWithASCIIString(module, names[i][1]) == 0)
            return true;
    return false;
}

static bool
any_function_mode(int64_t count)
{
    bool found = false;
    PyObject *type, *error, *traceback;
    PyErr_Fetch(&type, &error, &traceback);
    for (int64_t i = 0; i < count && !found; i++) {
        PyObject *number = PyLong_FromLongLong(i);
        PyObject *mode = number ? PyObject_CallOneArg(modes.function_at, number) : NULL;
        found = mode == NULL || !is_harmless(mode);
        Py_XDECREF(mode);
        Py_XDECREF(number);
    }
    PyErr_Clear();
    PyErr_Restore(type, error, traceback);
    return found;
}

bool
kin_foreign_modes(void)
{
    if (modes.any_dispatch == NULL)
        return false;
    if (modes.any_dispatch(false) || *modes.tracing() != NULL)
        return true;
    int64_t count = modes.count_functions();
    return count > 0 && any_function_mode(count);
}

bool
kin_overrides_off(void)
{
    return modes.disabled != NULL && modes.disabled() != 0;
}

/* -- off for a while ----------------------------------------------------------------------------------------------------- */

bool
kin_modes_on(PyObject *off)
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

static bool
enter(PyObject *stack, const char *module_name, const char *name)
{
    PyObject *module = PyImport_ImportModule(module_name), *context = module ? PyObject_CallMethod(module, name, NULL) : NULL;
    PyObject *entered = context ? PyObject_CallMethod(stack, "enter_context", "O", context) : NULL;
    Py_XDECREF(module);
    Py_XDECREF(context);
    Py_XDECREF(entered);
    return entered != NULL;
}

/* What `name` of the module answers: whether that is true, -1 with an exception. */
static int
ask(const char *module_name, const char *name)
{
    PyObject *module = PyImport_ImportModule(module_name), *answer = module ? PyObject_CallMethod(module, name, NULL) : NULL;
    int any = answer ? PyObject_IsTrue(answer) : -1;
    Py_XDECREF(module);
    Py_XDECREF(answer);
    return any;
}

/* What in the program sees tensors being made (a mode), or makes them other ones (grad and jvp of torch.func wrap them), and how to be without it. */
static const struct {
    const char *count[2], *off[2];
} around[] = {{{"torch._C", "_len_torch_dispatch_stack"}, {"torch.utils._python_dispatch", "_disable_current_modes"}},
              {{"torch._ops", "_len_torch_dispatch_stack_pre_dispatch"}, {"torch.utils._python_dispatch", "_disable_current_modes"}},
              {{"torch._C._functorch", "peek_interpreter_stack"}, {"torch._functorch.pyfunctorch", "temporarily_clear_interpreter_stack"}}};

/* PyTorch's functions import modules (3 ms of the first call), so they are only called where there is something to turn off. */
PyObject *
kin_modes_off(void)
{
    PyObject *module = PyImport_ImportModule("contextlib"), *stack = module ? PyObject_CallMethod(module, "ExitStack", NULL) : NULL;
    Py_XDECREF(module);
    bool ok = stack != NULL && enter(stack, "torch._C", "DisableTorchFunction");
    for (size_t i = 0; ok && i < sizeof(around) / sizeof(around[0]); i++) {
        int any = ask(around[i].count[0], around[i].count[1]);
        ok = any >= 0 && (!any || enter(stack, around[i].off[0], around[i].off[1]));
    }
    if (ok || stack == NULL)
        return stack;
    (void)kin_modes_on(stack);
    return NULL;
}

bool
kin_undisturbed(void)
{
    PyObject *type, *error, *traceback;
    PyErr_Fetch(&type, &error, &traceback);
    bool alone = !kin_foreign_modes() && ask(around[2].count[0], around[2].count[1]) == 0;
    PyErr_Clear();
    PyErr_Restore(type, error, traceback);
    return alone;
}

/* -- torch.fx.symbolic_trace --------------------------------------------------------------------------------------------- */

/* An attribute of a module that is imported already: borrowed; NULL, without an exception: there is none. The two names are interned once, in `names`. */
static PyObject *
look_up(PyObject *names[2], const char *module, const char *attribute)
{
    if ((names[0] == NULL && (names[0] = PyUnicode_InternFromString(module)) == NULL) || (names[1] == NULL && (names[1] = PyUnicode_InternFromString(attribute)) == NULL)) {
        PyErr_Clear();
        return NULL;
    }
    PyObject *found = PyDict_GetItem(PyImport_GetModuleDict(), names[0]);
    return found != NULL && PyModule_Check(found) ? PyDict_GetItem(PyModule_GetDict(found), names[1]) : NULL;
}

bool
kin_symbolic_active(void)
{
    static PyObject *names[2], *local_names[2];
    static const char module[] = "torch.fx._symbolic_trace";
    PyObject *local = look_up(local_names, module, "_is_fx_tracing_tls"); /* since torch 2.14; a flag of the module before */
    if (local == NULL)
        return look_up(names, module, "_is_fx_tracing_flag") == Py_True;
    PyObject *flag = PyObject_GetAttrString(local, "flag");
    bool active = flag == Py_True;
    Py_XDECREF(flag);
    PyErr_Clear(); /* in a thread that has never traced there is none */
    return active;
}

bool
kin_symbolic_given(PyObject *const *args, Py_ssize_t n)
{
    static PyObject *names[2];
    PyObject *proxy = look_up(names, "torch.fx.proxy", "Proxy");
    for (Py_ssize_t i = 0; proxy != NULL && PyType_Check(proxy) && i < n; i++)
        if (PyType_IsSubtype(Py_TYPE(args[i]), (PyTypeObject *)proxy))
            return true;
    return false;
}

int
kin_symbolic_refuse(void)
{
    PyObject *config = PyDict_GetItemString(PyImport_GetModuleDict(), "torch._dynamo.config");
    PyObject *refuses = config == NULL ? NULL : PyObject_GetAttrString(config, "error_on_nested_fx_trace"); /* older versions of torch do not have it */
    bool allowed = refuses == Py_False;
    Py_XDECREF(refuses);
    PyErr_Clear();
    if (allowed)
        return 0;
    PyErr_SetString(PyExc_RuntimeError, "Detected that you are using FX to symbolically trace a dynamo-optimized function. This is not supported at the moment. "
                                        "Trace the function itself, before it is compiled: with torch.compile(fn), torch.fx.symbolic_trace(fn).");
    return -1;
}
