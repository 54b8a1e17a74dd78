/* Stores to older objects that are deferred until the subgraph has run. They stay in order. Until then, nothing may observe
 * that they have not happened. The recording itself no longer reads that word of the heap in this epoch (recorder/overlay.c), so only steps that run in
 * order between the calls have to be examined.
 */
#include "core/trace/partition_priv.h"

static const kin_vid *
args_of(const kin_partitioner *p, const kin_step *s)
{
    return p->t->vids.at + s->args;
}

/* The step that made the object, if it is an instance that the recording made; else 0. */
static uint32_t
birth_of(const kin_trace *t, kin_vid vid)
{
    const kin_step *maker = kin_maker_of(t, vid);
    return maker != NULL && maker->flags & KIN_STEP_PURE && kin_step_does(maker, KIN_INSTANCE) ? t->vals.at[vid].step : 0;
}

bool
kin_subgraph_stores_own(const kin_trace *t, const kin_step *s)
{
    bool stores = s->kind == KIN_STEP_SETATTR || (s->kind == KIN_STEP_SET_SUBSCR && s->imm == 1);
    return stores && s->flags & KIN_STEP_MUTATES && birth_of(t, t->vids.at[s->args]) != 0;
}

static kin_ref
text_of_key(const kin_partitioner *p, kin_vid key)
{
    kin_ref text = p->t->vals.at[key].kind == KIN_VAL_CONST ? p->objects[p->t->vals.at[key].key].text : 0;
    return text != 0 ? text : KIN_NAME_OF_ITEM;
}

bool
kin_stores_read(const kin_partitioner *p, const kin_step *s, kin_attribute *out)
{
    const kin_vid *args = args_of(p, s);
    if (s->kind == KIN_STEP_CELL_SET && kin_step_does(s, KIN_FITS))
        *out = (kin_attribute){args[0], KIN_NAME_OF_CELL};
    else if (s->kind == KIN_STEP_SETATTR && s->nargs == 2)
        *out = (kin_attribute){args[0], p->objects[s->ref].text};
    else if (s->kind == KIN_STEP_SET_SUBSCR && kin_step_does(s, KIN_INTO_DICT))
        *out = (kin_attribute){args[0], text_of_key(p, args[1])};
    else if (s->kind == KIN_STEP_CALL && kin_step_does(s, KIN_INTO_DICT | KIN_OF_FIRST) && s->nargs > 2)
        *out = (kin_attribute){args[1], KIN_NAME_OF_ITEM};
    else if (s->kind == KIN_STEP_CALL && kin_step_does(s, KIN_BY_NAME | KIN_STORES) && s->nargs == 4 && p->t->vals.at[args[2]].kind == KIN_VAL_CONST)
        *out = (kin_attribute){args[1], p->objects[p->t->vals.at[args[2]].key].text};
    else
        return false;
    return out->name != 0;
}

bool
kin_stores_of_others(kin_partitioner *p, kin_vid owner)
{
    const kin_val *val = &p->t->vals.at[owner];
    return val->kind == KIN_VAL_CONST || val->note != 0 || kin_val_of(p, owner)->reached;
}

static void
defer(kin_partitioner *p, uint32_t step, kin_vid owner)
{
    kin_val_of(p, owner)->changed = true;
    kin_roles_defer(p, step, KIN_ROLE_DEFERRED, KIN_MADE_DEFERRED);
    p->store = p->store == 0 ? step : p->store;
    p->newest = step;
}

/* All later stores are deferred as well, so that they stay in order. A value that one of them stored and another one replaces does not die
 * at that point, because it has a slot. */
bool
kin_stores_defer(kin_partitioner *p, uint32_t step)
{
    const kin_step *s = &p->t->steps.at[step];
    kin_attribute to;
    if (!kin_stores_read(p, s, &to) || kin_stores_of_others(p, to.owner) || kin_is_deferred(p, to.owner))
        return false;
    bool append = s->kind == KIN_STEP_CALL && to.name == KIN_NAME_OF_ITEM, item = append || s->kind == KIN_STEP_SET_SUBSCR;
    bool own = kin_subgraph_stores_own(p->t, s);
    if (!own && !kin_step_does(s, KIN_FITS) && !item)
        return false;
    if (item && p->t->vals.at[to.owner].kind != KIN_VAL_SRC) /* steps that use what made it would have to be looked at */
        return false;
    defer(p, step, to.owner);
    p->into_list = p->into_list || append;
    p->into_exact = p->into_exact || (item && !append);
    p->into_named = p->into_named || !append;
    p->into_cell = p->into_cell || to.name == KIN_NAME_OF_CELL;
    p->into_dict = p->into_dict || (!own && !item && (kin_step_does(s, KIN_INTO_DICT) || p->dict_operand));
    return true;
}

/* A store to an item of an instance of a dict class. */
static bool
defer_item(kin_partitioner *p, uint32_t step, kin_vid owner)
{
    if (kin_stores_of_others(p, owner) || kin_is_deferred(p, owner))
        return false;
    uint32_t birth = birth_of(p->t, owner);
    defer(p, step, owner);
    p->into_named = true;
    p->into_own = p->into_own == 0 || birth < p->into_own ? birth : p->into_own;
    return true;
}

bool
kin_stores_defer_append(kin_partitioner *p, uint32_t step)
{
    kin_vid owner = args_of(p, &p->t->steps.at[step])[0];
    const kin_step *maker = kin_maker_of(p->t, owner);
    if (maker == NULL || !kin_step_does(maker, KIN_GIVES_NEW) || kin_stores_of_others(p, owner) || kin_is_deferred(p, owner))
        return false;
    defer(p, step, owner);
    p->into_list = kin_val_of(p, owner)->takes = true;
    return true;
}

bool
kin_stores_defer_own(kin_partitioner *p, uint32_t step)
{
    const kin_step *s = &p->t->steps.at[step];
    return s->kind == KIN_STEP_SET_SUBSCR ? defer_item(p, step, args_of(p, s)[0]) : kin_stores_defer(p, step);
}

/* -- who could see it ------------------------------------------------------------------------------------------- */

/* Is a store to an attribute of this name deferred, in this object or another one? */
static bool
is_awaited(const kin_partitioner *p, kin_ref name, uint32_t upto)
{
    kin_attribute other;
    for (uint32_t i = p->store; i < upto; i++)
        if (p->role[i] == KIN_ROLE_DEFERRED && p->t->steps.at[i].flags & (KIN_STEP_EFFECT | KIN_STEP_MUTATES) &&
            kin_stores_read(p, &p->t->steps.at[i], &other) && other.name == name)
            return true;
    return false;
}

/* May the value be a list or dict that a deferred store puts an item into? What the recording has made is no older object, and of its own lists, those are marked. */
static bool
may_take_item(kin_partitioner *p, kin_vid vid)
{
    const kin_val *val = &p->t->vals.at[vid];
    const kin_step *maker = kin_maker_of(p->t, vid);
    if (vid == 0 || val->note != 0 || kin_partition_is_number(p->t, vid) || p->traits[vid] & (KIN_IS_ATOM | KIN_IS_SIMPLE | KIN_IS_TENSOR | KIN_IS_CODE))
        return false;
    if (maker != NULL && kin_step_does(maker, KIN_VIEW))
        return may_take_item(p, args_of(p, maker)[maker->kind == KIN_STEP_CALL]);
    if (maker != NULL && kin_step_effects(maker) & (KIN_GIVES_NEW | KIN_GIVES_ATOM))
        return kin_val_of(p, vid)->takes;
    if (!(p->traits[vid] & KIN_IS_KNOWN))
        return true;
    return (p->into_list && p->traits[vid] & KIN_IS_LIST) || (p->into_exact && p->traits[vid] & KIN_IS_DICT);
}

/* Does it hold nothing that items may be put into? */
static bool
leads_to_no_items(const kin_partitioner *p, kin_vid vid, int depth)
{
    const kin_val *val = &p->t->vals.at[vid];
    const kin_step *maker = kin_maker_of(p->t, vid);
    if (vid == 0 || val->note != 0 || kin_partition_is_number(p->t, vid) || p->traits[vid] & (KIN_IS_ATOM | KIN_IS_SIMPLE | KIN_IS_TENSOR | KIN_IS_CODE))
        return true;
    bool holds = maker != NULL && depth < 8 && kin_step_does(maker, KIN_GIVES_FIXED | KIN_HOLDS);
    for (uint32_t a = 0; holds && a < maker->nargs; a++)
        holds = leads_to_no_items(p, args_of(p, maker)[a], depth + 1);
    return holds || (maker != NULL && kin_step_does(maker, KIN_GIVES_ATOM));
}

/* Is a key looked up that no deferred store puts something under? */
static bool
looks_elsewhere(const kin_partitioner *p, const kin_step *s, uint32_t step)
{
    kin_vid key = s->nargs == 2 ? args_of(p, s)[s->kind == KIN_STEP_SUBSCR] : 0;
    if (key == 0 || p->into_list || p->t->vals.at[key].kind != KIN_VAL_CONST || !(p->traits[key] & KIN_IS_SIMPLE))
        return false;
    kin_ref text = p->objects[p->t->vals.at[key].key].text;
    return !is_awaited(p, text != 0 ? text : KIN_NAME_OF_ITEM, step);
}

bool
kin_stores_see_items(kin_partitioner *p, uint32_t step)
{
    const kin_step *s = &p->t->steps.at[step];
    bool hashes = kin_partition_finds_by_hash(p, s), shallow = hashes || s->kind == KIN_STEP_CHECK;
    bool goes_on = s->kind == KIN_STEP_NEXT && s->out == 0; /* over items that are known, and in the order of the stores */
    if (goes_on || s->kind == KIN_STEP_RAISE) /* what is raised dies soon (pass_independent) */
        return false;
    for (uint32_t a = 0; (p->into_list || p->into_exact) && a < s->nargs; a++) {
        kin_vid vid = args_of(p, s)[a];
        unsigned look = kin_look_into(kin_step_effects(s), a);
        if (a > 0 && look == KIN_LOOK_NOT)
            continue;
        if (may_take_item(p, vid) && !(hashes && looks_elsewhere(p, s, step)))
            return true;
        if (look == KIN_LOOK_DEEP && !shallow && !leads_to_no_items(p, vid, 0))
            return true;
        if (s->kind == KIN_STEP_CHECK && s->imm == KIN_CHECK_RUNS_NO_CODE && s->num == 1 && !leads_to_no_items(p, vid, 0))
            return true;
    }
    return false;
}

/* Is an item of a list, or how many there are, among what the epoch reads and compares? */
static bool
epoch_sees_items(kin_partitioner *p, uint32_t epoch)
{
    const kin_trace *t = p->t;
    for (kin_vid vid = 1; vid < t->vals.len; vid++)
        if (t->vals.at[vid].kind == KIN_VAL_SRC && t->vals.at[vid].epoch == epoch && t->vals.at[vid].access == KIN_ACCESS_LIST_ITEM &&
            may_take_item(p, t->vals.at[vid].parent))
            return true;
    for (uint32_t i = 0; i < t->facts.len; i++) {
        const kin_fact *f = &t->facts.at[i];
        if (f->epoch == epoch && (f->kind == KIN_FACT_LEN || f->kind == KIN_FACT_TRUE) && may_take_item(p, f->vid))
            return true;
    }
    return false;
}

static bool
tests_no_contents(const kin_step *s)
{
    return s->imm == KIN_CHECK_TYPE || s->imm == KIN_CHECK_IS || s->imm == KIN_CHECK_IS_NOT || s->imm == KIN_CHECK_FITS ||
           s->imm == KIN_CHECK_SAME || s->imm == KIN_CHECK_NOT_SAME || s->imm == KIN_CHECK_NULL || s->imm == KIN_CHECK_NOTNULL || s->imm == KIN_CHECK_META || s->imm == KIN_CHECK_EQ || s->imm == KIN_CHECK_ANSWERED;
}

/* Comparing cells compares their contents. Strings, numbers and simple objects lead to no cell. */
static bool
may_look_into_cells(const kin_partitioner *p, const kin_step *s)
{
    for (uint32_t a = 0; a < s->nargs && s->kind != KIN_STEP_CHECK; a++) {
        kin_vid vid = args_of(p, s)[a];
        bool harmless = vid == 0 || p->t->vals.at[vid].note != 0 || p->traits[vid] & (KIN_RUNS_NO_CODE | KIN_IS_ATOM | KIN_IS_CODE) ||
                        kin_partition_is_number(p->t, vid);
        if (!harmless && kin_look_into(kin_step_effects(s), a) == KIN_LOOK_DEEP)
            return true;
    }
    return s->kind == KIN_STEP_CELL_GET;
}

bool
kin_stores_are_seen(kin_partitioner *p, uint32_t step)
{
    const kin_step *s = &p->t->steps.at[step];
    kin_ref name = kin_partition_asked_name(p, s);
    if (name != 0)
        return p->objects[name].is & KIN_IS_INSIDE_NAME || is_awaited(p, name, step);
    if (p->into_cell && may_look_into_cells(p, s))
        return true;
    if (s->kind == KIN_STEP_EPOCH) /* reads the heap again */
        return p->into_named || epoch_sees_items(p, s->num);
    if (s->kind == KIN_STEP_GETATTR && p->into_named)
        return true;
    if (kin_step_does(s, KIN_BLIND) || kin_step_does(s, KIN_MOVES) || (s->kind == KIN_STEP_CHECK && tests_no_contents(s)) ||
        (s->kind == KIN_STEP_SET_SUBSCR && kin_subgraph_stores_own(p->t, s)))
        return false;
    bool by_name = p->into_named && s->kind == KIN_STEP_CALL && !kin_step_does(s, KIN_INSIDE);
    return by_name || !kin_partition_no_dicts(p, s) || kin_stores_see_items(p, step);
}
