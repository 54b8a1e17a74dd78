/* Which of two ways is faster, on a machine that others use in bursts: what is faster stays, what is slower goes in the end, and few
 * calls are spent on asking. */
#include "core/tier/abtest.h"

#include "check.h"

enum { TRIALS = 7, USES = 20000, SEEDS = 200 };

static unsigned state, burst;

static unsigned
draw(unsigned below)
{
    state = state * 1664525u + 1013904223u;
    return (state >> 8) % below;
}

/* A third of the time in bursts of up to thirty calls, in which calls take up to ten times as long. */
static double
read_clock(double ns)
{
    if (burst == 0 && draw(30) == 0)
        burst = 1 + draw(30);
    if (burst == 0)
        return ns * (1 + draw(20) / 1000.0);
    burst--;
    return ns * (1.5 + draw(850) / 100.0);
}

/* True: ours was kept to the end. *spent: calls of the slower way while it was asked. */
static bool
run(double ratio, unsigned seed, int *spent)
{
    kin_abtest d = {0};
    state = seed * 7919 + 3;
    burst = 0;
    *spent = 0;
    for (int i = 0; i < USES; i++) {
        kin_abtest_use(&d);
        if (d.decided)
            continue;
        bool theirs = kin_abtest_is_theirs(&d);
        *spent += theirs == (ratio < 1);
        if (kin_abtest_note(&d, theirs, read_clock(theirs ? 1000 : 1000 * ratio), TRIALS) == KIN_ABTEST_DROP)
            return false;
    }
    return true;
}

static void
test_ratio(double ratio, int kept_at_least, int kept_at_most, int spent_at_most)
{
    int kept = 0, worst = 0;
    for (unsigned seed = 1; seed <= SEEDS; seed++) {
        int spent;
        kept += run(ratio, seed, &spent);
        worst = spent > worst ? spent : worst;
    }
    if (!CHECK(kept >= kept_at_least) || !CHECK(kept <= kept_at_most) || !CHECK(worst <= spent_at_most))
        fprintf(stderr, "    ratio %.2f: kept in %d of %d, at most %d calls of the slower way\n", ratio, kept, SEEDS, worst);
}

/* Quiet: two calls of each, and the one that warms up. */
static void
test_soon(void)
{
    kin_abtest d = {0};
    int calls = 0;
    while (!d.decided && calls < 100) {
        bool theirs = kin_abtest_is_theirs(&d);
        CHECK(calls > 0 || theirs);
        CHECK(kin_abtest_note(&d, theirs, theirs ? 1000 : calls < 2 ? 1e6 : 100, TRIALS) != KIN_ABTEST_DROP);
        calls++;
    }
    CHECK_EQ(calls, 5);
    CHECK_EQ(d.nours, 2);
    CHECK_EQ(d.ntheirs, 2);
}

/* Both in one call: one run of each where that is clear and nobody else had the processor. */
static void
test_both(void)
{
    kin_abtest far = {0}, disturbed = {0}, close = {0};
    CHECK_EQ(kin_abtest_note_both(&far, 500, 1000, false, TRIALS), KIN_ABTEST_KEEP);
    CHECK(far.decided && far.uses > 0 && far.nours == 1 && far.ntheirs == 1);
    CHECK_EQ(kin_abtest_note_both(&disturbed, 500, 1000, true, TRIALS), KIN_ABTEST_OPEN);
    CHECK_EQ(kin_abtest_note_both(&close, 950, 1000, false, TRIALS), KIN_ABTEST_OPEN);
    CHECK_EQ(kin_abtest_note_both(&close, 850, 1000, false, TRIALS), KIN_ABTEST_OPEN);
    CHECK_EQ(kin_abtest_note_both(&close, 850, 1000, false, TRIALS), KIN_ABTEST_KEEP);
}

/* Both cost a call three times its time: no answer takes long. */
static void
test_both_in_doubt(double ratio, kin_abtest_end expected, int most)
{
    kin_abtest d = {0};
    kin_abtest_end end = KIN_ABTEST_OPEN;
    int calls = 0;
    for (; end == KIN_ABTEST_OPEN && calls < 100; calls++)
        end = kin_abtest_note_both(&d, 1000 * ratio, 1000, false, 3);
    CHECK(end == expected && d.decided && d.uses > 0);
    CHECK_EQ(calls, most);
}

/* What takes long is run once for the comparison; uses by the program tell the rest. */
static void
test_uses(void)
{
    kin_abtest near = {0}, disturbed = {0}, slow = {0};
    CHECK_EQ(kin_abtest_note_once(&near, 1090, 1000, false), KIN_ABTEST_KEEP);
    CHECK(near.decided && near.uses > 0 && near.ours == 1090);
    CHECK_EQ(kin_abtest_note_once(&disturbed, 500, 1000, true), KIN_ABTEST_OPEN);
    CHECK_EQ(kin_abtest_note_uses(&disturbed, 600, 1, 3), KIN_ABTEST_KEEP);
    CHECK_EQ(kin_abtest_note_once(&slow, 1300, 1000, false), KIN_ABTEST_OPEN);
    for (uint32_t n = 1; n < 6; n++)
        CHECK_EQ(kin_abtest_note_uses(&slow, 1200, n, 3), KIN_ABTEST_OPEN);
    CHECK_EQ(kin_abtest_note_uses(&slow, 1200, 6, 3), KIN_ABTEST_DROP);
    while (near.decided)
        kin_abtest_use(&near);
    CHECK_EQ(kin_abtest_note_once(&near, 0, 1000, false), KIN_ABTEST_OPEN); /* ours was not run */
    CHECK_EQ(kin_abtest_note_uses(&near, 1090, 1, 3), KIN_ABTEST_OPEN);     /* a later check is stricter */
    CHECK_EQ(kin_abtest_note_uses(&near, 1020, 2, 3), KIN_ABTEST_KEEP);
}

int
main(void)
{
    test_ratio(0.1, SEEDS, SEEDS, 60);
    test_ratio(0.6, SEEDS * 98 / 100, SEEDS, 60);
    test_ratio(0.9, SEEDS * 95 / 100, SEEDS, 100);
    test_ratio(1.15, 0, SEEDS * 5 / 100, 200);
    test_ratio(2, 0, SEEDS * 2 / 100, 200);
    test_soon();
    test_both();
    test_uses();
    test_both_in_doubt(0.95, KIN_ABTEST_KEEP, 4); /* the first run of ours is not counted */
    test_both_in_doubt(1.05, KIN_ABTEST_KEEP, 4);
    test_both_in_doubt(1.2, KIN_ABTEST_DROP, 7);
    test_both_in_doubt(2, KIN_ABTEST_DROP, 7);
    kin_abtest d = {0};
    kin_abtest_give_up(&d);
    for (int i = 0; i < 1000; i++)
        kin_abtest_use(&d);
    CHECK(d.decided);
    return check_report("abtest");
}
