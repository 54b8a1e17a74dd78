/* Kinds and addresses of a graph's inputs (inputs.h). */
#include "py/backend/inputs.h"

#include <stdint.h>
#include <string.h>

#include "py/aten/make.h"
#include "py/aten/tensor.h"

PyObject *
kin_inputs_describe(PyObject *const *inputs, Py_ssize_t n)
{
    PyObject *records = PyTuple_New(n);
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
