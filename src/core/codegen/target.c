/* The processor families that kernels are compiled for (target.h). A new one needs a row here, its relocations in a file beside
 * object_x86.c, and its LLVM components in meson.build. */
#include "core/codegen/target.h"

#ifdef KIN_LLVM
#include <string.h>

#include <llvm-c/Support.h>
#include <llvm-c/Target.h>

static bool
has_feature(const char *features, const char *name)
{
    size_t len = strlen(name);
    for (const char *at = features; (at = strstr(at, name)) != NULL; at += len)
        if ((at == features || at[-1] == ',') && (at[len] == ',' || at[len] == 0))
            return true;
    return false;
}

/* Loop strength reduction takes a fifth of LLVM's time and finds what address.c has written down already. */
static void
choose_passes(void)
{
    LLVMParseCommandLineOptions(2, (const char *const[]){"kintsugi", "-disable-lsr"}, NULL);
}

#if defined(__x86_64__)

static void
start(void)
{
    LLVMInitializeX86TargetInfo();
    LLVMInitializeX86Target();
    LLVMInitializeX86TargetMC();
    LLVMInitializeX86AsmPrinter();
    choose_passes();
}

static const char *
features_of(const char *cpu)
{
    if (strcmp(cpu, "x86-64-v4") == 0)
        return "+avx512f,+avx512bw,+avx512vl,+avx512dq,+f16c,+fma";
    return strcmp(cpu, "x86-64-v3") == 0 ? "+avx2,+f16c,+fma" : "";
}

static void
describe(const char *f, kin_machine *out)
{
    bool wide = has_feature(f, "+avx512f") && has_feature(f, "+avx512bw") && has_feature(f, "+avx512vl") && has_feature(f, "+avx512dq");
    out->vector_bytes = wide ? 64 : has_feature(f, "+avx2") ? 32 : 16;
    out->f16 = has_feature(f, "+f16c");
}

const kin_target kin_target_here = {.triple = "x86_64-unknown-linux-gnu", .stream_fence = "llvm.x86.sse.sfence",
                                    .start = start, .features_of = features_of, .describe = describe};

#elif defined(__aarch64__)

static void
start(void)
{
    LLVMInitializeAArch64TargetInfo();
    LLVMInitializeAArch64Target();
    LLVMInitializeAArch64TargetMC();
    LLVMInitializeAArch64AsmPrinter();
    choose_passes();
}

static const char *
features_of(const char *cpu)
{
    return "+neon,+fp-armv8";
}

/* Vectors are NEON's 16 bytes: code for SVE would be of unknown width. Conversion of half precision is part of every processor. */
static void
describe(const char *f, kin_machine *out)
{
    out->vector_bytes = 16;
    out->f16 = !has_feature(f, "-neon");
}

const kin_target kin_target_here = {.triple = "aarch64-unknown-linux-gnu", .start = start,
                                    .features_of = features_of, .describe = describe};

#else
#error "no row for this family of processors: build with -Dllvm=disabled"
#endif
#endif
