/* The launcher of a subgraph (py/replay/subgraphs.h): selects the version that fits the inputs, and decides what to do if none does. */
#include <stdlib.h>

#include "core/base/clock.h"
#include "py/aten/tensor.h"
#include "py/aten/make.h"
#include "py/compat/signals.h"
#include "py/launch/launch_priv.h"

const char launch_changing[] = "the sizes, strides or dtypes of its inputs change too often to compile code for each";

bool
launch_wants_gradient(const kin_subgraph *subgraph, PyObject *const *in)
{
    if (!kin_grad_enabled())
        return false;
    for (uint32_t i = 0; i < subgraph->nin; i++)
        if (kin_is_tensor(in[i]) && kin_tensor_requires_grad(in[i]))
            return true;
    return false;
}

static const char no_training[] = "gradients are wanted for its results, and kintsugi.config.training is False";

/* Gradients are needed but we cannot compute them, or something observes what eager saves for them. */
static bool
is_refused(kernel_launcher *self, const kin_subgraph *subgraph, PyObject *const *in)
{
    if (!launch_wants_gradient(subgraph, in) || (self->context.training && !launch_training_watched()))
        return false;
    self->not_yet = self->context.training ? launch_training_awaits() : no_training;
    return true;
}

/* Something around the call must see each operator. */
static bool
is_left_to_torch(kernel_launcher *self)
{
    const char *why = self->gone[0] != 0      ? self->gone
                      : kin_modes_active()    ? "a torch function mode or dispatch mode is active"
                      : kin_ambient_special() ? "deterministic algorithms, forward-mode gradients or a default dtype of half precision ask for PyTorch's own operators"
                                              : NULL;
    if (why != NULL)
        self->not_yet = why;
    return why != NULL;
}

/* The version for these inputs, if one exists or is made now. */
static launch_version *
find_version(kernel_launcher *self, kin_entry *v, const kin_subgraph *subgraph, PyObject *const *in)
{
    launch_version *version = launch_sizes_find(self, in, subgraph->nin);
    if (version == NULL && !launch_takes(self, v, subgraph, in))
        return NULL;
    if (version == NULL)
        version = launch_compile_if_it_pays(self, v, subgraph, in);
    if (version != NULL && (version->again || launch_is_due(version) || launch_compile_pays_again(self, version, v, subgraph, in)))
        launch_compile_again(self, version, v, subgraph, in);
    if (version != NULL && version->ticket != NULL)
        launch_compile_ready(self, version, v, subgraph, in);
    return version;
}

/* This call runs inside torch's checkpoint; later ones should not need that (py/training/recompute.c). */
static void
prepare_region(kernel_launcher *self, kin_entry *v, const kin_subgraph *subgraph, PyObject *const *in)
{
    PyObject *aside = launch_hooks_put_aside();
    launch_version *version = aside == NULL ? NULL : find_version(self, v, subgraph, in);
    launch_hooks_put_back(aside);
    launch_region_note(version == NULL ? NULL : version->code);
}

/* Has torch to run the steps because of gradients? If that is for a checkpointed region, code for later calls is made all the same. */
static bool
is_refused_now(kernel_launcher *self, kin_entry *v, const kin_subgraph *subgraph, PyObject *const *in)
{
    if (!is_refused(self, subgraph, in))
        return false;
    if (self->context.training && launch_region_is_prepared())
        prepare_region(self, v, subgraph, in);
    return true;
}

/* Signal handlers are delayed in what follows (py/compat/signals.h), because their exceptions must not look like failed runs. */

static kin_launch
run_held(kernel_launcher *self, kin_entry *v, const kin_subgraph *subgraph, PyObject *const *in, PyObject **out)
{
    if (is_left_to_torch(self))
        return KIN_LAUNCH_NOT;
    if (is_refused_now(self, v, subgraph, in))
        return KIN_LAUNCH_NOT;
    self->keeps_met = true;
    launch_version *version = find_version(self, v, subgraph, in), *met = launch_take_met(self);
    if (met != NULL) {
        kin_launch done = launch_time_steps(self, met, v, subgraph, in, out);
        launch_version_free(met);
        return done;
    }
    if (version == NULL || version->code == NULL)
        return KIN_LAUNCH_NOT;
    return launch_or_try(self, version, v, subgraph, in, out);
}

static kin_launch
run_kernels(kin_launcher *base, kin_entry *v, const kin_subgraph *subgraph, PyObject *const *in, PyObject **out)
{
    bool held = kin_signals_hold();
    kin_launch done = run_held((kernel_launcher *)base, v, subgraph, in, out);
    if (held)
        kin_signals_release();
    return done;
}

/* -- subgraphs with deferred calls ---------------------------------------------------------------------------------------- */

/* Does the version fit the inputs that exist so far? */
static bool
fits_so_far(const launch_version *version, const kin_subgraph *subgraph, PyObject *const *in)
{
    if (!launch_signature_fits_ambient(&version->signature))
        return false;
    for (uint32_t i = 0; i < subgraph->nin; i++)
        if (in[i] != NULL && !launch_signature_fits_one(&version->signature, i, in[i]))
            return false;
    return true;
}

static bool
may_take(const kernel_launcher *self, PyObject *obj)
{
    return self->context.training || !kin_is_tensor(obj) || !kin_tensor_requires_grad(obj) || !kin_grad_enabled();
}

enum { LOOKED_THROUGH = 8 }; /* versions */

/* With code for all sizes, the version is found or made when all inputs exist; until then the launcher itself takes its place. */
static bool
decides_late(const kernel_launcher *self)
{
    return launch_sizes_are_on(self) && self->sizes.ready && (launch_sizes_plan_pays(self) || launch_templates_known(self));
}

/* Code for all sizes can adapt to other sizes, not to other kinds of objects. */
static const launch_signature *
model_of(const kernel_launcher *self)
{
    return &self->versions.at[self->versions.len - 1]->signature;
}

static bool
is_like_before(const kernel_launcher *self, const kin_subgraph *subgraph, PyObject *const *in)
{
    if (self->versions.len == 0 || !launch_signature_fits_ambient(model_of(self)))
        return false;
    for (uint32_t i = 0; i < subgraph->nin; i++)
        if (in[i] != NULL && !launch_signature_is_like(model_of(self), i, in[i]))
            return false;
    return true;
}

static bool
is_ready(const launch_version *version)
{
    return version->code != NULL && !version->again;
}

static bool
is_ready_for(const launch_version *version, const kin_subgraph *subgraph, PyObject *const *in)
{
    return is_ready(version) && fits_so_far(version, subgraph, in);
}

/* One of many versions that fits what exists so far, and likely all of it: the one used last, or the newest. */
static launch_version *
find_so_far(const kernel_launcher *self, const kin_subgraph *subgraph, PyObject *const *in)
{
    enum { NEWEST = 64 };
    uint32_t n = self->versions.len;
    if (self->sizes.last < n && is_ready_for(self->versions.at[self->sizes.last], subgraph, in))
        return self->versions.at[self->sizes.last];
    for (uint32_t i = n; i > 0 && n - i < NEWEST; i--)
        if (is_ready_for(self->versions.at[i - 1], subgraph, in))
            return self->versions.at[i - 1];
    return NULL;
}

/* For sizes that no version fits yet. Making a plan shows whether the calls raise for them, so it must happen before any step that must not run in that case. */
static void *
choose_for_sizes(kernel_launcher *self, kin_entry *v, const kin_subgraph *subgraph, PyObject *const *in)
{
    if (!subgraph->shows)
        return self;
    if (subgraph->nearly < subgraph->nin)
        return find_so_far(self, subgraph, in);
    bool held = kin_signals_hold();
    launch_version *version = find_version(self, v, subgraph, in);
    if (held)
        kin_signals_release();
    return version != NULL && is_ready(version) ? version : NULL;
}

static void *
choose_kernels(kin_launcher *base, kin_entry *v, const kin_subgraph *subgraph, PyObject *const *in, void *had, bool *learn)
{
    kernel_launcher *self = (kernel_launcher *)base;
    *learn = false;
    for (uint32_t i = 0; i < subgraph->nin; i++)
        if (in[i] != NULL && !may_take(self, in[i])) {
            self->not_yet = no_training;
            return NULL;
        }
    if (is_left_to_torch(self))
        return NULL;
    *learn = !self->full;
    if (self->surprised) { /* see launch_priv.h */
        self->surprised = false;
        return NULL;
    }
    bool refused = false;
    for (uint32_t i = self->versions.len > LOOKED_THROUGH && decides_late(self) ? self->versions.len : 0; i < self->versions.len; i++) {
        launch_version *version = self->versions.at[i];
        if (version == had || !fits_so_far(version, subgraph, in))
            continue;
        if (is_ready(version))
            return version;
        refused = refused || !(version->again || version->retired || launch_is_due(version) || (version->ticket != NULL && launch_ticket_done(version->ticket)));
    }
    void *found = !refused && had == NULL && decides_late(self) && is_like_before(self, subgraph, in) ? choose_for_sizes(self, v, subgraph, in) : NULL;
    if (found != NULL)
        return found;
    self->surprised = had != NULL;
    *learn = *learn && !refused;
    if (*learn)
        launch_begin_steps(self);
    return NULL;
}

static bool
fits_kernels(kin_launcher *base, void *chosen, uint32_t i, PyObject *obj)
{
    return may_take((const kernel_launcher *)base, obj) && (chosen == base ? launch_signature_is_like(model_of((const kernel_launcher *)base), i, obj) : launch_signature_fits_one(&((launch_version *)chosen)->signature, i, obj));
}

static void
learn_held(kernel_launcher *self, kin_entry *v, const kin_subgraph *subgraph, PyObject *const *in, PyObject *const *out)
{
    launch_timing took = self->begun;
    took.theirs = took.clock > 0 ? kin_clock_ns() - took.clock : 0;
    bool timed = took.theirs > 0 && !launch_timing_is_disturbed(&took);
    if (is_left_to_torch(self) || is_refused_now(self, v, subgraph, in))
        return;
    launch_version *version = launch_sizes_find(self, in, subgraph->nin);
    if (version == NULL && !launch_takes(self, v, subgraph, in))
        return;
    self->keeps_met = timed && out != NULL;
    if (version == NULL)
        launch_compile_if_it_pays(self, v, subgraph, in);
    else if (version->again || launch_is_due(version) || launch_compile_pays_again(self, version, v, subgraph, in))
        launch_compile_again(self, version, v, subgraph, in);
    else if (version->ticket != NULL)
        launch_compile_ready(self, version, v, subgraph, in);
    launch_version *met = launch_take_met(self);
    if (met != NULL)
        launch_learn_steps(self, met, subgraph, in, out, took.theirs);
    launch_version_free(met);
}

static void
learn_kernels(kin_launcher *base, kin_entry *v, const kin_subgraph *subgraph, PyObject *const *in, PyObject *const *out)
{
    bool held = kin_signals_hold();
    learn_held((kernel_launcher *)base, v, subgraph, in, out);
    if (held)
        kin_signals_release();
}

static kin_launch
run_chosen_kernels(kin_launcher *base, void *chosen, kin_entry *v, const kin_subgraph *subgraph, PyObject *const *in,
                   PyObject **out)
{
    kernel_launcher *self = (kernel_launcher *)base;
    launch_version *version = chosen;
    if (chosen == base)
        return run_kernels(base, v, subgraph, in, out);
    if (version->code == NULL || version->again || is_left_to_torch(self))
        return KIN_LAUNCH_NOT;
    if (self->sizes.evicted && !launch_signature_fits(&version->signature, in)) /* another version has taken its place since it was chosen */
        return KIN_LAUNCH_NOT;
    bool held = kin_signals_hold();
    kin_launch done = is_refused_now(self, v, subgraph, in) ? KIN_LAUNCH_NOT : launch_or_try(self, version, v, subgraph, in, out);
    if (held)
        kin_signals_release();
    return done;
}

static int
traverse_kernels(kin_launcher *base, visitproc visit, void *arg)
{
    kernel_launcher *self = (kernel_launcher *)base;
    for (uint32_t i = 0; i < self->versions.len; i++)
        for (uint32_t k = 0; k < self->versions.at[i]->signature.n; k++)
            Py_VISIT(self->versions.at[i]->signature.inputs[k].value);
    return 0;
}

static void
free_kernels(kin_launcher *base)
{
    kernel_launcher *self = (kernel_launcher *)base;
    for (uint32_t i = 0; i < self->versions.len; i++)
        launch_version_free(self->versions.at[i]);
    kin_vec_deinit(&self->versions);
    kin_vec_deinit(&self->unfrozen);
    kin_vec_deinit(&self->raising);
    kin_vec_deinit(&self->seen);
    launch_sizes_deinit(&self->sizes);
    free(self->open);
    free(self->fixed);
    Py_XDECREF(self->context.name);
    free(self);
}

kin_launcher *
launch_new(const kin_launch_context *context, uint32_t graph, bool varies, bool must_pay)
{
    kernel_launcher *self = calloc(1, sizeof *self);
    if (self == NULL)
        return NULL;
    self->base = (kin_launcher){.refs = 1, .run = run_kernels, .choose = choose_kernels, .learn = learn_kernels,
                                .fits = fits_kernels, .run_chosen = run_chosen_kernels, .traverse = traverse_kernels,
                                .free = free_kernels};
    self->context = *context;
    self->graph = graph;
    self->varies = varies;
    self->must_pay = must_pay;
    Py_XINCREF(self->context.name);
    return &self->base;
}

bool
launch_is_ours(const kin_launcher *launcher)
{
    return launcher != NULL && launcher->run == run_kernels;
}
