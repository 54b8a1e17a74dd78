/* What happens when a replay is left: CPython runs the rest of the call, watched if a side trace is worth recording. */
#include "core/base/clock.h"
#include "py/aten/modes.h"
#include "py/aten/tensor.h"
#include "py/backend/custom.h"
#include "py/compat/kinds.h"
#include "py/compat/recursion.h"
#include "py/compat/signals.h"
#include "py/module/call_priv.h"
#include "py/module/fullgraph.h"
#include "py/module/lower.h"
#include "py/module/stopwatch.h"
#include "py/module/dynamic_sources.h"
#include "py/report/guard_text.h"
#include "py/report/log.h"
#include "py/watch/watch.h"
#include "py/training/training.h"

enum { MAX_LOGGED_EXITS = 64 };

bool
call_is_timed(const kin_compiled *self)
{
    const kin_options *options = &self->state->options;
    return options->step_aside && options->trials > 0 && !self->warm && !self->fullgraph && !kin_lower_is_custom(self);
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
    bool timed = call_is_timed(x->self);
    budget->made = entry->side_traces;
    budget->used = timed ? v->nused : entry->side_traces;
    budget->saved = kin_tierdown_saved(&entry->tierdown, v->hits);
    kin_side_trace_place place = {.steps = v->trace.steps.len,
                                  .decision = timed && is_decision(&v->trace.steps.at[step]),
                                  .left_before = v->exit_counts != NULL && v->exit_counts[step] > 1};
    bool affords = kin_trace_budget_affords_side_trace(budget, &place);
    entry->postponed += !affords;
    return affords;
}

/* Something computed, or an argument that was only asked behind other code, has another size than in the recorded call: the first time the next call is recorded anew with sizes open
 * (call_remakes), and a side trace would be thrown away with this recording.
 */
static bool
is_left_for_sizes(const exit_context *x, uint32_t step)
{
    const kin_entry *v = x->entry->v;
    if (v->trace.steps.at[step].kind == KIN_STEP_EPOCH && !x->sized)
        return false;
    return call_tests_size(v, step) && kin_lower_has_dynamic_sizes(x->self) && call_cuts_subgraph(v, step);
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
    if (is_left_for_sizes(x, step) && kin_remake_for_sizes(&x->entry->v->remake)) {
        kin_dynamic_note_exit(v, step, true, entry->dynamic_sources);
        return false;
    }
    return !kin_record_active() && !kin_watch_foreign_tool(x->ts) && !kin_foreign_modes() && affords_side_trace(x, step);
}

void
call_fill_record_options(const kin_compiled *self, PyObject *dynamic_sources, kin_record_options *out)
{
    const kin_options *options = &self->state->options;
    *out = (kin_record_options){
        .fullgraph = self->fullgraph,
        .strict_breaks = options->strict_breaks,
        .trace_limit = options->trace_limit,
        .kernels = kin_lower_wanted(self) && !kin_lower_is_custom(self),
        .custom = kin_lower_is_custom(self),
        .crosscheck = options->crosscheck,
        .dynamic_sources = dynamic_sources,
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
    kin_log_extend(x->self->state, call_shown_code(x->self, code), entry, step, before, result);
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
    kin_recording_watch watch = kin_recording_watch_start();
    x->extended = true;
    kin_dynamic_note_exit(v, step, kin_lower_has_dynamic_sizes(x->self), x->entry->dynamic_sources);
    call_fill_record_options(x->self, x->entry->dynamic_sources, &options);
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
    kin_recording_watch_pay(&watch, &x->entry->budget);
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

static bool
differs_in_size(const kin_entry *v, const kin_fact *fact, PyObject *const *slots)
{
    uint64_t differ;
    PyObject *obj = slots[fact->vid], *ref = kin_refs_get(&v->refs, fact->ref);
    return obj != NULL && kin_is_tensor(obj) && kin_meta_only_sizes(obj, ref, &differ);
}

/* What did not hold is put into words for the first exits, and where a side trace may be recorded. */
void
call_look(const kin_entry *v, uint32_t step, PyObject *const *slots, void *arg)
{
    exit_context *x = arg;
    const kin_options *options = &x->self->state->options;
    bool seldom = v->exit_counts == NULL || v->exit_counts[step] <= options->exit_limit + (uint64_t)x->entry->postponed;
    if (x->cause != NULL || kin_replay_force_exit != UINT32_MAX || !seldom || v->trace.steps.at[step].alt != 0)
        return;
    PyObject *type, *error, *traceback;
    PyErr_Fetch(&type, &error, &traceback);
    x->cause = kin_exit_text(v, step, slots);
    x->sized = v->trace.steps.at[step].kind == KIN_STEP_EPOCH && call_tests_size(v, step) && differs_in_size(v, &v->trace.facts.at[v->missed], slots);
    PyErr_Restore(type, error, traceback);
}

/* The frame that replay stood for becomes a real one, which counts itself. */
PyObject *
call_leave(kin_entry *v, uint32_t step, kin_exit *exit, void *arg)
{
    exit_context *x = arg;
    PyObject *value;
    if (!launch_region_admits((PyObject *)x->self, false)) { /* not known of what would come now */
        kin_exit_drop(exit);
        return NULL;
    }
    bool held = kin_signals_hold(), extending = may_extend(x, step);
    x->entry->growing |= extending; /* from here on other threads stay out */
    if (x->self->count.offered++ < MAX_LOGGED_EXITS || extending)
        kin_log_exit(x->self->state, x->entry, step, x->cause);
    Py_CLEAR(x->cause);
    kin_recursion_take(x->ts, -1);
    if (extending) {
        value = extend(x, step, exit);
        x->entry->growing = false;
    } else
        value = resume_eagerly(x->entry, exit);
    kin_recursion_take(x->ts, 1);
    if (held)
        kin_signals_release();
    return value;
}
