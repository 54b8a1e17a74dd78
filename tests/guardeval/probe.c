/* kinprobe: guards built by hand, for tests. An entry is described in Python:
 *
 *     v = kinprobe.Entry(func, vals, facts, used=[...], writes=[...])
 *     vals:  [("const", obj) | ("src", access, epoch, parent, key) | ("step",)], numbered from 1
 *     facts: [(kind, epoch, vid, vid2, ref object or None, num)]
 *     used:  vids that a step uses (they must come back in the slots)
 *     v.eval(epoch, {vid: obj}) -> (ok, fact or None, vid, {vid: loaded object})
 *
 * For accesses with a name or key, `key` is the object; for the others a number.
 */
#define PY_SSIZE_T_CLEAN
#include "py/aten/tensor.h"
#include "py/compat/heap.h"
#include "py/guardeval/guard.h"
#include "py/report/guard_text.h"
#include <stddef.h>
#include <time.h>

static const char *const access_names[] = {
#define ACCESS(NAME, text) #NAME,
#include "core/trace/access.def"
#undef ACCESS
};
static const char *const fact_names[] = {
#define FACT(NAME, text, guard, says) #NAME,
#include "core/trace/facts.def"
#undef FACT
};
static const char *const step_names[] = {
#define STEP(NAME, text, looks, late, changes, does, doc) #NAME,
#include "core/trace/steps.def"
#undef STEP
};

static int
find_name(const char *const *names, int n, const char *name)
{
    for (int i = 0; i < n; i++)
        if (strcmp(names[i], name) == 0)
            return i;
    PyErr_Format(PyExc_KeyError, "no such kind: %s", name);
    return -1;
}
#define FIND(names, name) find_name(names, (int)(sizeof(names) / sizeof(names)[0]), name)

static int
check(kin_status status)
{
    if (status == KIN_OK)
        return 0;
    if (status != KIN_PYERR)
        PyErr_Format(PyExc_RuntimeError, "kin_status %d", (int)status);
    return -1;
}

/* ---- Entry -------------------------------------------------------------------------------------------------- */

typedef struct {
    PyObject_HEAD
    kin_entry v;
} entry_object;

static bool
has_ref_key(int access)
{
    return access == KIN_ACCESS_KWDEFAULT || access == KIN_ACCESS_IATTR || access == KIN_ACCESS_TYPEATTR ||
           access == KIN_ACCESS_DICT_ITEM;
}

static int
read_key(kin_refs *refs, int access, PyObject *key, uint32_t *out)
{
    if (has_ref_key(access))
        return check(kin_refs_add(refs, key, out));
    *out = (uint32_t)PyLong_AsUnsignedLong(key);
    return PyErr_Occurred() ? -1 : 0;
}

static int
add_val(entry_object *self, PyObject *item)
{
    kin_val val = {.kind = KIN_VAL_STEP};
    const char *kind = PyUnicode_AsUTF8(PyTuple_GetItem(item, 0)), *access_name;
    if (strcmp(kind, "const") == 0) {
        val.kind = KIN_VAL_CONST;
        if (check(kin_refs_add(&self->v.refs, PyTuple_GetItem(item, 1), &val.key)) < 0)
            return -1;
    }
    else if (strcmp(kind, "src") == 0) {
        PyObject *key;
        unsigned int epoch, parent;
        if (!PyArg_ParseTuple(item, "ssIIO", &kind, &access_name, &epoch, &parent, &key))
            return -1;
        int access = FIND(access_names, access_name);
        if (access < 0 || read_key(&self->v.refs, access, key, &val.key) < 0)
            return -1;
        val.kind = KIN_VAL_SRC;
        val.access = (uint8_t)access;
        val.epoch = (uint16_t)epoch;
        val.parent = parent;
    }
    return check(kin_vec_push(&self->v.trace.vals, val));
}

static int
read_fact(kin_refs *refs, PyObject *item, kin_fact *fact)
{
    const char *name;
    unsigned int epoch, vid, vid2, num;
    PyObject *ref;
    if (!PyArg_ParseTuple(item, "sIIIOI", &name, &epoch, &vid, &vid2, &ref, &num))
        return -1;
    int kind = FIND(fact_names, name);
    *fact = (kin_fact){.kind = (uint8_t)kind, .epoch = (uint16_t)epoch, .vid = vid, .vid2 = vid2, .num = num};
    if (kind < 0)
        return -1;
    bool no_ref = ref == Py_None && kind != KIN_FACT_EQ && kind != KIN_FACT_ID && kind != KIN_FACT_NOT_ID;
    return no_ref ? 0 : check(kin_refs_add(refs, ref, &fact->ref));
}

static int
add_step(entry_object *self, int kind, const kin_vid *vids, uint32_t n, kin_ref ref)
{
    kin_step step = {.kind = (uint8_t)kind, .args = self->v.trace.vids.len, .nargs = (uint16_t)n, .ref = ref};
    for (uint32_t i = 0; i < n; i++)
        if (check(kin_vec_push(&self->v.trace.vids, vids[i])) < 0)
            return -1;
    return check(kin_vec_push(&self->v.trace.steps, step));
}

static int
add_write(entry_object *self, PyObject *item)
{
    const char *name;
    unsigned int vid;
    PyObject *key;
    kin_ref ref;
    if (!PyArg_ParseTuple(item, "sIO", &name, &vid, &key) || check(kin_refs_add(&self->v.refs, key, &ref)) < 0)
        return -1;
    int kind = FIND(step_names, name);
    return kind < 0 ? -1 : add_step(self, kind, &vid, 1, ref);
}

static int
for_each(entry_object *self, PyObject *list, int (*add)(entry_object *, PyObject *))
{
    PyObject *fast = list ? PySequence_Fast(list, "a sequence") : NULL;
    int res = list && !fast ? -1 : 0;
    for (Py_ssize_t i = 0; fast && res == 0 && i < PySequence_Fast_GET_SIZE(fast); i++)
        res = add(self, PySequence_Fast_GET_ITEM(fast, i));
    Py_XDECREF(fast);
    return res;
}

static int
add_fact(entry_object *self, PyObject *item)
{
    kin_fact fact;
    return read_fact(&self->v.refs, item, &fact) < 0 ? -1 : check(kin_vec_push(&self->v.trace.facts, fact));
}

static int
add_use(entry_object *self, PyObject *item)
{
    kin_vid vid = (kin_vid)PyLong_AsUnsignedLong(item);
    return PyErr_Occurred() ? -1 : add_step(self, KIN_STEP_CALL, &vid, 1, 0);
}

static PyObject *
entry_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"func", "vals", "facts", "used", "writes", "nepochs", NULL};
    PyObject *func, *vals, *facts, *used = NULL, *writes = NULL;
    unsigned int nepochs = 1;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OOO|OOI", names, &func, &vals, &facts, &used, &writes, &nepochs))
        return NULL;
    entry_object *self = (entry_object *)type->tp_alloc(type, 0);
    if (self == NULL)
        return NULL;
    kin_trace *t = &self->v.trace;
    self->v.func = func == Py_None ? NULL : Py_NewRef(func);
    t->nepochs = nepochs;
    if (check(kin_refs_init(&self->v.refs)) < 0 || check(kin_vec_push(&t->vals, (kin_val){0})) < 0 ||
        check(kin_vec_push(&t->snaps, (kin_snap){0})) < 0 || add_step(self, KIN_STEP_EPOCH, NULL, 0, 0) < 0 ||
        for_each(self, vals, add_val) < 0 || for_each(self, facts, add_fact) < 0 ||
        for_each(self, used, add_use) < 0 || for_each(self, writes, add_write) < 0 ||
        check(kin_guard_build(&self->v)) < 0) {
        Py_DECREF(self);
        return NULL;
    }
    return (PyObject *)self;
}

static void
entry_dealloc(PyObject *op)
{
    entry_object *self = (entry_object *)op;
    kin_trace *t = &self->v.trace;
    kin_guard_free(self->v.guards);
    kin_vec_deinit(&t->vals);
    kin_vec_deinit(&t->steps);
    kin_vec_deinit(&t->vids);
    kin_vec_deinit(&t->snaps);
    kin_vec_deinit(&t->facts);
    if (self->v.refs.objs.at)
        kin_refs_deinit(&self->v.refs);
    Py_XDECREF(self->v.func);
    Py_TYPE(op)->tp_free(op);
}

static PyObject **
make_slots(entry_object *self, PyObject *given)
{
    PyObject **slots = PyMem_Calloc(self->v.trace.vals.len + 1, sizeof *slots);
    PyObject *key, *value;
    Py_ssize_t pos = 0;
    while (slots && PyDict_Next(given, &pos, &key, &value))
        slots[PyLong_AsLong(key)] = Py_NewRef(value);
    return slots;
}

static void
free_slots(entry_object *self, PyObject **slots)
{
    for (uint32_t i = 0; i < self->v.trace.vals.len; i++)
        Py_XDECREF(slots[i]);
    PyMem_Free(slots);
}

static PyObject *
list_loaded(entry_object *self, PyObject **slots, PyObject *given)
{
    PyObject *out = PyDict_New();
    for (uint32_t i = 1; out && i < self->v.trace.vals.len; i++) {
        PyObject *vid = PyLong_FromUnsignedLong(i);
        if (vid == NULL || (slots[i] && !PyDict_Contains(given, vid) && PyDict_SetItem(out, vid, slots[i]) < 0))
            Py_CLEAR(out);
        Py_XDECREF(vid);
    }
    return out;
}

static PyObject *
entry_eval(PyObject *op, PyObject *args)
{
    entry_object *self = (entry_object *)op;
    unsigned int epoch;
    PyObject *given;
    if (!PyArg_ParseTuple(args, "IO!", &epoch, &PyDict_Type, &given))
        return NULL;
    PyObject **slots = make_slots(self, given);
    if (slots == NULL)
        return PyErr_NoMemory();
    kin_guard_miss miss = {.fact = UINT32_MAX};
    bool ok = kin_guard_eval(&self->v, epoch, slots, &miss);
    PyObject *loaded = list_loaded(self, slots, given);
    PyObject *fact = ok || miss.fact == UINT32_MAX ? Py_NewRef(Py_None) : PyLong_FromUnsignedLong(miss.fact);
    PyObject *text = ok ? Py_NewRef(Py_None) : kin_miss_text(&self->v, &miss, slots, true);
    free_slots(self, slots);
    if (!loaded || !fact || !text) {
        Py_XDECREF(loaded);
        Py_XDECREF(fact);
        Py_XDECREF(text);
        return NULL;
    }
    return Py_BuildValue("NNINN", PyBool_FromLong(ok), fact, miss.vid, loaded, text);
}

static PyObject *
entry_bench(PyObject *op, PyObject *args)
{
    entry_object *self = (entry_object *)op;
    unsigned int n;
    PyObject *given;
    if (!PyArg_ParseTuple(args, "IO!", &n, &PyDict_Type, &given))
        return NULL;
    PyObject **slots = make_slots(self, given);
    if (slots == NULL)
        return PyErr_NoMemory();
    struct timespec begin, end;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    bool ok = true;
    for (unsigned int i = 0; i < n; i++) {
        ok &= kin_guard_eval(&self->v, 0, slots, NULL);
        for (uint32_t k = 1; k < self->v.trace.vals.len; k++)
            if (slots[k] && self->v.trace.vals.at[k].parent)
                Py_CLEAR(slots[k]);
    }
    clock_gettime(CLOCK_MONOTONIC, &end);
    free_slots(self, slots);
    double ns = (double)(end.tv_sec - begin.tv_sec) * 1e9 + (double)(end.tv_nsec - begin.tv_nsec);
    return Py_BuildValue("Nd", PyBool_FromLong(ok), ns / n);
}

static PyObject *
entry_stats(PyObject *op, PyObject *unused)
{
    kin_guard_stats s;
    (void)unused;
    kin_guard_get_stats(&((entry_object *)op)->v, &s);
    return Py_BuildValue("{s:I,s:I,s:K,s:K,s:K,s:I,s:I,s:K,s:K}", "words", s.words, "ops", s.explicit_ops, "fast",
                         s.fast_hits, "explicit", s.explicit_hits, "rearms", s.rearms, "later_words", s.later_words,
                         "later_ops", s.later_ops, "later_fast", s.later_fast, "later_explicit", s.later_explicit);
}

static PyObject *
entry_source(PyObject *op, PyObject *arg)
{
    return kin_source_text(&((entry_object *)op)->v, (kin_vid)PyLong_AsUnsignedLong(arg));
}

static PyObject *
entry_fact(PyObject *op, PyObject *arg)
{
    return kin_fact_text(&((entry_object *)op)->v, (uint32_t)PyLong_AsUnsignedLong(arg));
}

static PyMethodDef entry_methods[] = {
    {"eval", entry_eval, METH_VARARGS, NULL},     {"bench", entry_bench, METH_VARARGS, NULL},
    {"stats", entry_stats, METH_NOARGS, NULL},    {"source", entry_source, METH_O, NULL},
    {"fact", entry_fact, METH_O, NULL},           {NULL, NULL, 0, NULL}};

static PyTypeObject entry_type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "kinprobe.Entry",
    .tp_basicsize = sizeof(entry_object),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_new = entry_new,
    .tp_dealloc = entry_dealloc,
    .tp_methods = entry_methods,
};

/* ---- functions ------------------------------------------------------------------------------------------------ */

/* The object, or KeyError: NULL is an answer here. */
static PyObject *
found(PyObject *obj)
{
    if (obj == NULL && !PyErr_Occurred())
        PyErr_SetString(PyExc_KeyError, "absent");
    return Py_XNewRef(obj);
}

static PyObject *
probe_read(PyObject *module, PyObject *args)
{
    const char *name;
    PyObject *key, *parent;
    (void)module;
    if (!PyArg_ParseTuple(args, "sOO", &name, &key, &parent))
        return NULL;
    kin_val val = {.kind = KIN_VAL_SRC};
    kin_refs refs;
    int access = FIND(access_names, name);
    if (access < 0 || check(kin_refs_init(&refs)) < 0)
        return NULL;
    val.access = (uint8_t)access;
    PyObject *out = read_key(&refs, access, key, &val.key) < 0 ? NULL : found(kin_guard_read(&refs, &val, parent));
    kin_refs_deinit(&refs);
    return out;
}

static PyObject *
probe_holds(PyObject *module, PyObject *args)
{
    PyObject *item, *obj, *obj2 = NULL;
    kin_refs refs;
    kin_fact fact;
    (void)module;
    if (!PyArg_ParseTuple(args, "OO|O", &item, &obj, &obj2) || check(kin_refs_init(&refs)) < 0)
        return NULL;
    PyObject *out = NULL;
    if (read_fact(&refs, item, &fact) == 0)
        out = PyBool_FromLong(kin_guard_holds(&refs, &fact, obj, obj2));
    kin_refs_deinit(&refs);
    return out;
}

static PyObject *
probe_exact_equal(PyObject *module, PyObject *args)
{
    PyObject *a, *b;
    (void)module;
    return PyArg_ParseTuple(args, "OO", &a, &b) ? PyBool_FromLong(kin_exact_equal(a, b)) : NULL;
}

static PyObject *
probe_is_immutable(PyObject *module, PyObject *obj)
{
    (void)module;
    return PyBool_FromLong(kin_is_exact_immutable(obj));
}

static PyObject *
probe_instance_attr(PyObject *module, PyObject *args)
{
    PyObject *obj, *name;
    (void)module;
    return PyArg_ParseTuple(args, "OO", &obj, &name) ? found(kin_instance_attr(obj, name)) : NULL;
}

static PyObject *
probe_instance_dict(PyObject *module, PyObject *obj)
{
    (void)module;
    return found(kin_instance_dict(obj));
}

static PyObject *
probe_type_tag(PyObject *module, PyObject *type)
{
    (void)module;
    return PyLong_FromUnsignedLong(kin_heap_type_tag((PyTypeObject *)type));
}

/* Numbers of the given objects, in order. */
static PyObject *
probe_number(PyObject *module, PyObject *objs)
{
    kin_refs refs;
    (void)module;
    PyObject *out = PyList_New(0);
    if (out == NULL || check(kin_refs_init(&refs)) < 0)
        return NULL;
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(objs); i++) {
        kin_ref ref;
        if (check(kin_refs_add(&refs, PyList_GET_ITEM(objs, i), &ref)) < 0)
            break;
        PyObject *number = PyLong_FromUnsignedLong(ref);
        if (number == NULL || kin_refs_get(&refs, ref) != PyList_GET_ITEM(objs, i) || PyList_Append(out, number) < 0)
            PyErr_SetString(PyExc_RuntimeError, "not found again");
        Py_XDECREF(number);
    }
    kin_refs_deinit(&refs);
    if (PyErr_Occurred())
        Py_CLEAR(out);
    return out;
}

static PyObject *
probe_aten_init(PyObject *module, PyObject *torch)
{
    (void)module;
    if (check(kin_aten_init(torch)) < 0)
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *
probe_tensor(PyObject *module, PyObject *obj)
{
    (void)module;
    return Py_BuildValue("ii", kin_is_plain_tensor(obj), kin_is_tensor(obj));
}

static PyObject *
probe_meta_make(PyObject *module, PyObject *args)
{
    PyObject *tensor;
    unsigned int mask;
    (void)module;
    return PyArg_ParseTuple(args, "OI", &tensor, &mask) ? kin_meta_make(tensor, mask) : NULL;
}

static PyObject *
probe_meta_match(PyObject *module, PyObject *args)
{
    PyObject *tensor, *record;
    (void)module;
    if (!PyArg_ParseTuple(args, "OS", &tensor, &record))
        return NULL;
    bool same = kin_meta_match(tensor, record);
    PyObject *why = kin_meta_explain(tensor, record);
    return why ? Py_BuildValue("NN", PyBool_FromLong(same), why) : NULL;
}

static PyObject *
probe_meta_bench(PyObject *module, PyObject *args)
{
    PyObject *tensor, *record;
    unsigned int n;
    (void)module;
    if (!PyArg_ParseTuple(args, "OSI", &tensor, &record, &n))
        return NULL;
    struct timespec begin, end;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    bool ok = true;
    for (unsigned int i = 0; i < n; i++)
        ok &= kin_meta_match(tensor, record);
    clock_gettime(CLOCK_MONOTONIC, &end);
    double ns = (double)(end.tv_sec - begin.tv_sec) * 1e9 + (double)(end.tv_nsec - begin.tv_nsec);
    return Py_BuildValue("Nd", PyBool_FromLong(ok), ns / n);
}

static PyObject *
probe_note(PyObject *module, PyObject *tensor)
{
    (void)module;
    return kin_tensor_note(tensor);
}

/* A type with a C member at a fixed place, standing for the compiled wrapper. */
typedef struct {
    PyObject_HEAD
    PyObject *fn;
} wrapper_object;

static PyObject *
wrapper_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    PyObject *fn;
    (void)kwargs;
    if (!PyArg_ParseTuple(args, "O", &fn))
        return NULL;
    wrapper_object *self = (wrapper_object *)type->tp_alloc(type, 0);
    if (self)
        self->fn = Py_NewRef(fn);
    return (PyObject *)self;
}

static void
wrapper_dealloc(PyObject *op)
{
    Py_XDECREF(((wrapper_object *)op)->fn);
    Py_TYPE(op)->tp_free(op);
}

static PyTypeObject wrapper_type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "kinprobe.Wrapper",
    .tp_basicsize = sizeof(wrapper_object),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_new = wrapper_new,
    .tp_dealloc = wrapper_dealloc,
};

static PyMethodDef probe_methods[] = {{"read", probe_read, METH_VARARGS, NULL},
                                      {"holds", probe_holds, METH_VARARGS, NULL},
                                      {"exact_equal", probe_exact_equal, METH_VARARGS, NULL},
                                      {"is_immutable", probe_is_immutable, METH_O, NULL},
                                      {"instance_attr", probe_instance_attr, METH_VARARGS, NULL},
                                      {"instance_dict", probe_instance_dict, METH_O, NULL},
                                      {"type_tag", probe_type_tag, METH_O, NULL},
                                      {"number", probe_number, METH_O, NULL},
                                      {"aten_init", probe_aten_init, METH_O, NULL},
                                      {"tensor_kind", probe_tensor, METH_O, NULL},
                                      {"meta_make", probe_meta_make, METH_VARARGS, NULL},
                                      {"meta_match", probe_meta_match, METH_VARARGS, NULL},
                                      {"meta_bench", probe_meta_bench, METH_VARARGS, NULL},
                                      {"note", probe_note, METH_O, NULL},
                                      {NULL, NULL, 0, NULL}};

static struct PyModuleDef probe_module = {
    PyModuleDef_HEAD_INIT, .m_name = "kinprobe", .m_size = -1, .m_methods = probe_methods};

PyMODINIT_FUNC PyInit_kinprobe(void);

PyMODINIT_FUNC
PyInit_kinprobe(void)
{
    if (PyType_Ready(&entry_type) < 0 || PyType_Ready(&wrapper_type) < 0)
        return NULL;
    PyObject *module = PyModule_Create(&probe_module);
    if (module == NULL || PyModule_AddObjectRef(module, "Entry", (PyObject *)&entry_type) < 0 ||
        PyModule_AddObjectRef(module, "Wrapper", (PyObject *)&wrapper_type) < 0 ||
        PyModule_AddIntConstant(module, "META_CALL", KIN_META_CALL) < 0 ||
        PyModule_AddIntConstant(module, "META_ALL", 1023) < 0) {
        Py_XDECREF(module);
        return NULL;
    }
    kin_guard_set_compiled(&wrapper_type, offsetof(wrapper_object, fn));
    return module;
}
