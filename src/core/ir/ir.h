/* The tensor program: what a graph computes, as primitives (ops.def) on values with a dtype and static sizes, in SSA.
 * docs/design/kernels.md explains its place. Built front to back: arguments are earlier nodes. Nodes are numbered from
 * 1; 0 = none. A failed allocation makes the program sticky (`failed`): builders return 0, the caller checks at the end.
 *
 *     kin_ir *p = kin_ir_new();
 *     kin_irn x = kin_ir_input(p, 0, KIN_F32, 2, (int64_t[]){4, 128});
 *     kin_irn y = kin_ir_unary(p, KIN_IR_EXP, x);
 *     kin_ir_output(p, y, NULL);
 *     if (p->failed || !kin_ir_verify(p, &why)) ...
 */
#ifndef KIN_IR_IR_H
#define KIN_IR_IR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/status.h"
#include "core/base/vec.h"
#include "core/diag/text.h"

typedef enum {
#define DTYPE(NAME, text, bytes) KIN_##NAME,
#include "core/ir/dtypes.def"
#undef DTYPE
    KIN_DTYPE__COUNT
} kin_dtype;

typedef enum {
#define OP(NAME, text, class, nargs, attrs) KIN_IR_##NAME,
#include "core/ir/ops.def"
#undef OP
    KIN_IR__COUNT
} kin_ir_op;

typedef enum {
    KIN_IR_CLASS_LEAF, KIN_IR_CLASS_POINTWISE, KIN_IR_CLASS_COMPARE, KIN_IR_CLASS_VIEW, KIN_IR_CLASS_SCATTER,
    KIN_IR_CLASS_REDUCE, KIN_IR_CLASS_SCAN, KIN_IR_CLASS_EXTERN, KIN_IR_CLASS_RESULT
} kin_ir_class;

typedef enum { KIN_IR_SCATTER_SET, KIN_IR_SCATTER_ADD, KIN_IR_SCATTER_MUL, KIN_IR_SCATTER_MAX, KIN_IR_SCATTER_MIN } kin_ir_scatter;

enum { /* of EXTERN */
    KIN_IR_EXTERN_EFFECT = 1, /* does more than compute its results: never dropped, done again or moved */
    KIN_IR_EXTERN_INTO = 2,   /* writes its results into memory that it is given: they lie as their strides say */
    KIN_IR_EXTERN_BLOCKS = 4  /* makes its result, rows of the dim with stride 1, block by block and runs a kernel on each, if there is one */
};

enum { KIN_IR_MAX_DIMS = 16 };

typedef uint32_t kin_irn;

/* A scalar: `i` for integer dtypes and BOOL (0 or 1), `f` for floating ones. */
typedef union {
    int64_t i;
    double f;
} kin_scalar;

typedef struct {
    uint8_t op;        /* kin_ir_op */
    uint8_t dtype;     /* kin_dtype; meaningless for EXTERN */
    uint8_t ndim;
    uint16_t nargs;
    uint16_t nattrs;
    uint32_t args;     /* first argument in ir.args */
    uint32_t sizes;    /* first of ndim in ir.ints */
    uint32_t strides;  /* first of ndim in ir.ints: preferred layout in elements; 0 = row-major */
    uint32_t attrs;    /* first of nattrs in ir.ints */
    uint32_t name;     /* EXTERN: text in ir.texts; 0 = none */
    kin_scalar value;  /* CONST */
} kin_ir_node;

typedef struct {
    kin_irn node;
    uint32_t strides;  /* first of the node's ndim in ir.ints: layout the output must have; 0 = row-major */
    uint32_t into;     /* not given out: written into the memory of this input + 1 when everything else is done; 0 = it is given */
} kin_ir_out;

/* A SCATTER that is made in the memory of input into - 1, where it lies as its strides say (in_place.h). */
typedef struct {
    kin_irn write, saved, undo; /* saved: what lay there, made before; undo: a SCATTER that puts it back */
    uint32_t into;
} kin_ir_update;

typedef struct {
    KIN_VEC(kin_ir_node) nodes;  /* [0] is unused */
    KIN_VEC(kin_irn) args;
    KIN_VEC(int64_t) ints;       /* [0] is unused */
    KIN_VEC(kin_ir_out) outputs;
    KIN_VEC(kin_ir_update) updates; /* after kin_ir_update_in_place only */
    kin_text texts;              /* each with its NUL; offset 0 is "" */
    uint32_t ninputs;
    bool fast_math;              /* kernels need not round between operations */
    bool failed;
} kin_ir;

kin_ir *kin_ir_new(void);
void kin_ir_free(kin_ir *p);

/* -- building (build.c) ------------------------------------------------------------------------------------------
 * Sizes of results are computed where they follow from the arguments. */
kin_irn kin_ir_input(kin_ir *p, uint32_t number, kin_dtype dtype, unsigned ndim, const int64_t *sizes);
/* strides in elements; may be followed when the value is stored. */
void kin_ir_set_strides(kin_ir *p, kin_irn node, const int64_t *strides);
kin_irn kin_ir_const(kin_ir *p, kin_dtype dtype, kin_scalar value, unsigned ndim, const int64_t *sizes);
kin_irn kin_ir_iota(kin_ir *p, kin_dtype dtype, unsigned dim, unsigned ndim, const int64_t *sizes);
kin_irn kin_ir_unary(kin_ir *p, kin_ir_op op, kin_irn a);
kin_irn kin_ir_binary(kin_ir *p, kin_ir_op op, kin_irn a, kin_irn b); /* COMPARE gives BOOL */
kin_irn kin_ir_where(kin_ir *p, kin_irn condition, kin_irn a, kin_irn b);
kin_irn kin_ir_cast(kin_ir *p, kin_irn a, kin_dtype dtype);           /* `a` itself when it has the dtype */
kin_irn kin_ir_expand(kin_ir *p, kin_irn a, unsigned ndim, const int64_t *sizes);  /* `a` itself when nothing changes */
kin_irn kin_ir_permute(kin_ir *p, kin_irn a, const int64_t *dims);
kin_irn kin_ir_reshape(kin_ir *p, kin_irn a, unsigned ndim, const int64_t *sizes); /* `a` itself when nothing changes */
/* starts, steps, sizes: one for each dim. */
kin_irn kin_ir_slice(kin_ir *p, kin_irn a, const int64_t *starts, const int64_t *steps, const int64_t *sizes);
kin_irn kin_ir_pad(kin_ir *p, kin_irn a, kin_irn value, const int64_t *low, const int64_t *sizes);
kin_irn kin_ir_cat(kin_ir *p, const kin_irn *parts, unsigned nparts, unsigned dim);
kin_irn kin_ir_index(kin_ir *p, kin_irn source, const int64_t *map, const kin_irn *indices, unsigned nindices, unsigned ndim,
                     const int64_t *sizes);
kin_irn kin_ir_scatter_into(kin_ir *p, kin_ir_scatter mode, kin_irn base, kin_irn source, const int64_t *map,
                            const kin_irn *indices, unsigned nindices);
kin_irn kin_ir_reduce(kin_ir *p, kin_ir_op op, kin_irn a, unsigned ndims, const int64_t *dims);
kin_irn kin_ir_scan(kin_ir *p, kin_ir_op op, kin_irn a, unsigned dim);
kin_irn kin_ir_extern(kin_ir *p, const char *name, uint32_t number, unsigned flags, const kin_irn *args, unsigned nargs);
kin_irn kin_ir_result(kin_ir *p, kin_irn call, unsigned which, kin_dtype dtype, unsigned ndim, const int64_t *sizes,
                      const int64_t *strides);
/* Node n of another program with these arguments, everything else as it is there. */
kin_irn kin_ir_copy(kin_ir *p, const kin_ir *from, kin_irn n, const kin_irn *args);
/* ... with the copies of its arguments: copies[0] is that of node 0, the next one stands `stride` bytes behind it. */
kin_irn kin_ir_copy_mapped(kin_ir *p, const kin_ir *from, kin_irn n, const kin_irn *copies, size_t stride);
/* strides: NULL = row-major. */
void kin_ir_output(kin_ir *p, kin_irn node, const int64_t *strides);
/* Written into input number `input`, which lies like that. */
void kin_ir_output_into(kin_ir *p, kin_irn node, const int64_t *strides, uint32_t input);
/* Output o of another program, which is `node` here. */
void kin_ir_output_like(kin_ir *p, kin_irn node, const kin_ir *from, uint32_t o);

/* -- reading ---------------------------------------------------------------------------------------------------- */
static inline const kin_ir_node *kin_ir_at(const kin_ir *p, kin_irn n) { return &p->nodes.at[n]; }
static inline const int64_t *kin_ir_sizes(const kin_ir *p, kin_irn n) { return p->ints.at + p->nodes.at[n].sizes; }
static inline const int64_t *kin_ir_attrs(const kin_ir *p, kin_irn n) { return p->ints.at + p->nodes.at[n].attrs; }
static inline kin_irn kin_ir_arg(const kin_ir *p, kin_irn n, unsigned i) { return p->args.at[p->nodes.at[n].args + i]; }
static inline const char *kin_ir_name(const kin_ir *p, kin_irn n) { return p->texts.at ? p->texts.at + p->nodes.at[n].name : ""; }
/* An extern call that does more than compute its results? */
static inline bool kin_ir_has_effect(const kin_ir *p, kin_irn n) { return kin_ir_at(p, n)->op == KIN_IR_EXTERN && kin_ir_attrs(p, n)[1] & KIN_IR_EXTERN_EFFECT; }
bool kin_ir_same_sizes(const kin_ir *p, kin_irn a, kin_irn b);
int64_t kin_ir_numel(const kin_ir *p, kin_irn n);

const char *kin_dtype_name(kin_dtype dtype);
unsigned kin_dtype_bytes(kin_dtype dtype);
bool kin_dtype_from_name(const char *name, size_t len, kin_dtype *dtype);
bool kin_dtype_is_float(kin_dtype dtype);   /* F16 ... F64 */
bool kin_dtype_is_integer(kin_dtype dtype); /* U8 ... I64, not BOOL */
const char *kin_ir_op_name(kin_ir_op op);
kin_ir_class kin_ir_op_class(kin_ir_op op);
/* Does it reduce to a position, as ARGMAX and ARGMIN do? */
bool kin_ir_op_is_arg(unsigned op);
bool kin_ir_op_is_slow(unsigned op); /* an element costs as much as a dozen sums */

/* -- text, checks, oracle ---------------------------------------------------------------------------------------- */
/* One node a line (print.c). False when memory was short. */
bool kin_ir_print(const kin_ir *p, kin_text *out);
/* The program that `text` describes (parse.c), or NULL with `why` = "line 3: ..." */
kin_ir *kin_ir_parse(const char *text, kin_text *why);
/* The same nodes in the same order, and the same outputs (equal.c). */
bool kin_ir_equal(const kin_ir *a, const kin_ir *b);
/* Every rule of ops.def (verify.c); false with `why` = "%4 add: ...". */
bool kin_ir_verify(const kin_ir *p, kin_text *why);

/* The same program with less in it (simplify.c): nothing unused, equal nodes once, constants folded, views and casts merged
 * where that is exact; fast_math: also without the rounding to half precision between operations. A CAST to the same
 * dtype is a copy: it stays where an output or an EXTERN wants it. NULL when memory was short. */
kin_ir *kin_ir_simplify(const kin_ir *p, bool fast_math);

/* The oracle (eval.c): one element at a time, double or int64 arithmetic, rounded to each node's dtype. Inputs, results
 * of EXTERN nodes (KIN_BREAK: cannot be evaluated) and outputs are row-major arrays of the node's dtype. KIN_BREAK also
 * when an index is out of bounds or an integer is divided by zero. outputs[i] are made with malloc. */
kin_status kin_ir_eval(const kin_ir *p, const void *const *inputs, void **outputs) KIN_MUST_CHECK;

#endif
