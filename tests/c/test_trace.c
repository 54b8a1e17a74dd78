/* kin_trace_finish on small hand-written traces: what is sunk, where graphs begin, where values are released. */
#include "core/trace/trace.h"
#include "check.h"

static kin_trace t;

static kin_vid
add_src(uint16_t epoch)
{
    kin_val v = {.kind = KIN_VAL_SRC, .access = KIN_ACCESS_LOCAL, .epoch = epoch};
    CHECK(kin_vec_push(&t.vals, v) == KIN_OK);
    return t.vals.len - 1;
}

static uint32_t
add_step(kin_step_kind kind, unsigned flags, uint32_t snap, uint32_t n, const kin_vid *args)
{
    kin_step s = {.kind = (uint8_t)kind, .flags = (uint16_t)flags, .snap = snap, .args = t.vids.len, .nargs = (uint16_t)n};
    for (uint32_t i = 0; i < n; i++)
        CHECK(kin_vec_push(&t.vids, args[i]) == KIN_OK);
    CHECK(kin_vec_push(&t.steps, s) == KIN_OK);
    return t.steps.len - 1;
}

static kin_vid
add_value(kin_step_kind kind, unsigned flags, uint32_t snap, uint32_t n, const kin_vid *args)
{
    uint32_t step = add_step(kind, flags, snap, n, args);
    kin_val v = {.kind = KIN_VAL_STEP, .step = step};
    CHECK(kin_vec_push(&t.vals, v) == KIN_OK);
    return t.steps.at[step].out = t.vals.len - 1;
}

static uint32_t
add_snap(uint32_t parent, uint32_t n, const kin_vid *vals)
{
    kin_snap s = {.parent = parent, .vals = t.vids.len, .nlocals = (uint16_t)n};
    for (uint32_t i = 0; i < n; i++)
        CHECK(kin_vec_push(&t.vids, vals[i]) == KIN_OK);
    CHECK(kin_vec_push(&t.snaps, s) == KIN_OK);
    return t.snaps.len - 1;
}

#define ARGS(...) sizeof((kin_vid[]){__VA_ARGS__}) / sizeof(kin_vid), (kin_vid[]){__VA_ARGS__}

static bool
frees(uint32_t step, kin_vid vid)
{
    const kin_step *s = &t.steps.at[step];
    for (uint32_t i = 0; i < s->nfrees; i++)
        if (t.vids.at[s->frees + i] == vid)
            return true;
    return false;
}

/* How often a value is released along the whole trace. */
static int
count_frees(kin_vid vid)
{
    int n = 0;
    for (uint32_t i = 0; i < t.steps.len; i++)
        n += frees(i, vid);
    return n;
}

static bool
is_sunk(kin_vid vid)
{
    return (t.steps.at[t.vals.at[vid].step].flags & KIN_STEP_SUNK) != 0;
}

static void
begin(void)
{
    CHECK(kin_trace_init(&t) == KIN_OK);
}

static void
end(void)
{
    kin_trace_deinit(&t);
    CHECK(t.steps.len == 0);
}

static void
test_straight_line(void)
{
    begin();
    kin_vid x = add_src(0), y = add_src(0), unused = add_src(0);
    kin_vid a = add_value(KIN_STEP_CALL, KIN_STEP_TORCH, 0, ARGS(x, y));
    kin_vid b = add_value(KIN_STEP_CALL, KIN_STEP_TORCH, 0, ARGS(a, a));
    kin_vid dead = add_value(KIN_STEP_CALL, KIN_STEP_TORCH, 0, ARGS(b));
    uint32_t ret = add_step(KIN_STEP_RETURN, 0, 0, ARGS(b));
    CHECK(kin_trace_finish(&t) == KIN_OK);
    CHECK(frees(0, unused) && count_frees(unused) == 1);
    CHECK(frees(1, x) && frees(1, y) && count_frees(x) == 1);
    CHECK(frees(2, a) && count_frees(a) == 1);
    CHECK(frees(3, dead) && count_frees(dead) == 1);
    CHECK(frees(ret, b) && count_frees(b) == 1);
    CHECK(t.ngraphs == 1 && t.nbreaks == 0 && t.depth == 1);
    CHECK(t.steps.at[1].graph == 1 && t.steps.at[3].graph == 1);
    CHECK(kin_trace_finish(&t) == KIN_OK); /* the same again */
    CHECK(frees(2, a) && count_frees(a) == 1 && t.ngraphs == 1);
    end();
}

static void
test_snapshots_keep_values(void)
{
    begin();
    kin_vid x = add_src(0), y = add_src(0), z = add_src(0);
    uint32_t outer = add_snap(0, ARGS(z)), inner = add_snap(outer, ARGS(y));
    kin_vid a = add_value(KIN_STEP_CALL, KIN_STEP_TORCH, 0, ARGS(x));
    kin_vid b = add_value(KIN_STEP_CALL, KIN_STEP_TORCH, inner, ARGS(a));
    add_step(KIN_STEP_RETURN, 0, 0, ARGS(b));
    CHECK(kin_trace_finish(&t) == KIN_OK);
    CHECK(frees(1, x) && frees(2, y) && frees(2, z) && frees(2, a));
    CHECK(t.depth == 2);
    end();
}

static void
test_sinking(void)
{
    begin();
    kin_vid x = add_src(0), y = add_src(0), list_in = add_src(0);
    kin_vid pair = add_value(KIN_STEP_BUILD_TUPLE, KIN_STEP_PURE, 0, ARGS(x, y));
    kin_vid used = add_value(KIN_STEP_BUILD_TUPLE, KIN_STEP_PURE, 0, ARGS(x));
    kin_vid list = add_value(KIN_STEP_BUILD_LIST, KIN_STEP_PURE, 0, 0, NULL);
    uint32_t append = add_step(KIN_STEP_LIST_APPEND, KIN_STEP_MUTATES, 0, ARGS(list, y));
    kin_vid real = add_value(KIN_STEP_BUILD_LIST, KIN_STEP_PURE, 0, 0, NULL);
    uint32_t real_append = add_step(KIN_STEP_LIST_APPEND, KIN_STEP_MUTATES, 0, ARGS(real, pair));
    uint32_t foreign_append = add_step(KIN_STEP_LIST_APPEND, KIN_STEP_MUTATES, 0, ARGS(list_in, x));
    kin_vid frozen = add_value(KIN_STEP_LIST_TO_TUPLE, KIN_STEP_PURE, 0, ARGS(list));
    kin_vid late = add_value(KIN_STEP_LIST_TO_TUPLE, KIN_STEP_PURE, 0, ARGS(real)); /* reads what changes */
    kin_vid dict = add_value(KIN_STEP_BUILD_MAP, KIN_STEP_PURE, 0, 0, NULL);
    kin_vid merged = add_value(KIN_STEP_BUILD_MAP, KIN_STEP_PURE, 0, 0, NULL);
    uint32_t merge = add_step(KIN_STEP_DICT_MERGE, KIN_STEP_MUTATES, 0, ARGS(merged, dict, list_in)); /* the callee is not read */
    kin_vid super = add_value(KIN_STEP_BUILD_SUPER, KIN_STEP_PURE, 0, ARGS(x, list_in, y));
    kin_vid read = add_value(KIN_STEP_LEN, KIN_STEP_PURE, 0, ARGS(list_in));
    uint32_t snap = add_snap(0, ARGS(list, frozen));
    kin_vid out = add_value(KIN_STEP_CALL, KIN_STEP_TORCH, snap, ARGS(used, real));
    add_step(KIN_STEP_RETURN, 0, 0, ARGS(out));
    CHECK(kin_trace_finish(&t) == KIN_OK);
    CHECK(!is_sunk(pair) && !is_sunk(used) && !is_sunk(real) && is_sunk(list) && is_sunk(frozen));
    CHECK(t.steps.at[append].flags & KIN_STEP_SUNK);
    CHECK(!(t.steps.at[real_append].flags & KIN_STEP_SUNK) && !(t.steps.at[foreign_append].flags & KIN_STEP_SUNK));
    CHECK(!is_sunk(late) && !is_sunk(read));
    CHECK(is_sunk(merged) && is_sunk(super) && (t.steps.at[merge].flags & KIN_STEP_SUNK));
    uint32_t call = t.vals.at[out].step;
    CHECK(frees(call, y)); /* the exit would need it to append it to the sunk list */
    CHECK(frees(call, list) && frees(call, frozen));
    end();
}

static void
test_branches(void)
{
    begin();
    kin_vid x = add_src(0), main_only = add_src(0), branch_only = add_src(0);
    kin_vid a = add_value(KIN_STEP_CALL, KIN_STEP_TORCH, 0, ARGS(x));
    uint32_t check = add_step(KIN_STEP_CHECK, KIN_STEP_BREAK, 0, ARGS(a));
    kin_vid b = add_value(KIN_STEP_CALL, KIN_STEP_TORCH, 0, ARGS(a, main_only));
    add_step(KIN_STEP_RETURN, 0, 0, ARGS(b));
    kin_vid c = add_value(KIN_STEP_CALL, KIN_STEP_TORCH, 0, ARGS(x, branch_only));
    uint32_t branch = t.vals.at[c].step;
    add_step(KIN_STEP_RETURN, 0, 0, ARGS(c));
    t.steps.at[check].alt = branch;
    CHECK(kin_trace_finish(&t) == KIN_OK);
    CHECK(t.ngraphs == 3 && t.nbreaks == 1);
    CHECK(t.steps.at[1].graph == 1 && t.steps.at[3].graph == 2 && t.steps.at[branch].graph == 3);
    CHECK(frees(check, x) && frees(branch, x) && frees(check, branch_only) && frees(branch, branch_only));
    CHECK(frees(3, main_only) && frees(branch, main_only));
    CHECK(frees(3, a) && frees(branch, a) && count_frees(a) == 2);
    kin_path path = {0};
    CHECK(kin_trace_path(&t, branch + 1, &path) == KIN_OK);
    CHECK(path.len == 2 && path.at[0].first == 0 && path.at[0].last == check && path.at[1].first == branch);
    CHECK(kin_trace_path(&t, 3, &path) == KIN_OK && path.len == 1 && path.at[0].last == 3);
    kin_vec_deinit(&path);
    end();
}

/* Both ways on from a test leave with a list; what the passing way adds is no value of the other one, and is not let go of at the test. */
static void
test_changed_on_one_way(void)
{
    begin();
    kin_vid x = add_src(0);
    kin_vid list = add_value(KIN_STEP_BUILD_LIST, KIN_STEP_PURE, 0, 0, NULL);
    uint32_t kept = add_snap(0, ARGS(list, x)), check = add_step(KIN_STEP_CHECK, 0, kept, ARGS(x));
    kin_vid item = add_value(KIN_STEP_CALL, KIN_STEP_TORCH, kept, ARGS(x));
    add_step(KIN_STEP_LIST_APPEND, KIN_STEP_MUTATES, 0, ARGS(list, item));
    uint32_t last = add_step(KIN_STEP_EXIT, 0, add_snap(0, ARGS(list)), 0, NULL);
    uint32_t epoch = add_step(KIN_STEP_EPOCH, 0, 0, 0, NULL);
    add_step(KIN_STEP_EXIT, 0, add_snap(0, ARGS(list)), 0, NULL);
    t.steps.at[epoch].num = 1;
    t.nepochs = 2;
    t.steps.at[check].alt = epoch;
    CHECK(kin_trace_finish(&t) == KIN_OK);
    CHECK(is_sunk(list) && !frees(check, item) && frees(last, item));
    end();
}

static void
test_graph_goes_on_behind_a_plain_test(void)
{
    begin();
    kin_vid x = add_src(0);
    kin_vid a = add_value(KIN_STEP_CALL, KIN_STEP_TORCH, 0, ARGS(x));
    uint32_t check = add_step(KIN_STEP_CHECK, 0, 0, ARGS(a));
    add_step(KIN_STEP_CALL, KIN_STEP_EFFECT, 0, ARGS(x));
    add_step(KIN_STEP_RETURN, 0, 0, ARGS(a));
    kin_vid c = add_value(KIN_STEP_CALL, KIN_STEP_TORCH, 0, ARGS(a));
    t.steps.at[check].alt = t.vals.at[c].step;
    add_step(KIN_STEP_RETURN, 0, 0, ARGS(c));
    CHECK(kin_trace_finish(&t) == KIN_OK);
    CHECK(t.ngraphs == 1 && t.nbreaks == 0 && t.neffects == 1);
    end();
}

static void
test_epochs(void)
{
    begin();
    kin_vid x = add_src(0), parent = add_src(0);
    add_step(KIN_STEP_CALL, KIN_STEP_OPAQUE, 0, ARGS(x));
    uint32_t epoch = add_step(KIN_STEP_EPOCH, 0, 0, 0, NULL);
    t.steps.at[epoch].num = 1;
    t.nepochs = 2;
    kin_vid child = add_src(1), idle = add_src(1);
    t.vals.at[child].parent = parent;
    kin_fact fact = {.kind = KIN_FACT_TYPE, .epoch = 1, .vid = x};
    CHECK(kin_vec_push(&t.facts, fact) == KIN_OK);
    add_step(KIN_STEP_RETURN, 0, 0, ARGS(child));
    CHECK(kin_trace_finish(&t) == KIN_OK);
    CHECK(frees(epoch, parent) && frees(epoch, x) && frees(epoch, idle) && frees(epoch + 1, child));
    CHECK(count_frees(x) == 1 && count_frees(parent) == 1);
    end();
}

static void
test_inherited_exception(void)
{
    begin();
    kin_vid exc = add_src(0);
    uint32_t outer = add_snap(0, 0, NULL), inner = add_snap(outer, 0, NULL);
    t.snaps.at[outer].exc = exc;
    add_step(KIN_STEP_EXIT, 0, inner, 0, NULL);
    CHECK(kin_trace_finish(&t) == KIN_OK);
    CHECK(t.snaps.at[inner].exc == exc && frees(1, exc));
    end();
}

/* for item in it: h = f(h, x[item]); return h. With a branch in the loop, which ends a round as well. */
static void
test_loop(void)
{
    begin();
    kin_vid x = add_src(0), it = add_src(0), only_before = add_src(0);
    t.vals.at[x].note = 1; /* a tensor */
    kin_vid h = add_value(KIN_STEP_CALL, KIN_STEP_TORCH, 0, ARGS(only_before));
    uint32_t head = add_step(KIN_STEP_LOOP, KIN_STEP_OPAQUE, add_snap(0, ARGS(x, it, h)), ARGS(x, it, h));
    kin_vid carried = add_value(KIN_STEP_CARRY, 0, 0, ARGS(h));
    t.steps.at[head].num = add_snap(0, ARGS(x, it, carried));
    kin_vid item = add_value(KIN_STEP_NEXT, 0, 0, ARGS(it));
    uint32_t ends = add_step(KIN_STEP_CHECK, 0, add_snap(0, ARGS(carried)), ARGS(item));
    kin_vid part = add_value(KIN_STEP_SUBSCR, KIN_STEP_TORCH, 0, ARGS(x, item));
    uint32_t branches = add_step(KIN_STEP_CHECK, 0, add_snap(0, ARGS(part)), ARGS(item));
    kin_vid sunk = add_value(KIN_STEP_BUILD_TUPLE, KIN_STEP_PURE, 0, ARGS(part));
    kin_vid next = add_value(KIN_STEP_CALL, KIN_STEP_TORCH, add_snap(0, ARGS(sunk)), ARGS(carried, part));
    uint32_t back = add_step(KIN_STEP_LOOP_BACK, 0, add_snap(0, ARGS(x, it, next)), ARGS(next));
    t.steps.at[back].num = head;
    uint32_t after = add_step(KIN_STEP_RETURN, 0, 0, ARGS(carried));
    t.steps.at[ends].alt = after;
    kin_vid other = add_value(KIN_STEP_CALL, KIN_STEP_TORCH, 0, ARGS(part, x));
    uint32_t other_back = add_step(KIN_STEP_LOOP_BACK, 0, add_snap(0, ARGS(x, it, other)), ARGS(other));
    t.steps.at[other_back].num = head;
    t.steps.at[branches].alt = t.vals.at[other].step;
    CHECK(kin_trace_finish(&t) == KIN_OK);
    CHECK(frees(t.vals.at[h].step, only_before) && frees(t.vals.at[carried].step, h));
    for (uint32_t i = head + 2; i <= back; i++)
        CHECK(!frees(i, x) && !frees(i, it)); /* the next round needs them */
    CHECK(!frees(t.vals.at[other].step, x) && !frees(other_back, x) && !frees(other_back, it));
    CHECK(frees(after, x) && frees(after, it) && frees(after, carried));
    CHECK(frees(back, item) && frees(back, part) && frees(back, sunk) && frees(back, next) && !frees(back, other));
    CHECK(frees(other_back, item) && frees(other_back, part) && frees(other_back, other) && !frees(other_back, next));
    CHECK(!frees(back, carried) && !frees(other_back, carried)); /* it has its next value */
    CHECK(t.steps.at[t.vals.at[part].step].graph == 0); /* an input of the graph */
    CHECK(t.steps.at[t.vals.at[next].step].graph == 1 && t.steps.at[t.vals.at[other].step].graph == 1 && t.nbreaks == 0);
    t.steps.at[back].nargs = 0;
    CHECK(kin_trace_finish(&t) == KIN_BUG); /* a CARRY step would get nothing */
    t.steps.at[back].nargs = 1;
    t.steps.at[back].num = head + 1;
    CHECK(kin_trace_finish(&t) == KIN_BUG); /* no LOOP */
    end();
}

static void
test_malformed(void)
{
    begin();
    CHECK(kin_trace_finish(&t) == KIN_BUG); /* no end */
    add_step(KIN_STEP_EXIT, 0, 0, 0, NULL);
    CHECK(kin_trace_finish(&t) == KIN_BUG); /* no snapshot */
    t.steps.at[1].snap = add_snap(0, 0, NULL);
    CHECK(kin_trace_finish(&t) == KIN_OK);
    t.steps.at[1].alt = 1;
    CHECK(kin_trace_finish(&t) == KIN_BUG); /* alt not upwards */
    t.steps.at[1].alt = 0;
    t.steps.at[1].out = 99;
    CHECK(kin_trace_finish(&t) == KIN_BUG);
    end();
    CHECK(kin_step_name(KIN_STEP_CALL_EX)[0] == 'c' && kin_step_name((kin_step_kind)200)[0] == '?');
    CHECK(kin_access_name(KIN_ACCESS_GLOBALS)[0] == '_' && kin_fact_name(KIN_FACT_TYPE)[0] == 't');
}

int
main(void)
{
    test_straight_line();
    test_snapshots_keep_values();
    test_sinking();
    test_branches();
    test_changed_on_one_way();
    test_graph_goes_on_behind_a_plain_test();
    test_epochs();
    test_inherited_exception();
    test_loop();
    test_malformed();
    return check_report("trace");
}
