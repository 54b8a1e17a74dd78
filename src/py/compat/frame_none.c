/* CPython versions for which frames cannot be made yet: every request is refused. Nothing is recorded there, so no
 * replay ever gets here; the functions exist so that the extension builds.
 */
#include "py/compat/frame.h"

#if PY_VERSION_HEX < 0x030B0000 || PY_VERSION_HEX >= 0x030C0000

static void
refuse(void)
{
    PyErr_SetString(PyExc_NotImplementedError, "kintsugi cannot make frames on this version of CPython");
}

kin_frame *
kin_frame_new(PyThreadState *ts, PyObject *func, PyCodeObject *code)
{
    (void)ts, (void)func, (void)code;
    refuse();
    return NULL;
}

void
kin_frame_set_local(kin_frame *frame, int i, PyObject *value)
{
    (void)frame, (void)i;
    Py_XDECREF(value);
}

void
kin_frame_push(kin_frame *frame, PyObject *value)
{
    (void)frame;
    Py_XDECREF(value);
}

void
kin_frame_pop(kin_frame *frame, int n)
{
    (void)frame, (void)n;
}

PyObject *
kin_frame_namespace(kin_frame *frame)
{
    (void)frame;
    return NULL;
}

void
kin_frame_set_namespace(kin_frame *frame, PyObject *dict)
{
    (void)frame, (void)dict;
}

PyObject *
kin_frame_local(kin_frame *frame, int i)
{
    (void)frame, (void)i;
    return NULL;
}

void
kin_frame_link(PyThreadState *ts, kin_frame *frame, uint32_t offset)
{
    (void)ts, (void)frame, (void)offset;
}

void
kin_frame_unlink(PyThreadState *ts, kin_frame *frame)
{
    (void)ts, (void)frame;
}

void
kin_frame_traceback(PyThreadState *ts, kin_frame *frame)
{
    (void)ts, (void)frame;
}

PyObject *
kin_frame_eval(PyThreadState *ts, kin_frame *frame, uint32_t offset, bool throwing)
{
    (void)ts, (void)frame, (void)offset;
    if (!throwing)
        refuse();
    return NULL;
}

void
kin_frame_free(PyThreadState *ts, kin_frame *frame)
{
    (void)ts, (void)frame;
}

kin_status
kin_frame_trace_opcodes(PyThreadState *ts, kin_frame *frame)
{
    (void)ts, (void)frame;
    return KIN_BREAK;
}

kin_marker *
kin_marker_take(void)
{
    return NULL;
}

void
kin_marker_give(kin_marker *m)
{
    (void)m;
}

void
kin_marker_set(kin_marker *m, PyObject *func, PyCodeObject *code)
{
    (void)m, (void)func, (void)code;
}

void
kin_marker_link(PyThreadState *ts, kin_marker *m, uint32_t offset)
{
    (void)ts, (void)m, (void)offset;
}

void
kin_marker_unlink(PyThreadState *ts, kin_marker *m)
{
    (void)ts, (void)m;
}

struct _PyInterpreterFrame *
kin_frame_raw(kin_frame *frame)
{
    (void)frame;
    return NULL;
}

PyObject *
kin_frame_func(kin_frame *frame)
{
    (void)frame;
    return NULL;
}

#endif
