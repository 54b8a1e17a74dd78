/* Prints a tensor program, one node a line; parse.c reads the same text. */
#include "core/ir/ir_priv.h"
#include "core/ir/scan.h"

#include <math.h>
#include <stdio.h>

static const char *const scatter_names[] = {"set", "add", "mul", "max", "min"}; /* by kin_ir_scatter */

void
kin_print_ints(kin_text *out, char open, unsigned count, const int64_t *ints, char close)
{
    kin_text_addf(out, "%c", open);
    for (unsigned i = 0; i < count; i++)
        kin_text_addf(out, "%s%lld", i ? ", " : "", (long long)ints[i]);
    kin_text_addf(out, "%c", close);
}

/* Enough digits to be read back as the same number; always with a sign that it is a float. */
void
kin_print_float(kin_text *out, double f)
{
    if (isnan(f) || isinf(f)) {
        kin_text_add(out, isnan(f) ? "nan" : f > 0 ? "inf" : "-inf");
        return;
    }
    char digits[40];
    for (int precision = 6; precision <= 17; precision++) {
        snprintf(digits, sizeof digits, "%.*g", precision, f);
        if (strtod(digits, NULL) == f)
            break;
    }
    kin_text_add(out, digits);
    if (strpbrk(digits, ".e") == NULL)
        kin_text_add(out, ".0");
}

void
kin_print_type(kin_text *out, kin_dtype dtype, unsigned ndim, const int64_t *sizes)
{
    kin_text_add(out, kin_dtype_name(dtype));
    kin_print_ints(out, '[', ndim, sizes, ']');
}

static void
print_attrs(const kin_ir *p, kin_irn i, kin_text *out)
{
    const kin_ir_node *n = kin_ir_at(p, i);
    const int64_t *attrs = kin_ir_attrs(p, i);
    unsigned half = n->nattrs / 2;
    switch ((kin_ir_op)n->op) {
    case KIN_IR_INPUT:
        kin_text_addf(out, " %lld", (long long)attrs[0]);
        return;
    case KIN_IR_CONST:
        kin_text_add(out, " ");
        if (kin_dtype_is_float((kin_dtype)n->dtype))
            kin_print_float(out, n->value.f);
        else
            kin_text_addf(out, "%lld", (long long)n->value.i);
        return;
    case KIN_IR_SLICE:
        kin_text_add(out, " starts=");
        kin_print_ints(out, '[', half, attrs, ']');
        kin_text_add(out, " steps=");
        kin_print_ints(out, '[', half, attrs + half, ']');
        return;
    case KIN_IR_PAD:
        kin_text_add(out, " low=");
        kin_print_ints(out, '[', n->nattrs, attrs, ']');
        return;
    case KIN_IR_INDEX:
        kin_text_add(out, " map=");
        kin_print_ints(out, '[', n->nattrs, attrs, ']');
        return;
    case KIN_IR_SCATTER:
        kin_text_addf(out, " mode=%s map=", attrs[0] >= 0 && attrs[0] <= KIN_IR_SCATTER_MIN ? scatter_names[attrs[0]] : "?");
        kin_print_ints(out, '[', n->nattrs - 1u, attrs + 1, ']');
        return;
    case KIN_IR_EXTERN:
        kin_text_addf(out, " number=%lld flags=%lld", (long long)attrs[0], (long long)attrs[1]);
        return;
    case KIN_IR_RESULT:
        kin_text_addf(out, " which=%lld", (long long)attrs[0]);
        return;
    case KIN_IR_CAT:
    case KIN_IR_IOTA:
        kin_text_addf(out, " dim=%lld", (long long)attrs[0]);
        return;
    default:
        break;
    }
    kin_ir_class class = kin_ir_op_class((kin_ir_op)n->op);
    if (class == KIN_IR_CLASS_SCAN)
        kin_text_addf(out, " dim=%lld", (long long)attrs[0]);
    else if (class == KIN_IR_CLASS_REDUCE || n->op == KIN_IR_PERMUTE) {
        kin_text_add(out, " dims=");
        kin_print_ints(out, '[', n->nattrs, attrs, ']');
    }
}

static void
print_node(const kin_ir *p, kin_irn i, kin_text *out)
{
    const kin_ir_node *n = kin_ir_at(p, i);
    kin_text_addf(out, "%%%u = %s", i, kin_ir_op_name((kin_ir_op)n->op));
    if (n->op == KIN_IR_EXTERN) {
        kin_text_add(out, " ");
        kin_text_add_json(out, kin_ir_name(p, i));
    }
    for (unsigned k = 0; k < n->nargs; k++)
        kin_text_addf(out, "%s %%%u", k ? "," : "", kin_ir_arg(p, i, k));
    print_attrs(p, i, out);
    if (n->op != KIN_IR_EXTERN) {
        kin_text_add(out, " : ");
        kin_print_type(out, (kin_dtype)n->dtype, n->ndim, kin_ir_sizes(p, i));
    }
    if (n->strides != 0)
        kin_print_ints(out, '{', n->ndim, p->ints.at + n->strides, '}');
    kin_text_add(out, "\n");
}

bool
kin_ir_print(const kin_ir *p, kin_text *out)
{
    for (kin_irn i = 1; i < p->nodes.len; i++)
        print_node(p, i, out);
    kin_text_add(out, "return");
    for (uint32_t i = 0; i < p->outputs.len; i++) {
        const kin_ir_out *o = &p->outputs.at[i];
        kin_text_addf(out, "%s %%%u", i ? "," : "", o->node);
        if (o->strides != 0) {
            kin_text_add(out, " : ");
            kin_print_ints(out, '{', kin_ir_at(p, o->node)->ndim, p->ints.at + o->strides, '}');
        }
        if (o->into != 0)
            kin_text_addf(out, " into %u", o->into - 1);
    }
    kin_text_add(out, "\n");
    return !out->failed;
}
