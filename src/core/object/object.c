/* Loads small ELF objects of one kernel each into one mapping: an object's sections side by side, then a table of
 * outside functions with a jump for each; applies relocations and makes the pages executable. */
#include "core/object/object_machine.h"

#include <elf.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { STUB = 16 /* address, then a jump to [address] */ };

typedef struct {
    const unsigned char *bytes;
    size_t len;
    const Elf64_Ehdr *header;
    const Elf64_Shdr *sections;
    const Elf64_Sym *symbols;
    uint32_t nsymbols;
    const char *names;
    size_t *places;          /* of each section from the start of the mapping; SIZE_MAX = not loaded */
    size_t stubs, total;     /* where the stubs begin, one for each symbol; where the object ends */
    unsigned char *base;
    kin_text *why;
} loading;

static kin_status
refuse(loading *l, const char *what)
{
    kin_text_addf(l->why, "object: %s", what);
    return KIN_BREAK;
}

static bool
section_fits(const loading *l, const Elf64_Shdr *s)
{
    return s->sh_type == SHT_NOBITS || (s->sh_offset <= l->len && s->sh_size <= l->len - s->sh_offset);
}

static kin_status
read_headers(loading *l)
{
    l->header = (const Elf64_Ehdr *)l->bytes;
    if (l->len < sizeof *l->header || memcmp(l->bytes, ELFMAG, SELFMAG) || l->header->e_machine != kin_object_machine
        || l->header->e_type != ET_REL)
        return refuse(l, "not an object for this processor");
    if (l->header->e_shoff > l->len || (l->len - l->header->e_shoff) / sizeof(Elf64_Shdr) < l->header->e_shnum)
        return refuse(l, "cut off");
    l->sections = (const Elf64_Shdr *)(l->bytes + l->header->e_shoff);
    for (unsigned i = 0; i < l->header->e_shnum; i++) {
        const Elf64_Shdr *s = &l->sections[i];
        if (!section_fits(l, s))
            return refuse(l, "cut off");
        if (s->sh_type != SHT_SYMTAB)
            continue;
        l->symbols = (const Elf64_Sym *)(l->bytes + s->sh_offset);
        l->nsymbols = (uint32_t)(s->sh_size / sizeof *l->symbols);
        l->names = (const char *)l->bytes + l->sections[s->sh_link].sh_offset;
    }
    return l->symbols ? KIN_OK : refuse(l, "no symbols");
}

static size_t
aligned(size_t at, size_t align)
{
    return align > 1 ? (at + align - 1) / align * align : at;
}

static kin_status
place_sections(loading *l)
{
    l->places = malloc((l->header->e_shnum + 1u) * sizeof *l->places);
    if (l->places == NULL)
        return KIN_NOMEM;
    for (unsigned i = 0; i < l->header->e_shnum; i++) {
        const Elf64_Shdr *s = &l->sections[i];
        l->places[i] = SIZE_MAX;
        if (!(s->sh_flags & SHF_ALLOC) || s->sh_type == kin_object_unwind || s->sh_size == 0)
            continue;
        l->places[i] = aligned(l->total, s->sh_addralign);
        l->total = l->places[i] + s->sh_size;
    }
    l->stubs = aligned(l->total, STUB);
    l->total = l->stubs + (size_t)l->nsymbols * STUB;
    return KIN_OK;
}

static void
copy_sections(loading *l)
{
    for (unsigned i = 0; i < l->header->e_shnum; i++)
        if (l->places[i] != SIZE_MAX && l->sections[i].sh_type != SHT_NOBITS)
            memcpy(l->base + l->places[i], l->bytes + l->sections[i].sh_offset, l->sections[i].sh_size);
}

/* Fills the stub of symbol n; *address is where the symbol lies, or its jump for an outside function. */
static kin_status
resolve(loading *l, uint32_t n, uint64_t *address)
{
    if (n >= l->nsymbols)
        return refuse(l, "no such symbol");
    const Elf64_Sym *s = &l->symbols[n];
    unsigned char *stub = l->base + l->stubs + (size_t)n * STUB;
    uint64_t target;
    if (s->st_shndx == SHN_UNDEF) {
        target = (uint64_t)(uintptr_t)kin_runtime_find(l->names + s->st_name);
        if (target == 0) {
            kin_text_addf(l->why, "object: calls %s", l->names + s->st_name);
            return KIN_BREAK;
        }
        *address = (uint64_t)(uintptr_t)(stub + 8);
    } else if (s->st_shndx < l->header->e_shnum && l->places[s->st_shndx] != SIZE_MAX) {
        target = *address = (uint64_t)(uintptr_t)(l->base + l->places[s->st_shndx] + s->st_value);
    } else {
        return refuse(l, "a symbol in a section that is not loaded");
    }
    memcpy(stub, &target, 8);
    memcpy(stub + 8, kin_object_jump, 8);
    return KIN_OK;
}

static kin_status
relocate(loading *l, unsigned char *at, const Elf64_Rela *r)
{
    uint64_t symbol = 0;
    uint32_t n = (uint32_t)ELF64_R_SYM(r->r_info);
    KIN_TRY(resolve(l, n, &symbol));
    const kin_relocation all = {.type = ELF64_R_TYPE(r->r_info), .at = at, .addend = (uint64_t)r->r_addend, .symbol = symbol,
                                .slot = (uint64_t)(uintptr_t)(l->base + l->stubs + (size_t)n * STUB)};
    return kin_object_relocate(&all) ? KIN_OK : refuse(l, "a kind of relocation, or a distance, that is not supported");
}

static kin_status
relocate_all(loading *l)
{
    for (unsigned i = 0; i < l->header->e_shnum; i++) {
        const Elf64_Shdr *s = &l->sections[i];
        if (s->sh_type != SHT_RELA || s->sh_info >= l->header->e_shnum || l->places[s->sh_info] == SIZE_MAX)
            continue;
        for (size_t at = 0; at + sizeof(Elf64_Rela) <= s->sh_size; at += sizeof(Elf64_Rela)) {
            Elf64_Rela r;
            memcpy(&r, l->bytes + s->sh_offset + at, sizeof r);
            if (r.r_offset + 8 > l->sections[s->sh_info].sh_size + 4)
                return refuse(l, "a relocation outside its section");
            KIN_TRY(relocate(l, l->base + l->places[s->sh_info] + r.r_offset, &r));
        }
    }
    return KIN_OK;
}

static void *
find_kernel(const loading *l)
{
    for (uint32_t n = 0; n < l->nsymbols; n++)
        if (l->symbols[n].st_shndx < l->header->e_shnum && l->places[l->symbols[n].st_shndx] != SIZE_MAX
            && strncmp(l->names + l->symbols[n].st_name, "kernel", 6) == 0)
            return l->base + l->places[l->symbols[n].st_shndx] + l->symbols[n].st_value;
    return NULL;
}

/* Finds a place for each object, the first at 0. */
static kin_status
place_all(loading *all, uint32_t n, size_t *total)
{
    *total = 0;
    for (uint32_t i = 0; i < n; i++) {
        all[i].total = aligned(*total, 64);
        KIN_TRY(read_headers(&all[i]));
        KIN_TRY(place_sections(&all[i]));
        *total = all[i].total;
    }
    return KIN_OK;
}

static kin_status
load(loading *all, kin_object_part *parts, uint32_t n, kin_object *out)
{
    size_t total;
    KIN_TRY(place_all(all, n, &total));
    void *memory = mmap(NULL, total, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return KIN_NOMEM;
    *out = (kin_object){.memory = memory, .bytes = total};
    for (uint32_t i = 0; i < n; i++) {
        all[i].base = memory;
        copy_sections(&all[i]);
        KIN_TRY(relocate_all(&all[i]));
        parts[i].entry = find_kernel(&all[i]);
        if (parts[i].entry == NULL)
            return refuse(&all[i], "no entry");
    }
    __builtin___clear_cache(memory, (char *)memory + total);
    return mprotect(memory, total, PROT_READ | PROT_EXEC) == 0 ? KIN_OK : refuse(all, "memory that may not be executed");
}

kin_status
kin_object_load(kin_object_part *parts, uint32_t n, kin_object *out, kin_text *why)
{
    *out = (kin_object){0};
    loading *all = calloc(n ? n : 1, sizeof *all);
    if (all == NULL)
        return KIN_NOMEM;
    for (uint32_t i = 0; i < n; i++)
        all[i] = (loading){.bytes = parts[i].bytes, .len = parts[i].len, .why = why};
    kin_status s = n ? load(all, parts, n, out) : KIN_OK;
    for (uint32_t i = 0; i < n; i++)
        free(all[i].places);
    free(all);
    if (s != KIN_OK)
        kin_object_unload(out);
    return s;
}

void
kin_object_unload(kin_object *o)
{
    if (o->memory)
        munmap(o->memory, o->bytes);
    *o = (kin_object){0};
}

/* -- one function of several ------------------------------------------------------------------------------------- */

/* The section of the function; 0: there is no such function. */
static unsigned
section_of(const loading *l, const char *function)
{
    for (uint32_t n = 0; n < l->nsymbols; n++)
        if (l->symbols[n].st_shndx < l->header->e_shnum && strcmp(l->names + l->symbols[n].st_name, function) == 0)
            return l->symbols[n].st_shndx;
    return 0;
}

/* Keeps the sections that relocations of this one refer to; true: one was not kept before. False with a bad relocation, too: loading refuses it. */
static bool
keep_referred(const loading *l, const Elf64_Shdr *relocations, bool *kept)
{
    bool more = false;
    for (size_t at = 0; at + sizeof(Elf64_Rela) <= relocations->sh_size; at += sizeof(Elf64_Rela)) {
        Elf64_Rela r;
        memcpy(&r, l->bytes + relocations->sh_offset + at, sizeof r);
        uint32_t n = (uint32_t)ELF64_R_SYM(r.r_info);
        unsigned to = n < l->nsymbols ? l->symbols[n].st_shndx : 0;
        if (to == 0 || to >= l->header->e_shnum || kept[to])
            continue;
        kept[to] = more = true;
    }
    return more;
}

static void
keep_all(const loading *l, unsigned function, bool *kept)
{
    kept[function] = true;
    for (bool more = true; more;) {
        more = false;
        for (unsigned i = 0; i < l->header->e_shnum; i++) {
            const Elf64_Shdr *s = &l->sections[i];
            if (s->sh_type == SHT_RELA && s->sh_info < l->header->e_shnum && kept[s->sh_info]) {
                kept[i] = true;
                more |= keep_referred(l, s, kept);
            }
        }
    }
    for (unsigned i = 0; i < l->header->e_shnum; i++)
        kept[i] |= l->sections[i].sh_type == SHT_SYMTAB || l->sections[i].sh_type == SHT_STRTAB;
}

/* Writes the object to `out`, if it is not NULL: how long it is. Sections that are not kept have headers that say nothing, so that the others keep their numbers. */
static size_t
write_kept(const loading *l, const bool *kept, unsigned char *out)
{
    Elf64_Ehdr header = *l->header;
    size_t at = aligned(sizeof header, 8), headers = at;
    at += header.e_shnum * sizeof(Elf64_Shdr);
    header.e_shoff = headers;
    if (out != NULL)
        memcpy(out, &header, sizeof header);
    for (unsigned i = 0; i < header.e_shnum; i++) {
        Elf64_Shdr s = kept[i] ? l->sections[i] : (Elf64_Shdr){.sh_type = SHT_NULL};
        size_t len = s.sh_type == SHT_NOBITS || s.sh_type == SHT_NULL ? 0 : s.sh_size;
        at = len > 0 ? aligned(at, s.sh_addralign) : at;
        if (out != NULL && len > 0)
            memcpy(out + at, l->bytes + s.sh_offset, len);
        s.sh_offset = at;
        if (out != NULL)
            memcpy(out + headers + i * sizeof s, &s, sizeof s);
        at += len;
    }
    return at;
}

kin_status
kin_object_extract(const void *bytes, size_t len, const char *function, void **out, size_t *out_len, kin_text *why)
{
    loading l = {.bytes = bytes, .len = len, .why = why};
    KIN_TRY(read_headers(&l));
    unsigned section = section_of(&l, function);
    if (section == 0)
        return refuse(&l, "no such function");
    bool *kept = calloc(l.header->e_shnum, 1);
    if (kept != NULL)
        keep_all(&l, section, kept);
    *out_len = kept != NULL ? write_kept(&l, kept, NULL) : 0;
    *out = kept != NULL ? calloc(*out_len, 1) : NULL;
    if (*out != NULL)
        write_kept(&l, kept, *out);
    free(kept);
    return *out != NULL ? KIN_OK : KIN_NOMEM;
}
