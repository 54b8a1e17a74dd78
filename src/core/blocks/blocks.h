/* Large blocks of memory, kept for reuse when they are released: the pages of a fresh one cost several times what a kernel needs to
 * fill it. Any thread may call; nothing here runs foreign code.
 *
 * What is kept is bounded (`limit`, and a small share for blocks whose pages cannot cheaply be offered to the kernel), is released after
 * some seconds without use, and can be reclaimed by the operating system when memory is short (MADV_FREE). A block is released by the address that it was
 * allocated at.
 */
#ifndef KIN_BLOCKS_BLOCKS_H
#define KIN_BLOCKS_BLOCKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { KIN_BLOCK_LEAST = 1 << 20 /* below it malloc keeps pages well enough */ };

typedef struct kin_blocks kin_blocks;
/* limit: bytes that may be kept. NULL without memory. */
kin_blocks *kin_blocks_new(size_t limit);
/* When nothing is in use. */
void kin_blocks_free(kin_blocks *p);

/* At least `bytes`, at a multiple of 64, contents undefined. NULL: bytes is less than KIN_BLOCK_LEAST, keeping is switched
 * off (limit 0), or there is no memory. */
void *kin_block_take(kin_blocks *p, size_t bytes);
/* The same for a short time, such as one run of a program, for any number of bytes: the block may be much larger, so that runs that need different amounts use the same one. */
void *kin_block_borrow(kin_blocks *p, size_t bytes);
void kin_block_give(kin_blocks *p, void *block);
/* What is too much goes. */
void kin_blocks_set_limit(kin_blocks *p, size_t limit);
/* All that is not in use goes. */
void kin_blocks_clear(kin_blocks *p);
/* Held, nobody is halfway through a change: for fork. */
void kin_blocks_lock(kin_blocks *p);
void kin_blocks_unlock(kin_blocks *p);

typedef struct {
    uint64_t taken, reused, dropped; /* takes, those that found a block, blocks unmapped */
    size_t kept, used;               /* bytes */
    uint32_t nkept, nused;
} kin_blocks_stats;
void kin_blocks_count(kin_blocks *p, kin_blocks_stats *out);

#endif
