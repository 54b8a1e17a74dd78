/* Leaves the trace: rebuilds the frames of the step's snapshot, releases the slots and lets CPython run the rest.
 *
 * The frames are evaluated innermost first. While one runs, its callers are linked below it, each at the instruction
 * that made the call, so everything that inspects frames sees what it would see in an ordinary run.
 */
#include "py/aten/profiler.h"
#include "py/compat/recursion.h"
#include "py/compat/codes.h"
#include "py/compat/imports.h"
#include "py/compat/signals.h"
#include "py/replay/reflect.h"
#include "py/replay/ops_priv.h"
#include "py/replay/replay_priv.h"


struct kin_exit {
    kin_run *run;
    kin_chain chain;
    uint32_t offset; /* where the innermost frame goes on */
    bool throwing;
};

/* -- the state after an instruction ----------------------------------------------------------------------------- */

bool
kin_leave_can_pass(const kin_instr *in)
{
    return kin_instr_leaves(in) != KIN_LEAVES_MANY && kin_instr_effect(in) != INT32_MIN;
}

/* Moves the frame behind its instruction, which the recorder has asked kin_leave_can_pass about. Steals result; NULL
 * (KIN_LEAVES_NEXT): the iterator has ended. */
static void
move_behind(kin_link *l, PyObject *result)
{
    const kin_code *code = rec_code_of(l->code);
    const kin_instr *in = kin_code_at(code, l->at);
    kin_leaves leaves = kin_instr_leaves(in);
    if (result == NULL) {
        if (!(kin_instr_main(in).flags & KIN_DO_KEEPS_ITERATOR))
            kin_frame_pop(l->frame, 1);
        l->next = in->target;
        return;
    }
    bool pair = leaves == KIN_LEAVES_PAIR || leaves == KIN_LEAVES_PAIR_EMPTY_LAST;
    int pushed = leaves == KIN_LEAVES_NOTHING ? 0 : pair ? 2 : 1;
    kin_frame_pop(l->frame, pushed - kin_instr_effect(in));
    if (leaves == KIN_LEAVES_PAIR)
        kin_frame_push(l->frame, NULL);
    if (leaves == KIN_LEAVES_NOTHING)
        Py_DECREF(result);
    else
        kin_frame_push(l->frame, result);
    if (leaves == KIN_LEAVES_PAIR_EMPTY_LAST)
        kin_frame_push(l->frame, NULL);
}

/* -- running the frames ----------------------------------------------------------------------------------------- */

/* `in` and `not in`, and comparisons of conditions, turn what the method returned into a bool. Steals result. */
static void
give_truth(kin_exit *e, kin_link *caller, PyObject *result, bool invert)
{
    int truth = PyObject_IsTrue(result);
    Py_DECREF(result);
    e->throwing = truth < 0;
    e->offset = e->throwing ? caller->at : caller->next;
    if (!e->throwing)
        kin_frame_push(caller->frame, Py_NewRef((truth != 0) != invert ? Py_True : Py_False));
}

/* Asks the type's __getattr__, from the caller's frame, after a lookup has failed. New reference, NULL: it raised. */
static PyObject *
ask_fallback(kin_exit *e, kin_link *caller)
{
    PyObject *parts = caller->extra;
    PyErr_Clear();
    kin_frame_link(e->run->ts, caller->frame, caller->at);
    PyObject *result = PyObject_CallFunctionObjArgs(PyTuple_GET_ITEM(parts, 0), PyTuple_GET_ITEM(parts, 1),
                                                    PyTuple_GET_ITEM(parts, 2), NULL);
    kin_frame_unlink(e->run->ts, caller->frame);
    return result;
}

/* The words of an operator that nobody knows name the one that was written. */
static void
name_inplace(int op, PyObject *left, PyObject *right)
{
    static const char words[] = "unsupported operand type(s) for %s: '%.100s' and '%.100s'";
    PyObject *type, *error, *traceback;
    const char *a = Py_TYPE(left)->tp_name, *b = Py_TYPE(right)->tp_name;
    PyErr_Fetch(&type, &error, &traceback);
    PyErr_NormalizeException(&type, &error, &traceback);
    PyObject *plain = PyUnicode_FromFormat(words, kin_operator_in_message(op, false), a, b), *text = type == PyExc_TypeError ? PyObject_Str(error) : NULL;
    bool same = plain != NULL && text != NULL && PyUnicode_Compare(plain, text) == 0;
    Py_XDECREF(plain);
    Py_XDECREF(text);
    PyErr_Clear();
    if (!same) {
        PyErr_Restore(type, error, traceback);
        return;
    }
    PyErr_Format(PyExc_TypeError, words, kin_operator_in_message(op, true), a, b);
    Py_XDECREF(type);
    Py_XDECREF(error);
    Py_XDECREF(traceback);
}

/* The method of `a += b` has answered NotImplemented: a + b. New reference, NULL: it raised. */
static PyObject *
ask_plain_operator(kin_exit *e, kin_link *caller)
{
    PyObject *left = PyTuple_GET_ITEM(caller->extra, 0), *right = PyTuple_GET_ITEM(caller->extra, 1);
    int op = (int)kin_instr_main(kin_code_at(rec_code_of(caller->code), caller->at)).arg - KIN_BINARY_INPLACE;
    kin_frame_link(e->run->ts, caller->frame, caller->at);
    PyObject *result = kin_op_binary(op, left, right);
    if (result == NULL)
        name_inplace(op, left, right);
    kin_frame_unlink(e->run->ts, caller->frame);
    return result;
}

/* The method of `a + b`, `a < b` has answered NotImplemented. New reference, NULL: it raised. */
static PyObject *
ask_other_operand(kin_exit *e, kin_link *caller)
{
    PyObject *parts = caller->extra;
    kin_frame_link(e->run->ts, caller->frame, caller->at);
    PyObject *result = kin_reflect((int)PyLong_AsLong(PyTuple_GET_ITEM(parts, 2)), PyTuple_GET_ITEM(parts, 0),
                                   PyTuple_GET_ITEM(parts, 1), PyTuple_GET_ITEM(parts, 3) == Py_True);
    kin_frame_unlink(e->run->ts, caller->frame);
    return result;
}

/* Where the callee's result asks for it, somebody else answers: __getattr__, the plain operator, the other operand. Steals result. */
static PyObject *
ask_next(kin_exit *e, kin_link *caller, PyObject *result)
{
    kin_resume resume = (kin_resume)caller->resume;
    if (caller->extra == NULL)
        return result;
    if (result == NULL && resume == KIN_RESUME_FALLBACK && PyErr_ExceptionMatches(PyExc_AttributeError))
        return ask_fallback(e, caller);
    if (result == Py_NotImplemented && resume == KIN_RESUME_OVERRIDE) {
        Py_DECREF(result);
        return PyErr_Format(PyExc_TypeError, "Multiple dispatch failed; all __torch_function__ handlers returned NotImplemented:\n\n  - %S", caller->extra);
    }
    if (result != Py_NotImplemented || (resume != KIN_RESUME_INPLACE && resume != KIN_RESUME_OPERATOR))
        return result;
    Py_DECREF(result);
    return resume == KIN_RESUME_INPLACE ? ask_plain_operator(e, caller) : ask_other_operand(e, caller);
}

static void
fail_at_call(kin_exit *e, const kin_link *caller)
{
    e->throwing = true;
    e->offset = caller->at;
}

/* Puts the callee's result into its caller and says how the caller goes on. Steals result. */
static void
give_result(kin_exit *e, kin_link *caller, PyObject *result)
{
    kin_resume resume = (kin_resume)caller->resume;
    const kin_instr *in = kin_code_acting(rec_code_of(caller->code), caller->at);
    bool catches = resume == KIN_RESUME_DEFAULT || resume == KIN_RESUME_HASATTR;
    result = ask_next(e, caller, result);
    bool absent = result == NULL && catches && PyErr_ExceptionMatches(PyExc_AttributeError);
    e->throwing = result == NULL && !absent;
    e->offset = e->throwing ? caller->at : caller->next;
    if (e->throwing)
        return;
    if (absent)
        PyErr_Clear();
    switch (resume) {
    case KIN_RESUME_DEFAULT:
        kin_frame_push(caller->frame, absent ? Py_XNewRef(caller->extra) : result);
        return;
    case KIN_RESUME_HASATTR:
        Py_XDECREF(result);
        kin_frame_push(caller->frame, Py_NewRef(absent ? Py_False : Py_True));
        return;
    case KIN_RESUME_TRUTH:
    case KIN_RESUME_FALSITY:
        give_truth(e, caller, result, resume == KIN_RESUME_FALSITY);
        return;
    case KIN_RESUME_OPERATOR:
        if (kin_instr_makes_bool(in)) {
            give_truth(e, caller, result, false);
            return;
        }
        /* fallthrough */
    case KIN_RESUME_PUSH:
    case KIN_RESUME_FALLBACK:
    case KIN_RESUME_INPLACE:
    case KIN_RESUME_OVERRIDE:
        kin_frame_push(caller->frame, result);
        if (kin_instr_leaves(in) == KIN_LEAVES_PAIR_EMPTY_LAST)
            kin_frame_push(caller->frame, NULL);
        return;
    case KIN_RESUME_INIT:
        if (result == Py_None && caller->extra != NULL) {
            kin_frame_push(caller->frame, caller->extra);
            caller->extra = NULL;
        }
        else {
            PyErr_Format(PyExc_TypeError, "__init__() should return None, not '%.200s'", Py_TYPE(result)->tp_name);
            fail_at_call(e, caller);
        }
        break;
    case KIN_RESUME_NONE:
        kin_frame_push(caller->frame, Py_NewRef(Py_None));
        break;
    case KIN_RESUME_DROP:
        break;
    case KIN_RESUME_NEVER:
        PyErr_SetString(PyExc_SystemError, "kintsugi: a call left below a C function");
        fail_at_call(e, caller);
        break;
    }
    Py_DECREF(result);
}

/* Tells the hook of kin_exit_resume which frame goes on. */
typedef struct {
    kin_exit_entered entered;
    void *arg;
    uint32_t depth;
    kin_frame *frame;
} resumed;

static void
tell_entered(void *arg, struct _PyInterpreterFrame *raw)
{
    const resumed *x = arg;
    x->entered(x->arg, x->depth, x->frame, raw);
}

PyObject *
kin_exit_resume(kin_exit *e, kin_exit_entered entered, void *arg)
{
    kin_chain *c = &e->chain;
    PyThreadState *ts = e->run->ts;
    kin_chain_link(e->run, c, c->n - 1);
    for (;;) {
        kin_link *l = &c->at[c->n - 1];
        resumed x = {entered, arg, c->n - 1, l->frame};
        bool admitted = kin_signals_admit();
        PyObject *result = kin_frame_eval(ts, l->frame, e->offset, e->throwing, entered != NULL ? tell_entered : NULL, &x);
        if (admitted)
            kin_signals_hold();
        kin_frame_free(ts, l->frame);
        Py_CLEAR(l->extra);
        if (--c->n == 0) {
            kin_chain_drop(ts, c);
            return result;
        }
        kin_chain_unlink(ts, c);
        give_result(e, &c->at[c->n - 1], result);
    }
}

void
kin_exit_drop(kin_exit *e)
{
    kin_chain_drop(e->run->ts, &e->chain);
}

uint32_t
kin_exit_snap(const kin_exit *exit)
{
    return exit->chain.at[exit->chain.n - 1].snap;
}

PyObject *
kin_exit_value(const kin_exit *exit, uint32_t depth, uint32_t i)
{
    return kin_frame_local(exit->chain.at[depth].frame, (int)i);
}

PyObject *
kin_exit_func(const kin_exit *exit, uint32_t depth)
{
    return kin_frame_func(exit->chain.at[depth].frame);
}

PyObject *
kin_exit_extra(const kin_exit *exit, uint32_t depth)
{
    return exit->chain.at[depth].extra;
}

/* -- leaving ---------------------------------------------------------------------------------------------------- */

static void
count_exit(kin_entry *v, uint32_t step)
{
    v->exits++;
    uint32_t n = v->trace.steps.len;
    /* Step 0 never leaves; its counter holds the length of the array, which a new side trace outgrows. */
    if (v->exit_counts == NULL || v->exit_counts[0] < n) {
        uint32_t old = v->exit_counts ? v->exit_counts[0] : 0;
        uint32_t *counts = realloc(v->exit_counts, n * sizeof *counts);
        if (counts == NULL)
            return;
        memset(counts + old, 0, (n - old) * sizeof *counts);
        counts[0] = n;
        v->exit_counts = counts;
    }
    if (v->exit_counts[step] != KIN_EXIT_USED)
        v->exit_counts[step]++;
}

/* Frames with everything in them, the innermost not linked. Keeps the pending exception. */
static kin_status
prepare(kin_exit *e, uint32_t step, kin_chain *chain)
{
    kin_run *r = e->run;
    uint32_t snap = r->t->steps.at[step].snap;
    PyObject *type, *value, *tb;
    PyErr_Fetch(&type, &value, &tb);
    kin_status status;
    if (chain != NULL) {
        e->chain = *chain;
        if (chain->at == chain->small)
            e->chain.at = e->chain.small;
        status = kin_chain_fill(r, &e->chain, step, KIN_FILL_ALL);
        if (status == KIN_OK)
            kin_chain_unlink(r->ts, &e->chain);
        else
            kin_chain_drop(r->ts, &e->chain);
    }
    else {
        status = kin_chain_build(r, step, &e->chain);
        if (status == KIN_OK && (status = kin_chain_fill(r, &e->chain, step, KIN_FILL_ALL)) != KIN_OK)
            kin_chain_drop(r->ts, &e->chain);
    }
    if (status == KIN_OK) {
        kin_run_handle(r, r->t->snaps.at[snap].exc);
        PyErr_Restore(type, value, tb);
        return KIN_OK;
    }
    Py_XDECREF(type);
    Py_XDECREF(value);
    Py_XDECREF(tb);
    return status;
}

static void
release_slots_keeping_error(kin_run *r)
{
    PyObject *type, *value, *tb;
    PyErr_Fetch(&type, &value, &tb);
    kin_run_release_slots(r);
    PyErr_Restore(type, value, tb);
}

/* A region is left that may have switched gradients on or off: they are as they were where it began. */
void
kin_run_put_back(kin_run *r, uint32_t step)
{
    const kin_step *s = &r->t->steps.at[step];
    uint8_t grad = s->flags & KIN_STEP_AGAIN && s->snap != 0 ? r->t->snaps.at[s->snap].grad : 0;
    static PyObject *set;
    PyObject *type, *value, *tb;
    if (grad == 0)
        return;
    PyErr_Fetch(&type, &value, &tb);
    if (kin_import_once(&set, "torch._C", "_set_grad_enabled") != NULL)
        Py_XDECREF(PyObject_CallOneArg(set, grad == 2 ? Py_True : Py_False));
    PyErr_Restore(type, value, tb);
}

PyObject *
kin_run_leave(kin_run *r, uint32_t step, kin_leave how, PyObject *result, kin_chain *chain, bool offer)
{
    kin_exit e = {.run = r};
    if (r->early != NULL)
        kin_pending_complete(r, step);
    kin_run_put_back(r, step);
    r->failed_at = how == KIN_LEAVE_BEFORE ? step : step + 1;
    if (prepare(&e, step, chain) != KIN_OK) {
        Py_XDECREF(result);
        return NULL;
    }
    kin_link *last = &e.chain.at[e.chain.n - 1];
    e.throwing = how == KIN_LEAVE_THROW;
    e.offset = e.throwing ? last->at : last->start;
    if (how == KIN_LEAVE_AFTER) {
        move_behind(last, result);
        e.offset = last->next;
    }
    /* Stands at its instruction also for those who look before it runs. */
    kin_frame_link(r->ts, last->frame, e.offset);
    kin_frame_unlink(r->ts, last->frame);
    count_exit(r->v, step);
    if (!r->jumped)
        r->way = offer ? step : KIN_REMAKE_NOT_TOLD;
    if (offer && r->look != NULL)
        r->look(r->v, step, r->slots, r->hook_arg);
    release_slots_keeping_error(r);
    PyObject *row = kin_rows_begin_rest(r), *value;
    if (offer && r->hook != NULL)
        value = r->hook(r->v, step, &e, r->hook_arg);
    else {
        kin_recursion_take(r->ts, -1);
        value = kin_exit_resume(&e, NULL, NULL);
        kin_recursion_take(r->ts, 1);
    }
    kin_profiler_end(row);
    return value;
}
