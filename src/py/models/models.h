/* Shared by the models of C callables. */
#ifndef KIN_PY_MODELS_MODELS_H
#define KIN_PY_MODELS_MODELS_H

#include "py/recorder/rec.h"

typedef struct {
    const char *name; /* "len", "dict.get" */
    bool (*fn)(rec *r, const rec_args *a);
} rec_method_row;

extern const rec_method_row rec_type_rows[], rec_attr_rows[], rec_item_rows[], rec_build_rows[]; /* model_*.c: builtins */
extern const rec_method_row rec_ordered_rows[], rec_ordered_views[]; /* methods of OrderedDict, by bare name */
extern const rec_method_row rec_method_rows[]; /* methods.c: methods of builtin containers */

extern const rec_method_row rec_deque_rows[];   /* ... of collections.deque */
extern const rec_method_row rec_itertools_rows[]; /* model_itertools.c */

bool rec_model_value(rec *r, const rec_args *a, kin_vid value);
bool rec_model_bool(rec *r, const rec_args *a, bool value);
kin_vid rec_model_step(rec *r, const rec_args *a, unsigned flags);
bool rec_dict_of_pairs(rec *r, const rec_args *a, kin_vid *pairs, uint32_t n); /* the call's keywords behind them, for which there is room */
/* What dict(...) makes of the operands, keywords last; malloc'ed. */
bool rec_dict_pairs(rec *r, const rec_args *a, kin_vid **pairs, uint32_t *n);
bool rec_model_dict_setitem(rec *r, const rec_args *a);
/* dicts.c */
bool rec_model_ordered_dict(rec *r, const rec_args *a);
bool rec_model_dict_update(rec *r, const rec_args *a);
extern const rec_method_row rec_default_rows[];
bool rec_model_partial(rec *r, const rec_args *a);
bool rec_model_exception(rec *r, const rec_args *a);
bool rec_model_frame(rec *r, const rec_args *a);
bool rec_model_pure(rec *r, const rec_args *a);
bool rec_model_operator(rec *r, const rec_args *a);  /* apply.c */
bool rec_new_getter(rec *r, const rec_args *a);
bool rec_model_new_object(rec *r, const rec_args *a, PyTypeObject *tp); /* newobject.c */
/* hidden.c */
bool rec_model_ask(rec *r, const rec_args *a);       /* reads the outside world or hidden state, or acts on it; runs no Python code */
bool rec_model_id(rec *r, const rec_args *a);
bool rec_model_hash(rec *r, const rec_args *a);
bool rec_model_random(rec *r, const rec_args *a);

bool rec_call_new(rec *r, const rec_args *a);        /* construct.c: object.__new__ and its like */
bool rec_model_type_call(rec *r, const rec_args *a);
void rec_model_store(rec *r, const rec_args *a, kin_vid value, rec_place *place); /* place: or NULL */

#endif
