/* A/B timing: is compiled code faster than the steps it replaces? Runs of the two alternate, and the shortest time of each counts, since
 * other processes can only add to it. A clear answer after few runs is accepted, and checked again later.
 */
#ifndef KIN_CORE_ABTEST_H
#define KIN_CORE_ABTEST_H

#include <stdbool.h>
#include <stdint.h>

typedef enum { KIN_ABTEST_OPEN, KIN_ABTEST_KEEP, KIN_ABTEST_DROP } kin_abtest_end;

typedef struct {
    double ours, theirs;     /* nanoseconds: the shortest time in this comparison; 0: none yet */
    uint32_t nours, ntheirs; /* timed calls */
    uint32_t uses;           /* until the next check; 0: there is none */
    uint32_t asked;          /* how often a decision was made */
    bool warm;               /* ours ran once, which is not counted */
    bool decided;
} kin_abtest;

/* Is it the turn of the steps? They come first. */
bool kin_abtest_is_theirs(const kin_abtest *d);
/* `trials`: timed calls of each side if the result is not clear sooner. */
kin_abtest_end kin_abtest_note(kin_abtest *d, bool theirs, double ns, uint32_t trials);
/* One run of each, made for the comparison only. They decide if ours is much faster, even if it was cold, unless other processes had the processor; code that is
 * nearly as fast is used until the next check. */
kin_abtest_end kin_abtest_note_both(kin_abtest *d, double ours, double theirs, bool disturbed, uint32_t trials);
/* One run of each of what takes long (ours: 0: it was not run). They decide unless ours is slower. If they do not, uses by the program will. */
kin_abtest_end kin_abtest_note_once(kin_abtest *d, double ours, double theirs, bool disturbed);
/* The least time of n uses by the program, which cost nothing, against that run of theirs. */
kin_abtest_end kin_abtest_note_uses(kin_abtest *d, double ours, uint32_t n, uint32_t trials);
/* Are n runs of each enough to drop code that has turned out slower? */
bool kin_abtest_drops(double ours, double theirs, uint32_t n, uint32_t trials);
/* The two cannot be compared. */
void kin_abtest_give_up(kin_abtest *d);

/* Ours was used, as decided; from time to time this starts another check. */
static inline void
kin_abtest_use(kin_abtest *d)
{
    if (d->decided && d->uses > 0 && --d->uses == 0) {
        d->decided = false;
        d->nours = d->ntheirs = 0;
    }
}

#endif
