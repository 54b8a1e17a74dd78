/* What a side trace knows of generators that were made before it, unless they are suspended inside try or with; of the iterators over lists and tuples that
 * they have; and of zip, map and enumerate objects over such generators and iterators. Nobody but the program's frames may have them, so nothing has happened to them that the trace does not say.
 */
#include "py/compat/codes.h"
#include "py/compat/generator.h"
#include "py/iterators/iterators.h"
#include "py/replay/iterator_state.h"

/* What may be adopted, and who may have it as an operand on the way to the side trace: the step that made what it was put into, and the states of that. */
typedef struct {
    const kin_path *path; /* to the side trace */
    kin_vid vid, owner;   /* owner: the generator that has it; 0: none */
    uint32_t user;        /* 0: none */
    uint32_t made, state; /* the step that makes it, and the last one that says where it is suspended, or what it keeps; 0: it has not begun */
} adoption;

static bool adopt(rec *r, adoption a);

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
is_state_of(const kin_trace *t, uint32_t step, kin_vid vid)
{
    const kin_step *s = &t->steps.at[step];
    return (s->kind == KIN_STEP_GENERATOR_STATE || s->kind == KIN_STEP_ITERATOR_AT) && vid != 0 && t->vids.at[s->args] == vid;
}

/* The step that makes the value, if on the way to the side trace none has it as an operand but the one that may, its states, and NEXT; NULL: others
 * do, or it is of another kind. */
static const kin_step *
sole_maker(rec *r, const adoption *a, kin_step_kind kind)
{
    const kin_trace *t = r->t;
    const kin_val *val = a->vid != 0 ? &t->vals.at[a->vid] : NULL;
    if (val == NULL || val->kind != KIN_VAL_STEP || t->steps.at[val->step].kind != kind)
        return NULL;
    for (uint32_t k = 0; k < a->path->len; k++)
        for (uint32_t i = a->path->at[k].first; i <= a->path->at[k].last; i++)
            if (i != a->user && has_operand(t, i, a->vid) && !is_state_of(t, i, a->vid) && !is_state_of(t, i, a->owner) && !(t->steps.at[i].kind == KIN_STEP_NEXT && kind == KIN_STEP_ITER))
                return NULL;
    return &t->steps.at[val->step];
}

/* Has nothing on the way to the side trace, behind the step, changed what was there before? */
static bool
is_quiet_since(const kin_trace *t, const adoption *a, uint32_t step)
{
    for (uint32_t k = 0; k < a->path->len; k++)
        for (uint32_t i = a->path->at[k].first; i <= a->path->at[k].last; i++)
            if (i > step && t->steps.at[i].flags & (KIN_STEP_OPAQUE | KIN_STEP_EFFECT | KIN_STEP_RAISES))
                return false;
    return true;
}

/* iter() of a range that is a constant, or of a dict, whose keys are as the guards say: what is left of it. */
static bool
adopt_left(rec *r, const adoption *a, kin_vid of)
{
    enum { MOST = 250 };
    kin_vid items[MOST];
    const kin_val *val = &r->t->vals.at[of];
    PyObject *obj = O(r, a->vid);
    bool range = obj != NULL && Py_IS_TYPE(obj, &PyRangeIter_Type) && val->kind == KIN_VAL_CONST;
    bool known = r->t->steps.at[a->made].flags & KIN_STEP_PURE; /* each item of it has been a value */
    bool keys = known && obj != NULL && Py_IS_TYPE(obj, &PyDictIterKey_Type) && val->kind == KIN_VAL_SRC && is_quiet_since(r->t, a, a->made);
    Py_ssize_t left = range || keys ? PyObject_LengthHint(obj, -1) : -1;
    PyObject *reduced = left >= 0 && left <= MOST ? PyObject_CallMethod(obj, "__reduce__", NULL) : NULL;
    PyObject *from = reduced != NULL && PyTuple_CheckExact(reduced) && PyTuple_GET_SIZE(reduced) > 1 ? PySequence_GetItem(PyTuple_GET_ITEM(reduced, 1), 0) : NULL;
    PyObject *all = from != NULL ? PySequence_Tuple(from) : NULL;
    uint32_t n = 0;
    bool ok = all != NULL && PyTuple_GET_SIZE(all) >= left;
    for (Py_ssize_t i = ok ? PyTuple_GET_SIZE(all) - left : 0; ok && i < PyTuple_GET_SIZE(all); i++) {
        PyObject *item = PyTuple_GET_ITEM(all, i);
        ok = PyUnicode_CheckExact(item) || PyLong_CheckExact(item);
        items[n++] = ok ? rec_const(r, item) : 0;
    }
    Py_XDECREF(reduced);
    Py_XDECREF(from);
    Py_XDECREF(all);
    PyErr_Clear();
    if (!ok)
        return false;
    r->info.at[a->vid].type = Py_TYPE(obj);
    return rec_make_virtual(r, a->vid, VIRTUAL_ITER, items, n, true) != NULL;
}

/* iter() of a list or tuple that nothing else knows of. */
static bool
adopt_iterator(rec *r, const adoption *a)
{
    kin_vid items[250];
    const kin_step *s = sole_maker(r, a, KIN_STEP_ITER);
    if (s != NULL && adopt_left(r, a, r->t->vids.at[s->args]))
        return true;
    const adoption of = {.path = a->path, .vid = s != NULL ? r->t->vids.at[s->args] : 0, .user = s != NULL ? r->t->vals.at[a->vid].step : 0};
    const kin_step *made = s != NULL ? sole_maker(r, &of, KIN_STEP_BUILD_LIST) : NULL;
    if (s != NULL && made == NULL)
        made = sole_maker(r, &of, KIN_STEP_BUILD_TUPLE);
    Py_ssize_t left = made != NULL && O(r, a->vid) != NULL ? PyObject_LengthHint(O(r, a->vid), -1) : -1;
    if (left < 0 || left > made->nargs || made->nargs > 250)
        return false;
    memcpy(items, r->t->vids.at + made->args, made->nargs * sizeof *items);
    uint32_t n = made->nargs;
    r->info.at[a->vid].type = Py_TYPE(O(r, a->vid));
    rec_virtual *f = rec_make_virtual(r, a->vid, VIRTUAL_ITER, items, n, true);
    if (f != NULL)
        f->pos = n - (uint32_t)left;
    return f != NULL;
}

/* The objects that it asks get known: as it would be pickled, it is made of its operands. */
static void
know_sources(rec *r, PyObject *lazy, const kin_vid *args, uint32_t first, uint32_t end)
{
    PyObject *reduced = PyObject_CallMethod(lazy, "__reduce__", NULL);
    PyObject *operands = reduced != NULL && PyTuple_CheckExact(reduced) && PyTuple_GET_SIZE(reduced) > 1 ? PyTuple_GET_ITEM(reduced, 1) : NULL;
    for (uint32_t i = first; operands != NULL && PyTuple_CheckExact(operands) && i < end && i <= PyTuple_GET_SIZE(operands); i++)
        if (args[i] != 0 && O(r, args[i]) == NULL)
            rec_set_obj(r, args[i], PyTuple_GET_ITEM(operands, i - 1));
    Py_XDECREF(reduced);
    PyErr_Clear();
}

static bool
is_small(PyObject *number)
{
    int overflow;
    long value = PyLong_AsLongAndOverflow(number, &overflow);
    return overflow == 0 && value >= 0 && value < INT32_MAX;
}

/* zip, map and enumerate objects over what can be adopted as well. */
static bool
adopt_lazy(rec *r, const adoption *a)
{
    const kin_step *made = O(r, a->vid) != NULL ? sole_maker(r, a, KIN_STEP_CALL) : NULL;
    kin_iterator_kind kind = made != NULL && made->flags & KIN_STEP_PURE ? kin_iterator_kind_of(Py_TYPE(O(r, a->vid))) : KIN_ITERATOR__COUNT;
    if ((kind != KIN_ITERATOR_ZIP && kind != KIN_ITERATOR_MAP && kind != KIN_ITERATOR_ENUMERATE) || made->ref != 0 || made->nargs > 8)
        return false;
    kin_vid args[8], items[LAZY_SOURCES + 8] = {0};
    uint32_t first = kind == KIN_ITERATOR_MAP ? 2 : 1, end = kind == KIN_ITERATOR_ENUMERATE ? 2 : made->nargs, n = LAZY_SOURCES;
    memcpy(args, r->t->vids.at + made->args, made->nargs * sizeof *args);
    PyObject *number = kind == KIN_ITERATOR_ENUMERATE && made->nargs > 2 ? O(r, args[2]) : NULL;
    if (kind == KIN_ITERATOR_ENUMERATE && a->state != 0)
        number = O(r, r->t->vids.at[r->t->steps.at[a->state].args + 1]);
    bool counts = a->state != 0 || (kind == KIN_ITERATOR_ENUMERATE && end < made->nargs);
    if (counts && (number == NULL || !PyLong_CheckExact(number) || !is_small(number)))
        return false;
    items[LAZY_CLASS] = args[0];
    items[LAZY_CALLBACK] = first == 2 ? args[1] : 0;
    know_sources(r, O(r, a->vid), args, 1, end);
    for (uint32_t i = first; i < end; i++) {
        if (!adopt(r, (adoption){.path = a->path, .vid = args[i], .user = a->made}))
            return false;
        items[n++] = args[i];
    }
    r->info.at[a->vid].type = Py_TYPE(O(r, a->vid));
    rec_virtual *f = rec_make_virtual(r, a->vid, VIRTUAL_LAZY, items, n, true);
    if (f == NULL)
        return false;
    f->made_of = n;
    f->pos = counts ? (uint32_t)PyLong_AsLong(number) : 0;
    return true;
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

static bool
adopt_generator(rec *r, const adoption *a)
{
    PyObject *obj = PyGen_CheckExact(O(r, a->vid) != NULL ? O(r, a->vid) : Py_None) ? O(r, a->vid) : NULL;
    const kin_step *made = obj != NULL ? sole_maker(r, a, KIN_STEP_BUILD_GENERATOR) : NULL;
    uint32_t offset = 0;
    if (made == NULL || made->nargs > 200 || !stands_there(r, a, obj, &offset))
        return false;
    struct _PyInterpreterFrame *f = kin_generator_frame(obj);
    PyObject *const *real = kin_watch_localsplus(f);
    const kin_step *s = a->state != 0 ? &r->t->steps.at[a->state] : made;
    kin_vid args[256], values[256];
    uint32_t n = made->nargs, nvalues = s->nargs;
    memcpy(args, r->t->vids.at + made->args, n * sizeof *args);
    memcpy(values, r->t->vids.at + s->args, nvalues * sizeof *values);
    if (O(r, args[0]) == NULL)
        rec_set_obj(r, args[0], kin_watch_func(f));
    for (uint32_t i = 1; i < nvalues; i++) {
        if (values[i] != 0 && O(r, values[i]) == NULL)
            rec_set_obj(r, values[i], real[i - 1]);
        adopt(r, (adoption){.path = a->path, .vid = values[i], .owner = a->vid, .user = a->made});
    }
    rec_gen *gen = rec_new_generator(r, a->vid, kin_watch_code(f), args, n);
    if (gen != NULL && a->state != 0)
        rec_suspend_generator(r, gen, f, offset, values + 1, (int)nvalues - 1);
    return gen != NULL;
}

/* Is it known now how the object goes on? */
static bool
adopt(rec *r, adoption a)
{
    const kin_val *val = a.vid != 0 ? &r->t->vals.at[a.vid] : NULL;
    if (val == NULL || val->kind != KIN_VAL_STEP || VIRTUAL(r, a.vid) != NULL)
        return false;
    a.made = val->step;
    find_state(r, &a);
    switch ((kin_step_kind)r->t->steps.at[a.made].kind) {
    case KIN_STEP_BUILD_GENERATOR: return adopt_generator(r, &a);
    case KIN_STEP_ITER: return (a.owner != 0 || a.user != 0) && adopt_iterator(r, &a);
    case KIN_STEP_CALL: return adopt_lazy(r, &a);
    default: return false;
    }
}

void
rec_adopt_generators(rec *r, uint32_t step)
{
    kin_path path = {0};
    if (kin_trace_path(r->t, step, &path) != KIN_OK)
        r->status = KIN_NOMEM;
    for (const rec_frame *f = r->top; r->status == KIN_OK && f != NULL; f = f->back)
        for (int i = 0; i < f->nlocals + f->sp; i++)
            adopt(r, (adoption){.path = &path, .vid = f->slots[i]});
    kin_vec_deinit(&path);
}
