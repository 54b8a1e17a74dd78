/* The rules, for the driver: one per canonical operation. */
#ifndef KIN_PY_RULES_RULES_H
#define KIN_PY_RULES_RULES_H

#include "py/recorder/rec.h"

/* ---- build.c ---- */
bool rec_op_build(rec *r);                              /* rule of the current instruction, if it makes an object */

/* ---- match.c ---- */
void rec_op_match_kind(rec *r, unsigned long flag);
void rec_op_get_len(rec *r);
void rec_op_match_class(rec *r, int npos);
void rec_op_match_keys(rec *r);

/* ---- ops.c ---- */
void rec_dispatch(rec *r);
void rec_call_slots(const rec_frame *f, int *callable, int *self, int *args); /* of CALL; the slot of self may be empty */
PyObject *rec_call_names(rec *r); /* of its keywords; borrowed, NULL: none */

/* ---- raise.c ---- */
bool rec_always_raises(const rec_frame *f);
void rec_catch(rec *r, rec_frame *f, uint32_t offset);  /* f goes on at a handler */
void rec_raise_known(rec *r);                           /* the instruction has raised an instance of r->raised_by_c */
void rec_raise_thrown(rec *r);                          /* the generator that has been resumed goes on with the exception r->thrown */
void rec_unwind(rec *r, PyObject *exc);                 /* the top frame is left by an exception (NULL: not known) */
bool rec_unwind_in_region(rec *r, PyObject *exc);       /* ... in a region, in which it was inlined; false: that is left to rec_leave_to_c, which may find r->pending set */
bool rec_op_exception(rec *r);                          /* rule of the current instruction, if it is about exceptions */
void rec_exception_escapes(rec *r, uint32_t raised);    /* ends the recording before the exception was raised */

/* ---- untouched.c ---- */
bool rec_leaves_no_mark(rec *r, uint32_t kept);  /* what was recorded, of which so many steps stay */

#endif
