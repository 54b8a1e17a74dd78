/* Shared by guard_text.c (facts, misses) and guard_source.c (paths, objects). */
#ifndef KIN_PY_GUARD_TEXT_PRIV_H
#define KIN_PY_GUARD_TEXT_PRIV_H

#include "py/guardeval/guard_text.h"

/* A new str for an object: its repr if that runs no user code, else a name. */
PyObject *kin_object_text(PyObject *obj);
PyObject *kin_path_text(const kin_entry *v, kin_vid vid, bool brief);

#endif
