/* The pipeline: the table hangs together, each pass leaves what its verifier accepts, and what is planted in a pass is found: a malformed
 * result by the verifier, with the name of the pass, a wrong one by comparing results with the interpreter.
 */
#include "core/pipeline/pipeline.h"

#include "check.h"
#include "run_program.h"

/* A product, sums of products in two stages, a softmax: every pass has something to do but those for convolutions and writes. */
static const char graph_text[] =
    "%1 = input 0 : f32[3, 40]{40, 1}@1+0\n"
    "%2 = input 1 : f32[40, 5]{5, 1}@2+0\n"
    "%3 = input 2 : f32[400000]{1}@3+0\n"
    "%4 = aten.mm.default(%1, %2) : f32[3, 5]{5, 1}@4+0\n"
    "%5 = aten.sum.default(%3) : f32[]{}@5+0\n"
    "%6 = aten.mul.Tensor(%4, %5) : f32[3, 5]{5, 1}@6+0\n"
    "%7 = aten._softmax.default(%6, 1, false) : f32[3, 5]{5, 1}@7+0\n"
    "%8 = aten.add.Tensor(%7, %4) : f32[3, 5]{5, 1}@8+0\n"
    "return %8, %7\n";

typedef struct {
    kin_aten *graph;
    kin_jit *jit;
    kin_pipeline_result made;
    kin_status status;
    kin_text why;
} compilation;

static bool none[8];

static bool
begin(compilation *c, const char *text)
{
    *c = (compilation){0};
    c->graph = kin_aten_parse(text, &c->why);
    return CHECK(c->graph != NULL);
}

static void
run(compilation *c, kin_jit *jit, kin_plant plant)
{
    kin_pipeline_options options = {.jit = jit, .frozen = none, .libraries = true, .verify = true, .rewrite = {.own = true, .products = true}, .plant = plant};
    kin_text_clear(&c->why);
    c->status = kin_pipeline_run(c->graph, &options, &c->made, &c->why);
}

static void
end(compilation *c)
{
    kin_pipeline_result_deinit(&c->made);
    kin_aten_free(c->graph);
    kin_text_deinit(&c->why);
}

/* -- the table ------------------------------------------------------------------------------------------------------ */

static void
test_table(void)
{
    for (unsigned i = 0; i < kin_npasses; i++) {
        const kin_pass *p = &kin_passes[i];
        CHECK(p->run != NULL && p->verify != NULL && p->does[0] != 0);
        CHECK_EQ(kin_pass_find(p->name), i); /* names are unique */
        CHECK(p->takes <= p->leaves);
        CHECK(i == 0 || kin_passes[i - 1].leaves == p->takes);
    }
    CHECK_EQ(kin_pass_find("nothing"), UINT32_MAX);
    CHECK_EQ(kin_passes[0].takes, KIN_FORM_ATEN);
    CHECK_EQ(kin_passes[kin_npasses - 1].leaves, KIN_FORM_CODE);
}

static void
count_watched(void *arg, const kin_compilation *c, const kin_pass *pass)
{
    unsigned *seen = arg;
    kin_text text = {0};
    CHECK(kin_compilation_print(c, &text) && text.len > 0);
    kin_text_deinit(&text);
    seen[pass - kin_passes]++;
}

/* Without machine code: passes run in the order of the table, each can be shown, and changes are told from what stayed. */
static void
test_passes(void)
{
    compilation c;
    unsigned seen[32] = {0};
    if (!begin(&c, graph_text))
        return;
    kin_pipeline_options options = {.frozen = none, .libraries = true, .verify = true, .rewrite = {.own = true, .products = true}, .watch = count_watched, .arg = seen};
    CHECK_EQ(kin_pipeline_run(c.graph, &options, &c.made, &c.why), KIN_OK);
    CHECK_EQ(c.made.passes.len, kin_npasses - 1);
    for (unsigned i = 0; i + 1 < kin_npasses; i++) {
        CHECK_EQ(c.made.passes.at[i].pass, i);
        CHECK_EQ(seen[i], 1);
    }
    CHECK_EQ(seen[kin_npasses - 1], 0);
    CHECK(c.made.passes.at[kin_pass_find("split")].changed);
    CHECK(c.made.passes.at[kin_pass_find("rewrite")].changed);
    CHECK(!c.made.passes.at[kin_pass_find("channels-last")].changed);
    CHECK(!c.made.passes.at[kin_pass_find("in-place")].changed);
    CHECK(c.made.parts[KIN_PART_ONCE].program == NULL && c.made.parts[KIN_PART_MAIN].program != NULL);
    end(&c);
}

/* What frozen inputs alone decide is a part of its own, and goes through the same passes. */
static void
test_parts(void)
{
    compilation c;
    if (!begin(&c, "%1 = input 0 : f32[64]{1}@1+0\n%2 = input 1 : f32[64]{1}@2+0\n%3 = aten.exp.default(%2) : f32[64]{1}@3+0\n"
                   "%4 = aten.add.Tensor(%1, %3) : f32[64]{1}@4+0\nreturn %4\n"))
        return;
    kin_pipeline_options options = {.frozen = (bool[]){false, true}, .libraries = true, .verify = true};
    CHECK_EQ(kin_pipeline_run(c.graph, &options, &c.made, &c.why), KIN_OK);
    CHECK(c.made.parts[KIN_PART_ONCE].program != NULL);
    unsigned fused = 0;
    for (uint32_t i = 0; i < c.made.passes.len; i++)
        fused += c.made.passes.at[i].pass == kin_pass_find("fuse");
    CHECK_EQ(fused, 2);
    end(&c);
}

/* -- what is planted ------------------------------------------------------------------------------------------------ */

static void
test_failures(kin_jit *jit)
{
    for (unsigned pass = 0; pass < kin_npasses; pass++)
        for (kin_plant_kind kind = KIN_PLANT_MEMORY; kind <= KIN_PLANT_BREAK; kind++) {
            compilation c;
            if (!begin(&c, graph_text))
                return;
            run(&c, jit, (kin_plant){.kind = kind, .pass = pass});
            bool captured = kin_passes[pass].of_library && kind == KIN_PLANT_BREAK; /* compiled as it was captured, then */
            CHECK_EQ(c.status, captured ? KIN_OK : kind == KIN_PLANT_MEMORY ? KIN_NOMEM : KIN_BREAK);
            CHECK_EQ(c.made.failed, captured ? UINT32_MAX : pass);
            CHECK(captured || c.made.parts[KIN_PART_MAIN].program == NULL);
            CHECK(!captured || c.made.library.ir == NULL);
            CHECK(kind == KIN_PLANT_MEMORY || captured || strstr(c.why.at, kin_passes[pass].name) != NULL);
            end(&c);
        }
}

/* The verifier of the pass says so. */
static void
test_malformed(kin_jit *jit)
{
    for (unsigned pass = kin_pass_find("lower"); pass < kin_npasses; pass++) {
        compilation c;
        if (!begin(&c, graph_text))
            return;
        run(&c, jit, (kin_plant){.kind = KIN_PLANT_MALFORMED, .pass = pass});
        CHECK_EQ(c.status, KIN_BUG);
        CHECK_EQ(c.made.failed, pass);
        if (!CHECK(c.why.at != NULL && strncmp(c.why.at, "after pass ", 11) == 0 && strstr(c.why.at, kin_passes[pass].name) != NULL))
            fprintf(stderr, "%s: %s\n", kin_passes[pass].name, c.why.at != NULL ? c.why.at : "nothing");
        end(&c);
    }
}

/* A graph without calls of a library, so that run_program.h can run it. */
static const char plain_text[] =
    "%1 = input 0 : f32[6, 50]{50, 1}@1+0\n"
    "%2 = input 1 : f32[6, 50]{50, 1}@2+0\n"
    "%3 = aten.tanh.default(%1) : f32[6, 50]{50, 1}@3+0\n"
    "%4 = aten.add.Tensor(%3, %2) : f32[6, 50]{50, 1}@4+0\n"
    "return %4\n";

/* Do its results differ from the interpreter's? */
static bool
differs(const compilation *c, const kin_ir *right)
{
    kin_program *p = c->made.parts[KIN_PART_MAIN].program;
    run_data d = {0};
    kin_text why = {0};
    run_inputs(right, &d, 3);
    run_memory(p, &d);
    bool same = kin_ir_eval(right, (const void *const *)d.dense, d.wanted) == KIN_OK && run_kernels(p, &d, 1) == 0 &&
                run_compare(p, right, &d, &why);
    run_release(p, &d);
    kin_text_deinit(&why);
    return !same;
}

/* No verifier can know; the comparison of results does. */
static void
test_wrong(kin_jit *jit)
{
    kin_lowered right;
    kin_aten *g = kin_aten_parse(plain_text, &(kin_text){0});
    CHECK_EQ(kin_pipeline_lower(g, &(kin_lower_options){0}, &right, NULL), KIN_OK);
    for (unsigned pass = kin_pass_find("lower"); pass <= kin_pass_find("fuse"); pass++) {
        compilation c;
        if (!begin(&c, plain_text))
            break;
        run(&c, jit, (kin_plant){.kind = KIN_PLANT_WRONG, .pass = pass});
        if (CHECK(c.status == KIN_OK) && !CHECK(differs(&c, right.ir)))
            fprintf(stderr, "wrong in %s\n", kin_passes[pass].name);
        end(&c);
    }
    compilation c;
    if (begin(&c, plain_text)) {
        run(&c, jit, (kin_plant){0});
        CHECK(c.status == KIN_OK && !differs(&c, right.ir));
        end(&c);
    }
    kin_lowered_deinit(&right);
    kin_aten_free(g);
}

int
main(void)
{
    kin_text why = {0};
    test_table();
    test_passes();
    test_parts();
    kin_jit *jit = kin_jit_new(NULL, &why);
    if (jit != NULL) {
        test_failures(jit);
        test_malformed(jit);
        test_wrong(jit);
    }
    kin_jit_free(jit);
    kin_text_deinit(&why);
    return check_report("test_pipeline");
}
