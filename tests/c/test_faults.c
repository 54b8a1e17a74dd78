/* Every allocation, every call of LLVM that can fail and every write to disk fails once: what was asked for succeeds or is given up, with
 * its reason, and everything is given back (the sanitizers of this build see to that).
 */
#include "core/base/fault.h"

#ifdef KIN_FAULTS

#undef malloc
#undef calloc
#undef realloc
#undef aligned_alloc
#undef strdup

#include <stdio.h>
#include <unistd.h>

#include "check.h"
#include "core/blocks/blocks.h"
#include "core/diag/events.h"
#include "core/ir/hoist.h"
#include "core/optim/optim.h"
#include "core/pipeline/pipeline.h"

static char base[100]; /* of folders with kernels, one for each attempt */
static unsigned attempt;

static const char product[] =
    "%1 = input 0 : f32[9, 40]{40, 1}@1+0\n%2 = input 1 : f32[40, 70]{70, 1}@2+0\n%3 = input 2 : f32[70]{1}@3+0\n"
    "%4 = aten.addmm.default(%3, %1, %2) : f32[9, 70]{70, 1}@4+0\n%5 = aten._softmax.default(%4, 1, false) : f32[9, 70]{70, 1}@5+0\n"
    "%6 = aten.exp.default(%3) : f32[70]{1}@6+0\n%7 = aten.mul.Tensor(%5, %6) : f32[9, 70]{70, 1}@7+0\nreturn %7\n";
static const char images[] =
    "%1 = input 0 : f32[2, 16, 8, 8]{1024, 64, 8, 1}@1+0\n%2 = input 1 : f32[32, 16, 3, 3]{144, 9, 3, 1}@2+0\n"
    "%3 = input 2 : f32[32]{1}@3+0\n"
    "%4 = aten.convolution.default(%1, %2, %3, [1, 1], [1, 1], [1, 1], false, [0, 0], 1) : f32[2, 32, 8, 8]{2048, 64, 8, 1}@4+0\n"
    "%5 = aten.relu.default(%4) : f32[2, 32, 8, 8]{2048, 64, 8, 1}@5+0\nreturn %5\n";
static const char writes[] =
    "%1 = input 0 : f32[300, 80]{80, 1}@1+0\n%2 = input 1 : f32[1, 80]{80, 1}@2+0\n%3 = aten.slice.Tensor(%1, 0, 5, 6) : f32[1, 80]{80, 1}@1+400\n"
    "%4 = aten.copy_.default(%3!, %2) : f32[1, 80]{80, 1}@1+400\n%5 = aten.sum.default(%1) : f32[]{}@3+0\nreturn %5\n";
static const char *const graphs[] = {product, images, writes};

/* -- what is tested: true when it gave a result --------------------------------------------------------------------- */

/* Without machine code. */
static bool
compile_graph(const char *text)
{
    kin_text why = {0};
    kin_aten *g = kin_aten_parse(text, &why);
    bool ok = false;
    if (g != NULL && kin_aten_verify(g, &why)) {
        kin_pipeline_result made;
        kin_pipeline_options options = {.frozen = (bool[]){false, true, true}, .libraries = true, .rewrite = {.own = true, .products = true, .post = true}, .verify = true};
        kin_status status = kin_pipeline_run(g, &options, &made, &why);
        ok = status == KIN_OK;
        CHECK(status != KIN_BUG && (!ok || made.parts[KIN_PART_MAIN].program != NULL));
        if (status == KIN_BUG)
            fprintf(stderr, "%s\n", why.at != NULL ? why.at : "");
        kin_pipeline_result_deinit(&made);
    }
    kin_aten_free(g);
    kin_text_deinit(&why);
    return ok;
}

/* With it, in a process that has not compiled anything and finds nothing on disk. */
static bool
compile_code(const char *text)
{
    kin_text why = {0};
    char folder[120];
    snprintf(folder, sizeof folder, "%s/%u", base, attempt++);
    kin_aten *g = kin_aten_parse(text, &why);
    kin_jit *jit = g != NULL ? kin_jit_new(&(kin_jit_options){.cache_dir = folder, .threads = 2}, &why) : NULL;
    bool ok = false;
    if (jit != NULL) {
        kin_pipeline_result made;
        kin_pipeline_options options = {.frozen = (bool[]){false, true, true}, .libraries = true, .rewrite = {.own = true, .products = true}, .jit = jit, .verify = true, .print = 1};
        kin_status status = kin_pipeline_run(g, &options, &made, &why);
        ok = status == KIN_OK;
        if (!CHECK(status != KIN_BUG))
            fprintf(stderr, "%s\n", why.at != NULL ? why.at : "");
        kin_pipeline_result_deinit(&made);
    }
    kin_jit_free(jit);
    kin_aten_free(g);
    kin_text_deinit(&why);
    return ok;
}

static bool
evaluate(const char *text)
{
    kin_text why = {0}, printed = {0};
    kin_ir *p = kin_ir_parse(text, &why), *clean = p != NULL ? kin_ir_simplify(p, false) : NULL;
    kin_ir_hoisted halves = {0};
    kin_ir_common common = {0};
    bool ok = clean != NULL && kin_ir_hoist(clean, (bool[]){false, true}, &common, &halves) == KIN_OK && kin_ir_print(clean, &printed);
    float x[12] = {1, 2, 3}, y[4] = {1};
    void *outputs[2] = {0};
    ok = ok && kin_ir_eval(clean, (const void *const[]){x, y}, outputs) == KIN_OK;
    free(outputs[0]);
    free(outputs[1]);
    kin_ir_hoisted_deinit(&halves);
    kin_ir_common_deinit(&common);
    kin_ir_free(clean);
    kin_ir_free(p);
    kin_text_deinit(&why);
    kin_text_deinit(&printed);
    return ok;
}

static bool
log_events(const char *text)
{
    kin_event_log *log = kin_event_log_new(4);
    for (int i = 0; i < 6; i++) {
        kin_event_begin(log, KIN_EVENT_BREAK);
        kin_event_str(log, "why", text);
        kin_event_int(log, "line", i);
        kin_event_end(log);
    }
    uint64_t dropped = kin_event_dropped(log);
    CHECK(log == NULL || kin_event_count(log) + dropped == 6);
    kin_event_log_free(log);
    return log != NULL;
}

static bool
find_norm(const char *unused)
{
    float x[3] = {1, 2, 2};
    double norm = 0;
    bool ok = kin_optim_norm(&(kin_optim_part){x, 3}, 1, NULL, &norm) == KIN_OK;
    CHECK(!ok || norm == 3);
    return ok;
}

/* -- the loop ------------------------------------------------------------------------------------------------------- */

/* Blocks that come and go: what could not be had is NULL, and what was had is found and can be given back. */
static bool
use_blocks(const char *unused)
{
    enum { MANY = 40 };
    void *at[MANY];
    bool ok = true;
    kin_blocks *p = kin_blocks_new((size_t)1 << 30);
    for (unsigned round = 0; p != NULL && round < 2; round++) {
        for (unsigned i = 0; i < MANY; i++) {
            at[i] = kin_block_take(p, KIN_BLOCK_LEAST * (1 + i % 3 + round));
            ok = ok && at[i] != NULL;
            if (at[i] != NULL)
                *(char *)at[i] = 1;
        }
        for (unsigned i = 0; i < MANY; i++)
            if (at[(7 * i) % MANY] != NULL)
                kin_block_give(p, at[(7 * i) % MANY]);
        if (round == 0)
            kin_blocks_clear(p);
    }
    kin_blocks_free(p);
    return ok && p != NULL;
}

enum { MOST = 20000 };

/* Fails the first, the second, ... until nothing is left to fail. `step`: not every one. How many were looked at. */
static unsigned
fail_each(kin_fail what, bool (*work)(const char *), const char *text, unsigned step, bool all)
{
    unsigned tried = 0;
    bool ok = false, failed = true;
    for (uint64_t n = 1; failed && n < MOST; n += step, tried++) {
        kin_fail_arm(what, n, all);
        ok = work(text);
        failed = kin_fail_disarm(what);
    }
    CHECK(!failed && ok); /* without a failure it succeeds */
    if (getenv("KIN_FAULTS_SHOW") != NULL)
        fprintf(stderr, "%u\n", tried);
    return tried;
}

int
main(void)
{
    unsigned n = 0;
    snprintf(base, sizeof base, "test_faults.%ld", (long)getpid());
    for (unsigned i = 0; i < sizeof graphs / sizeof *graphs; i++) {
        n += fail_each(KIN_FAIL_ALLOC, compile_graph, graphs[i], 1, false);
        n += fail_each(KIN_FAIL_ALLOC, compile_graph, graphs[i], 7, true);
    }
    n += fail_each(KIN_FAIL_ALLOC, evaluate, "%1 = input 0 : f32[3, 4]\n%2 = input 1 : f32[4]\n%3 = exp %2 : f32[4]\n%4 = expand %3 : f32[3, 4]\n"
                                             "%5 = add %1, %4 : f32[3, 4]\n%6 = reduce_sum %5 dims=[1] : f32[3]\nreturn %5, %6\n", 1, false);
    n += fail_each(KIN_FAIL_ALLOC, log_events, "DATA_DEPENDENT_BRANCH", 1, false);
    n += fail_each(KIN_FAIL_ALLOC, find_norm, NULL, 1, false);
    n += fail_each(KIN_FAIL_ALLOC, use_blocks, NULL, 1, false);
    n += fail_each(KIN_FAIL_ALLOC, use_blocks, NULL, 7, true);
    kin_jit *jit = kin_jit_new(NULL, &(kin_text){0});
    if (jit != NULL) { /* built with LLVM */
        n += fail_each(KIN_FAIL_ALLOC, compile_code, product, 5, false);
        n += fail_each(KIN_FAIL_LLVM, compile_code, product, 1, false);
        n += fail_each(KIN_FAIL_LLVM, compile_code, product, 1, true);
        n += fail_each(KIN_FAIL_WRITE, compile_code, product, 1, false);
        n += fail_each(KIN_FAIL_WRITE, compile_code, product, 1, true);
    }
    kin_jit_free(jit);
    char command[150];
    snprintf(command, sizeof command, "rm -rf '%s'", base);
    CHECK_EQ(system(command), 0);
    printf("%u failures injected\n", n);
    return check_report("test_faults");
}

#else

#include <stdio.h>

int
main(void)
{
    puts("built without KIN_FAULTS");
    return 77;
}

#endif
