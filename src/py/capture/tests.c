/* Tests of what captured steps give: whether they pass, as far as fake tensors can tell. */
#include "core/trace/effects.h"
#include "py/capture/capture_priv.h"
#include "py/guardeval/guard.h"
#include "py/replay/replay.h"

/* Sizes that data decides were never seen: a test of what comes behind cannot be shown to pass, unless it is of a class, or of the sizes, dtype ... that
 * a tensor has with other data, too (KIN_CAPTURE_OTHER_DATA). */
static bool
is_of_unknown_sizes(const stepper *x, const kin_step *s)
{
    const kin_val *val = &x->t->vals.at[x->t->vids.at[s->args]];
    if (x->by_data == 0 || val->kind != KIN_VAL_STEP || val->step + 1 < x->by_data)
        return false;
    PyObject *obj = x->slots[x->t->vids.at[s->args]];
    switch ((kin_check)s->imm) {
    case KIN_CHECK_TYPE: case KIN_CHECK_VERSION: case KIN_CHECK_META: case KIN_CHECK_LEN:
        return false;
    case KIN_CHECK_IS: case KIN_CHECK_IS_NOT: /* a new tensor or container is no object that was there, whatever its sizes */
        return obj == NULL || !(kin_is_tensor(obj) || PyTuple_CheckExact(obj) || PyList_CheckExact(obj));
    default:
        return true;
    }
}

/* The class of what the fake tensor stands for. An operator may return its input (x.float() of a float): a Parameter then. */
static PyTypeObject *
type_of_original(const stepper *x, uint32_t number)
{
    uint32_t tensor = 0;
    for (uint32_t i = 0; i < x->subgraph->nin; i++)
        if (kin_is_tensor(x->in[i]) && tensor++ == number)
            return Py_TYPE(x->in[i]);
    return NULL; /* made inside: a torch.Tensor */
}

static bool
is_of_type(const stepper *x, PyObject *fake, PyObject *ref)
{
    PyTypeObject *type = type_of_original(x, kin_capture_number(fake));
    if (x->data && type == NULL) /* it follows from the classes of what goes in */
        return kin_is_class_of_tensors(ref);
    return type != NULL ? (PyObject *)type == ref : kin_is_tensor_type(ref);
}

/* A test of something that a fake tensor is part of. */
static bool
holds(const stepper *x, const kin_step *s)
{
    kin_vid vid = x->t->vids.at[s->args];
    PyObject *obj = x->slots[vid], *ref = kin_refs_get(&x->v->refs, s->ref);
    for (uint32_t i = 0; i < x->subgraph->nin; i++)
        if (x->subgraph->in[i] == vid) /* the signature decides; it knows nothing of an object's own attributes */
            return s->imm != KIN_CHECK_LACKS && kin_check_holds(&x->v->refs, s, x->in[i], NULL) == 1;
    if (kin_capture_number(obj) == UINT32_MAX) {
        PyObject *answer = kin_step_execute(x->t, &x->v->refs, s, x->slots);
        Py_XDECREF(answer);
        return answer == Py_True;
    }
    switch ((kin_check)s->imm) {
    case KIN_CHECK_TYPE:
        return is_of_type(x, obj, ref);
    case KIN_CHECK_VERSION:
        return is_of_type(x, obj, ref) && ((PyTypeObject *)ref)->tp_version_tag == s->num;
    case KIN_CHECK_META:
        return kin_meta_match_kind(obj, ref);
    case KIN_CHECK_IS:
        return false;
    case KIN_CHECK_IS_NOT: case KIN_CHECK_LACKS:
        return true;
    default:
        return false;
    }
}

static const char *
words_of(kin_check check)
{
    switch (check) {
    case KIN_CHECK_TRUE: case KIN_CHECK_FALSE: case KIN_CHECK_WAS_TRUE: case KIN_CHECK_WAS_FALSE: return "the truth of a value";
    case KIN_CHECK_TYPE: case KIN_CHECK_VERSION: return "the class of a value";
    case KIN_CHECK_META: return "sizes, strides or dtype of a tensor";
    case KIN_CHECK_IS: case KIN_CHECK_IS_NOT: case KIN_CHECK_SAME: case KIN_CHECK_NOT_SAME: return "which object a value is";
    case KIN_CHECK_EQ: return "a number or text";
    case KIN_CHECK_LEN: return "a length";
    case KIN_CHECK_NULL: case KIN_CHECK_NOTNULL: return "the end of an iterator";
    case KIN_CHECK_RUNS_NO_CODE: case KIN_CHECK_FITS: case KIN_CHECK_LACKS: case KIN_CHECK_ANSWERED: return "what a value contains";
    }
    return "a value";
}

/* "file.py:12", of the instruction that the step belongs to. */
static void
place_of(const stepper *x, const kin_step *s, char *text, size_t size)
{
    const kin_snap *snap = s->snap == 0 ? NULL : &x->t->snaps.at[s->snap];
    PyObject *code = snap == NULL ? NULL : kin_refs_get(&x->v->refs, snap->code);
    const char *file = code != NULL && PyCode_Check(code) ? PyUnicode_AsUTF8(((PyCodeObject *)code)->co_filename) : NULL;
    PyErr_Clear();
    if (file == NULL) {
        snprintf(text, size, "a line that is not known");
        return;
    }
    const char *slash = strrchr(file, '/');
    snprintf(text, size, "%.100s:%d", slash != NULL ? slash + 1 : file, PyCode_Addr2Line((PyCodeObject *)code, (int)snap->offset));
}

/* A test that fails leaves these steps: whoever runs them one by one finds out. The graph is divided there. */
bool
capture_test(stepper *x, const kin_step *s, uint32_t step)
{
    if ((x->data && kin_step_does(s, KIN_FROM_DATA)) || (!is_of_unknown_sizes(x, s) && holds(x, s))) /* an assertion of the graph holds where it does not raise */
        return true;
    char place[120];
    place_of(x, s, place, sizeof place);
    kin_capture_refuse(&x->c, "the test of %s at %s does not pass when it is captured", words_of((kin_check)s->imm), place);
    x->c.out->failed_test = step + 1;
    return false;
}
