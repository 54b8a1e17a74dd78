/* Shape rules of products, convolutions, normalisation, pooling and attention. */
#include "core/shape/shape_priv.h"

/* -- products ----------------------------------------------------------------------------------------------------- */

/* The two matrices (ndim 3: stacks of them) from argument `at` on; a gets the result's sizes. */
static bool
multiply(shape_call *c, unsigned at, unsigned ndim, shape_tensor *a)
{
    shape_tensor b;
    if (!shape_read(c, at, "", a) || !shape_read(c, at + 1, "", &b) || a->ndim != ndim || b.ndim != ndim ||
        a->dtype != b.dtype || a->dtype == KIN_BOOL || a->sizes[ndim - 1] != b.sizes[ndim - 2] ||
        (ndim == 3 && a->sizes[0] != b.sizes[0]))
        return false;
    a->sizes[ndim - 1] = b.sizes[ndim - 1];
    return true;
}

bool
shape_mm(shape_call *c, int ndim)
{
    shape_tensor a;
    return multiply(c, 0, (unsigned)ndim, &a) && shape_add_contiguous(c, a.dtype, a.ndim, a.sizes);
}

/* (self, a, b, beta, alpha): self is broadcast to the product. */
bool
shape_addmm(shape_call *c, int ndim)
{
    shape_tensor t[2];
    unsigned n;
    int64_t sizes[KIN_IR_MAX_DIMS];
    const kin_aten_arg *beta = shape_arg(c, UINT32_MAX, "beta"), *alpha = shape_arg(c, UINT32_MAX, "alpha");
    if (!shape_read(c, 0, "self", &t[1]) || !multiply(c, 1, (unsigned)ndim, &t[0]) || t[1].dtype != t[0].dtype ||
        !kin_dtype_is_float(t[0].dtype) || !shape_broadcast(t, 2, &n, sizes) || n != (unsigned)ndim ||
        memcmp(sizes, t[0].sizes, n * sizeof *sizes) != 0)
        return false;
    if ((beta != NULL && beta->kind == KIN_ATEN_BOOL) || (alpha != NULL && alpha->kind == KIN_ATEN_BOOL))
        return false;
    return shape_add_contiguous(c, t[0].dtype, n, sizes);
}

/* A matrix, or a stack of them, whose rows or columns lie together, and apart by a multiple of 16 bytes: other ones are refused. */
static bool
lies_for_groups(const shape_tensor *t)
{
    int64_t aligned = 16 / kin_dtype_bytes(t->dtype), inner = t->strides[t->ndim - 1], outer = t->strides[t->ndim - 2];
    int64_t columns = t->sizes[t->ndim - 1], rows = t->sizes[t->ndim - 2];
    if (outer == 1 && inner >= (rows > 1 ? rows : 1))
        return inner % aligned == 0;
    return inner == 1 && outer >= (columns > 1 ? columns : 1) && outer % aligned == 0;
}

/* The groups of rows (both stacks: none) that offsets divide; a stack has a matrix for each. */
static bool
count_groups(const shape_call *c, const shape_tensor *a, const shape_tensor *b, int64_t *groups)
{
    shape_tensor offsets;
    bool stacks = a->ndim == 3 && b->ndim == 3;
    *groups = a->sizes[0];
    if (stacks)
        return shape_arg(c, 2, "offs") == NULL && a->sizes[0] == b->sizes[0];
    if (!shape_read(c, 2, "offs", &offsets) || offsets.dtype != KIN_I32 || offsets.ndim != 1)
        return false;
    *groups = offsets.sizes[0];
    return (a->ndim == 2 || a->sizes[0] == *groups) && (b->ndim == 2 || b->sizes[0] == *groups);
}

/* (self, mat2, offs, bias, out_dtype): rows of the result begin at multiples of 16 bytes. */
bool
shape_grouped_mm(shape_call *c, int row)
{
    shape_tensor a, b;
    int64_t groups;
    kin_dtype dtype;
    if (!shape_read(c, 0, "self", &a) || !shape_read(c, 1, "mat2", &b) || a.ndim < 2 || a.ndim > 3 || b.ndim < 2 || b.ndim > 3 || a.dtype != b.dtype ||
        (a.dtype != KIN_F32 && a.dtype != KIN_BF16 && a.dtype != KIN_F16) || a.sizes[a.ndim - 1] != b.sizes[b.ndim - 2] || !lies_for_groups(&a) ||
        !lies_for_groups(&b) || !count_groups(c, &a, &b, &groups) || shape_arg(c, 3, "bias") != NULL ||
        !shape_dtype(c, 4, "out_dtype", a.dtype, &dtype) || dtype != a.dtype)
        return false;
    int64_t rows = a.sizes[a.ndim - 2], columns = b.sizes[b.ndim - 1], aligned = 16 / kin_dtype_bytes(dtype);
    int64_t padded = (columns + aligned - 1) / aligned * aligned;
    bool stacked = a.ndim == b.ndim;
    kin_shape *out = shape_add(c, dtype, stacked ? 3 : 2, stacked ? (int64_t[]){groups, rows, columns} : (int64_t[]){rows, columns});
    if (out == NULL)
        return false;
    memcpy(out->strides, (int64_t[]){rows * padded, padded, 1} + !stacked, out->ndim * sizeof *out->strides);
    return true;
}

/* -- convolution -------------------------------------------------------------------------------------------------- */

typedef struct {
    shape_tensor input, weight, bias;
    int64_t stride[3], padding[3], dilation[3], output_padding[3], groups;
    unsigned ndim;     /* spatial */
    bool transposed, has_bias;
} convolution;

/* One number for all dims, or one for each. */
static bool
read_spatial(const shape_call *c, unsigned at, unsigned ndim, int64_t least, int64_t *out)
{
    int64_t given[KIN_IR_MAX_DIMS];
    int count = shape_ints(c, at, "", given);
    if (count != 1 && count != (int)ndim)
        return false;
    for (unsigned i = 0; i < ndim; i++)
        if ((out[i] = given[count == 1 ? 0 : i]) < least)
            return false;
    return true;
}

static bool
read_convolution(const shape_call *c, convolution *x)
{
    if (!shape_read(c, 0, "", &x->input) || !shape_read(c, 1, "", &x->weight) || x->input.ndim < 3 || x->input.ndim > 5 ||
        x->weight.ndim != x->input.ndim || x->input.dtype != x->weight.dtype ||
        (x->input.dtype != KIN_F32 && x->input.dtype != KIN_BF16))
        return false;
    x->ndim = x->input.ndim - 2;
    x->has_bias = shape_arg(c, 2, "") != NULL;
    if (x->has_bias && (!shape_read(c, 2, "", &x->bias) || x->bias.ndim != 1 || x->bias.dtype != x->input.dtype))
        return false;
    return read_spatial(c, 3, x->ndim, 1, x->stride) && read_spatial(c, 4, x->ndim, 0, x->padding) &&
           read_spatial(c, 5, x->ndim, 1, x->dilation) && shape_bool(c, 6, "", false, &x->transposed) &&
           read_spatial(c, 7, x->ndim, 0, x->output_padding) && shape_int(c, 8, "", 1, &x->groups) && x->groups >= 1;
}

static bool
convolution_sizes(const convolution *x, int64_t *sizes)
{
    const shape_tensor *in = &x->input, *w = &x->weight;
    sizes[0] = in->sizes[0];
    sizes[1] = w->sizes[0];
    if (shape_numel(in->ndim, in->sizes) == 0 || shape_numel(w->ndim, w->sizes) == 0 || w->sizes[0] % x->groups != 0 ||
        in->sizes[1] != w->sizes[1] * x->groups || (x->has_bias && x->bias.sizes[0] != sizes[1]))
        return false;
    for (unsigned i = 0; i < x->ndim; i++) {
        int64_t reach = x->dilation[i] * (w->sizes[2 + i] - 1) + 1, room = in->sizes[2 + i] + 2 * x->padding[i];
        if (room < reach || x->output_padding[i] != 0)
            return false;
        sizes[2 + i] = (room - reach) / x->stride[i] + 1;
    }
    return true;
}

/* One dim is computed as two, the first of size 1: does that look like channels last? */
static bool
suggests_in_2d(const shape_tensor *t)
{
    shape_tensor image = {.ndim = 4, .sizes = {t->sizes[0], t->sizes[1], 1, t->sizes[2]},
                          .strides = {t->strides[0], t->strides[1], t->sizes[2] * t->strides[2], t->strides[2]}};
    return shape_suggested(&image) != SHAPE_CONTIGUOUS;
}

/* Which library computes it depends on sizes and threads; all give row-major for row-major, and all but those for dilated
 * kernels and three dims channels last if the input or the weight lies so. */
bool
shape_convolution(shape_call *c, int row)
{
    convolution x;
    int64_t sizes[5];
    if (!read_convolution(c, &x) || x.transposed || !convolution_sizes(&x, sizes))
        return false;
    shape_format a = shape_suggested(&x.input), b = shape_suggested(&x.weight), format = a != SHAPE_CONTIGUOUS ? a : b;
    if (x.ndim == 1 && (suggests_in_2d(&x.input) || suggests_in_2d(&x.weight)))
        return false;
    if (format == SHAPE_CHANNELS_LAST_3D || (format == SHAPE_CHANNELS_LAST && (x.dilation[0] != 1 || x.dilation[1] != 1)))
        return false;
    kin_shape *out = shape_add(c, x.input.dtype, x.ndim + 2, sizes);
    return out != NULL && shape_format_strides(format, out->ndim, out->sizes, out->strides);
}

/* -- normalisation ------------------------------------------------------------------------------------------------ */

/* Weight and bias have the input's dtype, or both f32 beside half precision. */
static bool
read_affine(const shape_call *c, unsigned at, const shape_tensor *t, kin_dtype *parameters)
{
    *parameters = t->dtype;
    for (unsigned i = at; i < at + 2; i++) {
        shape_tensor p;
        if (shape_arg(c, i, "") == NULL)
            continue;
        if (!shape_read(c, i, "", &p) || p.dtype != t->dtype)
            return false;
    }
    return true;
}

/* (input, normalized_shape, weight, bias, eps) -> same, mean, 1/deviation */
bool
shape_layer_norm(shape_call *c, int row)
{
    shape_tensor t, p;
    int64_t normal[KIN_IR_MAX_DIMS];
    kin_dtype dtype;
    int count = shape_ints(c, 1, "", normal);
    if (!shape_read(c, 0, "", &t) || !kin_dtype_is_float(t.dtype) || count < 1 || count > (int)t.ndim ||
        !read_affine(c, 2, &t, &dtype))
        return false;
    unsigned axis = t.ndim - (unsigned)count;
    if (memcmp(normal, t.sizes + axis, (size_t)count * sizeof *normal) != 0)
        return false;
    for (unsigned i = 2; i < 4; i++)
        if (shape_read(c, i, "", &p) && (p.ndim != (unsigned)count || memcmp(p.sizes, normal, (size_t)count * sizeof *normal) != 0))
            return false;
    if (!shape_add_contiguous(c, t.dtype, t.ndim, t.sizes))
        return false;
    for (unsigned d = axis; d < t.ndim; d++)
        t.sizes[d] = 1;
    return shape_add_contiguous(c, dtype, t.ndim, t.sizes) && shape_add_contiguous(c, dtype, t.ndim, t.sizes);
}

static bool
is_vector(const shape_call *c, unsigned at, int64_t size)
{
    shape_tensor p;
    return shape_arg(c, at, "") == NULL || (shape_read(c, at, "", &p) && p.ndim == 1 && p.sizes[0] == size);
}

/* (input, weight, bias, N, C, HxW, groups, eps) -> same, mean, 1/deviation */
bool
shape_group_norm(shape_call *c, int row)
{
    shape_tensor t;
    int64_t groups;
    kin_dtype dtype;
    if (!shape_read(c, 0, "", &t) || !kin_dtype_is_float(t.dtype) || t.ndim < 2 || shape_numel(t.ndim, t.sizes) == 0 ||
        !shape_int(c, 6, "", 0, &groups) || groups < 1 || t.sizes[1] % groups != 0 || !read_affine(c, 1, &t, &dtype) ||
        !is_vector(c, 1, t.sizes[1]) || !is_vector(c, 2, t.sizes[1]))
        return false;
    int64_t stats[2] = {t.sizes[0], groups};
    shape_format format = shape_suggested(&t);
    if (!(format == SHAPE_CONTIGUOUS ? shape_is_contiguous(&t) : shape_is_channels_last(&t) || shape_is_channels_last_3d(&t)))
        return false;
    return shape_add_like(c, &t, t.dtype, format) && shape_add_contiguous(c, dtype, 2, stats) &&
           shape_add_contiguous(c, dtype, 2, stats);
}

/* (input, weight, bias, mean, variance, [training,] momentum, eps) -> same; mean and 1/deviation of the batch, empty where those
 * were not computed */
bool
shape_batch_norm(shape_call *c, int row)
{
    shape_tensor t, p;
    bool training = false, contiguous = true;
    if (!shape_read(c, 0, "", &t) || !kin_dtype_is_float(t.dtype) || t.ndim < 2 || shape_numel(t.ndim, t.sizes) == 0 ||
        (row == 1 && !shape_bool(c, 5, "", true, &training)))
        return false;
    /* In training it may do without running statistics, else it writes to them. */
    if (training && (shape_arg(c, 3, "") != NULL || shape_arg(c, 4, "") != NULL || (t.dtype != KIN_F32 && t.dtype != KIN_F64)))
        return false;
    for (unsigned i = 1; i < 5; i++) {
        if (shape_arg(c, i, "") == NULL && (i < 3 || training))
            continue;
        if (!shape_read(c, i, "", &p) || p.ndim != 1 || p.sizes[0] != t.sizes[1] || p.dtype != t.dtype)
            return false;
        contiguous = contiguous && shape_is_contiguous(&p);
    }
    shape_format format = shape_is_contiguous(&t)         ? SHAPE_CONTIGUOUS
                          : shape_is_channels_last(&t)    ? SHAPE_CHANNELS_LAST
                          : shape_is_channels_last_3d(&t) ? SHAPE_CHANNELS_LAST_3D
                                                          : shape_suggested(&t);
    if (!contiguous)
        return false;
    int64_t kept = training ? t.sizes[1] : 0;
    return shape_add_like(c, &t, t.dtype, format) && shape_add_contiguous(c, t.dtype, 1, &kept) &&
           shape_add_contiguous(c, t.dtype, 1, &kept);
}

/* (self, target, weight, reduction, ignored) -> loss, weight of all together */
bool
shape_nll_loss(shape_call *c, int row)
{
    shape_tensor t, target, weight;
    int64_t reduction;
    if (!shape_read(c, 0, "self", &t) || !shape_read(c, 1, "target", &target) || t.ndim != 2 || target.ndim != 1 ||
        !shape_int(c, 3, "reduction", 1, &reduction) || (t.dtype != KIN_F32 && t.dtype != KIN_F64) || target.dtype != KIN_I64 ||
        target.sizes[0] != t.sizes[0] || shape_numel(2, t.sizes) == 0 || reduction < 0 || reduction > 2)
        return false;
    if (shape_arg(c, 2, "weight") != NULL && (!shape_read(c, 2, "weight", &weight) || weight.ndim != 1 || weight.dtype != t.dtype ||
                                              weight.sizes[0] != t.sizes[1]))
        return false;
    return shape_add_contiguous(c, t.dtype, reduction == 0, t.sizes) && shape_add_contiguous(c, t.dtype, 0, NULL);
}

/* -- pooling, other resolutions ------------------------------------------------------------------------------------ */

static bool
add_in_format(shape_call *c, const shape_tensor *t, kin_dtype dtype, const int64_t *sizes)
{
    kin_shape *out = shape_add(c, dtype, t->ndim, sizes);
    return out != NULL && shape_format_strides(t->ndim == 4 ? shape_suggested(t) : SHAPE_CONTIGUOUS, t->ndim, sizes, out->strides);
}

/* (self, kernel, stride, padding, dilation, ceil) or without dilation */
bool
shape_pool2d(shape_call *c, int with_indices)
{
    shape_tensor t;
    int64_t kernel[2], stride[2], padding[2] = {0, 0}, dilation[2] = {1, 1}, sizes[4];
    bool up;
    if (!shape_read(c, 0, "", &t) || (t.ndim != 4 && t.ndim != 3) || !kin_dtype_is_float(t.dtype) ||
        shape_numel(t.ndim, t.sizes) == 0 || !read_spatial(c, 1, 2, 1, kernel))
        return false;
    const kin_aten_arg *given = shape_arg(c, 2, "");
    memcpy(stride, kernel, sizeof stride);
    if (given != NULL && !(given->kind == KIN_ATEN_LIST && given->list.count == 0) && !read_spatial(c, 2, 2, 1, stride))
        return false;
    unsigned ceil_at = with_indices ? 5 : 4;
    if ((shape_arg(c, 3, "") != NULL && !read_spatial(c, 3, 2, 0, padding)) || !shape_bool(c, ceil_at, "", false, &up) ||
        (with_indices && shape_arg(c, 4, "") != NULL && !read_spatial(c, 4, 2, 1, dilation)))
        return false;
    memcpy(sizes, t.sizes, t.ndim * sizeof *sizes);
    for (unsigned i = 0; i < 2; i++) {
        int64_t *size = &sizes[t.ndim - 2 + i], from = *size;
        int64_t room = from + 2 * padding[i] - dilation[i] * (kernel[i] - 1) - 1;
        if (room < 0 || padding[i] > kernel[i] / 2)
            return false;
        *size = (room + (up ? stride[i] - 1 : 0)) / stride[i] + 1;
        if (up && (*size - 1) * stride[i] >= from + padding[i])
            --*size; /* the last window would begin outside */
    }
    return add_in_format(c, &t, t.dtype, sizes) && (!with_indices || add_in_format(c, &t, KIN_I64, sizes));
}

/* (self, output size, ...) */
bool
shape_resize2d(shape_call *c, int row)
{
    shape_tensor t;
    int64_t size[KIN_IR_MAX_DIMS], sizes[4];
    if (!shape_read(c, 0, "", &t) || t.ndim != 4 || !kin_dtype_is_float(t.dtype) || shape_numel(t.ndim, t.sizes) == 0 ||
        shape_ints(c, 1, "", size) != 2 || size[0] < 1 || size[1] < 1)
        return false;
    memcpy(sizes, t.sizes, sizeof sizes);
    memcpy(sizes + 2, size, 2 * sizeof *size);
    return add_in_format(c, &t, t.dtype, sizes);
}

/* -- attention ---------------------------------------------------------------------------------------------------- */

/* (query, key, value, dropout, causal, mask, scale) -> attention, laid out like the query; logsumexp, heads inside. */
bool
shape_flash_attention(shape_call *c, int row)
{
    shape_tensor q, k, v;
    if (!shape_read(c, 0, "", &q) || !shape_read(c, 1, "", &k) || !shape_read(c, 2, "", &v) || q.ndim != 4 || k.ndim != 4 ||
        v.ndim != 4 || !kin_dtype_is_float(q.dtype) || q.dtype != k.dtype || q.dtype != v.dtype ||
        q.sizes[3] != k.sizes[3] || q.sizes[0] != k.sizes[0] || memcmp(k.sizes, v.sizes, sizeof k.sizes) != 0 ||
        shape_numel(4, q.sizes) == 0 || shape_numel(4, k.sizes) == 0 || q.sizes[1] % k.sizes[1] != 0)
        return false;
    int64_t batch = q.sizes[0], heads = q.sizes[1], length = q.sizes[2];
    kin_shape *out = shape_add(c, q.dtype, 4, q.sizes);
    if (out == NULL)
        return false;
    shape_preserved_strides(&q, out->strides);
    out = shape_add(c, q.dtype == KIN_F64 ? KIN_F64 : KIN_F32, 3, (int64_t[]){batch, heads, length});
    if (out != NULL)
        memcpy(out->strides, ((int64_t[]){length * heads, 1, heads}), 3 * sizeof(int64_t));
    return out != NULL;
}

/* Distances of all rows of the first from all of the second, for each of the matrices that broadcasting makes of them. */
bool
shape_distances(shape_call *c, int row)
{
    shape_tensor t[2], batch[2];
    unsigned ndim;
    int64_t sizes[KIN_IR_MAX_DIMS];
    if (!shape_read(c, 0, "x1", &t[0]) || !shape_read(c, 1, "x2", &t[1]) || t[0].dtype != t[1].dtype || !kin_dtype_is_float(t[0].dtype) || t[0].ndim < 2 || t[1].ndim < 2)
        return false;
    for (unsigned i = 0; i < 2; i++) {
        batch[i] = t[i];
        batch[i].ndim -= 2;
    }
    if (t[0].sizes[t[0].ndim - 1] != t[1].sizes[t[1].ndim - 1] || (t[0].dtype != KIN_F32 && t[0].dtype != KIN_F64) || !shape_broadcast(batch, 2, &ndim, sizes) || ndim + 2 > KIN_IR_MAX_DIMS)
        return false;
    sizes[ndim] = t[0].sizes[t[0].ndim - 2];
    sizes[ndim + 1] = t[1].sizes[t[1].ndim - 2];
    return shape_add_contiguous(c, t[0].dtype, ndim + 2, sizes);
}
