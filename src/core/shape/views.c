/* Shape rules of views: the argument's memory with other sizes, strides and offset. */
#include "core/shape/shape_priv.h"

static bool
give(shape_call *c, const shape_tensor *t)
{
    kin_shape *out = shape_add_view(c, t, t->ndim);
    if (out == NULL)
        return false;
    memcpy(out->sizes, t->sizes, sizeof t->sizes);
    memcpy(out->strides, t->strides, sizeof t->strides);
    return true;
}

static void
remove_dim(shape_tensor *t, unsigned d)
{
    t->ndim--;
    for (; d < t->ndim; d++) {
        t->sizes[d] = t->sizes[d + 1];
        t->strides[d] = t->strides[d + 1];
    }
    t->sizes[t->ndim] = t->strides[t->ndim] = 0;
}

bool
shape_alias(shape_call *c, int row)
{
    shape_tensor t;
    return shape_read(c, 0, "self", &t) && give(c, &t);
}

/* -- other sizes -------------------------------------------------------------------------------------------------- */

/* Puts the number for a -1 in; false when the sizes do not hold that many elements. */
static bool
infer_sizes(int64_t *sizes, int ndim, int64_t numel)
{
    int64_t known = 1;
    int open = -1;
    for (int i = 0; i < ndim; i++) {
        if (sizes[i] >= 0)
            known *= sizes[i];
        else if (sizes[i] != -1 || open >= 0)
            return false;
        else
            open = i;
    }
    if (open < 0)
        return known == numel;
    if (known == 0 || numel % known != 0)
        return false;
    sizes[open] = numel / known;
    return true;
}

static void
empty_view_strides(const shape_tensor *t, kin_shape *out)
{
    if (t->ndim == out->ndim && memcmp(t->sizes, out->sizes, t->ndim * sizeof *t->sizes) == 0)
        memcpy(out->strides, t->strides, t->ndim * sizeof *t->strides);
    else
        shape_contiguous_strides(out->ndim, out->sizes, out->strides);
}

/* Stretches of dims that lie evenly in memory are cut anew, innermost first; false when a new dim would cross one. */
bool
shape_view_strides(const shape_tensor *t, kin_shape *out)
{
    if (shape_numel(t->ndim, t->sizes) == 0) {
        empty_view_strides(t, out);
        return true;
    }
    int to = (int)out->ndim - 1;
    int64_t base = t->ndim > 0 ? t->strides[t->ndim - 1] : 1, have = 1, made = 1;
    for (int d = (int)t->ndim - 1; d >= 0; d--) {
        have *= t->sizes[d];
        if (d > 0 && (t->sizes[d - 1] == 1 || t->strides[d - 1] == have * base))
            continue;
        for (; to >= 0 && (made < have || out->sizes[to] == 1); to--) {
            out->strides[to] = made * base;
            made *= out->sizes[to];
        }
        if (made != have)
            return false;
        if (d > 0)
            base = t->strides[d - 1];
        have = made = 1;
    }
    for (; t->ndim == 0 && to >= 0; to--)
        out->strides[to] = 1;
    return to < 0;
}

bool
shape_view(shape_call *c, int row)
{
    shape_tensor t;
    int64_t sizes[KIN_IR_MAX_DIMS];
    int ndim = shape_ints(c, 1, "size", sizes);
    if (!shape_read(c, 0, "self", &t) || ndim < 0)
        return false;
    if (!infer_sizes(sizes, ndim, shape_numel(t.ndim, t.sizes)))
        return false;
    kin_shape *out = shape_add_view(c, &t, (unsigned)ndim);
    if (out == NULL)
        return false;
    if (ndim > 0)
        memcpy(out->sizes, sizes, (size_t)ndim * sizeof *sizes);
    return shape_view_strides(&t, out);
}

bool
shape_expand(shape_call *c, int row)
{
    shape_tensor t;
    int64_t sizes[KIN_IR_MAX_DIMS];
    int ndim = shape_ints(c, 1, "size", sizes);
    if (!shape_read(c, 0, "self", &t) || ndim < (int)t.ndim)
        return false;
    kin_shape *out = shape_add_view(c, &t, (unsigned)ndim);
    if (out == NULL)
        return false;
    unsigned added = (unsigned)ndim - t.ndim;
    for (unsigned i = (unsigned)ndim; i-- > 0;) {
        int64_t size = i >= added ? t.sizes[i - added] : 1;
        int64_t stride = t.ndim == 0 ? 0 : i >= added ? t.strides[i - added] : out->sizes[i + 1] * out->strides[i + 1];
        bool keep = sizes[i] == -1 && i >= added;
        if (!keep && (sizes[i] < 0 || (sizes[i] != size && size != 1)))
            return false;
        out->sizes[i] = keep ? size : sizes[i];
        out->strides[i] = out->sizes[i] == size ? stride : 0;
    }
    return true;
}

bool
shape_unsqueeze(shape_call *c, int row)
{
    shape_tensor t;
    int64_t dim;
    unsigned at;
    if (!shape_read(c, 0, "self", &t) || !shape_int(c, 1, "dim", INT64_MAX, &dim) || t.ndim + 1 > KIN_IR_MAX_DIMS ||
        !shape_dim(dim, t.ndim + 1, &at))
        return false;
    int64_t stride = at < t.ndim ? t.sizes[at] * t.strides[at] : 1;
    for (unsigned d = t.ndim++; d > at; d--) {
        t.sizes[d] = t.sizes[d - 1];
        t.strides[d] = t.strides[d - 1];
    }
    t.sizes[at] = 1;
    t.strides[at] = stride;
    return give(c, &t);
}

bool
shape_squeeze(shape_call *c, int row)
{
    shape_tensor t;
    int64_t dims[KIN_IR_MAX_DIMS];
    bool chosen[KIN_IR_MAX_DIMS + 1] = {false};
    int count = row == 0 ? 0 : shape_ints(c, 1, "dim", dims);
    if (!shape_read(c, 0, "self", &t) || count < 0)
        return false;
    for (int i = 0; i < count; i++) {
        unsigned d;
        if (!shape_dim(dims[i], t.ndim, &d) || chosen[d])
            return false;
        chosen[d] = true;
    }
    for (unsigned d = t.ndim; d-- > 0;)
        if (t.sizes[d] == 1 && (row == 0 || chosen[d]))
            remove_dim(&t, d);
    return give(c, &t);
}

/* -- other order -------------------------------------------------------------------------------------------------- */

bool
shape_permute(shape_call *c, int row)
{
    shape_tensor t;
    int64_t dims[KIN_IR_MAX_DIMS];
    bool used[KIN_IR_MAX_DIMS + 1] = {false};
    int count = shape_ints(c, 1, "dims", dims);
    if (!shape_read(c, 0, "self", &t) || count != (int)t.ndim)
        return false;
    kin_shape *out = shape_add_view(c, &t, t.ndim);
    for (int i = 0; out != NULL && i < count; i++) {
        unsigned d;
        if (!shape_dim(dims[i], t.ndim, &d) || used[d])
            return false;
        used[d] = true;
        out->sizes[i] = t.sizes[d];
        out->strides[i] = t.strides[d];
    }
    return out != NULL;
}

bool
shape_transpose(shape_call *c, int row)
{
    shape_tensor t;
    int64_t first = 0, second = 1;
    unsigned a, b;
    if (!shape_read(c, 0, "self", &t) || (row == 1 && t.ndim > 2))
        return false;
    if (row == 0 && (!shape_int(c, 1, "dim0", INT64_MAX, &first) || !shape_int(c, 2, "dim1", INT64_MAX, &second)))
        return false;
    if (row == 1 && t.ndim < 2)
        return give(c, &t);
    if (!shape_dim(first, t.ndim, &a) || !shape_dim(second, t.ndim, &b))
        return false;
    int64_t size = t.sizes[a], stride = t.strides[a];
    t.sizes[a] = t.sizes[b];
    t.strides[a] = t.strides[b];
    t.sizes[b] = size;
    t.strides[b] = stride;
    return give(c, &t);
}

bool
shape_diagonal(shape_call *c, int row)
{
    shape_tensor t;
    int64_t offset, first, second;
    unsigned a, b;
    if (!shape_read(c, 0, "self", &t) || !shape_int(c, 1, "offset", 0, &offset) || !shape_int(c, 2, "dim1", 0, &first) ||
        !shape_int(c, 3, "dim2", 1, &second) || t.ndim < 2 || !shape_dim(first, t.ndim, &a) ||
        !shape_dim(second, t.ndim, &b) || a == b)
        return false;
    int64_t rows = t.sizes[a] - (offset < 0 ? -offset : 0), columns = t.sizes[b] - (offset > 0 ? offset : 0);
    int64_t size = rows < columns ? rows : columns, stride = t.strides[a] + t.strides[b];
    if (size > 0)
        t.offset += offset < 0 ? -offset * t.strides[a] : offset * t.strides[b];
    remove_dim(&t, a > b ? a : b);
    remove_dim(&t, a > b ? b : a);
    t.sizes[t.ndim] = size > 0 ? size : 0;
    t.strides[t.ndim++] = stride;
    return give(c, &t);
}

/* -- parts -------------------------------------------------------------------------------------------------------- */

/* From the end when negative, then into the dim. */
static int64_t
bound(int64_t at, int64_t size)
{
    if (at < 0)
        at += size;
    return at < 0 ? 0 : at > size ? size : at;
}

static bool
read_dim(shape_call *c, unsigned at, const char *keyword, shape_tensor *t, unsigned *d)
{
    int64_t dim;
    return shape_read(c, 0, "self", t) && t->ndim > 0 && shape_int(c, at, keyword, 0, &dim) && shape_dim(dim, t->ndim, d);
}

bool
shape_slice(shape_call *c, int row)
{
    shape_tensor t;
    unsigned d;
    int64_t start, end, step;
    if (!read_dim(c, 1, "dim", &t, &d) || !shape_int(c, 2, "start", 0, &start) || !shape_int(c, 3, "end", INT64_MAX, &end) ||
        !shape_int(c, 4, "step", 1, &step) || step <= 0)
        return false;
    start = bound(start, t.sizes[d]);
    end = bound(end, t.sizes[d]);
    int64_t len = end > start ? end - start : 0;
    t.offset += start * t.strides[d];
    t.sizes[d] = len / step + (len % step != 0);
    t.strides[d] *= step;
    return give(c, &t);
}

bool
shape_select(shape_call *c, int row)
{
    shape_tensor t;
    unsigned d;
    int64_t index;
    if (!read_dim(c, 1, "dim", &t, &d) || !shape_int(c, 2, "index", INT64_MAX, &index))
        return false;
    index += index < 0 ? t.sizes[d] : 0;
    if (index < 0 || index >= t.sizes[d])
        return false;
    t.offset += index * t.strides[d];
    remove_dim(&t, d);
    return give(c, &t);
}

bool
shape_unbind(shape_call *c, int row)
{
    shape_tensor t;
    unsigned d;
    if (!read_dim(c, 1, "dim", &t, &d))
        return false;
    int64_t count = t.sizes[d], stride = t.strides[d];
    remove_dim(&t, d);
    c->out->list = true;
    for (int64_t i = 0; i < count; i++, t.offset += stride)
        if (!give(c, &t))
            return false;
    return true;
}

/* Parts of these sizes, one behind the other. */
static bool
give_parts(shape_call *c, shape_tensor *t, unsigned d, const int64_t *sizes, int64_t equal, int64_t count)
{
    int64_t left = t->sizes[d];
    c->out->list = true;
    for (int64_t i = 0; i < count; i++) {
        int64_t size = sizes != NULL ? sizes[i] : equal < left ? equal : left;
        if (size < 0 || size > left)
            return false;
        left -= size;
        t->sizes[d] = size;
        if (!give(c, t))
            return false;
        t->offset += size * t->strides[d];
    }
    return left == 0;
}

bool
shape_split(shape_call *c, int row)
{
    shape_tensor t;
    unsigned d;
    int64_t size, sizes[KIN_IR_MAX_DIMS];
    if (!read_dim(c, 2, "dim", &t, &d))
        return false;
    if (row == 1) {
        int count = shape_ints(c, 1, "split_sizes", sizes);
        return count > 0 && give_parts(c, &t, d, sizes, 0, count);
    }
    if (!shape_int(c, 1, "split_size", 0, &size) || size <= 0)
        return false;
    int64_t count = (t.sizes[d] + size - 1) / size;
    return give_parts(c, &t, d, NULL, size, count > 0 ? count : 1);
}

bool
shape_as_strided(shape_call *c, int row)
{
    shape_tensor t;
    int64_t sizes[KIN_IR_MAX_DIMS], strides[KIN_IR_MAX_DIMS], offset;
    int ndim = shape_ints(c, 1, "size", sizes), same = shape_ints(c, 2, "stride", strides);
    if (!shape_read(c, 0, "self", &t) || ndim < 0 || ndim != same || !shape_int(c, 3, "storage_offset", t.offset, &offset))
        return false;
    /* The memory reaches at least as far as the argument does. */
    int64_t last = offset, reach = t.offset;
    for (unsigned d = 0; d < t.ndim; d++)
        reach += (t.sizes[d] - 1) * t.strides[d];
    for (int d = 0; d < ndim; d++) {
        if (sizes[d] <= 0 || strides[d] < 0)
            return false;
        last += (sizes[d] - 1) * strides[d];
    }
    kin_shape *out = offset < 0 || last > reach ? NULL : shape_add_view(c, &t, (unsigned)ndim);
    if (out == NULL)
        return false;
    memcpy(out->sizes, sizes, (size_t)ndim * sizeof *sizes);
    memcpy(out->strides, strides, (size_t)ndim * sizeof *strides);
    out->offset = offset;
    return true;
}

bool
shape_unfold(shape_call *c, int row)
{
    shape_tensor t;
    unsigned d;
    int64_t size, step;
    if (!read_dim(c, 1, "dimension", &t, &d) || !shape_int(c, 2, "size", -1, &size) || !shape_int(c, 3, "step", 0, &step) ||
        size < 0 || step <= 0 || size > t.sizes[d] || t.ndim + 1 > KIN_IR_MAX_DIMS)
        return false;
    t.sizes[t.ndim] = size;
    t.strides[t.ndim++] = t.strides[d];
    t.sizes[d] = (t.sizes[d] - size) / step + 1;
    t.strides[d] *= step;
    return give(c, &t);
}
