/* Names for values that are the same in every recording of a function: the path by which a value is read, or the instruction that made it. What changed between
 * calls is remembered under these names, and later recordings do not assume it. If two sources share a name, only speed suffers: the recorder then assumes less
 * about both.
 */
#include "py/guardeval/guard_source.h"

static bool
is_named(kin_access access)
{
    return access == KIN_ACCESS_KWDEFAULT || access == KIN_ACCESS_IATTR || access == KIN_ACCESS_TYPEATTR ||
           access == KIN_ACCESS_DICT_ITEM;
}

/* The instruction that made it. */
static PyObject *
step_source(const kin_entry *v, const kin_val *val)
{
    uint32_t snap = val->step < v->trace.steps.len ? v->trace.steps.at[val->step].snap : 0;
    if (snap == 0)
        return PyUnicode_FromString("<made here>");
    const kin_snap *s = &v->trace.snaps.at[snap];
    return PyUnicode_FromFormat("<%p+%u>", (void *)kin_refs_get(&v->refs, s->code), s->offset);
}

/* An attribute is in one source, whether the instance has a dict already or not. */
static bool
is_dict_of_instance(const kin_entry *v, kin_vid vid)
{
    const kin_val *val = &v->trace.vals.at[vid];
    return val->kind == KIN_VAL_SRC && val->access == KIN_ACCESS_INSTDICT;
}

/* An item of a list or tuple, or of a ModuleList, by its position. */
static bool
is_position(const kin_entry *v, const kin_val *val)
{
    PyObject *key = val->access == KIN_ACCESS_DICT_ITEM ? kin_refs_get(&v->refs, val->key) : NULL;
    bool digits = key != NULL && PyUnicode_CheckExact(key) && PyUnicode_GET_LENGTH(key) > 0;
    for (Py_ssize_t i = 0; digits && i < PyUnicode_GET_LENGTH(key); i++)
        digits = Py_UNICODE_ISDIGIT(PyUnicode_READ_CHAR(key, i));
    return digits || val->access == KIN_ACCESS_LIST_ITEM || val->access == KIN_ACCESS_TUPLE_ITEM;
}

static PyObject *value_source(const kin_entry *v, kin_vid vid, bool alike);

/* alike: positions are left out. */
static PyObject *
path_source(const kin_entry *v, const kin_val *val, bool alike)
{
    kin_access access = (kin_access)val->access;
    kin_vid from = val->parent;
    if (access == KIN_ACCESS_DICT_ITEM && is_dict_of_instance(v, from)) {
        access = KIN_ACCESS_IATTR;
        from = v->trace.vals.at[from].parent;
    }
    PyObject *parent = from != 0 ? value_source(v, from, alike) : PyUnicode_FromString(""), *out = NULL;
    if (parent == NULL)
        return NULL;
    if (alike && is_position(v, val)) {
        out = PyUnicode_FromFormat("%U/any", parent);
    } else if (is_named(access)) {
        PyObject *key = kin_object_text(kin_refs_get(&v->refs, val->key));
        out = key != NULL ? PyUnicode_FromFormat("%U/%u:%U", parent, access, key) : NULL;
        Py_XDECREF(key);
    } else {
        out = PyUnicode_FromFormat("%U/%u:%u", parent, access, val->key);
    }
    Py_DECREF(parent);
    return out;
}

static PyObject *
value_source(const kin_entry *v, kin_vid vid, bool alike)
{
    const kin_val *val = &v->trace.vals.at[vid];
    switch ((kin_val_kind)val->kind) {
    case KIN_VAL_CONST:
        return PyUnicode_FromFormat("<%p>", (void *)kin_refs_get(&v->refs, val->key));
    case KIN_VAL_SRC:
        return path_source(v, val, alike);
    case KIN_VAL_STEP:
        return step_source(v, val);
    case KIN_VAL_NONE:
        break;
    }
    return PyUnicode_FromString("<nothing>");
}

PyObject *
kin_value_source(const kin_entry *v, kin_vid vid)
{
    return value_source(v, vid, false);
}

PyObject *
kin_alike_source(const kin_entry *v, kin_vid vid)
{
    const kin_val *val = &v->trace.vals.at[vid];
    return value_source(v, vid, val->kind == KIN_VAL_SRC && !is_position(v, val));
}

PyObject *
kin_size_source(PyObject *source, int dim)
{
    return PyUnicode_FromFormat("%U#%d", source, dim);
}

PyObject *
kin_all_sizes_source(void)
{
    return PyUnicode_FromString("sizes of all arguments");
}

#define CLASS_SOURCE "class "

PyObject *
kin_class_source(PyTypeObject *cls)
{
    return PyUnicode_FromFormat(CLASS_SOURCE "<%p>", (void *)cls);
}

bool
kin_is_class_source(PyObject *source)
{
    const char *text = PyUnicode_AsUTF8(source);
    if (text == NULL)
        PyErr_Clear();
    return text != NULL && strncmp(text, CLASS_SOURCE, sizeof CLASS_SOURCE - 1) == 0;
}
