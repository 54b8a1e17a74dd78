/* Tiles of products that sum over positions of images, for gradients of filters (tile.h): the incoming gradient is stored by columns, as in tile_columns.c, and
 * rows of b are a fixed step apart.
 */
#include "core/tiles/sums.h"

INLINE_WIDE void
multiply(const int rows, const int vectors, unsigned columns, const kin_tile_places *p, const float *a, const float *b, float *c, int64_t ldc, bool add)
{
    sums s;
    int64_t next = p->b_next, k = p->k;
    sums_begin(s, rows, vectors);
    for (int64_t n = 0; n < p->images; n++)
        for (int64_t l = 0; l < p->lines; l++) {
            const float *x = a + n * p->a_image + l * p->a_line, *y = b + n * p->b_image + l * p->b_line;
            for (int64_t i = 0; i < k; i++, x += KIN_TILE_ROWS, y += next)
                sums_add(s, rows, vectors, x, y);
        }
    sums_end(s, rows, vectors, columns, c, ldc, add);
}

#define SIZE(ROWS, VECTORS) \
    WIDE static void \
    multiply_##ROWS##_##VECTORS(unsigned columns, const kin_tile_places *p, const float *a, const float *b, float *c, int64_t ldc, bool add) \
    { \
        multiply(ROWS, VECTORS, columns, p, a, b, c, ldc, add); \
    }
EACH_PART_SIZE(SIZE)
#undef SIZE

WIDE void
TILE(multiply_places)(unsigned rows, unsigned columns, const kin_tile_places *places, const float *a, const float *b, float *c, int64_t ldc, bool add)
{
    static void (*const sizes[][MOST_VECTORS + 1])(unsigned, const kin_tile_places *, const float *, const float *, float *, int64_t, bool) = {
#define SIZE(ROWS, VECTORS) [ROWS][VECTORS] = multiply_##ROWS##_##VECTORS,
        EACH_PART_SIZE(SIZE)
#undef SIZE
    };
    for (part p = {0}; next_part(&p, rows, columns);)
        sizes[p.rows][vectors_of(p.columns)](p.columns, places, a + p.row, b + p.column, c + p.row * ldc + p.column, ldc, add);
}
