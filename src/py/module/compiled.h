/* The Compiled type: what kintsugi.compile returns. A call goes through kin_dispatch (dispatch.c); everything else
 * looks like the function behind it: names, docs, method binding, attributes, copying, pickling.
 */
#ifndef KIN_PY_MODULE_COMPILED_H
#define KIN_PY_MODULE_COMPILED_H

#include "py/cache/cache.h"
#include "py/optim/optim.h"
#include "py/state/state.h"

/* How a call was done. */
typedef enum { KIN_RAN_NOTHING, KIN_RAN_EAGERLY, KIN_RAN_RECORDED, KIN_RAN_STEPS, KIN_RAN_COMPILED } kin_ran;

typedef struct {
    uint64_t calls;
    uint64_t recordings;   /* calls that ran under the watcher */
    uint64_t replays;      /* calls whose guards held */
    uint64_t guard_misses; /* entries whose guards did not hold */
    uint64_t offered;      /* side exits that could have become a side trace */
    uint64_t extended;     /* ... and did */
    uint64_t eager[KIN_EAGER__COUNT];
    uint64_t compiled;     /* calls in which at least one graph or step of an optimizer ran compiled */
    kin_ran last;
    kin_optim_count optimizers; /* in these calls */
} kin_counters;

typedef struct kin_compiled {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    kin_state *state;
    PyObject *fn;     /* strong; never a Compiled */
    PyObject *name;   /* str, for reports */
    PyObject *kwargs; /* dict of the arguments of Compiled(), for copies */
    PyObject *dict, *weakrefs;
    bool fullgraph, disabled;
    int8_t dynamic; /* 1: True, 0: False, -1: None */
    uint32_t validate, validate_every; /* of `options`: the first launches, every so many; 0: as the setting of the process */
    int8_t kernels, freezing, async, fast_math; /* of `options`: 0, 1; -1: as the setting of the process */
    bool cuda_graphs; /* of `options`: graphs on a GPU are launched as CUDA graphs */
    bool warm;      /* of `options`: each call runs compiled that can, the first as well, whatever is faster */
    uint32_t threads; /* of `options`; 0: as the setting of the process */
    uint32_t recompile_limit; /* 0: as the setting of the process */
    kin_cache cache;
    kin_counters count;
    struct kin_compiled *next, **link; /* in state->first */
} kin_compiled;

PyType_Spec *kin_compiled_type_spec(void);
/* {calls, recordings, ..., entries: [...]}: new dict. */
PyObject *kin_compiled_stats(kin_compiled *self);
/* List of strong references to all live compiled functions. */
PyObject *kin_compiled_all(kin_state *st);
/* The state goes away: what is still alive runs eagerly. */
void kin_compiled_forget_state(kin_state *st);
/* Compiled(fn, **kwargs), through kintsugi.compile when the package is importable. */
PyObject *kin_compiled_rebuild(PyObject *fn, PyObject *kwargs);

#endif
