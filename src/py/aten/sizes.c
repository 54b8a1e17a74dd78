/* Sizes of tensors as Python objects (sizes.h). */
#include "py/aten/sizes.h"

#include "py/aten/tensor.h"

static PyTypeObject *size_type; /* kept for the life of the process, as torch is */

kin_status
kin_sizes_init(PyObject *torch_module)
{
    PyObject *type = PyObject_GetAttrString(torch_module, "Size");
    if (type == NULL)
        return KIN_PYERR;
    /* What is built below are tuples of another class, as the constructor makes them. */
    bool ok = PyType_Check(type) && PyType_IsSubtype((PyTypeObject *)type, &PyTuple_Type) &&
              ((PyTypeObject *)type)->tp_basicsize >= PyTuple_Type.tp_basicsize &&
              ((PyTypeObject *)type)->tp_itemsize == PyTuple_Type.tp_itemsize;
    if (!ok) {
        Py_DECREF(type);
        PyErr_SetString(PyExc_RuntimeError, "kintsugi cannot use this build of torch: torch.Size is no tuple");
        return KIN_PYERR;
    }
    size_type = (PyTypeObject *)type;
    return KIN_OK;
}

bool
kin_is_size(PyObject *obj)
{
    return obj != NULL && size_type != NULL && Py_TYPE(obj) == size_type;
}

bool
kin_is_size_type(PyTypeObject *type)
{
    return type != NULL && type == size_type;
}

PyTypeObject *
kin_size_type(void)
{
    return size_type;
}

PyObject *
kin_size_new(PyObject *const *items, Py_ssize_t n)
{
    PyObject *size = size_type->tp_alloc(size_type, n);
    for (Py_ssize_t i = 0; size != NULL && i < n; i++)
        PyTuple_SET_ITEM(size, i, Py_NewRef(items[i]));
    return size;
}

PyObject *
kin_size_at(PyObject *tensor, unsigned dim)
{
    const int64_t *sizes = kin_is_tensor(tensor) ? kin_tensor_sizes(tensor) : NULL;
    if (sizes == NULL || (int64_t)dim >= kin_tensor_dim(tensor)) {
        PyErr_SetString(PyExc_IndexError, "the tensor has no such dimension");
        return NULL;
    }
    return PyLong_FromLongLong(sizes[dim]);
}

PyObject *
kin_open_text(PyObject *record)
{
    uint64_t open = kin_meta_open(record);
    PyObject *text = PyUnicode_FromString(open != 0 ? ", dynamic dims [" : "");
    for (int d = 0, n = 0; text != NULL && d < 64; d++)
        if (open >> d & 1)
            Py_SETREF(text, PyUnicode_FromFormat(n++ > 0 ? "%U, %d" : "%U%d", text, d));
    if (text != NULL && open != 0)
        Py_SETREF(text, PyUnicode_FromFormat("%U]", text));
    return text;
}

bool
kin_lies_by_rows(const int64_t *sizes, const int64_t *strides, int64_t ndim)
{
    int64_t next = 1;
    bool rows = true;
    for (int64_t d = ndim; d-- > 0 && rows; next *= sizes[d])
        rows = sizes[d] == 1 || strides[d] == next;
    return rows;
}
