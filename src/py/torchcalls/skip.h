/* Python functions that recording does not trace into, by kind. */
#ifndef KIN_PY_TORCHCALLS_SKIP_H
#define KIN_PY_TORCHCALLS_SKIP_H

#include <Python.h>
#include <stdbool.h>

typedef enum {
    SKIP_NO,
    SKIP_TORCH,       /* torch.nn.functional and the like: one node of the call graph */
    SKIP_OPERATOR,    /* higher order operators, and what the program put into graphs as it is (allow_in_graph) */
    SKIP_EFFECT,      /* logging, warnings: a deferred effect */
    SKIP_DISABLED,    /* torch.compiler.disable, kintsugi.disable */
    SKIP_COMPILED,    /* compiled by PyTorch's own compiler */
    SKIP_GRAPH_BREAK, /* torch._dynamo.graph_break() */
    SKIP_PLAIN        /* runs Python of its own that is not worth watching */
} skip_kind;

skip_kind rec_skip_kind(PyObject *func);
bool rec_is_checkpoint(PyObject *func); /* torch.utils.checkpoint.checkpoint */

static inline bool
rec_skips_function(PyObject *func)
{
    return rec_skip_kind(func) != SKIP_NO;
}

#endif
