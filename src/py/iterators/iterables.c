/* C functions that are given objects whose __iter__ is Python code: enumerate(module_list), zip(a, module_list),
 * list(thing), and the unpacking of such an object. What __iter__ does (and __len__, if it is asked for a size) is a
 * region (region.c); the call is then modelled on the resulting iterators.
 */
#include "py/compat/imports.h"
#include "py/iterators/consume.h"
#include "py/models/models.h"
#include "py/objects/objects.h"

/* Which of the operands the C function iterates over, and what it does with their items. */
typedef struct {
    uint32_t first, end;
    bool sized;  /* asks __len__ of the operand behind __iter__ */
    bool lazy;   /* makes an iterator that asks them */
    bool drains; /* takes all items before it does anything else (drain.c) */
} iterable_row;

static bool
is_iter(PyObject *callee)
{
    static PyObject *iter;
    return kin_import_once(&iter, "builtins", "iter") == callee;
}

/* False: it is no such function. A callee of 0: an unpacking. */
static bool
find_row(rec *r, const rec_args *a, iterable_row *out)
{
    const consumer_row *consumer = a->callee != 0 ? rec_consumer_row(O(r, a->callee)) : NULL;
    *out = (iterable_row){0, 1, false, false, false};
    if (a->callee == 0 || is_iter(O(r, a->callee)))
        return true;
    if (consumer != NULL && consumer->objects) {
        out->first = consumer->takes == OBJECT_AND_ITEMS;
        out->end = out->first + 1;
        out->sized = consumer->sized;
        return true;
    }
    if (rec_drains(r, a, &out->first, &out->sized)) {
        out->end = out->first + 1;
        return out->drains = true;
    }
    return out->lazy = rec_takes_iterators(r, a, &out->first, &out->end);
}

/* A special method in Python that the C function will call on the argument; 0 = none. */
kin_vid
rec_python_method(rec *r, kin_vid vid, PyObject *name)
{
    PyObject *obj = O(r, vid);
    if (obj == NULL || !(Py_TYPE(obj)->tp_flags & Py_TPFLAGS_HEAPTYPE))
        return 0;
    PyObject *func = _PyType_Lookup(Py_TYPE(obj), name);
    if (func == NULL || !PyFunction_Check(func) || !rec_can_inline(r, func))
        return 0;
    PyTypeObject *tp = rec_need_attrs(r, vid);
    rec_lookup(r, tp, name);
    return rec_found(r, tp, name, func);
}

/* Does the method do nothing but `return self`? */
static bool
gives_itself(PyObject *func)
{
    static PyObject *plain;
    PyObject *like = kin_import_once(&plain, "collections.abc", "Iterator.__iter__");
    if (func == NULL || like == NULL || !PyFunction_Check(func) || !PyFunction_Check(like))
        return false;
    PyCodeObject *code = (PyCodeObject *)((PyFunctionObject *)func)->func_code;
    PyObject *ours = PyCode_GetCode(code), *theirs = PyCode_GetCode((PyCodeObject *)((PyFunctionObject *)like)->func_code);
    bool same = ours != NULL && theirs != NULL && PyObject_RichCompareBool(ours, theirs, Py_EQ) == 1 && code->co_argcount == 1 && code->co_nlocals == 1 && code->co_nlocalsplus == 1;
    Py_XDECREF(ours);
    Py_XDECREF(theirs);
    PyErr_Clear();
    return same;
}

bool
rec_steps_in_python(rec *r, kin_vid vid)
{
    const rec_virtual *f = vid ? VIRTUAL(r, vid) : NULL;
    if (vid == 0 || (f != NULL && (f->kind != VIRTUAL_OBJECT || !f->known || f->escaped))) /* other iterators may be gone */
        return false;
    PyObject *obj = O(r, vid);
    if (obj == NULL || !(Py_TYPE(obj)->tp_flags & Py_TPFLAGS_HEAPTYPE) || kin_is_tensor(obj))
        return false;
    PyObject *next = _PyType_Lookup(Py_TYPE(obj), REC_STR("__next__"));
    return next != NULL && PyFunction_Check(next) && rec_can_inline(r, next);
}

bool
rec_is_own_iterator(rec *r, kin_vid vid)
{
    return rec_steps_in_python(r, vid) && gives_itself(_PyType_Lookup(Py_TYPE(O(r, vid)), REC_STR("__iter__")));
}

/* Expects the next call that the C function makes. c->at: the argument it is about; c->next: it has been asked for its
 * iterator. */
static void
ask_next(rec *r, rec_consumer *c)
{
    iterable_row row;
    find_row(r, &c->call, &row);
    row.sized = row.sized || rec_asks_length(c->before);
    for (; c->at < row.end && c->at < c->call.npos; c->at++, c->next = 0) {
        kin_vid arg = c->source ? c->source : c->args[c->at];
        PyObject *name = c->next == 0 ? REC_STR("__iter__") : REC_STR("__len__");
        if (c->next > 1 || (c->next == 1 && !row.sized))
            continue;
        kin_vid func = rec_python_method(r, arg, name);
        if (r->refused)
            return;
        c->next++;
        if (func == 0)
            continue; /* C code does it */
        rec_args call = {.callee = func, .args = &arg, .npos = 1};
        rec_call_or_refuse(r, &call);
        return;
    }
    c->wants = false;
    c->ended = true;
}

/* Is a class without what C code would ask an object for its length by? */
static bool
has_no_length(rec *r, kin_vid vid)
{
    PyTypeObject *tp = rec_need_attrs(r, vid);
    return rec_lookup(r, tp, REC_STR("__len__")) == NULL && rec_lookup(r, tp, REC_STR("__length_hint__")) == NULL;
}

/* What the C function does with items that come one by one; NULL: that is not known. */
static const consumer_row *
row_of_items(rec *r, const rec_consumer *c)
{
    const consumer_row *row = c->call.callee != 0 && c->before >= 0 ? rec_consumer_row(O(r, c->call.callee)) : &rec_unpack_row;
    return row != NULL && c->at == 0 && row->written == NULL ? row : NULL;
}

/* The items come from the iterator, from here on. */
static void
take_items_from(rec *r, rec_consumer *c, const consumer_row *row, kin_vid object)
{
    c->from_tensor = row != &rec_unpack_row && c->call.npos == 2 && kin_is_plain_tensor(O(r, c->args[1])); /* what sum begins with */
    if (c->from_tensor)
        rec_need_type(r, c->args[1]);
    Py_DECREF(c->held[--c->n]);
    c->row = row;
    c->source = object;
}

/* __iter__ has given a generator, which is resumed for each item. */
static bool
resumes(rec *r, rec_consumer *c, kin_vid iterator)
{
    kin_vid object = c->source != 0 ? c->source : c->args[0], length = 0;
    const consumer_row *row = row_of_items(r, c);
    rec_gen *gen = row != NULL ? rec_usable_generator(r, iterator) : NULL;
    if (gen == NULL || r->refused)
        return false;
    if ((row->sized || rec_asks_length(c->before)) && (length = rec_python_method(r, object, REC_STR("__len__"))) == 0 && !has_no_length(r, object))
        return false;
    take_items_from(r, c, row, object);
    c->from = gen;
    rec_go_on_from(c);
    if (length != 0)
        rec_measure(r, c, object, length);
    return true;
}

/* __iter__ has given an iterator whose __next__ is Python: that is called for each item of what the C function makes. */
static bool
steps(rec *r, rec_consumer *c, kin_vid iterator)
{
    kin_vid object = c->source != 0 ? c->source : c->args[0];
    const consumer_row *row = row_of_items(r, c);
    bool made = VIRTUAL(r, iterator) == NULL || VIRTUAL(r, iterator)->kind == VIRTUAL_OBJECT, sized = row != NULL && (row->sized || rec_asks_length(c->before));
    kin_vid next = row != NULL && made ? rec_python_method(r, iterator, REC_STR("__next__")) : 0;
    if (next == 0 || r->refused || (sized && !has_no_length(r, object)))
        return false;
    take_items_from(r, c, row, object);
    c->stepping = c->self = iterator;
    c->callback = next;
    c->wants = true;
    return rec_step_on(r, c);
}

/* One of the methods has returned. An iterator must be one that nobody else has. */
static void
take_answer(rec *r, rec_consumer *c)
{
    if (r->refused || c->n == 0)
        return;
    kin_vid answer = c->items[c->n - 1];
    rec_virtual *f = VIRTUAL(r, answer);
    iterable_row row;
    find_row(r, &c->call, &row);
    if (c->next == 1 && (resumes(r, c, answer) || steps(r, c, answer)))
        return;
    if (c->next == 1) {
        const Py_ssize_t returned = 2; /* the references of the C function and of c->held */
        bool generator = row.lazy && c->before >= 0 && rec_usable_generator(r, answer) != NULL;
        bool drained = row.drains && rec_usable_generator(r, answer) != NULL;
        if (f == NULL || (f->kind != VIRTUAL_ITER && !generator && !drained) || !f->known || f->escaped || Py_REFCNT(O(r, answer)) != returned) {
            rec_refuse(r);
            return;
        }
        if (row.drains && (!row.sized || has_no_length(r, c->args[c->at])) && rec_drain_on(r, c, c->at, c->args[c->at], answer))
            return;
        f->given = !generator;
        c->inputs[c->at] = answer;
    }
    ask_next(r, c);
}

/* The call again, with the iterators in place of what they were made of. */
static bool
finish_iterables(rec *r, rec_consumer *c)
{
    iterable_row row;
    rec_args call = c->call;
    find_row(r, &call, &row);
    call.args = c->inputs;
    if (row.lazy && c->function != NULL && O(r, call.args[0]) == NULL)
        r->info.at[call.args[0]].obj = c->function;
    bool done = row.drains ? rec_finish_draining(r, &call, row.first) : rec_make_lazy(r, &call) || rec_make_tee(r, &call) || rec_call_builtin(r, &call);
    if (done && rec_is_operator(r)) { /* list += thing: its result is the list */
        rec_drop(r, 1);
        rec_push(r, c->args[0]);
    }
    for (uint32_t i = 0; i < c->call.npos; i++)
        if (VIRTUAL(r, c->inputs[i]) != NULL)
            VIRTUAL(r, c->inputs[i])->given = false;
    return done;
}

static const consumer_row iterables_row = {"iterables", TAKE_ALL, finish_iterables, take_answer, .refused = rec_refuse_call};

/* What a step gave begins an epoch of its own now: inside a region none can begin. */
static bool
iterates_in_python(rec *r, kin_vid vid)
{
    if ((VIRTUAL(r, vid) != NULL && VIRTUAL(r, vid)->kind != VIRTUAL_OBJECT) || rec_python_method(r, vid, REC_STR("__iter__")) == 0)
        return false;
    if (VIRTUAL(r, vid) == NULL && r->region == NULL)
        rec_root(r, vid);
    return true;
}

bool
rec_consume_iterables(rec *r, const rec_args *a)
{
    iterable_row row;
    bool python = false, known = a->npos > 0 && a->npos + a->nkw <= CONSUMER_ARGS && O(r, a->callee) && find_row(r, a, &row);
    for (uint32_t i = known ? row.first : 0; known && i < row.end && i < a->npos; i++)
        python = python || iterates_in_python(r, a->args[i]);
    kin_vid *inputs = python ? malloc((a->npos + a->nkw) * sizeof *inputs) : NULL;
    rec_consumer *c = inputs ? rec_begin_consumer(r, NULL) : NULL;
    if (c == NULL) {
        free(inputs);
        return false;
    }
    memcpy(inputs, a->args, (a->npos + a->nkw) * sizeof *inputs);
    c->inputs = inputs;
    c->row = &iterables_row;
    rec_consume_as(r, c, a);
    c->at = row.first;
    c->function = row.lazy && row.first > 0 ? O(r, a->args[0]) : NULL;
    ask_next(r, c);
    return true;
}

/* a, b = thing; a, *b = thing */
static bool
finish_unpacking(rec *r, rec_consumer *c)
{
    kin_vid *items = NULL;
    uint32_t n = 0;
    if (c->before >= 0)
        return rec_unpack_iterator(r, c->inputs[0], c->before, c->after);
    bool done = rec_use_up(r, c->inputs[0], &items, &n) && rec_hand_over(r, c, items, n, c->before, c->after);
    free(items);
    return done;
}

/* The object has answered; what a starred call hands over may be called now. */
static void
take_unpacking(rec *r, rec_consumer *c)
{
    kin_vid *items = NULL;
    uint32_t n = 0;
    take_answer(r, c);
    if (!r->refused && c->ended && c->before == INTO_CALL && rec_items_of(r, c->inputs[0], &items, &n))
        rec_go_on_to_call(r, c, items, n);
    free(items);
}

static const consumer_row unpacking_row = {"", TAKE_ALL, finish_unpacking, take_unpacking, NULL, rec_refuse_unpacking};

bool
rec_consume_unpacking(rec *r, kin_vid vid, int before, int after)
{
    kin_vid *inputs = iterates_in_python(r, vid) ? malloc(sizeof *inputs) : NULL;
    rec_consumer *c = inputs ? rec_begin_consumer(r, NULL) : NULL;
    if (c == NULL) {
        free(inputs);
        return false;
    }
    inputs[0] = c->source = vid;
    rec_aim(r, c, before, after);
    c->call.npos = 1;
    c->inputs = inputs;
    c->row = &unpacking_row;
    ask_next(r, c);
    return true;
}
