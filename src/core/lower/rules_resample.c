/* Rules for resampling and for paddings that repeat the image: elements at computed positions. */
#include "core/lower/lower_priv.h"

enum { MAX = KIN_IR_MAX_DIMS };

static double
rounded(kin_dtype real, double x)
{
    return real == KIN_F64 ? x : (float)x;
}

/* The scale of a dim as eager computes it. `at`: the argument with the scale that was asked for. */
static double
scale_of(low_call *c, unsigned at, int64_t from, int64_t to, kin_dtype real)
{
    double given = low_float_or(c, at, "", 0);
    return rounded(real, given > 0 ? 1.0 / given : (double)from / (double)to);
}

/* Numbers along one dim of the result, with size 1 in all others: what is computed of them is done once for each. */
static kin_irn
position(low_call *c, unsigned dim, kin_dtype dtype)
{
    int64_t sizes[MAX];
    for (unsigned d = 0; d < low_ndim(c, 0); d++)
        sizes[d] = d == dim ? low_sizes(c, 0)[d] : 1;
    return kin_ir_cast(c->ir, kin_ir_iota(c->ir, KIN_I64, dim, low_ndim(c, 0), sizes), dtype);
}

/* The elements of x at these places of a dim. */
static kin_irn
take(low_call *c, kin_irn x, unsigned dim, kin_irn places)
{
    int64_t map[MAX], sizes[MAX];
    unsigned ndim = low_ndim_of(c, x);
    for (unsigned d = 0; d < ndim; d++) {
        map[d] = d == dim ? -1 : (int64_t)d;
        sizes[d] = low_sizes_of(c, d == dim ? places : x)[d];
    }
    places = kin_ir_expand(c->ir, places, ndim, sizes);
    return kin_ir_index(c->ir, x, map, &places, 1, ndim, sizes);
}

/* The place that is taken along a dim. Where each element is repeated twice, four or eight times it is a whole quotient (the scale is exact then). */
static kin_irn
nearest(low_call *c, unsigned dim, int64_t from, bool exact)
{
    int64_t to = low_sizes(c, 0)[dim];
    double scale = scale_of(c, dim, from, to, KIN_F32);
    for (int64_t times = 2; times <= 8; times *= 2)
        if (to == from * times && scale == 1.0 / (double)times)
            return low_bin(c, KIN_IR_FLOOR_DIV, position(c, dim, KIN_I64), (double)times);
    kin_irn at = position(c, dim, KIN_F32);
    if (exact)
        at = low_bin(c, KIN_IR_ADD, at, 0.5);
    at = low_un(c, KIN_IR_FLOOR, low_bin(c, KIN_IR_MUL, at, scale));
    return low_bin(c, KIN_IR_MIN, kin_ir_cast(c->ir, at, KIN_I64), (double)(from - 1));
}

/* Was a scale asked for that is not that of a size that stays or doubles? Some of eager's kernels take it, others take each element once or twice all the same. */
static bool
is_disputed(low_call *c, kin_irn x, unsigned dim)
{
    int64_t from = low_sizes_of(c, x)[dim], to = low_sizes(c, 0)[dim];
    double scale = scale_of(c, dim, from, to, KIN_F32);
    return (to == from && scale != 1) || (to == 2 * from && scale != 0.5);
}

/* row: spatial dims; negative: the middle of each place decides. */
bool
rule_upsample_nearest(low_call *c, int row)
{
    bool exact = row < 0;
    unsigned spatial = (unsigned)(exact ? -row : row);
    kin_irn x = low_read(c, low_arg(c, 0, "self"));
    if (x == 0 || low_ndim_of(c, x) != spatial + 2 || low_ndim(c, 0) != spatial + 2)
        return false;
    for (unsigned d = 2; d < spatial + 2 && !exact && spatial > 1; d++)
        if (is_disputed(c, x, d))
            return false;
    for (unsigned d = 2; d < spatial + 2; d++)
        x = take(c, x, d, nearest(c, d, low_sizes_of(c, x)[d], exact));
    return low_done(c, 0, x);
}

/* -- sums of neighbours ---------------------------------------------------------------------------------------------- */

enum { TAPS = 4 };

/* What each element along one dim is a sum of: elements at places, times weights. */
typedef struct {
    kin_irn places[TAPS], weights[TAPS];
    unsigned n;
} taps;

/* Where in the image the middle of each element lies. */
static kin_irn
source(low_call *c, unsigned dim, kin_dtype real, double scale, bool corners)
{
    kin_irn at = position(c, dim, real);
    if (corners)
        return low_bin(c, KIN_IR_MUL, at, scale);
    return low_bin(c, KIN_IR_SUB, low_bin(c, KIN_IR_MUL, low_bin(c, KIN_IR_ADD, at, 0.5), scale), 0.5);
}

static kin_irn
between(low_call *c, kin_irn x, double lo, double hi)
{
    return low_bin(c, KIN_IR_MIN, low_bin(c, KIN_IR_MAX, x, lo), hi);
}

static taps
linear_taps(low_call *c, kin_irn at, int64_t from)
{
    taps t = {.n = 2};
    double last = (double)(from - 1);
    at = low_bin(c, KIN_IR_MAX, at, 0);
    t.places[0] = low_bin(c, KIN_IR_MIN, kin_ir_cast(c->ir, at, KIN_I64), last);
    t.places[1] = low_bin(c, KIN_IR_MIN, low_bin(c, KIN_IR_ADD, t.places[0], 1), last);
    t.weights[1] = between(c, low_bi(c, KIN_IR_SUB, at, kin_ir_cast(c->ir, t.places[0], low_dtype_of(c, at))), 0, 1);
    t.weights[0] = low_bi(c, KIN_IR_SUB, low_like(c, at, 1), t.weights[1]);
    return t;
}

/* The cubic convolution kernel with a = -0.75, at a distance of up to one (near) or from one to two. */
static kin_irn
cubic(low_call *c, kin_irn x, bool near)
{
    const double a = -0.75, k[2][4] = {{a, -5 * a, 8 * a, -4 * a}, {a + 2, -(a + 3), 0, 1}};
    kin_irn sum = low_bin(c, KIN_IR_ADD, low_bin(c, KIN_IR_MUL, x, k[near][0]), k[near][1]);
    for (int i = 2; i < 4; i++) {
        sum = low_bi(c, KIN_IR_MUL, sum, x);
        sum = k[near][i] == 0 ? sum : low_bin(c, KIN_IR_ADD, sum, k[near][i]);
    }
    return sum;
}

static taps
cubic_taps(low_call *c, kin_irn at, int64_t from)
{
    taps t = {.n = 4};
    double last = (double)(from - 1);
    kin_irn floor = low_un(c, KIN_IR_FLOOR, at), first = low_bin(c, KIN_IR_MIN, kin_ir_cast(c->ir, floor, KIN_I64), last);
    kin_irn near = between(c, low_bi(c, KIN_IR_SUB, at, kin_ir_cast(c->ir, first, low_dtype_of(c, at))), 0, 1);
    kin_irn far = low_bi(c, KIN_IR_SUB, low_like(c, near, 1), near);
    for (unsigned i = 0; i < t.n; i++) {
        kin_irn distance = i == 0 ? low_bin(c, KIN_IR_ADD, near, 1) : i == 1 ? near : i == 2 ? far : low_bin(c, KIN_IR_ADD, far, 1);
        t.places[i] = between(c, low_bin(c, KIN_IR_ADD, first, (double)i - 1), 0, last);
        t.weights[i] = cubic(c, distance, i == 1 || i == 2);
    }
    return t;
}

/* x with dim `dim` resampled, the other dims as they are. */
static kin_irn
resample(low_call *c, kin_irn x, unsigned dim, const taps *t)
{
    kin_irn sum = 0;
    for (unsigned i = 0; i < t->n; i++) {
        kin_irn one = take(c, x, dim, t->places[i]);
        one = low_bi(c, KIN_IR_MUL, one, kin_ir_expand(c->ir, t->weights[i], low_ndim_of(c, one), low_sizes_of(c, one)));
        sum = sum ? low_bi(c, KIN_IR_ADD, sum, one) : one;
    }
    return sum;
}

/* The dim that shrinks most, or grows least, goes first, of equal ones the last, so that what lies between has few elements. Where sizes vary, the last goes first. */
static unsigned
next_dim(low_call *c, kin_irn x, const bool *done)
{
    unsigned best = 0;
    double least = 0;
    for (unsigned d = low_ndim_of(c, x); d-- > 2;) {
        double growth = c->l->options->varying ? 1 : (double)low_sizes(c, 0)[d] / (double)low_sizes_of(c, x)[d];
        if (!done[d] && (best == 0 || growth < least))
            best = d, least = growth;
    }
    return best;
}

/* Dim by dim; corners: the first and last elements stay where they are. `scales`: the argument with the first dim's scale. `stays`: where a dim keeps its size its elements are
 * taken as they are, whatever the scale. */
static bool
resample_all(low_call *c, kin_irn x, bool corners, unsigned scales, bool stays, taps (*find)(low_call *, kin_irn, int64_t))
{
    bool done[MAX] = {false};
    kin_dtype real = low_dtype_of(c, x) == KIN_F64 ? KIN_F64 : KIN_F32;
    x = kin_ir_cast(c->ir, x, real);
    for (unsigned d; (d = next_dim(c, x, done)) != 0; done[d] = true) {
        int64_t from = low_sizes_of(c, x)[d], to = low_sizes(c, 0)[d];
        if (stays && from == to)
            continue;
        double scale = corners ? (to > 1 ? rounded(real, (double)(from - 1) / (double)(to - 1)) : 0) : scale_of(c, scales + d - 2, from, to, real);
        taps t = find(c, source(c, d, real, scale, corners), from);
        x = resample(c, x, d, &t);
    }
    return low_done(c, 0, x);
}

/* The image, if dims and dtype are such that eager computes in float or double: in half precision it does only in two dims. One without elements may be refused by eager's kernels. */
static kin_irn
image(low_call *c, unsigned spatial, bool half)
{
    kin_irn x = low_read(c, low_arg(c, 0, "self"));
    bool fits = x != 0 && kin_dtype_is_float(low_dtype_of(c, x)) && low_ndim_of(c, x) == spatial + 2 && low_ndim(c, 0) == spatial + 2 && kin_ir_numel(c->ir, x) != 0;
    for (unsigned d = 2; d < spatial + 2 && fits; d++)
        fits = low_sizes(c, 0)[d] != 0;
    return fits && (half || low_dtype_of(c, x) == KIN_F32 || low_dtype_of(c, x) == KIN_F64) ? x : 0;
}

bool
rule_upsample_linear(low_call *c, int row)
{
    kin_irn x = image(c, (unsigned)row, row == 2);
    return x != 0 && resample_all(c, x, low_int_or(c, 2, "align_corners", 0), 3, true, linear_taps);
}

bool
rule_upsample_cubic(low_call *c, int row)
{
    kin_irn x = image(c, 2, false);
    return x != 0 && resample_all(c, x, low_int_or(c, 2, "align_corners", 0), 3, false, cubic_taps);
}

/* Places before the first and behind the last one: mirrored at them, or the edge again. */
static kin_irn
fold_back(low_call *c, kin_irn at, double last, bool repeat)
{
    if (repeat)
        return low_bin(c, KIN_IR_MIN, low_bin(c, KIN_IR_MAX, at, 0), last);
    at = low_un(c, KIN_IR_ABS, at);
    kin_irn away = low_un(c, KIN_IR_ABS, low_bi(c, KIN_IR_SUB, low_like(c, at, last), at));
    return low_bi(c, KIN_IR_SUB, low_like(c, at, last), away);
}

/* x with its last dim continued at both ends, as parts put together: each is read from one end to the other, where places would be gathered. */
static kin_irn
continued(low_call *c, kin_irn x, int64_t before, int64_t behind, bool repeat)
{
    int64_t starts[MAX] = {0}, steps[MAX], sizes[MAX];
    unsigned ndim = low_ndim_of(c, x), d = ndim - 1, n = 0;
    int64_t size = low_sizes_of(c, x)[d];
    kin_irn parts[3];
    for (unsigned i = 0; i < ndim; i++)
        steps[i] = 1, sizes[i] = low_sizes_of(c, x)[i];
    for (int end = 0; end < 3; end++) {
        int64_t wide = end == 0 ? before : end == 1 ? size : behind;
        starts[d] = end == 1 ? 0 : repeat ? (end == 0 ? 0 : size - 1) : end == 0 ? before : size - 2;
        steps[d] = end == 1 || repeat ? 1 : -1;
        sizes[d] = repeat && end != 1 ? 1 : wide;
        if (wide == 0)
            continue;
        parts[n] = kin_ir_slice(c->ir, x, starts, steps, sizes);
        sizes[d] = wide;
        parts[n] = kin_ir_expand(c->ir, parts[n], ndim, sizes);
        n++;
    }
    return kin_ir_cat(c->ir, parts, n, d);
}

/* row: spatial dims; negative: the edge is repeated, not mirrored. */
bool
rule_mirror(low_call *c, int row)
{
    unsigned spatial = (unsigned)(row < 0 ? -row : row);
    kin_irn x = low_read(c, low_arg(c, 0, "self"));
    int64_t pads[MAX];
    unsigned ndim = low_ndim(c, 0);
    if (x == 0 || low_ndim_of(c, x) != ndim || ndim < spatial + 1 || low_ints(c, low_arg(c, 1, "padding"), pads) != (int)(2 * spatial)
        || kin_ir_numel(c->ir, x) == 0)
        return false;
    for (unsigned k = 0; k < spatial; k++) {
        unsigned d = ndim - 1 - k;
        int64_t before = pads[2 * k], behind = pads[2 * k + 1], size = low_sizes_of(c, x)[d];
        if (before < 0 || behind < 0 || low_sizes(c, 0)[d] != size + before + behind || (row > 0 && (before >= size || behind >= size)))
            return false;
    }
    for (unsigned k = spatial; k-- > 1;) {
        unsigned d = ndim - 1 - k;
        kin_irn at = low_bin(c, KIN_IR_SUB, position(c, d, KIN_I64), (double)pads[2 * k]);
        x = take(c, x, d, fold_back(c, at, (double)(low_sizes_of(c, x)[d] - 1), row < 0));
    }
    return low_done(c, 0, continued(c, x, pads[0], pads[1], row < 0));
}
