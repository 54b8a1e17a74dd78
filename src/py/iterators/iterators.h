/* Generators, and C code that iterates or calls back, for the rules. */
#ifndef KIN_PY_ITERATORS_ITERATORS_H
#define KIN_PY_ITERATORS_ITERATORS_H

#include "py/recorder/rec.h"

/* ---- adopt.c ---- */
void rec_adopt_generators(rec *r, uint32_t step); /* at the beginning of a side trace, to which this step leads: those that were made before */

/* ---- callbacks.c ---- */
void rec_await_callback(rec *r, kin_vid func);        /* the next frame is that of the function, with what rec_bind found */
bool rec_call_or_refuse(rec *r, rec_args *call);      /* the same, binding the arguments; where they do not fit, the region is refused: false */
bool rec_consume_callbacks(rec *r, const rec_args *a);

/* ---- closing.c ---- */
void rec_before_return(rec *r); /* ... when the frame is left */
void rec_end_return(rec *r);    /* the recorded function's locals are gone */
void rec_before_drop(rec *r, kin_vid dropped); /* the instruction is about to drop the value: the last reference to a suspended generator may go with it */

/* ---- construct.c ---- */
bool rec_call_class(rec *r, const rec_args *a);
/* The __new__ of a class of named tuples, which is all that runs when it is called; 0: it is no such class. */
kin_vid rec_named_tuple_new(rec *r, kin_vid cls);
/* A new instance of a class that object allocates, and the __init__ in Python that it is given to; 0: the class is no such one. */
kin_vid rec_plain_instance(rec *r, kin_vid cls, kin_vid *init);
bool rec_call_constructor(rec *r, const rec_args *a);

/* ---- consume.c ---- */
void rec_note_consumed(rec *r, kin_vid out);           /* the result of an instruction below which Python code has run unfollowed */
bool rec_consume_for(rec *r, kin_vid it);             /* a for loop over a generator of ours */
bool rec_consume_send(rec *r, kin_vid it);            /* SEND to one */
bool rec_consume_unpack(rec *r, kin_vid vid, int before, int after);  /* unpacking of one, or of an object whose __iter__ makes one */
bool rec_leave_to_c(rec *r, rec_frame *f, PyObject *value);   /* a frame returns or yields; true: taken care of */
bool rec_passes_exception(rec *r, rec_frame *f);       /* a frame of a region, which an exception leaves: does what has called it only pass that on? */
bool rec_finish_consumer(rec *r, rec_frame *f, uint32_t offset); /* false: nothing else is to be done with the event */
void rec_free_consumer(rec_frame *f);
bool rec_end_consumer(rec *r);                        /* its C code calls more Python, which is no part of the region */
bool rec_fits(int before, int after, uint32_t n);             /* ... do so many fit? */

/* ---- consume_rows.c ---- */
bool rec_consume_call(rec *r, const rec_args *a);
bool rec_consume_added(rec *r, int imm); /* list += thing, where code of the program gives the items */

/* ---- generator.c ---- */
void rec_suspend_generator(rec *r, rec_gen *gen, struct _PyInterpreterFrame *f, uint32_t offset, const kin_vid *values, int n);
rec_gen *rec_new_generator(rec *r, kin_vid vid, PyCodeObject *code, const kin_vid *args, uint32_t n);
bool rec_generator_call(rec *r, const rec_args *a);
bool rec_enter_from_c(rec *r, struct _PyInterpreterFrame *f, bool *skip); /* a frame starts: one that a consumer waits for? */
void rec_op_yield(rec *r);
bool rec_leaves_generator(rec *r);                    /* the call returns, and a generator runs code when it is dropped: the recording ends earlier */
bool rec_consume_missing(rec *r); /* d[key] of a defaultdict made here, whose factory is a function of the program */
void rec_free_generators(rec *r);
rec_gen *rec_usable_generator(rec *r, kin_vid vid); /* one that the recorder may resume, or NULL */
kin_vid rec_hidden_generator(rec *r, kin_vid vid);
kin_vid rec_sized_generator(rec *r, kin_vid vid, kin_vid *length);
bool rec_has_hidden_generator(rec *r, kin_vid vid); /* would there be one? */
void rec_generator_write(rec *r, rec_gen *gen);     /* its state, as a step */
void rec_generator_detach(rec *r, rec_frame *f, bool yielded);

/* ---- iterables.c ---- */
bool rec_consume_unpacking(rec *r, kin_vid vid, int before, int after); /* an object whose __iter__ is Python */
bool rec_consume_iterables(rec *r, const rec_args *a);                 /* iterables.c */

/* ---- iterate.c ---- */
void rec_op_get_iter(rec *r);
int rec_dropped_at_end(const rec_frame *f);
void rec_op_for_iter(rec *r);
void rec_op_yield_from(rec *r);
void rec_op_send(rec *r);
int rec_iter_row(rec *r, kin_vid it);    /* of breaks.def, for a loop's next item as a step; asked while its operand is there */
void rec_ask_iter(rec *r, kin_vid it, int row); /* ... that step */
void rec_op_unpack(rec *r, int n);
void rec_op_unpack_ex(rec *r, int before, int after);
void rec_push_unpacked(rec *r, const kin_vid *items, uint32_t count, int before, int after); /* in place of the top */
bool rec_unpack_iterator(rec *r, kin_vid it, int before, int after);    /* the instruction is done, `it` was made in it */
void rec_finish_iter(rec *r, rec_frame *f, bool exhausted, PyObject *const *stack);

/* ---- lazy.c ---- */
bool rec_consume_unpack_lazy(rec *r, kin_vid lazy, int before, int after); /* of a map, filter, zip ... */
void rec_lazy_used_up(rec *r, kin_vid lazy);
bool rec_lazy_for_real(rec *r, kin_vid lazy, kin_vid **items, uint32_t *n); /* a map that a step is to use up, whoever has it */

/* ---- mapping.c ---- */
bool rec_consume_mapping(rec *r, const rec_args *a);
bool rec_consume_display(rec *r, kin_vid dict, kin_vid mapping, int row); /* {**mapping}, f(**mapping); row: of breaks.def, should it come to ... */
void rec_grow_opaquely(rec *r, kin_step_kind kind, kin_vid from, int row); /* ... the instruction as an opaque step; of lists, too */

/* ---- starred.c ---- */
void rec_op_list_extend(rec *r);
void rec_op_call_spread(rec *r);

#endif
