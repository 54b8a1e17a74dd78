/* Windows of calls (search.h). */
#include "core/pace/search.h"

enum { WINDOW = 48, SHORTEST = 128, LONGEST = 4096 };
static const double USUAL = 0.8; /* an entry that nobody has timed */

static void
end_window(kin_search *s)
{
    if (s->hits + s->misses < WINDOW)
        return;
    double eager = s->misses > 0 ? s->eager / s->misses : 0;
    bool in_vain = s->misses > 0 && s->lost > s->won * eager;
    uint32_t pause = s->pause == 0 ? SHORTEST : s->pause < LONGEST / 2 ? 2 * s->pause : LONGEST;
    *s = (kin_search){.pause = in_vain ? pause : 0, .skips = in_vain ? pause : 0};
}

void
kin_search_hit(kin_search *s, double lost_ns, double ratio)
{
    s->lost += lost_ns;
    ratio = ratio > 0 ? ratio : USUAL;
    s->hits++;
    s->won += ratio < 1 ? 1 - ratio : 0;
    end_window(s);
}

void
kin_search_miss(kin_search *s, double lost_ns, double eager_ns)
{
    s->misses++;
    s->lost += lost_ns;
    s->eager += eager_ns;
    end_window(s);
}
