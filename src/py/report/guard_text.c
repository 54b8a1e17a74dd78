/* Facts and guard misses as text. */
#include "py/aten/sizes.h"
#include "py/report/guard_text_priv.h"
#include "py/aten/tensor.h"
#include "py/compat/heap.h"

/* ---- facts ---------------------------------------------------------------------------------------------------- */

PyObject *
kin_named_text(PyObject *obj)
{
    PyObject *text = kin_object_text(obj);
    if (text == NULL || !PyFunction_Check(obj) || PyUnicode_GET_LENGTH(text) == 0 || PyUnicode_READ_CHAR(text, PyUnicode_GET_LENGTH(text) - 1) != '>')
        return text;
    PyObject *place = kin_code_place(((PyFunctionObject *)obj)->func_code);
    if (place != NULL)
        Py_SETREF(text, PyUnicode_FromFormat("%U (%U)", text, place));
    Py_XDECREF(place);
    return text;
}

PyObject *
kin_other_text(PyObject *before, PyObject *obj)
{
    PyObject *was = before != NULL ? kin_named_text(before) : NULL, *text = was != NULL ? kin_named_text(obj) : NULL;
    if (text != NULL && PyUnicode_Compare(was, text) == 0)
        Py_SETREF(text, PyUnicode_FromFormat("another object of that name, %U", text));
    Py_XDECREF(was);
    return text;
}

static PyObject *
eq_text(PyObject *path, PyObject *ref)
{
    PyObject *value = kin_object_text(ref);
    PyObject *out = value ? PyUnicode_FromFormat(ref == Py_None ? "%U is %U" : "%U == %U", path, value) : NULL;
    Py_XDECREF(value);
    return out;
}

static PyObject *
with_object(const char *format, PyObject *first, PyObject *obj, bool object_first)
{
    PyObject *text = kin_object_text(obj);
    PyObject *out = NULL;
    if (text)
        out = object_first ? PyUnicode_FromFormat(format, text, first) : PyUnicode_FromFormat(format, first, text);
    Py_XDECREF(text);
    return out;
}

/* "'a', 'b'" */
static PyObject *
join_objects(PyObject *const *items, Py_ssize_t n)
{
    PyObject *text = PyUnicode_FromString("");
    for (Py_ssize_t i = 0; text && i < n; i++) {
        PyObject *item = kin_object_text(items[i]);
        PyObject *longer = item ? PyUnicode_FromFormat("%U%s%U", text, i ? ", " : "", item) : NULL;
        Py_XDECREF(item);
        Py_SETREF(text, longer);
    }
    return text;
}

static PyObject *
keys_text(PyObject *path, PyObject *keys)
{
    PyObject *text = join_objects(((PyTupleObject *)keys)->ob_item, PyTuple_GET_SIZE(keys));
    PyObject *out = text ? PyUnicode_FromFormat("list(%U) == [%U]", path, text) : NULL;
    Py_XDECREF(text);
    return out;
}

static PyObject *
call_text(PyObject *call)
{
    Py_ssize_t n = PyTuple_GET_SIZE(call);
    PyObject *const *items = ((PyTupleObject *)call)->ob_item;
    if (n < 2)
        return PyUnicode_FromString("<state>");
    PyObject *callee = kin_object_text(items[0]), *out = NULL;
    PyObject *args = callee ? join_objects(items + 1, n - 2) : NULL;
    PyObject *result = args ? kin_object_text(items[n - 1]) : NULL;
    if (result)
        out = PyUnicode_FromFormat("%U(%U) == %U", callee, args, result);
    Py_XDECREF(callee);
    Py_XDECREF(args);
    Py_XDECREF(result);
    return out;
}

static PyObject *
tensor_text(const kin_entry *v, const kin_fact *f, PyObject *path)
{
    PyObject *note = kin_refs_get(&v->refs, v->trace.vals.at[f->vid].note);
    if (note == NULL || !PyUnicode_Check(note))
        return PyUnicode_FromFormat("tensor '%U' has the recorded metadata", path);
    PyObject *open = kin_open_text(kin_refs_get(&v->refs, f->ref));
    PyObject *text = open != NULL ? PyUnicode_FromFormat("tensor '%U' is %U%U", path, note, open) : NULL;
    Py_XDECREF(open);
    return text;
}

static PyObject *
alias_text(const kin_entry *v, const kin_fact *f, PyObject *path, bool brief)
{
    PyObject *other = kin_path_text(v, f->vid2, brief);
    const char *format = f->kind == KIN_FACT_SAME ? "%U is %U" : "%U is not %U";
    PyObject *out = other ? PyUnicode_FromFormat(format, path, other) : NULL;
    Py_XDECREF(other);
    return out;
}

/* An object that is called by the path itself: what can change is what the path leads to. */
static PyObject *
id_text(PyObject *path, PyObject *ref)
{
    PyObject *object = kin_named_text(ref), *text = NULL;
    if (object != NULL)
        text = PyUnicode_Compare(path, object) == 0 ? PyUnicode_FromFormat("%U was not rebound", path) : PyUnicode_FromFormat("%U is %U", path, object);
    Py_XDECREF(object);
    return text;
}

static PyObject *
fact_body(const kin_entry *v, const kin_fact *f, PyObject *path, bool brief)
{
    PyObject *ref = kin_refs_get(&v->refs, f->ref);
    switch ((kin_fact_kind)f->kind) {
    case KIN_FACT_TYPE:
        return with_object("type(%U) is %U", path, ref, false);
    case KIN_FACT_TYPE_VERSION:
        return with_object("type(%U) is %U, and no attribute of the class was set or deleted", path, ref, false);
    case KIN_FACT_TYPE_TAG:
        return PyUnicode_FromFormat("no attribute of class %U or its bases was set or deleted", path);
    case KIN_FACT_ID:
        return id_text(path, ref);
    case KIN_FACT_NOT_ID:
        return with_object("%U is not %U", path, ref, false);
    case KIN_FACT_EQ:
        return eq_text(path, ref);
    case KIN_FACT_LEN:
        return PyUnicode_FromFormat("len(%U) == %u", path, f->num);
    case KIN_FACT_TRUE:
        return PyUnicode_FromFormat(f->num ? "bool(%U)" : "not %U", path);
    case KIN_FACT_HAS_KEY:
        return with_object("%U in %U", path, ref, true);
    case KIN_FACT_LACKS_KEY:
        return with_object("%U not in %U", path, ref, true);
    case KIN_FACT_LACKS_ATTR:
        return with_object("%U not in %U.__dict__", path, ref, true);
    case KIN_FACT_CLASS_LACKS:
        return with_object("%U has no attribute %U", path, ref, false);
    case KIN_FACT_DICT_KEYS:
        return keys_text(path, ref);
    case KIN_FACT_CODE:
        return with_object(PyCode_Check(ref) ? "%U.__code__ is %U" : "%U runs %U", path, ref, false);
    case KIN_FACT_NDEFAULTS:
        return f->num ? PyUnicode_FromFormat("len(%U.__defaults__) == %u", path, f->num)
                      : PyUnicode_FromFormat("%U.__defaults__ is None", path);
    case KIN_FACT_KWDEFAULT_LACKS:
        return with_object("%U not in %U.__kwdefaults__", path, ref, true);
    case KIN_FACT_CELL_EMPTY:
        return PyUnicode_FromFormat("%U is empty", path);
    case KIN_FACT_T_META:
        return tensor_text(v, f, path);
    case KIN_FACT_SAME: case KIN_FACT_NOT_SAME:
        return alias_text(v, f, path, brief);
    case KIN_FACT_CALL_IS:
        return call_text(ref);
    case KIN_FACT__COUNT:
        break;
    }
    return PyUnicode_FromString("<unknown fact>");
}

static PyObject *
fact_text(const kin_entry *v, uint32_t fact, bool brief)
{
    const kin_fact *f = &v->trace.facts.at[fact];
    PyObject *path = kin_path_text(v, f->vid, brief);
    PyObject *out = path ? fact_body(v, f, path, brief) : NULL;
    Py_XDECREF(path);
    return out;
}

PyObject *
kin_fact_text(const kin_entry *v, uint32_t fact)
{
    if (fact >= v->trace.facts.len)
        return PyUnicode_FromString("<no such fact>");
    return fact_text(v, fact, false);
}

/* ---- misses --------------------------------------------------------------------------------------------------- */

static PyObject *
present_keys(PyObject *dict)
{
    PyObject *keys = PyDict_Keys(dict);
    PyObject *text = keys ? join_objects(((PyListObject *)keys)->ob_item, PyList_GET_SIZE(keys)) : NULL;
    PyObject *out = text ? PyUnicode_FromFormat("[%U]", text) : NULL;
    Py_XDECREF(keys);
    Py_XDECREF(text);
    return out;
}

/* What is there instead, where that says more than "no longer". NULL without an exception otherwise. */
static PyObject *
new_content(const kin_fact *f, PyObject *ref, PyObject *obj)
{
    switch ((kin_fact_kind)f->kind) {
    case KIN_FACT_TYPE:
        return kin_object_text((PyObject *)Py_TYPE(obj));
    case KIN_FACT_ID:
        return kin_other_text(ref, obj);
    case KIN_FACT_EQ: case KIN_FACT_SAME:
        return kin_object_text(obj);
    case KIN_FACT_LEN:
        return kin_exact_len(obj) < 0 ? kin_object_text(obj) : PyUnicode_FromFormat("%zd", kin_exact_len(obj));
    case KIN_FACT_NDEFAULTS:
        if (!PyFunction_Check(obj) || ((PyFunctionObject *)obj)->func_defaults == NULL)
            return NULL;
        return PyUnicode_FromFormat("%zd", PyTuple_GET_SIZE(((PyFunctionObject *)obj)->func_defaults));
    case KIN_FACT_CODE:
        return kin_object_text(PyFunction_Check(obj) ? ((PyFunctionObject *)obj)->func_code : obj);
    case KIN_FACT_DICT_KEYS:
        return PyDict_CheckExact(obj) || PyODict_Check(obj) ? present_keys(obj) : kin_object_text(obj);
    default:
        return NULL;
    }
}

static PyObject *
tensor_miss(const kin_entry *v, const kin_fact *f, PyObject *obj, bool brief)
{
    PyObject *path = kin_path_text(v, f->vid, brief);
    PyObject *why = path ? kin_meta_explain(obj, kin_refs_get(&v->refs, f->ref)) : NULL;
    PyObject *out = why ? PyUnicode_FromFormat("tensor '%U' %U", path, why) : NULL;
    Py_XDECREF(path);
    Py_XDECREF(why);
    return out;
}

static PyObject *
class_changed(const kin_entry *v, const kin_fact *f, PyObject *obj, bool brief)
{
    PyObject *cls = f->kind == KIN_FACT_TYPE_TAG ? obj : (PyObject *)Py_TYPE(obj);
    PyObject *name = kin_object_text(cls);
    PyObject *path = name ? kin_path_text(v, f->vid, brief) : NULL;
    PyObject *out = NULL;
    if (path && f->kind == KIN_FACT_TYPE_VERSION && cls != kin_refs_get(&v->refs, f->ref))
        out = with_object("type(%U) is %U", path, kin_refs_get(&v->refs, f->ref), false);
    else if (path && f->kind == KIN_FACT_TYPE_TAG)
        out = PyUnicode_FromFormat("an attribute of class %U or its bases was set or deleted", path);
    else if (path)
        out = PyUnicode_FromFormat("an attribute of %U, the class of %U, was set or deleted", name, path);
    if (out && f->kind == KIN_FACT_TYPE_VERSION && cls != kin_refs_get(&v->refs, f->ref))
        Py_SETREF(out, PyUnicode_FromFormat("%U (now %U)", out, name));
    Py_XDECREF(name);
    Py_XDECREF(path);
    return out;
}

static PyObject *
path_miss(const kin_entry *v, kin_vid vid, bool brief)
{
    PyObject *path = kin_path_text(v, vid, brief);
    PyObject *out = path ? PyUnicode_FromFormat("%U is no longer there", path) : NULL;
    Py_XDECREF(path);
    return out;
}

PyObject *
kin_miss_text(const kin_entry *v, const kin_guard_miss *miss, PyObject *const *slots, bool brief)
{
    if (miss->fact >= v->trace.facts.len)
        return path_miss(v, miss->vid, brief);
    const kin_fact *f = &v->trace.facts.at[miss->fact];
    PyObject *obj = kin_guard_live(v, f->vid, slots);
    if (obj && f->kind == KIN_FACT_T_META)
        return tensor_miss(v, f, obj, brief);
    if (obj && (f->kind == KIN_FACT_TYPE_VERSION || f->kind == KIN_FACT_TYPE_TAG))
        return class_changed(v, f, obj, brief);
    PyObject *text = fact_text(v, miss->fact, brief);
    PyObject *now = text && obj ? new_content(f, kin_refs_get(&v->refs, f->ref), obj) : NULL;
    if (now)
        Py_SETREF(text, PyUnicode_FromFormat("%U (now %U)", text, now));
    Py_XDECREF(now);
    if (PyErr_Occurred())
        Py_CLEAR(text);
    return text;
}
