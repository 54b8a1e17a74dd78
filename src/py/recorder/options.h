/* The options of a recording, and its outcome. */
#ifndef KIN_PY_RECORDER_OPTIONS_H
#define KIN_PY_RECORDER_OPTIONS_H

#include "core/base/vec.h"
#include "py/entry/entry.h"
#include "py/guardeval/guard.h"

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

/* The finished recording is better made anew, with another answer for a library that asked torch.compiler.is_compiling() (compiling.c). */
bool kin_detour_settle(const kin_entry *v);

/* -- what the call has written to, so that it can be taken back and the call made once more (changes.c) -- */

/* A word of the heap, or all that a container holds. */
typedef struct {
    PyObject *base, *key; /* key may be NULL */
    kin_place kind;
    uint32_t index;
    bool whole;      /* the container `base` */
    PyObject *other; /* what it does not hold now: the value before the call, or the one behind it; NULL: nothing was there */
} kin_written_word;

typedef struct kin_written {
    PyObject *tensors;          /* kintsugi._written.Tensors */
    KIN_VEC(kin_written_word) words; /* in the order of the first changes */
    KIN_VEC(uint32_t) judged;   /* steps that change nothing but what was saved, or that need not be done again (KIN_STEP_REPORTS) */
} kin_written;

/* Puts everything back to what it was before the call. False: that cannot be, and nothing was changed. */
bool kin_written_take_back(kin_written *written);
void kin_written_redo(kin_written *written);
void kin_written_free(kin_written *written); /* NULL: nothing to do */

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
    kin_written *written;        /* what the call has written to, for a custom backend; NULL: not all of it is known. The caller frees it */
    double time_ns;        /* the whole recording call */
} kin_record_result;

#endif
