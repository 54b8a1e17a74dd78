/* Runs a compiled program on made-up data and compares every output with the oracle's. */
#ifndef KIN_TESTS_RUN_PROGRAM_H
#define KIN_TESTS_RUN_PROGRAM_H

#include <math.h>

#include "core/ir/scalar.h"
#include "core/pipeline/pipeline.h"

typedef struct {
    uint64_t state;
} run_random;

static inline uint64_t
run_next(run_random *r)
{
    r->state = r->state * 6364136223846793005u + 1442695040888963407u;
    return r->state >> 33;
}

/* Numbers that tell kinds of mistakes apart: halves, negatives, zeros, rarely NaN and infinity. */
static inline kin_scalar
run_number(run_random *r, kin_dtype dtype)
{
    kin_scalar s = {.i = 0};
    uint64_t n = run_next(r);
    if (dtype == KIN_BOOL)
        s.i = (int64_t)(n & 1);
    else if (!kin_dtype_is_float(dtype))
        s.i = (int64_t)(n % 5);
    else if (n % 97 == 0)
        s.f = n & 1024 ? NAN : n & 512 ? INFINITY : -INFINITY;
    else
        s.f = (double)((int64_t)(n % 257) - 128) / 32.0;
    return kin_scalar_settle(dtype, s);
}

static inline int64_t
run_numel(const kin_buf *b)
{
    int64_t n = 1;
    for (unsigned d = 0; d < b->ndim; d++)
        n *= b->sizes[d];
    return n;
}

/* Where the element with this row-major number lies. */
static inline int64_t
run_place(const kin_buf *b, int64_t number)
{
    int64_t at = 0;
    for (unsigned d = b->ndim; d-- > 0;) {
        at += number % b->sizes[d] * b->strides[d];
        number /= b->sizes[d];
    }
    return at;
}

/* A double may have been a float before. */
static inline kin_dtype
run_precision(const kin_ir *ir, kin_dtype dtype)
{
    for (kin_irn n = 1; dtype == KIN_F64 && n < ir->nodes.len; n++)
        if (kin_ir_at(ir, n)->dtype == KIN_F32)
            return KIN_F32;
    return dtype;
}

static inline double
run_tolerance(kin_dtype dtype)
{
    return dtype == KIN_BF16 ? 2e-2 : dtype == KIN_F16 ? 2e-3 : dtype == KIN_F32 ? 2e-5 : 1e-12;
}

static inline bool
run_close(kin_dtype dtype, kin_scalar a, kin_scalar b)
{
    if (!kin_dtype_is_float(dtype))
        return a.i == b.i;
    if (isnan(a.f) || isnan(b.f))
        return isnan(a.f) && isnan(b.f);
    if (a.f == b.f)
        return true;
    return isfinite(a.f) && isfinite(b.f) && fabs(a.f - b.f) <= run_tolerance(dtype) * (1 + fmax(fabs(a.f), fabs(b.f)));
}

typedef struct {
    void *dense[64];   /* inputs as the oracle wants them */
    void **memory;     /* by buffer */
    char *arena;
    void *wanted[64];
} run_data;

static inline void
run_inputs(const kin_ir *ir, run_data *d, uint64_t seed)
{
    run_random r = {seed * 7919 + 17};
    for (kin_irn n = 1; n < ir->nodes.len; n++) {
        const kin_ir_node *node = kin_ir_at(ir, n);
        if (node->op != KIN_IR_INPUT)
            continue;
        int64_t numel = kin_ir_numel(ir, n);
        void *at = calloc((size_t)numel + 1, kin_dtype_bytes(node->dtype));
        for (int64_t i = 0; i < numel; i++)
            kin_scalar_store(node->dtype, at, i, run_number(&r, node->dtype));
        d->dense[kin_ir_attrs(ir, n)[0]] = at;
    }
}

/* Buffers end where their bytes end: the sanitizer sees a write behind. */
static inline void
run_memory(const kin_program *p, run_data *d)
{
    d->memory = calloc(p->buffers.len + 1, sizeof *d->memory);
    d->arena = aligned_alloc(64, p->arena + 64);
    memset(d->arena, 0x7f, p->arena + 1);
    for (uint32_t b = 0; b < p->buffers.len; b++) {
        const kin_buf *buf = &p->buffers.at[b];
        if (buf->kind == KIN_BUF_TEMP) {
            d->memory[b] = d->arena + buf->offset;
            continue;
        }
        d->memory[b] = aligned_alloc(64, buf->bytes / 64 * 64 + 64);
        memset(d->memory[b], 0x7f, buf->bytes + 1);
        for (int64_t i = 0; buf->kind == KIN_BUF_INPUT && i < run_numel(buf); i++)
            kin_scalar_store(buf->dtype, d->memory[b], run_place(buf, i), kin_scalar_load(buf->dtype, d->dense[buf->index], i));
    }
}

static inline int
run_kernels(const kin_program *p, run_data *d, int pieces)
{
    for (uint32_t i = 0; i < p->ops.len; i++) {
        const kin_kernel *k = &p->kernels.at[p->ops.at[i].index];
        void *at[64];
        for (uint32_t b = 0; b < k->nbuffers; b++)
            at[b] = d->memory[k->buffers[b]];
        int64_t step = (k->range / pieces + k->grain) / k->grain * k->grain;
        for (int64_t begin = 0; begin < k->range; begin += step)
            if (k->fn(at, begin, begin + step < k->range ? begin + step : k->range, k->numbers))
                return 1;
    }
    return 0;
}

static inline bool
run_compare(const kin_program *p, const kin_ir *ir, run_data *d, kin_text *why)
{
    for (uint32_t o = 0; o < p->noutputs; o++) {
        const kin_buf *buf = &p->buffers.at[p->outputs[o]];
        for (int64_t i = 0; i < run_numel(buf); i++) {
            kin_scalar want = kin_scalar_load(buf->dtype, d->wanted[o], i);
            kin_scalar got = kin_scalar_load(buf->dtype, d->memory[p->outputs[o]], run_place(buf, i));
            if (run_close(run_precision(ir, buf->dtype), want, got))
                continue;
            if (kin_dtype_is_float(buf->dtype))
                kin_text_addf(why, "output %u element %lld: %.9g, not %.9g\n", o, (long long)i, got.f, want.f);
            else
                kin_text_addf(why, "output %u element %lld: %lld, not %lld\n", o, (long long)i, (long long)got.i, (long long)want.i);
            return false;
        }
    }
    return true;
}

/* All that run_inputs and run_memory took, and what the oracle wanted. */
static inline void
run_release(const kin_program *p, run_data *d)
{
    for (uint32_t b = 0; b < p->buffers.len; b++)
        if (p->buffers.at[b].kind != KIN_BUF_TEMP)
            free(d->memory[b]);
    for (unsigned i = 0; i < 64; i++) {
        free(d->dense[i]);
        free(d->wanted[i]);
    }
    free(d->memory);
    free(d->arena);
}

static kin_compile_stats run_stats; /* of the last program */

/* False with `why` when a compiled program and the oracle differ. family: as in kin_pipeline_options. */
static inline bool
run_family_against_oracle(kin_jit *jit, kin_family *family, const kin_ir *ir, uint64_t seed, kin_text *why)
{
    kin_program *p = NULL;
    run_data d = {0};
    bool ok = kin_pipeline_compile(jit, family, ir, &p, &run_stats, why) == KIN_OK;
    if (!ok)
        return false;
    run_inputs(ir, &d, seed);
    run_memory(p, &d);
    kin_status oracle = kin_ir_eval(ir, (const void *const *)d.dense, d.wanted);
    int error = run_kernels(p, &d, 3);
    if (oracle == KIN_BREAK && !error) { /* in something that no output needs? */
        kin_ir *live = kin_ir_simplify(ir, false);
        oracle = kin_ir_eval(live, (const void *const *)d.dense, d.wanted);
        kin_ir_free(live);
    }
    if ((oracle == KIN_BREAK) != (error != 0)) {
        kin_text_addf(why, "the oracle says %d, the program %d\n", oracle, error);
        ok = false;
    } else if (oracle == KIN_OK) {
        ok = run_compare(p, ir, &d, why);
    }
    if (!ok)
        kin_program_print(p, why);
    run_release(p, &d);
    kin_program_free(p);
    return ok;
}

static inline bool
run_against_oracle(kin_jit *jit, const kin_ir *ir, uint64_t seed, kin_text *why)
{
    return run_family_against_oracle(jit, NULL, ir, seed, why);
}

#endif
