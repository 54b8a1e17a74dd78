/* Keys lie one after another in one byte array; a hash table holds their numbers. */
#include "core/base/intern.h"

#include "core/base/hash.h"

static uint32_t
add_key(kin_intern *t, const void *key, uint32_t len, uint64_t hash)
{
    kin_intern_key k = {.at = t->bytes.len, .len = len};
    if (kin_vec_reserve(&t->keys, 1) != KIN_OK || kin_vec_append(&t->bytes, (const unsigned char *)key, len) != KIN_OK ||
        kin_table_add(&t->table, hash, t->keys.len) != KIN_OK) {
        t->failed = true;
        return 0;
    }
    t->keys.at[t->keys.len] = k;
    return t->keys.len++;
}

uint32_t
kin_intern_put(kin_intern *t, const void *key, size_t len, bool *fresh)
{
    if (fresh)
        *fresh = false;
    if (t->failed || len > UINT32_MAX / 2)
        return 0;
    uint64_t hash = kin_hash_bytes(0, key, len);
    uint32_t n, at = 0;
    while ((n = kin_table_next(&t->table, hash, &at)) != KIN_TABLE_NONE) {
        const kin_intern_key *k = &t->keys.at[n];
        if (k->len == len && (len == 0 || memcmp(t->bytes.at + k->at, key, len) == 0))
            return n;
    }
    n = add_key(t, key, (uint32_t)len, hash);
    if (fresh)
        *fresh = !t->failed;
    return n;
}

void
kin_intern_clear(kin_intern *t)
{
    t->bytes.len = t->keys.len = 0;
    kin_table_clear(&t->table);
    t->failed = false;
}

void
kin_intern_deinit(kin_intern *t)
{
    kin_vec_deinit(&t->bytes);
    kin_vec_deinit(&t->keys);
    kin_table_deinit(&t->table);
    *t = (kin_intern){0};
}
