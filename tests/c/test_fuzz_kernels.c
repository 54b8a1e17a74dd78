/* Random programs, compiled for their sizes and then for any (with every number open: programs of one shape share that code), against the oracle;
 * those whose sizes are symbols over several values of these besides, 0 and 1 included, with the code that a family makes for all of them. Arguments: first seed, count (1, 60), processor (this
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

static void
print_failure(uint64_t seed, const kin_ir *p, const kin_text *why)
{
    kin_text text = {0};
    kin_ir_print(p, &text);
    fprintf(stderr, "seed %llu\n%s\n%s\n", (unsigned long long)seed, text.at ? text.at : "", why->at ? why->at : "");
    kin_text_deinit(&text);
}

static void
check_other_sizes(kin_jit *jit, uint64_t seed, kin_text *why)
{
    enum { TIMES = 4 };
    static const int64_t some[] = {0, 1, 2, 3, 5, 7, 12, 16, 31, 40, 65, 4};
    run_random r = {seed * 77 + 1};
    kin_family *family = kin_family_new(false);
    for (unsigned k = 0; k < TIMES; k++) {
        int64_t symbols[RANDOM_SYMBOLS];
        for (unsigned i = 0; i < RANDOM_SYMBOLS; i++)
            symbols[i] = some[run_next(&r) % (sizeof some / sizeof *some)];
        kin_ir *p = random_ir_of(seed, symbols);
        kin_text_clear(why);
        if (!CHECK(!p->failed && kin_ir_verify(p, why)) || !CHECK(run_family_against_oracle(jit, family, p, seed, why)))
            print_failure(seed, p, why);
        kin_ir_free(p);
    }
    kin_family_free(family);
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
        kin_ir *p = make_program(s, halves);
        kin_text_clear(&why);
        kin_family *any = kin_family_new(true);
        if (!CHECK(!p->failed && kin_ir_verify(p, &why)) || !CHECK(run_against_oracle(jit, p, s, &why)) ||
            !CHECK(run_family_against_oracle(jit, any, p, s, &why)))
            print_failure(s, p, &why);
        kin_family_free(any);
        kin_ir_free(p);
        if (s % 2)
            check_other_sizes(jit, s, &why);
    }
    kin_text_deinit(&why);
    kin_jit_free(jit);
    return check_report("fuzz_kernels");
}
