/* A kernel as loops: what core/fuse makes of a group of nodes and core/codegen turns into code. Views are gone; what
 * remains are loads at index expressions, arithmetic, and actions (stores, accumulations) in phases.
 *
 *     for (outer variables)                        one flat range, divided among threads
 *         for each phase p, in order:
 *             for (inner variables)  actions of phase p
 *         actions of the row                       they depend on outer variables and accumulators only
 *
 * Instructions form an expression graph; each is computed wherever an action needs it, once per phase, as far out as
 * its variables allow. Instruction 0 is "none". Accumulators are defined after the phase that fills them.
 */
#ifndef KIN_FUSE_LOOPS_H
#define KIN_FUSE_LOOPS_H

#include "core/fuse/index.h"
#include "core/ir/ir.h"

enum { KIN_LOOP_NO_VAR = UINT32_MAX };

typedef enum {
    KIN_LI_NONE,
    KIN_LI_OP,    /* `op` of `args` */
    KIN_LI_CONST, /* `value` */
    KIN_LI_INDEX, /* the expression `index` as I64 */
    KIN_LI_LOAD,  /* buffer[index]; where `mask` is false nothing is read and the result is any value */
    KIN_LI_CHECK, /* args[0] (I64), reported as an error where `mask` holds and it lies outside [0, value.i) */
    KIN_LI_ACC    /* the result of accumulator `buffer` */
} kin_loop_inst_kind;

/* No padding: kernels are compared by their bytes. */
typedef struct {
    uint8_t kind, op, dtype, pad;
    uint32_t args[3];
    uint32_t mask;   /* BOOL instruction or 0: LOAD, CHECK and integer division */
    uint32_t buffer; /* of the kernel's own list */
    kin_ix index;
    uint32_t pad2;
    kin_scalar value;
} kin_loop_inst;

typedef enum {
    KIN_LA_STORE,   /* buffer[index] = value */
    KIN_LA_REDUCE,  /* accumulator `acc` takes in value; `op` is the IR's */
    KIN_LA_SCAN,    /* accumulator takes in value and its new content is stored at buffer[index] */
    KIN_LA_UPDATE   /* buffer[index] = mode `op` (kin_ir_scatter) of itself and value, one element after the other */
} kin_loop_action_kind;

typedef struct {
    uint8_t kind, op, dtype; /* dtype: of the accumulator or buffer */
    bool row;                /* STORE outside the inner loops */
    uint32_t phase;
    uint32_t value, buffer, acc;
    uint32_t position;       /* ARGMAX, ARGMIN: I64 instruction, what is kept of the best element */
    kin_ix index;
} kin_loop_action;

typedef struct {
    int64_t size;
    bool inner;
    bool column;     /* with a window: counts columns. Rows and columns are not merged */
} kin_loop_var;

typedef struct {
    uint8_t dtype;
    bool written;
    bool streams;    /* large, at a multiple of 64 and not read again soon: may be written past the caches */
    bool local;      /* memory of the kernel's own, for one row: elements numbered by the inner variables */
    int64_t elements; /* local */
} kin_loop_buffer;

typedef struct {
    KIN_VEC(kin_loop_var) vars;       /* in the order of the loops */
    KIN_VEC(kin_loop_inst) insts;     /* [0] is unused */
    KIN_VEC(kin_loop_action) actions; /* by phase */
    KIN_VEC(kin_loop_buffer) buffers;
    kin_ix_space ix;
    uint32_t nphases, naccs;
    uint32_t vector_var;              /* or KIN_LOOP_NO_VAR */
    bool ordered;                     /* inner loops must run in the order of vars */
    bool checks;                      /* can report an error */
    bool varying;                     /* kernels for other sizes should be of the same shape */
    bool fast_math;                   /* as in kin_ir */
    bool window;                      /* the vector's variable runs over a part of its range, given by two I64 behind the buffers (from, to),
                                         multiples of 32 or the end */
} kin_loops;

void kin_loops_init(kin_loops *k);
void kin_loops_deinit(kin_loops *k);

/* Bit v of the result: the instruction depends on variable v directly or through its arguments. deps has room for one word
 * an instruction; vars beyond 63 count as bit 63. */
void kin_loops_deps(const kin_loops *k, uint64_t *deps);
uint64_t kin_loops_index_deps(const kin_loops *k, kin_ix e, const uint64_t *deps);
/* Merges variables that always go together, chooses the one to vectorise (arrange.c). False: out of memory. */
bool kin_loops_arrange(kin_loops *k);
/* Keeps values that several phases need, and expensive ones, in local buffers (spill.c). After arranging. */
bool kin_loops_spill(kin_loops *k);
/* Last of all: variables that were merged into others are gone, and the others are numbered without gaps, so that a batch of one has the kernels of larger ones. */
void kin_loops_number(kin_loops *k);
/* All three. False: out of memory. */
bool kin_loops_finish(kin_loops *k);
bool kin_loops_print(const kin_loops *k, kin_text *out);

#endif
