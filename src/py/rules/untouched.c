/* Has a recorded call that ends in an exception changed nothing that is still there? Then it can be made once more, and nobody can tell.
 *
 * Its torch calls and grad mode are judged in py/module/untold.c, when the call is over; here all else, of what happened until the exception was on its
 * way out of the outermost frame. In doubt, it has changed something.
 */
#include "py/compat/imports.h"
#include "py/recorder/rec.h"
#include "py/replay/subgraphs.h"
#include "py/rules/rules.h"

/* A torch call that raises has computed nothing, unless it writes to what it is given. */
static bool
is_call_that_raises(const rec *r, const kin_step *s)
{
    return (s->flags & (KIN_STEP_RAISES | KIN_STEP_TORCH | KIN_STEP_OPAQUE | KIN_STEP_EFFECT | KIN_STEP_BREAK)) == (KIN_STEP_RAISES | KIN_STEP_TORCH) && !r->inplace;
}

/* tensor[...] = value, where the recording has made the tensor by clone(), so that it shares its memory with nobody. */
static bool
fills_clone(rec *r, const kin_step *s)
{
    static PyObject *clone;
    const kin_val *target = s->kind == KIN_STEP_SET_SUBSCR ? &r->t->vals.at[r->t->vids.at[s->args]] : NULL;
    const kin_step *maker = target != NULL && target->kind == KIN_VAL_STEP ? &r->t->steps.at[target->step] : NULL;
    if (maker == NULL || maker->kind != KIN_STEP_CALL || !(maker->flags & KIN_STEP_TORCH) || (s->flags & (KIN_STEP_OPAQUE | KIN_STEP_RAISES | KIN_STEP_BREAK)))
        return false;
    PyObject *found = kin_import_once(&clone, "torch", "Tensor.clone"); /* borrowed */
    return found != NULL && O(r, rec_as_const(r, r->t->vids.at[maker->args])) == found;
}

/* `kept`: is the step part of the trace that stays? */
static bool
leaves_no_mark(rec *r, const kin_step *s, bool kept)
{
    if ((!kept && is_call_that_raises(r, s)) || (kept && fills_clone(r, s)))
        return true;
    if ((s->flags & (KIN_STEP_EFFECT | KIN_STEP_OPAQUE | KIN_STEP_RAISES | KIN_STEP_BREAK)) == KIN_STEP_EFFECT) /* what was there before is compared at the end */
        return kin_step_does(s, KIN_GRAD_MODE) || (!(s->flags & KIN_STEP_TORCH) && (kin_step_does(s, KIN_FITS) || kin_step_changes_own(r->t, s)));
    return kin_step_is_torch_call(s) ? kept : kin_step_only_computes(r->t, s);
}

/* What would run when the frames of the call go: the rest of a generator that waits inside a try statement. */
static bool
leaves_generators(const rec *r)
{
    for (const rec_gen *gen = r->gens; gen != NULL; gen = gen->next)
        if (gen->state != GEN_NEW && gen->state != GEN_DONE)
            return true;
    return false;
}

bool
rec_leaves_no_mark(rec *r, uint32_t kept)
{
    if (r->status != KIN_OK || r->region != NULL || r->join != 0 || r->dispatched || leaves_generators(r) || !rec_changes_undone(r))
        return false;
    for (uint32_t i = 1; i < r->t->steps.len; i++)
        if (!leaves_no_mark(r, &r->t->steps.at[i], i < kept))
            return false;
    return true;
}
