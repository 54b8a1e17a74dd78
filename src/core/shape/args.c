/* Arguments of calls, and PyTorch's type promotion (shape_priv.h). */
#include "core/shape/shape_priv.h"

const kin_aten_arg *
shape_arg(const shape_call *c, unsigned at, const char *keyword)
{
    return kin_aten_find(c->g, c->call, at, keyword);
}

void
shape_of(const shape_call *c, kin_aten_val val, shape_tensor *out)
{
    const kin_aten_value *v = kin_aten_at(c->g, val);
    *out = (shape_tensor){.dtype = (kin_dtype)v->dtype, .ndim = v->ndim, .offset = v->offset, .val = val};
    if (v->ndim > 0) {
        memcpy(out->sizes, kin_aten_sizes(c->g, val), v->ndim * sizeof(int64_t));
        memcpy(out->strides, kin_aten_strides(c->g, val), v->ndim * sizeof(int64_t));
    }
}

bool
shape_operand(const shape_call *c, const kin_aten_arg *a, shape_tensor *out)
{
    if (a == NULL)
        return false;
    switch (a->kind) {
    case KIN_ATEN_VALUE:
        shape_of(c, a->value, out);
        return true;
    case KIN_ATEN_BOOL:
        *out = (shape_tensor){.dtype = KIN_BOOL};
        return true;
    case KIN_ATEN_INT:
        *out = (shape_tensor){.dtype = KIN_I64};
        return true;
    case KIN_ATEN_FLOAT:
        *out = (shape_tensor){.dtype = shape_default(c)};
        return true;
    default:
        return false;
    }
}

bool
shape_read(const shape_call *c, unsigned at, const char *keyword, shape_tensor *out)
{
    const kin_aten_arg *a = shape_arg(c, at, keyword);
    return a != NULL && a->kind == KIN_ATEN_VALUE && shape_operand(c, a, out);
}

bool
shape_int(const shape_call *c, unsigned at, const char *keyword, int64_t otherwise, int64_t *out)
{
    const kin_aten_arg *a = shape_arg(c, at, keyword);
    *out = a == NULL ? otherwise : a->i;
    return a == NULL || a->kind == KIN_ATEN_INT;
}

bool
shape_bool(const shape_call *c, unsigned at, const char *keyword, bool otherwise, bool *out)
{
    const kin_aten_arg *a = shape_arg(c, at, keyword);
    *out = a == NULL ? otherwise : a->i != 0;
    return a == NULL || a->kind == KIN_ATEN_BOOL;
}

bool
shape_dtype(const shape_call *c, unsigned at, const char *keyword, kin_dtype otherwise, kin_dtype *out)
{
    const kin_aten_arg *a = shape_arg(c, at, keyword);
    *out = a == NULL ? otherwise : (kin_dtype)a->i;
    return a == NULL || a->kind == KIN_ATEN_DTYPE;
}

int
shape_ints(const shape_call *c, unsigned at, const char *keyword, int64_t *out)
{
    return kin_aten_ints(c->g, shape_arg(c, at, keyword), out);
}

bool
shape_sizes(const shape_call *c, unsigned at, int64_t *sizes, unsigned *ndim)
{
    int count = shape_ints(c, at, "size", sizes);
    for (int i = 0; i < count; i++)
        if (sizes[i] < 0)
            return false;
    *ndim = count < 0 ? 0 : (unsigned)count;
    return count >= 0;
}

bool
shape_format_arg(const shape_call *c, unsigned at, shape_format otherwise, shape_format *out)
{
    static const char *const names[] = {"preserve_format", "contiguous_format", "channels_last", "channels_last_3d"};
    const kin_aten_arg *a = shape_arg(c, at, "memory_format");
    *out = otherwise;
    if (a == NULL)
        return true;
    if (a->kind != KIN_ATEN_WORD)
        return false;
    const char *word = kin_aten_text(c->g, a->text);
    word += strncmp(word, "torch.", 6) == 0 ? 6 : 0;
    for (int i = 0; i < 4; i++)
        if (strcmp(word, names[i]) == 0) {
            *out = (shape_format)i;
            return true;
        }
    return false;
}

bool
shape_dim(int64_t dim, unsigned ndim, unsigned *out)
{
    int64_t count = ndim > 0 ? ndim : 1;
    if (dim < 0)
        dim += count;
    *out = (unsigned)dim;
    return dim >= 0 && dim < count;
}

/* -- dtypes ------------------------------------------------------------------------------------------------------- */

kin_dtype
shape_default(const shape_call *c)
{
    return c->options->default_dtype;
}

bool
shape_is_complex(kin_dtype dtype)
{
    return dtype == KIN_C64 || dtype == KIN_C128;
}

bool
shape_common(const shape_tensor *t, unsigned count, kin_dtype *out)
{
    kin_aten_mixed all = {0};
    bool equal = true;
    for (unsigned i = 0; i < count; i++) {
        equal = equal && t[i].val != 0 && t[i].dtype == t[0].dtype;
        kin_aten_join(&all, t[i].val == 0 ? KIN_ATEN_NUMBER : t[i].ndim > 0 ? KIN_ATEN_WITH_DIMS : KIN_ATEN_WITHOUT_DIMS, t[i].dtype);
    }
    for (unsigned i = 0; i < count; i++)
        if (shape_is_complex(t[i].dtype) && !equal)
            return false;
    *out = kin_aten_common(&all);
    return true;
}
