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
 * The pass reads the effects of the steps (effects.h), and knows about the objects that the trace refers to only what kin_object_traits says.
 */
#ifndef KIN_TRACE_PARTITION_H
#define KIN_TRACE_PARTITION_H

#include "core/trace/trace.h"

/* What is known about an object without looking at it again. */
enum {
    KIN_IS_ATOM = 1,           /* an exact builtin immutable */
    KIN_IS_CODE = 1 << 1,      /* a class, a function, a C function */
    KIN_IS_CLASS = 1 << 2,
    KIN_IS_TRUE = 1 << 3,
    KIN_IS_FALSE = 1 << 4,
    KIN_IS_BUFFER = 1 << 5,    /* memory can be read through it, as through a memoryview */
    KIN_IS_HASHED = 1 << 6,    /* a set or a dict, which looks things up by hash */
    KIN_IS_MAPPING = 1 << 7,   /* a dict, or a view of a whole one */
    KIN_IS_SEQUENCE = 1 << 8,  /* exactly a list or a tuple: a slice of it is another one */
    KIN_IS_SLICE = 1 << 9,
    KIN_IS_TENSOR = 1 << 10,   /* a torch.Tensor, or of a subclass */
    KIN_IS_OFFSET = 1 << 11,   /* tensor metadata about where the tensor begins in its memory */
    KIN_IS_VERSION = 1 << 12,  /* the str "_version", the attribute under which tensors count writes */
    KIN_IS_INSIDE_NAME = 1 << 13, /* the name of an attribute through which other attributes are found: "__dict__", "cell_contents" */
    KIN_IS_SIMPLE = 1 << 17,   /* an ATOM that holds no other object: a number, a str, ... */
    KIN_IS_DICT = 1 << 18,     /* exactly a dict */
    KIN_IS_LIST = 1 << 19,     /* exactly a list */
    KIN_IS_GRAD_ON = 1 << 20,  /* of a CALL_IS fact: that gradients are on */
    KIN_IS_GRAD_OFF = 1 << 21,
    KIN_IS_LATE = 1 << 16      /* the description of a tensor on a device that works while the program goes on, as GPUs do */
};

typedef struct {
    uint32_t is;    /* what the object is */
    uint32_t makes; /* what its instances are, if it is a class */
    kin_ref text;   /* a str: the same number for equal texts; 0 for other objects */
} kin_object_traits;

/* The role of a step in a subgraph. DEFERRED: done when the subgraph runs, if anything needs it at all; TEST: a check of a value that the subgraph computes;
 * IN_ORDER: it runs in order, between deferred calls; OBSERVABLE: the same, and an earlier call must not raise after it. */
typedef enum { KIN_ROLE_NONE, KIN_ROLE_CALL, KIN_ROLE_DEFERRED, KIN_ROLE_TEST, KIN_ROLE_IN_ORDER, KIN_ROLE_OBSERVABLE } kin_role;

/* A list, tuple or slice built before the subgraph that contains the value. */
typedef struct kin_held {
    kin_vid what, in;
    uint32_t at;
} kin_held;

typedef struct kin_subgraph {
    uint32_t first, last;  /* steps */
    uint32_t nin, nout, nbuilds;
    kin_vid *in, *out;
    uint32_t *builds;      /* builds of containers inside that something outside needs, and deferred stores */
    const uint8_t *role;   /* by step, from first: kin_role; owned by kin_subgraphs */
    uint32_t at;           /* it runs before this step, which needs its results; 0: at its last call */
    uint32_t leaves;       /* ... and from there on the first step that runs in order and is more than a switch of settings: calls behind it write nothing; 0: none */
    uint32_t reports;      /* ... or later: the first step inside that has KIN_STEP_REPORTS; 0: none */
    uint32_t end;          /* the step that ended it, if there is a reason to report; 0: none */
    const char *why;
    int8_t grad;           /* are gradients on where it begins? -1: not known */
    uint8_t *grads;        /* by step, from first: are gradients on there? NULL: everywhere as where it begins */
    bool tracked;          /* ... and are they on at one of its calls at least? */
    bool switches;         /* its graph switches torch settings: no call after the switch is repeated */
    bool plain;            /* it can run at its first call, with any kind of inputs */
    bool deferred;         /* other steps run in order between its calls, so it runs at the last one */
    bool shows;            /* ... and one of them reveals whether an earlier call has raised */
    bool hides_writes;     /* no step that runs in order before it does reads tensor memory, so calls that write to tensors may be deferred too */
    uint32_t nearly;       /* how many inputs exist at its first call: in[order[0]], ... */
    uint32_t *order;       /* numbers of inputs, in the order in which they are made */
    uint32_t *arrives;     /* by place in `order`: the step after which it exists */
    KIN_VEC(kin_held) held; /* inputs whose slots were released, and the containers that hold them; outer ones later */
    uint8_t *runs;         /* by step, from first: does it contribute to the calls' arguments? Set by kin_subgraph_bounds */
    bool drops;            /* values that only the snapshot of RETURN mentions are dropped */
    bool passes_sunk;      /* steps inside would change sunk objects, if these were built */
    bool changes_sunk;     /* ... so that they hold values that do not exist when it runs compiled */
    struct kin_launcher *launcher; /* owned by replay (py/replay/subgraphs.h); NULL: its steps run one by one */
    uint32_t refused;      /* how often in a row the launcher had no code for the inputs */
} kin_subgraph;

/* A side trace: its first step, and the one that leads there. */
typedef struct {
    uint32_t begins, from;
} kin_side;

typedef struct kin_subgraphs {
    uint32_t refs;         /* the entry and replays in progress */
    uint32_t nsteps;
    uint32_t *by_step;     /* subgraph number of every step that is one of its calls, from 1 */
    uint8_t *role;         /* by step: kin_role */
    uint64_t *stops;       /* by step, a bit: it runs in order while its subgraph is deferred, or it is where the subgraph runs */
    uint32_t *needed;      /* by vid, not 0: something outside its subgraph uses it; of a container, the state before that step (UINT32_MAX: the last state) */
    uint32_t *touched;     /* by vid: the first step that may have changed it since it was built; UINT32_MAX: none */
    uint8_t *replaced;     /* by step: a deferred store that a later one of the same subgraph overwrites */
    KIN_VEC(kin_subgraph) at;
    KIN_VEC(kin_side) sides; /* in order */
} kin_subgraphs;

/* How subgraphs are found. EVERY: calls that cannot be compiled together with others form plain subgraphs; otherwise they are in none. */
enum { KIN_SUBGRAPHS_PLAIN = 0, KIN_SUBGRAPHS_WIDE = 1, KIN_SUBGRAPHS_EVERY = 2 };

typedef struct {
    const kin_trace *t;
    const kin_object_traits *objects; /* by kin_ref */
    const uint32_t *excluded;  /* calls that cannot be compiled together with others */
    const uint32_t *barriers;  /* steps that must not run before an earlier call that may raise; checks that fail when captured; or calls that begin a graph */
    const uint32_t *kept;      /* calls that must not be repeated when an early subgraph is left: their inputs and results are kept */
    uint32_t nexcluded, nbarriers, nkept;
    bool grad;                 /* gradients are on when the trace begins */
    unsigned how;              /* KIN_SUBGRAPHS_... */
} kin_partition_input;

/* Are gradients on at the step of the subgraph? -1: as they are where it begins. */
static inline int
kin_subgraph_grad(const kin_subgraph *subgraph, uint32_t step)
{
    return subgraph->grads == NULL ? -1 : subgraph->grads[step - subgraph->first];
}

typedef KIN_VEC(kin_vid) kin_vids;

/* The subgraphs of a finished trace, with one reference; NULL: out of memory. kin_partition_set adds inputs and outputs. */
kin_subgraphs *kin_partition_find(const kin_partition_input *in);
/* Frees all but what `launcher` points to. */
void kin_partition_free(kin_subgraphs *subgraphs);
/* Sets inputs and outputs (copied). KIN_BREAK: an input is made or changed inside the subgraph, so it cannot run. */
kin_status kin_partition_set(const kin_trace *t, kin_subgraphs *subgraphs, uint32_t subgraph, const kin_vid *in, uint32_t nin,
                             const kin_vid *out, uint32_t nout) KIN_MUST_CHECK;
/* Adds the vids that the subgraph's calls take from outside, and those of their results that something outside needs; containers that are
 * built only as arguments count as their parts. */
kin_status kin_subgraph_bounds(const kin_trace *t, kin_subgraphs *subgraphs, uint32_t subgraph, kin_vids *in, kin_vids *out) KIN_MUST_CHECK;

/* Is it a build of a container, or another step that only moves values? */
bool kin_subgraph_builds(const kin_step *s);
/* Is it a call that subgraphs consist of? */
bool kin_subgraph_calls(const kin_step *s);
/* Is the step of the subgraph (not a sunk one) deferred? */
bool kin_subgraph_defers(const kin_subgraph *subgraph, const kin_trace *t, uint32_t step);
/* Does it store to an object that the recording made, without other effects if the attribute is the object's own (kin_owns_attribute)? */
bool kin_subgraph_stores_own(const kin_trace *t, const kin_step *s);

/* Is the step in this list? */
static inline bool
kin_step_is_in(const uint32_t *list, uint32_t n, uint32_t step)
{
    for (uint32_t i = 0; i < n; i++)
        if (list[i] == step)
            return true;
    return false;
}

#endif
