/* Sets of 64-bit words as sorted arrays. */
#ifndef KIN_BASE_WORDS_H
#define KIN_BASE_WORDS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

static inline int
kin_words_compare(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

static inline void
kin_words_sort(uint64_t *words, uint32_t n)
{
    if (n > 0)
        qsort(words, n, sizeof *words, kin_words_compare);
}

/* `sorted` by kin_words_sort. */
static inline bool
kin_words_have(const uint64_t *sorted, uint32_t n, uint64_t word)
{
    return n > 0 && bsearch(&word, sorted, n, sizeof *sorted, kin_words_compare) != NULL;
}

#endif
