/* Releases what compiling leaves behind: a heap larger than steps need, and pages of the compiler's own code, which a step does not run. Done once a graph
 * has run a few times, because a training step has no room for them at its peak. */
#define _GNU_SOURCE
#include "py/training/training_priv.h"

#include <link.h>
#include <malloc.h>
#include <sys/mman.h>
#include <unistd.h>

/* Pages of the file that nobody has written to: what is run again comes back from the system's cache. */
static void
drop_code_pages(const struct dl_phdr_info *object)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    for (int i = 0; i < object->dlpi_phnum; i++) {
        const ElfW(Phdr) *part = &object->dlpi_phdr[i];
        if (part->p_type != PT_LOAD || part->p_flags & PF_W)
            continue;
        uintptr_t begin = (object->dlpi_addr + part->p_vaddr + page - 1) / page * page, end = (object->dlpi_addr + part->p_vaddr + part->p_memsz) / page * page;
        if (begin < end)
            (void)madvise((void *)begin, end - begin, MADV_DONTNEED);
    }
}

/* Is it the object that this code is in? */
static int
look_at(struct dl_phdr_info *object, size_t size, void *arg)
{
    uintptr_t here = (uintptr_t)drop_code_pages;
    for (int i = 0; i < object->dlpi_phnum; i++) {
        const ElfW(Phdr) *part = &object->dlpi_phdr[i];
        uintptr_t begin = object->dlpi_addr + part->p_vaddr;
        if (part->p_type == PT_LOAD && here >= begin && here < begin + part->p_memsz) {
            drop_code_pages(object);
            return 1;
        }
    }
    return 0;
}

void
launch_settle_memory(void)
{
#ifdef __GLIBC__
    malloc_trim(0);
#endif
    dl_iterate_phdr(look_at, NULL);
}
