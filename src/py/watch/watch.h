/* The watcher: tells a client what CPython does, instruction by instruction, in the current thread. It knows nothing
 * of what the instructions mean. 3.11: PyEval_SetTrace with opcode events (watch_311.c); 3.12+: sys.monitoring
 * INSTRUCTION events through a C vectorcall callback (watch_monitoring.c).
 *
 *     kin_watch w = {.client = {call, instr, ret}, .arg = self};
 *     if (kin_watch_start(&w) == KIN_OK) { result = PyObject_Vectorcall(...); kin_watch_stop(&w); }
 *
 * Callbacks run with the GIL, must not raise, and may stop the watch at any time by kin_watch_abandon (no further
 * callbacks; the program goes on unwatched). `offset` is a byte offset into the code's plain bytecode; an
 * EXTENDED_ARG-prefixed instruction is reported once, at its first prefix. Frames of other threads are not reported.
 */
#ifndef KIN_PY_WATCH_H
#define KIN_PY_WATCH_H

#include "core/base/status.h"
#include <Python.h>
#include <stdbool.h>

struct _PyInterpreterFrame;

typedef struct {
    /* A frame starts (or a generator frame is resumed); its arguments are bound. Return false to skip the
     * instructions of this frame (its return is still reported). */
    bool (*call)(void *arg, struct _PyInterpreterFrame *frame);
    /* The instruction at `offset` is about to execute; the operand stack is as it finds it. */
    void (*instr)(void *arg, struct _PyInterpreterFrame *frame, uint32_t offset);
    /* The frame returns or yields `value` (borrowed), or is unwound by an exception (value == NULL). */
    void (*ret)(void *arg, struct _PyInterpreterFrame *frame, PyObject *value);
} kin_watch_client;

typedef struct {
    kin_watch_client client;
    void *arg;
    bool active;
    PyObject *exception; /* borrowed, during `ret` with value == NULL: what unwinds the frame; NULL = not known */
    bool lost; /* the watch ended by itself before the program did (somebody else's tracer, a frame CPython hides) */
    void *priv;
} kin_watch;

/* KIN_BREAK: another tracer, profiler-with-opcodes or debugger is active in this thread: do not record. */
kin_status kin_watch_start(kin_watch *w) KIN_MUST_CHECK;
void kin_watch_stop(kin_watch *w);
void kin_watch_abandon(kin_watch *w);
/* A frame of `code` is about to go on in its middle, where nobody has looked yet whether its instructions are to be reported:
 * they are from now on. */
kin_status kin_watch_follow(kin_watch *w, PyCodeObject *code) KIN_MUST_CHECK;
/* Is a tracing or profiling tool of somebody else active in this thread? (policy 8 of cpython-frames.md) */
bool kin_watch_foreign_tool(PyThreadState *ts);
/* Does the garbage collector run, in this thread or another? What begins meanwhile may be a finaliser or a weak reference's callback that it calls. */
bool kin_watch_collecting(void);

/* Views of a frame, the same on all versions. Borrowed references. */
PyCodeObject *kin_watch_code(struct _PyInterpreterFrame *frame);
PyObject *kin_watch_func(struct _PyInterpreterFrame *frame);
PyObject *const *kin_watch_localsplus(struct _PyInterpreterFrame *frame); /* to read: on 3.14 it is a copy */
void kin_watch_replace(struct _PyInterpreterFrame *frame, int i, PyObject *value); /* entry i of it; steals value */
int kin_watch_stack_depth(struct _PyInterpreterFrame *frame);      /* entries on the operand stack; -1 = not saved */
struct _PyInterpreterFrame *kin_watch_previous(struct _PyInterpreterFrame *frame);
struct _PyInterpreterFrame *kin_watch_current(PyThreadState *ts);
/* Of a frame that starts with an exception: is it a continuation of ours? CPython itself throws into generators only. */
bool kin_watch_is_ours(struct _PyInterpreterFrame *frame);

#endif
