/* The loops of winograd_weight.h. Tiles of 2 x 2 results are taken in blocks. First a block is transformed, the image to [16][panel of 32 channels][tile], the
 * incoming gradient to [16][14 filters][tile]; then 16 products for each panel are added to the sums, [16][panel][filter][32].
 * Threads share the tiles of a block, then its products, so sums do not depend on the number of threads.
 */
#include "core/kernels/winograd_weight.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "core/tier/threads.h"
#include "core/tiles/tile.h"

enum {
    SPOTS = 16,            /* numbers of a transformed tile */
    ROOM = 100000,         /* floats of a block */
    LEAST_BLOCK = 48,      /* tiles of a block: sums are read and written for each */
    FEWEST_TILES = 64,
    LEAST_CHANNELS = 16,
    MOST_SUMS = 1 << 22,   /* floats */
    APART = 16             /* floats between spots, whose distance would otherwise often be a power of two: a cache's set */
};

typedef struct {
    const kin_convolution_weight *x;
    int64_t across, down;    /* tiles in a line, lines of tiles in an image */
    int64_t panels, groups;  /* of channels; of filters */
    int64_t first, tiles;    /* the block */
    int64_t image_step, back_step, sums_step; /* from spot to spot */
    float *image, *back, *sums, *zeros;
    atomic_int strange;      /* a result is not finite */
} sharing;

static int64_t
tiles_of(const kin_convolution_weight *x)
{
    return x->batch * kin_tile_divide_up(x->out[0], 2) * kin_tile_divide_up(x->out[1], 2);
}

bool
kin_winograd_weight_suits(const kin_convolution_weight *x)
{
    bool plain = x->x_strides[1] == 1 && x->back_strides[1] == 1;
    for (int d = 0; d < 2; d++)
        plain = plain && x->kernel[d] == 3 && x->stride[d] == 1 && x->dilation[d] == 1 && x->out[d] > 1;
    return plain && x->channels >= LEAST_CHANNELS && x->channels % 16 == 0 && x->filters >= LEAST_CHANNELS && tiles_of(x) >= FEWEST_TILES &&
           SPOTS * x->filters * (x->channels + KIN_TILE_COLUMNS) <= MOST_SUMS && kin_tile_here();
}

static unsigned
channels_of(const sharing *s, int64_t panel)
{
    int64_t left = s->x->channels - panel * KIN_TILE_COLUMNS;
    return left < KIN_TILE_COLUMNS ? (unsigned)left : KIN_TILE_COLUMNS;
}

/* -- transforms ------------------------------------------------------------------------------------------------------------------ */

/* Places from [line, column] on, `side` in each dim; zeros outside of `size`. */
static void
see(const float *image, const int64_t *size, const int64_t *strides, int64_t line, int64_t column, int side, const float *zeros, const float **seen)
{
    for (int i = 0; i < side; i++)
        for (int j = 0; j < side; j++) {
            int64_t a = line + i, b = column + j;
            bool inside = a >= 0 && a < size[0] && b >= 0 && b < size[1];
            seen[i * side + j] = inside ? image + a * strides[2] + b * strides[3] : zeros;
        }
}

static void
transform_image(const sharing *s, int64_t u, int64_t batch, int64_t line, int64_t column)
{
    const kin_convolution_weight *x = s->x;
    const float *seen[SPOTS];
    see(x->x + batch * x->x_strides[0], x->in, x->x_strides, line - x->padding[0], column - x->padding[1], 4, s->zeros, seen);
    for (int64_t p = 0; p < s->panels; p++) {
        kin_tile_winograd_image(channels_of(s, p), seen, s->image + (p * s->tiles + u) * KIN_TILE_COLUMNS, s->image_step);
        for (int i = 0; i < SPOTS; i++)
            seen[i] += KIN_TILE_COLUMNS;
    }
}

static void
transform_back(const sharing *s, int64_t u, int64_t batch, int64_t line, int64_t column)
{
    const kin_convolution_weight *x = s->x;
    const float *seen[4];
    see(x->back + batch * x->back_strides[0], x->out, x->back_strides, line, column, 2, s->zeros, seen);
    for (int64_t g = 0, f = 0, n; g < s->groups; g++, f += n) {
        n = kin_tile_divide_up(x->filters - f, s->groups - g);
        kin_tile_winograd_back((unsigned)n, seen, f, s->back + (g * s->tiles + u) * KIN_TILE_ROWS, s->back_step);
    }
}

static void
transform_share(int64_t begin, int64_t end, void *arg)
{
    const sharing *s = arg;
    for (int64_t u = begin; u < end; u++) {
        int64_t at = s->first + u, line = at / s->across % s->down * 2, column = at % s->across * 2, batch = at / (s->across * s->down);
        transform_image(s, u, batch, line, column);
        transform_back(s, u, batch, line, column);
    }
}

/* -- products ---------------------------------------------------------------------------------------------------------------------- */

/* Spots and panels [begin, end). */
static void
multiply_share(int64_t begin, int64_t end, void *arg)
{
    const sharing *s = arg;
    int64_t filters = s->x->filters;
    for (int64_t u = begin; u < end; u++) {
        int64_t spot = u / s->panels, panel = u % s->panels;
        const float *image = s->image + spot * s->image_step + panel * s->tiles * KIN_TILE_COLUMNS, *back = s->back + spot * s->back_step;
        float *sums = s->sums + spot * s->sums_step + panel * filters * KIN_TILE_COLUMNS;
        for (int64_t g = 0, f = 0, n; g < s->groups; g++, f += n) {
            n = kin_tile_divide_up(filters - f, s->groups - g);
            kin_tile_multiply_columns((unsigned)n, channels_of(s, panel), s->tiles, back + g * s->tiles * KIN_TILE_ROWS, image,
                                      sums + f * KIN_TILE_COLUMNS, KIN_TILE_COLUMNS, s->first > 0, image + s->tiles * KIN_TILE_COLUMNS);
        }
    }
}

/* Filters [begin, end): from 16 sums to 9 taps. */
static void
finish_share(int64_t begin, int64_t end, void *arg)
{
    sharing *s = arg;
    const kin_convolution_weight *x = s->x;
    bool finite = true;
    for (int64_t f = begin; f < end; f++)
        for (int64_t p = 0; p < s->panels; p++)
            finite = kin_tile_winograd_taps(channels_of(s, p), s->sums + (p * x->filters + f) * KIN_TILE_COLUMNS, s->sums_step,
                                            x->to + f * 9 * x->channels + p * KIN_TILE_COLUMNS, x->channels) && finite;
    if (!finite)
        atomic_store(&s->strange, 1);
}

/* -- all of it ---------------------------------------------------------------------------------------------------------------------- */

static void
share(kin_parallel parallel, int64_t n, int64_t grain, void (*fn)(int64_t, int64_t, void *), sharing *s)
{
    if (parallel != NULL && n > grain)
        parallel(n, grain, fn, s);
    else
        fn(0, n, s);
}

static float *
floats(int64_t n)
{
    return aligned_alloc(64, (size_t)(n + 15) / 16 * 64);
}

/* All blocks have the room of the largest one, but lie as their own size asks for. */
static void
run_blocks(sharing *s, int64_t most, int64_t all, kin_parallel parallel)
{
    double work = (double)most * (double)s->x->filters * KIN_TILE_COLUMNS;
    int64_t grain = kin_tier_grain(work, KIN_TIER_THREAD_WINOGRAD);
    s->sums_step = s->panels * s->x->filters * KIN_TILE_COLUMNS + APART;
    for (s->first = 0; s->first < all; s->first += s->tiles) {
        s->tiles = all - s->first < most ? all - s->first : most;
        s->image_step = s->panels * s->tiles * KIN_TILE_COLUMNS + APART;
        s->back_step = s->groups * s->tiles * KIN_TILE_ROWS + APART;
        share(parallel, s->tiles, KIN_TIER_THREAD_TILES, transform_share, s);
        share(parallel, SPOTS * s->panels, grain, multiply_share, s);
    }
    share(parallel, s->x->filters, kin_tier_grain((double)(SPOTS * s->x->channels * 8), KIN_TIER_THREAD_WINOGRAD), finish_share, s);
}

bool
kin_winograd_weight_run(const kin_convolution_weight *x, kin_parallel parallel, bool *finite)
{
    sharing s = {.x = x, .across = kin_tile_divide_up(x->out[1], 2), .down = kin_tile_divide_up(x->out[0], 2),
                 .panels = kin_tile_divide_up(x->channels, KIN_TILE_COLUMNS), .groups = kin_tile_divide_up(x->filters, KIN_TILE_ROWS)};
    int64_t all = tiles_of(x), width = s.panels * KIN_TILE_COLUMNS, height = s.groups * KIN_TILE_ROWS;
    int64_t most = ROOM / SPOTS / (width + height);
    most = kin_tile_part_of(all, most < LEAST_BLOCK ? LEAST_BLOCK : most);
    int64_t zeros = x->channels > x->filters ? x->channels : x->filters;
    s.image = floats(SPOTS * (most * width + APART));
    s.back = floats(SPOTS * (most * height + APART));
    s.sums = floats(SPOTS * (x->filters * width + APART));
    s.zeros = floats(zeros + KIN_TILE_COLUMNS);
    bool ok = s.image != NULL && s.back != NULL && s.sums != NULL && s.zeros != NULL;
    if (ok) {
        memset(s.zeros, 0, (size_t)(zeros + KIN_TILE_COLUMNS) * sizeof *s.zeros);
        run_blocks(&s, most, all, parallel);
        *finite = atomic_load(&s.strange) == 0;
    }
    free(s.image);
    free(s.back);
    free(s.sums);
    free(s.zeros);
    return ok;
}
