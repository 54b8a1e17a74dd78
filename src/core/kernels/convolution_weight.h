/* Our kernel for the gradients of convolution filters: for each tap a product of the incoming gradient with the positions that the tap sees. */
#ifndef KIN_KERNELS_CONVOLUTION_WEIGHT_H
#define KIN_KERNELS_CONVOLUTION_WEIGHT_H

#include "core/kernels/convolution.h"

/* In one or two dims of space, which are the last ones of each array. */
typedef struct {
    int64_t batch, channels, filters, groups;  /* channels and filters: of all groups */
    int64_t in[2], out[2], kernel[2], stride[2], padding[2], dilation[2];
    const float *x, *back;                     /* the image; what comes back for the result: best with filters next to each other */
    int64_t x_strides[4], back_strides[4];
    float *to;                                 /* [filters, kernel..., channels / groups] without gaps */
} kin_convolution_weight;

/* Is it faster where the image's channels lie next to each other, even if it is copied for that? */
bool kin_convolution_weight_wants_last(int64_t channels);
/* False without memory. */
bool kin_convolution_weight_run(const kin_convolution_weight *x, kin_parallel parallel);

#endif
