/* Models of builtins that read and write attributes by name: getattr and its like, super, methods of object. */
#include "py/models/models.h"
#include "py/objects/objects.h"
#include <Python.h>
#include <structmember.h>

static bool
push_attribute(rec *r, const rec_args *a, const attr_result *at)
{
    if (at->kind == ATTR_VALUE)
        return rec_model_value(r, a, at->value);
    if (at->kind == ATTR_METHOD) {
        kin_vid parts[2] = {at->value, at->self};
        kin_vid out = rec_step_out(r, KIN_STEP_BUILD_METHOD, KIN_STEP_PURE, parts, 2);
        rec_make_virtual(r, out, VIRTUAL_METHOD, parts, 2, true);
        rec_drop(r, a->ndrop);
        rec_await_result(r, out, r->t->vals.at[out].step);
        return true;
    }
    if (at->kind == ATTR_AWAIT_CONST) {
        rec_drop(r, a->ndrop);
        rec_await_const(r);
        return true;
    }
    return false;
}

/* Hands the reference over to the recording's table. */
static PyObject *
keep_const(rec *r, PyObject *obj)
{
    kin_vid vid = rec_const(r, obj);
    Py_DECREF(obj);
    return O(r, vid);
}

/* The call is made again; no Python code runs. */
static void
ask_attribute(rec *r, const rec_args *a, const attr_result *at)
{
    rec_model_step(r, a, at->flags);
    if (at->makes_dict)
        rec_end_epoch(r);
}

static bool
get_attribute(rec *r, const rec_args *a, bool generic)
{
    attr_result at;
    PyObject *name = a->npos >= 2 ? O(r, a->args[1]) : NULL;
    if (a->npos < 2 || a->nkw || !PyUnicode_CheckExact(name) || rec_pin_key(r, a->args[1]) == 0)
        return false;
    Py_INCREF(name);
    PyUnicode_InternInPlace(&name); /* attribute names are compared by identity in dicts */
    name = keep_const(r, name);
    if (generic)
        rec_attr_generic(r, a->args[0], name, &at);
    else
        rec_attr_find(r, a->args[0], name, &at);
    if (push_attribute(r, a, &at))
        return true;
    if (at.kind == ATTR_ABSENT && a->npos == 3)
        return rec_model_value(r, a, a->args[2]);
    kin_vid extra = at.kind == ATTR_CALL && at.fallback && a->npos == 2 ? rec_fallback(r, a->args[0], name) : 0;
    if (at.kind == ATTR_CALL && a->npos == 2 && at.fallback == (extra != 0) && rec_can_inline(r, O(r, at.func)))
        return rec_inline(r, &(rec_args){.callee = at.func, .args = at.args, .npos = at.nargs, .ndrop = a->ndrop}, NULL, 0, extra ? KIN_RESUME_FALLBACK : KIN_RESUME_PUSH, extra);
    if (at.kind == ATTR_CALL && a->npos == 3 && !at.fallback && rec_can_inline(r, O(r, at.func)))
        return rec_inline(r, &(rec_args){.callee = at.func, .args = at.args, .npos = at.nargs, .ndrop = a->ndrop}, NULL, 0, KIN_RESUME_DEFAULT, a->args[2]);
    if (at.kind == ATTR_STEP && !(at.flags & KIN_STEP_OPAQUE)) {
        ask_attribute(r, a, &at);
        return true;
    }
    if (at.kind == ATTR_ABSENT) {
        rec_model_step(r, a, 0); /* raises */
        return true;
    }
    return false;
}

/* vars(obj) */
static bool
model_vars(rec *r, const rec_args *a)
{
    attr_result at;
    if (a->npos == 0)
        return rec_model_locals(r, a);
    if (a->npos != 1 || a->nkw)
        return false;
    rec_attr_find(r, a->args[0], REC_STR("__dict__"), &at);
    if (at.makes_dict) {
        ask_attribute(r, a, &at);
        return true;
    }
    return at.kind == ATTR_VALUE && rec_model_value(r, a, at.value);
}

static bool
model_getattr(rec *r, const rec_args *a)
{
    return get_attribute(r, a, false);
}

/* setattr(obj, "name", value), delattr(obj, "name") */
static bool
model_setattr(rec *r, const rec_args *a)
{
    PyObject *name = a->npos >= 2 ? O(r, a->args[1]) : NULL;
    if (name == NULL || a->npos > 3 || a->nkw || !PyUnicode_CheckExact(name) || PyType_Check(O(r, a->args[0])) ||
        PyModule_Check(O(r, a->args[0])) || rec_pin_key(r, a->args[1]) == 0)
        return false;
    Py_INCREF(name);
    PyUnicode_InternInPlace(&name);
    name = keep_const(r, name);
    rec_set_attribute(r, a->args[0], name, a->npos == 3 ? a->args[2] : 0, a->ndrop);
    return true;
}

static bool
model_setattr_three(rec *r, const rec_args *a)
{
    return a->npos == 3 && model_setattr(r, a);
}

static bool
model_delattr(rec *r, const rec_args *a)
{
    return a->npos == 2 && model_setattr(r, a);
}

static bool
model_object_getattribute(rec *r, const rec_args *a)
{
    return get_attribute(r, a, true);
}

/* Does the class hold a descriptor of C code for the name that gives something for every instance, whatever the instance's own dict holds? A member that
 * reads as None where nothing is stored, a method of the class, the dict of an object made here (of an older one it would be made, which others see).
 */
static bool
is_always_there(rec *r, kin_vid base, PyObject *name)
{
    PyTypeObject *tp = Py_TYPE(O(r, base));
    PyObject *descr = tp->tp_getattro == PyObject_GenericGetAttr ? rec_lookup(r, tp, name) : NULL;
    if (descr == NULL)
        return false;
    if (Py_TYPE(descr) == &PyMemberDescr_Type)
        return ((PyMemberDescrObject *)descr)->d_member->type != T_OBJECT_EX;
    if (Py_TYPE(descr) == &PyGetSetDescr_Type)
        return ((PyGetSetDescrObject *)descr)->d_getset->get == PyObject_GenericGetDict && VIRTUAL(r, base) != NULL;
    return Py_TYPE(descr) == &PyClassMethodDescr_Type;
}

static bool
model_hasattr(rec *r, const rec_args *a)
{
    attr_result at;
    PyObject *name = a->npos == 2 ? O(r, a->args[1]) : NULL;
    if (a->npos != 2 || a->nkw || !PyUnicode_CheckExact(name) || rec_pin_key(r, a->args[1]) == 0)
        return false;
    rec_attr_find(r, a->args[0], name, &at);
    if (at.kind == ATTR_VALUE || at.kind == ATTR_METHOD || at.kind == ATTR_AWAIT_CONST)
        return rec_model_bool(r, a, true);
    if (at.kind == ATTR_CALL && !at.fallback && rec_can_inline(r, O(r, at.func)))
        return rec_inline(r, &(rec_args){.callee = at.func, .args = at.args, .npos = at.nargs, .ndrop = a->ndrop}, NULL, 0, KIN_RESUME_HASATTR, 0);
    if (at.kind == ATTR_STEP && is_always_there(r, a->args[0], name))
        return rec_model_bool(r, a, true);
    return at.kind == ATTR_ABSENT && rec_model_bool(r, a, false);
}

/* super() and super(cls, self) */
static bool
model_super(rec *r, const rec_args *a)
{
    kin_vid cls, self;
    if (a->npos == 0) {
        self = r->top->slots[0];
        cls = rec_super_class(r);
        if (self && VIRTUAL(r, self) && VIRTUAL(r, self)->kind == VIRTUAL_CELL && VIRTUAL(r, self)->known)
            self = VIRTUAL(r, self)->items[0];
    } else if (a->npos == 2) {
        cls = rec_need_const(r, a->args[0]);
        self = a->args[1];
    } else {
        return false;
    }
    if (cls == 0 || self == 0 || (VIRTUAL(r, self) && VIRTUAL(r, self)->kind == VIRTUAL_CELL))
        return false;
    kin_vid out = rec_make_super(r, a->callee, cls, self);
    rec_drop(r, a->ndrop);
    rec_await_result(r, out, r->t->vals.at[out].step);
    return true;
}

/* object.__init__(self) without arguments does nothing. */
static bool
model_object_init(rec *r, const rec_args *a)
{
    return a->npos == 1 && a->nkw == 0 && rec_model_value(r, a, rec_const(r, Py_None));
}

/* Does a store through what the class has under the name run no code? A slot takes anything. */
static bool
takes_plainly(PyObject *descr)
{
    if (descr == NULL || Py_TYPE(descr)->tp_descr_set == NULL)
        return true;
    const struct PyMemberDef *m = Py_TYPE(descr) == &PyMemberDescr_Type ? ((PyMemberDescrObject *)descr)->d_member : NULL;
    return m != NULL && m->type == T_OBJECT_EX && !(m->flags & READONLY);
}

static bool
model_object_setattr(rec *r, const rec_args *a)
{
    PyObject *name = a->npos == 3 ? O(r, a->args[1]) : NULL;
    if (name == NULL || !PyUnicode_CheckExact(name) || rec_pin_key(r, a->args[1]) == 0)
        return false;
    PyTypeObject *tp = rec_need_attrs(r, a->args[0]);
    PyObject *descr = rec_lookup(r, tp, name);
    if (!takes_plainly(descr))
        return !kin_is_tensor(O(r, a->args[0])) && rec_store_by_descriptor(r, a->args[0], name, a->args[2], a->ndrop, KIN_RESUME_NONE);
    rec_place place;
    rec_model_store(r, a, a->args[2], rec_attr_place(r, a->args[0], name, descr, &place) ? &place : NULL);
    rec_virtual *f = VIRTUAL(r, a->args[0]);
    if (f != NULL && f->kind == VIRTUAL_OBJECT && f->known)
        rec_pairs_put(r, f, rec_const(r, name), a->args[2]);
    return true;
}

static bool
model_object_delattr(rec *r, const rec_args *a)
{
    PyObject *name = a->npos == 2 && a->nkw == 0 ? O(r, a->args[1]) : NULL;
    if (name == NULL || !PyUnicode_CheckExact(name) || rec_pin_key(r, a->args[1]) == 0)
        return false;
    PyTypeObject *tp = rec_need_attrs(r, a->args[0]);
    PyObject *descr = rec_lookup(r, tp, name);
    if (descr != NULL && Py_TYPE(descr)->tp_descr_set != NULL)
        return false;
    rec_virtual *f = VIRTUAL(r, a->args[0]);
    rec_model_step(r, a, KIN_STEP_EFFECT);
    if (f != NULL)
        f->known = false;
    rec_forget_contents(r);
    return true;
}

/* OrderedDict.__setitem__(self, key, value), dict.__setitem__: with a builtin key no user code runs. */
bool
rec_model_dict_setitem(rec *r, const rec_args *a)
{
    if (a->npos != 3 || a->nkw || !kin_is_exact_immutable(O(r, a->args[1])))
        return false;
    if (!rec_is_const(r, a->args[1]))
        rec_need_type(r, a->args[1]);
    if (VIRTUAL(r, a->args[0]) == NULL)
        rec_need_type(r, a->args[0]);
    rec_virtual *f = VIRTUAL(r, a->args[0]), *map = rec_mapping(r, a->args[0]);
    rec_place place = {.kind = KIN_PLACE_ITEM, .base = a->args[0], .key = O(r, a->args[1])};
    bool dict = PyDict_CheckExact(O(r, a->args[0])) && rec_is_const(r, a->args[1]);
    rec_model_store(r, a, a->args[2], dict ? &place : NULL);
    if (map != NULL && rec_is_const(r, a->args[1]) && rec_is_pair_key(O(r, a->args[1]))) {
        rec_pairs_put(r, map, rec_as_const(r, a->args[1]), a->args[2]);
    } else if (map != NULL) {
        map->known = false;
    }
    if (f != NULL && f->kind != VIRTUAL_OBJECT && f->kind != VIRTUAL_DICT)
        f->known = false;
    return true;
}

const rec_method_row rec_attr_rows[] = {
    {"vars", model_vars}, {"setattr", model_setattr_three}, {"delattr", model_delattr}, {"getattr", model_getattr},
    {"hasattr", model_hasattr}, {"super", model_super}, {"object.__init__", model_object_init},
    {"object.__reduce_ex__", rec_model_reduce}, {"object.__getattribute__", model_object_getattribute}, {"object.__setattr__", model_object_setattr},
    {"object.__delattr__", model_object_delattr}, {"dict.__setitem__", rec_model_dict_setitem}, {NULL, NULL}};
