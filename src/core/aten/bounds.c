/* Places that operators have found (the order of a sort, the largest elements) lie inside of the dim that they were found in, so looking something up at them in
 * a dim of that size does not raise (needed.c). Sizes are compared as numbers: a plan is only copied for inputs whose sizes are equal where they always were.
 */
#include "core/aten/aten.h"

#include <stdlib.h>

/* How many elements the call's first tensor has along the dim that is its argument number `at`; of all of them if it is not given. */
static int64_t
length(const kin_aten *g, const kin_aten_call *call, unsigned at, int64_t otherwise)
{
    const kin_aten_arg *self = kin_aten_find(g, call, 0, "self"), *dim = kin_aten_find(g, call, at, "dim");
    if (self == NULL || self->kind != KIN_ATEN_VALUE || (dim != NULL && dim->kind != KIN_ATEN_INT))
        return 0;
    unsigned ndim = kin_aten_at(g, self->value)->ndim;
    const int64_t *sizes = kin_aten_sizes(g, self->value);
    if (dim != NULL)
        kin_aten_ask(g, dim);
    int64_t d = dim != NULL ? dim->i : otherwise, all = 1;
    if (d != INT64_MAX)
        return ndim == 0 ? 1 : d >= -(int64_t)ndim && d < (int64_t)ndim ? sizes[d < 0 ? d + ndim : d] : 0;
    for (unsigned i = 0; i < ndim; i++)
        all *= sizes[i];
    return all;
}

static int64_t
bound_of(const kin_aten *g, const kin_aten_call *call, const int64_t *bounds, unsigned at)
{
    const kin_aten_arg *a = at < call->nargs ? &g->args.at[call->args + at] : NULL;
    return a != NULL && a->kind == KIN_ATEN_VALUE ? bounds[a->value] : 0;
}

/* A number above zero by which integers are divided; 0: it is none, or not known. */
static int64_t
divisor(const kin_aten *g, const kin_aten_call *call)
{
    const kin_aten_arg *a = call->nargs > 1 ? &g->args.at[call->args + 1] : NULL;
    if (a == NULL || a->kind != KIN_ATEN_INT)
        return 0;
    kin_aten_ask(g, a);
    return a->i > 0 ? a->i : 0;
}

/* Of result r: all its elements lie in [0, bound). 0: nothing is known. */
static int64_t
find_bound(const kin_aten *g, const kin_aten_call *call, uint32_t r, const int64_t *bounds)
{
    int64_t n;
    switch (kin_aten_op_of(call)) {
    case KIN_ATEN_OP(sort, default): case KIN_ATEN_OP(sort, stable): case KIN_ATEN_OP(max, dim): case KIN_ATEN_OP(min, dim):
        return r == 1 ? length(g, call, kin_aten_op_of(call) == KIN_ATEN_OP(sort, stable) ? 2 : 1, -1) : bound_of(g, call, bounds, 0);
    case KIN_ATEN_OP(topk, default): return r == 1 ? length(g, call, 2, -1) : bound_of(g, call, bounds, 0);
    case KIN_ATEN_OP(argmax, default): case KIN_ATEN_OP(argmin, default): return length(g, call, 1, INT64_MAX);
    case KIN_ATEN_OP(randperm, default): return kin_aten_sizes(g, call->results)[0];
    case KIN_ATEN_OP(arange, default): return kin_aten_at(g, call->results)->dtype == KIN_I64 ? kin_aten_sizes(g, call->results)[0] : 0;
    case KIN_ATEN_OP(floor_divide, default): case KIN_ATEN_OP(floor_divide, Scalar):
        n = divisor(g, call);
        return n > 0 ? (bound_of(g, call, bounds, 0) + n - 1) / n : 0;
    case KIN_ATEN_OP(remainder, Tensor): case KIN_ATEN_OP(remainder, Scalar): return kin_dtype_is_float((kin_dtype)kin_aten_at(g, call->results)->dtype) ? 0 : divisor(g, call);
    case KIN_ATEN_OP(view, default): case KIN_ATEN_OP(_unsafe_view, default): case KIN_ATEN_OP(reshape, default): case KIN_ATEN_OP(_reshape_alias, default):
    case KIN_ATEN_OP(unsqueeze, default): case KIN_ATEN_OP(squeeze, default): case KIN_ATEN_OP(squeeze, dim): case KIN_ATEN_OP(squeeze, dims):
    case KIN_ATEN_OP(expand, default): case KIN_ATEN_OP(permute, default): case KIN_ATEN_OP(transpose, int): case KIN_ATEN_OP(t, default):
    case KIN_ATEN_OP(slice, Tensor): case KIN_ATEN_OP(select, int): case KIN_ATEN_OP(split, Tensor): case KIN_ATEN_OP(split_with_sizes, default):
    case KIN_ATEN_OP(unbind, int): case KIN_ATEN_OP(clone, default): case KIN_ATEN_OP(detach, default): case KIN_ATEN_OP(alias, default):
    case KIN_ATEN_OP(flip, default): case KIN_ATEN_OP(roll, default): case KIN_ATEN_OP(repeat, default): case KIN_ATEN_OP(index_select, default):
    case KIN_ATEN_OP(gather, default): case KIN_ATEN_OP(index, Tensor): return bound_of(g, call, bounds, 0);
    default: return 0;
    }
}

static void
note_written(const kin_aten *g, uint32_t first, uint32_t count, bool *written)
{
    for (uint32_t i = first; i < first + count; i++) {
        const kin_aten_arg *a = &g->args.at[i];
        if (a->kind == KIN_ATEN_LIST)
            note_written(g, a->list.child, a->list.count, written);
        else if (a->kind == KIN_ATEN_VALUE && a->written)
            written[kin_aten_at(g, a->value)->storage] = true;
    }
}

int64_t *
kin_aten_find_bounds(const kin_aten *g)
{
    int64_t *bounds = calloc(g->values.len + 1, sizeof *bounds);
    bool *written = calloc((size_t)g->nstorages + 1, sizeof *written);
    for (uint32_t c = 0; written != NULL && c < g->calls.len; c++)
        note_written(g, g->calls.at[c].args, g->calls.at[c].nargs, written);
    for (uint32_t c = 0; bounds != NULL && written != NULL && c < g->calls.len; c++) {
        const kin_aten_call *call = &g->calls.at[c];
        for (uint32_t r = 0; r < call->nresults && !call->in_place; r++)
            if (!written[kin_aten_at(g, call->results + r)->storage])
                bounds[call->results + r] = find_bound(g, call, r, bounds);
    }
    free(written);
    return bounds;
}

static bool
fits(const kin_aten *g, const kin_aten_arg *index, const int64_t *bounds, kin_aten_val in, int64_t dim)
{
    int64_t ndim = kin_aten_at(g, in)->ndim, bound = index != NULL && index->kind == KIN_ATEN_VALUE ? bounds[index->value] : 0;
    dim += dim < 0 ? ndim : 0;
    return bound != 0 && dim >= 0 && dim < ndim && kin_aten_sizes(g, in)[dim] == bound;
}

static bool
fits_all(const kin_aten *g, const kin_aten_arg *list, const int64_t *bounds, kin_aten_val in)
{
    for (uint32_t i = 0; i < list->list.count; i++) {
        const kin_aten_arg *index = &g->args.at[list->list.child + i];
        if (index->kind != KIN_ATEN_NONE && !fits(g, index, bounds, in, i))
            return false;
    }
    return true;
}

bool
kin_aten_places_fit(const kin_aten *g, const kin_aten_call *call, const int64_t *bounds)
{
    const kin_aten_arg *args = g->args.at + call->args;
    if (bounds == NULL || call->nargs < 2 || args[0].kind != KIN_ATEN_VALUE)
        return false;
    switch (kin_aten_op_of(call)) {
    case KIN_ATEN_OP(index, Tensor): return args[1].kind == KIN_ATEN_LIST && fits_all(g, &args[1], bounds, args[0].value);
    case KIN_ATEN_OP(embedding, default): return fits(g, &args[1], bounds, args[0].value, 0);
    case KIN_ATEN_OP(index_select, default): case KIN_ATEN_OP(gather, default):
        if (call->nargs < 3 || args[1].kind != KIN_ATEN_INT)
            return false;
        kin_aten_ask(g, &args[1]);
        return fits(g, &args[2], bounds, args[0].value, args[1].i);
    case KIN_ATEN_OP(floor_divide, default): case KIN_ATEN_OP(floor_divide, Scalar): case KIN_ATEN_OP(remainder, Tensor): case KIN_ATEN_OP(remainder, Scalar):
        return divisor(g, call) != 0;
    default: return false;
    }
}
