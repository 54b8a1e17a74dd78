/* Known functions and classes of the Python library. */
#ifndef KIN_PY_MODELS_MODELS_H
#define KIN_PY_MODELS_MODELS_H

#include "py/recorder/rec.h"

typedef struct {
    const char *name; /* "len", "dict.get" */
    bool (*fn)(rec *r, const rec_args *a);
} rec_method_row;

/* ---- apply.c ---- */
bool rec_model_operator(rec *r, const rec_args *a);
bool rec_new_getter(rec *r, const rec_args *a);
/* The result as a value, perhaps without an object as yet; 0: not understood. Steps that were written before it was found out
 * are the caller's to truncate. */
kin_vid rec_apply(rec *r, kin_vid callee, const kin_vid *args, uint32_t n);
bool rec_can_apply(rec *r, kin_vid callee);
/* n calls with `width` arguments each. False: nothing was written. */
bool rec_apply_each(rec *r, kin_vid callee, const kin_vid *inputs, uint32_t n, uint32_t width, kin_vid *out);
bool rec_call_getter(rec *r, const rec_args *a);

/* ---- builtins.c ---- */
/* A C callable with a model: true when it took care of the whole call. */
bool rec_call_builtin(rec *r, const rec_args *a);
bool rec_model_value(rec *r, const rec_args *a, kin_vid value);
bool rec_model_bool(rec *r, const rec_args *a, bool value);
kin_vid rec_model_step(rec *r, const rec_args *a, unsigned flags);
bool rec_model_pure(rec *r, const rec_args *a);
void rec_model_store(rec *r, const rec_args *a, kin_vid value, rec_place *place); /* place: or NULL */
bool rec_is_pure_callable(PyObject *obj);

/* ---- dicts.c ---- */
extern const rec_method_row rec_ordered_rows[], rec_ordered_views[]; /* OrderedDict and its methods */
/* cls(first, pairs): an OrderedDict or a defaultdict, whose first argument is its factory; 0: none. The result of the call `a`. */
void rec_make_dict_of(rec *r, const rec_args *a, kin_vid cls, kin_vid first, const kin_vid *pairs, uint32_t n);
bool rec_model_fromkeys(rec *r, const rec_args *a); /* model_build.c */
bool rec_model_dict_update(rec *r, const rec_args *a);
bool rec_change_ordered(rec *r, const rec_args *a); /* methods.c: move_to_end ..., and update, of an OrderedDict that is not known */
bool rec_update_ordered(rec *r, const rec_args *a);
bool rec_join_in_place(rec *r, int imm); /* the instruction d |= other, where both are known */
extern const rec_method_row rec_default_rows[];
/* What _count_elements stores into a dict made here for these items: key, value, key, value ... False: not known. */
enum { MOST_COUNTED = 500 };
bool rec_count_items(rec *r, kin_vid dict, const kin_vid *items, uint32_t n, kin_vid *pairs, uint32_t *npairs);

/* ---- environ.c ---- */
/* True when it took care of the call. */
bool rec_call_environ(rec *r, const rec_args *a);

/* ---- handled.c ---- */
extern const rec_method_row rec_function_rows[];
extern const rec_method_row rec_proxy_rows[];
extern const rec_method_row rec_sys_rows[];
bool rec_new_method(rec *r, const rec_args *a);

/* ---- hidden.c ---- */
bool rec_model_ask(rec *r, const rec_args *a);       /* reads the outside world or hidden state, or acts on it; runs no Python code */
bool rec_model_id(rec *r, const rec_args *a);
bool rec_model_lock(rec *r, const rec_args *a);      /* a method of a lock; methods.c */
bool rec_model_hash(rec *r, const rec_args *a);
extern const rec_method_row rec_random_rows[];

/* ---- inspecting.c ---- */
/* True when it took care of the call. */
bool rec_call_signature(rec *r, const rec_args *a);

/* ---- library.c ---- */
/* A function of the library in Python, with the code it had when first needed (another kind of library: none). */
typedef struct {
    PyObject *function, *code;
    bool tried;
} rec_library;
void rec_library_find(rec_library *own, PyObject *function); /* steals; NULL: there is none, exceptions are cleared */
bool rec_library_is(const rec_library *own, PyObject *callee);
bool rec_library_is_named(rec_library *own, const char *module, const char *path, PyObject *callee); /* looks for it the first time */

/* ---- methods.c ---- */
extern const rec_method_row rec_method_rows[]; /* methods of builtin containers */
extern const rec_method_row rec_deque_rows[];   /* ... of collections.deque */
kin_vid rec_apply_method(rec *r, kin_vid descr, const kin_vid *args, uint32_t n);      /* of builtin containers */

/* ---- model_attrs.c ---- */
bool rec_model_dict_setitem(rec *r, const rec_args *a);

/* ---- model_build.c ---- */
bool rec_dict_of_pairs(rec *r, const rec_args *a, kin_vid *pairs, uint32_t n); /* the call's keywords behind them, for which there is room */
/* What dict(...) makes of the operands, keywords last; malloc'ed. */
bool rec_dict_pairs(rec *r, const rec_args *a, kin_vid **pairs, uint32_t *n);
bool rec_builds(PyObject *callee); /* list, tuple, dict, dict.fromkeys */
kin_vid rec_apply_build(rec *r, kin_vid callee, const kin_vid *args, uint32_t n);
bool rec_makes_iterator(PyObject *callee); /* zip, enumerate, reversed, iter */
kin_vid rec_apply_iterator(rec *r, kin_vid callee, const kin_vid *args, uint32_t n); /* ... over containers, which no instruction makes; 0: not known */
extern const rec_method_row rec_partial_rows[];
bool rec_model_exception(rec *r, const rec_args *a);

/* ---- model_items.c ---- */
bool rec_model_frame(rec *r, const rec_args *a);

/* ---- model_itertools.c ---- */
extern const rec_method_row rec_itertools_rows[];

/* ---- reduce.c ---- */
bool rec_model_reduce(rec *r, const rec_args *a);

/* ---- model_types.c ---- */
void rec_need_metaclass(rec *r, PyTypeObject *cls); /* isinstance with the class is answered by the same code */
void rec_abc_fact(rec *r); /* registrations with abstract base classes are as they were */
/* torch.Size of a list or tuple of ints. */
bool rec_model_size(rec *r, const rec_args *a);
extern const rec_method_row rec_type_rows[], rec_attr_rows[], rec_item_rows[], rec_build_rows[]; /* builtins */

/* ---- namedtuple.c ---- */
bool rec_call_namedtuple(rec *r, const rec_args *a);

/* ---- namespace.c ---- */
extern const rec_method_row rec_namespace_rows[];
bool rec_model_locals(rec *r, const rec_args *a);

/* ---- newobject.c ---- */
bool rec_model_new_object(rec *r, const rec_args *a, PyTypeObject *tp);

/* ---- optimizer.c ---- */
/* True when it took care of the call. */
bool rec_call_optimizer(rec *r, const rec_args *a);

/* ---- texts.c ---- */
extern const rec_method_row rec_text_rows[];

/* ---- weakrefs.c ---- */
bool rec_new_weakref(rec *r, const rec_args *a);
bool rec_call_weakref(rec *r, const rec_args *a);

/* ---- wrapping.c ---- */
bool rec_call_update_wrapper(rec *r, const rec_args *a);
bool rec_call_deepcopy(rec *r, const rec_args *a);
bool rec_call_cached(rec *r, const rec_args *a); /* of functools.lru_cache */

/* ---- model_items.c ---- */
bool rec_is_number(PyObject *obj);                       /* one of Python's own classes */
uint32_t rec_sum_of_numbers(rec *r, kin_vid *acc, const kin_vid *items, uint32_t n); /* of the first ones, as sum() adds floats; how many they are */

/* ---- ranges.c ---- */
/* A range of the profiler, made by the recording, is entered or left: writes the step. */
bool rec_tell_profiler(rec *r, PyObject *function, const kin_vid *args, uint32_t n);
bool rec_call_profiler_range(rec *r, const rec_args *a);

#endif
