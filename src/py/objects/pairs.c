/* What C code finds in a dict of any class that it copies: `{**d}`, `f(**d)`, `dict(d)`, `d.update(other)`.
 *
 * Where the class leaves __iter__ to dict, C code reads the entries and passes over all methods of the class. Otherwise, as for each OrderedDict, it calls keys()
 * and __getitem__, which may be the program's (iterators/mapping.c).
 */
#include "py/guardeval/guard.h"
#include "py/objects/objects.h"

bool
rec_leaves_to_dict(rec *r, kin_vid dict, PyObject *name)
{
    PyTypeObject *tp = rec_need_attrs(r, dict);
    PyObject *found = rec_lookup(r, tp, name);
    return found != NULL && found == _PyType_Lookup(rec_dict_base(tp), name) && (Py_TYPE(found)->tp_descr_set != NULL || rec_instance_item(r, dict, name) == 0);
}

bool
rec_copy_runs_no_code(rec *r, kin_vid dict)
{
    PyObject *obj = O(r, dict);
    PyTypeObject *tp = obj != NULL ? Py_TYPE(obj) : NULL;
    if (tp == NULL || !PyDict_Check(obj) || tp == rec_dict_base(tp))
        return tp != NULL && PyDict_Check(obj);
    if (tp->tp_iter != PyDict_Type.tp_iter)
        return rec_leaves_to_dict(r, dict, REC_STR("keys")) && rec_leaves_to_dict(r, dict, REC_STR("__getitem__"));
    rec_need_attrs(r, dict);
    rec_lookup(r, tp, REC_STR("__iter__"));
    return true;
}

bool
rec_own_pairs(rec *r, kin_vid dict, kin_vid **pairs, uint32_t *n)
{
    PyObject *obj = O(r, dict);
    const rec_virtual *f = VIRTUAL(r, dict) != NULL ? rec_mapping(r, dict) : NULL;
    *pairs = NULL;
    *n = 0;
    if (VIRTUAL(r, dict) != NULL) {
        *pairs = f != NULL ? malloc((f->n + 1) * sizeof **pairs) : NULL;
        if (*pairs == NULL)
            return false;
        if (f->n > 0)
            memcpy(*pairs, f->items, f->n * sizeof **pairs);
        *n = f->n;
        return true;
    }
    PyObject *keys = PyDict_Check(obj) ? rec_known_keys(r, dict) : NULL;
    Py_ssize_t size = keys != NULL ? PyTuple_GET_SIZE(keys) : 0;
    bool known = keys != NULL;
    for (Py_ssize_t i = 0; known && i < size; i++)
        known = rec_is_pair_key(PyTuple_GET_ITEM(keys, i));
    *pairs = known ? malloc((2 * (size_t)size + 1) * sizeof **pairs) : NULL;
    for (Py_ssize_t i = 0; *pairs != NULL && i < size; i++) {
        PyObject *key = PyTuple_GET_ITEM(keys, i);
        (*pairs)[(*n)++] = rec_const(r, key);
        (*pairs)[(*n)++] = rec_dict_item(r, dict, key, kin_exact_item(obj, key));
    }
    Py_XDECREF(keys);
    return *pairs != NULL;
}

bool
rec_pairs_of(rec *r, kin_vid dict, kin_vid **pairs, uint32_t *n)
{
    *pairs = NULL;
    *n = 0;
    const rec_virtual *f = VIRTUAL(r, dict);
    bool plain = f != NULL && f->kind != VIRTUAL_OBJECT; /* a dict made here */
    return (plain || rec_copy_runs_no_code(r, dict)) && rec_own_pairs(r, dict, pairs, n);
}
