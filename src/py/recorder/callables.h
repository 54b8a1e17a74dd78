/* Known C callables (core/trace/callables.def), found by their identity. */
#ifndef KIN_PY_RECORDER_CALLABLES_H
#define KIN_PY_RECORDER_CALLABLES_H

#include "core/trace/effects.h"
#include <Python.h>

/* Number of the callable's row in callables.def, -1: it has none. */
int rec_callable_row(PyObject *callable);
/* Do we know this (KIN_KNOWS_...) of the callable? */
bool rec_callable_knows(PyObject *callable, unsigned what);
/* What a call of it reads, changes and may run; that of any callable where nothing is known. */
uint32_t rec_callable_effects(PyObject *callable);
/* Names of the functions of torch._C that read settings and change nothing: new list, NULL with an exception. */
PyObject *rec_callable_settings(void);

#endif
