/* Why a replay left its recording, as text: the check that did not hold, with the value that it met. In the words of guard misses, so that reports can treat both
 * alike. A value that no variable holds is "the value here": the line, and the part of it that the event names, say which one it is.
 */
#include "py/aten/tensor.h"
#include "py/compat/heap.h"
#include "py/report/guard_text_priv.h"

static PyObject *
subject_text(const kin_entry *v, kin_vid vid)
{
    const kin_val *val = vid < v->trace.vals.len ? &v->trace.vals.at[vid] : NULL;
    bool named = val != NULL && (val->kind == KIN_VAL_SRC || val->name != 0);
    return named ? kin_path_text(v, vid, true) : PyUnicode_FromString("the value here");
}

/* "subject relation before (now ...)"; steals before and now. */
static PyObject *
join(PyObject *subject, const char *relation, PyObject *before, PyObject *now)
{
    PyObject *text = before != NULL && now != NULL ? PyUnicode_FromFormat("%U %s %U (now %U)", subject, relation, before, now) : NULL;
    Py_XDECREF(before);
    Py_XDECREF(now);
    return text;
}

static PyObject *
truth_text(PyObject *subject, bool before)
{
    return join(subject, "==", PyUnicode_FromString(before ? "True" : "False"), PyUnicode_FromString(before ? "False" : "True"));
}

static PyObject *
wrapped(const char *format, PyObject *subject)
{
    return PyUnicode_FromFormat(format, subject);
}

static PyObject *
identity_text(PyObject *subject, PyObject *before, PyObject *obj)
{
    return join(subject, "is", kin_named_text(before), kin_other_text(before, obj));
}

static PyObject *
length_text(PyObject *subject, uint32_t before, PyObject *obj)
{
    PyObject *of = wrapped("len(%U)", subject), *text = NULL;
    if (of != NULL)
        text = join(of, "==", PyUnicode_FromFormat("%u", before), kin_exact_len(obj) < 0 ? kin_object_text(obj) : PyUnicode_FromFormat("%zd", kin_exact_len(obj)));
    Py_XDECREF(of);
    return text;
}

static PyObject *
type_text(PyObject *subject, PyObject *before, PyObject *obj)
{
    PyObject *of = wrapped("type(%U)", subject), *text = NULL;
    if (of != NULL)
        text = join(of, "is", kin_object_text(before), kin_object_text((PyObject *)Py_TYPE(obj)));
    Py_XDECREF(of);
    return text;
}

static PyObject *
tensor_text(PyObject *subject, PyObject *record, PyObject *obj)
{
    PyObject *why = kin_meta_explain(obj, record), *text = why != NULL ? PyUnicode_FromFormat("tensor '%U' %U", subject, why) : NULL;
    Py_XDECREF(why);
    return text;
}

static PyObject *
check_text(const kin_entry *v, const kin_step *s, PyObject *subject, PyObject *obj)
{
    PyObject *ref = kin_refs_get(&v->refs, s->ref);
    switch ((kin_check)s->imm) {
    case KIN_CHECK_TRUE: case KIN_CHECK_WAS_TRUE:
        return truth_text(subject, true);
    case KIN_CHECK_FALSE: case KIN_CHECK_WAS_FALSE:
        return truth_text(subject, false);
    case KIN_CHECK_NULL:
        return PyUnicode_FromString("the loop here == at its end (now going on)");
    case KIN_CHECK_NOTNULL:
        return PyUnicode_FromString("the loop here == going on (now at its end)");
    default:
        break;
    }
    if (obj == NULL)
        return NULL;
    switch ((kin_check)s->imm) {
    case KIN_CHECK_TYPE: case KIN_CHECK_VERSION:
        return ref != NULL ? type_text(subject, ref, obj) : NULL;
    case KIN_CHECK_IS:
        return ref != NULL ? identity_text(subject, ref, obj) : NULL;
    case KIN_CHECK_IS_NOT:
        return ref != NULL ? join(subject, "is not", kin_named_text(ref), kin_named_text(obj)) : NULL;
    case KIN_CHECK_EQ:
        return ref != NULL ? join(subject, "==", kin_object_text(ref), kin_object_text(obj)) : NULL;
    case KIN_CHECK_LEN:
        return length_text(subject, s->num, obj);
    case KIN_CHECK_META:
        return ref != NULL ? tensor_text(subject, ref, obj) : NULL;
    default:
        return NULL;
    }
}

PyObject *
kin_exit_text(const kin_entry *v, uint32_t step, PyObject *const *slots)
{
    const kin_step *s = &v->trace.steps.at[step];
    PyObject *text = NULL;
    if (s->kind == KIN_STEP_EPOCH) {
        kin_guard_miss miss = {v->missed, v->missed_vid};
        text = kin_miss_text(v, &miss, slots, true);
    } else if (s->kind == KIN_STEP_CHECK) {
        kin_vid vid = v->trace.vids.at[s->args];
        PyObject *subject = subject_text(v, vid);
        text = subject != NULL ? check_text(v, s, subject, slots[vid]) : NULL;
        Py_XDECREF(subject);
    }
    if (text == NULL)
        PyErr_Clear();
    return text;
}
