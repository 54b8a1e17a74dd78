/* Library calls (library.h): products through BLAS or our own kernels, attention, and convolutions through our own kernels or oneDNN's operators in torch. */
#include "py/aten/threads.h"
#include "py/run/library.h"

#include "core/tiles/tile.h"
#include "py/aten/make.h"
#include "py/aten/tensor.h"
#include "py/compat/imports.h"
#include "py/run/blas.h"

static const double LONG_PRODUCT = 1e6; /* multiplications from which other threads are let in */

static struct {
    PyObject *conv, *conv_binary, *reorder; /* C functions of the operators */
    PyObject *none, *relu, *add, *empty, *one;
    bool looked, ready;
} ops;

/* -- start ------------------------------------------------------------------------------------------------------ */

/* The C function behind torch.ops.mkldnn.<name>.<overload>; NULL when this build has none. */
static PyObject *
find_operator(PyObject *mkldnn, const char *name, const char *overload)
{
    PyObject *packet = PyObject_GetAttrString(mkldnn, name);
    PyObject *op = packet == NULL ? NULL : PyObject_GetAttrString(packet, overload);
    PyObject *fn = op == NULL ? NULL : PyObject_GetAttrString(op, "_op");
    Py_XDECREF(packet);
    Py_XDECREF(op);
    return fn;
}

static bool
find_convolutions(void)
{
    PyObject *mkldnn = kin_import("torch", "ops.mkldnn");
    if (mkldnn != NULL && (ops.conv = find_operator(mkldnn, "_convolution_pointwise", "default")) != NULL &&
        (ops.conv_binary = find_operator(mkldnn, "_convolution_pointwise", "binary")) != NULL)
        ops.reorder = find_operator(mkldnn, "_reorder_convolution_weight", "default");
    ops.none = PyUnicode_InternFromString("none");
    ops.relu = PyUnicode_InternFromString("relu");
    ops.add = PyUnicode_InternFromString("add");
    ops.empty = PyList_New(0);
    ops.one = PyFloat_FromDouble(1.0);
    Py_XDECREF(mkldnn);
    PyErr_Clear();
    return ops.reorder != NULL && ops.none != NULL && ops.relu != NULL && ops.add != NULL && ops.empty != NULL && ops.one != NULL;
}

bool
launch_library_has(kin_library_kind kind)
{
    if (kind == KIN_LIBRARY_MATMUL)
        return launch_blas() != NULL;
    if (kind == KIN_LIBRARY_ATTENTION || kind == KIN_LIBRARY_RECURRENT)
        return launch_blas() != NULL && kin_tile_here();
    if (kind == KIN_LIBRARY_BERNOULLI)
        return launch_knows_random();
    if (!ops.looked) {
        ops.looked = true;
        ops.ready = find_convolutions();
    }
    return ops.ready;
}

bool
launch_products_are_own(void)
{
    return launch_blas() != NULL && launch_blas()->own;
}

/* -- one call --------------------------------------------------------------------------------------------------- */

static PyObject *
list_of(const int64_t *numbers, unsigned n)
{
    PyObject *list = PyList_New(n);
    for (unsigned i = 0; list != NULL && i < n; i++) {
        PyObject *number = PyLong_FromLongLong(numbers[i]);
        if (number == NULL)
            Py_CLEAR(list);
        else
            PyList_SET_ITEM(list, i, number);
    }
    return list;
}

static PyObject *
fixed_arguments(const kin_library_call *c)
{
    PyObject *padding = list_of(c->padding, c->nspatial), *stride = list_of(c->stride, c->nspatial);
    PyObject *dilation = list_of(c->dilation, c->nspatial), *groups = PyLong_FromLongLong(c->groups), *all = NULL;
    if (padding != NULL && stride != NULL && dilation != NULL && groups != NULL)
        all = PyTuple_Pack(4, padding, stride, dilation, groups);
    Py_XDECREF(padding);
    Py_XDECREF(stride);
    Py_XDECREF(dilation);
    Py_XDECREF(groups);
    return all;
}

launch_library *
launch_library_new(const kin_library_call *call)
{
    launch_library *l = calloc(1, sizeof *l);
    if (l == NULL)
        return NULL;
    l->call = *call;
    if (call->kind == KIN_LIBRARY_CONV && !call->own && (l->fixed = fixed_arguments(call)) == NULL) {
        PyErr_Clear();
        free(l);
        return NULL;
    }
    return l;
}

void
launch_library_free(launch_library *l)
{
    if (l == NULL)
        return;
    Py_XDECREF(l->fixed);
    free(l);
}

/* -- products --------------------------------------------------------------------------------------------------- */

/* Row-major in memory of its own; NULL without. */
static float *
copy_rows(const kin_matrix *x)
{
    float *rows = malloc((size_t)(x->rows * x->columns) * sizeof *rows);
    const float *data = x->data;
    for (int64_t i = 0; rows != NULL && i < x->rows; i++)
        for (int64_t j = 0; j < x->columns; j++)
            rows[i * x->columns + j] = data[i * x->row_stride + j * x->column_stride];
    return rows;
}

/* As BLAS can read it; *copy is to be freed. False without memory. */
static bool
make_readable(const kin_matrix *x, kin_matrix *out, float **copy)
{
    *out = *x;
    *copy = NULL;
    if (kin_gemm_reads(x))
        return true;
    *copy = copy_rows(x);
    *out = (kin_matrix){*copy, x->rows, x->columns, x->columns, 1, KIN_MATRIX_FLOAT};
    return *copy != NULL;
}

kin_matrix_form
launch_matrix_form(kin_dtype dtype)
{
    return dtype == KIN_BF16 ? KIN_MATRIX_BFLOAT : dtype == KIN_F16 ? KIN_MATRIX_HALF : KIN_MATRIX_FLOAT;
}

bool
launch_matmul(const kin_matrix *a, const kin_matrix *b, const launch_packed *packed, float *c, const kin_epilogue *then)
{
    const kin_blas *blas = launch_blas();
    kin_packed *form = packed != NULL ? packed->matrix : NULL;
    kin_matrix left, right = *b;
    float *left_copy = NULL, *right_copy = NULL;
    bool own = kin_gemm_runs_own(blas, a, b, form);
    left = *a;
    bool ok = own || (make_readable(a, &left, &left_copy) && (form != NULL || make_readable(b, &right, &right_copy)));
    if (ok && (double)a->rows * (double)a->columns * (double)b->columns >= LONG_PRODUCT) {
        Py_BEGIN_ALLOW_THREADS
        ok = kin_gemm(blas, &left, &right, form, c, then);
        Py_END_ALLOW_THREADS
    } else if (ok) {
        ok = kin_gemm(blas, &left, &right, form, c, then);
    }
    free(left_copy);
    free(right_copy);
    return ok;
}

launch_packs
launch_matmul_packs(const kin_matrix *a, const kin_matrix *b, bool varying)
{
    const kin_blas *blas = launch_blas();
    if (kin_gemm_is_own(blas, a->rows, b, true) || (varying && a->rows > 1 && kin_tile_here()))
        return LAUNCH_PACKS_ANY_ROWS;
    return !varying && kin_gemm_wants_packed(blas, a->rows, b) && kin_gemm_reads(b) ? LAUNCH_PACKS_ITS_ROWS : LAUNCH_PACKS_NOT;
}

bool
launch_pack_matrix(int64_t rows, const kin_matrix *b, launch_packed *out, size_t *bytes)
{
    out->matrix = kin_gemm_pack(launch_blas(), rows, b);
    *bytes = out->matrix == NULL ? 0 : kin_gemm_packed_bytes(out->matrix);
    return out->matrix != NULL;
}

/* -- kernels that need no lock of Python's ------------------------------------------------------------------------ */

#define UNLOCKED(NAME, TYPE, RUN) \
    bool NAME(const TYPE *x) \
    { \
        bool ok; \
        Py_BEGIN_ALLOW_THREADS \
        ok = RUN(x, kin_parallel_for); \
        Py_END_ALLOW_THREADS \
        return ok; \
    }
UNLOCKED(launch_products, kin_gemm_blocked, kin_gemm_blocked_run)
UNLOCKED(launch_attention, kin_attention, kin_attention_run)
UNLOCKED(launch_recurrent, kin_recurrent, kin_recurrent_run)
UNLOCKED(launch_recurrent_backward, kin_recurrent_backward, kin_recurrent_run_backward)
#undef UNLOCKED

/* -- convolutions ----------------------------------------------------------------------------------------------- */

static float *
make_panels(const kin_library_call *call, const kin_convolution *x, const void *weight, const int64_t *weight_strides, size_t *bytes)
{
    size_t len = call->transposed ? kin_transposed_panels_len(x) : kin_convolution_panels_len(x);
    *bytes = (len * sizeof(float) + 63) / 64 * 64;
    float *panels = aligned_alloc(64, *bytes);
    if (panels != NULL && call->transposed)
        kin_transposed_make_panels(x, weight, weight_strides, panels);
    else if (panels != NULL)
        kin_convolution_make_panels(x, weight, weight_strides, panels);
    return panels;
}

bool
launch_pack_filters(const kin_library_call *call, const kin_convolution *x, const void *weight, const int64_t *weight_strides, launch_packed *out, size_t *bytes)
{
    out->panels = make_panels(call, x, weight, weight_strides, bytes);
    return out->panels != NULL;
}

bool
launch_convolution(const kin_library_call *call, kin_convolution *x, const void *weight, const int64_t *weight_strides, const launch_packed *packed)
{
    bool ok = true;
    float *own = NULL;
    size_t bytes;
    Py_BEGIN_ALLOW_THREADS
    if (packed == NULL || packed->panels == NULL)
        ok = (own = make_panels(call, x, weight, weight_strides, &bytes)) != NULL;
    x->panels = own != NULL ? own : packed != NULL ? packed->panels : NULL;
    ok = ok && (call->transposed ? kin_transposed_run : kin_convolution_run)(x, kin_parallel_for);
    Py_END_ALLOW_THREADS
    free(own);
    return ok;
}

bool
launch_convolution_weight(const kin_convolution_weight *x)
{
    bool ok;
    Py_BEGIN_ALLOW_THREADS
    ok = kin_convolution_weight_run(x, kin_parallel_for);
    Py_END_ALLOW_THREADS
    return ok;
}

PyObject *
launch_conv(const launch_library *l, PyObject *x, PyObject *weight, PyObject *bias, PyObject *added)
{
    PyObject *post = l->call.post == KIN_POST_RELU ? ops.relu : ops.none, *args[13];
    unsigned n = 0;
    args[n++] = x;
    if (added != NULL)
        args[n++] = added;
    args[n++] = weight;
    args[n++] = bias != NULL ? bias : Py_None;
    for (unsigned i = 0; i < 4; i++)
        args[n++] = PyTuple_GET_ITEM(l->fixed, i);
    if (added != NULL) {
        args[n++] = ops.add;
        args[n++] = ops.one;
        if (l->call.post != KIN_POST_RELU)
            post = Py_None;
    }
    args[n++] = post;
    args[n++] = ops.empty;
    args[n++] = Py_None;
    return PyObject_Vectorcall(added != NULL ? ops.conv_binary : ops.conv, args, n, NULL);
}

bool
launch_pack_weight(const launch_library *l, const int64_t *x_sizes, PyObject *weight, launch_packed *out, size_t *bytes)
{
    PyObject *sizes = list_of(x_sizes, l->call.nspatial + 2u);
    PyObject *args[] = {weight, PyTuple_GET_ITEM(l->fixed, 0), PyTuple_GET_ITEM(l->fixed, 1),
                        PyTuple_GET_ITEM(l->fixed, 2), PyTuple_GET_ITEM(l->fixed, 3), sizes};
    out->weight = sizes == NULL ? NULL : PyObject_Vectorcall(ops.reorder, args, 6, NULL);
    Py_XDECREF(sizes);
    PyErr_Clear();
    const int64_t *w = kin_tensor_sizes(weight);
    *bytes = sizeof(float);
    for (unsigned d = 0; d < l->call.nspatial + 2u; d++)
        *bytes *= (size_t)w[d];
    return out->weight != NULL;
}

void
launch_packed_free(launch_packed *packed)
{
    kin_gemm_free(packed->matrix);
    Py_XDECREF(packed->weight);
    free(packed->panels);
    *packed = (launch_packed){0};
}
