/* Matrix products with sums in float: our own kernel (gemm_blocked.h) if the processor supports it, else the BLAS that PyTorch ships with
 * (the caller finds its entry points). b is packed once if it stays the same between calls.
 */
#ifndef KIN_KERNELS_GEMM_H
#define KIN_KERNELS_GEMM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/status.h"

/* Runs fn on parts of [0, n), each of at least `grain` if there are several, in threads. */
typedef void (*kin_parallel)(int64_t n, int64_t grain, void (*fn)(int64_t begin, int64_t end, void *arg), void *arg);

/* Entry points as CBLAS and MKL declare them, 32-bit integers. The packing three may be NULL together. */
typedef struct {
    void (*gemm)(const char *trans_a, const char *trans_b, const int *m, const int *n, const int *k, const float *alpha,
                 const float *a, const int *lda, const float *b, const int *ldb, const float *beta, float *c,
                 const int *ldc); /* sgemm_, column-major */
    size_t (*pack_size)(int which, int m, int n, int k);
    void (*pack)(int layout, int which, int trans, int m, int n, int k, float alpha, const float *src, int ld, float *dest);
    void (*compute)(int layout, int trans_a, int trans_b, int m, int n, int k, const float *a, int lda, const float *b,
                    int ldb, float beta, float *c, int ldc);
    bool own;              /* gemm_blocked.c does products of more than a few rows */
    bool large;            /* ... but large ones with nothing packed are BLAS's */
    kin_parallel parallel; /* for these; NULL: one thread */
} kin_blas;

/* What the elements of a matrix are. Those of half precision are only for our own products. */
typedef enum { KIN_MATRIX_FLOAT, KIN_MATRIX_BFLOAT, KIN_MATRIX_HALF } kin_matrix_form;

/* A matrix in memory; strides in elements. */
typedef struct {
    const void *data;
    int64_t rows, columns, row_stride, column_stride;
    uint8_t form; /* kin_matrix_form */
} kin_matrix;

static inline int64_t
kin_matrix_element(const kin_matrix *x)
{
    return x->form == KIN_MATRIX_FLOAT ? 4 : 2;
}

/* Code that is run on each block of a product's result as soon as it is done: rows [begin, end) of `buffers`, columns in the window that
 * it finds behind them (two int64_t: from, to; multiples of 32 or the end). It knows `columns` of them; where the result's rows are longer, a
 * multiple of 32 times so, it reads each at the same place of all parts. Returns 0 when all went well. */
typedef struct {
    int (*fn)(void *const *buffers, int64_t begin, int64_t end, const int64_t *numbers);
    const int64_t *numbers;
    void *const *buffers;
    uint32_t nbuffers; /* KIN_EPILOGUE_BUFFERS at most */
    int64_t columns;
} kin_epilogue;
enum { KIN_EPILOGUE_BUFFERS = 63 };
/* False: it failed. */
bool kin_epilogue_run(const kin_epilogue *e, int64_t row, int64_t rows, int64_t column, int64_t columns);

typedef struct kin_packed kin_packed; /* b, in a form of its own */

/* Can BLAS read it as it lies? One stride has to be 1, the other at least the length of what lies together. */
bool kin_gemm_reads(const kin_matrix *x);
/* Do we do a product of m rows with b ourselves? Then matrices may lie in any way. packed: b is. */
bool kin_gemm_is_own(const kin_blas *blas, int64_t m, const kin_matrix *b, bool packed);
/* Is packing b worth it for so many rows? */
bool kin_gemm_wants_packed(const kin_blas *blas, int64_t m, const kin_matrix *b);
/* For products with m rows; KIN_GEMM_ANY_ROWS: in our own form (kin_tile_here()), which serves all numbers of rows. NULL without memory. It does not change when b does:
 * pack again. */
enum { KIN_GEMM_ANY_ROWS = 0 };
kin_packed *kin_gemm_pack(const kin_blas *blas, int64_t m, const kin_matrix *b);
/* Do we do this product ourselves, with b packed or as it is (NULL)? A packed form is for those who made it, whatever is preferred now. */
bool kin_gemm_runs_own(const kin_blas *blas, const kin_matrix *a, const kin_matrix *b, const kin_packed *packed);
void kin_gemm_pack_again(const kin_blas *blas, kin_packed *packed, const kin_matrix *b);
size_t kin_gemm_packed_bytes(const kin_packed *packed);
void kin_gemm_free(kin_packed *packed);
/* c [m, n], row-major without gaps, = a b. What a has to be where b is of half precision: gemm_blocked.h. With `packed`, only the sizes of b are read. then: may be NULL. False without memory, or
 * when `then` failed. */
bool kin_gemm(const kin_blas *blas, const kin_matrix *a, const kin_matrix *b, const kin_packed *packed, float *c,
              const kin_epilogue *then);

#endif
