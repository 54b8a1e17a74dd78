/* Which role each step has between the calls of a subgraph (partition.h), decided while the subgraph grows. */
#include "core/trace/partition_priv.h"

static const kin_vid *
args_of(const kin_partitioner *p, const kin_step *s)
{
    return p->t->vids.at + s->args;
}

void
kin_roles_begin(kin_partitioner *p, uint32_t subgraph, uint32_t first)
{
    p->subgraph = subgraph;
    p->first = p->last_call = first;
    p->at = p->reports = p->reads = p->store = p->newest = p->into_own = 0;
    p->into_dict = p->into_cell = p->into_list = p->into_exact = p->into_named = p->grads = false;
}

/* -- values ----------------------------------------------------------------------------------------------------- */

/* The value is wanted in order: what it is built of is as well. False: it cannot be. */
static bool
want_in_order(kin_partitioner *p, kin_vid vid)
{
    if (vid == 0 || kin_val_of(p, vid)->made == KIN_MADE_ELSEWHERE)
        return true;
    if (kin_val_of(p, vid)->made == KIN_MADE_DEFERRED)
        return false;
    const kin_step *maker = kin_maker_of(p->t, vid);
    for (uint32_t a = 0; a < maker->nargs; a++)
        if (!want_in_order(p, args_of(p, maker)[a]))
            return false;
    kin_val_of(p, vid)->made = KIN_MADE_ELSEWHERE;
    p->role[p->t->vals.at[vid].step] = KIN_ROLE_IN_ORDER;
    return true;
}

/* The containers that the object was built of, if it holds them. */
static const kin_step *
holder_of(const kin_partitioner *p, kin_vid vid)
{
    const kin_step *maker = kin_maker_of(p->t, vid);
    return maker != NULL && kin_subgraph_builds(maker) && maker->kind != KIN_STEP_LIST_TO_TUPLE ? maker : NULL;
}

/* A call takes the value, and with it everything that it was built from. */
static void
reach(kin_partitioner *p, kin_vid vid, int depth)
{
    if (vid == 0 || kin_val_of(p, vid)->reached || depth > 40)
        return;
    kin_val_of(p, vid)->reached = true;
    const kin_step *maker = holder_of(p, vid);
    for (uint32_t a = 0; maker != NULL && a < maker->nargs; a++)
        reach(p, args_of(p, maker)[a], depth + 1);
}

static bool
holds_changed(kin_partitioner *p, kin_vid vid, int depth)
{
    if (vid == 0)
        return false;
    if (kin_val_of(p, vid)->changed || depth > 40)
        return true;
    const kin_step *maker = holder_of(p, vid);
    for (uint32_t a = 0; maker != NULL && a < maker->nargs; a++)
        if (holds_changed(p, args_of(p, maker)[a], depth + 1))
            return true;
    return false;
}

/* The value is a constant, a number, a tensor, or made by the subgraph: nothing that runs in order changes it. */
static bool
stays(kin_partitioner *p, kin_vid vid)
{
    const kin_val *val = &p->t->vals.at[vid];
    return vid == 0 || kin_partition_is_number(p->t, vid) || val->kind == KIN_VAL_CONST || val->note != 0 || kin_is_deferred(p, vid);
}

static bool
all_stay(kin_partitioner *p, const kin_step *s, uint32_t from)
{
    for (uint32_t a = from; a < s->nargs; a++)
        if (!stays(p, args_of(p, s)[a]))
            return false;
    return true;
}

/* Does it compute a number of numbers that stay, such as a size and an attribute of a module? */
static bool
computes_number(kin_partitioner *p, const kin_step *s)
{
    bool number = s->out != 0 && kin_partition_is_number(p->t, s->out);
    for (uint32_t a = 0; a < s->nargs && number; a++)
        number = stays(p, args_of(p, s)[a]) || p->traits[args_of(p, s)[a]] & KIN_IS_SIMPLE;
    return number;
}

static bool
uses_tensors(const kin_partitioner *p, const kin_step *s)
{
    bool tensors = false;
    for (uint32_t a = 0; a < s->nargs; a++)
        tensors = tensors || p->t->vals.at[args_of(p, s)[a]].note != 0;
    return tensors;
}

/* Was the object made after the last deferred step that reads a container? Others may be that container. */
static bool
is_not_read(const kin_partitioner *p, kin_vid owner)
{
    const kin_val *val = &p->t->vals.at[owner];
    return p->reads == 0 || (val->kind == KIN_VAL_STEP && val->step > p->reads);
}

/* Is it a list or dict that was built before the subgraph, and that only torch calls have received since? Then it may as well
 * have been built here: stores into it may be deferred. */
static bool
is_unused(const kin_partitioner *p, kin_vid vid, uint32_t upto)
{
    const kin_trace *t = p->t;
    const kin_step *maker = kin_maker_of(t, vid);
    if (maker == NULL || (maker->kind != KIN_STEP_BUILD_LIST && maker->kind != KIN_STEP_BUILD_MAP && maker->kind != KIN_STEP_BUILD_CELL))
        return false;
    for (uint32_t i = t->vals.at[vid].step + 1; i < upto; i++) {
        const kin_step *s = &t->steps.at[i];
        for (uint32_t a = 0; !(s->flags & (KIN_STEP_TORCH | KIN_STEP_SUNK)) && a < s->nargs; a++)
            if (args_of(p, s)[a] == vid)
                return false;
    }
    return true;
}

/* -- roles ------------------------------------------------------------------------------------------------------ */

void
kin_roles_defer(kin_partitioner *p, uint32_t step, kin_role role, kin_made made)
{
    const kin_step *s = &p->t->steps.at[step];
    p->role[step] = (uint8_t)role;
    if (s->out != 0)
        kin_val_of(p, s->out)->made = (uint8_t)made;
}

/* Can the value, which the program reads behind steps that run in order, be read where the subgraph runs? It is compared behind them. */
static bool
is_read_ahead(kin_partitioner *p, kin_vid vid)
{
    const kin_val *val = &p->t->vals.at[vid];
    if (val->kind != KIN_VAL_SRC)
        return val->kind == KIN_VAL_CONST || (val->kind == KIN_VAL_STEP && val->step < p->at && kin_val_of(p, vid)->made == KIN_MADE_ELSEWHERE);
    return p->starts[val->epoch] < p->at || (val->parent != 0 && is_read_ahead(p, val->parent));
}

/* Was the value not there when the subgraph ran? */
static bool
is_late(kin_partitioner *p, kin_vid vid)
{
    const kin_val *val = &p->t->vals.at[vid];
    return vid != 0 && (kin_val_of(p, vid)->late || (val->kind == KIN_VAL_SRC && p->starts[val->epoch] >= p->at && !is_read_ahead(p, vid)));
}

static bool
comes_late(kin_partitioner *p, const kin_step *s)
{
    for (uint32_t a = 0; p->at != 0 && a < s->nargs; a++)
        if (is_late(p, args_of(p, s)[a]))
            return true;
    return false;
}

bool
kin_roles_can_switch(const kin_partitioner *p, uint32_t step)
{
    const kin_step *s = &p->t->steps.at[step];
    for (uint32_t a = 0; a < s->nargs; a++) {
        kin_vid vid = args_of(p, s)[a];
        const kin_step *maker = kin_maker_of(p->t, vid);
        if (p->t->vals.at[vid].kind != KIN_VAL_CONST && !(maker != NULL && maker > &p->t->steps.at[p->first] && kin_step_switches(maker)))
            return false;
    }
    return true;
}

/* The graph switches, and so does the step, in order: the graph runs before it. */
static bool
switch_setting(kin_partitioner *p, uint32_t step)
{
    const kin_step *s = &p->t->steps.at[step];
    p->at = p->at == 0 ? step : p->at;
    p->role[step] = KIN_ROLE_IN_ORDER;
    if (s->out != 0)
        kin_val_of(p, s->out)->late = true;
    return true;
}

bool
kin_roles_call(kin_partitioner *p, uint32_t step)
{
    const kin_step *s = &p->t->steps.at[step];
    p->why = "one of its inputs is modified between the calls";
    for (uint32_t a = 0; a < s->nargs; a++)
        if (holds_changed(p, args_of(p, s)[a], 0))
            return false;
    if (kin_step_switches(s))
        return switch_setting(p, step);
    p->why = "one of its inputs is made after a step that needs results of the graph";
    if (comes_late(p, s))
        return false;
    for (uint32_t a = 0; a < s->nargs; a++)
        reach(p, args_of(p, s)[a], 0);
    kin_roles_defer(p, step, KIN_ROLE_CALL, KIN_MADE_DEFERRED);
    p->last_call = step;
    return true;
}

/* Runs in order. `observable`: so that it can be seen when an earlier call raises. */
static bool
keep_in_order(kin_partitioner *p, uint32_t step, bool observable)
{
    const kin_step *s = &p->t->steps.at[step];
    if (observable && p->barrier)
        return false;
    for (uint32_t a = 0; a < s->nargs; a++)
        if (!want_in_order(p, args_of(p, s)[a]))
            return false;
    p->role[step] = observable ? KIN_ROLE_OBSERVABLE : KIN_ROLE_IN_ORDER;
    return true;
}

/* A test of a value that the subgraph makes: its outcome follows from the kinds of the inputs. */
static bool
is_decided(kin_partitioner *p, const kin_step *s)
{
    kin_vid vid = s->nargs == 1 ? args_of(p, s)[0] : 0;
    if (vid == 0 || (s->imm == KIN_CHECK_META && p->objects[s->ref].is & KIN_IS_OFFSET))
        return false;
    if (kin_partition_is_number(p->t, vid) && (s->imm == KIN_CHECK_TRUE || s->imm == KIN_CHECK_FALSE || s->imm == KIN_CHECK_EQ))
        return true;
    return s->imm == KIN_CHECK_TYPE || s->imm == KIN_CHECK_LEN || s->imm == KIN_CHECK_META ||
           s->imm == KIN_CHECK_IS || s->imm == KIN_CHECK_IS_NOT;
}

/* A change of an object by something deferred. */
static bool
defer_change(kin_partitioner *p, uint32_t step)
{
    const kin_step *s = &p->t->steps.at[step];
    kin_vid owner = args_of(p, s)[0];
    bool ours = kin_val_of(p, owner)->made != KIN_MADE_ELSEWHERE || is_unused(p, owner, step);
    bool merges = s->kind == KIN_STEP_DICT_MERGE || s->kind == KIN_STEP_DICT_UPDATE;
    bool stay = all_stay(p, s, 1);
    if (!ours && s->kind == KIN_STEP_LIST_APPEND)
        return kin_stores_defer_append(p, step);
    if (!ours || (s->kind != KIN_STEP_NEXT && !kin_step_does(s, KIN_STORES) && !merges && !stay))
        return false;
    if (merges && !stay)
        p->reads = step;
    kin_val_of(p, owner)->made = KIN_MADE_DEFERRED;
    kin_roles_defer(p, step, KIN_ROLE_DEFERRED, KIN_MADE_DEFERRED);
    return true;
}

/* A step that uses something deferred. */
static bool
pass_deferred(kin_partitioner *p, uint32_t step)
{
    const kin_step *s = &p->t->steps.at[step];
    if (s->flags & KIN_STEP_RAISES)
        return false;
    if (s->flags & KIN_STEP_EFFECT)
        return kin_stores_defer(p, step);
    if (s->kind == KIN_STEP_CHECK) {
        if (!is_decided(p, s))
            return false;
        kin_roles_defer(p, step, KIN_ROLE_TEST, KIN_MADE_DEFERRED);
        return true;
    }
    if (s->flags & KIN_STEP_PURE || s->kind == KIN_STEP_SIZE) {
        if (!kin_subgraph_builds(s) && !all_stay(p, s, 0) && !computes_number(p, s))
            return false;
        kin_roles_defer(p, step, KIN_ROLE_DEFERRED, KIN_MADE_DEFERRED);
        return true;
    }
    if (!(s->flags & KIN_STEP_MUTATES) || s->out != 0 || s->nargs == 0)
        return false;
    if (kin_subgraph_stores_own(p->t, s) && !kin_is_deferred(p, args_of(p, s)[0]))
        return kin_stores_defer_own(p, step);
    return defer_change(p, step);
}

/* -- steps with effects ------------------------------------------------------------------------------------------- */

/* What the step switches gradients to; -1: not known. */
static int
grad_after(const kin_partitioner *p, const kin_step *s)
{
    const kin_val *val = &p->t->vals.at[s->nargs == 2 ? args_of(p, s)[1] : 0];
    if (val->kind == KIN_VAL_STEP && kin_step_does(&p->t->steps.at[val->step], KIN_GIVES_GRAD))
        return kin_roles_grad(p, val->step);
    unsigned is = val->kind == KIN_VAL_CONST ? p->objects[val->key].is : 0;
    return is & KIN_IS_TRUE ? 1 : is & KIN_IS_FALSE ? 0 : -1;
}

/* The step whose alt leads to the first step of a side trace. */
static uint32_t
side_comes_from(const kin_partitioner *p, uint32_t first)
{
    uint32_t i = 0;
    while (i < first && p->t->steps.at[i].alt != first)
        i++;
    return i < first ? i : 0;
}

/* Whether gradients are on at the step; -1: not known. A mode that an earlier step read from torch is older than that step, so this terminates. The facts of an epoch that a
 * side trace comes from did not hold. */
int
kin_roles_grad(const kin_partitioner *p, uint32_t step)
{
    for (uint32_t i = step; i > 0; i--) {
        while (i > 0 && kin_step_is_end(&p->t->steps.at[i - 1]))
            i = side_comes_from(p, i);
        if (i == 0)
            break;
        const kin_step *s = &p->t->steps.at[i - 1];
        int grad = kin_step_does(s, KIN_GRAD_MODE) ? grad_after(p, s) : s->kind == KIN_STEP_EPOCH && s->num <= p->t->nepochs ? p->grads_at[s->num] : -1;
        if (grad >= 0 || kin_step_does(s, KIN_GRAD_MODE))
            return grad;
    }
    return p->in->grad;
}

/* May it really change the mode? Deferred calls must not run after that. */
static bool
switches_grad(const kin_partitioner *p, uint32_t step)
{
    int to = grad_after(p, &p->t->steps.at[step]);
    return to < 0 || to != kin_roles_grad(p, step);
}

/* A switch that happens in order while calls are deferred: whoever runs these does so with gradients as they are at each call's own place
 * (kin_subgraph.grads). With a graph that a backend gets, the switch is one of its calls instead. */
static bool
pass_switch(kin_partitioner *p, uint32_t step)
{
    if (!switches_grad(p, step))
        return true;
    bool known = grad_after(p, &p->t->steps.at[step]) >= 0 && kin_roles_grad(p, step) >= 0 && kin_roles_grad(p, p->first) >= 0;
    p->grads = p->grads || known;
    return known && !(p->in->how & KIN_SUBGRAPHS_EVERY);
}

/* Does it ask torch for its settings, with known operands? */
static bool
asks_settings(const kin_partitioner *p, const kin_step *s)
{
    bool asks = kin_step_does(s, KIN_SETTINGS) && !kin_step_switches(s);
    for (uint32_t a = 1; a < s->nargs; a++)
        asks = asks && p->t->vals.at[args_of(p, s)[a]].kind == KIN_VAL_CONST;
    return asks;
}

/* A store in order. */
static bool
pass_store(kin_partitioner *p, uint32_t step, kin_vid owner)
{
    const kin_val *val = &p->t->vals.at[owner];
    bool virtual = val->kind == KIN_VAL_STEP && val->step > p->last_call && p->t->steps.at[val->step].kind == KIN_STEP_BUILD_OBJECT;
    if (p->barrier || (p->store != 0 && !(virtual && val->step > p->newest)))
        return kin_stores_defer(p, step);
    return !kin_stores_of_others(p, owner) && is_not_read(p, owner) && keep_in_order(p, step, !virtual);
}

/* A method of a list, dict or set that changes it: list.append, dict.pop, ... */
static bool
pass_method(kin_partitioner *p, uint32_t step)
{
    const kin_step *s = &p->t->steps.at[step];
    kin_vid owner = s->kind == KIN_STEP_CALL && s->nargs > 1 ? args_of(p, s)[1] : 0;
    if (owner == 0 || !kin_step_does(s, KIN_OF_FIRST) || uses_tensors(p, s) || kin_stores_of_others(p, owner) || !is_not_read(p, owner) ||
        (p->store != 0 && (!kin_partition_no_dicts(p, s) || kin_stores_see_items(p, step))) || !keep_in_order(p, step, true))
        return false;
    kin_val_of(p, owner)->changed = true;
    return true;
}

/* Effects that no call of a subgraph can notice. */
static bool
pass_effect(kin_partitioner *p, uint32_t step)
{
    const kin_step *s = &p->t->steps.at[step];
    kin_attribute to;
    if (pass_method(p, step))
        return true;
    if (kin_stores_read(p, s, &to)) {
        bool passes = pass_store(p, step, to.owner);
        kin_val_of(p, to.owner)->changed |= passes && kin_step_does(s, KIN_INTO_DICT);
        return passes;
    }
    bool harmless = kin_step_does(s, KIN_GRAD_MODE) ? pass_switch(p, step) : asks_settings(p, s);
    return harmless && keep_in_order(p, step, false);
}

static bool
pass_change(kin_partitioner *p, uint32_t step)
{
    const kin_trace *t = p->t;
    const kin_step *s = &t->steps.at[step];
    kin_vid owner = s->nargs == 0 ? 0 : args_of(p, s)[0];
    if (owner == 0 || (kin_val_of(p, owner)->reached && s->kind != KIN_STEP_NEXT))
        return false;
    if (s->kind == KIN_STEP_NEXT && s->out == 0) { /* a loop over known items continues */
        kin_roles_defer(p, step, KIN_ROLE_DEFERRED, KIN_MADE_DEFERRED);
        kin_val_of(p, owner)->made = KIN_MADE_DEFERRED;
        return true;
    }
    bool virtual = t->vals.at[owner].kind == KIN_VAL_STEP && t->vals.at[owner].step > p->last_call;
    kin_attribute to;
    if ((p->barrier || (p->store != 0 && !(virtual && t->vals.at[owner].step > p->newest))) && (kin_stores_read(p, s, &to) || kin_subgraph_stores_own(t, s)))
        return kin_stores_defer_own(p, step);
    if ((s->kind != KIN_STEP_NEXT && !is_not_read(p, owner)) || !keep_in_order(p, step, !virtual))
        return false;
    kin_val_of(p, owner)->changed = true;
    return true;
}

/* -- exceptions --------------------------------------------------------------------------------------------------- */

/* Values that are, or hold, an exception that has just been raised. */
typedef struct {
    kin_vid at[8];
    unsigned n;
} exceptions;

static bool
is_one(const exceptions *all, kin_vid vid)
{
    for (unsigned i = 0; i < all->n; i++)
        if (all->at[i] == vid)
            return true;
    return false;
}

/* Follows exceptions over one step. False: the step may inspect one, or let it escape. */
static bool
follow_exceptions(const kin_trace *t, const kin_step *s, exceptions *all)
{
    bool handled = s->kind == KIN_STEP_HANDLED && (s->snap == 0 || is_one(all, t->snaps.at[s->snap].exc));
    bool gives = handled || s->flags & KIN_STEP_RAISES;
    bool tests = s->kind == KIN_STEP_CHECK && (s->imm == KIN_CHECK_TYPE || s->imm == KIN_CHECK_IS || s->imm == KIN_CHECK_IS_NOT);
    if (s->flags & (KIN_STEP_TORCH | KIN_STEP_OPAQUE | KIN_STEP_BREAK | KIN_STEP_EFFECT) || kin_step_is_end(s) || s->kind == KIN_STEP_EPOCH)
        return false;
    for (uint32_t a = 0; a < s->nargs && s->kind != KIN_STEP_RAISE && !tests; a++)
        if (is_one(all, t->vids.at[s->args + a]))
            return false;
    if (gives && s->out != 0 && all->n < sizeof all->at / sizeof *all->at)
        all->at[all->n++] = s->out;
    else if (gives && s->out != 0)
        return false;
    for (uint32_t i = 0; i < s->nfrees; i++)
        for (unsigned k = 0; k < all->n; k++)
            if (all->at[k] == t->vids.at[s->frees + i])
                all->at[k--] = all->at[--all->n];
    return true;
}

/* Is the exception dropped at the step that raised it, or soon after, without anything having inspected it? One that is inspected holds frames, and
 * deferred values are not in them. */
static bool
dies_soon(const kin_trace *t, uint32_t step)
{
    enum { SOON = 40 };
    exceptions all = {.n = 0};
    for (uint32_t i = step; i < t->steps.len && i < step + SOON; i++) {
        if (!follow_exceptions(t, &t->steps.at[i], &all))
            return false;
        if (all.n == 0)
            return true;
    }
    return false;
}

/* -- all other steps ---------------------------------------------------------------------------------------------- */

/* What the guards of the epoch start from. */
static bool
pass_epoch(kin_partitioner *p, uint32_t step)
{
    const kin_trace *t = p->t;
    uint32_t epoch = t->steps.at[step].num;
    for (kin_vid vid = 1; vid < t->vals.len; vid++)
        if (t->vals.at[vid].kind == KIN_VAL_SRC && t->vals.at[vid].epoch == epoch && !want_in_order(p, t->vals.at[vid].parent))
            return false;
    for (uint32_t i = 0; i < t->facts.len; i++)
        if (t->facts.at[i].epoch == epoch && !(want_in_order(p, t->facts.at[i].vid) && want_in_order(p, t->facts.at[i].vid2)))
            return false;
    return keep_in_order(p, step, false);
}

static bool
asks_for_data(const kin_partitioner *p, const kin_step *s)
{
    if (!uses_tensors(p, s))
        return false;
    if (s->kind == KIN_STEP_CHECK)
        return s->imm == KIN_CHECK_TRUE || s->imm == KIN_CHECK_FALSE || s->imm == KIN_CHECK_EQ;
    return s->kind != KIN_STEP_IS && s->kind != KIN_STEP_GETATTR && s->kind != KIN_STEP_SIZE && !kin_partition_finds_by_hash(p, s);
}

/* Does it look at its operands and at nothing else? */
static bool
only_asks(const kin_partitioner *p, const kin_step *s)
{
    if (!kin_step_does(s, KIN_ASKS))
        return false;
    if (s->kind == KIN_STEP_CALL)
        return !uses_tensors(p, s) && (!kin_step_does(s, KIN_BY_NAME) || kin_partition_asked_name(p, s) != 0);
    return !asks_for_data(p, s) && (s->kind != KIN_STEP_HANDLED || s->snap != 0 /* the snapshot has the handled exception */);
}

static bool
refuse(kin_partitioner *p, const char *why)
{
    p->why = p->barrier ? "a call before it may raise because of data, after which this must not have run" : why;
    return false;
}

static bool
pass_unmarked(kin_partitioner *p, uint32_t step)
{
    const kin_step *s = &p->t->steps.at[step];
    if (s->kind == KIN_STEP_NEXT && s->nargs == 1 && !kin_val_of(p, args_of(p, s)[0])->reached) {
        kin_val_of(p, args_of(p, s)[0])->changed = true;
        return keep_in_order(p, step, true) || refuse(p, "what it iterates over may depend on a tensor call before it");
    }
    return (only_asks(p, s) && keep_in_order(p, step, false)) || refuse(p, "what it returns may depend on a tensor call before it");
}

/* A step that uses nothing deferred. */
static bool
pass_independent(kin_partitioner *p, uint32_t step)
{
    const kin_step *s = &p->t->steps.at[step];
    if (p->store != 0 && !(s->flags & KIN_STEP_EFFECT) && kin_stores_are_seen(p, step))
        return refuse(p, "it might see that an attribute is set later than in eager");
    if (s->kind == KIN_STEP_EPOCH)
        return pass_epoch(p, step) || refuse(p, "what it reads may depend on a tensor call before it");
    if (s->flags & KIN_STEP_EFFECT)
        return (!(s->flags & KIN_STEP_RAISES) && pass_effect(p, step)) || refuse(p, "a tensor call before it might see what it changes");
    if (s->flags & KIN_STEP_MUTATES)
        return (!(s->flags & KIN_STEP_RAISES) && pass_change(p, step)) || refuse(p, "it changes an argument of a tensor call before it");
    if (s->flags & KIN_STEP_RAISES)
        return (dies_soon(p->t, step) && keep_in_order(p, step, false)) || refuse(p, "the exception it raises is inspected");
    if (s->flags & KIN_STEP_PURE && ((kin_subgraph_builds(s) && s->kind != KIN_STEP_LIST_TO_TUPLE) || computes_number(p, s))) { /* perhaps only calls want it */
        kin_roles_defer(p, step, KIN_ROLE_DEFERRED, KIN_MADE_SOFT);
        return true;
    }
    if (s->flags & KIN_STEP_PURE)
        return keep_in_order(p, step, false) || refuse(p, "an object is made of a result of the graph before its end");
    return pass_unmarked(p, step);
}

/* While the calls are deferred. */
static bool
pass_before(kin_partitioner *p, uint32_t step)
{
    const kin_step *s = &p->t->steps.at[step];
    bool deferred = false;
    for (uint32_t a = 0; a < s->nargs; a++)
        deferred = deferred || kin_is_deferred(p, args_of(p, s)[a]);
    if (deferred && p->barrier && s->kind == KIN_STEP_CHECK) {
        p->why = "the test does not pass when it is captured";
        return false;
    }
    if (deferred)
        return pass_deferred(p, step) || refuse(p, "Python code needs a result of the graph before its end");
    return pass_independent(p, step);
}

/* -- behind a subgraph that has run ------------------------------------------------------------------------------- */

/* Is it unobservable to later calls, which have run already, that this step had not been done? They read tensors and torch's settings. */
static bool
is_unseen_by_calls(const kin_partitioner *p, const kin_step *s)
{
    bool call = s->kind == KIN_STEP_CALL;
    kin_vid owner = s->nargs > call ? args_of(p, s)[call] : 0;
    kin_attribute to;
    if (!(s->flags & KIN_STEP_EFFECT))
        return true;
    if (call && kin_step_does(s, KIN_FITS) && kin_stores_read(p, s, &to)) /* object.__setattr__ and the like, where only the object's own words change */
        return to.owner != 0;
    if (call || s->kind == KIN_STEP_CALL_EX)
        return call && ((kin_step_does(s, KIN_SETTINGS) && !kin_step_switches(s)) || (owner != 0 && kin_step_does(s, KIN_OF_FIRST) && p->t->vals.at[owner].note == 0));
    return owner != 0;
}

/* Contributes to the calls' arguments, and is done again in order if anything else needs it. */
static bool
is_part_of_early(kin_partitioner *p, uint32_t step)
{
    const kin_step *s = &p->t->steps.at[step];
    kin_vid first = s->nargs > 0 ? args_of(p, s)[0] : 0;
    if (comes_late(p, s) || s->flags & (KIN_STEP_EFFECT | KIN_STEP_RAISES))
        return false;
    if (s->flags & KIN_STEP_PURE || s->kind == KIN_STEP_SIZE)
        return (kin_subgraph_builds(s) && s->kind != KIN_STEP_LIST_TO_TUPLE) || all_stay(p, s, 0);
    bool ours = first != 0 && (kin_val_of(p, first)->made != KIN_MADE_ELSEWHERE || is_unused(p, first, step));
    return s->flags & KIN_STEP_MUTATES && s->out == 0 && ours && !kin_val_of(p, first)->changed &&
           (s->kind == KIN_STEP_NEXT || kin_step_does(s, KIN_STORES));
}

/* From here on the results exist, and steps run in order. */
static bool
pass_behind(kin_partitioner *p, uint32_t step)
{
    const kin_step *s = &p->t->steps.at[step];
    kin_vid owner = s->nargs > (s->kind == KIN_STEP_CALL) ? args_of(p, s)[s->kind == KIN_STEP_CALL] : 0;
    bool test = s->kind == KIN_STEP_CHECK && !p->barrier && s->nargs > 0 && kin_is_deferred(p, args_of(p, s)[0]) && !comes_late(p, s);
    if (test && is_decided(p, s)) {
        kin_roles_defer(p, step, KIN_ROLE_TEST, KIN_MADE_DEFERRED);
        return true;
    }
    if (is_part_of_early(p, step)) {
        kin_roles_defer(p, step, KIN_ROLE_DEFERRED, KIN_MADE_DEFERRED);
        return true;
    }
    if (!is_unseen_by_calls(p, s))
        return refuse(p, "a tensor call before it might see what it changes");
    p->role[step] = KIN_ROLE_IN_ORDER;
    if (owner != 0 && s->flags & (KIN_STEP_EFFECT | KIN_STEP_MUTATES))
        kin_val_of(p, owner)->changed = kin_val_of(p, owner)->late = true;
    if (s->out != 0)
        kin_val_of(p, s->out)->late = true;
    return true;
}

/* Tells somebody something, with the results of the graph, which runs before. */
static bool
pass_report(kin_partitioner *p, uint32_t step)
{
    const kin_step *s = &p->t->steps.at[step];
    p->at = p->at == 0 ? step : p->at;
    p->reports = p->reports == 0 ? step : p->reports;
    p->role[step] = KIN_ROLE_IN_ORDER;
    if (s->out != 0)
        kin_val_of(p, s->out)->late = true;
    return true;
}

/* Takes a part out of a tensor, and is no node of the graph (graphs.c): nothing that is deferred has had the tensor, so it is as it was. */
static bool
pass_part(kin_partitioner *p, uint32_t step)
{
    const kin_vid *args = args_of(p, &p->t->steps.at[step]);
    bool own = !kin_val_of(p, args[0])->reached && !kin_is_deferred(p, args[0]) && keep_in_order(p, step, false);
    return own || refuse(p, "it takes something out of a tensor that a tensor call before it gets");
}

bool
kin_roles_pass(kin_partitioner *p, uint32_t step, bool barrier)
{
    const kin_step *s = &p->t->steps.at[step];
    p->barrier = barrier;
    if (s->flags & KIN_STEP_SUNK) {
        p->role[step] = KIN_ROLE_DEFERRED;
        return true;
    }
    if (kin_step_is_end(s))
        return refuse(p, "the recording ends");
    if (s->flags & KIN_STEP_DEATHS)
        return refuse(p, "an object dies there, and its finaliser runs Python code");
    bool runs = (s->flags & (KIN_STEP_OPAQUE | KIN_STEP_BREAK)) != 0;
    if (!runs && p->at == 0 && s->flags & KIN_STEP_TORCH && s->kind == KIN_STEP_SUBSCR && s->graph == 0)
        return pass_part(p, step);
    if (s->flags & KIN_STEP_REPORTS && !(s->flags & KIN_STEP_BREAK) && p->in->how & KIN_SUBGRAPHS_EVERY)
        return pass_report(p, step);
    if (runs || (s->flags & KIN_STEP_TORCH && !kin_step_does(s, KIN_FROM_DATA)))
        return refuse(p, "it may run arbitrary Python code");
    if (p->at == 0 && pass_before(p, step))
        return true;
    if (!(p->in->how & KIN_SUBGRAPHS_EVERY))
        return false;
    p->at = p->at == 0 ? step : p->at;
    return pass_behind(p, step);
}
