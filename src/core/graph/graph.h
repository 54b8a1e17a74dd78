/* A call graph: the torch calls between two graph breaks, as readers know them from "TRACED GRAPH" listings.
 *
 * Built front to back; nodes and arguments are numbered from 1 and refer to earlier nodes only. Texts are copied in.
 * A failed allocation makes the graph sticky (`failed`): builders return 0 and the caller checks once, at the end.
 *
 *     kin_graph *g = kin_graph_new();
 *     uint32_t x = kin_graph_add_input(g, "L_x_", "f32[3][1]cpu");
 *     uint32_t call = kin_graph_add_node(g, KIN_NODE_FUNCTION, "torch.sin", NULL, "f32[3][1]cpu");
 *     kin_graph_add_arg(g, call, 0, NULL, (kin_arg){.kind = KIN_ARG_NODE, .node = x});
 *     kin_graph_set_place(g, call, "m.py", 4, "f", "return torch.sin(x)");
 *     kin_graph_add_output(g, call);
 *     kin_graph_print(g, &text);
 */
#ifndef KIN_GRAPH_GRAPH_H
#define KIN_GRAPH_GRAPH_H

#include "core/base/vec.h"
#include "core/base/table.h"
#include "core/diag/text.h"

#include <stdbool.h>
#include <stdint.h>

typedef enum {
    KIN_NODE_INPUT,
    KIN_NODE_FUNCTION, /* target(args) */
    KIN_NODE_METHOD,   /* args[0].target(args[1..]) */
    KIN_NODE_INFIX,    /* args[0] target args[1], as in `a + b` */
    KIN_NODE_PREFIX,   /* target args[0], as in `-a` */
    KIN_NODE_ITEM,     /* args[0][args[1]] */
    KIN_NODE_GETATTR   /* args[0].target */
} kin_node_op;

typedef enum { KIN_ARG_TEXT, KIN_ARG_NODE, KIN_ARG_TUPLE, KIN_ARG_LIST, KIN_ARG_DICT, KIN_ARG_SLICE } kin_arg_kind;

typedef struct {
    uint8_t kind;   /* kin_arg_kind */
    uint32_t node;  /* NODE */
    uint32_t text;  /* TEXT: the constant as source text (set by the builder) */
    uint32_t key;   /* keyword, or the key's text inside a DICT; 0 = none */
    uint32_t child; /* first element of a container */
    uint32_t next;  /* next sibling */
} kin_arg;

typedef struct {
    uint8_t op;          /* kin_node_op */
    uint32_t target, name, note;
    uint32_t file, function, code;
    uint32_t line;
    uint32_t args;       /* first argument; keywords last */
    uint32_t last_arg;
    uint32_t last_use;   /* node that uses it last; 0 = none; UINT32_MAX = an output */
    bool freed;          /* while printing: its `= None` has been written */
} kin_node;

typedef struct {
    KIN_VEC(kin_node) nodes; /* [0] is unused */
    KIN_VEC(kin_arg) args;   /* [0] is unused */
    KIN_VEC(uint32_t) outputs;
    kin_text pool;           /* texts, each with its NUL; offset 0 is "" */
    kin_table taken; /* hash table of texts that no further node may be named */
    uint32_t placed;         /* node whose place was set last: neighbours share its texts */
    bool failed;
} kin_graph;

kin_graph *kin_graph_new(void);
void kin_graph_free(kin_graph *g);

/* No node will get this name (Python's keywords and builtins, as readers expect: `abs_1`, `sum_1`). */
void kin_graph_reserve(kin_graph *g, const char *name);

/* `source` as the parameter is shown: "L_x_". The node is called "l_x_". */
uint32_t kin_graph_add_input(kin_graph *g, const char *source, const char *note);
/* `hint`: the local variable the value is stored to; NULL: named after the target's last part. */
uint32_t kin_graph_add_node(kin_graph *g, kin_node_op op, const char *target, const char *hint, const char *note);
void kin_graph_set_place(kin_graph *g, uint32_t node, const char *file, uint32_t line, const char *function,
                         const char *code);
/* Appends to the node's arguments, or to the container `parent` when that is not 0. `key`: keyword or dict key.
 * Returns the argument's number, to be the parent of further ones. */
uint32_t kin_graph_add_arg(kin_graph *g, uint32_t node, uint32_t parent, const char *key, kin_arg arg);
uint32_t kin_graph_add_text(kin_graph *g, uint32_t node, uint32_t parent, const char *key, const char *text);
void kin_graph_add_output(kin_graph *g, uint32_t node);

/* Texts of a graph by offset (targets, names, notes, ...). */
const char *kin_graph_text(const kin_graph *g, uint32_t offset);

/* Prints `class GraphModule(torch.nn.Module): ...`, each line ended by a newline. False when memory was short. */
bool kin_graph_print(kin_graph *g, kin_text *out);

/* "L['self']._modules['lin']._parameters['weight']" -> "L_self_modules_lin_parameters_weight_". */
void kin_graph_source_name(const char *source, kin_text *out);

#endif
