/* Which calls that may raise are needed in full (aten.h).
 *
 * Kernels compute what is asked for: an index that is out of bounds is met only where its element is read. Eager meets all of them.
 */
#include "core/aten/aten.h"

#include <stdlib.h>
#include <string.h>

enum { USED = 1, WHOLE = 2 };

/* Is the operator, without "aten." and its overload, in the list of words? */
static bool
is_one_of(const char *op, const char *words)
{
    const char *from = strncmp(op, "aten.", 5) == 0 ? op + 5 : op;
    size_t n = strcspn(from, ".");
    char word[64] = " ";
    if (n + 3 > sizeof word)
        return false;
    memcpy(word + 1, from, n);
    memcpy(word + 1 + n, " ", 2);
    return strstr(words, word) != NULL;
}

static bool
raises(const kin_aten *g, const kin_aten_call *call)
{
    const char *op = kin_aten_text(g, call->op);
    if (is_one_of(op, " index index_select gather embedding take scatter scatter_add scatter_reduce index_put index_add index_copy "
                      "index_fill index_put_ nll_loss_forward "))
        return true;
    return is_one_of(op, " floor_divide remainder fmod div ") && call->nresults == 1 &&
           !kin_dtype_is_float((kin_dtype)kin_aten_at(g, call->results)->dtype);
}

static void
need(const kin_aten *g, uint32_t at, uint32_t n, uint8_t how, uint8_t *needs)
{
    for (uint32_t i = at; i < at + n; i++) {
        const kin_aten_arg *a = &g->args.at[i];
        if (a->kind == KIN_ATEN_VALUE)
            needs[a->value] |= how;
        else if (a->kind == KIN_ATEN_LIST)
            need(g, a->list.child, a->list.count, how, needs);
    }
}

static bool
writes(const kin_aten *g, const kin_aten_call *call)
{
    for (uint32_t i = call->args; i < call->args + call->nargs; i++)
        if (g->args.at[i].kind == KIN_ATEN_VALUE && g->args.at[i].written)
            return true;
    return false;
}

/* The call's arguments, from what is needed of its results. */
static void
pass_on(const kin_aten *g, const kin_aten_call *call, uint8_t *needs)
{
    const char *op = kin_aten_text(g, call->op);
    uint8_t how = writes(g, call) ? USED | WHOLE : 0;
    for (uint32_t r = 0; r < call->nresults; r++)
        how |= needs[call->results + r];
    if (how == 0 || call->nargs == 0)
        return;
    if (is_one_of(op, " mm bmm addmm baddbmm convolution _scaled_dot_product_flash_attention_for_cpu sort topk cumsum "))
        how = USED | WHOLE; /* they need all of it for any part of theirs */
    bool parts = is_one_of(op, " select slice split split_with_sizes unsafe_split unbind diagonal as_strided unfold index index_select gather "
                               "embedding take constant_pad_nd tril triu ");
    need(g, call->args, 1, parts ? USED : how, needs);
    need(g, call->args + 1, call->nargs - 1, how, needs);
}

uint32_t
kin_aten_raises_unseen(const kin_aten *g)
{
    uint8_t *needs = calloc(g->values.len + 1, 1);
    uint32_t found = UINT32_MAX;
    for (uint32_t o = 0; needs != NULL && o < g->outputs.len; o++)
        needs[g->outputs.at[o]] = USED | WHOLE;
    for (uint32_t c = g->calls.len; needs != NULL && c-- > 0;) {
        const kin_aten_call *call = &g->calls.at[c];
        bool whole = writes(g, call);
        for (uint32_t r = 0; r < call->nresults; r++)
            whole = whole || (needs[call->results + r] & WHOLE) != 0;
        if (!whole && raises(g, call))
            found = c;
        pass_on(g, call, needs);
    }
    free(needs);
    return found;
}
