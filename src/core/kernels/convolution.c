/* The loops of convolutions (convolution.h). Rows of the matrix are positions of the result, its columns the taps of the kernel with the
 * channels of each: [tap][channel]. Panels of a group hold 32 filters each: [panel][tap][channel][32].
 *
 * The matrix is not built if its rows can be read from lines of the image: taps that are neighbours in a line lie next to each other, with
 * their channels. Lines with padding at their ends are copied to a strip that stays in the second-level cache. Otherwise (small images, or many
 * channels, which need blocks of columns) blocks of the matrix are gathered.
 *
 * For bfloat16, two channels form a word; below the functions of convolution.h everything works on words then (in_words), as it works on floats.
 */
#include "core/kernels/convolution.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "core/kernels/convolution_priv.h"
#include "core/tier/threads.h"
#include "core/tiles/tile.h"
#include "core/kernels/winograd.h"

enum {
    SPACE = KIN_CONVOLUTION_SPACE,
    DEEP = KIN_TILE_LONG, /* columns of a block, at most */
    TALL = 140            /* rows of a block: DEEP * TALL floats are 430 kB */
};

static int64_t
product_of(const int64_t *sizes)
{
    return sizes[0] * sizes[1] * sizes[2];
}

bool
kin_convolution_has_blocks(int64_t channels, int64_t filters, int64_t groups)
{
    return groups == 1 || (groups == channels && groups == filters);
}

static bool
is_depthwise(const kin_convolution *x)
{
    return x->groups > 1 && x->groups == x->channels && x->groups == x->filters;
}

bool
kin_convolution_suits(const kin_convolution *x)
{
    enum { LEAST = 16 /* filters of a group: a panel has 32 */ };
    return is_depthwise(x) || x->groups == 1 || x->filters / x->groups >= LEAST;
}

static int64_t
panels_of(const kin_convolution *x)
{
    return kin_tile_divide_up(x->filters / x->groups, KIN_TILE_COLUMNS);
}

/* Columns of the matrix. */
static int64_t
depth_of(const kin_convolution *x)
{
    return x->channels / x->groups * product_of(x->kernel);
}

bool
kin_convolution_has_pairs(int64_t channels, int64_t groups)
{
    return channels / groups % 2 == 0 && kin_tile_has_pairs();
}

static kin_convolution
in_words(const kin_convolution *x)
{
    kin_convolution words = *x;
    words.channels /= 2;
    for (unsigned d = 0; d < 2 + SPACE; d++)
        words.x_strides[d] = d == 1 ? 1 : x->x_strides[d] / 2;
    return words;
}

size_t
kin_convolution_panels_len(const kin_convolution *all)
{
    kin_convolution words = in_words(all);
    const kin_convolution *x = all->pairs ? &words : all;
    if (is_depthwise(x))
        return (size_t)(x->channels * product_of(x->kernel));
    if (kin_winograd_suits(x))
        return kin_winograd_panels_len(x) + (size_t)(depth_of(x) * KIN_TILE_COLUMNS); /* and room to make one */
    return (size_t)(x->groups * panels_of(x) * depth_of(x) * KIN_TILE_COLUMNS);
}

/* Element offset of a tap. */
static int64_t
tap_at(const kin_convolution *x, int64_t tap, const int64_t *strides)
{
    int64_t last = tap % x->kernel[2], middle = tap / x->kernel[2] % x->kernel[1], first = tap / x->kernel[2] / x->kernel[1];
    return first * strides[0] + middle * strides[1] + last * strides[2];
}

/* One tap of up to 32 filters, from element `at` of the weight on. */
static void
pack_tap(const kin_convolution *x, unsigned columns, const void *weight, int64_t at, const int64_t *strides, float *to)
{
    int64_t channels = x->channels / x->groups;
    if (x->pairs)
        kin_tile_pack_pairs(channels, columns, (const uint16_t *)weight + at, strides[1], strides[0], to);
    else
        kin_tile_pack(channels, columns, (const float *)weight + at, strides[1], strides[0], to);
}

void
kin_convolution_make_panels(const kin_convolution *x, const void *weight, const int64_t *strides, float *panels)
{
    int64_t filters = x->filters / x->groups, taps = product_of(x->kernel), depth = depth_of(x) / (x->pairs ? 2 : 1);
    if (is_depthwise(x)) {
        for (int64_t t = 0; t < taps; t++)
            for (int64_t c = 0; c < x->channels; c++)
                panels[t * x->channels + c] = ((const float *)weight)[c * strides[0] + tap_at(x, t, strides + 2)];
        return;
    }
    bool winograd = kin_winograd_suits(x);
    for (int64_t g = 0; g < x->groups; g++)
        for (int64_t p = 0; p < panels_of(x); p++) {
            int64_t left = filters - p * KIN_TILE_COLUMNS, first = g * filters + p * KIN_TILE_COLUMNS;
            float *panel = panels + (winograd ? (int64_t)kin_winograd_panels_len(x) : (g * panels_of(x) + p) * depth * KIN_TILE_COLUMNS);
            for (int64_t t = 0; t < taps; t++)
                pack_tap(x, left < KIN_TILE_COLUMNS ? (unsigned)left : KIN_TILE_COLUMNS, weight, first * strides[0] + tap_at(x, t, strides + 2),
                         strides, panel + t * (depth / taps) * KIN_TILE_COLUMNS);
            if (winograd)
                kin_winograd_make_panel(x, panel, p, panels);
        }
}

/* -- places ----------------------------------------------------------------------------------------------------------- */

/* A place of the result: its number, and where it is. */
typedef struct {
    int64_t batch, at[SPACE];
} place;

static place
find_place(const kin_convolution *x, int64_t row)
{
    place p;
    for (int d = SPACE; d-- > 0; row /= x->out[d])
        p.at[d] = row % x->out[d];
    p.batch = row;
    return p;
}

static void
next_place(const kin_convolution *x, place *p)
{
    for (int d = SPACE; d-- > 0;) {
        if (++p->at[d] < x->out[d])
            return;
        p->at[d] = 0;
    }
    p->batch++;
}

static int64_t
first_seen(const kin_convolution *x, const place *p, int d)
{
    return p->at[d] * x->stride[d] - x->padding[d];
}

/* -- the matrix --------------------------------------------------------------------------------------------------------- */

/* Taps [tap, tap + count) of one line of the kernel, all channels of the group: what they see, zeros outside. */
static void
gather_line(const kin_convolution *x, const float *line, bool inside, int64_t start, int64_t tap, int64_t count, float *to)
{
    int64_t channels = x->channels / x->groups, step = x->x_strides[4] * x->dilation[2];
    for (int64_t t = tap; t < tap + count;) {
        int64_t at = start + t * x->dilation[2], run = 1;
        if (!inside || at < 0 || at >= x->in[2]) {
            kin_tile_clear(channels, to);
        } else {
            while (step == channels && t + run < tap + count && at + run * x->dilation[2] < x->in[2])
                run++;
            kin_tile_copy(line + at * x->x_strides[4], run * channels, to);
        }
        t += run;
        to += run * channels;
    }
}

/* One row of the matrix, columns [from, from + deep): whole taps, or channels of one tap. */
static void
gather_row(const kin_convolution *x, int64_t group, const place *p, int64_t from, int64_t deep, float *to)
{
    int64_t channels = x->channels / x->groups, tap = from / channels, behind = (from + deep) / channels;
    const float *image = (const float *)x->x + p->batch * x->x_strides[0] + group * channels;
    bool partly = deep % channels != 0 || from % channels != 0;
    for (int64_t t = tap; t < (partly ? tap + 1 : behind);) {
        int64_t in_line = t % x->kernel[2], count = x->kernel[2] - in_line;
        int64_t i = first_seen(x, p, 0) + t / x->kernel[2] / x->kernel[1] * x->dilation[0];
        int64_t j = first_seen(x, p, 1) + t / x->kernel[2] % x->kernel[1] * x->dilation[1];
        bool inside = i >= 0 && i < x->in[0] && j >= 0 && j < x->in[1];
        const float *line = image + (inside ? i * x->x_strides[2] + j * x->x_strides[3] : 0);
        if (partly) {
            int64_t k = first_seen(x, p, 2) + in_line * x->dilation[2];
            if (inside && k >= 0 && k < x->in[2])
                kin_tile_copy(line + k * x->x_strides[4] + from % channels, deep, to);
            else
                kin_tile_clear(deep, to);
            return;
        }
        if (count > behind - t)
            count = behind - t;
        gather_line(x, line, inside, first_seen(x, p, 2), in_line, count, to);
        to += count * channels;
        t += count;
    }
}

/* Columns of a block: whole taps, or a part of one's channels. */
static int64_t
block_depth(const kin_convolution *x)
{
    int64_t channels = x->channels / x->groups;
    if (channels >= DEEP) {
        int64_t parts = kin_tile_divide_up(channels, DEEP);
        while (channels % parts != 0)
            parts++;
        return channels / parts;
    }
    return kin_tile_part_of(product_of(x->kernel), DEEP / channels) * channels;
}

/* Is the matrix there already, its rows the same distance from each other? */
static bool
is_matrix(const kin_convolution *x)
{
    for (int d = 0; d < SPACE; d++)
        if (x->kernel[d] != 1 || x->stride[d] != 1 || x->padding[d] != 0 || x->out[d] != x->in[d])
            return false;
    const int64_t *s = x->x_strides;
    return (x->in[1] == 1 || s[3] == s[4] * x->in[2]) && (x->in[0] == 1 || s[2] == s[4] * x->in[2] * x->in[1]) &&
           (x->batch == 1 || s[0] == s[4] * product_of(x->in));
}

/* -- one thread ----------------------------------------------------------------------------------------------------------- */

/* Rows and panels in ranges; panels of all groups are numbered through. */
typedef struct {
    const kin_convolution *x;
    int64_t row, rows, panel, panels;
    float *room; /* for a block; NULL: the matrix is there */
} part;

/* What is added to each place of a tile, which may be in different rows of the image. */
static void
add_rows(const kin_convolution *x, int64_t row, int64_t rows, unsigned columns, int64_t filter, float *c)
{
    place p = find_place(x, row);
    const int64_t *s = x->added_strides;
    for (int64_t i = 0; i < rows; i++, next_place(x, &p)) {
        const float *added = x->added + p.batch * s[0] + filter * s[1] + p.at[0] * s[2] + p.at[1] * s[3] + p.at[2] * s[4];
        if (s[1] == 1)
            kin_tile_add(added, columns, c + i * x->filters);
        for (unsigned k = 0; s[1] != 1 && k < columns; k++)
            c[i * x->filters + k] += added[k * s[1]];
    }
}

void
kin_convolution_finish(const kin_convolution *x, int64_t row, int64_t rows, unsigned columns, int64_t filter, float *c, int64_t ldc)
{
    if (x->added != NULL)
        add_rows(x, row, rows, columns, filter, c);
    if (x->bias != NULL || x->limited)
        kin_tile_finish((unsigned)rows, columns, c, ldc, x->bias == NULL ? NULL : x->bias + filter, x->limited, x->least, x->most);
}

bool
kin_convolution_follow(const kin_convolution *x, int64_t row, int64_t rows, int64_t panel, int64_t panels)
{
    return x->then == NULL || panels == 0 || kin_epilogue_run(x->then, row, rows, panel * KIN_TILE_COLUMNS, panels * KIN_TILE_COLUMNS);
}

/* A block times one panel. Meanwhile the first two tiles bring the panel behind it near. */
static void
multiply_panel(const part *w, const float *a, int64_t lda, int64_t row, int64_t rows, int64_t from, int64_t deep, int64_t panel)
{
    const kin_convolution *x = w->x;
    int64_t filters = x->filters / x->groups, depth = depth_of(x), in_group = panel % panels_of(x) * KIN_TILE_COLUMNS;
    int64_t filter = panel / panels_of(x) * filters + in_group, left = filters - in_group, tiles = kin_tile_count(rows);
    unsigned columns = left < KIN_TILE_COLUMNS ? (unsigned)left : KIN_TILE_COLUMNS;
    const float *b = x->panels + (panel * depth + from) * KIN_TILE_COLUMNS;
    const float *next = b + depth * KIN_TILE_COLUMNS;
    for (int64_t t = 0, i = 0; t < tiles; t++) {
        int64_t n = kin_tile_divide_up(rows - i, tiles - t);
        float *c = x->y + (row + i) * x->filters + filter;
        (x->pairs ? kin_tile_multiply_pairs : kin_tile_multiply)((unsigned)n, columns, deep, a + i * lda, lda, b, c, x->filters, from > 0,
                                                                 t < 2 ? next + t * deep * (KIN_TILE_COLUMNS / 2) : b);
        if (from + deep == depth)
            kin_convolution_finish(x, row + i, n, columns, filter, c, x->filters);
        i += n;
    }
}

/* The panels of one group in the part, for rows [row, row + rows). */
static void
multiply_group(const part *w, int64_t group, int64_t row, int64_t rows)
{
    const kin_convolution *x = w->x;
    int64_t depth = depth_of(x), deep = block_depth(x), first = group * panels_of(x), behind = first + panels_of(x);
    first = first > w->panel ? first : w->panel;
    behind = behind < w->panel + w->panels ? behind : w->panel + w->panels;
    for (int64_t from = 0; first < behind && from < depth; from += deep) {
        int64_t count = depth - from < deep ? depth - from : deep;
        const float *a = (const float *)x->x + row * x->x_strides[4] + group * (x->channels / x->groups) + from;
        int64_t lda = x->x_strides[4];
        if (w->room != NULL) {
            place p = find_place(x, row);
            for (int64_t i = 0; i < rows; i++, next_place(x, &p))
                gather_row(x, group, &p, from, count, w->room + i * count);
            a = w->room;
            lda = count;
        }
        for (int64_t j = first; j < behind; j++)
            multiply_panel(w, a, lda, row, rows, from, count, j);
    }
}

static bool
multiply_part(const part *w)
{
    int64_t tall = kin_tile_part_of(w->rows, TALL);
    bool ok = true;
    for (int64_t row = w->row; row < w->row + w->rows; row += tall) {
        int64_t left = w->row + w->rows - row, rows = left < tall ? left : tall;
        for (int64_t g = 0; g < w->x->groups; g++)
            multiply_group(w, g, row, rows);
        ok = kin_convolution_follow(w->x, row, rows, w->panel, w->panels) && ok;
    }
    return ok;
}

/* -- by lines -------------------------------------------------------------------------------------------------------------- */

enum { STRIP = 1 << 16, LONG_STRIP = 1 << 17 /* floats: what strips take, and the most that one tile of the result may take */ };

/* Lines of the image, as far as the kernel looks from some lines of the result; strides in elements. */
typedef struct {
    const float *at;
    int64_t plane, line, place;
} strip;

/* Places that `n` results in a row see in one dim. */
static int64_t
reach(const kin_convolution *x, int d, int64_t n)
{
    return (n - 1) * x->stride[d] + (x->kernel[d] - 1) * x->dilation[d] + 1;
}

static int64_t
strip_len(const kin_convolution *x, int64_t lines, int64_t places)
{
    return x->kernel[0] * reach(x, 1, lines) * reach(x, 2, places) * x->channels;
}

static bool
goes_by_lines(const kin_convolution *x)
{
    enum { SHORT = 7, DEEPEST = 3072 };
    int64_t tile = x->out[2] < KIN_TILE_ROWS ? x->out[2] : KIN_TILE_ROWS;
    return x->out[2] >= SHORT && depth_of(x) <= DEEPEST && strip_len(x, 1, tile) <= LONG_STRIP;
}

/* Does it look at places outside of the image? */
static bool
is_padded(const kin_convolution *x)
{
    for (int d = 0; d < SPACE; d++)
        if (x->padding[d] != 0 || reach(x, d, x->out[d]) > x->in[d])
            return true;
    return false;
}

/* How many lines of the result share a strip, or how many places of one line do. */
static void
size_strip(const kin_convolution *x, int64_t *lines, int64_t *places)
{
    *lines = 1;
    *places = x->out[2];
    while (*places > KIN_TILE_ROWS && strip_len(x, 1, *places) > STRIP)
        *places = kin_tile_divide_up(kin_tile_divide_up(*places, 2), KIN_TILE_ROWS) * KIN_TILE_ROWS;
    while (*places == x->out[2] && *lines < x->out[1] && strip_len(x, *lines + 1, *places) <= STRIP)
        (*lines)++;
}

/* `width` places of a line, from one on that may lie outside. */
static void
copy_line(const kin_convolution *x, const float *line, bool inside, int64_t start, int64_t width, float *to)
{
    int64_t before = start >= 0 ? 0 : -start < width ? -start : width, first = start > 0 ? start : 0;
    int64_t count = inside && first < x->in[2] ? x->in[2] - first : 0;
    count = count < width - before ? count : width - before;
    kin_tile_clear(before * x->channels, to);
    to += before * x->channels;
    line += first * x->x_strides[4];
    if (x->x_strides[4] == x->channels)
        kin_tile_copy(line, count * x->channels, to);
    for (int64_t k = 0; x->x_strides[4] != x->channels && k < count; k++)
        kin_tile_copy(line + k * x->x_strides[4], x->channels, to + k * x->channels);
    kin_tile_clear((width - before - count) * x->channels, to + count * x->channels);
}

/* What `places` places of `lines` lines of the result see, the first at p; in `room` unless the image itself will do. */
static strip
make_strip(const kin_convolution *x, const place *p, int64_t lines, int64_t places, float *room)
{
    const float *image = (const float *)x->x + p->batch * x->x_strides[0];
    int64_t start = first_seen(x, p, 2);
    if (!is_padded(x))
        return (strip){image + first_seen(x, p, 0) * x->x_strides[2] + first_seen(x, p, 1) * x->x_strides[3] + start * x->x_strides[4],
                       x->x_strides[2] * x->dilation[0], x->x_strides[3], x->x_strides[4]};
    int64_t height = reach(x, 1, lines), width = reach(x, 2, places);
    for (int64_t i = 0; i < x->kernel[0]; i++)
        for (int64_t j = 0; j < height; j++) {
            int64_t a = first_seen(x, p, 0) + i * x->dilation[0], b = first_seen(x, p, 1) + j;
            bool inside = a >= 0 && a < x->in[0] && b >= 0 && b < x->in[1];
            copy_line(x, inside ? image + a * x->x_strides[2] + b * x->x_strides[3] : image, inside, start, width,
                      room + (i * height + j) * width * x->channels);
        }
    return (strip){room, height * width * x->channels, width * x->channels, x->channels};
}

typedef void (*lines_of_tile)(unsigned rows, unsigned columns, int64_t lines, int64_t k, const float *a, int64_t lda, int64_t step, const float *b, float *c,
                               int64_t ldc, bool add, const float *soon);

/* One of the two, a part of a line or some lines at a time (KIN_TILE_LONG). */
static void
multiply_in_parts(lines_of_tile multiply, unsigned rows, unsigned columns, int64_t lines, int64_t k, const float *a, int64_t lda, int64_t step,
                  const float *b, float *c, int64_t ldc, bool add)
{
    int64_t deep = kin_tile_part_of(k, KIN_TILE_LONG), at_once = kin_tile_part_of(lines, k < KIN_TILE_LONG ? KIN_TILE_LONG / k : 1);
    for (int64_t i = 0; i < lines; i += at_once)
        for (int64_t from = 0; from < k; from += deep, add = true)
            multiply(rows, columns, lines - i < at_once ? lines - i : at_once, k - from < deep ? k - from : deep, a + i * step + from, lda, step,
                     b + (i * k + from) * KIN_TILE_COLUMNS, c, ldc, add, b);
}

/* Places [0, rows) of a line, from `a` on, times one panel. */
static void
multiply_places(const kin_convolution *x, const strip *s, const float *a, int64_t rows, unsigned columns, const float *b, float *c, int64_t ldc)
{
    int64_t channels = x->channels / x->groups, lda = x->stride[2] * s->place, taps = x->kernel[2] * channels;
    bool joined = s->place == channels && x->dilation[2] == 1; /* the taps of a line lie next to each other */
    lines_of_tile multiply = x->pairs ? kin_tile_multiply_lines_of_pairs : kin_tile_multiply_lines;
    for (int64_t i = 0; i < x->kernel[0]; i++) {
        if (joined)
            multiply_in_parts(multiply, (unsigned)rows, columns, x->kernel[1], taps, a + i * s->plane, lda, x->dilation[1] * s->line,
                              b + i * x->kernel[1] * taps * KIN_TILE_COLUMNS, c, ldc, i > 0);
        for (int64_t j = 0; !joined && j < x->kernel[1]; j++)
            multiply_in_parts(multiply, (unsigned)rows, columns, x->kernel[2], channels, a + i * s->plane + j * x->dilation[1] * s->line, lda,
                              x->dilation[2] * s->place, b + (i * x->kernel[1] + j) * taps * KIN_TILE_COLUMNS, c, ldc, i > 0 || j > 0);
    }
}

/* `places` places of each of some lines of the result, from `row` on, times one panel. */
static void
multiply_strip(const kin_convolution *x, const strip *s, int64_t row, int64_t lines, int64_t places, int64_t panel)
{
    int64_t filters = x->filters / x->groups, in_group = panel % panels_of(x) * KIN_TILE_COLUMNS, group = panel / panels_of(x);
    int64_t filter = group * filters + in_group, left = filters - in_group, tiles = kin_tile_count(places);
    unsigned columns = left < KIN_TILE_COLUMNS ? (unsigned)left : KIN_TILE_COLUMNS;
    const float *b = x->panels + panel * depth_of(x) * KIN_TILE_COLUMNS;
    const int64_t *ys = x->y_strides;
    place p = find_place(x, row);
    float *y = x->y + p.batch * ys[0] + p.at[0] * ys[2] + p.at[1] * ys[3] + p.at[2] * ys[4];
    for (int64_t j = 0; j < lines; j++) {
        const float *line = s->at + j * x->stride[1] * s->line + group * (x->channels / x->groups);
        for (int64_t t = 0, i = 0; t < tiles; t++) {
            int64_t n = kin_tile_divide_up(places - i, tiles - t), first = row + j * x->out[2] + i;
            float *c = y + j * ys[3] + i * ys[4] + filter;
            multiply_places(x, s, line + i * x->stride[2] * s->place, n, columns, b, c, ys[4]);
            kin_convolution_finish(x, first, n, columns, filter, c, ys[4]);
            i += n;
        }
    }
}

static int64_t
least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static size_t
room_for_strip(const kin_convolution *x)
{
    int64_t lines, places;
    size_strip(x, &lines, &places);
    return is_padded(x) ? (size_t)strip_len(x, lines, places) : 0;
}

static bool
multiply_lines(const part *w)
{
    const kin_convolution *x = w->x;
    int64_t most_lines, most_places;
    bool ok = true;
    size_strip(x, &most_lines, &most_places);
    for (int64_t row = w->row, behind = w->row + w->rows; row < behind;) {
        place p = find_place(x, row);
        int64_t places = least(least(most_places, x->out[2] - p.at[2]), behind - row);
        int64_t lines = places < x->out[2] ? 1 : least(least(most_lines, x->out[1] - p.at[1]), (behind - row) / places); /* of one plane */
        strip s = make_strip(x, &p, lines, places, w->room);
        for (int64_t j = w->panel; j < w->panel + w->panels; j++)
            multiply_strip(x, &s, row, lines, places, j);
        ok = kin_convolution_follow(x, row, lines * places, w->panel, w->panels) && ok;
        row += lines * places;
    }
    return ok;
}

/* -- depthwise -------------------------------------------------------------------------------------------------------------- */

/* The channels of one place: for each tap that lies inside, what it sees times its factors. */
static void
filter_place(const kin_convolution *x, const place *p, float *y)
{
    enum { MOST = 64 };
    const float *seen[MOST], *factors[MOST];
    unsigned n = 0;
    int64_t tap = 0, start[SPACE];
    for (int d = 0; d < SPACE; d++)
        start[d] = first_seen(x, p, d);
    bool started = false;
    for (int64_t i = 0; i < x->kernel[0]; i++)
        for (int64_t j = 0; j < x->kernel[1]; j++)
            for (int64_t k = 0; k < x->kernel[2]; k++, tap++) {
                int64_t a = start[0] + i * x->dilation[0], b = start[1] + j * x->dilation[1], c = start[2] + k * x->dilation[2];
                if (a < 0 || a >= x->in[0] || b < 0 || b >= x->in[1] || c < 0 || c >= x->in[2])
                    continue;
                if (n == MOST) {
                    kin_tile_filter(x->channels, n, seen, factors, started, y);
                    started = true;
                    n = 0;
                }
                seen[n] = (const float *)x->x + p->batch * x->x_strides[0] + a * x->x_strides[2] + b * x->x_strides[3] + c * x->x_strides[4];
                factors[n++] = x->panels + tap * x->channels;
            }
    kin_tile_filter(x->channels, n, seen, factors, started, y);
}

/* Taps of a dim that see something from p. */
static void
find_taps(const kin_convolution *x, const place *p, int d, int64_t *first, int64_t *behind)
{
    int64_t start = first_seen(x, p, d), step = x->dilation[d];
    *first = start >= 0 ? 0 : kin_tile_divide_up(-start, step);
    *behind = start >= x->in[d] ? 0 : kin_tile_divide_up(x->in[d] - start, step);
    *first = *first < x->kernel[d] ? *first : x->kernel[d];
    *behind = *behind < x->kernel[d] ? *behind : x->kernel[d];
}

/* Four places in a row that look at nothing outside of their lines. */
static void
filter_four(const kin_convolution *x, const place *p, float *y)
{
    int64_t first, behind;
    find_taps(x, p, 1, &first, &behind);
    const float *image = (const float *)x->x + p->batch * x->x_strides[0] + first_seen(x, p, 2) * x->x_strides[4];
    kin_tile_filter_four(x->channels, behind > first ? (unsigned)(behind - first) : 0, (unsigned)x->kernel[2],
                         image + (first_seen(x, p, 1) + first * x->dilation[1]) * x->x_strides[3], x->dilation[1] * x->x_strides[3],
                         x->dilation[2] * x->x_strides[4], x->stride[2] * x->x_strides[4], x->panels + first * x->kernel[2] * x->channels,
                         x->kernel[2] * x->channels, x->channels, y, x->y_strides[4]);
}

static bool
are_four_inside(const kin_convolution *x, const place *p, int64_t rows)
{
    int64_t start = first_seen(x, p, 2);
    return rows >= 4 && x->kernel[0] == 1 && x->in[0] == 1 && x->padding[0] == 0 && p->at[2] + 4 <= x->out[2] && start >= 0 &&
           start + reach(x, 2, 4) <= x->in[2];
}

static bool
filter_part(const kin_convolution *x, int64_t row, int64_t rows)
{
    enum { NEAR = 1 << 14 /* results that are still near when they are all there */ };
    place p = find_place(x, row);
    const int64_t *ys = x->y_strides;
    int64_t done = row; /* up to here what follows was done */
    bool ok = true;
    for (int64_t i = row, n; i < row + rows; i += n) {
        n = are_four_inside(x, &p, row + rows - i) ? 4 : 1;
        float *y = x->y + p.batch * ys[0] + p.at[0] * ys[2] + p.at[1] * ys[3] + p.at[2] * ys[4];
        if (n == 4)
            filter_four(x, &p, y);
        else
            filter_place(x, &p, y);
        kin_convolution_finish(x, i, n, (unsigned)x->channels, 0, y, ys[4]);
        for (int64_t k = 0; k < n; k++)
            next_place(x, &p);
        if ((i + n - done) * x->filters < NEAR && i + n < row + rows)
            continue;
        ok = kin_convolution_follow(x, done, i + n - done, 0, kin_tile_divide_up(x->filters, KIN_TILE_COLUMNS)) && ok;
        done = i + n;
    }
    return ok;
}

/* -- threads ------------------------------------------------------------------------------------------------------------------ */

static bool
works_by_lines(const kin_convolution *x)
{
    return goes_by_lines(x) && (x->scattered || !is_matrix(x));
}

/* Cut into shares of rows, or of panels. */
typedef struct {
    const kin_convolution *x;
    bool by_rows;
    int64_t rows, shares, share_rows;
    atomic_int failed; /* there was no memory, or what follows failed */
} sharing;

bool
kin_convolution_do_part(const kin_convolution *x, int64_t row, int64_t rows, int64_t panel, int64_t panels)
{
    if (is_depthwise(x))
        return filter_part(x, row, rows);
    part w = {x, row, rows, panel, panels, NULL};
    bool lines = works_by_lines(x);
    size_t len = lines ? room_for_strip(x) : is_matrix(x) ? 0 : (size_t)(kin_tile_part_of(rows, TALL) * block_depth(x));
    if (len > 0 && (w.room = aligned_alloc(64, (len * sizeof(float) + 63) / 64 * 64)) == NULL)
        return false;
    bool ok = lines ? multiply_lines(&w) : multiply_part(&w);
    free(w.room);
    return ok;
}

static void
run_share(int64_t begin, int64_t end, void *arg)
{
    sharing *s = arg;
    int64_t row = 0, rows = s->rows, panel = 0, panels = s->x->groups * panels_of(s->x);
    if (s->by_rows) {
        row = begin * s->share_rows;
        rows = (end * s->share_rows < s->rows ? end * s->share_rows : s->rows) - row;
    } else {
        panel = begin;
        panels = end - begin;
    }
    if (!kin_convolution_do_part(s->x, row, rows, panel, panels))
        atomic_store(&s->failed, 1);
}

static bool
run_in_place(const kin_convolution *x, kin_parallel parallel)
{
    int64_t panels = x->groups * panels_of(x), rows = x->batch * product_of(x->out), tiles = kin_tile_divide_up(rows, KIN_TILE_ROWS);
    sharing s = {.x = x, .rows = rows, .by_rows = is_depthwise(x) || (panels < KIN_TIER_THREAD_SHARES && tiles > panels)};
    if (rows == 0)
        return true;
    if (kin_winograd_suits(x))
        return kin_winograd_run(x, parallel);
    bool lines = is_depthwise(x) || works_by_lines(x);
    s.share_rows = lines && rows / x->out[2] >= KIN_TIER_THREAD_SHARES ? x->out[2] : kin_tile_divide_up(rows, tiles);
    s.shares = s.by_rows ? kin_tile_divide_up(rows, s.share_rows) : panels;
    double work = (double)rows * (double)x->filters * (double)depth_of(x) / (double)s.shares * (is_depthwise(x) ? 4 : 1);
    int64_t grain = kin_tier_grain(work, KIN_TIER_THREAD_PRODUCT);
    if (parallel != NULL && s.shares > grain)
        parallel(s.shares, grain, run_share, &s);
    else
        run_share(0, s.shares, &s);
    return atomic_load(&s.failed) == 0;
}

/* Strides of [batch, channels, space...] with channels last and without gaps. */
static void
lay_dense(int64_t channels, const int64_t *space, int64_t *strides)
{
    int64_t step = channels;
    strides[1] = 1;
    for (int d = SPACE; d-- > 0; step *= space[d])
        strides[2 + d] = step;
    strides[0] = step;
}

/* What is not done by lines writes rows without gaps: these are copied. */
static bool
run_and_scatter(const kin_convolution *x, kin_parallel parallel)
{
    int64_t rows = x->batch * product_of(x->out);
    const int64_t *ys = x->y_strides;
    kin_convolution dense = *x;
    dense.scattered = false;
    dense.y = malloc((size_t)(rows * x->filters) * sizeof *dense.y);
    if (dense.y == NULL)
        return false;
    lay_dense(x->filters, x->out, dense.y_strides);
    bool done = run_in_place(&dense, parallel);
    place p = find_place(x, 0);
    for (int64_t i = 0; done && i < rows; i++, next_place(x, &p))
        kin_tile_copy(dense.y + i * x->filters, x->filters,
                      x->y + p.batch * ys[0] + p.at[0] * ys[2] + p.at[1] * ys[3] + p.at[2] * ys[4]);
    free(dense.y);
    return done;
}

static bool
run_with_channels_last(const kin_convolution *x, kin_parallel parallel)
{
    kin_convolution laid = *x;
    if (x->scattered && !is_depthwise(x) && !works_by_lines(x))
        return run_and_scatter(x, parallel);
    if (!x->scattered)
        lay_dense(x->filters, x->out, laid.y_strides);
    return run_in_place(&laid, parallel);
}

/* -- channels that lie apart ---------------------------------------------------------------------------------------------------- */

typedef struct {
    const kin_convolution *x;
    void *to;
} turning;

/* Lines [begin, end) of the image, with the channels next to each other. */
static void
turn_lines(int64_t begin, int64_t end, void *arg)
{
    const turning *t = arg;
    const kin_convolution *x = t->x;
    const int64_t *s = x->x_strides;
    for (int64_t line = begin; line < end; line++) {
        int64_t j = line % x->in[1], i = line / x->in[1] % x->in[0], n = line / x->in[1] / x->in[0];
        int64_t at = n * s[0] + i * s[2] + j * s[3], first = line * x->in[2] * x->channels;
        const uint16_t *halves = (const uint16_t *)x->x + at;
        const float *from = (const float *)x->x + at;
        for (int64_t c = 0; c < x->channels; c++)
            for (int64_t k = 0; k < x->in[2]; k++)
                if (x->pairs)
                    ((uint16_t *)t->to)[first + k * x->channels + c] = halves[c * s[1] + k * s[4]];
                else
                    ((float *)t->to)[first + k * x->channels + c] = from[c * s[1] + k * s[4]];
    }
}

/* Can the image be read as words? */
static bool
lies_in_words(const kin_convolution *x)
{
    bool even = (uintptr_t)x->x % sizeof(float) == 0;
    for (unsigned d = 0; d < 2 + SPACE; d++)
        even = even && (d == 1 || x->x_strides[d] % 2 == 0);
    return even;
}

static bool
run_laid_out(const kin_convolution *x, kin_parallel parallel)
{
    kin_convolution words = in_words(x);
    return run_with_channels_last(x->pairs ? &words : x, parallel);
}

bool
kin_convolution_run(const kin_convolution *x, kin_parallel parallel)
{
    if (x->batch * product_of(x->out) == 0) /* an image of one row has nothing of every second one, behind a stride of two */
        return true;
    if ((x->x_strides[1] == 1 || x->channels == 1) && (!x->pairs || lies_in_words(x)))
        return run_laid_out(x, parallel);
    int64_t lines = x->batch * x->in[0] * x->in[1], line = x->in[2] * x->channels;
    void *room = malloc((size_t)(lines * line) * (x->pairs ? sizeof(uint16_t) : sizeof(float)));
    turning t = {x, room};
    if (room == NULL)
        return false;
    int64_t grain = kin_tier_grain((double)line, KIN_TIER_THREAD_TURN);
    if (parallel != NULL && lines > grain)
        parallel(lines, grain, turn_lines, &t);
    else
        turn_lines(0, lines, &t);
    kin_convolution turned = *x;
    turned.x = room;
    lay_dense(x->channels, x->in, turned.x_strides);
    bool done = run_laid_out(&turned, parallel);
    free(room);
    return done;
}
