/* Our attention kernel: softmax(scale * q k' + mask) v, without ever storing all scores; built from tiles (tile.h). */
#ifndef KIN_KERNELS_ATTENTION_H
#define KIN_KERNELS_ATTENTION_H

#include "core/kernels/gemm.h"

/* All are [batch, heads, rows, depth]; strides of any kind. */
typedef struct {
    int64_t batch, heads, key_heads; /* heads: a multiple of key_heads; neighbours share one */
    int64_t rows, keys, depth, width; /* q has rows, k and v keys; q and k have depth, v and out width */
    const float *q, *k, *v;
    float *out;
    int64_t q_strides[4], k_strides[4], v_strides[4], out_strides[4];
    const float *mask;                /* added to scores; NULL: none */
    int64_t mask_strides[4];          /* 0 where it repeats */
    float scale;
    bool causal;                      /* row i sees keys up to i */
} kin_attention;

/* Rows that see no key become zeros. False without memory. kin_tile_here() is asked before. */
bool kin_attention_run(const kin_attention *x, kin_parallel parallel);

#endif
