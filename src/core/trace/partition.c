/* Finds the subgraphs of a trace (partition.h): their ranges. */
#include "core/trace/partition_priv.h"

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
kin_subgraph_defers(const kin_subgraph *subgraph, const kin_trace *t, uint32_t step)
{
    uint8_t role = subgraph->role[step - subgraph->first];
    return !(t->steps.at[step].flags & KIN_STEP_SUNK) && role != KIN_ROLE_IN_ORDER && role != KIN_ROLE_OBSERVABLE;
}

/* A check that a call of this subgraph returned a torch.Tensor, or one of the class that follows from its operands' classes. */
static bool
is_tensor_test(const kin_partitioner *p, const kin_step *s, uint32_t first)
{
    const kin_trace *t = p->t;
    if (s->kind != KIN_STEP_CHECK || s->imm != KIN_CHECK_TYPE || s->flags & KIN_STEP_BREAK || s->nargs == 0)
        return false;
    const kin_step *maker = kin_maker_of(t, t->vids.at[s->args]);
    return p->objects[s->ref].makes & KIN_IS_TENSOR && maker != NULL && maker >= &t->steps.at[first] && kin_subgraph_calls(maker);
}

/* May the step stand between two calls of a plain subgraph that began at `first`? */
static bool
passes(const kin_partitioner *p, const kin_step *s, uint32_t first)
{
    if (s->flags & KIN_STEP_SUNK)
        return true;
    if (s->flags & (KIN_STEP_OPAQUE | KIN_STEP_BREAK | KIN_STEP_RAISES | KIN_STEP_EFFECT))
        return false;
    if (s->flags & KIN_STEP_PURE)
        return kin_subgraph_builds(s);
    if (s->flags & KIN_STEP_MUTATES)
        return s->out == 0 && (s->kind == KIN_STEP_NEXT /* a loop over known items continues */ ||
                               (s->kind == KIN_STEP_LIST_APPEND && kin_bounds_made_since(p->t, p->t->vids.at[s->args], first)));
    return is_tensor_test(p, s, first);
}

typedef struct {
    const kin_partition_input *in;
    kin_subgraphs *subgraphs;
    bool open;
    bool plain;      /* the open subgraph has to be plain */
    bool plain_here; /* all steps since its last call allow that */
    kin_partitioner p;
} finder;

static bool
is_excluded(const finder *f, uint32_t step)
{
    return kin_step_is_in(f->in->excluded, f->in->nexcluded, step);
}

/* A test of a tensor on a GPU. As an assertion of the graph it would be reported by a later call, and end all work on the device for good. */
static bool
is_late_test(const finder *f, const kin_step *s)
{
    const kin_trace *t = f->in->t;
    kin_ref note = s->kind == KIN_STEP_CHECK && s->nargs > 0 ? t->vals.at[t->vids.at[s->args]].note : 0;
    return note != 0 && f->in->objects[note].is & KIN_IS_LATE && (s->imm == KIN_CHECK_TRUE || s->imm == KIN_CHECK_FALSE);
}

static bool
goes_on_over(finder *f, uint32_t i)
{
    const kin_step *s = &f->in->t->steps.at[i];
    const kin_subgraph *subgraph = &f->subgraphs->at.at[f->subgraphs->at.len - 1];
    if (!f->plain) {
        if (is_late_test(f, s)) {
            f->p.why = "data on a device decides what runs next";
            return false;
        }
        f->plain_here = f->plain_here && passes(&f->p, s, subgraph->first);
        return kin_roles_pass(&f->p, i, kin_step_is_in(f->in->barriers, f->in->nbarriers, i));
    }
    f->subgraphs->role[i] = s->kind == KIN_STEP_CHECK ? KIN_ROLE_TEST : KIN_ROLE_DEFERRED;
    bool barrier = s->kind == KIN_STEP_CHECK && kin_step_is_in(f->in->barriers, f->in->nbarriers, i);
    return !barrier && passes(&f->p, s, subgraph->first);
}

/* May the call join the open subgraph? False: p.why says why not. */
static bool
joins(finder *f, uint32_t i, bool excluded)
{
    const kin_trace *t = f->in->t;
    uint32_t n = f->subgraphs->at.len;
    f->p.why = "the recording goes on in another graph";
    if (!f->open || t->steps.at[i].graph != t->steps.at[f->subgraphs->at.at[n - 1].first].graph)
        return false;
    f->p.why = "a graph has to begin here: it writes to a tensor behind the place where the other runs, or gradients are taken from both one after another";
    if (!f->plain && kin_step_is_in(f->in->barriers, f->in->nbarriers, i))
        return false;
    f->p.why = "it cannot be compiled together with other calls";
    return f->plain || (!excluded && kin_roles_call(&f->p, i));
}

/* The open subgraph cannot extend over the step. */
static void
end_subgraph(finder *f, uint32_t i, const char *why)
{
    kin_subgraph *subgraph = &f->subgraphs->at.at[f->subgraphs->at.len - 1];
    f->open = false;
    subgraph->end = i;
    subgraph->why = why;
}

/* Gradients have been switched between its calls: whether they are on at each is noted when all are known. */
static kin_status
note_switched(finder *f)
{
    kin_subgraph *subgraph = &f->subgraphs->at.at[f->subgraphs->at.len - 1];
    if (!f->plain && f->p.grads && subgraph->grads == NULL && (subgraph->grads = calloc(f->in->t->steps.len - subgraph->first, 1)) == NULL)
        return KIN_NOMEM;
    return KIN_OK;
}

static kin_status
add_call(finder *f, uint32_t i)
{
    kin_subgraphs *subgraphs = f->subgraphs;
    uint32_t n = subgraphs->at.len;
    bool excluded = is_excluded(f, i);
    if (!joins(f, i, excluded)) {
        if (f->open)
            end_subgraph(f, i, f->p.why);
        KIN_TRY(kin_vec_push(&subgraphs->at, ((kin_subgraph){.first = i, .plain = true, .grad = (int8_t)kin_roles_grad(&f->p, i)})));
        kin_roles_begin(&f->p, ++n, i);
        f->plain = excluded || !(f->in->how & KIN_SUBGRAPHS_WIDE);
        f->plain_here = true;
        if (!f->plain)
            kin_roles_call(&f->p, i);
    }
    f->open = true;
    subgraphs->role[i] = kin_step_switches(&f->in->t->steps.at[i]) ? KIN_ROLE_IN_ORDER : KIN_ROLE_CALL;
    subgraphs->at.at[n - 1].last = i;
    subgraphs->at.at[n - 1].switches |= kin_step_switches(&f->in->t->steps.at[i]);
    subgraphs->at.at[n - 1].at = f->plain ? 0 : f->p.at;
    subgraphs->at.at[n - 1].reports = f->plain ? 0 : f->p.reports;
    subgraphs->at.at[n - 1].plain &= f->plain_here;
    subgraphs->by_step[i] = n;
    f->plain_here = true;
    return note_switched(f);
}

/* Is it a call of a subgraph? Arithmetic on numbers from tensor data belongs only to graphs for custom backends. */
static bool
joins_calls(finder *f, uint32_t i)
{
    const kin_step *s = &f->in->t->steps.at[i];
    bool number = kin_step_does(s, KIN_FROM_DATA) && (s->kind != KIN_STEP_CALL || kin_step_does(s, KIN_ASKS));
    if (kin_step_switches(s) && (!f->open || f->plain || !kin_roles_can_switch(&f->p, i)))
        return false; /* nothing of the graph is deferred: the switch happens in order */
    return kin_subgraph_calls(s) && !(number && f->in->how == KIN_SUBGRAPHS_WIDE) && !is_late_test(f, s);
}

static kin_status
find_ranges(finder *f)
{
    const kin_trace *t = f->in->t;
    for (uint32_t i = 0; i < t->steps.len; i++) {
        if (i > 0 && kin_step_is_end(&t->steps.at[i - 1]))
            f->open = false;
        bool call = joins_calls(f, i), left_out = call && f->in->how == KIN_SUBGRAPHS_WIDE && is_excluded(f, i);
        if (!call && f->open && !goes_on_over(f, i))
            end_subgraph(f, i, f->plain ? "another step stands between its calls" : f->p.why);
        else if (left_out && f->open)
            end_subgraph(f, i, "it cannot be compiled together with other calls");
        else if (call && !left_out)
            KIN_TRY(add_call(f, i));
    }
    return KIN_OK;
}

/* -- what is known of whole subgraphs ------------------------------------------------------------------------------- */

/* A graph gives back the settings that it has switched, so what is switched behind its last call happens in order, and stays. */
static void
leave_last_switches(const kin_trace *t, kin_subgraphs *subgraphs)
{
    for (uint32_t u = 0; u < subgraphs->at.len; u++) {
        kin_subgraph *subgraph = &subgraphs->at.at[u];
        while (kin_step_switches(&t->steps.at[subgraph->last])) { /* the first call is none */
            subgraphs->by_step[subgraph->last] = 0;
            do
                subgraphs->role[subgraph->last--] = KIN_ROLE_NONE;
            while (subgraphs->by_step[subgraph->last] != u + 1);
        }
        if (subgraph->at > subgraph->last)
            subgraph->at = 0;
        if (subgraph->reports > subgraph->last)
            subgraph->reports = 0;
    }
}

static bool
runs_in_order(const kin_subgraphs *subgraphs, const kin_trace *t, uint32_t step)
{
    uint8_t role = subgraphs->role[step];
    return (role == KIN_ROLE_IN_ORDER || role == KIN_ROLE_OBSERVABLE) && !(t->steps.at[step].flags & KIN_STEP_SUNK);
}

/* A step behind the place where the subgraph runs that might leave the program, where calls behind it would be made again, or see what these write. */
static uint32_t
find_leaving(const kin_subgraphs *subgraphs, const kin_trace *t, const kin_subgraph *subgraph)
{
    for (uint32_t i = subgraph->at; subgraph->at != 0 && i <= subgraph->last; i++)
        if (runs_in_order(subgraphs, t, i) && !(subgraphs->by_step[i] != 0 && kin_step_switches(&t->steps.at[i])))
            return i;
    return 0;
}

static void
note_roles(finder *f)
{
    const kin_trace *t = f->in->t;
    for (uint32_t u = 0; u < f->subgraphs->at.len; u++) {
        kin_subgraph *subgraph = &f->subgraphs->at.at[u];
        for (uint32_t i = subgraph->first; subgraph->grads != NULL && i <= subgraph->last; i++) {
            subgraph->grads[i - subgraph->first] = kin_roles_grad(&f->p, i) == 1;
            subgraph->tracked = subgraph->tracked || (f->subgraphs->by_step[i] == u + 1 && subgraph->grads[i - subgraph->first]);
        }
        subgraph->role = f->subgraphs->role + subgraph->first;
        uint32_t runs = subgraph->at != 0 ? subgraph->at : subgraph->last + 1; /* nothing runs in order between it and calls behind it that write (note_once in py/capture) */
        subgraph->hides_writes = true;
        subgraph->leaves = find_leaving(f->subgraphs, t, subgraph);
        for (uint32_t i = subgraph->first; i <= subgraph->last; i++) {
            bool in_order = runs_in_order(f->subgraphs, t, i);
            subgraph->deferred = subgraph->deferred || in_order;
            subgraph->shows = subgraph->shows || (in_order && subgraph->role[i - subgraph->first] == KIN_ROLE_OBSERVABLE);
            subgraph->hides_writes = subgraph->hides_writes && !(i < runs && in_order && kin_partition_sees_memory(&f->p, &t->steps.at[i]));
        }
        subgraph->plain = subgraph->plain && !subgraph->deferred;
    }
}

/* By value: the first step that uses it and is neither a torch call nor deferred. A list that becomes part of another one or of a tuple, and a
 * variable that a function captures, is as it was until that one is used. */
static void
find_touches(const kin_trace *t, kin_subgraphs *subgraphs)
{
    memset(subgraphs->touched, 0xff, t->vals.len * sizeof *subgraphs->touched);
    for (uint32_t i = t->steps.len; i-- > 0;) {
        const kin_step *s = &t->steps.at[i];
        if (s->flags & KIN_STEP_TORCH || (s->flags & KIN_STEP_SUNK && kin_subgraph_builds(s)))
            continue;
        bool holds = s->kind == KIN_STEP_BUILD_LIST || s->kind == KIN_STEP_BUILD_TUPLE || s->kind == KIN_STEP_BUILD_FUNCTION;
        for (uint32_t a = 0; a < s->nargs; a++) {
            uint32_t *touched = &subgraphs->touched[t->vids.at[s->args + a]];
            uint32_t by = holds ? subgraphs->touched[s->out] : i;
            *touched = by < *touched ? by : *touched;
        }
    }
}

/* -- memory ----------------------------------------------------------------------------------------------------- */

static kin_subgraphs *
new_subgraphs(const kin_trace *t)
{
    kin_subgraphs *s = calloc(1, sizeof *s);
    if (s == NULL)
        return NULL;
    s->refs = 1;
    s->nsteps = t->steps.len;
    s->by_step = calloc(t->steps.len, sizeof *s->by_step);
    s->needed = calloc(t->vals.len, sizeof *s->needed);
    s->touched = calloc(t->vals.len, sizeof *s->touched);
    s->role = calloc(t->steps.len, 1);
    s->replaced = calloc(t->steps.len, 1);
    s->stops = calloc(t->steps.len / 64 + 1, sizeof *s->stops);
    if (s->by_step != NULL && s->needed != NULL && s->touched != NULL && s->role != NULL && s->replaced != NULL && s->stops != NULL)
        return s;
    kin_partition_free(s);
    return NULL;
}

static kin_status
begin(kin_partitioner *p, const kin_partition_input *in, uint8_t *role)
{
    const kin_trace *t = in->t;
    *p = (kin_partitioner){.in = in, .t = t, .objects = in->objects, .role = role, .traits = calloc(t->vals.len, sizeof *p->traits),
                           .vals = calloc(t->vals.len, sizeof *p->vals), .starts = calloc(t->nepochs + 1, sizeof *p->starts),
                           .grads_at = malloc(t->nepochs + 1)};
    if (p->traits == NULL || p->vals == NULL || p->starts == NULL || p->grads_at == NULL)
        return KIN_NOMEM;
    memset(p->grads_at, -1, t->nepochs + 1);
    for (uint32_t i = t->facts.len; i-- > 0;) { /* of several facts the first one tells */
        const kin_fact *fact = &t->facts.at[i];
        unsigned is = fact->kind == KIN_FACT_CALL_IS && fact->epoch <= t->nepochs ? in->objects[fact->ref].is : 0;
        if (is & (KIN_IS_GRAD_ON | KIN_IS_GRAD_OFF))
            p->grads_at[fact->epoch] = (is & KIN_IS_GRAD_ON) != 0;
    }
    for (uint32_t i = 0; i < t->steps.len; i++)
        if (t->steps.at[i].kind == KIN_STEP_EPOCH && t->steps.at[i].num <= t->nepochs)
            p->starts[t->steps.at[i].num] = i;
    kin_partition_learn_values(p);
    return KIN_OK;
}

static void
end(kin_partitioner *p)
{
    free(p->traits);
    free(p->vals);
    free(p->starts);
    free(p->grads_at);
}

kin_subgraphs *
kin_partition_find(const kin_partition_input *in)
{
    kin_subgraphs *subgraphs = new_subgraphs(in->t);
    if (subgraphs == NULL)
        return NULL;
    finder f = {.in = in, .subgraphs = subgraphs};
    kin_status status = begin(&f.p, in, subgraphs->role);
    if (status == KIN_OK) {
        find_touches(in->t, subgraphs);
        status = find_ranges(&f);
    }
    if (status == KIN_OK) {
        leave_last_switches(in->t, subgraphs);
        note_roles(&f);
        status = kin_partition_find_needs(in, subgraphs, f.p.starts);
    }
    end(&f.p);
    if (status == KIN_OK)
        return subgraphs;
    kin_partition_free(subgraphs);
    return NULL;
}

void
kin_partition_free(kin_subgraphs *subgraphs)
{
    for (uint32_t u = 0; u < subgraphs->at.len; u++) {
        kin_subgraph *subgraph = &subgraphs->at.at[u];
        free(subgraph->in);
        free(subgraph->out);
        free(subgraph->builds);
        free(subgraph->runs);
        free(subgraph->grads);
        free(subgraph->order);
        free(subgraph->arrives);
        kin_vec_deinit(&subgraph->held);
    }
    kin_vec_deinit(&subgraphs->at);
    kin_vec_deinit(&subgraphs->sides);
    free(subgraphs->by_step);
    free(subgraphs->role);
    free(subgraphs->replaced);
    free(subgraphs->needed);
    free(subgraphs->touched);
    free(subgraphs->stops);
    free(subgraphs);
}
