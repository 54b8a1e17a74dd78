/* Shape rules of operators that return a new, row-major tensor with some elements replaced; and of weight norms. */
#include "core/shape/shape_priv.h"

/* self, dim, index of as many dims, with places for each of its elements. */
static bool
read_scatter(const shape_call *c, shape_tensor *t, shape_tensor *index, unsigned *dim)
{
    int64_t given;
    if (!shape_read(c, 0, "self", t) || !shape_int(c, 1, "dim", INT64_MAX, &given) || !shape_dim(given, t->ndim, dim) ||
        !shape_read(c, 2, "index", index) || index->dtype != KIN_I64 || t->ndim == 0 || index->ndim != t->ndim ||
        shape_is_complex(t->dtype) || shape_numel(index->ndim, index->sizes) == 0 || shape_numel(t->ndim, t->sizes) == 0)
        return false;
    for (unsigned d = 0; d < t->ndim; d++)
        if (d != *dim && index->sizes[d] > t->sizes[d])
            return false;
    return true;
}

/* (self, dim, index, src or value [, reduce]) */
bool
shape_scatter(shape_call *c, int takes_value)
{
    shape_tensor t, index, source;
    unsigned dim;
    if (!read_scatter(c, &t, &index, &dim))
        return false;
    if (takes_value)
        return shape_operand(c, shape_arg(c, 3, "value"), &source) && source.val == 0 &&
               shape_add_contiguous(c, t.dtype, t.ndim, t.sizes);
    if (!shape_read(c, 3, "src", &source) || source.dtype != t.dtype || source.ndim != t.ndim)
        return false;
    for (unsigned d = 0; d < t.ndim; d++)
        if (index.sizes[d] > source.sizes[d])
            return false;
    return shape_add_contiguous(c, t.dtype, t.ndim, t.sizes);
}

/* (self, dim, index, source): a one-dimensional index. */
bool
shape_index_add(shape_call *c, int has_alpha)
{
    shape_tensor t, index, source;
    int64_t given;
    unsigned dim;
    const kin_aten_arg *alpha = has_alpha ? shape_arg(c, UINT32_MAX, "alpha") : NULL;
    if (!shape_read(c, 0, "self", &t) || !shape_int(c, 1, "dim", INT64_MAX, &given) || !shape_dim(given, t.ndim, &dim) ||
        !shape_read(c, 2, "index", &index) || index.ndim != 1 || (index.dtype != KIN_I64 && (!has_alpha || index.dtype != KIN_I32)) ||
        !shape_read(c, 3, "source", &source) || source.dtype != t.dtype || source.ndim != t.ndim || t.ndim == 0 ||
        shape_numel(t.ndim, t.sizes) == 0 || source.sizes[dim] != index.sizes[0] || shape_is_complex(t.dtype))
        return false;
    if (alpha != NULL && alpha->kind != KIN_ATEN_INT && !(alpha->kind == KIN_ATEN_FLOAT && kin_dtype_is_float(t.dtype)))
        return false;
    for (unsigned d = 0; d < t.ndim; d++)
        if (d != dim && source.sizes[d] != t.sizes[d])
            return false;
    return shape_add_contiguous(c, t.dtype, t.ndim, t.sizes);
}

/* weight_norm: (v, g, dim) -> weight, norms */
bool
shape_weight_norm(shape_call *c, int row)
{
    shape_tensor v, g;
    int64_t given;
    unsigned dim;
    if (!shape_read(c, 0, "v", &v) || !shape_read(c, 1, "g", &g) || !shape_int(c, 2, "dim", 0, &given) ||
        !shape_dim(given, v.ndim, &dim) || v.dtype != g.dtype || (v.dtype != KIN_F32 && v.dtype != KIN_F64) ||
        g.ndim != v.ndim || v.ndim == 0 || shape_numel(v.ndim, v.sizes) == 0 || !shape_is_contiguous(&v) || !shape_is_contiguous(&g) || dim != 0)
        return false;
    for (unsigned d = 0; d < v.ndim; d++)
        if (g.sizes[d] != (d == dim ? v.sizes[d] : 1))
            return false;
    return shape_add_contiguous(c, v.dtype, v.ndim, v.sizes) && shape_add_like(c, &g, g.dtype, SHAPE_PRESERVE);
}
