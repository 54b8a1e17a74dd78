/* What lowering rules work with: one call with its arguments, and the builders.
 *
 * A rule gets the call and the number of its row, builds nodes, and hands each result to low_done. False = it does not
 * cover these arguments (what it built is dropped) and the call becomes an EXTERN. Sizes and dtypes of results are known
 * from the call, so rules mostly reshape, expand and cast to them.
 */
#ifndef KIN_LOWER_LOWER_PRIV_H
#define KIN_LOWER_LOWER_PRIV_H

#include "core/lower/lower.h"


typedef struct {
    kin_irn node;           /* what it held when its storage had `version` */
    uint32_t version;
    kin_aten_val parent;    /* the value of the same storage that it is a view of; 0 = it is the base */
    bool used;              /* an argument of a call, or an output */
    bool by_strides;        /* the view follows from the layouts alone, not from the call's rule */
} low_value;

typedef struct {
    kin_aten_val base;      /* the value that covers it; 0 = not made yet */
    uint32_t version;       /* raised by each write */
    bool of_input;
    bool shared;            /* by several inputs */
} low_storage;

typedef struct {
    const kin_aten *g;
    kin_ir *ir;
    const kin_lower_options *options;
    low_value *values;
    low_storage *storages;
    kin_irn *results;       /* room for the results of the largest call */
    kin_lowered *out;
    kin_text *why;
    uint32_t call;          /* that is lowered; UINT32_MAX: all have been */
    bool *inside;           /* by value: complex, and nobody sees it but calls that complex.c knows */
    kin_irn *parts;         /* two by value: real and imaginary parts of those */
    unsigned part;          /* that rules read */
    uint32_t stuck;         /* call that stands in the way, when `why` says something */
} low;

typedef struct low_call {
    low *l;
    kin_ir *ir;
    const kin_aten_call *call;
    kin_irn *results;
} low_call;

typedef bool (*low_rule)(low_call *c, int row);

/* -- the call (args.c) -------------------------------------------------------------------------------------------- */
/* The argument at a position or by its keyword; NULL when it is not given, or None. */
const kin_aten_arg *low_arg(const low_call *c, unsigned at, const char *keyword);
bool low_is_value(const kin_aten_arg *a);
bool low_is_number(const kin_aten_arg *a);
/* Its value, on which what is made of the call then depends. */
double low_number_of(const low_call *c, const kin_aten_arg *a);
double low_float_or(const low_call *c, unsigned at, const char *keyword, double otherwise);
int64_t low_int_or(const low_call *c, unsigned at, const char *keyword, int64_t otherwise);
/* The integers of a list (or one integer); -1 when it is something else or there are more than KIN_IR_MAX_DIMS. */
int low_ints(const low_call *c, const kin_aten_arg *a, int64_t *out);
/* Element i of a list argument. */
const kin_aten_arg *low_item(const low_call *c, const kin_aten_arg *list, unsigned i);
const char *low_str(const low_call *c, const kin_aten_arg *a);
/* The node of a tensor argument as it is now; 0 when it is none. */
kin_irn low_read(low_call *c, const kin_aten_arg *a);
/* Of result k. */
kin_dtype low_dtype(const low_call *c, unsigned k);
unsigned low_ndim(const low_call *c, unsigned k);
const int64_t *low_sizes(const low_call *c, unsigned k);
const int64_t *low_strides(const low_call *c, unsigned k);
/* Whether anybody uses result k: rules leave out what nobody does. */
bool low_wanted(const low_call *c, unsigned k);
/* From 0 on; -1 when there is no such dim. Scalars count as having one dim. */
int low_dim(int64_t dim, unsigned ndim);

/* -- dtypes (args.c) ---------------------------------------------------------------------------------------------- */
/* The dtype in which PyTorch computes on these arguments (tensors and numbers) together. */
kin_dtype low_common(const low_call *c, const kin_aten_arg *const *args, unsigned count);
/* f32 for half precision: what eager computes in. */
kin_dtype low_wide(kin_dtype dtype);

/* -- building (args.c) -------------------------------------------------------------------------------------------- */
kin_irn low_number(low_call *c, kin_dtype dtype, double value, unsigned ndim, const int64_t *sizes);
kin_irn low_integer(low_call *c, kin_dtype dtype, int64_t value, unsigned ndim, const int64_t *sizes);
/* Operators raise for numbers that their dtype cannot hold, or they do not: PyTorch's own tell. */
bool low_holds(kin_dtype dtype, const kin_aten_arg *a);
/* A number of the call, exactly; an open one is read from its input. 0: the dtype cannot hold it. */
kin_irn low_scalar(low_call *c, const kin_aten_arg *a, kin_dtype dtype, unsigned ndim, const int64_t *sizes);
/* A tensor or number with this dtype, expanded to the sizes of result 0; 0 when it is neither. */
kin_irn low_operand(low_call *c, const kin_aten_arg *a, kin_dtype dtype);
/* A constant like `a`. */
kin_irn low_like(low_call *c, kin_irn a, double value);
kin_irn low_expand_like(low_call *c, kin_irn a, kin_irn like);
kin_irn low_reshape_like(low_call *c, kin_irn a, unsigned k);  /* to the sizes of result k; 0 when it does not fit */
/* Of group norms (rules_nn.c): numbers of channels, [N, C, 1], summed up for each group, [N, groups, 1, 1]; ... */
kin_irn low_sum_channels(low_call *c, kin_irn channels, int64_t groups);
/* ... a number of each group for each of its channels, in memory: [N, C, 1]; ... */
kin_irn low_by_channel(low_call *c, kin_irn group, int64_t channels);
/* ... a weight or bias, [C], as large as `like`, [N, C, 1]; 0 when it is of another kind. */
kin_irn low_as_channels(low_call *c, kin_irn a, kin_irn like);
kin_irn low_compare(low_call *c, kin_ir_op op, kin_irn a, double value);
/* The same elements, stored anew. */
kin_irn low_copy(low_call *c, kin_irn a);
/* Result k, cast to its dtype. False when the sizes are others. */
bool low_done(low_call *c, unsigned k, kin_irn node);
/* Rounded to the result's dtype: where eager stores a step in half precision. */
kin_irn low_stored(low_call *c, kin_irn x);

static inline unsigned low_ndim_of(const low_call *c, kin_irn n) { return kin_ir_at(c->ir, n)->ndim; }
static inline const int64_t *low_sizes_of(const low_call *c, kin_irn n) { return kin_ir_sizes(c->ir, n); }
static inline kin_dtype low_dtype_of(const low_call *c, kin_irn n) { return (kin_dtype)kin_ir_at(c->ir, n)->dtype; }
static inline kin_irn low_un(low_call *c, kin_ir_op op, kin_irn a) { return kin_ir_unary(c->ir, op, a); }
static inline kin_irn low_bi(low_call *c, kin_ir_op op, kin_irn a, kin_irn b) { return kin_ir_binary(c->ir, op, a, b); }
static inline kin_irn low_bin(low_call *c, kin_ir_op op, kin_irn a, double b) { return low_bi(c, op, a, low_like(c, a, b)); }

/* -- rules (rules.c) and views (views.c) ---------------------------------------------------------------------------- */
/* False: its operator has no rule, or the rule does not cover these arguments. */
bool low_rule_run(low_call *c);

/* -- complex.c ------------------------------------------------------------------------------------------------------ */
/* Fills l->inside. */
void low_complex_find(low *l);
/* Is the call one of those that complex.c lowers? Then low_complex_call does: parts of complex results are noted; a real one is given. */
bool low_is_inside(low *l, const kin_aten_call *call);
bool low_complex_call(low_call *c, kin_irn *real);
/* An input that is inside: its node, which is real and has a dim more. */
kin_irn low_complex_input(low *l, kin_aten_val v);
/* Of the parts of a complex dtype; others as they are. */
kin_dtype low_real_dtype(kin_dtype dtype);

/* A value's elements as they are now; 0 with `why` when they cannot be had. */
kin_irn low_current(low *l, kin_aten_val v);
/* Everybody who looks at this memory sees `node` there from now on. */
kin_status low_write(low *l, kin_aten_val v, kin_irn node);
/* Results of a call take their places: new storages, or views of what the call's argument `parent` looks at. */
kin_status low_place(low *l, kin_aten_val v, kin_irn node, kin_aten_val parent);

bool low_same_layout(const kin_aten *g, kin_aten_val a, kin_aten_val b);
/* Whether its elements fill a stretch of memory, each place once. */
bool low_is_dense(const kin_aten *g, kin_aten_val v);
/* The value that covers the memory which v looks at. */
kin_aten_val low_root(const low *l, kin_aten_val v);

enum { IS_NAN, IS_INF, IS_FINITE, IS_POSINF, IS_NEGINF };   /* rows of rule_classify */
enum { BOTH, LOWER, UPPER };                                /* rule_clamp */
enum { VAR, STD, VAR_MEAN, STD_MEAN };                      /* rule_var */
enum { SOFTMAX, LOG_SOFTMAX, SAFE_SOFTMAX };                /* rule_softmax, rule_softmax_backward */
enum { THRESHOLD_BACKWARD, SIGMOID_BACKWARD, TANH_BACKWARD, SILU_BACKWARD, GELU_BACKWARD, MISH_BACKWARD, SOFTPLUS_BACKWARD, LEAKY_BACKWARD,
       HARDTANH_BACKWARD, HARDSIGMOID_BACKWARD, HARDSWISH_BACKWARD, SHRINK_BACKWARD }; /* rule_activation_backward */
enum { MSE_BACKWARD, SMOOTH_BACKWARD, HUBER_BACKWARD };     /* rule_loss_backward */

#define NONE
#define LOWER(name, number) bool rule_##name(low_call *c, int row);
#define ATEN(op, overload, shape, lower, complex, traits) lower
#include "core/aten/aten.def"
#undef ATEN
#undef LOWER
#undef NONE

#endif
