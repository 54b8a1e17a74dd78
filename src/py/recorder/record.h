/* Recording: runs a call in CPython under the watcher and writes its trace. */
#ifndef KIN_PY_RECORDER_RECORD_H
#define KIN_PY_RECORDER_RECORD_H

#include "py/replay/replay.h"
#include "py/entry/entry.h"

typedef struct {
    bool fullgraph;        /* the first graph break raises (kin_record_call returns NULL with the exception set) */
    bool strict_breaks;    /* report deferred effects as breaks */
    PyObject *unstable;    /* set of str: places where something changed between calls (module/unstable.h); less is assumed of them (rule 12) */
    PyObject *error_class; /* exception class for fullgraph */
    uint32_t trace_limit;  /* instructions that one recording may hold */
    int8_t dynamic;        /* sizes: 1 free from the start, 0 always fixed, -1 free once they have changed */
    bool crosscheck;          /* check the recording against a torch-function mode */
} kin_record_options;

/* Did one of our own checks fail? Then nothing of the recording is used; LOST: the trace that it was to be added to cannot be, either. */
typedef enum { KIN_RECORD_SOUND, KIN_RECORD_BUG, KIN_RECORD_LOST } kin_record_health;

typedef struct {
    kin_entry *entry;      /* NULL: nothing usable was recorded */
    kin_record_health health;
    char reason[200];      /* for people: why not, or why the recording ends early (empty: complete) */
    uint32_t ninstr;       /* instructions watched */
    uint32_t refused;      /* step of the first break inside torch._dynamo.error_on_graph_break(True); 0 = none */
    uint32_t crosschecked;    /* torch calls that the cross-check saw and found recorded */
    double time_ns;        /* the whole recording call */
} kin_record_result;

/* Calls func(args...) exactly as PyObject_Vectorcall would, watched. `func` is a Python function. */
PyObject *kin_record_call(const kin_record_options *options, PyObject *func, PyObject *const *args, size_t nargsf,
                          PyObject *kwnames, kin_record_result *result);

/* Can a side trace begin where the step leaves? Behind failed tests, and where a recording ended at something that another call may not meet
 * again: an instruction that met values without a rule (first calls fill caches), an exception. */
bool kin_record_can_join(const kin_step *s);
/* Continues an exit under the watcher and adds what is seen to v->trace as a new side trace behind `step`, where one can begin. */
PyObject *kin_record_exit(const kin_record_options *options, kin_entry *v, uint32_t step, kin_exit *exit,
                          kin_record_result *result);

/* Enters (true) or leaves a stretch in which torch.compiler.is_compiling() answers true; stretches nest. So it is while recording, and where
 * a program that was told so runs on without being recorded: one call sees one answer (rule 67). */
void kin_record_set_compiling(bool on);

/* Is a recording in progress (in this process)? is_compiling() answers true then. */
bool kin_record_active(void);

#endif
