/* Rewrites a program node by node: folds constants, merges views of views and casts of casts, and finds
 * equal nodes with a hash table. A second round drops what this leaves unused.
 */
#include "core/ir/ir_priv.h"
#include "core/base/hash.h"
#include "core/base/table.h"
#include "core/ir/scalar.h"

typedef struct {
    const kin_ir *from;
    kin_ir *to;
    kin_irn *map;      /* node of `from` -> node of `to` */
    bool *live;
    kin_table table;   /* nodes of `to` by their contents */
    bool fast_math;
} pass;

static bool
is_copy(const kin_ir *p, kin_irn n)
{
    return kin_ir_at(p, n)->op == KIN_IR_CAST && kin_ir_at(p, n)->dtype == kin_ir_at(p, kin_ir_arg(p, n, 0))->dtype;
}

static void
mark_live(const kin_ir *p, bool *live)
{
    for (uint32_t o = 0; o < p->outputs.len; o++)
        live[p->outputs.at[o].node] = true;
    for (kin_irn i = p->nodes.len; i-- > 1;) {
        const kin_ir_node *n = kin_ir_at(p, i);
        live[i] |= kin_ir_has_effect(p, i);
        for (unsigned k = 0; k < n->nargs && live[i]; k++)
            live[kin_ir_arg(p, i, k)] = true;
    }
}

/* -- equal nodes -------------------------------------------------------------------------------------------------- */

static uint64_t
hash_node(const kin_ir *p, kin_irn i)
{
    const kin_ir_node *n = kin_ir_at(p, i);
    uint64_t h = kin_hash_word(kin_hash_word(kin_hash_word(n->op, n->dtype), n->ndim), (uint64_t)n->value.i);
    for (unsigned k = 0; k < n->nargs; k++)
        h = kin_hash_word(h, kin_ir_arg(p, i, k));
    for (unsigned k = 0; k < n->ndim; k++)
        h = kin_hash_word(h, (uint64_t)kin_ir_sizes(p, i)[k]);
    for (unsigned k = 0; k < n->nattrs; k++)
        h = kin_hash_word(h, (uint64_t)kin_ir_attrs(p, i)[k]);
    return h;
}

static bool
same_ints(const kin_ir *p, unsigned count, uint32_t a, uint32_t b)
{
    return count == 0 || memcmp(p->ints.at + a, p->ints.at + b, count * sizeof *p->ints.at) == 0;
}

static bool
equal(const kin_ir *p, kin_irn x, kin_irn y)
{
    const kin_ir_node *a = kin_ir_at(p, x), *b = kin_ir_at(p, y);
    if (a->op != b->op || a->dtype != b->dtype || a->ndim != b->ndim || a->nargs != b->nargs || a->nattrs != b->nattrs
        || a->value.i != b->value.i || (a->strides == 0) != (b->strides == 0))
        return false;
    for (unsigned k = 0; k < a->nargs; k++)
        if (kin_ir_arg(p, x, k) != kin_ir_arg(p, y, k))
            return false;
    return same_ints(p, a->ndim, a->sizes, b->sizes) && same_ints(p, a->nattrs, a->attrs, b->attrs)
           && (a->strides == 0 || same_ints(p, a->ndim, a->strides, b->strides));
}

/* An earlier node equal to the newest one, which is then taken back; or the newest one. Copies and calls are themselves. */
static kin_irn
unify(pass *s, kin_irn newest)
{
    kin_ir *p = s->to;
    if (p->failed || newest + 1 != p->nodes.len || kin_ir_at(p, newest)->op == KIN_IR_EXTERN || is_copy(p, newest))
        return newest;
    uint64_t hash = hash_node(p, newest);
    uint32_t n, at = 0;
    while ((n = kin_table_next(&s->table, hash, &at)) != KIN_TABLE_NONE)
        if (equal(p, n, newest)) {
            p->nodes.len--;
            return n;
        }
    p->failed |= kin_table_add(&s->table, hash, newest) != KIN_OK;
    return newest;
}

/* -- rewrites: each takes a node of `to` apart and gives a shorter one, or 0 --------------------------------------------- */

static bool
all_const(const kin_ir *p, kin_irn n)
{
    for (unsigned k = 0; k < kin_ir_at(p, n)->nargs; k++)
        if (kin_ir_at(p, kin_ir_arg(p, n, k))->op != KIN_IR_CONST)
            return false;
    return kin_ir_at(p, n)->nargs > 0;
}

static kin_irn
fold_const(kin_ir *p, kin_irn i)
{
    const kin_ir_node *n = kin_ir_at(p, i);
    kin_ir_class class = kin_ir_op_class((kin_ir_op)n->op);
    bool pointwise = class == KIN_IR_CLASS_POINTWISE || class == KIN_IR_CLASS_COMPARE;
    bool view = n->op == KIN_IR_EXPAND || n->op == KIN_IR_PERMUTE || n->op == KIN_IR_RESHAPE || n->op == KIN_IR_SLICE;
    if (!(pointwise || view) || !all_const(p, i) || is_copy(p, i))
        return 0;
    kin_scalar args[3], out;
    for (unsigned k = 0; k < n->nargs; k++) {
        const kin_ir_node *a = kin_ir_at(p, kin_ir_arg(p, i, k));
        args[k] = kin_scalar_settle((kin_dtype)a->dtype, a->value);
    }
    kin_dtype from = (kin_dtype)kin_ir_at(p, kin_ir_arg(p, i, n->nargs - 1u))->dtype;
    if (view)
        out = args[0];
    else if (!kin_scalar_compute((kin_ir_op)n->op, from, (kin_dtype)n->dtype, args, &out))
        return 0;
    return kin_ir_const(p, (kin_dtype)n->dtype, out, n->ndim, kin_ir_sizes(p, i));
}

/* Whether every value of `from` is one of `to`. */
static bool
widens(kin_dtype from, kin_dtype to)
{
    static const uint8_t bits[KIN_DTYPE__COUNT] = {[KIN_BOOL] = 1, [KIN_U8] = 8, [KIN_I8] = 7, [KIN_I16] = 15, [KIN_I32] = 31,
        [KIN_I64] = 63, [KIN_F16] = 11, [KIN_BF16] = 8, [KIN_F32] = 24, [KIN_F64] = 53};
    if (from == to)
        return true;
    if (kin_dtype_is_float(from))
        return to == KIN_F64 || (to == KIN_F32 && from != KIN_F64);
    if (to == KIN_BOOL || (to == KIN_U8 && from != KIN_BOOL))
        return false;
    return bits[from] <= bits[to];
}

static kin_irn
merge_casts(const pass *s, kin_irn i)
{
    kin_ir *p = s->to;
    kin_irn inner = kin_ir_arg(p, i, 0);
    if (is_copy(p, i) || kin_ir_at(p, inner)->op != KIN_IR_CAST)
        return 0;
    kin_irn x = kin_ir_arg(p, inner, 0);
    kin_dtype first = (kin_dtype)kin_ir_at(p, x)->dtype, middle = (kin_dtype)kin_ir_at(p, inner)->dtype;
    kin_dtype last = (kin_dtype)kin_ir_at(p, i)->dtype;
    bool unrounded = s->fast_math && first == KIN_F32 && last == KIN_F32 && (middle == KIN_F16 || middle == KIN_BF16);
    if (!unrounded && !widens(first, middle))
        return 0;
    return kin_ir_cast(p, x, last);
}

static kin_irn
merge_slices(kin_ir *p, kin_irn i)
{
    kin_irn inner = kin_ir_arg(p, i, 0);
    unsigned ndim = kin_ir_at(p, i)->ndim;
    const int64_t *outer_attrs = kin_ir_attrs(p, i), *inner_attrs = kin_ir_attrs(p, inner);
    int64_t starts[KIN_IR_MAX_DIMS], steps[KIN_IR_MAX_DIMS];
    for (unsigned d = 0; d < ndim; d++) {
        starts[d] = inner_attrs[d] + outer_attrs[d] * inner_attrs[ndim + d];
        steps[d] = outer_attrs[ndim + d] * inner_attrs[ndim + d];
    }
    return kin_ir_slice(p, kin_ir_arg(p, inner, 0), starts, steps, kin_ir_sizes(p, i));
}

/* A view that gives its argument as it is. */
static bool
is_identity(const kin_ir *p, kin_irn i)
{
    const kin_ir_node *n = kin_ir_at(p, i);
    if (!kin_ir_same_sizes(p, i, kin_ir_arg(p, i, 0)))
        return false;
    for (unsigned d = 0; d < n->ndim; d++) {
        bool one = kin_ir_sizes(p, i)[d] <= 1;
        if (n->op == KIN_IR_PERMUTE && kin_ir_attrs(p, i)[d] != d)
            return false;
        if (n->op == KIN_IR_SLICE && (kin_ir_attrs(p, i)[d] != 0 || (!one && kin_ir_attrs(p, i)[n->ndim + d] != 1)))
            return false;
    }
    return true;
}

static kin_irn
merge_views(kin_ir *p, kin_irn i)
{
    kin_ir_op op = (kin_ir_op)kin_ir_at(p, i)->op;
    kin_irn inner = kin_ir_arg(p, i, 0);
    unsigned ndim = kin_ir_at(p, i)->ndim;
    if (is_identity(p, i))
        return inner;
    if (kin_ir_at(p, inner)->op != op)
        return 0;
    kin_irn x = kin_ir_arg(p, inner, 0);
    int64_t dims[KIN_IR_MAX_DIMS];
    switch (op) {
    case KIN_IR_RESHAPE:
        return kin_ir_reshape(p, x, ndim, kin_ir_sizes(p, i));
    case KIN_IR_EXPAND:
        return kin_ir_expand(p, x, ndim, kin_ir_sizes(p, i));
    case KIN_IR_PERMUTE:
        for (unsigned d = 0; d < ndim; d++)
            dims[d] = kin_ir_attrs(p, inner)[kin_ir_attrs(p, i)[d]];
        return kin_ir_permute(p, x, dims);
    default:
        return merge_slices(p, i);
    }
}

static bool
is_splat(const kin_ir *p, kin_irn n, double value)
{
    const kin_ir_node *a = kin_ir_at(p, n);
    if (a->op != KIN_IR_CONST)
        return false;
    return kin_dtype_is_float((kin_dtype)a->dtype) ? a->value.f == value : (double)a->value.i == value;
}

/* Only what gives the same bits: x + 0.0 would turn -0.0 into 0.0. */
static kin_irn
drop_neutral(const kin_ir *p, kin_irn i)
{
    const kin_ir_node *n = kin_ir_at(p, i);
    if (n->nargs < 2)
        return 0;
    kin_irn a = kin_ir_arg(p, i, 0), b = kin_ir_arg(p, i, 1);
    bool is_int = !kin_dtype_is_float((kin_dtype)n->dtype);
    switch (n->op) {
    case KIN_IR_MUL: return is_splat(p, b, 1) ? a : is_splat(p, a, 1) ? b : 0;
    case KIN_IR_DIV: return is_splat(p, b, 1) ? a : 0;
    case KIN_IR_SUB: return is_int && is_splat(p, b, 0) ? a : 0;
    case KIN_IR_ADD: return is_int && is_splat(p, b, 0) ? a : is_int && is_splat(p, a, 0) ? b : 0;
    case KIN_IR_WHERE:
        if (kin_ir_at(p, a)->op == KIN_IR_CONST)
            return kin_ir_arg(p, i, kin_ir_at(p, a)->value.i ? 1 : 2);
        return b == kin_ir_arg(p, i, 2) ? b : 0;
    default: return 0;
    }
}

/* Of no elements; extremes have none then. */
static kin_irn
reduce_nothing(kin_ir *p, kin_irn i)
{
    const kin_ir_node *n = kin_ir_at(p, i);
    bool one = n->op == KIN_IR_REDUCE_PROD || n->op == KIN_IR_REDUCE_ALL;
    bool zero = n->op == KIN_IR_REDUCE_SUM || n->op == KIN_IR_REDUCE_ANY;
    if (kin_ir_numel(p, kin_ir_arg(p, i, 0)) != 0 || kin_ir_numel(p, i) == 0 || !(one || zero))
        return 0;
    kin_scalar value = {.i = one};
    if (kin_dtype_is_float((kin_dtype)n->dtype))
        value.f = one;
    return kin_ir_const(p, (kin_dtype)n->dtype, value, n->ndim, kin_ir_sizes(p, i));
}

static kin_irn
drop_reduction(kin_ir *p, kin_irn i)
{
    kin_irn nothing = reduce_nothing(p, i);
    if (nothing != 0)
        return nothing;
    const kin_ir_node *n = kin_ir_at(p, i);
    if (n->op == KIN_IR_ARGMAX || n->op == KIN_IR_ARGMIN || !kin_ir_same_sizes(p, i, kin_ir_arg(p, i, 0)))
        return 0;
    return kin_ir_arg(p, i, 0);
}

static kin_irn
rewrite_once(const pass *s, kin_irn i)
{
    kin_ir *p = s->to;
    kin_irn better = fold_const(p, i);
    if (better != 0)
        return better;
    switch (kin_ir_at(p, i)->op) {
    case KIN_IR_CAST: return merge_casts(s, i);
    case KIN_IR_EXPAND: case KIN_IR_RESHAPE: case KIN_IR_PERMUTE: case KIN_IR_SLICE: return merge_views(p, i);
    default: break;
    }
    if (kin_ir_op_class((kin_ir_op)kin_ir_at(p, i)->op) == KIN_IR_CLASS_REDUCE)
        return drop_reduction(p, i);
    return drop_neutral(p, i);
}

static kin_irn
rewrite(pass *s, kin_irn i)
{
    while (!s->to->failed) {
        kin_irn better = rewrite_once(s, i);
        if (better == 0)
            break;
        if (better < i) /* an earlier node: finished already */
            return better;
        i = unify(s, better);
        if (i != better)
            return i;
    }
    return i;
}

/* -- the pass ----------------------------------------------------------------------------------------------------- */

static bool
looks_through_copies(const kin_ir_node *n)
{
    switch (kin_ir_op_class((kin_ir_op)n->op)) {
    case KIN_IR_CLASS_POINTWISE: case KIN_IR_CLASS_COMPARE: case KIN_IR_CLASS_REDUCE: case KIN_IR_CLASS_SCAN:
    case KIN_IR_CLASS_SCATTER: return true;
    default: return false;
    }
}

static kin_irn
write_node(pass *s, kin_irn i, kin_irn *args)
{
    kin_ir_node n = *kin_ir_at(s->from, i);
    for (unsigned k = 0; k < n.nargs; k++) {
        args[k] = s->map[kin_ir_arg(s->from, i, k)];
        while (looks_through_copies(&n) && is_copy(s->to, args[k]))
            args[k] = kin_ir_arg(s->to, args[k], 0);
    }
    if (n.op == KIN_IR_EXTERN)
        n.name = kin_ir_add_text(s->to, kin_ir_name(s->from, i));
    kin_irn node = kin_ir_push(s->to, &n, args, kin_ir_sizes(s->from, i), kin_ir_attrs(s->from, i));
    if (node != 0 && n.strides != 0)
        kin_ir_set_strides(s->to, node, s->from->ints.at + n.strides);
    if (node == 0)
        return 0;
    kin_irn better = rewrite_once(s, node);
    if (better == 0)
        return unify(s, node);
    return better < node ? better : rewrite(s, unify(s, better));
}

/* Outputs that were made apart stay apart: what became an input, a call's result or another output is copied. */
static void
write_output(pass *s, uint32_t o)
{
    const kin_ir_out *out = &s->from->outputs.at[o];
    kin_irn node = s->map[out->node];
    kin_ir_op was = (kin_ir_op)kin_ir_at(s->from, out->node)->op, is = (kin_ir_op)kin_ir_at(s->to, node)->op;
    bool taken = is != was && (is == KIN_IR_INPUT || is == KIN_IR_RESULT);
    for (uint32_t k = 0; k < o; k++)
        taken |= s->to->outputs.at[k].node == node && s->from->outputs.at[k].node != out->node;
    if (taken)
        node = kin_ir_unary(s->to, KIN_IR_CAST, node);
    kin_ir_output_like(s->to, node, s->from, o);
}

static void
write_all(pass *s)
{
    kin_irn args_small[64], *args = args_small;
    unsigned most = 0;
    for (kin_irn i = 1; i < s->from->nodes.len; i++)
        if (kin_ir_at(s->from, i)->nargs > most)
            most = kin_ir_at(s->from, i)->nargs;
    if (most > 64 && (args = calloc(most, sizeof *args)) == NULL) {
        s->to->failed = true;
        return;
    }
    for (kin_irn i = 1; i < s->from->nodes.len && !s->to->failed; i++)
        if (s->live[i])
            s->map[i] = write_node(s, i, args);
    if (args != args_small)
        free(args);
    for (uint32_t o = 0; o < s->from->outputs.len && !s->to->failed; o++)
        write_output(s, o);
    s->to->ninputs = s->from->ninputs;
    s->to->fast_math = s->from->fast_math;
}

static kin_ir *
run_once(const kin_ir *from, bool fast_math)
{
    pass s = {.from = from, .to = kin_ir_new(), .fast_math = fast_math,
              .map = calloc(from->nodes.len, sizeof *s.map), .live = calloc(from->nodes.len, sizeof *s.live)};
    if (s.to != NULL && s.map != NULL && s.live != NULL) {
        mark_live(from, s.live);
        write_all(&s);
    } else if (s.to != NULL)
        s.to->failed = true;
    free(s.map);
    free(s.live);
    kin_table_deinit(&s.table);
    if (s.to == NULL || !s.to->failed)
        return s.to;
    kin_ir_free(s.to);
    return NULL;
}

kin_ir *
kin_ir_simplify(const kin_ir *p, bool fast_math)
{
    kin_ir *once = run_once(p, fast_math);
    kin_ir *twice = once != NULL ? run_once(once, fast_math) : NULL;
    kin_ir_free(once);
    return twice;
}
