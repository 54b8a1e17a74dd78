/* Polynomials through the numbers of plans (core/program/sizes.h), against brute force: random functions of sizes, some of which decide by what lies
 * between limits, by rests or by order. Whatever is answered has to be what the function gives. */
#include "core/program/sizes.h"

#include <math.h>
#include <stdlib.h>

#include "check.h"

static uint64_t state = 1;

static int64_t
below(int64_t n)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (int64_t)((state >> 33) % (uint64_t)n);
}

static int64_t
bits_of(double d)
{
    int64_t bits;
    memcpy(&bits, &d, sizeof bits);
    return bits;
}

/* -- functions as plans have them ------------------------------------------------------------------------------------------ */

enum { INPUTS = 5, NUMBERS = 12 };

/* Tensors of [b, t, 8] and [t + more], and their strides. */
static void
inputs_of(int64_t b, int64_t t, int64_t more, int64_t *in)
{
    in[0] = b;
    in[1] = t;
    in[2] = t * 8;
    in[3] = 8;
    in[4] = t + more;
}

typedef struct {
    int64_t of[NUMBERS], more;
    bool halves, limits, pads, orders;
} plan;

static void
numbers_of(const plan *p, int64_t b, int64_t t, int64_t *out)
{
    for (unsigned k = 0; k < NUMBERS; k++)
        out[k] = p->of[k];
    out[0] = b * t * p->of[0];
    out[1] = t * t + p->of[1];
    out[2] = (t + 1) * p->of[2] + b;
    out[3] = bits_of(1.0 / (double)(t * 8));
    out[4] = bits_of((double)(float)(1.0 / (double)t));
    out[5] = bits_of((double)(b * t));
    out[6] = p->halves ? (t + 1) / 2 : t * 2;
    out[7] = p->limits ? (t < p->of[7] ? t : p->of[7]) : b * t * t;
    out[8] = p->pads ? (t + 15) / 16 * 16 : t - p->of[8];
    out[9] = p->orders && b * 8 > t ? b * 8 : t;
    out[10] = b * 8;
}

static plan
random_plan(void)
{
    plan p = {.more = below(4), .halves = below(3) == 0, .limits = below(3) == 0, .pads = below(3) == 0, .orders = below(3) == 0};
    for (unsigned k = 0; k < NUMBERS; k++)
        p.of[k] = 1 + below(100);
    return p;
}

static bool
is_plain(const plan *p)
{
    return !p->halves && !p->limits && !p->pads && !p->orders;
}

/* How many of `calls` were answered; each answer is looked at. */
static int
answers(const plan *p, bool two, int calls, int64_t least, int64_t range)
{
    kin_sizes *s = kin_sizes_new(INPUTS, NUMBERS);
    int answered = 0;
    for (int c = 0; c < calls && s != NULL; c++) {
        int64_t b = two ? 1 + below(6) : 3, t = least + below(range), in[INPUTS], want[NUMBERS], got[NUMBERS];
        inputs_of(b, t, p->more, in);
        numbers_of(p, b, t, want);
        if (kin_sizes_eval(s, in, got)) {
            answered++;
            for (unsigned k = 0; k < NUMBERS; k++)
                CHECK_EQ(got[k], want[k]);
        } else {
            CHECK(kin_sizes_add(s, in, want));
        }
    }
    kin_sizes_free(s);
    return answered;
}

static void
test_plain_plans(void)
{
    for (int k = 0; k < 60; k++) {
        plan p = {.more = k % 3};
        for (unsigned n = 0; n < NUMBERS; n++)
            p.of[n] = 1 + below(100);
        CHECK(answers(&p, false, 80, 2, 200) > 50);
        CHECK(answers(&p, true, 120, 9, 90) > 60);
    }
}

/* Halves, the lesser and the greater of two, what is filled up to a multiple: no polynomial goes through all of it, but one goes through parts. */
static void
test_plans_that_decide(void)
{
    for (int k = 0; k < 400; k++) {
        plan p = random_plan();
        int n = answers(&p, k % 2, 60, 2, 120);
        CHECK(!is_plain(&p) || n > 0);
    }
}

/* -- single questions ---------------------------------------------------------------------------------------------------------- */

static void
add(kin_sizes *s, int64_t a, int64_t b, int64_t n)
{
    CHECK(kin_sizes_add(s, (int64_t[]){a, b}, &n));
}

static bool
asks(kin_sizes *s, int64_t a, int64_t b, int64_t *n)
{
    return kin_sizes_eval(s, (int64_t[]){a, b}, n);
}

static void
test_what_is_not_answered(void)
{
    int64_t n = 0;
    kin_sizes *s = kin_sizes_new(2, 1);
    CHECK(!asks(s, 8, 8, &n) && kin_sizes_wants_more(s));
    add(s, 8, 8, 64);
    add(s, 24, 24, 192);
    add(s, 16, 16, 128);
    add(s, 40, 40, 320);
    CHECK(asks(s, 32, 32, &n) && n == 256);
    CHECK(!asks(s, 33, 33, &n));  /* all met were multiples of 8 */
    CHECK(!asks(s, 48, 48, &n));  /* above all met */
    CHECK(!asks(s, 0, 0, &n));
    CHECK(!asks(s, 32, 16, &n)); /* both were equal */
    add(s, 33, 33, 264);
    CHECK(asks(s, 31, 31, &n) && n == 248);
    add(s, 32, 16, 256);          /* the second is a size of its own */
    CHECK(asks(s, 16, 32, &n) && n == 128);
    CHECK(!asks(s, 16, 41, &n));
    kin_sizes_free(s);
}

static void
test_sizes_that_grow(void)
{
    int64_t n = 0, in[2] = {0};
    kin_sizes *s = kin_sizes_new(2, 1);
    for (int64_t t = 16; t < 19; t++)
        add(s, t, t + 1, 5 * t);
    CHECK(kin_sizes_ahead(s, in) && in[0] == 36 && in[1] == 37);
    CHECK(!kin_sizes_ahead(s, in)); /* asked before */
    add(s, 36, 37, 180);
    CHECK(asks(s, 30, 31, &n) && n == 150);
    kin_text text = {0};
    CHECK(kin_sizes_print(s, &text));
    CHECK_STR(text.at, "input 0 = 1*s0\ninput 1 = 1*s0 + 1\nnumber 0 = 5*s0\n");
    kin_text_deinit(&text);
    add(s, 20, 21, 101);
    CHECK(!asks(s, 30, 31, &n)); /* it was no rule */
    kin_sizes_free(s);
}

int
main(void)
{
    test_plain_plans();
    test_plans_that_decide();
    test_what_is_not_answered();
    test_sizes_that_grow();
    return check_report("test_sizes");
}
