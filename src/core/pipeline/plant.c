/* Damages the result of a pass, for tests that show what detects the damage: a verifier, or only a comparison of results. */
#include "core/pipeline/pipeline_priv.h"

/* An operation of the same kind with another result; KIN_IR__COUNT: there is none. */
static kin_ir_op
other_op(unsigned op)
{
    return op == KIN_IR_ADD ? KIN_IR_SUB : op == KIN_IR_SUB ? KIN_IR_ADD : op == KIN_IR_MUL ? KIN_IR_ADD : op == KIN_IR_DIV ? KIN_IR_MUL
           : op == KIN_IR_EXP ? KIN_IR_SIN : op == KIN_IR_TANH ? KIN_IR_COS : KIN_IR__COUNT;
}

static bool
damage_ir(kin_ir *p, bool malformed)
{
    for (kin_irn n = p->nodes.len; n-- > 1;) {
        kin_ir_node *node = &p->nodes.at[n];
        if (malformed && node->nargs > 0) {
            p->args.at[node->args] = n; /* of itself */
            return true;
        }
        if (!malformed && kin_dtype_is_float((kin_dtype)node->dtype) && other_op(node->op) != KIN_IR__COUNT) {
            node->op = (uint8_t)other_op(node->op);
            return true;
        }
    }
    return false;
}

static bool
damage_loops(kin_fused *f, bool malformed)
{
    for (uint32_t i = 0; i < f->kernels.len; i++) {
        kin_loops *k = &f->kernels.at[i].loops;
        for (uint32_t a = 0; malformed && a < k->actions.len; a++)
            if (k->actions.at[a].kind == KIN_LA_STORE) { /* one element too far */
                uint32_t last = k->ix.exprs.len;
                kin_ix_expr x = *kin_ix_at(&k->ix, k->actions.at[a].index);
                x.constant += 1;
                x.hi += 1;
                if (kin_vec_push(&k->ix.exprs, x) != KIN_OK)
                    return false;
                k->actions.at[a].index = last;
                return true;
            }
        for (uint32_t n = k->insts.len; !malformed && n-- > 1;)
            if (k->insts.at[n].kind == KIN_LI_OP && kin_dtype_is_float((kin_dtype)k->insts.at[n].dtype) && other_op(k->insts.at[n].op) != KIN_IR__COUNT) {
                k->insts.at[n].op = (uint8_t)other_op(k->insts.at[n].op);
                return true;
            }
    }
    return false;
}

/* Puts all temporary buffers in one place, or beyond the arena. */
static bool
damage_plan(kin_program *p)
{
    bool any = false;
    for (uint32_t b = 0; b < p->buffers.len; b++)
        if (p->buffers.at[b].kind == KIN_BUF_TEMP) {
            p->buffers.at[b].offset = p->arena;
            any = true;
        }
    return any;
}

bool
pipeline_plant(kin_compilation *c, kin_plant_kind kind)
{
    bool malformed = kind == KIN_PLANT_MALFORMED;
    switch (c->form) {
    case KIN_FORM_LOWERED: case KIN_FORM_IR: case KIN_FORM_PARTS: return damage_ir((kin_ir *)c->ir, malformed);
    case KIN_FORM_LOOPS: return damage_loops(&c->fused, malformed);
    case KIN_FORM_PLANNED: return malformed && damage_plan(c->fused.program);
    case KIN_FORM_CODE:
        if (malformed && c->fused.program->kernels.len > 0)
            c->fused.program->kernels.at[0].fn = NULL;
        return malformed;
    case KIN_FORM_ATEN: case KIN_FORM__COUNT: break;
    }
    return false;
}
