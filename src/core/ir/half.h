/* The 16-bit floating-point formats, rounded to nearest, ties to even. */
#ifndef KIN_IR_HALF_H
#define KIN_IR_HALF_H

#include <stdint.h>

uint16_t kin_f16_from_float(float f);
float kin_f16_to_float(uint16_t h);
uint16_t kin_bf16_from_float(float f);
float kin_bf16_to_float(uint16_t h);

#endif
