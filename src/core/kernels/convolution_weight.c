/* Gradients of filters (convolution_weight.h). A *block* is some lines of results, perhaps of several images. The incoming gradient for it is packed into
 * tiles of filters, and the lines of the image that it sees into a panel for 32 channels, with padding around. Each tap is then a product with the
 * same panel, from another position on.
 */
#include "core/kernels/convolution_weight.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "core/kernels/convolution_priv.h"
#include "core/kernels/winograd_weight.h"
#include "core/tier/threads.h"
#include "core/tiles/tile.h"

enum {
    BACK_ROOM = 1 << 18,  /* floats of a block of what comes back */
    IMAGE_ROOM = 1 << 17, /* ... of a panel of the image */
    VECTOR = 16           /* what is missing of one is lost */
};

bool
kin_convolution_weight_wants_last(int64_t channels)
{
    return channels >= VECTOR;
}

/* `lines` lines of results of each of `images` images. */
typedef struct {
    int64_t image, images, line, lines;
} block;

/* Who works, on what: panels of channels times taps are shared out. */
typedef struct {
    const kin_convolution_weight *x;
    int64_t tiles, seen_lines, seen_columns; /* tiles of filters; what a whole block sees */
    block whole;                             /* the largest one */
    int64_t step[2];                         /* between the places that neighbouring results see; 1 where the kernel has one tap: the others are left out */
    int64_t apart[2];                        /* between places of the image that are put side by side */
    atomic_int failed;
} sharing;

static int64_t
taps_of(const kin_convolution_weight *x)
{
    return x->kernel[0] * x->kernel[1];
}

/* Places that n results in a row see. */
static int64_t
seen(const sharing *s, int d, int64_t n)
{
    return (n - 1) * s->step[d] + (s->x->kernel[d] - 1) * s->x->dilation[d] + 1;
}

static void
plan(sharing *s)
{
    const kin_convolution_weight *x = s->x;
    for (int d = 0; d < 2; d++) {
        s->step[d] = x->kernel[d] == 1 ? 1 : x->stride[d];
        s->apart[d] = x->kernel[d] == 1 ? x->stride[d] : 1;
    }
    s->tiles = kin_tile_divide_up(x->filters, KIN_TILE_ROWS);
    s->seen_columns = seen(s, 1, x->out[1]);
    int64_t line_back = x->out[1] * s->tiles * KIN_TILE_ROWS, most = BACK_ROOM / line_back, line_image = s->seen_columns * KIN_TILE_COLUMNS;
    int64_t of_image = seen(s, 0, x->out[0]) * line_image;
    if (most >= x->out[0] && of_image <= IMAGE_ROOM) { /* whole images */
        int64_t images = most / x->out[0] < IMAGE_ROOM / of_image ? most / x->out[0] : IMAGE_ROOM / of_image;
        s->whole = (block){.images = kin_tile_part_of(x->batch, images), .lines = x->out[0]};
    } else {
        int64_t lines = (IMAGE_ROOM / line_image - (x->kernel[0] - 1) * x->dilation[0]) / s->step[0];
        lines = lines < most ? lines : most;
        s->whole = (block){.images = 1, .lines = lines < 1 ? 1 : kin_tile_part_of(x->out[0], lines)};
    }
    s->seen_lines = seen(s, 0, s->whole.lines);
}

/* Lines of what comes back, each as tiles of filters. */
static void
take_back(const sharing *s, const block *b, float *to)
{
    const kin_convolution_weight *x = s->x;
    for (int64_t n = 0; n < b->images; n++)
        for (int64_t l = 0; l < b->lines; l++, to += x->out[1] * s->tiles * KIN_TILE_ROWS)
            kin_tile_pack_columns(x->out[1], x->filters, x->back + (b->image + n) * x->back_strides[0] + (b->line + l) * x->back_strides[2],
                                  x->back_strides[1], x->back_strides[3], to);
}

/* One line of 32 channels of the image, zeros outside of it. */
static void
take_line(const sharing *s, const float *image, int64_t line, unsigned channels, float *to)
{
    const kin_convolution_weight *x = s->x;
    int64_t inside = line >= 0 && line < x->in[0] ? s->seen_columns : 0, before = 0, behind, apart = s->apart[1];
    if (inside > 0) {
        before = (x->padding[1] + apart - 1) / apart < s->seen_columns ? (x->padding[1] + apart - 1) / apart : s->seen_columns;
        inside = (x->in[1] - 1 + x->padding[1]) / apart + 1 - before;
        inside = inside < 0 ? 0 : inside < s->seen_columns - before ? inside : s->seen_columns - before;
        kin_tile_pack(inside, channels, image + line * x->x_strides[2] + (before * apart - x->padding[1]) * x->x_strides[3], x->x_strides[3] * apart,
                      x->x_strides[1], to + before * KIN_TILE_COLUMNS);
    }
    behind = s->seen_columns - before - inside;
    kin_tile_clear(before * KIN_TILE_COLUMNS, to);
    kin_tile_clear(behind * KIN_TILE_COLUMNS, to + (before + inside) * KIN_TILE_COLUMNS);
}

static void
take_image(const sharing *s, const block *b, int64_t panel, float *to)
{
    const kin_convolution_weight *x = s->x;
    int64_t left = x->channels - panel * KIN_TILE_COLUMNS, lines = seen(s, 0, b->lines);
    unsigned channels = left < KIN_TILE_COLUMNS ? (unsigned)left : KIN_TILE_COLUMNS;
    for (int64_t n = 0; n < b->images; n++) {
        const float *image = x->x + (b->image + n) * x->x_strides[0] + panel * KIN_TILE_COLUMNS * x->x_strides[1];
        for (int64_t l = 0; l < lines; l++, to += s->seen_columns * KIN_TILE_COLUMNS)
            take_line(s, image, b->line * x->stride[0] + l * s->apart[0] - x->padding[0], channels, to);
    }
}

/* kin_tile_multiply_places, a part of a line, some lines or some images at a time (KIN_TILE_LONG). */
static void
multiply_in_parts(unsigned rows, unsigned columns, const kin_tile_places *all, const float *a, const float *b, float *c, int64_t ldc, bool add)
{
    int64_t of_image = all->lines * all->k, images = of_image < KIN_TILE_LONG ? kin_tile_part_of(all->images, KIN_TILE_LONG / of_image) : 1;
    int64_t lines = all->k < KIN_TILE_LONG ? kin_tile_part_of(all->lines, KIN_TILE_LONG / all->k) : 1, k = kin_tile_part_of(all->k, KIN_TILE_LONG);
    kin_tile_places some = *all;
    for (int64_t n = 0; n < all->images; n += images)
        for (int64_t l = 0; l < all->lines; l += lines)
            for (int64_t i = 0; i < all->k; i += k, add = true) {
                some.images = all->images - n < images ? all->images - n : images;
                some.lines = all->lines - l < lines ? all->lines - l : lines;
                some.k = all->k - i < k ? all->k - i : k;
                kin_tile_multiply_places(rows, columns, &some, a + n * all->a_image + l * all->a_line + i * KIN_TILE_ROWS,
                                         b + n * all->b_image + l * all->b_line + i * all->b_next, c, ldc, add);
            }
}

/* Taps [first, last) of a panel, for all filters: added to what is there unless the block is the first one. */
static void
multiply_taps(const sharing *s, const block *b, int64_t panel, int64_t first, int64_t last, const float *back, const float *image, bool add)
{
    const kin_convolution_weight *x = s->x;
    int64_t left = x->channels - panel * KIN_TILE_COLUMNS, ldc = taps_of(x) * x->channels, back_line = x->out[1] * s->tiles * KIN_TILE_ROWS;
    int64_t image_line = s->seen_columns * KIN_TILE_COLUMNS;
    kin_tile_places places = {.images = b->images, .lines = b->lines, .k = x->out[1], .a_image = b->lines * back_line, .a_line = back_line,
                              .b_image = seen(s, 0, b->lines) * image_line, .b_line = s->step[0] * image_line, .b_next = s->step[1] * KIN_TILE_COLUMNS};
    for (int64_t t = 0, f = 0, n; t < s->tiles; t++, f += n) {
        n = kin_tile_divide_up(x->filters - f, s->tiles - t);
        for (int64_t tap = first; tap < last; tap++) {
            int64_t at = tap / x->kernel[1] * x->dilation[0] * s->seen_columns + tap % x->kernel[1] * x->dilation[1];
            multiply_in_parts((unsigned)n, left < KIN_TILE_COLUMNS ? (unsigned)left : KIN_TILE_COLUMNS, &places, back + t * x->out[1] * KIN_TILE_ROWS,
                              image + at * KIN_TILE_COLUMNS, x->to + f * ldc + tap * x->channels + panel * KIN_TILE_COLUMNS, ldc, add);
        }
    }
}

/* Panels and taps [begin, end), for all blocks. */
static void
run_share(int64_t begin, int64_t end, void *arg)
{
    sharing *s = arg;
    const kin_convolution_weight *x = s->x;
    int64_t taps = taps_of(x), back_len = s->whole.images * s->whole.lines * x->out[1] * s->tiles * KIN_TILE_ROWS;
    back_len = kin_tile_divide_up(back_len, KIN_TILE_COLUMNS) * KIN_TILE_COLUMNS; /* the panel behind it is aligned */
    size_t len = (size_t)(back_len + s->whole.images * s->seen_lines * s->seen_columns * KIN_TILE_COLUMNS);
    float *room = aligned_alloc(64, len * sizeof *room), *image = room + back_len;
    if (room == NULL) {
        atomic_store(&s->failed, 1);
        return;
    }
    block b = s->whole;
    for (b.image = 0; b.image < x->batch; b.image += s->whole.images)
        for (b.line = 0; b.line < x->out[0]; b.line += s->whole.lines) {
            b.images = x->batch - b.image < s->whole.images ? x->batch - b.image : s->whole.images;
            b.lines = x->out[0] - b.line < s->whole.lines ? x->out[0] - b.line : s->whole.lines;
            take_back(s, &b, room);
            for (int64_t u = begin, next; u < end; u = next) {
                next = (u / taps + 1) * taps < end ? (u / taps + 1) * taps : end;
                take_image(s, &b, u / taps, image);
                multiply_taps(s, &b, u / taps, u % taps, u % taps + next - u, room, image, b.image > 0 || b.line > 0);
            }
        }
    free(room);
}

static bool
run(const kin_convolution_weight *x, kin_parallel parallel)
{
    sharing s = {.x = x};
    int64_t units = kin_tile_divide_up(x->channels, KIN_TILE_COLUMNS) * taps_of(x);
    double work = (double)(x->batch * x->out[0] * x->out[1]) * (double)x->filters * KIN_TILE_COLUMNS;
    int64_t grain = kin_tier_grain(work, KIN_TIER_THREAD_PRODUCT);
    plan(&s);
    if (parallel != NULL && units > grain)
        parallel(units, grain, run_share, &s);
    else
        run_share(0, units, &s);
    return atomic_load(&s.failed) == 0;
}

/* -- few channels ------------------------------------------------------------------------------------------------- */

/* The image with its channels next to each other, and zeros at both ends of its lines. */
static float *
copy_image(const kin_convolution_weight *x, int64_t wide)
{
    float *copy = calloc((size_t)(x->batch * x->in[0] * wide * x->channels), sizeof *copy), *to = copy;
    for (int64_t n = 0; copy != NULL && n < x->batch; n++)
        for (int64_t l = 0; l < x->in[0]; l++, to += wide * x->channels)
            for (int64_t c = 0; c < x->channels; c++) {
                const float *from = x->x + n * x->x_strides[0] + c * x->x_strides[1] + l * x->x_strides[2];
                for (int64_t i = 0; i < x->in[1]; i++)
                    to[(x->padding[1] + i) * x->channels + c] = from[i * x->x_strides[3]];
            }
    return copy;
}

/* A line of taps sees neighbouring places: all their channels together are those of a kernel of one column. */
static bool
run_joined(const kin_convolution_weight *x, kin_parallel parallel)
{
    int64_t wide = x->in[1] + 2 * x->padding[1];
    kin_convolution_weight joined = *x;
    float *copy = copy_image(x, wide);
    joined.x = copy;
    joined.channels = x->channels * x->kernel[1];
    joined.kernel[1] = 1;
    joined.padding[1] = 0;
    joined.in[1] = wide - x->kernel[1] + 1;
    joined.x_strides[0] = x->in[0] * wide * x->channels;
    joined.x_strides[1] = 1;
    joined.x_strides[2] = wide * x->channels;
    joined.x_strides[3] = x->channels;
    bool ok = copy != NULL && run(&joined, parallel);
    free(copy);
    return ok;
}

/* -- groups ----------------------------------------------------------------------------------------------------------- */

/* One after the other. */
static bool
run_groups(const kin_convolution_weight *x, kin_parallel parallel)
{
    kin_convolution_weight of = *x;
    of.channels /= x->groups;
    of.filters /= x->groups;
    of.groups = 1;
    bool ok = true;
    for (int64_t g = 0; ok && g < x->groups; g++) {
        of.x = x->x + g * of.channels * x->x_strides[1];
        of.back = x->back + g * of.filters * x->back_strides[1];
        of.to = x->to + g * of.filters * taps_of(x) * of.channels;
        ok = kin_convolution_weight_run(&of, parallel);
    }
    return ok;
}

bool
kin_convolution_weight_run(const kin_convolution_weight *x, kin_parallel parallel)
{
    if (x->groups > 1)
        return x->groups == x->channels && x->groups == x->filters ? kin_depthwise_weight_run(x, parallel) : run_groups(x, parallel);
    bool few = x->channels < VECTOR && x->kernel[1] > 1 && x->dilation[1] == 1, finite = false;
    if (kin_winograd_weight_suits(x) && !kin_winograd_weight_run(x, parallel, &finite))
        return false;
    return finite || (few ? run_joined(x, parallel) : run(x, parallel));
}
