/* Products with few rows, which read b in its own layout (tile.h): reading b takes most of the time. One function for each number of rows, so that the
 * compiler keeps the sums in registers.
 */
#include "core/tiles/sums.h"

/* Rows of b lie together: each is multiplied with one number of each row of a. whole: columns fill all vectors. */
INLINE_WIDE void
add_rows(const int rows, const int vectors, const bool whole, unsigned columns, int64_t k, const float *a, int64_t lda, const float *b, int64_t ldb,
         float *c, int64_t ldc, bool add)
{
    enum { AHEAD = 64 /* floats behind: the panels that come next */ };
    sums s;
    sums_begin(s, rows, vectors);
    for (int64_t l = 0; l < k; l++, b += ldb) {
        vec row_of_b[MOST_VECTORS];
#pragma GCC unroll 4
        for (int j = 0; j < vectors; j++)
            row_of_b[j] = whole ? vec_read(b + j * LANES) : vec_read_some((int64_t)columns - j * LANES, b + j * LANES);
        _mm_prefetch((const char *)(b + AHEAD), _MM_HINT_T0);
        if (vectors * LANES > 16)
            _mm_prefetch((const char *)(b + AHEAD + 16), _MM_HINT_T0);
#pragma GCC unroll 14
        for (int i = 0; i < rows; i++) {
            vec x = vec_all(a[i * lda + l]);
#pragma GCC unroll 4
            for (int j = 0; j < vectors; j++)
                s[i][j] = vec_fma(x, row_of_b[j], s[i][j]);
        }
    }
    sums_end(s, rows, vectors, columns, c, ldc, add);
}

#define SIZE(ROWS, VECTORS) \
    WIDE static void \
    add_rows_##ROWS##_##VECTORS(unsigned columns, int64_t k, const float *a, int64_t lda, const float *b, int64_t ldb, float *c, int64_t ldc, bool add) \
    { \
        if (columns == VECTORS * LANES) \
            add_rows(ROWS, VECTORS, true, columns, k, a, lda, b, ldb, c, ldc, add); \
        else \
            add_rows(ROWS, VECTORS, false, columns, k, a, lda, b, ldb, c, ldc, add); \
    }
EACH_PART_SIZE(SIZE)
#undef SIZE

WIDE void
TILE(few_by_rows)(unsigned rows, unsigned columns, int64_t k, const float *a, int64_t lda, const float *b, int64_t ldb, float *c, int64_t ldc,
                  bool add)
{
    static void (*const sizes[][MOST_VECTORS + 1])(unsigned, int64_t, const float *, int64_t, const float *, int64_t, float *, int64_t, bool) = {
#define SIZE(ROWS, VECTORS) [ROWS][VECTORS] = add_rows_##ROWS##_##VECTORS,
        EACH_PART_SIZE(SIZE)
#undef SIZE
    };
    for (part p = {0}; next_part(&p, rows, columns);)
        sizes[p.rows][vectors_of(p.columns)](p.columns, k, a + p.row * lda, lda, b + p.column, ldb, c + p.row * ldc + p.column, ldc, add);
}

enum { MOST_DOTS = 4 /* columns at once */ };

/* `some` products of each dot product from l on. */
INLINE_WIDE void
add_products(vec s[][MOST_DOTS], const int rows, const int columns, int64_t some, const float *a, int64_t lda, const float *b, int64_t ldb)
{
    vec y[MOST_DOTS];
#pragma GCC unroll 4
    for (int j = 0; j < columns; j++) {
        y[j] = vec_read_some(some, b + j * ldb);
        _mm_prefetch((const char *)(b + (columns + j) * ldb), _MM_HINT_T0); /* the columns that come next */
    }
#pragma GCC unroll 8
    for (int i = 0; i < rows; i++) {
        vec x = vec_read_some(some, a + i * lda);
#pragma GCC unroll 4
        for (int j = 0; j < columns; j++)
            s[i][j] = vec_fma(x, y[j], s[i][j]);
    }
}

/* Columns of b lie together: `columns` of them at once, dot products. */
INLINE_WIDE void
add_dots(const int rows, const int columns, int64_t k, const float *a, int64_t lda, const float *b, int64_t ldb, float *c, int64_t ldc)
{
    vec s[KIN_TILE_FEW][MOST_DOTS];
    int64_t l = 0;
#pragma GCC unroll 8
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 4
        for (int j = 0; j < columns; j++)
            s[i][j] = vec_zero();
    for (; l + LANES <= k; l += LANES)
        add_products(s, rows, columns, LANES, a + l, lda, b + l, ldb);
    if (l < k)
        add_products(s, rows, columns, k - l, a + l, lda, b + l, ldb);
#pragma GCC unroll 8
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 4
        for (int j = 0; j < columns; j++)
            c[i * ldc + j] = vec_sum(s[i][j]);
}

#define FEW(ROWS, AT_ONCE) \
    WIDE static void \
    add_dots_##ROWS(int64_t columns, int64_t k, const float *a, int64_t lda, const float *b, int64_t ldb, float *c, int64_t ldc) \
    { \
        int64_t j = 0; \
        for (; j + AT_ONCE <= columns; j += AT_ONCE) \
            add_dots(ROWS, AT_ONCE, k, a, lda, b + j * ldb, ldb, c + j, ldc); \
        for (; j < columns; j++) \
            add_dots(ROWS, 1, k, a, lda, b + j * ldb, ldb, c + j, ldc); \
    }
#if KIN_LANES == 16
#define EACH_FEW(X) X(1, 4) X(2, 4) X(3, 4) X(4, 4) X(5, 2) X(6, 2) X(7, 2) X(8, 2)
#else
#define EACH_FEW(X) X(1, 4) X(2, 4) X(3, 3) X(4, 2) X(5, 2) X(6, 2)
#endif
EACH_FEW(FEW)
#undef FEW

WIDE void
TILE(few_by_columns)(unsigned rows, int64_t columns, int64_t k, const float *a, int64_t lda, const float *b, int64_t ldb, float *c, int64_t ldc)
{
    static void (*const of[])(int64_t, int64_t, const float *, int64_t, const float *, int64_t, float *, int64_t) = {
#define FEW(ROWS, AT_ONCE) [ROWS] = add_dots_##ROWS,
        EACH_FEW(FEW)
#undef FEW
    };
    enum { MOST = sizeof of / sizeof *of - 1 };
    for (unsigned i = 0, n; i < rows; i += n) {
        n = (unsigned)kin_tile_part_of(rows - i, MOST);
        of[n](columns, k, a + i * lda, lda, b, ldb, c + i * ldc, ldc);
    }
}
