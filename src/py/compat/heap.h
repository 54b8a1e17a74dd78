/* Raw views of CPython's heap: dicts, inline instance values, instance dict pointers, at the level of words.
 *
 * Nothing here runs Python code or touches the pending exception; only functions that are called once allocate. All pointers are borrowed. The words
 * (`kin_word`) are what the fast guard array compares: as long as all of them hold, what the function returned is still true,
 * provided that the object it was asked about is still alive.
 */
#ifndef KIN_PY_HEAP_H
#define KIN_PY_HEAP_H

#include <Python.h>
#include <stdbool.h>
#include <stdint.h>

typedef struct {
    const uint64_t *addr;
    uint64_t word;
} kin_word;

typedef enum {
    KIN_FIND_ABSENT,
    KIN_FIND_HIT,
    KIN_FIND_UNSURE /* the answer depends on a user's __eq__ or __hash__ */
} kin_find;

/* Where a key was found. */
typedef struct {
    PyObject *value;
    PyObject *const *value_slot;
    PyObject *const *key_slot;
} kin_dict_entry;

/* Hash of a key whose hash and equality need no user code; false for any other object. */
bool kin_heap_key_hash(PyObject *key, Py_hash_t *hash);
/* Looks `key` up in a dict (or a subclass, ignoring its methods). */
kin_find kin_heap_dict_find(PyObject *dict, PyObject *key, Py_hash_t hash, kin_dict_entry *entry);
/* The word that changes whenever the dict is modified; NULL where the version does not see all modifications. From 3.14 on dicts have none
 * of their own: the dict is watched from the first time that it is asked for. */
const uint64_t *kin_heap_dict_version(PyObject *dict);
/* Words that keep the entry's slots where they are, up to 4; returns their number. */
int kin_heap_dict_entry_words(PyObject *dict, const kin_dict_entry *entry, kin_word *out);

/* The instance dict, NULL when the object has none (yet): its attributes may lie inside of it all the same. */
PyObject *kin_heap_instance_dict(PyObject *obj);
/* Attribute in the dict or the inline values; NULL when absent (or unsure). */
PyObject *kin_heap_instance_attr(PyObject *obj, PyObject *name);
/* Was no attribute ever stored in the object? */
bool kin_heap_instance_is_bare(PyObject *obj);
/* Is the name certainly absent from the dict and the inline values? */
bool kin_heap_instance_lacks(PyObject *obj, PyObject *name);

/* Is a store of the name one into the inline values, which stay inline? */
bool kin_heap_inline_room(PyObject *obj, PyObject *name);

/* Words that pin the instance dict pointer (absent or not); up to 2; returns their number, -1 if it cannot be pinned. */
int kin_heap_instance_dict_words(PyObject *obj, kin_word *out);
/* For an object with inline values in use: words that pin the inline slot of `name`, its value (or absence)
 * included; up to 5; returns their number, or -1 when the object does not use inline values. */
int kin_heap_inline_words(PyObject *obj, PyObject *name, kin_word *out);

/* Next element of a set in table order; false at the end. */
bool kin_heap_set_next(PyObject *set, Py_ssize_t *pos, PyObject **item);
/* Next key of an OrderedDict, or of an instance of a subclass, in its own order; *node is NULL to begin with. False at the end. */
bool kin_heap_ordered_next(PyObject *ordered, const void **node, PyObject **key);
/* The word that changes whenever that order does. */
const uint64_t *kin_heap_ordered_state(PyObject *ordered);

/* The word that holds tp_version_tag. */
const uint64_t *kin_heap_type_version(PyTypeObject *type);
/* Gives the class a version tag if it has none; 0 when it cannot get one. */
unsigned int kin_heap_type_tag(PyTypeObject *type);
/* Can an instance's type, or the attributes of this type, never change? So it is with classes of C, whether they are on the heap
 * (from 3.12 on collections' and itertools' are) or not. */
static inline bool
kin_heap_type_is_static(const PyTypeObject *type)
{
    return type->tp_flags & Py_TPFLAGS_IMMUTABLETYPE;
}
/* Is it the class of C with this name? A class of the program may be called anything. */
bool kin_heap_type_is(const PyTypeObject *type, const char *name);
/* An iterator of the interpreter's own over what needs no code of the program: neither its next item nor its length hint can run any. */
bool kin_heap_iterator_is_plain(PyObject *obj);

/* The dict of a class, borrowed. From 3.12 on the interpreter keeps those of builtin classes. */
PyObject *kin_type_dict(PyTypeObject *type);
/* What a builtin class has under a name, not bound to it; kept for the life of the process in *kept, NULL at first: borrowed. */
PyObject *kin_method_once(PyObject **kept, PyTypeObject *of, const char *name);

#endif
