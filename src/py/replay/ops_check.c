/* What CHECK steps test. Only testing the truth of an object can run code or raise. */
#include "py/aten/tensor.h"
#include "py/compat/heap.h"
#include "py/guardeval/guard.h"
#include "py/replay/ops_priv.h"
#include "py/replay/replay.h"

/* Length of an exact builtin container; -1 for any other object. */
static Py_ssize_t
builtin_len(PyObject *obj)
{
    if (PyTuple_Check(obj) || PyList_CheckExact(obj))
        return Py_SIZE(obj);
    if (PyDict_CheckExact(obj))
        return PyDict_GET_SIZE(obj);
    if (PyAnySet_CheckExact(obj))
        return PySet_GET_SIZE(obj);
    if (PyUnicode_CheckExact(obj))
        return PyUnicode_GET_LENGTH(obj);
    if (PyBytes_CheckExact(obj))
        return PyBytes_GET_SIZE(obj);
    if (Py_IS_TYPE(obj, &PyRange_Type) || Py_IS_TYPE(obj, &PyByteArray_Type))
        return PyObject_Size(obj);
    return -1;
}

static bool
has_version(PyObject *obj, PyObject *type, uint32_t version)
{
    PyTypeObject *tp = Py_TYPE(obj);
    return (PyObject *)tp == type && version != 0 && tp->tp_version_tag == version; /* 0 while it is not valid */
}

int
kin_check_holds(const kin_refs *refs, const kin_step *s, PyObject *a, PyObject *b)
{
    PyObject *ref = kin_refs_get(refs, s->ref);
    kin_check check = (kin_check)s->imm;
    if (check == KIN_CHECK_NULL || check == KIN_CHECK_NOTNULL)
        return (a == NULL) == (check == KIN_CHECK_NULL);
    if (a == NULL)
        return 0;
    switch (check) {
    case KIN_CHECK_TRUE:
        return PyObject_IsTrue(a);
    case KIN_CHECK_FALSE: {
        int truth = PyObject_IsTrue(a);
        return truth < 0 ? -1 : !truth;
    }
    case KIN_CHECK_TYPE:
        return (PyObject *)Py_TYPE(a) == ref;
    case KIN_CHECK_VERSION:
        return has_version(a, ref, s->num);
    case KIN_CHECK_IS:
        return a == ref;
    case KIN_CHECK_IS_NOT:
        return a != ref;
    case KIN_CHECK_EQ:
        return kin_exact_equal(a, ref);
    case KIN_CHECK_LEN:
        return builtin_len(a) == (Py_ssize_t)s->num;
    case KIN_CHECK_META:
        return kin_is_tensor(a) && kin_meta_match(a, ref);
    case KIN_CHECK_SAME:
        return a == b;
    case KIN_CHECK_NOT_SAME:
        return a != b;
    case KIN_CHECK_WAS_TRUE:
        return a == Py_True;
    case KIN_CHECK_WAS_FALSE:
        return a == Py_False;
    case KIN_CHECK_RUNS_NO_CODE:
        return kin_exact_runs_no_code(a, s->num != 0);
    case KIN_CHECK_FITS:
        return kin_place_takes(a, ref, s->num, 0);
    case KIN_CHECK_LACKS:
        return kin_heap_instance_attr(a, ref) == NULL;
    case KIN_CHECK_ANSWERED: /* the key is of immutable builtins: comparing them runs no code */
        return PyDict_Contains(PyTuple_GET_ITEM(ref, 0), PyTuple_GET_ITEM(ref, 1)) == 1;
    case KIN_CHECK_NULL:
    case KIN_CHECK_NOTNULL:
        break;
    }
    return 0;
}
