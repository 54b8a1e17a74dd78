/* Finding units in a trace (units.h), and their memory. */
#include "py/replay/spread.h"

#include "py/aten/tensor.h"

#include <stdlib.h>
#include <string.h>

/* -- ranges ----------------------------------------------------------------------------------------------------- */

bool
kin_unit_calls(const kin_step *s)
{
    return s->graph != 0 && (s->flags & KIN_STEP_TORCH) && !(s->flags & (KIN_STEP_BREAK | KIN_STEP_RAISES | KIN_STEP_OPAQUE));
}

bool
kin_unit_builds(const kin_step *s)
{
    return s->kind == KIN_STEP_BUILD_TUPLE || s->kind == KIN_STEP_BUILD_LIST || s->kind == KIN_STEP_BUILD_MAP ||
           s->kind == KIN_STEP_BUILD_SIZE || s->kind == KIN_STEP_BUILD_SLICE || s->kind == KIN_STEP_LIST_TO_TUPLE || s->kind == KIN_STEP_BUILD_METHOD ||
           s->kind == KIN_STEP_BUILD_CELL;
}

bool
kin_unit_waits_for(const kin_unit *unit, const kin_trace *t, uint32_t step)
{
    uint8_t role = unit->role[step - unit->first];
    return !(t->steps.at[step].flags & KIN_STEP_SUNK) && role != KIN_ROLE_PLACE && role != KIN_ROLE_RISKY;
}

/* Is it a store that is done behind the launch? */
static bool
stores_late(const kin_unit *unit, const kin_trace *t, uint32_t step)
{
    const kin_step *s = &t->steps.at[step];
    return s->flags & KIN_STEP_EFFECT && !kin_unit_calls(s) && kin_unit_waits_for(unit, t, step);
}

static bool
made_since(const kin_trace *t, kin_vid vid, uint32_t first)
{
    const kin_val *val = &t->vals.at[vid];
    return vid != 0 && val->kind == KIN_VAL_STEP && val->step >= first;
}

/* Does the unit make the value, at its launch or behind it? */
static bool
made_by(const kin_trace *t, const kin_units *units, const kin_unit *unit, kin_vid vid)
{
    const kin_val *val = &t->vals.at[vid];
    return made_since(t, vid, unit->first) && val->step <= unit->last && units->role[val->step] != KIN_ROLE_PLACE &&
           units->role[val->step] != KIN_ROLE_RISKY;
}

/* A test that a call of this unit gave an exact torch.Tensor, as it always does on plain tensors. */
static bool
is_tensor_test(const kin_variant *v, const kin_step *s, uint32_t first)
{
    const kin_trace *t = &v->trace;
    if (s->kind != KIN_STEP_CHECK || s->imm != KIN_CHECK_TYPE || s->flags & KIN_STEP_BREAK || s->nargs == 0)
        return false;
    kin_vid vid = t->vids.at[s->args];
    PyObject *type = kin_refs_get(&v->refs, s->ref);
    return type != NULL && kin_is_tensor_type(type) && t->vals.at[vid].kind == KIN_VAL_STEP &&
           t->vals.at[vid].step >= first && kin_unit_calls(&t->steps.at[t->vals.at[vid].step]);
}

/* May the step stand between two calls of a plain unit that began at `first`? */
static bool
passes(const kin_variant *v, const kin_step *s, uint32_t first)
{
    if (s->flags & KIN_STEP_SUNK)
        return true;
    if (s->flags & (KIN_STEP_OPAQUE | KIN_STEP_BREAK | KIN_STEP_RAISES | KIN_STEP_EFFECT))
        return false;
    if (s->flags & KIN_STEP_PURE)
        return kin_unit_builds(s);
    if (s->flags & KIN_STEP_MUTATES)
        return s->out == 0 && (s->kind == KIN_STEP_NEXT /* a loop over known items goes on */ ||
                               (s->kind == KIN_STEP_LIST_APPEND && made_since(&v->trace, v->trace.vids.at[s->args], first)));
    return is_tensor_test(v, s, first);
}

typedef struct {
    const kin_variant *v;
    kin_units *units;
    unsigned how;    /* KIN_UNITS_... */
    bool open;
    bool plain;      /* the open unit is to be a plain one */
    bool plain_here; /* so are all steps since its last call */
    kin_spread spread;
} finder;

static bool
goes_on_over(finder *f, uint32_t i)
{
    const kin_step *s = &f->v->trace.steps.at[i];
    const kin_unit *unit = &f->units->at.at[f->units->at.len - 1];
    if (!f->plain) {
        f->plain_here = f->plain_here && passes(f->v, s, unit->first);
        return kin_spread_pass(&f->spread, i, kin_step_is_in(f->v->walls.at, f->v->walls.len, i));
    }
    f->units->role[i] = s->kind == KIN_STEP_CHECK ? KIN_ROLE_TEST : KIN_ROLE_LATER;
    return passes(f->v, s, unit->first);
}

/* May the call join the open unit? */
static bool
joins(finder *f, uint32_t i, bool apart)
{
    const kin_trace *t = &f->v->trace;
    uint32_t n = f->units->at.len;
    if (!f->open || t->steps.at[i].graph != t->steps.at[f->units->at.at[n - 1].first].graph)
        return false;
    return f->plain || (!apart && kin_spread_call(&f->spread, i));
}

/* The open unit cannot go on over the step. */
static void
end_unit(finder *f, uint32_t i, const char *why)
{
    kin_unit *unit = &f->units->at.at[f->units->at.len - 1];
    f->open = false;
    unit->end = i;
    unit->why = why;
}

static kin_status
add_call(finder *f, uint32_t i)
{
    kin_units *units = f->units;
    uint32_t n = units->at.len;
    bool apart = kin_step_is_in(f->v->apart.at, f->v->apart.len, i);
    if (!joins(f, i, apart)) {
        if (f->open)
            end_unit(f, i, "something between the calls changed what it gets");
        KIN_TRY(kin_vec_push(&units->at, ((kin_unit){.first = i, .plain = true})));
        kin_spread_begin(&f->spread, ++n, i);
        f->plain = apart || !(f->how & KIN_UNITS_WIDE);
        f->plain_here = true;
        if (!f->plain)
            kin_spread_call(&f->spread, i);
    }
    f->open = true;
    units->role[i] = KIN_ROLE_CALL;
    units->at.at[n - 1].last = i;
    units->at.at[n - 1].plain &= f->plain_here;
    units->by_step[i] = n;
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
        bool call = kin_unit_calls(&t->steps.at[i]);
        if (!call && f->open && !goes_on_over(f, i))
            end_unit(f, i, f->plain ? "nothing may stand between the calls of a plain unit" : f->spread.why);
        else if (call && f->open && f->how == KIN_UNITS_WIDE && kin_step_is_in(f->v->apart.at, f->v->apart.len, i))
            end_unit(f, i, "it cannot be compiled with others");
        else if (call && !(f->how == KIN_UNITS_WIDE && kin_step_is_in(f->v->apart.at, f->v->apart.len, i)))
            KIN_TRY(add_call(f, i));
    }
    return KIN_OK;
}

static void
note_roles(const kin_trace *t, kin_units *units)
{
    for (uint32_t u = 0; u < units->at.len; u++) {
        kin_unit *unit = &units->at.at[u];
        unit->role = units->role + unit->first;
        for (uint32_t i = unit->first; i <= unit->last; i++)
            unit->waits = unit->waits || (!(t->steps.at[i].flags & KIN_STEP_SUNK) && !kin_unit_waits_for(unit, t, i));
        unit->plain = unit->plain && !unit->waits;
    }
}

/* -- who needs what --------------------------------------------------------------------------------------------- */

static void
need(const kin_trace *t, kin_units *units, kin_vid vid)
{
    if (vid != 0 && vid < t->vals.len)
        units->needed[vid] = 1;
}

static void
need_snapshot(const kin_trace *t, kin_units *units, uint32_t snap)
{
    for (; snap != 0; snap = t->snaps.at[snap].parent) {
        const kin_snap *s = &t->snaps.at[snap];
        need(t, units, s->func);
        need(t, units, s->extra);
        need(t, units, s->exc);
        for (uint32_t i = 0; i < (uint32_t)s->nlocals + s->nstack; i++)
            need(t, units, t->vids.at[s->vals + i]);
    }
}

/* The unit whose range holds the step, from 1; 0 = none. They lie one behind the other. */
static uint32_t
unit_around(const kin_units *units, uint32_t step)
{
    uint32_t low = 0, high = units->at.len;
    while (low < high) {
        uint32_t mid = low + (high - low) / 2;
        if (units->at.at[mid].first <= step)
            low = mid + 1;
        else
            high = mid;
    }
    return low > 0 && step <= units->at.at[low - 1].last ? low : 0;
}

/* What a step that runs outside of all units uses, and what the calls of a unit take from elsewhere. RETURN's snapshot
 * serves only handlers of signals, which may as well run right behind the call. */
static void
need_of_step(const kin_trace *t, kin_units *units, uint32_t i)
{
    const kin_step *s = &t->steps.at[i];
    uint32_t unit = unit_around(units, i);
    if (s->flags & KIN_STEP_SUNK)
        return;
    bool all = unit == 0 || stores_late(&units->at.at[unit - 1], t, i);
    for (uint32_t a = 0; a < s->nargs; a++) {
        kin_vid vid = t->vids.at[s->args + a];
        if (all || !made_by(t, units, &units->at.at[unit - 1], vid))
            need(t, units, vid);
    }
    if (s->kind != KIN_STEP_RETURN && unit == 0)
        need_snapshot(t, units, s->snap);
}

/* A call that may run step by step has snapshots that mention values of earlier units. */
static void
need_of_snapshots(const kin_trace *t, kin_units *units, uint32_t u)
{
    const kin_unit *unit = &units->at.at[u];
    for (uint32_t i = unit->first; i <= unit->last; i++)
        for (uint32_t snap = t->steps.at[i].snap; snap != 0; snap = t->snaps.at[snap].parent) {
            const kin_snap *s = &t->snaps.at[snap];
            kin_vid more[3] = {s->func, s->extra, s->exc};
            for (uint32_t k = 0; k < 3u + s->nlocals + s->nstack; k++) {
                kin_vid vid = k < 3 ? more[k] : t->vids.at[s->vals + k - 3];
                if (!made_by(t, units, unit, vid))
                    need(t, units, vid);
            }
        }
}

/* A size of something that the unit makes follows from its inputs: the launch gives the number, and the tensor may never exist. */
static bool
is_given_size(const kin_units *units, uint32_t step, const kin_step *s)
{
    return s->kind == KIN_STEP_SIZE && units->role[step] == KIN_ROLE_LATER && !(s->flags & KIN_STEP_SUNK);
}

/* A store to an attribute that waits in the unit? */
static bool
is_late_store(const kin_variant *v, const kin_unit *unit, uint32_t step)
{
    const kin_step *s = &v->trace.steps.at[step];
    return s->kind == KIN_STEP_SETATTR && !(s->flags & KIN_STEP_SUNK) && kin_unit_stores_own(v, s) && kin_unit_waits_for(unit, &v->trace, step);
}

/* A launch does not do what it would do again at once: self.x = a; self.x = b. */
static kin_status
find_replaced(const kin_variant *v, kin_units *units, const kin_unit *unit)
{
    const kin_trace *t = &v->trace;
    KIN_VEC(uint32_t) later = {0};
    kin_status status = KIN_OK;
    for (uint32_t i = unit->last; status == KIN_OK && i > unit->first; i--) {
        if (!is_late_store(v, unit, i))
            continue;
        const kin_step *s = &t->steps.at[i];
        for (uint32_t k = 0; k < later.len && !units->replaced[i]; k++) {
            const kin_step *other = &t->steps.at[later.at[k]];
            units->replaced[i] = other->ref == s->ref && t->vids.at[other->args] == t->vids.at[s->args];
        }
        if (!units->replaced[i])
            status = kin_vec_push(&later, i);
    }
    kin_vec_deinit(&later);
    return status;
}

/* Objects that are built late, or inside a unit, need their parts as well. */
static void
need_parts(const kin_trace *t, kin_units *units)
{
    for (bool more = true; more;) {
        more = false;
        for (uint32_t i = t->steps.len; i-- > 0;) {
            const kin_step *s = &t->steps.at[i];
            bool changes = s->flags & KIN_STEP_MUTATES && s->nargs > 0 && units->needed[t->vids.at[s->args]] && !units->replaced[i];
            if (kin_unit_calls(s) || is_given_size(units, i, s) || !((s->out != 0 && units->needed[s->out]) || changes))
                continue;
            for (uint32_t a = 0; a < s->nargs; a++) {
                kin_vid vid = t->vids.at[s->args + a];
                if (vid == 0 || units->needed[vid])
                    continue;
                units->needed[vid] = 1;
                more = true;
            }
        }
    }
}

static void
find_needs(const kin_trace *t, kin_units *units)
{
    for (uint32_t i = 0; i < t->steps.len; i++)
        need_of_step(t, units, i);
    for (uint32_t u = 0; u < units->at.len; u++)
        need_of_snapshots(t, units, u);
    for (kin_vid vid = 1; vid < t->vals.len; vid++)
        if (t->vals.at[vid].kind == KIN_VAL_SRC)
            need(t, units, t->vals.at[vid].parent);
    for (uint32_t i = 0; i < t->facts.len; i++) {
        need(t, units, t->facts.at[i].vid);
        need(t, units, t->facts.at[i].vid2);
    }
    need_parts(t, units);
}

/* Is the value there when the unit was launched, or can it be built then? */
static bool
is_at_hand(const kin_trace *t, const kin_units *units, const kin_unit *unit, kin_vid vid, int depth)
{
    if (!made_by(t, units, unit, vid) || units->needed[vid])
        return true;
    const kin_step *maker = &t->steps.at[t->vals.at[vid].step];
    bool ok = !kin_unit_calls(maker) && depth < 12;
    for (uint32_t a = 0; ok && a < maker->nargs; a++)
        ok = is_at_hand(t, units, unit, t->vids.at[maker->args + a], depth + 1);
    return ok;
}

static kin_status
find_builds(const kin_trace *t, const kin_units *units, kin_unit *unit)
{
    KIN_VEC(uint32_t) builds = {0};
    for (uint32_t i = unit->first; i <= unit->last; i++) {
        const kin_step *s = &t->steps.at[i];
        unit->drops = unit->drops || (kin_unit_calls(s) && s->out != 0 && !units->needed[s->out]);
        if (s->flags & KIN_STEP_SUNK) {
            bool before = s->flags & KIN_STEP_MUTATES && !made_since(t, t->vids.at[s->args], unit->first); /* it may have been built */
            for (uint32_t a = 0; before && a < s->nargs; a++)
                unit->changes_sunk |= !is_at_hand(t, units, unit, t->vids.at[s->args + a], 0);
            unit->passes_sunk |= (s->flags & KIN_STEP_MUTATES) != 0;
            continue;
        }
        bool changes = (s->flags & KIN_STEP_MUTATES && units->needed[t->vids.at[s->args]] && !units->replaced[i]) || stores_late(unit, t, i);
        if (kin_unit_waits_for(unit, t, i) && !kin_unit_calls(s) && !is_given_size(units, i, s) && s->kind != KIN_STEP_CHECK && ((s->out != 0 && units->needed[s->out]) || changes) &&
            kin_vec_push(&builds, i) != KIN_OK) {
            kin_vec_deinit(&builds);
            return KIN_NOMEM;
        }
    }
    unit->builds = builds.at;
    unit->nbuilds = builds.len;
    return KIN_OK;
}

static void
find_stops(const kin_variant *v, kin_units *units)
{
    const kin_trace *t = &v->trace;
    for (uint32_t u = 0; u < units->at.len; u++) {
        const kin_unit *unit = &units->at.at[u];
        for (uint32_t i = unit->first; i <= unit->last; i++)
            if (i == unit->last || (kin_unit_stores_own(v, &t->steps.at[i]) && !(t->steps.at[i].flags & KIN_STEP_SUNK)) || !(t->steps.at[i].flags & KIN_STEP_SUNK || kin_unit_waits_for(unit, t, i)))
                units->stops[i / 64] |= UINT64_C(1) << (i % 64);
    }
}

/* By value: the first step that is neither a torch call nor put off and gets it. */
static void
find_touches(const kin_trace *t, kin_units *units)
{
    memset(units->touched, 0xff, t->vals.len * sizeof *units->touched);
    for (uint32_t i = t->steps.len; i-- > 0;) {
        const kin_step *s = &t->steps.at[i];
        if (s->flags & KIN_STEP_TORCH || (s->flags & KIN_STEP_SUNK && kin_unit_builds(s)))
            continue;
        for (uint32_t a = 0; a < s->nargs; a++)
            units->touched[t->vids.at[s->args + a]] = i;
    }
}

kin_units *
kin_units_find(const kin_variant *v, unsigned how)
{
    kin_units *units = calloc(1, sizeof *units);
    if (units == NULL)
        return NULL;
    units->refs = 1;
    units->nsteps = v->trace.steps.len;
    units->by_step = calloc(v->trace.steps.len, sizeof *units->by_step);
    units->needed = calloc(v->trace.vals.len, 1);
    units->touched = calloc(v->trace.vals.len, sizeof *units->touched);
    units->role = calloc(v->trace.steps.len, 1);
    units->replaced = calloc(v->trace.steps.len, 1);
    units->stops = calloc(v->trace.steps.len / 64 + 1, sizeof *units->stops);
    finder f = {.v = v, .units = units, .how = how};
    kin_status status = kin_spread_init(&f.spread, v, units->role);
    if (units->by_step == NULL || units->needed == NULL || units->touched == NULL || units->role == NULL || units->replaced == NULL ||
        units->stops == NULL)
        status = KIN_NOMEM;
    if (status == KIN_OK) {
        find_touches(&v->trace, units);
        status = find_ranges(&f);
    }
    kin_spread_deinit(&f.spread);
    if (status == KIN_OK) {
        note_roles(&v->trace, units);
        for (uint32_t u = 0; status == KIN_OK && u < units->at.len; u++)
            status = find_replaced(v, units, &units->at.at[u]);
        find_needs(&v->trace, units);
        find_stops(v, units);
    }
    for (uint32_t u = 0; status == KIN_OK && u < units->at.len; u++)
        status = find_builds(&v->trace, units, &units->at.at[u]);
    if (status == KIN_OK)
        return units;
    kin_units_release(units);
    return NULL;
}

/* -- what goes in and out ---------------------------------------------------------------------------------------- */

/* Does the container hold what it was built from, when the unit's calls get it? Only torch calls have seen it until `first`, and
 * they change none; nothing inside the unit changes what its calls get. */
static bool
is_as_built(const kin_trace *t, const kin_units *units, kin_vid vid, uint32_t first)
{
    const kin_val *val = &t->vals.at[vid];
    if (val->kind != KIN_VAL_STEP || !kin_unit_builds(&t->steps.at[val->step]))
        return false;
    uint8_t kind = t->steps.at[val->step].kind;
    if (kind == KIN_STEP_BUILD_TUPLE || kind == KIN_STEP_BUILD_SIZE || kind == KIN_STEP_BUILD_SLICE || kind == KIN_STEP_BUILD_METHOD)
        return true;
    return (kind == KIN_STEP_BUILD_LIST || kind == KIN_STEP_BUILD_MAP) && units->touched[vid] >= first;
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
add_inputs(const kin_trace *t, const kin_units *units, const kin_unit *unit, const kin_step *s, kin_vids *in, int depth)
{
    for (uint32_t a = 0; a < s->nargs; a++) {
        kin_vid vid = t->vids.at[s->args + a];
        if (vid == 0 || t->vals.at[vid].kind == KIN_VAL_CONST || made_by(t, units, unit, vid))
            continue;
        if (depth < 12 && is_as_built(t, units, vid, unit->first))
            KIN_TRY(add_inputs(t, units, unit, &t->steps.at[t->vals.at[vid].step], in, depth + 1));
        else
            KIN_TRY(push_once(in, vid));
    }
    return KIN_OK;
}

/* Which steps have a part in what the calls get: the others are done behind the unit, or not at all. */
static kin_status
find_parts(const kin_trace *t, const kin_units *units, kin_unit *unit)
{
    uint8_t *used = calloc(t->vals.len, 1);
    free(unit->runs);
    unit->runs = calloc(unit->last - unit->first + 1, 1);
    bool ok = used != NULL && unit->runs != NULL;
    for (uint32_t i = unit->last + 1; ok && i-- > unit->first;) {
        const kin_step *s = &t->steps.at[i];
        const kin_vid *args = t->vids.at + s->args;
        bool advances = s->kind == KIN_STEP_NEXT && s->out == 0;
        bool runs = kin_unit_calls(s) || (is_given_size(units, i, s) && units->needed[s->out]) || s->kind == KIN_STEP_CHECK || (s->out != 0 && used[s->out]) ||
                    (s->flags & KIN_STEP_MUTATES && s->nargs > 0 && used[args[0]]);
        if (!kin_unit_waits_for(unit, t, i) || advances || !runs)
            continue;
        unit->runs[i - unit->first] = 1;
        for (uint32_t a = 0; a < s->nargs; a++)
            used[args[a]] = 1;
    }
    free(used);
    return ok ? KIN_OK : KIN_NOMEM;
}

kin_status
kin_unit_bounds(const kin_variant *v, kin_units *units, uint32_t u, kin_vids *in, kin_vids *out)
{
    const kin_trace *t = &v->trace;
    kin_unit *unit = &units->at.at[u];
    KIN_TRY(find_parts(t, units, unit));
    for (uint32_t i = unit->first; i <= unit->last; i++) {
        const kin_step *s = &t->steps.at[i];
        if (!unit->runs[i - unit->first])
            continue;
        KIN_TRY(add_inputs(t, units, unit, s, in, 0));
        if ((kin_unit_calls(s) || is_given_size(units, i, s)) && s->out != 0 && units->needed[s->out])
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
changed_inside(const kin_trace *t, kin_vid vid, const kin_unit *unit)
{
    for (uint32_t i = unit->first; i <= unit->last; i++)
        if (t->steps.at[i].flags & KIN_STEP_MUTATES && t->steps.at[i].nargs > 0 &&
            t->vids.at[t->steps.at[i].args] == vid)
            return true;
    return false;
}

/* The step behind which the value is there; the unit's first one if it is there before. */
static uint32_t
arrival(const kin_trace *t, const kin_unit *unit, kin_vid vid)
{
    const kin_val *val = &t->vals.at[vid];
    if (val->kind == KIN_VAL_STEP)
        return val->step > unit->first ? val->step : unit->first;
    for (uint32_t i = unit->first; i <= unit->last; i++)
        if (t->steps.at[i].kind == KIN_STEP_SEGMENT && t->steps.at[i].num == val->seg)
            return i;
    return unit->first;
}

static bool
order_inputs(const kin_trace *t, kin_unit *unit, uint32_t nin)
{
    uint32_t n = 0;
    unit->order = malloc((nin + 1) * sizeof *unit->order);
    unit->arrives = malloc((nin + 1) * sizeof *unit->arrives);
    if (unit->order == NULL || unit->arrives == NULL)
        return false;
    for (uint32_t i = 0; i < nin; i++) { /* insertion sort: mostly in order */
        uint32_t at = arrival(t, unit, unit->in[i]), k = n++;
        for (; k > 0 && unit->arrives[k - 1] > at; k--) {
            unit->arrives[k] = unit->arrives[k - 1];
            unit->order[k] = unit->order[k - 1];
        }
        unit->arrives[k] = at;
        unit->order[k] = i;
        unit->nearly += at == unit->first;
    }
    return true;
}

/* The last use of a value may be that it became part of an argument, before the unit begins. */
static bool
find_holders(const kin_trace *t, const kin_units *units, kin_unit *unit, uint32_t nin)
{
    enum { FAR = 4096 }; /* long programs have many units */
    unit->held = calloc(nin + 1, sizeof *unit->held);
    for (uint32_t i = unit->first > FAR ? unit->first - FAR : 0; unit->held != NULL && i < unit->first; i++) {
        const kin_step *s = &t->steps.at[i];
        if ((s->kind != KIN_STEP_BUILD_TUPLE && s->kind != KIN_STEP_BUILD_LIST) || !is_as_built(t, units, s->out, unit->first))
            continue;
        for (uint32_t k = 0; k < nin; k++)
            for (uint32_t a = 0; a < s->nargs; a++)
                if (t->vids.at[s->args + a] == unit->in[k])
                    unit->held[k] = (kin_held){s->out, a};
    }
    return unit->held != NULL;
}

kin_status
kin_unit_set(const kin_variant *v, kin_units *units, uint32_t u, const kin_vid *in, uint32_t nin, const kin_vid *out,
             uint32_t nout, kin_launcher *launcher)
{
    kin_unit *unit = &units->at.at[u];
    for (uint32_t i = 0; i < nin; i++)
        if (made_by(&v->trace, units, unit, in[i]) || changed_inside(&v->trace, in[i], unit))
            return KIN_BREAK;
    unit->in = copy_vids(in, nin);
    unit->out = copy_vids(out, nout);
    if (unit->in == NULL || unit->out == NULL || !order_inputs(&v->trace, unit, nin) ||
        !find_holders(&v->trace, units, unit, nin))
        return KIN_NOMEM;
    unit->nin = nin;
    unit->nout = nout;
    unit->launcher = launcher;
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
kin_unit_stop(kin_unit *unit)
{
    kin_launcher_release(unit->launcher);
    unit->launcher = NULL;
}

void
kin_units_release(kin_units *units)
{
    if (units == NULL || --units->refs > 0)
        return;
    for (uint32_t u = 0; u < units->at.len; u++) {
        kin_unit *unit = &units->at.at[u];
        free(unit->in);
        free(unit->out);
        free(unit->builds);
        free(unit->runs);
        free(unit->order);
        free(unit->arrives);
        free(unit->held);
        kin_launcher_release(unit->launcher);
    }
    kin_vec_deinit(&units->at);
    free(units->by_step);
    free(units->role);
    free(units->replaced);
    free(units->needed);
    free(units->touched);
    free(units->stops);
    free(units);
}
