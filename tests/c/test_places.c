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
static const struct { const char *part; bool chooses; } parts[] = {
    {"neg %1 : f32[4, 8]", true},
    {"exp %1 : f32[4, 8]", false},
};

static void
check_parts(const char *part, bool chooses)
{
    kin_text text = {0}, why = {0};
    kin_fused fused = {0};
    bool found = false;
    kin_text_addf(&text, "%%1 = input 0 : f32[4, 8]\n%%2 = %s\n%%3 = sin %%2 : f32[4, 8]\n%%4 = %s\n%%5 = cat %%%d, %%4 dim=1 : f32[4, 16]\n"
                  "%%6 = reshape %%5 : f32[64]\nreturn %%6\n", part, part, chooses ? 2 : 3);
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

int
main(void)
{
    for (unsigned i = 0; i < sizeof parts / sizeof *parts; i++)
        check_parts(parts[i].part, parts[i].chooses);
    for (unsigned i = 0; i < sizeof rows / sizeof *rows; i++)
        check_row(&rows[i]);
    return check_report("places");
}
