/* Graphs compiled to our own kernels. An entry's subgraphs are found, and each gets a launcher, which compiles it at its first
 * replay, once for each signature of its inputs.
 */
#ifndef KIN_PY_LAUNCH_H
#define KIN_PY_LAUNCH_H

#include "core/diag/events.h"
#include "py/replay/subgraphs.h"

/* For events; kept as long as the entry has the subgraphs. */
typedef struct {
    kin_event_log *log;
    PyObject *name;   /* of the compiled function */
    uint32_t entry;
    uint32_t validate; /* first launches of each code whose results are compared with those of the steps; 0: none */
    uint32_t validate_every; /* ... and every so many further ones; 0: none */
    uint32_t trials;  /* A/B comparisons with the steps (core/tier/abtest.h); 0: none */
    bool warm;        /* every graph is compiled at once, if a call of PyTorch's would be as fast, too */
    bool later;       /* the function was recorded often: code has to pay for itself (core/tier/compile_heuristic.h) */
    bool freezing;    /* weights may be packed and folded before calls */
    bool training;    /* where gradients are wanted, too */
    bool sizes;       /* code takes sizes that vary as arguments */
    bool fast_math;   /* need not round between operations */
    uint32_t threads; /* that a launch uses at most; 0: torch's number */
    bool async;       /* kernels are compiled in the background; until then the steps run */
    bool async_sizes; /* ... those that take sizes as arguments */
} kin_launch_context;

/* Plans the subgraphs of a new or grown entry. Subgraphs that stay the same keep their code. */
kin_status kin_launch_plan(kin_entry *v, const kin_launch_context *context) KIN_MUST_CHECK;
/* After a call: plans the subgraphs anew if its launches found that some calls cannot be compiled together (v->replan). Keeps a pending
 * exception. */
void kin_launch_settle(kin_entry *v);

/* These calls may raise: the first step after one of them whose effect is observable becomes a barrier that no subgraph crosses.
 * KIN_BREAK: there was such a step, and the subgraphs have to be planned anew. */
kin_status launch_add_barriers(kin_entry *v, const kin_subgraph *subgraph, const uint32_t *raising, uint32_t n) KIN_MUST_CHECK;

/* For reports: new list of dicts {first, last, calls, signatures: [{state, reason, aten, ...}]};
 * NULL with an exception. */
PyObject *kin_launch_describe(const kin_entry *v);

/* -- jit.c: kernels of the whole process -- */

/* Where kernels are kept; folder NULL: nowhere. Nothing is touched before the first kernel. False without memory. */
bool kin_launch_set_cache(const char *folder, uint64_t limit);
/* Until nothing is compiled in the background any more; without Python's lock. */
void kin_launch_wait(void);
/* 0: as many as torch uses. */
void kin_launch_set_threads(uint32_t threads);
/* torch.get_num_threads(); 1 when it cannot be asked. */
unsigned kin_launch_torch_threads(void);
/* Nanoseconds spent on compiling so far. */
double kin_launch_made(void);
/* New dict {target, kernels, compiled, from_memory, from_disk, cache, ...} of this process; NULL with an exception. */
PyObject *kin_launch_totals(void);
/* Large blocks that this process keeps and uses, as a dict (core/blocks). */
PyObject *kin_launch_memory(void);
/* What each pass left when a version of a subgraph was compiled, made again: new list of dicts {name, part, text}; empty when there is
 * no such version or nothing was compiled for it. NULL with an exception. */
PyObject *kin_launch_pass_texts(const kin_entry *v, uint32_t subgraph, uint32_t version);
/* For tests: "llvm", "memory" or "" fail from now on; "pass NAME WHAT": WHAT goes wrong in a pass (memory, break, malformed, wrong). */
bool kin_launch_set_fault(const char *name);
/* Whether code is kept as text from now on: 0, 1, 2 with LLVM's. */
void kin_launch_set_listing(int wanted);

/* Forgets what compiling for further kinds of inputs has cost so far. */
void kin_launch_forget_costs(void);

#endif
