/* Recurrent layers of our own: all steps of one layer in one direction, from tiles (tile.h). What comes from the layer's input is made before
 * by one product for all steps; here is what each step takes from the one before, and the gates.
 */
#ifndef KIN_KERNELS_RECURRENT_H
#define KIN_KERNELS_RECURRENT_H

#include "core/kernels/gemm.h"

typedef enum { KIN_CELL_TANH, KIN_CELL_RELU, KIN_CELL_GRU, KIN_CELL_LSTM } kin_cell;

/* Numbers of gates, in the order in which PyTorch has them: of LSTM i, f, g, o, of GRU r, z, n. */
static inline int64_t
kin_cell_gates(kin_cell cell)
{
    return cell == KIN_CELL_LSTM ? 4 : cell == KIN_CELL_GRU ? 3 : 1;
}

/* from [steps, batch, gates * width]: what the input gives, all biases in it but that of GRU's n which is multiplied with r. h, c [batch,
 * width]: before the first step; c only LSTM's. panels: [columns / 32, width, 32] of the matrix [width, gates * width] from one step to the next,
 * with zeros behind the last column. to [steps, batch, width], and behind the last step LSTM's c. */
typedef struct {
    kin_cell cell;
    bool reverse;                     /* the last step is done first */
    int64_t steps, batch, width;
    const float *from, *h, *c, *panels;
    const float *bias;                /* GRU: of n, [width]; NULL: none */
    int64_t from_strides[3], h_strides[2], c_strides[2], bias_stride;
    float *to;
} kin_recurrent;

/* False without memory. kin_tile_here() is asked before. */
bool kin_recurrent_run(const kin_recurrent *x, kin_parallel parallel);

#endif
