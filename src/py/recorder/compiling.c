/* torch.compiler's flag that says that something is being compiled. It is set while a call is recorded, and while CPython finishes a
 * call that replay has left, so that is_compiling() answers the same however a call goes on.
 */
#include "py/recorder/rec.h"

static PyObject *flag_dict, *flag_name;

void
rec_find_compiling(PyObject *dict, PyObject *name)
{
    flag_dict = dict;
    flag_name = name;
}

void
rec_set_compiling(bool on)
{
    /* A count, not a value to save and restore: calls of several threads end in any order. */
    static uint32_t inside;
    static bool outside;
    if (on ? inside++ != 0 : --inside != 0)
        return;
    if (on)
        outside = PyDict_GetItem(flag_dict, flag_name) == Py_True;
    bool value = on || outside;
    if (PyDict_SetItem(flag_dict, flag_name, value ? Py_True : Py_False) < 0)
        PyErr_Clear();
}

bool
rec_is_compiling_flag(PyObject *dict, PyObject *key)
{
    return dict == flag_dict && PyUnicode_Check(key) &&
           PyUnicode_Compare(key, flag_name) == 0;
}
