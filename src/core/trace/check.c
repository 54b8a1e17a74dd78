/* Verifies that a trace is well formed, because later passes, guards and replay index into it without testing. */
#include "core/trace/effects.h"
#include "core/trace/trace_priv.h"

static bool
is_vid(const kin_trace *t, kin_vid vid)
{
    return vid < t->vals.len;
}

static bool
are_vids(const kin_trace *t, uint32_t first, uint32_t n)
{
    if ((uint64_t)first + n > t->vids.len)
        return false;
    for (uint32_t i = 0; i < n; i++)
        if (!is_vid(t, t->vids.at[first + i]))
            return false;
    return true;
}

/* Does it lead back to a LOOP with as many CARRY steps? */
static bool
loop_is_ok(const kin_trace *t, uint32_t i)
{
    const kin_step *s = &t->steps.at[i];
    if (s->num >= i || t->steps.at[s->num].kind != KIN_STEP_LOOP || s->snap == 0 || s->num + s->nargs >= i)
        return false;
    for (uint32_t k = 1; k <= s->nargs; k++)
        if (t->steps.at[s->num + k].kind != KIN_STEP_CARRY || t->steps.at[s->num + k].out == 0 || t->steps.at[s->num + k].nargs != 1)
            return false;
    return t->steps.at[s->num + s->nargs + 1].kind != KIN_STEP_CARRY;
}

static bool
step_is_ok(const kin_trace *t, uint32_t i)
{
    const kin_step *s = &t->steps.at[i];
    if (s->kind >= KIN_STEP__COUNT || !is_vid(t, s->out) || s->snap >= t->snaps.len ||
        (s->nargs && !are_vids(t, s->args, s->nargs)))
        return false;
    if (s->alt != 0 && (s->alt <= i || s->alt >= t->steps.len || !kin_step_is_end(&t->steps.at[s->alt - 1])))
        return false;
    if ((s->kind == KIN_STEP_EXIT && s->snap == 0) || (s->kind == KIN_STEP_LOOP && s->num >= t->snaps.len) || (s->kind == KIN_STEP_LOOP_BACK && !loop_is_ok(t, i)))
        return false;
    if ((s->kind == KIN_STEP_RETURN || s->kind == KIN_STEP_CHECK) && s->nargs == 0)
        return false;
    return !(s->flags & KIN_STEP_RAISES && !kin_step_does(s, KIN_MAY_RAISE)) && !(s->flags & KIN_STEP_OPAQUE && !kin_step_does(s, KIN_MAY_RUN));
}

static bool
snap_is_ok(const kin_trace *t, uint32_t i)
{
    const kin_snap *s = &t->snaps.at[i];
    return s->parent < i && is_vid(t, s->func) && is_vid(t, s->extra) && is_vid(t, s->exc) && is_vid(t, s->names) &&
           are_vids(t, s->vals, (uint32_t)s->nlocals + s->nstack);
}

kin_status
kin_trace_check(const kin_trace *t)
{
    if (t->steps.len == 0 || t->steps.at[0].kind != KIN_STEP_EPOCH || !kin_step_is_end(&t->steps.at[t->steps.len - 1]))
        return KIN_BUG;
    for (uint32_t i = 0; i < t->steps.len; i++)
        if (!step_is_ok(t, i))
            return KIN_BUG;
    for (uint32_t i = 1; i < t->snaps.len; i++)
        if (!snap_is_ok(t, i))
            return KIN_BUG;
    for (uint32_t i = 0; i < t->facts.len; i++)
        if (!is_vid(t, t->facts.at[i].vid) || !is_vid(t, t->facts.at[i].vid2))
            return KIN_BUG;
    return KIN_OK;
}
