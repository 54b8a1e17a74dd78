/* Complex numbers that stay inside the graph, as two real values each: the real and the imaginary parts.
 *
 * A complex value is *inside* if only calls that are handled here see it: it is not an output, not an argument of a call that stays extern, and nothing
 * writes to its memory. Calls that treat both parts alike (views, copies, sums) are lowered by their own rules, once for each part; products, and calls
 * that create complex numbers or turn them into real ones, have rules here. Inputs that are inside are read as real ones with a last dim of two. All
 * other complex values are passed between extern calls.
 */
#include "core/lower/lower_priv.h"

static bool
is_complex(const low *l, kin_aten_val v)
{
    return kin_aten_at(l->g, v)->dtype >= KIN_C64;
}

kin_dtype
low_real_dtype(kin_dtype dtype)
{
    return dtype == KIN_C64 ? KIN_F32 : dtype == KIN_C128 ? KIN_F64 : dtype;
}

/* -- which values are inside ------------------------------------------------------------------------------------------ */

typedef enum { COMPLEX, INSIDE, OUTSIDE, REAL } question;

/* How many of the tensors among these arguments are of that kind. */
static unsigned
count_args(const low *l, uint32_t first, uint32_t count, question q)
{
    unsigned n = 0;
    for (uint32_t i = first; i < first + count; i++) {
        const kin_aten_arg *a = &l->g->args.at[i];
        if (a->kind == KIN_ATEN_LIST)
            n += count_args(l, a->list.child, a->list.count, q);
        if (a->kind != KIN_ATEN_VALUE)
            continue;
        bool complex = is_complex(l, a->value), inside = l->inside[a->value];
        n += q == REAL ? !complex : complex && (q == COMPLEX || inside == (q == INSIDE));
    }
    return n;
}

static void
mark_args(low *l, uint32_t first, uint32_t count)
{
    for (uint32_t i = first; i < first + count; i++) {
        const kin_aten_arg *a = &l->g->args.at[i];
        if (a->kind == KIN_ATEN_LIST)
            mark_args(l, a->list.child, a->list.count);
        if (a->kind == KIN_ATEN_VALUE)
            l->inside[a->value] = false;
    }
}

static bool
touches(const low *l, const kin_aten_call *call)
{
    for (uint32_t k = 0; k < call->nresults; k++)
        if (is_complex(l, call->results + k))
            return true;
    return count_args(l, call->args, call->nargs, COMPLEX) > 0;
}

/* Is the value in memory of an input that is complex itself? Real views of that have no place in the program. */
static bool
is_of_complex_input(const low *l, kin_aten_val v)
{
    for (kin_aten_val i = 1; i <= l->g->ninputs; i++)
        if (is_complex(l, i) && kin_aten_at(l->g, i)->storage == kin_aten_at(l->g, v)->storage)
            return true;
    return false;
}

static bool
is_covered(low *l, const kin_aten_call *call)
{
    low_call c = {.l = l, .ir = l->ir, .call = call};
    const kin_aten_arg *a = low_arg(&c, 0, "self"), *b = low_arg(&c, 1, "other");
    switch (kin_aten_op_complex(kin_aten_op_of(call))) {
    case KIN_COMPLEX_NO: return false;
    case KIN_COMPLEX_BOTH: /* of several tensors all are complex, but for places */
        if (!is_complex(l, call->results)) /* `z.sum(dtype=torch.float32)` */
            return false;
        return low_is_value(a) ? is_complex(l, a->value) : count_args(l, call->args, call->nargs, REAL) == 0;
    case KIN_COMPLEX_SUM: return low_is_value(a) && low_is_value(b) && is_complex(l, a->value) && is_complex(l, b->value) && low_arg(&c, UINT32_MAX, "alpha") == NULL;
    case KIN_COMPLEX_PRODUCT: return low_is_value(a) && b != NULL && (low_is_value(b) || low_is_number(b));
    case KIN_COMPLEX_AS_REAL: return !is_of_complex_input(l, call->results);
    default: return call->nresults == 1;
    }
}

/* The call keeps its complex values inside only all together. True: something changed. */
static bool
settle_call(low *l, const kin_aten_call *call)
{
    unsigned outside = count_args(l, call->args, call->nargs, OUTSIDE);
    bool changed = count_args(l, call->args, call->nargs, INSIDE) > 0;
    for (uint32_t k = 0; k < call->nresults; k++)
        outside += is_complex(l, call->results + k) && !l->inside[call->results + k];
    if (outside == 0 && is_covered(l, call))
        return false;
    for (uint32_t k = 0; k < call->nresults; k++) {
        changed |= is_complex(l, call->results + k) && l->inside[call->results + k];
        l->inside[call->results + k] = false;
    }
    mark_args(l, call->args, call->nargs);
    return changed;
}

/* Memory that is written to, or in which several inputs lie. */
static void
mark_storage(low *l, uint32_t storage)
{
    for (kin_aten_val v = 1; v < l->g->values.len; v++)
        if (kin_aten_at(l->g, v)->storage == storage)
            l->inside[v] = false;
}

static void
mark_written(low *l, uint32_t first, uint32_t count)
{
    for (uint32_t i = first; i < first + count; i++) {
        const kin_aten_arg *a = &l->g->args.at[i];
        if (a->kind == KIN_ATEN_LIST)
            mark_written(l, a->list.child, a->list.count);
        if (a->kind == KIN_ATEN_VALUE && a->written)
            mark_storage(l, kin_aten_at(l->g, a->value)->storage);
    }
}

void
low_complex_find(low *l)
{
    const kin_aten *g = l->g;
    bool some = false, changed = true;
    for (kin_aten_val v = 1; v < g->values.len; v++)
        some |= l->inside[v] = is_complex(l, v) && kin_aten_at(g, v)->ndim < KIN_IR_MAX_DIMS;
    for (uint32_t i = 0; some && i < g->outputs.len; i++)
        l->inside[g->outputs.at[i]] = false;
    for (kin_aten_val v = 1; some && v <= g->ninputs; v++)
        for (kin_aten_val other = 1; other < v; other++)
            if (kin_aten_at(g, v)->storage == kin_aten_at(g, other)->storage)
                mark_storage(l, kin_aten_at(g, v)->storage);
    for (uint32_t i = 0; some && i < g->calls.len; i++)
        mark_written(l, g->calls.at[i].args, g->calls.at[i].nargs);
    while (some && changed) {
        changed = false;
        for (uint32_t i = 0; i < g->calls.len; i++)
            if (touches(l, &g->calls.at[i]))
                changed |= settle_call(l, &g->calls.at[i]);
    }
}

bool
low_is_inside(low *l, const kin_aten_call *call)
{
    for (uint32_t k = 0; k < call->nresults; k++)
        if (l->inside[call->results + k])
            return true;
    return count_args(l, call->args, call->nargs, COMPLEX) > 0 && count_args(l, call->args, call->nargs, OUTSIDE) == 0;
}

/* -- parts -------------------------------------------------------------------------------------------------------------- */

static void
set_part(low *l, kin_aten_val v, unsigned part, kin_irn node)
{
    l->parts[2 * v + part] = node;
}

/* Place `part` of the last dim of x, without that dim. */
static kin_irn
last_place(low *l, kin_irn x, unsigned part)
{
    int64_t starts[KIN_IR_MAX_DIMS] = {0}, steps[KIN_IR_MAX_DIMS], sizes[KIN_IR_MAX_DIMS];
    unsigned ndim = kin_ir_at(l->ir, x)->ndim;
    for (unsigned d = 0; d < ndim; d++) {
        steps[d] = 1;
        sizes[d] = kin_ir_sizes(l->ir, x)[d];
    }
    starts[ndim - 1] = part;
    sizes[ndim - 1] = 1;
    return kin_ir_reshape(l->ir, kin_ir_slice(l->ir, x, starts, steps, sizes), ndim - 1, sizes);
}

/* An input that is inside, as a real one. */
kin_irn
low_complex_input(low *l, kin_aten_val v)
{
    const kin_aten_value *a = kin_aten_at(l->g, v);
    int64_t sizes[KIN_IR_MAX_DIMS], strides[KIN_IR_MAX_DIMS];
    for (unsigned d = 0; d < a->ndim; d++) {
        sizes[d] = kin_aten_sizes(l->g, v)[d];
        strides[d] = 2 * kin_aten_strides(l->g, v)[d];
    }
    sizes[a->ndim] = 2;
    strides[a->ndim] = 1;
    kin_irn node = kin_ir_input(l->ir, a->input, low_real_dtype((kin_dtype)a->dtype), a->ndim + 1u, sizes);
    kin_ir_set_strides(l->ir, node, strides);
    for (unsigned part = 0; part < 2; part++)
        set_part(l, v, part, last_place(l, node, part));
    return node;
}

/* A part of an operand with the sizes and dtype of the result; numbers and real tensors have no imaginary part. */
static kin_irn
part_of(low_call *c, const kin_aten_arg *a, unsigned part)
{
    kin_dtype dtype = low_dtype(c, 0);
    if (part == 1 && !(low_is_value(a) && is_complex(c->l, a->value)))
        return low_number(c, dtype, 0, low_ndim(c, 0), low_sizes(c, 0));
    c->l->part = part;
    return low_operand(c, a, dtype);
}

/* As eager computes it, whatever is not finite included. */
static bool
multiply(low_call *c)
{
    const kin_aten_arg *args[2] = {low_arg(c, 0, "self"), low_arg(c, 1, "other")};
    kin_irn x[2][2];
    for (unsigned i = 0; i < 2; i++)
        for (unsigned part = 0; part < 2; part++)
            if ((x[i][part] = part_of(c, args[i], part)) == 0)
                return false;
    kin_irn real = low_bi(c, KIN_IR_SUB, low_bi(c, KIN_IR_MUL, x[0][0], x[1][0]), low_bi(c, KIN_IR_MUL, x[0][1], x[1][1]));
    kin_irn imaginary = low_bi(c, KIN_IR_ADD, low_bi(c, KIN_IR_MUL, x[0][0], x[1][1]), low_bi(c, KIN_IR_MUL, x[0][1], x[1][0]));
    set_part(c->l, c->call->results, 0, real);
    set_part(c->l, c->call->results, 1, imaginary);
    return true;
}

static bool
conjugate(low_call *c)
{
    kin_irn real = part_of(c, low_arg(c, 0, "self"), 0), imaginary = part_of(c, low_arg(c, 0, "self"), 1);
    if (real == 0 || imaginary == 0)
        return false;
    set_part(c->l, c->call->results, 0, real);
    set_part(c->l, c->call->results, 1, low_un(c, KIN_IR_NEG, imaginary));
    return true;
}

/* complex(real, imaginary), polar(abs, angle). */
static bool
make(low_call *c, bool polar)
{
    kin_dtype dtype = low_dtype(c, 0);
    kin_irn a = low_operand(c, low_arg(c, 0, polar ? "abs" : "real"), dtype), b = low_operand(c, low_arg(c, 1, polar ? "angle" : "imag"), dtype);
    if (a == 0 || b == 0)
        return false;
    set_part(c->l, c->call->results, 0, polar ? low_bi(c, KIN_IR_MUL, a, low_un(c, KIN_IR_COS, b)) : a);
    set_part(c->l, c->call->results, 1, polar ? low_bi(c, KIN_IR_MUL, a, low_un(c, KIN_IR_SIN, b)) : b);
    return true;
}

static bool
as_complex(low_call *c)
{
    kin_irn x = low_read(c, low_arg(c, 0, "self"));
    for (unsigned part = 0; x != 0 && part < 2; part++)
        set_part(c->l, c->call->results, part, last_place(c->l, x, part));
    return x != 0;
}

/* The parts side by side. */
static kin_irn
as_real(low_call *c, kin_aten_val v)
{
    int64_t sizes[KIN_IR_MAX_DIMS];
    unsigned ndim = low_ndim(c, 0);
    kin_irn parts[2];
    memcpy(sizes, low_sizes(c, 0), ndim * sizeof *sizes);
    sizes[ndim - 1] = 1;
    for (unsigned part = 0; part < 2; part++)
        parts[part] = kin_ir_reshape(c->ir, c->l->parts[2 * v + part], ndim, sizes);
    return kin_ir_cat(c->ir, parts, 2, ndim - 1);
}

static bool
run_for_both(low_call *c)
{
    for (unsigned part = 0; part < 2; part++) {
        memset(c->results, 0, c->call->nresults * sizeof *c->results);
        c->l->part = part;
        if (!low_rule_run(c))
            return false;
        for (uint32_t k = 0; k < c->call->nresults; k++) {
            if (c->results[k] == 0 && low_wanted(c, k))
                return false;
            set_part(c->l, c->call->results + k, part, c->results[k]);
        }
    }
    return true;
}

bool
low_complex_call(low_call *c, kin_irn *real)
{
    const kin_aten_arg *a = low_arg(c, 0, "self");
    *real = 0;
    switch (kin_aten_op_complex(kin_aten_op_of(c->call))) {
    case KIN_COMPLEX_BOTH:
    case KIN_COMPLEX_SUM: return run_for_both(c);
    case KIN_COMPLEX_PRODUCT: return multiply(c);
    case KIN_COMPLEX_CONJUGATE: return conjugate(c);
    case KIN_COMPLEX_AS_COMPLEX: return as_complex(c);
    case KIN_COMPLEX_MAKE: return make(c, false);
    case KIN_COMPLEX_MAKE_POLAR: return make(c, true);
    case KIN_COMPLEX_AS_REAL: return (*real = as_real(c, a->value)) != 0;
    case KIN_COMPLEX_ABSOLUTE:
        *real = low_bi(c, KIN_IR_HYPOT, c->l->parts[2 * a->value], c->l->parts[2 * a->value + 1]);
        return *real != 0;
    case KIN_COMPLEX_NO: break;
    }
    return false;
}
