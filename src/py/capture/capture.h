/* Capture: finds the ATen calls that a subgraph's steps make, by running them once on fake tensors.
 *
 * A fake tensor looks like a CPU tensor and has no data. What an operator that reaches the dispatch mode (mode.c) returns follows from a
 * shape rule (core/shape), or from calling it on meta tensors with the same sizes. Nothing of the program is touched: steps
 * run on slots of their own, with fake tensors in place of all tensors, and an operator that needs data fails.
 */
#ifndef KIN_PY_CAPTURE_H
#define KIN_PY_CAPTURE_H

#include "core/aten/aten.h"
#include "core/program/sizes.h"
#include "py/replay/subgraphs.h"

/* An operator as it was called, fake tensors in place of tensors. By number of the call in the graph. */
typedef KIN_VEC(kin_sizes_question) kin_sizes_questions;

typedef struct {
    PyObject *op;      /* the overload's C function */
    PyObject *args;    /* tuple */
    PyObject *kwargs;  /* dict or NULL */
    PyObject *made;    /* with gradients: what it gave, of fake tensors; else NULL */
    uint32_t step;     /* that called it; UINT32_MAX: it belongs to the gradients */
    bool untracked;    /* gradients are off at the step */
} kin_capture_call;

/* An operator of the forward part that came as smaller ones (composition.c), or an autograd function of the program (whole_calls.c). */
typedef struct {
    kin_capture_call call;
    uint32_t first, end; /* the calls that it came as */
} kin_capture_whole;

/* What an autograd function of the program finds under a name when torch goes back through it (bindings.c). */
typedef enum { KIN_BOUND_CLASS, KIN_BOUND_GLOBAL, KIN_BOUND_CELL, KIN_BOUND_CODE } kin_bound_in;
typedef struct {
    kin_bound_in in;
    PyObject *holder, *name; /* name: NULL where there is none */
    PyObject *found;         /* NULL: nothing */
} kin_capture_binding;

/* How a result really lies in memory, where the meta tensors' call says otherwise. */
typedef struct {
    uint32_t call, which;     /* number of the call, of the tensor among its results */
    unsigned ndim;
    int64_t strides[8];
} kin_capture_hint;
typedef KIN_VEC(kin_capture_hint) kin_capture_hints;

typedef KIN_VEC(uint32_t) kin_capture_numbers;

/* One of eager's nodes saves an input or a result of the graph (kintsugi/_saved.py): it runs on the way from these results, to these wanting inputs (bits;
 * the last one stands for all from there on). No bits: some other tensor is saved. */
typedef struct {
    uint32_t number;         /* of the fake tensor */
    uint64_t results, wanting;
} kin_capture_saved;

/* Of more results it is not known which goes with which. */
enum { KIN_CAPTURE_MOST_RESULTS = 63 };

/* Forward and backward in one graph (joint.c): behind the tensors among the subgraph's inputs stand the tangents, what comes back for results that
 * require gradients. */
typedef struct {
    uint32_t ncalls;         /* of the graph's calls, those of the forward part */
    kin_capture_numbers results;   /* fake tensors of the results with a tangent, in the order of the tangents */
    kin_capture_numbers wanting;   /* inputs that require gradients, by fake tensor */
    kin_capture_numbers gradients; /* by wanting input: fake tensor of its gradient; UINT32_MAX: there is none */
    KIN_VEC(kin_capture_whole) wholes; /* in their order; none is part of another */
    KIN_VEC(kin_capture_binding) bindings; /* what the captured gradients rest on beside the guards, which are tested before the forward part */
    kin_capture_numbers arriving;  /* wanting inputs, by place in `wanting`, in the order in which torch's engine has their gradients ready */
    KIN_VEC(uint64_t) from;   /* by result: the results that it was made from, for torch's autograd, as bits */
    KIN_VEC(uint64_t) saving; /* by result: the results that need something which going back from it frees, as bits */
    KIN_VEC(kin_capture_saved) saved; /* sorted */
    bool knows_saved;         /* that is all; false: it is not known */
    KIN_VEC(uint64_t) reaching; /* by wanting input: the results that have a way to it, for torch's autograd, as bits */
} kin_capture_joint;

typedef struct {
    kin_aten *graph;      /* without outputs; inputs are the tensors among the subgraph's, in order */
    KIN_VEC(kin_capture_call) calls;
    PyObject **out;       /* what the steps gave for the subgraph's outputs: fake tensors, containers with some, None */
    uint32_t nout;
    PyObject *fakes;  /* list: all of them, by number */
    uint32_t ninputs;     /* the first of them stand for inputs */
    kin_capture_numbers numbers; /* ... of which these hold a number for the steps, not a tensor */
    kin_aten_val *values; /* by fake tensor: its value in the graph at the end */
    KIN_VEC(uint32_t) raising; /* steps whose operators may raise because of data, or draw random numbers */
    kin_capture_numbers once;       /* of a subgraph that runs early: steps that draw random numbers or write to tensors */
    kin_capture_numbers random;     /* ... those that draw */
    bool writes;          /* an operator writes to an input */
    kin_capture_numbers uncounted; /* storages of inputs, once for each write that torch does not count */
    KIN_VEC(uint32_t) refused; /* failed: the calls that cannot be captured; none = it is not a matter of single calls */
    bool by_data;         /* calls gave tensors whose sizes may follow from data (KIN_CAPTURE_DATA) */
    kin_sizes_questions questions; /* that steps asked of numbers, in their order */
    bool asks_more;       /* ... of numbers that are too large, too */
    uint32_t failed_test; /* failed: the test that did not pass, from 1 (its step + 1); 0 = it is something else */
    kin_capture_joint joint; /* KIN_CAPTURE_JOINT; without results: there is nothing to go back from */
    char reason[200];     /* failed: why */
} kin_capture;

/* Finds what is needed in torch; KIN_BREAK: it is not there. */
kin_status kin_capture_init(void) KIN_MUST_CHECK;
/* What the subgraph may do: operators may write to its inputs; results may require gradients; those are captured too. */
enum {
    KIN_CAPTURE_WRITES = 1,
    KIN_CAPTURE_GRADIENTS = 2,
    KIN_CAPTURE_JOINT = 4,
    KIN_CAPTURE_LAYERS = 32, /* ... with operators of our own for recurrent layers (core/kernels/recurrent.h) */
    KIN_CAPTURE_DATA = 8, /* calls that need data run on tensors of ones: what comes is of the right kind, and nothing else is to be taken from it */
    KIN_CAPTURE_OTHER_DATA = 16 /* ... of ones and a zero: sizes that are the same again do not follow from data */
};
/* in: the subgraph's inputs. numbers: by input, what steps get in place of a tensor without dims that holds it; NULL inside, or altogether: nothing.
 * KIN_BREAK: see reason. Never leaves an exception. */
kin_status kin_capture_run(const kin_entry *v, const kin_subgraph *subgraph, PyObject *const *in, PyObject *const *numbers, const kin_capture_hints *hints,
                           unsigned may, kin_capture *out) KIN_MUST_CHECK;
/* Finds which numbers of the capture's operators are numbers among its inputs, from a capture of the same with other ones (kin_aten_find_numbers); there the fake
 * tensors take their place. */
bool kin_capture_find_numbers(kin_capture *c, const kin_capture *probe, PyObject *const *now, PyObject *const *other) KIN_MUST_CHECK;
/* Runs the steps on the inputs themselves, one after the other, in place of a launch, and says how long they took: what a launch
 * has to be faster than. NOT: something stands in the way (a warning, an error), to be met by the steps at their place. For
 * subgraphs that were captured and have no effects but writes to inputs: where it is NOT, the caller puts those back. */
kin_launch kin_capture_do(const kin_entry *v, const kin_subgraph *subgraph, PyObject *const *in, PyObject **out, double *ns);
/* torch's engine, back from `results` to `inputs`, of which nothing accumulates (joint.c): new tuple, None where there is no gradient. */
PyObject *kin_engine_run(PyObject *results, PyObject *tangents, bool create_graph, PyObject *inputs);
void kin_capture_deinit(kin_capture *c);
void kin_capture_call_deinit(kin_capture_call *call);
/* Number of a fake tensor; UINT32_MAX: it is none. */
uint32_t kin_capture_number(PyObject *obj);

/* All that was asked of numbers: by steps, then by operators of places in dims (questions.c). False without memory. */
bool kin_capture_questions(const kin_capture *c, kin_sizes_questions *out) KIN_MUST_CHECK;
/* Does an autograd function find the same as when its gradients were captured? */
bool kin_capture_is_bound_as_before(const kin_capture *c);

#endif
