/* Sizes that the program has marked with torch._dynamo.mark_dynamic, and of which the recording accepts one value only: it is tested exactly, because the
 * program depends on it (`if x.shape[0] == 4`). Calls with another size leave the recording there. Nothing is lost by that, but the mark promises more,
 * so users are told.
 */
#ifndef KIN_PY_REPORT_EXACT_SIZES_H
#define KIN_PY_REPORT_EXACT_SIZES_H

#include "py/entry/entry.h"

/* Looks through the steps from `first` on and adds what it finds to v->exact, each size once. A failure is forgotten. */
void kin_exact_sizes_find(kin_entry *v, uint32_t first);
/* "x.shape[0]": new str, or NULL with an exception. */
PyObject *kin_exact_size_source(const kin_entry *v, const kin_exact_size *exact);
/* What happened, why, and what to do: new str, or NULL with an exception. */
PyObject *kin_exact_size_text(const kin_entry *v, const kin_exact_size *exact);

#endif
