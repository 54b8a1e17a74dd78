/* How work is shared among threads: the THREADS rows of tier.def say how much of it is worth a thread. */
#ifndef KIN_CORE_TIER_THREADS_H
#define KIN_CORE_TIER_THREADS_H

#include <stdint.h>

#include "core/tier/tier.h"

/* Parts for each thread at least, where a part is `each` and `enough` is worth a thread. */
static inline int64_t
kin_tier_grain(double each, double enough)
{
    return each <= 0 ? INT64_MAX : each >= enough ? 1 : (int64_t)(enough / each) + 1;
}

#endif
