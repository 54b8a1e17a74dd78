/* Channels-last memory for values around convolutions. A value gets channels-last strides if an argument has them, or if a convolution
 * prefers them, through all nodes that work equally on either layout; not if a call that was captured with another layout
 * takes it (the result of such a call depends on its input's layout), nor if a reshape joins channels with positions, which would
 * read memory with large jumps.
 */
#include "core/rewrite/rewrite_priv.h"

#include <string.h>

#include "core/kernels/convolution_weight.h"

/* Products give the same whatever their operands' layout; pooling works on the layout that it is given, and returns the same. */
static bool
stays(const rewriting *r, kin_irn call)
{
    return !rewrite_is(r, call, KIN_ATEN_OP(max_pool2d_with_indices, default)) && !rewrite_is(r, call, KIN_ATEN_OP(mm, default)) &&
           !rewrite_is(r, call, KIN_ATEN_OP(addmm, default));
}

/* Views that calls are given as they are: strides in the memory of something else. */
static bool
is_strided_view(kin_ir_op op)
{
    return op == KIN_IR_EXPAND || op == KIN_IR_PERMUTE || op == KIN_IR_SLICE || op == KIN_IR_RESHAPE;
}

/* A reshape of [N, C, ...] that does not keep C apart from what follows. */
static bool
joins_channels(const kin_ir *p, kin_irn n)
{
    if (kin_ir_at(p, n)->op != KIN_IR_RESHAPE || kin_ir_at(p, kin_ir_arg(p, n, 0))->op == KIN_IR_PERMUTE)
        return false;
    kin_irn a = kin_ir_arg(p, n, 0);
    const int64_t *from = kin_ir_sizes(p, a), *to = kin_ir_sizes(p, n);
    if (kin_ir_at(p, a)->ndim < 3 || kin_ir_numel(p, a) == 0)
        return false;
    int64_t front = from[0] * from[1], product = 1;
    if (from[1] == 1 || front == kin_ir_numel(p, a))
        return false;
    for (unsigned d = 0; d < kin_ir_at(p, n)->ndim && product < front; d++)
        product *= to[d];
    return product != front;
}

static void
find_fixed(const kin_ir *p, kin_irn n, bool call_fixes, bool *fixed)
{
    const kin_ir_node *node = kin_ir_at(p, n);
    bool fixes = node->op == KIN_IR_EXTERN ? call_fixes : (is_strided_view(node->op) && fixed[n]) || joins_channels(p, n);
    for (unsigned a = 0; a < node->nargs; a++)
        fixed[kin_ir_arg(p, n, a)] |= fixes;
}

void
rewrite_find_fixed(rewriting *r, const conv_plans *plans)
{
    for (kin_irn n = r->p->nodes.len - 1; n > 0; n--) {
        bool fixes = kin_ir_at(r->p, n)->op == KIN_IR_EXTERN && stays(r, n);
        for (uint32_t i = 0; fixes && i < plans->len; i++)
            fixes = plans->at[i].call != n;
        kin_library_call gradients;
        fixes = fixes && !rewrite_reads_convolution_backward(r, n, &gradients);
        find_fixed(r->p, n, fixes, r->fixed);
    }
}

/* -- the new program ---------------------------------------------------------------------------------------------------- */

typedef struct {
    const kin_rewritten *l;
    kin_ir *q;
    bool *fixed, *wanted, *last; /* by node: must lie as it was captured; a convolution wants channels last; it lies so */
} layout;

static const kin_library_call *
library_call(const kin_rewritten *l, kin_irn call)
{
    uint32_t number = (uint32_t)kin_ir_attrs(l->ir, call)[0];
    return number < l->first ? NULL : &l->calls.at[number - l->first];
}

static bool
is_conv(const kin_rewritten *l, kin_irn call)
{
    const kin_library_call *c = library_call(l, call);
    return c != NULL && c->kind == KIN_LIBRARY_CONV;
}

static bool
is_pooling(const kin_rewritten *l, kin_irn call)
{
    return library_call(l, call) == NULL && kin_aten_op_find(kin_ir_name(l->ir, call), NULL) == KIN_ATEN_OP(max_pool2d_with_indices, default);
}

/* Of how many arguments, from the first on, does the node's layout follow? */
static unsigned
followed(const layout *s, kin_irn n)
{
    const kin_ir_node *node = kin_ir_at(s->q, n);
    const int64_t *map = kin_ir_attrs(s->q, n);
    if (node->ndim < 3)
        return 0;
    switch (node->op) {
    case KIN_IR_RESULT: return is_pooling(s->l, kin_ir_arg(s->q, n, 0)) ? 1 : 0;
    case KIN_IR_CAT: return node->nargs;
    case KIN_IR_PAD: case KIN_IR_SLICE: return 1;
    case KIN_IR_INDEX: return kin_ir_at(s->q, kin_ir_arg(s->q, n, 0))->ndim == node->ndim && map[0] == 0 && map[1] == 1 ? 1 : 0;
    default:
        return kin_ir_op_class(node->op) == KIN_IR_CLASS_POINTWISE || kin_ir_op_class(node->op) == KIN_IR_CLASS_COMPARE ? node->nargs : 0;
    }
}

/* Of two operands one or both are images, seen as matrices. */
static void
want_images(layout *s, kin_irn call)
{
    for (unsigned a = 0; a < 2; a++) {
        kin_irn n = kin_ir_arg(s->q, call, a), below = n;
        while (is_strided_view(kin_ir_at(s->q, below)->op))
            below = kin_ir_arg(s->q, below, 0);
        if (kin_ir_at(s->q, below)->ndim == 4 && (a == 0 || kin_ir_sizes(s->q, n)[0] != kin_ir_sizes(s->q, below)[1])) /* no filters */
            s->wanted[below] = true;
    }
}

/* From users to arguments. */
static void
find_wanted(layout *s)
{
    for (kin_irn n = s->q->nodes.len - 1; n > 0; n--) {
        const kin_ir_node *node = kin_ir_at(s->q, n);
        if (node->op == KIN_IR_EXTERN) {
            const kin_library_call *c = library_call(s->l, n);
            find_fixed(s->q, n, c == NULL && !is_pooling(s->l, n), s->fixed);
            if (is_conv(s->l, n) || (c != NULL && c->kind == KIN_LIBRARY_CONV_WEIGHT) || (is_pooling(s->l, n) && s->wanted[n]))
                s->wanted[kin_ir_arg(s->q, n, 0)] = true;
            if (c != NULL && c->kind == KIN_LIBRARY_CONV_WEIGHT && kin_convolution_weight_wants_last(kin_ir_sizes(s->q, kin_ir_arg(s->q, n, 1))[1]))
                s->wanted[kin_ir_arg(s->q, n, 1)] = true;
            if (c != NULL && c->kind == KIN_LIBRARY_MATMUL && c->nspatial > 0) /* one that was a convolution */
                want_images(s, n);
            if (is_conv(s->l, n) && c->has_add)
                s->wanted[kin_ir_arg(s->q, n, node->nargs - 1u)] = true;
            continue;
        }
        find_fixed(s->q, n, false, s->fixed);
        unsigned count = followed(s, n);
        for (unsigned a = 0; a < count && s->wanted[n] && !s->fixed[n]; a++)
            s->wanted[kin_ir_arg(s->q, n, a)] = true;
    }
}

static bool
lies_last(const layout *s, kin_irn n)
{
    kin_ir_op op = kin_ir_at(s->q, n)->op;
    if (op == KIN_IR_EXTERN)
        return is_conv(s->l, n) || (is_pooling(s->l, n) && s->last[kin_ir_arg(s->q, n, 0)]);
    if (op == KIN_IR_RESULT && is_conv(s->l, kin_ir_arg(s->q, n, 0)))
        return true;
    if (op == KIN_IR_PERMUTE && kin_ir_at(s->q, n)->strides != 0) /* of a product that was a convolution */
        return true;
    unsigned count = followed(s, n);
    bool any = count > 0 && s->wanted[n] && op != KIN_IR_RESULT && op != KIN_IR_SLICE;
    for (unsigned a = 0; a < count; a++)
        any = any || s->last[kin_ir_arg(s->q, n, a)];
    return any && !s->fixed[n];
}

/* What lies channels last by its arguments wants that of the others, and of what these are made of. */
static void
find_last(layout *s)
{
    enum { ROUNDS = 2 };
    for (int i = 0; i < ROUNDS; i++) {
        find_wanted(s);
        for (kin_irn n = 1; n < s->q->nodes.len; n++) {
            s->last[n] = lies_last(s, n);
            s->wanted[n] = s->wanted[n] || s->last[n];
        }
    }
}

/* Gives the strides; was there a value that got some? */
static bool
lay_out(layout *s)
{
    bool changed = false;
    find_last(s);
    for (kin_irn n = 1; n < s->q->nodes.len; n++) {
        if (!s->last[n] || kin_ir_at(s->q, n)->op == KIN_IR_EXTERN)
            continue;
        int64_t sizes[KIN_IR_MAX_DIMS], strides[KIN_IR_MAX_DIMS];
        unsigned ndim = kin_ir_at(s->q, n)->ndim;
        memcpy(sizes, kin_ir_sizes(s->q, n), ndim * sizeof *sizes);
        rewrite_channels_last(sizes, ndim, strides);
        kin_ir_set_strides(s->q, n, strides);
        changed = true;
    }
    return changed;
}

bool
kin_channels_last(kin_rewritten *l)
{
    kin_ir *q = l->ir;
    bool any = false, changed = false;
    for (uint32_t i = 0; i < l->calls.len; i++)
        any = any || l->calls.at[i].kind == KIN_LIBRARY_CONV || l->calls.at[i].kind == KIN_LIBRARY_CONV_WEIGHT || l->calls.at[i].nspatial > 0;
    if (!any || q->failed)
        return false;
    layout s = {.l = l, .q = q, .fixed = calloc(q->nodes.len, sizeof(bool)), .wanted = calloc(q->nodes.len, sizeof(bool)),
                .last = calloc(q->nodes.len, sizeof(bool))};
    if (s.fixed != NULL && s.wanted != NULL && s.last != NULL)
        changed = lay_out(&s);
    free(s.fixed);
    free(s.wanted);
    free(s.last);
    return changed;
}

bool
kin_prefers_channels_last(const kin_aten *g)
{
    for (uint32_t i = 0; i < g->calls.len; i++)
        if (g->calls.at[i].row == KIN_ATEN_OP(convolution, default))
            return true;
    return false;
}
