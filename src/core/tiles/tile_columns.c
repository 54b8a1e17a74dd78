/* Tiles of products whose left side is stored by columns, as in the gradient of a weight (the transpose of the layer's input): tile.h.
 * The 14 elements that are needed at once are contiguous, so one pointer serves all of them.
 */
#include "core/tiles/tile.h"

#if defined(__x86_64__)

#include "core/tiles/sums.h"

enum { AHEAD = 64 /* rows of b that are fetched before they are needed */, SOON = 8 /* the same of columns of a */ };

INLINE_AVX512 void
multiply(const int rows, const bool wide, unsigned columns, int64_t k, const float *a, const float *b, float *c, int64_t ldc, bool add,
         const float *soon)
{
    __m512 sums[KIN_TILE_ROWS][2];
    sums_begin(sums, rows);
    for (int64_t l = 0; l < k; l++, a += KIN_TILE_ROWS, b += KIN_TILE_COLUMNS) {
        _mm_prefetch((const char *)(b + AHEAD * KIN_TILE_COLUMNS), _MM_HINT_T0);
        _mm_prefetch((const char *)(b + AHEAD * KIN_TILE_COLUMNS + 16), _MM_HINT_T0);
        _mm_prefetch((const char *)(soon + l * 16), _MM_HINT_T1);
        sums_add(sums, rows, wide, a, b);
    }
    sums_end(sums, rows, wide, columns, c, ldc, add);
}

#define TILE(ROWS) \
    AVX512 static void \
    multiply_##ROWS(unsigned columns, int64_t k, const float *a, const float *b, float *c, int64_t ldc, bool add, const float *soon) \
    { \
        if (columns > 16) \
            multiply(ROWS, true, columns, k, a, b, c, ldc, add, soon); \
        else \
            multiply(ROWS, false, columns, k, a, b, c, ldc, add, soon); \
    }
TILE(1) TILE(2) TILE(3) TILE(4) TILE(5) TILE(6) TILE(7) TILE(8) TILE(9) TILE(10) TILE(11) TILE(12) TILE(13) TILE(14)
#undef TILE

typedef void (*tile)(unsigned columns, int64_t k, const float *a, const float *b, float *c, int64_t ldc, bool add, const float *soon);
static const tile tiles[KIN_TILE_ROWS + 1] = {NULL, multiply_1, multiply_2, multiply_3, multiply_4, multiply_5, multiply_6, multiply_7,
                                              multiply_8, multiply_9, multiply_10, multiply_11, multiply_12, multiply_13, multiply_14};

void
kin_tile_multiply_columns(unsigned rows, unsigned columns, int64_t k, const float *a, const float *b, float *c, int64_t ldc, bool add,
                          const float *soon)
{
    tiles[rows](columns, k, a, b, c, ldc, add, soon);
}

/* Columns without gaps: whole tiles of one column after the other, which is as they are read. */
AVX512 static void
copy_columns(int64_t k, int64_t rows, const float *a, int64_t column_stride, float *to)
{
    int64_t tiles_of = kin_tile_divide_up(rows, KIN_TILE_ROWS), apart = k * KIN_TILE_ROWS;
    for (int64_t l = 0; l < k; l++, a += column_stride, to += KIN_TILE_ROWS)
        for (int64_t t = 0, i = 0, n; t < tiles_of; t++, i += n) {
            n = kin_tile_divide_up(rows - i, tiles_of - t);
            _mm_prefetch((const char *)(a + SOON * column_stride + i), _MM_HINT_T0);
            _mm512_mask_storeu_ps(to + t * apart, lanes(n), _mm512_maskz_loadu_ps(lanes(n), a + i));
        }
}

#else

void
kin_tile_multiply_columns(unsigned rows, unsigned columns, int64_t k, const float *a, const float *b, float *c, int64_t ldc, bool add,
                          const float *soon)
{
}

static void
copy_columns(int64_t k, int64_t rows, const float *a, int64_t column_stride, float *to)
{
}

#endif

void
kin_tile_pack_columns(int64_t k, int64_t rows, const float *a, int64_t row_stride, int64_t column_stride, float *to)
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
