/* Random programs, compiled for their sizes and then for any (with every number open: programs of one shape share that code), against the oracle.
 * Arguments: first seed, count (1, 60), processor (this
 * one; x86-64-v3, x86-64). A program that fails is printed. */
#include "random_ir.h"
#include "gen_ir.h"
#include "check.h"

/* Two makers: one of plain dtypes with everything broadcast, one with half precision, gathers, scatters, pads and long dims. */
static kin_ir *
make_program(uint64_t seed, bool halves)
{
    gen_options mixed = {.nodes = 14, .max_size = 9, .halves = halves, .big = true};
    return seed % 2 ? random_ir(seed) : gen_ir(seed, &mixed);
}

int
main(int argc, char **argv)
{
    kin_text why = {0};
    uint64_t seed = argc > 1 ? strtoull(argv[1], NULL, 10) : 1, count = argc > 2 ? strtoull(argv[2], NULL, 10) : 60;
    kin_jit_options options = {.cpu = argc > 3 ? argv[3] : NULL};
    bool halves = options.cpu == NULL || strcmp(options.cpu, "x86-64") != 0; /* which has no instructions for them */
    kin_jit *jit = kin_jit_new(&options, &why);
    if (jit == NULL) {
        printf("fuzz_kernels: skipped, %s\n", why.at);
        kin_text_deinit(&why);
        return 77;
    }
    for (uint64_t s = seed; s < seed + count; s++) {
        kin_text text = {0};
        kin_ir *p = make_program(s, halves);
        kin_text_clear(&why);
        kin_family *any = kin_family_new(true);
        if (!CHECK(!p->failed && kin_ir_verify(p, &why)) || !CHECK(run_against_oracle(jit, p, s, &why)) ||
            !CHECK(run_family_against_oracle(jit, any, p, s, &why))) {
            kin_ir_print(p, &text);
            fprintf(stderr, "seed %llu\n%s\n%s\n", (unsigned long long)s, text.at ? text.at : "", why.at ? why.at : "");
        }
        kin_family_free(any);
        kin_text_deinit(&text);
        kin_ir_free(p);
    }
    kin_text_deinit(&why);
    kin_jit_free(jit);
    return check_report("fuzz_kernels");
}
