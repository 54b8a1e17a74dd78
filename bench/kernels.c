/* Throughput and compile times of single kernels, one thread. make bench-kernels. */
#include <stdio.h>
#include <time.h>

#include "core/pipeline/pipeline.h"

static double
now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

typedef struct {
    const char *name;
    kin_irn (*build)(kin_ir *p, kin_irn x, int64_t rows, int64_t columns);
} bench;

static kin_irn
constant(kin_ir *p, double v, int64_t r, int64_t c)
{
    return kin_ir_const(p, KIN_F32, (kin_scalar){.f = v}, 2, (int64_t[]){r, c});
}

static kin_irn
relu(kin_ir *p, kin_irn x, int64_t r, int64_t c)
{
    x = kin_ir_binary(p, KIN_IR_MAX, kin_ir_binary(p, KIN_IR_ADD, x, constant(p, 1, r, c)), constant(p, 0, r, c));
    return kin_ir_binary(p, KIN_IR_MUL, x, constant(p, 2, r, c));
}

static kin_irn
along(kin_ir *p, kin_ir_op op, kin_irn x, int64_t r, int64_t c)
{
    return kin_ir_expand(p, kin_ir_reduce(p, op, x, 1, (int64_t[]){1}), 2, (int64_t[]){r, c});
}

static kin_irn
softmax(kin_ir *p, kin_irn x, int64_t r, int64_t c)
{
    kin_irn e = kin_ir_unary(p, KIN_IR_EXP, kin_ir_binary(p, KIN_IR_SUB, x, along(p, KIN_IR_REDUCE_MAX, x, r, c)));
    return kin_ir_binary(p, KIN_IR_DIV, e, along(p, KIN_IR_REDUCE_SUM, e, r, c));
}

static kin_irn
layer_norm(kin_ir *p, kin_irn x, int64_t r, int64_t c)
{
    kin_irn n = constant(p, (double)c, r, 1), eps = constant(p, 1e-5, r, 1);
    kin_irn mean = kin_ir_binary(p, KIN_IR_DIV, kin_ir_reduce(p, KIN_IR_REDUCE_SUM, x, 1, (int64_t[]){1}), n);
    kin_irn d = kin_ir_binary(p, KIN_IR_SUB, x, kin_ir_expand(p, mean, 2, (int64_t[]){r, c}));
    kin_irn var = kin_ir_reduce(p, KIN_IR_REDUCE_SUM, kin_ir_binary(p, KIN_IR_MUL, d, d), 1, (int64_t[]){1});
    var = kin_ir_unary(p, KIN_IR_RSQRT, kin_ir_binary(p, KIN_IR_ADD, kin_ir_binary(p, KIN_IR_DIV, var, n), eps));
    return kin_ir_binary(p, KIN_IR_MUL, d, kin_ir_expand(p, var, 2, (int64_t[]){r, c}));
}

#define UNARY(name, OP) \
    static kin_irn name(kin_ir *p, kin_irn x, int64_t r, int64_t c) { return kin_ir_unary(p, OP, x); }
UNARY(exponential, KIN_IR_EXP)
UNARY(hyperbolic, KIN_IR_TANH)
UNARY(logarithm, KIN_IR_LOG)
UNARY(error_function, KIN_IR_ERF)
UNARY(sine, KIN_IR_SIN)
UNARY(logistic, KIN_IR_SIGMOID)

static kin_irn
sum_rows(kin_ir *p, kin_irn x, int64_t r, int64_t c)
{
    return kin_ir_reduce(p, KIN_IR_REDUCE_SUM, x, 1, (int64_t[]){1});
}

static kin_irn
sum_columns(kin_ir *p, kin_irn x, int64_t r, int64_t c)
{
    return kin_ir_reduce(p, KIN_IR_REDUCE_SUM, x, 1, (int64_t[]){0});
}

static kin_irn
sum_all(kin_ir *p, kin_irn x, int64_t r, int64_t c)
{
    return kin_ir_reduce(p, KIN_IR_REDUCE_SUM, x, 2, (int64_t[]){0, 1});
}

static kin_irn
transposed(kin_ir *p, kin_irn x, int64_t r, int64_t c)
{
    return kin_ir_unary(p, KIN_IR_NEG, kin_ir_permute(p, x, (int64_t[]){1, 0}));
}

static const bench benches[] = {
    {"relu(x+1)*2", relu}, {"softmax", softmax}, {"layer_norm", layer_norm}, {"exp", exponential}, {"tanh", hyperbolic},
    {"log", logarithm}, {"erf", error_function}, {"sin", sine}, {"sigmoid", logistic}, {"sum rows", sum_rows},
    {"sum columns", sum_columns}, {"sum all", sum_all}, {"transpose", transposed},
};

static double
run_once(const kin_program *p, void **memory)
{
    double start = now_ms();
    for (uint32_t i = 0; i < p->ops.len; i++) {
        const kin_kernel *k = &p->kernels.at[p->ops.at[i].index];
        void *at[64];
        for (uint32_t b = 0; b < k->nbuffers; b++)
            at[b] = memory[k->buffers[b]];
        if (k->fn(at, 0, k->range, k->numbers))
            return -1;
    }
    return now_ms() - start;
}

static void
measure(kin_jit *jit, const bench *b, int64_t r, int64_t c)
{
    kin_text notes = {0};
    kin_ir *ir = kin_ir_new();
    kin_program *p;
    kin_compile_stats s;
    kin_ir_output(ir, b->build(ir, kin_ir_input(ir, 0, KIN_F32, 2, (int64_t[]){r, c}), r, c), NULL);
    if (kin_pipeline_compile(jit, NULL, ir, &p, &s, &notes) != KIN_OK) {
        printf("%-12s %s\n", b->name, notes.at);
        return;
    }
    void *memory[64] = {0};
    char *arena = aligned_alloc(64, p->arena + 64);
    for (uint32_t i = 0; i < p->buffers.len; i++) {
        const kin_buf *buf = &p->buffers.at[i];
        memory[i] = buf->kind == KIN_BUF_TEMP ? arena + buf->offset : aligned_alloc(64, (buf->bytes + 63) / 64 * 64);
        if (buf->kind != KIN_BUF_TEMP)
            for (size_t j = 0; j < buf->bytes / 4; j++)
                ((float *)memory[i])[j] = (float)(j % 1021) / 512.0f + 0.1f;
    }
    double best = 1e9;
    for (int i = 0; i < 40; i++) {
        double t = run_once(p, memory);
        best = t < best ? t : best;
    }
    printf("%-12s %5lldx%lld  run %8.4f ms  %5.1f GB/s  kernels %u  fuse %.2f  emit %.2f  llvm %.2f ms%s\n", b->name, (long long)r,
           (long long)c, best, 8e-6 * (double)(r * c) / best, s.kernels, s.fuse_ns / 1e6, s.codegen_ns / 1e6, s.llvm_ns / 1e6,
           s.from_memory ? "  (known)" : "");
    for (uint32_t i = 0; i < p->buffers.len; i++)
        if (p->buffers.at[i].kind != KIN_BUF_TEMP)
            free(memory[i]);
    free(arena);
    kin_program_free(p);
    kin_ir_free(ir);
    kin_text_deinit(&notes);
}

int
main(int argc, char **argv)
{
    kin_text why = {0};
    kin_jit_options options = {.cpu = argc > 1 ? argv[1] : NULL};
    kin_jit *jit = kin_jit_new(&options, &why);
    if (jit == NULL) {
        printf("%s\n", why.at);
        return 1;
    }
    static const int64_t sizes[][2] = {{64, 768}, {256, 4096}, {4096, 4096}}; /* in the first cache, in the last one, in memory */
    for (unsigned i = 0; i < 3; i++)
        for (size_t b = 0; b < sizeof benches / sizeof *benches; b++)
            measure(jit, &benches[b], sizes[i][0], sizes[i][1]);
    kin_jit_free(jit);
    return 0;
}
