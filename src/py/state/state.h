/* What one instance of the extension module owns: its types, options, events and the list of live compiled
 * functions. Every Compiled object points to it; the type objects keep the module, and so this, alive.
 */
#ifndef KIN_PY_STATE_H
#define KIN_PY_STATE_H

#include <Python.h>
#include <stdbool.h>
#include <stdint.h>

#include "core/base/vec.h"
#include "core/diag/events.h"

typedef enum {
    KIN_EAGER_NO, /* the call need not be eager */
#define EAGER(NAME, WHY, text) KIN_EAGER_##NAME,
#include "py/state/eager.def"
#undef EAGER
    KIN_EAGER__COUNT
} kin_eager;

typedef struct {
    uint32_t recompile_limit; /* entries of one code object */
    uint32_t side_trace_limit;    /* side traces added to one entry */
    uint32_t exit_limit;      /* exits at one step that may still be recorded */
    uint32_t trace_limit;     /* instructions that one recording may hold */
    uint32_t failure_limit;   /* recordings of one call shape that may leave nothing usable */
    bool strict_breaks;
    bool crosscheck;             /* check recordings against a torch-function mode */
    uint32_t validate;        /* how many first launches of a compiled graph have their results compared with its steps */
    uint32_t validate_every;  /* and every so many further ones; 0: none */
    uint32_t trials;          /* how many launches of a compiled graph are timed against its steps */
    bool step_aside;          /* run calls eagerly if replaying them is slower */
    bool disable;
    bool kernels;             /* compile graphs to machine code */
    bool fast_math;           /* half precision need not be rounded between operations */
    bool open_sizes;          /* compiled code takes varying sizes as arguments */
    uint32_t threads;         /* the most threads of a launch; 0: as many as torch uses */
    bool async_compile;       /* compile in the background */
    bool async_sizes;         /* ... code that takes sizes as arguments */
    bool training;            /* compile graphs with gradients too */
    bool freezing;            /* pack weights and precompute what depends only on them */
    PyObject *error_class;    /* strong; raised by fullgraph; NULL = RuntimeError */
    PyObject *miss_hook;      /* strong; asked before a call is recorded; NULL: none */
    PyObject *record_hook;    /* strong; called with the arguments of a call that is about to be recorded; NULL: none */
} kin_options;

struct kin_compiled;

typedef struct kin_state {
    PyTypeObject *compiled_type;
    PyTypeObject *entry_type;
    PyObject *str_call;         /* interned "__call__" */
    kin_options options;
    kin_event_log *log;         /* may be NULL: then nothing is logged */
    PyObject *recorded;         /* list of entries that the listener has not seen; NULL: nobody listens */
    PyObject *listener; /* a capsule of py/report; borrowed */
    uint32_t next_entry;      /* number of the next entry, in events and dumps */
    bool aten_ready, aten_failed;
    struct kin_compiled *first; /* all live compiled functions, newest first */
} kin_state;

/* "" for KIN_EAGER_NO. */
const char *kin_eager_text(kin_eager why);
/* The reason's kin_why. */
unsigned kin_eager_row(kin_eager why);

#endif
