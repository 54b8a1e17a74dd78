/* How much deeper this thread may go: how many more Python frames it may open, whatever the running version calls that number, and calls through C. */
#ifndef KIN_PY_RECURSION_H
#define KIN_PY_RECURSION_H

#include <Python.h>
#include <stdbool.h>

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

/* What a call of a compiled function found, for the end of the call. */
typedef struct {
    int around, given;
} kin_c_call;

/* Bytecode calls a compiled function through C, where it would have run the function itself without going deeper. So what CPython counts
 * of this is given back; the stack is used up all the same, and false, with RecursionError, says that little is left of it. */
bool kin_c_call_begin(PyThreadState *ts, kin_c_call *call);
void kin_c_call_end(PyThreadState *ts, const kin_c_call *call);

#endif
