/* What the steps of a subgraph are expected to take for the sizes of a call, so that code for all sizes need not be compared with them in calls that run both.
 *
 * The first sizes are only captured, and the call that has them runs step by step (launch_meet). It is timed here, and its results show whether the capture was right.
 * From its time, and from how much work its sizes and other ones are (core/aten/work.c), follows what the steps would take for those at least.
 */
#include <stdlib.h>

#include "py/aten/make.h"
#include "py/aten/tensor.h"
#include "py/launch/launch_priv.h"

/* -- were the results captured as they are? ------------------------------------------------------------------------ */

typedef struct {
    const kin_capture *capture;
    PyObject *const *inputs; /* the tensors among the subgraph's: captured inputs, in order */
    PyObject *const *out;
} given;

static const kin_aten_value *
value_of(const given *x, uint32_t number)
{
    return kin_aten_at(x->capture->graph, x->capture->values[number]);
}

/* Strides of dims that have one element do not matter. */
static bool
lies_as_captured(const given *x, uint32_t number, PyObject *tensor)
{
    const kin_aten *g = x->capture->graph;
    kin_aten_val v = x->capture->values[number];
    const int64_t *sizes = kin_tensor_sizes(tensor), *strides = kin_tensor_strides(tensor);
    kin_dtype dtype;
    if (kin_tensor_dim(tensor) != kin_aten_at(g, v)->ndim || !kin_tensor_dtype(tensor, &dtype) || dtype != kin_aten_at(g, v)->dtype)
        return false;
    bool some = true;
    for (unsigned d = 0; d < kin_aten_at(g, v)->ndim; d++) {
        if (sizes[d] != kin_aten_sizes(g, v)[d])
            return false;
        some = some && sizes[d] > 0;
    }
    for (unsigned d = 0; some && d < kin_aten_at(g, v)->ndim; d++)
        if (sizes[d] > 1 && strides[d] != kin_aten_strides(g, v)[d])
            return false;
    return true;
}

/* Does it share memory with the inputs, and with the results before it, as in the capture? */
static bool
shares_as_captured(const given *x, uint32_t number, uint32_t k)
{
    uint32_t storage = value_of(x, number)->storage;
    bool of_input = false;
    for (uint32_t i = 0; i < x->capture->ninputs && !of_input; i++)
        if (value_of(x, i)->storage == storage) {
            of_input = true;
            if (kin_tensor_storage(x->inputs[i]) != kin_tensor_storage(x->out[k]))
                return false;
        }
    for (uint32_t i = 0; i < x->capture->ninputs && !of_input; i++)
        if (kin_tensor_is_ordinary(x->inputs[i]) && kin_tensor_storage(x->inputs[i]) == kin_tensor_storage(x->out[k]))
            return false;
    for (uint32_t j = 0; j < k; j++) {
        uint32_t other = kin_capture_number(x->capture->out[j]);
        if (other == UINT32_MAX)
            continue;
        if ((other == number) != (x->out[j] == x->out[k]))
            return false;
        if (!of_input && (value_of(x, other)->storage == storage) != (kin_tensor_storage(x->out[j]) == kin_tensor_storage(x->out[k])))
            return false;
    }
    return true;
}

static bool
is_as_captured(const given *x, uint32_t k)
{
    PyObject *fake = x->capture->out[k];
    uint32_t number = kin_capture_number(fake);
    if (x->out[k] == NULL) /* it is gone already */
        return false;
    if (number == UINT32_MAX && PyLong_CheckExact(fake)) /* a size */
        return PyLong_CheckExact(x->out[k]) && PyObject_RichCompareBool(fake, x->out[k], Py_EQ) == 1;
    if (number == UINT32_MAX)
        return true; /* a container: its tensors are not looked at */
    if (number < x->capture->ninputs)
        return x->out[k] == x->inputs[number];
    return kin_is_tensor(x->out[k]) && kin_tensor_is_ordinary(x->out[k]) && lies_as_captured(x, number, x->out[k]) && shares_as_captured(x, number, k);
}

static bool
are_as_captured(const kin_capture *capture, uint32_t nin, PyObject *const *in, PyObject *const *out)
{
    PyObject **inputs = calloc(nin + 1, sizeof *inputs);
    uint32_t n = 0;
    for (uint32_t i = 0; inputs != NULL && i < nin; i++)
        if (kin_is_tensor(in[i]))
            inputs[n++] = in[i];
    bool same = inputs != NULL && n == capture->ninputs;
    given x = {.capture = capture, .inputs = inputs, .out = out};
    for (uint32_t k = 0; same && k < capture->nout; k++)
        same = is_as_captured(&x, k);
    free(inputs);
    return same;
}

/* -- one call of the steps ------------------------------------------------------------------------------------------- */

void
launch_note_steps(kernel_launcher *self, const launch_version *version, double ns)
{
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
    if (are_as_captured(met->held, subgraph->nin, operands.in, out))
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
