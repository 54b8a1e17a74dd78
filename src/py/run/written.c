/* Inputs that a subgraph writes to: whether a launch may write to them, and how steps that were given up are undone before they run again in order.
 */
#include <stdlib.h>
#include <string.h>

#include "py/aten/make.h"
#include "py/aten/tensor.h"
#include "py/run/run.h"

typedef struct {
    const char *from, *to;
} stretch;

/* The memory that a tensor's elements lie in. */
static stretch
memory_of(PyObject *tensor)
{
    kin_dtype dtype = KIN_BOOL;
    const int64_t *sizes = kin_tensor_sizes(tensor), *strides = kin_tensor_strides(tensor);
    int64_t last = 0;
    (void)kin_tensor_dtype(tensor, &dtype);
    for (Py_ssize_t d = 0; d < kin_tensor_dim(tensor); d++) {
        if (sizes[d] == 0)
            return (stretch){0};
        last += (sizes[d] - 1) * strides[d];
    }
    const char *data = kin_tensor_data(tensor);
    return (stretch){data, data + (last + 1) * (int64_t)kin_dtype_bytes(dtype)};
}

/* Does it share memory with another input, or may it not be written to at all? Then it is a matter for the steps. */
static bool
is_writable(const launch_code *code, PyObject *const *in, uint32_t input, const stretch *all)
{
    stretch s = memory_of(in[input]);
    if (kin_tensor_is_inference(in[input]) && !kin_inference_enabled())
        return false;
    for (uint32_t i = 0; i < code->ninputs; i++)
        if (code->input_of[i] != input && s.from < all[i].to && all[i].from < s.to)
            return false;
    return true;
}

bool
launch_may_write(const launch_code *code, PyObject *const *in)
{
    stretch small[64], *all = code->nwrites == 0 || code->ninputs <= 64 ? small : malloc(code->ninputs * sizeof *all);
    bool may = all != NULL;
    for (uint32_t i = 0; may && code->nwrites > 0 && i < code->ninputs; i++)
        all[i] = kin_is_tensor(in[code->input_of[i]]) ? memory_of(in[code->input_of[i]]) : (stretch){0}; /* a number */
    for (uint32_t w = 0; may && w < code->nwrites; w++)
        may = is_writable(code, in, code->writes[w].input, all);
    if (all != small)
        free(all);
    return may;
}

/* -- as they were ------------------------------------------------------------------------------------------------- */

typedef struct {
    char *bytes;
    long version; /* -1: it counts none */
} kept;

struct launch_kept {
    uint32_t n;
    kept of[];
};

void
launch_kept_free(launch_kept *k)
{
    for (uint32_t w = 0; k != NULL && w < k->n; w++)
        free(k->of[w].bytes);
    free(k);
}

static long
version_of(PyObject *tensor)
{
    PyObject *count = kin_tensor_is_inference(tensor) ? NULL : PyObject_GetAttrString(tensor, "_version");
    long version = count == NULL ? -1 : PyLong_AsLong(count);
    PyErr_Clear();
    Py_XDECREF(count);
    return version;
}

launch_kept *
launch_keep_written(const launch_code *code, PyObject *const *in)
{
    launch_kept *k = calloc(1, sizeof *k + code->nwrites * sizeof *k->of);
    for (uint32_t w = 0; k != NULL && w < code->nwrites; w++) {
        stretch s = memory_of(in[code->writes[w].input]);
        size_t bytes = (size_t)(s.to - s.from);
        k->of[w] = (kept){malloc(bytes + 1), version_of(in[code->writes[w].input])};
        k->n = w + 1;
        if (k->of[w].bytes == NULL) {
            launch_kept_free(k);
            return NULL;
        }
        if (bytes > 0)
            memcpy(k->of[w].bytes, s.from, bytes);
    }
    return k;
}

void
launch_put_back_written(const launch_kept *k, const launch_code *code, PyObject *const *in)
{
    for (uint32_t w = 0; w < k->n; w++) {
        PyObject *tensor = in[code->writes[w].input];
        stretch s = memory_of(tensor);
        if (s.to > s.from)
            memcpy((void *)(uintptr_t)s.from, k->of[w].bytes, (size_t)(s.to - s.from));
        if (k->of[w].version >= 0)
            launch_set_version(tensor, (uint32_t)k->of[w].version);
    }
}
