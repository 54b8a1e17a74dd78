/* Products of pairs of bfloat16 (tile.h), which some processors add up in float two at a time. A word of two neighbours along k takes the place of a float in
 * tile.c. All processors that do it have vectors of 16 floats.
 */
#include "core/tiles/tile.h"

#include <string.h>

#if defined(__x86_64__)

#include <cpuid.h>

#define KIN_LANES 16
#include "core/tiles/sums.h"

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
    multiply_tile(rows, columns, 1, k, a, lda, 0, b, c, ldc, add, soon);
}

void
kin_tile_multiply_lines_of_pairs(unsigned rows, unsigned columns, int64_t lines, int64_t k, const float *a, int64_t lda, int64_t step,
                                 const float *b, float *c, int64_t ldc, bool add, const float *soon)
{
    multiply_tile(rows, columns, lines, k, a, lda, step, b, c, ldc, add, soon);
}

/* -- panels ----------------------------------------------------------------------------------------------------- */

/* One row of words from two rows of numbers. */
AVX512 static void
pair_rows(unsigned columns, const uint16_t *first, const uint16_t *second, float *to)
{
    for (unsigned j = 0; j < KIN_TILE_COLUMNS; j += 16) {
        __mmask16 some = first_lanes((int64_t)columns - j);
        __m512i low = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(some, first + j));
        __m512i high = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(some, second + j));
        _mm512_store_si512(to + j, _mm512_or_si512(low, _mm512_slli_epi32(high, 16)));
    }
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
