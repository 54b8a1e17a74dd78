/* Launching a unit (units.h): one call of what the backend made of it, in place of its steps. */
#include "py/compat/failure.h"
#include "py/replay/replay_priv.h"

static PyObject *
call_unit(kin_run *r, const kin_unit *unit)
{
    PyObject *small[32], **args = unit->nin <= 32 ? small : malloc(unit->nin * sizeof *args);
    PyObject *result = NULL;
    if (args == NULL)
        return PyErr_NoMemory();
    bool complete = true;
    for (uint32_t i = 0; i < unit->nin; i++) {
        args[i] = kin_run_value(r, unit->in[i]);
        complete = complete && args[i] != NULL;
    }
    /* The callee may drop the last other reference to an input. */
    for (uint32_t i = 0; complete && i < unit->nin; i++)
        Py_INCREF(args[i]);
    result = complete ? PyObject_Vectorcall(unit->callable, args, unit->nin, NULL) : Py_NewRef(Py_None);
    for (uint32_t i = 0; complete && i < unit->nin; i++)
        Py_DECREF(args[i]);
    if (args != small)
        free(args);
    return result;
}

static void
store_outputs(kin_run *r, const kin_unit *unit, PyObject *result)
{
    for (uint32_t i = 0; i < unit->nout; i++)
        Py_XSETREF(r->slots[unit->out[i]], Py_NewRef(PyTuple_GET_ITEM(result, i)));
}

static kin_status
build_containers(kin_run *r, const kin_unit *unit)
{
    for (uint32_t i = 0; i < unit->nbuilds; i++) {
        const kin_step *s = &r->t->steps.at[unit->builds[i]];
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
    if (unit->first != step || unit->callable == NULL || (r->built_sunk && unit->changes_sunk))
        return KIN_LAUNCH_NOT;
    PyObject *result = call_unit(r, unit);
    if (result == Py_None) {
        Py_DECREF(result);
        return KIN_LAUNCH_NOT;
    }
    if (result != NULL && (!PyTuple_CheckExact(result) || PyTuple_GET_SIZE(result) != (Py_ssize_t)unit->nout)) {
        Py_CLEAR(result);
        kin_failure_raise("kintsugi: a compiled graph did not give what was asked of it");
    }
    if (result == NULL)
        return KIN_LAUNCH_RAISED;
    store_outputs(r, unit, result);
    Py_DECREF(result);
    if (build_containers(r, unit) != KIN_OK)
        return KIN_LAUNCH_RAISED; /* only without memory */
    r->dropped = r->dropped || unit->drops;
    *last = unit->last;
    return KIN_LAUNCH_DONE;
}
