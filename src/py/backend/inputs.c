/* Kinds and addresses of a graph's inputs (inputs.h). */
#include "py/backend/inputs.h"

#include <stdint.h>
#include <string.h>

#include "py/aten/make.h"
#include "py/aten/tensor.h"

/* Can tensors be read in this build of torch? Nobody may have asked before. */
static bool
is_ready(void)
{
    PyObject *torch = PyImport_ImportModule("torch");
    bool ready = torch != NULL && kin_aten_init(torch) == KIN_OK && kin_make_init(torch) == KIN_OK;
    Py_XDECREF(torch);
    PyErr_Clear();
    return ready;
}

PyObject *
kin_inputs_describe(PyObject *const *inputs, Py_ssize_t n)
{
    PyObject *records = is_ready() ? PyTuple_New(n) : NULL;
    for (Py_ssize_t i = 0; records != NULL && i < n; i++) {
        PyObject *record = kin_is_plain_strided(inputs[i]) ? kin_meta_make(inputs[i], KIN_META_CALL) : NULL;
        if (record != NULL)
            PyTuple_SET_ITEM(records, i, record);
        else
            Py_CLEAR(records);
    }
    return records;
}

bool
kin_inputs_fit(PyObject *const *inputs, Py_ssize_t n, PyObject *records, const char *addresses)
{
    for (Py_ssize_t i = 0; i < n; i++) {
        uint64_t address;
        memcpy(&address, addresses + i * (Py_ssize_t)sizeof address, sizeof address);
        if (!kin_is_plain_strided(inputs[i]) || !kin_meta_match(inputs[i], PyTuple_GET_ITEM(records, i)) ||
            (address != 0 && (uint64_t)(uintptr_t)kin_tensor_data(inputs[i]) != address))
            return false;
    }
    return true;
}
