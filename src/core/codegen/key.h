/* A kernel's loops as bytes: equal bytes are the same kernel, and everything that code generation looks at is in them. The size of
 * the outermost variable is mostly not: a kernel gets the range it is to do when it is called, so code that was made for
 * one length serves others.
 */
#ifndef KIN_CODEGEN_KEY_H
#define KIN_CODEGEN_KEY_H

#include "core/diag/text.h"
#include "core/fuse/loops.h"

/* open: the variable whose size the code does not depend on, UINT32_MAX: none. False without memory. */
bool kin_loops_key(const kin_loops *k, uint32_t open, kin_text *key);

#endif
