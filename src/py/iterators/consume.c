/* Consumers: instructions whose C code resumes generators or calls back, from their beginning to their end.
 *
 * A consumer is an iteration of a for loop, an unpacking, or a call of one of a few C functions (consume_rows.c, callbacks.c, iterables.c) whose
 * use of the items is known. What runs below it is a region (region.c).
 */
#include "py/iterators/consume.h"
#include "py/objects/objects.h"

void
rec_free_consumer(rec_frame *f)
{
    rec_consumer *c = f->consumer;
    f->consumer = NULL;
    for (uint32_t i = 0; c != NULL && i < c->n; i++)
        Py_DECREF(c->held[i]);
    for (uint32_t i = 0; c != NULL && i < c->operands.len; i++)
        Py_XDECREF(c->operands.at[i].held);
    for (uint32_t i = 0; c != NULL && i < c->kept.len; i++)
        Py_DECREF(c->kept.at[i]);
    if (c != NULL) {
        kin_vec_deinit(&c->kept);
        kin_vec_deinit(&c->asks);
        kin_vec_deinit(&c->operands);
        free(c->items);
        free(c->held);
        free(c->inputs);
    }
    free(c);
}

static void forget_operands(rec *r, const rec_consumer *c);

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

/* An item that is known, though its object may not be there yet. */
void
rec_take_item(rec *r, rec_consumer *c, kin_vid item)
{
    if (!push_item(c, item, O(r, item) ? O(r, item) : Py_None))
        rec_refuse(r);
}

static void
rec_unpush_item(rec_consumer *c)
{
    Py_DECREF(c->held[--c->n]);
}

/* obj: NULL where it is not there yet. */
static void
take(rec *r, rec_consumer *c, kin_vid vid, PyObject *obj)
{
    take_rule rule = c->row ? c->row->rule : TAKE_ONE;
    bool decides = rule == TAKE_WHILE_TRUE || rule == TAKE_WHILE_FALSE;
    if (O(r, vid) == NULL && obj != NULL)
        rec_set_obj(r, vid, obj);
    if (c->n >= 2000 || (decides && O(r, vid) == NULL) || !push_item(c, vid, obj != NULL ? obj : Py_None)) {
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
    if (rule == TAKE_ONE)
        c->wants = false;
    if (!decides)
        return;
    int truth = rec_truth(r, vid);
    if (truth < 0)
        rec_refuse(r);
    else if (truth == (rule == TAKE_WHILE_FALSE))
        c->wants = false;
}

bool
rec_take(rec *r, rec_consumer *c, kin_vid item)
{
    c->wants = true;
    take(r, c, item, O(r, item));
    bool more = c->wants && !r->refused;
    c->wants = false;
    return more;
}

/* next(), send() and throw() of a generator, which raise StopIteration where it gives no item. */
static bool
stops_without_item(const rec_consumer *c)
{
    return c->row != NULL && c->row->raises && (c->thrown != 0 || c->call.npos == 1 + (c->sent != 0));
}

static void
end(rec *r, rec_consumer *c, kin_vid returned, PyObject *value)
{
    c->ended = true;
    c->wants = false;
    c->returned = returned;
    bool kept = c->sends || stops_without_item(c); /* as the instruction's result, or in its exception */
    if (kept && O(r, returned) == NULL)
        rec_set_obj(r, returned, value);
}

/* C code that makes something new of a generator's items drops it. To what asks others, or calls back, exceptions may mean something. */
static bool
drops_all(const rec_consumer *c, const rec_gen *gen)
{
    bool plain = c != NULL && gen != NULL && c->gen == gen && c->asked == 0 && c->callback == 0 && !c->measuring;
    return plain && (c->row == NULL || c->row->written == NULL);
}

bool
rec_passes_exception(rec *r, rec_frame *f)
{
    if (f->consumer != NULL && f->consumer->raised && r->pending != 0) /* it came out of the generator that this one asks */
        rec_free_consumer(f);
    const rec_consumer *asker = f->from_c && f->back != NULL ? f->back->consumer : NULL;
    return f->consumer == NULL && (!f->from_c || (f->gen != NULL && f->gen->closing) || drops_all(asker, f->gen) || (asker != NULL && asker->stepping != 0));
}

/* A __next__ has raised: StopIteration, where there are no more items, or what goes on through the instruction. */
static bool
stop_stepping(rec *r, const rec_frame *f, PyObject *exc)
{
    rec_consumer *c = f->back->consumer;
    bool asked = c->asked != 0, indexed = asked && c->asks.at[c->asks.len - 1].whom != c->stepping;
    bool stops = (PyObject *)Py_TYPE(exc) == PyExc_StopIteration || (indexed && PyErr_GivenExceptionMatches(exc, PyExc_IndexError));
    if (c->stepping == 0 || f->gen != NULL || (!stops && PyErr_GivenExceptionMatches(exc, PyExc_StopIteration)) || (asked && !stops))
        return false;
    rec_pop_frame(r);
    if (asked) {
        r->pending = 0;
        rec_answer(r, c, 0, NULL);
        rec_settle(r);
        return true;
    }
    c->ended = true;
    c->wants = false;
    c->raised = !stops;
    if (stops)
        r->pending = 0;
    if (stops && c->before == INTO_CALL)
        rec_go_on_to_call(r, c, c->items, c->n);
    return true;
}

bool
rec_step_on(rec *r, rec_consumer *c)
{
    rec_args call = {.callee = c->callback, .args = &c->stepping, .npos = 1};
    if (!rec_bind(r, &call))
        return false;
    rec_await_callback(r, call.callee);
    return true;
}

/* The generator is over, and its exception is the instruction's. */
static bool
pass_exception_on(rec *r, rec_frame *f)
{
    PyObject *exc = r->pending != 0 ? O(r, r->pending) : NULL;
    if (exc == NULL || r->refused || r->foreign || !rec_passes_exception(r, f))
        return false;
    if (PyErr_GivenExceptionMatches(exc, PyExc_StopIteration) || f->back->consumer->stepping != 0)
        return stop_stepping(r, f, exc);
    rec_consumer *c = f->back->consumer;
    rec_generator_detach(r, f, false);
    c->ended = c->raised = true;
    c->wants = false;
    return true;
}

/* The exception goes on to the callers of the frame that the region began in: the region is over. */
static bool
end_raised(rec *r, rec_frame *f)
{
    rec_consumer *c = f->consumer;
    if (!c->raised || r->pending == 0 || r->refused || r->foreign || !rec_region_repeatable(r))
        return false;
    forget_operands(r, c);
    rec_region_commit(r);
    rec_free_consumer(f);
    return true;
}

/* A callback has returned. */
static void
take_callback(rec *r, rec_consumer *c, kin_vid result, PyObject *value)
{
    bool plain = c->row->then == NULL;
    take(r, c, result, value);
    (plain ? rec_next_callback : c->row->then)(r, c);
    if (plain && !r->refused && c->before == INTO_CALL && c->ended)
        rec_go_on_to_call(r, c, c->items, c->n);
}

void
rec_go_on_from(rec_consumer *c)
{
    c->gen = c->from;
    c->ended = c->gen->state == GEN_DONE;
    c->wants = !c->ended;
}

/* The length is there, which only says how much memory is reserved; the items come next. */
static void
go_on_measured(rec *r, rec_consumer *c, PyObject *length)
{
    c->measuring = c->wants = false;
    if (!PyLong_CheckExact(length) || PyLong_AsSsize_t(length) < 0) {
        PyErr_Clear(); /* too large */
        rec_refuse(r);
    } else if (c->asked != 0) {
        rec_ask_on(r, c);
    } else {
        rec_go_on_from(c);
    }
}

bool
rec_leave_to_c(rec *r, rec_frame *f, PyObject *value)
{
    if (r->region == NULL || rec_region_is_of(r, f)) {
        if (f->consumer != NULL && value == NULL && !end_raised(r, f)) { /* the consuming instruction raised, and nothing handles it here */
            rec_refuse(r);
            rec_settle(r);
        }
        return false;
    }
    if (rec_leave_closed(r, f, value))
        return true;
    if (value == NULL) {
        if (pass_exception_on(r, f))
            return true;
        if (f->gen != NULL)
            rec_generator_detach(r, f, false);
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
    bool yielded = f->gen != NULL && f->op == KIN_DO_YIELD;
    if (r->info.at[result].raised != 0 || r->pending != 0)
        rec_refuse(r);
    if (f->gen == NULL)
        rec_pop_frame(r);
    else
        rec_generator_detach(r, f, yielded);
    rec_consumer *c = base->consumer;
    if (c == NULL)
        rec_refuse(r);
    else if (c->measuring)
        go_on_measured(r, c, value);
    else if (c->asked != 0 && !c->folding)
        rec_answer(r, c, c->gen == NULL || yielded ? result : 0, value);
    else if (c->stepping != 0) {
        take(r, c, result, value);
        if (!r->refused && c->wants && !rec_step_on(r, c))
            rec_refuse(r);
    } else if (c->gen == NULL)
        take_callback(r, c, result, value);
    else if (yielded) {
        take(r, c, result, value);
        if (c->row != NULL && c->row->came != NULL)
            c->row->came(r, c);
    } else {
        end(r, c, result, value);
        if (c->row != NULL && c->row->over != NULL && !r->refused)
            c->row->over(r, c);
        if (c->before == INTO_CALL)
            rec_go_on_to_call(r, c, c->items, c->n);
    }
    rec_settle(r);
    return true;
}

static void refuse_consumer(rec *r, rec_frame *f);
static const rec_region_user consumers = {rec_free_consumer, refuse_consumer, rec_generator_write};

/* `gen`: NULL when callbacks are waited for. */
/* What finishes the instruction, or makes an opaque step of it, runs when C code is done with the operands. */
static void
note_operands(rec *r, rec_consumer *c)
{
    const rec_frame *f = r->top;
    for (int i = f->nlocals; i < f->nlocals + f->sp0; i++) {
        kin_vid vid = f->slots[i];
        PyObject *obj = vid != 0 && !r->info.at[vid].held ? O(r, vid) : NULL;
        if (obj == NULL || rec_is_const(r, vid))
            continue;
        rec_operand operand = {vid, kin_death_runs_no_code(obj) ? Py_NewRef(obj) : NULL};
        if (kin_vec_push(&c->operands, operand) != KIN_OK) {
            Py_XDECREF(operand.held);
            r->status = KIN_NOMEM;
            return;
        }
    }
}

/* Is the value, as it was on the stack or in a local when the instruction began, still somewhere the frames keep it? */
static bool
is_kept(rec *r, kin_vid vid, const rec_consumer *c)
{
    PyObject *obj = O(r, vid);
    int dropped = c->call.ndrop > 0 ? c->call.ndrop : 1;
    for (const rec_frame *f = r->top; f != NULL; f = f->back) {
        PyObject *const *words = f->f != NULL ? kin_watch_localsplus(f->f) : NULL;
        int n = words == NULL ? 0 : f == r->top ? f->nlocals + f->sp0 - dropped : f->nlocals;
        for (int i = 0; i < n; i++)
            if (words[i] == obj)
                return true;
    }
    return false;
}

/* The instruction is done: objects that may be dead are not looked at any more. */
static void
forget_operands(rec *r, const rec_consumer *c)
{
    for (uint32_t i = 0; i < c->operands.len; i++) {
        kin_vid vid = c->operands.at[i].vid;
        if (c->operands.at[i].held == NULL && r->t->vals.at[vid].kind == KIN_VAL_STEP && O(r, vid) != NULL && !is_kept(r, vid, c))
            r->info.at[vid].obj = NULL;
    }
}

/* The consumer of the top frame's instruction, in a region that begins at `snap` (0: here) if there is none. */
static rec_consumer *
new_consumer(rec *r, rec_gen *gen, uint32_t snap)
{
    if (r->depth >= 100)
        return NULL;
    bool opened = r->region == NULL;
    if (opened && !rec_region_open(r, &consumers, snap))
        return NULL;
    rec_consumer *c = calloc(1, sizeof *c);
    if (c == NULL) {
        if (opened) {
            rec_region_free(r->region);
            r->region = NULL;
        }
        return NULL;
    }
    c->gen = gen;
    r->top->consumer = c;
    r->top->await = AWAIT_CONSUMER;
    return c;
}

rec_consumer *
rec_begin_consumer(rec *r, struct rec_gen *gen)
{
    rec_consumer *c = new_consumer(r, gen, 0);
    if (c == NULL)
        return NULL;
    c->wants = gen == NULL || gen->state != GEN_DONE;
    c->ended = !c->wants;
    note_operands(r, c);
    return c;
}

bool
rec_begin_dropping(rec *r, const consumer_row *row, rec_gen *gen, uint32_t snap)
{
    rec_consumer *c = new_consumer(r, gen, snap);
    if (c == NULL)
        return false;
    c->row = row;
    c->ended = true;
    return true;
}

rec_consumer *
rec_begin_stepping(rec *r, const consumer_row *row, kin_vid iterator, kin_vid next)
{
    rec_consumer *c = rec_begin_consumer(r, NULL);
    if (c == NULL)
        return NULL;
    c->row = row;
    c->stepping = c->self = iterator;
    c->callback = next;
    if (!rec_step_on(r, c))
        rec_refuse(r);
    return c;
}

void
rec_measure(rec *r, rec_consumer *c, kin_vid object, kin_vid length)
{
    rec_args call = {.callee = length, .args = &object, .npos = 1};
    c->from = c->gen;
    c->gen = NULL;
    c->measuring = c->wants = rec_call_or_refuse(r, &call);
}

rec_consumer *
rec_begin_measured(rec *r, rec_gen *gen, kin_vid object, kin_vid length)
{
    rec_consumer *c = rec_begin_consumer(r, gen);
    if (c != NULL && length != 0)
        rec_measure(r, c, object, length);
    return c;
}

bool
rec_consume_for(rec *r, kin_vid it)
{
    if (VIRTUAL(r, it) != NULL && VIRTUAL(r, it)->kind == VIRTUAL_LAZY) {
        rec_consumer *asking = rec_begin_asking(r, it);
        if (asking != NULL)
            rec_ask_first(r, asking);
        return asking != NULL;
    }
    if (rec_steps_in_python(r, it)) {
        int reported = rec_iter_row(r, it);
        if (VIRTUAL(r, it) == NULL && r->region == NULL)
            rec_root(r, it);
        kin_vid next = rec_python_method(r, it, REC_STR("__next__"));
        rec_consumer *stepping = next != 0 ? rec_begin_stepping(r, NULL, it, next) : NULL;
        if (stepping != NULL)
            stepping->opaque_row = reported;
        return stepping != NULL;
    }
    rec_gen *gen = rec_usable_generator(r, it);
    int row = gen ? rec_iter_row(r, it) : -1;
    rec_consumer *c = gen ? rec_begin_consumer(r, gen) : NULL;
    if (c != NULL)
        c->opaque_row = row;
    return c != NULL;
}

/* `yield from` a generator of ours, which only another one can do: the region has begun further out. */
bool
rec_consume_send(rec *r, kin_vid it)
{
    rec_gen *gen = r->region != NULL ? rec_usable_generator(r, it) : NULL;
    bool lazy = r->region != NULL && VIRTUAL(r, it) != NULL && VIRTUAL(r, it)->kind == VIRTUAL_LAZY;
    rec_consumer *c = lazy ? rec_begin_asking(r, it) : gen != NULL && gen->state != GEN_DONE ? rec_begin_consumer(r, gen) : NULL;
    if (c == NULL)
        return false;
    c->sends = true;
    c->sent = rec_peek(r, 0);
    if (lazy)
        rec_ask_first(r, c);
    return true;
}

static bool
finish_for(rec *r, rec_consumer *c, rec_frame *f, uint32_t offset)
{
    if (offset != (c->ended ? f->jump : f->next) || f->jump == f->next)
        return false;
    if (c->sends)
        rec_drop(r, 1); /* what was sent */
    if (c->ended)
        rec_drop(r, rec_dropped_at_end(f));
    if (!c->ended)
        rec_push(r, c->items[0]);
    else if (c->sends)
        rec_push(r, c->returned);
    return true;
}

bool
rec_fits(int before, int after, uint32_t n)
{
    uint32_t least = before < 0 ? 0 : (uint32_t)(before + (after > 0 ? after : 0));
    return n <= 250 && (before < 0 || (after >= 0 ? n >= least : n == least));
}

void
rec_aim(rec *r, rec_consumer *c, int before, int after)
{
    c->before = before;
    c->after = after;
    if (before != INTO_CALL)
        return;
    c->call = *r->star;
    c->call.args = c->args;
    if (c->call.nkw > 0)
        memcpy(c->args, r->star->args, c->call.nkw * sizeof *c->args);
}

bool
rec_finish_unpack(rec *r, rec_consumer *c)
{
    return c->ended && rec_fits(c->before, c->after, c->n) && rec_hand_over(r, c, c->items, c->n, c->before, c->after);
}

void
rec_refuse_unpacking(rec *r, const rec_consumer *c)
{
    if (c->before < 0)
        rec_refuse_starred(r, c);
    else
        rec_stop(r, "unsupported unpacking");
}

const consumer_row rec_unpack_row = {"", TAKE_ALL, rec_finish_unpack, NULL, NULL, rec_refuse_unpacking};

bool
rec_consume_unpack(rec *r, kin_vid vid, int before, int after)
{
    bool visible = VIRTUAL(r, vid) != NULL && VIRTUAL(r, vid)->kind == VIRTUAL_GENERATOR;
    kin_vid length = 0, source = visible ? vid : rec_asks_length(before) ? rec_sized_generator(r, vid, &length) : rec_hidden_generator(r, vid);
    rec_gen *gen = source ? rec_usable_generator(r, source) : NULL;
    rec_consumer *c = gen ? rec_begin_measured(r, gen, vid, length) : NULL;
    if (c == NULL)
        return false;
    c->row = &rec_unpack_row;
    c->source = vid;
    rec_aim(r, c, before, after);
    return true;
}

/* The consuming instruction as an opaque step. Its operands may be gone by now: nothing looks at their objects. */
static void
consume_opaquely(rec *r, const rec_consumer *c)
{
    if (c->row == NULL)
        rec_ask_iter(r, rec_peek(r, 0), c->opaque_row);
    else if (c->row->refused != NULL)
        c->row->refused(r, c);
    else
        rec_call_step(r, &c->call, KIN_STEP_OPAQUE | KIN_STEP_EFFECT, c->opaque_row);
}

static void
refuse_consumer(rec *r, rec_frame *f)
{
    rec_consumer *c = f->consumer;
    f->consumer = NULL;
    forget_operands(r, c);
    consume_opaquely(r, c);
    f->consumer = c;
    rec_free_consumer(f);
}

bool
rec_end_consumer(rec *r)
{
    rec_frame *f = r->top;
    bool base = rec_region_is_of(r, f);
    if (r->refused || r->foreign || (base && !rec_region_repeatable(r))) {
        rec_refuse(r);
        return false;
    }
    rec_free_consumer(f);
    if (base)
        rec_region_commit(r);
    return true;
}

/* StopIteration is raised, with what the generator has returned, and handled at `offset`. */
static bool
finish_stop(rec *r, const rec_consumer *c, const rec_frame *f, uint32_t offset)
{
    bool known = c->asked != 0 || c->gen == NULL || c->returned == 0 || O(r, c->returned) != NULL;
    if (!stops_without_item(c) || !c->ended || !known || (c->asked == 0 && c->gen == NULL) || offset == f->next)
        return false;
    r->raised_by_c = PyExc_StopIteration;
    r->raised_with = c->asked != 0 || c->returned == 0 || O(r, c->returned) == Py_None ? 0 : c->returned;
    return true;
}

/* The consuming instruction of `f` is over, the next one is at `offset`. */
bool
rec_finish_consumer(rec *r, rec_frame *f, uint32_t offset)
{
    rec_consumer *c = f->consumer;
    if (c == NULL)
        return !r->refused;
    bool base = rec_region_is_of(r, f), ok = r->status == KIN_OK && !r->foreign && !c->wants; /* without memory an item may be missing */
    r->foreign = false;
    forget_operands(r, c);
    if (c->raised)
        ok = ok && r->pending != 0;
    else if (c->row == NULL)
        ok = ok && finish_for(r, c, f, offset);
    else
        ok = ok && (offset == f->next ? c->row->finish(r, c) : finish_stop(r, c, f, offset));
    ok = ok && (c->lazy == 0 || c->ended);
    if (ok && c->lazy != 0)
        rec_lazy_used_up(r, c->lazy);
    ok = ok && (base || c->row == NULL || c->row->written == NULL);
    if (!ok || r->refused || (base && !rec_region_repeatable(r))) {
        r->raised_by_c = NULL;
        r->raised_with = 0;
        rec_refuse(r);
        if (!base)
            return false;
        rec_region_undo(r);
        return true;
    }
    if (f->await == AWAIT_CONSUMER)
        f->await = AWAIT_NONE;
    if (c->row == NULL && c->ended && !c->raised)
        f->next = offset;
    if (base)
        rec_region_commit(r);
    if (base && c->row != NULL && c->row->written != NULL)
        c->row->written(r, c);
    rec_free_consumer(f);
    return true;
}
