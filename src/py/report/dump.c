/* Describes an entry as plain Python objects (dump.h): guards, graphs, breaks, effects, steps. */
#include "py/compat/imports.h"
#include "py/compat/signals.h"
#include "py/launch/launch.h"
#include "py/guardeval/guard.h"
#include "py/report/log.h"
#include "py/report/dump_priv.h"
#include "py/report/exact_sizes.h"

#include "core/diag/events.h"
#include "py/driver/record.h"
#include "py/cache/entry_object.h"

#include <stdlib.h>
#include <string.h>

/* The name of the first local variable, in any frame, that holds each value. */
static void
find_locals(dumper *d)
{
    for (uint32_t i = 1; i < d->t->snaps.len; i++) {
        const kin_snap *s = &d->t->snaps.at[i];
        PyObject *code = kin_refs_get(d->refs, s->code);
        PyObject *names = code != NULL && PyCode_Check(code) ? ((PyCodeObject *)code)->co_localsplusnames : NULL;
        for (uint32_t k = 0; names != NULL && k < s->nlocals && k < (uint32_t)PyTuple_GET_SIZE(names); k++) {
            kin_vid vid = d->t->vids.at[s->vals + k];
            if (d->locals[vid] == NULL && PyUnicode_IsIdentifier(PyTuple_GET_ITEM(names, k)) == 1)
                d->locals[vid] = PyTuple_GET_ITEM(names, k);
        }
    }
}

static int
start_dump(dumper *d, kin_entry *v)
{
    *d = (dumper){.v = v, .t = &v->trace, .refs = &v->refs, .lines = PyDict_New()};
    uint32_t n = v->trace.vals.len + 1;
    d->paths = calloc(n, sizeof *d->paths);
    d->names = calloc(n, sizeof *d->names);
    d->locals = calloc(n, sizeof *d->locals);
    d->use = calloc(n, sizeof *d->use);
    d->first_use = calloc(n, sizeof *d->first_use);
    d->getline = kin_import("linecache", "getline");
    if (d->locals != NULL)
        find_locals(d);
    if (d->paths == NULL || d->names == NULL || d->locals == NULL || d->use == NULL || d->first_use == NULL)
        PyErr_NoMemory();
    else if (d->lines != NULL && d->getline != NULL)
        return 0;
    return -1;
}

static void
end_dump(dumper *d)
{
    uint32_t n = d->t->vals.len + 1;
    for (uint32_t i = 0; i < n; i++) {
        if (d->paths != NULL)
            Py_XDECREF(d->paths[i]);
        if (d->names != NULL)
            Py_XDECREF(d->names[i]);
    }
    free(d->paths);
    free(d->names);
    free(d->locals);
    free(d->use);
    free(d->first_use);
    Py_XDECREF(d->lines);
    Py_XDECREF(d->getline);
}

/* Takes over `entry`; 0 or -1. */
static int
append(PyObject *list, PyObject *entry)
{
    if (entry == NULL)
        return -1;
    int status = PyList_Append(list, entry);
    Py_DECREF(entry);
    return status;
}

/* ---- guards ---- */

static PyObject *
describe_fact(dumper *d, const kin_fact *fact)
{
    PyObject *code = fact->code ? kin_refs_get(d->refs, fact->code) : NULL, *entry = PyDict_New();
    dump_place place = {0};
    /* What exactly is asked of a tensor; the text shows all that was known of it. */
    PyObject *record = fact->kind == KIN_FACT_T_META ? kin_refs_get(d->refs, fact->ref) : NULL;
    if (code != NULL && PyCode_Check(code)) {
        place.code = (PyCodeObject *)code;
        place.line = PyCode_Addr2Line(place.code, (int)fact->offset);
    }
    if (entry == NULL)
        return NULL;
    PyObject *source = fact->vid ? dump_path(d, fact->vid) : PyUnicode_FromString("");
    if (dump_set(entry, "source", source) < 0 || dump_set(entry, "text", dump_fact_text(d, fact)) < 0
        || dump_set(entry, "kind", PyUnicode_FromString(kin_fact_name((kin_fact_kind)fact->kind))) < 0
        || dump_set(entry, "guard", PyUnicode_FromString(kin_fact_guard((kin_fact_kind)fact->kind))) < 0
        || dump_set(entry, "epoch", PyLong_FromLong(fact->epoch)) < 0
        || dump_set(entry, "undone", PyBool_FromLong(fact->undone)) < 0 || dump_set_place(entry, place) < 0
        || (record != NULL && PyDict_SetItemString(entry, "record", record) < 0))
        Py_CLEAR(entry);
    return entry;
}

static PyObject *
list_facts(dumper *d)
{
    PyObject *list = PyList_New(0);
    for (uint32_t i = 0; list != NULL && i < d->t->facts.len; i++)
        if (append(list, describe_fact(d, &d->t->facts.at[i])) < 0)
            Py_CLEAR(list);
    return list;
}

/* ---- graphs ---- */

static PyObject *
list_graphs(dumper *d)
{
    PyObject *list = PyList_New(0);
    if (dump_find_uses(d) != KIN_OK)
        Py_CLEAR(list);
    for (uint32_t i = 1; list != NULL && i <= d->t->ngraphs; i++)
        if (append(list, dump_graph(d, i)) < 0)
            Py_CLEAR(list);
    return list;
}

/* ---- breaks and effects ---- */

/* A str with separators as a list of str. */
static PyObject *
split_text(const char *text, char separator)
{
    PyObject *list = PyList_New(0);
    while (list != NULL && *text != '\0') {
        const char *end = strchr(text, separator);
        size_t len = end != NULL ? (size_t)(end - text) : strlen(text);
        if (append(list, PyUnicode_FromStringAndSize(text, (Py_ssize_t)len)) < 0)
            Py_CLEAR(list);
        text += len + (end != NULL);
    }
    return list;
}

static PyObject *
describe_row(unsigned why)
{
    const kin_break_row *found = kin_break_find(why);
    const kin_break_row told = kin_row_told(found != NULL ? found : kin_break_find(KIN_WHY_INTERNAL)), *row = &told;
    PyObject *entry = PyDict_New();
    if (entry == NULL)
        return NULL;
    if (dump_set(entry, "id", PyUnicode_FromFormat("KIN%04d", row->id)) < 0
        || dump_set(entry, "row", PyLong_FromLong((long)why - 1)) < 0
        || dump_set(entry, "why", PyUnicode_FromString(row->name)) < 0
        || dump_set(entry, "stock", split_text(row->stock, ' ')) < 0
        || dump_set(entry, "category", PyUnicode_FromString(kin_break_category_name(row->category))) < 0
        || dump_set(entry, "type", PyUnicode_FromString(row->type)) < 0
        || dump_set(entry, "explanation", PyUnicode_FromString(row->explanation)) < 0
        || dump_set(entry, "hints", split_text(row->hints, '\n')) < 0
        || dump_set(entry, "fix", PyUnicode_FromString(row->fix)) < 0)
        Py_CLEAR(entry);
    return entry;
}

/* What disable(reason=...) was told of the function that the step calls, which is noted with it; or NULL. */
static PyObject *
find_disable_reason(dumper *d, const kin_step *s)
{
    kin_ref note = s->why == KIN_WHY_DISABLED_CALL && s->nargs > 0 ? d->t->vals.at[d->t->vids.at[s->args]].note : 0;
    PyObject *reason = note != 0 ? kin_refs_get(d->refs, note) : NULL;
    return reason != NULL && PyUnicode_Check(reason) ? reason : NULL;
}

/* What exactly it was: the step, or for the end of a recording the reason. */
static PyObject *
describe_context(dumper *d, const kin_step *s)
{
    PyObject *reason = s->kind == KIN_STEP_EXIT && s->ref ? kin_refs_get(d->refs, s->ref) : NULL;
    if (reason != NULL && PyUnicode_Check(reason))
        return Py_NewRef(reason);
    PyObject *text = dump_step_words(d, s), *told = find_disable_reason(d, s);
    if (text != NULL && told != NULL)
        Py_SETREF(text, PyUnicode_FromFormat("%U (reason: %U)", text, told));
    return text;
}

static PyObject *
describe_break(dumper *d, uint32_t index)
{
    const kin_step *s = &d->t->steps.at[index];
    PyObject *entry = describe_row(s->why);
    if (entry == NULL)
        return NULL;
    if (dump_set_place(entry, dump_snap_place(d, s->snap)) < 0
        || dump_set(entry, "user_stack", dump_user_stack(d, s->snap)) < 0
        || dump_set(entry, "user_columns", dump_user_columns(d, s->snap)) < 0
        || dump_set(entry, "context", describe_context(d, s)) < 0
        || dump_set(entry, "step", PyLong_FromUnsignedLong(index)) < 0)
        Py_CLEAR(entry);
    return entry;
}

static PyObject *
describe_effect(dumper *d, uint32_t index)
{
    const kin_step *s = &d->t->steps.at[index];
    PyObject *entry = PyDict_New();
    if (entry == NULL)
        return NULL;
    if (dump_set(entry, "text", dump_step_words(d, s)) < 0
        || dump_set(entry, "kind", PyUnicode_FromString(kin_step_name((kin_step_kind)s->kind))) < 0
        || dump_set(entry, "user_stack", dump_user_stack(d, s->snap)) < 0
        || dump_set(entry, "step", PyLong_FromUnsignedLong(index)) < 0
        || dump_set_place(entry, dump_snap_place(d, s->snap)) < 0)
        Py_CLEAR(entry);
    return entry;
}

static bool
is_break(const kin_step *s)
{
    return s->flags & KIN_STEP_BREAK;
}

static bool
is_effect(const kin_step *s)
{
    if (kin_step_is_end(s) || s->kind == KIN_STEP_CHECK || s->kind == KIN_STEP_EPOCH)
        return false;
    return s->flags & KIN_STEP_EFFECT && !(s->flags & (KIN_STEP_BREAK | KIN_STEP_TORCH | KIN_STEP_SUNK));
}

static PyObject *
list_steps_where(dumper *d, bool (*wanted)(const kin_step *), PyObject *(*describe)(dumper *, uint32_t))
{
    PyObject *list = PyList_New(0);
    for (uint32_t i = 0; list != NULL && i < d->t->steps.len; i++)
        if (wanted(&d->t->steps.at[i]) && append(list, describe(d, i)) < 0)
            Py_CLEAR(list);
    return list;
}

/* ---- steps ---- */

static PyObject *
flag_names(unsigned flags)
{
    static const struct { unsigned flag; const char *name; } names[] = {
        {KIN_STEP_TORCH, "torch"}, {KIN_STEP_OPAQUE, "opaque"}, {KIN_STEP_BREAK, "break"}, {KIN_STEP_EFFECT, "effect"},
        {KIN_STEP_PURE, "pure"}, {KIN_STEP_MUTATES, "mutates"}, {KIN_STEP_SUNK, "sunk"}, {KIN_STEP_RAISES, "raises"},
        {KIN_STEP_AGAIN, "again"}, {KIN_STEP_DEATHS, "deaths"}, {KIN_STEP_MORTAL, "mortal"}, {KIN_STEP_SIZED, "sized"}, {KIN_STEP_REPORTS, "reports"},
    };
    PyObject *list = PyList_New(0);
    for (size_t i = 0; list != NULL && i < sizeof names / sizeof *names; i++)
        if (flags & names[i].flag && append(list, PyUnicode_FromString(names[i].name)) < 0)
            Py_CLEAR(list);
    return list;
}

/* Numbers of the values a step works on. */
static PyObject *
operand_numbers(dumper *d, const kin_step *s)
{
    PyObject *list = PyList_New(0);
    for (uint32_t i = 0; list != NULL && i < s->nargs; i++)
        if (append(list, PyLong_FromUnsignedLong(d->t->vids.at[s->args + i])) < 0)
            Py_CLEAR(list);
    return list;
}

static PyObject *
describe_step(dumper *d, uint32_t index)
{
    const kin_step *s = &d->t->steps.at[index];
    PyObject *entry = PyDict_New();
    if (entry == NULL)
        return NULL;
    if (dump_set(entry, "kind", PyUnicode_FromString(kin_step_name((kin_step_kind)s->kind))) < 0
        || dump_set(entry, "text", dump_step_text(d, s)) < 0 || dump_set(entry, "flags", flag_names(s->flags)) < 0
        || dump_set(entry, "line", PyLong_FromLong(dump_snap_place(d, s->snap).line)) < 0
        || dump_set(entry, "out", PyLong_FromUnsignedLong(s->out)) < 0
        || dump_set(entry, "alt", PyLong_FromUnsignedLong(s->alt)) < 0
        || dump_set(entry, "imm", PyLong_FromLong(s->imm)) < 0 || dump_set(entry, "operands", operand_numbers(d, s)) < 0
        || dump_set(entry, "graph", PyLong_FromLong(s->graph)) < 0)
        Py_CLEAR(entry);
    return entry;
}

/* vid -> constant, of those that are known by their value. */
static PyObject *
list_constants(dumper *d)
{
    PyObject *dict = PyDict_New();
    for (uint32_t i = 1; dict != NULL && i < d->t->vals.len; i++) {
        const kin_val *val = &d->t->vals.at[i];
        PyObject *obj = val->kind == KIN_VAL_CONST ? kin_refs_get(d->refs, val->key) : NULL;
        if (obj == NULL || !kin_is_exact_immutable(obj))
            continue;
        PyObject *vid = PyLong_FromUnsignedLong(i);
        if (vid == NULL || PyDict_SetItem(dict, vid, obj) < 0)
            Py_CLEAR(dict);
        Py_XDECREF(vid);
    }
    return dict;
}

static bool
is_any(const kin_step *s)
{
    return true;
}

/* ---- the whole ---- */

/* Who asked torch.compiler.is_compiling(), and what the answer was. */
static PyObject *
list_asked(dumper *d)
{
    static const char *const who[] = {[KIN_ASKER_PROGRAM] = "program", [KIN_ASKER_LIBRARY] = "library", [KIN_ASKER_OPTIMIZER] = "optimizer"};
    PyObject *list = PyList_New(0);
    for (uint32_t i = 0; list != NULL && i < d->v->asked.len; i++) {
        const kin_asked *a = &d->v->asked.at[i];
        PyObject *code = kin_refs_get(d->refs, a->code), *row = NULL;
        if (code != NULL && PyCode_Check(code))
            row = Py_BuildValue("{sOsOsisssO}", "function", ((PyCodeObject *)code)->co_qualname, "filename", ((PyCodeObject *)code)->co_filename,
                                "line", a->line, "who", who[a->who], "answer", a->answer ? Py_True : Py_False);
        if (row == NULL || PyList_Append(list, row) < 0)
            Py_CLEAR(list);
        Py_XDECREF(row);
    }
    return list;
}

/* The code of a function that the trace has, or makes itself. */
static PyCodeObject *
code_of_function(const kin_entry *v, kin_vid vid)
{
    const kin_val *val = &v->trace.vals.at[vid];
    PyObject *obj = val->kind == KIN_VAL_CONST ? kin_refs_get(&v->refs, val->key) : NULL;
    if (obj != NULL && PyFunction_Check(obj))
        return (PyCodeObject *)((PyFunctionObject *)obj)->func_code;
    const kin_step *s = val->kind == KIN_VAL_STEP ? &v->trace.steps.at[val->step] : NULL;
    if (s == NULL || s->kind != KIN_STEP_BUILD_FUNCTION)
        return NULL;
    val = &v->trace.vals.at[v->trace.vids.at[s->args + KIN_FUNCTION_CODE]];
    obj = val->kind == KIN_VAL_CONST ? kin_refs_get(&v->refs, val->key) : NULL;
    return obj != NULL && PyCode_Check(obj) ? (PyCodeObject *)obj : NULL;
}

/* The code of the generator, or of the function behind the map or filter object, that a replay makes in this step because somebody else gets it.
 * NULL: it makes none. */
static PyCodeObject *
code_handed_out(const kin_entry *v, uint32_t step)
{
    const kin_step *s = &v->trace.steps.at[step];
    bool made = !(s->flags & (KIN_STEP_SUNK | KIN_STEP_BREAK)) && s->out != 0 && s->nargs > 0;
    const kin_vid *args = v->trace.vids.at + s->args;
    if (made && s->kind == KIN_STEP_BUILD_GENERATOR)
        return code_of_function(v, args[0]);
    const kin_val *callee = &v->trace.vals.at[made ? args[0] : 0];
    PyObject *cls = made && s->kind == KIN_STEP_CALL && s->nargs > 1 && callee->kind == KIN_VAL_CONST ? kin_refs_get(&v->refs, callee->key) : NULL;
    return cls == (PyObject *)&PyMap_Type || cls == (PyObject *)&PyFilter_Type ? code_of_function(v, args[1]) : NULL;
}

uint32_t
kin_dump_handed_out(const kin_entry *v)
{
    uint32_t n = 0;
    for (uint32_t i = 1; i < v->trace.steps.len; i++)
        n += code_handed_out(v, i) != NULL;
    return n;
}

/* Generators, map and filter objects whose items somebody asks for outside of the recorded call. */
static PyObject *
list_handed_out(dumper *d)
{
    PyObject *list = PyList_New(0);
    for (uint32_t i = 1; list != NULL && i < d->t->steps.len; i++) {
        const PyCodeObject *code = code_handed_out(d->v, i);
        if (code != NULL && append(list, Py_BuildValue("{sOsOsi}", "function", code->co_qualname, "filename", code->co_filename, "line", code->co_firstlineno)) < 0)
            Py_CLEAR(list);
    }
    return list;
}

/* Sizes marked as dynamic that are tested exactly. */
static PyObject *
list_exact_sizes(dumper *d)
{
    PyObject *list = PyList_New(0);
    for (uint32_t i = 0; list != NULL && i < d->v->exact.len; i++) {
        const kin_exact_size *e = &d->v->exact.at[i];
        PyObject *code = kin_refs_get(d->refs, e->code), *row = NULL;
        PyObject *source = kin_exact_size_source(d->v, e), *text = source != NULL ? kin_exact_size_text(d->v, e) : NULL;
        bool known = code != NULL && PyCode_Check(code);
        if (text != NULL)
            row = Py_BuildValue("{sOsLsOsOsOsi}", "source", source, "size", (long long)e->size, "text", text, "function", known ? ((PyCodeObject *)code)->co_qualname : Py_None,
                                "filename", known ? ((PyCodeObject *)code)->co_filename : Py_None, "line", e->line);
        if (row == NULL || PyList_Append(list, row) < 0)
            Py_CLEAR(list);
        Py_XDECREF(row);
        Py_XDECREF(source);
        Py_XDECREF(text);
    }
    return list;
}

static int
fill_head(dumper *d, PyObject *dict)
{
    PyObject *func = d->v->func;
    bool known = func != NULL && PyFunction_Check(func);
    PyCodeObject *code = known ? (PyCodeObject *)PyFunction_GET_CODE(func) : NULL;
    PyObject *empty = PyUnicode_FromString("");
    if (empty == NULL)
        return -1;
    int status = PyDict_SetItemString(dict, "name", known ? code->co_name : empty) < 0
                         || PyDict_SetItemString(dict, "qualname", known ? code->co_qualname : empty) < 0
                         || PyDict_SetItemString(dict, "filename", known ? code->co_filename : empty) < 0
                         || dump_set(dict, "firstlineno", PyLong_FromLong(known ? code->co_firstlineno : 0)) < 0
                         || dump_set(dict, "epochs", PyLong_FromUnsignedLong(d->t->nepochs)) < 0
                         || dump_set(dict, "record_ns", PyFloat_FromDouble(d->v->record_ns)) < 0
                         || dump_set(dict, "hits", PyLong_FromUnsignedLongLong(d->v->hits)) < 0
                         || dump_set(dict, "exits", PyLong_FromUnsignedLongLong(d->v->exits)) < 0
                     ? -1 : 0;
    Py_DECREF(empty);
    return status;
}

PyObject *
kin_dump_entry(kin_entry *v)
{
    dumper d;
    PyObject *dict = PyDict_New();
    /* Graphs first: they name the values that later texts mention. */
    if (start_dump(&d, v) < 0 || dict == NULL || fill_head(&d, dict) < 0 || dump_set(dict, "graphs", list_graphs(&d)) < 0
        || dump_set(dict, "facts", list_facts(&d)) < 0
        || dump_set(dict, "breaks", list_steps_where(&d, is_break, describe_break)) < 0
        || dump_set(dict, "effects", list_steps_where(&d, is_effect, describe_effect)) < 0
        || dump_set(dict, "asked", list_asked(&d)) < 0
        || dump_set(dict, "exact_sizes", list_exact_sizes(&d)) < 0
        || dump_set(dict, "handed_out", list_handed_out(&d)) < 0
        || dump_set(dict, "steps", list_steps_where(&d, is_any, describe_step)) < 0
        || dump_set(dict, "constants", list_constants(&d)) < 0)
        Py_CLEAR(dict);
    end_dump(&d);
    return dict;
}

PyObject *
kin_dump_subgraphs(kin_entry *v, const uint32_t *subgraph_of, const uint32_t *needed, uint32_t n)
{
    dumper d;
    PyObject *list = start_dump(&d, v) == 0 ? PyList_New(0) : NULL;
    d.subgraph_of = subgraph_of;
    d.needed = needed;
    for (uint32_t subgraph = 1; list != NULL && subgraph <= n; subgraph++)
        if (append(list, dump_graph(&d, subgraph)) < 0)
            Py_CLEAR(list);
    end_dump(&d);
    return list;
}

/* All rows of breaks.def: new list of dicts. */
static PyObject *
dump_break_rows(void)
{
    PyObject *list = PyList_New(0);
    for (unsigned why = 1; list != NULL && why < KIN_WHY__COUNT; why++)
        if (append(list, describe_row(why)) < 0)
            Py_CLEAR(list);
    return list;
}

static PyObject *
dump_method(PyObject *module, PyObject *arg)
{
    kin_entry *v = kin_entry_from_object(arg);
    return v != NULL ? kin_dump_entry(v) : NULL;
}

static PyObject *
kernels_method(PyObject *module, PyObject *arg)
{
    kin_entry *v = kin_entry_from_object(arg);
    return v != NULL ? kin_launch_describe(v) : NULL;
}

static PyObject *
pass_texts_method(PyObject *module, PyObject *args)
{
    PyObject *entry;
    unsigned subgraph, version;
    if (!PyArg_ParseTuple(args, "OII", &entry, &subgraph, &version))
        return NULL;
    kin_entry *v = kin_entry_from_object(entry);
    return v != NULL ? kin_launch_pass_texts(v, subgraph, version) : NULL;
}

static PyObject *
break_rows_method(PyObject *module, PyObject *unused)
{
    return dump_break_rows();
}

/* ---- listening to events ---- */

/* Kept in a capsule that is an attribute of the module. */
typedef struct {
    PyObject *module; /* borrowed: the module owns the capsule */
    PyObject *callable;
    bool scheduled; /* a pending call is on its way */
    bool news;      /* something happened since it was last called */
} listener;

#define LISTENER_NAME "kintsugi.listener"

static void
free_listener(PyObject *capsule)
{
    listener *l = PyCapsule_GetPointer(capsule, LISTENER_NAME);
    kin_state *st = l != NULL ? PyModule_GetState(l->module) : NULL;
    if (st != NULL && st->log != NULL)
        kin_event_log_listen(st->log, NULL, NULL);
    if (st != NULL && st->listener == capsule)
        st->listener = NULL;
    if (l != NULL)
        Py_XDECREF(l->callable);
    PyMem_Free(l);
}

/* Everything but the end of a recording (kin_dump_tell) waits until the interpreter next looks for pending calls, perhaps in the
 * first frame of the next recording. There the listener's code would be taken for the program's; the event at the end of that
 * recording schedules it again.
 */
static int
call_listener(void *arg)
{
    PyObject *capsule = arg;
    listener *l = PyCapsule_GetPointer(capsule, LISTENER_NAME);
    bool wait = l != NULL && kin_record_active();
    PyObject *result = NULL;
    if (l != NULL)
        l->scheduled = false;
    bool call = l != NULL && !wait && l->news;
    if (call) {
        l->news = false;
        bool held = kin_signals_hold();
        result = PyObject_CallNoArgs(l->callable);
        if (held)
            kin_signals_release();
    }
    Py_DECREF(capsule);
    Py_XDECREF(result);
    return result != NULL || !call ? 0 : -1;
}

void
kin_dump_tell(kin_state *st)
{
    listener *l = st->listener == NULL ? NULL : PyCapsule_GetPointer(st->listener, LISTENER_NAME);
    if (l == NULL || !l->news || kin_record_active())
        return;
    PyObject *type, *value, *traceback, *capsule = Py_NewRef(st->listener);
    PyErr_Fetch(&type, &value, &traceback);
    l->news = false;
    bool held = kin_signals_hold();
    Py_XDECREF(PyObject_CallNoArgs(l->callable)); /* it catches its own exceptions */
    if (held)
        kin_signals_release();
    PyErr_Clear();
    Py_DECREF(capsule);
    PyErr_Restore(type, value, traceback);
}

static void
hear_event(void *arg, kin_event_kind kind)
{
    PyObject *capsule = arg;
    listener *l = PyCapsule_GetPointer(capsule, LISTENER_NAME);
    if (l == NULL || kind == KIN_EVENT_EXIT)
        return;
    l->news = true;
    if (l->scheduled)
        return;
    Py_INCREF(capsule);
    l->scheduled = Py_AddPendingCall(call_listener, capsule) == 0;
    if (!l->scheduled)
        Py_DECREF(capsule);
}

static PyObject *
set_listener(PyObject *module, PyObject *callable)
{
    kin_state *st = PyModule_GetState(module);
    if (callable == Py_None) {
        kin_event_log_listen(st->log, NULL, NULL);
        Py_RETURN_NONE;
    }
    listener *l = PyMem_Calloc(1, sizeof *l);
    if (l == NULL)
        return PyErr_NoMemory();
    *l = (listener){.module = module, .callable = Py_NewRef(callable)};
    PyObject *capsule = PyCapsule_New(l, LISTENER_NAME, free_listener);
    if (capsule == NULL) {
        Py_DECREF(callable);
        PyMem_Free(l);
        return NULL;
    }
    int status = PyObject_SetAttrString(module, "_listener", capsule);
    Py_DECREF(capsule);
    if (status < 0)
        return NULL;
    st->listener = capsule;
    kin_event_log_listen(st->log, hear_event, capsule);
    if (st->recorded == NULL && (st->recorded = PyList_New(0)) == NULL)
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *
take_recorded(PyObject *module, PyObject *unused)
{
    kin_state *st = PyModule_GetState(module);
    PyObject *taken = st->recorded, *fresh = PyList_New(0);
    if (taken == NULL || fresh == NULL)
        return fresh;
    st->recorded = fresh;
    return taken;
}

/* Events with a number of at least `seq`; they stay in the log. Mostly these are the last few of many. */
static PyObject *
events_since(PyObject *module, PyObject *arg)
{
    kin_state *st = PyModule_GetState(module);
    unsigned long long seq = PyLong_AsUnsignedLongLong(arg);
    if (PyErr_Occurred())
        return NULL;
    PyObject *list = PyList_New(0);
    uint32_t n = kin_event_count(st->log), first = n;
    while (first > 0 && kin_event_at(st->log, first - 1)->seq >= seq)
        first--;
    for (uint32_t i = first; list != NULL && i < n; i++) {
        const kin_event *e = kin_event_at(st->log, i);
        if (append(list, Py_BuildValue("(KiIs)", (unsigned long long)e->seq, (int)e->kind, e->why, e->json)) < 0)
            Py_CLEAR(list);
    }
    return list;
}

static PyObject *
event_kinds(PyObject *module, PyObject *unused)
{
    PyObject *list = PyList_New(0);
    for (int kind = 0; list != NULL && kind < KIN_EVENT__COUNT; kind++)
        if (append(list, PyUnicode_FromString(kin_event_name((kin_event_kind)kind))) < 0)
            Py_CLEAR(list);
    return list;
}

PyMethodDef kin_dump_methods[] = {
    {"set_listener", set_listener, METH_O, "set_listener(f): f() is called soon after something was recorded."},
    {"take_recorded", take_recorded, METH_NOARGS, "Entries recorded or extended since the last time this was asked."},
    {"events_since", events_since, METH_O, "events_since(n): (number, kind, why, JSON text) of the kept events from number n on; why: row of break_rows() + 1, 0: none."},
    {"event_kinds", event_kinds, METH_NOARGS, "Names of the kinds of events, by number."},
    {"dump", dump_method, METH_O, "dump(entry): what an entry holds, as plain objects."},
    {"kernels", kernels_method, METH_O, "kernels(entry): what became of its graphs, as plain objects."},
    {"pass_texts", pass_texts_method, METH_VARARGS,
     "pass_texts(entry, i, j): what each pass left when version j of subgraph i in kernels(entry) was compiled, as dicts."},
    {"break_rows", break_rows_method, METH_NOARGS, "All known reasons for graph breaks."},
    {NULL, NULL, 0, NULL},
};
