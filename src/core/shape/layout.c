/* Layouts as PyTorch defines them, and results with them. If several answers would be possible, the one of eager's kernels
 * is meant; tests/shape compares with them.
 */
#include "core/shape/shape_priv.h"

/* -- questions ---------------------------------------------------------------------------------------------------- */

int64_t
shape_numel(unsigned ndim, const int64_t *sizes)
{
    int64_t n = 1;
    for (unsigned d = 0; d < ndim; d++)
        n *= sizes[d];
    return n;
}

/* Do dims in this order, innermost first, lie one in the other? Those of size 1 may lie anywhere. */
static bool
follows(const shape_tensor *t, const unsigned *order)
{
    int64_t expected = 1;
    for (unsigned k = 0; k < t->ndim; k++) {
        unsigned d = order[k];
        if (t->sizes[d] == 1)
            continue;
        if (t->strides[d] != expected)
            return false;
        expected *= t->sizes[d];
    }
    return true;
}

bool
shape_is_contiguous(const shape_tensor *t)
{
    unsigned order[KIN_IR_MAX_DIMS];
    for (unsigned d = 0; d < t->ndim; d++)
        order[d] = t->ndim - 1 - d;
    return shape_numel(t->ndim, t->sizes) == 0 || follows(t, order);
}

static const unsigned last_2d[] = {1, 3, 2, 0}, last_3d[] = {1, 4, 3, 2, 0};

bool
shape_is_channels_last(const shape_tensor *t)
{
    return t->ndim == 4 && follows(t, last_2d);
}

bool
shape_is_channels_last_3d(const shape_tensor *t)
{
    return t->ndim == 5 && follows(t, last_3d);
}

bool
shape_is_dense(const shape_tensor *t)
{
    if (shape_numel(t->ndim, t->sizes) == 0)
        return true;
    bool used[KIN_IR_MAX_DIMS] = {false};
    int64_t expected = 1;
    unsigned left = 0;
    for (unsigned d = 0; d < t->ndim; d++)
        left += t->sizes[d] > 1;
    for (; left > 0; left--) { /* which dim is next? */
        unsigned d = 0;
        while (d < t->ndim && (used[d] || t->sizes[d] < 2 || t->strides[d] != expected))
            d++;
        if (d == t->ndim)
            return false;
        used[d] = true;
        expected *= t->sizes[d];
    }
    return true;
}

/* Are strides ascending in this order? Cases that can be read both ways count as row-major. */
static bool
looks_like(const shape_tensor *t, const unsigned *order)
{
    int64_t least = 0;
    if (t->strides[1] == 0)
        return false;
    for (unsigned k = 0; k < t->ndim; k++) {
        unsigned d = order[k];
        if (t->sizes[d] == 0 || t->strides[d] < least || (d == 0 && least == t->strides[1]))
            return false;
        least = t->strides[d] * (t->sizes[d] > 1 ? t->sizes[d] : 1);
    }
    return true;
}

shape_format
shape_suggested(const shape_tensor *t)
{
    if (t->ndim == 4 && looks_like(t, last_2d))
        return SHAPE_CHANNELS_LAST;
    if (t->ndim == 5 && looks_like(t, last_3d))
        return SHAPE_CHANNELS_LAST_3D;
    return SHAPE_CONTIGUOUS;
}

bool
shape_may_overlap(const shape_tensor *t)
{
    return !shape_is_dense(t) && kin_aten_may_overlap(t->ndim, t->sizes, t->strides);
}

/* -- strides ------------------------------------------------------------------------------------------------------ */

void
shape_contiguous_strides(unsigned ndim, const int64_t *sizes, int64_t *strides)
{
    int64_t next = 1;
    for (unsigned d = ndim; d-- > 0;) {
        strides[d] = next;
        next *= sizes[d] > 1 ? sizes[d] : 1;
    }
}

bool
shape_format_strides(shape_format format, unsigned ndim, const int64_t *sizes, int64_t *strides)
{
    if (format == SHAPE_CONTIGUOUS) {
        shape_contiguous_strides(ndim, sizes, strides);
        return true;
    }
    const unsigned *order = format == SHAPE_CHANNELS_LAST ? last_2d : last_3d;
    if (format == SHAPE_PRESERVE || ndim != (format == SHAPE_CHANNELS_LAST ? 4 : 5))
        return false;
    int64_t next = 1;
    for (unsigned k = 0; k < ndim; k++) {
        strides[order[k]] = next;
        next *= sizes[order[k]];
    }
    return true;
}

/* Strides without gaps in the order of the given ones. */
static void
dense_strides(unsigned ndim, const int64_t *sizes, const int64_t *like, int64_t *strides)
{
    unsigned perm[KIN_IR_MAX_DIMS];
    for (unsigned d = 0; d < ndim; d++)
        perm[d] = ndim - 1 - d;
    for (unsigned i = 1; i < ndim; i++)
        for (unsigned at = i, j = i; j-- > 0;) {
            unsigned a = perm[j], b = perm[at];
            if (like[a] == 0 || like[b] == 0)
                continue; /* broadcast: says nothing */
            if (like[a] < like[b])
                break;
            if (like[a] == like[b] && sizes[a] <= sizes[b])
                continue;
            perm[j] = b;
            perm[at] = a;
            at = j;
        }
    int64_t next = 1;
    for (unsigned k = 0; k < ndim; k++) {
        strides[perm[k]] = next;
        next *= sizes[perm[k]] > 1 ? sizes[perm[k]] : 1;
    }
}

void
shape_preserved_strides(const shape_tensor *t, int64_t *strides)
{
    if (!shape_is_dense(t))
        dense_strides(t->ndim, t->sizes, t->strides, strides);
    else if (t->ndim > 0)
        memcpy(strides, t->strides, t->ndim * sizeof *strides);
}

/* -- results ------------------------------------------------------------------------------------------------------ */

kin_shape *
shape_add(shape_call *c, kin_dtype dtype, unsigned ndim, const int64_t *sizes)
{
    kin_shape shape = {.dtype = dtype, .ndim = ndim};
    if (ndim > KIN_IR_MAX_DIMS)
        return NULL;
    if (sizes != NULL && ndim > 0)
        memcpy(shape.sizes, sizes, ndim * sizeof *sizes);
    if (kin_vec_push(&c->out->results, shape) != KIN_OK) {
        c->failed = true;
        return NULL;
    }
    return &c->out->results.at[c->out->results.len - 1];
}

bool
shape_add_none(shape_call *c)
{
    kin_shape *out = shape_add(c, KIN_BOOL, 0, NULL);
    return out != NULL && (out->none = true);
}

bool
shape_add_contiguous(shape_call *c, kin_dtype dtype, unsigned ndim, const int64_t *sizes)
{
    kin_shape *shape = shape_add(c, dtype, ndim, sizes);
    if (shape != NULL)
        shape_contiguous_strides(ndim, shape->sizes, shape->strides);
    return shape != NULL;
}

kin_shape *
shape_add_view(shape_call *c, const shape_tensor *t, unsigned ndim)
{
    kin_shape *shape = shape_add(c, t->dtype, ndim, NULL);
    if (shape != NULL) {
        shape->of = t->val;
        shape->offset = t->offset;
    }
    return shape;
}

bool
shape_add_same(shape_call *c, const shape_tensor *t)
{
    kin_shape *shape = shape_add_view(c, t, t->ndim);
    if (shape == NULL)
        return false;
    memcpy(shape->sizes, t->sizes, sizeof t->sizes);
    memcpy(shape->strides, t->strides, sizeof t->strides);
    shape->same = true;
    return true;
}

bool
shape_add_like(shape_call *c, const shape_tensor *t, kin_dtype dtype, shape_format format)
{
    kin_shape *shape = shape_add(c, dtype, t->ndim, t->sizes);
    if (shape == NULL)
        return false;
    if (format != SHAPE_PRESERVE)
        return shape_format_strides(format, t->ndim, t->sizes, shape->strides);
    shape_preserved_strides(t, shape->strides);
    return true;
}
