/* What the graphs of a variant are compiled with: kernels, a backend of the user's, or nothing. */
#ifndef KIN_PY_MODULE_LOWER_H
#define KIN_PY_MODULE_LOWER_H

#include "py/module/compiled.h"

bool kin_lower_wanted(const kin_compiled *self);
/* Is its backend a function of the user's? */
bool kin_lower_is_custom(const kin_compiled *self);
/* Gives the subgraphs of a new or grown variant launchers; what had been compiled before stays. `slots`: values by vid, for example inputs;
 * may be NULL. Whatever cannot be compiled runs step by step and leaves an event; false, with an exception, only when a backend of
 * the user's raised under fullgraph. */
bool kin_lower_variant(kin_compiled *self, kin_variant_object *variant, PyObject *const *slots);

#endif
