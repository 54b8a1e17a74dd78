/* Remembers what changed between calls (unstable.h). */
#include "py/module/unstable.h"

#include "py/guardeval/guard_text.h"

/* Adds the place, at once or when it comes up for the second time. Steals `place`. */
static void
add_place(PyObject *place, bool at_once, PyObject *set)
{
    PyObject *once = place != NULL ? PyUnicode_FromFormat("once %U", place) : NULL;
    int seen = once == NULL ? -1 : at_once ? 1 : PySet_Contains(set, once);
    if (seen < 0 || PySet_Add(set, seen ? place : once) < 0)
        PyErr_Clear();
    Py_XDECREF(once);
    Py_XDECREF(place);
}

static void
note_fact(const kin_variant *v, const kin_fact *fact, bool entry, PyObject *set)
{
    PyObject *ref = kin_refs_get(&v->refs, fact->ref), *cls;
    switch ((kin_fact_kind)fact->kind) {
    case KIN_FACT_EQ: case KIN_FACT_LEN: case KIN_FACT_T_META:
        add_place(kin_value_place(v, fact->vid), entry, set);
        break;
    case KIN_FACT_ID: /* functions made anew on each call */
        if (PyFunction_Check(ref))
            add_place(kin_value_place(v, fact->vid), true, set);
        break;
    case KIN_FACT_TYPE_TAG:
        cls = v->trace.vals.at[fact->vid].kind == KIN_VAL_CONST
                  ? kin_refs_get(&v->refs, v->trace.vals.at[fact->vid].key) : NULL;
        if (cls != NULL && PyType_Check(cls))
            add_place(kin_class_place((PyTypeObject *)cls), true, set);
        break;
    default:
        break;
    }
}

void
kin_unstable_note_miss(const kin_variant *v, const kin_guard_miss *miss, PyObject *set)
{
    if (set != NULL && miss->fact < v->trace.facts.len)
        note_fact(v, &v->trace.facts.at[miss->fact], true, set);
}

void
kin_unstable_note_exit(const kin_variant *v, uint32_t step, PyObject *set)
{
    const kin_step *s = &v->trace.steps.at[step];
    if (set == NULL)
        return;
    if (s->kind == KIN_STEP_SEGMENT && v->missed < v->trace.facts.len) {
        note_fact(v, &v->trace.facts.at[v->missed], false, set);
    } else if (s->kind == KIN_STEP_CHECK) {
        PyObject *ref = kin_refs_get(&v->refs, s->ref);
        bool content = s->imm == KIN_CHECK_EQ || s->imm == KIN_CHECK_LEN;
        if (content || (s->imm == KIN_CHECK_IS && ref != NULL && PyFunction_Check(ref)))
            add_place(kin_value_place(v, v->trace.vids.at[s->args]), false, set);
    }
}
