/* Gates of recurrent layers (gates.h). */
#include "core/kernels/gates.h"

#include "core/tiles/lanes.h"
#include "core/tiles/tile.h"

#if defined(__x86_64__)

/* 1 / (1 + e^-x), of |x| so that nothing overflows. */
AVX512 static inline __m512
sigmoid(__m512 x)
{
    __m512 one = _mm512_set1_ps(1.0f), limit = _mm512_set1_ps(88.0f);
    __m512 y = _mm512_min_ps(limit, _mm512_max_ps(_mm512_set1_ps(-88.0f), x)); /* NaN is the second operand: it stays */
    return _mm512_div_ps(one, _mm512_add_ps(one, exponential(_mm512_sub_ps(_mm512_setzero_ps(), y))));
}

/* Near 0 a polynomial, else 1 - 2 / (e^2|x| + 1) with the sign of x. */
AVX512 static inline __m512
hyperbolic(__m512 x)
{
    static const float c[] = {0.133314912f, -0.0537434953f, 0.020650579f, -0.00571703656f};
    __m512 a = _mm512_abs_ps(x), one = _mm512_set1_ps(1.0f), z = _mm512_mul_ps(x, x), sum = _mm512_set1_ps(c[3]);
    for (int i = 2; i >= 0; i--)
        sum = _mm512_fmadd_ps(sum, z, _mm512_set1_ps(c[i]));
    sum = _mm512_fmadd_ps(sum, z, _mm512_set1_ps(-0.333332839f));
    __m512 small = _mm512_fmadd_ps(_mm512_mul_ps(sum, z), x, x);
    __m512 twice = _mm512_min_ps(_mm512_set1_ps(40.0f), _mm512_add_ps(a, a));
    __m512 big = _mm512_sub_ps(one, _mm512_div_ps(_mm512_set1_ps(2.0f), _mm512_add_ps(one, exponential(twice))));
    __m512i sign = _mm512_and_si512(_mm512_castps_si512(x), _mm512_set1_epi32((int)0x80000000u));
    big = _mm512_castsi512_ps(_mm512_or_si512(_mm512_castps_si512(big), sign));
    return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(a, _mm512_set1_ps(0.625f), _CMP_LT_OQ), big, small);
}

AVX512 void
kin_gates_lstm(int64_t n, const float *gates, float *c, float *to, float *kept)
{
    for (int64_t j = 0; j < n; j += 16) {
        __mmask16 some = lanes(n - j);
        __m512 i = sigmoid(_mm512_maskz_loadu_ps(some, gates + j)), f = sigmoid(_mm512_maskz_loadu_ps(some, gates + n + j));
        __m512 g = hyperbolic(_mm512_maskz_loadu_ps(some, gates + 2 * n + j)), o = sigmoid(_mm512_maskz_loadu_ps(some, gates + 3 * n + j));
        __m512 next = _mm512_fmadd_ps(f, _mm512_maskz_loadu_ps(some, c + j), _mm512_mul_ps(i, g));
        _mm512_mask_storeu_ps(c + j, some, next);
        _mm512_mask_storeu_ps(to + j, some, _mm512_mul_ps(o, hyperbolic(next)));
        const __m512 values[] = {i, f, g, o, next};
        for (int v = 0; kept != NULL && v < 5; v++)
            _mm512_mask_storeu_ps(kept + v * n + j, some, values[v]);
    }
}

AVX512 void
kin_gates_gru(int64_t n, const float *from, const float *gates, const float *bias, const float *before, float *to, float *kept)
{
    for (int64_t j = 0; j < n; j += 16) {
        __mmask16 some = lanes(n - j);
        __m512 r = sigmoid(_mm512_add_ps(_mm512_maskz_loadu_ps(some, from + j), _mm512_maskz_loadu_ps(some, gates + j)));
        __m512 z = sigmoid(_mm512_add_ps(_mm512_maskz_loadu_ps(some, from + n + j), _mm512_maskz_loadu_ps(some, gates + n + j)));
        __m512 own = _mm512_maskz_loadu_ps(some, gates + 2 * n + j), old = _mm512_maskz_loadu_ps(some, before + j);
        if (bias != NULL)
            own = _mm512_add_ps(own, _mm512_maskz_loadu_ps(some, bias + j));
        __m512 next = hyperbolic(_mm512_fmadd_ps(r, own, _mm512_maskz_loadu_ps(some, from + 2 * n + j)));
        _mm512_mask_storeu_ps(to + j, some, _mm512_fmadd_ps(z, _mm512_sub_ps(old, next), next));
        const __m512 values[] = {r, z, next, own};
        for (int v = 0; kept != NULL && v < 4; v++)
            _mm512_mask_storeu_ps(kept + v * n + j, some, values[v]);
    }
}

/* The gradient of a sigmoid, and of a hyperbolic tangent, by their value. */
AVX512 static inline __m512
sigmoid_backward(__m512 grad, __m512 value)
{
    return _mm512_mul_ps(grad, _mm512_fnmadd_ps(value, value, value));
}

AVX512 static inline __m512
hyperbolic_backward(__m512 grad, __m512 value)
{
    return _mm512_mul_ps(grad, _mm512_fnmadd_ps(value, value, _mm512_set1_ps(1.0f)));
}

AVX512 void
kin_gates_lstm_backward(int64_t n, const float *kept, const float *c_before, const float *h, float *c, float *to)
{
    for (int64_t j = 0; j < n; j += 16) {
        __mmask16 some = lanes(n - j);
        __m512 value[5], back = _mm512_maskz_loadu_ps(some, h + j);
        for (int v = 0; v < 5; v++)
            value[v] = _mm512_maskz_loadu_ps(some, kept + v * n + j);
        __m512 state = hyperbolic(value[4]), old = _mm512_maskz_loadu_ps(some, c_before + j);
        __m512 grad = _mm512_add_ps(_mm512_maskz_loadu_ps(some, c + j), hyperbolic_backward(_mm512_mul_ps(back, value[3]), state));
        _mm512_mask_storeu_ps(to + j, some, sigmoid_backward(_mm512_mul_ps(grad, value[2]), value[0]));
        _mm512_mask_storeu_ps(to + n + j, some, sigmoid_backward(_mm512_mul_ps(grad, old), value[1]));
        _mm512_mask_storeu_ps(to + 2 * n + j, some, hyperbolic_backward(_mm512_mul_ps(grad, value[0]), value[2]));
        _mm512_mask_storeu_ps(to + 3 * n + j, some, sigmoid_backward(_mm512_mul_ps(back, state), value[3]));
        _mm512_mask_storeu_ps(c + j, some, _mm512_mul_ps(grad, value[1]));
    }
}

AVX512 void
kin_gates_gru_backward(int64_t n, const float *kept, const float *before, float *h, float *to_input, float *to_state)
{
    for (int64_t j = 0; j < n; j += 16) {
        __mmask16 some = lanes(n - j);
        __m512 back = _mm512_maskz_loadu_ps(some, h + j), r = _mm512_maskz_loadu_ps(some, kept + j), z = _mm512_maskz_loadu_ps(some, kept + n + j);
        __m512 next = _mm512_maskz_loadu_ps(some, kept + 2 * n + j), own = _mm512_maskz_loadu_ps(some, kept + 3 * n + j);
        __m512 old = _mm512_maskz_loadu_ps(some, before + j);
        __m512 new = hyperbolic_backward(_mm512_fnmadd_ps(back, z, back), next);
        const __m512 grads[] = {sigmoid_backward(_mm512_mul_ps(new, own), r), sigmoid_backward(_mm512_mul_ps(back, _mm512_sub_ps(old, next)), z), new};
        for (int v = 0; v < 3; v++) {
            _mm512_mask_storeu_ps(to_input + v * n + j, some, grads[v]);
            _mm512_mask_storeu_ps(to_state + v * n + j, some, v < 2 ? grads[v] : _mm512_mul_ps(new, r));
        }
        _mm512_mask_storeu_ps(h + j, some, _mm512_mul_ps(back, z));
    }
}

AVX512 void
kin_gates_tanh(int64_t n, const float *gates, float *to)
{
    for (int64_t j = 0; j < n; j += 16)
        _mm512_mask_storeu_ps(to + j, lanes(n - j), hyperbolic(_mm512_maskz_loadu_ps(lanes(n - j), gates + j)));
}

AVX512 void
kin_gates_relu(int64_t n, const float *gates, float *to)
{
    for (int64_t j = 0; j < n; j += 16) /* of a NaN and 0 the second is given */
        _mm512_mask_storeu_ps(to + j, lanes(n - j), _mm512_max_ps(_mm512_setzero_ps(), _mm512_maskz_loadu_ps(lanes(n - j), gates + j)));
}

/* Columns of `count` panels, at most four, `step` floats apart. */
AVX512 static inline __attribute__((always_inline)) void
multiply_panels(const int count, int64_t k, const float *a, const float *panel, int64_t step, int64_t columns, float *to, bool add)
{
    __m512 sums[4][2];
#pragma GCC unroll 4
    for (int p = 0; p < count; p++)
#pragma GCC unroll 2
        for (int h = 0; h < 2; h++) {
            int64_t left = columns - p * KIN_TILE_COLUMNS - h * 16;
            sums[p][h] = add && left > 0 ? _mm512_maskz_loadu_ps(lanes(left), to + p * KIN_TILE_COLUMNS + h * 16) : _mm512_setzero_ps();
        }
    for (int64_t l = 0; l < k; l++) {
        __m512 x = _mm512_set1_ps(a[l]);
#pragma GCC unroll 4
        for (int p = 0; p < count; p++) {
            const float *at = panel + p * step + l * KIN_TILE_COLUMNS;
            sums[p][0] = _mm512_fmadd_ps(x, _mm512_load_ps(at), sums[p][0]);
            sums[p][1] = _mm512_fmadd_ps(x, _mm512_load_ps(at + 16), sums[p][1]);
        }
    }
#pragma GCC unroll 4
    for (int p = 0; p < count; p++)
#pragma GCC unroll 2
        for (int h = 0; h < 2; h++) {
            int64_t left = columns - p * KIN_TILE_COLUMNS - h * 16;
            if (left > 0)
                _mm512_mask_storeu_ps(to + p * KIN_TILE_COLUMNS + h * 16, lanes(left), sums[p][h]);
        }
}

AVX512 void
kin_gates_multiply_row(int64_t columns, int64_t k, const float *a, const float *panels, float *to, bool add)
{
    int64_t j = 0, step = k * KIN_TILE_COLUMNS;
    for (; columns - j > 3 * KIN_TILE_COLUMNS; j += 4 * KIN_TILE_COLUMNS)
        multiply_panels(4, k, a, panels + j * k, step, columns - j, to + j, add);
    for (; j < columns; j += KIN_TILE_COLUMNS)
        multiply_panels(1, k, a, panels + j * k, step, columns - j, to + j, add);
}

#else

void
kin_gates_multiply_row(int64_t columns, int64_t k, const float *a, const float *panels, float *to, bool add)
{
}

void
kin_gates_lstm(int64_t n, const float *gates, float *c, float *to, float *kept)
{
}

void
kin_gates_gru(int64_t n, const float *from, const float *gates, const float *bias, const float *before, float *to, float *kept)
{
}

void
kin_gates_lstm_backward(int64_t n, const float *kept, const float *c_before, const float *h, float *c, float *to)
{
}

void
kin_gates_gru_backward(int64_t n, const float *kept, const float *before, float *h, float *to_input, float *to_state)
{
}

void
kin_gates_tanh(int64_t n, const float *gates, float *to)
{
}

void
kin_gates_relu(int64_t n, const float *gates, float *to)
{
}

#endif
