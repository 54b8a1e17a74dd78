/* What changed between calls, by place (guard_place.h): later recordings of the function assume less about these places. */
#ifndef KIN_PY_MODULE_UNSTABLE_H
#define KIN_PY_MODULE_UNSTABLE_H

#include "py/guardeval/guard.h"

/* A guard missed on what is in `slots`: its fact is not assumed again if it is about content that may well change again, nor is
 * any other size if it is about the size of a tensor. Never fails. `sizes`: a list of str, one for each size that is free from now on. */
void kin_unstable_note_miss(kin_entry *v, const kin_guard_miss *miss, PyObject **slots, PyObject *set, PyObject *sizes);

/* A replay left at a CHECK or SEGMENT. A value has to differ twice: until then a side trace for each serves better. */
void kin_unstable_note_exit(const kin_entry *v, uint32_t step, PyObject *set);

#endif
