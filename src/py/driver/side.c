/* Records what CPython does after an exit, as a side trace of the same trace. The rebuilt frames get symbolic frames whose slots are the
 * snapshot's values, and recording continues from there.
 *
 * The side trace starts in a new epoch, so it assumes nothing about the heap. What was known about virtual objects is not
 * carried over: here they are ordinary objects, read by path; except for generators (iterators/adopt.c).
 */
#include "core/diag/breaks.h"
#include "py/compat/frame.h"
#include "py/driver/driver_priv.h"
#include "py/iterators/iterators.h"

typedef struct {
    rec *r;
    kin_exit *exit;
    rec_frame **frames; /* by depth */
    uint32_t nframes;
} side_run;

/* -- beginning ------------------------------------------------------------------------------------------------------ */

/* Creates infos for the existing values: constants keep their objects, the others get theirs from the exit's slots. */
static bool
adopt_values(rec *r)
{
    for (kin_vid v = 1; v < r->t->vals.len; v++) {
        rec_info info = {0};
        if (kin_vec_push(&r->info, info) != KIN_OK)
            return false;
        const kin_val *val = &r->t->vals.at[v];
        r->info.at[v].sized = val->kind == KIN_VAL_STEP && r->t->steps.at[val->step].flags & KIN_STEP_SIZED;
        if (val->kind != KIN_VAL_CONST)
            continue;
        uint32_t *slot = rec_map_at(r->consts, val->key, 0, 0, 0);
        if (slot == NULL)
            return false;
        *slot = v;
        PyObject *obj = kin_refs_get(r->refs, val->key);
        rec_set_obj(r, v, obj);
        r->info.at[v].type = Py_TYPE(obj);
    }
    return true;
}

static uint32_t
chain_length(const kin_trace *t, uint32_t snap)
{
    uint32_t n = 0;
    for (; snap != 0; snap = t->snaps.at[snap].parent)
        n++;
    return n;
}

/* The unfinished instruction of a caller: it is finished when its callee returns. */
static void
set_call_in_progress(rec_frame *f, const kin_snap *s)
{
    const kin_instr *in = kin_code_acting(f->kc, s->offset);
    f->in = in;
    f->offset = in->offset;
    f->exit_offset = s->offset;
    f->next = in->next;
    rec_set_action(f, kin_instr_main(in));
    f->ran = f->inlined = true;
    f->call_resume = (kin_resume)s->resume;
    f->call_extra = s->extra;
}

static bool
adopt_frame(side_run *b, uint32_t depth, uint32_t snap)
{
    rec *r = b->r;
    const kin_snap s = r->t->snaps.at[snap];
    rec_frame *f = rec_push_frame(r, NULL, (PyCodeObject *)kin_refs_get(r->refs, s.code));
    if (f == NULL || s.nlocals != f->nlocals)
        return false;
    f->func = s.func;
    f->parent_snap = s.parent;
    f->exc = s.exc;
    f->names = s.names;
    f->sp = s.nstack;
    f->started = true;
    memcpy(f->slots, r->t->vids.at + s.vals, (size_t)(s.nlocals + s.nstack) * sizeof(kin_vid));
    for (uint32_t i = 0; i < (uint32_t)s.nlocals + s.nstack; i++)
        if (f->slots[i] != 0 && O(r, f->slots[i]) == NULL)
            rec_set_obj(r, f->slots[i], kin_exit_value(b->exit, depth, i));
    b->frames[depth] = f;
    if (depth + 1 < b->nframes)
        set_call_in_progress(f, &s);
    return true;
}

static bool
begin_side_trace(side_run *b, uint32_t step)
{
    rec *r = b->r;
    uint32_t snap = kin_exit_snap(b->exit);
    r->first_step = r->t->steps.len;
    b->nframes = chain_length(r->t, snap);
    b->frames = calloc(b->nframes, sizeof *b->frames);
    if (b->frames == NULL || !adopt_values(r))
        return false;
    for (uint32_t depth = 0; depth < b->nframes; depth++) {
        uint32_t s = snap;
        for (uint32_t up = b->nframes - 1 - depth; up > 0; up--)
            s = r->t->snaps.at[s].parent;
        PyObject *func = kin_exit_func(b->exit, depth);
        kin_vid vid = r->t->snaps.at[s].func;
        if (O(r, vid) == NULL)
            rec_set_obj(r, vid, func);
        kin_vid extra = r->t->snaps.at[s].extra;
        if (extra != 0 && O(r, extra) == NULL)
            rec_set_obj(r, extra, kin_exit_extra(b->exit, depth));
        if (!adopt_frame(b, depth, s))
            return false;
    }
    rec_adopt_generators(r, step);
    r->epoch_ended = true;
    return true;
}

/* -- running and ending --------------------------------------------------------------------------------------------- */

static void
frame_entered(void *arg, uint32_t depth, struct kin_frame *frame, struct _PyInterpreterFrame *raw)
{
    side_run *b = arg;
    if (b->r->stopped)
        return;
    b->frames[depth]->f = raw;
    if (kin_frame_trace_opcodes(PyThreadState_Get(), frame) != KIN_OK ||
        kin_watch_follow(&b->r->watch, kin_watch_code(raw)) != KIN_OK) {
        PyErr_Clear();
        b->r->failed = b->r->stopped = true;
        kin_watch_abandon(&b->r->watch);
    }
}

static PyObject *
run_exit(void *arg)
{
    side_run *b = arg;
    return kin_exit_resume(b->exit, frame_entered, b);
}

bool
kin_record_can_join(const kin_step *s)
{
    if (s->kind == KIN_STEP_EXIT)
        return s->why == 0 || s->why == KIN_WHY_UNSUPPORTED_INSTRUCTION || s->why == KIN_WHY_EXCEPTION_ESCAPED;
    return s->kind == KIN_STEP_CHECK || s->kind == KIN_STEP_EPOCH;
}

static bool
is_same_place(const kin_trace *t, uint32_t a, uint32_t b)
{
    for (; a != 0 && b != 0; a = t->snaps.at[a].parent, b = t->snaps.at[b].parent)
        if (t->snaps.at[a].offset != t->snaps.at[b].offset || t->snaps.at[a].code != t->snaps.at[b].code)
            return false;
    return a == b;
}

/* Does the side trace end where the recording before it ended? Then nothing was gained, and the next exit would do the same. */
static bool
stands_still(const rec *r, uint32_t step)
{
    const kin_step *from = &r->t->steps.at[step], *last = &r->t->steps.at[r->t->steps.len - 1];
    return from->kind == KIN_STEP_EXIT && last->kind == KIN_STEP_EXIT && is_same_place(r->t, from->snap, last->snap);
}

PyObject *
kin_record_exit(const kin_record_options *options, kin_entry *v, uint32_t step, kin_exit *exit,
                kin_record_result *result)
{
    memset(result, 0, sizeof *result);
    kin_trace_mark before_it = kin_trace_end(&v->trace);
    rec *r = kin_record_can_join(&v->trace.steps.at[step]) && !kin_record_active() ? rec_new(options, v, result) : NULL;
    side_run b = {.r = r, .exit = exit};
    if (r == NULL || !begin_side_trace(&b, step)) {
        snprintf(result->reason, sizeof result->reason, "no side trace can be recorded here");
        if (r != NULL)
            rec_free(r);
        free(b.frames);
        kin_trace_cut(&v->trace, before_it);
        return kin_exit_resume(exit, NULL, NULL);
    }
    r->join = step;
    const kin_step before = v->trace.steps.at[step];
    PyObject *value = rec_run_watched(r, run_exit, &b);
    if (r->failed || (value == NULL && !r->stopped) || stands_still(r, step)) {
        v->trace.steps.at[r->join].alt = 0;
        v->trace.steps.at[step].flags = before.flags;
        v->trace.steps.at[step].ref = before.ref;
        kin_trace_cut(&v->trace, before_it);
        if (kin_trace_finish(&v->trace) != KIN_OK || kin_guard_build(v) != KIN_OK) {
            result->health = KIN_RECORD_LOST;
            snprintf(result->reason, sizeof result->reason, "internal error: the trace could not be restored");
        }
    } else {
        result->entry = v;
    }
    rec_free(r);
    free(b.frames);
    return value;
}
