/* Cutting programs in results and gradients: what is kept, what is computed again, and that both halves together are the whole. */
#include "core/partition/partition.h"

#include <stdlib.h>

#include "check.h"
#include "core/partition/mincut.h"

static void
check_parts(const char *text, const kin_ir_partition_options *options, const char *forward, const char *backward)
{
    kin_text why = {0}, a = {0}, b = {0};
    kin_ir *p = kin_ir_parse(text, &why);
    if (!CHECK(p != NULL)) {
        fprintf(stderr, "%s\n", why.at);
        return;
    }
    kin_ir_partition parts;
    CHECK(kin_ir_part(p, options, &parts, &why) == KIN_OK);
    CHECK(kin_ir_verify(parts.forward, &why) && kin_ir_verify(parts.backward, &why));
    if (why.at != NULL)
        fprintf(stderr, "%s\n", why.at);
    kin_ir_print(parts.forward, &a);
    CHECK_STR(a.at, forward);
    kin_ir_print(parts.backward, &b);
    CHECK_STR(b.at, backward);
    kin_ir_partition_deinit(&parts);
    kin_ir_free(p);
    kin_text_deinit(&why);
    kin_text_deinit(&a);
    kin_text_deinit(&b);
}

/* exp's result is what eager keeps: it is handed over as the result that it is. */
static void
test_results_are_kept(void)
{
    bool input[] = {false}, output[] = {true};
    kin_ir_partition_options options = {.nforward = 1, .first_tangent = 1, .first_backward = 1, .keeps_input = input, .keeps_output = output};
    check_parts("%1 = input 0 : f32[64]\n"
                "%2 = exp %1 : f32[64]\n"
                "%3 = input 1 : f32[64]\n"
                "%4 = mul %3, %2 : f32[64]\n"
                "return %2 : {1}, %4 : {1}\n", &options,
                "%1 = input 0 : f32[64]\n"
                "%2 = exp %1 : f32[64]\n"
                "return %2 : {1}\n",
                "%1 = input 2 : f32[64]{1}\n"
                "%2 = input 1 : f32[64]\n"
                "%3 = mul %2, %1 : f32[64]\n"
                "return %3 : {1}\n");
}

/* Element by element is computed again from an input that lives anyway, where it is first needed and not before. */
static void
test_cheap_values_are_computed_again(void)
{
    bool input[] = {true}, output[] = {false};
    kin_ir_partition_options options = {.nforward = 1, .first_tangent = 1, .first_backward = 1, .keeps_input = input, .keeps_output = output};
    check_parts("%1 = input 0 : f32[64]\n"
                "%2 = neg %1 : f32[64]\n"
                "%3 = exp %2 : f32[64]\n"
                "%4 = reduce_sum %3 dims=[0] : f32[1]\n"
                "%5 = input 1 : f32[1]\n"
                "%6 = expand %5 : f32[64]\n"
                "%7 = mul %6, %3 : f32[64]\n"
                "return %4 : {1}, %7 : {1}\n", &options,
                "%1 = input 0 : f32[64]\n"
                "%2 = neg %1 : f32[64]\n"
                "%3 = exp %2 : f32[64]\n"
                "%4 = reduce_sum %3 dims=[0] : f32[1]\n"
                "return %4 : {1}\n",
                "%1 = input 1 : f32[1]\n"
                "%2 = expand %1 : f32[64]\n"
                "%3 = input 0 : f32[64]\n"
                "%4 = neg %3 : f32[64]\n"
                "%5 = exp %4 : f32[64]\n"
                "%6 = mul %2, %5 : f32[64]\n"
                "return %6 : {1}\n");
}

/* The smaller of two values: a mask of bytes rather than the floats it comes from; reductions are kept, never computed again. */
static void
test_little_is_kept(void)
{
    kin_text why = {0};
    bool input[] = {false}, output[] = {false};
    kin_ir_partition_options options = {.nforward = 1, .first_tangent = 1, .first_backward = 1, .keeps_input = input, .keeps_output = output};
    kin_ir *p = kin_ir_parse("%1 = input 0 : f32[8, 64]\n"
                             "%2 = reduce_sum %1 dims=[1] : f32[8, 1]\n"
                             "%3 = expand %2 : f32[8, 64]\n"
                             "%4 = lt %1, %3 : b8[8, 64]\n"
                             "%5 = input 1 : f32[8, 64]\n"
                             "%6 = where %4, %5, %3 : f32[8, 64]\n"
                             "return %3 : {64, 1}, %6 : {64, 1}\n", &why);
    kin_ir_partition parts;
    if (!CHECK(p != NULL) || !CHECK(kin_ir_part(p, &options, &parts, &why) == KIN_OK))
        return;
    CHECK(parts.handed.len == 2);
    for (uint32_t i = 0; i < parts.handed.len; i++)
        CHECK(parts.handed.at[i].node == 2 || parts.handed.at[i].node == 4);
    CHECK(!parts.inputs[0]);
    kin_ir_partition_deinit(&parts);
    kin_ir_free(p);
    kin_text_deinit(&why);
}

/* Random numbers are drawn in the first half, and once. */
static void
test_effects_stay_in_front(void)
{
    kin_text why = {0};
    bool input[] = {true}, output[] = {false};
    const char *text = "%1 = input 0 : f32[16]\n"
                       "%2 = extern \"aten.bernoulli.p\" %1 number=0 flags=1\n"
                       "%3 = result %2 which=0 : f32[16]{1}\n"
                       "%4 = mul %1, %3 : f32[16]\n"
                       "%5 = input 1 : f32[16]\n"
                       "%6 = mul %5, %3 : f32[16]\n"
                       "return %4 : {1}, %6 : {1}\n";
    kin_ir *p = kin_ir_parse(text, &why);
    if (!CHECK(p != NULL)) {
        fprintf(stderr, "%s\n", why.at);
        return;
    }
    kin_ir_partition_options options = {.nforward = 1, .first_tangent = 1, .first_backward = 1, .keeps_input = input, .keeps_output = output};
    kin_ir_partition parts;
    CHECK(kin_ir_part(p, &options, &parts, &why) == KIN_OK && parts.handed.len == 1 && parts.handed.at[0].node == 3);
    for (kin_irn n = 1; n < parts.backward->nodes.len; n++)
        CHECK(kin_ir_at(parts.backward, n)->op != KIN_IR_EXTERN);
    kin_ir_partition_deinit(&parts);
    options.first_backward = 0;
    CHECK(kin_ir_part(p, &options, &parts, &why) == KIN_BREAK);
    kin_ir_free(p);
    kin_text_deinit(&why);
}

/* What takes long is handed over, although what it is made of lives anyway; what does not is computed again. */
static void
test_slow_values_are_kept(void)
{
    bool input[] = {true}, output[] = {false};
    kin_ir_partition_options options = {.nforward = 1, .first_tangent = 1, .first_backward = 1, .keeps_input = input, .keeps_output = output};
    const char *names[] = {"erf", "exp"};
    for (unsigned i = 0; i < 2; i++) {
        kin_text text = {0}, why = {0};
        kin_text_addf(&text, "%%1 = input 0 : f32[64]\n"
                             "%%2 = %s %%1 : f32[64]\n"
                             "%%3 = mul %%1, %%2 : f32[64]\n"
                             "%%4 = input 1 : f32[64]\n"
                             "%%5 = mul %%4, %%2 : f32[64]\n"
                             "return %%3 : {1}, %%5 : {1}\n", names[i]);
        kin_ir *p = kin_ir_parse(text.at, &why);
        kin_ir_partition parts;
        CHECK(kin_ir_part(p, &options, &parts, &why) == KIN_OK);
        CHECK(parts.handed.len == (i == 0 ? 1 : 0));
        CHECK(parts.inputs[0] == (i == 1));
        kin_ir_partition_deinit(&parts);
        kin_ir_free(p);
        kin_text_deinit(&text);
        kin_text_deinit(&why);
    }
}

/* Cuts by themselves: the cheapest, and of equal ones the last. */
static void
test_cuts(void)
{
    int64_t costs[] = {5, 3, 3, 9, 2};
    bool cut[5] = {false};
    kin_mincut m;
    CHECK(kin_mincut_init(&m, 5, costs));
    kin_mincut_source(&m, 0, KIN_MINCUT_NEVER);
    for (uint32_t i = 0; i + 2 < 4; i++)
        kin_mincut_flow(&m, i, i + 1);
    kin_mincut_flow(&m, 2, 3);
    kin_mincut_source(&m, 4, KIN_MINCUT_NEVER);
    kin_mincut_flow(&m, 4, 3);
    kin_mincut_sink(&m, 3);
    CHECK(kin_mincut_find(&m, cut) == KIN_OK);
    CHECK(!cut[0] && !cut[1] && cut[2] && !cut[3] && cut[4]);
    kin_mincut_deinit(&m);
    int64_t never[] = {KIN_MINCUT_NEVER};
    CHECK(kin_mincut_init(&m, 1, never));
    kin_mincut_source(&m, 0, KIN_MINCUT_NEVER);
    kin_mincut_sink(&m, 0);
    CHECK(kin_mincut_find(&m, cut) == KIN_BREAK);
    kin_mincut_deinit(&m);
}

int
main(void)
{
    test_results_are_kept();
    test_cheap_values_are_computed_again();
    test_little_is_kept();
    test_effects_stay_in_front();
    test_slow_values_are_kept();
    test_cuts();
    return check_report("partition");
}
