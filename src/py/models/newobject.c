/* Calls of classes written in C that only create an object: no user code runs, and nobody is notified of
 * the new object. They are executed again at replay, and end neither an epoch nor a graph.
 */
#include "py/compat/heap.h"
#include "py/models/models.h"

/* types.SimpleNamespace(name=value, ...): an object whose attributes are known. */
static bool
new_namespace(rec *r, const rec_args *a)
{
    kin_vid pairs[200];
    if (a->npos != 0 || a->nkw > 100)
        return false;
    for (uint32_t i = 0; i < a->nkw; i++) {
        pairs[2 * i] = rec_const(r, PyTuple_GET_ITEM(a->kwnames, i));
        pairs[2 * i + 1] = a->args[i];
    }
    kin_vid out = rec_model_step(r, a, KIN_STEP_PURE);
    rec_make_virtual(r, out, VIRTUAL_OBJECT, pairs, 2 * a->nkw, true);
    r->info.at[out].type = (PyTypeObject *)O(r, a->callee);
    return true;
}

/* The class keeps what it is handed, or takes numbers, and looks at nothing else. */
static bool
new_keeper_as(rec *r, const rec_args *a, unsigned flags)
{
    for (uint32_t i = a->npos; i < a->npos + a->nkw; i++)
        if (!kin_is_exact_immutable(O(r, a->args[i])))
            return false;
    kin_vid out = rec_model_step(r, a, flags);
    r->info.at[out].type = (PyTypeObject *)O(r, a->callee);
    return true;
}

static bool
new_keeper(rec *r, const rec_args *a)
{
    return new_keeper_as(r, a, 0);
}

/* The class goes through its first argument: one that runs no code when it is iterated over. */
static bool
new_from_items(rec *r, const rec_args *a)
{
    if (a->npos > 0) {
        PyObject *obj = O(r, a->args[0]);
        bool items = VIRTUAL(r, a->args[0]) != NULL && VIRTUAL(r, a->args[0])->kind == VIRTUAL_TUPLE;
        PyTypeObject *tp = obj != NULL ? Py_TYPE(obj) : items ? &PyTuple_Type : NULL;
        if (tp != &PyList_Type && tp != &PyTuple_Type && tp != &PyDict_Type && tp != &PySet_Type && tp != &PyUnicode_Type &&
            tp != &PyRange_Type)
            return false;
        if (VIRTUAL(r, a->args[0]) == NULL)
            rec_need_type(r, a->args[0]);
    }
    return new_keeper_as(r, a, KIN_STEP_PURE);
}

/* A deque: what it holds is not followed, but nobody else has it. */
static bool
new_deque(rec *r, const rec_args *a)
{
    if (!new_from_items(r, a))
        return false;
    kin_vid out = r->top->await_vid;
    rec_virtual *items = a->npos ? VIRTUAL(r, a->args[0]) : NULL;
    rec_make_virtual(r, out, VIRTUAL_OTHER, items ? items->items : NULL, items ? items->n : 0, false);
    if (a->npos && items == NULL)
        VIRTUAL(r, out)->escaped = true; /* whatever lies in it is reached from elsewhere */
    return true;
}

/* types.MappingProxyType(d) of a dict made here: a view of its keys, under which also its values are found. */
static bool
new_proxy(rec *r, const rec_args *a)
{
    const rec_virtual *f = a->npos == 1 && !a->nkw ? VIRTUAL(r, a->args[0]) : NULL;
    if (f == NULL || f->kind != VIRTUAL_DICT || !f->known || !(PyDict_CheckExact(O(r, a->args[0])) || PyODict_CheckExact(O(r, a->args[0]))))
        return false;
    kin_vid out = rec_model_step(r, a, KIN_STEP_PURE);
    rec_virtual *view = rec_make_virtual(r, out, VIRTUAL_VIEW, a->args, 1, true);
    if (view != NULL)
        view->pos = 'k';
    r->info.at[out].type = &PyDictProxy_Type;
    return true;
}

static bool
new_without_arguments(rec *r, const rec_args *a)
{
    return a->npos + a->nkw == 0 && new_keeper(r, a);
}

/* torch's context managers: the object is made here, what they do is done on entering. */
static bool
new_guard(rec *r, const rec_args *a)
{
    for (uint32_t i = 0; i < a->npos + a->nkw; i++)
        if (!kin_is_exact_immutable(O(r, a->args[i])) || rec_need_const(r, a->args[i]) == 0)
            return false;
    return new_keeper(r, a);
}

/* torch.return_types.max((values, indices)) and the like: what the tuple or list holds is known by number, and fields are read from the new object. */
static bool
new_struct_sequence(rec *r, const rec_args *a, PyTypeObject *tp)
{
    PyObject *fields = PyDict_GetItemString(kin_type_dict(tp), "n_sequence_fields"); /* borrowed; C classes only have it */
    kin_vid *items = NULL;
    uint32_t n = 0;
    if (fields == NULL || !PyLong_CheckExact(fields) || a->npos != 1 || a->nkw || O(r, a->args[0]) == NULL ||
        (!PyTuple_CheckExact(O(r, a->args[0])) && !PyList_CheckExact(O(r, a->args[0]))) || !rec_items_of(r, a->args[0], &items, &n))
        return false;
    bool fits = PyLong_AsLong(fields) == (long)n;
    if (fits) {
        kin_vid out = rec_model_step(r, a, KIN_STEP_PURE);
        rec_make_virtual(r, out, VIRTUAL_NAMED, items, n, true);
        r->info.at[out].type = tp;
        r->info.at[out].type_epoch = rec_epoch(r) + 1;
    }
    free(items);
    return fits;
}

static const struct {
    const char *name; /* tp_name */
    bool (*fn)(rec *r, const rec_args *a);
} rows[] = {{"types.SimpleNamespace", new_namespace}, {"collections.deque", new_deque}, {"mappingproxy", new_proxy},
            {"itertools.count", new_without_arguments}, {"itertools.repeat", new_keeper}, {"operator.itemgetter", rec_new_getter},
            {"operator.attrgetter", rec_new_getter}, {"operator.methodcaller", rec_new_getter},
            {"weakref.ReferenceType", rec_new_weakref}, {"method", rec_new_method}, {"object", new_without_arguments}, {"_io.BytesIO", new_without_arguments},
            {"_io.StringIO", new_without_arguments}, {"torch._C._InferenceMode", new_guard}};

bool
rec_model_new_object(rec *r, const rec_args *a, PyTypeObject *tp)
{
    bool torch_guard = strncmp(tp->tp_name, "torch._C.", 9) == 0;
    if (PyType_IsSubtype(tp, &PyTuple_Type) && !(tp->tp_flags & Py_TPFLAGS_BASETYPE))
        return new_struct_sequence(r, a, tp);
    if ((tp->tp_flags & Py_TPFLAGS_HEAPTYPE) && !torch_guard && !(tp->tp_flags & Py_TPFLAGS_IMMUTABLETYPE))
        return false; /* a class of the program may have any name */
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (strcmp(tp->tp_name, rows[i].name) == 0)
            return rows[i].fn(r, a);
    return false;
}
