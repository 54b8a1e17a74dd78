/* Finds what varies: if the inputs of a subgraph change shape from call to call (a growing cache, say), the calls that depend on the
 * shape are excluded, and the rest, most of a model, is compiled. Captures for two kinds of inputs show which calls differ.
 */
#include <string.h>

#include "core/base/hash.h"
#include "py/launch/launch_priv.h"
#include "py/replay/subgraphs.h"

static uint64_t
mix_value(uint64_t hash, const kin_aten *g, kin_aten_val v)
{
    const kin_aten_value *a = kin_aten_at(g, v);
    hash = kin_hash_bytes(hash, &a->dtype, sizeof a->dtype);
    hash = kin_hash_bytes(hash, kin_aten_sizes(g, v), a->ndim * sizeof(int64_t));
    return kin_hash_bytes(hash, kin_aten_strides(g, v), a->ndim * sizeof(int64_t));
}

static uint64_t
mix_args(uint64_t hash, const kin_aten *g, uint32_t first, uint32_t count)
{
    for (uint32_t i = first; i < first + count; i++) {
        const kin_aten_arg *a = &g->args.at[i];
        const char *text = a->kind == KIN_ATEN_STR || a->kind == KIN_ATEN_WORD ? kin_aten_text(g, a->text) : "";
        hash = kin_hash_bytes(hash, &a->kind, sizeof a->kind);
        hash = kin_hash_bytes(hash, text, strlen(text) + 1);
        if (a->kind == KIN_ATEN_VALUE)
            hash = mix_value(hash, g, a->value);
        else if (a->kind == KIN_ATEN_LIST)
            hash = mix_args(hash, g, a->list.child, a->list.count);
        else if (a->kind != KIN_ATEN_STR && a->kind != KIN_ATEN_WORD)
            hash = kin_hash_bytes(hash, &a->i, sizeof a->i);
    }
    return hash;
}

/* Hash of a step's ATen calls with the shapes of their arguments and results; 0: it makes none. */
static uint64_t
hash_of_step(const kin_capture *capture, uint32_t step)
{
    const kin_aten *g = capture->graph;
    uint64_t hash = 0;
    for (uint32_t c = 0; c < capture->calls.len && c < g->calls.len; c++) {
        const kin_aten_call *call = &g->calls.at[c];
        const char *op = kin_aten_text(g, call->op);
        if (capture->calls.at[c].step != step)
            continue;
        hash = mix_args(kin_hash_bytes(hash + 1, op, strlen(op)), g, call->args, call->nargs);
        for (uint32_t k = 0; k < call->nresults; k++)
            hash = mix_value(hash, g, call->results + k);
    }
    return hash;
}

static bool
is_call(const kin_step *s)
{
    return kin_subgraph_calls(s) && !(s->flags & KIN_STEP_SUNK);
}

/* Keeps the hashes of the calls for comparison. */
static kin_status
keep(kernel_launcher *self, const kin_entry *v, const kin_subgraph *subgraph, const kin_capture *capture)
{
    for (uint32_t i = subgraph->first; i <= subgraph->last; i++)
        if (is_call(&v->trace.steps.at[i]))
            KIN_TRY(kin_vec_push(&self->seen, hash_of_step(capture, i)));
    return KIN_OK;
}

/* Notes which calls are shape-invariant; the others are excluded from the subgraph if they are the smaller part. */
static kin_status
part(const kernel_launcher *self, kin_entry *v, const kin_subgraph *subgraph, const kin_capture *capture)
{
    launch_numbers differ = {0};
    uint32_t n = 0, before = v->invariant.len;
    kin_status status = KIN_OK;
    for (uint32_t i = subgraph->first; i <= subgraph->last && status == KIN_OK; i++) {
        if (!is_call(&v->trace.steps.at[i]) || n >= self->seen.len)
            continue;
        bool same = self->seen.at[n++] == hash_of_step(capture, i);
        status = same ? kin_vec_push(&v->invariant, i) : kin_vec_push(&differ, i);
    }
    bool most = v->invariant.len - before >= KIN_TIER_VARY_ALIKE && v->invariant.len - before >= differ.len;
    if (!most)
        v->invariant.len = before;
    if (status == KIN_OK && differ.len > 0 && most)
        status = launch_exclude(v, differ.at, differ.len, "its shape is not that of the other calls for all inputs");
    kin_vec_deinit(&differ);
    return status;
}

void
launch_look_what_varies(kernel_launcher *self, kin_entry *v, const kin_subgraph *subgraph, PyObject *const *in)
{
    kin_capture capture;
    if (launch_sizes_are_on(self) || self->looks >= 2 || self->kinds.strange < (self->looks == 0 ? KIN_TIER_VARY_FIRST_KINDS : KIN_TIER_VARY_SECOND_KINDS))
        return;
    self->looks++;
    kin_capture_hints none = {0};
    unsigned may = subgraph->at == 0 && subgraph->hides_writes ? KIN_CAPTURE_WRITES : 0;
    kin_status status = kin_capture_run(v, subgraph, in, NULL, &none, may, &capture);
    if (status == KIN_BREAK && capture.failed_test != 0)
        status = launch_put_barrier(v, capture.failed_test - 1);
    else if (status == KIN_BREAK && capture.refused.len > 0)
        status = launch_exclude(v, capture.refused.at, capture.refused.len, capture.reason);
    else if (status == KIN_OK && self->looks == 1)
        status = keep(self, v, subgraph, &capture);
    else if (status == KIN_OK)
        status = part(self, v, subgraph, &capture);
    if (status != KIN_OK)
        self->looks = 2;
    kin_capture_deinit(&capture);
}

bool
launch_is_invariant(const kin_entry *v, const kin_subgraph *subgraph)
{
    for (uint32_t i = subgraph->first; i <= subgraph->last; i++)
        if (is_call(&v->trace.steps.at[i]) && !kin_step_is_in(v->invariant.at, v->invariant.len, i))
            return false;
    return true;
}
