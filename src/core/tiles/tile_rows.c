/* Rows of numbers (tile.h): sums, limits, exponentials, filters for each channel of its own. */
#include <math.h>

#include "core/tiles/lanes.h"

WIDE void
TILE(scale)(const float *x, int64_t n, float by, float *to)
{
    vec factor = vec_all(by);
    for (int64_t i = 0; i < n; i += LANES) {
        int64_t some = n - i;
        vec_write_some(some, to + i, vec_mul(vec_read_some(some, x + i), factor));
    }
}

WIDE void
TILE(add)(const float *x, int64_t n, float *to)
{
    for (int64_t i = 0; i < n; i += LANES) {
        int64_t some = n - i;
        vec_write_some(some, to + i, vec_add(vec_read_some(some, to + i), vec_read_some(some, x + i)));
    }
}

WIDE void
TILE(copy)(const float *x, int64_t n, float *to)
{
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        vec_write(to + i, vec_read(x + i));
    if (i < n)
        vec_write_some(n - i, to + i, vec_read_some(n - i, x + i));
}

WIDE void
TILE(clear)(int64_t n, float *to)
{
    for (int64_t i = 0; i < n; i += LANES)
        vec_write_some(n - i, to + i, vec_zero());
}

WIDE void
TILE(finish)(unsigned rows, unsigned columns, float *c, int64_t ldc, const float *bias, bool limited, float least, float most)
{
    vec low = vec_all(least), high = vec_all(most);
    for (unsigned j = 0; j < columns; j += LANES) {
        int64_t some = (int64_t)columns - j;
        vec more = bias == NULL ? vec_zero() : vec_read_some(some, bias + j);
        for (unsigned i = 0; i < rows; i++) {
            float *at = c + i * ldc + j;
            vec v = vec_read_some(some, at);
            if (bias != NULL)
                v = vec_add(v, more);
            if (limited) /* where one operand is no number these give the second */
                v = vec_min(high, vec_max(low, v));
            vec_write_some(some, at, v);
        }
    }
}

WIDE void
TILE(filter)(int64_t n, unsigned taps, const float *const *x, const float *const *factors, bool add, float *to)
{
    int64_t i = 0;
    for (; i + 4 * LANES <= n; i += 4 * LANES) {
        vec s0 = add ? vec_read(to + i) : vec_zero(), s1 = add ? vec_read(to + i + LANES) : vec_zero();
        vec s2 = add ? vec_read(to + i + 2 * LANES) : vec_zero(), s3 = add ? vec_read(to + i + 3 * LANES) : vec_zero();
        for (unsigned t = 0; t < taps; t++) {
            const float *a = x[t] + i, *b = factors[t] + i;
            s0 = vec_fma(vec_read(a), vec_read(b), s0);
            s1 = vec_fma(vec_read(a + LANES), vec_read(b + LANES), s1);
            s2 = vec_fma(vec_read(a + 2 * LANES), vec_read(b + 2 * LANES), s2);
            s3 = vec_fma(vec_read(a + 3 * LANES), vec_read(b + 3 * LANES), s3);
        }
        vec_write(to + i, s0);
        vec_write(to + i + LANES, s1);
        vec_write(to + i + 2 * LANES, s2);
        vec_write(to + i + 3 * LANES, s3);
    }
    for (; i < n; i += LANES) {
        int64_t some = n - i;
        vec sum = add ? vec_read_some(some, to + i) : vec_zero();
        for (unsigned t = 0; t < taps; t++)
            sum = vec_fma(vec_read_some(some, x[t] + i), vec_read_some(some, factors[t] + i), sum);
        vec_write_some(some, to + i, sum);
    }
}

WIDE float
TILE(largest)(const float *x, int64_t n)
{
    vec least = vec_all(-INFINITY), most = least;
    truths strange = never();
    for (int64_t i = 0; i < n; i += LANES) {
        vec v = vec_read_some_or(least, n - i, x + i);
        strange = either(strange, differ(v, v));
        most = vec_max(most, v);
    }
    return any_of(strange) ? NAN : vec_most(most);
}

WIDE float
TILE(exponentials)(float *x, int64_t n, float largest)
{
    vec from = vec_all(largest), low = vec_all(-87.3f), sum = vec_zero();
    for (int64_t i = 0; i < n; i += LANES) {
        int64_t some = n - i;
        vec v = vec_sub(vec_read_some(some, x + i), from);
        v = vec_keep_some(some, zero_unless(not_less(v, low), exponential(v))); /* NaN counts */
        vec_write_some(some, x + i, v);
        sum = vec_add(sum, v);
    }
    return vec_sum(sum);
}

/* One vector of four results. */
INLINE_WIDE void
filter_vector(int64_t some, unsigned lines, unsigned taps, const float *x, int64_t line, int64_t tap, int64_t next, const float *factors,
              int64_t factor_line, int64_t factor_tap, float *to, int64_t to_next)
{
    vec s0 = vec_zero(), s1 = s0, s2 = s0, s3 = s0;
    for (unsigned i = 0; i < lines; i++)
        for (unsigned j = 0; j < taps; j++) {
            vec f = vec_read_some(some, factors + i * factor_line + j * factor_tap);
            const float *at = x + i * line + j * tap;
            s0 = vec_fma(vec_read_some(some, at), f, s0);
            s1 = vec_fma(vec_read_some(some, at + next), f, s1);
            s2 = vec_fma(vec_read_some(some, at + 2 * next), f, s2);
            s3 = vec_fma(vec_read_some(some, at + 3 * next), f, s3);
        }
    vec_write_some(some, to, s0);
    vec_write_some(some, to + to_next, s1);
    vec_write_some(some, to + 2 * to_next, s2);
    vec_write_some(some, to + 3 * to_next, s3);
}

WIDE void
TILE(filter_four)(int64_t n, unsigned lines, unsigned taps, const float *x, int64_t line, int64_t tap, int64_t next,
                  const float *factors, int64_t factor_line, int64_t factor_tap, float *to, int64_t to_next)
{
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        filter_vector(LANES, lines, taps, x + i, line, tap, next, factors + i, factor_line, factor_tap, to + i, to_next);
    if (i < n)
        filter_vector(n - i, lines, taps, x + i, line, tap, next, factors + i, factor_line, factor_tap, to + i, to_next);
}
