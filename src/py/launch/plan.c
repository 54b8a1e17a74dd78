/* Finds an entry's subgraphs and gives each a launcher (launch.h). If a launch finds that a call cannot be compiled together with the
 * others, this is noted in the entry, and the subgraphs are found again after the call (kin_launch_settle): nothing changes
 * while a replay is using them.
 */
#include <stdio.h>
#include <string.h>

#include "py/aten/make.h"
#include "py/capture/capture.h"
#include "py/compat/signals.h"
#include "py/launch/launch_priv.h"

/* The first step, from this one on, that must not run before an earlier call which may raise; UINT32_MAX: none. */
static uint32_t
next_barred(const kin_trace *t, const kin_subgraph *subgraph, uint32_t from, const uint32_t *raising, uint32_t n)
{
    bool raises = false;
    for (uint32_t i = from; i <= subgraph->last; i++) {
        raises = raises || kin_step_is_in(raising, n, i);
        if (raises && subgraph->role[i - subgraph->first] == KIN_ROLE_OBSERVABLE && !(t->steps.at[i].flags & KIN_STEP_SUNK))
            return i;
    }
    return UINT32_MAX;
}

/* Do calls and side effects come in an order that suits the code that there is? */
static bool
suits(const kin_trace *t, const kin_subgraph *old, const kin_subgraph *subgraph)
{
    const launch_numbers *raising = &((const kernel_launcher *)old->launcher)->raising;
    return memcmp(old->runs, subgraph->runs, subgraph->last - subgraph->first + 1) == 0 && old->at == subgraph->at && old->hides_writes == subgraph->hides_writes &&
           next_barred(t, subgraph, subgraph->first, raising->at, raising->len) == UINT32_MAX;
}

/* The launcher that an earlier plan has for the same subgraph; borrowed or NULL. */
static kin_launcher *
find_same(const kin_trace *t, const kin_subgraphs *old, const kin_subgraph *subgraph, const kin_vids *in, const kin_vids *out)
{
    if (old == NULL || subgraph->first >= old->nsteps || old->by_step[subgraph->first] == 0)
        return NULL;
    const kin_subgraph *o = &old->at.at[old->by_step[subgraph->first] - 1];
    bool same = o->first == subgraph->first && o->last == subgraph->last && o->nin == in->len && o->nout == out->len && launch_is_ours(o->launcher) &&
                (in->len == 0 || memcmp(o->in, in->at, in->len * sizeof *in->at) == 0) && (out->len == 0 || memcmp(o->out, out->at, out->len * sizeof *out->at) == 0);
    return same && suits(t, o, subgraph) ? o->launcher : NULL;
}

static kin_status
plan_subgraph(kin_entry *v, kin_subgraphs *subgraphs, uint32_t u, const kin_launch_context *context)
{
    kin_vids in = {0}, out = {0};
    kin_subgraph *subgraph = &subgraphs->at.at[u];
    kin_status status = kin_subgraph_bounds(&v->trace, subgraphs, u, &in, &out);
    if (status == KIN_OK) {
        kin_launcher *launcher = find_same(&v->trace, v->subgraphs, subgraph, &in, &out);
        if (launcher != NULL)
            launcher->refs++;
        else { /* code behind many graph breaks may seldom be reached, and hundreds of subgraphs take long to compile: they have to pay */
            bool invariant = launch_is_invariant(v, subgraph);
            bool must_pay = context->later || u >= KIN_TIER_USUAL_SUBGRAPHS || (!invariant && launch_subgraph_is_chosen(v, subgraph));
            launcher = launch_new(context, v->trace.steps.at[subgraph->first].graph, must_pay || (!invariant && launch_subgraph_varies(v, subgraph)), must_pay);
        }
        status = launcher == NULL ? KIN_NOMEM : kin_subgraph_set(v, subgraphs, u, in.at, in.len, out.at, out.len, launcher);
        kin_launcher_release(launcher);
    }
    kin_vec_deinit(&in);
    kin_vec_deinit(&out);
    return status == KIN_BREAK ? KIN_OK : status; /* its steps run one by one */
}

kin_status
kin_launch_plan(kin_entry *v, const kin_launch_context *context)
{
    bool held = kin_signals_hold();
    kin_status ready = kin_capture_init();
    if (held)
        kin_signals_release();
    KIN_TRY(ready);
    if (v->subgraphs == NULL)
        v->grad = kin_grad_enabled();
    kin_subgraphs *subgraphs = kin_subgraphs_find(v, KIN_SUBGRAPHS_WIDE);
    kin_status status = subgraphs == NULL ? KIN_NOMEM : KIN_OK;
    for (uint32_t u = 0; status == KIN_OK && u < subgraphs->at.len; u++)
        status = plan_subgraph(v, subgraphs, u, context);
    if (status != KIN_OK) {
        kin_subgraphs_release(subgraphs);
        return status;
    }
    kin_entry_set_subgraphs(v, subgraphs, kin_subgraphs_release);
    kin_subgraphs_say_parts(v, subgraphs, context->log, context->name, context->entry);
    return KIN_OK;
}

/* The context of the present plan; NULL: none of its subgraphs uses our kernels. */
static const kin_launch_context *
context_of(const kin_entry *v)
{
    for (uint32_t u = 0; v->subgraphs != NULL && u < v->subgraphs->at.len; u++)
        if (launch_is_ours(v->subgraphs->at.at[u].launcher))
            return &((const kernel_launcher *)v->subgraphs->at.at[u].launcher)->context;
    return NULL;
}

void
kin_launch_settle(kin_entry *v)
{
    const kin_launch_context *now = v->running > 0 ? NULL : context_of(v);
    if (!v->replan || now == NULL)
        return;
    PyObject *type, *error, *traceback;
    PyErr_Fetch(&type, &error, &traceback);
    kin_launch_context context = *now; /* the launcher may be freed with its subgraph */
    Py_XINCREF(context.name);
    v->replan = false;
    if (kin_launch_plan(v, &context) != KIN_OK) /* out of memory: the old plan stays, and what cannot be compiled runs step by step */
        PyErr_Clear();
    Py_XDECREF(context.name);
    PyErr_Restore(type, error, traceback);
}

/* For reports, which do without where there is no memory. */
static void
note_obstacle(kin_entry *v, uint32_t step, const char *why)
{
    char *text = strdup(why);
    if (text != NULL && kin_vec_push(&v->obstacles, ((kin_obstacle){step, text})) != KIN_OK)
        free(text);
}

kin_status
launch_exclude(kin_entry *v, const uint32_t *steps, uint32_t n, const char *why)
{
    for (uint32_t i = 0; i < n; i++) {
        if (kin_step_is_in(v->excluded.at, v->excluded.len, steps[i]))
            continue;
        if (v->excluded.len >= KIN_TIER_EXCLUDED_CALLS)
            return KIN_BREAK;
        KIN_TRY(kin_vec_push(&v->excluded, steps[i]));
        note_obstacle(v, steps[i], why);
        v->replan = true;
    }
    return KIN_OK;
}

kin_status
launch_add_barriers(kin_entry *v, const kin_subgraph *subgraph, const uint32_t *raising, uint32_t n)
{
    uint32_t before = v->barriers.len;
    for (uint32_t i = subgraph->first; (i = next_barred(&v->trace, subgraph, i, raising, n)) != UINT32_MAX; i++)
        KIN_TRY(kin_vec_push(&v->barriers, i));
    return v->barriers.len == before ? KIN_OK : KIN_BREAK;
}

kin_status
launch_put_barrier(kin_entry *v, uint32_t step)
{
    if (kin_step_is_in(v->barriers.at, v->barriers.len, step) || v->barriers.len >= KIN_TIER_EXCLUDED_CALLS)
        return KIN_BREAK;
    KIN_TRY(kin_vec_push(&v->barriers, step));
    v->replan = true;
    return KIN_OK;
}

kin_status
launch_put_barriers(kin_entry *v, const kin_subgraph *subgraph, const uint32_t *raising, uint32_t n)
{
    kin_status status = launch_add_barriers(v, subgraph, raising, n);
    v->replan |= status == KIN_BREAK;
    return status;
}
