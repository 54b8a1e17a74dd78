/* Code for all sizes (core/codegen/open.h): programs over sizes that vary, compiled with one family, against the oracle at each; what is left open; which
 * kernels share code.
 */
#include "core/codegen/open.h"
#include "check.h"
#include "run_program.h"

static kin_jit *jit;

/* A softmax along rows and a sum along columns of a * [m, n] + b [n], and its transpose. */
static kin_ir *
rows_and_columns(int64_t m, int64_t n)
{
    kin_ir *p = kin_ir_new();
    int64_t sizes[] = {m, n};
    kin_irn a = kin_ir_input(p, 0, KIN_F32, 2, sizes), b = kin_ir_input(p, 1, KIN_F32, 1, &n);
    kin_irn x = kin_ir_unary(p, KIN_IR_TANH, kin_ir_binary(p, KIN_IR_ADD, a, kin_ir_expand(p, b, 2, sizes)));
    kin_irn most = kin_ir_reduce(p, KIN_IR_REDUCE_MAX, x, 1, (int64_t[]){1});
    kin_irn e = kin_ir_unary(p, KIN_IR_EXP, kin_ir_binary(p, KIN_IR_SUB, x, kin_ir_expand(p, most, 2, sizes)));
    kin_irn sum = kin_ir_reduce(p, KIN_IR_REDUCE_SUM, e, 1, (int64_t[]){1});
    kin_ir_output(p, kin_ir_binary(p, KIN_IR_DIV, e, kin_ir_expand(p, sum, 2, sizes)), NULL);
    kin_ir_output(p, kin_ir_reduce(p, KIN_IR_REDUCE_SUM, x, 1, (int64_t[]){0}), NULL);
    kin_ir_output(p, kin_ir_permute(p, x, (int64_t[]){1, 0}), (int64_t[]){m, 1});
    return p;
}

/* Every third element of the flat array, in other dims: divisions by sizes. */
static kin_ir *
reshaped(int64_t m, int64_t n)
{
    kin_ir *p = kin_ir_new();
    kin_irn a = kin_ir_input(p, 0, KIN_F32, 2, (int64_t[]){m, 3 * n});
    kin_irn x = kin_ir_reshape(p, a, 2, (int64_t[]){3 * n, m});
    kin_ir_output(p, kin_ir_unary(p, KIN_IR_NEG, kin_ir_permute(p, x, (int64_t[]){1, 0})), (int64_t[]){3 * n, 1});
    return p;
}

typedef kin_ir *(*maker)(int64_t m, int64_t n);

static void
check_sizes(maker make, const char *name, uint32_t most)
{
    static const int64_t usual[] = {20, 33, 64, 17, 130, 41, 257, 100};
    kin_family *family = kin_family_new(false);
    kin_text why = {0};
    for (unsigned i = 0; i < 8; i++)
        for (unsigned j = 0; j < 8; j += 1 + i % 3) {
            kin_ir *p = make(usual[i], usual[j]);
            kin_text_clear(&why);
            if (!CHECK(!p->failed && kin_ir_verify(p, &why)) || !CHECK(run_family_against_oracle(jit, family, p, i * 8 + j, &why)))
                fprintf(stderr, "%s of %lld, %lld: %s\n", name, (long long)usual[i], (long long)usual[j], why.at ? why.at : "");
            kin_ir_free(p);
        }
    if (!CHECK(kin_family_made(family) <= most))
        fprintf(stderr, "%s: code was missing %u times\n", name, kin_family_made(family));
    kin_text_deinit(&why);
    kin_family_free(family);
}

/* Very small sizes have other loops; all of them are right. */
static void
check_small(maker make, const char *name)
{
    kin_family *family = kin_family_new(false);
    kin_text why = {0};
    for (int64_t m = 1; m <= 6; m++)
        for (int64_t n = 1; n <= 18; n += 1 + m % 2) {
            kin_ir *p = make(m, n);
            kin_text_clear(&why);
            if (!CHECK(run_family_against_oracle(jit, family, p, (uint64_t)(m * 20 + n), &why)))
                fprintf(stderr, "%s of %lld, %lld: %s\n", name, (long long)m, (long long)n, why.at ? why.at : "");
            kin_ir_free(p);
        }
    kin_text_deinit(&why);
    kin_family_free(family);
}

/* The numbers that a family leaves open: what differs, and what some program had nowhere. */
static bool
match(kin_family *f, const int64_t *numbers, uint32_t n, const bool **open)
{
    kin_numbers given = {0};
    kin_text shape = {0};
    kin_text_add(&shape, "shape");
    for (uint32_t i = 0; i < n; i++)
        if (kin_vec_push(&given.at, numbers[i]) != KIN_OK)
            return false;
    bool ok = kin_family_begin(f) == KIN_OK && kin_family_add(f, &given) == KIN_OK && kin_family_settle(f) == KIN_OK &&
              kin_family_match(f, &shape, &given, open) == KIN_OK;
    kin_numbers_deinit(&given);
    kin_text_deinit(&shape);
    return ok;
}

static void
check_family(void)
{
    kin_family *f = kin_family_new(false);
    const bool *open;
    CHECK(match(f, (int64_t[]){64, 20, 256}, 3, &open) && open == NULL);
    CHECK(match(f, (int64_t[]){64, 30, 256}, 3, &open) && open != NULL && !open[0] && open[1] && !open[2]);
    CHECK(match(f, (int64_t[]){64, 77, 256}, 3, &open) && !open[0] && open[1] && !open[2]);
    CHECK(match(f, (int64_t[]){32, 77, 256}, 3, &open) && open[0] && open[1] && !open[2]);
    CHECK(match(f, (int64_t[]){32, 77, 128}, 3, &open) && open[0] && open[1] && open[2]);
    kin_family_free(f);
    f = kin_family_new(false); /* widened twice: then everything is */
    CHECK(match(f, (int64_t[]){2, 3, 4, 5}, 4, &open) && open == NULL);
    CHECK(match(f, (int64_t[]){9, 3, 4, 5}, 4, &open) && open[0] && !open[3]);
    CHECK(match(f, (int64_t[]){9, 8, 4, 5}, 4, &open) && open[1] && !open[3]);
    CHECK(match(f, (int64_t[]){9, 8, 7, 5}, 4, &open) && open[2] && open[3]);
    kin_family_free(f);
}

/* A size that is another by coincidence is another shape: a program in which they differ must not get its code. */
static void
check_coincidence(void)
{
    kin_family *family = kin_family_new(false);
    kin_text why = {0};
    for (int64_t n = 40; n < 48; n++) {
        kin_ir *same = rows_and_columns(44, 44), *p = rows_and_columns(44, n);
        CHECK(run_family_against_oracle(jit, family, same, 1, &why));
        CHECK(run_family_against_oracle(jit, family, p, (uint64_t)n, &why));
        kin_ir_free(same);
        kin_ir_free(p);
    }
    kin_text_deinit(&why);
    kin_family_free(family);
}

int
main(void)
{
    kin_text why = {0};
    check_family();
    jit = kin_jit_new(NULL, &why);
    if (jit == NULL) {
        printf("open_sizes: skipped, %s\n", why.at);
        kin_text_deinit(&why);
        return 77;
    }
    /* 48 programs each: squares, and sizes that divide each other, have loops of their own */
    check_sizes(rows_and_columns, "rows and columns", 12);
    check_sizes(reshaped, "reshaped", 12);
    check_small(rows_and_columns, "rows and columns");
    check_small(reshaped, "reshaped");
    check_coincidence();
    kin_text_deinit(&why);
    kin_jit_free(jit);
    return check_report("open_sizes");
}
