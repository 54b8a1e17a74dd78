/* Inputs of which a part is written, early (early.c). */
#ifndef KIN_IR_EARLY_H
#define KIN_IR_EARLY_H

#include "core/ir/ir.h"

enum { KIN_IR_LARGE_INPUT = 1 << 14 }; /* elements of an input that is not read and written as a whole because of a part */

/* Can output o, which goes into an input, be written there where it is made? It is that input with elements put into it, and nobody
 * wants the input as it was once they are there. */
bool kin_ir_is_early(const kin_ir *p, uint32_t o);
/* Is a large input read and written as a whole because of an output that changes a part of it, and not where that is made? */
bool kin_ir_copies_large_input(const kin_ir *p);
/* The same program in which these outputs are `early`; NULL when memory was short. */
kin_ir *kin_ir_write_early(const kin_ir *p);

#endif
