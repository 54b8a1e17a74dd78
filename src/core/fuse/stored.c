/* Decides which values are stored, and which are computed again by each reader. */
#include "core/fuse/fuse_priv.h"

bool
fuse_in_memory(const fuse *f, kin_irn n)
{
    unsigned op = fuse_node(f, n)->op;
    return f->nodes[n].stored || op == KIN_IR_INPUT || op == KIN_IR_RESULT;
}

bool
fuse_is_into(const fuse *f, kin_irn n)
{
    return fuse_node(f, n)->op == KIN_IR_RESULT &&
           kin_ir_attrs(f->ir, kin_ir_arg(f->ir, n, 0))[1] & KIN_IR_EXTERN_INTO;
}

static void
find_live(fuse *f)
{
    for (uint32_t i = 0; i < f->ir->outputs.len; i++) {
        f->nodes[f->ir->outputs.at[i].node].live = true;
        f->nodes[f->ir->outputs.at[i].node].uses++;
    }
    for (uint32_t e = 0; e < f->ir->updates.len; e++)
        f->nodes[f->ir->updates.at[e].undo].live = true;
    for (kin_irn n = f->ir->nodes.len; n-- > 1;) {
        f->nodes[n].live |= kin_ir_has_effect(f->ir, n);
        for (unsigned a = 0; f->nodes[n].live && a < fuse_node(f, n)->nargs; a++) {
            f->nodes[kin_ir_arg(f->ir, n, a)].live = true;
            f->nodes[kin_ir_arg(f->ir, n, a)].uses++;
        }
    }
}

/* An output lies as it says, row-major when it says nothing; where the node itself would like to lie does not count. */
static void
lay_out_output(fuse *f, const kin_ir_out *o)
{
    int64_t rows[KIN_IR_MAX_DIMS], below = 1;
    for (unsigned d = fuse_node(f, o->node)->ndim; d-- > 0;) {
        rows[d] = below;
        below *= fuse_sizes(f, o->node)[d] > 1 ? fuse_sizes(f, o->node)[d] : 1;
    }
    fuse_lay_out(f, o->node, o->strides ? f->ir->ints.at + o->strides : rows);
}

/* Parts of inputs that are written at once: both they and what puts the old elements back lie in the input. */
static void
claim_updates(fuse *f)
{
    for (uint32_t e = 0; e < f->ir->updates.len; e++) {
        const kin_ir_update *update = &f->ir->updates.at[e];
        kin_irn nodes[] = {update->write, update->undo};
        for (int i = 0; i < 2; i++) {
            node_info *info = &f->nodes[nodes[i]];
            info->stored = info->needed = true;
            info->into = update->into;
            fuse_lay_out(f, nodes[i], f->ir->ints.at + fuse_node(f, nodes[i])->strides);
        }
        f->nodes[update->write].in_place = true;
        f->nodes[update->saved].stored = f->nodes[update->saved].needed = true;
        fuse_lay_out(f, update->saved, NULL);
    }
}

static void
claim_outputs(fuse *f)
{
    for (uint32_t i = 0; i < f->ir->outputs.len; i++) {
        const kin_ir_out *o = &f->ir->outputs.at[i];
        node_info *info = &f->nodes[o->node];
        unsigned op = fuse_node(f, o->node)->op;
        info->needed = true;
        if (o->into) {
            info->stored = true;
            info->into = o->into;
            lay_out_output(f, o);
            continue;
        }
        if ((op == KIN_IR_RESULT && !fuse_is_into(f, o->node)) || info->output != FUSE_NONE)
            continue;
        info->stored = op != KIN_IR_RESULT;
        info->output = i;
        if (op != KIN_IR_INPUT && op != KIN_IR_RESULT)
            lay_out_output(f, o);
    }
}

void
fuse_store(fuse *f, kin_irn n)
{
    unsigned op = fuse_node(f, n)->op;
    if (op == KIN_IR_INPUT || op == KIN_IR_RESULT)
        return;
    f->nodes[n].stored = true;
    if (f->nodes[n].strides == 0)
        fuse_lay_out(f, n, NULL);
}

/* Arguments of extern calls: the value that the argument is a view of, or the argument itself. */
static void
store_arguments(fuse *f)
{
    for (kin_irn n = 1; n < f->ir->nodes.len; n++) {
        if (!f->nodes[n].live || fuse_node(f, n)->op != KIN_IR_EXTERN)
            continue;
        for (unsigned a = 0; a < fuse_node(f, n)->nargs; a++) {
            kin_irn arg = kin_ir_arg(f->ir, n, a), base;
            int64_t strides[KIN_IR_MAX_DIMS], offset;
            if (!fuse_view(f, arg, &base, strides, &offset))
                base = arg;
            fuse_store(f, base);
            f->nodes[base].needed = true;
        }
    }
}

static double
own_cost(const kin_ir_node *node)
{
    switch (kin_ir_op_class(node->op)) {
    case KIN_IR_CLASS_POINTWISE:
        if (node->op == KIN_IR_CAST || node->op == KIN_IR_NEG || node->op == KIN_IR_ABS)
            return 0.5;
        return (node->op >= KIN_IR_EXP && node->op <= KIN_IR_SIGMOID) || node->op == KIN_IR_POW || node->op == KIN_IR_ATAN2 ? 12
             : node->op == KIN_IR_DIV || node->op == KIN_IR_REM || node->op == KIN_IR_FLOOR_DIV ? 4 : 1;
    case KIN_IR_CLASS_COMPARE: return 1;
    case KIN_IR_CLASS_VIEW: return node->op == KIN_IR_INDEX ? 3 : node->op == KIN_IR_CAT || node->op == KIN_IR_PAD ? 1.5 : 0;
    default: return 0;
    }
}

static bool
always_stored(const kin_ir_node *node)
{
    kin_ir_class c = kin_ir_op_class(node->op);
    return c == KIN_IR_CLASS_REDUCE || c == KIN_IR_CLASS_SCAN || c == KIN_IR_CLASS_SCATTER;
}

/* A value that is repeated many times, or read at places that repeat it, and that costs something; or a large one that is more than read, or a
 * copy that was asked for. Where sizes vary, `many` is more than once, so that the next size finds the same kernels. */
static void
store_repeated(fuse *f, kin_irn n)
{
    const kin_ir_node *node = fuse_node(f, n);
    if (node->op != KIN_IR_EXPAND && node->op != KIN_IR_INDEX)
        return;
    enum { DEAR = 8, LARGE = 4096 };
    kin_irn a = kin_ir_arg(f->ir, n, 0), value = a;
    while (fuse_node(f, value)->op == KIN_IR_RESHAPE)
        value = kin_ir_arg(f->ir, value, 0);
    int64_t numel = kin_ir_numel(f->ir, a), times = numel > 0 ? kin_ir_numel(f->ir, n) / numel : 0;
    bool copy = fuse_node(f, value)->op == KIN_IR_CAST && fuse_node(f, kin_ir_arg(f->ir, value, 0))->dtype == fuse_node(f, value)->dtype;
    bool large = times >= (f->varying ? 2 : 8) && (copy || (!f->varying && numel >= LARGE && f->nodes[value].cost > 3));
    if (!fuse_in_memory(f, value) && times >= (f->varying ? 2 : 4) && (f->nodes[value].cost >= DEAR || large))
        fuse_store(f, value);
}

static void
find_elsewhere(fuse *f)
{
    for (uint32_t i = 0; i < f->ir->outputs.len; i++)
        f->nodes[f->ir->outputs.at[i].node].elsewhere |= f->ir->outputs.at[i].into == 0;
    for (kin_irn n = f->ir->nodes.len; n-- > 1;) {
        kin_ir_class c = kin_ir_op_class(fuse_node(f, n)->op);
        bool inside = c == KIN_IR_CLASS_POINTWISE || c == KIN_IR_CLASS_COMPARE || c == KIN_IR_CLASS_VIEW;
        for (unsigned a = 0; f->nodes[n].live && a < fuse_node(f, n)->nargs; a++)
            f->nodes[kin_ir_arg(f->ir, n, a)].elsewhere |= f->nodes[n].elsewhere || !inside;
    }
}

/* Used more than once, and expensive. What only goes into inputs is mostly used in one kernel, which computes it once. */
static bool
is_wanted_often(const node_info *info)
{
    enum { DEAR = 3, VERY_DEAR = 40 };
    return info->uses > 1 && info->cost > (info->elsewhere ? DEAR : VERY_DEAR);
}

static bool
is_dear_cat(const fuse *f, kin_irn n)
{
    enum { DEAR = 12 };
    double sum = 0, most = 0;
    for (unsigned a = 0; a < fuse_node(f, n)->nargs; a++) {
        kin_irn part = kin_ir_arg(f->ir, n, a);
        double cost = fuse_in_memory(f, part) ? 1 : f->nodes[part].cost;
        sum += cost;
        most = cost > most ? cost : most;
    }
    return sum - most > DEAR;
}

/* Do elements of several parts follow each other in memory? Read where it is used, each would be loaded from all parts, under a mask. Short parts are gathered
 * all the same; a size that varies is not asked for more than it has to be. */
static bool
mixes_parts(const fuse *f, kin_irn n)
{
    unsigned dim = (unsigned)kin_ir_attrs(f->ir, n)[0], ndim = fuse_node(f, n)->ndim, parts = 0;
    int64_t least = f->varying ? 2 : 8;
    bool innermost = true;
    for (unsigned d = dim + 1; d < ndim; d++)
        innermost = innermost && fuse_sizes(f, n)[d] == 1;
    for (unsigned a = 0; a < fuse_node(f, n)->nargs; a++) {
        kin_irn part = kin_ir_arg(f->ir, n, a);
        const kin_ir_node *node = fuse_node(f, part);
        parts += fuse_sizes(f, part)[dim] >= least;
        innermost = innermost || (fuse_in_memory(f, part) && node->strides != 0 && f->ir->ints.at[node->strides + dim] == 1);
    }
    return innermost && parts > 1;
}

bool
fuse_is_better_by_parts(const fuse *f, kin_irn n)
{
    return is_dear_cat(f, n) || mixes_parts(f, n);
}

/* Is all that reads n a reshape that is stored, which its parts can be written to as well? */
static bool
is_for_reshape(const fuse *f, kin_irn n)
{
    for (kin_irn user = n + 1; f->nodes[n].uses == 1 && user < f->ir->nodes.len; user++)
        for (unsigned a = 0; f->nodes[user].live && a < fuse_node(f, user)->nargs; a++)
            if (kin_ir_arg(f->ir, user, a) == n)
                return fuse_node(f, user)->op == KIN_IR_RESHAPE && f->nodes[user].stored;
    return false;
}

/* Is it a CAT that is stored, part by part, rather than each reader finding out for each element which part it is of? */
static bool
is_stored_by_parts(const fuse *f, kin_irn n)
{
    enum { FEW = 4, FEW_FOR_MANY = 2 /* readers */ };
    if (fuse_node(f, n)->op != KIN_IR_CAT)
        return false;
    return f->nodes[n].parts > (f->nodes[n].uses > 1 ? FEW_FOR_MANY : FEW) || (fuse_is_better_by_parts(f, n) && !is_for_reshape(f, n));
}

static uint32_t
count_from(fuse *f, kin_irn n)
{
    uint32_t sum = 0;
    for (unsigned a = 0; a < fuse_node(f, n)->nargs; a++) {
        kin_irn arg = kin_ir_arg(f->ir, n, a);
        if (f->visited[arg] == f->visit)
            continue;
        f->visited[arg] = f->visit;
        sum += fuse_in_memory(f, arg) ? 1 : count_from(f, arg);
    }
    return sum;
}

/* A kernel has room for so many buffers. Sources that two arguments share are counted twice at first, and exactly once that matters; where there are too
 * many of them, the arguments are stored. one_by_one: a CAT whose parts are written by statements of their own. */
static void
bound_sources(fuse *f, kin_irn n, bool one_by_one)
{
    enum { MOST = FUSE_MOST_BUFFERS - 4 };
    const kin_ir_node *node = fuse_node(f, n);
    uint32_t sum = 0;
    for (unsigned a = 0; a < node->nargs; a++) {
        kin_irn arg = kin_ir_arg(f->ir, n, a);
        uint32_t of = fuse_in_memory(f, arg) ? 1 : f->nodes[arg].sources;
        sum = one_by_one ? (of > sum ? of : sum) : sum + of;
    }
    if (sum > MOST) {
        f->visit++;
        sum = count_from(f, n);
    }
    for (unsigned a = 0; sum > MOST && !one_by_one && a < node->nargs; a++)
        if (f->nodes[kin_ir_arg(f->ir, n, a)].sources > 1 && !f->nodes[kin_ir_arg(f->ir, n, a)].inside)
            fuse_store(f, kin_ir_arg(f->ir, n, a));
    f->nodes[n].sources = sum > MOST ? node->nargs : sum;
}

/* Of the CATs that reading an element of n goes through, all together. */
static uint32_t
count_parts(const fuse *f, kin_irn n)
{
    uint32_t sum = 0, most = 1;
    for (unsigned a = 0; a < fuse_node(f, n)->nargs; a++) {
        uint32_t parts = fuse_in_memory(f, kin_ir_arg(f->ir, n, a)) ? 1 : f->nodes[kin_ir_arg(f->ir, n, a)].parts;
        sum += parts;
        most = parts > most ? parts : most;
    }
    return fuse_node(f, n)->op == KIN_IR_CAT ? sum : most;
}

static void
store_by_cost(fuse *f)
{
    find_elsewhere(f);
    fuse_find_epilogues(f);
    for (kin_irn n = 1; n < f->ir->nodes.len; n++) {
        const kin_ir_node *node = fuse_node(f, n);
        node_info *info = &f->nodes[n];
        if (!info->live || node->op == KIN_IR_EXTERN)
            continue;
        store_repeated(f, n);
        info->parts = count_parts(f, n);
        bool by_parts = is_stored_by_parts(f, n);
        bound_sources(f, n, by_parts);
        info->cost = own_cost(node);
        for (unsigned a = 0; a < node->nargs; a++) {
            kin_irn arg = kin_ir_arg(f->ir, n, a);
            info->cost += fuse_in_memory(f, arg) ? 1 : f->nodes[arg].cost;
        }
        bool leaf = kin_ir_op_class(node->op) == KIN_IR_CLASS_LEAF || kin_ir_op_class(node->op) == KIN_IR_CLASS_VIEW;
        if (info->exits || always_stored(node) || (!info->inside && (by_parts || (is_wanted_often(info) && !leaf) || info->cost > 200)))
            fuse_store(f, n);
    }
}

void
fuse_choose_stored(fuse *f)
{
    find_live(f);
    claim_outputs(f);
    claim_updates(f);
    store_arguments(f);
    store_by_cost(f);
}
