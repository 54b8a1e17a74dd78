/* How many more Python frames this thread may open, whatever the running version calls that number. */
#ifndef KIN_PY_RECURSION_H
#define KIN_PY_RECURSION_H

#include <Python.h>

static inline int *
kin_recursion_slot(PyThreadState *ts)
{
#if PY_VERSION_HEX >= 0x030C0000
    return &ts->py_recursion_remaining;
#else
    return &ts->recursion_remaining;
#endif
}

static inline int
kin_recursion_left(PyThreadState *ts)
{
    return *kin_recursion_slot(ts);
}

/* Counts `frames` that run without being on CPython's stack; a negative number gives them back. */
static inline void
kin_recursion_take(PyThreadState *ts, int frames)
{
    *kin_recursion_slot(ts) -= frames;
}

#endif
