/* Steps, snapshots and epochs of a recording, and the symbolic stack of operands. */
#include "py/recorder/callables.h"
#include "core/diag/breaks.h"
#include "py/aten/modes.h"
#include "py/compat/kinds.h"
#include "py/recorder/rec.h"
#include <assert.h>
#include <stdarg.h>

/* -- snapshots ------------------------------------------------------------------------------------------------ */

uint32_t
rec_snapshot_of(rec *r, rec_frame *f, uint32_t offset, int sp)
{
    kin_snap s = {.parent = f->parent_snap, .func = f->func, .code = f->code_ref, .offset = offset,
                  .nlocals = (uint16_t)f->nlocals, .nstack = (uint16_t)sp, .exc = f->exc, .names = f->names};
    s.vals = r->t->vids.len;
    uint32_t n = (uint32_t)(f->nlocals + sp);
    if (kin_vec_append(&r->t->vids, f->slots, n) != KIN_OK || kin_vec_push(&r->t->snaps, s) != KIN_OK) {
        r->status = KIN_NOMEM;
        return 0;
    }
    return r->t->snaps.len - 1;
}

/* State before the current instruction, also when its rule has already moved the symbolic stack. */
uint32_t
rec_snapshot(rec *r)
{
    rec_frame *f = r->top;
    if (r->region != NULL)
        return rec_region_snap(r);
    if (f->snap == 0) {
        f->snap = rec_snapshot_of(r, f, f->exit_offset, f->sp0);
        if (f->snap != 0) {
            kin_vid *vals = r->t->vids.at + r->t->snaps.at[f->snap].vals;
            for (int i = f->nundo; i-- > 0;)
                vals[f->undo[i].slot] = f->undo[i].old;
        }
    }
    return f->snap;
}

/* -- steps ------------------------------------------------------------------------------------------------------ */

/* What the step reads, changes and may run. A method that the recording bound has the effects of its function. */
static uint32_t
effects_of(rec *r, kin_step_kind kind, const kin_vid *args)
{
    if (kind != KIN_STEP_CALL)
        return kin_kind_effects(kind);
    const rec_virtual *f = VIRTUAL(r, args[0]);
    bool bound = f != NULL && f->kind == VIRTUAL_METHOD;
    const kin_val *callee = &r->t->vals.at[bound ? f->items[0] : args[0]];
    uint32_t effects = callee->kind == KIN_VAL_CONST ? rec_callable_effects(kin_refs_get(r->refs, callee->key)) : 0;
    return effects == 0 || (bound && !(effects & KIN_BY_NAME)) ? kin_kind_effects(kind) : effects;
}

/* Under a mode of the program, which intercepts torch calls. */
static bool
runs_mode(unsigned flags)
{
    return flags & KIN_STEP_TORCH && !(flags & KIN_STEP_OPAQUE) && kin_foreign_modes();
}

/* May the step keep an operand? */
static bool
lets_escape(rec *r, kin_step_kind kind, const kin_vid *args)
{
    bool known = kind == KIN_STEP_CALL && O(r, args[0]) != NULL;
    return !((known ? rec_callable_effects(O(r, args[0])) : kin_kind_effects(kind)) & KIN_LETS_GO);
}

/* Would the step see that an exception comes from a region? Opaque code finds what is being handled, and attributes of a traceback are asked for one by one. */
static uint32_t
seen_of_region(rec *r, kin_step_kind kind, unsigned flags, const kin_vid *args, uint32_t n)
{
    const rec_frame *f = r->top;
    bool looks = kind == KIN_STEP_GETATTR && f != NULL && n > 0 && f->op != KIN_DO_CALL_EXIT;
    if (r->region != NULL || r->raises.len == 0 || r->reads_words || !(looks || flags & KIN_STEP_OPAQUE))
        return 0;
    uint32_t raised = looks ? r->info.at[args[0]].raised : 0;
    if (raised != 0 && f->op == KIN_DO_LOAD_ATTR && PyExceptionInstance_Check(O(r, args[0])) && kin_utf8(PyTuple_GET_ITEM(f->code->co_names, f->arg))[0] != '_')
        raised = 0;
    for (; raised == 0 && flags & KIN_STEP_OPAQUE && f != NULL; f = f->back)
        raised = f->exc != 0 ? r->info.at[f->exc].raised : 0;
    return raised != 0 && r->raises.at[raised - 1].in_region ? raised : 0;
}

/* What holds a mortal object is mortal as well, and the steps that make and fill it run in sequence. */
static void
note_mortal(rec *r, kin_step *s)
{
    const kin_vid *args = r->t->vids.at + s->args;
    bool holds = (s->flags & (KIN_STEP_PURE | KIN_STEP_MUTATES)) && !kin_step_does(s, KIN_GIVES_ATOM), mortal = false;
    for (uint32_t i = 0; holds && i < s->nargs; i++)
        mortal = mortal || r->info.at[args[i]].mortal;
    if (!mortal)
        return;
    s->flags |= KIN_STEP_MORTAL;
    if (s->flags & KIN_STEP_MUTATES)
        r->info.at[args[0]].mortal = true;
}

/* A torch call while a mode of the program's is active: its code runs. */
static uint32_t
step_under_mode(rec *r, kin_step_kind kind, unsigned flags, const kin_vid *args, uint32_t n)
{
    r->skip_expected = true;
    uint32_t step = rec_step(r, kind, flags | KIN_STEP_OPAQUE | KIN_STEP_EFFECT, args, n);
    rec_forget_contents(r);
    return step;
}

/* Writes the step, with the snapshot that a replay leaves at. */
static bool
append_step(rec *r, kin_step_kind kind, unsigned flags, const kin_vid *args, uint32_t n)
{
    kin_step s = {.kind = (uint8_t)kind, .flags = (uint16_t)flags, .nargs = (uint16_t)n, .effects = effects_of(r, kind, args)};
    if (!(flags & KIN_STEP_PURE)) {
        s.snap = r->region != NULL && rec_region_has_acted(r) ? 0 : rec_snapshot(r);
        s.effects |= flags & KIN_STEP_EFFECT ? r->store_effects : 0;
        r->store_effects = 0;
    }
    s.args = r->t->vids.len;
    if (kin_vec_append(&r->t->vids, args, n) == KIN_OK && kin_vec_push(&r->t->steps, s) == KIN_OK)
        return true;
    r->status = KIN_NOMEM;
    return false;
}

/* Operands that others can reach from now on: those of a step that is more than a change, and what is put into something that others reach already. */
static void
note_escapes(rec *r, kin_step_kind kind, unsigned flags, const kin_vid *args, uint32_t n)
{
    uint32_t escaped = r->escaped;
    if (flags & KIN_STEP_MUTATES) {
        if (n > 0 && kind != KIN_STEP_NEXT && r->iters.len > 0)
            rec_touch_iterators(r, args[0]);
        bool reached = n > 0 && VIRTUAL(r, args[0]) != NULL && VIRTUAL(r, args[0])->escaped;
        for (uint32_t i = 1; reached && i < n; i++)
            rec_escape(r, args[i]);
    } else if (!(flags & KIN_STEP_PURE) && kind != KIN_STEP_CHECK && !r->keep_inside) {
        for (uint32_t i = 0; i < n; i++)
            rec_escape(r, args[i]);
    }
    if (r->escaped != escaped && !lets_escape(r, kind, args))
        r->escaped = escaped;
    uint32_t seen = seen_of_region(r, kind, flags, args, n);
    if (seen != 0)
        r->escaped = seen;
}

/* What depends on sizes goes into an object that the recording has made (a cell, a list): side traces find it there. */
static void
note_sized_content(rec *r, const kin_vid *args, uint32_t n)
{
    const kin_val *owner = n > 1 && args[0] != 0 ? &r->t->vals.at[args[0]] : NULL;
    for (uint32_t i = 1; owner != NULL && owner->kind == KIN_VAL_STEP && i < n; i++)
        if (args[i] != 0 && r->info.at[args[i]].sized)
            r->t->steps.at[owner->step].flags |= KIN_STEP_SIZED;
}

uint32_t
rec_step(rec *r, kin_step_kind kind, unsigned flags, const kin_vid *args, uint32_t n)
{
    if (runs_mode(flags))
        return step_under_mode(r, kind, flags, args, n);
    if (r->made_classes.len > 0 && rec_may_change_made_class(r, kind, flags, args, n))
        rec_stop(r, "a class that the call has made may be changed");
    if (r->region != NULL && !rec_region_step(r, kind, &flags, args, n))
        return 0;
    bool judged = rec_written_judges_change(r, kind, flags, args, n);
    if (!append_step(r, kind, flags, args, n))
        return 0;
    rec_written_note(r, r->t->steps.len - 1, judged);
    if (r->region != NULL && flags & KIN_STEP_EFFECT && !rec_region_switches(r, kind, args))
        rec_region_acts(r);
    note_mortal(r, &r->t->steps.at[r->t->steps.len - 1]);
    if (flags & KIN_STEP_MUTATES)
        note_sized_content(r, args, n);
    note_escapes(r, kind, flags, args, n);
    return r->t->steps.len - 1;
}

kin_vid
rec_step_out(rec *r, kin_step_kind kind, unsigned flags, const kin_vid *args, uint32_t n)
{
    uint32_t s = rec_step(r, kind, flags, args, n);
    kin_vid out = rec_value(r, (kin_val){.kind = KIN_VAL_STEP, .step = s}, NULL);
    r->t->steps.at[s].out = out;
    r->info.at[out].graph = (flags & KIN_STEP_TORCH) != 0;
    for (uint32_t i = 0; i < n && !(flags & (KIN_STEP_TORCH | KIN_STEP_OPAQUE)); i++) {
        r->info.at[out].varies = r->info.at[out].varies || (args[i] != 0 && r->info.at[args[i]].varies);
        r->info.at[out].changes_each_call = r->info.at[out].changes_each_call || (kind == KIN_STEP_BINARY && args[i] != 0 && rec_changes_each_call(r, args[i]));
    }
    r->info.at[out].mortal = (r->t->steps.at[s].flags & KIN_STEP_MORTAL) != 0;
    rec_note_sized(r, &r->t->steps.at[s]);
    rec_note_data(r, s);
    rec_note_unbacked(r, &r->t->steps.at[s]);
    return out;
}

/* -- epochs ----------------------------------------------------------------------------------------------------- */

uint32_t
rec_epoch(rec *r)
{
    if (r->epoch_ended && r->region != NULL) {
        rec_refuse(r);
    } else if (r->epoch_ended) {
        r->epoch_ended = false;
        uint32_t s = rec_step(r, KIN_STEP_EPOCH, r->deaths ? KIN_STEP_DEATHS : 0, NULL, 0);
        r->deaths = false;
        r->epoch = r->t->nepochs++;
        r->t->steps.at[s].num = r->epoch;
        r->t->steps.at[s].imm = kin_foreign_modes();
        r->inplace = false;
        r->writes.len = 0;
        r->meta_epoch++;
    }
    return r->epoch;
}

void
rec_end_epoch(rec *r)
{
    r->epoch_ended = true;
    r->meta_epoch++;
}

/* Can a later epoch read the contents by path? */
static bool
can_be_read(rec *r, kin_vid vid)
{
    PyTypeObject *tp = r->info.at[vid].type;
    if (O(r, vid) == NULL || r->t->vals.at[vid].kind != KIN_VAL_STEP)
        return false;
    switch (VIRTUAL(r, vid)->kind) {
    case VIRTUAL_LIST: case VIRTUAL_DICT: case VIRTUAL_OBJECT: case VIRTUAL_ATTRS:
        return true;
    case VIRTUAL_OTHER:
        return tp == &PyList_Type || tp == &PyDict_Type;
    default:
        return false;
    }
}

/* An object made here that others have changed is one like those that were there before. */
static void
make_ordinary(rec *r, kin_vid vid)
{
    if (kin_vec_push(&r->forgotten, VIRTUAL(r, vid)) != KIN_OK) { /* the current rule may be looking at it */
        r->status = KIN_NOMEM;
        return;
    }
    VIRTUAL(r, vid) = NULL;
    r->info.at[vid].made = true;
}

/* Can code that holds a reference to the object change its contents? */
static bool
can_change(const rec_virtual *f)
{
    return f->kind != VIRTUAL_TUPLE && f->kind != VIRTUAL_NAMED && f->kind != VIRTUAL_METHOD && f->kind != VIRTUAL_SUPER &&
           f->kind != VIRTUAL_SLICE && f->kind != VIRTUAL_RANGE && f->kind != VIRTUAL_VIEW;
}

void
rec_forget_contents(rec *r)
{
    rec_end_epoch(r);
    rec_touch_iterators(r, 0);
    uint32_t kept = 0;
    for (uint32_t i = 0; i < r->escapees.len; i++) {
        kin_vid vid = r->escapees.at[i];
        rec_virtual *f = VIRTUAL(r, vid);
        if (f == NULL || !f->escaped || !can_change(f)) /* an escape that was undone is noted again when it happens again */
            continue;
        f->known = false;
        if (r->region == NULL && can_be_read(r, vid))
            make_ordinary(r, vid);
        else
            r->escapees.at[kept++] = vid;
    }
    r->escapees.len = kept;
}

/* -- ending ------------------------------------------------------------------------------------------------------- */

/* What the dropped step did to a list or dict has happened to what is known of that. */
static void
forget_change(rec *r, const kin_step *s)
{
    kin_vid changed = s->flags & KIN_STEP_MUTATES && s->nargs ? r->t->vids.at[s->args] : 0;
    rec_virtual *f = changed != 0 ? VIRTUAL(r, changed) : NULL;
    if (f != NULL && (f->kind == VIRTUAL_LIST || f->kind == VIRTUAL_DICT))
        f->known = false;
}

void
rec_truncate(rec *r, uint32_t len)
{
    if (len < r->end.steps)
        len = r->end.steps;
    if (r->region != NULL)
        rec_region_truncate(r, len);
    rec_written_truncate(r, len);
    for (uint32_t i = len; i < r->t->steps.len; i++)
        forget_change(r, &r->t->steps.at[i]);
    if (r->result != NULL && r->result->refused >= len)
        r->result->refused = 0;
    for (uint32_t i = len; i < r->t->steps.len; i++)
        if (r->t->steps.at[i].out)
            r->t->vals.at[r->t->steps.at[i].out].kind = KIN_VAL_NONE;
    if (r->t->steps.len > len)
        r->t->steps.len = len;
}

void
rec_end_here(rec *r)
{
    r->stopped = true;
    kin_watch_abandon(&r->watch);
    r->end = kin_trace_end(r->t);
}

/* row < 0: it is no graph break. */
static void
end_with(rec *r, kin_step exit, int row)
{
    if (kin_vec_push(&r->t->steps, exit) != KIN_OK)
        r->status = KIN_NOMEM;
    else if (row >= 0)
        rec_break(r, r->t->steps.len - 1, row);
    rec_end_here(r);
}

void
rec_stop_row(rec *r, int row, const char *why)
{
    if (r->stopped)
        return;
    if (r->region != NULL) {
        rec_refuse(r);
        return;
    }
    r->stopped = true;
    snprintf(r->result->reason, sizeof r->result->reason, "%s", why);
    kin_watch_abandon(&r->watch);
    if (r->top == NULL) {
        r->failed = true;
        return;
    }
    uint32_t snap = rec_snapshot(r);
    rec_truncate(r, r->top->steps0);
    PyObject *text = PyUnicode_FromString(why);
    kin_step exit = {.kind = KIN_STEP_EXIT, .snap = snap, .ref = text ? rec_ref(r, text) : 0};
    Py_XDECREF(text);
    end_with(r, exit, row);
}

void
rec_cut_back(rec *r, const rec_raise *m, int row, const char *why)
{
    r->stopped = true;
    snprintf(r->result->reason, sizeof r->result->reason, "%s", why);
    rec_truncate(r, m->end.steps);
    kin_trace_cut(r->t, m->end);
    end_with(r, (kin_step){.kind = KIN_STEP_EXIT, .snap = m->snap}, row);
}

void
rec_stop(rec *r, const char *why)
{
    rec_stop_row(r, KIN_ROW_UNSUPPORTED_INSTRUCTION, why);
}

void
rec_stop_fmt(rec *r, const char *fmt, ...)
{
    char text[200];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    rec_stop_row(r, KIN_ROW_UNSUPPORTED_INSTRUCTION, text);
}

void
rec_bug(rec *r, const char *what)
{
    if (r->failed || r->stopped) /* what is written after a stop is dropped anyway */
        return;
    r->failed = true;
    r->stopped = true;
    kin_watch_abandon(&r->watch);
    int line = r->top ? PyCode_Addr2Line(r->top->code, (int)r->top->offset) : 0;
    r->result->health = KIN_RECORD_BUG;
    snprintf(r->result->reason, sizeof r->result->reason, "internal error: %s at %s:%d, %s", what,
             r->top ? kin_utf8(r->top->code->co_qualname) : "?", line,
             r->top != NULL && r->top->in != NULL ? kin_instr_name(r->top->in) : "?");
}

/* Where the program is, torch._dynamo.error_on_graph_break(True) is on. */
static bool
breaks_are_errors(void)
{
    PyObject *utils = PyDict_GetItemString(PyImport_GetModuleDict(), "torch._dynamo.utils");
    return utils != NULL && PyModule_Check(utils) &&
           PyDict_GetItemString(PyModule_GetDict(utils), "_error_on_graph_break") == Py_True;
}

/* A side trace begins with the instruction whose check failed, perhaps after tests of what it reads: that graph has ended already. What the
 * instruction itself has done before the check, as the comparison of a condition, is done again. */
static bool
repeats_join(rec *r, uint32_t step, int row)
{
    if (r->join == 0)
        return false;
    for (uint32_t i = r->first_step; i < step && i < r->top->steps0; i++)
        if (r->t->steps.at[i].kind != KIN_STEP_EPOCH && r->t->steps.at[i].kind != KIN_STEP_CHECK)
            return false;
    const kin_step *join = &r->t->steps.at[r->join], *s = &r->t->steps.at[step];
    const kin_snap *there = &r->t->snaps.at[join->snap], *here = &r->t->snaps.at[s->snap];
    return join->why == row + 1 && join->snap && s->snap && there->code == here->code && there->offset == here->offset;
}

/* The line of the instruction; of an earlier one, that at which its step leaves. */
static uint32_t
line_of(rec *r, const kin_snap *snap)
{
    PyObject *code = kin_refs_get(r->refs, snap->code);
    bool here = code == (PyObject *)r->top->code && snap->offset == r->top->exit_offset;
    return (uint32_t)(here || code == NULL || !PyCode_Check(code) ? PyCode_Addr2Line(r->top->code, (int)r->top->offset)
                                                                   : PyCode_Addr2Line((PyCodeObject *)code, (int)snap->offset));
}

void
rec_break(rec *r, uint32_t step, int row)
{
    kin_step *s = &r->t->steps.at[step];
    if (repeats_join(r, step, row))
        return;
    r->nbreaks++;
    s->flags |= KIN_STEP_BREAK;
    s->why = (uint16_t)(row + 1);
    if (r->result != NULL && r->result->refused == 0 && breaks_are_errors())
        r->result->refused = step;
    if (s->snap)
        r->t->snaps.at[s->snap].line = line_of(r, &r->t->snaps.at[s->snap]);
}

/* -- the symbolic stack ------------------------------------------------------------------------------------------- */

void
rec_push(rec *r, kin_vid vid)
{
    rec_frame *f = r->top;
    int slot = f->nlocals + f->sp;
    if (slot >= f->nslots) {
        rec_bug(r, "an instruction left more on the stack than its code has room for");
        return;
    }
    if (f->sp < f->sp0) {
        assert(f->nundo < REC_UNDO);
        if (f->nundo == REC_UNDO) { /* without asserts, too, a snapshot may not lack an operand */
            rec_bug(r, "an instruction overwrote too many operands");
            return;
        }
        f->undo[f->nundo].slot = slot;
        f->undo[f->nundo++].old = f->slots[slot];
    }
    f->slots[slot] = vid;
    f->sp++;
}

PyObject *
rec_stack_obj(rec *r, int i)
{
    return kin_watch_localsplus(r->top->f)[r->top->nlocals + r->top->sp0 - 1 - i];
}

void
rec_await_result(rec *r, kin_vid vid, uint32_t step)
{
    rec_push(r, vid);
    r->top->await = AWAIT_RESULT;
    r->top->await_vid = vid;
    r->top->await_step = step;
    r->top->await_slot = r->top->sp - 1;
}

void
rec_await_const(rec *r)
{
    rec_push(r, 0);
    r->top->await = AWAIT_CONST;
    r->top->await_slot = r->top->sp - 1;
}

void
rec_push_step(rec *r, kin_step_kind kind, unsigned flags, const kin_vid *args, uint32_t n)
{
    kin_vid out = rec_step_out(r, kind, flags, args, n);
    rec_await_result(r, out, r->t->vals.at[out].step);
}
