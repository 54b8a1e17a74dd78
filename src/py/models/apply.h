/* C functions applied to values, outside of an instruction of their own (apply.c). */
#ifndef KIN_PY_MODELS_APPLY_H
#define KIN_PY_MODELS_APPLY_H

#include "py/models/models.h"

/* The result as a value, perhaps without an object as yet; 0: not understood. Steps that were written before it was found out
 * are the caller's to truncate. */
kin_vid rec_apply(rec *r, kin_vid callee, const kin_vid *args, uint32_t n);
bool rec_can_apply(rec *r, kin_vid callee);
/* n calls with `width` arguments each. False: nothing was written. */
bool rec_apply_each(rec *r, kin_vid callee, const kin_vid *inputs, uint32_t n, uint32_t width, kin_vid *out);

bool rec_call_getter(rec *r, const rec_args *a);

/* torch.c; the last arguments are keywords named by the tuple kwnames (NULL: none) */
kin_vid rec_apply_torch(rec *r, kin_vid callee, const kin_vid *args, uint32_t n, PyObject *kwnames);
bool rec_fix_for_torch(rec *r, const kin_vid *args, uint32_t n);                       /* ... operands; false: code of the program may run */
bool rec_is_tensor_value(rec *r, kin_vid vid);                                         /* ... a plain tensor, or what a call of torch gave */
kin_vid rec_apply_method(rec *r, kin_vid descr, const kin_vid *args, uint32_t n);      /* methods.c: of builtin containers */
bool rec_is_pure_callable(PyObject *obj);                                              /* builtins.c */
kin_vid rec_known_item(rec *r, kin_vid container, kin_vid key);                        /* operators.c */
kin_vid rec_attribute(rec *r, kin_vid obj, PyObject *name);                            /* attr.c: one that is read; 0: not known */

#endif
