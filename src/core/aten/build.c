/* Builds ATen graphs. The arguments of a call lie side by side, followed by the elements of its lists, so an argument
 * that comes after a list is inserted before the elements and moves them.
 */
#include "core/aten/aten.h"

kin_aten *
kin_aten_new(void)
{
    kin_aten *g = calloc(1, sizeof *g);
    if (g == NULL)
        return NULL;
    kin_aten_value none = {0};
    if (kin_vec_push(&g->values, none) != KIN_OK)
        g->failed = true;
    kin_text_add_len(&g->texts, "", 1);
    return g;
}

void
kin_aten_free(kin_aten *g)
{
    if (g == NULL)
        return;
    kin_vec_deinit(&g->values);
    kin_vec_deinit(&g->calls);
    kin_vec_deinit(&g->args);
    kin_vec_deinit(&g->ints);
    kin_vec_deinit(&g->outputs);
    kin_vec_deinit(&g->holes);
    kin_text_deinit(&g->texts);
    free(g->asked);
    free(g);
}

static uint32_t
add_text(kin_aten *g, const char *text)
{
    uint32_t at = g->texts.len;
    kin_text_add_len(&g->texts, text, (uint32_t)strlen(text) + 1);
    g->failed |= g->texts.failed;
    return g->failed ? 0 : at;
}

static uint32_t
add_ints(kin_aten *g, unsigned count, const int64_t *ints)
{
    uint32_t first = g->ints.len;
    g->failed |= kin_vec_append(&g->ints, ints, count) != KIN_OK;
    return first;
}

static kin_aten_val
add_value(kin_aten *g, kin_aten_value v, const int64_t *sizes, const int64_t *strides)
{
    if (v.ndim > KIN_IR_MAX_DIMS)
        g->failed = true;
    if (g->failed)
        return 0;
    int64_t own[2 * KIN_IR_MAX_DIMS]; /* both may be ints of the graph, which move when it grows */
    if (v.ndim > 0) {
        memcpy(own, sizes, v.ndim * sizeof *own);
        memcpy(own + v.ndim, strides, v.ndim * sizeof *own);
    }
    v.sizes = add_ints(g, 2 * v.ndim, own);
    v.strides = v.sizes + v.ndim;
    if (v.storage > g->nstorages)
        g->nstorages = v.storage;
    if (g->failed || kin_vec_push(&g->values, v) != KIN_OK) {
        g->failed = true;
        return 0;
    }
    return g->values.len - 1;
}

kin_aten_val
kin_aten_input(kin_aten *g, kin_dtype dtype, unsigned ndim, const int64_t *sizes, const int64_t *strides, uint32_t storage,
               int64_t offset)
{
    kin_aten_value v = {.dtype = (uint8_t)dtype, .ndim = (uint8_t)ndim, .storage = storage, .offset = offset,
                        .call = UINT32_MAX, .input = g->ninputs++};
    return add_value(g, v, sizes, strides);
}

uint32_t
kin_aten_add_call(kin_aten *g, const char *op, bool random)
{
    kin_aten_call c = {.op = add_text(g, op), .args = g->args.len};
    kin_aten_op row = kin_aten_op_find(op, &c.in_place);
    c.row = (uint16_t)row;
    c.random = row == KIN_ATEN_OPS ? random : kin_aten_op_is(row, KIN_ATEN_RANDOM);
    g->holes.len = 0;
    if (g->failed || kin_vec_push(&g->calls, c) != KIN_OK) {
        g->failed = true;
        return 0;
    }
    return g->calls.len - 1;
}

/* A place for the next argument of the newest call: in the innermost list that wants elements, or behind the arguments
 * that it has. */
static uint32_t
make_place(kin_aten *g)
{
    while (g->holes.len > 0 && g->holes.at[g->holes.len - 1].left == 0)
        g->holes.len--;
    if (g->holes.len > 0) {
        kin_aten_hole *h = &g->holes.at[g->holes.len - 1];
        h->left--;
        return h->next++;
    }
    kin_aten_call *c = &g->calls.at[g->calls.len - 1];
    uint32_t place = c->args + c->nargs;
    kin_aten_arg none = {0};
    if (kin_vec_push(&g->args, none) != KIN_OK) {
        g->failed = true;
        return 0;
    }
    memmove(g->args.at + place + 1, g->args.at + place, (g->args.len - 1 - place) * sizeof *g->args.at);
    for (uint32_t i = c->args; i < g->args.len; i++)
        if (i != place && g->args.at[i].kind == KIN_ATEN_LIST)
            g->args.at[i].list.child++;
    c->nargs++;
    return place;
}

/* Room for the elements of a list, at the end. */
static void
open_list(kin_aten *g, kin_aten_arg *arg)
{
    uint32_t count = arg->list.count;
    kin_aten_hole hole = {g->args.len, count};
    arg->list.child = g->args.len;
    if (kin_vec_reserve(&g->args, count) != KIN_OK || kin_vec_push(&g->holes, hole) != KIN_OK) {
        g->failed = true;
        return;
    }
    memset(g->args.at + g->args.len, 0, count * sizeof *g->args.at);
    g->args.len += count;
}

void
kin_aten_add_arg(kin_aten *g, kin_aten_arg arg, const char *keyword, const char *text)
{
    if (g->failed || g->calls.len == 0) {
        g->failed = true;
        return;
    }
    uint32_t place = make_place(g);
    if (arg.kind == KIN_ATEN_STR || arg.kind == KIN_ATEN_WORD)
        arg.text = add_text(g, text);
    arg.name = keyword != NULL ? add_text(g, keyword) : 0;
    if (!g->failed && arg.kind == KIN_ATEN_LIST)
        open_list(g, &arg);
    if (!g->failed)
        g->args.at[place] = arg;
}

kin_aten_val
kin_aten_add_result(kin_aten *g, kin_dtype dtype, unsigned ndim, const int64_t *sizes, const int64_t *strides,
                    uint32_t storage, int64_t offset)
{
    if (g->failed || g->calls.len == 0) {
        g->failed = true;
        return 0;
    }
    kin_aten_value v = {.dtype = (uint8_t)dtype, .ndim = (uint8_t)ndim, .storage = storage, .offset = offset,
                        .call = g->calls.len - 1};
    kin_aten_val value = add_value(g, v, sizes, strides);
    kin_aten_call *c = &g->calls.at[g->calls.len - 1];
    if (c->nresults++ == 0)
        c->results = value;
    return value;
}

void
kin_aten_output(kin_aten *g, kin_aten_val value)
{
    if (kin_vec_push(&g->outputs, value) != KIN_OK)
        g->failed = true;
}
