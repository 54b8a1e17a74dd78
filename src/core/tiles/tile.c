/* Tiles of products (tile.h). One function for each number of rows, and of vectors in a row of b, so that the compiler keeps the sums in registers: 28 of
 * the 32 registers for 14 rows, two for a row of b, one for an element of a.
 */
#include "core/tiles/tile.h"

#include <math.h>

#if defined(__x86_64__)

#include "core/tiles/lanes.h"

bool
kin_tile_here(void)
{
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl");
}

#define TILE_TARGET AVX512
#define TILE_ADD(sum, x, b) _mm512_fmadd_ps(x, b, sum)
#include "core/tiles/tile_loops.inc"

void
kin_tile_multiply(unsigned rows, unsigned columns, int64_t k, const float *a, int64_t lda, const float *b, float *c, int64_t ldc,
                  bool add, const float *soon)
{
    tiles[rows](columns, 1, k, a, lda, 0, b, c, ldc, add, soon);
}

void
kin_tile_multiply_lines(unsigned rows, unsigned columns, int64_t lines, int64_t k, const float *a, int64_t lda, int64_t step,
                        const float *b, float *c, int64_t ldc, bool add, const float *soon)
{
    tiles[rows](columns, lines, k, a, lda, step, b, c, ldc, add, soon);
}

/* -- panels ----------------------------------------------------------------------------------------------------- */

enum { SOON = 64 /* floats that are fetched before they are needed */ };

/* rows[j][l] becomes to[l * KIN_TILE_COLUMNS + j], 16 x 16. */
AVX512 static void
transpose_block(const float *rows, int64_t stride, float *to)
{
    __m512 x[16], y[16];
#pragma GCC unroll 16
    for (int j = 0; j < 16; j++) {
        x[j] = _mm512_loadu_ps(rows + j * stride);
        _mm_prefetch((const char *)(rows + j * stride + SOON), _MM_HINT_T0);
    }
#pragma GCC unroll 8
    for (int j = 0; j < 16; j += 2) {
        y[j] = _mm512_unpacklo_ps(x[j], x[j + 1]);
        y[j + 1] = _mm512_unpackhi_ps(x[j], x[j + 1]);
    }
#pragma GCC unroll 4
    for (int j = 0; j < 16; j += 4)
#pragma GCC unroll 2
        for (int h = 0; h < 2; h++) {
            __m512d p = _mm512_castps_pd(y[j + h]), q = _mm512_castps_pd(y[j + h + 2]);
            x[j + 2 * h] = _mm512_castpd_ps(_mm512_unpacklo_pd(p, q));
            x[j + 2 * h + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(p, q));
        }
    /* x[4 g + h] has, in each lane of four, column h of that lane for rows 4 g to 4 g + 3. */
#pragma GCC unroll 4
    for (int h = 0; h < 4; h++) {
        __m512 p0 = _mm512_shuffle_f32x4(x[h], x[4 + h], 0x88), p1 = _mm512_shuffle_f32x4(x[h], x[4 + h], 0xdd);
        __m512 q0 = _mm512_shuffle_f32x4(x[8 + h], x[12 + h], 0x88), q1 = _mm512_shuffle_f32x4(x[8 + h], x[12 + h], 0xdd);
        _mm512_store_ps(to + h * KIN_TILE_COLUMNS, _mm512_shuffle_f32x4(p0, q0, 0x88));
        _mm512_store_ps(to + (4 + h) * KIN_TILE_COLUMNS, _mm512_shuffle_f32x4(p1, q1, 0x88));
        _mm512_store_ps(to + (8 + h) * KIN_TILE_COLUMNS, _mm512_shuffle_f32x4(p0, q0, 0xdd));
        _mm512_store_ps(to + (12 + h) * KIN_TILE_COLUMNS, _mm512_shuffle_f32x4(p1, q1, 0xdd));
    }
}

AVX512 static void
copy_row(unsigned columns, const float *row, float *to)
{
    _mm512_store_ps(to, columns >= 16 ? _mm512_loadu_ps(row) : _mm512_maskz_loadu_ps((__mmask16)((1u << columns) - 1), row));
    if (columns >= 32)
        _mm512_store_ps(to + 16, _mm512_loadu_ps(row + 16));
    else
        _mm512_store_ps(to + 16, columns <= 16 ? _mm512_setzero_ps()
                                               : _mm512_maskz_loadu_ps((__mmask16)((1u << (columns - 16)) - 1), row + 16));
}

/* -- rows of scores ------------------------------------------------------------------------------------------------ */

AVX512 void
kin_tile_scale(const float *x, int64_t n, float by, float *to)
{
    __m512 factor = _mm512_set1_ps(by);
    for (int64_t i = 0; i < n; i += 16) {
        __mmask16 some = lanes(n - i);
        _mm512_mask_storeu_ps(to + i, some, _mm512_mul_ps(_mm512_maskz_loadu_ps(some, x + i), factor));
    }
}

AVX512 void
kin_tile_add(const float *x, int64_t n, float *to)
{
    for (int64_t i = 0; i < n; i += 16) {
        __mmask16 some = lanes(n - i);
        _mm512_mask_storeu_ps(to + i, some, _mm512_add_ps(_mm512_maskz_loadu_ps(some, to + i), _mm512_maskz_loadu_ps(some, x + i)));
    }
}

AVX512 void
kin_tile_copy(const float *x, int64_t n, float *to)
{
    int64_t i = 0;
    for (; i + 16 <= n; i += 16)
        _mm512_storeu_ps(to + i, _mm512_loadu_ps(x + i));
    if (i < n)
        _mm512_mask_storeu_ps(to + i, lanes(n - i), _mm512_maskz_loadu_ps(lanes(n - i), x + i));
}

AVX512 void
kin_tile_clear(int64_t n, float *to)
{
    for (int64_t i = 0; i < n; i += 16)
        _mm512_mask_storeu_ps(to + i, lanes(n - i), _mm512_setzero_ps());
}

AVX512 void
kin_tile_finish(unsigned rows, unsigned columns, float *c, int64_t ldc, const float *bias, bool limited, float least, float most)
{
    __m512 low = _mm512_set1_ps(least), high = _mm512_set1_ps(most);
    for (unsigned j = 0; j < columns; j += 16) {
        __mmask16 some = lanes(columns - j);
        __m512 more = bias == NULL ? _mm512_setzero_ps() : _mm512_maskz_loadu_ps(some, bias + j);
        for (unsigned i = 0; i < rows; i++) {
            float *at = c + i * ldc + j;
            __m512 v = _mm512_maskz_loadu_ps(some, at);
            if (bias != NULL)
                v = _mm512_add_ps(v, more);
            if (limited) /* where one operand is no number these give the second */
                v = _mm512_min_ps(high, _mm512_max_ps(low, v));
            _mm512_mask_storeu_ps(at, some, v);
        }
    }
}

AVX512 void
kin_tile_filter(int64_t n, unsigned taps, const float *const *x, const float *const *factors, bool add, float *to)
{
    int64_t i = 0;
    for (; i + 64 <= n; i += 64) {
        __m512 s0 = add ? _mm512_loadu_ps(to + i) : _mm512_setzero_ps(), s1 = add ? _mm512_loadu_ps(to + i + 16) : _mm512_setzero_ps();
        __m512 s2 = add ? _mm512_loadu_ps(to + i + 32) : _mm512_setzero_ps(), s3 = add ? _mm512_loadu_ps(to + i + 48) : _mm512_setzero_ps();
        for (unsigned t = 0; t < taps; t++) {
            const float *a = x[t] + i, *b = factors[t] + i;
            s0 = _mm512_fmadd_ps(_mm512_loadu_ps(a), _mm512_loadu_ps(b), s0);
            s1 = _mm512_fmadd_ps(_mm512_loadu_ps(a + 16), _mm512_loadu_ps(b + 16), s1);
            s2 = _mm512_fmadd_ps(_mm512_loadu_ps(a + 32), _mm512_loadu_ps(b + 32), s2);
            s3 = _mm512_fmadd_ps(_mm512_loadu_ps(a + 48), _mm512_loadu_ps(b + 48), s3);
        }
        _mm512_storeu_ps(to + i, s0);
        _mm512_storeu_ps(to + i + 16, s1);
        _mm512_storeu_ps(to + i + 32, s2);
        _mm512_storeu_ps(to + i + 48, s3);
    }
    for (; i < n; i += 16) {
        __mmask16 some = lanes(n - i);
        __m512 sum = add ? _mm512_maskz_loadu_ps(some, to + i) : _mm512_setzero_ps();
        for (unsigned t = 0; t < taps; t++)
            sum = _mm512_fmadd_ps(_mm512_maskz_loadu_ps(some, x[t] + i), _mm512_maskz_loadu_ps(some, factors[t] + i), sum);
        _mm512_mask_storeu_ps(to + i, some, sum);
    }
}

AVX512 float
kin_tile_largest(const float *x, int64_t n)
{
    __m512 least = _mm512_set1_ps(-INFINITY), most = least;
    __mmask16 nan = 0;
    for (int64_t i = 0; i < n; i += 16) {
        __m512 v = _mm512_mask_loadu_ps(least, lanes(n - i), x + i);
        nan |= _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q);
        most = _mm512_max_ps(most, v);
    }
    return nan != 0 ? NAN : _mm512_reduce_max_ps(most);
}

AVX512 float
kin_tile_exponentials(float *x, int64_t n, float largest)
{
    __m512 from = _mm512_set1_ps(largest), low = _mm512_set1_ps(-87.3f), sum = _mm512_setzero_ps();
    for (int64_t i = 0; i < n; i += 16) {
        __mmask16 some = lanes(n - i);
        __m512 v = _mm512_sub_ps(_mm512_maskz_loadu_ps(some, x + i), from);
        __mmask16 counts = _mm512_mask_cmp_ps_mask(some, v, low, _CMP_NLT_UQ); /* NaN counts */
        v = _mm512_maskz_mov_ps(counts, exponential(v));
        _mm512_mask_storeu_ps(x + i, some, v);
        sum = _mm512_add_ps(sum, v);
    }
    return _mm512_reduce_add_ps(sum);
}

/* One vector of four results. */
AVX512 static inline void
filter_vector(__mmask16 some, unsigned lines, unsigned taps, const float *x, int64_t line, int64_t tap, int64_t next, const float *factors,
              int64_t factor_line, int64_t factor_tap, float *to, int64_t to_next)
{
    __m512 s0 = _mm512_setzero_ps(), s1 = s0, s2 = s0, s3 = s0;
    for (unsigned i = 0; i < lines; i++)
        for (unsigned j = 0; j < taps; j++) {
            __m512 f = _mm512_maskz_loadu_ps(some, factors + i * factor_line + j * factor_tap);
            const float *at = x + i * line + j * tap;
            s0 = _mm512_fmadd_ps(_mm512_maskz_loadu_ps(some, at), f, s0);
            s1 = _mm512_fmadd_ps(_mm512_maskz_loadu_ps(some, at + next), f, s1);
            s2 = _mm512_fmadd_ps(_mm512_maskz_loadu_ps(some, at + 2 * next), f, s2);
            s3 = _mm512_fmadd_ps(_mm512_maskz_loadu_ps(some, at + 3 * next), f, s3);
        }
    _mm512_mask_storeu_ps(to, some, s0);
    _mm512_mask_storeu_ps(to + to_next, some, s1);
    _mm512_mask_storeu_ps(to + 2 * to_next, some, s2);
    _mm512_mask_storeu_ps(to + 3 * to_next, some, s3);
}

AVX512 void
kin_tile_filter_four(int64_t n, unsigned lines, unsigned taps, const float *x, int64_t line, int64_t tap, int64_t next,
                     const float *factors, int64_t factor_line, int64_t factor_tap, float *to, int64_t to_next)
{
    for (int64_t i = 0; i < n; i += 16)
        filter_vector(lanes(n - i), lines, taps, x + i, line, tap, next, factors + i, factor_line, factor_tap, to + i, to_next);
}

#else

void
kin_tile_filter_four(int64_t n, unsigned lines, unsigned taps, const float *x, int64_t line, int64_t tap, int64_t next,
                     const float *factors, int64_t factor_line, int64_t factor_tap, float *to, int64_t to_next)
{
}

void
kin_tile_multiply_lines(unsigned rows, unsigned columns, int64_t lines, int64_t k, const float *a, int64_t lda, int64_t step,
                        const float *b, float *c, int64_t ldc, bool add, const float *soon)
{
}

void
kin_tile_scale(const float *x, int64_t n, float by, float *to)
{
}

void
kin_tile_add(const float *x, int64_t n, float *to)
{
}

void
kin_tile_copy(const float *x, int64_t n, float *to)
{
}

void
kin_tile_clear(int64_t n, float *to)
{
}

void
kin_tile_finish(unsigned rows, unsigned columns, float *c, int64_t ldc, const float *bias, bool limited, float least, float most)
{
}

void
kin_tile_filter(int64_t n, unsigned taps, const float *const *x, const float *const *factors, bool add, float *to)
{
}

float
kin_tile_largest(const float *x, int64_t n)
{
    return 0;
}

float
kin_tile_exponentials(float *x, int64_t n, float largest)
{
    return 0;
}

bool
kin_tile_here(void)
{
    return false;
}

void
kin_tile_multiply(unsigned rows, unsigned columns, int64_t k, const float *a, int64_t lda, const float *b, float *c, int64_t ldc,
                  bool add, const float *soon)
{
}

static void
transpose_block(const float *rows, int64_t stride, float *to)
{
}

static void
copy_row(unsigned columns, const float *row, float *to)
{
}

#endif

void
kin_tile_pack(int64_t k, unsigned columns, const float *b, int64_t row_stride, int64_t column_stride, float *panel)
{
    int64_t done = 0;
    if (column_stride == 1) {
        for (; done < k; done++)
            copy_row(columns, b + done * row_stride, panel + done * KIN_TILE_COLUMNS);
        return;
    }
    for (; row_stride == 1 && columns == KIN_TILE_COLUMNS && done + 16 <= k; done += 16) {
        transpose_block(b + done, column_stride, panel + done * KIN_TILE_COLUMNS);
        transpose_block(b + done + 16 * column_stride, column_stride, panel + done * KIN_TILE_COLUMNS + 16);
    }
    for (; done < k; done++)
        for (unsigned j = 0; j < KIN_TILE_COLUMNS; j++)
            panel[done * KIN_TILE_COLUMNS + j] = j < columns ? b[done * row_stride + j * column_stride] : 0;
}
