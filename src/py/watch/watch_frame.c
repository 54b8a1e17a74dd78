/* Views of an interpreter frame for the watcher's clients, who need not know where CPython keeps the function, the code and the operand stack of a
 * frame on each version. */
#define Py_BUILD_CORE 1
#include "py/compat/frame_layout.h"

#include <internal/pycore_interp.h>
#include <stdlib.h>

#include "py/watch/watch.h"

#if PY_VERSION_HEX >= 0x030E0000
#define IS_SHIM(f) ((f)->owner >= FRAME_OWNED_BY_INTERPRETER)
#elif PY_VERSION_HEX >= 0x030C0000
#define IS_SHIM(f) ((f)->owner == FRAME_OWNED_BY_CSTACK)
#endif

/* 3.12+ puts a frame of its own between Python frames when C code is in between. */
static struct _PyInterpreterFrame *
skip_shims(struct _PyInterpreterFrame *f)
{
#if PY_VERSION_HEX >= 0x030C0000
    while (f != NULL && IS_SHIM(f))
        f = f->previous;
#endif
    return f;
}

PyCodeObject *
kin_watch_code(struct _PyInterpreterFrame *f)
{
    return layout_code(f);
}

PyObject *
kin_watch_func(struct _PyInterpreterFrame *f)
{
    return layout_func(f);
}

#if PY_VERSION_HEX >= 0x030E0000

/* Above the top of the stack there may be anything. */
static PyObject *
offset_in(PyCodeObject *code, intptr_t unit)
{
    return unit < Py_SIZE(code) ? kin_offset_object(unit) : NULL;
}

/* References carry tag bits: what is given out is a copy without them, good until the next call. For the
 * tagged number below an exception stands its object. */
PyObject *const *
kin_watch_localsplus(struct _PyInterpreterFrame *f)
{
    static PyObject **copy;
    static int room;
    PyCodeObject *code = kin_watch_code(f);
    int n = code->co_nlocalsplus + code->co_stacksize;
    if (n > room) {
        PyObject **grown = realloc(copy, (size_t)n * sizeof *copy);
        if (grown == NULL)
            Py_FatalError("no memory for the view of a frame");
        copy = grown;
        room = n;
    }
    for (int i = 0; i < n; i++) {
        _PyStackRef ref = f->localsplus[i];
        copy[i] = PyStackRef_IsTaggedInt(ref) ? offset_in(code, PyStackRef_UntagInt(ref)) : (PyObject *)(ref.bits & ~(uintptr_t)3);
    }
    return copy;
}

void
kin_watch_replace(struct _PyInterpreterFrame *f, int i, PyObject *value)
{
    _PyStackRef old = f->localsplus[i];
    f->localsplus[i] = PyStackRef_FromPyObjectSteal(value);
    PyStackRef_XCLOSE(old);
}

int
kin_watch_stack_depth(struct _PyInterpreterFrame *f)
{
    return f->stackpointer == NULL ? -1 : (int)(f->stackpointer - f->localsplus) - kin_watch_code(f)->co_nlocalsplus;
}

#else

PyObject *const *
kin_watch_localsplus(struct _PyInterpreterFrame *f)
{
    return f->localsplus;
}

void
kin_watch_replace(struct _PyInterpreterFrame *f, int i, PyObject *value)
{
    Py_XSETREF(f->localsplus[i], value);
}

int
kin_watch_stack_depth(struct _PyInterpreterFrame *f)
{
    return f->stacktop < 0 ? -1 : f->stacktop - kin_watch_code(f)->co_nlocalsplus;
}

#endif

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
kin_watch_is_ours(struct _PyInterpreterFrame *f)
{
    return f->owner == FRAME_OWNED_BY_THREAD;
}

bool
kin_watch_collecting(void)
{
    return PyInterpreterState_Get()->gc.collecting;
}
