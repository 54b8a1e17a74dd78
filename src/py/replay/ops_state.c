/* Steps that touch module namespaces and the import system, and the raise statement. */
#include "py/replay/ops_priv.h"

PyObject *
kin_op_global_set(const kin_op_args *o)
{
    PyObject *value = o->nargs > 1 ? o->arg[1] : NULL;
    int failed = value ? PyDict_SetItem(o->arg[0], o->ref, value) : PyDict_DelItem(o->arg[0], o->ref);
    if (failed == 0)
        return Py_NewRef(Py_None);
    if (value == NULL && PyErr_ExceptionMatches(PyExc_KeyError)) {
        PyErr_Clear();
        PyErr_Format(PyExc_NameError, "name '%U' is not defined", o->ref);
    }
    return NULL;
}

/* -- import ----------------------------------------------------------------------------------------------------- */

/* builtins.__import__ as the code that owns these globals sees it: new reference. */
static PyObject *
find_import(PyObject *globals)
{
    PyObject *builtins = PyDict_GetItemString(globals, "__builtins__");
    if (builtins == NULL)
        builtins = PyEval_GetBuiltins();
    if (builtins != NULL && PyModule_Check(builtins))
        builtins = PyModule_GetDict(builtins);
    PyObject *import = builtins && PyDict_Check(builtins) ? PyDict_GetItemString(builtins, "__import__") : NULL;
    if (import == NULL && !PyErr_Occurred())
        PyErr_SetString(PyExc_ImportError, "__import__ not found");
    return Py_XNewRef(import);
}

PyObject *
kin_op_import(const kin_op_args *o)
{
    PyObject *level = o->arg[0], *fromlist = o->arg[1], *globals = o->arg[2];
    PyObject *import = find_import(globals);
    if (import == NULL)
        return NULL;
    PyObject *args[] = {NULL, o->ref, globals, Py_None, fromlist, level};
    PyObject *module = PyObject_Vectorcall(import, args + 1, 5 | PY_VECTORCALL_ARGUMENTS_OFFSET, NULL);
    Py_DECREF(import);
    return module;
}

static bool
is_initializing(PyObject *module)
{
    PyObject *spec = PyObject_GetAttrString(module, "__spec__");
    PyObject *flag = spec ? PyObject_GetAttrString(spec, "_initializing") : NULL;
    int truth = flag ? PyObject_IsTrue(flag) : 0;
    Py_XDECREF(spec);
    Py_XDECREF(flag);
    PyErr_Clear();
    return truth > 0;
}

static PyObject *
refuse_import(PyObject *module, PyObject *package, PyObject *name)
{
    PyObject *where = PyModule_Check(module) ? PyModule_GetFilenameObject(module) : NULL, *message;
    PyObject *from = package ? Py_NewRef(package) : PyUnicode_FromString("<unknown module name>");
    PyErr_Clear();
    if (where == NULL)
        message = PyUnicode_FromFormat("cannot import name %R from %R (unknown location)", name, from);
    else if (is_initializing(module))
        message = PyUnicode_FromFormat("cannot import name %R from partially initialized module %R (most likely due to a "
                                       "circular import) (%S)", name, from, where);
    else
        message = PyUnicode_FromFormat("cannot import name %R from %R (%S)", name, from, where);
    if (message != NULL)
        PyErr_SetImportError(message, from, where);
    Py_XDECREF(message);
    Py_XDECREF(from);
    Py_XDECREF(where);
    return NULL;
}

/* The attribute, else the submodule that is already loaded. */
PyObject *
kin_op_import_from(const kin_op_args *o)
{
    PyObject *module = o->arg[0], *name = o->ref;
    PyObject *value = PyObject_GetAttr(module, name);
    if (value != NULL || !PyErr_ExceptionMatches(PyExc_AttributeError))
        return value;
    PyErr_Clear();
    PyObject *package = PyObject_GetAttrString(module, "__name__");
    if (package == NULL)
        PyErr_Clear();
    else if (!PyUnicode_Check(package))
        Py_CLEAR(package);
    PyObject *full = package ? PyUnicode_FromFormat("%U.%U", package, name) : NULL;
    if (full != NULL)
        value = PyImport_GetModule(full);
    if (value == NULL && !PyErr_Occurred())
        refuse_import(module, package, name);
    Py_XDECREF(full);
    Py_XDECREF(package);
    return value;
}

/* -- raise ------------------------------------------------------------------------------------------------------ */

/* What a handler saves at its beginning: the innermost entry only, None when it is empty. */
PyObject *
kin_op_handled(const kin_op_args *o)
{
    PyObject *value = PyThreadState_Get()->exc_info->exc_value;
    return Py_NewRef(value ? value : Py_None);
}

/* Steals value. */
static PyObject *
raise_again(PyObject *value)
{
    if (value == NULL || value == Py_None) {
        Py_XDECREF(value);
        PyErr_SetString(PyExc_RuntimeError, "No active exception to reraise");
        return NULL;
    }
    PyErr_Restore(Py_NewRef((PyObject *)Py_TYPE(value)), value, PyException_GetTraceback(value));
    return NULL;
}

/* The exception named by a class or an instance: new reference. */
static PyObject *
make_exception(PyObject *given, const char *refusal)
{
    if (PyExceptionInstance_Check(given))
        return Py_NewRef(given);
    if (!PyExceptionClass_Check(given)) {
        PyErr_SetString(PyExc_TypeError, refusal);
        return NULL;
    }
    PyObject *value = PyObject_CallNoArgs(given);
    if (value != NULL && !PyExceptionInstance_Check(value)) {
        PyErr_Format(PyExc_TypeError, "calling %R should have returned an instance of BaseException, not %R", given,
                     Py_TYPE(value));
        Py_CLEAR(value);
    }
    return value;
}

/* What PyErr_SetObject does with the exception that is being handled, which is here one that only the recorder knows of. */
static void
set_context(PyObject *value, PyObject *context)
{
    if (context == value)
        return;
    PyObject *at = Py_NewRef(context), *next;
    while ((next = PyException_GetContext(at)) != NULL && next != value) {
        Py_DECREF(at);
        at = next;
    }
    if (next != NULL) /* no circle */
        PyException_SetContext(at, NULL);
    Py_XDECREF(next);
    Py_DECREF(at);
    PyException_SetContext(value, Py_NewRef(context));
}

PyObject *
kin_op_raise(const kin_op_args *o)
{
    PyObject *given = o->nargs > 0 ? o->arg[0] : NULL, *cause = o->nargs > 1 ? o->arg[1] : NULL;
    if (given == NULL)
        return raise_again(PyErr_GetHandledException());
    if (o->imm == 1)
        return raise_again(Py_NewRef(given));
    PyObject *value = make_exception(given, "exceptions must derive from BaseException");
    if (value == NULL)
        return NULL;
    if (cause != NULL) {
        PyObject *fixed = cause == Py_None ? NULL : make_exception(cause, "exception causes must derive from BaseException");
        if (fixed == NULL && cause != Py_None) {
            Py_DECREF(value);
            return NULL;
        }
        PyException_SetCause(value, fixed);
    }
    PyErr_SetObject((PyObject *)Py_TYPE(value), value);
    if (o->nargs > 2 && o->arg[2] != NULL)
        set_context(value, o->arg[2]);
    Py_DECREF(value);
    return NULL;
}
