/* What an object is, where CPython knows it under a name that some version keeps to itself. */
#ifndef KIN_PY_KINDS_H
#define KIN_PY_KINDS_H

#include <Python.h>
#include <stdbool.h>

/* Does a call of this function run its code in the evaluator, and nothing of somebody else's before it? */
bool kin_function_is_plain(PyObject *func);
/* The method of an instance that is written in C, as reading it gives it: (1).__add__ */
bool kin_is_method_wrapper(PyObject *obj);
/* The bare name of a function or method; "" when it has none. */
const char *kin_callable_name(PyObject *callable);
/* What a weak reference refers to, borrowed; None: it is gone. */
static inline PyObject *
kin_weakref_object(PyObject *ref)
{
    PyObject *object = ((PyWeakReference *)ref)->wr_object;
    return Py_REFCNT(object) > 0 ? object : Py_None;
}
/* The result of a C function that was called directly, or SystemError where result and pending exception contradict each other. */
PyObject *kin_checked_result(PyThreadState *ts, PyObject *callee, PyObject *result);
/* The dict that a view of keys, values or items looks at, borrowed. */
PyObject *kin_view_dict(PyObject *view);

#endif
