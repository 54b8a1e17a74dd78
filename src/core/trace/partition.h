/* Partitioning: which torch calls of a trace are compiled and run together, as a subgraph.
 *
 * A subgraph is a range of steps of one graph. Between the calls of a *plain* one, nothing runs that could leave the trace or observe
 * their results: only sunk steps, builds of containers, known steps of a loop, and checks that a torch call returned a tensor. So
 * running it as a whole at its first step is the same as running its steps one after another, and no exit ever lands inside it. A
 * graph with other steps in between has several subgraphs.
 *
 * *Wide* subgraphs extend over checks of their own calls' results (a shape, a length): whoever runs them must show, once for
 * each kind of inputs, that these checks pass. They also extend over steps that are independent of the calls: these run in
 * order while the calls are deferred, and the subgraph runs at its last call. A step in between either runs in order (it uses nothing
 * that the subgraph computes, and neither sees nor changes what its calls work on), or it is deferred together with the calls that it depends on. A step that
 * allows neither ends the subgraph, or, if calls that only compute may run early (KIN_SUBGRAPHS_EVERY), makes it run before that
 * step (`at`): later calls join if their inputs exist by then, and the steps from there on run in order, with the results. The
 * rule behind all this: neither deferring a call nor running it early may be observable.
 *
 * The pass reads the effects of the steps (effects.h), and knows about the objects that the trace refers to only what kin_object says.
 */
#ifndef KIN_TRACE_PARTITION_H
#define KIN_TRACE_PARTITION_H

#include "core/trace/trace.h"

/* What is known of an object of the program without looking at it again. */
enum {
    KIN_IS_ATOM = 1,           /* an exact builtin immutable */
    KIN_IS_CODE = 1 << 1,      /* a class, a function, a C function */
    KIN_IS_CLASS = 1 << 2,
    KIN_IS_TRUE = 1 << 3,
    KIN_IS_FALSE = 1 << 4,
    KIN_IS_BUFFER = 1 << 5,    /* memory can be looked at through it, as through a memoryview */
    KIN_IS_HASHED = 1 << 6,    /* a set or a dict, which finds things by their hash */
    KIN_IS_MAPPING = 1 << 7,   /* a dict, or a view of a whole one */
    KIN_IS_SEQUENCE = 1 << 8,  /* exactly a list or a tuple: a slice of it is another one */
    KIN_IS_SLICE = 1 << 9,
    KIN_IS_TENSOR = 1 << 10,   /* a torch.Tensor, or of a subclass */
    KIN_IS_OFFSET = 1 << 11,   /* tensor metadata that says where the tensor begins in its memory */
    KIN_IS_VERSION = 1 << 12,  /* the text "_version", under which tensors count their changes */
    KIN_IS_INSIDE_NAME = 1 << 13 /* a text under which what else an object stores is found: "__dict__", "cell_contents" */
};

typedef struct {
    uint16_t is;    /* of the object */
    uint16_t makes; /* of the instances, if it is a class */
    kin_ref text;   /* of a str: one number for all with the same text; 0 for other objects */
} kin_object;

/* Part of a step of a subgraph. DEFERRED: until the subgraph runs, if anybody wants it at all; TEST: of something the subgraph makes;
 * IN_ORDER: it runs where it stands, between deferred calls; OBSERVABLE: so does this one, and an earlier call must not raise afterwards. */
typedef enum { KIN_ROLE_NONE, KIN_ROLE_CALL, KIN_ROLE_DEFERRED, KIN_ROLE_TEST, KIN_ROLE_IN_ORDER, KIN_ROLE_OBSERVABLE } kin_role;

/* A list, tuple or slice that was built before the subgraph has the value. */
typedef struct kin_held {
    kin_vid what, in;
    uint32_t at;
} kin_held;

typedef struct kin_subgraph {
    uint32_t first, last;  /* steps */
    uint32_t nin, nout, nbuilds;
    kin_vid *in, *out;
    uint32_t *builds;      /* builds of containers inside that somebody outside wants, and deferred stores */
    const uint8_t *role;   /* by step, from first: kin_role; owned by kin_subgraphs */
    uint32_t at;           /* it runs before this step, which wants its results; 0: at its last call */
    uint32_t end;          /* the step that it could not go on over, for a reason; 0: none */
    const char *why;
    bool switches;         /* its graph switches settings of torch: none of its calls is made again behind that */
    bool plain;            /* it may run at its first call, on inputs of any kind */
    bool deferred;         /* something runs in order between its calls: it runs at the last one */
    bool shows;            /* ... from which it can be seen whether the calls before it have raised */
    bool hides_writes;     /* nothing that runs in order between its calls looks at memory of tensors: calls that write to some may be deferred, too */
    uint32_t nearly;       /* so many inputs are there at its first call: in[order[0]], ... */
    uint32_t *order;       /* numbers of inputs as they come into being */
    uint32_t *arrives;     /* by place in `order`: the step behind which it is there */
    KIN_VEC(kin_held) held; /* where inputs are found whose slots were released, and the containers that have them; outer ones later */
    uint8_t *runs;         /* by step, from first: does it have a part in what the calls get? Set by kin_subgraph_bounds */
    bool drops;            /* values that only the snapshot of RETURN mentions are not made */
    bool passes_sunk;      /* steps inside would change sunk objects, had these been built */
    bool changes_sunk;     /* ... to hold values that are not made when it runs compiled */
    struct kin_launcher *launcher; /* the runner's (py/replay/subgraphs.h); NULL: its steps run one by one */
    uint32_t refused;      /* how often in a row the launcher had nothing for the inputs */
} kin_subgraph;

typedef struct kin_subgraphs {
    uint32_t refs;         /* the entry and replays in progress */
    uint32_t nsteps;
    uint32_t *by_step;     /* subgraph number of every step that is one of its calls, from 1 */
    uint8_t *role;         /* by step: kin_role */
    uint64_t *stops;       /* by step, a bit: it runs in order while its subgraph is deferred, or the subgraph runs there */
    uint32_t *needed;      /* by vid, not 0: something outside of its subgraph uses it, a container as it is before that step (UINT32_MAX: as it is last) */
    uint32_t *touched;     /* by vid: the first step that may have changed it since it was built; UINT32_MAX: none */
    uint8_t *replaced;     /* by step: a deferred store, and a later one of the same subgraph goes to the same place */
    KIN_VEC(kin_subgraph) at;
} kin_subgraphs;

/* How subgraphs are found. EVERY: calls that cannot be compiled together with others are in plain subgraphs; else in none. */
enum { KIN_SUBGRAPHS_PLAIN = 0, KIN_SUBGRAPHS_WIDE = 1, KIN_SUBGRAPHS_EVERY = 2 };

typedef struct {
    const kin_trace *t;
    const kin_object *objects; /* by kin_ref */
    const uint32_t *excluded;  /* calls that cannot be compiled together with others */
    const uint32_t *barriers;  /* calls before them may raise: that they ran must not be observable; or tests that fail when captured */
    const uint32_t *kept;      /* calls that must not be made again where a subgraph is left that has run early: what they take and give is there */
    uint32_t nexcluded, nbarriers, nkept;
    bool grad;                 /* gradients are enabled when the program begins */
    unsigned how;              /* KIN_SUBGRAPHS_... */
} kin_partition_input;

typedef KIN_VEC(kin_vid) kin_vids;

/* The subgraphs of a finished trace, with one reference; NULL without memory. Inputs and outputs come with kin_partition_set. */
kin_subgraphs *kin_partition_find(const kin_partition_input *in);
/* Frees all but what `launcher` points to. */
void kin_partition_free(kin_subgraphs *subgraphs);
/* Values handed over and given back (copied). KIN_BREAK: an input comes into being, or is changed, inside the subgraph, so that it cannot run. */
kin_status kin_partition_set(const kin_trace *t, kin_subgraphs *subgraphs, uint32_t subgraph, const kin_vid *in, uint32_t nin,
                             const kin_vid *out, uint32_t nout) KIN_MUST_CHECK;
/* Adds the vids that the subgraph's calls take from elsewhere and that something elsewhere needs of them; containers that are
 * built just to be arguments count as their parts. */
kin_status kin_subgraph_bounds(const kin_trace *t, kin_subgraphs *subgraphs, uint32_t subgraph, kin_vids *in, kin_vids *out) KIN_MUST_CHECK;

/* Is it a build of a container, or another step that only moves values about? */
bool kin_subgraph_builds(const kin_step *s);
/* Is it one of the calls that subgraphs are made of? */
bool kin_subgraph_calls(const kin_step *s);
/* Is the step of the subgraph, no sunk one, deferred? */
bool kin_subgraph_defers(const kin_subgraph *subgraph, const kin_trace *t, uint32_t step);
/* Does it store to an object that the recording has made, and do nothing else if the place is the object's own (kin_owns_attribute)? */
bool kin_subgraph_stores_own(const kin_trace *t, const kin_step *s);

/* Is the step in such a list? */
static inline bool
kin_step_is_in(const uint32_t *list, uint32_t n, uint32_t step)
{
    for (uint32_t i = 0; i < n; i++)
        if (list[i] == step)
            return true;
    return false;
}

#endif
