/* The Entry type: owns a kin_entry, and holds what dispatch needs to know about its trace, and its counters. */
#include "py/cache/entry_object.h"

#include <stddef.h>
#include <structmember.h>

#include "py/guardeval/guard.h"
#include "py/replay/replay.h"
#include "py/replay/subgraphs.h"

/* -- life -------------------------------------------------------------------------------------------------- */

static int
traverse_entry(PyObject *obj, visitproc visit, void *arg)
{
    kin_entry_object *self = (kin_entry_object *)obj;
    Py_VISIT(Py_TYPE(obj));
    Py_VISIT(self->cause);
    if (self->v != NULL) {
        Py_VISIT(self->v->func);
        for (uint32_t u = 0; self->v->subgraphs != NULL && u < self->v->subgraphs->at.len; u++) {
            kin_launcher *launcher = self->v->subgraphs->at.at[u].launcher;
            int stop = launcher != NULL && launcher->traverse != NULL ? launcher->traverse(launcher, visit, arg) : 0;
            if (stop != 0)
                return stop;
        }
        return kin_refs_traverse(&self->v->refs, visit, arg);
    }
    return 0;
}

/* Frees the entry. An unreachable one is not running: a running replay holds a reference. */
static int
clear_entry(PyObject *obj)
{
    kin_entry_object *self = (kin_entry_object *)obj;
    kin_entry *v = self->v;
    self->v = NULL;
    self->roots.len = 0;
    kin_entry_free(v);
    return 0;
}

static void
dealloc_entry(PyObject *obj)
{
    kin_entry_object *self = (kin_entry_object *)obj;
    PyTypeObject *type = Py_TYPE(obj);
    PyObject_GC_UnTrack(obj);
    if (self->weakrefs != NULL)
        PyObject_ClearWeakRefs(obj);
    clear_entry(obj);
    free(self->spare);
    kin_vec_deinit(&self->roots);
    kin_vec_deinit(&self->attempts);
    kin_tierdown_deinit(&self->tierdown);
    Py_XDECREF(self->name);
    Py_XDECREF(self->dynamic_sources);
    Py_XDECREF(self->cause);
    Py_XDECREF(self->reason);
    type->tp_free(obj);
    Py_DECREF(type);
}

/* -- what dispatch needs ----------------------------------------------------------------------------------- */

static kin_status
find_roots(kin_entry_object *self, uint32_t nparams)
{
    const kin_trace *t = &self->v->trace;
    self->roots.len = 0;
    for (uint32_t vid = 1; vid < t->vals.len; vid++) {
        const kin_val *val = &t->vals.at[vid];
        kin_root root = {vid, KIN_ROOT_FUNC};
        if (val->kind != KIN_VAL_SRC || (val->access != KIN_ACCESS_LOCAL && val->access != KIN_ACCESS_FUNC))
            continue;
        if (val->access == KIN_ACCESS_LOCAL) {
            if (val->key >= nparams)
                return KIN_BUG;
            root.local = val->key;
        }
        KIN_TRY(kin_vec_push(&self->roots, root));
    }
    return KIN_OK;
}

kin_status
kin_entry_object_refresh(kin_entry_object *self, uint32_t nparams)
{
    KIN_TRY(find_roots(self, nparams));
    if (self->nslots != self->v->trace.vals.len) {
        self->nslots = self->v->trace.vals.len;
        free(self->spare);
        self->spare = NULL;
    }
    while (self->attempts.len < self->v->trace.steps.len)
        KIN_TRY(kin_vec_push(&self->attempts, 0));
    return KIN_OK;
}

kin_status
kin_entry_object_new(kin_state *st, kin_entry *v, const kin_bind_plan *plan, PyObject *name, PyObject *cause,
                       const char *reason, kin_entry_object **out)
{
    PyTypeObject *type = st->entry_type;
    kin_entry_object *self = (kin_entry_object *)type->tp_alloc(type, 0);
    *out = NULL;
    if (self == NULL)
        return KIN_PYERR;
    self->v = v;
    kin_tierdown_init(&self->tierdown);
    self->number = st->next_entry++;
    self->name = Py_NewRef(name);
    self->cause = Py_XNewRef(cause);
    self->reason = PyUnicode_DecodeUTF8(reason, (Py_ssize_t)strlen(reason), "replace");
    kin_status status = self->reason == NULL ? KIN_PYERR : kin_entry_object_refresh(self, kin_bind_count(plan));
    if (status != KIN_OK) {
        self->v = NULL; /* stays the caller's */
        Py_DECREF(self);
        return status;
    }
    *out = self;
    return KIN_OK;
}

void
kin_entry_object_set_reason(kin_entry_object *self, const char *reason)
{
    PyObject *text = PyUnicode_DecodeUTF8(reason, (Py_ssize_t)strlen(reason), "replace");
    if (text == NULL)
        PyErr_Clear(); /* the old one stays */
    else
        Py_SETREF(self->reason, text);
}

PyObject **
kin_entry_slots_take(kin_entry_object *self)
{
    PyObject **slots = self->spare;
    if (slots == NULL)
        return calloc(self->nslots, sizeof *slots);
    self->spare = NULL;
    return slots;
}

void
kin_entry_slots_give(kin_entry_object *self, PyObject **slots, uint32_t len)
{
    if (self->spare == NULL && len == self->nslots)
        self->spare = slots;
    else
        free(slots);
}

/* -- numbers ----------------------------------------------------------------------------------------------- */

static uint32_t
count_steps(const kin_trace *t, unsigned flag)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < t->steps.len; i++)
        count += (t->steps.at[i].flags & flag) != 0;
    return count;
}

/* Memory that goes with the entry; objects that it only refers to belong to others. */
static size_t
count_bytes(const kin_entry_object *self, const kin_guard_stats *guards)
{
    const kin_entry *v = self->v;
    const kin_trace *t = &v->trace;
    size_t trace = t->vals.cap * sizeof *t->vals.at + t->steps.cap * sizeof *t->steps.at +
                   t->vids.cap * sizeof *t->vids.at + t->snaps.cap * sizeof *t->snaps.at +
                   t->facts.cap * sizeof *t->facts.at + t->stops.nsteps / 4 + t->stops.nvals * sizeof *t->stops.consts;
    size_t refs = v->refs.objs.cap * sizeof *v->refs.objs.at + v->refs.index.size * sizeof *v->refs.index.places;
    size_t counts = (v->exit_counts != NULL ? v->exit_counts[0] * sizeof *v->exit_counts : 0) +
                    self->attempts.cap * sizeof *self->attempts.at + self->roots.cap * sizeof *self->roots.at;
    return sizeof *self + sizeof *v + trace + refs + counts + guards->bytes + kin_sunk_bytes(v) +
           (self->spare != NULL ? self->nslots * sizeof *self->spare : 0);
}

PyObject *
kin_entry_stats(kin_entry_object *self)
{
    const kin_entry *v = self->v;
    if (v == NULL)
        return PyDict_New();
    const kin_trace *t = &v->trace;
    kin_guard_stats guards = {0};
    kin_guard_get_stats(v, &guards);
    PyObject *cause = self->cause == NULL ? Py_None : self->cause;
    PyObject *ratio = self->tierdown.ratio > 0 ? PyFloat_FromDouble(self->tierdown.ratio) : Py_NewRef(Py_None); /* None: never compared with eager */
    if (ratio == NULL)
        return NULL;
    return Py_BuildValue("{s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:d,s:n,s:K,s:K,s:K,s:I,s:I,s:I,s:K,s:O,s:O,s:O,s:N}",
                         "number", self->number, "graphs", t->ngraphs, "subgraphs", kin_subgraphs_count(v->subgraphs), "breaks", t->nbreaks, "guards", t->facts.len,
                         "ops", count_steps(t, KIN_STEP_TORCH), "steps", t->steps.len,
                         "effects", t->neffects, "epochs", t->nepochs, "branches", self->side_traces,
                         "instructions", self->ninstr,
                         "record_ms", v->record_ns / 1e6, "bytes", (Py_ssize_t)count_bytes(self, &guards),
                         "hits", (unsigned long long)v->hits, "exits", (unsigned long long)v->exits,
                         "misses", (unsigned long long)v->misses, "guard_words", guards.words,
                         "later_guard_words", guards.later_words, "guard_tests", guards.explicit_ops + guards.later_ops,
                         "fast_guard_hits", (unsigned long long)guards.fast_hits,
                         "reason", self->reason, "cause", cause, "backed_off", self->tierdown.backed_off ? Py_True : Py_False,
                         "ratio", ratio);
}

/* -- the type ---------------------------------------------------------------------------------------------- */

static PyObject *
stats_method(PyObject *self, PyObject *unused)
{
    return kin_entry_stats((kin_entry_object *)self);
}

/* Every number of stats() is an attribute too. */
static PyObject *
get_attribute(PyObject *obj, PyObject *name)
{
    PyObject *value = PyObject_GenericGetAttr(obj, name);
    if (value != NULL || !PyErr_ExceptionMatches(PyExc_AttributeError))
        return value;
    PyObject *type, *error, *traceback;
    PyErr_Fetch(&type, &error, &traceback);
    PyObject *stats = kin_entry_stats((kin_entry_object *)obj);
    if (stats != NULL)
        value = Py_XNewRef(PyDict_GetItemWithError(stats, name));
    Py_XDECREF(stats);
    if (value == NULL && !PyErr_Occurred()) {
        PyErr_Restore(type, error, traceback);
        return NULL;
    }
    Py_XDECREF(type);
    Py_XDECREF(error);
    Py_XDECREF(traceback);
    return value;
}

static PyObject *
show_entry(PyObject *obj)
{
    kin_entry_object *self = (kin_entry_object *)obj;
    if (self->v == NULL)
        return PyUnicode_FromFormat("<kintsugi.Entry of %U, dropped>", self->name);
    return PyUnicode_FromFormat("<kintsugi.Entry of %U: %u graphs, %u breaks, %u guards>", self->name,
                                self->v->trace.ngraphs, self->v->trace.nbreaks, self->v->trace.facts.len);
}

static PyMemberDef entry_members[] = {
    {"name", T_OBJECT_EX, offsetof(kin_entry_object, name), READONLY, "name of the compiled function"},
    {"__weaklistoffset__", T_PYSSIZET, offsetof(kin_entry_object, weakrefs), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyMethodDef entry_methods[] = {
    {"stats", stats_method, METH_NOARGS, "Numbers of this entry as a dict."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot entry_slots[] = {
    {Py_tp_doc, "One recorded way through a compiled function: its steps and the guards under which they hold."},
    {Py_tp_dealloc, dealloc_entry},
    {Py_tp_traverse, traverse_entry},
    {Py_tp_clear, clear_entry},
    {Py_tp_getattro, get_attribute},
    {Py_tp_repr, show_entry},
    {Py_tp_members, entry_members},
    {Py_tp_methods, entry_methods},
    {0, NULL},
};

static PyType_Spec entry_spec = {
    .name = "kintsugi._kintsugi.Entry",
    .basicsize = sizeof(kin_entry_object),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_IMMUTABLETYPE | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = entry_slots,
};

PyType_Spec *
kin_entry_type_spec(void)
{
    return &entry_spec;
}

kin_entry *
kin_entry_from_object(PyObject *obj)
{
    /* The type is reached by its slot: all instances are made by this module. */
    if (Py_TYPE(obj)->tp_dealloc != dealloc_entry) {
        PyErr_SetString(PyExc_TypeError, "expected a kintsugi Entry");
        return NULL;
    }
    kin_entry *v = ((kin_entry_object *)obj)->v;
    if (v == NULL)
        PyErr_SetString(PyExc_ValueError, "this entry was dropped");
    return v;
}
