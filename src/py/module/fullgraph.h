/* fullgraph=True: turns a graph break of a recording into an error. */
#ifndef KIN_PY_MODULE_FULLGRAPH_H
#define KIN_PY_MODULE_FULLGRAPH_H

#include "py/entry/entry.h"
#include <stdbool.h>

/* The graph break at step `refused`, 0: the first; NULL: there is none. */
const kin_step *kin_fullgraph_find(const kin_trace *t, uint32_t refused);
/* Raises error_class(name of the row of the break at step `refused`, 0 = the first, [(file, line, function)...] outermost first, "") when the trace
 * has a break. Returns whether it raised. */
bool kin_fullgraph_refuse(const kin_entry *v, uint32_t refused, PyObject *error_class);

/* A generator function under fullgraph: sets the error, returns NULL. */
PyObject *kin_fullgraph_refuse_generator(PyCodeObject *code, PyObject *error_class);

#endif
