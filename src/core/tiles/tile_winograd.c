/* The transforms of Winograd's minimal filtering (winograd.h), a vector of channels or filters at a time. Rows and columns are transformed alike, so each transform is a
 * function of four or three vectors, applied to the rows and then to the columns.
 */
#include "core/tiles/lanes.h"

/* What four neighbours of the image become. */
INLINE_WIDE void
change_image(vec *x, int step)
{
    vec a = x[0], b = x[step], c = x[2 * step], d = x[3 * step];
    x[0] = vec_sub(a, c);
    x[step] = vec_add(b, c);
    x[2 * step] = vec_sub(c, b);
    x[3 * step] = vec_sub(b, d);
}

WIDE void
TILE(winograd_image)(int64_t channels, const float *const *seen, float *to, int64_t to_step)
{
    for (int64_t c = 0; c < channels; c += LANES) {
        vec x[16];
#pragma GCC unroll 16
        for (int i = 0; i < 16; i++)
            x[i] = vec_read(seen[i] + c);
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++)
            change_image(x + i, 4);
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++)
            change_image(x + 4 * i, 1);
#pragma GCC unroll 16
        for (int i = 0; i < 16; i++)
            vec_store(to + i * to_step + c, x[i]);
    }
}

/* What three taps in a row become: four. */
INLINE_WIDE void
change_taps(const vec *x, int step, vec *y, int y_step)
{
    vec half = vec_all(0.5f), ends = vec_mul(half, vec_add(x[0], x[2 * step])), middle = vec_mul(half, x[step]);
    y[0] = x[0];
    y[y_step] = vec_add(ends, middle);
    y[2 * y_step] = vec_sub(ends, middle);
    y[3 * y_step] = x[2 * step];
}

WIDE void
TILE(winograd_filters)(int64_t n, const float *taps, int64_t tap_step, float *to, int64_t to_step)
{
    for (int64_t i = 0; i < n; i += LANES) {
        vec x[9], y[12], z[16];
#pragma GCC unroll 9
        for (int t = 0; t < 9; t++)
            x[t] = vec_load(taps + t * tap_step + i);
#pragma GCC unroll 3
        for (int t = 0; t < 3; t++)
            change_taps(x + t, 3, y + t, 3);
#pragma GCC unroll 4
        for (int t = 0; t < 4; t++)
            change_taps(y + 3 * t, 1, z + 4 * t, 1);
#pragma GCC unroll 16
        for (int t = 0; t < 16; t++)
            vec_store(to + t * to_step + i, z[t]);
    }
}

/* Back from four to three. */
INLINE_WIDE void
restore_taps(const vec *x, int step, vec *y, int y_step)
{
    y[0] = x[0];
    y[y_step] = vec_sub(x[step], x[2 * step]);
    y[2 * y_step] = x[3 * step];
}

WIDE void
TILE(winograd_restore)(int64_t n, const float *from, int64_t from_step, float *taps, int64_t tap_step)
{
    for (int64_t i = 0; i < n; i += LANES) {
        vec x[16], y[12], z[9];
#pragma GCC unroll 16
        for (int t = 0; t < 16; t++)
            x[t] = vec_load(from + t * from_step + i);
#pragma GCC unroll 4
        for (int t = 0; t < 4; t++)
            restore_taps(x + t, 4, y + t, 4);
#pragma GCC unroll 3
        for (int t = 0; t < 3; t++)
            restore_taps(y + 4 * t, 1, z + 3 * t, 1);
#pragma GCC unroll 9
        for (int t = 0; t < 9; t++)
            vec_store(taps + t * tap_step + i, z[t]);
    }
}

/* What four products become: two results. */
INLINE_WIDE void
change_products(const vec *x, int step, vec *y, int y_step)
{
    vec sum = vec_add(x[step], x[2 * step]), apart = vec_sub(x[step], x[2 * step]);
    y[0] = vec_add(x[0], sum);
    y[y_step] = vec_sub(apart, x[3 * step]);
}

WIDE bool
TILE(winograd_results)(unsigned columns, const float *products, int64_t step, float *const *to)
{
    truths strange = never();
    for (unsigned c = 0; c < columns; c += LANES) {
        vec x[16], y[8], z[4];
#pragma GCC unroll 16
        for (int i = 0; i < 16; i++)
            x[i] = vec_load(products + i * step + c);
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++)
            change_products(x + i, 4, y + i, 4);
#pragma GCC unroll 2
        for (int i = 0; i < 2; i++)
            change_products(y + 4 * i, 1, z + 2 * i, 1);
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++) {
            strange = either(strange, not_finite(z[i]));
            if (to[i] != NULL)
                vec_write(to[i] + c, z[i]);
        }
    }
    return !any_of(strange);
}

/* What two neighbours that come back become. */
INLINE_WIDE void
change_back(const vec *x, int step, vec *y, int y_step)
{
    y[0] = x[0];
    y[y_step] = vec_add(x[0], x[step]);
    y[2 * y_step] = vec_sub(x[0], x[step]);
    y[3 * y_step] = vec_sub(vec_zero(), x[step]);
}

WIDE void
TILE(winograd_back)(unsigned filters, const float *const *seen, int64_t from, float *to, int64_t to_step)
{
    for (int64_t f = 0; f < filters; f += LANES) {
        int64_t some = filters - f;
        vec x[4], y[8], z[16];
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++)
            x[i] = vec_read_some(some, seen[i] + from + f);
#pragma GCC unroll 2
        for (int j = 0; j < 2; j++)
            change_back(x + j, 2, y + j, 2);
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++)
            change_back(y + 2 * i, 1, z + 4 * i, 1);
#pragma GCC unroll 16
        for (int i = 0; i < 16; i++)
            vec_write_some(some, to + i * to_step + f, z[i]);
    }
}

/* What four sums become: three taps. */
INLINE_WIDE void
change_sums(const vec *x, int step, vec *y, int y_step)
{
    vec half = vec_all(0.5f), sum = vec_mul(half, vec_add(x[step], x[2 * step]));
    y[0] = vec_add(x[0], sum);
    y[y_step] = vec_mul(half, vec_sub(x[step], x[2 * step]));
    y[2 * y_step] = vec_add(sum, x[3 * step]);
}

WIDE bool
TILE(winograd_taps)(unsigned n, const float *sums, int64_t step, float *to, int64_t to_step)
{
    truths strange = never();
    for (unsigned c = 0; c < n; c += LANES) {
        vec x[16], y[12], z[9];
#pragma GCC unroll 16
        for (int i = 0; i < 16; i++)
            x[i] = vec_load(sums + i * step + c);
#pragma GCC unroll 4
        for (int j = 0; j < 4; j++)
            change_sums(x + j, 4, y + j, 4);
#pragma GCC unroll 3
        for (int i = 0; i < 3; i++)
            change_sums(y + 4 * i, 1, z + 3 * i, 1);
#pragma GCC unroll 9
        for (int i = 0; i < 9; i++) {
            strange = either(strange, not_finite(z[i]));
            vec_write(to + i * to_step + c, z[i]);
        }
    }
    return !any_of(strange);
}
