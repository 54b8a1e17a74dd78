/* What simplify leaves of small programs, and that random programs compute the same before and after. */
#include "core/ir/ir.h"
#include "check.h"
#include "gen_ir.h"

static void
expect(const char *before, const char *after, bool fast_math)
{
    kin_text why = {0}, out = {0};
    kin_ir *p = kin_ir_parse(before, &why), *q = p != NULL ? kin_ir_simplify(p, fast_math) : NULL;
    if (CHECK(q != NULL)) {
        CHECK(kin_ir_verify(q, &why));
        kin_ir_print(q, &out);
        CHECK_STR(out.at, after);
    }
    kin_ir_free(p);
    kin_ir_free(q);
    kin_text_deinit(&why);
    kin_text_deinit(&out);
}

static void
test_small(void)
{
    /* unused nodes, equal nodes */
    expect("%1 = input 0 : f32[4]\n%2 = exp %1 : f32[4]\n%3 = neg %1 : f32[4]\n%4 = exp %1 : f32[4]\n%5 = add %2, %4 : f32[4]\nreturn %5\n",
           "%1 = input 0 : f32[4]\n%2 = exp %1 : f32[4]\n%3 = add %2, %2 : f32[4]\nreturn %3\n", false);
    /* constants */
    expect("%1 = input 0 : f32[4]\n%2 = const 2 : i64[]\n%3 = cast %2 : f32[]\n%4 = expand %3 : f32[4]\n%5 = sqrt %4 : f32[4]\n"
           "%6 = mul %1, %5 : f32[4]\nreturn %6\n",
           "%1 = input 0 : f32[4]\n%2 = const 1.4142135381698608 : f32[4]\n%3 = mul %1, %2 : f32[4]\nreturn %3\n", false);
    /* an integer division by zero is left to the run */
    expect("%1 = const 0 : i64[]\n%2 = div %1, %1 : i64[]\nreturn %2\n", "%1 = const 0 : i64[]\n%2 = div %1, %1 : i64[]\nreturn %2\n", false);
    /* views of views; one that undoes the other */
    expect("%1 = input 0 : f32[4, 6]\n%2 = permute %1 dims=[1, 0] : f32[6, 4]\n%3 = permute %2 dims=[1, 0] : f32[4, 6]\n"
           "%4 = slice %3 starts=[0, 1] steps=[1, 2] : f32[4, 3]\n%5 = slice %4 starts=[3, 1] steps=[-1, 1] : f32[4, 2]\nreturn %5\n",
           "%1 = input 0 : f32[4, 6]\n%2 = slice %1 starts=[3, 3] steps=[-1, 2] : f32[4, 2]\nreturn %2\n", false);
    /* x + 0.0 stays (for -0.0), x * 1 goes; an output that became an input is copied */
    expect("%1 = input 0 : f32[4]\n%2 = const 1.0 : f32[4]\n%3 = const 0.0 : f32[4]\n%4 = mul %1, %2 : f32[4]\n%5 = add %4, %3 : f32[4]\n"
           "return %4, %5\n",
           "%1 = input 0 : f32[4]\n%2 = const 0.0 : f32[4]\n%3 = add %1, %2 : f32[4]\n%4 = cast %1 : f32[4]\nreturn %4, %3\n", false);
}

static void
test_casts(void)
{
    /* exact on the way out, so the way back is dropped; a rounding stays unless asked */
    expect("%1 = input 0 : bf16[4]\n%2 = cast %1 : f32[4]\n%3 = cast %2 : bf16[4]\n%4 = neg %3 : bf16[4]\nreturn %4\n",
           "%1 = input 0 : bf16[4]\n%2 = neg %1 : bf16[4]\nreturn %2\n", false);
    const char *round = "%1 = input 0 : f32[4]\n%2 = cast %1 : bf16[4]\n%3 = cast %2 : f32[4]\n%4 = neg %3 : f32[4]\nreturn %4\n";
    expect(round, round, false);
    expect(round, "%1 = input 0 : f32[4]\n%2 = neg %1 : f32[4]\nreturn %2\n", true);
    const char *wrap = "%1 = input 0 : i64[4]\n%2 = cast %1 : u8[4]\n%3 = cast %2 : i64[4]\nreturn %3\n";
    expect(wrap, wrap, false);
    /* copies: kept for outputs and externs, looked through elsewhere */
    expect("%1 = input 0 : f32[4]\n%2 = cast %1 : f32[4]{2}\n%3 = extern \"f\" number=0 flags=0\n%4 = result %3 which=0 : f32[4]\n"
           "%5 = extern \"g\" %2 number=1 flags=1\n%6 = neg %2 : f32[4]\nreturn %6, %2\n",
           "%1 = input 0 : f32[4]\n%2 = cast %1 : f32[4]{2}\n%3 = extern \"g\" %2 number=1 flags=1\n%4 = neg %1 : f32[4]\nreturn %4, %2\n",
           false);
    /* two outputs that turn out equal keep memory of their own */
    expect("%1 = input 0 : f32[4]\n%2 = neg %1 : f32[4]\n%3 = neg %1 : f32[4]\nreturn %2, %3, %2\n",
           "%1 = input 0 : f32[4]\n%2 = neg %1 : f32[4]\n%3 = cast %2 : f32[4]\nreturn %2, %3, %2\n", false);
}

static void
compare_random(uint64_t seed)
{
    gen_options options = {.nodes = 12 + (unsigned)(seed % 20), .max_size = 5, .halves = true};
    kin_text why = {0}, text = {0};
    kin_ir *p = gen_ir(seed, &options), *q = kin_ir_simplify(p, false);
    void *a[4], *b[4], **inputs = gen_inputs(p, seed);
    bool right = kin_ir_verify(p, &why) && q != NULL && kin_ir_verify(q, &why);
    CHECK(right);
    kin_status before = right ? kin_ir_eval(p, (const void *const *)inputs, a) : KIN_BUG;
    kin_status after = right ? kin_ir_eval(q, (const void *const *)inputs, b) : KIN_BUG;
    /* what was in error may be gone, never the other way round */
    bool good = right && (after == before || (before == KIN_BREAK && after == KIN_OK));
    for (uint32_t o = 0; right && o < p->outputs.len; o++) {
        kin_irn n = p->outputs.at[o].node;
        good &= before != KIN_OK || after != KIN_OK || gen_differs((kin_dtype)kin_ir_at(p, n)->dtype, kin_ir_numel(p, n), a[o], b[o], 0) < 0;
        if (before == KIN_OK)
            free(a[o]);
        if (after == KIN_OK)
            free(b[o]);
    }
    if (!CHECK(good)) {
        kin_ir_print(p, &text);
        fprintf(stderr, "seed %llu: %s\n%s", (unsigned long long)seed, why.at ? why.at : "", text.at);
        kin_text_clear(&text);
        if (q != NULL && kin_ir_print(q, &text))
            fprintf(stderr, "simplified:\n%s", text.at);
    }
    gen_free(inputs, p->ninputs);
    kin_ir_free(p);
    kin_ir_free(q);
    kin_text_deinit(&why);
    kin_text_deinit(&text);
}

int
main(void)
{
    test_small();
    test_casts();
    for (uint64_t seed = 1; seed <= 1500 && check_failed < 3; seed++)
        compare_random(seed);
    return check_report("ir simplify");
}
