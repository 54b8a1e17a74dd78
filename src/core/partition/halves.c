/* Cuts a lowered joint graph in two (halves.h): which inputs and results may be saved, and which part of the lowered program belongs to which half.
 *
 * An input or result may be saved as it is only if eager saves it too: then writing to it before backward is an error in eager as well. Where nobody says what eager
 * saves, it is what an operator of the backward part takes.
 */
#include "core/partition/halves.h"

#include <stdlib.h>
#include <string.h>

#include "core/aten/order.h"

/* Inputs that are written to must not matter for anything but what is written: going through the operators again would find them changed. */
static bool
only_feeds_writes(const kin_ir *ir, const kin_lowered *lowered)
{
    bool *of = calloc(ir->nodes.len, sizeof *of), ok = of != NULL;
    for (kin_irn n = 1; ok && n < ir->nodes.len; n++) {
        for (uint32_t w = 0; kin_ir_at(ir, n)->op == KIN_IR_INPUT && w < lowered->writes.len; w++)
            of[n] = of[n] || kin_ir_attrs(ir, n)[0] == lowered->writes.at[w].input;
        for (unsigned a = 0; a < kin_ir_at(ir, n)->nargs; a++)
            of[n] = of[n] || of[kin_ir_arg(ir, n, a)];
    }
    for (uint32_t o = 0; ok && o < ir->outputs.len; o++)
        ok = ir->outputs.at[o].into != 0 || !of[ir->outputs.at[o].node];
    free(of);
    return ok;
}

/* So many of the program's outputs are results; UINT32_MAX: they are mixed with gradients. */
static uint32_t
count_results(const kin_lowered *lowered, uint32_t nouts)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < nouts; i++)
        if (lowered->outs.at[i].kind != KIN_OUT_INPUT && lowered->outs.at[i].index >= n)
            n = lowered->outs.at[i].index + 1;
    for (uint32_t i = nouts; i < lowered->outs.len; i++)
        if (lowered->outs.at[i].kind != KIN_OUT_INPUT && lowered->outs.at[i].index < n)
            return UINT32_MAX;
    return n;
}

typedef struct {
    bool *used;             /* by storage */
    bool *inputs, *results; /* may be kept */
} keeps;

static bool
find_keeps(const kin_aten *g, const kin_joint_graph *joint, const kin_lowered *lowered, keeps *k)
{
    *k = (keeps){calloc(g->nstorages + 1, sizeof(bool)), calloc(g->ninputs + 1, sizeof(bool)), calloc(lowered->ir->outputs.len + 1, sizeof(bool))};
    if (k->used == NULL || k->inputs == NULL || k->results == NULL)
        return false;
    if (joint->saved != NULL)
        memcpy(k->used, joint->saved, (g->nstorages + 1) * sizeof *k->used);
    else
        kin_aten_used_from(g, joint->ncalls, k->used);
    for (uint32_t i = 0; i < g->ninputs; i++)
        k->inputs[i] = k->used[kin_aten_at(g, i + 1)->storage];
    for (uint32_t i = 0; i < joint->nnumbers; i++)
        k->inputs[joint->numbers[i]] = true;
    for (uint32_t w = 0; w < lowered->writes.len; w++)
        k->inputs[lowered->writes.at[w].input] = false;
    for (uint32_t i = 0; i < joint->nouts; i++)
        if (lowered->outs.at[i].kind != KIN_OUT_INPUT)
            k->results[lowered->outs.at[i].index] = k->used[kin_aten_at(g, g->outputs.at[i])->storage];
    return true;
}

static void
drop_keeps(keeps *k)
{
    free(k->used);
    free(k->inputs);
    free(k->results);
}

/* Is the whole memory a result as well? */
static bool
is_given(const kin_lowered *lowered, uint32_t nouts, uint32_t index)
{
    for (uint32_t i = 0; i < nouts; i++)
        if ((lowered->outs.at[i].kind == KIN_OUT_FRESH || lowered->outs.at[i].kind == KIN_OUT_EXTERN) && lowered->outs.at[i].index == index)
            return true;
    return false;
}

static kin_status
share_out(const kin_lowered *lowered, uint32_t nouts, uint32_t nresults, kin_halves *h)
{
    for (uint32_t i = 0; i < lowered->outs.len; i++) {
        kin_lower_out o = lowered->outs.at[i];
        if (i >= nouts && o.kind != KIN_OUT_INPUT)
            o.index -= nresults;
        if (i < nouts && o.kind == KIN_OUT_SHARED)
            o.detached = o.detached || !is_given(lowered, nouts, o.index); /* a node's results are no views */
        KIN_TRY(i < nouts ? kin_vec_push(&h->forward.outs, o) : kin_vec_push(&h->backward.outs, o));
    }
    for (uint32_t w = 0; w < lowered->writes.len; w++)
        KIN_TRY(kin_vec_push(&h->forward.writes, lowered->writes.at[w]));
    h->forward.ir = h->parts.forward;
    h->backward.ir = h->parts.backward;
    h->parts.forward = h->parts.backward = NULL;
    return KIN_OK;
}

kin_status
kin_halves_make(const kin_aten *g, const kin_joint_graph *joint, const kin_lowered *lowered, kin_halves *out, kin_text *why)
{
    uint32_t nresults = count_results(lowered, joint->nouts);
    keeps k = {0};
    *out = (kin_halves){.forward.stuck = UINT32_MAX, .backward.stuck = UINT32_MAX}; /* lowered as they are */
    if (nresults == UINT32_MAX || !only_feeds_writes(lowered->ir, lowered)) {
        kin_text_add(why, nresults == UINT32_MAX ? "a gradient is a result" : "its results depend on inputs that it writes to");
        return KIN_BREAK;
    }
    if (lowered->ir->ninputs < g->ninputs)
        lowered->ir->ninputs = g->ninputs; /* values handed over are numbered behind all of them */
    kin_status status = find_keeps(g, joint, lowered, &k) ? KIN_OK : KIN_NOMEM;
    kin_ir_partition_options options = {.nforward = nresults, .first_tangent = g->ninputs - joint->ntangents,
                                        .first_backward = joint->ncalls, .keeps_input = k.inputs, .keeps_output = k.results, .last = joint->last};
    if (status == KIN_OK)
        status = kin_ir_part(lowered->ir, &options, &out->parts, why);
    if (status == KIN_OK)
        status = share_out(lowered, joint->nouts, nresults, out);
    drop_keeps(&k);
    return status;
}

void
kin_halves_deinit(kin_halves *h)
{
    kin_lowered_deinit(&h->forward);
    kin_lowered_deinit(&h->backward);
    kin_ir_partition_deinit(&h->parts);
}
