/* What the steps of a subgraph are expected to take for the sizes of a call, so that code for all sizes need not be compared with them in calls that run both.
 *
 * The first sizes are only captured, and the call that has them runs step by step (launch_meet). It is timed here, and its results show whether the capture was right.
 * From its time, and from how much work its sizes and other ones are (core/aten/work.c), follows what the steps would take for those at least.
 */
#include "py/launch/launch_priv.h"

void
launch_note_steps(kernel_launcher *self, const launch_version *version, double ns)
{
    if (version->work.elements == 0) /* what is known of other sizes says more */
        return;
    self->sizes.steps_ns = ns;
    self->sizes.steps_work = version->work;
}

/* Can they run in one go, and be run again if they do not end? */
static bool
are_of_use(const kernel_launcher *self, const launch_version *met)
{
    const kin_capture *c = met->held;
    return c != NULL && met->repeatable && !c->writes && !c->by_data && c->joint.results.len == 0 && met->work.elements > 0 && self->context.trials > 0;
}

launch_version *
launch_take_met(kernel_launcher *self)
{
    launch_version *met = self->met;
    self->met = NULL;
    self->keeps_met = false;
    return met;
}

void
launch_learn_steps(kernel_launcher *self, const launch_version *met, const kin_subgraph *subgraph, PyObject *const *in, PyObject *const *out, double ns)
{
    launch_operands operands;
    if (!are_of_use(self, met) || !launch_operands_make(&met->signature, in, &operands))
        return;
    if (launch_capture_gives_the_same(met->held, subgraph, operands.in, out))
        launch_note_steps(self, met, ns);
    launch_operands_end(&operands);
}

kin_launch
launch_time_steps(kernel_launcher *self, const launch_version *met, kin_entry *v, const kin_subgraph *subgraph, PyObject *const *in, PyObject **out)
{
    if (!are_of_use(self, met))
        return KIN_LAUNCH_NOT;
    launch_timing t = launch_timing_begin();
    kin_launch done = kin_capture_do(v, subgraph, in, out, &t.theirs);
    if (done == KIN_LAUNCH_DONE && !launch_timing_is_disturbed(&t))
        launch_learn_steps(self, met, subgraph, in, out, t.theirs);
    return done;
}

double
launch_steps_expected_ns(const kernel_launcher *self, const launch_version *version, double *least)
{
    double ratio = kin_aten_work_ratio(&self->sizes.steps_work, &version->work);
    /* Fewer elements cost no less than their share, since calls have costs of their own; of what more elements cost only half is counted, since calls become more efficient. */
    *least = self->sizes.steps_ns * (ratio <= 1 ? ratio : 1 + (ratio - 1) / 2);
    return self->sizes.steps_ns * ratio;
}
