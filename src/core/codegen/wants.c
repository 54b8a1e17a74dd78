/* What LLVM does: kernels become objects, several in one module, on several threads. */
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/clock.h"
#include "core/base/fault.h"
#include "core/codegen/rescue.h"
#include "core/codegen/target.h"
#include "core/codegen/jit_priv.h"

#ifdef KIN_LLVM
#include <llvm-c/Analysis.h>

/* -- some kernels ------------------------------------------------------------------------------------------------ */

enum { MOST_TOGETHER = 8 };

/* What one thread compiles at a time, as one module: LLVM sets up its passes for each module, which takes as long as a small kernel. */
typedef struct {
    kin_jit *jit;
    LLVMTargetMachineRef machine;
    kin_want *wants[MOST_TOGETHER];
    unsigned n;
    kin_status status;
    kin_text why;
} worker;

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

/* LLVM would end the process over an error in the code that nobody listens to. */
static void
listen(LLVMDiagnosticInfoRef info, void *arg)
{
    worker *k = arg;
    if (LLVMGetDiagInfoSeverity(info) != LLVMDSError)
        return;
    char *message = LLVMGetDiagInfoDescription(info);
    if (k->status == KIN_OK)
        kin_text_addf(&k->why, "LLVM: %s", message);
    LLVMDisposeMessage(message);
    k->status = KIN_BREAK;
}

typedef struct {
    char text[24];
} kernel_name;

/* "kernel.3"; "kernel", where it is the only one. */
static kernel_name
name_of(const worker *k, unsigned number)
{
    kernel_name name = {"kernel"};
    if (k->n > 1)
        snprintf(name.text, sizeof name.text, "kernel.%u", number);
    return name;
}

/* A name and a section of its own, which can be taken out. */
static void
name_apart(LLVMModuleRef module, kernel_name name)
{
    char section[32];
    LLVMValueRef function = LLVMGetNamedFunction(module, "kernel");
    snprintf(section, sizeof section, ".text.%s", name.text);
    LLVMSetValueName2(function, name.text, strlen(name.text));
    LLVMSetSection(function, section);
}

static kin_status
emit_all(worker *k, LLVMModuleRef module)
{
    for (unsigned i = 0; i < k->n; i++) {
        kin_want *w = k->wants[i];
        if (kin_fail_now(KIN_FAIL_LLVM) || !kin_emit(w->loops, &k->jit->target, &w->run, &(kin_open){&w->numbers, w->open}, module, &k->why))
            return KIN_BREAK;
        if (k->n > 1)
            name_apart(module, name_of(k, i));
    }
    return KIN_OK;
}

/* Each kernel gets an object with what it needs of the module's. */
static kin_status
hand_out(worker *k, const void *bytes, size_t len)
{
    for (unsigned i = 0; i < k->n; i++)
        KIN_TRY(kin_object_extract(bytes, len, name_of(k, i).text, &k->wants[i]->object, &k->wants[i]->len, &k->why));
    return KIN_OK;
}

static kin_status
assemble(worker *k, LLVMModuleRef module)
{
    char *message = NULL;
    LLVMMemoryBufferRef object = NULL;
    bool planted = kin_fail_now(KIN_FAIL_LLVM);
    bool failed = planted || LLVMTargetMachineEmitToMemoryBuffer(k->machine, module, LLVMObjectFile, &message, &object) != 0;
    if (failed) {
        kin_text_addf(&k->why, "LLVM: %s", planted ? "failed for a test" : message);
        LLVMDisposeMessage(message);
    }
    kin_status s = failed || k->status != KIN_OK ? KIN_BREAK : hand_out(k, LLVMGetBufferStart(object), LLVMGetBufferSize(object));
    if (object)
        LLVMDisposeMemoryBuffer(object);
    return s;
}

/* What each kernel took, by how much there is of it. */
static void
share_time(worker *k, double codegen_ns, double llvm_ns)
{
    double all = 0;
    for (unsigned i = 0; i < k->n; i++)
        all += k->wants[i]->loops->insts.len;
    for (unsigned i = 0; i < k->n; i++) {
        double share = k->wants[i]->loops->insts.len / all;
        k->wants[i]->codegen_ns = share * codegen_ns;
        k->wants[i]->llvm_ns = share * llvm_ns;
    }
}

static void
compile_kernels(void *arg)
{
    worker *k = arg;
    double start = kin_clock_thread_ns();
    if (k->machine == NULL)
        k->machine = kin_jit_take_machine(k->jit, &k->why);
    if (k->machine == NULL) {
        k->status = KIN_BREAK;
        return;
    }
    LLVMContextRef context = LLVMContextCreate();
    LLVMContextSetDiagnosticHandler(context, listen, k);
    LLVMModuleRef module = LLVMModuleCreateWithNameInContext("kernel", context);
    LLVMSetTarget(module, kin_target_here.triple);
    kin_status s = emit_all(k, module);
#ifndef NDEBUG
    if (s == KIN_OK)
        s = verify(module, &k->why);
#endif
    const char *show = getenv("KIN_SHOW_LLVM");
    if (show && *show)
        LLVMDumpModule(module);
    kin_rescue_provoke(k->jit->fault == KIN_FAULT_FATAL ? KIN_RESCUE_FAILED
                       : k->jit->fault == KIN_FAULT_LLVM_MEMORY ? KIN_RESCUE_MEMORY : KIN_RESCUE_DONE);
    double made = kin_clock_thread_ns();
    if (s == KIN_OK)
        s = assemble(k, module);
    LLVMDisposeModule(module);
    LLVMContextDispose(context);
    share_time(k, made - start, kin_clock_thread_ns() - made);
    k->status = s;
}

/* -- several threads --------------------------------------------------------------------------------------------- */

/* What all threads take from. */
typedef struct {
    kin_jit *jit;
    kin_wants *wants;
    bool may_be_cancelled;
    unsigned together;  /* kernels in one module */
    atomic_uint next;   /* want that no thread has looked at */
    atomic_int failed;  /* kin_status of the first thread that could not compile something */
    kin_text *why;
} queue;

/* What one thread cannot compile, the others need not go on with. */
static void
fail(queue *q, kin_status status, const char *why)
{
    int none = KIN_OK;
    if (!atomic_compare_exchange_strong(&q->failed, &none, (int)status))
        return;
    kin_text_add(q->why, why);
    atomic_store(&q->next, q->wants->len);
}

/* The next kernels that nobody has compiled. False: there are none left. */
static bool
take_kernels(queue *q, worker *k)
{
    k->n = 0;
    for (unsigned first; k->n == 0 && (first = atomic_fetch_add(&q->next, q->together)) < q->wants->len;)
        for (unsigned i = first; i < first + q->together && i < q->wants->len; i++)
            if (!q->wants->at[i].found.memory && !q->wants->at[i].object)
                k->wants[k->n++] = &q->wants->at[i];
    return k->n > 0;
}

static void *
compile_some(void *arg)
{
    queue *q = arg;
    worker k = {.jit = q->jit};
    while (k.status == KIN_OK && take_kernels(q, &k)) {
        if (q->may_be_cancelled && atomic_load(&q->jit->cancelled)) {
            k.status = KIN_BREAK;
        } else if (kin_rescue_run(compile_kernels, &k, &k.why) != KIN_RESCUE_DONE) {
            k.status = KIN_BREAK;
            k.machine = NULL; /* in an unknown state */
        }
    }
    if (k.machine)
        kin_jit_give_machine(q->jit, k.machine);
    if (k.status != KIN_OK)
        fail(q, k.status, k.why.len ? k.why.at : "LLVM: a kernel was not compiled");
    kin_text_deinit(&k.why);
    return NULL;
}

/* Signals are for the threads of the program. */
static bool
start_helper(pthread_t *thread, queue *q)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    bool ok = pthread_create(thread, NULL, compile_some, q) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return ok;
}

/* Few kernels are shared out among the threads; of many, each takes some and comes again, so that all end at about the same time. */
static unsigned
count_together(uint32_t missing, unsigned threads)
{
    unsigned n = threads > 1 ? (missing + 2 * threads - 1) / (2 * threads) : missing;
    return n < 1 ? 1 : n < MOST_TOGETHER ? n : MOST_TOGETHER;
}

static void
count_made(const kin_wants *wants, kin_compile_stats *stats)
{
    for (uint32_t i = 0; i < wants->len; i++) {
        kin_want *w = &wants->at[i];
        if (w->object == NULL || w->counted)
            continue;
        w->counted = true;
        stats->compiled++;
        stats->codegen_ns += w->codegen_ns;
        stats->llvm_ns += w->llvm_ns;
        if (w->llvm_ns > stats->slowest_ns)
            stats->slowest_ns = w->llvm_ns;
    }
}

kin_status
kin_wants_compile(kin_jit *jit, kin_wants *wants, bool may_be_cancelled, uint32_t missing, kin_compile_stats *stats, kin_text *why)
{
    pthread_t helpers[63];
    unsigned n = 0, threads = jit->threads, most = missing < threads ? missing : threads;
    queue q = {.jit = jit, .wants = wants, .may_be_cancelled = may_be_cancelled, .together = count_together(missing, threads), .why = why};
    while (n + 1 < most && n < 63 && start_helper(&helpers[n], &q))
        n++;
    compile_some(&q);
    while (n > 0)
        pthread_join(helpers[--n], NULL);
    count_made(wants, stats);
    return (kin_status)atomic_load(&q.failed);
}

#endif
