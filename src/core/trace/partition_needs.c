/* Who needs what in a partitioned trace: values that something outside their subgraph uses, containers and stores that are done
 * after a subgraph has run, stores that would otherwise be done twice.
 */
#include "core/trace/partition_priv.h"

#include <stdlib.h>

/* Is it a store that is done after the subgraph? */
static bool
defers_store(const kin_subgraph *subgraph, const kin_trace *t, uint32_t step)
{
    const kin_step *s = &t->steps.at[step];
    return s->flags & KIN_STEP_EFFECT && !kin_subgraph_calls(s) && kin_subgraph_defers(subgraph, t, step);
}

/* How many of these, which are in order, begin at the step or before it? `first`: where the first of them begins; they lie `apart` bytes apart. */
static uint32_t
count_begun(const uint32_t *first, size_t apart, uint32_t n, uint32_t step)
{
    uint32_t low = 0, high = n;
    while (low < high) {
        uint32_t mid = low + (high - low) / 2;
        if (*(const uint32_t *)((const char *)first + mid * apart) <= step)
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

/* The subgraph whose range contains the step, from 1; 0 = none. Subgraphs do not overlap. */
static uint32_t
subgraph_around(const kin_subgraphs *subgraphs, uint32_t step)
{
    const kin_subgraph *at = subgraphs->at.at;
    uint32_t n = subgraphs->at.len > 0 ? count_begun(&at->first, sizeof *at, subgraphs->at.len, step) : 0;
    return n > 0 && step <= at[n - 1].last ? n : 0;
}

static kin_status
find_sides(const kin_trace *t, kin_subgraphs *subgraphs)
{
    for (uint32_t i = 0; i < t->steps.len; i++) {
        uint32_t begins = t->steps.at[i].alt, k = subgraphs->sides.len;
        if (begins == 0)
            continue;
        KIN_TRY(kin_vec_push(&subgraphs->sides, ((kin_side){begins, i})));
        for (; k > 0 && subgraphs->sides.at[k - 1].begins > begins; k--) /* mostly in order */
            subgraphs->sides.at[k] = subgraphs->sides.at[k - 1];
        subgraphs->sides.at[k] = (kin_side){begins, i};
    }
    return KIN_OK;
}

/* The side trace that the step is part of; NULL: the recording itself. */
static const kin_side *
side_of(const kin_subgraphs *subgraphs, uint32_t step)
{
    const kin_side *sides = subgraphs->sides.at;
    uint32_t n = subgraphs->sides.len > 0 ? count_begun(&sides->begins, sizeof *sides, subgraphs->sides.len, step) : 0;
    return n > 0 ? &sides[n - 1] : NULL;
}

/* Is the step reached only where the subgraph that makes the value was left before it ran? Its deferred calls have run one by one then. */
static bool
has_left_it(const kin_trace *t, const kin_subgraphs *subgraphs, uint32_t step, kin_vid vid)
{
    const kin_side *side = t->vals.at[vid].kind == KIN_VAL_STEP ? side_of(subgraphs, step) : NULL;
    uint32_t u = side == NULL || t->vals.at[vid].step >= side->begins ? 0 : subgraph_around(subgraphs, t->vals.at[vid].step);
    const kin_subgraph *made = u == 0 ? NULL : &subgraphs->at.at[u - 1];
    if (made == NULL || !made->deferred || !kin_bounds_made_by(t, subgraphs, made, vid))
        return false;
    for (; side != NULL; side = side_of(subgraphs, side->from))
        if (side->from >= made->first && side->from <= made->last)
            return made->at == 0 || side->from < made->at;
    return false;
}

/* `by` that step; until: items that are added to a container from that step on are not needed. */
static bool
need_until(const kin_trace *t, kin_subgraphs *subgraphs, uint32_t by, kin_vid vid, uint32_t until)
{
    if (vid == 0 || vid >= t->vals.len || subgraphs->needed[vid] >= until || has_left_it(t, subgraphs, by, vid))
        return false;
    subgraphs->needed[vid] = until;
    return true;
}

static void
need(const kin_trace *t, kin_subgraphs *subgraphs, uint32_t by, kin_vid vid)
{
    need_until(t, subgraphs, by, vid, UINT32_MAX);
}

/* Does the step change a container that is needed with the change? */
static bool
changes_what_is_needed(const kin_trace *t, const kin_subgraphs *subgraphs, uint32_t i)
{
    const kin_step *s = &t->steps.at[i];
    return s->flags & KIN_STEP_MUTATES && s->nargs > 0 && subgraphs->needed[t->vids.at[s->args]] > i && !subgraphs->replaced[i];
}

/* Does the step run with frames, or raise with some, so that the containers in them exist from then on? */
static bool
shows_frames(const kin_trace *t, const kin_subgraphs *subgraphs, uint32_t step)
{
    const kin_step *s = &t->steps.at[step];
    return s->flags & (KIN_STEP_OPAQUE | KIN_STEP_RAISES) || (s->flags & KIN_STEP_TORCH && s->kind == KIN_STEP_CALL && subgraphs->by_step[step] == 0);
}

/* Leaving there takes containers as they are there. */
static void
need_snapshot(const kin_trace *t, kin_subgraphs *subgraphs, uint32_t step)
{
    uint32_t until = shows_frames(t, subgraphs, step) ? UINT32_MAX : step + 1;
    for (uint32_t snap = t->steps.at[step].snap; snap != 0; snap = t->snaps.at[snap].parent) {
        const kin_snap *s = &t->snaps.at[snap];
        const kin_vid more[4] = {s->func, s->extra, s->exc, s->names};
        for (uint32_t k = 0; k < 4u + s->nlocals + s->nstack; k++)
            need_until(t, subgraphs, step, k < 4 ? more[k] : t->vids.at[s->vals + k - 4], until);
    }
}

/* Does the step run in order, with what the subgraph gave? */
static bool
runs_late(const kin_subgraph *subgraph, uint32_t step)
{
    return subgraph->at != 0 && step >= subgraph->at && subgraph->role[step - subgraph->first] == KIN_ROLE_IN_ORDER;
}

/* Marks what a step outside all subgraphs uses, and what the calls of a subgraph take from outside. RETURN's snapshot
 * only serves signal handlers, which may as well run right after the call. */
static void
need_of_step(const kin_trace *t, kin_subgraphs *subgraphs, uint32_t i)
{
    const kin_step *s = &t->steps.at[i];
    uint32_t subgraph = subgraph_around(subgraphs, i);
    if (s->flags & KIN_STEP_SUNK)
        return;
    bool late = subgraph != 0 && runs_late(&subgraphs->at.at[subgraph - 1], i);
    bool all = subgraph == 0 || late || defers_store(&subgraphs->at.at[subgraph - 1], t, i);
    for (uint32_t a = 0; a < s->nargs; a++) {
        kin_vid vid = t->vids.at[s->args + a];
        if (all || !kin_bounds_made_by(t, subgraphs, &subgraphs->at.at[subgraph - 1], vid))
            need(t, subgraphs, i, vid);
    }
    if (s->kind != KIN_STEP_RETURN && (subgraph == 0 || (late && (s->flags & (KIN_STEP_RAISES | KIN_STEP_OPAQUE) || subgraphs->at.at[subgraph - 1].switches))))
        need_snapshot(t, subgraphs, i);
}

/* A call that may run step by step has snapshots that mention values of earlier subgraphs. What its own subgraph adds to containers is there in that case. framed:
 * whoever runs the graph sees the frames of its first call, and the containers in them. */
static void
need_of_snapshots(const kin_trace *t, kin_subgraphs *subgraphs, uint32_t u, bool framed)
{
    const kin_subgraph *subgraph = &subgraphs->at.at[u];
    for (uint32_t i = subgraph->first; i <= subgraph->last; i++)
        for (uint32_t snap = t->steps.at[i].snap; snap != 0; snap = t->snaps.at[snap].parent) {
            const kin_snap *s = &t->snaps.at[snap];
            kin_vid more[4] = {s->func, s->extra, s->exc, s->names};
            for (uint32_t k = 0; k < 4u + s->nlocals + s->nstack; k++) {
                kin_vid vid = k < 4 ? more[k] : t->vids.at[s->vals + k - 4];
                if (!kin_bounds_made_by(t, subgraphs, subgraph, vid))
                    need_until(t, subgraphs, subgraph->first, vid, framed || shows_frames(t, subgraphs, i) ? UINT32_MAX : subgraph->first);
            }
        }
}

/* A deferred store to an attribute? */
static bool
is_deferred_store(const kin_trace *t, const kin_subgraph *subgraph, uint32_t step)
{
    const kin_step *s = &t->steps.at[step];
    return s->kind == KIN_STEP_SETATTR && !(s->flags & KIN_STEP_SUNK) && kin_subgraph_stores_own(t, s) && kin_subgraph_defers(subgraph, t, step);
}

/* What would be done again at once is not done: self.x = a; self.x = b. With self.y = c in between it is, since the object's attributes have the order in which they were
 * first stored. */
static kin_status
find_replaced(const kin_trace *t, kin_subgraphs *subgraphs, const kin_subgraph *subgraph)
{
    KIN_VEC(uint32_t) later = {0}; /* of each object the first store behind this step */
    kin_status status = KIN_OK;
    for (uint32_t i = subgraph->last; status == KIN_OK && i > subgraph->first; i--) {
        if (!is_deferred_store(t, subgraph, i))
            continue;
        const kin_step *s = &t->steps.at[i];
        uint32_t k = 0;
        while (k < later.len && t->vids.at[t->steps.at[later.at[k]].args] != t->vids.at[s->args])
            k++;
        subgraphs->replaced[i] = k < later.len && t->steps.at[later.at[k]].ref == s->ref;
        if (k < later.len)
            later.at[k] = i;
        else
            status = kin_vec_push(&later, i);
    }
    kin_vec_deinit(&later);
    return status;
}

/* Objects that are built late, or inside a subgraph, need their parts as well. */
static void
need_parts(const kin_trace *t, kin_subgraphs *subgraphs)
{
    for (bool more = true; more;) {
        more = false;
        for (uint32_t i = t->steps.len; i-- > 0;) {
            const kin_step *s = &t->steps.at[i];
            bool changes = changes_what_is_needed(t, subgraphs, i), made = s->out != 0 && subgraphs->needed[s->out];
            if (kin_subgraph_calls(s) || kin_bounds_given_size(subgraphs, i, s) || !(made || changes))
                continue;
            uint32_t until = made ? subgraphs->needed[s->out] : 0;
            if (changes && subgraphs->needed[t->vids.at[s->args]] > until)
                until = subgraphs->needed[t->vids.at[s->args]];
            for (uint32_t a = 0; a < s->nargs; a++)
                more |= need_until(t, subgraphs, i, t->vids.at[s->args + a], until);
        }
    }
}

/* What is read and asked of values by the steps that begin epochs. */
static void
need_of_epochs(const kin_trace *t, kin_subgraphs *subgraphs, const uint32_t *starts)
{
    for (kin_vid vid = 1; vid < t->vals.len; vid++)
        if (t->vals.at[vid].kind == KIN_VAL_SRC)
            need(t, subgraphs, starts[t->vals.at[vid].epoch], t->vals.at[vid].parent);
    for (uint32_t i = 0; i < t->facts.len; i++) {
        need(t, subgraphs, starts[t->facts.at[i].epoch], t->facts.at[i].vid);
        need(t, subgraphs, starts[t->facts.at[i].epoch], t->facts.at[i].vid2);
    }
}

static void
find_needs(const kin_partition_input *in, kin_subgraphs *subgraphs, const uint32_t *starts)
{
    const kin_trace *t = in->t;
    for (uint32_t i = 0; i < in->nkept; i++) {
        const kin_step *s = &t->steps.at[in->kept[i]];
        need(t, subgraphs, 0, s->out);
        for (uint32_t a = 0; a < s->nargs; a++)
            need(t, subgraphs, 0, t->vids.at[s->args + a]);
    }
    for (uint32_t i = 0; i < t->steps.len; i++)
        need_of_step(t, subgraphs, i);
    for (uint32_t u = 0; u < subgraphs->at.len; u++)
        need_of_snapshots(t, subgraphs, u, in->how & KIN_SUBGRAPHS_EVERY);
    need_of_epochs(t, subgraphs, starts);
    need_parts(t, subgraphs);
    for (uint32_t i = 0; i < t->steps.len; i++)
        if (subgraphs->by_step[i] != 0 && kin_step_switches(&t->steps.at[i])) /* the graph has a guard of its own */
            subgraphs->needed[t->steps.at[i].out] = 0;
}

/* Is the value there when the subgraph has run, or can it be built then? */
static bool
is_at_hand(const kin_trace *t, const kin_subgraphs *subgraphs, const kin_subgraph *subgraph, kin_vid vid, int depth)
{
    if (!kin_bounds_made_by(t, subgraphs, subgraph, vid) || subgraphs->needed[vid])
        return true;
    const kin_step *maker = &t->steps.at[t->vals.at[vid].step];
    bool ok = !kin_subgraph_calls(maker) && depth < 12;
    for (uint32_t a = 0; ok && a < maker->nargs; a++)
        ok = is_at_hand(t, subgraphs, subgraph, t->vids.at[maker->args + a], depth + 1);
    return ok;
}

static kin_status
find_builds(const kin_trace *t, const kin_subgraphs *subgraphs, kin_subgraph *subgraph)
{
    KIN_VEC(uint32_t) builds = {0};
    for (uint32_t i = subgraph->first; i <= subgraph->last; i++) {
        const kin_step *s = &t->steps.at[i];
        subgraph->drops = subgraph->drops || (kin_subgraph_calls(s) && s->out != 0 && !subgraphs->needed[s->out]);
        if (s->flags & KIN_STEP_SUNK) {
            bool before = s->flags & KIN_STEP_MUTATES && !kin_bounds_made_since(t, t->vids.at[s->args], subgraph->first); /* it may have been built */
            for (uint32_t a = 0; before && a < s->nargs; a++)
                subgraph->changes_sunk |= !is_at_hand(t, subgraphs, subgraph, t->vids.at[s->args + a], 0);
            subgraph->passes_sunk |= (s->flags & KIN_STEP_MUTATES) != 0;
            continue;
        }
        bool changes = changes_what_is_needed(t, subgraphs, i) || defers_store(subgraph, t, i);
        if (subgraph->at != 0 && i >= subgraph->at) /* built in order */
            continue;
        if (kin_subgraph_defers(subgraph, t, i) && !kin_subgraph_calls(s) && !kin_bounds_given_size(subgraphs, i, s) && s->kind != KIN_STEP_CHECK && ((s->out != 0 && subgraphs->needed[s->out]) || changes) &&
            kin_vec_push(&builds, i) != KIN_OK) {
            kin_vec_deinit(&builds);
            return KIN_NOMEM;
        }
    }
    subgraph->builds = builds.at;
    subgraph->nbuilds = builds.len;
    return KIN_OK;
}

static void
find_stops(const kin_trace *t, kin_subgraphs *subgraphs)
{
    for (uint32_t u = 0; u < subgraphs->at.len; u++) {
        const kin_subgraph *subgraph = &subgraphs->at.at[u];
        for (uint32_t i = subgraph->first; i <= subgraph->last; i++)
            if (i == subgraph->last || (subgraph->at != 0 && i >= subgraph->at) || (!(t->steps.at[i].flags & KIN_STEP_SUNK) && (kin_subgraph_stores_own(t, &t->steps.at[i]) || !kin_subgraph_defers(subgraph, t, i))))
                subgraphs->stops[i / 64] |= UINT64_C(1) << (i % 64);
    }
}

kin_status
kin_partition_find_needs(const kin_partition_input *in, kin_subgraphs *subgraphs, const uint32_t *starts)
{
    const kin_trace *t = in->t;
    KIN_TRY(find_sides(t, subgraphs));
    for (uint32_t u = 0; u < subgraphs->at.len; u++)
        KIN_TRY(find_replaced(t, subgraphs, &subgraphs->at.at[u]));
    find_needs(in, subgraphs, starts);
    find_stops(t, subgraphs);
    for (uint32_t u = 0; u < subgraphs->at.len; u++)
        KIN_TRY(find_builds(t, subgraphs, &subgraphs->at.at[u]));
    return KIN_OK;
}
