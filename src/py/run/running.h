/* A program while it runs, for the files that run its parts: run.c, extern.c, calls.c, give.c. Private to them. */
#ifndef KIN_PY_RUN_RUNNING_H
#define KIN_PY_RUN_RUNNING_H

#include "py/run/run.h"

enum { LAUNCH_EVERY_THREAD = 4096 /* parts for kin_parallel_for: more than there are threads, each gets one */ };

typedef struct {
    launch_program *lp;
    const kin_program *p;
    const launch_inputs *inputs;
    void **data;        /* by buffer */
    PyObject **tensors; /* by buffer, owned */
    void *arena, *block; /* block: the arena, when it is one of core/blocks */
    PyObject *random;   /* state of the random numbers before the first operator that draws some; NULL: none did */
    uint32_t begun;     /* so many operations have begun */
    bool counted;       /* tensors know of the writes to them */
    bool once;          /* its results are kept: no blocks for them */
    launch_outcome *outcome; /* the caller's */
} launch_running;

/* -- extern.c: operators of torch ------------------------------------------------------------------------------- */

/* A tensor for (part of) a buffer: new reference; NULL with an exception. */
PyObject *launch_make_argument(launch_running *r, const kin_extern_arg *arg);
/* Has the tensor the sizes, strides and dtype of the buffer? */
bool launch_is_as_foreseen(const kin_buf *buf, PyObject *tensor);
/* A copy that lies as the buffer does: new reference; NULL with an exception. */
PyObject *launch_lay_out_again(const kin_buf *buf, PyObject *tensor);
/* False: the run has come to nothing, perhaps with an exception. */
bool launch_run_extern(launch_running *r, uint32_t index);

/* -- random.c: torch's random numbers --------------------------------------------------------------------------- */

/* Before some are drawn. False with an exception. */
bool launch_keep_random(launch_running *r);
/* They go on as if the run had not been. */
void launch_put_back_random(launch_running *r);
/* to[i]: 1 with probability p, else 0, as torch's operator draws them. False, perhaps with an exception: none were drawn. */
bool launch_bernoulli(double p, int64_t n, float *to);

/* -- calls.c: library calls ------------------------------------------------------------------------------------- */

bool launch_run_library(launch_running *r, uint32_t index);
/* Packs what calls want packed, into packed[] by extern call; adds to *bytes. */
bool launch_pack_all(launch_running *r, launch_packed *packed, size_t *bytes);

/* -- give.c: results -------------------------------------------------------------------------------------------- */

/* New references in out[], as the subgraph gives them. False with an exception, and nothing given. */
bool launch_hand_out(launch_running *r, const launch_code *code, PyObject **out);
PyObject *launch_make_out(launch_running *r, const launch_out *o);
/* In two steps: the code's different tensors, one for each of code->outs; then what they are parts of. */
bool launch_make_outs(launch_running *r, const launch_code *code, PyObject **made);
/* Once for each run; from then on it cannot be given up. */
void launch_count_writes(launch_running *r, const launch_code *code);
bool launch_give_made(const launch_inputs *inputs, const launch_code *code, PyObject *const *made, PyObject **out);
/* The view of `base` that the output is. */
PyObject *launch_view_of(PyObject *base, const launch_out *o);

/* -- run.c ------------------------------------------------------------------------------------------------------ */

/* A run; `give` makes its results, once everything that can fail has ended but for itself; then inputs are written to. False: it came to
 * nothing, perhaps with an exception; `outcome` tells why. r->random and the outcome's hints are the caller's to free. */
typedef bool (*launch_giver)(launch_running *r, const launch_code *code, void *arg);
bool launch_code_give(launch_running *r, launch_code *code, const launch_inputs *inputs, uint32_t threads, launch_outcome *outcome,
                      launch_giver give, void *arg);

#endif
