/* Comparing containers whose items the recording knows: CPython takes an item that is in the same place of both for equal to itself without asking it, so
 * the same tensors in two tuples decide nothing that depends on data. Numbers that are not assumed, such as sizes that vary, are compared one by one.
 */
#include "py/compat/heap.h"
#include "py/objects/objects.h"

enum { DEEPEST = 8 };

/* NULL: no list or tuple, or one whose class compares otherwise. */
static PyTypeObject *
compares_items(rec *r, kin_vid vid)
{
    PyObject *obj = O(r, vid);
    PyTypeObject *tp = obj == NULL ? NULL : PyTuple_Check(obj) ? &PyTuple_Type : PyList_Check(obj) ? &PyList_Type : NULL;
    return tp != NULL && Py_TYPE(obj)->tp_richcompare == tp->tp_richcompare && Py_TYPE(obj)->tp_iter == tp->tp_iter ? tp : NULL;
}

/* An int that is not assumed, but asked for in each call, and that follows from no tensor's data. */
static bool
is_open_number(rec *r, kin_vid vid)
{
    PyObject *obj = O(r, vid);
    return obj != NULL && PyLong_CheckExact(obj) && VIRTUAL(r, vid) == NULL && !rec_can_const(r, vid) && rec_data_of(r, vid) == REC_NO_DATA;
}

static bool
holds_open_number(rec *r, kin_vid vid)
{
    kin_vid *items = NULL;
    uint32_t n = 0;
    bool open = is_open_number(r, vid);
    bool known = !open && VIRTUAL(r, vid) != NULL && compares_items(r, vid) != NULL && rec_items_of(r, vid, &items, &n);
    for (uint32_t i = 0; known && !open && i < n; i++)
        open = is_open_number(r, items[i]);
    free(items);
    return open;
}

/* Are there operands for which the items have to be compared here? The rest is constants, or left to a step. */
static bool
has_items_to_compare(rec *r, const kin_vid *args)
{
    return rec_any_tensor(r, args, 2) || holds_open_number(r, args[0]) || holds_open_number(r, args[1]);
}

static int items_equal(rec *r, kin_vid a, kin_vid b, int depth);

/* a == b as containers ask it of their items: 1, 0, or -1 where that is not known. */
static int
item_equal(rec *r, kin_vid a, kin_vid b, int depth)
{
    PyObject *x = O(r, a), *y = O(r, b);
    if (a == b)
        return 1;
    if (x == NULL || y == NULL)
        return -1;
    if (x == y && (kin_is_tensor(x) || VIRTUAL(r, a) != NULL))
        return rec_decide_is(r, a, b) ? 1 : -1;
    if (kin_is_exact_immutable(x) && kin_is_exact_immutable(y) && rec_is_plain_value(x) && rec_is_plain_value(y) && rec_can_const(r, a) && rec_can_const(r, b)) {
        bool known = rec_need_const(r, a) != 0 && rec_need_const(r, b) != 0;
        int equal = known ? PyObject_RichCompareBool(x, y, Py_EQ) : -1;
        PyErr_Clear();
        return equal;
    }
    if (PyLong_CheckExact(x) && PyLong_CheckExact(y))
        return (is_open_number(r, a) || rec_can_const(r, a)) && (is_open_number(r, b) || rec_can_const(r, b)) ? rec_decide_equal(r, a, b) : -1;
    return depth < DEEPEST ? items_equal(r, a, b, depth + 1) : -1;
}

static int
items_equal(rec *r, kin_vid a, kin_vid b, int depth)
{
    PyTypeObject *kind = compares_items(r, a);
    kin_vid *x = NULL, *y = NULL;
    uint32_t nx = 0, ny = 0;
    if (kind == NULL || compares_items(r, b) != kind)
        return -1;
    int equal = rec_items_of(r, a, &x, &nx) && rec_items_of(r, b, &y, &ny) ? 1 : -1;
    if (equal == 1 && kind == &PyList_Type && nx != ny)
        equal = 0;
    for (uint32_t i = 0; equal == 1 && i < nx && i < ny; i++)
        equal = item_equal(r, x[i], y[i], depth);
    free(x);
    free(y);
    return equal == 1 ? nx == ny : equal;
}

/* a == b, a != b of two lists or tuples that hold tensors or open numbers. */
bool
rec_compare_items(rec *r, int op, const kin_vid *args)
{
    if ((op != Py_EQ && op != Py_NE) || compares_items(r, args[0]) == NULL || !has_items_to_compare(r, args))
        return false;
    int equal = items_equal(r, args[0], args[1], 0);
    if (equal < 0)
        return false;
    rec_drop(r, 2);
    rec_push(r, rec_const(r, (equal != 0) == (op == Py_EQ) ? Py_True : Py_False));
    return true;
}

/* Is the item an open number and one of several constants? The recording then serves the others as well if a step asks. */
static bool
is_one_of_several(rec *r, kin_vid container, kin_vid item)
{
    PyObject *obj = O(r, container);
    Py_ssize_t n = VIRTUAL(r, container) == NULL && is_open_number(r, item) ? PySequence_Fast_GET_SIZE(obj) : 0;
    bool found = false;
    for (Py_ssize_t i = 0; n > 1 && !found && i < n; i++) {
        PyObject *other = PySequence_Fast_GET_ITEM(obj, i);
        found = PyLong_CheckExact(other) && kin_exact_equal(other, O(r, item));
    }
    return found;
}

bool
rec_finds_by_item(rec *r, kin_vid container, kin_vid item)
{
    kin_vid args[2] = {container, item};
    if (compares_items(r, container) == NULL || !has_items_to_compare(r, args))
        return false;
    return !is_one_of_several(r, container, item);
}

int
rec_place_of_item(rec *r, kin_vid container, kin_vid item, uint32_t *count)
{
    kin_vid *items = NULL;
    uint32_t n = 0;
    int at = -1, equal = compares_items(r, container) != NULL && rec_items_of(r, container, &items, &n) ? 0 : -1;
    uint32_t found = 0;
    for (uint32_t i = 0; equal >= 0 && i < n && (found == 0 || count != NULL); i++) {
        equal = item_equal(r, items[i], item, 0);
        if (equal == 1 && found++ == 0)
            at = (int)i;
    }
    free(items);
    if (count != NULL)
        *count = found;
    return equal < 0 ? REC_ITEM_UNKNOWN : found == 0 ? REC_ITEM_MISSING : at;
}
