/* Torch calls that the program's own classes override: their __torch_function__ is inlined, called as torch would call it.
 *
 * Which class is asked follows from the operands. The method's other arguments (the function as torch names it, the classes, the operands as one tuple)
 * are made by torch in C, so they are taken from the method's frame: the function and the classes are constants, the operands are found again in the
 * tuple.
 */
#include "py/aten/modes.h"
#include "py/compat/codes.h"
#include "py/compat/kinds.h"
#include "py/objects/objects.h"
#include "py/torchcalls/skip.h"
#include "py/torchcalls/torchcalls.h"

enum { MOST_CLASSES = 8, DEPTH = 3, CLS = 0, FUNC, TYPES, ARGS, KWARGS, NPARTS };

typedef struct {
    PyTypeObject *classes[MOST_CLASSES]; /* in the order in which torch asks them */
    kin_vid operands[MOST_CLASSES];      /* one of each */
    uint32_t n;
} overriding;

/* Its class, if that takes over calls. */
static PyTypeObject *
class_that_overrides(rec *r, kin_vid vid)
{
    PyObject *obj = O(r, vid);
    rec_virtual *f = VIRTUAL(r, vid);
    PyTypeObject *type = f != NULL && f->kind == VIRTUAL_OBJECT ? r->info.at[vid].type : obj != NULL && f == NULL ? Py_TYPE(obj) : NULL;
    if (type == NULL || !(type->tp_flags & Py_TPFLAGS_HEAPTYPE))
        return NULL;
    if (obj != NULL && kin_is_tensor(obj))
        return rec_kind_of_tensor(obj) == REC_TENSOR_OVERRIDES ? type : NULL;
    return _PyType_Lookup(type, REC_STR("__torch_function__")) != NULL && !kin_overrides_off() ? type : NULL;
}

/* A subclass is asked before what it is derived from, else the operand that comes first. */
static void
add_class(overriding *o, PyTypeObject *type, kin_vid vid)
{
    uint32_t at = 0;
    for (uint32_t i = 0; i < o->n; i++)
        if (o->classes[i] == type)
            return;
    while (at < o->n && !PyType_IsSubtype(type, o->classes[at]))
        at++;
    if (o->n == MOST_CLASSES)
        return;
    memmove(o->classes + at + 1, o->classes + at, (o->n - at) * sizeof *o->classes);
    memmove(o->operands + at + 1, o->operands + at, (o->n - at) * sizeof *o->operands);
    o->classes[at] = type;
    o->operands[at] = vid;
    o->n++;
}

static void
find_classes(rec *r, overriding *o, const kin_vid *args, uint32_t n, int depth)
{
    for (uint32_t i = 0; i < n; i++) {
        rec_virtual *f = args[i] != 0 ? VIRTUAL(r, args[i]) : NULL;
        PyTypeObject *type = args[i] != 0 ? class_that_overrides(r, args[i]) : NULL;
        if (type != NULL)
            add_class(o, type, args[i]);
        else if (f != NULL && f->known && (f->kind == VIRTUAL_TUPLE || f->kind == VIRTUAL_LIST) && depth < DEPTH)
            find_classes(r, o, f->items, f->n, depth + 1);
    }
}

/* The method that is asked first, bound to its class. */
static bool
find_method(rec *r, const overriding *o, kin_vid *func, kin_vid *cls)
{
    attr_result at;
    for (uint32_t i = 0; i < o->n; i++)
        if (VIRTUAL(r, o->operands[i]) == NULL)
            rec_need_attrs(r, o->operands[i]);
    rec_attr_find(r, rec_const(r, (PyObject *)o->classes[0]), REC_STR("__torch_function__"), &at);
    PyObject *method = at.kind == ATTR_METHOD ? O(r, at.value) : NULL;
    *func = at.value;
    *cls = at.self;
    return method != NULL && PyFunction_Check(method) && rec_can_inline(r, method) &&
           ((PyCodeObject *)PyFunction_GET_CODE(method))->co_argcount > ARGS;
}

static void
note_operands(rec *r, const kin_vid *args, uint32_t n)
{
    r->call.noperands = n;
    memcpy(r->call.operands, args, n * sizeof *args);
    r->call.of_torch = true;
}

bool
rec_inline_override(rec *r, const rec_args *a, const kin_vid *under, int nunder, kin_resume resume)
{
    overriding o = {.n = 0};
    kin_vid parts[NPARTS], func, pairs[2 * REC_OPERANDS];
    if (a->npos > REC_OPERANDS || a->nkw > REC_OPERANDS)
        return false;
    find_classes(r, &o, a->args, a->npos + a->nkw, 0);
    if (o.n == 0 || !find_method(r, &o, &func, &parts[CLS]))
        return false;
    parts[FUNC] = parts[TYPES] = parts[ARGS] = rec_const(r, Py_None); /* until the frame is there */
    for (uint32_t i = 0; i < a->nkw; i++) {
        pairs[2 * i] = rec_const(r, PyTuple_GET_ITEM(a->kwnames, i));
        pairs[2 * i + 1] = a->args[a->npos + i];
    }
    if (a->nkw != 0)
        parts[KWARGS] = rec_build_dict(r, pairs, 2 * a->nkw);
    kin_vid name = rec_const(r, (PyObject *)o.classes[0]);
    rec_args call = {.callee = func, .args = parts, .npos = a->nkw != 0 ? NPARTS : KWARGS, .ndrop = a->ndrop};
    if (!rec_inline(r, &call, under, nunder, resume, resume == KIN_RESUME_OVERRIDE ? name : 0))
        return false;
    note_operands(r, a->args, a->npos);
    return true;
}

/* Which operand is the object? A number may be another object of the same value. */
static kin_vid
operand_of(rec *r, PyObject *obj, uint32_t from)
{
    for (uint32_t k = 0; k < r->call.noperands; k++) {
        kin_vid vid = r->call.operands[(from + k) % r->call.noperands];
        if (O(r, vid) == obj)
            return vid;
    }
    return kin_is_exact_immutable(obj) ? rec_const(r, obj) : 0;
}

static PyObject *
content(PyObject *slot)
{
    return slot != NULL && PyCell_Check(slot) ? PyCell_GET(slot) : slot;
}

/* The method's frame has begun: its parameters are what torch has made. False: an operand is something else. */
bool
rec_override_begins(rec *r, kin_vid *slots, PyObject *const *real)
{
    kin_vid items[REC_OPERANDS];
    PyObject *args = content(real[ARGS]), *kwargs = slots[KWARGS] != 0 ? content(real[KWARGS]) : NULL;
    r->call.of_torch = false;
    if (args == NULL || !PyTuple_CheckExact(args) || PyTuple_GET_SIZE(args) > REC_OPERANDS)
        return false;
    uint32_t n = (uint32_t)PyTuple_GET_SIZE(args);
    for (uint32_t i = 0; i < n; i++)
        if ((items[i] = operand_of(r, PyTuple_GET_ITEM(args, i), i)) == 0)
            return false;
    slots[FUNC] = rec_const(r, content(real[FUNC]));
    slots[TYPES] = rec_const(r, content(real[TYPES]));
    slots[ARGS] = rec_build_tuple(r, items, n, args);
    if (kwargs != NULL && VIRTUAL(r, slots[KWARGS]) == NULL && PyDict_CheckExact(kwargs) && PyDict_GET_SIZE(kwargs) == 0)
        slots[KWARGS] = rec_build_dict(r, NULL, 0);
    return true;
}

bool
rec_overrides(rec *r, const kin_vid *args, uint32_t n)
{
    overriding o = {.n = 0};
    find_classes(r, &o, args, n, 0);
    return o.n != 0;
}

/* x.shape, x.grad: torch hands on the descriptor's own __get__. */
bool
rec_getset_override(rec *r, kin_vid base, PyObject *name, bool under)
{
    const kin_vid null = 0;
    PyObject *obj = O(r, base);
    bool overrides = VIRTUAL(r, base) == NULL && kin_is_tensor(obj) && rec_kind_of_tensor(obj) == REC_TENSOR_OVERRIDES;
    PyObject *descr = overrides ? rec_lookup(r, rec_need_attrs(r, base), name) : NULL;
    if (descr == NULL || Py_TYPE(descr) != &PyGetSetDescr_Type || !rec_is_of_tensors(descr))
        return false;
    return rec_inline_override(r, &(rec_args){.args = &base, .npos = 1, .ndrop = 1}, &null, under, KIN_RESUME_OVERRIDE);
}

/* What the default does with a call that reads metadata: with x.shape as with x.size(). */
static bool
call_of_default(rec *r, const rec_args *a)
{
    PyObject *func = a->npos > ARGS && a->nkw == 0 && rec_is_default_override(O(r, a->callee)) ? O(r, a->args[FUNC]) : NULL, *name = NULL;
    rec_virtual *args = func != NULL ? VIRTUAL(r, a->args[ARGS]) : NULL;
    if (args == NULL || !args->known || args->kind != VIRTUAL_TUPLE || args->n != 1 || !rec_is_const(r, a->args[FUNC]) || !kin_is_tensor(O(r, args->items[0])))
        return false;
    PyObject *self = kin_is_method_wrapper(func) ? PyObject_GetAttrString(func, "__self__") : Py_NewRef(func);
    if (self != NULL && rec_is_of_tensors(self))
        name = PyDescr_NAME(self);
    PyErr_Clear();
    unsigned mask = name != NULL ? rec_meta_mask(kin_utf8(name)) : 0;
    Py_XDECREF(self);
    if (mask == 0 || (mask & KIN_META_SIZES && rec_dynamic_dims(r, args->items[0]) != 0))
        return false;
    rec_need_attrs(r, args->items[0]);
    if (!rec_meta(r, args->items[0], mask))
        return false;
    r->skip_expected = true;
    rec_drop(r, a->ndrop);
    rec_await_const(r);
    return true;
}

/* with torch._C.DisableTorchFunctionSubclass(): the object, and its methods, which switch and run no code of the program. */
static bool
call_switch(rec *r, const rec_args *a)
{
    PyObject *obj = O(r, a->callee);
    PyTypeObject *cls = PyType_Check(obj) ? (PyTypeObject *)obj : Py_IS_TYPE(obj, &PyMethodDescr_Type) ? PyDescr_TYPE(obj) : NULL;
    const char *dot = cls != NULL ? strrchr(cls->tp_name, '.') : NULL;
    if (dot == NULL || strcmp(dot + 1, "DisableTorchFunctionSubclass") != 0 || (cls->tp_flags & Py_TPFLAGS_HEAPTYPE))
        return false;
    rec_call_step(r, a, PyType_Check(obj) ? KIN_STEP_PURE : KIN_STEP_EFFECT, -1);
    return true;
}

/* A call of torch's functions and of methods of tensors. */
bool
rec_call_override(rec *r, const rec_args *a)
{
    PyObject *obj = O(r, a->callee);
    if (call_switch(r, a) || call_of_default(r, a))
        return true;
    if (!rec_is_torch_callable(obj) || strcmp(kin_callable_name(obj), "as_subclass") == 0 || strstr(kin_callable_name(obj), "torch_function") != NULL)
        return false;
    if (!rec_overrides(r, a->args, a->npos + a->nkw))
        return false;
    if (PyFunction_Check(obj)) /* it hands the call on itself */
        return kin_function_is_plain(obj) && rec_code_of((PyCodeObject *)PyFunction_GET_CODE(obj)) != NULL && rec_inline(r, a, NULL, 0, KIN_RESUME_PUSH, 0);
    return rec_inline_override(r, a, NULL, 0, KIN_RESUME_OVERRIDE);
}
