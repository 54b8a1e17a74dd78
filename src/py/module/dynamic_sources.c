/* Remembers what changed between calls (dynamic_sources.h). */
#include "py/module/dynamic_sources.h"

#include "py/aten/tensor.h"
#include "py/guardeval/guard_source.h"
#include "py/report/guard_text.h"

/* Adds the source, at once or when it comes up for the second time. Steals `source`. */
static void
add_source(PyObject *source, bool at_once, PyObject *set)
{
    PyObject *once = source != NULL ? PyUnicode_FromFormat("once %U", source) : NULL;
    int seen = once == NULL ? -1 : at_once ? 1 : PySet_Contains(set, once);
    if (seen < 0 || PySet_Add(set, seen ? source : once) < 0)
        PyErr_Clear();
    Py_XDECREF(once);
    Py_XDECREF(source);
}

static PyObject *
all_sizes(const kin_entry *v, kin_vid vid)
{
    PyObject *source = kin_value_source(v, vid), *name = source != NULL ? kin_size_source(source, KIN_ALL_SIZES) : NULL;
    Py_XDECREF(source);
    return name;
}

static void
note_fact(const kin_entry *v, const kin_fact *fact, bool entry, PyObject *set)
{
    PyObject *ref = kin_refs_get(&v->refs, fact->ref), *cls;
    switch ((kin_fact_kind)fact->kind) {
    case KIN_FACT_EQ: case KIN_FACT_LEN: case KIN_FACT_T_DATA:
        add_source(kin_value_source(v, fact->vid), entry, set);
        break;
    case KIN_FACT_T_META: /* in a later epoch, where the tensor is not known any more */
        if (!entry)
            add_source(all_sizes(v, fact->vid), true, set);
        break;
    case KIN_FACT_ID: /* functions made anew on each call */
        if (PyFunction_Check(ref))
            add_source(kin_value_source(v, fact->vid), true, set);
        break;
    case KIN_FACT_TYPE_TAG:
        cls = v->trace.vals.at[fact->vid].kind == KIN_VAL_CONST
                  ? kin_refs_get(&v->refs, v->trace.vals.at[fact->vid].key) : NULL;
        if (cls != NULL && PyType_Check(cls))
            add_source(kin_class_source((PyTypeObject *)cls), true, set);
        break;
    default:
        break;
    }
}

typedef struct {
    const kin_entry *v;
    PyObject *set, *sizes;
    bool batch; /* open more than what differed */
} size_notes;

static void
tell_size(const size_notes *n, kin_vid vid, int dim, int64_t was, int64_t is)
{
    PyObject *path = n->sizes != NULL ? kin_source_text(n->v, vid) : NULL;
    const char *then = is >= 2 || (is == 1 && n->batch) ? "now dynamic" : n->batch ? "0 stays fixed" : "0 and 1 stay fixed";
    PyObject *line = path == NULL ? NULL : PyUnicode_FromFormat("size changed from %lld to %lld at %U dim %d; %s", (long long)was, (long long)is, path, dim, then);
    int told = line == NULL ? -1 : PySequence_Contains(n->sizes, line);
    if (told < 0 || (told == 0 && PyList_Append(n->sizes, line) < 0))
        PyErr_Clear();
    Py_XDECREF(line);
    Py_XDECREF(path);
}

static void
note_size(const size_notes *n, kin_vid tensor, int dim, int64_t was, int64_t is)
{
    PyObject *source = kin_value_source(n->v, tensor);
    if (source != NULL && n->batch) {
        add_source(kin_size_source(source, KIN_PERHAPS_FIRST), true, n->set); /* where lengths vary, the first size mostly does, too */
        add_source(kin_all_sizes_source(), true, n->set);                    /* ... and those of other arguments may */
    }
    if (source != NULL) {
        add_source(kin_size_source(source, dim), true, n->set);
        tell_size(n, tensor, dim, was, is);
    }
    Py_XDECREF(source);
    PyErr_Clear();
}

/* Sizes of an argument that the recording does not ask for, as only something computed from it has been looked at. */
static void
note_seen_sizes(const size_notes *n, kin_vid vid, PyObject *obj)
{
    bool sized = n->batch && kin_is_plain_strided(obj);
    for (uint32_t i = 0; sized && i < n->v->seen_sizes.len; i++) {
        const kin_known_size *seen = &n->v->seen_sizes.at[i];
        if (seen->tensor == vid && seen->dim < kin_tensor_dim(obj) && seen->size != kin_tensor_sizes(obj)[seen->dim])
            note_size(n, vid, seen->dim, seen->size, kin_tensor_sizes(obj)[seen->dim]);
    }
}

/* kin_guard_each_miss: all that differs with a size or a number in one call. A number is perhaps a length. */
static void
note_with_size(const kin_fact *fact, kin_vid vid, PyObject *obj, void *arg)
{
    const size_notes *n = arg;
    if (fact == NULL) {
        note_seen_sizes(n, vid, obj);
        return;
    }
    PyObject *ref = kin_refs_get(&n->v->refs, fact->ref);
    uint64_t differ;
    if (fact->kind == KIN_FACT_EQ && PyLong_CheckExact(ref) && PyLong_CheckExact(obj)) {
        note_fact(n->v, fact, true, n->set);
        add_source(kin_alike_source(n->v, vid), true, n->set); /* layers of one cache have one length, though only some were looked at so far */
    }
    if (fact->kind == KIN_FACT_T_DATA) /* counters, one for each layer */
        note_fact(n->v, fact, true, n->set);
    if (fact->kind == KIN_FACT_T_META && kin_meta_only_sizes(obj, ref, &differ))
        for (int d = 0; d < 64; d++)
            if (differ >> d & 1)
                note_size(n, vid, d, kin_meta_size(ref, d), kin_tensor_sizes(obj)[d]);
}

void
kin_dynamic_note_miss(kin_entry *v, const kin_guard_miss *miss, PyObject **slots, bool batch, PyObject *set, PyObject *sizes)
{
    if (set == NULL || miss->fact >= v->trace.facts.len)
        return;
    const kin_fact *fact = &v->trace.facts.at[miss->fact];
    size_notes notes = {v, set, sizes, batch};
    PyObject *ref = kin_refs_get(&v->refs, fact->ref);
    if (fact->kind == KIN_FACT_T_META || fact->kind == KIN_FACT_T_DATA || (fact->kind == KIN_FACT_EQ && PyLong_CheckExact(ref)))
        kin_guard_each_miss(v, slots, note_with_size, &notes);
    else
        note_fact(v, fact, true, set);
}

void
kin_dynamic_note_exit(const kin_entry *v, uint32_t step, bool all, PyObject *set)
{
    const kin_step *s = &v->trace.steps.at[step];
    if (set == NULL)
        return;
    if (s->kind == KIN_STEP_EPOCH && v->missed < v->trace.facts.len) {
        note_fact(v, &v->trace.facts.at[v->missed], false, set);
        if (v->trace.facts.at[v->missed].kind == KIN_FACT_T_META && all)
            add_source(kin_all_sizes_source(), true, set);
    } else if (s->kind == KIN_STEP_CHECK) {
        PyObject *ref = kin_refs_get(&v->refs, s->ref);
        bool content = s->imm == KIN_CHECK_EQ || s->imm == KIN_CHECK_LEN;
        if (content || (s->imm == KIN_CHECK_IS && ref != NULL && PyFunction_Check(ref)))
            add_source(kin_value_source(v, v->trace.vids.at[s->args]), false, set);
        if (s->imm == KIN_CHECK_META && all)
            add_source(kin_all_sizes_source(), true, set);
        if (s->imm == KIN_CHECK_META)
            add_source(all_sizes(v, v->trace.vids.at[s->args]), true, set);
    }
}
