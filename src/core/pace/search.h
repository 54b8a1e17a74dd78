/* Is it worth looking for an entry that fits? Where no more are recorded and most calls fit none, all guards are asked in vain. What
 * that takes is compared with what the calls that do fit have won; where it is more, calls go on without looking for a while.
 */
#ifndef KIN_CORE_SEARCH_H
#define KIN_CORE_SEARCH_H

#include <stdbool.h>
#include <stdint.h>

typedef struct {
    uint32_t hits, misses; /* of this window */
    uint32_t skips, pause; /* calls that still do not look; the number the last time */
    double lost, won;      /* nanoseconds of asking; hits times what they save of an eager call */
    double eager;          /* nanoseconds of the calls that fitted none */
} kin_search;

static inline bool
kin_search_skips(kin_search *s)
{
    return s->skips > 0 && s->skips-- > 0;
}

/* lost_ns: what asking took. ratio: time of the entry that was found to eager time; 0: not known. */
void kin_search_hit(kin_search *s, double lost_ns, double ratio);
void kin_search_miss(kin_search *s, double lost_ns, double eager_ns);

#endif
