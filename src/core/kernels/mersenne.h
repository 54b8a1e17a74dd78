/* Random numbers as PyTorch's CPU generator draws them, bit by bit: a Mersenne Twister (Matsumoto, Nishimura: mt19937), vectors at a time. */
#ifndef KIN_KERNELS_MERSENNE_H
#define KIN_KERNELS_MERSENNE_H

#include <stdint.h>

enum { KIN_MERSENNE_WORDS = 624 };

/* Words from `next` on have not been drawn; at the end, all are made anew. */
typedef struct {
    uint32_t words[KIN_MERSENNE_WORDS];
    uint32_t next; /* at most KIN_MERSENNE_WORDS */
} kin_mersenne;

/* to[i]: 1 with probability p, else 0; a draw takes two words, 53 bits of which count. kin_tile_here() is asked before. */
void kin_mersenne_bernoulli(kin_mersenne *m, double p, int64_t n, float *to);

#endif
