/* Tensor programs: text both ways, what is refused, and what each operation computes. */
#include "core/ir/ir.h"
#include "check.h"

#include <math.h>
#include <stdlib.h>

/* -- text -------------------------------------------------------------------------------------------------------- */

static const char *const everything =
    "%1 = input 0 : f32[4, 8]{1, 4}\n"
    "%2 = input 1 : f32[8]\n"
    "%3 = expand %2 : f32[4, 8]\n"
    "%4 = add %1, %3 : f32[4, 8]\n"
    "%5 = reduce_max %4 dims=[1] : f32[4, 1]\n"
    "%6 = const 0.1 : f32[]\n"
    "%7 = pad %4, %6 low=[1, 0] : f32[6, 8]\n"
    "%8 = slice %7 starts=[5, 0] steps=[-1, 2] : f32[3, 4]\n"
    "%9 = permute %8 dims=[1, 0] : f32[4, 3]\n"
    "%10 = reshape %9 : f32[12]\n"
    "%11 = cat %10, %2 dim=0 : f32[20]\n"
    "%12 = iota dim=0 : i64[5]\n"
    "%13 = index %11, %12 map=[-1] : f32[5]\n"
    "%14 = const -inf : f32[20]\n"
    "%15 = scatter %14, %13, %12 mode=max map=[-1] : f32[20]\n"
    "%16 = cumsum %15 dim=0 : f32[20]\n"
    "%17 = extern \"aten.mm.default\" %1, %4 number=3 flags=1\n"
    "%18 = result %17 which=0 : f32[4, 4]{1, 4}\n"
    "%19 = const 0 : b8[]\n"
    "%20 = const nan : f64[2]\n"
    "%21 = extern \"x\\\"y\" number=0 flags=0\n"
    "%22 = lt %1, %3 : b8[4, 8]\n"
    "%23 = where %22, %1, %3 : f32[4, 8]\n"
    "%24 = cast %23 : bf16[4, 8]\n"
    "%25 = const 1e-300 : f64[]\n"
    "return %5 : {1, 1}, %15, %18 : {1, 4}, %18 into 0\n";

static void
check_round_trip(const char *text)
{
    kin_text why = {0}, out = {0};
    kin_ir *p = kin_ir_parse(text, &why);
    if (!CHECK(p != NULL)) {
        fprintf(stderr, "    %s\n", why.at);
        return;
    }
    if (!CHECK(kin_ir_verify(p, &why)))
        fprintf(stderr, "    %s\n", why.at);
    CHECK(kin_ir_print(p, &out));
    CHECK_STR(out.at, text);
    kin_text_deinit(&why);
    kin_text_deinit(&out);
    kin_ir_free(p);
}

static void
test_builder(void)
{
    kin_ir *p = kin_ir_new();
    kin_irn x = kin_ir_input(p, 0, KIN_F32, 2, (int64_t[]){4, 6});
    kin_irn one = kin_ir_const(p, KIN_F32, (kin_scalar){.f = 1}, 0, NULL);
    kin_irn y = kin_ir_binary(p, KIN_IR_ADD, x, kin_ir_expand(p, one, 2, kin_ir_sizes(p, x)));
    kin_irn c = kin_ir_binary(p, KIN_IR_LT, x, y);
    kin_irn w = kin_ir_where(p, c, kin_ir_unary(p, KIN_IR_EXP, x), y);
    CHECK_EQ(kin_ir_cast(p, w, KIN_F32), w);
    CHECK_EQ(kin_ir_reshape(p, w, 2, (int64_t[]){4, 6}), w);
    kin_irn t = kin_ir_permute(p, w, (int64_t[]){1, 0});
    kin_irn both = kin_ir_cat(p, (kin_irn[]){t, t, t}, 3, 1);
    CHECK_EQ(kin_ir_sizes(p, both)[1], 12);
    kin_irn r = kin_ir_reduce(p, KIN_IR_ARGMAX, both, 1, (int64_t[]){1});
    CHECK_EQ(kin_ir_at(p, r)->dtype, KIN_I64);
    kin_irn s = kin_ir_scan(p, KIN_IR_CUMSUM, kin_ir_cast(p, r, KIN_I32), 0);
    kin_ir_output(p, s, NULL);
    kin_ir_output(p, both, (int64_t[]){1, 6});
    kin_irn call = kin_ir_extern(p, "aten.mm.default", 7, 0, (kin_irn[]){x, t}, 2);
    kin_ir_output(p, kin_ir_result(p, call, 0, KIN_F32, 2, (int64_t[]){4, 4}, (int64_t[]){4, 1}), NULL);
    kin_text why = {0}, out = {0};
    CHECK(kin_ir_verify(p, &why));
    CHECK(kin_ir_print(p, &out));
    CHECK(strstr(out.at, "= cat %8, %8, %8 dim=1 : f32[6, 12]\n") != NULL);
    check_round_trip(out.at);
    kin_text_deinit(&why);
    kin_text_deinit(&out);
    kin_ir_free(p);
}

/* A builder that is given nonsense fails softly. */
static void
test_sticky(void)
{
    kin_ir *p = kin_ir_new();
    kin_irn x = kin_ir_input(p, 0, KIN_F32, 1, (int64_t[]){4});
    CHECK_EQ(kin_ir_unary(p, KIN_IR_EXP, 99), 0);
    CHECK(p->failed);
    CHECK_EQ(kin_ir_binary(p, KIN_IR_ADD, x, x), 0);
    CHECK_EQ(kin_ir_cat(p, NULL, 0, 0), 0);
    kin_text why = {0};
    CHECK(!kin_ir_verify(p, &why));
    kin_text_deinit(&why);
    kin_ir_free(p);
}

static void
refuse_text(const char *text, const char *message)
{
    kin_text why = {0};
    kin_ir *p = kin_ir_parse(text, &why);
    CHECK(p == NULL);
    CHECK_STR(why.at, message);
    kin_ir_free(p);
    kin_text_deinit(&why);
}

static void
test_parse_errors(void)
{
    refuse_text("", "line 1: return expected");
    refuse_text("# note\n\n%2 = input 0 : f32[]\n", "line 3: values are numbered in order, from %1");
    refuse_text("%1 = inptu 0 : f32[]\n", "line 1: unknown operation");
    refuse_text("%1 = input : f32[]\n", "line 1: integer expected");
    refuse_text("%1 = input 0 : f31[]\n", "line 1: dtype expected");
    refuse_text("%1 = input 0 : f32[4, ]\n", "line 1: integer expected");
    refuse_text("%1 = input 0 : f32[4]{1, 2}\nreturn\n", "line 1: as many strides as sizes expected");
    refuse_text("%1 = input 0 : f32[4] x\nreturn\n", "line 1: end of line expected");
    refuse_text("%1 = input 0 : f32[4]\nreturn %2\n", "line 2: no such value");
    refuse_text("%1 = input 0 : f32[4]\nreturn %1 : {}\n", "line 2: as many strides as sizes expected");
    refuse_text("%1 = input 0 : f32[4]\nreturn %2 into 0\n", "line 2: no such value");
    refuse_text("%1 = input 0 : f32[4]\nreturn %1\n%2 = neg %1 : f32[4]\n", "line 3: nothing may follow the return");
    refuse_text("%1 = scatter %1, %1 mode=first map=[0] : f32[4]\n", "line 1: unknown mode");
    refuse_text("%1 = extern \"a\n", "line 1: '\"' expected");
    refuse_text("%1 = input 0 : f32[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]\n", "line 1: too many dimensions");
}

/* -- refusals ---------------------------------------------------------------------------------------------------- */

/* The lines stand behind %1: f32[4, 8], %2: f32[4], %3: i64[4], %4: b8[4], %5: f32[], %6: an extern, %7: c64[2]. */
static void
refuse(const char *lines, const char *message)
{
    kin_text text = {0}, why = {0};
    kin_text_addf(&text, "%%1 = input 0 : f32[4, 8]\n%%2 = input 1 : f32[4]\n%%3 = input 2 : i64[4]\n%%4 = input 3 : b8[4]\n"
                         "%%5 = input 4 : f32[]\n%%6 = extern \"f\" number=0 flags=0\n%%7 = input 5 : c64[2]\n%s\nreturn\n", lines);
    kin_ir *p = kin_ir_parse(text.at, &why);
    if (!CHECK(p != NULL))
        fprintf(stderr, "    %s: %s\n", lines, why.at);
    else {
        CHECK(!kin_ir_verify(p, &why));
        CHECK_STR(why.at, message);
        kin_ir_free(p);
    }
    kin_text_deinit(&text);
    kin_text_deinit(&why);
}

static void
test_refusals_values(void)
{
    refuse("%8 = neg %9 : f32[4]\n%9 = neg %2 : f32[4]", "%8 neg: arguments come earlier");
    refuse("%8 = neg %8 : f32[4]", "%8 neg: arguments come earlier");
    refuse("%8 = neg %0 : f32[4]", "%8 neg: arguments come earlier");
    refuse("%8 = neg %6 : f32[4]", "%8 neg: an extern is no value");
    refuse("%8 = add %2 : f32[4]", "%8 add: wrong number of arguments");
    refuse("%8 = neg %2, %2 : f32[4]", "%8 neg: wrong number of arguments");
    refuse("%8 = input -1 : f32[4]", "%8 input: no such input");
    refuse("%8 = iota dim=0 : f32[4]", "%8 iota: not for this dtype");
    refuse("%8 = iota dim=1 : i64[4]", "%8 iota: no such dim");
    refuse("%8 = const 2 : b8[]", "%8 const: a BOOL is 0 or 1");
    refuse("%8 = const 2 : c64[]", "%8 const: not for this dtype");
    refuse("%8 = const 2 : i64[-1]", "%8 const: negative size");
    refuse("%8 = const 2 : i64[4611686018427387904, 4]", "%8 const: too many elements");
    refuse("%8 = result %2 which=0 : f32[4]", "%8 result: not of an extern");
    refuse("%8 = result %6 which=-1 : f32[4]", "%8 result: no such result");
}

static void
test_refusals_arithmetic(void)
{
    refuse("%8 = neg %2 : f32[5]", "%8 neg: arguments must have the node's sizes");
    refuse("%8 = neg %2 : f64[4]", "%8 neg: arguments must have the node's dtype");
    refuse("%8 = add %2, %3 : f32[4]", "%8 add: arguments must have the node's dtype");
    refuse("%8 = exp %3 : i64[4]", "%8 exp: not for this dtype");
    refuse("%8 = neg %4 : b8[4]", "%8 neg: not for this dtype");
    refuse("%8 = sub %4, %4 : b8[4]", "%8 sub: not for this dtype");
    refuse("%8 = and %2, %2 : f32[4]", "%8 and: not for this dtype");
    refuse("%8 = shl %4, %4 : b8[4]", "%8 shl: not for this dtype");
    refuse("%8 = not %2 : f32[4]", "%8 not: not for this dtype");
    refuse("%8 = neg %7 : c64[2]", "%8 neg: not for this dtype");
    refuse("%8 = cast %7 : f32[2]", "%8 cast: not for this dtype");
    refuse("%8 = cast %2 : c64[4]", "%8 cast: not for this dtype");
    refuse("%8 = lt %2, %3 : b8[4]", "%8 lt: arguments must have one dtype");
    refuse("%8 = lt %2, %2 : f32[4]", "%8 lt: the result must be b8");
    refuse("%8 = where %2, %2, %2 : f32[4]", "%8 where: the condition must be b8");
    refuse("%8 = where %4, %2, %3 : f32[4]", "%8 where: arguments must have the node's dtype");
    refuse("%8 = where %4, %1, %1 : f32[4, 8]", "%8 where: arguments must have the node's sizes");
}

static void
test_refusals_views(void)
{
    refuse("%8 = expand %2 : f64[4]", "%8 expand: a view keeps the dtype");
    refuse("%8 = expand %2 : f32[4, 8]", "%8 expand: only size 1 repeats");
    refuse("%8 = expand %1 : f32[8]", "%8 expand: cannot drop dims");
    refuse("%8 = permute %1 dims=[1] : f32[8, 4]", "%8 permute: one dim for each dim");
    refuse("%8 = permute %1 dims=[1, 1] : f32[8, 8]", "%8 permute: dims must be a permutation");
    refuse("%8 = permute %1 dims=[1, 0] : f32[4, 8]", "%8 permute: sizes do not follow from the argument");
    refuse("%8 = reshape %1 : f32[4, 4]", "%8 reshape: another number of elements");
    refuse("%8 = reshape %7 : c64[2, 1]", "%8 reshape: not for this dtype");
    refuse("%8 = slice %2 starts=[0] steps=[0] : f32[4]", "%8 slice: step 0");
    refuse("%8 = slice %2 starts=[0] steps=[2] : f32[3]", "%8 slice: outside of the argument");
    refuse("%8 = slice %2 starts=[0] steps=[-1] : f32[2]", "%8 slice: outside of the argument");
    refuse("%8 = slice %2 starts=[0, 0] steps=[1, 1] : f32[2]", "%8 slice: a start and a step for each dim");
    refuse("%8 = slice %2 starts=[1] steps=[9223372036854775807] : f32[3]", "%8 slice: too far");
    refuse("%8 = pad %2, %2 low=[1] : f32[6]", "%8 pad: the value must be a scalar of the dtype");
    refuse("%8 = pad %2, %5 low=[] : f32[6]", "%8 pad: a low for each dim");
    refuse("%8 = cat dim=0 : f32[6]", "%8 cat: no parts");
    refuse("%8 = cat %2, %2 dim=1 : f32[8]", "%8 cat: no such dim");
    refuse("%8 = cat %2, %3 dim=0 : f32[8]", "%8 cat: parts must be alike");
    refuse("%8 = cat %2, %2 dim=0 : f32[9]", "%8 cat: sizes do not follow from the arguments");
}

static void
test_refusals_rest(void)
{
    refuse("%8 = index %1, %3 map=[-1] : f32[4]", "%8 index: a map for each dim of the indexed value");
    refuse("%8 = index %1, %3 map=[-1, -2] : f32[4]", "%8 index: no such index");
    refuse("%8 = index %1, %3 map=[-1, 1] : f32[4]", "%8 index: coordinates outside of the indexed value");
    refuse("%8 = index %2, %2 map=[-1] : f32[4]", "%8 index: an index must be i64");
    refuse("%8 = index %2, %3 map=[-1] : f32[5]", "%8 index: an index must have the sizes of the positions");
    refuse("%8 = scatter %2, %2, %3 mode=set map=[-1] : f32[5]", "%8 scatter: sizes are those of the first argument");
    refuse("%8 = scatter %2, %3, %3 mode=set map=[-1] : f32[4]", "%8 scatter: arguments must have the node's dtype");
    refuse("%8 = scatter %2, %2, %3 mode=set map=[] : f32[4]", "%8 scatter: a mode and a map for each dim");
    refuse("%8 = reduce_sum %4 dims=[0] : b8[1]", "%8 reduce_sum: not for this dtype");
    refuse("%8 = reduce_any %2 dims=[0] : f32[1]", "%8 reduce_any: not for this dtype");
    refuse("%8 = reduce_sum %2 dims=[0] : f64[1]", "%8 reduce_sum: not the dtype of the result");
    refuse("%8 = reduce_sum %2 dims=[0] : f32[]", "%8 reduce_sum: dims stay");
    refuse("%8 = reduce_sum %2 dims=[0] : f32[4]", "%8 reduce_sum: sizes do not follow from the argument");
    refuse("%8 = reduce_sum %2 dims=[0, 0] : f32[1]", "%8 reduce_sum: dims must differ and exist");
    refuse("%8 = reduce_sum %2 dims=[1] : f32[4]", "%8 reduce_sum: dims must differ and exist");
    refuse("%8 = argmax %2 dims=[0] : f32[1]", "%8 argmax: not the dtype of the result");
    refuse("%8 = const 1.0 : f32[2, 0]\n%9 = reduce_max %8 dims=[1] : f32[2, 1]", "%9 reduce_max: nothing to choose from");
    refuse("%8 = const 1.0 : f32[2, 2, 2]\n%9 = argmax %8 dims=[0, 1] : i64[1, 1, 2]", "%9 argmax: one dim or all of them");
    refuse("%8 = cumsum %4 dim=0 : b8[4]", "%8 cumsum: not for this dtype");
    refuse("%8 = cumsum %2 dim=1 : f32[4]", "%8 cumsum: no such dim");
    refuse("%8 = cumsum %2 dim=0 : f32[5]", "%8 cumsum: the argument must have the node's dtype and sizes");
}

int
main(void)
{
    check_round_trip(everything);
    check_round_trip("return\n");
    test_builder();
    test_sticky();
    test_parse_errors();
    test_refusals_values();
    test_refusals_arithmetic();
    test_refusals_views();
    test_refusals_rest();
    return check_report("ir");
}
