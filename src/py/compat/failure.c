/* Internal failures: an exception class that nobody else raises (failure.h). */
#include "py/compat/failure.h"

#include <stdarg.h>
#include <stdio.h>

static PyObject *failure_class; /* kept for the life of the process */

void
kin_failure_raise(const char *format, ...)
{
    if (failure_class == NULL)
        failure_class = PyErr_NewException("kintsugi.InternalError", PyExc_SystemError, NULL);
    va_list args;
    va_start(args, format);
    if (failure_class != NULL)
        PyErr_FormatV(failure_class, format, args);
    va_end(args);
}

bool
kin_failure_pending(void)
{
    return failure_class != NULL && PyErr_ExceptionMatches(failure_class);
}

void
kin_failure_take(char *text, size_t size)
{
    PyObject *type, *value, *tb;
    PyErr_Fetch(&type, &value, &tb);
    PyObject *str = value == NULL ? NULL : PyObject_Str(value);
    const char *utf8 = str == NULL ? NULL : PyUnicode_AsUTF8(str);
    snprintf(text, size, "%s", utf8 == NULL ? "?" : utf8);
    PyErr_Clear();
    Py_XDECREF(str);
    Py_XDECREF(type);
    Py_XDECREF(value);
    Py_XDECREF(tb);
}
