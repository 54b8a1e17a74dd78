/* Decides which steps need not run in sequence: those that build objects that no running step uses, and those that change such objects.
 *
 * A sunk step runs late (at an exit) or never, so it must not depend on anything that may change in between. A step
 * that only stores its operands (a new tuple, list.append) can always be sunk. A step that *reads* an object
 * (tuple(list), list.extend(other)) can be sunk only if every object it reads is sunk as well (then the exit repeats
 * its history in order) or can never change. Operators flagged PURE only take exact builtin immutables.
 * Objects that guards of later epochs read are never sunk, nor are those that hold objects whose death runs Python code: what a list
 * holds dies from its end, and not as the slots of its items are released.
 */
#include "core/trace/effects.h"
#include "core/trace/trace_priv.h"

typedef struct {
    uint32_t step, next; /* next: link number + 1 */
} link;

typedef struct {
    kin_trace *t;
    uint32_t *maker; /* vid -> step + 1 */
    uint32_t *users; /* vid -> link + 1: steps that must run if the object exists for real */
    KIN_VEC(link) links;
    KIN_VEC(uint32_t) todo;
    kin_status status;
} sink;

/* The step runs in sequence. Steps that could be sunk start as SUNK. */
static void
keep(sink *k, uint32_t i)
{
    kin_step *s = &k->t->steps.at[i];
    if (!(s->flags & KIN_STEP_SUNK))
        return;
    s->flags &= (uint16_t)~KIN_STEP_SUNK;
    if (kin_vec_push(&k->todo, i) != KIN_OK)
        k->status = KIN_NOMEM;
}

static bool
could_sink(const kin_step *s)
{
    const unsigned forced = KIN_STEP_TORCH | KIN_STEP_OPAQUE | KIN_STEP_EFFECT | KIN_STEP_BREAK | KIN_STEP_RAISES | KIN_STEP_MORTAL;
    if (s->flags & forced)
        return false;
    return (s->flags & KIN_STEP_PURE) != 0 || ((s->flags & KIN_STEP_MUTATES) != 0 && s->nargs > 0);
}

static void
use(sink *k, kin_vid vid, uint32_t step)
{
    if (kin_vec_push(&k->links, ((link){step, k->users[vid]})) != KIN_OK)
        k->status = KIN_NOMEM;
    else
        k->users[vid] = k->links.len;
}

static bool
reads(const kin_step *s, uint32_t operand)
{
    bool in_place = s->kind == KIN_STEP_BINARY && s->flags & KIN_STEP_MUTATES; /* list += other */
    if (s->kind == KIN_STEP_CALL && kin_step_does(s, KIN_MOVES)) /* map(f, list), functools.partial(f, ...) */
        return kin_look_into(s->effects, operand) != KIN_LOOK_NOT;
    return in_place ? operand > 0 : kin_kind_reads_late((kin_step_kind)s->kind, operand);
}

/* Notes what would force the sinkable step i to run; false if something already does. */
static bool
watch_operands(sink *k, uint32_t i)
{
    const kin_step *s = &k->t->steps.at[i];
    const kin_vid *args = k->t->vids.at + s->args;
    for (uint32_t a = 0; a < s->nargs; a++) {
        bool reads_it = args[a] != 0 && reads(s, a);
        bool changes_it = a == 0 && (s->flags & KIN_STEP_MUTATES) != 0;
        if (!reads_it && !changes_it)
            continue;
        if (k->maker[args[a]] == 0) {
            if (changes_it || k->t->vals.at[args[a]].kind != KIN_VAL_CONST)
                return false;
            continue; /* constants that are read are immutable or guarded */
        }
        if (changes_it || !kin_step_does(&k->t->steps.at[k->maker[args[a]] - 1], KIN_GIVES_FIXED))
            use(k, args[a], i);
    }
    return true;
}

static void
start(sink *k)
{
    kin_trace *t = k->t;
    for (uint32_t i = 0; i < t->steps.len; i++) {
        t->steps.at[i].flags |= KIN_STEP_SUNK;
        if (t->steps.at[i].out)
            k->maker[t->steps.at[i].out] = i + 1;
    }
    for (uint32_t i = 0; i < t->steps.len; i++)
        if (!could_sink(&t->steps.at[i]) || !watch_operands(k, i))
            keep(k, i);
}

static void
keep_value(sink *k, kin_vid vid)
{
    if (vid != 0 && k->maker[vid] != 0)
        keep(k, k->maker[vid] - 1);
}

/* Guards of later epochs read live objects, so the subject of a fact and the start of a path must exist. */
static void
keep_guarded(sink *k)
{
    const kin_trace *t = k->t;
    for (kin_vid v = 1; v < t->vals.len; v++)
        if (t->vals.at[v].kind == KIN_VAL_SRC)
            keep_value(k, t->vals.at[v].parent);
    for (uint32_t i = 0; i < t->facts.len; i++) {
        keep_value(k, t->facts.at[i].vid);
        keep_value(k, t->facts.at[i].vid2);
    }
}

static void
spread(sink *k)
{
    while (k->todo.len > 0 && k->status == KIN_OK) {
        const kin_step *s = &k->t->steps.at[k->todo.at[--k->todo.len]];
        for (uint32_t a = 0; a < s->nargs; a++) {
            uint32_t maker = k->maker[k->t->vids.at[s->args + a]];
            if (maker)
                keep(k, maker - 1);
        }
        for (uint32_t l = s->out ? k->users[s->out] : 0; l != 0; l = k->links.at[l - 1].next)
            keep(k, k->links.at[l - 1].step);
    }
}

kin_status
kin_trace_sink(kin_trace *t)
{
    sink k = {.t = t};
    k.maker = calloc(t->vals.len, sizeof *k.maker);
    k.users = calloc(t->vals.len, sizeof *k.users);
    if (k.maker == NULL || k.users == NULL)
        k.status = KIN_NOMEM;
    else {
        start(&k);
        keep_guarded(&k);
        spread(&k);
    }
    free(k.maker);
    free(k.users);
    kin_vec_deinit(&k.links);
    kin_vec_deinit(&k.todo);
    return k.status;
}
