/* Panels of numbers of half precision, as floats (tile.h). */
#include <string.h>

#include "core/tiles/lanes.h"

#if KIN_LANES == 16

/* n numbers, 16 at most, as floats. */
__attribute__((target("avx512f,avx512bw,avx512vl"))) static void
widen(unsigned n, const uint16_t *x, bool bfloat, float *to)
{
    __m256i given = _mm256_maskz_loadu_epi16(first_lanes(n), x);
    _mm512_storeu_ps(to, bfloat ? _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(given), 16)) : _mm512_cvtph_ps(given));
}

#else

/* n numbers, 16 at most, as floats. */
WIDE static void
widen(unsigned n, const uint16_t *x, bool bfloat, float *to)
{
    uint16_t all[16] = {0};
    if (n < 16) {
        memcpy(all, x, n * sizeof *x);
        x = all;
    }
    for (int i = 0; i < 16; i += 8) {
        __m128i given = _mm_loadu_si128((const __m128i *)(x + i));
        _mm256_storeu_ps(to + i, bfloat ? _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(given), 16)) : _mm256_cvtph_ps(given));
    }
}

#endif

void
TILE(pack_half)(int64_t k, unsigned columns, const uint16_t *b, bool bfloat, int64_t row_stride, int64_t column_stride, float *panel)
{
    enum { BLOCK = 16 };
    float rows[KIN_TILE_COLUMNS * BLOCK];
    for (int64_t done = 0; done < k; done += BLOCK) {
        int64_t n = k - done < BLOCK ? k - done : BLOCK;
        const uint16_t *from = b + done * row_stride;
        float *to = panel + done * KIN_TILE_COLUMNS;
        if (row_stride == 1) {
            for (unsigned j = 0; j < columns; j++)
                widen((unsigned)n, from + j * column_stride, bfloat, rows + j * BLOCK);
            TILE(pack)(n, columns, rows, 1, BLOCK, to);
            continue;
        }
        for (int64_t l = 0; l < n; l++) {
            const uint16_t *row = from + l * row_stride;
            uint16_t gathered[KIN_TILE_COLUMNS];
            for (unsigned j = 0; column_stride != 1 && j < columns; j++)
                gathered[j] = row[j * column_stride];
            row = column_stride != 1 ? gathered : row;
            widen(columns < BLOCK ? columns : BLOCK, row, bfloat, to + l * KIN_TILE_COLUMNS);
            widen(columns > BLOCK ? columns - BLOCK : 0, row + (columns > BLOCK ? BLOCK : 0), bfloat, to + l * KIN_TILE_COLUMNS + BLOCK);
        }
    }
}
