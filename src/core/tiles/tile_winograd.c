/* The transforms of Winograd's minimal filtering (winograd.h), 16 channels or filters at a time. Rows and columns are transformed alike, so each transform is a
 * function of four or three vectors, applied to the rows and then to the columns.
 */
#include "core/tiles/tile.h"

#if defined(__x86_64__)

#include "core/tiles/lanes.h"

#define INLINE __attribute__((always_inline)) AVX512 static inline

/* The lanes that hold infinity or NaN. */
INLINE __mmask16
not_finite(__m512 x)
{
    return _mm512_cmp_ps_mask(_mm512_sub_ps(x, x), _mm512_setzero_ps(), _CMP_NEQ_UQ);
}

/* What four neighbours of the image become. */
INLINE void
change_image(__m512 *x, int step)
{
    __m512 a = x[0], b = x[step], c = x[2 * step], d = x[3 * step];
    x[0] = _mm512_sub_ps(a, c);
    x[step] = _mm512_add_ps(b, c);
    x[2 * step] = _mm512_sub_ps(c, b);
    x[3 * step] = _mm512_sub_ps(b, d);
}

AVX512 void
kin_tile_winograd_image(int64_t channels, const float *const *seen, float *to, int64_t to_step)
{
    for (int64_t c = 0; c < channels; c += 16) {
        __m512 x[16];
#pragma GCC unroll 16
        for (int i = 0; i < 16; i++)
            x[i] = _mm512_loadu_ps(seen[i] + c);
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++)
            change_image(x + i, 4);
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++)
            change_image(x + 4 * i, 1);
#pragma GCC unroll 16
        for (int i = 0; i < 16; i++)
            _mm512_store_ps(to + i * to_step + c, x[i]);
    }
}

/* What three taps in a row become: four. */
INLINE void
change_taps(const __m512 *x, int step, __m512 *y, int y_step)
{
    __m512 half = _mm512_set1_ps(0.5f), ends = _mm512_mul_ps(half, _mm512_add_ps(x[0], x[2 * step])), middle = _mm512_mul_ps(half, x[step]);
    y[0] = x[0];
    y[y_step] = _mm512_add_ps(ends, middle);
    y[2 * y_step] = _mm512_sub_ps(ends, middle);
    y[3 * y_step] = x[2 * step];
}

AVX512 void
kin_tile_winograd_filters(int64_t n, const float *taps, int64_t tap_step, float *to, int64_t to_step)
{
    for (int64_t i = 0; i < n; i += 16) {
        __m512 x[9], y[12], z[16];
#pragma GCC unroll 9
        for (int t = 0; t < 9; t++)
            x[t] = _mm512_load_ps(taps + t * tap_step + i);
#pragma GCC unroll 3
        for (int t = 0; t < 3; t++)
            change_taps(x + t, 3, y + t, 3);
#pragma GCC unroll 4
        for (int t = 0; t < 4; t++)
            change_taps(y + 3 * t, 1, z + 4 * t, 1);
#pragma GCC unroll 16
        for (int t = 0; t < 16; t++)
            _mm512_store_ps(to + t * to_step + i, z[t]);
    }
}

/* Back from four to three. */
INLINE void
restore_taps(const __m512 *x, int step, __m512 *y, int y_step)
{
    y[0] = x[0];
    y[y_step] = _mm512_sub_ps(x[step], x[2 * step]);
    y[2 * y_step] = x[3 * step];
}

AVX512 void
kin_tile_winograd_restore(int64_t n, const float *from, int64_t from_step, float *taps, int64_t tap_step)
{
    for (int64_t i = 0; i < n; i += 16) {
        __m512 x[16], y[12], z[9];
#pragma GCC unroll 16
        for (int t = 0; t < 16; t++)
            x[t] = _mm512_load_ps(from + t * from_step + i);
#pragma GCC unroll 4
        for (int t = 0; t < 4; t++)
            restore_taps(x + t, 4, y + t, 4);
#pragma GCC unroll 3
        for (int t = 0; t < 3; t++)
            restore_taps(y + 4 * t, 1, z + 3 * t, 1);
#pragma GCC unroll 9
        for (int t = 0; t < 9; t++)
            _mm512_store_ps(taps + t * tap_step + i, z[t]);
    }
}

/* What four products become: two results. */
INLINE void
change_products(const __m512 *x, int step, __m512 *y, int y_step)
{
    __m512 sum = _mm512_add_ps(x[step], x[2 * step]), apart = _mm512_sub_ps(x[step], x[2 * step]);
    y[0] = _mm512_add_ps(x[0], sum);
    y[y_step] = _mm512_sub_ps(apart, x[3 * step]);
}

AVX512 bool
kin_tile_winograd_results(unsigned columns, const float *products, int64_t step, float *const *to)
{
    __mmask16 strange = 0;
    for (unsigned c = 0; c < columns; c += 16) {
        __m512 x[16], y[8], z[4];
#pragma GCC unroll 16
        for (int i = 0; i < 16; i++)
            x[i] = _mm512_load_ps(products + i * step + c);
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++)
            change_products(x + i, 4, y + i, 4);
#pragma GCC unroll 2
        for (int i = 0; i < 2; i++)
            change_products(y + 4 * i, 1, z + 2 * i, 1);
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++) {
            strange |= not_finite(z[i]);
            if (to[i] != NULL)
                _mm512_storeu_ps(to[i] + c, z[i]);
        }
    }
    return strange == 0;
}

/* What two neighbours that come back become. */
INLINE void
change_back(const __m512 *x, int step, __m512 *y, int y_step)
{
    y[0] = x[0];
    y[y_step] = _mm512_add_ps(x[0], x[step]);
    y[2 * y_step] = _mm512_sub_ps(x[0], x[step]);
    y[3 * y_step] = _mm512_sub_ps(_mm512_setzero_ps(), x[step]);
}

AVX512 void
kin_tile_winograd_back(unsigned filters, const float *const *seen, int64_t from, float *to, int64_t to_step)
{
    __mmask16 mask = lanes(filters);
    __m512 x[4], y[8], z[16];
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++)
        x[i] = _mm512_maskz_loadu_ps(mask, seen[i] + from);
#pragma GCC unroll 2
    for (int j = 0; j < 2; j++)
        change_back(x + j, 2, y + j, 2);
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++)
        change_back(y + 2 * i, 1, z + 4 * i, 1);
#pragma GCC unroll 16
    for (int i = 0; i < 16; i++)
        _mm512_mask_storeu_ps(to + i * to_step, mask, z[i]);
}

/* What four sums become: three taps. */
INLINE void
change_sums(const __m512 *x, int step, __m512 *y, int y_step)
{
    __m512 half = _mm512_set1_ps(0.5f), sum = _mm512_mul_ps(half, _mm512_add_ps(x[step], x[2 * step]));
    y[0] = _mm512_add_ps(x[0], sum);
    y[y_step] = _mm512_mul_ps(half, _mm512_sub_ps(x[step], x[2 * step]));
    y[2 * y_step] = _mm512_add_ps(sum, x[3 * step]);
}

AVX512 bool
kin_tile_winograd_taps(unsigned n, const float *sums, int64_t step, float *to, int64_t to_step)
{
    __mmask16 strange = 0;
    for (unsigned c = 0; c < n; c += 16) {
        __m512 x[16], y[12], z[9];
#pragma GCC unroll 16
        for (int i = 0; i < 16; i++)
            x[i] = _mm512_load_ps(sums + i * step + c);
#pragma GCC unroll 4
        for (int j = 0; j < 4; j++)
            change_sums(x + j, 4, y + j, 4);
#pragma GCC unroll 3
        for (int i = 0; i < 3; i++)
            change_sums(y + 4 * i, 1, z + 3 * i, 1);
#pragma GCC unroll 9
        for (int i = 0; i < 9; i++) {
            strange |= not_finite(z[i]);
            _mm512_storeu_ps(to + i * to_step + c, z[i]);
        }
    }
    return strange == 0;
}

#else

void
kin_tile_winograd_image(int64_t channels, const float *const *seen, float *to, int64_t to_step)
{
}

void
kin_tile_winograd_filters(int64_t n, const float *taps, int64_t tap_step, float *to, int64_t to_step)
{
}

void
kin_tile_winograd_restore(int64_t n, const float *from, int64_t from_step, float *taps, int64_t tap_step)
{
}

bool
kin_tile_winograd_results(unsigned columns, const float *products, int64_t step, float *const *to)
{
    return true;
}

void
kin_tile_winograd_back(unsigned filters, const float *const *seen, int64_t from, float *to, int64_t to_step)
{
}

bool
kin_tile_winograd_taps(unsigned n, const float *sums, int64_t step, float *to, int64_t to_step)
{
    return true;
}

#endif
