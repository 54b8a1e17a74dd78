/* Builds sunk objects when an exit or a frame needs them: finds the sunk steps that create and change them,
 * then runs those in program order. There is one object per vid, so objects are shared as they were when recorded.
 *
 * Opaque steps need the frames of the same callers again and again, so a snapshot is searched only once
 * per replay: what was built stays built (and is kept up to date by kin_sunk_pass) as long as snapshots mention it.
 */
#include "py/replay/replay_priv.h"

#include <stdlib.h>

/* The sunk steps that make or change each value, in program order: steps[first[vid]] .. steps[first[vid + 1] - 1]. */
struct kin_sunk_index {
    uint32_t nvals, nsteps; /* of the trace it was made for */
    uint32_t *steps;
    uint32_t first[];
};

typedef struct {
    uint8_t *wanted; /* by vid; NULL: nothing is missing */
    uint8_t *chosen; /* by step, behind wanted */
    KIN_VEC(kin_vid) todo;
    KIN_VEC(uint32_t) steps; /* the chosen ones */
    kin_path path;   /* only where the replay has left its first side trace */
} plan;

/* -- the index -------------------------------------------------------------------------------------------------- */

/* The values whose history the step belongs to: what it makes, what it changes. */
static int
owners(const kin_trace *t, const kin_step *s, kin_vid *out)
{
    int n = 0;
    if (!(s->flags & KIN_STEP_SUNK))
        return 0;
    if (s->out != 0)
        out[n++] = s->out;
    if ((s->flags & KIN_STEP_MUTATES) && s->nargs > 0 && t->vids.at[s->args] != s->out)
        out[n++] = t->vids.at[s->args];
    return n;
}

static void
fill_index(const kin_trace *t, struct kin_sunk_index *x)
{
    kin_vid owner[2];
    for (uint32_t i = 0; i < t->steps.len; i++)
        for (int n = owners(t, &t->steps.at[i], owner); n-- > 0;)
            x->first[owner[n] + 1]++;
    for (uint32_t v = 0; v < t->vals.len; v++)
        x->first[v + 1] += x->first[v];
    for (uint32_t i = t->steps.len; i-- > 0;) /* fills each part from its end: first[v + 1] comes down to its start */
        for (int n = owners(t, &t->steps.at[i], owner); n-- > 0;)
            x->steps[--x->first[owner[n] + 1]] = i;
    memmove(x->first, x->first + 1, t->vals.len * sizeof *x->first);
}

/* Made when it is first needed; again when a side trace has been added. */
static const struct kin_sunk_index *
index_of(const kin_run *r)
{
    const kin_trace *t = r->t;
    struct kin_sunk_index *x = r->v->sunk;
    if (x != NULL && x->nvals == t->vals.len && x->nsteps == t->steps.len)
        return x;
    uint32_t count = 0;
    kin_vid owner[2];
    for (uint32_t i = 0; i < t->steps.len; i++)
        count += (uint32_t)owners(t, &t->steps.at[i], owner);
    x = calloc(1, sizeof *x + (t->vals.len + 2 + (size_t)count) * sizeof *x->first);
    if (x == NULL)
        return NULL;
    x->nvals = t->vals.len;
    x->nsteps = t->steps.len;
    x->steps = x->first + t->vals.len + 2;
    fill_index(t, x);
    x->first[t->vals.len] = count;
    free(r->v->sunk);
    return r->v->sunk = x;
}

size_t
kin_sunk_bytes(const kin_entry *v)
{
    const struct kin_sunk_index *x = v->sunk;
    return x == NULL ? 0 : sizeof *x + (x->nvals + 2 + (size_t)x->first[x->nvals]) * sizeof *x->first;
}

/* -- what is missing -------------------------------------------------------------------------------------------- */

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
    if (!is_missing(r, vid) || (p->wanted != NULL && p->wanted[vid]))
        return KIN_OK;
    if (p->wanted == NULL) {
        p->wanted = calloc((size_t)r->t->vals.len + r->t->steps.len, 1);
        if (p->wanted == NULL)
            return KIN_NOMEM;
        p->chosen = p->wanted + r->t->vals.len;
    }
    p->wanted[vid] = 1;
    return kin_vec_push(&p->todo, vid);
}

static bool
is_looked_through(const kin_run *r, uint32_t snap, kin_fill fill)
{
    return r->looked != NULL && r->looked[snap] > (uint8_t)fill;
}

static kin_status
want_snapshot(const kin_run *r, plan *p, uint32_t snap, kin_fill fill)
{
    const kin_trace *t = r->t;
    for (; snap != 0; snap = t->snaps.at[snap].parent) {
        if (is_looked_through(r, snap, fill))
            continue;
        const kin_snap *s = &t->snaps.at[snap];
        uint32_t n = fill == KIN_FILL_NOTHING ? 0 : fill == KIN_FILL_LOCALS ? s->nlocals : s->nlocals + (uint32_t)s->nstack;
        KIN_TRY(want(r, p, s->func));
        if (fill == KIN_FILL_ALL)
            KIN_TRY(want(r, p, s->extra));
        if (fill != KIN_FILL_NOTHING)
            KIN_TRY(want(r, p, s->names));
        for (uint32_t i = 0; i < n; i++)
            KIN_TRY(want(r, p, t->vids.at[s->vals + i]));
    }
    return KIN_OK;
}

/* Callers only: the innermost snapshot of a step is seldom met again. */
static void
note_looked_through(kin_run *r, uint32_t snap, kin_fill fill)
{
    for (snap = r->t->snaps.at[snap].parent; snap != 0; snap = r->t->snaps.at[snap].parent) {
        if (r->looked == NULL && (r->looked = calloc(r->t->snaps.len, 1)) == NULL)
            return;
        if (r->looked[snap] <= (uint8_t)fill)
            r->looked[snap] = (uint8_t)(fill + 1);
    }
}

/* -- the steps that build it ------------------------------------------------------------------------------------ */

/* Alts point upwards, so `step < upto` means "before upto" on the path as well. */
static bool
was_passed(const kin_run *r, const plan *p, uint32_t upto, uint32_t step)
{
    if (!r->jumped || step >= upto)
        return step < upto;
    for (uint32_t k = 0; k < p->path.len; k++)
        if (step >= p->path.at[k].first && step <= p->path.at[k].last)
            return true;
    return false;
}

static kin_status
choose(const kin_run *r, plan *p, uint32_t step)
{
    const kin_step *s = &r->t->steps.at[step];
    p->chosen[step] = 1;
    KIN_TRY(kin_vec_push(&p->steps, step));
    for (uint32_t a = 0; a < s->nargs; a++)
        KIN_TRY(want(r, p, r->t->vids.at[s->args + a]));
    return KIN_OK;
}

static kin_status
choose_all(const kin_run *r, plan *p, uint32_t upto)
{
    const struct kin_sunk_index *x = index_of(r);
    if (x == NULL)
        return KIN_NOMEM;
    while (p->todo.len > 0) {
        kin_vid vid = p->todo.at[--p->todo.len];
        for (uint32_t k = x->first[vid]; k < x->first[vid + 1]; k++)
            if (!p->chosen[x->steps[k]] && was_passed(r, p, upto, x->steps[k]))
                KIN_TRY(choose(r, p, x->steps[k]));
    }
    return KIN_OK;
}

static int
compare_steps(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
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

static kin_status
carry_out(kin_run *r, plan *p, uint32_t upto)
{
    if (p->wanted == NULL)
        return KIN_OK;
    if (r->jumped)
        KIN_TRY(kin_trace_path(r->t, upto, &p->path));
    KIN_TRY(choose_all(r, p, upto));
    if (p->steps.len > 1)
        qsort(p->steps.at, p->steps.len, sizeof *p->steps.at, compare_steps);
    for (uint32_t k = 0; k < p->steps.len; k++)
        KIN_TRY(run_sunk(r, p->steps.at[k]));
    return KIN_OK;
}

static kin_status
end_plan(plan *p, kin_status status)
{
    free(p->wanted);
    kin_vec_deinit(&p->todo);
    kin_vec_deinit(&p->steps);
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
    if (status == KIN_OK)
        note_looked_through(r, snap, fill);
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
