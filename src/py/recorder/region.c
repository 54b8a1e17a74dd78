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
#include "py/compat/kinds.h"
#include "py/recorder/region_priv.h"

/* -- regions ---------------------------------------------------------------------------------------------------- */

void
rec_region_free(rec_region *g)
{
    for (uint32_t i = 0; i < g->versions.len; i++)
        Py_DECREF(g->versions.at[i].tensor);
    kin_vec_deinit(&g->versions);
    kin_vec_deinit(&g->moved);
    kin_vec_deinit(&g->used_up);
    kin_vec_deinit(&g->deferred);
    kin_vec_deinit(&g->cells);
    kin_vec_deinit(&g->filled);
    Py_XDECREF(g->random);
    free(g->infos);
    free(g->virtual);
    free(g->slots);
    free(g);
}

static bool
save_values(rec *r, rec_region *g)
{
    g->infos = malloc(g->nvals * sizeof *g->infos);
    for (uint32_t i = 0; g->infos != NULL && i < g->nvals; i++) {
        const rec_info *now = &r->info.at[i];
        g->infos[i] = (saved_info){now->type, now->type_epoch, now->as_const, now->virtual};
        g->nvirtual += now->virtual != NULL;
    }
    g->virtual = malloc((g->nvirtual + 1) * sizeof *g->virtual);
    if (g->infos == NULL || g->virtual == NULL)
        return false;
    uint32_t n = 0;
    for (uint32_t i = 0; i < g->nvals; i++) {
        rec_virtual *f = g->infos[i].virtual;
        if (f != NULL)
            g->virtual[n++] = (saved_virtual){i, f, f->pos, f->n, f->gone, f->let_go, f->known, f->escaped};
    }
    return true;
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
    int nslots = f->nlocals + (f->sp > f->sp0 ? f->sp : f->sp0);
    g->slots = malloc((size_t)(nslots + 1) * sizeof *g->slots);
    if (!save_values(r, g) || g->slots == NULL || g->snap == 0) {
        rec_region_free(g);
        return false;
    }
    memcpy(g->slots, f->slots, (size_t)nslots * sizeof *g->slots);
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
        rec_info *now = &r->info.at[i];
        const saved_info *old = &g->infos[i];
        now->type = old->type;
        now->type_epoch = old->type_epoch;
        now->as_const = old->as_const;
        now->meta_epoch = 0;
        if (now->virtual != old->virtual && now->virtual != NULL)
            now->virtual->known = false;
    }
    for (uint32_t i = 0; i < g->nvirtual; i++) {
        const saved_virtual *s = &g->virtual[i];
        if (r->info.at[s->vid].virtual != s->virtual)
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

/* -- changes deferred to its end ----------------------------------------------------------------------------------- */

static void
defer(rec *r, deferred_change change)
{
    change.steps = r->t->steps.len;
    change.offset = r->top->offset;
    change.frame = r->top;
    if (kin_vec_push(&r->region->deferred, change) != KIN_OK)
        r->status = KIN_NOMEM;
}

/* Does it add to, or fill, an object made here that nobody else can reach? */
static bool
changes_virtual(rec *r, kin_changes changes, const rec_virtual *f, uint32_t n)
{
    if (f == NULL || f->escaped)
        return false;
    switch (changes) {
    case KIN_CHANGES_CONTENTS:
        return n == 2;
    case KIN_CHANGES_CELL:
        return n == 2 && f->kind == VIRTUAL_CELL && f->known && f->n == 1;
    case KIN_CHANGES_ATTRIBUTE:
        return n == 2 && f->kind == VIRTUAL_OBJECT && f->known && r->may_wait;
    case KIN_CHANGES_ITEM:
        return n == 3 && f->kind == VIRTUAL_DICT && f->known && r->may_wait;
    default:
        return false;
    }
}

/* Changes of what is older than the region are deferred to its end: nothing in it may ask about them. */
bool
region_defers_change(rec *r, kin_step_kind kind, unsigned flags, const kin_vid *args, uint32_t n)
{
    rec_region *g = r->region;
    if (!(flags & KIN_STEP_MUTATES) || n == 0 || args[0] >= g->nvals)
        return false;
    kin_status status = KIN_OK;
    rec_virtual *f = VIRTUAL(r, args[0]);
    kin_changes changes = kin_kind_changes(kind);
    if (changes == KIN_CHANGES_POSITION && n == 1) {
        status = kin_vec_push(&g->moved, args[0]);
    } else if (changes == KIN_CHANGES_END) {
        status = kin_vec_push(&g->used_up, args[0]);
    } else if (changes_virtual(r, changes, f, n)) {
        if (changes == KIN_CHANGES_CELL)
            status = kin_vec_push(&g->cells, ((saved_cell){f, f->items[0]}));
        else if (changes != KIN_CHANGES_CONTENTS)
            status = kin_vec_push(&g->filled, f);
        defer(r, (deferred_change){.kind = kind, .n = n, .args = {args[0], args[1], n > 2 ? args[2] : 0}, .target = args[0]});
    } else {
        return false;
    }
    if (status != KIN_OK)
        r->status = status;
    return true;
}

/* A store that changes one word, to which nothing can react, of something that nothing follows the death of. */
bool
region_defers_store(rec *r, kin_step_kind kind, unsigned flags, const kin_vid *args, uint32_t n)
{
    bool item = kin_kind_changes(kind) == KIN_CHANGES_ITEM;
    uint32_t at = item ? 2 : 1;
    if (!r->may_wait || !(flags & KIN_STEP_EFFECT) || !(r->store_effects & KIN_FITS) || kin_kind_changes(kind) < KIN_CHANGES_CELL || n != at + 1 || args[at] == 0)
        return false;
    PyObject *value = O(r, args[at]);
    if (value == NULL || !(kin_is_exact_immutable(value) || kin_is_plain_tensor(value)) || r->region->acted)
        return false;
    defer(r, (deferred_change){.kind = kind, .n = n, .args = {args[0], args[1], item ? args[2] : 0}, .target = args[0], .plain = true, .effects = r->store_effects});
    r->store_effects = 0;
    r->region->stores = true;
    return true;
}

bool
rec_defer_append(rec *r, const rec_args *a)
{
    rec_region *g = r->region;
    if (g == NULL || g->acted || g->committing || a->npos != 2 || a->nkw != 0)
        return false;
    defer(r, (deferred_change){.kind = KIN_STEP_CALL, .n = 3, .args = {a->callee, a->args[0], a->args[1]}, .target = a->args[0], .plain = true});
    g->stores = true;
    return true;
}

void
rec_name_store(rec *r, uint32_t step, PyObject *name)
{
    kin_ref ref = rec_ref(r, name);
    if (step == 0 && r->region != NULL && r->region->deferred.len > 0)
        r->region->deferred.at[r->region->deferred.len - 1].ref = ref;
    else
        r->t->steps.at[step].ref = ref;
}

/* Steps from `len` on are dropped. What the same instruction has deferred cannot be taken back alone. */
void
rec_region_truncate(rec *r, uint32_t len)
{
    for (uint32_t i = 0; i < r->region->deferred.len; i++) {
        const deferred_change *change = &r->region->deferred.at[i];
        bool same = change->frame == r->top && change->offset == r->top->offset;
        if (change->steps > len || (change->steps == len && same))
            rec_refuse(r);
    }
}

/* A later store into the same cell: only the last one counts. Stores under names and keys all do, because the first one may decide about their order. */
static bool
is_overwritten(const rec_region *g, uint32_t i)
{
    for (uint32_t k = i + 1; g->deferred.at[i].kind == KIN_STEP_CELL_SET && k < g->deferred.len; k++)
        if (g->deferred.at[k].kind == KIN_STEP_CELL_SET && g->deferred.at[k].args[0] == g->deferred.at[i].args[0])
            return true;
    return false;
}

static void
write_deferred(rec *r, const deferred_change *change, bool first)
{
    r->store_effects = change->effects;
    uint32_t s = rec_step(r, change->kind, change->plain ? KIN_STEP_EFFECT : KIN_STEP_MUTATES, change->args, change->n);
    if (change->ref != 0)
        r->t->steps.at[s].ref = change->ref;
    if (!first) /* part of the instruction is done: it cannot be done again */
        r->t->steps.at[s].snap = 0;
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
    for (uint32_t i = 0; i < g->deferred.len; i++) {
        if (is_overwritten(g, i))
            continue;
        write_deferred(r, &g->deferred.at[i], i == 0 && g->moved.len == 0 && g->used_up.len == 0 && !g->acted);
    }
    for (rec_gen *gen = r->gens; gen != NULL; gen = gen->next)
        if (gen->dirty)
            g->user->write_generator(r, gen);
    r->region = NULL;
    rec_region_free(g);
}
