/* The arithmetic on the gates of recurrent layers: AVX-512. Functions are as exact as those of kernels (1 to 3 ulp) and keep NaNs. */
#ifndef KIN_KERNELS_GATES_H
#define KIN_KERNELS_GATES_H

#include <stdbool.h>
#include <stdint.h>

/* to [columns] = (or +=) a [k] times a matrix in panels (tile.h): several of them at once, as one has too few sums to keep the processor busy. `to`
 * has nothing behind its columns. */
void kin_gates_multiply_row(int64_t columns, int64_t k, const float *a, const float *panels, float *to, bool add);

/* gates: i, f, g, o, each n numbers. c becomes the new one. kept: NULL, or takes what the way back needs: the gates' values and the new c. */
void kin_gates_lstm(int64_t n, const float *gates, float *c, float *to, float *kept);
/* from, gates: r, z, n of the input and of the step before; bias (or NULL) belongs to the latter n. kept: NULL, or takes the values of r, z, n and
 * what r was multiplied with. */
void kin_gates_gru(int64_t n, const float *from, const float *gates, const float *bias, const float *before, float *to, float *kept);
void kin_gates_tanh(int64_t n, const float *gates, float *to);
void kin_gates_relu(int64_t n, const float *gates, float *to);

/* The way back through one step, from `h`, the gradient of its result, and what it kept. c: the gradient of the new c, which becomes that of c_before.
 * to: of i, f, g, o as the products gave them. */
void kin_gates_lstm_backward(int64_t n, const float *kept, const float *c_before, const float *h, float *c, float *to);
/* h becomes the part of the gradient of `before` that comes by no product. Of r, z, n, to_input as the input's product gave them, to_state as the other one. */
void kin_gates_gru_backward(int64_t n, const float *kept, const float *before, float *h, float *to_input, float *to_state);

#endif
