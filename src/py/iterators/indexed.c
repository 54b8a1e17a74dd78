/* Objects that C code iterates over by calling their __getitem__ in Python with one index after the other: iter(), reversed(), and all that takes an
 * iterable. Whoever allocates memory for the items asks for the length first, a __len__ in Python.
 *
 * The iterators are virtual objects that are asked item by item (ask.c).
 */
#include "py/iterators/consume.h"
#include "py/models/models.h"
#include "py/objects/objects.h"
#include "py/replay/iterator_state.h"

/* Does the class have the method, in Python, as it can be followed? Writes nothing. */
static bool
has_in_python(rec *r, PyTypeObject *tp, PyObject *name)
{
    PyObject *func = _PyType_Lookup(tp, name);
    return func != NULL && PyFunction_Check(func) && rec_can_inline(r, func);
}

/* NULL: it is no object of the program's that is followed. */
static PyTypeObject *
class_of(rec *r, kin_vid vid)
{
    const rec_virtual *f = vid ? VIRTUAL(r, vid) : NULL;
    PyObject *obj = vid ? O(r, vid) : NULL;
    bool ours = obj != NULL && (f == NULL || (f->kind == VIRTUAL_OBJECT && f->known && !f->escaped));
    return ours && Py_TYPE(obj)->tp_flags & Py_TPFLAGS_HEAPTYPE && PySequence_Check(obj) && !kin_is_tensor(obj) ? Py_TYPE(obj) : NULL;
}

bool
rec_is_indexed(rec *r, kin_vid vid)
{
    PyTypeObject *tp = class_of(r, vid);
    return tp != NULL && tp->tp_iter == NULL && kin_iterator_can_set(&PySeqIter_Type) && has_in_python(r, tp, REC_STR("__getitem__")) && _PyType_Lookup(tp, REC_STR("__iter__")) == NULL;
}

bool
rec_is_indexed_backwards(rec *r, kin_vid vid)
{
    PyTypeObject *tp = class_of(r, vid);
    return tp != NULL && kin_iterator_can_set(&PyReversed_Type) && has_in_python(r, tp, REC_STR("__getitem__")) && has_in_python(r, tp, REC_STR("__len__")) &&
           _PyType_Lookup(tp, REC_STR("__reversed__")) == NULL;
}

static kin_vid
make_iterator(rec *r, kin_vid out, PyTypeObject *cls, kin_vid source, uint32_t pos)
{
    const kin_vid items[] = {[LAZY_CLASS] = rec_const(r, (PyObject *)cls), [LAZY_CALLBACK] = 0, [LAZY_SOURCES] = source};
    rec_virtual *f = rec_make_virtual(r, out, VIRTUAL_LAZY, items, sizeof items / sizeof *items, true);
    if (f != NULL) {
        f->made_of = f->n;
        f->pos = pos;
    }
    r->info.at[out].type = cls;
    return out;
}

kin_vid
rec_index_iterator(rec *r, kin_vid vid)
{
    if (VIRTUAL(r, vid) == NULL && r->region == NULL)
        rec_root(r, vid);
    PyTypeObject *tp = rec_need_attrs(r, vid);
    rec_lookup(r, tp, REC_STR("__iter__"));
    return make_iterator(r, rec_step_out(r, KIN_STEP_ITER, KIN_STEP_PURE, &vid, 1), &PySeqIter_Type, vid, 0);
}

void
rec_push_index_iterator(rec *r, kin_vid vid, int ndrop)
{
    kin_vid out = rec_index_iterator(r, vid);
    rec_drop(r, ndrop);
    rec_await_result(r, out, r->t->vals.at[out].step);
}

/* -- lengths ----------------------------------------------------------------------------------------------------------------- */

/* Its __len__ in Python, its __length_hint__ where it has none and that is asked for then, or 0 where it has neither. False: it has another one. */
static bool
length_of(rec *r, kin_vid vid, bool hinted, kin_vid *length)
{
    PyTypeObject *tp = Py_TYPE(O(r, vid));
    PyObject *const names[] = {REC_STR("__len__"), REC_STR("__length_hint__")};
    *length = 0;
    for (int i = 0; i < (hinted ? 2 : 1); i++) {
        if (_PyType_Lookup(tp, names[i]) != NULL) {
            *length = has_in_python(r, tp, names[i]) ? rec_python_method(r, vid, names[i]) : 0;
            return *length != 0;
        }
        rec_need_attrs(r, vid);
        rec_lookup(r, tp, names[i]);
    }
    return true;
}

kin_vid
rec_hidden_index_iterator(rec *r, kin_vid vid, bool sized, kin_vid *length)
{
    *length = 0;
    if (!rec_is_indexed(r, vid))
        return 0;
    if (VIRTUAL(r, vid) == NULL && r->region == NULL)
        rec_root(r, vid);
    return !sized || length_of(r, vid, true, length) ? rec_index_iterator(r, vid) : 0;
}

bool
rec_length_of_iterator(rec *r, kin_vid it, kin_vid *length)
{
    const rec_virtual *f = VIRTUAL(r, it);
    kin_iterator_kind kind = f->kind == VIRTUAL_LAZY ? kin_iterator_kind_of(r->info.at[it].type) : KIN_ITERATOR__COUNT;
    *length = 0;
    if ((kind != KIN_ITERATOR_SEQUENCE && kind != KIN_ITERATOR_REVERSED) || f->gone != 0)
        return true;
    return class_of(r, f->items[LAZY_SOURCES]) != NULL && length_of(r, f->items[LAZY_SOURCES], false, length);
}

/* -- reversed() --------------------------------------------------------------------------------------------------------------- */

/* The length is there: the object that counts down from it, which an empty tuple stands in for at first, as making one of the object would ask that again. */
static bool
finish_reversed(rec *r, rec_consumer *c)
{
    kin_vid object = c->inputs[0], length = c->items[0];
    PyObject *number = c->held[0], *nothing = PyTuple_New(0);
    Py_ssize_t n = PyLong_CheckExact(number) ? PyLong_AsSsize_t(number) : -1;
    PyErr_Clear();
    if (O(r, length) == NULL)
        rec_set_obj(r, length, number);
    bool ok = nothing != NULL && c->kept.len == 1 && n >= 0 && n < 1000000 && (length = rec_need_const(r, length)) != 0;
    if (ok) {
        r->info.at[object].obj = c->kept.at[0]; /* the new object has it */
        const kin_vid call[2] = {rec_const(r, (PyObject *)&PyReversed_Type), rec_const(r, nothing)}, pair[2] = {object, length};
        kin_vid out = make_iterator(r, rec_step_out(r, KIN_STEP_CALL, KIN_STEP_PURE, call, 2), &PyReversed_Type, object, (uint32_t)n);
        const kin_vid state[2] = {out, rec_build_tuple(r, pair, 2, NULL)};
        rec_step(r, KIN_STEP_ITERATOR_AT, KIN_STEP_MUTATES, state, 2);
        rec_drop(r, c->call.ndrop);
        rec_await_result(r, out, r->t->vals.at[out].step);
    }
    Py_XDECREF(nothing);
    return ok;
}

static const consumer_row reversed_row = {.name = "reversed", .rule = TAKE_ALL, .finish = finish_reversed};

/* The class has a __reversed__ in Python, whose result is that of the call. */
static bool
call_reversed(rec *r, const rec_args *a)
{
    PyObject *obj = O(r, a->args[0]), *func = obj != NULL ? _PyType_Lookup(Py_TYPE(obj), REC_STR("__reversed__")) : NULL;
    bool ours = func != NULL && PyFunction_Check(func) && !kin_is_tensor(obj) && Py_TYPE(obj)->tp_flags & Py_TPFLAGS_HEAPTYPE;
    if (!ours || (VIRTUAL(r, a->args[0]) != NULL && VIRTUAL(r, a->args[0])->kind != VIRTUAL_OBJECT))
        return false;
    PyTypeObject *tp = rec_need_attrs(r, a->args[0]);
    rec_lookup(r, tp, REC_STR("__reversed__"));
    const rec_args call = {.callee = rec_found(r, tp, REC_STR("__reversed__"), func), .args = a->args, .npos = 1, .ndrop = a->ndrop};
    return rec_generator_call(r, &call) || (rec_can_inline(r, func) && rec_inline(r, &call, NULL, 0, KIN_RESUME_PUSH, 0));
}

bool
rec_consume_indexed(rec *r, const rec_args *a)
{
    PyObject *callee = O(r, a->callee);
    if (a->npos != 1 || a->nkw != 0)
        return false;
    if (callee == PyDict_GetItemString(PyEval_GetBuiltins(), "iter") && rec_is_indexed(r, a->args[0])) {
        rec_push_index_iterator(r, a->args[0], a->ndrop);
        return true;
    }
    if (callee == (PyObject *)&PyReversed_Type && call_reversed(r, a))
        return true;
    if (callee != (PyObject *)&PyReversed_Type || !rec_is_indexed_backwards(r, a->args[0]))
        return false;
    if (VIRTUAL(r, a->args[0]) == NULL && r->region == NULL)
        rec_root(r, a->args[0]);
    kin_vid length = rec_python_method(r, a->args[0], REC_STR("__len__")), *inputs = length != 0 ? malloc(sizeof *inputs) : NULL;
    if (inputs == NULL)
        return false;
    rec_lookup(r, rec_need_attrs(r, a->args[0]), REC_STR("__reversed__"));
    inputs[0] = a->args[0];
    rec_consumer *c = rec_begin_callbacks(r, &reversed_row, length, inputs, 1, 1);
    if (c == NULL)
        return false;
    rec_consume_as(r, c, a);
    rec_hold(r, c, O(r, a->args[0]));
    rec_next_callback(r, c);
    return true;
}
