/* A kernel's loops as bytes (key.h). Written at every compilation, even for kernels that are in memory already, so arrays are
 * copied whole if they have no padding. Index expressions are written in full, because their numbers depend on what else was tried
 * while the kernel was built.
 */
#include "core/fuse/key.h"

#define ADD(v) kin_text_add_len(key, (const char *)&(v), (uint32_t)sizeof(v))

static void
add_index(const kin_loops *k, kin_ix e, kin_text *key)
{
    const kin_ix_expr *x = kin_ix_at(&k->ix, e);
    int64_t head[3] = {x->constant, x->lo >= 0 && x->hi < INT32_MAX, x->nterms}; /* how far it reaches decides on nothing else */
    ADD(head);
    for (uint32_t i = 0; i < x->nterms; i++) {
        const kin_ix_term *t = &k->ix.terms.at[x->terms + i];
        const kin_ix_atom *a = &k->ix.atoms.at[t->atom];
        bool nested = a->kind == KIN_IX_DIV || a->kind == KIN_IX_MOD;
        int64_t words[4] = {t->coef, a->kind, nested ? -1 : (int64_t)a->of, a->by};
        ADD(words);
        if (nested)
            add_index(k, a->of, key);
    }
}

static void
add_instructions(const kin_loops *k, kin_text *key)
{
    for (uint32_t i = 1; i < k->insts.len; i++) {
        kin_loop_inst in = k->insts.at[i];
        in.index = 0;
        ADD(in);
        if (k->insts.at[i].kind == KIN_LI_LOAD || k->insts.at[i].kind == KIN_LI_INDEX)
            add_index(k, k->insts.at[i].index, key);
    }
}

static void
add_actions(const kin_loops *k, kin_text *key)
{
    for (uint32_t i = 0; i < k->actions.len; i++) {
        const kin_loop_action *a = &k->actions.at[i];
        uint32_t words[9] = {a->kind, a->op, a->dtype, a->row, a->phase, a->value, a->buffer, a->acc, a->position};
        ADD(words);
        if (a->kind != KIN_LA_REDUCE)
            add_index(k, a->index, key);
    }
}

bool
kin_loops_key(const kin_loops *k, uint32_t open, kin_text *key)
{
    uint32_t head[9] = {k->vars.len, k->insts.len, k->actions.len, k->buffers.len, k->nphases, k->naccs, k->vector_var,
                        k->ordered, k->checks | k->fast_math << 1 | k->window << 2};
    ADD(head);
    for (uint32_t v = 0; v < k->vars.len; v++) {
        int64_t words[2] = {v == open ? -1 : k->vars.at[v].size, k->vars.at[v].inner};
        ADD(words);
    }
    for (uint32_t b = 0; b < k->buffers.len; b++) {
        const kin_loop_buffer *f = &k->buffers.at[b];
        int64_t words[4] = {f->dtype, f->written | f->streams << 1, f->local, f->elements};
        ADD(words);
    }
    add_instructions(k, key);
    add_actions(k, key);
    return !key->failed;
}
