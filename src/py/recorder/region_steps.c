/* Which steps an atomic region may have (region.c says why): none whose repetition could be observed, and none that would read a change
 * which is only written at the region's end.
 */
#include "py/compat/imports.h"
#include "py/compat/kinds.h"
#include "py/recorder/callables.h"
#include "py/recorder/region_priv.h"

/* Also under another name. */
bool
rec_region_is_changing(rec *r, kin_vid vid)
{
    kin_vid changing = r->region != NULL ? r->region->changing : 0;
    return changing != 0 && vid != 0 && (vid == changing || (O(r, vid) != NULL && O(r, vid) == O(r, changing)));
}

/* Step `kind` with these operands would read changes that are only written at the end of the region. A new generator only keeps a set, and membership
 * tests have taken additions into account (rec_region_added). */
static bool
touches_unwritten(rec *r, kin_step_kind kind, const kin_vid *args, uint32_t n)
{
    bool added = kind != KIN_STEP_BUILD_GENERATOR && kind != KIN_STEP_CHECK && !r->region->asked_added;
    for (uint32_t i = 0; i < n; i++) {
        if (rec_region_is_changing(r, args[i]))
            return true;
        for (uint32_t k = 0; k < r->region->moved.len; k++)
            if (args[i] == r->region->moved.at[k])
                return true;
        for (uint32_t k = 0; k < r->region->used_up.len; k++)
            if (args[i] == r->region->used_up.at[k])
                return true;
        for (uint32_t k = 0; added && k < r->region->deferred.len; k++)
            if (args[i] == r->region->deferred.at[k].target)
                return true;
        for (rec_gen *gen = r->gens; gen != NULL; gen = gen->next)
            if (gen->dirty && gen->vid == args[i])
                return true;
    }
    return false;
}

/* Would the step get at such changes through what its operands hold: a function's cells, the items of a tuple? */
static bool
reaches_unwritten(rec *r, const kin_vid *args, uint32_t n, int depth)
{
    for (uint32_t i = 0; i < n; i++) {
        const rec_virtual *f = args[i] ? VIRTUAL(r, args[i]) : NULL;
        if (rec_region_is_changing(r, args[i]))
            return true;
        for (uint32_t k = 0; k < r->region->deferred.len; k++)
            if (args[i] == r->region->deferred.at[k].target)
                return true;
        if (f != NULL && depth < 8 && reaches_unwritten(r, f->items, f->n, depth + 1))
            return true;
    }
    return false;
}

int
rec_region_added(rec *r, kin_vid set, kin_vid item)
{
    rec_region *g = r->region;
    bool by_identity = !kin_is_exact_immutable(O(r, item));
    for (uint32_t k = 0; g != NULL && k < g->deferred.len; k++) {
        const deferred_change *change = &g->deferred.at[k];
        if (change->target != set)
            continue;
        if (change->kind != KIN_STEP_SET_ADD || !by_identity || O(r, change->args[1]) == NULL)
            return -1;
        if (rec_decide_is(r, item, change->args[1]))
            return 1;
    }
    return 0;
}

void
rec_region_asks(rec *r, bool on)
{
    if (r->region != NULL)
        r->region->asked_added = on;
}

static PyObject *
random_state(void)
{
    PyObject *state = kin_import_call("torch", "default_generator.get_state", NULL);
    PyErr_Clear();
    return state;
}

static long
version_of(PyObject *tensor)
{
    PyObject *cpu = PyObject_GetAttrString(tensor, "is_cpu");
    PyObject *number = cpu == Py_True ? PyObject_GetAttrString(tensor, "_version") : NULL;
    long version = number ? PyLong_AsLong(number) : -1;
    Py_XDECREF(cpu);
    Py_XDECREF(number);
    PyErr_Clear();
    return version;
}

/* Notes the versions of the tensors that a torch call sees. */
static bool
note_object(rec *r, PyObject *obj, int depth)
{
    if (obj == NULL || depth > 3)
        return obj != NULL;
    if (kin_is_tensor(obj)) {
        saved_version v = {Py_NewRef(obj), version_of(obj)};
        if (v.version >= 0 && kin_vec_push(&r->region->versions, v) == KIN_OK)
            return true;
        Py_DECREF(obj);
        return false;
    }
    bool ok = true, list = PyList_CheckExact(obj);
    if (list || PyTuple_Check(obj))
        for (Py_ssize_t i = 0; ok && i < (list ? PyList_GET_SIZE(obj) : PyTuple_GET_SIZE(obj)); i++)
            ok = note_object(r, list ? PyList_GET_ITEM(obj, i) : PyTuple_GET_ITEM(obj, i), depth + 1);
    static PyObject *generator;
    bool draws = kin_import_once(&generator, "torch._C", "Generator") == NULL || PyObject_TypeCheck(obj, (PyTypeObject *)generator);
    return ok && !draws && !PyDict_Check(obj);
}

/* A result of a torch call of the region that nobody has seen yet. */
static bool
is_made_in_region(rec *r, kin_vid vid)
{
    return O(r, vid) == NULL && vid >= r->region->nvals && r->info.at[vid].graph;
}

/* An operand, or what a list or tuple made here holds. */
static bool
note_operand(rec *r, kin_vid vid, int depth)
{
    const rec_virtual *f = VIRTUAL(r, vid);
    if (vid == 0 || is_made_in_region(r, vid))
        return true;
    if (O(r, vid) != NULL || f == NULL || !f->known || depth > 3 || vid < r->region->nvals || (f->kind != VIRTUAL_LIST && f->kind != VIRTUAL_TUPLE))
        return note_object(r, O(r, vid), 0);
    for (uint32_t i = 0; i < f->n; i++)
        if (!note_operand(r, f->items[i], depth + 1))
            return false;
    return true;
}

static bool
torch_may_repeat(rec *r, kin_step_kind kind, const kin_vid *args, uint32_t n)
{
    if (r->region->random == NULL && (r->region->random = random_state()) == NULL)
        return false;
    for (uint32_t i = kind == KIN_STEP_CALL; i < n; i++)
        if (!note_operand(r, args[i], 0))
            return false;
    return true;
}

/* Did the region's torch calls change a tensor or draw a random number? */
bool
rec_region_repeatable(rec *r)
{
    rec_region *g = r->region;
    for (uint32_t i = 0; i < g->versions.len; i++)
        if (version_of(g->versions.at[i].tensor) != g->versions.at[i].version)
            return false;
    if (g->random == NULL)
        return true;
    PyObject *now = random_state(), *same = now ? PyObject_CallMethod(now, "equal", "O", g->random) : NULL;
    bool ok = same == Py_True;
    Py_XDECREF(now);
    Py_XDECREF(same);
    PyErr_Clear();
    return ok;
}

/* Does the step only read its operands? What a function takes out of an iterator is gone, and what it says of an older container would be decided on
 * again and again behind the region, which is better left as a whole. */
static bool
is_question(rec *r, kin_step_kind kind, const kin_vid *args, uint32_t n)
{
    if (kind != KIN_STEP_CALL || O(r, args[0]) == NULL)
        return kin_kind_effects(kind) & KIN_ASKS;
    for (uint32_t i = 1; i < n; i++)
        if (args[i] != 0 && (O(r, args[i]) == NULL || PyIter_Check(O(r, args[i])) || (VIRTUAL(r, args[i]) == NULL && !kin_is_exact_immutable(O(r, args[i])))))
            return false;
    return rec_callable_effects(O(r, args[0])) & KIN_ASKS;
}

/* An effect that runs no Python code. */
static bool
is_plain_effect(unsigned flags)
{
    return flags & KIN_STEP_EFFECT && !(flags & (KIN_STEP_OPAQUE | KIN_STEP_RAISES | KIN_STEP_MUTATES));
}

/* Nothing that the program stores can be seen in them: numbers, texts, tensors, classes that cannot be changed. */
static bool
only_atoms(rec *r, const kin_vid *args, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        PyObject *obj = args[i] != 0 ? O(r, args[i]) : Py_None;
        bool fixed_class = obj != NULL && PyType_Check(obj) && !(((PyTypeObject *)obj)->tp_flags & Py_TPFLAGS_HEAPTYPE);
        if (obj == NULL || !(fixed_class || kin_is_exact_immutable(obj) || kin_is_tensor(obj)))
            return false;
    }
    return true;
}

/* Would somebody else than the handler see an exception that the region has raised? Plain attributes of it may be asked for. */
static bool
shows_exception(rec *r, kin_step_kind kind, const kin_vid *args, uint32_t n)
{
    const rec_frame *f = r->top;
    bool attribute = kind == KIN_STEP_GETATTR && f->op == KIN_DO_LOAD_ATTR && kin_utf8(PyTuple_GET_ITEM(f->code->co_names, f->arg))[0] != '_';
    bool traceback = kind == KIN_STEP_GETATTR && f->op == KIN_DO_CALL_EXIT; /* it is shown when somebody does something with it */
    if (kind == KIN_STEP_RAISE || kind == KIN_STEP_CHECK || attribute || traceback || r->reads_words)
        return false;
    for (uint32_t i = 0; i < n; i++)
        if (args[i] != 0 && r->info.at[args[i]].raised != 0 && r->raises.at[r->info.at[args[i]].raised - 1].in_region) /* this one, or one before */
            return true;
    return false;
}

/* Has it an effect, or may it run code or raise, other than as a plain effect does? */
static bool
runs_unfollowed(unsigned flags)
{
    return flags & (KIN_STEP_OPAQUE | KIN_STEP_EFFECT | KIN_STEP_RAISES) && !is_plain_effect(flags);
}

/* A replay that leaves the region begins it again, until it has acted: may the step have run in vain by then? */
static bool
may_repeat(rec *r, kin_step_kind kind, unsigned flags, const kin_vid *args, uint32_t n)
{
    const rec_region *g = r->region;
    if (flags & KIN_STEP_MUTATES)
        return n > 0 && args[0] >= g->nvals;
    if (rec_region_switches(r, kind, args))
        return !g->acted;
    if (is_plain_effect(flags))
        return !g->acted || !(flags & KIN_STEP_TORCH);
    if (g->acted)
        return flags & KIN_STEP_PURE;
    if (flags & KIN_STEP_TORCH)
        return kind != KIN_STEP_SET_SUBSCR && torch_may_repeat(r, kind, args, n);
    return flags & KIN_STEP_PURE || is_question(r, kind, args, n) || r->only_asks || r->reads_words || (kind == KIN_STEP_CALL && O(r, args[0]) != NULL && rec_is_cache(O(r, args[0])));
}

/* Is the step one that the region may have? Refuses the region if not. False: the step is deferred to its end. */
bool
rec_region_step(rec *r, kin_step_kind kind, unsigned *flags, const kin_vid *args, uint32_t n)
{
    rec_region *g = r->region;
    if (g->committing)
        return true;
    bool ok = !runs_unfollowed(*flags) && !shows_exception(r, kind, args, n);
    if (ok && (region_defers_change(r, kind, *flags, args, n) || region_defers_store(r, kind, *flags, args, n)))
        return false;
    bool runs = !(*flags & (KIN_STEP_PURE | KIN_STEP_MUTATES)), looks = runs && !r->reads_words && kind != KIN_STEP_CHECK && kind != KIN_STEP_RAISE && !g->asked_added;
    ok = ok && may_repeat(r, kind, *flags, args, n) && !touches_unwritten(r, kind, args, n);
    if (looks && g->stores && !(*flags & KIN_STEP_TORCH))
        ok = ok && only_atoms(r, args, n);
    if (looks && (g->deferred.len > 0 || g->changing != 0))
        ok = ok && !reaches_unwritten(r, args, n, 0);
    if (!ok)
        rec_refuse(r);
    if (runs)
        *flags |= KIN_STEP_AGAIN;
    return true;
}

bool
rec_region_switches(rec *r, kin_step_kind kind, const kin_vid *args)
{
    bool known = r->t->snaps.at[r->region->snap].grad != 0 && kind == KIN_STEP_CALL && O(r, args[0]) != NULL;
    return known && rec_callable_effects(O(r, args[0])) & KIN_GRAD_MODE;
}
