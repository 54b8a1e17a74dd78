/* Splits long reductions with few results into two stages (split.c). */
#ifndef KIN_IR_SPLIT_H
#define KIN_IR_SPLIT_H

#include "core/ir/ir.h"

/* Is there anything to be done? */
bool kin_ir_splits(const kin_ir *p);
/* The same program with long reductions split; NULL when memory was short. */
kin_ir *kin_ir_split(const kin_ir *p);

#endif
