/* The order of values in an ATen graph (order.c). */
#ifndef KIN_ATEN_ORDER_H
#define KIN_ATEN_ORDER_H

#include "core/aten/aten.h"

/* Inputs that were added late become the first values, behind the others. now[v]: the number of what was v (values.len of them). False
 * without memory: nothing has changed. */
bool kin_aten_inputs_first(kin_aten *g, kin_aten_val *now);
/* Do its elements fill a stretch of memory, each place once? */
bool kin_aten_is_dense(const kin_aten *g, kin_aten_val v);

/* used[s]: one of the n arguments at `first`, or of those inside of them, is a value in storage s. */
void kin_aten_mark_used(const kin_aten *g, uint32_t first, uint32_t n, bool *used);
/* used[s]: a call from `first` on takes a value in storage s (nstorages + 1 of them). */
void kin_aten_used_from(const kin_aten *g, uint32_t first, bool *used);

#endif
