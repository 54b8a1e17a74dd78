/* What changed between calls, as places (guard_text.h): later recordings of the function assume less there (rule 12). */
#ifndef KIN_MODULE_UNSTABLE_H
#define KIN_MODULE_UNSTABLE_H

#include "py/guardeval/guard.h"

/* A guard missed: its fact is not assumed again if it is about content that may well change again. Never fails. */
void kin_unstable_note_miss(const kin_variant *v, const kin_guard_miss *miss, PyObject *set);

/* A replay left at a CHECK or SEGMENT. A value has to differ twice: until then a branch for each serves better. */
void kin_unstable_note_exit(const kin_variant *v, uint32_t step, PyObject *set);

#endif
