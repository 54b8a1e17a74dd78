/* A graph that runs before a step that tells somebody something (KIN_STEP_REPORTS: print, logging, the text of a tensor). What its later calls take is read
 * before that step, although the program reads it behind: such steps hardly ever change it. Behind them the guards of the epoch say what the program has
 * there; if that is something else, or if somebody has written to the tensors, the program is left, and CPython computes the rest.
 */
#include "py/replay/replay_priv.h"

#include "py/aten/make.h"
#include "py/aten/tensor.h"
#include "py/aten/track.h"
#include "py/guardeval/guard.h"

#include <stdlib.h>

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

/* -- writes ------------------------------------------------------------------------------------------------------- */

/* A tensor that the graph took or gave, as it was when the graph had run. */
typedef struct {
    PyObject *tensor;       /* owned */
    long version;           /* -1: it counts none */
    const void *data;
    kin_write_watch *watch; /* NULL: its memory cannot be watched, or there is none */
} seen;

struct kin_seen {
    uint32_t n;
    seen at[];
};

static long
version_of(PyObject *tensor)
{
    PyObject *count = kin_tensor_is_inference(tensor) ? NULL : PyObject_GetAttrString(tensor, "_version");
    long version = count == NULL ? -1 : PyLong_AsLong(count);
    Py_XDECREF(count);
    PyErr_Clear();
    return version;
}

/* The bytes from its first to its last element; 0: it has none, or none that can be read here. */
static size_t
bytes_of(PyObject *tensor)
{
    kin_dtype dtype;
    int64_t last = 0;
    if (!kin_tensor_dtype(tensor, &dtype) || kin_tensor_data(tensor) == NULL)
        return 0;
    const int64_t *sizes = kin_tensor_sizes(tensor), *strides = kin_tensor_strides(tensor);
    for (int64_t d = 0; d < kin_tensor_dim(tensor); d++) {
        if (sizes[d] == 0)
            return 0;
        last += (sizes[d] - 1) * strides[d];
    }
    return (size_t)(last + 1) * kin_dtype_bytes(dtype);
}

/* Not every write is counted: x.data, arrays of NumPy that share the memory. */
static seen
see(PyObject *tensor)
{
    seen now = {.tensor = Py_NewRef(tensor), .version = version_of(tensor)};
    size_t bytes = kin_tensor_is_dense(tensor, false) && kin_tensor_has_ordinary_data(tensor) ? bytes_of(tensor) : 0;
    if (bytes == 0)
        return now;
    kin_track *track = kin_process_track();
    now.data = kin_tensor_data(tensor);
    now.watch = track == NULL ? NULL : kin_watch_new(track, now.data, bytes, SIZE_MAX, NULL);
    return now;
}

static bool
is_as_seen(const seen *before)
{
    if (version_of(before->tensor) != before->version)
        return false;
    if (before->data != NULL && (!kin_tensor_is_dense(before->tensor, false) || kin_tensor_data(before->tensor) != before->data))
        return false;
    return before->watch == NULL || !kin_watch_changed(before->watch);
}

static void
drop_seen(kin_run *r)
{
    struct kin_seen *all = r->seen;
    r->seen = NULL;
    for (uint32_t i = 0; all != NULL && i < all->n; i++) {
        if (all->at[i].watch != NULL)
            kin_watch_free(all->at[i].watch);
        Py_DECREF(all->at[i].tensor);
    }
    free(all);
}

static void
add_seen(struct kin_seen *all, PyObject *obj)
{
    if (obj != NULL && kin_is_tensor(obj))
        all->at[all->n++] = see(obj);
}

void
kin_ahead_ran(kin_run *r, const kin_subgraph *subgraph)
{
    r->unknown = false;
    if (subgraph->reports == 0)
        return;
    r->seen = calloc(1, sizeof *r->seen + (subgraph->nin + subgraph->nout) * sizeof(seen));
    r->unknown = r->seen == NULL;
    for (uint32_t k = 0; r->seen != NULL && k < subgraph->nin; k++)
        add_seen(r->seen, r->ahead != NULL && r->ahead[k] != NULL ? r->ahead[k] : kin_run_value(r, subgraph->in[k]));
    for (uint32_t k = 0; r->seen != NULL && k < subgraph->nout; k++)
        add_seen(r->seen, kin_run_value(r, subgraph->out[k]));
}

bool
kin_ahead_holds(const kin_run *r, const kin_subgraph *subgraph, uint32_t epoch)
{
    for (uint32_t k = 0; r->ahead != NULL && k < subgraph->nin; k++) {
        const kin_val *val = &r->t->vals.at[subgraph->in[k]];
        if (r->ahead[k] != NULL && val->kind == KIN_VAL_SRC && val->epoch == epoch && r->slots[subgraph->in[k]] != r->ahead[k])
            return false;
    }
    for (uint32_t i = 0; r->seen != NULL && i < r->seen->n; i++)
        if (!is_as_seen(&r->seen->at[i]))
            return false;
    return !r->unknown;
}

void
kin_ahead_drop(kin_run *r, const kin_subgraph *subgraph)
{
    PyObject **ahead = r->ahead;
    r->ahead = NULL;
    drop_seen(r);
    for (uint32_t k = 0; ahead != NULL && k < subgraph->nin; k++)
        Py_XDECREF(ahead[k]);
    free(ahead);
}
