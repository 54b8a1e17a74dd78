/* The watcher on CPython 3.11: a C trace function with opcode events.
 *
 * The trace function is put into the thread state directly instead of through PyEval_SetTrace: that raises an audit
 * event, and with no trace object set sys.gettrace() keeps answering None, so the watched program sees no tracer. The
 * trace function therefore finds its watch in a thread-local.
 *
 * Opcode events are asked for frame by frame, on the frame object, when its `call` event comes. The flags are put back
 * when the frame returns or yields (a generator may outlive the watch) and, for frames that are still running when
 * the watch ends, by a walk up the stack.
 *
 * CPython hands EXTENDED_ARG to the trace function but not the instruction behind it, which is the reporting rule of
 * watch.h already.
 */
#include <Python.h>

#if PY_VERSION_HEX < 0x030C0000

#define Py_BUILD_CORE 1
#include <internal/pycore_frame.h>
/* The header defines its tables where it is asked to; under names of our own they cannot clash with another copy. */
#define NEED_OPCODE_TABLES 1
#define _PyOpcode_Caches kin_watch_caches
#define _PyOpcode_Deopt kin_watch_deopt
#include <internal/pycore_opcode.h>

#include "py/watch/watch.h"

static _Thread_local kin_watch *current_watch;
/* The frame that started the watch. */
static _Thread_local _PyInterpreterFrame *base_frame;
/* What sys.settrace is, so that a call of it is noticed before it takes the trace function away. */
static PyMethodDef *settrace_method;
static PyObject *settrace_name; /* interned; kept for the life of the process */

static int on_trace(PyObject *unused, PyFrameObject *frame, int what, PyObject *arg);

/* Same as CPython's own bookkeeping after a change of the trace function. */
static void
update_tracing(PyThreadState *ts)
{
    bool on = ts->tracing <= 0 && (ts->c_tracefunc != NULL || ts->c_profilefunc != NULL);
    ts->cframe->use_tracing = on ? 255 : 0;
}

static void
set_flags(PyFrameObject *frame, bool opcodes, bool lines)
{
    frame->f_trace_opcodes = opcodes;
    frame->f_trace_lines = lines;
}

static void
find_settrace(void)
{
    PyObject *settrace = PySys_GetObject("settrace");
    if (settrace_method == NULL && settrace != NULL && PyCFunction_Check(settrace))
        settrace_method = ((PyCFunctionObject *)settrace)->m_ml;
    if (settrace_name == NULL)
        settrace_name = PyUnicode_InternFromString("settrace");
    PyErr_Clear();
}

bool
kin_watch_foreign_tool(PyThreadState *ts)
{
    return (ts->c_tracefunc != NULL && ts->c_tracefunc != on_trace) || ts->c_profilefunc != NULL;
}

kin_status
kin_watch_follow(kin_watch *w, PyCodeObject *code)
{
    (void)w, (void)code;
    return KIN_OK; /* opcode events belong to frames: kin_frame_trace_opcodes */
}

kin_status
kin_watch_start(kin_watch *w)
{
    PyThreadState *ts = PyThreadState_Get();
    if (current_watch != NULL || ts->tracing > 0 || ts->c_tracefunc != NULL || ts->c_profilefunc != NULL)
        return KIN_BREAK;
    find_settrace();
    w->priv = ts;
    w->lost = false;
    w->active = true;
    current_watch = w;
    base_frame = ts->cframe->current_frame;
    ts->c_traceobj = NULL;
    ts->c_tracefunc = on_trace;
    update_tracing(ts);
    return KIN_OK;
}

/* Has this frame had its `call` event, or been handed to the watch as a continuation? */
static bool
is_open(_PyInterpreterFrame *f)
{
    return f->frame_obj != NULL && (f->frame_obj->f_trace_opcodes || !f->frame_obj->f_trace_lines);
}

/* Gives frames that go on running their flags back. Frames below the start of the watch have the defaults already. */
static void
reset_running_frames(PyThreadState *ts)
{
    for (_PyInterpreterFrame *f = ts->cframe->current_frame; f != NULL; f = f->previous)
        if (is_open(f))
            set_flags(f->frame_obj, false, true);
}

void
kin_watch_abandon(kin_watch *w)
{
    if (!w->active)
        return;
    PyThreadState *ts = w->priv;
    w->active = false;
    current_watch = NULL;
    if (ts->c_tracefunc == on_trace) {
        ts->c_tracefunc = NULL;
        update_tracing(ts);
    }
    else {
        w->lost = true;
    }
    reset_running_frames(ts);
}

void
kin_watch_stop(kin_watch *w)
{
    kin_watch_abandon(w);
}

static void
lose(kin_watch *w)
{
    kin_watch_abandon(w);
    w->lost = true;
}

static bool
is_settrace(PyObject *callable)
{
    return callable != NULL && PyCFunction_CheckExact(callable)
           && ((PyCFunctionObject *)callable)->m_ml == settrace_method;
}

/* sys.settrace() would end the watch without a word and hand its frames, flags included, to a debugger. */
static bool
calls_settrace(_PyInterpreterFrame *f)
{
    _Py_CODEUNIT subgraph = *f->prev_instr;
    PyObject **top = f->localsplus + f->stacktop;
    switch (_PyOpcode_Deopt[_Py_OPCODE(subgraph)]) {
    case PRECALL:
        return is_settrace(top[-1 - (int)_Py_OPARG(subgraph)]) || is_settrace(top[-2 - (int)_Py_OPARG(subgraph)]);
    case CALL_FUNCTION_EX:
        return is_settrace(top[_Py_OPARG(subgraph) & 1 ? -3 : -2]);
    default:
        return false;
    }
}

/* throw() into a generator that waits in `yield from` starts the inner frame on top of it, and may then go on with the
 * waiting frame without any event. What the collector calls while that frame's object is made is on top of it as well. */
static bool
starts_on_waiting_frame(_PyInterpreterFrame *f)
{
    _PyInterpreterFrame *caller = f->previous;
    return caller != NULL && caller->owner == FRAME_OWNED_BY_GENERATOR && caller != base_frame && !is_open(caller) && !kin_watch_collecting();
}

/* In frames without instruction events the call of sys.settrace() itself cannot be seen. */
static bool
mentions_settrace(PyCodeObject *code)
{
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(code->co_names); i++)
        if (PyTuple_GET_ITEM(code->co_names, i) == settrace_name)
            return true;
    return false;
}

static void
on_call(kin_watch *w, PyFrameObject *frame)
{
    if (starts_on_waiting_frame(frame->f_frame)) {
        lose(w);
        return;
    }
    bool wanted = w->client.call(w->arg, frame->f_frame);
    if (!w->active)
        return;
    set_flags(frame, wanted, false);
    if (!wanted && mentions_settrace(frame->f_frame->f_code))
        lose(w);
}

static void
on_instr(kin_watch *w, PyFrameObject *frame)
{
    _PyInterpreterFrame *f = frame->f_frame;
    if (calls_settrace(f)) {
        lose(w);
        return;
    }
    w->client.instr(w->arg, f, (uint32_t)_PyInterpreterFrame_LASTI(f) * sizeof(_Py_CODEUNIT));
}

static int
on_trace(PyObject *Py_UNUSED(unused), PyFrameObject *frame, int what, PyObject *arg)
{
    kin_watch *w = current_watch;
    if (w == NULL)
        return 0;
    switch (what) {
    case PyTrace_OPCODE:
        w->exception = NULL;
        on_instr(w, frame);
        break;
    case PyTrace_CALL:
        w->exception = NULL;
        on_call(w, frame);
        break;
    case PyTrace_EXCEPTION: /* type, value, traceback; stays pending until it is caught or has left the frame */
        w->exception = PyTuple_GET_ITEM(arg, 1);
        break;
    case PyTrace_RETURN:
        if (!is_open(frame->f_frame)) { /* an asynchronous exception got in before the frame's `call` event */
            lose(w);
            break;
        }
        set_flags(frame, false, true);
        w->client.ret(w->arg, frame->f_frame, arg);
        break;
    default: /* lines: seen through the instructions */
        break;
    }
    return 0;
}

#endif
