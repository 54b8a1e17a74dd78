/* Prints a call graph as the Python class that PyTorch users know from TORCH_LOGS=graph_code.
 *
 * Values are freed (`; a = None`) after the node that uses them last; outputs are not.
 */
#include "core/graph/graph.h"

static void print_arg(const kin_graph *g, const kin_arg *arg, kin_text *out);

static const char *
node_name(const kin_graph *g, uint32_t node)
{
    return kin_graph_text(g, g->nodes.at[node].name);
}

/* The elements from `first` on, separated by commas; returns how many. */
static uint32_t
print_list(const kin_graph *g, uint32_t first, kin_text *out)
{
    uint32_t count = 0;
    for (uint32_t i = first; i != 0; i = g->args.at[i].next, count++) {
        if (count > 0)
            kin_text_add(out, ", ");
        print_arg(g, &g->args.at[i], out);
    }
    return count;
}

static void
print_dict(const kin_graph *g, uint32_t first, kin_text *out)
{
    kin_text_add(out, "{");
    for (uint32_t i = first; i != 0; i = g->args.at[i].next) {
        kin_arg bare = g->args.at[i];
        bare.key = 0;
        kin_text_addf(out, "%s%s: ", i == first ? "" : ", ", kin_graph_text(g, g->args.at[i].key));
        print_arg(g, &bare, out);
    }
    kin_text_add(out, "}");
}

static void
print_arg(const kin_graph *g, const kin_arg *arg, kin_text *out)
{
    if (arg->key != 0)
        kin_text_addf(out, "%s = ", kin_graph_text(g, arg->key));
    switch ((kin_arg_kind)arg->kind) {
    case KIN_ARG_TEXT:
        kin_text_add(out, kin_graph_text(g, arg->text));
        break;
    case KIN_ARG_NODE:
        kin_text_add(out, node_name(g, arg->node));
        break;
    case KIN_ARG_TUPLE:
        kin_text_add(out, "(");
        if (print_list(g, arg->child, out) == 1)
            kin_text_add(out, ",");
        kin_text_add(out, ")");
        break;
    case KIN_ARG_LIST:
        kin_text_add(out, "[");
        print_list(g, arg->child, out);
        kin_text_add(out, "]");
        break;
    case KIN_ARG_DICT:
        print_dict(g, arg->child, out);
        break;
    case KIN_ARG_SLICE:
        kin_text_add(out, "slice(");
        print_list(g, arg->child, out);
        kin_text_add(out, ")");
        break;
    }
}

static void
print_call(const kin_graph *g, const kin_node *n, kin_text *out)
{
    const char *target = kin_graph_text(g, n->target);
    const kin_arg *first = n->args ? &g->args.at[n->args] : NULL;
    const kin_arg *second = first && first->next ? &g->args.at[first->next] : NULL;
    switch ((kin_node_op)n->op) {
    case KIN_NODE_INPUT:
        kin_text_add(out, target);
        break;
    case KIN_NODE_FUNCTION:
        kin_text_addf(out, "%s(", target);
        print_list(g, n->args, out);
        kin_text_add(out, ")");
        break;
    case KIN_NODE_METHOD:
        if (first != NULL)
            print_arg(g, first, out);
        kin_text_addf(out, ".%s(", target);
        print_list(g, first ? first->next : 0, out);
        kin_text_add(out, ")");
        break;
    case KIN_NODE_INFIX:
        if (first != NULL)
            print_arg(g, first, out);
        kin_text_addf(out, " %s ", target);
        if (second != NULL)
            print_arg(g, second, out);
        break;
    case KIN_NODE_PREFIX:
        kin_text_add(out, target);
        if (first != NULL)
            print_arg(g, first, out);
        break;
    case KIN_NODE_ITEM:
        if (first != NULL)
            print_arg(g, first, out);
        kin_text_add(out, "[");
        if (second != NULL)
            print_arg(g, second, out);
        kin_text_add(out, "]");
        break;
    case KIN_NODE_GETATTR:
        if (first != NULL)
            print_arg(g, first, out);
        kin_text_addf(out, ".%s", target);
        break;
    }
}

/* Appends the names below `first` whose last use is node `user`, each once. */
static void
print_dead_args(kin_graph *g, uint32_t first, uint32_t user, kin_text *out)
{
    for (uint32_t i = first; i != 0; i = g->args.at[i].next) {
        const kin_arg *arg = &g->args.at[i];
        if (arg->child != 0)
            print_dead_args(g, arg->child, user, out);
        kin_node *n = &g->nodes.at[arg->node];
        if (arg->kind == KIN_ARG_NODE && n->last_use == user && !n->freed) {
            n->freed = true;
            kin_text_addf(out, "%s = ", node_name(g, arg->node));
        }
    }
}

static void
print_frees(kin_graph *g, uint32_t node, kin_text *out)
{
    kin_text dead = {0};
    print_dead_args(g, g->nodes.at[node].args, node, &dead);
    if (g->nodes.at[node].last_use == 0)
        kin_text_addf(&dead, "%s = ", node_name(g, node));
    if (dead.len > 0)
        kin_text_addf(out, ";  %sNone", dead.at);
    out->failed |= dead.failed;
    kin_text_deinit(&dead);
}

static void
print_annotation(const kin_graph *g, const kin_node *n, kin_text *out)
{
    if (n->note != 0)
        kin_text_addf(out, ": \"%s\"", kin_graph_text(g, n->note));
}

static bool
is_same_place(const kin_node *a, const kin_node *b)
{
    return a->line == b->line && a->file == b->file && a->function == b->function && a->code == b->code;
}

static void
print_head(kin_graph *g, kin_text *out)
{
    kin_text_add(out, "class GraphModule(torch.nn.Module):\n    def forward(self");
    for (uint32_t i = 1; i < g->nodes.len; i++) {
        const kin_node *n = &g->nodes.at[i];
        if (n->op != KIN_NODE_INPUT)
            continue;
        kin_text_addf(out, ", %s", kin_graph_text(g, n->target));
        print_annotation(g, n, out);
    }
    kin_text_add(out, "):\n");
    for (uint32_t i = 1; i < g->nodes.len; i++)
        if (g->nodes.at[i].op == KIN_NODE_INPUT)
            kin_text_addf(out, "        %s = %s\n", node_name(g, i), kin_graph_text(g, g->nodes.at[i].target));
}

static void
print_node(kin_graph *g, uint32_t i, const kin_node *before, kin_text *out)
{
    const kin_node *n = &g->nodes.at[i];
    if (n->line != 0 && (before == NULL || !is_same_place(before, n)))
        kin_text_addf(out, "\n        # File: %s:%u in %s, code: %s\n", kin_graph_text(g, n->file), n->line,
                      kin_graph_text(g, n->function), kin_graph_text(g, n->code));
    kin_text_addf(out, "        %s", node_name(g, i));
    print_annotation(g, n, out);
    kin_text_add(out, " = ");
    print_call(g, n, out);
    print_frees(g, i, out);
    kin_text_add(out, "\n");
}

bool
kin_graph_print(kin_graph *g, kin_text *out)
{
    const kin_node *before = NULL;
    for (uint32_t i = 1; i < g->nodes.len; i++)
        g->nodes.at[i].freed = false;
    print_head(g, out);
    for (uint32_t i = 1; i < g->nodes.len; i++) {
        if (g->nodes.at[i].op == KIN_NODE_INPUT)
            continue;
        print_node(g, i, before, out);
        before = &g->nodes.at[i];
    }
    kin_text_add(out, "        return (");
    for (uint32_t i = 0; i < g->outputs.len; i++)
        kin_text_addf(out, "%s%s", i ? ", " : "", node_name(g, g->outputs.at[i]));
    kin_text_add(out, g->outputs.len == 1 ? ",)\n" : ")\n");
    return !g->failed && !out->failed;
}
