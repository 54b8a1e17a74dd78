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

/* Reads LANES rows: x[4 g + h] has, in each quarter of four lanes, column h of that quarter for rows 4 g to 4 g + 3. */
INLINE_WIDE void
turn_quarters(const float *rows, int64_t stride, vec *x)
{
    vec y[LANES];
#pragma GCC unroll 16
    for (int j = 0; j < LANES; j++) {
        x[j] = vec_read(rows + j * stride);
        _mm_prefetch((const char *)(rows + j * stride + SOON), _MM_HINT_T0);
    }
#pragma GCC unroll 8
    for (int j = 0; j < LANES; j += 2) {
        y[j] = vec_low(x[j], x[j + 1]);
        y[j + 1] = vec_high(x[j], x[j + 1]);
    }
#pragma GCC unroll 4
    for (int j = 0; j < LANES; j += 4)
#pragma GCC unroll 2
        for (int h = 0; h < 2; h++) {
            x[j + 2 * h] = vec_low_pairs(y[j + h], y[j + h + 2]);
            x[j + 2 * h + 1] = vec_high_pairs(y[j + h], y[j + h + 2]);
        }
}

/* rows[j][l] becomes to[l * KIN_TILE_COLUMNS + j], LANES x LANES. */
WIDE static void
transpose_block(const float *rows, int64_t stride, float *to)
{
    vec x[LANES];
    turn_quarters(rows, stride, x);
#pragma GCC unroll 4
    for (int h = 0; h < 4; h++) {
#if KIN_LANES == 16
        __m512 p0 = _mm512_shuffle_f32x4(x[h], x[4 + h], 0x88), p1 = _mm512_shuffle_f32x4(x[h], x[4 + h], 0xdd);
        __m512 q0 = _mm512_shuffle_f32x4(x[8 + h], x[12 + h], 0x88), q1 = _mm512_shuffle_f32x4(x[8 + h], x[12 + h], 0xdd);
        vec_store(to + h * KIN_TILE_COLUMNS, _mm512_shuffle_f32x4(p0, q0, 0x88));
        vec_store(to + (4 + h) * KIN_TILE_COLUMNS, _mm512_shuffle_f32x4(p1, q1, 0x88));
        vec_store(to + (8 + h) * KIN_TILE_COLUMNS, _mm512_shuffle_f32x4(p0, q0, 0xdd));
        vec_store(to + (12 + h) * KIN_TILE_COLUMNS, _mm512_shuffle_f32x4(p1, q1, 0xdd));
#else
        vec_store(to + h * KIN_TILE_COLUMNS, _mm256_permute2f128_ps(x[h], x[4 + h], 0x20));
        vec_store(to + (4 + h) * KIN_TILE_COLUMNS, _mm256_permute2f128_ps(x[h], x[4 + h], 0x31));
#endif
    }
}

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
