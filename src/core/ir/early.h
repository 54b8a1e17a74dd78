/* Inputs of which a part is written, early (early.c). */
#ifndef KIN_IR_EARLY_H
#define KIN_IR_EARLY_H

#include "core/ir/ir.h"

/* Can output o, which goes into an input, be written there where it is made? It is that input with elements put into it, and nobody
 * wants the input as it was once they are there. */
bool kin_ir_is_early(const kin_ir *p, uint32_t o);
/* The same program in which these outputs are `early`; NULL when memory was short. */
kin_ir *kin_ir_write_early(const kin_ir *p);

#endif
