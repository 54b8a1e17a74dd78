/* The loops of Winograd's minimal filtering (winograd.h). The results are divided into tiles of 2 x 2. The inputs of a block of tiles are transformed,
 * [16][tile] [channel], and stay in the second-level cache while the panels of filters, [panel][16][channel][32], stream by: 16 matrix products for
 * each, whose results, [16][tile][32], are transformed back.
 */
#include "core/kernels/winograd.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "core/kernels/convolution_priv.h"
#include "core/tier/threads.h"
#include "core/tiles/tile.h"

enum {
    SPOTS = 16,         /* numbers of a transformed tile */
    ROOM = 150000,      /* floats of a block */
    FEWEST_TILES = 8,   /* panels are 16/9 of the size that they have otherwise: with fewer tiles reading them is what counts */
    LEAST_CHANNELS = 32,
    NEAR = 8            /* panels of a result whose blocks are still near when the last of them is done */
};

static int64_t
tiles_in_line(const kin_convolution *x)
{
    return kin_tile_divide_up(x->out[2], 2);
}

/* Of all images. */
static int64_t
lines_of_tiles(const kin_convolution *x)
{
    return x->batch * kin_tile_divide_up(x->out[1], 2);
}

static int64_t
panels_of(const kin_convolution *x)
{
    return kin_tile_divide_up(x->filters, KIN_TILE_COLUMNS);
}

bool
kin_winograd_suits(const kin_convolution *x)
{
    bool plain = !x->pairs && !x->phase && x->groups == 1 && x->in[0] == 1 && x->kernel[0] == 1 && x->padding[0] == 0;
    for (int d = 1; d < KIN_CONVOLUTION_SPACE; d++)
        plain = plain && x->kernel[d] == 3 && x->stride[d] == 1 && x->dilation[d] == 1;
    return plain && x->channels >= LEAST_CHANNELS && x->channels % 16 == 0 && x->filters >= LEAST_CHANNELS && x->filters % 16 == 0 &&
           x->out[1] > 1 && x->out[2] > 1 && lines_of_tiles(x) * tiles_in_line(x) >= FEWEST_TILES && kin_tile_here();
}

/* -- filters ---------------------------------------------------------------------------------------------------------------- */

static int64_t
panel_len(const kin_convolution *x)
{
    return SPOTS * x->channels * KIN_TILE_COLUMNS;
}

size_t
kin_winograd_panels_len(const kin_convolution *x)
{
    return (size_t)(panels_of(x) * panel_len(x));
}

void
kin_winograd_make_panel(const kin_convolution *x, const float *taps, int64_t panel, float *panels)
{
    int64_t n = x->channels * KIN_TILE_COLUMNS;
    kin_tile_winograd_filters(n, taps, n, panels + panel * panel_len(x), n);
}

/* -- blocks of tiles ---------------------------------------------------------------------------------------------------------- */

/* Some whole lines of tiles, which may be of several images, or a piece of one line. */
typedef struct {
    int64_t line, lines, first, tiles; /* `tiles` in each line, from `first` on */
} block;

/* How the results are cut. */
typedef struct {
    const kin_convolution *x;
    int64_t lines, pieces; /* lines of tiles in a block; 1: a line has so many pieces */
    bool by_blocks;        /* else by panels */
    int64_t blocks;
    atomic_int failed;
} sharing;

static void
cut(const kin_convolution *x, sharing *s)
{
    int64_t most = ROOM / (SPOTS * (x->channels + KIN_TILE_COLUMNS)), in_line = tiles_in_line(x), all = lines_of_tiles(x);
    most = most < KIN_TILE_ROWS ? KIN_TILE_ROWS : most / KIN_TILE_ROWS * KIN_TILE_ROWS;
    s->lines = in_line < most ? most / in_line : 1;
    s->pieces = s->lines > 1 ? 1 : kin_tile_divide_up(in_line, most);
    while (s->lines > 1 && kin_tile_divide_up(all, s->lines) < KIN_TIER_THREAD_SHARES && (s->lines - 1) * in_line >= KIN_TILE_ROWS)
        s->lines--;
    s->blocks = s->pieces > 1 ? all * s->pieces : kin_tile_divide_up(all, s->lines);
    s->by_blocks = s->blocks >= KIN_TIER_THREAD_SHARES || s->blocks >= panels_of(x);
}

static block
block_at(const sharing *s, int64_t number)
{
    int64_t in_line = tiles_in_line(s->x), all = lines_of_tiles(s->x), size = kin_tile_divide_up(in_line, s->pieces);
    if (s->pieces == 1) {
        int64_t line = number * s->lines;
        return (block){line, all - line < s->lines ? all - line : s->lines, 0, in_line};
    }
    int64_t first = number % s->pieces * size;
    return (block){number / s->pieces, 1, first, in_line - first < size ? in_line - first : size};
}

/* Lines of results and of images; a line of tiles has two of the first, or one at an image's end. */
typedef struct {
    int64_t batch, i, count;
} results;

static results
results_of(const kin_convolution *x, int64_t line)
{
    int64_t in_image = kin_tile_divide_up(x->out[1], 2), i = line % in_image * 2;
    return (results){line / in_image, i, x->out[1] - i < 2 ? 1 : 2};
}

/* What the tile sees; zeros outside. */
static void
see(const kin_convolution *x, const results *r, int64_t tile, const float *zeros, const float **seen)
{
    const float *image = (const float *)x->x + r->batch * x->x_strides[0];
    for (int64_t i = 0; i < 4; i++)
        for (int64_t j = 0; j < 4; j++) {
            int64_t a = r->i + i - x->padding[1], b = tile * 2 + j - x->padding[2];
            bool inside = a >= 0 && a < x->in[1] && b >= 0 && b < x->in[2];
            seen[i * 4 + j] = inside ? image + a * x->x_strides[3] + b * x->x_strides[4] : zeros;
        }
}

/* Room of one thread. */
typedef struct {
    float *image, *products, *zeros, *taps; /* taps: direct panels, made when first needed */
} room;

static void
transform_image(const kin_convolution *x, const block *b, const room *w)
{
    int64_t step = b->lines * b->tiles * x->channels;
    float *to = w->image;
    for (int64_t l = b->line; l < b->line + b->lines; l++) {
        results r = results_of(x, l);
        for (int64_t t = b->first; t < b->first + b->tiles; t++, to += x->channels) {
            const float *seen[SPOTS];
            see(x, &r, t, w->zeros, seen);
            kin_tile_winograd_image(x->channels, seen, to, step);
        }
    }
}

static unsigned
columns_of(const kin_convolution *x, int64_t panel)
{
    int64_t left = x->filters - panel * KIN_TILE_COLUMNS;
    return left < KIN_TILE_COLUMNS ? (unsigned)left : KIN_TILE_COLUMNS;
}

/* The 16 products. Meanwhile the first two tiles of each bring the next one's panel near. */
static void
multiply(const kin_convolution *x, int64_t rows, int64_t panel, const room *w)
{
    const float *b = x->panels + panel * panel_len(x);
    int64_t k = x->channels, tiles = kin_tile_count(rows);
    for (int64_t s = 0; s < SPOTS; s++, b += k * KIN_TILE_COLUMNS)
        for (int64_t t = 0, i = 0; t < tiles; t++) {
            int64_t n = kin_tile_divide_up(rows - i, tiles - t);
            const float *next = b + k * KIN_TILE_COLUMNS;
            kin_tile_multiply((unsigned)n, columns_of(x, panel), k, w->image + (s * rows + i) * k, k, b,
                              w->products + (s * rows + i) * KIN_TILE_COLUMNS, KIN_TILE_COLUMNS, false, t < 2 ? next + t * k * 16 : b);
            i += n;
        }
}

/* False: a result is not finite. */
static bool
transform_products(const kin_convolution *x, const block *b, int64_t panel, const room *w)
{
    const int64_t *ys = x->y_strides;
    const float *from = w->products;
    bool finite = true;
    for (int64_t l = b->line; l < b->line + b->lines; l++) {
        results r = results_of(x, l);
        float *line = x->y + r.batch * ys[0] + r.i * ys[3] + panel * KIN_TILE_COLUMNS;
        for (int64_t t = b->first; t < b->first + b->tiles; t++, from += KIN_TILE_COLUMNS) {
            float *y = line + t * 2 * ys[4];
            bool wide = t * 2 + 1 < x->out[2], tall = r.count > 1;
            float *to[] = {y, wide ? y + ys[4] : NULL, tall ? y + ys[3] : NULL, wide && tall ? y + ys[3] + ys[4] : NULL};
            finite = kin_tile_winograd_results(columns_of(x, panel), from, b->lines * b->tiles * KIN_TILE_COLUMNS, to) && finite;
        }
    }
    return finite;
}

/* -- runs of places ------------------------------------------------------------------------------------------------------------ */

/* The results of a block as runs of neighbouring places: one of whole lines, or one in each line. */
typedef struct {
    int64_t row, rows;
} run;

static unsigned
runs_of(const kin_convolution *x, const block *b, run *out)
{
    results first = results_of(x, b->line), last = results_of(x, b->line + b->lines - 1);
    int64_t row = (first.batch * x->out[1] + first.i) * x->out[2];
    if (b->tiles == tiles_in_line(x)) {
        out[0] = (run){row, (last.batch * x->out[1] + last.i + last.count) * x->out[2] - row};
        return 1;
    }
    int64_t from = b->first * 2, left = x->out[2] - from, n = b->tiles * 2 < left ? b->tiles * 2 : left;
    for (int64_t i = 0; i < first.count; i++)
        out[i] = (run){row + i * x->out[2] + from, n};
    return (unsigned)first.count;
}

/* -- what is not finite ----------------------------------------------------------------------------------------------------------- */

/* The convolution with panels for the direct way, made out of ours: exact up to a rounding. */
static bool
restore(const kin_convolution *x, room *w, kin_convolution *direct)
{
    int64_t n = x->channels * KIN_TILE_COLUMNS;
    if (w->taps == NULL && (w->taps = aligned_alloc(64, (size_t)(panels_of(x) * 9 * n) * sizeof *w->taps)) != NULL)
        for (int64_t j = 0; j < panels_of(x); j++)
            kin_tile_winograd_restore(n, x->panels + j * panel_len(x), n, w->taps + j * 9 * n, n);
    *direct = *x;
    direct->panels = w->taps;
    return w->taps != NULL;
}

/* -- one thread -------------------------------------------------------------------------------------------------------------------- */

/* Ends panels [panel, panel + panels) of a block. False: no memory, or what follows failed. */
static bool
end_panels(const kin_convolution *x, const block *b, int64_t panel, int64_t panels, bool finite, room *w)
{
    run runs[2];
    kin_convolution direct;
    unsigned n = runs_of(x, b, runs);
    if (!finite && !restore(x, w, &direct))
        return false;
    bool ok = true;
    for (unsigned i = 0; i < n; i++) {
        if (!finite) {
            ok = kin_convolution_do_part(&direct, runs[i].row, runs[i].rows, panel, panels) && ok;
            continue;
        }
        int64_t filter = panel * KIN_TILE_COLUMNS, left = x->filters - filter, columns = panels * KIN_TILE_COLUMNS;
        kin_convolution_finish(x, runs[i].row, runs[i].rows, (unsigned)(columns < left ? columns : left), filter,
                               x->y + runs[i].row * x->filters + filter, x->filters);
        ok = kin_convolution_follow(x, runs[i].row, runs[i].rows, panel, panels) && ok;
    }
    return ok;
}

static bool
do_block(const kin_convolution *x, const block *b, int64_t panel, int64_t panels, room *w)
{
    bool ok = true, finite = true;
    int64_t rows = b->lines * b->tiles, near = 0;
    transform_image(x, b, w);
    for (int64_t j = panel; j < panel + panels; j++) {
        multiply(x, rows, j, w);
        finite = transform_products(x, b, j, w) && finite;
        if (++near < NEAR && j + 1 < panel + panels)
            continue;
        ok = end_panels(x, b, j + 1 - near, near, finite, w) && ok;
        near = 0;
        finite = true;
    }
    return ok;
}

static float *
floats(int64_t n)
{
    return aligned_alloc(64, (size_t)(n + 15) / 16 * 64);
}

static void
run_share(int64_t begin, int64_t end, void *arg)
{
    sharing *s = arg;
    const kin_convolution *x = s->x;
    block whole = block_at(s, 0);
    int64_t tiles = whole.lines * whole.tiles;
    room w = {floats(SPOTS * tiles * x->channels), floats(SPOTS * tiles * KIN_TILE_COLUMNS), floats(x->channels), NULL};
    bool ok = w.image != NULL && w.products != NULL && w.zeros != NULL;
    if (ok)
        memset(w.zeros, 0, (size_t)x->channels * sizeof *w.zeros);
    for (int64_t i = s->by_blocks ? begin : 0; ok && i < (s->by_blocks ? end : s->blocks); i++) {
        block b = block_at(s, i);
        ok = do_block(x, &b, s->by_blocks ? 0 : begin, s->by_blocks ? panels_of(x) : end - begin, &w);
    }
    if (!ok)
        atomic_store(&s->failed, 1);
    free(w.image);
    free(w.products);
    free(w.zeros);
    free(w.taps);
}

bool
kin_winograd_run(const kin_convolution *x, kin_parallel parallel)
{
    sharing s = {.x = x};
    cut(x, &s);
    int64_t shares = s.by_blocks ? s.blocks : panels_of(x);
    if (parallel != NULL && shares > 1)
        parallel(shares, 1, run_share, &s);
    else
        run_share(0, shares, &s);
    return atomic_load(&s.failed) == 0;
}
