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
    PyObject *place = kin_code_location(((PyFunctionObject *)obj)->func_code);
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

/* "model.Model.forward was not replaced (model.py:6)", or for what is not called after its code "L['fn'] runs scale (model.py:9)". */
static PyObject *
code_text(PyObject *source, PyObject *ref)
{
    if (ref == NULL || !PyCode_Check(ref))
        return PyUnicode_FromFormat("%U was not replaced", source);
    PyObject *name = ((PyCodeObject *)ref)->co_qualname, *place = kin_code_location(ref);
    PyObject *text = NULL;
    if (place != NULL && PyUnicode_Tailmatch(source, name, 0, PY_SSIZE_T_MAX, 1) == 1)
        text = PyUnicode_FromFormat("%U was not replaced (%U)", source, place);
    else if (place != NULL)
        text = PyUnicode_FromFormat("%U runs %U (%U)", source, name, place);
    Py_XDECREF(place);
    return text;
}

/* ", f32[3][1]cpu": what is known of the tensor, where that was noted. */
static PyObject *
tensor_text(const kin_trace *t, const kin_refs *refs, const kin_fact *f)
{
    kin_ref note = t->vals.at[f->vid].note;
    PyObject *what = note != 0 ? kin_refs_get(refs, note) : NULL;
    if (what == NULL || !PyUnicode_Check(what))
        return PyUnicode_FromString("");
    PyObject *open = kin_open_text(kin_refs_get(refs, f->ref));
    PyObject *text = open != NULL ? PyUnicode_FromFormat(", %U%U", what, open) : NULL;
    Py_XDECREF(open);
    return text;
}

/* What list() of it gives: the text of a tuple of the same, but for the brackets. */
static PyObject *
as_list(PyObject *container)
{
    PyObject *tuple = container != NULL ? PySequence_Tuple(container) : NULL, *text = tuple != NULL ? kin_object_text(tuple) : NULL;
    Py_ssize_t n = text != NULL ? PyUnicode_GET_LENGTH(text) : 0;
    if (n >= 2 && PyUnicode_READ_CHAR(text, 0) == '(' && PyUnicode_READ_CHAR(text, n - 1) == ')') {
        PyObject *items = PyUnicode_Substring(text, 1, n - 1 - (PyUnicode_READ_CHAR(text, n - 2) == ','));
        Py_SETREF(text, items != NULL ? PyUnicode_FromFormat("[%U]", items) : NULL);
        Py_XDECREF(items);
    }
    Py_XDECREF(tuple);
    PyErr_Clear();
    return text;
}

/* What stands for the letter behind a $ in facts.def: new reference. */
static PyObject *
fact_part(char letter, const kin_trace *t, const kin_refs *refs, const kin_fact *f, PyObject *value, PyObject *ref, PyObject *other)
{
    switch (letter) {
    case 'v': return Py_NewRef(value);
    case 'r': return Py_NewRef(ref);
    case 'o': return Py_XNewRef(other);
    case 'n': return PyUnicode_FromFormat("%u", f->num);
    case 's': return PyUnicode_FromString(f->num == 1 ? "" : "s");
    case 'b': return PyUnicode_FromString(f->num ? "True" : "False");
    case 'c': return code_text(value, kin_refs_get(refs, f->ref));
    case 'l': return as_list(kin_refs_get(refs, f->ref));
    case 'm': return tensor_text(t, refs, f);
    default: return PyUnicode_FromString("?");
    }
}

PyObject *
kin_fact_words(const kin_trace *t, const kin_refs *refs, const kin_fact *f, PyObject *value, PyObject *ref, PyObject *other)
{
    const char *says = kin_fact_says((kin_fact_kind)f->kind);
    if (f->kind == KIN_FACT_ID && PyUnicode_Compare(value, ref) == 0) /* called by its path: what can change is what the path leads to */
        says = "$v was not rebound";
    else if (f->kind == KIN_FACT_EQ && kin_refs_get(refs, f->ref) == Py_None)
        says = "$v is $r";
    PyObject *text = PyUnicode_FromString("");
    while (text != NULL && *says != '\0') {
        size_t n = *says == '$' ? 2 : strcspn(says, "$");
        PyObject *part = *says == '$' ? fact_part(says[1], t, refs, f, value, ref, other) : PyUnicode_FromStringAndSize(says, (Py_ssize_t)n);
        Py_SETREF(text, part != NULL ? PyUnicode_Concat(text, part) : NULL);
        Py_XDECREF(part);
        says += n;
    }
    return text;
}

static PyObject *
fact_text(const kin_entry *v, uint32_t fact, bool brief)
{
    const kin_fact *f = &v->trace.facts.at[fact];
    PyObject *ref = f->ref != 0 ? kin_refs_get(&v->refs, f->ref) : Py_None;
    if (f->kind == KIN_FACT_CALL_IS)
        return call_text(ref);
    PyObject *path = kin_path_text(v, f->vid, brief), *other = f->vid2 != 0 ? kin_path_text(v, f->vid2, brief) : NULL;
    PyObject *object = f->kind == KIN_FACT_ID ? kin_named_text(ref) : kin_object_text(ref);
    PyObject *out = path != NULL && object != NULL && (other != NULL || f->vid2 == 0) ? kin_fact_words(&v->trace, &v->refs, f, path, object, other) : NULL;
    Py_XDECREF(path);
    Py_XDECREF(other);
    Py_XDECREF(object);
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
        return PyDict_CheckExact(obj) || PyODict_Check(obj) ? as_list(obj) : kin_object_text(obj);
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
    PyObject *cls = f->kind == KIN_FACT_TYPE_TAG ? obj : (PyObject *)Py_TYPE(obj), *before = kin_refs_get(&v->refs, f->ref);
    PyObject *name = kin_object_text(cls), *path = name ? kin_path_text(v, f->vid, brief) : NULL, *was = NULL, *out = NULL;
    if (path && f->kind == KIN_FACT_TYPE_TAG)
        out = PyUnicode_FromFormat("an attribute of class %U or its bases was set or deleted", path);
    else if (path && cls == before)
        out = PyUnicode_FromFormat("an attribute of %U, the class of %U, was set or deleted", name, path);
    else if (path && (was = kin_object_text(before)) != NULL)
        out = PyUnicode_FromFormat("type(%U) is %U (now %U)", path, was, name);
    Py_XDECREF(name);
    Py_XDECREF(path);
    Py_XDECREF(was);
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
