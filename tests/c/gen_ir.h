/* Random tensor programs without externs, for comparing two ways of computing the same thing. The same seed gives the same
 * program and the same inputs, everywhere. A test includes this once; random_ir.h has the programs that kernels are fuzzed with.
 */
#ifndef KIN_TESTS_GEN_IR_H
#define KIN_TESTS_GEN_IR_H

#include "core/ir/ir.h"
#include "core/ir/scalar.h"

#include <math.h>
#include <stdlib.h>

typedef struct {
    uint64_t state;
} gen_rng;

static inline gen_rng gen_seed(uint64_t seed) { return (gen_rng){seed * 0x9e3779b97f4a7c15u + 0x1234567u}; }
uint32_t gen_below(gen_rng *r, uint32_t limit); /* 0 ... limit - 1 */

typedef struct {
    unsigned nodes;      /* about so many */
    int64_t max_size;    /* of a dim */
    bool halves;         /* f16 and bf16 too */
    bool big;            /* now and then a dim of a few hundred, to reach vector loops and their tails */
} gen_options;

/* A right program with one to four inputs and one to three outputs. NULL when memory was short. */
kin_ir *gen_ir(uint64_t seed, const gen_options *options);
/* Arrays for its inputs: small numbers, now and then NaN, infinities and zeros; integers in [-4, 12). Freed by gen_free. */
void **gen_inputs(const kin_ir *p, uint64_t seed);
void gen_free(void **arrays, uint32_t count);
/* Whether two arrays of a dtype agree: exactly, or within the tolerance (relative, absolute below 1) for floating ones;
 * NaN agrees with NaN. The first place where they do not, or -1. */
int64_t gen_differs(kin_dtype dtype, int64_t count, const void *a, const void *b, double tolerance);

uint32_t
gen_below(gen_rng *r, uint32_t limit)
{
    r->state ^= r->state << 13;
    r->state ^= r->state >> 7;
    r->state ^= r->state << 17;
    return (uint32_t)((r->state * 0x2545f4914f6cdd1du >> 33) % limit);
}

typedef struct {
    gen_rng r;
    const gen_options *options;
    kin_ir *p;
    bool outside;   /* an index is out of bounds: what is read of it is read as a whole, as in graphs that kin_aten_raises_unseen lets through */
} gen;

static kin_dtype
gen_dtype(gen *g)
{
    static const kin_dtype plain[] = {KIN_F32, KIN_F32, KIN_F32, KIN_F32, KIN_F64, KIN_I64, KIN_I32, KIN_BOOL, KIN_U8, KIN_I8};
    if (g->options->halves && gen_below(&g->r, 5) == 0)
        return gen_below(&g->r, 2) ? KIN_F16 : KIN_BF16;
    return plain[gen_below(&g->r, sizeof plain / sizeof *plain)];
}

static int64_t
gen_size(gen *g)
{
    if (g->options->big && gen_below(&g->r, 8) == 0)
        return 17 + gen_below(&g->r, 300);
    return gen_below(&g->r, 12) == 0 ? 1 : 1 + gen_below(&g->r, (uint32_t)g->options->max_size);
}

/* A value made earlier. */
static kin_irn
gen_pick(gen *g)
{
    return 1 + gen_below(&g->r, g->p->nodes.len - 1);
}

/* An earlier value with these sizes and dtype, or a constant. */
static kin_irn
gen_match(gen *g, kin_irn like, kin_dtype dtype)
{
    const kin_ir_node *a = kin_ir_at(g->p, like);
    for (unsigned tries = 0; tries < 12; tries++) {
        kin_irn n = gen_pick(g);
        const kin_ir_node *b = kin_ir_at(g->p, n);
        if (b->ndim != a->ndim || (a->ndim && memcmp(kin_ir_sizes(g->p, n), kin_ir_sizes(g->p, like), a->ndim * sizeof(int64_t))))
            continue;
        if (b->dtype == dtype)
            return n;
        if (tries > 5)
            return kin_ir_cast(g->p, n, dtype);
    }
    kin_scalar s = {.i = gen_below(&g->r, dtype == KIN_BOOL ? 2 : 5)};
    if (kin_dtype_is_float(dtype))
        s.f = (double)gen_below(&g->r, 17) / 4 - 2;
    return kin_ir_const(g->p, dtype, s, a->ndim, kin_ir_sizes(g->p, like));
}

static kin_irn
gen_unary(gen *g, kin_irn x)
{
    static const kin_ir_op floats[] = {KIN_IR_NEG, KIN_IR_ABS, KIN_IR_SIGN, KIN_IR_EXP, KIN_IR_TANH, KIN_IR_SIGMOID, KIN_IR_SQRT,
        KIN_IR_SIN, KIN_IR_ERF, KIN_IR_FLOOR, KIN_IR_ROUND, KIN_IR_TRUNC, KIN_IR_LOG1P, KIN_IR_RECIPROCAL, KIN_IR_COS};
    static const kin_ir_op ints[] = {KIN_IR_NEG, KIN_IR_ABS, KIN_IR_SIGN, KIN_IR_NOT};
    kin_dtype dtype = (kin_dtype)kin_ir_at(g->p, x)->dtype;
    if (gen_below(&g->r, 4) == 0)
        return kin_ir_cast(g->p, x, gen_dtype(g));
    if (dtype == KIN_BOOL)
        return kin_ir_unary(g->p, KIN_IR_NOT, x);
    return kin_dtype_is_float(dtype) ? kin_ir_unary(g->p, floats[gen_below(&g->r, sizeof floats / sizeof *floats)], x)
                                     : kin_ir_unary(g->p, ints[gen_below(&g->r, 4)], x);
}

static kin_irn
gen_binary(gen *g, kin_irn x)
{
    static const kin_ir_op floats[] = {KIN_IR_ADD, KIN_IR_SUB, KIN_IR_MUL, KIN_IR_DIV, KIN_IR_MAX, KIN_IR_MIN, KIN_IR_FMAX, KIN_IR_LT,
                                       KIN_IR_GE, KIN_IR_EQ};
    static const kin_ir_op ints[] = {KIN_IR_ADD, KIN_IR_SUB, KIN_IR_MUL, KIN_IR_MAX, KIN_IR_MIN, KIN_IR_AND, KIN_IR_XOR, KIN_IR_SHL,
                                     KIN_IR_SHR, KIN_IR_LE, KIN_IR_NE};
    static const kin_ir_op bools[] = {KIN_IR_ADD, KIN_IR_MUL, KIN_IR_OR, KIN_IR_XOR, KIN_IR_EQ};
    kin_dtype dtype = (kin_dtype)kin_ir_at(g->p, x)->dtype;
    kin_ir_op op = kin_dtype_is_float(dtype) ? floats[gen_below(&g->r, 10)] : dtype == KIN_BOOL ? bools[gen_below(&g->r, 5)]
                                                                                               : ints[gen_below(&g->r, 11)];
    if (gen_below(&g->r, 6) == 0)
        return kin_ir_where(g->p, gen_match(g, x, KIN_BOOL), x, gen_match(g, x, dtype));
    return kin_ir_binary(g->p, op, x, gen_match(g, x, dtype));
}

static kin_irn
gen_slice(gen *g, kin_irn x)
{
    int64_t starts[KIN_IR_MAX_DIMS], steps[KIN_IR_MAX_DIMS], sizes[KIN_IR_MAX_DIMS];
    for (unsigned d = 0; d < kin_ir_at(g->p, x)->ndim; d++) {
        int64_t size = kin_ir_sizes(g->p, x)[d];
        starts[d] = gen_below(&g->r, (uint32_t)size);
        steps[d] = 1 + (int64_t)gen_below(&g->r, 2);
        if (gen_below(&g->r, 5) == 0)
            steps[d] = -steps[d];
        int64_t most = steps[d] > 0 ? (size - 1 - starts[d]) / steps[d] + 1 : starts[d] / -steps[d] + 1;
        sizes[d] = 1 + gen_below(&g->r, (uint32_t)most);
    }
    return kin_ir_slice(g->p, x, starts, steps, sizes);
}

static kin_irn
gen_view(gen *g, kin_irn x)
{
    unsigned ndim = kin_ir_at(g->p, x)->ndim;
    int64_t sizes[KIN_IR_MAX_DIMS], dims[KIN_IR_MAX_DIMS];
    for (unsigned d = 0; d < ndim; d++) {
        sizes[d] = kin_ir_sizes(g->p, x)[d];
        dims[d] = (d + 1) % ndim;
    }
    uint32_t kind = gen_below(&g->r, 7);
    bool part = kind == 2 || kind == 3 || kind == 6;
    if (g->outside && part)
        return x;
    switch (kind) {
    case 0:
        return kin_ir_permute(g->p, x, dims);
    case 1:
        return kin_ir_reshape(g->p, x, 1, (int64_t[]){kin_ir_numel(g->p, x)});
    case 2:
        return gen_slice(g, x);
    case 3: /* pad */
        for (unsigned d = 0; d < ndim; d++) {
            dims[d] = (int64_t)gen_below(&g->r, 4) - 1;
            sizes[d] += gen_below(&g->r, 3);
        }
        return kin_ir_pad(g->p, x, kin_ir_const(g->p, (kin_dtype)kin_ir_at(g->p, x)->dtype, (kin_scalar){.i = 0}, 0, NULL), dims, sizes);
    case 4:
        return ndim ? kin_ir_cat(g->p, (kin_irn[]){x, gen_match(g, x, (kin_dtype)kin_ir_at(g->p, x)->dtype)}, 2, gen_below(&g->r, ndim)) : x;
    case 5: /* a reduced or new dim, repeated */
        if (ndim >= 4)
            return x;
        memmove(sizes + 1, sizes, ndim * sizeof *sizes);
        sizes[0] = gen_size(g);
        for (unsigned d = 1; d <= ndim; d++)
            if (sizes[d] == 1 && gen_below(&g->r, 2))
                sizes[d] = gen_size(g);
        return kin_ir_expand(g->p, x, ndim + 1, sizes);
    default: { /* gather along a dim, sometimes with an index out of bounds */
        if (ndim == 0)
            return x;
        unsigned dim = gen_below(&g->r, ndim);
        for (unsigned d = 0; d < ndim; d++)
            dims[d] = d;
        dims[dim] = -1;
        int64_t limit = sizes[dim];
        sizes[dim] = gen_size(g);
        bool beyond = gen_below(&g->r, 20) == 0;
        g->outside = beyond && sizes[dim] > limit;
        kin_irn at = kin_ir_iota(g->p, KIN_I64, dim, ndim, sizes);
        kin_irn size = kin_ir_const(g->p, KIN_I64, (kin_scalar){.i = limit + beyond}, ndim, sizes);
        at = kin_ir_binary(g->p, KIN_IR_REM, at, size);
        return kin_ir_index(g->p, x, dims, &at, 1, ndim, sizes);
    }
    }
}

static kin_irn
gen_reduce(gen *g, kin_irn x)
{
    static const kin_ir_op ops[] = {KIN_IR_REDUCE_SUM, KIN_IR_REDUCE_SUM, KIN_IR_REDUCE_MAX, KIN_IR_REDUCE_MIN, KIN_IR_ARGMAX, KIN_IR_ARGMIN};
    unsigned ndim = kin_ir_at(g->p, x)->ndim;
    int64_t dims[2] = {0, 1};
    if (ndim == 0)
        return x;
    if (kin_ir_at(g->p, x)->dtype == KIN_BOOL)
        return kin_ir_reduce(g->p, gen_below(&g->r, 2) ? KIN_IR_REDUCE_ANY : KIN_IR_REDUCE_ALL, x, 1, dims);
    if (gen_below(&g->r, 4) == 0)
        return kin_ir_scan(g->p, gen_below(&g->r, 2) ? KIN_IR_CUMSUM : KIN_IR_CUMMAX, x, gen_below(&g->r, ndim));
    kin_ir_op op = ops[gen_below(&g->r, 6)];
    bool two = ndim > 1 && op != KIN_IR_ARGMAX && op != KIN_IR_ARGMIN && gen_below(&g->r, 3) == 0;
    if (!two)
        dims[0] = gen_below(&g->r, ndim);
    kin_irn y = kin_ir_reduce(g->p, op, x, two ? 2 : 1, dims);
    /* as softmax and norms have it */
    return gen_below(&g->r, 2) ? kin_ir_expand(g->p, y, ndim, kin_ir_sizes(g->p, x)) : y;
}

static kin_irn
gen_scatter(gen *g, kin_irn x)
{
    unsigned ndim = kin_ir_at(g->p, x)->ndim;
    int64_t map[KIN_IR_MAX_DIMS], sizes[KIN_IR_MAX_DIMS];
    kin_dtype dtype = (kin_dtype)kin_ir_at(g->p, x)->dtype;
    if (ndim == 0 || g->outside)
        return x;
    for (unsigned d = 0; d < ndim; d++) {
        map[d] = d;
        sizes[d] = kin_ir_sizes(g->p, x)[d];
    }
    unsigned dim = gen_below(&g->r, ndim);
    kin_irn size = kin_ir_const(g->p, KIN_I64, (kin_scalar){.i = 1 + gen_below(&g->r, (uint32_t)sizes[dim])}, ndim, sizes);
    kin_irn at = kin_ir_binary(g->p, KIN_IR_REM, kin_ir_iota(g->p, KIN_I64, dim, ndim, sizes), size);
    map[dim] = -1;
    kin_ir_scatter mode = gen_below(&g->r, 2) ? KIN_IR_SCATTER_SET : KIN_IR_SCATTER_ADD;
    return kin_ir_scatter_into(g->p, mode, x, gen_match(g, x, dtype), map, &at, 1);
}

static void
gen_step(gen *g)
{
    kin_irn x = gen_pick(g), y;
    uint32_t kind = gen_below(&g->r, 20);
    if (kin_ir_numel(g->p, x) > 20000)
        kind = 18; /* reduced rather than grown */
    y = kind < 6 ? gen_unary(g, x) : kind < 12 ? gen_binary(g, x) : kind < 16 ? gen_view(g, x) : kind < 19 ? gen_reduce(g, x)
                                                                                                          : gen_scatter(g, x);
    /* Now and then a wish for another layout: the first dim fastest. */
    const kin_ir_node *n = kin_ir_at(g->p, y);
    if (y + 1 == g->p->nodes.len && n->ndim > 1 && gen_below(&g->r, 12) == 0) {
        int64_t strides[KIN_IR_MAX_DIMS], step = 1;
        for (unsigned d = 0; d < n->ndim; d++) {
            strides[d] = step;
            step *= kin_ir_sizes(g->p, y)[d];
        }
        kin_ir_set_strides(g->p, y, strides);
    }
}

kin_ir *
gen_ir(uint64_t seed, const gen_options *options)
{
    gen g = {.r = gen_seed(seed), .options = options, .p = kin_ir_new()};
    if (g.p == NULL)
        return NULL;
    uint32_t ninputs = 1 + gen_below(&g.r, 4), noutputs = 1 + gen_below(&g.r, 3);
    int64_t sizes[4];
    unsigned ndim = 1 + gen_below(&g.r, 3);
    for (unsigned d = 0; d < ndim; d++)
        sizes[d] = gen_size(&g);
    for (uint32_t i = 0; i < ninputs; i++) /* mostly alike, so that they meet */
        kin_ir_input(g.p, i, gen_dtype(&g), gen_below(&g.r, 4) ? ndim : 1, sizes);
    for (unsigned i = 0; i < options->nodes && !g.p->failed; i++)
        gen_step(&g);
    for (uint32_t i = 0; i < noutputs && !g.p->failed; i++)
        kin_ir_output(g.p, g.p->nodes.len - 1 - gen_below(&g.r, g.p->nodes.len < 8 ? 1 : 6), NULL);
    return g.p;
}

void **
gen_inputs(const kin_ir *p, uint64_t seed)
{
    gen_rng r = gen_seed(seed ^ 0xabcdef);
    void **arrays = calloc(p->ninputs + 1, sizeof *arrays);
    for (kin_irn i = 1; i < p->nodes.len; i++) {
        if (kin_ir_at(p, i)->op != KIN_IR_INPUT)
            continue;
        kin_dtype dtype = (kin_dtype)kin_ir_at(p, i)->dtype;
        int64_t count = kin_ir_numel(p, i);
        void *array = calloc((size_t)count + 1, kin_dtype_bytes(dtype));
        for (int64_t k = 0; k < count; k++) {
            kin_scalar s = {.i = (int64_t)gen_below(&r, 16) - 4};
            uint32_t odd = gen_below(&r, 60);
            if (kin_dtype_is_float(dtype))
                s.f = odd == 0 ? NAN : odd == 1 ? INFINITY : odd == 2 ? -INFINITY : odd == 3 ? 0 : odd == 4 ? -0.0
                      : ((double)gen_below(&r, 4001) - 2000) / 500;
            kin_scalar_store(dtype, array, k, kin_scalar_settle(dtype, s));
        }
        arrays[kin_ir_attrs(p, i)[0]] = array;
    }
    return arrays;
}

void
gen_free(void **arrays, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        free(arrays[i]);
    free(arrays);
}

int64_t
gen_differs(kin_dtype dtype, int64_t count, const void *a, const void *b, double tolerance)
{
    for (int64_t i = 0; i < count; i++) {
        kin_scalar x = kin_scalar_load(dtype, a, i), y = kin_scalar_load(dtype, b, i);
        bool same = x.i == y.i;
        if (kin_dtype_is_float(dtype))
            same = x.f == y.f || (isnan(x.f) && isnan(y.f)) || fabs(x.f - y.f) <= tolerance * fmax(1, fmax(fabs(x.f), fabs(y.f)));
        if (!same)
            return i;
    }
    return -1;
}

#endif
