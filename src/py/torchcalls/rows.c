/* The row of breaks.def for a call that stays an executed step, and whether reports show it as a side effect. This
 * only affects reports and where graphs end, never what the program computes.
 */
#include "py/recorder/callables.h"
#include "py/compat/kinds.h"
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
    return name != NULL && PyUnicode_Check(name) ? kin_utf8(name) : "";
}

/* -- rows by name ----------------------------------------------------------------------------------------------------- */

enum {
    OF_PYTHON = 1, OF_C = 2, OF_METHODS = 4, /* kinds of callables: functions in Python and in C, methods of C classes */
    AS_EFFECT = 8,     /* rows that end a graph under strict_breaks only */
    ALWAYS = 16,       /* whatever it is handed */
    WITH_TENSORS = 32, /* when it is handed tensors */
    WITH_NOTHING = 64, WITH_ONE = 128 /* when it is handed so much */
};

/* A callable that is known by the names of its module (or class) and its own; NULL: any. The first row that fits says it. */
static const struct {
    unsigned when;
    const char *home, *name;
    int row;
} rows[] = {
    {AS_EFFECT | OF_C, "builtins", "print", KIN_ROW_PRINT},
    {AS_EFFECT | OF_PYTHON | OF_C, "warnings", NULL, KIN_ROW_WARNING},
    {AS_EFFECT | OF_C, "_warnings", "warn", KIN_ROW_WARNING},
    {AS_EFFECT | OF_C, "_warnings", "warn_explicit", KIN_ROW_WARNING},
    {AS_EFFECT | OF_PYTHON, "logging", NULL, KIN_ROW_LOGGING},
    {AS_EFFECT | OF_C, "time", NULL, KIN_ROW_CLOCK},
    {AS_EFFECT | OF_C, "io", "open", KIN_ROW_FILE_ACCESS},
    {AS_EFFECT | OF_C, "_io", "open", KIN_ROW_FILE_ACCESS},
    {ALWAYS | OF_C, NULL, "__build_class__", KIN_ROW_CLASS_STATEMENT},
    {ALWAYS | OF_C | WITH_NOTHING, "builtins", "locals", KIN_ROW_FRAME_INSPECTION},
    {ALWAYS | OF_C | WITH_NOTHING, "builtins", "vars", KIN_ROW_FRAME_INSPECTION},
    {ALWAYS | OF_C | WITH_NOTHING, "builtins", "dir", KIN_ROW_FRAME_INSPECTION},
    {ALWAYS | OF_C, "gc", "get_objects", KIN_ROW_FRAME_INSPECTION},
    {ALWAYS | OF_C, "gc", "get_referrers", KIN_ROW_FRAME_INSPECTION},
    {ALWAYS | OF_C, "sys", "_getframe", KIN_ROW_FRAME_INSPECTION},
    {ALWAYS | OF_C, "sys", "_current_frames", KIN_ROW_FRAME_INSPECTION},
    {ALWAYS | OF_C, "sys", "_current_exceptions", KIN_ROW_FRAME_INSPECTION},
    {ALWAYS | OF_C | WITH_ONE, "builtins", "exec", KIN_ROW_EXEC_EVAL}, /* in the namespaces of the running frame */
    {ALWAYS | OF_C | WITH_ONE, "builtins", "eval", KIN_ROW_EXEC_EVAL},
    {ALWAYS | OF_C, "_thread", "start_new_thread", KIN_ROW_THREAD},
    {ALWAYS | OF_C, "_thread", "start_new", KIN_ROW_THREAD},
    {ALWAYS | OF_C, "_thread", "start_joinable_thread", KIN_ROW_THREAD},
    {WITH_TENSORS | OF_PYTHON, "torch._ops", NULL, -1}, /* an operator, perhaps one of the user's: it ends no graph */
    {WITH_TENSORS | OF_PYTHON, "copy", "deepcopy", KIN_ROW_TENSOR_DEEPCOPY},
    {WITH_TENSORS | OF_PYTHON, "copy", "copy", KIN_ROW_TENSOR_DEEPCOPY},
    {WITH_TENSORS | OF_PYTHON, "torch.serialization", NULL, KIN_ROW_SERIALIZATION},
    {WITH_TENSORS | OF_PYTHON, "pickle", NULL, KIN_ROW_SERIALIZATION},
    {WITH_TENSORS | OF_C, "_pickle", "dumps", KIN_ROW_SERIALIZATION},
    {WITH_TENSORS | OF_C, "_pickle", "dump", KIN_ROW_SERIALIZATION},
    {WITH_TENSORS | OF_C, "_operator", "index", KIN_ROW_TENSOR_TO_NUMBER},
    {WITH_TENSORS | OF_C, "_weakref", "proxy", KIN_ROW_WEAK_REFERENCE},
    {WITH_TENSORS | OF_C, "builtins", "repr", KIN_ROW_TENSOR_REPR},
    {WITH_TENSORS | OF_C, "builtins", "format", KIN_ROW_TENSOR_REPR},
    {WITH_TENSORS | OF_C, "builtins", "ascii", KIN_ROW_TENSOR_REPR},
    {WITH_TENSORS | OF_C, "builtins", "sorted", KIN_ROW_SORT_KEYS},
    {WITH_TENSORS | OF_C, "builtins", "exec", KIN_ROW_EXEC_EVAL},
    {WITH_TENSORS | OF_C, "builtins", "eval", KIN_ROW_EXEC_EVAL},
    {WITH_TENSORS | OF_C, "builtins", NULL, KIN_ROW_BUILTIN_CALL},
    {WITH_TENSORS | OF_C, NULL, NULL, KIN_ROW_OPAQUE_CALL},
    {WITH_TENSORS | OF_METHODS, "list", "sort", KIN_ROW_SORT_KEYS},
    {WITH_TENSORS | OF_METHODS, NULL, NULL, KIN_ROW_OPAQUE_METHOD},
};

static bool
is_c_method(PyObject *obj)
{
    return Py_TYPE(obj) == &PyMethodDescr_Type || Py_TYPE(obj) == &PyWrapperDescr_Type;
}

/* The row of breaks.def; UNNAMED: none of the rows fits. */
enum { UNNAMED = -2 };

static int
row_by_name(PyObject *obj, unsigned when, uint32_t n)
{
    unsigned kind = PyFunction_Check(obj) ? OF_PYTHON : PyCFunction_Check(obj) ? OF_C : is_c_method(obj) ? OF_METHODS : 0;
    const char *name = kin_callable_name(obj), *home = home_of(obj);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        unsigned w = rows[i].when;
        if ((w & when) && (w & kind) && (rows[i].home == NULL || strcmp(home, rows[i].home) == 0) &&
            (rows[i].name == NULL || strcmp(name, rows[i].name) == 0) && !((w & WITH_NOTHING) && n != 0) && !((w & WITH_ONE) && n != 1))
            return rows[i].row;
    }
    return UNNAMED;
}

/* -- effects: rows that end a graph under strict_breaks only -------------------------------------------------------- */

static bool
is_file_access(PyObject *obj)
{
    const char *home = home_of(obj);
    if (starts_with(home, "_io."))
        return strcmp(home, "_io.StringIO") != 0 && strcmp(home, "_io.BytesIO") != 0;
    return strcmp(home, "posix") == 0 && rec_callable_knows(obj, KIN_KNOWS_ACTS);
}

int
rec_effect_row(PyObject *obj)
{
    int row = row_by_name(obj, AS_EFFECT, 0);
    return row != UNNAMED ? row : is_file_access(obj) ? KIN_ROW_FILE_ACCESS : -1;
}

bool
rec_reports(PyObject *obj)
{
    int row = row_by_name(obj, AS_EFFECT, 0);
    const char *name = kin_callable_name(obj);
    bool writes = strcmp(name, "write") == 0 || strcmp(name, "writelines") == 0 || strcmp(name, "flush") == 0;
    return row == KIN_ROW_PRINT || row == KIN_ROW_WARNING || row == KIN_ROW_LOGGING || (writes && starts_with(home_of(obj), "_io."));
}

/* -- rows by what is called, whatever it is handed --------------------------------------------------------------------- */

static int
row_of_callee(PyObject *obj, uint32_t n)
{
    if (PyFunction_Check(obj) && ((PyCodeObject *)((PyFunctionObject *)obj)->func_code)->co_flags & (CO_COROUTINE | CO_ASYNC_GENERATOR))
        return KIN_ROW_COROUTINE;
    int row = row_by_name(obj, ALWAYS, n);
    return row != UNNAMED ? row : -1;
}

/* -- rows by what is handed over ----------------------------------------------------------------------------------------- */

/* Generators and coroutines: whoever has them may resume code that nobody watches. */
static int
row_of_suspended(rec *r, PyObject *callee, const kin_vid *args, uint32_t n)
{
    if (rec_callable_knows(callee, KIN_KNOWS_NO_RESUME))
        return -1;
    for (uint32_t i = 0; i < n; i++) {
        PyObject *obj = args[i] ? O(r, args[i]) : NULL;
        rec_virtual *f = args[i] ? VIRTUAL(r, args[i]) : NULL;
        if (f != NULL && f->kind == VIRTUAL_GENERATOR && rec_generator_has_tensor(r, args[i]))
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

/* Functions of NumPy are objects of classes of its own. */
static bool
is_of_numpy(PyObject *obj)
{
    return starts_with(Py_TYPE(obj)->tp_name, "numpy.") || starts_with(home_of(obj), "numpy");
}

/* As tensor.numpy() does: an array over the tensor's memory, or a copy, is no reason to end the graph. */
static bool
makes_array(PyObject *obj)
{
    static const char *const names[] = {"array", "asarray", "asanyarray", "ascontiguousarray", NULL};
    return PyCFunction_Check(obj) && rec_in_list(kin_callable_name(obj), names);
}

/* Rows for calls that are handed tensors. */
static int
row_with_tensors(PyObject *obj)
{
    if (is_of_numpy(obj))
        return makes_array(obj) ? -1 : KIN_ROW_TENSOR_NUMPY;
    if (PyType_Check(obj))
        return row_of_type((PyTypeObject *)obj);
    if (PyWeakref_CheckRef(obj))
        return KIN_ROW_WEAK_REFERENCE;
    int row = row_by_name(obj, WITH_TENSORS, 0);
    if (row != UNNAMED)
        return row;
    if (!PyFunction_Check(obj))
        return KIN_ROW_OPAQUE_CALLABLE;
    return ((PyCodeObject *)((PyFunctionObject *)obj)->func_code)->co_flags & CO_GENERATOR ? KIN_ROW_GENERATOR : KIN_ROW_OPAQUE_PYTHON;
}

static bool
is_plain_container(PyObject *obj)
{
    return obj != NULL && (PyList_CheckExact(obj) || PyTuple_CheckExact(obj) || PyDict_CheckExact(obj));
}

/* Are there mappings of the program's classes among them, which dict asks for keys() and items? With `tensors`: that hold some. */
static bool
any_asked_mapping(rec *r, const kin_vid *args, uint32_t n, bool tensors)
{
    for (uint32_t i = 0; i < n; i++) {
        PyObject *obj = args[i] ? O(r, args[i]) : NULL;
        PyTypeObject *tp = obj != NULL ? Py_TYPE(obj) : NULL;
        if (tp != NULL && tp->tp_flags & Py_TPFLAGS_HEAPTYPE && tp->tp_iter != PyDict_Type.tp_iter && _PyType_Lookup(tp, REC_STR("keys")) != NULL && (!tensors || rec_values_hold_tensor(r, args[i])))
            return true;
    }
    return false;
}

/* Does the class, one of the program's, make its instances as list or dict does it, in C alone? Such a call moves references. */
static bool
only_fills(rec *r, PyTypeObject *tp, const kin_vid *args, uint32_t n)
{
    bool dict = tp->tp_new == PyDict_Type.tp_new && tp->tp_init == PyDict_Type.tp_init;
    bool list = tp->tp_new == PyList_Type.tp_new && tp->tp_init == PyList_Type.tp_init;
    if (!(tp->tp_flags & Py_TPFLAGS_HEAPTYPE) || (!dict && !list))
        return false;
    for (uint32_t i = 0; list && i < n; i++)
        if (args[i] == 0 || !is_plain_container(O(r, args[i])))
            return false; /* list(tensor) takes the tensor apart */
    return list || !any_asked_mapping(r, args, n, false);
}

/* list.extend(list), list.append(tensor): moves references, whatever they refer to. So does a class that is filled like a list or dict. */
static bool
only_moves(rec *r, PyObject *obj, const kin_vid *args, uint32_t n)
{
    if (PyType_Check(obj))
        return only_fills(r, (PyTypeObject *)obj, args, n);
    if (!rec_callable_knows(obj, KIN_KNOWS_MOVES_ITEMS))
        return rec_callable_knows(obj, KIN_KNOWS_MOVES);
    if (PyDescr_TYPE(obj) == &PyDict_Type)
        return !any_asked_mapping(r, args + 1, n > 0 ? n - 1 : 0, false);
    PyObject *from = n == 2 && args[1] ? O(r, args[1]) : NULL;
    return from != NULL && (PyList_CheckExact(from) || PyTuple_CheckExact(from));
}

/* A context manager made of a generator is entered or left: as with others that are not known, its frames are in place. */
static bool
is_in_contextlib(const rec *r)
{
    PyObject *func = O(r, r->top->func);
    PyObject *name = func != NULL && PyFunction_Check(func) ? PyDict_GetItemWithError(PyFunction_GET_GLOBALS(func), REC_STR("__name__")) : NULL;
    return kin_text_is(name, "contextlib");
}

int
rec_opaque_row(rec *r, kin_vid callee, const kin_vid *args, uint32_t n)
{
    PyObject *obj = O(r, callee);
    if (obj == NULL)
        return rec_any_tensor(r, args, n) ? KIN_ROW_OPAQUE_CALLABLE : -1;
    int row = rec_effect_row(obj);
    if (row >= 0)
        return r->opt->strict_breaks ? row : -1;
    row = row_of_callee(obj, n);
    if (row < 0 && (only_moves(r, obj, args, n) || is_in_contextlib(r)))
        return -1;
    if (row < 0)
        row = row_of_suspended(r, obj, args, n);
    if (row >= 0)
        return row;
    bool copies = obj == (PyObject *)&PyDict_Type || (is_c_method(obj) && PyDescr_TYPE(obj) == &PyDict_Type);
    bool handed = rec_any_tensor(r, args, n) || (copies && any_asked_mapping(r, args, n, true)) || (VIRTUAL(r, callee) && rec_any_tensor(r, &callee, 1));
    return handed ? row_with_tensors(obj) : -1;
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
    bool no_code = obj != NULL && VIRTUAL(r, callee) == NULL && only_computes(r, obj, args, n);
    bool reports = obj != NULL && rec_is_const(r, callee) && rec_reports(obj);
    return KIN_STEP_OPAQUE | (no_code ? 0u : KIN_STEP_EFFECT) | (reports ? KIN_STEP_REPORTS : 0u);
}
