/* Builds tensor programs. Sizes of results are computed here if they follow from the arguments. Whether the
 * arguments fit each other is checked by verify.c, so a wrong call gives a program that is refused, never a crash.
 */
#include "core/ir/ir_priv.h"

kin_ir *
kin_ir_new(void)
{
    kin_ir *p = calloc(1, sizeof *p);
    if (p == NULL)
        return NULL;
    kin_ir_node none = {0};
    kin_text_add_len(&p->texts, "", 1);
    if (kin_vec_push(&p->nodes, none) != KIN_OK || kin_vec_push(&p->ints, 0) != KIN_OK || p->texts.failed) {
        kin_ir_free(p); /* node 0, "none", is always there: who reads it finds nothing, not bad memory */
        return NULL;
    }
    return p;
}

void
kin_ir_free(kin_ir *p)
{
    if (p == NULL)
        return;
    kin_vec_deinit(&p->nodes);
    kin_vec_deinit(&p->args);
    kin_vec_deinit(&p->ints);
    kin_vec_deinit(&p->outputs);
    kin_vec_deinit(&p->updates);
    kin_text_deinit(&p->texts);
    free(p);
}

/* Callers may pass a part of p->ints itself, which moves when it grows. */
static uint32_t
add_ints(kin_ir *p, unsigned count, const int64_t *ints)
{
    uint32_t first = p->ints.len;
    p->failed |= kin_vec_append(&p->ints, ints, count) != KIN_OK;
    return first;
}

static uint32_t
add_args(kin_ir *p, unsigned count, const kin_irn *args)
{
    uint32_t first = p->args.len;
    p->failed |= kin_vec_append(&p->args, args, count) != KIN_OK;
    return first;
}

uint32_t
kin_ir_add_text(kin_ir *p, const char *text)
{
    uint32_t at = p->texts.len;
    kin_text_add_len(&p->texts, text, (uint32_t)strlen(text) + 1);
    p->failed |= p->texts.failed;
    return p->failed ? 0 : at;
}

kin_irn
kin_ir_push(kin_ir *p, const kin_ir_node *like, const kin_irn *args, const int64_t *sizes, const int64_t *attrs)
{
    if (p->failed || like->ndim > KIN_IR_MAX_DIMS) {
        p->failed = true;
        return 0;
    }
    kin_ir_node n = *like;
    n.strides = 0;
    n.sizes = add_ints(p, n.ndim, sizes);
    n.attrs = add_ints(p, n.nattrs, attrs);
    n.args = add_args(p, n.nargs, args);
    if (p->failed || kin_vec_push(&p->nodes, n) != KIN_OK) {
        p->failed = true;
        return 0;
    }
    return p->nodes.len - 1;
}

/* False, and the program fails, when an argument is missing. */
static bool
have(kin_ir *p, unsigned count, const kin_irn *args)
{
    for (unsigned i = 0; i < count; i++)
        if (args[i] == 0 || args[i] >= p->nodes.len)
            p->failed = true;
    return !p->failed;
}

/* A node with the first argument's dtype. */
static kin_irn
add_like(kin_ir *p, kin_ir_op op, unsigned nargs, const kin_irn *args, unsigned ndim, const int64_t *sizes,
         unsigned nattrs, const int64_t *attrs)
{
    if (!have(p, nargs, args) || nargs == 0 || nargs > UINT16_MAX || ndim > KIN_IR_MAX_DIMS) {
        p->failed = true;
        return 0;
    }
    kin_ir_node n = {.op = (uint8_t)op, .dtype = kin_ir_at(p, args[0])->dtype, .ndim = (uint8_t)ndim,
                     .nargs = (uint16_t)nargs, .nattrs = (uint16_t)nattrs};
    return kin_ir_push(p, &n, args, sizes, attrs);
}

kin_irn
kin_ir_input(kin_ir *p, uint32_t number, kin_dtype dtype, unsigned ndim, const int64_t *sizes)
{
    kin_ir_node n = {.op = KIN_IR_INPUT, .dtype = (uint8_t)dtype, .ndim = (uint8_t)ndim, .nattrs = 1};
    if (number >= p->ninputs)
        p->ninputs = number + 1;
    return kin_ir_push(p, &n, NULL, sizes, (int64_t[]){number});
}

void
kin_ir_set_strides(kin_ir *p, kin_irn node, const int64_t *strides)
{
    if (p->failed || !have(p, 1, &node))
        return;
    uint32_t at = add_ints(p, kin_ir_at(p, node)->ndim, strides);
    p->nodes.at[node].strides = p->nodes.at[node].ndim > 0 ? at : 0;
}

kin_irn
kin_ir_const(kin_ir *p, kin_dtype dtype, kin_scalar value, unsigned ndim, const int64_t *sizes)
{
    kin_ir_node n = {.op = KIN_IR_CONST, .dtype = (uint8_t)dtype, .ndim = (uint8_t)ndim, .value = value};
    return kin_ir_push(p, &n, NULL, sizes, NULL);
}

kin_irn
kin_ir_iota(kin_ir *p, kin_dtype dtype, unsigned dim, unsigned ndim, const int64_t *sizes)
{
    kin_ir_node n = {.op = KIN_IR_IOTA, .dtype = (uint8_t)dtype, .ndim = (uint8_t)ndim, .nattrs = 1};
    return kin_ir_push(p, &n, NULL, sizes, (int64_t[]){dim});
}

static kin_irn
add_pointwise(kin_ir *p, kin_ir_op op, unsigned nargs, const kin_irn *args, unsigned like)
{
    if (!have(p, nargs, args))
        return 0;
    const kin_ir_node *a = kin_ir_at(p, args[like]);
    kin_ir_node n = {.op = (uint8_t)op, .dtype = a->dtype, .ndim = a->ndim, .nargs = (uint16_t)nargs};
    if (kin_ir_op_class(op) == KIN_IR_CLASS_COMPARE)
        n.dtype = KIN_BOOL;
    return kin_ir_push(p, &n, args, kin_ir_sizes(p, args[like]), NULL);
}

kin_irn
kin_ir_unary(kin_ir *p, kin_ir_op op, kin_irn a)
{
    return add_pointwise(p, op, 1, &a, 0);
}

kin_irn
kin_ir_binary(kin_ir *p, kin_ir_op op, kin_irn a, kin_irn b)
{
    return add_pointwise(p, op, 2, (kin_irn[]){a, b}, 0);
}

kin_irn
kin_ir_where(kin_ir *p, kin_irn condition, kin_irn a, kin_irn b)
{
    return add_pointwise(p, KIN_IR_WHERE, 3, (kin_irn[]){condition, a, b}, 1);
}

kin_irn
kin_ir_cast(kin_ir *p, kin_irn a, kin_dtype dtype)
{
    if (!have(p, 1, &a) || kin_ir_at(p, a)->dtype == dtype)
        return a;
    kin_ir_node n = {.op = KIN_IR_CAST, .dtype = (uint8_t)dtype, .ndim = kin_ir_at(p, a)->ndim, .nargs = 1};
    return kin_ir_push(p, &n, &a, kin_ir_sizes(p, a), NULL);
}

static bool
has_sizes(const kin_ir *p, kin_irn a, unsigned ndim, const int64_t *sizes)
{
    return kin_ir_at(p, a)->ndim == ndim && (ndim == 0 || memcmp(kin_ir_sizes(p, a), sizes, ndim * sizeof *sizes) == 0);
}

kin_irn
kin_ir_expand(kin_ir *p, kin_irn a, unsigned ndim, const int64_t *sizes)
{
    if (have(p, 1, &a) && has_sizes(p, a, ndim, sizes))
        return a;
    return add_like(p, KIN_IR_EXPAND, 1, &a, ndim, sizes, 0, NULL);
}

kin_irn
kin_ir_permute(kin_ir *p, kin_irn a, const int64_t *dims)
{
    if (!have(p, 1, &a))
        return 0;
    unsigned ndim = kin_ir_at(p, a)->ndim;
    int64_t sizes[KIN_IR_MAX_DIMS];
    for (unsigned d = 0; d < ndim; d++)
        sizes[d] = dims[d] >= 0 && dims[d] < ndim ? kin_ir_sizes(p, a)[dims[d]] : 0;
    return add_like(p, KIN_IR_PERMUTE, 1, &a, ndim, sizes, ndim, dims);
}

kin_irn
kin_ir_reshape(kin_ir *p, kin_irn a, unsigned ndim, const int64_t *sizes)
{
    if (have(p, 1, &a) && has_sizes(p, a, ndim, sizes))
        return a;
    return add_like(p, KIN_IR_RESHAPE, 1, &a, ndim, sizes, 0, NULL);
}

kin_irn
kin_ir_slice(kin_ir *p, kin_irn a, const int64_t *starts, const int64_t *steps, const int64_t *sizes)
{
    if (!have(p, 1, &a))
        return 0;
    unsigned ndim = kin_ir_at(p, a)->ndim;
    int64_t attrs[2 * KIN_IR_MAX_DIMS];
    for (unsigned d = 0; d < ndim; d++) {
        attrs[d] = starts[d];
        attrs[ndim + d] = steps[d];
    }
    return add_like(p, KIN_IR_SLICE, 1, &a, ndim, sizes, 2 * ndim, attrs);
}

kin_irn
kin_ir_pad(kin_ir *p, kin_irn a, kin_irn value, const int64_t *low, const int64_t *sizes)
{
    if (!have(p, 1, &a))
        return 0;
    unsigned ndim = kin_ir_at(p, a)->ndim;
    return add_like(p, KIN_IR_PAD, 2, (kin_irn[]){a, value}, ndim, sizes, ndim, low);
}

kin_irn
kin_ir_cat(kin_ir *p, const kin_irn *parts, unsigned nparts, unsigned dim)
{
    if (nparts == 0 || !have(p, nparts, parts)) {
        p->failed = true;
        return 0;
    }
    unsigned ndim = kin_ir_at(p, parts[0])->ndim;
    int64_t sizes[KIN_IR_MAX_DIMS] = {0};
    if (ndim > 0)
        memcpy(sizes, kin_ir_sizes(p, parts[0]), ndim * sizeof *sizes);
    for (unsigned i = 1; i < nparts && dim < ndim; i++)
        if (dim < kin_ir_at(p, parts[i])->ndim)
            sizes[dim] += kin_ir_sizes(p, parts[i])[dim];
    return add_like(p, KIN_IR_CAT, nparts, parts, ndim, sizes, 1, (int64_t[]){dim});
}

/* heads: what comes before the indices. */
static kin_irn
add_indexed(kin_ir *p, kin_ir_op op, unsigned nheads, const kin_irn *heads, unsigned nindices, const kin_irn *indices,
            unsigned ndim, const int64_t *sizes, unsigned nattrs, const int64_t *attrs)
{
    kin_irn args[2 + KIN_IR_MAX_DIMS];
    if (nindices > KIN_IR_MAX_DIMS) {
        p->failed = true;
        return 0;
    }
    memcpy(args, heads, nheads * sizeof *heads);
    for (unsigned i = 0; i < nindices; i++)
        args[nheads + i] = indices[i];
    return add_like(p, op, nheads + nindices, args, ndim, sizes, nattrs, attrs);
}

kin_irn
kin_ir_index(kin_ir *p, kin_irn source, const int64_t *map, const kin_irn *indices, unsigned nindices, unsigned ndim,
             const int64_t *sizes)
{
    if (!have(p, 1, &source))
        return 0;
    return add_indexed(p, KIN_IR_INDEX, 1, &source, nindices, indices, ndim, sizes, kin_ir_at(p, source)->ndim, map);
}

kin_irn
kin_ir_scatter_into(kin_ir *p, kin_ir_scatter mode, kin_irn base, kin_irn source, const int64_t *map,
                    const kin_irn *indices, unsigned nindices)
{
    if (!have(p, 1, &base))
        return 0;
    unsigned ndim = kin_ir_at(p, base)->ndim;
    int64_t attrs[1 + KIN_IR_MAX_DIMS];
    attrs[0] = mode;
    for (unsigned d = 0; d < ndim; d++)
        attrs[1 + d] = map[d];
    return add_indexed(p, KIN_IR_SCATTER, 2, (kin_irn[]){base, source}, nindices, indices, ndim, kin_ir_sizes(p, base),
                       1 + ndim, attrs);
}

kin_irn
kin_ir_reduce(kin_ir *p, kin_ir_op op, kin_irn a, unsigned ndims, const int64_t *dims)
{
    if (!have(p, 1, &a) || ndims > KIN_IR_MAX_DIMS)
        return 0;
    unsigned ndim = kin_ir_at(p, a)->ndim;
    int64_t sizes[KIN_IR_MAX_DIMS];
    for (unsigned d = 0; d < ndim; d++)
        sizes[d] = kin_ir_sizes(p, a)[d];
    for (unsigned i = 0; i < ndims; i++)
        if (dims[i] >= 0 && dims[i] < ndim)
            sizes[dims[i]] = 1;
    kin_ir_node n = {.op = (uint8_t)op, .dtype = kin_ir_at(p, a)->dtype, .ndim = (uint8_t)ndim, .nargs = 1,
                     .nattrs = (uint16_t)ndims};
    if (op == KIN_IR_ARGMAX || op == KIN_IR_ARGMIN)
        n.dtype = KIN_I64;
    return kin_ir_push(p, &n, &a, sizes, dims);
}

kin_irn
kin_ir_scan(kin_ir *p, kin_ir_op op, kin_irn a, unsigned dim)
{
    if (!have(p, 1, &a))
        return 0;
    return add_like(p, op, 1, &a, kin_ir_at(p, a)->ndim, kin_ir_sizes(p, a), 1, (int64_t[]){dim});
}

kin_irn
kin_ir_extern(kin_ir *p, const char *name, uint32_t number, unsigned flags, const kin_irn *args, unsigned nargs)
{
    if (nargs > UINT16_MAX || !have(p, nargs, args)) {
        p->failed = true;
        return 0;
    }
    kin_ir_node n = {.op = KIN_IR_EXTERN, .nargs = (uint16_t)nargs, .nattrs = 2, .name = kin_ir_add_text(p, name)};
    return kin_ir_push(p, &n, args, NULL, (int64_t[]){number, flags});
}

kin_irn
kin_ir_result(kin_ir *p, kin_irn call, unsigned which, kin_dtype dtype, unsigned ndim, const int64_t *sizes,
              const int64_t *strides)
{
    if (!have(p, 1, &call))
        return 0;
    kin_ir_node n = {.op = KIN_IR_RESULT, .dtype = (uint8_t)dtype, .ndim = (uint8_t)ndim, .nargs = 1, .nattrs = 1};
    kin_irn node = kin_ir_push(p, &n, &call, sizes, (int64_t[]){which});
    if (strides != NULL && node != 0)
        kin_ir_set_strides(p, node, strides);
    return node;
}

kin_irn
kin_ir_copy(kin_ir *p, const kin_ir *from, kin_irn n, const kin_irn *args)
{
    kin_ir_node like = *kin_ir_at(from, n);
    if (like.name != 0)
        like.name = kin_ir_add_text(p, kin_ir_name(from, n));
    kin_irn copy = kin_ir_push(p, &like, args, kin_ir_sizes(from, n), kin_ir_attrs(from, n));
    if (kin_ir_at(from, n)->strides != 0)
        kin_ir_set_strides(p, copy, from->ints.at + kin_ir_at(from, n)->strides);
    return copy;
}

bool
kin_ir_same_sizes(const kin_ir *p, kin_irn a, kin_irn b)
{
    return kin_ir_at(p, a)->ndim == kin_ir_at(p, b)->ndim &&
           memcmp(kin_ir_sizes(p, a), kin_ir_sizes(p, b), kin_ir_at(p, a)->ndim * sizeof(int64_t)) == 0;
}

kin_irn
kin_ir_copy_mapped(kin_ir *p, const kin_ir *from, kin_irn n, const kin_irn *copies, size_t stride)
{
    unsigned nargs = kin_ir_at(from, n)->nargs;
    kin_irn small[16] = {0}, *args = nargs <= 16 ? small : malloc(nargs * sizeof *args), copy = 0;
    for (unsigned a = 0; args != NULL && a < nargs; a++)
        args[a] = *(const kin_irn *)((const char *)copies + kin_ir_arg(from, n, a) * stride);
    if (args != NULL)
        copy = kin_ir_copy(p, from, n, args);
    else
        p->failed = true;
    if (args != small)
        free(args);
    return copy;
}

void
kin_ir_output(kin_ir *p, kin_irn node, const int64_t *strides)
{
    if (!have(p, 1, &node))
        return;
    kin_ir_out out = {.node = node};
    if (strides != NULL && kin_ir_at(p, node)->ndim > 0)
        out.strides = add_ints(p, kin_ir_at(p, node)->ndim, strides);
    if (kin_vec_push(&p->outputs, out) != KIN_OK)
        p->failed = true;
}

void
kin_ir_output_into(kin_ir *p, kin_irn node, const int64_t *strides, uint32_t input)
{
    uint32_t before = p->outputs.len;
    kin_ir_output(p, node, strides);
    if (p->outputs.len > before)
        p->outputs.at[before].into = input + 1;
}

void
kin_ir_output_like(kin_ir *p, kin_irn node, const kin_ir *from, uint32_t o)
{
    const kin_ir_out *old = &from->outputs.at[o];
    uint32_t before = p->outputs.len;
    kin_ir_output(p, node, old->strides != 0 ? from->ints.at + old->strides : NULL);
    if (p->outputs.len > before)
        p->outputs.at[before].into = old->into;
}

int64_t
kin_ir_numel(const kin_ir *p, kin_irn n)
{
    int64_t count = 1;
    for (unsigned d = 0; d < kin_ir_at(p, n)->ndim; d++)
        count *= kin_ir_sizes(p, n)[d];
    return count;
}
