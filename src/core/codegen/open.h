/* Kernels whose sizes are arguments (docs/design/sizes.md). A kernel's loops consist of a shape and numbers: trip counts, strides, offsets, divisors,
 * bounds, constants. Code is compiled for a shape; each number is either part of the code or *open*: read when the kernel runs. Two kernels with
 * one shape that agree in all numbers but the open ones share their code.
 *
 * The shape also records which places hold equal expressions (an expression used twice is written as a reference), so that
 * two sizes that happen to be equal are never taken to be the same size.
 */
#ifndef KIN_CODEGEN_OPEN_H
#define KIN_CODEGEN_OPEN_H

#include "core/base/intern.h"
#include "core/codegen/codegen.h"
#include "core/diag/text.h"
#include "core/fuse/loops.h"

enum { KIN_NUMBER_NONE = 0 };

/* By variable, term, ...: the number of its number, counted from 1; KIN_NUMBER_NONE: it belongs to the shape. */
typedef struct {
    KIN_VEC(int64_t) at;
    uint32_t *of_var, *of_expr, *of_term, *of_atom, *of_inst, *of_buffer;
    uint32_t *memory; /* of all of them */
} kin_numbers;

/* The numbers of arranged loops, and their shape as bytes. run: the variable whose size is in the range that a call gets; UINT32_MAX: none.
 * False without memory. */
bool kin_numbers_of(const kin_loops *k, uint32_t run, kin_numbers *out, kin_text *shape);
void kin_numbers_deinit(kin_numbers *n);

/* -- what is known of the kernels of one graph over its sizes --------------------------------------------------------- */

typedef struct {
    uint32_t shape, place; /* the place-th kernel of this shape in the program */
    int64_t *base;         /* its numbers when it was first met */
    bool *open;            /* by number */
    uint32_t n, widened;   /* how often something was opened in it */
    bool met_again;        /* with other numbers */
} kin_family_kernel;

struct kin_family {
    kin_intern shapes;
    KIN_VEC(kin_family_kernel) kernels;
    KIN_VEC(uint32_t) places;    /* by shape: kernels of it met in the program at hand */
    KIN_VEC(int64_t) constant;   /* sorted: numbers that were in every program so far. Hidden sizes, mostly */
    KIN_VEC(int64_t) seen;       /* of the program at hand */
    bool all;                    /* all is open from the start */
    uint32_t programs;           /* met so far */
    uint32_t made;               /* times that code for open numbers was not there yet */
};

/* A program's kernels follow: all numbers first, then each kernel in order. */
kin_status kin_family_begin(kin_family *f) KIN_MUST_CHECK;
kin_status kin_family_add(kin_family *f, const kin_numbers *numbers) KIN_MUST_CHECK;
kin_status kin_family_settle(kin_family *f) KIN_MUST_CHECK;
/* *open (the family's): by number, what code for this kernel leaves open (perhaps nothing); NULL: it is the first of its kind. */
kin_status kin_family_match(kin_family *f, const kin_text *shape, const kin_numbers *numbers, const bool **open) KIN_MUST_CHECK;

#endif
