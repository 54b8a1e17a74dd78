/* weakref.ref(x), and what calling it gives while a variable has x. Code that asks later whether x is gone is left to CPython, as is a reference with
 * a callback: when an object is freed is known to nobody but the interpreter.
 */
#include "py/models/models.h"

/* CPython makes one reference without a callback for each object. */
static kin_vid
find_reference(rec *r, kin_vid referent)
{
    for (kin_vid vid = 1; vid < r->info.len; vid++) {
        const rec_virtual *f = VIRTUAL(r, vid);
        if (f != NULL && f->kind == VIRTUAL_WEAKREF && f->items[0] == referent)
            return vid;
    }
    return 0;
}

/* Does a variable, or an operand that is in use, hold the value? */
static bool
is_held(const rec *r, kin_vid vid)
{
    for (const rec_frame *f = r->top; f != NULL; f = f->back)
        for (int i = 0; i < f->nlocals + f->sp; i++) {
            const rec_virtual *cell = f->slots[i] ? VIRTUAL(r, f->slots[i]) : NULL;
            if (f->slots[i] == vid || (cell != NULL && cell->kind == VIRTUAL_CELL && cell->known && cell->items[0] == vid))
                return true;
        }
    return false;
}

/* Since 3.12 the offset of an instance's list of references may be negative; 0: the class has none. */
bool
rec_new_weakref(rec *r, const rec_args *a)
{
    PyObject *obj = a->npos > 0 ? O(r, a->args[0]) : NULL;
    if (a->npos == 2 && O(r, a->args[1]) != Py_None) /* the callback runs when the object dies */
        r->info.at[a->args[0]].mortal = true;
    if (obj == NULL || a->nkw || a->npos > 2 || (a->npos == 2 && (O(r, a->args[1]) != Py_None || rec_need_const(r, a->args[1]) == 0)) ||
        Py_TYPE(obj)->tp_weaklistoffset == 0 || r->region != NULL)
        return false;
    kin_vid made = find_reference(r, a->args[0]);
    if (made != 0 && O(r, made) != NULL && is_held(r, made))
        return rec_model_value(r, a, made);
    if (made != 0)
        return false;
    if (VIRTUAL(r, a->args[0]) == NULL)
        rec_need_type(r, a->args[0]);
    kin_vid out = rec_model_step(r, a, KIN_STEP_PURE);
    rec_make_virtual(r, out, VIRTUAL_WEAKREF, a->args, 1, false);
    r->info.at[out].type = (PyTypeObject *)O(r, a->callee);
    return true;
}

bool
rec_call_weakref(rec *r, const rec_args *a)
{
    const rec_virtual *f = VIRTUAL(r, a->callee);
    return f != NULL && f->kind == VIRTUAL_WEAKREF && a->npos == 0 && a->nkw == 0 && is_held(r, f->items[0]) && rec_model_value(r, a, f->items[0]);
}
