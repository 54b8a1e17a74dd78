/* Mersenne Twister (mersenne.h), vectors at a time. */
#include <math.h>

#include "core/tiles/lanes.h"
#include "core/tiles/mersenne.h"

enum { WORDS = KIN_MERSENNE_WORDS, APART = 397, BITS = 53 /* of a draw that count */ };

/* n of the words from `at` on, as many as there are lanes or fewer, each made of itself, its neighbour and the one at `far`. */
WIDE static inline void
twist_some(uint32_t *at, const uint32_t *far, int64_t n)
{
    words own = words_read_some(n, at), next = words_read_some(n, at + 1);
    words high = words_all((int)0x80000000u), matrix = words_all((int)0x9908b0dfu);
    words mixed = words_or(words_and(own, high), words_and_not(high, next));
    words odd = words_sub(words_all(0), words_and(next, words_all(1))); /* all bits, or none */
    words made = words_xor(words_read_some(n, far), words_right(mixed, 1));
    words_write_some(n, at, words_xor(made, words_and(odd, matrix)));
}

WIDE static void
twist(kin_mersenne *m)
{
    uint32_t *w = m->words, last = w[WORDS - 1];
    for (int i = 0; i < WORDS - APART; i += LANES)
        twist_some(w + i, w + i + APART, WORDS - APART - i);
    for (int i = WORDS - APART; i < WORDS - 1; i += LANES)
        twist_some(w + i, w + i + APART - WORDS, WORDS - 1 - i);
    uint32_t mixed = (last & 0x80000000u) | (w[0] & 0x7fffffffu);
    w[WORDS - 1] = w[APART - 1] ^ mixed >> 1 ^ (w[0] & 1 ? 0x9908b0dfu : 0);
    m->next = 0;
}

WIDE static inline words
temper(words x)
{
    x = words_xor(x, words_right(x, 11));
    x = words_xor(x, words_and(words_left(x, 7), words_all((int)0x9d2c5680u)));
    x = words_xor(x, words_and(words_left(x, 15), words_all((int)0xefc60000u)));
    return words_xor(x, words_right(x, 18));
}

/* Which of LANES / 2 draws are below `limit`: of each the word that comes first is the upper one. */
WIDE static inline unsigned
hits(words two_each, words limit)
{
    words draws = words_and(swap_pairs(temper(two_each)), longs_all((1ll << BITS) - 1));
    return longs_less(draws, limit);
}

WIDE static void
draw_pairs(const uint32_t *from, int64_t n, words limit, float *to)
{
    for (int64_t i = 0; i < n; i += LANES) {
        unsigned low = hits(words_read_some(2 * (n - i), from + 2 * i), limit);
        unsigned high = n - i > LANES / 2 ? hits(words_read_some(2 * (n - i) - LANES, from + 2 * i + LANES), limit) : 0;
        vec_write_some(n - i, to + i, ones_of_bits(low | high << LANES / 2));
    }
}

/* A draw whose words are made at two times. */
WIDE static void
draw_apart(kin_mersenne *m, words limit, float *to)
{
    uint32_t pair[2] = {m->words[WORDS - 1]};
    twist(m);
    pair[1] = m->words[m->next++];
    draw_pairs(pair, 1, limit, to);
}

WIDE void
TILE(bernoulli)(kin_mersenne *m, double p, int64_t n, float *to)
{
    words limit = longs_all((int64_t)ceil(ldexp(p, BITS)));
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
