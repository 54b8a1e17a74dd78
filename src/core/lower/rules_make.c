/* Rules for operators that create tensors from numbers. Sizes and dtype are the result's. */
#include "core/lower/lower_priv.h"

/* zeros, ones, ..., and empty, whose contents nobody may rely on */
bool
rule_splat(low_call *c, int value)
{
    return low_done(c, 0, low_integer(c, low_dtype(c, 0), value, low_ndim(c, 0), low_sizes(c, 0)));
}

/* full, full_like, new_full, scalar_tensor: the number is the argument `at`. */
bool
rule_full(low_call *c, int at)
{
    const kin_aten_arg *value = low_arg(c, (unsigned)at, at == 0 ? "s" : "fill_value");
    return low_is_number(value) && low_done(c, 0, low_scalar(c, value, low_dtype(c, 0), low_ndim(c, 0), low_sizes(c, 0)));
}

/* start + step * i; floating ones are computed in double and rounded, as eager does. row: which of the three are given. How many there are follows from
 * the numbers, so these are fixed. */
bool
rule_arange(low_call *c, int row)
{
    const kin_aten_arg *start = row >= 1 ? low_arg(c, 0, "start") : NULL, *step = row >= 2 ? low_arg(c, 2, "step") : NULL;
    const kin_aten_arg *end = low_arg(c, row >= 1, "end"), *given[] = {start, end, step};
    for (size_t i = 0; i < sizeof given / sizeof *given; i++)
        if (low_is_number(given[i]))
            kin_aten_ask(c->l->g, given[i]);
    kin_dtype dtype = kin_dtype_is_float(low_dtype(c, 0)) ? KIN_F64 : KIN_I64;
    if (low_ndim(c, 0) != 1 || low_dtype(c, 0) == KIN_BOOL || (start != NULL && !low_is_number(start))
        || (step != NULL && !low_is_number(step)))
        return false;
    kin_irn at = kin_ir_cast(c->ir, kin_ir_iota(c->ir, KIN_I64, 0, 1, low_sizes(c, 0)), dtype);
    if (step != NULL)
        at = low_bi(c, KIN_IR_MUL, at, low_scalar(c, step, dtype, 1, low_sizes(c, 0)));
    if (start != NULL)
        at = low_bi(c, KIN_IR_ADD, at, low_scalar(c, start, dtype, 1, low_sizes(c, 0)));
    return low_done(c, 0, at);
}

bool
rule_eye(low_call *c, int row)
{
    if (low_ndim(c, 0) != 2)
        return false;
    kin_irn line = kin_ir_iota(c->ir, KIN_I64, 0, 2, low_sizes(c, 0)), column = kin_ir_iota(c->ir, KIN_I64, 1, 2, low_sizes(c, 0));
    return low_done(c, 0, low_bi(c, KIN_IR_EQ, line, column));
}
