/* Replay: runs an entry's trace for one call.
 *
 * slots is an array of trace.vals.len owned references (NULL = empty). Steps run in order. A step that fails, a
 * CHECK that fails and EXIT leave the trace: the frames of the snapshot are rebuilt and CPython finishes the
 * call (raising the exception at that instruction if there is one).
 */
#ifndef KIN_PY_REPLAY_H
#define KIN_PY_REPLAY_H

#include "core/bytecode/bytecode.h"
#include "py/entry/entry.h"

struct kin_frame;

/* Called when a replay leaves at `step` through CHECK/EPOCH/EXIT, before CPython continues. Lets the recorder
 * watch the continuation; `resume` runs it. May be NULL. Returns the call's result (new reference) or NULL. */
typedef struct kin_exit kin_exit;
typedef PyObject *(*kin_exit_hook)(kin_entry *v, uint32_t step, kin_exit *exit, void *arg);
/* Sees the values before they are let go of, for reports; must run no code of the program's and leave a pending exception alone. */
typedef void (*kin_exit_look)(const kin_entry *v, uint32_t step, PyObject *const *slots, void *arg);

/* Runs the program after epoch 0's guards have passed (slots filled). Consumes everything in slots: they are all
 * NULL again when the hook is called and on return; `look` (may be NULL) is called before. The caller counts one frame of recursion depth for the function
 * (compat/recursion.h) and has made sure that trace.depth frames are left; the hook gives the frame back before it
 * calls kin_exit_resume, whose frames count themselves. A hook may add a side trace to the trace only while v->running is 1.
 * NULL without an exception: a failure of our own (v->failure) before anything visible happened; run the call eagerly. */
PyObject *kin_replay_run(kin_entry *v, PyObject **slots, kin_exit_look look, kin_exit_hook hook, void *hook_arg);

/* The rebuilt frames of an exit, innermost last, not yet running. */
uint32_t kin_exit_snap(const kin_exit *exit);
/* Object in local/stack slot i of frame depth d (0 = the compiled function itself); borrowed. */
PyObject *kin_exit_value(const kin_exit *exit, uint32_t depth, uint32_t i);
/* Function of frame depth d, and the instance its callee's __init__ is for (NULL: none); borrowed. */
PyObject *kin_exit_func(const kin_exit *exit, uint32_t depth);
PyObject *kin_exit_extra(const kin_exit *exit, uint32_t depth);
/* Told of each frame just before it is evaluated, innermost first; `raw` is CPython's own. */
typedef void (*kin_exit_entered)(void *arg, uint32_t depth, struct kin_frame *frame, struct _PyInterpreterFrame *raw);
/* Continues the frames in CPython to the end of the call; it or kin_exit_drop must be called once. entered (for the recorder) may be NULL. */
PyObject *kin_exit_resume(kin_exit *exit, kin_exit_entered entered, void *arg);
/* Nothing of it runs: the call is made again. Keeps the pending exception. */
void kin_exit_drop(kin_exit *exit);

/* Memory of v->sunk. */
size_t kin_sunk_bytes(const kin_entry *v);

/* For tests: leave (as if a CHECK had failed) before the k-th point of each replay at which that is possible: the first
 * step of an instruction that runs in sequence and has a snapshot. UINT32_MAX = off. */
extern uint32_t kin_replay_force_exit;

/* May a step with KIN_STEP_RAISES stand for this instruction? When it does not raise, the frame has to be moved behind the
 * instruction, knowing nothing but the result. */
bool kin_leave_can_pass(const kin_instr *in);

/* Executes one step's operation on live operands, as recording saw CPython do it; new reference or NULL with an
 * exception (NEXT: NULL without one when exhausted). `slots` is indexed by vid. */
PyObject *kin_step_execute(const kin_trace *t, const kin_refs *refs, const kin_step *s, PyObject **slots);
/* What a CHECK step asks: 1 holds, 0 fails, -1 exception (truth of a user's object). A missing operand is a NULL. */
int kin_check_holds(const kin_refs *refs, const kin_step *s, PyObject *a, PyObject *b);

#endif
