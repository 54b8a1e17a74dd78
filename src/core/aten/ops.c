/* The table of operators, searched by name through a generated index (tools/gen_aten_index.py). */
#include "core/aten/ops.h"

#include <string.h>

static const struct {
    const char *name;
    uint32_t traits;
    uint8_t complex;
} rows[] = {
#define RAISES KIN_ATEN_RAISES
#define RAISES_ON_INTS KIN_ATEN_RAISES_ON_INTS
#define RAISES_ON_EMPTY KIN_ATEN_RAISES_ON_EMPTY
#define RANDOM KIN_ATEN_RANDOM
#define WRITES_UNSAID KIN_ATEN_WRITES_UNSAID
#define WRITES_IN_TRAINING KIN_ATEN_WRITES_IN_TRAINING
#define READS_PART KIN_ATEN_READS_PART
#define NEEDS_ALL KIN_ATEN_NEEDS_ALL
#define NO_VIEW KIN_ATEN_NO_VIEW
#define LAYOUT_ONLY KIN_ATEN_LAYOUT_ONLY
#define WHOLE KIN_ATEN_WHOLE
#define CONSTANT KIN_ATEN_CONSTANT
#define ANSWERED KIN_ATEN_ANSWERED
#define OWN_CELLS KIN_ATEN_OWN_CELLS
#define STEPS KIN_ATEN_STEPS
#define DIVIDES KIN_ATEN_DIVIDES
#define LIBRARY KIN_ATEN_LIBRARY
#define RESAMPLES KIN_ATEN_RESAMPLES
#define ATEN(op, overload, shape, lower, complex, traits) {"aten." #op "." #overload, traits, KIN_COMPLEX_##complex},
#include "core/aten/aten.def"
#undef ATEN
};
_Static_assert(sizeof rows / sizeof *rows == KIN_ATEN_OPS, "a row each");

/* Rows in the order of their names. */
static const uint16_t by_name[] = {
#include "core/aten/gen/by_name.inc"
};
_Static_assert(sizeof by_name / sizeof *by_name == KIN_ATEN_OPS, "run tools/gen_aten_index.py");

static kin_aten_op
find_exactly(const char *name)
{
    uint32_t low = 0, high = KIN_ATEN_OPS;
    while (low < high) {
        uint32_t middle = (low + high) / 2;
        int order = strcmp(rows[by_name[middle]].name, name);
        if (order == 0)
            return (kin_aten_op)by_name[middle];
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return KIN_ATEN_OPS;
}

kin_aten_op
kin_aten_op_find(const char *name, bool *in_place)
{
    kin_aten_op op = find_exactly(name);
    if (in_place != NULL)
        *in_place = false;
    const char *dot = strrchr(name, '.');
    char plain[96];
    if (op != KIN_ATEN_OPS || dot == NULL || dot == name || dot[-1] != '_' || strlen(name) >= sizeof plain)
        return op;
    size_t head = (size_t)(dot - name) - 1;
    memcpy(plain, name, head);
    strcpy(plain + head, dot);
    op = find_exactly(plain);
    if (in_place != NULL)
        *in_place = op != KIN_ATEN_OPS;
    return op;
}

bool
kin_aten_op_is(kin_aten_op op, unsigned traits)
{
    return op < KIN_ATEN_OPS && (rows[op].traits & traits) != 0;
}

kin_aten_complex
kin_aten_op_complex(kin_aten_op op)
{
    return op < KIN_ATEN_OPS ? (kin_aten_complex)rows[op].complex : KIN_COMPLEX_NO;
}
