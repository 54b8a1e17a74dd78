/* Operators that compute all layers of an nn.RNN, nn.GRU or nn.LSTM become, for each layer and direction, a product and a RECURRENT call. In training
 * they are captured layer by layer (kintsugi/_recurrent.py), and their gradients become a RECURRENT_BACKWARD call and products.
 */
#include "core/rewrite/rewrite_priv.h"

#include "core/kernels/recurrent.h"
#include "core/tiles/tile.h"

enum { MOST_PARTS = 64 /* layers times directions */ };

typedef struct {
    kin_cell cell;
    bool biases, both, batch_first; /* both: directions */
    int64_t layers, steps, batch, width, gates;
    kin_irn call;      /* of p */
    unsigned weights;  /* number of its first weight among the arguments */
    kin_irn h, c;      /* of the new program: [parts, batch, width]; c: 0 = none */
    bool keeps, reverse; /* a layer in training; reverse: its only direction */
    kin_irn kept;      /* [steps, batch, kept * width] */
    kin_irn last_h[MOST_PARTS], last_c[MOST_PARTS];
    unsigned parts;
} layers;

static bool
find_cell(const rewriting *r, kin_irn call, kin_cell *out)
{
    static const struct { kin_aten_op op; kin_cell cell; } rows[] = {
        {KIN_ATEN_OP(lstm, input), KIN_CELL_LSTM}, {KIN_ATEN_OP(gru, input), KIN_CELL_GRU},
        {KIN_ATEN_OP(rnn_tanh, input), KIN_CELL_TANH}, {KIN_ATEN_OP(rnn_relu, input), KIN_CELL_RELU}};
    for (unsigned i = 0; i < sizeof rows / sizeof *rows; i++)
        if (rewrite_is(r, call, rows[i].op)) {
            *out = rows[i].cell;
            return true;
        }
    return false;
}

static bool
read_flag(const rewriting *r, const kin_aten_call *call, unsigned at, int64_t *out)
{
    const kin_aten_arg *a = kin_aten_find(r->g, call, at, "");
    if (a == NULL || (a->kind != KIN_ATEN_BOOL && a->kind != KIN_ATEN_INT))
        return false;
    *out = a->i;
    return true;
}

static bool
has_sizes(const rewriting *r, kin_irn n, unsigned ndim, int64_t first, int64_t second)
{
    const kin_ir_node *node = kin_ir_at(r->p, n);
    const int64_t *sizes = kin_ir_sizes(r->p, n);
    return node->dtype == KIN_F32 && node->ndim == ndim && sizes[0] == first && (ndim == 1 || sizes[1] == second);
}

static unsigned
weights_of_part(const layers *x)
{
    return x->biases ? 4 : 2;
}

static kin_irn
weight(const rewriting *r, const layers *x, unsigned part, unsigned which)
{
    return kin_ir_arg(r->p, x->call, x->weights + part * weights_of_part(x) + which);
}

/* Are the weights those of plain layers? LSTMs with projections have others. */
static bool
has_plain_weights(const rewriting *r, const layers *x, int64_t features)
{
    unsigned directions = x->both ? 2 : 1;
    for (unsigned part = 0; part < x->parts; part++) {
        int64_t in = part < directions ? features : x->width * directions, columns = x->gates * x->width;
        if (!has_sizes(r, weight(r, x, part, 0), 2, columns, in) || !has_sizes(r, weight(r, x, part, 1), 2, columns, x->width))
            return false;
        if (x->biases && (!has_sizes(r, weight(r, x, part, 2), 1, columns, 0) || !has_sizes(r, weight(r, x, part, 3), 1, columns, 0)))
            return false;
    }
    return true;
}

/* (input, hx, weights, biases, layers, dropout, train, both directions, batch first); hx is a list of two for LSTM. */
static bool
read_layers(const rewriting *r, kin_irn call, layers *x)
{
    const kin_aten_call *captured = rewrite_captured(r, call);
    int64_t biases, count, train, both, first;
    *x = (layers){.call = call};
    if (!find_cell(r, call, &x->cell) || !read_flag(r, captured, 3, &biases) || !read_flag(r, captured, 4, &count) ||
        !read_flag(r, captured, 6, &train) || !read_flag(r, captured, 7, &both) || !read_flag(r, captured, 8, &first) || train != 0)
        return false;
    unsigned states = x->cell == KIN_CELL_LSTM ? 2 : 1;
    x->biases = biases != 0;
    x->both = both != 0;
    x->batch_first = first != 0;
    x->weights = 1 + states;
    x->layers = count;
    if (count < 1 || count > MOST_PARTS / 2 || kin_ir_at(r->p, call)->nargs < x->weights)
        return false;
    x->parts = (unsigned)count * (x->both ? 2 : 1);
    kin_irn in = kin_ir_arg(r->p, call, 0), h = kin_ir_arg(r->p, call, 1);
    const int64_t *sizes = kin_ir_sizes(r->p, in), *state = kin_ir_sizes(r->p, h);
    if (kin_ir_at(r->p, in)->ndim != 3 || kin_ir_at(r->p, in)->dtype != KIN_F32 || kin_ir_at(r->p, h)->ndim != 3 || kin_ir_numel(r->p, in) == 0 ||
        kin_ir_numel(r->p, h) == 0)
        return false;
    x->steps = sizes[x->batch_first ? 1 : 0];
    x->batch = sizes[x->batch_first ? 0 : 1];
    x->width = state[2];
    x->gates = kin_cell_gates(x->cell);
    for (unsigned i = 0; i < states; i++) {
        kin_irn s = kin_ir_arg(r->p, call, 1 + i);
        if (kin_ir_at(r->p, s)->ndim != 3 || !has_sizes(r, s, 3, x->parts, x->batch) || kin_ir_sizes(r->p, s)[2] != x->width)
            return false;
    }
    return kin_ir_at(r->p, call)->nargs == x->weights + x->parts * weights_of_part(x) && has_plain_weights(r, x, sizes[2]);
}

/* -- building ------------------------------------------------------------------------------------------------------- */

/* Elements [from, from + size) along the first dim. */
static kin_irn
stretch(kin_ir *q, kin_irn n, int64_t from, int64_t size)
{
    int64_t starts[KIN_IR_MAX_DIMS] = {from}, steps[KIN_IR_MAX_DIMS], sizes[KIN_IR_MAX_DIMS];
    for (unsigned d = 0; d < kin_ir_at(q, n)->ndim; d++) {
        steps[d] = 1;
        sizes[d] = d == 0 ? size : kin_ir_sizes(q, n)[d];
    }
    return kin_ir_slice(q, n, starts, steps, sizes);
}

/* State `part` as [batch, width]. */
static kin_irn
state_of(kin_ir *q, const layers *x, kin_irn states, unsigned part)
{
    return kin_ir_reshape(q, stretch(q, states, part, 1), 2, (int64_t[]){x->batch, x->width});
}

/* What is added to the input's product: both biases, but not that of a GRU's n which belongs to the step before. */
static kin_irn
bias_of(rewriting *r, const layers *x, unsigned part)
{
    kin_ir *q = r->out->ir;
    kin_irn own = rewrite_copy(r, weight(r, x, part, 2)), other = rewrite_copy(r, weight(r, x, part, 3));
    if (x->cell == KIN_CELL_GRU) {
        kin_irn parts[2] = {stretch(q, other, 0, 2 * x->width), kin_ir_const(q, KIN_F32, (kin_scalar){.f = -0.0}, 1, &x->width)};
        other = kin_ir_cat(q, parts, 2, 0);
    }
    return kin_ir_binary(q, KIN_IR_ADD, own, other);
}

/* The input's part of all gates: [steps, batch, gates * width]. `in` is [batch, steps, ..] if `batch_first`. */
static kin_irn
from_input(rewriting *r, const layers *x, unsigned part, kin_irn in, bool batch_first)
{
    kin_ir *q = r->out->ir;
    kin_irn w = weight(r, x, part, 0);
    int64_t rows = x->steps * x->batch, columns = x->gates * x->width, features = kin_ir_sizes(q, in)[2];
    kin_library_call call = {.kind = KIN_LIBRARY_MATMUL, .frozen = r->frozen[w], .call = (uint32_t)kin_ir_attrs(r->p, x->call)[0]};
    kin_irn args[2] = {kin_ir_reshape(q, in, 2, (int64_t[]){rows, features}), kin_ir_permute(q, rewrite_copy(r, w), (int64_t[]){1, 0})};
    kin_irn made = rewrite_emit(r, &call, "library.matmul", args, 2, KIN_F32, 2, (int64_t[]){rows, columns}, NULL);
    if (x->biases)
        made = kin_ir_binary(q, KIN_IR_ADD, made, kin_ir_expand(q, bias_of(r, x, part), 2, (int64_t[]){rows, columns}));
    if (!batch_first)
        return kin_ir_reshape(q, made, 3, (int64_t[]){x->steps, x->batch, columns});
    return kin_ir_permute(q, kin_ir_reshape(q, made, 3, (int64_t[]){x->batch, x->steps, columns}), (int64_t[]){1, 0, 2});
}

/* A matrix as panels; turned: [columns, k], the other way round than it is multiplied with. */
static kin_irn
panels_of(kin_ir *q, kin_irn w, bool turned)
{
    const int64_t *sizes = kin_ir_sizes(q, w), low[2] = {0, 0};
    int64_t columns = sizes[!turned], k = sizes[turned], panels = (columns + KIN_TILE_COLUMNS - 1) / KIN_TILE_COLUMNS;
    int64_t padded[2] = {k, k};
    padded[!turned] = panels * KIN_TILE_COLUMNS;
    if (padded[!turned] != columns)
        w = kin_ir_pad(q, w, kin_ir_const(q, KIN_F32, (kin_scalar){.f = 0}, 0, NULL), low, padded);
    w = kin_ir_reshape(q, w, 3, turned ? (int64_t[]){panels, KIN_TILE_COLUMNS, k} : (int64_t[]){k, panels, KIN_TILE_COLUMNS});
    return kin_ir_unary(q, KIN_IR_CAST, kin_ir_permute(q, w, turned ? (int64_t[]){0, 2, 1} : (int64_t[]){1, 0, 2})); /* a copy: they lie like that */
}

/* What a layer gives, behind its results, as it keeps it for the way back. */
static void
find_kept(kin_ir *q, layers *x, kin_irn made)
{
    int64_t keeps = kin_cell_keeps(x->cell);
    x->kept = kin_ir_reshape(q, stretch(q, made, x->steps, x->steps * keeps), 3, (int64_t[]){x->steps, x->batch, keeps * x->width});
}

/* The last c among it. */
static kin_irn
last_c_of(kin_ir *q, const layers *x, bool reverse)
{
    int64_t starts[3] = {reverse ? 0 : x->steps - 1, 0, 4 * x->width}, steps[3] = {1, 1, 1};
    return kin_ir_slice(q, x->kept, starts, steps, (int64_t[]){1, x->batch, x->width});
}

/* [steps, batch, width] of one direction of a layer; its last states are noted. */
static kin_irn
emit_part(rewriting *r, layers *x, unsigned part, kin_irn in, bool batch_first)
{
    kin_ir *q = r->out->ir;
    bool reverse = x->reverse || (x->both && part % 2 == 1), bias = x->cell == KIN_CELL_GRU && x->biases;
    kin_irn args[5];
    unsigned nargs = 0;
    args[nargs++] = from_input(r, x, part, in, batch_first);
    args[nargs++] = state_of(q, x, x->h, part);
    args[nargs++] = panels_of(q, rewrite_copy(r, weight(r, x, part, 1)), true);
    if (bias)
        args[nargs++] = stretch(q, rewrite_copy(r, weight(r, x, part, 3)), 2 * x->width, x->width);
    if (x->c != 0)
        args[nargs++] = state_of(q, x, x->c, part);
    kin_library_call call = {.kind = KIN_LIBRARY_RECURRENT, .cell = (uint8_t)x->cell, .reverse = reverse, .keeps = x->keeps, .has_bias = bias, .has_add = x->c != 0,
                             .call = (uint32_t)kin_ir_attrs(r->p, x->call)[0]};
    const int64_t sizes[3] = {x->steps + (x->keeps ? x->steps * kin_cell_keeps(x->cell) : x->c != 0), x->batch, x->width};
    kin_irn made = rewrite_emit(r, &call, "library.recurrent", args, nargs, KIN_F32, 3, sizes, NULL);
    x->last_h[part] = stretch(q, made, reverse ? 0 : x->steps - 1, 1);
    if (x->keeps)
        find_kept(q, x, made);
    x->last_c[part] = x->c == 0 ? 0 : x->keeps ? last_c_of(q, x, reverse) : stretch(q, made, x->steps, 1);
    return sizes[0] > x->steps ? stretch(q, made, 0, x->steps) : made;
}

static kin_irn
emit_layers(rewriting *r, layers *x)
{
    kin_ir *q = r->out->ir;
    kin_irn in = rewrite_copy(r, kin_ir_arg(r->p, x->call, 0));
    bool batch_first = x->batch_first;
    x->h = rewrite_copy(r, kin_ir_arg(r->p, x->call, 1));
    x->c = x->cell == KIN_CELL_LSTM ? rewrite_copy(r, kin_ir_arg(r->p, x->call, 2)) : 0;
    for (unsigned part = 0; part < x->parts; part += x->both ? 2 : 1) {
        kin_irn ways[2] = {emit_part(r, x, part, in, batch_first)};
        if (x->both)
            ways[1] = emit_part(r, x, part + 1, in, batch_first);
        in = x->both ? kin_ir_cat(q, ways, 2, 2) : ways[0];
        batch_first = false;
    }
    return x->batch_first ? kin_ir_permute(q, in, (int64_t[]){1, 0, 2}) : in;
}

kin_irn
rewrite_recurrent(rewriting *r, kin_irn n)
{
    kin_irn call = kin_ir_arg(r->p, n, 0);
    layers x;
    if (!read_layers(r, call, &x))
        return 0;
    kin_irn results[3] = {emit_layers(r, &x)};
    results[1] = kin_ir_cat(r->out->ir, x.last_h, x.parts, 0);
    if (x.c != 0)
        results[2] = kin_ir_cat(r->out->ir, x.last_c, x.parts, 0);
    for (kin_irn m = n; m < r->p->nodes.len; m++)
        if (kin_ir_at(r->p, m)->op == KIN_IR_RESULT && kin_ir_arg(r->p, m, 0) == call)
            r->map[m] = results[kin_ir_attrs(r->p, m)[0]];
    return r->map[n];
}

/* -- training ----------------------------------------------------------------------------------------------------- */

enum { OURS = 16, TORCH_LSTM = 2, TORCH_GRU = 3 /* cells, as `mode` tells them: _recurrent.py */ };

/* Arguments of the captured call: weights and states come second, then what it is. Going back, results and their gradients are in between. */
enum { FORWARD_FLAGS = 7, BACKWARD_FLAGS = 13, BACKWARD_KEPT = 13 /* among its tensors */ };

/* A layer in one direction that _recurrent.py made; flags: which arguments say what it is. They were looked at there. */
static bool
read_trained(const rewriting *r, kin_irn call, bool back, layers *x)
{
    const kin_aten_call *captured = rewrite_captured(r, call);
    unsigned flags = back ? BACKWARD_FLAGS : FORWARD_FLAGS;
    int64_t reverse, mode, biases;
    *x = (layers){.call = call, .weights = 1, .layers = 1, .parts = 1, .keeps = true};
    if (!read_flag(r, captured, flags, &reverse) || !read_flag(r, captured, flags + (back ? 1 : 2), &mode) || !read_flag(r, captured, flags + (back ? 4 : 5), &biases) ||
        (mode != OURS + TORCH_LSTM && mode != OURS + TORCH_GRU))
        return false;
    x->cell = mode == OURS + TORCH_LSTM ? KIN_CELL_LSTM : KIN_CELL_GRU;
    x->reverse = reverse != 0;
    x->biases = biases != 0;
    const int64_t *sizes = kin_ir_sizes(r->p, kin_ir_arg(r->p, call, 0));
    x->steps = sizes[0];
    x->batch = sizes[1];
    x->width = kin_ir_sizes(r->p, kin_ir_arg(r->p, call, 5))[1];
    x->gates = kin_cell_gates(x->cell);
    return true;
}

/* [batch, width] as the only part. */
static kin_irn
only_state(rewriting *r, const layers *x, unsigned arg)
{
    return kin_ir_reshape(r->out->ir, rewrite_copy(r, kin_ir_arg(r->p, x->call, arg)), 3, (int64_t[]){1, x->batch, x->width});
}

static void
emit_trained(rewriting *r, layers *x)
{
    kin_ir *q = r->out->ir;
    const int64_t sizes[2] = {x->batch, x->width};
    x->h = only_state(r, x, 5);
    x->c = x->cell == KIN_CELL_LSTM ? only_state(r, x, 6) : 0;
    kin_irn results[4] = {emit_part(r, x, 0, rewrite_copy(r, kin_ir_arg(r->p, x->call, 0)), false)};
    results[1] = kin_ir_reshape(q, x->last_h[0], 2, sizes);
    if (x->c != 0)
        results[2] = kin_ir_reshape(q, x->last_c[0], 2, sizes);
    results[3] = x->kept;
    for (kin_irn m = 1; m < r->p->nodes.len; m++)
        if (kin_ir_at(r->p, m)->op == KIN_IR_RESULT && kin_ir_arg(r->p, m, 0) == x->call)
            r->map[m] = results[kin_ir_attrs(r->p, m)[0]];
}

/* What the way back through the steps gave: gradients of the products, [steps * batch, gates * width], and of the first states. */
typedef struct {
    kin_irn by_input, by_state, h, c;
} way_back;

static kin_irn
part_of(kin_ir *q, kin_irn made, int64_t from, int64_t rows, int64_t columns)
{
    return kin_ir_reshape(q, stretch(q, made, from, rows * columns), 2, (int64_t[]){rows, columns});
}

static way_back
emit_way_back(rewriting *r, const layers *x)
{
    enum { BACK = 10, BACK_H, BACK_C, FIRST_H = 5, FIRST_C, RESULTS };
    kin_ir *q = r->out->ir;
    bool gru = x->cell == KIN_CELL_GRU;
    const unsigned taken[6] = {BACK, BACK_H, BACKWARD_KEPT, 0, gru ? RESULTS : BACK_C, gru ? FIRST_H : FIRST_C};
    kin_irn args[6];
    for (unsigned i = 0; i < 6; i++)
        args[i] = i == 3 ? panels_of(q, rewrite_copy(r, weight(r, x, 0, 1)), false) : rewrite_copy(r, kin_ir_arg(r->p, x->call, taken[i]));
    kin_library_call call = {.kind = KIN_LIBRARY_RECURRENT_BACKWARD, .cell = (uint8_t)x->cell, .reverse = x->reverse,
                             .call = (uint32_t)kin_ir_attrs(r->p, x->call)[0]};
    int64_t rows = x->steps * x->batch, columns = x->gates * x->width, all = rows * columns, states = (gru ? 2 : 1) * all, one = x->batch * x->width;
    const int64_t size = states + (gru ? 1 : 2) * one;
    kin_irn made = rewrite_emit(r, &call, "library.recurrent_backward", args, 6, KIN_F32, 1, &size, NULL);
    way_back back = {.by_input = part_of(q, made, 0, rows, columns), .h = part_of(q, made, states, x->batch, x->width)};
    back.by_state = gru ? part_of(q, made, all, rows, columns) : back.by_input;
    back.c = gru ? 0 : part_of(q, made, states + one, x->batch, x->width);
    return back;
}

static kin_irn
product_of(rewriting *r, const layers *x, kin_irn a, kin_irn b)
{
    kin_library_call call = {.kind = KIN_LIBRARY_MATMUL, .call = (uint32_t)kin_ir_attrs(r->p, x->call)[0]};
    const int64_t sizes[2] = {kin_ir_sizes(r->out->ir, a)[0], kin_ir_sizes(r->out->ir, b)[1]};
    return rewrite_emit(r, &call, "library.matmul", (kin_irn[]){a, b}, 2, KIN_F32, 2, sizes, NULL);
}

/* What each step began with, [steps * batch, width]. */
static kin_irn
befores_of(rewriting *r, const layers *x)
{
    enum { FIRST_H = 5, RESULTS = 7 };
    kin_ir *q = r->out->ir;
    kin_irn first = only_state(r, x, FIRST_H);
    if (x->steps > 1) {
        kin_irn others = stretch(q, rewrite_copy(r, kin_ir_arg(r->p, x->call, RESULTS)), x->reverse ? 1 : 0, x->steps - 1);
        kin_irn parts[2] = {x->reverse ? others : first, x->reverse ? first : others};
        first = kin_ir_cat(q, parts, 2, 0);
    }
    return kin_ir_reshape(q, first, 2, (int64_t[]){x->steps * x->batch, x->width});
}

/* Results of the operator that goes back: of the input, both weights, both biases, the first h and c. */
static kin_irn
gradient_of(rewriting *r, const layers *x, const way_back *back, int64_t which)
{
    kin_ir *q = r->out->ir;
    kin_irn in = rewrite_copy(r, kin_ir_arg(r->p, x->call, 0));
    int64_t features = kin_ir_sizes(q, in)[2], columns = x->gates * x->width, first = 0;
    const int64_t turned[2] = {1, 0};
    switch (which) {
    case 0: return kin_ir_reshape(q, product_of(r, x, back->by_input, rewrite_copy(r, weight(r, x, 0, 0))), 3, (int64_t[]){x->steps, x->batch, features});
    case 1:
        in = kin_ir_reshape(q, in, 2, (int64_t[]){x->steps * x->batch, features});
        return product_of(r, x, kin_ir_permute(q, back->by_input, turned), in);
    case 2: return product_of(r, x, kin_ir_permute(q, back->by_state, turned), befores_of(r, x));
    case 3:
    case 4: return kin_ir_reshape(q, kin_ir_reduce(q, KIN_IR_REDUCE_SUM, which == 3 ? back->by_input : back->by_state, 1, &first), 1, &columns);
    case 5: return back->h;
    default: return back->c;
    }
}

kin_irn
rewrite_trained_layer(rewriting *r, kin_irn n)
{
    kin_irn call = kin_ir_arg(r->p, n, 0);
    bool back = rewrite_is(r, call, KIN_ATEN_OP(mkldnn_rnn_layer_backward, default));
    layers x;
    if ((!back && !rewrite_is(r, call, KIN_ATEN_OP(mkldnn_rnn_layer, default))) || !read_trained(r, call, back, &x))
        return 0;
    if (!back) {
        emit_trained(r, &x);
        return r->map[n];
    }
    way_back way = emit_way_back(r, &x);
    for (kin_irn m = n; m < r->p->nodes.len; m++)
        if (kin_ir_at(r->p, m)->op == KIN_IR_RESULT && kin_ir_arg(r->p, m, 0) == call)
            r->map[m] = gradient_of(r, &x, &way, kin_ir_attrs(r->p, m)[0]);
    return r->map[n];
}
