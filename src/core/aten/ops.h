/* What is known of ATen operators by their names: the table aten.def, looked up once per call of a graph. */
#ifndef KIN_ATEN_OPS_H
#define KIN_ATEN_OPS_H

#include <stdbool.h>
#include <stdint.h>

/* Rows by number: KIN_ATEN_OP(add, Tensor). KIN_ATEN_OPS: an operator without a row. */
#define KIN_ATEN_OP(op, overload) KIN_ATEN_OP_##op##_##overload
typedef enum {
#define ATEN(op, overload, shape, lower, complex, traits) KIN_ATEN_OP_##op##_##overload,
#include "core/aten/aten.def"
#undef ATEN
    KIN_ATEN_OPS
} kin_aten_op;

/* What an operator does to complex numbers that are held as two real values each. */
typedef enum {
    KIN_COMPLEX_NO,       /* it is not known to do anything sensible */
    KIN_COMPLEX_BOTH,     /* the same to the real and to the imaginary parts */
    KIN_COMPLEX_SUM,      /* also, if both operands are complex */
    KIN_COMPLEX_PRODUCT, KIN_COMPLEX_ABSOLUTE, KIN_COMPLEX_CONJUGATE,
    KIN_COMPLEX_AS_COMPLEX, KIN_COMPLEX_AS_REAL, /* views */
    KIN_COMPLEX_MAKE, KIN_COMPLEX_MAKE_POLAR
} kin_aten_complex;

typedef enum {
    /* effects */
    KIN_ATEN_RAISES = 1 << 0,             /* it may raise because of what tensors hold (a bad index), not only because of their sizes and dtypes */
    KIN_ATEN_RAISES_ON_INTS = 1 << 1,     /* ... only where its results are integers (division by zero) */
    KIN_ATEN_RAISES_ON_EMPTY = 1 << 16,   /* ... only where a tensor or result has no elements: fake tensors are not refused then */
    KIN_ATEN_RANDOM = 1 << 2,             /* it draws random numbers */
    KIN_ATEN_WRITES_UNSAID = 1 << 3,      /* it writes to arguments without its schema saying so */
    KIN_ATEN_WRITES_IN_TRAINING = 1 << 4, /* ... to `running_mean` and `running_var`, if they are given and `training` is not false */
    /* what its results depend on */
    KIN_ATEN_READS_PART = 1 << 5,         /* on a part of the first argument */
    KIN_ATEN_NEEDS_ALL = 1 << 6,          /* any element on many elements of each argument */
    /* sharing memory */
    KIN_ATEN_NO_VIEW = 1 << 7,            /* its results share the argument's memory without being views of it for autograd */
    KIN_ATEN_LAYOUT_ONLY = 1 << 8,        /* in place it gives the argument another layout and leaves its memory alone */
    /* how it is captured, what it costs */
    KIN_ATEN_WHOLE = 1 << 10,             /* as one call, though PyTorch makes it of other operators */
    KIN_ATEN_CONSTANT = 1 << 11,          /* as a tensor of the capture's own, where it makes one of a constant */
    KIN_ATEN_ANSWERED = 1 << 12,          /* not at all: a question whose answer is true for the capture's tensors */
    KIN_ATEN_OWN_CELLS = 1 << 13,         /* as an operator of kintsugi/_recurrent.py, where its arguments say so */
    /* what sizes of its results are divided by: ints that have to be the same for plans to be compared (py/launch/template.c) */
    KIN_ATEN_STEPS = 1 << 14,             /* `step`, behind `start` and `end` */
    KIN_ATEN_DIVIDES = 1 << 15,           /* all of them: windows, strides, factors */
    KIN_ATEN_RESAMPLES = 1 << 17,         /* dims from the third on: eager may do otherwise where a size stays, or doubles */
    KIN_ATEN_LIBRARY = 1 << 9             /* its work is worth a kernel or library call of its own */
} kin_aten_trait;

/* The row of "aten.add.Tensor"; KIN_ATEN_OPS: there is none. *in_place (may be NULL): it was found for an operator that
 * does the same in place, "aten.add_.Tensor". */
kin_aten_op kin_aten_op_find(const char *name, bool *in_place);
/* Has the operator one of these traits? None without a row, but see kin_aten_raises. */
bool kin_aten_op_is(kin_aten_op op, unsigned traits);
kin_aten_complex kin_aten_op_complex(kin_aten_op op);

#endif
