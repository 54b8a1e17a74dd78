/* Private to src/core/codegen: the JIT's state, and what it has LLVM compile. Its lock guards all mutable fields, and is never held while something is
 * compiled, read or written. */
#ifndef KIN_CODEGEN_JIT_PRIV_H
#define KIN_CODEGEN_JIT_PRIV_H

#include <pthread.h>
#include <stdatomic.h>

#include "core/base/intern.h"
#include "core/codegen/codegen.h"
#include "core/codegen/emit.h"
#include "core/object/object.h"
#include "core/codegen/store.h"

#ifdef KIN_LLVM
#include <llvm-c/TargetMachine.h>

struct kin_jit {
    pthread_mutex_t lock;
    char *cpu, *features;
    kin_machine target;
    kin_text text;               /* see kin_jit_target */
    bool started;                /* LLVM */
    KIN_VEC(LLVMTargetMachineRef) machines; /* not in use */
    kin_intern keys;             /* of kernels */
    KIN_VEC(void *) entries;     /* by key number; NULL: not compiled */
    KIN_VEC(kin_object) objects; /* what is loaded */
    kin_store *cache;            /* in use: one of these, or NULL */
    KIN_VEC(kin_store *) caches;
    unsigned threads;
    kin_jit_fault fault;
    atomic_bool cancelled;       /* jobs end without a result */
    kin_compile_stats totals;
};

/* A machine is one thread's until it is given back. NULL with `why`. */
LLVMTargetMachineRef kin_jit_take_machine(kin_jit *jit, kin_text *why);
void kin_jit_give_machine(kin_jit *jit, LLVMTargetMachineRef machine);

/* -- kernels that LLVM compiles (wants.c) -------------------------------------------------------------------------- */

/* A kernel that is not in memory. */
typedef struct {
    const kin_loops *loops;
    kin_kernel_plan run;
    uint32_t number;            /* of its key */
    kin_text key;
    kin_numbers numbers;        /* where some are open */
    bool *open;                 /* by number; NULL: none is */
    kin_store_found found;      /* on disk */
    void *object;               /* made by LLVM */
    size_t len;
    bool counted;
    double codegen_ns, llvm_ns;
} kin_want;

typedef KIN_VEC(kin_want) kin_wants;

/* Makes the objects of those that have none and were not found on disk (`missing`), on the threads of the JIT. may_be_cancelled: nobody waits. `stats` counts them. */
kin_status kin_wants_compile(kin_jit *jit, kin_wants *wants, bool may_be_cancelled, uint32_t missing, kin_compile_stats *stats, kin_text *why) KIN_MUST_CHECK;

#endif
#endif
