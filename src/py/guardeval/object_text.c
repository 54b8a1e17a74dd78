/* Objects in words (guard_place.h). No user code runs: objects are shown by repr only if they are exact builtins. */
#include <string.h>

#include "py/guardeval/guard_place.h"

static PyObject *
shorten(PyObject *text)
{
    enum { LONGEST = 120 };
    if (text == NULL || PyUnicode_GET_LENGTH(text) <= LONGEST)
        return text;
    PyObject *head = PyUnicode_Substring(text, 0, LONGEST - 3);
    Py_DECREF(text);
    PyObject *out = head ? PyUnicode_FromFormat("%U...", head) : NULL;
    Py_XDECREF(head);
    return out;
}

static PyObject *
class_text(PyTypeObject *type)
{
    if (type->tp_flags & Py_TPFLAGS_HEAPTYPE)
        return Py_NewRef(((PyHeapTypeObject *)type)->ht_qualname);
    const char *dot = strrchr(type->tp_name, '.');
    return PyUnicode_FromString(dot ? dot + 1 : type->tp_name);
}

PyObject *
kin_object_text(PyObject *obj)
{
    if (kin_is_exact_immutable(obj))
        return shorten(PyObject_Repr(obj));
    if (PyType_Check(obj))
        return class_text((PyTypeObject *)obj);
    if (PyFunction_Check(obj))
        return Py_NewRef(((PyFunctionObject *)obj)->func_qualname);
    if (PyCFunction_Check(obj))
        return PyUnicode_FromString(((PyCFunctionObject *)obj)->m_ml->ml_name);
    if (PyCode_Check(obj))
        return PyUnicode_FromFormat("<code %U>", ((PyCodeObject *)obj)->co_name);
    if (PyModule_CheckExact(obj)) {
        PyObject *name = PyModule_GetNameObject(obj);
        if (name)
            return name;
        PyErr_Clear();
    }
    PyObject *type = class_text(Py_TYPE(obj));
    PyObject *out = type ? PyUnicode_FromFormat("<%U object>", type) : NULL;
    Py_XDECREF(type);
    return out;
}
