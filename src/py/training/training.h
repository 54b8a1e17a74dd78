/* Subgraphs whose inputs require gradients: two programs, forward and backward, and an autograd node between them. */
#ifndef KIN_PY_TRAINING_TRAINING_H
#define KIN_PY_TRAINING_TRAINING_H

#include "core/partition/halves.h"
#include "core/program/numbers.h"
#include "core/tier/abtest.h"
#include "py/run/run.h"

/* The forward code gets what its gradients are made with (code->training); takes `backward`. */
kin_status launch_training_new(const kin_capture *capture, launch_code *forward, launch_code *backward, const kin_halves *h) KIN_MUST_CHECK;
/* The capture is the training's from now on: where it is. compiled: machine code was made for it. */
const kin_capture *launch_training_keep(PyObject *training, kin_capture *capture, bool compiled);
/* For plans with other sizes (copy.c): a walk over what is not the forward code, with what walks code and objects; a copy, which the forward code gets as from
 * launch_training_new, and takes `backward`. False: nothing was done. */
void launch_training_walk(PyObject *training, kin_walk *w, void (*code)(kin_walk *, launch_code *), void (*object)(kin_walk *, PyObject **));
bool launch_training_copy(PyObject *training, launch_code *forward, launch_code *backward) KIN_MUST_CHECK;
/* Is it one of the situations in which somebody looks at what eager saves? */
bool launch_training_watched(void);
/* What it says of a graph that waits for this to end. */
const char *launch_training_awaits(void);
/* As launch_code_run. */
launch_result launch_training_run(launch_code *code, uint32_t threads, PyObject *const *in, PyObject **out, launch_outcome *outcome);

/* Checkpointed regions (recompute.c). Is one being prepared: are graphs to be compiled, and noted, although they do not run? Hooks of saved tensors are put
 * aside for that (a list; NULL with an exception), and put back. */
bool launch_region_is_prepared(void);
void launch_region_note(const launch_code *code);
PyObject *launch_hooks_put_aside(void);
void launch_hooks_put_back(PyObject *aside);
/* function(*args): new tuple (result, graphs that could be done again, graphs that could not, nodes that will be); None: launched, and nothing that it has
 * recorded fits, so nothing was done. how: None: prepared; a list: launched, what its nodes save is collected there; else launched, and that calls it again. */
PyObject *launch_region_call(PyObject *function, PyObject *args, PyObject *how);
/* A call of a compiled function that nothing recorded fits: is it a launched region's? Then with an exception, for launch_region_call. */
bool launch_region_refuses(PyObject *function);
/* A recording fits, of which it is known that its graphs can be done again, or not: may it be replayed? False with an exception, as above. */
bool launch_region_admits(PyObject *function, bool repeats);
/* It has been replayed: if that was to prepare a region, and all graphs can be done again, that is known of it from now on. whole: that was all of it, without an exit or a
 * side trace, of which nothing is known. */
void launch_region_judge(PyObject *function, bool whole, bool *repeats);

/* Are its gradients differentiated again as a rule? Then torch does forward and backward once more each time, and its steps alone are faster. */
bool launch_training_is_twice(const launch_code *code);
/* Does the program go back from its results one after another, as a rule? Then the step at which a further graph should begin (cut.c), once; UINT32_MAX: none. */
uint32_t launch_training_cut(const launch_code *code);

/* Both ways, on these inputs (trial.c): is the code as right and as fast as torch's operators, as far as this call and those before can tell? */
typedef struct {
    const char *why; /* if not */
    bool slower;     /* that is why: it may be otherwise later */
    char text[120];
} launch_training_trial;
bool launch_training_try(launch_code *code, uint32_t threads, PyObject *const *in, kin_abtest *abtest, uint32_t trials, launch_training_trial *result);

/* The code that goes back; NULL: this code gives no gradients. */
const launch_code *launch_training_code_back(const launch_code *code);

#endif
