/* Decides whether forward and backward kernels are used (training_priv.h): torch's way and ours both run on the inputs of the first call, before any launch
 * (core/tier/abtest.h).
 *
 * The first run of torch's operators shows which layouts and, roughly, which values the kernels have to produce; their time is the
 * time to beat. Their backward cannot be timed in the program's own calls, because the engine runs it among other nodes, at
 * a time of its own. Ours can: where one run of either takes long, and leaves it open which is faster, what the program itself runs is timed.
 */
#include "py/compat/imports.h"
#include "py/training/training_priv.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "core/base/clock.h"
#include "core/tier/tier.h"
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
    double ours, theirs;                   /* times of the last run */
    kin_abtest *abtest;                    /* what is known from this call and earlier ones */
    uint32_t trials;
    kin_abtest_end end;
    bool keeps;                            /* what runs give, to be compared; else it goes at once, as a step has no room for it twice */
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
    return x->alone ? kin_clock_thread_ns() : kin_clock_ns();
}

double
launch_trial_begin(const launch_training *t)
{
    return !t->timed ? 0 : t->alone ? kin_clock_thread_ns() : kin_clock_ns();
}

void
launch_trial_note(const launch_training *t, double begin, launch_least *least)
{
    if (begin == 0 || !t->timed)
        return;
    double ns = launch_trial_begin(t) - begin;
    least->ns = least->n == 0 || ns < least->ns ? ns : least->ns;
    least->n++;
}

/* tensor += steps that repeat every seven places, along this dim. */
static bool
add_steps(PyObject *tensor, int64_t ndim, int64_t dim)
{
    PyObject *size = PyLong_FromLongLong(kin_tensor_sizes(tensor)[dim]), *shape = PyTuple_New(ndim - dim);
    for (int64_t d = dim; shape != NULL && d < ndim; d++)
        PyTuple_SET_ITEM(shape, d - dim, PyLong_FromLong(d == dim ? -1 : 1));
    PyObject *numbers = size == NULL || shape == NULL ? NULL : kin_import_call("torch", "arange", size);
    PyObject *steps = numbers == NULL ? NULL : PyObject_CallMethod(numbers, "remainder", "i", 7);
    PyObject *column = steps == NULL ? NULL : PyObject_CallMethod(steps, "view", "(O)", shape);
    PyObject *done = column == NULL ? NULL : PyObject_CallMethod(tensor, "add_", "O", column);
    Py_XDECREF(done);
    Py_XDECREF(column);
    Py_XDECREF(steps);
    Py_XDECREF(numbers);
    Py_XDECREF(shape);
    Py_XDECREF(size);
    return done != NULL;
}

/* Small numbers that differ along each dim: where all are equal, gradients of a softmax or of a layer norm are what rounding leaves of zero, and nothing can be
 * compared. */
static bool
fill_unevenly(PyObject *tensor)
{
    PyObject *done = PyObject_CallMethod(tensor, "fill_", "i", 1);
    Py_XDECREF(done);
    bool ok = done != NULL;
    int64_t ndim = kin_tensor_dim(tensor);
    for (int64_t d = 0; ok && d < ndim; d++)
        ok = kin_tensor_sizes(tensor)[d] < 2 || add_steps(tensor, ndim, d);
    return ok;
}

static PyObject *
make_tangents(const launch_training *t)
{
    PyObject *tuple = PyTuple_New(t->nresults);
    for (uint32_t i = 0; tuple != NULL && i < t->nresults; i++) {
        const launch_tangent *v = &t->tangents[i];
        PyObject *tangent = kin_tensor_new(v->dtype, v->ndim, v->sizes, v->strides, false);
        if (tangent != NULL && fill_unevenly(tangent)) {
            PyTuple_SET_ITEM(tuple, i, tangent);
            continue;
        }
        Py_XDECREF(tangent);
        Py_CLEAR(tuple);
    }
    return tuple;
}

/* Takes `made`. */
static void
keep(const trial *x, PyObject **at, PyObject *made)
{
    PyObject *old = *at;
    *at = x->keeps ? made : NULL;
    Py_XDECREF(x->keeps ? old : made);
    if (!x->keeps)
        Py_XDECREF(old);
}

static bool
run_theirs(trial *x)
{
    PyObject *results = NULL;
    double start = time_now(x);
    PyObject *gradients = launch_again((launch_training *)x->code->training, x->note, x->tangents, false, NULL, &results);
    double ns = time_now(x) - start;
    x->theirs = ns;
    bool ok = gradients != NULL && results != NULL;
    keep(x, &x->gradients, gradients);
    keep(x, &x->results, results);
    return ok;
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
    PyObject *results = ok ? pick_results(t, made) : NULL;
    ok = gradients != NULL && results != NULL;
    keep(x, &x->own_gradients, gradients);
    keep(x, &x->own_results, results);
    x->ours = ns;
    launch_put_back_random(&r);
    Py_XDECREF(r.random);
    kin_vec_deinit(&outcome.hints);
    launch_put_back_written(kept, code, x->in);
    launch_kept_free(kept);
    for (uint32_t i = 0; i < code->nouts; i++)
        Py_XDECREF(made[i]);
    free(made);
    Py_XDECREF(saved);
    return ok;
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

/* The worst difference as a share of the largest element of all: sums in another order may leave nothing alike of what is nearly zero. Infinite where one lies
 * otherwise, or has numbers where the other has none. */
static double
differ(PyObject *theirs, PyObject *ours)
{
    double scale = 0, worst = 0;
    if (PyTuple_GET_SIZE(theirs) != PyTuple_GET_SIZE(ours))
        return INFINITY;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(theirs); i++) {
        PyObject *a = PyTuple_GET_ITEM(theirs, i), *b = PyTuple_GET_ITEM(ours, i);
        if (a == Py_None || b == Py_None || !kin_is_tensor(a) || !kin_is_tensor(b)) {
            if ((a == Py_None) != (b == Py_None))
                return INFINITY;
            continue;
        }
        double size = lie_alike(a, b) ? largest(a, NULL) : -1, difference = size < 0 ? -1 : largest(a, b);
        if (difference < 0 || (isfinite(size) && !isfinite(difference)))
            return INFINITY;
        scale = isfinite(size) && size > scale ? size : scale;
        worst = isfinite(difference) && difference > worst ? difference : worst;
    }
    return worst == 0 ? 0 : worst / scale;
}

/* The inputs of the note, other in the last digits. */
static PyObject *
disturb(const trial *x)
{
    PyObject *inputs = kin_import_call("kintsugi._validate", "disturb", PyTuple_GET_ITEM(x->note, 0)), *note = NULL;
    const launch_code *code = x->code;
    uint32_t n = 0;
    for (uint32_t i = 0; i < code->ninputs; i++)
        n = code->input_of[i] >= n ? code->input_of[i] + 1 : n;
    PyObject **in = inputs == NULL ? NULL : calloc(n + 1, sizeof *in);
    for (uint32_t i = 0; in != NULL && i < code->ninputs; i++)
        in[code->input_of[i]] = PyList_GET_ITEM(inputs, i);
    if (in != NULL)
        note = launch_again_note(code, in, PyTuple_GET_ITEM(x->note, 2), Py_None);
    free(in);
    Py_XDECREF(inputs);
    return note;
}

/* How far do torch's own results, and their gradients, move with the last digits of the inputs? A batch norm over two nearly equal values makes much of them. */
static void
find_sensitivity(const trial *x, double *of_results, double *of_gradients)
{
    PyObject *note = disturb(x), *results = NULL;
    PyObject *gradients = note == NULL ? NULL : launch_again((launch_training *)x->code->training, note, x->tangents, false, NULL, &results);
    *of_results = results == NULL ? 0 : differ(x->results, results);
    *of_gradients = gradients == NULL ? 0 : differ(x->gradients, gradients);
    PyErr_Clear();
    Py_XDECREF(note);
    Py_XDECREF(results);
    Py_XDECREF(gradients);
}

/* Gross differences only, and none that the last digits of the inputs make as well. In words, or NULL. */
static const char *
find_difference(const trial *x, char *text, size_t room)
{
    static const double GROSS = 0.02, TIMES = 16; /* of the largest element; as sensitive: sums are off by some of the last digits */
    double results = differ(x->results, x->own_results), gradients = differ(x->gradients, x->own_gradients), of_results, of_gradients;
    if (isinf(results))
        return "eager results differ from the captured layout or aliasing";
    if (isinf(gradients))
        return "eager gradients differ from the captured ones";
    if (results <= GROSS && gradients <= GROSS)
        return NULL;
    find_sensitivity(x, &of_results, &of_gradients);
    bool wrong = results > GROSS && !(isfinite(of_results) && results <= TIMES * of_results);
    if (!wrong && (gradients <= GROSS || (isfinite(of_gradients) && gradients <= TIMES * of_gradients)))
        return NULL;
    snprintf(text, room, "its %s differ from eager's by %.0f%% of the largest element", wrong ? "results" : "gradients", 100 * (wrong ? results : gradients));
    return text;
}

/* -- all of it ------------------------------------------------------------------------------------------------------ */

/* Both ways, and what is known then. In words why not, or NULL. */
static const char *
run_both(trial *x)
{
    double clock = kin_clock_ns(), thread = kin_clock_thread_ns();
    if (!run_theirs(x))
        return "torch cannot go back over its operators one by one";
    if (!run_ours(x))
        return "its launches fail";
    double elsewhere = (kin_clock_ns() - clock) - (kin_clock_thread_ns() - thread); /* what others had the processor for */
    bool disturbed = !x->alone && elsewhere > KIN_TIER_AB_DISTURBED * x->theirs;
    x->end = x->theirs < KIN_TIER_SHORT_CALL_NS ? kin_abtest_note_both(x->abtest, x->ours, x->theirs, disturbed, x->trials)
                                                : kin_abtest_note_once(x->abtest, x->ours, x->theirs, disturbed);
    return NULL;
}

/* A later check of what takes long. */
static const char *
run_theirs_alone(trial *x)
{
    if (!run_theirs(x))
        return "torch cannot go back over its operators one by one";
    x->end = kin_abtest_note_once(x->abtest, 0, x->theirs, false);
    return NULL;
}

/* Short ones take several turns in one call. */
static const char *
run_turns(trial *x)
{
    enum { TURNS = 4 };
    const char *why = NULL;
    for (int i = 1; why == NULL && i < TURNS && x->theirs < KIN_TIER_SHORT_CALL_NS && x->end == KIN_ABTEST_OPEN; i++)
        why = run_both(x);
    return why;
}

static const char *
say_slower(const kin_abtest *abtest, char *text, size_t room)
{
    snprintf(text, room, "its steps are faster: forward and backward %.1f us, launched %.1f us", abtest->theirs / 1e3, abtest->ours / 1e3);
    return text;
}

static const char *
judge(trial *x, char *text, size_t room)
{
    const char *why = !x->keeps && x->abtest->theirs >= KIN_TIER_SHORT_CALL_NS ? run_theirs_alone(x) : run_both(x);
    if (why != NULL)
        return why;
    if (x->keeps && (why = find_difference(x, text, room)) != NULL)
        return why;
    x->keeps = false;
    if ((why = run_turns(x)) != NULL || x->end != KIN_ABTEST_DROP)
        return why;
    return say_slower(x->abtest, text, room);
}

/* From now on the program's own runs are timed. */
static void
time_uses(launch_training *t, bool alone)
{
    t->timed = true;
    t->alone = alone;
    t->there = t->back = (launch_least){0};
}

/* What the program's own runs have told so far. A program that never goes back asks again after many. */
static kin_abtest_end
ask_uses(launch_training *t, kin_abtest *abtest, uint32_t trials)
{
    uint32_t n = t->there.n < t->back.n ? t->there.n : t->back.n;
    kin_abtest_end end = n == 0 ? KIN_ABTEST_OPEN : kin_abtest_note_uses(abtest, t->there.ns + t->back.ns, n, trials);
    if (t->there.n >= KIN_TIER_AB_FIRST_USES && n == 0)
        kin_abtest_give_up(abtest);
    t->timed = !abtest->decided;
    return end;
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
launch_training_try(launch_code *code, uint32_t threads, PyObject *const *in, kin_abtest *abtest, uint32_t trials, launch_training_trial *result)
{
    *result = (launch_training_trial){0};
    launch_training *t = (launch_training *)code->training;
    if (t->timed) {
        result->slower = ask_uses(t, abtest, trials) == KIN_ABTEST_DROP;
        result->why = result->slower ? say_slower(abtest, result->text, sizeof result->text) : NULL;
        return !result->slower;
    }
    if (!launch_may_write(code, in)) /* not now */
        return true;
    Py_INCREF(t);
    PyObject *random = draws(code) ? launch_again_random() : NULL;
    trial x = {.code = code, .threads = threads, .in = in, .abtest = abtest, .trials = trials, .alone = threads_of_torch() == 1,
               .note = launch_again_note(code, in, random, Py_None)};
    x.keeps = !t->tried;
    t->tried = true;
    x.tangents = x.note == NULL ? NULL : make_tangents(t);
    const char *why = x.tangents == NULL ? "out of memory" : judge(&x, result->text, sizeof result->text);
    PyErr_Clear();
    result->why = why;
    result->slower = x.end == KIN_ABTEST_DROP;
    Py_XDECREF(random);
    Py_XDECREF(x.note);
    Py_XDECREF(x.tangents);
    Py_XDECREF(x.results);
    Py_XDECREF(x.gradients);
    Py_XDECREF(x.own_results);
    Py_XDECREF(x.own_gradients);
    bool is_long = x.theirs >= KIN_TIER_SHORT_CALL_NS;
    if (why == NULL && is_long && x.end == KIN_ABTEST_OPEN)
        time_uses(t, x.alone);
    if (t->begun < LAUNCH_SETTLED && (why != NULL || is_long || x.end != KIN_ABTEST_OPEN))
        launch_settle_memory(); /* both ways' values at once, too */
    Py_DECREF(t);
    return why == NULL;
}
