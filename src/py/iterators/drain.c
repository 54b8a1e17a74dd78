/* C functions that first of all take every item of an iterator: functools.reduce, OrderedDict, deque, tuple.__new__, itertools.tee, product ... Given a generator or a
 * map object of the recording, they are modelled on its items, as if the program had handed over a tuple of them.
 */
#include "py/compat/heap.h"
#include "py/compat/imports.h"
#include "py/iterators/consume.h"
#include "py/models/models.h"
#include "py/objects/objects.h"

/* -- which, and which of their arguments they go through ---------------------------------------------------------------- */

/* -1: none of them. */
static int
drained_argument(PyObject *callee)
{
    static PyObject *ordered, *deque, *tee, *combinations, *permutations, *product, *new_tuple;
    if (rec_is_reduce(callee))
        return 1;
    if (callee == kin_import_once(&ordered, "collections", "OrderedDict") || callee == kin_import_once(&deque, "collections", "deque") ||
        callee == kin_import_once(&tee, "itertools", "tee") || callee == kin_import_once(&combinations, "itertools", "combinations") ||
        callee == kin_import_once(&permutations, "itertools", "permutations") || callee == kin_import_once(&product, "itertools", "product"))
        return 0;
    if (new_tuple == NULL)
        new_tuple = PyDict_GetItemString(kin_type_dict(&PyTuple_Type), "__new__"); /* borrowed, of a static type */
    return callee == new_tuple ? 1 : -1;
}

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

static bool
finish_drained(rec *r, rec_consumer *c)
{
    PyObject *real = PyTuple_New(c->n);
    for (uint32_t i = 0; real != NULL && i < c->n; i++)
        PyTuple_SET_ITEM(real, i, Py_NewRef(c->held[i]));
    for (uint32_t i = 0; i < c->n; i++)
        if (O(r, c->items[i]) == NULL)
            r->info.at[c->items[i]].obj = c->held[i]; /* as long as the instruction */
    bool done = real != NULL && call_on_items(r, &c->call, c->drained, c->items, c->n, real);
    Py_XDECREF(real);
    PyErr_Clear();
    return done;
}

static const consumer_row drained_row = {"drained", TAKE_ALL, finish_drained};

/* -- reduce() of a function of the program over a generator: they take turns ---------------------------------------------- */

static void
fold_next(rec *r, rec_consumer *c)
{
    if (r->refused || c->n != 2)
        return;
    kin_vid args[3] = {c->self, c->items[0], c->items[1]};
    c->from = c->gen;
    c->gen = NULL;
    rec_args call = {.callee = c->callback, .args = args + (c->self == 0), .npos = 2 + (c->self != 0)};
    if (!rec_bind(r, &call))
        rec_refuse(r);
    else
        rec_await_callback(r, call.callee);
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
    c->gen = c->from;
    c->ended = c->gen->state == GEN_DONE;
    c->wants = !c->ended;
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
fold_generator(rec *r, const rec_args *a, rec_gen *gen)
{
    kin_vid func, self;
    if (!rec_find_callback(r, a->args[0], &func, &self) || (VIRTUAL(r, a->args[0]) != NULL && VIRTUAL(r, a->args[0])->kind == VIRTUAL_PARTIAL))
        return false;
    rec_consumer *c = rec_begin_consumer(r, gen);
    if (c == NULL)
        return false;
    c->row = &folded_row;
    c->callback = func;
    c->self = self;
    c->source = a->args[1];
    rec_consume_as(r, c, a);
    if (a->npos == 3)
        rec_take_item(r, c, a->args[2]);
    return true;
}

/* -- the call ------------------------------------------------------------------------------------------------------------ */

static bool
drain_generator(rec *r, const rec_args *a, uint32_t at)
{
    rec_gen *gen = rec_usable_generator(r, a->args[at]);
    kin_vid func, self;
    if (gen == NULL)
        return false;
    if (rec_is_reduce(O(r, a->callee)) && rec_find_callback(r, a->args[0], &func, &self))
        return fold_generator(r, a, gen);
    rec_consumer *c = rec_begin_consumer(r, gen);
    if (c == NULL)
        return false;
    c->row = &drained_row;
    c->source = a->args[at];
    c->drained = at;
    rec_consume_as(r, c, a);
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

bool
rec_consume_drained(rec *r, const rec_args *a)
{
    int at = a->npos + a->nkw <= CONSUMER_ARGS ? drained_argument(O(r, a->callee)) : -1;
    if (at < 0 || (uint32_t)at >= a->npos)
        return false;
    return drain_generator(r, a, (uint32_t)at) || drain_lazy(r, a, (uint32_t)at);
}
