/* Iterators in C that ask others: zip, enumerate, map, filter, islice, takewhile, chain ... (made in lazy.c).
 *
 * Each time such an object is asked for an item, it asks its sources one after another, and may call a function. It is a virtual object (VIRTUAL_LAZY)
 * whose sources are generators of the recording, iterators over known items, and other such objects. Asking it is a region (region.c), at whose end
 * the states of all iterators that have moved are written: those of sources as the steps NEXT and GENERATOR_STATE, what the object itself keeps
 * (the number of an enumerate object) as ITERATOR_AT.
 *
 * Objects that wait for an answer form a stack (rec_consumer.asks). Where the answer takes a frame, that of a generator or of a function, the watcher
 * follows it, and the stack goes on when it has returned.
 */
#include "core/diag/breaks.h"
#include "py/replay/iterator_state.h"
#include "py/iterators/consume.h"
#include "py/models/models.h"
#include "py/objects/objects.h"

enum { MOST_ASKS = 20000, MOST_DEPTH = 32 };

/* -- answers ------------------------------------------------------------------------------------------------------------ */

static void
ask(rec *r, rec_consumer *c, kin_vid whom)
{
    rec_ask a = {.whom = whom};
    if (c->asks.len >= MOST_DEPTH || c->nasked++ >= MOST_ASKS)
        rec_refuse(r);
    else if (kin_vec_push(&c->asks, a) != KIN_OK)
        r->status = KIN_NOMEM;
    c->said = SAID_NOTHING;
}

/* The one that was asked last gives an item. */
static void
give(rec_consumer *c, kin_vid item)
{
    c->asks.len--;
    c->said = SAID_ITEM;
    c->answer = item;
}

/* ... has no more of them. */
static void
stop(rec_consumer *c)
{
    c->asks.len--;
    c->said = SAID_END;
}

static kin_vid
take(rec_consumer *c)
{
    c->said = SAID_NOTHING;
    return c->answer;
}

/* C code may drop what it was given at once. */
void
rec_hold(rec *r, rec_consumer *c, PyObject *obj)
{
    if (obj == NULL)
        return;
    if (kin_vec_push(&c->kept, obj) == KIN_OK)
        Py_INCREF(obj);
    else
        r->status = KIN_NOMEM;
}

/* What the object keeps beside its sources. */
static void
keep_state(rec *r, kin_vid lazy, kin_vid state)
{
    const kin_vid args[2] = {lazy, state};
    rec_step(r, KIN_STEP_ITERATOR_AT, KIN_STEP_MUTATES, args, 2);
}

static void
keep_number(rec *r, kin_vid lazy, uint32_t number)
{
    PyObject *obj = PyLong_FromUnsignedLong(number);
    keep_state(r, lazy, rec_const(r, obj));
    Py_XDECREF(obj);
}

/* chain.from_iterable makes objects of the same class as chain. */
static kin_iterator_kind
kind_of(rec *r, kin_vid lazy)
{
    return VIRTUAL(r, lazy)->items[LAZY_CLASS] != 0 ? kin_iterator_kind_of(r->info.at[lazy].type) : KIN_ITERATOR_FLAT;
}

/* -- what each class does ------------------------------------------------------------------------------------------------ */

/* Asks until there are `n` items: `every` 1: each source in turn for one, 0: the first one. */
static bool
gather(rec *r, rec_consumer *c, rec_ask *a, uint32_t n, uint32_t every)
{
    if (c->said == SAID_END) {
        stop(c);
        return false;
    }
    if (c->said == SAID_ITEM)
        a->items[a->n++] = take(c);
    if (a->n == n)
        return true;
    ask(r, c, VIRTUAL(r, a->whom)->items[LAZY_SOURCES + every * a->n]); /* `a` may have moved */
    return false;
}

/* Calls the object's function: what it returns is the next answer. */
static void
call(rec *r, rec_consumer *c, rec_ask *a, const kin_vid *args, uint32_t n)
{
    kin_vid callback = VIRTUAL(r, a->whom)->items[LAZY_CALLBACK], func, self;
    a->called = true;
    if (rec_find_callback(r, callback, &func, &self)) {
        c->wants = rec_call_back(r, callback, args, n);
        return;
    }
    c->answer = rec_apply(r, callback, args, n);
    c->said = SAID_ITEM;
    r->skip_expected = true;
    if (c->answer == 0)
        rec_refuse(r);
}

static void
go_on_zip(rec *r, rec_consumer *c, rec_ask *a)
{
    if (gather(r, c, a, VIRTUAL(r, a->whom)->n - LAZY_SOURCES, 1))
        give(c, rec_build_tuple(r, a->items, a->n, NULL));
}

static void
go_on_enumerate(rec *r, rec_consumer *c, rec_ask *a)
{
    rec_virtual *f = VIRTUAL(r, a->whom);
    if (!gather(r, c, a, 1, 0))
        return;
    PyObject *number = PyLong_FromUnsignedLong(f->pos++);
    const kin_vid pair[2] = {rec_const(r, number), a->items[0]};
    Py_XDECREF(number);
    keep_number(r, a->whom, f->pos);
    give(c, rec_build_tuple(r, pair, 2, NULL));
}

static void
go_on_map(rec *r, rec_consumer *c, rec_ask *a)
{
    if (a->called)
        give(c, take(c));
    else if (gather(r, c, a, VIRTUAL(r, a->whom)->n - LAZY_SOURCES, 1))
        call(r, c, a, a->items, a->n);
}

static void
go_on_starmap(rec *r, rec_consumer *c, rec_ask *a)
{
    kin_vid *items = NULL;
    uint32_t n = 0;
    if (a->called) {
        give(c, take(c));
    } else if (gather(r, c, a, 1, 0)) {
        const rec_virtual *row = VIRTUAL(r, a->items[0]);
        bool tuple = row != NULL ? row->kind == VIRTUAL_TUPLE : O(r, a->items[0]) != NULL && PyTuple_CheckExact(O(r, a->items[0]));
        if (!tuple || !rec_items_of(r, a->items[0], &items, &n) || n > CONSUMER_ARGS)
            rec_refuse(r);
        else
            call(r, c, a, items, n);
        free(items);
    }
}

/* What the function says of an item, or without a function the item's own truth; false: that is not known yet. */
static bool
is_judged(rec *r, rec_consumer *c, rec_ask *a, bool *truth)
{
    if (!a->called && !gather(r, c, a, 1, 0))
        return false;
    kin_vid callback = VIRTUAL(r, a->whom)->items[LAZY_CALLBACK];
    bool asks = O(r, callback) != Py_None;
    if (!a->called && asks) {
        call(r, c, a, a->items, 1);
        return false;
    }
    kin_vid verdict = asks ? take(c) : a->items[0];
    int is_true = O(r, verdict) != NULL ? rec_truth(r, verdict) : -1;
    if (is_true < 0)
        rec_refuse(r);
    a->n = 0;
    a->called = false;
    *truth = is_true > 0;
    return is_true >= 0;
}

static void
go_on_filter(rec *r, rec_consumer *c, rec_ask *a)
{
    bool wanted = r->info.at[a->whom].type == &PyFilter_Type, truth;
    if (is_judged(r, c, a, &truth) && truth == wanted)
        give(c, a->items[0]);
}

static void
go_on_takewhile(rec *r, rec_consumer *c, rec_ask *a)
{
    rec_virtual *f = VIRTUAL(r, a->whom);
    bool truth;
    if (f->pos != 0) {
        stop(c);
    } else if (is_judged(r, c, a, &truth)) {
        if (truth) {
            give(c, a->items[0]);
            return;
        }
        f->pos = 1;
        keep_number(r, a->whom, 1);
        stop(c);
    }
}

static void
go_on_dropwhile(rec *r, rec_consumer *c, rec_ask *a)
{
    rec_virtual *f = VIRTUAL(r, a->whom);
    bool truth = false, begun = f->pos != 0;
    if ((begun ? !gather(r, c, a, 1, 0) : !is_judged(r, c, a, &truth)) || truth)
        return;
    f->pos = 1;
    if (!begun)
        keep_number(r, a->whom, 1);
    give(c, a->items[0]);
}

/* Each source until it has no more; it is let go of then. */
static void
go_on_chain(rec *r, rec_consumer *c, rec_ask *a)
{
    rec_virtual *f = VIRTUAL(r, a->whom);
    if (c->said == SAID_ITEM) {
        give(c, take(c));
        return;
    }
    if (c->said == SAID_END)
        keep_number(r, a->whom, ++f->gone);
    if (LAZY_SOURCES + f->gone < f->n)
        ask(r, c, f->items[LAZY_SOURCES + f->gone]);
    else
        stop(c);
}

/* chain.from_iterable: the iterator of the last thing that its source gave is the last of its items, while `pos` says that it is still asked. */
static void
go_on_flat(rec *r, rec_consumer *c, rec_ask *a)
{
    rec_virtual *f = VIRTUAL(r, a->whom);
    bool outer = a->called;
    a->called = false;
    if (c->said == SAID_ITEM && !outer) {
        give(c, take(c));
    } else if (c->said == SAID_ITEM) {
        kin_vid inner = rec_source(r, take(c));
        if (inner == 0 || !rec_virtual_push(f, inner)) {
            rec_refuse(r);
            return;
        }
        f->pos = 1;
        keep_state(r, a->whom, inner);
        ask(r, c, inner);
    } else if (c->said == SAID_END && outer) {
        f->gone = 1;
        keep_state(r, a->whom, rec_const(r, Py_None));
        stop(c);
    } else if (f->gone != 0) {
        stop(c);
    } else {
        f->pos = c->said == SAID_END ? 0 : f->pos;
        a->called = f->pos == 0;
        ask(r, c, f->pos != 0 ? f->items[f->n - 1] : f->items[LAZY_SOURCES]);
    }
}

/* Its last items are those that it gave as second ones. */
static void
go_on_pairwise(rec *r, rec_consumer *c, rec_ask *a)
{
    rec_virtual *f = VIRTUAL(r, a->whom);
    if (f->gone != 0) {
        stop(c);
        return;
    }
    if (c->said == SAID_END) {
        f->gone = 1;
        keep_state(r, a->whom, rec_const(r, Py_None));
        stop(c);
        return;
    }
    if (c->said == SAID_NOTHING && f->pos != 0)
        a->items[a->n++] = f->items[f->n - 1];
    if (!gather(r, c, a, 2, 0))
        return;
    f->pos = 1;
    if (!rec_virtual_push(f, a->items[1]))
        r->status = KIN_NOMEM;
    keep_state(r, a->whom, rec_build_tuple(r, a->items + 1, 1, NULL));
    give(c, rec_build_tuple(r, a->items, 2, NULL));
}

/* Sources that have no more are let go of. */
static void
go_on_longest(rec *r, rec_consumer *c, rec_ask *a)
{
    rec_virtual *f = VIRTUAL(r, a->whom);
    uint32_t n = f->n - LAZY_SOURCES - 1, all = (UINT32_C(1) << n) - 1;
    if (c->said == SAID_END)
        f->let_go |= UINT32_C(1) << a->n;
    if (f->let_go == all) {
        stop(c);
        return;
    }
    if (c->said != SAID_NOTHING)
        a->items[a->n++] = c->said == SAID_END ? f->items[f->n - 1] : c->answer;
    while (a->n < n && f->let_go >> a->n & 1)
        a->items[a->n++] = f->items[f->n - 1];
    if (a->n == n)
        give(c, rec_build_tuple(r, a->items, n, NULL));
    else
        ask(r, c, f->items[LAZY_SOURCES + a->n]);
}

static void
go_on_accumulate(rec *r, rec_consumer *c, rec_ask *a)
{
    rec_virtual *f = VIRTUAL(r, a->whom);
    bool first = f->pos == 0, start = first && f->n > LAZY_SOURCES + 1;
    if (!start && !a->called && !gather(r, c, a, 1, 0))
        return;
    if (!first && !a->called) {
        const kin_vid pair[2] = {f->items[f->n - 1], a->items[0]};
        call(r, c, a, pair, 2);
        return;
    }
    kin_vid total = start ? f->items[f->n - 1] : first ? a->items[0] : take(c);
    if (start)
        f->let_go = 1 << 1; /* the start, from now on the total of this moment */
    f->pos = 1;
    if (!rec_virtual_push(f, total))
        r->status = KIN_NOMEM;
    keep_state(r, a->whom, total);
    give(c, total);
}

/* The source is asked by the one that is ahead; the others get what it has given. */
static void
go_on_tee(rec *r, rec_consumer *c, rec_ask *a)
{
    rec_virtual *f = VIRTUAL(r, a->whom), *given = VIRTUAL(r, f->items[TEE_GIVEN]);
    if (c->said == SAID_END) {
        stop(c);
    } else if (c->said == SAID_NOTHING && f->pos == given->n) {
        ask(r, c, f->items[LAZY_SOURCES]);
    } else {
        kin_vid item = c->said == SAID_ITEM ? take(c) : given->items[f->pos];
        if (f->pos == given->n) {
            if (!rec_virtual_push(given, item))
                r->status = KIN_NOMEM;
            keep_state(r, f->items[TEE_ALL], rec_build_tuple(r, &item, 1, NULL));
        }
        f->pos++;
        keep_state(r, a->whom, rec_const(r, Py_None));
        give(c, item);
    }
}

/* What a groupby object keeps beside its source: its last items, from their end. `key` and `value` are 0, if it was not asked ahead. */
typedef struct {
    kin_vid group_key, group, key, value;
} groups;

enum { OF_GROUPS = sizeof(groups) / sizeof(kin_vid), GROUP_OF = LAZY_SOURCES + 1, GROUP_KEY };

static groups
read_groups(rec *r, kin_vid groupby)
{
    const rec_virtual *f = VIRTUAL(r, groupby);
    groups now = {0};
    if (f->n > f->made_of)
        memcpy(&now, f->items + f->n - OF_GROUPS, sizeof now);
    return now;
}

static void
keep_groups(rec *r, kin_vid groupby, const groups *now)
{
    kin_vid none = rec_const(r, Py_None), state[OF_GROUPS] = {now->group_key ? now->group_key : none, now->group ? now->group : none, now->key, now->value};
    rec_virtual *f = VIRTUAL(r, groupby);
    bool ok = rec_virtual_push(f, now->group_key) && rec_virtual_push(f, now->group) && rec_virtual_push(f, now->key) && rec_virtual_push(f, now->value);
    if (!ok)
        r->status = KIN_NOMEM;
    f->pos = 1;
    keep_state(r, groupby, rec_build_tuple(r, state, now->key != 0 ? OF_GROUPS : 2, NULL));
}

/* One item more, with its key. False: not yet, or there is none. */
static bool
step_groups(rec *r, rec_consumer *c, rec_ask *a, groups *now)
{
    kin_vid callback = VIRTUAL(r, a->whom)->items[LAZY_CALLBACK];
    if (!a->called && !gather(r, c, a, 1, 0))
        return false;
    if (!a->called && callback != 0) {
        call(r, c, a, a->items, 1);
        return false;
    }
    now->value = a->items[0];
    now->key = callback != 0 ? take(c) : now->value;
    a->called = false;
    a->n = 0;
    return true;
}

/* The group that the object gives. It is made by the class that also the object makes it of. */
static kin_vid
make_group(rec *r, kin_vid groupby, kin_vid key)
{
    PyTypeObject *cls = kin_iterator_class(KIN_ITERATOR_GROUP);
    const rec_virtual *f = VIRTUAL(r, groupby);
    kin_vid callee = cls != NULL ? rec_const(r, (PyObject *)cls) : 0, made[3] = {callee, groupby, key};
    const kin_vid items[] = {callee, f->items[LAZY_CALLBACK], f->items[LAZY_SOURCES], groupby, key};
    rec_region_asks(r, true); /* it does not look at what the object keeps */
    kin_vid group = rec_step_out(r, KIN_STEP_CALL, KIN_STEP_PURE, made, 3);
    rec_region_asks(r, false);
    rec_virtual *g = rec_make_virtual(r, group, VIRTUAL_LAZY, items, sizeof items / sizeof *items, true);
    if (g != NULL)
        g->made_of = g->n;
    r->info.at[group].type = cls;
    return group;
}

/* Passes over the rest of the last group. */
static void
go_on_groupby(rec *r, rec_consumer *c, rec_ask *a)
{
    groups now = read_groups(r, a->whom);
    if (c->said == SAID_NOTHING && now.group != 0) {
        now.group = 0;
        keep_groups(r, a->whom, &now);
    }
    bool stepped = (c->said == SAID_NOTHING && now.key != 0 && !a->called && a->n == 0) || step_groups(r, c, a, &now);
    if (!stepped)
        return;
    int same = now.group_key != 0 ? rec_decide_equal(r, now.group_key, now.key) : 0;
    if (same < 0) {
        rec_refuse(r);
    } else if (same > 0) {
        keep_groups(r, a->whom, &now);
        ask(r, c, VIRTUAL(r, a->whom)->items[LAZY_SOURCES]);
    } else {
        now.group_key = now.key;
        now.group = make_group(r, a->whom, now.key);
        keep_groups(r, a->whom, &now);
        const kin_vid pair[2] = {now.key, now.group};
        give(c, rec_build_tuple(r, pair, 2, NULL));
    }
}

static void
go_on_group(rec *r, rec_consumer *c, rec_ask *a)
{
    const rec_virtual *f = VIRTUAL(r, a->whom);
    kin_vid of = f->items[GROUP_OF], own_key = f->items[GROUP_KEY];
    const rec_virtual *all = VIRTUAL(r, of);
    if (all == NULL || !all->known || all->escaped) {
        rec_refuse(r);
        return;
    }
    groups now = read_groups(r, of);
    if (now.group != a->whom) {
        stop(c);
        return;
    }
    bool ahead = c->said == SAID_NOTHING && !a->called && now.key != 0;
    if (!ahead && !step_groups(r, c, a, &now))
        return;
    int same = rec_decide_equal(r, own_key, now.key);
    kin_vid item = now.value;
    if (same < 0) {
        rec_refuse(r);
        return;
    }
    if (same > 0)
        now.key = now.value = 0;
    if (same > 0 || !ahead)
        keep_groups(r, of, &now);
    if (same > 0)
        give(c, item);
    else
        stop(c);
}

/* The number behind the source; -1: None. */
static long
number_of(rec *r, const rec_virtual *f, uint32_t i)
{
    PyObject *obj = O(r, f->items[LAZY_SOURCES + i]);
    return obj == Py_None ? -1 : PyLong_AsLong(obj);
}

static void
keep_place(rec *r, kin_vid islice, long next)
{
    PyObject *state = Py_BuildValue("(ll)", next, (long)VIRTUAL(r, islice)->pos);
    keep_state(r, islice, rec_const(r, state));
    Py_XDECREF(state);
}

/* It lets go of its source. */
static void
end_islice(rec *r, rec_consumer *c, rec_ask *a)
{
    VIRTUAL(r, a->whom)->gone = 1;
    keep_state(r, a->whom, rec_const(r, Py_None));
    stop(c);
}

/* As CPython's islice_next, whose `cnt` is `pos`: it asks for the items up to the one that it gives. Which one that is follows from `cnt`. */
static void
go_on_islice(rec *r, rec_consumer *c, rec_ask *a)
{
    rec_virtual *f = VIRTUAL(r, a->whom);
    long start = number_of(r, f, 1), end = number_of(r, f, 2), step = number_of(r, f, 3), pos = (long)f->pos;
    if (f->gone != 0) {
        stop(c);
        return;
    }
    if (c->said == SAID_NOTHING) {
        long next = pos == 0 ? start : end >= 0 && pos - 1 + step > end ? end : pos - 1 + step;
        a->left = next > pos ? next - pos : 0;
    } else if (c->said == SAID_ITEM && a->left-- == 0) {
        f->pos++;
        keep_place(r, a->whom, end >= 0 && pos + step > end ? end : pos + step);
        give(c, take(c));
        return;
    } else if (c->said == SAID_ITEM) {
        pos = (long)++f->pos;
    }
    if (c->said == SAID_END || (a->left == 0 && end >= 0 && pos >= end))
        end_islice(r, c, a);
    else
        ask(r, c, f->items[LAZY_SOURCES]);
}

/* iter() of an object that has nothing but a __getitem__ in Python, which is called with 0, 1, 2 ... until it raises IndexError; reversed() counts down to 0,
 * and `pos` is how many numbers are left. */
static void
go_on_sequence(rec *r, rec_consumer *c, rec_ask *a)
{
    rec_virtual *f = VIRTUAL(r, a->whom);
    bool back = kind_of(r, a->whom) == KIN_ITERATOR_REVERSED;
    if (f->gone != 0) {
        stop(c);
    } else if (c->said == SAID_END || (back && f->pos == 0)) {
        f->gone = 1;
        keep_state(r, a->whom, rec_const(r, Py_None));
        stop(c);
    } else if (a->called) {
        f->pos += back ? -1 : 1;
        keep_number(r, a->whom, f->pos);
        give(c, take(c));
    } else {
        kin_vid source = f->items[LAZY_SOURCES];
        bool indexed = back ? rec_is_indexed_backwards(r, source) : rec_is_indexed(r, source);
        kin_vid item = indexed ? rec_python_method(r, source, REC_STR("__getitem__")) : 0;
        PyObject *number = PyLong_FromUnsignedLong(back ? f->pos - 1 : f->pos);
        const kin_vid args[2] = {source, rec_const(r, number)};
        Py_XDECREF(number);
        a->called = true;
        c->stepping = source;
        if (item == 0)
            rec_refuse(r);
        else
            rec_call_or_refuse(r, &(rec_args){.callee = item, .args = args, .npos = 2});
        c->wants = !r->refused;
    }
}

typedef struct {
    /* It is asked itself, if nothing was said; else what it has asked last has answered. */
    void (*go_on)(rec *r, rec_consumer *c, rec_ask *a);
    bool all; /* are all of its operands sources, or one? */
} asked_row;

static const asked_row rows[] = {
#define ALL true
#define ONE false
#define ITERATOR(KIND, module, name, makes, sources, least, most, reads, gives, state, example) {go_on_##gives, sources},
#include "py/replay/iterators.def"
#undef ITERATOR
};

/* -- the stack ------------------------------------------------------------------------------------------------------------- */

/* One that asks nobody. */
static void
answer_itself(rec *r, rec_consumer *c, kin_vid whom)
{
    kin_vid item = 0;
    if (rec_is_known_iter(r, whom)) {
        if (!rec_next_item(r, whom, &item))
            rec_refuse(r);
        if (item != 0)
            give(c, item);
        else
            stop(c);
        return;
    }
    if (rec_is_own_iterator(r, whom)) {
        kin_vid next = rec_python_method(r, whom, REC_STR("__next__"));
        c->stepping = whom;
        rec_call_or_refuse(r, &(rec_args){.callee = next, .args = &c->stepping, .npos = 1});
        c->wants = !r->refused;
        r->skip_expected = true; /* the __iter__ that chain calls late */
        return;
    }
    c->gen = rec_usable_generator(r, whom);
    if (c->gen == NULL)
        rec_refuse(r);
    else if (c->gen->state == GEN_DONE)
        stop(c);
    else
        c->wants = true;
}

/* The instruction's own object has no more. The consumer may be gone afterwards. */
static void
end_asking(rec *r, rec_consumer *c)
{
    c->ended = true;
    c->returned = c->sends ? rec_const(r, Py_None) : 0;
    if (c->before != INTO_CALL)
        return;
    if (c->in_rule) /* the function's frame has to come from below the instruction */
        rec_refuse(r);
    else
        rec_go_on_to_call(r, c, c->items, c->n);
}

static void
go_on(rec *r, rec_consumer *c)
{
    c->wants = false;
    c->gen = NULL;
    while (!r->refused && r->status == KIN_OK && !c->wants) {
        if (c->said == SAID_ITEM)
            rec_hold(r, c, O(r, c->answer));
        if (c->asks.len == 0 && c->said == SAID_END) {
            end_asking(r, c);
            return;
        }
        if (c->asks.len == 0) {
            if (!rec_take(r, c, take(c)))
                return;
            if (c->row != NULL && c->row->came != NULL)
                c->row->came(r, c);
            if (c->folding)
                return;
            ask(r, c, c->asked);
            continue;
        }
        rec_ask *a = &c->asks.at[c->asks.len - 1];
        rec_virtual *f = VIRTUAL(r, a->whom);
        if (f == NULL ? !rec_is_own_iterator(r, a->whom) : !f->known || f->escaped)
            rec_refuse(r);
        else if (f != NULL && f->kind == VIRTUAL_LAZY)
            rows[kind_of(r, a->whom)].go_on(r, c, a);
        else
            answer_itself(r, c, a->whom);
    }
}

void
rec_answer(rec *r, rec_consumer *c, kin_vid item, PyObject *obj)
{
    if (r->refused)
        return;
    if (item != 0 && O(r, item) == NULL)
        rec_set_obj(r, item, obj);
    c->said = item != 0 ? SAID_ITEM : SAID_END;
    c->answer = item;
    if (c->gen != NULL || (c->stepping != 0 && c->stepping == c->asks.at[c->asks.len - 1].whom))
        c->asks.len--;
    c->stepping = 0;
    go_on(r, c);
}

void
rec_measure_and_ask(rec *r, rec_consumer *c, kin_vid object, kin_vid length)
{
    if (length != 0)
        rec_measure(r, c, object, length);
    else
        rec_ask_first(r, c);
}

void
rec_ask_on(rec *r, rec_consumer *c)
{
    ask(r, c, c->asked);
    go_on(r, c);
}

/* -- the instruction -------------------------------------------------------------------------------------------------------- */

/* The end of the sources among its items. */
static uint32_t
end_of_sources(rec *r, kin_vid lazy)
{
    kin_iterator_kind kind = kind_of(r, lazy);
    if (!rows[kind].all)
        return LAZY_SOURCES + 1;
    return VIRTUAL(r, lazy)->n - (kind == KIN_ITERATOR_LONGEST); /* its last item fills in */
}

/* Can it be asked, and all those that it asks? */
static bool
can_be_asked(rec *r, kin_vid vid, int depth)
{
    const rec_virtual *f = vid ? VIRTUAL(r, vid) : NULL;
    if (rec_is_own_iterator(r, vid))
        return true;
    if (f == NULL || !f->known || f->escaped || depth > 8)
        return false;
    if (f->kind != VIRTUAL_LAZY)
        return f->kind == VIRTUAL_ITER || rec_usable_generator(r, vid) != NULL;
    if (kind_of(r, vid) == KIN_ITERATOR_SEQUENCE)
        return f->gone != 0 || rec_is_indexed(r, f->items[LAZY_SOURCES]);
    if (kind_of(r, vid) == KIN_ITERATOR_REVERSED)
        return f->gone != 0 || rec_is_indexed_backwards(r, f->items[LAZY_SOURCES]);
    for (uint32_t i = LAZY_SOURCES + f->gone; i < end_of_sources(r, vid); i++)
        if (!can_be_asked(r, f->items[i], depth + 1))
            return false;
    return true;
}

/* The row of breaks.def, if it is left as a step. */
static int
row_of(rec *r, kin_vid vid)
{
    const rec_virtual *f = VIRTUAL(r, vid);
    if (f == NULL || f->kind == VIRTUAL_OBJECT)
        return rec_any_tensor(r, &vid, 1) ? KIN_ROW_BUILTIN_CALL : -1;
    if (f->kind != VIRTUAL_LAZY)
        return f->kind == VIRTUAL_GENERATOR ? rec_iter_row(r, vid) : -1;
    int row = -1;
    for (uint32_t i = LAZY_SOURCES + f->gone; row < 0 && i < end_of_sources(r, vid); i++)
        row = row_of(r, f->items[i]);
    return row;
}

rec_consumer *
rec_begin_asking(rec *r, kin_vid whom)
{
    if (!can_be_asked(r, whom, 0))
        return NULL;
    int row = row_of(r, whom);
    rec_consumer *c = rec_begin_consumer(r, NULL);
    if (c == NULL)
        return NULL;
    c->asked = whom;
    c->opaque_row = row;
    c->ended = c->wants = false;
    return c;
}

void
rec_ask_first(rec *r, rec_consumer *c)
{
    c->in_rule = true;
    ask(r, c, c->asked);
    go_on(r, c);
    if (r->top->consumer == c)
        c->in_rule = false;
}
