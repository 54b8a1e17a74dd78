/* The UTF-8 of a name, for messages and for comparisons with names of ours. Names may hold what UTF-8 cannot (lone surrogates, as in the name of a file that
 * is not valid text): "?" then. Never raises, and leaves a pending exception alone.
 */
#ifndef KIN_PY_COMPAT_UTF8_H
#define KIN_PY_COMPAT_UTF8_H

#include <Python.h>

static inline const char *
kin_utf8(PyObject *text)
{
    PyObject *type, *error, *traceback;
    if (text == NULL || !PyUnicode_Check(text))
        return "?";
    PyErr_Fetch(&type, &error, &traceback);
    const char *chars = PyUnicode_AsUTF8(text);
    PyErr_Restore(type, error, traceback); /* drops the one of a failure */
    return chars != NULL ? chars : "?";
}

#endif
