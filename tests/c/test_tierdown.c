/* Which way is faster, told on a machine that is busy with other things and from calls that differ in what they do: what counts is the
 * time that all calls take together, against the better of the two ways, and not what single trials say. */
#include "core/tier/remake.h"
#include "core/tier/trace_budget.h"
#include "core/tier/tierdown.h"

#include <stdlib.h>

#include "check.h"

enum { CALLS = 30000, SEEDS = 20 };

/* How calls are: time of a replay over that of an eager call, how much work differs from call to call, and whether it comes in turns. */
typedef struct {
    double ratio;
    int spread; /* calls do 1 to `spread` times the least work */
    bool in_turns;
    int turns_at; /* from this call on the ratio is the inverse; 0: never */
} world;

static unsigned state;

static unsigned
draw(unsigned below)
{
    state = state * 1664525u + 1013904223u;
    return (state >> 8) % below;
}

/* A quarter of the clock's readings is of moments in which others had the processor. */
static double
read_clock(double ns)
{
    return draw(4) == 0 ? ns * (1.2 + draw(900) / 100.0) : ns * (1 + draw(30) / 1000.0);
}

/* All calls' time over that of the better way. */
static double
run(const world *w, unsigned seed)
{
    kin_tierdown tierdown;
    kin_tierdown_init(&tierdown);
    state = seed * 977 + 1;
    double took = 0, best = 0;
    for (int i = 0; i < CALLS; i++) {
        double ratio = w->turns_at != 0 && i >= w->turns_at ? 1 / w->ratio : w->ratio;
        double work = 1000.0 * (w->in_turns ? 1 + i % 2 * (w->spread - 1) : 1 + (int)draw((unsigned)w->spread));
        kin_tierdown_turn turn = kin_tierdown_replays(&tierdown) ? KIN_TIERDOWN_REPLAY : kin_tierdown_next(&tierdown);
        bool eager = turn == KIN_TIERDOWN_EAGER || turn == KIN_TIERDOWN_TIME_EAGER;
        took += work * (eager ? 1 : ratio);
        best += work * (ratio < 1 ? ratio : 1);
        if (turn == KIN_TIERDOWN_TIME_EAGER || turn == KIN_TIERDOWN_TIME_REPLAY)
            kin_tierdown_note(&tierdown, eager, read_clock(work * (eager ? 1 : ratio)), 0);
    }
    kin_tierdown_deinit(&tierdown);
    return took / best;
}

static void
test_world(world w, double limit)
{
    double sum = 0, worst = 0;
    for (unsigned seed = 1; seed <= SEEDS; seed++) {
        double lost = run(&w, seed);
        sum += lost;
        worst = lost > worst ? lost : worst;
    }
    if (!CHECK(sum / SEEDS < limit) || !CHECK(worst < 1 + 6 * (limit - 1)))
        fprintf(stderr, "    ratio %.2f, work 1 to %d%s: %.3f on average, %.3f at worst\n", w.ratio, w.spread,
                w.in_turns ? " in turns" : "", sum / SEEDS, worst);
}

/* Nothing is timed before it has run for a while, and seldom afterwards. */
static void
test_rarely(void)
{
    kin_tierdown tierdown;
    kin_tierdown_init(&tierdown);
    int timed = 0;
    for (int i = 0; i < CALLS; i++) {
        kin_tierdown_turn turn = kin_tierdown_replays(&tierdown) ? KIN_TIERDOWN_REPLAY : kin_tierdown_next(&tierdown);
        bool eager = turn == KIN_TIERDOWN_TIME_EAGER;
        CHECK(i >= 20 || turn == KIN_TIERDOWN_REPLAY);
        CHECK(turn != KIN_TIERDOWN_EAGER);
        timed += turn != KIN_TIERDOWN_REPLAY;
        if (turn != KIN_TIERDOWN_REPLAY)
            kin_tierdown_note(&tierdown, eager, eager ? 1000 + i % 3 : 500 + i % 3, 0);
    }
    CHECK(timed > 0 && timed < 200);
    CHECK(!tierdown.backed_off && tierdown.ratio > 0.49 && tierdown.ratio < 0.51);
    kin_tierdown_deinit(&tierdown);
}

/* Most calls of a comparison go to the side that is far ahead, however much calls differ: how many go to the other one until it has ended? */
static void
test_favours(double ratio)
{
    int better = 0, worse = 0;
    for (unsigned seed = 1; seed <= SEEDS; seed++) {
        kin_tierdown tierdown;
        kin_tierdown_init(&tierdown);
        state = seed * 977 + 1;
        int eager = 0, ours = 0;
        while (tierdown.pause == 0) {
            kin_tierdown_turn turn = kin_tierdown_replays(&tierdown) ? KIN_TIERDOWN_REPLAY : kin_tierdown_next(&tierdown);
            double work = 1000.0 * (1 + draw(5));
            eager += turn == KIN_TIERDOWN_TIME_EAGER;
            ours += turn == KIN_TIERDOWN_TIME_REPLAY;
            if (turn != KIN_TIERDOWN_REPLAY)
                kin_tierdown_note(&tierdown, turn == KIN_TIERDOWN_TIME_EAGER, turn == KIN_TIERDOWN_TIME_EAGER ? work : ratio * work, 0);
        }
        better += ratio < 1 ? ours : eager;
        worse += ratio < 1 ? eager : ours;
        CHECK_EQ(tierdown.backed_off, ratio > 1);
        kin_tierdown_deinit(&tierdown);
    }
    int fewest = ratio < 1 ? KIN_TIER_CLEAR_SAMPLES : KIN_TIER_SAMPLES, most = ratio < 1 ? KIN_TIER_SAMPLES : KIN_TIER_SAMPLES * 3 / 2;
    if (!CHECK(worse >= SEEDS * fewest && worse < SEEDS * most && better >= worse))
        fprintf(stderr, "    %d of the worse side, %d of the better one in %d comparisons\n", worse, better, SEEDS);
}

/* Calls of very different work need no more samples than equal ones, if it is known how much each has. */
static void
test_known_work(double ratio)
{
    int timed = 0;
    for (unsigned seed = 1; seed <= SEEDS; seed++) {
        kin_tierdown tierdown;
        kin_tierdown_init(&tierdown);
        state = seed * 977 + 1;
        while (tierdown.pause == 0) {
            kin_tierdown_turn turn = kin_tierdown_replays(&tierdown) ? KIN_TIERDOWN_REPLAY : kin_tierdown_next(&tierdown);
            double work = 1 + draw(100), ns = (500 + 100 * work) * (1 + draw(30) / 1000.0);
            timed += turn != KIN_TIERDOWN_REPLAY;
            if (turn != KIN_TIERDOWN_REPLAY)
                kin_tierdown_note(&tierdown, turn == KIN_TIERDOWN_TIME_EAGER, turn == KIN_TIERDOWN_TIME_EAGER ? ns : ratio * ns, work);
        }
        CHECK_EQ(tierdown.backed_off, ratio > 1);
        kin_tierdown_deinit(&tierdown);
    }
    CHECK(timed < SEEDS * 4 * KIN_TIER_SAMPLES);
}

/* Replays that say nothing are not noted: eager calls wait for those that do. */
static void
test_waits_for_replays(void)
{
    kin_tierdown tierdown;
    kin_tierdown_init(&tierdown);
    int eager = 0;
    for (int i = 0; i < 200; i++) {
        kin_tierdown_turn turn = kin_tierdown_replays(&tierdown) ? KIN_TIERDOWN_REPLAY : kin_tierdown_next(&tierdown);
        eager += turn == KIN_TIERDOWN_TIME_EAGER;
        if (turn == KIN_TIERDOWN_TIME_EAGER)
            kin_tierdown_note(&tierdown, true, 1000, 1);
    }
    CHECK(eager > 0 && eager <= KIN_TIER_AHEAD_SAMPLES + 1);
    kin_tierdown_deinit(&tierdown);
}

static void
test_tells_changes(void)
{
    kin_tierdown tierdown;
    kin_tierdown_init(&tierdown);
    int told = 0;
    for (int i = 0; i < CALLS; i++) {
        kin_tierdown_turn turn = kin_tierdown_replays(&tierdown) ? KIN_TIERDOWN_REPLAY : kin_tierdown_next(&tierdown);
        if (turn == KIN_TIERDOWN_TIME_EAGER || turn == KIN_TIERDOWN_TIME_REPLAY)
            told += kin_tierdown_note(&tierdown, turn == KIN_TIERDOWN_TIME_EAGER, turn == KIN_TIERDOWN_TIME_EAGER ? 1000 : 1500, 0);
    }
    CHECK_EQ(told, 1);
    CHECK(tierdown.backed_off);
    kin_tierdown_deinit(&tierdown);
}

/* Where calls leave, the first trial comes sooner; later ones do not. */
static void
test_hastens(void)
{
    kin_tierdown tierdown;
    kin_tierdown_init(&tierdown);
    int calls = 0;
    for (; kin_tierdown_replays(&tierdown); calls++)
        kin_tierdown_hasten(&tierdown);
    CHECK(calls > 2 && calls < 12);
    tierdown.pause = tierdown.wait = 100;
    kin_tierdown_hasten(&tierdown);
    CHECK_EQ(tierdown.wait, 100);
    kin_tierdown_deinit(&tierdown);
}

/* How much is recorded in so many calls, each of which meets something new: is any of it used again? */
static uint32_t
record_all(bool used, int calls)
{
    kin_trace_budget b = {0};
    for (int i = 0; i < calls; i++) {
        if (kin_trace_budget_affords_entry(&b)) {
            kin_trace_budget_spend(&b, 10e3);
            b.made++;
            b.used += used;
        } else {
            b.lived += 1e3;
        }
    }
    CHECK(b.made <= 8 || b.spent <= 0.05 * b.lived);
    return b.made;
}

static void
test_budgets(void)
{
    CHECK_EQ(record_all(false, 100), 3);
    CHECK_EQ(record_all(true, 100), 8);
    CHECK(record_all(false, 30000) > 3); /* but it goes on in the long run */
    CHECK(record_all(false, 30000) < 100);
    CHECK(record_all(true, 30000) > record_all(false, 30000));
    kin_trace_budget slow = {.spent = 1e9, .last = 1e9, .made = 1, .used = 1};
    CHECK(!kin_trace_budget_affords_entry(&slow));
    slow.lived = 1e11;
    CHECK(kin_trace_budget_affords_entry(&slow));
}

/* The first call settles something and takes a second: the next one is recorded all the same, but no third. */
static void
test_first_recordings(void)
{
    kin_trace_budget b = {.spent = 1e9, .last = 1e9, .made = 1};
    CHECK(kin_trace_budget_affords_entry(&b));
    b.made = 2;
    CHECK(!kin_trace_budget_affords_entry(&b));
}

static void
test_remake(void)
{
    kin_remake m = {0};
    CHECK(!kin_remake_is_due(&m, true));
    kin_remake_note(&m, KIN_REMAKE_NOT_TOLD);
    CHECK(!kin_remake_is_due(&m, true));
    kin_remake_note(&m, 7);
    CHECK(kin_remake_is_due(&m, true));
    CHECK(!kin_remake_is_due(&m, false));
    for (int i = 0; i < 7; i++)
        kin_remake_note(&m, 7);
    CHECK(kin_remake_is_due(&m, false));
    kin_remake other = m, passed = m;
    kin_remake_note(&other, 8);
    kin_remake_note(&passed, 0);
    CHECK(!kin_remake_is_due(&other, true));
    CHECK(!kin_remake_is_due(&passed, true));
    for (int i = 0; i < 20; i++)
        kin_remake_note(&passed, 7);
    CHECK(!kin_remake_is_due(&passed, true)); /* it serves some calls: it stays */
}

int
main(void)
{
    static const double ratios[] = {0.1, 0.5, 0.8, 0.95, 1.0, 1.05, 1.3, 2, 10};
    for (size_t i = 0; i < sizeof ratios / sizeof *ratios; i++) {
        test_world((world){.ratio = ratios[i], .spread = 1}, 1.05);
        test_world((world){.ratio = ratios[i], .spread = 5}, 1.05);
        test_world((world){.ratio = ratios[i], .spread = 5, .in_turns = true}, 1.1);
        test_world((world){.ratio = ratios[i], .spread = 3, .turns_at = CALLS / 3}, ratios[i] < 0.5 || ratios[i] > 2 ? 9 : 1.3);
    }
    test_rarely();
    test_favours(0.2);
    test_favours(5);
    test_known_work(0.8);
    test_known_work(1.3);
    test_waits_for_replays();
    test_tells_changes();
    test_hastens();
    test_budgets();
    test_first_recordings();
    test_remake();
    return check_report("tierdown");
}
