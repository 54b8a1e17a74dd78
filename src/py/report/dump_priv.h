/* Shared by the files that make dumps: the dumper, texts of values, source positions. */
#ifndef KIN_PY_REPORT_DUMP_PRIV_H
#define KIN_PY_REPORT_DUMP_PRIV_H

#include "py/report/dump.h"

#include "core/diag/breaks.h"
#include "core/graph/graph.h"

typedef struct {
    kin_entry *v;
    const kin_trace *t;
    const kin_refs *refs;
    PyObject *getline;    /* linecache.getline */
    PyObject *lines;      /* dict (filename, line) -> stripped source line */
    PyObject **paths;     /* by vid: text of a SRC value's path, made when needed */
    uint32_t *use;        /* by vid: 0 unused, graph number when only that graph uses it, USED_OUTSIDE */
    uint32_t *first_use;  /* by vid: the first step that uses it from outside its graph */
    PyObject **locals;    /* by vid: name of the first local variable that holds it; borrowed from code objects */
    const uint32_t *subgraph_of; /* by step: the subgraph it belongs to, in place of its graph; NULL: graphs are described */
    const uint32_t *needed;   /* by vid, with subgraph_of: it is an output */
    PyObject **names;     /* by vid: name of the node that made it in its graph */
    unsigned unfolded;    /* > 0: a value without a name is written as what makes it, so many levels deep so far */
} dumper;

#define USED_OUTSIDE UINT32_MAX

/* ---- dump_text.c: every function returns a new reference, or NULL with an exception ---- */

/* "L['self']._modules['lin']": how PyTorch users know the path of a value. */
PyObject *dump_path(dumper *d, kin_vid vid);
/* The object a value is known to be: a constant, or pinned by an identity fact. Borrowed, NULL without exception. */
PyObject *dump_known_object(dumper *d, kin_vid vid);
/* "torch.nn.functional.relu"; the repr of anything that has no such name. */
PyObject *dump_dotted_name(PyObject *callable);
/* A constant as it would be written in source. */
PyObject *dump_constant_text(PyObject *value);
PyObject *dump_fact_text(dumper *d, const kin_fact *fact);
/* "%7 = getattr(%3, 'shape')" */
PyObject *dump_step_text(dumper *d, const kin_step *step);
/* The same for people, who know no numbers of values: "next(iter(x.tolist()))", "if mask.any()". */
PyObject *dump_step_words(dumper *d, const kin_step *step);
/* Source line, stripped; "" when the file cannot be read. */
PyObject *dump_code_line(dumper *d, PyObject *filename, int line);

typedef struct {
    PyCodeObject *code; /* borrowed, NULL when unknown */
    int line;
    int offset; /* of the instruction, in bytes */
} dump_place;

/* Place of a snapshot: its own frame. */
dump_place dump_snap_place(dumper *d, uint32_t snap);
/* The innermost frame outside the torch package, else the innermost one. */
dump_place dump_user_place(dumper *d, uint32_t snap);
/* filename, line and function into `dict`; 0 or -1. */
int dump_set_place(PyObject *dict, dump_place place);
/* [(file, line, function)], outermost first. */
PyObject *dump_user_stack(dumper *d, uint32_t snap);
/* [(column, last line, column behind the end)] of the instructions of these frames, in bytes; -1: not known. */
PyObject *dump_user_columns(dumper *d, uint32_t snap);

/* Like PyDict_SetItemString, but takes over `value` and fails when it is NULL. */
int dump_set(PyObject *dict, const char *key, PyObject *value);

/* Graph, or subgraph, of a step. */
static inline uint32_t
dump_graph_of(const dumper *d, uint32_t step)
{
    return d->subgraph_of != NULL ? d->subgraph_of[step] : d->t->steps.at[step].graph;
}

/* ---- dump_graph.c ---- */
kin_status dump_find_uses(dumper *d);
/* {inputs, nodes, outputs, code} of graph number `graph`. */
PyObject *dump_graph(dumper *d, uint32_t graph);
/* Index of the step that makes `vid`, or UINT32_MAX. */
uint32_t dump_maker(dumper *d, kin_vid vid);

#endif
