/* Runs a compiled program on the tensors of a call (run.h).
 *
 * Nothing visible to the user's program changes before the end of the run, except the state of the random number generator, which can be restored. So if
 * anything goes wrong (an index out of bounds, an unexpected layout of a result, an exception), the run is given up without a trace, and
 * the subgraph's steps run instead, as in eager.
 */
#include "py/aten/threads.h"
#include "py/run/running.h"

#include <fenv.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/clock.h"
#include "py/aten/block.h"
#include "py/aten/make.h"
#include "py/aten/profiler.h"
#include "py/aten/tensor.h"
#include "py/run/frozen.h"

/* Estimated time on one core from which more of them, and letting other Python threads run, pay. */
static const double SHARE_NS = 30e3, THREAD_NS = 15e3;

/* -- buffers ---------------------------------------------------------------------------------------------------- */

/* Borrowed; NULL: nothing reads it. */
static PyObject *
input_tensor(const launch_inputs *inputs, uint32_t index)
{
    return index < inputs->n ? inputs->in[inputs->input_of[index]] : inputs->values[index - inputs->n];
}

/* In a block that was used before, if it is large. */
static PyObject *
new_output(const launch_running *r, const kin_buf *buf)
{
    kin_dtype dtype = (kin_dtype)buf->dtype;
    PyObject *tensor = r->once ? NULL : kin_tensor_in_block(dtype, buf->ndim, buf->sizes, buf->strides, buf->bytes);
    return tensor != NULL ? tensor : kin_tensor_new(dtype, buf->ndim, buf->sizes, buf->strides, false);
}

static bool
open_buffer(launch_running *r, uint32_t b)
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

/* Below this many bytes a program keeps an arena of its own, which takes less time than to share one. */
enum { OWN_ARENA = 32 << 10 };

static bool
take_arena(launch_running *r)
{
    if (r->p->arena == 0)
        return true;
    kin_blocks *blocks = r->p->arena < OWN_ARENA ? NULL : kin_process_blocks();
    r->arena = r->block = blocks == NULL ? NULL : kin_block_borrow(blocks, r->p->arena);
    if (r->arena != NULL)
        return true;
    r->arena = r->lp->arena;
    r->lp->arena = NULL;
    if (r->arena == NULL)
        r->arena = aligned_alloc(64, (r->p->arena + 63) & ~(size_t)63);
    return r->arena != NULL;
}

/* A shared one serves the next program that runs, or the same program's plan for other sizes. */
static void
give_arena(launch_running *r)
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
    if (s->kernel->fn(s->buffers, from, to < s->kernel->range ? to : s->kernel->range, s->kernel->numbers) != 0)
        atomic_store(&s->failed, 1);
}

/* Writing past the caches takes aligned memory, which everybody has who makes buffers here. */
static bool
is_aligned(const launch_running *r, const kin_kernel *k)
{
    for (uint32_t i = 0; i < k->nbuffers; i++) {
        const kin_buf *buf = &r->p->buffers.at[k->buffers[i]];
        if ((buf->kind == KIN_BUF_OUTPUT || buf->kind == KIN_BUF_TEMP) && (uintptr_t)r->data[k->buffers[i]] % 64 != 0)
            return false;
    }
    return true;
}

static bool
run_kernel(launch_running *r, const kin_kernel *k)
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
        atomic_store(&s.failed, k->fn(buffers, 0, k->range, k->numbers));
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

/* -- all of it -------------------------------------------------------------------------------------------------- */

/* All but the last ones, which write to inputs. */
static bool
run_ops(launch_running *r)
{
    for (uint32_t b = 0; b < r->p->buffers.len; b++)
        if (!open_buffer(r, b))
            return false;
    bool rows = kin_profiler_on();
    for (uint32_t i = 0; i < r->p->ops.len - r->p->nwrite_backs; i++) {
        const kin_program_op *op = &r->p->ops.at[i];
        double begin = launch_profiling ? kin_clock_ns() : 0;
        r->begun = i + 1;
        PyObject *row = rows ? launch_profile_begin_row(r->p, op) : NULL;
        bool ok = op->is_extern ? launch_run_extern(r, op->index) : run_kernel(r, &r->p->kernels.at[op->index]);
        kin_profiler_end(row);
        if (!ok)
            return false;
        if (launch_profiling && launch_profile_of(r->lp) != NULL)
            launch_profile_note(&r->lp->spent[i], kin_clock_ns() - begin);
        for (uint32_t k = 0; k < r->lp->ndies[i]; k++)
            Py_CLEAR(r->tensors[r->lp->dies[i][k]]);
    }
    return true;
}

/* What was written to inputs on the way is as it was before. */
static void
undo_writes(launch_running *r)
{
    for (uint32_t u = r->p->undos.len; u-- > 0;)
        if (r->p->undos.at[u].op < r->begun)
            (void)run_kernel(r, &r->p->kernels.at[r->p->undos.at[u].kernel]);
}

/* From here on nothing can fail. */
static void
write_inputs(launch_running *r, const launch_code *code)
{
    bool rows = kin_profiler_on();
    for (uint32_t i = r->p->ops.len - r->p->nwrite_backs; i < r->p->ops.len; i++) {
        PyObject *row = rows ? launch_profile_begin_row(r->p, &r->p->ops.at[i]) : NULL;
        (void)run_kernel(r, &r->p->kernels.at[r->p->ops.at[i].index]);
        kin_profiler_end(row);
    }
    launch_count_writes(r, code);
}

/* -- runs ------------------------------------------------------------------------------------------------------- */

/* Nothing has happened so far; without clearing the whole text. */
static void
begin_outcome(launch_outcome *outcome)
{
    outcome->warned = outcome->invalid = false;
    outcome->foreign[0] = 0;
    memset(&outcome->hints, 0, sizeof outcome->hints);
}

/* Opens a run: memory for its buffers, in `small` when it fits. */
static bool
start(launch_running *r, launch_program *lp, const launch_inputs *inputs, launch_outcome *outcome, void **small, uint32_t room)
{
    uint32_t nbuffers = lp->program->buffers.len;
    void **words = 2 * nbuffers <= room ? small : malloc(2 * nbuffers * sizeof *words);
    *r = (launch_running){.lp = lp, .p = lp->program, .inputs = inputs, .data = words, .outcome = outcome};
    if (words == NULL)
        return false;
    memset(words, 0, 2 * nbuffers * sizeof *words);
    r->tensors = (PyObject **)(void *)(words + nbuffers);
    return take_arena(r);
}

static void
finish(launch_running *r, void **small)
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
run_noting_nans(launch_running *r)
{
    fexcept_t before;
    atomic_int found = 0;
    fegetexceptflag(&before, FE_INVALID);
    uint32_t limit = kin_parallel_limit(0); /* convolutions know of none */
    kin_parallel_for(LAUNCH_EVERY_THREAD, 1, forget_invalid, NULL);
    kin_parallel_limit(limit);
    bool ok = run_ops(r);
    kin_parallel_limit(0);
    kin_parallel_for(LAUNCH_EVERY_THREAD, 1, look_for_invalid, &found);
    kin_parallel_limit(limit);
    fesetexceptflag(&before, FE_INVALID);
    r->outcome->invalid = atomic_load(&found) != 0;
    return ok && !r->outcome->invalid;
}

bool
launch_code_give(launch_running *r, launch_code *code, const launch_inputs *inputs, uint32_t threads, launch_outcome *outcome,
                 launch_giver give, void *arg)
{
    void *small[256];
    begin_outcome(outcome);
    uint32_t limit = kin_parallel_limit(threads);
    bool ok = start(r, &code->main, inputs, outcome, small, 256) && (code->loses_nan ? run_noting_nans(r) : run_ops(r));
    ok = ok && (outcome->foreign[0] == 0 || code->copes) && give(r, code, arg);
    if (ok)
        write_inputs(r, code);
    else
        undo_writes(r);
    kin_parallel_limit(limit);
    finish(r, small);
    code->runs += ok;
    return ok;
}

static bool
give_all(launch_running *r, const launch_code *code, void *out)
{
    return launch_hand_out(r, code, out);
}

launch_result
launch_code_run(launch_code *code, uint32_t threads, uint64_t moment, PyObject *const *in, PyObject **out, launch_outcome *outcome)
{
    double begin = launch_profiling ? kin_clock_ns() : 0;
    begin_outcome(outcome);
    if (!launch_may_write(code, in))
        return LAUNCH_SHARED;
    code->running++;
    launch_prepared *prepared = code->frozen == NULL ? NULL : launch_frozen_take(code->frozen, code, moment, in);
    if (code->frozen != NULL && prepared == NULL) {
        code->running--;
        return LAUNCH_STALE;
    }
    launch_inputs inputs = {.in = in, .input_of = code->input_of, .n = code->ninputs,
                            .values = prepared == NULL ? NULL : prepared->values,
                            .packed = prepared == NULL ? NULL : prepared->packed};
    launch_running r;
    bool ok = launch_code_give(&r, code, &inputs, threads, outcome, give_all, out);
    launch_prepared_release(prepared);
    code->running--;
    if (ok && begin != 0)
        launch_profile_whole(&code->main, kin_clock_ns() - begin);
    if (!ok) {
        launch_put_back_random(&r);
        PyErr_Clear();
    }
    Py_XDECREF(r.random);
    return ok ? LAUNCH_DONE : LAUNCH_FAILED;
}

bool
launch_program_run(launch_program *p, const launch_inputs *inputs, PyObject **outputs)
{
    void *small[64];
    launch_running r;
    launch_outcome outcome;
    begin_outcome(&outcome);
    bool ok = start(&r, p, inputs, &outcome, small, 64);
    r.once = true;
    ok = ok && run_ops(&r) && outcome.foreign[0] == 0;
    for (uint32_t i = 0; ok && i < p->program->noutputs; i++)
        ok = r.tensors[p->program->outputs[i]] != NULL;
    for (uint32_t i = 0; ok && i < p->program->noutputs; i++)
        outputs[i] = Py_NewRef(r.tensors[p->program->outputs[i]]);
    if (!ok)
        launch_put_back_random(&r);
    PyErr_Clear();
    finish(&r, small);
    Py_XDECREF(r.random);
    kin_vec_deinit(&outcome.hints);
    return ok;
}

bool
launch_program_pack(const launch_program *p, const launch_inputs *inputs, launch_packed *packed, size_t *bytes)
{
    launch_program inputs_only = {.program = p->program, .externs = p->externs};
    uint32_t nbuffers = p->program->buffers.len;
    launch_running r = {.lp = &inputs_only, .p = p->program, .inputs = inputs, .data = calloc(2 * nbuffers + 1, sizeof *r.data)};
    bool ok = r.data != NULL;
    if (ok)
        r.tensors = (PyObject **)(void *)(r.data + nbuffers);
    for (uint32_t b = 0; ok && b < nbuffers; b++)
        ok = p->program->buffers.at[b].kind != KIN_BUF_INPUT || open_buffer(&r, b);
    ok = ok && launch_pack_all(&r, packed, bytes);
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

static void
deinit_program(launch_program *p)
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
    if (code->known_at != NULL)
        *code->known_at = NULL;
    Py_XDECREF(code->training);
    launch_frozen_free(code->frozen);
    deinit_program(&code->main);
    deinit_program(&code->once);
    for (uint32_t i = 0; code->outs != NULL && i < code->nouts; i++) {
        Py_XDECREF(code->outs[i].sizes);
        Py_XDECREF(code->outs[i].strides);
    }
    free_gives(code->give, code->ngive);
    free_gives(code->by_fake, code->nfakes);
    free(code->only_packed);
    free(code->writes);
    free(code->outs);
    free(code->input_of);
    free(code);
}
