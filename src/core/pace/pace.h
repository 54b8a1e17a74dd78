/* Is replaying an entry faster than not compiling at all? Programs that leave often, or that are many small steps with much in
 * between, may be slower than eager; nobody knows before it is tried. So once an entry has been replayed for a while, some of its
 * calls run eagerly, and both are timed. What is slower rests, and is tried again later, as the data may have changed.
 */
#ifndef KIN_CORE_PACE_H
#define KIN_CORE_PACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum { KIN_PACE_REPLAY, KIN_PACE_EAGER, KIN_PACE_TIME_REPLAY, KIN_PACE_TIME_EAGER } kin_pace_turn;

struct kin_pace_trial;

typedef struct {
    uint32_t wait;    /* calls until the next trial */
    uint32_t pause;   /* calls between the last two; 0: there was none yet */
    bool rests;       /* calls run eagerly */
    double ratio;     /* replayed to eager, in the last trial; 0: there was none yet */
    struct kin_pace_trial *trial; /* in progress; NULL: none */
} kin_pace;

/* Nothing is being tried, and calls are replayed: the usual case, quickly. */
static inline bool
kin_pace_replays(kin_pace *p)
{
    if (p->rests || p->trial != NULL || p->wait <= 1)
        return false;
    p->wait--;
    return true;
}

/* Will kin_pace_next say KIN_PACE_EAGER? */
static inline bool
kin_pace_is_resting(const kin_pace *p)
{
    return p->rests && p->trial == NULL && p->wait > 1;
}

/* A call has left for CPython: where that is usual, it is tried sooner. */
static inline void
kin_pace_hasten(kin_pace *p)
{
    enum { SOONER = 3 };
    if (p->pause == 0 && p->wait > SOONER)
        p->wait -= SOONER;
}

/* How to do this call otherwise. A timed one is followed by kin_pace_note, or not, if something else took time in it. */
kin_pace_turn kin_pace_next(kin_pace *p);

/* True: the answer has changed, to p->rests. */
bool kin_pace_note(kin_pace *p, bool eager, double ns);
void kin_pace_init(kin_pace *p);
void kin_pace_deinit(kin_pace *p);

#endif
