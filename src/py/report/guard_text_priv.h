/* Shared by guard_text.c (facts, misses) and guard_source.c (paths). */
#ifndef KIN_PY_REPORT_GUARD_TEXT_PRIV_H
#define KIN_PY_REPORT_GUARD_TEXT_PRIV_H

#include "py/guardeval/guard_source.h"
#include "py/report/guard_text.h"

PyObject *kin_path_text(const kin_entry *v, kin_vid vid, bool brief);
/* An object in words, a lambda with the place where its code begins. */
PyObject *kin_named_text(PyObject *obj);
/* ... that has come in place of another one. */
PyObject *kin_other_text(PyObject *before, PyObject *obj);

/* The words of facts.def about a fact, with its value, its object and its other value as text. */
PyObject *kin_fact_words(const kin_trace *t, const kin_refs *refs, const kin_fact *f, PyObject *value, PyObject *ref, PyObject *other);

#endif
