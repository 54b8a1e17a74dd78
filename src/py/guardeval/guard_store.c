/* May steps that rely on earlier facts follow a store? Yes, if the store changes one known word of the heap and nothing else, that
 * is, if the replaced value runs no code should it die.
 */
#include "py/aten/tensor.h"
#include "py/compat/heap.h"
#include "py/guardeval/guard.h"

#include <structmember.h>

/* An object that dies may release others, which die then, too: as many are followed. */
enum { MOST_DEATHS = 64 };

typedef struct {
    int left;     /* objects that may still be looked at */
    bool in_time; /* it dies at the same point of the program as in eager, so weak references without a callback do not matter: they run nothing */
} deaths;

static bool death_runs_no_code(PyObject *obj, deaths *d);

static bool
items_die(PyObject *const *items, Py_ssize_t n, deaths *d)
{
    for (Py_ssize_t i = 0; i < n; i++)
        if (items[i] != NULL && !death_runs_no_code(items[i], d))
            return false;
    return true;
}

static bool
dict_dies(PyObject *dict, deaths *d)
{
    Py_ssize_t pos = 0;
    PyObject *key, *value;
    while (PyDict_Next(dict, &pos, &key, &value))
        if (!death_runs_no_code(key, d) || !death_runs_no_code(value, d))
            return false;
    return true;
}

static bool
weakly_seen(PyObject *obj, const deaths *d)
{
    if (Py_TYPE(obj)->tp_weaklistoffset == 0) /* from 3.12 on a heap type's list lies in front of the object, and the offset is negative */
        return false;
    for (PyWeakReference *weak = *(PyWeakReference **)PyObject_GET_WEAKREFS_LISTPTR(obj); weak != NULL; weak = weak->wr_next)
        if (!d->in_time || weak->wr_callback != NULL)
            return true;
    return false;
}

static bool
attributes_die(PyObject *obj, deaths *d)
{
    PyObject *dict = kin_heap_instance_dict(obj);
    return dict == NULL || (PyDict_CheckExact(dict) && dict_dies(dict, d));
}

/* Does the death of the object, if it comes to that, run no code of the program? */
static bool
death_runs_no_code(PyObject *obj, deaths *d)
{
    PyTypeObject *tp = Py_TYPE(obj);
    if (--d->left < 0)
        return false;
    if (kin_is_exact_immutable(obj) || Py_REFCNT(obj) > MOST_DEATHS + 1)
        return true;
    if (kin_is_plain_tensor(obj))
        return !weakly_seen(obj, d) && attributes_die(obj, d);
    if (tp == &PyTuple_Type)
        return items_die(((PyTupleObject *)obj)->ob_item, PyTuple_GET_SIZE(obj), d);
    if (tp == &PyList_Type)
        return items_die(((PyListObject *)obj)->ob_item, PyList_GET_SIZE(obj), d);
    if (tp == &PyDict_Type)
        return dict_dies(obj, d);
    return false;
}

bool
kin_death_runs_no_code(PyObject *obj)
{
    return death_runs_no_code(obj, &(deaths){.left = MOST_DEATHS});
}

static PyObject *
entry_of(PyObject *dict, PyObject *key, bool *sure)
{
    Py_hash_t hash;
    kin_dict_entry entry;
    kin_find found = kin_heap_key_hash(key, &hash) ? kin_heap_dict_find(dict, key, hash, &entry) : KIN_FIND_UNSURE;
    *sure = found != KIN_FIND_UNSURE;
    return found == KIN_FIND_HIT ? entry.value : NULL;
}

/* Can other objects not share the attribute: is it inline, or in a dict that only this object has? A new name must not make a
 * dict of what is inline. */
static bool
is_own_attribute(PyObject *obj, PyObject *name, Py_ssize_t ours)
{
    PyObject *dict = kin_heap_instance_dict(obj);
    return dict != NULL ? PyDict_CheckExact(dict) && Py_REFCNT(dict) == 1 + ours : kin_heap_inline_room(obj, name);
}

/* What lies at the place now; false: there is no such place. */
static bool
look_at(PyObject *base, PyObject *key, uint32_t num, Py_ssize_t ours, PyObject **old)
{
    bool sure = true;
    uint32_t index = num & KIN_PLACE_INDEX;
    *old = NULL;
    switch ((kin_place)(num >> KIN_PLACE_SHIFT & 7)) {
    case KIN_PLACE_ITEM:
        if (!PyDict_CheckExact(base))
            return false;
        *old = entry_of(base, key, &sure);
        return sure;
    case KIN_PLACE_ATTR:
        *old = kin_heap_instance_attr(base, key);
        return is_own_attribute(base, key, ours);
    case KIN_PLACE_INDEX_OF_LIST:
        if (!PyList_CheckExact(base) || (Py_ssize_t)index >= PyList_GET_SIZE(base))
            return false;
        *old = PyList_GET_ITEM(base, index);
        return true;
    case KIN_PLACE_END_OF_LIST:
        return PyList_CheckExact(base);
    case KIN_PLACE_SLOT: /* the type is known */
        *old = *(PyObject **)((char *)base + index);
        return true;
    case KIN_PLACE_CELL:
        if (!PyCell_Check(base))
            return false;
        *old = PyCell_GET(base);
        return true;
    }
    return false;
}

bool
kin_place_takes(PyObject *base, PyObject *key, uint32_t num, Py_ssize_t ours)
{
    PyObject *old;
    if (!look_at(base, key, num, ours, &old))
        return false;
    return old == NULL || Py_REFCNT(old) > 1 || death_runs_no_code(old, &(deaths){.left = MOST_DEATHS, .in_time = true});
}

PyObject *
kin_place_content(PyObject *base, PyObject *key, uint32_t num)
{
    PyObject *content;
    return look_at(base, key, num, 0, &content) ? content : NULL;
}

int
kin_place_set(PyObject *base, PyObject *key, kin_place kind, uint32_t index, PyObject *value)
{
    switch (kind) {
    case KIN_PLACE_ITEM:
        return value != NULL ? PyDict_SetItem(base, key, value) : PyDict_DelItem(base, key);
    case KIN_PLACE_ATTR:
        return PyObject_GenericSetAttr(base, key, value);
    case KIN_PLACE_INDEX_OF_LIST:
        return value != NULL ? PyList_SetItem(base, index, Py_NewRef(value)) : -1;
    case KIN_PLACE_SLOT:
        Py_XSETREF(*(PyObject **)((char *)base + index), Py_XNewRef(value));
        return 0;
    case KIN_PLACE_CELL:
        return PyCell_Set(base, value);
    case KIN_PLACE_END_OF_LIST:
        return value != NULL ? PyList_Append(base, value) : PyList_SetSlice(base, index, (Py_ssize_t)index + 1, NULL);
    }
    PyErr_SetNone(PyExc_SystemError);
    return -1;
}

/* What lies in a slot of the class under the name; NULL: nothing, or there is no such slot. */
static PyObject *
slot_attribute(PyObject *obj, PyObject *name)
{
    PyObject *descr = _PyType_Lookup(Py_TYPE(obj), name);
    if (descr == NULL || !Py_IS_TYPE(descr, &PyMemberDescr_Type))
        return NULL;
    const struct PyMemberDef *m = ((PyMemberDescrObject *)descr)->d_member;
    return m->type == T_OBJECT_EX || m->type == T_OBJECT ? *(PyObject **)((char *)obj + m->offset) : NULL;
}

bool
kin_owns_attribute(PyObject *obj, PyObject *name)
{
    PyObject *dict = kin_heap_instance_dict(obj), *old = slot_attribute(obj, name);
    if (dict != NULL && (!PyDict_CheckExact(dict) || Py_REFCNT(dict) != 1))
        return false;
    if (old == NULL)
        old = kin_heap_instance_attr(obj, name);
    return old == NULL || Py_REFCNT(old) > 1 || death_runs_no_code(old, &(deaths){.left = MOST_DEATHS});
}

bool
kin_owns_item(PyObject *dict, PyObject *key)
{
    bool sure;
    PyObject *old = PyDict_Check(dict) ? entry_of(dict, key, &sure) : NULL;
    return PyDict_Check(dict) && sure && (old == NULL || Py_REFCNT(old) > 1 || death_runs_no_code(old, &(deaths){.left = MOST_DEATHS}));
}
