/* Generators that are closed or thrown into while they are suspended: close(), throw(), and the death of the last reference.
 *
 * CPython resumes the frame with an exception, which a step RAISE raises again at replay. What the frame does then is recorded like what it does between
 * two items, in a region (recorder/region.c): that of the call of close() or throw(), or of the instruction in which the last reference goes. Such an
 * instruction only drops something (the end of a loop, `del`, an assignment), so it can be done again where the region is left.
 */
#include "py/compat/heap.h"
#include "py/iterators/consume.h"

/* The suspended generator goes on with an exception, that of a class or an instance. */
bool
rec_throw_into(rec *r, rec_gen *gen, kin_vid what)
{
    rec_resume_frame(r, gen);
    rec_frame *rf = gen->frame;
    rf->slots[rf->nlocals + rf->sp++] = rec_const(r, Py_None); /* what it would have been sent */
    r->thrown = what; /* the driver has it raised */
    return true;
}

void
rec_close(rec *r, rec_consumer *c)
{
    c->thrown = rec_const(r, PyExc_GeneratorExit);
    c->wants = c->gen->closing = true;
}

/* -- throw() ------------------------------------------------------------------------------------------------------------ */

static const consumer_row throwing = {"throw", TAKE_ONE, rec_finish_send, .raises = true, .of = &PyGen_Type, .takes = ITEMS_AND_MORE};

/* What throw(class), throw(instance) or throw(class, instance, traceback of the instance) raises; 0: something else. */
static kin_vid
thrown_by(rec *r, const rec_args *a)
{
    PyObject *first = O(r, a->args[1]), *second = a->npos > 2 ? O(r, a->args[2]) : Py_None, *tb = a->npos > 3 ? O(r, a->args[3]) : Py_None;
    if (first == NULL || second == NULL || tb == NULL)
        return 0;
    kin_vid what = second != Py_None ? a->args[2] : a->args[1];
    PyObject *raised = O(r, what);
    if (!PyExceptionInstance_Check(raised)) {
        bool made_in_c = PyExceptionClass_Check(raised) && !(((PyTypeObject *)raised)->tp_flags & Py_TPFLAGS_HEAPTYPE);
        return made_in_c && second == Py_None && tb == Py_None ? rec_need_const(r, what) : 0;
    }
    PyObject *own = PyException_GetTraceback(raised);
    bool same = (tb == Py_None || tb == own) && (second == Py_None || first == (PyObject *)Py_TYPE(raised));
    Py_XDECREF(own);
    return same ? what : 0;
}

/* The iterator that a generator has delegated to is asked first, in a frame of its own that CPython starts without a word: that is not followed. */
bool
rec_consume_throw(rec *r, const rec_args *a)
{
    if (a->nkw != 0 || a->npos < 2 || a->npos > 4 || O(r, a->callee) != PyDict_GetItemString(kin_type_dict(&PyGen_Type), throwing.name))
        return false;
    rec_gen *gen = rec_usable_generator(r, a->args[0]);
    if (gen == NULL || gen->state != GEN_SUSPENDED || gen->delegates)
        return false;
    kin_vid what = thrown_by(r, a);
    rec_consumer *c = what != 0 ? rec_begin_consumer(r, gen) : NULL;
    if (c == NULL)
        return false;
    c->row = &throwing;
    c->source = a->args[0];
    c->thrown = what;
    rec_consume_as(r, c, a);
    return true;
}

/* -- the last reference goes ------------------------------------------------------------------------------------------- */

static bool
finish_dropping(rec *r, rec_consumer *c)
{
    (void)r, (void)c;
    return true;
}

static void
leave_open(rec *r, const rec_consumer *c)
{
    rec_leave_open(r, c->gen);
}

static const consumer_row dropping = {"", TAKE_ONE, finish_dropping, .refused = leave_open};

/* An instruction that has done nothing but drop what it has overwritten or popped. */
static bool
only_drops(const rec *r)
{
    const rec_frame *f = r->top;
    bool drops = f->op == KIN_DO_POP || f->op == KIN_DO_STORE_LOCAL || f->op == KIN_DO_DELETE_LOCAL;
    return drops && f->in->ndoes == 1 && f->await == AWAIT_NONE && f->consumer == NULL && r->t->steps.len == f->steps0;
}

/* Between a return and what comes next: the locals of the frame go. */
static bool
has_left(const rec *r)
{
    const rec_frame *f = r->top;
    return r->left_snap != 0 && f->await == AWAIT_NONE && f->consumer == NULL && r->t->steps.len == r->left_steps;
}

bool
rec_closes_dropped(rec *r, rec_gen *gen)
{
    if (r->call.active || r->refused || gen->resumed.snap == 0 || r->top == NULL || (r->pending != 0 && !r->top->gen))
        return false;
    bool left = has_left(r);
    if (r->region == NULL && ((!left && !only_drops(r)) || !rec_begin_dropping(r, &dropping, gen, left ? r->left_snap : 0)))
        return false;
    gen->closing = true;
    gen->interrupts = r->pending;
    r->pending = 0;
    return rec_throw_into(r, gen, rec_const(r, PyExc_GeneratorExit));
}

bool
rec_waits_guarded(const rec *r)
{
    for (const rec_gen *gen = r->gens; gen != NULL; gen = gen->next)
        if (gen->state == GEN_SUSPENDED && gen->guarded)
            return true;
    return false;
}

void
rec_before_drop(rec *r, kin_vid dropped)
{
    if (dropped != 0 && rec_waits_guarded(r))
        (void)rec_snapshot(r);
}

void
rec_before_return(rec *r)
{
    if (r->region != NULL || r->stopped || !rec_waits_guarded(r))
        return;
    (void)rec_epoch(r);
    r->left_snap = rec_snapshot(r);
    r->left_steps = r->t->steps.len;
    r->returning = r->top->back == NULL ? rec_peek(r, 0) : 0;
}

void
rec_end_return(rec *r)
{
    rec_frame *f = r->top;
    kin_vid value = r->returning;
    r->returning = 0;
    if (f->consumer != NULL)
        (void)rec_finish_consumer(r, f, f->next);
    if (r->stopped)
        return;
    rec_step(r, KIN_STEP_RETURN, 0, &value, 1);
    r->done = !rec_leaves_generator(r);
}

/* -- the frame ends ------------------------------------------------------------------------------------------------------ */

/* Is that the end which close() waits for? */
static bool
ends_as_closed(rec *r, const rec_frame *f, PyObject *value)
{
    if (value != NULL)
        return value == Py_None && f->op != KIN_DO_YIELD && r->pending == 0;
    PyObject *type = r->pending != 0 ? (PyObject *)r->info.at[r->pending].type : NULL;
    return type != NULL && (PyErr_GivenExceptionMatches(type, PyExc_GeneratorExit) || PyErr_GivenExceptionMatches(type, PyExc_StopIteration));
}

bool
rec_leave_closed(rec *r, rec_frame *f, PyObject *value)
{
    rec_gen *gen = f->gen;
    if (gen == NULL || !gen->closing)
        return false;
    bool ends = ends_as_closed(r, f, value);
    rec_consumer *c = f->back->consumer;
    bool asked = c != NULL && c->gen == gen && c->thrown != 0, passes = asked && !ends && value == NULL && r->pending != 0;
    gen->closing = false;
    rec_generator_detach(r, f, false);
    if (asked) {
        c->ended = true;
        c->wants = false;
        c->raised = passes;
    }
    if (ends)
        r->pending = gen->interrupts;
    else if (!passes)
        rec_refuse(r);
    rec_settle(r);
    return true;
}
