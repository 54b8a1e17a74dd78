/* Verifies an ATen graph: everything that lowering relies on without testing. */
#include "core/aten/aten.h"

static bool
refuse(const kin_aten *g, uint32_t call, const char *reason, kin_text *why)
{
    kin_text_addf(why, "call %u %s: %s", call, kin_aten_text(g, g->calls.at[call].op), reason);
    return false;
}

static bool
check_value(const kin_aten *g, kin_aten_val v)
{
    const kin_aten_value *value = kin_aten_at(g, v);
    int64_t count = 1;
    if (value->dtype >= KIN_DTYPE__COUNT || value->ndim > KIN_IR_MAX_DIMS || value->storage == 0 || value->offset < 0)
        return false;
    for (unsigned d = 0; d < value->ndim; d++) {
        int64_t size = kin_aten_sizes(g, v)[d], stride = kin_aten_strides(g, v)[d], reach;
        if (size < 0 || stride < 0 || __builtin_mul_overflow(size, stride, &reach) || reach > INT64_MAX / 32
            || __builtin_mul_overflow(count, size ? size : 1, &count) || count > INT64_MAX / 32)
            return false;
    }
    return value->offset <= INT64_MAX / 32;
}

static bool
check_args(const kin_aten *g, uint32_t call, uint32_t first, uint32_t count, kin_aten_val before, kin_text *why)
{
    if (first > g->args.len || count > g->args.len - first)
        return refuse(g, call, "arguments are not there", why);
    for (uint32_t i = first; i < first + count; i++) {
        const kin_aten_arg *a = &g->args.at[i];
        if (a->kind > KIN_ATEN_LIST)
            return refuse(g, call, "unknown kind of argument", why);
        if (a->kind == KIN_ATEN_VALUE && (a->value == 0 || a->value >= before))
            return refuse(g, call, "arguments come earlier", why);
        if (a->kind == KIN_ATEN_DTYPE && (a->i < 0 || a->i >= KIN_DTYPE__COUNT))
            return refuse(g, call, "no such dtype", why);
        /* Elements lie behind their list, so this ends. */
        if (a->kind == KIN_ATEN_LIST
            && (a->list.child <= i ? refuse(g, call, "arguments are not there", why), true
                                   : !check_args(g, call, a->list.child, a->list.count, before, why)))
            return false;
    }
    return true;
}

static bool
check_calls(const kin_aten *g, kin_text *why)
{
    kin_aten_val next = g->ninputs + 1;
    for (uint32_t c = 0; c < g->calls.len; c++) {
        const kin_aten_call *call = &g->calls.at[c];
        if (call->row > KIN_ATEN_OPS)
            return refuse(g, c, "no such row", why);
        if (call->nresults > 0 && (call->results != next || call->nresults > g->values.len - next))
            return refuse(g, c, "results are numbered in order", why);
        if (!check_args(g, c, call->args, call->nargs, next, why))
            return false;
        for (uint32_t i = 0; i < call->nresults; i++)
            if (kin_aten_at(g, next + i)->call != c)
                return refuse(g, c, "results are numbered in order", why);
        next += call->nresults;
    }
    if (next != g->values.len) {
        kin_text_addf(why, "%%%u: nothing makes it", next);
        return false;
    }
    return true;
}

bool
kin_aten_verify(const kin_aten *g, kin_text *why)
{
    if (g->failed) {
        kin_text_add(why, "no memory while it was built");
        return false;
    }
    for (kin_aten_val v = 1; v < g->values.len; v++)
        if (!check_value(g, v)) {
            kin_text_addf(why, "%%%u: impossible dtype, sizes, strides or storage", v);
            return false;
        }
    for (uint32_t i = 0; i < g->ninputs; i++)
        if (i + 1 >= g->values.len || kin_aten_at(g, i + 1)->call != UINT32_MAX || kin_aten_at(g, i + 1)->input != i) {
            kin_text_addf(why, "input %u is not %%%u", i, i + 1);
            return false;
        }
    if (!check_calls(g, why))
        return false;
    for (uint32_t i = 0; i < g->outputs.len; i++)
        if (g->outputs.at[i] == 0 || g->outputs.at[i] >= g->values.len) {
            kin_text_addf(why, "output %u is no value", i);
            return false;
        }
    return true;
}
