/* Frames of CPython 3.11: a struct with localsplus and stack behind it, found from the innermost C frame of the
 * evaluator (tstate->cframe). Ours lie in their own memory; their owner field says "thread", so frame objects and the
 * collector treat them like frames on the data stack. cpython-frames: `prev_instr` is the code unit before the next
 * instruction when a frame is resumed, and the instruction itself while a frame waits inside it.
 */
#define Py_BUILD_CORE 1
#include "py/compat/frame.h"

#if PY_VERSION_HEX >= 0x030B0000 && PY_VERSION_HEX < 0x030C0000

#include "py/compat/recursion.h"

#include <internal/pycore_frame.h>

#include <stddef.h>
#include <string.h>

struct kin_frame {
    _PyInterpreterFrame f;
};

kin_frame *
kin_frame_new(PyThreadState *ts, PyObject *func, PyCodeObject *code)
{
    (void)ts;
    size_t slots = (size_t)code->co_nlocalsplus + (size_t)code->co_stacksize;
    kin_frame *frame = PyMem_Malloc(offsetof(kin_frame, f.localsplus) + (slots + 1) * sizeof(PyObject *));
    if (frame == NULL) {
        PyErr_NoMemory();
        return NULL;
    }
    _PyInterpreterFrame *f = &frame->f;
    PyFunctionObject *function = (PyFunctionObject *)func;
    f->f_func = (PyFunctionObject *)Py_NewRef(func);
    f->f_globals = function->func_globals;
    f->f_builtins = function->func_builtins;
    f->f_locals = NULL;
    f->f_code = (PyCodeObject *)Py_NewRef(code);
    f->frame_obj = NULL;
    f->previous = NULL;
    f->prev_instr = _PyCode_CODE(code) - 1;
    f->stacktop = code->co_nlocalsplus;
    f->is_entry = true;
    f->owner = FRAME_OWNED_BY_THREAD;
    memset(f->localsplus, 0, slots * sizeof(PyObject *));
    return frame;
}

void
kin_frame_set_local(kin_frame *frame, int i, PyObject *value)
{
    PyObject *old = frame->f.localsplus[i];
    frame->f.localsplus[i] = value;
    Py_XDECREF(old);
}

void
kin_frame_push(kin_frame *frame, PyObject *value)
{
    frame->f.localsplus[frame->f.stacktop++] = value;
}

void
kin_frame_pop(kin_frame *frame, int n)
{
    while (n-- > 0) {
        PyObject *value = frame->f.localsplus[--frame->f.stacktop];
        Py_XDECREF(value);
    }
}

PyObject *
kin_frame_namespace(kin_frame *frame)
{
    return frame->f.f_locals;
}

void
kin_frame_set_namespace(kin_frame *frame, PyObject *dict)
{
    Py_XSETREF(frame->f.f_locals, Py_XNewRef(dict));
}

PyObject *
kin_frame_local(kin_frame *frame, int i)
{
    return frame->f.localsplus[i];
}

void
kin_frame_link(PyThreadState *ts, kin_frame *frame, uint32_t offset)
{
    frame->f.prev_instr = _PyCode_CODE(frame->f.f_code) + offset / sizeof(_Py_CODEUNIT);
    frame->f.previous = ts->cframe->current_frame;
    ts->cframe->current_frame = &frame->f;
}

void
kin_frame_unlink(PyThreadState *ts, kin_frame *frame)
{
    ts->cframe->current_frame = frame->f.previous;
}

/* The frame object of the frame, which must be the current one; NULL when the frame is not visible yet (it has not
 * reached its RESUME) or without memory. New reference. */
static PyFrameObject *
own_frame_object(PyThreadState *ts, kin_frame *frame)
{
    if (_PyFrame_IsIncomplete(&frame->f))
        return NULL;
    return PyThreadState_GetFrame(ts);
}

void
kin_frame_traceback(PyThreadState *ts, kin_frame *frame)
{
    PyObject *type, *value, *tb;
    PyErr_Fetch(&type, &value, &tb);
    PyFrameObject *object = own_frame_object(ts, frame);
    PyErr_Restore(type, value, tb);
    if (object != NULL)
        PyTraceBack_Here(object);
    Py_XDECREF(object);
}

PyObject *
kin_frame_eval(PyThreadState *ts, kin_frame *frame, uint32_t offset, bool throwing)
{
    frame->f.prev_instr = _PyCode_CODE(frame->f.f_code) + offset / sizeof(_Py_CODEUNIT) - (throwing ? 0 : 1);
    return _PyEval_EvalFrameDefault(ts, &frame->f, throwing);
}

/* The frame object outlives the frame: it gets the contents, and its caller's frame object as f_back. Requires: the
 * current frame is the one that was current below this frame. */
static void
hand_over(PyThreadState *ts, _PyInterpreterFrame *f, PyFrameObject *object)
{
    _PyInterpreterFrame *kept = (_PyInterpreterFrame *)object->_f_frame_data;
    bool was_linked = f->previous != NULL;
    memcpy(kept, f, offsetof(_PyInterpreterFrame, localsplus) + (size_t)f->stacktop * sizeof(PyObject *));
    kept->owner = FRAME_OWNED_BY_FRAME_OBJECT;
    kept->previous = NULL;
    if (_PyFrame_IsIncomplete(kept)) /* nobody will start it any more */
        kept->prev_instr = _PyCode_CODE(kept->f_code) + kept->f_code->_co_firsttraceable;
    object->f_frame = kept;
    if (was_linked && object->f_back == NULL) {
        PyObject *type, *value, *tb;
        PyErr_Fetch(&type, &value, &tb);
        object->f_back = PyThreadState_GetFrame(ts);
        PyErr_Restore(type, value, tb);
    }
    if (!PyObject_GC_IsTracked((PyObject *)object))
        PyObject_GC_Track((PyObject *)object);
}

static void
drop_contents(_PyInterpreterFrame *f)
{
    for (int i = 0; i < f->stacktop; i++)
        Py_XDECREF(f->localsplus[i]);
    Py_XDECREF(f->f_locals);
    Py_DECREF(f->f_func);
    Py_DECREF(f->f_code);
}

void
kin_frame_free(PyThreadState *ts, kin_frame *frame)
{
    if (frame == NULL)
        return;
    PyFrameObject *object = frame->f.frame_obj;
    frame->f.frame_obj = NULL;
    kin_recursion_take(ts, 1); /* finalisers run one level down, as below a returning frame */
    if (object != NULL && Py_REFCNT(object) > 1) {
        hand_over(ts, &frame->f, object);
        Py_DECREF(object);
    }
    else {
        Py_XDECREF(object);
        drop_contents(&frame->f);
    }
    kin_recursion_take(ts, -1);
    PyMem_Free(frame);
}

kin_status
kin_frame_trace_opcodes(PyThreadState *ts, kin_frame *frame)
{
    frame->f.previous = ts->cframe->current_frame;
    ts->cframe->current_frame = &frame->f;
    bool visible = !_PyFrame_IsIncomplete(&frame->f);
    PyFrameObject *object = own_frame_object(ts, frame);
    ts->cframe->current_frame = frame->f.previous;
    if (object == NULL)
        return visible ? KIN_NOMEM : KIN_OK; /* an unstarted frame reports its own call event */
    object->f_trace_opcodes = 1;
    Py_DECREF(object);
    return KIN_OK;
}

/* -- markers ---------------------------------------------------------------------------------------------------- */

struct kin_marker {
    kin_marker *next; /* of those that wait to be used again */
    _PyInterpreterFrame f;
};

static kin_marker *spare_markers;

kin_marker *
kin_marker_take(void)
{
    kin_marker *m = spare_markers;
    if (m != NULL) {
        spare_markers = m->next;
        return m;
    }
    return PyMem_Calloc(1, sizeof *m);
}

void
kin_marker_give(kin_marker *m)
{
    if (m == NULL)
        return;
    m->next = spare_markers;
    spare_markers = m;
}

void
kin_marker_set(kin_marker *m, PyObject *func, PyCodeObject *code)
{
    PyFunctionObject *function = (PyFunctionObject *)func;
    m->f.f_func = function;
    m->f.f_globals = function->func_globals;
    m->f.f_builtins = function->func_builtins;
    m->f.f_code = code;
    m->f.owner = FRAME_OWNED_BY_THREAD;
    m->f.is_entry = true;
}

void
kin_marker_link(PyThreadState *ts, kin_marker *m, uint32_t offset)
{
    m->f.prev_instr = _PyCode_CODE(m->f.f_code) + offset / sizeof(_Py_CODEUNIT);
    m->f.previous = ts->cframe->current_frame;
    ts->cframe->current_frame = &m->f;
}

/* Somebody asked for the frame object: it goes on as the object of a frame that has ended, without locals. */
static void
leave_object(PyThreadState *ts, kin_marker *m)
{
    PyFrameObject *object = m->f.frame_obj;
    m->f.frame_obj = NULL;
    Py_CLEAR(m->f.f_locals);
    if (Py_REFCNT(object) > 1) {
        Py_INCREF(m->f.f_func);
        Py_INCREF(m->f.f_code);
        memset(((_PyInterpreterFrame *)object->_f_frame_data)->localsplus, 0, (size_t)m->f.f_code->co_nlocalsplus * sizeof(PyObject *));
        hand_over(ts, &m->f, object);
    }
    Py_DECREF(object);
}

void
kin_marker_unlink(PyThreadState *ts, kin_marker *m)
{
    ts->cframe->current_frame = m->f.previous;
    if (m->f.frame_obj != NULL) {
        PyObject *type, *value, *tb;
        PyErr_Fetch(&type, &value, &tb);
        leave_object(ts, m);
        PyErr_Restore(type, value, tb);
    }
}

struct _PyInterpreterFrame *
kin_frame_raw(kin_frame *frame)
{
    return &frame->f;
}

PyObject *
kin_frame_func(kin_frame *frame)
{
    return (PyObject *)frame->f.f_func;
}

#endif
