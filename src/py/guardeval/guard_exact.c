/* Exact comparison of builtin immutables: by type pointer and bits, never by ==. So 1 and True differ, and 0.0 and -0.0; two
 * NaNs with the same bits are equal. Runs no user code.
 */
#include "py/guardeval/guard_priv.h"
#include "py/aten/sizes.h"
#include "py/aten/tensor.h"
#include "py/compat/heap.h"
#include "py/compat/kinds.h"
#include <math.h>
#include <structmember.h>

/* range keeps its parts to itself; its members are three consecutive objects that begin where `start` says. */
static PyObject *const *
range_parts(PyObject *range)
{
    static Py_ssize_t offset;
    if (offset == 0) {
        PyObject *name = PyUnicode_InternFromString("start");
        PyObject *descr = name ? _PyType_Lookup(&PyRange_Type, name) : NULL;
        if (descr && Py_TYPE(descr) == &PyMemberDescr_Type)
            offset = ((PyMemberDescrObject *)descr)->d_member->offset;
        Py_XDECREF(name);
        if (offset == 0) {
            PyErr_Clear();
            return NULL;
        }
    }
    return (PyObject *const *)((char *)range + offset);
}

static bool
all_equal(PyObject *const *a, PyObject *const *b, Py_ssize_t n)
{
    for (Py_ssize_t i = 0; i < n; i++)
        if (!kin_exact_equal(a[i], b[i]))
            return false;
    return true;
}

static bool
ints_equal(PyObject *a, PyObject *b)
{
    PyObject *res = PyLong_Type.tp_richcompare(a, b, Py_EQ);
    bool equal = res == Py_True;
    Py_XDECREF(res);
    return equal;
}

static bool
strings_equal(PyObject *a, PyObject *b)
{
    Py_ssize_t n = PyUnicode_GET_LENGTH(a);
    return n == PyUnicode_GET_LENGTH(b) && PyUnicode_KIND(a) == PyUnicode_KIND(b) &&
           memcmp(PyUnicode_DATA(a), PyUnicode_DATA(b), (size_t)n * PyUnicode_KIND(a)) == 0;
}

static bool
bytes_equal(PyObject *a, PyObject *b)
{
    Py_ssize_t n = PyBytes_GET_SIZE(a);
    return n == PyBytes_GET_SIZE(b) && memcmp(PyBytes_AS_STRING(a), PyBytes_AS_STRING(b), (size_t)n) == 0;
}

/* Equal sets may iterate differently, and whoever consumed the content may have iterated: compare in table order. */
static bool
frozensets_equal(PyObject *a, PyObject *b)
{
    Py_ssize_t i = 0, j = 0;
    PyObject *x, *y;
    if (PySet_GET_SIZE(a) != PySet_GET_SIZE(b))
        return false;
    while (kin_heap_set_next(a, &i, &x))
        if (!kin_heap_set_next(b, &j, &y) || !kin_exact_equal(x, y))
            return false;
    return true;
}

static bool
ranges_equal(PyObject *a, PyObject *b)
{
    PyObject *const *x = range_parts(a), *const *y = range_parts(b);
    return x && y && all_equal(x, y, 3);
}

/* Torch's own small immutables: devices are compared by content (a new object is made whenever one is asked for),
 * sizes like tuples, dtypes and the like are singletons. */
typedef enum { NO_TORCH_VALUE, TORCH_DEVICE, TORCH_SIZE, TORCH_SINGLETON } torch_value;

static torch_value
torch_value_of(const PyTypeObject *type)
{
    const char *name = type->tp_name;
    if ((type->tp_flags & Py_TPFLAGS_HEAPTYPE) || strncmp(name, "torch.", 6) != 0)
        return NO_TORCH_VALUE;
    if (strcmp(name + 6, "device") == 0)
        return TORCH_DEVICE;
    if (strcmp(name + 6, "Size") == 0 && PyType_IsSubtype((PyTypeObject *)type, &PyTuple_Type))
        return TORCH_SIZE;
    return strcmp(name + 6, "dtype") == 0 || strcmp(name + 6, "layout") == 0 || strcmp(name + 6, "memory_format") == 0
               ? TORCH_SINGLETON
               : NO_TORCH_VALUE;
}

static bool
torch_values_equal(PyObject *a, PyObject *b)
{
    torch_value kind = torch_value_of(Py_TYPE(a));
    if (kind == TORCH_DEVICE) /* type and index lie behind the object head */
        return memcmp((char *)a + sizeof(PyObject), (char *)b + sizeof(PyObject), 2) == 0;
    return kind == TORCH_SIZE && PyTuple_GET_SIZE(a) == PyTuple_GET_SIZE(b) &&
           all_equal(((PyTupleObject *)a)->ob_item, ((PyTupleObject *)b)->ob_item, PyTuple_GET_SIZE(a));
}

bool
kin_exact_equal(PyObject *a, PyObject *b)
{
    if (a == b)
        return true;
    PyTypeObject *type = Py_TYPE(a);
    if (type != Py_TYPE(b))
        return false;
    if (type == &PyLong_Type)
        return ints_equal(a, b);
    if (type == &PyUnicode_Type)
        return strings_equal(a, b);
    if (type == &PyFloat_Type)
        return memcmp(&((PyFloatObject *)a)->ob_fval, &((PyFloatObject *)b)->ob_fval, sizeof(double)) == 0;
    if (type == &PyComplex_Type)
        return memcmp(&((PyComplexObject *)a)->cval, &((PyComplexObject *)b)->cval, sizeof(Py_complex)) == 0;
    if (type == &PyBytes_Type)
        return bytes_equal(a, b);
    if (type == &PyTuple_Type)
        return PyTuple_GET_SIZE(a) == PyTuple_GET_SIZE(b) &&
               all_equal(((PyTupleObject *)a)->ob_item, ((PyTupleObject *)b)->ob_item, PyTuple_GET_SIZE(a));
    if (type == &PySlice_Type)
        return all_equal(&((PySliceObject *)a)->start, &((PySliceObject *)b)->start, 3);
    if (type == &PyRange_Type)
        return ranges_equal(a, b);
    if (type == &PyFrozenSet_Type)
        return frozensets_equal(a, b);
    return torch_values_equal(a, b);
}

static bool
is_exact_number(PyObject *obj)
{
    return PyLong_CheckExact(obj) || PyBool_Check(obj) || PyFloat_CheckExact(obj) || PyComplex_CheckExact(obj);
}

bool
kin_exact_same_key(PyObject *a, PyObject *b)
{
    PyTypeObject *type = Py_TYPE(a);
    if (a == b)
        return true;
    if (PyTuple_Check(a) && PyTuple_Check(b)) { /* torch.Size among them */
        bool same = PyTuple_GET_SIZE(a) == PyTuple_GET_SIZE(b);
        for (Py_ssize_t i = 0; same && i < PyTuple_GET_SIZE(a); i++)
            same = kin_exact_same_key(PyTuple_GET_ITEM(a, i), PyTuple_GET_ITEM(b, i));
        return same;
    }
    if (type == Py_TYPE(b) && (type == &PyUnicode_Type || type == &PyLong_Type || type == &PyBytes_Type))
        return kin_exact_equal(a, b);
    bool numbers = is_exact_number(a) && is_exact_number(b);
    if (!numbers && (type != Py_TYPE(b) || !(kin_is_exact_immutable(a) || PyCFunction_CheckExact(a))))
        return false;
    int same = PyObject_RichCompareBool(a, b, Py_EQ);
    PyErr_Clear();
    return same > 0;
}

bool
kin_exact_has_nan(PyObject *obj)
{
    PyTypeObject *type = Py_TYPE(obj);
    if (type == &PyFloat_Type)
        return isnan(PyFloat_AS_DOUBLE(obj));
    if (type == &PyComplex_Type)
        return isnan(((PyComplexObject *)obj)->cval.real) || isnan(((PyComplexObject *)obj)->cval.imag);
    if (type == &PySlice_Type)
        return kin_exact_has_nan(((PySliceObject *)obj)->start) || kin_exact_has_nan(((PySliceObject *)obj)->stop) ||
               kin_exact_has_nan(((PySliceObject *)obj)->step);
    bool found = false;
    for (Py_ssize_t i = 0; type == &PyTuple_Type && !found && i < PyTuple_GET_SIZE(obj); i++)
        found = kin_exact_has_nan(PyTuple_GET_ITEM(obj, i));
    Py_ssize_t pos = 0;
    PyObject *item;
    while (type == &PyFrozenSet_Type && !found && kin_heap_set_next(obj, &pos, &item))
        found = kin_exact_has_nan(item);
    return found;
}

static bool
all_immutable(PyObject *const *items, Py_ssize_t n)
{
    for (Py_ssize_t i = 0; i < n; i++)
        if (!kin_is_exact_immutable(items[i]))
            return false;
    return true;
}

static bool
is_immutable_set(PyObject *set)
{
    Py_ssize_t pos = 0;
    PyObject *item;
    while (kin_heap_set_next(set, &pos, &item))
        if (!kin_is_exact_immutable(item))
            return false;
    return true;
}

bool
kin_is_immutable_class(const PyTypeObject *type)
{
    return type == &PyLong_Type || type == &PyUnicode_Type || type == &PyFloat_Type || type == &PyComplex_Type || type == &PyBytes_Type ||
           type == &PyBool_Type || type == Py_TYPE(Py_None) || type == Py_TYPE(Py_Ellipsis) || type == Py_TYPE(Py_NotImplemented) ||
           torch_value_of(type) != NO_TORCH_VALUE;
}

bool
kin_is_exact_immutable(PyObject *obj)
{
    PyTypeObject *type = Py_TYPE(obj);
    if (kin_is_immutable_class(type))
        return true;
    if (type == &PyTuple_Type)
        return all_immutable(((PyTupleObject *)obj)->ob_item, PyTuple_GET_SIZE(obj));
    if (type == &PySlice_Type)
        return all_immutable(&((PySliceObject *)obj)->start, 3);
    if (type == &PyRange_Type)
        return range_parts(obj) != NULL && all_immutable(range_parts(obj), 3);
    if (type == &PyFrozenSet_Type)
        return is_immutable_set(obj);
    return false;
}

bool
kin_is_exact_key(PyObject *obj)
{
    Py_hash_t hash;
    return kin_heap_key_hash(obj, &hash);
}

PyObject *
kin_exact_item(PyObject *dict, PyObject *key)
{
    Py_hash_t hash;
    kin_dict_entry entry;
    if (kin_is_enum_class(Py_TYPE(key)))
        return kin_enum_hash(key, &hash) && kin_heap_dict_find(dict, key, hash, &entry) == KIN_FIND_HIT ? entry.value : NULL;
    PyObject *value = PyDict_GetItemWithError(dict, key);
    PyErr_Clear();
    return value;
}

/* ---- what can be reached from a container --------------------------------------------------------------------- */

enum { MOST_DEPTH = 6 }; /* deeper, or in a circle: not known */

static bool runs_no_code(PyObject *obj, bool all, int depth);

static bool
compares_by_identity(PyTypeObject *type)
{
    return type->tp_hash == PyBaseObject_Type.tp_hash && type->tp_richcompare == PyBaseObject_Type.tp_richcompare;
}

static bool
items_run_no_code(PyObject *const *items, Py_ssize_t n, bool all, int depth)
{
    for (Py_ssize_t i = 0; i < n; i++)
        if (items[i] != NULL && !runs_no_code(items[i], all, depth))
            return false;
    return true;
}

static bool
set_run_no_code(PyObject *set, bool all, int depth)
{
    Py_ssize_t pos = 0;
    PyObject *item;
    while (kin_heap_set_next(set, &pos, &item))
        if (!runs_no_code(item, all, depth))
            return false;
    return true;
}

static bool
dict_run_no_code(PyObject *dict, bool all, int depth)
{
    Py_ssize_t pos = 0;
    PyObject *key, *value;
    while (PyDict_Next(dict, &pos, &key, &value))
        if (!runs_no_code(key, all, depth) || !runs_no_code(value, all, depth))
            return false;
    return true;
}

static bool
is_view(PyTypeObject *type)
{
    return type == &PyDictKeys_Type || type == &PyDictValues_Type || type == &PyDictItems_Type;
}

static bool
runs_no_code(PyObject *obj, bool all, int depth)
{
    PyTypeObject *type = Py_TYPE(obj);
    if (depth > MOST_DEPTH)
        return false;
    if (type == &PyTuple_Type)
        return items_run_no_code(((PyTupleObject *)obj)->ob_item, PyTuple_GET_SIZE(obj), all, depth + 1);
    if (type == &PyList_Type)
        return items_run_no_code(((PyListObject *)obj)->ob_item, PyList_GET_SIZE(obj), all, depth + 1);
    if (type == &PySet_Type || type == &PyFrozenSet_Type)
        return set_run_no_code(obj, all, depth + 1);
    if (type == &PyDict_Type || type == &PyODict_Type)
        return dict_run_no_code(obj, all, depth + 1);
    if (is_view(type))
        return dict_run_no_code(kin_view_dict(obj), all, depth + 1);
    if (kin_is_exact_immutable(obj) || (type == &PyByteArray_Type && depth == 0)) /* inside of something else nobody would see that it may be a tensor's memory */
        return true;
    return !all && (compares_by_identity(type) || PyType_Check(obj) || kin_is_plain_tensor(obj) || kin_is_enum_class(type) ||
                    kin_is_mixed_enum_class(type));
}

bool
kin_exact_runs_no_code(PyObject *obj, bool all)
{
    return runs_no_code(obj, all, 0);
}

/* ---- length and truth ----------------------------------------------------------------------------------------- */

Py_ssize_t
kin_exact_len(PyObject *obj)
{
    PyTypeObject *type = Py_TYPE(obj);
    if (PyTuple_Check(obj)) /* ... of any class: as many as lie in it */
        return Py_SIZE(obj);
    if (type == &PyList_Type || type == &PyBytes_Type || type == &PyByteArray_Type)
        return Py_SIZE(obj);
    if (type == &PyDict_Type || type == &PyODict_Type)
        return ((PyDictObject *)obj)->ma_used;
    if (type == &PySet_Type || type == &PyFrozenSet_Type)
        return PySet_GET_SIZE(obj);
    if (type == &PyUnicode_Type)
        return PyUnicode_GET_LENGTH(obj);
    if (type == &PyRange_Type && range_parts(obj)) {
        int overflow;
        long long n = PyLong_AsLongLongAndOverflow(range_parts(obj)[3], &overflow);
        return overflow ? -1 : (Py_ssize_t)n;
    }
    return -1;
}

int
kin_exact_truth(PyObject *obj)
{
    PyTypeObject *type = Py_TYPE(obj);
    if (obj == Py_None)
        return 0;
    if (type == &PyBool_Type)
        return obj == Py_True;
    if (type == &PyLong_Type)
        return PyObject_IsTrue(obj);
    if (type == &PyFloat_Type)
        return PyFloat_AS_DOUBLE(obj) != 0.0;
    if (type == &PyComplex_Type) {
        Py_complex z = ((PyComplexObject *)obj)->cval;
        return z.real != 0.0 || z.imag != 0.0;
    }
    Py_ssize_t len = kin_exact_len(obj);
    return len < 0 ? -1 : len != 0;
}
