/* A compiled tensor program: buffers and the operations on them, in order. Built by core/fuse, its kernels by core/codegen; run by
 * py/run (or by a test). It does not change after it was built and may run in several threads at once; memory for
 * a run belongs to the runner.
 */
#ifndef KIN_PROGRAM_PROGRAM_H
#define KIN_PROGRAM_PROGRAM_H

#include "core/ir/ir.h"
#include "core/program/sizes.h"

typedef enum {
    KIN_BUF_INPUT,   /* input `index` of the tensor program */
    KIN_BUF_OUTPUT,  /* output `index`: fresh memory that the caller keeps */
    KIN_BUF_TEMP,    /* in the arena at `offset` */
    KIN_BUF_EXTERN,  /* what an extern call returns; calls that write INTO memory have OUTPUT and TEMP buffers */
    KIN_BUF_CONST    /* bytes of the program (`data`) */
} kin_buf_kind;

typedef struct {
    uint8_t kind, dtype, ndim;
    uint32_t index;
    const int64_t *sizes, *strides; /* owned by the program */
    size_t bytes;                   /* from the first to the last element */
    size_t offset;                  /* TEMP */
    const void *data;               /* CONST */
} kin_buf;

/* buffers: the data pointers of the kernel's buffers, in its order. [begin, end) of the outer iteration space. Returns
 * numbers: sizes that are not in its code (kin_kernel.numbers). Returns
 * 0, or 1 for an index out of bounds or an integer division by zero: what it wrote is then undefined. */
typedef int (*kin_kernel_fn)(void *const *buffers, int64_t begin, int64_t end, const int64_t *numbers);

/* What the range of a kernel consists of. */
typedef struct {
    int64_t rows, along; /* rows times chunks of `lanes` along the vector's variable */
    int64_t elements;    /* of all its loops */
    double each;         /* estimated nanoseconds for one */
    uint32_t arithmetic; /* operations on one: for reports */
    uint32_t lanes;
    bool linear;         /* it is split at multiples of 256 */
} kin_kernel_work;

typedef struct {
    kin_kernel_fn fn;
    uint32_t *buffers;  /* numbers of program buffers */
    uint32_t nbuffers;
    const int64_t *numbers; /* owned by the program; NULL: all are in the code */
    uint32_t nnumbers;
    kin_kernel_work work;
    int64_t range;      /* size of the outer iteration space */
    int64_t grain;      /* at least so much of it is worth a thread; ranges are split at multiples of this */
    double cost;        /* estimated nanoseconds on one core, for the decision about threads */
    uint32_t writes;    /* the one buffer that it writes, which may lie where one of these did: they are read where it is written */
    uint32_t *over, nover;
    bool streams;       /* wants the buffers it writes at multiples of 64 */
    bool window;        /* an epilogue: the range numbers rows, and behind the buffers stand two I64: columns from, to; multiples of 32 or
                           the end */
    char *name;         /* "fused_add_tanh_sum": for traces and reports */
} kin_kernel;

/* A tensor handed to an extern call: all or part of a buffer. */
typedef struct {
    uint32_t buffer;
    uint8_t ndim;
    const int64_t *sizes, *strides; /* in elements */
    int64_t offset;                 /* in elements from the buffer's first */
    bool whole;                     /* the buffer as it is */
} kin_extern_arg;

typedef struct {
    uint32_t number;    /* as given to kin_ir_extern */
    const char *name;
    kin_extern_arg *args;
    uint32_t nargs;
    uint32_t *results;  /* buffer for each result, UINT32_MAX = not used */
    uint32_t nresults;
    uint32_t epilogue;  /* a kernel, counted from 1, that is run on blocks of the first result as they are made; 0: none */
    int64_t columns;    /* ... it knows so many; rows of the result are a multiple of that long */
} kin_extern_call;

typedef struct {
    bool is_extern;
    uint32_t index;     /* in kernels or externs */
} kin_program_op;

/* Op number `op` updates a part of an input; when the program fails after that, `kernel` restores what was there. */
typedef struct {
    uint32_t kernel, op;
} kin_undo;

typedef struct kin_program {
    KIN_VEC(kin_buf) buffers;
    KIN_VEC(kin_program_op) ops;
    KIN_VEC(kin_kernel) kernels;
    KIN_VEC(kin_extern_call) externs;
    uint32_t nwrite_backs;  /* the last ones of ops: kernels that write into inputs and cannot fail; until then nothing has changed that `undos`
                           do not put back, the last one first */
    KIN_VEC(kin_undo) undos;
    uint32_t *outputs;  /* buffer of each output of the tensor program (may be an INPUT or EXTERN buffer) */
    uint32_t noutputs;
    uint32_t *last_use; /* by buffer: the op after which it is not needed; UINT32_MAX = an output */
    KIN_VEC(kin_sizes_question) asked; /* what decided how its kernels read, if sizes vary: other sizes may have other answers */
    size_t arena;       /* bytes for all TEMP buffers, 64-byte aligned */
    void *owner;        /* memory and machine code; internal */
} kin_program;

/* Range, grain and cost from `work`. */
void kin_kernel_spread(kin_kernel *k);

void kin_program_free(kin_program *p);
/* The operations in text: kernels with their loops, extern calls, buffers and where they lie. */
bool kin_program_print(const kin_program *p, kin_text *out);

#endif
