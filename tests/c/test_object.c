/* Taking one function out of an object of several: a small object of two functions, one of which reads a constant. */
#include "core/object/object.h"

#include <elf.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"

#if defined(__x86_64__)

enum { NOTHING, FIRST, SECOND, CONSTANTS, RELOCATIONS, SYMBOLS, NAMES, SECTIONS };

typedef struct {
    Elf64_Ehdr header;
    unsigned char first[8], second[8]; /* mov $7, %eax; ret -- mov constant(%rip), %eax; ret */
    int32_t constant[2];
    Elf64_Rela relocation;
    Elf64_Sym symbols[4];
    char names[24];
    Elf64_Shdr sections[SECTIONS];
} object;

#define SECTION(part, type, flags) {.sh_type = (type), .sh_flags = (flags), .sh_offset = offsetof(object, part), .sh_size = sizeof ((object *)0)->part, .sh_addralign = 8}

static const object two = {
    .header = {.e_ident = ELFMAG, .e_type = ET_REL, .e_machine = EM_X86_64, .e_shoff = offsetof(object, sections), .e_shnum = SECTIONS},
    .first = {0xb8, 7, 0, 0, 0, 0xc3},
    .second = {0x8b, 0x05, 0, 0, 0, 0, 0xc3},
    .constant = {41, 42},
    .relocation = {.r_offset = 2, .r_info = ELF64_R_INFO(3, R_X86_64_PC32), .r_addend = 4 - 4},
    .symbols = {{0}, {.st_name = 1, .st_shndx = FIRST}, {.st_name = 10, .st_shndx = SECOND}, {.st_shndx = CONSTANTS}},
    .names = "\0kernel.0\0kernel.1",
    .sections = {[FIRST] = SECTION(first, SHT_PROGBITS, SHF_ALLOC), [SECOND] = SECTION(second, SHT_PROGBITS, SHF_ALLOC), [CONSTANTS] = SECTION(constant, SHT_PROGBITS, SHF_ALLOC),
                 [RELOCATIONS] = {.sh_type = SHT_RELA, .sh_info = SECOND, .sh_offset = offsetof(object, relocation), .sh_size = sizeof(Elf64_Rela)},
                 [SYMBOLS] = {.sh_type = SHT_SYMTAB, .sh_link = NAMES, .sh_offset = offsetof(object, symbols), .sh_size = sizeof two.symbols},
                 [NAMES] = SECTION(names, SHT_STRTAB, 0)},
};

static void
check_both(void)
{
    kin_text why = {0};
    kin_object loaded;
    kin_object_part parts[2];
    void *made[2] = {NULL, NULL};
    bool ok = true;
    for (unsigned i = 0; i < 2; i++) {
        ok &= kin_object_extract(&two, sizeof two, i == 0 ? "kernel.0" : "kernel.1", &made[i], &parts[i].len, &why) == KIN_OK;
        parts[i].bytes = made[i];
    }
    if (CHECK(ok) && CHECK(kin_object_load(parts, 2, &loaded, &why) == KIN_OK)) {
        int (*first)(void), (*second)(void);
        memcpy(&first, &parts[0].entry, sizeof first);
        memcpy(&second, &parts[1].entry, sizeof second);
        CHECK(first() == 7);
        CHECK(second() == 42);
        kin_object_unload(&loaded);
    }
    CHECK(parts[0].len < parts[1].len); /* it has neither the constants nor the relocation */
    free(made[0]);
    free(made[1]);
    kin_text_deinit(&why);
}

static void
refuse(size_t len, const char *function, const char *expected)
{
    kin_text why = {0};
    void *made = NULL;
    size_t made_len;
    CHECK(kin_object_extract(&two, len, function, &made, &made_len, &why) == KIN_BREAK);
    CHECK(why.len > 0 && strstr(why.at, expected) != NULL);
    free(made);
    kin_text_deinit(&why);
}

int
main(void)
{
    check_both();
    refuse(sizeof two, "kernel.2", "no such function");
    refuse(sizeof two - 1, "kernel.0", "cut off");
    refuse(20, "kernel.0", "not an object");
    return check_report("object");
}

#else

int
main(void)
{
    return 0;
}

#endif
