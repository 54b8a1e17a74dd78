/* Lowering of small ATen graphs: what becomes of memory, outputs, externs; refusals. The rules themselves are compared with
 * eager by tests/lower.
 */
#include "core/pipeline/pipeline.h"
#include "check.h"

/* Lowers; the program's text, or the reason why not. */
static void
lower(const char *graph, kin_lowered *out, kin_text *text)
{
    static const kin_lower_options plain = {0};
    kin_text why = {0};
    kin_aten *g = kin_aten_parse(graph, &why);
    *out = (kin_lowered){0};
    if (!CHECK(g != NULL && kin_aten_verify(g, &why)))
        fprintf(stderr, "    %s\n", why.at);
    else if (kin_pipeline_lower(g, &plain, out, &why) == KIN_OK)
        kin_ir_print(out->ir, text);
    else
        kin_text_add(text, why.at);
    kin_aten_free(g);
    kin_text_deinit(&why);
}

static void
expect(const char *graph, const char *program, uint32_t nnative, uint32_t nextern)
{
    kin_lowered l;
    kin_text text = {0};
    lower(graph, &l, &text);
    CHECK_STR(text.at, program);
    CHECK_EQ(l.nnative, nnative);
    CHECK_EQ(l.nextern, nextern);
    kin_text_deinit(&text);
    kin_lowered_deinit(&l);
}

#define X "%1 = input 0 : f32[2, 4]{4, 1}@1+0\n"

static void
test_rules(void)
{
    expect(X "%2 = aten.add.Tensor(%1, 1) : f32[2, 4]{4, 1}@2+0\nreturn %2\n",
           "%1 = input 0 : f32[2, 4]{4, 1}\n%2 = const 1.0 : f32[2, 4]\n%3 = add %1, %2 : f32[2, 4]\nreturn %3 : {4, 1}\n", 1, 0);
    /* half precision: computed in f32, rounded once; the number is rounded first, as eager does for sums */
    expect("%1 = input 0 : bf16[4]{1}@1+0\n%2 = aten.add.Tensor(%1, 0.1) : bf16[4]{1}@2+0\nreturn %2\n",
           "%1 = input 0 : bf16[4]{1}\n%2 = cast %1 : f32[4]\n%3 = const 0.10009765625 : f32[4]\n%4 = add %2, %3 : f32[4]\n"
           "%5 = cast %4 : bf16[4]\nreturn %5 : {1}\n", 1, 0);
    /* a comparison happens in the promoted dtype */
    expect("%1 = input 0 : i64[4]{1}@1+0\n%2 = aten.lt.Scalar(%1, 0.5) : b8[4]{1}@2+0\nreturn %2\n",
           "%1 = input 0 : i64[4]{1}\n%2 = cast %1 : f32[4]\n%3 = const 0.5 : f32[4]\n%4 = lt %2, %3 : b8[4]\nreturn %4 : {1}\n", 1, 0);
}

static void
test_externs(void)
{
    expect(X "%2 = input 1 : f32[4, 2]{2, 1}@2+0\n%3 = aten.mm.default(%1, %2) : f32[2, 2]{2, 1}@3+0\n"
           "%4, %5 = aten.topk.default(%3, 1) : f32[2, 1]{1, 1}@4+0, i64[2, 1]{1, 1}@5+0\n"
           "%6 = random aten.bernoulli.default(%4) : f32[2, 1]{1, 1}@6+0\nmine.log.default([%5, %1])\nreturn %4\n",
           "%1 = input 0 : f32[2, 4]{4, 1}\n%2 = input 1 : f32[4, 2]{2, 1}\n%3 = extern \"aten.mm.default\" %1, %2 number=0 flags=0\n"
           "%4 = result %3 which=0 : f32[2, 2]{2, 1}\n%5 = extern \"aten.topk.default\" %4 number=1 flags=0\n"
           "%6 = result %5 which=0 : f32[2, 1]{1, 1}\n%7 = result %5 which=1 : i64[2, 1]{1, 1}\n"
           "%8 = extern \"aten.bernoulli.default\" %6 number=2 flags=1\n%9 = extern \"mine.log.default\" %7, %1 number=3 flags=1\n"
           "return %6 : {1, 1}\n", 0, 4);
    /* a dtype of which a rule knows nothing */
    expect("%1 = input 0 : c64[4]{1}@1+0\n%2 = aten.neg.default(%1) : c64[4]{1}@2+0\nreturn %2\n",
           "%1 = input 0 : c64[4]{1}\n%2 = extern \"aten.neg.default\" %1 number=0 flags=0\n%3 = result %2 which=0 : c64[4]{1}\n"
           "return %3 : {1}\n", 0, 1);
}

/* A write through a view is seen by the base and by every other view. */
static void
test_writes(void)
{
    expect(X "%2 = aten.clone.default(%1) : f32[2, 4]{4, 1}@2+0\n%3 = aten.select.int(%2, 0, 1) : f32[4]{1}@2+4\n"
           "%4 = aten.fill_.Scalar(%3!, 7) : f32[4]{1}@2+4\nreturn %2\n",
           "%1 = input 0 : f32[2, 4]{4, 1}\n%2 = const 7.0 : f32[1, 4]\n%3 = slice %1 starts=[0, 0] steps=[1, 1] : f32[1, 4]\n"
           "%4 = cat %3, %2 dim=0 : f32[2, 4]\nreturn %4 : {4, 1}\n", 3, 0);
    expect(X "%2 = aten.clone.default(%1) : f32[2, 4]{4, 1}@2+0\n%3 = aten.t.default(%2) : f32[4, 2]{1, 4}@2+0\n"
           "%4 = aten.exp_.default(%2!) : f32[2, 4]{4, 1}@2+0\n%5 = aten.neg.default(%3) : f32[4, 2]{1, 4}@3+0\nreturn %5\n",
           "%1 = input 0 : f32[2, 4]{4, 1}\n%2 = exp %1 : f32[2, 4]\n%3 = permute %2 dims=[1, 0] : f32[4, 2]\n"
           "%4 = neg %3 : f32[4, 2]{1, 4}\nreturn %4 : {1, 4}\n", 4, 0);
}

/* What an input holds at the end goes into it. */
static void
test_writes_to_inputs(void)
{
    expect(X "%2 = aten.add_.Tensor(%1!, 1) : f32[2, 4]{4, 1}@1+0\nreturn %1\n",
           "%1 = input 0 : f32[2, 4]{4, 1}\n%2 = const 1.0 : f32[2, 4]\n%3 = add %1, %2 : f32[2, 4]\nreturn %3 : {4, 1} into 0\n", 1, 0);
    expect(X "%2 = aten.select.int(%1, 0, 1) : f32[4]{1}@1+4\n%3 = aten.zero_.default(%2!) : f32[4]{1}@1+4\n"
           "%4 = aten.neg.default(%1) : f32[2, 4]{4, 1}@2+0\nreturn %4\n",
           "%1 = input 0 : f32[2, 4]{4, 1}\n%2 = const 0.0 : f32[1, 4]\n%3 = slice %1 starts=[0, 0] steps=[1, 1] : f32[1, 4]\n"
           "%4 = cat %3, %2 dim=0 : f32[2, 4]\n%5 = neg %4 : f32[2, 4]\nreturn %5 : {4, 1}, %4 : {4, 1} into 0\n", 3, 0);
}

static void
test_refusals(void)
{
    expect(X "%2 = aten.t_.default(%1!) : f32[4, 2]{1, 4}@1+0\nreturn %1\n", "aten.t_.default mutates an argument", 0, 0);
    expect(X "%2 = aten.add.out(%1, %1, out=%1!) : f32[2, 4]{4, 1}@1+0\nreturn %1\n", "aten.add.out mutates an argument", 0, 0);
    expect(X "%2 = aten.mystery.default(%1) : f32[9]{1}@1+0\nreturn %2\n", "%2: a view of uninitialised memory", 0, 0);
    expect(X "%2 = aten.clone.default(%1) : f32[2, 4]{4, 1}@2+0\n%3 = aten.expand.default(%2, [3, 2, 4]) : f32[3, 2, 4]{0, 4, 1}@2+0\n"
           "%4 = aten.add_.Tensor(%3!, 1) : f32[3, 2, 4]{0, 4, 1}@2+0\nreturn %2\n",
           "%3: a write through a view whose elements overlap", 0, 0);
    expect(X "%2 = aten.clone.default(%1) : f32[2, 4]{4, 1}@2+0\n%3 = aten.unfold.default(%2, 1, 2, 1) : f32[2, 3, 2]{4, 1, 1}@2+0\n"
           "%4 = aten.mul_.Tensor(%3!, 2) : f32[2, 3, 2]{4, 1, 1}@2+0\nreturn %2\n",
           "%3: a write through a view whose elements overlap", 0, 0);
}

static void
test_outputs(void)
{
    kin_lowered l;
    kin_text text = {0};
    lower(X "%2 = aten.t.default(%1) : f32[4, 2]{1, 4}@1+0\n%3 = aten.exp.default(%1) : f32[2, 4]{4, 1}@2+0\n"
          "%4 = aten.select.int(%3, 0, 1) : f32[4]{1}@2+4\n%5 = aten.neg.default(%1) : f32[2, 4]{4, 1}@3+0\n"
          "%6 = aten.relu.default(%1) : f32[2, 4]{4, 1}@4+0\n%7 = aten.t.default(%6) : f32[4, 2]{1, 4}@4+0\n"
          "%8 = aten.mm.default(%1, %2) : f32[2, 2]{2, 1}@5+0\n%9 = aten.select.int(%1, 0, 1) : f32[4]{1}@1+4\n"
          "%10 = aten.detach.default(%8) : f32[2, 2]{2, 1}@5+0\n%11 = aten.sin.default(%1) : f32[2, 4]{4, 1}@6+0\n"
          "%12 = aten.add_.Tensor(%11!, 1) : f32[2, 4]{4, 1}@6+0\n%13 = aten.view.default(%12, [8]) : f32[8]{1}@6+0\n"
          "%14 = aten.detach.default(%1) : f32[2, 4]{4, 1}@1+0\n"
          "return %1, %2, %4, %5, %5, %7, %8, %9, %10, %12, %13, %14\n", &l, &text);
    static const struct { uint8_t kind; bool whole; uint32_t index; int64_t offset; bool detached; uint32_t writes; } wanted[] = {
        {KIN_OUT_INPUT, true, 0, 0}, {KIN_OUT_INPUT, false, 0, 0}, {KIN_OUT_SHARED, false, 0, 4}, {KIN_OUT_FRESH, false, 1, 0},
        {KIN_OUT_FRESH, false, 1, 0}, {KIN_OUT_FRESH, false, 2, 0}, {KIN_OUT_EXTERN, false, 3, 0}, {KIN_OUT_INPUT, false, 0, 4},
        {KIN_OUT_SHARED, false, 3, 0, true, 0}, {KIN_OUT_FRESH, false, 4, 0, false, 1}, {KIN_OUT_SHARED, false, 4, 0, false, 1},
        {KIN_OUT_INPUT, false, 0, 0, true, 0}};
    if (CHECK(l.outs.len == sizeof wanted / sizeof *wanted))
        for (unsigned i = 0; i < l.outs.len; i++) {
            CHECK_EQ(l.outs.at[i].detached, wanted[i].detached);
            CHECK_EQ(l.outs.at[i].writes, wanted[i].writes);
            CHECK_EQ(l.outs.at[i].kind, wanted[i].kind);
            CHECK_EQ(l.outs.at[i].whole, wanted[i].whole);
            CHECK_EQ(l.outs.at[i].index, wanted[i].index);
            CHECK_EQ(l.outs.at[i].offset, wanted[i].offset);
        }
    CHECK(text.at != NULL && strstr(text.at, "return %3 : {4, 1}, %4 : {4, 1}, %7 : {1, 4}, %9 : {2, 1}, ") != NULL);
    kin_text_deinit(&text);
    kin_lowered_deinit(&l);
}

int
main(void)
{
    test_rules();
    test_externs();
    test_writes();
    test_writes_to_inputs();
    test_refusals();
    test_outputs();
    return check_report("lower");
}
