/* Machine code for fused kernels: from memory, else from the cache on disk, else from LLVM.
 *
 *     kin_jit *jit = kin_jit_new(NULL, &why);
 *     kin_fuse(ir, false, &fused, NULL); kin_program_plan(fused.program);
 *     kin_codegen(jit, &fused, NULL, NULL, &stats, &why);     fused.program can be run
 *
 * Other folders get it through core/pipeline.
 */
#ifndef KIN_CODEGEN_CODEGEN_H
#define KIN_CODEGEN_CODEGEN_H

#include "core/fuse/fuse.h"

/* What the cache on disk had for a kernel. */
typedef enum {
#define ANSWER(NAME, text) KIN_STORE_##NAME,
#include "core/codegen/store_answers.def"
#undef ANSWER
    KIN_STORE__COUNT
} kin_store_answer;

/* -- the JIT (jit.c) ----------------------------------------------------------------------------------------------
 * What was compiled so far (kernels that are equal are compiled once), and LLVM, which is not touched before a
 * kernel is neither in memory nor on disk. One per process; every function takes a lock, compiling does not hold it. */
typedef struct kin_jit kin_jit;
typedef struct {
    const char *cpu;       /* NULL: this machine; else LLVM's name, as "x86-64-v3" */
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
/* Processor, its features, LLVM and code generation: what kernels on disk are valid for. Lines; lives as long as the jit. */
const char *kin_jit_target(const kin_jit *jit);
/* While it is held, no change is half done: for fork. */
void kin_jit_lock(kin_jit *jit);
void kin_jit_unlock(kin_jit *jit);
/* Jobs stop soon, and so do those that are still to come. */
void kin_jit_cancel(kin_jit *jit);

/* For tests: what fails from now on. */
typedef enum { KIN_FAULT_NONE, KIN_FAULT_LLVM, KIN_FAULT_MEMORY, KIN_FAULT_FATAL, KIN_FAULT_LLVM_MEMORY } kin_jit_fault;
void kin_jit_set_fault(kin_jit *jit, kin_jit_fault fault);

/* -- what it cost (stats.c) ---------------------------------------------------------------------------------------- */
typedef struct {
    uint32_t kernels;      /* of the program */
    uint32_t compiled;     /* by LLVM, just now */
    uint32_t from_memory, from_disk;
    uint32_t disk[KIN_STORE__COUNT]; /* answers of the cache on disk */
    double fuse_ns, key_ns, disk_ns, codegen_ns, llvm_ns, load_ns; /* codegen, llvm: of the processor, over all threads */
    double slowest_ns;     /* of the kernels, in LLVM */
    size_t code_bytes;     /* of what was loaded just now: machine code and its constants */
    char trouble[200];     /* with the cache on disk; empty: none */
} kin_compile_stats;

/* The sum over everything compiled so far. */
void kin_jit_totals(kin_jit *jit, kin_compile_stats *out);
void kin_compile_stats_add(kin_compile_stats *to, const kin_compile_stats *from);
/* Why kernels were not found on disk: "2 not in the cache, 1 damaged in the cache, removed". */
void kin_compile_stats_say(const kin_compile_stats *stats, kin_text *out);

/* -- compiling (compile.c) ------------------------------------------------------------------------------------------ */

/* Kernels that are still to be compiled. Any thread may run the job, once, which frees it; afterwards kin_codegen of an equal
 * program finds them in memory. */
typedef struct kin_jit_job kin_jit_job;
void kin_jit_job_run(kin_jit_job *job, kin_compile_stats *stats);
void kin_jit_job_drop(kin_jit_job *job);

/* What is known of the kernels of one graph over its sizes (open.h, docs/design/sizes.md): from the second program on that is compiled with it, code
 * takes the sizes that vary as arguments. */
typedef struct kin_family kin_family;
kin_family *kin_family_new(bool all); /* all: every number is open from the start, for tests. NULL without memory */
void kin_family_free(kin_family *f);
/* How often code was missing for a program of the family. */
uint32_t kin_family_made(const kin_family *f);

/* Gives every kernel of the program its function. KIN_BREAK with `why`: it cannot be compiled. family: NULL: sizes are in the code. job (may be NULL): when LLVM is needed
 * for a kernel, nothing is compiled; a job that joins those of *job takes over what `f` holds, program included, and the answer is KIN_BREAK. */
kin_status kin_codegen(kin_jit *jit, kin_fused *f, kin_family *family, kin_jit_job **job, kin_compile_stats *stats, kin_text *why) KIN_MUST_CHECK;
/* The family notes the program, and nothing is compiled: KIN_BREAK. */
kin_status kin_codegen_meet(kin_jit *jit, kin_fused *f, kin_family *family, kin_compile_stats *stats, kin_text *why) KIN_MUST_CHECK;
/* The program and the loops of each kernel as text; llvm: also what LLVM gets for them. */
bool kin_codegen_print(kin_jit *jit, const kin_fused *f, bool llvm, kin_text *out);

#endif
