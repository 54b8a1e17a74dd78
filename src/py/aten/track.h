/* The process's one tracker of writes to memory (core/track). Two would be in each other's way: the kernel watches a page for one of them only. */
#ifndef KIN_PY_ATEN_TRACK_H
#define KIN_PY_ATEN_TRACK_H

#include "core/track/track.h"

/* Lives until the process ends, with whatever it watches; guarded by the GIL. NULL without memory. */
kin_track *kin_process_track(void);

#endif
