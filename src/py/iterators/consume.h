/* Private to py/iterators: an instruction whose C code runs watched frames. */
#ifndef KIN_PY_ITERATORS_CONSUME_H
#define KIN_PY_ITERATORS_CONSUME_H

#include "py/compat/kinds.h"
#include "py/iterators/iterators.h"

/* What a consumer does with an item. */
typedef enum { TAKE_ONE, TAKE_ALL, TAKE_WHILE_TRUE, TAKE_WHILE_FALSE } take_rule;

enum { CONSUMER_ARGS = 32 };

/* In place of a number of names: what is unpacked goes into the list below, or into the call. */
enum { INTO_LIST = -1, INTO_CALL = -2 };

/* Is an object that is unpacked for that asked for its length first? A call gets its items as a tuple. */
static inline bool
rec_asks_length(int before)
{
    return before == INTO_LIST || (before == INTO_CALL && kin_tuples_ask_length);
}

/* Which operands a consumer has, and which of them it iterates over. */
typedef enum { ITEMS, ITEMS_AND_MAYBE_MORE, ITEMS_AND_MORE, OBJECT_AND_ITEMS } consumer_operands;

typedef struct consumer_row {
    const char *name;
    take_rule rule;
    bool (*finish)(rec *r, struct rec_consumer *c); /* pushes the result; false: not understood */
    void (*then)(rec *r, struct rec_consumer *c);   /* a callback has returned (NULL: the next one is called) */
    void (*written)(rec *r, struct rec_consumer *c); /* the region has ended: writes the changes of older objects (NULL: none) */
    void (*refused)(rec *r, const struct rec_consumer *c); /* the instruction as opaque steps (NULL: a call) */
    void (*came)(rec *r, struct rec_consumer *c); /* a generator has yielded (NULL: it is asked for the next item) */
    void (*over)(rec *r, struct rec_consumer *c); /* ... has ended (NULL: so is the instruction) */
    bool raises;   /* StopIteration, where there is no item */
    PyTypeObject *of; /* the class whose method it is (NULL: it is a builtin) */
    consumer_operands takes;
    bool looks;       /* `finish` looks at what the instruction has left on the stack */
    const struct consumer_row *by_key; /* its row in calls with a key function (NULL: it takes none) */
    bool sized;    /* asks an object for its length before its first item */
    bool objects;  /* also of an object whose __iter__ is Python (iterables.c) */
} consumer_row;

/* A value on the stack when the instruction began. Its object may die in the instruction. */
typedef struct {
    kin_vid vid;
    PyObject *held; /* alive until the end, as its death cannot be observed; else NULL */
} rec_operand;

/* An iterator that was asked for an item and asks others, or calls its function, for it (ask.c). */
typedef struct {
    kin_vid whom;
    kin_vid items[8]; /* what its sources have given */
    uint32_t n;
    bool called;
    long left;        /* islice: how many it passes over */
} rec_ask;

enum { MOST_SOURCES = sizeof ((rec_ask *)0)->items / sizeof(kin_vid) };

typedef struct rec_consumer {
    const consumer_row *row; /* NULL: a step of a for loop, a send */
    rec_gen *gen;     /* what is resumed for items; NULL: `callback` is called for them */
    kin_vid stepping; /* ... or the iterator whose __next__ in Python is; 0: it is none */
    bool measuring;    /* ... when the __len__ that is running has returned */
    bool wants, ended;
    bool raised;      /* an exception has come out of the generator, and goes on through the instruction */
    bool sends;       /* SEND, which gives what the generator returns */
    kin_vid sent;     /* what `yield` gives in the generator; 0: None */
    kin_vid thrown;   /* ... or raises there; 0: nothing */
    kin_vid returned;
    kin_vid *items;
    PyObject **held;         /* the objects, alive until the end: C code may drop them at once */
    uint32_t n, cap;
    kin_vid source;
    rec_args call;    /* the instruction, when it is a call; its operands are in `args` */
    kin_vid args[CONSUMER_ARGS];
    PyObject *function;      /* borrowed: what an iterator that the call makes will call; that keeps it */
    bool grows_older;        /* extend: a list that others can reach */
    bool from_tensor;        /* sum: what it begins with is one */
    KIN_VEC(rec_operand) operands; /* of the instruction: all that was on the stack, but for atoms */
    int opaque_row;          /* of the call left as a step; asked while its operands are there */
    /* callbacks */
    kin_vid callback, self;  /* self: 0, or the first argument of a method */
    kin_vid lazy;            /* 0, or the map or filter object that others hold, too */
    kin_vid partial;         /* 0, or the partial object made here that is called instead */
    kin_vid *inputs;         /* `width` arguments for each call */
    uint32_t ninputs, width, at, next;
    uint32_t drained;        /* the argument that a C function goes through */
    rec_gen *from;           /* the generator whose items the callback gets, while that runs; the one that is resumed when the length is there */
    bool folding;            /* ... while that of reduce runs between two items */
    bool select;             /* filter: the inputs with a true answer are the items */
    bool fold;               /* reduce: the last result is the first argument */
    bool reverse;
    /* asking (ask.c) */
    kin_vid asked;           /* 0, or the iterator whose items it takes */
    KIN_VEC(rec_ask) asks;   /* who waits for an answer, the last one first */
    enum { SAID_NOTHING, SAID_ITEM, SAID_END } said;
    kin_vid answer;
    KIN_VEC(PyObject *) kept;
    uint32_t nasked;
    bool in_rule;            /* nothing of the instruction has run yet */
    int before, after;       /* unpacking: names before and after a starred one; after < 0: none is starred */
} rec_consumer;

/* ---- callbacks.c ---- */
void rec_next_callback(rec *r, rec_consumer *c);
void rec_consume_as(rec *r, rec_consumer *c, const rec_args *a);
bool rec_is_reduce(PyObject *callee); /* functools.reduce */
extern const consumer_row rec_sorted_by_key, rec_min_by_key, rec_max_by_key;
bool rec_find_callback(rec *r, kin_vid callback, kin_vid *func, kin_vid *self);
bool rec_call_back(rec *r, kin_vid callback, const kin_vid *inputs, uint32_t n); /* such a callback is what comes next */
void rec_fold_known(rec *r, rec_consumer *c, kin_vid *inputs, uint32_t n, kin_vid func, kin_vid self); /* the consumer goes on as reduce() of these */
rec_consumer *rec_begin_callbacks(rec *r, const consumer_row *row, kin_vid callback, kin_vid *inputs, uint32_t n, uint32_t width);
bool rec_known_elements(rec *r, kin_vid vid, kin_vid **items, uint32_t *n); /* of an iterable that C code uses up */

/* ---- iterate.c ---- */
void rec_unpack_opaquely(rec *r, kin_vid vid, int before, int after, int row); /* the instruction as a step that ends the graph */

/* ---- lazy.c ---- */
bool rec_make_lazy(rec *r, const rec_args *a);
bool rec_takes_iterators(rec *r, const rec_args *a, uint32_t *first, uint32_t *end); /* does it begin with iter() of these operands? */
bool rec_make_tee(rec *r, const rec_args *a);
enum { TEE_ALL = LAZY_SOURCES + 1, TEE_GIVEN }; /* items of a tee object: the tuple of all that were made with it, and a value that holds what their source has given */
bool rec_consume_lazy(rec *r, const rec_args *a);
bool rec_consume_asked(rec *r, const rec_args *a);
kin_vid rec_source(rec *r, kin_vid vid); /* an iterator for what chain.from_iterable goes over; 0: not known */

bool rec_lazy_items(rec *r, kin_vid lazy, kin_vid **items, uint32_t *n, bool *shared); /* of a map that applies a C function; shared: it is to be used up */

/* ---- indexed.c ---- */
bool rec_is_indexed(rec *r, kin_vid vid); /* an object that iter() finds nothing in but a __getitem__ in Python; writes nothing */
bool rec_is_indexed_backwards(rec *r, kin_vid vid); /* ... reversed() */
kin_vid rec_index_iterator(rec *r, kin_vid vid); /* iter() of it */
void rec_push_index_iterator(rec *r, kin_vid vid, int ndrop); /* ... as the result of the instruction */
/* ... for C code, which asks for the length first, if it is `sized`: *length is the __len__ in Python, or 0. 0: it is no such object. */
kin_vid rec_hidden_index_iterator(rec *r, kin_vid vid, bool sized, kin_vid *length);
/* What an iterator of this recording is asked for its length by asks the object that it goes over: its __len__ in Python, or 0. False: that cannot be followed. */
bool rec_length_of_iterator(rec *r, kin_vid it, kin_vid *length);
bool rec_consume_indexed(rec *r, const rec_args *a); /* iter() and reversed() of such objects */

/* ---- closing.c ---- */
bool rec_throw_into(rec *r, rec_gen *gen, kin_vid what); /* its frame starts, with that exception */
void rec_close(rec *r, rec_consumer *c); /* the call closes c->gen, which runs code then */
bool rec_waits_guarded(const rec *r); /* is there a generator that runs code when it is closed? */
bool rec_consume_throw(rec *r, const rec_args *a);
bool rec_closes_dropped(rec *r, rec_gen *gen);          /* ... as its last reference has gone; false: that cannot be followed */
bool rec_leave_closed(rec *r, rec_frame *f, PyObject *value); /* a frame returns, yields or is unwound: that of a generator which is closed? */

/* ---- generator.c ---- */
void rec_resume_frame(rec *r, rec_gen *gen);
void rec_leave_open(rec *r, const rec_gen *gen); /* the recording ends before the generator was last resumed */

/* ---- drain.c ---- */
bool rec_consume_drained(rec *r, const rec_args *a);
bool rec_drains(rec *r, const rec_args *a, uint32_t *operand, bool *sized); /* it takes all items of this operand */
bool rec_drain_on(rec *r, rec_consumer *c, uint32_t operand, kin_vid object, kin_vid iterator); /* ... whose __iter__ has given an iterator; false: that is not followed item by item */
bool rec_finish_draining(rec *r, const rec_args *a, uint32_t operand); /* ... of an iterator with known items */

/* ---- consume.c ---- */
void rec_refuse_unpacking(rec *r, const rec_consumer *c); /* ends the recording */
rec_consumer *rec_begin_consumer(rec *r, rec_gen *gen);
/* The instruction, whose rule has run, has dropped the last reference to a generator; or a return has, before which was the state `snap`. */
bool rec_begin_dropping(rec *r, const consumer_row *row, rec_gen *gen, uint32_t snap);
rec_consumer *rec_begin_stepping(rec *r, const consumer_row *row, kin_vid iterator, kin_vid next);
extern const consumer_row rec_unpack_row;
bool rec_step_on(rec *r, rec_consumer *c); /* asks c->stepping for its next item */
/* `length`: what the object is asked for before its first item, its __len__ in Python; 0: nothing. */
rec_consumer *rec_begin_measured(rec *r, rec_gen *gen, kin_vid object, kin_vid length);
void rec_go_on_from(rec_consumer *c); /* c->from is resumed for the next item */
void rec_measure(rec *r, rec_consumer *c, kin_vid object, kin_vid length); /* that runs, and then the consumer goes on */
void rec_take_item(rec *r, rec_consumer *c, kin_vid item);
bool rec_take(rec *r, rec_consumer *c, kin_vid item); /* ... is used as the instruction does. Does it want more? */
void rec_aim(rec *r, rec_consumer *c, int before, int after); /* what the items are for */

/* ---- consume_rows.c ---- */
const consumer_row *rec_consumer_row(PyObject *callee);
int rec_consumed_operand(const consumer_row *row, uint32_t npos); /* what is iterated over; -1: it is not called with so many */
bool rec_is_operator(rec *r); /* list += thing, which is read as list.extend() */
void rec_refuse_call(rec *r, const rec_consumer *c); /* the instruction, if it can be that operator, as a step */
bool rec_finish_list(rec *r, rec_consumer *c);
bool rec_finish_send(rec *r, rec_consumer *c);

/* ---- starred.c ---- */
bool rec_finish_unpack(rec *r, rec_consumer *c); /* a, b = map(f, xs); a, *b = generator */
bool rec_hand_over(rec *r, const rec_consumer *c, const kin_vid *items, uint32_t n, int before, int after);
void rec_go_on_to_call(rec *r, rec_consumer *c, const kin_vid *items, uint32_t count);
void rec_refuse_starred(rec *r, const rec_consumer *c);

/* ---- iterables.c ---- */
kin_vid rec_python_method(rec *r, kin_vid vid, PyObject *name);
bool rec_steps_in_python(rec *r, kin_vid vid); /* an object with a __next__ in Python that can be followed; writes nothing */
bool rec_is_own_iterator(rec *r, kin_vid vid); /* ... whose __iter__ does nothing but give it back */

/* ---- ask.c ---- */
rec_consumer *rec_begin_asking(rec *r, kin_vid whom); /* NULL: it is not known whom that asks */
void rec_ask_first(rec *r, rec_consumer *c);        /* the consumer is complete */
void rec_measure_and_ask(rec *r, rec_consumer *c, kin_vid object, kin_vid length); /* ... if length is not 0, the object is asked for its length before */
void rec_ask_on(rec *r, rec_consumer *c);           /* ... wants the next item */
void rec_hold(rec *r, rec_consumer *c, PyObject *obj); /* until the instruction ends */
bool rec_is_asked(rec *r, kin_vid vid);             /* are its items to be asked for one by one? */
void rec_answer(rec *r, rec_consumer *c, kin_vid item, PyObject *obj); /* the frame that was waited for has given the item; 0: a generator has ended */

#endif
