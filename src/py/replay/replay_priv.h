/* Private to src/py/replay: one replay in progress, and the frames it builds. */
#ifndef KIN_PY_REPLAY_PRIV_H
#define KIN_PY_REPLAY_PRIV_H

#include "py/compat/frame.h"
#include "py/replay/replay.h"
#include "py/replay/subgraphs.h"

typedef struct {
    kin_entry *v;
    const kin_trace *t;
    const kin_refs *refs;
    PyThreadState *ts;
    PyObject **slots;   /* by vid, owned */
    uint32_t nslots;
    kin_exit_look look;
    kin_exit_hook hook;
    void *hook_arg;
    bool again;         /* as kin_entry has it: steps that tell somebody something are not done */
    bool built_sunk;    /* some sunk object exists: its later changes run in sequence */
    bool jumped;        /* went on in a side trace */
    uint32_t side_step; /* the step whose side trace that was */
    uint32_t way;       /* the step at which it first left the recording; 0: none so far; KIN_REMAKE_NOT_TOLD: left for a reason of its own */
    uint8_t *looked;    /* by snapshot: 1 + the kin_fill up to which its sunk objects were built; NULL: none yet */
    bool has_exc;       /* the handled exception of the thread is ours */
    kin_vid exc;        /* ... this one */
    PyObject *entry_exc;/* ... and this was there before (owned while has_exc) */
    uint32_t last_snap; /* of the last step run, for forced exits */
    uint32_t nforced;
    uint32_t rounds;    /* of loops that it has gone through */
    uint64_t moment;    /* since which no step has run that may write to tensors, except of `launched` (kin_launcher); 0: there is no such time */
    const kin_subgraph *launched; /* the last one */
    kin_subgraphs *subgraphs;   /* held while the run lasts; NULL: none */
    uint32_t failed_at; /* the step that met a failure of our own */
    const kin_subgraph *deferred; /* its calls are deferred until the last one; NULL: none */
    const kin_subgraph *early;   /* it has run before its last call: its steps up to there run in order, but for the calls; NULL: none */
    PyObject *drawn;    /* ... of random numbers: the generator's state before that; NULL: it draws none */
    PyObject **ahead;   /* ... by input: what was read before the epoch that it is read in, owned; NULL: nothing was */
    struct kin_seen *seen; /* ... what the tensors were like that it took and gave; NULL: nobody is told anything behind it */
    bool unknown;       /* ... whether they still are is not known */
    uint32_t completed; /* ... what it has left out is made up to this step */
    void *chosen;       /* ... what its launcher has for the inputs so far */
    uint32_t narrived;  /* ... of its inputs */
    const kin_subgraph *learning; /* its steps run one by one, and its inputs are kept to the end */
    struct kin_namespaces *namespaces; /* chain.c; NULL: none */
    kin_marker *marker; /* taken at the first use */
    kin_vid marked;     /* the function that it stands for */
    kin_ref marked_code;
    PyObject *rows;     /* of torch.profiler, as kin_entry.rows has them; NULL: no profiler is on */
    PyObject *row, *row_name; /* the one that is open; the name is borrowed from `rows` */
    bool dropped;       /* a subgraph did not make values that only a handler of signals at the end could see */
} kin_run;

/* One frame of a chain, with all that is needed to go on in it: the trace may grow while the frames run. */
typedef struct {
    kin_frame *frame;
    PyCodeObject *code;  /* borrowed from the frame */
    uint32_t snap;
    uint32_t at;         /* byte offset of the instruction itself, behind its prefixes */
    uint32_t start;      /* as the snapshot has it */
    uint32_t next;       /* of the instruction after it */
    uint16_t nlocals, nstack;
    uint8_t resume;      /* kin_resume */
    PyObject *extra;     /* owned */
} kin_link;

typedef struct {
    uint8_t filled;      /* kin_fill */
    uint32_t n;          /* outermost first */
    uint32_t linked;     /* how many, from the outermost, CPython can see */
    kin_link *at;
    kin_link small[6];
} kin_chain;

/* -- sunk.c: objects that were not built because no step needed them -------------------------------------------- */

/* How much of a chain's frames is filled in; their functions exist in any case. */
typedef enum { KIN_FILL_NOTHING, KIN_FILL_LOCALS, KIN_FILL_ALL } kin_fill;

/* Builds what so much of the chain of `snap` mentions, as it is just before step `upto`. */
kin_status kin_sunk_build(kin_run *r, uint32_t upto, uint32_t snap, kin_fill fill) KIN_MUST_CHECK;
/* A sunk step that was passed: repeats it if the object it changes has been built. */
kin_status kin_sunk_pass(kin_run *r, uint32_t step) KIN_MUST_CHECK;

/* -- chain.c: real frames --------------------------------------------------------------------------------------- */

/* Frames for the chain of the snapshot of `step`, empty and not linked. KIN_PYERR: nothing is left. Neither function may be called
 * with an exception pending. */
kin_status kin_chain_build(kin_run *r, uint32_t step, kin_chain *c) KIN_MUST_CHECK;
/* Fills locals, or locals and stacks, as they are before step `upto`; builds the sunk objects among them. */
kin_status kin_chain_fill(kin_run *r, kin_chain *c, uint32_t upto, kin_fill fill) KIN_MUST_CHECK;
/* Links the frames up to (not including) depth n, each at its instruction, and counts them as recursion depth. */
void kin_chain_link(kin_run *r, kin_chain *c, uint32_t n);
/* Unlinks the innermost linked frame. */
void kin_chain_unlink(PyThreadState *ts, kin_chain *c);
/* Keeps the dicts of f_locals for the next chain that has the same frames. Goes before kin_chain_drop, or part of the chain is gone. */
void kin_chain_keep_namespaces(kin_run *r, const kin_chain *c);
void kin_namespaces_free(struct kin_namespaces *all);
/* Unlinks what is linked and frees all frames, innermost first. Keeps the pending exception. */
void kin_chain_drop(PyThreadState *ts, kin_chain *c);

/* -- leave.c: going on in CPython ------------------------------------------------------------------------------- */

typedef enum {
    KIN_LEAVE_BEFORE, /* execute the instruction of the snapshot */
    KIN_LEAVE_THROW,  /* raise the pending exception there */
    KIN_LEAVE_AFTER   /* the instruction is done, `result` is what it gave (NULL: the iterator has come to its end) */
} kin_leave;

/* Leaves at the snapshot of step `step`. Steals `result` and the chain (if not NULL: linked, locals only). Returns
 * the call's result. `offer`: let the hook have the exit. */
void kin_run_put_back(kin_run *r, uint32_t step);
PyObject *kin_run_leave(kin_run *r, uint32_t step, kin_leave how, PyObject *result, kin_chain *chain, bool offer);

/* GO_ON: the step is done; JUMP: to its alt; LEFT: the program was left with *value. */
typedef enum { KIN_GO_ON, KIN_JUMP, KIN_LEFT } kin_outcome;

/* -- launch.c: graphs compiled by a backend --------------------------------------------------------------------- */

/* Runs the subgraph that begins at `step`, if there is one; *last is its last step. NOT: run the step itself. */
kin_launch kin_run_launch(kin_run *r, uint32_t step, uint32_t *last);
/* Runs what was chosen for the deferred subgraph. */
kin_launch kin_run_launch_waiting(kin_run *r);
/* The subgraph's inputs that are there go to values[0..nin), borrowed. */
void kin_run_inputs(const kin_run *r, const kin_subgraph *subgraph, uint32_t narrived, PyObject **values);

/* -- pending.c: subgraphs whose calls are deferred while the steps in between run ------------------------------------------- */

/* At the first step of such a subgraph: from here its calls are deferred, or its inputs are kept to learn from. */
void kin_pending_begin(kin_run *r, const kin_subgraph *subgraph);
/* The next step while a subgraph is deferred. GO_ON: *step is done; what r->deferred says may have changed. */
kin_outcome kin_pending_step(kin_run *r, uint32_t *step, PyObject **value);
/* What such a subgraph has read ahead is not wanted any more. */
void kin_ahead_drop(kin_run *r, const kin_subgraph *subgraph);
/* Has the step, which tells somebody something, been done when the call was recorded? Then it has its result, None. */
bool kin_pending_was_told(kin_run *r, const kin_step *s);
/* Reads the inputs that are missing where the subgraph runs, and keeps them. False: there is one that cannot be read yet. */
bool kin_ahead_read(kin_run *r, const kin_subgraph *subgraph);
/* It has run: notes what must not have changed behind the steps that report. */
void kin_ahead_ran(kin_run *r, const kin_subgraph *subgraph);
/* Has the program, behind steps that report, what was read ahead, and has nobody written to it? */
bool kin_ahead_holds(const kin_run *r, const kin_subgraph *subgraph, uint32_t epoch);
/* Makes what the subgraph that has run early has not given, as it is before step `upto`: the program is left there. Keeps a pending exception. */
void kin_pending_complete(kin_run *r, uint32_t upto);
/* Has run all steps of the subgraph it learns from, or goes elsewhere: releases what it kept, but for what `step` releases. */
void kin_pending_end_learning(kin_run *r, uint32_t step, bool complete);

/* -- rows.c: what torch.profiler shows of a replay ------------------------------------------------------------------ */

/* Before a step, where r->rows is there: the row that the step belongs to is the open one from here on. */
void kin_rows_enter(kin_run *r, uint32_t step);
/* A row for the rest of the call, which CPython runs; kin_profiler_end closes it. NULL: no profiler is on. */
PyObject *kin_rows_begin_rest(kin_run *r);
void kin_rows_end(kin_run *r);

/* -- quick.c: the steps that most replays consist of --------------------------------------------------------------- */

/* Runs the step, if it is one of the usual kind and nothing is special now. False: nothing was done. */
bool kin_run_quickly(kin_run *r, uint32_t step, kin_outcome *out, PyObject **value);

/* -- replay.c --------------------------------------------------------------------------------------------------- */

/* Borrowed; NULL for vid 0 and for values that do not exist. */
static inline PyObject *
kin_run_value(const kin_run *r, kin_vid vid)
{
    PyObject *obj = r->slots[vid];
    if (obj == NULL && vid != 0 && r->t->vals.at[vid].kind == KIN_VAL_CONST)
        obj = kin_refs_get(r->refs, r->t->vals.at[vid].key);
    return obj;
}

void kin_run_release_slots(kin_run *r);
/* Does the CHECK hold? -1: it raised. */
int kin_run_check(kin_run *r, const kin_step *s);
/* Does what the step does, where the program does it: a warning of C code names that file and line. */
PyObject *kin_run_execute(kin_run *r, const kin_step *s);
/* Around other code that belongs to the step. False: nothing was done, and nothing is to be undone. */
bool kin_run_mark(kin_run *r, const kin_step *s);
static inline void
kin_run_unmark(kin_run *r, bool marked)
{
    if (marked)
        kin_marker_unlink(r->ts, r->marker);
}
/* Runs one step as recorded. */
kin_outcome kin_run_step(kin_run *r, uint32_t step, PyObject **value);
/* kin_run_launch_waiting, with the frames of the subgraph's first call linked if its launcher wants them. */
kin_launch kin_run_launch_waiting_framed(kin_run *r);
/* Settles what a step gave that does not run with frames linked: steals result; NULL: the pending exception, if any. */
kin_outcome kin_run_settle(kin_run *r, uint32_t step, PyObject *result, PyObject **value);
/* Can nothing look at the exception that the step raised? */
bool kin_run_dies_at_once(const kin_run *r, const kin_step *s, PyObject *exc);
/* The step's exception was stored while other steps were deferred: gives it the traceback that it has had since. */
void kin_run_note_frames(kin_run *r, uint32_t step);
bool kin_run_is_expected(const kin_run *r, const kin_step *s);
/* Releases the slots that end with the step. */
static inline void
kin_run_free(kin_run *r, const kin_step *s)
{
    const kin_vid *vids = r->t->vids.at + s->frees;
    for (uint32_t i = 0; i < s->nfrees; i++)
        Py_CLEAR(r->slots[vids[i]]);
}
/* Must the program be left before the step, for a test? */
bool kin_run_is_forced(kin_run *r, const kin_step *s);
/* ... with the steps from `first` on, `last` excepted. */
void kin_run_free_between(kin_run *r, uint32_t first, uint32_t last);
/* Makes the value the thread's handled exception (0: the one at entry). */
void kin_run_handle(kin_run *r, kin_vid exc);
/* ... the one that is handled where the step stands. */
static inline void
kin_run_enter_handler(kin_run *r, const kin_step *s)
{
    if ((r->exc != 0 && s->snap != 0) || s->flags & KIN_STEP_HANDLES)
        kin_run_handle(r, r->t->snaps.at[s->snap].exc);
}

#endif
