/* The table of shape rules (shape.h). A rule's number tells its row, and whether the operator works in place. */
#include "core/shape/shape_priv.h"

static const struct { const char *name; shape_rule rule; int row; } rows[] = {
#define SHAPE(name, function, row) {"aten." name, function, row},
#include "core/shape/shape.def"
#undef SHAPE
};

enum { NROWS = sizeof rows / sizeof *rows };

static int
find_row(const char *name)
{
    for (int i = 0; i < NROWS; i++)
        if (strcmp(rows[i].name, name) == 0)
            return i;
    return -1;
}

/* Its form in place gives the argument itself another layout. */
static bool
lays_out(shape_rule rule)
{
    return rule == shape_squeeze || rule == shape_unsqueeze || rule == shape_transpose;
}

static bool
has_in_place_form(shape_rule rule)
{
    return lays_out(rule) || rule == shape_pointwise || rule == shape_scaled || rule == shape_div_mode || rule == shape_pow ||
           rule == shape_clamp || rule == shape_like_first;
}

int
kin_shape_rule(const char *op)
{
    int row = find_row(op);
    if (row >= 0)
        return 2 * row;
    const char *dot = strrchr(op, '.');
    char name[96];
    if (dot == NULL || dot == op || dot[-1] != '_' || strlen(op) >= sizeof name)
        return -1;
    size_t head = (size_t)(dot - op) - 1;
    memcpy(name, op, head);
    strcpy(name + head, dot);
    row = find_row(name);
    return row >= 0 && has_in_place_form(rows[row].rule) ? 2 * row + 1 : -1;
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
settle_in_place(shape_call *c, shape_rule rule)
{
    shape_tensor self;
    if (lays_out(rule))
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
kin_shape_call(int rule, const kin_aten *g, uint32_t call, const kin_shape_options *options, kin_shapes *out)
{
    shape_call c = {.g = g, .call = &g->calls.at[call], .options = options, .out = out};
    out->results.len = 0;
    out->list = false;
    if (rule < 0 || rule / 2 >= NROWS || g->failed)
        return KIN_BREAK;
    bool known = rows[rule / 2].rule(&c, rows[rule / 2].row) && (rule % 2 == 0 || settle_in_place(&c, rows[rule / 2].rule));
    return c.failed ? KIN_NOMEM : known ? KIN_OK : KIN_BREAK;
}
