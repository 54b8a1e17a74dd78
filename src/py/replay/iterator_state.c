/* The state of C iterators. None of it can be set through Python in all versions (3.14 has no __setstate__ any more), so it is written in place.
 * Whether the objects look as the structures here say is found out by looking at objects in a known state.
 */
#include "py/replay/iterator_state.h"

#include "py/compat/imports.h"

#include <string.h>

typedef struct {
    PyObject_HEAD
    Py_ssize_t next;
} enumerate_head;

typedef struct {
    PyObject_HEAD
    PyObject *it;
    Py_ssize_t next, stop, step, count;
} islice_head;

typedef struct {
    PyObject_HEAD
    PyObject *func, *it;
    long flag;
} while_head;

typedef struct {
    PyObject_HEAD
    PyObject *total, *it, *func, *initial;
} accumulate_head;

typedef struct {
    PyObject_HEAD
    PyObject *source, *active;
} chain_head;

typedef struct {
    PyObject_HEAD
    PyObject *it, *old;
} pairwise_head;

typedef struct {
    PyObject_HEAD
    PyObject *it;
} tee_data_head;

typedef struct {
    PyObject_HEAD
    tee_data_head *data; /* the items from here on, which its copies share */
} tee_head;

typedef struct {
    PyObject_HEAD
    PyObject *it, *func, *group_key, *key, *value;
    const void *group; /* the group that may go on; it may be gone */
} groupby_head;

typedef struct {
    PyObject_HEAD
    Py_ssize_t index;
    PyObject *sequence;
} sequence_head;

/* -- is an object, made as the row says, one of ours? `it`: its source, over (3, 4, 5); `func`: its function -------------------------------- */

static bool
looks_like_enumerate(PyObject *obj, PyObject *it, PyObject *func)
{
    return ((enumerate_head *)obj)->next == 7;
}

static bool
looks_like_islice(PyObject *obj, PyObject *it, PyObject *func)
{
    const islice_head *head = (islice_head *)obj;
    return head->it == it && head->next == 0 && head->stop == 5 && head->step == 2 && head->count == 0;
}

static bool
looks_like_while(PyObject *obj, PyObject *it, PyObject *func)
{
    const while_head *head = (while_head *)obj;
    return head->func == func && head->it == it && head->flag == 0;
}

static bool
looks_like_accumulate(PyObject *obj, PyObject *it, PyObject *func)
{
    const accumulate_head *head = (accumulate_head *)obj;
    return head->total == NULL && head->it == it && head->func == func && (head->initial == NULL || head->initial == Py_None);
}

static bool
looks_like_pairwise(PyObject *obj, PyObject *it, PyObject *func)
{
    const pairwise_head *head = (pairwise_head *)obj;
    return head->it == it && head->old == NULL;
}

static bool
looks_like_chain(PyObject *obj, PyObject *it, PyObject *func)
{
    const chain_head *head = (chain_head *)obj;
    return head->source != NULL && Py_TYPE(head->source) == &PyTupleIter_Type && head->active == NULL;
}

static bool
looks_like_tee(PyObject *obj, PyObject *it, PyObject *func)
{
    return ((tee_head *)obj)->data->it == it;
}

static bool
looks_like_sequence(PyObject *obj, PyObject *it, PyObject *func)
{
    const sequence_head *head = (sequence_head *)obj;
    return head->index == 0 && head->sequence != NULL && PyTuple_CheckExact(head->sequence);
}

static bool
looks_like_reversed(PyObject *obj, PyObject *it, PyObject *func)
{
    return looks_like_sequence(obj, it, func); /* of one item, so that it gives that at index 0 */
}

static bool
looks_like_groupby(PyObject *obj, PyObject *it, PyObject *func)
{
    const groupby_head *head = (groupby_head *)obj;
    if (head->it != it || head->func != func || head->group_key != NULL || head->key != NULL || head->value != NULL)
        return false;
    PyObject *make = (PyObject *)kin_iterator_class(KIN_ITERATOR_GROUP), *group = make != NULL ? PyObject_CallFunctionObjArgs(make, obj, func, NULL) : NULL;
    bool ok = group != NULL && head->group == group;
    Py_XDECREF(group);
    return ok;
}

/* -- writing it ---------------------------------------------------------------------------------------------------------------------------- */

static void
set_enumerate(PyObject *obj, PyObject *state)
{
    ((enumerate_head *)obj)->next = PyLong_AsSsize_t(state);
}

static void
set_islice(PyObject *obj, PyObject *state)
{
    islice_head *head = (islice_head *)obj;
    if (state == Py_None) {
        Py_CLEAR(head->it);
        return;
    }
    head->next = PyLong_AsSsize_t(PyTuple_GET_ITEM(state, 0));
    head->count = PyLong_AsSsize_t(PyTuple_GET_ITEM(state, 1));
}

static void
set_while(PyObject *obj, PyObject *state)
{
    ((while_head *)obj)->flag = PyLong_AsLong(state);
}

static void
set_accumulate(PyObject *obj, PyObject *state)
{
    accumulate_head *head = (accumulate_head *)obj;
    if (head->initial != NULL)
        Py_SETREF(head->initial, Py_NewRef(Py_None));
    Py_XSETREF(head->total, Py_NewRef(state));
}

static void
set_pairwise(PyObject *obj, PyObject *state)
{
    pairwise_head *head = (pairwise_head *)obj;
    if (state == Py_None)
        Py_CLEAR(head->it);
    Py_XSETREF(head->old, state != Py_None ? Py_NewRef(PyTuple_GET_ITEM(state, 0)) : NULL);
}

static void
set_chain(PyObject *obj, PyObject *state)
{
    chain_head *head = (chain_head *)obj;
    if (!PyLong_CheckExact(state)) {
        Py_XSETREF(head->active, state != Py_None ? Py_NewRef(state) : NULL);
        if (state == Py_None)
            Py_CLEAR(head->source);
        return;
    }
    PyObject *done = head->source != NULL ? PyObject_CallMethod(head->source, "__setstate__", "O", state) : NULL;
    Py_CLEAR(head->active);
    Py_XDECREF(done);
}

static void
set_sequence(PyObject *obj, PyObject *state)
{
    sequence_head *head = (sequence_head *)obj;
    if (state == Py_None)
        Py_CLEAR(head->sequence);
    else
        head->index = PyLong_AsSsize_t(state);
}

/* It was made of an empty tuple: what it goes over comes with the first index. */
static void
set_reversed(PyObject *obj, PyObject *state)
{
    sequence_head *head = (sequence_head *)obj;
    if (PyTuple_CheckExact(state)) {
        Py_XSETREF(head->sequence, Py_NewRef(PyTuple_GET_ITEM(state, 0)));
        head->index = PyLong_AsSsize_t(PyTuple_GET_ITEM(state, 1)) - 1;
    } else if (state == Py_None) {
        head->index = -1;
        Py_CLEAR(head->sequence);
    } else {
        head->index = PyLong_AsSsize_t(state) - 1;
    }
}

/* The next item of a tee object, whose source is `from` as long as this takes. */
static PyObject *
next_from(PyObject *tee, PyObject *from)
{
    tee_data_head *data = (tee_data_head *)Py_NewRef(((tee_head *)tee)->data); /* the object may go on to the next part of the data */
    PyObject *it = data->it;
    data->it = from;
    PyObject *item = PyIter_Next(tee);
    tee_data_head *now = ((tee_head *)tee)->data;
    if (now != data && now->it == from) { /* made now */
        Py_DECREF(from);
        now->it = Py_XNewRef(it);
    }
    data->it = it;
    Py_DECREF(data);
    return item;
}

/* None: it gives an item that its copies have asked for already. */
static void
set_tee(PyObject *obj, PyObject *state)
{
    PyObject *nothing = PyTuple_New(0), *empty = nothing != NULL ? PyObject_GetIter(nothing) : NULL;
    if (empty != NULL)
        Py_XDECREF(next_from(obj, empty));
    Py_XDECREF(empty);
    Py_XDECREF(nothing);
}

/* The items of `state` come behind those that the tee objects' source has given. */
static void
give_to_tees(PyObject *tees, PyObject *state)
{
    PyObject *copy = PyObject_CallMethod(PyTuple_GET_ITEM(tees, 0), "__copy__", NULL), *from = copy != NULL ? PyObject_GetIter(state) : NULL;
    while (from != NULL && PyObject_LengthHint(from, 0) > 0) {
        PyObject *item = next_from(copy, from);
        if (item == NULL)
            break;
        Py_DECREF(item);
    }
    Py_XDECREF(from);
    Py_XDECREF(copy);
}

static void
set_groupby(PyObject *obj, PyObject *state)
{
    groupby_head *head = (groupby_head *)obj;
    PyObject *const *items = ((PyTupleObject *)state)->ob_item;
    bool ahead = PyTuple_GET_SIZE(state) == 4;
    Py_XSETREF(head->group_key, Py_NewRef(items[0]));
    head->group = items[1] != Py_None ? items[1] : NULL;
    Py_XSETREF(head->key, ahead ? Py_NewRef(items[2]) : NULL);
    Py_XSETREF(head->value, ahead ? Py_NewRef(items[3]) : NULL);
}

/* -- the classes --------------------------------------------------------------------------------------------------------------------------- */

typedef struct {
    const char *module, *name, *example;
    bool (*looks)(PyObject *obj, PyObject *it, PyObject *func); /* NULL: it keeps nothing */
    void (*set)(PyObject *obj, PyObject *state);
} state_row;

#define looks_like_none NULL
#define set_none NULL
static const state_row rows[] = {
#define ITERATOR(KIND, module, name, makes, sources, least, most, reads, gives, state, example) {module, name, example, looks_like_##state, set_##state},
#include "py/replay/iterators.def"
#undef ITERATOR
};

PyTypeObject *
kin_iterator_class(kin_iterator_kind kind)
{
    static PyObject *classes[KIN_ITERATOR__COUNT];
    if (kind == KIN_ITERATOR_SEQUENCE)
        return &PySeqIter_Type; /* no module has it */
    return (PyTypeObject *)kin_import_once(&classes[kind], rows[kind].module, rows[kind].name);
}

kin_iterator_kind
kin_iterator_kind_of(const PyTypeObject *tp)
{
    kin_iterator_kind kind = 0;
    while (kind < KIN_ITERATOR__COUNT && (tp == NULL || kin_iterator_class(kind) != tp))
        kind++;
    return kind;
}

static PyObject *
make_example(const char *operands, PyObject *cls, PyObject *it, PyObject *func)
{
    if (strcmp(operands, "On") == 0)
        return PyObject_CallFunction(cls, "On", it, (Py_ssize_t)7);
    if (strcmp(operands, "Onnn") == 0)
        return PyObject_CallFunction(cls, "Onnn", it, (Py_ssize_t)0, (Py_ssize_t)5, (Py_ssize_t)2);
    if (strcmp(operands, "O") == 0)
        return PyObject_CallFunctionObjArgs(cls, it, NULL);
    if (strcmp(operands, "S") == 0) {
        PyObject *items = Py_BuildValue("(O)", it), *made = NULL;
        if (items != NULL)
            made = cls == (PyObject *)&PySeqIter_Type ? PySeqIter_New(items) : PyObject_CallOneArg(cls, items);
        Py_XDECREF(items);
        return made;
    }
    bool first = operands[0] == 'F';
    return PyObject_CallFunctionObjArgs(cls, first ? func : it, first ? it : func, NULL);
}

static bool
looks_as_expected(kin_iterator_kind kind)
{
    PyObject *numbers = Py_BuildValue("(iii)", 3, 4, 5), *it = numbers != NULL ? PyObject_GetIter(numbers) : NULL, *func = kin_import("operator", "add");
    PyObject *obj = it != NULL && func != NULL ? make_example(rows[kind].example, (PyObject *)kin_iterator_class(kind), it, func) : NULL;
    bool ok = obj != NULL && rows[kind].looks(obj, it, func);
    Py_XDECREF(obj);
    Py_XDECREF(func);
    Py_XDECREF(it);
    Py_XDECREF(numbers);
    PyErr_Clear();
    return ok;
}

static bool
is_settable(kin_iterator_kind kind)
{
    static enum { UNKNOWN, OURS, OTHER } layouts[KIN_ITERATOR__COUNT];
    if (layouts[kind] == UNKNOWN)
        layouts[kind] = rows[kind].looks == NULL || looks_as_expected(kind) ? OURS : OTHER;
    return layouts[kind] == OURS;
}

bool
kin_iterator_can_set(const PyTypeObject *tp)
{
    kin_iterator_kind kind = kin_iterator_kind_of(tp);
    return kind != KIN_ITERATOR__COUNT && is_settable(kind);
}

bool
kin_iterator_set(PyObject *iterator, PyObject *state)
{
    if (PyTuple_CheckExact(iterator)) {
        give_to_tees(iterator, state);
        return !PyErr_Occurred();
    }
    kin_iterator_kind kind = kin_iterator_kind_of(Py_TYPE(iterator));
    if (kind == KIN_ITERATOR__COUNT || rows[kind].set == NULL || !is_settable(kind)) {
        PyErr_SetString(PyExc_SystemError, "kintsugi: an iterator without a known state");
        return false;
    }
    rows[kind].set(iterator, state);
    return !PyErr_Occurred();
}
