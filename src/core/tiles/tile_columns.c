/* Tiles of products whose left side is stored by columns, as in the gradient of a weight (the transpose of the layer's input): tile.h.
 * The elements that are needed at once are contiguous, so one pointer serves all of them.
 */
#include "core/tiles/sums.h"

enum { AHEAD = 64 /* rows of b that are fetched before they are needed */, SOON = 8 /* the same of columns of a */ };

INLINE_WIDE void
multiply(const int rows, const int vectors, unsigned columns, int64_t k, const float *a, const float *b, float *c, int64_t ldc, bool add,
         const float *soon)
{
    sums s;
    sums_begin(s, rows, vectors);
    for (int64_t l = 0; l < k; l++, a += KIN_TILE_ROWS, b += KIN_TILE_COLUMNS) {
        _mm_prefetch((const char *)(b + AHEAD * KIN_TILE_COLUMNS), _MM_HINT_T0);
        if (vectors * LANES > 16)
            _mm_prefetch((const char *)(b + AHEAD * KIN_TILE_COLUMNS + 16), _MM_HINT_T0);
        _mm_prefetch((const char *)(soon + l * 16), _MM_HINT_T1);
        sums_add(s, rows, vectors, a, b);
    }
    sums_end(s, rows, vectors, columns, c, ldc, add);
}

#define SIZE(ROWS, VECTORS) \
    WIDE static void \
    multiply_##ROWS##_##VECTORS(unsigned columns, int64_t k, const float *a, const float *b, float *c, int64_t ldc, bool add, const float *soon) \
    { \
        multiply(ROWS, VECTORS, columns, k, a, b, c, ldc, add, soon); \
    }
EACH_PART_SIZE(SIZE)
#undef SIZE

WIDE void
TILE(multiply_columns)(unsigned rows, unsigned columns, int64_t k, const float *a, const float *b, float *c, int64_t ldc, bool add,
                       const float *soon)
{
    static void (*const sizes[][MOST_VECTORS + 1])(unsigned, int64_t, const float *, const float *, float *, int64_t, bool, const float *) = {
#define SIZE(ROWS, VECTORS) [ROWS][VECTORS] = multiply_##ROWS##_##VECTORS,
        EACH_PART_SIZE(SIZE)
#undef SIZE
    };
    for (int64_t from = 0, n; from < k; from += n, a += n * KIN_TILE_ROWS, b += n * KIN_TILE_COLUMNS, soon += n * 16, add = true) {
        const float *next = soon;
        n = k - from < KIN_PART_DEEP ? k - from : KIN_PART_DEEP;
        for (part p = {0}; next_part(&p, rows, columns); next = b)
            sizes[p.rows][vectors_of(p.columns)](p.columns, n, a + p.row, b + p.column, c + p.row * ldc + p.column, ldc, add, next);
    }
}

/* Columns without gaps: whole tiles of one column after the other, which is as they are read. */
WIDE static void
copy_columns(int64_t k, int64_t rows, const float *a, int64_t column_stride, float *to)
{
    int64_t tiles_of = kin_tile_divide_up(rows, KIN_TILE_ROWS), apart = k * KIN_TILE_ROWS;
    for (int64_t l = 0; l < k; l++, a += column_stride, to += KIN_TILE_ROWS)
        for (int64_t t = 0, i = 0, n; t < tiles_of; t++, i += n) {
            n = kin_tile_divide_up(rows - i, tiles_of - t);
            _mm_prefetch((const char *)(a + SOON * column_stride + i), _MM_HINT_T0);
            for (int64_t j = 0; j < n; j += LANES)
                vec_write_some(n - j, to + t * apart + j, vec_read_some(n - j, a + i + j));
        }
}

void
TILE(pack_columns)(int64_t k, int64_t rows, const float *a, int64_t row_stride, int64_t column_stride, float *to)
{
    if (row_stride == 1) {
        copy_columns(k, rows, a, column_stride, to);
        return;
    }
    int64_t tiles_of = kin_tile_divide_up(rows, KIN_TILE_ROWS);
    for (int64_t t = 0, i = 0, n; t < tiles_of; t++, i += n) {
        n = kin_tile_divide_up(rows - i, tiles_of - t);
        for (int64_t l = 0; l < k; l++)
            for (int64_t j = 0; j < n; j++)
                to[(t * k + l) * KIN_TILE_ROWS + j] = a[(i + j) * row_stride + l * column_stride];
    }
}
