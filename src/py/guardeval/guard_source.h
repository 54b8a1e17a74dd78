/* Names for values that are the same in every recording of a function (guard_source.c). What changed between calls is remembered
 * under them; users do not see them. All functions return a new str, or NULL with an exception.
 */
#ifndef KIN_PY_GUARD_SOURCE_H
#define KIN_PY_GUARD_SOURCE_H

#include "py/guardeval/guard.h"

PyObject *kin_value_source(const kin_entry *v, kin_vid vid);
/* One name for the attribute of all items of a list: `layers[0].most` and `layers[1].most`. */
PyObject *kin_alike_source(const kin_entry *v, kin_vid vid);
PyObject *kin_class_source(PyTypeObject *cls);
bool kin_is_class_source(PyObject *source);
/* ... of a size of the tensor with that source. */
enum { KIN_ALL_SIZES = -1, KIN_PERHAPS_FIRST = -2 /* the first one, since another has differed */ };
PyObject *kin_size_source(PyObject *source, int dim);
/* The sizes of whatever tensors come as arguments. */
PyObject *kin_all_sizes_source(void);

/* An object in words: its repr if that runs no user code, else a name. */
PyObject *kin_object_text(PyObject *obj);

/* Where a code object begins: "model.py:6". New reference. */
PyObject *kin_code_location(PyObject *code);

#endif
