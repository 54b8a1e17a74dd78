/* What depends on the processor family that code is compiled for: one row for each, of which the build takes its own (target.c). */
#ifndef KIN_CODEGEN_TARGET_H
#define KIN_CODEGEN_TARGET_H

#include <stdint.h>

#include "core/codegen/emit.h"

#ifdef KIN_LLVM
typedef struct {
    const char *triple;
    const char *stream_fence; /* intrinsic that orders streaming stores before what follows; NULL: the join of the threads does */
    void (*start)(void);      /* makes LLVM's backend known, once a process */
    const char *(*features_of)(const char *cpu); /* of processors named in tests and for other machines */
    void (*describe)(const char *features, kin_machine *out);
} kin_target;

extern const kin_target kin_target_here;
#endif
#endif
