/* The library calls of compiled programs (core/kernels and libraries that torch brings), on tensors and memory. */
#ifndef KIN_PY_RUN_LIBRARY_H
#define KIN_PY_RUN_LIBRARY_H

#include "core/kernels/attention.h"
#include "core/kernels/convolution.h"
#include "core/kernels/convolution_weight.h"
#include "core/rewrite/rewrite.h"
#include "core/kernels/gemm_blocked.h"
#include "core/kernels/recurrent.h"
#include <Python.h>

typedef struct {
    kin_library_call call;
    PyObject *fixed; /* CONV by a library: tuple of stride, padding, dilation, groups */
} launch_library;

/* Is an operand used in packed form? What BLAS packs serves one number of rows: where those vary, each plan would have weights of its own, which takes long to
 * make, much memory, and the caches from the others. Our own form serves all. Filters of convolutions are packed as their input's sizes need it. */
typedef enum { LAUNCH_PACKS_NOT, LAUNCH_PACKS_ITS_ROWS, LAUNCH_PACKS_ANY_ROWS } launch_packs;

/* What a call keeps of its frozen operand; zeroed: nothing, the operand is read. */
typedef struct {
    kin_packed *matrix;
    PyObject *weight;
    float *panels; /* of a convolution of our own */
} launch_packed;

/* Do we draw the random numbers that torch draws here? (random.c) */
bool launch_knows_random(void);
/* Can such calls be done here? Asked before programs are rewritten to have them. */
bool launch_library_has(kin_library_kind kind);
/* Are products of float matrices done in core/kernels? (blas.c) */
bool launch_products_are_own(void);

/* NULL without memory; no exception. */
launch_library *launch_library_new(const kin_library_call *call);
void launch_library_free(launch_library *l);

/* c = a b, row-major; then: what is done to it (gemm.h), or NULL. Lets other Python threads run meanwhile when it takes long. False without
 * memory, or when `then` failed. */
bool launch_matmul(const kin_matrix *a, const kin_matrix *b, const launch_packed *packed, float *c, const kin_epilogue *then);
/* Several products, by ourselves. */
bool launch_products(const kin_gemm_blocked *p);
/* Lets other Python threads run meanwhile. False without memory. */
bool launch_attention(const kin_attention *x);
bool launch_recurrent(const kin_recurrent *x);
bool launch_recurrent_backward(const kin_recurrent_backward *x);
/* Ours; weight as in make_panels, read unless there are panels. False without memory. */
bool launch_convolution(const kin_library_call *call, kin_convolution *x, const void *weight, const int64_t *weight_strides, const launch_packed *packed);
bool launch_pack_filters(const kin_library_call *call, const kin_convolution *x, const void *weight, const int64_t *weight_strides, launch_packed *out, size_t *bytes);
/* The gradient of its filters. False without memory. */
bool launch_convolution_weight(const kin_convolution_weight *x);
/* A library's. New reference; NULL with an exception. `bias` and `added` may be NULL. */
PyObject *launch_conv(const launch_library *l, PyObject *x, PyObject *weight, PyObject *bias, PyObject *added);

/* What a matrix of such numbers is to products. */
kin_matrix_form launch_matrix_form(kin_dtype dtype);
/* How is the product fastest: with b as it is, or packed? varying: the same b meets several numbers of rows. */
launch_packs launch_matmul_packs(const kin_matrix *a, const kin_matrix *b, bool varying);
/* rows: KIN_GEMM_ANY_ROWS or the left side's. False (without an exception): it could not be packed. *bytes is what the packed form takes. */
bool launch_pack_matrix(int64_t rows, const kin_matrix *b, launch_packed *out, size_t *bytes);
bool launch_pack_weight(const launch_library *l, const int64_t *x_sizes, PyObject *weight, launch_packed *out, size_t *bytes);
void launch_packed_free(launch_packed *packed);

#endif
