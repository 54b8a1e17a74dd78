/* What changed between calls, by source (guard_source.h): later recordings of the function assume less about these sources. */
#ifndef KIN_PY_MODULE_DYNAMIC_SOURCES_H
#define KIN_PY_MODULE_DYNAMIC_SOURCES_H

#include "py/guardeval/guard.h"

/* A guard failed on what is in `slots`: later recordings do not assume its fact if it is about content that may change again, nor
 * any size of the tensor if it is about one of them. Never fails. `batch`: where a size
 * of a tensor differs, its first one and those of all arguments count as well. `sizes`: a list of str, one for each size that differed. */
void kin_dynamic_note_miss(kin_entry *v, const kin_guard_miss *miss, PyObject **slots, bool batch, PyObject *set, PyObject *sizes);

/* A replay left at a CHECK or EPOCH. A value has to differ twice: before that a side trace is better. `all`: where
 * sizes of something computed differ, those of all arguments are not assumed any more. */
void kin_dynamic_note_exit(const kin_entry *v, uint32_t step, bool all, PyObject *set);

#endif
