/* What the pointwise operations of ops.def compute, one element at a time: for the oracle and for folding constants. */
#ifndef KIN_IR_SCALAR_H
#define KIN_IR_SCALAR_H

#include "core/ir/ir.h"

/* The element as the dtype holds it: wrapped or rounded. */
kin_scalar kin_scalar_settle(kin_dtype dtype, kin_scalar value);
/* Of a POINTWISE or COMPARE operation whose (last) argument has dtype `from`; the result has `to`. False: a division by zero. */
bool kin_scalar_compute(kin_ir_op op, kin_dtype from, kin_dtype to, const kin_scalar *args, kin_scalar *out);
kin_scalar kin_scalar_load(kin_dtype dtype, const void *array, int64_t i);
void kin_scalar_store(kin_dtype dtype, void *array, int64_t i, kin_scalar value);

#endif
