/* Shape rules of operators that join tensors, or select parts of them into new memory. */
#include "core/shape/shape_priv.h"

/* Element i of a list of tensors. */
static bool
read_item(const shape_call *c, const kin_aten_arg *list, unsigned i, shape_tensor *out)
{
    const kin_aten_arg *item = &c->g->args.at[list->list.child + i];
    if (item->kind != KIN_ATEN_VALUE)
        return false;
    shape_of(c, item->value, out);
    return true;
}

static const kin_aten_arg *
find_list(const shape_call *c, unsigned at, const char *keyword)
{
    const kin_aten_arg *list = shape_arg(c, at, keyword);
    return list != NULL && list->kind == KIN_ATEN_LIST && list->list.count > 0 ? list : NULL;
}

static bool
same_but_for(const shape_tensor *a, const shape_tensor *b, unsigned d)
{
    for (unsigned i = 0; i < a->ndim; i++)
        if (i != d && a->sizes[i] != b->sizes[i])
            return false;
    return a->ndim == b->ndim;
}

/* dtypes of all parts together; those without dims count less. */
typedef struct {
    shape_tensor kinds[2]; /* with dims, without */
    unsigned count;
} joined;

static bool
join_dtype(joined *j, const shape_tensor *t)
{
    for (unsigned i = 0; i < j->count; i++)
        if ((j->kinds[i].ndim > 0) == (t->ndim > 0)) {
            if (t->dtype != j->kinds[i].dtype && (shape_is_complex(t->dtype) || shape_is_complex(j->kinds[i].dtype)))
                return false;
            j->kinds[i].dtype = kin_aten_promote(j->kinds[i].dtype, t->dtype);
            return true;
        }
    j->kinds[j->count++] = *t;
    return true;
}

/* cat() ignores the sizes of such a tensor, whatever those of the others: caches begin with torch.tensor([]). */
static bool
is_nothing(const shape_tensor *t)
{
    return t->ndim == 1 && t->sizes[0] == 0;
}

/* The first that is not ignored. */
static bool
read_first(const shape_call *c, const kin_aten_arg *list, shape_tensor *out)
{
    for (unsigned i = 0; i < list->list.count; i++) {
        if (!read_item(c, list, i, out))
            return false;
        if (!is_nothing(out))
            return out->ndim > 0;
    }
    return false;
}

/* Do all suggest one format? Then it is the result's. */
bool
shape_cat(shape_call *c, int row)
{
    const kin_aten_arg *list = find_list(c, 0, "tensors");
    shape_tensor first, t;
    joined kinds = {.count = 0};
    int64_t dim, size = 0;
    unsigned d;
    shape_format format = SHAPE_CONTIGUOUS;
    if (list == NULL || !read_first(c, list, &first) || !shape_int(c, 1, "dim", 0, &dim) || !shape_dim(dim, first.ndim, &d))
        return false;
    for (unsigned i = 0; i < list->list.count; i++) {
        if (!read_item(c, list, i, &t) || !(is_nothing(&t) || same_but_for(&t, &first, d)) || !join_dtype(&kinds, &t))
            return false;
        shape_format suggested = shape_suggested(&t);
        format = i == 0 || suggested == format ? suggested : SHAPE_CONTIGUOUS;
        size += t.ndim == first.ndim ? t.sizes[d] : 0;
    }
    kin_dtype dtype;
    first.sizes[d] = size;
    kin_shape *out = shape_common(kinds.kinds, kinds.count, &dtype) ? shape_add(c, dtype, first.ndim, first.sizes) : NULL;
    return out != NULL && shape_format_strides(format, out->ndim, out->sizes, out->strides);
}

bool
shape_stack(shape_call *c, int row)
{
    const kin_aten_arg *list = find_list(c, 0, "tensors");
    shape_tensor first, t;
    int64_t dim;
    unsigned d;
    if (list == NULL || !read_item(c, list, 0, &first) || !shape_int(c, 1, "dim", 0, &dim) ||
        !shape_dim(dim, first.ndim + 1, &d) || first.ndim >= 3 || shape_is_complex(first.dtype))
        return false; /* from four dims on formats come in */
    for (unsigned i = 1; i < list->list.count; i++)
        if (!read_item(c, list, i, &t) || t.dtype != first.dtype || !same_but_for(&t, &first, UINT32_MAX))
            return false;
    for (unsigned i = first.ndim++; i > d; i--)
        first.sizes[i] = first.sizes[i - 1];
    first.sizes[d] = list->list.count;
    return shape_add_contiguous(c, first.dtype, first.ndim, first.sizes);
}

bool
shape_repeat(shape_call *c, int row)
{
    shape_tensor t;
    int64_t times[KIN_IR_MAX_DIMS];
    int count = shape_ints(c, 1, "repeats", times);
    if (!shape_read(c, 0, "self", &t) || count < (int)t.ndim)
        return false;
    for (int i = 0; i < count; i++) {
        int at = i - (count - (int)t.ndim);
        if (times[i] < 0)
            return false;
        times[i] *= at >= 0 ? t.sizes[at] : 1;
    }
    return shape_add_contiguous(c, t.dtype, (unsigned)count, times);
}

bool
shape_pad(shape_call *c, int row)
{
    shape_tensor t;
    int64_t pads[KIN_IR_MAX_DIMS];
    int count = shape_ints(c, 1, "pad", pads);
    if (!shape_read(c, 0, "self", &t) || count <= 0 || count % 2 != 0 || count / 2 > (int)t.ndim)
        return false;
    bool grows = false;
    for (int i = 0; i < count; i += 2) {
        int64_t *size = &t.sizes[(int)t.ndim - 1 - i / 2];
        grows = grows || pads[i] > 0 || pads[i + 1] > 0;
        if (*size + (pads[i] < 0 ? pads[i] : 0) + (pads[i + 1] < 0 ? pads[i + 1] : 0) <= 0)
            return false;
        *size += pads[i] + pads[i + 1];
    }
    if (!grows) /* a copy of a part */
        return shape_add_like(c, &t, t.dtype, SHAPE_PRESERVE);
    shape_tensor before;
    shape_read(c, 0, "self", &before);
    kin_shape *out = shape_add(c, t.dtype, t.ndim, t.sizes);
    return out != NULL && shape_format_strides(shape_suggested(&before), out->ndim, out->sizes, out->strides);
}

bool
shape_roll(shape_call *c, int row)
{
    shape_tensor t;
    int64_t shifts[KIN_IR_MAX_DIMS], dims[KIN_IR_MAX_DIMS];
    int count = shape_ints(c, 1, "shifts", shifts), along = shape_arg(c, 2, "dims") == NULL ? 0 : shape_ints(c, 2, "dims", dims);
    if (!shape_read(c, 0, "self", &t) || count <= 0 || (along != 0 && along != count) || (along == 0 && count != 1) ||
        shape_numel(t.ndim, t.sizes) == 0 || t.ndim == 0)
        return false;
    if (t.ndim >= 4 && !(shape_is_contiguous(&t) && t.strides[1] > t.strides[t.ndim - 1]))
        return false; /* its parts may suggest another format */
    for (int i = 0; i < along; i++) {
        unsigned d;
        if (!shape_dim(dims[i], t.ndim, &d))
            return false;
    }
    return shape_add_contiguous(c, t.dtype, t.ndim, t.sizes);
}

bool
shape_flip(shape_call *c, int row)
{
    shape_tensor t;
    int64_t dims[KIN_IR_MAX_DIMS];
    bool used[KIN_IR_MAX_DIMS + 1] = {false};
    int count = shape_ints(c, 1, "dims", dims);
    if (!shape_read(c, 0, "self", &t) || count < 0)
        return false;
    for (int i = 0; i < count; i++) {
        unsigned d;
        if (!shape_dim(dims[i], t.ndim, &d) || used[d])
            return false;
        used[d] = true;
    }
    return shape_add_like(c, &t, t.dtype, SHAPE_PRESERVE);
}

bool
shape_triangle(shape_call *c, int row)
{
    shape_tensor t;
    return shape_read(c, 0, "self", &t) && t.ndim >= 2 && shape_add_contiguous(c, t.dtype, t.ndim, t.sizes);
}

/* -- by index tensors --------------------------------------------------------------------------------------------- */

static bool
is_index(kin_dtype dtype)
{
    return dtype == KIN_I64 || dtype == KIN_I32;
}

bool
shape_embedding(shape_call *c, int row)
{
    shape_tensor weight, index;
    if (!shape_read(c, 0, "weight", &weight) || !shape_read(c, 1, "indices", &index) || weight.ndim != 2 ||
        !is_index(index.dtype) || index.ndim + 1 > KIN_IR_MAX_DIMS || weight.sizes[0] == 0)
        return false;
    index.sizes[index.ndim++] = weight.sizes[1];
    return shape_add_contiguous(c, weight.dtype, index.ndim, index.sizes);
}

bool
shape_index_select(shape_call *c, int row)
{
    shape_tensor t, index;
    int64_t dim;
    unsigned d;
    if (!shape_read(c, 0, "self", &t) || t.ndim == 0 || !shape_int(c, 1, "dim", INT64_MAX, &dim) ||
        !shape_dim(dim, t.ndim, &d) || !shape_read(c, 2, "index", &index) || index.ndim != 1 || !is_index(index.dtype) ||
        shape_numel(t.ndim, t.sizes) == 0)
        return false;
    t.sizes[d] = index.sizes[0];
    return shape_add_contiguous(c, t.dtype, t.ndim, t.sizes);
}

/* (self, dim, index, value): a copy, filled in places */
bool
shape_index_fill(shape_call *c, int row)
{
    shape_tensor t, index;
    int64_t dim;
    unsigned d;
    const kin_aten_arg *value = shape_arg(c, 3, "value");
    if (!shape_read(c, 0, "self", &t) || t.ndim == 0 || !shape_int(c, 1, "dim", INT64_MAX, &dim) || !shape_dim(dim, t.ndim, &d) ||
        !shape_read(c, 2, "index", &index) || index.ndim > 1 || index.dtype != KIN_I64 || shape_numel(t.ndim, t.sizes) == 0 ||
        value == NULL || (value->kind != KIN_ATEN_INT && value->kind != KIN_ATEN_FLOAT))
        return false;
    return shape_add_like(c, &t, t.dtype, SHAPE_PRESERVE);
}

bool
shape_gather(shape_call *c, int row)
{
    shape_tensor t, index;
    int64_t dim;
    unsigned d;
    if (!shape_read(c, 0, "self", &t) || !shape_int(c, 1, "dim", INT64_MAX, &dim) || !shape_dim(dim, t.ndim, &d) ||
        !shape_read(c, 2, "index", &index) || index.dtype != KIN_I64 || index.ndim != t.ndim || t.ndim == 0)
        return false;
    if (shape_numel(t.ndim, t.sizes) == 0)
        return false;
    for (unsigned i = 0; i < t.ndim; i++)
        if (i != d && index.sizes[i] > t.sizes[i])
            return false;
    return shape_add_contiguous(c, t.dtype, index.ndim, index.sizes);
}

typedef struct {
    shape_tensor operands[KIN_IR_MAX_DIMS + 1]; /* the source; the indices, broadcast together */
    unsigned nindices, at[KIN_IR_MAX_DIMS];     /* dims of the source that they index */
} indexing;

static bool
read_indices(const shape_call *c, const shape_tensor *source, const kin_aten_arg *list, indexing *x)
{
    if (list->list.count > source->ndim)
        return false;
    for (unsigned i = 0; i < list->list.count; i++) {
        const kin_aten_arg *item = &c->g->args.at[list->list.child + i];
        if (item->kind == KIN_ATEN_NONE)
            continue;
        shape_tensor *t = &x->operands[1 + x->nindices];
        if (!read_item(c, list, i, t) || !is_index(t->dtype)) /* how many a mask picks depends on data */
            return false;
        x->at[x->nindices++] = i;
    }
    unsigned ndim;
    int64_t sizes[KIN_IR_MAX_DIMS];
    if (x->nindices == 0 || !shape_broadcast(x->operands + 1, x->nindices, &ndim, sizes))
        return false;
    for (unsigned i = 0; i < x->nindices; i++) { /* expanded: new and stretched dims have stride 0 */
        shape_tensor *t = &x->operands[1 + i], old = *t;
        t->ndim = ndim;
        for (unsigned d = 0; d < ndim; d++) {
            bool had = d + old.ndim >= ndim && old.sizes[d + old.ndim - ndim] == sizes[d];
            t->sizes[d] = sizes[d];
            t->strides[d] = had ? old.strides[d + old.ndim - ndim] : 0;
        }
    }
    return true;
}

/* The indices' dims among the source's that are not indexed: where the first one is if they are neighbours, else in front.
 * The source strides by 0 there, the indices everywhere else. */
static bool
restride(const shape_tensor *source, indexing *x)
{
    unsigned first = x->at[0], last = x->at[x->nindices - 1], ndim = x->operands[1].ndim;
    unsigned before = last - first + 1 == x->nindices ? first : 0, place = 0;
    shape_tensor *out = &x->operands[0];
    *out = *source;
    out->ndim = source->ndim - x->nindices + ndim;
    if (out->ndim > KIN_IR_MAX_DIMS)
        return false;
    for (unsigned d = 0; d < source->ndim; d++) {
        bool indexed = false;
        for (unsigned i = 0; i < x->nindices; i++)
            indexed = indexed || x->at[i] == d;
        if (indexed)
            continue;
        unsigned to = place < before ? place : place + ndim;
        out->sizes[to] = source->sizes[d];
        out->strides[to] = source->strides[d];
        place++;
    }
    for (unsigned d = 0; d < ndim; d++) {
        out->sizes[before + d] = x->operands[1].sizes[d];
        out->strides[before + d] = 0;
    }
    for (unsigned i = 1; i <= x->nindices; i++) {
        shape_tensor *t = &x->operands[i];
        kin_shape view = {.ndim = out->ndim};
        for (unsigned d = 0; d < out->ndim; d++)
            view.sizes[d] = d >= before && d < before + ndim ? t->sizes[d - before] : 1;
        if (!shape_view_strides(t, &view))
            return false;
        t->ndim = view.ndim;
        memcpy(t->sizes, view.sizes, sizeof view.sizes);
        memcpy(t->strides, view.strides, sizeof view.strides);
    }
    return true;
}

bool
shape_index(shape_call *c, int row)
{
    shape_tensor source;
    indexing x = {.nindices = 0};
    const kin_aten_arg *list = find_list(c, 1, "indices");
    if (list == NULL || !shape_read(c, 0, "self", &source) || !read_indices(c, &source, list, &x))
        return false;
    for (unsigned i = 0; i < x.nindices; i++) /* eager raises where there is something to pick */
        if (source.sizes[x.at[i]] == 0 && shape_numel(x.operands[1].ndim, x.operands[1].sizes) != 0)
            return false;
    return restride(&source, &x) && shape_iterate(c, x.operands, x.nindices + 1, source.dtype);
}

/* (self, indices, values, accumulate); row: 1 = in place. The values are broadcast to what is indexed. */
bool
shape_index_put(shape_call *c, int in_place)
{
    shape_tensor t[2];
    indexing x = {.nindices = 0};
    unsigned ndim;
    int64_t sizes[KIN_IR_MAX_DIMS];
    const kin_aten_arg *list = find_list(c, 1, "indices");
    if (list == NULL || !shape_read(c, 0, "self", &t[0]) || shape_numel(t[0].ndim, t[0].sizes) == 0 ||
        !read_indices(c, &t[0], list, &x) || !restride(&t[0], &x) || !shape_read(c, 2, "values", &t[1]) ||
        t[1].dtype != t[0].dtype || shape_is_complex(t[0].dtype) || shape_may_overlap(&t[0]))
        return false;
    shape_tensor self = t[0];
    for (unsigned i = 1; i <= x.nindices; i++)
        if (shape_numel(x.operands[i].ndim, x.operands[i].sizes) == 0)
            return false;
    if (!shape_broadcast(x.operands, x.nindices + 1, &ndim, sizes))
        return false;
    t[0].ndim = ndim;
    memcpy(t[0].sizes, sizes, sizeof sizes);
    int64_t together[KIN_IR_MAX_DIMS];
    unsigned n;
    if (!shape_broadcast(t, 2, &n, together) || n != ndim || memcmp(together, sizes, n * sizeof *sizes) != 0)
        return false;
    return in_place ? shape_add_same(c, &self) : shape_add_like(c, &self, self.dtype, SHAPE_PRESERVE);
}
