/* Should a recording be replaced by a new one? The first call of a program often changes what all later ones find: it fills caches, or initialises a
 * setting. Every replay then leaves its recording at one place, and the side trace from there is worse: it knows nothing of what
 * came before, and a subgraph across that place is never launched. So if every replay so far has left at the same place, and a subgraph lies
 * across it, the next call is recorded from its beginning, once for each recording.
 */
#ifndef KIN_CORE_REMAKE_H
#define KIN_CORE_REMAKE_H

#include <stdbool.h>
#include <stdint.h>

#include "core/tier/tier.h"

#define KIN_REMAKE_NOT_TOLD UINT32_MAX

typedef struct {
    uint32_t step;  /* the step at which every replay so far has left; 0: none has ended yet */
    uint32_t times; /* how many replays */
    bool settled;   /* a replay ended in another way, or the recording has been replaced: counting has ended */
    bool replaced;  /* ... or was to be: that happens once */
} kin_remake;

/* A replay ended. `step`: where it first left the recording, for a side trace or CPython; 0: it did not leave. */
static inline void
kin_remake_note(kin_remake *m, uint32_t step)
{
    if (m->settled || step == KIN_REMAKE_NOT_TOLD)
        return;
    if (step == 0 || (m->step != 0 && m->step != step)) {
        *m = (kin_remake){.settled = true, .replaced = m->replaced};
        return;
    }
    m->step = step;
    m->times++;
}

/* Something computed has another size than in the recorded call. Though earlier replays did not leave, from now on they will, so the next call is recorded anew. */
static inline bool
kin_remake_for_sizes(kin_remake *m)
{
    if (m->replaced || m->times > 0)
        return false;
    m->settled = false;
    return true;
}

/* state: the check there was about state that the program keeps between calls, or a size, not about a value that this call computed. */
static inline bool
kin_remake_is_due(const kin_remake *m, bool state)
{
    return m->times >= (state ? KIN_TIER_REMAKE_STATE : KIN_TIER_REMAKE_TESTS);
}

#endif
