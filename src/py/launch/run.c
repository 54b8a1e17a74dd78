/* Runs a compiled program on the tensors of a call (run.h).
 *
 * Nothing of the program is changed before it has ended, but for the state of the random numbers, which can be put back. So whatever
 * goes wrong (an index out of bounds, a result of another layout than foreseen, an exception) ends the run without a trace, and
 * the unit's steps do it again as eager does.
 */
#include "py/launch/run.h"

#include <fenv.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "py/aten/block.h"
#include "py/aten/make.h"
#include "py/aten/tensor.h"
#include "py/aten/warn.h"
#include "py/launch/frozen.h"

/* Estimated time on one core from which more of them, and letting other Python threads run, pay. */
static const double SHARE_NS = 30e3, THREAD_NS = 15e3;

enum { EVERY_THREAD = 4096 /* more than there are: each gets a part */ };

typedef struct {
    launch_program *lp;
    const kin_program *p;
    const launch_inputs *inputs;
    void **data;        /* by buffer */
    PyObject **tensors; /* by buffer, owned */
    void *arena, *block; /* block: the arena, when it is one of core/blocks */
    PyObject *random;   /* state of the random numbers before the first operator that draws some; NULL: none did */
    bool once;          /* its results are kept: no blocks for them */
    bool warned;        /* an operator warned, without having been heard */
    bool invalid;       /* a NaN may have been lost */
    char foreign[80];   /* name of an operator whose result is not as foreseen */
    kin_capture_hints hints; /* ... how such results lie */
} running;

/* -- buffers ---------------------------------------------------------------------------------------------------- */

/* Borrowed; NULL: nothing reads it. */
static PyObject *
input_tensor(const launch_inputs *inputs, uint32_t index)
{
    return index < inputs->n ? inputs->in[inputs->input_of[index]] : inputs->values[index - inputs->n];
}

/* In a block that was used before, if it is large. */
static PyObject *
new_output(const running *r, const kin_buf *buf)
{
    kin_dtype dtype = (kin_dtype)buf->dtype;
    PyObject *tensor = r->once ? NULL : kin_tensor_in_block(dtype, buf->ndim, buf->sizes, buf->strides, buf->bytes);
    return tensor != NULL ? tensor : kin_tensor_new(dtype, buf->ndim, buf->sizes, buf->strides, false);
}

static bool
open_buffer(running *r, uint32_t b)
{
    const kin_buf *buf = &r->p->buffers.at[b];
    switch ((kin_buf_kind)buf->kind) {
    case KIN_BUF_INPUT:
        r->tensors[b] = Py_XNewRef(input_tensor(r->inputs, buf->index));
        if (r->tensors[b] == NULL)
            return true;
        break;
    case KIN_BUF_OUTPUT: r->tensors[b] = new_output(r, buf); break;
    case KIN_BUF_TEMP:
        r->data[b] = (char *)r->arena + buf->offset;
        return true;
    case KIN_BUF_CONST:
        r->data[b] = (void *)(uintptr_t)buf->data;
        return true;
    case KIN_BUF_EXTERN:
        return true;
    }
    if (r->tensors[b] == NULL)
        return false;
    r->data[b] = kin_tensor_data(r->tensors[b]);
    return true;
}

static bool
take_arena(running *r)
{
    if (r->p->arena == 0)
        return true;
    kin_blocks *blocks = kin_process_blocks();
    r->arena = r->block = blocks == NULL ? NULL : kin_block_take(blocks, r->p->arena);
    if (r->arena != NULL)
        return true;
    r->arena = r->lp->arena;
    r->lp->arena = NULL;
    if (r->arena == NULL)
        r->arena = aligned_alloc(64, (r->p->arena + 63) & ~(size_t)63);
    return r->arena != NULL;
}

/* A large one may serve the next program that runs. */
static void
give_arena(running *r)
{
    if (r->block != NULL)
        kin_block_give(kin_process_blocks(), r->block);
    else if (r->lp->arena == NULL && !r->once)
        r->lp->arena = r->arena;
    else
        free(r->arena);
}

/* -- kernels ---------------------------------------------------------------------------------------------------- */

typedef struct {
    const kin_kernel *kernel;
    void *const *buffers;
    int64_t grain;
    atomic_int failed;
} share;

static void
run_share(int64_t begin, int64_t end, void *arg)
{
    share *s = arg;
    int64_t from = begin * s->grain, to = end * s->grain;
    if (s->kernel->fn(s->buffers, from, to < s->kernel->range ? to : s->kernel->range) != 0)
        atomic_store(&s->failed, 1);
}

/* Writing past the caches takes aligned memory, which everybody has who makes buffers here. */
static bool
is_aligned(const running *r, const kin_kernel *k)
{
    for (uint32_t i = 0; i < k->nbuffers; i++) {
        const kin_buf *buf = &r->p->buffers.at[k->buffers[i]];
        if ((buf->kind == KIN_BUF_OUTPUT || buf->kind == KIN_BUF_TEMP) && (uintptr_t)r->data[k->buffers[i]] % 64 != 0)
            return false;
    }
    return true;
}

static bool
run_kernel(running *r, const kin_kernel *k)
{
    if (k->streams && !is_aligned(r, k))
        return false;
    void *small[32], **buffers = k->nbuffers <= 32 ? small : malloc(k->nbuffers * sizeof *buffers);
    if (buffers == NULL)
        return false;
    for (uint32_t i = 0; i < k->nbuffers; i++)
        buffers[i] = r->data[k->buffers[i]];
    share s = {.kernel = k, .buffers = buffers, .grain = k->grain > 0 ? k->grain : 1};
    int64_t blocks = (k->range + s.grain - 1) / s.grain;
    if (k->cost < SHARE_NS)
        atomic_store(&s.failed, k->fn(buffers, 0, k->range));
    else {
        int64_t least = (int64_t)((double)blocks * THREAD_NS / k->cost);
        Py_BEGIN_ALLOW_THREADS
        kin_parallel_for(blocks, least > 0 ? least : 1, run_share, &s);
        Py_END_ALLOW_THREADS
    }
    if (buffers != small)
        free(buffers);
    return atomic_load(&s.failed) == 0;
}

/* -- extern calls ----------------------------------------------------------------------------------------------- */

/* A tensor for (part of) a buffer: new reference. */
static PyObject *
make_argument(running *r, const kin_extern_arg *arg)
{
    const kin_buf *buf = &r->p->buffers.at[arg->buffer];
    if (arg->whole && r->tensors[arg->buffer] != NULL)
        return Py_NewRef(r->tensors[arg->buffer]);
    kin_dtype dtype = (kin_dtype)buf->dtype;
    char *data = r->data[arg->buffer];
    if (arg->whole)
        return kin_tensor_over(data, dtype, buf->ndim, buf->sizes, buf->strides);
    return kin_tensor_over(data + arg->offset * (int64_t)kin_dtype_bytes(dtype), dtype, arg->ndim, arg->sizes, arg->strides);
}

typedef struct {
    running *r;
    const kin_extern_call *call;
    uint32_t next; /* of call->args */
} filler;

/* The captured argument with tensors in place of stand-ins: new reference. */
static PyObject *
fill_argument(filler *f, PyObject *obj)
{
    if (kin_capture_number(obj) != UINT32_MAX) {
        if (f->next < f->call->nargs)
            return make_argument(f->r, &f->call->args[f->next++]);
        PyErr_SetString(PyExc_RuntimeError, "kintsugi: an extern call has too few tensors");
        return NULL;
    }
    if (!PyList_CheckExact(obj) && !PyTuple_CheckExact(obj))
        return Py_NewRef(obj);
    Py_ssize_t n = PySequence_Fast_GET_SIZE(obj);
    bool is_list = PyList_CheckExact(obj);
    PyObject *made = is_list ? PyList_New(n) : PyTuple_New(n);
    for (Py_ssize_t i = 0; made != NULL && i < n; i++) {
        PyObject *item = fill_argument(f, PySequence_Fast_GET_ITEM(obj, i));
        if (item == NULL)
            Py_CLEAR(made);
        else if (is_list)
            PyList_SET_ITEM(made, i, item);
        else
            PyTuple_SET_ITEM(made, i, item);
    }
    return made;
}

static PyObject *
fill_keywords(filler *f, PyObject *kwargs)
{
    PyObject *made = PyDict_New(), *key, *value;
    Py_ssize_t pos = 0;
    while (made != NULL && PyDict_Next(kwargs, &pos, &key, &value)) {
        PyObject *item = fill_argument(f, value);
        if (item == NULL || PyDict_SetItem(made, key, item) < 0)
            Py_CLEAR(made);
        Py_XDECREF(item);
    }
    return made;
}

static bool
is_as_foreseen(const kin_buf *buf, PyObject *tensor)
{
    kin_dtype dtype;
    if (!kin_tensor_is_ordinary(tensor) || !kin_tensor_dtype(tensor, &dtype) || (uint8_t)dtype != buf->dtype ||
        kin_tensor_dim(tensor) != buf->ndim)
        return false;
    const int64_t *sizes = kin_tensor_sizes(tensor), *strides = kin_tensor_strides(tensor);
    bool empty = false, same = true;
    for (unsigned d = 0; d < buf->ndim; d++) {
        empty = empty || sizes[d] == 0;
        same = same && (sizes[d] <= 1 || strides[d] == buf->strides[d]);
        if (sizes[d] != buf->sizes[d])
            return false;
    }
    return empty || same;
}

/* A result that lies otherwise than foreseen: copied. */
static PyObject *
lay_out_again(const kin_buf *buf, PyObject *tensor)
{
    PyObject *copy = kin_tensor_new((kin_dtype)buf->dtype, buf->ndim, buf->sizes, buf->strides, false);
    PyObject *done = copy == NULL ? NULL : PyObject_CallMethod(copy, "copy_", "O", tensor);
    if (done == NULL)
        Py_CLEAR(copy);
    Py_XDECREF(done);
    return copy;
}

/* Results are memory of their own: what shares an argument's would be lost with it. */
static bool
shares_argument(PyObject *tensor, PyObject *args)
{
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(args); i++) {
        PyObject *arg = PyTuple_GET_ITEM(args, i);
        if (kin_is_tensor(arg) && kin_tensor_storage(arg) == kin_tensor_storage(tensor))
            return true;
    }
    return false;
}

/* Whoever compiles the unit again will know better. False: the result is another one altogether. */
static bool
note_foreign(running *r, const kin_extern_call *call, uint32_t which, PyObject *result)
{
    const kin_buf *buf = &r->p->buffers.at[call->results[which]];
    kin_dtype dtype;
    size_t row = buf->ndim * sizeof(int64_t);
    snprintf(r->foreign, sizeof r->foreign, "%s", call->name);
    bool same = kin_tensor_is_ordinary(result) && kin_tensor_dtype(result, &dtype) && (uint8_t)dtype == buf->dtype &&
                kin_tensor_dim(result) == buf->ndim && buf->ndim <= 8 &&
                memcmp(kin_tensor_sizes(result), buf->sizes, row) == 0;
    kin_capture_hint hint = {.call = call->number, .which = which, .ndim = buf->ndim};
    if (!same)
        return false;
    memcpy(hint.strides, kin_tensor_strides(result), row);
    return kin_vec_push(&r->hints, hint) == KIN_OK;
}

/* Takes the `*next`-th and following results out of what the operator gave. */
static bool
take_results(running *r, const kin_extern_call *call, PyObject *args, PyObject *result, uint32_t *next)
{
    if (!kin_is_tensor(result)) {
        if (!PyTuple_Check(result) && !PyList_CheckExact(result))
            return result == Py_None;
        for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(result); i++)
            if (!take_results(r, call, args, PySequence_Fast_GET_ITEM(result, i), next))
                return false;
        return true;
    }
    uint32_t which = (*next)++, b = which < call->nresults ? call->results[which] : UINT32_MAX;
    if (b == UINT32_MAX)
        return true;
    const kin_buf *buf = &r->p->buffers.at[b];
    if (is_as_foreseen(buf, result) && !shares_argument(result, args))
        r->tensors[b] = Py_NewRef(result);
    else if (!note_foreign(r, call, which, result) || (r->tensors[b] = lay_out_again(buf, result)) == NULL)
        return false;
    r->data[b] = kin_tensor_data(r->tensors[b]);
    return true;
}

/* -- library calls ---------------------------------------------------------------------------------------------- */

static kin_matrix
matrix_of(const running *r, const kin_extern_arg *arg)
{
    const float *data = r->data[arg->buffer];
    return (kin_matrix){data == NULL ? NULL : data + arg->offset, arg->sizes[0], arg->sizes[1], arg->strides[0], arg->strides[1]};
}

/* What is run on the blocks of a product; NULL: nothing. `buffers` has room for KIN_EPILOGUE_BUFFERS. */
static const kin_epilogue *
epilogue_of(const running *r, const kin_extern_call *call, void **buffers, kin_epilogue *out)
{
    if (call->epilogue == 0)
        return NULL;
    const kin_kernel *k = &r->p->kernels.at[call->epilogue - 1];
    for (uint32_t i = 0; i < k->nbuffers; i++)
        buffers[i] = r->data[k->buffers[i]];
    *out = (kin_epilogue){.fn = k->fn, .buffers = buffers, .nbuffers = k->nbuffers, .columns = call->columns};
    return out;
}

static bool
run_matmul(running *r, const kin_extern_call *call, const launch_packed *packed)
{
    kin_matrix a = matrix_of(r, &call->args[0]), b = matrix_of(r, &call->args[1]);
    void *buffers[KIN_EPILOGUE_BUFFERS];
    kin_epilogue then;
    return call->results[0] == UINT32_MAX ||
           launch_matmul(&a, &b, packed, r->data[call->results[0]], epilogue_of(r, call, buffers, &then));
}

/* The first of several matrices. */
static kin_matrix
first_of(const running *r, const kin_extern_arg *arg)
{
    const float *data = (const float *)r->data[arg->buffer] + arg->offset;
    return (kin_matrix){data, arg->sizes[1], arg->sizes[2], arg->strides[1], arg->strides[2]};
}

static bool
run_products(running *r, const kin_extern_call *call)
{
    const kin_extern_arg *a = &call->args[0], *b = &call->args[1];
    if (call->results[0] == UINT32_MAX)
        return true;
    kin_product p = {.a = first_of(r, a), .b = first_of(r, b), .c = r->data[call->results[0]], .ldc = b->sizes[2], .count = a->sizes[0],
                     .a_step = a->strides[0], .b_step = b->strides[0], .c_step = a->sizes[1] * b->sizes[2]};
    void *buffers[KIN_EPILOGUE_BUFFERS];
    kin_epilogue then;
    p.then = epilogue_of(r, call, buffers, &then);
    return launch_products(&p);
}

/* Strides of an argument that is read as if it had four dims: 0 where it repeats. */
static const float *
spread(const running *r, const kin_extern_arg *arg, int64_t *strides)
{
    for (unsigned d = 0; d < 4; d++) {
        unsigned missing = 4u - arg->ndim;
        strides[d] = d < missing || arg->sizes[d - missing] == 1 ? 0 : arg->strides[d - missing];
    }
    return (const float *)r->data[arg->buffer] + arg->offset;
}

static bool
run_attention(running *r, const launch_library *l, const kin_extern_call *call)
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

/* Five strides of an argument with batch, channels and up to three dims of space, which come last. */
static const float *
lay_image(const running *r, const kin_extern_arg *arg, int64_t *strides)
{
    for (unsigned d = 0; d < 2 + KIN_CONVOLUTION_SPACE; d++) {
        int source = d < 2 ? (int)d : (int)(arg->ndim + d) - (2 + KIN_CONVOLUTION_SPACE);
        strides[d] = d < 2 || source >= 2 ? arg->strides[source] : 0;
    }
    const float *data = r->data[arg->buffer];
    return data == NULL ? NULL : data + arg->offset;
}

/* Sizes and settings; `y` is its result. */
static kin_convolution
shape_convolution(const kin_library_call *c, const kin_extern_call *call, const kin_buf *y)
{
    const kin_extern_arg *x = &call->args[0], *weight = &call->args[1];
    kin_convolution k = {.batch = x->sizes[0], .channels = x->sizes[1], .filters = weight->sizes[c->transposed ? 1 : 0], .groups = c->groups,
                         .limited = c->post != KIN_POST_NONE, .least = (float)c->least, .most = (float)c->most};
    for (unsigned d = 0; d < KIN_CONVOLUTION_SPACE; d++) {
        int at = (int)(d + c->nspatial) - KIN_CONVOLUTION_SPACE;
        k.in[d] = at < 0 ? 1 : x->sizes[2 + at];
        k.out[d] = at < 0 ? 1 : y == NULL ? 0 : y->sizes[2 + at];
        k.kernel[d] = at < 0 ? 1 : weight->sizes[2 + at];
        k.stride[d] = at < 0 ? 1 : c->stride[at];
        k.padding[d] = at < 0 ? 0 : c->padding[at];
        k.dilation[d] = at < 0 ? 1 : c->dilation[at];
    }
    return k;
}

static bool
run_own_conv(running *r, const kin_library_call *c, const kin_extern_call *call, const launch_packed *packed)
{
    uint32_t b = call->results[0];
    if (b == UINT32_MAX)
        return true;
    kin_convolution k = shape_convolution(c, call, &r->p->buffers.at[b]);
    int64_t weight_strides[2 + KIN_CONVOLUTION_SPACE];
    unsigned n = 2;
    const float *weight = lay_image(r, &call->args[1], weight_strides);
    k.x = lay_image(r, &call->args[0], k.x_strides);
    if (c->has_bias) {
        k.bias = (const float *)r->data[call->args[n].buffer] + call->args[n].offset;
        n++;
    }
    if (c->has_add)
        k.added = lay_image(r, &call->args[n], k.added_strides);
    k.y = r->data[b];
    void *buffers[KIN_EPILOGUE_BUFFERS];
    kin_epilogue then;
    k.then = epilogue_of(r, call, buffers, &then);
    return launch_convolution(c, &k, weight, weight_strides, packed);
}

static bool
run_conv(running *r, const launch_library *l, const kin_extern_call *call, const launch_packed *packed)
{
    uint32_t b = call->results[0];
    if (b == UINT32_MAX)
        return true;
    unsigned n = 2;
    PyObject *x = make_argument(r, &call->args[0]);
    PyObject *weight = packed != NULL && packed->weight != NULL ? Py_NewRef(packed->weight) : make_argument(r, &call->args[1]);
    PyObject *bias = l->call.has_bias ? make_argument(r, &call->args[n++]) : NULL;
    PyObject *added = l->call.has_add ? make_argument(r, &call->args[n]) : NULL;
    bool complete = x != NULL && weight != NULL && (bias != NULL || !l->call.has_bias) && (added != NULL || !l->call.has_add);
    PyObject *result = complete ? launch_conv(l, x, weight, bias, added) : NULL;
    const kin_buf *buf = &r->p->buffers.at[b];
    if (result != NULL && !is_as_foreseen(buf, result))
        Py_SETREF(result, lay_out_again(buf, result));
    r->tensors[b] = result;
    r->data[b] = result == NULL ? NULL : kin_tensor_data(result);
    Py_XDECREF(x);
    Py_XDECREF(weight);
    Py_XDECREF(bias);
    Py_XDECREF(added);
    return result != NULL;
}

static bool
run_library(running *r, uint32_t index)
{
    const launch_library *l = r->lp->externs[index].library;
    const kin_extern_call *call = &r->p->externs.at[index];
    const launch_packed *packed = r->inputs->packed == NULL ? NULL : &r->inputs->packed[index];
    switch ((kin_library_kind)l->call.kind) {
    case KIN_LIBRARY_MATMUL:
        return call->args[0].ndim == 3 ? run_products(r, call) : run_matmul(r, call, packed);
    case KIN_LIBRARY_ATTENTION:
        return run_attention(r, l, call);
    case KIN_LIBRARY_CONV:
        return l->call.own ? run_own_conv(r, &l->call, call, packed) : run_conv(r, l, call, packed);
    }
    return false;
}

/* Weights of products are packed by all threads, each taking the next one: it is mostly the kernel clearing pages. */
typedef struct {
    running *r;
    launch_packed *packed;
    atomic_uint next;
    atomic_int failed;
    atomic_size_t bytes;
} packing;

static bool
packs_product(const running *r, uint32_t i)
{
    const launch_extern *e = &r->lp->externs[i];
    return e->packs && e->library->call.kind == KIN_LIBRARY_MATMUL;
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
        if (!launch_pack_matrix(call->args[0].sizes[0], &b, &k->packed[i], &bytes))
            atomic_store(&k->failed, 1);
        atomic_fetch_add(&k->bytes, bytes);
    }
}

static bool
pack_convolution(running *r, uint32_t index, launch_packed *out, size_t *bytes)
{
    const kin_extern_call *call = &r->p->externs.at[index];
    const kin_library_call *c = &r->lp->externs[index].library->call;
    size_t more = 0;
    if (c->own) {
        kin_convolution k = shape_convolution(c, call, NULL);
        int64_t strides[2 + KIN_CONVOLUTION_SPACE];
        const float *data = lay_image(r, &call->args[1], strides);
        bool packed = launch_pack_filters(c, &k, data, strides, out, &more);
        *bytes += more;
        return packed;
    }
    PyObject *weight = make_argument(r, &call->args[1]);
    bool ok = weight != NULL && launch_pack_weight(r->lp->externs[index].library, call->args[0].sizes, weight, out, &more);
    Py_XDECREF(weight);
    *bytes += more;
    return ok;
}

static bool
pack_all(running *r, launch_packed *packed, size_t *bytes)
{
    packing k = {.r = r, .packed = packed};
    Py_BEGIN_ALLOW_THREADS
    kin_parallel_for(EVERY_THREAD, 1, pack_products, &k);
    Py_END_ALLOW_THREADS
    *bytes += atomic_load(&k.bytes);
    bool ok = atomic_load(&k.failed) == 0;
    for (uint32_t i = 0; ok && i < r->p->externs.len; i++)
        ok = !r->lp->externs[i].packs || packs_product(r, i) || pack_convolution(r, i, &packed[i], bytes);
    return ok;
}

/* -- random numbers --------------------------------------------------------------------------------------------- */

/* torch.default_generator: borrowed. Generators that are arguments are not captured. */
static PyObject *
generator(void)
{
    static PyObject *found;
    if (found == NULL) {
        PyObject *torch = PyImport_ImportModule("torch");
        found = torch == NULL ? NULL : PyObject_GetAttrString(torch, "default_generator");
        Py_XDECREF(torch);
    }
    return found;
}

static bool
keep_random(running *r)
{
    if (r->random == NULL && generator() != NULL)
        r->random = PyObject_CallMethod(generator(), "get_state", NULL);
    return r->random != NULL;
}

static void
put_back_random(running *r)
{
    if (r->random == NULL)
        return;
    PyObject *type, *error, *tb;
    PyErr_Fetch(&type, &error, &tb);
    PyObject *done = PyObject_CallMethod(generator(), "set_state", "O", r->random);
    Py_XDECREF(done);
    PyErr_Clear();
    PyErr_Restore(type, error, tb);
}

/* -- operators -------------------------------------------------------------------------------------------------- */

static bool
run_extern(running *r, uint32_t index)
{
    const launch_extern *e = &r->lp->externs[index];
    if (e->library != NULL)
        return run_library(r, index);
    filler f = {.r = r, .call = &r->p->externs.at[index]};
    PyObject *args = fill_argument(&f, e->args), *result = NULL;
    PyObject *kwargs = args == NULL || e->kwargs == NULL ? NULL : fill_keywords(&f, e->kwargs);
    if (args != NULL && (kwargs != NULL || e->kwargs == NULL) && (!e->effect || keep_random(r))) {
        kin_warning_catch catch;
        kin_warnings_begin(&catch);
        result = PyObject_Call(e->op, args, kwargs);
        r->warned = kin_warnings_end(&catch) || r->warned;
    }
    uint32_t next = 0;
    bool ok = result != NULL && !r->warned && take_results(r, f.call, args, result, &next);
    Py_XDECREF(result);
    Py_XDECREF(args);
    Py_XDECREF(kwargs);
    return ok;
}

/* -- outputs ---------------------------------------------------------------------------------------------------- */

static PyObject *
view_of(PyObject *base, const launch_out *o)
{
    PyObject *at = PyLong_FromLongLong(kin_tensor_offset(base) + o->offset);
    PyObject *view = at == NULL ? NULL : PyObject_CallMethod(base, "as_strided", "OOO", o->sizes, o->strides, at);
    Py_XDECREF(at);
    if (view != NULL && o->apart)
        Py_SETREF(view, PyObject_CallMethod(view, "detach", NULL));
    return view;
}

/* A tensor counts how often it was written to, together with its views; in inference mode it does not. */
static void
count_writes(PyObject *tensor, uint32_t writes)
{
    PyObject *module = PyImport_ImportModule("torch._C._autograd");
    PyObject *done = module == NULL ? NULL : PyObject_CallMethod(module, "_unsafe_set_version_counter", "(O)(I)", tensor, writes);
    PyErr_Clear();
    Py_XDECREF(done);
    Py_XDECREF(module);
}

static PyObject *
make_out(running *r, const launch_out *o)
{
    PyObject *const *in = r->inputs->in;
    if (o->kind == KIN_OUT_INPUT)
        return o->whole ? Py_NewRef(in[o->index]) : view_of(in[o->index], o);
    PyObject *tensor = r->tensors[r->p->outputs[o->index]];
    if (tensor == NULL) {
        PyErr_SetString(PyExc_RuntimeError, "kintsugi: an output has no tensor");
        return NULL;
    }
    if (o->writes > 0)
        count_writes(tensor, o->writes);
    return o->kind == KIN_OUT_SHARED ? view_of(tensor, o) : Py_NewRef(tensor);
}

static PyObject *
give(running *r, const launch_give *g, PyObject *const *made)
{
    return g->kind == LAUNCH_GIVE_INPUT ? Py_NewRef(r->inputs->in[g->index]) : Py_NewRef(made[g->index]);
}

/* A container as captured, with the tensors of this run. */
static PyObject *
give_shape(running *r, const launch_code *code, PyObject *obj, PyObject *const *made)
{
    uint32_t number = kin_capture_number(obj);
    if (number < code->nstand_ins)
        return give(r, &code->by_stand_in[number], made);
    if (!PyTuple_Check(obj) && !PyList_CheckExact(obj))
        return Py_NewRef(obj);
    Py_ssize_t n = PySequence_Fast_GET_SIZE(obj);
    PyObject *list = PyList_New(n);
    for (Py_ssize_t i = 0; list != NULL && i < n; i++) {
        PyObject *item = give_shape(r, code, PySequence_Fast_GET_ITEM(obj, i), made);
        if (item == NULL)
            Py_CLEAR(list);
        else
            PyList_SET_ITEM(list, i, item);
    }
    if (list == NULL || PyList_CheckExact(obj))
        return list;
    /* Tuples, and the named results of operators, which are made from a sequence. */
    PyObject *tuple = PyTuple_CheckExact(obj) ? PyList_AsTuple(list) : PyObject_CallOneArg((PyObject *)Py_TYPE(obj), list);
    Py_DECREF(list);
    return tuple;
}

static bool
hand_out(running *r, const launch_code *code, PyObject **out)
{
    PyObject *small[16], **made = code->nouts <= 16 ? small : malloc(code->nouts * sizeof *made);
    bool ok = made != NULL;
    uint32_t n = 0, given = 0;
    while (ok && n < code->nouts)
        ok = (made[n] = make_out(r, &code->outs[n])) != NULL && ++n > 0;
    while (ok && given < code->ngive) {
        const launch_give *g = &code->give[given];
        out[given] = g->kind == LAUNCH_GIVE_OTHER ? give_shape(r, code, g->shape, made) : give(r, g, made);
        ok = out[given] != NULL && ++given > 0;
    }
    for (uint32_t i = 0; !ok && i < given; i++)
        Py_CLEAR(out[i]);
    for (uint32_t i = 0; i < n; i++)
        Py_DECREF(made[i]);
    if (made != small)
        free(made);
    return ok;
}

/* -- all of it -------------------------------------------------------------------------------------------------- */

/* All but the last ones, which write to inputs. */
static bool
run_ops(running *r)
{
    for (uint32_t b = 0; b < r->p->buffers.len; b++)
        if (!open_buffer(r, b))
            return false;
    for (uint32_t i = 0; i < r->p->ops.len - r->p->ncommits; i++) {
        const kin_op *op = &r->p->ops.at[i];
        double begin = launch_profiling ? launch_now() : 0;
        if (op->is_extern ? !run_extern(r, op->index) : !run_kernel(r, &r->p->kernels.at[op->index]))
            return false;
        if (launch_profiling && launch_profile_of(r->lp) != NULL)
            launch_profile_note(&r->lp->spent[i], launch_now() - begin);
        for (uint32_t k = 0; k < r->lp->ndies[i]; k++)
            Py_CLEAR(r->tensors[r->lp->dies[i][k]]);
    }
    return true;
}

/* From here on nothing can fail. */
static void
write_inputs(running *r, const launch_code *code)
{
    for (uint32_t i = r->p->ops.len - r->p->ncommits; i < r->p->ops.len; i++)
        (void)run_kernel(r, &r->p->kernels.at[r->p->ops.at[i].index]);
    for (uint32_t w = 0; w < code->nwrites; w++)
        kin_tensor_bump(r->inputs->in[code->writes[w].input], code->writes[w].times);
}

/* -- inputs that are written to ---------------------------------------------------------------------------------- */

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
is_writable(const launch_code *code, PyObject *const *in, uint32_t input)
{
    stretch s = memory_of(in[input]);
    if (kin_tensor_is_inference(in[input]) && !kin_inference_enabled())
        return false;
    for (uint32_t i = 0; i < code->ninputs; i++) {
        stretch other = code->input_of[i] == input ? (stretch){0} : memory_of(in[code->input_of[i]]);
        if (s.from < other.to && other.from < s.to)
            return false;
    }
    return true;
}

static bool
may_write(const launch_code *code, PyObject *const *in)
{
    for (uint32_t w = 0; w < code->nwrites; w++)
        if (!is_writable(code, in, code->writes[w].input))
            return false;
    return true;
}

/* Opens a run: memory for its buffers, in `small` when it fits. */
static bool
start(running *r, launch_program *lp, const launch_inputs *inputs, void **small, uint32_t room)
{
    uint32_t nbuffers = lp->program->buffers.len;
    void **words = 2 * nbuffers <= room ? small : malloc(2 * nbuffers * sizeof *words);
    *r = (running){.lp = lp, .p = lp->program, .inputs = inputs, .data = words};
    if (words == NULL)
        return false;
    memset(words, 0, 2 * nbuffers * sizeof *words);
    r->tensors = (PyObject **)(void *)(words + nbuffers);
    return take_arena(r);
}

static void
finish(running *r, void **small)
{
    for (uint32_t b = 0; r->data != NULL && b < r->p->buffers.len; b++)
        Py_XDECREF(r->tensors[b]);
    give_arena(r);
    if (r->data != small)
        free(r->data);
}

/* -- NaNs ------------------------------------------------------------------------------------------------------- */

/* A relu inside of a library call makes 0 of a NaN where eager keeps it. The comparison is an invalid operation, which the
 * processor notes, for each thread: the run is then given up and its steps give the NaN. */

static void
forget_invalid(int64_t begin, int64_t end, void *arg)
{
    feclearexcept(FE_INVALID);
}

static void
look_for_invalid(int64_t begin, int64_t end, void *arg)
{
    if (fetestexcept(FE_INVALID))
        atomic_store((atomic_int *)arg, 1);
}

static bool
run_noting_nans(running *r)
{
    fexcept_t before;
    atomic_int found = 0;
    fegetexceptflag(&before, FE_INVALID);
    uint32_t limit = kin_parallel_limit(0); /* convolutions know of none */
    kin_parallel_for(EVERY_THREAD, 1, forget_invalid, NULL);
    kin_parallel_limit(limit);
    bool ok = run_ops(r);
    kin_parallel_limit(0);
    kin_parallel_for(EVERY_THREAD, 1, look_for_invalid, &found);
    kin_parallel_limit(limit);
    fesetexceptflag(&before, FE_INVALID);
    r->invalid = atomic_load(&found) != 0;
    return ok && !r->invalid;
}

/* Is there something to be gained from compiling again? */
static bool
learn(launch_version *version, const kin_capture_hints *hints)
{
    enum { MOST = 1000 };
    if (version->hints.len + hints->len > MOST)
        return false;
    for (uint32_t k = 0; k < hints->len; k++) {
        const kin_capture_hint *hint = &hints->at[k];
        for (uint32_t i = 0; i < version->hints.len; i++)
            if (version->hints.at[i].call == hint->call && version->hints.at[i].which == hint->which)
                return false;
        if (kin_vec_push(&version->hints, *hint) != KIN_OK)
            return false;
    }
    return hints->len > 0;
}

bool
launch_drop(launch_version *version)
{
    if (version->code == NULL || version->code->running != 0)
        return false;
    launch_code_free(version->code);
    version->code = NULL;
    return true;
}

bool
launch_acts(const launch_version *version)
{
    const launch_program *p = &version->code->main;
    if (version->code->nwrites > 0)
        return true;
    for (uint32_t i = 0; i < p->program->externs.len; i++)
        if (p->externs[i].effect)
            return true;
    return false;
}

uint64_t
launch_renewals(const launch_version *version)
{
    return version->code == NULL || version->code->frozen == NULL ? 0 : launch_frozen_renewals(version->code->frozen);
}

/* The run came to nothing. */
static kin_launch
fail(running *r, kernel_launcher *self, launch_version *version)
{
    put_back_random(r);
    PyErr_Clear();
    version->failures++;
    enum { MANY_NANS = 4 };
    if (r->invalid && ++version->nans >= MANY_NANS && launch_drop(version)) {
        self->exact_nan = version->again = true;
        launch_say_thawed(self, "NaNs are common in it");
    } else if (r->warned && launch_drop(version)) { /* the steps' warnings are heard */
        snprintf(version->reason, sizeof version->reason, "an operator warns");
        launch_say(self, version->reason);
    } else if (r->foreign[0] != 0 && launch_drop(version)) {
        version->again = learn(version, &r->hints);
        snprintf(version->reason, sizeof version->reason, "%s gave something else than foreseen", r->foreign);
        if (!version->again)
            launch_say(self, version->reason);
    }
    return KIN_LAUNCH_NOT;
}

static void
forget_trials(launch_version *version)
{
    version->warm = version->trusted = false;
    version->nlaunches = version->nsteps = 0;
    version->launch_ns = version->steps_ns = 0;
}

/* Weights did not stay as they were: compiled anew at the next call, without counting on that. */
static void
give_up_frozen(kernel_launcher *self, launch_version *version)
{
    if (version->code->running > 0 || !launch_frozen_lost(version->code->frozen, &self->thawed))
        return;
    launch_say_thawed(self, launch_frozen_why(version->code->frozen));
    if (!launch_drop(version))
        return;
    version->again = true;
    forget_trials(version);
}

kin_launch
launch_run(kernel_launcher *self, launch_version *version, PyObject *const *in, PyObject **out)
{
    launch_code *code = version->code;
    double begin = launch_profiling ? launch_now() : 0;
    if (!may_write(code, in))
        return KIN_LAUNCH_NOT;
    code->running++;
    launch_prepared *prepared = code->frozen == NULL ? NULL : launch_frozen_take(code->frozen, code, in);
    if (code->frozen != NULL && prepared == NULL) {
        code->running--;
        give_up_frozen(self, version);
        return KIN_LAUNCH_NOT;
    }
    launch_inputs inputs = {.in = in, .input_of = code->input_of, .n = code->ninputs,
                            .values = prepared == NULL ? NULL : prepared->values,
                            .packed = prepared == NULL ? NULL : prepared->packed};
    void *small[256];
    running r;
    uint32_t limit = kin_parallel_limit(self->context.threads);
    bool ok = start(&r, &code->main, &inputs, small, 256) && (code->loses_nan ? run_noting_nans(&r) : run_ops(&r));
    ok = ok && r.foreign[0] == 0 && hand_out(&r, code, out);
    if (ok)
        write_inputs(&r, code);
    kin_parallel_limit(limit);
    finish(&r, small);
    launch_prepared_release(prepared);
    code->runs += ok;
    code->running--;
    if (ok && begin != 0 && launch_profile_of(&code->main) != NULL)
        launch_profile_note(&code->main.spent[code->main.program->ops.len], launch_now() - begin);
    kin_launch done = ok ? KIN_LAUNCH_DONE : fail(&r, self, version);
    Py_XDECREF(r.random);
    kin_vec_deinit(&r.hints);
    return done;
}

bool
launch_program_run(launch_program *p, const launch_inputs *inputs, PyObject **outputs)
{
    void *small[64];
    running r;
    bool ok = start(&r, p, inputs, small, 64);
    r.once = true;
    ok = ok && run_ops(&r) && r.foreign[0] == 0;
    for (uint32_t i = 0; ok && i < p->program->noutputs; i++)
        ok = r.tensors[p->program->outputs[i]] != NULL;
    for (uint32_t i = 0; ok && i < p->program->noutputs; i++)
        outputs[i] = Py_NewRef(r.tensors[p->program->outputs[i]]);
    if (!ok)
        put_back_random(&r);
    PyErr_Clear();
    finish(&r, small);
    Py_XDECREF(r.random);
    kin_vec_deinit(&r.hints);
    return ok;
}

bool
launch_program_pack(const launch_program *p, const launch_inputs *inputs, launch_packed *packed, size_t *bytes)
{
    launch_program inputs_only = {.program = p->program, .externs = p->externs};
    uint32_t nbuffers = p->program->buffers.len;
    running r = {.lp = &inputs_only, .p = p->program, .inputs = inputs, .data = calloc(2 * nbuffers + 1, sizeof *r.data)};
    bool ok = r.data != NULL;
    if (ok)
        r.tensors = (PyObject **)(void *)(r.data + nbuffers);
    for (uint32_t b = 0; ok && b < nbuffers; b++)
        ok = p->program->buffers.at[b].kind != KIN_BUF_INPUT || open_buffer(&r, b);
    ok = ok && pack_all(&r, packed, bytes);
    PyErr_Clear();
    finish(&r, NULL);
    return ok;
}

static void
free_gives(launch_give *gives, uint32_t n)
{
    for (uint32_t i = 0; gives != NULL && i < n; i++)
        Py_XDECREF(gives[i].shape);
    free(gives);
}

void
launch_program_deinit(launch_program *p)
{
    if (p->program == NULL)
        return;
    for (uint32_t i = 0; p->externs != NULL && i < p->program->externs.len; i++) {
        Py_XDECREF(p->externs[i].op);
        Py_XDECREF(p->externs[i].args);
        Py_XDECREF(p->externs[i].kwargs);
        launch_library_free(p->externs[i].library);
    }
    for (uint32_t i = 0; p->dies != NULL && i < p->program->ops.len; i++)
        free(p->dies[i]);
    free(p->externs);
    free(p->dies);
    free(p->ndies);
    free(p->spent);
    free(p->arena);
    kin_program_free(p->program);
    *p = (launch_program){0};
}

void
launch_code_free(launch_code *code)
{
    if (code == NULL)
        return;
    launch_frozen_free(code->frozen);
    launch_program_deinit(&code->main);
    launch_program_deinit(&code->once);
    for (uint32_t i = 0; code->outs != NULL && i < code->nouts; i++) {
        Py_XDECREF(code->outs[i].sizes);
        Py_XDECREF(code->outs[i].strides);
    }
    free_gives(code->give, code->ngive);
    free_gives(code->by_stand_in, code->nstand_ins);
    free(code->only_packed);
    free(code->writes);
    free(code->outs);
    free(code->input_of);
    free(code);
}
