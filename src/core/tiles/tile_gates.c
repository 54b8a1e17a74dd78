/* The arithmetic on the gates of recurrent layers (tile.h). Functions are as exact as those of kernels (1 to 3 ulp) and keep NaNs. */
#include "core/tiles/lanes.h"

enum { PANELS = LANES / 4 /* of a matrix that are multiplied at once: as many sums as there are registers for */ };

/* 1 / (1 + e^-x), of |x| so that nothing overflows. */
INLINE_WIDE vec
sigmoid(vec x)
{
    vec one = vec_all(1.0f), limit = vec_all(88.0f);
    vec y = vec_min(limit, vec_max(vec_all(-88.0f), x)); /* NaN is the second operand: it stays */
    return vec_div(one, vec_add(one, exponential(vec_sub(vec_zero(), y))));
}

/* Near 0 a polynomial, else 1 - 2 / (e^2|x| + 1) with the sign of x. */
INLINE_WIDE vec
hyperbolic(vec x)
{
    static const float c[] = {0.133314912f, -0.0537434953f, 0.020650579f, -0.00571703656f};
    words sign_bit = words_all((int)0x80000000u), sign = words_and(vec_bits(x), sign_bit);
    vec a = words_float(words_and_not(sign_bit, vec_bits(x))), one = vec_all(1.0f), z = vec_mul(x, x), sum = vec_all(c[3]);
    for (int i = 2; i >= 0; i--)
        sum = vec_fma(sum, z, vec_all(c[i]));
    sum = vec_fma(sum, z, vec_all(-0.333332839f));
    vec small = vec_fma(vec_mul(sum, z), x, x);
    vec twice = vec_min(vec_all(40.0f), vec_add(a, a));
    vec big = vec_sub(one, vec_div(vec_all(2.0f), vec_add(one, exponential(twice))));
    big = words_float(words_or(vec_bits(big), sign));
    return choose(less(a, vec_all(0.625f)), small, big);
}

WIDE void
TILE(gates_lstm)(int64_t n, const float *gates, float *c, float *to, float *kept)
{
    for (int64_t j = 0; j < n; j += LANES) {
        int64_t some = n - j;
        vec i = sigmoid(vec_read_some(some, gates + j)), f = sigmoid(vec_read_some(some, gates + n + j));
        vec g = hyperbolic(vec_read_some(some, gates + 2 * n + j)), o = sigmoid(vec_read_some(some, gates + 3 * n + j));
        vec next = vec_fma(f, vec_read_some(some, c + j), vec_mul(i, g));
        vec_write_some(some, c + j, next);
        vec_write_some(some, to + j, vec_mul(o, hyperbolic(next)));
        const vec values[] = {i, f, g, o, next};
        for (int v = 0; kept != NULL && v < 5; v++)
            vec_write_some(some, kept + v * n + j, values[v]);
    }
}

WIDE void
TILE(gates_gru)(int64_t n, const float *from, const float *gates, const float *bias, const float *before, float *to, float *kept)
{
    for (int64_t j = 0; j < n; j += LANES) {
        int64_t some = n - j;
        vec r = sigmoid(vec_add(vec_read_some(some, from + j), vec_read_some(some, gates + j)));
        vec z = sigmoid(vec_add(vec_read_some(some, from + n + j), vec_read_some(some, gates + n + j)));
        vec own = vec_read_some(some, gates + 2 * n + j), old = vec_read_some(some, before + j);
        if (bias != NULL)
            own = vec_add(own, vec_read_some(some, bias + j));
        vec next = hyperbolic(vec_fma(r, own, vec_read_some(some, from + 2 * n + j)));
        vec_write_some(some, to + j, vec_fma(z, vec_sub(old, next), next));
        const vec values[] = {r, z, next, own};
        for (int v = 0; kept != NULL && v < 4; v++)
            vec_write_some(some, kept + v * n + j, values[v]);
    }
}

/* The gradient of a sigmoid, and of a hyperbolic tangent, by their value. */
INLINE_WIDE vec
sigmoid_backward(vec grad, vec value)
{
    return vec_mul(grad, vec_fnma(value, value, value));
}

INLINE_WIDE vec
hyperbolic_backward(vec grad, vec value)
{
    return vec_mul(grad, vec_fnma(value, value, vec_all(1.0f)));
}

WIDE void
TILE(gates_lstm_backward)(int64_t n, const float *kept, const float *c_before, const float *h, float *c, float *to)
{
    for (int64_t j = 0; j < n; j += LANES) {
        int64_t some = n - j;
        vec value[5], back = vec_read_some(some, h + j);
        for (int v = 0; v < 5; v++)
            value[v] = vec_read_some(some, kept + v * n + j);
        vec state = hyperbolic(value[4]), old = vec_read_some(some, c_before + j);
        vec grad = vec_add(vec_read_some(some, c + j), hyperbolic_backward(vec_mul(back, value[3]), state));
        vec_write_some(some, to + j, sigmoid_backward(vec_mul(grad, value[2]), value[0]));
        vec_write_some(some, to + n + j, sigmoid_backward(vec_mul(grad, old), value[1]));
        vec_write_some(some, to + 2 * n + j, hyperbolic_backward(vec_mul(grad, value[0]), value[2]));
        vec_write_some(some, to + 3 * n + j, sigmoid_backward(vec_mul(back, state), value[3]));
        vec_write_some(some, c + j, vec_mul(grad, value[1]));
    }
}

WIDE void
TILE(gates_gru_backward)(int64_t n, const float *kept, const float *before, float *h, float *to_input, float *to_state)
{
    for (int64_t j = 0; j < n; j += LANES) {
        int64_t some = n - j;
        vec back = vec_read_some(some, h + j), r = vec_read_some(some, kept + j), z = vec_read_some(some, kept + n + j);
        vec next = vec_read_some(some, kept + 2 * n + j), own = vec_read_some(some, kept + 3 * n + j);
        vec old = vec_read_some(some, before + j);
        vec new = hyperbolic_backward(vec_fnma(back, z, back), next);
        const vec grads[] = {sigmoid_backward(vec_mul(new, own), r), sigmoid_backward(vec_mul(back, vec_sub(old, next)), z), new};
        for (int v = 0; v < 3; v++) {
            vec_write_some(some, to_input + v * n + j, grads[v]);
            vec_write_some(some, to_state + v * n + j, v < 2 ? grads[v] : vec_mul(new, r));
        }
        vec_write_some(some, h + j, vec_mul(back, z));
    }
}

WIDE void
TILE(gates_tanh)(int64_t n, const float *gates, float *to)
{
    for (int64_t j = 0; j < n; j += LANES)
        vec_write_some(n - j, to + j, hyperbolic(vec_read_some(n - j, gates + j)));
}

WIDE void
TILE(gates_relu)(int64_t n, const float *gates, float *to)
{
    for (int64_t j = 0; j < n; j += LANES) /* of a NaN and 0 the second is given */
        vec_write_some(n - j, to + j, vec_max(vec_zero(), vec_read_some(n - j, gates + j)));
}

/* Columns of `count` panels, `step` floats apart. */
INLINE_WIDE void
multiply_panels(const int count, int64_t k, const float *a, const float *panel, int64_t step, int64_t columns, float *to, bool add)
{
    enum { PARTS = KIN_TILE_COLUMNS / LANES };
    vec sums[PANELS][PARTS];
#pragma GCC unroll 4
    for (int p = 0; p < count; p++)
#pragma GCC unroll 4
        for (int h = 0; h < PARTS; h++) {
            int64_t left = columns - p * KIN_TILE_COLUMNS - h * LANES;
            sums[p][h] = add && left > 0 ? vec_read_some(left, to + p * KIN_TILE_COLUMNS + h * LANES) : vec_zero();
        }
    for (int64_t l = 0; l < k; l++) {
        vec x = vec_all(a[l]);
#pragma GCC unroll 4
        for (int p = 0; p < count; p++)
#pragma GCC unroll 4
            for (int h = 0; h < PARTS; h++)
                sums[p][h] = vec_fma(x, vec_load(panel + p * step + l * KIN_TILE_COLUMNS + h * LANES), sums[p][h]);
    }
#pragma GCC unroll 4
    for (int p = 0; p < count; p++)
#pragma GCC unroll 4
        for (int h = 0; h < PARTS; h++) {
            int64_t left = columns - p * KIN_TILE_COLUMNS - h * LANES;
            if (left > 0)
                vec_write_some(left, to + p * KIN_TILE_COLUMNS + h * LANES, sums[p][h]);
        }
}

WIDE void
TILE(gates_multiply_row)(int64_t columns, int64_t k, const float *a, const float *panels, float *to, bool add)
{
    int64_t j = 0, step = k * KIN_TILE_COLUMNS;
    for (; columns - j > (PANELS - 1) * KIN_TILE_COLUMNS; j += PANELS * KIN_TILE_COLUMNS)
        multiply_panels(PANELS, k, a, panels + j * k, step, columns - j, to + j, add);
    for (; j < columns; j += KIN_TILE_COLUMNS)
        multiply_panels(1, k, a, panels + j * k, step, columns - j, to + j, add);
}
