/* A graph that runs before a step that tells somebody something (KIN_STEP_REPORTS: print, logging, the text of a tensor). What its later calls take is read
 * before that step, although the program reads it behind: such steps hardly ever change it. Behind them the guards of the epoch say what the program has
 * there; if that is something else, or if somebody has written to the tensors, the program is left, and CPython computes the rest.
 */
#include "py/replay/replay_priv.h"

#include "py/aten/make.h"
#include "py/aten/tensor.h"
#include "py/guardeval/guard.h"

#include <stdlib.h>

void
kin_ahead_drop(kin_run *r, const kin_subgraph *subgraph)
{
    PyObject **ahead = r->ahead;
    r->ahead = NULL;
    for (uint32_t k = 0; ahead != NULL && k < subgraph->nin; k++)
        Py_XDECREF(ahead[k]);
    free(ahead);
}

bool
kin_ahead_read(kin_run *r, const kin_subgraph *subgraph)
{
    bool all = true;
    if (r->narrived == subgraph->nin)
        return true;
    r->ahead = calloc(subgraph->nin, sizeof *r->ahead);
    for (uint32_t i = r->narrived; r->ahead != NULL && i < subgraph->nin; i++) {
        uint32_t k = subgraph->order[i];
        r->ahead[k] = Py_XNewRef(kin_guard_live(r->v, subgraph->in[k], r->slots));
        all = all && r->ahead[k] != NULL;
    }
    return r->ahead != NULL && all;
}

static uint64_t
add_version(uint64_t sum, PyObject *obj)
{
    if (obj == NULL || !kin_is_tensor(obj) || kin_tensor_is_inference(obj))
        return sum;
    PyObject *count = PyObject_GetAttrString(obj, "_version");
    uint64_t version = count == NULL ? 0 : PyLong_AsUnsignedLongLongMask(count);
    Py_XDECREF(count);
    PyErr_Clear();
    return sum + version; /* they only grow */
}

static uint64_t
sum_versions(const kin_run *r, const kin_subgraph *subgraph)
{
    uint64_t sum = 0;
    for (uint32_t k = 0; k < subgraph->nin; k++) {
        PyObject *known = r->ahead == NULL ? NULL : r->ahead[k];
        sum = add_version(sum, known != NULL ? known : kin_run_value(r, subgraph->in[k]));
    }
    for (uint32_t k = 0; k < subgraph->nout; k++)
        sum = add_version(sum, kin_run_value(r, subgraph->out[k]));
    return sum;
}

/* May code have run behind it that nobody has looked into? */
static bool
is_watched(const kin_run *r, const kin_subgraph *subgraph)
{
    return subgraph->reports != 0 || r->ahead != NULL;
}

void
kin_ahead_ran(kin_run *r, const kin_subgraph *subgraph)
{
    r->written = is_watched(r, subgraph) ? sum_versions(r, subgraph) : 0;
}

bool
kin_ahead_holds(const kin_run *r, const kin_subgraph *subgraph, uint32_t epoch)
{
    if (!is_watched(r, subgraph))
        return true;
    for (uint32_t k = 0; r->ahead != NULL && k < subgraph->nin; k++) {
        const kin_val *val = &r->t->vals.at[subgraph->in[k]];
        if (r->ahead[k] != NULL && val->kind == KIN_VAL_SRC && val->epoch == epoch && r->slots[subgraph->in[k]] != r->ahead[k])
            return false;
    }
    return sum_versions(r, subgraph) == r->written;
}
