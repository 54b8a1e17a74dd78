/* Budgets for recording (budget.h). */
#include "core/pace/budget.h"

static const double FREE_NS = 3e8;                 /* recordings of long programs */
static const double PART = 0.02, GOOD_PART = 0.05;  /* of the time; where most recordings are used */

bool
kin_budget_is_free(const kin_budget *b, uint32_t most, uint32_t unused)
{
    return b->made < most && b->made < b->used + unused && b->spent < FREE_NS;
}

bool
kin_budget_has(const kin_budget *b)
{
    bool good = 4 * b->used >= 3 * b->made;
    return b->spent + b->last < (good ? GOOD_PART : PART) * b->lived;
}
