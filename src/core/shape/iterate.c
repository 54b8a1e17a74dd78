/* Layout of results that are computed element by element from several tensors. If all of them have the same layout, the result has it too;
 * otherwise dims are ordered as in the strides of the first tensor that determines an order.
 */
#include "core/shape/shape_priv.h"

void
shape_cast(shape_tensor *t, kin_dtype dtype)
{
    if (t->val == 0 || t->dtype == dtype)
        return;
    t->dtype = dtype;
    int64_t strides[KIN_IR_MAX_DIMS];
    shape_preserved_strides(t, strides);
    memcpy(t->strides, strides, t->ndim * sizeof *strides);
}

bool
shape_broadcast(const shape_tensor *t, unsigned count, unsigned *ndim, int64_t *sizes)
{
    unsigned n = 0;
    for (unsigned i = 0; i < count; i++)
        n = t[i].ndim > n ? t[i].ndim : n;
    for (unsigned d = 0; d < n; d++)
        sizes[d] = 1;
    for (unsigned i = 0; i < count; i++)
        for (unsigned k = 0; k < t[i].ndim; k++) {
            int64_t *to = &sizes[n - t[i].ndim + k], size = t[i].sizes[k];
            if (*to == 1)
                *to = size;
            else if (size != *to && size != 1)
                return false;
        }
    *ndim = n;
    return true;
}

/* All have the same sizes: the layout that they share, if they do. */
static bool
take_shared_layout(const shape_tensor *t, unsigned count, kin_shape *out)
{
    bool contiguous = true, last = true, dense = true, equal = true;
    for (unsigned i = 0; i < count; i++) {
        if (t[i].ndim != t[0].ndim || memcmp(t[i].sizes, t[0].sizes, t[0].ndim * sizeof(int64_t)) != 0)
            return false;
        contiguous = contiguous && shape_is_contiguous(&t[i]);
        last = last && shape_is_channels_last(&t[i]);
        dense = dense && shape_is_dense(&t[i]);
        equal = equal && memcmp(t[i].strides, t[0].strides, t[0].ndim * sizeof(int64_t)) == 0;
    }
    if (contiguous || last)
        return shape_format_strides(contiguous ? SHAPE_CONTIGUOUS : SHAPE_CHANNELS_LAST, out->ndim, out->sizes, out->strides);
    if (dense && equal)
        memcpy(out->strides, t[0].strides, out->ndim * sizeof(int64_t));
    return dense && equal;
}

/* 1: dim a comes after dim b (inner ones come first), -1: before, 0: nobody says. */
static int
compare_dims(const shape_tensor *t, unsigned count, const kin_shape *out, unsigned a, unsigned b)
{
    for (unsigned i = 0; i < count; i++) {
        unsigned skip = out->ndim - t[i].ndim;
        if (a < skip || b < skip)
            continue;
        int64_t sa = t[i].sizes[a - skip] == 1 && out->sizes[a] != 1 ? 0 : t[i].strides[a - skip];
        int64_t sb = t[i].sizes[b - skip] == 1 && out->sizes[b] != 1 ? 0 : t[i].strides[b - skip];
        if (sa == 0 || sb == 0)
            continue;
        if (sa != sb)
            return sa < sb ? -1 : 1;
        if (out->sizes[a] > out->sizes[b])
            return 1;
    }
    return 0;
}

static void
order_dims(const shape_tensor *t, unsigned count, kin_shape *out)
{
    unsigned perm[KIN_IR_MAX_DIMS];
    for (unsigned d = 0; d < out->ndim; d++)
        perm[d] = out->ndim - 1 - d;
    for (unsigned i = 1; i < out->ndim; i++)
        for (unsigned at = i, j = i; j-- > 0;) {
            int order = compare_dims(t, count, out, perm[j], perm[at]);
            if (order < 0)
                break;
            if (order == 0)
                continue;
            unsigned swapped = perm[j];
            perm[j] = perm[at];
            perm[at] = swapped;
            at = j;
        }
    bool row_major = true;
    int64_t next = 1;
    for (unsigned k = 0; k < out->ndim; k++) {
        row_major = row_major && perm[k] == out->ndim - 1 - k;
        out->strides[perm[k]] = next;
        next *= out->sizes[perm[k]];
    }
    if (row_major)
        shape_contiguous_strides(out->ndim, out->sizes, out->strides);
}

bool
shape_iterate(shape_call *c, shape_tensor *operands, unsigned count, kin_dtype dtype)
{
    int64_t sizes[KIN_IR_MAX_DIMS];
    unsigned ndim;
    if (!shape_broadcast(operands, count, &ndim, sizes))
        return false;
    kin_shape *out = shape_add(c, dtype, ndim, sizes);
    if (out != NULL && !take_shared_layout(operands, count, out))
        order_dims(operands, count, out);
    return out != NULL;
}
