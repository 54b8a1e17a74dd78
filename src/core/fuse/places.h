/* Arithmetic on coordinates (places.c): as index expressions, and the ranges of what stays an instruction. */
#ifndef KIN_FUSE_PLACES_H
#define KIN_FUSE_PLACES_H

#include "core/fuse/loops.h"

/* `op` of I64 instructions as an index expression. False: it is none. */
bool kin_place_fold(kin_loops *k, unsigned op, const uint32_t *args, kin_ix *out);
/* Does the instruction always lie in [*lo, *hi]? False: nothing is known of it. */
bool kin_place_range(kin_loops *k, uint32_t inst, double *lo, double *hi);

#endif
