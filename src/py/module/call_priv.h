/* One call of a compiled function: dispatch.c chooses what to replay, call_exit.c handles a replay that is left, call_miss.c a call that
 * no entry fits. Shared by these three only.
 */
#ifndef KIN_PY_MODULE_CALL_PRIV_H
#define KIN_PY_MODULE_CALL_PRIV_H

#include "py/driver/record.h"
#include "py/module/compiled.h"
#include "py/replay/replay.h"

/* One call on its way. */
typedef struct {
    kin_compiled *self;
    PyThreadState *ts;
    PyObject *const *args; /* as the caller passed them, for eager runs */
    size_t nargsf;
    PyObject *kwnames;
    kin_bind_call bind;
    kin_call_shape *shape;
    kin_eager why; /* of TRY_EAGER */
    bool pinned;   /* the cache may not free `shape` */
    kin_entry_object *remade; /* the entry that is recorded anew (strong); NULL: none */
    double begun;  /* where nothing more is recorded: when guard lookup began */
} call_state;

/* What the exit hook needs. */
typedef struct {
    kin_compiled *self;
    kin_entry_object *entry;
    PyThreadState *ts;
    bool extended; /* recording took part of the time */
    PyObject *cause; /* str: what did not hold; NULL: not looked at, or not known */
    bool sized;      /* it was looked at, and an epoch's tensor has another size, and differs in nothing else */
} exit_context;

/* ---- dispatch.c ---- */
void call_unpin(call_state *c);
PyObject *call_run_eager(call_state *c, kin_eager why);
/* The values that the entry starts from: new references; false: one cannot be read. */
bool call_fill_roots(const kin_entry_object *entry, const call_state *c, PyObject **slots);
PyObject *call_run_replay(call_state *c, kin_entry_object *entry, PyObject **slots, bool timed);

/* ---- call_exit.c ---- */
/* May timing influence what is recorded and replayed? */
bool call_is_timed(const kin_compiled *self);
void call_fill_record_options(const kin_compiled *self, PyObject *dynamic_sources, kin_record_options *out);
/* kin_exit_look and kin_exit_hook; arg: an exit_context. */
void call_look(const kin_entry *v, uint32_t step, PyObject *const *slots, void *arg);
PyObject *call_leave(kin_entry *v, uint32_t step, kin_exit *exit, void *arg);

/* ---- call_miss.c ---- */
/* The code that reports name: of a module its forward. */
PyCodeObject *call_shown_code(const kin_compiled *self, PyCodeObject *code);
PyObject *call_run_unknown(call_state *c);
/* Does the entry, which fits this call, have to be recorded anew, and may it be? */
bool call_cuts_subgraph(const kin_entry *v, uint32_t step);
/* Does the step compare what is known of a tensor? An epoch: did it leave last because of one? */
bool call_tests_size(const kin_entry *v, uint32_t step);
bool call_remakes(const call_state *c, const kin_entry_object *entry);
/* Records the call in place of c->remade, which is dropped where that comes to something. */
PyObject *call_run_remade(call_state *c);

#endif
