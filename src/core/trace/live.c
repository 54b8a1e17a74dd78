/* Decides where slots are released: walks backward over the tree, visiting side traces (higher indices) before the checks that lead to them.
 *
 * A value is used by the steps that take it, by the snapshots of the steps that can leave (for all inlined frames),
 * and by EPOCH steps whose facts and paths start from it. A snapshot that mentions a sunk object also uses what the
 * sunk steps of that object need when the exit runs them. When in doubt, a value is kept longer.
 *
 * A check with a side trace releases slots only when it passes; what the side trace does not need is released after its
 * first step.
 */
#include "core/trace/trace_priv.h"

typedef struct {
    uint32_t step;
    kin_vid vid;
} release;

typedef struct {
    kin_trace *t;
    uint32_t nwords;
    uint64_t *now;         /* vids live before the step being walked */
    uint64_t **at_alt;     /* by step: vids live before the first step of a side trace */
    uint32_t *epoch_step;  /* by epoch: the step that begins it */
    uint32_t *epoch_first;   /* SRC values by epoch: vid, linked through epoch_next; 0 ends */
    uint32_t *epoch_next;
    uint32_t *fact_first;  /* facts by epoch: fact + 1, linked through fact_next; 0 ends */
    uint32_t *fact_next;
    uint64_t *walked;      /* snapshots of which all values are in `now`: at an earlier step none of them has been defined yet */
    uint32_t *own_first;   /* sunk steps by object: step + 1, linked through own_next; 0 ends */
    uint32_t *own_next;
    KIN_VEC(release) releases;
    kin_status status;
} live;

static bool
test(const uint64_t *set, kin_vid vid)
{
    return (set[vid / 64] >> (vid % 64) & 1) != 0;
}

static void
note(live *l, uint32_t step, kin_vid vid)
{
    if (kin_vec_push(&l->releases, ((release){step, vid})) != KIN_OK)
        l->status = KIN_NOMEM;
}

/* -- preparation ------------------------------------------------------------------------------------------------ */

static bool
allocate(live *l)
{
    const kin_trace *t = l->t;
    l->nwords = t->vals.len / 64 + 1;
    l->now = calloc(l->nwords, sizeof *l->now);
    l->at_alt = calloc(t->steps.len, sizeof *l->at_alt);
    l->epoch_step = calloc((size_t)UINT16_MAX + 1, sizeof *l->epoch_step);
    l->epoch_first = calloc((size_t)UINT16_MAX + 1, sizeof *l->epoch_first);
    l->epoch_next = calloc(t->vals.len, sizeof *l->epoch_next);
    l->fact_first = calloc((size_t)UINT16_MAX + 1, sizeof *l->fact_first);
    l->fact_next = calloc((size_t)t->facts.len + 1, sizeof *l->fact_next);
    l->walked = calloc(t->snaps.len / 64 + 1, sizeof *l->walked);
    l->own_first = calloc(t->vals.len, sizeof *l->own_first);
    l->own_next = calloc(t->steps.len, sizeof *l->own_next);
    return l->now && l->at_alt && l->epoch_step && l->epoch_first && l->epoch_next && l->fact_first && l->fact_next && l->walked && l->own_first && l->own_next;
}

static void
release_all(live *l)
{
    for (uint32_t i = 0; l->at_alt != NULL && i < l->t->steps.len; i++)
        free(l->at_alt[i]);
    free(l->now);
    free(l->at_alt);
    free(l->epoch_step);
    free(l->epoch_first);
    free(l->epoch_next);
    free(l->fact_first);
    free(l->fact_next);
    free(l->walked);
    free(l->own_first);
    free(l->own_next);
    kin_vec_deinit(&l->releases);
}

static void
own(live *l, kin_vid vid, uint32_t step)
{
    l->own_next[step] = l->own_first[vid];
    l->own_first[vid] = step + 1;
}

/* A sunk step belongs to the object it makes, or to the one it changes. One that does both belongs to the latter and
 * links the former to it through its operands. */
static void
index_parts(live *l)
{
    const kin_trace *t = l->t;
    for (uint32_t i = 1; i < t->vals.len; i++)
        if (t->vals.at[i].kind == KIN_VAL_SRC) {
            l->epoch_next[i] = l->epoch_first[t->vals.at[i].epoch];
            l->epoch_first[t->vals.at[i].epoch] = i;
        }
    for (uint32_t i = t->facts.len; i-- > 0;) {
        l->fact_next[i] = l->fact_first[t->facts.at[i].epoch];
        l->fact_first[t->facts.at[i].epoch] = i + 1;
    }
    for (uint32_t i = 0; i < t->steps.len; i++) {
        const kin_step *s = &t->steps.at[i];
        if (s->kind == KIN_STEP_EPOCH)
            l->epoch_step[(uint16_t)s->num] = i;
        if (!(s->flags & KIN_STEP_SUNK))
            continue;
        if ((s->flags & KIN_STEP_MUTATES) && s->nargs > 0)
            own(l, t->vids.at[s->args], i);
        else if (s->out)
            own(l, s->out, i);
    }
}

/* -- uses ------------------------------------------------------------------------------------------------------- */

/* The value is needed at `step`; if it is not needed later, it is released after it. */
static void
use(live *l, uint32_t step, kin_vid vid)
{
    const kin_trace *t = l->t;
    if (vid == 0 || t->vals.at[vid].kind == KIN_VAL_CONST || t->vals.at[vid].kind == KIN_VAL_NONE || test(l->now, vid))
        return;
    l->now[vid / 64] |= UINT64_C(1) << (vid % 64);
    note(l, step, vid);
    if (t->vals.at[vid].kind != KIN_VAL_STEP)
        return;
    for (uint32_t o = l->own_first[vid]; o != 0; o = l->own_next[o - 1]) {
        const kin_step *s = &t->steps.at[o - 1];
        for (uint32_t a = 0; o - 1 < step && a < s->nargs; a++)
            use(l, step, t->vids.at[s->args + a]);
    }
    const kin_step *maker = &t->steps.at[t->vals.at[vid].step];
    if ((maker->flags & KIN_STEP_SUNK) && (maker->flags & KIN_STEP_MUTATES))
        for (uint32_t a = 0; a < maker->nargs; a++)
            use(l, step, t->vids.at[maker->args + a]);
}

static void
use_snapshot(live *l, uint32_t step, uint32_t snap)
{
    const kin_trace *t = l->t;
    for (; snap != 0 && !test(l->walked, snap); snap = t->snaps.at[snap].parent) {
        const kin_snap *p = &t->snaps.at[snap];
        l->walked[snap / 64] |= UINT64_C(1) << (snap % 64);
        use(l, step, p->func);
        use(l, step, p->extra);
        use(l, step, p->exc);
        use(l, step, p->names);
        for (uint32_t i = 0; i < (uint32_t)p->nlocals + p->nstack; i++)
            use(l, step, t->vids.at[p->vals + i]);
    }
}

/* The values from which an epoch's guards start: parents and subjects that the epoch itself does not read. */
static void
use_epoch(live *l, uint32_t step, uint32_t epoch)
{
    const kin_trace *t = l->t;
    for (kin_vid v = l->epoch_first[epoch]; v != 0; v = l->epoch_next[v]) {
        kin_vid parent = t->vals.at[v].parent;
        if (t->vals.at[parent].kind != KIN_VAL_SRC || t->vals.at[parent].epoch != epoch)
            use(l, step, parent);
    }
    for (uint32_t i = l->fact_first[epoch]; i != 0; i = l->fact_next[i - 1]) {
        const kin_fact *f = &t->facts.at[i - 1];
        kin_vid subjects[2] = {f->vid, f->vid2};
        for (int k = 0; k < 2; k++)
            if (t->vals.at[subjects[k]].kind != KIN_VAL_SRC || t->vals.at[subjects[k]].epoch != epoch)
                use(l, step, subjects[k]);
    }
}

/* -- the walk --------------------------------------------------------------------------------------------------- */

/* The value is made at `step`; if nothing needs it, it is released there at once. */
static void
define(live *l, uint32_t step, kin_vid vid)
{
    if (vid == 0)
        return;
    if (!test(l->now, vid))
        note(l, step, vid);
    l->now[vid / 64] &= ~(UINT64_C(1) << (vid % 64));
}

static void
define_epoch(live *l, uint32_t step, uint32_t epoch)
{
    for (kin_vid v = l->epoch_first[epoch]; v != 0; v = l->epoch_next[v])
        define(l, step, v);
}

static void
walk_step(live *l, uint32_t i)
{
    const kin_step *s = &l->t->steps.at[i];
    if (s->kind == KIN_STEP_EPOCH)
        define_epoch(l, i, s->num);
    if (s->flags & KIN_STEP_SUNK) {
        if (s->out)
            l->now[s->out / 64] &= ~(UINT64_C(1) << (s->out % 64));
        return;
    }
    bool unused = s->out != 0 && !test(l->now, s->out);
    l->now[s->out / 64] &= ~(UINT64_C(1) << (s->out % 64));
    kin_vid filled = s->flags & KIN_STEP_MUTATES && s->nargs > 0 ? l->t->vids.at[s->args] : 0;
    for (uint32_t a = filled != 0; a < s->nargs; a++)
        use(l, i, l->t->vids.at[s->args + a]);
    if (unused) /* after what it may hold, which it then holds alone */
        note(l, i, s->out);
    if (s->kind == KIN_STEP_EPOCH)
        use_epoch(l, i, s->num);
    bool last = filled != 0 && !test(l->now, filled);
    if (last) /* as well, although frames that have ended when it dies may have it in their snapshots */
        l->now[filled / 64] |= UINT64_C(1) << (filled % 64);
    use_snapshot(l, i, s->snap);
    if (last) {
        l->now[filled / 64] &= ~(UINT64_C(1) << (filled % 64));
        use(l, i, filled);
    }
}

/* Is the value made after the check, where it passes? The side trace seems to need such a value if it needs an object that the steps after a
 * passing check change. */
static bool
is_made_behind(const live *l, kin_vid vid, uint32_t i)
{
    const kin_val *val = &l->t->vals.at[vid];
    return val->kind == KIN_VAL_STEP && val->step > i;
}

/* Joins the two continuations of the check at i: `now` holds what the check itself and the steps after a passing check need. */
static void
join_alt(live *l, uint32_t i)
{
    uint32_t alt = l->t->steps.at[i].alt;
    const uint64_t *other = l->at_alt[alt];
    for (uint32_t w = 0; w < l->nwords && l->status == KIN_OK; w++) {
        uint64_t only_here = l->now[w] & ~other[w], only_there = other[w] & ~l->now[w], strange = 0;
        for (uint32_t b = 0; b < 64 && (only_here | only_there) >> b != 0; b++) {
            if (only_here >> b & 1)
                note(l, alt, w * 64 + b);
            else if (only_there >> b & 1 && is_made_behind(l, w * 64 + b, i))
                strange |= UINT64_C(1) << b;
            else if (only_there >> b & 1)
                note(l, i, w * 64 + b);
        }
        l->now[w] |= other[w] & ~strange;
    }
}

static void
remember_side_trace(live *l, uint32_t i)
{
    l->at_alt[i] = malloc(l->nwords * sizeof *l->now);
    if (l->at_alt[i] == NULL)
        l->status = KIN_NOMEM;
    else
        memcpy(l->at_alt[i], l->now, l->nwords * sizeof *l->now);
}

static void
walk(live *l)
{
    const kin_trace *t = l->t;
    for (uint32_t i = t->steps.len; i-- > 0 && l->status == KIN_OK;) {
        if (kin_step_is_end(&t->steps.at[i])) {
            memset(l->now, 0, l->nwords * sizeof *l->now);
            memset(l->walked, 0, (t->snaps.len / 64 + 1) * sizeof *l->walked);
        }
        walk_step(l, i);
        if (t->steps.at[i].alt != 0)
            join_alt(l, i);
        if (i > 0 && kin_step_is_end(&t->steps.at[i - 1]))
            remember_side_trace(l, i);
    }
}

/* -- loops ------------------------------------------------------------------------------------------------------ */

/* Where the value comes into being: a step, or for SRC values the EPOCH that reads it. */
static uint32_t
made_at(const live *l, kin_vid vid)
{
    const kin_val *val = &l->t->vals.at[vid];
    return val->kind == KIN_VAL_STEP ? val->step : val->kind == KIN_VAL_SRC ? l->epoch_step[val->epoch] : 0;
}

/* Is the step part of the round that ends where the path does? It begins behind the CARRY steps. */
static bool
is_of_round(const kin_path *path, uint32_t first, uint32_t step)
{
    for (uint32_t i = 0; step >= first && i < path->len; i++)
        if (step >= path->at[i].first && step <= path->at[i].last)
            return true;
    return false;
}

/* What was there before a loop is needed in each of its rounds. The CARRY steps get new values at the end of each. */
static void
keep_in_loop(live *l, const kin_path *path, uint32_t head, uint32_t first)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < l->releases.len; i++) {
        release at = l->releases.at[i];
        if (made_at(l, at.vid) > head || !is_of_round(path, first, at.step))
            l->releases.at[kept++] = at;
    }
    l->releases.len = kept;
}

/* The end of a round releases all that the round has made, also sunk objects that an exit or a frame has built. */
static void
release_round(live *l, const kin_path *path, uint32_t first, uint32_t back)
{
    const kin_trace *t = l->t;
    for (kin_vid v = 1; v < t->vals.len; v++)
        if ((t->vals.at[v].kind == KIN_VAL_STEP || t->vals.at[v].kind == KIN_VAL_SRC) && is_of_round(path, first, made_at(l, v)))
            note(l, back, v);
}

static void
walk_loops(live *l)
{
    const kin_trace *t = l->t;
    kin_path path = {0};
    for (uint32_t i = 0; i < t->steps.len && l->status == KIN_OK; i++) {
        const kin_step *s = &t->steps.at[i];
        if (s->kind != KIN_STEP_LOOP_BACK)
            continue;
        l->status = kin_trace_path(t, i, &path);
        keep_in_loop(l, &path, s->num, s->num + s->nargs + 1);
        release_round(l, &path, s->num + s->nargs + 1, i);
    }
    kin_vec_deinit(&path);
}

/* Lists by step, in the pool of vids. */
static kin_status
store(live *l)
{
    kin_trace *t = l->t;
    for (uint32_t i = 0; i < t->steps.len; i++)
        t->steps.at[i].nfrees = 0;
    KIN_TRY(kin_vec_reserve(&t->vids, l->releases.len));
    uint32_t *count = calloc((size_t)t->steps.len + 1, sizeof *count);
    if (count == NULL)
        return KIN_NOMEM;
    for (uint32_t i = 0; i < l->releases.len; i++)
        count[l->releases.at[i].step]++;
    uint32_t next = t->vids.len;
    for (uint32_t i = 0; i < t->steps.len; i++) {
        t->steps.at[i].frees = next;
        next += count[i];
    }
    t->vids.len = next;
    for (uint32_t i = 0; i < l->releases.len; i++) {
        kin_step *s = &t->steps.at[l->releases.at[i].step];
        if (s->nfrees < UINT16_MAX) /* the rest is released when the replay ends */
            t->vids.at[s->frees + s->nfrees++] = l->releases.at[i].vid;
    }
    free(count);
    return KIN_OK;
}

kin_status
kin_trace_live(kin_trace *t)
{
    live l = {.t = t};
    if (!allocate(&l))
        l.status = KIN_NOMEM;
    else {
        index_parts(&l);
        walk(&l);
        walk_loops(&l);
        if (l.status == KIN_OK)
            l.status = store(&l);
    }
    release_all(&l);
    return l.status;
}
