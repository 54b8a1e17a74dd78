/* The JIT: LLVM's target machine, kernels compiled so far by their bytes, and the way from a tensor program to a program that
 * runs. One lock guards all of it.
 */
#include <pthread.h>
#include <time.h>

#include "core/base/intern.h"
#include "core/codegen/emit.h"
#include "core/fuse/fuse.h"

#ifdef KIN_LLVM
#include <llvm-c/Analysis.h>
#include <llvm-c/Target.h>
#include <llvm-c/TargetMachine.h>

struct kin_jit {
    pthread_mutex_t lock;
    LLVMTargetMachineRef machine;
    char *cpu, *features;
    kin_target target;
    kin_intern keys;             /* of kernels */
    KIN_VEC(kin_object) objects; /* by key number */
};

static double
now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

/* -- the machine ------------------------------------------------------------------------------------------------- */

static bool
has_feature(const char *features, const char *name)
{
    size_t len = strlen(name);
    for (const char *at = features; (at = strstr(at, name)) != NULL; at += len)
        if ((at == features || at[-1] == ',') && (at[len] == ',' || at[len] == 0))
            return true;
    return false;
}

static void
describe_target(kin_jit *jit)
{
    const char *f = jit->features;
    bool wide = has_feature(f, "+avx512f") && has_feature(f, "+avx512bw") && has_feature(f, "+avx512vl") && has_feature(f, "+avx512dq");
    jit->target = (kin_target){.cpu = jit->cpu, .features = f};
    jit->target.vector_bytes = wide ? 64 : has_feature(f, "+avx2") ? 32 : 16;
    jit->target.f16 = has_feature(f, "+f16c");
}

static bool
make_machine(kin_jit *jit, const kin_jit_options *options, kin_text *why)
{
    LLVMInitializeX86TargetInfo();
    LLVMInitializeX86Target();
    LLVMInitializeX86TargetMC();
    LLVMInitializeX86AsmPrinter();
    const char *triple = "x86_64-unknown-linux-gnu";
    LLVMTargetRef target;
    char *message = NULL;
    if (LLVMGetTargetFromTriple(triple, &target, &message)) {
        kin_text_addf(why, "LLVM: %s", message);
        LLVMDisposeMessage(message);
        return false;
    }
    const char *cpu = options ? options->cpu : NULL;
    jit->cpu = cpu ? LLVMCreateMessage(cpu) : LLVMGetHostCPUName();
    jit->features = cpu ? LLVMCreateMessage(strcmp(cpu, "x86-64-v4") == 0 ? "+avx512f,+avx512bw,+avx512vl,+avx512dq,+f16c,+fma"
                                            : strcmp(cpu, "x86-64-v3") == 0 ? "+avx2,+f16c,+fma" : "")
                        : LLVMGetHostCPUFeatures();
    jit->machine = LLVMCreateTargetMachine(target, triple, jit->cpu, jit->features, LLVMCodeGenLevelLess, LLVMRelocPIC,
                                           LLVMCodeModelSmall);
    if (jit->machine == NULL)
        kin_text_add(why, "LLVM: no machine for this processor");
    describe_target(jit);
    return jit->machine != NULL;
}

kin_jit *
kin_jit_new(const kin_jit_options *options, kin_text *why)
{
    kin_jit *jit = calloc(1, sizeof *jit);
    if (jit == NULL) {
        kin_text_add(why, "memory");
        return NULL;
    }
    pthread_mutex_init(&jit->lock, NULL);
    if (!make_machine(jit, options, why)) {
        kin_jit_free(jit);
        return NULL;
    }
    return jit;
}

void
kin_jit_free(kin_jit *jit)
{
    if (jit == NULL)
        return;
    for (uint32_t i = 0; i < jit->objects.len; i++)
        kin_object_unload(&jit->objects.at[i]);
    kin_vec_deinit(&jit->objects);
    kin_intern_deinit(&jit->keys);
    if (jit->machine)
        LLVMDisposeTargetMachine(jit->machine);
    if (jit->cpu)
        LLVMDisposeMessage(jit->cpu);
    if (jit->features)
        LLVMDisposeMessage(jit->features);
    pthread_mutex_destroy(&jit->lock);
    free(jit);
}

/* -- one kernel -------------------------------------------------------------------------------------------------- */

static kin_status
assemble(kin_jit *jit, LLVMModuleRef module, kin_object *out, kin_text *why)
{
    char *message = NULL;
    LLVMMemoryBufferRef object = NULL;
    if (LLVMTargetMachineEmitToMemoryBuffer(jit->machine, module, LLVMObjectFile, &message, &object)) {
        kin_text_addf(why, "LLVM: %s", message);
        LLVMDisposeMessage(message);
        return KIN_BREAK;
    }
    kin_status s = kin_object_load(LLVMGetBufferStart(object), LLVMGetBufferSize(object), out, why);
    LLVMDisposeMemoryBuffer(object);
    return s;
}

#ifndef NDEBUG
static kin_status
verify(LLVMModuleRef module, kin_text *why)
{
    char *message = NULL;
    bool bad = LLVMVerifyModule(module, LLVMReturnStatusAction, &message);
    if (bad)
        kin_text_addf(why, "LLVM: %s", message);
    LLVMDisposeMessage(message);
    return bad ? KIN_BUG : KIN_OK;
}
#endif

static kin_status
compile_kernel(kin_jit *jit, const kin_loops *k, const kin_run *run, kin_object *out, kin_compile_stats *stats, kin_text *why)
{
    double start = now_ns();
    LLVMContextRef context = LLVMContextCreate();
    LLVMModuleRef module = LLVMModuleCreateWithNameInContext("kernel", context);
    LLVMSetTarget(module, "x86_64-unknown-linux-gnu");
    kin_status s = kin_emit(k, &jit->target, run, module, why) ? KIN_OK : KIN_BREAK;
#ifndef NDEBUG
    if (s == KIN_OK)
        s = verify(module, why);
#endif
    const char *show = getenv("KIN_SHOW_LLVM");
    if (show && *show)
        LLVMDumpModule(module);
    double made = now_ns();
    stats->codegen_ns += made - start;
    if (s == KIN_OK)
        s = assemble(jit, module, out, why);
    LLVMDisposeModule(module);
    LLVMContextDispose(context);
    stats->llvm_ns += now_ns() - made;
    return s;
}

/* Everything that decides about the code, as bytes. */
static bool
key_of(const kin_loops *k, const kin_run *run, kin_text *key)
{
#define ADD(v) kin_text_add_len(key, (const char *)(v).at, (uint32_t)((v).len * sizeof *(v).at))
    ADD(k->insts);
    kin_loops_print(k, key); /* variables, actions and indices: no padding there */
    for (uint32_t i = 0; i < k->buffers.len; i++)
        kin_text_addf(key, "b%u %s %d %lld ", i, kin_dtype_name(k->buffers.at[i].dtype), k->buffers.at[i].local,
                      (long long)k->buffers.at[i].elements);
#undef ADD
    kin_text_addf(key, "%d %u %u %d", run->kind, run->lanes, k->nphases, k->ordered);
    return !key->failed;
}

static kin_status
find_or_compile(kin_jit *jit, const kin_loops *k, const kin_run *run, kin_kernel_fn *fn, kin_compile_stats *stats, kin_text *why)
{
    kin_text key = {0};
    bool fresh, ok = key_of(k, run, &key);
    uint32_t n = ok ? kin_intern_put(&jit->keys, key.at, key.len, &fresh) : 0;
    kin_text_deinit(&key);
    if (!ok || jit->keys.failed)
        return KIN_NOMEM;
    kin_object object = {0};
    if (fresh)
        KIN_TRY(kin_vec_push(&jit->objects, object));
    kin_object *at = &jit->objects.at[n];
    if (at->entry == NULL) {
        KIN_TRY(compile_kernel(jit, k, run, at, stats, why));
        stats->compiled++;
    } else {
        stats->from_memory++;
    }
    memcpy(fn, &at->entry, sizeof *fn);
    return KIN_OK;
}

static bool
needs_f16(const kin_loops *k)
{
    for (uint32_t i = 1; i < k->insts.len; i++)
        if (k->insts.at[i].dtype == KIN_F16)
            return true;
    return false;
}

static kin_status
compile_all(kin_jit *jit, kin_fused *f, kin_compile_stats *stats, kin_text *why)
{
    for (uint32_t i = 0; i < f->kernels.len; i++) {
        const kin_loops *k = &f->kernels.at[i].loops;
        kin_kernel *out = &f->program->kernels.at[f->kernels.at[i].kernel];
        kin_run run = kin_emit_plan(k, &jit->target);
        if (needs_f16(k) && !jit->target.f16) {
            kin_text_add(why, "half precision on a processor without F16C");
            return KIN_BREAK;
        }
        KIN_TRY(find_or_compile(jit, k, &run, &out->fn, stats, why));
        out->range = run.range;
        out->grain = run.grain;
        out->cost = run.cost;
        stats->kernels++;
    }
    return KIN_OK;
}

kin_status
kin_program_compile(kin_jit *jit, const kin_ir *ir, kin_program **out, kin_compile_stats *stats, kin_text *notes)
{
    kin_compile_stats none;
    kin_text unread = {0}, *why = notes ? notes : &unread;
    kin_fused f;
    stats = stats ? stats : &none;
    *stats = (kin_compile_stats){0};
    *out = NULL;
    double start = now_ns();
    kin_status s = kin_fuse(ir, &f, notes);
    stats->fuse_ns = now_ns() - start;
    if (s == KIN_OK) {
        pthread_mutex_lock(&jit->lock);
        s = compile_all(jit, &f, stats, why);
        pthread_mutex_unlock(&jit->lock);
        kin_fused_deinit(&f);
        if (s == KIN_OK)
            *out = f.program;
        else
            kin_program_free(f.program);
    }
    kin_text_deinit(&unread);
    return s;
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

kin_status
kin_program_compile(kin_jit *jit, const kin_ir *ir, kin_program **out, kin_compile_stats *stats, kin_text *notes)
{
    *out = NULL;
    return KIN_BREAK;
}

#endif
