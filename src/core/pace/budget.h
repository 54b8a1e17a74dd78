/* How much may recording cost? One recording takes as long as several eager calls, and of a program that takes another way in each
 * call none is ever used again. So a few may be tried; where later calls do not come through them, all that is recorded stays a
 * small part of the time that calls have taken for which nothing was recorded: no more than that can be won.
 */
#ifndef KIN_CORE_BUDGET_H
#define KIN_CORE_BUDGET_H

#include <stdbool.h>
#include <stdint.h>

typedef struct {
    double spent, last; /* nanoseconds that recording has taken, and the latest one alone */
    double lived;       /* nanoseconds that CPython took for what was not recorded */
    uint32_t made, used; /* recordings; those that a later call has gone to its end with */
} kin_budget;

/* Few enough are there: less than `most` in all, and less than `unused` that nobody has used yet. */
bool kin_budget_is_free(const kin_budget *b, uint32_t most, uint32_t unused);
/* The time that went by allows for one more. */
bool kin_budget_has(const kin_budget *b);

static inline void
kin_budget_spend(kin_budget *b, double ns)
{
    b->spent += ns;
    b->last = ns;
}

#endif
