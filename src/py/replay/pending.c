/* Subgraphs with other steps between their calls (core/trace/partition.h): the calls are deferred while those steps run in order, and run
 * together, compiled, at the subgraph's last call.
 *
 * Deferral must not be observable. If a step in between does not go as recorded, if an input does not fit the compiled code, or if grad mode
 * changes, everything deferred runs first, step by step. Slots are released only after that, because the deferred calls may need them.
 *
 * Code is compiled only from calls that ran step by step: their inputs are kept until the last step and captured there.
 */
#include "py/replay/replay_priv.h"

#include "core/trace/effects.h"
#include "py/aten/make.h"
#include "py/compat/heap.h"
#include "py/compat/imports.h"
#include "py/guardeval/guard.h"
#include "py/watch/watch.h"

/* -- inputs ----------------------------------------------------------------------------------------------------- */

typedef struct {
    PyObject *small[64], **values;
} inputs;

/* Borrowed objects, NULL for those that are not there yet; false without memory, or when one is missing. */
static bool
take_inputs(const kin_run *r, const kin_subgraph *subgraph, uint32_t narrived, inputs *in)
{
    in->values = subgraph->nin <= 64 ? in->small : calloc(subgraph->nin, sizeof *in->values);
    if (in->values == NULL)
        return false;
    kin_run_inputs(r, subgraph, narrived, in->values);
    for (uint32_t k = 0; k < narrived; k++)
        if (in->values[subgraph->order[k]] == NULL)
            return false;
    return true;
}

static void
drop_inputs(inputs *in)
{
    if (in->values != in->small)
        free(in->values);
}

/* Whoever runs the subgraph, or chooses how, does so with gradients on if one of its calls does: the mode as it is, for kin_grad_set afterwards. */
static bool
go_to_its_mode(const kin_subgraph *subgraph)
{
    bool now = kin_grad_enabled();
    if (subgraph->grads != NULL)
        kin_grad_set(subgraph->tracked);
    return now;
}

void
kin_pending_begin(kin_run *r, const kin_subgraph *subgraph)
{
    inputs in;
    bool learn = false;
    if (r->built_sunk && subgraph->changes_sunk)
        return;
    bool now = go_to_its_mode(subgraph);
    r->chosen = NULL;
    if (take_inputs(r, subgraph, subgraph->nearly, &in))
        r->chosen = subgraph->launcher->choose(subgraph->launcher, r->v, subgraph, in.values, NULL, &learn);
    else
        subgraph->launcher->lacks_input = true;
    kin_grad_set(now);
    drop_inputs(&in);
    r->narrived = subgraph->nearly;
    if (r->chosen != NULL)
        r->deferred = subgraph;
    else if (learn)
        r->learning = subgraph;
}

/* Does the object fit what was chosen for the inputs before? Else something is chosen for it, too. */
static bool
fits_or_choose(kin_run *r, const kin_subgraph *subgraph, bool fit)
{
    if (fit)
        return true;
    inputs in;
    bool learn;
    r->chosen = take_inputs(r, subgraph, r->narrived, &in)
                    ? subgraph->launcher->choose(subgraph->launcher, r->v, subgraph, in.values, r->chosen, &learn) : NULL;
    drop_inputs(&in);
    return r->chosen != NULL;
}

/* The subgraph runs here: the inputs that are missing are read ahead. False: they cannot be, or are of another kind than what was chosen. */
static bool
arrive_ahead(kin_run *r, const kin_subgraph *subgraph)
{
    bool fit = true;
    if (!kin_ahead_read(r, subgraph))
        return false;
    bool now = go_to_its_mode(subgraph);
    for (; r->narrived < subgraph->nin; r->narrived++) {
        uint32_t i = subgraph->order[r->narrived];
        fit = fit && subgraph->launcher->fits(subgraph->launcher, r->chosen, i, r->ahead[i]);
    }
    fit = fits_or_choose(r, subgraph, fit);
    kin_grad_set(now);
    return fit;
}

/* The step has made inputs. False: they are of another kind than what was chosen for the others. */
static bool
arrive(kin_run *r, uint32_t step)
{
    const kin_subgraph *subgraph = r->deferred;
    bool fit = true, now = go_to_its_mode(subgraph), there = true;
    for (; there && r->narrived < subgraph->nin && subgraph->arrives[r->narrived] == step; r->narrived += there) {
        uint32_t i = subgraph->order[r->narrived];
        PyObject *obj = kin_run_value(r, subgraph->in[i]);
        there = obj != NULL;
        fit = there && fit && subgraph->launcher->fits(subgraph->launcher, r->chosen, i, obj);
    }
    fit = there && fits_or_choose(r, subgraph, fit);
    kin_grad_set(now);
    return fit;
}

/* -- running what was deferred ----------------------------------------------------------------------------------------- */

static kin_outcome
run_waiting(kin_run *r, const kin_subgraph *subgraph, uint32_t step, PyObject **value)
{
    if (kin_subgraph_defers(subgraph, r->t, step))
        return kin_run_step(r, step, value);
    if (!(r->t->steps.at[step].flags & KIN_STEP_SUNK) || !r->built_sunk || kin_sunk_pass(r, step) == KIN_OK)
        return KIN_GO_ON;
    r->failed_at = step;
    *value = NULL;
    return KIN_LEFT;
}

/* Runs what was deferred before `upto`. Not GO_ON: *step is the one that went elsewhere, and gradients are as at its place. */
static kin_outcome
catch_up(kin_run *r, uint32_t upto, uint32_t *step, PyObject **value)
{
    const kin_subgraph *subgraph = r->deferred;
    bool now = kin_grad_enabled();
    r->deferred = NULL;
    for (uint32_t i = subgraph->first; i < upto; i++) {
        const kin_step *s = &r->t->steps.at[i];
        if (subgraph->grads != NULL)
            kin_grad_set(subgraph->grads[i - subgraph->first]);
        if (s->flags & KIN_STEP_RAISES && s->out != 0 && !(s->flags & KIN_STEP_SUNK) && r->slots[s->out] != NULL)
            kin_run_note_frames(r, i);
        kin_outcome out = run_waiting(r, subgraph, i, value);
        if (out != KIN_GO_ON) {
            *step = i;
            return out;
        }
        if (s->nfrees != 0)
            kin_run_free(r, s);
    }
    kin_grad_set(now);
    return KIN_GO_ON;
}

/* The same, then the step as if nothing had been deferred. */
static kin_outcome
catch_up_and_run(kin_run *r, uint32_t *step, PyObject **value)
{
    kin_outcome out = catch_up(r, *step, step, value);
    return out == KIN_GO_ON ? kin_run_step(r, *step, value) : out;
}

/* -- behind a subgraph that has run early ---------------------------------------------------------------------------- */

/* Does nobody want what the deferred step does, so that it was left out? */
static bool
is_left_out(const kin_run *r, const kin_subgraph *subgraph, uint32_t step)
{
    const kin_step *s = &r->t->steps.at[step];
    if (s->flags & KIN_STEP_SUNK || s->kind == KIN_STEP_CHECK || !kin_subgraph_defers(subgraph, r->t, step) || (subgraph->switches && kin_subgraph_calls(s)))
        return false;
    if (kin_step_is_in(r->v->kept.at, r->v->kept.len, step))
        return false;
    if (s->out != 0)
        return !r->subgraphs->needed[s->out] && r->slots[s->out] == NULL;
    return s->flags & KIN_STEP_MUTATES && r->subgraphs->needed[r->t->vids.at[s->args]] <= step;
}

/* Does what was left out before step `upto`. */
static void
complete(kin_run *r, uint32_t upto)
{
    PyObject *type, *error, *tb;
    PyErr_Fetch(&type, &error, &tb);
    for (; r->completed < upto; r->completed++) {
        const kin_step *s = &r->t->steps.at[r->completed];
        PyObject *made = is_left_out(r, r->early, r->completed) ? kin_run_execute(r, s) : NULL;
        PyErr_Clear(); /* it was made once: only memory is missing */
        if (made != NULL && s->out != 0)
            r->slots[s->out] = made;
        else
            Py_XDECREF(made);
    }
    PyErr_Restore(type, error, tb);
}

static bool
draws(const kin_run *r, const kin_subgraph *subgraph, uint32_t step)
{
    return step >= subgraph->first && step <= subgraph->last && r->subgraphs->by_step[step] != 0;
}

static PyObject *
generator_now(void)
{
    PyObject *state = kin_import_call("torch.random", "get_rng_state", NULL);
    PyErr_Clear();
    return state;
}

/* The generator's state, if the subgraph draws random numbers: new reference or NULL. */
static PyObject *
generator_before(const kin_run *r, const kin_subgraph *subgraph)
{
    bool any = false;
    for (uint32_t i = 0; i < r->v->random.len; i++)
        any = any || draws(r, subgraph, r->v->random.at[i]);
    return any ? generator_now() : NULL;
}

/* Only the numbers that calls before step `upto` have drawn are drawn. */
static void
draw_again(kin_run *r, uint32_t upto)
{
    PyObject *type, *error, *tb, *done;
    PyErr_Fetch(&type, &error, &tb);
    done = kin_import_call("torch.random", "set_rng_state", r->drawn);
    Py_XDECREF(done);
    for (uint32_t i = r->early->first; i < upto; i++)
        if (kin_step_is_in(r->v->random.at, r->v->random.len, i)) {
            done = kin_run_execute(r, &r->t->steps.at[i]);
            Py_XDECREF(done);
        }
    PyErr_Clear();
    PyErr_Restore(type, error, tb);
    Py_CLEAR(r->drawn);
}

static void
set_generator(PyObject *state)
{
    Py_XDECREF(state == NULL ? NULL : kin_import_call("torch.random", "set_rng_state", state));
    PyErr_Clear();
}

static bool
is_generator_at(PyObject *state)
{
    PyObject *now = state == NULL ? NULL : generator_now();
    PyObject *same = now == NULL ? NULL : PyObject_CallMethod(now, "equal", "O", state);
    bool is = same == Py_True;
    PyErr_Clear();
    Py_XDECREF(now);
    Py_XDECREF(same);
    return is;
}

bool
kin_pending_was_told(kin_run *r, const kin_step *s)
{
    bool told = r->again && (s->flags & (KIN_STEP_REPORTS | KIN_STEP_EFFECT)) == (KIN_STEP_REPORTS | KIN_STEP_EFFECT);
    if (told && s->out != 0)
        Py_XSETREF(r->slots[s->out], Py_NewRef(Py_None));
    return told;
}

/* A step that reports finds the generator as it is there in eager: only the calls before it have drawn. If it draws itself, the program is left behind it. */
static kin_outcome
report(kin_run *r, uint32_t step, PyObject **value)
{
    if (r->drawn == NULL)
        return kin_run_step(r, step, value);
    PyObject *before = Py_NewRef(r->drawn), *behind = generator_now();
    draw_again(r, step);
    PyObject *here = generator_now();
    kin_outcome out = kin_run_step(r, step, value);
    if (out == KIN_GO_ON && behind != NULL && is_generator_at(here)) {
        set_generator(behind);
        r->drawn = Py_NewRef(before);
    } else if (out == KIN_GO_ON) {
        r->unknown = true; /* nothing holds behind it */
    }
    Py_DECREF(before);
    Py_XDECREF(behind);
    Py_XDECREF(here);
    return out;
}

void
kin_pending_complete(kin_run *r, uint32_t upto)
{
    uint32_t first = r->early->first;
    complete(r, upto);
    if (r->drawn != NULL)
        draw_again(r, upto);
    kin_ahead_drop(r, r->early);
    r->early = NULL;
    for (uint32_t i = first; i < upto; i++)
        kin_run_free(r, &r->t->steps.at[i]);
}

/* A step of the subgraph that has run: those that are parts of what its calls got are done where somebody else wants that, too. */
static kin_outcome
run_behind(kin_run *r, uint32_t *step, PyObject **value)
{
    const kin_subgraph *subgraph = r->early;
    uint32_t at = *step;
    const kin_step *s = &r->t->steps.at[at];
    bool defers = kin_subgraph_defers(subgraph, r->t, at);
    if (at == subgraph->last) {
        kin_ahead_drop(r, subgraph);
        r->early = NULL;
        Py_CLEAR(r->drawn);
        kin_run_free_between(r, subgraph->first, at);
        return KIN_GO_ON;
    }
    if (s->flags & KIN_STEP_SUNK) {
        if (!r->built_sunk)
            return KIN_GO_ON;
        complete(r, at);
        return kin_sunk_pass(r, at) == KIN_OK ? KIN_GO_ON : KIN_LEFT;
    }
    if (kin_subgraph_calls(s) && defers)
        return KIN_GO_ON;
    bool wanted = s->out != 0 ? r->subgraphs->needed[s->out] && r->slots[s->out] == NULL
                              : s->flags & KIN_STEP_MUTATES && r->subgraphs->needed[r->t->vids.at[s->args]] > at;
    if (defers && (s->kind == KIN_STEP_CHECK || !wanted))
        return KIN_GO_ON;
    kin_outcome out = s->flags & KIN_STEP_REPORTS ? report(r, at, value) : kin_run_step(r, at, value);
    if (out != KIN_GO_ON || s->kind != KIN_STEP_EPOCH || kin_ahead_holds(r, subgraph, s->num))
        return out;
    *value = kin_run_leave(r, at, KIN_LEAVE_BEFORE, NULL, NULL, false);
    return KIN_LEFT;
}

static kin_outcome
launch(kin_run *r, uint32_t *step, PyObject **value)
{
    const kin_subgraph *subgraph = r->deferred;
    if (subgraph->at != 0 && !arrive_ahead(r, subgraph)) {
        kin_ahead_drop(r, subgraph);
        return catch_up_and_run(r, step, value);
    }
    PyObject *before = subgraph->at != 0 ? generator_before(r, subgraph) : NULL;
    bool now = go_to_its_mode(subgraph);
    kin_launch done = kin_run_launch_waiting_framed(r);
    kin_grad_set(now);
    if (done == KIN_LAUNCH_DONE)
        Py_XSETREF(r->drawn, before);
    else
        Py_XDECREF(before);
    if (done != KIN_LAUNCH_DONE)
        kin_ahead_drop(r, subgraph);
    if (done == KIN_LAUNCH_NOT)
        return catch_up_and_run(r, step, value);
    r->deferred = NULL;
    if (done == KIN_LAUNCH_RAISED) {
        if (subgraph->grads != NULL)
            kin_grad_set(subgraph->grads[0]);
        return kin_run_settle(r, subgraph->first, NULL, value);
    }
    if (subgraph->at != 0) {
        r->early = subgraph;
        kin_ahead_ran(r, subgraph);
        r->completed = subgraph->first;
        return run_behind(r, step, value);
    }
    kin_run_free_between(r, subgraph->first, subgraph->last);
    return KIN_GO_ON;
}

/* -- steps in between ------------------------------------------------------------------------------------------- */

/* Does the test pass? What it asks can be asked again. */
static bool
passes(kin_run *r, uint32_t step)
{
    const kin_step *s = &r->t->steps.at[step];
    if (s->kind == KIN_STEP_EPOCH) {
        kin_guard_miss miss;
        return !kin_watch_foreign_tool(r->ts) && kin_guard_eval(r->v, s->num, r->slots, &miss);
    }
    int holds = kin_run_check(r, s);
    if (holds < 0)
        PyErr_Clear();
    return holds > 0;
}

/* Do only this subgraph's own steps hold the exception, which will be gone before the subgraph runs (dies_soon in
 * core/trace/partition_roles.c)? Its handler does not look at it, and if the program is left before that, catch_up notes its frames. */
static bool
is_brief(const kin_run *r, uint32_t step, PyObject *exc)
{
    PyObject *handled = PyErr_GetHandledException();
    Py_ssize_t held = 1 + 2 * (handled == exc);
    for (uint32_t i = r->deferred->first; i < step; i++)
        held += r->t->steps.at[i].out != 0 && r->slots[r->t->steps.at[i].out] == exc;
    bool brief = Py_REFCNT(exc) <= held && kin_heap_type_is_static(Py_TYPE(exc));
    Py_XDECREF(handled);
    return brief;
}

/* A result whose frames cannot be observed is stored. False: what was deferred has to run first. */
static bool
keep_exception(kin_run *r, uint32_t step)
{
    const kin_step *s = &r->t->steps.at[step];
    PyObject *type, *value, *tb;
    if (!kin_run_is_expected(r, s))
        return false;
    PyErr_Fetch(&type, &value, &tb);
    PyErr_NormalizeException(&type, &value, &tb);
    if (!kin_run_dies_at_once(r, s, value) && !is_brief(r, step, value)) {
        PyErr_Restore(type, value, tb);
        return false;
    }
    Py_XDECREF(type);
    Py_XDECREF(tb);
    if (s->out != 0)
        Py_XSETREF(r->slots[s->out], value);
    else
        Py_DECREF(value);
    return true;
}

/* The step did not give what it mostly does. Steals result. */
static kin_outcome
settle(kin_run *r, uint32_t *step, PyObject *result, PyObject **value)
{
    const kin_step *s = &r->t->steps.at[*step];
    PyObject *type, *error, *tb;
    if (result == NULL && PyErr_Occurred() && s->flags & KIN_STEP_RAISES && keep_exception(r, *step))
        return KIN_GO_ON;
    uint32_t at = *step;
    PyErr_Fetch(&type, &error, &tb);
    kin_outcome out = catch_up(r, at, step, value);
    if (out != KIN_GO_ON) {
        Py_XDECREF(result);
        Py_XDECREF(type);
        Py_XDECREF(error);
        Py_XDECREF(tb);
        return out;
    }
    kin_run_enter_handler(r, s);
    PyErr_Restore(type, error, tb);
    return kin_run_settle(r, at, result, value);
}

/* Does it switch gradients on or off, where deferred calls want them as they were? */
static bool
switches_gradients(kin_run *r, const kin_step *s)
{
    if (!(s->flags & KIN_STEP_EFFECT) || !kin_step_does(s, KIN_GRAD_MODE) || r->deferred->grads != NULL)
        return false;
    PyObject *on = kin_run_value(r, r->t->vids.at[s->args + 1]);
    return !(on == Py_True || on == Py_False) || (on == Py_True) != kin_grad_enabled();
}

static kin_outcome
run_between(kin_run *r, uint32_t *step, PyObject **value)
{
    const kin_step *s = &r->t->steps.at[*step];
    kin_run_enter_handler(r, s);
    if (s->kind == KIN_STEP_CHECK || s->kind == KIN_STEP_EPOCH)
        return passes(r, *step) ? KIN_GO_ON : catch_up_and_run(r, step, value);
    if (switches_gradients(r, s))
        return catch_up_and_run(r, step, value);
    PyObject *result = kin_run_execute(r, s);
    bool ended = result == NULL && s->kind == KIN_STEP_NEXT && !PyErr_Occurred();
    if ((result == NULL && !ended) || s->flags & KIN_STEP_RAISES)
        return settle(r, step, result, value);
    if (s->out != 0)
        Py_XSETREF(r->slots[s->out], result);
    else
        Py_XDECREF(result);
    return KIN_GO_ON;
}

/* A test wants the program to be left before the step. */
static bool
is_forced(kin_run *r, const kin_step *s)
{
    if (kin_replay_force_exit == UINT32_MAX || s->flags & KIN_STEP_SUNK)
        return false;
    if (kin_run_is_forced(r, s))
        return true;
    if (s->snap != 0)
        r->last_snap = s->snap;
    return false;
}

/* May what is deferred here be deferred now? A store to an object of the program's own, if nothing else can see that it has not been done. */
static bool
may_wait(kin_run *r, const kin_step *s)
{
    if (s->flags & KIN_STEP_SUNK || !kin_subgraph_stores_own(r->t, s))
        return true;
    const kin_vid *args = r->t->vids.at + s->args;
    PyObject *obj = kin_run_value(r, args[0]);
    if (obj == NULL) /* its object is deferred as well */
        return true;
    return s->kind == KIN_STEP_SETATTR ? kin_owns_attribute(obj, kin_refs_get(r->refs, s->ref)) : kin_owns_item(obj, kin_run_value(r, args[1]));
}

kin_outcome
kin_pending_step(kin_run *r, uint32_t *step, PyObject **value)
{
    const kin_subgraph *subgraph = r->deferred;
    uint32_t at = *step;
    const kin_step *s = &r->t->steps.at[at];
    bool left_nowhere = subgraph == NULL && r->early->switches && kin_subgraph_defers(r->early, r->t, at); /* what it needs may not be there */
    bool forced = !left_nowhere && is_forced(r, s);
    if (subgraph == NULL && !forced)
        return run_behind(r, step, value);
    if (subgraph == NULL) {
        *value = kin_run_leave(r, at, KIN_LEAVE_BEFORE, NULL, NULL, true);
        return KIN_LEFT;
    }
    if (forced) {
        kin_outcome out = catch_up(r, at, step, value);
        if (out == KIN_GO_ON)
            *value = kin_run_leave(r, at, KIN_LEAVE_BEFORE, NULL, NULL, true);
        return out == KIN_GO_ON ? KIN_LEFT : out;
    }
    if (at == subgraph->last || (at == subgraph->at && at != 0))
        return launch(r, step, value);
    if (s->flags & KIN_STEP_SUNK || kin_subgraph_defers(subgraph, r->t, at))
        return may_wait(r, s) ? KIN_GO_ON : catch_up_and_run(r, step, value);
    kin_outcome out = run_between(r, step, value);
    if (out == KIN_GO_ON && r->deferred != NULL && !arrive(r, at))
        out = catch_up(r, at, step, value);
    return out;
}

/* -- learning --------------------------------------------------------------------------------------------------- */

void
kin_pending_end_learning(kin_run *r, uint32_t step, bool complete)
{
    const kin_subgraph *subgraph = r->learning;
    inputs in;
    r->learning = NULL;
    if (complete) {
        PyObject **out = calloc(subgraph->nout + 1, sizeof *out);
        for (uint32_t k = 0; out != NULL && k < subgraph->nout; k++)
            out[k] = kin_run_value(r, subgraph->out[k]);
        bool now = go_to_its_mode(subgraph);
        if (take_inputs(r, subgraph, subgraph->nin, &in))
            subgraph->launcher->learn(subgraph->launcher, r->v, subgraph, in.values, out);
        kin_grad_set(now);
        drop_inputs(&in);
        free(out);
    }
    for (uint32_t i = subgraph->first; i < step; i++)
        kin_run_free(r, &r->t->steps.at[i]);
}
