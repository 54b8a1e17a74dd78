/* Building a call graph: texts, names, nodes, arguments. */
#include "core/graph/graph.h"
#include "core/base/hash.h"
#include "core/bytecode/canon.h"

#include <ctype.h>

kin_graph *
kin_graph_new(void)
{
    kin_graph *g = calloc(1, sizeof *g);
    if (g == NULL)
        return NULL;
    kin_text_add_len(&g->pool, "\0", 1);
    if (g->pool.failed || kin_vec_push(&g->nodes, (kin_node){0}) != KIN_OK
        || kin_vec_push(&g->args, (kin_arg){0}) != KIN_OK) {
        kin_graph_free(g);
        return NULL;
    }
    return g;
}

void
kin_graph_free(kin_graph *g)
{
    if (g == NULL)
        return;
    kin_vec_deinit(&g->nodes);
    kin_vec_deinit(&g->args);
    kin_vec_deinit(&g->outputs);
    kin_table_deinit(&g->taken);
    kin_text_deinit(&g->pool);
    free(g);
}

const char *
kin_graph_text(const kin_graph *g, uint32_t offset)
{
    return g->pool.at + offset;
}

static uint32_t
keep_text(kin_graph *g, const char *text)
{
    if (text == NULL || *text == '\0')
        return 0;
    uint32_t offset = g->pool.len;
    kin_text_add_len(&g->pool, text, (uint32_t)strlen(text) + 1);
    if (g->pool.failed) {
        g->failed = true;
        return 0;
    }
    return offset;
}

/* ---- names: a hash table of pool offsets ---- */

/* Offset of `name` in the pool if it was free and is now taken; 0 if somebody has it. */
static uint32_t
take_name(kin_graph *g, const char *name)
{
    uint64_t hash = kin_hash_bytes(0, name, strlen(name));
    uint32_t n, at = 0;
    while ((n = kin_table_next(&g->taken, hash, &at)) != KIN_TABLE_NONE)
        if (strcmp(kin_graph_text(g, n), name) == 0)
            return 0;
    uint32_t offset = keep_text(g, name);
    if (offset != 0 && kin_table_add(&g->taken, hash, offset) != KIN_OK) {
        g->failed = true;
        return 0;
    }
    return offset;
}

void
kin_graph_reserve(kin_graph *g, const char *name)
{
    take_name(g, name);
}

/* A free name made from `wish`: identifier characters only, `_1`, `_2`, ... when it is taken. */
static uint32_t
make_name(kin_graph *g, const char *wish)
{
    kin_text name = {0};
    for (const char *c = wish; *c != '\0'; c++)
        kin_text_add_len(&name, isalnum((unsigned char)*c) ? c : "_", 1);
    if (name.len == 0 || isdigit((unsigned char)name.at[0])) {
        kin_text_clear(&name);
        kin_text_add(&name, "value");
    }
    uint32_t stem = name.len, offset = 0;
    for (unsigned n = 1; !g->failed && !name.failed && (offset = take_name(g, name.at)) == 0; n++) {
        name.len = stem;
        kin_text_addf(&name, "_%u", n);
    }
    g->failed |= name.failed;
    kin_text_deinit(&name);
    return offset;
}

void
kin_graph_source_name(const char *source, kin_text *out)
{
    bool gap = false;
    for (const char *c = source; *c != '\0'; c++) {
        bool plain = isalnum((unsigned char)*c) || (unsigned char)*c >= 0x80;
        if (plain)
            kin_text_add_len(out, c, 1);
        else if (!gap)
            kin_text_add(out, "_");
        gap = !plain;
    }
}

/* ---- nodes ---- */

static uint32_t
push_node(kin_graph *g, kin_node node)
{
    if (g->failed || kin_vec_push(&g->nodes, node) != KIN_OK) {
        g->failed = true;
        return 0;
    }
    return g->nodes.len - 1;
}

uint32_t
kin_graph_add_input(kin_graph *g, const char *source, const char *note)
{
    kin_text lower = {0};
    for (const char *c = source; *c != '\0'; c++) {
        char small = (char)tolower((unsigned char)*c);
        kin_text_add_len(&lower, &small, 1);
    }
    kin_node node = {.op = KIN_NODE_INPUT, .target = keep_text(g, source), .note = keep_text(g, note)};
    node.name = make_name(g, lower.at != NULL ? lower.at : "");
    kin_text_deinit(&lower);
    return push_node(g, node);
}

static const char *
last_part(const char *target)
{
    const char *dot = strrchr(target, '.');
    return dot != NULL && dot[1] != '\0' ? dot + 1 : target;
}

/* Overloads of operators ("torch.ops.aten.sin.default") are named after the operator. */
static void
suggest_name(const char *target, kin_text *out)
{
    const char *part = last_part(target);
    const char *from = part;
    uint32_t len = (uint32_t)strlen(part);
    if (strncmp(target, "torch.ops.", 10) == 0 && part > target + 1) {
        const char *dot = part - 1, *start = dot;
        while (start > target && start[-1] != '.')
            start--;
        from = start;
        len = (uint32_t)(dot - start);
    }
    for (uint32_t i = 0; i < len; i++) {
        char small = (char)tolower((unsigned char)from[i]);
        kin_text_add_len(out, &small, 1);
    }
}

static const char *
name_of_symbol(kin_node_op op, const char *target)
{
    const kin_operator *o;
    for (unsigned i = 0; op == KIN_NODE_PREFIX && (o = kin_unary_operator(i)) != NULL; i++)
        if (strcmp(o->symbol, target) == 0)
            return o->text;
    for (unsigned i = 0; op == KIN_NODE_INFIX && ((o = kin_binary_operator(i)) != NULL); i++)
        if (strcmp(o->symbol, target) == 0 || strcmp(o->in_place_symbol, target) == 0)
            return strcmp(o->symbol, target) == 0 ? o->text : o->in_place;
    for (unsigned i = 0; op == KIN_NODE_INFIX && ((o = kin_compare_operator(i)) != NULL); i++)
        if (strcmp(o->symbol, target) == 0)
            return o->text;
    return "value";
}

uint32_t
kin_graph_add_node(kin_graph *g, kin_node_op op, const char *target, const char *hint, const char *note)
{
    kin_text wish = {0};
    if (hint != NULL && *hint != '\0')
        kin_text_add(&wish, hint);
    else if (op == KIN_NODE_INFIX || op == KIN_NODE_PREFIX)
        kin_text_add(&wish, name_of_symbol(op, target));
    else if (op == KIN_NODE_ITEM)
        kin_text_add(&wish, "getitem");
    else if (op == KIN_NODE_GETATTR)
        kin_text_add(&wish, "getattr");
    else
        suggest_name(target, &wish);
    kin_node node = {.op = (uint8_t)op, .target = keep_text(g, target), .note = keep_text(g, note)};
    node.name = make_name(g, wish.at != NULL ? wish.at : "");
    kin_text_deinit(&wish);
    return push_node(g, node);
}

/* Consecutive nodes usually come from one line: share the texts of the node before. */
static uint32_t
keep_shared(kin_graph *g, uint32_t before, const char *text)
{
    if (before != 0 && text != NULL && strcmp(kin_graph_text(g, before), text) == 0)
        return before;
    return keep_text(g, text);
}

void
kin_graph_set_place(kin_graph *g, uint32_t node, const char *file, uint32_t line, const char *function, const char *code)
{
    if (g->failed || node == 0)
        return;
    kin_node before = g->nodes.at[g->placed];
    kin_node *n = &g->nodes.at[node];
    n->file = keep_shared(g, before.file, file);
    n->function = keep_shared(g, before.function, function);
    n->code = keep_shared(g, before.code, code);
    n->line = line;
    g->placed = node;
}

static void
mark_use(kin_graph *g, uint32_t value, uint32_t user)
{
    if (value != 0 && value < g->nodes.len && g->nodes.at[value].last_use != UINT32_MAX)
        g->nodes.at[value].last_use = user;
}

uint32_t
kin_graph_add_arg(kin_graph *g, uint32_t node, uint32_t parent, const char *key, kin_arg arg)
{
    arg.key = keep_text(g, key);
    if (g->failed || node == 0 || kin_vec_push(&g->args, arg) != KIN_OK) {
        g->failed = true;
        return 0;
    }
    uint32_t made = g->args.len - 1, *link;
    if (parent == 0) {
        kin_node *n = &g->nodes.at[node];
        link = n->last_arg ? &g->args.at[n->last_arg].next : &n->args;
        n->last_arg = made;
    } else {
        link = &g->args.at[parent].child;
        while (*link != 0)
            link = &g->args.at[*link].next;
    }
    *link = made;
    if (arg.kind == KIN_ARG_NODE)
        mark_use(g, arg.node, node);
    return made;
}

uint32_t
kin_graph_add_text(kin_graph *g, uint32_t node, uint32_t parent, const char *key, const char *text)
{
    return kin_graph_add_arg(g, node, parent, key, (kin_arg){.kind = KIN_ARG_TEXT, .text = keep_text(g, text)});
}

void
kin_graph_add_output(kin_graph *g, uint32_t node)
{
    if (g->failed || node == 0 || kin_vec_push(&g->outputs, node) != KIN_OK)
        g->failed = true;
    else
        mark_use(g, node, UINT32_MAX);
}
