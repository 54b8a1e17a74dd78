/* Library calls of a compiled program (running.h): products, attention and convolutions on its buffers, and packing of their weights. */
#include "py/aten/threads.h"
#include "py/run/running.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "py/aten/block.h"
#include "py/aten/make.h"
#include "py/aten/tensor.h"

/* The first one of several, where dims come before those of a matrix. */
static kin_matrix
matrix_at(const launch_running *r, const kin_extern_arg *arg, unsigned dim)
{
    kin_dtype dtype = r->p->buffers.at[arg->buffer].dtype;
    const char *data = r->data[arg->buffer];
    return (kin_matrix){data == NULL ? NULL : data + arg->offset * kin_dtype_bytes(dtype), arg->sizes[dim], arg->sizes[dim + 1],
                        arg->strides[dim], arg->strides[dim + 1], launch_matrix_form(dtype)};
}

static kin_matrix
matrix_of(const launch_running *r, const kin_extern_arg *arg)
{
    return matrix_at(r, arg, 0);
}

/* What is run on the blocks of a product; NULL: nothing. `buffers` has room for KIN_EPILOGUE_BUFFERS. */
static const kin_epilogue *
epilogue_of(const launch_running *r, const kin_extern_call *call, void **buffers, kin_epilogue *out)
{
    if (call->epilogue == 0)
        return NULL;
    const kin_kernel *k = &r->p->kernels.at[call->epilogue - 1];
    for (uint32_t i = 0; i < k->nbuffers; i++)
        buffers[i] = r->data[k->buffers[i]];
    *out = (kin_epilogue){.fn = k->fn, .numbers = k->numbers, .buffers = buffers, .nbuffers = k->nbuffers, .columns = call->columns};
    return out;
}

static bool
run_matmul(launch_running *r, const kin_extern_call *call, const launch_packed *packed)
{
    kin_matrix a = matrix_of(r, &call->args[0]), b = matrix_of(r, &call->args[1]);
    void *buffers[KIN_EPILOGUE_BUFFERS];
    kin_epilogue then;
    return call->results[0] == UINT32_MAX ||
           launch_matmul(&a, &b, packed, r->data[call->results[0]], epilogue_of(r, call, buffers, &then));
}

/* The first of several matrices. */
static kin_matrix
first_of(const launch_running *r, const kin_extern_arg *arg)
{
    return matrix_at(r, arg, 1);
}

static bool
run_products(launch_running *r, const kin_extern_call *call)
{
    const kin_extern_arg *a = &call->args[0], *b = &call->args[1];
    if (call->results[0] == UINT32_MAX)
        return true;
    kin_gemm_blocked p = {.a = first_of(r, a), .b = first_of(r, b), .c = r->data[call->results[0]], .ldc = b->sizes[2], .count = a->sizes[0],
                     .a_step = a->strides[0], .b_step = b->strides[0], .c_step = a->sizes[1] * b->sizes[2]};
    void *buffers[KIN_EPILOGUE_BUFFERS];
    kin_epilogue then;
    p.then = epilogue_of(r, call, buffers, &then);
    return launch_products(&p);
}

/* Strides of an argument that is read as if it had four dims: 0 where it repeats. */
static const float *
spread(const launch_running *r, const kin_extern_arg *arg, int64_t *strides)
{
    for (unsigned d = 0; d < 4; d++) {
        unsigned missing = 4u - arg->ndim;
        strides[d] = d < missing || arg->sizes[d - missing] == 1 ? 0 : arg->strides[d - missing];
    }
    return (const float *)r->data[arg->buffer] + arg->offset;
}

static bool
run_attention(launch_running *r, const launch_library *l, const kin_extern_call *call)
{
    uint32_t b = call->results[0];
    if (b == UINT32_MAX)
        return true;
    const int64_t *q = call->args[0].sizes, *v = call->args[2].sizes;
    kin_attention x = {.batch = q[0], .heads = q[1], .key_heads = v[1], .rows = q[2], .keys = v[2], .depth = q[3], .width = v[3],
                       .out = r->data[b], .scale = (float)l->call.scale, .causal = l->call.causal};
    x.q = spread(r, &call->args[0], x.q_strides);
    x.k = spread(r, &call->args[1], x.k_strides);
    x.v = spread(r, &call->args[2], x.v_strides);
    x.mask = l->call.has_add ? spread(r, &call->args[3], x.mask_strides) : NULL;
    memcpy(x.out_strides, r->p->buffers.at[b].strides, sizeof x.out_strides);
    return launch_attention(&x);
}

static const float *
floats_of(const launch_running *r, const kin_extern_arg *arg)
{
    return (const float *)r->data[arg->buffer] + arg->offset;
}

static bool
run_recurrent(launch_running *r, const kin_library_call *c, const kin_extern_call *call)
{
    if (call->results[0] == UINT32_MAX)
        return true;
    const kin_extern_arg *from = &call->args[0], *h = &call->args[1], *more = &call->args[3];
    kin_recurrent x = {.cell = (kin_cell)c->cell, .reverse = c->reverse, .keeps = c->keeps, .steps = from->sizes[0], .batch = from->sizes[1], .width = h->sizes[1],
                       .from = floats_of(r, from), .h = floats_of(r, h), .panels = floats_of(r, &call->args[2]), .to = r->data[call->results[0]]};
    memcpy(x.from_strides, from->strides, sizeof x.from_strides);
    memcpy(x.h_strides, h->strides, sizeof x.h_strides);
    if (c->has_bias) {
        x.bias = floats_of(r, more);
        x.bias_stride = more++->strides[0];
    }
    if (c->has_add) {
        x.c = floats_of(r, more);
        memcpy(x.c_strides, more->strides, sizeof x.c_strides);
    }
    return launch_recurrent(&x);
}

static const float *
lay_floats(const launch_running *r, const kin_extern_arg *arg, int64_t *strides)
{
    memcpy(strides, arg->strides, arg->ndim * sizeof *strides);
    return floats_of(r, arg);
}

static bool
run_recurrent_backward(launch_running *r, const kin_library_call *c, const kin_extern_call *call)
{
    if (call->results[0] == UINT32_MAX)
        return true;
    const kin_extern_arg *args = call->args;
    kin_recurrent_backward x = {.cell = (kin_cell)c->cell, .reverse = c->reverse, .steps = args[0].sizes[0], .batch = args[0].sizes[1],
                                .width = args[0].sizes[2], .panels = floats_of(r, &args[3]), .to = r->data[call->results[0]]};
    x.back = lay_floats(r, &args[0], x.back_strides);
    x.h = lay_floats(r, &args[1], x.h_strides);
    x.kept = lay_floats(r, &args[2], x.kept_strides);
    if (x.cell == KIN_CELL_LSTM) {
        x.c = lay_floats(r, &args[4], x.c_strides);
        x.first_c = lay_floats(r, &args[5], x.first_c_strides);
    } else {
        x.results = lay_floats(r, &args[4], x.results_strides);
        x.first_h = lay_floats(r, &args[5], x.first_h_strides);
    }
    return launch_recurrent_backward(&x);
}

/* Five strides of an argument with batch, channels and up to three dims of space, which come last. */
static const void *
lay_image(const launch_running *r, const kin_extern_arg *arg, int64_t *strides)
{
    for (unsigned d = 0; d < 2 + KIN_CONVOLUTION_SPACE; d++) {
        int source = d < 2 ? (int)d : (int)(arg->ndim + d) - (2 + KIN_CONVOLUTION_SPACE);
        strides[d] = d < 2 || source >= 2 ? arg->strides[source] : 0;
    }
    const char *data = r->data[arg->buffer];
    return data == NULL ? NULL : data + arg->offset * kin_dtype_bytes(r->p->buffers.at[arg->buffer].dtype);
}

/* Sizes and settings; `y` is its result. */
static kin_convolution
shape_convolution(const launch_running *r, const kin_library_call *c, const kin_extern_call *call, const kin_buf *y)
{
    const kin_extern_arg *x = &call->args[0], *weight = &call->args[1];
    kin_convolution k = {.batch = x->sizes[0], .channels = x->sizes[1], .filters = c->transposed ? weight->sizes[1] * c->groups : weight->sizes[0], .groups = c->groups,
                         .pairs = r->p->buffers.at[x->buffer].dtype == KIN_BF16, .limited = c->post != KIN_POST_NONE, .least = (float)c->least, .most = (float)c->most};
    for (unsigned d = 0; d < KIN_CONVOLUTION_SPACE; d++) {
        int at = (int)(d + c->nspatial) - KIN_CONVOLUTION_SPACE;
        k.in[d] = at < 0 ? 1 : x->sizes[2 + at];
        k.kernel[d] = at < 0 ? 1 : weight->sizes[2 + at];
        k.stride[d] = at < 0 ? 1 : c->stride[at];
        k.padding[d] = at < 0 ? 0 : c->padding[at];
        k.dilation[d] = at < 0 ? 1 : c->dilation[at];
        k.out[d] = at < 0 ? 1 : (k.in[d] + 2 * k.padding[d] - k.dilation[d] * (k.kernel[d] - 1) - 1) / k.stride[d] + 1;
        if (at >= 0 && c->transposed) /* its output padding is not known here */
            k.out[d] = y == NULL ? 0 : y->sizes[2 + at];
    }
    return k;
}

/* The bias, which our kernels read as numbers next to each other: as it lies, or (expanded, every second number) copied to `room`, which the caller frees. NULL: no memory. */
static const float *
lay_bias(const launch_running *r, const kin_extern_arg *arg, float **room)
{
    const float *bias = floats_of(r, arg);
    if (arg->ndim == 0 || arg->sizes[0] < 2 || arg->strides[0] == 1)
        return bias;
    *room = malloc((size_t)arg->sizes[0] * sizeof **room);
    for (int64_t i = 0; *room != NULL && i < arg->sizes[0]; i++)
        (*room)[i] = bias[i * arg->strides[0]];
    return *room;
}

static bool
run_own_conv(launch_running *r, const kin_library_call *c, const kin_extern_call *call, const launch_packed *packed)
{
    uint32_t b = call->results[0];
    if (b == UINT32_MAX)
        return true;
    kin_convolution k = shape_convolution(r, c, call, &r->p->buffers.at[b]);
    int64_t weight_strides[2 + KIN_CONVOLUTION_SPACE];
    unsigned n = 2;
    const void *weight = lay_image(r, &call->args[1], weight_strides);
    k.x = lay_image(r, &call->args[0], k.x_strides);
    float *room = NULL;
    if (c->has_bias && (k.bias = lay_bias(r, &call->args[n++], &room)) == NULL)
        return false;
    if (c->has_add)
        k.added = lay_image(r, &call->args[n], k.added_strides);
    k.y = r->data[b];
    void *buffers[KIN_EPILOGUE_BUFFERS];
    kin_epilogue then;
    k.then = epilogue_of(r, call, buffers, &then);
    bool done = launch_convolution(c, &k, weight, weight_strides, packed);
    free(room);
    return done;
}

/* Four strides and two sizes of an argument with batch, channels and one or two dims of space, which come last. */
static const float *
lay_plane(const launch_running *r, const kin_extern_arg *arg, int64_t *sizes, int64_t *strides)
{
    for (unsigned d = 0; d < 2; d++) {
        int source = (int)(arg->ndim + d) - 2;
        strides[d] = arg->strides[d];
        strides[2 + d] = source >= 2 ? arg->strides[source] : 0;
        sizes[d] = source >= 2 ? arg->sizes[source] : 1;
    }
    return (const float *)r->data[arg->buffer] + arg->offset;
}

static bool
run_conv_weight(launch_running *r, const kin_library_call *c, const kin_extern_call *call)
{
    uint32_t b = call->results[0];
    if (b == UINT32_MAX)
        return true;
    const kin_extern_arg *back = &call->args[0], *image = &call->args[1];
    const kin_buf *to = &r->p->buffers.at[b];
    kin_convolution_weight x = {.batch = image->sizes[0], .channels = image->sizes[1], .filters = back->sizes[1], .groups = c->groups,
                                .to = r->data[b]};
    x.x = lay_plane(r, image, x.in, x.x_strides);
    x.back = lay_plane(r, back, x.out, x.back_strides);
    for (unsigned d = 0; d < 2; d++) {
        int at = (int)(d + c->nspatial) - 2;
        x.kernel[d] = at < 0 ? 1 : to->sizes[1 + at];
        x.stride[d] = at < 0 ? 1 : c->stride[at];
        x.padding[d] = at < 0 ? 0 : c->padding[at];
        x.dilation[d] = at < 0 ? 1 : c->dilation[at];
    }
    return launch_convolution_weight(&x);
}

static bool
run_conv(launch_running *r, const launch_library *l, const kin_extern_call *call, const launch_packed *packed)
{
    uint32_t b = call->results[0];
    if (b == UINT32_MAX)
        return true;
    unsigned n = 2;
    PyObject *x = launch_make_argument(r, &call->args[0]);
    PyObject *weight = packed != NULL && packed->weight != NULL ? Py_NewRef(packed->weight) : launch_make_argument(r, &call->args[1]);
    PyObject *bias = l->call.has_bias ? launch_make_argument(r, &call->args[n++]) : NULL;
    PyObject *added = l->call.has_add ? launch_make_argument(r, &call->args[n]) : NULL;
    bool complete = x != NULL && weight != NULL && (bias != NULL || !l->call.has_bias) && (added != NULL || !l->call.has_add);
    PyObject *result = complete ? launch_conv(l, x, weight, bias, added) : NULL;
    const kin_buf *buf = &r->p->buffers.at[b];
    if (result != NULL && !launch_is_as_foreseen(buf, result))
        Py_SETREF(result, launch_lay_out_again(buf, result));
    r->tensors[b] = result;
    r->data[b] = result == NULL ? NULL : kin_tensor_data(result);
    Py_XDECREF(x);
    Py_XDECREF(weight);
    Py_XDECREF(bias);
    Py_XDECREF(added);
    return result != NULL;
}

static bool
run_bernoulli(launch_running *r, const kin_library_call *c, const kin_extern_call *call)
{
    uint32_t b = call->results[0];
    if (b == UINT32_MAX || !launch_keep_random(r))
        return false;
    return launch_bernoulli(c->scale, (int64_t)(r->p->buffers.at[b].bytes / sizeof(float)), r->data[b]);
}

bool
launch_run_library(launch_running *r, uint32_t index)
{
    const launch_library *l = r->lp->externs[index].library;
    const kin_extern_call *call = &r->p->externs.at[index];
    const launch_packed *packed = r->inputs->packed == NULL ? NULL : &r->inputs->packed[index];
    switch ((kin_library_kind)l->call.kind) {
    case KIN_LIBRARY_MATMUL:
        return call->args[0].ndim == 3 ? run_products(r, call) : run_matmul(r, call, packed);
    case KIN_LIBRARY_ATTENTION:
        return run_attention(r, l, call);
    case KIN_LIBRARY_RECURRENT:
        return run_recurrent(r, &l->call, call);
    case KIN_LIBRARY_RECURRENT_BACKWARD:
        return run_recurrent_backward(r, &l->call, call);
    case KIN_LIBRARY_CONV_WEIGHT:
        return run_conv_weight(r, &l->call, call);
    case KIN_LIBRARY_BERNOULLI:
        return run_bernoulli(r, &l->call, call);
    case KIN_LIBRARY_CONV:
        return l->call.own ? run_own_conv(r, &l->call, call, packed) : run_conv(r, l, call, packed);
    }
    return false;
}

/* Weights of products are packed by all threads, each taking the next one: it is mostly the kernel clearing pages. */
typedef struct {
    launch_running *r;
    launch_packed *packed;
    atomic_uint next;
    atomic_int failed;
    atomic_size_t bytes;
} packing;

static bool
packs_product(const launch_running *r, uint32_t i)
{
    const launch_extern *e = &r->lp->externs[i];
    return e->packs && e->library->call.kind == KIN_LIBRARY_MATMUL;
}

static int64_t
rows_packed_for(const launch_program *lp, uint32_t i)
{
    return lp->externs[i].packs == LAUNCH_PACKS_ANY_ROWS ? KIN_GEMM_ANY_ROWS : lp->program->externs.at[i].args[0].sizes[0];
}

static void
pack_products(int64_t begin, int64_t end, void *arg)
{
    packing *k = arg;
    for (uint32_t i; (i = atomic_fetch_add(&k->next, 1)) < k->r->p->externs.len;) {
        if (!packs_product(k->r, i))
            continue;
        const kin_extern_call *call = &k->r->p->externs.at[i];
        kin_matrix b = matrix_of(k->r, &call->args[1]);
        size_t bytes = 0;
        if (!launch_pack_matrix(rows_packed_for(k->r->lp, i), &b, &k->packed[i], &bytes))
            atomic_store(&k->failed, 1);
        atomic_fetch_add(&k->bytes, bytes);
    }
}

static bool
pack_convolution(launch_running *r, uint32_t index, launch_packed *out, size_t *bytes)
{
    const kin_extern_call *call = &r->p->externs.at[index];
    const kin_library_call *c = &r->lp->externs[index].library->call;
    size_t more = 0;
    if (c->own) {
        kin_convolution k = shape_convolution(r, c, call, NULL);
        int64_t strides[2 + KIN_CONVOLUTION_SPACE];
        const void *data = lay_image(r, &call->args[1], strides);
        bool packed = launch_pack_filters(c, &k, data, strides, out, &more);
        *bytes += more;
        return packed;
    }
    PyObject *weight = launch_make_argument(r, &call->args[1]);
    bool ok = weight != NULL && launch_pack_weight(r->lp->externs[index].library, call->args[0].sizes, weight, out, &more);
    Py_XDECREF(weight);
    *bytes += more;
    return ok;
}

static void
say_numbers(const int64_t *numbers, unsigned n, kin_text *out)
{
    for (unsigned i = 0; i < n; i++)
        kin_text_addf(out, " %lld", (long long)numbers[i]);
}

void
launch_say_packing(const launch_program *lp, uint32_t i, kin_text *out)
{
    launch_program of = {.program = lp->program, .externs = lp->externs};
    launch_running r = {.lp = &of, .p = lp->program};
    const kin_extern_call *call = &lp->program->externs.at[i];
    const kin_library_call *c = &lp->externs[i].library->call;
    const kin_extern_arg *x = &call->args[0], *weight = &call->args[1];
    const kin_buf *from = &lp->program->buffers.at[weight->buffer];
    kin_text_addf(out, "%u: %u of %u.%u %u at %lld", i, c->kind, from->kind, from->index, from->dtype, (long long)weight->offset);
    say_numbers(weight->sizes, weight->ndim, out);
    say_numbers(weight->strides, weight->ndim, out);
    if (c->kind == KIN_LIBRARY_CONV && c->own) {
        kin_convolution k = shape_convolution(&r, c, call, NULL);
        kin_text_addf(out, " panels %d %lld %zu\n", c->transposed, (long long)c->groups,
                      c->transposed ? kin_transposed_panels_len(&k) : kin_convolution_panels_len(&k));
    } else if (c->kind == KIN_LIBRARY_CONV) {
        kin_text_add(out, " reordered for"); /* the input's sizes as well: with weights reordered for others oneDNN reorders them in each call */
        say_numbers(x->sizes, x->ndim, out);
        say_numbers(c->stride, 3, out);
        say_numbers(c->padding, 3, out);
        say_numbers(c->dilation, 3, out);
        kin_text_addf(out, " %lld\n", (long long)c->groups);
    } else {
        kin_text_addf(out, " matrix %lld\n", (long long)rows_packed_for(lp, i));
    }
}

bool
launch_pack_all(launch_running *r, launch_packed *packed, size_t *bytes)
{
    packing k = {.r = r, .packed = packed};
    Py_BEGIN_ALLOW_THREADS
    kin_parallel_for(LAUNCH_EVERY_THREAD, 1, pack_products, &k);
    Py_END_ALLOW_THREADS
    *bytes += atomic_load(&k.bytes);
    bool ok = atomic_load(&k.failed) == 0;
    for (uint32_t i = 0; ok && i < r->p->externs.len; i++)
        ok = !r->lp->externs[i].packs || packs_product(r, i) || pack_convolution(r, i, &packed[i], bytes);
    return ok;
}
