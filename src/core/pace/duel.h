/* Two ways to do the same work, a new one and the one that was there: which is faster? Their calls take turns, and the least time of
 * either counts, as a busy machine only adds. What looks clear after few calls is believed, and asked again later.
 */
#ifndef KIN_CORE_DUEL_H
#define KIN_CORE_DUEL_H

#include <stdbool.h>
#include <stdint.h>

typedef enum { KIN_DUEL_OPEN, KIN_DUEL_KEEP, KIN_DUEL_DROP } kin_duel_end;

typedef struct {
    double ours, theirs;     /* nanoseconds: the least of this time; 0: none yet */
    uint32_t nours, ntheirs; /* calls that were timed */
    uint32_t uses;           /* until it is asked again; 0: it is not */
    uint32_t asked;          /* how often it was decided */
    bool warm;               /* ours was done once: that does not count */
    bool decided;
} kin_duel;

/* Is it the turn of the way that was there? It begins. */
bool kin_duel_is_theirs(const kin_duel *d);
/* `trials`: calls of each kind where nothing is clear. */
kin_duel_end kin_duel_note(kin_duel *d, bool theirs, double ns, uint32_t trials);
/* They cannot be compared. */
void kin_duel_give_up(kin_duel *d);

/* Ours is used, as was decided; now and then it is asked again from then on. */
static inline void
kin_duel_use(kin_duel *d)
{
    if (d->decided && d->uses > 0 && --d->uses == 0) {
        d->decided = false;
        d->nours = d->ntheirs = 0;
    }
}

#endif
