/* Rules for operators that rearrange elements: views, joining, padding. */
#include "core/lower/lower_priv.h"

enum { MAX = KIN_IR_MAX_DIMS };

static kin_irn
self(low_call *c)
{
    return low_read(c, low_arg(c, 0, "self"));
}

/* Everything that keeps the row-major order of elements: the sizes are those of the result. */
bool
rule_reshape(low_call *c, int row)
{
    return low_done(c, 0, low_reshape_like(c, self(c), 0));
}

bool
rule_expand(low_call *c, int row)
{
    kin_irn x = self(c);
    if (x == 0 || low_ndim_of(c, x) > low_ndim(c, 0))
        return false;
    return low_done(c, 0, kin_ir_expand(c->ir, x, low_ndim(c, 0), low_sizes(c, 0)));
}

bool
rule_permute(low_call *c, int row)
{
    kin_irn x = self(c);
    int64_t dims[MAX];
    if (x == 0 || low_ints(c, low_arg(c, 1, "dims"), dims) != (int)low_ndim_of(c, x))
        return false;
    for (unsigned d = 0; d < low_ndim_of(c, x); d++)
        dims[d] = low_dim(dims[d], low_ndim_of(c, x));
    return low_done(c, 0, kin_ir_permute(c->ir, x, dims));
}

/* transpose.int, and t, which is transpose(0, 1) */
bool
rule_transpose(low_call *c, int is_t)
{
    kin_irn x = self(c);
    if (x == 0)
        return false;
    unsigned ndim = low_ndim_of(c, x);
    if (ndim < 2)
        return low_done(c, 0, x);
    int a = is_t ? 0 : low_dim(low_int_or(c, 1, "dim0", 0), ndim), b = is_t ? 1 : low_dim(low_int_or(c, 2, "dim1", 0), ndim);
    int64_t dims[MAX];
    if (a < 0 || b < 0)
        return false;
    for (unsigned d = 0; d < ndim; d++)
        dims[d] = (int)d == a ? b : (int)d == b ? a : (int)d;
    return low_done(c, 0, kin_ir_permute(c->ir, x, dims));
}

/* Along one dim; the others as they are. Nothing when it lies outside. */
static kin_irn
take(low_call *c, kin_irn x, unsigned dim, int64_t start, int64_t step, int64_t size)
{
    int64_t starts[MAX] = {0}, steps[MAX], sizes[MAX];
    unsigned ndim = low_ndim_of(c, x);
    if (dim >= ndim || size < 0 || start < 0 || (size > 0 && start + (size - 1) * step >= low_sizes_of(c, x)[dim]))
        return 0;
    for (unsigned d = 0; d < ndim; d++) {
        steps[d] = 1;
        sizes[d] = low_sizes_of(c, x)[d];
    }
    starts[dim] = start;
    steps[dim] = step;
    sizes[dim] = size;
    return kin_ir_slice(c->ir, x, starts, steps, sizes);
}

static int64_t
clamp_index(int64_t at, int64_t size)
{
    if (at < 0)
        at += size;
    return at < 0 ? 0 : at > size ? size : at;
}

bool
rule_slice(low_call *c, int row)
{
    kin_irn x = self(c);
    if (x == 0)
        return false;
    int dim = low_dim(low_int_or(c, 1, "dim", 0), low_ndim_of(c, x));
    int64_t step = low_int_or(c, 4, "step", 1);
    if (dim < 0 || low_ndim_of(c, x) == 0 || step < 1)
        return false;
    int64_t start = clamp_index(low_int_or(c, 2, "start", 0), low_sizes_of(c, x)[dim]);
    return low_done(c, 0, take(c, x, (unsigned)dim, start, step, low_sizes(c, 0)[dim]));
}

bool
rule_select(low_call *c, int row)
{
    kin_irn x = self(c);
    if (x == 0 || low_ndim_of(c, x) == 0)
        return false;
    int dim = low_dim(low_int_or(c, 1, "dim", 0), low_ndim_of(c, x));
    int64_t at = low_int_or(c, 2, "index", INT64_MIN);
    if (dim < 0 || at == INT64_MIN)
        return false;
    if (at < 0)
        at += low_sizes_of(c, x)[dim];
    return low_done(c, 0, low_reshape_like(c, take(c, x, (unsigned)dim, at, 1, 1), 0));
}

/* split, split_with_sizes, chunk: pieces in order, as large as the results say. */
bool
rule_split(low_call *c, int row)
{
    kin_irn x = self(c);
    if (x == 0 || low_ndim_of(c, x) == 0)
        return false;
    int dim = low_dim(low_int_or(c, 2, "dim", 0), low_ndim_of(c, x));
    int64_t start = 0;
    for (unsigned k = 0; k < c->call->nresults; k++) {
        int64_t size = dim >= 0 && low_ndim(c, k) == low_ndim_of(c, x) ? low_sizes(c, k)[dim] : -1;
        if (size < 0 || !low_done(c, k, take(c, x, (unsigned)dim, start, 1, size)))
            return false;
        start += size;
    }
    return true;
}

bool
rule_unbind(low_call *c, int row)
{
    kin_irn x = self(c);
    if (x == 0 || low_ndim_of(c, x) == 0)
        return false;
    int dim = low_dim(low_int_or(c, 1, "dim", 0), low_ndim_of(c, x));
    for (unsigned k = 0; k < c->call->nresults; k++)
        if (dim < 0 || !low_done(c, k, low_reshape_like(c, take(c, x, (unsigned)dim, k, 1, 1), k)))
            return false;
    return true;
}

/* The iota of a dim of result 0, plus a number. */
static kin_irn
walk(low_call *c, unsigned dim, int64_t factor, int64_t start)
{
    kin_irn at = kin_ir_iota(c->ir, KIN_I64, dim, low_ndim(c, 0), low_sizes(c, 0));
    if (factor != 1)
        at = low_bi(c, KIN_IR_MUL, at, low_integer(c, KIN_I64, factor, low_ndim(c, 0), low_sizes(c, 0)));
    if (start != 0)
        at = low_bi(c, KIN_IR_ADD, at, low_integer(c, KIN_I64, start, low_ndim(c, 0), low_sizes(c, 0)));
    return at;
}

bool
rule_diagonal(low_call *c, int row)
{
    kin_irn x = self(c);
    if (x == 0 || low_ndim_of(c, x) < 2)
        return false;
    unsigned ndim = low_ndim_of(c, x), out = 0;
    int64_t offset = low_int_or(c, 1, "offset", 0), map[MAX];
    int a = low_dim(low_int_or(c, 2, "dim1", 0), ndim), b = low_dim(low_int_or(c, 3, "dim2", 1), ndim);
    if (a < 0 || b < 0 || a == b || low_ndim(c, 0) != ndim - 1 || low_sizes(c, 0)[ndim - 2] == 0)
        return false;
    for (unsigned d = 0; d < ndim; d++)
        map[d] = (int)d == a || (int)d == b ? (int)ndim - 2 : (int)out++;
    kin_irn shifted = walk(c, ndim - 2, 1, offset < 0 ? -offset : offset);
    if (offset != 0)
        map[offset > 0 ? b : a] = -1;
    return low_done(c, 0, kin_ir_index(c->ir, x, map, &shifted, offset != 0, ndim - 1, low_sizes(c, 0)));
}

/* Windows along a dim, which become a last dim of their own. */
bool
rule_unfold(low_call *c, int row)
{
    kin_irn x = self(c);
    if (x == 0 || low_ndim_of(c, x) == 0 || low_ndim(c, 0) != low_ndim_of(c, x) + 1)
        return false;
    unsigned ndim = low_ndim_of(c, x);
    int dim = low_dim(low_int_or(c, 1, "dimension", 0), ndim);
    int64_t step = low_int_or(c, 3, "step", 1), map[MAX];
    if (dim < 0)
        return false;
    for (unsigned d = 0; d < ndim; d++)
        map[d] = d;
    map[dim] = -1;
    kin_irn at = low_bi(c, KIN_IR_ADD, walk(c, (unsigned)dim, step, 0), walk(c, ndim, 1, 0));
    return low_done(c, 0, kin_ir_index(c->ir, x, map, &at, 1, ndim + 1, low_sizes(c, 0)));
}

bool
rule_flip(low_call *c, int row)
{
    kin_irn x = self(c);
    int64_t dims[MAX], starts[MAX] = {0}, steps[MAX];
    int count = low_ints(c, low_arg(c, 1, "dims"), dims);
    if (x == 0 || count < 0)
        return false;
    for (unsigned d = 0; d < low_ndim_of(c, x); d++)
        steps[d] = 1;
    for (int k = 0; k < count && low_ndim_of(c, x) > 0; k++) {
        int d = low_dim(dims[k], low_ndim_of(c, x));
        if (d < 0)
            return false;
        starts[d] = low_sizes_of(c, x)[d] > 0 ? low_sizes_of(c, x)[d] - 1 : 0;
        steps[d] = -1;
    }
    return low_done(c, 0, kin_ir_slice(c->ir, x, starts, steps, low_sizes_of(c, x)));
}

bool
rule_roll(low_call *c, int row)
{
    kin_irn x = self(c);
    int64_t shifts[MAX], dims[MAX];
    int count = low_ints(c, low_arg(c, 1, "shifts"), shifts), ndims = low_ints(c, low_arg(c, 2, "dims"), dims);
    if (x == 0 || count < 1)
        return false;
    if (ndims <= 0) { /* of all elements in row-major order */
        ndims = 1;
        dims[0] = 0;
        x = kin_ir_reshape(c->ir, x, 1, (int64_t[]){kin_ir_numel(c->ir, x)});
    }
    for (int k = 0; k < count && count == ndims; k++) {
        int d = low_dim(dims[k], low_ndim_of(c, x));
        int64_t size = d >= 0 ? low_sizes_of(c, x)[d] : 0, shift = size ? (shifts[k] % size + size) % size : 0;
        if (d < 0)
            return false;
        if (shift == 0)
            continue;
        kin_irn parts[2] = {take(c, x, (unsigned)d, size - shift, 1, shift), take(c, x, (unsigned)d, 0, 1, size - shift)};
        x = kin_ir_cat(c->ir, parts, 2, (unsigned)d);
    }
    return count == ndims && low_done(c, 0, low_reshape_like(c, x, 0));
}

/* Each dim doubled to (repeat, size), then merged. */
bool
rule_repeat(low_call *c, int row)
{
    kin_irn x = self(c);
    int64_t repeats[MAX], ones[MAX], full[MAX];
    int count = low_ints(c, low_arg(c, 1, "repeats"), repeats);
    if (x == 0 || count < (int)low_ndim_of(c, x) || 2 * count > MAX)
        return false;
    unsigned more = (unsigned)count - low_ndim_of(c, x);
    for (unsigned d = 0; d < (unsigned)count; d++) {
        int64_t size = d < more ? 1 : low_sizes_of(c, x)[d - more];
        if (repeats[d] < 0)
            return false;
        ones[2 * d] = 1;
        full[2 * d] = repeats[d];
        ones[2 * d + 1] = full[2 * d + 1] = size;
    }
    x = kin_ir_reshape(c->ir, x, 2 * (unsigned)count, ones);
    x = kin_ir_expand(c->ir, x, 2 * (unsigned)count, full);
    return low_done(c, 0, low_reshape_like(c, x, 0));
}

/* -- joining ------------------------------------------------------------------------------------------------------ */

/* cat (row 0) and stack (row 1) */
bool
rule_cat(low_call *c, int is_stack)
{
    const kin_aten_arg *list = low_arg(c, 0, "tensors");
    unsigned ndim = low_ndim(c, 0), count = 0;
    int dim = low_dim(low_int_or(c, 1, "dim", 0), ndim);
    if (list == NULL || list->kind != KIN_ATEN_LIST || dim < 0 || ndim == 0)
        return false;
    kin_irn *parts = calloc(list->list.count + 1, sizeof *parts);
    bool good = parts != NULL;
    for (unsigned i = 0; i < list->list.count && good; i++) {
        kin_irn x = low_read(c, low_item(c, list, i));
        good = x != 0;
        if (good && !is_stack && ndim > 1 && low_ndim_of(c, x) == 1 && low_sizes_of(c, x)[0] == 0)
            continue; /* an old rule: such parts are ignored, whatever the others' sizes */
        if (good && is_stack) {
            int64_t sizes[MAX];
            memcpy(sizes, low_sizes(c, 0), ndim * sizeof *sizes);
            sizes[dim] = 1;
            x = kin_ir_reshape(c->ir, x, ndim, sizes);
        }
        good = good && low_ndim_of(c, x) == ndim;
        if (good)
            parts[count++] = kin_ir_cast(c->ir, x, low_dtype(c, 0));
    }
    good = good && count > 0 && low_done(c, 0, count == 1 ? parts[0] : kin_ir_cat(c->ir, parts, count, (unsigned)dim));
    free(parts);
    return good;
}

bool
rule_pad(low_call *c, int row)
{
    kin_irn x = self(c);
    int64_t pads[MAX], low_pads[MAX] = {0};
    int count = low_ints(c, low_arg(c, 1, "pad"), pads);
    if (x == 0 || count < 0 || count % 2 || count / 2 > (int)low_ndim_of(c, x))
        return false;
    for (int k = 0; k < count / 2; k++)
        low_pads[low_ndim_of(c, x) - 1 - (unsigned)k] = pads[2 * k];
    const kin_aten_arg *number = low_arg(c, 2, "value");
    kin_irn value = number != NULL && low_is_number(number) ? low_scalar(c, number, low_dtype_of(c, x), 0, NULL)
                                                            : low_number(c, low_dtype_of(c, x), 0, 0, NULL);
    if (low_ndim(c, 0) != low_ndim_of(c, x))
        return false;
    return low_done(c, 0, kin_ir_pad(c->ir, x, value, low_pads, low_sizes(c, 0)));
}

/* tril, triu: elements on one side of a diagonal, zero elsewhere */
bool
rule_triangle(low_call *c, int is_upper)
{
    kin_irn x = self(c);
    unsigned ndim = low_ndim(c, 0);
    if (x == 0 || ndim < 2)
        return false;
    kin_irn line = walk(c, ndim - 2, 1, low_int_or(c, 1, "diagonal", 0)), column = walk(c, ndim - 1, 1, 0);
    kin_irn keep = low_bi(c, is_upper ? KIN_IR_GE : KIN_IR_LE, column, line);
    return low_done(c, 0, kin_ir_where(c->ir, keep, x, low_like(c, x, 0)));
}

/* self with src in place of a slice (row 0) or of one index (row 1) */
bool
rule_put_slice(low_call *c, int is_select)
{
    kin_irn x = self(c), part = low_read(c, low_arg(c, 1, "src"));
    if (x == 0 || part == 0 || low_ndim_of(c, x) == 0)
        return false;
    int dim = low_dim(low_int_or(c, 2, "dim", 0), low_ndim_of(c, x));
    int64_t step = is_select ? 1 : low_int_or(c, 5, "step", 1);
    if (dim < 0 || step != 1)
        return false;
    int64_t size = low_sizes_of(c, x)[dim], start = low_int_or(c, 3, is_select ? "index" : "start", 0), count = 1;
    start = is_select && start < 0 ? start + size : clamp_index(start, size);
    if (!is_select) {
        int64_t end = clamp_index(low_int_or(c, 4, "end", INT64_MAX), size);
        count = end > start ? end - start : 0;
    }
    int64_t sizes[MAX];
    memcpy(sizes, low_sizes_of(c, x), low_ndim_of(c, x) * sizeof *sizes);
    sizes[dim] = count;
    part = kin_ir_cast(c->ir, part, low_dtype_of(c, x));
    part = is_select ? kin_ir_reshape(c->ir, part, low_ndim_of(c, x), sizes) : kin_ir_expand(c->ir, part, low_ndim_of(c, x), sizes);
    kin_irn parts[3] = {take(c, x, (unsigned)dim, 0, 1, start), part,
                        take(c, x, (unsigned)dim, start + count, 1, size - start - count)};
    return parts[0] && parts[2] && low_done(c, 0, kin_ir_cat(c->ir, parts, 3, (unsigned)dim));
}

/* -- channels and pixels ------------------------------------------------------------------------------------------ */

/* [.., c * r * r, h, w] -> [.., c, h * r, w * r] (row 0), and back (row 1) */
bool
rule_pixel_shuffle(low_call *c, int back)
{
    kin_irn x = self(c);
    int64_t r = low_int_or(c, 1, back ? "downscale_factor" : "upscale_factor", 0), sizes[MAX], dims[MAX];
    unsigned ndim = low_ndim(c, 0), lead = ndim - 3;
    if (x == 0 || r < 1 || ndim < 3 || ndim + 2 > MAX || low_ndim_of(c, x) != ndim)
        return false;
    const int64_t *small = back ? low_sizes(c, 0) : low_sizes_of(c, x); /* channels, height, width on the fine side of c */
    int64_t channels = small[lead] / (r * r), high = small[lead + 1], wide = small[lead + 2];
    for (unsigned d = 0; d < lead; d++) {
        sizes[d] = small[d];
        dims[d] = d;
    }
    const int64_t apart[] = {channels, r, r, high, wide}, joined[] = {channels, high, r, wide, r};
    const int to_joined[] = {0, 3, 1, 4, 2}, to_apart[] = {0, 2, 4, 1, 3};
    for (unsigned k = 0; k < 5; k++) {
        sizes[lead + k] = back ? joined[k] : apart[k];
        dims[lead + k] = lead + (unsigned)(back ? to_apart[k] : to_joined[k]);
    }
    if (channels * r * r * high * wide != small[lead] * high * wide)
        return false;
    x = kin_ir_permute(c->ir, kin_ir_reshape(c->ir, x, ndim + 2, sizes), dims);
    return low_done(c, 0, low_reshape_like(c, x, 0));
}

/* Channels in groups, the two exchanged. */
bool
rule_channel_shuffle(low_call *c, int row)
{
    kin_irn x = self(c);
    int64_t groups = low_int_or(c, 1, "groups", 0);
    if (x == 0 || groups < 1 || low_ndim_of(c, x) < 2 || low_sizes_of(c, x)[1] % groups || kin_ir_numel(c->ir, x) == 0)
        return false;
    int64_t batch = low_sizes_of(c, x)[0], channels = low_sizes_of(c, x)[1];
    int64_t sizes[4] = {batch, groups, channels / groups, kin_ir_numel(c->ir, x) / (batch * channels)};
    x = kin_ir_permute(c->ir, kin_ir_reshape(c->ir, x, 4, sizes), (int64_t[]){0, 2, 1, 3});
    return low_done(c, 0, low_reshape_like(c, x, 0));
}
