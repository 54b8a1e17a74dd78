/* Finds the shape rule of an operator (aten.def), and says what in-place operators return. */
#include "core/shape/shape_priv.h"

static const struct { shape_rule rule; int number; } rules[] = {
#define NONE {NULL, 0}
#define SHAPE(name, number) {shape_##name, number}
#define POINTWISE(operands, dtypes) {shape_pointwise, (operands) * OPERANDS | (dtypes)}
#define ATEN(op, overload, shape, lower, complex, traits) shape,
#include "core/aten/aten.def"
#undef ATEN
};

static bool
has_in_place_form(const kin_aten_call *call)
{
    shape_rule rule = rules[call->row].rule;
    return kin_aten_op_is(kin_aten_op_of(call), KIN_ATEN_LAYOUT_ONLY) || rule == shape_pointwise || rule == shape_scaled || rule == shape_div_mode || rule == shape_pow ||
           rule == shape_clamp || rule == shape_like_first || rule == shape_masked_fill || rule == shape_scatter || rule == shape_index_add;
}

bool
kin_shape_has_rule(const kin_aten_call *call)
{
    return call->row < KIN_ATEN_OPS && rules[call->row].rule != NULL && (!call->in_place || has_in_place_form(call));
}

/* -- in place ----------------------------------------------------------------------------------------------------- */

static int
kind_of(kin_dtype dtype)
{
    return dtype == KIN_BOOL ? 0 : kin_dtype_is_integer(dtype) ? 1 : kin_dtype_is_float(dtype) ? 2 : 3;
}

/* May the first argument be written to while the others are read? */
static bool
is_writable(const shape_call *c, const shape_tensor *self)
{
    if (shape_may_overlap(self))
        return false;
    uint32_t storage = kin_aten_at(c->g, self->val)->storage;
    for (unsigned i = 1; i < c->call->nargs; i++) {
        const kin_aten_arg *a = &c->g->args.at[c->call->args + i];
        if (a->kind == KIN_ATEN_LIST)
            return false;
        if (a->kind == KIN_ATEN_VALUE && a->value != self->val && kin_aten_at(c->g, a->value)->storage == storage)
            return false;
    }
    return true;
}

/* The result is the argument that was written to, if it has room for what was computed. */
static bool
settle_in_place(shape_call *c)
{
    shape_tensor self;
    if (kin_aten_op_is(kin_aten_op_of(c->call), KIN_ATEN_LAYOUT_ONLY))
        return c->out->results.at[0].same = true;
    const kin_shape made = c->out->results.at[0];
    if (!shape_read(c, 0, "self", &self) || made.ndim != self.ndim || kind_of(made.dtype) > kind_of(self.dtype) ||
        memcmp(made.sizes, self.sizes, sizeof made.sizes) != 0 || !is_writable(c, &self))
        return false;
    c->out->results.len = 0;
    return shape_add_same(c, &self);
}

bool
shape_overwrite(shape_call *c, int row)
{
    shape_tensor t[2];
    unsigned ndim;
    int64_t sizes[KIN_IR_MAX_DIMS];
    if (!shape_read(c, 0, "self", &t[0]) || !is_writable(c, &t[0]))
        return false;
    if (row == 1 && (!shape_read(c, 1, "src", &t[1]) || shape_is_complex(t[1].dtype) ||
                     !shape_broadcast(t, 2, &ndim, sizes) || ndim != t[0].ndim ||
                     memcmp(sizes, t[0].sizes, ndim * sizeof *sizes) != 0))
        return false;
    if (row == 2 && (!shape_read(c, 1, "value", &t[1]) || t[1].ndim != 0 || shape_is_complex(t[1].dtype)))
        return false;
    return shape_add_same(c, &t[0]);
}

/* -- one call ----------------------------------------------------------------------------------------------------- */

kin_status
kin_shape_call(const kin_aten *g, uint32_t call, const kin_shape_options *options, kin_shapes *out)
{
    shape_call c = {.g = g, .call = &g->calls.at[call], .options = options, .out = out};
    out->results.len = 0;
    out->list = false;
    if (g->failed || !kin_shape_has_rule(c.call))
        return KIN_BREAK;
    bool known = rules[c.call->row].rule(&c, rules[c.call->row].number) && (!c.call->in_place || settle_in_place(&c));
    return c.failed ? KIN_NOMEM : known ? KIN_OK : KIN_BREAK;
}
