/* Outputs that share a node with another output or with an input get a node of their own (outputs.c). */
#ifndef KIN_IR_OUTPUTS_H
#define KIN_IR_OUTPUTS_H

#include "core/ir/ir.h"

/* The same program in which every output that must be memory of its own is a node of its own, and every output that goes into an
 * input two, the first for readers of the new value before it is written. NULL when memory was short. */
kin_ir *kin_ir_own_outputs(const kin_ir *p);

#endif
