/* A compiled program with what is needed to run it on tensors: the operators behind its extern calls, and how each output of
 * the subgraph is made. It knows nothing about recordings, nor why the code was compiled.
 */
#ifndef KIN_PY_RUN_H
#define KIN_PY_RUN_H

#include "core/base/clock.h"
#include "core/lower/lower.h"
#include "core/program/program.h"
#include "py/capture/capture.h"
#include "py/run/library.h"
#include "py/run/settings.h"

typedef KIN_VEC(uint32_t) launch_numbers;

/* The operator of an extern call, with the tensors of its arguments marked. */
typedef struct {
    PyObject *op, *args, *kwargs; /* as in kin_capture_call, owned */
    bool effect;                  /* does more than compute its results */
    launch_library *library;      /* instead of these; owned */
    launch_packs packs;           /* its second argument */
} launch_extern;

/* Time in one operation (profile.c). */
typedef struct {
    uint64_t runs;
    double best_ns, sum_ns;
} launch_spent;

typedef struct {
    kin_program *program;
    launch_extern *externs; /* by extern call */
    uint32_t **dies, *ndies;/* by op: buffers that nothing needs afterwards */
    void *arena;            /* not in use; NULL: none, or a run has it */
    launch_spent *spent;    /* by op, then for all of it; NULL: nobody asked */
} launch_program;

/* What a program is run on: tensors of the subgraph's inputs, then values that were made before. */
typedef struct {
    PyObject *const *in;          /* of the subgraph */
    const uint32_t *input_of;     /* program input -> input of the subgraph, n of them */
    uint32_t n;
    PyObject *const *values;      /* program inputs from n on; NULL inside: not needed */
    const launch_packed *packed;  /* by extern call; NULL: none */
} launch_inputs;

/* One tensor that the graph gives. */
typedef struct {
    uint8_t kind;      /* kin_out_kind */
    bool whole, detached, of_detached, late; /* as in kin_lower_out */
    uint8_t dtype;
    uint32_t writes;
    uint32_t index;    /* INPUT: of the subgraph's inputs; else of the program's outputs */
    int64_t offset;
    PyObject *sizes, *strides; /* tuples; of views */
} launch_out;

/* What a value handed out consists of. */
typedef enum { LAUNCH_GIVE_INPUT, LAUNCH_GIVE_OUT, LAUNCH_GIVE_OTHER } launch_give_kind;
typedef struct {
    uint8_t kind;
    uint32_t index;     /* INPUT: of the subgraph's inputs; OUT: of code.outs */
    PyObject *shape;    /* OTHER: as captured; owned */
} launch_give;

struct launch_code;

/* Did the subgraph's steps give what the code would: layouts, dtypes, sharing? (verify.c) */
bool launch_gives_the_same(const struct launch_code *code, uint32_t nin, PyObject *const *in, PyObject *const *out);

/* -- written.c -------------------------------------------------------------------------------------------------- */

/* Shares nothing that is written to memory with another input, and may all of it be written to? */
bool launch_may_write(const struct launch_code *code, PyObject *const *in);
/* What is written to, as it is; NULL without memory. */
typedef struct launch_kept launch_kept;
launch_kept *launch_keep_written(const struct launch_code *code, PyObject *const *in);
void launch_put_back_written(const launch_kept *k, const struct launch_code *code, PyObject *const *in);
void launch_kept_free(launch_kept *k);
/* How often the tensor was written to (give.c). */
void launch_set_version(PyObject *tensor, uint32_t version);

typedef struct launch_frozen launch_frozen; /* frozen.c: what is kept of weights between calls */
typedef struct launch_code {
    launch_program main;
    launch_program once;      /* from frozen inputs to values that `main` has as inputs; no program: there are none */
    launch_frozen *frozen;    /* NULL: nothing is kept between calls */
    bool *only_packed;        /* by buffer of `main`: read in packed form and no other */
    uint32_t nouts, ngive;
    launch_out *outs;         /* the different tensors that the graph gives */
    launch_give *give;        /* by output of the subgraph */
    uint32_t nfakes;
    launch_give *by_fake; /* for what is inside of OTHER */
    uint32_t *input_of;       /* tensor input of the graph -> input of the subgraph */
    uint32_t ninputs;
    kin_lower_write *writes;  /* inputs (of the subgraph) that are written to */
    uint32_t nwrites;
    PyObject *training;       /* what its gradients are made with (training.c); NULL: it gives none */
    struct launch_code **known_at; /* a pointer to this code, of `training`; NULL from its end on */
    bool copes;               /* with results of calls that have other strides than captured: they are copied */
    bool loses_nan;           /* its calls would make 0 of a NaN: invalid operations are looked for */
    uint64_t runs;
    uint32_t running;         /* at this moment: threads, recursion */
} launch_code;

/* What became of a run. SHARED: inputs that are written to share memory; STALE: weights did not stay as they were. Neither these nor a
 * FAILED run leave a trace. */
typedef enum { LAUNCH_DONE, LAUNCH_SHARED, LAUNCH_STALE, LAUNCH_FAILED } launch_result;
typedef struct {
    bool warned;             /* an operator warned, without having been heard */
    bool invalid;            /* a NaN may have been lost */
    char foreign[80];        /* name of an operator whose result is not as foreseen */
    kin_capture_hints hints; /* ... how such results lie; the caller's to free */
} launch_outcome;

/* Runs the code on the subgraph's inputs, with so many threads at most (0: torch's number): new references in out[] when DONE. `moment`: as
 * kin_launcher has it. */
launch_result launch_code_run(launch_code *code, uint32_t threads, uint64_t moment, PyObject *const *in, PyObject **out, launch_outcome *outcome);
void launch_code_free(launch_code *code);

/* Runs a program that gives tensors of its own: new references in outputs[]. False, with nothing given and no exception:
 * it failed. */
bool launch_program_run(launch_program *p, const launch_inputs *inputs, PyObject **outputs);
/* Packs what the program's calls want packed, into packed[] by extern call; adds to *bytes. False: not all of it. */
/* What decides on the form in which extern call i keeps its weight, as text. */
void launch_say_packing(const launch_program *p, uint32_t i, kin_text *out);
bool launch_program_pack(const launch_program *p, const launch_inputs *inputs, launch_packed *packed, size_t *bytes);


/* -- profile.c -------------------------------------------------------------------------------------------------- */

extern bool launch_profiling;
void launch_profile_note(launch_spent *s, double ns);
/* A run of all of it. */
void launch_profile_whole(launch_program *p, double ns);
/* NULL without memory. */
launch_spent *launch_profile_of(launch_program *p);
/* A row of torch.profiler for an operation, with the sizes and dtypes of what it reads and gives; kin_profiler_end closes it. */
PyObject *launch_profile_begin_row(const kin_program *p, const kin_program_op *op);
/* New list of dicts, the first for whole launches; None: nothing was noted. */
PyObject *launch_profile_describe(const launch_code *code);

#endif
