/* Custom backends (custom.h): connects subgraphs (py/replay/subgraphs.h), dumps and kintsugi._launch. */
#include "py/backend/custom.h"

#include <stdlib.h>
#include <string.h>

#include "core/diag/breaks.h"
#include "py/aten/make.h"
#include "py/aten/sizes.h"
#include "py/aten/tensor.h"
#include "py/backend/launcher.h"
#include "py/capture/capture.h"
#include "py/compat/imports.h"
#include "py/compat/signals.h"
#include "py/guardeval/guard.h"
#include "py/replay/replay.h"
#include "py/report/dump.h"
#include "py/report/log.h"
#include "py/replay/subgraphs.h"

/* -- subgraphs of an entry ------------------------------------------------------------------------------------------- */

typedef struct {
    const kin_custom *custom;
    kin_entry_object *entry;
    kin_subgraphs *subgraphs, *before; /* the plan, and an earlier attempt at it */
    PyObject *graphs;       /* list, by subgraph */
    PyObject *make, *imitate; /* of kintsugi._launch */
    PyObject *numbers;      /* {vid: (kind, operator, operands)}: what is computed of sizes */
    PyObject **slots;       /* what is known of this call, by vid; own references */
    uint32_t nslots;
    bool gradients;         /* does a tensor of this call require grad? Then what is computed of it probably does */
} lowering;

static void
tell(const lowering *l, const char *reason)
{
    if (!l->custom->quiet)
        kin_log_fallback(l->custom->state, l->custom->name, NULL, reason, KIN_WHY_NONE);
}

/* What this plan has for the same subgraph; borrowed or NULL. */
static kin_launcher *
find_in(const kin_subgraphs *plan, const kin_subgraph *subgraph, const kin_vids *in, const kin_vids *out)
{
    for (uint32_t u = 0; plan != NULL && u < plan->at.len; u++) {
        const kin_subgraph *o = &plan->at.at[u];
        if (o->first == subgraph->first && o->last == subgraph->last && o->at == subgraph->at && o->nin == in->len && o->nout == out->len &&
            kin_backend_is(o->launcher) && memcmp(o->in, in->at, in->len * sizeof *o->in) == 0 &&
            memcmp(o->out, out->at, out->len * sizeof *o->out) == 0 &&
            memcmp(o->role, subgraph->role, subgraph->last - subgraph->first + 1) == 0)
            return o->launcher;
    }
    return NULL;
}

/* What an earlier plan of the same entry, or an earlier attempt at this one, has for the same subgraph; borrowed or NULL. */
static kin_launcher *
find_same(const lowering *l, const kin_subgraph *subgraph, const kin_vids *in, const kin_vids *out)
{
    kin_launcher *launcher = find_in(l->entry->v->subgraphs, subgraph, in, out);
    return launcher != NULL ? launcher : find_in(l->before, subgraph, in, out);
}

/* The vids a list of ints, or of dicts with an int "vid", names; KIN_PYERR with an exception. */
static kin_status
read_vids(PyObject *list, kin_vids *vids)
{
    for (Py_ssize_t i = 0; list != NULL && PyList_Check(list) && i < PyList_GET_SIZE(list); i++) {
        PyObject *item = PyList_GET_ITEM(list, i);
        if (PyDict_Check(item))
            item = PyDict_GetItemString(item, "vid");
        KIN_TRY(kin_vec_push(vids, item == NULL ? 0 : (kin_vid)PyLong_AsUnsignedLong(item)));
    }
    return PyErr_Occurred() ? KIN_PYERR : KIN_OK;
}

static bool
is_among(const kin_vids *vids, kin_vid vid, uint32_t *place)
{
    for (*place = 0; *place < vids->len && vids->at[*place] != vid;)
        ++*place;
    return *place < vids->len;
}

/* A size of a tensor, or what is computed of such numbers alone: the graph can compute it itself. */
static bool
is_number(const kin_trace *t, kin_vid vid)
{
    const kin_val *val = &t->vals.at[vid];
    if (vid == 0 || val->kind != KIN_VAL_STEP || val->step >= t->steps.len)
        return false;
    const kin_step *s = &t->steps.at[val->step];
    bool computes = s->kind == KIN_STEP_BINARY || s->kind == KIN_STEP_UNARY || s->kind == KIN_STEP_COMPARE;
    return s->out == vid && (s->kind == KIN_STEP_SIZE || (computes && s->flags & KIN_STEP_PURE));
}

/* Where the graph's inputs are among the subgraph's; numbers may be missing. KIN_BREAK: *other is, which is none. */
static kin_status
pick_inputs(const kin_trace *t, const kin_vids *subgraph, const kin_vids *graph, uint32_t *pick, kin_vid *other)
{
    for (uint32_t i = 0; i < graph->len; i++) {
        *other = graph->at[i];
        if (!is_among(subgraph, graph->at[i], &pick[i]) && !is_number(t, graph->at[i]))
            return KIN_BREAK;
    }
    *other = 0;
    return KIN_OK;
}

/* The value in this call, or the number that was recorded; borrowed or NULL. */
static PyObject *
find_known(const lowering *l, kin_vid vid)
{
    const kin_val *val = &l->entry->v->trace.vals.at[vid];
    PyObject *seen = val->seen == 0 ? NULL : kin_refs_get(&l->entry->v->refs, val->seen);
    bool described = seen != NULL && (PyType_Check(seen) || PyUnicode_Check(seen)); /* a tensor's class, or its note */
    return l->slots[vid] != NULL || described ? l->slots[vid] : seen;
}

/* {vid: object} of the inputs that are known. */
static PyObject *
collect_examples(const lowering *l, const kin_vids *in)
{
    PyObject *examples = PyDict_New();
    for (uint32_t i = 0; examples != NULL && i < in->len; i++) {
        PyObject *known = find_known(l, in->at[i]), *key = known == NULL ? NULL : PyLong_FromUnsignedLong(in->at[i]);
        if (known != NULL && (key == NULL || PyDict_SetItem(examples, key, known) < 0))
            Py_CLEAR(examples);
        Py_XDECREF(key);
    }
    return examples;
}

/* The value, or one like it that was seen while recording: new reference. NULL without an exception: neither is known. */
static PyObject *
example_of(const lowering *l, kin_vid vid)
{
    const kin_val *val = &l->entry->v->trace.vals.at[vid];
    PyObject *known = find_known(l, vid), *seen = val->seen == 0 ? NULL : kin_refs_get(&l->entry->v->refs, val->seen);
    if (known != NULL)
        return Py_NewRef(known);
    PyObject *cls = seen != NULL && PyType_Check(seen) ? seen : NULL;
    PyObject *note = val->note != 0 ? kin_refs_get(&l->entry->v->refs, val->note) : cls == NULL ? seen : NULL;
    PyObject *made = note == NULL ? NULL : PyObject_CallFunctionObjArgs(l->imitate, note, cls, NULL);
    if (made == Py_None)
        Py_CLEAR(made);
    PyErr_Clear();
    return made;
}

/* KIN_BREAK: the subgraph cannot be as it is, the subgraphs are to be found anew. */
static kin_status
prove_subgraph(const lowering *l, kin_launcher *launcher, const kin_subgraph *subgraph)
{
    PyObject **in = calloc(subgraph->nin + 1, sizeof *in);
    if (in == NULL)
        return KIN_NOMEM;
    for (uint32_t i = 0; i < subgraph->nin; i++)
        in[i] = example_of(l, subgraph->in[i]);
    bool grad = kin_grad_enabled(), other = subgraph->grad >= 0 && subgraph->grad != grad;
    if (other)
        kin_grad_set(!grad);
    kin_status status = kin_backend_prove(launcher, l->entry->v, subgraph, in);
    if (other)
        kin_grad_set(grad);
    for (uint32_t i = 0; i < subgraph->nin; i++)
        Py_XDECREF(in[i]);
    free(in);
    return status;
}

/* Gives the subgraph a launcher without a callable, or the one it had. */
static kin_status
set_launcher(const lowering *l, uint32_t u, const kin_vids *in, const kin_vids *out)
{
    kin_subgraph *subgraph = &l->subgraphs->at.at[u];
    kin_launcher *launcher = find_same(l, subgraph, in, out);
    bool had = launcher != NULL;
    if (had)
        launcher->refs++;
    else if ((launcher = kin_backend_launcher()) == NULL)
        return KIN_NOMEM;
    kin_status status = kin_subgraph_set(l->entry->v, l->subgraphs, u, in->at, in->len, out->at, out->len, launcher);
    if (status == KIN_BREAK && !subgraph->plain)
        status = kin_backend_exclude(l->entry->v, subgraph, 0);
    else if (status == KIN_BREAK)
        tell(l, "a graph runs step by step: one of its inputs is computed between its own calls");
    else if (status == KIN_OK && !had && !subgraph->plain)
        status = prove_subgraph(l, launcher, subgraph);
    kin_launcher_release(launcher);
    return status;
}

/* What the subgraph's graph takes and gives: the graph's vids, and those of the subgraph, which for a plain one are the same. */
typedef struct {
    kin_vids graph_in, in, out, other_out;
    uint32_t *pick;
    kin_vid unforeseen; /* an input of the graph that the subgraph has not */
} bounds;

static void
drop_bounds(bounds *b)
{
    kin_vec_deinit(&b->graph_in);
    kin_vec_deinit(&b->in);
    kin_vec_deinit(&b->out);
    kin_vec_deinit(&b->other_out);
    free(b->pick);
}

/* One more result of the graph: a number that it computes of sizes. KIN_BREAK: it is something else. */
static kin_status
give_number(const lowering *l, PyObject *graph, kin_vid vid, kin_vids *out)
{
    PyObject *outputs = PyDict_GetItemString(graph, "outputs");
    if (!is_number(&l->entry->v->trace, vid) || outputs == NULL || !PyList_Check(outputs))
        return KIN_BREAK;
    PyObject *number = PyLong_FromUnsignedLong(vid);
    bool ok = number != NULL && PyList_Append(outputs, number) == 0;
    Py_XDECREF(number);
    return ok ? kin_vec_push(out, vid) : KIN_PYERR;
}

static kin_status
find_bounds(const lowering *l, uint32_t u, bounds *b)
{
    PyObject *graph = PyList_GET_ITEM(l->graphs, u);
    *b = (bounds){0};
    KIN_TRY(read_vids(PyDict_GetItemString(graph, "inputs"), &b->graph_in));
    KIN_TRY(read_vids(PyDict_GetItemString(graph, "outputs"), &b->out));
    if (l->subgraphs->at.at[u].plain)
        KIN_TRY(read_vids(PyDict_GetItemString(graph, "inputs"), &b->in));
    else
        KIN_TRY(kin_subgraph_bounds(&l->entry->v->trace, l->subgraphs, u, &b->in, &b->other_out));
    uint32_t place;
    for (uint32_t i = 0; i < b->other_out.len; i++) /* a size that somebody behind the subgraph wants */
        if (!is_among(&b->out, b->other_out.at[i], &place))
            KIN_TRY(give_number(l, graph, b->other_out.at[i], &b->out));
    b->pick = calloc(b->graph_in.len + 1, sizeof *b->pick);
    return b->pick == NULL ? KIN_NOMEM : pick_inputs(&l->entry->v->trace, &b->in, &b->graph_in, b->pick, &b->unforeseen);
}

/* KIN_BREAK: the graph was not foreseen to be part of such a subgraph; its calls are excluded. */
static kin_status
plan_subgraph(const lowering *l, uint32_t u)
{
    bounds b;
    kin_status status = find_bounds(l, u, &b);
    kin_subgraph *subgraph = &l->subgraphs->at.at[u];
    if (status == KIN_OK)
        status = set_launcher(l, u, &b.in, &b.out);
    else if (status == KIN_BREAK)
        status = kin_backend_exclude(l->entry->v, subgraph, b.unforeseen);
    if (status != KIN_OK && subgraph->launcher != NULL)
        kin_subgraph_stop(subgraph); /* not shown to be right */
    drop_bounds(&b);
    return status == KIN_BREAK && subgraph->plain ? KIN_OK : status;
}

/* Subgraphs with launchers that are shown to be right, and their graphs. */
static kin_status
plan(lowering *l, unsigned how)
{
    kin_entry *v = l->entry->v;
    if (v->subgraphs == NULL)
        v->grad = kin_grad_enabled();
    l->subgraphs = kin_subgraphs_find(v, how);
    l->graphs = l->subgraphs == NULL ? NULL : kin_dump_subgraphs(v, l->subgraphs->by_step, l->subgraphs->needed, l->subgraphs->at.len);
    kin_status status = l->graphs == NULL ? KIN_PYERR : KIN_OK;
    for (uint32_t u = 0; (status == KIN_OK || status == KIN_BREAK) && u < l->subgraphs->at.len; u++) {
        kin_status planned = plan_subgraph(l, u); /* all that is not right is found at once */
        status = planned == KIN_OK ? status : planned;
    }
    if (status == KIN_OK)
        return KIN_OK;
    Py_CLEAR(l->graphs);
    kin_subgraphs_release(l->before);
    l->before = l->subgraphs;
    l->subgraphs = NULL;
    return status;
}

/* A graph of a custom backend has numbers that data decides, and no graph goes on over a decision on one. Most of them are graph breaks, or assertions of the graph;
 * those of an optimizer, which counts its steps in a tensor, are neither. */
static kin_status
stop_at_decisions(kin_entry *v)
{
    for (uint32_t i = 0; i < v->trace.steps.len; i++)
        if (kin_step_decides_on_data(&v->trace, &v->trace.steps.at[i]))
            KIN_TRY(kin_vec_push(&v->barriers, i));
    return KIN_OK;
}

/* Each refusal excludes a call or adds a barrier, so that it ends. */
static kin_status
plan_until_right(lowering *l)
{
    bool held = kin_signals_hold();
    kin_status status = kin_capture_init();
    if (held)
        kin_signals_release();
    if (status == KIN_BREAK) /* nothing can be shown */
        return plan(l, KIN_SUBGRAPHS_PLAIN);
    KIN_TRY(status);
    l->entry->v->barriers.len = 0; /* others are found again */
    KIN_TRY(stop_at_decisions(l->entry->v));
    status = KIN_BREAK;
    for (int tries = 0; status == KIN_BREAK && tries < 24; tries++)
        status = plan(l, KIN_SUBGRAPHS_WIDE | KIN_SUBGRAPHS_EVERY);
    return status == KIN_BREAK ? plan(l, KIN_SUBGRAPHS_PLAIN) : status;
}

static PyObject *
dynamic_of(const kin_custom *custom)
{
    return custom->dynamic < 0 ? Py_None : custom->dynamic ? Py_True : Py_False;
}

/* Hands the subgraph the inputs that its callable asks for: a list of vids. KIN_BREAK: one is not among the subgraph's. */
static kin_status
set_callable(const lowering *l, kin_subgraph *subgraph, PyObject *callable, bounds *b)
{
    PyObject *wanted = PyObject_GetAttrString(callable, "inputs");
    kin_vids vids = {0};
    kin_status status = wanted == NULL ? KIN_PYERR : read_vids(wanted, &vids);
    for (uint32_t i = 0; status == KIN_OK && i < vids.len; i++)
        if (i >= b->graph_in.len || !is_among(&b->in, vids.at[i], &b->pick[i]))
            status = KIN_BREAK;
    if (status == KIN_OK)
        status = kin_backend_set(subgraph->launcher, callable, b->pick, vids.len);
    kin_vec_deinit(&vids);
    Py_XDECREF(wanted);
    if (status == KIN_BREAK)
        tell(l, "a graph runs step by step: a number it takes is computed between its own calls");
    return status;
}

/* kintsugi._launch.make_subgraph(backend, graph, examples, numbers, dynamic, name, entry, number): callable or None. False with
 * an exception. */
static bool
make_callable(const lowering *l, uint32_t u)
{
    bounds b;
    kin_subgraph *subgraph = &l->subgraphs->at.at[u];
    PyObject *graph = PyList_GET_ITEM(l->graphs, u), *examples = NULL, *callable = NULL;
    if (subgraph->launcher == NULL || kin_backend_has_callable(subgraph->launcher))
        return true;
    if (find_bounds(l, u, &b) == KIN_OK && (examples = collect_examples(l, &b.graph_in)) != NULL)
        callable = PyObject_CallFunction(l->make, "OOOOOOII", l->custom->backend, graph, examples, l->numbers,
                                         dynamic_of(l->custom), l->custom->name, l->entry->number, u + 1);
    bool ok = callable != NULL;
    kin_status status = ok && callable != Py_None ? set_callable(l, subgraph, callable, &b) : KIN_BREAK;
    if (ok && status == KIN_BREAK)
        kin_subgraph_stop(subgraph);
    else if (ok)
        ok = status == KIN_OK;
    drop_bounds(&b);
    Py_XDECREF(examples);
    Py_XDECREF(callable);
    return ok;
}

/* -- sizes ---------------------------------------------------------------------------------------------------------- */

/* An operand of a number: {"vid": n}, or the constant. */
static PyObject *
describe_operand(const lowering *l, kin_vid vid)
{
    const kin_entry *v = l->entry->v;
    const kin_val *val = &v->trace.vals.at[vid];
    PyObject *constant = val->kind == KIN_VAL_CONST ? kin_refs_get(&v->refs, val->key) : NULL;
    return constant != NULL ? Py_NewRef(constant) : Py_BuildValue("{sI}", "vid", vid);
}

/* (kind, operator, operands): new tuple. */
static PyObject *
describe_number(const lowering *l, const kin_step *s)
{
    const kin_trace *t = &l->entry->v->trace;
    PyObject *operands = PyTuple_New(s->nargs);
    for (uint32_t i = 0; operands != NULL && i < s->nargs; i++) {
        PyObject *operand = describe_operand(l, t->vids.at[s->args + i]);
        if (operand != NULL)
            PyTuple_SET_ITEM(operands, i, operand);
        else
            Py_CLEAR(operands);
    }
    return operands == NULL ? NULL : Py_BuildValue("(sIN)", kin_step_name((kin_step_kind)s->kind), (unsigned)s->imm, operands);
}

/* The number in this call: new reference, NULL (no exception) where what it is computed of is not known. */
static PyObject *
compute_number(const lowering *l, const kin_step *s)
{
    const kin_trace *t = &l->entry->v->trace;
    PyObject *number = NULL;
    if (s->kind == KIN_STEP_SIZE) {
        PyObject *tensor = example_of(l, t->vids.at[s->args]);
        number = tensor == NULL ? NULL : kin_size_at(tensor, (unsigned)s->imm);
        Py_XDECREF(tensor);
    } else {
        for (uint32_t i = 0; i < s->nargs; i++) {
            kin_vid vid = t->vids.at[s->args + i];
            if (vid == 0 || (t->vals.at[vid].kind != KIN_VAL_CONST && l->slots[vid] == NULL))
                return NULL;
        }
        number = kin_step_execute(t, &l->entry->v->refs, s, l->slots);
    }
    PyErr_Clear();
    return number;
}

static bool
is_known(const lowering *l, kin_vid vid)
{
    return vid != 0 && (l->entry->v->trace.vals.at[vid].kind == KIN_VAL_CONST || l->slots[vid] != NULL);
}

/* A list that the recording makes and fills: `(*x.shape[:-1], -1, 64)` is one that becomes a tuple. */
static bool
is_own_list(const kin_trace *t, kin_vid vid)
{
    const kin_val *val = &t->vals.at[vid];
    return vid != 0 && val->kind == KIN_VAL_STEP && val->step < t->steps.len && t->steps.at[val->step].kind == KIN_STEP_BUILD_LIST;
}

/* Tuples and lists of what is known, as this call makes them. A list of which something is not known is not known either. */
static void
note_made(lowering *l, const kin_step *s)
{
    const kin_trace *t = &l->entry->v->trace;
    bool fills = (s->kind == KIN_STEP_LIST_EXTEND || s->kind == KIN_STEP_LIST_APPEND) && is_own_list(t, t->vids.at[s->args]);
    bool makes = s->out != 0 && l->slots[s->out] == NULL && s->flags & KIN_STEP_PURE && kin_subgraph_builds(s), known = makes || fills;
    for (uint32_t i = 0; known && i < s->nargs; i++)
        known = is_known(l, t->vids.at[s->args + i]);
    PyObject *made = known ? kin_step_execute(t, &l->entry->v->refs, s, l->slots) : NULL;
    if (makes && made != NULL)
        l->slots[s->out] = Py_NewRef(made);
    if (fills && made == NULL)
        Py_CLEAR(l->slots[t->vids.at[s->args]]);
    Py_XDECREF(made);
    PyErr_Clear();
}

static kin_status
note_numbers(lowering *l)
{
    const kin_trace *t = &l->entry->v->trace;
    l->numbers = PyDict_New();
    for (uint32_t i = 0; l->numbers != NULL && i < t->steps.len; i++) {
        const kin_step *s = &t->steps.at[i];
        if (!is_number(t, s->out)) {
            note_made(l, s);
            continue;
        }
        PyObject *key = PyLong_FromUnsignedLong(s->out), *row = describe_number(l, s);
        if (key == NULL || row == NULL || PyDict_SetItem(l->numbers, key, row) < 0)
            Py_CLEAR(l->numbers);
        Py_XDECREF(key);
        Py_XDECREF(row);
        if (l->numbers != NULL && l->slots[s->out] == NULL)
            l->slots[s->out] = compute_number(l, s);
    }
    for (uint32_t vid = 1; vid < l->nslots; vid++) /* calls may see them when they were not full yet */
        if (is_own_list(t, vid))
            Py_CLEAR(l->slots[vid]);
    return l->numbers == NULL ? KIN_PYERR : KIN_OK;
}

/* The dims that the recording leaves open, as bits. */
static uint64_t
find_open(const kin_entry *v, kin_vid vid)
{
    const kin_trace *t = &v->trace;
    uint64_t open = 0;
    for (uint32_t i = 0; i < t->facts.len; i++)
        if (t->facts.at[i].kind == KIN_FACT_T_META && t->facts.at[i].vid == vid)
            open |= kin_meta_open(kin_refs_get(&v->refs, t->facts.at[i].ref));
    for (uint32_t i = 0; i < t->steps.len; i++) {
        const kin_step *s = &t->steps.at[i];
        if (s->kind == KIN_STEP_SIZE && t->vids.at[s->args] == vid && s->imm < 64)
            open |= 1ull << s->imm; /* the program works with the number, whatever it is */
        if (s->kind == KIN_STEP_CHECK && s->imm == KIN_CHECK_META && t->vids.at[s->args] == vid)
            open |= kin_meta_open(kin_refs_get(&v->refs, s->ref));
    }
    return open;
}

/* Does the tensor require grad, if this call has not kept it? As its guard says, if it asks; what is computed of others probably does. */
static bool
requires_grad(const lowering *l, kin_vid vid)
{
    const kin_trace *t = &l->entry->v->trace;
    bool asked = false;
    for (uint32_t i = 0; i < t->facts.len; i++) {
        bool required = t->facts.at[i].kind == KIN_FACT_T_META && t->facts.at[i].vid == vid &&
                        kin_meta_requires_grad(kin_refs_get(&l->entry->v->refs, t->facts.at[i].ref), &asked);
        if (asked)
            return required;
    }
    return l->gradients && t->vals.at[vid].kind == KIN_VAL_STEP;
}

/* What was seen of a tensor that no torch call of the recording gave: its note, or its class. */
static void
note_seen(const lowering *l, PyObject *input, kin_vid vid)
{
    const kin_val *val = &l->entry->v->trace.vals.at[vid];
    PyObject *seen = val->seen == 0 ? NULL : kin_refs_get(&l->entry->v->refs, val->seen);
    if (seen != NULL && PyType_Check(seen))
        PyDict_SetItemString(input, "class", seen); /* fails with an exception */
    else if (seen != NULL && PyUnicode_Check(seen) && val->note == 0)
        PyDict_SetItemString(input, "note", seen);
}

/* Writes into each tensor among the graph's inputs which of its sizes are dynamic: a list "open". And whether one that the call has not
 * kept probably requires grad. */
static kin_status
note_open(const lowering *l, PyObject *graph)
{
    PyObject *inputs = PyDict_GetItemString(graph, "inputs");
    for (Py_ssize_t i = 0; inputs != NULL && i < PyList_GET_SIZE(inputs); i++) {
        PyObject *input = PyList_GET_ITEM(inputs, i), *vid = PyDict_GetItemString(input, "vid");
        uint64_t open = vid == NULL ? 0 : find_open(l->entry->v, (kin_vid)PyLong_AsUnsignedLong(vid));
        if (vid != NULL)
            note_seen(l, input, (kin_vid)PyLong_AsUnsignedLong(vid));
        if (vid != NULL && requires_grad(l, (kin_vid)PyLong_AsUnsignedLong(vid)))
            PyDict_SetItemString(input, "grad", Py_True);
        PyObject *dims = open == 0 ? NULL : PyList_New(0);
        for (int d = 0; dims != NULL && d < 64; d++) {
            PyObject *dim = open >> d & 1 ? PyLong_FromLong(d) : NULL;
            if (dim != NULL && PyList_Append(dims, dim) < 0)
                Py_CLEAR(dims);
            Py_XDECREF(dim);
        }
        if (dims != NULL && PyDict_SetItemString(input, "open", dims) < 0)
            Py_CLEAR(dims);
        Py_XDECREF(dims);
    }
    return PyErr_Occurred() ? KIN_PYERR : KIN_OK;
}

/* -- lowering ------------------------------------------------------------------------------------------------------- */

static bool
find_helpers(lowering *l)
{
    l->make = kin_import("kintsugi._launch", "make_subgraph");
    l->imitate = l->make == NULL ? NULL : kin_import("kintsugi._launch", "imitate");
    return l->imitate != NULL;
}

static void
end(lowering *l)
{
    Py_XDECREF(l->graphs);
    Py_XDECREF(l->make);
    Py_XDECREF(l->imitate);
    Py_XDECREF(l->numbers);
    for (uint32_t vid = 0; l->slots != NULL && vid < l->nslots; vid++)
        Py_XDECREF(l->slots[vid]);
    free(l->slots);
    kin_subgraphs_release(l->subgraphs);
    kin_subgraphs_release(l->before);
}

/* A failure of our own: an event, and the entry runs step by step. */
static bool
give_up(lowering *l)
{
    kin_log_bug(l->custom->state, l->custom->name, "backend", "graphs could not be handed to the backend");
    PyErr_Clear();
    end(l);
    return true;
}

/* Values that guards compare are what they are compared with, those of later epochs too. */
static void
note_guarded(lowering *l)
{
    const kin_entry *v = l->entry->v;
    for (uint32_t i = 0; i < v->trace.facts.len; i++) {
        const kin_fact *fact = &v->trace.facts.at[i];
        PyObject *known = fact->vid != 0 && (fact->kind == KIN_FACT_EQ || fact->kind == KIN_FACT_ID) ? kin_refs_get(&v->refs, fact->ref) : NULL;
        if (known != NULL && l->slots[fact->vid] == NULL)
            l->slots[fact->vid] = Py_NewRef(known);
    }
}

static bool
looks_as_recorded(const kin_entry *v, kin_vid vid, PyObject *obj)
{
    PyObject *was = v->trace.vals.at[vid].note == 0 ? NULL : kin_refs_get(&v->refs, v->trace.vals.at[vid].note);
    PyObject *is = was == NULL || !kin_is_tensor(obj) ? NULL : kin_tensor_note(obj);
    bool same = is != NULL && kin_exact_equal(is, was);
    Py_XDECREF(is);
    PyErr_Clear();
    return same;
}

/* Tensors that only later epochs read, such as the parameters of inner modules, if they look as they did in the recording. */
static void
note_live(lowering *l)
{
    const kin_entry *v = l->entry->v;
    for (kin_vid vid = 1; vid < l->nslots; vid++) {
        PyObject *live = v->trace.vals.at[vid].note == 0 || l->slots[vid] != NULL ? NULL : kin_guard_live(v, vid, l->slots);
        PyErr_Clear();
        if (live != NULL && looks_as_recorded(v, vid, live))
            l->slots[vid] = Py_NewRef(live);
    }
}

static bool
requires_gradients(const lowering *l)
{
    const kin_entry *v = l->entry->v;
    bool required = false, asked;
    for (kin_vid vid = 1; !required && vid < l->nslots && v->grad; vid++)
        required = l->slots[vid] != NULL && kin_is_tensor(l->slots[vid]) && kin_tensor_requires_grad(l->slots[vid]);
    for (uint32_t i = 0; !required && i < v->trace.facts.len && v->grad; i++)
        required = v->trace.facts.at[i].kind == KIN_FACT_T_META && kin_meta_requires_grad(kin_refs_get(&v->refs, v->trace.facts.at[i].ref), &asked);
    return required;
}

/* What is known of this call goes into an array of our own, with the numbers computed of it. */
static kin_status
prepare(lowering *l, PyObject *const *slots)
{
    l->nslots = l->entry->v->trace.vals.len;
    l->slots = calloc(l->nslots + 1, sizeof *l->slots);
    if (l->slots == NULL)
        return KIN_NOMEM;
    for (uint32_t vid = 0; slots != NULL && vid < l->nslots; vid++)
        if (slots[vid] != NULL && (l->entry->v->trace.vals.at[vid].note == 0 || looks_as_recorded(l->entry->v, vid, slots[vid])))
            l->slots[vid] = Py_NewRef(slots[vid]);
    note_guarded(l);
    note_live(l);
    return find_helpers(l) ? note_numbers(l) : KIN_PYERR;
}

bool
kin_custom_lower(const kin_custom *custom, kin_entry_object *entry, PyObject *const *slots)
{
    kin_entry *v = entry->v;
    lowering l = {.custom = custom, .entry = entry};
    bool ok = prepare(&l, slots) == KIN_OK && plan_until_right(&l) == KIN_OK;
    l.gradients = ok && requires_gradients(&l);
    for (uint32_t u = 0; ok && u < l.subgraphs->at.len; u++)
        ok = note_open(&l, PyList_GET_ITEM(l.graphs, u)) == KIN_OK;
    if (!ok)
        return give_up(&l);
    for (uint32_t u = 0; ok && u < l.subgraphs->at.len; u++)
        ok = make_callable(&l, u);
    if (ok && entry->v != NULL) { /* NULL: dropped by the backend itself */
        if (!custom->quiet)
            kin_subgraphs_say_parts(v, l.subgraphs, custom->state->log, custom->name, entry->number);
        kin_entry_set_subgraphs(v, l.subgraphs, kin_subgraphs_release);
        l.subgraphs = NULL;
    }
    end(&l);
    return ok;
}

/* -- the first call ---------------------------------------------------------------------------------------------------- */

static bool
is_pure_call(const kin_subgraphs *subgraphs, uint32_t i)
{
    uint32_t number = subgraphs->by_step[i];
    const kin_launcher *launcher = number == 0 ? NULL : subgraphs->at.at[number - 1].launcher;
    return launcher != NULL && (!kin_backend_is(launcher) || kin_backend_is_pure(launcher));
}

/* Do the calls of all subgraphs with launchers that are not of a custom backend only compute? */
static bool
own_graphs_compute(kin_entry *v)
{
    const kin_subgraphs *subgraphs = v->subgraphs;
    for (uint32_t u = 0; u < subgraphs->at.len; u++)
        if (kin_backend_is(subgraphs->at.at[u].launcher))
            return true; /* an entry has one backend */
    PyObject *graphs = kin_dump_subgraphs(v, subgraphs->by_step, subgraphs->needed, subgraphs->at.len);
    PyObject *answer = graphs == NULL ? NULL : kin_import_call("kintsugi._effects", "only_compute", graphs);
    bool compute = answer == Py_True;
    Py_XDECREF(answer);
    Py_XDECREF(graphs);
    PyErr_Clear();
    return compute;
}

/* Has what the step writes to been put back? */
static bool
is_taken_back(const kin_entry *v, uint32_t i, const uint32_t *judged, uint32_t njudged)
{
    const kin_step *s = &v->trace.steps.at[i];
    uint32_t number = v->subgraphs->by_step[i];
    if (judged == NULL || s->flags & (KIN_STEP_OPAQUE | KIN_STEP_RAISES | KIN_STEP_BREAK))
        return false;
    if (!(s->flags & KIN_STEP_TORCH))
        return kin_step_fits(s) || kin_step_is_in(judged, njudged, i);
    bool reads = s->kind == KIN_STEP_SUBSCR || s->kind == KIN_STEP_COMPARE || s->kind == KIN_STEP_UNARY || s->kind == KIN_STEP_GETATTR;
    return number != 0 && v->subgraphs->at.at[number - 1].launcher != NULL && (reads || kin_step_is_in(judged, njudged, i));
}

/* Tells it somebody something, or makes a text for that, without running code of the program's? The former is not done again (kin_run.again). */
static bool
is_told(const kin_entry *v, uint32_t i, const uint32_t *judged, uint32_t njudged)
{
    const kin_step *s = &v->trace.steps.at[i];
    return judged != NULL && s->flags & KIN_STEP_REPORTS && !(s->flags & (KIN_STEP_RAISES | KIN_STEP_BREAK)) && kin_step_is_in(judged, njudged, i);
}

/* With what the backend gives, the program might go another way there than it did when it was recorded, and tell other things. */
static bool
decides(const kin_entry *v, uint32_t i)
{
    const kin_trace *t = &v->trace;
    const kin_step *s = &t->steps.at[i];
    const kin_val *val = s->kind == KIN_STEP_CHECK && s->nargs > 0 ? &t->vals.at[t->vids.at[s->args]] : NULL;
    const kin_step *maker = val != NULL && val->kind == KIN_VAL_STEP ? &t->steps.at[val->step] : NULL;
    return kin_step_decides_on_data(t, s) || (maker != NULL && maker->flags & KIN_STEP_TORCH && (s->imm == KIN_CHECK_TRUE || s->imm == KIN_CHECK_FALSE || s->imm == KIN_CHECK_EQ));
}

static bool
only_computes(const kin_entry *v, uint32_t i)
{
    const kin_trace *t = &v->trace;
    const kin_step *s = &t->steps.at[i];
    if (s->flags & KIN_STEP_BREAK && s->why == KIN_ROW_EXPLICIT_BREAK + 1) /* graph_break() */
        return true;
    if ((s->flags & (KIN_STEP_EFFECT | KIN_STEP_RAISES | KIN_STEP_OPAQUE)) == KIN_STEP_EFFECT) /* a setting is read anew where the guards of the entry hold */
        return kin_step_sets_torch(s) || (!(s->flags & (KIN_STEP_BREAK | KIN_STEP_TORCH)) && kin_step_changes_own(t, s));
    return kin_step_is_torch_call(s) ? is_pure_call(v->subgraphs, i) : kin_step_only_computes(t, s);
}

bool
kin_custom_can_repeat(const kin_entry_object *entry, const uint32_t *judged, uint32_t njudged)
{
    const kin_entry *v = entry->v;
    if (v == NULL || v->subgraphs == NULL || v->subgraphs->nsteps != v->trace.steps.len || v->trace.ngraphs == 0)
        return false;
    bool tells = false, decided = false;
    for (uint32_t i = 0; i < v->trace.steps.len; i++) {
        bool told = is_told(v, i, judged, njudged);
        tells = tells || told;
        decided = decided || decides(v, i);
        if (!told && !only_computes(v, i) && !is_taken_back(v, i, judged, njudged))
            return false;
    }
    return !(tells && decided) && own_graphs_compute(entry->v);
}
