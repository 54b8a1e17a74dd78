/* Computes the operand stack depth before each instruction, by following every path once. On 3.12 and 3.13 the interpreter does not
 * save its stack pointer where instructions are watched, so the watched stack is read with the help of this table. */
#include <stdlib.h>

#include "core/bytecode/bytecode_priv.h"

int
kin_op_effect(kin_py_version version, kin_op op, uint32_t oparg, bool jump)
{
    const kin_py_version v = version;
    const int a = (int)oparg;
    (void)v;
    switch (op) {
#define EFFECT(NAME, expression) \
    case KIN_OP_##NAME: \
        return expression;
#include "core/bytecode/effects.def"
#undef EFFECT
    case KIN_OP_NONE:
    case KIN_OP__COUNT:
        break;
    }
    return INT32_MIN;
}

typedef struct {
    kin_code *code;
    uint32_t *todo; /* indices of instructions whose successors are not followed yet */
    uint32_t ntodo;
} walk;

/* Says that the instruction at `offset` is reached with `depth` entries. */
static kin_status
reach(walk *w, uint32_t offset, int64_t depth)
{
    kin_code *c = w->code;
    if (offset >= c->nbytes || depth < 0 || depth > INT32_MAX)
        return KIN_BREAK;
    uint32_t index = c->by_unit[offset / 2];
    kin_instr *in = &c->instrs[index];
    if (in->offset != offset)
        return KIN_BREAK;
    if (in->depth >= 0)
        return in->depth == depth ? KIN_OK : KIN_BREAK;
    in->depth = (int32_t)depth;
    w->todo[w->ntodo++] = index;
    return KIN_OK;
}

static kin_status
follow(walk *w, const kin_instr *in)
{
    kin_py_version version = w->code->version;
    uint32_t target = kin_instr_target(in, version);
    if (target != UINT32_MAX)
        KIN_TRY(reach(w, target, (int64_t)in->depth + kin_op_effect(version, in->op, in->oparg, true)));
    if (kin_op_falls_through(in->op))
        KIN_TRY(reach(w, in->next, (int64_t)in->depth + kin_op_effect(version, in->op, in->oparg, false)));
    return KIN_OK;
}

static kin_status
walk_paths(walk *w)
{
    kin_code *c = w->code;
    KIN_TRY(reach(w, 0, 0));
    for (uint32_t i = 0; i < c->nhandlers; i++)
        KIN_TRY(reach(w, c->handlers[i].target, (int64_t)c->handlers[i].depth + c->handlers[i].lasti + 1));
    while (w->ntodo > 0)
        KIN_TRY(follow(w, &c->instrs[w->todo[--w->ntodo]]));
    return KIN_OK;
}

kin_status
kin_code_compute_depths(kin_code *c)
{
    /* Each instruction enters the list at most once: when its depth becomes known. */
    walk w = {.code = c, .todo = malloc(c->ninstr * sizeof *w.todo)};
    if (w.todo == NULL)
        return KIN_NOMEM;
    kin_status status = walk_paths(&w);
    free(w.todo);
    return status;
}
