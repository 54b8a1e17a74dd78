/* object.__reduce_ex__, which copy.copy asks of objects of the program's classes: how to make another one like it. The answer is a tuple of
 * copyreg.__newobj__, the class and the object's state: its __dict__, and the values of its slots where there are some.
 */
#include "py/compat/heap.h"
#include "py/compat/imports.h"
#include "py/models/models.h"
#include "py/objects/objects.h"

enum { MOST_SLOTS = 64 };

/* Does the class leave it to object? Before anything is changed or written. */
static bool
has_of_object(PyTypeObject *tp, const char *name)
{
    PyObject *text = PyUnicode_InternFromString(name);
    bool same = text != NULL && _PyType_Lookup(tp, text) == PyDict_GetItem(kin_type_dict(&PyBaseObject_Type), text);
    Py_XDECREF(text);
    return same;
}

/* Is what object's own code does all that happens? An instance may have attributes of these names, too. */
static bool
is_left_to_object(rec *r, kin_vid obj, const char *name, bool absent)
{
    attr_result at;
    PyObject *text = PyUnicode_InternFromString(name), *own = text ? PyDict_GetItem(kin_type_dict(&PyBaseObject_Type), text) : NULL;
    if (text != NULL)
        rec_attr_find(r, obj, text, &at);
    bool ok = text != NULL && (absent ? at.kind == ATTR_ABSENT : own != NULL && at.kind == ATTR_METHOD && at.self == obj && O(r, at.value) == own);
    Py_XDECREF(text);
    return ok;
}

/* The names of slots that the class and its bases have, as copyreg finds and keeps them; NULL: not known. */
static PyObject *
slot_names(PyTypeObject *tp)
{
    PyObject *names = PyDict_GetItemString(kin_type_dict(tp), "__slotnames__");
    if (names != NULL)
        return PyList_CheckExact(names) ? Py_NewRef(names) : NULL;
    names = kin_import_call("copyreg", "_slotnames", (PyObject *)tp);
    PyErr_Clear();
    if (names != NULL && !PyList_CheckExact(names))
        Py_CLEAR(names);
    return names;
}

/* A dict of the slots that have a value. False: not known. */
static bool
state_of_slots(rec *r, kin_vid obj, PyObject *names, kin_vid *state)
{
    kin_vid pairs[2 * MOST_SLOTS];
    uint32_t n = 0;
    *state = 0;
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(names); i++) {
        attr_result at;
        PyObject *name = PyList_GET_ITEM(names, i);
        if (n == 2 * MOST_SLOTS || !PyUnicode_CheckExact(name))
            return false;
        rec_attr_find(r, obj, name, &at);
        if (at.kind == ATTR_ABSENT)
            continue;
        if (at.kind != ATTR_VALUE)
            return false;
        pairs[n++] = rec_const(r, name);
        pairs[n++] = at.value;
    }
    if (n == 0)
        return true;
    *state = rec_step_out(r, KIN_STEP_BUILD_MAP, KIN_STEP_PURE, pairs, n);
    rec_make_virtual(r, *state, VIRTUAL_DICT, pairs, n, true);
    r->info.at[*state].type = &PyDict_Type;
    return true;
}

/* The object's __dict__ itself, or None where nothing is in it. False: not known. */
static bool
state_of_dict(rec *r, kin_vid obj, kin_vid *state)
{
    attr_result at;
    *state = rec_const(r, Py_None);
    if (!rec_has_instance_dict(Py_TYPE(O(r, obj))))
        return true;
    rec_attr_find(r, obj, REC_STR("__dict__"), &at);
    if (at.kind != ATTR_VALUE || O(r, at.value) == NULL || !PyDict_CheckExact(O(r, at.value)))
        return false;
    const rec_virtual *known = rec_exact_dict(r, at.value);
    int filled = known != NULL ? known->n > 0 : rec_truth(r, at.value);
    if (filled > 0)
        *state = at.value;
    return filled >= 0;
}

bool
rec_model_reduce(rec *r, const rec_args *a)
{
    static PyObject *newobj;
    PyObject *obj = a->npos == 2 && a->nkw == 0 ? O(r, a->args[0]) : NULL, *protocol = obj != NULL ? O(r, a->args[1]) : NULL;
    PyTypeObject *tp = obj != NULL ? Py_TYPE(obj) : NULL;
    const rec_virtual *f = obj != NULL ? VIRTUAL(r, a->args[0]) : NULL;
    bool ours = tp != NULL && tp->tp_flags & Py_TPFLAGS_HEAPTYPE && tp->tp_itemsize == 0 && PyType_Check(tp) && Py_TYPE(tp) == &PyType_Type &&
                tp->tp_alloc == PyBaseObject_Type.tp_alloc && !kin_is_tensor(obj) && !PyList_Check(obj) && !PyDict_Check(obj) && !PyExceptionInstance_Check(obj);
    ours = ours && has_of_object(tp, "__reduce__") && has_of_object(tp, "__getstate__") && has_of_object(tp, "__getnewargs_ex__") && has_of_object(tp, "__getnewargs__");
    if (!ours || (f != NULL && (f->kind != VIRTUAL_OBJECT || !f->known)) || protocol == NULL || !PyLong_CheckExact(protocol) ||
        kin_import_once(&newobj, "copyreg", "__newobj__") == NULL)
        return false;
    long version = PyLong_AsLong(protocol);
    PyErr_Clear();
    PyObject *names = version >= 2 ? slot_names(tp) : NULL; /* first of all: it changes the class */
    kin_vid state, slots, inner[1], pair[2], items[5];
    uint32_t start = r->t->steps.len;
    bool known = names != NULL && rec_need_const(r, a->args[1]) != 0 && is_left_to_object(r, a->args[0], "__reduce__", false) &&
                 is_left_to_object(r, a->args[0], "__getstate__", false) && is_left_to_object(r, a->args[0], "__getnewargs_ex__", true) &&
                 is_left_to_object(r, a->args[0], "__getnewargs__", true) && state_of_dict(r, a->args[0], &state) && state_of_slots(r, a->args[0], names, &slots);
    Py_XDECREF(names);
    if (!known) {
        rec_truncate(r, start);
        return false;
    }
    if (slots != 0) {
        pair[0] = state;
        pair[1] = slots;
        state = rec_build_tuple(r, pair, 2, NULL);
    }
    inner[0] = rec_const(r, (PyObject *)tp);
    items[0] = rec_const(r, newobj);
    items[1] = rec_build_tuple(r, inner, 1, NULL);
    items[2] = state;
    items[3] = items[4] = rec_const(r, Py_None);
    kin_vid out = rec_build_tuple(r, items, 5, NULL);
    rec_drop(r, a->ndrop);
    rec_await_result(r, out, r->t->vals.at[out].step);
    return true;
}
