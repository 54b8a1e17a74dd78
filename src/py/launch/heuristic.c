/* Is it worth compiling for these inputs? The rules are in core/tier/compile_heuristic.h. This file supplies what they need (how long the
 * steps took, what the last compilation cost, how many bytes are packed), and evicts code to make room.
 */
#include <stdio.h>
#include <string.h>

#include "core/base/clock.h"
#include "core/trace/effects.h"
#include "py/aten/tensor.h"
#include "py/launch/launch_priv.h"

/* Totals of the process, guarded by the GIL. */
static kin_compile_account account;

static double made; /* nanoseconds spent on compiling so far */

static uint32_t
count_calls(const kin_entry *v, const kin_subgraph *subgraph)
{
    uint32_t n = 0;
    for (uint32_t i = subgraph->first; i <= subgraph->last; i++)
        n += kin_subgraph_calls(&v->trace.steps.at[i]) && !(v->trace.steps.at[i].flags & KIN_STEP_SUNK);
    return n;
}

static double
bytes_of(PyObject *tensor)
{
    double n = 4;
    for (int64_t d = 0; d < kin_tensor_dim(tensor); d++)
        n *= (double)kin_tensor_sizes(tensor)[d];
    return n;
}

/* Bytes of parameters, which are packed again for each kind of inputs. */
static double
parameter_bytes(const kernel_launcher *self, const kin_subgraph *subgraph, PyObject *const *in)
{
    double bytes = 0;
    for (uint32_t i = 0; self->context.freezing && i < subgraph->nin; i++)
        if (kin_is_plain_tensor(in[i]) && !kin_is_tensor_type((PyObject *)Py_TYPE(in[i])))
            bytes += bytes_of(in[i]);
    return bytes;
}

static double
input_bytes(const kin_subgraph *subgraph, PyObject *const *in)
{
    double bytes = 0;
    for (uint32_t i = 0; i < subgraph->nin; i++)
        bytes += kin_is_tensor(in[i]) ? bytes_of(in[i]) : 0;
    return bytes;
}

/* The time of the last compilation; 0: there was none. */
static double
last_compile_ns(const kernel_launcher *self)
{
    for (uint32_t i = self->versions.len; i-- > 0;)
        if (self->versions.at[i]->total_ns > 0)
            return self->versions.at[i]->total_ns;
    return 0;
}

/* How long the steps took; 0: not measured. */
static double
take_time(kernel_launcher *self)
{
    double ns = self->begun.clock > 0 ? kin_clock_ns() - self->begun.clock : 0;
    self->begun.clock = 0;
    return ns;
}

/* Until code for all sizes exists, all sizes count as one kind, whose code must pay for itself. */
enum { ANY_SIZES = 1 };

static bool
pays(kernel_launcher *self, kin_entry *v, const kin_subgraph *subgraph, PyObject *const *in)
{
    bool sizes = launch_sizes_are_on(self), ready = sizes && self->sizes.ready;
    uint32_t ncalls = count_calls(v, subgraph);
    double packed = self->first_ns > 0 ? 0 : parameter_bytes(self, subgraph, in);
    double cost = kin_compile_guess_cost(ncalls, last_compile_ns(self), self->first_ns, packed);
    if (ready && self->sizes.plan_ns > 0)
        cost = self->sizes.plan_ns;
    double ns = take_time(self);
    ns = ns > 0 ? ns : kin_compile_guess_calls(ncalls, input_bytes(subgraph, in));
    if (sizes && !ready && self->versions.len == 0 && !self->sizes.met && ns * KIN_TIER_PLAN_MEET > ncalls * KIN_TIER_GUESS_PLAN_NS) {
        launch_meet(self, v, subgraph, in);
        return false;
    }
    self->sizes.without += ready;
    bool pay = (ready && launch_sizes_plan_pays(self)) ||
               kin_compile_pays(&account, &self->kinds, sizes && !ready ? ANY_SIZES : launch_signature_hash(in, subgraph->nin, self->open), ns,
                                launch_sizes_lost(self, ns), cost);
    if (launch_is_changing(self) && !self->said_changing) {
        self->said_changing = true;
        launch_say(self, launch_changing);
    }
    return pay;
}

bool
launch_is_changing(const kernel_launcher *self)
{
    return self->full || (!launch_sizes_are_on(self) && self->kinds.strange >= KIN_TIER_CHANGING_KINDS);
}

static size_t
kept_by(const launch_version *version)
{
    return version->code == NULL || version->code->frozen == NULL ? 0 : launch_frozen_bytes(version->code->frozen);
}

static bool
evict(kernel_launcher *self, launch_version *version)
{
    if (version->code != NULL && !launch_drop(version))
        return false;
    version->retired = true;
    snprintf(version->reason, sizeof version->reason, "evicted as the least recently used of the versions compiled for this graph");
    if (launch_sizes_are_on(self))
        launch_sizes_leave(self, version);
    return true;
}

/* Evicts the least recently used code while there is too much of it. If sizes vary, versions that cannot be compiled are numerous too, and are evicted as well.
 * False: all of it is running. */
static bool
make_room(kernel_launcher *self)
{
    bool sizes = launch_sizes_are_on(self);
    for (;;) {
        launch_version *oldest = NULL;
        size_t kept = 0;
        uint32_t live = 0;
        for (uint32_t i = 0; i < self->versions.len; i++) {
            launch_version *version = self->versions.at[i];
            if (version->spare || version->ticket != NULL || (version->code == NULL && !sizes))
                continue;
            live++;
            kept += kept_by(version);
            if (oldest == NULL || version->used < oldest->used)
                oldest = version;
        }
        uint32_t most = sizes ? KIN_TIER_LIVE_PLANS : KIN_TIER_LIVE_KINDS;
        if (oldest == NULL || (live < most && (live < 2 || kept < KIN_TIER_KEPT_BYTES)))
            return true;
        if (!evict(self, oldest))
            return false;
    }
}

/* Do most calls stay on the recorded trace? If they leave it in the middle, later subgraphs are rarely reached, and each of them costs
 * a compilation. */
static bool
is_usual_way(const kin_entry *v)
{
    return v->trace.nbreaks == 0 || v->hits > v->exits;
}

/* Are the tensors of this call like those of the recorded one? */
static bool
is_as_recorded(const kin_entry *v, const kin_subgraph *subgraph, PyObject *const *in)
{
    bool same = true;
    for (uint32_t i = 0; i < subgraph->nin && same; i++) {
        kin_ref note = v->trace.vals.at[subgraph->in[i]].note;
        PyObject *recorded = note != 0 && kin_is_tensor(in[i]) ? kin_refs_get(&v->refs, note) : NULL;
        PyObject *now = recorded == NULL ? NULL : kin_tensor_note(in[i]);
        same = now == NULL || PyUnicode_Compare(now, recorded) == 0;
        Py_XDECREF(now);
    }
    PyErr_Clear();
    return same;
}

/* The first sizes are only noted: code for the next ones leaves open what differs. */
static bool
meets_second(kernel_launcher *self, kin_entry *v, const kin_subgraph *subgraph, PyObject *const *in)
{
    bool met = self->sizes.met;
    if (!met)
        launch_meet(self, v, subgraph, in);
    return met;
}

/* Were there so many kinds of inputs that the passes no longer run for new ones? */
static bool
had_enough(kernel_launcher *self)
{
    if (self->nplans < (launch_sizes_are_on(self) ? KIN_TIER_EVER_PLANS : KIN_TIER_EVER_KINDS))
        return false;
    if (!self->full && !self->said_changing)
        launch_say(self, launch_changing);
    self->full = self->said_changing = true;
    return true;
}

/* For reports. */
static bool
not_yet(kernel_launcher *self, const char *why)
{
    self->not_yet = why;
    return false;
}

bool
launch_compile_pays(kernel_launcher *self, kin_entry *v, const kin_subgraph *subgraph, PyObject *const *in, launch_copy *copy)
{
    if (launch_sizes_wait(self, in, subgraph->nin)) {
        v->waits++;
        return not_yet(self, "code for all sizes is still being compiled in the background");
    }
    if (launch_sizes_copy_pays(self) && launch_template_find(self, in, subgraph->nin, copy)) /* costs next to nothing, except for small subgraphs */
        return make_room(self);
    if (had_enough(self))
        return false;
    if (self->context.trials == 0)
        return self->versions.len < KIN_TIER_LIVE_KINDS || (launch_sizes_are_on(self) && make_room(self));
    bool sizes = launch_sizes_are_on(self) && !self->must_pay;
    if (self->versions.len == 0 && !self->varies && is_usual_way(v) && (!sizes || self->sizes.met || is_as_recorded(v, subgraph, in)))
        return true;
    if (self->versions.len == 0 && sizes && is_usual_way(v))
        return meets_second(self, v, subgraph, in) || not_yet(self, "the first sizes of its inputs are only looked at: the next ones get code for all sizes");
    if (self->versions.len < KIN_TIER_FEW_KINDS + self->sizes.waits && sizes && !self->sizes.ready && is_usual_way(v)) /* the second kind: code for all of them */
        return true;
    return (pays(self, v, subgraph, in) && make_room(self)) ||
           not_yet(self, "its calls have not yet taken so much time without code that compiling it pays");
}

bool
launch_compile_pays_again(kernel_launcher *self, const launch_version *version, kin_entry *v, const kin_subgraph *subgraph,
                      PyObject *const *in)
{
    return version->retired && pays(self, v, subgraph, in) && make_room(self);
}

void
launch_note_cost(const kernel_launcher *self, const launch_version *version)
{
    made += version->total_ns;
    if (self->versions.len > 1 || self->varies)
        account.spent += version->total_ns;
}

void
launch_note_first(kernel_launcher *self, const launch_version *version, double ns)
{
    double more = ns - version->abtest.theirs;
    if (more <= 0)
        return;
    self->first_ns = more;
    if (self->versions.len > 1 || self->varies)
        account.spent += more;
}

void
launch_note_use(kernel_launcher *self, launch_version *version)
{
    version->used = ++self->clock;
    if (version->abtest.nours == 0 || version->abtest.ntheirs == 0)
        return;
    kin_compile_note_run(&account, version->abtest.ours, version->abtest.theirs);
}

void
launch_begin_steps(kernel_launcher *self)
{
    self->begun = launch_timing_begin();
}

static bool
has_size(const kin_trace *t, uint32_t first, uint32_t last)
{
    for (uint32_t i = first; i <= last; i++)
        if (t->steps.at[i].kind == KIN_STEP_SIZE)
            return true;
    return false;
}

/* Does the check test a number that sizes decide, as in `if batch == 1`? */
static bool
asks_for_size(const kin_trace *t, const kin_step *check)
{
    const kin_val *val = check->nargs > 0 ? &t->vals.at[t->vids.at[check->args]] : NULL;
    const kin_step *maker = val != NULL && val->kind == KIN_VAL_STEP ? &t->steps.at[val->step] : NULL;
    return maker != NULL && maker->flags & KIN_STEP_SIZED && kin_step_does(maker, KIN_GIVES_NUMBER);
}

/* Does the path continue from this part because a check failed? What follows may never be reached again, unless sizes decide: those come back. */
static bool
is_chosen_by_data(const kin_trace *t, const kin_path *path, uint32_t part, uint32_t subgraph)
{
    const kin_step *last = &t->steps.at[path->at[part].last];
    return path->at[part].last < subgraph && part + 1 < path->len && last->kind == KIN_STEP_CHECK && !asks_for_size(t, last);
}

/* Is that true of any part of the path to the subgraph, or of the subgraph itself? */
static bool
is_on_the_way(const kin_entry *v, const kin_subgraph *subgraph, bool (*is_such)(const kin_trace *, const kin_path *, uint32_t part, uint32_t subgraph))
{
    kin_path path = {0};
    bool found = false;
    if (kin_trace_path(&v->trace, subgraph->first, &path) == KIN_OK)
        for (uint32_t p = 0; p < path.len && !found; p++)
            found = is_such(&v->trace, &path, p, subgraph->first);
    kin_vec_deinit(&path);
    return found;
}

static bool
has_size_there(const kin_trace *t, const kin_path *path, uint32_t part, uint32_t subgraph)
{
    return has_size(t, path->at[part].first, path->at[part].last);
}

bool
launch_subgraph_varies(const kin_entry *v, const kin_subgraph *subgraph)
{
    return has_size(&v->trace, subgraph->first, subgraph->last) || is_on_the_way(v, subgraph, has_size_there);
}

bool
launch_subgraph_is_chosen(const kin_entry *v, const kin_subgraph *subgraph)
{
    return is_on_the_way(v, subgraph, is_chosen_by_data);
}

double
kin_launch_made(void)
{
    return made;
}

void
kin_launch_forget_costs(void)
{
    memset(&account, 0, sizeof account);
}
