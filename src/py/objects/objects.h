/* The meaning of attributes, calls and operators, for the folders above. */
#ifndef KIN_PY_OBJECTS_OBJECTS_H
#define KIN_PY_OBJECTS_OBJECTS_H

#include "py/recorder/rec.h"

/* ---- attr.c ---- */
kin_vid rec_fallback(rec *r, kin_vid base, PyObject *name); /* `extra` of KIN_RESUME_FALLBACK; 0 = cannot be had */
void rec_attr_find(rec *r, kin_vid base, PyObject *name, attr_result *out);
void rec_attr_generic(rec *r, kin_vid base, PyObject *name, attr_result *out);
kin_vid rec_instance_item(rec *r, kin_vid base, PyObject *name); /* SRC of an instance attribute; 0 = absent (made a fact) */
kin_vid rec_wrapped_function(rec *r, kin_vid descr, uint32_t word, PyObject *func); /* that a descriptor keeps in that word behind its head: 0, or 1 and 2 for a property's setter and deleter */
void rec_op_load_attr(rec *r, PyObject *name, bool method);
kin_vid rec_attribute(rec *r, kin_vid obj, PyObject *name);                            /* one that is read; 0: not known */

kin_vid rec_instance_dict(rec *r, kin_vid base); /* the instance dict as a value; 0 when the object has none at this moment */
bool rec_has_instance_dict(PyTypeObject *tp);

/* ---- attr_store.c ---- */
void rec_op_store_attr(rec *r, PyObject *name, bool delete);
bool rec_attr_place(rec *r, kin_vid obj, PyObject *name, PyObject *descr, rec_place *p); /* where a plain store puts it */
bool rec_store_by_descriptor(rec *r, kin_vid obj, PyObject *name, kin_vid value, int ndrop, kin_resume resume);
void rec_set_attribute(rec *r, kin_vid obj, PyObject *name, kin_vid value, int ndrop); /* setattr(); value 0: delattr() */

/* ---- call.c ---- */
bool rec_call_inlined(rec *r, const rec_args *a);
bool rec_call_partial(rec *r, const rec_args *a);
bool rec_partial_parts(rec *r, const rec_args *a, kin_vid partial, kin_vid *fn, kin_vid *all, rec_args *joined);
/* Names of keywords, a partial object's first, then those of the call; their values in `joined`, where the call's win. Borrowed; NULL: no memory. */
PyObject *rec_join_keywords(rec *r, const kin_vid *pairs, uint32_t npairs, const kin_vid *values, uint32_t nkw, PyObject *kwnames, kin_vid *joined);
bool rec_call_instance(rec *r, const rec_args *a);
PyObject *rec_call_in_python(rec *r, kin_vid obj);
kin_vid rec_call_of_instance(rec *r, kin_vid obj, PyObject *call);
void rec_do_call(rec *r, const rec_args *a);
bool rec_inline(rec *r, const rec_args *a, const kin_vid *under, int nunder, kin_resume resume, kin_vid extra);
void rec_fix_function(rec *r, kin_vid *func);          /* which code runs becomes a fact; *func may become a constant */
kin_vid rec_closure_cell(rec *r, kin_vid func, int i, PyObject *cell);
bool rec_can_inline(rec *r, PyObject *func);
bool rec_bind(rec *r, rec_args *a); /* to r->call.locals; the function may become a constant */
kin_vid rec_build_dict(rec *r, const kin_vid *pairs, uint32_t n); /* a new dict: keys and values alternate */

/* ---- pairs.c ---- */
bool rec_leaves_to_dict(rec *r, kin_vid dict, PyObject *name); /* is the method that of dict, or of OrderedDict, for an instance of a class derived from it? */
bool rec_copy_runs_no_code(rec *r, kin_vid dict);              /* can C code copy the dict without a call of what the program has written? */
/* Pairs of a dict whose keys are known (rec_is_pair_key), malloc'ed: its own, and those that C code copies. */
bool rec_own_pairs(rec *r, kin_vid dict, kin_vid **pairs, uint32_t *n);
bool rec_pairs_of(rec *r, kin_vid dict, kin_vid **pairs, uint32_t *n);

/* ---- copied.c: containers whose contents nothing is known of ---- */
bool rec_plays_builtin(PyObject *obj);      /* of a class of the program's that is a list or dict, and leaves to it how items are found and put */
void rec_need_played(rec *r, kin_vid vid);  /* that it stays so */
Py_ssize_t rec_unknown_length(rec *r, kin_vid vid); /* of one that tuple() may go over; -1: another one, or its contents are known */
kin_vid rec_copy_to_tuple(rec *r, kin_vid vid, Py_ssize_t n); /* tuple(vid), of a length that replay checks */
kin_vid rec_item_of_copy(rec *r, kin_vid all, PyObject *key); /* all[key]; steals the key */
bool rec_copied_items(rec *r, kin_vid vid, uint32_t most, kin_vid **items, uint32_t *n); /* at most `most`; the caller frees them */

/* ---- keyed.c ---- */
bool rec_subscr_missing(rec *r, kin_vid dict, kin_vid key); /* a defaultdict fills in what is missing */
bool rec_keyed_item(rec *r, const kin_vid *args);       /* table[key], told apart by address */

/* ---- operators.c ---- */
void rec_op_contains(rec *r, int invert);
void rec_op_is(rec *r, int invert);
void rec_op_binary(rec *r, kin_step_kind kind, int imm, int n);
bool rec_is_plain_value(PyObject *obj);  /* exact builtin immutable or container: operators on it run no user code */
bool rec_has_tensor(rec *r, const kin_vid *args, int n);
bool rec_can_fold(rec *r, kin_vid vid); /* constant, or immutable by construction (torch.Size and friends folded from metadata) */
void rec_operator_step(rec *r, kin_step_kind kind, int imm, const kin_vid *args, int n, PyTypeObject *result);

/* ---- override.c ---- */
bool rec_inline_override(rec *r, const rec_args *a, const kin_vid *under, int nunder, kin_resume resume); /* what is called is torch's */
bool rec_override_begins(rec *r, kin_vid *slots, PyObject *const *real);
bool rec_call_override(rec *r, const rec_args *a);
bool rec_overrides(rec *r, const kin_vid *args, uint32_t n); /* would torch ask the class of one of them? */
bool rec_getset_override(rec *r, kin_vid base, PyObject *name, bool under);

/* ---- overload.c ---- */
bool rec_inplace_python(rec *r, int imm, const kin_vid *args); /* inlines __iadd__ and its like */
bool rec_unary_python(rec *r, int imm, kin_vid arg);           /* __neg__ ... */
bool rec_operator_python(rec *r, kin_step_kind kind, int imm, const kin_vid *args); /* __add__, __radd__, __lt__ ... */
bool rec_operator_override(rec *r, kin_step_kind kind, int imm, const kin_vid *args, uint32_t n); /* ... of tensors whose class takes over calls of torch */
bool rec_equal_by_identity(rec *r, int op, const kin_vid *args);
void rec_add_in_place(rec *r, const kin_vid *args, int imm, int row); /* list += thing as an opaque step, told as `row` of breaks.def (-1: not at all) */
void rec_operator_return(rec *r, kin_vid result);              /* before such a method returns */
kin_vid rec_operator_truth(rec *r, kin_vid result);
void rec_operator_goes_on(rec *r, rec_frame *f);               /* ... it has returned NotImplemented */

/* ---- lists.c ---- */
rec_virtual *rec_known_list(rec *r, kin_vid list); /* a list made here whose items are known, or NULL */
bool rec_holds_items(PyObject *obj);
bool rec_extend_older(rec *r, const kin_vid *args);
bool rec_update_older(rec *r, int imm, const kin_vid *args);
PyObject *rec_list_extend(void);                   /* borrowed: list.extend, as the class has it */
/* list[from:to] = items, which are known. False: nothing was written. */
bool rec_list_splice(rec *r, kin_vid list, Py_ssize_t from, Py_ssize_t to, const kin_vid *items, uint32_t n);
bool rec_list_store(rec *r, kin_vid list, kin_vid key, kin_vid value);

/* ---- equal.c ---- */
bool rec_compare_items(rec *r, int op, const kin_vid *args); /* the instruction, where two lists or tuples with the same tensors are compared */
enum { REC_ITEM_UNKNOWN = -2, REC_ITEM_MISSING = -1 };
/* Where a known list or tuple has its first item that is equal, as list.index() finds it. count: NULL, or how many there are. */
bool rec_finds_by_item(rec *r, kin_vid container, kin_vid item); /* is `item in container` for rec_place_of_item to find out? */
int rec_place_of_item(rec *r, kin_vid container, kin_vid item, uint32_t *count);

/* ---- subscript.c ---- */
void rec_op_subscr(rec *r);
void rec_op_store_subscr(rec *r, bool delete);
void rec_op_load_slice(rec *r);
void rec_op_store_slice(rec *r);
kin_vid rec_known_item(rec *r, kin_vid container, kin_vid key); /* from known contents, or by path; 0: not possible */

/* ---- pure_operator.c ---- */
bool rec_call_pure_operator(rec *r, const rec_args *a); /* torch.cond, vmap ... of functions that only compute */

/* ---- super.c ---- */
kin_vid rec_make_super(rec *r, kin_vid callee, kin_vid cls, kin_vid self); /* super(cls, self) */
kin_vid rec_super_class(rec *r);                               /* what super() takes for cls; 0: not known */
void rec_op_load_super(rec *r, PyObject *name, bool method);

/* ---- truth.c ---- */
int rec_truth(rec *r, kin_vid vid); /* 0, 1 when known or made a fact; -1 when it must be decided at replay */
void rec_op_branch(rec *r);
void rec_finish_branch(rec *r, rec_frame *f, bool jumped);
void rec_op_truth(rec *r);
void rec_finish_truth(rec *r, rec_frame *f, PyObject *answer);
void rec_op_compare(rec *r);

/* ---- words.c ---- */
/* Does str() (`repr`: repr()) of the exception run no Python code, now and at replay? The step that asks for it has reads_words set. */
bool rec_words_run_no_code(rec *r, kin_vid exc, bool repr);

#endif
