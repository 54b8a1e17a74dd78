/* Private to src/py/capture. */
#ifndef KIN_PY_CAPTURE_PRIV_H
#define KIN_PY_CAPTURE_PRIV_H

#include "core/base/intern.h"
#include "core/shape/shape.h"
#include "py/aten/make.h"
#include "py/aten/tensor.h"
#include "py/capture/capture.h"

/* What was found in torch; kept for the life of the process. */
typedef struct {
    PyTypeObject *fake, *mode;
    Py_ssize_t number_at;     /* of a fake tensor's number (an int object) in it */
    PyObject *make_subclass;  /* torch.Tensor._make_wrapper_subclass */
    PyObject *push, *pop;     /* of dispatch modes */
    PyObject *cpu, *meta;     /* devices */
    PyObject *strided;
    PyTypeObject *dtype, *device, *layout, *memory_format;
    PyObject *dtypes[KIN_DTYPE__COUNT];
    PyObject *op_rows;        /* overload -> (its C function, "aten.add.Tensor", the arguments it writes to, how it is captured: mode.c) */
    PyObject *seeded;         /* torch.Tag.nondeterministic_seeded */
    PyObject *instance_names; /* keywords of make_subclass */
    PyObject *s_device;       /* "device" */
    bool ready, failed;
} capture_torch;
extern capture_torch kin_capture_torch;

typedef struct {
    PyObject *meta;   /* owned; NULL: none was needed yet */
    kin_aten_val val; /* newest value with its contents */
    uint32_t data;    /* x.data, or a view of it: the step that asked for it, counted from 1; 0: it is no such tensor */
} capture_entry;

/* Steps met so far, each once (repeat.c). */
typedef struct kin_repeated kin_repeated;
typedef struct {
    kin_intern keys;
    KIN_VEC(kin_repeated *) at;  /* by key; NULL: it is not known what it asks */
} kin_repeats;

typedef struct {
    uint32_t step;
    uint64_t before; /* how many autograd nodes there were */
} capture_begun;

/* One capture in progress. */
typedef struct {
    kin_capture *out;
    KIN_VEC(capture_entry) entries;      /* by number of the fake tensor */
    const kin_capture_hints *hints;
    KIN_VEC(const void *) storages;      /* storage number - 1 -> its name among meta tensors; NULL: none has it yet */
    kin_shape_options options;
    kin_shapes shapes;                   /* of the call at hand */
    PyObject *device;                    /* of all its tensors; NULL: the CPU */
    bool no_rules;
    bool may_write;                      /* to inputs */
    uint32_t before;                     /* how many storages there were when the step began */
    uint32_t at;                         /* the subgraph runs before this step (kin_subgraph); 0: at its last call */
    uint32_t leaves;                     /* ... and from there on the first step that may leave (kin_subgraph) */
    bool uncounted;                          /* writes are those that an operator does not count */
    bool untracked;                          /* gradients are switched off at the step */
    uint32_t data, data_storage;         /* what entries have that are made now: all of them where the step is x.data (storage: 0), or views of an argument like that */
    bool joint;                          /* what calls give is kept */
    bool other_data;                     /* KIN_CAPTURE_OTHER_DATA */
    uint32_t step;                       /* that runs */
    KIN_VEC(uint32_t) suspects;          /* steps to be refused if torch cannot go back: they gave a tensor with a gradient other sizes in place, or ran an autograd function */
    bool found;                          /* ... or the one whose gradient made an operator fail */
    uint32_t asked;                      /* how many numbers in tensors were asked for, and known */
    KIN_VEC(uint32_t) passed;            /* older storages in which results of autograd functions lie: views that torch cannot derive from what else lies there */
    KIN_VEC(uint32_t) observed;          /* results that the program hands to code which may look at the gradients that arrive there */
    KIN_VEC(capture_begun) begun;        /* steps so far, with gradients */
    PyObject *const *operands;           /* of that step, if C code alone hands them on to operators; NULL: other code may do something to them first */
    uint32_t noperands;
    kin_repeats repeats;
} capturing;

/* -- fake_tensor.c -- */
kin_status kin_fake_init(PyObject *torch_module) KIN_MUST_CHECK;
/* A fake tensor for a value: new reference. meta: NULL when there is none yet. */
PyObject *kin_fake_new(capturing *c, PyObject *meta, bool requires_grad, kin_aten_val val);
/* ... for an input, where it may be one of an earlier capture. */
PyObject *kin_fake_for_input(capturing *c, bool requires_grad, kin_aten_val val);
/* Does it have the sizes, strides and offset of this value? */
bool kin_fake_lies_as(const kin_aten *g, PyObject *fake, kin_aten_val val);
/* From now on it has the sizes and strides of this value. False with an exception. */
bool kin_fake_lay_out(capturing *c, PyObject *fake, kin_aten_val val);
/* The meta tensor of a fake tensor, made now if need be; borrowed, NULL with an exception. */
PyObject *kin_fake_meta(capturing *c, uint32_t number);
/* Number of the storage, a new one if it has none. */
uint32_t kin_fake_storage(capturing *c, PyObject *meta);
/* A new one that no meta tensor has yet; 0 without memory. */
uint32_t kin_fake_new_storage(capturing *c);
/* The capture fails by this, but goes on to find all steps that do it. False with an exception. */
bool kin_capture_refuse_step(capturing *c, uint32_t step);
/* Why there is no capture, unless that is known already. */
void kin_capture_refuse(capturing *c, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* -- repeat.c -- */
/* A step on its way. */
typedef struct {
    uint32_t key;
    bool reads;                   /* it can be told what its operands are */
    uint32_t first, values, storages, entries, raising, asked; /* how many there were before it */
    KIN_VEC(uint32_t) tensors;    /* among its operands: numbers of fake tensors */
    PyObject *result;             /* begin was true: a new reference, NULL with an exception */
} kin_repeat;
/* Was such a step met before? Then it is done, as that one was. Call end in either case; result: what torch gave, NULL: it was not asked, or failed. */
bool kin_repeat_begin(capturing *c, const kin_step *s, PyObject *const *operands, kin_repeat *out);
void kin_repeat_end(capturing *c, kin_repeat *m, PyObject *result);
void kin_repeats_deinit(kin_repeats *r);

/* -- data.c -- */
/* The object with tensors of ones in place of fake tensors: new reference. */
PyObject *kin_capture_data_of(capturing *c, PyObject *obj);
/* ... and with fake tensors in place of tensors. */
PyObject *kin_capture_fake_for(capturing *c, PyObject *obj);

/* -- saves.c -- */
/* Fills in what going back from one result takes from the others (joint.saving), and by which it comes (joint.from). */
bool kin_joint_saves(capturing *c);
/* Which inputs and results eager saves (joint.saved), as far as torch tells. */
void kin_joint_find_saved(capturing *c);

/* -- joint.c -- */
/* The steps have run: goes back from what they gave. False: see the reason. */
bool kin_joint_run(capturing *c);
/* Tangents become inputs like others; call it when all values are known. */
void kin_joint_order(capturing *c);

/* -- derived.c -- */
/* Is the result without gradients, or one that torch derives from another tensor of its memory, as a view? False: see the reason. */
bool kin_derived_fits(capturing *c, uint32_t number);
/* No way back from a result leads over a tensor that the program looks at (observed) and the graph's node would pass by. False: see the reason, or an exception. */
bool kin_derived_pass(capturing *c);
/* The input requires gradients from some call on; the calls that write to it stay by themselves. */
void kin_derived_refuse_writes(capturing *c, uint32_t input);

/* -- composition.c -- */
/* What the operator of a row (find_row in mode.c) gives, as smaller operators that the mode sees: new reference. NULL without an exception: it stays one. */
PyObject *kin_capture_compose(capturing *c, PyObject *row, PyObject *args, PyObject *kwargs);
/* Operators [first, now) are what the call op(*args, **kwargs), which gave `made`, came as. Those that came inside of it go into it. False without memory. */
bool kin_capture_note_whole(capturing *c, uint32_t first, PyObject *op, PyObject *args, PyObject *kwargs, PyObject *made);

/* -- surroundings.c -- */
/* What is changed while steps run, to be put back. */
typedef struct {
    PyObject *mode;
    PyObject *inference;  /* guard that leaves inference mode; NULL: not in it */
    PyObject *settings;   /* what puts back those that steps switch; NULL: none do */
    PyObject *warnings, *show; /* the module, and how it shows a warning */
    bool grad;            /* are gradients on? Steps may switch them */
} capture_surroundings;
bool capture_hide_warnings(capture_surroundings *s, bool *warned); /* *warned: there was one */
bool capture_leave_inference(capture_surroundings *s); /* operators come undecomposed to modes in inference mode */
bool capture_keep_settings(capture_surroundings *s); /* steps may switch them */
bool capture_set_device(capturing *c, PyObject *input); /* all tensors are on one; shape rules are those of the CPU. False: refused, or an exception */
bool capture_push_mode(capture_surroundings *s, capturing *c);
void capture_restore(capture_surroundings *s); /* an exception that is set stays */

/* -- capture.c: a run of the steps -- */
typedef struct {
    capturing c;
    const kin_entry *v;
    const kin_trace *t;
    const kin_subgraph *subgraph;
    PyObject **slots;
    PyObject *const *in, *const *numbers;
    bool *open;     /* by value: made of a number among `numbers`; NULL: there are none */
    bool gradients; /* what it gives may require some */
    bool layers;    /* recurrent ones come as operators of our own */
    bool data;      /* what needs data is done on some */
    uint32_t by_data; /* the first step of which that is so and that gave tensors, from 1: sizes behind it are not known; 0: none */
    bool picks;     /* something that a mask picked has been among the values (picked.c) */
    PyObject *mode; /* that sees operators; borrowed */
} stepper;
/* The object that the value is in this run, borrowed; NULL: it is not there yet. */
PyObject *capture_operand(const stepper *x, kin_vid vid);
/* Is it wanted behind the subgraph? */
bool capture_is_given(const stepper *x, kin_vid vid);

/* Does the step take a number that is open (kin_capture_run), or something made of one? It has other values in other calls of the same plan. */
bool capture_uses_open(const capturing *c, uint32_t step);
/* Notes that the plan is one for this number. False: it is too large, or there is no memory. */
bool kin_capture_ask_value(kin_capture *c, PyObject *number);

/* -- known_number.c -- */
/* What _local_scalar_dense gives where the tensor is made of numbers alone: new reference; NULL without an exception: that is not known. */
PyObject *kin_capture_known_number(capturing *c, PyObject *args);

/* -- culprits.c -- */
void kin_culprit_begin_step(capturing *c);
/* Says that this operator, of which nothing else is known, cannot be captured. */
void kin_culprit_refuse(capturing *c, const char *operator);
/* An operator has failed: if torch was going back, only the step that it was going back through is suspect. */
void kin_culprit_note(capturing *c);

/* -- whole_calls.c -- */
/* Runs a step that is captured as a whole. 1: done, 0: it is none, -1: it failed. */
int capture_whole_call(stepper *x, const kin_step *s);
/* Does it call a function of TorchScript? */
bool capture_calls_scripted(const stepper *x, const kin_step *s);
/* Tensors that such a function makes do not come by the mode. False: one has come that is not understood. */
bool capture_lift_scripted(stepper *x, const kin_step *s);

/* -- picked.c -- */
/* Runs a step that makes or uses what a mask picks. 1: done, 0: it is none, or like any other, -1: it failed. */
int capture_picked(stepper *x, const kin_step *s);
/* A test of what a mask picks, however much that is: does it pass? -1: it is one of something else. */
int capture_test_picked(stepper *x, const kin_step *s, uint32_t step);

/* -- bindings.c -- */
/* Notes what the functions of this class find when they go back (joint.bindings). False, perhaps with an exception: it is not known. */
bool kin_capture_note_bindings(capturing *c, PyObject *cls);
void kin_capture_free_bindings(kin_capture_joint *joint);

/* -- tests.c -- */
/* Does the test pass? False: failed_test says which did not. */
bool capture_test(stepper *x, const kin_step *s, uint32_t step);

/* -- mode.c -- */
kin_status kin_mode_init(void) KIN_MUST_CHECK;
/* The object that sees operators while it is pushed: new reference. */
PyObject *kin_mode_new(capturing *c);
/* torch.ops.aten.NAME.input, one that torch would take apart before the mode sees it: new reference; NULL where no rule says what it gives. */
PyObject *kin_mode_call_whole(capturing *c, const char *name, PyObject *args);
/* torch.ops.aten.NAME.default, whose arguments are taken over: new reference. */
PyObject *kin_mode_call_default(capturing *c, const char *name, PyObject *args, PyObject *kwargs);
/* The capture is over: whatever still reaches the mode is refused. */
void kin_mode_end(PyObject *mode);

/* -- new_tensor.c -- */
/* A small tensor that torch.tensor() has just made of numbers. The numbers are constants of the program or inputs of the subgraph, which are
 * compared: so the graph makes the tensor of the same ones. New reference; NULL without an exception: it is none like that. */
PyObject *kin_capture_new_tensor(capturing *c, PyObject *args);

/* -- questions.c -- */
/* Notes what the step, which was run, asked of numbers. False without memory. */
bool kin_capture_ask(stepper *x, const kin_step *s);

#endif
