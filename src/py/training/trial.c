/* Whether forward and backward kernels are used (training_priv.h): both ways run on the inputs of the first call, before it is launched.
 *
 * What torch's operators give tells what the kernels have to give, in layout and, roughly, in numbers; what they take is what the kernels
 * have to beat. The time of a backward could not be told from calls as they come, as the engine runs it among other nodes at a time
 * of its own. Short runs are repeated; of long ones there are few, as they are what the first call takes longer.
 */
#include "py/compat/imports.h"
#include "py/training/training_priv.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "py/aten/make.h"
#include "py/aten/tensor.h"

typedef struct {
    launch_code *code;
    uint32_t threads;
    PyObject *const *in;
    PyObject *note;     /* launch_again_note */
    PyObject *tangents; /* tuple */
    PyObject *results, *gradients;         /* tuples: torch's */
    PyObject *own_results, *own_gradients; /* ours */
    bool alone;                            /* on one thread */
    double ours, theirs;                   /* best times */
} trial;

/* -- runs ------------------------------------------------------------------------------------------------------- */

static long
threads_of_torch(void)
{
    PyObject *number = kin_import_call("torch", "get_num_threads", NULL);
    long threads = number == NULL ? 0 : PyLong_AsLong(number);
    PyErr_Clear();
    Py_XDECREF(number);
    return threads;
}

/* On one thread it is its own time: the others of the machine do not count. */
static double
time_now(const trial *x)
{
    struct timespec t;
    clock_gettime(x->alone ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

/* Tangents like those of a sum. */
static PyObject *
make_tangents(const launch_training *t)
{
    const kin_aten *g = t->capture.graph;
    PyObject *tuple = PyTuple_New(t->nresults);
    for (uint32_t i = 0; tuple != NULL && i < t->nresults; i++) {
        kin_aten_val v = g->ninputs - t->nresults + i + 1;
        PyObject *one = kin_tensor_new((kin_dtype)kin_aten_at(g, v)->dtype, kin_aten_at(g, v)->ndim, kin_aten_sizes(g, v),
                                       t->strides + (size_t)i * KIN_IR_MAX_DIMS, false);
        PyObject *done = one == NULL ? NULL : PyObject_CallMethod(one, "fill_", "i", 1);
        Py_XDECREF(one);
        if (done == NULL)
            Py_CLEAR(tuple);
        else
            PyTuple_SET_ITEM(tuple, i, done);
    }
    return tuple;
}

static bool
run_theirs(trial *x)
{
    PyObject *results = NULL;
    double start = time_now(x);
    PyObject *gradients = launch_again((launch_training *)x->code->training, x->note, x->tangents, false, &results);
    double ns = time_now(x) - start;
    Py_XSETREF(x->gradients, gradients);
    Py_XSETREF(x->results, results);
    x->theirs = x->theirs == 0 || ns < x->theirs ? ns : x->theirs;
    return gradients != NULL && results != NULL;
}

static PyObject *
pick_results(const launch_training *t, PyObject *const *made)
{
    PyObject *tuple = PyTuple_New(t->nresults);
    for (uint32_t i = 0; tuple != NULL && i < t->nresults; i++)
        PyTuple_SET_ITEM(tuple, i, Py_NewRef(made[t->out_of[i]]));
    return tuple;
}

/* What the forward writes to inputs, and the random numbers that it draws, are as before behind it. */
static bool
run_ours(trial *x)
{
    launch_code *code = x->code;
    launch_training *t = (launch_training *)code->training;
    launch_inputs inputs = {.in = x->in, .input_of = code->input_of, .n = code->ninputs};
    launch_running r;
    launch_outcome outcome;
    PyObject **made = calloc(code->nouts + 1, sizeof *made), *saved = NULL, *gradients = NULL;
    launch_kept *kept = made == NULL ? NULL : launch_keep_written(code, x->in);
    if (kept == NULL) {
        free(made);
        return false;
    }
    code->running++;
    double start = time_now(x);
    bool ok = launch_training_forward(&r, code, &inputs, x->threads, &outcome, made, &saved);
    if (ok) {
        kin_grad_set(false);
        gradients = launch_training_backward(t, saved, ((PyTupleObject *)x->tangents)->ob_item);
        kin_grad_set(true);
    }
    double ns = time_now(x) - start;
    code->running--;
    Py_XSETREF(x->own_gradients, gradients);
    Py_XSETREF(x->own_results, ok ? pick_results(t, made) : NULL);
    x->ours = x->ours == 0 || ns < x->ours ? ns : x->ours;
    launch_put_back_random(&r);
    Py_XDECREF(r.random);
    kin_vec_deinit(&outcome.hints);
    launch_put_back_written(kept, code, x->in);
    launch_kept_free(kept);
    for (uint32_t i = 0; i < code->nouts; i++)
        Py_XDECREF(made[i]);
    free(made);
    Py_XDECREF(saved);
    return x->own_gradients != NULL && x->own_results != NULL;
}

/* -- numbers ---------------------------------------------------------------------------------------------------- */

static bool
lie_alike(PyObject *a, PyObject *b)
{
    kin_dtype p, q;
    if (!kin_tensor_dtype(a, &p) || !kin_tensor_dtype(b, &q) || p != q || kin_tensor_dim(a) != kin_tensor_dim(b))
        return false;
    bool same = true;
    for (int64_t d = 0; d < kin_tensor_dim(a); d++) {
        if (kin_tensor_sizes(a)[d] != kin_tensor_sizes(b)[d])
            return false;
        if (kin_tensor_sizes(a)[d] == 0)
            return true;
        same = same && (kin_tensor_sizes(a)[d] == 1 || kin_tensor_strides(a)[d] == kin_tensor_strides(b)[d]);
    }
    return same;
}

/* The largest element, without its sign; of a - b. NaN where there is one; -1 with an exception. */
static double
largest(PyObject *a, PyObject *b)
{
    PyObject *detached = PyObject_CallMethod(a, "detach", NULL), *other = detached == NULL || b == NULL ? NULL : PyObject_CallMethod(b, "detach", NULL);
    PyObject *difference = detached == NULL ? NULL : b == NULL ? Py_NewRef(detached) : other == NULL ? NULL : PyNumber_Subtract(detached, other);
    PyObject *size = difference == NULL ? NULL : PyObject_CallMethod(difference, "numel", NULL);
    bool empty = size != NULL && PyLong_AsLong(size) == 0;
    PyObject *all = size == NULL || empty ? NULL : PyObject_CallMethod(difference, "abs", NULL);
    PyObject *max = all == NULL ? NULL : PyObject_CallMethod(all, "max", NULL), *item = max == NULL ? NULL : PyObject_CallMethod(max, "item", NULL);
    double value = empty ? 0 : item == NULL ? -1 : PyFloat_AsDouble(item);
    Py_XDECREF(item);
    Py_XDECREF(max);
    Py_XDECREF(all);
    Py_XDECREF(size);
    Py_XDECREF(difference);
    Py_XDECREF(other);
    Py_XDECREF(detached);
    return value;
}

/* Gross differences only, measured against the largest of all: sums in another order may leave nothing alike of what is nearly zero. */
static bool
agree(PyObject *theirs, PyObject *ours)
{
    enum { PARTS = 50 }; /* of the largest element */
    double scale = 0, worst = 0;
    if (PyTuple_GET_SIZE(theirs) != PyTuple_GET_SIZE(ours))
        return false;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(theirs); i++) {
        PyObject *a = PyTuple_GET_ITEM(theirs, i), *b = PyTuple_GET_ITEM(ours, i);
        if (a == Py_None || b == Py_None || !kin_is_tensor(a) || !kin_is_tensor(b)) {
            if ((a == Py_None) != (b == Py_None))
                return false;
            continue;
        }
        if (!lie_alike(a, b))
            return false;
        double size = largest(a, NULL), difference = largest(a, b);
        if (size < 0 || difference < 0)
            return false;
        if (isfinite(size) && !isfinite(difference))
            return false;
        scale = isfinite(size) && size > scale ? size : scale;
        worst = isfinite(difference) && difference > worst ? difference : worst;
    }
    return worst <= scale / PARTS;
}

/* -- all of it ------------------------------------------------------------------------------------------------------ */

/* Both ways in turns: the rest of what is worth it. */
static bool
run_turns(trial *x)
{
    static const double LONG = 250e6, SHORT = 25e6;
    int turns = 1 + (x->theirs < LONG) + 2 * (x->theirs < SHORT);
    if (x->theirs >= LONG && x->ours > x->theirs)
        turns++; /* once more: it was cold */
    for (int i = 1; i < turns; i++)
        if (!run_theirs(x) || !run_ours(x))
            return false;
    return true;
}

static const char *
judge(trial *x, char *text, size_t room)
{
    if (!run_theirs(x))
        return "torch cannot go back over its operators one by one";
    if (!run_ours(x))
        return "its launches fail";
    if (!agree(x->results, x->own_results))
        return "its operators give results that lie otherwise than foreseen";
    if (!agree(x->gradients, x->own_gradients))
        return "its operators give other gradients than foreseen";
    if (!run_turns(x))
        return "its launches fail";
    if (x->ours < x->theirs)
        return NULL;
    snprintf(text, room, "its steps are faster: forward and backward %.1f us, launched %.1f us", x->theirs / 1e3, x->ours / 1e3);
    return text;
}

static bool
draws(const launch_code *code)
{
    for (uint32_t i = 0; i < code->main.program->externs.len; i++)
        if (code->main.externs[i].effect)
            return true;
    return false;
}

bool
launch_training_try(launch_code *code, uint32_t threads, PyObject *const *in, launch_training_trial *result)
{
    launch_training *t = (launch_training *)Py_NewRef(code->training);
    *result = (launch_training_trial){0};
    t->tried = true;
    if (!launch_may_write(code, in)) { /* not now */
        t->tried = false;
        Py_DECREF(t);
        return true;
    }
    PyObject *random = draws(code) ? launch_again_random() : NULL;
    trial x = {.code = code, .threads = threads, .in = in, .alone = threads_of_torch() == 1, .note = launch_again_note(code, in, random)};
    char text[120];
    x.tangents = x.note == NULL ? NULL : make_tangents(t);
    const char *why = x.tangents == NULL ? "out of memory" : judge(&x, text, sizeof text);
    PyErr_Clear();
    result->ours = x.ours;
    result->theirs = x.theirs;
    snprintf(result->why, sizeof result->why, "%s", why == NULL ? "" : why);
    Py_XDECREF(random);
    Py_XDECREF(x.note);
    Py_XDECREF(x.tangents);
    Py_XDECREF(x.results);
    Py_XDECREF(x.gradients);
    Py_XDECREF(x.own_results);
    Py_XDECREF(x.own_gradients);
    Py_DECREF(t);
    return why == NULL;
}
