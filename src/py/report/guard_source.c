/* Paths as text: Python expressions that users recognise. */
#include "py/report/guard_text_priv.h"
#include <structmember.h>

/* ---- paths ---------------------------------------------------------------------------------------------------- */

static PyObject *
slot_name(PyObject *func, Py_ssize_t i)
{
    PyCodeObject *code = (PyCodeObject *)((PyFunctionObject *)func)->func_code;
    return i >= 0 && i < PyTuple_GET_SIZE(code->co_localsplusnames) ? PyTuple_GET_ITEM(code->co_localsplusnames, i)
                                                                    : NULL;
}

static PyObject *
local_text(PyObject *name, bool brief, const char *space)
{
    if (name == NULL)
        return PyUnicode_FromString("<unnamed local>");
    return brief ? Py_NewRef(name) : PyUnicode_FromFormat("%s[%R]", space, name);
}

static bool
is_root(const kin_entry *v, kin_vid vid, kin_access access)
{
    const kin_val *val = &v->trace.vals.at[vid];
    return val->kind == KIN_VAL_SRC && val->access == access;
}

/* The contents of a closure cell of the compiled function is the free variable itself. */
static PyObject *
free_variable(const kin_entry *v, kin_vid cell)
{
    const kin_val *val = &v->trace.vals.at[cell];
    if (val->kind != KIN_VAL_SRC || val->access != KIN_ACCESS_CLOSURE || !is_root(v, val->parent, KIN_ACCESS_FUNC) ||
        v->func == NULL)
        return NULL;
    PyCodeObject *code = (PyCodeObject *)((PyFunctionObject *)v->func)->func_code;
    Py_ssize_t first = PyTuple_GET_SIZE(code->co_localsplusnames) - code->co_nfreevars;
    return slot_name(v->func, first + (Py_ssize_t)val->key);
}

static bool
is_word(PyObject *key)
{
    return PyUnicode_CheckExact(key) && PyUnicode_IsIdentifier(key) == 1;
}

/* The name of the __slots__ entry at a byte offset, from the class that a fact gives for the object. */
static PyObject *
member_name(const kin_entry *v, const kin_val *val)
{
    for (uint32_t i = 0; i < v->trace.facts.len; i++) {
        const kin_fact *f = &v->trace.facts.at[i];
        PyObject *cls = kin_refs_get(&v->refs, f->ref);
        if (f->vid != val->parent || (f->kind != KIN_FACT_TYPE && f->kind != KIN_FACT_TYPE_VERSION) ||
            !PyType_Check(cls) || ((PyTypeObject *)cls)->tp_mro == NULL)
            continue;
        PyObject *mro = ((PyTypeObject *)cls)->tp_mro;
        for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(mro); k++)
            for (PyMemberDef *m = ((PyTypeObject *)PyTuple_GET_ITEM(mro, k))->tp_members; m && m->name; m++)
                if (m->offset == (Py_ssize_t)val->key)
                    return PyUnicode_FromString(m->name);
    }
    return PyUnicode_FromFormat("<slot at %u>", val->key);
}

static PyObject *
append_member(const kin_entry *v, PyObject *parent, const kin_val *val)
{
    PyObject *name = member_name(v, val);
    PyObject *out = name ? PyUnicode_FromFormat("%U.%U", parent, name) : NULL;
    Py_XDECREF(name);
    return out;
}

static PyObject *
append_item(PyObject *parent, PyObject *key)
{
    PyObject *text = kin_object_text(key);
    PyObject *out = text ? PyUnicode_FromFormat("%U[%U]", parent, text) : NULL;
    Py_XDECREF(text);
    return out;
}

/* One step behind the parent's text. */
static PyObject *
append_access(const kin_entry *v, PyObject *parent, const kin_val *val)
{
    PyObject *key = NULL;
    kin_access access = (kin_access)val->access;
    bool named = access == KIN_ACCESS_KWDEFAULT || access == KIN_ACCESS_IATTR || access == KIN_ACCESS_TYPEATTR ||
                 access == KIN_ACCESS_DICT_ITEM;
    if (named)
        key = kin_refs_get(&v->refs, val->key);
    switch (access) {
    case KIN_ACCESS_DEFAULT:
        return PyUnicode_FromFormat("%U.__defaults__[%u]", parent, val->key);
    case KIN_ACCESS_KWDEFAULT:
        return PyUnicode_FromFormat("%U.__kwdefaults__[%R]", parent, key);
    case KIN_ACCESS_CLOSURE:
        return PyUnicode_FromFormat("%U.__closure__[%u]", parent, val->key);
    case KIN_ACCESS_IATTR: case KIN_ACCESS_TYPEATTR:
        return PyUnicode_FromFormat("%U.%U", parent, key);
    case KIN_ACCESS_TYPE:
        return PyUnicode_FromFormat("type(%U)", parent);
    case KIN_ACCESS_MEMBER:
        return append_member(v, parent, val);
    case KIN_ACCESS_DICT_ITEM:
        return append_item(parent, key);
    case KIN_ACCESS_DICT_KEY:
        return PyUnicode_FromFormat("list(%U)[%u]", parent, val->key);
    case KIN_ACCESS_LIST_ITEM: case KIN_ACCESS_TUPLE_ITEM:
        return PyUnicode_FromFormat("%U[%u]", parent, val->key);
    case KIN_ACCESS_PARTIAL_FUNC:
        return PyUnicode_FromFormat("%U.func", parent);
    case KIN_ACCESS_PARTIAL_ARGS:
        return PyUnicode_FromFormat("%U.args", parent);
    case KIN_ACCESS_PARTIAL_KW:
        return PyUnicode_FromFormat("%U.keywords", parent);
    case KIN_ACCESS_COMPILED_FUNC:
        return PyUnicode_FromFormat("%U.__wrapped__", parent);
    default: /* the rest are attributes whose row in access.def is their name */
        return PyUnicode_FromFormat("%U.%s", parent, kin_access_name(access));
    }
}

static PyObject *
dict_item_text(const kin_entry *v, const kin_val *val, bool brief)
{
    const kin_val *dict = &v->trace.vals.at[val->parent];
    PyObject *key = kin_refs_get(&v->refs, val->key);
    if (dict->kind != KIN_VAL_SRC)
        return NULL;
    bool global = dict->access == KIN_ACCESS_GLOBALS && is_root(v, dict->parent, KIN_ACCESS_FUNC);
    if (global && PyUnicode_CheckExact(key))
        return local_text(key, false, "G");
    if (dict->access != KIN_ACCESS_INSTDICT || !is_word(key))
        return NULL;
    PyObject *owner = kin_path_text(v, dict->parent, brief);
    PyObject *out = owner ? PyUnicode_FromFormat("%U.%U", owner, key) : NULL;
    Py_XDECREF(owner);
    return out;
}

/* -- arguments of a module ------------------------------------------------------------------------------------------- */

PyCodeObject *
kin_forward_code(PyObject *cls)
{
    static PyObject *name;
    if (name == NULL && (name = PyUnicode_InternFromString("forward")) == NULL)
        PyErr_Clear();
    PyObject *forward = name != NULL && cls != NULL && PyType_Check(cls) ? _PyType_Lookup((PyTypeObject *)cls, name) : NULL;
    return forward != NULL && PyFunction_Check(forward) ? (PyCodeObject *)PyFunction_GET_CODE(forward) : NULL;
}

/* The forward that def __call__(self, *args, **kwargs) hands its arguments on to, as far as the facts about self tell. */
static PyCodeObject *
forward_of(const kin_entry *v)
{
    PyCodeObject *code = v->func != NULL ? (PyCodeObject *)PyFunction_GET_CODE(v->func) : NULL;
    if (code == NULL || code->co_argcount != 1 || code->co_kwonlyargcount != 0 || !(code->co_flags & CO_VARARGS))
        return NULL;
    for (uint32_t i = 0; i < v->trace.facts.len; i++) {
        const kin_fact *f = &v->trace.facts.at[i];
        if ((f->kind == KIN_FACT_TYPE || f->kind == KIN_FACT_TYPE_VERSION) && is_root(v, f->vid, KIN_ACCESS_LOCAL) && v->trace.vals.at[f->vid].key == 0)
            return kin_forward_code(kin_refs_get(&v->refs, f->ref));
    }
    return NULL;
}

PyObject *
kin_forward_parameter(const kin_entry *v, const kin_val *val)
{
    const kin_val *owner = &v->trace.vals.at[val->parent];
    bool positional = val->access == KIN_ACCESS_TUPLE_ITEM;
    if (val->parent == 0 || owner->kind != KIN_VAL_SRC || owner->access != KIN_ACCESS_LOCAL || owner->key != (positional ? 1 : 2) ||
        (!positional && val->access != KIN_ACCESS_DICT_ITEM))
        return NULL;
    PyCodeObject *forward = forward_of(v);
    if (forward == NULL)
        return NULL;
    PyObject *key = positional ? NULL : kin_refs_get(&v->refs, val->key);
    if (!positional)
        return PyUnicode_Check(key) ? key : NULL;
    return (int)val->key + 1 < forward->co_argcount ? PyTuple_GET_ITEM(forward->co_localsplusnames, val->key + 1) : NULL;
}

/* Paths with a shorter customary form; NULL without an exception for the others. */
static PyObject *
special_text(const kin_entry *v, kin_vid vid, bool brief)
{
    const kin_val *val = &v->trace.vals.at[vid];
    PyObject *parameter = kin_forward_parameter(v, val);
    if (parameter != NULL)
        return local_text(parameter, brief, "L");
    switch ((kin_access)val->access) {
    case KIN_ACCESS_LOCAL:
        return local_text(v->func ? slot_name(v->func, (Py_ssize_t)val->key) : NULL, brief, "L");
    case KIN_ACCESS_FUNC:
        return v->func ? Py_NewRef(((PyFunctionObject *)v->func)->func_name) : PyUnicode_FromString("<function>");
    case KIN_ACCESS_GLOBALS:
        return is_root(v, val->parent, KIN_ACCESS_FUNC) ? PyUnicode_FromString("G") : NULL;
    case KIN_ACCESS_BUILTINS:
        return is_root(v, val->parent, KIN_ACCESS_FUNC) ? PyUnicode_FromString("__builtins__") : NULL;
    case KIN_ACCESS_CELL:
        return free_variable(v, val->parent) ? local_text(free_variable(v, val->parent), brief, "L") : NULL;
    case KIN_ACCESS_DICT_ITEM:
        return dict_item_text(v, val, brief);
    default:
        return NULL;
    }
}

PyObject *
kin_path_text(const kin_entry *v, kin_vid vid, bool brief)
{
    if (vid == 0 || vid >= v->trace.vals.len)
        return PyUnicode_FromString("<nothing>");
    const kin_val *val = &v->trace.vals.at[vid];
    if (val->kind == KIN_VAL_CONST)
        return kin_object_text(kin_refs_get(&v->refs, val->key));
    if (val->kind != KIN_VAL_SRC) {
        PyObject *name = kin_refs_get(&v->refs, val->name);
        return name ? Py_NewRef(name) : brief ? PyUnicode_FromString("<unnamed value>") : PyUnicode_FromFormat("<value %u>", vid);
    }
    PyObject *text = special_text(v, vid, brief);
    if (text || PyErr_Occurred())
        return text;
    PyObject *parent = kin_path_text(v, val->parent, brief);
    text = parent ? append_access(v, parent, val) : NULL;
    Py_XDECREF(parent);
    return text;
}

PyObject *
kin_source_text(const kin_entry *v, kin_vid vid)
{
    return kin_path_text(v, vid, false);
}
