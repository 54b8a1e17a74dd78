/* Runs a trace (replay.h). The loop visits steps in index order; a failed check may jump to a side trace; whatever does
 * not go as recorded leaves through leave.c.
 *
 * Frames. OPAQUE steps, and torch functions written in Python, run with the frames of all inlined calls linked. If
 * such a step raises, CPython continues in the same frames, so tracebacks and f_back refer to the objects that the callee saw.
 *
 * Handled exception. snap.exc is installed in the thread while a step runs, so that sys.exc_info() and __context__ are
 * right; the caller's exception is restored at the end.
 *
 * Signals are polled before EPOCH steps (facts are tested afterwards, so a handler may change anything) and at
 * the end. If a handler raises, the exception is raised at that snapshot.
 */
#include "py/aten/profiler.h"
#include "py/compat/heap.h"
#include "py/compat/recursion.h"
#include "py/compat/signals.h"
#include "py/guardeval/guard.h"
#include "py/compat/codes.h"
#include "py/compat/failure.h"
#include "py/replay/ops_priv.h"
#include "py/replay/replay_priv.h"
#include "py/watch/watch.h"

uint32_t kin_replay_force_exit = UINT32_MAX;

/* -- state ------------------------------------------------------------------------------------------------------ */

void
kin_run_release_slots(kin_run *r)
{
    for (uint32_t i = 0; i < r->nslots; i++)
        Py_CLEAR(r->slots[i]);
}

void
kin_run_handle(kin_run *r, kin_vid exc)
{
    if (r->exc == exc)
        return;
    _PyErr_StackItem *item = r->ts->exc_info;
    PyObject *old = item->exc_value;
    r->exc = exc;
    if (exc == 0) {
        item->exc_value = r->entry_exc;
        r->entry_exc = NULL;
        r->has_exc = false;
    }
    else {
        item->exc_value = Py_XNewRef(kin_run_value(r, exc));
        if (!r->has_exc) {
            r->entry_exc = old;
            old = NULL;
            r->has_exc = true;
        }
    }
    Py_XDECREF(old);
}

/* The lists of the steps of a range lie one behind the other. */
void
kin_run_free_between(kin_run *r, uint32_t first, uint32_t last)
{
    const kin_step *steps = r->t->steps.at;
    for (uint32_t k = steps[first].frees; k < steps[last].frees; k++)
        Py_CLEAR(r->slots[r->t->vids.at[k]]);
}

static bool
is_given(const kin_subgraph *subgraph, kin_vid vid)
{
    for (uint32_t k = 0; k < subgraph->nout; k++)
        if (subgraph->out[k] == vid)
            return true;
    return false;
}

/* While a subgraph is learned its inputs stay, and so do its results. */
static void
free_learned(kin_run *r, const kin_step *s)
{
    const kin_subgraph *subgraph = r->learning;
    const kin_vid *vids = r->t->vids.at + s->frees;
    for (uint32_t i = 0; i < s->nfrees; i++) {
        const kin_val *val = &r->t->vals.at[vids[i]];
        if (val->kind == KIN_VAL_STEP && val->step >= subgraph->first && val->step <= subgraph->last &&
            subgraph->role[val->step - subgraph->first] == KIN_ROLE_CALL && !is_given(subgraph, vids[i]))
            Py_CLEAR(r->slots[vids[i]]);
    }
}

static inline void
store(kin_run *r, const kin_step *s, PyObject *result)
{
    if (s->out != 0)
        Py_XSETREF(r->slots[s->out], result);
    else
        Py_XDECREF(result);
}

/* -- expected exceptions ---------------------------------------------------------------------------------------- */

/* Does the C function that called this link's callee drop an AttributeError: getattr with a default, hasattr, a lookup that
 * goes on to __getattr__? */
static bool
drops_attribute_errors(const kin_link *caller)
{
    return caller->resume == KIN_RESUME_DEFAULT || caller->resume == KIN_RESUME_HASATTR || caller->resume == KIN_RESUME_FALLBACK;
}

/* The depth of the frame that handles the pending exception, raised at the chain's instructions, or of the outermost one that it leaves, where C code
 * handles it. UINT32_MAX: C code does, and forgets the traceback before the exception object has got it, as CPython 3.11 does. */
static uint32_t
find_handler(const kin_chain *c)
{
    bool attribute = PyErr_ExceptionMatches(PyExc_AttributeError);
    for (uint32_t d = c->n; d-- > 0;) {
        const kin_code *code = rec_code_of(c->at[d].code);
        if (code != NULL && kin_code_handler(code, c->at[d].at) != NULL)
            return d;
        if (attribute && d > 0 && drops_attribute_errors(&c->at[d - 1]))
            return KIN_EXCEPTIONS_HAVE_TRACEBACKS ? d : UINT32_MAX;
    }
    return 0;
}

/* Adds what unwinding adds to the traceback: one entry for each frame from the raising one to the handling one. A bare
 * `raise` adds none in its own frame. Unlinks and frees all frames. False: nothing is to be noted. */
static bool
unwind(kin_run *r, kin_chain *c, bool again)
{
    uint32_t handler = find_handler(c), innermost = c->n - 1;
    kin_chain_keep_namespaces(r, c);
    for (uint32_t d = c->n; d-- > handler;) {
        if (!(again && d == innermost))
            kin_frame_traceback(r->ts, c->at[d].frame);
        if (d > handler) {
            PyObject *type, *value, *tb;
            PyErr_Fetch(&type, &value, &tb);
            kin_chain_unlink(r->ts, c);
            kin_frame_free(r->ts, c->at[d].frame);
            Py_CLEAR(c->at[d].extra);
            c->n--;
            PyErr_Restore(type, value, tb);
        }
    }
    kin_chain_drop(r->ts, c);
    return handler != UINT32_MAX;
}

/* Torch functions look at lines (warnings), not at locals: those are filled in when something is raised. */
static kin_status
link_chain(kin_run *r, uint32_t step, bool locals, kin_chain *c)
{
    KIN_TRY(kin_chain_build(r, step, c));
    if (locals && kin_chain_fill(r, c, step, KIN_FILL_LOCALS) != KIN_OK) {
        kin_chain_drop(r->ts, c);
        return KIN_PYERR;
    }
    kin_recursion_take(r->ts, -1); /* the caller has counted the outermost one */
    kin_chain_link(r, c, c->n);
    return KIN_OK;
}

static void
drop_chain(kin_run *r, kin_chain *c)
{
    kin_chain_keep_namespaces(r, c);
    kin_chain_drop(r->ts, c);
    kin_recursion_take(r->ts, 1);
}

/* Can nothing look at the exception? Then the frames that unwinding notes in it are not observable: the step releases its own
 * result, nothing else holds the object but slots released with it, and its class runs no code when it dies. Or a generator is closed, and it ends there. */
bool
kin_run_dies_at_once(const kin_run *r, const kin_step *s, PyObject *exc)
{
    const kin_vid *vids = r->t->vids.at + s->frees;
    bool unused = s->out == 0, closes = s->flags & KIN_STEP_AGAIN && (PyObject *)Py_TYPE(exc) == PyExc_GeneratorExit;
    Py_ssize_t held = 1;
    for (uint32_t i = 0; i < s->nfrees; i++) {
        unused = unused || vids[i] == s->out;
        held += r->slots[vids[i]] == exc;
    }
    return closes || (unused && Py_REFCNT(exc) == held && kin_heap_type_is_static(Py_TYPE(exc)));
}

/* Turns the pending exception into the value of the step's result: new reference. `chain`: linked, or NULL. */
static PyObject *
catch_exception(kin_run *r, uint32_t step, kin_chain *chain)
{
    const kin_step *s = &r->t->steps.at[step];
    kin_chain own;
    PyObject *type, *value, *tb;
    PyErr_Fetch(&type, &value, &tb);
    PyErr_NormalizeException(&type, &value, &tb);
    if (kin_run_dies_at_once(r, s, value)) {
        if (chain != NULL)
            drop_chain(r, chain);
        Py_XDECREF(type);
        Py_XDECREF(tb);
        return value;
    }
    if (chain == NULL && s->snap != 0) {
        if (link_chain(r, step, true, &own) == KIN_OK)
            chain = &own;
        else
            PyErr_Clear(); /* without memory: no entries */
    }
    else if (chain != NULL && kin_chain_fill(r, chain, step, KIN_FILL_LOCALS) != KIN_OK)
        PyErr_Clear();
    PyErr_Restore(type, value, tb);
    bool noted = true;
    if (chain != NULL) {
        noted = unwind(r, chain, s->kind == KIN_STEP_RAISE && (s->imm == 1 || s->nargs == 0 || r->t->vids.at[s->args] == 0));
        kin_recursion_take(r->ts, 1);
    }
    PyErr_Fetch(&type, &value, &tb);
    if (tb != NULL && noted)
        PyException_SetTraceback(value, tb);
    Py_XDECREF(type);
    Py_XDECREF(tb);
    return value;
}

void
kin_run_note_frames(kin_run *r, uint32_t step)
{
    const kin_step *s = &r->t->steps.at[step];
    PyObject *exc = r->slots[s->out];
    if (!PyExceptionInstance_Check(exc))
        return;
    PyErr_Restore(Py_NewRef(Py_TYPE(exc)), Py_NewRef(exc), PyException_GetTraceback(exc));
    store(r, s, catch_exception(r, step, NULL));
}

/* -- steps ------------------------------------------------------------------------------------------------------ */

/* Does the step run with frames linked? */
static bool
needs_frames(const kin_run *r, const kin_step *s)
{
    if (s->snap == 0)
        return false;
    if (s->flags & KIN_STEP_OPAQUE)
        return true;
    if (!(s->flags & KIN_STEP_TORCH) || s->nargs == 0)
        return false;
    PyObject *callee = kin_run_value(r, r->t->vids.at[s->args]);
    return callee != NULL && PyFunction_Check(callee);
}

/* Remembers the pending failure of our own and takes it away. */
static void
note_failure(kin_run *r)
{
    char text[200];
    kin_failure_take(text, sizeof text);
    free(r->v->failure);
    r->v->failure = strdup(text);
}

/* Is it unobservable whether the call begins again or goes on before this step? Nothing before it had an effect. */
static bool
is_untouched(const kin_run *r, uint32_t step)
{
    kin_path path = {0};
    bool untouched = kin_trace_path(r->t, step, &path) == KIN_OK;
    for (uint32_t k = 0; untouched && k < path.len; k++)
        for (uint32_t i = path.at[k].first; i <= path.at[k].last && i < step; i++) {
            const kin_step *s = &r->t->steps.at[i];
            bool no_code = (s->flags & (KIN_STEP_SUNK | KIN_STEP_PURE)) != 0 || s->kind == KIN_STEP_EPOCH || s->kind == KIN_STEP_CHECK;
            untouched = untouched && no_code && !(s->flags & KIN_STEP_OPAQUE);
        }
    kin_vec_deinit(&path);
    return untouched;
}

/* Has the pending exception been through a frame? Then Python code has raised it: a signal's handler, perhaps, which does not raise it again. */
static bool
has_traceback(void)
{
    PyObject *type, *value, *tb;
    PyErr_Fetch(&type, &value, &tb);
    bool some = tb != NULL;
    PyErr_Restore(type, value, tb);
    return some;
}

/* The step raised, and was not expected to. */
static PyObject *
leave_raising(kin_run *r, uint32_t step, kin_chain *chain)
{
    const kin_step *s = &r->t->steps.at[step];
    if (chain != NULL)
        kin_recursion_take(r->ts, 1);
    bool ours = kin_failure_pending();
    if (ours)
        r->failed_at = step;
    if (s->snap == 0)
        return NULL;
    if (ours && !(s->flags & KIN_STEP_AGAIN))
        note_failure(r);
    /* CPython knows the words; it changes nothing to ask again */
    if (ours || s->kind == KIN_STEP_CELL_GET || ((s->flags & KIN_STEP_AGAIN) && !has_traceback())) {
        PyErr_Clear();
        if (chain != NULL)
            kin_chain_drop(r->ts, chain);
        return kin_run_leave(r, step, KIN_LEAVE_BEFORE, NULL, NULL, false);
    }
    return kin_run_leave(r, step, KIN_LEAVE_THROW, NULL, chain, false);
}

/* Is the pending exception of the type that was recorded? */
bool
kin_run_is_expected(const kin_run *r, const kin_step *s)
{
    PyObject *type, *value, *tb;
    PyErr_Fetch(&type, &value, &tb);
    PyErr_NormalizeException(&type, &value, &tb);
    bool expected = s->num == 0 || (PyObject *)Py_TYPE(value) == kin_refs_get(r->refs, s->num);
    PyErr_Restore(type, value, tb);
    return expected;
}

/* The step was expected to raise. */
static kin_outcome
settle_raises(kin_run *r, uint32_t step, PyObject *result, kin_chain *chain, PyObject **value)
{
    if (result == NULL && PyErr_Occurred()) {
        if (kin_run_is_expected(r, &r->t->steps.at[step])) {
            store(r, &r->t->steps.at[step], catch_exception(r, step, chain));
            return KIN_GO_ON;
        }
        *value = leave_raising(r, step, chain);
        return KIN_LEFT;
    }
    if (chain != NULL)
        kin_recursion_take(r->ts, 1);
    const kin_step *s = &r->t->steps.at[step];
    bool ended = result == NULL && s->kind == KIN_STEP_NEXT, gave = (result != NULL || ended) && s->snap != 0;
    if (gave && !(s->flags & KIN_STEP_AGAIN)) {
        *value = kin_run_leave(r, step, KIN_LEAVE_AFTER, result, chain, true);
        return KIN_LEFT;
    }
    Py_XDECREF(result);
    if (chain != NULL)
        kin_chain_drop(r->ts, chain);
    if (!gave) {
        kin_failure_raise("kintsugi: a step that should have raised cannot be left");
        r->failed_at = step + 1;
    }
    *value = gave ? kin_run_leave(r, step, KIN_LEAVE_BEFORE, NULL, NULL, true) : NULL;
    return KIN_LEFT;
}

static kin_outcome
settle(kin_run *r, uint32_t step, PyObject *result, kin_chain *chain, PyObject **value)
{
    const kin_step *s = &r->t->steps.at[step];
    if (s->flags & KIN_STEP_RAISES)
        return settle_raises(r, step, result, chain, value);
    if (result == NULL && (s->kind != KIN_STEP_NEXT || PyErr_Occurred())) {
        *value = leave_raising(r, step, chain);
        return KIN_LEFT;
    }
    if (chain != NULL)
        drop_chain(r, chain);
    store(r, s, result);
    return KIN_GO_ON;
}

kin_outcome
kin_run_settle(kin_run *r, uint32_t step, PyObject *result, PyObject **value)
{
    return settle(r, step, result, NULL, value);
}

static kin_outcome
run_framed(kin_run *r, uint32_t step, PyObject **value)
{
    kin_chain chain;
    if (link_chain(r, step, (r->t->steps.at[step].flags & KIN_STEP_OPAQUE) != 0, &chain) != KIN_OK) {
        *value = leave_raising(r, step, NULL);
        return KIN_LEFT;
    }
    r->moment = 0;
    PyObject *result = kin_step_execute(r->t, r->refs, &r->t->steps.at[step], r->slots);
    return settle(r, step, result, &chain, value);
}

static kin_outcome
run_plain(kin_run *r, uint32_t step, PyObject **value)
{
    PyObject *result = kin_run_execute(r, &r->t->steps.at[step]);
    if (result != NULL && !(r->t->steps.at[step].flags & KIN_STEP_RAISES)) {
        store(r, &r->t->steps.at[step], result);
        return KIN_GO_ON;
    }
    return settle(r, step, result, NULL, value);
}

/* -- tests and ends --------------------------------------------------------------------------------------------- */

/* The test did not pass: another branch, or out. */
static kin_outcome
fail_test(kin_run *r, uint32_t step, PyObject **value)
{
    if (r->t->steps.at[step].alt != 0) {
        if (r->early != NULL)
            kin_pending_complete(r, step);
        kin_run_put_back(r, step);
        return KIN_JUMP;
    }
    bool leaves = r->t->steps.at[step].snap != 0;
    if (!leaves) {
        kin_failure_raise("kintsugi: a test without a snapshot failed");
        r->failed_at = step;
    }
    *value = leaves ? kin_run_leave(r, step, KIN_LEAVE_BEFORE, NULL, NULL, true) : NULL;
    return KIN_LEFT;
}

/* May the store be done, but for a dict of the object that the program asked for before, and asks for again: in between only its
 * slot holds it? */
static bool
fits_but_for_slots(const kin_run *r, const kin_step *s, PyObject *base)
{
    PyObject *dict = base != NULL ? kin_instance_dict(base) : NULL;
    Py_ssize_t ours = 0;
    if (dict == NULL || Py_REFCNT(dict) == 1)
        return false;
    for (kin_vid i = 1; i < r->nslots; i++)
        ours += r->slots[i] == dict && r->t->vals.at[i].kind == KIN_VAL_SRC && r->t->vals.at[i].access == KIN_ACCESS_INSTDICT;
    return ours > 0 && kin_place_takes(base, kin_refs_get(r->refs, s->ref), s->num, ours);
}

int
kin_run_check(kin_run *r, const kin_step *s)
{
    const kin_vid *args = r->t->vids.at + s->args;
    PyObject *first = kin_run_value(r, args[0]), *second = s->nargs > 1 ? kin_run_value(r, args[1]) : NULL;
    int holds = kin_check_holds(r->refs, s, first, second);
    return holds == 0 && s->imm == KIN_CHECK_FITS ? fits_but_for_slots(r, s, first) : holds;
}

static kin_outcome
run_check(kin_run *r, uint32_t step, PyObject **value)
{
    int holds = kin_run_check(r, &r->t->steps.at[step]);
    if (holds < 0) {
        *value = leave_raising(r, step, NULL);
        return KIN_LEFT;
    }
    return holds ? KIN_GO_ON : fail_test(r, step, value);
}

/* Runs handlers of signals that have come, as CPython's loops do; these may write to weights. */
static int
check_signals(kin_run *r)
{
    if (kin_signals_wait())
        r->moment = 0;
    return PyErr_CheckSignals();
}

static kin_outcome
run_epoch(kin_run *r, uint32_t step, PyObject **value)
{
    if (step == 0) /* its facts held before the program began */
        return KIN_GO_ON;
    if (check_signals(r) < 0) {
        *value = leave_raising(r, step, NULL);
        return KIN_LEFT;
    }
    /* A debugger or profiler that an opaque step switched on wants to see every instruction from here. */
    if (kin_watch_foreign_tool(r->ts) && r->t->steps.at[step].snap != 0) {
        *value = kin_run_leave(r, step, KIN_LEAVE_BEFORE, NULL, NULL, false);
        return KIN_LEFT;
    }
    kin_guard_miss miss;
    if (kin_guard_eval(r->v, r->t->steps.at[step].num, r->slots, &miss))
        return KIN_GO_ON;
    r->v->missed = miss.fact;
    r->v->missed_vid = miss.vid;
    return fail_test(r, step, value);
}

/* A replay came to its end through the side trace of this step: for the first time? */
static void
note_use(kin_entry *v, uint32_t step)
{
    uint32_t *counts = v->exit_counts;
    if (step == 0 || counts == NULL || step >= counts[0] || counts[step] == KIN_EXIT_USED)
        return;
    counts[step] = KIN_EXIT_USED;
    v->nused++;
}

static kin_outcome
run_return(kin_run *r, uint32_t step, PyObject **value)
{
    const kin_step *s = &r->t->steps.at[step];
    PyObject *result = kin_run_value(r, r->t->vids.at[s->args]);
    if (result == NULL)
        kin_failure_raise("kintsugi: the result has no value");
    else if (r->dropped || PyErr_CheckSignals() == 0) {
        r->v->hits++;
        if (r->jumped)
            note_use(r->v, r->side_step);
        *value = Py_NewRef(result);
        kin_run_free(r, s); /* in the order in which frames let go of their variables */
        return KIN_LEFT;
    }
    *value = leave_raising(r, step, NULL);
    return KIN_LEFT;
}

/* The end of a round: what the next one gets goes to the slots of its CARRY steps, and all else that the round has made is released. */
static kin_outcome
run_loop_back(kin_run *r, uint32_t *step, PyObject **value)
{
    enum { SMALL = 64, LET_OTHERS = 64 };
    const kin_step *s = &r->t->steps.at[*step];
    PyObject *few[SMALL], **next = s->nargs <= SMALL ? few : PyMem_Calloc(s->nargs, sizeof *next);
    if (next == NULL || check_signals(r) < 0) {
        if (next == NULL)
            PyErr_NoMemory();
        *value = leave_raising(r, *step, NULL);
        return KIN_LEFT;
    }
    for (uint32_t i = 0; i < s->nargs; i++)
        next[i] = Py_XNewRef(kin_run_value(r, r->t->vids.at[s->args + i]));
    kin_run_free(r, s);
    for (uint32_t i = 0; i < s->nargs; i++)
        Py_XSETREF(r->slots[r->t->steps.at[s->num + 1 + i].out], next[i]);
    if (next != few)
        PyMem_Free(next);
    free(r->looked); /* what was built for the round's frames is gone */
    r->looked = NULL;
    if (++r->rounds % LET_OTHERS == 0) { /* threads that wait, as CPython's own loops do */
        r->moment = 0;
        Py_BEGIN_ALLOW_THREADS
        Py_END_ALLOW_THREADS
    }
    *step = s->num + s->nargs; /* the last CARRY, as if it had just run */
    return KIN_GO_ON;
}

/* -- the loop --------------------------------------------------------------------------------------------------- */

/* Does the snapshot describe the state behind the instruction, for the outcome that was not recorded? */
static bool
is_of_other_outcome(const kin_step *s)
{
    return s->kind == KIN_STEP_CHECK && (s->imm == KIN_CHECK_NULL || s->imm == KIN_CHECK_NOTNULL ||
                                         s->imm == KIN_CHECK_WAS_TRUE || s->imm == KIN_CHECK_WAS_FALSE);
}

/* May a test leave before this step? Only at the first step of an instruction. */
bool
kin_run_is_forced(kin_run *r, const kin_step *s)
{
    bool possible = s->snap != 0 && !(s->kind == KIN_STEP_RETURN && r->dropped) && (s->snap != r->last_snap || s->flags & KIN_STEP_AGAIN) && !is_of_other_outcome(s);
    return possible && r->nforced++ == kin_replay_force_exit;
}

kin_outcome
kin_run_step(kin_run *r, uint32_t step, PyObject **value)
{
    const kin_step *s = &r->t->steps.at[step];
    kin_run_enter_handler(r, s);
    switch ((kin_step_kind)s->kind) {
    case KIN_STEP_CHECK:
        return run_check(r, step, value);
    case KIN_STEP_EPOCH:
        return run_epoch(r, step, value);
    case KIN_STEP_RETURN:
        return run_return(r, step, value);
    case KIN_STEP_EXIT:
        return fail_test(r, step, value);
    case KIN_STEP_LOOP:
        return KIN_GO_ON;
    case KIN_STEP_RAISE:
        if (!(s->flags & KIN_STEP_RAISES) && s->snap != 0) { /* CPython's own raise is the most exact one */
            *value = kin_run_leave(r, step, KIN_LEAVE_BEFORE, NULL, NULL, false);
            return KIN_LEFT;
        }
        break;
    default:
        break;
    }
    return kin_pending_was_told(r, s) ? KIN_GO_ON : needs_frames(r, s) ? run_framed(r, step, value) : run_plain(r, step, value);
}

kin_launch
kin_run_launch_waiting_framed(kin_run *r)
{
    kin_chain chain;
    uint32_t first = r->deferred->first;
    if (!r->deferred->launcher->framed || r->t->steps.at[first].snap == 0)
        return kin_run_launch_waiting(r);
    if (link_chain(r, first, false, &chain) != KIN_OK)
        return KIN_LAUNCH_RAISED;
    kin_launch done = kin_run_launch_waiting(r);
    drop_chain(r, &chain);
    return done;
}

/* Launches the subgraph that begins at *step, with the frames of its first call linked; *step is then its last one. */
static kin_outcome
launch_subgraph(kin_run *r, uint32_t *step, PyObject **value)
{
    const kin_step *s = &r->t->steps.at[*step];
    uint32_t first = *step, last = first;
    kin_chain chain;
    bool framed = s->snap != 0 && r->subgraphs->at.at[r->subgraphs->by_step[first] - 1].launcher->framed;
    kin_run_enter_handler(r, s);
    if (framed && link_chain(r, first, false, &chain) != KIN_OK) {
        *value = leave_raising(r, first, NULL);
        return KIN_LEFT;
    }
    kin_launch done = kin_run_launch(r, first, &last);
    if (done == KIN_LAUNCH_RAISED) {
        *value = leave_raising(r, first, framed ? &chain : NULL);
        return KIN_LEFT;
    }
    if (framed)
        drop_chain(r, &chain);
    if (done == KIN_LAUNCH_NOT)
        return KIN_GO_ON;
    kin_run_free_between(r, first, last);
    *step = last;
    return KIN_JUMP;
}

/* The subgraph to run, or whose calls are deferred, from this step on; NULL: none. */
static inline const kin_subgraph *
subgraph_from(const kin_run *r, uint32_t step)
{
    kin_subgraphs *subgraphs = r->subgraphs;
    if (subgraphs == NULL || step >= subgraphs->nsteps || subgraphs->by_step[step] == 0 || r->learning != NULL)
        return NULL;
    kin_subgraph *subgraph = &subgraphs->at.at[subgraphs->by_step[step] - 1];
    bool ours = subgraph->first == step && subgraph->launcher != NULL;
    if (ours && !subgraph->deferred && kin_subgraph_is_backed_off(subgraph))
        return NULL;
    return ours && (subgraph->deferred || kin_replay_force_exit == UINT32_MAX) ? subgraph : NULL;
}

/* The next step, in sequence. */
static kin_outcome
go_on(kin_run *r, uint32_t *step, PyObject **value)
{
    const kin_step *s = &r->t->steps.at[*step];
    const kin_subgraph *subgraph = NULL;
    if (r->deferred == NULL && r->early == NULL && !(s->flags & KIN_STEP_SUNK) && (subgraph = subgraph_from(r, *step)) != NULL && subgraph->deferred)
        kin_pending_begin(r, subgraph);
    if (r->deferred != NULL || r->early != NULL)
        return kin_pending_step(r, step, value);
    if (s->flags & KIN_STEP_SUNK) {
        if (!r->built_sunk || kin_sunk_pass(r, *step) == KIN_OK)
            return KIN_GO_ON;
        r->failed_at = *step;
        *value = NULL;
        return KIN_LEFT;
    }
    if (subgraph != NULL && !subgraph->deferred) {
        kin_outcome out = launch_subgraph(r, step, value);
        if (out != KIN_GO_ON)
            return out == KIN_JUMP ? KIN_GO_ON : out;
    }
    if (kin_replay_force_exit != UINT32_MAX) {
        if (kin_run_is_forced(r, s)) {
            *value = kin_run_leave(r, *step, KIN_LEAVE_BEFORE, NULL, NULL, true);
            return KIN_LEFT;
        }
        if (s->snap != 0)
            r->last_snap = s->snap;
    }
    return s->kind == KIN_STEP_LOOP_BACK ? run_loop_back(r, step, value) : kin_run_step(r, *step, value);
}

/* The steps that are looked at, as things are. */
static inline const uint64_t *
stops_of(const kin_run *r)
{
    if ((r->deferred != NULL || r->early != NULL) && kin_replay_force_exit == UINT32_MAX)
        return r->subgraphs->stops;
    return r->built_sunk ? r->t->stops.passes : r->t->stops.runs;
}

/* `rows`: a profiler is on. A constant for each of the two callers, so that the usual loop does not ask. */
static inline PyObject *
run_steps_and(kin_run *r, bool rows)
{
    const kin_trace *t = r->t;
    PyObject *value = NULL;
    for (uint32_t i = 0;;) {
        i = kin_stops_next(stops_of(r), i);
        kin_outcome next;
        if (rows)
            kin_rows_enter(r, i);
        if (!kin_run_quickly(r, i, &next, &value))
            next = go_on(r, &i, &value);
        const kin_step *s = &t->steps.at[i];
        if (next == KIN_LEFT)
            return value;
        if (r->learning != NULL && (next == KIN_JUMP || i == r->learning->last))
            kin_pending_end_learning(r, i, next != KIN_JUMP);
        if (next == KIN_JUMP) {
            r->way = r->jumped ? r->way : i;
            r->jumped = true;
            r->side_step = i;
            i = s->alt;
            continue;
        }
        if (s->nfrees != 0 && r->learning != NULL)
            free_learned(r, s);
        else if (s->nfrees != 0 && r->deferred == NULL && r->early == NULL)
            kin_run_free(r, s);
        i++;
    }
}

static PyObject *
run_steps(kin_run *r)
{
    return run_steps_and(r, false);
}

static PyObject *
run_profiled(kin_run *r)
{
    r->rows = Py_NewRef(r->v->rows); /* a call in between may replace them */
    PyObject *value = run_steps_and(r, true);
    kin_rows_end(r);
    return value;
}

/* A failure of our own that could not be left by a snapshot. The caller of this call may be a replay as well: it must
 * not take the failure for one of its own. */
static void
end_failed(kin_run *r)
{
    note_failure(r);
    if (!is_untouched(r, r->failed_at))
        PyErr_SetString(PyExc_SystemError, r->v->failure == NULL ? "kintsugi: internal failure" : r->v->failure);
}

PyObject *
kin_replay_run(kin_entry *v, PyObject **slots, kin_exit_look look, kin_exit_hook hook, void *hook_arg)
{
    /* Each member by itself: clearing the whole first takes longer than a step. */
    kin_run r = {.v = v, .t = &v->trace, .refs = &v->refs, .ts = PyThreadState_Get(), .slots = slots,
                 .nslots = v->trace.vals.len, .look = look, .hook = hook, .hook_arg = hook_arg, .again = v->again, .built_sunk = false, .jumped = false, .way = 0,
                 .looked = NULL, .has_exc = false, .exc = 0, .entry_exc = NULL, .last_snap = 0, .nforced = 0, .rounds = 0, .moment = 0, .launched = NULL, .subgraphs = v->subgraphs,
                 .failed_at = 0, .deferred = NULL, .early = NULL, .drawn = NULL, .completed = 0, .chosen = NULL, .narrived = 0, .learning = NULL, .namespaces = NULL, .marker = NULL, .marked = 0, .marked_code = 0, .rows = NULL, .row = NULL, .row_name = NULL, .dropped = false};
    v->running++;
    if (r.subgraphs != NULL)
        r.subgraphs->refs++;
    PyObject *value = v->rows != NULL && kin_profiler_on() ? run_profiled(&r) : run_steps(&r);
    PyObject *type = NULL, *error = NULL, *tb = NULL;
    if (value == NULL && kin_failure_pending())
        end_failed(&r);
    if (value == NULL)
        PyErr_Fetch(&type, &error, &tb);
    if (r.has_exc)
        Py_XSETREF(r.ts->exc_info->exc_value, r.entry_exc);
    free(r.looked);
    Py_XDECREF(r.drawn);
    kin_marker_give(r.marker);
    kin_ahead_drop(&r, r.early);
    kin_run_release_slots(&r);
    kin_namespaces_free(r.namespaces);
    kin_subgraphs_release(r.subgraphs);
    if (!v->remake.settled && kin_replay_force_exit == UINT32_MAX)
        kin_remake_note(&v->remake, r.way);
    if (value == NULL)
        PyErr_Restore(type, error, tb);
    v->running--;
    return value;
}
