/* How much work the calls of a graph are, so that times measured for one kind of sizes say something about another (aten.h). */
#include "core/aten/aten.h"

#include <math.h>
#include <stdlib.h>

static double
count(const kin_aten *g, kin_aten_val v)
{
    double n = 1;
    for (unsigned d = 0; d < kin_aten_at(g, v)->ndim; d++)
        n *= (double)kin_aten_sizes(g, v)[d];
    return n;
}

/* The two largest tensors among the arguments: a product's operands, its bias left out. */
static void
find_largest(const kin_aten *g, uint32_t first, uint32_t n, double largest[2])
{
    for (uint32_t i = first; i < first + n; i++) {
        const kin_aten_arg *a = &g->args.at[i];
        if (a->kind == KIN_ATEN_LIST)
            find_largest(g, a->list.child, a->list.count, largest);
        double elements = a->kind == KIN_ATEN_VALUE ? count(g, a->value) : 0;
        if (elements > largest[0]) {
            largest[1] = largest[0];
            largest[0] = elements;
        } else if (elements > largest[1]) {
            largest[1] = elements;
        }
    }
}

/* m x k times k x n takes mkn multiplications, the square root of the product of the three numbers of elements. Of convolutions and attention this is a share that hardly depends
 * on sizes. */
static double
count_products(const kin_aten *g, const kin_aten_call *call)
{
    double largest[2] = {0, 0};
    if (!kin_aten_op_is(kin_aten_op_of(call), KIN_ATEN_LIBRARY) || call->nresults == 0)
        return 0;
    find_largest(g, call->args, call->nargs, largest);
    return sqrt(largest[0] * largest[1] * count(g, call->results));
}

bool
kin_aten_measure(const kin_aten *g, kin_aten_work *out)
{
    bool *seen = calloc(g->nstorages + 1, sizeof *seen);
    *out = (kin_aten_work){0};
    if (seen == NULL)
        return false;
    for (uint32_t i = 1; i <= g->ninputs; i++)
        seen[kin_aten_at(g, i)->storage] = true;
    for (uint32_t c = 0; c < g->calls.len; c++) {
        const kin_aten_call *call = &g->calls.at[c];
        const kin_aten_arg *written = kin_aten_written(g, call);
        out->elements += written != NULL && written->kind == KIN_ATEN_VALUE ? count(g, written->value) : 0;
        for (uint32_t r = call->results; r < call->results + call->nresults; r++) {
            out->elements += seen[kin_aten_at(g, r)->storage] ? 0 : count(g, r); /* views cost nothing */
            seen[kin_aten_at(g, r)->storage] = true;
        }
        out->products += count_products(g, call);
    }
    free(seen);
    return out->elements > 0;
}

double
kin_aten_work_ratio(const kin_aten_work *from, const kin_aten_work *to)
{
    if (from->elements == 0 || to->elements == 0 || (from->products == 0) != (to->products == 0))
        return 0;
    double elements = to->elements / from->elements, products = from->products == 0 ? elements : to->products / from->products;
    return elements < products ? elements : products;
}
