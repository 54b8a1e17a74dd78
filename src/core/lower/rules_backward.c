/* Rules for operators that autograd calls: gradients of activations, losses, softmax and normalisation, and of slices of tensors.
 * `g` is the gradient of the operator's result, `x` the operator's input.
 */
#include "core/lower/lower_priv.h"

#include <math.h>
#include <string.h>

enum { MAX = KIN_IR_MAX_DIMS };

static kin_irn
mul(low_call *c, kin_irn a, kin_irn b)
{
    return low_bi(c, KIN_IR_MUL, a, b);
}

static kin_irn
sub(low_call *c, kin_irn a, kin_irn b)
{
    return low_bi(c, KIN_IR_SUB, a, b);
}

/* 1 - a */
static kin_irn
rest(low_call *c, kin_irn a)
{
    return sub(c, low_like(c, a, 1), a);
}

/* An operand of result 0's sizes, in the dtype that eager computes in; 0 where the result is not of floats. */
static kin_irn
wide(low_call *c, unsigned at, const char *keyword)
{
    return kin_dtype_is_float(low_dtype(c, 0)) ? low_operand(c, low_arg(c, at, keyword), low_wide(low_dtype(c, 0))) : 0;
}

/* A tensor as it is, in the dtype that eager computes in. */
static kin_irn
wide_tensor(low_call *c, unsigned at, const char *keyword)
{
    kin_irn x = low_read(c, low_arg(c, at, keyword));
    return x != 0 && kin_dtype_is_float(low_dtype_of(c, x)) ? kin_ir_cast(c->ir, x, low_wide(low_dtype_of(c, x))) : 0;
}

/* -- activations ---------------------------------------------------------------------------------------------------- */

/* `all` or nothing of the gradient: where the input lies between the limits. */
static kin_irn
between(low_call *c, kin_irn all, kin_irn x, double least, double most)
{
    kin_irn outside = low_bi(c, KIN_IR_OR, low_compare(c, KIN_IR_LE, x, least), low_compare(c, KIN_IR_GE, x, most));
    return kin_ir_where(c->ir, outside, low_like(c, all, 0), all);
}

static kin_irn
sigmoid(low_call *c, kin_irn x)
{
    return low_un(c, KIN_IR_SIGMOID, x);
}

static kin_irn
gelu(low_call *c, kin_irn g, kin_irn x)
{
    double beta = M_2_SQRTPI * M_SQRT1_2 * 0.5;
    kin_irn square = mul(c, x, x);
    if (strcmp(low_str(c, low_arg(c, 2, "approximate")), "tanh") != 0) {
        kin_irn below = low_bin(c, KIN_IR_MUL, low_bin(c, KIN_IR_ADD, low_un(c, KIN_IR_ERF, low_bin(c, KIN_IR_MUL, x, M_SQRT1_2)), 1), 0.5);
        kin_irn density = low_bin(c, KIN_IR_MUL, low_un(c, KIN_IR_EXP, low_bin(c, KIN_IR_MUL, square, -0.5)), beta);
        return mul(c, g, low_bi(c, KIN_IR_ADD, below, mul(c, x, density)));
    }
    beta = M_SQRT2 * M_2_SQRTPI * 0.5;
    kin_irn inner = low_bi(c, KIN_IR_ADD, x, low_bin(c, KIN_IR_MUL, mul(c, square, x), 0.044715));
    kin_irn t = low_un(c, KIN_IR_TANH, low_bin(c, KIN_IR_MUL, inner, beta)), half = low_bin(c, KIN_IR_MUL, x, 0.5);
    kin_irn slope = low_bin(c, KIN_IR_MUL, low_bin(c, KIN_IR_ADD, low_bin(c, KIN_IR_MUL, square, 3 * 0.044715), 1), beta);
    kin_irn left = low_bin(c, KIN_IR_MUL, low_bin(c, KIN_IR_ADD, t, 1), 0.5);
    return mul(c, g, low_bi(c, KIN_IR_ADD, left, mul(c, mul(c, half, rest(c, mul(c, t, t))), slope)));
}

static kin_irn
mish(low_call *c, kin_irn g, kin_irn x)
{
    kin_irn t = low_un(c, KIN_IR_TANH, low_un(c, KIN_IR_LOG1P, low_un(c, KIN_IR_EXP, x)));
    kin_irn slope = mul(c, mul(c, x, sigmoid(c, x)), rest(c, mul(c, t, t)));
    return mul(c, g, low_bi(c, KIN_IR_ADD, t, slope));
}

static kin_irn
softplus(low_call *c, kin_irn g, kin_irn x)
{
    kin_irn scaled = low_bin(c, KIN_IR_MUL, x, low_float_or(c, 2, "beta", 1)), e = low_un(c, KIN_IR_EXP, scaled);
    kin_irn soft = low_bi(c, KIN_IR_DIV, mul(c, g, e), low_bin(c, KIN_IR_ADD, e, 1));
    return kin_ir_where(c->ir, low_compare(c, KIN_IR_GT, scaled, low_float_or(c, 3, "threshold", 20)), g, soft);
}

/* x / 3 + 1/2 between -3 and 3 */
static kin_irn
hardswish(low_call *c, kin_irn g, kin_irn x)
{
    kin_irn slope = mul(c, g, low_bin(c, KIN_IR_ADD, low_bin(c, KIN_IR_DIV, x, 3), 0.5));
    kin_irn above = kin_ir_where(c->ir, low_compare(c, KIN_IR_LT, x, 3), slope, g);
    return kin_ir_where(c->ir, low_compare(c, KIN_IR_LE, x, -3), low_like(c, g, 0), above);
}

/* The limit is rounded to the dtype. */
static kin_irn
shrink(low_call *c, kin_irn g, kin_irn x, double lambda)
{
    kin_irn limit = kin_ir_cast(c->ir, kin_ir_cast(c->ir, low_like(c, x, lambda), low_dtype(c, 0)), low_dtype_of(c, x));
    kin_irn inside = low_bi(c, KIN_IR_AND, low_bi(c, KIN_IR_GE, x, low_un(c, KIN_IR_NEG, limit)), low_bi(c, KIN_IR_LE, x, limit));
    return kin_ir_where(c->ir, inside, low_like(c, g, 0), g);
}

/* (g, x, ...); for the sigmoid and the tanh x is what they gave. */
bool
rule_activation_backward(low_call *c, int which)
{
    kin_irn g = wide(c, 0, "grad_output"), x = wide(c, 1, which == SIGMOID_BACKWARD || which == TANH_BACKWARD ? "output" : "self"), y = 0;
    if (g == 0 || x == 0)
        return false;
    switch (which) {
    case THRESHOLD_BACKWARD:
        y = kin_ir_where(c->ir, low_bi(c, KIN_IR_LE, x, wide(c, 2, "threshold")), low_like(c, g, 0), g);
        break;
    case SIGMOID_BACKWARD: y = mul(c, mul(c, g, rest(c, x)), x); break;
    case TANH_BACKWARD: y = mul(c, g, rest(c, mul(c, x, x))); break;
    case SILU_BACKWARD: {
        kin_irn s = sigmoid(c, x);
        y = mul(c, mul(c, g, s), low_bin(c, KIN_IR_ADD, mul(c, x, rest(c, s)), 1));
        break;
    }
    case GELU_BACKWARD: y = gelu(c, g, x); break;
    case MISH_BACKWARD: y = mish(c, g, x); break;
    case SOFTPLUS_BACKWARD: y = softplus(c, g, x); break;
    case LEAKY_BACKWARD:
        y = kin_ir_where(c->ir, low_compare(c, KIN_IR_GT, x, 0), g, low_bin(c, KIN_IR_MUL, g, low_float_or(c, 2, "negative_slope", 0.01)));
        break;
    case HARDTANH_BACKWARD: y = between(c, g, x, low_float_or(c, 2, "min_val", -1), low_float_or(c, 3, "max_val", 1)); break;
    case HARDSIGMOID_BACKWARD: y = between(c, low_bin(c, KIN_IR_DIV, g, 6), x, -3, 3); break;
    case HARDSWISH_BACKWARD: y = hardswish(c, g, x); break;
    case SHRINK_BACKWARD: y = shrink(c, g, x, low_float_or(c, 2, "lambd", 0.5)); break;
    }
    return low_done(c, 0, y);
}

/* (g, alpha, scale, input scale, is it the result that follows?, x or the result) */
bool
rule_elu_backward(low_call *c, int row)
{
    double alpha = low_float_or(c, 1, "alpha", 1), scale = low_float_or(c, 2, "scale", 1), inside = low_float_or(c, 3, "input_scale", 1);
    kin_irn g = wide(c, 0, "grad_output"), x = wide(c, 5, "self_or_result");
    if (g == 0 || x == 0)
        return false;
    kin_irn below = low_int_or(c, 4, "is_result", 0)
        ? mul(c, low_bin(c, KIN_IR_MUL, g, inside), low_bin(c, KIN_IR_ADD, x, alpha * scale))
        : mul(c, low_bin(c, KIN_IR_MUL, g, inside * alpha * scale), low_un(c, KIN_IR_EXP, low_bin(c, KIN_IR_MUL, x, inside)));
    return low_done(c, 0, kin_ir_where(c->ir, low_compare(c, KIN_IR_LE, x, 0), below, low_bin(c, KIN_IR_MUL, g, scale)));
}

/* (g, x, exp(-|x|)) */
bool
rule_log_sigmoid_backward(low_call *c, int row)
{
    kin_irn g = wide(c, 0, "grad_output"), x = wide(c, 1, "self"), e = wide(c, 2, "buffer");
    if (g == 0 || x == 0 || e == 0)
        return false;
    kin_irn part = low_bi(c, KIN_IR_DIV, e, low_bin(c, KIN_IR_ADD, e, 1));
    return low_done(c, 0, mul(c, g, kin_ir_where(c->ir, low_compare(c, KIN_IR_LT, x, 0), rest(c, part), part)));
}

/* (g, x, weight as large as x) -> of x, of the weight */
bool
rule_prelu_backward(low_call *c, int row)
{
    kin_irn g = wide(c, 0, "grad_output"), x = wide(c, 1, "self"), w = wide(c, 2, "weight");
    if (g == 0 || x == 0 || w == 0)
        return false;
    kin_irn above = low_compare(c, KIN_IR_GT, x, 0);
    return low_done(c, 0, kin_ir_where(c->ir, above, g, mul(c, w, g))) &&
           low_done(c, 1, kin_ir_where(c->ir, above, low_like(c, g, 0), mul(c, x, g)));
}

/* Half of x along dim. */
static kin_irn
half_of(low_call *c, kin_irn x, unsigned dim, bool second)
{
    int64_t starts[MAX] = {0}, steps[MAX], sizes[MAX];
    for (unsigned d = 0; d < low_ndim_of(c, x); d++) {
        steps[d] = 1;
        sizes[d] = low_sizes_of(c, x)[d] / (d == dim ? 2 : 1);
    }
    starts[dim] = second ? sizes[dim] : 0;
    return kin_ir_slice(c->ir, x, starts, steps, sizes);
}

bool
rule_glu_backward(low_call *c, int row)
{
    kin_irn g = wide_tensor(c, 0, "grad_output"), x = wide_tensor(c, 1, "self");
    int dim = x == 0 ? -1 : low_dim(low_int_or(c, 2, "dim", -1), low_ndim_of(c, x));
    if (g == 0 || dim < 0 || low_ndim_of(c, x) == 0 || low_ndim_of(c, g) != low_ndim_of(c, x) || low_sizes_of(c, x)[dim] % 2)
        return false;
    kin_irn a = half_of(c, x, (unsigned)dim, false), s = sigmoid(c, half_of(c, x, (unsigned)dim, true)), parts[2];
    s = kin_ir_cast(c->ir, kin_ir_cast(c->ir, s, low_dtype(c, 0)), low_dtype_of(c, x)); /* eager stores it */
    for (unsigned d = 0; d < low_ndim_of(c, a); d++)
        if (low_sizes_of(c, a)[d] != low_sizes_of(c, g)[d])
            return false;
    parts[0] = mul(c, s, g);
    parts[1] = mul(c, mul(c, mul(c, rest(c, s), s), g), a);
    return low_done(c, 0, kin_ir_cat(c->ir, parts, 2, (unsigned)dim));
}

/* -- losses ------------------------------------------------------------------------------------------------------------ */

/* (g, x, target, reduction [, beta or delta]); a mean divides by the number of elements. */
bool
rule_loss_backward(low_call *c, int which)
{
    kin_irn g = wide(c, 0, "grad_output"), x = wide(c, 1, "self"), target = wide(c, 2, "target");
    double beta = which == MSE_BACKWARD ? 1 : low_float_or(c, 4, which == HUBER_BACKWARD ? "delta" : "beta", 1);
    if (g == 0 || x == 0 || target == 0 || beta <= 0 || kin_ir_numel(c->ir, x) == 0)
        return false;
    double norm = low_int_or(c, 3, "reduction", 1) == 1 ? 1 / (double)kin_ir_numel(c->ir, x) : 1;
    kin_irn d = sub(c, x, target);
    if (which == MSE_BACKWARD)
        return low_done(c, 0, mul(c, low_bin(c, KIN_IR_MUL, d, 2 * norm), g));
    kin_irn all = low_bin(c, KIN_IR_MUL, g, which == HUBER_BACKWARD ? norm * beta : norm);
    kin_irn near = mul(c, low_bin(c, KIN_IR_MUL, d, norm), g);
    if (which != HUBER_BACKWARD)
        near = low_bin(c, KIN_IR_DIV, near, beta);
    kin_irn above = kin_ir_where(c->ir, low_compare(c, KIN_IR_GE, d, beta), all, near);
    return low_done(c, 0, kin_ir_where(c->ir, low_compare(c, KIN_IR_LE, d, -beta), low_un(c, KIN_IR_NEG, all), above));
}

/* (g, x, target, weight, reduction) of the binary cross entropy */
bool
rule_bce_backward(low_call *c, int row)
{
    kin_irn g = wide(c, 0, "grad_output"), x = wide(c, 1, "self"), target = wide(c, 2, "target"), w = wide(c, 3, "weight");
    if (g == 0 || x == 0 || target == 0 || low_wide(low_dtype(c, 0)) != low_dtype(c, 0) || (low_arg(c, 3, "weight") != NULL && w == 0))
        return false;
    kin_irn below = low_bin(c, KIN_IR_MAX, mul(c, rest(c, x), x), 1e-12);
    kin_irn y = low_bi(c, KIN_IR_DIV, mul(c, g, sub(c, x, target)), below);
    if (w != 0)
        y = mul(c, y, w);
    if (low_int_or(c, 4, "reduction", 1) == 1)
        y = low_bin(c, KIN_IR_DIV, y, (double)kin_ir_numel(c->ir, x));
    return low_done(c, 0, y);
}

/* (g, x [N, C], target, weight, reduction, ignored, total weight): -g at each row's target. */
bool
rule_nll_loss_backward(low_call *c, int row)
{
    kin_irn g = wide_tensor(c, 0, "grad_output"), target = low_read(c, low_arg(c, 2, "target")), total = wide_tensor(c, 6, "total_weight");
    const int64_t *sizes = low_sizes(c, 0);
    kin_dtype dtype = low_dtype(c, 0);
    int64_t reduction = low_int_or(c, 4, "reduction", 1);
    if (g == 0 || target == 0 || total == 0 || low_ndim(c, 0) != 2 || low_ndim_of(c, target) != 1 || low_arg(c, 3, "weight") != NULL
        || (dtype != KIN_F32 && dtype != KIN_F64) || low_dtype_of(c, target) != KIN_I64 || low_sizes_of(c, target)[0] != sizes[0]
        || low_ndim_of(c, g) != (reduction == 0 ? 1u : 0u))
        return false;
    int64_t column[2] = {sizes[0], 1};
    target = kin_ir_expand(c->ir, kin_ir_reshape(c->ir, target, 2, column), 2, sizes);
    kin_irn hit = low_bi(c, KIN_IR_EQ, target, kin_ir_iota(c->ir, KIN_I64, 1, 2, sizes));
    kin_irn kept = low_bi(c, KIN_IR_NE, target, low_integer(c, KIN_I64, low_int_or(c, 5, "ignore_index", -100), 2, sizes));
    g = low_un(c, KIN_IR_NEG, reduction == 0 ? kin_ir_reshape(c->ir, g, 2, column) : kin_ir_reshape(c->ir, g, 0, NULL));
    if (reduction == 1)
        g = low_bi(c, KIN_IR_DIV, g, kin_ir_reshape(c->ir, total, 0, NULL));
    g = kin_ir_expand(c->ir, g, 2, sizes);
    return low_done(c, 0, kin_ir_where(c->ir, low_bi(c, KIN_IR_AND, hit, kept), g, low_like(c, g, 0)));
}

/* -- softmax ------------------------------------------------------------------------------------------------------------ */

/* (g, what was given, dim, dtype): y * (g - sum(g * y)), of logarithms g - exp(y) * sum(g) */
bool
rule_softmax_backward(low_call *c, int kind)
{
    kin_irn g = wide_tensor(c, 0, "grad_output"), y = wide_tensor(c, 1, "output");
    int dim = y == 0 ? -1 : low_dim(low_int_or(c, 2, "dim", 0), low_ndim_of(c, y));
    if (g == 0 || dim < 0 || low_dtype_of(c, g) != low_dtype_of(c, y) || low_ndim_of(c, y) == 0)
        return false;
    kin_irn weighed = kind == LOG_SOFTMAX ? g : mul(c, g, y);
    kin_irn sum = low_expand_like(c, kin_ir_reduce(c->ir, KIN_IR_REDUCE_SUM, weighed, 1, (int64_t[]){dim}), y);
    if (kind == LOG_SOFTMAX)
        return low_done(c, 0, sub(c, g, mul(c, low_un(c, KIN_IR_EXP, y), sum)));
    return low_done(c, 0, mul(c, sub(c, g, sum), y));
}

/* -- normalisation -------------------------------------------------------------------------------------------------------- */

typedef struct {
    kin_irn g, normal, rstd, weight; /* all as large as the input; weight 0: none */
    int64_t over[MAX];               /* dims that were normalised over */
    unsigned nover;
    int64_t across[MAX];             /* dims that weight and bias are the same along */
    unsigned nacross;
    bool mask[3];                    /* which gradients are asked for */
} norm;

/* The mask of three, from which the results' numbers follow: those not asked for are None, and no results. */
static bool
read_mask(const low_call *c, unsigned at, bool *mask)
{
    const kin_aten_arg *list = low_arg(c, at, "output_mask");
    if (list == NULL || list->kind != KIN_ATEN_LIST || list->list.count != 3)
        return false;
    unsigned n = 0;
    for (unsigned i = 0; i < 3; i++)
        n += mask[i] = low_item(c, list, i)->kind == KIN_ATEN_BOOL && low_item(c, list, i)->i != 0;
    return n == c->call->nresults;
}

static kin_irn
sum_over(low_call *c, kin_irn a, const int64_t *dims, unsigned n)
{
    return n == 0 ? a : kin_ir_reduce(c->ir, KIN_IR_REDUCE_SUM, a, n, dims);
}

/* rstd * (a - mean(a) - normal * mean(a * normal)) with a = g * weight; of the weight sum(g * normal), of the bias sum(g). */
static bool
done_norm(low_call *c, const norm *n)
{
    unsigned k = 0;
    if (n->mask[0]) {
        double elements = 1;
        for (unsigned i = 0; i < n->nover; i++)
            elements *= (double)low_sizes_of(c, n->g)[n->over[i]];
        kin_irn a = n->weight != 0 ? mul(c, n->g, n->weight) : n->g;
        kin_irn mean = low_bin(c, KIN_IR_DIV, sum_over(c, a, n->over, n->nover), elements);
        kin_irn turn = low_bin(c, KIN_IR_DIV, sum_over(c, mul(c, a, n->normal), n->over, n->nover), elements);
        kin_irn away = sub(c, sub(c, a, low_expand_like(c, mean, a)), mul(c, n->normal, low_expand_like(c, turn, a)));
        if (!low_done(c, k, low_reshape_like(c, mul(c, away, n->rstd), k)))
            return false;
        k++;
    }
    if (n->mask[1] && !low_done(c, k, low_reshape_like(c, sum_over(c, mul(c, n->g, n->normal), n->across, n->nacross), k)))
        return false;
    k += n->mask[1];
    return !n->mask[2] || low_done(c, k, low_reshape_like(c, sum_over(c, n->g, n->across, n->nacross), k));
}

/* A value with the sizes [before, of it, after] everywhere in x. */
static kin_irn
placed(low_call *c, kin_irn a, kin_irn x, unsigned ndim, const int64_t *sizes)
{
    int64_t count = 1;
    for (unsigned d = 0; d < ndim; d++)
        count *= sizes[d];
    if (a == 0 || kin_ir_numel(c->ir, a) != count)
        return 0;
    a = kin_ir_cast(c->ir, kin_ir_reshape(c->ir, a, ndim, sizes), low_dtype_of(c, x));
    return low_expand_like(c, a, x);
}

/* (g, x, normalised shape, mean, rstd, weight, bias, mask) */
bool
rule_layer_norm_backward(low_call *c, int row)
{
    norm n = {.g = wide_tensor(c, 0, "grad_out")};
    kin_irn x = wide_tensor(c, 1, "input");
    int64_t shape[MAX], rows[MAX], columns[MAX];
    int count = low_ints(c, low_arg(c, 2, "normalized_shape"), shape);
    if (n.g == 0 || x == 0 || count < 1 || count > (int)low_ndim_of(c, x) || low_dtype_of(c, n.g) != low_dtype_of(c, x) || kin_ir_numel(c->ir, x) == 0
        || !read_mask(c, 7, n.mask))
        return false;
    unsigned ndim = low_ndim_of(c, x), axis = ndim - (unsigned)count;
    for (unsigned d = 0; d < ndim; d++) {
        int64_t size = low_sizes_of(c, x)[d];
        rows[d] = d < axis ? size : 1;
        columns[d] = d < axis ? 1 : size;
        if (d < axis)
            n.across[n.nacross++] = d;
        else
            n.over[n.nover++] = d;
    }
    kin_irn mean = placed(c, wide_tensor(c, 3, "mean"), x, ndim, rows);
    n.rstd = placed(c, wide_tensor(c, 4, "rstd"), x, ndim, rows);
    n.weight = placed(c, wide_tensor(c, 5, "weight"), x, ndim, columns);
    if (mean == 0 || n.rstd == 0 || (low_arg(c, 5, "weight") != NULL && n.weight == 0))
        return false;
    n.normal = mul(c, sub(c, x, mean), n.rstd);
    return done_norm(c, &n);
}

/* A number of each channel, [N, C, 1], as large as x, [N, C, ...]; in memory before, so that it is not computed for each place. */
static kin_irn
along_places(low_call *c, kin_irn a, kin_irn x)
{
    int64_t sizes[MAX] = {low_sizes_of(c, x)[0], low_sizes_of(c, x)[1]};
    for (unsigned d = 2; d < low_ndim_of(c, x); d++)
        sizes[d] = 1;
    return low_expand_like(c, kin_ir_reshape(c->ir, kin_ir_unary(c->ir, KIN_IR_CAST, a), low_ndim_of(c, x), sizes), x);
}

/* Next to convolutions, which want the channels last: sums over places for each channel, then over the channels of a group, and the input's gradient is a factor of
 * the incoming one, a factor of the input and a summand for each channel. mean and n->rstd are [N, groups, 1, 1]. */
static bool
group_norm_back_by_channels(low_call *c, const norm *n, kin_irn x, kin_irn mean, int64_t groups)
{
    int64_t batch = low_sizes_of(c, x)[0], channels = low_sizes_of(c, x)[1], flat[3] = {batch, channels, kin_ir_numel(c->ir, x) / (batch * channels)}, places[] = {2};
    double elements = (double)(channels / groups * flat[2]);
    kin_irn g = kin_ir_reshape(c->ir, n->g, 3, flat), all = kin_ir_reshape(c->ir, x, 3, flat), middle_of = low_by_channel(c, mean, channels);
    kin_irn turn = sum_over(c, mul(c, g, sub(c, all, along_places(c, middle_of, all))), places, 1), sum = sum_over(c, g, places, 1);
    kin_irn rstd = low_by_channel(c, n->rstd, channels);
    unsigned k = 0;
    if (n->mask[0]) {
        kin_irn weight = n->weight == 0 ? 0 : low_as_channels(c, n->weight, rstd);
        if (n->weight != 0 && weight == 0)
            return false;
        kin_irn of_group = low_bin(c, KIN_IR_DIV, low_sum_channels(c, weight == 0 ? turn : mul(c, turn, weight), groups), elements);
        kin_irn middle = low_bin(c, KIN_IR_DIV, low_sum_channels(c, weight == 0 ? sum : mul(c, sum, weight), groups), elements);
        kin_irn factor = mul(c, mul(c, n->rstd, n->rstd), mul(c, n->rstd, of_group)), summand = mul(c, n->rstd, middle);
        kin_irn made = mul(c, n->g, along_places(c, weight == 0 ? rstd : mul(c, rstd, weight), x));
        made = sub(c, made, mul(c, sub(c, x, along_places(c, middle_of, x)), along_places(c, low_by_channel(c, factor, channels), x)));
        made = sub(c, made, along_places(c, low_by_channel(c, summand, channels), x));
        if (!low_done(c, k, low_reshape_like(c, made, k)))
            return false;
        k++;
    }
    if (n->mask[1] && !low_done(c, k, low_reshape_like(c, sum_over(c, mul(c, turn, rstd), (int64_t[]){0}, 1), k)))
        return false;
    k += n->mask[1];
    return !n->mask[2] || low_done(c, k, low_reshape_like(c, sum_over(c, sum, (int64_t[]){0}, 1), k));
}

/* (g, x, mean, rstd, weight, N, C, places, groups, mask); dims are taken apart into [N, groups, channels of a group, places]. */
bool
rule_group_norm_backward(low_call *c, int row)
{
    norm n = {.g = wide_tensor(c, 0, "grad_out"), .over = {2, 3}, .nover = 2, .across = {0, 3}, .nacross = 2};
    kin_irn x = wide_tensor(c, 1, "input"), mean = wide_tensor(c, 2, "mean"), rstd = wide_tensor(c, 3, "rstd"), weight = wide_tensor(c, 4, "weight");
    int64_t batch = low_int_or(c, 5, "N", 0), channels = low_int_or(c, 6, "C", 0), places = low_int_or(c, 7, "HxW", 0), groups = low_int_or(c, 8, "group", 0);
    if (n.g == 0 || x == 0 || mean == 0 || rstd == 0 || batch < 1 || channels < 1 || places < 1 || groups < 1 || channels % groups
        || kin_ir_numel(c->ir, x) != batch * channels * places || kin_ir_numel(c->ir, n.g) != batch * channels * places
        || low_dtype_of(c, n.g) != low_dtype_of(c, x) || !read_mask(c, 9, n.mask))
        return false;
    if (low_ndim_of(c, x) >= 3 && c->l->options->channels_last) {
        int64_t by_group[4] = {batch, groups, 1, 1};
        if (kin_ir_numel(c->ir, mean) != batch * groups || kin_ir_numel(c->ir, rstd) != batch * groups || (low_arg(c, 4, "weight") != NULL && weight == 0))
            return false;
        n.rstd = kin_ir_reshape(c->ir, kin_ir_cast(c->ir, rstd, low_dtype_of(c, x)), 4, by_group);
        n.weight = weight;
        return group_norm_back_by_channels(c, &n, x, kin_ir_reshape(c->ir, kin_ir_cast(c->ir, mean, low_dtype_of(c, x)), 4, by_group),
                                           groups);
    }
    int64_t sizes[4] = {batch, groups, channels / groups, places};
    x = kin_ir_reshape(c->ir, x, 4, sizes);
    n.g = kin_ir_reshape(c->ir, n.g, 4, sizes);
    mean = placed(c, mean, x, 4, (int64_t[]){batch, groups, 1, 1});
    n.rstd = placed(c, rstd, x, 4, (int64_t[]){batch, groups, 1, 1});
    n.weight = weight == 0 ? 0 : placed(c, weight, x, 4, (int64_t[]){1, groups, channels / groups, 1});
    if (mean == 0 || n.rstd == 0 || (low_arg(c, 4, "weight") != NULL && n.weight == 0))
        return false;
    n.normal = mul(c, sub(c, x, mean), n.rstd);
    return done_norm(c, &n);
}

/* (g, x, weight, running mean, running variance, saved mean, saved 1/deviation, training, eps, mask) */
bool
rule_batch_norm_backward(low_call *c, int row)
{
    norm n = {.g = wide_tensor(c, 0, "grad_out")};
    kin_irn x = wide_tensor(c, 1, "input");
    bool training = low_int_or(c, 7, "train", 1) != 0;
    if (n.g == 0 || x == 0 || low_ndim_of(c, x) < 2 || low_dtype_of(c, n.g) != low_dtype_of(c, x) || kin_ir_numel(c->ir, x) == 0
        || !read_mask(c, 9, n.mask))
        return false;
    int64_t sizes[MAX];
    for (unsigned d = 0; d < low_ndim_of(c, x); d++) {
        sizes[d] = d == 1 ? low_sizes_of(c, x)[d] : 1;
        if (d != 1)
            n.over[n.nover++] = n.across[n.nacross++] = d;
    }
    kin_irn mean = wide_tensor(c, training ? 5 : 3, training ? "save_mean" : "running_mean"), rstd = wide_tensor(c, training ? 6 : 4, training ? "save_invstd" : "running_var");
    if (!training && rstd != 0)
        rstd = low_un(c, KIN_IR_RSQRT, low_bin(c, KIN_IR_ADD, rstd, low_float_or(c, 8, "eps", 1e-5)));
    mean = placed(c, mean, x, low_ndim_of(c, x), sizes);
    n.rstd = placed(c, rstd, x, low_ndim_of(c, x), sizes);
    n.weight = placed(c, wide_tensor(c, 2, "weight"), x, low_ndim_of(c, x), sizes);
    if (mean == 0 || n.rstd == 0 || (low_arg(c, 2, "weight") != NULL && n.weight == 0))
        return false;
    n.normal = mul(c, sub(c, x, mean), n.rstd);
    if (training || !n.mask[0])
        return done_norm(c, &n);
    /* the statistics are constants */
    kin_irn y = mul(c, n.weight != 0 ? mul(c, n.g, n.weight) : n.g, n.rstd);
    unsigned k = 1;
    bool ok = low_done(c, 0, y);
    if (n.mask[1])
        ok = ok && low_done(c, k++, low_reshape_like(c, sum_over(c, mul(c, n.g, n.normal), n.across, n.nacross), 1));
    return ok && (!n.mask[2] || low_done(c, k, low_reshape_like(c, sum_over(c, n.g, n.across, n.nacross), k)));
}

/* (g of the weight, v, g, norms, dim) -> of v: (g / norm) * (gw - v * sum(gw * v) / norm^2), of g: sum(gw * v) / norm */
bool
rule_weight_norm_backward(low_call *c, int row)
{
    kin_irn gw = wide_tensor(c, 0, "grad_w"), v = wide_tensor(c, 1, "saved_v"), g = wide_tensor(c, 2, "saved_g"), norms = wide_tensor(c, 3, "saved_norms");
    int64_t dims[MAX];
    unsigned count = 0;
    int dim = v == 0 ? -1 : low_dim(low_int_or(c, 4, "dim", 0), low_ndim_of(c, v));
    if (gw == 0 || g == 0 || norms == 0 || dim < 0 || low_dtype_of(c, v) != low_dtype(c, 0) || low_dtype_of(c, norms) != low_dtype(c, 0)
        || low_ndim_of(c, g) != low_ndim_of(c, v) || low_ndim_of(c, norms) != low_ndim_of(c, v))
        return false;
    for (unsigned d = 0; d < low_ndim_of(c, v); d++) {
        if ((int)d != dim)
            dims[count++] = d;
        int64_t size = (int)d == dim ? low_sizes_of(c, v)[d] : 1;
        if (low_sizes_of(c, g)[d] != size || low_sizes_of(c, norms)[d] != size)
            return false;
    }
    kin_irn dot = sum_over(c, mul(c, gw, v), dims, count);
    kin_irn turn = low_bi(c, KIN_IR_DIV, dot, mul(c, norms, norms)), factor = low_bi(c, KIN_IR_DIV, g, norms);
    kin_irn away = sub(c, gw, mul(c, v, low_expand_like(c, turn, v)));
    return low_done(c, 0, mul(c, low_expand_like(c, factor, v), away)) && low_done(c, 1, low_bi(c, KIN_IR_DIV, dot, norms));
}

/* -- parts of tensors ----------------------------------------------------------------------------------------------------- */

/* (g, sizes, dim, index) and (g, sizes, dim, start, end, step): the gradient where the part lay, else zero. */
bool
rule_part_backward(low_call *c, int is_select)
{
    kin_irn g = low_read(c, low_arg(c, 0, "grad_output"));
    unsigned ndim = low_ndim(c, 0);
    int dim = low_dim(low_int_or(c, 2, "dim", 0), ndim);
    int64_t at[MAX] = {0}, sizes[MAX];
    if (g == 0 || ndim == 0 || dim < 0 || (!is_select && low_int_or(c, 5, "step", 1) != 1) || low_ndim_of(c, g) + (is_select ? 1 : 0) != ndim)
        return false;
    int64_t size = low_sizes(c, 0)[dim], start = low_int_or(c, 3, is_select ? "index" : "start", 0);
    memcpy(sizes, low_sizes(c, 0), ndim * sizeof *sizes);
    start = start < 0 ? start + size : start;
    sizes[dim] = is_select ? 1 : low_sizes_of(c, g)[dim];
    at[dim] = start < 0 ? 0 : start > size ? size : start;
    if (at[dim] + sizes[dim] > size || (is_select && start != at[dim]))
        return false;
    int64_t count = 1;
    for (unsigned d = 0; d < ndim; d++)
        count *= sizes[d];
    if (count != kin_ir_numel(c->ir, g))
        return false;
    g = kin_ir_reshape(c->ir, g, ndim, sizes);
    return low_done(c, 0, kin_ir_pad(c->ir, g, low_number(c, low_dtype_of(c, g), 0, 0, NULL), at, low_sizes(c, 0)));
}
