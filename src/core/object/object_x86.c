/* Relocations of x86-64 (object_machine.h): 32-bit distances. */
#if defined(__x86_64__)
#include <elf.h>
#include <string.h>

#include "core/object/object_machine.h"

const uint16_t kin_object_machine = EM_X86_64;
const uint32_t kin_object_unwind = SHT_X86_64_UNWIND;
const unsigned char kin_object_jump[8] = {0xff, 0x25, 0xf2, 0xff, 0xff, 0xff, 0xcc, 0xcc}; /* jmp *-14(%rip) */

bool
kin_object_relocate(const kin_relocation *r)
{
    uint64_t place = (uint64_t)(uintptr_t)r->at, value = r->symbol + r->addend;
    switch (r->type) {
    case R_X86_64_64:
        memcpy(r->at, &value, 8);
        return true;
    case R_X86_64_PC32:
    case R_X86_64_PLT32:
        break;
    case R_X86_64_GOTPCREL:
    case R_X86_64_GOTPCRELX:
    case R_X86_64_REX_GOTPCRELX:
        value = r->slot + r->addend;
        break;
    default:
        return false;
    }
    int64_t distance = (int64_t)(value - place);
    int32_t word = (int32_t)distance;
    memcpy(r->at, &word, 4);
    return word == distance;
}
#endif
