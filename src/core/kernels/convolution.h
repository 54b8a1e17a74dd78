/* Our convolution kernels, built from tiles (tile.h): the positions that a filter sees are put side by side, as a block of a matrix that fits the
 * second-level cache, and multiplied with the filters as panels. Depthwise convolutions go over channels directly.
 */
#ifndef KIN_KERNELS_CONVOLUTION_H
#define KIN_KERNELS_CONVOLUTION_H

#include "core/kernels/gemm.h"

enum { KIN_CONVOLUTION_SPACE = 3 };

/* Dims of space that are missing come first, with sizes, strides and dilations of 1. */
typedef struct {
    int64_t batch, channels, filters, groups; /* channels and filters: of all groups */
    int64_t in[KIN_CONVOLUTION_SPACE], out[KIN_CONVOLUTION_SPACE], kernel[KIN_CONVOLUTION_SPACE];
    int64_t stride[KIN_CONVOLUTION_SPACE], padding[KIN_CONVOLUTION_SPACE], dilation[KIN_CONVOLUTION_SPACE];
    bool pairs;                               /* image and weight are bfloat16 (kin_convolution_has_pairs) */
    const void *x;                            /* floats unless; strides of any kind; best with channels next to each other */
    int64_t x_strides[2 + KIN_CONVOLUTION_SPACE];
    const float *panels;                      /* the filters (kin_convolution_make_panels) */
    float *y;                                 /* channels last, without gaps unless */
    bool phase;                               /* part of a transposed one */
    bool scattered;                           /* places lie apart, by y_strides; nothing is added then */
    int64_t y_strides[2 + KIN_CONVOLUTION_SPACE];
    const float *bias;                        /* by filter, next to each other; NULL: none */
    const float *added;                       /* of y's sizes; best with channels next to each other; NULL: none */
    int64_t added_strides[2 + KIN_CONVOLUTION_SPACE];
    bool limited;                             /* to [least, most] in the end; NaNs stay */
    float least, most;
    const kin_epilogue *then;                 /* rows: places, columns: filters; where kin_convolution_has_blocks(). NULL: none */
} kin_convolution;

/* Is it done well here, by sizes and groups? Asked before anything else; kin_tile_here() as well. */
bool kin_convolution_suits(const kin_convolution *x);
/* Floats that the filters take as panels; 64-byte aligned. */
size_t kin_convolution_panels_len(const kin_convolution *x);
/* Are there an even number of channels in a group, and is it no depthwise one? Then the processor may multiply pairs of them (gemm_blocked.h). */
bool kin_convolution_has_pairs(int64_t channels, int64_t groups);
/* weight [filters, channels / groups, ...] with strides of any kind. */
void kin_convolution_make_panels(const kin_convolution *x, const void *weight, const int64_t *strides, float *panels);
/* Are blocks of its result all filters of some places, or whole panels of them? */
bool kin_convolution_has_blocks(int64_t channels, int64_t filters, int64_t groups);
/* False without memory, or when `then` failed. */
bool kin_convolution_run(const kin_convolution *x, kin_parallel parallel);

/* The same for transposed ones (transposed.c): weight [channels, filters, ...]; one group, dilation only without strides, kernels not smaller than strides. */
bool kin_transposed_suits(const kin_convolution *x);
size_t kin_transposed_panels_len(const kin_convolution *x);
void kin_transposed_make_panels(const kin_convolution *x, const float *weight, const int64_t *strides, float *panels);
bool kin_transposed_run(const kin_convolution *x, kin_parallel parallel);

#endif
