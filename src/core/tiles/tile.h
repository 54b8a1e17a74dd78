/* The inner loops of our matrix products: AVX-512, a tile of up to 14 x 32 results in registers. */
#ifndef KIN_TILES_TILE_H
#define KIN_TILES_TILE_H

#include <stdbool.h>
#include <stdint.h>

enum {
    KIN_TILE_ROWS = 14,
    KIN_TILE_COLUMNS = 32,
    KIN_TILE_FEW = 8,
    KIN_TILE_LONG = 768 /* products that a tile sums up one after the other, at most: longer sums are made of sums of such parts (with `add`), since
                           the error of a sum grows with how often something is added to it */
};

/* Does this processor have what they need? */
bool kin_tile_here(void);

/* c [rows, columns] = a [rows, k] b; if `add`, that is added to what is there once it is whole. rows: 1 to KIN_TILE_ROWS, columns: 1 to
 * KIN_TILE_COLUMNS. Rows of a and c lie `lda` and `ldc` apart; b is a panel: k rows of KIN_TILE_COLUMNS, 64-byte aligned, zeros behind `columns`. soon: 16 k floats
 * that are brought near meanwhile, as they will be needed; anywhere, nothing is read. */
void kin_tile_multiply(unsigned rows, unsigned columns, int64_t k, const float *a, int64_t lda, const float *b, float *c,
                       int64_t ldc, bool add, const float *soon);

/* The same, where a lies by columns: KIN_TILE_ROWS elements of each of them, of which `rows` count (tile_columns.c). */
void kin_tile_multiply_columns(unsigned rows, unsigned columns, int64_t k, const float *a, const float *b, float *c, int64_t ldc, bool add,
                               const float *soon);
/* Some rows of a matrix in that form, one tile of k columns after the other; tiles as even as divide_up makes them. */
void kin_tile_pack_columns(int64_t k, int64_t rows, const float *a, int64_t row_stride, int64_t column_stride, float *to);

/* Either of the two for whole panels, of which this makes the one at `panel`, from k rows of b, ldb apart, as they lie (tile_packing.c). Element l of row i of a
 * is a[i * lda + l * step]. */
void kin_tile_multiply_packing(unsigned rows, int64_t k, const float *a, int64_t lda, int64_t step, const float *b, int64_t ldb, float *panel, float *c,
                               int64_t ldc, bool add);

/* Sums over `lines` lines of k places of each of some images: steps between lines and images of both sides, and between rows of b. */
typedef struct {
    int64_t images, lines, k;
    int64_t a_image, a_line, b_image, b_line, b_next;
} kin_tile_places;
/* c = the sum over them of the places' `rows` elements of a, KIN_TILE_ROWS of which lie next to each other, times their rows of b
 * (tile_places.c). */
void kin_tile_multiply_places(unsigned rows, unsigned columns, const kin_tile_places *p, const float *a, const float *b, float *c, int64_t ldc, bool add);

/* The same, where a row of a is in `lines` pieces of k elements, `step` apart; b goes on. */
void kin_tile_multiply_lines(unsigned rows, unsigned columns, int64_t lines, int64_t k, const float *a, int64_t lda, int64_t step,
                             const float *b, float *c, int64_t ldc, bool add, const float *soon);

/* The same for up to KIN_TILE_FEW rows, where b is read as it lies, ldb apart: its rows without gaps, ... */
void kin_tile_few_by_rows(unsigned rows, unsigned columns, int64_t k, const float *a, int64_t lda, const float *b, int64_t ldb, float *c, int64_t ldc,
                          bool add);
/* ... or its columns, any number of them. */
void kin_tile_few_by_columns(unsigned rows, int64_t columns, int64_t k, const float *a, int64_t lda, const float *b, int64_t ldb, float *c, int64_t ldc);

/* 32 or fewer columns of a matrix as a panel: panel[l][j] = b[l * row_stride + j * column_stride] for l < k, j < columns. */
void kin_tile_pack(int64_t k, unsigned columns, const float *b, int64_t row_stride, int64_t column_stride, float *panel);

/* Does this processor multiply pairs of bfloat16? */
bool kin_tile_has_pairs(void);
/* ... or whole matrices of them? We do not do that, but oneDNN does. */
bool kin_tile_has_matrices(void);
/* kin_tile_multiply, where an element of a and b is a word: two neighbours along k, both bfloat16. k and lda count words. */
void kin_tile_multiply_pairs(unsigned rows, unsigned columns, int64_t k, const float *a, int64_t lda, const float *b, float *c,
                             int64_t ldc, bool add, const float *soon);
void kin_tile_multiply_lines_of_pairs(unsigned rows, unsigned columns, int64_t lines, int64_t k, const float *a, int64_t lda, int64_t step,
                                      const float *b, float *c, int64_t ldc, bool add, const float *soon);
/* k rows of bfloat16 as (k + 1) / 2 rows of words. */
void kin_tile_pack_pairs(int64_t k, unsigned columns, const uint16_t *b, int64_t row_stride, int64_t column_stride, float *panel);
/* kin_tile_pack of numbers of half precision, bfloat16 or the other. */
void kin_tile_pack_half(int64_t k, unsigned columns, const uint16_t *b, bool bfloat, int64_t row_stride, int64_t column_stride, float *panel);

/* to[i] = x[i] * by; may be in place. */
void kin_tile_scale(const float *x, int64_t n, float by, float *to);
/* to[i] = x[i], to[i] = 0. */
void kin_tile_copy(const float *x, int64_t n, float *to);
void kin_tile_clear(int64_t n, float *to);
/* c [rows, columns], rows ldc apart: plus bias by column if there is one, then kept within limits; NaNs stay. */
void kin_tile_finish(unsigned rows, unsigned columns, float *c, int64_t ldc, const float *bias, bool limited, float least, float most);
/* to[i] = the sum over taps of x[tap][i] * factors[tap][i], plus what is there if `add`. */
void kin_tile_filter(int64_t n, unsigned taps, const float *const *x, const float *const *factors, bool add, float *to);
/* Four of these, `next` and `to_next` apart: taps lie in lines, each at x + its line * `line` + its number * `tap`, factors likewise. */
void kin_tile_filter_four(int64_t n, unsigned lines, unsigned taps, const float *x, int64_t line, int64_t tap, int64_t next,
                          const float *factors, int64_t factor_line, int64_t factor_tap, float *to, int64_t to_next);
/* Gradients of such filters: to[tap * to_tap + i] += the sum over places p of back[p * back_next + i] * x[p * x_next + tap * x_tap + i], i < n
 * (tile_depthwise.c). */
void kin_tile_filter_back(int64_t n, unsigned taps, int64_t places, const float *back, int64_t back_next, const float *x, int64_t x_next, int64_t x_tap,
                          float *to, int64_t to_tap);
/* Winograd's minimal filtering (winograd.h): what the 4 x 4 places that a 2 x 2 tile of results sees become, `to_step` apart in `to`; ... */
void kin_tile_winograd_image(int64_t channels, const float *const *seen, float *to, int64_t to_step);
/* ... what the 3 x 3 taps of n filters become (16 of them), and back; ... */
void kin_tile_winograd_filters(int64_t n, const float *taps, int64_t tap_step, float *to, int64_t to_step);
void kin_tile_winograd_restore(int64_t n, const float *from, int64_t from_step, float *taps, int64_t tap_step);
/* ... and what the 16 products become: 2 x 2 results, where to[i] is not NULL. False: one is not finite. Channels, n and columns are multiples
 * of 16; all is 64-byte aligned but for `seen` and results. */
bool kin_tile_winograd_results(unsigned columns, const float *products, int64_t step, float *const *to);
/* Going back (winograd_weight.h): what comes back for 2 x 2 results, `filters` numbers from seen[...] + from on, becomes 16 times as many, `to_step` apart; ... */
void kin_tile_winograd_back(unsigned filters, const float *const *seen, int64_t from, float *to, int64_t to_step);
/* ... and the 16 sums for n channels, a multiple of 16, the 9 taps. False: one is not finite. */
bool kin_tile_winograd_taps(unsigned n, const float *sums, int64_t step, float *to, int64_t to_step);
/* The largest of n numbers, -inf for none; NaN if there is one. */
float kin_tile_largest(const float *x, int64_t n);
/* to[i] += x[i]. */
void kin_tile_add(const float *x, int64_t n, float *to);
/* x[i] = exp(x[i] - largest), 0 where that is below the normal range; their sum. */
float kin_tile_exponentials(float *x, int64_t n, float largest);

/* ---- how the loops around tiles cut ---- */

static inline int64_t
kin_tile_divide_up(int64_t n, int64_t by)
{
    return (n + by - 1) / by;
}

/* Parts of nearly the same size, none larger than `most`. */
static inline int64_t
kin_tile_part_of(int64_t n, int64_t most)
{
    return kin_tile_divide_up(n, kin_tile_divide_up(n, most));
}

#endif
