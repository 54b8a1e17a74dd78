/* Hands an entry's graphs to the custom backend of its compiled function. */
#ifndef KIN_PY_BACKEND_CUSTOM_H
#define KIN_PY_BACKEND_CUSTOM_H

#include "py/cache/entry_object.h"

/* What is asked of which backend. */
typedef struct {
    kin_state *state;
    PyObject *backend; /* the user's function; borrowed */
    PyObject *name;    /* str: of the compiled function; borrowed */
    int dynamic;       /* as compile() was told: are sizes symbols? Negative: those that change */
    bool quiet;        /* only to see what a backend would get: nothing becomes an event */
} kin_custom;

/* Describes the subgraphs of a new or grown entry and asks the backend for their callables; what had been compiled
 * before stays. `slots`: values by vid, for example inputs; may be NULL. Whatever cannot be compiled runs step by step
 * and leaves an event; false, with an exception, only when the backend raised and config.suppress_errors is off. */
bool kin_custom_lower(const kin_custom *custom, kin_entry_object *entry, PyObject *const *slots);

/* Can the call that was recorded be done again in place of what it did, so that the backend's work is used from the beginning? All
 * it does is compute: it calls graphs that change nothing, decides on their results, and makes objects of its own. Random
 * numbers it may draw from PyTorch's generators, which the caller puts back. `judged`: what the call has written to has been put back, by its stores and by
 * these torch calls; NULL: nothing has been. */
bool kin_custom_can_repeat(const kin_entry_object *entry, const uint32_t *judged, uint32_t njudged);

#endif
