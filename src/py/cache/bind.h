/* Binding of call arguments to parameters, as CPython does it before a frame starts.
 *
 * Which argument goes to which parameter depends only on the code object and the *shape* of the call (how many positional arguments, which
 * keyword names), so it is computed once, as a plan:
 *
 *     if (kin_bind_plan_make(code, nargs, kwnames, &plan) == KIN_OK && kin_bind_fits(plan, &call))
 *         value = kin_bind_value(plan, &call, i);
 *
 * A call that CPython would refuse has no plan; the caller then calls the function, so that CPython raises its own
 * error. Defaults may change between calls: kin_bind_fits tests whether those that are needed exist now.
 */
#ifndef KIN_PY_CACHE_BIND_H
#define KIN_PY_CACHE_BIND_H

#include "core/base/status.h"
#include <Python.h>
#include <stdbool.h>
#include <stdint.h>

/* One call of a Python function. `self` (borrowed, may be NULL) goes before args[0]; kwnames is NULL or not empty. */
typedef struct {
    PyFunctionObject *func;
    PyObject *self;
    PyObject *const *args;
    Py_ssize_t nargs; /* positional arguments, self included */
    PyObject *kwnames;
} kin_bind_call;

typedef struct kin_bind_plan kin_bind_plan;

/* KIN_BREAK: the arguments do not fit. `nargs` includes self. Sets no exception. */
kin_status kin_bind_plan_make(PyCodeObject *code, Py_ssize_t nargs, PyObject *kwnames,
                              kin_bind_plan **out) KIN_MUST_CHECK;
void kin_bind_plan_free(kin_bind_plan *plan);

/* Number of parameters, *args and **kwargs included: they are the first entries of localsplus. */
uint32_t kin_bind_count(const kin_bind_plan *plan);
/* Does every parameter that was not passed have a default now? Sets no exception. */
bool kin_bind_fits(const kin_bind_plan *plan, const kin_bind_call *call);
/* The object of parameter i: new reference, NULL with an exception when out of memory or !kin_bind_fits. */
PyObject *kin_bind_value(const kin_bind_plan *plan, const kin_bind_call *call, uint32_t i);

#endif
