/* The call-graph printer against the listing that PyTorch users know. */
#include "core/graph/graph.h"

#include <stdio.h>

static int failures;

static void
check_text(const char *what, const char *got, const char *want)
{
    if (got != NULL && strcmp(got, want) == 0)
        return;
    fprintf(stderr, "%s\n--- got ---\n%s\n--- want ---\n%s\n", what, got ? got : "(nothing)", want);
    failures++;
}

static kin_arg
node_arg(uint32_t node)
{
    return (kin_arg){.kind = KIN_ARG_NODE, .node = node};
}

static void
test_listing(void)
{
    kin_graph *g = kin_graph_new();
    kin_graph_reserve(g, "sum");
    uint32_t x = kin_graph_add_input(g, "L_x_", "f32[3][1]cpu");
    uint32_t y = kin_graph_add_input(g, "L_y_", "f32[3][1]cpu");
    uint32_t a = kin_graph_add_node(g, KIN_NODE_FUNCTION, "torch.sin", "a", "f32[3][1]cpu");
    kin_graph_add_arg(g, a, 0, NULL, node_arg(x));
    kin_graph_set_place(g, a, "m.py", 4, "f", "a = torch.sin(x)");
    uint32_t add = kin_graph_add_node(g, KIN_NODE_INFIX, "+", NULL, "f32[3][1]cpu");
    kin_graph_add_arg(g, add, 0, NULL, node_arg(a));
    kin_graph_add_arg(g, add, 0, NULL, node_arg(y));
    kin_graph_set_place(g, add, "m.py", 5, "f", "return (a + y).sum()");
    uint32_t sum = kin_graph_add_node(g, KIN_NODE_METHOD, "sum", NULL, "f32[][]cpu");
    kin_graph_add_arg(g, sum, 0, NULL, node_arg(add));
    kin_graph_set_place(g, sum, "m.py", 5, "f", "return (a + y).sum()");
    kin_graph_add_output(g, sum);
    const char *want =
        "class GraphModule(torch.nn.Module):\n"
        "    def forward(self, L_x_: \"f32[3][1]cpu\", L_y_: \"f32[3][1]cpu\"):\n"
        "        l_x_ = L_x_\n"
        "        l_y_ = L_y_\n"
        "\n"
        "        # File: m.py:4 in f, code: a = torch.sin(x)\n"
        "        a: \"f32[3][1]cpu\" = torch.sin(l_x_);  l_x_ = None\n"
        "\n"
        "        # File: m.py:5 in f, code: return (a + y).sum()\n"
        "        add: \"f32[3][1]cpu\" = a + l_y_;  a = l_y_ = None\n"
        "        sum_1: \"f32[][]cpu\" = add.sum();  add = None\n"
        "        return (sum_1,)\n";
    kin_text out = {0};
    for (int round = 0; round < 2; round++) { /* printing leaves the graph as it was */
        kin_text_clear(&out);
        if (!kin_graph_print(g, &out))
            failures++;
        check_text("listing", out.at, want);
    }
    kin_text_deinit(&out);
    kin_graph_free(g);
}

static void
test_nested_arguments(void)
{
    kin_graph *g = kin_graph_new();
    uint32_t x = kin_graph_add_input(g, "L_x_", NULL);
    uint32_t cat = kin_graph_add_node(g, KIN_NODE_FUNCTION, "torch.cat", NULL, NULL);
    uint32_t list = kin_graph_add_arg(g, cat, 0, NULL, (kin_arg){.kind = KIN_ARG_LIST});
    kin_graph_add_arg(g, cat, list, NULL, node_arg(x));
    kin_graph_add_arg(g, cat, list, NULL, node_arg(x));
    kin_graph_add_text(g, cat, 0, "dim", "1");
    uint32_t item = kin_graph_add_node(g, KIN_NODE_ITEM, "", NULL, NULL);
    kin_graph_add_arg(g, item, 0, NULL, node_arg(cat));
    uint32_t tuple = kin_graph_add_arg(g, item, 0, NULL, (kin_arg){.kind = KIN_ARG_TUPLE});
    kin_graph_add_text(g, item, tuple, NULL, "0");
    uint32_t unused = kin_graph_add_node(g, KIN_NODE_FUNCTION, "torch.ops.aten.sin.default", NULL, NULL);
    kin_graph_add_arg(g, unused, 0, NULL, node_arg(item));
    uint32_t again = kin_graph_add_node(g, KIN_NODE_FUNCTION, "torch.cat", NULL, NULL);
    uint32_t dict = kin_graph_add_arg(g, again, 0, NULL, (kin_arg){.kind = KIN_ARG_DICT});
    kin_graph_add_arg(g, again, dict, "'k'", node_arg(item));
    kin_graph_add_output(g, item);
    kin_graph_add_output(g, again);
    kin_text out = {0};
    if (!kin_graph_print(g, &out))
        failures++;
    check_text("nested", out.at,
               "class GraphModule(torch.nn.Module):\n"
               "    def forward(self, L_x_):\n"
               "        l_x_ = L_x_\n"
               "        cat = torch.cat([l_x_, l_x_], dim = 1);  l_x_ = None\n"
               "        getitem = cat[(0,)];  cat = None\n"
               "        sin = torch.ops.aten.sin.default(getitem);  sin = None\n"
               "        cat_1 = torch.cat({'k': getitem})\n"
               "        return (getitem, cat_1)\n");
    kin_text_deinit(&out);
    kin_graph_free(g);
}

static void
test_source_names(void)
{
    kin_text out = {0};
    kin_graph_source_name("L['self']._modules['lin']._parameters['weight']", &out);
    check_text("source name", out.at, "L_self_modules_lin_parameters_weight_");
    kin_text_deinit(&out);
}

static void
test_many_names(void)
{
    kin_graph *g = kin_graph_new();
    uint32_t x = kin_graph_add_input(g, "L_x_", NULL), last = x;
    for (int i = 0; i < 2000; i++) {
        last = kin_graph_add_node(g, KIN_NODE_INFIX, "+", NULL, NULL);
        kin_graph_add_arg(g, last, 0, NULL, node_arg(x));
    }
    check_text("2000th name", kin_graph_text(g, g->nodes.at[last].name), "add_1999");
    kin_graph_free(g);
}

int
main(void)
{
    test_listing();
    test_nested_arguments();
    test_source_names();
    test_many_names();
    return failures != 0;
}
