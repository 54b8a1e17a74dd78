/* Numbers the call graphs: a graph is a maximal run of TORCH steps along a path with no BREAK between them. The step with the
 * break is not a node, even if it is a torch call (tensor.item()). A side trace continues the graph that was open where
 * it begins, unless the check there is a graph break. Switching a setting is a node inside a graph, but does not start one.
 *
 * What each round of a loop takes out of a tensor that was there before (x[:, t]) is no node but an input of the graph: the graph would be another one for each
 * number t, and only its input differs.
 */
#include "core/trace/effects.h"
#include "core/trace/trace_priv.h"

/* Does the number, or what is built of it, differ from round to round of the loop? */
static bool
differs_by_round(const kin_trace *t, uint32_t head, kin_vid vid, int depth)
{
    const kin_val *val = &t->vals.at[vid];
    const kin_step *s = val->kind == KIN_VAL_STEP && val->step > head ? &t->steps.at[val->step] : NULL;
    if (s == NULL || val->note != 0 || depth > 4)
        return false;
    bool builds = !(s->flags & (KIN_STEP_TORCH | KIN_STEP_OPAQUE)) && (kin_step_does(s, KIN_MOVES) || kin_step_does(s, KIN_ASKS));
    bool differs = s->kind == KIN_STEP_NEXT || s->kind == KIN_STEP_CARRY;
    for (uint32_t a = 0; builds && !differs && a < s->nargs; a++)
        differs = differs_by_round(t, head, t->vids.at[s->args + a], depth + 1);
    return differs;
}

static bool
is_part_for_round(const kin_trace *t, uint32_t head, const kin_step *s)
{
    const kin_vid *args = t->vids.at + s->args;
    if (head == 0 || s->kind != KIN_STEP_SUBSCR || s->flags & (KIN_STEP_OPAQUE | KIN_STEP_RAISES) || t->vals.at[args[0]].note == 0)
        return false;
    const kin_val *tensor = &t->vals.at[args[0]];
    return !(tensor->kind == KIN_VAL_STEP && tensor->step > head) && differs_by_round(t, head, args[1], 0);
}

/* What a side trace begins in. */
typedef struct {
    uint32_t graph; /* the graph that is open; 0: none */
    uint32_t head;  /* the LOOP whose round it is part of; 0: none */
} place;

kin_status
kin_trace_number(kin_trace *t)
{
    place *open = calloc(t->steps.len, sizeof *open), now = {0}; /* by the first step of each side trace */
    if (open == NULL)
        return KIN_NOMEM;
    t->ngraphs = t->nbreaks = t->neffects = 0;
    for (uint32_t i = 0; i < t->steps.len; i++) {
        kin_step *s = &t->steps.at[i];
        if (i == 0 || kin_step_is_end(&t->steps.at[i - 1]))
            now = open[i];
        if (s->kind == KIN_STEP_LOOP)
            now.head = i;
        s->graph = 0;
        if (s->flags & KIN_STEP_BREAK) {
            t->nbreaks++;
            now.graph = 0;
        }
        else if (s->flags & KIN_STEP_TORCH && !(now.graph == 0 && kin_step_switches(s)) && !is_part_for_round(t, now.head, s)) {
            if (now.graph == 0)
                now.graph = ++t->ngraphs;
            s->graph = (uint16_t)now.graph;
        }
        else if ((s->flags & KIN_STEP_EFFECT) && !kin_step_is_end(s))
            t->neffects++;
        if (s->alt)
            open[s->alt] = now;
    }
    free(open);
    return KIN_OK;
}
