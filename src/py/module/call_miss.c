/* A call that no cache entry fits: why, and whether it is recorded; the new entry, and its graphs for a custom backend. */
#include "core/base/clock.h"
#include "py/aten/modes.h"
#include "py/aten/make.h"
#include "py/aten/tensor.h"
#include "py/backend/custom.h"
#include "py/compat/codes.h"
#include "py/compat/imports.h"
#include "py/compat/kinds.h"
#include "py/compat/signals.h"
#include "py/guardeval/guard.h"
#include "py/module/call_priv.h"
#include "py/module/fullgraph.h"
#include "py/module/lower.h"
#include "py/module/profiler_range.h"
#include "py/module/stopwatch.h"
#include "py/module/dynamic_sources.h"
#include "py/module/untold.h"
#include "py/replay/subgraphs.h"
#include "py/report/dump.h"
#include "py/report/guard_text.h"
#include "py/report/log.h"
#include "py/training/training.h"

/* Said once: everything runs eagerly from now on. The pending exception says why, and stays. */
static void
warn_unusable(void)
{
    PyObject *type, *error, *traceback;
    PyErr_Fetch(&type, &error, &traceback);
    if (PyErr_WarnFormat(PyExc_RuntimeWarning, 1, "kintsugi runs everything eagerly: %S", error != NULL ? error : Py_None) < 0)
        PyErr_Clear(); /* warnings are errors here; ours is no reason for the program to end */
    PyErr_Restore(type, error, traceback);
}

/* Said once: code with an instruction that is not known is not recorded. */
static void
warn_unknown_code(void)
{
    static bool said;
    const char *what = rec_code_unknown();
    if (said || what == NULL)
        return;
    said = true;
    PyObject *type, *error, *traceback;
    PyErr_Fetch(&type, &error, &traceback);
    if (PyErr_WarnFormat(PyExc_RuntimeWarning, 1, "kintsugi runs some code eagerly: %s", what) < 0)
        PyErr_Clear(); /* warnings are errors here; ours is no reason for the program to end */
    PyErr_Restore(type, error, traceback);
}

static bool
prepare_torch(kin_state *st, PyObject *name)
{
    if (st->aten_ready || st->aten_failed)
        return st->aten_ready;
    PyObject *torch = PyImport_ImportModule("torch");
    st->aten_ready = torch != NULL && kin_aten_init(torch) == KIN_OK;
    if (st->aten_ready && kin_make_init(torch) != KIN_OK)
        PyErr_Clear(); /* then no tensor's content is known while recording */
    st->aten_failed = !st->aten_ready;
    if (st->aten_failed) {
        warn_unusable();
        kin_log_bug(st, name, "torch", "PyTorch could not be imported, or this version is not supported");
    }
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
    if (slots != NULL && call_fill_roots(entry, c, slots)) {
        if (!kin_guard_eval(entry->v, 0, slots, &miss)) {
            text = kin_miss_text(entry->v, &miss, slots, true);
            kin_dynamic_note_miss(entry->v, &miss, slots, kin_lower_has_dynamic_sizes(c->self), entry->dynamic_sources, sizes);
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

/* What reports name: of a module that is its forward, not the __call__ around it. */
PyCodeObject *
call_shown_code(const kin_compiled *self, PyCodeObject *code)
{
    PyObject *owner = PyMethod_Check(self->fn) ? PyMethod_GET_SELF(self->fn) : self->fn;
    PyCodeObject *forward = code->co_argcount == 1 && code->co_flags & CO_VARARGS && !PyFunction_Check(owner) ? kin_forward_code((PyObject *)Py_TYPE(owner)) : NULL;
    return forward != NULL ? forward : code;
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
adopt_pinned(call_state *c, PyCodeObject *code, PyObject *cause, const kin_record_result *result, const kin_recording_watch *watch)
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
    entry->dynamic_sources = Py_XNewRef(shape->owner->dynamic_sources);
    kin_recording_watch_pay(watch, &shape->owner->budget);
    return entry;
}

static kin_entry_object *
adopt(call_state *c, PyCodeObject *code, PyObject *cause, const kin_record_result *result, const kin_recording_watch *watch)
{
    kin_cache_pin(&c->self->cache);
    kin_entry_object *entry = adopt_pinned(c, code, cause, result, watch);
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

/* Is the call that was recorded to give what compiled code gives? */
static bool
is_done_again(const kin_compiled *self)
{
    return self->warm || kin_lower_is_custom(self);
}

/* The call has changed what guards ask for: the tensors among its arguments are examples still. */
static void
keep_arguments(const kin_entry *v, PyObject **slots, uint32_t count)
{
    for (uint32_t vid = 0; vid < count; vid++) {
        const kin_val *val = &v->trace.vals.at[vid];
        if (slots[vid] != NULL && !(val->kind == KIN_VAL_SRC && val->access == KIN_ACCESS_LOCAL && val->note != 0 && kin_is_tensor(slots[vid])))
            Py_CLEAR(slots[vid]);
    }
}

/* Gives the graphs of a new entry to the backend, with the values of this call as examples, and where that is wanted does the call again
 * with what the backend made of them, if nobody can tell: what the call has written to is put back before (`written`; NULL: not all is known). *value is the
 * call's result. False with an exception when the backend's error is to
 * be raised, or the one of what it made. */
static bool
lower(call_state *c, PyCodeObject *code, kin_entry_object *entry, PyObject *random, kin_written *written, PyObject **value)
{
    if (entry == NULL || !kin_lower_wanted(c->self))
        return true;
    kin_guard_miss miss;
    bool back = written != NULL && kin_written_take_back(written);
    kin_cache_pin(&c->self->cache);
    c->pinned = true;
    c->shape = kin_cache_find(&c->self->cache, code, c->bind.nargs, c->bind.kwnames);
    entry->inside++;
    uint32_t count = entry->nslots;
    PyObject **slots = c->shape == NULL || entry->growing || c->shape->plan == NULL ? NULL : kin_entry_slots_take(entry);
    bool filled = slots != NULL && kin_bind_fits(c->shape->plan, &c->bind) && call_fill_roots(entry, c, slots) &&
                  kin_guard_eval(entry->v, 0, slots, &miss);
    if (!filled && slots != NULL)
        keep_arguments(entry->v, slots, count);
    bool ok = kin_lower_entry(c->self, entry, slots);
    PyObject *type, *error, *traceback;
    PyErr_Fetch(&type, &error, &traceback);
    if (!ok) /* the next call raises as well */
        kin_cache_drop(&c->self->cache, entry);
    else if (filled && is_done_again(c->self) && kin_custom_can_repeat(entry, back ? written->judged.at : NULL, back ? written->judged.len : 0) && kin_random_restore(random)) {
        bool admitted = kin_signals_admit();
        entry->v->again = true;
        Py_SETREF(*value, call_run_replay(c, entry, slots, false));
        if (entry->v != NULL)
            entry->v->again = false;
        if (admitted)
            kin_signals_hold();
        ok = *value != NULL;
        if (!ok)
            PyErr_Fetch(&type, &error, &traceback);
    } else if (back) {
        kin_written_redo(written);
    }
    for (uint32_t vid = 0; slots != NULL && vid < count; vid++)
        Py_CLEAR(slots[vid]);
    if (slots != NULL)
        kin_entry_slots_give(entry, slots, count);
    entry->inside--;
    PyErr_Restore(type, error, traceback);
    call_unpin(c);
    return ok;
}

/* Tells a tool, such as `kintsugi explain`, which call is recorded. Its error is not the program's. */
static void
tell_record_hook(const call_state *c)
{
    PyObject *hook = Py_XNewRef(c->self->state->options.record_hook);
    if (hook == NULL)
        return;
    Py_ssize_t npos = PyVectorcall_NARGS(c->nargsf), nkw = c->kwnames == NULL ? 0 : PyTuple_GET_SIZE(c->kwnames);
    PyObject *args = PyTuple_New(npos), *kwargs = PyDict_New(), *answer = NULL;
    bool ok = args != NULL && kwargs != NULL;
    for (Py_ssize_t i = 0; ok && i < npos; i++)
        PyTuple_SET_ITEM(args, i, Py_NewRef(c->args[i]));
    for (Py_ssize_t i = 0; ok && i < nkw; i++)
        ok = PyDict_SetItem(kwargs, PyTuple_GET_ITEM(c->kwnames, i), c->args[npos + i]) == 0;
    if (ok)
        answer = PyObject_CallFunctionObjArgs(hook, (PyObject *)c->self, args, kwargs, NULL);
    if (answer == NULL)
        PyErr_WriteUnraisable(hook);
    Py_XDECREF(answer);
    Py_XDECREF(args);
    Py_XDECREF(kwargs);
    Py_DECREF(hook);
}

/* The program's functions that hear of compilations (torch._dynamo.callback) are told of the beginning of one: what tells them of its end, or None. NULL
 * with an exception: one of them raised. */
static PyObject *
tell_beginning(void)
{
    static PyObject *name;
    if (name == NULL && (name = PyUnicode_InternFromString("torch._dynamo.callback")) == NULL)
        return NULL;
    PyObject *module = PyDict_GetItemWithError(PyImport_GetModuleDict(), name);
    return module == NULL ? (PyErr_Occurred() ? NULL : Py_NewRef(Py_None)) : kin_import_call("kintsugi._callbacks", "begin", NULL);
}

/* Steals `told`; *value, the call's result, is no more where one of them raises and the call did not. */
static void
tell_end(PyObject *told, PyObject **value)
{
    PyObject *type, *error, *traceback;
    PyErr_Fetch(&type, &error, &traceback);
    PyObject *done = told == Py_None ? Py_NewRef(Py_None) : kin_import_call("kintsugi._callbacks", "end", told);
    if (done == NULL && type == NULL)
        Py_CLEAR(*value);
    else
        PyErr_Restore(type, error, traceback);
    Py_XDECREF(done);
    Py_DECREF(told);
}

/* A second time where a library failed only because it was told of compiling. */
static PyObject *
record_once_or_twice(const call_state *c, const kin_record_options *options, PyObject *func, PyObject *const *args, PyObject *random, kin_record_result *result)
{
    int grad_mode = kin_grad_mode();
    PyObject *value = kin_record_call(options, func, args, (size_t)c->bind.nargs, c->bind.kwnames, result);
    if (value != NULL || !kin_untold_wanted(c->self, options, grad_mode, random, result))
        return value;
    c->self->count.recordings++;
    value = kin_record_call(options, func, args, (size_t)c->bind.nargs, c->bind.kwnames, result);
    if (value == NULL)
        kin_untold_failed(options);
    return value;
}

/* The recording takes the place of the one that it was made for, once. */
static void
replace_remade(call_state *c, kin_entry_object *entry)
{
    if (c->remade == NULL || entry == NULL)
        return;
    entry->v->remake = (kin_remake){.settled = true, .replaced = true};
    kin_cache_drop(&c->self->cache, c->remade);
}

/* The code of cached functions that ran in the first call divides its graph; in the next, they will mostly have their answers. Only recordings for kernels of
 * our own are made again: they have cost little so far. */
static bool
settle_late(call_state *c, PyCodeObject *code, const kin_entry_object *entry)
{
    bool may = entry->v->late && kin_lower_wanted(c->self) && !kin_lower_is_custom(c->self) && !c->self->fullgraph;
    kin_call_shape *shape = may ? kin_cache_add(&c->self->cache, code, c->bind.nargs, c->bind.kwnames) : NULL;
    bool first = shape != NULL && !shape->owner->was_late;
    if (first)
        shape->owner->was_late = true;
    return first;
}

/* Is the next call to be recorded again, with another answer for a library, or of a cached function? */
static void
settle_again(call_state *c, PyCodeObject *code, kin_entry_object *entry)
{
    kin_compiled *self = c->self;
    bool late = settle_late(c, code, entry), detour = kin_detour_settle(entry->v);
    if (!late && !detour)
        return;
    const char *text = !detour ? "a function made by functools.lru_cache had no answer yet, so that its code ran: the next call is recorded again"
                     : entry->v->detour != 0 ? "a library that was told of compiling calls an operator written in Python: the next call is recorded with is_compiling() False for it"
                                             : "a library that was not told of compiling has more graph breaks: the next call is recorded with is_compiling() True for it";
    kin_log_fallback(self->state, self->name, code, text, KIN_WHY_NONE);
    kin_cache_drop(&self->cache, entry);
}

/* Records the call, and has the entry's graphs compiled. NULL: the call raised. */
static PyObject *
record(call_state *c, PyObject *cause)
{
    kin_compiled *self = c->self;
    kin_state *state = self->state;
    kin_record_options options;
    kin_record_result result = {0};
    PyObject *told = tell_beginning();
    if (told == NULL) {
        call_unpin(c);
        return NULL;
    }
    PyObject **flat = flatten_arguments(&c->bind, c->args);
    if (flat == NULL) {
        Py_DECREF(told);
        return call_run_eager(c, KIN_EAGER_INTERNAL);
    }
    PyObject *func = Py_NewRef((PyObject *)c->bind.func), *first = Py_XNewRef(c->bind.self);
    PyCodeObject *code = (PyCodeObject *)Py_NewRef(c->bind.func->func_code);
    if (c->shape->owner->dynamic_sources == NULL && (c->shape->owner->dynamic_sources = PySet_New(NULL)) == NULL)
        PyErr_Clear();
    call_fill_record_options(self, c->shape->owner->dynamic_sources, &options);
    Py_XINCREF(options.dynamic_sources);
    self->count.recordings++;
    call_unpin(c);
    tell_record_hook(c);
    PyObject *random = kin_random_state();
    self->count.last = KIN_RAN_RECORDED;
    PyObject *region = kin_range_begin(self, NULL, "recorded");
    kin_recording_watch watch = kin_recording_watch_start();
    PyObject *value = record_once_or_twice(c, &options, func, flat, random, &result);
    kin_profiler_end(region);
    PyObject *type, *error, *traceback;
    if (value != NULL && (self->fullgraph || result.refused != 0) && result.entry != NULL &&
        kin_fullgraph_refuse(result.entry, result.refused, options.error_class)) {
        Py_CLEAR(value);
        kin_log_refusal(self->state, self->name, result.entry, kin_fullgraph_find(&result.entry->trace, result.refused));
    }
    PyErr_Fetch(&type, &error, &traceback);
    kin_entry_object *entry = adopt(c, code, cause, &result, &watch);
    replace_remade(c, entry);
    kin_log_record(self->state, self->name, call_shown_code(self, code), entry, &result);
    if (result.health != KIN_RECORD_SOUND)
        kin_log_bug(self->state, self->name, "record", result.reason);
    warn_unknown_code();
    if (type == NULL && !lower(c, code, entry, random, result.written, &value))
        Py_CLEAR(value);
    else
        PyErr_Restore(type, error, traceback);
    kin_written_free(result.written);
    if (entry != NULL && value != NULL)
        settle_again(c, code, entry);
    Py_XDECREF(entry);
    Py_XDECREF(options.dynamic_sources);
    Py_XDECREF(random);
    Py_XDECREF(first);
    Py_DECREF(func);
    Py_DECREF(code);
    free(flat);
    kin_dump_tell(state);
    tell_end(told, &value);
    return value;
}

static void
count_recordings(kin_code_entry *entry)
{
    kin_trace_budget *budget = &entry->budget;
    budget->made = budget->used = 0;
    budget->saved = 0;
    for (uint32_t s = 0; s < entry->shapes.len; s++)
        for (uint32_t i = 0; i < entry->shapes.at[s]->entries.len; i++) {
            const kin_entry_object *object = entry->shapes.at[s]->entries.at[i];
            const kin_entry *v = object->v;
            budget->made += v != NULL;
            budget->saved += v != NULL ? kin_tierdown_saved(&object->tierdown, v->hits) : 0;
            budget->used += v != NULL && v->hits > 0;
        }
}

/* -- made anew ---------------------------------------------------------------------------------------------- */

static uint32_t
graph_of(const kin_trace *t, uint32_t step, int direction)
{
    for (uint32_t i = step + (uint32_t)direction; i < t->steps.len; i += (uint32_t)direction)
        if (t->steps.at[i].graph != 0)
            return t->steps.at[i].graph;
    return 0;
}

bool
call_tests_size(const kin_entry *v, uint32_t step)
{
    const kin_step *s = &v->trace.steps.at[step];
    if (s->kind == KIN_STEP_EPOCH)
        return v->missed < v->trace.facts.len && v->trace.facts.at[v->missed].kind == KIN_FACT_T_META && v->trace.facts.at[v->missed].epoch == s->num;
    return s->kind == KIN_STEP_CHECK && s->imm == KIN_CHECK_META;
}

/* A test of sizes that did not pass in the capture has been a subgraph's end since: the graph across it tells. */
static bool
tests_size_in_graph(const kin_entry *v, uint32_t step)
{
    uint32_t graph = call_tests_size(v, step) ? graph_of(&v->trace, step, -1) : 0;
    return graph != 0 && graph == graph_of(&v->trace, step, 1);
}

/* Is there a subgraph that is launched behind the step, with calls before it, or would there be? */
bool
call_cuts_subgraph(const kin_entry *v, uint32_t step)
{
    const kin_subgraphs *subgraphs = v->subgraphs;
    for (uint32_t i = 0; subgraphs != NULL && i < subgraphs->at.len; i++)
        if (subgraphs->at.at[i].first < step && step < subgraphs->at.at[i].last)
            return true;
    return tests_size_in_graph(v, step);
}

/* A recording that ended early does so again, and nothing can be recorded while something of this entry runs. A custom backend may take
 * long for its graphs, and is given those of side traces. */
bool
call_remakes(const call_state *c, const kin_entry_object *entry)
{
    const kin_entry *v = entry->v;
    const kin_compiled *self = c->self;
    const kin_step *s = v->remake.step < v->trace.steps.len ? &v->trace.steps.at[v->remake.step] : NULL;
    if (s == NULL || s->kind == KIN_STEP_EXIT || !kin_remake_is_due(&v->remake, s->kind == KIN_STEP_EPOCH || (kin_lower_has_dynamic_sizes(self) && s->kind == KIN_STEP_CHECK && s->imm == KIN_CHECK_META)))
        return false;
    if (kin_lower_is_custom(self) || self->state->options.miss_hook != NULL || kin_replay_force_exit != UINT32_MAX)
        return false;
    if (!call_cuts_subgraph(v, v->remake.step) || v->running > 0 || entry->inside > 1 || kin_record_active())
        return false;
    count_recordings(c->shape->owner);
    return !call_is_timed(self) || kin_trace_budget_affords_entry(&c->shape->owner->budget);
}

PyObject *
call_run_remade(call_state *c)
{
    kin_compiled *self = c->self;
    kin_entry_object *old = c->remade;
    PyObject *place = kin_log_step_place(old, old->v->remake.step);
    PyObject *cause = place == NULL ? NULL : PyUnicode_FromFormat("every replay of entry %u left it at %U", old->number, place);
    if (cause == NULL)
        PyErr_Clear();
    old->v->remake = (kin_remake){.settled = true, .replaced = true}; /* whatever comes of it */
    bool held = kin_signals_hold();
    kin_log_recompile(self->state, self->name, call_shown_code(self, c->shape->owner->code), kin_utf8(cause));
    PyObject *value = record(c, cause);
    if (held)
        kin_signals_release();
    Py_XDECREF(place);
    Py_XDECREF(cause);
    Py_CLEAR(c->remade);
    return value;
}

/* -- limits ------------------------------------------------------------------------------------------------- */

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

/* Of all recordings of the code, is one more worth its time? With dynamic=False the program asks for one of each size, up to the limit. */
static bool
affords_recording(const kin_compiled *self, kin_code_entry *entry)
{
    if (!call_is_timed(self) || self->dynamic == 0)
        return true;
    count_recordings(entry);
    entry->waits = !kin_trace_budget_affords_entry(&entry->budget);
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
    if (kin_foreign_modes() || kin_overrides_off()) /* not known before torch was there */
        return KIN_EAGER_MODE;
    return KIN_EAGER_NO;
}

/* Records the call, or reports once that the limit is reached. `cause`: why no entry fits, or NULL. */
static PyObject *
record_or_limit(call_state *c, PyObject *cause)
{
    kin_compiled *self = c->self;
    kin_code_entry *entry = c->shape->owner;
    const char *text = cause == NULL ? "called with another number of arguments, or with other keywords" : kin_utf8(cause);
    if (entry->nentries >= recompile_limit(self)) {
        entry->told_limit = true;
        kin_log_limit(self->state, self->name, call_shown_code(self, entry->code), recompile_limit(self), text == NULL ? "?" : text);
        return call_run_eager(c, KIN_EAGER_LIMIT);
    }
    if (entry->nentries > 0)
        kin_log_recompile(self->state, self->name, call_shown_code(self, entry->code), text == NULL ? "?" : text);
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
    PyObject *value = call_run_eager(c, why);
    shape->owner->budget.lived += kin_clock_ns() - start;
    if (c->begun > 0)
        kin_lookup_miss(&shape->lookup, start - c->begun, kin_clock_ns() - start);
    kin_cache_unpin(&self->cache);
    return value;
}

static PyObject *
run_unknown(call_state *c)
{
    if (launch_region_refuses((PyObject *)c->self)) {
        call_unpin(c);
        return NULL;
    }
    if (kin_symbolic_active() && kin_symbolic_given(c->args, PyVectorcall_NARGS(c->nargsf) + (c->kwnames == NULL ? 0 : PyTuple_GET_SIZE(c->kwnames)))) {
        if (kin_symbolic_refuse() == 0)
            return call_run_eager(c, KIN_EAGER_MODE);
        call_unpin(c);
        return NULL;
    }
    PyObject *cause = NULL, *hook = c->self->state->options.miss_hook;
    kin_eager why = hook == NULL ? find_refusal(c) : KIN_EAGER_NO;
    if (why == KIN_EAGER_NO && c->shape->entries.len != 0)
        cause = explain_misses(c);
    int go_on = hook == NULL ? 1 : ask_hook(c, cause);
    if (hook != NULL && go_on > 0)
        why = find_refusal(c);
    PyObject *result = NULL;
    if (go_on < 0)
        call_unpin(c);
    else if (go_on == 0 || why != KIN_EAGER_NO)
        result = go_on != 0 && (why == KIN_EAGER_LIMIT || why == KIN_EAGER_COSTLY) ? run_limited(c, why) : call_run_eager(c, go_on == 0 ? KIN_EAGER_STANCE : why);
    else
        result = record_or_limit(c, cause);
    Py_XDECREF(cause);
    return result;
}

/* Nothing recorded fits this call. */
PyObject *
call_run_unknown(call_state *c)
{
    bool held = kin_signals_hold();
    PyObject *result = run_unknown(c);
    if (held)
        kin_signals_release();
    return result;
}
