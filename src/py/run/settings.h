/* Process-wide settings for running compiled code. */
#ifndef KIN_PY_RUN_SETTINGS_H
#define KIN_PY_RUN_SETTINGS_H

#include <stdbool.h>
#include <stdint.h>

/* For tests: 0 does products through BLAS, 1 in core/kernels where the processor can, less as measured (blas.c). Returns whether they are our own now. */
bool kin_launch_set_products(int own);
/* Percent of the free memory that may be taken at a time to keep what is made of weights; where it does not fit, launches compute
 * from the weights as they lie. */
void kin_launch_set_weights_room(uint32_t percent);
/* Notes how long operations of launches take, or no longer; reports tell (kin_launch_describe). */
void kin_launch_set_profile(bool on);

#endif
