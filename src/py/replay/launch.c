/* Launching a unit (units.h): one call of what the backend made of it, in place of its steps. */
#include "py/replay/replay_priv.h"

static PyObject *
held_value(const kin_run *r, const kin_held *held)
{
    PyObject *holder = held->in == 0 ? NULL : kin_run_value(r, held->in);
    if (holder == NULL || !(PyTuple_CheckExact(holder) || PyList_CheckExact(holder)))
        return NULL;
    return held->at < (size_t)PySequence_Fast_GET_SIZE(holder) ? PySequence_Fast_GET_ITEM(holder, held->at) : NULL;
}

void
kin_run_inputs(const kin_run *r, const kin_unit *unit, uint32_t narrived, PyObject **values)
{
    for (uint32_t i = 0; i < unit->nin; i++) {
        uint32_t k = unit->order[i];
        values[k] = i < narrived ? kin_run_value(r, unit->in[k]) : NULL;
        if (i < narrived && values[k] == NULL)
            values[k] = held_value(r, &unit->held[k]);
    }
}

static kin_launch
call_launcher(kin_run *r, const kin_unit *unit, PyObject *const *in, PyObject **out)
{
    for (uint32_t i = 0; i < unit->nin; i++)
        if (in[i] == NULL)
            return KIN_LAUNCH_NOT;
    return unit->waits ? unit->launcher->run_chosen(unit->launcher, r->chosen, r->v, unit, in, out)
                       : unit->launcher->run(unit->launcher, r->v, unit, in, out);
}

/* Runs the launcher on the inputs; its outputs go to the slots. */
static kin_launch
call_unit(kin_run *r, const kin_unit *unit)
{
    PyObject *small[64], **values = unit->nin + unit->nout <= 64 ? small : calloc(unit->nin + unit->nout, sizeof *values);
    if (values == NULL)
        return KIN_LAUNCH_NOT;
    PyObject **out = values + unit->nin;
    kin_run_inputs(r, unit, unit->nin, values);
    for (uint32_t i = 0; i < unit->nout; i++)
        out[i] = NULL;
    /* What runs may drop the last other reference to an input. */
    for (uint32_t i = 0; i < unit->nin; i++)
        Py_XINCREF(values[i]);
    kin_launch done = call_launcher(r, unit, values, out);
    for (uint32_t i = 0; i < unit->nin; i++)
        Py_XDECREF(values[i]);
    for (uint32_t i = 0; done == KIN_LAUNCH_DONE && i < unit->nout; i++)
        Py_XSETREF(r->slots[unit->out[i]], out[i]);
    if (values != small)
        free(values);
    return done;
}

/* Sunk objects that have been built change as the steps from `from` to `to` say. */
static kin_status
pass_sunk(kin_run *r, uint32_t from, uint32_t to)
{
    for (uint32_t i = from; i < to; i++)
        if (r->t->steps.at[i].flags & KIN_STEP_SUNK)
            KIN_TRY(kin_sunk_pass(r, i));
    return KIN_OK;
}

static kin_status
build_containers(kin_run *r, const kin_unit *unit)
{
    bool sunk = r->built_sunk && unit->passes_sunk;
    uint32_t at = unit->first;
    for (uint32_t i = 0; i <= unit->nbuilds; i++) {
        uint32_t next = i < unit->nbuilds ? unit->builds[i] : unit->last;
        if (sunk && pass_sunk(r, at, next) != KIN_OK)
            return KIN_PYERR;
        at = next;
        if (i == unit->nbuilds)
            break;
        const kin_step *s = &r->t->steps.at[next];
        PyObject *built = kin_step_execute(r->t, r->refs, s, r->slots);
        if (built == NULL && PyErr_Occurred())
            return KIN_PYERR;
        if (s->out != 0)
            Py_XSETREF(r->slots[s->out], built);
        else
            Py_XDECREF(built);
    }
    return KIN_OK;
}

static kin_launch
launch(kin_run *r, const kin_unit *unit)
{
    kin_launch done = call_unit(r, unit);
    if (done != KIN_LAUNCH_DONE)
        return done;
    if (build_containers(r, unit) != KIN_OK)
        return KIN_LAUNCH_RAISED; /* only without memory */
    r->dropped = r->dropped || unit->drops;
    return KIN_LAUNCH_DONE;
}

kin_launch
kin_run_launch(kin_run *r, uint32_t step, uint32_t *last)
{
    kin_unit *unit = &r->units->at.at[r->units->by_step[step] - 1];
    if (r->built_sunk && unit->changes_sunk)
        return KIN_LAUNCH_NOT;
    *last = unit->last;
    kin_launch done = launch(r, unit);
    unit->refused = done == KIN_LAUNCH_NOT ? unit->refused + 1 : 0;
    return done;
}

kin_launch
kin_run_launch_waiting(kin_run *r)
{
    return launch(r, r->waiting);
}
