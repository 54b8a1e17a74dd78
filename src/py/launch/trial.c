/* A/B timing of compiled code. Its first runs alternate with the steps they replace, so that nothing is computed twice, and the slower
 * of the two is dropped (core/tier/abtest.h). The steps go first: their results show whether the capture was right (verify.c). The first
 * run of the code only warms up. Code whose runs fail too often is dropped as well.
 */
#include <stdio.h>
#include <stdlib.h>

#include "core/base/clock.h"
#include "py/aten/profiler.h"
#include "py/launch/launch_priv.h"

/* -- failed runs ---------------------------------------------------------------------------------- */

/* Adds the hints to those of the version. False: none is new, so compiling again would not help. */
static bool
learn(launch_version *version, const kin_capture_hints *hints)
{
    enum { MOST = 1000 };
    if (version->hints.len + hints->len > MOST)
        return false;
    for (uint32_t k = 0; k < hints->len; k++) {
        const kin_capture_hint *hint = &hints->at[k];
        for (uint32_t i = 0; i < version->hints.len; i++)
            if (version->hints.at[i].call == hint->call && version->hints.at[i].which == hint->which)
                return false;
        if (kin_vec_push(&version->hints, *hint) != KIN_OK)
            return false;
    }
    return hints->len > 0;
}

bool
launch_drop(launch_version *version)
{
    if (version->code == NULL || version->code->running != 0)
        return false;
    launch_code_free(version->code);
    version->code = NULL;
    return true;
}

/* Does it have side effects other than writing to inputs: drawing random numbers, say? */
bool
launch_acts(const launch_version *version)
{
    const launch_program *p = &version->code->main;
    for (uint32_t i = 0; i < p->program->externs.len; i++)
        if (p->externs[i].effect)
            return true;
    return false;
}

/* How often weights were packed or folded again. */
static uint64_t
renewals(const launch_version *version)
{
    return version->code == NULL || version->code->frozen == NULL ? 0 : launch_frozen_renewals(version->code->frozen);
}

/* The run failed: decides whether the code is dropped or compiled again. */
static void
fail(kernel_launcher *self, launch_version *version, const launch_outcome *outcome)
{
    version->failures++;
    if (outcome->invalid && ++version->nans >= KIN_TIER_LOST_NANS && launch_drop(version)) {
        self->exact_nan = version->again = true;
        launch_say_unfrozen(self, "NaN values are common in it: recompiled without the operations that would lose them");
    } else if (outcome->warned && launch_drop(version)) { /* the steps show the warning */
        snprintf(version->reason, sizeof version->reason, "an operator in it warns, and only step by step is the warning shown");
        launch_say(self, version->reason);
    } else if (outcome->foreign[0] != 0 && launch_drop(version)) {
        version->again = learn(version, &outcome->hints);
        snprintf(version->reason, sizeof version->reason, "%s returned another size, stride or dtype than its captured one", outcome->foreign);
        if (!version->again)
            launch_say(self, version->reason);
    } else if (version->failures >= KIN_TIER_FAILED_RUNS && version->failures > version->code->runs && launch_drop(version)) {
        snprintf(version->reason, sizeof version->reason, "most of its runs failed and were repeated step by step"); /* each costs as much as the steps */
        launch_say(self, version->reason);
    }
}

/* Weights changed too often: the next call compiles without treating them as constants. */
static void
give_up_frozen(kernel_launcher *self, launch_version *version)
{
    if (version->code->running > 0 || !launch_frozen_lost(version->code->frozen, &self->unfrozen))
        return;
    launch_say_unfrozen(self, launch_frozen_why(version->code->frozen));
    if (!launch_drop(version))
        return;
    version->again = true;
    version->abtest = (kin_abtest){0};
}

/* Slower than its steps: it is compiled and compared again after a time that is long compared with compiling. */
static void
back_off(launch_version *version)
{
    double ns = kin_compile_retry_after(version->total_ns, version->drops++);
    version->retry_at = ns > 0 ? kin_clock_ns() + ns : 0;
}

/* A forward that has to be repeated in each step: retried after the same time as slower code. */
static void
give_up_twice(kernel_launcher *self, launch_version *version)
{
    if (!launch_drop(version))
        return;
    back_off(version);
    snprintf(version->reason, sizeof version->reason, "its gradients are differentiated again or looked at between its results, for which torch goes over the operators once more");
    launch_say(self, version->reason);
}

/* Runs the code and handles its failures. */
kin_launch
launch_run_code(kernel_launcher *self, launch_version *version, PyObject *const *in, PyObject **out)
{
    launch_outcome outcome;
    launch_operands operands;
    if (!launch_operands_make(&version->signature, in, &operands))
        return KIN_LAUNCH_NOT;
    launch_result result = version->code->training != NULL ? launch_training_run(version->code, self->context.threads, operands.in, out, &outcome)
                                                           : launch_code_run(version->code, self->context.threads, self->base.moment, operands.in, out, &outcome);
    launch_operands_end(&operands);
    if (result == LAUNCH_FAILED)
        fail(self, version, &outcome);
    else if (result == LAUNCH_STALE)
        give_up_frozen(self, version);
    else if (result == LAUNCH_DONE && launch_training_is_twice(version->code))
        give_up_twice(self, version);
    kin_vec_deinit(&outcome.hints);
    return result == LAUNCH_DONE ? KIN_LAUNCH_DONE : KIN_LAUNCH_NOT;
}

/* -- comparison ------------------------------------------------------------------------------------------------------ */

/* Forward and backward, before their first launches (py/training/trial.c). False: they are dropped. */
static bool
try_training(kernel_launcher *self, launch_version *version, PyObject *const *in)
{
    launch_training_trial trial;
    launch_operands operands;
    if (!launch_operands_make(&version->signature, in, &operands))
        return false;
    uint32_t trials = self->context.trials < KIN_TIER_TRAINING_TRIALS ? self->context.trials : KIN_TIER_TRAINING_TRIALS;
    version->code->running++;
    bool stays = launch_training_try(version->code, self->context.threads, operands.in, &version->abtest, trials, &trial);
    launch_operands_end(&operands);
    version->code->running--;
    if (!stays && launch_drop(version)) {
        if (trial.slower)
            back_off(version);
        snprintf(version->reason, sizeof version->reason, "%s", trial.why);
        launch_say(self, version->reason);
    }
    if (stays)
        launch_sizes_note_training(self, version);
    return stays;
}

bool
launch_is_due(const launch_version *version)
{
    return version->code == NULL && version->retry_at > 0 && kin_clock_ns() > version->retry_at;
}

static void
note_time(kernel_launcher *self, launch_version *version, bool steps, double ns)
{
    kin_abtest_end end = kin_abtest_note(&version->abtest, steps, ns, self->context.trials);
    if (end != KIN_ABTEST_DROP || kin_profiler_on() || !launch_drop(version)) /* profiler rows take time, and kernels have other rows than steps */
        return;
    back_off(version);
    snprintf(version->reason, sizeof version->reason, "compiled code was slower: %.1f us step by step, %.1f us compiled",
             version->abtest.theirs / 1e3, version->abtest.ours / 1e3);
    launch_say(self, version->reason);
}

static kin_launch
try_steps(kernel_launcher *self, launch_version *version, kin_entry *v, const kin_subgraph *subgraph, PyObject *const *in,
          PyObject **out)
{
    launch_kept *kept = launch_may_write(version->code, in) ? launch_keep_written(version->code, in) : NULL;
    if (kept == NULL)
        return KIN_LAUNCH_NOT;
    version->code->running++; /* the steps must not free it */
    launch_timing t = launch_timing_begin();
    kin_launch done = kin_capture_do(v, subgraph, in, out, &t.theirs);
    bool disturbed = launch_timing_is_disturbed(&t);
    version->code->running--;
    if (done == KIN_LAUNCH_NOT)
        launch_put_back_written(kept, version->code, in);
    launch_kept_free(kept);
    if (done == KIN_LAUNCH_DONE && version->abtest.ntheirs == 0 && !launch_gives_the_same(version->code, subgraph->nin, in, out)) {
        snprintf(version->reason, sizeof version->reason, "eager results differ from the captured layout or aliasing");
        if (launch_drop(version)) /* otherwise it is running, and the next comparison drops it */
            launch_say(self, version->reason);
        return done;
    }
    if (done == KIN_LAUNCH_DONE && !disturbed)
        launch_note_steps(self, version, t.theirs);
    if (done == KIN_LAUNCH_DONE)
        note_time(self, version, true, t.theirs);
    else
        kin_abtest_give_up(&version->abtest);
    return done;
}

static kin_launch
try_launch(kernel_launcher *self, launch_version *version, PyObject *const *in, PyObject **out)
{
    uint64_t before = renewals(version);
    double start = kin_clock_ns();
    kin_launch done = launch_run_code(self, version, in, out);
    double ns = kin_clock_ns() - start;
    if (done != KIN_LAUNCH_DONE || (version->abtest.warm && before != renewals(version)))
        return done;
    if (!version->abtest.warm)
        launch_note_first(self, version, ns);
    note_time(self, version, false, ns);
    return done;
}

launch_timing
launch_timing_begin(void)
{
    return (launch_timing){.clock = kin_clock_ns(), .thread = kin_clock_thread_ns()};
}

/* Did wall-clock time exceed this thread's processor time? */
bool
launch_timing_is_disturbed(const launch_timing *t)
{
    double elsewhere = (kin_clock_ns() - t->clock) - (kin_clock_thread_ns() - t->thread);
    return elsewhere > KIN_TIER_AB_DISTURBED * t->theirs;
}

static double
renewal_ns(const launch_version *version)
{
    return version->code == NULL || version->code->frozen == NULL ? 0 : launch_frozen_renewal_ns(version->code->frozen);
}

/* Runs the code and times it; packing weights, which happens once, is not counted. */
static kin_launch
time_code(kernel_launcher *self, launch_version *version, PyObject *const *in, PyObject **out, double *ns)
{
    double packed = renewal_ns(version), start = kin_clock_ns();
    kin_launch done = launch_run_code(self, version, in, out);
    *ns = kin_clock_ns() - start - (renewal_ns(version) - packed);
    return done;
}

/* ... only to time it. False: it failed. */
static bool
only_time_code(kernel_launcher *self, launch_version *version, PyObject *const *in, uint32_t nout, double *ns)
{
    PyObject **out = calloc(nout + 1, sizeof *out);
    bool ok = out != NULL && version->code != NULL && time_code(self, version, in, out, ns) == KIN_LAUNCH_DONE;
    for (uint32_t k = 0; ok && k < nout; k++)
        Py_CLEAR(out[k]);
    free(out);
    return ok;
}

/* Runs both in one call, which gets the steps' results: code for all sizes is compared once, with whatever sizes come. The first run finds nothing in the
 * processor's caches; if it is much faster anyway, a second one would add nothing. */
static kin_launch
try_both(kernel_launcher *self, launch_version *version, kin_entry *v, const kin_subgraph *subgraph, PyObject *const *in, PyObject **out)
{
    launch_timing t = launch_timing_begin();
    kin_launch done = try_steps(self, version, v, subgraph, in, out);
    t.theirs = version->abtest.theirs;
    uint64_t before = renewals(version);
    bool ran = done == KIN_LAUNCH_DONE && only_time_code(self, version, in, subgraph->nout, &t.ours);
    if (ran && t.ours > KIN_TIER_AB_ONCE * t.theirs && (self->sizes.tried == 0 || before != renewals(version)))
        ran = only_time_code(self, version, in, subgraph->nout, &t.ours);
    t.disturbed = launch_timing_is_disturbed(&t);
    if (ran)
        launch_sizes_note_trial(self, &t);
    return done;
}

/* Runs the code alone, and compares its time with what the steps are expected to take, usually and at least. */
static kin_launch
try_alone(kernel_launcher *self, launch_version *version, PyObject *const *in, PyObject **out, double usual, double least)
{
    launch_timing t = launch_timing_begin();
    t.theirs = least;
    self->sizes.alone++;
    kin_launch done = time_code(self, version, in, out, &t.ours);
    if (done == KIN_LAUNCH_DONE && !launch_timing_is_disturbed(&t))
        launch_sizes_note_alone(self, &t, usual);
    return done;
}

bool
launch_is_settled(const kernel_launcher *self, const launch_version *version)
{
    if (version->again || version->ticket != NULL)
        return false;
    return version->code == NULL || version->code->training != NULL || version->abtest.decided || self->context.trials == 0 || launch_acts(version);
}

kin_launch
launch_or_try(kernel_launcher *self, launch_version *version, kin_entry *v, const kin_subgraph *subgraph, PyObject *const *in,
              PyObject **out)
{
    launch_note_use(self, version);
    uint32_t cut = launch_training_cut(version->code);
    if (cut != UINT32_MAX && launch_put_barrier(v, cut) == KIN_OK)
        return KIN_LAUNCH_NOT;
    if (self->context.trials > 0 && !version->again)
        kin_abtest_use(&version->abtest);
    if (version->code->training != NULL && self->context.trials > 0 && !version->again && !version->abtest.decided && !try_training(self, version, in))
        return KIN_LAUNCH_NOT;
    if (self->sizes.settled && !version->abtest.decided && version->abtest.asked == 0)
        launch_sizes_take_over(self, version);
    if (launch_wants_validation(self, version))
        return launch_validate(self, version, v, subgraph, in, out);
    double least, usual = launch_sizes_may_run_alone(self, version) && !launch_acts(version) ? launch_steps_expected_ns(self, version, &least) : 0;
    if (usual > 0)
        return try_alone(self, version, in, out, usual, least);
    if (launch_is_settled(self, version))
        return launch_run_code(self, version, in, out);
    if (launch_sizes_are_in_trial(self, version) && !launch_acts(version))
        return try_both(self, version, v, subgraph, in, out);
    return kin_abtest_is_theirs(&version->abtest) ? try_steps(self, version, v, subgraph, in, out) : try_launch(self, version, in, out);
}
