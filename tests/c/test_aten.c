/* ATen graphs: built, printed, read back, refused. */
#include "core/aten/aten.h"
#include "check.h"

static const char *const graph_text =
    "%1 = input 0 : f32[2, 3]{3, 1}@1+0\n"
    "%2 = input 1 : i64[]{}@2+4\n"
    "%3 = aten.t.default(%1) : f32[3, 2]{1, 3}@1+0\n"
    "%4 = aten.add.Tensor(%3, 1.0, alpha=2) : f32[3, 2]{1, 3}@3+0\n"
    "%5, %6 = aten.split.Tensor(%4, 2) : f32[2, 2]{1, 3}@3+0, f32[1, 2]{1, 3}@3+2\n"
    "%7 = aten.index.Tensor(%4, [None, %2]) : f32[3]{1}@4+0\n"
    "%8 = aten.full.default([2, 3], nan, dtype=f64, device=cpu, pin_memory=False) : f64[2, 3]{3, 1}@5+0\n"
    "%9 = prims.nest.default([[1, 2], [], [%1, -inf]], [True, None], \"a, [b]\", 1e-05, -3) : f32[]{}@6+0\n"
    "aten._assert.default(%1, \"x\")\n"
    "%10 = aten.add_.Tensor(%4!, %3) : f32[3, 2]{1, 3}@3+0\n"
    "return %5, %6, %1\n";

static void
test_round_trip(void)
{
    kin_text why = {0}, out = {0};
    kin_aten *g = kin_aten_parse(graph_text, &why);
    if (!CHECK(g != NULL)) {
        fprintf(stderr, "    %s\n", why.at);
        return;
    }
    CHECK(kin_aten_verify(g, &why));
    CHECK(kin_aten_print(g, &out));
    CHECK_STR(out.at, graph_text);
    CHECK_EQ(g->nstorages, 6);
    CHECK_EQ(g->ninputs, 2);
    const kin_aten_call *nest = &g->calls.at[5];
    CHECK_EQ(nest->nargs, 5);
    const kin_aten_arg *outer = &g->args.at[nest->args];
    CHECK_EQ(outer->list.count, 3);
    CHECK_EQ(g->args.at[g->args.at[outer->list.child].list.child + 1].i, 2);
    CHECK_EQ(g->args.at[nest->args + 4].i, -3);
    kin_text_deinit(&why);
    kin_text_deinit(&out);
    kin_aten_free(g);
}

static void
refuse_text(const char *text, const char *message)
{
    kin_text why = {0};
    kin_aten *g = kin_aten_parse(text, &why);
    CHECK(g == NULL);
    CHECK_STR(why.at, message);
    kin_aten_free(g);
    kin_text_deinit(&why);
}

static void
refuse(const char *text, const char *message)
{
    kin_text why = {0};
    kin_aten *g = kin_aten_parse(text, &why);
    if (CHECK(g != NULL))
        CHECK(!kin_aten_verify(g, &why));
    CHECK_STR(why.at, message);
    kin_aten_free(g);
    kin_text_deinit(&why);
}

/* A lookup with its consumers: which call raises for what nobody reads. */
static void
raises_unseen(const char *rest, uint32_t expected)
{
    kin_text text = {0}, why = {0};
    kin_text_add(&text, "%1 = input 0 : f32[5, 8]{8, 1}@1+0\n%2 = input 1 : i64[6]{1}@2+0\n"
                        "%3 = aten.embedding.default(%1, %2) : f32[6, 8]{8, 1}@3+0\n");
    kin_text_add(&text, rest);
    kin_aten *g = kin_aten_parse(text.at, &why);
    if (CHECK(g != NULL))
        CHECK(kin_aten_raises_unseen(g) == expected);
    kin_aten_free(g);
    kin_text_deinit(&text);
    kin_text_deinit(&why);
}

#define SORTED "%4, %5 = aten.sort.default(%1, 0) : f32[5, 8]{8, 1}@4+0, i64[5, 8]{8, 1}@5+0\n"

static void
test_raises_unseen(void)
{
    raises_unseen("%4 = aten.mul.Tensor(%3, 2.0) : f32[6, 8]{8, 1}@4+0\nreturn %4\n", UINT32_MAX);
    raises_unseen("%4 = aten.mul.Tensor(%1, 2.0) : f32[5, 8]{8, 1}@4+0\nreturn %4\n", 0);
    raises_unseen("%4 = aten.slice.Tensor(%3, 0, 0, 2) : f32[2, 8]{8, 1}@3+0\nreturn %4\n", 0);
    raises_unseen("%4 = aten.mm.default(%3, %3) : f32[6, 6]{6, 1}@4+0\n"
                  "%5 = aten.slice.Tensor(%4, 0, 0, 2) : f32[2, 6]{6, 1}@4+0\nreturn %5\n", UINT32_MAX);
    raises_unseen("%4 = aten.floor_divide.default(%2, %2) : i64[6]{1}@4+0\nreturn %3\n", 1);
    raises_unseen("%4 = aten.remainder.Scalar(%3, 2.0) : f32[6, 8]{8, 1}@4+0\nreturn %3\n", UINT32_MAX);
    raises_unseen("%4 = aten.copy_.default(%1!, %3) : f32[5, 8]{8, 1}@1+0\nreturn\n", UINT32_MAX);
    /* what looks up places that were found in a dim of the same size; a scatter is done as a whole */
    raises_unseen(SORTED "%6 = aten.gather.default(%4, 0, %5) : f32[5, 8]{8, 1}@6+0\n%7 = aten.select.int(%6, 0, 0) : f32[8]{1}@6+0\nreturn %3, %7\n", UINT32_MAX);
    raises_unseen(SORTED "%6 = aten.gather.default(%4, 1, %5) : f32[5, 8]{8, 1}@6+0\n%7 = aten.select.int(%6, 0, 0) : f32[8]{1}@6+0\nreturn %3, %7\n", 2);
    raises_unseen(SORTED "%6 = aten.add_.Tensor(%5!, 1) : i64[5, 8]{8, 1}@5+0\n%7 = aten.gather.default(%4, 0, %6) : f32[5, 8]{8, 1}@6+0\n"
                  "%8 = aten.select.int(%7, 0, 0) : f32[8]{1}@6+0\nreturn %3, %8\n", 3);
    raises_unseen("%4 = aten.floor_divide.default(%2, 2) : i64[6]{1}@4+0\nreturn %3\n", UINT32_MAX);
    raises_unseen("%4 = aten.index_add.default(%1, 0, %2, %3) : f32[5, 8]{8, 1}@4+0\n%5 = aten.select.int(%4, 0, 0) : f32[8]{1}@4+0\nreturn %5\n", UINT32_MAX);
    raises_unseen("%4 = aten.index_add.default(%1, 0, %2, %3) : f32[5, 8]{8, 1}@4+0\n%5 = aten.slice.Tensor(%4, 0, 0, 0) : f32[0, 8]{8, 1}@4+0\nreturn %5\n", 0);
}

static bool
measure(const char *text, kin_aten_work *out)
{
    kin_text why = {0};
    kin_aten *g = kin_aten_parse(text, &why);
    bool ok = CHECK(g != NULL) && kin_aten_measure(g, out);
    kin_aten_free(g);
    kin_text_deinit(&why);
    return ok;
}

/* (rows, 8) times (8, 4), and a ReLU behind it; a view costs nothing. */
static kin_aten_work
measure_rows(int rows)
{
    char text[400];
    kin_aten_work work = {0};
    snprintf(text, sizeof text,
             "%%1 = input 0 : f32[%d, 8]{8, 1}@1+0\n%%2 = input 1 : f32[8, 4]{4, 1}@2+0\n"
             "%%3 = aten.mm.default(%%1, %%2) : f32[%d, 4]{4, 1}@3+0\n"
             "%%4 = aten.t.default(%%3) : f32[4, %d]{1, 4}@3+0\n"
             "%%5 = aten.relu.default(%%4) : f32[4, %d]{1, 4}@4+0\nreturn %%5\n",
             rows, rows, rows, rows);
    CHECK(measure(text, &work));
    return work;
}

static void
test_work(void)
{
    kin_aten_work five = measure_rows(5), ten = measure_rows(10), nothing;
    CHECK(five.elements == 2 * 5 * 4 && five.products > 5 * 8 * 4 - 1e-6 && five.products < 5 * 8 * 4 + 1e-6);
    CHECK(kin_aten_work_ratio(&five, &five) == 1);
    CHECK(kin_aten_work_ratio(&ten, &five) > 0.499 && kin_aten_work_ratio(&ten, &five) < 0.501);
    CHECK(kin_aten_work_ratio(&five, &ten) > 1.999 && kin_aten_work_ratio(&five, &ten) < 2.001);
    CHECK(!measure("%1 = input 0 : f32[3]{1}@1+0\nreturn %1\n", &nothing) && nothing.elements == 0);
    CHECK(kin_aten_work_ratio(&five, &nothing) == 0 && kin_aten_work_ratio(&nothing, &five) == 0);
    kin_aten_work no_products = {.elements = 40};
    CHECK(kin_aten_work_ratio(&five, &no_products) == 0);
}

/* A value like an earlier one, whose sizes and strides lie in the graph and move as it grows. */
static void
test_values_like_others(void)
{
    kin_aten *g = kin_aten_new();
    const int64_t sizes[] = {2, 3, 5}, strides[] = {15, 5, 1};
    kin_aten_input(g, KIN_F32, 3, sizes, strides, 1, 0);
    for (uint32_t i = 0; i < 300; i++) {
        kin_aten_value v = *kin_aten_at(g, g->values.len - 1);
        kin_aten_add_call(g, "a.b", false);
        kin_aten_val made = kin_aten_add_result(g, KIN_F32, 3, g->ints.at + v.sizes, g->ints.at + v.strides, 1, 0);
        const kin_aten_value *now = kin_aten_at(g, made);
        CHECK(memcmp(g->ints.at + now->sizes, sizes, sizeof sizes) == 0 && memcmp(g->ints.at + now->strides, strides, sizeof strides) == 0);
    }
    kin_aten_free(g);
}

int
main(void)
{
    test_values_like_others();
    test_round_trip();
    test_work();
    test_raises_unseen();
    refuse_text("%1 = input 1 : f32[]{}@1+0\nreturn\n", "line 1: inputs come first, in order");
    refuse_text("%1 = input 0 : f32[2]{}@1+0\nreturn\n", "line 1: as many strides as sizes expected");
    refuse_text("%1 = input 0 : f32[2]{1}+0\nreturn\n", "line 1: '@' expected");
    refuse_text("%1 = a.b(, 1) : f32[]{}@1+0\nreturn\n", "line 1: argument expected");
    refuse_text("%1 = a.b([1, 2) : f32[]{}@1+0\nreturn\n", "line 1: ']' expected");
    refuse_text("%1, %3 = a.b() : f32[]{}@1+0\nreturn\n", "line 1: values are numbered in order, from %1");
    refuse_text("%1 = a.b()\nreturn\n", "line 1: ':' expected");
    refuse_text("a.b() : f32[]{}@1+0\nreturn\n", "line 1: end of line expected");
    refuse("%1 = a.b(%1) : f32[]{}@1+0\nreturn\n", "call 0 a.b: arguments come earlier");
    refuse("%1 = a.b([[%2]]) : f32[]{}@1+0\nreturn\n", "call 0 a.b: arguments come earlier");
    refuse("%1 = a.b() : f32[]{}@0+0\nreturn\n", "%1: impossible dtype, sizes, strides or storage");
    refuse("%1 = a.b() : f32[2]{-1}@1+0\nreturn\n", "%1: impossible dtype, sizes, strides or storage");
    refuse("%1 = a.b() : f32[2]{1}@1+0\nreturn %2\n", "output 0 is no value");
    return check_report("aten");
}
