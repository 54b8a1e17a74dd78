/* The accumulators of a tile whose left side is stored by columns, in registers: shared by tile_columns.c and tile_places.c. */
#ifndef KIN_TILES_SUMS_H
#define KIN_TILES_SUMS_H

#if defined(__x86_64__)

#include "core/tiles/lanes.h"
#include "core/tiles/tile.h"

INLINE_AVX512 void
sums_begin(__m512 sums[][2], const int rows)
{
#pragma GCC unroll 14
    for (int i = 0; i < rows; i++)
        sums[i][0] = sums[i][1] = _mm512_setzero_ps();
}

/* The products of a column of the left side and a row of the right one. wide: there are more than 16 columns. */
INLINE_AVX512 void
sums_add(__m512 sums[][2], const int rows, const bool wide, const float *column, const float *row)
{
    __m512 low = _mm512_load_ps(row), high = _mm512_load_ps(row + 16);
#pragma GCC unroll 14
    for (int i = 0; i < rows; i++) {
        __m512 x = _mm512_set1_ps(column[i]);
        sums[i][0] = _mm512_fmadd_ps(x, low, sums[i][0]);
        if (wide)
            sums[i][1] = _mm512_fmadd_ps(x, high, sums[i][1]);
    }
}

INLINE_AVX512 void
sums_end(__m512 sums[][2], const int rows, const bool wide, unsigned columns, float *c, int64_t ldc, bool add)
{
    __mmask16 low = lanes(columns), high = columns > 16 ? lanes(columns - 16) : 0;
#pragma GCC unroll 14
    for (int i = 0; i < rows; i++) {
        float *at = c + i * ldc;
        _mm512_mask_storeu_ps(at, low, add ? _mm512_add_ps(_mm512_maskz_loadu_ps(low, at), sums[i][0]) : sums[i][0]);
        if (wide)
            _mm512_mask_storeu_ps(at + 16, high, add ? _mm512_add_ps(_mm512_maskz_loadu_ps(high, at + 16), sums[i][1]) : sums[i][1]);
    }
}

#endif

#endif
