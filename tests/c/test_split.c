/* Long reductions in two stages give what they gave in one: on numbers whose sums are exact, with NaNs and equal extremes. */
#include "core/ir/split.h"

#include <math.h>
#include <stdlib.h>

#include "check.h"

static uint64_t state = 7;

static double
next(bool nan)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return nan && state >> 47 == 0 ? NAN : (double)((int64_t)(state >> 40) % 61 - 30);
}

static void *
fill(const kin_ir *p, kin_irn n, bool nan)
{
    int64_t numel = kin_ir_numel(p, n);
    char *at = malloc((size_t)numel * 8 + 8);
    for (int64_t i = 0; i < numel; i++) {
        double v = next(nan);
        switch (kin_ir_at(p, n)->dtype) {
        case KIN_F32: ((float *)at)[i] = (float)v; break;
        case KIN_F64: ((double *)at)[i] = v; break;
        case KIN_I64: ((int64_t *)at)[i] = isnan(v) ? 99 : (int64_t)v; break;
        default: at[i] = v > 0; break;
        }
    }
    return at;
}

/* splits: how many reductions there are afterwards. */
static void
check_same(const char *text, bool nan, uint32_t reductions)
{
    kin_text why = {0};
    kin_ir *p = kin_ir_parse(text, &why), *q = p ? kin_ir_split(p) : NULL;
    void *in, *a[4] = {0}, *b[4] = {0};
    uint32_t n = 0;
    if (!CHECK(q && kin_ir_verify(q, &why) && kin_ir_splits(p))) {
        fprintf(stderr, "%s\n", why.at ? why.at : "");
        return;
    }
    for (kin_irn i = 1; i < q->nodes.len; i++)
        n += kin_ir_op_class(kin_ir_at(q, i)->op) == KIN_IR_CLASS_REDUCE;
    CHECK_EQ(n, reductions);
    in = fill(p, 1, nan);
    CHECK(kin_ir_eval(p, (const void *const *)&in, a) == KIN_OK && kin_ir_eval(q, (const void *const *)&in, b) == KIN_OK);
    for (uint32_t o = 0; o < p->outputs.len; o++) {
        size_t bytes = (size_t)kin_ir_numel(p, p->outputs.at[o].node) * kin_dtype_bytes(kin_ir_at(p, p->outputs.at[o].node)->dtype);
        CHECK(memcmp(a[o], b[o], bytes) == 0);
        free(a[o]);
        free(b[o]);
    }
    free(in);
    kin_ir_free(p);
    kin_ir_free(q);
    kin_text_deinit(&why);
}

static void
test_sums(void)
{
    check_same("%1 = input 0 : f32[512, 512]\n%2 = reduce_sum %1 dims=[0, 1] : f32[1, 1]\nreturn %2\n", false, 2);
    check_same("%1 = input 0 : f32[3, 65536]\n%2 = reduce_sum %1 dims=[1] : f32[3, 1]\nreturn %2\n", false, 2);
    check_same("%1 = input 0 : f32[70000, 4]\n%2 = reduce_sum %1 dims=[0] : f32[1, 4]\nreturn %2\n", false, 2);
    check_same("%1 = input 0 : f32[5000, 64]\n%2 = reduce_sum %1 dims=[0] : f32[1, 64]\nreturn %2\n", false, 2); /* a vector's worth of columns */
    check_same("%1 = input 0 : f64[2, 5, 40000]\n%2 = reduce_sum %1 dims=[1, 2] : f64[2, 1, 1]\nreturn %2\n", false, 2);
    check_same("%1 = input 0 : i64[5, 3, 7, 2003]\n%2 = reduce_sum %1 dims=[0, 1, 2, 3] : i64[1, 1, 1, 1]\nreturn %2\n", false, 2);
    check_same("%1 = input 0 : f32[131101]\n%2 = reduce_sum %1 dims=[0] : f32[1]\nreturn %2\n", false, 3); /* a prime */
    check_same("%1 = input 0 : f32[131101]\n%2 = reduce_max %1 dims=[0] : f32[1]\n%3 = reduce_min %1 dims=[0] : f32[1]\nreturn %2, %3\n",
               false, 6);
    check_same("%1 = input 0 : b8[131072]\n%2 = reduce_any %1 dims=[0] : b8[1]\n%3 = reduce_all %1 dims=[0] : b8[1]\nreturn %2, %3\n",
               false, 4);
    check_same("%1 = input 0 : b8[131101]\n%2 = reduce_any %1 dims=[0] : b8[1]\n%3 = reduce_all %1 dims=[0] : b8[1]\nreturn %2, %3\n",
               false, 6);
}

static void
test_extremes(void)
{
    check_same("%1 = input 0 : f32[512, 300]\n%2 = argmax %1 dims=[0, 1] : i64[1, 1]\n%3 = argmin %1 dims=[0, 1] : i64[1, 1]\n"
               "return %2, %3\n", false, 8);
    check_same("%1 = input 0 : f32[512, 300]\n%2 = argmax %1 dims=[0, 1] : i64[1, 1]\n%3 = argmin %1 dims=[0, 1] : i64[1, 1]\n"
               "return %2, %3\n", true, 8);
    check_same("%1 = input 0 : f32[70, 50]\n%2 = argmax %1 dims=[1] : i64[70, 1]\n%3 = argmin %1 dims=[0] : i64[1, 50]\n"
               "return %2, %3\n", false, 4);
    check_same("%1 = input 0 : f64[70, 50]\n%2 = argmax %1 dims=[1] : i64[70, 1]\nreturn %2\n", true, 2);
    check_same("%1 = input 0 : i64[2, 70000]\n%2 = argmin %1 dims=[1] : i64[2, 1]\nreturn %2\n", false, 4);
    check_same("%1 = input 0 : f32[131101]\n%2 = argmax %1 dims=[0] : i64[1]\nreturn %2\n", true, 2);
}

/* What has rows enough, or is short, stays as it is. */
static void
test_left_alone(void)
{
    const char *texts[] = {"%1 = input 0 : f32[64, 65536]\n%2 = reduce_sum %1 dims=[1] : f32[64, 1]\nreturn %2\n",
                           "%1 = input 0 : f32[1000]\n%2 = reduce_sum %1 dims=[0] : f32[1]\nreturn %2\n",
                           "%1 = input 0 : f32[500, 600]\n%2 = reduce_sum %1 dims=[0] : f32[1, 600]\nreturn %2\n",
                           "%1 = input 0 : f32[64, 8]\n%2 = argmax %1 dims=[1] : i64[64, 1]\nreturn %2\n"};
    for (int i = 0; i < 4; i++) {
        kin_text why = {0};
        kin_ir *p = kin_ir_parse(texts[i], &why);
        CHECK(p && !kin_ir_splits(p));
        kin_ir_free(p);
        kin_text_deinit(&why);
    }
}

int
main(void)
{
    test_sums();
    test_extremes();
    test_left_alone();
    return check_report("split");
}
