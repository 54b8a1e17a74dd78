/* Reports on subgraphs: events, and dicts for stats() and explain(). */
#include <stdio.h>

#include "py/launch/launch_priv.h"
#include "py/compat/kinds.h"
#include "py/entry/line.h"

/* -- events ----------------------------------------------------------------------------------------------------- */

const char *
launch_name_of(const kin_launch_context *context)
{
    return kin_utf8(context->name);
}

void
launch_say(const kernel_launcher *self, const char *reason)
{
    const kin_launch_context *context = &self->context;
    char text[320];
    snprintf(text, sizeof text, "graph %u of entry %u runs step by step: %s", self->graph, context->entry, reason);
    kin_event_begin(context->log, KIN_EVENT_FALLBACK);
    kin_event_str(context->log, "name", launch_name_of(context));
    kin_event_str(context->log, "reason", text);
    kin_event_end(context->log);
}

void
launch_say_fusion(const kernel_launcher *self, const char *notes)
{
    const kin_launch_context *context = &self->context;
    kin_event_begin(context->log, KIN_EVENT_FUSION);
    kin_event_str(context->log, "name", launch_name_of(context));
    kin_event_int(context->log, "entry", context->entry);
    kin_event_int(context->log, "graph", self->graph);
    kin_event_str(context->log, "text", notes);
    kin_event_end(context->log);
}

bool
launch_tells(const kernel_launcher *self)
{
    return self->versions.len <= (launch_sizes_are_on(self) ? KIN_TIER_TOLD_PLANS : KIN_TIER_LIVE_KINDS);
}

static int listing;

int
launch_listing(void)
{
    return listing;
}

void
kin_launch_set_listing(int wanted)
{
    listing = wanted;
}

void
launch_say_unfrozen(kernel_launcher *self, const char *reason)
{
    const kin_launch_context *context = &self->context;
    snprintf(self->unfreeze, sizeof self->unfreeze, "%s", reason);
    kin_event_begin(context->log, KIN_EVENT_UNFREEZE);
    kin_event_str(context->log, "name", launch_name_of(context));
    kin_event_int(context->log, "entry", context->entry);
    kin_event_int(context->log, "graph", self->graph);
    kin_event_str(context->log, "reason", self->unfreeze);
    kin_event_end(context->log);
}

/* -- reports ---------------------------------------------------------------------------------------------------- */

static PyObject *
describe_version(const kernel_launcher *self, const launch_version *version)
{
    const launch_code *code = version->code;
    PyObject *frozen = code == NULL || code->frozen == NULL ? Py_NewRef(Py_None) : launch_frozen_describe(code->frozen);
    PyObject *profile = frozen == NULL ? NULL : launch_profile_describe(code);
    PyObject *profile_back = profile == NULL ? NULL : launch_profile_describe(launch_training_code_back(code));
    if (profile_back == NULL) {
        Py_XDECREF(profile);
        Py_XDECREF(frozen);
        return NULL;
    }
    PyObject *passes = launch_describe_passes(version);
    if (passes == NULL) {
        Py_DECREF(profile_back);
        Py_DECREF(profile);
        Py_DECREF(frozen);
        return NULL;
    }
    return Py_BuildValue("{s:N,s:N,s:N,s:N,s:O,s:O,s:O,s:K,s:K,s:O,s:s,s:z,s:z,s:z,s:z,s:z,s:I,s:I,s:I,s:I,s:K,s:d,s:d,s:d,s:d,s:d,s:d}", "passes", passes, "profile", profile, "profile_backward", profile_back, "frozen", frozen, "settled", launch_is_settled(self, version) ? Py_True : Py_False, "copied", version->copied ? Py_True : Py_False, "as_fast", code == NULL && (version->small || version->drops > 0) ? Py_True : Py_False, "scratch_bytes",
                         code == NULL ? 0ull : (unsigned long long)code->main.program->arena, "code_bytes",
                         (unsigned long long)version->stats.code_bytes, "compiled", code != NULL ? Py_True : Py_False,
                         "reason", version->reason, "aten", version->aten, "code", version->listing, "forward", version->halves[0], "backward", version->halves[1], "not_fused", version->not_fused, "kernels", version->stats.kernels, "native",
                         version->nnative, "extern", version->nextern, "failures", version->failures, "runs",
                         code == NULL ? 0ull : (unsigned long long)code->runs, "capture_ns", version->capture_ns, "fuse_ns",
                         version->stats.fuse_ns, "llvm_ns", version->stats.llvm_ns, "total_ns", version->total_ns, "launch_ns",
                         version->abtest.ours, "steps_ns", version->abtest.theirs);
}

/* Why nothing, or nothing more, is compiled. */
static const char *
reason_of(const kernel_launcher *self)
{
    return self->gone[0] != 0 ? self->gone : launch_is_changing(self) ? launch_changing : "";
}

/* Why there is no code so far, although there may be later. */
static const char *
not_yet(const kernel_launcher *self)
{
    for (uint32_t i = 0; i < self->versions.len; i++)
        if (self->versions.at[i]->code != NULL || self->versions.at[i]->reason[0] != 0)
            return "";
    return self->not_yet != NULL ? self->not_yet : self->base.lacks_input ? "replays let go of one of its inputs before it (a defect of Kintsugi: please report it)" : "no replayed call has reached it so far";
}

static PyObject *
describe_subgraph(const kin_entry *v, const kin_subgraph *subgraph)
{
    const kernel_launcher *self = (const kernel_launcher *)subgraph->launcher;
    PyObject *list = PyList_New(0);
    for (uint32_t i = 0; list != NULL && i < self->versions.len; i++) {
        PyObject *one = describe_version(self, self->versions.at[i]);
        if (one == NULL || PyList_Append(list, one) < 0)
            Py_CLEAR(list);
        Py_XDECREF(one);
    }
    PyObject *dict = list == NULL ? NULL
                                  : Py_BuildValue("{s:I,s:I,s:I,s:O,s:I,s:I,s:s,s:s,s:s,s:N,s:O}", "graph", self->graph, "first", subgraph->first, "last", subgraph->last,
                                                  "waits", subgraph->deferred ? Py_True : Py_False,
                                                  "inputs", subgraph->nin, "outputs", subgraph->nout, "reason", reason_of(self), "not_yet", not_yet(self),
                                                  "unfrozen", self->unfreeze, "end", kin_subgraph_end(v, subgraph),
                                                  "versions", list);
    Py_XDECREF(list);
    return dict;
}

const kernel_launcher *
launch_of_subgraph(const kin_subgraph *subgraph)
{
    const kernel_launcher *self = (const kernel_launcher *)subgraph->launcher;
    return launch_is_ours(subgraph->launcher) ? self : NULL;
}

PyObject *
kin_launch_describe(const kin_entry *v)
{
    PyObject *list = PyList_New(0);
    for (uint32_t u = 0; list != NULL && v->subgraphs != NULL && u < v->subgraphs->at.len; u++) {
        const kin_subgraph *subgraph = &v->subgraphs->at.at[u];
        if (launch_of_subgraph(subgraph) == NULL)
            continue;
        PyObject *one = describe_subgraph(v, subgraph);
        if (one == NULL || PyList_Append(list, one) < 0)
            Py_CLEAR(list);
        Py_XDECREF(one);
    }
    return list;
}
