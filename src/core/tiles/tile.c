/* Tiles of products, and the panels that they read (tile.h). One function for each number of rows, and of vectors in a row of b, so that the compiler keeps
 * the sums in registers: with 16 lanes 28 of the 32 registers for 14 rows, two for a row of b, one for an element of a; with 8 lanes 12 of 16 for 6 rows.
 */
#include "core/tiles/sums.h"

#define TILE_TARGET WIDE
#define TILE_ADD(sum, x, b) vec_fma(x, b, sum)
#include "core/tiles/tile_loops.inc"

WIDE void
TILE(multiply)(unsigned rows, unsigned columns, int64_t k, const float *a, int64_t lda, const float *b, float *c, int64_t ldc,
               bool add, const float *soon)
{
    multiply_tile(rows, columns, 1, k, a, lda, 0, b, c, ldc, add, soon);
}

WIDE void
TILE(multiply_lines)(unsigned rows, unsigned columns, int64_t lines, int64_t k, const float *a, int64_t lda, int64_t step,
                     const float *b, float *c, int64_t ldc, bool add, const float *soon)
{
    multiply_tile(rows, columns, lines, k, a, lda, step, b, c, ldc, add, soon);
}

/* -- panels ----------------------------------------------------------------------------------------------------- */

enum { SOON = 64 /* floats that are fetched before they are needed */ };

#if KIN_LANES == 16

/* Neighbours in pairs of rows come together: four numbers of a column in each quarter of a vector. */
WIDE static inline void
turn_quarters(__m512 *x)
{
    __m512 y[16];
#pragma GCC unroll 8
    for (int j = 0; j < 16; j += 2) {
        y[j] = _mm512_unpacklo_ps(x[j], x[j + 1]);
        y[j + 1] = _mm512_unpackhi_ps(x[j], x[j + 1]);
    }
#pragma GCC unroll 4
    for (int j = 0; j < 16; j += 4)
#pragma GCC unroll 2
        for (int h = 0; h < 2; h++) {
            __m512d p = _mm512_castps_pd(y[j + h]), q = _mm512_castps_pd(y[j + h + 2]);
            x[j + 2 * h] = _mm512_castpd_ps(_mm512_unpacklo_pd(p, q));
            x[j + 2 * h + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(p, q));
        }
}

/* rows[j][l] becomes to[l * KIN_TILE_COLUMNS + j], LANES x LANES. */
WIDE static void
transpose_block(const float *rows, int64_t stride, float *to)
{
    __m512 x[16];
#pragma GCC unroll 16
    for (int j = 0; j < 16; j++) {
        x[j] = _mm512_loadu_ps(rows + j * stride);
        _mm_prefetch((const char *)(rows + j * stride + SOON), _MM_HINT_T0);
    }
    turn_quarters(x);
    /* x[4 g + h] has, in each lane of four, column h of that lane for rows 4 g to 4 g + 3. */
#pragma GCC unroll 4
    for (int h = 0; h < 4; h++) {
        __m512 p0 = _mm512_shuffle_f32x4(x[h], x[4 + h], 0x88), p1 = _mm512_shuffle_f32x4(x[h], x[4 + h], 0xdd);
        __m512 q0 = _mm512_shuffle_f32x4(x[8 + h], x[12 + h], 0x88), q1 = _mm512_shuffle_f32x4(x[8 + h], x[12 + h], 0xdd);
        _mm512_store_ps(to + h * KIN_TILE_COLUMNS, _mm512_shuffle_f32x4(p0, q0, 0x88));
        _mm512_store_ps(to + (4 + h) * KIN_TILE_COLUMNS, _mm512_shuffle_f32x4(p1, q1, 0x88));
        _mm512_store_ps(to + (8 + h) * KIN_TILE_COLUMNS, _mm512_shuffle_f32x4(p0, q0, 0xdd));
        _mm512_store_ps(to + (12 + h) * KIN_TILE_COLUMNS, _mm512_shuffle_f32x4(p1, q1, 0xdd));
    }
}

#else

/* rows[j][l] becomes to[l * KIN_TILE_COLUMNS + j], LANES x LANES. */
WIDE static void
transpose_block(const float *rows, int64_t stride, float *to)
{
    __m256 x[8], y[8];
#pragma GCC unroll 8
    for (int j = 0; j < 8; j++) {
        x[j] = _mm256_loadu_ps(rows + j * stride);
        _mm_prefetch((const char *)(rows + j * stride + SOON), _MM_HINT_T0);
    }
#pragma GCC unroll 4
    for (int j = 0; j < 8; j += 2) {
        y[j] = _mm256_unpacklo_ps(x[j], x[j + 1]);
        y[j + 1] = _mm256_unpackhi_ps(x[j], x[j + 1]);
    }
#pragma GCC unroll 2
    for (int j = 0; j < 8; j += 4)
#pragma GCC unroll 2
        for (int h = 0; h < 2; h++) {
            x[j + 2 * h] = _mm256_shuffle_ps(y[j + h], y[j + h + 2], 0x44);
            x[j + 2 * h + 1] = _mm256_shuffle_ps(y[j + h], y[j + h + 2], 0xee);
        }
    /* x[4 g + h] has, in either half, column h of that half for rows 4 g to 4 g + 3. */
#pragma GCC unroll 4
    for (int h = 0; h < 4; h++) {
        _mm256_store_ps(to + h * KIN_TILE_COLUMNS, _mm256_permute2f128_ps(x[h], x[4 + h], 0x20));
        _mm256_store_ps(to + (4 + h) * KIN_TILE_COLUMNS, _mm256_permute2f128_ps(x[h], x[4 + h], 0x31));
    }
}

#endif

WIDE static void
copy_row(unsigned columns, const float *row, float *to)
{
#pragma GCC unroll 4
    for (int j = 0; j < KIN_TILE_COLUMNS; j += LANES)
        vec_store(to + j, vec_read_some((int64_t)columns - j, row + j));
}

WIDE void
TILE(pack)(int64_t k, unsigned columns, const float *b, int64_t row_stride, int64_t column_stride, float *panel)
{
    int64_t done = 0;
    if (column_stride == 1) {
        for (; done < k; done++)
            copy_row(columns, b + done * row_stride, panel + done * KIN_TILE_COLUMNS);
        return;
    }
    for (; row_stride == 1 && columns == KIN_TILE_COLUMNS && done + LANES <= k; done += LANES)
        for (int j = 0; j < KIN_TILE_COLUMNS; j += LANES)
            transpose_block(b + done + j * column_stride, column_stride, panel + done * KIN_TILE_COLUMNS + j);
    for (; done < k; done++)
        for (unsigned j = 0; j < KIN_TILE_COLUMNS; j++)
            panel[done * KIN_TILE_COLUMNS + j] = j < columns ? b[done * row_stride + j * column_stride] : 0;
}
