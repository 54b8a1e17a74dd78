/* Updates parts of inputs in their own memory (in_place.c). */
#ifndef KIN_IR_IN_PLACE_H
#define KIN_IR_IN_PLACE_H

#include "core/ir/ir.h"

enum { KIN_IR_LARGE_INPUT = 1 << 14 }; /* elements of an input that is not read and written as a whole because of a part */

/* Is a large input read and written as a whole because of an output that changes a part of it, and not where that is made? */
bool kin_ir_copies_large_input(const kin_ir *p);
/* The same program in which these outputs are `updates`; NULL when memory was short. */
kin_ir *kin_ir_update_in_place(const kin_ir *p);

#endif
