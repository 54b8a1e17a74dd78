/* What a call does besides returning results: from its operator's row (ops.h), its arguments, and its schema. */
#include "core/aten/aten.h"

static const kin_aten_arg *
find_written(const kin_aten *g, uint32_t first, uint32_t count)
{
    for (uint32_t i = first; i < first + count; i++) {
        const kin_aten_arg *a = &g->args.at[i];
        const kin_aten_arg *inside = a->kind == KIN_ATEN_LIST ? find_written(g, a->list.child, a->list.count) : NULL;
        if (inside != NULL)
            return inside;
        if (a->kind == KIN_ATEN_VALUE && a->written)
            return a;
    }
    return NULL;
}

const kin_aten_arg *
kin_aten_written(const kin_aten *g, const kin_aten_call *call)
{
    return find_written(g, call->args, call->nargs);
}

bool
kin_aten_has_effect(const kin_aten *g, const kin_aten_call *call)
{
    return call->random || call->nresults == 0 || strncmp(kin_aten_text(g, call->op), "aten.", 5) != 0;
}

bool
kin_aten_writes_unsaid(const kin_aten *g, const kin_aten_call *call)
{
    kin_aten_op op = kin_aten_op_of(call);
    if (!kin_aten_op_is(op, KIN_ATEN_WRITES_IN_TRAINING))
        return kin_aten_op_is(op, KIN_ATEN_WRITES_UNSAID);
    const kin_aten_arg *training = kin_aten_find(g, call, 5, "training");
    return kin_aten_find(g, call, 3, "running_mean") != NULL && (training == NULL || training->i != 0);
}

static bool
is_empty(const kin_aten *g, kin_aten_val v)
{
    for (unsigned d = 0; d < kin_aten_at(g, v)->ndim; d++)
        if (kin_aten_sizes(g, v)[d] == 0)
            return true;
    return false;
}

/* Is one of its tensors without elements? Those in lists are not looked at. */
static bool
has_empty(const kin_aten *g, const kin_aten_call *call)
{
    bool empty = false;
    for (uint32_t a = call->args; a < call->args + call->nargs; a++)
        empty = empty || (g->args.at[a].kind == KIN_ATEN_VALUE && is_empty(g, g->args.at[a].value));
    for (uint32_t r = 0; r < call->nresults; r++)
        empty = empty || is_empty(g, call->results + r);
    return empty;
}

bool
kin_aten_raises(const kin_aten *g, const kin_aten_call *call)
{
    kin_aten_op op = kin_aten_op_of(call);
    if (op == KIN_ATEN_OPS || kin_aten_op_is(op, KIN_ATEN_RAISES) || (kin_aten_op_is(op, KIN_ATEN_RAISES_ON_EMPTY) && has_empty(g, call)))
        return true;
    return kin_aten_op_is(op, KIN_ATEN_RAISES_ON_INTS) &&
           !(call->nresults > 0 && kin_dtype_is_float((kin_dtype)kin_aten_at(g, call->results)->dtype));
}
