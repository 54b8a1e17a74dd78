/* The Python function that a call of some callable runs, possibly with a first argument (self). */
#ifndef KIN_PY_MODULE_TARGET_H
#define KIN_PY_MODULE_TARGET_H

#include "py/state/state.h"

typedef struct {
    PyFunctionObject *func; /* borrowed */
    PyObject *self;         /* borrowed; NULL for a plain function */
} kin_callee;

/* Functions, bound methods of functions, and objects whose class has a function as __call__. KIN_EAGER_NO on success.
 * Runs no Python code. */
kin_eager kin_callee_find(const kin_state *st, PyObject *callable, kin_callee *out);

#endif
