/* Shape rules of paddings, of unfold and fold, and of resampling in one or three dims. */
#include "core/shape/shape_priv.h"

/* In the input's format; with one or three spatial dims also without a batch, row-major. */
static bool
add_image(shape_call *c, const shape_tensor *t, unsigned spatial, const int64_t *sizes)
{
    kin_shape *out = shape_add(c, t->dtype, t->ndim, sizes);
    shape_format format = t->ndim == spatial + 2 && spatial > 1 ? shape_suggested(t) : SHAPE_CONTIGUOUS;
    return out != NULL && shape_format_strides(format, t->ndim, sizes, out->strides);
}

static bool
read_image(const shape_call *c, unsigned spatial, shape_tensor *t)
{
    return shape_read(c, 0, "self", t) && (t->ndim == spatial + 2 || t->ndim == spatial + 1) && kin_dtype_is_float(t->dtype) &&
           shape_numel(t->ndim, t->sizes) != 0;
}

/* (self, padding), the last dim's first; row: dims, negative where the edge is repeated */
bool
shape_mirror(shape_call *c, int row)
{
    unsigned spatial = row < 0 ? (unsigned)-row : (unsigned)row;
    shape_tensor t;
    int64_t pads[KIN_IR_MAX_DIMS], sizes[KIN_IR_MAX_DIMS];
    if (!read_image(c, spatial, &t) || shape_ints(c, 1, "padding", pads) != (int)(2 * spatial))
        return false;
    shape_format format = t.ndim >= 4 ? shape_suggested(&t) : SHAPE_CONTIGUOUS;
    bool last = spatial == t.ndim - 2u && ((format == SHAPE_CHANNELS_LAST && t.ndim == 4 && shape_is_channels_last(&t)) ||
                                           (format == SHAPE_CHANNELS_LAST_3D && t.ndim == 5 && shape_is_channels_last_3d(&t)));
    if (!last && (!shape_is_contiguous(&t) || format != SHAPE_CONTIGUOUS))
        return false;
    memcpy(sizes, t.sizes, t.ndim * sizeof *sizes);
    for (unsigned k = 0; k < spatial; k++) {
        int64_t *size = &sizes[t.ndim - 1 - k], low = pads[2 * k], high = pads[2 * k + 1];
        if (low < 0 || high < 0 || (row > 0 && (low >= *size || high >= *size)))
            return false;
        *size += low + high;
    }
    kin_shape *out = shape_add(c, t.dtype, t.ndim, sizes);
    return out != NULL && shape_format_strides(format, out->ndim, out->sizes, out->strides);
}

static bool
read_pair(const shape_call *c, unsigned at, const char *keyword, int64_t least, int64_t *out)
{
    return shape_ints(c, at, keyword, out) == 2 && out[0] >= least && out[1] >= least;
}

/* im2col: (self, kernel, dilation, padding, stride) -> [N, C * kernel, windows] */
bool
shape_windows(shape_call *c, int row)
{
    shape_tensor t;
    int64_t kernel[KIN_IR_MAX_DIMS], dilation[KIN_IR_MAX_DIMS], padding[KIN_IR_MAX_DIMS], stride[KIN_IR_MAX_DIMS], windows = 1;
    if (!read_image(c, 2, &t) || !read_pair(c, 1, "kernel_size", 1, kernel) || !read_pair(c, 2, "dilation", 1, dilation) ||
        !read_pair(c, 3, "padding", 0, padding) || !read_pair(c, 4, "stride", 1, stride))
        return false;
    unsigned at = t.ndim - 2;
    for (unsigned k = 0; k < 2; k++) {
        int64_t room = t.sizes[at + k] + 2 * padding[k] - dilation[k] * (kernel[k] - 1) - 1;
        if (room < 0)
            return false;
        windows *= room / stride[k] + 1;
    }
    t.sizes[at - 1] *= kernel[0] * kernel[1];
    t.sizes[at] = windows;
    return shape_add_contiguous(c, t.dtype, t.ndim - 1, t.sizes);
}

/* (self, output size, ...); row: spatial dims, negative: the result is row-major in any case */
bool
shape_resize(shape_call *c, int row)
{
    unsigned spatial = row < 0 ? (unsigned)-row : (unsigned)row;
    shape_tensor t;
    int64_t size[KIN_IR_MAX_DIMS], sizes[KIN_IR_MAX_DIMS];
    if (!read_image(c, spatial, &t) || t.ndim != spatial + 2 || shape_ints(c, 1, "output_size", size) != (int)spatial)
        return false;
    memcpy(sizes, t.sizes, t.ndim * sizeof *sizes);
    for (unsigned k = 0; k < spatial; k++)
        if ((sizes[2 + k] = size[k]) < 1)
            return false;
    return row < 0 ? shape_add_contiguous(c, t.dtype, t.ndim, sizes) : add_image(c, &t, spatial, sizes);
}

/* (self, groups or factor); row: 0 = channel_shuffle, 1 = pixel_shuffle, -1 = pixel_unshuffle. In the input's format, which
 * PyTorch's meta kernels lose. */
bool
shape_shuffle(shape_call *c, int row)
{
    shape_tensor t;
    int64_t n;
    if (!shape_read(c, 0, "self", &t) || t.ndim != 4 || !kin_dtype_is_float(t.dtype) ||
        !shape_int(c, 1, row == 0 ? "groups" : row > 0 ? "upscale_factor" : "downscale_factor", 0, &n) || n < 1)
        return false;
    int64_t *sizes = t.sizes, square = n * n;
    if (row == 0 ? sizes[1] % n != 0 : row > 0 ? sizes[1] % square != 0 : sizes[2] % n != 0 || sizes[3] % n != 0)
        return false;
    if (shape_numel(t.ndim, sizes) == 0) /* eager's kernel gives what it got, in the same sizes */
        return row < 0 && shape_add_like(c, &t, t.dtype, SHAPE_PRESERVE);
    kin_shape *out = shape_add(c, t.dtype, 4, sizes);
    if (out == NULL)
        return false;
    for (unsigned d = 1; d < 4 && row != 0; d++)
        out->sizes[d] = (row > 0) == (d > 1) ? sizes[d] * (d > 1 ? n : square) : sizes[d] / (d > 1 ? n : square);
    return shape_format_strides(shape_suggested(&t), 4, out->sizes, out->strides);
}

/* Row-major in any case, and what the derivative is computed from. */
bool
shape_log_sigmoid(shape_call *c, int row)
{
    shape_tensor t;
    return shape_read(c, 0, "self", &t) && kin_dtype_is_float(t.dtype) && shape_add_contiguous(c, t.dtype, t.ndim, t.sizes) &&
           shape_add_contiguous(c, t.dtype, t.ndim, t.sizes);
}
