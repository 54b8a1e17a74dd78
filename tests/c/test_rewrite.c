/* The library pass on small programs: what it makes of them as text, and that reductions compute the same products. */
#include "core/rewrite/rewrite.h"

#include <stdlib.h>

#include "check.h"

typedef struct {
    kin_ir *before;
    kin_rewritten made;
    kin_text text;
} rewritten;

static bool
rewrite(const char *aten, const char *program, const bool *frozen, rewritten *out)
{
    kin_text why = {0};
    kin_aten *g = kin_aten_parse(aten, &why);
    *out = (rewritten){.before = kin_ir_parse(program, &why)};
    bool ok = CHECK(g != NULL) && CHECK(out->before != NULL) && CHECK(kin_ir_verify(out->before, &why)) &&
              CHECK(kin_rewrite(out->before, g, frozen, &(kin_rewrite_options){.post = true, .own = true, .products = true}, &out->made) == KIN_OK);
    if (ok)
        kin_channels_last(&out->made);
    ok = ok && CHECK(kin_ir_verify(out->made.ir, &why)) && CHECK(kin_ir_print(out->made.ir, &out->text));
    if (why.at != NULL)
        fprintf(stderr, "%s\n", why.at);
    kin_text_deinit(&why);
    kin_aten_free(g);
    return ok;
}

static void
discard(rewritten *w)
{
    kin_ir_free(w->before);
    kin_rewritten_deinit(&w->made);
    kin_text_deinit(&w->text);
}

static unsigned
count(const char *text, const char *what)
{
    unsigned n = 0;
    for (const char *at = text; at != NULL && (at = strstr(at, what)) != NULL; at++)
        n++;
    return n;
}

/* -- products ------------------------------------------------------------------------------------------------------ */

#define LINEAR(M, K, N)                                                                              \
    "%1 = input 0 : f32[" M ", " K "]{" K ", 1}@1+0\n"                                               \
    "%2 = input 1 : f32[" N ", " K "]{" K ", 1}@2+0\n"                                               \
    "%3 = input 2 : f32[" N "]{1}@3+0\n"                                                             \
    "%4 = aten.t.default(%2) : f32[" K ", " N "]{1, " K "}@2+0\n"                                    \
    "%5 = aten.addmm.default(%3, %1, %4) : f32[" M ", " N "]{" N ", 1}@4+0\n"                        \
    "return %5\n",                                                                                   \
    "%1 = input 0 : f32[" M ", " K "]\n"                                                             \
    "%2 = input 1 : f32[" N ", " K "]\n"                                                             \
    "%3 = input 2 : f32[" N "]\n"                                                                    \
    "%4 = permute %2 dims=[1, 0] : f32[" K ", " N "]\n"                                              \
    "%5 = extern \"aten.addmm.default\" %3, %1, %4 number=1 flags=0\n"                               \
    "%6 = result %5 which=0 : f32[" M ", " N "]\n"                                                   \
    "return %6\n"

static void
test_large_product(void)
{
    rewritten w;
    if (rewrite(LINEAR("128", "256", "512"), (bool[]){false, true, true}, &w)) {
        CHECK(w.made.calls.len == 1 && w.made.first == 2);
        CHECK(w.made.calls.at[0].kind == KIN_LIBRARY_MATMUL && w.made.calls.at[0].frozen);
        CHECK(w.made.calls.at[0].call == 1);
        CHECK_EQ(count(w.text.at, "library.matmul"), 1);
        CHECK_EQ(count(w.text.at, "addmm"), 0);
        CHECK_EQ(count(w.text.at, " add "), 1);
    }
    discard(&w);
}

/* Two products of one matrix, the second with a bias: one call when both right sides are frozen. */
static void
test_products_of_one_matrix(void)
{
    const char *aten = "%1 = input 0 : f32[128, 64]{64, 1}@1+0\n"
                       "%2 = input 1 : f32[64, 32]{32, 1}@2+0\n"
                       "%3 = input 2 : f32[64, 96]{96, 1}@3+0\n"
                       "%4 = input 3 : f32[96]{1}@4+0\n"
                       "%5 = aten.mm.default(%1, %2) : f32[128, 32]{32, 1}@5+0\n"
                       "%6 = aten.addmm.default(%4, %1, %3) : f32[128, 96]{96, 1}@6+0\n"
                       "return %5, %6\n";
    const char *program = "%1 = input 0 : f32[128, 64]\n"
                          "%2 = input 1 : f32[64, 32]\n"
                          "%3 = input 2 : f32[64, 96]\n"
                          "%4 = input 3 : f32[96]\n"
                          "%5 = extern \"aten.mm.default\" %1, %2 number=0 flags=0\n"
                          "%6 = result %5 which=0 : f32[128, 32]\n"
                          "%7 = extern \"aten.addmm.default\" %4, %1, %3 number=1 flags=0\n"
                          "%8 = result %7 which=0 : f32[128, 96]\n"
                          "return %6, %8\n";
    rewritten w;
    if (rewrite(aten, program, (bool[]){false, true, true, true}, &w)) {
        CHECK_EQ(w.made.calls.len, 1);
        CHECK_EQ(count(w.text.at, " cat "), 2); /* matrices, biases */
        CHECK_EQ(count(w.text.at, "f32[128, 128]"), 3);
        CHECK_EQ(count(w.text.at, "const -0.0 : f32[32]"), 1);
        CHECK_EQ(count(w.text.at, " slice "), 2);
        CHECK_EQ(count(w.text.at, " add "), 1);
        CHECK(w.made.ir->outputs.len == 2);
    }
    discard(&w);
    if (rewrite(aten, program, (bool[]){false, true, false, true}, &w))
        CHECK_EQ(w.made.calls.len, 2);
    discard(&w);
}

static void
compare(const rewritten *w, const void *const *inputs, unsigned elements)
{
    void *got[1] = {0};
    CHECK(kin_ir_eval(w->made.ir, inputs, got) == KIN_OK);
    const float *x = inputs[0], *weight = inputs[1], *bias = inputs[2];
    unsigned n = 4, k = 3;
    for (unsigned i = 0; i < elements && got[0] != NULL; i++) {
        float sum = bias[i % n];
        for (unsigned j = 0; j < k; j++)
            sum += x[i / n * k + j] * weight[i % n * k + j];
        CHECK(((float *)got[0])[i] == sum);
    }
    free(got[0]);
}

/* Small numbers, so that any order of adding gives the same. */
static void
test_small_product(void)
{
    rewritten w;
    float x[6] = {1, 2, 3, -1, 0, 5}, weight[12] = {1, 0, 2, 4, -3, 1, 7, 7, 0, 2, 2, 2}, bias[4] = {10, 20, 30, 40};
    if (rewrite(LINEAR("2", "3", "4"), (bool[]){false, false, false}, &w)) {
        CHECK(w.made.calls.len == 0);
        CHECK_EQ(count(w.text.at, "reduce_sum"), 1);
        CHECK_EQ(count(w.text.at, "extern"), 0);
        compare(&w, (const void *[]){x, weight, bias}, 8);
    }
    discard(&w);
}

/* b stored along n: its rows are added up, whatever batch there is. */
static void
test_small_batch(void)
{
    rewritten w;
    const char *aten = "%1 = input 0 : f32[2, 1, 3]{3, 3, 1}@1+0\n"
                       "%2 = input 1 : f32[2, 3, 2]{6, 2, 1}@2+0\n"
                       "%3 = aten.bmm.default(%1, %2) : f32[2, 1, 2]{2, 2, 1}@3+0\n"
                       "return %3\n";
    const char *program = "%1 = input 0 : f32[2, 1, 3]\n"
                          "%2 = input 1 : f32[2, 3, 2]\n"
                          "%3 = extern \"aten.bmm.default\" %1, %2 number=0 flags=0\n"
                          "%4 = result %3 which=0 : f32[2, 1, 2]\n"
                          "return %4\n";
    float a[6] = {1, 2, 3, 4, 5, 6}, b[12] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}, want[4] = {22, 28, 139, 154};
    void *got[1] = {0};
    if (rewrite(aten, program, (bool[]){false, false}, &w)) {
        CHECK(kin_ir_eval(w.made.ir, (const void *[]){a, b}, got) == KIN_OK);
        CHECK(got[0] != NULL && memcmp(got[0], want, sizeof want) == 0);
    }
    free(got[0]);
    discard(&w);
}

/* Factors are multiplications; one of 0 says that something is not read. */
static void
test_scaled_product(void)
{
    static const struct {
        const char *factors;
        unsigned calls, muls, adds;
    } cases[] = {{"beta=2, alpha=0.5", 1, 2, 1}, {"beta=0", 1, 0, 0}, {"alpha=3", 1, 1, 1}, {"alpha=0", 0, 0, 0}};
    for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++) {
        rewritten w;
        char aten[512];
        snprintf(aten, sizeof aten, "%%1 = input 0 : f32[64]{1}@1+0\n%%2 = input 1 : f32[2, 64, 64]{4096, 64, 1}@2+0\n"
                                    "%%3 = aten.baddbmm.default(%%1, %%2, %%2, %s) : f32[2, 64, 64]{4096, 64, 1}@3+0\nreturn %%3\n", cases[i].factors);
        const char *program = "%1 = input 0 : f32[64]\n%2 = input 1 : f32[2, 64, 64]\n"
                              "%3 = extern \"aten.baddbmm.default\" %1, %2, %2 number=0 flags=0\n"
                              "%4 = result %3 which=0 : f32[2, 64, 64]\nreturn %4\n";
        if (rewrite(aten, program, (bool[]){false, false}, &w)) {
            CHECK_EQ(w.made.calls.len, cases[i].calls);
            CHECK_EQ(count(w.text.at, " mul "), cases[i].muls);
            CHECK_EQ(count(w.text.at, " add "), cases[i].adds);
        }
        discard(&w);
    }
}

/* -- convolutions --------------------------------------------------------------------------------------------------- */

/* conv, batch norm as factor and summand per channel, plus the input, relu. */
static const char conv_aten[] =
    "%1 = input 0 : f32[1, 8, 5, 5]{200, 25, 5, 1}@1+0\n"
    "%2 = input 1 : f32[8, 8, 3, 3]{72, 9, 3, 1}@2+0\n"
    "%3 = input 2 : f32[8]{1}@3+0\n"
    "%4 = aten.convolution.default(%1, %2, None, [1, 1], [1, 1], [1, 1], False, [0, 0], 1) : f32[1, 8, 5, 5]{200, 25, 5, 1}@4+0\n"
    "return %4\n";
static const char conv_program[] =
    "%1 = input 0 : f32[1, 8, 5, 5]\n"
    "%2 = input 1 : f32[8, 8, 3, 3]\n"
    "%3 = input 2 : f32[8]\n"
    "%4 = extern \"aten.convolution.default\" %1, %2 number=0 flags=0\n"
    "%5 = result %4 which=0 : f32[1, 8, 5, 5]\n"
    "%6 = reshape %3 : f32[1, 8, 1, 1]\n"
    "%7 = expand %6 : f32[1, 8, 5, 5]\n"
    "%8 = mul %5, %7 : f32[1, 8, 5, 5]\n"
    "%9 = add %8, %7 : f32[1, 8, 5, 5]\n"
    "%10 = add %9, %1 : f32[1, 8, 5, 5]\n"
    "%11 = const 0.0 : f32[1, 8, 5, 5]\n"
    "%12 = max %10, %11 : f32[1, 8, 5, 5]\n"
    "return %12\n";

static void
test_conv_takes_in_what_follows(void)
{
    rewritten w;
    if (rewrite(conv_aten, conv_program, (bool[]){false, true, true}, &w)) {
        CHECK(w.made.calls.len == 1);
        const kin_library_call *call = &w.made.calls.at[0];
        CHECK(call->kind == KIN_LIBRARY_CONV && call->has_bias && call->has_add && call->post == KIN_POST_LIMIT);
        CHECK(call->own && call->least == 0 && call->most > 1e300);
        CHECK(call->nspatial == 2 && call->stride[1] == 1 && call->padding[0] == 1 && call->groups == 1);
        CHECK_EQ(count(w.text.at, "library.conv+bias+add+relu"), 1);
        CHECK_EQ(count(w.text.at, "aten.convolution"), 0);
        CHECK_EQ(count(w.text.at, " max "), 0);
        CHECK_EQ(count(w.text.at, " cast "), 2); /* of the image, and what is given out */
        CHECK_EQ(count(w.text.at, "{200, 1, 40, 8}"), 3);
    }
    discard(&w);
}

/* Weights that may change between calls stay outside. */
static void
test_conv_without_frozen_weights(void)
{
    rewritten w;
    if (rewrite(conv_aten, conv_program, (bool[]){false, false, true}, &w)) {
        CHECK(w.made.calls.len == 0);
        CHECK_EQ(count(w.text.at, "aten.convolution"), 1);
    }
    discard(&w);
}

/* A value that somebody else uses as well is not taken in. */
static void
test_conv_with_other_users(void)
{
    rewritten w;
    char program[2048];
    snprintf(program, sizeof program, "%.*sreturn %%12, %%8\n", (int)(strstr(conv_program, "return") - conv_program),
             conv_program);
    if (rewrite(conv_aten, program, (bool[]){false, true, true}, &w)) {
        CHECK_EQ(count(w.text.at, "\"library.conv\""), 1 - w.made.calls.at[0].has_bias);
        CHECK(!w.made.calls.at[0].has_add && w.made.calls.at[0].post == KIN_POST_NONE);
        CHECK_EQ(count(w.text.at, " max "), 1);
        CHECK(w.made.ir->outputs.len == 2);
    }
    discard(&w);
}

/* One pixel is one row of a product; every second one, if there are strides. What follows is left to fusion. */
static void
test_conv_of_single_pixels(void)
{
    rewritten w;
#define CONV(STEPS, H)                                                                                                        \
    "%1 = input 0 : f32[2, 64, 6, 6]{2304, 36, 6, 1}@1+0\n"                                                                  \
    "%2 = input 1 : f32[32, 64, 1, 1]{64, 1, 1, 1}@2+0\n"                                                                    \
    "%3 = input 2 : f32[32]{1}@3+0\n"                                                                                        \
    "%4 = aten.convolution.default(%1, %2, %3, " STEPS ", [0, 0], [1, 1], False, [0, 0], 1) : f32[2, 32, " H ", " H "]{1, 1, 1, 1}@4+0\n" \
    "return %4\n",                                                                                                           \
    "%1 = input 0 : f32[2, 64, 6, 6]\n"                                                                                      \
    "%2 = input 1 : f32[32, 64, 1, 1]\n"                                                                                     \
    "%3 = input 2 : f32[32]\n"                                                                                               \
    "%4 = extern \"aten.convolution.default\" %1, %2, %3 number=0 flags=0\n"                                                 \
    "%5 = result %4 which=0 : f32[2, 32, " H ", " H "]\n"                                                                    \
    "%6 = const 0.0 : f32[2, 32, " H ", " H "]\n"                                                                            \
    "%7 = max %5, %6 : f32[2, 32, " H ", " H "]\n"                                                                           \
    "return %7\n"
    if (rewrite(CONV("[1, 1]", "6"), (bool[]){false, true, true}, &w)) {
        CHECK(w.made.calls.len == 1 && w.made.calls.at[0].kind == KIN_LIBRARY_MATMUL && w.made.calls.at[0].frozen);
        CHECK_EQ(count(w.text.at, "result %"), 1);
        CHECK_EQ(count(w.text.at, "f32[72, 64]"), 1);
        CHECK_EQ(count(w.text.at, " max "), 1);
        CHECK_EQ(count(w.text.at, "{1152, 1, 192, 32}"), 2); /* the product and what is made of it lie channels-last */
    }
    discard(&w);
    if (rewrite(CONV("[2, 2]", "3"), (bool[]){false, true, true}, &w)) {
        CHECK_EQ(count(w.text.at, "steps=[1, 1, 2, 2] : f32[2, 64, 3, 3]"), 1);
        CHECK_EQ(count(w.text.at, "f32[18, 64]"), 1);
    }
    discard(&w);
#undef CONV
}

/* A call that stays gets the layout with which it was captured. */
static void
test_conv_in_front_of_another_call(void)
{
    rewritten w;
    const char *aten = "%1 = input 0 : f32[1, 8, 5, 5]{200, 25, 5, 1}@1+0\n"
                       "%2 = input 1 : f32[8, 8, 3, 3]{72, 9, 3, 1}@2+0\n"
                       "%3 = aten.convolution.default(%1, %2, None, [1, 1], [1, 1], [1, 1], False, [0, 0], 1) : f32[1, 8, 5, 5]{200, 25, 5, 1}@3+0\n"
                       "%4 = aten.some_call.default(%3) : f32[1, 8, 5, 5]{200, 25, 5, 1}@4+0\n"
                       "return %4\n";
    const char *program = "%1 = input 0 : f32[1, 8, 5, 5]\n"
                          "%2 = input 1 : f32[8, 8, 3, 3]\n"
                          "%3 = extern \"aten.convolution.default\" %1, %2 number=0 flags=0\n"
                          "%4 = result %3 which=0 : f32[1, 8, 5, 5]\n"
                          "%5 = extern \"aten.some_call.default\" %4 number=1 flags=0\n"
                          "%6 = result %5 which=0 : f32[1, 8, 5, 5]\n"
                          "return %6\n";
    if (rewrite(aten, program, (bool[]){false, true}, &w)) {
        CHECK_EQ(count(w.text.at, "library.conv"), 1);
        CHECK_EQ(count(w.text.at, " cast "), 2); /* in front of the convolution, and behind */
        CHECK_EQ(count(w.text.at, "{200, 1, 40, 8}"), 2);
    }
    discard(&w);
}

/* Pads, parts and sums between two convolutions lie as these like it; a reshape that joins channels with places gets rows. */
static void
test_layout_between_convs(void)
{
    rewritten w;
    const char *aten = "%1 = input 0 : f32[1, 8, 5, 5]{200, 25, 5, 1}@1+0\n"
                       "%2 = input 1 : f32[8, 8, 1, 1]{8, 1, 1, 1}@2+0\n"
                       "%3 = aten.convolution.default(%1, %2, None, [1, 1], [0, 0], [1, 1], False, [0, 0], 1) : f32[1, 8, 5, 5]{200, 25, 5, 1}@3+0\n"
                       "%4 = aten.convolution.default(%1, %2, None, [1, 1], [0, 0], [1, 1], False, [0, 0], 1) : f32[1, 8, 5, 5]{200, 25, 5, 1}@4+0\n"
                       "return %4\n";
    const char *program = "%1 = input 0 : f32[1, 8, 5, 5]\n"
                          "%2 = input 1 : f32[8, 8, 1, 1]\n"
                          "%3 = exp %1 : f32[1, 8, 5, 5]\n"
                          "%4 = extern \"aten.convolution.default\" %3, %2 number=0 flags=0\n"
                          "%5 = result %4 which=0 : f32[1, 8, 5, 5]\n"
                          "%6 = exp %5 : f32[1, 8, 5, 5]\n"
                          "%7 = extern \"aten.convolution.default\" %6, %2 number=1 flags=0\n"
                          "%8 = result %7 which=0 : f32[1, 8, 5, 5]\n"
                          "%9 = exp %8 : f32[1, 8, 5, 5]\n"
                          "%10 = reshape %9 : f32[1, 200]\n"
                          "%11 = reshape %5 : f32[1, 8, 25]\n"
                          "return %10, %11\n";
    if (rewrite(aten, program, (bool[]){false, true}, &w)) {
        CHECK_EQ(count(w.text.at, "library.conv"), 2);
        CHECK_EQ(count(w.text.at, " cast "), 0);
        CHECK_EQ(count(w.text.at, "f32[1, 8, 5, 5]{200, 1, 40, 8}"), 4); /* both exp in front of convolutions, what these give */
    }
    discard(&w);
}

/* -- attention ----------------------------------------------------------------------------------------------------- */

#define ATTENTION(ROWS, CALL, RETURN)                                                                              \
    "%1 = input 0 : f32[1, 4, " ROWS ", 8]{640, 160, 8, 1}@1+0\n"                                                 \
    "%2 = input 1 : f32[1, 2, 20, 8]{320, 160, 8, 1}@2+0\n"                                                       \
    "%3 = input 2 : f32[1, 1, 1, 20]{20, 20, 20, 1}@3+0\n"                                                        \
    "%4, %5 = aten._scaled_dot_product_flash_attention_for_cpu.default(%1, %2, %2, " CALL ") : "                   \
    "f32[1, 4, " ROWS ", 8]{640, 8, 32, 1}@4+0, f32[1, 4, " ROWS "]{80, 1, 4}@5+0\n"                              \
    "return %4\n",                                                                                                \
    "%1 = input 0 : f32[1, 4, " ROWS ", 8]\n"                                                                     \
    "%2 = input 1 : f32[1, 2, 20, 8]\n"                                                                           \
    "%3 = input 2 : f32[1, 1, 1, 20]\n"                                                                           \
    "%4 = extern \"aten._scaled_dot_product_flash_attention_for_cpu.default\" %1, %2, %2, %3 number=0 flags=0\n" \
    "%5 = result %4 which=0 : f32[1, 4, " ROWS ", 8]\n"                                                           \
    "%6 = result %4 which=1 : f32[1, 4, " ROWS "]\n"                                                              \
    "return " RETURN "\n"

static unsigned
attentions(const char *aten, const char *program)
{
    rewritten w;
    unsigned n = 99;
    if (rewrite(aten, program, (bool[]){false, false, false}, &w)) {
        n = w.made.calls.len;
        CHECK_EQ(count(w.text.at, "library.attention"), n);
        CHECK(n == 0 || (w.made.calls.at[0].kind == KIN_LIBRARY_ATTENTION && w.made.calls.at[0].has_add &&
                         w.made.calls.at[0].scale == 0.25 && !w.made.calls.at[0].causal));
    }
    discard(&w);
    return n;
}

static void
test_attention(void)
{
    CHECK_EQ(attentions(ATTENTION("20", "0.0, False, attn_mask=%3, scale=0.25", "%5")), 1);
    CHECK_EQ(attentions(ATTENTION("20", "0.0, False, attn_mask=%3, scale=0.25", "%5, %6")), 0); /* its sums are used */
    CHECK_EQ(attentions(ATTENTION("20", "0.5, False, attn_mask=%3, scale=0.25", "%5")), 0);     /* draws random numbers */
    CHECK_EQ(attentions(ATTENTION("20", "0.0, True, attn_mask=%3, scale=0.25", "%5")), 0);      /* eager refuses both */
    CHECK_EQ(attentions(ATTENTION("1", "0.0, False, attn_mask=%3, scale=0.25", "%5")), 0);
}

/* -- random numbers ------------------------------------------------------------------------------------------------- */

/* Numbers that are drawn and not used: the call stays, and nothing follows it. Programs of several lengths, since allocations have slack. */
static void
test_unused_random_numbers(void)
{
    const char *aten = "%1 = input 0 : f32[2]{1}@1+0\n%2 = aten.randn_like.default(%1) : f32[2]{1}@2+0\nreturn %1\n";
    for (unsigned more = 1; more <= 4; more++) {
        kin_text program = {0}, why = {0};
        kin_text_add(&program, "%1 = input 0 : f32[2]\n");
        for (unsigned n = 1; n <= more; n++)
            kin_text_addf(&program, "%%%u = abs %%%u : f32[2]\n", n + 1, n);
        kin_text_addf(&program, "%%%u = extern \"aten.randn_like.default\" %%1 number=0 flags=1\nreturn %%%u\n", more + 2, more + 1);
        kin_aten *g = kin_aten_parse(aten, &why);
        kin_ir *before = kin_ir_parse(program.at, &why);
        kin_rewritten made = {0};
        if (CHECK(g != NULL && before != NULL) && CHECK(kin_rewrite(before, g, NULL, &(kin_rewrite_options){.random = true}, &made) == KIN_OK))
            CHECK_EQ(made.ir->nodes.len, before->nodes.len);
        kin_rewritten_deinit(&made);
        kin_ir_free(before);
        kin_aten_free(g);
        kin_text_deinit(&program);
        kin_text_deinit(&why);
    }
}

int
main(void)
{
    test_unused_random_numbers();
    test_large_product();
    test_products_of_one_matrix();
    test_small_product();
    test_small_batch();
    test_scaled_product();
    test_conv_takes_in_what_follows();
    test_conv_without_frozen_weights();
    test_conv_with_other_users();
    test_conv_of_single_pixels();
    test_conv_in_front_of_another_call();
    test_layout_between_convs();
    test_attention();
    return check_report("library");
}
