/* What a side trace knows of generators that were made before it, unless they are suspended inside try or with; and of the iterators over lists and tuples that
 * they have. Nobody but the program's frames may have them, so nothing has happened to them that the trace does not say.
 */
#include "py/compat/codes.h"
#include "py/compat/generator.h"
#include "py/iterators/iterators.h"

/* A generator that may be adopted. */
typedef struct {
    const kin_path *path; /* to the side trace */
    kin_vid vid;
    uint32_t made, state; /* the step that makes it, and the last one that says where it is suspended; 0: it has not begun */
} adoption;

static bool
has_operand(const kin_trace *t, uint32_t step, kin_vid vid)
{
    const kin_step *s = &t->steps.at[step];
    for (uint32_t k = 0; k < s->nargs; k++)
        if (t->vids.at[s->args + k] == vid)
            return true;
    return false;
}

static bool
is_state_of(const kin_trace *t, uint32_t step, kin_vid generator)
{
    const kin_step *s = &t->steps.at[step];
    return s->kind == KIN_STEP_GENERATOR_STATE && t->vids.at[s->args] == generator;
}

/* The step that makes the value, if on the way to the side trace none has it as an operand but `user`, the states of the generator, and NEXT; NULL: others
 * do, or it is of another kind. */
static const kin_step *
sole_maker(rec *r, const adoption *a, kin_vid vid, kin_step_kind kind, uint32_t user)
{
    const kin_trace *t = r->t;
    const kin_val *val = vid != 0 ? &t->vals.at[vid] : NULL;
    if (val == NULL || val->kind != KIN_VAL_STEP || t->steps.at[val->step].kind != kind)
        return NULL;
    for (uint32_t k = 0; k < a->path->len; k++)
        for (uint32_t i = a->path->at[k].first; i <= a->path->at[k].last; i++)
            if (i != user && has_operand(t, i, vid) && !is_state_of(t, i, a->vid) && !(t->steps.at[i].kind == KIN_STEP_NEXT && kind == KIN_STEP_ITER))
                return NULL;
    return &t->steps.at[val->step];
}

/* iter() of a list or tuple that nothing else knows of. */
static void
adopt_iterator(rec *r, const adoption *a, kin_vid vid)
{
    const kin_step *s = sole_maker(r, a, vid, KIN_STEP_ITER, a->made);
    kin_vid of = s != NULL ? r->t->vids.at[s->args] : 0, items[250];
    uint32_t user = s != NULL ? r->t->vals.at[vid].step : 0;
    const kin_step *made = s != NULL ? sole_maker(r, a, of, KIN_STEP_BUILD_LIST, user) : NULL;
    if (s != NULL && made == NULL)
        made = sole_maker(r, a, of, KIN_STEP_BUILD_TUPLE, user);
    Py_ssize_t left = made != NULL && O(r, vid) != NULL ? PyObject_LengthHint(O(r, vid), -1) : -1;
    if (left < 0 || left > made->nargs || made->nargs > 250)
        return;
    memcpy(items, r->t->vids.at + made->args, made->nargs * sizeof *items);
    uint32_t n = made->nargs;
    r->info.at[vid].type = Py_TYPE(O(r, vid));
    rec_virtual *f = rec_make_virtual(r, vid, VIRTUAL_ITER, items, n, true);
    if (f != NULL)
        f->pos = n - (uint32_t)left;
}

static void
find_state(rec *r, adoption *a)
{
    for (uint32_t k = 0; k < a->path->len; k++)
        for (uint32_t i = a->path->at[k].first; i <= a->path->at[k].last; i++)
            if (is_state_of(r->t, i, a->vid))
                a->state = i;
}

/* Is it where the trace says, outside of try and with? Then `offset` is where it is suspended. */
static bool
stands_there(rec *r, const adoption *a, PyObject *obj, uint32_t *offset)
{
    if (a->state == 0)
        return kin_generator_is_new(obj);
    PyObject *where = kin_refs_get(r->refs, r->t->steps.at[a->state].ref);
    if (where == NULL || kin_generator_has_ended(obj) || kin_generator_is_new(obj) || PyObject_IsTrue(PyTuple_GET_ITEM(where, 2)))
        return false;
    *offset = (uint32_t)PyLong_AsUnsignedLong(PyTuple_GET_ITEM(where, 1));
    const kin_code *code = rec_code_of((PyCodeObject *)PyTuple_GET_ITEM(where, 0));
    return code != NULL && !kin_code_is_guarded(code, *offset);
}

static void
adopt_generator(rec *r, const kin_path *path, kin_vid vid)
{
    adoption a = {path, vid};
    PyObject *obj = vid != 0 && PyGen_CheckExact(O(r, vid) != NULL ? O(r, vid) : Py_None) ? O(r, vid) : NULL;
    const kin_step *made = obj != NULL && VIRTUAL(r, vid) == NULL ? sole_maker(r, &a, vid, KIN_STEP_BUILD_GENERATOR, 0) : NULL;
    uint32_t offset = 0;
    if (made == NULL || made->nargs > 200)
        return;
    a.made = r->t->vals.at[vid].step;
    find_state(r, &a);
    if (!stands_there(r, &a, obj, &offset))
        return;
    struct _PyInterpreterFrame *f = kin_generator_frame(obj);
    PyObject *const *real = kin_watch_localsplus(f);
    const kin_step *s = a.state != 0 ? &r->t->steps.at[a.state] : made;
    kin_vid args[256], values[256];
    uint32_t n = made->nargs, nvalues = s->nargs;
    memcpy(args, r->t->vids.at + made->args, n * sizeof *args);
    memcpy(values, r->t->vids.at + s->args, nvalues * sizeof *values);
    if (O(r, args[0]) == NULL)
        rec_set_obj(r, args[0], kin_watch_func(f));
    for (uint32_t i = 1; i < nvalues; i++) {
        if (values[i] != 0 && O(r, values[i]) == NULL)
            rec_set_obj(r, values[i], real[i - 1]);
        adopt_iterator(r, &a, values[i]);
    }
    rec_gen *gen = rec_new_generator(r, vid, kin_watch_code(f), args, n);
    if (gen != NULL && a.state != 0)
        rec_suspend_generator(r, gen, f, offset, values + 1, (int)nvalues - 1);
}

void
rec_adopt_generators(rec *r, uint32_t step)
{
    kin_path path = {0};
    if (kin_trace_path(r->t, step, &path) != KIN_OK)
        r->status = KIN_NOMEM;
    for (const rec_frame *f = r->top; r->status == KIN_OK && f != NULL; f = f->back)
        for (int i = 0; i < f->nlocals + f->sp; i++)
            adopt_generator(r, &path, f->slots[i]);
    kin_vec_deinit(&path);
}
