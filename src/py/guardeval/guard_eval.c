/* Evaluates the guards of an epoch: ambient state, then the fast array, then the explicit program.
 *
 * Nothing that could free a value runs between reading it and taking a reference to it: the calls of CALL_IS facts
 * come first, and everything after them only reads memory.
 */
#include "py/guardeval/guard_priv.h"

#include "py/aten/modes.h"

static PyObject *
value_of(const kin_entry *v, uint32_t epoch, kin_vid vid, PyObject *const *at, PyObject *const *slots)
{
    if (vid == 0)
        return NULL;
    const kin_val *val = &v->trace.vals.at[vid];
    if (val->kind == KIN_VAL_CONST)
        return kin_refs_get(&v->refs, val->key);
    return val->kind == KIN_VAL_SRC && val->epoch == epoch ? at[vid] : slots[vid];
}

static bool
fail_at(kin_guard_miss *miss, uint32_t fact, kin_vid vid)
{
    if (miss)
        *miss = (kin_guard_miss){.fact = fact, .vid = vid};
    return false;
}

bool
kin_guard_run_ops(const kin_entry *v, uint32_t epoch, const kin_guard_op *ops, uint32_t nops, PyObject **at,
                  PyObject **slots, kin_guard_miss *miss)
{
    for (uint32_t i = 0; i < nops; i++) {
        const kin_guard_op *op = &ops[i];
        const kin_val *val = &v->trace.vals.at[op->vid];
        if (op->kind == KIN_GOP_FACT) {
            const kin_fact *f = &v->trace.facts.at[op->fact];
            PyObject *obj = value_of(v, epoch, f->vid, at, slots);
            if (!kin_guard_holds(&v->refs, f, obj, value_of(v, epoch, f->vid2, at, slots)))
                return fail_at(miss, op->fact, op->vid);
            continue;
        }
        at[op->vid] = op->kind == KIN_GOP_ROOT ? slots[op->vid]
                                               : kin_guard_read(&v->refs, val, value_of(v, epoch, val->parent, at, slots));
        if (at[op->vid] == NULL)
            return fail_at(miss, UINT32_MAX, op->vid);
    }
    return true;
}

void
kin_guard_each_miss(kin_entry *v, PyObject **slots, void (*tell)(const kin_fact *fact, kin_vid vid, PyObject *obj, void *arg), void *arg)
{
    struct kin_guard_prog *p = v->guards;
    const kin_guard_epoch *s = p != NULL && p->nepochs > 0 ? &p->epochs[0] : NULL;
    for (uint32_t i = 0; s != NULL && i < s->ops.len; i++) {
        const kin_guard_op *op = &s->ops.at[i];
        const kin_val *val = &v->trace.vals.at[op->vid];
        if (op->kind != KIN_GOP_FACT) {
            p->cur[op->vid] = op->kind == KIN_GOP_ROOT ? slots[op->vid]
                                                       : kin_guard_read(&v->refs, val, value_of(v, 0, val->parent, p->cur, slots));
            if (p->cur[op->vid] == NULL)
                return;
            tell(NULL, op->vid, p->cur[op->vid], arg);
            continue;
        }
        const kin_fact *f = &v->trace.facts.at[op->fact];
        PyObject *obj = value_of(v, 0, f->vid, p->cur, slots);
        if (kin_guard_holds(&v->refs, f, obj, value_of(v, 0, f->vid2, p->cur, slots)))
            continue;
        if (f->kind != KIN_FACT_T_META && f->kind != KIN_FACT_EQ && f->kind != KIN_FACT_T_DATA)
            return; /* what is read behind it may not be what it takes it for */
        tell(f, f->vid, obj, arg);
    }
}

static bool
test_ambient(const kin_entry *v, uint32_t epoch, const kin_guard_epoch *s, kin_guard_miss *miss)
{
    if (epoch != 0 && kin_foreign_modes() != s->modes) /* what was opaque has entered one, or left it; dispatch asks at entry */
        return fail_at(miss, UINT32_MAX, 0);
    for (uint32_t i = 0; i < s->calls.len; i++)
        if (!kin_guard_holds(&v->refs, &v->trace.facts.at[s->calls.at[i]], NULL, NULL))
            return fail_at(miss, s->calls.at[i], 0);
    return true;
}

static void
fill_slots(const kin_guard_epoch *s, PyObject *const *at, PyObject **slots)
{
    for (uint32_t i = 0; i < s->keep.len; i++)
        slots[s->keep.at[i]] = Py_NewRef(at[s->keep.at[i]]);
}

bool
kin_guard_eval(kin_entry *v, uint32_t epoch, PyObject **slots, kin_guard_miss *miss)
{
    struct kin_guard_prog *p = v->guards;
    if (p == NULL || epoch >= p->nepochs)
        return fail_at(miss, UINT32_MAX, 0);
    const kin_guard_epoch *s = &p->epochs[epoch];
    if (!test_ambient(v, epoch, s, miss))
        return false;
    bool armable = s->ops.len != 0;
    if (armable && kin_fast_eval(v, epoch, slots) == KIN_FAST_PASS) {
        (*(epoch == 0 ? &p->stats.fast_hits : &p->stats.later_fast))++;
        return true;
    }
    if (!kin_guard_run_ops(v, epoch, s->ops.at, s->ops.len, p->cur, slots, miss))
        return false;
    (*(epoch == 0 ? &p->stats.explicit_hits : &p->stats.later_explicit))++;
    if (armable) {
        kin_fast_arm(v, epoch, slots);
        p->stats.rearms += epoch == 0;
    }
    fill_slots(s, p->cur, slots);
    return true;
}

static size_t
count_fast(const kin_guard_fast *f)
{
    return sizeof *f + (f->roots.cap + f->known.cap + f->kept.cap) * sizeof *f->roots.at + f->words.cap * sizeof *f->words.at +
           f->sites.cap * sizeof *f->sites.at + f->ops.cap * sizeof *f->ops.at + f->loaded.cap * sizeof *f->loaded.at;
}

static size_t
count_bytes(const struct kin_guard_prog *p)
{
    size_t bytes = sizeof *p + p->nvals * (sizeof *p->cur + 1 + KIN_SITE__COUNT) + p->nepochs * sizeof *p->epochs;
    for (uint32_t i = 0; i < p->nepochs; i++) {
        const kin_guard_epoch *s = &p->epochs[i];
        bytes += s->ops.cap * sizeof *s->ops.at + s->calls.cap * sizeof *s->calls.at + s->keep.cap * sizeof *s->keep.at;
        for (uint32_t k = 0; k < s->nsets; k++)
            bytes += s->fast[k] != NULL ? count_fast(s->fast[k]) : 0;
    }
    return bytes;
}

void
kin_guard_get_stats(const kin_entry *v, kin_guard_stats *out)
{
    *out = (kin_guard_stats){0};
    if (v->guards == NULL)
        return;
    *out = v->guards->stats;
    out->bytes = count_bytes(v->guards);
    for (uint32_t i = 0; i < v->guards->nepochs; i++)
        for (uint32_t k = 0; k < v->guards->epochs[i].nsets; k++) {
            const kin_guard_fast *f = v->guards->epochs[i].fast[k];
            if (f == NULL || !f->armed)
                continue;
            *(i == 0 ? &out->words : &out->later_words) = f->words.len + (i == 0 ? 0 : out->later_words);
            *(i == 0 ? &out->explicit_ops : &out->later_ops) = f->ops.len + (i == 0 ? 0 : out->later_ops);
        }
}
