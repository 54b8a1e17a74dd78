/* A/B timing (abtest.h). The first decision is made after few runs, so that good code is used soon. Other processes may have distorted it, so
 * it is checked again after some uses, and again after many. Code is dropped only after more runs, and more still if the two are close,
 * since little is lost in the meantime.
 */
#include "core/tier/abtest.h"

#include "core/tier/tier.h"

bool
kin_abtest_is_theirs(const kin_abtest *d)
{
    return d->ntheirs == 0 || (d->warm && d->ntheirs <= d->nours);
}

static void
keep_least(double *least, uint32_t *n, double ns)
{
    *least = *n == 0 || ns < *least ? ns : *least;
    (*n)++;
}

bool
kin_abtest_drops(double ours, double theirs, uint32_t n, uint32_t trials)
{
    return n >= (ours < KIN_TIER_AB_CLOSE * theirs ? KIN_TIER_AB_LONGER : KIN_TIER_AB_LONG) * trials;
}

static kin_abtest_end
judge(const kin_abtest *d, uint32_t trials)
{
    uint32_t n = d->ntheirs < d->nours ? d->ntheirs : d->nours;
    if (n >= KIN_TIER_AB_FEW && d->ours < KIN_TIER_AB_CLEARLY * d->theirs)
        return KIN_ABTEST_KEEP;
    if (n < trials)
        return KIN_ABTEST_OPEN;
    if (d->ours <= d->theirs)
        return KIN_ABTEST_KEEP;
    return kin_abtest_drops(d->ours, d->theirs, n, trials) ? KIN_ABTEST_DROP : KIN_ABTEST_OPEN;
}

/* Schedules the next check after some uses. */
static void
settle(kin_abtest *d)
{
    d->decided = true;
    uint64_t uses = KIN_TIER_AB_FIRST_USES;
    for (uint32_t i = 0; i < d->asked && uses < KIN_TIER_AB_LAST_USES; i++)
        uses *= KIN_TIER_AB_LATER;
    d->uses = (uint32_t)uses;
    d->asked++;
}

kin_abtest_end
kin_abtest_note(kin_abtest *d, bool theirs, double ns, uint32_t trials)
{
    if (theirs)
        keep_least(&d->theirs, &d->ntheirs, ns);
    else if (d->warm)
        keep_least(&d->ours, &d->nours, ns);
    d->warm = d->warm || !theirs;
    kin_abtest_end end = judge(d, trials);
    if (end != KIN_ABTEST_OPEN)
        settle(d);
    return end;
}

/* Code that takes less than this share of the time of its steps stays until the next check. Later checks are far apart, so they are stricter. */
static double
nearly(const kin_abtest *d)
{
    return d->asked == 0 ? KIN_TIER_AB_NEARLY : KIN_TIER_SLOWER;
}

/* Code that is not faster so far, where runs of one side at least were made for the comparison only: to be in doubt for long costs more than it saves. */
static kin_abtest_end
judge_soon(const kin_abtest *d, uint32_t few, uint32_t trials)
{
    if (d->nours < few)
        return KIN_ABTEST_OPEN;
    if (d->ours < nearly(d) * d->theirs)
        return KIN_ABTEST_KEEP;
    return d->nours >= KIN_TIER_AB_LONG * trials ? KIN_ABTEST_DROP : KIN_ABTEST_OPEN;
}

kin_abtest_end
kin_abtest_note_both(kin_abtest *d, double ours, double theirs, bool disturbed, uint32_t trials)
{
    kin_abtest_end end = kin_abtest_note(d, true, theirs, trials);
    if (end == KIN_ABTEST_OPEN)
        end = kin_abtest_note(d, false, ours, trials);
    if (end == KIN_ABTEST_OPEN && (end = judge_soon(d, trials, trials)) != KIN_ABTEST_OPEN)
        settle(d);
    if (end != KIN_ABTEST_OPEN || disturbed || ours >= KIN_TIER_AB_ONCE * theirs)
        return end;
    if (d->nours == 0)
        keep_least(&d->ours, &d->nours, ours);
    settle(d);
    return KIN_ABTEST_KEEP;
}

kin_abtest_end
kin_abtest_note_once(kin_abtest *d, double ours, double theirs, bool disturbed)
{
    keep_least(&d->theirs, &d->ntheirs, theirs);
    d->warm = true;
    if (ours == 0 || disturbed || ours >= nearly(d) * theirs)
        return KIN_ABTEST_OPEN;
    keep_least(&d->ours, &d->nours, ours);
    settle(d);
    return KIN_ABTEST_KEEP;
}

kin_abtest_end
kin_abtest_note_uses(kin_abtest *d, double ours, uint32_t n, uint32_t trials)
{
    d->ours = ours;
    d->nours = n;
    kin_abtest_end end = judge_soon(d, 1, trials);
    if (end != KIN_ABTEST_OPEN)
        settle(d);
    return end;
}

void
kin_abtest_give_up(kin_abtest *d)
{
    d->decided = true;
    d->uses = 0;
}
