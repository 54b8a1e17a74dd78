/* Traces as containers, the names of their parts, and the order of the finishing passes. */
#include "core/trace/trace_priv.h"

static const char *const step_names[] = {
#define STEP(NAME, text, looks, late, changes, does, doc) [KIN_STEP_##NAME] = text,
#include "core/trace/steps.def"
#undef STEP
};

static const char *const access_names[] = {
#define ACCESS(NAME, text) [KIN_ACCESS_##NAME] = text,
#include "core/trace/access.def"
#undef ACCESS
};

static const struct {
    const char *name, *guard, *says;
} facts[] = {
#define FACT(NAME, text, guard, says) [KIN_FACT_##NAME] = {text, guard, says},
#include "core/trace/facts.def"
#undef FACT
};

kin_status
kin_trace_init(kin_trace *t)
{
    *t = (kin_trace){0};
    if (kin_vec_push(&t->vals, (kin_val){0}) != KIN_OK || kin_vec_push(&t->snaps, (kin_snap){0}) != KIN_OK ||
        kin_vec_push(&t->steps, ((kin_step){.kind = KIN_STEP_EPOCH})) != KIN_OK) {
        kin_trace_deinit(t);
        return KIN_NOMEM;
    }
    t->nepochs = 1;
    return KIN_OK;
}

void
kin_trace_deinit(kin_trace *t)
{
    kin_vec_deinit(&t->vals);
    kin_vec_deinit(&t->steps);
    kin_vec_deinit(&t->vids);
    kin_vec_deinit(&t->snaps);
    kin_vec_deinit(&t->facts);
    kin_trace_free_stops(t);
}

/* Frames share one handled exception: a frame that handles none itself sees its caller's. */
static void
inherit_exceptions(kin_trace *t)
{
    t->handles = false;
    for (uint32_t i = 1; i < t->snaps.len; i++) {
        for (uint32_t p = i; t->snaps.at[i].exc == 0 && p != 0; p = t->snaps.at[p].parent)
            t->snaps.at[i].exc = t->snaps.at[p].exc;
        t->handles |= t->snaps.at[i].exc != 0;
    }
    for (uint32_t i = 0; i < t->steps.len; i++) {
        kin_step *s = &t->steps.at[i];
        s->flags &= (uint16_t)~KIN_STEP_HANDLES;
        if (t->snaps.at[s->snap].exc != 0)
            s->flags |= KIN_STEP_HANDLES;
    }
}

static void
measure_depth(kin_trace *t)
{
    t->depth = t->deepest > 1 ? t->deepest : 1;
    for (uint32_t i = 1; i < t->snaps.len; i++) {
        uint32_t depth = 0;
        for (uint32_t p = i; p != 0; p = t->snaps.at[p].parent)
            depth++;
        if (depth > t->depth)
            t->depth = depth;
    }
}

/* A finished trace rarely grows again. */
static void
trim(kin_trace *t)
{
    kin_vec_trim(&t->vals);
    kin_vec_trim(&t->steps);
    kin_vec_trim(&t->vids);
    kin_vec_trim(&t->snaps);
    kin_vec_trim(&t->facts);
}

kin_trace_mark
kin_trace_end(const kin_trace *t)
{
    return (kin_trace_mark){t->vals.len, t->steps.len, t->vids.len, t->snaps.len, t->facts.len, t->nepochs};
}

void
kin_trace_cut(kin_trace *t, kin_trace_mark end)
{
    t->vals.len = end.vals;
    t->steps.len = end.steps;
    t->vids.len = end.vids;
    t->snaps.len = end.snaps;
    t->facts.len = end.facts;
    t->nepochs = end.nepochs;
}

kin_status
kin_trace_finish(kin_trace *t)
{
    KIN_TRY(kin_trace_check(t));
    inherit_exceptions(t);
    measure_depth(t);
    KIN_TRY(kin_trace_sink(t));
    KIN_TRY(kin_trace_number(t));
    KIN_TRY(kin_trace_live(t));
    KIN_TRY(kin_trace_find_stops(t));
    trim(t);
    return KIN_OK;
}

/* First step of the range that contains `step`, and the step whose alt leads there. */
static uint32_t
range_start(const kin_trace *t, uint32_t step, uint32_t *jump)
{
    uint32_t start = 0;
    *jump = UINT32_MAX;
    for (uint32_t i = 0; i < step; i++)
        if (t->steps.at[i].alt > start && t->steps.at[i].alt <= step) {
            start = t->steps.at[i].alt;
            *jump = i;
        }
    return start;
}

kin_status
kin_trace_path(const kin_trace *t, uint32_t step, kin_path *path)
{
    path->len = 0;
    while (step != UINT32_MAX) {
        uint32_t jump, start = range_start(t, step, &jump);
        KIN_TRY(kin_vec_push(path, ((kin_range){start, step})));
        step = jump;
    }
    for (uint32_t a = 0, b = path->len; a + 1 < b; a++) {
        kin_range swapped = path->at[a];
        path->at[a] = path->at[--b];
        path->at[b] = swapped;
    }
    return KIN_OK;
}

const char *
kin_step_name(kin_step_kind kind)
{
    return (unsigned)kind < KIN_STEP__COUNT ? step_names[kind] : "?";
}

const char *
kin_access_name(kin_access access)
{
    return (unsigned)access < KIN_ACCESS__COUNT ? access_names[access] : "?";
}

const char *
kin_fact_name(kin_fact_kind kind)
{
    return (unsigned)kind < KIN_FACT__COUNT ? facts[kind].name : "?";
}

const char *
kin_fact_guard(kin_fact_kind kind)
{
    return (unsigned)kind < KIN_FACT__COUNT ? facts[kind].guard : "?";
}

const char *
kin_fact_says(kin_fact_kind kind)
{
    return (unsigned)kind < KIN_FACT__COUNT ? facts[kind].says : "?";
}
