/* The answers are found once, by examining live objects, and kept for the life of the process. That needs no private name, so it works in every version. */
#define Py_BUILD_CORE 1
#include "py/compat/kinds.h"

#include "py/compat/imports.h"

#include <internal/pycore_call.h>
#include <internal/pycore_dict.h>
#include <string.h>

static vectorcallfunc
find_plain_call(void)
{
    vectorcallfunc found = NULL;
    PyCodeObject *code = PyCode_NewEmpty("kintsugi", "plain", 1);
    PyObject *globals = PyDict_New();
    PyObject *func = code != NULL && globals != NULL ? PyFunction_New((PyObject *)code, globals) : NULL;
    if (func != NULL)
        found = ((PyFunctionObject *)func)->vectorcall;
    Py_XDECREF(func);
    Py_XDECREF(globals);
    Py_XDECREF(code);
    return found;
}

/* The pending exception stays as it is. */
bool
kin_function_is_plain(PyObject *func)
{
    static vectorcallfunc plain;
    if (plain == NULL) {
        PyObject *type, *value, *traceback;
        PyErr_Fetch(&type, &value, &traceback);
        plain = find_plain_call();
        PyErr_Restore(type, value, traceback);
    }
    return plain != NULL && ((PyFunctionObject *)func)->vectorcall == plain;
}

bool
kin_runs_method(PyObject *obj, PyObject *method)
{
    return Py_IS_TYPE(obj, &PyCFunction_Type) && Py_IS_TYPE(method, &PyMethodDescr_Type) &&
           ((PyCFunctionObject *)obj)->m_ml == ((PyMethodDescrObject *)method)->d_method;
}

bool
kin_is_method_wrapper(PyObject *obj)
{
    static PyTypeObject *type;
    if (type == NULL) {
        PyObject *method = PyObject_GetAttrString(Py_None, "__repr__");
        if (method == NULL) {
            PyErr_Clear();
            return false;
        }
        type = (PyTypeObject *)Py_NewRef(Py_TYPE(method));
        Py_DECREF(method);
    }
    return Py_IS_TYPE(obj, type);
}

bool
kin_class_methods_come_apart(void)
{
#if PY_VERSION_HEX >= 0x030E0000
    return Py_Version >= 0x030E0400; /* of the interpreter that runs */
#else
    return false;
#endif
}

PyObject *
kin_view_dict(PyObject *view)
{
    return (PyObject *)((_PyDictViewObject *)view)->dv_dict;
}

PyObject *
kin_checked_result(PyThreadState *ts, PyObject *callee, PyObject *result)
{
    return _Py_CheckFunctionResult(ts, callee, result, NULL);
}

const char *
kin_callable_name(PyObject *callable)
{
    if (PyCFunction_Check(callable))
        return ((PyCFunctionObject *)callable)->m_ml->ml_name;
    if (Py_TYPE(callable) == &PyMethodDescr_Type)
        return ((PyMethodDescrObject *)callable)->d_method->ml_name;
    if (Py_TYPE(callable) == &PyWrapperDescr_Type)
        return ((PyWrapperDescrObject *)callable)->d_base->name;
    if (!PyFunction_Check(callable))
        return "";
    return kin_utf8(((PyFunctionObject *)callable)->func_name);
}

bool
kin_is_max_or_min(PyObject *callable)
{
    const char *name = PyCFunction_Check(callable) ? kin_callable_name(callable) : "";
    return strcmp(name, "max") == 0 || strcmp(name, "min") == 0;
}

/* -- places of raises -------------------------------------------------------------------------------------------------- */

#if PY_VERSION_HEX >= 0x030E0000

typedef struct {
    PyObject_HEAD
    intptr_t unit;
} offset_object;

static PyObject *
describe(PyObject *self)
{
    return PyUnicode_FromFormat("<instruction %zd>", (Py_ssize_t)((offset_object *)self)->unit);
}

static PyTypeObject offset_type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "kintsugi._kintsugi.offset",
    .tp_basicsize = sizeof(offset_object),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .tp_repr = describe,
};

/* One for each number that was seen, at its place. */
static struct {
    offset_object **at;
    intptr_t room;
} known;

static bool
make_room(intptr_t unit)
{
    if (unit < known.room)
        return true;
    intptr_t room = unit + unit / 2 + 64;
    offset_object **at = PyMem_RawRealloc(known.at, (size_t)room * sizeof *at);
    if (at == NULL)
        return false;
    memset(at + known.room, 0, (size_t)(room - known.room) * sizeof *at);
    known.at = at;
    known.room = room;
    return true;
}

static offset_object *
make(intptr_t unit)
{
    if (!(offset_type.tp_flags & Py_TPFLAGS_READY) && PyType_Ready(&offset_type) < 0) {
        PyErr_Clear();
        return NULL;
    }
    offset_object *made = PyMem_RawMalloc(sizeof *made); /* never freed, so it is of no allocator that looks for what is left */
    if (made != NULL) {
        PyObject_Init((PyObject *)made, &offset_type);
        made->unit = unit;
    }
    return made;
}

PyObject *
kin_offset_object(intptr_t unit)
{
    if (unit < 0 || unit > INT32_MAX || !make_room(unit))
        return NULL;
    if (known.at[unit] == NULL)
        known.at[unit] = make(unit);
    return (PyObject *)known.at[unit];
}

bool
kin_offset_check(PyObject *obj, intptr_t *unit)
{
    if (!Py_IS_TYPE(obj, &offset_type))
        return false;
    *unit = ((offset_object *)obj)->unit;
    return true;
}

#endif

/* -- enum --------------------------------------------------------------------------------------------------------- */

static PyObject *
enum_hash(void)
{
    static PyObject *function;
    return kin_import_once(&function, "enum", "Enum.__hash__");
}

/* EnumType, which has no subclasses of the program here. */
static bool
is_of_enum_type(PyTypeObject *type)
{
    static PyObject *meta;
    return type->tp_flags & Py_TPFLAGS_HEAPTYPE && Py_TYPE(type) != &PyType_Type && (PyObject *)Py_TYPE(type) == kin_import_once(&meta, "enum", "EnumType");
}

bool
kin_is_mixed_enum_class(PyTypeObject *type)
{
    return ((type->tp_hash == PyUnicode_Type.tp_hash && type->tp_richcompare == PyUnicode_Type.tp_richcompare) ||
            (type->tp_hash == PyLong_Type.tp_hash && type->tp_richcompare == PyLong_Type.tp_richcompare)) &&
           is_of_enum_type(type);
}

bool
kin_is_enum_class(PyTypeObject *type)
{
    if (!(type->tp_flags & Py_TPFLAGS_HEAPTYPE) || Py_TYPE(type) == &PyType_Type || type->tp_hash == PyBaseObject_Type.tp_hash ||
        type->tp_richcompare != PyBaseObject_Type.tp_richcompare || type->tp_getattro != PyObject_GenericGetAttr)
        return false;
    static PyObject *name;
    if (name == NULL && (name = PyUnicode_InternFromString("__hash__")) == NULL) {
        PyErr_Clear();
        return false;
    }
    return is_of_enum_type(type) && enum_hash() != NULL && _PyType_Lookup(type, name) == enum_hash();
}

bool
kin_is_enum_hash(PyCodeObject *code)
{
    PyObject *function = enum_hash();
    return function != NULL && PyFunction_Check(function) && PyFunction_GET_CODE(function) == (PyObject *)code;
}

bool
kin_enum_hash(PyObject *member, Py_hash_t *hash)
{
    PyObject *name = PyObject_GetAttrString(member, "_name_");
    bool found = name != NULL && PyUnicode_CheckExact(name);
    *hash = found ? PyObject_Hash(name) : 0;
    Py_XDECREF(name);
    PyErr_Clear();
    return found;
}
