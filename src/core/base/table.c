/* The hash table (table.h) doubles when it is half full, so that searches reach an empty slot soon. */
#include "core/base/table.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static void
enter(kin_table *t, kin_table_place entry)
{
    uint32_t i = entry.hash & (t->size - 1);
    while (t->places[i].number != 0)
        i = (i + 1) & (t->size - 1);
    t->places[i] = entry;
}

static bool
grow(kin_table *t)
{
    kin_table old = *t;
    uint32_t size = old.size > 0 ? old.size * 2 : 16;
    kin_table_place *places = size > old.size ? calloc(size, sizeof *places) : NULL;
    if (places == NULL)
        return false;
    t->places = places;
    t->size = size;
    for (uint32_t i = 0; i < old.size; i++)
        if (old.places[i].number != 0)
            enter(t, old.places[i]);
    free(old.places);
    return true;
}

kin_status
kin_table_reserve(kin_table *t, uint32_t more)
{
    while ((uint64_t)t->used + more > t->size / 2)
        if (!grow(t))
            return KIN_NOMEM;
    return KIN_OK;
}

kin_status
kin_table_add(kin_table *t, uint64_t hash, uint32_t number)
{
    if (number == KIN_TABLE_NONE || (t->used >= t->size / 2 && !grow(t)))
        return KIN_NOMEM;
    enter(t, (kin_table_place){(uint32_t)hash, number + 1});
    t->used++;
    return KIN_OK;
}

/* What lies behind the free place moves up, as far as searches would otherwise end there. */
static void
close_gap(kin_table *t, uint32_t gap)
{
    uint32_t mask = t->size - 1;
    for (uint32_t i = (gap + 1) & mask; t->places[i].number != 0; i = (i + 1) & mask) {
        if (((i - t->places[i].hash) & mask) < ((i - gap) & mask))
            continue;
        t->places[gap] = t->places[i];
        t->places[i] = (kin_table_place){0};
        gap = i;
    }
}

void
kin_table_remove(kin_table *t, uint64_t hash, uint32_t number)
{
    uint32_t mask = t->size - 1;
    for (uint32_t i = (uint32_t)hash & mask; t->size > 0 && t->places[i].number != 0; i = (i + 1) & mask)
        if (t->places[i].number == number + 1) {
            t->places[i] = (kin_table_place){0};
            t->used--;
            close_gap(t, i);
            return;
        }
}

void
kin_table_clear(kin_table *t)
{
    if (t->used > 0)
        memset(t->places, 0, t->size * sizeof *t->places);
    while (t->size > 16 && t->used < t->size / 8) /* or clearing a table that was large once would cost as much each time */
        t->size /= 2;
    t->used = 0;
}

void
kin_table_deinit(kin_table *t)
{
    free(t->places);
    *t = (kin_table){0};
}
