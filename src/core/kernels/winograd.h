/* Convolutions with 3 x 3 kernels by Winograd's minimal filtering: for 2 x 2 results, 16 products instead of 36 (S. Winograd, Arithmetic
 * complexity of computations, 1980; A. Lavin and S. Gray, Fast algorithms for convolutional neural networks, 2016). Non-finite numbers
 * would spread to neighbours; if any appear, results are computed directly.
 */
#ifndef KIN_KERNELS_WINOGRAD_H
#define KIN_KERNELS_WINOGRAD_H

#include "core/kernels/convolution.h"

/* Is it possible, and faster? By sizes and settings only, so the same when filters are packed and when they are used. */
bool kin_winograd_suits(const kin_convolution *x);
/* What kin_convolution_panels_len and kin_convolution_make_panels do, for these. */
size_t kin_winograd_panels_len(const kin_convolution *x);
/* taps: 9 x channels x 32 floats of room, 64-byte aligned; `panel` of 32 filters as kin_convolution_make_panels makes it otherwise. */
void kin_winograd_make_panel(const kin_convolution *x, const float *taps, int64_t panel, float *panels);
/* x has channels last, y as well, without gaps. False without memory, or when `then` failed. */
bool kin_winograd_run(const kin_convolution *x, kin_parallel parallel);

#endif
