/* Shared by generator.c, region.c, consume.c, consume_rows.c, callbacks.c: an instruction whose C code runs watched frames. */
#ifndef KIN_PY_ITERATORS_CONSUME_H
#define KIN_PY_ITERATORS_CONSUME_H

#include "py/recorder/rec.h"

typedef enum { GEN_NEW, GEN_SUSPENDED, GEN_RUNNING, GEN_DONE, GEN_LOST } gen_state;

typedef struct rec_gen {
    struct rec_gen *next;
    kin_vid vid, func;
    PyCodeObject *code;
    gen_state state;
    bool hidden;           /* its object is C code's alone, which got it from an __iter__ */
    bool dirty;            /* its state was not put down yet */
    rec_frame *frame;      /* while suspended or running */
    void *raw;             /* the real frame, once started */
    kin_vid *locals;       /* parameters, bound */
} rec_gen;

/* What a consumer does with an item. */
typedef enum { TAKE_ONE, TAKE_ALL, TAKE_WHILE_TRUE, TAKE_WHILE_FALSE } take_rule;

enum { CONSUMER_ARGS = 32 };

/* In place of a number of names: what is unpacked goes into the list below, or into the call. */
enum { INTO_LIST = -1, INTO_CALL = -2 };

typedef struct {
    const char *name;
    take_rule rule;
    bool (*finish)(rec *r, struct rec_consumer *c); /* pushes the result; false: not understood */
    void (*then)(rec *r, struct rec_consumer *c);   /* a callback has returned (NULL: the next one is called) */
    void (*written)(rec *r, struct rec_consumer *c); /* the region is put down: changes of older objects (NULL: none) */
    void (*refused)(rec *r, const struct rec_consumer *c); /* the instruction as opaque steps (NULL: a call) */
} consumer_row;

/* A value on the stack when the instruction began. Its object may die in the instruction. */
typedef struct {
    kin_vid vid;
    PyObject *held; /* alive until the end, as its death cannot be told; else NULL */
} rec_operand;

typedef struct rec_consumer {
    const consumer_row *row; /* NULL: a step of a for loop, a send */
    rec_gen *gen;     /* what is resumed for items; NULL: `callback` is called for them */
    bool wants, ended;
    bool sends;       /* SEND, which gives what the generator returns */
    kin_vid returned;
    kin_vid *items;
    PyObject **held;         /* the objects, alive until the end: C code may drop them at once */
    uint32_t n, cap;
    kin_vid source;
    rec_args call;    /* the instruction, when it is a call; its operands are in `args` */
    kin_vid args[CONSUMER_ARGS];
    bool from_tensor;        /* sum: what it begins with is one */
    KIN_VEC(rec_operand) operands; /* of the instruction: all that was on the stack, but for atoms */
    int opaque_row;          /* of the call left as a step; asked while its operands are there */
    /* callbacks */
    kin_vid callback, self;  /* self: 0, or the first argument of a method */
    kin_vid lazy;            /* 0, or the map or filter object that others hold, too */
    kin_vid partial;         /* 0, or the partial object made here that is called instead */
    kin_vid *inputs;         /* `width` arguments for each call */
    uint32_t ninputs, width, at, next;
    bool select;             /* filter: the inputs with a true answer are the items */
    bool fold;               /* reduce: the last result is the first argument */
    bool reverse;
    kin_vid zip;             /* a for loop over a zip or enumerate object: 0, or the object; `next` is the source that is asked */
    int before, after;       /* unpacking: names before and after a starred one; after < 0: none is starred */
} rec_consumer;

/* region.c */
bool rec_region_open(rec *r);           /* at the current instruction, before its rule has changed anything */
void rec_region_free(struct rec_region *g);
bool rec_region_is_of(const rec *r, const rec_frame *f); /* there is one, and it began in this frame */
bool rec_region_repeatable(rec *r);     /* its torch calls changed no tensor and drew no random number */
void rec_region_commit(rec *r);
void rec_region_undo(rec *r);

/* generator.c */
rec_gen *rec_usable_generator(rec *r, kin_vid vid); /* one that the recorder may resume, or NULL */
kin_vid rec_hidden_generator(rec *r, kin_vid vid);
void rec_generator_write(rec *r, rec_gen *gen);     /* its state, as a step */
void rec_generator_detach(rec *r, rec_frame *f, bool yielded);
void rec_lose_generators(rec *r);                   /* those that the region touched go on unwatched */

/* consume.c, consume_rows.c */
void rec_refuse_unpacking(rec *r, const rec_consumer *c); /* ends the recording */
void rec_consume_opaquely(rec *r, const rec_consumer *c);
rec_consumer *rec_begin_consumer(rec *r, rec_gen *gen);
void rec_forget_operands(rec *r, const rec_consumer *c); /* the instruction is done: objects that may be dead are not looked at any more */
void rec_free_consumer(rec_frame *f);
const consumer_row *rec_consumer_row(PyObject *callee);
bool rec_items_constant(rec *r, rec_consumer *c);
bool rec_finish_list(rec *r, rec_consumer *c);
bool rec_end_consumer(rec *r);                        /* its C code calls more Python, which is no part of the region */

void rec_take_item(rec *r, rec_consumer *c, kin_vid item);

/* starred.c */
bool rec_hand_over(rec *r, const rec_consumer *c, const kin_vid *items, uint32_t n, int before, int after);
void rec_go_on_to_call(rec *r, rec_consumer *c, const kin_vid *items, uint32_t count);
void rec_refuse_starred(rec *r, const rec_consumer *c);
void rec_aim(rec *r, rec_consumer *c, int before, int after); /* consume.c: what the items are for */
bool rec_fits(int before, int after, uint32_t n);             /* ... do so many fit? */

/* zip.c */
bool rec_zip_call(rec *r, const rec_args *a);
bool rec_consume_zip(rec *r, kin_vid zip);
void rec_zip_went_on(rec *r, rec_consumer *c);
kin_vid rec_zip_item(rec *r, rec_consumer *c);
bool rec_zip_writes(rec *r, const rec_consumer *c); /* is there something of its own to put down? */
void rec_zip_write(rec *r, rec_consumer *c);

/* callbacks.c */
void rec_next_callback(rec *r, rec_consumer *c);
void rec_await_callback(rec *r, kin_vid func);        /* the next frame is that of the function, with what rec_bind found */
void rec_consume_as(rec *r, rec_consumer *c, const rec_args *a);
void rec_lazy_used_up(rec *r, kin_vid lazy);
bool rec_lazy_for_real(rec *r, kin_vid lazy, kin_vid **items, uint32_t *n); /* a map that a step is to use up, whoever has it */
bool rec_consume_iterables(rec *r, const rec_args *a);                 /* iterables.c */
bool rec_consume_callbacks(rec *r, const rec_args *a);

#endif
