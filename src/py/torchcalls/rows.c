/* Which row of breaks.def a call belongs to that stays an executed step, and whether reports show it as an effect. The
 * answers change what is told and where graphs end, never what the program computes.
 */
#include "py/recorder/callables.h"
#include "core/diag/breaks.h"
#include "py/torchcalls/skip.h"
#include "py/torchcalls/torchcalls.h"

static bool
starts_with(const char *text, const char *prefix)
{
    return strncmp(text, prefix, strlen(prefix)) == 0;
}

/* Where a callable comes from: the module of a function, the class of a method or of a type. "" = not known. */
static const char *
home_of(PyObject *obj)
{
    PyObject *name = NULL;
    if (Py_TYPE(obj) == &PyMethodDescr_Type || Py_TYPE(obj) == &PyWrapperDescr_Type)
        return PyDescr_TYPE(obj)->tp_name;
    if (PyType_Check(obj))
        return ((PyTypeObject *)obj)->tp_name;
    if (PyFunction_Check(obj)) {
        name = ((PyFunctionObject *)obj)->func_module;
    } else if (PyCFunction_Check(obj)) {
        PyObject *self = PyCFunction_GET_SELF(obj);
        if (self != NULL && PyType_Check(self))
            return ((PyTypeObject *)self)->tp_name;
        if (self != NULL && !PyModule_Check(self))
            return Py_TYPE(self)->tp_name;
        name = ((PyCFunctionObject *)obj)->m_module;
    }
    const char *text = name != NULL && PyUnicode_Check(name) ? PyUnicode_AsUTF8(name) : "";
    if (text == NULL)
        PyErr_Clear();
    return text ? text : "";
}

static bool
is_builtin(PyObject *obj)
{
    return PyCFunction_Check(obj) && strcmp(home_of(obj), "builtins") == 0;
}

/* -- effects: rows that end a graph under strict_breaks only -------------------------------------------------------- */

static bool
is_file_access(PyObject *obj, const char *name, const char *home)
{
    if (starts_with(home, "_io."))
        return strcmp(home, "_io.StringIO") != 0 && strcmp(home, "_io.BytesIO") != 0;
    if (strcmp(home, "posix") == 0)
        return rec_callable_knows(obj, KIN_KNOWS_ACTS);
    return PyCFunction_Check(obj) && strcmp(name, "open") == 0 && (strcmp(home, "io") == 0 || strcmp(home, "_io") == 0);
}

int
rec_effect_row(PyObject *obj)
{
    static const char *const warns[] = {"warn", "warn_explicit", NULL};
    const char *name = rec_callable_name(obj), *home = home_of(obj);
    if (is_builtin(obj) && strcmp(name, "print") == 0)
        return KIN_ROW_PRINT;
    if (strcmp(home, "warnings") == 0 || (strcmp(home, "_warnings") == 0 && rec_in_list(name, warns)))
        return KIN_ROW_WARNING;
    if (PyFunction_Check(obj) && strcmp(home, "logging") == 0)
        return KIN_ROW_LOGGING;
    if (strcmp(home, "time") == 0 && PyCFunction_Check(obj))
        return KIN_ROW_CLOCK;
    return is_file_access(obj, name, home) ? KIN_ROW_FILE_ACCESS : -1;
}

/* -- rows by what is called, whatever it is handed --------------------------------------------------------------------- */

static bool
looks_at_frames(PyObject *obj, const char *name, uint32_t n)
{
    static const char *const scopes[] = {"locals", "vars", "dir", NULL}, *const heaps[] = {"get_objects",
        "get_referrers", NULL}, *const frames[] = {"_getframe", "_current_frames", "_current_exceptions", NULL};
    const char *home = home_of(obj);
    return (n == 0 && is_builtin(obj) && rec_in_list(name, scopes)) || (strcmp(home, "gc") == 0 && rec_in_list(name, heaps)) ||
           (strcmp(home, "sys") == 0 && rec_in_list(name, frames));
}

static int
row_of_callee(PyObject *obj, const char *name, uint32_t n)
{
    static const char *const codes[] = {"exec", "eval", NULL};
    static const char *const starts[] = {"start_new_thread", "start_new", "start_joinable_thread", NULL};
    if (PyFunction_Check(obj)) {
        int flags = ((PyCodeObject *)((PyFunctionObject *)obj)->func_code)->co_flags;
        return flags & (CO_COROUTINE | CO_ASYNC_GENERATOR) ? KIN_ROW_COROUTINE : -1;
    }
    if (!PyCFunction_Check(obj))
        return -1;
    if (strcmp(name, "__build_class__") == 0)
        return KIN_ROW_CLASS_STATEMENT;
    if (looks_at_frames(obj, name, n))
        return KIN_ROW_FRAME_INSPECTION;
    if (n == 1 && is_builtin(obj) && rec_in_list(name, codes)) /* in the namespaces of the running frame */
        return KIN_ROW_EXEC_EVAL;
    if (strcmp(home_of(obj), "_thread") == 0 && rec_in_list(name, starts))
        return KIN_ROW_THREAD;
    return -1;
}

/* -- rows by what is handed over ----------------------------------------------------------------------------------------- */

/* Generators and coroutines: whoever has them may resume code that nobody watches. */
static int
row_of_suspended(rec *r, PyObject *callee, const char *name, const kin_vid *args, uint32_t n)
{
    if (rec_callable_knows(callee, KIN_KNOWS_NO_RESUME))
        return -1;
    for (uint32_t i = 0; i < n; i++) {
        PyObject *obj = args[i] ? O(r, args[i]) : NULL;
        rec_fresh *f = args[i] ? FRESH(r, args[i]) : NULL;
        if (f != NULL && f->kind == FRESH_GENERATOR && rec_generator_has_tensor(r, args[i]))
            return KIN_ROW_GENERATOR_ESCAPES;
        if (f != NULL || obj == NULL)
            continue;
        if (PyGen_CheckExact(obj) && rec_generator_has_tensor(r, args[i]))
            return KIN_ROW_GENERATOR;
        if (PyCoro_CheckExact(obj) || PyAsyncGen_CheckExact(obj))
            return KIN_ROW_COROUTINE;
    }
    return -1;
}

static int
row_of_type(PyTypeObject *tp)
{
    PyTypeObject *const numbers[] = {&PyLong_Type, &PyFloat_Type, &PyComplex_Type, &PyBool_Type, &PyRange_Type};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (tp == numbers[i])
            return KIN_ROW_TENSOR_TO_NUMBER;
    if (tp == &PyUnicode_Type)
        return KIN_ROW_TENSOR_REPR;
    if (tp == &PyZip_Type || tp == &PyEnum_Type || tp == &PyReversed_Type)
        return -1; /* looks at nothing before it is asked for its items */
    if (starts_with(tp->tp_name, "weakref.") || starts_with(tp->tp_name, "weakproxy"))
        return KIN_ROW_WEAK_REFERENCE;
    bool builtin = !(tp->tp_flags & Py_TPFLAGS_HEAPTYPE) && strchr(tp->tp_name, '.') == NULL;
    return builtin ? KIN_ROW_BUILTIN_CALL : KIN_ROW_OPAQUE_CALLABLE;
}

static int
row_of_function(PyObject *obj, const char *name)
{
    const char *home = home_of(obj);
    if (strcmp(home, "torch._ops") == 0) /* an operator, perhaps one of the user's: it ends no graph */
        return -1;
    if (strcmp(home, "copy") == 0 && strcmp(name, "deepcopy") == 0)
        return KIN_ROW_TENSOR_DEEPCOPY;
    if (strcmp(home, "torch.serialization") == 0 || strcmp(home, "pickle") == 0)
        return KIN_ROW_SERIALIZATION;
    return ((PyCodeObject *)((PyFunctionObject *)obj)->func_code)->co_flags & CO_GENERATOR ? KIN_ROW_GENERATOR
                                                                                        : KIN_ROW_OPAQUE_PYTHON;
}

static int
row_of_c_function(PyObject *obj, const char *name)
{
    static const char *const texts[] = {"repr", "format", "ascii", NULL}, *const codes[] = {"exec", "eval", NULL},
                             *const pickles[] = {"dumps", "dump", NULL}, *const weak[] = {"proxy", NULL};
    const char *home = home_of(obj);
    if (strcmp(home, "_operator") == 0 && strcmp(name, "index") == 0)
        return KIN_ROW_TENSOR_TO_NUMBER;
    if (strcmp(home, "_pickle") == 0 && rec_in_list(name, pickles))
        return KIN_ROW_SERIALIZATION;
    if (strcmp(home, "_weakref") == 0 && rec_in_list(name, weak))
        return KIN_ROW_WEAK_REFERENCE;
    if (!is_builtin(obj))
        return KIN_ROW_OPAQUE_CALL;
    return rec_in_list(name, texts) ? KIN_ROW_TENSOR_REPR : strcmp(name, "sorted") == 0 ? KIN_ROW_SORT_KEYS
         : rec_in_list(name, codes) ? KIN_ROW_EXEC_EVAL : KIN_ROW_BUILTIN_CALL;
}

/* Functions of NumPy are objects of classes of its own. */
static bool
is_of_numpy(PyObject *obj)
{
    return starts_with(Py_TYPE(obj)->tp_name, "numpy.") || starts_with(home_of(obj), "numpy");
}

/* Rows for calls that are handed tensors. */
static int
row_with_tensors(PyObject *obj, const char *name)
{
    if (is_of_numpy(obj))
        return KIN_ROW_TENSOR_NUMPY;
    if (PyType_Check(obj))
        return row_of_type((PyTypeObject *)obj);
    if (PyFunction_Check(obj))
        return row_of_function(obj, name);
    if (PyCFunction_Check(obj))
        return row_of_c_function(obj, name);
    if (Py_TYPE(obj) != &PyMethodDescr_Type && Py_TYPE(obj) != &PyWrapperDescr_Type)
        return KIN_ROW_OPAQUE_CALLABLE;
    return PyDescr_TYPE(obj) == &PyList_Type && strcmp(name, "sort") == 0 ? KIN_ROW_SORT_KEYS : KIN_ROW_OPAQUE_METHOD;
}

/* list.extend(list): moves references, whatever they refer to. */
static bool
only_moves(rec *r, PyObject *obj, const char *name, const kin_vid *args, uint32_t n)
{
    PyObject *from = n == 2 && args[1] ? O(r, args[1]) : NULL;
    return Py_TYPE(obj) == &PyMethodDescr_Type && PyDescr_TYPE(obj) == &PyList_Type && strcmp(name, "extend") == 0 && from != NULL &&
           (PyList_CheckExact(from) || PyTuple_CheckExact(from));
}

/* A context manager made of a generator is entered or left: as with others that are not known, its frames are in place. */
static bool
is_in_contextlib(const rec *r)
{
    PyObject *func = O(r, r->top->func);
    PyObject *name = func != NULL && PyFunction_Check(func) ? PyDict_GetItemWithError(PyFunction_GET_GLOBALS(func), REC_STR("__name__")) : NULL;
    return name != NULL && PyUnicode_Check(name) && PyUnicode_CompareWithASCIIString(name, "contextlib") == 0;
}

int
rec_opaque_row(rec *r, kin_vid callee, const kin_vid *args, uint32_t n)
{
    PyObject *obj = O(r, callee);
    if (obj == NULL)
        return rec_any_tensor(r, args, n) ? KIN_ROW_OPAQUE_CALLABLE : -1;
    const char *name = rec_callable_name(obj);
    int row = rec_effect_row(obj);
    if (row >= 0)
        return r->opt->strict_breaks ? row : -1;
    row = row_of_callee(obj, name, n);
    if (row < 0 && (only_moves(r, obj, name, args, n) || is_in_contextlib(r)))
        return -1;
    if (row < 0)
        row = row_of_suspended(r, obj, name, args, n);
    if (row >= 0)
        return row;
    bool handed = rec_any_tensor(r, args, n) || (FRESH(r, callee) && rec_any_tensor(r, &callee, 1));
    return handed ? row_with_tensors(obj, name) : -1;
}

/* -- what reports call an effect --------------------------------------------------------------------------------------------- */

static bool
any_iterator(rec *r, const kin_vid *args, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        if (args[i] && O(r, args[i]) != NULL && PyIter_Check(O(r, args[i])))
            return true;
    return false;
}

/* Does the call compute or build something and change nothing, but for an iterator that it may use up? So do the interpreter's own classes,
 * and those of the program that make their instances as object does it. */
static bool
only_computes(rec *r, PyObject *obj, const kin_vid *args, uint32_t n)
{
    PyTypeObject *tp = PyType_Check(obj) ? (PyTypeObject *)obj : NULL;
    if (tp != NULL && Py_TYPE(tp)->tp_call != PyType_Type.tp_call)
        return false;
    if (tp != NULL && tp->tp_flags & Py_TPFLAGS_HEAPTYPE && tp->tp_new == PyBaseObject_Type.tp_new)
        return tp->tp_init == PyBaseObject_Type.tp_init;
    bool computes = rec_callable_knows(obj, KIN_KNOWS_COMPUTES) || (tp != NULL && strchr(tp->tp_name, '.') == NULL);
    return rec_callable_knows(obj, KIN_KNOWS_LAZY) || (computes && !any_iterator(r, args, n));
}

unsigned
rec_opaque_flags(rec *r, kin_vid callee, const kin_vid *args, uint32_t n)
{
    PyObject *obj = O(r, callee);
    bool quiet = obj != NULL && FRESH(r, callee) == NULL && only_computes(r, obj, args, n);
    return KIN_STEP_OPAQUE | (quiet ? 0u : KIN_STEP_EFFECT);
}
