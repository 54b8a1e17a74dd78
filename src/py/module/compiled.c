/* The Compiled type (compiled.h). Attributes that it does not define are those of the function behind it. */
#include "py/module/compiled.h"

#include <stddef.h>
#include <structmember.h>

#include "py/aten/modes.h"
#include "py/compat/imports.h"
#include "py/compat/kinds.h"
#include "py/module/dispatch.h"
#include "py/module/lower.h"
#include "py/report/dump.h"

/* -- life -------------------------------------------------------------------------------------------------- */

static void
link_in(kin_compiled *self, kin_state *st)
{
    self->next = st->first;
    self->link = &st->first;
    if (st->first != NULL)
        st->first->link = &self->next;
    st->first = self;
}

static void
unlink_from(kin_compiled *self)
{
    if (self->link == NULL)
        return;
    *self->link = self->next;
    if (self->next != NULL)
        self->next->link = self->link;
    self->next = NULL;
    self->link = NULL;
}

/* fn.__name__, else the name of its class. New str. */
static PyObject *
name_of(PyObject *fn)
{
    PyObject *name = PyObject_GetAttrString(fn, "__qualname__");
    if (name == NULL) {
        PyErr_Clear();
        name = PyUnicode_FromString(Py_TYPE(fn)->tp_name);
    }
    if (name != NULL && !PyUnicode_Check(name)) {
        Py_DECREF(name);
        name = PyUnicode_FromString("?");
    }
    return name;
}

/* What generic lookup would find on the type instead, and what inspect looks for; all may be assigned later. */
static int
copy_identity(kin_compiled *self)
{
    static const char *const names[] = {"__module__", "__doc__"};
    if (PyDict_SetItemString(self->dict, "__wrapped__", self->fn) < 0)
        return -1;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        PyObject *value = PyObject_GetAttrString(self->fn, names[i]);
        if (value == NULL) {
            PyErr_Clear();
            continue;
        }
        int status = PyDict_SetItemString(self->dict, names[i], value);
        Py_DECREF(value);
        if (status < 0)
            return -1;
    }
    return 0;
}

/* The package has checked names and kinds. */
static int8_t
read_option(PyObject *options, const char *name)
{
    PyObject *value = PyDict_Check(options) ? PyDict_GetItemString(options, name) : NULL;
    return value == NULL || !PyBool_Check(value) ? -1 : value == Py_True;
}

static uint32_t
read_threads(PyObject *options)
{
    PyObject *value = PyDict_Check(options) ? PyDict_GetItemString(options, "threads") : NULL;
    long threads = value == NULL || !PyLong_CheckExact(value) ? 0 : PyLong_AsLong(value);
    PyErr_Clear(); /* beyond what a long holds: no limit */
    return threads > 0 && threads < INT32_MAX ? (uint32_t)threads : 0;
}

/* "validate": a number of launches, or a share of all. */
static void
read_validate(kin_compiled *self, PyObject *options)
{
    PyObject *value = PyDict_Check(options) ? PyDict_GetItemString(options, "validate") : NULL;
    if (value != NULL && PyFloat_CheckExact(value) && PyFloat_AS_DOUBLE(value) > 1e-9)
        self->validate_every = (uint32_t)(1 / PyFloat_AS_DOUBLE(value) + 0.5);
    long count = value != NULL && PyLong_CheckExact(value) ? PyLong_AsLong(value) : 0;
    PyErr_Clear(); /* beyond what a long holds: all */
    self->validate = count > 0 && count < INT32_MAX ? (uint32_t)count : 0;
}

/* None: 0. */
static uint32_t
read_limit(PyObject *limit)
{
    long count = PyLong_CheckExact(limit) ? PyLong_AsLong(limit) : 0;
    PyErr_Clear(); /* beyond what a long holds: no limit */
    return count > 0 && count < INT32_MAX ? (uint32_t)count : 0;
}

static PyObject *
new_compiled(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"fn", "fullgraph", "dynamic", "backend", "name", "options", "disable",
                             "recompile_limit", NULL};
    PyObject *fn, *dynamic = Py_None, *backend = Py_None, *options = Py_None, *limit = Py_None, *name = NULL;
    int fullgraph = 0, disable = 0;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|$pOOUOpO:Compiled", names, &fn, &fullgraph, &dynamic, &backend,
                                     &name, &options, &disable, &limit))
        return NULL;
    kin_state *st = PyType_GetModuleState(type);
    if (st == NULL)
        return NULL;
    if (!PyCallable_Check(fn)) {
        PyErr_Format(PyExc_TypeError, "cannot compile '%.200s' object: it is not callable", Py_TYPE(fn)->tp_name);
        return NULL;
    }
    kin_compiled *self = (kin_compiled *)type->tp_alloc(type, 0);
    if (self == NULL)
        return NULL;
    self->vectorcall = kin_dispatch;
    self->state = st;
    self->fullgraph = fullgraph;
    self->disabled = disable;
    self->kernels = read_option(options, "kernels");
    self->freezing = read_option(options, "freezing");
    self->async = read_option(options, "async");
    self->fast_math = read_option(options, "fast_math");
    self->cuda_graphs = read_option(options, "cuda_graphs") == 1;
    self->threads = read_threads(options);
    read_validate(self, options);
    self->warm = read_option(options, "warm") == 1;
    self->recompile_limit = read_limit(limit);
    self->fn = Py_NewRef(Py_IS_TYPE(fn, type) ? ((kin_compiled *)fn)->fn : fn);
    self->name = name != NULL && PyUnicode_GET_LENGTH(name) > 0 ? Py_NewRef(name) : name_of(self->fn);
    self->dynamic = dynamic == Py_None ? -1 : dynamic == Py_True;
    self->kwargs = Py_BuildValue("{s:O,s:O,s:O,s:O,s:O}", "fullgraph", fullgraph ? Py_True : Py_False, "dynamic",
                                 dynamic, "backend", backend, "options", options, "disable",
                                 disable ? Py_True : Py_False);
    self->dict = PyDict_New();
    if (self->name == NULL || self->kwargs == NULL || self->dict == NULL || copy_identity(self) < 0 ||
        (limit != Py_None && PyDict_SetItemString(self->kwargs, "recompile_limit", limit) < 0)) {
        Py_DECREF(self);
        return NULL;
    }
    link_in(self, st);
    return (PyObject *)self;
}

static int
traverse_compiled(PyObject *obj, visitproc visit, void *arg)
{
    kin_compiled *self = (kin_compiled *)obj;
    Py_VISIT(Py_TYPE(obj));
    Py_VISIT(self->fn);
    Py_VISIT(self->kwargs);
    Py_VISIT(self->dict);
    return kin_cache_traverse(&self->cache, visit, arg);
}

static int
clear_compiled(PyObject *obj)
{
    kin_compiled *self = (kin_compiled *)obj;
    kin_cache_clear(&self->cache);
    Py_CLEAR(self->fn);
    Py_CLEAR(self->kwargs);
    Py_CLEAR(self->dict);
    return 0;
}

static void
dealloc_compiled(PyObject *obj)
{
    kin_compiled *self = (kin_compiled *)obj;
    PyTypeObject *type = Py_TYPE(obj);
    PyObject_GC_UnTrack(obj);
    unlink_from(self);
    if (self->weakrefs != NULL)
        PyObject_ClearWeakRefs(obj);
    clear_compiled(obj);
    kin_cache_deinit(&self->cache);
    Py_XDECREF(self->name);
    type->tp_free(obj);
    Py_DECREF(type);
}

/* -- looking like the function ------------------------------------------------------------------------------- */

static PyObject *
get_attribute(PyObject *obj, PyObject *name)
{
    kin_compiled *self = (kin_compiled *)obj;
    if (kin_text_is(name, "__code__") && kin_symbolic_active() && kin_symbolic_refuse() < 0)
        return NULL; /* torch.fx looks at the code of what it is to trace */
    PyObject *value = PyObject_GenericGetAttr(obj, name);
    if (value != NULL || self->fn == NULL || !PyErr_ExceptionMatches(PyExc_AttributeError))
        return value;
    PyErr_Clear();
    value = PyObject_GetAttr(self->fn, name);
    if (value == NULL && PyErr_ExceptionMatches(PyExc_AttributeError) && PyUnicode_Check(name) &&
        PyUnicode_CompareWithASCIIString(name, "__name__") == 0) {
        PyErr_Clear();
        return Py_NewRef(self->name);
    }
    return value;
}

/* A compiled plain function binds as a function does; a compiled method or object does not, as those do not. */
static PyObject *
bind_method(PyObject *obj, PyObject *instance, PyObject *owner)
{
    kin_compiled *self = (kin_compiled *)obj;
    if (instance == NULL || instance == Py_None || self->fn == NULL || !PyFunction_Check(self->fn))
        return Py_NewRef(obj);
    return PyMethod_New(obj, instance);
}

static PyObject *
show_compiled(PyObject *obj)
{
    kin_compiled *self = (kin_compiled *)obj;
    return PyUnicode_FromFormat("<kintsugi.Compiled %U at %p>", self->name, obj);
}

static PyObject *
get_fn(PyObject *obj, void *unused)
{
    PyObject *fn = ((kin_compiled *)obj)->fn;
    return Py_NewRef(fn == NULL ? Py_None : fn);
}

static PyObject *
get_id(PyObject *obj, void *unused)
{
    return PyLong_FromVoidPtr(obj);
}

/* -- copies ------------------------------------------------------------------------------------------------ */

PyObject *
kin_compiled_rebuild(PyObject *fn, PyObject *kwargs)
{
    PyObject *result = NULL, *args = PyTuple_Pack(1, fn);
    PyObject *compile = kin_import("kintsugi", "compile");
    if (args != NULL && compile != NULL)
        result = PyObject_Call(compile, args, kwargs);
    Py_XDECREF(args);
    Py_XDECREF(compile);
    return result;
}

/* Is `module.qualname` this very object, as after `@kintsugi.compile` at module level? Errors say no. */
static bool
is_found_by_name(PyObject *obj, PyObject *qualname)
{
    PyObject *found = NULL, *module = PyObject_GetAttrString(obj, "__module__");
    if (module != NULL && PyUnicode_Check(module) && PyUnicode_Check(qualname)) {
        PyObject *owner = PyImport_GetModule(module);
        found = owner == NULL ? NULL : PyObject_GetAttr(owner, qualname);
        Py_XDECREF(owner);
    }
    PyErr_Clear();
    Py_XDECREF(module);
    Py_XDECREF(found);
    return found == obj;
}

/* By name where the name leads here, as functions do; else kintsugi.compile(fn, ...). */
static PyObject *
reduce_compiled(PyObject *obj, PyObject *unused)
{
    kin_compiled *self = (kin_compiled *)obj;
    PyObject *qualname = PyObject_GetAttrString(obj, "__qualname__");
    if (qualname != NULL && is_found_by_name(obj, qualname))
        return qualname;
    PyErr_Clear();
    Py_XDECREF(qualname);
    PyObject *module = PyType_GetModule(Py_TYPE(obj));
    PyObject *rebuild = module == NULL ? NULL : PyObject_GetAttrString(module, "_rebuild");
    if (rebuild == NULL)
        return NULL;
    return Py_BuildValue("(N(OO))", rebuild, self->fn, self->kwargs);
}

/* Another Compiled for `fn`, with this one's options, name and attributes. Steals fn. */
static PyObject *
make_copy(kin_compiled *self, PyObject *fn)
{
    PyObject *copy = NULL, *args = fn == NULL ? NULL : PyTuple_Pack(1, fn), *kwargs = PyDict_Copy(self->kwargs);
    if (args != NULL && kwargs != NULL && PyDict_SetItemString(kwargs, "name", self->name) == 0)
        copy = PyObject_Call((PyObject *)Py_TYPE(self), args, kwargs);
    if (copy != NULL && PyDict_Merge(((kin_compiled *)copy)->dict, self->dict, 0) < 0)
        Py_CLEAR(copy);
    Py_XDECREF(args);
    Py_XDECREF(kwargs);
    Py_XDECREF(fn);
    return copy;
}

static PyObject *
copy_compiled(PyObject *obj, PyObject *unused)
{
    kin_compiled *self = (kin_compiled *)obj;
    return make_copy(self, Py_NewRef(self->fn));
}

/* Functions are copied by reference, the objects behind methods and modules are copied deeply. */
static PyObject *
deepcopy_compiled(PyObject *obj, PyObject *memo)
{
    kin_compiled *self = (kin_compiled *)obj;
    PyObject *copy = PyImport_ImportModule("copy");
    PyObject *fn = copy == NULL ? NULL : PyObject_CallMethod(copy, "deepcopy", "OO", self->fn, memo);
    Py_XDECREF(copy);
    return make_copy(self, fn);
}

/* -- reports ----------------------------------------------------------------------------------------------- */

static PyObject *
eager_dict(const kin_compiled *self)
{
    PyObject *dict = PyDict_New();
    for (int why = 1; dict != NULL && why < KIN_EAGER__COUNT; why++) {
        if (self->count.eager[why] == 0)
            continue;
        PyObject *count = PyLong_FromUnsignedLongLong(self->count.eager[why]);
        if (count == NULL || PyDict_SetItemString(dict, kin_eager_text((kin_eager)why), count) < 0)
            Py_CLEAR(dict);
        Py_XDECREF(count);
    }
    return dict;
}

PyObject *
kin_compiled_stats(kin_compiled *self)
{
    unsigned long long breaks = 0, effects = 0, exits = 0, handed_out = 0;
    PyObject *entries = PyList_New(0), *all = kin_cache_list(&self->cache);
    for (Py_ssize_t i = 0; entries != NULL && all != NULL && i < PyList_GET_SIZE(all); i++) {
        kin_entry_object *entry = (kin_entry_object *)PyList_GET_ITEM(all, i);
        PyObject *stats = kin_entry_stats(entry);
        if (stats == NULL || PyList_Append(entries, stats) < 0)
            Py_CLEAR(entries);
        Py_XDECREF(stats);
        breaks += entry->v == NULL ? 0 : entry->v->trace.nbreaks;
        effects += entry->v == NULL ? 0 : entry->v->trace.neffects;
        handed_out += entry->v == NULL ? 0 : kin_dump_handed_out(entry->v);
        exits += entry->v == NULL ? 0 : entry->v->exits;
    }
    /* These run eagerly as a whole, and that is no graph without a break. */
    breaks += (self->count.eager[KIN_EAGER_GENERATOR] > 0) + (self->count.eager[KIN_EAGER_COROUTINE] > 0);
    Py_XDECREF(all);
    PyObject *eager = eager_dict(self);
    if (entries == NULL || all == NULL || eager == NULL) {
        Py_XDECREF(entries);
        Py_XDECREF(eager);
        return NULL;
    }
    static const char *const ran[] = {[KIN_RAN_NOTHING] = "", [KIN_RAN_EAGERLY] = "eager", [KIN_RAN_RECORDED] = "recorded",
                                      [KIN_RAN_STEPS] = "step by step", [KIN_RAN_COMPILED] = "compiled"};
    const kin_counters *n = &self->count;
    return Py_BuildValue("{s:O,s:K,s:K,s:K,s:K,s:s,s:{s:K,s:K,s:s},s:K,s:K,s:K,s:N,s:K,s:K,s:K,s:N}", "name", self->name,
                         "calls", (unsigned long long)n->calls, "recordings", (unsigned long long)n->recordings,
                         "replays", (unsigned long long)n->replays,
                         "compiled_calls", (unsigned long long)n->compiled, "last_call", ran[n->last],
                         "optimizer_steps", "compiled", (unsigned long long)n->optimizers.done,
                         "eager", (unsigned long long)n->optimizers.left, "reason", n->optimizers.why == NULL ? "" : n->optimizers.why,
                         "guard_misses", (unsigned long long)n->guard_misses,
                         "bail_outs", exits, "branches", (unsigned long long)n->extended,
                         "eager_calls", eager, "breaks", breaks, "deferred_effects", effects, "handed_out", handed_out, "variants", entries);
}

static PyObject *
stats_method(PyObject *obj, PyObject *unused)
{
    return kin_compiled_stats((kin_compiled *)obj);
}

static PyObject *
entries_method(PyObject *obj, PyObject *unused)
{
    return kin_cache_list(&((kin_compiled *)obj)->cache);
}

static PyObject *
reset_method(PyObject *obj, PyObject *unused)
{
    kin_compiled *self = (kin_compiled *)obj;
    kin_cache_clear(&self->cache);
    memset(&self->count, 0, sizeof self->count);
    Py_RETURN_NONE;
}

void
kin_compiled_forget_state(kin_state *st)
{
    while (st->first != NULL) {
        kin_compiled *self = st->first;
        unlink_from(self);
        self->state = NULL;
    }
}

PyObject *
kin_compiled_all(kin_state *st)
{
    PyObject *list = PyList_New(0);
    for (kin_compiled *self = st->first; list != NULL && self != NULL; self = self->next)
        if (PyList_Append(list, (PyObject *)self) < 0)
            Py_CLEAR(list);
    return list;
}

/* -- the type ---------------------------------------------------------------------------------------------- */

static PyGetSetDef compiled_getset[] = {
    {"__dict__", PyObject_GenericGetDict, PyObject_GenericSetDict, NULL, NULL},
    {"fn", get_fn, NULL, "the original callable", NULL},
    /* Names by which tools that unwrap compiled functions ask. */
    {"_torchdynamo_orig_callable", get_fn, NULL, "the original callable", NULL},
    {"_torchdynamo_wrapper_id", get_id, NULL, "id() of this object", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyMemberDef compiled_members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(kin_compiled, vectorcall), READONLY, NULL},
    {"__dictoffset__", T_PYSSIZET, offsetof(kin_compiled, dict), READONLY, NULL},
    {"__weaklistoffset__", T_PYSSIZET, offsetof(kin_compiled, weakrefs), READONLY, NULL},
    {"kwargs", T_OBJECT, offsetof(kin_compiled, kwargs), READONLY, "the options it was compiled with"},
    {NULL, 0, 0, 0, NULL},
};

static PyObject *
divide_method(PyObject *obj, PyObject *args)
{
    kin_compiled *self = (kin_compiled *)obj;
    PyObject *entry, *backend;
    return PyArg_ParseTuple(args, "O!O", self->state->entry_type, &entry, &backend) ? kin_lower_divide(self, (kin_entry_object *)entry, backend) : NULL;
}

static PyMethodDef compiled_methods[] = {
    {"stats", stats_method, METH_NOARGS, "Counters of this function and of its entries as a dict."},
    {"entries", entries_method, METH_NOARGS, "The recorded entries."},
    {"_divide", divide_method, METH_VARARGS,
     "_divide(entry, backend): (graph, where its part ends) of each that a backend gets of an entry which is used for nothing else."},
    {"reset", reset_method, METH_NOARGS, "Drops all entries and counters."},
    {"__reduce__", reduce_compiled, METH_NOARGS, NULL},
    {"__copy__", copy_compiled, METH_NOARGS, NULL},
    {"__deepcopy__", deepcopy_compiled, METH_O, NULL},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot compiled_slots[] = {
    {Py_tp_doc, "A callable that records its first call and replays later ones while their guards hold."},
    {Py_tp_new, new_compiled},
    {Py_tp_dealloc, dealloc_compiled},
    {Py_tp_traverse, traverse_compiled},
    {Py_tp_clear, clear_compiled},
    {Py_tp_call, PyVectorcall_Call},
    {Py_tp_getattro, get_attribute},
    {Py_tp_descr_get, bind_method},
    {Py_tp_repr, show_compiled},
    {Py_tp_getset, compiled_getset},
    {Py_tp_members, compiled_members},
    {Py_tp_methods, compiled_methods},
    {0, NULL},
};

static PyType_Spec compiled_spec = {
    .name = "kintsugi._kintsugi.Compiled",
    .basicsize = sizeof(kin_compiled),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = compiled_slots,
};

PyType_Spec *
kin_compiled_type_spec(void)
{
    return &compiled_spec;
}
