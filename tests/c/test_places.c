/* Places that are computed: which of them are read without a gather or a check of bounds; and parts that are put together. What they give is
 * compared in test_codegen.c. */
#include "core/pipeline/pipeline.h"

#include <stdlib.h>

#include "check.h"

/* An index of a row of ten by one value, which `places` computes as %3 from the iota %2 and constants. */
typedef struct {
    const char *places;
    bool indexed, checked; /* expected: an instruction gives the place; its bounds are checked */
} row;

static const row rows[] = {
    {"%3 = add %2, %2 : i64[5]\n", false, false},
    {"%9 = const 2 : i64[5]\n%3 = floor_div %2, %9 : i64[5]\n", false, false},
    {"%9 = const 2 : i64[5]\n%3 = rem %2, %9 : i64[5]\n", false, false},
    {"%9 = const 4 : i64[5]\n%3 = sub %9, %2 : i64[5]\n", false, false},
    {"%9 = const 2 : i64[5]\n%3 = mul %2, %9 : i64[5]\n", false, false},
    {"%9 = const 9 : i64[5]\n%3 = max %2, %9 : i64[5]\n", false, false},
    {"%3 = neg %2 : i64[5]\n%4 = abs %3 : i64[5]\n", false, false},
    {"%9 = const 2 : i64[5]\n%3 = max %2, %9 : i64[5]\n", true, false},
    {"%9 = const 2 : i64[5]\n%10 = sub %2, %9 : i64[5]\n%3 = abs %10 : i64[5]\n", true, false},
    {"%9 = cast %2 : f32[5]\n%10 = const 1.9 : f32[5]\n%11 = mul %9, %10 : f32[5]\n%3 = cast %11 : i64[5]\n", true, false},
    {"%9 = cast %2 : f32[5]\n%10 = const 2.6 : f32[5]\n%11 = mul %9, %10 : f32[5]\n%3 = cast %11 : i64[5]\n", true, true},
    {"%9 = const 3 : i64[5]\n%3 = mul %2, %9 : i64[5]\n", true, true},
    {"%9 = const 1 : i64[5]\n%3 = sub %2, %9 : i64[5]\n", true, true},
    {"%9 = exp %8 : f32[5]\n%3 = cast %9 : i64[5]\n", true, true},
    {"%9 = const 4 : f32[5]\n%10 = min %8, %9 : f32[5]\n%3 = cast %10 : i64[5]\n", true, true}, /* a NaN stays one */
};

/* Numbers of nodes follow each other in the text; those of `places` are names. */
static void
write_program(const char *places, kin_text *out)
{
    unsigned number[100] = {[1] = 1, [2] = 2, [8] = 3}, next = 4;
    kin_text_add(out, "%1 = input 0 : f32[10]\n%2 = iota dim=0 : i64[5]\n%3 = input 1 : f32[5]\n");
    for (const char *at = places; *at; at++) {
        if (*at != '%') {
            kin_text_add_len(out, at, 1);
            continue;
        }
        unsigned name = (unsigned)strtoul(at + 1, (char **)&at, 10);
        at--;
        if (number[name] == 0)
            number[name] = next++;
        kin_text_addf(out, "%%%u", number[name]);
    }
    kin_text_addf(out, "%%%u = index %%1, %%%u map=[-1] : f32[5]\nreturn %%%u\n", next, next - 1, next);
}

static void
check_row(const row *r)
{
    kin_text text = {0}, why = {0};
    kin_fused fused = {0};
    bool indexed = false;
    write_program(r->places, &text);
    kin_ir *p = kin_ir_parse(text.at, &why);
    if (!CHECK(p != NULL && kin_ir_verify(p, &why)) || !CHECK(kin_pipeline_fuse(p, &fused, NULL) == KIN_OK) || !CHECK(fused.kernels.len == 1)) {
        fprintf(stderr, "%s\n%s\n", text.at, why.at ? why.at : "");
    } else {
        const kin_loops *k = &fused.kernels.at[0].loops;
        for (uint32_t i = 0; i < k->ix.atoms.len; i++)
            indexed |= k->ix.atoms.at[i].kind == KIN_IX_VALUE;
        if (!CHECK(indexed == r->indexed) || !CHECK(k->checks == r->checked))
            fprintf(stderr, "%s\n", text.at);
    }
    kin_fused_deinit(&fused);
    kin_program_free(fused.program);
    kin_ir_free(p);
    kin_text_deinit(&text);
    kin_text_deinit(&why);
}

/* Parts put together and then brought into other sizes: does each element choose between all parts, or is each part written where it belongs? */
static const struct { const char *part; unsigned first, dim; bool chooses; } parts[] = {
    {"neg %1 : f32[4, 8]", 2, 0, true},
    {"neg %1 : f32[4, 8]", 2, 1, false}, /* the parts of a row follow each other */
    {"exp %1 : f32[4, 8]", 3, 0, false}, /* too dear to be computed for nothing */
};

static void
check_parts(const char *part, unsigned first, unsigned dim, bool chooses)
{
    kin_text text = {0}, why = {0};
    kin_fused fused = {0};
    bool found = false;
    kin_text_addf(&text, "%%1 = input 0 : f32[4, 8]\n%%2 = %s\n%%3 = sin %%2 : f32[4, 8]\n%%4 = %s\n%%5 = cat %%%d, %%4 dim=%u : f32[%u, %u]\n"
                  "%%6 = reshape %%5 : f32[64]\nreturn %%6\n", part, part, first, dim, dim == 0 ? 8 : 4, dim == 0 ? 8 : 16);
    kin_ir *p = kin_ir_parse(text.at, &why);
    if (CHECK(p != NULL) && CHECK(kin_pipeline_fuse(p, &fused, NULL) == KIN_OK))
        for (uint32_t i = 0; i < fused.kernels.len; i++)
            for (uint32_t n = 0; n < fused.kernels.at[i].loops.insts.len; n++)
                found |= fused.kernels.at[i].loops.insts.at[n].kind == KIN_LI_OP && fused.kernels.at[i].loops.insts.at[n].op == KIN_IR_WHERE;
    CHECK(found == chooses);
    kin_fused_deinit(&fused);
    kin_program_free(fused.program);
    kin_ir_free(p);
    kin_text_deinit(&text);
    kin_text_deinit(&why);
}

/* A row in front of the pixels of images, which are stored by channels: where a pixel is read, its number is one, so that it has a line and a column and nothing
 * else has to be divided. How many quotients and remainders are left? */
static void
check_tokens(const char *ops, unsigned remainders)
{
    kin_text text = {0}, why = {0};
    kin_fused fused = {0};
    unsigned found = 0;
    kin_text_addf(&text, "%%1 = input 0 : f32[3, 6, 4, 5]\n%%2 = input 1 : f32[3, 1, 6]\n%%3 = exp %%1 : f32[3, 6, 4, 5]\n%s", ops);
    kin_ir *p = kin_ir_parse(text.at, &why);
    if (CHECK(p != NULL && kin_ir_verify(p, &why)) && CHECK(kin_pipeline_fuse(p, &fused, NULL) == KIN_OK) && CHECK(fused.kernels.len == 1)) {
        const kin_loops *k = &fused.kernels.at[0].loops;
        bool used[256] = {false};
        for (uint32_t i = 1; i < k->insts.len; i++)
            for (uint32_t t = 0; k->insts.at[i].kind == KIN_LI_LOAD && t < kin_ix_at(&k->ix, k->insts.at[i].index)->nterms; t++)
                used[k->ix.terms.at[kin_ix_at(&k->ix, k->insts.at[i].index)->terms + t].atom] = true;
        for (uint32_t i = 0; i < k->ix.atoms.len; i++)
            found += used[i] && (k->ix.atoms.at[i].kind == KIN_IX_MOD || k->ix.atoms.at[i].kind == KIN_IX_DIV);
    } else {
        fprintf(stderr, "%s\n%s\n", text.at, why.at ? why.at : "");
    }
    if (!CHECK(found == remainders))
        fprintf(stderr, "%u: %s\n", found, text.at);
    kin_fused_deinit(&fused);
    kin_program_free(fused.program);
    kin_ir_free(p);
    kin_text_deinit(&text);
    kin_text_deinit(&why);
}

/* How many questions does fusion ask of rows and columns that are padded, for plans that may be copied? */
static uint32_t
count_questions(int high, int wide)
{
    kin_text text = {0}, why = {0};
    kin_fused fused = {0};
    uint32_t n = 0;
    kin_text_addf(&text, "%%1 = input 0 : f32[%d, %d]\n%%2 = const 0 : f32[]\n%%3 = pad %%1, %%2 low=[1, 1] : f32[%d, %d]\n%%4 = neg %%3 : f32[%d, %d]\nreturn %%4\n", high, wide,
                  high + 2, wide + 2, high + 2, wide + 2);
    kin_ir *p = kin_ir_parse(text.at, &why);
    if (CHECK(p != NULL && kin_ir_verify(p, &why)) && CHECK(kin_fuse(p, true, &fused, NULL) == KIN_OK))
        n = fused.program->asked.len;
    kin_fused_deinit(&fused);
    kin_program_free(fused.program);
    kin_ir_free(p);
    kin_text_deinit(&text);
    kin_text_deinit(&why);
    return n;
}

int
main(void)
{
    CHECK(count_questions(5, 7) > 0);
    CHECK(count_questions(5, 5) == count_questions(5, 7)); /* sizes that happen to be equal are asked one by one */
    for (unsigned i = 0; i < sizeof parts / sizeof *parts; i++)
        check_parts(parts[i].part, parts[i].first, parts[i].dim, parts[i].chooses);
    for (unsigned i = 0; i < sizeof rows / sizeof *rows; i++)
        check_row(&rows[i]);
    check_tokens("%4 = reshape %3 : f32[3, 6, 20]\n%5 = permute %4 dims=[0, 2, 1] : f32[3, 20, 6]\n%6 = cat %2, %5 dim=1 : f32[3, 21, 6]\n%7 = neg %6 : f32[3, 21, 6]\nreturn %7\n", 0);
    check_tokens("%4 = permute %3 dims=[0, 3, 2, 1] : f32[3, 5, 4, 6]\n%5 = reshape %4 : f32[3, 20, 6]\n%6 = cat %2, %5 dim=1 : f32[3, 21, 6]\n%7 = neg %6 : f32[3, 21, 6]\nreturn %7\n", 2);
    return check_report("places");
}
