/* Helpers for rules about operators: reading a call's arguments by position or name, and dtype promotion. */
#include "core/aten/aten.h"

const kin_aten_arg *
kin_aten_find(const kin_aten *g, const kin_aten_call *call, unsigned at, const char *keyword)
{
    const kin_aten_arg *found = NULL;
    for (unsigned i = 0; i < call->nargs; i++) {
        const kin_aten_arg *a = &g->args.at[call->args + i];
        if (a->name == 0 ? i == at : strcmp(kin_aten_text(g, a->name), keyword) == 0)
            found = a;
    }
    return found != NULL && found->kind != KIN_ATEN_NONE ? found : NULL;
}

int
kin_aten_ints(const kin_aten *g, const kin_aten_arg *a, int64_t *out)
{
    if (a != NULL && a->kind == KIN_ATEN_INT) {
        kin_aten_ask(g, a);
        out[0] = a->i;
        return 1;
    }
    if (a == NULL || a->kind != KIN_ATEN_LIST || a->list.count > KIN_IR_MAX_DIMS)
        return -1;
    for (unsigned i = 0; i < a->list.count; i++) {
        const kin_aten_arg *item = &g->args.at[a->list.child + i];
        if (item->kind != KIN_ATEN_INT)
            return -1;
        kin_aten_ask(g, item);
        out[i] = item->i;
    }
    return (int)a->list.count;
}

kin_dtype
kin_aten_promote(kin_dtype a, kin_dtype b)
{
    if (a > b) {
        kin_dtype t = a;
        a = b;
        b = t;
    }
    if (a == KIN_F16 && b == KIN_BF16)
        return KIN_F32;
    if (a == KIN_U8 && b == KIN_I8)
        return KIN_I16;
    if (a == KIN_F64 && b == KIN_C64)
        return KIN_C128;
    return b; /* the table of dtypes is in this order otherwise */
}

void
kin_aten_join(kin_aten_mixed *m, kin_aten_category category, kin_dtype dtype)
{
    m->dtypes[category] = m->some[category] ? kin_aten_promote(m->dtypes[category], dtype) : dtype;
    m->some[category] = true;
}

/* A tensor with dims decides before one without, that before a number, unless the lower one is of a higher kind. */
kin_dtype
kin_aten_common(const kin_aten_mixed *m)
{
    kin_dtype common = KIN_BOOL;
    bool some = false;
    for (int i = KIN_ATEN_CATEGORIES - 1; i >= 0; i--) {
        kin_dtype higher = m->dtypes[i];
        if (!m->some[i])
            continue;
        if (some && !kin_dtype_is_float(higher) && (higher == KIN_BOOL || kin_dtype_is_float(common)))
            higher = kin_aten_promote(higher, common);
        common = higher;
        some = true;
    }
    return common;
}

/* From the smallest stride on, each must be beyond all that is reached with those before. */
bool
kin_aten_may_overlap(unsigned ndim, const int64_t *sizes, const int64_t *strides)
{
    bool done[KIN_IR_MAX_DIMS] = {false};
    int64_t reach = 0;
    for (;;) {
        unsigned next = ndim;
        for (unsigned d = 0; d < ndim; d++)
            if (!done[d] && sizes[d] > 1 && (next == ndim || strides[d] < strides[next]))
                next = d;
        if (next == ndim)
            return false;
        if (strides[next] <= reach)
            return true;
        reach += (sizes[next] - 1) * strides[next];
        done[next] = true;
    }
}
