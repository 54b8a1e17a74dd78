/* Events written by dispatch (log.h). */
#include "py/report/log.h"

#include <string.h>

#include "core/diag/breaks.h"
#include "core/diag/text.h"
#include "py/compat/kinds.h"
#include "py/entry/line.h"
#include "py/report/exact_sizes.h"

static void
begin(kin_state *st, kin_event_kind kind, PyObject *name)
{
    kin_event_begin(st->log, kind);
    if (name != NULL)
        kin_event_str(st->log, "name", kin_utf8(name));
}

static void
add_place(kin_state *st, PyCodeObject *code, uint32_t line)
{
    if (code == NULL)
        return;
    kin_event_str(st->log, "filename", kin_utf8(code->co_filename));
    kin_event_int(st->log, "line", line != 0 ? (int64_t)line : code->co_firstlineno);
}

static void
add_function(kin_state *st, PyCodeObject *code)
{
    add_place(st, code, 0);
    if (code != NULL)
        kin_event_str(st->log, "function", kin_utf8(code->co_name));
}

/* File, line and function of the instruction behind a step, where it has a snapshot. */
static void
add_step_place(kin_state *st, const kin_entry_object *entry, const kin_step *step)
{
    kin_line place = kin_snap_line(entry->v, step->snap);
    if (place.code == NULL)
        return;
    add_place(st, place.code, (uint32_t)place.line);
    kin_event_str(st->log, "function", kin_utf8(place.code->co_qualname));
}

/* The frames at a snapshot, outermost first. */
static void
add_frames(kin_text *text, const kin_entry *v, uint32_t snap)
{
    if (snap == 0 || snap >= v->trace.snaps.len)
        return;
    kin_line place = kin_snap_line(v, snap);
    add_frames(text, v, v->trace.snaps.at[snap].parent);
    if (place.code != NULL)
        kin_text_addf(text, "%s\t%d\t%s\n", kin_utf8(place.code->co_filename), place.line, kin_utf8(place.code->co_name));
}

static void
add_stack(kin_state *st, const kin_entry_object *entry, uint32_t snap)
{
    kin_text stack = {0};
    add_frames(&stack, entry->v, snap);
    kin_event_str(st->log, "stack", stack.at == NULL ? "" : stack.at);
    kin_text_deinit(&stack);
}

/* Which part of the line the instruction is: for the expression. */
static void
add_columns(kin_state *st, const kin_entry_object *entry, const kin_step *step)
{
    kin_line place = kin_snap_line(entry->v, step->snap);
    if (place.column < 0)
        return;
    kin_event_int(st->log, "column", place.column);
    kin_event_int(st->log, "end_column", place.end_column);
}

static bool
captures_scalars(void)
{
    PyObject *type, *error, *traceback, *modules = PyImport_GetModuleDict(); /* borrowed */
    PyErr_Fetch(&type, &error, &traceback);
    PyObject *config = modules == NULL ? NULL : PyDict_GetItemString(modules, "torch._dynamo.config");
    PyObject *on = config == NULL ? NULL : PyObject_GetAttrString(config, "capture_scalar_outputs");
    bool captures = on == Py_True;
    Py_XDECREF(on);
    PyErr_Restore(type, error, traceback);
    return captures;
}

kin_break_row
kin_row_told(const kin_break_row *row)
{
    static const char off[] = "capture_scalar_outputs=False";
    size_t length = strlen(row->type), end = sizeof off - 1;
    kin_break_row told = *row;
    if (length > end && strcmp(row->type + length - end, off) == 0 && captures_scalars()) {
        const kin_break_row *branch = kin_break_find(KIN_ROW_DATA_DEPENDENT_BRANCH + 1);
        told.type = branch->type;
        told.stock = branch->stock;
    }
    return told;
}

static void
log_step(kin_state *st, const kin_entry_object *entry, const kin_step *step)
{
    if (step->flags & KIN_STEP_BREAK) {
        const kin_break_row *row = kin_break_find(step->why);
        begin(st, KIN_EVENT_BREAK, entry->name);
        add_step_place(st, entry, step);
        kin_event_why(st->log, step->why);
        kin_event_str(st->log, "type", row == NULL ? "" : kin_row_told(row).type);
    } else if ((step->flags & KIN_STEP_EFFECT) && !(step->flags & (KIN_STEP_SUNK | KIN_STEP_TORCH)) &&
               step->kind < KIN_STEP_CHECK) { /* control steps come last in steps.def */
        begin(st, KIN_EVENT_EFFECT, entry->name);
        add_step_place(st, entry, step);
        kin_event_str(st->log, "text", kin_step_name((kin_step_kind)step->kind));
    } else {
        return;
    }
    kin_event_int(st->log, "entry", entry->number);
    kin_event_end(st->log);
}

static void
log_steps(kin_state *st, const kin_entry_object *entry, uint32_t first)
{
    for (uint32_t i = first; i < entry->v->trace.steps.len; i++)
        log_step(st, entry, &entry->v->trace.steps.at[i]);
}

static int64_t
count_calls(const kin_entry_object *entry, uint32_t first)
{
    const kin_trace *t = &entry->v->trace;
    int64_t count = 0;
    for (uint32_t i = first; i < t->steps.len; i++)
        count += (t->steps.at[i].flags & KIN_STEP_TORCH) != 0;
    return count;
}

/* The compiled function may be gone when the listener runs; what was recorded of it is kept that long. */
static void
keep_for_listener(kin_state *st, const kin_entry_object *entry)
{
    enum { MOST = 256 };
    if (entry == NULL || st->recorded == NULL || PyList_GET_SIZE(st->recorded) >= MOST)
        return;
    if (PyList_Append(st->recorded, (PyObject *)entry) < 0)
        PyErr_Clear();
}

static void
log_exact_size(kin_state *st, const kin_entry_object *entry, const kin_exact_size *exact)
{
    PyObject *source = kin_exact_size_source(entry->v, exact), *text = source != NULL ? kin_exact_size_text(entry->v, exact) : NULL;
    PyObject *code = kin_refs_get(&entry->v->refs, exact->code);
    if (text != NULL) {
        begin(st, KIN_EVENT_EXACT_SIZE, entry->name);
        if (code != NULL && PyCode_Check(code)) {
            add_place(st, (PyCodeObject *)code, (uint32_t)exact->line);
            kin_event_str(st->log, "function", kin_utf8(((PyCodeObject *)code)->co_qualname));
        }
        add_stack(st, entry, exact->snap);
        kin_event_int(st->log, "entry", entry->number);
        kin_event_str(st->log, "source", kin_utf8(source));
        kin_event_int(st->log, "size", exact->size);
        kin_event_str(st->log, "text", kin_utf8(text));
        kin_event_end(st->log);
    }
    Py_XDECREF(source);
    Py_XDECREF(text);
}

/* Sizes that the steps from `first` on test exactly although they are marked as dynamic. */
static void
log_exact_sizes(kin_state *st, const kin_entry_object *entry, uint32_t first)
{
    uint32_t told = entry->v->exact.len;
    PyObject *type, *error, *traceback;
    PyErr_Fetch(&type, &error, &traceback);
    kin_exact_sizes_find(entry->v, first);
    for (uint32_t i = told; i < entry->v->exact.len; i++)
        log_exact_size(st, entry, &entry->v->exact.at[i]);
    PyErr_Restore(type, error, traceback);
}

void
kin_log_refusal(kin_state *st, PyObject *name, const kin_entry *v, const kin_step *step)
{
    const kin_break_row *row = kin_break_find(step->why);
    kin_text stack = {0};
    begin(st, KIN_EVENT_REFUSE, name);
    kin_event_why(st->log, step->why);
    kin_event_str(st->log, "type", row == NULL ? "" : kin_row_told(row).type);
    add_frames(&stack, v, step->snap);
    kin_event_str(st->log, "stack", stack.at == NULL ? "" : stack.at);
    kin_text_deinit(&stack);
    kin_event_end(st->log);
}

void
kin_log_record(kin_state *st, PyObject *name, PyCodeObject *code, const kin_entry_object *entry,
               const kin_record_result *result)
{
    keep_for_listener(st, entry);
    begin(st, KIN_EVENT_RECORD, name);
    add_function(st, code);
    if (entry != NULL) {
        kin_event_int(st->log, "entry", entry->number);
        kin_event_int(st->log, "graphs", entry->v->trace.ngraphs);
        kin_event_int(st->log, "breaks", entry->v->trace.nbreaks);
        kin_event_int(st->log, "effects", entry->v->trace.neffects);
        kin_event_int(st->log, "ops", count_calls(entry, 0));
    }
    kin_event_int(st->log, "instructions", result->ninstr);
    if (result->crosschecked != 0)
        kin_event_int(st->log, "crosschecked", result->crosschecked);
    kin_event_num(st->log, "record_ns", result->time_ns);
    kin_event_str(st->log, "reason", result->reason);
    kin_event_end(st->log);
    if (entry != NULL) {
        log_steps(st, entry, 0);
        log_exact_sizes(st, entry, 0);
    }
}

void
kin_log_extend(kin_state *st, PyCodeObject *code, const kin_entry_object *entry, uint32_t step, kin_log_before before,
               const kin_record_result *result)
{
    keep_for_listener(st, entry);
    begin(st, KIN_EVENT_EXTEND, entry->name);
    add_place(st, code, 0);
    kin_event_int(st->log, "entry", entry->number);
    kin_event_int(st->log, "step", step);
    kin_event_int(st->log, "graphs", (int64_t)entry->v->trace.ngraphs - before.graphs);
    kin_event_int(st->log, "ops", count_calls(entry, before.steps));
    kin_event_num(st->log, "record_ns", result->time_ns);
    kin_event_str(st->log, "reason", result->reason);
    kin_event_end(st->log);
    log_steps(st, entry, before.steps);
    log_exact_sizes(st, entry, before.steps);
}

void
kin_log_exit(kin_state *st, const kin_entry_object *entry, uint32_t step, PyObject *cause)
{
    begin(st, KIN_EVENT_EXIT, entry->name);
    kin_event_int(st->log, "entry", entry->number);
    kin_event_int(st->log, "step", step);
    add_step_place(st, entry, &entry->v->trace.steps.at[step]);
    if (cause != NULL) {
        add_columns(st, entry, &entry->v->trace.steps.at[step]);
        add_stack(st, entry, entry->v->trace.steps.at[step].snap);
        kin_event_str(st->log, "cause", kin_utf8(cause));
        kin_event_why(st->log, entry->v->trace.steps.at[step].flags & KIN_STEP_BREAK ? entry->v->trace.steps.at[step].why : KIN_WHY_NONE);
    }
    kin_event_end(st->log);
}

PyObject *
kin_log_step_place(const kin_entry_object *entry, uint32_t step)
{
    kin_line place = kin_snap_line(entry->v, entry->v->trace.steps.at[step].snap);
    PyObject *text = place.code == NULL ? PyUnicode_FromFormat("step %u", step)
                                        : PyUnicode_FromFormat("%U:%d (%U)", place.code->co_filename, place.line, place.code->co_qualname);
    if (text == NULL)
        PyErr_Clear();
    return text;
}

void
kin_log_recompile(kin_state *st, PyObject *name, PyCodeObject *code, const char *failures)
{
    begin(st, KIN_EVENT_RECOMPILE, name);
    add_function(st, code);
    kin_event_str(st->log, "failures", failures);
    kin_event_end(st->log);
}

void
kin_log_limit(kin_state *st, PyObject *name, PyCodeObject *code, uint32_t limit, const char *last)
{
    begin(st, KIN_EVENT_LIMIT, name);
    add_function(st, code);
    kin_event_int(st->log, "limit", limit);
    kin_event_str(st->log, "last", last);
    kin_event_why(st->log, KIN_WHY_RECOMPILE_LIMIT);
    kin_event_end(st->log);
}

void
kin_log_fallback(kin_state *st, PyObject *name, PyCodeObject *code, const char *reason, unsigned why)
{
    begin(st, KIN_EVENT_FALLBACK, name);
    add_place(st, code, 0);
    kin_event_str(st->log, "reason", reason);
    kin_event_why(st->log, why);
    kin_event_end(st->log);
}

void
kin_log_lower(kin_state *st, PyObject *name, uint32_t entry, uint32_t graph, const char *backend, double time_ns)
{
    begin(st, KIN_EVENT_LOWER, name);
    kin_event_int(st->log, "entry", entry);
    kin_event_int(st->log, "graph", graph);
    kin_event_str(st->log, "backend", backend);
    kin_event_num(st->log, "compile_ns", time_ns);
    kin_event_end(st->log);
}

void
kin_log_bug(kin_state *st, PyObject *name, const char *where, const char *message)
{
    PyObject *type, *error, *traceback, *text = NULL;
    PyErr_Fetch(&type, &error, &traceback);
    if (type != NULL)
        text = PyObject_Str(error == NULL ? type : error);
    PyErr_Clear();
    begin(st, KIN_EVENT_BUG, name);
    kin_event_str(st->log, "where", where);
    kin_event_why(st->log, KIN_WHY_INTERNAL);
    kin_event_str(st->log, "message", text == NULL ? message : kin_utf8(text));
    kin_event_end(st->log);
    Py_XDECREF(text);
    Py_XDECREF(type);
    Py_XDECREF(error);
    Py_XDECREF(traceback);
}

void
kin_log_exact_size(kin_state *st, PyObject *name, uint32_t entry, const char *source, int64_t size, const char *filename, int line, const char *text)
{
    begin(st, KIN_EVENT_EXACT_SIZE, name);
    if (filename != NULL) {
        kin_event_str(st->log, "filename", filename);
        kin_event_int(st->log, "line", line);
    }
    kin_event_int(st->log, "entry", entry);
    kin_event_str(st->log, "source", source);
    kin_event_int(st->log, "size", size);
    kin_event_str(st->log, "text", text);
    kin_event_end(st->log);
}

void
kin_log_reset(kin_state *st)
{
    begin(st, KIN_EVENT_RESET, NULL);
    kin_event_end(st->log);
}
