/* Tier-down: is replaying a cache entry faster than running the function eagerly? Programs that often leave the trace, or that consist
 * of many small steps, may be slower than in eager mode, which only a measurement can tell. So after a while some calls run eagerly, and
 * both are timed. A slower entry is backed off: its calls run eagerly, and it is compared again later, since inputs may have changed.
 */
#ifndef KIN_CORE_TIERDOWN_H
#define KIN_CORE_TIERDOWN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/tier/tier.h"

typedef enum { KIN_TIERDOWN_REPLAY, KIN_TIERDOWN_EAGER, KIN_TIERDOWN_TIME_REPLAY, KIN_TIERDOWN_TIME_EAGER } kin_tierdown_turn;

struct kin_tierdown_trial;

typedef struct {
    uint32_t wait;    /* calls until the next comparison */
    uint32_t pause;   /* calls between the last two comparisons; 0: there was none yet */
    bool backed_off;  /* calls run eagerly */
    double ratio;     /* replay time to eager time in the last comparison; 0: there was none yet */
    double gain;      /* nanoseconds that a replay saved in that comparison */
    struct kin_tierdown_trial *trial; /* in progress; NULL: none */
} kin_tierdown;

/* A quick test for the usual case: no comparison is in progress, and calls are replayed. */
static inline bool
kin_tierdown_replays(kin_tierdown *p)
{
    if (p->backed_off || p->trial != NULL || p->wait <= 1)
        return false;
    p->wait--;
    return true;
}

/* Will kin_tierdown_next return KIN_TIERDOWN_EAGER? */
static inline bool
kin_tierdown_is_backed_off(const kin_tierdown *p)
{
    return p->backed_off && p->trial == NULL && p->wait > 1;
}

/* A call has left for CPython, or has run many steps one by one: where that is usual, it is tried sooner. */
static inline void
kin_tierdown_hasten(kin_tierdown *p)
{
    if (p->pause == 0 && p->wait > KIN_TIER_EXIT_HASTENS)
        p->wait -= KIN_TIER_EXIT_HASTENS;
}

/* A call ran without code that is being compiled: it says nothing. */
static inline void
kin_tierdown_postpone(kin_tierdown *p)
{
    if (p->pause == 0 && p->trial == NULL)
        p->wait++;
}

/* How to run this call in all other cases. A timed call is followed by kin_tierdown_note, unless something else took time in it. */
kin_tierdown_turn kin_tierdown_next(kin_tierdown *p);

/* What this many replays have saved, as far as is known. */
static inline double
kin_tierdown_saved(const kin_tierdown *p, uint64_t replays)
{
    return p->gain > 0 ? p->gain * (double)replays : 0;
}

/* work: what times mostly rise with, in any unit, such as the elements of the call's tensors; 0 for all: not known. True: p->backed_off has changed. */
bool kin_tierdown_note(kin_tierdown *p, bool eager, double ns, double work);
void kin_tierdown_init(kin_tierdown *p);
void kin_tierdown_deinit(kin_tierdown *p);

#endif
