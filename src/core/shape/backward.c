/* Shape rules of operators that autograd calls. A gradient has the sizes of the tensor that it is the gradient of, which is an argument; the
 * layouts are those of eager's CPU kernels.
 */
#include "core/shape/shape_priv.h"

static bool
read_float(const shape_call *c, unsigned at, shape_tensor *t)
{
    return shape_read(c, at, "", t) && kin_dtype_is_float(t->dtype);
}

static bool
same_sizes(const shape_tensor *a, const shape_tensor *b)
{
    return a->ndim == b->ndim && memcmp(a->sizes, b->sizes, a->ndim * sizeof *a->sizes) == 0;
}

/* (g, alpha, scale, input scale, is it the result?, x or result) */
bool
shape_elu_backward(shape_call *c, int row)
{
    shape_tensor t[2];
    return read_float(c, 0, &t[0]) && read_float(c, 5, &t[1]) && t[0].dtype == t[1].dtype && shape_iterate(c, t, 2, t[0].dtype);
}

/* (g, x of twice its size along dim, dim) */
bool
shape_glu_backward(shape_call *c, int row)
{
    shape_tensor g, t;
    int64_t dim;
    unsigned d;
    if (!read_float(c, 0, &g) || !read_float(c, 1, &t) || g.dtype != t.dtype || t.ndim == 0 || !shape_int(c, 2, "dim", -1, &dim) ||
        !shape_dim(dim, t.ndim, &d) || t.sizes[d] % 2 != 0)
        return false;
    shape_tensor half = t;
    half.sizes[d] /= 2;
    return same_sizes(&half, &g) && shape_add_contiguous(c, t.dtype, t.ndim, t.sizes);
}

/* (g, x, weight that broadcasts to x's sizes): of x and of such a weight, by one iteration over all three */
bool
shape_prelu_backward(shape_call *c, int row)
{
    shape_tensor t[3], sized = {0}; /* x, weight, g */
    for (unsigned i = 0; i < 3; i++)
        if (!read_float(c, (i + 1) % 3, &t[i]) || t[i].dtype != t[0].dtype)
            return false;
    return shape_broadcast(t, 2, &sized.ndim, sized.sizes) && same_sizes(&sized, &t[0]) && same_sizes(&t[2], &t[0]) &&
           shape_iterate(c, t, 3, t[0].dtype) && shape_iterate(c, t, 3, t[0].dtype);
}

/* (g, x, exp(-|x|)) */
bool
shape_log_sigmoid_backward(shape_call *c, int row)
{
    shape_tensor t[3];
    for (unsigned i = 0; i < 3; i++)
        if (!read_float(c, i, &t[i]) || t[i].dtype != t[0].dtype || !same_sizes(&t[i], &t[0]))
            return false;
    return shape_add_like(c, &t[0], t[0].dtype, SHAPE_PRESERVE);
}

/* (g of x's sizes or of none, x, target, [weight,] reduction) */
bool
shape_loss_backward(shape_call *c, int reduction_at)
{
    shape_tensor g, t, target, weight;
    int64_t reduction;
    if (!read_float(c, 0, &g) || !read_float(c, 1, &t) || !read_float(c, 2, &target) || g.dtype != t.dtype || target.dtype != t.dtype ||
        !same_sizes(&t, &target) || !shape_int(c, (unsigned)reduction_at, "reduction", 1, &reduction) || (g.ndim != 0 && !same_sizes(&g, &t)) ||
        (reduction == 0 && !same_sizes(&g, &t)) || !shape_is_contiguous(&t))
        return false;
    if (reduction_at == 4 && shape_arg(c, 3, "weight") != NULL && (!read_float(c, 3, &weight) || weight.dtype != t.dtype || !same_sizes(&weight, &t)))
        return false;
    return shape_add_like(c, &t, t.dtype, reduction_at == 4 ? SHAPE_PRESERVE : SHAPE_CONTIGUOUS);
}

/* (g, x, target, weight, reduction, ignored, total weight) */
bool
shape_nll_loss_backward(shape_call *c, int row)
{
    shape_tensor g, t, target, weight, total;
    int64_t reduction;
    if (!read_float(c, 0, &g) || !read_float(c, 1, &t) || !shape_read(c, 2, "", &target) || !read_float(c, 6, &total) ||
        (t.dtype != KIN_F32 && t.dtype != KIN_F64) || g.dtype != t.dtype || total.dtype != t.dtype || t.ndim != 2 || target.ndim != 1 ||
        target.dtype != KIN_I64 || target.sizes[0] != t.sizes[0] || !shape_int(c, 4, "reduction", 1, &reduction) || total.ndim != 0 ||
        shape_numel(2, t.sizes) == 0 || reduction < 0 || reduction > 2 || !shape_is_contiguous(&t))
        return false;
    if (reduction == 0 ? g.ndim != 1 || g.sizes[0] != t.sizes[0] : g.ndim != 0)
        return false;
    if (shape_arg(c, 3, "weight") != NULL &&
        (!read_float(c, 3, &weight) || weight.ndim != 1 || weight.dtype != t.dtype || weight.sizes[0] != t.sizes[1]))
        return false;
    return shape_add_contiguous(c, t.dtype, 2, t.sizes);
}

/* (g of each row or of none, x [rows, classes], target of each row, p, margin, weight, reduction) */
bool
shape_multi_margin_loss_backward(shape_call *c, int row)
{
    shape_tensor g, t, target, weight;
    int64_t reduction, p;
    if (!read_float(c, 0, &g) || !read_float(c, 1, &t) || !shape_read(c, 2, "", &target) || (t.dtype != KIN_F32 && t.dtype != KIN_F64) || g.dtype != t.dtype ||
        t.ndim != 2 || shape_numel(2, t.sizes) == 0 || target.ndim != 1 || target.dtype != KIN_I64 || target.sizes[0] != t.sizes[0] || !shape_int(c, 3, "", 0, &p) ||
        (p != 1 && p != 2) || !shape_int(c, 6, "reduction", 1, &reduction) || reduction < 0 || reduction > 2 || g.ndim != (reduction == 0) ||
        (reduction == 0 && g.sizes[0] != t.sizes[0]))
        return false;
    if (shape_arg(c, 5, "weight") != NULL &&
        (!read_float(c, 5, &weight) || weight.ndim != 1 || weight.dtype != t.dtype || weight.sizes[0] != t.sizes[1]))
        return false;
    return shape_add_contiguous(c, t.dtype, 2, t.sizes);
}

/* (g of each row or of none, x [rows, classes], targets, reduction, which of x are targets) */
bool
shape_multilabel_margin_loss_backward(shape_call *c, int row)
{
    shape_tensor g, t, targets, marks;
    int64_t reduction;
    if (!read_float(c, 0, &g) || !read_float(c, 1, &t) || !shape_read(c, 2, "", &targets) || !read_float(c, 4, &marks) ||
        (t.dtype != KIN_F32 && t.dtype != KIN_F64) || g.dtype != t.dtype || marks.dtype != t.dtype || targets.dtype != KIN_I64 || t.ndim != 2 ||
        shape_numel(2, t.sizes) == 0 || !same_sizes(&t, &targets) || !same_sizes(&t, &marks) || !shape_int(c, 3, "", 1, &reduction) || reduction < 0 || reduction > 2 ||
        g.ndim != (reduction == 0) || (reduction == 0 && g.sizes[0] != t.sizes[0]))
        return false;
    return shape_add_contiguous(c, t.dtype, 2, t.sizes);
}

/* (concentrations, what was drawn) */
bool
shape_gamma_grad(shape_call *c, int row)
{
    shape_tensor t, drawn;
    return read_float(c, 0, &t) && read_float(c, 1, &drawn) && (t.dtype == KIN_F32 || t.dtype == KIN_F64) && drawn.dtype == t.dtype &&
           same_sizes(&t, &drawn) && shape_add_contiguous(c, t.dtype, t.ndim, t.sizes);
}

/* (g, result, dim, dtype of what the softmax was given) */
bool
shape_softmax_backward(shape_call *c, int row)
{
    shape_tensor g, y;
    int64_t dim;
    unsigned d;
    kin_dtype dtype;
    return read_float(c, 0, &g) && read_float(c, 1, &y) && g.dtype == y.dtype && same_sizes(&g, &y) && shape_int(c, 2, "dim", INT64_MAX, &dim) &&
           shape_dim(dim, g.ndim, &d) && shape_dtype(c, 3, "input_dtype", KIN_BOOL, &dtype) && dtype == g.dtype &&
           shape_add_contiguous(c, dtype, g.ndim, g.sizes);
}

/* -- normalisation ---------------------------------------------------------------------------------------------------- */

/* A result, or None where the mask does not ask for it. */
static bool
add_masked(shape_call *c, const bool *mask, unsigned which, const shape_tensor *like)
{
    return mask[which] ? shape_add_contiguous(c, like->dtype, like->ndim, like->sizes) : shape_add_none(c);
}

static bool
read_mask(const shape_call *c, unsigned at, bool *mask)
{
    const kin_aten_arg *list = shape_arg(c, at, "output_mask");
    if (list == NULL || list->kind != KIN_ATEN_LIST || list->list.count != 3)
        return false;
    bool some = false;
    for (unsigned i = 0; i < 3; i++) {
        const kin_aten_arg *item = &c->g->args.at[list->list.child + i];
        if (item->kind != KIN_ATEN_BOOL)
            return false;
        some |= mask[i] = item->i != 0;
    }
    return some;
}

/* A weight of these sizes, or none; its gradient has its layout. */
static bool
read_weight(const shape_call *c, unsigned at, const shape_tensor *t, unsigned ndim, const int64_t *sizes, shape_tensor *out)
{
    *out = (shape_tensor){.dtype = t->dtype, .ndim = ndim};
    memcpy(out->sizes, sizes, ndim * sizeof *sizes);
    if (shape_arg(c, at, "") == NULL)
        return true;
    shape_tensor given;
    return read_float(c, at, &given) && given.dtype == t->dtype && same_sizes(&given, out) && shape_is_contiguous(&given);
}

static bool
is_row_major(const shape_call *c, unsigned at, const shape_tensor *like)
{
    shape_tensor t;
    return read_float(c, at, &t) && t.dtype == like->dtype && shape_is_contiguous(&t);
}

/* Row-major to the letter: what strides dims of size 1 have counts for some kernels. */
static bool
is_plain(const shape_tensor *t)
{
    int64_t strides[KIN_IR_MAX_DIMS];
    shape_contiguous_strides(t->ndim, t->sizes, strides);
    return memcmp(strides, t->strides, t->ndim * sizeof *strides) == 0;
}

static bool
has_numel(const shape_call *c, unsigned at, kin_dtype dtype, int64_t n)
{
    shape_tensor t;
    return read_float(c, at, &t) && t.dtype == dtype && shape_numel(t.ndim, t.sizes) == n;
}

/* (g, x, normalised shape, mean, rstd, weight, bias, mask) */
bool
shape_layer_norm_backward(shape_call *c, int row)
{
    shape_tensor g, t, weight, bias;
    int64_t normal[KIN_IR_MAX_DIMS];
    bool mask[3];
    int count = shape_ints(c, 2, "normalized_shape", normal);
    if (!read_float(c, 0, &g) || !read_float(c, 1, &t) || g.dtype != t.dtype || !same_sizes(&g, &t) || count < 1 || count > (int)t.ndim ||
        shape_numel(t.ndim, t.sizes) == 0 || !read_mask(c, 7, mask) ||
        memcmp(normal, t.sizes + t.ndim - (unsigned)count, (size_t)count * sizeof *normal) != 0)
        return false;
    int64_t rows = shape_numel(t.ndim - (unsigned)count, t.sizes);
    if (!has_numel(c, 3, t.dtype, rows) || !has_numel(c, 4, t.dtype, rows) || !read_weight(c, 5, &t, (unsigned)count, normal, &weight) ||
        !read_weight(c, 6, &t, (unsigned)count, normal, &bias) || (mask[1] && shape_arg(c, 5, "") == NULL) || (mask[2] && shape_arg(c, 6, "") == NULL))
        return false;
    return add_masked(c, mask, 0, &t) && add_masked(c, mask, 1, &weight) && add_masked(c, mask, 2, &bias);
}

/* (g, x, mean, rstd, weight, N, C, places, groups, mask) */
bool
shape_group_norm_backward(shape_call *c, int row)
{
    shape_tensor g, t, weight;
    int64_t n[4];
    bool mask[3];
    for (unsigned i = 0; i < 4; i++)
        if (!shape_int(c, 5 + i, "", 0, &n[i]) || n[i] < 1)
            return false;
    if (!read_float(c, 0, &g) || !read_float(c, 1, &t) || g.dtype != t.dtype || !same_sizes(&g, &t) || t.ndim < 2 || t.sizes[0] != n[0] ||
        t.sizes[1] != n[1] || shape_numel(t.ndim, t.sizes) != n[0] * n[1] * n[2] || n[1] % n[3] != 0 || !read_mask(c, 9, mask) ||
        !is_row_major(c, 0, &t) || !is_row_major(c, 1, &t) || !has_numel(c, 2, t.dtype, n[0] * n[3]) || !has_numel(c, 3, t.dtype, n[0] * n[3]) ||
        !read_weight(c, 4, &t, 1, &n[1], &weight) || ((mask[1] || mask[2]) && shape_arg(c, 4, "") == NULL))
        return false;
    return add_masked(c, mask, 0, &t) && add_masked(c, mask, 1, &weight) && add_masked(c, mask, 2, &weight);
}

/* (g, x, weight, running mean, running variance, saved mean, saved 1/deviation, training, eps, mask) */
bool
shape_batch_norm_backward(shape_call *c, int row)
{
    shape_tensor g, t, weight;
    bool mask[3], training;
    if (!read_float(c, 0, &g) || !read_float(c, 1, &t) || g.dtype != t.dtype || !same_sizes(&g, &t) || t.ndim < 2 ||
        (t.dtype != KIN_F32 && t.dtype != KIN_F64) || shape_numel(t.ndim, t.sizes) == 0 || !shape_bool(c, 7, "train", true, &training) ||
        !read_mask(c, 9, mask) || !is_plain(&g) || !is_plain(&t) || !read_weight(c, 2, &t, 1, &t.sizes[1], &weight))
        return false;
    for (unsigned i = 3; i < 7; i++)
        if ((i < 5) != training ? !has_numel(c, i, t.dtype, t.sizes[1]) : shape_arg(c, i, "") != NULL && !read_float(c, i, &g))
            return false;
    return add_masked(c, mask, 0, &t) && add_masked(c, mask, 1, &weight) && add_masked(c, mask, 2, &weight);
}

/* (g of the weight, v, g, norms, dim) */
bool
shape_weight_norm_backward(shape_call *c, int row)
{
    shape_tensor gw, v, g, norms;
    int64_t dim;
    if (!read_float(c, 0, &gw) || !read_float(c, 1, &v) || !read_float(c, 2, &g) || !read_float(c, 3, &norms) || !shape_int(c, 4, "dim", 0, &dim) ||
        dim != 0 || v.ndim == 0 || !same_sizes(&gw, &v) || !same_sizes(&g, &norms) || g.ndim != v.ndim || gw.dtype != v.dtype || g.dtype != v.dtype ||
        norms.dtype != v.dtype || (v.dtype != KIN_F32 && v.dtype != KIN_F64) || shape_numel(v.ndim, v.sizes) == 0 || !shape_is_contiguous(&gw) ||
        !shape_is_contiguous(&v) || !shape_is_contiguous(&g) || !shape_is_contiguous(&norms) || shape_numel(g.ndim, g.sizes) != v.sizes[0] || g.sizes[0] != v.sizes[0])
        return false;
    return shape_add_contiguous(c, v.dtype, v.ndim, v.sizes) && shape_add_contiguous(c, g.dtype, g.ndim, g.sizes);
}

/* -- parts, indices ----------------------------------------------------------------------------------------------------- */

/* (g, sizes, dim, index) */
bool
shape_select_backward(shape_call *c, int row)
{
    shape_tensor g;
    unsigned ndim, d;
    int64_t sizes[KIN_IR_MAX_DIMS], part[KIN_IR_MAX_DIMS], dim, index;
    if (!shape_read(c, 0, "", &g) || shape_is_complex(g.dtype) || !shape_sizes(c, 1, sizes, &ndim) || ndim == 0 || g.ndim + 1 != ndim ||
        !shape_int(c, 2, "", INT64_MAX, &dim) || !shape_dim(dim, ndim, &d) || !shape_int(c, 3, "", INT64_MAX, &index) || index >= sizes[d] || index < -sizes[d])
        return false;
    for (unsigned k = 0; k < g.ndim; k++)
        part[k] = sizes[k < d ? k : k + 1];
    return memcmp(part, g.sizes, g.ndim * sizeof *part) == 0 && shape_add_contiguous(c, g.dtype, ndim, sizes);
}

/* Elements of start:end:step of a dim of this size, step > 0. */
static int64_t
count_slice(int64_t size, int64_t start, int64_t end, int64_t step)
{
    start = start < 0 ? start + size : start;
    end = end < 0 ? end + size : end;
    start = start < 0 ? 0 : start > size ? size : start;
    end = end < start ? start : end > size ? size : end;
    return (end - start) / step + ((end - start) % step != 0);
}

/* (g, sizes, dim, start, end, step) */
bool
shape_slice_backward(shape_call *c, int row)
{
    shape_tensor g;
    unsigned ndim, d;
    int64_t sizes[KIN_IR_MAX_DIMS], n[4];
    if (!shape_read(c, 0, "", &g) || shape_is_complex(g.dtype) || !shape_sizes(c, 1, sizes, &ndim) || ndim == 0 || g.ndim != ndim)
        return false;
    for (unsigned i = 0; i < 4; i++)
        if (!shape_int(c, 2 + i, "", INT64_MIN, &n[i]))
            return false;
    if (!shape_dim(n[0], ndim, &d) || n[3] < 1)
        return false;
    int64_t size = sizes[d];
    sizes[d] = count_slice(size, n[1], n[2], n[3]);
    bool fits = memcmp(sizes, g.sizes, ndim * sizeof *sizes) == 0;
    sizes[d] = size;
    return fits && shape_add_contiguous(c, g.dtype, ndim, sizes);
}

/* (self, part, dim, start, end, step), (self, part, dim, index): self with a part in place of a slice or of one index; it lies as self does. */
bool
shape_put_part(shape_call *c, int is_select)
{
    shape_tensor t, part, place;
    int64_t dim, start, end = INT64_MAX, step = 1;
    unsigned d;
    if (!shape_read(c, 0, "self", &t) || !shape_read(c, 1, "src", &part) || shape_is_complex(t.dtype) || shape_is_complex(part.dtype) || t.ndim == 0 ||
        t.offset != 0 || !shape_is_dense(&t) || !shape_int(c, 2, "dim", is_select ? INT64_MAX : 0, &dim) || !shape_dim(dim, t.ndim, &d) ||
        !shape_int(c, 3, is_select ? "index" : "start", is_select ? INT64_MAX : 0, &start))
        return false;
    if (!is_select && (!shape_int(c, 4, "end", INT64_MAX, &end) || !shape_int(c, 5, "step", 1, &step) || step < 1))
        return false;
    if (is_select && (start >= t.sizes[d] || start < -t.sizes[d]))
        return false;
    place = t;
    if (is_select) {
        place.ndim--;
        memmove(place.sizes + d, t.sizes + d + 1, (place.ndim - d) * sizeof *t.sizes);
    } else {
        place.sizes[d] = count_slice(t.sizes[d], start, end, step);
    }
    return same_sizes(&place, &part) && shape_add_like(c, &t, t.dtype, SHAPE_PRESERVE);
}

/* (g, indices, number of rows, padding, by frequency) */
bool
shape_embedding_backward(shape_call *c, int row)
{
    shape_tensor g, at;
    int64_t rows;
    if (!read_float(c, 0, &g) || (g.dtype != KIN_F32 && g.dtype != KIN_F64) || !shape_read(c, 1, "", &at) ||
        (at.dtype != KIN_I64 && at.dtype != KIN_I32) || !shape_int(c, 2, "", -1, &rows) || rows < 1 || g.ndim != at.ndim + 1 ||
        memcmp(g.sizes, at.sizes, at.ndim * sizeof *g.sizes) != 0 || shape_numel(g.ndim, g.sizes) == 0)
        return false;
    return shape_add_contiguous(c, g.dtype, 2, (int64_t[]){rows, g.sizes[g.ndim - 1]});
}

/* -- convolutions, pooling, attention --------------------------------------------------------------------------------------- */

/* (g, x, weight, sizes of the bias, stride, padding, dilation, transposed, padding of the output, groups, mask), row-major all of it */
bool
shape_convolution_backward(shape_call *c, int row)
{
    shape_tensor g, x, w, bias;
    bool mask[3], transposed;
    int64_t groups;
    if (!read_float(c, 0, &g) || !read_float(c, 1, &x) || !read_float(c, 2, &w) || x.dtype != KIN_F32 || g.dtype != x.dtype || w.dtype != x.dtype ||
        x.ndim < 3 || x.ndim > 5 || g.ndim != x.ndim || w.ndim != x.ndim || !shape_bool(c, 7, "", true, &transposed) || transposed ||
        !shape_int(c, 9, "", 0, &groups) || groups < 1 || !read_mask(c, 10, mask) || (mask[2] && !mask[1]) || g.sizes[0] != x.sizes[0] || g.sizes[1] != w.sizes[0] ||
        x.sizes[1] != w.sizes[1] * groups || shape_numel(g.ndim, g.sizes) == 0 || shape_numel(x.ndim, x.sizes) == 0 || shape_numel(w.ndim, w.sizes) == 0 ||
        shape_suggested(&x) != SHAPE_CONTIGUOUS || shape_suggested(&w) != SHAPE_CONTIGUOUS || !is_plain(&x) || !is_plain(&w))
        return false;
    int64_t stride[3], padding[3], dilation[3];
    for (unsigned i = 0; i < 3; i++) {
        int64_t *out = i == 0 ? stride : i == 1 ? padding : dilation, given[KIN_IR_MAX_DIMS];
        int count = shape_ints(c, 4 + i, "", given);
        if (count != 1 && count != (int)x.ndim - 2)
            return false;
        for (unsigned k = 0; k < x.ndim - 2; k++)
            if ((out[k] = given[count == 1 ? 0 : k]) < (i != 1))
                return false;
    }
    for (unsigned k = 0; k < x.ndim - 2; k++) {
        int64_t room = x.sizes[2 + k] + 2 * padding[k] - dilation[k] * (w.sizes[2 + k] - 1) - 1;
        if (room < 0 || g.sizes[2 + k] != room / stride[k] + 1)
            return false;
    }
    bias = (shape_tensor){.dtype = x.dtype, .ndim = 1, .sizes = {w.sizes[0]}};
    return add_masked(c, mask, 0, &x) && add_masked(c, mask, 1, &w) && add_masked(c, mask, 2, &bias);
}

/* (g, x, ...) of pooling and padding: x's sizes in its format; g is what the operator gave. */
bool
shape_pool_backward(shape_call *c, int row)
{
    shape_tensor g, t;
    if (!read_float(c, 0, &g) || !read_float(c, 1, &t) || g.dtype != t.dtype || t.ndim != 4 || g.ndim != 4 || g.sizes[0] != t.sizes[0] ||
        g.sizes[1] != t.sizes[1] || shape_numel(4, t.sizes) == 0 || shape_numel(4, g.sizes) == 0 || !shape_is_contiguous(&t) ||
        shape_suggested(&t) != SHAPE_CONTIGUOUS)
        return false;
    return shape_add_contiguous(c, t.dtype, 4, t.sizes);
}

/* (g, query, key, value, result, logsumexp, dropout, causal, mask, scale) -> of query, key, value: the heads inside */
bool
shape_flash_attention_backward(shape_call *c, int row)
{
    shape_tensor t[5], sums;
    for (unsigned i = 0; i < 5; i++)
        if (!read_float(c, i, &t[i]) || t[i].ndim != 4 || t[i].dtype != t[0].dtype || shape_numel(4, t[i].sizes) == 0)
            return false;
    if (!read_float(c, 5, &sums) || sums.ndim != 3 || !same_sizes(&t[0], &t[1]) || !same_sizes(&t[4], &t[1]) || !same_sizes(&t[2], &t[3]) ||
        t[1].sizes[0] != t[2].sizes[0] || t[1].sizes[3] != t[2].sizes[3] || t[1].sizes[1] != t[2].sizes[1])
        return false;
    for (unsigned i = 1; i < 4; i++) {
        const int64_t *size = t[i].sizes;
        kin_shape *out = shape_add(c, t[i].dtype, 4, size);
        if (out == NULL)
            return false;
        memcpy(out->strides, ((int64_t[]){size[2] * size[1] * size[3], size[3], size[1] * size[3], 1}), 4 * sizeof *size);
    }
    return true;
}
