/* The extension module kintsugi._kintsugi: state, types, options, and the functions that reports need. Multi-phase
 * initialisation; no Python object is static.
 */
#include <Python.h>

#include <stddef.h>
#include <string.h>

#include "core/diag/breaks.h"
#include "core/tier/tier.h"
#include "py/compat/codes.h"
#include "py/compat/layout_check.h"
#include "py/compat/signals.h"
#include "py/aten/block.h"
#include "py/backend/inputs.h"
#include "py/guardeval/guard.h"
#include "py/launch/launch.h"
#include "py/optim/optim.h"
#include "py/run/settings.h"
#include "py/module/compiled.h"
#include "py/module/doctor.h"
#include "py/module/dispatch.h"
#include "py/report/dump.h"
#include "py/report/log.h"
#include "py/state/state.h"
#include "py/training/training.h"
#include "py/driver/record.h"
#include "py/recorder/callables.h"
#include "py/replay/replay.h"
#include "py/watch/watch.h"

enum { EVENTS_KEPT = 8192 };

static kin_state *
state_of(PyObject *module)
{
    return PyModule_GetState(module);
}

/* -- options ----------------------------------------------------------------------------------------------- */

typedef enum { OPTION_COUNT, OPTION_FLAG, OPTION_CLASS, OPTION_HOOK } option_kind;

static const struct {
    const char *name;
    option_kind kind;
    size_t offset;
} option_rows[] = {
    {"recompile_limit", OPTION_COUNT, offsetof(kin_options, recompile_limit)},
    {"side_trace_limit", OPTION_COUNT, offsetof(kin_options, side_trace_limit)},
    {"exit_limit", OPTION_COUNT, offsetof(kin_options, exit_limit)},
    {"trace_limit", OPTION_COUNT, offsetof(kin_options, trace_limit)},
    {"failure_limit", OPTION_COUNT, offsetof(kin_options, failure_limit)},
    {"strict_breaks", OPTION_FLAG, offsetof(kin_options, strict_breaks)},
    {"crosscheck", OPTION_FLAG, offsetof(kin_options, crosscheck)},
    {"step_aside", OPTION_FLAG, offsetof(kin_options, step_aside)},
    {"disable", OPTION_FLAG, offsetof(kin_options, disable)},
    {"trials", OPTION_COUNT, offsetof(kin_options, trials)},
    {"validate", OPTION_COUNT, offsetof(kin_options, validate)},
    {"validate_every", OPTION_COUNT, offsetof(kin_options, validate_every)},
    {"kernels", OPTION_FLAG, offsetof(kin_options, kernels)},
    {"async_compile", OPTION_FLAG, offsetof(kin_options, async_compile)},
    {"async_sizes", OPTION_FLAG, offsetof(kin_options, async_sizes)},
    {"fast_math", OPTION_FLAG, offsetof(kin_options, fast_math)},
    {"open_sizes", OPTION_FLAG, offsetof(kin_options, open_sizes)},
    {"threads", OPTION_COUNT, offsetof(kin_options, threads)},
    {"freezing", OPTION_FLAG, offsetof(kin_options, freezing)},
    {"training", OPTION_FLAG, offsetof(kin_options, training)},
    {"error_class", OPTION_CLASS, offsetof(kin_options, error_class)},
    {"miss_hook", OPTION_HOOK, offsetof(kin_options, miss_hook)},
    {"record_hook", OPTION_HOOK, offsetof(kin_options, record_hook)},
};
enum { NOPTIONS = sizeof option_rows / sizeof *option_rows };

static int
store_option(char *at, option_kind kind, PyObject *value)
{
    if (kind == OPTION_COUNT) {
        long long count = PyLong_AsLongLong(value);
        if (count == -1 && PyErr_Occurred())
            return -1;
        if (count < 0 || count > INT32_MAX) {
            PyErr_SetString(PyExc_ValueError, "a limit is a number from 0 to 2147483647");
            return -1;
        }
        *(uint32_t *)(void *)at = (uint32_t)count;
    } else if (kind == OPTION_FLAG) {
        int truth = PyObject_IsTrue(value);
        if (truth < 0)
            return -1;
        *(bool *)at = truth;
    } else if (kind == OPTION_HOOK) {
        Py_XSETREF(*(PyObject **)(void *)at, value == Py_None ? NULL : Py_NewRef(value));
    } else {
        if (!PyExceptionClass_Check(value)) {
            PyErr_SetString(PyExc_TypeError, "error_class is a subclass of BaseException");
            return -1;
        }
        Py_XSETREF(*(PyObject **)(void *)at, Py_NewRef(value));
    }
    return 0;
}

static PyObject *
set_option(PyObject *module, PyObject *args)
{
    const char *name;
    PyObject *value;
    if (!PyArg_ParseTuple(args, "sO:set_option", &name, &value))
        return NULL;
    for (int i = 0; i < NOPTIONS; i++)
        if (strcmp(option_rows[i].name, name) == 0) {
            char *at = (char *)&state_of(module)->options + option_rows[i].offset;
            if (store_option(at, option_rows[i].kind, value) < 0)
                return NULL;
            Py_RETURN_NONE;
        }
    return PyErr_Format(PyExc_KeyError, "no option named '%s'", name);
}

static PyObject *
load_option(const char *at, option_kind kind)
{
    PyObject *object;
    switch (kind) {
    case OPTION_COUNT:
        return PyLong_FromUnsignedLong(*(const uint32_t *)(const void *)at);
    case OPTION_FLAG:
        return PyBool_FromLong(*(const bool *)at);
    case OPTION_CLASS:
    case OPTION_HOOK:
        break;
    }
    object = *(PyObject *const *)(const void *)at;
    if (object == NULL)
        object = kind == OPTION_CLASS ? PyExc_RuntimeError : Py_None;
    return Py_NewRef(object);
}

static PyObject *
get_options(PyObject *module, PyObject *unused)
{
    PyObject *dict = PyDict_New();
    for (int i = 0; dict != NULL && i < NOPTIONS; i++) {
        PyObject *value = load_option((const char *)&state_of(module)->options + option_rows[i].offset,
                                      option_rows[i].kind);
        if (value == NULL || PyDict_SetItemString(dict, option_rows[i].name, value) < 0)
            Py_CLEAR(dict);
        Py_XDECREF(value);
    }
    return dict;
}

/* -- reports ----------------------------------------------------------------------------------------------- */

static PyObject *
stats(PyObject *module, PyObject *unused)
{
    PyObject *all = kin_compiled_all(state_of(module));
    for (Py_ssize_t i = 0; all != NULL && i < PyList_GET_SIZE(all); i++) {
        PyObject *one = kin_compiled_stats((kin_compiled *)PyList_GET_ITEM(all, i));
        if (one == NULL)
            Py_CLEAR(all);
        else
            PyList_SetItem(all, i, one);
    }
    return all;
}

static PyObject *
reset(PyObject *module, PyObject *unused)
{
    kin_state *st = state_of(module);
    PyObject *all = kin_compiled_all(st);
    if (all == NULL)
        return NULL;
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(all); i++) {
        kin_compiled *self = (kin_compiled *)PyList_GET_ITEM(all, i);
        kin_cache_clear(&self->cache);
        memset(&self->count, 0, sizeof self->count);
    }
    Py_DECREF(all);
    st->aten_failed = false;
    if (kin_process_blocks() != NULL)
        kin_blocks_clear(kin_process_blocks());
    kin_log_reset(st);
    kin_launch_forget_costs();
    Py_RETURN_NONE;
}

static PyObject *
is_recording(PyObject *module, PyObject *unused)
{
    return PyBool_FromLong(kin_record_active());
}

static PyObject *
force_exit(PyObject *module, PyObject *step)
{
    if (step == Py_None) {
        kin_replay_force_exit = UINT32_MAX;
        Py_RETURN_NONE;
    }
    long long k = PyLong_AsLongLong(step);
    if (k == -1 && PyErr_Occurred())
        return NULL;
    kin_replay_force_exit = k < 0 || k > UINT32_MAX ? UINT32_MAX : (uint32_t)k;
    Py_RETURN_NONE;
}

static PyObject *
events(PyObject *module, PyObject *unused)
{
    kin_state *st = state_of(module);
    PyObject *json = PyImport_ImportModule("json"), *list = PyList_New(0);
    char *line = NULL;
    while (json != NULL && list != NULL && (line = kin_event_take(st->log)) != NULL) {
        PyObject *event = PyObject_CallMethod(json, "loads", "s", line);
        free(line);
        if (event == NULL || PyList_Append(list, event) < 0)
            Py_CLEAR(list);
        Py_XDECREF(event);
    }
    if (json == NULL)
        Py_CLEAR(list);
    Py_XDECREF(json);
    return list;
}

static PyObject *
log_file(PyObject *module, PyObject *path)
{
    PyObject *bytes = NULL;
    if (path != Py_None && !PyUnicode_FSConverter(path, &bytes))
        return NULL;
    const char *name = bytes == NULL ? NULL : PyBytes_AS_STRING(bytes);
    bool opened = kin_event_log_open(state_of(module)->log, name);
    Py_XDECREF(bytes);
    if (!opened && path != Py_None)
        return PyErr_Format(PyExc_OSError, "cannot write events to %R", path);
    Py_RETURN_NONE;
}

static PyObject *
time_guards(PyObject *module, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"compiled", "args", "n", "kwargs", NULL};
    PyObject *compiled, *call_args, *call_kwargs = NULL;
    Py_ssize_t count = 1000;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!O!|nO!:time_guards", names, state_of(module)->compiled_type,
                                     &compiled, &PyTuple_Type, &call_args, &count, &PyDict_Type, &call_kwargs))
        return NULL;
    double ns = kin_dispatch_time_guards((kin_compiled *)compiled, call_args, call_kwargs, count);
    return PyErr_Occurred() ? NULL : PyFloat_FromDouble(ns);
}

static PyObject *
log_fallback(PyObject *module, PyObject *args)
{
    PyObject *name;
    const char *reason, *row = "";
    if (!PyArg_ParseTuple(args, "Us|s:_log_fallback", &name, &reason, &row))
        return NULL;
    kin_log_fallback(state_of(module), name, NULL, reason, kin_break_by_name(row));
    Py_RETURN_NONE;
}

static PyObject *
log_exact_size(PyObject *module, PyObject *args)
{
    PyObject *name;
    const char *source, *filename, *text;
    unsigned entry;
    long long size;
    int line;
    if (!PyArg_ParseTuple(args, "UIsLzis:_log_exact_size", &name, &entry, &source, &size, &filename, &line, &text))
        return NULL;
    kin_log_exact_size(state_of(module), name, entry, source, size, filename, line, text);
    Py_RETURN_NONE;
}

static PyObject *
log_lower(PyObject *module, PyObject *args)
{
    PyObject *name;
    unsigned entry, graph;
    const char *backend;
    double time_ns;
    if (!PyArg_ParseTuple(args, "UIIsd:_log_lower", &name, &entry, &graph, &backend, &time_ns))
        return NULL;
    kin_log_lower(state_of(module), name, entry, graph, backend, time_ns);
    Py_RETURN_NONE;
}

static PyObject *
settings_readers(PyObject *module, PyObject *unused)
{
    return rec_callable_settings();
}

static PyObject *
computes(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *callable;
    int in_graphs;
    if (!PyArg_ParseTuple(args, "Op:_computes", &callable, &in_graphs))
        return NULL;
    unsigned wanted = KIN_KNOWS_IN_GRAPHS | (in_graphs ? 0u : KIN_KNOWS_COMPUTES | KIN_KNOWS_LAZY);
    return PyBool_FromLong(rec_callable_knows(callable, wanted));
}

static PyObject *
operations(PyObject *Py_UNUSED(module), PyObject *code)
{
    return PyCode_Check(code) ? rec_code_operations((PyCodeObject *)code) : PyErr_Format(PyExc_TypeError, "_operations() takes a code object");
}

static PyObject *
run_held(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t nargs)
{
    if (nargs == 0)
        return PyErr_Format(PyExc_TypeError, "_run_held() takes a function");
    bool held = kin_signals_hold();
    PyObject *value = PyObject_Vectorcall(args[0], args + 1, (size_t)nargs - 1, NULL);
    if (held)
        kin_signals_release();
    return value;
}

static PyObject *
run_admitted(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t nargs)
{
    bool admitted = kin_signals_admit();
    PyObject *value = nargs > 0 ? PyObject_Vectorcall(args[0], args + 1, (size_t)nargs - 1, NULL) : PyErr_CheckSignals() < 0 ? NULL : Py_NewRef(Py_None);
    if (admitted)
        kin_signals_hold();
    return value;
}

static PyObject *
describe_inputs(PyObject *module, PyObject *inputs)
{
    if (!PyTuple_Check(inputs))
        return PyErr_Format(PyExc_TypeError, "_describe_inputs(%R): expected a tuple", inputs);
    PyObject *records = kin_inputs_describe(&PyTuple_GET_ITEM(inputs, 0), PyTuple_GET_SIZE(inputs));
    if (records != NULL || PyErr_Occurred())
        return records;
    Py_RETURN_NONE;
}

static PyObject *
inputs_fit(PyObject *module, PyObject *const *args, Py_ssize_t n)
{
    if (n != 3 || !PyTuple_Check(args[0]) || !PyTuple_Check(args[1]) || !PyBytes_Check(args[2]) ||
        PyTuple_GET_SIZE(args[0]) != PyTuple_GET_SIZE(args[1]) || PyBytes_GET_SIZE(args[2]) != 8 * PyTuple_GET_SIZE(args[0])) {
        PyErr_SetString(PyExc_TypeError, "_inputs_fit(inputs, records, addresses): expected two tuples of one length and eight bytes for each");
        return NULL;
    }
    return PyBool_FromLong(kin_inputs_fit(&PyTuple_GET_ITEM(args[0], 0), PyTuple_GET_SIZE(args[0]), args[1], PyBytes_AS_STRING(args[2])));
}

/* For tests: what dispatch would bind; None when it leaves the call to CPython. */
static PyObject *
bind(PyObject *module, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    kin_bind_plan *plan = NULL;
    PyObject *list = NULL;
    if (nargs < 1 || !PyFunction_Check(args[0])) {
        PyErr_SetString(PyExc_TypeError, "_bind(function, ...)");
        return NULL;
    }
    kin_bind_call call = {.func = (PyFunctionObject *)args[0], .args = args + 1, .nargs = nargs - 1,
                          .kwnames = kwnames};
    kin_status status = kin_bind_plan_make((PyCodeObject *)call.func->func_code, call.nargs, kwnames, &plan);
    if (status == KIN_NOMEM)
        return PyErr_NoMemory();
    if (status != KIN_OK || !kin_bind_fits(plan, &call)) {
        kin_bind_plan_free(plan);
        Py_RETURN_NONE;
    }
    list = PyList_New(0);
    for (uint32_t i = 0; list != NULL && i < kin_bind_count(plan); i++) {
        PyObject *value = kin_bind_value(plan, &call, i);
        if (value == NULL || PyList_Append(list, value) < 0)
            Py_CLEAR(list);
        Py_XDECREF(value);
    }
    kin_bind_plan_free(plan);
    return list;
}

static PyObject *
rebuild(PyObject *module, PyObject *args)
{
    PyObject *fn, *kwargs;
    if (!PyArg_ParseTuple(args, "OO!:_rebuild", &fn, &PyDict_Type, &kwargs))
        return NULL;
    return kin_compiled_rebuild(fn, kwargs);
}

/* -- kernels of the whole process -------------------------------------------------------------------------- */

static PyObject *
set_cache(PyObject *module, PyObject *args)
{
    PyObject *path, *bytes = NULL;
    unsigned long long limit;
    if (!PyArg_ParseTuple(args, "OK:_set_cache", &path, &limit))
        return NULL;
    if (path != Py_None && !PyUnicode_FSConverter(path, &bytes))
        return NULL;
    bool ok = kin_launch_set_cache(bytes == NULL ? NULL : PyBytes_AS_STRING(bytes), limit);
    Py_XDECREF(bytes);
    if (!ok)
        return PyErr_NoMemory();
    Py_RETURN_NONE;
}

static PyObject *
set_threads(PyObject *module, PyObject *number)
{
    unsigned long threads = PyLong_AsUnsignedLong(number);
    if (PyErr_Occurred())
        return NULL;
    kin_launch_set_threads(threads < 1024 ? (uint32_t)threads : 1024);
    Py_RETURN_NONE;
}

static PyObject *
set_weights_room(PyObject *module, PyObject *number)
{
    unsigned long percent = PyLong_AsUnsignedLong(number);
    if (PyErr_Occurred())
        return NULL;
    kin_launch_set_weights_room(percent < 100 ? (uint32_t)percent : 100);
    Py_RETURN_NONE;
}

static PyObject *
checkpointed(PyObject *module, PyObject *args)
{
    PyObject *function, *given, *how;
    if (!PyArg_ParseTuple(args, "OO!O:_checkpointed", &function, &PyTuple_Type, &given, &how))
        return NULL;
    return launch_region_call(function, given, how);
}

static PyObject *
optimizer_totals(PyObject *module, PyObject *unused)
{
    return kin_optim_totals();
}

static PyObject *
kernel_totals(PyObject *module, PyObject *unused)
{
    return kin_launch_totals();
}

static PyObject *
doctor(PyObject *module, PyObject *unused)
{
    return kin_doctor_facts(kin_watch_foreign_tool(PyThreadState_Get()));
}

static PyObject *
set_products(PyObject *module, PyObject *own)
{
    return PyBool_FromLong(kin_launch_set_products(own == Py_None ? -1 : PyObject_IsTrue(own) == 1));
}

static PyObject *
set_profile(PyObject *module, PyObject *on)
{
    kin_launch_set_profile(PyObject_IsTrue(on) == 1);
    Py_RETURN_NONE;
}

static PyObject *
memory_totals(PyObject *module, PyObject *unused)
{
    return kin_launch_memory();
}

static PyObject *
wait_for_kernels(PyObject *module, PyObject *unused)
{
    Py_BEGIN_ALLOW_THREADS
    kin_launch_wait();
    Py_END_ALLOW_THREADS
    Py_RETURN_NONE;
}

static PyObject *
set_kept_memory(PyObject *module, PyObject *number)
{
    unsigned long long bytes = PyLong_AsUnsignedLongLong(number);
    if (PyErr_Occurred())
        return NULL;
    if (kin_process_blocks() != NULL)
        kin_blocks_set_limit(kin_process_blocks(), (size_t)bytes);
    Py_RETURN_NONE;
}

static PyObject *
set_listing(PyObject *module, PyObject *number)
{
    long wanted = PyLong_AsLong(number);
    if (wanted == -1 && PyErr_Occurred())
        return NULL;
    kin_launch_set_listing((int)wanted);
    Py_RETURN_NONE;
}

static PyObject *
set_fault(PyObject *module, PyObject *name)
{
    const char *text = PyUnicode_AsUTF8(name);
    if (text == NULL)
        return NULL;
    return PyBool_FromLong(kin_launch_set_fault(text));
}

#ifdef KIN_FAULTS
static PyObject *
fail(PyObject *module, PyObject *args)
{
    unsigned what;
    unsigned long long n;
    int all = 0;
    if (!PyArg_ParseTuple(args, "IK|p:_fail", &what, &n, &all))
        return NULL;
    if (what >= KIN_FAIL__COUNT) {
        PyErr_SetString(PyExc_ValueError, "0: allocations, 1: calls of LLVM, 2: writes to disk");
        return NULL;
    }
    bool failed = kin_fail_disarm((kin_fail)what);
    if (n > 0)
        kin_fail_arm((kin_fail)what, n, all);
    return PyBool_FromLong(failed);
}
#endif

static PyMethodDef module_methods[] = {
#ifdef KIN_FAULTS
    {"_fail", fail, METH_VARARGS, "_fail(what, n, all=False): the n-th from now on fails (0: none), and all after it; did one fail since the last call?"},
#endif
    {"set_option", set_option, METH_VARARGS, "set_option(name, value): see options() for the names."},
    {"options", get_options, METH_NOARGS, "All options as a dict."},
    {"stats", stats, METH_NOARGS, "The stats() of every live compiled function."},
    {"reset", reset, METH_NOARGS, "Drops all entries and counters of all compiled functions."},
    {"is_recording", is_recording, METH_NOARGS, "Is a recording in progress?"},
    {"force_exit", force_exit, METH_O, "For tests: leave before executed step k of each replay; None = never."},
    {"events", events, METH_NOARGS, "The events since the last call, as dicts, oldest first."},
    {"log_file", log_file, METH_O, "Also appends events to this file as JSON lines; None closes it."},
    {"time_guards", (PyCFunction)(void (*)(void))time_guards, METH_VARARGS | METH_KEYWORDS,
     "time_guards(compiled, args, n=1000, kwargs=None): nanoseconds per guard evaluation of the entry that fits."},
    {"_bind", (PyCFunction)(void (*)(void))bind, METH_FASTCALL | METH_KEYWORDS,
     "For tests: _bind(function, ...) lists its parameters as a call binds them; None = CPython refuses."},
    {"_describe_inputs", describe_inputs, METH_O, "_describe_inputs(inputs): a record of each, or None: one is no plain strided tensor"},
    {"_inputs_fit", (PyCFunction)(void (*)(void))inputs_fit, METH_FASTCALL,
     "_inputs_fit(inputs, records, addresses): are they of these kinds, and where an address is not 0, there?"},
    {"_computes", computes, METH_VARARGS, "_computes(callable, in_graphs): does callables.def say that a call of it changes nothing, or that it may be in graphs?"},
    {"_operations", operations, METH_O, "_operations(code): what it does in canonical operations (canon.def), with the names they use."},
    {"_settings_readers", settings_readers, METH_NOARGS, "Names of torch._C's functions that read a setting and change nothing."},
    {"_run_held", (PyCFunction)(void (*)(void))run_held, METH_FASTCALL, "_run_held(fn, *args): handlers of signals wait, so that no exception of theirs is taken for ours."},
    {"_run_admitted", (PyCFunction)(void (*)(void))run_admitted, METH_FASTCALL, "_run_admitted(fn, *args): fn is the program's; handlers of signals that wait may run. Without fn: they run now."},
    {"_log_fallback", log_fallback, METH_VARARGS, "_log_fallback(name, reason, row='')"},
    {"_log_exact_size", log_exact_size, METH_VARARGS, "_log_exact_size(name, entry, source, size, filename or None, line, text)"},
    {"_log_lower", log_lower, METH_VARARGS, "_log_lower(name, entry, graph, backend, time_ns)"},
    {"_set_cache", set_cache, METH_VARARGS, "_set_cache(folder or None, limit in bytes, 0 = none)"},
    {"_set_compile_threads", set_threads, METH_O, "How many threads compile kernels; 0: as many as torch uses."},
    {"_set_listing", set_listing, METH_O, "Whether kernels() gives code as text from now on: 0, 1, 2 with LLVM's."},
    {"_set_fault", set_fault, METH_O, "For tests: 'llvm', 'memory', 'fatal' or 'llvm memory' fails from now on; '' nothing."},
    {"memory_totals", memory_totals, METH_NOARGS, "Large blocks of memory: kept for the next call, in use."},
    {"_set_kept_memory", set_kept_memory, METH_O, "Bytes of large blocks that may be kept."},
    {"_set_weights_room", set_weights_room, METH_O, "Percent of the free memory for what is kept of weights."},
    {"_set_products", set_products, METH_O, "For tests: products through BLAS (False), in own code (True), or as measured (None). Returns whether they are in own code now."},
    {"set_profile", set_profile, METH_O, "set_profile(flag): whether kernels() tells where the time of launches goes."},
    {"_checkpointed", checkpointed, METH_VARARGS,
     "_checkpointed(function, args, how): (function(*args), graphs that can be done again, others, nodes that will be), for kintsugi._checkpoint."},
    {"optimizer_totals", optimizer_totals, METH_NOARGS, "How many steps of optimizers were one pass over their tensors, and why the last that was not was not."},
    {"wait_for_kernels", wait_for_kernels, METH_NOARGS, "Waits until nothing is compiled in the background any more."},
    {"kernel_totals", kernel_totals, METH_NOARGS, "What was compiled in this process, and where kernels came from."},
    {"_doctor", doctor, METH_NOARGS, "Which parts of the engine work here, as a dict; torch has been imported."},
    {"_rebuild", rebuild, METH_VARARGS, "For pickle: kintsugi.compile(fn, **kwargs)."},
    {NULL, NULL, 0, NULL},
};

/* -- the module -------------------------------------------------------------------------------------------- */

static int
add_type(PyObject *module, PyType_Spec *spec, PyTypeObject **out)
{
    *out = (PyTypeObject *)PyType_FromModuleAndSpec(module, spec, NULL);
    return *out == NULL ? -1 : PyModule_AddType(module, *out);
}

static void
log_optimizer(void *arg, const char *class_name, const char *why)
{
    char reason[200];
    PyObject *name = PyUnicode_FromFormat("%s.step", class_name);
    snprintf(reason, sizeof reason, "a step of an optimizer is the library's: %s", why);
    if (name != NULL)
        kin_log_fallback(arg, name, NULL, reason, KIN_WHY_NONE);
    Py_XDECREF(name);
    PyErr_Clear();
}

static int
exec_module(PyObject *module)
{
    if (!kin_layout_check())
        return -1;
    kin_state *st = state_of(module);
    st->options = (kin_options){.recompile_limit = KIN_TIER_RECOMPILE_LIMIT,
                                .side_trace_limit = KIN_TIER_SIDE_TRACE_LIMIT, .exit_limit = KIN_TIER_EXIT_LIMIT,
                                .failure_limit = KIN_TIER_FAILURE_LIMIT, .trials = KIN_TIER_TRIALS,
                                .trace_limit = KIN_TIER_TRACE_LIMIT};
    st->next_entry = 1;
    st->log = kin_event_log_new(EVENTS_KEPT);
    st->str_call = PyUnicode_InternFromString("__call__");
    if (st->str_call == NULL || add_type(module, kin_compiled_type_spec(), &st->compiled_type) < 0 ||
        add_type(module, kin_entry_type_spec(), &st->entry_type) < 0)
        return -1;
    kin_guard_set_compiled(st->compiled_type, offsetof(kin_compiled, fn));
    kin_optim_listen(log_optimizer, st);
    return PyModule_AddFunctions(module, kin_dump_methods);
}

static int
traverse_module(PyObject *module, visitproc visit, void *arg)
{
    kin_state *st = state_of(module);
    Py_VISIT(st->compiled_type);
    Py_VISIT(st->entry_type);
    Py_VISIT(st->options.error_class);
    Py_VISIT(st->options.miss_hook);
    Py_VISIT(st->options.record_hook);
    Py_VISIT(st->recorded);
    return 0;
}

static int
clear_module(PyObject *module)
{
    kin_state *st = state_of(module);
    Py_CLEAR(st->options.error_class);
    Py_CLEAR(st->options.miss_hook);
    Py_CLEAR(st->options.record_hook);
    Py_CLEAR(st->recorded);
    return 0;
}

/* At the end of the process the module may go before compiled functions do: these run eagerly from now on. */
static void
free_module(void *module)
{
    kin_state *st = state_of(module);
    kin_optim_listen(NULL, NULL);
    kin_compiled_forget_state(st);
    Py_CLEAR(st->options.error_class);
    Py_CLEAR(st->options.miss_hook);
    Py_CLEAR(st->options.record_hook);
    Py_CLEAR(st->recorded);
    Py_CLEAR(st->compiled_type);
    Py_CLEAR(st->entry_type);
    Py_CLEAR(st->str_call);
    kin_event_log_free(st->log);
    st->log = NULL;
}

static PyModuleDef_Slot module_slots[] = {
    {Py_mod_exec, exec_module},
    {0, NULL},
};

static struct PyModuleDef module_def = {
    PyModuleDef_HEAD_INIT,
    .m_name = "kintsugi._kintsugi",
    .m_doc = "The engine: records calls, replays them under guards.",
    .m_size = sizeof(kin_state),
    .m_methods = module_methods,
    .m_slots = module_slots,
    .m_traverse = traverse_module,
    .m_clear = clear_module,
    .m_free = free_module,
};

PyMODINIT_FUNC PyInit__kintsugi(void);

PyMODINIT_FUNC
PyInit__kintsugi(void)
{
    if (!kin_layout_is_this_version()) /* before anything of it is used */
        return NULL;
    return PyModuleDef_Init(&module_def);
}
