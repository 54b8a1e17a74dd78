/* A/B timing: is compiled code faster than the steps it replaces? Runs of the two alternate, and the shortest time of each counts, since
 * other processes can only add to it. A clear answer after few runs is accepted, and checked again later.
 */
#ifndef KIN_CORE_ABTEST_H
#define KIN_CORE_ABTEST_H

#include <stdbool.h>
#include <stdint.h>

typedef enum { KIN_ABTEST_OPEN, KIN_ABTEST_KEEP, KIN_ABTEST_DROP } kin_abtest_end;

typedef struct {
    double ours, theirs;     /* nanoseconds: the least of this time; 0: none yet */
    uint32_t nours, ntheirs; /* calls that were timed */
    uint32_t uses;           /* until it is asked again; 0: it is not */
    uint32_t asked;          /* how often it was decided */
    bool warm;               /* ours was done once: that does not count */
    bool decided;
} kin_abtest;

/* Is it the turn of the way that was there? It begins. */
bool kin_abtest_is_theirs(const kin_abtest *d);
/* `trials`: calls of each kind where nothing is clear. */
kin_abtest_end kin_abtest_note(kin_abtest *d, bool theirs, double ns, uint32_t trials);
/* One run of each. They decide where ours is far faster, even if it was not warm, unless others had the processor. */
kin_abtest_end kin_abtest_note_both(kin_abtest *d, double ours, double theirs, bool disturbed, uint32_t trials);
/* They cannot be compared. */
void kin_abtest_give_up(kin_abtest *d);

/* Ours is used, as was decided; now and then it is asked again from then on. */
static inline void
kin_abtest_use(kin_abtest *d)
{
    if (d->decided && d->uses > 0 && --d->uses == 0) {
        d->decided = false;
        d->nours = d->ntheirs = 0;
    }
}

#endif
