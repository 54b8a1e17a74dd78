/* Atomic regions: what runs below an instruction whose C code runs watched frames, recorded so that it can be repeated.
 *
 * Frames entered from C cannot be rebuilt while they run, so everything below such an instruction forms a *region*:
 * all its steps have the snapshot before that instruction and the flag AGAIN. An exit anywhere in it, exceptions
 * included, leaves before the instruction, and CPython executes the whole instruction again. That is sound because
 *   - a region has no step whose repetition can be observed: only pure steps, reads, checks, changes of objects that
 *     were made in the region, and torch calls that leave random state and version counters alone (this is measured);
 *   - its changes to older iterators and generators, and to sets, lists and cells that the recording has made and only these can
 *     reach, are written at its end (NEXT, ITERATOR_AT, SET_ADD, LIST_APPEND, CELL_SET, GENERATOR_STATE);
 *   - so are plain stores of tensors, numbers, strings and the like into older objects, and what is appended to older lists; nothing but torch calls may look at anything in between;
 *   - gradients are put back to what they were at its beginning where it is left, if that is known (kin_snap.grad);
 *   - an exception that it raises is handled in it, and nothing else sees that (rules/raise.c);
 *   - after an effect (another store, torch's settings: what a context manager does before its yield), nothing in it can leave.
 *
 * Anything else in a region (an effect, opaque code, the end of an epoch, an opcode without a rule)
 * makes it fail: the trace is cut back to where the region began, the instruction becomes an opaque step, and the
 * frames below it are no longer watched.
 */
#include "py/compat/imports.h"
#include "py/compat/kinds.h"
#include "py/recorder/callables.h"
#include "py/recorder/rec.h"

typedef struct {
    rec_virtual *virtual;
    uint32_t pos, n, gone, let_go;
    bool known, escaped;
} saved_virtual;

typedef struct {
    PyObject *tensor;
    long version;
} saved_version;

/* An item for an older set or list that only the generators of the region can reach, the state of an older iterator, or a plain store. */
typedef struct {
    kin_step_kind kind;
    uint32_t n;
    kin_vid args[3], target;     /* target: what is changed */
    bool plain;                  /* a store into an object that others can reach ... */
    kin_ref ref;                 /* ... under this name, if it is not a key */
    uint32_t effects;
    uint32_t steps, offset;      /* when that was: how many steps there were, and the instruction */
    const rec_frame *frame;
} put_off;

/* What an older cell held before the region stored into it. */
typedef struct {
    rec_virtual *cell;
    kin_vid content;
} saved_cell;

typedef struct rec_region {
    const rec_region_user *user;
    rec_frame *base;
    uint32_t snap, steps, nvals, nfacts, nwrites, nraises;
    kin_trace_mark before;         /* the instruction */
    rec_info *infos;
    saved_virtual *virtual;
    kin_vid *slots;
    KIN_VEC(kin_vid) moved;        /* older iterators that were advanced */
    KIN_VEC(kin_vid) used_up;      /* older map and filter objects that are at their end */
    KIN_VEC(put_off) added;
    KIN_VEC(saved_cell) cells;
    KIN_VEC(rec_virtual *) filled; /* older objects and dicts of the recording that were stored to */
    kin_vid changing;              /* what the instruction itself will have changed; 0: nothing */
    bool asked_added;              /* the next step takes them into account */
    bool stores;                   /* one of `added`, or `changing`, concerns an object that others can reach */
    bool acted;                    /* it has an effect: what follows cannot leave */
    KIN_VEC(saved_version) versions;
    PyObject *random;              /* state before the first torch call */
    bool committing;
} rec_region;

/* -- regions ---------------------------------------------------------------------------------------------------- */

void
rec_region_free(rec_region *g)
{
    for (uint32_t i = 0; i < g->versions.len; i++)
        Py_DECREF(g->versions.at[i].tensor);
    kin_vec_deinit(&g->versions);
    kin_vec_deinit(&g->moved);
    kin_vec_deinit(&g->used_up);
    kin_vec_deinit(&g->added);
    kin_vec_deinit(&g->cells);
    kin_vec_deinit(&g->filled);
    Py_XDECREF(g->random);
    free(g->infos);
    free(g->virtual);
    free(g->slots);
    free(g);
}

static void
save_virtual(rec *r, rec_region *g)
{
    memcpy(g->infos, r->info.at, g->nvals * sizeof *g->infos);
    for (uint32_t i = 0; i < g->nvals; i++) {
        rec_virtual *f = r->info.at[i].virtual;
        if (f != NULL)
            g->virtual[i] = (saved_virtual){f, f->pos, f->n, f->gone, f->let_go, f->known, f->escaped};
    }
}

/* Begins a region at the current instruction, before its rule has changed anything. Each region saves what is known about all values, so the
 * number of regions in very long traces is limited; beyond that, the instructions become opaque steps. */
bool
rec_region_open(rec *r, const rec_region_user *user, uint32_t snap)
{
    enum { MOST = 20000000 };
    if (r->stopped || (snap != 0 && r->epoch_ended) || (r->region_values += r->info.len) > MOST)
        return false;
    rec_frame *f = r->top;
    (void)rec_epoch(r);
    rec_region *g = calloc(1, sizeof *g);
    if (g == NULL)
        return false;
    g->user = user;
    g->base = f;
    g->snap = snap != 0 ? snap : rec_snapshot(r);
    g->steps = r->t->steps.len;
    g->before = kin_trace_end(r->t);
    g->nvals = r->info.len;
    g->nfacts = r->t->facts.len;
    g->nwrites = r->writes.len;
    g->nraises = r->raises.len;
    g->infos = malloc(g->nvals * sizeof *g->infos);
    g->virtual = calloc(g->nvals, sizeof *g->virtual);
    int nslots = f->nlocals + (f->sp > f->sp0 ? f->sp : f->sp0);
    g->slots = malloc((size_t)(nslots + 1) * sizeof *g->slots);
    if (g->infos == NULL || g->virtual == NULL || g->slots == NULL || g->snap == 0) {
        rec_region_free(g);
        return false;
    }
    memcpy(g->slots, f->slots, (size_t)nslots * sizeof *g->slots);
    save_virtual(r, g);
    r->region = g;
    return true;
}

bool
rec_region_is_of(const rec *r, const rec_frame *f)
{
    return r->region != NULL && r->region->base == f;
}

uint32_t
rec_region_snap(rec *r)
{
    return r->region->snap;
}

void
rec_refuse(rec *r)
{
    if (getenv("KIN_DEBUG") && !r->refused)
        fprintf(stderr, "region refused in %s, line %d, at %s\n", kin_utf8(r->top->code->co_qualname),
                PyCode_Addr2Line(r->top->code, (int)r->top->offset), kin_instr_name(r->top->in));
    r->refused = true;
    r->stopped = true; /* until the region is undone */
}

static void
restore_virtual(rec *r, rec_region *g)
{
    for (uint32_t i = 0; i < g->nvals; i++) {
        rec_info *now = &r->info.at[i], *old = &g->infos[i];
        const saved_virtual *s = &g->virtual[i];
        now->type = old->type;
        now->type_epoch = old->type_epoch;
        now->as_const = old->as_const;
        now->meta_epoch = 0;
        if (now->virtual != s->virtual) {
            if (now->virtual != NULL)
                now->virtual->known = false;
            continue;
        }
        if (s->virtual == NULL)
            continue;
        s->virtual->known = s->known && s->n <= s->virtual->n;
        s->virtual->n = s->known && s->n <= s->virtual->n ? s->n : s->virtual->n;
        s->virtual->pos = s->pos;
        s->virtual->gone = s->gone;
        s->virtual->let_go = s->let_go;
        s->virtual->escaped = s->escaped;
    }
    for (uint32_t i = g->nvals; i < r->info.len; i++)
        r->info.at[i].meta_epoch = 0;
    for (uint32_t i = g->cells.len; i > 0; i--)
        g->cells.at[i - 1].cell->items[0] = g->cells.at[i - 1].content;
    for (uint32_t i = 0; i < g->filled.len; i++)
        g->filled.at[i]->known = false;
}

/* Every generator that the region touched continues unwatched. */
static void
lose_generators(rec *r)
{
    for (rec_gen *gen = r->gens; gen != NULL; gen = gen->next) {
        if (!gen->dirty && gen->state != GEN_RUNNING)
            continue;
        if (gen->state != GEN_RUNNING) /* the frames that run have gone already */
            free(gen->frame);
        gen->frame = NULL;
        gen->state = GEN_LOST;
        gen->dirty = gen->closing = false;
        if (VIRTUAL(r, gen->vid) != NULL)
            VIRTUAL(r, gen->vid)->known = false;
    }
}

void
rec_region_undo(rec *r)
{
    rec_region *g = r->region;
    rec_frame *f = g->base;
    r->region = NULL;
    r->refused = r->stopped = r->call.active = false;
    while (r->top != f) {
        g->user->abandon(r->top);
        rec_pop_frame(r);
        r->skip++;
    }
    lose_generators(r);
    if (r->writes.len > g->nwrites)
        r->writes.len = g->nwrites; /* the opaque steps that come instead end the epoch */
    for (uint32_t i = g->nfacts; i < r->t->facts.len; i++)
        r->t->facts.at[i].undone = true;
    rec_truncate(r, g->steps);
    r->pending = r->escaped = 0;
    r->t->snaps.at[g->snap].grad = 0;
    if (r->handled >= g->nvals)
        r->handled = 0;
    restore_virtual(r, g);
    memcpy(f->slots, g->slots, (size_t)(f->nlocals + f->sp0) * sizeof *g->slots);
    f->sp = f->sp0;
    f->nundo = 0;
    f->await = AWAIT_NONE;
    const rec_region_user *user = g->user;
    rec_region_free(g);
    user->refused(r, f);
    r->foreign = false;
    r->skip_expected = true;
}

void
rec_settle(rec *r)
{
    if (r->refused && r->region != NULL && !r->failed)
        rec_region_undo(r);
}

/* -- what a region may do ---------------------------------------------------------------------------------------- */

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
        for (uint32_t k = 0; added && k < r->region->added.len; k++)
            if (args[i] == r->region->added.at[k].target)
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
        for (uint32_t k = 0; k < r->region->added.len; k++)
            if (args[i] == r->region->added.at[k].target)
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
    for (uint32_t k = 0; g != NULL && k < g->added.len; k++) {
        const put_off *change = &g->added.at[k];
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

static void
add_change(rec *r, put_off change)
{
    change.steps = r->t->steps.len;
    change.offset = r->top->offset;
    change.frame = r->top;
    if (kin_vec_push(&r->region->added, change) != KIN_OK)
        r->status = KIN_NOMEM;
}

/* Does it add to, or fill, an object made here that nobody else can reach? */
static bool
changes_virtual(rec *r, kin_step_kind kind, const rec_virtual *f, uint32_t n)
{
    if (f == NULL || f->escaped)
        return false;
    switch (kind) {
    case KIN_STEP_SET_ADD: case KIN_STEP_LIST_APPEND: case KIN_STEP_LIST_EXTEND: case KIN_STEP_ITERATOR_AT:
        return n == 2;
    case KIN_STEP_CELL_SET:
        return n == 2 && f->kind == VIRTUAL_CELL && f->known && f->n == 1;
    case KIN_STEP_SETATTR:
        return n == 2 && f->kind == VIRTUAL_OBJECT && f->known && r->may_wait;
    case KIN_STEP_SET_SUBSCR:
        return n == 3 && f->kind == VIRTUAL_DICT && f->known && r->may_wait;
    default:
        return false;
    }
}

/* Changes of what is older than the region are put off to its end: nothing in it may ask about them. */
static bool
is_put_off(rec *r, kin_step_kind kind, unsigned flags, const kin_vid *args, uint32_t n)
{
    rec_region *g = r->region;
    if (!(flags & KIN_STEP_MUTATES) || n == 0 || args[0] >= g->nvals)
        return false;
    kin_status status = KIN_OK;
    rec_virtual *f = VIRTUAL(r, args[0]);
    if (kind == KIN_STEP_NEXT && n == 1) {
        status = kin_vec_push(&g->moved, args[0]);
    } else if (kind == KIN_STEP_USE_UP) {
        status = kin_vec_push(&g->used_up, args[0]);
    } else if (changes_virtual(r, kind, f, n)) {
        if (kind == KIN_STEP_CELL_SET)
            status = kin_vec_push(&g->cells, ((saved_cell){f, f->items[0]}));
        else if (kind == KIN_STEP_SETATTR || kind == KIN_STEP_SET_SUBSCR)
            status = kin_vec_push(&g->filled, f);
        add_change(r, (put_off){.kind = kind, .n = n, .args = {args[0], args[1], n > 2 ? args[2] : 0}, .target = args[0]});
    } else {
        return false;
    }
    if (status != KIN_OK)
        r->status = status;
    return true;
}

/* A store that changes one word, to which nothing can react, of something that nothing follows the death of. */
static bool
puts_off_store(rec *r, kin_step_kind kind, unsigned flags, const kin_vid *args, uint32_t n)
{
    bool named = kind == KIN_STEP_SETATTR || kind == KIN_STEP_GLOBAL_SET || kind == KIN_STEP_CELL_SET, item = kind == KIN_STEP_SET_SUBSCR;
    uint32_t at = item ? 2 : 1;
    if (!r->may_wait || !(flags & KIN_STEP_EFFECT) || !(r->store_effects & KIN_FITS) || !(named || item) || n != at + 1 || args[at] == 0)
        return false;
    PyObject *value = O(r, args[at]);
    if (value == NULL || !(kin_is_exact_immutable(value) || kin_is_plain_tensor(value)) || r->region->acted)
        return false;
    add_change(r, (put_off){.kind = kind, .n = n, .args = {args[0], args[1], item ? args[2] : 0}, .target = args[0], .plain = true, .effects = r->store_effects});
    r->store_effects = 0;
    r->region->stores = true;
    return true;
}

bool
rec_put_off_append(rec *r, const rec_args *a)
{
    rec_region *g = r->region;
    if (g == NULL || g->acted || g->committing || a->npos != 2 || a->nkw != 0)
        return false;
    add_change(r, (put_off){.kind = KIN_STEP_CALL, .n = 3, .args = {a->callee, a->args[0], a->args[1]}, .target = a->args[0], .plain = true});
    g->stores = true;
    return true;
}

void
rec_name_store(rec *r, uint32_t step, PyObject *name)
{
    kin_ref ref = rec_ref(r, name);
    if (step == 0 && r->region != NULL && r->region->added.len > 0)
        r->region->added.at[r->region->added.len - 1].ref = ref;
    else
        r->t->steps.at[step].ref = ref;
}

/* Steps from `len` on are dropped. What the same instruction has put off cannot be taken back alone. */
void
rec_region_truncate(rec *r, uint32_t len)
{
    for (uint32_t i = 0; i < r->region->added.len; i++) {
        const put_off *change = &r->region->added.at[i];
        bool same = change->frame == r->top && change->offset == r->top->offset;
        if (change->steps > len || (change->steps == len && same))
            rec_refuse(r);
    }
}

/* A later store into the same cell: only the last one counts. Stores under names and keys all do, because the first one may decide about their order. */
static bool
is_overwritten(const rec_region *g, uint32_t i)
{
    for (uint32_t k = i + 1; g->added.at[i].kind == KIN_STEP_CELL_SET && k < g->added.len; k++)
        if (g->added.at[k].kind == KIN_STEP_CELL_SET && g->added.at[k].args[0] == g->added.at[i].args[0])
            return true;
    return false;
}

static void
write_put_off(rec *r, const put_off *change, bool first)
{
    r->store_effects = change->effects;
    uint32_t s = rec_step(r, change->kind, change->plain ? KIN_STEP_EFFECT : KIN_STEP_MUTATES, change->args, change->n);
    if (change->ref != 0)
        r->t->steps.at[s].ref = change->ref;
    if (!first) /* part of the instruction is done: it cannot be done again */
        r->t->steps.at[s].snap = 0;
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

bool
rec_raised_in_region(const rec *r, uint32_t raised)
{
    return r->region != NULL && raised > r->region->nraises;
}

/* The frame that C code has entered, a generator's or a callback's, in which `f` runs; NULL: there is none. */
static const rec_frame *
entered_frame(const rec_frame *f)
{
    while (f != NULL && !f->from_c)
        f = f->back;
    return f;
}

kin_vid
rec_region_handles(const rec *r)
{
    const rec_frame *entered = entered_frame(r->top);
    return entered != NULL && entered->back != NULL ? entered->back->exc : 0;
}

bool
rec_in_generator(const rec_frame *f)
{
    const rec_frame *entered = entered_frame(f);
    return entered != NULL && entered->gen != NULL;
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

/* Is the step one that the region may have? Refuses the region if not. False: the step is put off to the end. */
bool
rec_region_step(rec *r, kin_step_kind kind, unsigned *flags, const kin_vid *args, uint32_t n)
{
    rec_region *g = r->region;
    if (g->committing)
        return true;
    bool ok = !runs_unfollowed(*flags) && !shows_exception(r, kind, args, n);
    if (ok && (is_put_off(r, kind, *flags, args, n) || puts_off_store(r, kind, *flags, args, n)))
        return false;
    bool runs = !(*flags & (KIN_STEP_PURE | KIN_STEP_MUTATES)), looks = runs && !r->reads_words && kind != KIN_STEP_CHECK && kind != KIN_STEP_RAISE && !g->asked_added;
    ok = ok && may_repeat(r, kind, *flags, args, n) && !touches_unwritten(r, kind, args, n);
    if (looks && g->stores && !(*flags & KIN_STEP_TORCH))
        ok = ok && only_atoms(r, args, n);
    if (looks && (g->added.len > 0 || g->changing != 0))
        ok = ok && !reaches_unwritten(r, args, n, 0);
    if (!ok)
        rec_refuse(r);
    if (runs)
        *flags |= KIN_STEP_AGAIN;
    return true;
}

/* The region's instruction changes this little by little: nothing below it may look at that. */
void
rec_region_changes(rec *r, kin_vid vid)
{
    r->region->changing = vid;
    r->region->stores = r->region->stores || VIRTUAL(r, vid) == NULL;
}

rec_raise
rec_region_mark(const rec *r)
{
    return (rec_raise){r->region->before, r->region->snap, false};
}

void
rec_region_puts_back(rec *r, bool on)
{
    uint8_t *grad = &r->t->snaps.at[r->region->snap].grad;
    if (*grad == 0)
        *grad = (uint8_t)(1 + on);
}

bool
rec_region_switches(rec *r, kin_step_kind kind, const kin_vid *args)
{
    bool known = r->t->snaps.at[r->region->snap].grad != 0 && kind == KIN_STEP_CALL && O(r, args[0]) != NULL;
    return known && rec_callable_effects(O(r, args[0])) & KIN_GRAD_MODE;
}

void
rec_region_acts(rec *r)
{
    r->region->acted = true;
}

bool
rec_region_has_acted(const rec *r)
{
    return r->region->acted;
}

/* The region is done: what it did to older objects is put down. */
void
rec_region_commit(rec *r)
{
    rec_region *g = r->region;
    g->committing = true;
    for (uint32_t i = 0; i < g->moved.len; i++) {
        uint32_t s = rec_step(r, KIN_STEP_NEXT, KIN_STEP_MUTATES, &g->moved.at[i], 1);
        r->t->steps.at[s].snap = 0;
    }
    for (uint32_t i = 0; i < g->used_up.len; i++) {
        uint32_t s = rec_step(r, KIN_STEP_USE_UP, KIN_STEP_MUTATES, &g->used_up.at[i], 1);
        r->t->steps.at[s].snap = 0;
    }
    for (uint32_t i = 0; i < g->added.len; i++) {
        if (is_overwritten(g, i))
            continue;
        write_put_off(r, &g->added.at[i], i == 0 && g->moved.len == 0 && g->used_up.len == 0 && !g->acted);
    }
    for (rec_gen *gen = r->gens; gen != NULL; gen = gen->next)
        if (gen->dirty)
            g->user->write_generator(r, gen);
    r->region = NULL;
    rec_region_free(g);
}
