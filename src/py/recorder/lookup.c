/* What a class has under a name, as facts. Usually the version of the class covers all lookups in it. If the class changes
 * between calls (a counter in a class, a method that is replaced each time), each lookup is a fact of its own, and only those properties
 * of the result that binding depends on are assumed.
 *
 * Slots such as tp_getattro or tp_call follow from lookups of their names, so the facts about these lookups cover them.
 */
#include "py/recorder/rec.h"
#include <stddef.h>

void
rec_attrs_of(rec *r, PyTypeObject *tp)
{
    if (!rec_class_is_dynamic(r, tp))
        rec_class_version(r, tp);
    else
        rec_fact(r, KIN_FACT_TYPE, rec_const(r, (PyObject *)tp), (PyObject *)Py_TYPE(tp), 0);
}

PyTypeObject *
rec_need_attrs(rec *r, kin_vid vid)
{
    PyTypeObject *tp = rec_need_type(r, vid);
    rec_attrs_of(r, tp);
    return tp;
}

/* Static descriptors, C functions, and Python functions as long as they stay, are known by identity: they do not die before their class does,
 * or unobserved. Of everything else only the type is assumed; values, and the functions in properties, are read when used.
 */
static bool
is_fixed(rec *r, kin_vid vid, PyObject *found)
{
    PyTypeObject *dt = Py_TYPE(found);
    if (dt == &PyFunction_Type)
        return !rec_is_dynamic(r, vid);
    return dt == &PyMethodDescr_Type || dt == &PyWrapperDescr_Type || dt == &PyGetSetDescr_Type ||
           dt == &PyMemberDescr_Type || dt == &PyClassMethodDescr_Type || (PyCFunction_Check(found) && rec_pinnable(found));
}

PyObject *
rec_lookup(rec *r, PyTypeObject *tp, PyObject *name)
{
    PyObject *found = _PyType_Lookup(tp, name);
    if (!rec_class_is_dynamic(r, tp))
        return found;
    kin_vid cls = rec_const(r, (PyObject *)tp);
    if (found == NULL) {
        rec_fact(r, KIN_FACT_CLASS_LACKS, cls, name, 0);
        return NULL;
    }
    kin_vid vid = rec_src_key(r, cls, KIN_ACCESS_TYPEATTR, name, found);
    if (is_fixed(r, vid, found))
        rec_fact(r, KIN_FACT_ID, vid, found, 0);
    else
        rec_need_type(r, vid);
    return found;
}

kin_vid
rec_found(rec *r, PyTypeObject *tp, PyObject *name, PyObject *found)
{
    if (!rec_class_is_dynamic(r, tp))
        return rec_const(r, found);
    kin_vid vid = rec_src_key(r, rec_const(r, (PyObject *)tp), KIN_ACCESS_TYPEATTR, name, found);
    if (is_fixed(r, vid, found))
        return rec_const(r, found);
    rec_need_type(r, vid);
    return vid;
}

kin_vid
rec_found_value(rec *r, PyTypeObject *tp, PyObject *name, PyObject *found)
{
    if (rec_class_is_dynamic(r, tp) || kin_is_exact_immutable(found) || rec_pinnable(found) || PyFunction_Check(found))
        return rec_found(r, tp, name, found);
    return rec_src_key(r, rec_const(r, (PyObject *)tp), KIN_ACCESS_TYPEATTR, name, found);
}

void
rec_bases_of(rec *r, PyTypeObject *tp)
{
    if (!rec_class_is_dynamic(r, tp)) {
        rec_class_version(r, tp);
        return;
    }
    kin_vid cls = rec_const(r, (PyObject *)tp);
    rec_fact(r, KIN_FACT_TYPE, cls, (PyObject *)Py_TYPE(tp), 0);
    kin_vid mro = rec_src(r, cls, KIN_ACCESS_MEMBER, (uint32_t)offsetof(PyTypeObject, tp_mro), tp->tp_mro);
    rec_fact(r, KIN_FACT_ID, mro, tp->tp_mro, 0);
}
