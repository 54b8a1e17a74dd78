/* Verifiers of passes: those of the forms (core/aten, core/ir, core/fuse, core/program), and a check that a pass over tensor programs keeps
 * their inputs and outputs.
 */
#include "core/pipeline/pipeline_priv.h"

#include "core/program/make.h"

bool
pipeline_check_aten(const kin_compilation *c, kin_text *why)
{
    return kin_aten_verify(c->graph, why);
}

/* -- what a tensor program takes and gives -------------------------------------------------------------------------- */

static bool
same_output(const kin_ir *a, const kin_ir_out *x, const kin_ir *b, const kin_ir_out *y)
{
    const kin_ir_node *m = kin_ir_at(a, x->node), *n = kin_ir_at(b, y->node);
    return m->dtype == n->dtype && m->ndim == n->ndim && x->into == y->into &&
           (m->ndim == 0 || memcmp(kin_ir_sizes(a, x->node), kin_ir_sizes(b, y->node), m->ndim * sizeof(int64_t)) == 0);
}

/* Outputs that are updated in place are no longer among the program's outputs. */
static bool
is_updated(const kin_ir *p, const kin_ir_out *o)
{
    for (uint32_t e = 0; o->into != 0 && e < p->updates.len; e++)
        if (p->updates.at[e].into == o->into)
            return true;
    return false;
}

static bool
same_outputs(const kin_ir *before, const kin_ir *after, kin_text *why)
{
    uint32_t next = 0;
    for (uint32_t o = 0; o < before->outputs.len; o++) {
        const kin_ir_out *out = &before->outputs.at[o];
        if (is_updated(after, out))
            continue;
        if (next == after->outputs.len || !same_output(before, out, after, &after->outputs.at[next])) {
            kin_text_addf(why, "output %u is not what it was", o);
            return false;
        }
        next++;
    }
    if (next != after->outputs.len)
        kin_text_add(why, "there are more outputs than before");
    return next == after->outputs.len;
}

bool
pipeline_check_ir(const kin_compilation *c, kin_text *why)
{
    if (!kin_ir_verify(c->ir, why))
        return false;
    if (c->before == NULL || c->before == c->ir)
        return true;
    if (c->ir->ninputs != c->before->ninputs) {
        kin_text_add(why, "it has other inputs than before");
        return false;
    }
    return same_outputs(c->before, c->ir, why);
}

bool
pipeline_check_library(const kin_compilation *c, kin_text *why)
{
    const kin_rewritten *library = &c->out->library;
    if (!pipeline_check_ir(c, why))
        return false;
    for (kin_irn n = 1; n < c->ir->nodes.len; n++)
        if (kin_ir_at(c->ir, n)->op == KIN_IR_EXTERN && kin_ir_attrs(c->ir, n)[0] - library->first >= library->calls.len) {
            kin_text_addf(why, "%%%u: no such call", n);
            return false;
        }
    return true;
}

bool
pipeline_check_parts(const kin_compilation *c, kin_text *why)
{
    const kin_ir_hoisted *h = &c->out->hoisted;
    if (!kin_ir_verify(h->rest, why) || (h->once != NULL && !kin_ir_verify(h->once, why)))
        return false;
    if (h->rest->ninputs != c->before->ninputs + h->count || (h->once != NULL && h->once->outputs.len != h->count)) {
        kin_text_add(why, "what is computed once is not what the rest takes");
        return false;
    }
    return same_outputs(c->before, h->rest, why);
}

bool
pipeline_check_in_place(const kin_compilation *c, kin_text *why)
{
    const kin_ir *p = c->ir;
    if (!pipeline_check_ir(c, why))
        return false;
    for (uint32_t e = 0; e < p->updates.len; e++) {
        const kin_ir_update *update = &p->updates.at[e];
        uint32_t most = p->nodes.len;
        if (update->write - 1 >= most - 1 || update->undo - 1 >= most - 1 || update->saved - 1 >= most - 1 || update->into == 0 ||
            update->into > p->ninputs || kin_ir_at(p, update->write)->op != KIN_IR_SCATTER || kin_ir_at(p, update->undo)->op != KIN_IR_SCATTER ||
            kin_ir_arg(p, update->undo, 0) != update->write || kin_ir_arg(p, update->undo, 1) != update->saved || update->saved >= update->write) {
            kin_text_addf(why, "in-place update %u cannot be put back", e);
            return false;
        }
    }
    return true;
}

/* -- programs ------------------------------------------------------------------------------------------------------- */

bool
pipeline_check_loops(const kin_compilation *c, kin_text *why)
{
    return kin_fused_verify(&c->fused, why);
}

bool
pipeline_check_plan(const kin_compilation *c, kin_text *why)
{
    return kin_fused_verify(&c->fused, why) && kin_program_verify(c->fused.program, why);
}

bool
pipeline_check_code(const kin_compilation *c, kin_text *why)
{
    for (uint32_t k = 0; k < c->fused.program->kernels.len; k++)
        if (c->fused.program->kernels.at[k].fn == NULL) {
            kin_text_addf(why, "kernel %s has no code", c->fused.program->kernels.at[k].name);
            return false;
        }
    return true;
}
