/* Arguments of calls, PyTorch's type promotion, and the small builders that rules share. */
#include <math.h>

#include "core/lower/lower_priv.h"

/* -- arguments ---------------------------------------------------------------------------------------------------- */

const kin_aten_arg *
low_arg(const low_call *c, unsigned at, const char *keyword)
{
    return kin_aten_find(c->l->g, c->call, at, keyword);
}

bool
low_is_value(const kin_aten_arg *a)
{
    return a != NULL && a->kind == KIN_ATEN_VALUE;
}

bool
low_is_number(const kin_aten_arg *a)
{
    return a != NULL && (a->kind == KIN_ATEN_INT || a->kind == KIN_ATEN_BOOL || a->kind == KIN_ATEN_FLOAT);
}

double
low_number_of(const low_call *c, const kin_aten_arg *a)
{
    kin_aten_ask(c->l->g, a);
    return a->kind == KIN_ATEN_FLOAT ? a->f : (double)a->i;
}

double
low_float_or(const low_call *c, unsigned at, const char *keyword, double otherwise)
{
    const kin_aten_arg *a = low_arg(c, at, keyword);
    return low_is_number(a) ? low_number_of(c, a) : otherwise;
}

int64_t
low_int_or(const low_call *c, unsigned at, const char *keyword, int64_t otherwise)
{
    const kin_aten_arg *a = low_arg(c, at, keyword);
    if (a == NULL || (a->kind != KIN_ATEN_INT && a->kind != KIN_ATEN_BOOL))
        return otherwise;
    kin_aten_ask(c->l->g, a);
    return a->i;
}

const kin_aten_arg *
low_item(const low_call *c, const kin_aten_arg *list, unsigned i)
{
    return &c->l->g->args.at[list->list.child + i];
}

int
low_ints(const low_call *c, const kin_aten_arg *a, int64_t *out)
{
    return kin_aten_ints(c->l->g, a, out);
}

const char *
low_str(const low_call *c, const kin_aten_arg *a)
{
    return a != NULL && a->kind == KIN_ATEN_STR ? kin_aten_text(c->l->g, a->text) : "";
}

kin_irn
low_read(low_call *c, const kin_aten_arg *a)
{
    if (!low_is_value(a))
        return 0;
    return c->l->inside[a->value] ? c->l->parts[2 * a->value + c->l->part] : low_current(c->l, a->value);
}

kin_dtype
low_dtype(const low_call *c, unsigned k)
{
    return low_real_dtype((kin_dtype)kin_aten_at(c->l->g, c->call->results + k)->dtype);
}

unsigned
low_ndim(const low_call *c, unsigned k)
{
    return kin_aten_at(c->l->g, c->call->results + k)->ndim;
}

const int64_t *
low_sizes(const low_call *c, unsigned k)
{
    return kin_aten_sizes(c->l->g, c->call->results + k);
}

const int64_t *
low_strides(const low_call *c, unsigned k)
{
    return kin_aten_strides(c->l->g, c->call->results + k);
}

bool
low_wanted(const low_call *c, unsigned k)
{
    return k < c->call->nresults && c->l->values[c->call->results + k].used;
}

int
low_dim(int64_t dim, unsigned ndim)
{
    int64_t count = ndim ? ndim : 1;
    if (dim < 0)
        dim += count;
    return dim >= 0 && dim < count ? (int)dim : -1;
}

/* -- dtypes ------------------------------------------------------------------------------------------------------- */

kin_dtype
low_common(const low_call *c, const kin_aten_arg *const *args, unsigned count)
{
    kin_aten_mixed all = {0};
    for (unsigned i = 0; i < count; i++) {
        const kin_aten_arg *a = args[i];
        if (low_is_value(a)) {
            const kin_aten_value *v = kin_aten_at(c->l->g, a->value);
            kin_aten_join(&all, v->ndim > 0 ? KIN_ATEN_WITH_DIMS : KIN_ATEN_WITHOUT_DIMS, low_real_dtype((kin_dtype)v->dtype));
        } else if (low_is_number(a))
            kin_aten_join(&all, KIN_ATEN_NUMBER, a->kind == KIN_ATEN_BOOL ? KIN_BOOL : a->kind == KIN_ATEN_INT ? KIN_I64
                          : c->l->options->default_f64 ? KIN_F64 : KIN_F32);
    }
    return kin_aten_common(&all);
}

kin_dtype
low_wide(kin_dtype dtype)
{
    return dtype == KIN_F16 || dtype == KIN_BF16 ? KIN_F32 : dtype;
}

/* -- building ----------------------------------------------------------------------------------------------------- */

kin_irn
low_number(low_call *c, kin_dtype dtype, double value, unsigned ndim, const int64_t *sizes)
{
    kin_scalar s = {.f = value};
    if (!kin_dtype_is_float(dtype))
        s.i = dtype == KIN_BOOL ? value != 0 : value >= -9.2e18 && value <= 9.2e18 ? (int64_t)value : 0;
    return kin_ir_const(c->ir, dtype, s, ndim, sizes);
}

kin_irn
low_integer(low_call *c, kin_dtype dtype, int64_t value, unsigned ndim, const int64_t *sizes)
{
    kin_scalar s = {.i = dtype == KIN_BOOL ? value != 0 : value};
    if (kin_dtype_is_float(dtype))
        s.f = (double)value;
    return kin_ir_const(c->ir, dtype, s, ndim, sizes);
}

bool
low_holds(kin_dtype dtype, const kin_aten_arg *a)
{
    static const double most[] = {[KIN_U8] = 255, [KIN_I8] = 127, [KIN_I16] = 32767, [KIN_I32] = 2147483647.0, [KIN_I64] = 9.2e18, [KIN_F16] = 65504,
                                  [KIN_BF16] = 3.3895313892515355e38, [KIN_F32] = 3.4028234663852886e38, [KIN_F64] = INFINITY};
    double value = a->kind == KIN_ATEN_FLOAT ? a->f : (double)a->i;
    if (dtype == KIN_BOOL || (kin_dtype_is_float(dtype) && !isfinite(value)))
        return true;
    return value >= (dtype == KIN_U8 ? 0 : -most[dtype]) && value <= most[dtype];
}

kin_irn
low_scalar(low_call *c, const kin_aten_arg *a, kin_dtype dtype, unsigned ndim, const int64_t *sizes)
{
    if (!low_holds(dtype, a)) /* an open number is of a kind with others that are held as well */
        return 0;
    if (a->open != 0) { /* read when the program runs */
        int64_t full[KIN_IR_MAX_DIMS]; /* the sizes may be those of a node, and move */
        for (unsigned d = 0; d < ndim; d++)
            full[d] = sizes[d];
        return kin_ir_expand(c->ir, kin_ir_cast(c->ir, low_current(c->l, a->open), dtype), ndim, full);
    }
    if (a->kind == KIN_ATEN_FLOAT)
        return low_number(c, dtype, a->f, ndim, sizes);
    return low_integer(c, dtype, a->i, ndim, sizes);
}

kin_irn
low_operand(low_call *c, const kin_aten_arg *a, kin_dtype dtype)
{
    if (low_is_number(a))
        return low_scalar(c, a, dtype, low_ndim(c, 0), low_sizes(c, 0));
    kin_irn x = low_read(c, a);
    if (x == 0)
        return 0;
    return kin_ir_expand(c->ir, kin_ir_cast(c->ir, x, dtype), low_ndim(c, 0), low_sizes(c, 0));
}

kin_irn
low_like(low_call *c, kin_irn a, double value)
{
    return low_number(c, low_dtype_of(c, a), value, low_ndim_of(c, a), low_sizes_of(c, a));
}

kin_irn
low_expand_like(low_call *c, kin_irn a, kin_irn like)
{
    return kin_ir_expand(c->ir, a, low_ndim_of(c, like), low_sizes_of(c, like));
}

kin_irn
low_reshape_like(low_call *c, kin_irn a, unsigned k)
{
    int64_t count = 1;
    for (unsigned d = 0; d < low_ndim(c, k); d++)
        count *= low_sizes(c, k)[d];
    if (a == 0 || count != kin_ir_numel(c->ir, a))
        return 0;
    return kin_ir_reshape(c->ir, a, low_ndim(c, k), low_sizes(c, k));
}

kin_irn
low_compare(low_call *c, kin_ir_op op, kin_irn a, double value)
{
    return low_bin(c, op, a, value);
}

kin_irn
low_copy(low_call *c, kin_irn a)
{
    /* A cast to the same dtype: kin_ir_cast would give `a` itself. */
    kin_irn twice = kin_ir_unary(c->ir, KIN_IR_CAST, a);
    return twice;
}

bool
low_done(low_call *c, unsigned k, kin_irn node)
{
    if (node == 0 || k >= c->call->nresults || low_ndim_of(c, node) != low_ndim(c, k))
        return false;
    for (unsigned d = 0; d < low_ndim(c, k); d++)
        if (low_sizes_of(c, node)[d] != low_sizes(c, k)[d])
            return false;
    c->results[k] = kin_ir_cast(c->ir, node, low_dtype(c, k));
    return c->results[k] != 0;
}
