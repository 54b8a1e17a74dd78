/* Kernels on disk: FOLDER/<structure>/<target>.kernel, with a readable text of the same name. A structure is a kernel's
 * loops; a target is a processor, the LLVM version and the code generator that made the object. Both are hashes in the names and
 * stored in full in the file, where they are compared: a read returns exactly what was asked for, whole and undamaged, or a miss with
 * its reason.
 *
 * Nothing here makes a compilation fail. Files are written under a temporary name and then renamed, so processes may share a folder.
 * The folder must belong to the user and be closed to others, because it holds machine code.
 */
#ifndef KIN_CODEGEN_STORE_H
#define KIN_CODEGEN_STORE_H

#include <stddef.h>
#include <stdint.h>

#include "core/diag/text.h"
#include "core/codegen/codegen.h"

typedef struct {
    const void *structure;
    size_t len;
    const char *target; /* "processor\nfeatures\nversion" */
    const char *about;  /* for people, as written beside the object; only for put */
} kin_store_key;

typedef struct {
    void *memory;       /* free() */
    const void *object; /* in memory */
    size_t len;
} kin_store_found;

typedef struct kin_store kin_store;

/* Makes the folder when it is missing. NULL with `why`. limit: bytes, 0 = no limit. */
kin_store *kin_store_open(const char *folder, uint64_t limit, kin_text *why);
void kin_store_close(kin_store *c);

/* KIN_STORE_HIT fills `out`. A damaged file is removed. */
kin_store_answer kin_store_get(kin_store *c, const kin_store_key *key, kin_store_found *out);
/* False with `why` the first time that it cannot be written; the cache is then only read. */
bool kin_store_put(kin_store *c, const kin_store_key *key, const void *object, size_t len, kin_text *why);
/* Files beyond the limit, those not used for longest first; put does it now and then. How many were removed. */
uint32_t kin_store_trim(kin_store *c);
void kin_store_remove(kin_store *c, const kin_store_key *key);

#endif
