/* The layout of frames in CPython 3.11 to 3.14. Private to py/compat and py/watch: above them, frames are `kin_frame`.
 *
 * 3.11 and 3.12 point to the code unit *before* the next instruction (`prev_instr`), 3.13 to the next or current one (`instr_ptr`).
 * From 3.14 on, locals and stack hold tagged references: what we put there is owned, what CPython puts there may be borrowed.
 */
#ifndef KIN_PY_FRAME_LAYOUT_H
#define KIN_PY_FRAME_LAYOUT_H

#include <Python.h>

#if PY_VERSION_HEX < 0x030B0000 || PY_VERSION_HEX >= 0x030F0000
#error "there is code for CPython 3.11 to 3.14 (CONTRIBUTING.md: a new CPython version)"
#endif

#include <internal/pycore_frame.h>
#if PY_VERSION_HEX >= 0x030E0000
#include <internal/pycore_interpframe.h>
#include <internal/pycore_stackref.h>
#endif

#include <stdint.h>

#include "py/compat/kinds.h"

static inline PyCodeObject *
layout_code(const _PyInterpreterFrame *f)
{
#if PY_VERSION_HEX >= 0x030E0000
    return (PyCodeObject *)PyStackRef_AsPyObjectBorrow(f->f_executable);
#elif PY_VERSION_HEX >= 0x030D0000
    return (PyCodeObject *)f->f_executable;
#else
    return f->f_code;
#endif
}

static inline PyObject *
layout_func(const _PyInterpreterFrame *f)
{
#if PY_VERSION_HEX >= 0x030E0000
    return PyStackRef_AsPyObjectBorrow(f->f_funcobj);
#elif PY_VERSION_HEX >= 0x030C0000
    return f->f_funcobj;
#else
    return (PyObject *)f->f_func;
#endif
}

/* Steals both. */
static inline void
layout_set_func(_PyInterpreterFrame *f, PyObject *func, PyObject *code)
{
#if PY_VERSION_HEX >= 0x030E0000
    f->f_executable = PyStackRef_FromPyObjectSteal(code);
    f->visited = 0;
#elif PY_VERSION_HEX >= 0x030D0000
    f->f_executable = code;
#else
    f->f_code = (PyCodeObject *)code;
#endif
#if PY_VERSION_HEX >= 0x030E0000
    f->f_funcobj = PyStackRef_FromPyObjectSteal(func);
    f->return_offset = 0;
#elif PY_VERSION_HEX >= 0x030C0000
    f->f_funcobj = func;
    f->return_offset = 0;
#else
    f->f_func = (PyFunctionObject *)func;
    f->is_entry = true;
#endif
}

/* Steals func and drops what was there. */
static inline void
layout_replace_func(_PyInterpreterFrame *f, PyObject *func)
{
#if PY_VERSION_HEX >= 0x030E0000
    _PyStackRef old = f->f_funcobj;
    f->f_funcobj = PyStackRef_FromPyObjectSteal(func);
    PyStackRef_CLOSE(old);
#elif PY_VERSION_HEX >= 0x030C0000
    Py_SETREF(f->f_funcobj, func);
#else
    Py_SETREF(f->f_func, (PyFunctionObject *)func);
#endif
}

/* The frame is inside the instruction at byte `offset`. */
static inline void
layout_set_current(_PyInterpreterFrame *f, uint32_t offset)
{
    _Py_CODEUNIT *at = _PyCode_CODE(layout_code(f)) + offset / sizeof(_Py_CODEUNIT);
#if PY_VERSION_HEX >= 0x030D0000
    f->instr_ptr = at;
#else
    f->prev_instr = at;
#endif
}

/* The frame goes on with the instruction at byte `offset`. */
static inline void
layout_set_next(_PyInterpreterFrame *f, uint32_t offset)
{
#if PY_VERSION_HEX >= 0x030D0000
    layout_set_current(f, offset);
#else
    f->prev_instr = _PyCode_CODE(layout_code(f)) + offset / sizeof(_Py_CODEUNIT) - 1;
#endif
}

/* How many entries locals and stack have. */
static inline int
layout_top(const _PyInterpreterFrame *f)
{
#if PY_VERSION_HEX >= 0x030E0000
    return (int)(f->stackpointer - f->localsplus);
#else
    return f->stacktop;
#endif
}

static inline void
layout_set_top(_PyInterpreterFrame *f, int n)
{
#if PY_VERSION_HEX >= 0x030E0000
    f->stackpointer = f->localsplus + n;
#else
    f->stacktop = n;
#endif
}

/* Entry i, borrowed; NULL: nothing is there. */
static inline PyObject *
layout_value(const _PyInterpreterFrame *f, int i)
{
#if PY_VERSION_HEX >= 0x030E0000
    return PyStackRef_IsTaggedInt(f->localsplus[i]) ? kin_offset_object(PyStackRef_UntagInt(f->localsplus[i]))
                                                    : (PyObject *)(f->localsplus[i].bits & ~(uintptr_t)3);
#else
    return f->localsplus[i];
#endif
}

/* Steals value, NULL allowed; what was there is not given back. */
static inline void
layout_put(_PyInterpreterFrame *f, int i, PyObject *value)
{
#if PY_VERSION_HEX >= 0x030E0000
    intptr_t unit;
    if (value != NULL && kin_offset_check(value, &unit)) {
        f->localsplus[i] = PyStackRef_TagInt(unit);
        Py_DECREF(value);
        return;
    }
    f->localsplus[i] = value == NULL ? PyStackRef_NULL : PyStackRef_FromPyObjectSteal(value);
#else
    f->localsplus[i] = value;
#endif
}

/* Entry i with its reference; nothing is left there. */
static inline PyObject *
layout_take(_PyInterpreterFrame *f, int i)
{
    PyObject *value = layout_value(f, i);
#if PY_VERSION_HEX >= 0x030E0000
    if (value != NULL && (f->localsplus[i].bits & Py_TAG_REFCNT))
        Py_INCREF(value); /* borrowed, or immortal */
#endif
    layout_put(f, i, NULL);
    return value;
}

/* Where the thread keeps its innermost frame. */
static inline _PyInterpreterFrame **
layout_current(PyThreadState *ts)
{
#if PY_VERSION_HEX >= 0x030D0000
    return &ts->current_frame;
#else
    return &ts->cframe->current_frame;
#endif
}

#endif
