/* The sums of a part of a tile, in registers (lanes.h). */
#ifndef KIN_TILES_SUMS_H
#define KIN_TILES_SUMS_H

#include "core/tiles/lanes.h"

typedef vec sums[KIN_PART_ROWS][MOST_VECTORS];

INLINE_WIDE void
sums_begin(sums s, const int rows, const int vectors)
{
#pragma GCC unroll 14
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 4
        for (int j = 0; j < vectors; j++)
            s[i][j] = vec_zero();
}

/* The products of a column of the left side, which lies together, and a row of the right one. */
INLINE_WIDE void
sums_add(sums s, const int rows, const int vectors, const float *column, const float *row)
{
    vec b[MOST_VECTORS];
#pragma GCC unroll 4
    for (int j = 0; j < vectors; j++)
        b[j] = vec_load(row + j * LANES);
#pragma GCC unroll 14
    for (int i = 0; i < rows; i++) {
        vec x = vec_all(column[i]);
#pragma GCC unroll 4
        for (int j = 0; j < vectors; j++)
            s[i][j] = vec_fma(x, b[j], s[i][j]);
    }
}

INLINE_WIDE void
sums_end(sums s, const int rows, const int vectors, unsigned columns, float *c, int64_t ldc, bool add)
{
#pragma GCC unroll 14
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 4
        for (int j = 0; j < vectors; j++) {
            float *at = c + i * ldc + j * LANES;
            int64_t some = (int64_t)columns - j * LANES;
            vec_write_some(some, at, add ? vec_add(vec_read_some(some, at), s[i][j]) : s[i][j]);
        }
}

#endif
