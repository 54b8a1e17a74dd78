/* Verifies loops and the program around them (fuse.h): everything that code generation and the runner rely on without testing. The
 * ranges of index expressions are checked against the sizes of buffers, so a kernel cannot read or write beyond them.
 */
#include "core/fuse/fuse.h"

typedef struct {
    const kin_loops *k;
    const char *name;
    int64_t *elements; /* by buffer of the kernel */
    kin_text *why;
} check;

static bool
refuse(const check *c, const char *what, uint32_t number, const char *reason)
{
    kin_text_addf(c->why, "%s: %s %u: %s", c->name, what, number, reason);
    return false;
}

#define NEED(cond, what, number, reason)                \
    do {                                                \
        if (!(cond))                                    \
            return refuse(c, (what), (number), reason); \
    } while (0)

/* -- index expressions -------------------------------------------------------------------------------------------- */

static bool
check_atoms(const check *c)
{
    const kin_ix_space *ix = &c->k->ix;
    for (uint32_t i = 0; i < ix->atoms.len; i++) {
        const kin_ix_atom *a = &ix->atoms.at[i];
        uint32_t most = a->kind == KIN_IX_VAR ? c->k->vars.len : a->kind == KIN_IX_VALUE ? c->k->insts.len : ix->exprs.len;
        NEED(a->kind <= KIN_IX_WITHIN && a->of < most, "index atom", i, "of what is not there");
        NEED(a->by > 0 || a->kind == KIN_IX_VAR || a->kind == KIN_IX_VALUE, "index atom", i, "division by zero");
    }
    for (uint32_t e = 0; e < ix->exprs.len; e++)
        for (uint32_t t = 0; t < ix->exprs.at[e].nterms; t++)
            NEED(ix->exprs.at[e].terms + t < ix->terms.len && ix->terms.at[ix->exprs.at[e].terms + t].atom < ix->atoms.len, "index", e,
                 "of what is not there");
    return true;
}

/* Does it say what kin_ix_plain takes back? */
static bool
is_plain(const kin_ix_space *ix, kin_ix e)
{
    for (uint32_t t = 0; t < ix->exprs.at[e].nterms; t++) {
        const kin_ix_atom *a = &ix->atoms.at[ix->terms.at[ix->exprs.at[e].terms + t].atom];
        if (a->kind == KIN_IX_WITHIN || ((a->kind == KIN_IX_DIV || a->kind == KIN_IX_MOD) && !is_plain(ix, a->of)))
            return false;
    }
    return true;
}

/* A mask may keep the element from being touched. */
static bool
check_place(const check *c, const char *what, uint32_t number, uint32_t buffer, kin_ix index, bool masked)
{
    NEED(buffer < c->k->buffers.len, what, number, "no such buffer");
    NEED(index < c->k->ix.exprs.len, what, number, "no such index");
    NEED(is_plain(&c->k->ix, index), what, number, "at a place that only a mask makes one");
    const kin_ix_expr *x = kin_ix_at(&c->k->ix, index);
    NEED(masked || (x->lo >= 0 && x->hi < c->elements[buffer]), what, number, "outside of its buffer");
    return true;
}

/* -- instructions and actions --------------------------------------------------------------------------------------- */

static bool
check_inst(const check *c, uint32_t i)
{
    const kin_loop_inst *in = &c->k->insts.at[i];
    for (int a = 0; a < 3; a++)
        NEED(in->args[a] < c->k->insts.len && in->args[a] != i, "instruction", i, "no such argument");
    NEED(in->mask < c->k->insts.len, "instruction", i, "no such mask");
    NEED(in->dtype < KIN_DTYPE__COUNT, "instruction", i, "no such dtype");
    switch ((kin_loop_inst_kind)in->kind) {
    case KIN_LI_NONE: case KIN_LI_CONST: case KIN_LI_CHECK: return true;
    case KIN_LI_OP: NEED(in->op < KIN_IR__COUNT && in->args[0] != 0, "instruction", i, "no such operation"); return true;
    case KIN_LI_INDEX:
        NEED(in->index < c->k->ix.exprs.len, "instruction", i, "no such index");
        NEED(is_plain(&c->k->ix, in->index), "instruction", i, "at a place that only a mask makes one");
        return true;
    case KIN_LI_LOAD: return check_place(c, "load", i, in->buffer, in->index, in->mask != 0);
    case KIN_LI_ACC: NEED(in->buffer < c->k->naccs, "instruction", i, "no such accumulator"); return true;
    }
    return refuse(c, "instruction", i, "no such kind");
}

static bool
check_action(const check *c, uint32_t i)
{
    const kin_loop_action *a = &c->k->actions.at[i];
    NEED(a->kind <= KIN_LA_UPDATE, "action", i, "no such kind");
    NEED(a->value < c->k->insts.len && a->position < c->k->insts.len, "action", i, "no such value");
    NEED(a->row || a->phase < c->k->nphases, "action", i, "no such phase");
    NEED(a->kind == KIN_LA_STORE || a->kind == KIN_LA_UPDATE || a->acc < c->k->naccs, "action", i, "no such accumulator");
    if (a->kind == KIN_LA_REDUCE)
        return true;
    /* An update's place may be computed of values, which are checked when it runs. */
    if (!check_place(c, "store", i, a->buffer, a->index, false))
        return false;
    NEED(c->k->buffers.at[a->buffer].written || c->k->buffers.at[a->buffer].local, "store", i, "into what is only read");
    return true;
}

static bool
check_loops(const check *c)
{
    if (!check_atoms(c))
        return false;
    NEED(c->k->vector_var == KIN_LOOP_NO_VAR || c->k->vector_var < c->k->vars.len, "variable", c->k->vector_var, "is not there");
    for (uint32_t i = 1; i < c->k->insts.len; i++)
        if (!check_inst(c, i))
            return false;
    for (uint32_t i = 0; i < c->k->actions.len; i++)
        if (!check_action(c, i))
            return false;
    return true;
}

static bool
check_kernel(const kin_fused *f, uint32_t i, kin_text *why)
{
    const kin_fused_kernel *made = &f->kernels.at[i];
    const kin_program *p = f->program;
    if (made->kernel >= p->kernels.len) {
        kin_text_addf(why, "kernel %u is not of the program", i);
        return false;
    }
    const kin_kernel *k = &p->kernels.at[made->kernel];
    int64_t *elements = calloc(made->loops.buffers.len + 1u, sizeof *elements);
    check self = {.k = &made->loops, .name = k->name, .elements = elements, .why = why}, *c = &self;
    if (elements == NULL)
        return true; /* without memory nothing is found */
    uint32_t n = 0;
    bool ok = true;
    for (uint32_t b = 0; ok && b < made->loops.buffers.len; b++) {
        const kin_loop_buffer *buf = &made->loops.buffers.at[b];
        ok = buf->local || (n < k->nbuffers && k->buffers[n] < p->buffers.len) || refuse(c, "buffer", b, "is not of the program");
        if (ok)
            elements[b] = buf->local ? buf->elements : (int64_t)(p->buffers.at[k->buffers[n++]].bytes / kin_dtype_bytes(buf->dtype));
    }
    ok = ok && check_loops(c);
    free(elements);
    return ok;
}

/* -- the program ----------------------------------------------------------------------------------------------------- */

static const kin_fused_kernel *
loops_of(const kin_fused *f, uint32_t kernel)
{
    for (uint32_t i = 0; i < f->kernels.len; i++)
        if (f->kernels.at[i].kernel == kernel)
            return &f->kernels.at[i];
    return NULL;
}

static bool
is_there(const kin_program *p, const bool *made, uint32_t b)
{
    return made[b] || p->buffers.at[b].bytes == 0 || p->buffers.at[b].kind == KIN_BUF_INPUT || p->buffers.at[b].kind == KIN_BUF_CONST;
}

/* A kernel reads what was made before it, and makes what it writes. */
static bool
run_kernel(const kin_fused *f, uint32_t kernel, bool *made, kin_text *why)
{
    const kin_fused_kernel *fused = loops_of(f, kernel);
    const kin_kernel *k = kernel < f->program->kernels.len ? &f->program->kernels.at[kernel] : NULL;
    if (fused == NULL || k == NULL) {
        kin_text_addf(why, "kernel %u has no loops", kernel);
        return false;
    }
    uint32_t n = 0;
    for (uint32_t b = 0; b < fused->loops.buffers.len; b++) {
        const kin_loop_buffer *buf = &fused->loops.buffers.at[b];
        if (buf->local)
            continue;
        uint32_t number = k->buffers[n++];
        if (!buf->written && !is_there(f->program, made, number)) {
            kin_text_addf(why, "%s reads buffer %u before it is made", k->name, number);
            return false;
        }
        made[number] |= buf->written;
    }
    return true;
}

static bool
run_extern(const kin_fused *f, uint32_t number, bool *made, kin_text *why)
{
    const kin_program *p = f->program;
    const kin_extern_call *c = &p->externs.at[number];
    for (uint32_t a = 0; a < c->nargs; a++)
        if (c->args[a].buffer >= p->buffers.len || !is_there(p, made, c->args[a].buffer)) {
            kin_text_addf(why, "call %u %s reads buffer %u before it is made", number, c->name, c->args[a].buffer);
            return false;
        }
    for (uint32_t r = 0; r < c->nresults; r++)
        if (c->results[r] != UINT32_MAX && c->results[r] >= p->buffers.len) {
            kin_text_addf(why, "call %u %s: no such result", number, c->name);
            return false;
        } else if (c->results[r] != UINT32_MAX) {
            made[c->results[r]] = true;
        }
    return c->epilogue == 0 || run_kernel(f, c->epilogue - 1, made, why);
}

static bool
run_program(const kin_fused *f, bool *made, kin_text *why)
{
    const kin_program *p = f->program;
    for (uint32_t i = 0; i < p->ops.len; i++) {
        const kin_program_op *op = &p->ops.at[i];
        if (op->index >= (op->is_extern ? p->externs.len : p->kernels.len)) {
            kin_text_addf(why, "operation %u is not there", i);
            return false;
        }
        if (!(op->is_extern ? run_extern(f, op->index, made, why) : run_kernel(f, op->index, made, why)))
            return false;
    }
    for (uint32_t o = 0; o < p->noutputs; o++)
        if (p->outputs[o] >= p->buffers.len || !is_there(p, made, p->outputs[o])) {
            kin_text_addf(why, "output %u is not made", o);
            return false;
        }
    return true;
}

bool
kin_fused_verify(const kin_fused *f, kin_text *why)
{
    for (uint32_t i = 0; i < f->kernels.len; i++)
        if (!check_kernel(f, i, why))
            return false;
    bool *made = calloc(f->program->buffers.len + 1u, sizeof *made);
    bool ok = made == NULL || run_program(f, made, why);
    free(made);
    return ok;
}
