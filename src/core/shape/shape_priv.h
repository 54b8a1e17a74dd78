/* What shape rules work with. A rule reads the call's arguments, adds each result with shape_add, and returns false for
 * whatever it does not fully understand: the caller then asks PyTorch, which also raises the right errors.
 */
#ifndef KIN_SHAPE_SHAPE_PRIV_H
#define KIN_SHAPE_SHAPE_PRIV_H

#include "core/shape/shape.h"

typedef struct {
    const kin_aten *g;
    const kin_aten_call *call;
    const kin_shape_options *options;
    kin_shapes *out;
    bool failed;        /* memory was short */
} shape_call;

typedef bool (*shape_rule)(shape_call *c, int row);

/* A tensor, or a number as a tensor without dims. */
typedef struct {
    kin_dtype dtype;
    unsigned ndim;
    int64_t sizes[KIN_IR_MAX_DIMS], strides[KIN_IR_MAX_DIMS];
    int64_t offset;
    kin_aten_val val;   /* 0: a number */
} shape_tensor;

typedef enum { SHAPE_PRESERVE, SHAPE_CONTIGUOUS, SHAPE_CHANNELS_LAST, SHAPE_CHANNELS_LAST_3D } shape_format;

/* -- arguments (args.c) -------------------------------------------------------------------------------------------- */
/* NULL when it is not given, or None. */
const kin_aten_arg *shape_arg(const shape_call *c, unsigned at, const char *keyword);
/* False when the argument is no tensor. */
bool shape_read(const shape_call *c, unsigned at, const char *keyword, shape_tensor *out);
void shape_of(const shape_call *c, kin_aten_val val, shape_tensor *out);
/* ... or a number (of its kind's default dtype). */
bool shape_operand(const shape_call *c, const kin_aten_arg *a, shape_tensor *out);
/* False when it is given and is no integer (boolean). */
bool shape_int(const shape_call *c, unsigned at, const char *keyword, int64_t otherwise, int64_t *out);
bool shape_bool(const shape_call *c, unsigned at, const char *keyword, bool otherwise, bool *out);
bool shape_dtype(const shape_call *c, unsigned at, const char *keyword, kin_dtype otherwise, kin_dtype *out);
/* Integers of a list; -1 when it is none (also not given) or too long. */
int shape_ints(const shape_call *c, unsigned at, const char *keyword, int64_t *out);
/* Sizes, by position or as `size`: false when they are none. */
bool shape_sizes(const shape_call *c, unsigned at, int64_t *sizes, unsigned *ndim);
/* Of the keyword memory_format, or by position. */
bool shape_format_arg(const shape_call *c, unsigned at, shape_format otherwise, shape_format *out);
/* A dim from 0 on; false when there is none like that. Tensors without dims count as having one. */
bool shape_dim(int64_t dim, unsigned ndim, unsigned *out);
kin_dtype shape_default(const shape_call *c);
bool shape_is_complex(kin_dtype dtype);
/* The dtype in which PyTorch computes on these together; false with complex ones that differ. */
bool shape_common(const shape_tensor *t, unsigned count, kin_dtype *out);

/* -- results (layout.c) -------------------------------------------------------------------------------------------- */
/* A result without strides. */
kin_shape *shape_add(shape_call *c, kin_dtype dtype, unsigned ndim, const int64_t *sizes);
bool shape_add_contiguous(shape_call *c, kin_dtype dtype, unsigned ndim, const int64_t *sizes);
/* None in place of a result. */
bool shape_add_none(shape_call *c);
/* A view of `t`: sizes and strides are set by the caller. */
kin_shape *shape_add_view(shape_call *c, const shape_tensor *t, unsigned ndim);
/* The argument itself, written to. */
bool shape_add_same(shape_call *c, const shape_tensor *t);
/* Like `t`, in this format. */
bool shape_add_like(shape_call *c, const shape_tensor *t, kin_dtype dtype, shape_format format);

/* -- layouts (layout.c) -------------------------------------------------------------------------------------------- */
int64_t shape_numel(unsigned ndim, const int64_t *sizes);
void shape_contiguous_strides(unsigned ndim, const int64_t *sizes, int64_t *strides);
/* False: the format is not for this number of dims. */
bool shape_format_strides(shape_format format, unsigned ndim, const int64_t *sizes, int64_t *strides);
bool shape_is_contiguous(const shape_tensor *t);
bool shape_is_channels_last(const shape_tensor *t);
bool shape_is_channels_last_3d(const shape_tensor *t);
/* Every place of a stretch of memory once. */
bool shape_is_dense(const shape_tensor *t);
/* The format that its strides suggest. */
shape_format shape_suggested(const shape_tensor *t);
/* What a copy that preserves the layout has. */
void shape_preserved_strides(const shape_tensor *t, int64_t *strides);
/* Strides of a view with `out`'s sizes, which hold as many elements; false when there is none. */
bool shape_view_strides(const shape_tensor *t, kin_shape *out);
/* Can two elements share a place? (May say so wrongly.) */
bool shape_may_overlap(const shape_tensor *t);

/* -- iteration over several tensors (iterate.c) --------------------------------------------------------------------- */
/* Sizes after broadcasting; false when they do not fit, with more dims than there is room for. */
bool shape_broadcast(const shape_tensor *t, unsigned count, unsigned *ndim, int64_t *sizes);
/* Adds the result of an operation element by element; to: operands are cast to this dtype before. */
bool shape_iterate(shape_call *c, shape_tensor *operands, unsigned count, kin_dtype dtype);
/* As eager does it: a tensor of another dtype is copied. */
void shape_cast(shape_tensor *t, kin_dtype dtype);

/* Bits of the rows of shape_pointwise. */
enum {
    TAKES_BOOL = 1, TAKES_INT = 2, TAKES_FLOAT = 4, TAKES_ALL = 7, /* which common dtypes */
    GIVES_FLOAT = 8,     /* integers become the default dtype */
    GIVES_BOOL = 16,
    NO_PROMOTION = 32,   /* operands are not cast: they must have one dtype, but for numbers */
    OPERANDS = 64,       /* times 1, 2, 3 */
    REVERSED = 256       /* of two operands eager takes the second one first: its layout counts more */
};

enum { REDUCE_SUM, REDUCE_MEAN, REDUCE_EXTREME, REDUCE_ANY, REDUCE_COUNT, REDUCE_ARG, REDUCE_WITH_INDEX, REDUCE_LOGSUMEXP };

#define NONE
#define SHAPE(name, number) bool shape_##name(shape_call *c, int row);
#define POINTWISE(operands, dtypes) SHAPE(pointwise, 0)
#define ATEN(op, overload, shape, lower, complex, traits) shape
#include "core/aten/aten.def"
#undef ATEN
#undef POINTWISE
#undef SHAPE
#undef NONE

#endif
