/* The shape rule of operators that compute all layers of an nn.RNN, nn.GRU or nn.LSTM. */
#include "core/shape/shape_priv.h"

typedef struct {
    shape_tensor in, h;
    int64_t layers;
    bool biases, both, batch_first;
} recurrent;

static const kin_aten_arg *
item_of(const shape_call *c, const kin_aten_arg *list, uint32_t i)
{
    const kin_aten_arg *a = &c->g->args.at[list->list.child + i];
    return a->kind == KIN_ATEN_VALUE ? a : NULL;
}

static bool
is_matrix(const shape_call *c, const kin_aten_arg *a, kin_dtype dtype, unsigned ndim, int64_t rows, int64_t columns)
{
    shape_tensor t;
    if (a == NULL)
        return false;
    shape_of(c, a->value, &t);
    return t.dtype == dtype && t.ndim == ndim && t.sizes[0] == rows && (ndim == 1 || t.sizes[1] == columns);
}

static bool
has_weights(const shape_call *c, const recurrent *x, int64_t gates)
{
    const kin_aten_arg *list = shape_arg(c, 2, "params");
    unsigned directions = x->both ? 2 : 1, each = x->biases ? 4 : 2;
    int64_t width = x->h.sizes[2], rows = gates * width;
    if (list == NULL || list->kind != KIN_ATEN_LIST || list->list.count != x->layers * directions * each)
        return false;
    for (uint32_t i = 0; i < list->list.count; i++) {
        int64_t columns = i % each == 1 ? width : i < directions * each ? x->in.sizes[2] : width * directions;
        if (!is_matrix(c, item_of(c, list, i), x->in.dtype, i % each < 2 ? 2 : 1, rows, columns))
            return false;
    }
    return true;
}

/* hx: one state, or a list of two. */
static bool
read_states(const shape_call *c, recurrent *x, bool two)
{
    const kin_aten_arg *hx = shape_arg(c, 1, "hx");
    if (!two)
        return shape_read(c, 1, "hx", &x->h) && x->h.ndim == 3;
    shape_tensor other;
    if (hx == NULL || hx->kind != KIN_ATEN_LIST || hx->list.count != 2 || item_of(c, hx, 0) == NULL || item_of(c, hx, 1) == NULL)
        return false;
    shape_of(c, item_of(c, hx, 0)->value, &x->h);
    shape_of(c, item_of(c, hx, 1)->value, &other);
    return x->h.ndim == 3 && other.ndim == 3 && other.dtype == x->h.dtype && memcmp(other.sizes, x->h.sizes, 3 * sizeof *other.sizes) == 0;
}

/* (input, hx, weights, biases, layers, dropout, train, both directions, batch first) -> output, h, and c of LSTM; gates: of the cell. Layers
 * in evaluation, without projections, in float. */
bool
shape_recurrent(shape_call *c, int gates)
{
    recurrent x;
    bool train;
    if (!shape_read(c, 0, "input", &x.in) || !read_states(c, &x, gates == 4) || !shape_bool(c, 3, "has_biases", true, &x.biases) ||
        !shape_int(c, 4, "num_layers", 1, &x.layers) || !shape_bool(c, 6, "train", true, &train) ||
        !shape_bool(c, 7, "bidirectional", false, &x.both) || !shape_bool(c, 8, "batch_first", false, &x.batch_first))
        return false;
    int64_t directions = x.both ? 2 : 1, width = x.h.sizes[2], batch = x.in.sizes[x.batch_first ? 0 : 1];
    if (x.in.ndim != 3 || x.in.dtype != KIN_F32 || x.h.dtype != KIN_F32 || train || x.layers < 1 || x.layers > 32 ||
        shape_numel(3, x.in.sizes) == 0 || shape_numel(3, x.h.sizes) == 0 || x.h.sizes[0] != x.layers * directions || x.h.sizes[1] != batch ||
        !has_weights(c, &x, gates))
        return false;
    kin_shape *out = shape_add(c, KIN_F32, 3, x.in.sizes);
    if (out == NULL)
        return false;
    out->sizes[2] = width * directions;
    out->strides[2] = 1;
    out->strides[x.batch_first ? 0 : 1] = width * directions;
    out->strides[x.batch_first ? 1 : 0] = width * directions * batch;
    return shape_add_contiguous(c, KIN_F32, 3, x.h.sizes) && (gates != 4 || shape_add_contiguous(c, KIN_F32, 3, x.h.sizes));
}
