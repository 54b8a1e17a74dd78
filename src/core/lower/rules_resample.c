/* Rules for other resolutions and for paddings that repeat the image: elements at places that are computed. */
#include "core/lower/lower_priv.h"

enum { MAX = KIN_IR_MAX_DIMS, SPATIAL = 3 };

/* The scale of a dim as eager computes it, in float. `at`: the argument with the scale that was asked for. */
static double
scale_of(low_call *c, unsigned at, int64_t from, int64_t to)
{
    double given = low_float_or(c, at, "", 0);
    return given > 0 ? (float)(1.0 / given) : (float)from / (float)to;
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

static kin_irn
everywhere(low_call *c, kin_irn along)
{
    return kin_ir_expand(c->ir, along, low_ndim(c, 0), low_sizes(c, 0));
}

/* x at these places of its last dims. */
static kin_irn
pick(low_call *c, kin_irn x, unsigned spatial, const kin_irn *places)
{
    int64_t map[MAX];
    kin_irn all[SPATIAL];
    unsigned ndim = low_ndim_of(c, x);
    for (unsigned d = 0; d < ndim; d++)
        map[d] = d + spatial < ndim ? (int64_t)d : -1 - (int64_t)(d + spatial - ndim);
    for (unsigned k = 0; k < spatial; k++)
        all[k] = everywhere(c, places[k]);
    return kin_ir_index(c->ir, x, map, all, spatial, ndim, low_sizes(c, 0));
}

/* row: spatial dims; negative: the middle of each place decides. */
bool
rule_upsample_nearest(low_call *c, int row)
{
    bool exact = row < 0;
    unsigned spatial = (unsigned)(exact ? -row : row);
    kin_irn x = low_read(c, low_arg(c, 0, "self")), places[SPATIAL];
    if (x == 0 || low_ndim_of(c, x) != spatial + 2 || low_ndim(c, 0) != spatial + 2)
        return false;
    for (unsigned k = 0; k < spatial; k++) {
        int64_t from = low_sizes_of(c, x)[2 + k];
        kin_irn at = position(c, 2 + k, KIN_F32);
        if (exact)
            at = low_bin(c, KIN_IR_ADD, at, 0.5);
        at = low_un(c, KIN_IR_FLOOR, low_bin(c, KIN_IR_MUL, at, scale_of(c, 2 + k, from, low_sizes(c, 0)[2 + k])));
        places[k] = low_bin(c, KIN_IR_MIN, kin_ir_cast(c->ir, at, KIN_I64), (double)(from - 1));
    }
    return low_done(c, 0, pick(c, x, spatial, places));
}

/* The two neighbours of each position along a dim, and how near the second is. */
typedef struct {
    kin_irn places[2], near;
} neighbours;

static neighbours
find_neighbours(low_call *c, unsigned dim, int64_t from, double scale, bool corners)
{
    kin_irn at = position(c, dim, KIN_F32);
    if (!corners)
        at = low_bin(c, KIN_IR_ADD, at, 0.5);
    at = low_bin(c, KIN_IR_MUL, at, scale);
    if (!corners)
        at = low_bin(c, KIN_IR_MAX, low_bin(c, KIN_IR_SUB, at, 0.5), 0);
    kin_irn first = low_bin(c, KIN_IR_MIN, kin_ir_cast(c->ir, at, KIN_I64), (double)(from - 1));
    kin_irn second = low_bin(c, KIN_IR_MIN, low_bin(c, KIN_IR_ADD, first, 1), (double)(from - 1));
    kin_irn near = low_bi(c, KIN_IR_SUB, at, kin_ir_cast(c->ir, first, KIN_F32));
    return (neighbours){{first, second}, low_bin(c, KIN_IR_MIN, low_bin(c, KIN_IR_MAX, near, 0), 1)};
}

static kin_irn
mix(low_call *c, kin_irn a, kin_irn b, kin_irn near)
{
    kin_irn far = everywhere(c, low_bi(c, KIN_IR_SUB, low_like(c, near, 1), near));
    return low_bi(c, KIN_IR_ADD, low_bi(c, KIN_IR_MUL, a, far), low_bi(c, KIN_IR_MUL, b, everywhere(c, near)));
}

/* Along dim k and those behind it, at places[0..k) of the ones before. */
static kin_irn
interpolate(low_call *c, kin_irn x, unsigned spatial, const neighbours *n, kin_irn *places, unsigned k)
{
    if (k == spatial)
        return pick(c, x, spatial, places);
    places[k] = n[k].places[0];
    kin_irn first = interpolate(c, x, spatial, n, places, k + 1);
    places[k] = n[k].places[1];
    return mix(c, first, interpolate(c, x, spatial, n, places, k + 1), n[k].near);
}

bool
rule_upsample_linear(low_call *c, int row)
{
    unsigned spatial = (unsigned)row;
    kin_irn x = low_read(c, low_arg(c, 0, "self")), places[SPATIAL];
    bool corners = low_int_or(c, 2, "align_corners", 0);
    neighbours n[SPATIAL];
    if (x == 0 || !kin_dtype_is_float(low_dtype_of(c, x)) || low_dtype_of(c, x) == KIN_F64 || low_ndim_of(c, x) != spatial + 2
        || low_ndim(c, 0) != spatial + 2 || (spatial != 2 && low_dtype_of(c, x) != KIN_F32))
        return false; /* in one and three dims eager computes in half precision */
    x = kin_ir_cast(c->ir, x, KIN_F32);
    for (unsigned k = 0; k < spatial; k++) {
        int64_t from = low_sizes_of(c, x)[2 + k], to = low_sizes(c, 0)[2 + k];
        double scale = corners ? (to > 1 ? (float)(from - 1) / (float)(to - 1) : 0) : scale_of(c, 3 + k, from, to);
        n[k] = find_neighbours(c, 2 + k, from, scale, corners);
    }
    return low_done(c, 0, interpolate(c, x, spatial, n, places, 0));
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

/* row: spatial dims; negative: the edge is repeated, not mirrored. */
bool
rule_mirror(low_call *c, int row)
{
    unsigned spatial = (unsigned)(row < 0 ? -row : row);
    kin_irn x = low_read(c, low_arg(c, 0, "self")), places[SPATIAL];
    int64_t pads[MAX];
    unsigned ndim = low_ndim(c, 0);
    if (x == 0 || low_ndim_of(c, x) != ndim || ndim < spatial + 1 || low_ints(c, low_arg(c, 1, "padding"), pads) != (int)(2 * spatial)
        || kin_ir_numel(c->ir, x) == 0)
        return false;
    for (unsigned k = 0; k < spatial; k++) {
        unsigned d = ndim - spatial + k;
        int64_t before = pads[2 * (spatial - 1 - k)], behind = pads[2 * (spatial - 1 - k) + 1], size = low_sizes_of(c, x)[d];
        if (before < 0 || behind < 0 || low_sizes(c, 0)[d] != size + before + behind || (row > 0 && (before >= size || behind >= size)))
            return false;
        kin_irn at = low_bin(c, KIN_IR_SUB, position(c, d, KIN_I64), (double)before);
        places[k] = fold_back(c, at, (double)(size - 1), row < 0);
    }
    return low_done(c, 0, pick(c, x, spatial, places));
}
