/* Where the time of launches goes, for `kintsugi bench --profile`; off otherwise. Counts, for each operation of a program, how often it
 * ran and how long it took. Operations are identified by their names and the sizes of what they read and return.
 */
#include "py/run/run.h"

#include "py/compat/imports.h"

#include <stdlib.h>

bool launch_profiling;

void
kin_launch_set_profile(bool on)
{
    launch_profiling = on;
}

void
launch_profile_note(launch_spent *s, double ns)
{
    s->sum_ns += ns;
    s->best_ns = s->runs++ == 0 || ns < s->best_ns ? ns : s->best_ns;
}

launch_spent *
launch_profile_of(launch_program *p)
{
    if (p->spent == NULL)
        p->spent = calloc(p->program->ops.len + 1, sizeof *p->spent);
    return p->spent;
}

void
launch_profile_whole(launch_program *p, double ns)
{
    if (launch_profile_of(p) != NULL)
        launch_profile_note(&p->spent[p->program->ops.len], ns);
}

/* -- text --------------------------------------------------------------------------------------------------------- */

static void
say_sizes(kin_text *t, unsigned ndim, const int64_t *sizes)
{
    kin_text_addf(t, " [");
    for (unsigned d = 0; d < ndim; d++)
        kin_text_addf(t, "%s%lld", d ? ", " : "", (long long)sizes[d]);
    kin_text_addf(t, "]");
}

static void
say_op(kin_text *t, const kin_program *p, const kin_program_op *op)
{
    if (!op->is_extern) {
        const kin_kernel *k = &p->kernels.at[op->index];
        kin_text_addf(t, "%s", k->name);
        for (uint32_t i = 0; i < k->nbuffers; i++) {
            const kin_buf *buf = &p->buffers.at[k->buffers[i]];
            say_sizes(t, buf->ndim, buf->sizes);
        }
        return;
    }
    const kin_extern_call *c = &p->externs.at[op->index];
    kin_text_addf(t, "%s", c->name);
    for (uint32_t i = 0; i < c->nargs; i++) {
        const kin_buf *buf = &p->buffers.at[c->args[i].buffer];
        say_sizes(t, c->args[i].whole ? buf->ndim : c->args[i].ndim, c->args[i].whole ? buf->sizes : c->args[i].sizes);
    }
    if (c->epilogue)
        kin_text_addf(t, " then %s", p->kernels.at[c->epilogue - 1].name);
}

/* -- rows of torch.profiler --------------------------------------------------------------------------------------- */

static PyObject *
describe_tensor(kin_dtype dtype, unsigned ndim, const int64_t *sizes)
{
    PyObject *tuple = PyTuple_New((Py_ssize_t)ndim);
    for (unsigned d = 0; tuple != NULL && d < ndim; d++) {
        PyObject *size = PyLong_FromLongLong(sizes[d]);
        if (size == NULL)
            Py_CLEAR(tuple);
        else
            PyTuple_SET_ITEM(tuple, (Py_ssize_t)d, size);
    }
    return tuple == NULL ? NULL : Py_BuildValue("(sN)", kin_dtype_name(dtype), tuple);
}

static PyObject *
describe_tensors(const kin_program *p, const kin_program_op *op)
{
    const kin_kernel *k = op->is_extern ? NULL : &p->kernels.at[op->index];
    const kin_extern_call *c = op->is_extern ? &p->externs.at[op->index] : NULL;
    uint32_t n = k != NULL ? k->nbuffers : c->nargs;
    PyObject *tuple = PyTuple_New((Py_ssize_t)n);
    for (uint32_t i = 0; tuple != NULL && i < n; i++) {
        const kin_buf *buf = &p->buffers.at[k != NULL ? k->buffers[i] : c->args[i].buffer];
        bool part = c != NULL && !c->args[i].whole;
        PyObject *one = describe_tensor(buf->dtype, part ? c->args[i].ndim : buf->ndim, part ? c->args[i].sizes : buf->sizes);
        if (one == NULL)
            Py_CLEAR(tuple);
        else
            PyTuple_SET_ITEM(tuple, (Py_ssize_t)i, one);
    }
    return tuple;
}

PyObject *
launch_profile_begin_row(const kin_program *p, const kin_program_op *op)
{
    PyObject *begin = kin_import("kintsugi._ranges", "begin_kernel"), *tensors = describe_tensors(p, op);
    const char *name = op->is_extern ? p->externs.at[op->index].name : p->kernels.at[op->index].name;
    PyObject *row = begin == NULL || tensors == NULL ? NULL : PyObject_CallFunction(begin, "sO", name, tensors);
    PyErr_Clear();
    Py_XDECREF(begin);
    Py_XDECREF(tensors);
    return row;
}

/* -- for bench ---------------------------------------------------------------------------------------------------- */

/* What an operation moves and computes. */
typedef struct {
    unsigned long long bytes;    /* that it reads and writes, each buffer once */
    unsigned long long flops;    /* of its kernel, or of the kernel behind it */
    unsigned long long elements; /* of its first result */
} op_work;

static unsigned long long
count_elements(unsigned ndim, const int64_t *sizes)
{
    unsigned long long n = 1;
    for (unsigned d = 0; d < ndim; d++)
        n *= (unsigned long long)sizes[d];
    return n;
}

static unsigned long long
bytes_of(const kin_buf *buf, unsigned ndim, const int64_t *sizes)
{
    unsigned long long all = count_elements(ndim, sizes) * kin_dtype_bytes(buf->dtype);
    return all < buf->bytes ? all : buf->bytes; /* some stand for many: the tensor is expanded */
}

static void
add_kernel(op_work *w, const kin_program *p, const kin_kernel *k, const kin_extern_call *behind)
{
    w->flops += (unsigned long long)k->work.elements * k->work.arithmetic;
    for (uint32_t i = 0; i < k->nbuffers; i++) {
        bool seen = false;
        for (uint32_t j = 0; j < i; j++)
            seen |= k->buffers[j] == k->buffers[i];
        for (uint32_t j = 0; behind != NULL && j < behind->nresults; j++)
            seen |= behind->results[j] == k->buffers[i];
        const kin_buf *buf = &p->buffers.at[k->buffers[i]];
        w->bytes += seen ? 0 : bytes_of(buf, buf->ndim, buf->sizes);
    }
}

static op_work
work_of(const kin_program *p, const kin_program_op *op)
{
    op_work w = {0};
    if (!op->is_extern) {
        add_kernel(&w, p, &p->kernels.at[op->index], NULL);
        return w;
    }
    const kin_extern_call *c = &p->externs.at[op->index];
    for (uint32_t i = 0; i < c->nargs; i++) {
        const kin_buf *buf = &p->buffers.at[c->args[i].buffer];
        w.bytes += bytes_of(buf, c->args[i].whole ? buf->ndim : c->args[i].ndim, c->args[i].whole ? buf->sizes : c->args[i].sizes);
    }
    for (uint32_t i = 0; i < c->nresults; i++) {
        if (c->results[i] == UINT32_MAX)
            continue;
        const kin_buf *buf = &p->buffers.at[c->results[i]];
        w.bytes += bytes_of(buf, buf->ndim, buf->sizes);
        w.elements = i == 0 ? count_elements(buf->ndim, buf->sizes) : w.elements;
    }
    if (c->epilogue)
        add_kernel(&w, p, &p->kernels.at[c->epilogue - 1], c);
    return w;
}

static PyObject *
describe(const char *name, bool is_extern, op_work w, const launch_spent *s)
{
    return Py_BuildValue("{s:s,s:O,s:K,s:K,s:K,s:K,s:d,s:d}", "name", name, "extern", is_extern ? Py_True : Py_False, "bytes", w.bytes, "flops", w.flops,
                         "elements", w.elements, "runs", (unsigned long long)s->runs, "best_ns", s->best_ns, "sum_ns", s->sum_ns);
}

static int
append(PyObject *list, PyObject *item)
{
    int done = item == NULL ? -1 : PyList_Append(list, item);
    Py_XDECREF(item);
    return done;
}

PyObject *
launch_profile_describe(const launch_code *code)
{
    if (code == NULL || code->main.spent == NULL)
        Py_RETURN_NONE;
    PyObject *list = PyList_New(0);
    const kin_program *p = code->main.program;
    if (list == NULL || append(list, describe("all of it", false, (op_work){0}, &code->main.spent[p->ops.len])) < 0)
        Py_CLEAR(list);
    for (uint32_t i = 0; list != NULL && i < p->ops.len; i++) {
        kin_text text = {0};
        say_op(&text, p, &p->ops.at[i]);
        if (append(list, describe(text.at == NULL ? "" : text.at, p->ops.at[i].is_extern, work_of(p, &p->ops.at[i]), &code->main.spent[i])) < 0)
            Py_CLEAR(list);
        kin_text_deinit(&text);
    }
    return list;
}
