/* Sums over places for gradients of depthwise filters (tile.h): each channel for itself, up to eight taps at a time in registers. */
#include "core/tiles/tile.h"

#if defined(__x86_64__)

#include "core/tiles/lanes.h"

enum { TAPS = 8 };

INLINE_AVX512 void
sum_taps(const unsigned taps, __mmask16 some, int64_t places, const float *back, int64_t back_next, const float *x, int64_t x_next, int64_t x_tap, float *to,
         int64_t to_tap)
{
    __m512 sums[TAPS];
#pragma GCC unroll 8
    for (unsigned t = 0; t < taps; t++)
        sums[t] = _mm512_setzero_ps();
    for (int64_t i = 0; i < places; i++, back += back_next, x += x_next) {
        __m512 b = _mm512_maskz_loadu_ps(some, back);
#pragma GCC unroll 8
        for (unsigned t = 0; t < taps; t++)
            sums[t] = _mm512_fmadd_ps(b, _mm512_maskz_loadu_ps(some, x + t * x_tap), sums[t]);
    }
#pragma GCC unroll 8
    for (unsigned t = 0; t < taps; t++, to += to_tap)
        _mm512_mask_storeu_ps(to, some, _mm512_add_ps(_mm512_maskz_loadu_ps(some, to), sums[t]));
}

AVX512 void
kin_tile_filter_back(int64_t n, unsigned taps, int64_t places, const float *back, int64_t back_next, const float *x, int64_t x_next, int64_t x_tap, float *to,
                     int64_t to_tap)
{
    for (unsigned t = 0, now; t < taps; t += now, x += now * x_tap, to += now * to_tap) {
        now = taps - t < TAPS ? taps - t : TAPS;
        for (int64_t i = 0; i < n; i += 16) {
#define CASE(TAPS) case TAPS: sum_taps(TAPS, lanes(n - i), places, back + i, back_next, x + i, x_next, x_tap, to + i, to_tap); break;
            switch (now) {
                CASE(1) CASE(2) CASE(3) CASE(4) CASE(5) CASE(6) CASE(7) CASE(8)
            }
#undef CASE
        }
    }
}

#else

void
kin_tile_filter_back(int64_t n, unsigned taps, int64_t places, const float *back, int64_t back_next, const float *x, int64_t x_next, int64_t x_tap, float *to,
                     int64_t to_tap)
{
}

#endif
