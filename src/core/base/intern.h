/* Numbers for byte strings: equal keys get the same number, counted from 0 in order of first appearance. Used wherever
 * structurally equal things are to be treated as one. A failed allocation is sticky (`failed`); put then returns 0.
 */
#ifndef KIN_BASE_INTERN_H
#define KIN_BASE_INTERN_H

#include <stdbool.h>
#include <stddef.h>

#include "core/base/table.h"
#include "core/base/vec.h"

typedef struct {
    uint32_t at, len;
} kin_intern_key;

typedef struct {
    KIN_VEC(unsigned char) bytes;
    KIN_VEC(kin_intern_key) keys;
    kin_table table;
    bool failed;
} kin_intern;

/* *fresh (may be NULL): whether the key is new. */
uint32_t kin_intern_put(kin_intern *t, const void *key, size_t len, bool *fresh);
/* Forgets all keys and keeps the memory. */
void kin_intern_clear(kin_intern *t);
void kin_intern_deinit(kin_intern *t);

#endif
