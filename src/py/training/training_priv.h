/* Private to src/py/training. */
#ifndef KIN_PY_TRAINING_PRIV_H
#define KIN_PY_TRAINING_PRIV_H

#include "py/run/running.h"
#include "py/training/training.h"

/* -- training.c -------------------------------------------------------------------------------------------------- */

/* What comes back for a result, and how it has to lie. */
typedef struct {
    kin_dtype dtype;
    unsigned ndim;
    int64_t sizes[KIN_IR_MAX_DIMS], strides[KIN_IR_MAX_DIMS];
} launch_tangent;

typedef struct {
    PyObject_HEAD
    kin_capture capture;     /* forward and backward, to be done again with autograd */
    bool has_capture;
    PyObject *like;          /* whose capture this one's is but for the calls (copy.c); NULL: it is its own */
    launch_code *backward;
    launch_code *forward;    /* NULL: it is gone */
    PyObject *row;           /* of torch.profiler, that the last forward under it belonged to; NULL: there was none */
    bool tried;              /* results were compared with those of torch's own way */
    uint32_t nresults;       /* with a tangent */
    uint32_t *out_of;        /* by result: which of the forward code's outs */
    uint32_t ngiven;         /* outs that the node gives */
    uint32_t *base_of;       /* by out of the forward code: the one that it is a view of + 1 */
    uint32_t *grad_at;       /* by result: which of these it is */
    launch_tangent *tangents; /* by result */
    uint32_t nwanting;
    uint32_t *wanting;       /* inputs that want gradients, by number among the tensors */
    uint32_t *gradient;      /* by these: which of the backward code's outs; UINT32_MAX: none */
    uint32_t ngradients;     /* that are there */
    bool *written;           /* inputs that the graph writes to */
    uint64_t *depends;       /* by these: which tangents have a way to it, also where its value does not depend on them (kin_capture_joint.reaching) */
    uint32_t nkept, *kept;   /* inputs that are saved */
    uint32_t nhanded, *handed; /* outputs of the forward program that are saved */
    uint32_t begun;          /* runs so far, up to LAUNCH_SETTLED */
    uint32_t apart;          /* ways back from a result after another one, for which torch went over the operators again (KIN_TIER_APART) */
    bool whole;              /* a place to cut the graph was looked for */
    uint32_t runs, twice;    /* of these runs, those whose gradients were differentiated again (KIN_TIER_TWICE_WINDOW) */
} launch_training;

/* Its arrays, and how long each is (`nouts` and `ninputs`: of the forward code and of the graph); `tangents` has a shape of its own. */
#define LAUNCH_TRAINING_ARRAYS(ARRAY) \
    ARRAY(out_of, t->nresults)        \
    ARRAY(grad_at, t->nresults)       \
    ARRAY(base_of, nouts)             \
    ARRAY(wanting, t->nwanting)       \
    ARRAY(gradient, t->nwanting)      \
    ARRAY(depends, t->nwanting)       \
    ARRAY(written, ninputs)           \
    ARRAY(kept, t->nkept)             \
    ARRAY(handed, t->nhanded)

/* The forward program: the code's outs but for views of inputs in made[], the tensors that its node saves. False: it came to nothing. */
bool launch_training_forward(launch_running *r, launch_code *code, const launch_inputs *inputs, uint32_t threads, launch_outcome *outcome,
                             PyObject **made, PyObject **saved);
/* The backward program, from what was saved and one tangent or None for each result: new tuple, a gradient or None for each wanting
 * input; NULL, perhaps with an exception: it came to nothing. */
PyObject *launch_training_backward(launch_training *t, PyObject *saved, PyObject *const *grads);

/* They belong together from now on. */
void launch_training_join(launch_training *t, launch_code *forward);
/* The capture goes (copy.c). */
void launch_training_release(launch_training *t);
/* The apply of a class of nodes of torch's kind. */
PyObject *launch_training_apply(PyMethodDef *forward_def, PyMethodDef *backward_def);

/* -- results.c ----------------------------------------------------------------------------------------------------- */

/* The apply of the class of nodes of launches; the names "materialize_grads" and "_kintsugi", interned; borrowed for the life of the process. */
bool launch_results_prepare(PyObject *launched, PyObject *materialize, PyObject *note);
/* Where there are several results: they go to `results`, by out; in made[] are stand-ins. False with an exception. */
bool launch_results_put_stand_ins(const launch_training *t, uint32_t nouts, PyObject **made, PyObject *saved, PyObject **results);
/* ... and back, behind nodes of their own. */
bool launch_results_pass(const launch_training *t, uint32_t nouts, PyObject **results, PyObject **made);
/* What comes back to the graph's node past results that somebody looks at: new reference; NULL: nothing. It is added to what the program gives. */
PyObject *launch_results_take_direct(const launch_training *t, PyObject *node);
bool launch_results_add(PyObject *direct, PyObject **given, uint64_t *there);

/* -- reach.c ------------------------------------------------------------------------------------------------------ */

/* The apply of both classes of nodes, a leaf, the name "_kintsugi"; borrowed. */
bool launch_reach_prepare(PyObject *launched, PyObject *passing, PyObject *leaf, PyObject *note);
/* Does nobody notice if torch's engine goes on behind the tensor although no gradient came? */
bool launch_reach_is_quiet(PyObject *tensor);
/* For later launches: the node that gave these has these arguments. False: it could not be noted. */
bool launch_reach_note(PyObject *given, PyObject *args);
/* ... the hooks of a result that there are views of, seen_of in results.c. False with an exception. */
bool launch_reach_see(PyObject *result, PyObject *seen);

/* -- recompute.c ------------------------------------------------------------------------------------------------- */

/* Is this launch part of a checkpointed region, whose values are made again for its backward? New tuple (what calls its function again, number of the node
 * there), or None; NULL with an exception. */
PyObject *launch_region_takes(const launch_code *code);
/* ... of one whose values are being made again? They are kept. */
bool launch_region_collect(const launch_code *code, PyObject *saved);
/* What its node saves: new tuple; NULL with an exception. */
PyObject *launch_region_saves(const launch_code *code, PyObject *const *in);
/* As launch_training_backward, from the launch_again_note. raised: the region's function has. */
PyObject *launch_region_backward(launch_training *t, PyObject *note, PyObject *const *grads, bool *raised);

/* -- settle.c ---------------------------------------------------------------------------------------------------- */

/* Runs after which what compiling has left behind goes. A plan for further sizes has nothing compiled and begins there. */
enum { LAUNCH_SETTLED = 4 };

/* Memory that compiling has left behind goes back to the system. */
void launch_settle_memory(void);

/* -- order.c ----------------------------------------------------------------------------------------------------- */

/* The node's inputs, args[1 + i] for the wanting input i: where several have hooks, aliases from which torch's engine goes on in eager's order.
 * False with an exception. */
bool launch_order_inputs(const launch_training *t, PyObject *args) KIN_MUST_CHECK;

/* -- needed.c ---------------------------------------------------------------------------------------------------- */

/* What the results with a tangent come from: by captured call of the forward part; by operator that came as several, which is called in their place then;
 * by input. effects: calls that do something beside, and what they take, are needed as well. */
typedef struct {
    bool *calls, *wholes, *inputs;
} launch_needed;
bool launch_needed_find(const launch_training *t, PyObject *grads, bool effects, launch_needed *out);
void launch_needed_deinit(launch_needed *n);

/* -- again.c ----------------------------------------------------------------------------------------------------- */

/* What a backward needs of its forward beside what is saved: all tensors, how often they had been written to, the state of random
 * numbers, launch_region_takes. New reference; NULL with an exception. */
PyObject *launch_again_note(const launch_code *code, PyObject *const *in, PyObject *random, PyObject *region);
/* Does the input hold a number for the operators (py/capture/numbers.c)? */
bool launch_again_is_number(const launch_training *t, uint32_t input);
/* Inputs of the graph that it writes to: marks among its inputs. */
void launch_again_find_written(const kin_aten *g, bool *written);
/* The state of random numbers: new reference. */
PyObject *launch_again_random(void);
bool launch_again_set_random(PyObject *state);
/* Results that torch does not go back past: what comes back to them is wanted instead. alive: those that are there, for gradients of gradients. */
typedef struct {
    uint64_t results; /* bits */
    PyObject *alive[KIN_CAPTURE_MOST_RESULTS];
} launch_cut;
/* Gradients by torch's own autograd: forward once more, operator by operator, and back. New tuple, one for each wanting input and then for each result of
 * the cut (NULL: there is none), None where nothing comes; NULL with an exception. grads: a tuple, one for each result, perhaps None. results: NULL, or becomes
 * a new tuple of them. */
PyObject *launch_again(const launch_training *t, PyObject *note, PyObject *grads, bool create_graph, const launch_cut *cut, PyObject **results);

/* -- rows.c ------------------------------------------------------------------------------------------------------ */

/* In a forward launch: the row of torch.profiler that its way back is named after. */
void launch_training_note_row(launch_training *t);
/* The row of a way back; kin_profiler_end closes it. NULL: no profiler is on. */
PyObject *launch_training_begin_row(const launch_training *t);

#endif
