/* One compilation for all sizes (docs/design/sizes.md). The first kind of sizes of a subgraph gets code of its own. At the second one, machine code is compiled
 * that takes sizes as arguments; from then on, a new kind of sizes only needs a *plan*: capture and passes without LLVM. This file decides
 * when a plan is worth making, finds the plan for the sizes of a call, and compares code with steps once for all sizes.
 */
#include <stdio.h>
#include <stdlib.h>

#include "core/base/clock.h"
#include "core/tier/tier.h"
#include "py/launch/launch_priv.h"

bool
launch_sizes_are_on(const kernel_launcher *self)
{
    return self->context.sizes && !self->sizes.off;
}

bool
launch_sizes_vary(const kernel_launcher *self)
{
    return launch_sizes_are_on(self) && (self->sizes.met || self->versions.len > 1);
}

kin_family *
launch_sizes_family(kernel_launcher *self, bool backward)
{
    kin_family **f = backward ? &self->sizes.backward : &self->sizes.main;
    if (!launch_sizes_are_on(self))
        return NULL;
    if (*f == NULL)
        *f = kin_family_new(false); /* out of memory: code for these sizes only */
    return *f;
}

void
launch_sizes_deinit(launch_sizes *s)
{
    kin_family_free(s->main);
    kin_family_free(s->backward);
    kin_ir_common_deinit(&s->common);
    kin_table_deinit(&s->by_signature);
    for (uint32_t i = 0; i < s->jobs.len; i++)
        launch_ticket_release(s->jobs.at[i].ticket);
    kin_vec_deinit(&s->jobs);
    launch_templates_deinit(&s->templates);
    *s = (launch_sizes){0};
}

/* -- finding ------------------------------------------------------------------------------------------------------------ */

/* Sizes repeat, so plans are useful. A version without code counts as used when it is found, so that refused sizes are not tried again and again. */
static launch_version *
take(kernel_launcher *self, launch_version *version)
{
    if (version->code == NULL)
        version->used = ++self->clock;
    else
        self->sizes.tries = 0;
    self->sizes.last = version->number;
    return version;
}

launch_version *
launch_sizes_find(kernel_launcher *self, PyObject *const *in, uint32_t n)
{
    enum { FEW = 4 };
    launch_sizes *s = &self->sizes;
    launch_version *const *at = self->versions.at;
    if (s->last < self->versions.len && !at[s->last]->spare && launch_signature_fits(&at[s->last]->signature, in))
        return take(self, at[s->last]);
    for (uint32_t i = 0; self->versions.len <= FEW && i < self->versions.len; i++)
        if (!at[i]->spare && launch_signature_fits(&at[i]->signature, in))
            return take(self, at[i]);
    if (self->versions.len <= FEW)
        return NULL;
    uint64_t hash = launch_signature_hash(in, n, self->open);
    uint32_t number, place = 0;
    while ((number = kin_table_next(&s->by_signature, hash, &place)) != KIN_TABLE_NONE)
        if (launch_signature_fits(&at[number]->signature, in))
            return take(self, at[number]);
    return NULL;
}

/* -- places ------------------------------------------------------------------------------------------------------------- */

/* A replay that has chosen the version may still hold it (py/replay/pending.c), so the place is kept. */
void
launch_sizes_leave(kernel_launcher *self, launch_version *version)
{
    kin_table_remove(&self->sizes.by_signature, version->hash, version->number);
    version->spare = self->sizes.evicted = true;
    version->next_spare = self->sizes.spare;
    self->sizes.spare = version;
}

static launch_version *
find_place(kernel_launcher *self)
{
    if (self->sizes.spare != NULL)
        return self->sizes.spare;
    launch_version *version = calloc(1, sizeof *version);
    if (version == NULL)
        return NULL;
    *version = (launch_version){.number = self->versions.len, .spare = true};
    if (kin_vec_push(&self->versions, version) == KIN_OK)
        return version;
    free(version);
    return NULL;
}

void
launch_sizes_enter_again(kernel_launcher *self, launch_version *version, PyObject *const *in)
{
    kin_table *t = &self->sizes.by_signature;
    if (version->hash != 0) {
        kin_table_remove(t, version->hash, version->number);
        version->hash = launch_signature_hash(in, version->signature.n, self->open);
        if (kin_table_reserve(t, 1) == KIN_OK && kin_table_add(t, version->hash, version->number) != KIN_OK)
            version->hash = 0; /* it is no longer found */
    }
}

launch_version *
launch_sizes_enter(kernel_launcher *self, launch_signature *signature, PyObject *const *in)
{
    uint64_t hash = launch_signature_hash(in, signature->n, self->open);
    launch_version *version = kin_table_reserve(&self->sizes.by_signature, 1) != KIN_OK ? NULL : find_place(self);
    if (version == NULL || kin_table_add(&self->sizes.by_signature, hash, version->number) != KIN_OK)
        return NULL;
    launch_version before = *version;
    self->sizes.spare = before.next_spare;
    *version = (launch_version){.signature = *signature, .hash = hash, .number = before.number, .used = ++self->clock};
    *signature = (launch_signature){0};
    launch_version_deinit(&before);
    return version;
}

/* -- in the background ---------------------------------------------------------------------------------------------------- */

/* Code for one kind of sizes is waited for, because it serves the next call; a program that has another kind in each call has run without code so far, and can do so
 * a little longer. */
bool
launch_sizes_go_behind(const kernel_launcher *self)
{
    const launch_sizes *s = &self->sizes;
    return self->context.async_sizes && self->context.trials > 0 && s->waits < KIN_TIER_BACKGROUND_TRIES && launch_sizes_vary(self);
}

void
launch_sizes_begin_wait(kernel_launcher *self, launch_ticket *ticket, uint64_t class)
{
    launch_sizes *s = &self->sizes;
    s->waits++;
    if (kin_vec_reserve(&s->jobs, 1) == KIN_OK) /* without memory nothing waits for it but its version */
        s->jobs.at[s->jobs.len++] = (launch_sizes_job){launch_ticket_hold(ticket), class};
}

static void
take_finished(launch_sizes *s)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < s->jobs.len; i++) {
        kin_compile_stats made = {0};
        launch_ticket *ticket = s->jobs.at[i].ticket;
        if (!launch_ticket_done(ticket)) {
            s->jobs.at[kept++] = s->jobs.at[i];
            continue;
        }
        launch_ticket_stats(ticket, &made);
        made.kernels = made.from_memory = 0; /* the version has its own */
        kin_compile_stats_add(&s->made, &made);
        launch_ticket_release(ticket);
        s->came = true;
    }
    s->jobs.len = kept;
}

/* Once some code is there, it probably serves inputs of other classes than the one that is waited for. */
bool
launch_sizes_wait(kernel_launcher *self, PyObject *const *in, uint32_t n)
{
    launch_sizes *s = &self->sizes;
    take_finished(s);
    bool waits = s->jobs.len > 0 && !s->came;
    uint64_t class = s->jobs.len > 0 && s->came ? launch_signature_class(in, n, self->open) : 0;
    for (uint32_t i = 0; i < s->jobs.len && !waits; i++)
        waits = s->jobs.at[i].class == class;
    return waits;
}

void
launch_sizes_count_made(kernel_launcher *self, launch_version *version)
{
    take_finished(&self->sizes);
    kin_compile_stats_add(&version->stats, &self->sizes.made);
    self->sizes.made = (kin_compile_stats){0};
}

/* -- what a plan costs and gains ------------------------------------------------------------------------------------------ */

void
launch_sizes_take_over(const kernel_launcher *self, launch_version *version)
{
    const launch_sizes *s = &self->sizes;
    if (version->code != NULL && (version->code->training != NULL ? s->settled_training : s->settled))
        version->abtest = (kin_abtest){.ours = s->ours / s->tried, .theirs = s->theirs / s->tried, .nours = 1, .ntheirs = 1, .warm = true,
                                       .decided = true, .uses = KIN_TIER_AB_FIRST_USES};
}

/* One expensive run, perhaps because of another process, says little: the lowest cost counts, raised by each run that costs more. */
static void
note_least(double *least, double ns)
{
    *least = *least == 0 || ns < *least ? ns : KIN_TIER_PLAN_DEARER * *least;
}

void
launch_sizes_note_made(kernel_launcher *self, launch_version *version, double ns)
{
    launch_sizes *s = &self->sizes;
    if (!launch_sizes_are_on(self) || version->code == NULL)
        return;
    s->tries += s->tries < KIN_TIER_PLAN_AGAIN_DOUBLES && s->without >= KIN_TIER_PLAN_AGAIN * (1u << s->tries);
    s->without = 0;
    s->nmade += s->ready && !version->copied;
    s->ncopied += version->copied;
    if (version->stats.compiled == 0 && version->stats.from_disk == 0)
        note_least(version->copied ? &s->copy_ns : &s->plan_ns, ns);
    s->ready = s->ready || self->versions.len > 1 || s->met;
    launch_sizes_take_over(self, version);
}

static bool
is_settled(const launch_sizes *s)
{
    return s->settled || s->settled_training;
}

double
launch_sizes_lost(const kernel_launcher *self, double ns)
{
    const launch_sizes *s = &self->sizes;
    return !s->ready || !is_settled(s) ? ns : s->theirs > s->ours ? (s->theirs - s->ours) / s->tried : 0;
}

/* What a call gains from code, in nanoseconds; increased if no plan was made for long. Sizes and numbers that never repeat, as those of a counter, get this
 * increase more and more rarely. */
static double
gain(const launch_sizes *s)
{
    return (1 + s->without / (KIN_TIER_PLAN_AGAIN * (1u << s->tries))) * (s->theirs - s->ours) / s->tried;
}

bool
launch_sizes_copy_pays(const kernel_launcher *self)
{
    const launch_sizes *s = &self->sizes;
    return s->ready && (!is_settled(s) || s->copy_ns <= KIN_TIER_COPY_MOST_COST * gain(s));
}

bool
launch_sizes_plan_pays(const kernel_launcher *self)
{
    const launch_sizes *s = &self->sizes;
    if (!s->ready)
        return false;
    if (!is_settled(s) || (s->nmade + s->ncopied < KIN_TIER_PLANS_LEARN && launch_templates_want_more(self))) /* a few plans are enough to know */
        return true;
    double plan_ns = s->plan_ns > 0 ? s->plan_ns : KIN_TIER_GUESS_COMPILE_NS;
    double copy_ns = s->copy_ns * KIN_TIER_PLAN_MOST_COST / KIN_TIER_COPY_MOST_COST;
    return (plan_ns * (1 + s->nmade) + copy_ns * s->ncopied) / (1 + s->nmade + s->ncopied) <= KIN_TIER_PLAN_MOST_COST * gain(s);
}

bool
launch_sizes_widening_pays(const kernel_launcher *self)
{
    const launch_sizes *s = &self->sizes;
    return s->ready && self->nplans < KIN_TIER_EVER_PLANS && launch_sizes_copy_pays(self) && launch_templates_known(self) &&
           (launch_sizes_plan_pays(self) || s->plan_ns <= KIN_TIER_WIDE_PLAN_MOST_COST * gain(s));
}

/* -- one comparison for all sizes ----------------------------------------------------------------------------------------- */

bool
launch_sizes_are_in_trial(const kernel_launcher *self, const launch_version *version)
{
    return launch_sizes_are_on(self) && self->sizes.ready && !self->sizes.settled && self->context.trials > 0 && version->code->training == NULL &&
           version->code->nwrites == 0 && !version->abtest.decided && version->abtest.ntheirs == 0;
}

void
launch_sizes_note_training(kernel_launcher *self, const launch_version *version)
{
    launch_sizes *s = &self->sizes;
    const kin_abtest *t = &version->abtest;
    bool clear = t->ours <= KIN_TIER_AB_CLEARLY * t->theirs;
    if (!launch_sizes_are_on(self) || !s->ready || s->settled_training || t->nours == 0 || t->ntheirs == 0 || (!clear && !t->decided))
        return;
    s->ours += t->ours;
    s->theirs += t->theirs;
    s->tried++;
    s->settled_training = clear || (s->tried >= KIN_TIER_AB_FEW && s->ours <= s->theirs); /* the gain may be small, but every size has it */
}

bool
launch_sizes_may_run_alone(const kernel_launcher *self, const launch_version *version)
{
    const launch_sizes *s = &self->sizes;
    return s->alone < KIN_TIER_AB_ALONE && s->steps_ns > 0 && launch_sizes_are_on(self) && (s->settled ? s->expected : s->ready && s->tried == 0) &&
           self->context.trials > 0 && version->code->training == NULL && version->code->nwrites == 0;
}

/* What a call gains is told by the best of these runs, since the first ones find nothing in the processor's caches, and for the sizes whose steps were timed: what small ones take
 * is expected too low. */
void
launch_sizes_note_alone(kernel_launcher *self, const launch_timing *t, double usual)
{
    launch_sizes *s = &self->sizes;
    if (!s->settled && t->ours >= KIN_TIER_AB_CLEARLY * t->theirs)
        return;
    double share = t->ours < usual ? t->ours / usual : 1;
    if (!s->settled || share * s->theirs < s->ours)
        s->ours = share * s->steps_ns;
    s->theirs = s->steps_ns;
    s->settled = s->expected = true;
    s->tried = 1;
}

/* Steps and code were both timed in one call. */
void
launch_sizes_note_trial(kernel_launcher *self, const launch_timing *t)
{
    launch_sizes *s = &self->sizes;
    s->ours += t->ours;
    s->theirs += t->theirs;
    s->tried++;
    bool clear = s->tried >= KIN_TIER_AB_FEW && s->ours < KIN_TIER_AB_CLEARLY * s->theirs;
    bool once = s->tried == 1 && !t->disturbed && s->ours < KIN_TIER_AB_ONCE * s->theirs;
    if (!clear && !once && s->tried < self->context.trials)
        return;
    if (s->ours > s->theirs && !kin_abtest_drops(s->ours, s->theirs, s->tried, self->context.trials))
        return;
    s->settled = s->ours <= s->theirs;
    if (s->settled)
        return;
    s->off = true;
    char reason[160];
    snprintf(reason, sizeof reason, "code for all sizes was slower: %.1f us step by step, %.1f us compiled", s->theirs / s->tried / 1e3, s->ours / s->tried / 1e3);
    launch_say(self, reason);
}
