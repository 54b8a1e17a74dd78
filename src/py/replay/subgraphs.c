/* The subgraphs of an entry: partitions its trace (core/trace/partition.h), tells the pass what it has to know about the objects that the
 * trace refers to, and attaches and releases launchers.
 */
#include "py/replay/subgraphs.h"

#include "core/trace/effects.h"
#include "py/aten/tensor.h"
#include "py/compat/kinds.h"
#include "py/entry/line.h"
#include "py/guardeval/guard.h"

#include <stdio.h>
#include <stdlib.h>

/* -- objects ---------------------------------------------------------------------------------------------------- */

static uint32_t
traits_of_class(PyTypeObject *tp)
{
    unsigned is = 0;
    if (tp != &PyBytes_Type && tp->tp_as_buffer != NULL && tp->tp_as_buffer->bf_getbuffer != NULL)
        is |= KIN_IS_BUFFER;
    if (tp == &PySet_Type || tp == &PyFrozenSet_Type || tp == &PyDict_Type || tp == &PyODict_Type || tp == &PyDictKeys_Type)
        is |= KIN_IS_HASHED;
    if (PyType_IsSubtype(tp, &PyDict_Type) || tp == &PyDictProxy_Type)
        is |= KIN_IS_MAPPING | (tp == &PyDict_Type ? KIN_IS_DICT : 0);
    if (tp == &PyList_Type || tp == &PyTuple_Type)
        is |= KIN_IS_SEQUENCE | (tp == &PyList_Type ? KIN_IS_LIST : 0);
    if (tp == &PySlice_Type)
        is |= KIN_IS_SLICE;
    return kin_is_class_of_tensors((PyObject *)tp) ? is | KIN_IS_TENSOR : is;
}

/* Is it what a CALL_IS fact says of torch.is_grad_enabled: (it, its answer)? */
static uint32_t
traits_of_answer(PyObject *obj)
{
    PyObject *asked = PyTuple_CheckExact(obj) && PyTuple_GET_SIZE(obj) == 2 ? PyTuple_GET_ITEM(obj, 0) : NULL;
    if (asked == NULL || !PyCFunction_Check(asked) || !PyBool_Check(PyTuple_GET_ITEM(obj, 1)) || strcmp(kin_callable_name(asked), "is_grad_enabled") != 0)
        return 0;
    return PyTuple_GET_ITEM(obj, 1) == Py_True ? KIN_IS_GRAD_ON : KIN_IS_GRAD_OFF;
}

static kin_object_traits
describe(PyObject *obj)
{
    kin_object_traits o = {.is = traits_of_class(Py_TYPE(obj)) | traits_of_answer(obj)};
    if (kin_is_exact_immutable(obj))
        o.is |= KIN_IS_ATOM;
    if (kin_is_immutable_class(Py_TYPE(obj)))
        o.is |= KIN_IS_SIMPLE;
    if (PyType_Check(obj) || PyCFunction_Check(obj) || PyFunction_Check(obj))
        o.is |= KIN_IS_CODE;
    if (PyType_Check(obj)) {
        o.is |= KIN_IS_CLASS;
        o.makes = traits_of_class((PyTypeObject *)obj) | (kin_is_immutable_class((PyTypeObject *)obj) ? KIN_IS_ATOM | KIN_IS_SIMPLE : 0);
    }
    if (PyBool_Check(obj))
        o.is |= obj == Py_True ? KIN_IS_TRUE : KIN_IS_FALSE;
    return o;
}

/* One number for equal texts: that of the interned one, if it is there, else the first. */
static kin_ref
text_of(const kin_refs *refs, kin_ref ref)
{
    PyObject *obj = kin_refs_get(refs, ref);
    kin_ref first = 0;
    if (PyUnicode_CHECK_INTERNED(obj))
        return ref;
    for (kin_ref i = 1; i < refs->objs.len; i++) {
        PyObject *other = kin_refs_get(refs, i);
        if (!PyUnicode_CheckExact(other) || PyUnicode_Compare(obj, other) != 0)
            continue;
        if (PyUnicode_CHECK_INTERNED(other))
            return i;
        first = first == 0 ? i : first;
    }
    return first;
}

static void
describe_text(const kin_refs *refs, kin_ref ref, kin_object_traits *all)
{
    kin_object_traits *o = &all[ref];
    PyObject *obj = kin_refs_get(refs, ref);
    if (o->text != 0 || obj == NULL || !PyUnicode_CheckExact(obj))
        return;
    o->text = text_of(refs, ref);
    if (PyUnicode_CompareWithASCIIString(obj, "_version") == 0)
        all[o->text].is |= KIN_IS_VERSION;
    if (PyUnicode_CompareWithASCIIString(obj, "__dict__") == 0 || PyUnicode_CompareWithASCIIString(obj, "cell_contents") == 0)
        all[o->text].is |= KIN_IS_INSIDE_NAME;
}

static void
describe_device(const kin_refs *refs, kin_ref note, kin_object_traits *objects)
{
    const char *device = kin_note_device(note == 0 ? NULL : kin_refs_get(refs, note));
    if (device != NULL && strcmp(device, "cpu") != 0)
        objects[note].is |= KIN_IS_LATE;
}

/* What the step uses an object for: as the name of an attribute, as metadata that a tensor is compared with. */
static void
describe_uses(const kin_entry *v, const kin_step *s, kin_object_traits *objects)
{
    const kin_trace *t = &v->trace;
    if (s->kind == KIN_STEP_CHECK && s->imm == KIN_CHECK_META && s->ref != 0 && kin_meta_mask(kin_refs_get(&v->refs, s->ref)) & KIN_META_OFFSET)
        objects[s->ref].is |= KIN_IS_OFFSET;
    if (s->kind == KIN_STEP_CHECK && s->nargs > 0)
        describe_device(&v->refs, t->vals.at[t->vids.at[s->args]].note, objects);
    if (s->kind == KIN_STEP_GETATTR || s->kind == KIN_STEP_SETATTR)
        describe_text(&v->refs, s->ref, objects);
    for (uint32_t a = 1; s->kind == KIN_STEP_CALL && kin_step_does(s, KIN_BY_NAME) && a < s->nargs && a < 3; a++) {
        const kin_val *val = &t->vals.at[t->vids.at[s->args + a]];
        if (val->kind == KIN_VAL_CONST)
            describe_text(&v->refs, val->key, objects);
    }
}

/* By kin_ref; NULL without memory. */
static kin_object_traits *
describe_all(const kin_entry *v)
{
    kin_object_traits *objects = calloc(v->refs.objs.len, sizeof *objects);
    for (kin_ref i = 1; objects != NULL && i < v->refs.objs.len; i++)
        objects[i] = describe(kin_refs_get(&v->refs, i));
    for (uint32_t i = 0; objects != NULL && i < v->trace.steps.len; i++)
        describe_uses(v, &v->trace.steps.at[i], objects);
    return objects;
}

/* -- subgraphs -------------------------------------------------------------------------------------------------- */

kin_subgraphs *
kin_subgraphs_find(const kin_entry *v, unsigned how)
{
    kin_object_traits *objects = describe_all(v);
    kin_partition_input in = {.t = &v->trace, .objects = objects, .excluded = v->excluded.at, .nexcluded = v->excluded.len, .barriers = v->barriers.at,
                              .nbarriers = v->barriers.len, .kept = v->kept.at, .nkept = v->kept.len, .grad = v->grad, .how = how};
    kin_subgraphs *subgraphs = objects == NULL ? NULL : kin_partition_find(&in);
    free(objects);
    return subgraphs;
}

kin_status
kin_subgraph_set(const kin_entry *v, kin_subgraphs *subgraphs, uint32_t u, const kin_vid *in, uint32_t nin, const kin_vid *out,
                 uint32_t nout, kin_launcher *launcher)
{
    KIN_TRY(kin_partition_set(&v->trace, subgraphs, u, in, nin, out, nout));
    subgraphs->at.at[u].launcher = launcher;
    launcher->refs++;
    return KIN_OK;
}

/* Why the subgraph ends; `room` is for where that takes two texts. */
static const char *
why_ends(const kin_entry *v, const kin_subgraph *subgraph, char *room, size_t size)
{
    for (uint32_t i = 0; i < v->obstacles.len; i++)
        if (v->obstacles.at[i].step == subgraph->end) {
            snprintf(room, size, "%s (%s)", subgraph->why, v->obstacles.at[i].text);
            return room;
        }
    return subgraph->why;
}

void
kin_subgraphs_say_parts(const kin_entry *v, const kin_subgraphs *subgraphs, kin_event_log *log, PyObject *name, uint32_t entry)
{
    const kin_trace *t = &v->trace;
    for (uint32_t u = 0; u + 1 < subgraphs->at.len; u++) {
        const kin_subgraph *subgraph = &subgraphs->at.at[u];
        uint32_t graph = t->steps.at[subgraph->first].graph;
        if (subgraph->why == NULL || t->steps.at[subgraphs->at.at[u + 1].first].graph != graph)
            continue;
        kin_event_begin(log, KIN_EVENT_PART);
        kin_event_str(log, "name", kin_utf8(name));
        kin_event_int(log, "entry", entry);
        kin_event_int(log, "graph", graph);
        kin_event_int(log, "step", subgraph->end);
        kin_event_str(log, "what", kin_step_name((kin_step_kind)t->steps.at[subgraph->end].kind));
        char room[400];
        kin_event_str(log, "reason", why_ends(v, subgraph, room, sizeof room));
        kin_line place = kin_snap_line(v, t->steps.at[subgraph->end].snap);
        if (place.code != NULL) {
            kin_event_str(log, "filename", kin_utf8(place.code->co_filename));
            kin_event_int(log, "line", place.line);
            kin_event_str(log, "function", kin_utf8(place.code->co_qualname));
        }
        if (place.column >= 0) {
            kin_event_int(log, "column", place.column);
            kin_event_int(log, "end_column", place.end_column);
        }
        kin_event_end(log);
    }
}

PyObject *
kin_subgraph_end(const kin_entry *v, const kin_subgraph *subgraph)
{
    bool known = subgraph->why != NULL && subgraph->end < v->trace.steps.len;
    kin_line place = kin_snap_line(v, known ? v->trace.steps.at[subgraph->end].snap : 0);
    char room[400];
    return place.code == NULL ? Py_NewRef(Py_None) : Py_BuildValue("sOiii", why_ends(v, subgraph, room, sizeof room), place.code->co_filename, place.line, place.column, place.end_column);
}

uint32_t
kin_subgraphs_count(const kin_subgraphs *subgraphs)
{
    uint32_t n = 0;
    for (uint32_t u = 0; subgraphs != NULL && u < subgraphs->at.len; u++)
        n += subgraphs->at.at[u].launcher != NULL;
    return n;
}

void
kin_launcher_release(kin_launcher *launcher)
{
    if (launcher != NULL && --launcher->refs == 0)
        launcher->free(launcher);
}

void
kin_subgraph_stop(kin_subgraph *subgraph)
{
    kin_launcher_release(subgraph->launcher);
    subgraph->launcher = NULL;
}

void
kin_subgraphs_release(kin_subgraphs *subgraphs)
{
    if (subgraphs == NULL || --subgraphs->refs > 0)
        return;
    for (uint32_t u = 0; u < subgraphs->at.len; u++)
        kin_launcher_release(subgraphs->at.at[u].launcher);
    kin_partition_free(subgraphs);
}

static const kin_step *
maker_of(const kin_trace *t, kin_vid vid)
{
    const kin_val *val = &t->vals.at[vid];
    return val->kind == KIN_VAL_STEP ? &t->steps.at[val->step] : NULL;
}

/* An object that each run of the program makes anew. */
static bool
is_own(const kin_trace *t, kin_vid vid)
{
    const kin_step *maker = maker_of(t, vid);
    if (maker != NULL && maker->kind == KIN_STEP_ITER && !(maker->flags & KIN_STEP_PURE)) { /* the iterator of what is new, or a new one of a view */
        const kin_step *of = maker_of(t, t->vids.at[maker->args]);
        return of != NULL && (of->flags & KIN_STEP_PURE || kin_step_does(of, KIN_GIVES_NEW) || kin_step_does(of, KIN_VIEW));
    }
    return maker != NULL && (maker->flags & KIN_STEP_PURE || kin_step_does(maker, KIN_GIVES_NEW));
}

bool
kin_step_changes_own(const kin_trace *t, const kin_step *s)
{
    if (s->kind == KIN_STEP_CALL && s->nargs > 1 && kin_step_does(s, KIN_OF_FIRST))
        return is_own(t, t->vids.at[s->args + 1]);
    return s->nargs > 0 && (s->flags & KIN_STEP_MUTATES || s->kind == KIN_STEP_NEXT) && is_own(t, t->vids.at[s->args]);
}

/* Raising again shows nowhere, as the program handles it. */
static bool
only_raises(const kin_step *s)
{
    return !(s->flags & (KIN_STEP_OPAQUE | KIN_STEP_EFFECT)) && (s->kind == KIN_STEP_RAISE || kin_step_does(s, KIN_ASKS));
}

bool
kin_step_sets_torch(const kin_step *s)
{
    return kin_step_switches(s) && !kin_step_does(s, KIN_OF_FIRST);
}

bool
kin_step_fits(const kin_step *s)
{
    return s->flags & KIN_STEP_EFFECT && kin_step_does(s, KIN_FITS);
}

bool
kin_step_is_torch_call(const kin_step *s)
{
    const unsigned others = KIN_STEP_RAISES | KIN_STEP_OPAQUE | KIN_STEP_EFFECT | KIN_STEP_BREAK | KIN_STEP_SUNK | KIN_STEP_PURE | KIN_STEP_MUTATES;
    return (s->flags & (KIN_STEP_TORCH | others)) == KIN_STEP_TORCH && s->kind != KIN_STEP_CHECK && s->kind != KIN_STEP_NEXT;
}

bool
kin_step_decides_on_data(const kin_trace *t, const kin_step *s)
{
    bool test = s->kind == KIN_STEP_CHECK && s->imm != KIN_CHECK_TYPE && s->nargs > 0 && !(s->flags & (KIN_STEP_TORCH | KIN_STEP_BREAK));
    const kin_val *val = test ? &t->vals.at[t->vids.at[s->args]] : NULL;
    const kin_step *maker = val != NULL && val->kind == KIN_VAL_STEP ? &t->steps.at[val->step] : NULL;
    return maker != NULL && maker->flags & KIN_STEP_TORCH && kin_step_does(maker, KIN_FROM_DATA);
}

bool
kin_step_only_computes(const kin_trace *t, const kin_step *s)
{
    if (s->flags & KIN_STEP_RAISES)
        return only_raises(s);
    if (s->flags & (KIN_STEP_OPAQUE | KIN_STEP_EFFECT))
        return false;
    if (s->kind == KIN_STEP_CHECK) /* one on data ends a graph, and changes nothing */
        return true;
    if (s->flags & KIN_STEP_BREAK)
        return false;
    if (s->flags & (KIN_STEP_SUNK | KIN_STEP_PURE))
        return true;
    if (s->flags & KIN_STEP_MUTATES || s->kind == KIN_STEP_NEXT)
        return kin_step_changes_own(t, s);
    return s->kind == KIN_STEP_EPOCH || s->kind == KIN_STEP_RETURN || kin_step_does(s, KIN_ASKS) || (s->flags == 0 && kin_step_does(s, KIN_GIVES_NEW));
}
