/* Mersenne Twister (mersenne.h). */
#include "core/kernels/mersenne.h"

#include <math.h>

#include "core/tiles/lanes.h"

#if defined(__x86_64__)

enum { WORDS = KIN_MERSENNE_WORDS, APART = 397, BITS = 53 /* of a draw that count */ };

/* n of the words from `at` on, up to 16, each made of itself, its neighbour and the one at `far`. */
AVX512 static inline void
twist_some(uint32_t *at, const uint32_t *far, int64_t n)
{
    __mmask16 some = lanes(n);
    __m512i own = _mm512_maskz_loadu_epi32(some, at), next = _mm512_maskz_loadu_epi32(some, at + 1);
    __m512i high = _mm512_set1_epi32((int)0x80000000u), matrix = _mm512_set1_epi32((int)0x9908b0dfu);
    __m512i mixed = _mm512_or_si512(_mm512_and_si512(own, high), _mm512_andnot_si512(high, next));
    __m512i made = _mm512_xor_si512(_mm512_maskz_loadu_epi32(some, far), _mm512_srli_epi32(mixed, 1));
    made = _mm512_mask_xor_epi32(made, _mm512_test_epi32_mask(next, _mm512_set1_epi32(1)), made, matrix);
    _mm512_mask_storeu_epi32(at, some, made);
}

AVX512 static void
twist(kin_mersenne *m)
{
    uint32_t *w = m->words, last = w[WORDS - 1];
    for (int i = 0; i < WORDS - APART; i += 16)
        twist_some(w + i, w + i + APART, WORDS - APART - i);
    for (int i = WORDS - APART; i < WORDS - 1; i += 16)
        twist_some(w + i, w + i + APART - WORDS, WORDS - 1 - i);
    uint32_t mixed = (last & 0x80000000u) | (w[0] & 0x7fffffffu);
    w[WORDS - 1] = w[APART - 1] ^ mixed >> 1 ^ (w[0] & 1 ? 0x9908b0dfu : 0);
    m->next = 0;
}

AVX512 static inline __m512i
temper(__m512i x)
{
    x = _mm512_xor_si512(x, _mm512_srli_epi32(x, 11));
    x = _mm512_xor_si512(x, _mm512_and_si512(_mm512_slli_epi32(x, 7), _mm512_set1_epi32((int)0x9d2c5680u)));
    x = _mm512_xor_si512(x, _mm512_and_si512(_mm512_slli_epi32(x, 15), _mm512_set1_epi32((int)0xefc60000u)));
    return _mm512_xor_si512(x, _mm512_srli_epi32(x, 18));
}

/* Which of 8 draws are below `limit`: of each the word that comes first is the upper one. */
AVX512 static inline unsigned
hits(__m512i words, __m512i limit)
{
    __m512i draws = _mm512_and_si512(_mm512_rol_epi64(temper(words), 32), _mm512_set1_epi64((1ll << BITS) - 1));
    return _mm512_cmplt_epu64_mask(draws, limit);
}

AVX512 static void
draw_pairs(const uint32_t *words, int64_t n, __m512i limit, float *to)
{
    for (int64_t i = 0; i < n; i += 16) {
        unsigned low = hits(_mm512_maskz_loadu_epi32(lanes(2 * (n - i)), words + 2 * i), limit);
        unsigned high = n - i > 8 ? hits(_mm512_maskz_loadu_epi32(lanes(2 * (n - i) - 16), words + 2 * i + 16), limit) : 0;
        _mm512_mask_storeu_ps(to + i, lanes(n - i), _mm512_maskz_mov_ps((__mmask16)(low | high << 8), _mm512_set1_ps(1)));
    }
}

/* A draw whose words are made at two times. */
AVX512 static void
draw_apart(kin_mersenne *m, __m512i limit, float *to)
{
    uint32_t pair[2] = {m->words[WORDS - 1]};
    twist(m);
    pair[1] = m->words[m->next++];
    draw_pairs(pair, 1, limit, to);
}

AVX512 void
kin_mersenne_bernoulli(kin_mersenne *m, double p, int64_t n, float *to)
{
    __m512i limit = _mm512_set1_epi64((int64_t)ceil(ldexp(p, BITS)));
    while (n > 0) {
        int64_t pairs = (WORDS - m->next) / 2;
        if (pairs == 0 && m->next < WORDS) {
            draw_apart(m, limit, to);
            pairs = 1;
        } else if (pairs == 0) {
            twist(m);
        } else {
            pairs = pairs < n ? pairs : n;
            draw_pairs(m->words + m->next, pairs, limit, to);
            m->next += (uint32_t)(2 * pairs);
        }
        to += pairs;
        n -= pairs;
    }
}

#else

void
kin_mersenne_bernoulli(kin_mersenne *m, double p, int64_t n, float *to)
{
}

#endif
