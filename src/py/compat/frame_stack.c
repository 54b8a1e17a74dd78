/* Frames of CPython 3.11 to 3.14: a struct followed by localsplus and stack, linked from the thread's innermost frame
 * outwards. Ours lie in their own memory; their owner field says "thread", so frame objects and the garbage collector treat them like
 * frames on the data stack. frame_eval.c runs them.
 */
#define Py_BUILD_CORE 1
#include "py/compat/frame.h"

#include "py/compat/frame_layout.h"

#include "py/compat/recursion.h"

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct kin_frame {
    _PyInterpreterFrame f;
};

kin_frame *
kin_frame_new(PyObject *func, PyCodeObject *code)
{
    size_t slots = (size_t)code->co_nlocalsplus + (size_t)code->co_stacksize;
    kin_frame *frame = PyMem_Malloc(offsetof(kin_frame, f.localsplus) + (slots + 1) * sizeof(PyObject *));
    if (frame == NULL) {
        PyErr_NoMemory();
        return NULL;
    }
    _PyInterpreterFrame *f = &frame->f;
    PyFunctionObject *function = (PyFunctionObject *)func;
    layout_set_func(f, Py_NewRef(func), Py_NewRef(code));
    f->f_globals = function->func_globals;
    f->f_builtins = function->func_builtins;
    f->f_locals = NULL;
    f->frame_obj = NULL;
    f->previous = NULL;
    layout_set_next(f, 0);
    layout_set_top(f, code->co_nlocalsplus);
    f->owner = FRAME_OWNED_BY_THREAD;
    for (size_t i = 0; i < slots; i++)
        layout_put(f, (int)i, NULL);
    return frame;
}

void
kin_frame_set_local(kin_frame *frame, int i, PyObject *value)
{
    PyObject *old = layout_take(&frame->f, i);
    layout_put(&frame->f, i, value);
    Py_XDECREF(old);
}

void
kin_frame_push(kin_frame *frame, PyObject *value)
{
    int top = layout_top(&frame->f);
    layout_put(&frame->f, top, value);
    layout_set_top(&frame->f, top + 1);
}

void
kin_frame_pop(kin_frame *frame, int n)
{
    while (n-- > 0) {
        int top = layout_top(&frame->f) - 1;
        PyObject *value = layout_take(&frame->f, top);
        layout_set_top(&frame->f, top);
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

bool
kin_frames_have_namespaces(void)
{
    return PY_VERSION_HEX < 0x030D0000;
}

PyObject *
kin_frame_local(kin_frame *frame, int i)
{
    return layout_value(&frame->f, i);
}

void
kin_frame_link(PyThreadState *ts, kin_frame *frame, uint32_t offset)
{
    layout_set_current(&frame->f, offset);
    frame->f.previous = *layout_current(ts);
    *layout_current(ts) = &frame->f;
}

void
kin_frame_unlink(PyThreadState *ts, kin_frame *frame)
{
    *layout_current(ts) = frame->f.previous;
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
    PyFrameObject *frame_object = own_frame_object(ts, frame);
    PyErr_Restore(type, value, tb);
    if (frame_object != NULL)
        PyTraceBack_Here(frame_object);
    Py_XDECREF(frame_object);
}

/* The frame object outlives the frame: it gets the contents, and its caller's frame object as f_back. Requires: the
 * current frame is the one that was current below this frame. */
static void
hand_over(PyThreadState *ts, _PyInterpreterFrame *f, PyFrameObject *frame_object)
{
    _PyInterpreterFrame *kept = (_PyInterpreterFrame *)frame_object->_f_frame_data;
    bool was_linked = f->previous != NULL;
    int n = layout_top(f);
    memcpy(kept, f, offsetof(_PyInterpreterFrame, localsplus) + (size_t)n * sizeof(PyObject *));
    layout_set_top(kept, n); /* 3.14 points into the frame */
    kept->owner = FRAME_OWNED_BY_FRAME_OBJECT;
    kept->previous = NULL;
    if (_PyFrame_IsIncomplete(kept)) /* nobody will start it any more */
        layout_set_current(kept, (uint32_t)layout_code(kept)->_co_firsttraceable * sizeof(_Py_CODEUNIT));
    frame_object->f_frame = kept;
    if (was_linked && frame_object->f_back == NULL) {
        PyObject *type, *value, *tb;
        PyErr_Fetch(&type, &value, &tb);
        frame_object->f_back = PyThreadState_GetFrame(ts);
        PyErr_Restore(type, value, tb);
    }
    if (!PyObject_GC_IsTracked((PyObject *)frame_object))
        PyObject_GC_Track((PyObject *)frame_object);
}

static void
drop_contents(_PyInterpreterFrame *f)
{
    for (int i = 0; i < layout_top(f); i++) {
        PyObject *value = layout_take(f, i);
        Py_XDECREF(value);
    }
    Py_XDECREF(f->f_locals);
    Py_DECREF(layout_func(f));
    Py_DECREF(layout_code(f));
}

void
kin_frame_free(PyThreadState *ts, kin_frame *frame)
{
    if (frame == NULL)
        return;
    PyFrameObject *frame_object = frame->f.frame_obj;
    frame->f.frame_obj = NULL;
    kin_recursion_take(ts, 1); /* finalisers run one level down, as below a returning frame */
    if (frame_object != NULL && Py_REFCNT(frame_object) > 1) {
        hand_over(ts, &frame->f, frame_object);
        Py_DECREF(frame_object);
    }
    else {
        Py_XDECREF(frame_object);
        drop_contents(&frame->f);
    }
    kin_recursion_take(ts, -1);
    PyMem_Free(frame);
}

/* ---- calls through C ------------------------------------------------------------------------------------------- */

#if PY_VERSION_HEX >= 0x030E0000

/* CPython looks at the stack itself, at each evaluation. */
bool
kin_c_call_begin(PyThreadState *ts, kin_c_call *call)
{
    (void)ts, (void)call;
    return true;
}

void
kin_c_call_end(PyThreadState *ts, const kin_c_call *call)
{
    (void)ts, (void)call;
}

#else

enum { STACK_KEPT = 1 << 19 }; /* for what runs below: operators, code generation */

/* The address below which this thread's stack is about to end; 0: it is not known. */
static uintptr_t
find_stack_limit(void)
{
    pthread_attr_t attributes;
    void *lowest;
    size_t size;
    if (pthread_getattr_np(pthread_self(), &attributes) != 0)
        return 0;
    bool known = pthread_attr_getstack(&attributes, &lowest, &size) == 0;
    pthread_attr_destroy(&attributes);
    return known ? (uintptr_t)lowest + (size / 4 < STACK_KEPT ? size / 4 : STACK_KEPT) : 0;
}

static bool
stack_is_used_up(void)
{
    static _Thread_local uintptr_t limit;
    static _Thread_local bool asked;
    if (!asked)
        limit = find_stack_limit();
    asked = true;
    return (uintptr_t)__builtin_frame_address(0) < limit;
}

#if PY_VERSION_HEX >= 0x030C0000

enum { EVALUATION = 2 }; /* what ceval.c counts for one */
static _Thread_local int count_inside; /* in the function of the innermost compiled call; 0: none is running */

/* A count that is not that of the function around it: other C code is in between, which would have started an evaluation as well. */
static void
give_back(PyThreadState *ts, kin_c_call *call)
{
    call->around = count_inside;
    call->given = count_inside == 0 || count_inside == ts->c_recursion_remaining ? EVALUATION : 0;
    ts->c_recursion_remaining += call->given;
    count_inside = ts->c_recursion_remaining - EVALUATION;
}

static void
take_again(PyThreadState *ts, const kin_c_call *call)
{
    ts->c_recursion_remaining -= call->given;
    count_inside = call->around;
}

#else

static void
give_back(PyThreadState *ts, kin_c_call *call)
{
    (void)ts, (void)call; /* only frames are counted */
}

static void
take_again(PyThreadState *ts, const kin_c_call *call)
{
    (void)ts, (void)call;
}

#endif

bool
kin_c_call_begin(PyThreadState *ts, kin_c_call *call)
{
    if (stack_is_used_up()) {
        PyErr_SetString(PyExc_RecursionError, "maximum recursion depth exceeded: compiled functions call each other through C, whose stack is used up");
        return false;
    }
    give_back(ts, call);
    return true;
}

void
kin_c_call_end(PyThreadState *ts, const kin_c_call *call)
{
    take_again(ts, call);
}

#endif

kin_status
kin_frame_trace_opcodes(PyThreadState *ts, kin_frame *frame)
{
#if PY_VERSION_HEX >= 0x030C0000
    (void)ts, (void)frame;
    return KIN_OK; /* events belong to code objects */
#else
    frame->f.previous = *layout_current(ts);
    *layout_current(ts) = &frame->f;
    bool visible = !_PyFrame_IsIncomplete(&frame->f);
    PyFrameObject *frame_object = own_frame_object(ts, frame);
    *layout_current(ts) = frame->f.previous;
    if (frame_object == NULL)
        return visible ? KIN_NOMEM : KIN_OK; /* an unstarted frame reports its own call event */
    frame_object->f_trace_opcodes = 1;
    Py_DECREF(frame_object);
    return KIN_OK;
#endif
}

/* -- markers ---------------------------------------------------------------------------------------------------- */

/* A frame without locals still has room for them: from 3.13 on whoever reads f_locals looks at all of them. */
struct kin_marker {
    kin_marker *next; /* of those that wait to be used again */
    _PyInterpreterFrame *f;
    int room;
};

static kin_marker *spare_markers;

/* Keeps what there is when memory is short. */
static bool
grow_marker(kin_marker *m, int room)
{
    if (m->f != NULL && m->room >= room)
        return true;
    _PyInterpreterFrame *f = PyMem_Realloc(m->f, offsetof(_PyInterpreterFrame, localsplus) + ((size_t)room + 1) * sizeof(PyObject *));
    if (f == NULL)
        return false;
    memset(f, 0, sizeof *f);
    for (int i = 0; i < room; i++)
        layout_put(f, i, NULL);
    layout_set_top(f, 0);
    m->f = f;
    m->room = room;
    return true;
}

kin_marker *
kin_marker_take(void)
{
    enum { USUAL_ROOM = 32 };
    kin_marker *m = spare_markers;
    if (m != NULL) {
        spare_markers = m->next;
        return m;
    }
    m = PyMem_Calloc(1, sizeof *m);
    if (m != NULL && !grow_marker(m, USUAL_ROOM)) {
        PyMem_Free(m);
        return NULL;
    }
    return m;
}

void
kin_marker_give(kin_marker *m)
{
    if (m == NULL)
        return;
    m->next = spare_markers;
    spare_markers = m;
}

bool
kin_marker_set(kin_marker *m, PyObject *func, PyCodeObject *code)
{
    PyFunctionObject *function = (PyFunctionObject *)func;
    if (!grow_marker(m, code->co_nlocalsplus))
        return false;
    layout_set_func(m->f, func, (PyObject *)code);
    m->f->f_globals = function->func_globals;
    m->f->f_builtins = function->func_builtins;
    m->f->owner = FRAME_OWNED_BY_THREAD;
    return true;
}

void
kin_marker_link(PyThreadState *ts, kin_marker *m, uint32_t offset)
{
    layout_set_current(m->f, offset);
    m->f->previous = *layout_current(ts);
    *layout_current(ts) = m->f;
}

/* Somebody asked for the frame object: it goes on as the object of a frame that has ended, without locals. */
static void
leave_object(PyThreadState *ts, kin_marker *m)
{
    PyFrameObject *frame_object = m->f->frame_obj;
    m->f->frame_obj = NULL;
    Py_CLEAR(m->f->f_locals);
    if (Py_REFCNT(frame_object) > 1) {
        Py_INCREF(layout_func(m->f));
        Py_INCREF(layout_code(m->f));
        _PyInterpreterFrame *kept = (_PyInterpreterFrame *)frame_object->_f_frame_data;
        for (int i = 0; i < layout_code(m->f)->co_nlocalsplus; i++)
            layout_put(kept, i, NULL);
        hand_over(ts, m->f, frame_object);
    }
    Py_DECREF(frame_object);
}

void
kin_marker_unlink(PyThreadState *ts, kin_marker *m)
{
    *layout_current(ts) = m->f->previous;
    if (m->f->frame_obj != NULL) {
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

Py_ssize_t
kin_reference_count(PyObject *obj)
{
    Py_ssize_t n = Py_REFCNT(obj);
#if PY_VERSION_HEX >= 0x030E0000
    _PyInterpreterFrame *f = *layout_current(PyThreadState_Get());
    bool of_code = f != NULL && (f->owner == FRAME_OWNED_BY_THREAD || f->owner == FRAME_OWNED_BY_GENERATOR);
    for (int i = of_code ? layout_code(f)->co_nlocalsplus : 0; of_code && i < layout_top(f); i++) {
        _PyStackRef ref = f->localsplus[i];
        n += !PyStackRef_IsTaggedInt(ref) && (ref.bits & Py_TAG_REFCNT) && layout_value(f, i) == obj;
    }
#endif
    return n;
}

PyObject *
kin_frame_func(kin_frame *frame)
{
    return layout_func(&frame->f);
}
