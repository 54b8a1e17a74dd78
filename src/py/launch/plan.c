/* Plans subgraphs (launch.h): finds them, gives each a launcher, and finds them again when one call turns out to be one that
 * cannot be compiled with the others.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "py/aten/make.h"
#include "py/aten/tensor.h"
#include "py/capture/capture.h"
#include "py/compat/signals.h"
#include "py/launch/frozen.h"
#include "py/launch/run.h"

enum {
    APART_LIMIT = 200, /* calls of one entry that are set apart */
    MANY_SUBGRAPHS = 64    /* of one entry: code is made for them at their first launch */
};

/* -- the launcher ------------------------------------------------------------------------------------------------ */

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

/* Gradients are wanted, and it is not ours to give them. */
static bool
is_refused(const kernel_launcher *self, const kin_subgraph *subgraph, PyObject *const *in)
{
    return (!self->context.training || launch_trainer_now == NULL) && launch_wants_gradient(subgraph, in);
}

static launch_version *
find_version(const kernel_launcher *self, PyObject *const *in)
{
    for (uint32_t i = 0; i < self->versions.len; i++)
        if (launch_signature_fits(&self->versions.at[i]->signature, in))
            return self->versions.at[i];
    return NULL;
}

const char launch_changing[] = "its inputs change their kind too often";

/* Launches of the first calls take turns with the steps, done as a launch would do them, so that nothing runs twice; whichever is
 * slower is not used any more (core/pace/duel.h). The steps begin: what they give shows whether capture was right (verify.c). The
 * first launch only warms up. */

/* Slower than its steps: code is made again after a time that is long beside making it, as others may have had the machine. */
static void
rest(launch_version *version)
{
    enum { OFTEN = 3 };
    static const double LEAST = 2e9, TIMES = 50, LONGER = 8;
    double ns = TIMES * version->total_ns;
    ns = ns > LEAST ? ns : LEAST;
    for (uint32_t i = 0; i < version->drops; i++)
        ns *= LONGER;
    version->rests_until = version->drops < OFTEN ? launch_now() + ns : 0;
    version->drops++;
}

/* It has rested for long enough: code is to be made again. */
static bool
has_rested(const launch_version *version)
{
    return version->code == NULL && version->rests_until > 0 && launch_now() > version->rests_until;
}

static void
note_time(kernel_launcher *self, launch_version *version, bool steps, double ns)
{
    if (kin_duel_note(&version->duel, steps, ns, self->context.trials) != KIN_DUEL_DROP || !launch_drop(version))
        return;
    rest(version);
    snprintf(version->reason, sizeof version->reason, "its steps are faster: %.1f us, launched %.1f us",
             version->duel.theirs / 1e3, version->duel.ours / 1e3);
    launch_say(self, version->reason);
}

static kin_launch
try_steps(kernel_launcher *self, launch_version *version, kin_entry *v, const kin_subgraph *subgraph, PyObject *const *in,
          PyObject **out)
{
    double ns;
    launch_kept *kept = launch_may_write(version->code, in) ? launch_keep_written(version->code, in) : NULL;
    if (kept == NULL)
        return KIN_LAUNCH_NOT;
    version->code->running++; /* stays, whatever the steps do */
    kin_launch done = kin_capture_do(v, subgraph, in, out, &ns);
    version->code->running--;
    if (done == KIN_LAUNCH_NOT)
        launch_put_back_written(kept, version->code, in);
    launch_kept_free(kept);
    if (done == KIN_LAUNCH_DONE && version->duel.ntheirs == 0 && !launch_gives_the_same(version->code, subgraph, in, out)) {
        snprintf(version->reason, sizeof version->reason, "its steps give results that lie otherwise than foreseen");
        if (launch_drop(version)) /* else it is running; it is looked at again */
            launch_say(self, version->reason);
        return done;
    }
    if (done == KIN_LAUNCH_DONE)
        note_time(self, version, true, ns);
    else
        kin_duel_give_up(&version->duel);
    return done;
}

static kin_launch
try_launch(kernel_launcher *self, launch_version *version, PyObject *const *in, PyObject **out)
{
    uint64_t renewals = launch_renewals(version);
    double start = launch_now();
    kin_launch done = launch_run(self, version, in, out);
    double ns = launch_now() - start;
    if (done != KIN_LAUNCH_DONE || (version->duel.warm && renewals != launch_renewals(version)))
        return done;
    if (!version->duel.warm)
        launch_note_first(self, version, ns);
    note_time(self, version, false, ns);
    return done;
}

/* Will later calls of this kind do the same? */
static bool
is_settled(const kernel_launcher *self, const launch_version *version)
{
    if (version->again || version->ticket != NULL)
        return false;
    return version->code == NULL || version->code->training != NULL || version->duel.decided || self->context.trials == 0 || launch_acts(version);
}

static kin_launch
launch_or_try(kernel_launcher *self, launch_version *version, kin_entry *v, const kin_subgraph *subgraph, PyObject *const *in,
              PyObject **out)
{
    launch_note_use(self, version);
    if (self->context.trials > 0 && !version->again)
        kin_duel_use(&version->duel);
    if (is_settled(self, version))
        return launch_run(self, version, in, out);
    return kin_duel_is_theirs(&version->duel) ? try_steps(self, version, v, subgraph, in, out) : try_launch(self, version, in, out);
}

/* Handlers of signals wait in what follows (py/compat/signals.h), so that what they raise is not taken for a failure of a launch. */

static kin_launch
run_held(kernel_launcher *self, kin_entry *v, const kin_subgraph *subgraph, PyObject *const *in, PyObject **out)
{
    if (self->gone[0] != 0 || kin_modes_active() || kin_ambient_special() || is_refused(self, subgraph, in))
        return KIN_LAUNCH_NOT;
    launch_version *version = find_version(self, in);
    if (version == NULL && launch_is_worth(self, v, subgraph, in))
        version = launch_compile(self, v, subgraph, in);
    else if (version == NULL)
        launch_look_what_varies(self, v, subgraph, in);
    if (version != NULL && (version->again || has_rested(version) || launch_is_worth_again(self, version, v, subgraph, in)))
        launch_compile_again(self, version, v, subgraph, in);
    if (version != NULL && version->ticket != NULL)
        launch_compile_ready(self, version, v, subgraph, in);
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

/* -- subgraphs whose calls wait ---------------------------------------------------------------------------------------- */

/* Is the version for inputs like those that are there? */
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

static void *
choose_kernels(kin_launcher *base, const kin_subgraph *subgraph, PyObject *const *in, void *had, bool *learn)
{
    kernel_launcher *self = (kernel_launcher *)base;
    *learn = false;
    for (uint32_t i = 0; i < subgraph->nin; i++)
        if (in[i] != NULL && !may_take(self, in[i]))
            return NULL;
    if (self->gone[0] != 0 || kin_modes_active() || kin_ambient_special())
        return NULL;
    *learn = !self->full;
    if (self->surprised) { /* by an input that came later: there may be something to learn */
        self->surprised = false;
        return NULL;
    }
    bool refused = false;
    for (uint32_t i = 0; i < self->versions.len; i++) {
        launch_version *version = self->versions.at[i];
        if (version == had || !fits_so_far(version, subgraph, in))
            continue;
        if (version->code != NULL && !version->again)
            return version;
        refused = refused || !(version->again || version->retired || has_rested(version) || (version->ticket != NULL && launch_ticket_done(version->ticket)));
    }
    self->surprised = had != NULL;
    *learn = *learn && !refused;
    if (*learn)
        launch_begin_steps(self);
    return NULL;
}

static bool
fits_kernels(kin_launcher *base, void *chosen, uint32_t i, PyObject *obj)
{
    return may_take((const kernel_launcher *)base, obj) && launch_signature_fits_one(&((launch_version *)chosen)->signature, i, obj);
}

static void
learn_held(kernel_launcher *self, kin_entry *v, const kin_subgraph *subgraph, PyObject *const *in)
{
    if (self->gone[0] != 0 || kin_modes_active() || kin_ambient_special() || is_refused(self, subgraph, in))
        return;
    launch_version *version = find_version(self, in);
    if (version == NULL && launch_is_worth(self, v, subgraph, in))
        launch_compile(self, v, subgraph, in);
    else if (version == NULL)
        launch_look_what_varies(self, v, subgraph, in);
    else if (version->again || has_rested(version) || launch_is_worth_again(self, version, v, subgraph, in))
        launch_compile_again(self, version, v, subgraph, in);
    else if (version->ticket != NULL)
        launch_compile_ready(self, version, v, subgraph, in);
}

static void
learn_kernels(kin_launcher *base, kin_entry *v, const kin_subgraph *subgraph, PyObject *const *in)
{
    bool held = kin_signals_hold();
    learn_held((kernel_launcher *)base, v, subgraph, in);
    if (held)
        kin_signals_release();
}

static kin_launch
run_chosen_kernels(kin_launcher *base, void *chosen, kin_entry *v, const kin_subgraph *subgraph, PyObject *const *in,
                   PyObject **out)
{
    kernel_launcher *self = (kernel_launcher *)base;
    launch_version *version = chosen;
    if (self->gone[0] != 0 || version->code == NULL || version->again || kin_modes_active() || kin_ambient_special())
        return KIN_LAUNCH_NOT;
    bool held = kin_signals_hold();
    kin_launch done = launch_or_try(self, version, v, subgraph, in, out);
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
    kin_vec_deinit(&self->seen);
    Py_XDECREF(self->context.name);
    free(self);
}

static kin_launcher *
new_launcher(const kin_launch_context *context, uint32_t graph, bool varies)
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
    Py_XINCREF(self->context.name);
    return &self->base;
}

/* -- the plan ----------------------------------------------------------------------------------------------------- */

/* What an earlier plan has for the same subgraph; borrowed or NULL. */
static kin_launcher *
find_same(const kin_subgraphs *old, const kin_subgraph *subgraph, const kin_vids *in, const kin_vids *out)
{
    if (old == NULL || subgraph->first >= old->nsteps || old->by_step[subgraph->first] == 0)
        return NULL;
    const kin_subgraph *o = &old->at.at[old->by_step[subgraph->first] - 1];
    bool same = o->first == subgraph->first && o->last == subgraph->last && o->nin == in->len && o->nout == out->len &&
                o->launcher != NULL && o->launcher->run == run_kernels && memcmp(o->role, subgraph->role, subgraph->last - subgraph->first + 1) == 0 &&
                (in->len == 0 || memcmp(o->in, in->at, in->len * sizeof *in->at) == 0) &&
                (out->len == 0 || memcmp(o->out, out->at, out->len * sizeof *out->at) == 0);
    return same ? o->launcher : NULL;
}

static kin_status
plan_subgraph(kin_entry *v, kin_subgraphs *subgraphs, uint32_t u, const kin_launch_context *context)
{
    kin_vids in = {0}, out = {0};
    kin_subgraph *subgraph = &subgraphs->at.at[u];
    kin_status status = kin_subgraph_bounds(v, subgraphs, u, &in, &out);
    if (status == KIN_OK) {
        kin_launcher *launcher = find_same(v->subgraphs, subgraph, &in, &out);
        if (launcher != NULL)
            launcher->refs++;
        else /* what is behind many breaks may seldom be reached, and code for hundreds of subgraphs takes long: it has to pay */
            launcher = new_launcher(context, v->trace.steps.at[subgraph->first].graph,
                                    context->later || u >= MANY_SUBGRAPHS || (launch_subgraph_varies(v, subgraph) && !launch_is_steady(v, subgraph)));
        status = launcher == NULL ? KIN_NOMEM : kin_subgraph_set(v, subgraphs, u, in.at, in.len, out.at, out.len, launcher);
        kin_launcher_release(launcher);
    }
    kin_vec_deinit(&in);
    kin_vec_deinit(&out);
    return status == KIN_BREAK ? KIN_OK : status; /* its steps run one by one */
}

const char *
launch_name_of(const kin_launch_context *context)
{
    const char *name = context->name == NULL ? NULL : PyUnicode_AsUTF8(context->name);
    if (name == NULL)
        PyErr_Clear();
    return name == NULL ? "?" : name;
}

/* Why a graph is compiled in parts. */
static void
say_parts(const kin_entry *v, const kin_subgraphs *subgraphs, const kin_launch_context *context)
{
    const kin_trace *t = &v->trace;
    for (uint32_t u = 0; u + 1 < subgraphs->at.len; u++) {
        const kin_subgraph *subgraph = &subgraphs->at.at[u];
        uint32_t graph = t->steps.at[subgraph->first].graph;
        if (subgraph->why == NULL || t->steps.at[subgraphs->at.at[u + 1].first].graph != graph)
            continue;
        kin_event_begin(context->log, KIN_EVENT_PART);
        kin_event_str(context->log, "name", launch_name_of(context));
        kin_event_int(context->log, "entry", context->entry);
        kin_event_int(context->log, "graph", graph);
        kin_event_int(context->log, "step", subgraph->end);
        kin_event_str(context->log, "what", kin_step_name((kin_step_kind)t->steps.at[subgraph->end].kind));
        kin_event_str(context->log, "reason", subgraph->why);
        kin_event_end(context->log);
    }
}

kin_status
kin_launch_plan(kin_entry *v, const kin_launch_context *context)
{
    bool held = kin_signals_hold();
    kin_status ready = kin_capture_init();
    if (held)
        kin_signals_release();
    KIN_TRY(ready);
    if (v->subgraphs == NULL)
        v->grad = kin_grad_enabled();
    kin_subgraphs *subgraphs = kin_subgraphs_find(v, KIN_SUBGRAPHS_WIDE);
    kin_status status = subgraphs == NULL ? KIN_NOMEM : KIN_OK;
    for (uint32_t u = 0; status == KIN_OK && u < subgraphs->at.len; u++)
        status = plan_subgraph(v, subgraphs, u, context);
    if (status != KIN_OK) {
        kin_subgraphs_release(subgraphs);
        return status;
    }
    kin_entry_set_subgraphs(v, subgraphs, kin_subgraphs_release);
    say_parts(v, subgraphs, context);
    return KIN_OK;
}

static kin_status
plan_again(kernel_launcher *self, kin_entry *v)
{
    kin_launch_context context = self->context; /* this launcher may go with its subgraph */
    Py_XINCREF(context.name);
    kin_status status = kin_launch_plan(v, &context);
    Py_XDECREF(context.name);
    return status;
}

kin_status
launch_set_apart(kernel_launcher *self, kin_entry *v, const uint32_t *steps, uint32_t n)
{
    uint32_t before = v->apart.len;
    for (uint32_t i = 0; i < n; i++) {
        if (kin_step_is_in(v->apart.at, v->apart.len, steps[i]))
            continue;
        if (v->apart.len >= APART_LIMIT)
            return KIN_BREAK;
        KIN_TRY(kin_vec_push(&v->apart, steps[i]));
    }
    return v->apart.len == before ? KIN_OK : plan_again(self, v); /* else the subgraph is of an earlier plan */
}

kin_status
launch_add_walls(kin_entry *v, const kin_subgraph *subgraph, const uint32_t *raising, uint32_t n)
{
    uint32_t before = v->walls.len;
    bool raises = false;
    for (uint32_t i = subgraph->first; i <= subgraph->last; i++) {
        raises = raises || kin_step_is_in(raising, n, i);
        if (!raises || subgraph->role[i - subgraph->first] != KIN_ROLE_RISKY || v->trace.steps.at[i].flags & KIN_STEP_SUNK)
            continue;
        KIN_TRY(kin_vec_push(&v->walls, i));
        raises = false;
    }
    return v->walls.len == before ? KIN_OK : KIN_BREAK;
}

kin_status
launch_put_walls(kernel_launcher *self, kin_entry *v, const kin_subgraph *subgraph, const uint32_t *raising, uint32_t n)
{
    kin_status status = launch_add_walls(v, subgraph, raising, n);
    if (status == KIN_BREAK)
        KIN_TRY(plan_again(self, v));
    return status;
}

/* -- words -------------------------------------------------------------------------------------------------------- */

void
launch_say(const kernel_launcher *self, const char *reason)
{
    const kin_launch_context *context = &self->context;
    char text[320];
    snprintf(text, sizeof text, "graph %u of recording %u runs step by step: %s", self->graph, context->entry, reason);
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

static PyObject *
describe_version(const kernel_launcher *self, const launch_version *version)
{
    const launch_code *code = version->code;
    PyObject *frozen = code == NULL || code->frozen == NULL ? Py_NewRef(Py_None) : launch_frozen_describe(code->frozen);
    PyObject *profile = frozen == NULL ? NULL : launch_profile_describe(code);
    if (profile == NULL) {
        Py_XDECREF(frozen);
        return NULL;
    }
    return Py_BuildValue("{s:N,s:N,s:O,s:K,s:K,s:O,s:s,s:z,s:z,s:z,s:I,s:I,s:I,s:I,s:K,s:d,s:d,s:d,s:d,s:d,s:d,s:d}", "profile", profile, "frozen", frozen, "settled", is_settled(self, version) ? Py_True : Py_False, "scratch_bytes",
                         code == NULL ? 0ull : (unsigned long long)code->main.program->arena, "code_bytes",
                         (unsigned long long)version->stats.code_bytes, "compiled", code != NULL ? Py_True : Py_False,
                         "reason", version->reason, "aten", version->aten, "code", version->listing, "not_fused", version->not_fused, "kernels", version->stats.kernels, "native",
                         version->nnative, "extern", version->nextern, "failures", version->failures, "runs",
                         code == NULL ? 0ull : (unsigned long long)code->runs, "capture_ns", version->capture_ns, "lower_ns", version->lower_ns, "fuse_ns",
                         version->stats.fuse_ns, "llvm_ns", version->stats.llvm_ns, "total_ns", version->total_ns, "launch_ns",
                         version->duel.ours, "steps_ns", version->duel.theirs);
}

/* Why nothing, or nothing more, is compiled. */
static const char *
reason_of(const kernel_launcher *self)
{
    enum { MANY = 16 };
    return self->gone[0] != 0 ? self->gone : self->full || self->nstrange >= MANY ? launch_changing : "";
}

static PyObject *
describe_subgraph(const kin_subgraph *subgraph)
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
                                  : Py_BuildValue("{s:I,s:I,s:I,s:O,s:I,s:I,s:s,s:s,s:O}", "graph", self->graph, "first", subgraph->first, "last", subgraph->last,
                                                  "waits", subgraph->waits ? Py_True : Py_False,
                                                  "inputs", subgraph->nin, "outputs", subgraph->nout, "reason", reason_of(self),
                                                  "unfrozen", self->unfreeze,
                                                  "versions", list);
    Py_XDECREF(list);
    return dict;
}

PyObject *
kin_launch_describe(const kin_entry *v)
{
    PyObject *list = PyList_New(0);
    for (uint32_t u = 0; list != NULL && v->subgraphs != NULL && u < v->subgraphs->at.len; u++) {
        const kin_subgraph *subgraph = &v->subgraphs->at.at[u];
        if (subgraph->launcher == NULL || subgraph->launcher->run != run_kernels || ((kernel_launcher *)subgraph->launcher)->single)
            continue;
        PyObject *one = describe_subgraph(subgraph);
        if (one == NULL || PyList_Append(list, one) < 0)
            Py_CLEAR(list);
        Py_XDECREF(one);
    }
    return list;
}
