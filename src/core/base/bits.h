/* Numbers as the bits that they are kept in, and back. */
#ifndef KIN_BASE_BITS_H
#define KIN_BASE_BITS_H

#include <stdint.h>
#include <string.h>

#define KIN_BITS(NAME, FLOAT, WORD) \
    static inline WORD kin_bits_of_##NAME(FLOAT number) \
    { \
        WORD bits; \
        memcpy(&bits, &number, sizeof bits); \
        return bits; \
    } \
    static inline FLOAT kin_##NAME##_of_bits(WORD bits) \
    { \
        FLOAT number; \
        memcpy(&number, &bits, sizeof number); \
        return number; \
    }
KIN_BITS(float, float, uint32_t)
KIN_BITS(double, double, uint64_t)
#undef KIN_BITS

#endif
