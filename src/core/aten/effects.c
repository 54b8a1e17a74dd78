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

bool
kin_aten_raises(const kin_aten *g, const kin_aten_call *call)
{
    kin_aten_op op = kin_aten_op_of(call);
    if (op == KIN_ATEN_OPS || kin_aten_op_is(op, KIN_ATEN_RAISES))
        return true;
    return kin_aten_op_is(op, KIN_ATEN_RAISES_ON_INTS) &&
           !(call->nresults > 0 && kin_dtype_is_float((kin_dtype)kin_aten_at(g, call->results)->dtype));
}
