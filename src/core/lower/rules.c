/* Finds the lowering rule of an operator (aten.def). */
#include "core/lower/lower_priv.h"

static const struct { low_rule rule; int number; } rules[] = {
#define NONE {NULL, 0}
#define LOWER(name, number) {rule_##name, number}
#define ATEN(op, overload, shape, lower, complex, traits) lower,
#include "core/aten/aten.def"
#undef ATEN
};

bool
low_rule_run(low_call *c)
{
    unsigned row = c->call->row;
    return row < KIN_ATEN_OPS && rules[row].rule != NULL && rules[row].rule(c, rules[row].number);
}
