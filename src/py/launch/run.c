/* Runs a compiled program on the tensors of a call (run.h).
 *
 * Nothing of the program is changed before it has ended, unless an operator with effects ran: until then whatever goes
 * wrong (an index out of bounds, a result of another layout than foreseen, an exception) ends the run without a trace, and
 * the unit's steps do it again as eager does.
 */
#include "py/launch/run.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "py/aten/make.h"
#include "py/aten/tensor.h"
#include "py/compat/failure.h"

/* Estimated time on one core from which more of them, and letting other Python threads run, pay. */
static const double SHARE_NS = 30e3, THREAD_NS = 15e3;

typedef struct {
    const launch_code *code;
    const kin_program *p;
    PyObject *const *in;
    void **data;        /* by buffer */
    PyObject **tensors; /* by buffer, owned */
    void *arena;
    bool acted;         /* an operator with effects ran */
    char foreign[80];   /* name of an operator whose result is not as foreseen */
    kin_capture_hints hints; /* ... how such results lie */
} running;

/* -- buffers ---------------------------------------------------------------------------------------------------- */

static bool
open_buffer(running *r, uint32_t b)
{
    const kin_buf *buf = &r->p->buffers.at[b];
    switch ((kin_buf_kind)buf->kind) {
    case KIN_BUF_INPUT:
        r->tensors[b] = Py_NewRef(r->in[r->code->input_of[buf->index]]);
        break;
    case KIN_BUF_OUTPUT:
        r->tensors[b] = kin_tensor_new((kin_dtype)buf->dtype, buf->ndim, buf->sizes, buf->strides, false);
        break;
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
take_arena(running *r, launch_code *code)
{
    if (r->p->arena == 0)
        return true;
    r->arena = code->arena;
    code->arena = NULL;
    if (r->arena == NULL)
        r->arena = aligned_alloc(64, (r->p->arena + 63) & ~(size_t)63);
    return r->arena != NULL;
}

static void
give_arena(running *r, launch_code *code)
{
    if (code->arena == NULL)
        code->arena = r->arena;
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

static bool
run_kernel(running *r, const kin_kernel *k)
{
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

static bool
run_extern(running *r, uint32_t index)
{
    const launch_extern *e = &r->code->externs[index];
    filler f = {.r = r, .call = &r->p->externs.at[index]};
    PyObject *args = fill_argument(&f, e->args), *result = NULL;
    PyObject *kwargs = args == NULL || e->kwargs == NULL ? NULL : fill_keywords(&f, e->kwargs);
    if (args != NULL && (kwargs != NULL || e->kwargs == NULL)) {
        r->acted = r->acted || e->effect;
        result = PyObject_Call(e->op, args, kwargs);
    }
    uint32_t next = 0;
    bool ok = result != NULL && take_results(r, f.call, args, result, &next);
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
    return view;
}

static PyObject *
make_out(running *r, const launch_out *o)
{
    if (o->kind == KIN_OUT_INPUT)
        return o->whole ? Py_NewRef(r->in[o->index]) : view_of(r->in[o->index], o);
    PyObject *tensor = r->tensors[r->p->outputs[o->index]];
    if (tensor == NULL) {
        PyErr_SetString(PyExc_RuntimeError, "kintsugi: an output has no tensor");
        return NULL;
    }
    return o->kind == KIN_OUT_SHARED ? view_of(tensor, o) : Py_NewRef(tensor);
}

static PyObject *
give(running *r, const launch_give *g, PyObject *const *made)
{
    return g->kind == LAUNCH_GIVE_INPUT ? Py_NewRef(r->in[g->index]) : Py_NewRef(made[g->index]);
}

/* A container as captured, with the tensors of this run. */
static PyObject *
give_shape(running *r, PyObject *obj, PyObject *const *made)
{
    uint32_t number = kin_capture_number(obj);
    if (number < r->code->nstand_ins)
        return give(r, &r->code->by_stand_in[number], made);
    if (!PyTuple_Check(obj) && !PyList_CheckExact(obj))
        return Py_NewRef(obj);
    Py_ssize_t n = PySequence_Fast_GET_SIZE(obj);
    PyObject *list = PyList_New(n);
    for (Py_ssize_t i = 0; list != NULL && i < n; i++) {
        PyObject *item = give_shape(r, PySequence_Fast_GET_ITEM(obj, i), made);
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
hand_out(running *r, PyObject **out)
{
    const launch_code *code = r->code;
    PyObject *small[16], **made = code->nouts <= 16 ? small : malloc(code->nouts * sizeof *made);
    bool ok = made != NULL;
    uint32_t n = 0, given = 0;
    while (ok && n < code->nouts)
        ok = (made[n] = make_out(r, &code->outs[n])) != NULL && ++n > 0;
    while (ok && given < code->ngive) {
        const launch_give *g = &code->give[given];
        out[given] = g->kind == LAUNCH_GIVE_OTHER ? give_shape(r, g->shape, made) : give(r, g, made);
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

static bool
run_ops(running *r)
{
    for (uint32_t b = 0; b < r->p->buffers.len; b++)
        if (!open_buffer(r, b))
            return false;
    for (uint32_t i = 0; i < r->p->ops.len; i++) {
        const kin_op *op = &r->p->ops.at[i];
        if (op->is_extern ? !run_extern(r, op->index) : !run_kernel(r, &r->p->kernels.at[op->index]))
            return false;
        for (uint32_t k = 0; k < r->code->ndies[i]; k++)
            Py_CLEAR(r->tensors[r->code->dies[i][k]]);
    }
    return true;
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
    for (uint32_t i = 0; i < version->code->program->externs.len; i++)
        if (version->code->externs[i].effect)
            return true;
    return false;
}

/* The run came to nothing. */
static kin_launch
fail(running *r, const kernel_launcher *self, launch_version *version)
{
    if (r->acted) {
        if (!PyErr_Occurred())
            kin_failure_raise("kintsugi: a compiled graph failed after an effect");
        return KIN_LAUNCH_RAISED;
    }
    PyErr_Clear();
    version->failures++;
    if (r->foreign[0] != 0 && launch_drop(version)) {
        version->again = learn(version, &r->hints);
        snprintf(version->reason, sizeof version->reason, "%s gave something else than foreseen", r->foreign);
        if (!version->again)
            launch_say(&self->context, self->unit, version->reason);
    }
    return KIN_LAUNCH_NOT;
}

kin_launch
launch_run(const kernel_launcher *self, launch_version *version, PyObject *const *in, PyObject **out)
{
    launch_code *code = version->code;
    uint32_t nbuffers = code->program->buffers.len;
    void *small[128], **words = 2 * nbuffers <= 128 ? small : malloc(2 * nbuffers * sizeof *words);
    running r = {.code = code, .p = code->program, .in = in};
    if (words == NULL)
        return KIN_LAUNCH_NOT;
    memset(words, 0, 2 * nbuffers * sizeof *words);
    r.data = words;
    r.tensors = (PyObject **)(void *)(words + nbuffers);
    code->running++;
    bool ok = take_arena(&r, code) && run_ops(&r) && (r.foreign[0] == 0 || r.acted) && hand_out(&r, out);
    for (uint32_t b = 0; b < nbuffers; b++)
        Py_XDECREF(r.tensors[b]);
    give_arena(&r, code);
    if (words != small)
        free(words);
    code->runs += ok;
    code->running--;
    kin_launch done = ok ? KIN_LAUNCH_DONE : fail(&r, self, version);
    kin_vec_deinit(&r.hints);
    return done;
}

static void
free_gives(launch_give *gives, uint32_t n)
{
    for (uint32_t i = 0; gives != NULL && i < n; i++)
        Py_XDECREF(gives[i].shape);
    free(gives);
}

void
launch_code_free(launch_code *code)
{
    if (code == NULL)
        return;
    uint32_t nexterns = code->program == NULL ? 0 : code->program->externs.len;
    for (uint32_t i = 0; code->externs != NULL && i < nexterns; i++) {
        Py_XDECREF(code->externs[i].op);
        Py_XDECREF(code->externs[i].args);
        Py_XDECREF(code->externs[i].kwargs);
    }
    for (uint32_t i = 0; code->outs != NULL && i < code->nouts; i++) {
        Py_XDECREF(code->outs[i].sizes);
        Py_XDECREF(code->outs[i].strides);
    }
    for (uint32_t i = 0; code->dies != NULL && i < code->program->ops.len; i++)
        free(code->dies[i]);
    free_gives(code->give, code->ngive);
    free_gives(code->by_stand_in, code->nstand_ins);
    free(code->externs);
    free(code->outs);
    free(code->input_of);
    free(code->dies);
    free(code->ndies);
    free(code->arena);
    kin_program_free(code->program);
    free(code);
}
