/* A row for each call of a compiled function in torch.profiler, named as PyTorch names its own: "Torch-Compiled Region: 0/0". */
#ifndef KIN_PY_MODULE_REGION_H
#define KIN_PY_MODULE_REGION_H

#include "py/aten/profiler.h"
#include "py/module/compiled.h"
#include "py/cache/entry_object.h"

/* What kin_profiler_end closes: of a replay of the entry, or (entry NULL) of a call that is done as `how` says. NULL: no profiler is on. */
PyObject *kin_range_begin(kin_compiled *self, const kin_entry_object *entry, const char *how);

#endif
