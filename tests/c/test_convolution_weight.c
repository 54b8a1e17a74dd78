/* Gradients of filters, and of images where the stride is longer than the kernel, against their definition, on small whole numbers: exact in any
 * order of adding.
 */
#include "core/kernels/convolution_weight.h"

#include <math.h>
#include <stdlib.h>

#include "check.h"
#include "core/kernels/winograd_weight.h"
#include "core/tiles/tile.h"

static float *
fill(int64_t n, int times)
{
    float *room = malloc((size_t)(n + 1) * sizeof *room);
    for (int64_t i = 0; room != NULL && i < n; i++)
        room[i] = (float)(i * times % 7 - 3);
    return room;
}

static void
lay(int64_t channels, const int64_t *space, bool last, int64_t *strides)
{
    strides[0] = channels * space[0] * space[1];
    strides[1] = last ? 1 : space[0] * space[1];
    strides[2] = last ? space[1] * channels : space[1];
    strides[3] = last ? channels : 1;
}

/* Sums of the definition for one tap, one filter, one channel of its group. */
static float
expected(const kin_convolution_weight *x, int64_t f, int64_t i, int64_t j, int64_t c)
{
    float sum = 0;
    c += f / (x->filters / x->groups) * (x->channels / x->groups);
    for (int64_t n = 0; n < x->batch; n++)
        for (int64_t y = 0; y < x->out[0]; y++)
            for (int64_t z = 0; z < x->out[1]; z++) {
                int64_t line = y * x->stride[0] - x->padding[0] + i * x->dilation[0], at = z * x->stride[1] - x->padding[1] + j * x->dilation[1];
                if (line >= 0 && at >= 0 && line < x->in[0] && at < x->in[1])
                    sum += x->x[n * x->x_strides[0] + c * x->x_strides[1] + line * x->x_strides[2] + at * x->x_strides[3]] *
                           x->back[n * x->back_strides[0] + f * x->back_strides[1] + y * x->back_strides[2] + z * x->back_strides[3]];
            }
    return sum;
}

static void
check_result(const kin_convolution_weight *x)
{
    int64_t wrong = 0, at = 0;
    for (int64_t f = 0; f < x->filters; f++)
        for (int64_t i = 0; i < x->kernel[0]; i++)
            for (int64_t j = 0; j < x->kernel[1]; j++)
                for (int64_t c = 0; c < x->channels / x->groups; c++)
                    wrong += x->to[at++] != expected(x, f, i, j, c);
    CHECK_EQ(wrong, 0);
}

static void
in_parts(int64_t n, int64_t grain, void (*fn)(int64_t begin, int64_t end, void *arg), void *arg)
{
    for (int64_t from = 0; from < n; from += grain)
        fn(from, from + grain < n ? from + grain : n, arg);
}

typedef struct {
    int64_t batch, channels, filters, in[2], kernel[2], stride[2], padding[2], dilation[2], groups;
} shape;

static void
test(const shape *s)
{
    for (int way = 0; way < 4; way++) {
        kin_convolution_weight x = {.batch = s->batch, .channels = s->channels, .filters = s->filters, .groups = s->groups > 0 ? s->groups : 1};
        for (int d = 0; d < 2; d++) {
            x.in[d] = s->in[d];
            x.kernel[d] = s->kernel[d];
            x.stride[d] = s->stride[d];
            x.padding[d] = s->padding[d];
            x.dilation[d] = s->dilation[d];
            x.out[d] = (x.in[d] + 2 * x.padding[d] - x.dilation[d] * (x.kernel[d] - 1) - 1) / x.stride[d] + 1;
        }
        lay(x.channels, x.in, way & 1, x.x_strides);
        lay(x.filters, x.out, way & 2, x.back_strides);
        float *image = fill(x.batch * x.x_strides[0], 5), *back = fill(x.batch * x.back_strides[0], 3);
        x.x = image;
        x.back = back;
        x.to = fill(x.filters * x.channels * x.kernel[0] * x.kernel[1], 1);
        CHECK(kin_convolution_weight_run(&x, way % 3 ? in_parts : NULL));
        check_result(&x);
        free(image);
        free(back);
        free(x.to);
    }
}

static void
test_filters(void)
{
    static const shape shapes[] = {
        {2, 16, 16, {7, 9}, {3, 3}, {1, 1}, {1, 1}, {1, 1}},  {3, 33, 17, {8, 6}, {3, 3}, {2, 2}, {1, 1}, {1, 1}},
        {1, 40, 29, {10, 11}, {1, 1}, {2, 2}, {0, 0}, {1, 1}}, {2, 70, 31, {12, 9}, {5, 5}, {3, 3}, {2, 2}, {1, 1}},
        {2, 16, 48, {14, 14}, {3, 3}, {1, 1}, {2, 2}, {2, 2}}, {1, 32, 16, {5, 5}, {3, 3}, {1, 1}, {0, 0}, {1, 1}},
        {2, 16, 16, {6, 6}, {1, 1}, {1, 1}, {1, 1}, {1, 1}},  {2, 16, 16, {7, 6}, {1, 1}, {3, 3}, {2, 2}, {1, 1}},
        {2, 20, 18, {1, 40}, {1, 5}, {1, 3}, {0, 2}, {1, 1}},  {1, 17, 16, {9, 4}, {3, 1}, {2, 1}, {1, 0}, {1, 1}},
        {3, 3, 20, {9, 8}, {3, 3}, {1, 1}, {1, 1}, {1, 1}},    {2, 3, 16, {15, 13}, {7, 7}, {2, 2}, {3, 3}, {1, 1}},
        {2, 1, 16, {6, 7}, {3, 3}, {1, 1}, {2, 2}, {2, 2}},    {2, 5, 33, {6, 7}, {2, 4}, {1, 2}, {0, 1}, {1, 1}},
        {1, 16, 300, {40, 200}, {3, 3}, {1, 1}, {1, 1}, {1, 1}}, /* several blocks of an image */
        {90, 33, 16, {9, 9}, {3, 3}, {1, 1}, {1, 1}, {1, 1}},  /* ... of images */
        {2, 32, 1, {9, 11}, {3, 3}, {1, 1}, {1, 1}, {1, 1}},   {2, 20, 3, {9, 8}, {5, 5}, {2, 2}, {2, 2}, {1, 1}},
        {2, 40, 40, {9, 8}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, 40}, {3, 33, 33, {11, 9}, {5, 5}, {2, 2}, {2, 2}, {1, 1}, 33}, /* depthwise */
        {2, 16, 16, {14, 3}, {7, 7}, {1, 1}, {3, 3}, {1, 1}, 16}, {1, 19, 19, {9, 20}, {3, 9}, {1, 1}, {0, 4}, {2, 1}, 19},
        {1, 17, 17, {1, 1600}, {1, 11}, {1, 1}, {0, 5}, {1, 1}, 17}, {2, 16, 16, {5, 6}, {2, 2}, {3, 3}, {0, 0}, {1, 1}, 16},
        {2, 16, 16, {4, 2}, {3, 3}, {1, 3}, {4, 4}, {1, 1}, 16},
        {2, 48, 32, {9, 8}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, 2},  {2, 96, 48, {9, 8}, {3, 3}, {2, 2}, {1, 1}, {1, 1}, 3}, /* groups */
    };
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        test(&shapes[i]);
}

/* Winograd's way, alone and shared out; what is not finite is left to the other one. */
static void
test_winograd(int64_t batch, int64_t channels, int64_t filters, int64_t height, int64_t width, int64_t padding)
{
    kin_convolution_weight x = {.batch = batch, .channels = channels, .filters = filters, .groups = 1, .in = {height, width}, .kernel = {3, 3}, .stride = {1, 1},
                                .padding = {padding, padding}, .dilation = {1, 1}, .out = {height + 2 * padding - 2, width + 2 * padding - 2}};
    lay(channels, x.in, true, x.x_strides);
    lay(filters, x.out, true, x.back_strides);
    float *image = fill(batch * x.x_strides[0], 5), *back = fill(batch * x.back_strides[0], 3);
    x.x = image;
    x.back = back;
    x.to = fill(filters * channels * 9, 1);
    for (int way = 0; way < 2; way++) {
        bool finite = false;
        CHECK(kin_winograd_weight_suits(&x));
        CHECK(kin_winograd_weight_run(&x, way ? in_parts : NULL, &finite) && finite);
        check_result(&x);
    }
    bool finite = true;
    image[batch * x.x_strides[0] / 2] = INFINITY;
    CHECK(kin_winograd_weight_run(&x, NULL, &finite) && !finite);
    CHECK(kin_convolution_weight_run(&x, NULL));
    int64_t infinite = 0, not = 0;
    for (int64_t i = 0; i < filters * channels * 9; i++) {
        infinite += isinf(x.to[i]) != 0;
        not += isnan(x.to[i]) != 0;
    }
    CHECK(infinite > 0 && infinite + not <= filters * 9);
    free(image);
    free(back);
    free(x.to);
}

/* A transposed convolution whose kernel is shorter than its stride: gradients of images that it does not see are zeros. */
static void
test_gaps(int64_t kernel, int64_t stride, int64_t padding, int64_t size, int64_t C, int64_t F, int64_t groups)
{
    enum { N = 2 };
    int64_t small = (size + 2 * padding - kernel) / stride + 1;
    kin_convolution x = {.batch = N, .channels = F, .filters = C, .groups = groups, .in = {1, small, small}, .out = {1, size, size}, .kernel = {1, kernel, kernel},
                         .stride = {1, stride, stride}, .padding = {0, padding, padding}, .dilation = {1, 1, 1}};
    int64_t channels = C / groups, filters = F / groups; /* of a group */
    float *back = fill(N * F * small * small, 3), *weight = fill(F * channels * kernel * kernel, 5), *y = fill(N * C * size * size, 1);
    int64_t strides[5] = {F * small * small, 1, 0, small * F, F}, of_weight[5] = {channels * kernel * kernel, kernel * kernel, 0, kernel, 1};
    for (int d = 0; d < 5; d++)
        x.x_strides[d] = strides[d];
    float *panels = aligned_alloc(64, (kin_transposed_panels_len(&x) * sizeof(float) + 63) / 64 * 64);
    kin_transposed_make_panels(&x, weight, of_weight, panels);
    x.x = back;
    x.y = y;
    x.panels = panels;
    CHECK(kin_transposed_run(&x, in_parts));
    int64_t wrong = 0;
    for (int64_t n = 0; n < N; n++)
        for (int64_t i = 0; i < size; i++)
            for (int64_t j = 0; j < size; j++)
                for (int64_t c = 0; c < C; c++) {
                    float sum = 0;
                    for (int64_t k = 0; k < kernel; k++)
                        for (int64_t l = 0; l < kernel; l++) {
                            int64_t a = i + padding - k, b = j + padding - l;
                            for (int64_t f = c / channels * filters; f < (c / channels + 1) * filters && a >= 0 && b >= 0 && a % stride == 0 && b % stride == 0 && a / stride < small && b / stride < small; f++)
                                sum += back[((n * small + a / stride) * small + b / stride) * F + f] * weight[f * of_weight[0] + c % channels * of_weight[1] + k * kernel + l];
                        }
                    wrong += y[((n * size + i) * size + j) * C + c] != sum;
                }
    CHECK_EQ(wrong, 0);
    free(back);
    free(weight);
    free(y);
    free(panels);
}

int
main(void)
{
    if (kin_tile_here()) {
        test_filters();
        test_winograd(4, 32, 32, 12, 12, 1);
        test_winograd(3, 16, 16, 11, 13, 1);
        test_winograd(2, 48, 29, 14, 15, 0);
        test_winograd(1, 80, 47, 17, 18, 2);
        test_winograd(5, 64, 70, 9, 23, 1); /* several blocks, the last one smaller */
        CHECK(!kin_winograd_weight_suits(&(kin_convolution_weight){.channels = 40}));
        static const int64_t groups[][3] = {{18, 21, 1}, {37, 37, 37}, {32, 48, 2}}, gaps[][4] = {{1, 2, 0, 7}, {1, 3, 0, 8}, {2, 3, 1, 9}, {3, 1, 1, 6},
                                            {3, 2, 1, 8}, {1, 1, 1, 5}, {3, 1, 0, 12}, {5, 2, 2, 12}};
        for (unsigned i = 0; i < sizeof groups / sizeof *groups; i++)
            for (unsigned j = 0; j < sizeof gaps / sizeof *gaps; j++)
                test_gaps(gaps[j][0], gaps[j][1], gaps[j][2], gaps[j][3], groups[i][0], groups[i][1], groups[i][2]);
    }
    return check_report("convolution weight");
}
