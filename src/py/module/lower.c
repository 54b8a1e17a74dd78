/* Chooses the backend of graphs (lower.h). */
#include "py/module/lower.h"

#include <string.h>

#include "core/diag/breaks.h"
#include "py/aten/tensor.h"
#include "py/backend/custom.h"
#include "py/compat/imports.h"
#include "py/launch/launch.h"
#include "py/replay/subgraphs.h"
#include "py/report/log.h"

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

bool
kin_lower_has_dynamic_sizes(const kin_compiled *self)
{
    return kin_lower_wanted(self) && !kin_lower_is_custom(self) && self->state->options.open_sizes;
}

/* Has a call of the recording given a tensor on a GPU? */
static bool
is_on_gpu(const kin_entry *v)
{
    for (uint32_t vid = 1; vid < v->trace.vals.len; vid++) {
        PyObject *note = v->trace.vals.at[vid].note == 0 ? NULL : kin_refs_get(&v->refs, v->trace.vals.at[vid].note);
        const char *device = kin_note_device(note);
        if (device != NULL && strncmp(device, "cuda", 4) == 0)
            return true;
    }
    return false;
}

/* Graphs on a GPU, for which there are no kernels of ours, as CUDA graphs. Failures of our own are events. */
static bool
lower_to_cuda_graphs(kin_compiled *self, kin_entry_object *entry, PyObject *const *slots)
{
    kin_custom custom = {.state = self->state, .backend = kin_import("kintsugi._cuda_graphs", "backend"), .name = self->name};
    bool ok = true;
    if (custom.backend != NULL)
        ok = kin_custom_lower(&custom, entry, slots);
    else
        kin_log_bug(self->state, self->name, "cuda graphs", "kintsugi._cuda_graphs could not be imported");
    if (ok)
        PyErr_Clear();
    Py_XDECREF(custom.backend);
    return ok;
}

PyObject *
kin_lower_divide(kin_compiled *self, kin_entry_object *entry, PyObject *backend)
{
    kin_custom custom = {.state = self->state, .backend = backend, .name = self->name, .dynamic = self->dynamic, .quiet = true};
    PyObject *list = PyList_New(0);
    if (list == NULL || entry->v == NULL || !kin_custom_lower(&custom, entry, NULL))
        return list;
    const kin_subgraphs *subgraphs = entry->v->subgraphs;
    for (uint32_t u = 0; list != NULL && subgraphs != NULL && u < subgraphs->at.len; u++) {
        const kin_subgraph *subgraph = &subgraphs->at.at[u];
        PyObject *row = subgraph->launcher == NULL ? NULL
                                                   : Py_BuildValue("(IN)", entry->v->trace.steps.at[subgraph->first].graph, kin_subgraph_end(entry->v, subgraph));
        if (subgraph->launcher != NULL && (row == NULL || PyList_Append(list, row) < 0))
            Py_CLEAR(list);
        Py_XDECREF(row);
    }
    return list;
}

bool
kin_lower_entry(kin_compiled *self, kin_entry_object *entry, PyObject *const *slots)
{
    if (!kin_lower_wanted(self) || entry->v == NULL)
        return true;
    if (backend_of(self) != Py_None) {
        kin_custom custom = {.state = self->state, .backend = backend_of(self), .name = self->name, .dynamic = self->dynamic};
        return kin_custom_lower(&custom, entry, slots);
    }
    if (self->cuda_graphs && is_on_gpu(entry->v))
        return lower_to_cuda_graphs(self, entry, slots);
    const kin_options *o = &self->state->options;
    bool own = self->validate != 0 || self->validate_every != 0;
    kin_launch_context context = {.validate = own ? self->validate : o->validate,
                                  .validate_every = own ? self->validate_every : o->validate_every,
                                  .log = self->state->log, .name = self->name, .entry = entry->number,
                                  .trials = self->warm ? 0 : o->trials, .warm = self->warm,
                                  .later = !self->warm && o->step_aside && self->count.recordings > KIN_TIER_USUAL_RECORDINGS,
                                  .freezing = choose(self->freezing, o->freezing), .training = o->training,
                                  .async = !self->warm && choose(self->async, o->async_compile),
                                  .async_sizes = !self->warm && o->step_aside && choose(self->async, o->async_sizes),
                                  .sizes = o->open_sizes, .fast_math = choose(self->fast_math, o->fast_math),
                                  .threads = self->threads > 0 ? self->threads : o->threads};
    if (kin_launch_plan(entry->v, &context) == KIN_NOMEM)
        kin_log_fallback(self->state, self->name, NULL, "no memory for kernels", KIN_WHY_NONE);
    return true;
}
