/* Products with few rows, which read b in its own layout (tile.h): reading b takes most of the time. One function for each number of rows, so that the
 * compiler keeps the sums in registers.
 */
#include "core/tiles/tile.h"

#if defined(__x86_64__)

#include <immintrin.h>

#define AVX512 __attribute__((target("avx512f")))
#define INLINE __attribute__((always_inline)) AVX512 static inline

INLINE __mmask16
lanes(int64_t n)
{
    return (__mmask16)(n >= 16 ? 0xffff : n <= 0 ? 0 : (1u << n) - 1);
}

/* Rows of b lie together: each is multiplied with one number of each row of a. */
INLINE void
add_rows(const int rows, int64_t columns, int64_t k, const float *a, int64_t lda, const float *b, int64_t ldb, float *c, int64_t ldc,
         bool add)
{
    enum { AHEAD = 64 /* floats behind: the panels that come next */ };
    __m512 sums[KIN_TILE_FEW][2];
    __mmask16 low = lanes(columns), high = lanes(columns - 16);
#pragma GCC unroll 8
    for (int i = 0; i < rows; i++)
        sums[i][0] = sums[i][1] = _mm512_setzero_ps();
    for (int64_t l = 0; l < k; l++, b += ldb) {
        __m512 b0 = _mm512_maskz_loadu_ps(low, b), b1 = _mm512_maskz_loadu_ps(high, b + 16);
        _mm_prefetch((const char *)(b + AHEAD), _MM_HINT_T0);
        _mm_prefetch((const char *)(b + AHEAD + 16), _MM_HINT_T0);
#pragma GCC unroll 8
        for (int i = 0; i < rows; i++) {
            __m512 x = _mm512_set1_ps(a[i * lda + l]);
            sums[i][0] = _mm512_fmadd_ps(x, b0, sums[i][0]);
            sums[i][1] = _mm512_fmadd_ps(x, b1, sums[i][1]);
        }
    }
#pragma GCC unroll 8
    for (int i = 0; i < rows; i++) {
        float *at = c + i * ldc;
        _mm512_mask_storeu_ps(at, low, add ? _mm512_add_ps(_mm512_maskz_loadu_ps(low, at), sums[i][0]) : sums[i][0]);
        _mm512_mask_storeu_ps(at + 16, high, add ? _mm512_add_ps(_mm512_maskz_loadu_ps(high, at + 16), sums[i][1]) : sums[i][1]);
    }
}

/* Columns of b lie together: `columns` of them at once, dot products. */
INLINE void
add_dots(const int rows, const int columns, int64_t k, const float *a, int64_t lda, const float *b, int64_t ldb, float *c, int64_t ldc)
{
    __m512 sums[KIN_TILE_FEW][4];
#pragma GCC unroll 8
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 4
        for (int j = 0; j < columns; j++)
            sums[i][j] = _mm512_setzero_ps();
    for (int64_t l = 0; l < k; l += 16) {
        __mmask16 some = lanes(k - l);
        __m512 y[4];
#pragma GCC unroll 4
        for (int j = 0; j < columns; j++) {
            y[j] = _mm512_maskz_loadu_ps(some, b + j * ldb + l);
            _mm_prefetch((const char *)(b + (columns + j) * ldb + l), _MM_HINT_T0); /* the columns that come next */
        }
#pragma GCC unroll 8
        for (int i = 0; i < rows; i++) {
            __m512 x = _mm512_maskz_loadu_ps(some, a + i * lda + l);
#pragma GCC unroll 4
            for (int j = 0; j < columns; j++)
                sums[i][j] = _mm512_fmadd_ps(x, y[j], sums[i][j]);
        }
    }
#pragma GCC unroll 8
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 4
        for (int j = 0; j < columns; j++)
            c[i * ldc + j] = _mm512_reduce_add_ps(sums[i][j]);
}

#define FEW(ROWS) \
    AVX512 static void \
    add_rows_##ROWS(int64_t columns, int64_t k, const float *a, int64_t lda, const float *b, int64_t ldb, float *c, int64_t ldc, bool add) \
    { \
        add_rows(ROWS, columns, k, a, lda, b, ldb, c, ldc, add); \
    } \
    AVX512 static void \
    add_dots_##ROWS(int64_t columns, int64_t k, const float *a, int64_t lda, const float *b, int64_t ldb, float *c, int64_t ldc) \
    { \
        enum { AT_ONCE = ROWS > 4 ? 2 : 4 }; \
        int64_t j = 0; \
        for (; j + AT_ONCE <= columns; j += AT_ONCE) \
            add_dots(ROWS, AT_ONCE, k, a, lda, b + j * ldb, ldb, c + j, ldc); \
        for (; j < columns; j++) \
            add_dots(ROWS, 1, k, a, lda, b + j * ldb, ldb, c + j, ldc); \
    }
FEW(1) FEW(2) FEW(3) FEW(4) FEW(5) FEW(6) FEW(7) FEW(8)
#undef FEW

void
kin_tile_few_by_rows(unsigned rows, unsigned columns, int64_t k, const float *a, int64_t lda, const float *b, int64_t ldb, float *c, int64_t ldc,
                     bool add)
{
    static void (*const of[])(int64_t, int64_t, const float *, int64_t, const float *, int64_t, float *, int64_t, bool) = {
        add_rows_1, add_rows_2, add_rows_3, add_rows_4, add_rows_5, add_rows_6, add_rows_7, add_rows_8};
    of[rows - 1](columns, k, a, lda, b, ldb, c, ldc, add);
}

void
kin_tile_few_by_columns(unsigned rows, int64_t columns, int64_t k, const float *a, int64_t lda, const float *b, int64_t ldb, float *c, int64_t ldc)
{
    static void (*const of[])(int64_t, int64_t, const float *, int64_t, const float *, int64_t, float *, int64_t) = {
        add_dots_1, add_dots_2, add_dots_3, add_dots_4, add_dots_5, add_dots_6, add_dots_7, add_dots_8};
    of[rows - 1](columns, k, a, lda, b, ldb, c, ldc);
}

#else

void
kin_tile_few_by_rows(unsigned rows, unsigned columns, int64_t k, const float *a, int64_t lda, const float *b, int64_t ldb, float *c, int64_t ldc,
                     bool add)
{
}

void
kin_tile_few_by_columns(unsigned rows, int64_t columns, int64_t k, const float *a, int64_t lda, const float *b, int64_t ldb, float *c, int64_t ldc)
{
}

#endif
