/* What ATen operators return: dtype, sizes, strides and memory of each result, computed from those of the arguments, as eager's CPU
 * kernels return them. Rules (the column SHAPE of core/aten/aten.def) cover what programs call most. Asking PyTorch's meta kernels costs a hundred
 * times more, and some of those import PyTorch's own compiler.
 */
#ifndef KIN_SHAPE_SHAPE_H
#define KIN_SHAPE_SHAPE_H

#include "core/aten/aten.h"

typedef struct {
    kin_dtype dtype;
    unsigned ndim;
    int64_t sizes[KIN_IR_MAX_DIMS], strides[KIN_IR_MAX_DIMS];
    kin_aten_val of;   /* it lies in this argument's memory; 0: in its own */
    bool none;         /* there is no such result: None */
    bool same;         /* it is that argument, which was written to, or has another layout now */
    int64_t offset;
} kin_shape;

typedef struct {
    KIN_VEC(kin_shape) results;
    bool list;         /* they are returned as a list; otherwise several are a tuple */
} kin_shapes;

typedef struct {
    kin_dtype default_dtype; /* of floating point numbers */
} kin_shape_options;

bool kin_shape_has_rule(const kin_aten_call *call);
/* What the graph's call, complete with arguments, returns. KIN_BREAK: it has no rule, or its rule does not cover these arguments
 * (they may be wrong). `out` may hold earlier results, which are dropped. */
kin_status kin_shape_call(const kin_aten *g, uint32_t call, const kin_shape_options *options, kin_shapes *out) KIN_MUST_CHECK;

#endif
