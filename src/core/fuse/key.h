/* A kernel's loops as bytes: kernels with equal bytes are the same, because everything that code generation reads is in them. The size of
 * the outermost variable usually is not: a kernel gets its range when it is called, so code that was compiled for
 * one length serves others.
 */
#ifndef KIN_FUSE_KEY_H
#define KIN_FUSE_KEY_H

#include "core/diag/text.h"
#include "core/fuse/loops.h"

/* open: the variable whose size the code does not depend on, UINT32_MAX: none. False without memory. */
bool kin_loops_key(const kin_loops *k, uint32_t open, kin_text *key);

#endif
