/* Judges calls in windows (lookup.h). */
#include "core/tier/lookup.h"

#include "core/tier/tier.h"

static void
end_window(kin_lookup *s)
{
    if (s->hits + s->misses < KIN_TIER_LOOKUP_WINDOW)
        return;
    double eager = s->misses > 0 ? s->eager / s->misses : 0;
    bool in_vain = s->misses > 0 && s->lost > s->won * eager;
    uint32_t pause = s->pause == 0                             ? KIN_TIER_LOOKUP_SKIPS
                     : s->pause < KIN_TIER_LOOKUP_MOST_SKIPS / 2 ? 2 * s->pause
                                                                 : KIN_TIER_LOOKUP_MOST_SKIPS;
    *s = (kin_lookup){.pause = in_vain ? pause : 0, .skips = in_vain ? pause : 0};
}

void
kin_lookup_hit(kin_lookup *s, double lost_ns, double ratio)
{
    s->lost += lost_ns;
    ratio = ratio > 0 ? ratio : KIN_TIER_LOOKUP_USUAL;
    s->hits++;
    s->won += ratio < 1 ? 1 - ratio : 0;
    end_window(s);
}

void
kin_lookup_miss(kin_lookup *s, double lost_ns, double eager_ns)
{
    s->misses++;
    s->lost += lost_ns;
    s->eager += eager_ns;
    end_window(s);
}
