/* C functions that first of all take every item of an iterator: functools.reduce, OrderedDict, deque, Counter, tuple.__new__, itertools.product ... Given a generator or a
 * map object of the recording, they are modelled on its items, as if the program had handed over a tuple of them.
 */
#include "py/compat/heap.h"
#include "py/compat/imports.h"
#include "py/iterators/consume.h"
#include "py/models/models.h"
#include "py/objects/objects.h"

/* -- the call on the items ------------------------------------------------------------------------------------------------ */

/* `real`: the items as a tuple; NULL: there is none. */
static bool
call_on_items(rec *r, const rec_args *a, uint32_t at, const kin_vid *items, uint32_t n, PyObject *real)
{
    kin_vid args[CONSUMER_ARGS], all = rec_build_tuple(r, items, n, real);
    memcpy(args, a->args, (a->npos + a->nkw) * sizeof *args);
    args[at] = all;
    rec_args call = *a;
    call.args = args;
    bool done = rec_consume_callbacks(r, &call) || rec_call_constructor(r, &call) || rec_call_builtin(r, &call);
    if (!r->info.at[all].held)
        r->info.at[all].obj = NULL; /* it is no object of the program */
    return done;
}

/* The items' objects are there as long as the instruction. */
static void
show_items(rec *r, const rec_consumer *c)
{
    for (uint32_t i = 0; i < c->n; i++)
        if (O(r, c->items[i]) == NULL)
            r->info.at[c->items[i]].obj = c->held[i];
}

/* Of what is asked item by item, some items are known before their objects are there, and never seen. */
static bool
has_objects(rec *r, const rec_consumer *c)
{
    for (uint32_t i = 0; c->asked != 0 && i < c->n; i++)
        if (O(r, c->items[i]) == NULL)
            return false;
    return true;
}

static bool
finish_drained(rec *r, rec_consumer *c)
{
    PyObject *real = NULL;
    if (has_objects(r, c) && (real = PyTuple_New(c->n)) == NULL) {
        PyErr_Clear();
        return false;
    }
    for (uint32_t i = 0; real != NULL && i < c->n; i++)
        PyTuple_SET_ITEM(real, i, Py_NewRef(c->asked != 0 ? O(r, c->items[i]) : c->held[i]));
    if (c->asked == 0)
        show_items(r, c);
    bool done = call_on_items(r, &c->call, c->drained, c->items, c->n, real);
    Py_XDECREF(real);
    PyErr_Clear();
    return done;
}

static const consumer_row drained_row = {"drained", TAKE_ALL, finish_drained};

/* _count_elements: the numbers are stored when all items are there. */
static bool
finish_counted(rec *r, rec_consumer *c)
{
    kin_vid pairs[2 * MOST_COUNTED];
    uint32_t n;
    show_items(r, c);
    return rec_count_items(r, c->args[0], c->items, c->n, pairs, &n) && rec_model_value(r, &c->call, rec_const(r, Py_None));
}

static void
put_counted(rec *r, rec_consumer *c)
{
    kin_vid pairs[2 * MOST_COUNTED];
    uint32_t n, first = r->t->steps.len;
    if (rec_count_items(r, c->args[0], c->items, c->n, pairs, &n))
        rec_put_in_own_dict(r, c->args[0], pairs, n);
    for (uint32_t s = first; s < r->t->steps.len; s++)
        r->t->steps.at[s].snap = 0; /* the instruction is over: it is not left here, which would do without what is stored */
}

static const consumer_row counted_row = {"counted", TAKE_ALL, finish_counted, NULL, put_counted};

/* deque.extend: a deque has all items when the instruction is over. Of one made here they are noted. */
static bool
is_own_deque(rec *r, kin_vid deque)
{
    const rec_virtual *f = VIRTUAL(r, deque);
    return f != NULL && f->kind == VIRTUAL_OTHER && !f->escaped;
}

static bool
finish_extended(rec *r, rec_consumer *c)
{
    return (VIRTUAL(r, c->args[0]) == NULL || is_own_deque(r, c->args[0])) && rec_model_value(r, &c->call, rec_const(r, Py_None));
}

static void
put_extended(rec *r, rec_consumer *c)
{
    const kin_vid call[3] = {c->call.callee, c->args[0], rec_build_tuple(r, c->items, c->n, NULL)};
    bool own = VIRTUAL(r, c->args[0]) != NULL;
    r->keep_inside = own;
    uint32_t s = rec_step(r, KIN_STEP_CALL, KIN_STEP_EFFECT, call, 3);
    r->keep_inside = false;
    r->t->steps.at[s].snap = 0; /* the instruction is over */
    if (!own)
        rec_forget_contents(r);
    for (uint32_t i = 0; own && i < c->n; i++)
        if (!rec_virtual_push(VIRTUAL(r, c->args[0]), c->items[i]))
            r->status = KIN_NOMEM;
}

/* An older deque, which others may reach: nothing that its items come from may look at it under any name. */
static bool
is_older_deque(rec *r, kin_vid deque)
{
    return VIRTUAL(r, deque) == NULL && O(r, deque) != NULL && kin_heap_type_is(Py_TYPE(O(r, deque)), "collections.deque");
}

static const consumer_row extended_row = {"extended", TAKE_ALL, finish_extended, NULL, put_extended};

/* -- the items one by one ------------------------------------------------------------------------------------------------- */

/* What the C function gets its items from: a generator (`gen`), for which it may ask the object's length first, or what is asked item by item. */
typedef struct {
    rec_gen *gen;
    kin_vid asked, object, length;
} drain_source;

static bool
find_source(rec *r, kin_vid vid, bool sized, drain_source *out)
{
    *out = (drain_source){.gen = rec_usable_generator(r, vid), .object = vid};
    if (out->gen != NULL)
        return true;
    if (rec_is_asked(r, vid) && (!sized || rec_length_of_iterator(r, vid, &out->length))) {
        out->asked = vid;
        out->object = VIRTUAL(r, vid)->items[LAZY_SOURCES];
    } else if (!sized && rec_is_own_iterator(r, vid))
        out->asked = vid;
    else if ((out->asked = rec_hidden_index_iterator(r, vid, sized, &out->length)) != 0)
        return true;
    else
        out->gen = rec_usable_generator(r, sized ? rec_sized_generator(r, vid, &out->length) : rec_hidden_generator(r, vid));
    return out->gen != NULL || out->asked != 0;
}

static rec_consumer *
begin(rec *r, const drain_source *from)
{
    return from->gen != NULL ? rec_begin_measured(r, from->gen, from->object, from->length) : rec_begin_asking(r, from->asked);
}

/* The consumer is complete. */
static void
begin_asking(rec *r, rec_consumer *c, const drain_source *from)
{
    if (c->asked != 0)
        rec_measure_and_ask(r, c, from->object, from->length);
}

/* -- reduce() of a function of the program over a generator: they take turns ---------------------------------------------- */

static void
fold_next(rec *r, rec_consumer *c)
{
    if (r->refused || c->n != 2)
        return;
    c->from = c->gen;
    c->gen = NULL;
    c->folding = c->wants = true;
    (void)rec_call_back(r, c->args[0], c->items, 2);
}

/* The function has returned: its answer stands for the two items. */
static void
fold_on(rec *r, rec_consumer *c)
{
    if (r->refused || c->n != 3)
        return;
    Py_DECREF(c->held[0]);
    Py_DECREF(c->held[1]);
    c->items[0] = c->items[2];
    c->held[0] = c->held[2];
    c->n = 1;
    c->folding = false;
    if (c->asked != 0) {
        rec_ask_on(r, c);
        return;
    }
    rec_go_on_from(c);
}

static bool
finish_folded(rec *r, rec_consumer *c)
{
    if (c->n != 1)
        return false;
    rec_drop(r, c->call.ndrop);
    rec_push(r, c->items[0]);
    return true;
}

static const consumer_row folded_row = {.name = "folded", .rule = TAKE_ALL, .finish = finish_folded, .then = fold_on, .came = fold_next};

static bool
fold_generator(rec *r, const rec_args *a, const drain_source *from)
{
    kin_vid func, self;
    if (!rec_find_callback(r, a->args[0], &func, &self))
        return false;
    rec_consumer *c = begin(r, from);
    if (c == NULL)
        return false;
    c->row = &folded_row;
    c->source = a->args[1];
    rec_consume_as(r, c, a);
    if (a->npos == 3)
        rec_take_item(r, c, a->args[2]);
    begin_asking(r, c, from);
    return true;
}

/* -- which functions, and which of their arguments they go through -------------------------------------------------------- */

typedef struct {
    const char *module, *name, *method; /* method: of the class, NULL: the function or class itself */
    uint32_t argument;
    const consumer_row *row;
    bool sized; /* asks for the length first */
} drain_row;

static const drain_row rows[] = {
    {"functools", "reduce", NULL, 1, &drained_row}, {"collections", "OrderedDict", NULL, 0, &drained_row}, {"collections", "deque", NULL, 0, &drained_row},
    {"itertools", "combinations", NULL, 0, &drained_row, kin_tuples_ask_length}, {"itertools", "permutations", NULL, 0, &drained_row, kin_tuples_ask_length},
    {"itertools", "product", NULL, 0, &drained_row, kin_tuples_ask_length},
    {"builtins", "tuple", "__new__", 1, &drained_row, kin_tuples_ask_length}, {"builtins", "dict", "fromkeys", 1, &drained_row}, {"collections", "OrderedDict", "fromkeys", 1, &drained_row},
    {"collections", "deque", "extend", 1, &extended_row}, {"collections", "deque", "extendleft", 1, &extended_row},
    {"_collections", "_count_elements", NULL, 1, &counted_row}};

static const drain_row *
find_row(PyObject *callee)
{
    static PyObject *kept[sizeof rows / sizeof *rows], *methods[sizeof rows / sizeof *rows];
    for (size_t i = 0; callee != NULL && i < sizeof rows / sizeof *rows; i++) {
        PyObject *found = kin_import_once(&kept[i], rows[i].module, rows[i].name);
        if (found != NULL && rows[i].method != NULL)
            found = kin_method_once(&methods[i], (PyTypeObject *)found, rows[i].method);
        if (callee == found)
            return &rows[i];
    }
    return NULL;
}

/* -- the call ------------------------------------------------------------------------------------------------------------ */

static bool
drain_one_by_one(rec *r, const rec_args *a, const drain_row *row)
{
    drain_source from;
    kin_vid func, self;
    if (row->row == &extended_row && (a->npos != 2 || a->nkw != 0 || r->region != NULL || !(is_own_deque(r, a->args[0]) || is_older_deque(r, a->args[0]))))
        return false;
    if (!find_source(r, a->args[row->argument], row->sized, &from))
        return false;
    if (rec_is_reduce(O(r, a->callee)) && rec_find_callback(r, a->args[0], &func, &self))
        return fold_generator(r, a, &from);
    rec_consumer *c = begin(r, &from);
    if (c == NULL)
        return false;
    c->row = row->row;
    c->source = a->args[row->argument];
    c->drained = row->argument;
    rec_consume_as(r, c, a);
    if (row->row == &extended_row) {
        if (VIRTUAL(r, a->args[0]) == NULL)
            rec_need_type(r, a->args[0]);
        rec_region_changes(r, a->args[0]);
    }
    begin_asking(r, c, &from);
    return true;
}

/* A map object that applies a C function: its items follow at once. */
static bool
drain_lazy(rec *r, const rec_args *a, uint32_t at)
{
    kin_vid *items = NULL;
    uint32_t n = 0, start = r->t->steps.len;
    bool shared;
    if (!rec_lazy_items(r, a->args[at], &items, &n, &shared))
        return false;
    bool done = call_on_items(r, a, at, items, n, NULL);
    if (!done)
        rec_truncate(r, start);
    else if (shared)
        rec_lazy_used_up(r, a->args[at]);
    free(items);
    return done;
}

/* -- of an object whose __iter__ is Python (iterables.c) -------------------------------------------------------------------- */

bool
rec_drains(rec *r, const rec_args *a, uint32_t *operand, bool *sized)
{
    const drain_row *row = a->npos + a->nkw <= CONSUMER_ARGS ? find_row(O(r, a->callee)) : NULL;
    if (row == NULL || row->row != &drained_row || row->argument >= a->npos)
        return false;
    *operand = row->argument;
    *sized = row->sized;
    return true;
}

/* reduce() of a function of the program over items that are known. */
static bool
fold_items(rec *r, rec_consumer *c, kin_vid iterator, kin_vid func, kin_vid self)
{
    kin_vid *items = NULL, *inputs = NULL;
    uint32_t n = 0, ninit = c->call.npos == 3;
    if (rec_use_up(r, iterator, &items, &n) && n + ninit >= 2)
        inputs = malloc((n + ninit) * sizeof *inputs);
    if (inputs != NULL) {
        inputs[0] = c->args[2 * ninit];
        memcpy(inputs + ninit, items, n * sizeof *items);
        Py_DECREF(c->held[--c->n]);
        rec_fold_known(r, c, inputs, n + ninit, func, self);
    }
    free(items);
    return inputs != NULL;
}

bool
rec_drain_on(rec *r, rec_consumer *c, uint32_t operand, kin_vid object, kin_vid iterator)
{
    kin_vid func, self;
    bool fold = rec_is_reduce(O(r, c->call.callee)) && rec_find_callback(r, c->args[0], &func, &self);
    rec_gen *gen = rec_usable_generator(r, iterator);
    if (gen == NULL)
        return fold && fold_items(r, c, iterator, func, self);
    Py_DECREF(c->held[--c->n]);
    c->row = fold ? &folded_row : &drained_row;
    c->source = object;
    c->drained = operand;
    if (fold && c->call.npos == 3)
        rec_take_item(r, c, c->args[2]);
    c->from = gen;
    rec_go_on_from(c);
    return true;
}

bool
rec_finish_draining(rec *r, const rec_args *a, uint32_t operand)
{
    kin_vid *items = NULL;
    uint32_t n = 0;
    bool done = rec_use_up(r, a->args[operand], &items, &n) && call_on_items(r, a, operand, items, n, NULL);
    free(items);
    return done;
}

bool
rec_consume_drained(rec *r, const rec_args *a)
{
    const drain_row *row = a->npos + a->nkw <= CONSUMER_ARGS ? find_row(O(r, a->callee)) : NULL;
    if (row == NULL || row->argument >= a->npos)
        return false;
    return drain_lazy(r, a, row->argument) || drain_one_by_one(r, a, row);
}
