/* Random numbers, if there are enough of them, become calls of our own generator. */
#include "core/rewrite/rewrite_priv.h"

enum { FEW = 1024 /* up to here taking the generator's words and giving them back costs more than drawing */ };

/* (x, p) -> as many as x has */
kin_irn
rewrite_random(rewriting *r, kin_irn n)
{
    const kin_ir *p = r->p;
    if (!rewrite_is(r, n, KIN_ATEN_OP(bernoulli, p)) || n + 1 >= p->nodes.len || kin_ir_at(p, n + 1)->op != KIN_IR_RESULT)
        return 0;
    const kin_aten_arg *chance = kin_aten_find(r->g, rewrite_captured(r, n), 1, "p");
    if (chance == NULL || chance->kind != KIN_ATEN_FLOAT || kin_aten_find(r->g, rewrite_captured(r, n), UINT32_MAX, "generator") != NULL ||
        kin_ir_at(p, n + 1)->dtype != KIN_F32 || kin_ir_numel(p, n + 1) <= FEW || !(chance->f >= 0 && chance->f <= 1))
        return 0;
    kin_library_call made = {.kind = KIN_LIBRARY_BERNOULLI, .scale = chance->f, .call = (uint32_t)kin_ir_attrs(p, n)[0]};
    return rewrite_emit(r, &made, "library.bernoulli", NULL, 0, KIN_F32, kin_ir_at(p, n + 1)->ndim, kin_ir_sizes(p, n + 1), NULL);
}
