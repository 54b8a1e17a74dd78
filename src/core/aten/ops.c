/* The table of operators, found by name through a hash table made at the first look-up. */
#include "core/aten/ops.h"

#include <pthread.h>
#include <string.h>

#include "core/base/hash.h"
#include "core/base/table.h"

static const struct {
    const char *name;
    uint16_t traits;
    uint8_t complex;
} rows[] = {
#define RAISES KIN_ATEN_RAISES
#define RAISES_ON_INTS KIN_ATEN_RAISES_ON_INTS
#define RANDOM KIN_ATEN_RANDOM
#define WRITES_UNSAID KIN_ATEN_WRITES_UNSAID
#define WRITES_IN_TRAINING KIN_ATEN_WRITES_IN_TRAINING
#define READS_PART KIN_ATEN_READS_PART
#define NEEDS_ALL KIN_ATEN_NEEDS_ALL
#define NO_VIEW KIN_ATEN_NO_VIEW
#define LAYOUT_ONLY KIN_ATEN_LAYOUT_ONLY
#define WHOLE KIN_ATEN_WHOLE
#define LIBRARY KIN_ATEN_LIBRARY
#define ATEN(op, overload, shape, lower, complex, traits) {"aten." #op "." #overload, traits, KIN_COMPLEX_##complex},
#include "core/aten/aten.def"
#undef ATEN
};
_Static_assert(sizeof rows / sizeof *rows == KIN_ATEN_OPS, "a row each");

static kin_table table;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static bool complete;

static void
fill(void)
{
    complete = true;
    for (uint32_t i = 0; i < KIN_ATEN_OPS; i++)
        complete = complete && kin_table_add(&table, kin_hash_bytes(0, rows[i].name, strlen(rows[i].name)), i) == KIN_OK;
}

static kin_aten_op
find_exactly(const char *name, size_t len)
{
    pthread_once(&once, fill);
    uint32_t i, at = 0;
    if (complete) {
        while ((i = kin_table_next(&table, kin_hash_bytes(0, name, len), &at)) != KIN_TABLE_NONE)
            if (strncmp(rows[i].name, name, len) == 0 && rows[i].name[len] == 0)
                break;
        return i == KIN_TABLE_NONE ? KIN_ATEN_OPS : (kin_aten_op)i;
    }
    for (i = 0; i < KIN_ATEN_OPS; i++) /* memory was short */
        if (strncmp(rows[i].name, name, len) == 0 && rows[i].name[len] == 0)
            break;
    return (kin_aten_op)i;
}

kin_aten_op
kin_aten_op_find(const char *name, bool *in_place)
{
    kin_aten_op op = find_exactly(name, strlen(name));
    if (in_place != NULL)
        *in_place = false;
    const char *dot = strrchr(name, '.');
    char plain[96];
    if (op != KIN_ATEN_OPS || dot == NULL || dot == name || dot[-1] != '_' || strlen(name) >= sizeof plain)
        return op;
    size_t head = (size_t)(dot - name) - 1;
    memcpy(plain, name, head);
    strcpy(plain + head, dot);
    op = find_exactly(plain, strlen(plain));
    if (in_place != NULL)
        *in_place = op != KIN_ATEN_OPS;
    return op;
}

const char *
kin_aten_op_name(kin_aten_op op)
{
    return op < KIN_ATEN_OPS ? rows[op].name : "";
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
