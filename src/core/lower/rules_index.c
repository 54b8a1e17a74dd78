/* Rules for gathering and scattering by index tensors. An index out of bounds is reported by the kernel, and eager then
 * raises its own error.
 */
#include "core/lower/lower_priv.h"

enum { MAX = KIN_IR_MAX_DIMS };

/* An index tensor as i64; 0 unless it holds i32 or i64 (u8 and b8 are masks). */
static kin_irn
index_of(low_call *c, const kin_aten_arg *a)
{
    kin_irn x = low_read(c, a);
    if (x == 0 || (low_dtype_of(c, x) != KIN_I64 && low_dtype_of(c, x) != KIN_I32))
        return 0;
    return kin_ir_cast(c->ir, x, KIN_I64);
}

/* Negative ones count from the end. */
static kin_irn
wrap(low_call *c, kin_irn index, int64_t size)
{
    kin_irn from_end = low_bi(c, KIN_IR_ADD, index, low_integer(c, KIN_I64, size, low_ndim_of(c, index), low_sizes_of(c, index)));
    return kin_ir_where(c->ir, low_compare(c, KIN_IR_LT, index, 0), from_end, index);
}

static void
map_plain(int64_t *map, unsigned ndim)
{
    for (unsigned d = 0; d < ndim; d++)
        map[d] = d;
}

/* A one-dimensional index along dim `dim` of a value with these sizes, which may be those of a node: they move when the next one is made. */
static kin_irn
spread(low_call *c, kin_irn index, unsigned dim, unsigned ndim, const int64_t *sizes)
{
    int64_t ones[MAX], full[MAX];
    for (unsigned d = 0; d < ndim; d++) {
        full[d] = sizes[d];
        ones[d] = d == dim ? sizes[d] : 1;
    }
    if (kin_ir_numel(c->ir, index) != full[dim])
        return 0;
    return kin_ir_expand(c->ir, kin_ir_reshape(c->ir, index, ndim, ones), ndim, full);
}

/* One dim of x is read at places that the index gives; spread_out: the index lies along that dim, else it has the result's sizes. */
static bool
read_along(low_call *c, bool spread_out)
{
    kin_irn x = low_read(c, low_arg(c, 0, "self")), index = index_of(c, low_arg(c, 2, "index"));
    if (x == 0 || index == 0 || low_ndim_of(c, x) == 0 || low_ndim(c, 0) != low_ndim_of(c, x) ||
        (!spread_out && low_ndim_of(c, index) != low_ndim(c, 0)))
        return false;
    int dim = low_dim(low_int_or(c, 1, "dim", 0), low_ndim_of(c, x));
    int64_t map[MAX];
    map_plain(map, low_ndim_of(c, x));
    if (dim < 0)
        return false;
    map[dim] = -1;
    if (spread_out)
        index = spread(c, index, (unsigned)dim, low_ndim(c, 0), low_sizes(c, 0));
    return index != 0 && low_done(c, 0, kin_ir_index(c->ir, x, map, &index, 1, low_ndim(c, 0), low_sizes(c, 0)));
}

bool
rule_index_select(low_call *c, int row)
{
    return read_along(c, true);
}

bool
rule_gather(low_call *c, int row)
{
    return read_along(c, false);
}

/* The index of each row, for all of its elements: one dim more at the end, of this size. */
static kin_irn
along_rows(low_call *c, kin_irn index, int64_t size)
{
    unsigned ndim = low_ndim_of(c, index) + 1;
    int64_t ones[MAX], full[MAX];
    for (unsigned d = 0; d < ndim; d++) {
        full[d] = d + 1 < ndim ? low_sizes_of(c, index)[d] : size;
        ones[d] = d + 1 < ndim ? full[d] : 1;
    }
    return kin_ir_expand(c->ir, kin_ir_reshape(c->ir, index, ndim, ones), ndim, full);
}

bool
rule_embedding(low_call *c, int row)
{
    kin_irn table = low_read(c, low_arg(c, 0, "weight")), index = index_of(c, low_arg(c, 1, "indices"));
    if (table == 0 || index == 0 || low_ndim_of(c, table) != 2 || low_ndim(c, 0) != low_ndim_of(c, index) + 1)
        return false;
    unsigned ndim = low_ndim(c, 0);
    int64_t map[2] = {-1, ndim - 1};
    index = along_rows(c, index, low_sizes(c, 0)[ndim - 1]);
    return low_done(c, 0, kin_ir_index(c->ir, table, map, &index, 1, ndim, low_sizes(c, 0)));
}

/* (g, indices, number of rows, padding, by frequency): the rows of g are added to those of zeros, but for what was read at the padding index. */
bool
rule_embedding_backward(low_call *c, int row)
{
    kin_irn g = low_read(c, low_arg(c, 0, "grad_output")), index = index_of(c, low_arg(c, 1, "indices"));
    int64_t padding = low_int_or(c, 3, "padding_idx", -1);
    kin_dtype dtype = low_dtype(c, 0);
    if (g == 0 || index == 0 || (dtype != KIN_F32 && dtype != KIN_F64) || low_dtype_of(c, g) != dtype || low_ndim(c, 0) != 2 ||
        low_ndim_of(c, g) != low_ndim_of(c, index) + 1 || low_int_or(c, 4, "scale_grad_by_freq", 0))
        return false;
    unsigned ndim = low_ndim_of(c, g);
    int64_t map[2] = {-1, ndim - 1};
    index = along_rows(c, index, low_sizes_of(c, g)[ndim - 1]);
    if (padding >= 0)
        g = kin_ir_where(c->ir, low_compare(c, KIN_IR_NE, index, (double)padding), g, low_like(c, g, 0));
    return low_done(c, 0, kin_ir_scatter_into(c->ir, KIN_IR_SCATTER_ADD, low_number(c, dtype, 0, 2, low_sizes(c, 0)), g, map, &index, 1));
}

/* -- x[i, :, j] ----------------------------------------------------------------------------------------------------- */

/* Where each dim of x lies in the indexed value, whose sizes these are, and the indices expanded to them. */
typedef struct {
    unsigned ndim;
    int64_t sizes[MAX], map[MAX];
    kin_irn indices[MAX];
    unsigned nindices;
} places;

/* The common sizes of the index tensors, aligned at the right. */
static bool
broadcast(low_call *c, const kin_irn *indices, unsigned count, unsigned *ndim, int64_t *sizes)
{
    *ndim = 0;
    for (unsigned i = 0; i < count; i++)
        if (low_ndim_of(c, indices[i]) > *ndim)
            *ndim = low_ndim_of(c, indices[i]);
    for (unsigned d = 0; d < *ndim; d++)
        sizes[d] = 1;
    for (unsigned i = 0; i < count; i++) {
        unsigned from = *ndim - low_ndim_of(c, indices[i]);
        for (unsigned d = from; d < *ndim; d++) {
            int64_t size = low_sizes_of(c, indices[i])[d - from];
            if (size != 1 && sizes[d] != 1 && sizes[d] != size)
                return false;
            if (size != 1)
                sizes[d] = size;
        }
    }
    return true;
}

/* `at`: where the dims of the indices stand in the indexed value; an index gets ones behind them, then is expanded. */
static void
align_indices(low_call *c, places *p, unsigned at, unsigned ndim)
{
    for (unsigned i = 0; i < p->nindices; i++) {
        int64_t ones[MAX];
        unsigned own = low_ndim_of(c, p->indices[i]), from = at + ndim - own;
        for (unsigned d = 0; d < p->ndim; d++)
            ones[d] = d >= from && d < at + ndim ? low_sizes_of(c, p->indices[i])[d - from] : 1;
        kin_irn aligned = kin_ir_reshape(c->ir, p->indices[i], p->ndim, ones);
        p->indices[i] = kin_ir_expand(c->ir, aligned, p->ndim, p->sizes);
    }
}

/* Index tensors next to each other keep their place; otherwise their dims come first. */
static bool
find_places(low_call *c, kin_irn x, const kin_aten_arg *list, places *p)
{
    unsigned ndim = low_ndim_of(c, x), common, first = MAX, last = 0, out = 0;
    int64_t sizes[MAX];
    *p = (places){0};
    if (list == NULL || list->kind != KIN_ATEN_LIST || list->list.count > ndim)
        return false;
    for (unsigned d = 0; d < ndim; d++) {
        const kin_aten_arg *a = d < list->list.count ? low_item(c, list, d) : NULL;
        p->map[d] = 0;
        if (!low_is_value(a))
            continue;
        kin_irn index = index_of(c, a);
        if (index == 0)
            return false;
        first = first == MAX ? d : first;
        last = d;
        p->indices[p->nindices++] = wrap(c, index, low_sizes_of(c, x)[d]);
        p->map[d] = -(int64_t)p->nindices;
    }
    if (p->nindices == 0 || !broadcast(c, p->indices, p->nindices, &common, sizes) || ndim - p->nindices + common > MAX)
        return false;
    unsigned at = last - first + 1 == p->nindices ? first : 0;
    for (unsigned d = 0; d <= ndim; d++) {
        if (out == at)
            for (unsigned k = 0; k < common; k++)
                p->sizes[out++] = sizes[k];
        if (out == at + common)
            at = MAX * 2; /* placed */
        if (d < ndim && p->map[d] >= 0) {
            p->map[d] = out;
            p->sizes[out++] = low_sizes_of(c, x)[d];
        }
    }
    p->ndim = out;
    align_indices(c, p, last - first + 1 == p->nindices ? first : 0, common);
    return true;
}

bool
rule_index(low_call *c, int row)
{
    kin_irn x = low_read(c, low_arg(c, 0, "self"));
    places p;
    if (x == 0 || !find_places(c, x, low_arg(c, 1, "indices"), &p))
        return false;
    return low_done(c, 0, kin_ir_index(c->ir, x, p.map, p.indices, p.nindices, p.ndim, p.sizes));
}

static bool
fits(low_call *c, kin_irn a, unsigned ndim, const int64_t *sizes)
{
    if (low_ndim_of(c, a) > ndim)
        return false;
    for (unsigned d = 0, from = ndim - low_ndim_of(c, a); d < low_ndim_of(c, a); d++)
        if (low_sizes_of(c, a)[d] != 1 && low_sizes_of(c, a)[d] != sizes[from + d])
            return false;
    return true;
}

/* What many elements are added to is kept in float32 until all are there: rounded after each, a sum in half precision would lose most of them. */
static kin_irn
put(low_call *c, kin_ir_scatter mode, kin_irn x, kin_irn part, const int64_t *map, const kin_irn *indices, unsigned nindices)
{
    kin_dtype dtype = low_dtype_of(c, x);
    bool sums = (mode == KIN_IR_SCATTER_ADD || mode == KIN_IR_SCATTER_MUL) && (dtype == KIN_BF16 || dtype == KIN_F16);
    if (!sums)
        return kin_ir_scatter_into(c->ir, mode, x, part, map, indices, nindices);
    x = kin_ir_cast(c->ir, x, KIN_F32);
    return kin_ir_cast(c->ir, kin_ir_scatter_into(c->ir, mode, x, kin_ir_cast(c->ir, part, KIN_F32), map, indices, nindices), dtype);
}

bool
rule_index_put(low_call *c, int row)
{
    kin_irn x = low_read(c, low_arg(c, 0, "self")), part = low_read(c, low_arg(c, 2, "values"));
    places p;
    if (x == 0 || part == 0 || !find_places(c, x, low_arg(c, 1, "indices"), &p) || !fits(c, part, p.ndim, p.sizes))
        return false;
    part = kin_ir_expand(c->ir, kin_ir_cast(c->ir, part, low_dtype_of(c, x)), p.ndim, p.sizes);
    kin_ir_scatter mode = low_int_or(c, 3, "accumulate", 0) ? KIN_IR_SCATTER_ADD : KIN_IR_SCATTER_SET;
    return low_done(c, 0, put(c, mode, x, part, p.map, p.indices, p.nindices));
}

/* -- scatter along one dim ---------------------------------------------------------------------------------------- */

/* The first elements of a, as many as the index has. */
static kin_irn
corner(low_call *c, kin_irn a, kin_irn index)
{
    int64_t starts[MAX] = {0}, steps[MAX];
    for (unsigned d = 0; d < low_ndim_of(c, index); d++) {
        steps[d] = 1;
        if (low_sizes_of(c, index)[d] > low_sizes_of(c, a)[d])
            return 0;
    }
    return kin_ir_slice(c->ir, a, starts, steps, low_sizes_of(c, index));
}

static bool
scatter(low_call *c, kin_ir_scatter mode)
{
    kin_irn x = low_read(c, low_arg(c, 0, "self")), index = index_of(c, low_arg(c, 2, "index")), part;
    const kin_aten_arg *source = low_arg(c, 3, low_is_number(low_arg(c, 3, "value")) ? "value" : "src");
    if (x == 0 || index == 0 || low_ndim_of(c, x) == 0 || low_ndim_of(c, index) != low_ndim_of(c, x) || source == NULL)
        return false;
    int dim = low_dim(low_int_or(c, 1, "dim", 0), low_ndim_of(c, x));
    int64_t map[MAX];
    map_plain(map, low_ndim_of(c, x));
    for (unsigned d = 0; d < low_ndim_of(c, x); d++)
        if (dim < 0 || ((int)d != dim && low_sizes_of(c, index)[d] > low_sizes_of(c, x)[d]))
            return false;
    map[dim] = -1;
    if (low_is_number(source))
        part = low_scalar(c, source, low_dtype_of(c, x), low_ndim_of(c, index), low_sizes_of(c, index));
    else {
        part = low_read(c, source);
        if (part == 0 || low_ndim_of(c, part) != low_ndim_of(c, index) || (part = corner(c, part, index)) == 0)
            return false;
        part = kin_ir_cast(c->ir, part, low_dtype_of(c, x));
    }
    return low_done(c, 0, put(c, mode, x, part, map, &index, 1));
}

bool
rule_scatter(low_call *c, int mode)
{
    return scatter(c, (kin_ir_scatter)mode);
}

bool
rule_scatter_reduce(low_call *c, int row)
{
    static const struct { const char *name; kin_ir_scatter mode; } modes[] = {
        {"sum", KIN_IR_SCATTER_ADD}, {"prod", KIN_IR_SCATTER_MUL}, {"amax", KIN_IR_SCATTER_MAX}, {"amin", KIN_IR_SCATTER_MIN}};
    const char *name = low_str(c, low_arg(c, 4, "reduce"));
    if (!low_int_or(c, 5, "include_self", 1) || low_dtype(c, 0) == KIN_BOOL)
        return false;
    for (unsigned i = 0; i < sizeof modes / sizeof *modes; i++)
        if (strcmp(modes[i].name, name) == 0)
            return scatter(c, modes[i].mode);
    return false;
}

/* index_add (row: KIN_IR_SCATTER_ADD), index_copy (SET): a one-dimensional index along dim. */
bool
rule_index_add(low_call *c, int mode)
{
    kin_irn x = low_read(c, low_arg(c, 0, "self")), index = index_of(c, low_arg(c, 2, "index"));
    kin_irn part = low_read(c, low_arg(c, 3, "source"));
    const kin_aten_arg *alpha = low_arg(c, 4, "alpha");
    if (x == 0 || index == 0 || part == 0 || low_ndim_of(c, x) == 0 || low_ndim_of(c, part) != low_ndim_of(c, x)
        || low_dtype_of(c, part) != low_dtype_of(c, x) || low_dtype_of(c, x) == KIN_BOOL)
        return false;
    int dim = low_dim(low_int_or(c, 1, "dim", 0), low_ndim_of(c, x));
    int64_t map[MAX];
    map_plain(map, low_ndim_of(c, x));
    for (unsigned d = 0; d < low_ndim_of(c, x); d++)
        if (dim < 0 || ((int)d != dim && low_sizes_of(c, part)[d] != low_sizes_of(c, x)[d]))
            return false;
    map[dim] = -1;
    index = spread(c, index, (unsigned)dim, low_ndim_of(c, part), low_sizes_of(c, part));
    if (alpha != NULL && mode == KIN_IR_SCATTER_ADD)
        part = low_bi(c, KIN_IR_MUL, part, low_scalar(c, alpha, low_dtype_of(c, x), low_ndim_of(c, part), low_sizes_of(c, part)));
    return index != 0 && low_done(c, 0, put(c, (kin_ir_scatter)mode, x, part, map, &index, 1));
}

bool
rule_index_fill(low_call *c, int row)
{
    kin_irn x = low_read(c, low_arg(c, 0, "self")), index = index_of(c, low_arg(c, 2, "index"));
    const kin_aten_arg *value = low_arg(c, 3, "value");
    if (x == 0 || index == 0 || low_ndim_of(c, x) == 0 || low_ndim_of(c, index) != 1 || !low_is_number(value))
        return false;
    int dim = low_dim(low_int_or(c, 1, "dim", 0), low_ndim_of(c, x));
    int64_t map[MAX], sizes[MAX];
    map_plain(map, low_ndim_of(c, x));
    if (dim < 0)
        return false;
    memcpy(sizes, low_sizes_of(c, x), low_ndim_of(c, x) * sizeof *sizes);
    int64_t size = sizes[dim];
    sizes[dim] = low_sizes_of(c, index)[0];
    map[dim] = -1;
    index = spread(c, wrap(c, index, size), (unsigned)dim, low_ndim_of(c, x), sizes);
    kin_irn part = low_scalar(c, value, low_dtype_of(c, x), low_ndim_of(c, x), sizes);
    return index != 0 && low_done(c, 0, kin_ir_scatter_into(c->ir, KIN_IR_SCATTER_SET, x, part, map, &index, 1));
}

/* (self, target, weight, reduction, ignore_index): minus what stands at the target; places to ignore count nothing. A target
 * out of bounds is reported, as those to ignore are looked up at 0. */
bool
rule_nll_loss(low_call *c, int row)
{
    kin_irn x = low_read(c, low_arg(c, 0, "self")), target = low_read(c, low_arg(c, 1, "target"));
    int64_t reduction = low_int_or(c, 3, "reduction", 1), ignored = low_int_or(c, 4, "ignore_index", -100);
    kin_dtype dtype = x == 0 ? KIN_BOOL : low_dtype_of(c, x);
    if (x == 0 || target == 0 || low_arg(c, 2, "weight") != NULL || low_ndim_of(c, x) != 2 || low_ndim_of(c, target) != 1
        || low_dtype_of(c, target) != KIN_I64 || (dtype != KIN_F32 && dtype != KIN_F64) || kin_ir_numel(c->ir, x) == 0
        || low_sizes_of(c, target)[0] != low_sizes_of(c, x)[0] || (reduction == 0 && low_wanted(c, 1)))
        return false;
    int64_t sizes[1] = {low_sizes_of(c, target)[0]};
    kin_irn counts = low_bi(c, KIN_IR_NE, target, low_integer(c, KIN_I64, ignored, 1, sizes));
    kin_irn at = kin_ir_where(c->ir, counts, target, low_like(c, target, 0));
    kin_irn loss = low_un(c, KIN_IR_NEG, kin_ir_index(c->ir, x, (int64_t[]){0, -1}, &at, 1, 1, sizes));
    loss = kin_ir_where(c->ir, counts, loss, low_like(c, loss, 0));
    if (reduction == 0)
        return low_done(c, 0, loss);
    kin_irn sum = kin_ir_reduce(c->ir, KIN_IR_REDUCE_SUM, loss, 1, (int64_t[]){0});
    kin_irn total = kin_ir_reduce(c->ir, KIN_IR_REDUCE_SUM, kin_ir_cast(c->ir, counts, dtype), 1, (int64_t[]){0});
    if (reduction == 1)
        sum = low_bi(c, KIN_IR_DIV, sum, total);
    return low_done(c, 0, low_reshape_like(c, sum, 0)) && (!low_wanted(c, 1) || low_done(c, 1, low_reshape_like(c, total, 1)));
}
