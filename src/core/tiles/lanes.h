/* Vectors of floats, for the files of this folder that are compiled once for each width (tiles.def): KIN_LANES is 16 (AVX-512) or 8 (AVX2).
 * What these functions do has no other name than the instruction's; "some" are the first n lanes, none for n <= 0, all from LANES on.
 */
#ifndef KIN_TILES_LANES_H
#define KIN_TILES_LANES_H

#include <immintrin.h>
#include <stdint.h>

#include "core/tiles/tile.h"

#ifndef KIN_LANES
#define KIN_LANES 8
#endif

#define KIN_LANES_NAME(name, lanes) kin_tile_##name##_##lanes
#define KIN_LANES_NAME_OF(name, lanes) KIN_LANES_NAME(name, lanes)
/* A function of tiles.def, as it is called for this width. */
#define TILE(name) KIN_LANES_NAME_OF(name, KIN_LANES)

#define KIN_TILE(result, name, parameters, arguments) result KIN_LANES_NAME_OF(name, KIN_LANES) parameters;
#include "core/tiles/tiles.def"

enum { LANES = KIN_LANES };

#if KIN_LANES == 16
#define WIDE __attribute__((target("avx512f")))
#else
#define WIDE __attribute__((target("avx2,fma,f16c")))
#endif
#define INLINE_WIDE __attribute__((always_inline)) WIDE static inline

#if KIN_LANES == 16

enum { KIN_PART_ROWS = 14, KIN_PART_FEW = 14, KIN_PART_DEEP = KIN_TILE_LONG };

typedef __m512 vec;
typedef __m512i words;    /* 16 of 32 bits, 8 of 64 */
typedef __mmask16 truths; /* one for each lane */

#define vec_zero _mm512_setzero_ps
#define vec_all _mm512_set1_ps
#define vec_load _mm512_load_ps
#define vec_read _mm512_loadu_ps
#define vec_store _mm512_store_ps
#define vec_write _mm512_storeu_ps
#define vec_add _mm512_add_ps
#define vec_sub _mm512_sub_ps
#define vec_mul _mm512_mul_ps
#define vec_div _mm512_div_ps
#define vec_fma _mm512_fmadd_ps
#define vec_fnma _mm512_fnmadd_ps
#define vec_min _mm512_min_ps
#define vec_max _mm512_max_ps
#define vec_low _mm512_unpacklo_ps
#define vec_high _mm512_unpackhi_ps
#define vec_low_pairs(a, b) _mm512_castpd_ps(_mm512_unpacklo_pd(_mm512_castps_pd(a), _mm512_castps_pd(b)))
#define vec_high_pairs(a, b) _mm512_castpd_ps(_mm512_unpackhi_pd(_mm512_castps_pd(a), _mm512_castps_pd(b)))
#define vec_sum _mm512_reduce_add_ps
#define vec_most _mm512_reduce_max_ps
#define vec_bits _mm512_castps_si512
#define words_float _mm512_castsi512_ps
#define words_and _mm512_and_si512
#define words_and_not _mm512_andnot_si512
#define words_or _mm512_or_si512
#define words_xor _mm512_xor_si512
#define words_sub _mm512_sub_epi32
#define words_all _mm512_set1_epi32
#define words_left _mm512_slli_epi32
#define words_right _mm512_srli_epi32
#define longs_all _mm512_set1_epi64
#define less(a, b) _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ)
#define not_less(a, b) _mm512_cmp_ps_mask(a, b, _CMP_NLT_UQ)
#define differ(a, b) _mm512_cmp_ps_mask(a, b, _CMP_NEQ_UQ)
#define zero_unless(truths, x) _mm512_maskz_mov_ps(truths, x)
#define choose(truths, yes, no) _mm512_mask_blend_ps(truths, no, yes)
#define any_of(truths) ((truths) != 0)
#define either(a, b) ((__mmask16)((a) | (b)))
#define never() ((__mmask16)0)

WIDE static inline __mmask16
first_lanes(int64_t n)
{
    return (__mmask16)(n >= 16 ? 0xffff : n <= 0 ? 0 : (1u << n) - 1);
}
#define vec_read_some(n, at) _mm512_maskz_loadu_ps(first_lanes(n), at)
#define vec_read_some_or(other, n, at) _mm512_mask_loadu_ps(other, first_lanes(n), at)
#define vec_write_some(n, at, x) _mm512_mask_storeu_ps(at, first_lanes(n), x)
#define vec_keep_some(n, x) _mm512_maskz_mov_ps(first_lanes(n), x)
#define words_read_some(n, at) _mm512_maskz_loadu_epi32(first_lanes(n), at)
#define words_write_some(n, at, x) _mm512_mask_storeu_epi32(at, first_lanes(n), x)

/* 2^whole x; whole: a whole number from -127 to 127. */
#define scale_by_power(x, whole) _mm512_scalef_ps(x, whole)
#define round_to_whole(x) _mm512_roundscale_ps(x, 0)
/* Pairs of words change places. */
#define swap_pairs(x) _mm512_rol_epi64(x, 32)
/* Which of the numbers of 64 bits, both not negative, are less; one bit each. */
#define longs_less(a, b) ((unsigned)_mm512_cmplt_epu64_mask(a, b))
/* 1 where a bit is set. */
#define ones_of_bits(bits) _mm512_maskz_mov_ps((__mmask16)(bits), _mm512_set1_ps(1))

#else

enum { KIN_PART_ROWS = 6, KIN_PART_FEW = 3, KIN_PART_DEEP = 128 };

typedef __m256 vec;
typedef __m256i words;
typedef __m256 truths;

#define vec_zero _mm256_setzero_ps
#define vec_all _mm256_set1_ps
#define vec_load _mm256_load_ps
#define vec_read _mm256_loadu_ps
#define vec_store _mm256_store_ps
#define vec_write _mm256_storeu_ps
#define vec_add _mm256_add_ps
#define vec_sub _mm256_sub_ps
#define vec_mul _mm256_mul_ps
#define vec_div _mm256_div_ps
#define vec_fma _mm256_fmadd_ps
#define vec_fnma _mm256_fnmadd_ps
#define vec_min _mm256_min_ps
#define vec_max _mm256_max_ps
#define vec_low _mm256_unpacklo_ps
#define vec_high _mm256_unpackhi_ps
#define vec_low_pairs(a, b) _mm256_castpd_ps(_mm256_unpacklo_pd(_mm256_castps_pd(a), _mm256_castps_pd(b)))
#define vec_high_pairs(a, b) _mm256_castpd_ps(_mm256_unpackhi_pd(_mm256_castps_pd(a), _mm256_castps_pd(b)))
#define vec_bits _mm256_castps_si256
#define words_float _mm256_castsi256_ps
#define words_and _mm256_and_si256
#define words_and_not _mm256_andnot_si256
#define words_or _mm256_or_si256
#define words_xor _mm256_xor_si256
#define words_sub _mm256_sub_epi32
#define words_all _mm256_set1_epi32
#define words_left _mm256_slli_epi32
#define words_right _mm256_srli_epi32
#define longs_all _mm256_set1_epi64x
#define less(a, b) _mm256_cmp_ps(a, b, _CMP_LT_OQ)
#define not_less(a, b) _mm256_cmp_ps(a, b, _CMP_NLT_UQ)
#define differ(a, b) _mm256_cmp_ps(a, b, _CMP_NEQ_UQ)
#define zero_unless(truths, x) _mm256_and_ps(truths, x)
#define choose(truths, yes, no) _mm256_blendv_ps(no, yes, truths)
#define any_of(truths) (_mm256_movemask_ps(truths) != 0)
#define either(a, b) _mm256_or_ps(a, b)
#define never() _mm256_setzero_ps()

/* All bits of the first n lanes, fewer than 8. */
WIDE static inline __m256i
first_lanes(int64_t n)
{
    static const int32_t some[2 * 8] = {-1, -1, -1, -1, -1, -1, -1, -1};
    return _mm256_loadu_si256((const __m256i *)(some + 8 - (n > 0 ? n : 0)));
}

/* Processors take long to write some lanes, which are few of all that is written. */
WIDE static inline __m256
vec_read_some(int64_t n, const float *at)
{
    return n >= 8 ? _mm256_loadu_ps(at) : _mm256_maskload_ps(at, first_lanes(n));
}

WIDE static inline __m256
vec_read_some_or(__m256 other, int64_t n, const float *at)
{
    __m256i some = first_lanes(n < 8 ? n : 8);
    return n >= 8 ? _mm256_loadu_ps(at) : _mm256_blendv_ps(other, _mm256_maskload_ps(at, some), _mm256_castsi256_ps(some));
}

WIDE static inline __m256
vec_keep_some(int64_t n, __m256 x)
{
    return n >= 8 ? x : _mm256_and_ps(x, _mm256_castsi256_ps(first_lanes(n)));
}

WIDE static inline void
vec_write_some(int64_t n, float *at, __m256 x)
{
    if (n >= 8)
        _mm256_storeu_ps(at, x);
    else if (n > 0)
        _mm256_maskstore_ps(at, first_lanes(n), x);
}

WIDE static inline __m256i
words_read_some(int64_t n, const uint32_t *at)
{
    return n >= 8 ? _mm256_loadu_si256((const __m256i *)at) : _mm256_maskload_epi32((const int *)at, first_lanes(n));
}

WIDE static inline void
words_write_some(int64_t n, uint32_t *at, __m256i x)
{
    if (n >= 8)
        _mm256_storeu_si256((__m256i *)at, x);
    else if (n > 0)
        _mm256_maskstore_epi32((int *)at, first_lanes(n), x);
}

WIDE static inline float
vec_sum(__m256 x)
{
    __m128 four = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

WIDE static inline float
vec_most(__m256 x)
{
    __m128 four = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
}

WIDE static inline __m256
scale_by_power(__m256 x, __m256 whole)
{
    __m256i exponent = _mm256_add_epi32(_mm256_cvtps_epi32(whole), _mm256_set1_epi32(127));
    return _mm256_mul_ps(x, _mm256_castsi256_ps(_mm256_slli_epi32(exponent, 23)));
}

#define round_to_whole(x) _mm256_round_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)
#define swap_pairs(x) _mm256_shuffle_epi32(x, 0xb1)
#define longs_less(a, b) ((unsigned)_mm256_movemask_pd(_mm256_castsi256_pd(_mm256_cmpgt_epi64(b, a))))

WIDE static inline __m256
ones_of_bits(unsigned bits)
{
    __m256i each = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
    __m256i set = _mm256_cmpeq_epi32(_mm256_and_si256(_mm256_set1_epi32((int)bits), each), each);
    return _mm256_and_ps(_mm256_castsi256_ps(set), _mm256_set1_ps(1));
}

#endif

/* The lanes that hold infinity or NaN. */
INLINE_WIDE truths
not_finite(vec x)
{
    return differ(vec_sub(x, x), vec_zero());
}

/* 2^whole * (the polynomial of the rest), as far from exp as the last place or two. x: from -88 to 88, or no number; anything comes of others. */
INLINE_WIDE vec
exponential(vec x)
{
    vec whole = round_to_whole(vec_mul(x, vec_all(1.44269504f)));
    vec rest = vec_fnma(whole, vec_all(0.693359375f), x), sum = vec_all(1.0f / 720);
    rest = vec_fnma(whole, vec_all(-2.12194440e-4f), rest);
    sum = vec_fma(sum, rest, vec_all(1.0f / 120));
    sum = vec_fma(sum, rest, vec_all(1.0f / 24));
    sum = vec_fma(sum, rest, vec_all(1.0f / 6));
    sum = vec_fma(sum, rest, vec_all(0.5f));
    sum = vec_fma(sum, rest, vec_all(1.0f));
    sum = vec_fma(sum, rest, vec_all(1.0f));
    return scale_by_power(sum, whole);
}

/* ---- parts of tiles ---- */

/* A tile has up to KIN_TILE_ROWS x KIN_TILE_COLUMNS results; as many as there are registers for are summed up at a time: KIN_PART_ROWS rows of two
 * vectors, or KIN_PART_FEW of all. With 16 lanes that is the whole tile. KIN_PART_DEEP rows of b go by before the next part, so that they are still in the
 * first cache for it: it has room for all rows of a panel only where they are read once. */
typedef struct {
    unsigned row, rows, column, columns;
} part;

/* How many of the rows that are left come next. With 8 lanes parts of four rows, or one or two, have too few sums to keep the processor busy. */
INLINE_WIDE unsigned
rows_of_part(unsigned left)
{
#if KIN_LANES == 16
    return left;
#else
    static const unsigned char rows[KIN_TILE_ROWS + 1] = {0, 1, 2, 3, 4, 5, 6, 4, 5, 6, 5, 6, 6, 5, 6};
    return rows[left];
#endif
}

/* The next one; the first is behind {0}. False: there is none. */
INLINE_WIDE bool
next_part(part *p, unsigned rows, unsigned columns)
{
    p->column += p->columns;
    if (p->column >= columns || p->rows == 0) {
        unsigned left = rows - p->row - p->rows;
        p->row += p->rows;
        p->column = 0;
        if (left == 0)
            return false;
        p->rows = rows_of_part(left);
    }
    unsigned most = p->rows <= KIN_PART_FEW ? KIN_TILE_COLUMNS : 2 * LANES;
    p->columns = columns - p->column < most ? columns - p->column : most;
    return true;
}

/* Vectors that hold so many columns. */
INLINE_WIDE unsigned
vectors_of(unsigned columns)
{
    return (columns + LANES - 1) / LANES;
}

/* Calls X(rows, vectors) for each size that a part can have, for a table [rows][vectors]. */
#if KIN_LANES == 16
#define EACH_PART_SIZE(X) \
    X(1, 1) X(1, 2) X(2, 1) X(2, 2) X(3, 1) X(3, 2) X(4, 1) X(4, 2) X(5, 1) X(5, 2) X(6, 1) X(6, 2) X(7, 1) X(7, 2) X(8, 1) X(8, 2) X(9, 1) X(9, 2) \
    X(10, 1) X(10, 2) X(11, 1) X(11, 2) X(12, 1) X(12, 2) X(13, 1) X(13, 2) X(14, 1) X(14, 2)
#else
#define EACH_PART_SIZE(X) \
    X(1, 1) X(1, 2) X(1, 3) X(1, 4) X(2, 1) X(2, 2) X(2, 3) X(2, 4) X(3, 1) X(3, 2) X(3, 3) X(3, 4) X(4, 1) X(4, 2) X(5, 1) X(5, 2) X(6, 1) X(6, 2)
#endif
enum { MOST_VECTORS = KIN_TILE_COLUMNS / LANES };

#endif
