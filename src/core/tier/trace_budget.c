/* Budgets for recording (trace_budget.h). */
#include "core/tier/trace_budget.h"

#include "core/tier/tier.h"

/* Few enough exist: less than `most` in all, and less than `unused` that no call has used yet. */
static bool
is_free(const kin_trace_budget *b, uint32_t most, uint32_t unused)
{
    return b->made < most && b->made < b->used + unused && b->spent < KIN_TIER_FREE_RECORDING_NS;
}

/* The time that has passed allows one more. */
static bool
has_time(const kin_trace_budget *b)
{
    bool good = b->used >= KIN_TIER_BUDGET_USED * b->made;
    return b->spent + b->last < (good ? KIN_TIER_BUDGET_USED_SHARE : KIN_TIER_BUDGET_SHARE) * b->lived + KIN_TIER_BUDGET_SAVED_SHARE * b->saved;
}

bool
kin_trace_budget_affords_entry(const kin_trace_budget *b)
{
    bool first = b->made < KIN_TIER_FIRST_ENTRIES && b->used == 0;
    return first || is_free(b, KIN_TIER_FREE_ENTRIES, KIN_TIER_UNUSED_ENTRIES) || has_time(b);
}

bool
kin_trace_budget_affords_side_trace(const kin_trace_budget *b, const kin_side_trace_place *place)
{
    if (place->steps >= KIN_TIER_SIDE_TRACE_STEPS)
        return false;
    bool free = place->decision ? is_free(b, KIN_TIER_FREE_DECISIONS, KIN_TIER_UNUSED_DECISIONS)
                                : is_free(b, KIN_TIER_FREE_SIDE_TRACES, KIN_TIER_UNUSED_SIDE_TRACES);
    return free || (place->left_before && has_time(b));
}
