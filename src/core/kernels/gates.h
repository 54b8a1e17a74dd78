/* What recurrent layers do to rows of their gates: AVX-512. Functions are as exact as those of kernels (1 to 3 ulp), NaNs stay. */
#ifndef KIN_KERNELS_GATES_H
#define KIN_KERNELS_GATES_H

#include <stdbool.h>
#include <stdint.h>

/* to [columns] = (or +=) a [k] times a matrix in panels (tile.h): several of them at once, as one has too few sums to keep the processor busy. `to`
 * has nothing behind its columns. */
void kin_gates_multiply_row(int64_t columns, int64_t k, const float *a, const float *panels, float *to, bool add);

/* gates: i, f, g, o, each n numbers. c becomes the new one. */
void kin_gates_lstm(int64_t n, const float *gates, float *c, float *to);
/* from, gates: r, z, n of the input and of the step before; bias (or NULL) belongs to the latter n. */
void kin_gates_gru(int64_t n, const float *from, const float *gates, const float *bias, const float *before, float *to);
void kin_gates_tanh(int64_t n, const float *gates, float *to);
void kin_gates_relu(int64_t n, const float *gates, float *to);

#endif
