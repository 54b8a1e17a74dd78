/* Attribute stores and deletions: where a plain store puts the value, and which code may run below any other store. */
#include "core/diag/breaks.h"
#include "py/compat/heap.h"
#include "py/objects/objects.h"
#include "py/torchcalls/torchcalls.h"
#include <stddef.h>
#include <structmember.h>

/* Does the store write into the instance dict and do nothing else? Otherwise code of the program may run. */
static bool
is_plain_store(rec *r, PyTypeObject *tp, PyObject *name, bool delete, PyObject **hook)
{
    *hook = NULL;
    PyObject *descr = rec_lookup(r, tp, name);
    if (descr != NULL && (Py_TYPE(descr)->tp_flags & Py_TPFLAGS_HEAPTYPE))
        rec_class_version(r, Py_TYPE(descr)); /* it may gain a __set__, and the class that holds it keeps its version then */
    if (tp->tp_flags & Py_TPFLAGS_HEAPTYPE) {
        PyObject *set = rec_lookup(r, tp, REC_STR("__setattr__")), *del = rec_lookup(r, tp, REC_STR("__delattr__"));
        set = delete ? del : set;
        if (set != NULL && PyFunction_Check(set)) {
            *hook = set;
            return false;
        }
    }
    if (tp->tp_setattro != PyObject_GenericSetAttr)
        return false;
    return descr == NULL || Py_TYPE(descr)->tp_descr_set == NULL || Py_TYPE(descr) == &PyMemberDescr_Type;
}

static bool
is_older(rec *r, kin_vid vid)
{
    return VIRTUAL(r, vid) == NULL && (r->t->vals.at[vid].kind != KIN_VAL_STEP || r->info.at[vid].born_epoch < rec_epoch(r));
}

/* Are its attributes reached through the object alone? They are inline or in a dict; which of the two may be another one in the
 * next call. */
static bool
has_own_attributes(PyObject *obj)
{
    PyObject *dict = kin_instance_dict(obj);
    return dict == NULL || (Py_REFCNT(dict) == 1 && !PyModule_Check(obj) && !PyFunction_Check(obj));
}

/* `descr`: what the class has under the name. False: objects made here, tensors, what has no place of its own. */
bool
rec_attr_place(rec *r, kin_vid obj, PyObject *name, PyObject *descr, rec_place *p)
{
    if (!is_older(r, obj) || kin_is_tensor(O(r, obj)))
        return false;
    if (descr != NULL && Py_TYPE(descr) == &PyMemberDescr_Type) {
        const struct PyMemberDef *m = ((PyMemberDescrObject *)descr)->d_member;
        *p = (rec_place){.kind = KIN_PLACE_SLOT, .base = obj, .index = (uint32_t)m->offset};
        return m->type == T_OBJECT_EX && !(m->flags & READONLY);
    }
    if (!rec_has_instance_dict(Py_TYPE(O(r, obj))))
        return false;
    kin_vid dict = has_own_attributes(O(r, obj)) ? 0 : rec_instance_dict(r, obj);
    *p = (rec_place){.kind = dict ? KIN_PLACE_ITEM : KIN_PLACE_ATTR, .base = dict ? dict : obj, .key = name};
    return true;
}

static void
store_on_virtual(rec *r, kin_vid obj, PyObject *name, kin_vid value)
{
    rec_virtual *f = VIRTUAL(r, obj);
    if (f != NULL && f->kind == VIRTUAL_OBJECT && f->known)
        rec_pairs_put(r, f, rec_const(r, name), value);
}

/* An attribute that is not there makes the deletion raise, and one in a slot may hide another one in the dict. */
static void
forget_on_virtual(rec *r, rec_virtual *f, PyObject *name)
{
    if (f->known && rec_pairs_find(r, f, name) != NULL)
        rec_pairs_drop(r, f, name);
    else
        f->known = false;
}

/* obj.name = value, del obj.name (value 0) by an instruction with `ndrop` operands; `resume` says what a __setattr__ in
 * Python leaves behind. False: nothing was written. */
static bool
store_by_hook(rec *r, kin_vid obj, PyObject *name, kin_vid value, PyObject *hook, int ndrop, kin_resume resume)
{
    PyTypeObject *tp = Py_TYPE(O(r, obj));
    kin_vid args[3] = {obj, rec_const(r, name), value};
    PyObject *method = value ? REC_STR("__setattr__") : REC_STR("__delattr__");
    return rec_can_inline(r, hook) && rec_inline(r, &(rec_args){.callee = rec_found(r, tp, method, hook), .args = args, .npos = value ? 3 : 2, .ndrop = ndrop}, NULL, 0, resume, 0);
}

/* ... where the class has a property of that name, or an object whose class has a __set__ in Python. */
bool
rec_store_by_descriptor(rec *r, kin_vid obj, PyObject *name, kin_vid value, int ndrop, kin_resume resume)
{
    PyTypeObject *tp = Py_TYPE(O(r, obj));
    PyObject *descr = _PyType_Lookup(tp, name);
    PyTypeObject *dt = descr != NULL ? Py_TYPE(descr) : NULL;
    kin_vid args[3] = {0}, callee;
    uint32_t n = 0;
    if (dt == &PyProperty_Type) {
        PyObject *const *parts = ((struct { PyObject_HEAD PyObject *parts[3]; } *)descr)->parts, *func = parts[value ? 1 : 2];
        if (func == NULL || !PyFunction_Check(func) || !rec_can_inline(r, func))
            return false;
        callee = rec_wrapped_function(r, rec_found(r, tp, name, descr), value ? 1 : 2, func);
    } else {
        PyObject *set = dt != NULL && dt->tp_flags & Py_TPFLAGS_HEAPTYPE ? _PyType_Lookup(dt, value ? REC_STR("__set__") : REC_STR("__delete__")) : NULL;
        if (set == NULL || !PyFunction_Check(set) || !rec_can_inline(r, set))
            return false;
        args[n++] = rec_src_key(r, rec_const(r, (PyObject *)tp), KIN_ACCESS_TYPEATTR, name, descr);
        rec_need_type(r, args[0]);
        callee = rec_const(r, set);
    }
    args[n++] = obj;
    if (value)
        args[n++] = value;
    return rec_inline(r, &(rec_args){.callee = callee, .args = args, .npos = n, .ndrop = ndrop}, NULL, 0, resume, 0);
}

/* t.grad = g, t.data = d: PyTorch's own fields of a tensor, in which no container of Python's lies. */
static bool
is_tensor_field(rec *r, kin_vid obj, PyTypeObject *tp, PyObject *name)
{
    static const char *const fields[] = {"grad", "data", "requires_grad"};
    PyObject *descr = _PyType_Lookup(tp, name);
    bool known = false;
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
        known = known || PyUnicode_CompareWithASCIIString(name, fields[i]) == 0;
    return known && kin_is_plain_tensor(O(r, obj)) && descr != NULL && Py_TYPE(descr) == &PyGetSetDescr_Type;
}

/* Does the store, which is not followed, run a function of the program? */
static bool
runs_python(PyTypeObject *tp, PyObject *name, bool delete, PyObject *hook)
{
    PyObject *descr = _PyType_Lookup(tp, name);
    PyTypeObject *dt = descr != NULL ? Py_TYPE(descr) : NULL;
    bool sets = dt == &PyProperty_Type && ((struct { PyObject_HEAD PyObject *parts[3]; } *)descr)->parts[delete ? 2 : 1] != NULL; /* else it raises */
    return hook != NULL || sets || (dt != NULL && dt->tp_descr_set != NULL && dt->tp_flags & Py_TPFLAGS_HEAPTYPE);
}

static void
store_attr(rec *r, kin_vid obj, PyObject *name, kin_vid value, int ndrop, kin_resume resume)
{
    PyObject *hook = NULL;
    bool delete = value == 0;
    PyTypeObject *tp = rec_need_attrs(r, obj);
    bool plain = is_plain_store(r, tp, name, delete, &hook);
    if (!plain && hook != NULL && store_by_hook(r, obj, name, value, hook, ndrop, resume))
        return;
    if (!plain && hook == NULL && !kin_is_tensor(O(r, obj)) && tp->tp_setattro == PyObject_GenericSetAttr && rec_store_by_descriptor(r, obj, name, value, ndrop, resume))
        return;
    rec_virtual *f = VIRTUAL(r, obj);
    if (f != NULL && f->kind == VIRTUAL_FUNCTION)
        f->of = 0;
    bool virtual = plain && f != NULL && f->kind == VIRTUAL_OBJECT;
    bool tensor = kin_is_tensor(O(r, obj));
    kin_vid args[2] = {obj, value};
    rec_place place;
    bool followed = plain && f == NULL && rec_attr_place(r, obj, name, _PyType_Lookup(tp, name), &place) && rec_begin_write(r, &place);
    unsigned flags = virtual ? KIN_STEP_MUTATES : plain || tensor ? KIN_STEP_EFFECT : KIN_STEP_OPAQUE | KIN_STEP_EFFECT;
    r->may_wait = !delete;
    uint32_t s = rec_step(r, delete ? KIN_STEP_DELATTR : KIN_STEP_SETATTR, flags, args, delete ? 1 : 2);
    r->may_wait = false;
    rec_name_store(r, s, name);
    if (virtual && !delete && !(f->escaped && !f->known))
        store_on_virtual(r, obj, name, value);
    if (virtual && delete)
        forget_on_virtual(r, f, name);
    if (flags & KIN_STEP_OPAQUE) {
        if (rec_any_tensor(r, args, delete ? 1 : 2) && runs_python(tp, name, delete, hook))
            rec_break(r, s, KIN_ROW_OPAQUE_PYTHON);
        rec_forget_contents(r);
        r->skip_expected = true;
    } else if (followed) {
        rec_end_write(r, &place, value);
    } else if (tensor && !plain && is_tensor_field(r, obj, tp, name)) {
        r->inplace = true;
        r->meta_epoch++;
    } else if (!virtual) {
        rec_forget_contents(r); /* an escaped virtual object may be this one */
    } else {
        rec_changed(r, obj);
    }
    rec_drop(r, ndrop);
    if (resume == KIN_RESUME_NONE)
        rec_push(r, rec_const(r, Py_None));
}

/* contextlib gives an exception that has gone through a generator the traceback that it had before. In a region nobody looks at that. */
static bool
puts_traceback_back(rec *r, kin_vid obj, PyObject *name, kin_vid value)
{
    return r->region != NULL && rec_raised_in_region(r, r->info.at[obj].raised) && r->info.at[value].raised == r->info.at[obj].raised && PyUnicode_CompareWithASCIIString(name, "__traceback__") == 0;
}

void
rec_op_store_attr(rec *r, PyObject *name, bool delete)
{
    if (!delete && puts_traceback_back(r, rec_peek(r, 0), name, rec_peek(r, 1))) {
        rec_drop(r, 2);
        return;
    }
    store_attr(r, rec_peek(r, 0), name, delete ? 0 : rec_peek(r, 1), delete ? 1 : 2, KIN_RESUME_DROP);
}

/* setattr(obj, name, value), delattr(obj, name: value 0) */
void
rec_set_attribute(rec *r, kin_vid obj, PyObject *name, kin_vid value, int ndrop)
{
    store_attr(r, obj, name, value, ndrop, KIN_RESUME_NONE);
}
