/* Private to src/core/codegen: the JIT's state. Its lock guards all mutable fields, and is never held while something is
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

#endif
#endif
