/* Comparing containers whose items the recording knows: CPython takes an item that is in the same place of both for equal to itself without asking it, so
 * the same tensors in two tuples decide nothing that depends on data.
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

/* a == b, a != b of two lists or tuples that hold tensors. */
bool
rec_compare_items(rec *r, int op, const kin_vid *args)
{
    if ((op != Py_EQ && op != Py_NE) || compares_items(r, args[0]) == NULL || !rec_any_tensor(r, args, 2))
        return false;
    int equal = items_equal(r, args[0], args[1], 0);
    if (equal < 0)
        return false;
    rec_drop(r, 2);
    rec_push(r, rec_const(r, (equal != 0) == (op == Py_EQ) ? Py_True : Py_False));
    return true;
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
