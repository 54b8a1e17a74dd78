/* Numbers the call graphs: a graph is a maximal run of TORCH steps along a path with no BREAK between them. The step with the
 * break is not a node, even if it is a torch call (tensor.item()). A side trace continues the graph that was open where
 * it begins, unless the check there is a graph break. Switching a setting is a node inside a graph, but does not start one.
 */
#include "core/trace/effects.h"
#include "core/trace/trace_priv.h"

static void
enter(uint32_t *open, const kin_step *s, uint32_t graph)
{
    if (s->alt)
        open[s->alt] = graph;
}

kin_status
kin_trace_number(kin_trace *t)
{
    uint32_t *open = calloc(t->steps.len, sizeof *open); /* graph open at the first step of each side trace */
    if (open == NULL)
        return KIN_NOMEM;
    uint32_t graph = 0;
    t->ngraphs = t->nbreaks = t->neffects = 0;
    for (uint32_t i = 0; i < t->steps.len; i++) {
        kin_step *s = &t->steps.at[i];
        if (i == 0 || kin_step_is_end(&t->steps.at[i - 1]))
            graph = open[i];
        s->graph = 0;
        if (s->flags & KIN_STEP_BREAK) {
            t->nbreaks++;
            graph = 0;
        }
        else if (s->flags & KIN_STEP_TORCH && !(graph == 0 && kin_step_switches(s))) {
            if (graph == 0)
                graph = ++t->ngraphs;
            s->graph = (uint16_t)graph;
        }
        else if ((s->flags & KIN_STEP_EFFECT) && !kin_step_is_end(s))
            t->neffects++;
        enter(open, s, graph);
    }
    free(open);
    return KIN_OK;
}
