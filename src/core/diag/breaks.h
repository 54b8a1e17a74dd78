/* The reasons for graph breaks: one row of breaks.def each. `why` in a trace step is a kin_why (row + 1, 0 = none).
 *
 *     step.flags |= KIN_STEP_BREAK;
 *     step.why = KIN_WHY_DATA_DEPENDENT_BRANCH;
 *     puts(kin_break_find(step.why)->type);
 */
#ifndef KIN_DIAG_BREAKS_H
#define KIN_DIAG_BREAKS_H

#include <stdint.h>

typedef enum {
    KIN_WHY_NONE = 0,
#define BREAK(ID, NAME, STOCK, CATEGORY, TYPE, EXPLANATION, HINTS, FIX) KIN_WHY_##NAME,
#include "core/diag/breaks.def"
#undef BREAK
    KIN_WHY__COUNT
} kin_why;

/* The same rows counted from 0. */
enum {
#define BREAK(ID, NAME, STOCK, CATEGORY, TYPE, EXPLANATION, HINTS, FIX) KIN_ROW_##NAME = KIN_WHY_##NAME - 1,
#include "core/diag/breaks.def"
#undef BREAK
    KIN_ROW__COUNT = KIN_WHY__COUNT - 1
};

typedef enum {
    KIN_BREAK_DATA,        /* needs tensor data: rewrite with tensor operations */
    KIN_BREAK_OPAQUE,      /* code that cannot be looked into */
    KIN_BREAK_REQUESTED,   /* the program asked for it */
    KIN_BREAK_UNSUPPORTED, /* known operation that cannot be part of a graph */
    KIN_BREAK_PYTHON,      /* Python construct */
    KIN_BREAK_EFFECT,      /* side effect, a break only under strict_breaks */
    KIN_BREAK_LIMIT        /* Kintsugi's own limits and failures */
} kin_break_category;

typedef struct {
    uint16_t id;
    kin_break_category category;
    const char *name;        /* DATA_DEPENDENT_BRANCH; also the name of the example file */
    const char *stock;       /* "GB0109 GB0033" or "" */
    const char *type;        /* first line of a report */
    const char *explanation;
    const char *hints;       /* one per line */
    const char *fix;        /* "" = no proposal */
} kin_break_row;

/* Row of a reason; NULL for KIN_WHY_NONE and numbers that are none. */
const kin_break_row *kin_break_find(unsigned why);
/* Reason with that stable name, KIN_WHY_NONE when there is none. */
kin_why kin_break_by_name(const char *name);
const char *kin_break_category_name(kin_break_category category);

#endif
