/* Relocations of AArch64 (object_machine.h): fields of 32-bit instructions. An address is the distance to a page (4 KiB) and
 * an offset in it. */
#if defined(__aarch64__)
#include <elf.h>
#include <string.h>

#include "core/object/object_machine.h"

const uint16_t kin_object_machine = EM_AARCH64;
const uint32_t kin_object_unwind = 0;
const unsigned char kin_object_jump[8] = {0xd0, 0xff, 0xff, 0x58, 0x00, 0x02, 0x1f, 0xd6}; /* ldr x16, [pc - 8]; br x16 */

static bool
set_field(unsigned char *at, int64_t value, unsigned bits, unsigned shift)
{
    uint32_t word, mask = ((1u << bits) - 1) << shift;
    memcpy(&word, at, 4);
    word = (word & ~mask) | ((uint32_t)value << shift & mask);
    memcpy(at, &word, 4);
    return true;
}

static bool
set_signed(unsigned char *at, int64_t value, unsigned bits, unsigned shift)
{
    int64_t limit = (int64_t)1 << (bits - 1);
    return value >= -limit && value < limit && set_field(at, value, bits, shift);
}

/* adr, adrp: the two low bits of the number stand apart from the others. */
static bool
set_split(unsigned char *at, int64_t value)
{
    return set_signed(at, value >> 2, 19, 5) && set_field(at, value & 3, 2, 29);
}

static int64_t
pages(uint64_t to, uint64_t from)
{
    return (int64_t)(to >> 12) - (int64_t)(from >> 12);
}

/* The place in the page, in units of what is loaded or stored. */
static bool
set_low(unsigned char *at, uint64_t value, unsigned unit)
{
    uint64_t low = value & 0xfff;
    return (low & ((1u << unit) - 1)) == 0 && set_field(at, (int64_t)(low >> unit), 12, 10);
}

bool
kin_object_relocate(const kin_relocation *r)
{
    uint64_t place = (uint64_t)(uintptr_t)r->at, value = r->symbol + r->addend, slot = r->slot + r->addend;
    int64_t distance = (int64_t)(value - place);
    switch (r->type) {
    case R_AARCH64_ABS64:
        memcpy(r->at, &value, 8);
        return true;
    case R_AARCH64_PREL64:
        memcpy(r->at, &distance, 8);
        return true;
    case R_AARCH64_PREL32: {
        int32_t word = (int32_t)distance;
        memcpy(r->at, &word, 4);
        return word == distance;
    }
    case R_AARCH64_CALL26:
    case R_AARCH64_JUMP26:
        return set_signed(r->at, distance >> 2, 26, 0);
    case R_AARCH64_CONDBR19:
    case R_AARCH64_LD_PREL_LO19:
        return set_signed(r->at, distance >> 2, 19, 5);
    case R_AARCH64_ADR_PREL_LO21:
        return set_split(r->at, distance);
    case R_AARCH64_ADR_PREL_PG_HI21:
        return set_split(r->at, pages(value, place));
    case R_AARCH64_ADR_GOT_PAGE:
        return set_split(r->at, pages(slot, place));
    case R_AARCH64_LD64_GOT_LO12_NC:
        return set_low(r->at, slot, 3);
    case R_AARCH64_ADD_ABS_LO12_NC:
    case R_AARCH64_LDST8_ABS_LO12_NC:
        return set_low(r->at, value, 0);
    case R_AARCH64_LDST16_ABS_LO12_NC:
        return set_low(r->at, value, 1);
    case R_AARCH64_LDST32_ABS_LO12_NC:
        return set_low(r->at, value, 2);
    case R_AARCH64_LDST64_ABS_LO12_NC:
        return set_low(r->at, value, 3);
    case R_AARCH64_LDST128_ABS_LO12_NC:
        return set_low(r->at, value, 4);
    default:
        return false;
    }
}
#endif
