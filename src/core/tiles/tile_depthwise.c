/* Sums over places for gradients of depthwise filters (tile.h): each channel for itself, up to eight taps at a time in registers. */
#include "core/tiles/lanes.h"

enum { TAPS = 8 };

INLINE_WIDE void
sum_taps(const unsigned taps, int64_t some, int64_t places, const float *back, int64_t back_next, const float *x, int64_t x_next, int64_t x_tap, float *to,
         int64_t to_tap)
{
    vec sums[TAPS];
#pragma GCC unroll 8
    for (unsigned t = 0; t < taps; t++)
        sums[t] = vec_zero();
    for (int64_t i = 0; i < places; i++, back += back_next, x += x_next) {
        vec b = vec_read_some(some, back);
#pragma GCC unroll 8
        for (unsigned t = 0; t < taps; t++)
            sums[t] = vec_fma(b, vec_read_some(some, x + t * x_tap), sums[t]);
    }
#pragma GCC unroll 8
    for (unsigned t = 0; t < taps; t++, to += to_tap)
        vec_write_some(some, to, vec_add(vec_read_some(some, to), sums[t]));
}

/* Whole vectors have loops of their own. */
INLINE_WIDE void
sum_some_taps(const unsigned taps, int64_t some, int64_t places, const float *back, int64_t back_next, const float *x, int64_t x_next, int64_t x_tap, float *to,
              int64_t to_tap)
{
    if (some == LANES)
        sum_taps(taps, LANES, places, back, back_next, x, x_next, x_tap, to, to_tap);
    else
        sum_taps(taps, some, places, back, back_next, x, x_next, x_tap, to, to_tap);
}

WIDE void
TILE(filter_back)(int64_t n, unsigned taps, int64_t places, const float *back, int64_t back_next, const float *x, int64_t x_next, int64_t x_tap, float *to,
                     int64_t to_tap)
{
    for (unsigned t = 0, now; t < taps; t += now, x += now * x_tap, to += now * to_tap) {
        now = taps - t < TAPS ? taps - t : TAPS;
        for (int64_t i = 0, some; i < n; i += LANES) {
            some = n - i < LANES ? n - i : LANES;
#define CASE(TAPS) case TAPS: sum_some_taps(TAPS, some, places, back + i, back_next, x + i, x_next, x_tap, to + i, to_tap); break;
            switch (now) {
                CASE(1) CASE(2) CASE(3) CASE(4) CASE(5) CASE(6) CASE(7) CASE(8)
            }
#undef CASE
        }
    }
}
