/* Subgraphs: runs of torch calls that a backend has compiled, launched by replay in one call.
 *
 * A subgraph is a range of steps of one graph. Between the calls of a *plain* one nothing runs that could leave the program or see
 * their results: only sunk steps, builds of containers, known steps of a loop, and tests that a torch call gave a tensor. So
 * launching it at its first step is the same as running its steps one after the other, and no exit ever lands inside it. A
 * graph with other steps in between has several subgraphs.
 *
 * *Wide* subgraphs (spread.h) go on over tests of what their own calls gave (a shape, a length): their launcher must show, once for
 * each kind of inputs, that these tests pass. They also go on over steps that have nothing to do with the calls: these run at
 * their place while the calls wait, and the subgraph is launched at its last call. When such a step leaves the program, what waits
 * runs first, step by step (pending.c), so that everything has happened in the order of the program.
 */
#ifndef KIN_PY_UNITS_H
#define KIN_PY_UNITS_H

#include "core/tier/compile_heuristic.h"
#include "py/entry/entry.h"

struct kin_subgraph;

typedef enum { KIN_LAUNCH_NOT, KIN_LAUNCH_DONE, KIN_LAUNCH_RAISED } kin_launch;

/* The part of a step of a subgraph. LATER: waits for the launch, if anybody wants it at all; TEST: of something the subgraph makes; PLACE: runs
 * where it stands, between calls that wait; RISKY: so does this one, and an earlier call must not raise afterwards. */
typedef enum { KIN_ROLE_NONE, KIN_ROLE_CALL, KIN_ROLE_LATER, KIN_ROLE_TEST, KIN_ROLE_PLACE, KIN_ROLE_RISKY } kin_role;

/* What runs a subgraph: made by a backend, shared by the plans of a growing entry. */
typedef struct kin_launcher {
    uint32_t refs;
    bool framed; /* it may run code that looks at frames: they are linked meanwhile */
    /* in: the subgraph's inputs, borrowed, all there. Done: new references in out[0..nout); NOT: it has nothing for these
     * inputs, and nothing happened. */
    kin_launch (*run)(struct kin_launcher *self, kin_entry *v, const struct kin_subgraph *subgraph, PyObject *const *in,
                      PyObject **out);
    /* For subgraphs that wait; NULL: none do. The code for these inputs, as far as they are there (NULL: not yet): asked again with
     * more of them, and with `had` to prefer. NULL: there is none; *learn: the steps should run one by one and `learn` be called. */
    void *(*choose)(struct kin_launcher *self, const struct kin_subgraph *subgraph, PyObject *const *in, void *had, bool *learn);
    void (*learn)(struct kin_launcher *self, kin_entry *v, const struct kin_subgraph *subgraph, PyObject *const *in);
    kin_launch (*run_chosen)(struct kin_launcher *self, void *chosen, kin_entry *v, const struct kin_subgraph *subgraph,
                             PyObject *const *in, PyObject **out);
    /* Does input i fit what was chosen? */
    bool (*fits)(struct kin_launcher *self, void *chosen, uint32_t i, PyObject *obj);
    int (*traverse)(struct kin_launcher *self, visitproc visit, void *arg);
    void (*free)(struct kin_launcher *self);
} kin_launcher;

/* A list or tuple that was built before the subgraph has the value. */
typedef struct kin_held {
    kin_vid in; /* 0: none */
    uint32_t at;
} kin_held;

typedef struct kin_subgraph {
    uint32_t first, last;  /* steps */
    uint32_t nin, nout, nbuilds;
    kin_vid *in, *out;
    uint32_t *builds;      /* builds of containers inside that somebody outside wants, and stores that wait */
    const uint8_t *role;   /* by step, from first: kin_role; the subgraphs' own */
    uint32_t end;          /* the step that it could not go on over, for a reason; 0: none */
    const char *why;
    bool plain;            /* it may be launched at its first call, on inputs of any kind */
    bool waits;            /* something runs at its place between its calls */
    uint32_t nearly;       /* so many inputs are there at its first call: in[order[0]], ... */
    uint32_t *order;       /* numbers of inputs as they come into being */
    uint32_t *arrives;     /* by place in `order`: the step behind which it is there */
    struct kin_held *held; /* by input: where else it is found, if its slot was released */
    uint8_t *runs;         /* by step, from first: does it have a part in what the calls get? Set by kin_subgraph_bounds */
    bool drops;            /* values that only the snapshot of RETURN mentions are not made */
    bool passes_sunk;      /* steps inside would change sunk objects, had these been built */
    bool changes_sunk;     /* ... to hold values that are not made by a launch */
    kin_launcher *launcher; /* NULL: never launched */
    uint32_t refused;      /* how often in a row the launcher had nothing for the inputs */
} kin_subgraph;

typedef struct kin_subgraphs {
    uint32_t refs;         /* the entry and replays in progress */
    uint32_t nsteps;
    uint32_t *by_step;     /* subgraph number of every step that is one of its calls, from 1 */
    uint8_t *role;         /* by step: kin_role */
    uint64_t *stops;       /* by step, a bit: while its subgraph waits it is run at its place, or the launch is there */
    uint8_t *needed;       /* by vid: something outside of its subgraph uses it */
    uint32_t *touched;     /* by vid: the first step that may have changed it since it was built; UINT32_MAX: none */
    uint8_t *replaced;     /* by step: a store that waits, and a later one of the same subgraph goes to the same place */
    KIN_VEC(kin_subgraph) at;
} kin_subgraphs;

/* How subgraphs are found. EVERY: calls that cannot be compiled together with others are in plain subgraphs; else in none. */
enum { KIN_SUBGRAPHS_PLAIN = 0, KIN_SUBGRAPHS_WIDE = 1, KIN_SUBGRAPHS_EVERY = 2 };

/* The subgraphs of a finished trace, without launchers; NULL without memory. Inputs and outputs come with kin_subgraph_set. */
kin_subgraphs *kin_subgraphs_find(const kin_entry *v, unsigned how);
/* Values handed over and given back, and what to call (copied; the launcher gets a new reference). KIN_BREAK: an
 * input comes into being, or is changed, inside the subgraph, so it cannot be launched. */
kin_status kin_subgraph_set(const kin_entry *v, kin_subgraphs *subgraphs, uint32_t subgraph, const kin_vid *in, uint32_t nin,
                        const kin_vid *out, uint32_t nout, kin_launcher *launcher) KIN_MUST_CHECK;
/* A launcher that has had nothing for a long time is asked now and then: asking takes as long as a small call. */
static inline bool
kin_subgraph_is_backed_off(kin_subgraph *subgraph)
{
    return kin_compile_is_backed_off(&subgraph->refused);
}

/* Its steps run one by one from now on. */
void kin_subgraph_stop(kin_subgraph *subgraph);
void kin_subgraphs_release(kin_subgraphs *subgraphs);
void kin_launcher_release(kin_launcher *launcher);
/* Adds the vids that the subgraph's calls take from elsewhere and that something elsewhere needs of them; containers that are
 * built just to be arguments count as their parts. */
typedef KIN_VEC(kin_vid) kin_vids;
kin_status kin_subgraph_bounds(const kin_entry *v, kin_subgraphs *subgraphs, uint32_t subgraph, kin_vids *in, kin_vids *out) KIN_MUST_CHECK;

/* Is it a build of a container, or another step that only moves values about? */
bool kin_subgraph_builds(const kin_step *s);
/* Is it one of the calls that subgraphs are made of? */
bool kin_subgraph_calls(const kin_step *s);
/* Is it one of the steps of the subgraph, no sunk one, that wait until the launch? */
bool kin_subgraph_waits_for(const kin_subgraph *subgraph, const kin_trace *t, uint32_t step);
/* Does it store to an object that the recording has made, and do nothing else if the place is the object's own (kin_guard_owns)? */
bool kin_subgraph_stores_own(const kin_entry *v, const kin_step *s);
/* Does the step, with effects, call torch._C._set_grad_enabled? */
bool kin_subgraph_sets_grad(const kin_entry *v, const kin_step *s);

#endif
