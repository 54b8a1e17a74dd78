/* The rows of tier.def as constants: KIN_TIER_RECOMPILE_LIMIT and so on. They are used in tierdown.h, abtest.h, trace_budget.h, lookup.h
 * and compile_heuristic.h.
 */
#ifndef KIN_CORE_TIER_H
#define KIN_CORE_TIER_H

#define REAL(GROUP, NAME, value, unit, setting, why)
enum {
#define COUNT(GROUP, NAME, value, unit, setting, why) KIN_TIER_##NAME = value,
#include "core/tier/tier.def"
#undef COUNT
};
#undef REAL

#define COUNT(GROUP, NAME, value, unit, setting, why)
#define REAL(GROUP, NAME, value, unit, setting, why) static const double KIN_TIER_##NAME = value;
#include "core/tier/tier.def"
#undef REAL
#undef COUNT

#endif
