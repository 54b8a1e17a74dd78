/* Functions of the Python library that are modelled as a whole: which they are, and whether their code is still the library's own. */
#include "py/compat/imports.h"
#include "py/models/models.h"

void
rec_library_find(rec_library *own, PyObject *function)
{
    own->tried = true;
    PyErr_Clear();
    if (function != NULL && PyFunction_Check(function)) {
        own->function = Py_NewRef(function);
        own->code = Py_NewRef(PyFunction_GET_CODE(function));
    }
    Py_XDECREF(function);
}

bool
rec_library_is(const rec_library *own, PyObject *callee)
{
    return own->code != NULL && callee == own->function && PyFunction_GET_CODE(callee) == own->code;
}

bool
rec_library_is_named(rec_library *own, const char *module, const char *path, PyObject *callee)
{
    if (!own->tried)
        rec_library_find(own, kin_import(module, path));
    return rec_library_is(own, callee);
}
