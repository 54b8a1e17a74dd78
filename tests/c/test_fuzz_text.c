/* Programs as text with something wrong in it: the parsers refuse or give what the verifier accepts, and what it accepts
 * goes through everything behind it. Only the sanitizers and the oracle judge. Arguments: first seed, count (1, 1500). */
#include "run_program.h"
#include "gen_ir.h"
#include "check.h"

#include "core/aten/aten.h"
#include "core/pipeline/pipeline.h"

static const char graph[] =
    "%1 = input 0 : f32[2, 3]{3, 1}@1+0\n"
    "%2 = input 1 : i64[2]{1}@2+0\n"
    "%3 = aten.t.default(%1) : f32[3, 2]{1, 3}@1+0\n"
    "%4 = aten.add.Tensor(%3, 1.0, alpha=2) : f32[3, 2]{2, 1}@3+0\n"
    "%5, %6 = aten.split.Tensor(%4, 2) : f32[2, 2]{2, 1}@3+0, f32[1, 2]{2, 1}@3+4\n"
    "%7 = aten.add_.Tensor(%5!, %6) : f32[2, 2]{2, 1}@3+0\n"
    "%8 = aten.index.Tensor(%4, [None, %2]) : f32[3, 2]{2, 1}@4+0\n"
    "%9 = aten.softmax.int(%8, -1) : f32[3, 2]{2, 1}@5+0\n"
    "%10 = aten.max_pool2d.default(%9, [1, 1], []) : f32[3, 2]{2, 1}@6+0\n"
    "return %7, %9, %10\n";

/* One to three places changed, doubled or left out. */
static char *
damage(const char *text, gen_rng *r)
{
    static const char letters[] = "0123456789-,%[]{}()=:@+!. \nabcefimnorstx";
    size_t len = strlen(text);
    char *made = malloc(2 * len + 64);
    memcpy(made, text, len + 1);
    for (unsigned n = 1 + gen_below(r, 3); n > 0 && len > 2; n--) {
        size_t at = gen_below(r, (uint32_t)len - 1), stretch = 1 + gen_below(r, 12);
        stretch = at + stretch > len ? len - at : stretch;
        size_t digit = at + strcspn(made + at, "0123456789");
        if (digit < len && gen_below(r, 4) > 0)
            made[digit] = letters[gen_below(r, 10)];
        else if (gen_below(r, 3) > 0)
            made[at] = letters[gen_below(r, sizeof letters - 1)];
        else if (gen_below(r, 2) || len + stretch > 2 * strlen(text)) {
            memmove(made + at, made + at + stretch, len - at - stretch + 1);
            len -= stretch;
        } else {
            memmove(made + at + stretch, made + at, len - at + 1);
            len += stretch;
        }
    }
    return made;
}

static bool
is_small(const kin_ir *p)
{
    int64_t all = 0;
    for (kin_irn n = 1; n < p->nodes.len; n++) {
        all += kin_ir_at(p, n)->op == KIN_IR_EXTERN ? 0 : kin_ir_numel(p, n);
        if (all < 0 || all > 100000 || kin_ir_at(p, n)->op == KIN_IR_EXTERN)
            return false;
    }
    return p->ninputs < 60 && p->outputs.len < 60;
}

static bool
has_half(const kin_ir *p)
{
    for (kin_irn n = 1; n < p->nodes.len; n++)
        if (kin_ir_at(p, n)->dtype == KIN_F16)
            return true;
    return false;
}

static unsigned compiled;

/* A program that the verifier accepts. */
static void
use(kin_jit *jit, const kin_ir *p, uint64_t seed)
{
    kin_text why = {0}, text = {0};
    kin_ir *clean = kin_ir_simplify(p, false);
    if (CHECK(clean != NULL))
        CHECK(kin_ir_verify(clean, &why));
    if (jit != NULL && is_small(p) && !has_half(p) && gen_below(&(gen_rng){seed + 3}, 2) == 0) {
        kin_program *made = NULL;
        kin_status status = kin_pipeline_compile(jit, NULL, p, &made, NULL, &why);
        CHECK(status == KIN_OK || status == KIN_BREAK);
        compiled += status == KIN_OK;
        kin_program_free(made);
    }
    if (check_failed) {
        kin_ir_print(p, &text);
        fprintf(stderr, "seed %llu\n%s\n%s\n", (unsigned long long)seed, text.at ? text.at : "", why.at ? why.at : "");
    }
    kin_ir_free(clean);
    kin_text_deinit(&text);
    kin_text_deinit(&why);
}

static bool
try_ir(kin_jit *jit, uint64_t seed)
{
    gen_options options = {.nodes = 8, .max_size = 5};
    gen_rng r = gen_seed(seed);
    kin_text text = {0}, why = {0};
    kin_ir *p = gen_ir(seed, &options);
    kin_ir_print(p, &text);
    kin_ir_free(p);
    char *wrong = damage(text.at, &r);
    p = kin_ir_parse(wrong, &why);
    CHECK(p != NULL || why.len > 0);
    kin_text_clear(&why);
    bool right = p != NULL && kin_ir_verify(p, &why);
    CHECK(p == NULL || right || why.len > 0);
    if (right)
        use(jit, p, seed);
    kin_ir_free(p);
    free(wrong);
    kin_text_deinit(&text);
    kin_text_deinit(&why);
    return right;
}

static bool
try_aten(uint64_t seed)
{
    gen_rng r = gen_seed(seed);
    kin_text why = {0};
    char *wrong = damage(graph, &r);
    kin_aten *g = kin_aten_parse(wrong, &why);
    CHECK(g != NULL || why.len > 0);
    kin_text_clear(&why);
    bool right = g != NULL && kin_aten_verify(g, &why);
    kin_lowered lowered;
    if (right && kin_pipeline_lower(g, &(kin_lower_options){0}, &lowered, &why) == KIN_OK) {
        CHECK(kin_ir_verify(lowered.ir, &why));
        kin_lowered_deinit(&lowered);
    }
    kin_aten_free(g);
    free(wrong);
    kin_text_deinit(&why);
    return right;
}

int
main(int argc, char **argv)
{
    uint64_t seed = argc > 1 ? strtoull(argv[1], NULL, 10) : 1, count = argc > 2 ? strtoull(argv[2], NULL, 10) : 1500;
    kin_text why = {0};
    kin_jit *jit = kin_jit_new(NULL, &why);
    uint64_t programs = 0, graphs = 0;
    for (uint64_t s = seed; s < seed + count; s++) {
        programs += try_ir(jit, s);
        graphs += try_aten(s);
    }
    CHECK(programs > count / 50 && graphs > count / 50); /* or nothing is tried */
    printf("fuzz_text: %llu programs and %llu graphs of %llu went on, %u compiled\n", (unsigned long long)programs,
           (unsigned long long)graphs, (unsigned long long)count, compiled);
    kin_jit_free(jit);
    kin_text_deinit(&why);
    return check_report("fuzz_text");
}
