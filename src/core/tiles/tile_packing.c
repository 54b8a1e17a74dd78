/* Tiles of products that pack the panel they read (tile.h): the first rows of a are multiplied with b in its own layout, and the loaded values are
 * stored as a panel. The arithmetic hides the cost of the stores, which a separate pass over b could not.
 */
#include "core/tiles/sums.h"

enum { AHEAD = 12 /* rows of b that are fetched before they are needed: each lies in lines, often in a page, of its own */ };

/* made: where the panel is written; NULL: it is there, and b is that panel. */
INLINE_WIDE void
multiply(const int rows, const int vectors, int64_t k, const float *a, int64_t lda, int64_t step, const float *b, int64_t ldb, float *made, float *c,
         int64_t ldc, bool add)
{
    sums s;
    sums_begin(s, rows, vectors);
    const float *a5 = rows > 5 ? a + 5 * lda : a, *a10 = rows > 10 ? a + 10 * lda : a;
    for (int64_t l = 0; l < k; l++, a += step, a5 += step, a10 += step, b += ldb) {
        vec row_of_b[MOST_VECTORS];
#pragma GCC unroll 4
        for (int j = 0; j < vectors; j++)
            row_of_b[j] = vec_read(b + j * LANES);
        _mm_prefetch((const char *)(b + AHEAD * ldb), _MM_HINT_T0);
        if (vectors * LANES > 16)
            _mm_prefetch((const char *)(b + AHEAD * ldb + 16), _MM_HINT_T0);
        if (LANES == 16 || made != NULL) {
#pragma GCC unroll 4
            for (int j = 0; j < vectors; j++)
                vec_store(made + j * LANES, row_of_b[j]);
            made += KIN_TILE_COLUMNS;
        }
#pragma GCC unroll 14
        for (int i = 0; i < rows; i++) {
            const float *row = i < 5 ? a : i < 10 ? a5 : a10;
            vec x = vec_all(row[i % 5 * lda]);
#pragma GCC unroll 4
            for (int j = 0; j < vectors; j++)
                s[i][j] = vec_fma(x, row_of_b[j], s[i][j]);
        }
    }
    sums_end(s, rows, vectors, (unsigned)(vectors * LANES), c, ldc, add);
}

#define SIZE(ROWS, VECTORS) \
    WIDE static void \
    multiply_##ROWS##_##VECTORS(int64_t k, const float *a, int64_t lda, int64_t step, const float *b, int64_t ldb, float *panel, float *c, int64_t ldc, bool add) \
    { \
        multiply(ROWS, VECTORS, k, a, lda, step, b, ldb, panel, c, ldc, add); \
    }
EACH_PART_SIZE(SIZE)
#undef SIZE

WIDE void
TILE(multiply_packing)(unsigned rows, int64_t k, const float *a, int64_t lda, int64_t step, const float *b, int64_t ldb, float *panel, float *c,
                       int64_t ldc, bool add)
{
    static void (*const sizes[][MOST_VECTORS + 1])(int64_t, const float *, int64_t, int64_t, const float *, int64_t, float *, float *, int64_t, bool) = {
#define SIZE(ROWS, VECTORS) [ROWS][VECTORS] = multiply_##ROWS##_##VECTORS,
        EACH_PART_SIZE(SIZE)
#undef SIZE
    };
    for (part p = {0}; next_part(&p, rows, KIN_TILE_COLUMNS);) {
        bool first = p.row == 0; /* of the columns: other rows read what this has made */
        sizes[p.rows][vectors_of(p.columns)](k, a + p.row * lda, lda, step, first ? b + p.column : panel + p.column, first ? ldb : KIN_TILE_COLUMNS,
                                             first ? panel + p.column : NULL, c + p.row * ldc + p.column, ldc, add);
    }
}
