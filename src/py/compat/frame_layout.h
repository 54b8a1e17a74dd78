/* Where CPython 3.11, 3.12 and 3.13 keep what a frame knows. Private to py/compat: frames above it are `kin_frame`.
 *
 * 3.11 and 3.12 point to the code unit *before* the next instruction (`prev_instr`), 3.13 to the next or current one (`instr_ptr`).
 */
#ifndef KIN_PY_FRAME_LAYOUT_H
#define KIN_PY_FRAME_LAYOUT_H

#include <Python.h>

#if PY_VERSION_HEX >= 0x030B0000 && PY_VERSION_HEX < 0x030E0000
#define KIN_FRAMES 1

#include <internal/pycore_frame.h>

#include <stdint.h>

static inline PyCodeObject *
layout_code(const _PyInterpreterFrame *f)
{
#if PY_VERSION_HEX >= 0x030D0000
    return (PyCodeObject *)f->f_executable;
#else
    return f->f_code;
#endif
}

static inline PyObject *
layout_func(const _PyInterpreterFrame *f)
{
#if PY_VERSION_HEX >= 0x030C0000
    return f->f_funcobj;
#else
    return (PyObject *)f->f_func;
#endif
}

/* Steals both. */
static inline void
layout_set_func(_PyInterpreterFrame *f, PyObject *func, PyObject *code)
{
#if PY_VERSION_HEX >= 0x030D0000
    f->f_executable = code;
#else
    f->f_code = (PyCodeObject *)code;
#endif
#if PY_VERSION_HEX >= 0x030C0000
    f->f_funcobj = func;
    f->return_offset = 0;
#else
    f->f_func = (PyFunctionObject *)func;
    f->is_entry = true;
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
#endif
