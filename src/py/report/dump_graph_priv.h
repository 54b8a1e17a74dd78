/* A graph that is being described; shared by dump_args.c (arguments), dump_callee.c (what a step calls) and dump_graph.c (nodes). */
#ifndef KIN_PY_REPORT_DUMP_GRAPH_PRIV_H
#define KIN_PY_REPORT_DUMP_GRAPH_PRIV_H

#include "py/report/dump_priv.h"

/* One graph being described. */
typedef struct {
    dumper *d;
    kin_graph *g;
    uint32_t number;
    uint32_t step;         /* the step being described */
    uint32_t *nodes;       /* by vid: node in g; 0 = not yet */
    PyObject *inputs;      /* list of dicts */
    PyObject *operators;   /* module operator */
    bool inexact;          /* some node is not shown with all that it is handed */
} grapher;

/* An element of a container: a value of the program, or an object that is known without one. */
typedef struct {
    kin_vid vid;
    PyObject *known; /* borrowed; used when not NULL */
} element;

typedef KIN_VEC(element) elements;

/* What a step calls. */
typedef struct {
    kin_node_op op;
    const char *kind;     /* of the dump: call_function, ... */
    PyObject *target;     /* str, owned */
    PyObject *callable;   /* owned; may be NULL */
    kin_vid args[3];      /* the first arguments in the order of the call */
    uint32_t nfirst;
    uint32_t rest;        /* further arguments: step operands from here on */
    uint32_t nkw;         /* how many of them, at the end, are keywords */
    PyObject *kwnames;    /* borrowed */
    kin_vid star, starkw; /* CALL_EX operands that stand for *args and **kwargs */
} callee;

/* ---- dump_args.c: new references, or NULL with an exception, unless said otherwise ---- */

/* Adds the value to the node's arguments in the graph, below `parent` (0: none), and returns it in the form of the dump. */
PyObject *grapher_add_value(grapher *x, uint32_t node, uint32_t parent, const char *key, kin_vid vid);
PyObject *grapher_add_constant(grapher *x, uint32_t node, uint32_t parent, const char *key, PyObject *value);
PyObject *grapher_add_element(grapher *x, uint32_t node, uint32_t parent, const char *key, element e);
PyObject *grapher_list_elements(grapher *x, uint32_t node, uint32_t parent, const elements *found);
/* What a container built in this recording holds at the current step; the entries of a dict as keys and values in
 * turn. False when that is not known: then it is shown as a value of its own. */
bool grapher_find_elements(grapher *x, kin_vid vid, elements *out, int depth);
/* The elements of another sequence or dict, which the step being followed takes in. */
bool grapher_take_in(grapher *x, kin_vid vid, elements *out, int depth);
/* The note about a value, borrowed, or NULL without an exception. */
PyObject *grapher_note_of(dumper *d, kin_vid vid);
/* UTF-8 of a str; NULL for NULL. */
const char *grapher_chars(PyObject *text);

/* ---- dump_callee.c ---- */

/* 0, or -1 with an exception; `c` is empty before and wants grapher_drop_callee after. */
int grapher_find_target(grapher *x, const kin_step *s, callee *c);
void grapher_drop_callee(callee *c);

#endif
