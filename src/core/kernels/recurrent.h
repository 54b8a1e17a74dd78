/* Our kernel for recurrent layers: all time steps of one layer in one direction, built from tiles (tile.h). The products with the layer's input are
 * computed before, for all steps at once; this is the part that each step takes from the previous one, and the gates.
 */
#ifndef KIN_KERNELS_RECURRENT_H
#define KIN_KERNELS_RECURRENT_H

#include "core/kernels/gemm.h"

typedef enum { KIN_CELL_TANH, KIN_CELL_RELU, KIN_CELL_GRU, KIN_CELL_LSTM } kin_cell;

static inline const char *
kin_cell_name(kin_cell cell)
{
    return cell == KIN_CELL_LSTM ? "lstm" : cell == KIN_CELL_GRU ? "gru" : cell == KIN_CELL_RELU ? "relu" : "tanh";
}

/* Numbers of gates, in the order in which PyTorch has them: of LSTM i, f, g, o, of GRU r, z, n. */
static inline int64_t
kin_cell_gates(kin_cell cell)
{
    return cell == KIN_CELL_LSTM ? 4 : cell == KIN_CELL_GRU ? 3 : 1;
}

/* Values that a step keeps for the way back, times the width: LSTM i, f, g, o, c, GRU r, z, n and what r is multiplied with. */
static inline int64_t
kin_cell_keeps(kin_cell cell)
{
    return cell == KIN_CELL_LSTM ? 5 : cell == KIN_CELL_GRU ? 4 : 0;
}

/* from [steps, batch, gates * width]: what the input gives, all biases in it but that of GRU's n which is multiplied with r. h, c [batch,
 * width]: before the first step; c only LSTM's. panels: [columns / 32, width, 32] of the matrix [width, gates * width] from one step to the next,
 * with zeros behind the last column. to [steps, batch, width], and behind the last step LSTM's c, or if it keeps what the way
 * back needs, that: [steps, batch, kept * width]. */
typedef struct {
    kin_cell cell;
    bool reverse;                     /* the last step is done first */
    bool keeps;
    int64_t steps, batch, width;
    const float *from, *h, *c, *panels;
    const float *bias;                /* GRU: of n, [width]; NULL: none */
    int64_t from_strides[3], h_strides[2], c_strides[2], bias_stride;
    float *to;
} kin_recurrent;

/* False without memory. kin_tile_here() is asked before. */
bool kin_recurrent_run(const kin_recurrent *x, kin_parallel parallel);

/* The way back through a layer that kept something. back [steps, batch, width], h, c [batch, width]: gradients of all results, of the last one, and of the
 * last c. kept, results: what the forward pass made; first_h, first_c: what it began with (LSTM asks for c's, GRU for h's and the results). panels:
 * [width / 32, gates * width, 32] of the matrix [gates * width, width]. to: gradients of what the products gave, [steps, batch, gates * width], of GRU those
 * of the input's, then those of the other one; behind them those of the first h and c, [batch, width]. */
typedef struct {
    kin_cell cell; /* LSTM, GRU */
    bool reverse;
    int64_t steps, batch, width;
    const float *back, *h, *c, *kept, *results, *first_h, *first_c, *panels;
    int64_t back_strides[3], h_strides[2], c_strides[2], kept_strides[3], results_strides[3], first_h_strides[2], first_c_strides[2];
    float *to;
} kin_recurrent_backward;

bool kin_recurrent_run_backward(const kin_recurrent_backward *x, kin_parallel parallel);

#endif
