/* Survives LLVM's fatal errors (rescue.h): the handlers jump out of the thread's compilation. LLVM is
 * built without exceptions and needs no unwinding; what it had allocated is leaked, which hardly ever happens.
 */
#include "core/codegen/rescue.h"

#ifdef KIN_LLVM
#include <setjmp.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>

#include <llvm-c/ErrorHandling.h>

/* These have no C interface. */
typedef void (*on_new)(void);
typedef void (*on_bad_alloc)(void *data, const char *reason, bool with_crash_report);
extern on_new set_new_handler(on_new handler) __asm__("_ZSt15set_new_handlerPFvvE");
extern void install_bad_alloc(on_bad_alloc handler, void *data)
    __asm__("_ZN4llvm31install_bad_alloc_error_handlerEPFvPvPKcbES0_");
extern void *operator_new(size_t size) __asm__("_Znwm");
extern void report_fatal(const char *reason, bool with_crash_report) __asm__("_ZN4llvm18report_fatal_errorEPKcb");

typedef struct {
    jmp_buf back;
    char message[160];
} rescue;

static _Thread_local rescue *current;
static _Atomic(on_new) others_new; /* the program's own handler */
static atomic_bool gone;           /* LLVM, for good */

static void
fatal(const char *reason)
{
    if (current == NULL)
        return;
    snprintf(current->message, sizeof current->message, "%s", reason);
    longjmp(current->back, KIN_RESCUE_FAILED);
}

static void
bad_alloc(void *data, const char *reason, bool with_crash_report)
{
    if (current != NULL)
        longjmp(current->back, KIN_RESCUE_MEMORY);
}

/* Some thread of the process has no memory: if it is not one of ours, the program's handler gets its turn. */
static void
new_failed(void)
{
    if (current != NULL)
        longjmp(current->back, KIN_RESCUE_MEMORY);
    set_new_handler(atomic_load(&others_new));
}

static void
install(void)
{
    static atomic_bool installed;
    if (!atomic_exchange(&installed, true)) {
        LLVMInstallFatalErrorHandler(fatal);
        install_bad_alloc(bad_alloc, NULL);
    }
    on_new before = set_new_handler(new_failed);
    if (before != new_failed)
        atomic_store(&others_new, before);
}

static kin_rescue
run_inside(rescue *r, void (*work)(void *arg), void *arg)
{
    int how = setjmp(r->back);
    if (how != 0)
        return (kin_rescue)how;
    current = r;
    work(arg);
    return KIN_RESCUE_DONE;
}

kin_rescue
kin_rescue_run(void (*work)(void *arg), void *arg, kin_text *why)
{
    rescue r = {.message = ""};
    if (atomic_load(&gone)) {
        kin_text_add(why, "LLVM: had no memory before");
        return KIN_RESCUE_MEMORY;
    }
    install();
    kin_rescue done = run_inside(&r, work, arg);
    current = NULL;
    if (done == KIN_RESCUE_FAILED)
        kin_text_addf(why, "LLVM: %s", r.message);
    if (done == KIN_RESCUE_MEMORY) {
        atomic_store(&gone, true);
        kin_text_add(why, "LLVM: no memory");
    }
    return done;
}

void
kin_rescue_provoke(kin_rescue what)
{
    if (what == KIN_RESCUE_FAILED)
        report_fatal("failed fatally for a test", false);
    if (what == KIN_RESCUE_MEMORY) {
        void *volatile used = operator_new((size_t)INT64_MAX); /* unused, a compiler may leave it out */
        (void)used;
    }
}

#endif
