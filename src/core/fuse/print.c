/* Kernels as text: for kin_program_print and for people. */
#include "core/fuse/fuse.h"

static void
add_index(const kin_loops *k, kin_ix e, kin_text *out)
{
    const kin_ix_expr *x = kin_ix_at(&k->ix, e);
    bool first = true;
    for (uint32_t i = 0; i < x->nterms; i++) {
        const kin_ix_term *t = &k->ix.terms.at[x->terms + i];
        const kin_ix_atom *a = &k->ix.atoms.at[t->atom];
        kin_text_addf(out, first ? "" : " + ");
        if (t->coef != 1)
            kin_text_addf(out, "%lld*", (long long)t->coef);
        if (a->kind == KIN_IX_VAR)
            kin_text_addf(out, "i%u", a->of);
        else if (a->kind == KIN_IX_VALUE)
            kin_text_addf(out, "%%%u", a->of);
        else {
            kin_text_add(out, "(");
            add_index(k, a->of, out);
            kin_text_addf(out, ") %s %lld", a->kind == KIN_IX_DIV ? "/" : "%", (long long)a->by);
        }
        first = false;
    }
    if (x->constant || first)
        kin_text_addf(out, "%s%lld", first ? "" : " + ", (long long)x->constant);
}

static void
add_inst(const kin_loops *k, uint32_t n, kin_text *out)
{
    const kin_loop_inst *in = &k->insts.at[n];
    kin_text_addf(out, "  %%%u = ", n);
    switch ((kin_loop_inst_kind)in->kind) {
    case KIN_LI_NONE: break;
    case KIN_LI_OP:
        kin_text_add(out, kin_ir_op_name(in->op));
        for (int a = 0; a < 3 && in->args[a]; a++)
            kin_text_addf(out, "%s %%%u", a ? "," : "", in->args[a]);
        break;
    case KIN_LI_CONST:
        if (kin_dtype_is_float(in->dtype))
            kin_text_addf(out, "%.17g", in->value.f);
        else
            kin_text_addf(out, "%lld", (long long)in->value.i);
        break;
    case KIN_LI_INDEX: add_index(k, in->index, out); break;
    case KIN_LI_LOAD:
        kin_text_addf(out, "b%u[", in->buffer);
        add_index(k, in->index, out);
        kin_text_add(out, "]");
        break;
    case KIN_LI_CHECK: kin_text_addf(out, "check %%%u < %lld", in->args[0], (long long)in->value.i); break;
    case KIN_LI_ACC: kin_text_addf(out, "acc%u", in->buffer); break;
    }
    if (in->mask)
        kin_text_addf(out, " if %%%u", in->mask);
    kin_text_addf(out, " : %s\n", kin_dtype_name(in->dtype));
}

static void
add_action(const kin_loops *k, const kin_loop_action *a, kin_text *out)
{
    static const char *const modes[] = {"=", "+=", "*=", "max=", "min="};
    kin_text_addf(out, a->row ? "  row: " : "  phase %u: ", a->phase);
    if (a->kind == KIN_LA_REDUCE || a->kind == KIN_LA_SCAN)
        kin_text_addf(out, "acc%u = %s(%%%u) ", a->acc, kin_ir_op_name(a->op), a->value);
    if (a->kind != KIN_LA_REDUCE) {
        kin_text_addf(out, "b%u[", a->buffer);
        add_index(k, a->index, out);
        kin_text_addf(out, "] %s %%%u", a->kind == KIN_LA_UPDATE ? modes[a->op] : "=", a->value);
    }
    kin_text_add(out, "\n");
}

bool
kin_loops_print(const kin_loops *k, kin_text *out)
{
    for (uint32_t v = 0; v < k->vars.len; v++)
        if (k->vars.at[v].size > 1)
            kin_text_addf(out, "  i%u: %lld%s%s\n", v, (long long)k->vars.at[v].size, k->vars.at[v].inner ? " inner" : "",
                          v != k->vector_var ? "" : k->window ? " vector, a window of it" : " vector");
    for (uint32_t i = 1; i < k->insts.len; i++)
        add_inst(k, i, out);
    for (uint32_t i = 0; i < k->actions.len; i++)
        add_action(k, &k->actions.at[i], out);
    return !out->failed;
}

bool
kin_fused_print(const kin_fused *f, kin_text *out)
{
    kin_program_print(f->program, out);
    for (uint32_t i = 0; i < f->kernels.len; i++) {
        kin_text_addf(out, "\n%s:\n", f->program->kernels.at[f->kernels.at[i].kernel].name);
        kin_loops_print(&f->kernels.at[i].loops, out);
    }
    return !out->failed;
}
