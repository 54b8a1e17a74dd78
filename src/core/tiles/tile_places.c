/* Tiles of products that sum over positions of images, for gradients of filters (tile.h): the incoming gradient is stored by columns, as in tile_columns.c, and
 * rows of b are a fixed step apart.
 */
#include "core/tiles/tile.h"

#if defined(__x86_64__)

#include "core/tiles/sums.h"

INLINE_AVX512 void
multiply(const int rows, const bool wide, unsigned columns, const kin_tile_places *p, const float *a, const float *b, float *c, int64_t ldc, bool add)
{
    __m512 sums[KIN_TILE_ROWS][2];
    int64_t next = p->b_next, k = p->k;
    sums_begin(sums, rows);
    for (int64_t n = 0; n < p->images; n++)
        for (int64_t l = 0; l < p->lines; l++) {
            const float *x = a + n * p->a_image + l * p->a_line, *y = b + n * p->b_image + l * p->b_line;
            for (int64_t i = 0; i < k; i++, x += KIN_TILE_ROWS, y += next)
                sums_add(sums, rows, wide, x, y);
        }
    sums_end(sums, rows, wide, columns, c, ldc, add);
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
