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

enum { INPUTS = 5, NUMBERS = 16 };

/* All of them sizes in a dim. */
static kin_sizes *
new_sizes(uint32_t ninputs, uint32_t nnumbers)
{
    bool dims[64];
    memset(dims, true, sizeof dims);
    return kin_sizes_new(ninputs, nnumbers, dims, dims);
}


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
    out[11] = bits_of((double)(b * t) / (double)(b * t - 1));
    out[13] = bits_of((double)(float)((double)(b * 8) / (double)t));
    out[14] = bits_of((double)(t + 5) / (double)t);
    out[15] = b * (t + 8) * (t + 8);
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
    kin_sizes *s = new_sizes(INPUTS, NUMBERS);
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

/* -- strides, pools, chunks, and more sizes ---------------------------------------------------------------------------------------- */

enum { MAPS = 5, DIMS = 3 };

/* A batch of images of two sizes, and what three layers with strides leave of them; patches; everything multiplied as buffers and strides are. */
static void
maps_of(const int64_t *in, const int64_t *stride, const int64_t *pad, int64_t *out)
{
    int64_t h = in[1], w = in[2], n = 0;
    for (unsigned layer = 0; layer < 3; layer++) {
        h = (h + pad[layer]) / stride[layer];
        w = (w + pad[layer]) / stride[layer];
        out[n++] = h;
        out[n++] = w;
        out[n++] = 16 * h * w;
        out[n++] = in[0] * h * w * 4;
        out[n++] = (h + 2) * (w + 2);
    }
}

static void
test_strides(void)
{
    enum { NUMBERS_OF_MAPS = 3 * MAPS };
    for (int k = 0; k < 60; k++) {
        int64_t stride[3], pad[3];
        for (unsigned layer = 0; layer < 3; layer++) {
            stride[layer] = 1 + below(3);
            pad[layer] = below(stride[layer] + 1);
        }
        kin_sizes *s = new_sizes(DIMS, NUMBERS_OF_MAPS);
        int answered = 0;
        for (int c = 0; c < 200 && s != NULL; c++) {
            int64_t in[DIMS] = {1 + below(7), 60 + below(140), 220 + below(140)}, want[NUMBERS_OF_MAPS], got[NUMBERS_OF_MAPS];
            maps_of(in, stride, pad, want);
            if (kin_sizes_eval(s, in, got)) {
                answered++;
                for (unsigned n = 0; n < NUMBERS_OF_MAPS; n++)
                    CHECK_EQ(got[n], want[n]);
            } else {
                CHECK(kin_sizes_add(s, in, want));
            }
        }
        CHECK(answered > 60);
        kin_sizes_free(s);
    }
}

/* An answer that the plans so far leave open is none. */
static void
test_what_a_stride_leaves_open(void)
{
    static const int64_t sizes[] = {16, 32, 48, 64, 80, 96};
    int64_t n = 0, odd;
    kin_sizes *s = new_sizes(1, 1);
    for (unsigned k = 0; k < 6; k++)
        CHECK(kin_sizes_add(s, &sizes[k], &(int64_t){(sizes[k] + 1) / 2 + (k == 5)})); /* the last is no half */
    CHECK(!kin_sizes_eval(s, &sizes[1], &n));
    kin_sizes_free(s);
    s = new_sizes(1, 1);
    for (int64_t k = 10; k < 24; k += 2)
        CHECK(kin_sizes_add(s, &k, &(int64_t){k / 4}));
    odd = 13;
    CHECK(kin_sizes_eval(s, &odd, &n) && n == 3); /* only even ones were met, but (13 + 1) / 4 is 3 as well */
    odd = 14;
    CHECK(kin_sizes_eval(s, &odd, &n) && n == 3);
    odd = 15;
    CHECK(!kin_sizes_eval(s, &odd, &n)); /* (15 + 1) / 4 is not */
    CHECK(kin_sizes_add(s, &odd, &(int64_t){3}));
    odd = 13;
    CHECK(kin_sizes_eval(s, &odd, &n) ? n == 3 : true);
    kin_text text = {0};
    CHECK(kin_sizes_print(s, &text));
    CHECK_STR(text.at, "input 0 = 1*s0\nnumber 0 = 1*[(s0 + 0) / 4]\n");
    kin_text_deinit(&text);
    kin_sizes_free(s);
}

/* Several layers with strides: divided by more than is looked for, but by few each time. */
static void
test_what_strides_leave(void)
{
    kin_sizes *s = new_sizes(1, 2);
    int64_t n[2];
    for (int64_t k = 0; k < 14; k++) {
        int64_t size = 1000 + k * k * 37, once = (size - 10) / 50 + 1;
        CHECK(kin_sizes_add(s, &size, (int64_t[]){once, (once - 3) / 3 + 1}));
    }
    unsigned answered = 0;
    for (int64_t size = 1000; size < 7000; size += 7) {
        bool known = kin_sizes_eval(s, &size, n);
        int64_t once = (size - 10) / 50 + 1;
        CHECK(!known || (n[0] == once && n[1] == (once - 3) / 3 + 1));
        answered += known;
    }
    CHECK(answered > 300);
    kin_sizes_free(s);
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

/* Memory of rows: some next to each other, of any number, and two of them any distance apart. Sums fit these as well as products do. */
static void
test_plans_on_two_lines(void)
{
    static const int64_t met[][2] = {{9, 4}, {2, 6}, {7, 4}, {2, 9}, {12, 4}, {2, 7}, {5, 4}, {2, 5}, {2, 12}, {3, 4}};
    int64_t n = 0;
    kin_sizes *s = new_sizes(2, 1);
    for (int i = 0; i < 10; i++)
        add(s, met[i][0], met[i][1], (met[i][0] - 1) * met[i][1] + 4);
    CHECK(asks(s, 2, 8, &n) && n == 12); /* on one of the lines, whatever the rule is */
    CHECK(asks(s, 6, 4, &n) && n == 24);
    CHECK(!asks(s, 8, 7, &n) && !asks(s, 4, 5, &n));
    add(s, 11, 11, 10 * 11 + 4);
    CHECK(asks(s, 8, 7, &n) && n == 7 * 7 + 4);
    CHECK(asks(s, 4, 5, &n) && n == 3 * 5 + 4);
    kin_sizes_free(s);
}

/* Batches that are filled up to twelve elements: what is five times as many is no constant. And lengths for which rows and elements lie on a line. */
static void
test_filled_batches(void)
{
    static const int64_t filled[][2] = {{2, 6}, {3, 4}, {4, 3}, {6, 2}, {12, 1}}, line[][2] = {{2, 8}, {3, 6}, {4, 5}, {6, 4}, {12, 3}};
    for (unsigned test = 0; test < 2; test++) {
        const int64_t(*met)[2] = test == 0 ? filled : line;
        int64_t n = 0;
        kin_sizes *s = new_sizes(2, 1);
        for (unsigned i = 0; i < 5; i++)
            add(s, met[i][0], met[i][1], 5 * met[i][0] * met[i][1]);
        CHECK(!asks(s, 3, 5, &n) && !asks(s, 5, 5, &n));
        CHECK(kin_sizes_wants_more(s));
        add(s, 10, 5, 250);
        add(s, 7, 7, 245);
        CHECK(asks(s, 4, 7, &n) && n == 140);
        CHECK(asks(s, 5, 5, &n) && n == 125);
        CHECK(!kin_sizes_wants_more(s));
        kin_sizes_free(s);
    }
}

/* What pools leave of two lengths, and all of it behind each other: as many of each in the first plans, or in sum, or one more. The lengths themselves lie anywhere. */
static void
test_pools_on_lines(void)
{
    for (int64_t line = 0; line < 4; line++) {
        kin_sizes *s = new_sizes(2, 4);
        unsigned answered = 0;
        state = 5;
        for (int call = 0; call < 200; call++) {
            int64_t p = 2 + below(9), q = line == 0 ? p : line == 1 ? p + 1 : line == 2 ? 14 - p : 3 * p - 2, got[4];
            int64_t in[2] = {2 * p + below(2), 3 * (call < 20 ? q : 2 + below(12)) + below(3)};
            p = in[0] / 2;
            q = in[1] / 3;
            int64_t want[4] = {p, q, p + q, 8 * p * q};
            if (!kin_sizes_eval(s, in, got)) {
                CHECK(kin_sizes_add(s, in, want));
                continue;
            }
            for (unsigned n = 0; n < 4; n++)
                CHECK_EQ(got[n], want[n]);
            answered++;
        }
        CHECK(answered > 60);
        kin_sizes_free(s);
    }
}

/* Two lengths of which as much is left in sum in the first plans: the sum is no constant, although nothing is made of their product. */
static void
test_sums_on_a_line(void)
{
    unsigned answered = 0;
    for (unsigned seed = 0; seed < 200; seed++) {
        kin_sizes *s = new_sizes(2, 4);
        state = seed * 7919 + 13;
        int64_t m = 2 + below(3), n = 2 + below(3), first = 8 + below(20);
        for (int call = 0; call < 60; call++) {
            int64_t p = 1 + below(12), q = call < first ? 14 - p : 1 + below(20), got[4];
            const int64_t in[2] = {m * p + below(m), n * q + below(n)}, want[4] = {p, q, p + q, 5 * (p + q)};
            if (!kin_sizes_eval(s, in, got)) {
                CHECK(kin_sizes_add(s, in, want));
                continue;
            }
            for (unsigned k = 0; k < 4; k++)
                CHECK_EQ(got[k], want[k]);
            answered++;
        }
        kin_sizes_free(s);
    }
    CHECK(answered > 4000);
}

static void
test_what_is_not_answered(void)
{
    int64_t n = 0;
    kin_sizes *s = new_sizes(2, 1);
    CHECK(!asks(s, 8, 8, &n) && kin_sizes_wants_more(s));
    add(s, 8, 8, 64);
    add(s, 24, 24, 192);
    add(s, 16, 16, 128);
    add(s, 40, 40, 320);
    CHECK(asks(s, 32, 32, &n) && n == 256);
    CHECK(asks(s, 33, 33, &n) && n == 264); /* though all met were multiples of 8 */
    CHECK(!asks(s, 48, 48, &n));  /* above all met */
    CHECK(!asks(s, 0, 0, &n));
    CHECK(!asks(s, 32, 16, &n)); /* both were equal */
    add(s, 33, 33, 264);
    CHECK(asks(s, 31, 31, &n) && n == 248);
    add(s, 32, 16, 256);          /* the second is a size of its own */
    CHECK(!asks(s, 16, 32, &n)); /* it was never greater than the first */
    add(s, 16, 32, 128);
    CHECK(asks(s, 24, 31, &n) && n == 192);
    CHECK(!asks(s, 16, 41, &n));
    kin_sizes_free(s);
}

/* What programs ask: number 0 is made of the size, numbers 1 to 3 are a, b and what is given. */
static void
test_what_programs_ask(void)
{
    int64_t n[4] = {0}, size;
    kin_sizes *s = new_sizes(1, 4);
    CHECK(kin_sizes_ask(s, KIN_SIZES_REMAINDER, 1));
    for (int64_t k = 3; k < 30; k += 3)
        CHECK(kin_sizes_add(s, &k, (int64_t[]){8 * k, k, 3, 0}));
    size = 15;
    CHECK(kin_sizes_eval(s, &size, n) && n[0] == 120 && n[3] == 0);
    size = 16;
    CHECK(!kin_sizes_eval(s, &size, n)); /* all plans were for multiples of 3 */
    size = 7;
    CHECK(kin_sizes_add(s, &size, (int64_t[]){56, 7, 3, 1}));
    CHECK(!kin_sizes_eval(s, &size, n)); /* and now nothing gives the remainder */
    kin_sizes_free(s);
    s = new_sizes(1, 4);
    CHECK(kin_sizes_ask(s, KIN_SIZES_DIVIDES, 1));
    for (int64_t k = 8; k < 40; k += 2)
        CHECK(kin_sizes_add(s, &k, (int64_t[]){8 * k, 3 * k, 4, 0}));
    size = 28;
    CHECK(kin_sizes_eval(s, &size, n) && n[0] == 224 && n[1] == 84);
    size = 30;
    CHECK(kin_sizes_eval(s, &size, n)); /* 90 is no multiple of 4, as 30 was not */
    kin_sizes_free(s);
    s = new_sizes(1, 4);
    CHECK(kin_sizes_ask(s, KIN_SIZES_DIVIDES, 1));
    for (int64_t k = 8; k < 40; k += 4)
        CHECK(kin_sizes_add(s, &k, (int64_t[]){8 * k, k, 4, 0}));
    CHECK(!kin_sizes_eval(s, &size, n)); /* all plans were for multiples of 4 */
    size = 24;
    CHECK(kin_sizes_eval(s, &size, n) && n[0] == 192);
    kin_sizes_free(s);
    s = new_sizes(1, 4);
    CHECK(kin_sizes_ask(s, KIN_SIZES_EXTREME, 1));
    for (int64_t k = 2; k < 9; k++)
        CHECK(kin_sizes_add(s, &k, (int64_t[]){8 * k, k, 10, k}));
    size = 6;
    CHECK(kin_sizes_eval(s, &size, n) && n[3] == 6); /* min(6, 10) */
    size = 12;
    CHECK(kin_sizes_add(s, &size, (int64_t[]){96, 12, 10, 10}));
    size = 6;
    CHECK(!kin_sizes_eval(s, &size, n));
    kin_sizes_free(s);
    s = new_sizes(1, 4);
    CHECK(kin_sizes_ask(s, KIN_SIZES_VALUE, 1));
    for (int64_t k = 2; k < 9; k++)
        CHECK(kin_sizes_add(s, &k, (int64_t[]){8 * k, k, 0, 0}));
    CHECK(kin_sizes_eval(s, &size, n)); /* 6 was met */
    kin_sizes_free(s);
}

/* A size that took three values fits whatever depends on something else. */
static void
test_what_is_not_believed(void)
{
    int64_t n = 0;
    static const int64_t rows[][2] = {{2, 40}, {3, 5}, {4, 60}, {2, 31}, {4, 21}, {3, 3}, {2, 70}, {4, 9}};
    kin_sizes *s = new_sizes(2, 1);
    for (unsigned k = 0; k < 8; k++)
        add(s, rows[k][0], rows[k][1], rows[k][1] < 7 ? 5 : 7); /* by accident, 3 goes with few */
    CHECK(!asks(s, 3, 50, &n));
    kin_sizes_free(s);
}

/* Of a size with two values, a line says nothing, however many the other one has had: t * (t - 1) + 1 bytes of a transposed matrix, and one of its rows. */
static void
test_two_values_of_a_size(void)
{
    int64_t n = 0;
    kin_sizes *s = new_sizes(2, 1);
    for (int64_t row = 2; row < 14; row++)
        add(s, row < 5 ? 7 : 16, row, row < 5 ? 7 * 6 + 1 : 16 * 15 + 1);
    CHECK(!asks(s, 9, 3, &n));
    add(s, 11, 3, 11 * 10 + 1);
    add(s, 14, 4, 14 * 13 + 1);
    CHECK(!asks(s, 9, 3, &n) || n == 9 * 8 + 1);
    kin_sizes_free(s);
}

/* view(b, -1) of a size: what each of b gets of it is no polynomial, but sums go through a few plans for one of b, and for as many as there are. */
static void
test_what_is_shared_out(void)
{
    static const int64_t alone[] = {35, 40, 7, 34, 24}, rows[][2] = {{6, 2}, {20, 2}, {12, 3}, {15, 5}, {40, 4}};
    int64_t n = 0;
    kin_sizes *s = new_sizes(2, 1);
    for (unsigned k = 0; k < 5; k++)
        add(s, alone[k], 1, alone[k]);
    add(s, 2, 2, 1);
    CHECK(!asks(s, 16, 2, &n)); /* 16 - 2 + 1 */
    add(s, 4, 4, 1);
    CHECK(!asks(s, 16, 2, &n));
    for (unsigned k = 0; k < 5; k++)
        add(s, rows[k][0], rows[k][1], rows[k][0] / rows[k][1]);
    CHECK(asks(s, 16, 2, &n) && n == 8);
    CHECK(asks(s, 30, 5, &n) && n == 6);
    CHECK(asks(s, 3, 3, &n) && n == 1);
    CHECK(!asks(s, 19, 3, &n) && !asks(s, 0, 0, &n));
    kin_text text = {0};
    CHECK(kin_sizes_print(s, &text));
    CHECK_STR(text.at, "input 0 = 1*s0\ninput 1 = 1*s1\nnumber 0 = 1*[s0 / s1]\n");
    kin_text_deinit(&text);
    kin_sizes_free(s);
}

/* Of several terms, one is decided by a single plan; or only by plans for sizes of 1. */
static void
test_what_no_other_plan_confirms(void)
{
    static const int64_t rows[][2] = {{9, 4}, {20, 4}, {13, 4}, {31, 4}, {17, 4}, {22, 7}};
    int64_t n = 0;
    kin_sizes *s = new_sizes(2, 1);
    for (unsigned k = 0; k < 6; k++)
        add(s, rows[k][0], rows[k][1], rows[k][0] + 5 * rows[k][1]);
    CHECK(!asks(s, 15, 7, &n));
    add(s, 18, 7, 53);
    CHECK(asks(s, 15, 7, &n) && n == 50);
    kin_sizes_free(s);
    s = new_sizes(2, 1);
    for (unsigned k = 0; k < 6; k++)
        add(s, rows[k][0], 1, rows[k][0] + 5);
    add(s, 20, 4, 40);
    add(s, 22, 7, 57);
    CHECK(!asks(s, 21, 5, &n));
    add(s, 30, 7, 65);
    CHECK(asks(s, 21, 5, &n) && n == 46);
    kin_sizes_free(s);
}

static bool
widens(kin_sizes *s, int64_t a, int64_t b, int64_t *far)
{
    int64_t in[] = {a, b};
    return kin_sizes_widen(s, in, far);
}

/* Products of sizes that lie outside, though the sizes do not, and remainders. */
static void
test_products_that_grow(void)
{
    int64_t in[2] = {0};
    kin_sizes *s = new_sizes(2, 1);
    add(s, 4, 90, 360);
    add(s, 8, 30, 240);
    add(s, 6, 60, 360);
    add(s, 2, 70, 140);
    CHECK(widens(s, 8, 90, in) && in[0] == 14 && in[1] == 126); /* at first far away, all of them */
    CHECK(widens(s, 7, 60, in) && in[0] == 15 && in[1] == 126);
    kin_sizes_in_vain(s);
    CHECK(!widens(s, 8, 90, in)); /* the largest ones themselves */
    CHECK(widens(s, 6, 80, in) && in[0] == 8 && in[1] == 90);
    CHECK(widens(s, 10, 90, in) && in[0] == 14 && in[1] == 90);
    CHECK(widens(s, 7, 60, in) && in[0] == 8 && in[1] == 90);
    add(s, 20, 16, 320);
    add(s, 22, 14, 308);
    CHECK(widens(s, 100, 120, in) && in[0] == 254 && in[1] == 252); /* not the same, as these are not */
    CHECK(widens(s, 98, 98, in) && in[0] == 254 && in[1] == 254);
    kin_sizes_free(s);
}

static void
test_sizes_that_grow(void)
{
    int64_t n = 0, in[2] = {0};
    kin_sizes *s = new_sizes(2, 1);
    for (int64_t t = 16; t < 19; t++)
        add(s, t, t + 1, 5 * t);
    CHECK(!widens(s, 17, 18, in));                                  /* nothing is to be widened */
    CHECK(widens(s, 19, 20, in) && in[0] == 31 && in[1] == 32);
    CHECK(widens(s, 31, 32, in) && in[0] == 63 && in[1] == 64);     /* the end of its range, hence the next one's */
    CHECK(widens(s, 11, 12, in) && in[0] == 2 && in[1] == 3);       /* far below; nearer once that was in vain */
    kin_sizes_in_vain(s);
    CHECK(widens(s, 11, 12, in) && in[0] == 8 && in[1] == 9);
    CHECK(!widens(s, 8, 9, in) && !widens(s, 1, 2, in));            /* the beginning; 1 is a case of its own */
    CHECK(!widens(s, 40, 40, in));                                  /* these are no such sizes */
    add(s, 63, 64, 315);
    CHECK(asks(s, 30, 31, &n) && n == 150);
    kin_sizes_in_vain(s);
    kin_sizes_in_vain(s);
    CHECK(!widens(s, 64, 65, in));
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
    test_strides();
    test_what_a_stride_leaves_open();
    test_what_strides_leave();
    test_plans_on_two_lines();
    test_filled_batches();
    test_pools_on_lines();
    test_sums_on_a_line();
    test_what_is_not_answered();
    test_what_programs_ask();
    test_what_is_not_believed();
    test_two_values_of_a_size();
    test_what_is_shared_out();
    test_what_no_other_plan_confirms();
    test_products_that_grow();
    test_sizes_that_grow();
    return check_report("test_sizes");
}
