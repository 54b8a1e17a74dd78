/* Gradients of 3 x 3 filters by Winograd's minimal filtering (winograd.h) in reverse: the incoming gradient for 2 x 2 results and the 4 x 4 positions
 * that these see become 16 numbers each, whose products are summed over all tiles; only the sums are transformed. 16 products instead of 36.
 */
#ifndef KIN_KERNELS_WINOGRAD_WEIGHT_H
#define KIN_KERNELS_WINOGRAD_WEIGHT_H

#include "core/kernels/convolution_weight.h"

/* Is it possible, and faster? */
bool kin_winograd_weight_suits(const kin_convolution_weight *x);
/* *finite: false where a number is not, which would have spread to others; then the result is of no use. False without memory. */
bool kin_winograd_weight_run(const kin_convolution_weight *x, kin_parallel parallel, bool *finite);

#endif
