/* What is known about values while a trace is partitioned: their class, what can be reached from them, whether tensor memory can be
 * read through them.
 */
#include "core/trace/partition_priv.h"

static const kin_vid *
args_of(const kin_partitioner *p, const kin_step *s)
{
    return p->t->vids.at + s->args;
}

/* -- classes ---------------------------------------------------------------------------------------------------- */

static uint32_t
class_traits(const kin_partitioner *p, kin_ref cls)
{
    return p->objects[cls].is & KIN_IS_CLASS ? p->objects[cls].makes | KIN_IS_KNOWN : 0;
}

/* What the step creates, if its effects say so: list(x). */
static uint32_t
made_traits(const kin_partitioner *p, const kin_step *maker)
{
    const kin_val *callee = maker->kind == KIN_STEP_CALL && maker->nargs > 0 ? &p->t->vals.at[args_of(p, maker)[0]] : NULL;
    if (callee != NULL && callee->kind == KIN_VAL_CONST && kin_step_does(maker, KIN_OF_CLASS))
        return class_traits(p, callee->key);
    return maker->kind == KIN_STEP_BUILD_SET || maker->kind == KIN_STEP_BUILD_MAP ? KIN_IS_HASHED | KIN_IS_KNOWN : 0;
}

static void
learn_from_facts(kin_partitioner *p)
{
    const kin_trace *t = p->t;
    for (uint32_t i = 0; i < t->facts.len; i++) {
        const kin_fact *f = &t->facts.at[i];
        bool typed = f->kind == KIN_FACT_TYPE || f->kind == KIN_FACT_TYPE_VERSION;
        bool simple = f->kind == KIN_FACT_EQ && p->objects[f->ref].is & KIN_IS_SIMPLE;
        if (t->vals.at[f->vid].kind == KIN_VAL_SRC && !(p->traits[f->vid] & KIN_IS_KNOWN))
            p->traits[f->vid] |= typed ? class_traits(p, f->ref) : simple ? p->objects[f->ref].is | KIN_IS_KNOWN : 0;
    }
}

static void
learn_from_step(kin_partitioner *p, const kin_step *s)
{
    kin_vid vid = s->nargs > 0 ? args_of(p, s)[0] : 0;
    if (s->out != 0)
        p->traits[s->out] |= made_traits(p, s);
    if (s->kind == KIN_STEP_CHECK && s->imm == KIN_CHECK_TYPE && p->t->vals.at[vid].kind == KIN_VAL_STEP && !(p->traits[vid] & KIN_IS_KNOWN))
        p->traits[vid] |= class_traits(p, s->ref);
    if (s->kind == KIN_STEP_CHECK && s->imm == KIN_CHECK_RUNS_NO_CODE && s->num == 1)
        p->traits[vid] |= KIN_RUNS_NO_CODE;
}

/* x[1:] has the type of x. */
static void
learn_slice(kin_partitioner *p, const kin_step *s)
{
    const kin_vid *args = args_of(p, s);
    if (s->kind == KIN_STEP_SUBSCR && s->out != 0 && p->traits[args[1]] & KIN_IS_SLICE && p->traits[args[0]] & KIN_IS_SEQUENCE)
        p->traits[s->out] = KIN_IS_SEQUENCE | KIN_IS_KNOWN;
}

void
kin_partition_learn_values(kin_partitioner *p)
{
    const kin_trace *t = p->t;
    for (kin_vid vid = 1; vid < t->vals.len; vid++)
        if (t->vals.at[vid].kind == KIN_VAL_CONST)
            p->traits[vid] = p->objects[t->vals.at[vid].key].is | KIN_IS_KNOWN;
    learn_from_facts(p);
    for (uint32_t i = 0; i < t->steps.len; i++)
        learn_from_step(p, &t->steps.at[i]);
    for (uint32_t i = 0; i < t->steps.len; i++) {
        const kin_step *s = &t->steps.at[i];
        learn_slice(p, s);
        for (uint32_t a = 0; a < s->nargs; a++) {
            const kin_val *val = &t->vals.at[args_of(p, s)[a]];
            p->dict_operand = p->dict_operand || (val->kind == KIN_VAL_SRC && val->access == KIN_ACCESS_INSTDICT);
        }
    }
}

bool
kin_partition_is_number(const kin_trace *t, kin_vid vid)
{
    const kin_step *maker = kin_maker_of(t, vid);
    return maker != NULL && kin_step_does(maker, KIN_GIVES_NUMBER) && (maker->kind == KIN_STEP_SIZE || maker->flags & KIN_STEP_PURE);
}

/* -- names ------------------------------------------------------------------------------------------------------ */

/* The operand that names the attribute: the function's second one, or the method's first. */
static uint32_t
name_operand(const kin_partitioner *p, const kin_step *s)
{
    const kin_step *method = kin_maker_of(p->t, args_of(p, s)[0]);
    return method != NULL && method->kind == KIN_STEP_BUILD_METHOD ? 1 : 2;
}

kin_ref
kin_partition_asked_name(const kin_partitioner *p, const kin_step *s)
{
    if (s->kind == KIN_STEP_GETATTR)
        return p->objects[s->ref].text;
    if (s->kind != KIN_STEP_CALL || !kin_step_does(s, KIN_BY_NAME | KIN_ASKS))
        return 0;
    uint32_t at = name_operand(p, s);
    const kin_val *name = at < s->nargs ? &p->t->vals.at[args_of(p, s)[at]] : NULL;
    return name != NULL && name->kind == KIN_VAL_CONST ? p->objects[name->key].text : 0;
}

/* -- memory of tensors ------------------------------------------------------------------------------------------ */

/* Does it create a list or an iterator from other objects? */
static bool
takes_in(const kin_step *s)
{
    return s->kind == KIN_STEP_CALL && kin_step_does(s, KIN_HOLDS) && kin_look_into(kin_step_effects(s), 2) == KIN_LOOK_ITEMS;
}

static bool shows_no_memory(const kin_partitioner *p, kin_vid vid);

static bool
all_show_no_memory(const kin_partitioner *p, const kin_step *s, uint32_t from)
{
    for (uint32_t a = from; a < s->nargs; a++)
        if (!shows_no_memory(p, args_of(p, s)[a]))
            return false;
    return true;
}

/* Is it impossible to read memory through the object itself, as through a memoryview? */
static bool
shows_no_memory(const kin_partitioner *p, kin_vid vid)
{
    const kin_step *maker = kin_maker_of(p->t, vid);
    if (vid == 0 || p->t->vals.at[vid].note != 0 || (maker != NULL && (kin_step_does(maker, KIN_MOVES) || kin_step_does(maker, KIN_VIEW))))
        return true;
    if (maker != NULL && (maker->kind == KIN_STEP_ITER || takes_in(maker)))
        return all_show_no_memory(p, maker, maker->kind == KIN_STEP_CALL);
    return (p->traits[vid] & (KIN_IS_KNOWN | KIN_IS_BUFFER)) == KIN_IS_KNOWN;
}

/* ... and through its contents? */
static bool
is_plain(const kin_partitioner *p, kin_vid vid)
{
    const kin_val *val = &p->t->vals.at[vid];
    return vid == 0 || (p->traits[vid] & KIN_RUNS_NO_CODE && shows_no_memory(p, vid)) || kin_partition_is_number(p->t, vid) ||
           (val->kind == KIN_VAL_CONST && p->traits[vid] & (KIN_IS_ATOM | KIN_IS_CLASS));
}

static bool
sees_memory_in(const kin_partitioner *p, const kin_step *s, uint32_t operand)
{
    kin_vid vid = args_of(p, s)[operand];
    switch (kin_look_into(kin_step_effects(s), operand)) {
    case KIN_LOOK_NOT: return false;
    case KIN_LOOK_ITEMS: return !shows_no_memory(p, vid);
    default: return !is_plain(p, vid);
    }
}

bool
kin_partition_finds_by_hash(const kin_partitioner *p, const kin_step *s)
{
    const kin_vid *args = args_of(p, s);
    return kin_step_does(s, KIN_HASHES) && s->nargs > 1 && (p->traits[args[0]] | p->traits[args[1]]) & KIN_IS_HASHED;
}

bool
kin_partition_sees_memory(const kin_partitioner *p, const kin_step *s)
{
    const kin_vid *args = args_of(p, s);
    kin_ref name = kin_partition_asked_name(p, s);
    if (name != 0)
        return (p->objects[name].is & KIN_IS_VERSION) != 0;
    if (s->kind == KIN_STEP_CHECK)
        return (s->imm == KIN_CHECK_TRUE || s->imm == KIN_CHECK_FALSE) && !shows_no_memory(p, args[0]);
    if (kin_step_does(s, KIN_MOVES) || kin_partition_finds_by_hash(p, s) || (s->out != 0 && kin_partition_is_number(p->t, s->out)))
        return false;
    for (uint32_t a = 0; a < s->nargs; a++)
        if (sees_memory_in(p, s, a))
            return true;
    return false;
}

/* -- dicts that deferred stores go into --------------------------------------------------------------------------- */

/* Is the value certainly neither a dict that existed before nor a view of one? */
static bool
is_no_dict(const kin_partitioner *p, kin_vid vid)
{
    const kin_val *val = &p->t->vals.at[vid];
    if (vid == 0 || val->note != 0)
        return true;
    if (val->kind == KIN_VAL_CONST)
        return (p->traits[vid] & (KIN_IS_ATOM | KIN_IS_CODE)) != 0;
    if (val->kind == KIN_VAL_STEP)
        return (kin_step_effects(&p->t->steps.at[val->step]) & (KIN_GIVES_NEW | KIN_GIVES_ATOM)) != 0;
    return (p->traits[vid] & (KIN_IS_KNOWN | KIN_IS_MAPPING)) == KIN_IS_KNOWN;
}

/* May the value be a dict of the program's own that a deferred store goes into, or something that looks into it? What was there before the
 * dict is neither, nor is a view of such a thing; who looks deeper is told apart by kin_partition_no_dicts. */
static bool
may_be_own(const kin_partitioner *p, kin_vid vid, int depth)
{
    const kin_val *val = &p->t->vals.at[vid];
    if (vid == 0 || val->note != 0 || val->kind == KIN_VAL_CONST)
        return false;
    if ((val->kind == KIN_VAL_SRC ? p->starts[val->epoch] : val->step) < p->into_own)
        return false;
    const kin_step *maker = kin_maker_of(p->t, vid);
    if (maker == NULL || depth > 8)
        return true;
    if (kin_step_does(maker, KIN_GIVES_ATOM))
        return false;
    bool views = kin_step_does(maker, KIN_HOLDS) && (maker->kind != KIN_STEP_CALL || maker->flags & KIN_STEP_PURE);
    for (uint32_t a = 0; views && a < maker->nargs; a++)
        views = !may_be_own(p, args_of(p, maker)[a], depth + 1);
    return !views;
}

bool
kin_partition_no_dicts(const kin_partitioner *p, const kin_step *s)
{
    for (uint32_t a = 0; a < s->nargs; a++) {
        kin_vid vid = args_of(p, s)[a];
        if (a > 0 && kin_look_into(kin_step_effects(s), a) == KIN_LOOK_NOT)
            continue;
        if (p->into_dict && !is_no_dict(p, vid)) /* if none does, attributes are in places that nothing else leads to */
            return false;
        if (p->into_own == 0)
            continue;
        bool nested = kin_step_does(s, KIN_NESTED);
        if (nested ? p->t->vals.at[vid].kind != KIN_VAL_CONST && !kin_partition_is_number(p->t, vid) : may_be_own(p, vid, 0) && !is_no_dict(p, vid))
            return false;
    }
    return true;
}
