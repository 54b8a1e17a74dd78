/* Hands the graphs of an entry to the custom backend of its compiled function. */
#ifndef KIN_MODULE_LOWER_H
#define KIN_MODULE_LOWER_H

#include "py/module/compiled.h"

bool kin_lower_wanted(const kin_compiled *self);
/* Is its backend a function of the user's? */
bool kin_lower_is_custom(const kin_compiled *self);
/* Describes the subgraphs of a new or grown entry and asks the backend for their callables; what had been compiled
 * before stays. `slots`: values by vid, for example inputs; may be NULL. Whatever cannot be compiled runs step by step
 * and leaves an event; false, with an exception, only when the backend raised and config.suppress_errors is off. */
bool kin_lower_entry(kin_compiled *self, kin_entry_object *entry, PyObject *const *slots);

#endif
