/* Programs compiled and run against the oracle, kin_ir_eval. */
#include <math.h>

#include "core/pipeline/pipeline.h"
#include "check.h"
#include "run_program.h"

static kin_jit *jit;

static void
check_program(const char *text)
{
    kin_text why = {0};
    kin_ir *p = kin_ir_parse(text, &why);
    if (!CHECK(p != NULL) || !CHECK(kin_ir_verify(p, &why))) {
        fprintf(stderr, "%s\n%s\n", text, why.at);
        kin_text_deinit(&why);
        kin_ir_free(p);
        return;
    }
    if (!CHECK(run_against_oracle(jit, p, 1, &why)))
        fprintf(stderr, "%s\n%s\n", text, why.at);
    kin_text_deinit(&why);
    kin_ir_free(p);
}

#include "codegen_cases.inc"

/* Every pointwise operator on every dtype that it takes, with a tail. */
static void
check_operators(void)
{
    static const kin_dtype dtypes[] = {KIN_BOOL, KIN_U8, KIN_I8, KIN_I16, KIN_I32, KIN_I64, KIN_F16, KIN_BF16, KIN_F32, KIN_F64};
    for (unsigned op = KIN_IR_CAST + 1; op < KIN_IR_WHERE; op++)
        for (unsigned d = 0; d < sizeof dtypes / sizeof *dtypes; d++) {
            kin_text why = {0};
            kin_ir *p = kin_ir_new();
            kin_irn a = kin_ir_input(p, 0, dtypes[d], 1, (int64_t[]){41}), b = kin_ir_input(p, 1, dtypes[d], 1, (int64_t[]){41});
            kin_irn r = op < KIN_IR_ADD ? kin_ir_unary(p, op, a) : kin_ir_binary(p, op, a, b);
            kin_ir_output(p, r, NULL);
            if (!p->failed && kin_ir_verify(p, &why) && !CHECK(run_against_oracle(jit, p, op, &why)))
                fprintf(stderr, "%s %s: %s\n", kin_ir_op_name(op), kin_dtype_name(dtypes[d]), why.at);
            kin_text_deinit(&why);
            kin_ir_free(p);
        }
}

static void
check_casts(void)
{
    for (unsigned from = KIN_BOOL; from <= KIN_F64; from++)
        for (unsigned to = KIN_BOOL; to <= KIN_F64; to++) {
            kin_text why = {0};
            kin_ir *p = kin_ir_new();
            kin_irn a = kin_ir_input(p, 0, from, 1, (int64_t[]){41});
            if (kin_dtype_is_float(from) && !kin_dtype_is_float(to) && to != KIN_BOOL) /* in range, and not NaN */
                a = kin_ir_where(p, kin_ir_binary(p, KIN_IR_LT, kin_ir_unary(p, KIN_IR_ABS, a),
                                                  kin_ir_const(p, from, (kin_scalar){.f = 4}, 1, (int64_t[]){41})),
                                 kin_ir_unary(p, KIN_IR_ABS, a), kin_ir_const(p, from, (kin_scalar){.f = 1.5}, 1, (int64_t[]){41}));
            kin_ir_output(p, kin_ir_cast(p, a, to), NULL);
            if (!CHECK(run_against_oracle(jit, p, to, &why)))
                fprintf(stderr, "%s to %s: %s\n", kin_dtype_name(from), kin_dtype_name(to), why.at);
            kin_text_deinit(&why);
            kin_ir_free(p);
        }
}

/* Functions that are written out keep within 3 subgraphs in the last place of the double function, over all floats. */
static double
exact(unsigned op, double x)
{
    switch (op) {
    case KIN_IR_EXP: return exp(x);
    case KIN_IR_LOG: return log(x);
    case KIN_IR_TANH: return tanh(x);
    case KIN_IR_ERF: return erf(x);
    case KIN_IR_EXPM1: return expm1(x);
    case KIN_IR_LOG1P: return log1p(x);
    case KIN_IR_SIN: return sin(x);
    case KIN_IR_COS: return cos(x);
    default: return 1 / (1 + exp(-x));
    }
}

static void
check_accuracy(void)
{
    static const kin_ir_op ops[] = {KIN_IR_EXP, KIN_IR_LOG, KIN_IR_TANH, KIN_IR_ERF, KIN_IR_SIN, KIN_IR_COS, KIN_IR_SIGMOID,
                                   KIN_IR_EXPM1, KIN_IR_LOG1P};
    enum { N = 1 << 16 };
    float *x = malloc(N * sizeof *x), *y = malloc(N * sizeof *y);
    for (uint32_t i = 0; i < N; i++) {
        uint32_t bits = i * 65536 + i;
        memcpy(&x[i], &bits, 4);
    }
    for (unsigned o = 0; o < sizeof ops / sizeof *ops; o++) {
        kin_program *p = NULL;
        kin_ir *ir = kin_ir_new();
        kin_ir_output(ir, kin_ir_unary(ir, ops[o], kin_ir_input(ir, 0, KIN_F32, 1, (int64_t[]){N})), NULL);
        CHECK(kin_pipeline_compile(jit, NULL, ir, &p, NULL, NULL) == KIN_OK);
        CHECK(p && p->kernels.at[0].fn((void *[]){x, y}, 0, p->kernels.at[0].range) == 0);
        double worst = 0;
        float at = 0;
        for (uint32_t i = 0; i < N; i++) {
            float want = (float)exact(ops[o], x[i]);
            double subgraph = fmax(nextafterf(fabsf(want), INFINITY) - fabsf(want), 1.2e-38); /* denormal results may be 0 */
            double off = isnan(want) || isinf(want) ? (isnan(want) ? !isnan(y[i]) : want != y[i]) * 1e9
                                                    : fabs((double)y[i] - exact(ops[o], x[i])) / subgraph;
            if (!(off <= worst)) {
                worst = off;
                at = x[i];
            }
        }
        if (!CHECK(worst <= 3))
            fprintf(stderr, "%s(%g): %g ulp\n", kin_ir_op_name(ops[o]), (double)at, worst);
        kin_program_free(p);
        kin_ir_free(ir);
    }
    free(x);
    free(y);
}

static kin_program *
compile(const char *text)
{
    kin_text why = {0};
    kin_program *p = NULL;
    kin_ir *ir = kin_ir_parse(text, &why);
    CHECK(ir && kin_pipeline_compile(jit, NULL, ir, &p, NULL, &why) == KIN_OK);
    kin_ir_free(ir);
    kin_text_deinit(&why);
    return p;
}

static size_t
arena_of(const char *text)
{
    kin_program *p = compile(text);
    size_t bytes = p ? p->arena : 0;
    kin_program_free(p);
    return bytes;
}

/* A value lies where one lay that died in making it, if each element is made from the one in its place. */
static void
check_memory(void)
{
#define CHAIN(first, second) \
    "%1 = input 0 : f32[64, 64]\n%2 = extern \"a\" %1 number=0 flags=2\n%3 = result %2 which=0 : f32[64, 64]\n" first \
    "%5 = extern \"b\" %4 number=1 flags=2\n%6 = result %5 which=0 : f32[64, 64]\n" second \
    "%8 = extern \"c\" %7 number=2 flags=2\n%9 = result %8 which=0 : f32[64, 64]\nreturn %9\n"
    CHECK_EQ(arena_of(CHAIN("%4 = tanh %3 : f32[64, 64]\n", "%7 = exp %6 : f32[64, 64]\n")), 2 * 16384);
    CHECK_EQ(arena_of(CHAIN("%4 = slice %3 starts=[63, 0] steps=[-1, 1] : f32[64, 64]\n", "%7 = exp %6 : f32[64, 64]\n")), 2 * 16384);
    CHECK_EQ(arena_of(CHAIN("%4 = tanh %3 : f32[64, 64]\n", "%7 = add %6, %3 : f32[64, 64]\n")), 3 * 16384);
#undef CHAIN
}

/* What goes into an input is written last, and read before that. */
static void
check_commits(void)
{
    float x[4] = {1, 2, 3, 4}, y[4] = {10, 20, 30, 40}, sum[4];
    kin_program *p = compile("%1 = input 0 : f32[4]\n%2 = input 1 : f32[4]\n%3 = add %1, %2 : f32[4]\n%4 = slice %1 starts=[3] steps=[-1] : f32[4]\n"
                             "return %3, %2 into 0, %4 into 1\n");
    if (!p)
        return;
    CHECK_EQ(p->nwrite_backs, 2);
    char *arena = aligned_alloc(64, p->arena + 64);
    for (uint32_t i = 0; i < p->ops.len; i++) {
        const kin_kernel *k = &p->kernels.at[p->ops.at[i].index];
        void *data[8];
        for (uint32_t b = 0; b < k->nbuffers; b++) {
            const kin_buf *buf = &p->buffers.at[k->buffers[b]];
            data[b] = buf->kind == KIN_BUF_INPUT ? (void *)(buf->index ? y : x)
                      : buf->kind == KIN_BUF_OUTPUT ? (void *)sum : (void *)(arena + buf->offset);
        }
        CHECK(i < p->ops.len - p->nwrite_backs || sum[3] == 44);
        CHECK(k->fn(data, 0, k->range, k->numbers) == 0);
        CHECK(i >= p->ops.len - p->nwrite_backs || (x[0] == 1 && y[0] == 10));
    }
    CHECK(x[0] == 10 && x[3] == 40 && y[0] == 4 && y[3] == 1 && sum[0] == 11);
    free(arena);
    kin_program_free(p);
}

int
main(void)
{
    kin_text why = {0};
    jit = kin_jit_new(NULL, &why);
    if (jit == NULL) {
        printf("codegen: skipped, %s\n", why.at);
        kin_text_deinit(&why);
        return 77;
    }
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        check_program(cases[i]);
    check_operators();
    check_casts();
    check_accuracy();
    check_memory();
    check_commits();
    kin_jit_free(jit);
    return check_report("codegen");
}
