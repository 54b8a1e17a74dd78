/* Loads relocatable ELF objects, as LLVM writes them, into executable memory. Supports only what our code generation produces:
 * code, constants, references among them, and calls of the functions in runtime.def.
 */
#ifndef KIN_OBJECT_OBJECT_H
#define KIN_OBJECT_OBJECT_H

#include <stddef.h>

#include "core/base/status.h"
#include "core/diag/text.h"

typedef struct {
    const void *bytes;
    size_t len;
    void *entry; /* made: of the function whose name begins with `kernel` */
} kin_object_part;

typedef struct {
    void *memory;
    size_t bytes;
} kin_object;

/* All parts into one mapping: system calls are what loading costs. KIN_BREAK with `why` for what is not understood. */
kin_status kin_object_load(kin_object_part *parts, uint32_t n, kin_object *out, kin_text *why) KIN_MUST_CHECK;
void kin_object_unload(kin_object *o);
/* An object with one function of this one, and what it refers to: new memory. KIN_BREAK with `why`. */
kin_status kin_object_extract(const void *bytes, size_t len, const char *function, void **out, size_t *out_len, kin_text *why) KIN_MUST_CHECK;

/* The address of a function that generated code may call, or NULL (runtime.c). */
void *kin_runtime_find(const char *name);

#endif
