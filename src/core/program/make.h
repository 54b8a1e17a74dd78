/* Building a kin_program, for core/fuse, core/codegen and py/launch. */
#ifndef KIN_PROGRAM_MAKE_H
#define KIN_PROGRAM_MAKE_H

#include "core/program/program.h"

kin_program *kin_program_new(void);
/* Zeroed memory that lives as long as the program; NULL when there is none. */
void *kin_program_alloc(kin_program *p, size_t bytes);
/* Gives every TEMP buffer its place and fills last_use, once operations are there. */
kin_status kin_program_plan(kin_program *p) KIN_MUST_CHECK;

/* Do two temporary buffers that are needed at the same time share memory, or does one lie outside of the arena (verify.c)? False with `why`. */
bool kin_program_verify(const kin_program *p, kin_text *why);

#endif
