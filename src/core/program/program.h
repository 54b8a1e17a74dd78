/* A compiled tensor program: buffers and the operations on them, in order. Made by core/codegen from a kin_ir, run by
 * py/launch (or by a test). Everything here is read-only once made and may run in several threads at once; memory for
 * a run belongs to the runner.
 */
#ifndef KIN_PROGRAM_PROGRAM_H
#define KIN_PROGRAM_PROGRAM_H

#include "core/ir/ir.h"

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
 * 0, or 1 for an index out of bounds or an integer division by zero: what it wrote is then undefined. */
typedef int (*kin_kernel_fn)(void *const *buffers, int64_t begin, int64_t end);

typedef struct {
    kin_kernel_fn fn;
    uint32_t *buffers;  /* numbers of program buffers */
    uint32_t nbuffers;
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
} kin_op;

/* Op number `op` writes to a part of an input; when the program comes to nothing after that, `kernel` puts back what lay there. */
typedef struct {
    uint32_t kernel, op;
} kin_undo;

typedef struct kin_program {
    KIN_VEC(kin_buf) buffers;
    KIN_VEC(kin_op) ops;
    KIN_VEC(kin_kernel) kernels;
    KIN_VEC(kin_extern_call) externs;
    uint32_t ncommits;  /* the last ones of ops: kernels that write into inputs and cannot fail; until then nothing has changed that `undos`
                           do not put back, the last one first */
    KIN_VEC(kin_undo) undos;
    uint32_t *outputs;  /* buffer of each output of the tensor program (may be an INPUT or EXTERN buffer) */
    uint32_t noutputs;
    uint32_t *last_use; /* by buffer: the op after which it is not needed; UINT32_MAX = an output */
    size_t arena;       /* bytes for all TEMP buffers, 64-byte aligned */
    void *owner;        /* memory and machine code; internal */
} kin_program;

/* What the cache on disk had for a kernel. */
typedef enum {
#define ANSWER(NAME, text) KIN_STORE_##NAME,
#include "core/program/store_answers.def"
#undef ANSWER
    KIN_STORE__COUNT
} kin_store_answer;
const char *kin_store_answer_text(kin_store_answer answer);

/* The JIT: what was compiled so far (kernels that are equal are compiled once), and LLVM, which is not touched before a
 * kernel is neither in memory nor on disk. One per process; every function takes a lock, compiling does not hold it. */
typedef struct kin_jit kin_jit;
typedef struct {
    const char *cpu;       /* NULL: this machine; else LLVM's name, "x86-64" for the baseline */
    const char *cache_dir; /* NULL: no cache on disk */
    uint64_t cache_limit;  /* bytes; 0: no limit */
    unsigned threads;      /* that compile a program's kernels; 0 is 1 */
} kin_jit_options;
/* NULL with `why` when LLVM cannot be used. */
kin_jit *kin_jit_new(const kin_jit_options *options, kin_text *why);
void kin_jit_free(kin_jit *jit);
/* Another folder, NULL for none. False with `why` when it cannot be used: there is no cache then. */
bool kin_jit_set_cache(kin_jit *jit, const char *folder, uint64_t limit, kin_text *why);
void kin_jit_set_threads(kin_jit *jit, unsigned threads);
/* Processor, its features, LLVM and code generation: what kernels on disk are good for. Lines; lives as long as the jit. */
const char *kin_jit_target(const kin_jit *jit);
/* Held, nobody is halfway through a change: for fork. */
void kin_jit_lock(kin_jit *jit);
void kin_jit_unlock(kin_jit *jit);

/* For tests: what fails from now on. */
typedef enum { KIN_FAULT_NONE, KIN_FAULT_LLVM, KIN_FAULT_MEMORY, KIN_FAULT_FATAL, KIN_FAULT_LLVM_MEMORY } kin_jit_fault;
void kin_jit_set_fault(kin_jit *jit, kin_jit_fault fault);

typedef struct {
    uint32_t kernels;      /* of the program */
    uint32_t compiled;     /* by LLVM, just now */
    uint32_t from_memory, from_disk;
    uint32_t disk[KIN_STORE__COUNT]; /* answers of the cache on disk */
    double fuse_ns, key_ns, disk_ns, codegen_ns, llvm_ns, load_ns; /* codegen, llvm: of the processor, over all threads */
    double slowest_ns;     /* of the kernels, in LLVM */
    size_t code_bytes;     /* of what was loaded just now: machine code and its constants */
    char trouble[200];     /* of the cache on disk; empty: none */
} kin_compile_stats;

/* Everything compiled so far, summed up. */
void kin_jit_totals(kin_jit *jit, kin_compile_stats *out);
void kin_compile_stats_add(kin_compile_stats *to, const kin_compile_stats *from);
/* What came from where: "2 not in the cache, 1 damaged in the cache, removed"; nothing for what was found. */
void kin_compile_stats_say(const kin_compile_stats *stats, kin_text *out);

/* notes: one line per fusion that was refused, with the reason. KIN_BREAK with `why` in notes: a node has no code
 * generation. `ir` may be freed afterwards. */
kin_status kin_program_compile(kin_jit *jit, const kin_ir *ir, kin_program **out, kin_compile_stats *stats,
                               kin_text *notes) KIN_MUST_CHECK;
/* Kernels that kin_program_compile would have to compile, apart: any thread may run the job, once, which frees it; after it
 * kin_program_compile finds them. NULL: there is nothing to wait for (or no memory: compiling will say so). */
typedef struct kin_jit_job kin_jit_job;
kin_jit_job *kin_jit_prepare(kin_jit *jit, const kin_ir *ir);
void kin_jit_job_run(kin_jit_job *job);
void kin_jit_job_drop(kin_jit_job *job);
/* Jobs stop soon, those to come as well. */
void kin_jit_cancel(kin_jit *jit);
void kin_program_free(kin_program *p);
/* The code of a program for people: the loops of each kernel; llvm: what LLVM gets for them, too. */
bool kin_program_list(kin_jit *jit, const kin_ir *ir, bool llvm, kin_text *out);
/* The operations in text: kernels with their loops, extern calls, buffers and where they lie. */
bool kin_program_print(const kin_program *p, kin_text *out);

#endif
