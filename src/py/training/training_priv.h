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

/* The least time of n runs, in nanoseconds. */
typedef struct {
    double ns;
    uint32_t n;
} launch_least;

/* What eager saves and the node does not (writes.c). */
typedef struct {
    uint64_t results, wanting; /* as in kin_capture_saved */
    uint32_t at;               /* number among the inputs, or the forward code's outs */
    uint32_t is_input;         /* 0 or 1: no bytes between the fields, which copy.c compares */
} launch_watched;

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
    uint32_t *group;         /* by these: the node that they stand behind (groups.c), from 1 on; 0: the graph's */
    uint32_t ngroups;
    uint32_t nkept, *kept;   /* inputs that are saved */
    bool *aliased;           /* of these: what eager saves is a view of it */
    uint32_t nhanded, *handed; /* outputs of the forward program that are saved */
    uint32_t nwatched;
    launch_watched *watched;
    bool timed, alone;       /* a comparison with torch's way is open, so the program's own runs are timed; by this thread's time */
    launch_least there, back; /* what they took, forward and backward */
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
    ARRAY(group, t->nwanting)         \
    ARRAY(written, ninputs)           \
    ARRAY(kept, t->nkept)             \
    ARRAY(aliased, t->nkept)          \
    ARRAY(handed, t->nhanded)         \
    ARRAY(watched, t->nwatched)

/* The forward program: the code's outs but for views of inputs in made[], the tensors that its node saves. False: it came to nothing. */
bool launch_training_forward(launch_running *r, launch_code *code, const launch_inputs *inputs, uint32_t threads, launch_outcome *outcome,
                             PyObject **made, PyObject **saved);
/* The backward program, from what was saved and one tangent or None for each result: new tuple, a gradient or None for each wanting
 * input; NULL, perhaps with an exception: it came to nothing. */
PyObject *launch_training_backward(launch_training *t, PyObject *saved, PyObject *const *grads);

/* For the graph's node, from what has come back by result: new tuple, one for each wanting input; NULL with an exception. there: which results these are,
 * as bits, and what came past results somebody looks at (last: that is not kept). */
PyObject *launch_training_go_back(PyObject *node, launch_training *t, PyObject *note, PyObject *const *grads, uint64_t *there, bool last);
/* What torch does not free with the saved tensors goes. */
void launch_training_let_go(PyObject *node, launch_training *t, PyObject *note, uint64_t there);
/* They belong together from now on. */
void launch_training_join(launch_training *t, launch_code *forward);
/* The capture goes (copy.c). */
void launch_training_release(launch_training *t);
/* The apply of a class of nodes of torch's kind. */
PyObject *launch_training_apply(PyMethodDef *forward_def, PyMethodDef *backward_def);

/* -- trial.c ------------------------------------------------------------------------------------------------------ */

/* Around a run of either half: the time at its beginning, 0 where it is not wanted; what it took counts. */
double launch_trial_begin(const launch_training *t);
void launch_trial_note(const launch_training *t, double begin, launch_least *least);

/* -- results.c ----------------------------------------------------------------------------------------------------- */

/* The names "materialize_grads" and "_kintsugi", interned; borrowed for the life of the process. */
bool launch_results_prepare(PyObject *materialize, PyObject *note);
/* Views that torch makes are detached where they want no gradients and what they are made of does, whatever they were made by. Others stay views: what is written to them
 * behind the graph may give gradients to all tensors of the memory. */
void launch_results_detach(const launch_training *t, const kin_capture *capture, launch_code *code);
/* Where there are several results: they go to `results`, by out; in made[] are stand-ins. False with an exception. */
bool launch_results_put_stand_ins(const launch_training *t, uint32_t nouts, PyObject **made, PyObject *saved, PyObject **results);
/* ... and back, behind nodes of their own, which lead to their groups (launch_groups_enter), too. */
bool launch_results_pass(const launch_training *t, PyObject *groups, PyObject **results, PyObject **made);
/* What comes back to the graph's node past results that somebody looks at: new reference; NULL: nothing. It is added to what the program gives.
 * last: it is not kept. */
PyObject *launch_results_take_direct(const launch_training *t, PyObject *node, bool last);
bool launch_results_add(PyObject *direct, PyObject **given, uint64_t *there);

/* -- groups.c ----------------------------------------------------------------------------------------------------- */

/* A leaf, its node, launch_results_prepare's names; borrowed. */
bool launch_groups_prepare(PyObject *probe, PyObject *probe_node, PyObject *materialize, PyObject *note);
/* Which inputs form groups: `group`, `ngroups`. */
void launch_groups_number(launch_training *t);
/* Groups' inputs leave the arguments of the graph's node, whose last one becomes a leaf if there are several results: new tuple, by group a tensor from which the engine goes on to it. */
PyObject *launch_groups_enter(const launch_training *t, PyObject *args);
/* The graph's node has given these. False with an exception. */
bool launch_groups_join(const launch_training *t, PyObject *groups, PyObject *given);
/* Those of the tensors by group to which the node of these results leads; others: results whose nodes it leads to anyway. */
uint32_t launch_groups_behind(const launch_training *t, uint64_t results, uint64_t others, PyObject *groups, PyObject **args);
/* A gradient has come back to a result. False with an exception. */
bool launch_groups_note_come(const launch_training *t, PyObject *node, uint32_t result, PyObject *grad);
/* What the graph's node found for groups' inputs goes to the groups; `given` has the rest. False with an exception. */
bool launch_groups_give(const launch_training *t, PyObject *node, PyObject **given, uint64_t there);
/* Has an earlier run of the engine gone back through groups only, without keeping the graph? */
bool launch_groups_were_alone(PyObject *node);
/* In the graph's node of several results, or a group: is the engine asked for the gradients of some tensors only (torch.autograd.grad)? */
bool launch_groups_is_asked_for_some(void);

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

static inline bool
launch_has(const uint32_t *numbers, uint32_t n, uint32_t number)
{
    for (uint32_t i = 0; i < n; i++)
        if (numbers[i] == number)
            return true;
    return false;
}

/* -- writes.c ----------------------------------------------------------------------------------------------------- */

/* Fills in `watched`; `kept` and `handed` are known. False without memory. */
bool launch_writes_find(launch_training *t, const kin_capture *capture, const launch_code *forward);
/* How often that has been written to goes to the list. made: by out. False with an exception. */
bool launch_writes_note(const launch_training *t, const launch_code *code, PyObject *const *in, PyObject *const *made, PyObject *list);
/* In the graph's node: false with the exception that eager's node raises, where something was written to since. there: results to which gradients have come, as bits. */
bool launch_writes_check(const launch_training *t, PyObject *node, PyObject *list, uint64_t there);

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
/* Does going back take an input only as views that the forward part has made (`weight.t()`)? What eager saves are these, and they keep the memory that they look at when
 * the program gives the input other memory (`weight.data = ...`). */
bool launch_needed_as_view(const kin_capture *capture, uint32_t input);

/* -- again.c ----------------------------------------------------------------------------------------------------- */

/* What a backward needs of its forward beside what is saved: all tensors, how often they had been written to, the state of random
 * numbers, launch_region_takes, a list for launch_writes_note. New reference; NULL with an exception. */
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
