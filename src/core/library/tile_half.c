/* Tiles over numbers of half precision (tile.h): panels of them, and products of pairs of bfloat16, which some processors add up in float two at a
 * time. There a word of two neighbours along k stands where a float does in tile.c.
 */
#include "core/library/tile.h"

#include <string.h>

#include "core/ir/half.h"

#if defined(__x86_64__)

#include <immintrin.h>

#define AVX512 __attribute__((target("avx512f,avx512bw,avx512vl")))
#define PAIRS __attribute__((target("avx512f,avx512bw,avx512vl,avx512bf16")))

bool
kin_tile_has_pairs(void)
{
    return __builtin_cpu_supports("avx512bf16") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl");
}

enum { AHEAD = 64 /* rows of b that are fetched before they are needed */ };

__attribute__((always_inline)) PAIRS static inline void
multiply(const int rows, const bool wide, unsigned columns, int64_t lines, int64_t k, const float *a, int64_t lda, int64_t step,
         const float *b, float *c, int64_t ldc, bool add, const float *soon)
{
    __m512 sums[KIN_TILE_ROWS][2];
    __mmask16 low = (__mmask16)(columns >= 16 ? 0xffff : (1u << columns) - 1);
    __mmask16 high = (__mmask16)(columns >= 32 ? 0xffff : columns <= 16 ? 0 : (1u << (columns - 16)) - 1);
#pragma GCC unroll 14
    for (int i = 0; i < rows; i++) {
        sums[i][0] = add ? _mm512_maskz_loadu_ps(low, c + i * ldc) : _mm512_setzero_ps();
        sums[i][1] = add && wide ? _mm512_maskz_loadu_ps(high, c + i * ldc + 16) : _mm512_setzero_ps();
    }
    const float *a0 = a, *a5 = rows > 5 ? a + 5 * lda : a, *a10 = rows > 10 ? a + 10 * lda : a;
    for (; lines > 0; lines--, a0 += step, a5 += step, a10 += step, soon += k * 16)
        for (int64_t l = 0; l < k; l++) {
            __m512bh b0 = (__m512bh)_mm512_load_ps(b), b1 = (__m512bh)_mm512_load_ps(b + 16);
            b += KIN_TILE_COLUMNS;
            _mm_prefetch((const char *)(b + AHEAD * KIN_TILE_COLUMNS), _MM_HINT_T0);
            _mm_prefetch((const char *)(b + AHEAD * KIN_TILE_COLUMNS + 16), _MM_HINT_T0);
            _mm_prefetch((const char *)(soon + l * 16), _MM_HINT_T1);
#pragma GCC unroll 14
            for (int i = 0; i < rows; i++) {
                const float *row = i < 5 ? a0 : i < 10 ? a5 : a10;
                __m512bh x = (__m512bh)_mm512_set1_ps(row[i % 5 * lda + l]);
                sums[i][0] = _mm512_dpbf16_ps(sums[i][0], x, b0);
                if (wide)
                    sums[i][1] = _mm512_dpbf16_ps(sums[i][1], x, b1);
            }
        }
#pragma GCC unroll 14
    for (int i = 0; i < rows; i++) {
        _mm512_mask_storeu_ps(c + i * ldc, low, sums[i][0]);
        if (wide)
            _mm512_mask_storeu_ps(c + i * ldc + 16, high, sums[i][1]);
    }
}

#define TILE(ROWS) \
    PAIRS static void \
    multiply_##ROWS(unsigned columns, int64_t lines, int64_t k, const float *a, int64_t lda, int64_t step, const float *b, float *c, \
                    int64_t ldc, bool add, const float *soon) \
    { \
        if (columns > 16) \
            multiply(ROWS, true, columns, lines, k, a, lda, step, b, c, ldc, add, soon); \
        else \
            multiply(ROWS, false, columns, lines, k, a, lda, step, b, c, ldc, add, soon); \
    }
TILE(1) TILE(2) TILE(3) TILE(4) TILE(5) TILE(6) TILE(7) TILE(8) TILE(9) TILE(10) TILE(11) TILE(12) TILE(13) TILE(14)
#undef TILE

typedef void (*tile)(unsigned columns, int64_t lines, int64_t k, const float *a, int64_t lda, int64_t step, const float *b, float *c,
                     int64_t ldc, bool add, const float *soon);
static const tile tiles[KIN_TILE_ROWS + 1] = {NULL, multiply_1, multiply_2, multiply_3, multiply_4, multiply_5, multiply_6, multiply_7,
                                              multiply_8, multiply_9, multiply_10, multiply_11, multiply_12, multiply_13, multiply_14};

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
