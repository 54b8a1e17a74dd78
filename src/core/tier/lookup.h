/* Are guards worth evaluating? Once recording has ended and most calls fit no entry, all guards are evaluated in vain. The time
 * that this takes is compared with what the calls that do fit have gained; if it is more, some calls run eagerly without a lookup.
 */
#ifndef KIN_CORE_LOOKUP_H
#define KIN_CORE_LOOKUP_H

#include <stdbool.h>
#include <stdint.h>

typedef struct {
    uint32_t hits, misses; /* in this window */
    uint32_t skips, pause; /* calls that will still skip the lookup; the length of the last pause */
    double lost, won;      /* nanoseconds of lookups; what hits have saved compared with eager calls */
    double eager;          /* nanoseconds of the calls that fit no entry */
} kin_lookup;

static inline bool
kin_lookup_skips(kin_lookup *s)
{
    return s->skips > 0 && s->skips-- > 0;
}

/* lost_ns: the time of the lookup. ratio: the time of the entry found, relative to eager; 0: not known. */
void kin_lookup_hit(kin_lookup *s, double lost_ns, double ratio);
void kin_lookup_miss(kin_lookup *s, double lost_ns, double eager_ns);

#endif
