/* Attention (attention.h). A thread packs panels of the keys and values of a head, then goes over its rows in blocks: scores of a block with
 * some hundreds of keys, their exponentials relative to the largest score so far, times the values. The sums so far are scaled down when a larger
 * score comes up.
 */
#include "core/kernels/attention.h"

#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "core/tier/threads.h"
#include "core/tiles/tile.h"

enum {
    ROWS = 56, /* of a block */
    KEYS = 512 /* whose scores are there at once */
};

typedef struct {
    const kin_attention *x;
    atomic_int failed;    /* there was no memory */
} sharing;

/* What a thread works in. */
typedef struct {
    const kin_attention *x;
    int64_t padded;       /* width in whole panels */
    float *keys, *values; /* panels of one head */
    float *q, *scores, *sums;
    float largest[ROWS], total[ROWS]; /* by row: of the scores so far */
} worker;

static int64_t
round_up(int64_t n)
{
    return (n + KIN_TILE_COLUMNS - 1) / KIN_TILE_COLUMNS * KIN_TILE_COLUMNS;
}

static bool
open_worker(worker *w, const kin_attention *x)
{
    int64_t depth = round_up(x->depth);
    *w = (worker){.x = x, .padded = round_up(x->width)};
    int64_t keys = round_up(x->keys) * x->depth, values = x->keys * w->padded, q = ROWS * depth, scores = ROWS * KEYS;
    w->keys = aligned_alloc(64, (size_t)round_up(keys + values + q + scores + ROWS * w->padded) * sizeof(float));
    w->values = w->keys + keys;
    w->q = w->values + values;
    w->scores = w->q + q;
    w->sums = w->scores + scores;
    return w->keys != NULL;
}

/* Panels: of 32 keys each, depth rows; of 32 columns of the values, a row for each key. */
static void
take_head(worker *w, int64_t batch, int64_t head)
{
    const kin_attention *x = w->x;
    const float *k = x->k + batch * x->k_strides[0] + head * x->k_strides[1], *v = x->v + batch * x->v_strides[0] + head * x->v_strides[1];
    for (int64_t j = 0; j < x->keys; j += KIN_TILE_COLUMNS) {
        int64_t n = x->keys - j < KIN_TILE_COLUMNS ? x->keys - j : KIN_TILE_COLUMNS;
        kin_tile_pack(x->depth, (unsigned)n, k + j * x->k_strides[2], x->k_strides[3], x->k_strides[2], w->keys + j * x->depth);
    }
    for (int64_t c = 0; c < x->width; c += KIN_TILE_COLUMNS) {
        int64_t n = x->width - c < KIN_TILE_COLUMNS ? x->width - c : KIN_TILE_COLUMNS;
        kin_tile_pack(x->keys, (unsigned)n, v + c * x->v_strides[3], x->v_strides[2], x->v_strides[3], w->values + c * x->keys);
    }
}

/* c [rows, columns] = a b for b in panels that lie `step` apart, from one of their rows onwards. */
static void
multiply(int64_t rows, int64_t columns, int64_t k, const float *a, int64_t lda, const float *panels, int64_t step, float *c, int64_t ldc,
         bool add)
{
    for (int64_t j = 0; j < columns; j += KIN_TILE_COLUMNS) {
        int64_t n = columns - j < KIN_TILE_COLUMNS ? columns - j : KIN_TILE_COLUMNS;
        const float *panel = panels + j / KIN_TILE_COLUMNS * step;
        for (int64_t i = 0, tiles = kin_tile_count(rows), some; i < rows; i += some, tiles--) {
            some = kin_tile_divide_up(rows - i, tiles);
            kin_tile_multiply((unsigned)some, (unsigned)n, k, a + i * lda, lda, panel, c + i * ldc + j, ldc, add, panel);
        }
    }
}

static void
add_mask(float *scores, const float *mask, int64_t stride, int64_t n)
{
    if (stride == 1)
        kin_tile_add(mask, n, scores);
    else
        for (int64_t j = 0; j < n; j++)
            scores[j] += mask[j * stride];
}

/* Scores of row i with keys [from, from + n) become weights; what was summed of earlier keys is scaled to fit. */
static void
weigh_row(worker *w, int64_t i, const float *mask, int64_t row, int64_t from, int64_t n)
{
    const kin_attention *x = w->x;
    float *scores = w->scores + i * KEYS, *sums = w->sums + i * w->padded;
    int64_t seen = !x->causal || row >= from + n - 1 ? n : row >= from ? row - from + 1 : 0;
    if (mask != NULL)
        add_mask(scores, mask + row * x->mask_strides[2] + from * x->mask_strides[3], x->mask_strides[3], seen);
    float old = w->largest[i], largest = kin_tile_largest(scores, seen);
    largest = old > largest ? old : largest; /* NaN stays */
    memset(scores + seen, 0, (size_t)(n - seen) * sizeof *scores);
    if (largest == -INFINITY) {
        memset(scores, 0, (size_t)seen * sizeof *scores);
        return;
    }
    float shrink = old == -INFINITY ? 0 : expf(old - largest);
    w->largest[i] = largest;
    w->total[i] = w->total[i] * shrink + kin_tile_exponentials(scores, seen, largest);
    if (from > 0 && shrink != 1)
        kin_tile_scale(sums, w->padded, shrink, sums);
}

static void
copy_queries(worker *w, const float *q, int64_t rows)
{
    const kin_attention *x = w->x;
    for (int64_t i = 0; i < rows; i++)
        if (x->q_strides[3] == 1)
            kin_tile_scale(q + i * x->q_strides[2], x->depth, x->scale, w->q + i * x->depth);
        else
            for (int64_t d = 0; d < x->depth; d++)
                w->q[i * x->depth + d] = q[i * x->q_strides[2] + d * x->q_strides[3]] * x->scale;
}

static void
give_rows(worker *w, float *out, int64_t rows)
{
    const kin_attention *x = w->x;
    for (int64_t i = 0; i < rows; i++) {
        float by = w->total[i] == 0 ? 1 : 1 / w->total[i];
        if (x->out_strides[3] == 1)
            kin_tile_scale(w->sums + i * w->padded, x->width, by, out + i * x->out_strides[2]);
        else
            for (int64_t c = 0; c < x->width; c++)
                out[i * x->out_strides[2] + c * x->out_strides[3]] = w->sums[i * w->padded + c] * by;
    }
}

/* Rows [first, first + rows) of a head. */
static void
do_block(worker *w, int64_t batch, int64_t head, int64_t first, int64_t rows)
{
    const kin_attention *x = w->x;
    const float *mask = x->mask == NULL ? NULL : x->mask + batch * x->mask_strides[0] + head * x->mask_strides[1];
    int64_t keys = x->causal && first + rows < x->keys ? first + rows : x->keys;
    copy_queries(w, x->q + batch * x->q_strides[0] + head * x->q_strides[1] + first * x->q_strides[2], rows);
    for (int64_t i = 0; i < rows; i++) {
        w->largest[i] = -INFINITY;
        w->total[i] = 0;
    }
    for (int64_t from = 0; from < keys; from += KEYS) {
        int64_t n = keys - from < KEYS ? keys - from : KEYS;
        multiply(rows, n, x->depth, w->q, x->depth, w->keys + from * x->depth, x->depth * KIN_TILE_COLUMNS, w->scores, KEYS, false);
        for (int64_t i = 0; i < rows; i++)
            weigh_row(w, i, mask, first + i, from, n);
        multiply(rows, w->padded, n, w->scores, KEYS, w->values + from * KIN_TILE_COLUMNS, x->keys * KIN_TILE_COLUMNS, w->sums, w->padded,
                 from > 0);
    }
    give_rows(w, x->out + batch * x->out_strides[0] + head * x->out_strides[1] + first * x->out_strides[2], rows);
}

static void
run_share(int64_t begin, int64_t end, void *arg)
{
    sharing *s = arg;
    const kin_attention *x = s->x;
    int64_t blocks = (x->rows + ROWS - 1) / ROWS, rows = (x->rows + blocks - 1) / blocks, taken = -1;
    worker w;
    if (!open_worker(&w, x)) {
        atomic_store(&s->failed, 1);
        return;
    }
    for (int64_t u = begin; u < end; u++) {
        int64_t head = u / blocks % x->heads, batch = u / blocks / x->heads, first = u % blocks * rows;
        int64_t key_head = head / (x->heads / x->key_heads), all = batch * x->key_heads + key_head;
        if (all != taken)
            take_head(&w, batch, key_head);
        taken = all;
        if (first < x->rows)
            do_block(&w, batch, head, first, x->rows - first < rows ? x->rows - first : rows);
    }
    free(w.keys);
}

bool
kin_attention_run(const kin_attention *x, kin_parallel parallel)
{
    sharing s = {.x = x};
    int64_t n = x->batch * x->heads * ((x->rows + ROWS - 1) / ROWS);
    double work = (double)(x->rows < ROWS ? x->rows : ROWS) * (double)x->keys * (double)(x->depth + x->width);
    int64_t grain = kin_tier_grain(work, KIN_TIER_THREAD_ATTENTION);
    if (parallel != NULL && n > grain)
        parallel(n, grain, run_share, &s);
    else
        run_share(0, n, &s);
    return atomic_load(&s.failed) == 0;
}
