/* The match statement: what a pattern requires of its subject becomes facts (type flags, lengths, classes, attributes,
 * keys). A pattern that needs user code ends the recording.
 */
#include "py/compat/heap.h"
#include "py/models/models.h"
#include "py/objects/objects.h"
#include "py/rules/rules.h"

static void
push_bool(rec *r, bool value)
{
    rec_push(r, rec_const(r, value ? Py_True : Py_False));
}

/* MATCH_SEQUENCE, MATCH_MAPPING: a flag of the exact type. */
void
rec_op_match_kind(rec *r, unsigned long flag)
{
    PyTypeObject *tp = rec_need_version(r, rec_peek(r, 0));
    if (!kin_heap_type_is_static(tp))
        rec_abc_fact(r); /* registering a class sets the flag and leaves its version as it is */
    push_bool(r, (tp->tp_flags & flag) != 0);
}

/* GET_LEN of a container whose length can be a fact. */
void
rec_op_get_len(rec *r)
{
    kin_vid v = rec_peek(r, 0);
    PyObject *obj = O(r, v);
    rec_virtual *f = VIRTUAL(r, v);
    bool path = f == NULL && (PyList_CheckExact(obj) || PyTuple_CheckExact(obj) || PyDict_CheckExact(obj));
    bool known = f != NULL && f->known && (f->kind == VIRTUAL_TUPLE || f->kind == VIRTUAL_LIST || f->kind == VIRTUAL_DICT);
    if (!path && !known && !(rec_is_const(r, v) && PyTuple_Check(obj))) {
        rec_stop(r, "the length of a value that is not known");
        return;
    }
    if (path && !rec_is_const(r, v)) {
        rec_root(r, v);
        rec_need_type(r, v);
        rec_need_len(r, v, PyObject_Size(obj));
    }
    rec_await_const(r);
}

/* Names of the positional sub-patterns; NULL: none, or not a plain tuple. */
static PyObject *
match_args(PyTypeObject *cls)
{
    PyObject *names = _PyType_Lookup(cls, REC_STR("__match_args__"));
    return names != NULL && PyTuple_CheckExact(names) ? names : NULL;
}

/* Builtin classes whose single positional sub-pattern is the subject itself. */
static bool
matches_itself(PyTypeObject *cls)
{
    return (cls->tp_flags & _Py_TPFLAGS_MATCH_SELF) != 0;
}

/* Attribute `name` of the subject: 1 = *value, 0 = absent, -1 = not understood. */
static int
match_attribute(rec *r, kin_vid subject, PyObject *name, kin_vid *value)
{
    attr_result a;
    rec_attr_find(r, subject, name, &a);
    if (a.kind != ATTR_VALUE && a.kind != ATTR_ABSENT)
        return -1;
    *value = a.value;
    return a.kind == ATTR_VALUE;
}

static int
collect_attributes(rec *r, kin_vid subject, PyTypeObject *cls, int npos, PyObject *names, kin_vid *out, uint32_t *n)
{
    PyObject *positional = match_args(cls);
    *n = 0;
    if (npos == 1 && positional == NULL && matches_itself(cls))
        out[(*n)++] = subject;
    else if (npos > 0 && (positional == NULL || PyTuple_GET_SIZE(positional) < npos))
        return -1; /* raises */
    for (int i = 0; *n < (uint32_t)npos; i++) {
        int found = match_attribute(r, subject, PyTuple_GET_ITEM(positional, i), &out[*n]);
        if (found <= 0)
            return found;
        (*n)++;
    }
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(names); i++) {
        int found = match_attribute(r, subject, PyTuple_GET_ITEM(names, i), &out[*n]);
        if (found <= 0)
            return found;
        (*n)++;
    }
    return 1;
}

/* MATCH_CLASS: subject, class, keyword names -> tuple of attributes or None. */
void
rec_op_match_class(rec *r, int npos)
{
    kin_vid subject = rec_peek(r, 2), cls = rec_peek(r, 1), items[64];
    PyObject *names = rec_stack_obj(r, 0), *type = O(r, cls);
    uint32_t n = 0;
    bool plain = PyType_Check(type) && Py_TYPE(type)->tp_getattro == PyType_Type.tp_getattro &&
                 _PyType_Lookup(Py_TYPE(type), REC_STR("__instancecheck__")) ==
                     _PyType_Lookup(&PyType_Type, REC_STR("__instancecheck__"));
    PyObject *own = _PyType_Lookup(Py_TYPE(O(r, subject)), REC_STR("__class__")); /* a property may lie */
    if (!plain || own == NULL || Py_TYPE(own) != &PyGetSetDescr_Type || rec_need_const(r, cls) == 0 || npos + PyTuple_GET_SIZE(names) > 60) {
        rec_stop(r, "unsupported class pattern");
        return;
    }
    rec_need_version(r, subject);
    rec_class_version(r, (PyTypeObject *)type);
    rec_need_metaclass(r, (PyTypeObject *)type);
    int matched = PyType_IsSubtype(Py_TYPE(O(r, subject)), (PyTypeObject *)type);
    if (matched)
        matched = collect_attributes(r, subject, (PyTypeObject *)type, npos, names, items, &n);
    if (matched < 0)
        rec_stop(r, "a class pattern whose attributes run Python code");
    if (matched <= 0) {
        rec_drop(r, 3);
        rec_push(r, rec_const(r, Py_None));
        return;
    }
    kin_vid out = rec_build_tuple(r, items, n, NULL);
    rec_drop(r, 3);
    rec_await_result(r, out, r->t->vals.at[out].step);
}

/* The value of the key in a dict made here or in an older one; 0: the key is not there. */
static kin_vid
match_key(rec *r, kin_vid subject, const rec_virtual *known, PyObject *key)
{
    if (known != NULL) {
        kin_vid *found = rec_pairs_find(r, known, key);
        return found != NULL ? *found : 0;
    }
    PyObject *value = kin_exact_item(O(r, subject), key);
    if (value != NULL)
        return rec_dict_item(r, subject, key, value);
    rec_fact(r, KIN_FACT_LACKS_KEY, subject, key, 0);
    return 0;
}

/* MATCH_KEYS: subject, keys -> also tuple of values or None. */
void
rec_op_match_keys(rec *r)
{
    kin_vid subject = rec_peek(r, 1), items[64];
    PyObject *keys = rec_stack_obj(r, 0), *dict = O(r, subject);
    Py_ssize_t n = PyTuple_GET_SIZE(keys);
    const rec_virtual *known = rec_exact_dict(r, subject);
    if (!PyDict_CheckExact(dict) || (VIRTUAL(r, subject) != NULL && known == NULL) || !rec_is_const(r, rec_peek(r, 0)) || n > 60 ||
        !kin_is_exact_immutable(keys)) {
        rec_stop(r, "unsupported mapping pattern");
        return;
    }
    if (known == NULL) {
        rec_root(r, subject);
        rec_need_type(r, subject);
    }
    for (Py_ssize_t i = 0; known != NULL && i < n; i++)
        if (!rec_is_pair_key(PyTuple_GET_ITEM(keys, i))) {
            rec_stop(r, "unsupported mapping pattern");
            return;
        }
    for (Py_ssize_t i = 0; i < n; i++) {
        items[i] = match_key(r, subject, known, PyTuple_GET_ITEM(keys, i));
        if (items[i] == 0) {
            rec_push(r, rec_const(r, Py_None));
            return;
        }
    }
    kin_vid out = rec_build_tuple(r, items, (uint32_t)n, NULL);
    rec_await_result(r, out, r->t->vals.at[out].step);
}
