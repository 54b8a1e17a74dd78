/* The table of rules, found by name through a hash table that each lowering makes for itself. */
#include "core/lower/lower_priv.h"

static const struct { const char *name; low_rule rule; int number; } rows[] = {
#define RULE(name, function, number) {"aten." name, function, number},
#include "core/lower/rules.def"
#undef RULE
};

enum { NROWS = sizeof rows / sizeof *rows, NPLACES = 2048 };
_Static_assert(NROWS * 2 < NPLACES, "room in the hash table");

static uint32_t
hash(const char *name, size_t len)
{
    uint32_t h = 2166136261u;
    for (size_t i = 0; i < len; i++)
        h = (h ^ (unsigned char)name[i]) * 16777619u;
    return h;
}

bool
low_rules_index(low *l)
{
    l->rules = calloc(NPLACES, sizeof *l->rules);
    if (l->rules == NULL)
        return false;
    for (unsigned i = 0; i < NROWS; i++) {
        uint32_t place = hash(rows[i].name, strlen(rows[i].name)) % NPLACES;
        while (l->rules[place] != 0)
            place = (place + 1) % NPLACES;
        l->rules[place] = (uint16_t)(i + 1);
    }
    return true;
}

int
low_rule_find(const low *l, const char *name, size_t len)
{
    for (uint32_t place = hash(name, len) % NPLACES; l->rules[place] != 0; place = (place + 1) % NPLACES) {
        int row = l->rules[place] - 1;
        if (strlen(rows[row].name) == len && memcmp(rows[row].name, name, len) == 0)
            return row;
    }
    return -1;
}

bool
low_rule_run(low_call *c, int row)
{
    return rows[row].rule(c, rows[row].number);
}
