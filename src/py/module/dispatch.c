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
#include "py/compat/signals.h"
#include "py/guardeval/guard.h"
#include "py/launch/launch.h"
#include "py/module/call_priv.h"
#include "py/module/fullgraph.h"
#include "py/module/lower.h"
#include "py/module/profiler_range.h"
#include "py/module/stopwatch.h"
#include "py/module/target.h"
#include "py/report/guard_text.h"
#include "py/report/log.h"
#include "py/training/training.h"
#include "py/watch/watch.h"

enum { SMALL_SLOTS = 128 };

typedef enum { TRY_HIT, TRY_MISS, TRY_EAGER, TRY_REMAKE } try_result;

void
call_unpin(call_state *c)
{
    if (c->pinned)
        kin_cache_unpin(&c->self->cache);
    c->pinned = false;
}

/* -- eager ------------------------------------------------------------------------------------------------- */

PyObject *
call_run_eager(call_state *c, kin_eager why)
{
    kin_compiled *self = c->self;
    if (self->count.eager[why]++ == 0 && self->state != NULL && why != KIN_EAGER_RECORDING && why != KIN_EAGER_LIMIT && why != KIN_EAGER_COSTLY) {
        PyObject *code = PyFunction_Check(self->fn) ? PyFunction_GET_CODE(self->fn) : NULL;
        kin_log_fallback(self->state, self->name, (PyCodeObject *)code, kin_eager_text(why),
                         kin_eager_row(why));
    }
    call_unpin(c);
    if (!launch_region_admits((PyObject *)self, false))
        return NULL;
    PyObject *region = why == KIN_EAGER_RECORDING ? NULL : kin_range_begin(self, NULL, kin_eager_text(why));
    bool admitted = kin_signals_admit();
    PyObject *value = PyObject_Vectorcall(self->fn, c->args, c->nargsf, c->kwnames);
    if (admitted)
        kin_signals_hold();
    kin_profiler_end(region);
    self->count.last = KIN_RAN_EAGERLY;
    return value;
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
    if (kin_foreign_modes() || kin_overrides_off())
        return KIN_EAGER_MODE;
    return KIN_EAGER_NO;
}

/* -- hits -------------------------------------------------------------------------------------------------- */

static void
drop_roots(const kin_entry_object *entry, PyObject **slots)
{
    for (uint32_t i = 0; i < entry->roots.len; i++)
        Py_CLEAR(slots[entry->roots.at[i].vid]);
}

bool
call_fill_roots(const kin_entry_object *entry, const call_state *c, PyObject **slots)
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

/* Did a replay of which compiled code covered so many steps run many others one by one? Loops over numbers, lists and dicts do, and
 * CPython may be faster at those. */
static bool
ran_stepwise(const kin_entry *v, uint64_t covered)
{
    uint64_t steps = v->trace.steps.len, others = steps > covered ? steps - covered : 0;
    return others >= KIN_TIER_MANY_STEPS && others >= steps / 4;
}

/* May calls be compared with eager ones, and run eagerly? Without graph breaks, exits and many steps outside of compiled code
 * the A/B timing of subgraphs finds everything that is slower, and eager calls would only cost time; unless a library behaves
 * differently in eager calls. */
static bool
may_step_aside(const kin_compiled *self, const kin_entry *v)
{
    return (v->exits > 0 || v->trace.nbreaks > 0 || v->stepwise || was_asked_by_library(v)) && v->running == 0 && kin_replay_force_exit == UINT32_MAX && call_is_timed(self);
}

/* What libraries do where they are told of compiling is slower than what they do otherwise: the next recording tells them nothing. */
static bool
record_without_telling(kin_compiled *self, kin_entry_object *entry)
{
    PyObject *mark = entry->dynamic_sources == NULL || !kin_entry_was_asked(entry->v, KIN_ASKER_LIBRARY, true)
                         ? NULL : PyUnicode_FromString(KIN_ASKERS_SLOWER);
    bool noted = mark != NULL && PySet_Add(entry->dynamic_sources, mark) == 0;
    Py_XDECREF(mark);
    PyErr_Clear();
    if (noted)
        kin_cache_drop(&self->cache, entry);
    return noted;
}

/* The elements of a tensor, or of those in a list or tuple; an int counts as itself: it may be a length. */
static double
elements_of(PyObject *obj, int depth)
{
    double n = 1, sum = 0;
    if (kin_is_plain_strided(obj)) {
        for (int64_t d = 0; d < kin_tensor_dim(obj); d++)
            n *= (double)kin_tensor_sizes(obj)[d];
        return n;
    }
    if (PyLong_CheckExact(obj)) {
        n = PyLong_AsDouble(obj);
        PyErr_Clear();
        return n > 0 ? n : 0;
    }
    bool list = PyList_CheckExact(obj);
    if (depth > 2 || !(list || PyTuple_CheckExact(obj)))
        return 0;
    for (Py_ssize_t i = 0; i < (list ? PyList_GET_SIZE(obj) : PyTuple_GET_SIZE(obj)); i++)
        sum += elements_of(list ? PyList_GET_ITEM(obj, i) : PyTuple_GET_ITEM(obj, i), depth + 1);
    return sum;
}

/* What the call's time mostly rises with. */
static double
work_of(const call_state *c)
{
    double sum = 0;
    Py_ssize_t n = PyVectorcall_NARGS(c->nargsf) + (c->kwnames != NULL ? PyTuple_GET_SIZE(c->kwnames) : 0);
    for (Py_ssize_t i = 0; i < n; i++)
        sum += elements_of(c->args[i], 0);
    return sum;
}

static void
note_tierdown(kin_compiled *self, kin_entry_object *entry, bool eager, double ns, double work)
{
    if (ns < 0 || !kin_tierdown_note(&entry->tierdown, eager, ns, work) || self->state == NULL)
        return;
    char text[160];
    const char *what = !entry->tierdown.backed_off                    ? "compiled calls are used again"
                       : record_without_telling(self, entry) ? "recorded again, with is_compiling() False for libraries"
                                                             : kin_eager_text(KIN_EAGER_SLOWER);
    snprintf(text, sizeof text, "%s: entry %u takes %.2f times as long as eager", what, entry->number, entry->tierdown.ratio);
    PyObject *code = PyFunction_Check(self->fn) ? PyFunction_GET_CODE(self->fn) : NULL;
    kin_log_fallback(self->state, self->name, (PyCodeObject *)code, text, KIN_WHY_NONE);
}

/* Nothing is compared while a profiler looks: it slows each way down in its own measure, and shows what happens without it. */
static kin_tierdown_turn
next_turn(kin_entry_object *entry)
{
    if (!kin_profiler_on())
        return kin_tierdown_next(&entry->tierdown);
    return entry->tierdown.backed_off ? KIN_TIERDOWN_EAGER : KIN_TIERDOWN_REPLAY;
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
    double work = turn == KIN_TIERDOWN_TIME_EAGER ? work_of(c) : 0;
    PyObject *region = kin_range_begin(self, NULL, kin_eager_text(turn == KIN_TIERDOWN_EAGER ? KIN_EAGER_SLOWER : KIN_EAGER_TRIAL));
    if (turn == KIN_TIERDOWN_TIME_EAGER)
        watch = kin_stopwatch_start();
    PyObject *value = PyObject_Vectorcall(self->fn, c->args, c->nargsf, c->kwnames);
    kin_profiler_end(region);
    PyErr_Fetch(&type, &error, &traceback);
    self->count.last = KIN_RAN_EAGERLY;
    if (turn == KIN_TIERDOWN_TIME_EAGER && value != NULL)
        note_tierdown(self, entry, true, kin_stopwatch_read(&watch), work);
    if (told)
        kin_record_set_compiling(false);
    PyErr_Restore(type, error, traceback);
    return value;
}

/* A replay that began with so many steps of optimizers on this thread is done. */
static void
note_run(kin_compiled *self, bool launched, kin_optim_count before)
{
    kin_optim_count now = kin_optim_counted();
    bool compiled = launched || now.done > before.done;
    self->count.last = compiled ? KIN_RAN_COMPILED : KIN_RAN_STEPS;
    self->count.compiled += compiled;
    self->count.optimizers.done += now.done - before.done;
    self->count.optimizers.left += now.left - before.left;
    if (now.left > before.left)
        self->count.optimizers.why = now.why;
}

PyObject *
call_run_replay(call_state *c, kin_entry_object *entry, PyObject **slots, bool timed)
{
    kin_entry *v = entry->v;
    exit_context x = {.self = c->self, .entry = entry, .ts = c->ts};
    kin_recursion_take(c->ts, 1);
    PyObject *region = kin_range_begin(c->self, entry, "");
    kin_stopwatch watch = {0};
    double work = timed ? work_of(c) : 0; /* as it begins: the call may change its lists */
    if (timed)
        watch = kin_stopwatch_start();
    uint64_t launches = v->launches, covered = v->covered, waits = v->waits, exits = v->exits;
    kin_optim_count optimizers = kin_optim_counted();
    PyObject *value = kin_replay_run(v, slots, call_look, call_leave, &x);
    note_run(c->self, v->launches > launches, optimizers);
    launch_region_judge((PyObject *)c->self, v->exits == exits && entry->side_traces == 0, &v->repeats);
    bool waited = v->waits > waits;
    v->stepwise = !waited && ran_stepwise(v, v->covered - covered);
    if (waited)
        kin_tierdown_postpone(&entry->tierdown);
    else if (v->stepwise)
        kin_tierdown_hasten(&entry->tierdown);
    if (timed && value != NULL && !x.extended && !waited)
        note_tierdown(c->self, entry, false, kin_stopwatch_read(&watch), work);
    kin_profiler_end(region);
    kin_recursion_take(c->ts, -1);
    if (v->failure != NULL)
        retire(c->self, entry, v);
    if (v->replan)
        kin_launch_settle(v);
    return value;
}

static void
drop_slots(const kin_entry_object *entry, PyObject **slots)
{
    for (uint32_t vid = 0; vid < entry->nslots; vid++)
        Py_CLEAR(slots[vid]);
}

/* Tries entry i of the shape. Once the guards have held, arbitrary code may run, and the shape may be freed. */
static try_result
try_with_slots(call_state *c, uint32_t i, PyObject **slots, PyObject **result)
{
    kin_entry_object *entry = c->shape->entries.at[i];
    if (!call_fill_roots(entry, c, slots))
        return TRY_EAGER;
    kin_guard_miss miss;
    if (!kin_guard_eval(entry->v, 0, slots, &miss)) {
        drop_roots(entry, slots);
        entry->v->misses++;
        c->self->count.guard_misses++;
        return TRY_MISS;
    }
    if (!launch_region_admits((PyObject *)c->self, entry->v->repeats)) {
        drop_slots(entry, slots);
        call_unpin(c);
        return TRY_HIT;
    }
    if (i > 0)
        kin_call_shape_promote(c->shape, i);
    if (entry->v->remake.times > 0 && call_remakes(c, entry)) {
        c->remade = (kin_entry_object *)Py_NewRef((PyObject *)entry);
        drop_slots(entry, slots);
        return TRY_REMAKE;
    }
    bool usual = kin_tierdown_replays(&entry->tierdown) || !may_step_aside(c->self, entry->v);
    if (c->begun > 0)
        kin_lookup_hit(&c->shape->lookup, kin_clock_ns() - c->begun, entry->tierdown.backed_off ? 1 : entry->tierdown.ratio);
    kin_tierdown_turn turn = usual ? KIN_TIERDOWN_REPLAY : next_turn(entry);
    call_unpin(c);
    if (turn == KIN_TIERDOWN_EAGER || turn == KIN_TIERDOWN_TIME_EAGER) {
        drop_slots(entry, slots);
        *result = run_aside(c, entry, turn);
        return TRY_HIT;
    }
    c->self->count.replays++;
    *result = call_run_replay(c, entry, slots, turn == KIN_TIERDOWN_TIME_REPLAY);
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
            *result = call_run_eager(c, entry->told_limit ? KIN_EAGER_LIMIT : KIN_EAGER_COSTLY);
            return true;
        }
        c->begun = kin_clock_ns();
    }
    kin_entry_object *idle = find_backed_off(c);
    if (idle == NULL || !may_step_aside(c->self, idle->v))
        return false;
    (void)kin_tierdown_next(&idle->tierdown);
    call_unpin(c);
    *result = run_aside(c, idle, KIN_TIERDOWN_EAGER);
    return true;
}

/* The code of a function, or of a module's forward, that is a generator's; NULL: it is none, or it is wrapped. */
static PyCodeObject *
generator_code(PyObject *fn)
{
    PyCodeObject *code = PyFunction_Check(fn) ? (PyCodeObject *)PyFunction_GET_CODE(fn) : kin_forward_code((PyObject *)Py_TYPE(fn));
    return code != NULL && code->co_flags & CO_GENERATOR ? code : NULL;
}

static PyObject *
dispatch(kin_compiled *self, PyThreadState *ts, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    call_state c; /* the rest is filled in on the way */
    c.self = self;
    c.ts = ts;
    c.args = args;
    c.nargsf = nargsf;
    c.kwnames = kwnames;
    c.shape = NULL;
    c.why = KIN_EAGER_NO;
    c.pinned = false;
    c.begun = 0;
    c.remade = NULL;
    if (self->fn == NULL) {
        PyErr_SetString(PyExc_ReferenceError, "the compiled function was cleared");
        return NULL;
    }
    self->count.calls++;
    kin_eager why = find_obstacle(self, c.ts);
    if (why == KIN_EAGER_NO)
        why = prepare(&c);
    PyCodeObject *generator = why == KIN_EAGER_GENERATOR && self->fullgraph ? generator_code(self->fn) : NULL;
    if (generator != NULL && self->state->options.error_class)
        return kin_fullgraph_refuse_generator(generator, self->state->options.error_class);
    if (why != KIN_EAGER_NO)
        return call_run_eager(&c, why);
    PyObject *result = NULL;
    if (run_at_once(&c, &result))
        return result;
    for (uint32_t i = 0; i < c.shape->entries.len; i++) {
        switch (try_entry(&c, i, &result)) {
        case TRY_HIT:
            return result;
        case TRY_EAGER:
            return call_run_eager(&c, c.why);
        case TRY_REMAKE:
            return call_run_remade(&c);
        case TRY_MISS:
            break;
        }
    }
    return call_run_unknown(&c);
}

PyObject *
kin_dispatch(PyObject *obj, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    PyThreadState *ts = PyThreadState_Get();
    kin_c_call level;
    if (!kin_c_call_begin(ts, &level))
        return NULL;
    PyObject *result = dispatch((kin_compiled *)obj, ts, args, nargsf, kwnames);
    kin_c_call_end(ts, &level);
    return result;
}

/* -- measuring --------------------------------------------------------------------------------------------- */

/* Evaluates the guards `count` times; the values that they load are released between evaluations. */
static double
time_entry(const call_state *c, kin_entry_object *entry, Py_ssize_t count)
{
    kin_guard_miss miss;
    PyObject **slots = entry->growing ? NULL : kin_entry_slots_take(entry);
    if (slots == NULL || !call_fill_roots(entry, c, slots)) {
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
        if (!call_fill_roots(entry, c, slots))
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
    call_unpin(&c);
    free(flat);
    Py_XDECREF(names);
    if (result == -2) {
        PyErr_SetString(PyExc_ValueError, "no entry fits this call");
        return -1;
    }
    return result;
}
