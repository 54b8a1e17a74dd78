/* What an instruction does, in the same terms for every CPython version. Rules, replay and everything above them only use these
 * operations; names and numbers of one version's opcodes stay in this folder, py/compat and py/watch.
 *
 * An instruction is a sequence of up to three operations: none for those that move no value (NOP, RESUME, plain jumps), two for
 * LOAD_FAST_LOAD_FAST of 3.13 or RETURN_CONST of 3.12. Its main operation is the one that can fail and whose result stays.
 *
 *     const kin_instr *in = kin_code_at(code, offset);
 *     for (int i = 0; i < in->ndoes; i++) switch ((kin_canon)in->does[i].op) { case KIN_DO_LOAD_LOCAL: ... in->does[i].arg
 *
 * canon.def lists the operations with their operands, native.def says what each opcode does.
 */
#ifndef KIN_BYTECODE_CANON_H
#define KIN_BYTECODE_CANON_H

#include <stdbool.h>
#include <stdint.h>

typedef enum {
#define CANON(N, leaves, effect, operands) KIN_DO_##N,
#include "core/bytecode/canon.def"
#undef CANON
    KIN_DO__COUNT
} kin_canon;

/* Operators with two operands, numbered as all versions of CPython number them. */
typedef enum {
    KIN_BINARY_ADD, KIN_BINARY_AND, KIN_BINARY_FLOOR_DIVIDE, KIN_BINARY_LSHIFT, KIN_BINARY_MATRIX_MULTIPLY, KIN_BINARY_MULTIPLY,
    KIN_BINARY_REMAINDER, KIN_BINARY_OR, KIN_BINARY_POWER, KIN_BINARY_RSHIFT, KIN_BINARY_SUBTRACT, KIN_BINARY_TRUE_DIVIDE,
    KIN_BINARY_XOR,
    KIN_BINARY_INPLACE, /* from here on `a += b` and its like, in the same order */
    KIN_BINARY_INPLACE_ADD = KIN_BINARY_INPLACE, KIN_BINARY_INPLACE_AND, KIN_BINARY_INPLACE_FLOOR_DIVIDE, KIN_BINARY_INPLACE_LSHIFT,
    KIN_BINARY_INPLACE_MATRIX_MULTIPLY, KIN_BINARY_INPLACE_MULTIPLY, KIN_BINARY_INPLACE_REMAINDER, KIN_BINARY_INPLACE_OR,
    KIN_BINARY_INPLACE_POWER, KIN_BINARY_INPLACE_RSHIFT, KIN_BINARY_INPLACE_SUBTRACT, KIN_BINARY_INPLACE_TRUE_DIVIDE,
    KIN_BINARY_INPLACE_XOR
} kin_binary;

/* Flags of an action. */
enum {
    KIN_DO_BRANCH_ON_NONE = 1, /* the question is whether the operand is None, not whether it is true */
    KIN_DO_BRANCH_JUMPS_IF = 2, /* the jump is taken when the answer is yes */
    KIN_DO_BRANCH_KEEPS = 4,   /* the operand stays on the stack when the jump is taken */
    KIN_DO_CALLABLE_FIRST = 8, /* the callable lies under the slot for self, not above it */
    KIN_DO_NAMES_ON_STACK = 16,
    KIN_DO_KEEPS_ITERATOR = 32
};

typedef struct {
    uint8_t op; /* kin_canon */
    uint8_t flags;
    uint32_t arg, extra;
} kin_action;

enum { KIN_ACTIONS = 3 };

/* What an instruction leaves on the stack above the operands that stay. */
typedef enum {
    KIN_LEAVES_ONE, KIN_LEAVES_NOTHING,
    KIN_LEAVES_PAIR, /* an empty slot and a value, the value on top unless LEAVES_PAIR_EMPTY_LAST */
    KIN_LEAVES_PAIR_EMPTY_LAST,
    KIN_LEAVES_NEXT, KIN_LEAVES_MANY
} kin_leaves;

const char *kin_canon_name(kin_canon op);

#endif
