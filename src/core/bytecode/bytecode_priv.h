/* Private to src/core/bytecode. */
#ifndef KIN_BYTECODE_BYTECODE_PRIV_H
#define KIN_BYTECODE_BYTECODE_PRIV_H

#include "core/bytecode/bytecode.h"

/* Fills in kin_instr.depth of decoded code; KIN_BREAK when two paths disagree or a jump misses. */
kin_status kin_code_compute_depths(kin_code *c) KIN_MUST_CHECK;

/* Fills in what the instructions do (kin_instr.does to kin_instr.target). */
void kin_code_find_actions(kin_code *c);

#endif
