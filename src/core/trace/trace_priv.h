/* The passes of kin_trace_finish, in the order in which they run. Each reads the whole trace and keeps no state. */
#ifndef KIN_TRACE_TRACE_PRIV_H
#define KIN_TRACE_TRACE_PRIV_H

#include "core/trace/trace.h"

#include <stddef.h>

/* check.c: every index is in range, every range of steps ends, alts point upwards. KIN_BUG if not. */
kin_status kin_trace_check(const kin_trace *t) KIN_MUST_CHECK;
/* sink.c: sets KIN_STEP_SUNK. */
kin_status kin_trace_sink(kin_trace *t) KIN_MUST_CHECK;
/* graphs.c: sets step.graph, ngraphs, nbreaks, neffects. */
kin_status kin_trace_number(kin_trace *t) KIN_MUST_CHECK;
/* live.c: sets step.frees. Requires: SUNK set. */
kin_status kin_trace_live(kin_trace *t) KIN_MUST_CHECK;

/* stops.c: sets t->stops. Requires: SUNK and frees set. */
kin_status kin_trace_find_stops(kin_trace *t) KIN_MUST_CHECK;
void kin_trace_free_stops(kin_trace *t);

#endif
