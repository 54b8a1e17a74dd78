/* Shape rules of operators that create tensors from numbers, and of copies. */
#include "core/shape/shape_priv.h"

#include <math.h>

/* Memory that is pinned is another kind. */
static bool
is_ordinary(const shape_call *c)
{
    const kin_aten_arg *pinned = shape_arg(c, UINT32_MAX, "pin_memory");
    return pinned == NULL || (pinned->kind == KIN_ATEN_BOOL && pinned->i == 0);
}

static kin_dtype
dtype_of_number(const shape_call *c, const kin_aten_arg *a)
{
    return a->kind == KIN_ATEN_BOOL ? KIN_BOOL : a->kind == KIN_ATEN_INT ? KIN_I64 : shape_default(c);
}

static bool
is_number(const kin_aten_arg *a)
{
    return a != NULL && (a->kind == KIN_ATEN_BOOL || a->kind == KIN_ATEN_INT || a->kind == KIN_ATEN_FLOAT);
}

bool
shape_filled(shape_call *c, int row)
{
    int64_t sizes[KIN_IR_MAX_DIMS];
    unsigned ndim;
    shape_format format;
    kin_dtype dtype = shape_default(c);
    const kin_aten_arg *value = row == 1 ? shape_arg(c, 1, "fill_value") : NULL;
    if (row == 1 && !is_number(value))
        return false;
    if (row == 1)
        dtype = dtype_of_number(c, value);
    if (!is_ordinary(c) || !shape_sizes(c, 0, sizes, &ndim) || !shape_dtype(c, UINT32_MAX, "dtype", dtype, &dtype) ||
        !shape_format_arg(c, UINT32_MAX, SHAPE_CONTIGUOUS, &format))
        return false;
    kin_shape *out = shape_add(c, dtype, ndim, sizes);
    return out != NULL && shape_format_strides(format, ndim, sizes, out->strides);
}

bool
shape_scalar(shape_call *c, int row)
{
    kin_dtype dtype;
    return is_ordinary(c) && is_number(shape_arg(c, 0, "s")) &&
           shape_dtype(c, UINT32_MAX, "dtype", shape_default(c), &dtype) && shape_add_contiguous(c, dtype, 0, NULL);
}

bool
shape_new(shape_call *c, int row)
{
    shape_tensor t;
    int64_t sizes[KIN_IR_MAX_DIMS];
    unsigned ndim;
    kin_dtype dtype;
    return shape_read(c, 0, "self", &t) && is_ordinary(c) && shape_sizes(c, 1, sizes, &ndim) &&
           shape_dtype(c, UINT32_MAX, "dtype", t.dtype, &dtype) && shape_add_contiguous(c, dtype, ndim, sizes);
}

bool
shape_like(shape_call *c, int row)
{
    shape_tensor t;
    kin_dtype dtype;
    shape_format format;
    if (!shape_read(c, 0, "self", &t) || !is_ordinary(c) || !shape_dtype(c, UINT32_MAX, "dtype", t.dtype, &dtype) ||
        !shape_format_arg(c, UINT32_MAX, SHAPE_PRESERVE, &format))
        return false;
    if (shape_is_complex(t.dtype) && !shape_is_complex(dtype))
        return false; /* a warning */
    return shape_add_like(c, &t, dtype, format);
}

/* Random numbers are floats; row: 1 = like a tensor. */
bool
shape_random(shape_call *c, int row)
{
    shape_tensor t;
    kin_dtype otherwise = shape_default(c), dtype;
    if (row == 1 && shape_read(c, 0, "self", &t))
        otherwise = t.dtype;
    return shape_dtype(c, UINT32_MAX, "dtype", otherwise, &dtype) && kin_dtype_is_float(dtype) &&
           (row == 1 ? shape_like(c, 0) : shape_filled(c, 0));
}

static double
number_at(const shape_call *c, unsigned at, double otherwise, bool *ok, bool *whole)
{
    const kin_aten_arg *a = shape_arg(c, at, "");
    if (a == NULL)
        return otherwise;
    *ok = *ok && (a->kind == KIN_ATEN_INT || a->kind == KIN_ATEN_FLOAT);
    *whole = *whole && a->kind == KIN_ATEN_INT;
    return a->kind == KIN_ATEN_FLOAT ? a->f : (double)a->i;
}

bool
shape_arange(shape_call *c, int row)
{
    bool ok = true, whole = true;
    double start = row > 0 ? number_at(c, 0, 0, &ok, &whole) : 0, end = number_at(c, row > 0 ? 1 : 0, 0, &ok, &whole);
    double step = row > 1 ? number_at(c, 2, 1, &ok, &whole) : 1;
    kin_dtype dtype;
    if (!ok || !is_ordinary(c) || !shape_dtype(c, UINT32_MAX, "dtype", whole ? KIN_I64 : shape_default(c), &dtype))
        return false;
    double count = step == 0 ? NAN : ceil((end - start) / step);
    if ((end - start) * step < 0)
        return false;
    bool exact = fabs(start) < 1e15 && fabs(end) < 1e15 && fabs(step) < 1e15 && count >= 0 && count < 1e15;
    /* Integers made of parts of numbers: they are cut before, in a way of its own. */
    if (!exact || (!whole && !kin_dtype_is_float(dtype)) || shape_is_complex(dtype) || dtype == KIN_BOOL)
        return false;
    return shape_add_contiguous(c, dtype, 1, (int64_t[]){(int64_t)count});
}

bool
shape_eye(shape_call *c, int row)
{
    int64_t sizes[2];
    kin_dtype dtype;
    if (!is_ordinary(c) || !shape_int(c, 0, "n", -1, &sizes[0]) || !shape_int(c, row == 2 ? 1 : 0, "m", -1, &sizes[1]) ||
        sizes[0] < 0 || sizes[1] < 0 || !shape_dtype(c, UINT32_MAX, "dtype", shape_default(c), &dtype))
        return false;
    return shape_add_contiguous(c, dtype, 2, sizes);
}

/* Rows and columns of what lies below a diagonal of a matrix (above: row 1), in two rows. */
bool
shape_triangle_indices(shape_call *c, int above)
{
    int64_t rows, columns, offset, count = 0;
    kin_dtype dtype;
    if (!is_ordinary(c) || !shape_int(c, 0, "row", -1, &rows) || !shape_int(c, 1, "col", -1, &columns) || !shape_int(c, 2, "offset", 0, &offset) ||
        rows < 0 || columns < 0 || rows > 1 << 16 || columns > 1 << 20 || offset > 1 << 20 || offset < -(1 << 20) ||
        !shape_dtype(c, UINT32_MAX, "dtype", KIN_I64, &dtype) || (dtype != KIN_I64 && dtype != KIN_I32))
        return false;
    for (int64_t i = 0; i < rows; i++) {
        int64_t below = i + offset + !above; /* columns left of the diagonal, with it where it belongs to what is below */
        below = below < 0 ? 0 : below > columns ? columns : below;
        count += above ? columns - below : below;
    }
    return shape_add_contiguous(c, dtype, 2, (int64_t[]){2, count});
}
