/* Builds sunk objects when an exit or a frame needs them: walks the executed path backwards to find the sunk steps
 * they depend on, then runs those in program order. One object per vid, so sharing is as it was recorded.
 */
#include "py/replay/replay_priv.h"

typedef struct {
    uint8_t *wanted; /* by vid; NULL: nothing is missing */
    uint8_t *chosen; /* by step */
    kin_path path;
} plan;

static bool
is_missing(const kin_run *r, kin_vid vid)
{
    const kin_val *val = &r->t->vals.at[vid];
    return vid != 0 && r->slots[vid] == NULL && val->kind == KIN_VAL_STEP &&
           (r->t->steps.at[val->step].flags & KIN_STEP_SUNK) != 0;
}

static kin_status
want(const kin_run *r, plan *p, kin_vid vid)
{
    if (!is_missing(r, vid))
        return KIN_OK;
    if (p->wanted == NULL) {
        p->wanted = calloc(r->t->vals.len, 1);
        p->chosen = calloc(r->t->steps.len, 1);
        if (p->wanted == NULL || p->chosen == NULL)
            return KIN_NOMEM;
    }
    p->wanted[vid] = 1;
    return KIN_OK;
}

static kin_status
want_snapshot(const kin_run *r, plan *p, uint32_t snap, kin_fill fill)
{
    const kin_trace *t = r->t;
    for (; snap != 0; snap = t->snaps.at[snap].parent) {
        const kin_snap *s = &t->snaps.at[snap];
        uint32_t n = fill == KIN_FILL_NOTHING ? 0 : fill == KIN_FILL_LOCALS ? s->nlocals : s->nlocals + (uint32_t)s->nstack;
        KIN_TRY(want(r, p, s->func));
        if (fill == KIN_FILL_ALL)
            KIN_TRY(want(r, p, s->extra));
        for (uint32_t i = 0; i < n; i++)
            KIN_TRY(want(r, p, t->vids.at[s->vals + i]));
    }
    return KIN_OK;
}

/* Chooses the step if a wanted object is made or changed by it; true when that made more objects wanted. */
static bool
choose(const kin_run *r, plan *p, uint32_t i)
{
    const kin_step *s = &r->t->steps.at[i];
    const kin_vid *args = r->t->vids.at + s->args;
    if (!(s->flags & KIN_STEP_SUNK) || p->chosen[i])
        return false;
    bool makes = s->out != 0 && p->wanted[s->out];
    bool changes = (s->flags & KIN_STEP_MUTATES) && s->nargs > 0 && p->wanted[args[0]];
    if (!makes && !changes)
        return false;
    p->chosen[i] = 1;
    bool more = false;
    for (uint32_t a = 0; a < s->nargs; a++)
        if (is_missing(r, args[a]) && !p->wanted[args[a]]) {
            p->wanted[args[a]] = 1;
            more = true;
        }
    return more;
}

static void
choose_all(const kin_run *r, plan *p, uint32_t upto)
{
    bool more = true;
    while (more) { /* an argument found late may have changes behind the step that uses it */
        more = false;
        for (uint32_t k = p->path.len; k-- > 0;)
            for (uint32_t i = p->path.at[k].last + 1; i-- > p->path.at[k].first;)
                more |= i < upto && choose(r, p, i);
    }
}

static kin_status
run_sunk(kin_run *r, uint32_t i)
{
    const kin_step *s = &r->t->steps.at[i];
    PyObject *result = kin_step_execute(r->t, r->refs, s, r->slots);
    if (result == NULL && PyErr_Occurred())
        return KIN_PYERR;
    r->built_sunk = true;
    if (s->out == 0) {
        Py_XDECREF(result);
        return KIN_OK;
    }
    Py_XSETREF(r->slots[s->out], result);
    return KIN_OK;
}

/* Alts point upwards, so `i < upto` means "before upto" on the path as well. */
static kin_status
carry_out(kin_run *r, plan *p, uint32_t upto)
{
    if (p->wanted == NULL)
        return KIN_OK;
    KIN_TRY(kin_trace_path(r->t, upto, &p->path));
    choose_all(r, p, upto);
    for (uint32_t k = 0; k < p->path.len; k++)
        for (uint32_t i = p->path.at[k].first; i <= p->path.at[k].last; i++)
            if (i < upto && p->chosen[i])
                KIN_TRY(run_sunk(r, i));
    return KIN_OK;
}

static kin_status
end_plan(plan *p, kin_status status)
{
    free(p->wanted);
    free(p->chosen);
    kin_vec_deinit(&p->path);
    if (status == KIN_NOMEM)
        PyErr_NoMemory();
    return status == KIN_OK ? KIN_OK : KIN_PYERR;
}

kin_status
kin_sunk_build(kin_run *r, uint32_t upto, uint32_t snap, kin_fill fill)
{
    plan p = {0};
    kin_status status = want_snapshot(r, &p, snap, fill);
    if (status == KIN_OK)
        status = carry_out(r, &p, upto);
    return end_plan(&p, status);
}

kin_status
kin_sunk_pass(kin_run *r, uint32_t step)
{
    const kin_step *s = &r->t->steps.at[step];
    const kin_vid *args = r->t->vids.at + s->args;
    if (!(s->flags & KIN_STEP_MUTATES) || s->nargs == 0 || r->slots[args[0]] == NULL)
        return KIN_OK;
    plan p = {0};
    kin_status status = KIN_OK;
    for (uint32_t a = 0; status == KIN_OK && a < s->nargs; a++)
        status = want(r, &p, args[a]);
    if (status == KIN_OK)
        status = carry_out(r, &p, step);
    if (status == KIN_OK)
        status = run_sunk(r, step);
    return end_plan(&p, status);
}
