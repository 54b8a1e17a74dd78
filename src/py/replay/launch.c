/* Runs a compiled subgraph (subgraphs.h): one call of its compiled code, in place of its steps. */
#include "py/replay/replay_priv.h"

#include "py/aten/sizes.h"

static PyObject *
part_of_function(PyFunctionObject *function, uint32_t at)
{
    return at == KIN_FUNCTION_DEFAULTS     ? function->func_defaults
           : at == KIN_FUNCTION_KWDEFAULTS ? function->func_kwdefaults
           : at == KIN_FUNCTION_CLOSURE    ? function->func_closure
                                           : NULL;
}

/* A dict holds keys and values in the order in which it was built of them. */
static PyObject *
part_of_dict(PyObject *dict, uint32_t at)
{
    PyObject *key = NULL, *value = NULL;
    Py_ssize_t pos = 0;
    for (uint32_t i = 0; i <= at / 2; i++)
        if (!PyDict_Next(dict, &pos, &key, &value))
            return NULL;
    return at % 2 == 0 ? key : value;
}

static PyObject *
part_of_slice(PySliceObject *slice, uint32_t at)
{
    return at == 0 ? slice->start : at == 1 ? slice->stop : slice->step;
}

/* Borrowed: what the holder was built of, as the step's operand number `at`. Each kind of step that moves its operands into what it makes has a line here. */
static PyObject *
part_of(PyObject *holder, uint32_t at)
{
    if (holder == NULL)
        return NULL;
    if (PyTuple_CheckExact(holder) || PyList_CheckExact(holder) || kin_is_size(holder))
        return at < (size_t)PySequence_Fast_GET_SIZE(holder) ? PySequence_Fast_GET_ITEM(holder, at) : NULL;
    return PySlice_Check(holder)      ? part_of_slice((PySliceObject *)holder, at)
           : PyDict_CheckExact(holder) ? part_of_dict(holder, at)
           : PyMethod_Check(holder)    ? (at == 0 ? PyMethod_GET_FUNCTION(holder) : PyMethod_GET_SELF(holder))
           : PyFunction_Check(holder)  ? part_of_function((PyFunctionObject *)holder, at)
           : PyCell_Check(holder) && at == 0 ? PyCell_GET(holder)
                                             : NULL;
}

/* Of an input, or of a container that has one: from its slot, else as part of what was built of it. */
static PyObject *
find_value(const kin_run *r, const kin_subgraph *subgraph, kin_vid vid)
{
    PyObject *value = kin_run_value(r, vid);
    for (uint32_t i = subgraph->held.len; value == NULL && i-- > 0;)
        if (subgraph->held.at[i].what == vid)
            value = part_of(find_value(r, subgraph, subgraph->held.at[i].in), subgraph->held.at[i].at);
    return value;
}

void
kin_run_inputs(const kin_run *r, const kin_subgraph *subgraph, uint32_t narrived, PyObject **values)
{
    for (uint32_t i = 0; i < subgraph->nin; i++) {
        uint32_t k = subgraph->order[i];
        values[k] = i < narrived ? find_value(r, subgraph, subgraph->in[k]) : NULL;
        if (values[k] == NULL && i < narrived && r->ahead != NULL)
            values[k] = r->ahead[k];
    }
}

static kin_launch
call_launcher(kin_run *r, const kin_subgraph *subgraph, PyObject *const *in, PyObject **out)
{
    for (uint32_t i = 0; i < subgraph->nin; i++)
        if (in[i] == NULL) {
            subgraph->launcher->lacks_input = true;
            return KIN_LAUNCH_NOT;
        }
    static uint64_t moments;
    if (r->moment == 0 || r->launched != subgraph)
        r->moment = ++moments;
    r->launched = subgraph;
    kin_launcher *launcher = subgraph->launcher;
    launcher->refs++; /* what it runs may give it up */
    launcher->moment = r->moment;
    kin_launch done = subgraph->deferred ? launcher->run_chosen(launcher, r->chosen, r->v, subgraph, in, out) : launcher->run(launcher, r->v, subgraph, in, out);
    launcher->moment = 0;
    kin_launcher_release(launcher);
    return done;
}

/* Runs the launcher on the inputs; its outputs go to the slots. */
static kin_launch
call_subgraph(kin_run *r, const kin_subgraph *subgraph)
{
    PyObject *small[64], **values = subgraph->nin + subgraph->nout <= 64 ? small : calloc(subgraph->nin + subgraph->nout, sizeof *values);
    if (values == NULL)
        return KIN_LAUNCH_NOT;
    PyObject **out = values + subgraph->nin;
    kin_run_inputs(r, subgraph, subgraph->nin, values);
    for (uint32_t i = 0; i < subgraph->nout; i++)
        out[i] = NULL;
    /* What runs may drop the last other reference to an input. */
    for (uint32_t i = 0; i < subgraph->nin; i++)
        Py_XINCREF(values[i]);
    kin_launch done = call_launcher(r, subgraph, values, out);
    for (uint32_t i = 0; i < subgraph->nin; i++)
        Py_XDECREF(values[i]);
    for (uint32_t i = 0; done == KIN_LAUNCH_DONE && i < subgraph->nout; i++)
        Py_XSETREF(r->slots[subgraph->out[i]], out[i]);
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
build_containers(kin_run *r, const kin_subgraph *subgraph)
{
    bool sunk = r->built_sunk && subgraph->passes_sunk;
    uint32_t at = subgraph->first, end = subgraph->at != 0 ? subgraph->at : subgraph->last;
    for (uint32_t i = 0; i <= subgraph->nbuilds; i++) {
        uint32_t next = i < subgraph->nbuilds ? subgraph->builds[i] : end;
        if (sunk && pass_sunk(r, at, next) != KIN_OK)
            return KIN_PYERR;
        at = next;
        if (i == subgraph->nbuilds)
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
launch(kin_run *r, const kin_subgraph *subgraph)
{
    kin_launch done = call_subgraph(r, subgraph);
    if (done != KIN_LAUNCH_DONE)
        return done;
    if (build_containers(r, subgraph) != KIN_OK)
        return KIN_LAUNCH_RAISED; /* only without memory */
    r->dropped = r->dropped || subgraph->drops;
    r->v->launches++;
    r->v->covered += subgraph->last - subgraph->first + 1;
    return KIN_LAUNCH_DONE;
}

kin_launch
kin_run_launch(kin_run *r, uint32_t step, uint32_t *last)
{
    kin_subgraph *subgraph = &r->subgraphs->at.at[r->subgraphs->by_step[step] - 1];
    if (r->built_sunk && subgraph->changes_sunk)
        return KIN_LAUNCH_NOT;
    *last = subgraph->last;
    kin_launch done = launch(r, subgraph);
    subgraph->refused = done == KIN_LAUNCH_NOT ? subgraph->refused + 1 : 0;
    return done;
}

kin_launch
kin_run_launch_waiting(kin_run *r)
{
    return launch(r, r->deferred);
}
