/* Guard evaluation: tests the facts of one epoch on live objects.
 *
 * Runs no Python code, allocates nothing, sets no exception and clears none. Values are read from the
 * roots down, so nothing is dereferenced before the fact that makes it valid has been tested.
 */
#ifndef KIN_PY_GUARD_H
#define KIN_PY_GUARD_H

#include "py/entry/entry.h"
#include <stdbool.h>

typedef struct {
    uint32_t fact; /* index in trace.facts that failed, or UINT32_MAX when a path could not be read */
    kin_vid vid;   /* the value it is about */
} kin_guard_miss;

/* Builds or rebuilds v->guards from v->trace (after kin_trace_finish). */
kin_status kin_guard_build(kin_entry *v) KIN_MUST_CHECK;
void kin_guard_free(struct kin_guard_prog *p);

/* Evaluates epoch `epoch`. slots[vid] holds owned references of values made so far (NULL = none). For epoch 0
 * the caller has filled the LOCAL and FUNC roots. On success every SRC value of the epoch that a step or a
 * snapshot uses, or that a later epoch reads from, has been loaded into slots (new references). On a miss nothing
 * is left in slots by this call. */
bool kin_guard_eval(kin_entry *v, uint32_t epoch, PyObject **slots, kin_guard_miss *miss);

/* As kin_guard_eval of epoch 0, but goes on behind facts about content that does not hold, and tells each of them, and each value as it is read (`fact` is NULL).
 * Loads nothing. */
void kin_guard_each_miss(kin_entry *v, PyObject **slots, void (*tell)(const kin_fact *fact, kin_vid vid, PyObject *obj, void *arg), void *arg);

/* Reads one SRC value from its parent object as the guard would; borrowed, NULL when absent. The recorder uses it
 * to check that a path leads to the object it saw. Sets no exception. */
PyObject *kin_guard_read(const kin_refs *refs, const kin_val *val, PyObject *parent);
/* What lies at the value's place now: its slot, or read from its parents, as far as they still are what they were. Borrowed, NULL when absent. */
PyObject *kin_guard_live(const kin_entry *v, kin_vid vid, PyObject *const *slots);
/* Does `obj` satisfy the fact now? (SAME/NOT_SAME: obj2.) */
bool kin_guard_holds(const kin_refs *refs, const kin_fact *fact, PyObject *obj, PyObject *obj2);

/* Exact comparison of builtin immutables: type pointer and bits: int, float, complex, str, bytes, bool,
 * None, Ellipsis, NotImplemented; tuple, slice, range, frozenset element by element; anything else by identity. */
bool kin_exact_equal(PyObject *a, PyObject *b);
/* Do such objects, or others that hash and compare as object does it, stand for one key in a dict? 1, True and 1.0 do. */
bool kin_exact_same_key(PyObject *a, PyObject *b);
/* bool() of an exact builtin, -1 for anything else. */
int kin_exact_truth(PyObject *obj);
/* Is obj of a type that kin_exact_equal compares by content (all the way down)? */
bool kin_is_exact_immutable(PyObject *obj);
/* Is every object of exactly this class one, whatever it holds? Not tuples, which may hold lists. */
bool kin_is_immutable_class(const PyTypeObject *type);
/* Can guards look such a key up in a dict? No user code decides whether it is there (kin_heap_key_hash). */
bool kin_is_exact_key(PyObject *obj);
/* dict[key] for such a key, without running code: borrowed; NULL (no exception is set): it is not there. */
PyObject *kin_exact_item(PyObject *dict, PyObject *key);

/* Is there a NaN in such an object? Two of them with the same bits are told apart by containers, which ask for identity
 * first: 1 in (1,) follows from values, nan in (nan,) does not. */
bool kin_exact_has_nan(PyObject *obj);

/* Does comparing and hashing obj, and what it contains, run no code of the program? An exact builtin container of builtin
 * immutables, of objects that are compared by identity, of plain tensors, or of such containers. `all`: of builtin
 * immutables only, so nothing else that is done with them runs any either. */
bool kin_exact_runs_no_code(PyObject *obj, bool all);

/* A word of the heap that a store fills, as the number of a CHECK FITS: kin_place << KIN_PLACE_SHIFT, and the index or byte
 * offset. Whether there was something before is not asked: the same program serves the first store and all later ones. */
typedef enum {
    KIN_PLACE_ITEM,         /* value under the key in an exact dict */
    KIN_PLACE_ATTR,         /* attribute value of the name, inline or in a dict that nobody else has */
    KIN_PLACE_INDEX_OF_LIST,
    KIN_PLACE_SLOT,         /* __slots__ member at the byte offset */
    KIN_PLACE_CELL,
    KIN_PLACE_END_OF_LIST   /* an item is added */
} kin_place;
#define KIN_PLACE_SHIFT 28
#define KIN_PLACE_INDEX ((1u << KIN_PLACE_SHIFT) - 1)

/* Does a store into this place change nothing but it: is it there, and does what lies there die, if it does, without running any
 * code? `ours`: references to its dict, if the place is an attribute, that are not the program's. */
bool kin_place_takes(PyObject *base, PyObject *key, uint32_t num, Py_ssize_t ours);
/* What lies there now: borrowed; NULL: nothing. */
PyObject *kin_place_content(PyObject *base, PyObject *key, uint32_t num);
/* Stores it there, NULL: takes away what is there (index: of an item that was added to a list). -1 with an exception. */
int kin_place_set(PyObject *base, PyObject *key, kin_place kind, uint32_t index, PyObject *value);
/* May the attribute of an object that the program has made itself be stored later than the program says? Its dict is nobody else's, and what
 * is replaced dies without running code. */
bool kin_owns_attribute(PyObject *obj, PyObject *name);
/* The same of an item of an object that is a dict. */
bool kin_owns_item(PyObject *dict, PyObject *key);
/* Does the object's death, when it comes to that, run no code of the program? */
bool kin_death_runs_no_code(PyObject *obj);

/* Instance attribute without the type's help: the dict's or the inline value's entry for the interned `name`.
 * Borrowed; NULL when absent. Never creates the dict. */
PyObject *kin_instance_attr(PyObject *obj, PyObject *name);
/* The materialised instance dict, or NULL when the object has none (yet). Borrowed. */
PyObject *kin_instance_dict(PyObject *obj);

/* Tells how COMPILED_FUNC reads a compiled wrapper: its exact type and the byte offset of the original callable. */
void kin_guard_set_compiled(PyTypeObject *type, Py_ssize_t offset);

/* Counters of epoch 0's fast array, for tests and reports, and sums over the later epochs. */
typedef struct {
    uint32_t words;    /* compares in the fast array, 0 = not armed */
    uint32_t explicit_ops; /* loads and tests that run one by one beside it */
    uint64_t fast_hits, explicit_hits, rearms;
    uint32_t later_words, later_ops;
    uint64_t later_fast, later_explicit;
    size_t bytes;      /* of memory, for all epochs */
} kin_guard_stats;
void kin_guard_get_stats(const kin_entry *v, kin_guard_stats *out);

/* len() of an exact builtin, -1 for anything else. */
Py_ssize_t kin_exact_len(PyObject *obj);

#endif
