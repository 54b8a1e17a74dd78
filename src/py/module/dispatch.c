/* Dispatch of a call (dispatch.h). On a hit it runs no Python code of its own, looks up no dict and allocates nothing
 * for programs of ordinary size: resolve the callable, find the call's shape, evaluate guards, replay.
 */
#include "py/module/dispatch.h"

#include "core/base/clock.h"
#include "core/diag/breaks.h"
#include "py/aten/modes.h"
#include "py/aten/tensor.h"
#include "py/backend/custom.h"
#include "py/compat/recursion.h"
#include "py/guardeval/guard.h"
#include "py/launch/launch.h"
#include "py/report/guard_text.h"
#include "py/module/fullgraph.h"
#include "py/report/log.h"
#include "py/module/lower.h"
#include "py/module/profiler_range.h"
#include "py/module/stopwatch.h"
#include "py/module/target.h"
#include "py/module/unstable.h"
#include "py/driver/record.h"
#include "py/replay/replay.h"
#include "py/watch/watch.h"

enum { SMALL_SLOTS = 128, MAX_LOGGED_EXITS = 64 };

/* One call on its way. */
typedef struct {
    kin_compiled *self;
    PyThreadState *ts;
    PyObject *const *args; /* as the caller passed them, for eager runs */
    size_t nargsf;
    PyObject *kwnames;
    kin_bind_call bind;
    kin_call_shape *shape;
    kin_eager why; /* of TRY_EAGER */
    bool pinned;   /* the cache may not free `shape` */
    double begun;  /* where nothing more is recorded: when guard lookup began */
} call_state;

/* What the exit hook needs. */
typedef struct {
    kin_compiled *self;
    kin_entry_object *entry;
    PyThreadState *ts;
    bool extended; /* recording took part of the time */
} exit_context;

typedef enum { TRY_HIT, TRY_MISS, TRY_EAGER } try_result;

static void
unpin(call_state *c)
{
    if (c->pinned)
        kin_cache_unpin(&c->self->cache);
    c->pinned = false;
}

/* -- eager ------------------------------------------------------------------------------------------------- */

static PyObject *
run_eager(call_state *c, kin_eager why)
{
    kin_compiled *self = c->self;
    if (self->count.eager[why]++ == 0 && self->state != NULL && why != KIN_EAGER_RECORDING && why != KIN_EAGER_LIMIT && why != KIN_EAGER_COSTLY) {
        PyObject *code = PyFunction_Check(self->fn) ? PyFunction_GET_CODE(self->fn) : NULL;
        kin_log_fallback(self->state, self->name, (PyCodeObject *)code, kin_eager_text(why),
                         kin_eager_row(why));
    }
    unpin(c);
    return PyObject_Vectorcall(self->fn, c->args, c->nargsf, c->kwnames);
}

/* Reasons that hold whatever the function is. */
static kin_eager
find_obstacle(const kin_compiled *self, PyThreadState *ts)
{
    if (self->disabled || self->state == NULL || self->state->options.disable)
        return KIN_EAGER_DISABLED;
    if (kin_record_active())
        return KIN_EAGER_RECORDING;
    if (kin_watch_foreign_tool(ts))
        return KIN_EAGER_TOOL;
    if (kin_foreign_modes())
        return KIN_EAGER_MODE;
    return KIN_EAGER_NO;
}

/* -- side exits -------------------------------------------------------------------------------------------- */

/* May timing influence what is recorded and replayed? */
static bool
is_timed(const kin_compiled *self)
{
    const kin_options *options = &self->state->options;
    return options->step_aside && options->trials > 0 && !self->fullgraph && !kin_lower_is_custom(self);
}

/* Did a number or a truth value differ? Loops ask such questions again and again, and each call may answer differently; types, sizes and
 * the presence of attributes differ once. */
static bool
is_decision(const kin_step *s)
{
    return s->kind == KIN_STEP_CHECK && (s->imm == KIN_CHECK_TRUE || s->imm == KIN_CHECK_FALSE || s->imm == KIN_CHECK_WAS_TRUE ||
                                         s->imm == KIN_CHECK_WAS_FALSE || s->imm == KIN_CHECK_EQ);
}

static bool
affords_side_trace(const exit_context *x, uint32_t step)
{
    kin_entry_object *entry = x->entry;
    const kin_entry *v = entry->v;
    kin_trace_budget *budget = &entry->budget;
    bool timed = is_timed(x->self);
    budget->made = entry->side_traces;
    budget->used = timed ? v->nused : entry->side_traces;
    kin_side_trace_place place = {.steps = v->trace.steps.len,
                                  .decision = timed && is_decision(&v->trace.steps.at[step]),
                                  .left_before = v->exit_counts != NULL && v->exit_counts[step] > 1};
    bool affords = kin_trace_budget_affords_side_trace(budget, &place);
    entry->postponed += !affords;
    return affords;
}

static bool
may_extend(const exit_context *x, uint32_t step)
{
    kin_entry_object *entry = x->entry;
    const kin_entry *v = entry->v;
    const kin_options *options = &x->self->state->options;
    const kin_step *s = &v->trace.steps.at[step];
    if (!kin_record_can_join(s) || s->alt != 0 || options->miss_hook != NULL)
        return false;
    /* After a forced exit the check has not failed, so what follows is not the other branch. */
    if (kin_replay_force_exit != UINT32_MAX)
        return false;
    if (entry->inside > 1 || entry->growing || entry->side_traces >= options->side_trace_limit || step >= entry->attempts.len ||
        entry->attempts.at[step] >= KIN_TIER_SIDE_TRACE_ATTEMPTS)
        return false;
    if (v->exit_counts != NULL && v->exit_counts[step] > options->exit_limit + (uint64_t)entry->postponed)
        return false;
    return !kin_record_active() && !kin_watch_foreign_tool(x->ts) && !kin_foreign_modes() && affords_side_trace(x, step);
}

static void
fill_record_options(const kin_compiled *self, PyObject *unstable, kin_record_options *out)
{
    const kin_options *options = &self->state->options;
    *out = (kin_record_options){
        .fullgraph = self->fullgraph,
        .strict_breaks = options->strict_breaks,
        .trace_limit = options->trace_limit,
        .kernels = kin_lower_wanted(self) && !kin_lower_is_custom(self),
        .crosscheck = options->crosscheck,
        .unstable = unstable,
        .dynamic = self->dynamic,
        .error_class = options->error_class == NULL ? PyExc_RuntimeError : options->error_class,
    };
}

/* Takes over the grown trace; after a failure the entry is not extended again. False with the exception of a
 * backend that raised, or of a graph break under fullgraph: the entry is gone, so that the next call raises as well. */
static bool
adopt_side_trace(exit_context *x, uint32_t step, kin_log_before before, const kin_record_result *result)
{
    kin_entry_object *entry = x->entry;
    kin_entry *v = entry->v;
    PyCodeObject *code = (PyCodeObject *)((PyFunctionObject *)v->func)->func_code;
    if (v->trace.steps.len == before.steps) {
        entry->attempts.at[step]++;
        return true;
    }
    entry->side_traces++;
    x->self->count.extended++;
    if (v->trace.steps.at[step].kind == KIN_STEP_EXIT)
        kin_entry_object_set_reason(entry, result->reason);
    uint32_t nparams = (uint32_t)(code->co_argcount + code->co_kwonlyargcount) +
                       ((code->co_flags & CO_VARARGS) != 0) + ((code->co_flags & CO_VARKEYWORDS) != 0);
    if (kin_entry_object_refresh(entry, nparams) != KIN_OK) {
        entry->broken = true;
        kin_log_bug(x->self->state, x->self->name, "side trace", "the entry cannot be used with its new side trace");
        return true;
    }
    kin_log_extend(x->self->state, code, entry, step, before, result);
    const kin_options *options = &x->self->state->options;
    bool refused = x->self->fullgraph && v->trace.nbreaks > 0 && options->error_class != NULL &&
                   kin_fullgraph_refuse(v, 0, options->error_class);
    if (!refused && kin_lower_entry(x->self, entry, NULL))
        return true;
    kin_cache_drop(&x->self->cache, entry);
    return false;
}

static PyObject *
extend(exit_context *x, uint32_t step, kin_exit *exit)
{
    kin_record_options options;
    kin_record_result result = {0};
    kin_entry *v = x->entry->v;
    kin_log_before before = {v->trace.steps.len, v->trace.ngraphs};
    double start = kin_clock_ns();
    x->extended = true;
    kin_unstable_note_exit(v, step, x->entry->unstable);
    fill_record_options(x->self, x->entry->unstable, &options);
    PyObject *value = kin_record_exit(&options, v, step, exit, &result);
    PyObject *type, *error, *traceback;
    PyErr_Fetch(&type, &error, &traceback);
    if (!adopt_side_trace(x, step, before, &result)) {
        if (value == NULL)
            PyErr_Clear(); /* the program's own exception goes first */
        else
            PyErr_Fetch(&type, &error, &traceback);
        Py_CLEAR(value);
    }
    kin_trace_budget_spend(&x->entry->budget, kin_clock_ns() - start);
    if (result.health != KIN_RECORD_SOUND)
        kin_log_bug(x->self->state, x->self->name, "side trace", result.reason);
    x->entry->broken |= result.health == KIN_RECORD_LOST;
    PyErr_Restore(type, error, traceback);
    return value;
}

static PyObject *
resume_eagerly(kin_entry_object *entry, kin_exit *exit)
{
    double start = kin_clock_ns();
    bool told = kin_entry_was_asked(entry->v, KIN_ASKER_PROGRAM, true); /* one call sees one answer */
    if (told)
        kin_record_set_compiling(true);
    PyObject *value = kin_exit_resume(exit, NULL, NULL);
    PyObject *type, *error, *traceback;
    PyErr_Fetch(&type, &error, &traceback);
    if (told)
        kin_record_set_compiling(false);
    entry->budget.lived += kin_clock_ns() - start;
    kin_tierdown_hasten(&entry->tierdown);
    PyErr_Restore(type, error, traceback);
    return value;
}

/* kin_exit_hook. The frame that replay stood for becomes a real one, which counts itself. */
static PyObject *
leave(kin_entry *v, uint32_t step, kin_exit *exit, void *arg)
{
    exit_context *x = arg;
    PyObject *value;
    bool extending = may_extend(x, step);
    x->entry->growing |= extending; /* from here on other threads stay out */
    if (x->self->count.offered++ < MAX_LOGGED_EXITS || extending)
        kin_log_exit(x->self->state, x->entry, step);
    kin_recursion_take(x->ts, -1);
    if (extending) {
        value = extend(x, step, exit);
        x->entry->growing = false;
    } else
        value = resume_eagerly(x->entry, exit);
    kin_recursion_take(x->ts, 1);
    return value;
}

/* -- hits -------------------------------------------------------------------------------------------------- */

static void
drop_roots(const kin_entry_object *entry, PyObject **slots)
{
    for (uint32_t i = 0; i < entry->roots.len; i++)
        Py_CLEAR(slots[entry->roots.at[i].vid]);
}

static bool
fill_roots(const kin_entry_object *entry, const call_state *c, PyObject **slots)
{
    for (uint32_t i = 0; i < entry->roots.len; i++) {
        kin_root root = entry->roots.at[i];
        PyObject *value = root.local == KIN_ROOT_FUNC ? Py_NewRef((PyObject *)c->bind.func)
                                                      : kin_bind_value(c->shape->plan, &c->bind, root.local);
        if (value == NULL) {
            PyErr_Clear();
            drop_roots(entry, slots);
            return false;
        }
        slots[root.vid] = value;
    }
    return true;
}

/* An entry in which an internal error occurred is not replayed again. */
static void
retire(kin_compiled *self, kin_entry_object *entry, kin_entry *v)
{
    PyObject *type, *error, *traceback;
    PyErr_Fetch(&type, &error, &traceback);
    if (self->state != NULL)
        kin_log_bug(self->state, self->name, "replay", v->failure);
    PyErr_Restore(type, error, traceback);
    entry->broken = true;
    free(v->failure);
    v->failure = NULL;
}

static bool
was_asked_by_library(const kin_entry *v)
{
    return v->asked.len > 0 && (kin_entry_was_asked(v, KIN_ASKER_LIBRARY, true) || kin_entry_was_asked(v, KIN_ASKER_LIBRARY, false));
}

/* May calls be compared with eager ones, and run eagerly? Without graph breaks and exits
 * the A/B timing of subgraphs finds everything that is slower, and eager calls would only cost time; unless a library behaves
 * differently in eager calls. */
static bool
may_step_aside(const kin_compiled *self, const kin_entry *v)
{
    return (v->exits > 0 || v->trace.nbreaks > 0 || was_asked_by_library(v)) && v->running == 0 && kin_replay_force_exit == UINT32_MAX && is_timed(self);
}

/* What libraries do where they are told of compiling is slower than what they do otherwise: the next recording tells them nothing. */
static bool
record_without_telling(kin_compiled *self, kin_entry_object *entry)
{
    PyObject *mark = entry->unstable == NULL || !kin_entry_was_asked(entry->v, KIN_ASKER_LIBRARY, true)
                         ? NULL : PyUnicode_FromString(KIN_ASKERS_SLOWER);
    bool noted = mark != NULL && PySet_Add(entry->unstable, mark) == 0;
    Py_XDECREF(mark);
    PyErr_Clear();
    if (noted)
        kin_cache_drop(&self->cache, entry);
    return noted;
}

static void
note_tierdown(kin_compiled *self, kin_entry_object *entry, bool eager, double ns)
{
    if (ns < 0 || !kin_tierdown_note(&entry->tierdown, eager, ns) || self->state == NULL)
        return;
    char text[160];
    const char *what = !entry->tierdown.backed_off                    ? "compiled calls are used again"
                       : record_without_telling(self, entry) ? "recorded again, with is_compiling() False for libraries"
                                                             : kin_eager_text(KIN_EAGER_SLOWER);
    snprintf(text, sizeof text, "%s: entry %u takes %.2f times as long as eager", what, entry->number, entry->tierdown.ratio);
    PyObject *code = PyFunction_Check(self->fn) ? PyFunction_GET_CODE(self->fn) : NULL;
    kin_log_fallback(self->state, self->name, (PyCodeObject *)code, text, KIN_WHY_NONE);
}

/* Runs the function itself in place of a replay, as it is without compiling; a program that asks itself is told the same in each call. */
static PyObject *
run_aside(call_state *c, kin_entry_object *entry, kin_tierdown_turn turn)
{
    PyObject *type, *error, *traceback;
    kin_compiled *self = c->self;
    bool told = entry->v != NULL && kin_entry_was_asked(entry->v, KIN_ASKER_PROGRAM, true);
    self->count.eager[turn == KIN_TIERDOWN_EAGER ? KIN_EAGER_SLOWER : KIN_EAGER_TRIAL]++;
    if (told)
        kin_record_set_compiling(true);
    kin_stopwatch watch = {0};
    if (turn == KIN_TIERDOWN_TIME_EAGER)
        watch = kin_stopwatch_start();
    PyObject *value = PyObject_Vectorcall(self->fn, c->args, c->nargsf, c->kwnames);
    PyErr_Fetch(&type, &error, &traceback);
    if (turn == KIN_TIERDOWN_TIME_EAGER && value != NULL)
        note_tierdown(self, entry, true, kin_stopwatch_read(&watch));
    if (told)
        kin_record_set_compiling(false);
    PyErr_Restore(type, error, traceback);
    return value;
}

static PyObject *
run_replay(call_state *c, kin_entry_object *entry, PyObject **slots, bool timed)
{
    kin_entry *v = entry->v;
    exit_context x = {c->self, entry, c->ts, false};
    kin_recursion_take(c->ts, 1);
    PyObject *region = kin_range_wanted() ? kin_range_begin(c->self, entry) : NULL;
    kin_stopwatch watch = {0};
    if (timed)
        watch = kin_stopwatch_start();
    PyObject *value = kin_replay_run(v, slots, leave, &x);
    if (timed && value != NULL && !x.extended)
        note_tierdown(c->self, entry, false, kin_stopwatch_read(&watch));
    kin_range_end(region);
    kin_recursion_take(c->ts, -1);
    if (v->failure != NULL)
        retire(c->self, entry, v);
    if (v->replan)
        kin_launch_settle(v);
    return value;
}

/* Tries entry i of the shape. Once the guards have held, arbitrary code may run, and the shape may be freed. */
static try_result
try_with_slots(call_state *c, uint32_t i, PyObject **slots, PyObject **result)
{
    kin_entry_object *entry = c->shape->entries.at[i];
    if (!fill_roots(entry, c, slots))
        return TRY_EAGER;
    kin_guard_miss miss;
    if (!kin_guard_eval(entry->v, 0, slots, &miss)) {
        drop_roots(entry, slots);
        entry->v->misses++;
        c->self->count.guard_misses++;
        return TRY_MISS;
    }
    if (i > 0)
        kin_call_shape_promote(c->shape, i);
    bool usual = kin_tierdown_replays(&entry->tierdown) || !may_step_aside(c->self, entry->v);
    if (c->begun > 0)
        kin_lookup_hit(&c->shape->lookup, kin_clock_ns() - c->begun, entry->tierdown.backed_off ? 1 : entry->tierdown.ratio);
    kin_tierdown_turn turn = usual ? KIN_TIERDOWN_REPLAY : kin_tierdown_next(&entry->tierdown);
    unpin(c);
    if (turn == KIN_TIERDOWN_EAGER || turn == KIN_TIERDOWN_TIME_EAGER) {
        for (uint32_t vid = 0; vid < entry->nslots; vid++)
            Py_CLEAR(slots[vid]);
        *result = run_aside(c, entry, turn);
        return TRY_HIT;
    }
    c->self->count.replays++;
    *result = run_replay(c, entry, slots, turn == KIN_TIERDOWN_TIME_REPLAY);
    return *result == NULL && !PyErr_Occurred() ? TRY_EAGER : TRY_HIT;
}

static try_result
try_small(call_state *c, uint32_t i, PyObject **result)
{
    PyObject *slots[SMALL_SLOTS];
    memset(slots, 0, c->shape->entries.at[i]->nslots * sizeof *slots);
    return try_with_slots(c, i, slots, result);
}

static try_result
try_large(call_state *c, uint32_t i, PyObject **result)
{
    kin_entry_object *entry = c->shape->entries.at[i];
    uint32_t count = entry->nslots; /* it may grow while it runs */
    PyObject **slots = kin_entry_slots_take(entry);
    if (slots == NULL)
        return TRY_EAGER;
    try_result outcome = try_with_slots(c, i, slots, result);
    kin_entry_slots_give(entry, slots, count);
    return outcome;
}

static try_result
try_entry(call_state *c, uint32_t i, PyObject **result)
{
    kin_entry_object *entry = c->shape->entries.at[i];
    if (entry->v == NULL || entry->broken)
        return TRY_MISS;
    c->why = KIN_EAGER_RECORDING;
    if (entry->growing) /* another thread began to record a side trace since this call looked for obstacles */
        return TRY_EAGER;
    c->why = KIN_EAGER_RECURSION;
    if (kin_recursion_left(c->ts) < (int)entry->v->trace.depth)
        return TRY_EAGER;
    c->why = KIN_EAGER_INTERNAL;
    Py_INCREF(entry); /* a step may drop all entries */
    entry->inside++;
    try_result outcome = entry->nslots <= SMALL_SLOTS ? try_small(c, i, result) : try_large(c, i, result);
    entry->inside--;
    Py_DECREF(entry);
    return outcome;
}

/* -- recording --------------------------------------------------------------------------------------------- */

static bool
prepare_torch(kin_state *st, PyObject *name)
{
    if (st->aten_ready || st->aten_failed)
        return st->aten_ready;
    PyObject *torch = PyImport_ImportModule("torch");
    st->aten_ready = torch != NULL && kin_aten_init(torch) == KIN_OK;
    st->aten_failed = !st->aten_ready;
    if (st->aten_failed)
        kin_log_bug(st, name, "torch", "PyTorch could not be imported, or this version is not supported");
    Py_XDECREF(torch);
    return st->aten_ready;
}

/* Why the entry does not fit this call: new str, or NULL (no exception). */
static PyObject *
explain_miss(const call_state *c, kin_entry_object *entry, PyObject *sizes)
{
    kin_guard_miss miss = {UINT32_MAX, 0};
    if (entry->growing)
        return NULL;
    entry->inside++;
    PyObject *text = NULL, **slots = kin_entry_slots_take(entry);
    uint32_t count = entry->nslots;
    if (slots != NULL && fill_roots(entry, c, slots)) {
        if (!kin_guard_eval(entry->v, 0, slots, &miss)) {
            text = kin_miss_text(entry->v, &miss, slots, true);
            kin_unstable_note_miss(entry->v, &miss, slots, entry->unstable, sizes);
        }
        for (uint32_t vid = 0; vid < count; vid++)
            Py_CLEAR(slots[vid]);
    }
    if (text == NULL)
        PyErr_Clear();
    kin_entry_slots_give(entry, slots, count);
    entry->inside--;
    return text;
}

/* The newest entry of the shape that is older than number `before`; NULL: none. */
static kin_entry_object *
next_older(const call_state *c, uint32_t before)
{
    kin_entry_object *found = NULL;
    for (uint32_t i = 0; i < c->shape->entries.len; i++) {
        kin_entry_object *entry = c->shape->entries.at[i];
        if (entry->v != NULL && !entry->broken && entry->number < before &&
            (found == NULL || entry->number > found->number))
            found = entry;
    }
    return found;
}

/* The text on one line: new str or NULL (no exception). Steals text. */
static PyObject *
join_lines(PyObject *text)
{
    PyObject *parts = text == NULL ? NULL : PyUnicode_Splitlines(text, 0), *comma = PyUnicode_FromString("; ");
    PyObject *line = parts == NULL || comma == NULL ? NULL : PyUnicode_Join(comma, parts);
    Py_XDECREF(text);
    Py_XDECREF(parts);
    Py_XDECREF(comma);
    if (line == NULL)
        PyErr_Clear();
    return line;
}

/* The line, and what of it is not asked any more: new str or NULL (no exception). Steals both. */
static PyObject *
join_sizes(PyObject *line, PyObject *sizes)
{
    PyObject *comma = sizes != NULL && PyList_GET_SIZE(sizes) > 0 && line != NULL ? PyUnicode_FromString(", ") : NULL;
    PyObject *text = comma != NULL ? PyUnicode_Join(comma, sizes) : NULL;
    if (text != NULL)
        Py_SETREF(line, PyUnicode_FromFormat("%U (%U)", line, text));
    Py_XDECREF(text);
    Py_XDECREF(comma);
    Py_XDECREF(sizes);
    if (line == NULL || PyErr_Occurred())
        PyErr_Clear();
    return line;
}

/* One line for each entry that did not fit, newest first; new str or NULL (no exception). */
static PyObject *
explain_misses(const call_state *c)
{
    PyObject *lines = PyList_New(0), *newline = PyUnicode_FromString("\n"), *text = NULL;
    kin_entry_object *entry = lines == NULL ? NULL : next_older(c, UINT32_MAX);
    while (entry != NULL) {
        uint32_t number = entry->number;
        PyObject *sizes = c->self->dynamic != 0 ? PyList_New(0) : NULL;
        PyObject *line = join_sizes(join_lines(explain_miss(c, entry, sizes)), sizes);
        if (line != NULL && PyList_Append(lines, line) < 0)
            PyErr_Clear();
        Py_XDECREF(line);
        entry = next_older(c, number);
    }
    if (lines != NULL && newline != NULL)
        text = PyUnicode_Join(newline, lines);
    Py_XDECREF(lines);
    Py_XDECREF(newline);
    if (text == NULL)
        PyErr_Clear();
    return text;
}

/* A trace that leaves at once is useless; one with graph breaks must not be replayed where each call has to raise. */
static bool
is_useful(const kin_compiled *self, const kin_record_result *result)
{
    const kin_entry *v = result->entry;
    if (result->refused != 0 || (self->fullgraph && v->trace.nbreaks > 0))
        return false;
    /* unless its guards tell when that may change */
    return !(v->trace.steps.len == 2 && v->trace.steps.at[1].kind == KIN_STEP_EXIT && v->trace.facts.len == 0);
}

/* Puts the recorded entry into the cache, which may have been emptied meanwhile; frees it otherwise. A new reference. The cache is
 * pinned: making objects may start a collection, which may let another thread empty it. */
static kin_entry_object *
adopt_pinned(call_state *c, PyCodeObject *code, PyObject *cause, const kin_record_result *result)
{
    kin_entry *v = result->entry;
    kin_entry_object *entry = NULL;
    kin_call_shape *shape = kin_cache_add(&c->self->cache, code, c->bind.nargs, c->bind.kwnames);
    if (v == NULL || !is_useful(c->self, result) || shape == NULL || shape->plan == NULL) {
        if (shape != NULL)
            shape->failures++, shape->refuses = result->refused != 0;
        kin_entry_free(v);
        return NULL;
    }
    kin_status status = KIN_OK;
    if (v->guards == NULL)
        status = kin_trace_finish(&v->trace) == KIN_OK ? kin_guard_build(v) : KIN_BUG;
    if (status == KIN_OK)
        status = kin_entry_object_new(c->self->state, v, shape->plan, c->self->name, cause, result->reason, &entry);
    if (status != KIN_OK) {
        kin_entry_free(v);
    } else if ((status = kin_call_shape_push(shape, (kin_entry_object *)Py_NewRef((PyObject *)entry))) != KIN_OK) {
        Py_DECREF(entry);
        Py_CLEAR(entry);
    }
    if (status != KIN_OK) {
        shape->failures++;
        kin_log_bug(c->self->state, c->self->name, "adopt", "a recorded entry cannot be used");
        return NULL;
    }
    entry->ninstr = result->ninstr;
    entry->unstable = Py_XNewRef(shape->owner->unstable);
    kin_trace_budget_spend(&shape->owner->budget, result->time_ns);
    return entry;
}

static kin_entry_object *
adopt(call_state *c, PyCodeObject *code, PyObject *cause, const kin_record_result *result)
{
    kin_cache_pin(&c->self->cache);
    kin_entry_object *entry = adopt_pinned(c, code, cause, result);
    kin_cache_unpin(&c->self->cache);
    return entry;
}

/* The call's arguments with self in front: borrowed references in a new array. */
static PyObject **
flatten_arguments(const kin_bind_call *bind, PyObject *const *args)
{
    Py_ssize_t nself = bind->self != NULL;
    Py_ssize_t count = bind->nargs + (bind->kwnames == NULL ? 0 : PyTuple_GET_SIZE(bind->kwnames));
    PyObject **flat = malloc((size_t)(count + 1) * sizeof *flat);
    if (flat == NULL)
        return NULL;
    if (nself)
        flat[0] = bind->self;
    memcpy(flat + nself, args, (size_t)(count - nself) * sizeof *flat);
    return flat;
}

/* The state of PyTorch's random numbers, for a call that is to be given to a custom backend: new reference. NULL: not asked for. */
static PyObject *
take_random_state(const kin_compiled *self)
{
    PyObject *state = NULL;
    if (kin_lower_is_custom(self)) {
        PyObject *module = PyImport_ImportModule("kintsugi._launch");
        state = module == NULL ? NULL : PyObject_CallMethod(module, "random_state", NULL);
        Py_XDECREF(module);
        PyErr_Clear();
    }
    return state;
}

/* Did the call draw no random numbers? */
static bool
is_random_state(const kin_compiled *self, PyObject *before)
{
    PyObject *now = before == NULL ? NULL : take_random_state(self);
    bool same = now != NULL && PyObject_RichCompareBool(before, now, Py_EQ) == 1;
    Py_XDECREF(now);
    PyErr_Clear();
    return same;
}

/* Gives the graphs of a new entry to a custom backend, with the values of this call as examples, and does the call again with what
 * the backend made of them, if nobody can tell; *value is the call's result. False with an exception when the backend's error is to
 * be raised, or the one of what it made. */
static bool
lower(call_state *c, PyCodeObject *code, kin_entry_object *entry, PyObject *random, PyObject **value)
{
    if (entry == NULL || !kin_lower_wanted(c->self))
        return true;
    kin_guard_miss miss;
    kin_cache_pin(&c->self->cache);
    c->pinned = true;
    c->shape = kin_cache_find(&c->self->cache, code, c->bind.nargs, c->bind.kwnames);
    entry->inside++;
    uint32_t count = entry->nslots;
    PyObject **slots = c->shape == NULL || entry->growing || c->shape->plan == NULL ? NULL : kin_entry_slots_take(entry);
    bool filled = slots != NULL && kin_bind_fits(c->shape->plan, &c->bind) && fill_roots(entry, c, slots) &&
                  kin_guard_eval(entry->v, 0, slots, &miss);
    bool ok = kin_lower_entry(c->self, entry, filled ? slots : NULL);
    PyObject *type, *error, *traceback;
    PyErr_Fetch(&type, &error, &traceback);
    if (!ok) /* the next call raises as well */
        kin_cache_drop(&c->self->cache, entry);
    else if (filled && kin_lower_is_custom(c->self) && kin_custom_can_repeat(entry) && is_random_state(c->self, random)) {
        Py_SETREF(*value, run_replay(c, entry, slots, false));
        ok = *value != NULL;
        if (!ok)
            PyErr_Fetch(&type, &error, &traceback);
    }
    for (uint32_t vid = 0; slots != NULL && vid < count; vid++)
        Py_CLEAR(slots[vid]);
    if (slots != NULL)
        kin_entry_slots_give(entry, slots, count);
    entry->inside--;
    PyErr_Restore(type, error, traceback);
    unpin(c);
    return ok;
}

static PyObject *
record(call_state *c, PyObject *cause)
{
    kin_compiled *self = c->self;
    kin_record_options options;
    kin_record_result result = {0};
    PyObject **flat = flatten_arguments(&c->bind, c->args);
    if (flat == NULL)
        return run_eager(c, KIN_EAGER_INTERNAL);
    PyObject *func = Py_NewRef((PyObject *)c->bind.func), *first = Py_XNewRef(c->bind.self);
    PyCodeObject *code = (PyCodeObject *)Py_NewRef(c->bind.func->func_code);
    if (c->shape->owner->unstable == NULL && (c->shape->owner->unstable = PySet_New(NULL)) == NULL)
        PyErr_Clear();
    fill_record_options(self, c->shape->owner->unstable, &options);
    Py_XINCREF(options.unstable);
    self->count.recordings++;
    unpin(c);
    PyObject *random = take_random_state(self);
    PyObject *value = kin_record_call(&options, func, flat, (size_t)c->bind.nargs, c->bind.kwnames, &result);
    PyObject *type, *error, *traceback;
    if (value != NULL && (self->fullgraph || result.refused != 0) && result.entry != NULL &&
        kin_fullgraph_refuse(result.entry, result.refused, options.error_class))
        Py_CLEAR(value);
    PyErr_Fetch(&type, &error, &traceback);
    kin_entry_object *entry = adopt(c, code, cause, &result);
    kin_log_record(self->state, self->name, code, entry, &result);
    if (result.health != KIN_RECORD_SOUND)
        kin_log_bug(self->state, self->name, "record", result.reason);
    if (type == NULL && !lower(c, code, entry, random, &value))
        Py_CLEAR(value);
    else
        PyErr_Restore(type, error, traceback);
    Py_XDECREF(entry);
    Py_XDECREF(options.unstable);
    Py_XDECREF(random);
    Py_XDECREF(first);
    Py_DECREF(func);
    Py_DECREF(code);
    free(flat);
    return value;
}

static uint32_t
recompile_limit(const kin_compiled *self)
{
    return self->recompile_limit != 0 ? self->recompile_limit : self->state->options.recompile_limit;
}

/* Asks the stance, or a hook, about a call that would be recorded: 1: record it, 0: run eagerly, -1: raise its error. */
static int
ask_hook(const call_state *c, PyObject *cause)
{
    const kin_code_entry *entry = c->shape->owner;
    PyObject *hook = Py_NewRef(c->self->state->options.miss_hook);
    PyObject *limited = entry->nentries >= recompile_limit(c->self) ? Py_True : Py_False;
    PyObject *answer = PyObject_CallFunction(hook, "OOOO", c->self->name, entry->code, cause == NULL ? Py_None : cause, limited);
    int go_on = answer == NULL ? -1 : PyObject_IsTrue(answer);
    Py_DECREF(hook);
    Py_XDECREF(answer);
    return go_on;
}

/* Of all recordings of the code, is one more worth its time? */
static bool
affords_recording(const kin_compiled *self, kin_code_entry *entry)
{
    kin_trace_budget *budget = &entry->budget;
    if (!is_timed(self))
        return true;
    budget->made = budget->used = 0;
    for (uint32_t s = 0; s < entry->shapes.len; s++)
        for (uint32_t i = 0; i < entry->shapes.at[s]->entries.len; i++) {
            const kin_entry *v = entry->shapes.at[s]->entries.at[i]->v;
            budget->made += v != NULL;
            budget->used += v != NULL && v->hits > 0;
        }
    entry->waits = !kin_trace_budget_affords_entry(budget);
    return !entry->waits;
}

/* Why the call is not recorded; KIN_EAGER_NO: it may be. */
static kin_eager
find_refusal(const call_state *c)
{
    const kin_compiled *self = c->self;
    const kin_code_entry *entry = c->shape->owner;
    if (c->shape->failures >= self->state->options.failure_limit && !self->fullgraph && !c->shape->refuses)
        return KIN_EAGER_UNRECORDABLE;
    if (entry->nentries >= recompile_limit(self) && entry->told_limit)
        return KIN_EAGER_LIMIT;
    if (entry->nentries < recompile_limit(self) && !affords_recording(self, c->shape->owner))
        return KIN_EAGER_COSTLY;
    if (!prepare_torch(self->state, self->name))
        return KIN_EAGER_NO_TORCH;
    if (kin_record_active()) /* another thread may have started one while torch was imported */
        return KIN_EAGER_RECORDING;
    if (kin_foreign_modes()) /* not known before torch was there */
        return KIN_EAGER_MODE;
    return KIN_EAGER_NO;
}

/* Records the call, or reports once that the limit is reached. `cause`: why no entry fits, or NULL. */
static PyObject *
record_or_limit(call_state *c, PyObject *cause)
{
    kin_compiled *self = c->self;
    kin_code_entry *entry = c->shape->owner;
    const char *text = cause == NULL ? "another number of arguments, or other keywords" : PyUnicode_AsUTF8(cause);
    if (text == NULL)
        PyErr_Clear();
    if (entry->nentries >= recompile_limit(self)) {
        entry->told_limit = true;
        kin_log_limit(self->state, self->name, entry->code, recompile_limit(self), text == NULL ? "?" : text);
        return run_eager(c, KIN_EAGER_LIMIT);
    }
    if (cause != NULL)
        kin_log_recompile(self->state, self->name, entry->code, text == NULL ? "?" : text);
    return record(c, cause);
}

/* Nothing fits, and nothing more is recorded, or not now. */
static PyObject *
run_limited(call_state *c, kin_eager why)
{
    kin_compiled *self = c->self;
    kin_call_shape *shape = c->shape;
    kin_cache_pin(&self->cache); /* for the shape */
    double start = kin_clock_ns();
    PyObject *value = run_eager(c, why);
    shape->owner->budget.lived += kin_clock_ns() - start;
    if (c->begun > 0)
        kin_lookup_miss(&shape->lookup, start - c->begun, kin_clock_ns() - start);
    kin_cache_unpin(&self->cache);
    return value;
}

/* Nothing recorded fits this call. */
static PyObject *
run_unknown(call_state *c)
{
    PyObject *cause = NULL, *hook = c->self->state->options.miss_hook;
    kin_eager why = hook == NULL ? find_refusal(c) : KIN_EAGER_NO;
    if (why == KIN_EAGER_NO && c->shape->entries.len != 0)
        cause = explain_misses(c);
    int go_on = hook == NULL ? 1 : ask_hook(c, cause);
    if (hook != NULL && go_on > 0)
        why = find_refusal(c);
    PyObject *result = NULL;
    if (go_on < 0)
        unpin(c);
    else if (go_on == 0 || why != KIN_EAGER_NO)
        result = go_on != 0 && (why == KIN_EAGER_LIMIT || why == KIN_EAGER_COSTLY) ? run_limited(c, why) : run_eager(c, go_on == 0 ? KIN_EAGER_STANCE : why);
    else
        result = record_or_limit(c, cause);
    Py_XDECREF(cause);
    return result;
}

/* -- the call ---------------------------------------------------------------------------------------------- */

/* Fills bind and shape. */
static kin_eager
prepare(call_state *c)
{
    kin_callee target;
    kin_eager why = kin_callee_find(c->self->state, c->self->fn, &target);
    if (why != KIN_EAGER_NO)
        return why;
    kin_cache_pin(&c->self->cache);
    c->pinned = true;
    c->bind.func = target.func;
    c->bind.self = target.self;
    c->bind.args = c->args;
    c->bind.nargs = PyVectorcall_NARGS(c->nargsf) + (target.self != NULL);
    c->bind.kwnames = c->kwnames != NULL && PyTuple_GET_SIZE(c->kwnames) == 0 ? NULL : c->kwnames;
    PyCodeObject *code = (PyCodeObject *)target.func->func_code;
    c->shape = kin_cache_find(&c->self->cache, code, c->bind.nargs, c->bind.kwnames);
    if (c->shape == NULL)
        c->shape = kin_cache_add(&c->self->cache, code, c->bind.nargs, c->bind.kwnames);
    if (c->shape == NULL)
        return KIN_EAGER_LIMIT;
    if (c->shape->plan == NULL || !kin_bind_fits(c->shape->plan, &c->bind))
        return KIN_EAGER_BINDING;
    return KIN_EAGER_NO;
}

/* Are all entries backed off? Then no guard is evaluated. Returns the entry that is compared again next, for counting the call. */
static kin_entry_object *
find_backed_off(const call_state *c)
{
    kin_entry_object *next = NULL;
    for (uint32_t i = 0; i < c->shape->entries.len; i++) {
        kin_entry_object *entry = c->shape->entries.at[i];
        if (entry->v == NULL || entry->broken)
            continue;
        if (!kin_tierdown_is_backed_off(&entry->tierdown))
            return NULL;
        if (next == NULL || entry->tierdown.wait < next->tierdown.wait)
            next = entry;
    }
    return next;
}

/* Runs a call that needs no guard evaluation. True: *result is its result. */
static bool
run_at_once(call_state *c, PyObject **result)
{
    if (c->self->state->options.miss_hook != NULL) /* it is asked about every call that fits no entry */
        return false;
    const kin_code_entry *entry = c->shape->owner;
    if (entry->told_limit || entry->waits) {
        if (kin_lookup_skips(&c->shape->lookup)) {
            *result = run_eager(c, entry->told_limit ? KIN_EAGER_LIMIT : KIN_EAGER_COSTLY);
            return true;
        }
        c->begun = kin_clock_ns();
    }
    kin_entry_object *resting = find_backed_off(c);
    if (resting == NULL || !may_step_aside(c->self, resting->v))
        return false;
    (void)kin_tierdown_next(&resting->tierdown);
    unpin(c);
    *result = run_aside(c, resting, KIN_TIERDOWN_EAGER);
    return true;
}

static bool
is_plain_generator(PyObject *fn)
{
    return PyFunction_Check(fn) && ((PyCodeObject *)PyFunction_GET_CODE(fn))->co_flags & CO_GENERATOR;
}

PyObject *
kin_dispatch(PyObject *obj, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    kin_compiled *self = (kin_compiled *)obj;
    call_state c; /* the rest is filled in on the way */
    c.self = self;
    c.ts = PyThreadState_Get();
    c.args = args;
    c.nargsf = nargsf;
    c.kwnames = kwnames;
    c.shape = NULL;
    c.why = KIN_EAGER_NO;
    c.pinned = false;
    c.begun = 0;
    if (self->fn == NULL) {
        PyErr_SetString(PyExc_ReferenceError, "the compiled function was cleared");
        return NULL;
    }
    self->count.calls++;
    kin_eager why = find_obstacle(self, c.ts);
    if (why == KIN_EAGER_NO)
        why = prepare(&c);
    if (why == KIN_EAGER_GENERATOR && self->fullgraph && is_plain_generator(self->fn) && self->state->options.error_class)
        return kin_fullgraph_refuse_generator(self->fn, self->state->options.error_class);
    if (why != KIN_EAGER_NO)
        return run_eager(&c, why);
    PyObject *result = NULL;
    if (run_at_once(&c, &result))
        return result;
    for (uint32_t i = 0; i < c.shape->entries.len; i++) {
        switch (try_entry(&c, i, &result)) {
        case TRY_HIT:
            return result;
        case TRY_EAGER:
            return run_eager(&c, c.why);
        case TRY_MISS:
            break;
        }
    }
    return run_unknown(&c);
}

/* -- measuring --------------------------------------------------------------------------------------------- */

/* Evaluates the guards `count` times; the values that they load are released between evaluations. */
static double
time_entry(const call_state *c, kin_entry_object *entry, Py_ssize_t count)
{
    kin_guard_miss miss;
    PyObject **slots = entry->growing ? NULL : kin_entry_slots_take(entry);
    if (slots == NULL || !fill_roots(entry, c, slots)) {
        kin_entry_slots_give(entry, slots, entry->nslots);
        PyErr_NoMemory();
        return -1;
    }
    double start = kin_clock_ns();
    Py_ssize_t done = 0;
    while (done < count && kin_guard_eval(entry->v, 0, slots, &miss)) {
        done++;
        for (uint32_t vid = 0; vid < entry->nslots; vid++)
            Py_CLEAR(slots[vid]);
        if (!fill_roots(entry, c, slots))
            break;
    }
    double elapsed = kin_clock_ns() - start;
    for (uint32_t vid = 0; vid < entry->nslots; vid++)
        Py_CLEAR(slots[vid]);
    kin_entry_slots_give(entry, slots, entry->nslots);
    return done < count ? -2 : elapsed / (double)count;
}

/* Positional arguments, then the values of the keywords: borrowed references in a new array; *names gets a new tuple. */
static PyObject **
lay_out_arguments(PyObject *args, PyObject *kwargs, PyObject **names)
{
    Py_ssize_t npos = PyTuple_GET_SIZE(args), nkw = kwargs == NULL ? 0 : PyDict_GET_SIZE(kwargs), pos = 0, i = 0;
    PyObject **flat = malloc((size_t)(npos + nkw + 1) * sizeof *flat), *key, *value;
    *names = flat == NULL || nkw == 0 ? NULL : PyTuple_New(nkw);
    if (flat == NULL || (nkw > 0 && *names == NULL)) {
        free(flat);
        PyErr_NoMemory();
        return NULL;
    }
    memcpy(flat, &PyTuple_GET_ITEM(args, 0), (size_t)npos * sizeof *flat);
    for (; nkw > 0 && i < nkw && PyDict_Next(kwargs, &pos, &key, &value); i++) {
        PyTuple_SET_ITEM(*names, i, Py_NewRef(key));
        flat[npos + i] = value;
    }
    return flat;
}

double
kin_dispatch_time_guards(kin_compiled *self, PyObject *args, PyObject *kwargs, Py_ssize_t count)
{
    PyObject *names, **flat = lay_out_arguments(args, kwargs, &names);
    if (flat == NULL)
        return -1;
    call_state c = {.self = self, .ts = PyThreadState_Get(), .args = flat, .nargsf = (size_t)PyTuple_GET_SIZE(args),
                    .kwnames = names};
    double result = -2;
    bool ready = count >= 1 && self->fn != NULL && prepare(&c) == KIN_EAGER_NO;
    for (uint32_t i = 0; ready && result == -2 && i < c.shape->entries.len; i++) {
        kin_entry_object *entry = c.shape->entries.at[i];
        if (entry->v != NULL && !entry->broken)
            result = time_entry(&c, entry, count);
    }
    unpin(&c);
    free(flat);
    Py_XDECREF(names);
    if (result == -2) {
        PyErr_SetString(PyExc_ValueError, "no entry fits this call");
        return -1;
    }
    return result;
}
