/* A hash table from keys to numbers, by open addressing. The caller keeps the keys, by number, and compares them:
 *
 *     kin_table t = {0};
 *     uint32_t n, at = 0;
 *     while ((n = kin_table_next(&t, hash, &at)) != KIN_TABLE_NONE)
 *         if (is_equal(keys[n], key)) return n;
 *     KIN_TRY(kin_table_add(&t, hash, new_number));
 *
 * A zeroed table is a valid empty one.
 */
#ifndef KIN_BASE_TABLE_H
#define KIN_BASE_TABLE_H

#include <stdint.h>

#include "core/base/status.h"

#define KIN_TABLE_NONE UINT32_MAX

typedef struct {
    uint32_t hash, number; /* number + 1; 0: free */
} kin_table_place;

typedef struct {
    kin_table_place *places;
    uint32_t size, used;   /* size: a power of two, or 0 */
} kin_table;

/* Of the numbers entered under a hash like this one the next; *at is 0 before the first. */
static inline uint32_t
kin_table_next(const kin_table *t, uint64_t hash, uint32_t *at)
{
    for (uint32_t i = (uint32_t)hash + *at; t->size > 0; i++) {
        const kin_table_place *p = &t->places[i & (t->size - 1)];
        ++*at;
        if (p->number == 0)
            return KIN_TABLE_NONE;
        if (p->hash == (uint32_t)hash)
            return p->number - 1;
    }
    return KIN_TABLE_NONE;
}

/* Makes room for so many more: entering them cannot fail then. */
kin_status kin_table_reserve(kin_table *t, uint32_t more) KIN_MUST_CHECK;
/* Enters a number (of a key that is not in there). A failed growth leaves the table as it was. */
kin_status kin_table_add(kin_table *t, uint64_t hash, uint32_t number) KIN_MUST_CHECK;
/* Takes out a number that was entered under this hash. */
void kin_table_remove(kin_table *t, uint64_t hash, uint32_t number);
/* Forgets everything and keeps the memory. */
void kin_table_clear(kin_table *t);
void kin_table_deinit(kin_table *t);

#endif
