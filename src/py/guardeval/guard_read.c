/* Reads one path step and tests one fact on live objects, through raw structures only.
 *
 * Every read checks the exact layout of what it reads from, so a wrong path gives NULL and never a wild pointer. The
 * one exception is MEMBER: a byte offset means nothing without the type, so kin_guard_build requires a
 * type fact about the parent.
 */
#include "py/guardeval/guard_priv.h"
#include "py/aten/tensor.h"
#include "py/compat/kinds.h"
#include "py/compat/heap.h"
#include "py/guardeval/class_same.h"
#include <stddef.h>
#include <structmember.h>
#include <string.h>

static PyTypeObject *compiled_type;
static Py_ssize_t compiled_offset;

void
kin_guard_set_compiled(PyTypeObject *type, Py_ssize_t offset)
{
    compiled_type = type;
    compiled_offset = offset;
}

PyObject *
kin_instance_attr(PyObject *obj, PyObject *name)
{
    return kin_heap_instance_attr(obj, name);
}

PyObject *
kin_instance_dict(PyObject *obj)
{
    return kin_heap_instance_dict(obj);
}

/* ---- paths ---------------------------------------------------------------------------------------------------- */

/* functools.partial is a C class without a public layout: its members tell where they lie. */
static Py_ssize_t
partial_field(PyObject *obj, const char *member)
{
    PyTypeObject *type = Py_TYPE(obj);
    while (type && !kin_heap_type_is(type, "functools.partial"))
        type = type->tp_base;
    for (PyMemberDef *m = type ? type->tp_members : NULL; m && m->name; m++)
        if (strcmp(m->name, member) == 0)
            return m->offset;
    return 0;
}

static Py_ssize_t
member_field(const kin_val *val, PyObject *obj)
{
    Py_ssize_t offset = (Py_ssize_t)val->key, size = Py_TYPE(obj)->tp_basicsize;
    if (PyTuple_Check(obj)) /* the fields of a named result are its items */
        size += PyTuple_GET_SIZE(obj) * Py_TYPE(obj)->tp_itemsize;
    bool fits = offset >= (Py_ssize_t)sizeof(PyObject) && offset % (Py_ssize_t)sizeof(PyObject *) == 0 &&
                offset + (Py_ssize_t)sizeof(PyObject *) <= size;
    return fits ? offset : 0;
}

Py_ssize_t
kin_guard_field(const kin_val *val, PyObject *obj)
{
    switch ((kin_access)val->access) {
    case KIN_ACCESS_GLOBALS:
        return PyFunction_Check(obj) ? (Py_ssize_t)offsetof(PyFunctionObject, func_globals) : 0;
    case KIN_ACCESS_BUILTINS:
        return PyFunction_Check(obj) ? (Py_ssize_t)offsetof(PyFunctionObject, func_builtins) : 0;
    case KIN_ACCESS_CELL:
        return PyCell_Check(obj) ? (Py_ssize_t)offsetof(PyCellObject, ob_ref) : 0;
    case KIN_ACCESS_MEMBER:
        return member_field(val, obj);
    case KIN_ACCESS_METHOD_FUNC:
        return PyMethod_Check(obj) ? (Py_ssize_t)offsetof(PyMethodObject, im_func) : 0;
    case KIN_ACCESS_METHOD_SELF:
        if (PyMethod_Check(obj))
            return (Py_ssize_t)offsetof(PyMethodObject, im_self);
        return PyCFunction_Check(obj) ? (Py_ssize_t)offsetof(PyCFunctionObject, m_self) : 0;
    case KIN_ACCESS_PARTIAL_FUNC:
        return partial_field(obj, "func");
    case KIN_ACCESS_PARTIAL_ARGS:
        return partial_field(obj, "args");
    case KIN_ACCESS_PARTIAL_KW:
        return partial_field(obj, "keywords");
    case KIN_ACCESS_COMPILED_FUNC:
        return compiled_type && Py_TYPE(obj) == compiled_type ? compiled_offset : 0;
    case KIN_ACCESS_TYPE:
        return (Py_ssize_t)offsetof(PyObject, ob_type);
    case KIN_ACCESS_LOCAL: case KIN_ACCESS_FUNC: case KIN_ACCESS_DEFAULT: case KIN_ACCESS_KWDEFAULT:
    case KIN_ACCESS_CLOSURE: case KIN_ACCESS_INSTDICT: case KIN_ACCESS_IATTR: case KIN_ACCESS_TYPEATTR:
    case KIN_ACCESS_DICT_ITEM: case KIN_ACCESS_DICT_KEY: case KIN_ACCESS_LIST_ITEM: case KIN_ACCESS_TUPLE_ITEM:
    case KIN_ACCESS__COUNT:
        break;
    }
    return 0;
}

static PyObject *
read_dict(PyObject *dict, PyObject *key)
{
    Py_hash_t hash;
    kin_dict_entry entry;
    if (!kin_heap_key_hash(key, &hash) || kin_heap_dict_find(dict, key, hash, &entry) != KIN_FIND_HIT)
        return NULL;
    return entry.value;
}

static PyObject *
read_dict_key(PyObject *dict, uint32_t number)
{
    Py_ssize_t pos = 0;
    PyObject *key = NULL, *value;
    for (uint32_t i = 0; i <= number; i++)
        if (!PyDict_Next(dict, &pos, &key, &value))
            return NULL;
    return key;
}

static PyObject *
read_tuple(PyObject *tuple, uint32_t i)
{
    if (tuple == NULL || !PyTuple_Check(tuple) || (Py_ssize_t)i >= PyTuple_GET_SIZE(tuple))
        return NULL;
    return PyTuple_GET_ITEM(tuple, i);
}

static PyObject *
read_function(const kin_refs *refs, const kin_val *val, PyFunctionObject *fn)
{
    switch ((kin_access)val->access) {
    case KIN_ACCESS_DEFAULT:
        return read_tuple(fn->func_defaults, val->key);
    case KIN_ACCESS_CLOSURE:
        return read_tuple(fn->func_closure, val->key);
    default:
        if (fn->func_kwdefaults == NULL || !PyDict_Check(fn->func_kwdefaults))
            return NULL;
        return read_dict(fn->func_kwdefaults, kin_refs_get(refs, val->key));
    }
}

PyObject *
kin_guard_read(const kin_refs *refs, const kin_val *val, PyObject *parent)
{
    if (parent == NULL)
        return NULL;
    switch ((kin_access)val->access) {
    case KIN_ACCESS_DEFAULT: case KIN_ACCESS_KWDEFAULT: case KIN_ACCESS_CLOSURE:
        return PyFunction_Check(parent) ? read_function(refs, val, (PyFunctionObject *)parent) : NULL;
    case KIN_ACCESS_INSTDICT:
        return kin_heap_instance_dict(parent);
    case KIN_ACCESS_IATTR:
        return kin_heap_instance_attr(parent, kin_refs_get(refs, val->key));
    case KIN_ACCESS_TYPEATTR:
        return PyType_Check(parent) ? _PyType_Lookup((PyTypeObject *)parent, kin_refs_get(refs, val->key)) : NULL;
    case KIN_ACCESS_DICT_ITEM:
        return PyDict_Check(parent) ? read_dict(parent, kin_refs_get(refs, val->key)) : NULL;
    case KIN_ACCESS_DICT_KEY:
        return PyDict_CheckExact(parent) ? read_dict_key(parent, val->key) : NULL;
    case KIN_ACCESS_LIST_ITEM:
        return PyList_Check(parent) && (Py_ssize_t)val->key < PyList_GET_SIZE(parent)
                   ? PyList_GET_ITEM(parent, val->key)
                   : NULL;
    case KIN_ACCESS_TUPLE_ITEM:
        return read_tuple(parent, val->key);
    case KIN_ACCESS_LOCAL: case KIN_ACCESS_FUNC: case KIN_ACCESS__COUNT:
        return NULL; /* roots have no parent */
    default: {
        Py_ssize_t offset = kin_guard_field(val, parent);
        return offset ? *(PyObject **)((char *)parent + offset) : NULL;
    }
    }
}

PyObject *
kin_guard_live(const kin_entry *v, kin_vid vid, PyObject *const *slots)
{
    if (vid == 0)
        return NULL;
    const kin_val *val = &v->trace.vals.at[vid];
    if (val->kind == KIN_VAL_CONST)
        return kin_refs_get(&v->refs, val->key);
    if (slots[vid] || val->kind != KIN_VAL_SRC || val->parent == 0)
        return slots[vid];
    return kin_guard_read(&v->refs, val, kin_guard_live(v, val->parent, slots));
}

/* ---- facts ---------------------------------------------------------------------------------------------------- */

static bool
test_version(PyTypeObject *type, uint32_t num)
{
    return num != 0 && (type->tp_version_tag == num || kin_class_is_same(type, num));
}

/* OrderedDict answers presence like dict; a defaultdict or a user's subclass may not. */
static bool
test_key(PyObject *dict, PyObject *key, kin_find want)
{
    Py_hash_t hash;
    kin_dict_entry entry;
    if (!PyDict_CheckExact(dict) && !PyODict_CheckExact(dict))
        return false;
    return kin_heap_key_hash(key, &hash) && kin_heap_dict_find(dict, key, hash, &entry) == want;
}

static bool
test_key_order(PyObject *dict, PyObject *keys)
{
    Py_ssize_t pos = 0;
    PyObject *key, *value;
    const void *node = NULL;
    bool ordered = PyODict_Check(dict);
    if (!PyDict_Check(dict) || PyDict_GET_SIZE(dict) != PyTuple_GET_SIZE(keys))
        return false;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(keys); i++)
        if (!(ordered ? kin_heap_ordered_next(dict, &node, &key) : PyDict_Next(dict, &pos, &key, &value)) || !kin_exact_equal(key, PyTuple_GET_ITEM(keys, i)) ||
            (key != PyTuple_GET_ITEM(keys, i) && kin_exact_has_nan(key)))
            return false;
    return true;
}

static bool
test_ndefaults(PyObject *fn, uint32_t num)
{
    if (!PyFunction_Check(fn))
        return false;
    PyObject *defaults = ((PyFunctionObject *)fn)->func_defaults;
    if (defaults == NULL || !PyTuple_Check(defaults))
        return defaults == NULL && num == 0;
    return PyTuple_GET_SIZE(defaults) == (Py_ssize_t)num && num != 0;
}

static bool
test_lacks_kwdefault(PyObject *fn, PyObject *name)
{
    Py_hash_t hash;
    kin_dict_entry entry;
    if (!PyFunction_Check(fn))
        return false;
    PyObject *kw = ((PyFunctionObject *)fn)->func_kwdefaults;
    if (kw == NULL)
        return true;
    return PyDict_Check(kw) && kin_heap_key_hash(name, &hash) &&
           kin_heap_dict_find(kw, name, hash, &entry) == KIN_FIND_ABSENT;
}

/* The tuple is (callable, arguments..., expected result). A call that raises is an answer that was not expected. */
static bool
test_call(PyObject *call)
{
    Py_ssize_t n = PyTuple_GET_SIZE(call);
    if (n < 2)
        return false;
    PyObject *const *items = ((PyTupleObject *)call)->ob_item;
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    PyObject *res = PyObject_Vectorcall(items[0], items + 1, (size_t)(n - 2), NULL);
    bool same = res != NULL && kin_exact_equal(res, items[n - 1]);
    Py_XDECREF(res);
    PyErr_Restore(type, value, traceback);
    return same;
}

bool
kin_guard_holds(const kin_refs *refs, const kin_fact *fact, PyObject *obj, PyObject *obj2)
{
    PyObject *ref = kin_refs_get(refs, fact->ref);
    kin_fact_kind kind = (kin_fact_kind)fact->kind;
    if (kind == KIN_FACT_CALL_IS)
        return test_call(ref);
    if (obj == NULL)
        return false;
    switch (kind) {
    case KIN_FACT_TYPE:
        return (PyObject *)Py_TYPE(obj) == ref;
    case KIN_FACT_TYPE_VERSION:
        return (PyObject *)Py_TYPE(obj) == ref && test_version(Py_TYPE(obj), fact->num);
    case KIN_FACT_TYPE_TAG:
        return PyType_Check(obj) && test_version((PyTypeObject *)obj, fact->num);
    case KIN_FACT_ID:
        return obj == ref;
    case KIN_FACT_NOT_ID:
        return obj != ref;
    case KIN_FACT_EQ:
        return kin_exact_equal(obj, ref);
    case KIN_FACT_LEN:
        return kin_exact_len(obj) == (Py_ssize_t)fact->num;
    case KIN_FACT_TRUE:
        return kin_exact_truth(obj) == (int)fact->num;
    case KIN_FACT_HAS_KEY:
        return test_key(obj, ref, KIN_FIND_HIT);
    case KIN_FACT_LACKS_KEY:
        return test_key(obj, ref, KIN_FIND_ABSENT);
    case KIN_FACT_LACKS_ATTR:
        return kin_heap_instance_lacks(obj, ref);
    case KIN_FACT_CLASS_LACKS:
        return PyType_Check(obj) && _PyType_Lookup((PyTypeObject *)obj, ref) == NULL;
    case KIN_FACT_DICT_KEYS:
        return test_key_order(obj, ref);
    case KIN_FACT_CODE:
        return PyFunction_Check(obj) ? ((PyFunctionObject *)obj)->func_code == ref : kin_runs_method(obj, ref);
    case KIN_FACT_NDEFAULTS:
        return test_ndefaults(obj, fact->num);
    case KIN_FACT_KWDEFAULT_LACKS:
        return test_lacks_kwdefault(obj, ref);
    case KIN_FACT_CELL_EMPTY:
        return PyCell_Check(obj) && PyCell_GET(obj) == NULL;
    case KIN_FACT_T_META:
        return kin_meta_match(obj, ref);
    case KIN_FACT_T_DATA:
        return kin_content_match(obj, ref);
    case KIN_FACT_SAME:
        return obj == obj2;
    case KIN_FACT_NOT_SAME:
        return obj2 != NULL && obj != obj2;
    case KIN_FACT_CALL_IS: case KIN_FACT__COUNT:
        break;
    }
    return false;
}
