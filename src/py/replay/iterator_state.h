/* The state that C iterators keep beside their sources: how far an enumerate or islice object is, whether a takewhile object has ended. */
#ifndef KIN_PY_ITERATOR_STATE_H
#define KIN_PY_ITERATOR_STATE_H

#include <Python.h>
#include <stdbool.h>

typedef enum {
#define ITERATOR(KIND, module, name, makes, sources, least, most, reads, gives, state, example) KIN_ITERATOR_##KIND,
#include "py/replay/iterators.def"
#undef ITERATOR
    KIN_ITERATOR__COUNT
} kin_iterator_kind;

PyTypeObject *kin_iterator_class(kin_iterator_kind kind);       /* borrowed; NULL: this interpreter has none */
kin_iterator_kind kin_iterator_kind_of(const PyTypeObject *tp); /* KIN_ITERATOR__COUNT: none of them */
/* Is it one of these classes, and can all that its objects keep be set? False as well where the running interpreter lays them out in a way that is not ours. */
bool kin_iterator_can_set(const PyTypeObject *tp);
/* enumerate: the next number. islice: the tuple of the index that it gives next and of the number of items it has asked for.
 * or None, when it has ended. chain: the number of sources that it is done with; chain.from_iterable:
 * the iterator that it asks, or None. pairwise: the tuple of the last item, or None. takewhile, dropwhile: whether it has ended, has begun, as 1 or 0.
 * accumulate: the last item. A tee object: None, one item further, which is there already; a tuple of tee objects: a tuple of the item that their
 * source has given. groupby: the tuple of the last group's key, that group or None, and, if it was asked ahead, the next key and item. An object that
 * asks __getitem__: the next index, or None. reversed: how many indices are left, or None; at first the tuple of the object and that number.
 * False: an exception is set. */
bool kin_iterator_set(PyObject *iterator, PyObject *state);

#endif
