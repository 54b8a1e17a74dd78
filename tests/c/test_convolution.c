/* Convolutions of our own against their definition, on small whole numbers: exact in any order of adding. */
#include "core/kernels/convolution.h"

#include "core/ir/half.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "core/tiles/tile.h"
#include "core/kernels/winograd.h"

static bool strange; /* some of the input's numbers are not finite */

typedef struct {
    kin_convolution x;
    float *input, *weight, *panels, *added, *bias;
    int64_t w_strides[5];
} problem;

static float *
fill(int64_t n, int times, int modulus)
{
    float *room = malloc((size_t)(n + 1) * sizeof *room);
    for (int64_t i = 0; room != NULL && i < n; i++)
        room[i] = (float)(i * times % modulus - modulus / 2);
    return room;
}

/* Strides of [a, b, space...] with dim 1 last, or row-major. */
static int64_t
lay(const int64_t *sizes, bool last, int64_t *strides)
{
    int64_t step = 1;
    if (last) {
        strides[1] = step;
        step *= sizes[1];
    }
    for (int d = 5; d-- > 0;)
        if (d != 1 || !last) {
            strides[d] = step;
            step *= sizes[d];
        }
    return step;
}

static float
expected(const problem *p, int64_t n, int64_t f, const int64_t *at)
{
    const kin_convolution *x = &p->x;
    int64_t in_group = x->channels / x->groups, group = f / (x->filters / x->groups);
    float sum = 0;
    for (int64_t c = 0; c < in_group; c++)
        for (int64_t t = 0; t < x->kernel[0] * x->kernel[1] * x->kernel[2]; t++) {
            int64_t k[3] = {t / x->kernel[2] / x->kernel[1], t / x->kernel[2] % x->kernel[1], t % x->kernel[2]};
            int64_t from = n * x->x_strides[0] + (group * in_group + c) * x->x_strides[1];
            int64_t w = f * p->w_strides[0] + c * p->w_strides[1];
            bool inside = true;
            for (int d = 0; d < 3; d++) {
                int64_t i = at[d] * x->stride[d] - x->padding[d] + k[d] * x->dilation[d];
                inside = inside && i >= 0 && i < x->in[d];
                from += i * x->x_strides[2 + d];
                w += k[d] * p->w_strides[2 + d];
            }
            if (inside)
                sum += p->input[from] * p->weight[w];
        }
    if (x->bias != NULL)
        sum += x->bias[f];
    if (x->added != NULL)
        sum += x->added[n * x->added_strides[0] + f + at[0] * x->added_strides[2] + at[1] * x->added_strides[3] +
                        at[2] * x->added_strides[4]];
    if (x->limited)
        sum = sum < x->least ? x->least : sum > x->most ? x->most : sum;
    return sum;
}

static bool
same(float a, float b)
{
    return a == b || (isnan(a) && isnan(b));
}

static void
check_result(const problem *p)
{
    const kin_convolution *x = &p->x;
    int64_t wrong = 0, row = 0;
    for (int64_t n = 0; n < x->batch; n++)
        for (int64_t i = 0; i < x->out[0]; i++)
            for (int64_t j = 0; j < x->out[1]; j++)
                for (int64_t k = 0; k < x->out[2]; k++, row++)
                    for (int64_t f = 0; f < x->filters; f++)
                        wrong += !same(x->y[row * x->filters + f], expected(p, n, f, (int64_t[]){i, j, k}));
    CHECK_EQ(wrong, 0);
}

static void
in_parts(int64_t n, int64_t grain, void (*fn)(int64_t begin, int64_t end, void *arg), void *arg)
{
    for (int64_t from = 0; from < n; from += grain)
        fn(from, from + grain < n ? from + grain : n, arg);
}

/* What follows, on blocks: buffers are the result and how many filters it has. Doubles each element and adds 1. */
static int
double_it(void *const *buffers, int64_t begin, int64_t end, const int64_t *numbers)
{
    float *y = buffers[0];
    const int64_t *filters = buffers[1], *window = buffers[2];
    CHECK(begin < end && window[0] % 32 == 0 && window[0] < window[1] && (window[1] % 32 == 0 || window[1] == *filters));
    for (int64_t i = begin; i < end; i++)
        for (int64_t j = window[0]; j < window[1]; j++)
            y[i * *filters + j] = 2 * y[i * *filters + j] + 1;
    return 0;
}

/* Each element was doubled once. */
static void
check_doubled(kin_convolution *x, int64_t ny)
{
    kin_epilogue then = {double_it, NULL, (void *[]){x->y, &x->filters}, 2, x->filters};
    x->then = &then;
    CHECK(kin_convolution_run(x, in_parts));
    for (int64_t i = 0; i < ny; i++)
        x->y[i] = (x->y[i] - 1) / 2;
    x->then = NULL;
}

static uint16_t *
make_half(const float *x, int64_t n)
{
    uint16_t *half = malloc((size_t)(n + 1) * sizeof *half);
    for (int64_t i = 0; half != NULL && i < n; i++)
        half[i] = kin_bf16_from_float(x[i]); /* exact: small whole numbers */
    return half;
}

/* The same with image and weight of bfloat16. */
static void
check_pairs(problem *p, int64_t nx, int64_t nw)
{
    uint16_t *image = make_half(p->input, nx), *weight = make_half(p->weight, nw);
    float *panels = NULL;
    p->x.pairs = true;
    p->x.x = image;
    if (CHECK(image && weight) && CHECK(panels = aligned_alloc(64, (kin_convolution_panels_len(&p->x) * sizeof(float) + 63) / 64 * 64))) {
        kin_convolution_make_panels(&p->x, weight, p->w_strides, panels);
        p->x.panels = panels;
        CHECK(kin_convolution_run(&p->x, in_parts));
        check_result(p);
    }
    free(image);
    free(weight);
    free(panels);
}

/* sizes and settings are in x; the rest is made here. */
static void
check_convolution(kin_convolution x, bool last, bool extras)
{
    problem p = {.x = x};
    int64_t in[5] = {x.batch, x.channels, x.in[0], x.in[1], x.in[2]}, out[5] = {x.batch, x.filters, 0, 0, 0};
    int64_t weight[5] = {x.filters, x.channels / x.groups, x.kernel[0], x.kernel[1], x.kernel[2]};
    for (int d = 0; d < 3; d++)
        out[2 + d] = p.x.out[d] = (x.in[d] + 2 * x.padding[d] - x.dilation[d] * (x.kernel[d] - 1) - 1) / x.stride[d] + 1;
    int64_t nx = lay(in, last, p.x.x_strides), nw = lay(weight, false, p.w_strides);
    p.x.x = p.input = fill(nx, 7, 11);
    if (strange) {
        p.input[nx / 3] = INFINITY;
        p.input[nx - 1] = NAN;
    }
    p.weight = fill(nw, 5, 7);
    int64_t ny = lay(out, true, p.x.added_strides);
    p.added = fill(ny, 3, 5);
    p.bias = fill(x.filters, 1, 3);
    p.x.added = extras ? p.added : NULL;
    p.x.bias = extras ? p.bias : NULL;
    p.x.limited = extras;
    p.x.least = -20;
    p.x.most = INFINITY;
    p.x.y = malloc((size_t)(ny + 1) * sizeof(float));
    p.panels = aligned_alloc(64, (kin_convolution_panels_len(&p.x) * sizeof(float) + 63) / 64 * 64);
    if (CHECK(p.input && p.weight && p.added && p.bias && p.x.y && p.panels && kin_convolution_suits(&p.x))) {
        kin_convolution_make_panels(&p.x, p.weight, p.w_strides, p.panels);
        p.x.panels = p.panels;
        CHECK(kin_convolution_run(&p.x, extras ? in_parts : NULL));
        check_result(&p);
        if (kin_convolution_has_blocks(x.channels, x.filters, x.groups)) {
            check_doubled(&p.x, ny);
            check_result(&p);
        }
        if (!extras && kin_convolution_has_pairs(x.channels, x.groups))
            check_pairs(&p, nx, nw);
    }
    free(p.input);
    free(p.weight);
    free(p.added);
    free(p.bias);
    free(p.x.y);
    free(p.panels);
}

static void
check_ways(kin_convolution x)
{
    for (int way = 0; way < 4; way++)
        check_convolution(x, way & 1, way & 2);
}

#define PLANE(N, C, F, G, H, W, K, S, P, D) \
    (kin_convolution){.batch = N, .channels = C, .filters = F, .groups = G, .in = {1, H, W}, .kernel = {1, K, K}, .stride = {1, S, S}, \
                      .padding = {0, P, P}, .dilation = {1, D, D}}

static void
test_planes(void)
{
    check_ways(PLANE(1, 3, 8, 1, 9, 11, 3, 1, 1, 1));
    check_ways(PLANE(2, 5, 40, 1, 8, 7, 3, 2, 1, 1));
    check_ways(PLANE(1, 3, 33, 1, 17, 19, 7, 2, 3, 1));
    check_ways(PLANE(2, 16, 64, 1, 6, 6, 1, 1, 0, 1));
    check_ways(PLANE(2, 16, 24, 1, 7, 6, 1, 2, 0, 1));
    check_ways(PLANE(1, 6, 20, 1, 13, 12, 3, 1, 4, 4)); /* wider than the image, dilated */
    check_ways(PLANE(1, 8, 33, 1, 9, 40, 5, 3, 0, 2));
}

/* By Winograd's way: blocks of lines, of several images, pieces of lines; edges of all kinds; many panels. */
static void
test_winograd(void)
{
    const kin_convolution kinds[] = {PLANE(2, 32, 48, 1, 14, 14, 3, 1, 1, 1),  PLANE(1, 48, 32, 1, 17, 23, 3, 1, 0, 1),
                                     PLANE(5, 32, 32, 1, 7, 7, 3, 1, 1, 1),    PLANE(1, 32, 272, 1, 10, 14, 3, 1, 2, 1),
                                     PLANE(1, 144, 32, 1, 3, 71, 3, 1, 1, 1),  PLANE(1, 80, 32, 1, 2, 150, 3, 1, 1, 1)};
    for (unsigned i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        kin_convolution x = kinds[i];
        for (int d = 0; d < 3; d++)
            x.out[d] = x.in[d] + 2 * x.padding[d] - x.kernel[d] + 1;
        CHECK(kin_winograd_suits(&x));
        strange = i % 2 != 0;
        check_ways(kinds[i]);
        strange = false;
    }
}

/* More columns than a block has: several taps in each, or parts of one tap's channels. */
static void
test_deep(void)
{
    check_ways(PLANE(1, 130, 40, 1, 5, 6, 3, 1, 1, 1));
    check_ways(PLANE(1, 800, 17, 1, 4, 4, 3, 1, 1, 1));
    check_ways(PLANE(1, 1538, 5, 1, 3, 3, 1, 1, 0, 1));
    check_ways(PLANE(1, 4, 520, 1, 3, 5, 3, 1, 1, 1)); /* shared by panels */
}

static void
test_groups(void)
{
    check_ways(PLANE(1, 8, 64, 4, 6, 7, 3, 1, 1, 1));
    check_ways(PLANE(2, 70, 70, 70, 9, 8, 3, 1, 1, 1));
    check_ways(PLANE(1, 150, 150, 150, 9, 8, 5, 2, 2, 1));
    check_ways(PLANE(1, 20, 20, 20, 20, 11, 9, 1, 4, 1)); /* more taps than are done in one go */
    kin_convolution few = PLANE(1, 8, 16, 4, 6, 7, 3, 1, 1, 1);
    CHECK(!kin_convolution_suits(&few));
}

static void
test_other_spaces(void)
{
    check_ways((kin_convolution){.batch = 2, .channels = 6, .filters = 36, .groups = 1, .in = {1, 1, 50}, .kernel = {1, 1, 10},
                                 .stride = {1, 1, 5}, .padding = {0, 0, 2}, .dilation = {1, 1, 1}});
    check_ways((kin_convolution){.batch = 1, .channels = 300, .filters = 20, .groups = 1, .in = {1, 1, 700}, .kernel = {1, 1, 3},
                                 .stride = {1, 1, 1}, .padding = {0, 0, 1}, .dilation = {1, 1, 1}});
    check_ways((kin_convolution){.batch = 1, .channels = 3, .filters = 18, .groups = 1, .in = {5, 6, 7}, .kernel = {3, 3, 2},
                                 .stride = {1, 2, 1}, .padding = {1, 1, 0}, .dilation = {1, 1, 2}});
    check_ways((kin_convolution){.batch = 1, .channels = 18, .filters = 18, .groups = 18, .in = {5, 6, 7}, .kernel = {3, 3, 3},
                                 .stride = {1, 1, 1}, .padding = {1, 1, 1}, .dilation = {1, 1, 1}});
}

/* Each number of the input goes, times the kernel, to the places that it reaches. */
static void
check_transposed(kin_convolution x, bool last)
{
    int64_t in[5] = {x.batch, x.channels, x.in[0], x.in[1], x.in[2]}, weight_sizes[5] = {x.channels, x.filters, x.kernel[0], x.kernel[1], x.kernel[2]};
    int64_t out[5] = {x.batch, x.filters, x.out[0], x.out[1], x.out[2]}, ws[5], ys[5], wrong = 0;
    float *input = fill(lay(in, last, x.x_strides), 7, 11), *weight = fill(lay(weight_sizes, false, ws), 5, 7);
    int64_t ny = lay(out, true, ys);
    float *want = calloc((size_t)ny, sizeof *want), *y = malloc((size_t)ny * sizeof *y), *bias = fill(x.filters, 1, 3);
    float *panels = aligned_alloc(64, (kin_transposed_panels_len(&x) * sizeof(float) + 63) / 64 * 64);
    if (CHECK(input && weight && want && y && bias && panels && kin_transposed_suits(&x))) {
        kin_transposed_make_panels(&x, weight, ws, panels);
        x.x = input;
        x.y = y;
        x.bias = bias;
        x.panels = panels;
        CHECK(kin_transposed_run(&x, last ? in_parts : NULL));
        int64_t taps = x.kernel[1] * x.kernel[2], places = x.in[1] * x.in[2];
        for (int64_t n = 0; n < x.batch; n++)
            for (int64_t i = 0; i < places * taps; i++) {
                int64_t p[2] = {i / taps / x.in[2], i / taps % x.in[2]}, k[2] = {i % taps / x.kernel[2], i % taps % x.kernel[2]}, o[2];
                for (int d = 0; d < 2; d++)
                    o[d] = p[d] * x.stride[1 + d] - x.padding[1 + d] + k[d];
                for (int64_t c = 0; c < x.channels && o[0] >= 0 && o[0] < x.out[1] && o[1] >= 0 && o[1] < x.out[2]; c++)
                    for (int64_t f = 0; f < x.filters; f++)
                        want[n * ys[0] + f + o[0] * ys[3] + o[1] * ys[4]] +=
                            input[n * x.x_strides[0] + c * x.x_strides[1] + p[0] * x.x_strides[3] + p[1] * x.x_strides[4]] *
                            weight[c * ws[0] + f * ws[1] + k[0] * ws[3] + k[1] * ws[4]];
            }
        for (int64_t i = 0; i < ny; i++)
            wrong += y[i] != want[i] + bias[i % x.filters];
        CHECK_EQ(wrong, 0);
    }
    free(input);
    free(weight);
    free(want);
    free(y);
    free(bias);
    free(panels);
}

static void
test_transposed(void)
{
    static const int64_t kinds[][4] = {{2, 2, 0, 0}, {4, 2, 1, 0}, {3, 2, 1, 1}, {3, 1, 1, 0}, {4, 1, 0, 0}, {5, 3, 0, 1}, {4, 3, 3, 2}, {7, 2, 2, 0}};
    for (unsigned i = 0; i < sizeof kinds / sizeof *kinds; i++)
        for (int way = 0; way < 4; way++) {
            const int64_t *k = kinds[i];
            kin_convolution x = PLANE(2, 5, 36, 1, 3, (way & 2 ? 9 : 4), k[0], k[1], k[2], 1);
            x.out[0] = 1;
            for (int d = 1; d < 3; d++)
                x.out[d] = (x.in[d] - 1) * k[1] - 2 * k[2] + k[0] + k[3];
            check_transposed(x, way & 1);
        }
    for (int way = 0; way < 4; way++) { /* of one row, one column: of every second one nothing is there */
        kin_convolution x = PLANE(2, 5, 36, 1, (way & 1 ? 1 : 4), (way & 2 ? 1 : 4), 3, 2, 1, 1);
        x.out[0] = 1;
        for (int d = 1; d < 3; d++)
            x.out[d] = 2 * x.in[d] - 1;
        check_transposed(x, true);
    }
}

/* A NaN stays one behind limits. */
static void
test_nan(void)
{
    enum { CHANNELS = 4, FILTERS = 20 };
    float x[CHANNELS] = {1, NAN, 2, 3}, weight[CHANNELS * FILTERS], y[FILTERS];
    float *panels = aligned_alloc(64, CHANNELS * 32 * sizeof *panels);
    kin_convolution c = PLANE(1, CHANNELS, FILTERS, 1, 1, 1, 1, 1, 0, 1);
    for (int i = 0; i < CHANNELS * FILTERS; i++)
        weight[i] = 1;
    c.out[0] = c.out[1] = c.out[2] = c.x_strides[1] = 1;
    c.x = x;
    c.y = y;
    c.limited = true;
    c.most = 6;
    if (CHECK(panels != NULL)) {
        kin_convolution_make_panels(&c, weight, (int64_t[]){CHANNELS, 1, 1, 1, 1}, panels);
        c.panels = panels;
        CHECK(kin_convolution_run(&c, NULL) && isnan(y[0]) && isnan(y[FILTERS - 1]));
        x[1] = 100;
        CHECK(kin_convolution_run(&c, NULL) && y[0] == 6);
    }
    free(panels);
}

int
main(void)
{
    if (kin_tile_here()) {
        test_planes();
        test_winograd();
    test_deep();
        test_groups();
        test_other_spaces();
        test_transposed();
        test_nan();
    }
    return check_report("convolutions");
}
