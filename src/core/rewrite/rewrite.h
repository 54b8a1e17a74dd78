/* Replaces ATen operators by library calls where those are faster: a pass over tensor programs.
 *
 * - A product with few rows becomes a reduction, which fuses with its neighbours (one token, a small MLP).
 * - addmm is decomposed: the bias fuses into what follows. The product itself becomes a MATMUL call; several products of one
 *   matrix with frozen ones (query, key and value) become one call, their results slices of its result.
 * - Attention becomes a call of core/kernels/attention.h.
 * - Layers of nn.RNN, nn.GRU and nn.LSTM: one product for the input of all steps, then a call of core/kernels/recurrent.h that goes through them. Their
 *   gradients: a call that goes back through the steps, then one product each for all steps.
 * - A convolution with frozen weights absorbs what follows it: batch norm (into the weights), an added value, relu, limits.
 *   It runs in core/kernels/convolution.h if that supports it, else in PyTorch's library. Both prefer channels-last memory
 *   (channels_last.c).
 *   1x1 convolutions are matrix products in such memory; what follows is fused after them.
 * - Draws for dropout are calls of core/tiles/mersenne.h.
 * - Gradients of convolutions: a transposed convolution for the image, a call of core/kernels/convolution_weight.h for the filters.
 */
#ifndef KIN_REWRITE_REWRITE_H
#define KIN_REWRITE_REWRITE_H

#include "core/aten/aten.h"

typedef enum {
    KIN_LIBRARY_MATMUL, /* args: a [M, K], b [K, N], or both with a first dim B; writes INTO its result, row-major */
    KIN_LIBRARY_ATTENTION, /* args: query, key, value [B, H, L, D], then a mask when has_add; writes INTO its result */
    KIN_LIBRARY_RECURRENT, /* args: from [steps, batch, gates * width], h [batch, width], panels [n, width, 32] of the matrix between steps, then
                         * bias when has_bias, then c when has_add (recurrent.h); writes INTO its result */
    KIN_LIBRARY_RECURRENT_BACKWARD, /* args: gradients of the results and of the last one, what was kept, panels, then of LSTM the gradient of the last c and the
                         * first c, of GRU the results and the first h (recurrent.h); writes INTO its result, of one dim */
    KIN_LIBRARY_CONV_WEIGHT, /* args: what comes back [N, F, space...], x [N, C, space...]; writes INTO the filters' gradient [F, kernel..., C] */
    KIN_LIBRARY_BERNOULLI, /* no args; draws numbers of PyTorch's generator INTO its result, 1 with probability `scale`, else 0 */
    KIN_LIBRARY_CONV    /* args: x [N, C, space...], weight, then bias when has_bias, then what is added when has_add; our own ones
                         * write INTO their result, channels last */
} kin_library_kind;

typedef enum { KIN_POST_NONE, KIN_POST_RELU, KIN_POST_LIMIT } kin_library_post; /* LIMIT: least and most; our own only, NaNs stay */

typedef struct {
    uint8_t kind;      /* kin_library_kind */
    uint8_t post;      /* kin_library_post: after everything else */
    bool has_bias, has_add;
    bool frozen;       /* b, or the weight and the bias, stay as they are between calls */
    uint8_t nspatial;  /* CONV: numbers below that count */
    int64_t stride[3], padding[3], dilation[3], groups;
    bool own, transposed; /* CONV: ours; a transposed one, which is ours as well */
    double least, most;
    uint8_t cell;      /* RECURRENT: kin_cell */
    bool reverse, keeps; /* RECURRENT; keeps: what the way back needs, too */
    bool causal;       /* ATTENTION */
    double scale;
    uint32_t call;     /* the captured call it comes from */
} kin_library_call;

typedef struct {
    kin_ir *ir;
    uint32_t first;    /* EXTERN nodes with the number first + i are calls.at[i]; smaller numbers: captured calls */
    KIN_VEC(kin_library_call) calls;
} kin_rewritten;

typedef struct {
    bool post;         /* calls may absorb a relu; libraries turn NaN into 0 there, so the runner has to detect NaNs by other means */
    bool pairs;        /* ours multiply bfloat16 as it is (gemm_blocked.h) */
    bool random;       /* ... draws random numbers as PyTorch does */
    bool own;          /* core/kernels does attention, convolutions, recurrent layers, and products of half precision */
    bool products;     /* ... and products of float matrices, also of many: where BLAS is not clearly faster */
    bool varying;      /* further programs of the graph have other sizes (lower.h) */
} kin_rewrite_options;

/* g: what `p` was lowered from (extern numbers are its calls). frozen[i]: input i stays as it is between calls. */
kin_status kin_rewrite(const kin_ir *p, const kin_aten *g, const bool *frozen, const kin_rewrite_options *options,
                       kin_rewritten *out) KIN_MUST_CHECK;
void kin_rewritten_deinit(kin_rewritten *l);

/* channels_last.c: will values of this graph lie channels last? Lowering asks. */
bool kin_prefers_channels_last(const kin_aten *g);
/* Gives values between convolutions channels-last strides; was there one? */
bool kin_channels_last(kin_rewritten *l);

/* prefer_last.c: last[n] becomes true where the value of node n, if it is handed from one program to another, is better laid channels last. */
kin_status kin_rewrite_prefer_last(const kin_ir *p, const kin_aten *g, const kin_rewrite_options *options, bool *last) KIN_MUST_CHECK;

#endif
