/* An open hash table over keys that lie one after another in one byte array. */
#include "core/base/intern.h"

static uint32_t
hash_bytes(const unsigned char *p, size_t len)
{
    uint64_t h = 0x9e3779b97f4a7c15u ^ len;
    for (; len >= 8; p += 8, len -= 8) {
        uint64_t word;
        memcpy(&word, p, 8);
        h = (h ^ word) * 0xff51afd7ed558ccdu;
        h ^= h >> 32;
    }
    uint64_t last = 0;
    memcpy(&last, p, len);
    h = (h ^ last) * 0xc4ceb9fe1a85ec53u;
    return (uint32_t)(h ^ h >> 33);
}

static void
place(kin_intern *t, uint32_t number)
{
    uint32_t i = t->keys.at[number].hash & (t->cap - 1);
    while (t->table[i])
        i = (i + 1) & (t->cap - 1);
    t->table[i] = number + 1;
}

static bool
grow(kin_intern *t)
{
    uint32_t cap = t->cap ? t->cap * 2 : 64;
    uint32_t *table = calloc(cap, sizeof *table);
    if (table == NULL)
        return false;
    free(t->table);
    t->table = table;
    t->cap = cap;
    for (uint32_t k = 0; k < t->keys.len; k++)
        place(t, k);
    return true;
}

uint32_t
kin_intern_put(kin_intern *t, const void *key, size_t len, bool *fresh)
{
    if (fresh)
        *fresh = false;
    if (t->failed || len > UINT32_MAX / 2)
        return 0;
    if ((t->keys.len + 1) * 2 > t->cap && !grow(t)) {
        t->failed = true;
        return 0;
    }
    uint32_t hash = hash_bytes(key, len);
    for (uint32_t i = hash & (t->cap - 1); t->table[i]; i = (i + 1) & (t->cap - 1)) {
        const kin_intern_key *k = &t->keys.at[t->table[i] - 1];
        if (k->hash == hash && k->len == len && memcmp(t->bytes.at + k->at, key, len) == 0)
            return t->table[i] - 1;
    }
    kin_intern_key k = {.at = t->bytes.len, .len = (uint32_t)len, .hash = hash};
    if (kin_vec_reserve(&t->bytes, (uint32_t)len) != KIN_OK || kin_vec_push(&t->keys, k) != KIN_OK) {
        t->failed = true;
        return 0;
    }
    if (len)
        memcpy(t->bytes.at + k.at, key, len);
    t->bytes.len += (uint32_t)len;
    place(t, t->keys.len - 1);
    if (fresh)
        *fresh = true;
    return t->keys.len - 1;
}

void
kin_intern_clear(kin_intern *t)
{
    t->bytes.len = t->keys.len = 0;
    if (t->table)
        memset(t->table, 0, t->cap * sizeof *t->table);
}

void
kin_intern_deinit(kin_intern *t)
{
    kin_vec_deinit(&t->bytes);
    kin_vec_deinit(&t->keys);
    free(t->table);
    *t = (kin_intern){0};
}
