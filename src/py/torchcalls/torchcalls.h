/* Calls of torch and other uses of its objects, for the folders above. */
#ifndef KIN_PY_TORCHCALLS_TORCHCALLS_H
#define KIN_PY_TORCHCALLS_TORCHCALLS_H

#include "py/compat/kinds.h"
#include "py/recorder/rec.h"

/* ---- content.c ---- */
/* Does what the tensor holds follow from constants and small tensors of the program's? Then guards ask for that, and it is known. It is alive. */
bool rec_has_known_content(rec *r, kin_vid tensor);
int rec_known_truth(rec *r, kin_vid tensor); /* -1: it has none, or its content is not known */
bool rec_call_known_number(rec *r, const rec_args *a); /* x.item(), int(x) and their like of such a tensor */

/* ---- logging.c ---- */
void rec_logging_load(rec *r);
void rec_logging_free(rec *r);
bool rec_call_report(rec *r, const rec_args *a);
bool rec_drop_report(rec *r, const rec_args *a, int below); /* the callee lies `below` the top */

/* ---- number_calls.c ---- */
bool rec_call_number(rec *r, const rec_args *a);              /* math.sqrt(n), max(n, 0) of numbers that data decides */
kin_vid rec_choose(rec *r, kin_vid callee, const kin_vid *items, uint32_t n); /* max and min of tensors that are numbers, and of numbers; 0: something else */
kin_vid rec_extreme_of_sizes(rec *r, kin_vid callee, const kin_vid *items, uint32_t n); /* max and min of ints that sizes decide: a number; 0: something else */
bool rec_is_number_of_tensor(rec *r, const rec_args *a);      /* int(x), float(x), bool(x) */
bool rec_holds_integers(PyObject *tensor);                    /* lists of them are what sizes are made of */
void rec_note_number(rec *r, uint32_t step, int row);         /* the call written since then gives numbers that data decides */
bool rec_checks_data(rec *r, const rec_args *a);              /* torch._check(n > 0) and its like, of such a number */

/* ---- rows.c ---- */
int rec_opaque_row(rec *r, kin_vid callee, const kin_vid *args, uint32_t n);
int rec_effect_row(PyObject *callee); /* of what is a break under strict_breaks only */
bool rec_reports(PyObject *callee);   /* does it tell somebody something, and nothing else (KIN_STEP_REPORTS)? */
unsigned rec_opaque_flags(rec *r, kin_vid callee, const kin_vid *args, uint32_t n); /* step flags */

/* ---- size_calls.c ---- */
bool rec_size_attr(rec *r, kin_vid tensor, const char *name, attr_result *out); /* with dynamic dims: shape, nbytes ... */
bool rec_size_call(rec *r, const rec_args *a);
kin_vid rec_apply_metadata(rec *r, kin_vid callee, const kin_vid *args, uint32_t n); /* torch.numel(x), Tensor.dim(x) ... as C code calls it; 0: not known */

/* ---- metadata.c ---- */
unsigned rec_meta_mask(const char *name);             /* what a metadata method or attribute reads; 0 = it is none */
bool rec_meta_is_asked(const char *name);
bool rec_tensor_attr(rec *r, kin_vid base, PyObject *descr, PyObject *name, attr_result *out);

/* ---- operands.c ---- */
/* What torch does with calls that are handed a tensor of that class. */
typedef enum {
    REC_TENSOR_PLAIN,
    REC_TENSOR_SUBCLASS,  /* what it does with others, or code of torch's own for such classes; results are of the class */
    REC_TENSOR_OVERRIDES, /* the program's own __torch_function__ takes them over */
    REC_TENSOR_DISPATCHES /* the program's own __torch_dispatch__ does what they do, or a mode that is on */
} rec_tensor_kind;
rec_tensor_kind rec_kind_of_tensor(PyObject *tensor);
bool rec_reads_as_tensor(PyObject *obj);               /* PLAIN or SUBCLASS: metadata are what lies in the tensor's words */
bool rec_is_default_override(PyObject *func);          /* torch.Tensor.__torch_function__ */

/* Fixes the operands of a torch call or operator: a row of breaks.def when it ends the graph; RUNS_CODE: the call is a node of the graph
 * and runs code of the program inside. */
enum { REC_RUNS_NO_CODE = -1, REC_RUNS_CODE = -2 };
int rec_fix_operands(rec *r, kin_vid *args, uint32_t n);

/* ---- torch.c ---- */
kin_status rec_torch_init(void);
bool rec_is_torch_leaf(PyObject *func); /* a function in Python that is one node of the call graph */
bool rec_is_of_tensors(PyObject *descr); /* an attribute or a method that all tensors have */
bool rec_is_torch_callable(PyObject *callee);
/* A call of something in torch: true when recorded. */
bool rec_call_torch(rec *r, const rec_args *a);
void rec_torch_operator(rec *r, kin_step_kind kind, int imm, const kin_vid *args, uint32_t n, int ndrop);
bool rec_is_compiled(PyObject *obj);
PyObject *rec_compiled_fn(PyObject *obj); /* borrowed */
/* the last arguments are keywords named by the tuple kwnames (NULL: none) */
kin_vid rec_apply_torch(rec *r, kin_vid callee, const kin_vid *args, uint32_t n, PyObject *kwnames);
bool rec_fix_for_torch(rec *r, const kin_vid *args, uint32_t n);                       /* ... operands; false: code of the program may run */
bool rec_is_tensor_value(rec *r, kin_vid vid);                                         /* ... a plain tensor, or what a call of torch gave */

/* settings.c */
/* A getter of a setting whose answer is known: whoever ran before the call has settled it, or the recording itself. */
bool rec_ask_setting(rec *r, const rec_args *a);
/* Does it switch a setting of torch, as is known? Then it is a node of graphs that others compile: a graph goes on behind it. args: two, for its operands as constants. */
bool rec_switches_setting(rec *r, const rec_args *a, kin_vid *args);
void rec_put_gradients_back(rec *r, PyObject *callee);
/* inference_mode's guard: made with a known answer, entered and left. */
bool rec_call_inference_mode(rec *r, const rec_args *a);

#endif
