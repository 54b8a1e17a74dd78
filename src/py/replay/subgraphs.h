/* Subgraphs of a trace (core/trace/partition.h), and the launchers that run them. */
#ifndef KIN_PY_SUBGRAPHS_H
#define KIN_PY_SUBGRAPHS_H

#include "core/diag/events.h"
#include "core/trace/partition.h"
#include "core/tier/compile_heuristic.h"
#include "py/entry/entry.h"

typedef enum { KIN_LAUNCH_NOT, KIN_LAUNCH_DONE, KIN_LAUNCH_RAISED } kin_launch;

/* What runs a subgraph: made by a backend, shared by the plans of a growing entry. */
typedef struct kin_launcher {
    uint32_t refs;
    bool framed; /* it may run code that looks at frames: they are linked meanwhile */
    bool lacks_input; /* a replay had let go of what it takes, so it was not asked */
    uint64_t moment; /* while it is called: a number for the time since which the calls' program has run no step that may write to tensors; 0: nothing is known */
    /* in: the subgraph's inputs, borrowed, all there. Done: new references in out[0..nout); NOT: it has nothing for these
     * inputs, and nothing happened. */
    kin_launch (*run)(struct kin_launcher *self, kin_entry *v, const struct kin_subgraph *subgraph, PyObject *const *in,
                      PyObject **out);
    /* For deferred subgraphs; NULL: none are. The code for these inputs, as far as they are there (NULL: not yet): asked again with
     * more of them, and with `had` to prefer. NULL: there is none; *learn: the steps should run one by one and `learn` be called, with what they gave (borrowed; NULL inside: it is
     * gone, or altogether: nothing is known of it). */
    void *(*choose)(struct kin_launcher *self, kin_entry *v, const struct kin_subgraph *subgraph, PyObject *const *in, void *had, bool *learn);
    void (*learn)(struct kin_launcher *self, kin_entry *v, const struct kin_subgraph *subgraph, PyObject *const *in, PyObject *const *out);
    kin_launch (*run_chosen)(struct kin_launcher *self, void *chosen, kin_entry *v, const struct kin_subgraph *subgraph,
                             PyObject *const *in, PyObject **out);
    /* Does input i fit what was chosen? */
    bool (*fits)(struct kin_launcher *self, void *chosen, uint32_t i, PyObject *obj);
    int (*traverse)(struct kin_launcher *self, visitproc visit, void *arg);
    void (*free)(struct kin_launcher *self);
} kin_launcher;

/* The subgraphs of a finished trace, without launchers; NULL without memory. Inputs and outputs come with kin_subgraph_set. */
kin_subgraphs *kin_subgraphs_find(const kin_entry *v, unsigned how);
/* Values handed over and given back (kin_partition_set), and what to call (it gets a new reference). */
kin_status kin_subgraph_set(const kin_entry *v, kin_subgraphs *subgraphs, uint32_t subgraph, const kin_vid *in, uint32_t nin,
                            const kin_vid *out, uint32_t nout, kin_launcher *launcher) KIN_MUST_CHECK;
/* A launcher that has had nothing for a long time is asked now and then: asking takes as long as a small call. */
static inline bool
kin_subgraph_is_backed_off(kin_subgraph *subgraph)
{
    return kin_compile_is_backed_off(&subgraph->refused);
}

/* What does the step change or do? */
bool kin_step_changes_own(const kin_trace *t, const kin_step *s); /* an object that each run of the program makes anew, and nothing else */
bool kin_step_is_torch_call(const kin_step *s);                   /* ... of a graph, and nothing else */
bool kin_step_fits(const kin_step *s); /* a store that changes one word of the heap */
bool kin_step_decides_on_data(const kin_trace *t, const kin_step *s); /* a check of a number that a graph gives, which is no part of the graph itself and ends none */
bool kin_step_only_computes(const kin_trace *t, const kin_step *s); /* no such call: done twice or once, nobody can tell */
bool kin_step_sets_torch(const kin_step *s);                      /* one of torch's settings, to a value that it is given */

/* How many of them run as a whole, and not step by step. */
uint32_t kin_subgraphs_count(const kin_subgraphs *subgraphs);
/* Why the subgraph ends before its graph does, and where: new tuple (reason, file, line, column, end column); None: not known. */
PyObject *kin_subgraph_end(const kin_entry *v, const kin_subgraph *subgraph);
/* Writes to the log why graphs are compiled in parts. */
void kin_subgraphs_say_parts(const kin_entry *v, const kin_subgraphs *subgraphs, kin_event_log *log, PyObject *name, uint32_t entry);

/* Its steps run one by one from now on. */
void kin_subgraph_stop(kin_subgraph *subgraph);
void kin_subgraphs_release(kin_subgraphs *subgraphs);
void kin_launcher_release(kin_launcher *launcher);

#endif
