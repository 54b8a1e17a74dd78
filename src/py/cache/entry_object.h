/* The Python object that owns one kin_entry. Caches, reports and running replays hold references to it, so an
 * entry dropped by reset() in the middle of its own replay lives until that replay ends.
 */
#ifndef KIN_PY_CACHE_ENTRY_OBJECT_H
#define KIN_PY_CACHE_ENTRY_OBJECT_H

#include "py/cache/bind.h"
#include "core/tier/trace_budget.h"
#include "core/tier/tierdown.h"
#include "py/entry/entry.h"
#include "py/state/state.h"

/* A slot that the caller fills: the object of parameter `local`, or the function itself. */
#define KIN_ROOT_FUNC UINT32_MAX
typedef struct {
    kin_vid vid;
    uint32_t local;
} kin_root;

typedef struct {
    PyObject_HEAD
    kin_entry *v;
    KIN_VEC(kin_root) roots;
    uint32_t number;   /* in events and dumps */
    uint32_t nslots;   /* trace.vals.len */
    uint32_t ninstr;   /* instructions watched */
    uint32_t side_traces; /* recorded behind exits so far */
    uint32_t postponed;   /* exits that were not recorded because recording had taken enough time */
    kin_trace_budget budget; /* for side traces */
    KIN_VEC(uint8_t) attempts; /* by step: recordings of its exit that added nothing */
    kin_tierdown tierdown;     /* is it faster than eager calls? */
    uint32_t inside;   /* calls that have slots for it or run it */
    bool growing;      /* a side trace is being recorded: nobody else may come in */
    bool broken;       /* its last side trace left it in a state that cannot be used */
    PyObject **spare;  /* slots kept for the next call; NULL while in use */
    PyObject *name;    /* str: of the compiled function */
    PyObject *dynamic_sources;/* set: the code's kin_code_entry.dynamic_sources; NULL: none could be made */
    PyObject *cause;   /* str: why it was recorded although others existed; NULL for the first */
    PyObject *reason;  /* str: why its recording ended early; empty when complete */
    PyObject *weakrefs;
} kin_entry_object;

PyType_Spec *kin_entry_type_spec(void);

/* Its recording was continued, and ended for this reason: "" when it is complete now. */
void kin_entry_object_set_reason(kin_entry_object *self, const char *reason);
/* Takes over `v` (on success only). KIN_BUG when the trace asks for a root that is no parameter. */
kin_status kin_entry_object_new(kin_state *st, kin_entry *v, const kin_bind_plan *plan, PyObject *name,
                                  PyObject *cause, const char *reason, kin_entry_object **out) KIN_MUST_CHECK;
/* After the trace has grown by a side trace. */
kin_status kin_entry_object_refresh(kin_entry_object *self, uint32_t nparams) KIN_MUST_CHECK;

/* Slots for one run, all NULL, and their return, all NULL again. `len` is the number that was taken. */
PyObject **kin_entry_slots_take(kin_entry_object *self);
void kin_entry_slots_give(kin_entry_object *self, PyObject **slots, uint32_t len);

/* {graphs, breaks, guards, ops, effects, record_ms, bytes, hits, exits, reason, ...}: new dict. */
PyObject *kin_entry_stats(kin_entry_object *self);

/* The entry behind a Entry object; NULL with TypeError for anything else. Valid while the object lives. */
kin_entry *kin_entry_from_object(PyObject *obj);

#endif
