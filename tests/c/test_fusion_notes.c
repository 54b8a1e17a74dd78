/* Whatever does not share a kernel has a reason: one program for each. */
#include "core/pipeline/pipeline.h"

#include <stdlib.h>

#include "check.h"

typedef struct {
    const char *program, *says;
} row;

static const row rows[] = {
    {"%1 = input 0 : f32[4, 50]\n%2 = exp %1 : f32[4, 50]\n%3 = reduce_sum %2 dims=[1] : f32[4, 1]\n%4 = expand %3 : f32[4, 50]\n"
     "%5 = cumsum %4 dim=1 : f32[4, 50]\nreturn %5\n",
     "cumsum: not fused with what it reads: a scan or a scatter has a kernel of its own"},
    {"%1 = input 0 : f32[4, 50]\n%2 = cumsum %1 dim=1 : f32[4, 50]\n%3 = neg %2 : f32[4, 50]\nreturn %3\n",
     "neg: not fused with what it reads: that kernel ends with a scan or a scatter"},
    {"%1 = input 0 : f32[4, 50]\n%2 = exp %1 : f32[4, 50]\n%3 = slice %1 starts=[0, 0] steps=[1, 1] : f32[4, 20]\n%4 = neg %3 : f32[4, 20]\n"
     "return %2, %4\n", "neg: not fused with what reads the same: another number of elements"},
    {"%1 = input 0 : f32[40, 50]\n%2 = reduce_sum %1 dims=[0] : f32[1, 50]\n%3 = reduce_sum %1 dims=[1] : f32[40, 1]\nreturn %2, %3\n",
     "reduce_sum: not fused with what reads the same: reduces over other dimensions"},
    {"%1 = input 0 : f32[6, 35]\n%2 = exp %1 : f32[6, 35]\n%3 = permute %2 dims=[1, 0] : f32[35, 6]\n%4 = exp %3 : f32[35, 6]\nreturn %2, %4\n",
     "exp: not fused with what it reads: sizes that do not divide up alike"},
    {"%1 = input 0 : f32[8, 8]\n%2 = exp %1 : f32[8, 8]\n%3 = permute %2 dims=[1, 0] : f32[8, 8]\n%4 = exp %3 : f32[8, 8]\nreturn %2, %4\n",
     "exp: not fused with what it reads: a value of the same kernel is read at other places than it is made at"},
    {"%1 = input 0 : f32[3, 20]\n%2 = input 1 : f32[3, 20]\n%3 = cat %1, %2 dim=1 : f32[3, 40]\n"
     "%4 = slice %3 starts=[0, 10] steps=[1, 1] : f32[3, 20]\n%5 = exp %4 : f32[3, 20]\nreturn %3, %5\n",
     "exp: not fused with what it reads: a value is read where it is put together"},
    {"%1 = input 0 : f32[4, 8]\n%2 = extern \"aten.sort\" %1 number=0 flags=0\n%3 = result %2 which=0 : f32[4, 8]\n%4 = exp %3 : f32[4, 8]\nreturn %4\n",
     "exp: not fused with what it reads: a library call makes it"},
    {"%1 = input 0 : f32[4, 8]\n%2 = exp %1 : f32[4, 8]\n%3 = extern \"aten.sort\" %2 number=0 flags=0\n%4 = result %3 which=0 : f32[4, 8]\n"
     "%5 = add %4, %1 : f32[4, 8]\nreturn %2, %5\n",
     "add: not fused with what reads the same: that kernel runs before something it reads is made"},
    {"%1 = input 0 : f32[64, 6]\n%2 = reduce_sum %1 dims=[1] : f32[64, 1]\n%3 = tanh %2 : f32[64, 1]\nreturn %3\n",
     "tanh: not fused with what it reads: faster apart"},
    /* inputs that are written to */
    {"%1 = input 0 : f32[8]\n%2 = input 1 : f32[8]\n%3 = add %1, %2 : f32[8]\n%4 = mul %1, %2 : f32[8]\nreturn %3 into 0, %4 into 1\n",
     "not computed where it is written: another input that is written to needs it as it was"},
    {"%1 = input 0 : f32[8]\n%2 = slice %1 starts=[7] steps=[-1] : f32[8]\n%3 = neg %2 : f32[8]\nreturn %3 into 0\n",
     "not computed where it is written: it reads it at other places"},
    {"%1 = input 0 : f32[8]\n%2 = input 1 : f32[6]\n%3 = input 2 : f32[8]\n%4 = add %1, %3 : f32[8]\n%5 = slice %3 starts=[1] steps=[1] : f32[6]\n"
     "%6 = mul %2, %5 : f32[6]\nreturn %4 into 0, %6 into 1\n",
     "not written with the input before it: both cannot be computed in one go, in place"},
};

static void
check_says(const row *r)
{
    kin_text why = {0}, notes = {0};
    kin_ir *p = kin_ir_parse(r->program, &why);
    kin_fused fused = {0};
    if (!CHECK(p != NULL)) {
        fprintf(stderr, "%s\n%s\n", r->program, why.at ? why.at : "");
        kin_text_deinit(&why);
        return;
    }
    CHECK_EQ(kin_pipeline_fuse(p, &fused, &notes), KIN_OK);
    if (!CHECK(notes.at != NULL && strstr(notes.at, r->says) != NULL))
        fprintf(stderr, "wanted: %s\ngot: %s\n", r->says, notes.at ? notes.at : "nothing");
    kin_fused_deinit(&fused);
    kin_program_free(fused.program);
    kin_ir_free(p);
    kin_text_deinit(&why);
    kin_text_deinit(&notes);
}

/* `n` outputs that read one input, each a chain of `length` operations of its own on some of its elements, `step` more of them from
 * output to output. */
static void
check_many(unsigned n, unsigned length, unsigned step, const char *says)
{
    kin_text t = {0}, list = {0};
    unsigned next = 2;
    kin_text_add(&t, "%1 = input 0 : f32[4096]\n");
    for (unsigned i = 0; i < n; i++) {
        unsigned size = 1000 + i * step, from = next;
        kin_text_addf(&t, "%%%u = slice %%1 starts=[0] steps=[1] : f32[%u]\n", next++, size);
        kin_text_addf(&t, "%%%u = const %u.5 : f32[%u]\n", next++, i, size);
        for (unsigned k = 0; k < length; k++, next++)
            kin_text_addf(&t, "%%%u = add %%%u, %%%u : f32[%u]\n", next, k ? next - 1 : from, from + 1, size);
        kin_text_addf(&list, "%s%%%u", i ? ", " : "return ", next - 1);
    }
    kin_text_addf(&t, "%s\n", list.at);
    check_says(&(row){t.at, says});
    kin_text_deinit(&t);
    kin_text_deinit(&list);
}

/* One that shares a kernel says nothing. */
static void
check_silent(void)
{
    static const char text[] = "%1 = input 0 : f32[4, 50]\n%2 = exp %1 : f32[4, 50]\n%3 = neg %1 : f32[4, 50]\nreturn %2, %3\n";
    kin_text notes = {0};
    kin_ir *p = kin_ir_parse(text, &notes);
    kin_fused fused = {0};
    CHECK_EQ(kin_pipeline_fuse(p, &fused, &notes), KIN_OK);
    CHECK_EQ(fused.kernels.len, 1);
    CHECK_EQ(notes.len, 0);
    kin_fused_deinit(&fused);
    kin_program_free(fused.program);
    kin_ir_free(p);
    kin_text_deinit(&notes);
}

int
main(void)
{
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        check_says(&rows[i]);
    check_many(9, 1, 3, "not fused with what reads the same: another number of elements");
    check_many(9, 1, 3, "enough other kernels were tried");
    check_many(60, 1, 0, "not fused with what reads the same: too many buffers");
    check_many(40, 20, 0, "not fused with what reads the same: too much for one kernel");
    check_silent();
    return check_report("fusion notes");
}
