/* Runs one step; and the fast path for the steps that most replays consist of: type checks, calls and operators that go as recorded, while
 * no subgraph is deferred, no exception is being handled and no frames are needed. Everything else takes the general path (replay.c).
 */
#include "core/trace/effects.h"
#include "py/guardeval/guard.h"
#include "py/replay/ops_priv.h"
#include "py/replay/replay_priv.h"

/* -- one step ----------------------------------------------------------------------------------------------------- */

/* Around each step that runs. */
bool
kin_run_mark(kin_run *r, const kin_step *s)
{
    if (!kin_step_leaves_memory(s))
        r->moment = 0;
    if (s->snap == 0 || s->flags & KIN_STEP_PURE)
        return false;
    const kin_snap *snap = &r->t->snaps.at[s->snap];
    PyObject *func = kin_run_value(r, snap->func);
    if (func == NULL || (r->marker == NULL && (r->marker = kin_marker_take()) == NULL))
        return false;
    if (r->marked != snap->func || r->marked_code != snap->code) {
        if (!kin_marker_set(r->marker, func, (PyCodeObject *)kin_refs_get(r->refs, snap->code))) {
            r->marked = 0;
            return false;
        }
        r->marked = snap->func;
        r->marked_code = snap->code;
    }
    kin_marker_link(r->ts, r->marker, snap->offset);
    return true;
}

PyObject *
kin_run_execute(kin_run *r, const kin_step *s)
{
    bool marked = kin_run_mark(r, s);
    PyObject *result = kin_step_execute(r->t, r->refs, s, r->slots);
    kin_run_unmark(r, marked);
    return result;
}

/* -- many steps --------------------------------------------------------------------------------------------------- */

static inline PyObject *
operand(const kin_run *r, kin_vid vid)
{
    PyObject *obj = r->slots[vid];
    return obj != NULL ? obj : kin_refs_get(r->refs, r->t->stops.consts[vid]);
}

/* Does the test pass? False also where only the general way may ask: truth can run code. */
static bool
passes(const kin_run *r, const kin_step *s)
{
    PyObject *a = operand(r, r->t->vids.at[s->args]);
    if (s->imm == KIN_CHECK_TYPE)
        return a != NULL && (PyObject *)Py_TYPE(a) == kin_refs_get(r->refs, s->ref);
    if (s->imm == KIN_CHECK_TRUE || s->imm == KIN_CHECK_FALSE || s->imm == KIN_CHECK_FITS || s->imm == KIN_CHECK_RUNS_NO_CODE)
        return false;
    return kin_check_holds(r->refs, s, a, s->nargs > 1 ? operand(r, r->t->vids.at[s->args + 1]) : NULL) > 0;
}

/* A call without keywords of a builtin that takes a tuple, as almost all functions of torch do. */
static PyObject *
call_builtin(const kin_run *r, PyObject *callee, const kin_vid *args, uint32_t n, bool *missing)
{
    PyObject *tuple = PyTuple_New((Py_ssize_t)n);
    for (uint32_t i = 0; tuple != NULL && i < n; i++) {
        PyObject *arg = operand(r, args[i]);
        *missing = *missing || arg == NULL;
        PyTuple_SET_ITEM(tuple, (Py_ssize_t)i, Py_XNewRef(arg));
    }
    PyObject *result = tuple == NULL || *missing ? NULL : kin_op_call_tuple(r->ts, callee, tuple);
    Py_XDECREF(tuple);
    return result;
}

static bool
takes_frames(const kin_step *s, PyObject *callee)
{
    return callee == NULL || (s->flags & KIN_STEP_TORCH && PyFunction_Check(callee));
}

/* The step's result in *result. False: nothing was done. */
static bool
execute(kin_run *r, const kin_step *s, PyObject **result)
{
    const kin_vid *args = r->t->vids.at + s->args;
    PyObject *a = s->nargs > 0 ? operand(r, args[0]) : NULL, *b;
    bool missing = false, marked;
    switch ((kin_step_kind)s->kind) {
    case KIN_STEP_CALL:
        if (takes_frames(s, a))
            return false;
        if (s->ref != 0 || !kin_op_takes_tuple(a))
            break;
        marked = kin_run_mark(r, s);
        *result = call_builtin(r, a, args + 1, s->nargs - 1u, &missing);
        kin_run_unmark(r, marked);
        return !missing;
    case KIN_STEP_BINARY:
        b = s->nargs > 1 ? operand(r, args[1]) : NULL;
        if (a == NULL || b == NULL)
            return false;
        marked = kin_run_mark(r, s);
        *result = kin_op_binary(s->imm, a, b);
        kin_run_unmark(r, marked);
        return true;
    case KIN_STEP_CALL_EX:
        if (takes_frames(s, a))
            return false;
        break;
    case KIN_STEP_RAISE:
    case KIN_STEP_EPOCH:
    case KIN_STEP_RETURN:
    case KIN_STEP_EXIT:
    case KIN_STEP_LOOP_BACK:
        return false;
    default:
        if (takes_frames(s, a) && s->flags & KIN_STEP_TORCH)
            return false;
        break;
    }
    *result = kin_run_execute(r, s);
    return true;
}

static bool
begins_subgraph(const kin_run *r, uint32_t step)
{
    const kin_subgraphs *subgraphs = r->subgraphs;
    return subgraphs != NULL && step < subgraphs->nsteps && subgraphs->by_step[step] != 0 &&
           subgraphs->at.at[subgraphs->by_step[step] - 1].first == step;
}

bool
kin_run_quickly(kin_run *r, uint32_t step, kin_outcome *out, PyObject **value)
{
    enum { GENERAL = KIN_STEP_OPAQUE | KIN_STEP_RAISES | KIN_STEP_SUNK | KIN_STEP_HANDLES };
    const kin_step *s = &r->t->steps.at[step];
    if (s->flags & GENERAL || r->exc != 0 || r->deferred != NULL || r->early != NULL || kin_replay_force_exit != UINT32_MAX)
        return false;
    if (begins_subgraph(r, step))
        return false;
    PyObject *result;
    *out = KIN_GO_ON;
    if (s->kind == KIN_STEP_CHECK)
        return passes(r, s);
    if (!execute(r, s, &result))
        return false;
    if (result == NULL)
        *out = kin_run_settle(r, step, NULL, value);
    else if (s->out != 0)
        Py_XSETREF(r->slots[s->out], result);
    else
        Py_DECREF(result);
    return true;
}
