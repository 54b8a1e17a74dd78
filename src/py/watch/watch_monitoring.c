/* The watcher on CPython 3.12 and later: sys.monitoring with global events and callbacks that are C objects.
 *
 * The tool id and the callbacks are registered when the first watch starts and stay (registering raises audit events and
 * costs more than switching the events on and off). Global events fire in every thread and in every frame, so the
 * callback drops what does not belong to the watch; frames the client does not want are remembered in a small stack.
 *
 * An instruction with EXTENDED_ARG prefixes is reported for each prefix and for itself: all but the first are
 * dropped here. A frame that is already running when the watch starts is reported if it executes at all: those
 * below the start wait for it, so it can only be a continuation that was started on purpose.
 */
#define Py_BUILD_CORE 1
#include <Python.h>

#if PY_VERSION_HEX >= 0x030C0000

#include <internal/pycore_frame.h>
#include <internal/pycore_interp.h>
#include <opcode.h>
#include <stddef.h>
#include <stdlib.h>

#include "core/base/vec.h"
#include "py/watch/watch.h"

typedef enum { ON_INSTRUCTION, ON_START, ON_RESUME, ON_THROW, ON_RETURN, ON_YIELD, ON_UNWIND, ON__COUNT } event_kind;

static const char *const event_names[ON__COUNT] = {
    "INSTRUCTION", "PY_START", "PY_RESUME", "PY_THROW", "PY_RETURN", "PY_YIELD", "PY_UNWIND",
};

enum { LAST_TOOL_ID = 5, FIRST_TOOL_ID = 3 };

/* One frame that has started and not ended under the watch. */
typedef struct {
    struct _PyInterpreterFrame *frame;
    bool wanted;
} open_frame;

typedef struct {
    PyThreadState *ts;
    KIN_VEC(open_frame) frames;
    KIN_VEC(PyCodeObject *) followed; /* codes that report instructions by themselves, until the watch ends */
    PyCodeObject *code; /* the code of `bytes`, kept so that the address cannot be used again */
    PyObject *bytes;
} watch_state;

/* What stays for the life of the process; references in it are never dropped. */
static struct {
    bool ready;
    long tool;
    long instruction_mask, all_mask;
    PyObject *set_events, *set_local_events;
} monitoring;

static kin_watch *current_watch;

/* ---- callbacks -------------------------------------------------------------------------------------------- */

typedef struct {
    PyObject_HEAD
    vectorcallfunc call;
    event_kind kind;
} callback_object;

/* Whether the instruction at `offset` is the second half of a prefixed one. */
static bool
has_prefix(watch_state *s, PyCodeObject *code, uint32_t offset)
{
    if (s->code != code) {
        PyObject *bytes = PyCode_GetCode(code);
        if (bytes == NULL) {
            PyErr_Clear();
            return false;
        }
        Py_XSETREF(s->bytes, bytes);
        Py_XSETREF(s->code, (PyCodeObject *)Py_NewRef(code));
    }
    return offset >= 2 && (uint8_t)PyBytes_AS_STRING(s->bytes)[offset - 2] == EXTENDED_ARG;
}

/* Position of the frame among the open ones, counted from 1; entries above it have ended unseen and are dropped. */
static uint32_t
find_frame(watch_state *s, struct _PyInterpreterFrame *frame)
{
    uint32_t n = s->frames.len;
    while (n > 0 && s->frames.at[n - 1].frame != frame)
        n--;
    if (n > 0)
        s->frames.len = n;
    return n;
}

/* False, with the watch ended, when there is no memory. */
static bool
open_up(kin_watch *w, struct _PyInterpreterFrame *frame)
{
    watch_state *s = w->priv;
    open_frame entry = {frame, true};
    if (kin_vec_push(&s->frames, entry) == KIN_OK)
        return true;
    kin_watch_abandon(w);
    w->lost = true;
    return false;
}

static void
on_instruction(kin_watch *w, struct _PyInterpreterFrame *frame, PyObject *offset_object)
{
    watch_state *s = w->priv;
    uint32_t offset = (uint32_t)PyLong_AsUnsignedLong(offset_object);
    uint32_t n = find_frame(s, frame);
    if (n == 0 && s->frames.len == 0 && !open_up(w, frame)) /* it was running already when the watch started */
        return;
    if ((n > 0 && !s->frames.at[n - 1].wanted) || has_prefix(s, kin_watch_code(frame), offset))
        return;
    w->client.instr(w->arg, frame, offset);
}

static void
on_enter(kin_watch *w, struct _PyInterpreterFrame *frame)
{
    watch_state *s = w->priv;
    find_frame(s, kin_watch_previous(frame));
    if (!open_up(w, frame))
        return;
    bool wanted = w->client.call(w->arg, frame);
    if (w->active)
        s->frames.at[s->frames.len - 1].wanted = wanted;
}

static void
on_leave(kin_watch *w, struct _PyInterpreterFrame *frame, PyObject *value)
{
    watch_state *s = w->priv;
    if (find_frame(s, frame) > 0)
        s->frames.len--;
    w->client.ret(w->arg, frame, value);
}

/* Was nothing told of the frame, although its caller is watched? From CPython 3.13 on signals are handled before a frame's start or resumption is
 * told, so a handler that raises ends such a frame. To the caller it is its own instruction that raises.
 */
static bool
is_unannounced(watch_state *s, struct _PyInterpreterFrame *frame)
{
    return find_frame(s, frame) == 0 && find_frame(s, kin_watch_previous(frame)) > 0;
}

/* Arguments: code, offset, and the value or exception for the kinds that have one. */
static PyObject *
on_event(PyObject *self, PyObject *const *args, size_t nargsf, PyObject *Py_UNUSED(kwnames))
{
    kin_watch *w = current_watch;
    PyThreadState *ts = PyThreadState_Get();
    if (w == NULL || ((watch_state *)w->priv)->ts != ts || PyVectorcall_NARGS(nargsf) < 2)
        Py_RETURN_NONE;
    struct _PyInterpreterFrame *frame = kin_watch_current(ts);
    event_kind kind = ((callback_object *)self)->kind;
    switch (kind) {
    case ON_INSTRUCTION:
        on_instruction(w, frame, args[1]);
        break;
    case ON_THROW:
        if (kin_watch_is_ours(frame)) /* an exit that goes on with an exception: it has been entered already */
            break;
        on_enter(w, frame);
        break;
    case ON_START:
    case ON_RESUME:
        on_enter(w, frame);
        break;
    case ON_RETURN:
    case ON_YIELD:
        on_leave(w, frame, args[2]);
        break;
    case ON_UNWIND:
        if (is_unannounced(w->priv, frame))
            break;
        w->exception = PyVectorcall_NARGS(nargsf) > 2 ? args[2] : NULL;
        on_leave(w, frame, NULL);
        w->exception = NULL;
        break;
    case ON__COUNT:
        break;
    }
    Py_RETURN_NONE;
}

static PyTypeObject callback_type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "kintsugi._watch_callback",
    .tp_basicsize = sizeof(callback_object),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .tp_call = PyVectorcall_Call,
    .tp_vectorcall_offset = offsetof(callback_object, call),
};

/* ---- registration, once ----------------------------------------------------------------------------------- */

static bool
claim_tool(PyObject *module)
{
    for (long id = LAST_TOOL_ID; id >= FIRST_TOOL_ID; id--) {
        PyObject *r = PyObject_CallMethod(module, "use_tool_id", "ls", id, "kintsugi");
        if (r != NULL) {
            Py_DECREF(r);
            monitoring.tool = id;
            return true;
        }
        PyErr_Clear();
    }
    return false;
}

static bool
register_callback(PyObject *module, PyObject *events, event_kind kind)
{
    PyObject *mask = PyObject_GetAttrString(events, event_names[kind]);
    callback_object *callback = PyObject_New(callback_object, &callback_type);
    PyObject *r = NULL;
    if (mask != NULL && callback != NULL) {
        callback->call = on_event;
        callback->kind = kind;
        long bit = PyLong_AsLong(mask);
        monitoring.all_mask |= bit;
        if (kind == ON_INSTRUCTION)
            monitoring.instruction_mask = bit;
        r = PyObject_CallMethod(module, "register_callback", "lOO", monitoring.tool, mask, callback);
    }
    Py_XDECREF(mask);
    Py_XDECREF(callback);
    Py_XDECREF(r);
    return r != NULL;
}

static bool
set_up(PyObject *module)
{
    PyObject *events = PyObject_GetAttrString(module, "events");
    bool ok = events != NULL && PyType_Ready(&callback_type) == 0 && claim_tool(module);
    for (int kind = 0; ok && kind < ON__COUNT; kind++)
        ok = register_callback(module, events, kind);
    Py_XDECREF(events);
    if (!ok)
        return false;
    monitoring.set_events = PyObject_GetAttrString(module, "set_events");
    monitoring.set_local_events = PyObject_GetAttrString(module, "set_local_events");
    return monitoring.set_events != NULL && monitoring.set_local_events != NULL;
}

static bool
is_ready(void)
{
    PyObject *module = monitoring.ready ? NULL : PySys_GetObject("monitoring");
    if (module != NULL)
        monitoring.ready = set_up(module);
    PyErr_Clear();
    return monitoring.ready;
}

/* ---- other tools ------------------------------------------------------------------------------------------ */

/* Two tools with instruction events starve one another on 3.12 and later. */
static bool
another_tool_watches_instructions(PyThreadState *ts)
{
    uint8_t tools = PyThreadState_GetInterpreter(ts)->monitors.tools[PY_MONITORING_EVENT_INSTRUCTION];
    return (tools & ~(monitoring.ready ? 1u << monitoring.tool : 0u)) != 0;
}

/* Asked at each call and each recorded instruction, so it reads what the interpreter knows instead of asking sys.monitoring. */
bool
kin_watch_foreign_tool(PyThreadState *ts)
{
    return ts->c_tracefunc != NULL || ts->c_profilefunc != NULL || another_tool_watches_instructions(ts);
}

/* ---- start and stop --------------------------------------------------------------------------------------- */

/* Of the code; NULL: of all code. */
static bool
switch_events(PyCodeObject *code, long mask)
{
    PyObject *pending = PyErr_GetRaisedException();
    PyObject *r = code == NULL ? PyObject_CallFunction(monitoring.set_events, "ll", monitoring.tool, mask)
                               : PyObject_CallFunction(monitoring.set_local_events, "lOl", monitoring.tool, code, mask);
    bool ok = r != NULL;
    Py_XDECREF(r);
    PyErr_SetRaisedException(pending);
    return ok;
}

/* Code takes up global events at its next RESUME only; events of its own it takes up at once. */
kin_status
kin_watch_follow(kin_watch *w, PyCodeObject *code)
{
    watch_state *s = w->priv;
    for (uint32_t i = 0; i < s->followed.len; i++)
        if (s->followed.at[i] == code)
            return KIN_OK;
    KIN_TRY(kin_vec_push(&s->followed, code));
    Py_INCREF(code);
    return switch_events(code, monitoring.instruction_mask) ? KIN_OK : KIN_BREAK;
}

static void
free_state(watch_state *s)
{
    for (uint32_t i = 0; i < s->followed.len; i++) {
        switch_events(s->followed.at[i], 0);
        Py_DECREF(s->followed.at[i]);
    }
    kin_vec_deinit(&s->followed);
    kin_vec_deinit(&s->frames);
    Py_XDECREF(s->code);
    Py_XDECREF(s->bytes);
    free(s);
}

kin_status
kin_watch_start(kin_watch *w)
{
    PyThreadState *ts = PyThreadState_Get();
    if (current_watch != NULL || ts->tracing > 0 || !is_ready() || kin_watch_foreign_tool(ts))
        return KIN_BREAK;
    watch_state *s = calloc(1, sizeof *s);
    if (s == NULL)
        return KIN_NOMEM;
    s->ts = ts;
    w->priv = s;
    w->lost = false;
    w->active = true;
    current_watch = w;
    if (switch_events(NULL, monitoring.all_mask))
        return KIN_OK;
    w->active = false;
    current_watch = NULL;
    free_state(s);
    return KIN_BREAK;
}

void
kin_watch_abandon(kin_watch *w)
{
    if (!w->active)
        return;
    w->active = false;
    current_watch = NULL;
    w->lost = !switch_events(NULL, 0);
    free_state(w->priv);
    w->priv = NULL;
}

void
kin_watch_stop(kin_watch *w)
{
    kin_watch_abandon(w);
}

#endif
