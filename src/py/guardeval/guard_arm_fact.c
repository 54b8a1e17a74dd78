/* Translates facts into words of a fast array. Each function gets a pinned value for which the fact holds now. */
#include "py/guardeval/guard_arm.h"
#include <stddef.h>

static bool
arm_type_version(kin_arm *a, const kin_fact *fact, PyObject *obj)
{
    kin_arm_word(a, &obj->ob_type, fact->vid, KIN_SITE_FACT);
    kin_arm_word(a, kin_heap_type_version(Py_TYPE(obj)), fact->vid, KIN_SITE_FACT);
    return true;
}

/* The word that holds the length of a mutable builtin. */
static const void *
length_word(PyObject *obj)
{
    PyTypeObject *type = Py_TYPE(obj);
    if (type == &PyList_Type || type == &PyByteArray_Type)
        return &((PyVarObject *)obj)->ob_size;
    if (type == &PyDict_Type || type == &PyODict_Type)
        return &((PyDictObject *)obj)->ma_used;
    if (type == &PySet_Type)
        return &((PySetObject *)obj)->used;
    return NULL;
}

/* Length and truth: of the same immutable object they cannot change. */
static bool
arm_length(kin_arm *a, const kin_fact *fact, PyObject *obj)
{
    if (Py_IsNone(obj) || PyBool_Check(obj))
        return true; /* their addresses are taken for ever */
    const void *word = length_word(obj);
    if (word == NULL)
        return a->pin[fact->vid] == KIN_PIN_SAME && kin_heap_type_is_static(Py_TYPE(obj));
    if (kin_arm_dropped(a, fact->vid, KIN_SITE_FACT) || !kin_arm_type(a, fact->vid, obj))
        return false;
    kin_arm_word(a, word, fact->vid, KIN_SITE_FACT);
    return true;
}

static bool
arm_keys(kin_arm *a, const kin_fact *fact, PyObject *dict)
{
    if (!kin_arm_type(a, fact->vid, dict) || !kin_arm_dict(a, dict, fact->vid, KIN_SITE_SHAPE))
        return false;
    if (PyODict_Check(dict))
        kin_arm_word(a, kin_heap_ordered_state(dict), fact->vid, KIN_SITE_SHAPE);
    return true;
}

static bool
arm_lacks_attr(kin_arm *a, const kin_fact *fact, PyObject *obj)
{
    kin_word words[5];
    if (!kin_arm_type(a, fact->vid, obj))
        return false;
    int n = kin_heap_inline_words(obj, kin_refs_get(&a->v->refs, fact->ref), words);
    if (n >= 0) {
        if (kin_arm_dropped(a, fact->vid, KIN_SITE_FACT))
            return false;
        kin_arm_words(a, words, n, fact->vid, KIN_SITE_FACT);
        return true;
    }
    if (!kin_arm_instance_dict(a, fact->vid, obj))
        return false;
    PyObject *dict = kin_heap_instance_dict(obj);
    return dict == NULL || kin_arm_dict(a, dict, fact->vid, KIN_SITE_IDICT);
}

static bool
arm_ndefaults(kin_arm *a, const kin_fact *fact, PyFunctionObject *fn)
{
    kin_arm_word(a, &fn->func_defaults, fact->vid, KIN_SITE_FACT);
    if (fn->func_defaults)
        kin_arm_word(a, &((PyVarObject *)fn->func_defaults)->ob_size, fact->vid, KIN_SITE_FACT);
    return true;
}

static bool
arm_function(kin_arm *a, const kin_fact *fact, PyObject *obj)
{
    PyFunctionObject *fn = (PyFunctionObject *)obj;
    if (!PyFunction_Check(obj) || kin_arm_dropped(a, fact->vid, KIN_SITE_FACT) || !kin_arm_type(a, fact->vid, obj))
        return false;
    if (fact->kind == KIN_FACT_NDEFAULTS)
        return arm_ndefaults(a, fact, fn);
    if (fact->kind == KIN_FACT_CODE) {
        kin_arm_word(a, &fn->func_code, fact->vid, KIN_SITE_FACT); /* refs keeps the code alive */
        return true;
    }
    kin_arm_word(a, &fn->func_kwdefaults, fact->vid, KIN_SITE_FACT);
    return fn->func_kwdefaults == NULL || kin_arm_dict(a, fn->func_kwdefaults, fact->vid, KIN_SITE_SHAPE);
}

static bool
arm_empty_cell(kin_arm *a, const kin_fact *fact, PyObject *cell)
{
    if (kin_arm_dropped(a, fact->vid, KIN_SITE_FACT) || !kin_arm_type(a, fact->vid, cell))
        return false;
    kin_arm_word(a, &((PyCellObject *)cell)->ob_ref, fact->vid, KIN_SITE_FACT);
    return true;
}

/* Pinning fixes both addresses, and two live objects are one exactly if their addresses are. */
static bool
arm_alias(const kin_arm *a, const kin_fact *fact)
{
    const kin_val *other = &a->v->trace.vals.at[fact->vid2];
    return other->kind == KIN_VAL_CONST || a->pin[fact->vid2] != KIN_PIN_NO;
}

bool
kin_arm_fact(kin_arm *a, const kin_fact *fact, PyObject *obj)
{
    bool same = a->pin[fact->vid] == KIN_PIN_SAME;
    switch ((kin_fact_kind)fact->kind) {
    case KIN_FACT_TYPE:
        if (!kin_arm_type_is_fixed(a, fact->vid, obj))
            kin_arm_word(a, &obj->ob_type, fact->vid, KIN_SITE_FACT);
        return true;
    case KIN_FACT_TYPE_VERSION:
        return arm_type_version(a, fact, obj);
    case KIN_FACT_TYPE_TAG: case KIN_FACT_CLASS_LACKS:
        return kin_arm_class(a, fact->vid, obj);
    case KIN_FACT_ID: case KIN_FACT_NOT_ID:
        return true; /* the object of the fact keeps its address: refs holds it */
    case KIN_FACT_EQ:
        return same || obj == kin_refs_get(&a->v->refs, fact->ref);
    case KIN_FACT_LEN: case KIN_FACT_TRUE:
        return arm_length(a, fact, obj);
    case KIN_FACT_HAS_KEY: case KIN_FACT_LACKS_KEY: case KIN_FACT_DICT_KEYS:
        return arm_keys(a, fact, obj);
    case KIN_FACT_LACKS_ATTR:
        return arm_lacks_attr(a, fact, obj);
    case KIN_FACT_CODE: case KIN_FACT_NDEFAULTS: case KIN_FACT_KWDEFAULT_LACKS:
        return arm_function(a, fact, obj);
    case KIN_FACT_CELL_EMPTY:
        return arm_empty_cell(a, fact, obj);
    case KIN_FACT_SAME: case KIN_FACT_NOT_SAME:
        return arm_alias(a, fact);
    case KIN_FACT_T_META: case KIN_FACT_T_DATA: case KIN_FACT_CALL_IS: case KIN_FACT__COUNT:
        break;
    }
    return false;
}
