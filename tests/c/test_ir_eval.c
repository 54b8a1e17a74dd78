/* What the oracle computes: each operation on chosen values, half precision against its definition. */
#include "core/ir/half.h"
#include "core/ir/ir.h"
#include "core/ir/scalar.h"
#include "check.h"

#include <math.h>
#include <stdlib.h>

static int
same(double a, double b)
{
    return (isnan(a) && isnan(b)) || (a == b && signbit(a) == signbit(b)) || fabs(a - b) <= 1e-12 * fabs(b);
}

/* Evaluates a program without inputs; its only output as doubles. Returns how many, or -1 for KIN_BREAK. */
static int64_t
run(const char *text, double *out)
{
    kin_text why = {0};
    kin_ir *p = kin_ir_parse(text, &why);
    void *results[1] = {NULL};
    int64_t count = -2;
    if (p == NULL || !kin_ir_verify(p, &why))
        fprintf(stderr, "%s    %s\n", text, why.at);
    else if (p->outputs.len == 1) {
        kin_irn o = p->outputs.at[0].node;
        kin_dtype dtype = (kin_dtype)kin_ir_at(p, o)->dtype;
        kin_status status = kin_ir_eval(p, NULL, results);
        count = status == KIN_OK ? kin_ir_numel(p, o) : status == KIN_BREAK ? -1 : -2;
        for (int64_t i = 0; i < count; i++) {
            kin_scalar x = kin_scalar_load(dtype, results[0], i);
            out[i] = kin_dtype_is_float(dtype) ? x.f : (double)x.i;
        }
    }
    free(results[0]);
    kin_ir_free(p);
    kin_text_deinit(&why);
    return count;
}

static void
expect_at(int line, const char *text, int64_t count, const double *wanted)
{
    double got[64] = {0};
    int64_t n = run(text, got);
    int good = n == count;
    for (int64_t i = 0; i < count && good; i++)
        good = same(got[i], wanted[i]);
    if (!check_note(good, __FILE__, line, text))
        for (int64_t i = 0; i < n; i++)
            fprintf(stderr, "    [%lld] %.17g\n", (long long)i, got[i]);
}

#define EXPECT(text, ...) \
    expect_at(__LINE__, text, sizeof((double[]){__VA_ARGS__}) / sizeof(double), (double[]){__VA_ARGS__})

static void
one_at(int line, const char *op, const char *dtype, const char *value, double wanted)
{
    char text[200];
    snprintf(text, sizeof text, "%%1 = const %s : %s[]\n%%2 = %s %%1 : %s[]\nreturn %%2\n", value, dtype, op, dtype);
    expect_at(line, text, 1, &wanted);
}

static void
two_at(int line, const char *op, const char *dtype, const char *a, const char *b, double wanted)
{
    char text[300];
    snprintf(text, sizeof text, "%%1 = const %s : %s[]\n%%2 = const %s : %s[]\n%%3 = %s %%1, %%2 : %s[]\nreturn %%3\n", a, dtype, b,
             dtype, op, strchr("eqnltg", op[0]) && strlen(op) == 2 ? "b8" : dtype);
    if (isnan(wanted) && strcmp(dtype, "f64") != 0 && dtype[0] != 'f') {
        double got[1];
        check_note(run(text, got) == -1, __FILE__, line, text);
    } else
        expect_at(line, text, 1, &wanted);
}

#define ONE(op, dtype, value, wanted) one_at(__LINE__, op, dtype, value, wanted)
#define TWO(op, dtype, a, b, wanted) two_at(__LINE__, op, dtype, a, b, wanted)
#define BREAKS NAN /* of integer operations */

static void
test_unary(void)
{
    ONE("neg", "f64", "1.5", -1.5);        ONE("neg", "u8", "1", 255);             ONE("abs", "i8", "-128", -128);
    ONE("abs", "f64", "-0.0", 0.0);        ONE("sign", "f64", "nan", 0);           ONE("sign", "i32", "-7", -1);
    ONE("exp", "f64", "1.0", M_E);         ONE("exp2", "f64", "3.0", 8);           ONE("expm1", "f64", "1e-10", 1.00000000005e-10);
    ONE("log", "f64", "-1.0", NAN);        ONE("log2", "f64", "8.0", 3);           ONE("log10", "f64", "1000.0", 3);
    ONE("log1p", "f64", "-1.0", -INFINITY);ONE("sqrt", "f64", "2.25", 1.5);        ONE("rsqrt", "f64", "4.0", 0.5);
    ONE("reciprocal", "f64", "0.0", INFINITY); ONE("sin", "f64", "0.5", 0.479425538604203); ONE("cos", "f64", "0.5", 0.877582561890373);
    ONE("tan", "f64", "0.5", 0.5463024898437905); ONE("asin", "f64", "1.0", M_PI_2); ONE("acos", "f64", "-1.0", M_PI);
    ONE("atan", "f64", "1.0", M_PI_4);     ONE("sinh", "f64", "1.0", 1.1752011936438014); ONE("cosh", "f64", "1.0", 1.5430806348152437);
    ONE("tanh", "f64", "1.0", 0.7615941559557649); ONE("asinh", "f64", "1.0", 0.881373587019543); ONE("acosh", "f64", "2.0", 1.3169578969248166);
    ONE("atanh", "f64", "0.5", 0.5493061443340548); ONE("erf", "f64", "0.5", 0.5204998778130465); ONE("erfc", "f64", "0.5", 0.4795001221869535);
    ONE("sigmoid", "f64", "0.0", 0.5);     ONE("floor", "f64", "-1.5", -2);        ONE("ceil", "f64", "1.2", 2);
    ONE("trunc", "f64", "-1.7", -1);       ONE("round", "f64", "2.5", 2);          ONE("round", "f64", "3.5", 4);
    ONE("not", "b8", "1", 0);              ONE("not", "i8", "5", -6);              ONE("not", "u8", "5", 250);
}

static void
test_binary(void)
{
    TWO("add", "b8", "1", "1", 1);         TWO("add", "i8", "100", "100", -56);    TWO("mul", "b8", "1", "0", 0);
    TWO("sub", "u8", "1", "2", 255);       TWO("mul", "i64", "4611686018427387904", "4", 0); TWO("div", "f64", "1.0", "0.0", INFINITY);
    TWO("div", "i32", "-7", "2", -3);      TWO("div", "i32", "7", "0", BREAKS);    TWO("div", "i8", "-128", "-1", -128);
    TWO("floor_div", "i32", "-7", "2", -4);TWO("floor_div", "i64", "7", "0", BREAKS); TWO("floor_div", "f64", "-7.0", "2.0", -4);
    TWO("floor_div", "f32", "1.0", "0.1", 9); TWO("floor_div", "f64", "1.0", "0.0", INFINITY); TWO("floor_div", "f64", "-0.5", "inf", -1);
    TWO("rem", "i32", "-7", "3", 2);       TWO("rem", "i32", "7", "-3", -2);       TWO("rem", "i32", "7", "0", BREAKS);
    TWO("rem", "f64", "-7.0", "3.0", 2);   TWO("rem", "i64", "5", "-1", 0);        TWO("fmod", "i32", "-7", "3", -1);
    TWO("fmod", "f64", "-7.0", "3.0", -1); TWO("fmod", "u8", "7", "0", BREAKS);    TWO("pow", "i64", "3", "4", 81);
    TWO("pow", "i64", "2", "-1", 0);       TWO("pow", "i64", "-1", "-3", -1);      TWO("pow", "f64", "2.0", "-1.0", 0.5);
    TWO("pow", "i8", "3", "5", -13);       TWO("atan2", "f64", "1.0", "-1.0", 3 * M_PI_4); TWO("max", "f64", "nan", "1.0", NAN);
    TWO("max", "f64", "1.0", "nan", NAN);  TWO("max", "u8", "200", "100", 200);    TWO("min", "f64", "1.0", "nan", NAN);
    TWO("min", "f64", "1.0", "-2.0", -2);  TWO("fmax", "f64", "nan", "1.0", 1);    TWO("fmin", "f64", "1.0", "nan", 1);
    TWO("hypot", "f64", "3.0", "4.0", 5);  TWO("copysign", "f64", "3.0", "-0.0", -3); TWO("and", "i8", "12", "10", 8);
    TWO("or", "i8", "12", "10", 14);       TWO("xor", "i8", "12", "10", 6);        TWO("shl", "i8", "1", "7", -128);
    TWO("shl", "i8", "1", "8", 0);         TWO("shl", "i64", "1", "-1", 0);        TWO("shr", "i8", "-128", "3", -16);
    TWO("shr", "i8", "-5", "8", -1);       TWO("shr", "u8", "200", "9", 0);        TWO("shr", "i32", "5", "-1", 0);
    TWO("eq", "f64", "nan", "nan", 0);     TWO("ne", "f64", "nan", "nan", 1);      TWO("lt", "i8", "-1", "0", 1);
    TWO("le", "f64", "1.0", "1.0", 1);     TWO("gt", "f64", "nan", "0.0", 0);      TWO("ge", "b8", "1", "0", 1);
}

static void
test_casts(void)
{
    EXPECT("%1 = const -1.9 : f32[]\n%2 = cast %1 : i32[]\nreturn %2\n", -1);
    EXPECT("%1 = const 300 : i64[]\n%2 = cast %1 : u8[]\nreturn %2\n", 44);
    EXPECT("%1 = const nan : f32[]\n%2 = cast %1 : b8[]\nreturn %2\n", 1);
    EXPECT("%1 = const 1 : b8[]\n%2 = cast %1 : f16[]\nreturn %2\n", 1);
    EXPECT("%1 = const 2049 : i64[]\n%2 = cast %1 : f16[]\nreturn %2\n", 2048);
    EXPECT("%1 = const 65520.0 : f64[]\n%2 = cast %1 : f16[]\nreturn %2\n", INFINITY);
    EXPECT("%1 = const 9007199791611905 : i64[]\n%2 = cast %1 : f32[]\nreturn %2\n", 9007200328482816.0);
    EXPECT("%1 = const 0.1 : f32[]\n%2 = cast %1 : f64[]\nreturn %2\n", 0.1f);
    EXPECT("%1 = const 1 : b8[2]\n%2 = const 1.0 : f32[2]\n%3 = const 2.0 : f32[2]\n%4 = where %1, %2, %3 : f32[2]\nreturn %4\n", 1, 1);
}

/* Every f16 and bf16 survives; values between two round to the nearer, ties to even. */
static void
test_half(void)
{
    unsigned wrong = 0;
    for (uint32_t h = 0; h < 0x10000; h++) {
        float f = kin_f16_to_float((uint16_t)h), b = kin_bf16_to_float((uint16_t)h);
        wrong += isnan(f) ? !isnan(kin_f16_to_float(kin_f16_from_float(f))) : kin_f16_from_float(f) != h;
        wrong += isnan(b) ? !isnan(kin_bf16_to_float(kin_bf16_from_float(b))) : kin_bf16_from_float(b) != h;
        if ((h & 0x7fff) < 0x7bff) {
            float next = kin_f16_to_float((uint16_t)(h + 1)), middle = (f + next) / 2;
            wrong += kin_f16_from_float(middle) != (h & 1 ? h + 1 : h);
            wrong += kin_f16_from_float(nextafterf(middle, f)) != h;
            wrong += kin_f16_from_float(nextafterf(middle, next)) != h + 1;
        }
    }
    CHECK_EQ(wrong, 0);
    CHECK_EQ(kin_f16_from_float(65519.0f), 0x7bff);
    CHECK_EQ(kin_f16_from_float(-65520.0f), 0xfc00);
    CHECK_EQ(kin_bf16_from_float(1.00390625f), 0x3f80);
    CHECK_EQ(kin_bf16_from_float(1.01171875f), 0x3f82);
    CHECK_EQ(kin_bf16_from_float(3.4e38f), 0x7f80);
}

static void
test_views(void)
{
    EXPECT("%1 = iota dim=1 : i64[2, 3]\n%2 = iota dim=0 : i64[2, 3]\n%3 = const 10 : i64[2, 3]\n%4 = mul %2, %3 : i64[2, 3]\n"
           "%5 = add %1, %4 : i64[2, 3]\n%6 = permute %5 dims=[1, 0] : i64[3, 2]\n%7 = reshape %6 : i64[6]\nreturn %7\n",
           0, 10, 1, 11, 2, 12);
    EXPECT("%1 = iota dim=0 : i32[3]\n%2 = reshape %1 : i32[3, 1]\n%3 = expand %2 : i32[2, 3, 2]\nreturn %3\n",
           0, 0, 1, 1, 2, 2, 0, 0, 1, 1, 2, 2);
    EXPECT("%1 = iota dim=0 : i64[6]\n%2 = slice %1 starts=[5] steps=[-2] : i64[3]\nreturn %2\n", 5, 3, 1);
    EXPECT("%1 = iota dim=0 : i64[3]\n%2 = const 9 : i64[]\n%3 = pad %1, %2 low=[2] : i64[6]\nreturn %3\n", 9, 9, 0, 1, 2, 9);
    EXPECT("%1 = iota dim=0 : i64[3]\n%2 = const 9 : i64[]\n%3 = pad %1, %2 low=[-1] : i64[3]\nreturn %3\n", 1, 2, 9);
    EXPECT("%1 = iota dim=0 : i64[2]\n%2 = const 7 : i64[0]\n%3 = cat %1, %2, %1 dim=0 : i64[4]\nreturn %3\n", 0, 1, 0, 1);
    EXPECT("%1 = iota dim=1 : i64[2, 4]\n%2 = iota dim=0 : i64[2]\n%3 = index %1, %2 map=[0, -1] : i64[2]\nreturn %3\n", 0, 1);
    EXPECT("%1 = iota dim=0 : i64[3]\n%2 = const 3 : i64[1]\n%3 = slice %1 starts=[0] steps=[1] : i64[1]\n"
           "%4 = index %1, %3 map=[-1] : i64[1]\nreturn %4\n", 0);
    double out[8];
    CHECK_EQ(run("%1 = iota dim=0 : i64[3]\n%2 = const 3 : i64[1]\n%3 = index %1, %2 map=[-1] : i64[1]\nreturn %3\n", out), -1);
    CHECK_EQ(run("%1 = iota dim=0 : i64[3]\n%2 = const -1 : i64[1]\n%3 = index %1, %2 map=[-1] : i64[1]\nreturn %3\n", out), -1);
    CHECK_EQ(run("%1 = const 1.0 : f32[0, 3]\n%2 = permute %1 dims=[1, 0] : f32[3, 0]\nreturn %2\n", out), 0);
}

static void
test_scatter(void)
{
    static const char *const modes[] = {"set", "add", "mul", "max", "min"};
    static const double wanted[][3] = {{10, 4, 10}, {10, 17, 10}, {10, 120, 10}, {10, 10, 10}, {10, 3, 10}};
    for (unsigned m = 0; m < 5; m++) {
        char text[400];
        snprintf(text, sizeof text, "%%1 = const 10 : i64[3]\n%%2 = const 3 : i64[1]\n%%3 = const 4 : i64[1]\n"
                 "%%4 = cat %%2, %%3 dim=0 : i64[2]\n%%5 = const 1 : i64[2]\n"
                 "%%6 = scatter %%1, %%4, %%5 mode=%s map=[-1] : i64[3]\nreturn %%6\n", modes[m]);
        expect_at(__LINE__, text, 3, wanted[m]);
    }
    EXPECT("%1 = const 0 : i64[2, 2]\n%2 = iota dim=1 : i64[1, 2]\n%3 = const 1 : i64[1, 2]\n"
           "%4 = scatter %1, %2, %3 mode=set map=[-1, 1] : i64[2, 2]\nreturn %4\n", 0, 0, 0, 1);
    double out[3];
    CHECK_EQ(run("%1 = const 0 : i64[2]\n%2 = const 5 : i64[1]\n%3 = scatter %1, %2, %2 mode=set map=[-1] : i64[2]\nreturn %3\n", out), -1);
}

#define ABC "%1 = const 3.0 : f32[1, 1]\n%2 = const -1.0 : f32[1, 1]\n%3 = const nan : f32[1, 1]\n%4 = const 7.0 : f32[1, 1]\n" \
            "%5 = cat %1, %2 dim=1 : f32[1, 2]\n%6 = cat %4, %1 dim=1 : f32[1, 2]\n%7 = cat %5, %6 dim=0 : f32[2, 2]\n" \
            "%8 = cat %3, %2 dim=1 : f32[1, 2]\n%9 = cat %7, %8 dim=0 : f32[3, 2]\n" /* 3 -1 | 7 3 | nan -1 */

static void
test_reductions(void)
{
    EXPECT(ABC "%10 = reduce_sum %7 dims=[0] : f32[1, 2]\nreturn %10\n", 10, 2);
    EXPECT(ABC "%10 = reduce_sum %7 dims=[] : f32[2, 2]\nreturn %10\n", 3, -1, 7, 3);
    EXPECT(ABC "%10 = reduce_prod %7 dims=[0, 1] : f32[1, 1]\nreturn %10\n", -63);
    EXPECT(ABC "%10 = reduce_max %9 dims=[1] : f32[3, 1]\nreturn %10\n", 3, 7, NAN);
    EXPECT(ABC "%10 = reduce_min %9 dims=[0] : f32[1, 2]\nreturn %10\n", NAN, -1);
    EXPECT(ABC "%10 = argmax %9 dims=[1] : i64[3, 1]\nreturn %10\n", 0, 0, 0);
    EXPECT(ABC "%10 = argmax %9 dims=[0, 1] : i64[1, 1]\nreturn %10\n", 4);
    EXPECT(ABC "%10 = argmin %7 dims=[0] : i64[1, 2]\nreturn %10\n", 0, 0);
    EXPECT(ABC "%10 = argmin %9 dims=[0] : i64[1, 2]\nreturn %10\n", 2, 0);
    EXPECT(ABC "%10 = lt %2, %1 : b8[1, 1]\n%11 = not %10 : b8[1, 1]\n%12 = cat %10, %11 dim=0 : b8[2, 1]\n"
               "%13 = reduce_any %12 dims=[0] : b8[1, 1]\n%14 = reduce_all %12 dims=[0] : b8[1, 1]\n"
               "%15 = cat %13, %14 dim=0 : b8[2, 1]\nreturn %15\n", 1, 0);
    EXPECT("%1 = const 1.0 : f32[2, 0]\n%2 = reduce_sum %1 dims=[1] : f32[2, 1]\nreturn %2\n", 0, 0);
    EXPECT("%1 = const 1.0 : f32[2, 0]\n%2 = reduce_prod %1 dims=[1] : f32[2, 1]\nreturn %2\n", 1, 1);
    EXPECT("%1 = const 1 : b8[0]\n%2 = reduce_all %1 dims=[0] : b8[1]\nreturn %2\n", 1);
    EXPECT("%1 = const 1 : b8[0]\n%2 = reduce_any %1 dims=[0] : b8[1]\nreturn %2\n", 0);
    EXPECT("%1 = const 127 : i8[2]\n%2 = reduce_sum %1 dims=[0] : i8[1]\nreturn %2\n", -2);
    EXPECT("%1 = const 0.0009765625 : f16[4]\n%2 = const 1.0 : f16[1]\n%3 = cat %2, %1 dim=0 : f16[5]\n"
           "%4 = reduce_sum %3 dims=[0] : f16[1]\nreturn %4\n", 1.00390625);
}

static void
test_scans(void)
{
    EXPECT(ABC "%10 = cumsum %7 dim=0 : f32[2, 2]\nreturn %10\n", 3, -1, 10, 2);
    EXPECT(ABC "%10 = cumprod %7 dim=1 : f32[2, 2]\nreturn %10\n", 3, -3, 7, 21);
    EXPECT(ABC "%10 = cummax %9 dim=0 : f32[3, 2]\nreturn %10\n", 3, -1, 7, 3, NAN, 3);
    EXPECT(ABC "%10 = cummin %9 dim=1 : f32[3, 2]\nreturn %10\n", 3, -1, 7, 3, NAN, NAN);
}

static void
test_inputs_and_extern(void)
{
    kin_text why = {0};
    kin_ir *p = kin_ir_parse("%1 = input 0 : f32[2]\n%2 = input 1 : u8[2]\n%3 = cast %2 : f32[2]\n%4 = mul %1, %3 : f32[2]\n"
                             "return %4, %2\n", &why);
    void *out[2];
    CHECK(p != NULL && kin_ir_verify(p, &why));
    CHECK_EQ(kin_ir_eval(p, (const void *[]){(float[]){1.5f, 2}, (uint8_t[]){2, 255}}, out), KIN_OK);
    CHECK(((float *)out[0])[0] == 3 && ((float *)out[0])[1] == 510 && ((uint8_t *)out[1])[1] == 255);
    free(out[0]);
    free(out[1]);
    kin_ir_free(p);
    double none[1];
    CHECK_EQ(run("%1 = extern \"f\" number=0 flags=0\n%2 = result %1 which=0 : f32[]\nreturn %2\n", none), -1);
    kin_text_deinit(&why);
}

int
main(void)
{
    test_unary();
    test_binary();
    test_casts();
    test_half();
    test_views();
    test_scatter();
    test_reductions();
    test_scans();
    test_inputs_and_extern();
    return check_report("ir eval");
}
