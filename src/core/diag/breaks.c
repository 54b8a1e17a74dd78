/* The table of graph-break reasons, expanded from breaks.def. */
#include "core/diag/breaks.h"

#include <stddef.h>
#include <string.h>

static const kin_break_row rows[] = {
#define BREAK(ID, NAME, STOCK, CATEGORY, TYPE, EXPLANATION, HINTS, FIX) \
    {ID, KIN_BREAK_##CATEGORY, #NAME, STOCK, TYPE, EXPLANATION, HINTS, FIX},
#include "core/diag/breaks.def"
#undef BREAK
};

const kin_break_row *
kin_break_find(unsigned why)
{
    return why == KIN_WHY_NONE || why >= KIN_WHY__COUNT ? NULL : &rows[why - 1];
}

kin_why
kin_break_by_name(const char *name)
{
    for (unsigned why = 1; why < KIN_WHY__COUNT; why++)
        if (strcmp(rows[why - 1].name, name) == 0)
            return (kin_why)why;
    return KIN_WHY_NONE;
}

const char *
kin_break_category_name(kin_break_category category)
{
    switch (category) {
    case KIN_BREAK_DATA: return "data";
    case KIN_BREAK_OPAQUE: return "opaque";
    case KIN_BREAK_REQUESTED: return "requested";
    case KIN_BREAK_UNSUPPORTED: return "unsupported";
    case KIN_BREAK_PYTHON: return "python";
    case KIN_BREAK_EFFECT: return "effect";
    case KIN_BREAK_LIMIT: return "limit";
    }
    return "?";
}
