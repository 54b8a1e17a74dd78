/* A hash map from four numbers to one, with which the recorder avoids duplicate values and facts. */
#include "py/recorder/rec.h"

#include "core/base/hash.h"
#include "core/base/table.h"

typedef struct {
    uint32_t key[4], value;
} map_entry;

struct rec_map {
    KIN_VEC(map_entry) entries;
    kin_table numbers;
};

struct rec_map *
rec_map_new(void)
{
    return calloc(1, sizeof(struct rec_map));
}

void
rec_map_free(struct rec_map *m)
{
    if (m == NULL)
        return;
    kin_vec_deinit(&m->entries);
    kin_table_deinit(&m->numbers);
    free(m);
}

bool
rec_map_reserve(struct rec_map *m, uint32_t more)
{
    return kin_vec_reserve(&m->entries, more) == KIN_OK && kin_table_reserve(&m->numbers, more) == KIN_OK;
}

uint32_t *
rec_map_at(struct rec_map *m, uint32_t a, uint32_t b, uint32_t c, uint32_t d)
{
    map_entry entry = {.key = {a, b, c, d}};
    uint64_t hash = kin_hash_word(kin_hash_word(0, (uint64_t)a << 32 | b), (uint64_t)c << 32 | d);
    uint32_t n, at = 0;
    while ((n = kin_table_next(&m->numbers, hash, &at)) != KIN_TABLE_NONE)
        if (memcmp(m->entries.at[n].key, entry.key, sizeof entry.key) == 0)
            return &m->entries.at[n].value;
    n = m->entries.len;
    if (kin_vec_push(&m->entries, entry) != KIN_OK)
        return NULL;
    if (kin_table_add(&m->numbers, hash, n) != KIN_OK) {
        m->entries.len = n;
        return NULL;
    }
    return &m->entries.at[n].value;
}
