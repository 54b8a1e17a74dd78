/* Which inputs of a graph are weights: never written to, and expected to be the same tensors in each call. What depends only on them
 * is computed once and kept (py/run/frozen.h).
 */
#include "py/aten/make.h"
#include "py/aten/tensor.h"
#include "py/compat/kinds.h"
#include "py/launch/launch_priv.h"

/* Is the value read from a module's dict of parameters or buffers? */
static bool
belongs_to_module(const kin_entry *v, kin_vid vid)
{
    while (vid != 0 && v->trace.vals.at[vid].kind == KIN_VAL_SRC) {
        const kin_val *val = &v->trace.vals.at[vid];
        if (val->access == KIN_ACCESS_IATTR || val->access == KIN_ACCESS_DICT_ITEM) {
            PyObject *key = kin_refs_get(&v->refs, val->key);
            if (kin_text_is(key, "_parameters") || kin_text_is(key, "_buffers"))
                return true;
        }
        vid = val->parent;
    }
    return false;
}

static bool
contains(const launch_numbers *numbers, uint32_t n)
{
    for (uint32_t i = 0; i < numbers->len; i++)
        if (numbers->at[i] == n)
            return true;
    return false;
}

/* Inputs that the graph itself writes to change in each call. */
static void
unfreeze_written(const kin_aten *g, bool *frozen)
{
    for (uint32_t a = 0; a < g->args.len; a++) {
        const kin_aten_arg *arg = &g->args.at[a];
        if (arg->kind != KIN_ATEN_VALUE || !arg->written)
            continue;
        for (kin_aten_val v = 1; v <= g->ninputs; v++)
            if (kin_aten_at(g, v)->storage == kin_aten_at(g, arg->value)->storage)
                frozen[kin_aten_at(g, v)->input] = false;
    }
}

void
launch_find_frozen(const kin_entry *v, const kin_subgraph *subgraph, PyObject *const *in, const kin_aten *graph,
                   const launch_numbers *unfrozen, bool *frozen)
{
    uint32_t tensor = 0;
    for (uint32_t i = 0; i < subgraph->nin; i++) {
        if (!kin_is_tensor(in[i]))
            continue;
        bool parameter = kin_is_plain_tensor(in[i]) && !kin_is_tensor_type((PyObject *)Py_TYPE(in[i]));
        frozen[tensor++] = (parameter || belongs_to_module(v, subgraph->in[i])) && !contains(unfrozen, i);
    }
    unfreeze_written(graph, frozen);
}
