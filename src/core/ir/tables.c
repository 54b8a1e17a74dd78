/* What dtypes.def and ops.def say about dtypes and operations. */
#include "core/ir/ir.h"

static const struct { const char *name; unsigned bytes; } dtype_rows[] = {
#define DTYPE(NAME, text, bytes) {text, bytes},
#include "core/ir/dtypes.def"
#undef DTYPE
};

static const struct { const char *name; kin_ir_class class; } op_rows[] = {
#define OP(NAME, text, class, nargs, attrs) {text, KIN_IR_CLASS_##class},
#include "core/ir/ops.def"
#undef OP
};

const char *
kin_dtype_name(kin_dtype dtype)
{
    return dtype < KIN_DTYPE__COUNT ? dtype_rows[dtype].name : "?";
}

unsigned
kin_dtype_bytes(kin_dtype dtype)
{
    return dtype < KIN_DTYPE__COUNT ? dtype_rows[dtype].bytes : 1;
}

bool
kin_dtype_from_name(const char *name, size_t len, kin_dtype *dtype)
{
    for (unsigned i = 0; i < KIN_DTYPE__COUNT; i++)
        if (strlen(dtype_rows[i].name) == len && memcmp(dtype_rows[i].name, name, len) == 0) {
            *dtype = (kin_dtype)i;
            return true;
        }
    return false;
}

bool
kin_dtype_is_float(kin_dtype dtype)
{
    return dtype >= KIN_F16 && dtype <= KIN_F64;
}

bool
kin_dtype_is_integer(kin_dtype dtype)
{
    return dtype >= KIN_U8 && dtype <= KIN_I64;
}

const char *
kin_ir_op_name(kin_ir_op op)
{
    return op < KIN_IR__COUNT ? op_rows[op].name : "?";
}

kin_ir_class
kin_ir_op_class(kin_ir_op op)
{
    return op_rows[op].class;
}

bool
kin_ir_op_is_slow(unsigned op)
{
    return (op >= KIN_IR_EXP && op <= KIN_IR_SIGMOID) || op == KIN_IR_POW || op == KIN_IR_ATAN2;
}

bool
kin_ir_op_is_arg(unsigned op)
{
    return op == KIN_IR_ARGMAX || op == KIN_IR_ARGMIN;
}
