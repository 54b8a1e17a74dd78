/* The fast arrays of an epoch: trying them, choosing which one to rebuild, and giving up words that always change.
 *
 * An array belongs to one set of root objects (if several modules share an entry, each has its own). A word
 * that differs proves nothing yet: the explicit program decides, and if it passes, the array is rebuilt.
 * A word that differs in call after call costs more than it saves, so it is given up.
 */
#include "py/guardeval/guard_arm.h"

#include "core/tier/tier.h"

/* ---- trying --------------------------------------------------------------------------------------------------- */

static bool
match_roots(const kin_guard_fast *f, PyObject *const *slots)
{
    for (uint32_t i = 0; i < f->roots.len; i++)
        if (slots[f->roots.at[i].vid] != f->roots.at[i].obj)
            return false;
    return true;
}

/* Number of the first word that differs. Words are ordered from the root down: none is read before the words that
 * keep its memory alive have matched. */
static uint32_t
first_difference(const kin_guard_fast *f)
{
    const kin_word *w = f->words.at;
    uint32_t n = f->words.len;
    for (uint32_t i = 0; i < n; i++)
        if (*w[i].addr != w[i].word)
            return i;
    return n;
}

/* Runs what has no words and fills slots. */
static bool
finish(kin_entry *v, uint32_t epoch, const kin_guard_fast *f, PyObject **slots)
{
    PyObject **cur = v->guards->cur;
    for (uint32_t i = 0; i < f->known.len; i++)
        cur[f->known.at[i].vid] = f->known.at[i].obj;
    if (!kin_guard_run_ops(v, epoch, f->ops.at, f->ops.len, cur, slots, NULL))
        return false; /* the explicit program says which fact it is */
    for (uint32_t i = 0; i < f->kept.len; i++)
        slots[f->kept.at[i].vid] = Py_NewRef(f->kept.at[i].obj);
    for (uint32_t i = 0; i < f->loaded.len; i++)
        slots[f->loaded.at[i]] = Py_NewRef(cur[f->loaded.at[i]]);
    return true;
}

kin_fast_result
kin_fast_eval(kin_entry *v, uint32_t epoch, PyObject **slots)
{
    kin_guard_epoch *s = &v->guards->epochs[epoch];
    s->evals++;
    s->changed = NULL;
    for (uint32_t i = 0; i < s->nsets; i++) {
        kin_guard_fast *f = s->fast[i];
        if (f == NULL || !f->armed || !match_roots(f, slots))
            continue;
        if (first_difference(f) < f->words.len) {
            s->changed = f;
            return KIN_FAST_UNKNOWN;
        }
        if (!finish(v, epoch, f, slots))
            return KIN_FAST_UNKNOWN;
        f->last_used = s->evals;
        return KIN_FAST_PASS;
    }
    return KIN_FAST_UNKNOWN;
}

/* ---- giving up ------------------------------------------------------------------------------------------------ */

static void
drop_site(struct kin_guard_prog *p, kin_guard_epoch *s, uint32_t site)
{
    p->drops[site / KIN_SITE__COUNT] |= (uint8_t)(1u << site % KIN_SITE__COUNT);
    for (uint32_t i = 0; i < s->nsets; i++)
        if (s->fast[i])
            s->fast[i]->armed = false;
}

/* `weight` strikes for the site; true when that gave it up. */
static bool
strike_site(struct kin_guard_prog *p, kin_guard_epoch *s, uint32_t site, bool close, unsigned weight)
{
    p->strikes[site] = (uint8_t)(close ? p->strikes[site] + weight : 1);
    if (p->strikes[site] < KIN_TIER_WORD_CHANGES)
        return false;
    p->strikes[site] = 0;
    drop_site(p, s, site);
    return true;
}

static bool
note_change(kin_guard_epoch *s)
{
    bool close = s->evals - s->last_change <= KIN_TIER_WORD_CLOSE;
    s->last_change = s->evals;
    return close;
}

static bool
is_attr_of(const kin_trace *t, const kin_val *val, kin_vid obj)
{
    if (val->kind != KIN_VAL_SRC)
        return false;
    if (val->access == KIN_ACCESS_IATTR || val->access == KIN_ACCESS_DICT_ITEM)
        if (val->parent == obj)
            return true;
    return val->access == KIN_ACCESS_DICT_ITEM && t->vals.at[val->parent].access == KIN_ACCESS_INSTDICT &&
           t->vals.at[val->parent].parent == obj;
}

/* obj gets a new attribute or item `name` (0: unknown) on each call. */
static void
expect_store(const kin_trace *t, struct kin_guard_prog *p, kin_vid obj, kin_ref name)
{
    p->drops[obj] |= 1u << KIN_SITE_SHAPE | 1u << KIN_SITE_IDICT;
    for (kin_vid i = 1; i < t->vals.len; i++) {
        const kin_val *val = &t->vals.at[i];
        if (val->kind == KIN_VAL_SRC && val->access == KIN_ACCESS_INSTDICT && val->parent == obj)
            p->drops[i] |= 1u << KIN_SITE_SHAPE;
        if (name != 0 && val->key == name && is_attr_of(t, val, obj))
            p->drops[i] |= 1u << KIN_SITE_LOC;
    }
}

/* The tuple of *args and the dict of **kwargs are new on each call. */
static void
expect_new_roots(const kin_entry *v)
{
    if (v->func == NULL || !PyFunction_Check(v->func))
        return;
    const PyCodeObject *code = (const PyCodeObject *)PyFunction_GET_CODE(v->func);
    uint32_t first = (uint32_t)(code->co_argcount + code->co_kwonlyargcount);
    uint32_t end = first + ((code->co_flags & CO_VARARGS) != 0) + ((code->co_flags & CO_VARKEYWORDS) != 0);
    for (kin_vid i = 1; i < v->trace.vals.len; i++) {
        const kin_val *val = &v->trace.vals.at[i];
        if (val->kind == KIN_VAL_SRC && val->access == KIN_ACCESS_LOCAL && val->key >= first && val->key < end)
            v->guards->drops[i] |= 1u << KIN_SITE_LOC;
    }
}

void
kin_fast_expect_writes(kin_entry *v)
{
    const kin_trace *t = &v->trace;
    expect_new_roots(v);
    for (uint32_t i = 0; i < t->steps.len; i++) {
        const kin_step *s = &t->steps.at[i];
        kin_step_kind kind = (kin_step_kind)s->kind;
        bool named = kind == KIN_STEP_SETATTR || kind == KIN_STEP_DELATTR || kind == KIN_STEP_GLOBAL_SET;
        bool stores = named || kind == KIN_STEP_SET_SUBSCR || kind == KIN_STEP_DEL_SUBSCR ||
                      (s->flags & KIN_STEP_MUTATES) != 0;
        if (!stores || s->nargs == 0 || s->args >= t->vids.len)
            continue;
        kin_vid obj = t->vids.at[s->args];
        if (obj < t->vals.len && (t->vals.at[obj].kind == KIN_VAL_SRC || t->vals.at[obj].kind == KIN_VAL_CONST))
            expect_store(t, v->guards, obj, named ? s->ref : 0);
    }
}

/* ---- arming --------------------------------------------------------------------------------------------------- */

static void
clear_fast(kin_guard_fast *f)
{
    f->armed = false;
    f->roots.len = f->words.len = f->sites.len = f->ops.len = f->known.len = f->kept.len = f->loaded.len = 0;
}

void
kin_fast_free(kin_guard_fast *f)
{
    if (f == NULL)
        return;
    kin_vec_deinit(&f->roots);
    kin_vec_deinit(&f->words);
    kin_vec_deinit(&f->sites);
    kin_vec_deinit(&f->ops);
    kin_vec_deinit(&f->known);
    kin_vec_deinit(&f->kept);
    kin_vec_deinit(&f->loaded);
    free(f);
}

/* Root objects that are new on each call never match again: their sets only push one another out. */
static void
strike_roots(struct kin_guard_prog *p, kin_guard_epoch *s, const kin_guard_fast *f, PyObject *const *slots)
{
    bool close = note_change(s);
    for (uint32_t i = 0; i < f->roots.len; i++)
        if (slots[f->roots.at[i].vid] != f->roots.at[i].obj)
            strike_site(p, s, f->roots.at[i].vid * KIN_SITE__COUNT + KIN_SITE_LOC, close, 1);
}

static kin_guard_fast *
choose_fast(struct kin_guard_prog *p, kin_guard_epoch *s, PyObject *const *slots)
{
    uint32_t oldest = 0;
    if (s->changed)
        return s->changed;
    for (uint32_t i = 0; i < s->nsets; i++) {
        if (s->fast[i] == NULL)
            return s->fast[i] = calloc(1, sizeof **s->fast);
        if (!s->fast[i]->armed)
            return s->fast[i];
        if (match_roots(s->fast[i], slots))
            return s->fast[i];
        if (s->fast[i]->last_used < s->fast[oldest]->last_used)
            oldest = i;
    }
    strike_roots(p, s, s->fast[oldest], slots);
    return s->fast[oldest];
}

/* Strikes the sites of all words that lie where they lay and differ. (A word that is no longer asked for belongs to
 * something that moved, and the word that says so is struck.) What differs at once after it was noted is most likely
 * changed by the call itself, and will be again. True when something was given up. */
static bool
strike_changes(const kin_arm *a, const kin_guard_fast *old)
{
    kin_guard_epoch *s = &a->p->epochs[a->epoch];
    bool close = note_change(s), gave_up = false;
    unsigned weight = s->evals - old->armed_at == 1 ? 2 : 1;
    for (uint32_t i = 0; i < old->words.len; i++) {
        const kin_word *now = kin_arm_find(a, old->words.at[i].addr);
        if (now != NULL && now->word != old->words.at[i].word)
            gave_up |= strike_site(a->p, s, old->sites.at[i], close, weight);
    }
    return gave_up;
}

static bool
make_words(kin_entry *v, uint32_t epoch, PyObject *const *slots, kin_guard_fast *f, const kin_guard_fast *old, bool *again)
{
    kin_arm arm;
    clear_fast(f);
    bool made = kin_arm_init(&arm, v, epoch, slots, f) && kin_arm_run(&arm);
    *again = made && old != NULL && strike_changes(&arm, old);
    kin_arm_deinit(&arm);
    return made;
}

void
kin_fast_arm(kin_entry *v, uint32_t epoch, PyObject **slots)
{
    kin_guard_epoch *s = &v->guards->epochs[epoch];
    kin_guard_fast *f = choose_fast(v->guards, s, slots), old = {0};
    bool again, changed = f != NULL && f == s->changed;
    if (f == NULL)
        return;
    if (changed) { /* the words as they were, to see which differ */
        old = *f;
        memset(&f->words, 0, sizeof f->words);
        memset(&f->sites, 0, sizeof f->sites);
    }
    bool made = make_words(v, epoch, slots, f, changed ? &old : NULL, &again);
    if (made && again)
        made = make_words(v, epoch, slots, f, NULL, &again);
    if (changed) {
        kin_vec_deinit(&old.words);
        kin_vec_deinit(&old.sites);
    }
    if (!made)
        return;
    f->last_used = f->armed_at = s->evals;
    f->armed = true;
}
