/* The effects of each kind of step (steps.def). */
#include "core/trace/effects.h"

#define KIN_LATE(first, second, rest) (first | second << 1 | rest << 2)

static const uint32_t kind_effects[] = {
#define STEP(NAME, text, looks, late, changes, does, doc) [KIN_STEP_##NAME] = (looks) | (does),
#include "core/trace/steps.def"
#undef STEP
};

static const uint8_t kind_late[] = {
#define STEP(NAME, text, looks, late, changes, does, doc) [KIN_STEP_##NAME] = late,
#include "core/trace/steps.def"
#undef STEP
};

static const uint8_t kind_changes[] = {
#define STEP(NAME, text, looks, late, changes, does, doc) [KIN_STEP_##NAME] = KIN_CHANGES_##changes,
#include "core/trace/steps.def"
#undef STEP
};

uint32_t
kin_kind_effects(kin_step_kind kind)
{
    return kind_effects[kind];
}

bool
kin_kind_reads_late(kin_step_kind kind, uint32_t operand)
{
    return kind_late[kind] >> (operand < 2 ? operand : 2) & 1;
}

kin_changes
kin_kind_changes(kin_step_kind kind)
{
    return (kin_changes)kind_changes[kind];
}
