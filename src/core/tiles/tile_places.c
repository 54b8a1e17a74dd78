/* Tiles of products that add up over places of images, for gradients of filters (tile.h): what comes back lies by columns, as in tile_columns.c, and
 * rows of b are reached by steps.
 */
#include "core/tiles/tile.h"

#if defined(__x86_64__)

#include "core/tiles/lanes.h"

__attribute__((always_inline)) AVX512 static inline void
multiply(const int rows, const bool wide, unsigned columns, const kin_tile_places *p, const float *a, const float *b, float *c, int64_t ldc, bool add)
{
    __m512 sums[KIN_TILE_ROWS][2];
    __mmask16 low = lanes(columns), high = columns > 16 ? lanes(columns - 16) : 0;
    int64_t next = p->b_next, k = p->k;
#pragma GCC unroll 14
    for (int i = 0; i < rows; i++) {
        sums[i][0] = add ? _mm512_maskz_loadu_ps(low, c + i * ldc) : _mm512_setzero_ps();
        sums[i][1] = add && wide ? _mm512_maskz_loadu_ps(high, c + i * ldc + 16) : _mm512_setzero_ps();
    }
    for (int64_t n = 0; n < p->images; n++)
        for (int64_t l = 0; l < p->lines; l++) {
            const float *x = a + n * p->a_image + l * p->a_line, *y = b + n * p->b_image + l * p->b_line;
            for (int64_t i = 0; i < k; i++, x += KIN_TILE_ROWS, y += next) {
                __m512 b0 = _mm512_load_ps(y), b1 = _mm512_load_ps(y + 16);
#pragma GCC unroll 14
                for (int j = 0; j < rows; j++) {
                    __m512 one = _mm512_set1_ps(x[j]);
                    sums[j][0] = _mm512_fmadd_ps(one, b0, sums[j][0]);
                    if (wide)
                        sums[j][1] = _mm512_fmadd_ps(one, b1, sums[j][1]);
                }
            }
        }
#pragma GCC unroll 14
    for (int i = 0; i < rows; i++) {
        _mm512_mask_storeu_ps(c + i * ldc, low, sums[i][0]);
        if (wide)
            _mm512_mask_storeu_ps(c + i * ldc + 16, high, sums[i][1]);
    }
}

#define TILE(ROWS) \
    AVX512 static void \
    multiply_##ROWS(unsigned columns, const kin_tile_places *p, const float *a, const float *b, float *c, int64_t ldc, bool add) \
    { \
        if (columns > 16) \
            multiply(ROWS, true, columns, p, a, b, c, ldc, add); \
        else \
            multiply(ROWS, false, columns, p, a, b, c, ldc, add); \
    }
TILE(1) TILE(2) TILE(3) TILE(4) TILE(5) TILE(6) TILE(7) TILE(8) TILE(9) TILE(10) TILE(11) TILE(12) TILE(13) TILE(14)
#undef TILE

typedef void (*tile)(unsigned columns, const kin_tile_places *p, const float *a, const float *b, float *c, int64_t ldc, bool add);
static const tile tiles[KIN_TILE_ROWS + 1] = {NULL, multiply_1, multiply_2, multiply_3, multiply_4, multiply_5, multiply_6, multiply_7,
                                              multiply_8, multiply_9, multiply_10, multiply_11, multiply_12, multiply_13, multiply_14};

void
kin_tile_multiply_places(unsigned rows, unsigned columns, const kin_tile_places *p, const float *a, const float *b, float *c, int64_t ldc, bool add)
{
    tiles[rows](columns, p, a, b, c, ldc, add);
}

#else

void
kin_tile_multiply_places(unsigned rows, unsigned columns, const kin_tile_places *p, const float *a, const float *b, float *c, int64_t ldc, bool add)
{
}

#endif
