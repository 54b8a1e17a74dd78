/* The hash function: words are mixed by multiplying them to twice their width and folding the product. It gives the same values on every machine, so
 * file names may depend on it; it does not withstand somebody who searches for collisions.
 */
#ifndef KIN_BASE_HASH_H
#define KIN_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* One more word. */
static inline uint64_t
kin_hash_word(uint64_t hash, uint64_t word)
{
    __extension__ typedef unsigned __int128 wide;
    wide product = (wide)(hash ^ word ^ 0x9e3779b97f4a7c15u) * 0xd6e8feb86659fd93u;
    return (uint64_t)product ^ (uint64_t)(product >> 64);
}

/* More bytes; kin_hash_bytes(0, bytes, len) hashes them alone. */
static inline uint64_t
kin_hash_bytes(uint64_t hash, const void *bytes, size_t len)
{
    const unsigned char *at = bytes;
    uint64_t word, n = len;
    for (; len >= 8; at += 8, len -= 8) {
        memcpy(&word, at, 8);
        hash = kin_hash_word(hash, word) + 0x2545f4914f6cdd1du;
    }
    word = 0;
    if (len > 0)
        memcpy(&word, at, len);
    return kin_hash_word(kin_hash_word(hash, word), n);
}

static inline uint64_t
kin_hash_pointer(const void *p)
{
    return kin_hash_word(0, (uintptr_t)p);
}

#endif
