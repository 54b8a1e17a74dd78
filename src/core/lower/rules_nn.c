/* Rules for normalisation and pooling. */
#include "core/lower/lower_priv.h"

#include <math.h>
#include <string.h>

enum { MAX = KIN_IR_MAX_DIMS };

static kin_irn
wide_of(low_call *c, const kin_aten_arg *a)
{
    kin_irn x = low_read(c, a);
    return x != 0 && kin_dtype_is_float(low_dtype_of(c, x)) ? kin_ir_cast(c->ir, x, low_wide(low_dtype_of(c, x))) : 0;
}

/* A value along one dim of x, everywhere in x. */
static kin_irn
along(low_call *c, kin_irn a, unsigned dim, kin_irn x)
{
    int64_t sizes[MAX];
    for (unsigned d = 0; d < low_ndim_of(c, x); d++)
        sizes[d] = d == dim ? low_sizes_of(c, x)[d] : 1;
    if (kin_ir_numel(c->ir, a) != low_sizes_of(c, x)[dim])
        return 0;
    a = kin_ir_cast(c->ir, kin_ir_reshape(c->ir, a, low_ndim_of(c, x), sizes), low_dtype_of(c, x));
    return low_expand_like(c, a, x);
}

/* -- normalisation ------------------------------------------------------------------------------------------------ */

typedef struct {
    kin_irn mean, rstd, normal; /* the first two with size 1 where they were reduced */
} normalised;

static normalised
normalise(low_call *c, kin_irn x, const int64_t *dims, unsigned count, double eps)
{
    double elements = 1;
    for (unsigned k = 0; k < count; k++)
        elements *= (double)low_sizes_of(c, x)[dims[k]];
    kin_irn mean = low_bin(c, KIN_IR_DIV, kin_ir_reduce(c->ir, KIN_IR_REDUCE_SUM, x, count, dims), elements);
    kin_irn away = low_bi(c, KIN_IR_SUB, x, low_expand_like(c, mean, x));
    kin_irn square = kin_ir_reduce(c->ir, KIN_IR_REDUCE_SUM, low_bi(c, KIN_IR_MUL, away, away), count, dims);
    kin_irn var = low_bin(c, KIN_IR_DIV, square, elements);
    kin_irn rstd = low_un(c, KIN_IR_RSQRT, low_bin(c, KIN_IR_ADD, var, eps));
    return (normalised){mean, rstd, low_bi(c, KIN_IR_MUL, away, low_expand_like(c, rstd, x))};
}

static bool
done_statistics(low_call *c, const normalised *n)
{
    return (!low_wanted(c, 1) || low_done(c, 1, low_reshape_like(c, n->mean, 1)))
           && (!low_wanted(c, 2) || low_done(c, 2, low_reshape_like(c, n->rstd, 2)));
}

/* (x - mean) * rstd * weight + bias over the last dims; weight and bias have their sizes. */
bool
rule_layer_norm(low_call *c, int row)
{
    kin_irn x = wide_of(c, low_arg(c, 0, "input"));
    int64_t shape[MAX], dims[MAX];
    int count = low_ints(c, low_arg(c, 1, "normalized_shape"), shape);
    const kin_aten_arg *weight = low_arg(c, 2, "weight"), *bias = low_arg(c, 3, "bias");
    if (x == 0 || count < 1 || count > (int)low_ndim_of(c, x))
        return false;
    for (int k = 0; k < count; k++)
        dims[k] = (int)low_ndim_of(c, x) - count + k;
    normalised n = normalise(c, x, dims, (unsigned)count, low_float_or(c, 4, "eps", 1e-5));
    kin_irn y = n.normal;
    if (weight != NULL)
        y = low_bi(c, KIN_IR_MUL, y, low_operand(c, weight, low_dtype_of(c, x)));
    if (bias != NULL)
        y = low_bi(c, KIN_IR_ADD, y, low_operand(c, bias, low_dtype_of(c, x)));
    return low_done(c, 0, y) && done_statistics(c, &n);
}

bool
rule_rms_norm(low_call *c, int row)
{
    kin_irn x = wide_of(c, low_arg(c, 0, "input"));
    int64_t shape[MAX], dims[MAX];
    int count = low_ints(c, low_arg(c, 1, "normalized_shape"), shape);
    const kin_aten_arg *weight = low_arg(c, 2, "weight");
    if (x == 0 || count < 1 || count > (int)low_ndim_of(c, x) || low_arg(c, 3, "eps") == NULL)
        return false;
    double elements = 1;
    for (int k = 0; k < count; k++) {
        dims[k] = (int)low_ndim_of(c, x) - count + k;
        elements *= (double)low_sizes_of(c, x)[dims[k]];
    }
    kin_irn square = kin_ir_reduce(c->ir, KIN_IR_REDUCE_SUM, low_bi(c, KIN_IR_MUL, x, x), (unsigned)count, dims);
    kin_irn mean = low_bin(c, KIN_IR_ADD, low_bin(c, KIN_IR_DIV, square, elements), low_float_or(c, 3, "eps", 0));
    kin_irn rstd = low_un(c, KIN_IR_RSQRT, mean), y = low_bi(c, KIN_IR_MUL, x, low_expand_like(c, rstd, x));
    if (weight != NULL)
        y = low_bi(c, KIN_IR_MUL, y, low_operand(c, weight, low_dtype_of(c, x)));
    return low_done(c, 0, y) && (!low_wanted(c, 1) || low_done(c, 1, low_reshape_like(c, rstd, 1)));
}

/* y * w + b, each by channel of x; 0: without. */
static bool
scale_channels(low_call *c, kin_irn x, kin_irn w, kin_irn b, kin_irn *y)
{
    if ((w != 0 && (w = along(c, w, 1, x)) == 0) || (b != 0 && (b = along(c, b, 1, x)) == 0))
        return false;
    if (w != 0)
        *y = low_bi(c, KIN_IR_MUL, *y, w);
    if (b != 0)
        *y = low_bi(c, KIN_IR_ADD, *y, b);
    return true;
}

/* Sum over the channels of each group and all places of x [N, C, places]: places first, along which neighbouring channels lie
 * side by side when channels come last. With size 1 where it was summed: [N, groups, 1, 1]. */
static kin_irn
sum_groups(low_call *c, kin_irn x, int64_t groups)
{
    return low_sum_channels(c, kin_ir_reduce(c->ir, KIN_IR_REDUCE_SUM, x, 1, (int64_t[]){2}), groups);
}

kin_irn
low_sum_channels(low_call *c, kin_irn channels, int64_t groups)
{
    int64_t sizes[4] = {low_sizes_of(c, channels)[0], groups, low_sizes_of(c, channels)[1] / groups, 1};
    return kin_ir_reduce(c->ir, KIN_IR_REDUCE_SUM, kin_ir_reshape(c->ir, channels, 4, sizes), 1, (int64_t[]){2});
}

kin_irn
low_by_channel(low_call *c, kin_irn group, int64_t channels)
{
    const int64_t *have = low_sizes_of(c, group);
    int64_t wide[4] = {have[0], have[1], channels / have[1], 1}, flat[3] = {have[0], channels, 1};
    return kin_ir_reshape(c->ir, kin_ir_expand(c->ir, group, 4, wide), 3, flat);
}

kin_irn
low_as_channels(low_call *c, kin_irn a, kin_irn like)
{
    int64_t flat[3] = {1, low_sizes_of(c, like)[1], 1};
    if (kin_ir_numel(c->ir, a) != flat[1])
        return 0;
    a = kin_ir_cast(c->ir, kin_ir_reshape(c->ir, a, 3, flat), low_dtype_of(c, like));
    return low_expand_like(c, a, like);
}

/* Group norm next to convolutions, which want the channels last: as a factor and a summand for each channel. */
static bool
normalise_channels(low_call *c, kin_irn x, int64_t groups, kin_irn w, kin_irn b, double eps)
{
    int64_t channels = low_sizes_of(c, x)[1], batch = low_sizes_of(c, x)[0];
    int64_t flat[3] = {batch, channels, kin_ir_numel(c->ir, x) / (batch * channels)};
    double elements = (double)(channels / groups * flat[2]);
    kin_irn all = kin_ir_reshape(c->ir, x, 3, flat);
    kin_irn mean = low_bin(c, KIN_IR_DIV, sum_groups(c, all, groups), elements);
    kin_irn middle = kin_ir_unary(c->ir, KIN_IR_CAST, low_by_channel(c, mean, channels));
    kin_irn away = low_bi(c, KIN_IR_SUB, all, low_expand_like(c, middle, all));
    kin_irn var = low_bin(c, KIN_IR_DIV, sum_groups(c, low_bi(c, KIN_IR_MUL, away, away), groups), elements);
    kin_irn rstd = low_un(c, KIN_IR_RSQRT, low_bin(c, KIN_IR_ADD, var, eps)), factor = low_by_channel(c, rstd, channels);
    if (w != 0) {
        kin_irn as = low_as_channels(c, w, factor);
        if (as == 0)
            return false;
        factor = low_bi(c, KIN_IR_MUL, factor, as);
    }
    kin_irn summand = low_un(c, KIN_IR_NEG, low_bi(c, KIN_IR_MUL, low_by_channel(c, mean, channels), factor));
    if (b != 0) {
        kin_irn as = low_as_channels(c, b, summand);
        if (as == 0)
            return false;
        summand = low_bi(c, KIN_IR_ADD, summand, as);
    }
    factor = kin_ir_unary(c->ir, KIN_IR_CAST, factor);
    summand = kin_ir_unary(c->ir, KIN_IR_CAST, summand);
    kin_irn y = low_bi(c, KIN_IR_ADD, low_bi(c, KIN_IR_MUL, all, low_expand_like(c, factor, all)), low_expand_like(c, summand, all));
    normalised n = {mean, rstd, 0};
    return low_done(c, 0, kin_ir_reshape(c->ir, y, low_ndim_of(c, x), low_sizes_of(c, x))) && done_statistics(c, &n);
}

/* Over the channels of a group and all positions; weight and bias are per channel. */
bool
rule_group_norm(low_call *c, int row)
{
    kin_irn x = wide_of(c, low_arg(c, 0, "input"));
    const kin_aten_arg *weight = low_arg(c, 1, "weight"), *bias = low_arg(c, 2, "bias");
    int64_t groups = low_int_or(c, 6, "group", 0);
    if (x == 0 || low_ndim_of(c, x) < 2 || groups < 1 || low_sizes_of(c, x)[1] % groups || kin_ir_numel(c->ir, x) == 0)
        return false;
    if (low_ndim_of(c, x) >= 3 && c->l->options->channels_last)
        return normalise_channels(c, x, groups, low_read(c, weight), low_read(c, bias), low_float_or(c, 7, "eps", 1e-5));
    int64_t batch = low_sizes_of(c, x)[0], sizes[3] = {batch, groups, kin_ir_numel(c->ir, x) / (batch * groups)};
    normalised n = normalise(c, kin_ir_reshape(c->ir, x, 3, sizes), (int64_t[]){2}, 1, low_float_or(c, 7, "eps", 1e-5));
    kin_irn y = kin_ir_reshape(c->ir, n.normal, low_ndim_of(c, x), low_sizes_of(c, x));
    kin_irn w = low_read(c, weight), b = low_read(c, bias);
    if (!scale_channels(c, x, w, b, &y))
        return false;
    return low_done(c, 0, y) && done_statistics(c, &n);
}

/* Row-major, or with the channels last: sizes 1 lie anywhere. */
static bool
is_compact(low_call *c, const kin_aten_arg *a, bool channels_last)
{
    const kin_aten_value *v = kin_aten_at(c->l->g, a->value);
    const int64_t *sizes = kin_aten_sizes(c->l->g, a->value), *strides = kin_aten_strides(c->l->g, a->value);
    int64_t step = 1;
    for (unsigned k = 0; k < v->ndim; k++) {
        unsigned d = channels_last ? (k == 0 ? 1 : k + 1 == v->ndim ? 0 : v->ndim - k) : v->ndim - 1 - k;
        if (sizes[d] != 1 && strides[d] != step)
            return false;
        step *= sizes[d];
    }
    return true;
}

/* With the batch's own statistics, which are results too. */
static bool
normalise_batch(low_call *c, kin_irn x, kin_irn w, kin_irn b, double eps)
{
    int64_t dims[MAX];
    unsigned count = 0;
    if (low_ndim_of(c, x) < 2 || kin_ir_numel(c->ir, x) == 0 || low_dtype(c, 0) != low_dtype_of(c, x)
        || (w != 0 && low_dtype_of(c, w) != low_dtype_of(c, x)) || (b != 0 && low_dtype_of(c, b) != low_dtype_of(c, x)))
        return false;
    for (unsigned d = 0; d < low_ndim_of(c, x); d++)
        if (d != 1)
            dims[count++] = d;
    normalised n = normalise(c, x, dims, count, eps);
    kin_irn y = n.normal;
    if (!scale_channels(c, x, w, b, &y))
        return false;
    return low_done(c, 0, y) && done_statistics(c, &n);
}

/* In eval mode: x * alpha + beta per channel, alpha and beta from the running statistics. row: 1 = training is an argument,
 * then the statistics of the batch are used, if the running ones need not be changed. Where the elements do not lie together eager rounds to half precision in between. */
bool
rule_batch_norm(low_call *c, int has_training)
{
    const kin_aten_arg *input = low_arg(c, 0, "input");
    kin_irn x = wide_of(c, input);
    if (x != 0 && kin_aten_at(c->l->g, input->value)->dtype != low_dtype_of(c, x) && !is_compact(c, input, false)
        && !(low_ndim_of(c, x) >= 4 && is_compact(c, input, true)))
        return false;
    kin_irn mean = wide_of(c, low_arg(c, 3, "running_mean")), var = wide_of(c, low_arg(c, 4, "running_var"));
    kin_irn w = wide_of(c, low_arg(c, 1, "weight")), b = wide_of(c, low_arg(c, 2, "bias"));
    double eps = low_float_or(c, has_training ? 7 : 6, "eps", 1e-5);
    if (x != 0 && has_training && low_int_or(c, 5, "training", 1) && mean == 0 && var == 0)
        return normalise_batch(c, x, w, b, eps);
    if (x == 0 || mean == 0 || var == 0 || low_ndim_of(c, x) < 2 || (has_training && low_int_or(c, 5, "training", 1)))
        return false;
    kin_dtype dtype = low_dtype_of(c, x);
    if (low_dtype_of(c, mean) != dtype || low_dtype_of(c, var) != dtype || (w && low_dtype_of(c, w) != dtype)
        || (b && low_dtype_of(c, b) != dtype))
        return false;
    kin_irn alpha = low_un(c, KIN_IR_RSQRT, low_bin(c, KIN_IR_ADD, var, eps));
    if (w != 0)
        alpha = low_bi(c, KIN_IR_MUL, alpha, w);
    kin_irn beta = low_un(c, KIN_IR_NEG, low_bi(c, KIN_IR_MUL, mean, alpha));
    if (b != 0)
        beta = low_bi(c, KIN_IR_ADD, b, beta);
    alpha = along(c, alpha, 1, x);
    beta = along(c, beta, 1, x);
    if (alpha == 0 || beta == 0 || !low_done(c, 0, low_bi(c, KIN_IR_ADD, low_bi(c, KIN_IR_MUL, x, alpha), beta)))
        return false;
    for (unsigned k = 1; k < c->call->nresults; k++) { /* what training would save: empty */
        kin_irn none = low_number(c, low_dtype(c, k), 0, low_ndim(c, k), low_sizes(c, k));
        if (low_wanted(c, k) && (kin_ir_numel(c->ir, none) != 0 || !low_done(c, k, none)))
            return false;
    }
    return true;
}

/* v * (g / norms of v's parts along a dim) */
bool
rule_weight_norm(low_call *c, int row)
{
    kin_irn v = low_read(c, low_arg(c, 0, "v")), g = low_read(c, low_arg(c, 1, "g"));
    int64_t dims[MAX];
    unsigned count = 0;
    if (v == 0 || g == 0 || !kin_dtype_is_float(low_dtype_of(c, v)) || low_wide(low_dtype_of(c, v)) != low_dtype_of(c, v)
        || low_dtype_of(c, g) != low_dtype_of(c, v) || low_ndim_of(c, g) != low_ndim_of(c, v))
        return false;
    int dim = low_dim(low_int_or(c, 2, "dim", 0), low_ndim_of(c, v));
    for (unsigned d = 0; d < low_ndim_of(c, v); d++) {
        if ((int)d != dim)
            dims[count++] = d;
        if (dim < 0 || low_sizes_of(c, g)[d] != ((int)d == dim ? low_sizes_of(c, v)[d] : 1))
            return false;
    }
    kin_irn square = low_bi(c, KIN_IR_MUL, v, v);
    kin_irn norm = low_un(c, KIN_IR_SQRT, count == 0 ? square : kin_ir_reduce(c->ir, KIN_IR_REDUCE_SUM, square, count, dims));
    kin_irn factor = low_bi(c, KIN_IR_DIV, g, norm);
    return low_done(c, 0, low_bi(c, KIN_IR_MUL, v, low_expand_like(c, factor, v))) && (!low_wanted(c, 1) || low_done(c, 1, norm));
}

bool
rule_glu(low_call *c, int row)
{
    kin_irn x = wide_of(c, low_arg(c, 0, "self"));
    if (x == 0 || low_ndim_of(c, x) == 0)
        return false;
    int dim = low_dim(low_int_or(c, 1, "dim", -1), low_ndim_of(c, x));
    int64_t starts[MAX] = {0}, steps[MAX], sizes[MAX];
    for (unsigned d = 0; d < low_ndim_of(c, x); d++) {
        steps[d] = 1;
        sizes[d] = low_sizes_of(c, x)[d];
    }
    if (dim < 0 || sizes[dim] % 2)
        return false;
    sizes[dim] /= 2;
    kin_irn first = kin_ir_slice(c->ir, x, starts, steps, sizes);
    starts[dim] = sizes[dim];
    kin_irn second = kin_ir_slice(c->ir, x, starts, steps, sizes);
    return low_done(c, 0, low_bi(c, KIN_IR_MUL, first, low_un(c, KIN_IR_SIGMOID, second)));
}

/* -- pooling: a window's elements are shifted slices of the padded input ----------------------------------------------- */

enum { MOST_SHIFTS = 25 };

typedef struct {
    int64_t kernel[2], stride[2], pad[2], dilation[2];
} window;

/* One number for both, or two; `otherwise` when none is given. */
static bool
read_pair(low_call *c, unsigned at, const char *keyword, const int64_t *otherwise, int64_t *out)
{
    int64_t given[MAX];
    const kin_aten_arg *a = low_arg(c, at, keyword);
    int count = a != NULL ? low_ints(c, a, given) : 0;
    if (count < 0 || count > 2)
        return false;
    out[0] = count > 0 ? given[0] : otherwise[0];
    out[1] = count > 0 ? given[count - 1] : otherwise[1];
    return out[0] >= 0 && out[1] >= 0;
}

static bool
read_window(low_call *c, window *w, bool has_dilation)
{
    static const int64_t ones[] = {1, 1}, zeros[] = {0, 0};
    w->dilation[0] = w->dilation[1] = 1;
    return read_pair(c, 1, "kernel_size", ones, w->kernel) && read_pair(c, 2, "stride", w->kernel, w->stride)
           && read_pair(c, 3, "padding", zeros, w->pad) && (!has_dilation || read_pair(c, 4, "dilation", ones, w->dilation))
           && w->kernel[0] * w->kernel[1] >= 1 && w->kernel[0] * w->kernel[1] <= MOST_SHIFTS && w->stride[0] > 0 && w->stride[1] > 0
           && w->dilation[0] > 0 && w->dilation[1] > 0;
}

/* Windows that end behind the plane have to be padded for some sizes and not for others: that would be another program, of which nobody asks. */
static bool
reaches_out_for_some_sizes(const low_call *c, uint32_t number)
{
    return c->l->options->varying && low_int_or(c, number, "ceil_mode", 0);
}

/* Padded so far that every window of the result lies inside. */
static kin_irn
pad_for(low_call *c, kin_irn x, const window *w, double value)
{
    unsigned ndim = low_ndim_of(c, x);
    int64_t below[MAX] = {0}, sizes[MAX];
    bool same = true;
    for (unsigned d = 0; d < ndim; d++) {
        sizes[d] = low_sizes_of(c, x)[d];
        if (d + 2 < ndim)
            continue;
        unsigned k = d + 2 - ndim;
        int64_t reach = (low_sizes(c, 0)[d] - 1) * w->stride[k] + (w->kernel[k] - 1) * w->dilation[k] + 1;
        below[d] = w->pad[k];
        sizes[d] = reach > sizes[d] + w->pad[k] ? reach : sizes[d] + w->pad[k];
        same &= sizes[d] == low_sizes_of(c, x)[d];
    }
    return same ? x : kin_ir_pad(c->ir, x, low_number(c, low_dtype_of(c, x), value, 0, NULL), below, sizes);
}

/* What each window has at (i, j). */
static kin_irn
shifted(low_call *c, kin_irn padded, const window *w, int64_t i, int64_t j)
{
    unsigned ndim = low_ndim_of(c, padded);
    int64_t starts[MAX] = {0}, steps[MAX];
    for (unsigned d = 0; d < ndim; d++)
        steps[d] = d + 2 < ndim ? 1 : w->stride[d + 2 - ndim];
    starts[ndim - 2] = i * w->dilation[0];
    starts[ndim - 1] = j * w->dilation[1];
    return kin_ir_slice(c->ir, padded, starts, steps, low_sizes(c, 0));
}

/* The place in the unpadded plane of what each window has at (i, j). */
static kin_irn
place_of(low_call *c, const window *w, int64_t i, int64_t j, int64_t width)
{
    unsigned ndim = low_ndim(c, 0);
    const int64_t *sizes = low_sizes(c, 0);
    kin_irn line = kin_ir_iota(c->ir, KIN_I64, ndim - 2, ndim, sizes), column = kin_ir_iota(c->ir, KIN_I64, ndim - 1, ndim, sizes);
    line = low_bin(c, KIN_IR_ADD, low_bin(c, KIN_IR_MUL, line, (double)w->stride[0]), (double)(i * w->dilation[0] - w->pad[0]));
    column = low_bin(c, KIN_IR_ADD, low_bin(c, KIN_IR_MUL, column, (double)w->stride[1]), (double)(j * w->dilation[1] - w->pad[1]));
    return low_bi(c, KIN_IR_ADD, low_bin(c, KIN_IR_MUL, line, (double)width), column);
}

/* Whether what the window has at (i, j) lies in the plane: padding is never chosen, even among -inf. */
static kin_irn
inside_of(low_call *c, kin_irn x, const window *w, int64_t i, int64_t j)
{
    unsigned ndim = low_ndim(c, 0);
    kin_irn all = 0;
    for (unsigned k = 0; k < 2; k++) {
        unsigned d = ndim - 2 + k;
        kin_irn at = kin_ir_iota(c->ir, KIN_I64, d, ndim, low_sizes(c, 0));
        at = low_bin(c, KIN_IR_ADD, low_bin(c, KIN_IR_MUL, at, (double)w->stride[k]),
                     (double)((k ? j : i) * w->dilation[k] - w->pad[k]));
        kin_irn in = low_bi(c, KIN_IR_AND, low_compare(c, KIN_IR_GE, at, 0), low_compare(c, KIN_IR_LT, at, (double)low_sizes_of(c, x)[d]));
        all = all ? low_bi(c, KIN_IR_AND, all, in) : in;
    }
    return all;
}

/* Where the maximum of each window lies: the first of equals, the last NaN, as eager chooses. */
static kin_irn
find_places(low_call *c, kin_irn x, kin_irn padded, const window *w)
{
    kin_irn best = 0, place = 0;
    int64_t width = low_sizes_of(c, x)[low_ndim_of(c, x) - 1];
    for (int64_t i = 0; i < w->kernel[0]; i++)
        for (int64_t j = 0; j < w->kernel[1]; j++) {
            kin_irn here = shifted(c, padded, w, i, j), at = place_of(c, w, i, j, width), in = inside_of(c, x, w, i, j);
            if (place == 0) { /* -1: nothing inside was seen yet */
                place = kin_ir_where(c->ir, in, at, low_like(c, at, -1));
                best = here;
                continue;
            }
            kin_irn better = low_bi(c, KIN_IR_OR, low_bi(c, KIN_IR_GT, here, best), low_bi(c, KIN_IR_NE, here, here));
            better = low_bi(c, KIN_IR_AND, low_bi(c, KIN_IR_OR, better, low_compare(c, KIN_IR_LT, place, 0)), in);
            best = kin_ir_where(c->ir, better, here, best);
            place = kin_ir_where(c->ir, better, at, place);
        }
    return place;
}

bool
rule_max_pool2d(low_call *c, int row)
{
    kin_irn x = low_read(c, low_arg(c, 0, "self")), value = 0;
    window w;
    if (x == 0 || !kin_dtype_is_float(low_dtype_of(c, x)) || low_ndim_of(c, x) < 3 || low_ndim(c, 0) != low_ndim_of(c, x)
        || !read_window(c, &w, true) || reaches_out_for_some_sizes(c, 5))
        return false;
    kin_irn padded = pad_for(c, x, &w, -INFINITY);
    for (int64_t i = 0; i < w.kernel[0]; i++)
        for (int64_t j = 0; j < w.kernel[1]; j++) {
            kin_irn here = shifted(c, padded, &w, i, j);
            value = value ? low_bi(c, KIN_IR_MAX, value, here) : here;
        }
    return low_done(c, 0, value) && (!low_wanted(c, 1) || low_done(c, 1, find_places(c, x, padded, &w)));
}

/* How many places of the plane a window covers along spatial dim k; with padding: of the padded plane. */
static kin_irn
covered(low_call *c, kin_irn x, const window *w, unsigned k, bool with_padding)
{
    unsigned ndim = low_ndim(c, 0), d = ndim - 2 + k;
    double size = (double)low_sizes_of(c, x)[d], pad = (double)w->pad[k];
    kin_irn first = low_bin(c, KIN_IR_MUL, kin_ir_iota(c->ir, KIN_I64, d, ndim, low_sizes(c, 0)), (double)w->stride[k]);
    first = low_bin(c, KIN_IR_SUB, first, pad);
    kin_irn end = low_bin(c, KIN_IR_MIN, low_bin(c, KIN_IR_ADD, first, (double)w->kernel[k]), size + pad);
    if (!with_padding) {
        first = low_bin(c, KIN_IR_MAX, first, 0);
        end = low_bin(c, KIN_IR_MIN, end, size);
    }
    return kin_ir_cast(c->ir, low_bi(c, KIN_IR_SUB, end, first), low_dtype_of(c, x));
}

bool
rule_avg_pool2d(low_call *c, int row)
{
    kin_irn x = wide_of(c, low_arg(c, 0, "self")), sum = 0, divisor;
    window w;
    if (x == 0 || low_ndim_of(c, x) < 3 || low_ndim(c, 0) != low_ndim_of(c, x) || !read_window(c, &w, false) || reaches_out_for_some_sizes(c, 4))
        return false;
    bool up = low_int_or(c, 4, "ceil_mode", 0), with_padding = low_int_or(c, 5, "count_include_pad", 1);
    bool same = (!up && (with_padding || (w.pad[0] == 0 && w.pad[1] == 0))) || low_arg(c, 6, "divisor_override") != NULL;
    kin_irn padded = pad_for(c, x, &w, 0);
    for (int64_t i = 0; i < w.kernel[0]; i++)
        for (int64_t j = 0; j < w.kernel[1]; j++) {
            kin_irn here = shifted(c, padded, &w, i, j);
            sum = sum ? low_bi(c, KIN_IR_ADD, sum, here) : here;
        }
    if (same)
        divisor = low_like(c, sum, low_float_or(c, 6, "divisor_override", (double)(w.kernel[0] * w.kernel[1])));
    else
        divisor = low_bi(c, KIN_IR_MUL, covered(c, x, &w, 0, with_padding), covered(c, x, &w, 1, with_padding));
    return low_done(c, 0, low_bi(c, KIN_IR_DIV, sum, divisor));
}

/* Windows of one size: the last dims taken apart into (window, element), then reduced. */
bool
rule_adaptive_avg_pool2d(low_call *c, int row)
{
    kin_irn x = wide_of(c, low_arg(c, 0, "self"));
    unsigned ndim = low_ndim(c, 0);
    if (x == 0 || ndim < 3 || ndim + 2 > MAX || low_ndim_of(c, x) != ndim)
        return false;
    int64_t sizes[MAX], dims[2] = {ndim - 1, ndim + 1}, high = low_sizes_of(c, x)[ndim - 2], wide = low_sizes_of(c, x)[ndim - 1];
    int64_t lines = low_sizes(c, 0)[ndim - 2], columns = low_sizes(c, 0)[ndim - 1];
    if (lines < 1 || columns < 1 || high % lines || wide % columns || high == 0 || wide == 0)
        return false;
    memcpy(sizes, low_sizes_of(c, x), (ndim - 2) * sizeof *sizes);
    sizes[ndim - 2] = lines;
    sizes[ndim - 1] = high / lines;
    sizes[ndim] = columns;
    sizes[ndim + 1] = wide / columns;
    kin_irn sum = kin_ir_reduce(c->ir, KIN_IR_REDUCE_SUM, kin_ir_reshape(c->ir, x, ndim + 2, sizes), 2, dims);
    kin_irn mean = low_bin(c, KIN_IR_DIV, sum, (double)(high / lines * (wide / columns)));
    return low_done(c, 0, low_reshape_like(c, mean, 0));
}
