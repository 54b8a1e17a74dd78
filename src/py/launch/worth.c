/* Is code to be made for a kind of inputs? Sizes that change from call to call bring new kinds all the time, and making code takes
 * as long as many calls. What the first launch gets is taken for what inputs usually are. Every other kind has to have cost, step
 * by step, about what its code will cost; and all that was spent on such kinds stays a small part of the time of the process in
 * graphs, plus what launches have saved. So calls with many sizes take little longer than without kernels, whatever comes.
 */
#include <stdio.h>
#include <string.h>

#include "py/aten/tensor.h"
#include "py/launch/frozen.h"
#include "py/launch/launch.h"

static const double PART = 0.15;       /* of the time in graphs that may be spent */
static const double FIRST_NS = 1e6;    /* for each call of a subgraph nothing is known of: making code */
static const double CALL_NS = 4e3, BYTE_NS = 0.2; /* ... doing the call */
static const double PACK_NS = 1.5;                /* for each byte of a parameter: packing it at the first launch */
enum {
    LIVE_LIMIT = 8,    /* kinds of a subgraph that have code at a time */
    KIND_LIMIT = 64,   /* that ever had some */
    TOLD = 16          /* kinds without code from which that is said */
};
static const size_t KEPT_LIMIT = (size_t)1 << 30; /* bytes made of weights for all kinds of a subgraph, but for one of them */

/* Of the process, nanoseconds. Python's lock guards it. */
static struct {
    double lived, spent, saved;
} account;

static double made; /* nanoseconds that all code has taken */

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

/* Parameters are packed for each kind anew. */
static double
guess_packing(const kernel_launcher *self, const kin_subgraph *subgraph, PyObject *const *in)
{
    double ns = 0;
    for (uint32_t i = 0; self->context.freezing && i < subgraph->nin; i++)
        if (kin_is_plain_tensor(in[i]) && !kin_is_tensor_type((PyObject *)Py_TYPE(in[i])))
            ns += bytes_of(in[i]) * PACK_NS;
    return ns;
}

/* What making code will cost, and what comes with its first launch: as much as the last time. */
static double
guess_cost(const kernel_launcher *self, const kin_subgraph *subgraph, PyObject *const *in, uint32_t ncalls)
{
    double first = self->first_ns > 0 ? self->first_ns : guess_packing(self, subgraph, in);
    for (uint32_t i = self->versions.len; i-- > 0;)
        if (self->versions.at[i]->total_ns > 0)
            return self->versions.at[i]->total_ns + first;
    return FIRST_NS * ncalls + first;
}

/* What a call takes step by step, where nobody looked at the clock. */
static double
guess_steps(const kin_subgraph *subgraph, PyObject *const *in, uint32_t ncalls)
{
    double bytes = 0;
    for (uint32_t i = 0; i < subgraph->nin; i++)
        bytes += kin_is_tensor(in[i]) ? bytes_of(in[i]) : 0;
    return ncalls * (CALL_NS + bytes * BYTE_NS);
}

/* The entry of the kind; the one not met for longest makes room. */
static launch_kind *
find_kind(kernel_launcher *self, uint64_t hash)
{
    enum { ROOM = sizeof self->kinds / sizeof *self->kinds };
    launch_kind *oldest = &self->kinds[0];
    for (uint32_t i = 0; i < ROOM; i++) {
        launch_kind *kind = &self->kinds[i];
        if (kind->n > 0 && kind->hash == hash)
            return kind;
        if (kind->met < oldest->met)
            oldest = kind;
    }
    *oldest = (launch_kind){.hash = hash};
    self->nstrange++;
    return oldest;
}

/* How long the steps took, when that was seen. */
static double
take_time(kernel_launcher *self)
{
    double ns = self->begun > 0 ? launch_now() - self->begun : 0;
    self->begun = 0;
    return ns;
}

static bool
pays(kernel_launcher *self, const kin_entry *v, const kin_subgraph *subgraph, PyObject *const *in)
{
    uint32_t ncalls = count_calls(v, subgraph);
    launch_kind *kind = find_kind(self, launch_signature_hash(in, subgraph->nin));
    double ns = take_time(self), cost = guess_cost(self, subgraph, in, ncalls);
    ns = ns > 0 ? ns : guess_steps(subgraph, in, ncalls);
    account.lived += ns;
    kind->ns += ns;
    kind->met = ++self->clock;
    if (self->nstrange == TOLD) {
        self->nstrange++;
        launch_say(self, launch_changing);
    }
    if (++kind->n < 2 || 2 * kind->ns < cost || account.spent + cost > PART * account.lived + account.saved)
        return false;
    *kind = (launch_kind){0};
    return true;
}

static size_t
kept_by(const launch_version *version)
{
    return version->code == NULL || version->code->frozen == NULL ? 0 : launch_frozen_bytes(version->code->frozen);
}

/* Code that was not used for longest goes where there is too much of it. False: it is all running. */
static bool
make_room(kernel_launcher *self)
{
    for (;;) {
        launch_version *oldest = NULL;
        size_t kept = 0;
        uint32_t live = 0;
        for (uint32_t i = 0; i < self->versions.len; i++) {
            launch_version *version = self->versions.at[i];
            if (version->code == NULL)
                continue;
            live++;
            kept += kept_by(version);
            if (oldest == NULL || version->used < oldest->used)
                oldest = version;
        }
        if (oldest == NULL || (live < LIVE_LIMIT && (live < 2 || kept < KEPT_LIMIT)))
            return true;
        if (!launch_drop(oldest))
            return false;
        oldest->retired = true;
        snprintf(oldest->reason, sizeof oldest->reason, "not used for long: code for other kinds of inputs took its place");
    }
}

/* Do calls mostly go the way that was recorded? What leaves in the middle, or may do so for all that is known yet, comes through its
 * later subgraphs seldom, and each of them is code of its own. */
static bool
is_usual_way(const kin_entry *v)
{
    return v->trace.nbreaks == 0 || v->hits > v->exits;
}

bool
launch_is_worth(kernel_launcher *self, const kin_entry *v, const kin_subgraph *subgraph, PyObject *const *in)
{
    if (self->context.trials == 0)
        return self->versions.len < LIVE_LIMIT;
    if (self->versions.len == 0 && !self->varies && is_usual_way(v))
        return true;
    if (self->versions.len >= KIND_LIMIT) {
        if (!self->full)
            launch_say(self, launch_changing);
        self->full = true;
        return false;
    }
    return pays(self, v, subgraph, in) && make_room(self);
}

bool
launch_is_worth_again(kernel_launcher *self, const launch_version *version, const kin_entry *v, const kin_subgraph *subgraph,
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
    double more = ns - version->duel.theirs;
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
    if (version->duel.nours == 0 || version->duel.ntheirs == 0)
        return;
    account.lived += version->duel.ours;
    if (version->duel.theirs > version->duel.ours)
        account.saved += version->duel.theirs - version->duel.ours;
}

void
launch_begin_steps(kernel_launcher *self)
{
    self->begun = launch_now();
}

static bool
has_size(const kin_trace *t, uint32_t first, uint32_t last)
{
    for (uint32_t i = first; i <= last; i++)
        if (t->steps.at[i].kind == KIN_STEP_SIZE)
            return true;
    return false;
}

/* Does the path go on from this part of it because a test did not pass? What lies behind may never be met again. */
static bool
is_chosen_by_data(const kin_trace *t, const kin_path *path, uint32_t part, uint32_t subgraph)
{
    return path->at[part].last < subgraph && part + 1 < path->len && t->steps.at[path->at[part].last].kind == KIN_STEP_CHECK;
}

bool
launch_subgraph_varies(const kin_entry *v, const kin_subgraph *subgraph)
{
    const kin_trace *t = &v->trace;
    kin_path path = {0};
    bool varies = has_size(t, subgraph->first, subgraph->last);
    if (!varies && kin_trace_path(t, subgraph->first, &path) == KIN_OK)
        for (uint32_t p = 0; p < path.len && !varies; p++)
            varies = is_chosen_by_data(t, &path, p, subgraph->first) || has_size(t, path.at[p].first, path.at[p].last);
    kin_vec_deinit(&path);
    return varies;
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
