/* Attention against its definition in double: layouts, masks, causal rows, shared heads, rows that see nothing, NaN. */
#include "core/kernels/attention.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "core/tiles/tile.h"

static float
next_number(void)
{
    static unsigned state = 7;
    state = state * 1664525u + 1013904223u;
    return (float)(state >> 8) / (float)(1 << 23) - 1;
}

/* A tensor with room for gaps: [b, h, l, d] in memory as the permutation `order` of its dims says, `gap` between elements. */
static float *
make(const int64_t *sizes, const int *order, int64_t gap, int64_t *strides)
{
    int64_t step = gap;
    for (int i = 3; i >= 0; i--) {
        strides[order[i]] = step;
        step *= sizes[order[i]];
    }
    float *room = malloc((size_t)step * sizeof *room);
    for (int64_t i = 0; i < step; i++)
        room[i] = next_number() * 2;
    return room;
}

static float
at(const float *x, const int64_t *strides, int64_t b, int64_t h, int64_t i, int64_t j)
{
    return x[b * strides[0] + h * strides[1] + i * strides[2] + j * strides[3]];
}

static double
score(const kin_attention *x, int64_t b, int64_t h, int64_t i, int64_t j)
{
    double sum = 0;
    for (int64_t d = 0; d < x->depth; d++)
        sum += (double)at(x->q, x->q_strides, b, h, i, d) * at(x->k, x->k_strides, b, h / (x->heads / x->key_heads), j, d);
    sum *= x->scale;
    if (x->mask != NULL)
        sum += at(x->mask, x->mask_strides, b, h, i, j);
    return x->causal && j > i ? -INFINITY : sum;
}

/* The largest difference in a row; INFINITY when one is NaN and the other is not. */
static double
check_row(const kin_attention *x, int64_t b, int64_t h, int64_t i, double *weights)
{
    double largest = -INFINITY, total = 0, worst = 0;
    for (int64_t j = 0; j < x->keys; j++) {
        weights[j] = score(x, b, h, i, j);
        largest = isnan(weights[j]) || weights[j] > largest ? weights[j] : largest;
    }
    for (int64_t j = 0; j < x->keys; j++)
        total += weights[j] = largest == -INFINITY ? 0 : exp(weights[j] - largest);
    for (int64_t c = 0; c < x->width; c++) {
        double sum = 0, got = at(x->out, x->out_strides, b, h, i, c);
        for (int64_t j = 0; j < x->keys; j++)
            sum += weights[j] * at(x->v, x->v_strides, b, h / (x->heads / x->key_heads), j, c);
        sum = total == 0 ? 0 : sum / total;
        double off = isnan(sum) != isnan(got) ? INFINITY : isnan(sum) ? 0 : fabs(sum - got);
        worst = off > worst ? off : worst;
    }
    return worst;
}

static void
check_all(const kin_attention *x)
{
    double *weights = malloc((size_t)x->keys * sizeof *weights), worst = 0;
    for (int64_t b = 0; b < x->batch; b++)
        for (int64_t h = 0; h < x->heads; h++)
            for (int64_t i = 0; i < x->rows; i++) {
                double off = check_row(x, b, h, i, weights);
                worst = off > worst ? off : worst;
            }
    CHECK(worst < 5e-6);
    free(weights);
}

/* The last part first, then the others. */
static void
run_in_parts(int64_t n, int64_t grain, void (*fn)(int64_t, int64_t, void *), void *arg)
{
    CHECK(n > grain && grain > 0);
    fn(n / 2, n, arg);
    fn(0, n / 2, arg);
}

typedef enum { PLAIN, CAUSAL, MASK, MASK_ALL_HEADS, MASK_OF_KEYS, NOTHING_SEEN, WITH_NAN } kind;

static void
set_mask(kin_attention *x, kind what, float *mask)
{
    bool heads = what == MASK || what == NOTHING_SEEN, rows = what != MASK_OF_KEYS;
    int64_t n = (heads ? x->heads : 1) * (rows ? x->rows : 1) * x->keys;
    for (int64_t i = 0; i < n; i++)
        mask[i] = next_number() > 0.5f ? -INFINITY : next_number();
    for (int64_t j = 0; what == NOTHING_SEEN && j < x->keys; j++)
        mask[j] = mask[(x->rows - 1) * x->keys + j] = -INFINITY;
    x->mask = mask;
    x->mask_strides[1] = heads ? x->rows * x->keys : 0;
    x->mask_strides[2] = rows ? x->keys : 0;
    x->mask_strides[3] = 1;
}

static void
test_one(kind what, int64_t batch, int64_t heads, int64_t key_heads, int64_t rows, int64_t keys, int64_t depth, int way)
{
    static const int orders[3][4] = {{0, 1, 2, 3}, {0, 2, 1, 3}, {1, 0, 3, 2}};
    kin_attention x = {.batch = batch, .heads = heads, .key_heads = key_heads, .rows = rows, .keys = keys, .depth = depth, .width = depth,
                       .scale = 0.3f, .causal = what == CAUSAL};
    int64_t q_sizes[4] = {batch, heads, rows, depth}, k_sizes[4] = {batch, key_heads, keys, depth};
    float *q = make(q_sizes, orders[way], 1 + way / 2, x.q_strides), *k = make(k_sizes, orders[(way + 1) % 3], 1, x.k_strides);
    float *v = make(k_sizes, orders[way], 1 + way % 2, x.v_strides), *out = make(q_sizes, orders[way], 1, x.out_strides);
    float *mask = malloc((size_t)(heads * rows * keys) * sizeof *mask);
    x.q = q;
    x.k = k;
    x.v = v;
    x.out = out;
    if (what >= MASK && what <= NOTHING_SEEN)
        set_mask(&x, what, mask);
    if (what == WITH_NAN)
        q[0] = NAN;
    CHECK(kin_attention_run(&x, NULL));
    check_all(&x);
    if (batch * heads > 1 && rows * keys * depth > 1 << 16) {
        memset(out, 0xff, (size_t)(batch * heads * rows * depth) * sizeof *out);
        CHECK(kin_attention_run(&x, run_in_parts));
        check_all(&x);
    }
    free(q);
    free(k);
    free(v);
    free(out);
    free(mask);
}

int
main(void)
{
    if (kin_tile_here())
        for (int what = PLAIN; what <= WITH_NAN; what++)
            for (int way = 0; way < 3; way++) {
                test_one((kind)what, 2, 4, 2, 7, 5, 8, way);
                test_one((kind)what, 1, 2, 2, 60, 33, 20, way);
                test_one((kind)what, 2, 3, 1, 65, 70, 40, way);
                test_one((kind)what, 1, 2, 1, 70, 600, 16, way);
                test_one((kind)what, 1, 1, 1, 1, 600, 33, way);
            }
    return check_report("attention");
}
