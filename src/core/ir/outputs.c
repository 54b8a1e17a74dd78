/* Gives every output memory of its own (outputs.h): copies those that would otherwise be an input, another output, or the result
 * of an extern call with another layout than the output's.
 */
#include "core/ir/outputs.h"

/* A result of an extern call with another layout than the output's. */
static bool
has_other_layout(const kin_ir *p, const kin_ir_out *o)
{
    const kin_ir_node *n = kin_ir_at(p, o->node);
    const int64_t *sizes = kin_ir_sizes(p, o->node);
    int64_t below = 1;
    bool differs = false;
    if (n->op != KIN_IR_RESULT || kin_ir_numel(p, o->node) == 0)
        return false;
    for (unsigned d = n->ndim; d-- > 0;) {
        int64_t has = n->strides != 0 ? p->ints.at[n->strides + d] : below;
        differs |= sizes[d] > 1 && has != (o->strides != 0 ? p->ints.at[o->strides + d] : below);
        below *= sizes[d];
    }
    return differs;
}

/* As it is, with the same numbers of nodes. */
static kin_ir *
duplicate(const kin_ir *ir)
{
    kin_ir *p = kin_ir_new();
    if (p == NULL)
        return NULL;
    p->nodes.len = p->args.len = p->ints.len = p->outputs.len = 0;
#define COPY(v) \
    if (kin_vec_reserve(&p->v, ir->v.len + 64) == KIN_OK && ir->v.len) \
        memcpy(p->v.at, ir->v.at, (p->v.len = ir->v.len) * sizeof *ir->v.at); \
    else if (ir->v.len) \
        p->failed = true
    COPY(nodes);
    COPY(args);
    COPY(ints);
    COPY(outputs);
    COPY(updates);
#undef COPY
    kin_text_clear(&p->texts);
    kin_text_add_len(&p->texts, ir->texts.at ? ir->texts.at : "", ir->texts.len);
    p->failed |= p->texts.failed;
    p->ninputs = ir->ninputs;
    p->fast_math = ir->fast_math;
    return p;
}

static bool
needs_copy(const kin_ir *p, uint32_t i)
{
    const kin_ir_out *o = &p->outputs.at[i];
    bool again = false;
    for (uint32_t j = 0; j < i; j++)
        again |= p->outputs.at[j].node == o->node;
    return again || o->into != 0 || kin_ir_at(p, o->node)->op == KIN_IR_INPUT || has_other_layout(p, o);
}

/* Appends a copy of the output's node, and makes the output that. */
static void
copy_output(kin_ir *p, kin_ir_out *o)
{
    kin_ir_node copy = p->nodes.at[o->node];
    copy = (kin_ir_node){.op = KIN_IR_EXPAND, .dtype = copy.dtype, .ndim = copy.ndim, .nargs = 1, .args = p->args.len, .sizes = copy.sizes};
    p->failed |= kin_vec_push(&p->args, o->node) != KIN_OK || kin_vec_push(&p->nodes, copy) != KIN_OK;
    o->node = p->nodes.len - 1;
}

kin_ir *
kin_ir_own_outputs(const kin_ir *ir)
{
    kin_ir *p = duplicate(ir);
    for (uint32_t i = 0; p != NULL && i < p->outputs.len && !p->failed; i++) {
        if (!needs_copy(p, i))
            continue;
        copy_output(p, &p->outputs.at[i]);
        if (p->outputs.at[i].into != 0) /* the first of two, if the input is still needed as it was */
            copy_output(p, &p->outputs.at[i]);
    }
    if (p != NULL && p->failed) {
        kin_ir_free(p);
        p = NULL;
    }
    return p;
}
