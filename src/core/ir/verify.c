/* Verifies a tensor program against every rule that ops.def and ir.h state, so that later passes can rely on them. */
#include "core/ir/ir.h"

enum { F = 1, I = 2, B = 4 }; /* floats, integers, BOOL */

typedef struct {
    const kin_ir *p;
    kin_irn i;
    const kin_ir_node *n;
    const int64_t *sizes, *attrs;
    kin_text *why;
} check;

static const int nargs_of[] = {
#define OP(NAME, text, class, nargs, attrs) nargs,
#include "core/ir/ops.def"
#undef OP
};

static bool
refuse(const check *c, const char *reason)
{
    kin_text_addf(c->why, "%%%u %s: %s", c->i, kin_ir_op_name((kin_ir_op)c->n->op), reason);
    return false;
}

#define NEED(cond, reason)             \
    do {                               \
        if (!(cond))                   \
            return refuse(c, reason);  \
    } while (0)

static const kin_ir_node *
arg(const check *c, unsigned k)
{
    return kin_ir_at(c->p, kin_ir_arg(c->p, c->i, k));
}

static const int64_t *
arg_sizes(const check *c, unsigned k)
{
    return kin_ir_sizes(c->p, kin_ir_arg(c->p, c->i, k));
}

static int
kind_of(unsigned dtype)
{
    if (dtype == KIN_BOOL)
        return B;
    return kin_dtype_is_float((kin_dtype)dtype) ? F : kin_dtype_is_integer((kin_dtype)dtype) ? I : 0;
}

/* On which dtypes (of the first argument) an operation is defined. */
static int
kinds_allowed(kin_ir_op op)
{
    switch (op) {
    case KIN_IR_NEG: case KIN_IR_ABS: case KIN_IR_SIGN:
    case KIN_IR_SUB: case KIN_IR_DIV: case KIN_IR_FLOOR_DIV: case KIN_IR_REM: case KIN_IR_FMOD: case KIN_IR_POW:
    case KIN_IR_REDUCE_SUM: case KIN_IR_REDUCE_PROD: case KIN_IR_CUMSUM: case KIN_IR_CUMPROD:
        return F | I;
    case KIN_IR_NOT: case KIN_IR_AND: case KIN_IR_OR: case KIN_IR_XOR:
        return I | B;
    case KIN_IR_SHL: case KIN_IR_SHR: case KIN_IR_IOTA:
        return I;
    case KIN_IR_CONST: case KIN_IR_CAST: case KIN_IR_ADD: case KIN_IR_MUL: case KIN_IR_MAX: case KIN_IR_MIN:
    case KIN_IR_EQ: case KIN_IR_NE: case KIN_IR_LT: case KIN_IR_LE: case KIN_IR_GT: case KIN_IR_GE: case KIN_IR_WHERE:
    case KIN_IR_EXPAND: case KIN_IR_PERMUTE: case KIN_IR_RESHAPE: case KIN_IR_SLICE: case KIN_IR_PAD: case KIN_IR_CAT:
    case KIN_IR_INDEX: case KIN_IR_SCATTER: case KIN_IR_REDUCE_MAX: case KIN_IR_REDUCE_MIN: case KIN_IR_ARGMAX:
    case KIN_IR_ARGMIN: case KIN_IR_CUMMAX: case KIN_IR_CUMMIN:
        return F | I | B;
    case KIN_IR_REDUCE_ANY: case KIN_IR_REDUCE_ALL:
        return B;
    default:
        return F;
    }
}

static bool
same_sizes(const check *c, unsigned k)
{
    return arg(c, k)->ndim == c->n->ndim
           && (c->n->ndim == 0 || memcmp(arg_sizes(c, k), c->sizes, c->n->ndim * sizeof *c->sizes) == 0);
}

static int64_t
numel(const check *c, unsigned k)
{
    return kin_ir_numel(c->p, kin_ir_arg(c->p, c->i, k));
}

static bool
check_leaf(const check *c)
{
    switch (c->n->op) {
    case KIN_IR_INPUT:
        NEED(c->n->nattrs == 1 && c->attrs[0] >= 0 && c->attrs[0] < (int64_t)c->p->ninputs, "no such input");
        return true;
    case KIN_IR_IOTA:
        NEED(kind_of(c->n->dtype) == I, "not for this dtype");
        NEED(c->n->nattrs == 1 && c->attrs[0] >= 0 && c->attrs[0] < c->n->ndim, "no such dim");
        return true;
    default:
        NEED(kind_of(c->n->dtype) != 0, "not for this dtype");
        NEED(c->n->dtype != KIN_BOOL || c->n->value.i == 0 || c->n->value.i == 1, "a BOOL is 0 or 1");
        return true;
    }
}

static bool
check_pointwise(const check *c)
{
    kin_ir_op op = (kin_ir_op)c->n->op;
    bool is_compare = kin_ir_op_class(op) == KIN_IR_CLASS_COMPARE;
    for (unsigned k = 0; k < c->n->nargs; k++) {
        NEED(same_sizes(c, k), "arguments must have the node's sizes");
        if (op == KIN_IR_WHERE && k == 0)
            NEED(arg(c, 0)->dtype == KIN_BOOL, "the condition must be b8");
        else if (is_compare)
            NEED(arg(c, k)->dtype == arg(c, 0)->dtype, "arguments must have one dtype");
        else if (op != KIN_IR_CAST)
            NEED(arg(c, k)->dtype == c->n->dtype, "arguments must have the node's dtype");
    }
    unsigned last = c->n->nargs - 1u;
    NEED(kind_of(arg(c, last)->dtype) & kinds_allowed(op), "not for this dtype");
    NEED(!is_compare || c->n->dtype == KIN_BOOL, "the result must be b8");
    NEED(kind_of(c->n->dtype) != 0, "not for this dtype");
    return true;
}

static bool
check_expand(const check *c)
{
    unsigned from = arg(c, 0)->ndim;
    NEED(from <= c->n->ndim, "cannot drop dims");
    for (unsigned d = 0; d < from; d++) {
        int64_t size = arg_sizes(c, 0)[d];
        NEED(size == 1 || size == c->sizes[c->n->ndim - from + d], "only size 1 repeats");
    }
    return true;
}

static bool
check_permute(const check *c)
{
    unsigned seen = 0;
    NEED(c->n->nattrs == c->n->ndim && arg(c, 0)->ndim == c->n->ndim, "one dim for each dim");
    for (unsigned d = 0; d < c->n->ndim; d++) {
        NEED(c->attrs[d] >= 0 && c->attrs[d] < c->n->ndim && !(seen >> c->attrs[d] & 1), "dims must be a permutation");
        NEED(c->sizes[d] == arg_sizes(c, 0)[c->attrs[d]], "sizes do not follow from the argument");
        seen |= 1u << c->attrs[d];
    }
    return true;
}

static bool
check_slice(const check *c)
{
    unsigned ndim = c->n->ndim;
    NEED(arg(c, 0)->ndim == ndim && c->n->nattrs == 2 * ndim, "a start and a step for each dim");
    for (unsigned d = 0; d < ndim; d++) {
        int64_t start = c->attrs[d], step = c->attrs[ndim + d], size = arg_sizes(c, 0)[d], reach, last;
        NEED(step != 0, "step 0");
        if (c->sizes[d] == 0)
            continue;
        NEED(!__builtin_mul_overflow(c->sizes[d] - 1, step, &reach) && !__builtin_add_overflow(start, reach, &last),
             "too far");
        NEED(start >= 0 && start < size && last >= 0 && last < size, "outside of the argument");
    }
    return true;
}

static bool
check_pad(const check *c)
{
    NEED(arg(c, 0)->ndim == c->n->ndim && c->n->nattrs == c->n->ndim, "a low for each dim");
    NEED(arg(c, 1)->ndim == 0 && arg(c, 1)->dtype == c->n->dtype, "the value must be a scalar of the dtype");
    return true;
}

static bool
check_cat(const check *c)
{
    NEED(c->n->nargs >= 1 && c->n->nattrs == 1 && c->attrs[0] >= 0 && c->attrs[0] < c->n->ndim, "no such dim");
    int64_t dim = c->attrs[0], total = 0;
    for (unsigned k = 0; k < c->n->nargs; k++) {
        NEED(arg(c, k)->ndim == c->n->ndim && arg(c, k)->dtype == c->n->dtype, "parts must be alike");
        for (unsigned d = 0; d < c->n->ndim; d++)
            NEED(d == dim || arg_sizes(c, k)[d] == c->sizes[d], "parts must be alike");
        total += arg_sizes(c, k)[dim];
    }
    NEED(total == c->sizes[dim], "sizes do not follow from the arguments");
    return true;
}

/* The map of INDEX and SCATTER: `target` is indexed, from positions of `ndim` and `sizes`. */
static bool
check_map(const check *c, const kin_ir_node *target, const int64_t *target_sizes, const int64_t *map, unsigned ndim,
          const int64_t *sizes, unsigned first)
{
    for (unsigned d = 0; d < target->ndim; d++) {
        if (map[d] >= 0) {
            NEED(map[d] < ndim && sizes[map[d]] <= target_sizes[d], "coordinates outside of the indexed value");
            continue;
        }
        NEED(-1 - map[d] < (int64_t)c->n->nargs - first, "no such index");
    }
    for (unsigned k = first; k < c->n->nargs; k++) {
        NEED(arg(c, k)->dtype == KIN_I64, "an index must be i64");
        NEED(arg(c, k)->ndim == ndim && (ndim == 0 || memcmp(arg_sizes(c, k), sizes, ndim * sizeof *sizes) == 0),
             "an index must have the sizes of the positions");
    }
    return true;
}

static bool
check_index(const check *c)
{
    NEED(c->n->nargs >= 1 && c->n->nattrs == arg(c, 0)->ndim, "a map for each dim of the indexed value");
    return check_map(c, arg(c, 0), arg_sizes(c, 0), c->attrs, c->n->ndim, c->sizes, 1);
}

static bool
check_scatter(const check *c)
{
    NEED(c->n->nargs >= 2 && c->n->nattrs == c->n->ndim + 1u, "a mode and a map for each dim");
    NEED(c->attrs[0] >= KIN_IR_SCATTER_SET && c->attrs[0] <= KIN_IR_SCATTER_MIN, "no such mode");
    NEED(same_sizes(c, 0), "sizes are those of the first argument");
    NEED(arg(c, 1)->dtype == c->n->dtype && arg(c, 0)->dtype == c->n->dtype, "arguments must have the node's dtype");
    NEED(kind_of(c->n->dtype) != 0, "not for this dtype");
    return check_map(c, c->n, c->sizes, c->attrs + 1, arg(c, 1)->ndim, arg_sizes(c, 1), 2);
}

static bool
check_view(const check *c)
{
    if (c->n->op == KIN_IR_CAT && c->n->nargs == 0)
        return refuse(c, "no parts");
    NEED(c->n->nargs >= 1 && arg(c, 0)->dtype == c->n->dtype, "a view keeps the dtype");
    NEED(kind_of(c->n->dtype) != 0, "not for this dtype");
    switch (c->n->op) {
    case KIN_IR_EXPAND: return check_expand(c);
    case KIN_IR_PERMUTE: return check_permute(c);
    case KIN_IR_SLICE: return check_slice(c);
    case KIN_IR_PAD: return check_pad(c);
    case KIN_IR_CAT: return check_cat(c);
    case KIN_IR_INDEX: return check_index(c);
    default:
        NEED(numel(c, 0) == kin_ir_numel(c->p, c->i), "another number of elements");
        return true;
    }
}

static bool
check_reduce(const check *c)
{
    kin_ir_op op = (kin_ir_op)c->n->op;
    bool is_arg = kin_ir_op_is_arg(op);
    bool has_start = op == KIN_IR_REDUCE_SUM || op == KIN_IR_REDUCE_PROD || op == KIN_IR_REDUCE_ANY || op == KIN_IR_REDUCE_ALL;
    unsigned reduced = 0;
    NEED(kind_of(arg(c, 0)->dtype) & kinds_allowed(op), "not for this dtype");
    NEED(c->n->dtype == (is_arg ? KIN_I64 : arg(c, 0)->dtype), "not the dtype of the result");
    NEED(arg(c, 0)->ndim == c->n->ndim, "dims stay");
    for (unsigned k = 0; k < c->n->nattrs; k++) {
        NEED(c->attrs[k] >= 0 && c->attrs[k] < c->n->ndim && !(reduced >> c->attrs[k] & 1), "dims must differ and exist");
        reduced |= 1u << c->attrs[k];
    }
    for (unsigned d = 0; d < c->n->ndim; d++) {
        NEED(c->sizes[d] == (reduced >> d & 1 ? 1 : arg_sizes(c, 0)[d]), "sizes do not follow from the argument");
        NEED(has_start || !(reduced >> d & 1) || arg_sizes(c, 0)[d] > 0, "nothing to choose from");
    }
    NEED(!is_arg || c->n->nattrs == 1 || c->n->nattrs == c->n->ndim, "one dim or all of them");
    return true;
}

static bool
check_scan(const check *c)
{
    NEED(kind_of(c->n->dtype) & kinds_allowed((kin_ir_op)c->n->op), "not for this dtype");
    NEED(same_sizes(c, 0) && arg(c, 0)->dtype == c->n->dtype, "the argument must have the node's dtype and sizes");
    NEED(c->n->nattrs == 1 && c->attrs[0] >= 0 && c->attrs[0] < c->n->ndim, "no such dim");
    return true;
}

static bool
check_call(const check *c)
{
    if (c->n->op == KIN_IR_EXTERN) {
        NEED(c->n->nattrs == 2 && c->n->ndim == 0, "a number and flags");
        return true;
    }
    NEED(c->n->nargs == 1 && arg(c, 0)->op == KIN_IR_EXTERN, "not of an extern");
    NEED(c->n->nattrs == 1 && c->attrs[0] >= 0, "no such result");
    return true;
}

static bool
check_shape(const check *c)
{
    int64_t count = 1;
    NEED(c->n->ndim <= KIN_IR_MAX_DIMS, "too many dims");
    NEED(c->n->dtype < KIN_DTYPE__COUNT, "no such dtype");
    for (unsigned d = 0; d < c->n->ndim; d++) {
        NEED(c->sizes[d] >= 0, "negative size");
        /* As if no size were 0: strides are products of them. */
        NEED(!__builtin_mul_overflow(count, c->sizes[d] ? c->sizes[d] : 1, &count) && count < INT64_MAX / 16, "too many elements");
    }
    return true;
}

static bool
check_node(const check *c)
{
    NEED(c->n->op < KIN_IR__COUNT, "no such operation");
    int nargs = nargs_of[c->n->op];
    NEED(nargs < 0 || c->n->nargs == nargs, "wrong number of arguments");
    for (unsigned k = 0; k < c->n->nargs; k++) {
        kin_irn a = kin_ir_arg(c->p, c->i, k);
        NEED(a > 0 && a < c->i, "arguments come earlier");
        NEED(c->n->op == KIN_IR_RESULT || arg(c, k)->op != KIN_IR_EXTERN, "an extern is no value");
    }
    if (!check_shape(c))
        return false;
    switch (kin_ir_op_class((kin_ir_op)c->n->op)) {
    case KIN_IR_CLASS_LEAF: return check_leaf(c);
    case KIN_IR_CLASS_POINTWISE:
    case KIN_IR_CLASS_COMPARE: return check_pointwise(c);
    case KIN_IR_CLASS_VIEW: return check_view(c);
    case KIN_IR_CLASS_SCATTER: return check_scatter(c);
    case KIN_IR_CLASS_REDUCE: return check_reduce(c);
    case KIN_IR_CLASS_SCAN: return check_scan(c);
    case KIN_IR_CLASS_EXTERN:
    case KIN_IR_CLASS_RESULT: return check_call(c);
    }
    return refuse(c, "no such class");
}

bool
kin_ir_verify(const kin_ir *p, kin_text *why)
{
    if (p->failed) {
        kin_text_add(why, "no memory while it was built");
        return false;
    }
    for (kin_irn i = 1; i < p->nodes.len; i++) {
        check c = {.p = p, .i = i, .n = kin_ir_at(p, i), .sizes = kin_ir_sizes(p, i), .attrs = kin_ir_attrs(p, i), .why = why};
        if (!check_node(&c))
            return false;
    }
    for (uint32_t i = 0; i < p->outputs.len; i++) {
        kin_irn o = p->outputs.at[i].node;
        if (o == 0 || o >= p->nodes.len || kin_ir_at(p, o)->op == KIN_IR_EXTERN) {
            kin_text_addf(why, "output %u is no value", i);
            return false;
        }
        if (p->outputs.at[i].into > p->ninputs) {
            kin_text_addf(why, "output %u goes into an input that is not there", i);
            return false;
        }
    }
    return true;
}
