/* Which kinds of inputs get code, told from what their calls take: in programs whose inputs keep changing, making code never takes more
 * than its share; where a kind comes back, it gets code before long. Side traces: how many are recorded whatever they cost. */
#include "core/tier/compile_heuristic.h"
#include "core/tier/trace_budget.h"

#include "check.h"

enum { CALLS = 20000 };
static const double CALL = 20e3, COST = 5e6; /* nanoseconds */

/* `kinds` kinds of inputs in turns, whose calls without code lose `lost`; code of a kind takes half the time. How many get code; *share: of the time that making it took. */
static uint32_t
run(uint32_t kinds, double lost, double *share)
{
    static bool has[CALLS];
    kin_compile_account account = {0};
    kin_input_kinds met = {0};
    uint32_t made = 0;
    double took = 0, spent = 0;
    for (uint32_t k = 0; k < kinds; k++)
        has[k] = false;
    for (uint32_t i = 0; i < CALLS; i++) {
        uint32_t kind = i % kinds;
        if (has[kind]) {
            took += CALL / 2;
            kin_compile_note_run(&account, CALL / 2, CALL);
            continue;
        }
        took += CALL;
        if (kin_compile_pays(&account, &met, kind + 1, CALL, lost, COST)) {
            has[kind] = true;
            made++;
            spent += COST;
            account.spent += COST;
        }
    }
    *share = spent / (took + spent);
    return made;
}

static void
test_kinds(void)
{
    double share;
    CHECK_EQ(run(1, CALL, &share), 1);
    CHECK(share < 0.05);
    CHECK_EQ(run(4, CALL, &share), 4);
    CHECK(run(CALLS, CALL, &share) == 0 && share == 0); /* no kind comes twice */
    CHECK(run(30, CALL, &share) > 0 && share < 0.3);
    CHECK_EQ(run(4, CALL / 10, &share), 4);
    CHECK(run(4, CALL / 1000, &share) == 0); /* code would save them next to nothing */
    CHECK(run(33, CALL, &share) == 0); /* a kind is forgotten before it comes again */
}

static void
test_guesses(void)
{
    CHECK(kin_compile_guess_cost(3, 0, 0, 0) == 3 * KIN_TIER_GUESS_COMPILE_NS);
    CHECK(kin_compile_guess_cost(3, 7e6, 0, 0) == 7e6);
    CHECK(kin_compile_guess_cost(3, 7e6, 1e6, 1e9) == 8e6); /* what the first run took is known */
    CHECK(kin_compile_guess_cost(0, 7e6, 0, 1e6) == 7e6 + 1e6 * KIN_TIER_GUESS_PACK_NS);
    CHECK(kin_compile_guess_calls(2, 1000) == 2 * (KIN_TIER_GUESS_CALL_NS + 1000 * KIN_TIER_GUESS_BYTE_NS));
}

static void
test_retries(void)
{
    double before = 0;
    for (uint32_t drops = 0; drops < KIN_TIER_RETRIES; drops++) {
        double after = kin_compile_retry_after(1e9, drops);
        CHECK(after >= KIN_TIER_RETRY_TIMES * 1e9 && after > before);
        before = after;
    }
    CHECK(kin_compile_retry_after(1e9, KIN_TIER_RETRIES) == 0);
    CHECK(kin_compile_retry_after(1, 0) == KIN_TIER_RETRY_NS);
}

static void
test_refusals(void)
{
    uint32_t refused = 0, asked = 0;
    for (int i = 0; i < 64 * KIN_TIER_REFUSAL_PAUSE; i++)
        if (!kin_compile_is_backed_off(&refused)) {
            asked++;
            refused++;
        }
    CHECK(asked >= KIN_TIER_REFUSALS && asked < KIN_TIER_REFUSALS + 2 * 64);
}

/* Exits that each come once, and nothing is used: how many side traces there are. */
static uint32_t
record_exits(bool decision, bool left_before, double lived)
{
    kin_trace_budget b = {.lived = lived};
    for (uint32_t i = 0; i < 100; i++)
        if (kin_trace_budget_affords_side_trace(&b, &(kin_side_trace_place){1000, decision, left_before})) {
            b.made++;
            kin_trace_budget_spend(&b, 1e6);
        }
    return b.made;
}

static void
test_side_traces(void)
{
    CHECK_EQ(record_exits(false, false, 0), KIN_TIER_UNUSED_SIDE_TRACES);
    CHECK_EQ(record_exits(true, false, 0), KIN_TIER_UNUSED_DECISIONS);
    CHECK_EQ(record_exits(false, false, 1e12), KIN_TIER_UNUSED_SIDE_TRACES); /* time alone is no reason */
    CHECK(record_exits(false, true, 1e12) == 100);
    kin_trace_budget b = {.lived = 1e12};
    CHECK(!kin_trace_budget_affords_side_trace(&b, &(kin_side_trace_place){KIN_TIER_SIDE_TRACE_STEPS, false, true}));
}

/* Recordings that no call has used, each of which takes 100 ms: how many there are, when others have saved so much. */
static uint32_t
record_long_calls(double saved)
{
    kin_trace_budget b = {.saved = saved};
    for (uint32_t i = 0; i < 100; i++)
        if (kin_trace_budget_affords_entry(&b)) {
            b.made++;
            kin_trace_budget_spend(&b, 2 * KIN_TIER_FREE_RECORDING_NS);
        }
    return b.made;
}

static void
test_saved(void)
{
    CHECK_EQ(record_long_calls(0), KIN_TIER_FIRST_ENTRIES);
    CHECK_EQ(record_long_calls(10 * KIN_TIER_FREE_RECORDING_NS / KIN_TIER_BUDGET_SAVED_SHARE), 4); /* and one more would take all of it */
    CHECK_EQ(record_long_calls(20 * KIN_TIER_FREE_RECORDING_NS / KIN_TIER_BUDGET_SAVED_SHARE), 9);
}

int
main(void)
{
    test_kinds();
    test_guesses();
    test_retries();
    test_refusals();
    test_side_traces();
    test_saved();
    return check_report("compile heuristic");
}
