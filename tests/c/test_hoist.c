/* Splitting programs by frozen inputs: as text, and computed in both ways. */
#include "core/ir/hoist.h"

#include <stdlib.h>

#include "check.h"

static void
check_halves(const char *text, const bool *frozen, const char *once, const char *rest)
{
    kin_text why = {0}, a = {0}, b = {0};
    kin_ir *p = kin_ir_parse(text, &why);
    if (!CHECK(p != NULL)) {
        fprintf(stderr, "%s\n", why.at);
        return;
    }
    kin_ir_hoisted h;
    CHECK(kin_ir_hoist(p, frozen, NULL, &h) == KIN_OK);
    CHECK((h.once != NULL) == (once != NULL));
    if (h.once != NULL && once != NULL) {
        CHECK(kin_ir_verify(h.once, &why));
        kin_ir_print(h.once, &a);
        CHECK_STR(a.at, once);
    }
    CHECK(kin_ir_verify(h.rest, &why));
    if (why.at != NULL)
        fprintf(stderr, "%s\n", why.at);
    kin_ir_print(h.rest, &b);
    CHECK_STR(b.at, rest);
    kin_ir_hoisted_deinit(&h);
    kin_ir_free(p);
    kin_text_deinit(&why);
    kin_text_deinit(&a);
    kin_text_deinit(&b);
}

/* A batch norm's factor comes from weights alone; how it is spread over the pixels does not matter. */
static void
test_weights_alone(void)
{
    check_halves("%1 = input 0 : f32[2, 3]\n"
                 "%2 = input 1 : f32[3]\n"
                 "%3 = sqrt %2 : f32[3]\n"
                 "%4 = expand %3 : f32[2, 3]\n"
                 "%5 = mul %1, %4 : f32[2, 3]\n"
                 "return %5\n",
                 (bool[]){false, true},
                 "%1 = input 1 : f32[3]\n"
                 "%2 = sqrt %1 : f32[3]\n"
                 "return %2\n",
                 "%1 = input 2 : f32[3]\n"
                 "%2 = input 0 : f32[2, 3]\n"
                 "%3 = expand %1 : f32[2, 3]\n"
                 "%4 = mul %2, %3 : f32[2, 3]\n"
                 "return %4\n");
}

static void
test_nothing_frozen(void)
{
    const char *text = "%1 = input 0 : f32[3]\n"
                       "%2 = sqrt %1 : f32[3]\n"
                       "return %2\n";
    check_halves(text, (bool[]){false}, NULL, text);
}

/* A result is made in each call, what it is made from is not; views of inputs are left where they are. */
static void
test_outputs_and_views(void)
{
    check_halves("%1 = input 0 : f32[3]\n"
                 "%2 = input 1 : f32[3]\n"
                 "%3 = exp %1 : f32[3]\n"
                 "%4 = neg %3 : f32[3]\n"
                 "%5 = slice %1 starts=[0] steps=[2] : f32[2]\n"
                 "%6 = slice %2 starts=[0] steps=[1] : f32[2]\n"
                 "%7 = add %5, %6 : f32[2]\n"
                 "return %4, %7\n",
                 (bool[]){true, false},
                 "%1 = input 0 : f32[3]\n"
                 "%2 = exp %1 : f32[3]\n"
                 "return %2\n",
                 "%1 = input 2 : f32[3]\n"
                 "%2 = input 0 : f32[3]\n"
                 "%3 = input 1 : f32[3]\n"
                 "%4 = neg %1 : f32[3]\n"
                 "%5 = slice %2 starts=[0] steps=[2] : f32[2]\n"
                 "%6 = slice %3 starts=[0] steps=[1] : f32[2]\n"
                 "%7 = add %5, %6 : f32[2]\n"
                 "return %4, %7\n");
}

static void
test_values(void)
{
    kin_text why = {0};
    kin_ir *p = kin_ir_parse("%1 = input 0 : f32[2]\n"
                             "%2 = input 1 : f32[2]\n"
                             "%3 = mul %2, %2 : f32[2]\n"
                             "%4 = add %1, %3 : f32[2]\n"
                             "return %4\n", &why);
    kin_ir_hoisted h;
    CHECK(p != NULL && kin_ir_hoist(p, (bool[]){false, true}, NULL, &h) == KIN_OK && h.count == 1 && h.first == 2);
    float x[2] = {1, 2}, w[2] = {3, 4};
    void *made[1] = {0}, *sum[1] = {0}, *whole[1] = {0};
    CHECK(kin_ir_eval(h.once, (const void *[]){x, w}, made) == KIN_OK);
    CHECK(kin_ir_eval(h.rest, (const void *[]){x, w, made[0]}, sum) == KIN_OK);
    CHECK(kin_ir_eval(p, (const void *[]){x, w}, whole) == KIN_OK);
    CHECK(memcmp(sum[0], whole[0], sizeof x) == 0 && ((float *)sum[0])[1] == 18);
    free(made[0]);
    free(sum[0]);
    free(whole[0]);
    kin_ir_hoisted_deinit(&h);
    kin_ir_free(p);
    kin_text_deinit(&why);
}

/* Of programs for different sizes, what all of them have in common is handed over: the weight's root, and of the table cut to a length nothing
 * from the second program on. */
static void
test_what_sizes_have_in_common(void)
{
    kin_ir_common common = {0};
    uint32_t handed[] = {2, 1, 1, 1};
    int lengths[] = {4, 6, 4, 5};
    for (int i = 0; i < 4; i++) {
        char text[512];
        kin_text why = {0};
        snprintf(text, sizeof text,
                 "%%1 = input 0 : f32[%d]\n%%2 = input 1 : f32[9]\n%%3 = input 2 : f32[1]\n%%4 = slice %%2 starts=[0] steps=[1] : f32[%d]\n%%5 = sqrt %%4 : f32[%d]\n"
                 "%%6 = sqrt %%3 : f32[1]\n%%7 = expand %%6 : f32[%d]\n%%8 = add %%1, %%5 : f32[%d]\n%%9 = mul %%8, %%7 : f32[%d]\nreturn %%9\n",
                 lengths[i], lengths[i], lengths[i], lengths[i], lengths[i], lengths[i]);
        kin_ir *p = kin_ir_parse(text, &why);
        kin_ir_hoisted h = {0};
        if (!CHECK(p != NULL))
            fprintf(stderr, "%s\n", why.at);
        CHECK(p != NULL && kin_ir_hoist(p, (bool[]){false, true, true}, &common, &h) == KIN_OK && h.count == handed[i]);
        CHECK(h.rest != NULL && kin_ir_verify(h.rest, &why));
        kin_ir_hoisted_deinit(&h);
        kin_ir_free(p);
        kin_text_deinit(&why);
    }
    CHECK(common.kinds.len == 1 && common.kinds.at[0].programs == 4);
    kin_ir_common_deinit(&common);
}

/* A program of other operations, as for a batch of one, takes nothing from what the others have in common. */
static void
test_other_operations_meet_apart(void)
{
    const char *texts[] = {"%1 = input 0 : f32[1]\n%2 = input 1 : f32[1]\n%3 = mul %1, %2 : f32[1]\nreturn %3\n",
                           "%1 = input 0 : f32[4]\n%2 = input 1 : f32[1]\n%3 = sqrt %2 : f32[1]\n%4 = expand %3 : f32[4]\n%5 = mul %1, %4 : f32[4]\nreturn %5\n",
                           "%1 = input 0 : f32[6]\n%2 = input 1 : f32[1]\n%3 = sqrt %2 : f32[1]\n%4 = expand %3 : f32[6]\n%5 = mul %1, %4 : f32[6]\nreturn %5\n"};
    const uint32_t handed[] = {0, 1, 1};
    kin_ir_common common = {0};
    for (int i = 0; i < 3; i++) {
        kin_text why = {0};
        kin_ir *p = kin_ir_parse(texts[i], &why);
        kin_ir_hoisted h = {0};
        CHECK(p != NULL && kin_ir_hoist(p, (bool[]){false, true}, &common, &h) == KIN_OK && h.count == handed[i]);
        kin_ir_hoisted_deinit(&h);
        kin_ir_free(p);
        kin_text_deinit(&why);
    }
    CHECK(common.kinds.len == 2);
    kin_ir_common_deinit(&common);
}

int
main(void)
{
    test_weights_alone();
    test_nothing_frozen();
    test_outputs_and_views();
    test_values();
    test_what_sizes_have_in_common();
    test_other_operations_meet_apart();
    return check_report("hoist");
}
