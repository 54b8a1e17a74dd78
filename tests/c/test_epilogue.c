/* What follows a product, run on blocks of its result: against the same program with the product as an input. */
#include "core/pipeline/pipeline.h"
#include "check.h"
#include "run_program.h"

static kin_jit *jit;

enum { M = 19, K = 8 };

/* In the texts below %1 and %2 are multiplied, %4 is the product; `@` stands for these lines. */
static kin_ir *
parse(const char *text, const char *product)
{
    kin_text whole = {0}, why = {0};
    for (const char *at = text; *at; at++) {
        if (*at == '@')
            kin_text_add(&whole, product);
        else
            kin_text_add_len(&whole, at, 1);
    }
    kin_ir *p = kin_ir_parse(whole.at, &why);
    if (!CHECK(p != NULL) || !CHECK(kin_ir_verify(p, &why))) {
        fprintf(stderr, "%s\n%s\n", whole.at, why.at);
        kin_ir_free(p);
        p = NULL;
    }
    kin_text_deinit(&whole);
    kin_text_deinit(&why);
    return p;
}

static void
multiply(const float *a, const float *b, int64_t n, float *c)
{
    for (int64_t i = 0; i < M; i++)
        for (int64_t j = 0; j < n; j++) {
            c[i * n + j] = 0;
            for (int64_t l = 0; l < K; l++)
                c[i * n + j] += a[i * K + l] * b[l * n + j];
        }
}

/* Blocks of `rows` and `columns`, the last ones first, as if threads shared them. */
static int
run_blocks(const kin_program *p, const run_data *d, const kin_extern_call *c, int64_t rows, int64_t columns)
{
    const kin_kernel *k = &p->kernels.at[c->epilogue - 1];
    int64_t window[2];
    void *at[64];
    for (uint32_t b = 0; b < k->nbuffers; b++)
        at[b] = d->memory[k->buffers[b]];
    at[k->nbuffers] = window;
    CHECK(k->window && k->range == M);
    for (int64_t i = (M - 1) / rows * rows; i >= 0; i -= rows)
        for (int64_t j = (c->columns - 1) / columns * columns; j >= 0; j -= columns) {
            window[0] = j;
            window[1] = j + columns < c->columns ? j + columns : c->columns;
            if (k->fn(at, i, i + rows < M ? i + rows : M, k->numbers))
                return 1;
        }
    return 0;
}

static void
run_program(const kin_program *p, run_data *d, const float *a, const float *b, int64_t n, int64_t rows, int64_t columns)
{
    for (uint32_t i = 0; i < p->ops.len; i++) {
        const kin_program_op *op = &p->ops.at[i];
        if (op->is_extern) {
            const kin_extern_call *c = &p->externs.at[op->index];
            multiply(a, b, n, d->memory[c->results[0]]);
            CHECK(c->epilogue == 0 || run_blocks(p, d, c, rows, columns) == 0);
            continue;
        }
        const kin_kernel *k = &p->kernels.at[op->index];
        void *at[64];
        for (uint32_t j = 0; j < k->nbuffers; j++)
            at[j] = d->memory[k->buffers[j]];
        CHECK(!k->window && k->fn(at, 0, k->range, k->numbers) == 0);
    }
}

typedef struct {
    const char *text;
    int64_t n;        /* columns of the product */
    int64_t columns;  /* that the epilogue has; 0: there is none */
    bool in_place;    /* the product is written where the epilogue writes */
    const char *why;  /* what the notes say where there is none */
} epilogue_case;

static void
check_case(const epilogue_case *x)
{
    char call[160], input[160];
    snprintf(call, sizeof call, "%%3 = extern \"library.matmul\" %%1, %%2 number=0 flags=6\n%%4 = result %%3 which=0 : f32[%d, %lld]\n", M, (long long)x->n);
    snprintf(input, sizeof input, "%%3 = input 8 : f32[1]\n%%4 = input 9 : f32[%d, %lld]\n", M, (long long)x->n);
    kin_text why = {0};
    kin_compile_stats stats;
    kin_program *p = NULL;
    kin_ir *with = parse(x->text, call), *oracle = parse(x->text, input);
    if (!with || !oracle || !CHECK(kin_pipeline_compile(jit, NULL, with, &p, &stats, &why) == KIN_OK)) {
        fprintf(stderr, "%s\n%s\n", x->text, why.at);
        return;
    }
    const kin_extern_call *c = &p->externs.at[0];
    CHECK_EQ(c->epilogue ? c->columns : 0, x->columns);
    CHECK(c->epilogue || x->why == NULL || (why.at && strstr(why.at, x->why)));
    bool in_place = false;
    for (uint32_t b = 0; c->epilogue && b < p->noutputs; b++)
        in_place |= p->outputs[b] == c->results[0];
    CHECK_EQ(in_place, x->in_place);
    static const int64_t blocks[][2] = {{M, 4096}, {7, 32}, {1, 64}, {4, 256}};
    for (unsigned i = 0; i < 4; i++) {
        run_data d = {0};
        run_inputs(oracle, &d, 3);
        multiply(d.dense[0], d.dense[1], x->n, d.dense[9]);
        run_memory(p, &d);
        CHECK(kin_ir_eval(oracle, (const void *const *)d.dense, d.wanted) == KIN_OK);
        run_program(p, &d, d.dense[0], d.dense[1], x->n, blocks[i][0], blocks[i][1]);
        kin_text wrong = {0};
        if (!CHECK(run_compare(p, oracle, &d, &wrong)))
            fprintf(stderr, "%s\n%s\n", x->text, wrong.at);
        kin_text_deinit(&wrong);
        run_release(p, &d);
    }
    kin_text_deinit(&why);
    kin_program_free(p);
    kin_ir_free(with);
    kin_ir_free(oracle);
}

#define HEAD(N) "%1 = input 0 : f32[19, 8]\n%2 = input 1 : f32[8, " #N "]\n@"
static const epilogue_case cases[] = {
    /* bias and residual, no whole number of panels */
    {HEAD(45) "%5 = input 2 : f32[45]\n%6 = expand %5 : f32[19, 45]\n%7 = add %4, %6 : f32[19, 45]\n%8 = input 3 : f32[19, 45]\n"
     "%9 = add %8, %7 : f32[19, 45]\nreturn %9\n", 45, 45, true, NULL},
    /* several uses on the way, a function, a shape of its own */
    {HEAD(96) "%5 = tanh %4 : f32[19, 96]\n%6 = mul %5, %4 : f32[19, 96]\n%7 = reshape %6 : f32[1, 19, 96]\n%8 = input 2 : f32[1, 19, 96]\n"
     "%9 = mul %7, %8 : f32[1, 19, 96]\nreturn %9\n", 96, 96, true, NULL},
    /* two parts side by side */
    {HEAD(128) "%5 = slice %4 starts=[0, 0] steps=[1, 1] : f32[19, 64]\n%6 = slice %4 starts=[0, 64] steps=[1, 1] : f32[19, 64]\n"
     "%7 = sigmoid %5 : f32[19, 64]\n%8 = mul %5, %7 : f32[19, 64]\n%9 = mul %8, %6 : f32[19, 64]\nreturn %9\n", 128, 64, false, NULL},
    /* a value per row, and a result of another dtype */
    {HEAD(33) "%5 = input 2 : f32[19, 1]\n%6 = expand %5 : f32[19, 33]\n%7 = mul %4, %6 : f32[19, 33]\n%8 = cast %7 : bf16[19, 33]\nreturn %8\n", 33, 33,
     false, NULL},
    {HEAD(64) "%5 = exp %4 : f32[19, 64]\n%6 = lt %4, %5 : b8[19, 64]\nreturn %6\n", 64, 64, false, NULL},
    /* the product itself is wanted as well */
    {HEAD(64) "%5 = exp %4 : f32[19, 64]\nreturn %5, %4\n", 64, 0, false, NULL},
    /* a row is reduced behind it: what is reduced is made with the product */
    {HEAD(64) "%5 = input 2 : f32[64]\n%6 = expand %5 : f32[19, 64]\n%7 = add %4, %6 : f32[19, 64]\n%8 = reduce_sum %7 dims=[1] : f32[19, 1]\n"
     "%9 = expand %8 : f32[19, 64]\n%10 = div %7, %9 : f32[19, 64]\nreturn %10\n", 64, 64, false, NULL},
    /* columns are divided otherwise, and in another order */
    {HEAD(64) "%5 = exp %4 : f32[19, 64]\n%6 = reshape %5 : f32[19, 4, 16]\n%7 = input 2 : f32[4, 19, 16]\n%8 = permute %7 dims=[1, 0, 2] : f32[19, 4, 16]\n"
     "%9 = add %6, %8 : f32[19, 4, 16]\nreturn %9\n", 64, 0, false, "f32[19, 4, 16] add: not done with the product"},
    /* parts that are no whole panels */
    {HEAD(40) "%5 = slice %4 starts=[0, 0] steps=[1, 1] : f32[19, 20]\n%6 = slice %4 starts=[0, 20] steps=[1, 1] : f32[19, 20]\n"
     "%7 = mul %5, %6 : f32[19, 20]\nreturn %7\n", 40, 0, false, "columns that do not divide up"},
};

int
main(void)
{
    kin_text why = {0};
    jit = kin_jit_new(NULL, &why);
    if (jit == NULL) {
        printf("epilogue: skipped, %s\n", why.at);
        kin_text_deinit(&why);
        return 77;
    }
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        check_case(&cases[i]);
    kin_jit_free(jit);
    return check_report("epilogue");
}
