/* Generators made and consumed inside the recorded call, and C functions that run them.
 *
 * A generator is a fresh object (BUILD_GENERATOR) whose shadow frame the recorder keeps. It is resumed by a *consumer*:
 * a FOR_ITER, or a call of one of a few C functions, of which is known what they do with the items. Every resumption
 * is reported by the watcher as a call of the generator's frame, every yield as its return.
 *
 * Frames entered from C cannot be rebuilt while they run, so what runs below the consuming instruction is a *region*:
 * all its steps carry the snapshot before that instruction and the flag AGAIN. An exit anywhere in it, exceptions
 * included, leaves before the instruction, and CPython does the whole of it again. That is sound because
 *   - a region has no step whose repetition can be seen: only pure steps, questions, checks, changes of objects that
 *     were made in the region, and torch calls that leave random state and version counters alone (measured);
 *   - what it does to older iterators and generators is put down only at its end (NEXT, GENERATOR_STATE).
 * GENERATOR_STATE says where a generator is suspended and with what in it, so that an exit, or code that is not
 * watched, finds a real generator in that state. A replay that needs none makes none.
 *
 * Anything else in a region (an effect, opaque code, the end of a segment, an exception, an opcode without a rule)
 * refuses it: the trace is cut back to where it began, the consuming instruction becomes an opaque step, and the
 * frames below it are not watched any more. A yield inside try or with refuses too, since closing the generator
 * runs code there.
 */
#include "py/record/rec.h"

#include "core/diag/breaks.h"
#include "py/compat/generator.h"
#include "py/record/consume.h"
#include "py/record/skip.h"

typedef enum { GEN_NEW, GEN_SUSPENDED, GEN_RUNNING, GEN_DONE, GEN_LOST } gen_state;

typedef struct rec_gen {
    struct rec_gen *next;
    kin_vid vid, func;
    PyCodeObject *code;
    gen_state state;
    bool dirty;            /* its state was not put down yet */
    rec_frame *frame;      /* while suspended or running */
    void *raw;             /* the real frame, once started */
    kin_vid *locals;       /* parameters, bound */
} rec_gen;

typedef struct {
    rec_fresh *fresh;
    uint32_t pos, n;
    bool known, escaped;
} saved_fresh;

typedef struct {
    PyObject *tensor;
    long version;
} saved_version;

typedef struct rec_region {
    rec_frame *base;
    uint32_t snap, steps, nvals, nfacts;
    rec_info *infos;
    saved_fresh *fresh;
    kin_vid *slots;
    KIN_VEC(kin_vid) moved;        /* older iterators that were advanced */
    KIN_VEC(saved_version) versions;
    PyObject *random;              /* state before the first torch call */
    bool committing;
} rec_region;

/* -- regions ---------------------------------------------------------------------------------------------------- */

static void
free_region(rec_region *g)
{
    for (uint32_t i = 0; i < g->versions.len; i++)
        Py_DECREF(g->versions.at[i].tensor);
    kin_vec_deinit(&g->versions);
    kin_vec_deinit(&g->moved);
    Py_XDECREF(g->random);
    free(g->infos);
    free(g->fresh);
    free(g->slots);
    free(g);
}

void
rec_free_consumer(rec_frame *f)
{
    rec_consumer *c = f->consumer;
    f->consumer = NULL;
    for (uint32_t i = 0; c != NULL && i < c->n; i++)
        Py_DECREF(c->held[i]);
    if (c != NULL) {
        free(c->items);
        free(c->held);
        free(c->inputs);
    }
    free(c);
}

static void
save_fresh(rec *r, rec_region *g)
{
    memcpy(g->infos, r->info.at, g->nvals * sizeof *g->infos);
    for (uint32_t i = 0; i < g->nvals; i++) {
        rec_fresh *f = r->info.at[i].fresh;
        if (f != NULL)
            g->fresh[i] = (saved_fresh){f, f->pos, f->n, f->known, f->escaped};
    }
}

/* Begins a region at the current instruction, before its rule has changed anything. */
static bool
open_region(rec *r)
{
    rec_frame *f = r->top;
    (void)rec_seg(r);
    rec_region *g = calloc(1, sizeof *g);
    if (g == NULL)
        return false;
    g->base = f;
    g->snap = rec_snapshot(r);
    g->steps = r->t->steps.len;
    g->nvals = r->info.len;
    g->nfacts = r->t->facts.len;
    g->infos = malloc(g->nvals * sizeof *g->infos);
    g->fresh = calloc(g->nvals, sizeof *g->fresh);
    g->slots = malloc((size_t)(f->nlocals + f->sp + 1) * sizeof *g->slots);
    if (g->infos == NULL || g->fresh == NULL || g->slots == NULL || g->snap == 0) {
        free_region(g);
        return false;
    }
    memcpy(g->slots, f->slots, (size_t)(f->nlocals + f->sp) * sizeof *g->slots);
    save_fresh(r, g);
    r->region = g;
    return true;
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
        fprintf(stderr, "region refused in %s, line %d, at %s\n", PyUnicode_AsUTF8(r->top->code->co_qualname),
                PyCode_Addr2Line(r->top->code, (int)r->top->offset), kin_op_name((kin_op)r->top->op));
    r->refused = true;
    r->stopped = true; /* for the rules, until the region is undone */
}

static void
restore_fresh(rec *r, rec_region *g)
{
    for (uint32_t i = 0; i < g->nvals; i++) {
        rec_info *now = &r->info.at[i], *old = &g->infos[i];
        const saved_fresh *s = &g->fresh[i];
        now->type = old->type;
        now->type_seg = old->type_seg;
        now->tag_seg = old->tag_seg;
        now->as_const = old->as_const;
        now->meta_epoch = 0;
        if (now->fresh != s->fresh) {
            if (now->fresh != NULL)
                now->fresh->known = false;
            continue;
        }
        if (s->fresh == NULL)
            continue;
        s->fresh->known = s->known && s->n <= s->fresh->n;
        s->fresh->n = s->known && s->n <= s->fresh->n ? s->n : s->fresh->n;
        s->fresh->pos = s->pos;
        s->fresh->escaped = s->escaped;
    }
    for (uint32_t i = g->nvals; i < r->info.len; i++)
        r->info.at[i].meta_epoch = 0;
}

/* Every generator that the region touched goes on unwatched. */
static void
lose_generators(rec *r)
{
    for (rec_gen *gen = r->gens; gen != NULL; gen = gen->next) {
        if (!gen->dirty && gen->state != GEN_RUNNING)
            continue;
        if (gen->state == GEN_SUSPENDED)
            free(gen->frame);
        gen->frame = NULL;
        gen->state = GEN_LOST;
        gen->dirty = false;
        if (FRESH(r, gen->vid) != NULL)
            FRESH(r, gen->vid)->known = false;
    }
}

static const consumer_row unpack_row;

/* The consuming instruction as an opaque step. Its operands may be gone by now: nothing looks at their objects. */
static void
do_opaquely(rec *r, const rec_consumer *c)
{
    if (c->row == NULL)
        rec_ask_iter(r, rec_peek(r, 0), c->opaque_row);
    else if (c->row == &unpack_row)
        rec_stop(r, "unpacking of a generator that is not understood");
    else
        rec_call_step(r, c->callee, c->args, c->npos, c->nkw, c->kwnames, c->ndrop, KIN_STEP_OPAQUE | KIN_STEP_EFFECT,
                      c->opaque_row);
}

static void
undo_region(rec *r)
{
    rec_region *g = r->region;
    rec_frame *f = g->base;
    r->region = NULL;
    r->refused = r->stopped = r->call.active = false;
    while (r->top != f) {
        rec_free_consumer(r->top);
        rec_pop_frame(r);
        r->skip++;
    }
    lose_generators(r);
    for (uint32_t i = g->nfacts; i < r->t->facts.len; i++)
        r->t->facts.at[i].undone = true;
    rec_truncate(r, g->steps);
    restore_fresh(r, g);
    memcpy(f->slots, g->slots, (size_t)(f->nlocals + f->sp0) * sizeof *g->slots);
    f->sp = f->sp0;
    f->nundo = 0;
    f->await = AWAIT_NONE;
    free_region(g);
    rec_consumer *c = f->consumer;
    f->consumer = NULL;
    do_opaquely(r, c);
    f->consumer = c;
    rec_free_consumer(f);
    r->foreign = false;
    r->skip_expected = true;
}

void
rec_settle(rec *r)
{
    if (r->refused && r->region != NULL && !r->failed)
        undo_region(r);
}

/* -- what a region may do ---------------------------------------------------------------------------------------- */

static bool
touches_unwritten(rec *r, const kin_vid *args, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        for (uint32_t k = 0; k < r->region->moved.len; k++)
            if (args[i] == r->region->moved.at[k])
                return true;
        for (rec_gen *gen = r->gens; gen != NULL; gen = gen->next)
            if (gen->dirty && gen->vid == args[i])
                return true;
    }
    return false;
}

static PyObject *
random_state(void)
{
    PyObject *torch = PyImport_ImportModule("torch");
    PyObject *gen = torch ? PyObject_GetAttrString(torch, "default_generator") : NULL;
    PyObject *state = gen ? PyObject_CallMethod(gen, "get_state", NULL) : NULL;
    Py_XDECREF(torch);
    Py_XDECREF(gen);
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
    return ok && strcmp(Py_TYPE(obj)->tp_name, "torch._C.Generator") != 0 && !PyDict_Check(obj);
}

static bool
torch_may_repeat(rec *r, kin_step_kind kind, const kin_vid *args, uint32_t n)
{
    if (r->region->random == NULL && (r->region->random = random_state()) == NULL)
        return false;
    for (uint32_t i = kind == KIN_STEP_CALL; i < n; i++)
        if (args[i] != 0 && !note_object(r, O(r, args[i]), 0))
            return false;
    return true;
}

/* Did the region's torch calls change a tensor or draw a random number? */
static bool
torch_has_repeated(rec *r)
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

static bool
is_question(kin_step_kind kind)
{
    switch (kind) {
    case KIN_STEP_BINARY: case KIN_STEP_UNARY: case KIN_STEP_COMPARE: case KIN_STEP_CONTAINS: case KIN_STEP_IS:
    case KIN_STEP_SUBSCR: case KIN_STEP_GETATTR: case KIN_STEP_LEN: case KIN_STEP_TRUTH: case KIN_STEP_FORMAT:
    case KIN_STEP_CHECK: case KIN_STEP_CELL_GET: case KIN_STEP_BUILD_STRING: case KIN_STEP_BUILD_MAP:
    case KIN_STEP_BUILD_SET: case KIN_STEP_ITER:
        return true;
    default:
        return false;
    }
}

/* Is the step one that the region may have? Refuses the region if not. False: the step is put off to the end. */
bool
rec_region_step(rec *r, kin_step_kind kind, unsigned *flags, const kin_vid *args, uint32_t n)
{
    rec_region *g = r->region;
    if (g->committing)
        return true;
    bool ok = !(*flags & (KIN_STEP_OPAQUE | KIN_STEP_EFFECT | KIN_STEP_RAISES));
    if (kind == KIN_STEP_NEXT && ok && n == 1 && (*flags & KIN_STEP_MUTATES) && args[0] < g->nvals) {
        if (kin_vec_push(&g->moved, args[0]) != KIN_OK)
            r->status = KIN_NOMEM;
        return false;
    }
    if (*flags & KIN_STEP_MUTATES)
        ok = ok && n > 0 && args[0] >= g->nvals;
    else if (*flags & KIN_STEP_TORCH)
        ok = ok && kind != KIN_STEP_SET_SUBSCR && torch_may_repeat(r, kind, args, n);
    else if (!(*flags & KIN_STEP_PURE))
        ok = ok && is_question(kind);
    if (!ok || touches_unwritten(r, args, n))
        rec_refuse(r);
    if (!(*flags & (KIN_STEP_PURE | KIN_STEP_MUTATES)))
        *flags |= KIN_STEP_AGAIN;
    return true;
}

/* -- the state of generators ------------------------------------------------------------------------------------- */

static rec_gen *
find_generator(rec *r, kin_vid vid)
{
    rec_gen *gen = r->gens;
    while (gen != NULL && gen->vid != vid)
        gen = gen->next;
    return gen;
}

/* A generator that the recorder may resume. */
static rec_gen *
usable_generator(rec *r, kin_vid vid)
{
    rec_fresh *f = vid ? FRESH(r, vid) : NULL;
    if (f == NULL || f->kind != FRESH_GENERATOR || !f->known || f->escaped || O(r, vid) == NULL)
        return NULL;
    rec_gen *gen = find_generator(r, vid);
    return gen != NULL && gen->state != GEN_LOST && gen->state != GEN_RUNNING ? gen : NULL;
}

static void
write_state(rec *r, rec_gen *gen)
{
    rec_frame *f = gen->frame;
    kin_vid args[256];
    uint32_t n = 0;
    kin_ref ref = 0;
    args[n++] = gen->vid;
    if (gen->state == GEN_SUSPENDED) {
        PyObject *where = Py_BuildValue("(OI)", gen->code, (unsigned)f->offset);
        ref = rec_ref(r, where);
        Py_XDECREF(where);
        memcpy(args + 1, f->slots, (size_t)(f->nlocals + f->sp) * sizeof *args);
        n += (uint32_t)(f->nlocals + f->sp);
    }
    rec_fresh *fresh = FRESH(r, gen->vid);
    for (uint32_t i = 1; fresh != NULL && i < n; i++)
        if (args[i] != 0)
            rec_fresh_push(fresh, args[i]);
    uint32_t s = rec_step(r, KIN_STEP_GENERATOR_STATE, KIN_STEP_MUTATES, args, n);
    r->t->steps.at[s].ref = ref;
    r->t->steps.at[s].snap = 0;
    gen->dirty = false;
}

/* The region is done: what it did to older objects is put down. */
static void
commit_region(rec *r)
{
    rec_region *g = r->region;
    g->committing = true;
    for (uint32_t i = 0; i < g->moved.len; i++) {
        uint32_t s = rec_step(r, KIN_STEP_NEXT, KIN_STEP_MUTATES, &g->moved.at[i], 1);
        r->t->steps.at[s].snap = 0;
    }
    for (rec_gen *gen = r->gens; gen != NULL; gen = gen->next)
        if (gen->dirty)
            write_state(r, gen);
    r->region = NULL;
    free_region(g);
}

void
rec_free_generators(rec *r)
{
    for (rec_frame *f = r->top; f != NULL; f = f->back)
        rec_free_consumer(f);
    while (r->gens != NULL) {
        rec_gen *gen = r->gens;
        r->gens = gen->next;
        if (gen->state == GEN_SUSPENDED && gen->frame != NULL)
            free(gen->frame);
        free(gen->locals);
        free(gen);
    }
    if (r->region != NULL)
        free_region(r->region);
    r->region = NULL;
}

/* -- a new generator --------------------------------------------------------------------------------------------- */

static bool
is_generator_function(PyObject *func)
{
    PyFunctionObject *fn = (PyFunctionObject *)func;
    int flags = ((PyCodeObject *)fn->func_code)->co_flags;
    return (flags & CO_GENERATOR) && (flags & CO_OPTIMIZED) && !(flags & (CO_VARARGS | CO_VARKEYWORDS)) &&
           fn->vectorcall == _PyFunction_Vectorcall && !rec_skips_function(func);
}

static PyObject *
keyword_only_names(PyCodeObject *code)
{
    return code->co_kwonlyargcount ? PyTuple_GetSlice(code->co_localsplusnames, code->co_argcount,
                                                      code->co_argcount + code->co_kwonlyargcount)
                                   : NULL;
}

bool
rec_generator_call(rec *r, kin_vid callee, const kin_vid *args, uint32_t npos, uint32_t nkw, PyObject *kwnames, int ndrop)
{
    PyObject *func = O(r, callee);
    if (!kin_generator_supported() || !is_generator_function(func))
        return false;
    PyCodeObject *code = (PyCodeObject *)((PyFunctionObject *)func)->func_code;
    uint32_t n = (uint32_t)(code->co_argcount + code->co_kwonlyargcount);
    if (n > 200 || code->co_nlocalsplus + code->co_stacksize > 250 ||
        !rec_bind(r, &callee, args, npos, nkw, kwnames))
        return false;
    kin_vid all[256];
    all[0] = callee;
    memcpy(all + 1, r->call.locals, n * sizeof *all);
    rec_gen *gen = calloc(1, sizeof *gen);
    if (gen == NULL || (gen->locals = malloc((n + 1) * sizeof *gen->locals)) == NULL) {
        free(gen);
        return false;
    }
    memcpy(gen->locals, r->call.locals, n * sizeof *gen->locals);
    kin_vid out = rec_step_out(r, KIN_STEP_BUILD_GENERATOR, KIN_STEP_PURE, all, n + 1);
    PyObject *names = keyword_only_names(code);
    kin_ref ref = rec_ref(r, names);
    Py_XDECREF(names);
    r->t->steps.at[r->t->vals.at[out].step].ref = ref;
    rec_make_fresh(r, out, FRESH_GENERATOR, all, n + 1, true);
    r->info.at[out].type = &PyGen_Type;
    *gen = (rec_gen){.next = r->gens, .vid = out, .func = callee, .code = code, .locals = gen->locals};
    r->gens = gen;
    rec_drop(r, ndrop);
    rec_await_result(r, out, r->t->vals.at[out].step);
    return true;
}

/* -- resuming ----------------------------------------------------------------------------------------------------- */

static rec_frame *
start_frame(rec *r, rec_gen *gen, struct _PyInterpreterFrame *f)
{
    rec_frame *rf = rec_push_frame(r, f, gen->code);
    if (rf == NULL)
        return NULL;
    rf->func = gen->func;
    rf->gen = gen;
    rf->from_c = true;
    for (int i = 0; i < gen->code->co_argcount + gen->code->co_kwonlyargcount; i++)
        rf->slots[i] = gen->locals[i];
    gen->raw = f;
    gen->frame = rf;
    return rf;
}

static bool
resume(rec *r, rec_gen *gen, struct _PyInterpreterFrame *f)
{
    if (gen->state == GEN_NEW) {
        if (start_frame(r, gen, f) == NULL) {
            rec_bug(r, "no memory for a shadow frame");
            return false;
        }
    } else {
        rec_frame *rf = gen->frame;
        rf->back = r->top;
        rf->exc = r->top->exc;
        r->top = rf;
        r->depth++;
        rf->ran = false;
        rf->slots[rf->nlocals + rf->sp++] = rec_const(r, Py_None);
    }
    gen->state = GEN_RUNNING;
    gen->dirty = true;
    return true;
}

/* `known`: the frame is a generator of ours that is being closed; it has no handler, so none of its code runs. */
bool
rec_enter_from_c(rec *r, struct _PyInterpreterFrame *f, bool *known)
{
    rec_consumer *c = r->top ? r->top->consumer : NULL;
    if (c != NULL && c->wants && c->gen != NULL && kin_generator_frame(O(r, c->gen->vid)) == f)
        return resume(r, c->gen, f);
    for (rec_gen *gen = r->gens; gen != NULL; gen = gen->next)
        if (gen->state == GEN_SUSPENDED && gen->raw == (void *)f)
            *known = true;
    return false;
}

void
rec_op_yield(rec *r)
{
    rec_frame *f = r->top;
    if (f->gen == NULL || kin_code_handler(f->kc, f->offset) != NULL) {
        rec_stop(r, "a yield that is not understood");
        return;
    }
    r->returned = rec_peek(r, 0);
    rec_drop(r, 1);
}

static void
detach(rec *r, rec_frame *f, bool yielded)
{
    rec_gen *gen = f->gen;
    if (!yielded) {
        gen->state = GEN_DONE;
        gen->frame = NULL;
        rec_pop_frame(r);
        return;
    }
    gen->state = GEN_SUSPENDED;
    r->top = f->back;
    r->depth--;
    f->back = NULL;
}

/* -- consumers ---------------------------------------------------------------------------------------------------- */

static bool
push_item(rec_consumer *c, kin_vid vid, PyObject *obj)
{
    if (c->n == c->cap) {
        uint32_t cap = c->cap ? 2 * c->cap : 8;
        kin_vid *items = realloc(c->items, cap * sizeof *items);
        if (items != NULL)
            c->items = items;
        PyObject **held = items ? realloc(c->held, cap * sizeof *held) : NULL;
        if (held == NULL)
            return false;
        c->held = held;
        c->cap = cap;
    }
    c->items[c->n] = vid;
    c->held[c->n++] = Py_NewRef(obj);
    return true;
}

static void
rec_unpush_item(rec_consumer *c)
{
    Py_DECREF(c->held[--c->n]);
}

static void
take(rec *r, rec_consumer *c, kin_vid vid, PyObject *obj)
{
    if (O(r, vid) == NULL)
        rec_set_obj(r, vid, obj);
    if (c->n >= 2000 || !push_item(c, vid, obj)) {
        rec_refuse(r);
        return;
    }
    if (c->select) {
        int truth = rec_truth(r, vid);
        if (truth < 0)
            rec_refuse(r);
        rec_unpush_item(c);
        if (truth <= 0 || !push_item(c, c->inputs[c->at], O(r, c->inputs[c->at])))
            return;
        vid = c->inputs[c->at];
    }
    take_rule rule = c->row ? c->row->rule : TAKE_ONE;
    if (rule == TAKE_ONE)
        c->wants = false;
    if (rule != TAKE_WHILE_TRUE && rule != TAKE_WHILE_FALSE)
        return;
    int truth = rec_truth(r, vid);
    if (truth < 0)
        rec_refuse(r);
    else if (truth == (rule == TAKE_WHILE_FALSE))
        c->wants = false;
}

bool
rec_leave_to_c(rec *r, rec_frame *f, PyObject *value)
{
    if (r->region == NULL || f == r->region->base) {
        if (f->consumer != NULL && value == NULL) { /* the consuming instruction raised, and nothing handles it here */
            rec_refuse(r);
            rec_settle(r);
        }
        return false;
    }
    if (value == NULL) {
        if (f->gen != NULL)
            detach(r, f, false);
        else
            rec_pop_frame(r);
        rec_refuse(r);
        rec_settle(r);
        return true;
    }
    if (!f->from_c)
        return false;
    rec_frame *base = f->back;
    kin_vid result = r->returned;
    bool yielded = f->gen != NULL && f->op == KIN_OP_YIELD_VALUE;
    if (f->gen == NULL)
        rec_pop_frame(r);
    else
        detach(r, f, yielded);
    rec_consumer *c = base->consumer;
    if (c == NULL)
        rec_refuse(r);
    else if (c->gen == NULL)
        take(r, c, result, value), (c->row->then ? c->row->then : rec_next_callback)(r, c);
    else if (yielded)
        take(r, c, result, value);
    else
        c->ended = true, c->wants = false;
    rec_settle(r);
    return true;
}

/* `gen`: NULL when callbacks are waited for. */
rec_consumer *
rec_begin_consumer(rec *r, struct rec_gen *gen)
{
    if (r->depth >= 100)
        return NULL;
    bool opened = r->region == NULL;
    if (opened && !open_region(r))
        return NULL;
    rec_consumer *c = calloc(1, sizeof *c);
    if (c == NULL) {
        if (opened) {
            free_region(r->region);
            r->region = NULL;
        }
        return NULL;
    }
    c->gen = gen;
    c->wants = gen == NULL || gen->state != GEN_DONE;
    c->ended = !c->wants;
    r->top->consumer = c;
    r->top->await = AWAIT_CONSUMER;
    return c;
}

bool
rec_consume_for(rec *r, kin_vid it)
{
    rec_gen *gen = usable_generator(r, it);
    int row = gen ? rec_iter_row(r, it) : -1;
    rec_consumer *c = gen ? rec_begin_consumer(r, gen) : NULL;
    if (c != NULL)
        c->opaque_row = row;
    return c != NULL;
}

static bool
finish_for(rec *r, rec_consumer *c, rec_frame *f, uint32_t offset)
{
    if (offset != (c->ended ? f->jump : f->next) || f->jump == f->next)
        return false;
    if (c->ended)
        rec_drop(r, 1);
    else
        rec_push(r, c->items[0]);
    return true;
}

/* -- what the C functions make of the items -------------------------------------------------------------------- */

bool
rec_items_constant(rec *r, rec_consumer *c)
{
    for (uint32_t i = 0; i < c->n; i++)
        if (!kin_is_exact_immutable(O(r, c->items[i])) || rec_need_const(r, c->items[i]) == 0)
            return false;
    return true;
}

static void
push_result(rec *r, rec_consumer *c, kin_vid out)
{
    rec_drop(r, c->ndrop);
    rec_await_result(r, out, r->t->vals.at[out].step);
}

/* min, max, sum, str.join, frozenset of constants: a constant. Other arguments must be constant, too. */
static bool
finish_constant(rec *r, rec_consumer *c)
{
    for (uint32_t i = 0; i < c->npos; i++)
        if (c->args[i] != c->source &&
            (!kin_is_exact_immutable(O(r, c->args[i])) || rec_need_const(r, c->args[i]) == 0))
            return false;
    if (!rec_items_constant(r, c))
        return false;
    rec_drop(r, c->ndrop);
    rec_await_const(r);
    return true;
}

/* sum() of tensors: the additions it makes are nodes of the graph. */
static bool
finish_sum(rec *r, rec_consumer *c)
{
    bool tensors = c->n > 0 && c->npos <= 2;
    for (uint32_t i = 0; tensors && i < c->n; i++)
        tensors = kin_is_plain_tensor(O(r, c->items[i]));
    if (!tensors)
        return finish_constant(r, c);
    PyObject *zero = PyLong_FromLong(0);
    kin_vid acc = c->npos == 2 ? c->args[1] : rec_const(r, zero);
    Py_XDECREF(zero);
    if (!kin_is_plain_tensor(O(r, acc)) && rec_need_const(r, acc) == 0)
        return false;
    for (uint32_t i = 0; i < c->n; i++) {
        rec_need_type(r, c->items[i]);
        kin_vid pair[2] = {rec_as_const(r, acc), c->items[i]};
        acc = rec_step_out(r, KIN_STEP_BINARY, KIN_STEP_TORCH, pair, 2);
        r->info.at[acc].obj = c->held[i]; /* of its type, and alive: the sums in between are not */
    }
    r->info.at[acc].obj = NULL;
    push_result(r, c, acc);
    return true;
}

static bool
finish_answer(rec *r, rec_consumer *c)
{
    bool stopped = !c->ended;
    bool answer = c->row->rule == TAKE_WHILE_TRUE ? !stopped : stopped;
    rec_drop(r, c->ndrop);
    rec_push(r, rec_const(r, answer ? Py_True : Py_False));
    return true;
}

static bool
finish_tuple(rec *r, rec_consumer *c)
{
    push_result(r, c, rec_build_tuple(r, c->items, c->n, NULL));
    return true;
}

bool
rec_finish_list(rec *r, rec_consumer *c)
{
    kin_vid out = rec_step_out(r, KIN_STEP_BUILD_LIST, KIN_STEP_PURE, c->items, c->n);
    rec_make_fresh(r, out, FRESH_LIST, c->items, c->n, true);
    r->info.at[out].type = &PyList_Type;
    push_result(r, c, out);
    return true;
}

/* sorted() of constants: the list it made has them in their order. */
static bool
finish_sorted(rec *r, rec_consumer *c)
{
    rec_frame *f = r->top;
    PyObject *list = kin_watch_localsplus(f->f)[f->nlocals + f->sp - c->ndrop];
    if (!rec_items_constant(r, c) || !PyList_CheckExact(list) || PyList_GET_SIZE(list) != (Py_ssize_t)c->n)
        return false;
    for (uint32_t i = 0; i < c->n; i++)
        c->items[i] = rec_const(r, PyList_GET_ITEM(list, i));
    return rec_finish_list(r, c);
}

static bool
finish_set(rec *r, rec_consumer *c)
{
    if (!rec_items_constant(r, c))
        return false;
    kin_vid call[2] = {c->callee, rec_build_tuple(r, c->items, c->n, NULL)};
    kin_vid out = rec_step_out(r, KIN_STEP_CALL, KIN_STEP_PURE, call, 2);
    rec_make_fresh(r, out, FRESH_SET, NULL, 0, false);
    r->info.at[out].type = &PySet_Type;
    push_result(r, c, out);
    return true;
}

/* dict() of pairs with constant keys, no key twice. */
static bool
finish_dict(rec *r, rec_consumer *c)
{
    kin_vid *pairs = malloc((2 * c->n + 1) * sizeof *pairs);
    bool ok = pairs != NULL;
    for (uint32_t i = 0; ok && i < c->n; i++) {
        rec_fresh *f = FRESH(r, c->items[i]);
        ok = f != NULL && f->kind == FRESH_TUPLE && f->known && f->n == 2 && O(r, f->items[0]) != NULL &&
             PyUnicode_CheckExact(O(r, f->items[0])) && (pairs[2 * i] = rec_need_const(r, f->items[0])) != 0;
        if (ok)
            pairs[2 * i + 1] = f->items[1];
        for (uint32_t k = 0; ok && k < i; k++)
            ok = !kin_exact_equal(O(r, pairs[2 * k]), O(r, pairs[2 * i]));
    }
    if (ok) {
        kin_vid out = rec_step_out(r, KIN_STEP_BUILD_MAP, KIN_STEP_PURE, pairs, 2 * c->n);
        rec_make_fresh(r, out, FRESH_DICT, pairs, 2 * c->n, true);
        r->info.at[out].type = &PyDict_Type;
        push_result(r, c, out);
    }
    free(pairs);
    return ok;
}

/* next(): the item, or the default. */
static bool
finish_next(rec *r, rec_consumer *c)
{
    if (c->ended && c->npos < 2)
        return false;
    kin_vid value = c->ended ? c->args[1] : c->items[0];
    rec_drop(r, c->ndrop);
    rec_push(r, value);
    return true;
}

/* a, b = generator */
static bool
finish_unpack(rec *r, rec_consumer *c)
{
    if (!c->ended || c->n != c->npos)
        return false;
    rec_drop(r, 1);
    for (uint32_t i = c->n; i-- > 0;)
        rec_push(r, c->items[i]);
    return true;
}

static const consumer_row unpack_row = {"", TAKE_ALL, finish_unpack};

bool
rec_consume_unpack(rec *r, kin_vid vid, int n)
{
    rec_gen *gen = usable_generator(r, vid);
    rec_consumer *c = gen ? rec_begin_consumer(r, gen) : NULL;
    if (c == NULL)
        return false;
    c->row = &unpack_row;
    c->source = vid;
    c->npos = (uint32_t)n;
    return true;
}

static const consumer_row rows[] = {
    {"all", TAKE_WHILE_TRUE, finish_answer}, {"any", TAKE_WHILE_FALSE, finish_answer}, {"next", TAKE_ONE, finish_next},
    {"tuple", TAKE_ALL, finish_tuple}, {"list", TAKE_ALL, rec_finish_list}, {"sum", TAKE_ALL, finish_sum},
    {"min", TAKE_ALL, finish_constant}, {"max", TAKE_ALL, finish_constant}, {"set", TAKE_ALL, finish_set},
    {"frozenset", TAKE_ALL, finish_constant}, {"dict", TAKE_ALL, finish_dict}, {"sorted", TAKE_ALL, finish_sorted},
    {"join", TAKE_ALL, finish_constant}, {NULL, TAKE_ALL, NULL}};

/* The row of a builtin function, a builtin class or str.join, found by identity. */
const consumer_row *
rec_consumer_row(PyObject *callee)
{
    PyObject *builtins = PyEval_GetBuiltins();
    if (!PyCFunction_Check(callee) && !PyType_Check(callee) && Py_TYPE(callee) != &PyMethodDescr_Type)
        return NULL;
    for (const consumer_row *row = rows; row->name; row++) {
        PyObject *dict = strcmp(row->name, "join") == 0 ? PyUnicode_Type.tp_dict : builtins;
        if (PyDict_GetItemString(dict, row->name) == callee)
            return row;
    }
    return NULL;
}

bool
rec_consume_call(rec *r, kin_vid callee, const kin_vid *args, uint32_t npos, uint32_t nkw, PyObject *kwnames, int ndrop)
{
    uint32_t at = npos;
    if (rec_consume_callbacks(r, callee, args, npos, nkw, kwnames, ndrop) ||
        rec_consume_iterables(r, callee, args, npos, nkw, kwnames, ndrop))
        return true;
    if (nkw != 0 || npos == 0 || npos > 2 || r->gens == NULL)
        return false;
    for (uint32_t i = 0; i < npos; i++)
        if (FRESH(r, args[i]) != NULL && FRESH(r, args[i])->kind == FRESH_GENERATOR)
            at = i;
    const consumer_row *row = at < npos ? rec_consumer_row(O(r, callee)) : NULL;
    if (row == NULL || at != (strcmp(row->name, "join") == 0 ? 1u : 0u))
        return false;
    if (npos == 2 && at == 0 && row->finish != finish_sum && row->finish != finish_next)
        return false;
    rec_gen *gen = usable_generator(r, args[at]);
    rec_consumer *c = gen ? rec_begin_consumer(r, gen) : NULL;
    if (c == NULL)
        return false;
    c->row = row;
    c->source = args[at];
    c->callee = callee;
    c->opaque_row = rec_opaque_row(r, callee, args, npos + nkw);
    c->npos = npos;
    c->ndrop = ndrop;
    memcpy(c->args, args, npos * sizeof *args);
    return true;
}

bool
rec_end_consumer(rec *r)
{
    rec_frame *f = r->top;
    bool base = r->region != NULL && r->region->base == f;
    if (r->refused || r->foreign || (base && !torch_has_repeated(r))) {
        rec_refuse(r);
        return false;
    }
    rec_free_consumer(f);
    if (base)
        commit_region(r);
    return true;
}

/* The consuming instruction of `f` is over, the next one is at `offset`. */
bool
rec_finish_consumer(rec *r, rec_frame *f, uint32_t offset)
{
    rec_consumer *c = f->consumer;
    if (c == NULL) {
        if (r->region != NULL && offset != f->next && offset != f->jump)
            rec_refuse(r); /* an exception found a handler */
        return !r->refused;
    }
    bool base = r->region != NULL && r->region->base == f, ok = !r->foreign && !c->wants;
    r->foreign = false;
    if (c->row == NULL)
        ok = ok && finish_for(r, c, f, offset);
    else
        ok = ok && offset == f->next && c->row->finish(r, c);
    if (!ok || r->refused || (base && !torch_has_repeated(r))) {
        rec_refuse(r);
        if (!base)
            return false;
        undo_region(r);
        return true;
    }
    if (f->await == AWAIT_CONSUMER)
        f->await = AWAIT_NONE;
    if (c->row == NULL && c->ended)
        f->next = offset;
    rec_free_consumer(f);
    if (base)
        commit_region(r);
    return true;
}
