/* A hash map from four numbers to one, for the recorder's deduplication. Open addressing, grows at 2/3. */
#include "py/recorder/rec.h"

typedef struct {
    uint32_t key[4], value, used;
} map_entry;

struct rec_map {
    map_entry *at;
    uint32_t mask, used;
};

struct rec_map *
rec_map_new(void)
{
    struct rec_map *m = calloc(1, sizeof *m);
    if (m == NULL)
        return NULL;
    m->at = calloc(256, sizeof *m->at);
    if (m->at == NULL) {
        free(m);
        return NULL;
    }
    m->mask = 255;
    return m;
}

void
rec_map_free(struct rec_map *m)
{
    if (m != NULL) {
        free(m->at);
        free(m);
    }
}

static map_entry *
find_entry(struct rec_map *m, const uint32_t key[4])
{
    uint64_t h = 0x9E3779B97F4A7C15u;
    for (int i = 0; i < 4; i++)
        h = (h ^ key[i]) * 0xFF51AFD7ED558CCDu, h ^= h >> 29;
    for (uint32_t i = (uint32_t)h & m->mask;; i = (i + 1) & m->mask) {
        map_entry *e = &m->at[i];
        if (!e->used || memcmp(e->key, key, sizeof e->key) == 0)
            return e;
    }
}

static bool
grow_map(struct rec_map *m)
{
    map_entry *old = m->at;
    uint32_t n = m->mask + 1;
    m->at = calloc((size_t)n * 2, sizeof *m->at);
    if (m->at == NULL) {
        m->at = old;
        return false;
    }
    m->mask = n * 2 - 1;
    for (uint32_t i = 0; i < n; i++)
        if (old[i].used)
            *find_entry(m, old[i].key) = old[i];
    free(old);
    return true;
}

uint32_t *
rec_map_at(struct rec_map *m, uint32_t a, uint32_t b, uint32_t c, uint32_t d)
{
    if (m->used * 3 > m->mask * 2 && !grow_map(m))
        return NULL;
    uint32_t key[4] = {a, b, c, d};
    map_entry *e = find_entry(m, key);
    if (!e->used) {
        memcpy(e->key, key, sizeof key);
        e->used = 1;
        m->used++;
    }
    return &e->value;
}
