/* The inner loops of our kernels: tiles of matrix products with up to 14 x 32 results, packing, transforms, gates. tiles.def says what each does. */
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

/* Sums over `lines` lines of k places of each of some images: steps between lines and images of both sides, and between rows of b. */
typedef struct {
    int64_t images, lines, k;
    int64_t a_image, a_line, b_image, b_line, b_next;
} kin_tile_places;

struct kin_mersenne;

/* How many floats a vector has in the code that these functions run: 16 (AVX-512), 8 (AVX2), or 0: this processor has neither. */
unsigned kin_tile_lanes(void);

/* Does this processor have what they need? */
static inline bool
kin_tile_here(void)
{
    return kin_tile_lanes() != 0;
}

#define KIN_TILE(result, name, parameters, arguments) result kin_tile_##name parameters;
#include "core/tiles/tiles.def"

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

/* ---- how the loops around tiles cut ---- */

static inline int64_t
kin_tile_divide_up(int64_t n, int64_t by)
{
    return (n + by - 1) / by;
}

/* How many tiles so many rows of a are multiplied in fastest: with vectors of 8 floats two parts of 6 rows each (lanes.h). */
static inline int64_t
kin_tile_count(int64_t rows)
{
    enum { TWO_PARTS = 12 };
    return rows <= KIN_TILE_ROWS ? 1 : kin_tile_divide_up(rows, kin_tile_lanes() == 8 ? TWO_PARTS : KIN_TILE_ROWS);
}

/* Parts of nearly the same size, none larger than `most`. */
static inline int64_t
kin_tile_part_of(int64_t n, int64_t most)
{
    return kin_tile_divide_up(n, kin_tile_divide_up(n, most));
}

#endif
