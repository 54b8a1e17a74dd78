/* Prints an ATen graph, one call a line; parse.c reads the same text. */
#include "core/aten/aten.h"
#include "core/ir/scan.h"

static void
print_arg(const kin_aten *g, const kin_aten_arg *a, kin_text *out)
{
    if (a->name != 0)
        kin_text_addf(out, "%s=", kin_aten_text(g, a->name));
    switch ((kin_aten_arg_kind)a->kind) {
    case KIN_ATEN_NONE: kin_text_add(out, "None"); break;
    case KIN_ATEN_BOOL: kin_text_add(out, a->i ? "True" : "False"); break;
    case KIN_ATEN_INT: kin_text_addf(out, "%lld", (long long)a->i); break;
    case KIN_ATEN_FLOAT: kin_print_float(out, a->f); break;
    case KIN_ATEN_STR: kin_text_add_json(out, kin_aten_text(g, a->text)); break;
    case KIN_ATEN_DTYPE: kin_text_add(out, kin_dtype_name((kin_dtype)a->i)); break;
    case KIN_ATEN_WORD: kin_text_add(out, kin_aten_text(g, a->text)); break;
    case KIN_ATEN_VALUE: kin_text_addf(out, "%%%u%s", a->value, a->written ? "!" : ""); break;
    case KIN_ATEN_LIST:
        kin_text_add(out, "[");
        for (uint32_t i = 0; i < a->list.count; i++) {
            kin_text_add(out, i ? ", " : "");
            print_arg(g, &g->args.at[a->list.child + i], out);
        }
        kin_text_add(out, "]");
        break;
    }
}

static void
print_value(const kin_aten *g, kin_aten_val v, kin_text *out)
{
    const kin_aten_value *value = kin_aten_at(g, v);
    kin_print_type(out, (kin_dtype)value->dtype, value->ndim, kin_aten_sizes(g, v));
    kin_print_ints(out, '{', value->ndim, kin_aten_strides(g, v), '}');
    kin_text_addf(out, "@%u+%lld", value->storage, (long long)value->offset);
}

static void
print_call(const kin_aten *g, const kin_aten_call *c, kin_text *out)
{
    for (uint32_t i = 0; i < c->nresults; i++)
        kin_text_addf(out, "%s%%%u", i ? ", " : "", c->results + i);
    kin_text_addf(out, "%s%s%s(", c->nresults ? " = " : "", c->random ? "random " : "", kin_aten_text(g, c->op));
    for (uint32_t i = 0; i < c->nargs; i++) {
        kin_text_add(out, i ? ", " : "");
        print_arg(g, &g->args.at[c->args + i], out);
    }
    kin_text_add(out, ")");
    for (uint32_t i = 0; i < c->nresults; i++) {
        kin_text_add(out, i ? ", " : " : ");
        print_value(g, c->results + i, out);
    }
    kin_text_add(out, "\n");
}

bool
kin_aten_print(const kin_aten *g, kin_text *out)
{
    for (kin_aten_val v = 1; v < g->values.len && kin_aten_at(g, v)->call == UINT32_MAX; v++) {
        kin_text_addf(out, "%%%u = input %u : ", v, kin_aten_at(g, v)->input);
        print_value(g, v, out);
        kin_text_add(out, "\n");
    }
    for (uint32_t i = 0; i < g->calls.len; i++)
        print_call(g, &g->calls.at[i], out);
    kin_text_add(out, "return");
    for (uint32_t i = 0; i < g->outputs.len; i++)
        kin_text_addf(out, "%s %%%u", i ? "," : "", g->outputs.at[i]);
    kin_text_add(out, "\n");
    return !out->failed;
}
