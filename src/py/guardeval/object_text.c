/* Objects as text (guard_source.h). Runs no user code: only exact builtins are shown by repr. */
#include <string.h>

#include "py/guardeval/guard_source.h"

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
kin_code_location(PyObject *code)
{
    PyObject *file = ((PyCodeObject *)code)->co_filename;
    Py_ssize_t slash = PyUnicode_FindChar(file, '/', 0, PyUnicode_GET_LENGTH(file), -1);
    PyObject *name = slash < -1 ? NULL : PyUnicode_Substring(file, slash + 1, PyUnicode_GET_LENGTH(file));
    PyObject *place = name == NULL ? NULL : PyUnicode_FromFormat("%U:%d", name, ((PyCodeObject *)code)->co_firstlineno);
    Py_XDECREF(name);
    return place;
}

static PyObject *
code_text(PyObject *code)
{
    PyObject *place = kin_code_location(code);
    PyObject *text = place == NULL ? NULL : PyUnicode_FromFormat("the code of %U, %U", ((PyCodeObject *)code)->co_name, place);
    Py_XDECREF(place);
    return text;
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
        return code_text(obj);
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
