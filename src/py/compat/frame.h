/* Real CPython frames that we create: for side exits (CPython runs the rest of a call) and for steps that can observe
 * frames. Such a frame lies in our own memory, not on the interpreter's data stack. It is linked as the thread's
 * current frame while it must be visible, and handed to _PyEval_EvalFrameDefault to continue.
 *
 * Nothing above this header knows the layout of a frame, which differs between versions (frame_layout.h, frame_eval.c).
 */
#ifndef KIN_PY_FRAME_H
#define KIN_PY_FRAME_H

#include "core/base/status.h"
#include <Python.h>
#include <stdbool.h>

typedef struct kin_frame kin_frame;
struct _PyInterpreterFrame;

/* A frame for `func` running `code` (both kept alive by it), with empty locals and stack. NULL + exception. */
kin_frame *kin_frame_new(PyObject *func, PyCodeObject *code);
/* Steals `value` (may be NULL: unbound) into localsplus[i]; pushes `value` (steals; NULL is a NULL entry). */
void kin_frame_set_local(kin_frame *f, int i, PyObject *value);
void kin_frame_push(kin_frame *f, PyObject *value);
/* The dict that locals() and f_locals fill, borrowed; NULL: nobody has asked for it. One frame keeps one to its end. */
PyObject *kin_frame_namespace(kin_frame *f);
void kin_frame_set_namespace(kin_frame *f, PyObject *dict);
bool kin_frames_have_namespaces(void); /* false: each call of locals() gives a new dict, which no frame keeps (3.13) */
PyObject *kin_frame_local(kin_frame *f, int i); /* borrowed; stack entries follow the locals */
void kin_frame_pop(kin_frame *f, int n);        /* drops the n topmost stack entries */

/* Makes the frame the thread's current one, executing the instruction at byte `offset`; and undoes it. Frames are
 * linked outermost first and unlinked innermost first. */
void kin_frame_link(PyThreadState *ts, kin_frame *f, uint32_t offset);
void kin_frame_unlink(PyThreadState *ts, kin_frame *f);
/* Adds a traceback entry for the linked frame to the pending exception. */
void kin_frame_traceback(PyThreadState *ts, kin_frame *f);

/* Told which of CPython's frames is about to go on. */
typedef void (*kin_frame_entered)(void *arg, struct _PyInterpreterFrame *raw);

/* Runs the (unlinked) frame to its end in CPython from byte `offset`; with `throwing`, the pending exception is
 * raised at that instruction instead. Returns the function's result or NULL. The frame stays to be freed; from 3.12 on its
 * contents have moved to a frame of CPython's, which `entered` (may be NULL) is told. */
PyObject *kin_frame_eval(PyThreadState *ts, kin_frame *f, uint32_t offset, bool throwing, kin_frame_entered entered, void *arg);

/* Drops the frame; if somebody holds its frame object, that takes the contents over, as CPython does, and its caller's
 * frame object becomes f_back: so free a frame right after it was unlinked or evaluated, while its caller is the
 * current frame. NULL is allowed. */
void kin_frame_free(PyThreadState *ts, kin_frame *f);

/* Stands for the innermost frame while C code runs that nobody watches: it says whose code this is and which line, which is what
 * warnings ask. It has no locals, and its caller is whoever called what is replayed. */
typedef struct kin_marker kin_marker;
kin_marker *kin_marker_take(void); /* NULL: without memory */
void kin_marker_give(kin_marker *m); /* NULL is allowed */
/* Whose frame it stands for; whoever links it keeps both alive until it is unlinked. False: without memory. */
bool kin_marker_set(kin_marker *m, PyObject *func, PyCodeObject *code);
void kin_marker_link(PyThreadState *ts, kin_marker *m, uint32_t offset);
void kin_marker_unlink(PyThreadState *ts, kin_marker *m);

/* For recording a continuation: asks for opcode events in this frame (3.11). */
kin_status kin_frame_trace_opcodes(PyThreadState *ts, kin_frame *f) KIN_MUST_CHECK;
struct _PyInterpreterFrame *kin_frame_raw(kin_frame *f);
PyObject *kin_frame_func(kin_frame *f); /* borrowed */

/* The references to obj, with those of the innermost frame's stack: from 3.14 on the stack borrows what local variables hold, without counting it. */
Py_ssize_t kin_reference_count(PyObject *obj);

#endif
