/* Shared by the builder and the parser. */
#ifndef KIN_IR_IR_PRIV_H
#define KIN_IR_IR_PRIV_H

#include "core/ir/ir.h"

/* A node as it stands: op, dtype, ndim, nargs, nattrs, value and name from `like`, the arrays with these lengths. */
kin_irn kin_ir_push(kin_ir *p, const kin_ir_node *like, const kin_irn *args, const int64_t *sizes, const int64_t *attrs);
/* The offset of a copy of `text` in p->texts. */
uint32_t kin_ir_add_text(kin_ir *p, const char *text);

#endif
