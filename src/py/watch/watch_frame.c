/* Views of an interpreter frame for the watcher's clients: the only place that knows where CPython keeps the function,
 * the code and the operand stack of a frame on each version. */
#define Py_BUILD_CORE 1
#include <Python.h>
#include <internal/pycore_frame.h>

#include "py/watch/watch.h"

/* 3.12+ puts a frame of its own between Python frames when C code is in between. */
static struct _PyInterpreterFrame *
skip_shims(struct _PyInterpreterFrame *f)
{
#if PY_VERSION_HEX >= 0x030C0000
    while (f != NULL && f->owner == FRAME_OWNED_BY_CSTACK)
        f = f->previous;
#endif
    return f;
}

PyCodeObject *
kin_watch_code(struct _PyInterpreterFrame *f)
{
#if PY_VERSION_HEX >= 0x030D0000
    return (PyCodeObject *)f->f_executable;
#else
    return f->f_code;
#endif
}

PyObject *
kin_watch_func(struct _PyInterpreterFrame *f)
{
#if PY_VERSION_HEX >= 0x030C0000
    return f->f_funcobj;
#else
    return (PyObject *)f->f_func;
#endif
}

PyObject **
kin_watch_localsplus(struct _PyInterpreterFrame *f)
{
    return f->localsplus;
}

int
kin_watch_stack_depth(struct _PyInterpreterFrame *f)
{
    return f->stacktop < 0 ? -1 : f->stacktop - kin_watch_code(f)->co_nlocalsplus;
}

struct _PyInterpreterFrame *
kin_watch_previous(struct _PyInterpreterFrame *f)
{
    return skip_shims(f->previous);
}

struct _PyInterpreterFrame *
kin_watch_current(PyThreadState *ts)
{
#if PY_VERSION_HEX >= 0x030D0000
    return skip_shims(ts->current_frame);
#else
    return skip_shims(ts->cframe->current_frame);
#endif
}

bool
kin_watch_entered_from_c(struct _PyInterpreterFrame *f)
{
#if PY_VERSION_HEX >= 0x030C0000
    return f->previous == NULL || f->previous->owner == FRAME_OWNED_BY_CSTACK;
#else
    return f->is_entry;
#endif
}
