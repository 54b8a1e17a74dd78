/* Duels (duel.h). The first answer is one of few calls, so that a good way is used soon; moments in which others had the processor
 * may have made it. So it is asked again after some uses, then after many. A way is dropped only after more calls, and more still
 * where the two are close: then nothing much is lost meanwhile.
 */
#include "core/pace/duel.h"

enum {
    FEW = 2,
    FIRST_USES = 64, LATER = 16, /* times as many each time */
    LAST_USES = 1 << 20,
    LONG = 2, LONGER = 5 /* times the trials: before anything is dropped, and in doubt */
};
static const double CLEARLY = 0.9, DOUBTFUL = 1.5;

bool
kin_duel_is_theirs(const kin_duel *d)
{
    return d->ntheirs == 0 || (d->warm && d->ntheirs <= d->nours);
}

static void
keep_least(double *least, uint32_t *n, double ns)
{
    *least = *n == 0 || ns < *least ? ns : *least;
    (*n)++;
}

static kin_duel_end
judge(const kin_duel *d, uint32_t trials)
{
    uint32_t n = d->ntheirs < d->nours ? d->ntheirs : d->nours;
    if (n >= FEW && d->ours < CLEARLY * d->theirs)
        return KIN_DUEL_KEEP;
    if (n < trials)
        return KIN_DUEL_OPEN;
    if (d->ours <= d->theirs)
        return KIN_DUEL_KEEP;
    return n < (d->ours < DOUBTFUL * d->theirs ? LONGER : LONG) * trials ? KIN_DUEL_OPEN : KIN_DUEL_DROP;
}

kin_duel_end
kin_duel_note(kin_duel *d, bool theirs, double ns, uint32_t trials)
{
    if (theirs)
        keep_least(&d->theirs, &d->ntheirs, ns);
    else if (d->warm)
        keep_least(&d->ours, &d->nours, ns);
    d->warm = d->warm || !theirs;
    kin_duel_end end = judge(d, trials);
    if (end == KIN_DUEL_OPEN)
        return end;
    d->decided = true;
    uint64_t uses = FIRST_USES;
    for (uint32_t i = 0; i < d->asked && uses < LAST_USES; i++)
        uses *= LATER;
    d->uses = (uint32_t)uses;
    d->asked++;
    return end;
}

void
kin_duel_give_up(kin_duel *d)
{
    d->decided = true;
    d->uses = 0;
}
