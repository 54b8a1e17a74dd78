/* Fusion: which nodes share a kernel. Takes a tensor program and returns a program whose kernels are still loops.
 *
 * Values are either *stored* (they get memory: outputs, arguments of extern calls, results of reductions, expensive values with
 * several readers) or computed wherever they are read. Each stored value is made by one or more
 * statements; statements form groups, and each group becomes a kernel. A value that only its own group reads is not
 * stored after all.
 */
#ifndef KIN_FUSE_FUSE_H
#define KIN_FUSE_FUSE_H

#include "core/fuse/loops.h"
#include "core/program/make.h"

typedef struct {
    kin_loops loops; /* arranged */
    uint32_t kernel; /* of the program: buffers and name are set, the rest is for code generation */
} kin_fused_kernel;

typedef struct {
    kin_program *program;
    KIN_VEC(kin_fused_kernel) kernels;
} kin_fused;

/* Requires that every output has a node of its own (kin_ir_own_outputs). The program's temporary buffers have no places yet
 * (kin_program_plan), its kernels no code. notes (may be NULL): a line for each fusion that was refused, with the reason.
 * KIN_BREAK with the node in `notes` when something cannot be expressed as loops. */
kin_status kin_fuse(const kin_ir *ir, bool varying, kin_fused *out, kin_text *notes) KIN_MUST_CHECK;
void kin_fused_deinit(kin_fused *f); /* not the program */
/* The program, then the loops of each kernel (print.c). */
bool kin_fused_print(const kin_fused *f, kin_text *out);
/* What code generation relies on (verify.c): loops refer to what is there, stay inside their buffers, and each operation of the program
 * reads what was made before it. False with `why`. */
bool kin_fused_verify(const kin_fused *f, kin_text *why);

#endif
