/* Gradient clipping (optim.h): the norm of many gradients, and scaling them, each in one pass. */
#include "core/optim/optim.h"

#include <math.h>
#include <stdlib.h>

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("O3")
#endif

enum { BLOCK = 1 << 14, LANES = 16, CHUNK = 4096 };

/* Blocks of elements, counted over all tensors: each belongs to one tensor and is summed by one thread, so that sums do not depend on threads. */
typedef struct {
    const kin_optim_part *parts;
    size_t n;
    double *sums;
    float by;
} table;

static int64_t
blocks_of(int64_t n)
{
    return (n + BLOCK - 1) / BLOCK;
}

/* A stretch short enough that lanes of float lose nothing that matters. */
static double
sum_chunk(const float *x, int64_t n)
{
    float lanes[LANES] = {0};
    int64_t i = 0;
    double sum = 0;
    for (; i + LANES <= n; i += LANES)
        for (int l = 0; l < LANES; l++)
            lanes[l] += x[i + l] * x[i + l];
    for (; i < n; i++)
        sum += (double)x[i] * x[i];
    for (int l = 0; l < LANES; l++)
        sum += lanes[l];
    return sum;
}

static void
sum_block(const table *t, int64_t at, const float *x, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i += CHUNK)
        sum += sum_chunk(x + i, n - i < CHUNK ? n - i : CHUNK);
    t->sums[at] = sum;
}

static void
scale_block(const table *t, float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        x[i] *= t->by;
}

static void
run_share(int64_t begin, int64_t end, void *arg)
{
    const table *t = arg;
    int64_t before = 0;
    for (size_t p = 0; p < t->n && before < end; before += blocks_of(t->parts[p++].n)) {
        int64_t last = before + blocks_of(t->parts[p].n) < end ? before + blocks_of(t->parts[p].n) : end;
        for (int64_t b = begin > before ? begin : before; b < last; b++) {
            int64_t from = (b - before) * BLOCK, n = t->parts[p].n - from < BLOCK ? t->parts[p].n - from : BLOCK;
            if (t->sums != NULL)
                sum_block(t, b, t->parts[p].data + from, n);
            else
                scale_block(t, t->parts[p].data + from, n);
        }
    }
}

static void
run(table *t, int64_t blocks, kin_optim_parallel parallel)
{
    if (blocks > 1 && parallel != NULL)
        parallel(blocks, 1, run_share, t);
    else
        run_share(0, blocks, t);
}

static int64_t
count_blocks(const kin_optim_part *parts, size_t n)
{
    int64_t blocks = 0;
    for (size_t i = 0; i < n; i++)
        blocks += blocks_of(parts[i].n);
    return blocks;
}

kin_status
kin_optim_norm(const kin_optim_part *parts, size_t n, kin_optim_parallel parallel, double *norm)
{
    int64_t blocks = count_blocks(parts, n);
    table t = {.parts = parts, .n = n, .sums = calloc((size_t)blocks + 1, sizeof *t.sums)};
    double sum = 0;
    if (t.sums == NULL)
        return KIN_NOMEM;
    run(&t, blocks, parallel);
    for (int64_t b = 0; b < blocks; b++)
        sum += t.sums[b];
    free(t.sums);
    *norm = sqrt(sum);
    return KIN_OK;
}

void
kin_optim_scale(const kin_optim_part *parts, size_t n, float by, kin_optim_parallel parallel)
{
    table t = {.parts = parts, .n = n, .by = by};
    run(&t, count_blocks(parts, n), parallel);
}
