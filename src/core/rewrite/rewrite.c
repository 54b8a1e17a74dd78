/* The pass itself: copies a program front to back, offering each extern call to the match_*.c files. */
#include "core/rewrite/rewrite_priv.h"

#include <string.h>

#include "core/ir/hoist.h"
#include "core/kernels/convolution.h"

const kin_aten_call *
rewrite_captured(const rewriting *r, kin_irn call)
{
    const kin_ir_node *node = kin_ir_at(r->p, call);
    uint32_t number = node->op == KIN_IR_EXTERN ? (uint32_t)kin_ir_attrs(r->p, call)[0] : UINT32_MAX;
    return number < r->g->calls.len ? &r->g->calls.at[number] : NULL;
}

bool
rewrite_is(const rewriting *r, kin_irn call, kin_aten_op op)
{
    const kin_aten_call *captured = rewrite_captured(r, call);
    return captured != NULL && kin_aten_op_of(captured) == op && !captured->in_place;
}

/* Arguments of a node were visited before it, except for those that a plan left out: the depth of calls is small. */
kin_irn
rewrite_copy(rewriting *r, kin_irn n)
{
    for (unsigned a = 0; r->map[n] == 0 && a < kin_ir_at(r->p, n)->nargs; a++)
        rewrite_copy(r, kin_ir_arg(r->p, n, a));
    if (r->map[n] == 0)
        r->map[n] = kin_ir_copy_mapped(r->out->ir, r->p, n, r->map, sizeof *r->map);
    return r->map[n];
}

bool
rewrite_is_float(const rewriting *r, kin_irn n)
{
    unsigned dtype = kin_ir_at(r->p, n)->dtype;
    return dtype == KIN_F32 || (r->may.own && (dtype == KIN_F16 || dtype == KIN_BF16));
}

kin_irn
rewrite_cast(rewriting *r, kin_irn n, kin_dtype dtype)
{
    return kin_ir_at(r->out->ir, n)->dtype == dtype ? n : kin_ir_cast(r->out->ir, n, dtype);
}

kin_irn
rewrite_emit(rewriting *r, const kin_library_call *call, const char *name, const kin_irn *args, unsigned nargs,
             kin_dtype dtype, unsigned ndim, const int64_t *sizes, const int64_t *strides)
{
    kin_ir *q = r->out->ir;
    uint32_t number = r->out->first + r->out->calls.len;
    if (kin_vec_push(&r->out->calls, *call) != KIN_OK)
        q->failed = true;
    unsigned flags = call->kind == KIN_LIBRARY_CONV && !call->own ? 0 : KIN_IR_EXTERN_INTO;
    bool blocks = call->kind == KIN_LIBRARY_MATMUL || (call->kind == KIN_LIBRARY_CONV && call->own && !call->transposed &&
                                                       kin_convolution_has_blocks(kin_ir_sizes(q, args[0])[1], sizes[1], call->groups));
    flags |= (blocks ? KIN_IR_EXTERN_BLOCKS : 0) | (call->kind == KIN_LIBRARY_BERNOULLI ? KIN_IR_EXTERN_EFFECT : 0);
    return kin_ir_result(q, kin_ir_extern(q, name, number, flags, args, nargs), 0, dtype, ndim, sizes, strides);
}

static void
count_users(rewriting *r)
{
    const kin_ir *p = r->p;
    for (kin_irn n = 1; n < p->nodes.len; n++)
        for (unsigned a = 0; a < kin_ir_at(p, n)->nargs; a++) {
            r->users[kin_ir_arg(p, n, a)]++;
            r->user[kin_ir_arg(p, n, a)] = n;
        }
    for (uint32_t o = 0; o < p->outputs.len; o++) {
        r->users[p->outputs.at[o].node]++;
        r->user[p->outputs.at[o].node] = 0;
    }
}

/* The channels-last result of a convolution is copied where the output needs another layout. */
static kin_irn
output_of(rewriting *r, uint32_t o)
{
    kin_ir *q = r->out->ir;
    kin_irn n = r->map[r->p->outputs.at[o].node];
    const kin_ir_node *node = kin_ir_at(q, n);
    uint32_t number = node->op == KIN_IR_RESULT ? (uint32_t)kin_ir_attrs(q, kin_ir_arg(q, n, 0))[0] : 0;
    if (number < r->out->first || r->out->calls.at[number - r->out->first].kind != KIN_LIBRARY_CONV)
        return n;
    const int64_t *lies = q->ints.at + node->strides, *wanted = r->p->ints.at + r->p->outputs.at[o].strides;
    bool same = r->p->outputs.at[o].strides != 0;
    for (unsigned d = 0; same && d < node->ndim; d++)
        same = lies[d] == wanted[d]; /* of dims of one element as well */
    return same ? n : kin_ir_unary(q, KIN_IR_CAST, n);
}

static void
rewrite_nodes(rewriting *r, const conv_plans *plans)
{
    const kin_ir *p = r->p;
    for (kin_irn n = 1; n < p->nodes.len; n++) {
        if (r->fused[n] != 0)
            r->map[n] = rewrite_convolution(r, &plans->at[r->fused[n] - 1]);
        if (r->map[n] != 0 || r->inside[n])
            continue;
        /* An extern call is copied with its result, when that was not rewritten, or for its effect. */
        kin_ir_op op = kin_ir_at(p, n)->op;
        if (op == KIN_IR_EXTERN && !(kin_ir_attrs(p, n)[1] & KIN_IR_EXTERN_EFFECT))
            continue;
        kin_irn drawn = op == KIN_IR_EXTERN && r->may.random ? rewrite_random(r, n) : 0;
        if (drawn != 0) {
            r->map[n + 1] = drawn;
            continue;
        }
        if (op == KIN_IR_RESULT)
            r->map[n] = rewrite_product(r, n);
        if (op == KIN_IR_RESULT && r->map[n] == 0 && r->may.own)
            r->map[n] = rewrite_filter(r, n);
        if (op == KIN_IR_RESULT && r->map[n] == 0 && r->may.own)
            r->map[n] = rewrite_attention(r, n);
        if (op == KIN_IR_RESULT && r->map[n] == 0 && r->may.own)
            r->map[n] = rewrite_recurrent(r, n);
        if (op == KIN_IR_RESULT && r->map[n] == 0 && r->may.own)
            r->map[n] = rewrite_trained_layer(r, n);
        if (op == KIN_IR_RESULT && r->map[n] == 0 && r->may.own)
            r->map[n] = rewrite_convolution_backward(r, n);
        rewrite_copy(r, n);
    }
    for (uint32_t o = 0; o < p->outputs.len; o++)
        kin_ir_output_like(r->out->ir, output_of(r, o), p, o);
    r->out->ir->ninputs = p->ninputs;
    r->out->ir->fast_math = p->fast_math;
}

static bool
make_room(rewriting *r)
{
    uint32_t n = r->p->nodes.len;
    r->frozen = calloc(n, sizeof *r->frozen);
    r->users = calloc(n, sizeof *r->users);
    r->user = calloc(n, sizeof *r->user);
    r->map = calloc(n, sizeof *r->map);
    r->fused = calloc(n, sizeof *r->fused);
    r->inside = calloc(n, sizeof *r->inside);
    r->fixed = calloc(n, sizeof *r->fixed);
    return r->frozen && r->users && r->user && r->map && r->fused && r->inside && r->fixed;
}

void
rewrite_free_room(rewriting *r)
{
    free(r->frozen);
    free(r->users);
    free(r->user);
    free(r->map);
    free(r->fused);
    free(r->inside);
    free(r->fixed);
}

kin_status
rewrite_look(rewriting *r, const bool *frozen, conv_plans *plans)
{
    if (!make_room(r))
        return KIN_NOMEM;
    if (frozen != NULL)
        kin_ir_find_frozen(r->p, frozen, r->frozen);
    count_users(r);
    KIN_TRY(rewrite_plan_convolutions(r, plans));
    rewrite_find_fixed(r, plans);
    return KIN_OK;
}

kin_status
kin_rewrite(const kin_ir *p, const kin_aten *g, const bool *frozen, const kin_rewrite_options *options,
            kin_rewritten *out)
{
    *out = (kin_rewritten){.ir = kin_ir_new(), .first = g->calls.len};
    rewriting r = {.p = p, .g = g, .out = out, .may = *options};
    conv_plans plans = {0};
    kin_status status = out->ir == NULL ? KIN_NOMEM : rewrite_look(&r, frozen, &plans);
    if (status == KIN_OK) {
        rewrite_nodes(&r, &plans);
        status = out->ir->failed ? KIN_NOMEM : KIN_OK;
    }
    rewrite_free_plans(&plans);
    rewrite_free_room(&r);
    if (status != KIN_OK)
        kin_rewritten_deinit(out);
    return status;
}

void
kin_rewritten_deinit(kin_rewritten *l)
{
    kin_ir_free(l->ir);
    l->ir = NULL;
    kin_vec_deinit(&l->calls);
}
