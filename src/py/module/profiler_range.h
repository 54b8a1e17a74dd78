/* A row for each replay in torch.profiler, named as PyTorch names its own: "Torch-Compiled Region: 0/0". */
#ifndef KIN_PY_MODULE_REGION_H
#define KIN_PY_MODULE_REGION_H

#include "py/module/compiled.h"
#include "py/cache/entry_object.h"

/* Is a profiler of PyTorch on? A compare of one word as long as nothing changes. */
bool kin_range_wanted(void);
/* What kin_range_end closes; NULL: there is no row (no exception). */
PyObject *kin_range_begin(kin_compiled *self, const kin_entry_object *entry);
/* Keeps the pending exception. Steals region, which may be NULL. */
void kin_range_end(PyObject *region);

#endif
