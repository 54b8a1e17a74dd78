/* Attributes of modules (imports.h). */
#include "py/compat/imports.h"
#include "py/compat/signals.h"

#include <string.h>

PyObject *
kin_import(const char *module, const char *path)
{
    PyObject *found = PyImport_ImportModule(module);
    for (const char *at = path; found != NULL && *at != 0;) {
        size_t len = strcspn(at, ".");
        PyObject *name = PyUnicode_FromStringAndSize(at, (Py_ssize_t)len);
        Py_XSETREF(found, name != NULL ? PyObject_GetAttr(found, name) : NULL);
        Py_XDECREF(name);
        at += len + (at[len] == '.');
    }
    return found;
}

PyObject *
kin_import_once(PyObject **kept, const char *module, const char *path)
{
    if (*kept != NULL)
        return *kept;
    bool held = kin_signals_hold();
    if ((*kept = kin_import(module, path)) == NULL)
        PyErr_Clear();
    if (held)
        kin_signals_release();
    return *kept;
}

PyObject *
kin_import_call(const char *module, const char *path, PyObject *arg)
{
    PyObject *callable = kin_import(module, path), *result = NULL;
    if (callable != NULL)
        result = arg != NULL ? PyObject_CallOneArg(callable, arg) : PyObject_CallNoArgs(callable);
    Py_XDECREF(callable);
    return result;
}

bool
kin_says_yes(PyObject *answer)
{
    bool yes = answer == Py_True;
    Py_XDECREF(answer);
    PyErr_Clear();
    return yes;
}
