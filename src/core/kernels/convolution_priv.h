/* Shared by the convolution algorithms (convolution.c, winograd.c; convolution_weight.c, depthwise_weight.c). */
#ifndef KIN_KERNELS_CONVOLUTION_PRIV_H
#define KIN_KERNELS_CONVOLUTION_PRIV_H

#include "core/kernels/convolution.h"
#include "core/kernels/convolution_weight.h"

/* Results are numbered by place, row by row; panels are 32 filters. Adds what is to be added to some of them, c being the first, and keeps the limits. */
void kin_convolution_finish(const kin_convolution *x, int64_t row, int64_t rows, unsigned columns, int64_t filter, float *c, int64_t ldc);
/* Does what follows, on some rows of some panels. False: it failed. */
bool kin_convolution_follow(const kin_convolution *x, int64_t row, int64_t rows, int64_t panel, int64_t panels);
/* All of a part of the results directly, with panels as they are made without Winograd. False without memory, or when what follows failed. */
bool kin_convolution_do_part(const kin_convolution *x, int64_t row, int64_t rows, int64_t panel, int64_t panels);

/* Gradients of filters where there are as many groups as channels and filters. False without memory. */
bool kin_depthwise_weight_run(const kin_convolution_weight *x, kin_parallel parallel);

#endif
