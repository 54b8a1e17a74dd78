/* Shape rules of element-wise operators. */
#include "core/shape/shape_priv.h"

static bool
takes(int row, kin_dtype dtype)
{
    if (shape_is_complex(dtype))
        return false;
    return (row & (dtype == KIN_BOOL ? TAKES_BOOL : kin_dtype_is_integer(dtype) ? TAKES_INT : TAKES_FLOAT)) != 0;
}

static bool
read_operands(const shape_call *c, shape_tensor *operands, unsigned count)
{
    bool tensor = false;
    for (unsigned i = 0; i < count; i++) {
        if (!shape_operand(c, shape_arg(c, i, ""), &operands[i]))
            return false;
        tensor = tensor || operands[i].val != 0;
    }
    return tensor;
}

/* A further operand, if it is given: a tensor. */
static bool
read_optional(const shape_call *c, unsigned at, const char *keyword, shape_tensor *operands, unsigned *count)
{
    return shape_arg(c, at, keyword) == NULL || shape_read(c, at, keyword, &operands[(*count)++]);
}

static bool
has_sizes(const shape_tensor *t, unsigned ndim, const int64_t *sizes)
{
    return t->ndim == ndim && memcmp(t->sizes, sizes, ndim * sizeof *sizes) == 0;
}

/* The result for these operands, which are cast to what is computed in. */
static bool
compute(shape_call *c, shape_tensor *operands, unsigned count, int row)
{
    kin_dtype dtype;
    if (!shape_common(operands, count, &dtype) || !takes(row, dtype))
        return false;
    if (row & GIVES_FLOAT && !kin_dtype_is_float(dtype))
        dtype = shape_default(c);
    for (unsigned i = 0; i < count; i++) {
        if (row & NO_PROMOTION && operands[i].val != 0 && operands[i].dtype != dtype)
            return false;
        shape_cast(&operands[i], dtype);
    }
    return shape_iterate(c, operands, count, row & GIVES_BOOL ? KIN_BOOL : dtype);
}

bool
shape_pointwise(shape_call *c, int row)
{
    shape_tensor operands[3];
    unsigned count = (unsigned)row / OPERANDS % 4;
    if (!read_operands(c, operands, count))
        return false;
    if (row & REVERSED) {
        operands[2] = operands[0];
        return compute(c, operands + 1, 2, row);
    }
    return compute(c, operands, count, row);
}

/* alpha multiplies the second: not a float where integers are computed. */
bool
shape_scaled(shape_call *c, int row)
{
    shape_tensor operands[2];
    kin_dtype dtype;
    const kin_aten_arg *alpha = shape_arg(c, 2, "alpha");
    if (!read_operands(c, operands, 2) || !shape_common(operands, 2, &dtype))
        return false;
    if (alpha != NULL && alpha->kind != KIN_ATEN_INT && !(alpha->kind == KIN_ATEN_FLOAT && kin_dtype_is_float(dtype)))
        return false;
    bool no_bool = !(row & TAKES_BOOL);
    if (no_bool && (operands[0].dtype == KIN_BOOL || operands[1].dtype == KIN_BOOL))
        return false;
    return compute(c, operands, 2, row);
}

bool
shape_div_mode(shape_call *c, int row)
{
    shape_tensor operands[2];
    bool exact = shape_arg(c, 2, "rounding_mode") == NULL;
    return read_operands(c, operands, 2) &&
           compute(c, operands, 2, exact ? TAKES_ALL | GIVES_FLOAT : TAKES_INT | TAKES_FLOAT);
}

/* The result's dtype depends on the exponent, its layout does not. */
bool
shape_pow(shape_call *c, int row)
{
    shape_tensor operands[2];
    kin_dtype dtype;
    const kin_aten_arg *exponent = shape_arg(c, 1, "exponent");
    if (!read_operands(c, operands, 2) || operands[0].val == 0 || operands[1].val != 0 ||
        !shape_common(operands, 2, &dtype) || !takes(row, dtype))
        return false;
    if (!kin_dtype_is_float(dtype) && (exponent->kind == KIN_ATEN_FLOAT || exponent->i < 0))
        return false;
    shape_cast(&operands[0], dtype);
    return shape_iterate(c, operands, 1, dtype);
}

/* Limits are numbers: they may raise integers to the default dtype. */
bool
shape_clamp(shape_call *c, int row)
{
    shape_tensor operands[3];
    unsigned count = 1;
    kin_dtype dtype;
    if (!shape_read(c, 0, "self", &operands[0]))
        return false;
    for (unsigned i = 1; i <= (unsigned)row; i++) {
        const kin_aten_arg *limit = shape_arg(c, i, row == 2 && i == 1 ? "min" : row == 2 ? "max" : "");
        if (limit != NULL && (!shape_operand(c, limit, &operands[count]) || operands[count++].val != 0))
            return false;
    }
    if (count == 1 || !shape_common(operands, count, &dtype) || !takes(TAKES_INT | TAKES_FLOAT, dtype))
        return false;
    shape_cast(&operands[0], dtype);
    return shape_iterate(c, operands, 1, dtype);
}

/* Limits are tensors. */
bool
shape_clamp_tensor(shape_call *c, int row)
{
    shape_tensor operands[3];
    unsigned count = 1;
    if (!shape_read(c, 0, "self", &operands[0]) || !read_optional(c, 1, "min", operands, &count) || !read_optional(c, 2, "max", operands, &count))
        return false;
    return count > 1 && compute(c, operands, count, TAKES_INT | TAKES_FLOAT);
}

/* Real and imaginary parts, or absolute values and angles. */
bool
shape_make_complex(shape_call *c, int row)
{
    shape_tensor t[2];
    if (!read_operands(c, t, 2) || t[0].val == 0 || t[1].val == 0 || t[0].dtype != t[1].dtype || (t[0].dtype != KIN_F32 && t[0].dtype != KIN_F64))
        return false;
    return shape_iterate(c, t, 2, t[0].dtype == KIN_F32 ? KIN_C64 : KIN_C128);
}

bool
shape_where(shape_call *c, int row)
{
    shape_tensor operands[3];
    kin_dtype dtype;
    if (!read_operands(c, operands, 3) || operands[0].val == 0 || operands[0].dtype != KIN_BOOL ||
        !shape_common(operands + 1, 2, &dtype))
        return false;
    shape_cast(&operands[1], dtype);
    shape_cast(&operands[2], dtype);
    return shape_iterate(c, operands, 3, dtype);
}

bool
shape_masked_fill(shape_call *c, int row)
{
    shape_tensor t[2], value;
    unsigned ndim;
    int64_t sizes[KIN_IR_MAX_DIMS];
    if (!read_operands(c, t, 2) || t[0].val == 0 || t[1].dtype != KIN_BOOL || shape_is_complex(t[0].dtype) ||
        !shape_operand(c, shape_arg(c, 2, "value"), &value) || value.ndim != 0 || shape_is_complex(value.dtype) ||
        !shape_broadcast(t, 2, &ndim, sizes))
        return false;
    return shape_add_contiguous(c, t[0].dtype, ndim, sizes);
}

/* Made like the first tensor, whatever its layout. */
bool
shape_like_first(shape_call *c, int count)
{
    shape_tensor t[2];
    unsigned ndim;
    int64_t sizes[KIN_IR_MAX_DIMS];
    if (!read_operands(c, t, (unsigned)count) || t[0].val == 0 || !kin_dtype_is_float(t[0].dtype))
        return false;
    if (count == 2 && (t[1].dtype != t[0].dtype || !shape_broadcast(t, 2, &ndim, sizes) || !has_sizes(&t[0], ndim, sizes)))
        return false;
    return shape_add_like(c, &t[0], t[0].dtype, SHAPE_PRESERVE);
}

bool
shape_addcdiv(shape_call *c, int row)
{
    shape_tensor t[3];
    return read_operands(c, t, 3) && (kin_dtype_is_float(t[1].dtype) || kin_dtype_is_float(t[2].dtype)) &&
           compute(c, t, 3, TAKES_FLOAT);
}

/* The halves of the tensor are the operands. */
bool
shape_glu(shape_call *c, int row)
{
    shape_tensor halves[2];
    int64_t dim;
    unsigned d;
    if (!shape_read(c, 0, "self", &halves[0]) || halves[0].ndim == 0 || !shape_int(c, 1, "dim", -1, &dim) ||
        !shape_dim(dim, halves[0].ndim, &d) || halves[0].sizes[d] % 2 != 0)
        return false;
    halves[0].sizes[d] /= 2;
    halves[1] = halves[0];
    return compute(c, halves, 2, TAKES_FLOAT);
}

bool
shape_loss(shape_call *c, int made_like_first)
{
    shape_tensor t[2];
    int64_t reduction;
    if (!read_operands(c, t, 2) || !shape_int(c, 2, "reduction", 1, &reduction) || t[0].dtype != t[1].dtype ||
        t[0].val == 0 || t[1].val == 0 || !has_sizes(&t[0], t[1].ndim, t[1].sizes))
        return false; /* sizes that differ: a warning */
    if (reduction == 0 && made_like_first)
        return kin_dtype_is_float(t[0].dtype) && shape_add_like(c, &t[0], t[0].dtype, SHAPE_PRESERVE);
    if (reduction == 0)
        return compute(c, t, 2, TAKES_FLOAT);
    return kin_dtype_is_float(t[0].dtype) && shape_add_contiguous(c, t[0].dtype, 0, NULL);
}

/* Binary cross entropy, with weights between target and reduction. */
bool
shape_entropy(shape_call *c, int reduction_at)
{
    shape_tensor t[4];
    unsigned count = 2, ndim;
    int64_t reduction, sizes[KIN_IR_MAX_DIMS];
    if (!read_operands(c, t, 2) || !shape_int(c, (unsigned)reduction_at, "reduction", 1, &reduction) || t[0].val == 0 || t[1].val == 0 ||
        !has_sizes(&t[0], t[1].ndim, t[1].sizes) || !kin_dtype_is_float(t[0].dtype) || !read_optional(c, 2, "weight", t, &count) ||
        (reduction_at > 3 && !read_optional(c, 3, "pos_weight", t, &count)))
        return false;
    for (unsigned i = 1; i < count; i++)
        if (t[i].dtype != t[0].dtype)
            return false;
    if (!shape_broadcast(t, count, &ndim, sizes) || !has_sizes(&t[0], ndim, sizes))
        return false;
    if (reduction != 0)
        return shape_add_contiguous(c, t[0].dtype, 0, NULL);
    return count == 2 && shape_add_like(c, &t[reduction_at == 3 ? 0 : 1], t[0].dtype, SHAPE_PRESERVE);
}

bool
shape_nan_to_num(shape_call *c, int row)
{
    shape_tensor t;
    return shape_read(c, 0, "self", &t) && !shape_is_complex(t.dtype) && shape_add_like(c, &t, t.dtype, SHAPE_PRESERVE);
}
