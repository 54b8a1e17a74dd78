/* Finding subgraphs in a trace (subgraphs.h), and their memory. */
#include "py/replay/spread.h"

#include "core/trace/effects.h"

#include "py/aten/tensor.h"

#include <stdlib.h>
#include <string.h>

/* -- ranges ----------------------------------------------------------------------------------------------------- */

bool
kin_subgraph_calls(const kin_step *s)
{
    return s->graph != 0 && (s->flags & KIN_STEP_TORCH) && !(s->flags & (KIN_STEP_BREAK | KIN_STEP_RAISES | KIN_STEP_OPAQUE));
}

bool
kin_subgraph_builds(const kin_step *s)
{
    return kin_step_does(s, KIN_MOVES);
}

bool
kin_subgraph_waits_for(const kin_subgraph *subgraph, const kin_trace *t, uint32_t step)
{
    uint8_t role = subgraph->role[step - subgraph->first];
    return !(t->steps.at[step].flags & KIN_STEP_SUNK) && role != KIN_ROLE_PLACE && role != KIN_ROLE_RISKY;
}

/* Is it a store that is done behind the launch? */
static bool
stores_late(const kin_subgraph *subgraph, const kin_trace *t, uint32_t step)
{
    const kin_step *s = &t->steps.at[step];
    return s->flags & KIN_STEP_EFFECT && !kin_subgraph_calls(s) && kin_subgraph_waits_for(subgraph, t, step);
}

static bool
made_since(const kin_trace *t, kin_vid vid, uint32_t first)
{
    const kin_val *val = &t->vals.at[vid];
    return vid != 0 && val->kind == KIN_VAL_STEP && val->step >= first;
}

/* Does the subgraph make the value, at its launch or behind it? */
static bool
made_by(const kin_trace *t, const kin_subgraphs *subgraphs, const kin_subgraph *subgraph, kin_vid vid)
{
    const kin_val *val = &t->vals.at[vid];
    return made_since(t, vid, subgraph->first) && val->step <= subgraph->last && subgraphs->role[val->step] != KIN_ROLE_PLACE &&
           subgraphs->role[val->step] != KIN_ROLE_RISKY;
}

/* A test that a call of this subgraph gave an exact torch.Tensor, as it always does on plain tensors. */
static bool
is_tensor_test(const kin_entry *v, const kin_step *s, uint32_t first)
{
    const kin_trace *t = &v->trace;
    if (s->kind != KIN_STEP_CHECK || s->imm != KIN_CHECK_TYPE || s->flags & KIN_STEP_BREAK || s->nargs == 0)
        return false;
    kin_vid vid = t->vids.at[s->args];
    PyObject *type = kin_refs_get(&v->refs, s->ref);
    return type != NULL && kin_is_tensor_type(type) && t->vals.at[vid].kind == KIN_VAL_STEP &&
           t->vals.at[vid].step >= first && kin_subgraph_calls(&t->steps.at[t->vals.at[vid].step]);
}

/* May the step stand between two calls of a plain subgraph that began at `first`? */
static bool
passes(const kin_entry *v, const kin_step *s, uint32_t first)
{
    if (s->flags & KIN_STEP_SUNK)
        return true;
    if (s->flags & (KIN_STEP_OPAQUE | KIN_STEP_BREAK | KIN_STEP_RAISES | KIN_STEP_EFFECT))
        return false;
    if (s->flags & KIN_STEP_PURE)
        return kin_subgraph_builds(s);
    if (s->flags & KIN_STEP_MUTATES)
        return s->out == 0 && (s->kind == KIN_STEP_NEXT /* a loop over known items goes on */ ||
                               (s->kind == KIN_STEP_LIST_APPEND && made_since(&v->trace, v->trace.vids.at[s->args], first)));
    return is_tensor_test(v, s, first);
}

typedef struct {
    const kin_entry *v;
    kin_subgraphs *subgraphs;
    unsigned how;    /* KIN_SUBGRAPHS_... */
    bool open;
    bool plain;      /* the open subgraph is to be a plain one */
    bool plain_here; /* so are all steps since its last call */
    kin_spread spread;
} finder;

static bool
goes_on_over(finder *f, uint32_t i)
{
    const kin_step *s = &f->v->trace.steps.at[i];
    const kin_subgraph *subgraph = &f->subgraphs->at.at[f->subgraphs->at.len - 1];
    if (!f->plain) {
        f->plain_here = f->plain_here && passes(f->v, s, subgraph->first);
        return kin_spread_pass(&f->spread, i, kin_step_is_in(f->v->walls.at, f->v->walls.len, i));
    }
    f->subgraphs->role[i] = s->kind == KIN_STEP_CHECK ? KIN_ROLE_TEST : KIN_ROLE_LATER;
    return passes(f->v, s, subgraph->first);
}

/* May the call join the open subgraph? */
static bool
joins(finder *f, uint32_t i, bool apart)
{
    const kin_trace *t = &f->v->trace;
    uint32_t n = f->subgraphs->at.len;
    if (!f->open || t->steps.at[i].graph != t->steps.at[f->subgraphs->at.at[n - 1].first].graph)
        return false;
    return f->plain || (!apart && kin_spread_call(&f->spread, i));
}

/* The open subgraph cannot go on over the step. */
static void
end_subgraph(finder *f, uint32_t i, const char *why)
{
    kin_subgraph *subgraph = &f->subgraphs->at.at[f->subgraphs->at.len - 1];
    f->open = false;
    subgraph->end = i;
    subgraph->why = why;
}

static kin_status
add_call(finder *f, uint32_t i)
{
    kin_subgraphs *subgraphs = f->subgraphs;
    uint32_t n = subgraphs->at.len;
    bool apart = kin_step_is_in(f->v->apart.at, f->v->apart.len, i);
    if (!joins(f, i, apart)) {
        if (f->open)
            end_subgraph(f, i, "one of its inputs is modified between the calls");
        KIN_TRY(kin_vec_push(&subgraphs->at, ((kin_subgraph){.first = i, .plain = true})));
        kin_spread_begin(&f->spread, ++n, i);
        f->plain = apart || !(f->how & KIN_SUBGRAPHS_WIDE);
        f->plain_here = true;
        if (!f->plain)
            kin_spread_call(&f->spread, i);
    }
    f->open = true;
    subgraphs->role[i] = KIN_ROLE_CALL;
    subgraphs->at.at[n - 1].last = i;
    subgraphs->at.at[n - 1].plain &= f->plain_here;
    subgraphs->by_step[i] = n;
    f->plain_here = true;
    return KIN_OK;
}

static kin_status
find_ranges(finder *f)
{
    const kin_trace *t = &f->v->trace;
    for (uint32_t i = 0; i < t->steps.len; i++) {
        if (i > 0 && (t->steps.at[i - 1].kind == KIN_STEP_RETURN || t->steps.at[i - 1].kind == KIN_STEP_EXIT))
            f->open = false;
        bool call = kin_subgraph_calls(&t->steps.at[i]);
        if (!call && f->open && !goes_on_over(f, i))
            end_subgraph(f, i, f->plain ? "another step stands between its calls" : f->spread.why);
        else if (call && f->open && f->how == KIN_SUBGRAPHS_WIDE && kin_step_is_in(f->v->apart.at, f->v->apart.len, i))
            end_subgraph(f, i, "it cannot be compiled together with other calls");
        else if (call && !(f->how == KIN_SUBGRAPHS_WIDE && kin_step_is_in(f->v->apart.at, f->v->apart.len, i)))
            KIN_TRY(add_call(f, i));
    }
    return KIN_OK;
}

static void
note_roles(const kin_trace *t, kin_subgraphs *subgraphs)
{
    for (uint32_t u = 0; u < subgraphs->at.len; u++) {
        kin_subgraph *subgraph = &subgraphs->at.at[u];
        subgraph->role = subgraphs->role + subgraph->first;
        for (uint32_t i = subgraph->first; i <= subgraph->last; i++)
            subgraph->waits = subgraph->waits || (!(t->steps.at[i].flags & KIN_STEP_SUNK) && !kin_subgraph_waits_for(subgraph, t, i));
        subgraph->plain = subgraph->plain && !subgraph->waits;
    }
}

/* -- who needs what --------------------------------------------------------------------------------------------- */

static void
need(const kin_trace *t, kin_subgraphs *subgraphs, kin_vid vid)
{
    if (vid != 0 && vid < t->vals.len)
        subgraphs->needed[vid] = 1;
}

static void
need_snapshot(const kin_trace *t, kin_subgraphs *subgraphs, uint32_t snap)
{
    for (; snap != 0; snap = t->snaps.at[snap].parent) {
        const kin_snap *s = &t->snaps.at[snap];
        need(t, subgraphs, s->func);
        need(t, subgraphs, s->extra);
        need(t, subgraphs, s->exc);
        for (uint32_t i = 0; i < (uint32_t)s->nlocals + s->nstack; i++)
            need(t, subgraphs, t->vids.at[s->vals + i]);
    }
}

/* The subgraph whose range holds the step, from 1; 0 = none. They lie one behind the other. */
static uint32_t
subgraph_around(const kin_subgraphs *subgraphs, uint32_t step)
{
    uint32_t low = 0, high = subgraphs->at.len;
    while (low < high) {
        uint32_t mid = low + (high - low) / 2;
        if (subgraphs->at.at[mid].first <= step)
            low = mid + 1;
        else
            high = mid;
    }
    return low > 0 && step <= subgraphs->at.at[low - 1].last ? low : 0;
}

/* What a step that runs outside of all subgraphs uses, and what the calls of a subgraph take from elsewhere. RETURN's snapshot
 * serves only handlers of signals, which may as well run right behind the call. */
static void
need_of_step(const kin_trace *t, kin_subgraphs *subgraphs, uint32_t i)
{
    const kin_step *s = &t->steps.at[i];
    uint32_t subgraph = subgraph_around(subgraphs, i);
    if (s->flags & KIN_STEP_SUNK)
        return;
    bool all = subgraph == 0 || stores_late(&subgraphs->at.at[subgraph - 1], t, i);
    for (uint32_t a = 0; a < s->nargs; a++) {
        kin_vid vid = t->vids.at[s->args + a];
        if (all || !made_by(t, subgraphs, &subgraphs->at.at[subgraph - 1], vid))
            need(t, subgraphs, vid);
    }
    if (s->kind != KIN_STEP_RETURN && subgraph == 0)
        need_snapshot(t, subgraphs, s->snap);
}

/* A call that may run step by step has snapshots that mention values of earlier subgraphs. */
static void
need_of_snapshots(const kin_trace *t, kin_subgraphs *subgraphs, uint32_t u)
{
    const kin_subgraph *subgraph = &subgraphs->at.at[u];
    for (uint32_t i = subgraph->first; i <= subgraph->last; i++)
        for (uint32_t snap = t->steps.at[i].snap; snap != 0; snap = t->snaps.at[snap].parent) {
            const kin_snap *s = &t->snaps.at[snap];
            kin_vid more[3] = {s->func, s->extra, s->exc};
            for (uint32_t k = 0; k < 3u + s->nlocals + s->nstack; k++) {
                kin_vid vid = k < 3 ? more[k] : t->vids.at[s->vals + k - 3];
                if (!made_by(t, subgraphs, subgraph, vid))
                    need(t, subgraphs, vid);
            }
        }
}

/* A size of something that the subgraph makes follows from its inputs: the launch gives the number, and the tensor may never exist. */
static bool
is_given_size(const kin_subgraphs *subgraphs, uint32_t step, const kin_step *s)
{
    return s->kind == KIN_STEP_SIZE && subgraphs->role[step] == KIN_ROLE_LATER && !(s->flags & KIN_STEP_SUNK);
}

/* A store to an attribute that waits in the subgraph? */
static bool
is_late_store(const kin_entry *v, const kin_subgraph *subgraph, uint32_t step)
{
    const kin_step *s = &v->trace.steps.at[step];
    return s->kind == KIN_STEP_SETATTR && !(s->flags & KIN_STEP_SUNK) && kin_subgraph_stores_own(v, s) && kin_subgraph_waits_for(subgraph, &v->trace, step);
}

/* A launch does not do what it would do again at once: self.x = a; self.x = b. */
static kin_status
find_replaced(const kin_entry *v, kin_subgraphs *subgraphs, const kin_subgraph *subgraph)
{
    const kin_trace *t = &v->trace;
    KIN_VEC(uint32_t) later = {0};
    kin_status status = KIN_OK;
    for (uint32_t i = subgraph->last; status == KIN_OK && i > subgraph->first; i--) {
        if (!is_late_store(v, subgraph, i))
            continue;
        const kin_step *s = &t->steps.at[i];
        for (uint32_t k = 0; k < later.len && !subgraphs->replaced[i]; k++) {
            const kin_step *other = &t->steps.at[later.at[k]];
            subgraphs->replaced[i] = other->ref == s->ref && t->vids.at[other->args] == t->vids.at[s->args];
        }
        if (!subgraphs->replaced[i])
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
            bool changes = s->flags & KIN_STEP_MUTATES && s->nargs > 0 && subgraphs->needed[t->vids.at[s->args]] && !subgraphs->replaced[i];
            if (kin_subgraph_calls(s) || is_given_size(subgraphs, i, s) || !((s->out != 0 && subgraphs->needed[s->out]) || changes))
                continue;
            for (uint32_t a = 0; a < s->nargs; a++) {
                kin_vid vid = t->vids.at[s->args + a];
                if (vid == 0 || subgraphs->needed[vid])
                    continue;
                subgraphs->needed[vid] = 1;
                more = true;
            }
        }
    }
}

static void
find_needs(const kin_trace *t, kin_subgraphs *subgraphs)
{
    for (uint32_t i = 0; i < t->steps.len; i++)
        need_of_step(t, subgraphs, i);
    for (uint32_t u = 0; u < subgraphs->at.len; u++)
        need_of_snapshots(t, subgraphs, u);
    for (kin_vid vid = 1; vid < t->vals.len; vid++)
        if (t->vals.at[vid].kind == KIN_VAL_SRC)
            need(t, subgraphs, t->vals.at[vid].parent);
    for (uint32_t i = 0; i < t->facts.len; i++) {
        need(t, subgraphs, t->facts.at[i].vid);
        need(t, subgraphs, t->facts.at[i].vid2);
    }
    need_parts(t, subgraphs);
}

/* Is the value there when the subgraph was launched, or can it be built then? */
static bool
is_at_hand(const kin_trace *t, const kin_subgraphs *subgraphs, const kin_subgraph *subgraph, kin_vid vid, int depth)
{
    if (!made_by(t, subgraphs, subgraph, vid) || subgraphs->needed[vid])
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
            bool before = s->flags & KIN_STEP_MUTATES && !made_since(t, t->vids.at[s->args], subgraph->first); /* it may have been built */
            for (uint32_t a = 0; before && a < s->nargs; a++)
                subgraph->changes_sunk |= !is_at_hand(t, subgraphs, subgraph, t->vids.at[s->args + a], 0);
            subgraph->passes_sunk |= (s->flags & KIN_STEP_MUTATES) != 0;
            continue;
        }
        bool changes = (s->flags & KIN_STEP_MUTATES && subgraphs->needed[t->vids.at[s->args]] && !subgraphs->replaced[i]) || stores_late(subgraph, t, i);
        if (kin_subgraph_waits_for(subgraph, t, i) && !kin_subgraph_calls(s) && !is_given_size(subgraphs, i, s) && s->kind != KIN_STEP_CHECK && ((s->out != 0 && subgraphs->needed[s->out]) || changes) &&
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
find_stops(const kin_entry *v, kin_subgraphs *subgraphs)
{
    const kin_trace *t = &v->trace;
    for (uint32_t u = 0; u < subgraphs->at.len; u++) {
        const kin_subgraph *subgraph = &subgraphs->at.at[u];
        for (uint32_t i = subgraph->first; i <= subgraph->last; i++)
            if (i == subgraph->last || (kin_subgraph_stores_own(v, &t->steps.at[i]) && !(t->steps.at[i].flags & KIN_STEP_SUNK)) || !(t->steps.at[i].flags & KIN_STEP_SUNK || kin_subgraph_waits_for(subgraph, t, i)))
                subgraphs->stops[i / 64] |= UINT64_C(1) << (i % 64);
    }
}

/* By value: the first step that is neither a torch call nor put off and gets it. */
static void
find_touches(const kin_trace *t, kin_subgraphs *subgraphs)
{
    memset(subgraphs->touched, 0xff, t->vals.len * sizeof *subgraphs->touched);
    for (uint32_t i = t->steps.len; i-- > 0;) {
        const kin_step *s = &t->steps.at[i];
        if (s->flags & KIN_STEP_TORCH || (s->flags & KIN_STEP_SUNK && kin_subgraph_builds(s)))
            continue;
        for (uint32_t a = 0; a < s->nargs; a++)
            subgraphs->touched[t->vids.at[s->args + a]] = i;
    }
}

kin_subgraphs *
kin_subgraphs_find(const kin_entry *v, unsigned how)
{
    kin_subgraphs *subgraphs = calloc(1, sizeof *subgraphs);
    if (subgraphs == NULL)
        return NULL;
    subgraphs->refs = 1;
    subgraphs->nsteps = v->trace.steps.len;
    subgraphs->by_step = calloc(v->trace.steps.len, sizeof *subgraphs->by_step);
    subgraphs->needed = calloc(v->trace.vals.len, 1);
    subgraphs->touched = calloc(v->trace.vals.len, sizeof *subgraphs->touched);
    subgraphs->role = calloc(v->trace.steps.len, 1);
    subgraphs->replaced = calloc(v->trace.steps.len, 1);
    subgraphs->stops = calloc(v->trace.steps.len / 64 + 1, sizeof *subgraphs->stops);
    finder f = {.v = v, .subgraphs = subgraphs, .how = how};
    kin_status status = kin_spread_init(&f.spread, v, subgraphs->role);
    if (subgraphs->by_step == NULL || subgraphs->needed == NULL || subgraphs->touched == NULL || subgraphs->role == NULL || subgraphs->replaced == NULL ||
        subgraphs->stops == NULL)
        status = KIN_NOMEM;
    if (status == KIN_OK) {
        find_touches(&v->trace, subgraphs);
        status = find_ranges(&f);
    }
    kin_spread_deinit(&f.spread);
    if (status == KIN_OK) {
        note_roles(&v->trace, subgraphs);
        for (uint32_t u = 0; status == KIN_OK && u < subgraphs->at.len; u++)
            status = find_replaced(v, subgraphs, &subgraphs->at.at[u]);
        find_needs(&v->trace, subgraphs);
        find_stops(v, subgraphs);
    }
    for (uint32_t u = 0; status == KIN_OK && u < subgraphs->at.len; u++)
        status = find_builds(&v->trace, subgraphs, &subgraphs->at.at[u]);
    if (status == KIN_OK)
        return subgraphs;
    kin_subgraphs_release(subgraphs);
    return NULL;
}

/* -- what goes in and out ---------------------------------------------------------------------------------------- */

/* Does the container hold what it was built from, when the subgraph's calls get it? Only torch calls have seen it until `first`, and
 * they change none; nothing inside the subgraph changes what its calls get. */
static bool
is_as_built(const kin_trace *t, const kin_subgraphs *subgraphs, kin_vid vid, uint32_t first)
{
    const kin_val *val = &t->vals.at[vid];
    if (val->kind != KIN_VAL_STEP || !kin_subgraph_builds(&t->steps.at[val->step]))
        return false;
    uint8_t kind = t->steps.at[val->step].kind;
    if (kind == KIN_STEP_BUILD_TUPLE || kind == KIN_STEP_BUILD_SIZE || kind == KIN_STEP_BUILD_SLICE || kind == KIN_STEP_BUILD_METHOD)
        return true;
    return (kind == KIN_STEP_BUILD_LIST || kind == KIN_STEP_BUILD_MAP) && subgraphs->touched[vid] >= first;
}

static kin_status
push_once(kin_vids *list, kin_vid vid)
{
    for (uint32_t i = 0; i < list->len; i++)
        if (list->at[i] == vid)
            return KIN_OK;
    return kin_vec_push(list, vid);
}

static kin_status
add_inputs(const kin_trace *t, const kin_subgraphs *subgraphs, const kin_subgraph *subgraph, const kin_step *s, kin_vids *in, int depth)
{
    for (uint32_t a = 0; a < s->nargs; a++) {
        kin_vid vid = t->vids.at[s->args + a];
        if (vid == 0 || t->vals.at[vid].kind == KIN_VAL_CONST || made_by(t, subgraphs, subgraph, vid))
            continue;
        if (depth < 12 && is_as_built(t, subgraphs, vid, subgraph->first))
            KIN_TRY(add_inputs(t, subgraphs, subgraph, &t->steps.at[t->vals.at[vid].step], in, depth + 1));
        else
            KIN_TRY(push_once(in, vid));
    }
    return KIN_OK;
}

/* Which steps have a part in what the calls get: the others are done behind the subgraph, or not at all. */
static kin_status
find_parts(const kin_trace *t, const kin_subgraphs *subgraphs, kin_subgraph *subgraph)
{
    uint8_t *used = calloc(t->vals.len, 1);
    free(subgraph->runs);
    subgraph->runs = calloc(subgraph->last - subgraph->first + 1, 1);
    bool ok = used != NULL && subgraph->runs != NULL;
    for (uint32_t i = subgraph->last + 1; ok && i-- > subgraph->first;) {
        const kin_step *s = &t->steps.at[i];
        const kin_vid *args = t->vids.at + s->args;
        bool advances = s->kind == KIN_STEP_NEXT && s->out == 0;
        bool runs = kin_subgraph_calls(s) || (is_given_size(subgraphs, i, s) && subgraphs->needed[s->out]) || s->kind == KIN_STEP_CHECK || (s->out != 0 && used[s->out]) ||
                    (s->flags & KIN_STEP_MUTATES && s->nargs > 0 && used[args[0]]);
        if (!kin_subgraph_waits_for(subgraph, t, i) || advances || !runs)
            continue;
        subgraph->runs[i - subgraph->first] = 1;
        for (uint32_t a = 0; a < s->nargs; a++)
            used[args[a]] = 1;
    }
    free(used);
    return ok ? KIN_OK : KIN_NOMEM;
}

kin_status
kin_subgraph_bounds(const kin_entry *v, kin_subgraphs *subgraphs, uint32_t u, kin_vids *in, kin_vids *out)
{
    const kin_trace *t = &v->trace;
    kin_subgraph *subgraph = &subgraphs->at.at[u];
    KIN_TRY(find_parts(t, subgraphs, subgraph));
    for (uint32_t i = subgraph->first; i <= subgraph->last; i++) {
        const kin_step *s = &t->steps.at[i];
        if (!subgraph->runs[i - subgraph->first])
            continue;
        KIN_TRY(add_inputs(t, subgraphs, subgraph, s, in, 0));
        if ((kin_subgraph_calls(s) || is_given_size(subgraphs, i, s)) && s->out != 0 && subgraphs->needed[s->out])
            KIN_TRY(kin_vec_push(out, s->out));
    }
    return KIN_OK;
}

/* -- memory ----------------------------------------------------------------------------------------------------- */

static kin_vid *
copy_vids(const kin_vid *vids, uint32_t n)
{
    kin_vid *copy = malloc((n + 1) * sizeof *copy);
    if (copy != NULL)
        memcpy(copy, vids, n * sizeof *copy);
    return copy;
}

static bool
changed_inside(const kin_trace *t, kin_vid vid, const kin_subgraph *subgraph)
{
    for (uint32_t i = subgraph->first; i <= subgraph->last; i++)
        if (t->steps.at[i].flags & KIN_STEP_MUTATES && t->steps.at[i].nargs > 0 &&
            t->vids.at[t->steps.at[i].args] == vid)
            return true;
    return false;
}

/* The step behind which the value is there; the subgraph's first one if it is there before. */
static uint32_t
arrival(const kin_trace *t, const kin_subgraph *subgraph, kin_vid vid)
{
    const kin_val *val = &t->vals.at[vid];
    if (val->kind == KIN_VAL_STEP)
        return val->step > subgraph->first ? val->step : subgraph->first;
    for (uint32_t i = subgraph->first; i <= subgraph->last; i++)
        if (t->steps.at[i].kind == KIN_STEP_SEGMENT && t->steps.at[i].num == val->seg)
            return i;
    return subgraph->first;
}

static bool
order_inputs(const kin_trace *t, kin_subgraph *subgraph, uint32_t nin)
{
    uint32_t n = 0;
    subgraph->order = malloc((nin + 1) * sizeof *subgraph->order);
    subgraph->arrives = malloc((nin + 1) * sizeof *subgraph->arrives);
    if (subgraph->order == NULL || subgraph->arrives == NULL)
        return false;
    for (uint32_t i = 0; i < nin; i++) { /* insertion sort: mostly in order */
        uint32_t at = arrival(t, subgraph, subgraph->in[i]), k = n++;
        for (; k > 0 && subgraph->arrives[k - 1] > at; k--) {
            subgraph->arrives[k] = subgraph->arrives[k - 1];
            subgraph->order[k] = subgraph->order[k - 1];
        }
        subgraph->arrives[k] = at;
        subgraph->order[k] = i;
        subgraph->nearly += at == subgraph->first;
    }
    return true;
}

/* The last use of a value may be that it became part of an argument, before the subgraph begins. */
static bool
find_holders(const kin_trace *t, const kin_subgraphs *subgraphs, kin_subgraph *subgraph, uint32_t nin)
{
    enum { FAR = 4096 }; /* long programs have many subgraphs */
    subgraph->held = calloc(nin + 1, sizeof *subgraph->held);
    for (uint32_t i = subgraph->first > FAR ? subgraph->first - FAR : 0; subgraph->held != NULL && i < subgraph->first; i++) {
        const kin_step *s = &t->steps.at[i];
        if ((s->kind != KIN_STEP_BUILD_TUPLE && s->kind != KIN_STEP_BUILD_LIST) || !is_as_built(t, subgraphs, s->out, subgraph->first))
            continue;
        for (uint32_t k = 0; k < nin; k++)
            for (uint32_t a = 0; a < s->nargs; a++)
                if (t->vids.at[s->args + a] == subgraph->in[k])
                    subgraph->held[k] = (kin_held){s->out, a};
    }
    return subgraph->held != NULL;
}

kin_status
kin_subgraph_set(const kin_entry *v, kin_subgraphs *subgraphs, uint32_t u, const kin_vid *in, uint32_t nin, const kin_vid *out,
             uint32_t nout, kin_launcher *launcher)
{
    kin_subgraph *subgraph = &subgraphs->at.at[u];
    for (uint32_t i = 0; i < nin; i++)
        if (made_by(&v->trace, subgraphs, subgraph, in[i]) || changed_inside(&v->trace, in[i], subgraph))
            return KIN_BREAK;
    subgraph->in = copy_vids(in, nin);
    subgraph->out = copy_vids(out, nout);
    if (subgraph->in == NULL || subgraph->out == NULL || !order_inputs(&v->trace, subgraph, nin) ||
        !find_holders(&v->trace, subgraphs, subgraph, nin))
        return KIN_NOMEM;
    subgraph->nin = nin;
    subgraph->nout = nout;
    subgraph->launcher = launcher;
    launcher->refs++;
    return KIN_OK;
}

void
kin_launcher_release(kin_launcher *launcher)
{
    if (launcher != NULL && --launcher->refs == 0)
        launcher->free(launcher);
}

void
kin_subgraph_stop(kin_subgraph *subgraph)
{
    kin_launcher_release(subgraph->launcher);
    subgraph->launcher = NULL;
}

void
kin_subgraphs_release(kin_subgraphs *subgraphs)
{
    if (subgraphs == NULL || --subgraphs->refs > 0)
        return;
    for (uint32_t u = 0; u < subgraphs->at.len; u++) {
        kin_subgraph *subgraph = &subgraphs->at.at[u];
        free(subgraph->in);
        free(subgraph->out);
        free(subgraph->builds);
        free(subgraph->runs);
        free(subgraph->order);
        free(subgraph->arrives);
        free(subgraph->held);
        kin_launcher_release(subgraph->launcher);
    }
    kin_vec_deinit(&subgraphs->at);
    free(subgraphs->by_step);
    free(subgraphs->role);
    free(subgraphs->replaced);
    free(subgraphs->needed);
    free(subgraphs->touched);
    free(subgraphs->stops);
    free(subgraphs);
}
