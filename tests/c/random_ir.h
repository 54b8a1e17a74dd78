/* Random tensor programs: every class of primitive, over small shapes that broadcast, permute, reshape and reduce in all
 * directions. The same seed gives the same program. Sizes are symbols of which each has one value in a program: the same program over other sizes is made by
 * other values for them (random_ir_of).
 */
#ifndef KIN_TESTS_RANDOM_IR_H
#define KIN_TESTS_RANDOM_IR_H

#include "run_program.h"

enum { RANDOM_SYMBOLS = 10 };
static const int64_t usual_sizes[RANDOM_SYMBOLS] = {1, 2, 3, 4, 5, 8, 16, 17, 33, 64};

typedef struct {
    kin_ir *p;
    run_random r;
    const int64_t *symbols;
    kin_irn values[128];
    unsigned n, inputs;
} maker;

static inline unsigned
pick(maker *m, unsigned below)
{
    unsigned drawn = (unsigned)run_next(&m->r);
    return below == 0 ? 0 : drawn % below; /* of the places in an empty dim there is none */
}

static inline kin_irn
keep(maker *m, kin_irn n)
{
    if (n && kin_ir_numel(m->p, n) <= 6000 && m->n < 120)
        m->values[m->n++] = n;
    return n;
}

static inline const kin_ir_node *
node_at(const maker *m, kin_irn n)
{
    return kin_ir_at(m->p, n);
}

static inline kin_irn
any_value(maker *m)
{
    return m->values[m->n - 1 - pick(m, m->n < 6 || pick(m, 4) == 0 ? m->n : 6)];
}

static inline kin_irn
new_input(maker *m, kin_dtype dtype)
{
    int64_t sizes[4];
    unsigned ndim = pick(m, 4);
    for (int64_t d = 0, room = 4000; d < ndim; room /= sizes[d] ? sizes[d] : 1, d++)
        for (sizes[d] = m->symbols[pick(m, RANDOM_SYMBOLS)]; sizes[d] > room;)
            sizes[d] /= 2;
    kin_irn n = kin_ir_input(m->p, m->inputs++, dtype, ndim, sizes);
    if (ndim == 2 && pick(m, 3) == 0)
        kin_ir_set_strides(m->p, n, (int64_t[]){1, sizes[0]});
    return keep(m, n);
}

/* Eager leaves open what becomes of NaN and of numbers out of range. */
static inline kin_irn
as_dtype(maker *m, kin_irn a, kin_dtype t)
{
    bool from = kin_dtype_is_float(node_at(m, a)->dtype);
    if (from && !kin_dtype_is_float(t) && t != KIN_BOOL)
        a = kin_ir_binary(m->p, KIN_IR_GT, a, kin_ir_unary(m->p, KIN_IR_COS, a));
    return kin_ir_cast(m->p, a, t);
}

/* `a` as `like` has its sizes, by an expand when the sizes allow one; else `like` made of itself. */
static inline kin_irn
shaped(maker *m, kin_irn a, kin_irn like)
{
    int64_t sizes[KIN_IR_MAX_DIMS], old[KIN_IR_MAX_DIMS];
    unsigned na = node_at(m, a)->ndim, nl = node_at(m, like)->ndim;
    memcpy(sizes, kin_ir_sizes(m->p, like), nl * sizeof *sizes);
    memcpy(old, kin_ir_sizes(m->p, a), na * sizeof *old);
    if (kin_ir_numel(m->p, a) == kin_ir_numel(m->p, like))
        return kin_ir_reshape(m->p, a, nl, sizes);
    bool fits = na <= nl;
    for (unsigned d = 0; d < na && fits; d++)
        fits = old[d] == 1 || old[d] == sizes[d + nl - na];
    if (fits)
        return kin_ir_expand(m->p, a, nl, sizes);
    return as_dtype(m, like, node_at(m, a)->dtype);
}

static inline bool
is_float_value(const maker *m, kin_irn a)
{
    return kin_dtype_is_float(node_at(m, a)->dtype);
}

static inline kin_irn
make_pointwise(maker *m)
{
    static const kin_ir_op unary[] = {KIN_IR_NEG, KIN_IR_ABS, KIN_IR_SIGN, KIN_IR_TANH, KIN_IR_SIGMOID, KIN_IR_FLOOR, KIN_IR_ERF,
                                      KIN_IR_COS, KIN_IR_SIN, KIN_IR_ATAN};
    static const kin_ir_op binary[] = {KIN_IR_ADD, KIN_IR_SUB, KIN_IR_MUL, KIN_IR_MAX, KIN_IR_MIN, KIN_IR_FMAX};
    kin_irn a = any_value(m), b = any_value(m);
    kin_dtype t = node_at(m, a)->dtype;
    switch (pick(m, 5)) {
    case 0:
        if (is_float_value(m, a))
            return kin_ir_unary(m->p, unary[pick(m, 10)], a);
        return t == KIN_BOOL ? kin_ir_unary(m->p, KIN_IR_NOT, a) : kin_ir_unary(m->p, KIN_IR_NEG, a);
    case 1: {
        kin_irn c = as_dtype(m, shaped(m, any_value(m), a), KIN_BOOL);
        return kin_ir_where(m->p, c, a, as_dtype(m, shaped(m, b, a), t));
    }
    case 2: return kin_ir_binary(m->p, KIN_IR_EQ + pick(m, 6), a, as_dtype(m, shaped(m, b, a), t));
    case 3: {
        static const kin_dtype to[] = {KIN_F32, KIN_F64, KIN_F32, KIN_I32, KIN_BOOL};
        return as_dtype(m, a, to[pick(m, 5)]);
    }
    default: {
        kin_ir_op op = binary[pick(m, 6)];
        b = as_dtype(m, shaped(m, b, a), t);
        if (op == KIN_IR_FMAX && !is_float_value(m, a))
            op = KIN_IR_MAX;
        if (t == KIN_BOOL && (op == KIN_IR_SUB || op == KIN_IR_MAX || op == KIN_IR_MIN))
            op = KIN_IR_MUL;
        return kin_ir_binary(m->p, op, a, b);
    }
    }
}

static inline kin_irn
make_reshape(maker *m, kin_irn a)
{
    int64_t sizes[8], numel = kin_ir_numel(m->p, a);
    unsigned ndim = 0;
    for (int64_t f = 2 + (int64_t)pick(m, 4); ndim < 3 && numel > 1; f = f > 6 ? 2 : f + 1)
        if (numel % f == 0) {
            sizes[ndim++] = f;
            numel /= f;
        } else if (pick(m, 3) == 0) {
            break;
        }
    sizes[ndim++] = numel;
    return kin_ir_reshape(m->p, a, ndim, sizes);
}

static inline kin_irn
make_index(maker *m, kin_irn a)
{
    int64_t map[KIN_IR_MAX_DIMS], sizes[KIN_IR_MAX_DIMS];
    unsigned ndim = node_at(m, a)->ndim, dim;
    if (ndim == 0 || kin_ir_numel(m->p, a) == 0)
        return 0;
    dim = pick(m, ndim);
    memcpy(sizes, kin_ir_sizes(m->p, a), ndim * sizeof *sizes);
    int64_t limit = sizes[dim];
    sizes[dim] = 1 + (int64_t)pick(m, 9);
    for (unsigned d = 0; d < ndim; d++)
        map[d] = d == dim ? -1 : (int64_t)d;
    kin_irn i = kin_ir_iota(m->p, KIN_I64, pick(m, ndim), ndim, sizes), at = i;
    kin_scalar by = {.i = 7}, most = {.i = limit - (pick(m, 50) ? 0 : 1)};
    at = kin_ir_binary(m->p, KIN_IR_MUL, at, kin_ir_const(m->p, KIN_I64, by, ndim, sizes));
    at = kin_ir_binary(m->p, KIN_IR_REM, at, kin_ir_const(m->p, KIN_I64, most, ndim, sizes));
    return kin_ir_index(m->p, a, map, &at, 1, ndim, sizes);
}

static inline kin_irn
make_scatter(maker *m, kin_irn a)
{
    int64_t map[KIN_IR_MAX_DIMS], sizes[KIN_IR_MAX_DIMS];
    unsigned ndim = node_at(m, a)->ndim, dim;
    kin_dtype t = node_at(m, a)->dtype;
    if (ndim == 0 || kin_ir_numel(m->p, a) == 0)
        return 0;
    dim = pick(m, ndim);
    memcpy(sizes, kin_ir_sizes(m->p, a), ndim * sizeof *sizes);
    kin_scalar limit = {.i = sizes[dim]};
    sizes[dim] = 1 + (int64_t)pick(m, 9);
    for (unsigned d = 0; d < ndim; d++)
        map[d] = d == dim ? -1 : (int64_t)d;
    kin_irn i = kin_ir_iota(m->p, KIN_I64, dim, ndim, sizes);
    i = kin_ir_binary(m->p, KIN_IR_REM, i, kin_ir_const(m->p, KIN_I64, limit, ndim, sizes));
    kin_irn source = kin_ir_cast(m->p, kin_ir_iota(m->p, KIN_I64, pick(m, ndim), ndim, sizes), t);
    return kin_ir_scatter_into(m->p, pick(m, 2) ? KIN_IR_SCATTER_SET : KIN_IR_SCATTER_MAX, a, source, map, &i, 1);
}

static inline kin_irn
make_view(maker *m)
{
    int64_t x[KIN_IR_MAX_DIMS], y[KIN_IR_MAX_DIMS], z[KIN_IR_MAX_DIMS];
    kin_irn a = any_value(m);
    unsigned ndim = node_at(m, a)->ndim;
    memcpy(z, kin_ir_sizes(m->p, a), ndim * sizeof *z);
    switch (pick(m, 7)) {
    case 0:
        for (unsigned d = 0; d < ndim; d++)
            x[d] = d;
        for (unsigned d = ndim; d > 1; d--) {
            unsigned o = pick(m, d);
            int64_t t = x[d - 1];
            x[d - 1] = x[o];
            x[o] = t;
        }
        return kin_ir_permute(m->p, a, x);
    case 1: return make_reshape(m, a);
    case 2:
        for (unsigned d = 0; d < ndim; d++) {
            bool back = pick(m, 4) == 0 && z[d] > 0;
            int64_t step = 1 + pick(m, 2), start = pick(m, (unsigned)z[d]);
            int64_t room = back ? start + 1 : z[d] - start;
            x[d] = start;
            y[d] = back ? -step : step;
            z[d] = (room + step - 1) / step;
        }
        return kin_ir_slice(m->p, a, x, y, z);
    case 3: {
        kin_scalar zero = {.i = 0};
        for (unsigned d = 0; d < ndim; d++) {
            x[d] = (int64_t)pick(m, 4) - 1;
            z[d] += pick(m, 3);
        }
        return kin_ir_pad(m->p, a, kin_ir_const(m->p, node_at(m, a)->dtype, zero, 0, NULL), x, z);
    }
    case 4: {
        unsigned parts = 2 + pick(m, 5);
        kin_irn all[8];
        if (ndim == 0)
            return 0;
        for (unsigned i = 0; i < parts; i++)
            all[i] = i % 2 ? as_dtype(m, shaped(m, any_value(m), a), node_at(m, a)->dtype) : a;
        return kin_ir_cat(m->p, all, parts, pick(m, ndim));
    }
    case 5: return make_index(m, a);
    default: return make_scatter(m, a);
    }
}

static inline kin_irn
make_reduce(maker *m)
{
    kin_irn a = any_value(m);
    unsigned ndim = node_at(m, a)->ndim, n = 0;
    kin_dtype t = node_at(m, a)->dtype;
    int64_t dims[KIN_IR_MAX_DIMS];
    for (unsigned d = 0; d < ndim; d++)
        if (pick(m, 2))
            dims[n++] = d;
    if (n == 0 || kin_ir_numel(m->p, a) == 0) /* which has no code: it runs as steps */
        return 0;
    if (pick(m, 6) == 0)
        return kin_ir_scan(m->p, t == KIN_BOOL || is_float_value(m, a) ? KIN_IR_CUMMAX : KIN_IR_CUMSUM, a, (unsigned)dims[0]);
    if (pick(m, 5) == 0)
        return kin_ir_reduce(m->p, pick(m, 2) ? KIN_IR_ARGMAX : KIN_IR_ARGMIN, a, n == ndim ? n : 1, dims);
    if (t == KIN_BOOL)
        return kin_ir_reduce(m->p, pick(m, 2) ? KIN_IR_REDUCE_ANY : KIN_IR_REDUCE_ALL, a, n, dims);
    if (is_float_value(m, a) && pick(m, 2)) { /* sums stay small and finite */
        a = kin_ir_unary(m->p, KIN_IR_TANH, a);
        a = kin_ir_binary(m->p, KIN_IR_FMAX, a, kin_ir_const(m->p, t, (kin_scalar){.f = 0}, ndim, kin_ir_sizes(m->p, a)));
        return kin_ir_reduce(m->p, KIN_IR_REDUCE_SUM, a, n, dims);
    }
    return kin_ir_reduce(m->p, is_float_value(m, a) ? KIN_IR_REDUCE_MAX : KIN_IR_REDUCE_SUM, a, n, dims);
}

static inline kin_ir *
random_ir_of(uint64_t seed, const int64_t symbols[RANDOM_SYMBOLS])
{
    static const kin_dtype dtypes[] = {KIN_F32, KIN_F32, KIN_F32, KIN_I32, KIN_I64, KIN_F64, KIN_BOOL};
    maker m = {.p = kin_ir_new(), .r = {seed * 1000003 + 5}, .symbols = symbols};
    unsigned inputs = 1 + pick(&m, 3), steps = 2 + pick(&m, 14);
    for (unsigned i = 0; i < inputs; i++)
        (void)new_input(&m, dtypes[i ? pick(&m, 7) : 0]);
    for (unsigned i = 0; i < steps; i++) {
        unsigned kind = pick(&m, 10);
        (void)keep(&m, kind < 5 ? make_pointwise(&m) : kind < 8 ? make_view(&m) : make_reduce(&m));
    }
    kin_ir_output(m.p, m.values[m.n - 1], NULL);
    for (unsigned i = 0; i < pick(&m, 3); i++)
        kin_ir_output(m.p, any_value(&m), NULL);
    return m.p;
}

static inline kin_ir *
random_ir(uint64_t seed)
{
    return random_ir_of(seed, usual_sizes);
}

#endif
