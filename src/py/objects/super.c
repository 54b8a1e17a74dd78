/* super objects: calls of super() and super(cls, self), and from 3.12 on super().name as a single instruction. Their attributes are
 * looked up in attr.c. */
#include "py/objects/objects.h"

kin_vid
rec_super_class(rec *r)
{
    rec_frame *f = r->top;
    for (int i = 0; i < f->nlocals; i++) {
        PyObject *name = PyTuple_GET_ITEM(f->code->co_localsplusnames, i);
        if (PyUnicode_CompareWithASCIIString(name, "__class__") != 0)
            continue;
        PyObject *cell = kin_watch_localsplus(f->f)[i], *cls = cell && PyCell_Check(cell) ? PyCell_GET(cell) : NULL;
        rec_virtual *virtual = VIRTUAL(r, f->slots[i]);
        if (cls == NULL || virtual != NULL)
            return 0;
        rec_root(r, f->slots[i]);
        return rec_need_const(r, rec_src(r, f->slots[i], KIN_ACCESS_CELL, 0, cls));
    }
    return 0;
}

/* The class whose bases the super object looks through, as facts; 0: super() has to find out. */
static kin_vid
looks_in(rec *r, kin_vid cls, kin_vid self)
{
    PyObject *after = O(r, cls), *obj = O(r, self);
    if (after == NULL || obj == NULL || !PyType_Check(after))
        return 0;
    if (PyType_Check(obj) && PyType_IsSubtype((PyTypeObject *)obj, (PyTypeObject *)after)) {
        kin_vid fixed = rec_need_const(r, self);
        if (fixed != 0)
            rec_bases_of(r, (PyTypeObject *)obj);
        return fixed;
    }
    if (!PyType_IsSubtype(Py_TYPE(obj), (PyTypeObject *)after))
        return 0;
    PyTypeObject *tp = rec_need_type(r, self);
    rec_bases_of(r, tp);
    return rec_const(r, (PyObject *)tp);
}

kin_vid
rec_make_super(rec *r, kin_vid callee, kin_vid cls, kin_vid self)
{
    kin_vid parts[3] = {cls, self, looks_in(r, cls, self)}, call[3] = {callee, cls, self};
    kin_vid out = parts[2] != 0 ? rec_step_out(r, KIN_STEP_BUILD_SUPER, KIN_STEP_PURE, parts, 3)
                                : rec_step_out(r, KIN_STEP_CALL, KIN_STEP_PURE, call, 3);
    rec_make_virtual(r, out, VIRTUAL_SUPER, parts, 2, true);
    return out;
}

/* Stack: what the name super means, class, object. The super object lives in the instruction only. */
void
rec_op_load_super(rec *r, PyObject *name, bool method)
{
    kin_vid callee = rec_peek(r, 2), cls = rec_peek(r, 1), self = rec_peek(r, 0);
    if (O(r, callee) != (PyObject *)&PySuper_Type || rec_need_const(r, callee) == 0 || (cls = rec_need_const(r, cls)) == 0) {
        rec_stop(r, "super is not the one of the builtins here");
        return;
    }
    rec_snapshot(r);
    kin_vid made = rec_make_super(r, rec_as_const(r, callee), cls, self);
    rec_drop(r, 3);
    rec_push(r, made);
    rec_op_load_attr(r, name, method);
}
