/* Channels-last memory for values between calls that like it. A value gets such strides when an argument has them and no
 * call that was captured with another layout takes it: what such a call returns depends on what it is given.
 */
#include "core/library/library_priv.h"

#include <string.h>

static bool
is_library(const kin_library *l, kin_irn call)
{
    return (uint32_t)kin_ir_attrs(l->ir, call)[0] >= l->first;
}

/* Pooling works on the layout that it is given, and returns the same. */
static bool
keeps_layout(const kin_library *l, kin_irn call)
{
    return strcmp(kin_ir_name(l->ir, call), "aten.max_pool2d_with_indices.default") == 0;
}

/* Products give the same whatever their operands' layout. */
static bool
stays(const rewriting *r, kin_irn call)
{
    return !kin_library_is(r, call, "aten.max_pool2d_with_indices.default") && !kin_library_is(r, call, "aten.mm.default") &&
           !kin_library_is(r, call, "aten.addmm.default");
}

void
kin_library_find_fixed(rewriting *r, const conv_plans *plans)
{
    const kin_ir *p = r->p;
    for (kin_irn n = p->nodes.len - 1; n > 0; n--) {
        const kin_ir_node *node = kin_ir_at(p, n);
        bool fixes = node->op == KIN_IR_EXTERN ? stays(r, n)
                                               : kin_ir_op_class(node->op) == KIN_IR_CLASS_VIEW && r->fixed[n];
        for (uint32_t i = 0; fixes && i < plans->len; i++)
            fixes = plans->at[i].call != n;
        for (unsigned a = 0; a < node->nargs; a++)
            r->fixed[kin_ir_arg(p, n, a)] |= fixes;
    }
}

static void
find_fixed(const kin_library *l, bool *fixed)
{
    const kin_ir *q = l->ir;
    for (kin_irn n = q->nodes.len - 1; n > 0; n--) {
        const kin_ir_node *node = kin_ir_at(q, n);
        bool fixes = node->op == KIN_IR_EXTERN ? !is_library(l, n) && !keeps_layout(l, n)
                                               : kin_ir_op_class(node->op) == KIN_IR_CLASS_VIEW && fixed[n];
        for (unsigned a = 0; a < node->nargs; a++)
            fixed[kin_ir_arg(q, n, a)] |= fixes;
    }
}

void
kin_library_spread_layout(kin_library *l)
{
    kin_ir *q = l->ir;
    bool *fixed = calloc(q->nodes.len, sizeof *fixed), *last = calloc(q->nodes.len, sizeof *last);
    if (fixed == NULL || last == NULL || q->failed) {
        free(fixed);
        free(last);
        return;
    }
    find_fixed(l, fixed);
    for (kin_irn n = 1; n < q->nodes.len; n++) {
        kin_ir_op op = kin_ir_at(q, n)->op;
        kin_ir_class class = kin_ir_op_class(op);
        bool any = false;
        for (unsigned a = 0; a < kin_ir_at(q, n)->nargs; a++)
            any = any || last[kin_ir_arg(q, n, a)];
        if (op == KIN_IR_EXTERN)
            last[n] = is_library(l, n) ? l->calls.at[kin_ir_attrs(q, n)[0] - l->first].kind == KIN_LIBRARY_CONV
                                       : any && keeps_layout(l, n);
        else if (op == KIN_IR_RESULT || class == KIN_IR_CLASS_POINTWISE || class == KIN_IR_CLASS_COMPARE)
            last[n] = any && !fixed[n] && kin_ir_at(q, n)->ndim == 4;
        if (!last[n] || op == KIN_IR_EXTERN)
            continue;
        int64_t sizes[4], strides[4];
        memcpy(sizes, kin_ir_sizes(q, n), sizeof sizes);
        kin_library_channels_last(sizes, 4, strides);
        kin_ir_set_strides(q, n, strides);
    }
    free(fixed);
    free(last);
}
