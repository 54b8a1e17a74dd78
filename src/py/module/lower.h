/* Chooses the backend of an entry's graphs: our kernels, a custom backend, or none (step by step). */
#ifndef KIN_PY_MODULE_LOWER_H
#define KIN_PY_MODULE_LOWER_H

#include "py/module/compiled.h"

bool kin_lower_wanted(const kin_compiled *self);
/* Is its backend a function of the user's? */
bool kin_lower_is_custom(const kin_compiled *self);
/* Does one compilation serve all sizes? */
bool kin_lower_has_dynamic_sizes(const kin_compiled *self);
/* Gives the subgraphs of a new or grown entry launchers; what had been compiled before stays. `slots`: values by vid, for example inputs;
 * may be NULL. Whatever cannot be compiled runs step by step and leaves an event; false, with an exception, only when a backend of
 * the user's raised and config.suppress_errors is off. */
bool kin_lower_entry(kin_compiled *self, kin_entry_object *entry, PyObject *const *slots);

/* The graphs that `backend` would get of the entry, which has no custom backend and is used for nothing else: new list of (number of the graph, where its part
 * ends as kin_subgraph_end tells). Nothing becomes an event. */
PyObject *kin_lower_divide(kin_compiled *self, kin_entry_object *entry, PyObject *backend);

#endif
