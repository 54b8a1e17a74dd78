/* Vectors of 16 floats, for the files of this folder with AVX-512 code. */
#ifndef KIN_TILES_LANES_H
#define KIN_TILES_LANES_H

#if defined(__x86_64__)

#include <immintrin.h>
#include <stdint.h>

#define AVX512 __attribute__((target("avx512f")))
#define INLINE_AVX512 __attribute__((always_inline)) AVX512 static inline

/* The first n lanes, or all. */
AVX512 static inline __mmask16
lanes(int64_t n)
{
    return (__mmask16)(n >= 16 ? 0xffff : (1u << n) - 1);
}

/* 2^whole * (the polynomial of the rest), as far from exp as the last place or two. */
AVX512 static inline __m512
exponential(__m512 x)
{
    __m512 whole = _mm512_roundscale_ps(_mm512_mul_ps(x, _mm512_set1_ps(1.44269504f)), 0);
    __m512 rest = _mm512_fnmadd_ps(whole, _mm512_set1_ps(0.693359375f), x), sum = _mm512_set1_ps(1.0f / 720);
    rest = _mm512_fnmadd_ps(whole, _mm512_set1_ps(-2.12194440e-4f), rest);
    sum = _mm512_fmadd_ps(sum, rest, _mm512_set1_ps(1.0f / 120));
    sum = _mm512_fmadd_ps(sum, rest, _mm512_set1_ps(1.0f / 24));
    sum = _mm512_fmadd_ps(sum, rest, _mm512_set1_ps(1.0f / 6));
    sum = _mm512_fmadd_ps(sum, rest, _mm512_set1_ps(0.5f));
    sum = _mm512_fmadd_ps(sum, rest, _mm512_set1_ps(1.0f));
    sum = _mm512_fmadd_ps(sum, rest, _mm512_set1_ps(1.0f));
    return _mm512_scalef_ps(sum, whole);
}

#endif

#endif
