/* Launching a unit (units.h): one call of what the backend made of it, in place of its steps. */
#include "py/replay/replay_priv.h"

/* Runs the launcher on the inputs; its outputs go to the slots. */
static kin_launch
call_unit(kin_run *r, const kin_unit *unit)
{
    PyObject *small[64], **values = unit->nin + unit->nout <= 64 ? small : calloc(unit->nin + unit->nout, sizeof *values);
    kin_launch done = KIN_LAUNCH_NOT;
    if (values == NULL)
        return KIN_LAUNCH_NOT;
    PyObject **out = values + unit->nin;
    bool complete = true;
    for (uint32_t i = 0; i < unit->nin; i++) {
        values[i] = kin_run_value(r, unit->in[i]);
        complete = complete && values[i] != NULL;
    }
    for (uint32_t i = 0; i < unit->nout; i++)
        out[i] = NULL;
    /* What runs may drop the last other reference to an input. */
    for (uint32_t i = 0; complete && i < unit->nin; i++)
        Py_INCREF(values[i]);
    if (complete)
        done = unit->launcher->run(unit->launcher, r->v, unit, values, out);
    for (uint32_t i = 0; complete && i < unit->nin; i++)
        Py_DECREF(values[i]);
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

kin_launch
kin_run_launch(kin_run *r, uint32_t step, uint32_t *last)
{
    const kin_units *units = r->units;
    if (step >= units->nsteps || units->by_step[step] == 0)
        return KIN_LAUNCH_NOT;
    const kin_unit *unit = &units->at.at[units->by_step[step] - 1];
    if (unit->first != step || unit->launcher == NULL || (r->built_sunk && unit->changes_sunk))
        return KIN_LAUNCH_NOT;
    kin_launch done = call_unit(r, unit);
    if (done != KIN_LAUNCH_DONE)
        return done;
    if (build_containers(r, unit) != KIN_OK)
        return KIN_LAUNCH_RAISED; /* only without memory */
    r->dropped = r->dropped || unit->drops;
    *last = unit->last;
    return KIN_LAUNCH_DONE;
}
