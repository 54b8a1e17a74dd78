/* Shape rules of reductions, scans, sorting and softmax: row-major results. */
#include "core/shape/shape_priv.h"

static kin_dtype
sum_dtype(kin_dtype dtype)
{
    return dtype == KIN_BOOL || kin_dtype_is_integer(dtype) ? KIN_I64 : dtype;
}

/* The result's dtype, by the kind of reduction; false when the argument's dtype is not for it. */
static bool
reduced_dtype(const shape_call *c, int kind, const shape_tensor *t, kin_dtype *out)
{
    bool is_float = kin_dtype_is_float(t->dtype);
    *out = t->dtype;
    switch (kind) {
    case REDUCE_SUM:
        return shape_dtype(c, UINT32_MAX, "dtype", sum_dtype(t->dtype), out) && !shape_is_complex(*out);
    case REDUCE_MEAN:
        return shape_dtype(c, UINT32_MAX, "dtype", t->dtype, out) && kin_dtype_is_float(*out);
    case REDUCE_ANY:
        *out = t->dtype == KIN_U8 ? KIN_U8 : KIN_BOOL;
        return true;
    case REDUCE_COUNT:
        *out = KIN_I64;
        return true;
    case REDUCE_ARG:
        *out = KIN_I64;
        return t->dtype != KIN_BOOL && shape_numel(t->ndim, t->sizes) > 0;
    case REDUCE_LOGSUMEXP:
        return is_float;
    default:
        return shape_numel(t->ndim, t->sizes) > 0;
    }
}

/* Marks what is reduced; no list, and for most an empty one, means all dims. */
static bool
choose_dims(const shape_call *c, unsigned at, const shape_tensor *t, bool *chosen)
{
    int64_t dims[KIN_IR_MAX_DIMS];
    int count = shape_arg(c, at, "dim") == NULL ? 0 : shape_ints(c, at, "dim", dims);
    for (int i = 0; i < count; i++) {
        unsigned d;
        if (!shape_dim(dims[i], t->ndim, &d) || chosen[d])
            return false;
        chosen[d] = true;
    }
    for (unsigned d = 0; count == 0 && d < t->ndim; d++)
        chosen[d] = true;
    return count >= 0;
}

static void
drop_dims(shape_tensor *t, const bool *chosen, bool keep)
{
    unsigned to = 0;
    for (unsigned d = 0; d < t->ndim; d++)
        if (!chosen[d] || keep)
            t->sizes[to++] = chosen[d] ? 1 : t->sizes[d];
    t->ndim = to;
}

bool
shape_reduce_all(shape_call *c, int kind)
{
    shape_tensor t;
    kin_dtype dtype;
    return shape_read(c, 0, "self", &t) && !shape_is_complex(t.dtype) && reduced_dtype(c, kind, &t, &dtype) &&
           shape_add_contiguous(c, dtype, 0, NULL);
}

bool
shape_reduce(shape_call *c, int kind)
{
    shape_tensor t;
    kin_dtype dtype;
    bool chosen[KIN_IR_MAX_DIMS + 1] = {false}, keep;
    if (!shape_read(c, 0, "self", &t) || shape_is_complex(t.dtype) || !reduced_dtype(c, kind, &t, &dtype) ||
        !choose_dims(c, 1, &t, chosen) || !shape_bool(c, 2, "keepdim", false, &keep))
        return false;
    const kin_aten_arg *dims = shape_arg(c, 1, "dim");
    if ((kind == REDUCE_ANY || kind == REDUCE_LOGSUMEXP) && dims != NULL && dims->kind == KIN_ATEN_LIST && dims->list.count == 0)
        return false;
    drop_dims(&t, chosen, keep);
    return shape_add_contiguous(c, dtype, t.ndim, t.sizes) &&
           (kind != REDUCE_WITH_INDEX || shape_add_contiguous(c, KIN_I64, t.ndim, t.sizes));
}

/* (self, dim, keepdim): of all, or along one dim */
bool
shape_aminmax(shape_call *c, int row)
{
    shape_tensor t;
    int64_t dim;
    unsigned d;
    bool keep, chosen[KIN_IR_MAX_DIMS + 1] = {false}, all = shape_arg(c, UINT32_MAX, "dim") == NULL;
    if (!shape_read(c, 0, "self", &t) || shape_is_complex(t.dtype) || shape_numel(t.ndim, t.sizes) == 0 || !shape_bool(c, UINT32_MAX, "keepdim", false, &keep) ||
        (!all && (!shape_int(c, UINT32_MAX, "dim", 0, &dim) || !shape_dim(dim, t.ndim, &d))))
        return false;
    for (unsigned k = 0; k < t.ndim; k++)
        chosen[k] = all || k == d;
    drop_dims(&t, chosen, keep);
    return shape_add_contiguous(c, t.dtype, t.ndim, t.sizes) && shape_add_contiguous(c, t.dtype, t.ndim, t.sizes);
}

/* (self, dim, correction, keepdim); too few elements for the correction: a warning. */
bool
shape_var(shape_call *c, int results)
{
    shape_tensor t;
    bool chosen[KIN_IR_MAX_DIMS + 1] = {false}, keep, ok = true;
    const kin_aten_arg *correction = shape_arg(c, UINT32_MAX, "correction");
    double less = correction == NULL ? 1 : correction->kind == KIN_ATEN_FLOAT ? correction->f : (double)correction->i;
    if (!shape_read(c, 0, "self", &t) || !kin_dtype_is_float(t.dtype) || !choose_dims(c, 1, &t, chosen) ||
        !shape_bool(c, UINT32_MAX, "keepdim", false, &keep))
        return false;
    int64_t count = 1;
    for (unsigned d = 0; d < t.ndim; d++)
        count *= chosen[d] ? t.sizes[d] : 1;
    if (!((double)count > less))
        return false;
    drop_dims(&t, chosen, keep);
    for (int i = 0; i < results; i++)
        ok = ok && shape_add_contiguous(c, t.dtype, t.ndim, t.sizes);
    return ok;
}

/* (self, ord, dim, keepdim, dtype) */
bool
shape_norm(shape_call *c, int row)
{
    shape_tensor t;
    bool chosen[KIN_IR_MAX_DIMS + 1] = {false}, keep;
    if (!shape_read(c, 0, "self", &t) || !kin_dtype_is_float(t.dtype) || shape_arg(c, UINT32_MAX, "dtype") != NULL ||
        shape_numel(t.ndim, t.sizes) == 0 || !choose_dims(c, 2, &t, chosen) || !shape_bool(c, 3, "keepdim", false, &keep))
        return false;
    drop_dims(&t, chosen, keep);
    return shape_add_contiguous(c, t.dtype, t.ndim, t.sizes);
}

static bool
read_along(shape_call *c, unsigned at, shape_tensor *t, unsigned *d)
{
    int64_t dim;
    return shape_read(c, 0, "self", t) && !shape_is_complex(t->dtype) && shape_int(c, at, "dim", -1, &dim) &&
           shape_dim(dim, t->ndim, d);
}

bool
shape_cumsum(shape_call *c, int row)
{
    shape_tensor t;
    unsigned d;
    kin_dtype dtype;
    return read_along(c, 1, &t, &d) && shape_dtype(c, UINT32_MAX, "dtype", sum_dtype(t.dtype), &dtype) &&
           dtype != KIN_BOOL && !shape_is_complex(dtype) && shape_add_contiguous(c, dtype, t.ndim, t.sizes);
}

bool
shape_softmax(shape_call *c, int row)
{
    shape_tensor t;
    unsigned d;
    bool to_float;
    return read_along(c, 1, &t, &d) && kin_dtype_is_float(t.dtype) && shape_bool(c, 2, "half_to_float", false, &to_float) &&
           !to_float && shape_add_contiguous(c, t.dtype, t.ndim, t.sizes);
}

/* Ends in a choice between the softmax and zero, by row. */
bool
shape_safe_softmax(shape_call *c, int row)
{
    shape_tensor t;
    unsigned d;
    kin_dtype dtype;
    return read_along(c, 1, &t, &d) && shape_dtype(c, 2, "dtype", t.dtype, &dtype) && dtype == t.dtype &&
           kin_dtype_is_float(dtype) && shape_numel(t.ndim, t.sizes) > 0 &&
           shape_add_contiguous(c, dtype, t.ndim, t.sizes);
}

bool
shape_topk(shape_call *c, int row)
{
    shape_tensor t;
    unsigned d;
    int64_t k;
    if (!read_along(c, 2, &t, &d) || t.ndim == 0 || !shape_int(c, 1, "k", -1, &k) || k < 0 || k > t.sizes[d] ||
        t.dtype == KIN_BOOL)
        return false;
    t.sizes[d] = k;
    return shape_add_contiguous(c, t.dtype, t.ndim, t.sizes) && shape_add_contiguous(c, KIN_I64, t.ndim, t.sizes);
}

bool
shape_sort(shape_call *c, int at)
{
    shape_tensor t;
    unsigned d;
    return read_along(c, (unsigned)at, &t, &d) && t.ndim > 0 && shape_add_like(c, &t, t.dtype, SHAPE_PRESERVE) &&
           shape_add_like(c, &t, KIN_I64, SHAPE_PRESERVE);
}

static bool
read_number(const shape_call *c, unsigned at, const char *keyword, double otherwise, double *out)
{
    const kin_aten_arg *a = shape_arg(c, at, keyword);
    *out = a == NULL ? otherwise : a->kind == KIN_ATEN_FLOAT ? a->f : (double)a->i;
    return a == NULL || a->kind == KIN_ATEN_FLOAT || a->kind == KIN_ATEN_INT;
}

/* (self, bins, min, max) */
bool
shape_histc(shape_call *c, int row)
{
    shape_tensor t;
    int64_t bins;
    double least, most;
    return shape_read(c, 0, "self", &t) && (t.dtype == KIN_F32 || t.dtype == KIN_F64) && shape_int(c, 1, "bins", 100, &bins) && bins > 0 &&
           read_number(c, 2, "min", 0, &least) && read_number(c, 3, "max", 0, &most) && least <= most &&
           shape_add_contiguous(c, t.dtype, 1, &bins);
}
