/* Environment variables that are not set. os.environ.get is Python code that raises and handles two KeyErrors before it returns
 * the default, and programs read switches this way in each layer. As long as all that code is the library's own, the answer follows
 * from one fact: the dict behind os.environ lacks the key.
 */
#include "py/compat/heap.h"
#include "py/compat/imports.h"
#include "py/models/models.h"
#include "py/objects/objects.h"

/* os.environ's class and what it is made of. */
static struct {
    PyTypeObject *type;
    rec_library get, getitem, encodekey;
} own;

/* Once. */
static void
find_own(void)
{
    if (own.get.tried)
        return;
    PyObject *mapping = kin_import("os", "environ");
    PyTypeObject *type = mapping ? Py_TYPE(mapping) : NULL;
    rec_library_find(&own.get, type ? Py_XNewRef(_PyType_Lookup(type, REC_STR("get"))) : NULL);
    rec_library_find(&own.getitem, type ? Py_XNewRef(_PyType_Lookup(type, REC_STR("__getitem__"))) : NULL);
    rec_library_find(&own.encodekey, mapping ? PyObject_GetAttrString(mapping, "encodekey") : NULL);
    if (own.get.code != NULL && own.getitem.code != NULL && own.encodekey.code != NULL && strcmp(type->tp_name, "_Environ") == 0)
        own.type = (PyTypeObject *)Py_NewRef((PyObject *)type);
    Py_XDECREF(mapping);
}

/* What encodes the names holds the encoding in a cell. */
static bool
fix_closure(rec *r, kin_vid function)
{
    PyObject *cells = PyFunction_GET_CLOSURE(O(r, function));
    for (Py_ssize_t i = 0; cells != NULL && i < PyTuple_GET_SIZE(cells); i++) {
        PyObject *cell = PyTuple_GET_ITEM(cells, i), *content = PyCell_GET(cell);
        if (content == NULL || !PyUnicode_CheckExact(content))
            return false;
        kin_vid vid = rec_closure_cell(r, function, (int)i, cell);
        if (rec_need_const(r, rec_src(r, vid, KIN_ACCESS_CELL, 0, content)) == 0)
            return false;
    }
    return true;
}

/* The name as os.environ keeps it, if it is not set: new reference. */
static PyObject *
encode_unset(PyObject *mapping, PyObject *key)
{
    PyObject *data = kin_instance_attr(mapping, REC_STR("_data"));
    PyObject *encoded = data != NULL && PyDict_CheckExact(data) ? PyUnicode_EncodeFSDefault(key) : NULL;
    if (encoded != NULL && PyDict_GetItemWithError(data, encoded) != NULL)
        Py_CLEAR(encoded);
    PyErr_Clear();
    return encoded;
}

static bool
is_usual(rec *r, kin_vid callee, const kin_vid *args)
{
    PyObject *mapping = O(r, args[0]);
    PyObject *encode = Py_TYPE(mapping) == own.type ? kin_instance_attr(mapping, REC_STR("encodekey")) : NULL;
    return encode != NULL && VIRTUAL(r, args[0]) == NULL && PyUnicode_CheckExact(O(r, args[1])) && rec_can_const(r, args[1]) &&
           rec_library_is(&own.get, O(r, callee)) &&
           rec_library_is(&own.getitem, _PyType_Lookup(own.type, REC_STR("__getitem__"))) && rec_library_is(&own.encodekey, encode);
}

/* Everything that was looked at becomes a fact; the dict's value id, 0: something cannot be fixed. */
static kin_vid
fix_library(rec *r, const rec_args *a)
{
    const kin_vid *args = a->args;
    rec_args call = *a;
    if (!rec_bind(r, &call))
        return 0;
    rec_need_attrs(r, args[0]);
    PyObject *getitem = rec_lookup(r, own.type, REC_STR("__getitem__"));
    kin_vid item = getitem == NULL ? 0 : rec_found(r, own.type, REC_STR("__getitem__"), getitem);
    kin_vid encode = item == 0 ? 0 : rec_instance_item(r, args[0], REC_STR("encodekey"));
    if (encode == 0)
        return 0;
    rec_fix_function(r, &item);
    rec_fix_function(r, &encode);
    if (!fix_closure(r, encode) || rec_need_const(r, args[1]) == 0)
        return 0;
    return rec_instance_item(r, args[0], REC_STR("_data"));
}

bool
rec_call_environ(rec *r, const rec_args *a)
{
    find_own();
    if (own.type == NULL || a->npos < 2 || a->npos > 3 || a->nkw != 0 || O(r, a->callee) != own.get.function || !is_usual(r, a->callee, a->args))
        return false;
    PyObject *encoded = encode_unset(O(r, a->args[0]), O(r, a->args[1]));
    if (encoded == NULL)
        return false;
    static PyObject *dict_get;
    if (dict_get == NULL)
        dict_get = Py_XNewRef(PyDict_GetItemString(kin_type_dict(&PyDict_Type), "get"));
    kin_vid data = fix_library(r, a);
    kin_vid asked[3] = {data, data == 0 ? 0 : rec_const(r, encoded), data == 0 ? 0 : r->call.locals[2]};
    Py_DECREF(encoded);
    if (data == 0 || dict_get == NULL ||
        !rec_call_builtin(r, &(rec_args){.callee = rec_const(r, dict_get), .args = asked, .npos = 3, .ndrop = a->ndrop}))
        return false;
    r->skip_expected = true; /* the library's frames */
    return true;
}
