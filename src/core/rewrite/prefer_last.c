/* Decides which values of a program should be passed on channels-last: inputs and results of our convolutions and their gradients,
 * and whatever is computed element by element from them or into them. Not the arguments of calls that stay as captured: their results depend on the layout.
 */
#include "core/rewrite/rewrite_priv.h"

#include <stdlib.h>
#include <string.h>

#include "core/kernels/convolution.h"

/* Marks its image, or what comes back and its image, and says so; result 0 of either is one as well. */
static bool
mark_call(const rewriting *r, const conv_plans *plans, kin_irn call, bool *last)
{
    kin_library_call unused;
    bool back = rewrite_reads_convolution_backward(r, call, &unused), forward = false;
    for (uint32_t i = 0; !back && i < plans->len; i++)
        forward = forward || (plans->at[i].call == call && plans->at[i].conv.own);
    if (back || forward)
        last[kin_ir_arg(r->p, call, 0)] = true;
    if (back)
        last[kin_ir_arg(r->p, call, 1)] = true;
    return back || forward;
}

/* From arguments to what is made of them element by element, and back. */
static void
spread(const kin_ir *p, kin_irn n, bool *last)
{
    kin_ir_class class = kin_ir_op_class((kin_ir_op)kin_ir_at(p, n)->op);
    if (class != KIN_IR_CLASS_POINTWISE && class != KIN_IR_CLASS_COMPARE)
        return;
    for (unsigned a = 0; a < kin_ir_at(p, n)->nargs; a++) {
        kin_irn arg = kin_ir_arg(p, n, a);
        if (kin_ir_same_sizes(p, arg, n) && kin_ir_at(p, arg)->op != KIN_IR_EXPAND)
            last[arg] = last[n] = last[arg] || last[n];
    }
}

static void
mark(const rewriting *r, const conv_plans *plans, bool *last)
{
    enum { ROUNDS = 4 }; /* a value reaches its neighbours, and these theirs, forwards and backwards */
    const kin_ir *p = r->p;
    bool *taken = calloc(p->nodes.len, sizeof *taken), *fixed = r->fixed;
    for (kin_irn n = 1; taken != NULL && n < p->nodes.len; n++) {
        if (kin_ir_at(p, n)->op == KIN_IR_EXTERN)
            taken[n] = mark_call(r, plans, n, last);
        if (kin_ir_at(p, n)->op == KIN_IR_RESULT && kin_ir_attrs(p, n)[0] == 0 && taken[kin_ir_arg(p, n, 0)])
            last[n] = kin_ir_at(p, n)->ndim == kin_ir_at(p, kin_ir_arg(p, kin_ir_arg(p, n, 0), 0))->ndim;
    }
    for (int i = 0; taken != NULL && i < ROUNDS; i++) {
        for (kin_irn n = 1; n < p->nodes.len; n++)
            spread(p, n, last);
        for (kin_irn n = p->nodes.len - 1; n > 0; n--)
            spread(p, n, last);
    }
    for (kin_irn n = 1; n < p->nodes.len; n++)
        last[n] = last[n] && taken != NULL && !fixed[n] && kin_ir_at(p, n)->ndim >= 3;
    free(taken);
}

kin_status
kin_rewrite_prefer_last(const kin_ir *p, const kin_aten *g, const kin_rewrite_options *options, bool *last)
{
    rewriting r = {.p = p, .g = g, .may = *options};
    conv_plans plans = {0};
    kin_status status = options->own && kin_prefers_channels_last(g) ? rewrite_look(&r, NULL, &plans) : KIN_BREAK;
    if (status == KIN_OK)
        mark(&r, &plans, last);
    rewrite_free_plans(&plans);
    rewrite_free_room(&r);
    return status == KIN_BREAK ? KIN_OK : status;
}
