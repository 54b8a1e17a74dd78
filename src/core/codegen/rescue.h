/* LLVM terminates the process when it meets something that it cannot compile, or runs out of memory. Within kin_rescue_run it does not: the
 * compilation ends there, and what it had allocated is leaked.
 */
#ifndef KIN_CODEGEN_RESCUE_H
#define KIN_CODEGEN_RESCUE_H

#include <stdbool.h>
#include <stddef.h>

#include "core/diag/text.h"

typedef enum {
    KIN_RESCUE_DONE,
    KIN_RESCUE_FAILED,  /* with `why`; what `work` used of LLVM is not to be used again */
    KIN_RESCUE_MEMORY   /* no memory; LLVM is not used again in this process, as one of its locks may be held for good */
} kin_rescue;

kin_rescue kin_rescue_run(void (*work)(void *arg), void *arg, kin_text *why);

/* For tests: what LLVM does when something is wrong. */
void kin_rescue_provoke(kin_rescue what);

#endif
