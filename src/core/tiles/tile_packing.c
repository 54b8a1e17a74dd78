/* Tiles of products that pack the panel they read (tile.h): the first rows of a are multiplied with b in its own layout, and the loaded values are
 * stored as a panel. The arithmetic hides the cost of the stores, which a separate pass over b could not.
 */
#include "core/tiles/tile.h"

#if defined(__x86_64__)

#include "core/tiles/lanes.h"

enum { AHEAD = 12 /* rows of b that are fetched before they are needed: each lies in lines, often in a page, of its own */ };

__attribute__((always_inline)) AVX512 static inline void
multiply(const int rows, int64_t k, const float *a, int64_t lda, int64_t step, const float *b, int64_t ldb, float *panel, float *c, int64_t ldc, bool add)
{
    __m512 sums[KIN_TILE_ROWS][2];
#pragma GCC unroll 14
    for (int i = 0; i < rows; i++)
        sums[i][0] = sums[i][1] = _mm512_setzero_ps();
    const float *a5 = rows > 5 ? a + 5 * lda : a, *a10 = rows > 10 ? a + 10 * lda : a;
    for (int64_t l = 0; l < k; l++, a += step, a5 += step, a10 += step, b += ldb, panel += KIN_TILE_COLUMNS) {
        __m512 b0 = _mm512_loadu_ps(b), b1 = _mm512_loadu_ps(b + 16);
        _mm_prefetch((const char *)(b + AHEAD * ldb), _MM_HINT_T0);
        _mm_prefetch((const char *)(b + AHEAD * ldb + 16), _MM_HINT_T0);
        _mm512_store_ps(panel, b0);
        _mm512_store_ps(panel + 16, b1);
#pragma GCC unroll 14
        for (int i = 0; i < rows; i++) {
            const float *row = i < 5 ? a : i < 10 ? a5 : a10;
            __m512 x = _mm512_set1_ps(row[i % 5 * lda]);
            sums[i][0] = _mm512_fmadd_ps(x, b0, sums[i][0]);
            sums[i][1] = _mm512_fmadd_ps(x, b1, sums[i][1]);
        }
    }
#pragma GCC unroll 14
    for (int i = 0; i < rows; i++) {
        float *at = c + i * ldc;
        _mm512_storeu_ps(at, add ? _mm512_add_ps(_mm512_loadu_ps(at), sums[i][0]) : sums[i][0]);
        _mm512_storeu_ps(at + 16, add ? _mm512_add_ps(_mm512_loadu_ps(at + 16), sums[i][1]) : sums[i][1]);
    }
}

#define TILE(ROWS) \
    AVX512 static void \
    multiply_##ROWS(int64_t k, const float *a, int64_t lda, int64_t step, const float *b, int64_t ldb, float *panel, float *c, int64_t ldc, bool add) \
    { \
        multiply(ROWS, k, a, lda, step, b, ldb, panel, c, ldc, add); \
    }
TILE(1) TILE(2) TILE(3) TILE(4) TILE(5) TILE(6) TILE(7) TILE(8) TILE(9) TILE(10) TILE(11) TILE(12) TILE(13) TILE(14)
#undef TILE

typedef void (*tile)(int64_t k, const float *a, int64_t lda, int64_t step, const float *b, int64_t ldb, float *panel, float *c, int64_t ldc, bool add);
static const tile tiles[KIN_TILE_ROWS + 1] = {NULL, multiply_1, multiply_2, multiply_3, multiply_4, multiply_5, multiply_6, multiply_7,
                                              multiply_8, multiply_9, multiply_10, multiply_11, multiply_12, multiply_13, multiply_14};

void
kin_tile_multiply_packing(unsigned rows, int64_t k, const float *a, int64_t lda, int64_t step, const float *b, int64_t ldb, float *panel, float *c,
                          int64_t ldc, bool add)
{
    tiles[rows](k, a, lda, step, b, ldb, panel, c, ldc, add);
}

#else

void
kin_tile_multiply_packing(unsigned rows, int64_t k, const float *a, int64_t lda, int64_t step, const float *b, int64_t ldb, float *panel, float *c,
                          int64_t ldc, bool add)
{
}

#endif
