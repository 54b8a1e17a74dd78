/* Tiles in half precision (tile.h): packing panels, and products of pairs of bfloat16, which some processors add up in float two at a
 * time. A word of two neighbours along k takes the place of a float in tile.c.
 */
#include "core/tiles/tile.h"

#include <string.h>

#include "core/ir/half.h"

#if defined(__x86_64__)

#include <cpuid.h>
#include <immintrin.h>

#define AVX512 __attribute__((target("avx512f,avx512bw,avx512vl")))
#define PAIRS __attribute__((target("avx512f,avx512bw,avx512vl,avx512bf16")))

bool
kin_tile_has_pairs(void)
{
    return __builtin_cpu_supports("avx512bf16") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl");
}

bool
kin_tile_has_matrices(void)
{
    enum { LEAF = 7, AMX_BF16 = 1 << 22 };
    unsigned a, b, c, d;
    return kin_tile_has_pairs() && __get_cpuid_count(LEAF, 0, &a, &b, &c, &d) && (d & AMX_BF16) != 0;
}

#define TILE_TARGET PAIRS
#define TILE_ADD(sum, x, b) _mm512_dpbf16_ps(sum, (__m512bh)(x), (__m512bh)(b))
#include "core/tiles/tile_loops.inc"

void
kin_tile_multiply_pairs(unsigned rows, unsigned columns, int64_t k, const float *a, int64_t lda, const float *b, float *c, int64_t ldc,
                        bool add, const float *soon)
{
    tiles[rows](columns, 1, k, a, lda, 0, b, c, ldc, add, soon);
}

void
kin_tile_multiply_lines_of_pairs(unsigned rows, unsigned columns, int64_t lines, int64_t k, const float *a, int64_t lda, int64_t step,
                                 const float *b, float *c, int64_t ldc, bool add, const float *soon)
{
    tiles[rows](columns, lines, k, a, lda, step, b, c, ldc, add, soon);
}

/* -- panels ----------------------------------------------------------------------------------------------------- */

/* One row of words from two rows of numbers. */
AVX512 static void
pair_rows(unsigned columns, const uint16_t *first, const uint16_t *second, float *to)
{
    for (unsigned j = 0; j < KIN_TILE_COLUMNS; j += 16) {
        __mmask16 some = (__mmask16)(j >= columns ? 0 : columns - j >= 16 ? 0xffff : (1u << (columns - j)) - 1);
        __m512i low = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(some, first + j));
        __m512i high = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(some, second + j));
        _mm512_store_si512(to + j, _mm512_or_si512(low, _mm512_slli_epi32(high, 16)));
    }
}

/* n numbers, 16 at most, as floats. */
AVX512 static void
widen(unsigned n, const uint16_t *x, bool bfloat, float *to)
{
    __mmask16 some = (__mmask16)(n >= 16 ? 0xffff : (1u << n) - 1);
    __m256i given = _mm256_maskz_loadu_epi16(some, x);
    _mm512_storeu_ps(to, bfloat ? _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(given), 16)) : _mm512_cvtph_ps(given));
}

#else

bool
kin_tile_has_matrices(void)
{
    return false;
}

bool
kin_tile_has_pairs(void)
{
    return false;
}

void
kin_tile_multiply_pairs(unsigned rows, unsigned columns, int64_t k, const float *a, int64_t lda, const float *b, float *c, int64_t ldc,
                        bool add, const float *soon)
{
}

void
kin_tile_multiply_lines_of_pairs(unsigned rows, unsigned columns, int64_t lines, int64_t k, const float *a, int64_t lda, int64_t step,
                                 const float *b, float *c, int64_t ldc, bool add, const float *soon)
{
}

static void
pair_rows(unsigned columns, const uint16_t *first, const uint16_t *second, float *to)
{
}

static void
widen(unsigned n, const uint16_t *x, bool bfloat, float *to)
{
    for (unsigned i = 0; i < 16; i++)
        to[i] = i >= n ? 0 : bfloat ? kin_bf16_to_float(x[i]) : kin_f16_to_float(x[i]);
}

#endif

void
kin_tile_pack_pairs(int64_t k, unsigned columns, const uint16_t *b, int64_t row_stride, int64_t column_stride, float *panel)
{
    static const uint16_t zeros[KIN_TILE_COLUMNS];
    int64_t done = 0;
    if (column_stride == 1) {
        for (; done < k; done += 2)
            pair_rows(columns, b + done * row_stride, done + 1 < k ? b + (done + 1) * row_stride : zeros, panel + done / 2 * KIN_TILE_COLUMNS);
        return;
    }
    if (row_stride == 1 && column_stride % 2 == 0 && (uintptr_t)b % sizeof(float) == 0) { /* words already */
        kin_tile_pack(k / 2, columns, (const float *)(const void *)b, 1, column_stride / 2, panel);
        done = k / 2 * 2;
    }
    for (; done < k; done += 2)
        for (unsigned j = 0; j < KIN_TILE_COLUMNS; j++) {
            const uint16_t *at = b + done * row_stride + (int64_t)j * column_stride;
            uint16_t pair[2] = {j < columns ? at[0] : 0, j < columns && done + 1 < k ? at[row_stride] : 0};
            memcpy(panel + done / 2 * KIN_TILE_COLUMNS + j, pair, sizeof pair);
        }
}

void
kin_tile_pack_half(int64_t k, unsigned columns, const uint16_t *b, bool bfloat, int64_t row_stride, int64_t column_stride, float *panel)
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
            kin_tile_pack(n, columns, rows, 1, BLOCK, to);
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
