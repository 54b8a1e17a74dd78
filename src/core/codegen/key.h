/* A kernel's loops as bytes: equal bytes are the same kernel, and everything that code generation looks at is in them. */
#ifndef KIN_CODEGEN_KEY_H
#define KIN_CODEGEN_KEY_H

#include "core/diag/text.h"
#include "core/fuse/loops.h"

/* False without memory. */
bool kin_loops_key(const kin_loops *k, kin_text *key);

#endif
