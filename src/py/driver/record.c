/* The recording driver: runs the call under the watcher, keeps symbolic frames in step with the real ones, calls the rule of each
 * instruction, and turns what the rules wrote into a finished entry.
 */
#include "core/base/clock.h"
#include "core/diag/breaks.h"
#include "py/aten/modes.h"
#include "py/compat/codes.h"
#include "py/compat/kinds.h"
#include "py/compat/signals.h"
#include "py/driver/driver_priv.h"
#include "py/iterators/iterators.h"
#include "py/objects/objects.h"
#include "py/rules/rules.h"
#include "py/torchcalls/crosscheck.h"
#include "py/torchcalls/torchcalls.h"

enum { MOST_KEYWORDS = 64 };

static rec *active;

bool
kin_record_active(void)
{
    return active != NULL;
}

void
kin_record_set_compiling(bool on)
{
    rec_set_compiling(on);
}

/* -- symbolic frames -------------------------------------------------------------------------------------------- */

/* The **kwargs dict of the recorded call is new and has the keywords of this call shape: it counts as made here, so what is taken
 * from it or put into it changes nothing that others can observe.
 */
static void
own_keywords(rec *r, rec_frame *f)
{
    const PyCodeObject *code = f->code;
    int slot = code->co_argcount + code->co_kwonlyargcount + !!(code->co_flags & CO_VARARGS);
    PyObject *dict = code->co_flags & CO_VARKEYWORDS ? O(r, f->slots[slot]) : NULL, *key, *value;
    kin_vid pairs[2 * MOST_KEYWORDS];
    uint32_t n = 0;
    if (dict == NULL || !PyDict_CheckExact(dict) || PyDict_GET_SIZE(dict) > MOST_KEYWORDS)
        return;
    for (Py_ssize_t pos = 0; PyDict_Next(dict, &pos, &key, &value);)
        if (!PyUnicode_CheckExact(key))
            return;
    for (Py_ssize_t pos = 0; PyDict_Next(dict, &pos, &key, &value); n += 2) {
        pairs[n] = rec_const(r, key);
        pairs[n + 1] = rec_dict_item(r, f->slots[slot], key, value);
    }
    f->slots[slot] = rec_build_dict(r, pairs, n);
    rec_set_obj(r, f->slots[slot], dict);
}

/* Cells and free variables, which the function's prologue sets up before the first instruction is reported. */
static void
enter_frame(rec *r, rec_frame *f)
{
    PyCodeObject *code = f->code;
    PyObject *const *real = kin_watch_localsplus(f->f);
    int nfree = 0;
    f->started = true;
    if (f->back == NULL && r->join == 0)
        own_keywords(r, f);
    for (int i = 0; i < f->nlocals; i++) {
        unsigned kind = ((unsigned char *)PyBytes_AS_STRING(code->co_localspluskinds))[i];
        if (kind & KIN_VARIABLE_CELL) {
            f->slots[i] = rec_build_cell(r, f->slots[i], real[i]);
        } else if (kind & KIN_VARIABLE_FREE) {
            f->slots[i] = rec_closure_cell(r, f->func, nfree++, real[i]);
        }
    }
}

static bool
same_as_symbolic(rec *r, kin_vid vid, PyObject *obj)
{
    if (vid == 0)
        return obj == NULL;
    if (O(r, vid) == NULL || O(r, vid) == obj)
        return true;
    /* a folded number, a size that is read only once, or x.shape, also where its sizes are decided by now, may be another object with the same value */
    const kin_val *val = &r->t->vals.at[vid];
    const kin_step *s = val->kind == KIN_VAL_STEP && val->step < r->t->steps.len ? &r->t->steps.at[val->step] : NULL;
    bool made = s != NULL && (s->kind == KIN_STEP_BUILD_SIZE || s->kind == KIN_STEP_SIZE || (s->flags & KIN_STEP_PURE && kin_step_does(s, KIN_GIVES_NUMBER)));
    bool value = val->kind == KIN_VAL_CONST || ((r->info.at[vid].sized || r->info.at[vid].of_sizes || made) && r->info.at[vid].held);
    return value && obj != NULL && kin_exact_equal(O(r, vid), obj);
}

/* The argument in slot i, which may already be in a cell: the frame's first event comes after its cells were made. */
static PyObject *
bound_argument(PyCodeObject *code, PyObject *const *real, uint32_t i)
{
    unsigned kind = ((unsigned char *)PyBytes_AS_STRING(code->co_localspluskinds))[i];
    if (kind & KIN_VARIABLE_FREE)
        return NULL;
    return (kind & KIN_VARIABLE_CELL) && real[i] != NULL ? PyCell_GET(real[i]) : real[i];
}

static bool
enter_root(rec *r, struct _PyInterpreterFrame *f)
{
    rec_frame *rf = rec_push_frame(r, f, kin_watch_code(f));
    if (rf == NULL)
        return false;
    PyObject *func = kin_watch_func(f);
    rf->func = rec_src(r, 0, KIN_ACCESS_FUNC, 0, func);
    r->info.at[rf->func].type = &PyFunction_Type;
    PyObject *const *real = kin_watch_localsplus(f);
    PyCodeObject *code = rf->code;
    int n = code->co_argcount + code->co_kwonlyargcount + !!(code->co_flags & CO_VARARGS) +
            !!(code->co_flags & CO_VARKEYWORDS);
    for (int i = 0; i < n; i++) {
        PyObject *obj = bound_argument(code, real, (uint32_t)i);
        rf->slots[i] = rec_src(r, 0, KIN_ACCESS_LOCAL, (uint32_t)i, obj);
    }
    return true;
}

static bool
enter_inlined(rec *r, struct _PyInterpreterFrame *f)
{
    rec_call *c = &r->call;
    uint32_t parent = r->top->parent_for_call;
    rec_frame *rf = rec_push_frame(r, f, kin_watch_code(f));
    c->active = false;
    if (rf == NULL) {
        rec_bug(r, "no memory for a symbolic frame");
        return false;
    }
    rf->func = c->func_vid;
    rf->parent_snap = parent;
    PyObject *const *real = kin_watch_localsplus(f);
    if (c->of_torch && !rec_override_begins(r, c->locals, real)) {
        rec_bug(r, "torch hands on other operands than the call has");
        return false;
    }
    for (uint32_t i = 0; i < c->nlocals; i++) {
        rf->slots[i] = c->locals[i];
        PyObject *obj = bound_argument(rf->code, real, i);
        if (c->locals[i] && O(r, c->locals[i]) == NULL)
            rec_set_obj(r, c->locals[i], obj);
        if (!same_as_symbolic(r, c->locals[i], obj)) {
            rec_bug(r, "argument differs from its value in the symbolic frame");
            return false;
        }
    }
    rf->from_c = rf->back->consumer != NULL;
    return true;
}

/* -- watcher callbacks ------------------------------------------------------------------------------------------ */

static bool
on_call(void *arg, struct _PyInterpreterFrame *f)
{
    rec *r = arg;
    if (r->stopped)
        return false;
    if (r->skip == 0 && !r->done) {
        if (r->top == NULL && kin_watch_func(f) == r->v->func && enter_root(r, f))
            return true;
        if (r->call.active && kin_watch_func(f) == r->call.func && enter_inlined(r, f))
            return true;
        bool known = false;
        if (!r->stopped && rec_enter_from_c(r, f, &known)) {
            if (r->thrown != 0)
                rec_raise_thrown(r);
            rec_settle(r);
            return true;
        }
        if (r->stopped)
            return false;
        if (!known && rec_in_collector(r)) {
            r->collected = true;
        } else {
            r->foreign = r->foreign || (!r->skip_expected && !known && !kin_is_enum_hash(kin_watch_code(f)));
            r->ran_below = true;
        }
    }
    r->skip++;
    return false;
}

/* Can the step run user code? Builds cannot: code that ran during one was a finaliser or the like. */
static bool
can_run_code(const kin_step *s)
{
    return kin_step_does(s, KIN_MAY_RUN) && !(s->flags & (KIN_STEP_TORCH | KIN_STEP_PURE));
}

/* Python code ran unexpectedly, perhaps a finaliser or a signal handler. The instruction's last step becomes
 * one that may run any code. */
static void
blame_foreign_code(rec *r, rec_frame *f)
{
    for (uint32_t i = r->t->steps.len; i-- > f->steps0;) {
        if (!can_run_code(&r->t->steps.at[i]))
            continue;
        r->t->steps.at[i].flags |= KIN_STEP_OPAQUE;
        r->t->steps.at[i].flags &= (uint16_t)~KIN_STEP_MUTATES;
        if (r->t->steps.at[i].snap == 0) {
            uint32_t snap = rec_snapshot(r);
            r->t->steps.at[i].snap = snap;
        }
        return;
    }
}

/* A cached function must return the same object at replay, or the replay leaves: behind the call, which the cache has counted. */
static void
pin_answer(rec *r)
{
    kin_vid vid = r->cached;
    PyObject *obj = O(r, vid);
    r->cached = 0;
    if (rec_can_const(r, vid)) {
        rec_need_const(r, vid);
        return;
    }
    rec_check(r, KIN_CHECK_IS, vid, obj, 0);
    kin_vid known = rec_const(r, obj);
    r->info.at[vid].as_const = known;
}

/* Takes the result objects and branch outcomes of the instruction that has just finished. */
static void
finish_instruction(rec *r, rec_frame *f, uint32_t offset)
{
    if (r->raised_by_c != NULL)
        rec_raise_known(r);
    if (r->stopped)
        return;
    if (r->pending != 0 || rec_always_raises(f) || (offset != f->next && offset != f->jump)) {
        rec_catch(r, f, offset);
        return;
    }
    if (r->foreign && r->region != NULL) {
        r->foreign = false;
        rec_refuse(r);
        return;
    }
    bool ran_code = r->foreign;
    r->came = f->await == AWAIT_RESULT || f->await == AWAIT_ITER ? 1 : f->op == KIN_DO_UNPACK ? f->arg : 0;
    if (r->foreign) {
        r->foreign = false;
        if (f->steps0 == r->t->steps.len && f->await == AWAIT_CONST) {
            rec_stop(r, "Python code ran inside an operation that was assumed to be constant");
            return;
        }
        blame_foreign_code(r, f);
        rec_forget_contents(r);
        r->deaths = true;
    }
    PyObject *const *stack = kin_watch_localsplus(f->f) + f->nlocals;
    switch (f->await) {
    case AWAIT_CACHED:
        r->v->late = r->v->late || ran_code;
        rec_set_obj(r, f->await_vid, stack[f->await_slot]);
        r->cached = ran_code || rec_any_tensor(r, &f->await_vid, 1) ? 0 : f->await_vid;
        break;
    case AWAIT_RESULT:
        rec_set_obj(r, f->await_vid, stack[f->await_slot]);
        if (r->ran_below)
            rec_note_consumed(r, f->await_vid);
        break;
    case AWAIT_CONST:
        f->slots[f->nlocals + f->await_slot] = rec_const(r, stack[f->await_slot]);
        break;
    case AWAIT_BRANCH:
        rec_finish_branch(r, f, offset == f->jump && offset != f->next);
        break;
    case AWAIT_TRUTH:
        rec_finish_truth(r, f, stack[f->await_slot]);
        break;
    case AWAIT_ITER:
        rec_finish_iter(r, f, offset == f->jump, stack);
        break;
    case AWAIT_FRAME:
        rec_bug(r, "an expected frame did not come");
        break;
    case AWAIT_NONE:
    case AWAIT_CONSUMER:
        break;
    }
    f->await = AWAIT_NONE;
    r->skip_expected = false;
    r->ran_below = false;
}

static bool
agrees_with_stack(rec *r, rec_frame *f)
{
    if (kin_watch_stack_depth(f->f) >= 0 && kin_watch_stack_depth(f->f) != f->sp)
        return false;
    PyObject *const *stack = kin_watch_localsplus(f->f) + f->nlocals;
    for (int i = f->sp; i-- > 0;) {
        kin_vid vid = f->slots[f->nlocals + i];
        if (vid != 0 && O(r, vid) == NULL)
            rec_set_obj(r, vid, stack[i]);
        if (!same_as_symbolic(r, vid, stack[i])) {
            if (getenv("KIN_DEBUG"))
                fprintf(stderr, "slot %d vid %u kind %d: symbolic %s real %s\n", i, vid, r->t->vals.at[vid].kind,
                        vid && O(r, vid) ? Py_TYPE(O(r, vid))->tp_name : "NULL",
                        stack[i] ? Py_TYPE(stack[i])->tp_name : "NULL");
            return false;
        }
    }
    return true;
}

/* The program goes on with something else than what is known. Where code that the collector called has changed that meanwhile, the recording is right so far. */
static void
end_disagreed(rec *r)
{
    if (r->collected)
        rec_stop(r, "the garbage collector called code that changed what had been read");
    else
        rec_bug(r, "the stack differs from the symbolic one");
    rec_settle(r);
}

/* Epochs and graphs are counted in 16 bits; the rest of the bound is memory and patience. */
static bool
is_too_long(const rec *r)
{
    const uint32_t most = UINT16_MAX - 100;
    return r->ninstr > r->opt->trace_limit || r->t->vids.len > 1u << 26 || r->t->nepochs > most || r->t->ngraphs + r->nbreaks > most;
}

/* Reserves room for what the rules of an ordinary instruction write, so that they cannot run out of memory half-way. */
static bool
reserve(rec *r)
{
    enum { MORE = 256 };
    kin_trace *t = r->t;
    return kin_vec_reserve(&t->vals, MORE) == KIN_OK && kin_vec_reserve(&r->info, MORE) == KIN_OK && kin_vec_reserve(&t->steps, MORE) == KIN_OK &&
           kin_vec_reserve(&t->snaps, MORE) == KIN_OK && kin_vec_reserve(&t->facts, MORE) == KIN_OK && kin_vec_reserve(&t->vids, 16 * MORE) == KIN_OK &&
           kin_refs_reserve(r->refs, MORE) == KIN_OK && rec_map_reserve(r->facts_seen, MORE) && rec_map_reserve(r->value_numbers, MORE) &&
           rec_map_reserve(r->consts, MORE);
}

static void
begin_instruction(rec *r, rec_frame *f, const kin_instr *in)
{
    f->jumped_from = f->ran && f->in != NULL && f->in->offset >= in->offset ? f->in->offset : 0;
    f->ran = true;
    f->in = in;
    f->offset = in->offset;
    f->next = in->next;
    f->jump = in->target;
    f->exit_offset = in->resume;
    rec_set_action(f, kin_instr_main(in));
    f->sp0 = f->sp;
    f->nundo = 0;
    f->snap = 0;
    f->inlined = false;
    f->steps0 = r->t->steps.len;
    r->left_snap = 0;
    r->collecting = kin_watch_collecting();
}

/* Tensors that have come from the instruction before, and are the graph's. Where one is not, the program is left with what did come. */
static void
recognise_results(rec *r, rec_frame *f)
{
    PyObject *const *stack = kin_watch_localsplus(f->f) + f->nlocals;
    for (int i = f->sp; i-- > 0 && i >= f->sp - r->came;) {
        kin_vid *slot = f->slots + f->nlocals + i;
        if (*slot != 0 && O(r, *slot) == NULL && stack[i] != NULL)
            rec_set_obj(r, *slot, stack[i]);
        if (*slot != 0)
            *slot = rec_recognise(r, *slot);
    }
    r->came = 0;
}

/* Stops the recording if another tool is watching as well, or if it has become too long. */
static bool
may_go_on(rec *r)
{
    if (kin_watch_foreign_tool(PyThreadState_Get()))
        rec_stop_row(r, KIN_ROW_FOREIGN_TOOL, "a tracing or profiling tool was switched on");
    else if (is_too_long(r))
        rec_stop_row(r, KIN_ROW_TRACE_LIMIT, "the recording became too long");
    else
        return true;
    return false;
}

static void
on_instr(void *arg, struct _PyInterpreterFrame *frame, uint32_t offset)
{
    rec *r = arg;
    if (r->stopped || r->skip || r->done || r->top == NULL)
        return;
    rec_frame *f = r->top;
    if (f->f != frame) {
        rec_bug(r, "instruction in another frame");
        return;
    }
    r->ninstr++;
    if (r->crosscheck != NULL)
        rec_crosscheck_look_away(r);
    if (f->ran && !rec_finish_consumer(r, f, offset)) {
        rec_settle(r);
        return;
    }
    if (f->ran)
        finish_instruction(r, f, offset);
    if (r->crosscheck != NULL)
        rec_crosscheck_compare(r);
    if (r->stopped) {
        rec_settle(r);
        return;
    }
    begin_instruction(r, f, kin_code_at(f->kc, offset));
    if (r->status != KIN_OK || !reserve(r)) {
        rec_bug(r, "no memory");
        return;
    }
    if (!f->started)
        enter_frame(r, f);
    if (!agrees_with_stack(r, f)) {
        end_disagreed(r);
        return;
    }
    r->unchecked = false;
    if (!may_go_on(r))
        return;
    if (r->hides_compiling)
        rec_show_compiling(r);
    if (r->came != 0)
        recognise_results(r, f);
    if (r->cached != 0)
        pin_answer(r);
    if (r->deaths && r->region == NULL)
        (void)rec_epoch(r);
    if (f->jumped_from == 0 || !rec_loop_turns(r))
        rec_dispatch(r);
    rec_settle(r);
    if (r->escaped != 0 && !r->stopped)
        rec_exception_escapes(r, r->escaped);
    if (r->status != KIN_OK)
        rec_bug(r, "no memory");
    if (r->crosscheck != NULL)
        rec_crosscheck_look(r);
}

/* What `in` does with the result of __contains__, and isinstance() with that of __instancecheck__: its truth is known, or it is a bool. */
static void
push_membership(rec *r, rec_frame *f, kin_vid result)
{
    bool invert = f->call_resume == KIN_RESUME_FALSITY;
    if (r->t->vals.at[result].kind == KIN_VAL_SRC && !r->epoch_ended && kin_is_exact_immutable(O(r, result)) &&
        rec_can_const(r, result))
        result = rec_need_const(r, result); /* a fact: no decision is needed at replay */
    bool asked = r->info.at[result].type == &PyBool_Type && !rec_is_const(r, result);
    if (!asked)
        rec_push(r, rec_const(r, (PyObject_IsTrue(O(r, result)) > 0) != invert ? Py_True : Py_False));
    else if (!invert)
        rec_push(r, result);
    else {
        kin_vid out = rec_step_out(r, KIN_STEP_UNARY, KIN_STEP_PURE, &result, 1);
        r->t->steps.at[r->t->vals.at[out].step].imm = KIN_UNARY_NOT;
        r->info.at[out].type = &PyBool_Type;
        rec_push(r, out);
    }
}

/* The method that user code looked up is below the empty slot of its pair. */
static void
push_result(rec *r, rec_frame *f, kin_vid result)
{
    rec_push(r, result);
    if (kin_instr_leaves(f->in) == KIN_LEAVES_PAIR_EMPTY_LAST)
        rec_push(r, 0);
}

static void
leave_frame(rec *r, struct _PyInterpreterFrame *frame, PyObject *value)
{
    rec_frame *f = r->top;
    if (f == NULL)
        return;
    if (f->f != frame) {
        rec_bug(r, "return from another frame");
        return;
    }
    if (value == NULL && r->region != NULL && rec_unwind_in_region(r, r->watch.exception)) {
        rec_settle(r);
        return;
    }
    if (rec_leave_to_c(r, f, value))
        return;
    if (value == NULL) {
        rec_unwind(r, r->watch.exception);
        return;
    }
    kin_vid result = r->returned;
    if (f->back == NULL) {
        r->done = r->returning == 0 && !rec_leaves_generator(r);
        return;
    }
    f = rec_pop_inlined(r);
    if (f->call_resume == KIN_RESUME_PUSH || f->call_resume == KIN_RESUME_DEFAULT ||
        f->call_resume == KIN_RESUME_FALLBACK || f->call_resume == KIN_RESUME_INPLACE || f->call_resume == KIN_RESUME_OVERRIDE)
        push_result(r, f, result);
    else if (f->call_resume == KIN_RESUME_OPERATOR && O(r, result) == Py_NotImplemented)
        rec_operator_goes_on(r, f);
    else if (f->call_resume == KIN_RESUME_OPERATOR)
        rec_push(r, kin_instr_makes_bool(f->in) ? rec_operator_truth(r, result) : result);
    else if (f->call_resume == KIN_RESUME_INIT)
        rec_push(r, f->call_extra);
    else if (f->call_resume == KIN_RESUME_NONE)
        rec_push(r, rec_const(r, Py_None));
    else if (f->call_resume == KIN_RESUME_HASATTR)
        rec_push(r, rec_const(r, Py_True));
    else if (f->call_resume == KIN_RESUME_TRUTH || f->call_resume == KIN_RESUME_FALSITY)
        push_membership(r, f, result);
}

static void
on_return(void *arg, struct _PyInterpreterFrame *frame, PyObject *value)
{
    rec *r = arg;
    if (r->stopped || r->done)
        return;
    if (r->skip) {
        r->skip--;
        return;
    }
    if (r->crosscheck != NULL)
        rec_crosscheck_look_away(r);
    leave_frame(r, frame, value);
    if (r->crosscheck != NULL && r->region != NULL && r->top != NULL && r->top->consumer != NULL)
        rec_crosscheck_look(r); /* the C function that called the frame continues */
}

/* What rules ask Python fails in silence, so no handler of signals may run meanwhile. */

static bool
held_call(void *arg, struct _PyInterpreterFrame *frame)
{
    bool held = kin_signals_hold(), wanted = on_call(arg, frame);
    if (held)
        kin_signals_release();
    return wanted;
}

static void
held_instr(void *arg, struct _PyInterpreterFrame *frame, uint32_t offset)
{
    bool held = kin_signals_hold();
    on_instr(arg, frame, offset);
    if (held)
        kin_signals_release();
}

static void
held_return(void *arg, struct _PyInterpreterFrame *frame, PyObject *value)
{
    bool held = kin_signals_hold();
    on_return(arg, frame, value);
    if (held)
        kin_signals_release();
}

/* -- beginning and end of a recording ----------------------------------------------------------------------------- */

void
rec_free(rec *r)
{
    rec_free_generators(r);
    while (r->top != NULL)
        rec_pop_frame(r);
    for (uint32_t i = 0; i < r->info.len; i++) {
        if (r->info.at[i].held)
            Py_DECREF(r->info.at[i].obj);
        if (r->info.at[i].virtual != NULL) {
            free(r->info.at[i].virtual->items);
            free(r->info.at[i].virtual);
        }
    }
    for (uint32_t i = 0; i < r->forgotten.len; i++) {
        free(r->forgotten.at[i]->items);
        free(r->forgotten.at[i]);
    }
    kin_vec_deinit(&r->forgotten);
    kin_vec_deinit(&r->info);
    kin_vec_deinit(&r->escapees);
    kin_vec_deinit(&r->made_classes);
    kin_vec_deinit(&r->iters);
    kin_vec_deinit(&r->writes);
    rec_changes_free(r);
    kin_written_free(r->written);
    kin_vec_deinit(&r->open_lengths);
    kin_vec_deinit(&r->raises);
    kin_vec_deinit(&r->heads);
    rec_map_free(r->facts_seen);
    rec_map_free(r->value_numbers);
    rec_map_free(r->consts);
    rec_crosscheck_free(r->crosscheck);
    rec_logging_free(r);
    free(r->call.locals);
    free(r);
}

static kin_entry *
new_entry(PyObject *func)
{
    kin_entry *v = kin_entry_new();
    if (v != NULL)
        v->func = Py_NewRef(func);
    return v;
}

rec *
rec_new(const kin_record_options *opt, kin_entry *v, kin_record_result *result)
{
    rec *r = calloc(1, sizeof *r);
    if (r == NULL)
        return NULL;
    r->v = v;
    r->t = &v->trace;
    r->refs = &v->refs;
    r->opt = opt;
    r->result = result;
    r->facts_seen = rec_map_new();
    r->value_numbers = rec_map_new();
    r->consts = rec_map_new();
    rec_info none = {0};
    while (v->declared.len > 0 && v->declared.at[v->declared.len - 1].tensor >= v->trace.vals.len)
        v->declared.len--; /* of a recording that was dropped */
    if (!r->facts_seen || !r->value_numbers || !r->consts || kin_vec_push(&r->info, none) != KIN_OK) {
        rec_free(r);
        return NULL;
    }
    r->watch.client = (kin_watch_client){held_call, held_instr, held_return};
    r->watch.arg = r;
    rec_logging_load(r);
    return r;
}

/* Attaches a side trace to the last step that failed on the way to it. If the recording ended there, it now continues. */
static void
join_side_trace(rec *r)
{
    while (r->t->steps.at[r->join].alt != 0)
        r->join = r->t->steps.at[r->join].alt;
    kin_step *join = &r->t->steps.at[r->join];
    join->alt = r->first_step;
    if (join->kind == KIN_STEP_EXIT) {
        join->flags &= (uint16_t)~KIN_STEP_BREAK;
        join->ref = 0;
    }
}

/* Finishes the entry, or drops it if it is useless. */
static void
complete_recording(rec *r)
{
    kin_entry *v = r->v;
    if (!r->failed && !r->done && !r->stopped)
        r->failed = true; /* the watched frame never came, or the watch was taken over */
    if (r->status != KIN_OK)
        r->failed = true;
    if (r->end.steps != 0)
        kin_trace_cut(r->t, r->end);
    if (!r->failed && r->join != 0)
        join_side_trace(r);
    if (!r->failed && (kin_trace_finish(&v->trace) != KIN_OK || kin_guard_build(v) != KIN_OK))
        r->failed = true;
    bool decoded = rec_code_of((PyCodeObject *)((PyFunctionObject *)v->func)->func_code) != NULL;
    if (r->failed && r->result->reason[0] == '\0')
        snprintf(r->result->reason, sizeof r->result->reason, decoded ? "the recording could not be completed" : "it has an instruction that is not known");
    r->result->ninstr = r->ninstr;
}

/* Runs `body` watched. */
PyObject *
rec_run_watched(rec *r, PyObject *(*body)(void *arg), void *arg)
{
    if (active != NULL || kin_watch_start(&r->watch) != KIN_OK) { /* another thread may have started one since it was checked */
        r->failed = r->stopped = true;
        snprintf(r->result->reason, sizeof r->result->reason, active != NULL ? "another call is being recorded" : "a tracing tool is active");
        return body(arg);
    }
    active = r;
    rec_set_compiling(true);
    r->crosscheck = r->opt->crosscheck ? rec_crosscheck_new(r) : NULL;
    PyObject *value = body(arg);
    kin_watch_stop(&r->watch);
    PyObject *type, *exc, *tb;
    PyErr_Fetch(&type, &exc, &tb);
    if (r->returning != 0 && !r->stopped)
        rec_end_return(r);
    if (r->crosscheck != NULL)
        rec_crosscheck_look_away(r);
    rec_set_compiling(false);
    active = NULL;
    complete_recording(r);
    PyErr_Restore(type, exc, tb);
    return value;
}

typedef struct {
    PyObject *func, *const *args, *kwnames;
    size_t nargsf;
} watched_call;

static PyObject *
run_call(void *arg)
{
    const watched_call *c = arg;
    bool admitted = kin_signals_admit();
    PyObject *value = PyObject_Vectorcall(c->func, c->args, c->nargsf, c->kwnames);
    if (admitted)
        kin_signals_hold();
    return value;
}

PyObject *
kin_record_call(const kin_record_options *options, PyObject *func, PyObject *const *args, size_t nargsf,
                PyObject *kwnames, kin_record_result *result)
{
    memset(result, 0, sizeof *result);
    watched_call call = {.func = func, .args = args, .kwnames = kwnames, .nargsf = nargsf};
    double begin = kin_clock_ns();
    kin_entry *v = active == NULL && rec_torch_init() == KIN_OK ? new_entry(func) : NULL;
    rec *r = v ? rec_new(options, v, result) : NULL;
    if (r == NULL) {
        PyErr_Clear();
        kin_entry_free(v);
        snprintf(result->reason, sizeof result->reason, "recording is not possible now");
        return run_call(&call);
    }
    rec_written_begin(r);
    PyObject *value = rec_run_watched(r, run_call, &call);
    bool keep = !r->failed && (value != NULL || r->stopped);
    PyObject *error = r->fullgraph_error;
    result->written = keep && value != NULL && r->status == KIN_OK ? rec_written_end(r) : NULL;
    rec_free(r);
    result->time_ns = v->record_ns = kin_clock_ns() - begin;
    if (keep)
        result->entry = v;
    else
        kin_entry_free(v);
    if (error != NULL) {
        Py_XDECREF(value);
        PyErr_SetObject((PyObject *)Py_TYPE(error), error);
        Py_DECREF(error);
        return NULL;
    }
    return value;
}
