/* Splits long reductions into two stages. A reduction with few results would give each core one long row, or leave cores idle; split into parts it is
 * work for all of them, and closer to the exact sum. The order in which elements are reduced is not specified (docs/design/kernels.md);
 * which of several equal elements ARGMAX returns is.
 */
#include "core/ir/split.h"

enum {
    FEW = 8,            /* results; with more of them the cores have rows enough */
    LEAST_EACH = 1 << 16, LEAST = 1 << 17, /* elements for each result; in all */
    COLUMNS = 64, SOME_COLUMNS = 16,
    LEAST_ROW = 32,
    LEAST_PARTS = 16, PARTS = 64, MOST_PARTS = 1024
};

/* The reduction's argument as [parts, rest] along its dimensions: dims up to `first` that are reduced stay for the second
 * stage, dim `first` is divided into `parts` by `each`, with `tail` elements left over. parts 1: it stays as a whole. */
typedef struct {
    unsigned first;
    int64_t parts, each, tail;
} cut;

static bool
reduces(const kin_ir *p, kin_irn n, unsigned dim)
{
    for (unsigned i = 0; i < kin_ir_at(p, n)->nattrs; i++)
        if (kin_ir_attrs(p, n)[i] == dim)
            return true;
    return false;
}

static int64_t
good_divisor(int64_t size)
{
    for (int64_t off = 0; off < MOST_PARTS; off++)
        for (int64_t d = PARTS - off; d <= PARTS + off; d += off ? 2 * off : 1)
            if (d >= LEAST_PARTS && d <= MOST_PARTS && size % d == 0)
                return d;
    return 1;
}

static bool
find_cut(const kin_ir *p, kin_irn n, cut *c)
{
    kin_irn a = kin_ir_arg(p, n, 0);
    const int64_t *sizes = kin_ir_sizes(p, a);
    int64_t kept = 1;
    for (unsigned d = 0; d < kin_ir_at(p, a)->ndim; d++) {
        if (!reduces(p, n, d))
            continue;
        *c = (cut){.first = d, .parts = 1};
        if (kept * sizes[d] > 4 * MOST_PARTS) {
            c->parts = good_divisor(sizes[d]);
            c->tail = c->parts == 1 ? sizes[d] % PARTS : 0;
            c->parts = c->parts == 1 ? PARTS : c->parts;
            c->each = sizes[d] / c->parts;
            return sizes[d] >= 2 * PARTS;
        }
        kept *= sizes[d];
        if (kept >= LEAST_PARTS)
            return true;
    }
    return false;
}

/* As a batch norm reduces: what stays lies between dims that are reduced. With images whose channels come last that is columns, too. */
static bool
reduces_around(const kin_ir *p, kin_irn n)
{
    kin_irn a = kin_ir_arg(p, n, 0);
    unsigned found = 0; /* 1: a reduced dim, 2: one that stays behind it, 3: another reduced one */
    for (unsigned d = 0; d < kin_ir_at(p, a)->ndim && found < 3; d++)
        if (kin_ir_sizes(p, a)[d] > 1)
            found += reduces(p, n, d) == (found != 1);
    return found == 3;
}

static bool
is_long(const kin_ir *p, kin_irn n)
{
    const kin_ir_node *node = kin_ir_at(p, n);
    if (kin_ir_op_class(node->op) != KIN_IR_CLASS_REDUCE || node->ndim >= KIN_IR_MAX_DIMS)
        return false;
    int64_t results = kin_ir_numel(p, n), all = kin_ir_numel(p, kin_ir_arg(p, n, 0)), least = LEAST;
    bool columns = node->ndim > 0 && !reduces(p, n, node->ndim - 1u) && kin_ir_sizes(p, n)[node->ndim - 1] >= SOME_COLUMNS;
    bool around = results >= SOME_COLUMNS && reduces_around(p, n);
    if (columns && !around)
        least = 2 * LEAST;
    int64_t beside = columns || around ? COLUMNS : 1; /* so many are one piece of work */
    return results > 0 && results <= FEW * beside && all / results >= LEAST_EACH / beside && all >= least;
}

static int64_t
reduced_size(const kin_ir *p, kin_irn n)
{
    int64_t size = 1;
    for (unsigned i = 0; i < kin_ir_at(p, n)->nattrs; i++)
        size *= kin_ir_sizes(p, kin_ir_arg(p, n, 0))[kin_ir_attrs(p, n)[i]];
    return size;
}

/* Worth looking for the extreme before its place. */
static bool
is_long_arg(const kin_ir *p, kin_irn n)
{
    return kin_ir_op_is_arg(kin_ir_at(p, n)->op) && kin_ir_at(p, n)->ndim < KIN_IR_MAX_DIMS && reduced_size(p, n) >= LEAST_ROW;
}

/* -- sums and the like --------------------------------------------------------------------------------------------- */

/* Reduces what a cut leaves for a stage: 1: what lies within a part, 2: the parts. x has one dim more than the original when a dim
 * is divided. */
static kin_irn
stage(kin_ir *to, const kin_ir *p, kin_irn n, const cut *c, bool divided, int which, unsigned op, kin_irn x)
{
    int64_t dims[KIN_IR_MAX_DIMS];
    unsigned count = 0, ndim = kin_ir_at(to, x)->ndim;
    for (unsigned d = 0; d < ndim; d++) {
        unsigned was = divided && d > c->first ? d - 1 : d;
        bool second = d <= c->first;
        if (reduces(p, n, was) && second == (which == 2))
            dims[count++] = d;
    }
    return count ? kin_ir_reduce(to, (kin_ir_op)op, x, count, dims) : x;
}

/* x with dim `first` divided. */
static kin_irn
divide(kin_ir *to, const cut *c, kin_irn x)
{
    int64_t sizes[KIN_IR_MAX_DIMS];
    unsigned ndim = kin_ir_at(to, x)->ndim;
    memcpy(sizes, kin_ir_sizes(to, x), ndim * sizeof *sizes);
    memmove(sizes + c->first + 1, sizes + c->first, (ndim - c->first) * sizeof *sizes);
    sizes[c->first] = c->parts;
    sizes[c->first + 1] = c->each;
    return kin_ir_reshape(to, x, ndim + 1, sizes);
}

/* Elements [from, from + size) of dim `first`. */
static kin_irn
part_of(kin_ir *to, const cut *c, kin_irn x, int64_t from, int64_t size)
{
    int64_t starts[KIN_IR_MAX_DIMS] = {0}, steps[KIN_IR_MAX_DIMS], sizes[KIN_IR_MAX_DIMS];
    unsigned ndim = kin_ir_at(to, x)->ndim;
    for (unsigned d = 0; d < ndim; d++)
        steps[d] = 1;
    memcpy(sizes, kin_ir_sizes(to, x), ndim * sizeof *sizes);
    starts[c->first] = from;
    sizes[c->first] = size;
    return kin_ir_slice(to, x, starts, steps, sizes);
}

static kin_irn
combine(kin_ir *to, unsigned op, kin_irn a, kin_irn b)
{
    switch (op) {
    case KIN_IR_REDUCE_SUM: return kin_ir_binary(to, KIN_IR_ADD, a, b);
    case KIN_IR_REDUCE_PROD: return kin_ir_binary(to, KIN_IR_MUL, a, b);
    case KIN_IR_REDUCE_MAX: return kin_ir_binary(to, KIN_IR_MAX, a, b);
    case KIN_IR_REDUCE_MIN: return kin_ir_binary(to, KIN_IR_MIN, a, b);
    case KIN_IR_REDUCE_ANY: return kin_ir_binary(to, KIN_IR_ADD, a, b);
    default: return kin_ir_binary(to, KIN_IR_MUL, a, b); /* of BOOL: and */
    }
}

/* Both stages of x, the first of which has parts. */
static kin_irn
two_stages(kin_ir *to, const kin_ir *p, kin_irn n, const cut *c, kin_irn x)
{
    unsigned op = kin_ir_at(p, n)->op;
    bool divided = c->parts > 1;
    kin_irn all = x;
    if (c->tail)
        x = part_of(to, c, x, 0, c->parts * c->each);
    if (divided)
        x = divide(to, c, x);
    x = stage(to, p, n, c, divided, 2, op, stage(to, p, n, c, divided, 1, op, x));
    x = kin_ir_reshape(to, x, kin_ir_at(p, n)->ndim, kin_ir_sizes(p, n));
    if (c->tail == 0)
        return x;
    kin_irn rest = part_of(to, c, all, c->parts * c->each, c->tail);
    rest = kin_ir_reduce(to, (kin_ir_op)op, rest, kin_ir_at(p, n)->nattrs, kin_ir_attrs(p, n));
    return combine(to, op, x, rest);
}

/* Half precision is rounded once, at the end. */
static kin_irn
split_plain(kin_ir *to, const kin_ir *p, kin_irn n, const cut *c, kin_irn x)
{
    kin_dtype dtype = (kin_dtype)kin_ir_at(p, n)->dtype;
    bool half = dtype == KIN_F16 || dtype == KIN_BF16;
    kin_irn y = two_stages(to, p, n, c, half ? kin_ir_cast(to, x, KIN_F32) : x);
    return half ? kin_ir_cast(to, y, dtype) : y;
}

/* -- where the extreme is: what it is first, then the first place that has it. Compares and selects in one pass carry along two
 * vectors of 64-bit places; this way takes a third of the time. ---------------------------------------------------- */

/* Which elements of x are `best`, one for each row along `dim`: a NaN is, if that is one. */
static kin_irn
are_best(kin_ir *to, kin_irn x, kin_irn best)
{
    unsigned ndim = kin_ir_at(to, x)->ndim;
    int64_t sizes[KIN_IR_MAX_DIMS];
    memcpy(sizes, kin_ir_sizes(to, x), ndim * sizeof *sizes);
    kin_irn same = kin_ir_binary(to, KIN_IR_EQ, x, kin_ir_expand(to, best, ndim, sizes));
    if (!kin_dtype_is_float((kin_dtype)kin_ir_at(to, x)->dtype))
        return same;
    kin_irn none = kin_ir_expand(to, kin_ir_binary(to, KIN_IR_NE, best, best), ndim, sizes);
    return kin_ir_binary(to, KIN_IR_ADD, same, kin_ir_binary(to, KIN_IR_MUL, kin_ir_binary(to, KIN_IR_NE, x, x), none));
}

/* The least of `places` (of x's sizes) at which x is its extreme along dim, which is noted. */
static kin_irn
first_best(kin_ir *to, unsigned op, kin_irn x, kin_irn places, unsigned dim, kin_irn *best)
{
    int64_t dims[1] = {dim}, sizes[KIN_IR_MAX_DIMS];
    unsigned ndim = kin_ir_at(to, x)->ndim;
    kin_dtype dtype = (kin_dtype)kin_ir_at(to, places)->dtype;
    memcpy(sizes, kin_ir_sizes(to, x), ndim * sizeof *sizes);
    *best = kin_ir_reduce(to, op == KIN_IR_ARGMAX ? KIN_IR_REDUCE_MAX : KIN_IR_REDUCE_MIN, x, 1, dims);
    kin_irn never = kin_ir_const(to, dtype, (kin_scalar){.i = dtype == KIN_I32 ? INT32_MAX : INT64_MAX}, ndim, sizes);
    return kin_ir_reduce(to, KIN_IR_REDUCE_MIN, kin_ir_where(to, are_best(to, x, *best), places, never), 1, dims);
}

/* Along one dimension, shorter than 2^31: I64. */
static kin_irn
first_along(kin_ir *to, unsigned op, kin_irn x, unsigned dim, kin_irn *best)
{
    unsigned ndim = kin_ir_at(to, x)->ndim;
    int64_t sizes[KIN_IR_MAX_DIMS];
    memcpy(sizes, kin_ir_sizes(to, x), ndim * sizeof *sizes);
    kin_irn places = kin_ir_iota(to, KIN_I32, dim, ndim, sizes);
    return kin_ir_cast(to, first_best(to, op, x, places, dim, best), KIN_I64);
}

static kin_irn
split_one_arg(kin_ir *to, unsigned op, const cut *c, kin_irn x)
{
    kin_irn values, best, within = first_along(to, op, divide(to, c, x), c->first + 1, &values);
    unsigned ndim = kin_ir_at(to, within)->ndim;
    int64_t sizes[KIN_IR_MAX_DIMS];
    memcpy(sizes, kin_ir_sizes(to, within), ndim * sizeof *sizes);
    kin_irn each = kin_ir_const(to, KIN_I64, (kin_scalar){.i = c->each}, ndim, sizes);
    kin_irn start = kin_ir_binary(to, KIN_IR_MUL, kin_ir_iota(to, KIN_I64, c->first, ndim, sizes), each);
    return first_best(to, op, values, kin_ir_binary(to, KIN_IR_ADD, start, within), c->first, &best);
}

/* 0: better as it is. */
static kin_irn
split_arg(kin_ir *to, const kin_ir *p, kin_irn n, kin_irn x)
{
    const kin_ir_node *node = kin_ir_at(p, n);
    cut c = {.first = node->nattrs == 1 ? (unsigned)kin_ir_attrs(p, n)[0] : 0, .parts = 1};
    int64_t size = reduced_size(p, n);
    if (size >= INT32_MAX || kin_ir_at(to, x)->dtype == KIN_BOOL)
        return 0;
    if (is_long(p, n))
        c.parts = good_divisor(size);
    c.each = size / c.parts;
    if (node->nattrs > 1)
        x = kin_ir_reshape(to, x, 1, &size);
    kin_irn best, y = c.parts > 1 ? split_one_arg(to, node->op, &c, x) : first_along(to, node->op, x, c.first, &best);
    return kin_ir_reshape(to, y, node->ndim, kin_ir_sizes(p, n));
}

/* -- the pass ------------------------------------------------------------------------------------------------------- */

bool
kin_ir_splits(const kin_ir *p)
{
    for (kin_irn n = 1; n < p->nodes.len; n++)
        if (is_long(p, n) || is_long_arg(p, n))
            return true;
    return false;
}

static kin_irn
write_node(kin_ir *to, const kin_ir *p, kin_irn n, const kin_irn *args)
{
    cut c;
    kin_irn made = 0;
    if (is_long_arg(p, n))
        made = split_arg(to, p, n, args[0]);
    else if (is_long(p, n) && !kin_ir_op_is_arg(kin_ir_at(p, n)->op) && find_cut(p, n, &c))
        made = split_plain(to, p, n, &c, args[0]);
    return made || to->failed ? made : kin_ir_copy(to, p, n, args);
}

kin_ir *
kin_ir_split(const kin_ir *p)
{
    kin_ir *to = kin_ir_new();
    kin_irn *map = calloc(p->nodes.len, sizeof *map), *args = calloc(p->args.len + 1, sizeof *args);
    if (to)
        to->failed |= map == NULL || args == NULL;
    for (kin_irn n = 1; to && n < p->nodes.len && !to->failed; n++) {
        for (unsigned a = 0; a < kin_ir_at(p, n)->nargs; a++)
            args[a] = map[kin_ir_arg(p, n, a)];
        map[n] = write_node(to, p, n, args);
    }
    for (uint32_t o = 0; to && o < p->outputs.len && !to->failed; o++)
        kin_ir_output_like(to, map[p->outputs.at[o].node], p, o);
    if (to) {
        to->ninputs = p->ninputs;
        to->fast_math = p->fast_math;
    }
    free(map);
    free(args);
    if (to && to->failed) {
        kin_ir_free(to);
        return NULL;
    }
    return to;
}
