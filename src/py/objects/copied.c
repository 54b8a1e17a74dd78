/* Containers with unknown contents: their items are read from a tuple, a copy made at replay. */
#include "py/compat/heap.h"
#include "py/objects/objects.h"

/* How items are counted, gone through, found and put. */
static const char *const played[] = {"__iter__", "__len__", "__getitem__", "__setitem__", "__delitem__", "__contains__", "__missing__", NULL};

/* Does the class take all of that over from the builtin one? */
static bool
plays(PyTypeObject *tp, PyTypeObject *base)
{
    bool same = PyType_IsSubtype(tp, base);
    for (int i = 0; same && played[i] != NULL; i++) {
        PyObject *name = PyUnicode_InternFromString(played[i]);
        same = name != NULL && _PyType_Lookup(tp, name) == _PyType_Lookup(base, name);
        Py_XDECREF(name);
    }
    PyErr_Clear(); /* without memory it does not */
    return same;
}

bool
rec_plays_builtin(PyObject *obj)
{
    PyTypeObject *tp = Py_TYPE(obj);
    return tp->tp_flags & Py_TPFLAGS_HEAPTYPE && (plays(tp, &PyList_Type) || plays(tp, &PyDict_Type));
}

void
rec_need_played(rec *r, kin_vid vid)
{
    PyTypeObject *tp = rec_need_attrs(r, vid);
    for (int i = 0; played[i] != NULL; i++) {
        PyObject *name = PyUnicode_InternFromString(played[i]);
        if (name != NULL)
            (void)rec_lookup(r, tp, name);
        else
            r->status = KIN_NOMEM;
        Py_XDECREF(name);
    }
}

/* Does going over it, once or twice, run no code of anybody's? */
static bool
iterates_without_code(PyObject *obj)
{
    PyTypeObject *tp = Py_TYPE(obj);
    return rec_plays_builtin(obj) || tp == &PyUnicode_Type || tp == &PyBytes_Type || tp == &PyByteArray_Type || tp == &PyDict_Type || tp == &PySet_Type ||
           tp == &PyFrozenSet_Type || tp == &PyRange_Type || tp == &PyDictKeys_Type || tp == &PyDictItems_Type ||
           tp == &PyDictValues_Type || kin_heap_type_is(tp, "numpy.ndarray") || kin_heap_type_is(tp, "collections.deque");
}

kin_vid
rec_item_of_copy(rec *r, kin_vid all, PyObject *key)
{
    kin_vid pair[2] = {all, rec_const(r, key)};
    Py_XDECREF(key);
    return rec_step_out(r, KIN_STEP_SUBSCR, 0, pair, 2);
}

Py_ssize_t
rec_unknown_length(rec *r, kin_vid vid)
{
    PyObject *obj = O(r, vid);
    rec_virtual *f = VIRTUAL(r, vid);
    bool list = f != NULL && f->kind == VIRTUAL_LIST && !f->known; /* made here */
    bool other = f == NULL ? !PyDict_CheckExact(obj) || r->t->vals.at[vid].kind == KIN_VAL_STEP : f->kind == VIRTUAL_DICT || f->kind == VIRTUAL_SET || (f->kind == VIRTUAL_OTHER && !f->known);
    Py_ssize_t n = list || (other && iterates_without_code(obj)) ? PyObject_Size(obj) : -1;
    if (n < 0)
        PyErr_Clear();
    return n;
}

kin_vid
rec_copy_to_tuple(rec *r, kin_vid vid, Py_ssize_t n)
{
    if (rec_plays_builtin(O(r, vid)))
        rec_need_played(r, vid);
    else if (VIRTUAL(r, vid) == NULL)
        rec_need_type(r, vid);
    kin_vid call[2] = {rec_const(r, (PyObject *)&PyTuple_Type), vid};
    const rec_virtual *f = VIRTUAL(r, vid);
    bool own = f != NULL && f->kind == VIRTUAL_OTHER && !f->escaped; /* the tuple has what lies in it, and does not lead to it */
    for (uint32_t i = 0; own && i < f->n; i++)
        rec_escape(r, f->items[i]);
    r->only_asks = true;
    r->keep_inside = own;
    kin_vid all = rec_step_out(r, KIN_STEP_CALL, 0, call, 2);
    r->only_asks = r->keep_inside = false;
    rec_check(r, KIN_CHECK_LEN, all, NULL, (uint32_t)n);
    return all;
}

bool
rec_copied_items(rec *r, kin_vid vid, uint32_t most, kin_vid **items, uint32_t *n)
{
    Py_ssize_t size = O(r, vid) != NULL ? rec_unknown_length(r, vid) : -1;
    PyObject *real = size >= 0 && size <= (Py_ssize_t)most ? PySequence_Tuple(O(r, vid)) : NULL;
    *items = real != NULL ? malloc(((size_t)size + 1) * sizeof **items) : NULL;
    if (*items == NULL) {
        Py_XDECREF(real);
        PyErr_Clear();
        return false;
    }
    kin_vid all = rec_copy_to_tuple(r, vid, size);
    for (*n = 0; *n < size; (*n)++) {
        (*items)[*n] = rec_item_of_copy(r, all, PyLong_FromSsize_t(*n));
        rec_set_obj(r, (*items)[*n], PyTuple_GET_ITEM(real, *n));
        (*items)[*n] = rec_recognise(r, (*items)[*n]);
    }
    Py_DECREF(real);
    return true;
}
