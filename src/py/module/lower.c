/* Custom backends (lower.h): the meeting of subgraphs (py/replay/subgraphs.h), dumps and kintsugi._launch. */
#include "py/module/lower.h"

#include "core/diag/breaks.h"

#include <stdlib.h>
#include <string.h>

#include "py/module/dump.h"
#include "py/aten/make.h"
#include "py/capture/capture.h"
#include "py/compat/signals.h"
#include "py/launch/backend.h"
#include "py/launch/launch.h"
#include "py/module/log.h"
#include "py/replay/subgraphs.h"

static PyObject *
backend_of(const kin_compiled *self)
{
    PyObject *backend = self->kwargs == NULL ? NULL : PyDict_GetItemString(self->kwargs, "backend");
    return backend == NULL ? Py_None : backend;
}

static bool
choose(int8_t own, bool general)
{
    return own < 0 ? general : own != 0;
}

/* A str means that steps run as they are. */
bool
kin_lower_wanted(const kin_compiled *self)
{
    PyObject *backend = backend_of(self);
    return backend == Py_None ? choose(self->kernels, self->state->options.kernels) : !PyUnicode_Check(backend);
}

bool
kin_lower_is_custom(const kin_compiled *self)
{
    PyObject *backend = backend_of(self);
    return backend != Py_None && !PyUnicode_Check(backend);
}

/* {vid: object} of the inputs that are at hand. */
static PyObject *
collect_examples(const kin_vids *in, PyObject *const *slots)
{
    PyObject *examples = PyDict_New();
    for (uint32_t i = 0; examples != NULL && slots != NULL && i < in->len; i++) {
        PyObject *key = slots[in->at[i]] == NULL ? NULL : PyLong_FromUnsignedLong(in->at[i]);
        if (key != NULL && PyDict_SetItem(examples, key, slots[in->at[i]]) < 0)
            Py_CLEAR(examples);
        Py_XDECREF(key);
    }
    return examples;
}

/* -- subgraphs of an entry ------------------------------------------------------------------------------------------- */

typedef struct {
    kin_compiled *self;
    kin_entry_object *entry;
    kin_subgraphs *subgraphs;
    PyObject *graphs;       /* list, by subgraph */
    PyObject *make, *imitate; /* of kintsugi._launch */
    PyObject *const *slots;
} lowering;

/* What an earlier plan of the same entry has for the same subgraph; borrowed or NULL. */
static kin_launcher *
find_same(const lowering *l, const kin_subgraph *subgraph, const kin_vids *in, const kin_vids *out)
{
    const kin_subgraphs *old = l->entry->v->subgraphs;
    for (uint32_t u = 0; old != NULL && u < old->at.len; u++) {
        const kin_subgraph *o = &old->at.at[u];
        if (o->first == subgraph->first && o->last == subgraph->last && o->nin == in->len && o->nout == out->len &&
            kin_backend_is(o->launcher) && memcmp(o->in, in->at, in->len * sizeof *o->in) == 0 &&
            memcmp(o->out, out->at, out->len * sizeof *o->out) == 0)
            return o->launcher;
    }
    return NULL;
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

/* Where the graph's inputs are among the subgraph's; KIN_BREAK: one is not. */
static kin_status
pick_inputs(const kin_vids *subgraph, const kin_vids *graph, uint32_t *pick)
{
    for (uint32_t i = 0; i < graph->len; i++) {
        uint32_t k = 0;
        while (k < subgraph->len && subgraph->at[k] != graph->at[i])
            k++;
        if (k == subgraph->len)
            return KIN_BREAK;
        pick[i] = k;
    }
    return KIN_OK;
}

/* The value in this call, or one like it that was seen while recording: new reference. NULL without an exception: neither. */
static PyObject *
example_of(const lowering *l, kin_vid vid)
{
    const kin_val *val = &l->entry->v->trace.vals.at[vid];
    if (l->slots != NULL && l->slots[vid] != NULL)
        return Py_NewRef(l->slots[vid]);
    PyObject *note = val->note == 0 ? NULL : kin_refs_get(&l->entry->v->refs, val->note);
    PyObject *made = note == NULL ? NULL : PyObject_CallOneArg(l->imitate, note);
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
    kin_status status = kin_backend_prove(launcher, l->entry->v, subgraph, in);
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
        status = kin_backend_set_apart(l->entry->v, subgraph);
    else if (status == KIN_BREAK)
        kin_log_fallback(l->self->state, l->self->name, NULL,
                         "a graph runs step by step: one of its inputs is made between its calls", KIN_WHY_NONE);
    else if (status == KIN_OK && !had && !subgraph->plain)
        status = prove_subgraph(l, launcher, subgraph);
    kin_launcher_release(launcher);
    return status;
}

/* What the subgraph's graph takes and gives: the graph's vids, and those of the subgraph, which for a plain one are the same. */
typedef struct {
    kin_vids graph_in, in, out, other_out;
    uint32_t *pick;
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
        KIN_TRY(kin_subgraph_bounds(l->entry->v, l->subgraphs, u, &b->in, &b->other_out));
    b->pick = calloc(b->graph_in.len + 1, sizeof *b->pick);
    return b->pick == NULL ? KIN_NOMEM : pick_inputs(&b->in, &b->graph_in, b->pick);
}

/* KIN_BREAK: the graph was not foreseen to be part of such a subgraph; its calls are set apart. */
static kin_status
plan_subgraph(const lowering *l, uint32_t u)
{
    bounds b;
    kin_status status = find_bounds(l, u, &b);
    kin_subgraph *subgraph = &l->subgraphs->at.at[u];
    if (status == KIN_OK)
        status = set_launcher(l, u, &b.in, &b.out);
    else if (status == KIN_BREAK)
        status = kin_backend_set_apart(l->entry->v, subgraph);
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
    for (uint32_t u = 0; status == KIN_OK && u < l->subgraphs->at.len; u++)
        status = plan_subgraph(l, u);
    if (status == KIN_OK)
        return KIN_OK;
    Py_CLEAR(l->graphs);
    kin_subgraphs_release(l->subgraphs);
    l->subgraphs = NULL;
    return status;
}

/* Each refusal sets a call apart or puts up a wall, so that it ends. */
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
    l->entry->v->walls.len = 0; /* others are found again */
    status = KIN_BREAK;
    for (int tries = 0; status == KIN_BREAK && tries < 24; tries++)
        status = plan(l, KIN_SUBGRAPHS_WIDE | KIN_SUBGRAPHS_EVERY);
    return status == KIN_BREAK ? plan(l, KIN_SUBGRAPHS_PLAIN) : status;
}

/* kintsugi._launch.make_subgraph(backend, graph, examples, name, entry, number): callable or None. False with
 * an exception. */
static bool
make_callable(const lowering *l, uint32_t u)
{
    bounds b;
    kin_subgraph *subgraph = &l->subgraphs->at.at[u];
    PyObject *graph = PyList_GET_ITEM(l->graphs, u), *examples = NULL, *callable = NULL;
    if (subgraph->launcher == NULL || kin_backend_has_callable(subgraph->launcher))
        return true;
    if (find_bounds(l, u, &b) == KIN_OK && (examples = collect_examples(&b.graph_in, l->slots)) != NULL)
        callable = PyObject_CallFunction(l->make, "OOOOII", backend_of(l->self), graph, examples, l->self->name, l->entry->number, u + 1);
    bool ok = callable != NULL;
    if (ok && callable != Py_None)
        ok = kin_backend_set(subgraph->launcher, callable, b.pick, b.graph_in.len) == KIN_OK;
    else if (ok)
        kin_subgraph_stop(subgraph);
    drop_bounds(&b);
    Py_XDECREF(examples);
    Py_XDECREF(callable);
    return ok;
}

static bool
find_helpers(lowering *l)
{
    PyObject *module = PyImport_ImportModule("kintsugi._launch");
    l->make = module == NULL ? NULL : PyObject_GetAttrString(module, "make_subgraph");
    l->imitate = l->make == NULL ? NULL : PyObject_GetAttrString(module, "imitate");
    Py_XDECREF(module);
    return l->imitate != NULL;
}

static void
end(lowering *l)
{
    Py_XDECREF(l->graphs);
    Py_XDECREF(l->make);
    Py_XDECREF(l->imitate);
    kin_subgraphs_release(l->subgraphs);
}

/* A failure of our own: an event, and the entry runs step by step. */
static bool
give_up(lowering *l)
{
    kin_log_bug(l->self->state, l->self->name, "backend", "graphs could not be handed to the backend");
    PyErr_Clear();
    end(l);
    return true;
}

static bool
lower_to_backend(kin_compiled *self, kin_entry_object *entry, PyObject *const *slots)
{
    kin_entry *v = entry->v;
    lowering l = {.self = self, .entry = entry, .slots = slots};
    bool ok = find_helpers(&l) && plan_until_right(&l) == KIN_OK;
    if (!ok)
        return give_up(&l);
    for (uint32_t u = 0; ok && u < l.subgraphs->at.len; u++)
        ok = make_callable(&l, u);
    if (ok && entry->v != NULL) { /* NULL: dropped by the backend itself */
        kin_entry_set_subgraphs(v, l.subgraphs, kin_subgraphs_release);
        l.subgraphs = NULL;
    }
    end(&l);
    return ok;
}

bool
kin_lower_entry(kin_compiled *self, kin_entry_object *entry, PyObject *const *slots)
{
    if (!kin_lower_wanted(self) || entry->v == NULL)
        return true;
    if (backend_of(self) != Py_None)
        return lower_to_backend(self, entry, slots);
    enum { FEW = 3 };
    const kin_options *o = &self->state->options;
    kin_launch_context context = {.log = self->state->log, .name = self->name, .entry = entry->number,
                                  .trials = o->trials, .later = o->step_aside && self->count.recordings > FEW,
                                  .freezing = choose(self->freezing, o->freezing), .training = o->training,
                                  .async = choose(self->async, o->async_compile),
                                  .fast_math = choose(self->fast_math, o->fast_math),
                                  .threads = self->threads > 0 ? self->threads : o->threads};
    if (kin_launch_plan(entry->v, &context) == KIN_NOMEM)
        kin_log_fallback(self->state, self->name, NULL, "no memory for kernels", KIN_WHY_NONE);
    return true;
}
