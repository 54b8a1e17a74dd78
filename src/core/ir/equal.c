/* Are two tensor programs equal, node by node? Tells reports whether a pass changed anything. */
#include "core/ir/ir.h"

static bool
equal_ints(const kin_ir *a, uint32_t at_a, const kin_ir *b, uint32_t at_b, unsigned n)
{
    return n == 0 || memcmp(a->ints.at + at_a, b->ints.at + at_b, n * sizeof *a->ints.at) == 0;
}

static bool
equal_strides(const kin_ir *a, uint32_t at_a, const kin_ir *b, uint32_t at_b, unsigned n)
{
    return (at_a != 0) == (at_b != 0) && (at_a == 0 || equal_ints(a, at_a, b, at_b, n));
}

static bool
equal_nodes(const kin_ir *a, const kin_ir *b, kin_irn n)
{
    const kin_ir_node *x = kin_ir_at(a, n), *y = kin_ir_at(b, n);
    if (x->op != y->op || x->dtype != y->dtype || x->ndim != y->ndim || x->nargs != y->nargs || x->nattrs != y->nattrs)
        return false;
    if (x->op == KIN_IR_CONST && x->value.i != y->value.i)
        return false;
    for (unsigned k = 0; k < x->nargs; k++)
        if (kin_ir_arg(a, n, k) != kin_ir_arg(b, n, k))
            return false;
    return equal_ints(a, x->sizes, b, y->sizes, x->ndim) && equal_ints(a, x->attrs, b, y->attrs, x->nattrs) &&
           equal_strides(a, x->strides, b, y->strides, x->ndim) && strcmp(kin_ir_name(a, n), kin_ir_name(b, n)) == 0;
}

bool
kin_ir_equal(const kin_ir *a, const kin_ir *b)
{
    if (a->nodes.len != b->nodes.len || a->outputs.len != b->outputs.len || a->updates.len != b->updates.len || a->ninputs != b->ninputs)
        return false;
    for (kin_irn n = 1; n < a->nodes.len; n++)
        if (!equal_nodes(a, b, n))
            return false;
    for (uint32_t o = 0; o < a->outputs.len; o++) {
        const kin_ir_out *x = &a->outputs.at[o], *y = &b->outputs.at[o];
        if (x->node != y->node || x->into != y->into || !equal_strides(a, x->strides, b, y->strides, kin_ir_at(a, x->node)->ndim))
            return false;
    }
    return true;
}
