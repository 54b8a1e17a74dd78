/* The options of a recording, and its outcome. */
#ifndef KIN_PY_RECORDER_OPTIONS_H
#define KIN_PY_RECORDER_OPTIONS_H

#include "py/entry/entry.h"

typedef struct {
    bool fullgraph;        /* the first graph break raises (kin_record_call returns NULL with the exception set) */
    bool strict_breaks;    /* report deferred effects as breaks */
    PyObject *dynamic_sources;    /* set of str: sources whose values changed between calls (module/dynamic_sources.h); less is assumed of them, so that what changes each time ends in one entry */
    PyObject *error_class; /* exception class for fullgraph */
    uint32_t trace_limit;  /* instructions that one recording may hold */
    int8_t dynamic;        /* sizes: 1 free from the start, 0 always fixed, -1 free once they have changed */
    bool kernels;             /* graphs get our own kernels, and so do steps of optimizers */
    bool custom;              /* graphs are given to a custom backend */
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
    bool untouched;        /* the call raised, and has changed nothing, if its torch calls have not: it could be made once more */
    double time_ns;        /* the whole recording call */
} kin_record_result;

#endif
