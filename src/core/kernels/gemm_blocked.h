/* Our matrix products, built from tiles (tile.h): blocks that fit the caches, panels of b, threads.
 *
 * Sums are float. If b is bfloat16 and the processor multiplies pairs of bfloat16 (kin_tile_has_pairs), a must be bfloat16 as well: two neighbouring elements
 * along k form a *word*, and everything below works on words as it works on floats. Otherwise a is float, and b of half
 * precision is converted to float in its panels.
 */
#ifndef KIN_KERNELS_GEMM_BLOCKED_H
#define KIN_KERNELS_GEMM_BLOCKED_H

#include "core/kernels/gemm.h"

/* Is b, for so many rows, better read as it lies than made into panels for one product? Reading it is what takes the time then. (Panels that are there
 * are read faster still.) */
bool kin_gemm_blocked_reads(int64_t rows, const kin_matrix *b);
/* Is b done by pairs? */
bool kin_gemm_blocked_pairs(const kin_matrix *b);
/* Floats that b takes as panels; they have to be 64-byte aligned. */
size_t kin_gemm_blocked_panels_len(const kin_matrix *b);
void kin_gemm_blocked_make_panels(const kin_matrix *b, float *panels);

/* count products: c[i] (ldc apart) = a[i] b[i], where operands i lie the given strides apart; strides of any kind. panels: of b, NULL: they
 * are made as needed, or not at all. */
typedef struct {
    kin_matrix a, b;
    const float *panels;
    float *c;
    int64_t ldc, count;
    int64_t a_step, b_step, c_step;
    const kin_epilogue *then; /* rows of all results are counted together; NULL: none */
} kin_gemm_blocked;
/* False without memory, or when `then` failed. */
bool kin_gemm_blocked_run(const kin_gemm_blocked *p, kin_parallel parallel);

/* gemm_turned.c: is it better made as b' a', and turned? kin_gemm_blocked_run asks, and has it done so. */
bool kin_gemm_turned_suits(const kin_gemm_blocked *p);
bool kin_gemm_turned_run(const kin_gemm_blocked *p, kin_parallel parallel);

#endif
