/* Roles of the steps between a unit's calls (spread.h).
 *
 * A value is *late* when its maker waits for the launch because it depends on a call, *soft* when it is a container that
 * may be built at the launch or at its place, whichever is wanted; all others are there when they are asked for.
 */
#include "py/replay/spread.h"

#include "py/aten/tensor.h"

#include <stdlib.h>
#include <string.h>

typedef enum { MADE_ELSEWHERE, MADE_SOFT, MADE_LATE } kin_made;

kin_status
kin_spread_init(kin_spread *s, const kin_variant *v, uint8_t *role)
{
    *s = (kin_spread){.v = v, .role = role, .vals = calloc(v->trace.vals.len, sizeof *s->vals)};
    return s->vals == NULL ? KIN_NOMEM : KIN_OK;
}

void
kin_spread_deinit(kin_spread *s)
{
    free(s->vals);
    s->vals = NULL;
}

void
kin_spread_begin(kin_spread *s, uint32_t unit, uint32_t first)
{
    s->unit = unit;
    s->first = s->last_call = first;
    s->reads = 0;
}

/* -- values ----------------------------------------------------------------------------------------------------- */

static kin_spread_val *
val_of(kin_spread *s, kin_vid vid)
{
    kin_spread_val *val = &s->vals[vid];
    if (val->unit != s->unit)
        *val = (kin_spread_val){.unit = s->unit};
    return val;
}

static bool
is_late(kin_spread *s, kin_vid vid)
{
    return vid != 0 && val_of(s, vid)->made == MADE_LATE;
}

static const kin_step *
maker_of(const kin_spread *s, kin_vid vid)
{
    const kin_val *val = &s->v->trace.vals.at[vid];
    return vid != 0 && val->kind == KIN_VAL_STEP ? &s->v->trace.steps.at[val->step] : NULL;
}

/* The value is wanted at its place: what it is built of is as well. False: it cannot be. */
static bool
want_here(kin_spread *s, kin_vid vid)
{
    if (vid == 0 || val_of(s, vid)->made == MADE_ELSEWHERE)
        return true;
    if (val_of(s, vid)->made == MADE_LATE)
        return false;
    const kin_step *maker = maker_of(s, vid);
    val_of(s, vid)->made = MADE_ELSEWHERE;
    s->role[s->v->trace.vals.at[vid].step] = KIN_ROLE_PLACE;
    for (uint32_t a = 0; a < maker->nargs; a++)
        if (!want_here(s, s->v->trace.vids.at[maker->args + a]))
            return false;
    return true;
}

/* The containers that the object was built of, if it holds them. */
static const kin_step *
holder_of(const kin_spread *s, kin_vid vid)
{
    const kin_step *maker = maker_of(s, vid);
    return maker != NULL && kin_unit_builds(maker) && maker->kind != KIN_STEP_LIST_TO_TUPLE ? maker : NULL;
}

/* A call gets the value, and with it what it was built of. */
static void
reach(kin_spread *s, kin_vid vid, int depth)
{
    if (vid == 0 || val_of(s, vid)->reached || depth > 40)
        return;
    val_of(s, vid)->reached = true;
    const kin_step *maker = holder_of(s, vid);
    for (uint32_t a = 0; maker != NULL && a < maker->nargs; a++)
        reach(s, s->v->trace.vids.at[maker->args + a], depth + 1);
}

static bool
holds_changed(kin_spread *s, kin_vid vid, int depth)
{
    if (vid == 0)
        return false;
    if (val_of(s, vid)->changed || depth > 40)
        return true;
    const kin_step *maker = holder_of(s, vid);
    for (uint32_t a = 0; maker != NULL && a < maker->nargs; a++)
        if (holds_changed(s, s->v->trace.vids.at[maker->args + a], depth + 1))
            return true;
    return false;
}

/* -- roles ------------------------------------------------------------------------------------------------------ */

static void
put_off(kin_spread *s, uint32_t step, kin_role role, kin_made made)
{
    const kin_step *st = &s->v->trace.steps.at[step];
    s->role[step] = (uint8_t)role;
    if (st->out != 0)
        val_of(s, st->out)->made = (uint8_t)made;
}

bool
kin_spread_call(kin_spread *s, uint32_t step)
{
    const kin_step *st = &s->v->trace.steps.at[step];
    const kin_vid *args = s->v->trace.vids.at + st->args;
    for (uint32_t a = 0; a < st->nargs; a++)
        if (holds_changed(s, args[a], 0))
            return false;
    for (uint32_t a = 0; a < st->nargs; a++)
        reach(s, args[a], 0);
    put_off(s, step, KIN_ROLE_CALL, MADE_LATE);
    s->last_call = step;
    return true;
}

/* Runs at its place. `risky`: that it ran can be told when an earlier call raises. */
static bool
place(kin_spread *s, uint32_t step, bool risky)
{
    const kin_step *st = &s->v->trace.steps.at[step];
    for (uint32_t a = 0; a < st->nargs; a++)
        if (!want_here(s, s->v->trace.vids.at[st->args + a]))
            return false;
    s->role[step] = risky ? KIN_ROLE_RISKY : KIN_ROLE_PLACE;
    return true;
}

/* The value is a constant, a tensor, or made by the unit: nothing that runs at its place changes it. */
static bool
stays(kin_spread *s, kin_vid vid)
{
    const kin_val *val = &s->v->trace.vals.at[vid];
    return vid == 0 || val->kind == KIN_VAL_CONST || val->note != 0 || val_of(s, vid)->made == MADE_LATE;
}

static bool
all_stay(kin_spread *s, const kin_step *st, uint32_t from)
{
    for (uint32_t a = from; a < st->nargs; a++)
        if (!stays(s, s->v->trace.vids.at[st->args + a]))
            return false;
    return true;
}

/* Keeps what it is given, without a look at its contents. */
static bool
only_stores(const kin_step *st)
{
    return st->kind == KIN_STEP_LIST_APPEND || st->kind == KIN_STEP_SET_SUBSCR || st->kind == KIN_STEP_SETATTR ||
           st->kind == KIN_STEP_CELL_SET;
}

/* A test of a value that the unit makes: its outcome follows from the kinds of the inputs. */
static bool
is_decided(kin_spread *s, const kin_step *st)
{
    kin_vid vid = st->nargs == 1 ? s->v->trace.vids.at[st->args] : 0;
    if (vid == 0 || (st->imm == KIN_CHECK_META && kin_meta_mask(kin_refs_get(&s->v->refs, st->ref)) & KIN_META_OFFSET))
        return false;
    return st->imm == KIN_CHECK_TYPE || st->imm == KIN_CHECK_LEN || st->imm == KIN_CHECK_META ||
           st->imm == KIN_CHECK_IS || st->imm == KIN_CHECK_IS_NOT;
}

/* Was the object made after the last step that waits for the launch to read a container? Others may be that container. */
static bool
is_not_read(const kin_spread *s, kin_vid owner)
{
    const kin_val *val = &s->v->trace.vals.at[owner];
    return s->reads == 0 || (val->kind == KIN_VAL_STEP && val->step > s->reads);
}

/* Is it a list or dict that was built before the unit, and that nothing but torch calls has been given since? Then it may as well
 * have been built here: what is put into it may wait. */
static bool
is_unused(const kin_spread *s, kin_vid vid, uint32_t upto)
{
    const kin_trace *t = &s->v->trace;
    const kin_step *maker = maker_of(s, vid);
    if (maker == NULL || (maker->kind != KIN_STEP_BUILD_LIST && maker->kind != KIN_STEP_BUILD_MAP))
        return false;
    for (uint32_t i = t->vals.at[vid].step + 1; i < upto; i++) {
        const kin_step *st = &t->steps.at[i];
        for (uint32_t a = 0; !(st->flags & (KIN_STEP_TORCH | KIN_STEP_SUNK)) && a < st->nargs; a++)
            if (t->vids.at[st->args + a] == vid)
                return false;
    }
    return true;
}

/* A step that uses something late. */
static bool
pass_late(kin_spread *s, uint32_t step)
{
    const kin_step *st = &s->v->trace.steps.at[step];
    const kin_vid *args = s->v->trace.vids.at + st->args;
    if (st->flags & (KIN_STEP_EFFECT | KIN_STEP_RAISES))
        return false;
    if (st->kind == KIN_STEP_CHECK) {
        if (!is_decided(s, st))
            return false;
        put_off(s, step, KIN_ROLE_TEST, MADE_LATE);
        return true;
    }
    if (st->flags & KIN_STEP_PURE) {
        if (!kin_unit_builds(st) && !all_stay(s, st, 0))
            return false;
        put_off(s, step, KIN_ROLE_LATER, MADE_LATE);
        return true;
    }
    if (!(st->flags & KIN_STEP_MUTATES) || st->out != 0 || st->nargs == 0)
        return false;
    bool ours = val_of(s, args[0])->made != MADE_ELSEWHERE || is_unused(s, args[0], step);
    bool merges = st->kind == KIN_STEP_DICT_MERGE || st->kind == KIN_STEP_DICT_UPDATE;
    bool advances = st->kind == KIN_STEP_NEXT;
    if (!ours || (!advances && !only_stores(st) && !merges && !all_stay(s, st, 1)))
        return false;
    if (merges && !all_stay(s, st, 1))
        s->reads = step;
    val_of(s, args[0])->made = MADE_LATE;
    put_off(s, step, KIN_ROLE_LATER, MADE_LATE);
    return true;
}

/* Name of the C function that the step calls, if that is a constant. */
static const char *
function_name(const kin_variant *v, const kin_step *st)
{
    const kin_val *val = st->kind != KIN_STEP_CALL || st->nargs == 0 ? NULL : &v->trace.vals.at[v->trace.vids.at[st->args]];
    PyObject *obj = val == NULL || val->kind != KIN_VAL_CONST ? NULL : kin_refs_get(&v->refs, val->key);
    return obj != NULL && PyCFunction_Check(obj) ? ((PyCFunctionObject *)obj)->m_ml->ml_name : NULL;
}

bool
kin_unit_sets_grad(const kin_variant *v, const kin_step *st)
{
    const char *name = function_name(v, st);
    return name != NULL && st->nargs == 2 && strcmp(name, "_set_grad_enabled") == 0;
}

/* Does it ask torch for its settings? Random numbers are none. */
static bool
asks_settings(kin_spread *s, const kin_step *st)
{
    static const char *const starts[] = {"is_", "_is_", "get_", "_get_", "_len_"};
    const char *name = function_name(s->v, st);
    bool asks = false;
    for (unsigned i = 0; name != NULL && i < sizeof starts / sizeof *starts; i++)
        asks = asks || strncmp(name, starts[i], strlen(starts[i])) == 0;
    if (!asks || strstr(name, "rng") != NULL || strstr(name, "seed") != NULL)
        return false;
    for (uint32_t a = 1; a < st->nargs; a++)
        asks = asks && s->v->trace.vals.at[s->v->trace.vids.at[st->args + a]].kind == KIN_VAL_CONST;
    return asks;
}

/* Effects that no call of a unit can notice. */
static bool
pass_effect(kin_spread *s, uint32_t step)
{
    const kin_trace *t = &s->v->trace;
    const kin_step *st = &t->steps.at[step];
    if (st->kind == KIN_STEP_CALL)
        return (kin_unit_sets_grad(s->v, st) && place(s, step, true)) || (asks_settings(s, st) && place(s, step, false));
    if (st->kind != KIN_STEP_SETATTR || st->nargs != 2)
        return false;
    kin_vid owner = t->vids.at[st->args];
    return t->vals.at[owner].kind != KIN_VAL_CONST && t->vals.at[owner].note == 0 && !val_of(s, owner)->reached &&
           is_not_read(s, owner) && place(s, step, true);
}

static bool
pass_change(kin_spread *s, uint32_t step)
{
    const kin_trace *t = &s->v->trace;
    const kin_step *st = &t->steps.at[step];
    kin_vid owner = st->nargs == 0 ? 0 : t->vids.at[st->args];
    if (owner == 0 || (val_of(s, owner)->reached && st->kind != KIN_STEP_NEXT))
        return false;
    if (st->kind == KIN_STEP_NEXT && st->out == 0) { /* a loop over known items goes on */
        put_off(s, step, KIN_ROLE_LATER, MADE_LATE);
        val_of(s, owner)->made = MADE_LATE;
        return true;
    }
    bool fresh = t->vals.at[owner].kind == KIN_VAL_STEP && t->vals.at[owner].step > s->last_call;
    if (st->kind != KIN_STEP_NEXT && !is_not_read(s, owner))
        return false;
    if (!place(s, step, !fresh))
        return false;
    val_of(s, owner)->changed = true;
    return true;
}

/* Steps without flags that do nothing but look at their operands. */
static bool
only_looks(const kin_step *st)
{
    switch ((kin_step_kind)st->kind) {
    case KIN_STEP_BINARY:
    case KIN_STEP_UNARY:
    case KIN_STEP_COMPARE:
    case KIN_STEP_CONTAINS:
    case KIN_STEP_IS:
    case KIN_STEP_SUBSCR:
    case KIN_STEP_GETATTR:
    case KIN_STEP_LEN:
    case KIN_STEP_TRUTH:
    case KIN_STEP_FORMAT:
    case KIN_STEP_CELL_GET:
    case KIN_STEP_BUILD_SET:
    case KIN_STEP_CHECK:
        return true;
    case KIN_STEP_HANDLED:
        return st->snap != 0; /* which says what is being handled */
    default:
        return false;
    }
}

static bool
asks_for_data(const kin_spread *s, const kin_step *st)
{
    const kin_trace *t = &s->v->trace;
    bool tensors = false;
    for (uint32_t a = 0; a < st->nargs; a++)
        tensors = tensors || t->vals.at[t->vids.at[st->args + a]].note != 0;
    return tensors && (st->kind == KIN_STEP_CHECK ? st->imm == KIN_CHECK_TRUE || st->imm == KIN_CHECK_FALSE ||
                                                        st->imm == KIN_CHECK_EQ || st->imm == KIN_CHECK_QUIET
                                                  : st->kind != KIN_STEP_IS && st->kind != KIN_STEP_GETATTR);
}

/* Is the exception gone with the step that raised it? One that is looked at holds frames, and what waits is not in them. */
static bool
dies_at_once(const kin_spread *s, const kin_step *st)
{
    const kin_vid *frees = s->v->trace.vids.at + st->frees;
    bool dies = st->out == 0;
    for (uint32_t i = 0; i < st->nfrees; i++)
        dies = dies || frees[i] == st->out;
    return dies;
}

/* What the guards of the segment start from. */
static bool
pass_segment(kin_spread *s, uint32_t step)
{
    const kin_trace *t = &s->v->trace;
    uint32_t seg = t->steps.at[step].num;
    for (kin_vid vid = 1; vid < t->vals.len; vid++)
        if (t->vals.at[vid].kind == KIN_VAL_SRC && t->vals.at[vid].seg == seg && !want_here(s, t->vals.at[vid].parent))
            return false;
    for (uint32_t i = 0; i < t->facts.len; i++)
        if (t->facts.at[i].seg == seg && !(want_here(s, t->facts.at[i].vid) && want_here(s, t->facts.at[i].vid2)))
            return false;
    return place(s, step, false);
}

bool
kin_spread_pass(kin_spread *s, uint32_t step)
{
    const kin_trace *t = &s->v->trace;
    const kin_step *st = &t->steps.at[step];
    bool late = false;
    if (st->flags & KIN_STEP_SUNK) {
        s->role[step] = KIN_ROLE_LATER;
        return true;
    }
    if (st->flags & (KIN_STEP_OPAQUE | KIN_STEP_BREAK | KIN_STEP_TORCH) || st->kind == KIN_STEP_RETURN ||
        st->kind == KIN_STEP_EXIT)
        return false;
    for (uint32_t a = 0; a < st->nargs; a++)
        late = late || is_late(s, t->vids.at[st->args + a]);
    if (late)
        return pass_late(s, step);
    if (st->kind == KIN_STEP_SEGMENT)
        return pass_segment(s, step);
    if (st->flags & KIN_STEP_EFFECT)
        return !(st->flags & KIN_STEP_RAISES) && pass_effect(s, step);
    if (st->flags & KIN_STEP_MUTATES)
        return !(st->flags & KIN_STEP_RAISES) && pass_change(s, step);
    if (st->flags & KIN_STEP_RAISES)
        return dies_at_once(s, st) && place(s, step, false);
    if (st->flags & KIN_STEP_PURE && kin_unit_builds(st) && st->kind != KIN_STEP_LIST_TO_TUPLE) {
        put_off(s, step, KIN_ROLE_LATER, MADE_SOFT);
        return true;
    }
    if (st->flags & KIN_STEP_PURE)
        return place(s, step, false);
    return only_looks(st) && !asks_for_data(s, st) && place(s, step, false);
}
