/* What small tensors hold, as bytes: read when a recording meets them, compared by guards. */
#include "py/aten/make.h"
#include "py/aten/sizes.h"
#include "py/aten/tensor.h"
#include "py/aten/tensor_priv.h"
#include "core/ir/ir.h"
#include <stddef.h>

enum { MOST_BYTES = 64, MOST_DIMS = 4 };

/* Without padding: records are compared as bytes. */
typedef struct {
    int32_t dtype, dim;
    int64_t sizes[MOST_DIMS];
    unsigned char data[MOST_BYTES];
} content;

bool
kin_has_plain_content(PyObject *tensor)
{
    return kin_make_ready() && kin_is_plain_strided(tensor) && kin_tensor_has_plain_data(tensor) && kin_aten_device(tensor) == DEVICE_CPU;
}

static bool
read_content(PyObject *tensor, content *c, size_t *size)
{
    kin_dtype dtype;
    int64_t dim = kin_has_plain_content(tensor) && kin_tensor_dtype(tensor, &dtype) ? kin_tensor_dim(tensor) : -1;
    if (dim < 0 || dim > MOST_DIMS)
        return false;
    *c = (content){.dtype = (int32_t)dtype, .dim = (int32_t)dim};
    uint64_t bytes = kin_dtype_bytes(dtype);
    for (int64_t i = 0; i < dim; i++) {
        c->sizes[i] = kin_tensor_sizes(tensor)[i];
        if (c->sizes[i] < 1 || c->sizes[i] > MOST_BYTES)
            return false;
        bytes *= (uint64_t)c->sizes[i];
    }
    const void *data = bytes <= MOST_BYTES && kin_lies_by_rows(c->sizes, kin_tensor_strides(tensor), dim) ? kin_tensor_data(tensor) : NULL;
    if (data == NULL)
        return false;
    memcpy(c->data, data, bytes);
    *size = offsetof(content, data) + bytes;
    return true;
}

PyObject *
kin_content_make(PyObject *tensor)
{
    content c;
    size_t size;
    return read_content(tensor, &c, &size) ? PyBytes_FromStringAndSize((const char *)&c, (Py_ssize_t)size) : NULL;
}

bool
kin_content_match(PyObject *tensor, PyObject *record)
{
    content c;
    size_t size;
    return read_content(tensor, &c, &size) && (size_t)PyBytes_GET_SIZE(record) == size && memcmp(&c, PyBytes_AS_STRING(record), size) == 0;
}
