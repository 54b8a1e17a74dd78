/* The JIT as an object: processor, options, LLVM's target machines, the cache on disk. compile.c does the work. */
#include <stdlib.h>

#include "core/base/fault.h"
#include "core/codegen/jit_priv.h"
#include "core/codegen/target.h"

#ifdef KIN_LLVM
extern const char kin_codegen_version[]; /* made by the build from the sources */

/* -- the machine ------------------------------------------------------------------------------------------------- */

static bool
find_processor(kin_jit *jit, const char *cpu)
{
    jit->cpu = cpu ? LLVMCreateMessage(cpu) : LLVMGetHostCPUName();
    jit->features = cpu ? LLVMCreateMessage(kin_target_here.features_of(cpu)) : LLVMGetHostCPUFeatures();
    if (jit->cpu == NULL || jit->features == NULL || kin_fail_now(KIN_FAIL_LLVM))
        return false;
    jit->target = (kin_machine){.cpu = jit->cpu, .features = jit->features};
    kin_target_here.describe(jit->features, &jit->target);
    unsigned major, minor, patch;
    LLVMGetVersion(&major, &minor, &patch);
    kin_text_addf(&jit->text, "%s\n%s\nllvm %u.%u.%u, kernels %s", jit->cpu, jit->features, major, minor, patch, kin_codegen_version);
    return !jit->text.failed;
}

kin_jit *
kin_jit_new(const kin_jit_options *options, kin_text *why)
{
    kin_jit *jit = calloc(1, sizeof *jit);
    if (jit)
        pthread_mutex_init(&jit->lock, NULL);
    if (jit == NULL || !find_processor(jit, options ? options->cpu : NULL)) {
        kin_text_add(why, "memory");
        kin_jit_free(jit);
        return NULL;
    }
    jit->threads = options && options->threads ? options->threads : 1;
    if (options && options->cache_dir)
        kin_jit_set_cache(jit, options->cache_dir, options->cache_limit, why);
    return jit;
}

void
kin_jit_free(kin_jit *jit)
{
    if (jit == NULL)
        return;
    for (uint32_t i = 0; i < jit->objects.len; i++)
        kin_object_unload(&jit->objects.at[i]);
    for (uint32_t i = 0; i < jit->machines.len; i++)
        LLVMDisposeTargetMachine(jit->machines.at[i]);
    for (uint32_t i = 0; i < jit->caches.len; i++)
        kin_store_close(jit->caches.at[i]);
    kin_vec_deinit(&jit->objects);
    kin_vec_deinit(&jit->machines);
    kin_vec_deinit(&jit->caches);
    kin_vec_deinit(&jit->entries);
    kin_intern_deinit(&jit->keys);
    kin_text_deinit(&jit->text);
    if (jit->cpu)
        LLVMDisposeMessage(jit->cpu);
    if (jit->features)
        LLVMDisposeMessage(jit->features);
    pthread_mutex_destroy(&jit->lock);
    free(jit);
}

/* -- target machines --------------------------------------------------------------------------------------------- */

static LLVMTargetMachineRef
make_machine(kin_jit *jit, kin_text *why)
{
    LLVMTargetRef target;
    char *message = NULL;
    if (LLVMGetTargetFromTriple(kin_target_here.triple, &target, &message)) {
        kin_text_addf(why, "LLVM: %s", message);
        LLVMDisposeMessage(message);
        return NULL;
    }
    LLVMTargetMachineRef machine = kin_fail_now(KIN_FAIL_LLVM) ? NULL : LLVMCreateTargetMachine(target, kin_target_here.triple, jit->cpu, jit->features,
                                                           LLVMCodeGenLevelLess, LLVMRelocPIC, LLVMCodeModelSmall);
    if (machine == NULL)
        kin_text_add(why, "LLVM: no machine for this processor");
    return machine;
}

LLVMTargetMachineRef
kin_jit_take_machine(kin_jit *jit, kin_text *why)
{
    kin_jit_lock(jit);
    if (!jit->started) {
        kin_target_here.start();
        jit->started = true;
    }
    LLVMTargetMachineRef machine = jit->machines.len ? jit->machines.at[--jit->machines.len] : make_machine(jit, why);
    kin_jit_unlock(jit);
    return machine;
}

void
kin_jit_give_machine(kin_jit *jit, LLVMTargetMachineRef machine)
{
    kin_jit_lock(jit);
    if (kin_vec_push(&jit->machines, machine) != KIN_OK)
        LLVMDisposeTargetMachine(machine);
    kin_jit_unlock(jit);
}

/* -- options ----------------------------------------------------------------------------------------------------- */

bool
kin_jit_set_cache(kin_jit *jit, const char *folder, uint64_t limit, kin_text *why)
{
    kin_store *c = folder ? kin_store_open(folder, limit, why) : NULL;
    kin_jit_lock(jit);
    jit->cache = NULL;
    /* Some compilation may have the one from before: they stay open. */
    if (c && kin_vec_push(&jit->caches, c) == KIN_OK)
        jit->cache = c;
    else
        kin_store_close(c);
    bool ok = jit->cache != NULL || folder == NULL;
    kin_jit_unlock(jit);
    return ok;
}

void
kin_jit_set_threads(kin_jit *jit, unsigned threads)
{
    kin_jit_lock(jit);
    jit->threads = threads ? threads : 1;
    kin_jit_unlock(jit);
}

void
kin_jit_set_fault(kin_jit *jit, kin_jit_fault fault)
{
    jit->fault = fault;
}

void
kin_jit_cancel(kin_jit *jit)
{
    atomic_store(&jit->cancelled, true);
}

const char *
kin_jit_target(const kin_jit *jit)
{
    return jit->text.at;
}

void
kin_jit_totals(kin_jit *jit, kin_compile_stats *out)
{
    kin_jit_lock(jit);
    *out = jit->totals;
    kin_jit_unlock(jit);
}

void
kin_jit_lock(kin_jit *jit)
{
    pthread_mutex_lock(&jit->lock);
}

void
kin_jit_unlock(kin_jit *jit)
{
    pthread_mutex_unlock(&jit->lock);
}

#else

kin_jit *
kin_jit_new(const kin_jit_options *options, kin_text *why)
{
    kin_text_add(why, "built without LLVM");
    return NULL;
}

void
kin_jit_free(kin_jit *jit)
{
}

bool
kin_jit_set_cache(kin_jit *jit, const char *folder, uint64_t limit, kin_text *why)
{
    return true;
}

void
kin_jit_set_threads(kin_jit *jit, unsigned threads)
{
}

void
kin_jit_set_fault(kin_jit *jit, kin_jit_fault fault)
{
}

void
kin_jit_cancel(kin_jit *jit)
{
}

const char *
kin_jit_target(const kin_jit *jit)
{
    return "";
}

void
kin_jit_totals(kin_jit *jit, kin_compile_stats *out)
{
    *out = (kin_compile_stats){0};
}

void
kin_jit_lock(kin_jit *jit)
{
}

void
kin_jit_unlock(kin_jit *jit)
{
}

#endif
