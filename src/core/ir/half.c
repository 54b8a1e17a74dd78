/* The 16-bit floating-point formats, by their bits. */
#include "core/ir/half.h"

#include <math.h>

#include "core/base/bits.h"

/* A quotient by a power of two, rounded to an integer with ties to even. */
static uint32_t
shift_rounded(uint32_t bits, unsigned shift)
{
    uint32_t kept = bits >> shift, rest = bits & ((1u << shift) - 1), half = 1u << (shift - 1);
    return kept + (rest > half || (rest == half && (kept & 1)));
}

uint16_t
kin_f16_from_float(float f)
{
    uint32_t bits = kin_bits_of_float(f), sign = bits >> 16 & 0x8000, rest = bits & 0x7fffffff;
    if (rest >= 0x7f800000) /* infinite, NaN */
        return (uint16_t)(sign | 0x7c00 | (rest > 0x7f800000 ? 0x200 : 0));
    int exponent = (int)(rest >> 23) - 127;
    if (exponent >= 16)
        return (uint16_t)(sign | 0x7c00);
    if (exponent >= -14) /* a carry out of the fraction raises the exponent, up to infinity */
        return (uint16_t)(sign | (shift_rounded(rest, 13) - (112u << 10)));
    if (exponent < -25)
        return (uint16_t)sign;
    return (uint16_t)(sign | shift_rounded((rest & 0x7fffff) | 0x800000, (unsigned)(-exponent - 1)));
}

float
kin_f16_to_float(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000) << 16, exponent = h >> 10 & 31, fraction = h & 0x3ff;
    if (exponent == 31)
        return kin_float_of_bits(sign | 0x7f800000 | fraction << 13);
    if (exponent == 0)
        return (sign ? -1.0f : 1.0f) * ldexpf((float)fraction, -24);
    return kin_float_of_bits(sign | (exponent + 112) << 23 | fraction << 13);
}

uint16_t
kin_bf16_from_float(float f)
{
    uint32_t bits = kin_bits_of_float(f);
    if ((bits & 0x7fffffff) > 0x7f800000)
        return 0x7fc0;
    return (uint16_t)shift_rounded(bits, 16);
}

float
kin_bf16_to_float(uint16_t h)
{
    return kin_float_of_bits((uint32_t)h << 16);
}
