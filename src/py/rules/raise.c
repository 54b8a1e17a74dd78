/* Exceptions inside a recording. An instruction that raised becomes a step that must raise (KIN_STEP_RAISES): replay
 * executes it again, so that arguments, __context__ and traceback are right; its result is the
 * exception. The recording continues at the handler, in this frame or in one of its callers.
 *
 * The frames in a replayed traceback are copies of the state at the raise. Line numbers are right, but code that inspects the
 * frames would notice. So if an exception (or its traceback) leaves the recorded code, as an
 * operand of a step that may keep it, as the result or by ending the call, the recording is cut back to just before the
 * raise: from there CPython runs the call in real frames. An exception that was raised while another
 * one was handled, or from it, is cut together with that one.
 *
 * In a region an exception has to be handled where it ends up in the same region, and nothing but the handler may see it: the step that
 * raised is done again with the rest of the region where the program is left, and its traceback has the region's frame only. What an instruction passes
 * on to the frame that the region began in may be handled there, and is cut off as soon as somebody may look at the traceback.
 */
#include "core/diag/breaks.h"
#include "py/objects/objects.h"
#include "py/iterators/iterators.h"
#include "py/recorder/callables.h"
#include "py/replay/replay.h"
#include "py/rules/rules.h"

/* -- operands of the instruction that raised ------------------------------------------------------------------------- */

/* An instruction that raises again what is on top of the stack. Where that ends a delegation, op_clean_up_throw ends the recording. */
static bool
raises_top(const rec_frame *f)
{
    return f->op == KIN_DO_RERAISE || f->op == KIN_DO_CLEAN_UP_THROW;
}

bool
rec_always_raises(const rec_frame *f)
{
    return f->op == KIN_DO_RAISE || raises_top(f);
}

/* Can a replay whose step does not raise go on behind the instruction? The step of one that always raises does, too. */
static bool
can_pass(const rec_frame *f)
{
    return rec_always_raises(f) || kin_leave_can_pass(f->in);
}

/* The symbolic stack as it was before the instruction. */
static void
restore_operands(rec_frame *f)
{
    for (int i = f->nundo; i-- > 0;)
        f->slots[f->undo[i].slot] = f->undo[i].old;
    f->nundo = 0;
    f->sp = f->sp0;
}

/* -- the step ---------------------------------------------------------------------------------------------------------- */

typedef struct {
    kin_step_kind kind;
    int imm;
    PyObject *ref;
    unsigned flags;
    uint32_t n;
    kin_vid args[256];
} raising_step;

/* The kind of step that does all that an operation does; 0, which is CALL: it is a call, or there is none. */
static const uint8_t step_of[KIN_DO__COUNT + 1] = {
    [KIN_DO_LOAD_ITEM] = KIN_STEP_SUBSCR, [KIN_DO_STORE_ITEM] = KIN_STEP_SET_SUBSCR, [KIN_DO_DELETE_ITEM] = KIN_STEP_DEL_SUBSCR,
    [KIN_DO_BINARY] = KIN_STEP_BINARY, [KIN_DO_COMPARE] = KIN_STEP_COMPARE, [KIN_DO_CONTAINS] = KIN_STEP_CONTAINS,
    [KIN_DO_NEGATE] = KIN_STEP_UNARY, [KIN_DO_POSITIVE] = KIN_STEP_UNARY, [KIN_DO_INVERT] = KIN_STEP_UNARY, [KIN_DO_NOT] = KIN_STEP_UNARY,
    [KIN_DO_GET_ITER] = KIN_STEP_ITER, [KIN_DO_NEXT] = KIN_STEP_NEXT,
    [KIN_DO_LOAD_ATTR] = KIN_STEP_GETATTR, [KIN_DO_LOAD_METHOD] = KIN_STEP_GETATTR, [KIN_DO_STORE_ATTR] = KIN_STEP_SETATTR,
    [KIN_DO_DELETE_ATTR] = KIN_STEP_DELATTR, [KIN_DO_STORE_GLOBAL] = KIN_STEP_GLOBAL_SET, [KIN_DO_DELETE_GLOBAL] = KIN_STEP_GLOBAL_SET,
    [KIN_DO_LOAD_CELL] = KIN_STEP_CELL_GET, [KIN_DO_FORMAT] = KIN_STEP_FORMAT,
    [KIN_DO_LIST_EXTEND] = KIN_STEP_LIST_EXTEND, [KIN_DO_SET_UPDATE] = KIN_STEP_SET_UPDATE, [KIN_DO_DICT_UPDATE] = KIN_STEP_DICT_UPDATE,
    [KIN_DO_DICT_MERGE] = KIN_STEP_DICT_MERGE, [KIN_DO_BUILD_SET] = KIN_STEP_BUILD_SET, [KIN_DO_BUILD_MAP] = KIN_STEP_BUILD_MAP,
    [KIN_DO_IMPORT_NAME] = KIN_STEP_IMPORT, [KIN_DO_IMPORT_FROM] = KIN_STEP_IMPORT_FROM, [KIN_DO_CALL_SPREAD] = KIN_STEP_CALL_EX};

static void
set_step(raising_step *s, int imm, uint32_t n, kin_vid a0, kin_vid a1, kin_vid a2)
{
    s->imm = imm;
    s->n = n;
    s->args[0] = a0;
    s->args[1] = a1;
    s->args[2] = a2;
}

static void
describe_call(rec *r, raising_step *s)
{
    rec_frame *f = r->top;
    int callable, self, first;
    rec_call_slots(f, &callable, &self, &first);
    s->args[0] = f->slots[callable];
    s->n = 1;
    if (f->slots[self] != 0)
        s->args[s->n++] = f->slots[self];
    memcpy(s->args + s->n, f->slots + first, (size_t)f->arg * sizeof *s->args);
    s->n += (uint32_t)f->arg;
    s->ref = rec_call_names(r);
}

/* Is an exception handled of which only the recorder knows, as no frame of a region exists at replay? */
static bool
handles_in_region(const rec *r)
{
    return r->region != NULL && r->top->exc != 0 && r->top->exc != rec_region_handles(r);
}

/* What is raised runs no Python code: an instance, or a class that makes its instances in C. */
static bool
raise_runs_no_code(rec *r, kin_vid vid)
{
    PyObject *obj = O(r, vid);
    if (obj == NULL || PyExceptionInstance_Check(obj))
        return obj != NULL;
    return PyExceptionClass_Check(obj) && !(((PyTypeObject *)obj)->tp_flags & Py_TPFLAGS_HEAPTYPE) &&
           rec_need_const(r, vid) != 0;
}

static void
describe_raise(rec *r, raising_step *s)
{
    int n = r->top->arg;
    bool handles = handles_in_region(r);
    s->kind = KIN_STEP_RAISE;
    if (n == 0 && handles) {
        set_step(s, 1, 1, r->top->exc, 0, 0);
        return;
    }
    set_step(s, 0, handles ? 3 : (uint32_t)n, n ? rec_peek(r, n - 1) : 0, n == 2 ? rec_peek(r, 0) : 0, handles ? r->top->exc : 0);
    for (int i = 0; i < n; i++)
        if (s->args[i] != 0 && O(r, s->args[i]) != Py_None && !raise_runs_no_code(r, s->args[i]))
            s->flags = KIN_STEP_OPAQUE | KIN_STEP_EFFECT;
}

/* The instruction as a step on its operands; false when there is no such step. */
static bool
describe(rec *r, raising_step *s)
{
    rec_frame *f = r->top;
    s->kind = (kin_step_kind)step_of[f->op];
    switch (f->op) {
    case KIN_DO_LOAD_ITEM: set_step(s, 0, 2, rec_peek(r, 1), rec_peek(r, 0), 0); return true;
    case KIN_DO_STORE_ITEM:
        set_step(s, 0, 3, rec_peek(r, 1), rec_peek(r, 0), rec_peek(r, 2));
        return true;
    case KIN_DO_DELETE_ITEM: set_step(s, 0, 2, rec_peek(r, 1), rec_peek(r, 0), 0); return true;
    case KIN_DO_BINARY: set_step(s, f->arg, 2, rec_peek(r, 1), rec_peek(r, 0), 0); return true;
    case KIN_DO_COMPARE: set_step(s, f->arg | (f->extra ? KIN_COMPARE_TO_BOOL : 0), 2, rec_peek(r, 1), rec_peek(r, 0), 0); return true;
    case KIN_DO_CONTAINS: set_step(s, f->arg, 2, rec_peek(r, 1), rec_peek(r, 0), 0); return true;
    case KIN_DO_NEGATE: set_step(s, KIN_UNARY_NEGATIVE, 1, rec_peek(r, 0), 0, 0); return true;
    case KIN_DO_POSITIVE: set_step(s, KIN_UNARY_POSITIVE, 1, rec_peek(r, 0), 0, 0); return true;
    case KIN_DO_INVERT: set_step(s, KIN_UNARY_INVERT, 1, rec_peek(r, 0), 0, 0); return true;
    case KIN_DO_GET_ITER: set_step(s, 0, 1, rec_peek(r, 0), 0, 0); return true;
    case KIN_DO_LOAD_ATTR: case KIN_DO_LOAD_METHOD:
        set_step(s, 0, 1, rec_peek(r, 0), 0, 0);
        s->ref = PyTuple_GET_ITEM(f->code->co_names, f->arg);
        return true;
    case KIN_DO_CALL: describe_call(r, s); return true;
    case KIN_DO_RAISE: describe_raise(r, s); return true;
    case KIN_DO_RERAISE: case KIN_DO_CLEAN_UP_THROW:
        s->kind = KIN_STEP_RAISE;
        set_step(s, 1, 1, rec_peek(r, 0), 0, 0);
        return true;
    default: return false;
    }
}

/* Index of the rule's first step that is no test; UINT32_MAX when tests stand behind it. */
static uint32_t
first_action(rec *r)
{
    const kin_trace *t = r->t;
    uint32_t first = UINT32_MAX;
    for (uint32_t i = r->top->steps0; i < t->steps.len; i++) {
        bool test = t->steps.at[i].kind == KIN_STEP_CHECK || t->steps.at[i].kind == KIN_STEP_EPOCH;
        if (test && first != UINT32_MAX)
            return UINT32_MAX;
        if (!test && first == UINT32_MAX)
            first = i;
    }
    return first == UINT32_MAX ? t->steps.len : first;
}

/* Does the call step call what the instruction calls, with its operands? A torch function may get them as constants. */
static bool
calls_the_operands(rec *r, const kin_step *s)
{
    if (s->flags & KIN_STEP_TORCH)
        return true;
    raising_step own = {0};
    describe_call(r, &own);
    bool same = own.n == s->nargs;
    for (uint32_t i = 0; same && i < own.n; i++)
        same = rec_as_const(r, own.args[i]) == rec_as_const(r, r->t->vids.at[s->args + i]);
    return same;
}

/* Is the step's result, or what it does, that of the whole instruction? Many rules end in a step that is only a part: the
 * __enter__ of a with statement, an __init__, an attribute of a pattern. */
static bool
does_it_all(rec *r, const kin_step *s)
{
    if (s->kind == KIN_STEP_CALL)
        return r->top->op == KIN_DO_CALL && calls_the_operands(r, s);
    return s->kind == step_of[r->top->op];
}

/* The rule's last step is the instruction itself, not a part of it or a change of a known object. */
static bool
is_instruction(rec *r, uint32_t first)
{
    const kin_trace *t = r->t;
    if (first >= t->steps.len || r->top->await == AWAIT_FRAME)
        return false;
    for (uint32_t i = first; i + 1 < t->steps.len; i++)
        if (!(t->steps.at[i].flags & KIN_STEP_PURE))
            return false;
    const kin_step *last = &t->steps.at[t->steps.len - 1];
    return !(last->flags & (KIN_STEP_PURE | KIN_STEP_MUTATES)) && does_it_all(r, last);
}

/* A change that did not happen: what the recorder noted about the object is no longer sure. */
static void
distrust_changes(rec *r, uint32_t first)
{
    for (uint32_t i = first; i < r->t->steps.len; i++) {
        const kin_step *s = &r->t->steps.at[i];
        if ((s->flags & KIN_STEP_MUTATES) && s->nargs && VIRTUAL(r, r->t->vids.at[s->args]))
            VIRTUAL(r, r->t->vids.at[s->args])->known = false;
    }
}

/* Has the instruction, which has raised, done nothing else? So it may be done again. */
static bool
only_asks(rec *r, const raising_step *s)
{
    bool look = s->kind == KIN_STEP_SUBSCR || s->kind == KIN_STEP_BINARY || s->kind == KIN_STEP_COMPARE || s->kind == KIN_STEP_CONTAINS ||
                s->kind == KIN_STEP_UNARY || s->kind == KIN_STEP_ITER || s->kind == KIN_STEP_GETATTR;
    bool raise = s->kind == KIN_STEP_RAISE && s->n > 0;
    bool call = s->kind == KIN_STEP_CALL && s->args[0] != 0 && O(r, s->args[0]) != NULL && rec_callable_effects(O(r, s->args[0])) & KIN_ASKS;
    return r->region != NULL && (look || raise || call);
}

static bool
write_step(rec *r, uint32_t first)
{
    raising_step s = {0};
    s.flags = r->top->await == AWAIT_FRAME ? KIN_STEP_OPAQUE | KIN_STEP_EFFECT : 0;
    for (uint32_t i = first; i < r->t->steps.len; i++)
        s.flags |= r->t->steps.at[i].flags & (KIN_STEP_OPAQUE | KIN_STEP_EFFECT);
    distrust_changes(r, first);
    rec_truncate(r, first);
    if (!describe(r, &s))
        return false;
    r->only_asks = only_asks(r, &s);
    uint32_t at = rec_step(r, s.kind, s.flags, s.args, s.n);
    r->only_asks = false;
    kin_ref ref = rec_ref(r, s.ref);
    r->t->steps.at[at].imm = (uint8_t)s.imm;
    r->t->steps.at[at].ref = ref;
    if (s.flags & KIN_STEP_OPAQUE)
        rec_forget_contents(r);
    return true;
}

/* -- marks -------------------------------------------------------------------------------------------------------------- */

/* Of all the exceptions that reach a new one, the first that was raised. */
static uint32_t
earliest(rec *r, const kin_step *s, uint32_t own)
{
    uint32_t handled = r->info.at[r->top->exc].raised;
    if (handled != 0 && handled < own)
        own = handled;
    for (uint32_t i = 0; i < s->nargs; i++) {
        uint32_t raised = r->info.at[r->t->vids.at[s->args + i]].raised;
        if (raised != 0 && raised < own)
            own = raised;
    }
    return own;
}

static uint32_t
mark_raise(rec *r, uint32_t steps)
{
    rec_raise m = {.snap = rec_snapshot(r)};
    m.end = kin_trace_end(r->t);
    m.end.steps = steps;
    if (r->region != NULL) {
        m = rec_region_mark(r);
        m.in_region = true;
    }
    if (kin_vec_push(&r->raises, m) != KIN_OK)
        r->status = KIN_NOMEM;
    return r->raises.len;
}

static void
end_before(rec *r, uint32_t raised, const char *why)
{
    if (r->stopped)
        return;
    if (r->region != NULL && rec_raised_in_region(r, raised))
        rec_refuse(r);
    else
        rec_cut_back(r, &r->raises.at[raised - 1], -1, why);
}

void
rec_exception_escapes(rec *r, uint32_t raised)
{
    end_before(r, raised, "an exception is handed to code that is not recorded");
}

/* -- raising -------------------------------------------------------------------------------------------------------------- */

/* The last step raises; with those from `first` on it stands for the instruction. */
static void
set_pending(rec *r, uint32_t first)
{
    rec_frame *f = r->top;
    f->await = AWAIT_NONE;
    r->skip_expected = false;
    r->escaped = 0;
    kin_step *s = &r->t->steps.at[r->t->steps.len - 1];
    if (s->out != 0)
        r->t->vals.at[s->out].kind = KIN_VAL_NONE;
    s->flags |= KIN_STEP_RAISES;
    if (r->foreign) {
        s->flags |= KIN_STEP_OPAQUE | KIN_STEP_EFFECT;
        r->foreign = false;
        rec_forget_contents(r);
    }
    uint32_t raised = mark_raise(r, first);
    uint32_t at = r->t->steps.len - 1;
    r->pending = rec_value(r, (kin_val){.kind = KIN_VAL_STEP, .step = at}, NULL);
    r->t->steps.at[at].out = r->pending;
    r->info.at[r->pending].raised = earliest(r, &r->t->steps.at[at], raised);
}

/* Makes the instruction of the top frame a step that raises; its exception becomes r->pending. */
static bool
record_raise(rec *r)
{
    rec_frame *f = r->top;
    if (f->inlined) { /* between a callee's return and the instruction's end: no snapshot stands there */
        r->failed = true;
        rec_stop_row(r, KIN_ROW_EXCEPTION_ESCAPED, "an exception was raised after an inlined call");
        return false;
    }
    r->call.active = false;
    rec_snapshot(r);
    restore_operands(f);
    uint32_t first = can_pass(f) ? first_action(r) : UINT32_MAX;
    bool known = first != UINT32_MAX && (is_instruction(r, first) || write_step(r, first));
    if (!known || r->stopped) {
        f->sp0 = f->sp;
        rec_stop_row(r, KIN_ROW_EXCEPTION_ESCAPED, "an exception was raised and handled here");
        return false;
    }
    set_pending(r, first);
    return r->status == KIN_OK;
}

static void
raise_class_or_instance(rec *r, kin_vid what)
{
    const kin_vid args[3] = {what, 0, r->top->exc};
    r->only_asks = r->region != NULL;
    rec_step(r, KIN_STEP_RAISE, 0, args, handles_in_region(r) ? 3 : 1);
    r->only_asks = false;
    set_pending(r, r->t->steps.len - 1);
}

void
rec_raise_known(rec *r)
{
    rec_frame *f = r->top;
    const kin_vid made[2] = {rec_const(r, r->raised_by_c), r->raised_with};
    r->raised_by_c = NULL;
    r->raised_with = 0;
    rec_snapshot(r);
    restore_operands(f);
    if (!can_pass(f)) {
        rec_stop_row(r, KIN_ROW_EXCEPTION_ESCAPED, "an exception was raised and handled here");
        return;
    }
    raise_class_or_instance(r, made[1] != 0 ? rec_step_out(r, KIN_STEP_CALL, KIN_STEP_PURE, made, 2) : made[0]);
}

void
rec_raise_thrown(rec *r)
{
    kin_vid what = r->thrown;
    r->thrown = 0;
    raise_class_or_instance(r, what);
    if (r->pending == 0)
        return;
    if (PyExceptionClass_Check(O(r, what)))
        r->info.at[r->pending].type = (PyTypeObject *)O(r, what); /* its object may not be seen: others run before the frame is left */
    if (!rec_is_const(r, what) && r->info.at[what].raised == 0) /* an instance that the program holds: its traceback is that of the region */
        r->info.at[what].raised = r->info.at[r->pending].raised;
}

/* The pending exception is this object: replay expects one of its type. */
static void
set_exception(rec *r, PyObject *exc)
{
    kin_ref type = rec_ref(r, (PyObject *)Py_TYPE(exc));
    r->t->steps.at[r->t->vals.at[r->pending].step].num = type;
    rec_set_obj(r, r->pending, exc);
    r->info.at[r->pending].type = Py_TYPE(exc);
    r->info.at[r->pending].type_epoch = r->epoch + 1;
}

void
rec_catch(rec *r, rec_frame *f, uint32_t offset)
{
    if (r->pending == 0 && !record_raise(r))
        return;
    kin_vid exc = r->pending;
    const kin_handler *h = kin_code_handler(f->kc, f->in->op_offset);
    PyObject *const *stack = kin_watch_localsplus(f->f) + f->nlocals;
    bool known = h != NULL && h->target == offset && !r->foreign;
    if (!known || (h->lasti && stack[h->depth] == NULL)) {
        rec_exception_escapes(r, r->info.at[exc].raised);
        return;
    }
    f->sp = (int)h->depth;
    if (h->lasti) {
        f->slots[f->nlocals + f->sp] = rec_const(r, stack[f->sp]);
        f->sp++;
    }
    f->slots[f->nlocals + f->sp] = exc;
    set_exception(r, stack[f->sp++]);
    f->await = AWAIT_NONE;
    f->inlined = false;
    r->pending = 0;
    r->skip_expected = false;
}

/* Does the C function that called the frame drop the exception? Then the caller's instruction goes on. */
static bool
is_swallowed(rec *r, rec_frame *caller, PyObject *exc)
{
    bool catches = caller->call_resume == KIN_RESUME_DEFAULT || caller->call_resume == KIN_RESUME_HASATTR ||
                   (caller->call_resume == KIN_RESUME_FALLBACK && !r->epoch_ended);
    if (!catches || exc == NULL || !PyErr_GivenExceptionMatches(exc, PyExc_AttributeError))
        return false;
    if (!(Py_TYPE(exc)->tp_flags & Py_TPFLAGS_IMMUTABLETYPE) && r->epoch_ended)
        return false; /* no epoch can begin in the middle of an instruction */
    rec_class_version(r, Py_TYPE(exc));
    return true;
}

/* What a failed lookup gives instead: a default, False, or what the type's __getattr__ will return. */
static void
go_on_without(rec *r, rec_frame *f)
{
    uint32_t raised = r->info.at[r->pending].raised;
    r->pending = 0;
    if (f->call_resume == KIN_RESUME_DEFAULT) {
        rec_push(r, f->call_extra);
        return;
    }
    if (f->call_resume == KIN_RESUME_HASATTR) {
        rec_push(r, rec_const(r, Py_False));
        return;
    }
    const kin_vid *parts = VIRTUAL(r, f->call_extra) ? VIRTUAL(r, f->call_extra)->items : NULL;
    if (parts == NULL || !rec_can_inline(r, O(r, parts[0])) ||
        !rec_inline(r, &(rec_args){.callee = parts[0], .args = parts + 1, .npos = 2}, NULL, 0, KIN_RESUME_PUSH, 0))
        rec_exception_escapes(r, raised);
}

/* The exception that an instruction raises again; NULL for others. */
static PyObject *
raised_again(rec *r, const rec_frame *f)
{
    kin_vid vid = 0;
    if (raises_top(f))
        vid = rec_peek(r, 0);
    else if (f->op == KIN_DO_RAISE && f->arg == 0)
        vid = f->exc;
    return vid ? O(r, vid) : NULL;
}

/* The exception that leaves the top frame becomes r->pending. */
static bool
note_exception(rec *r, PyObject *exc)
{
    rec_frame *f = r->top;
    if (r->raised_by_c != NULL)
        rec_raise_known(r);
    if (r->pending != 0) {
        if (exc != NULL && O(r, r->pending) == NULL)
            set_exception(r, exc);
        return true;
    }
    if (rec_always_raises(f) && (raises_top(f) || f->arg == 0))
        exc = raised_again(r, f);
    if (!f->ran || !record_raise(r))
        return false;
    if (exc != NULL)
        set_exception(r, exc);
    return true;
}

static void
leave_inlined(rec *r)
{
    PyObject *exc = O(r, r->pending);
    rec_frame *f = rec_pop_inlined(r);
    if (is_swallowed(r, f, exc))
        go_on_without(r, f);
}

bool
rec_unwind_in_region(rec *r, PyObject *exc)
{
    rec_frame *f = r->top;
    if (rec_region_is_of(r, f) || !rec_passes_exception(r, f) || r->foreign || r->refused || !note_exception(r, exc) || r->refused || O(r, r->pending) == NULL)
        return false;
    if (!f->from_c)
        leave_inlined(r);
    return !f->from_c;
}

void
rec_unwind(rec *r, PyObject *exc)
{
    rec_frame *f = r->top;
    if (!note_exception(r, exc)) {
        r->failed = r->failed || !f->ran;
        rec_stop_row(r, -1, "an exception left the frame here");
        return;
    }
    if (f->back == NULL || r->foreign) {
        r->result->untouched = !r->stopped && f->back == NULL && !r->foreign && rec_leaves_no_mark(r, r->raises.at[r->info.at[r->pending].raised - 1].end.steps);
        end_before(r, r->info.at[r->pending].raised, f->back == NULL && !r->foreign ? "the function raised an exception" : "an exception is handed to code that is not recorded");
        return;
    }
    leave_inlined(r);
}

/* -- handlers ---------------------------------------------------------------------------------------------------------------- */

static bool
is_handled_at_entry(rec *r, kin_vid vid)
{
    const kin_val *v = &r->t->vals.at[vid];
    return v->kind == KIN_VAL_STEP && r->t->steps.at[v->step].kind == KIN_STEP_HANDLED;
}

static void
op_push_exc_info(rec *r)
{
    rec_frame *f = r->top;
    kin_vid exc = rec_peek(r, 0), previous = f->exc;
    bool awaits = false, inside = rec_in_generator(f);
    if (inside && previous == rec_region_handles(r)) { /* a generator does not see what its caller handles */
        previous = rec_const(r, Py_None);
    } else if (previous == 0 && r->handled == 0) {
        r->handled = rec_step_out(r, KIN_STEP_HANDLED, 0, NULL, 0);
        awaits = true;
    }
    if (previous == 0)
        previous = r->handled;
    rec_drop(r, 1);
    if (awaits)
        rec_await_result(r, previous, r->t->vals.at[previous].step);
    else
        rec_push(r, previous);
    rec_push(r, exc);
    f->exc = exc;
}

static void
op_pop_except(rec *r)
{
    kin_vid previous = rec_peek(r, 0);
    rec_snapshot(r);
    rec_drop(r, 1);
    if (rec_is_const(r, previous) && r->region != NULL)
        previous = rec_region_handles(r);
    r->top->exc = is_handled_at_entry(r, previous) ? 0 : previous;
}

/* The classes of an except clause become constants; false when they are no exception classes. */
static bool
fix_classes(rec *r, kin_vid vid)
{
    PyObject *obj = O(r, vid);
    if (PyExceptionClass_Check(obj))
        return rec_need_const(r, vid) != 0;
    kin_vid *items = NULL;
    uint32_t n = 0;
    bool ok = PyTuple_Check(obj) && rec_items_of(r, vid, &items, &n);
    for (uint32_t i = 0; ok && i < n; i++)
        ok = O(r, items[i]) != NULL && fix_classes(r, items[i]);
    free(items);
    return ok;
}

static void
op_check_exc_match(rec *r)
{
    kin_vid exc = rec_peek(r, 1), cls = rec_peek(r, 0);
    if (!fix_classes(r, cls)) {
        rec_stop(r, "the classes of an except clause are not known");
        return;
    }
    rec_need_version(r, exc);
    bool match = PyErr_GivenExceptionMatches(O(r, exc), O(r, cls));
    rec_drop(r, 1);
    rec_push(r, rec_const(r, match ? Py_True : Py_False));
}

/* On top of the stack: the exception. Below it, with others in between: __exit__, and perhaps what it is bound to. */
static void
op_with_except_start(rec *r)
{
    const rec_frame *f = r->top;
    kin_vid exc = rec_peek(r, 0), leave = rec_peek(r, f->arg - 1), self = f->extra ? rec_peek(r, f->arg - 2) : 0;
    PyTypeObject *type = rec_need_type(r, exc);
    kin_vid tb = rec_step_out(r, KIN_STEP_GETATTR, r->region != NULL ? KIN_STEP_PURE : 0, &exc, 1); /* in a region nobody looks into it */
    kin_ref name = rec_ref(r, REC_STR("__traceback__"));
    r->t->steps.at[r->t->vals.at[tb].step].ref = name;
    PyObject *obj = PyException_GetTraceback(O(r, exc));
    rec_set_obj(r, tb, obj ? obj : Py_None);
    Py_XDECREF(obj); /* the exception keeps it */
    r->info.at[tb].raised = r->info.at[exc].raised;
    kin_vid args[4] = {self, rec_const(r, (PyObject *)type), exc, tb};
    rec_do_call(r, &(rec_args){.callee = leave, .args = self != 0 ? args : args + 1, .npos = self != 0 ? 4 : 3});
}

/* Only a StopIteration is another exception afterwards. */
static void
op_convert_stop_iteration(rec *r)
{
    kin_vid exc = rec_peek(r, 0);
    PyTypeObject *type = rec_need_type(r, exc);
    if (PyType_IsSubtype(type, (PyTypeObject *)PyExc_StopIteration))
        rec_stop(r, "a StopIteration leaves a generator");
}

/* What was thrown where a generator delegates goes on, but for a StopIteration, which is what it delegated to returning a value. */
static void
op_clean_up_throw(rec *r)
{
    PyTypeObject *type = rec_need_type(r, rec_peek(r, 0));
    if (PyType_IsSubtype(type, (PyTypeObject *)PyExc_StopIteration))
        rec_stop(r, "a StopIteration ends what a generator delegates to");
}

bool
rec_op_exception(rec *r)
{
    switch (r->top->op) {
    case KIN_DO_PUSH_HANDLED: op_push_exc_info(r); return true;
    case KIN_DO_POP_HANDLED: op_pop_except(r); return true;
    case KIN_DO_MATCHES_EXCEPTION: op_check_exc_match(r); return true;
    case KIN_DO_CALL_EXIT: op_with_except_start(r); return true;
    case KIN_DO_CONVERT_STOP_ITERATION: op_convert_stop_iteration(r); return true;
    case KIN_DO_CLEAN_UP_THROW: op_clean_up_throw(r); return true;
    case KIN_DO_LOAD_ASSERTION_ERROR: rec_push(r, rec_const(r, PyExc_AssertionError)); return true;
    case KIN_DO_RAISE: case KIN_DO_RERAISE: return true; /* becomes a step when it has raised */
    default: return false;
    }
}
