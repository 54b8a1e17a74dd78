/* The inputs and outputs of a subgraph. */
#include "core/trace/partition_priv.h"

#include <stdlib.h>
#include <string.h>

bool
kin_bounds_made_since(const kin_trace *t, kin_vid vid, uint32_t first)
{
    const kin_val *val = &t->vals.at[vid];
    return vid != 0 && val->kind == KIN_VAL_STEP && val->step >= first;
}

bool
kin_bounds_made_by(const kin_trace *t, const kin_subgraphs *subgraphs, const kin_subgraph *subgraph, kin_vid vid)
{
    const kin_val *val = &t->vals.at[vid];
    return kin_bounds_made_since(t, vid, subgraph->first) && val->step <= subgraph->last && subgraphs->role[val->step] != KIN_ROLE_IN_ORDER &&
           subgraphs->role[val->step] != KIN_ROLE_OBSERVABLE;
}

bool
kin_bounds_given_size(const kin_subgraphs *subgraphs, uint32_t step, const kin_step *s)
{
    return s->kind == KIN_STEP_SIZE && subgraphs->role[step] == KIN_ROLE_DEFERRED && !(s->flags & KIN_STEP_SUNK);
}

/* -- what goes in and out ---------------------------------------------------------------------------------------- */

/* Does the container hold what it was built from, when the subgraph's calls get it? Only torch calls have seen it until `first`, and
 * they change none; nothing inside the subgraph changes what its calls get. */
static bool
is_as_built(const kin_trace *t, const kin_subgraphs *subgraphs, kin_vid vid, uint32_t first)
{
    const kin_val *val = &t->vals.at[vid];
    const kin_step *s = val->kind == KIN_VAL_STEP ? &t->steps.at[val->step] : NULL;
    if (s == NULL || !kin_subgraph_builds(s) || kin_kind_reads_late((kin_step_kind)s->kind, 0))
        return false;
    return kin_step_does(s, KIN_GIVES_FIXED) || s->kind == KIN_STEP_BUILD_FUNCTION || subgraphs->touched[vid] >= first;
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
        if (vid == 0 || t->vals.at[vid].kind == KIN_VAL_CONST || kin_bounds_made_by(t, subgraphs, subgraph, vid))
            continue;
        if (depth < 12 && is_as_built(t, subgraphs, vid, subgraph->first))
            KIN_TRY(add_inputs(t, subgraphs, subgraph, &t->steps.at[t->vals.at[vid].step], in, depth + 1));
        else
            KIN_TRY(push_once(in, vid));
    }
    return KIN_OK;
}

/* Is it a switch that the subgraph's graph has, too? */
static bool
is_switch(const kin_subgraphs *subgraphs, uint32_t u, uint32_t step)
{
    return subgraphs->by_step[step] == u + 1 && subgraphs->role[step] == KIN_ROLE_IN_ORDER;
}

/* Which steps contribute to the calls' arguments: the others are done after the subgraph, or not at all. */
static kin_status
find_parts(const kin_trace *t, const kin_subgraphs *subgraphs, uint32_t u)
{
    kin_subgraph *subgraph = &subgraphs->at.at[u];
    uint8_t *used = calloc(t->vals.len, 1);
    free(subgraph->runs);
    subgraph->runs = calloc(subgraph->last - subgraph->first + 1, 1);
    bool ok = used != NULL && subgraph->runs != NULL;
    for (uint32_t i = subgraph->last + 1; ok && i-- > subgraph->first;) {
        const kin_step *s = &t->steps.at[i];
        const kin_vid *args = t->vids.at + s->args;
        if (is_switch(subgraphs, u, i)) {
            subgraph->runs[i - subgraph->first] = !kin_step_does(s, KIN_OF_FIRST) && !kin_step_does(s, KIN_GIVES_NEW); /* fake tensors are none of inference mode */
            continue;
        }
        bool advances = s->kind == KIN_STEP_NEXT && s->out == 0;
        bool runs = kin_subgraph_calls(s) || (kin_bounds_given_size(subgraphs, i, s) && subgraphs->needed[s->out]) || s->kind == KIN_STEP_CHECK || (s->out != 0 && used[s->out]) ||
                    (s->flags & KIN_STEP_MUTATES && s->nargs > 0 && used[args[0]]);
        if (!kin_subgraph_defers(subgraph, t, i) || advances || !runs)
            continue;
        subgraph->runs[i - subgraph->first] = 1;
        for (uint32_t a = 0; a < s->nargs; a++)
            used[args[a]] = 1;
    }
    free(used);
    return ok ? KIN_OK : KIN_NOMEM;
}

kin_status
kin_subgraph_bounds(const kin_trace *t, kin_subgraphs *subgraphs, uint32_t u, kin_vids *in, kin_vids *out)
{
    kin_subgraph *subgraph = &subgraphs->at.at[u];
    KIN_TRY(find_parts(t, subgraphs, u));
    for (uint32_t i = subgraph->first; i <= subgraph->last; i++) {
        const kin_step *s = &t->steps.at[i];
        if (!subgraph->runs[i - subgraph->first] || is_switch(subgraphs, u, i))
            continue;
        KIN_TRY(add_inputs(t, subgraphs, subgraph, s, in, 0));
        if ((kin_subgraph_calls(s) || kin_bounds_given_size(subgraphs, i, s)) && s->out != 0 && subgraphs->needed[s->out])
            KIN_TRY(kin_vec_push(out, s->out));
    }
    return KIN_OK;
}

/* -- taking them over ------------------------------------------------------------------------------------------- */

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

/* The step after which the value exists; the subgraph's first one if it exists before. The step before which the subgraph runs: it is read ahead there. */
static uint32_t
arrival(const kin_trace *t, const kin_subgraph *subgraph, kin_vid vid)
{
    const kin_val *val = &t->vals.at[vid];
    if (val->kind == KIN_VAL_STEP)
        return val->step > subgraph->first ? val->step : subgraph->first;
    for (uint32_t i = subgraph->first; i <= subgraph->last; i++)
        if (t->steps.at[i].kind == KIN_STEP_EPOCH && t->steps.at[i].num == val->epoch)
            return subgraph->at != 0 && i > subgraph->at ? subgraph->at : i;
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

/* The last use of a value may be that it became part of an argument, or of a part of one, before the subgraph begins. Which parts of what a step
 * made can be found again is known where they are looked for (part_of in py/replay/launch.c). */
static kin_status
find_holders(const kin_trace *t, const kin_subgraphs *subgraphs, kin_subgraph *subgraph)
{
    enum { FAR = 4096 }; /* long programs have many subgraphs */
    uint8_t *wanted = calloc(t->vals.len, 1);
    kin_status status = wanted == NULL ? KIN_NOMEM : KIN_OK;
    for (uint32_t k = 0; status == KIN_OK && k < subgraph->nin; k++)
        wanted[subgraph->in[k]] = 1;
    for (uint32_t i = subgraph->first > FAR ? subgraph->first - FAR : 0; status == KIN_OK && i < subgraph->first; i++) {
        const kin_step *s = &t->steps.at[i];
        if (!is_as_built(t, subgraphs, s->out, subgraph->first))
            continue;
        for (uint32_t a = 0; status == KIN_OK && a < s->nargs; a++)
            if (wanted[t->vids.at[s->args + a]]) {
                wanted[s->out] = 1;
                status = kin_vec_push(&subgraph->held, ((kin_held){t->vids.at[s->args + a], s->out, a}));
            }
    }
    free(wanted);
    return status;
}

kin_status
kin_partition_set(const kin_trace *t, kin_subgraphs *subgraphs, uint32_t u, const kin_vid *in, uint32_t nin, const kin_vid *out, uint32_t nout)
{
    kin_subgraph *subgraph = &subgraphs->at.at[u];
    for (uint32_t i = 0; i < nin; i++)
        if (kin_bounds_made_by(t, subgraphs, subgraph, in[i]) || changed_inside(t, in[i], subgraph))
            return KIN_BREAK;
    subgraph->in = copy_vids(in, nin);
    subgraph->out = copy_vids(out, nout);
    if (subgraph->in == NULL || subgraph->out == NULL || !order_inputs(t, subgraph, nin))
        return KIN_NOMEM;
    subgraph->nin = nin;
    subgraph->nout = nout;
    return find_holders(t, subgraphs, subgraph);
}
