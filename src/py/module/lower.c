/* Custom backends (lower.h): the meeting of units (py/replay/units.h), dumps and kintsugi._launch. */
#include "py/module/lower.h"

#include "core/diag/breaks.h"

#include <stdlib.h>
#include <string.h>

#include "py/compat/failure.h"
#include "py/module/dump.h"
#include "py/launch/launch.h"
#include "py/module/log.h"
#include "py/replay/units.h"

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

/* Values named by a list of ints, or of dicts with an int "vid": malloc'ed, NULL with an exception. */
static kin_vid *
read_vids(PyObject *list, uint32_t *n)
{
    if (list == NULL || !PyList_Check(list))
        return NULL;
    *n = (uint32_t)PyList_GET_SIZE(list);
    kin_vid *vids = calloc(*n + 1, sizeof *vids);
    for (uint32_t i = 0; vids != NULL && i < *n; i++) {
        PyObject *item = PyList_GET_ITEM(list, i);
        if (PyDict_Check(item))
            item = PyDict_GetItemString(item, "vid");
        vids[i] = item == NULL ? 0 : (kin_vid)PyLong_AsUnsignedLong(item);
    }
    return vids;
}

/* {vid: object} of the inputs that are at hand. */
static PyObject *
collect_examples(const kin_vid *in, uint32_t nin, PyObject *const *slots)
{
    PyObject *examples = PyDict_New();
    for (uint32_t i = 0; examples != NULL && slots != NULL && i < nin; i++) {
        PyObject *key = slots[in[i]] == NULL ? NULL : PyLong_FromUnsignedLong(in[i]);
        if (key != NULL && PyDict_SetItem(examples, key, slots[in[i]]) < 0)
            Py_CLEAR(examples);
        Py_XDECREF(key);
    }
    return examples;
}

/* -- launching a callable ----------------------------------------------------------------------------------------- */

typedef struct {
    kin_launcher base;
    PyObject *callable; /* gives a tuple of the outputs, or None: it has nothing for these inputs */
} callable_launcher;

static kin_launch
run_callable(kin_launcher *self, kin_variant *v, const kin_unit *unit, PyObject *const *in, PyObject **out)
{
    PyObject *result = PyObject_Vectorcall(((callable_launcher *)self)->callable, in, unit->nin, NULL);
    if (result == Py_None) {
        Py_DECREF(result);
        return KIN_LAUNCH_NOT;
    }
    if (result != NULL && (!PyTuple_CheckExact(result) || PyTuple_GET_SIZE(result) != (Py_ssize_t)unit->nout)) {
        Py_CLEAR(result);
        kin_failure_raise("kintsugi: a compiled graph did not give what was asked of it");
    }
    for (uint32_t i = 0; result != NULL && i < unit->nout; i++)
        out[i] = Py_NewRef(PyTuple_GET_ITEM(result, i));
    Py_XDECREF(result);
    return result == NULL ? KIN_LAUNCH_RAISED : KIN_LAUNCH_DONE;
}

static int
traverse_callable(kin_launcher *self, visitproc visit, void *arg)
{
    Py_VISIT(((callable_launcher *)self)->callable);
    return 0;
}

static void
free_callable(kin_launcher *self)
{
    Py_DECREF(((callable_launcher *)self)->callable);
    free(self);
}

static kin_launcher *
new_callable_launcher(PyObject *callable)
{
    callable_launcher *launcher = calloc(1, sizeof *launcher);
    if (launcher == NULL)
        return NULL;
    launcher->base = (kin_launcher){.refs = 1, .framed = true, .run = run_callable, .traverse = traverse_callable,
                                    .free = free_callable};
    launcher->callable = Py_NewRef(callable);
    return &launcher->base;
}

/* -- units of a variant ------------------------------------------------------------------------------------------- */

/* What an earlier plan of the same variant has for the same unit; borrowed or NULL. */
static kin_launcher *
find_same(const kin_units *old, const kin_unit *unit, const kin_vid *in, uint32_t nin, const kin_vid *out, uint32_t nout)
{
    for (uint32_t u = 0; old != NULL && u < old->at.len; u++) {
        const kin_unit *o = &old->at.at[u];
        if (o->first == unit->first && o->last == unit->last && o->nin == nin && o->nout == nout && o->launcher != NULL &&
            memcmp(o->in, in, nin * sizeof *in) == 0 && memcmp(o->out, out, nout * sizeof *out) == 0)
            return o->launcher;
    }
    return NULL;
}

typedef struct {
    kin_compiled *self;
    kin_variant_object *variant;
    kin_units *units;
    PyObject *make; /* kintsugi._launch.make_unit */
    PyObject *const *slots;
} lowering;

/* kintsugi._launch.make_unit(backend, graph, examples, fullgraph, name, variant, number): callable or None. False with
 * an exception; *made is NULL when there is none. */
static bool
make_launcher(const lowering *l, uint32_t u, PyObject *graph, const kin_vid *in, uint32_t nin, kin_launcher **made)
{
    PyObject *examples = collect_examples(in, nin, l->slots), *callable = NULL;
    if (examples != NULL)
        callable = PyObject_CallFunction(l->make, "OOOOOII", PyDict_GetItemString(l->self->kwargs, "backend"), graph,
                                         examples, l->self->fullgraph ? Py_True : Py_False, l->self->name,
                                         l->variant->number, u + 1);
    Py_XDECREF(examples);
    if (callable != NULL && callable != Py_None && (*made = new_callable_launcher(callable)) == NULL) {
        Py_CLEAR(callable);
        PyErr_NoMemory();
    }
    Py_XDECREF(callable);
    return callable != NULL;
}

static bool
lower_unit(const lowering *l, uint32_t u, PyObject *graph)
{
    uint32_t nin = 0, nout = 0;
    kin_unit *unit = &l->units->at.at[u];
    kin_vid *in = read_vids(PyDict_GetItemString(graph, "inputs"), &nin);
    kin_vid *out = read_vids(PyDict_GetItemString(graph, "outputs"), &nout);
    kin_launcher *made = NULL;
    bool ok = in != NULL && out != NULL && !PyErr_Occurred();
    if (ok) {
        made = find_same(l->variant->v->units, unit, in, nin, out, nout);
        if (made != NULL)
            made->refs++;
        else
            ok = make_launcher(l, u, graph, in, nin, &made);
    }
    if (made != NULL) {
        kin_status status = kin_unit_set(l->variant->v, l->units, u, in, nin, out, nout, made);
        if (status != KIN_OK)
            kin_log_fallback(l->self->state, l->self->name, NULL,
                             "a graph runs step by step: one of its inputs is made between its calls", KIN_WHY_NONE);
    }
    kin_launcher_release(made);
    free(in);
    free(out);
    return ok;
}

static PyObject *
find_make_unit(void)
{
    PyObject *module = PyImport_ImportModule("kintsugi._launch");
    PyObject *make = module == NULL ? NULL : PyObject_GetAttrString(module, "make_unit");
    Py_XDECREF(module);
    return make;
}

/* A failure of our own: an event, and the variant runs step by step. */
static bool
give_up(kin_compiled *self, kin_units *units)
{
    kin_log_bug(self->state, self->name, "backend", "graphs could not be handed to the backend");
    PyErr_Clear();
    kin_units_release(units);
    return true;
}

bool
kin_lower_variant(kin_compiled *self, kin_variant_object *variant, PyObject *const *slots)
{
    kin_variant *v = variant->v;
    if (!kin_lower_wanted(self) || v == NULL)
        return true;
    if (backend_of(self) == Py_None) {
        const kin_options *o = &self->state->options;
        kin_launch_context context = {.log = self->state->log, .name = self->name, .variant = variant->number,
                                      .trials = o->trials, .freezing = choose(self->freezing, o->freezing),
                                      .async = choose(self->async, o->async_compile)};
        if (kin_launch_plan(v, &context) == KIN_NOMEM)
            kin_log_fallback(self->state, self->name, NULL, "no memory for kernels", KIN_WHY_NONE);
        return true;
    }
    kin_units *units = kin_units_find(v, false);
    PyObject *graphs = units == NULL ? NULL : kin_dump_units(v, units->by_step, units->needed, units->at.len);
    PyObject *make = graphs == NULL ? NULL : find_make_unit();
    if (make == NULL) {
        Py_XDECREF(graphs);
        return give_up(self, units);
    }
    lowering l = {self, variant, units, make, slots};
    bool ok = true;
    for (uint32_t u = 0; ok && u < units->at.len; u++)
        ok = lower_unit(&l, u, PyList_GET_ITEM(graphs, u));
    Py_DECREF(graphs);
    Py_DECREF(make);
    if (!ok && !self->fullgraph)
        return give_up(self, units);
    if (!ok || variant->v == NULL) { /* dropped by the backend itself */
        kin_units_release(units);
        return ok;
    }
    kin_units *old = v->units;
    v->units = units;
    kin_units_release(old);
    return true;
}
