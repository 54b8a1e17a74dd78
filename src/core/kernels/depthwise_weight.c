/* Gradients of depthwise filters (convolution_priv.h): line by line of what comes back, each line of taps at once, with channels next to each other. The sums
 * of an image are added to those of all images once they are whole: long sums are made of shorter ones (KIN_TILE_LONG).
 */
#include "core/kernels/convolution_priv.h"

#include <stdlib.h>

#include "core/tier/threads.h"
#include "core/tiles/tile.h"

enum { VECTOR = 16 };

/* Who works, on what: vectors of channels are shared out. */
typedef struct {
    const kin_convolution_weight *x;
    float *sums, *part; /* [taps, channels] each: of all images, of one */
} sharing;

/* Places of a line of results for which a tap lies inside of the image's line. */
typedef struct {
    int64_t first, behind;
} range;

static range
find_places(const kin_convolution_weight *x, int64_t tap)
{
    int64_t from = x->padding[1] - tap * x->dilation[1], last = x->in[1] - 1 + from, step = x->stride[1];
    range r = {from > 0 ? kin_tile_divide_up(from, step) : 0, last < 0 ? 0 : last / step + 1};
    r.behind = r.behind < x->out[1] ? r.behind : x->out[1];
    r.first = r.first < r.behind ? r.first : r.behind;
    return r;
}

/* `taps` taps from `tap` on see all of these places: those of channels [from, from + n). */
static void
add_places(const sharing *s, range r, const float *back, const float *line, int64_t tap, unsigned taps, float *to, int64_t n)
{
    const kin_convolution_weight *x = s->x;
    for (int64_t i = r.first, now; i < r.behind; i += now) {
        now = r.behind - i < KIN_TILE_LONG ? r.behind - i : KIN_TILE_LONG;
        int64_t at = i * x->stride[1] - x->padding[1] + tap * x->dilation[1];
        kin_tile_filter_back(n, taps, now, back + i * x->back_strides[3], x->back_strides[3], line + at * x->x_strides[3], x->stride[1] * x->x_strides[3],
                             x->dilation[1] * x->x_strides[3], to + tap * x->channels, x->channels);
    }
}

/* A line of what comes back, and a line of the image that a line of taps sees with it. */
static void
add_line(const sharing *s, const float *back, const float *line, float *to, int64_t n)
{
    const kin_convolution_weight *x = s->x;
    int64_t taps = x->kernel[1];
    range last = find_places(x, taps - 1), all = {find_places(x, 0).first, last.behind}; /* what every tap sees */
    if (all.first >= all.behind)
        all = (range){0, 0};
    else
        add_places(s, all, back, line, 0, (unsigned)taps, to, n);
    for (int64_t t = 0; t < taps; t++) {
        range own = find_places(x, t), before = {own.first, own.behind < all.first ? own.behind : all.first};
        range behind = {own.first > all.behind ? own.first : all.behind, own.behind};
        add_places(s, before, back, line, t, 1, to, n);
        add_places(s, behind, back, line, t, 1, to, n);
    }
}

static void
add_image(const sharing *s, int64_t image, int64_t from, int64_t n)
{
    const kin_convolution_weight *x = s->x;
    const float *back = x->back + image * x->back_strides[0] + from, *seen = x->x + image * x->x_strides[0] + from;
    for (int64_t l = 0; l < x->out[0]; l++)
        for (int64_t i = 0; i < x->kernel[0]; i++) {
            int64_t line = l * x->stride[0] - x->padding[0] + i * x->dilation[0];
            if (line >= 0 && line < x->in[0])
                add_line(s, back + l * x->back_strides[2], seen + line * x->x_strides[2], s->part + i * x->kernel[1] * x->channels + from, n);
        }
}

/* Vectors [begin, end) of channels. */
static void
run_share(int64_t begin, int64_t end, void *arg)
{
    const sharing *s = arg;
    const kin_convolution_weight *x = s->x;
    int64_t from = begin * VECTOR, n = (end * VECTOR < x->channels ? end * VECTOR : x->channels) - from, taps = x->kernel[0] * x->kernel[1];
    for (int64_t i = 0; i < x->batch; i++) {
        for (int64_t t = 0; t < taps; t++)
            kin_tile_clear(n, s->part + t * x->channels + from);
        add_image(s, i, from, n);
        for (int64_t t = 0; t < taps; t++)
            kin_tile_add(s->part + t * x->channels + from, n, s->sums + t * x->channels + from);
    }
    for (int64_t c = from; c < from + n; c++)
        for (int64_t t = 0; t < taps; t++)
            x->to[c * taps + t] = s->sums[t * x->channels + c];
}

/* With channels next to each other: *strides and the result, which *copy owns if it is one. NULL without memory. */
static const float *
lay_last(const float *from, int64_t batch, int64_t channels, const int64_t *space, int64_t *strides, float **copy)
{
    *copy = NULL;
    if (strides[1] == 1)
        return from;
    float *to = *copy = malloc((size_t)(batch * space[0] * space[1] * channels) * sizeof *to);
    for (int64_t n = 0; to != NULL && n < batch; n++)
        for (int64_t i = 0; i < space[0]; i++)
            for (int64_t c = 0; c < channels; c++) {
                const float *line = from + n * strides[0] + c * strides[1] + i * strides[2];
                for (int64_t j = 0; j < space[1]; j++)
                    to[((n * space[0] + i) * space[1] + j) * channels + c] = line[j * strides[3]];
            }
    strides[0] = space[0] * space[1] * channels;
    strides[1] = 1;
    strides[2] = space[1] * channels;
    strides[3] = channels;
    return to;
}

bool
kin_depthwise_weight_run(const kin_convolution_weight *all, kin_parallel parallel)
{
    kin_convolution_weight x = *all;
    float *image, *back;
    x.x = lay_last(x.x, x.batch, x.channels, x.in, x.x_strides, &image);
    x.back = lay_last(x.back, x.batch, x.channels, x.out, x.back_strides, &back);
    int64_t taps = x.kernel[0] * x.kernel[1], units = kin_tile_divide_up(x.channels, VECTOR);
    float *room = calloc((size_t)(2 * taps * x.channels), sizeof *room);
    sharing s = {&x, room, room + taps * x.channels};
    bool ok = x.x != NULL && x.back != NULL && room != NULL;
    int64_t grain = kin_tier_grain((double)(x.batch * x.out[0] * x.out[1]) * (double)taps * VECTOR * 4, KIN_TIER_THREAD_PRODUCT);
    if (ok && parallel != NULL && units > grain)
        parallel(units, grain, run_share, &s);
    else if (ok)
        run_share(0, units, &s);
    free(room);
    free(image);
    free(back);
    return ok;
}
