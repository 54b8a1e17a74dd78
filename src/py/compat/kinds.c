/* Asked of live objects once, and kept for the life of the process: that needs no name, so it holds for every version. */
#define Py_BUILD_CORE 1
#include "py/compat/kinds.h"

#include <internal/pycore_call.h>
#include <internal/pycore_dict.h>

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
    const char *name = PyUnicode_AsUTF8(((PyFunctionObject *)callable)->func_name);
    if (name == NULL)
        PyErr_Clear();
    return name != NULL ? name : "";
}
