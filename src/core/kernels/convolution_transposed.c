/* Transposed convolutions (convolution.h): results whose positions have the same remainder by the stride see the same taps of the kernel, every
 * stride-th of them, in reverse order. For each combination of remainders that is an ordinary convolution, whose results are scattered. Where taps lie apart
 * the stride is 1: that is one convolution, with the same taps.
 */
#include "core/kernels/convolution.h"

#include "core/tiles/tile.h"

enum { SPACE = KIN_CONVOLUTION_SPACE };

bool
kin_transposed_suits(const kin_convolution *x)
{
    for (int d = 0; d < SPACE; d++)
        if ((x->dilation[d] != 1 && x->stride[d] != 1) || x->kernel[d] < x->stride[d])
            return false;
    return x->groups == 1;
}

static int64_t
count_phases(const kin_convolution *x)
{
    return x->stride[0] * x->stride[1] * x->stride[2];
}

/* The convolution for one combination of remainders; of the kernel it takes the taps first[d], first[d] + stride[d], ... Strides of x and y,
 * and what y is, are to be set. */
static kin_convolution
phase_of(const kin_convolution *x, int64_t phase, int64_t *at, int64_t *first)
{
    kin_convolution c = *x;
    for (int d = SPACE; d-- > 0; phase /= x->stride[d]) {
        int64_t s = x->stride[d];
        at[d] = phase % s;
        first[d] = (at[d] + x->padding[d]) % s;
        c.kernel[d] = (x->kernel[d] - first[d] + s - 1) / s;
        c.padding[d] = x->dilation[d] * (c.kernel[d] - 1) - (at[d] + x->padding[d]) / s;
        c.out[d] = at[d] < x->out[d] ? (x->out[d] - at[d] + s - 1) / s : 0;
        c.stride[d] = 1;
    }
    c.phase = count_phases(x) > 1 || x->groups > 1;
    return c;
}

/* Where the stride is longer than the kernel, some results see no tap. */
static bool
sees_nothing(const kin_convolution *c)
{
    return c->kernel[0] <= 0 || c->kernel[1] <= 0 || c->kernel[2] <= 0;
}

static void
clear_phase(const kin_convolution *c)
{
    for (int64_t n = 0; n < c->batch; n++)
        for (int64_t i = 0; i < c->out[0]; i++)
            for (int64_t j = 0; j < c->out[1]; j++)
                for (int64_t k = 0; k < c->out[2]; k++)
                    kin_tile_clear(c->filters, c->y + n * c->y_strides[0] + i * c->y_strides[2] + j * c->y_strides[3] + k * c->y_strides[4]);
}

size_t
kin_transposed_panels_len(const kin_convolution *x)
{
    size_t len = 0;
    for (int64_t p = 0; p < count_phases(x); p++) {
        int64_t at[SPACE], first[SPACE];
        kin_convolution c = phase_of(x, p, at, first);
        len += sees_nothing(&c) ? 0 : kin_convolution_panels_len(&c);
    }
    return len;
}

/* Panels of one phase. What were channels are filters here, which are those of their group; of a depthwise one both are one. */
static void
make_panels(const kin_convolution *c, const float *weight, const int64_t *strides, float *panels)
{
    bool depthwise = c->groups == c->channels && c->groups == c->filters;
    int64_t turned[2 + SPACE] = {depthwise ? strides[0] : strides[1], strides[0], strides[2], strides[3], strides[4]};
    if (c->groups == 1 || depthwise) {
        kin_convolution_make_panels(c, weight, turned, panels);
        return;
    }
    kin_convolution of = *c;
    of.channels /= c->groups;
    of.filters /= c->groups;
    of.groups = 1;
    for (int64_t g = 0; g < c->groups; g++, panels += kin_convolution_panels_len(&of))
        kin_convolution_make_panels(&of, weight + g * of.channels * strides[0], turned, panels);
}

void
kin_transposed_make_panels(const kin_convolution *x, const float *weight, const int64_t *strides, float *panels)
{
    for (int64_t p = 0; p < count_phases(x); p++) {
        int64_t at[SPACE], first[SPACE], backwards[2 + SPACE] = {strides[0], strides[1]};
        kin_convolution c = phase_of(x, p, at, first);
        const float *from = weight;
        if (sees_nothing(&c))
            continue;
        for (int d = 0; d < SPACE; d++) {
            from += (first[d] + (c.kernel[d] - 1) * x->stride[d]) * strides[2 + d];
            backwards[2 + d] = -x->stride[d] * strides[2 + d];
        }
        make_panels(&c, from, backwards, panels);
        panels += kin_convolution_panels_len(&c);
    }
}

bool
kin_transposed_run(const kin_convolution *x, kin_parallel parallel)
{
    int64_t dense[2 + SPACE] = {0}, step = x->filters;
    for (int d = SPACE; d-- > 0; step *= x->out[d])
        dense[2 + d] = step;
    dense[0] = step;
    const float *panels = x->panels;
    for (int64_t p = 0; p < count_phases(x); p++) {
        int64_t at[SPACE], first[SPACE];
        kin_convolution c = phase_of(x, p, at, first);
        c.scattered = count_phases(x) > 1;
        c.panels = panels;
        c.y_strides[0] = dense[0];
        for (int d = 0; d < SPACE; d++) {
            c.y += at[d] * dense[2 + d];
            c.y_strides[2 + d] = x->stride[d] * dense[2 + d];
        }
        if (sees_nothing(&c)) { /* of gradients only: nothing is added or follows */
            clear_phase(&c);
            continue;
        }
        if (!kin_convolution_run(&c, parallel))
            return false;
        panels += kin_convolution_panels_len(&c);
    }
    return true;
}
