/* Random numbers as PyTorch's CPU generator draws them, bit by bit: a Mersenne Twister (Matsumoto, Nishimura: mt19937). */
#ifndef KIN_TILES_MERSENNE_H
#define KIN_TILES_MERSENNE_H

#include <stdint.h>

enum { KIN_MERSENNE_WORDS = 624 };

/* Words from `next` on have not been drawn; at the end, all are made anew. */
typedef struct kin_mersenne {
    uint32_t words[KIN_MERSENNE_WORDS];
    uint32_t next; /* at most KIN_MERSENNE_WORDS */
} kin_mersenne;

#endif
