/* Kernels on disk: FOLDER/<structure>/<target>.kernel, with a text of the same name for people. A structure is a kernel's
 * loops; a target is a processor, the LLVM and the code generation that made the object. Both are hashes in the names and
 * written out in the file, where they are compared: what is read is what was asked for, whole and undamaged, or a miss that
 * knows why.
 *
 * Nothing here fails a compilation. Files appear whole (written beside, then renamed), so processes may share a folder.
 * The folder must belong to the user and be closed to others: it holds machine code.
 */
#ifndef KIN_CODEGEN_CACHE_H
#define KIN_CODEGEN_CACHE_H

#include <stddef.h>
#include <stdint.h>

#include "core/diag/text.h"
#include "core/program/program.h"

typedef struct {
    const void *structure;
    size_t len;
    const char *target; /* "processor\nfeatures\nversion" */
    const char *about;  /* for people, as written beside the object; only for put */
} kin_cache_key;

typedef struct {
    void *memory;       /* free() */
    const void *object; /* in memory */
    size_t len;
} kin_cache_found;

typedef struct kin_cache kin_cache;

/* Makes the folder when it is missing. NULL with `why`. limit: bytes, 0 = no limit. */
kin_cache *kin_cache_open(const char *folder, uint64_t limit, kin_text *why);
void kin_cache_close(kin_cache *c);

/* KIN_CACHE_HIT fills `out`. A damaged file is removed. */
kin_cache_answer kin_cache_get(kin_cache *c, const kin_cache_key *key, kin_cache_found *out);
/* False with `why` the first time that it cannot be written; the cache is then only read. */
bool kin_cache_put(kin_cache *c, const kin_cache_key *key, const void *object, size_t len, kin_text *why);
/* Files beyond the limit, those not used for longest first; put does it now and then. How many were removed. */
uint32_t kin_cache_trim(kin_cache *c);
void kin_cache_remove(kin_cache *c, const kin_cache_key *key);

#endif
