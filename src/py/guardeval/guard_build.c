/* Builds the explicit guard programs of a trace.
 *
 * All SRC values of an epoch are loaded, used or not: that a path could be read is itself something the recording
 * relied on. A fact follows the load of the value that it tests; a fact about two values follows the later one.
 */
#include "py/guardeval/guard_priv.h"

/* Facts by the value they wait for. */
typedef struct {
    uint32_t *first; /* by vid: head of a list of facts, UINT32_MAX = none */
    uint32_t *next;  /* by fact */
} fact_lists;

static kin_vid
last_vid(const kin_fact *f)
{
    return f->vid2 > f->vid ? f->vid2 : f->vid;
}

static void
link_facts(const kin_trace *t, fact_lists *lists)
{
    for (uint32_t i = 0; i < t->vals.len; i++)
        lists->first[i] = UINT32_MAX;
    for (uint32_t i = t->facts.len; i-- > 0;) {
        kin_vid last = last_vid(&t->facts.at[i]);
        lists->next[i] = lists->first[last];
        lists->first[last] = i;
    }
}

static kin_status
add_value(const kin_trace *t, kin_vid vid, kin_guard_epoch *epochs)
{
    const kin_val *val = &t->vals.at[vid];
    if (vid == 0 || val->kind != KIN_VAL_SRC)
        return KIN_OK;
    bool root = val->access == KIN_ACCESS_LOCAL || val->access == KIN_ACCESS_FUNC;
    if (!root && (val->parent == 0 || val->parent >= vid))
        return KIN_BUG; /* a parent is always an earlier value */
    kin_guard_op op = {.kind = root ? KIN_GOP_ROOT : KIN_GOP_LOAD, .vid = vid};
    return kin_vec_push(&epochs[val->epoch].ops, op);
}

static kin_status
add_facts(const kin_trace *t, const fact_lists *lists, kin_vid vid, kin_guard_epoch *epochs)
{
    for (uint32_t i = lists->first[vid]; i != UINT32_MAX; i = lists->next[i]) {
        kin_guard_epoch *out = &epochs[t->facts.at[i].epoch];
        if (t->facts.at[i].kind == KIN_FACT_CALL_IS) {
            KIN_TRY(kin_vec_push(&out->calls, i));
            continue;
        }
        kin_guard_op op = {.kind = KIN_GOP_FACT, .vid = t->facts.at[i].vid, .fact = i};
        KIN_TRY(kin_vec_push(&out->ops, op));
    }
    return KIN_OK;
}

/* ---- which values leave the guard ----------------------------------------------------------------------------- */

static void
mark(uint8_t *used, const kin_trace *t, kin_vid vid)
{
    if (vid < t->vals.len)
        used[vid] = 1;
}

static void
mark_range(uint8_t *used, const kin_trace *t, uint32_t first, uint32_t n)
{
    for (uint32_t i = first; i < first + n && i < t->vids.len; i++)
        mark(used, t, t->vids.at[i]);
}

static bool
is_older(const kin_trace *t, kin_vid vid, uint32_t epoch)
{
    return vid < t->vals.len && t->vals.at[vid].kind == KIN_VAL_SRC && t->vals.at[vid].epoch != epoch;
}

static void
mark_used(const kin_trace *t, uint8_t *used)
{
    for (uint32_t i = 0; i < t->steps.len; i++)
        mark_range(used, t, t->steps.at[i].args, t->steps.at[i].nargs);
    for (uint32_t i = 1; i < t->snaps.len; i++) {
        const kin_snap *s = &t->snaps.at[i];
        mark_range(used, t, s->vals, (uint32_t)s->nlocals + s->nstack);
        mark(used, t, s->func);
        mark(used, t, s->extra);
        mark(used, t, s->exc);
        mark(used, t, s->names);
    }
    for (uint32_t i = 1; i < t->vals.len; i++)
        if (t->vals.at[i].kind == KIN_VAL_SRC && is_older(t, t->vals.at[i].parent, t->vals.at[i].epoch))
            mark(used, t, t->vals.at[i].parent);
    for (uint32_t i = 0; i < t->facts.len; i++) {
        const kin_fact *f = &t->facts.at[i];
        if (is_older(t, f->vid, f->epoch))
            mark(used, t, f->vid);
        if (is_older(t, f->vid2, f->epoch))
            mark(used, t, f->vid2);
    }
}

static kin_status
list_kept(const kin_trace *t, uint32_t epoch, const uint8_t *used, kin_guard_epoch *out)
{
    for (uint32_t i = 0; i < out->ops.len; i++) {
        kin_vid vid = out->ops.at[i].vid;
        if (out->ops.at[i].kind == KIN_GOP_LOAD && used[vid] && t->vals.at[vid].epoch == epoch)
            KIN_TRY(kin_vec_push(&out->keep, vid));
    }
    return KIN_OK;
}

/* ---- layouts -------------------------------------------------------------------------------------------------- */

/* A byte offset means nothing without the exact type of the object. */
static bool
members_are_typed(const kin_trace *t)
{
    uint8_t *typed = calloc(t->vals.len + 1, 1);
    bool all = typed != NULL;
    for (uint32_t i = 0; all && i < t->facts.len; i++) {
        kin_fact_kind kind = (kin_fact_kind)t->facts.at[i].kind;
        if (kind == KIN_FACT_TYPE || kind == KIN_FACT_TYPE_VERSION || kind == KIN_FACT_ID || kind == KIN_FACT_EQ)
            typed[t->facts.at[i].vid] = 1;
    }
    for (uint32_t i = 1; all && i < t->vals.len; i++) {
        const kin_val *val = &t->vals.at[i];
        if (val->kind == KIN_VAL_SRC && val->access == KIN_ACCESS_MEMBER && t->vals.at[val->parent].kind == KIN_VAL_SRC)
            all = typed[val->parent];
    }
    free(typed);
    return all;
}

/* ---- the whole program ---------------------------------------------------------------------------------------- */

static bool
is_well_formed(const kin_trace *t)
{
    for (uint32_t i = 1; i < t->vals.len; i++)
        if (t->vals.at[i].kind == KIN_VAL_SRC && (t->vals.at[i].epoch >= t->nepochs || t->vals.at[i].parent >= i))
            return false;
    for (uint32_t i = 0; i < t->facts.len; i++) {
        const kin_fact *f = &t->facts.at[i];
        if (f->vid >= t->vals.len || f->vid2 >= t->vals.len || f->epoch >= t->nepochs)
            return false;
    }
    return true;
}

/* Each epoch gets its values in their order, and facts behind the values: one pass over all of them. */
static kin_status
fill_epochs(const kin_trace *t, const fact_lists *lists, struct kin_guard_prog *p)
{
    for (kin_vid vid = 0; vid < t->vals.len; vid++) {
        KIN_TRY(add_value(t, vid, p->epochs));
        KIN_TRY(add_facts(t, lists, vid, p->epochs));
    }
    return KIN_OK;
}

static kin_status
build_epochs(const kin_trace *t, struct kin_guard_prog *p)
{
    uint32_t nvals = t->vals.len;
    uint8_t *used = calloc(nvals + 1, 1);
    fact_lists lists = {.first = malloc((nvals + 1) * sizeof(uint32_t)),
                        .next = malloc((t->facts.len + 1) * sizeof(uint32_t))};
    kin_status status = KIN_NOMEM;
    if (used && lists.first && lists.next) {
        mark_used(t, used);
        link_facts(t, &lists);
        status = fill_epochs(t, &lists, p);
        for (uint32_t epoch = 0; epoch < p->nepochs && status == KIN_OK; epoch++)
            status = list_kept(t, epoch, used, &p->epochs[epoch]);
    }
    free(used);
    free(lists.first);
    free(lists.next);
    return status;
}

static struct kin_guard_prog *
new_program(const kin_trace *t)
{
    struct kin_guard_prog *p = calloc(1, sizeof *p);
    if (p == NULL)
        return NULL;
    p->nvals = t->vals.len;
    p->epochs = calloc(t->nepochs + 1, sizeof *p->epochs);
    p->cur = calloc(p->nvals + 1, sizeof *p->cur);
    p->drops = calloc(p->nvals + 1, 1);
    p->strikes = calloc((size_t)(p->nvals + 1) * KIN_SITE__COUNT, 1);
    if (p->epochs)
        p->nepochs = t->nepochs;
    for (uint32_t i = 0; i < p->nepochs; i++)
        p->epochs[i].nsets = i == 0 ? KIN_FAST_SETS : KIN_FAST_LATER;
    for (uint32_t i = 0; p->epochs && i < t->steps.len; i++)
        if (t->steps.at[i].kind == KIN_STEP_EPOCH && t->steps.at[i].num < p->nepochs)
            p->epochs[t->steps.at[i].num].modes = t->steps.at[i].imm != 0;
    if (!p->epochs || !p->cur || !p->drops || !p->strikes) {
        kin_guard_free(p);
        return NULL;
    }
    return p;
}

kin_status
kin_guard_build(kin_entry *v)
{
    const kin_trace *t = &v->trace;
    if (!is_well_formed(t))
        return KIN_BUG;
    struct kin_guard_prog *p = new_program(t);
    if (p == NULL)
        return KIN_NOMEM;
    kin_status status = members_are_typed(t) ? build_epochs(t, p) : KIN_BUG;
    if (status != KIN_OK) {
        kin_guard_free(p);
        return status;
    }
    kin_entry_set_guards(v, p, kin_guard_free);
    kin_fast_expect_writes(v);
    return KIN_OK;
}

void
kin_guard_free(struct kin_guard_prog *p)
{
    if (p == NULL)
        return;
    for (uint32_t i = 0; i < p->nepochs; i++) {
        kin_vec_deinit(&p->epochs[i].ops);
        kin_vec_deinit(&p->epochs[i].calls);
        kin_vec_deinit(&p->epochs[i].keep);
        for (uint32_t k = 0; k < p->epochs[i].nsets; k++)
            kin_fast_free(p->epochs[i].fast[k]);
    }
    free(p->epochs);
    free(p->cur);
    free(p->drops);
    free(p->strikes);
    free(p);
}
