/* What an instruction does, in the same terms for every CPython version. Rules, replay and everything above them only use these
 * operations; names and numbers of one version's opcodes stay in this folder, py/compat and py/watch.
 *
 * An instruction is a sequence of up to three operations: none for those that move no value (NOP, RESUME, plain jumps), two for
 * LOAD_FAST_LOAD_FAST of 3.13 or RETURN_CONST of 3.12. Its main operation is the one that can fail and whose result stays.
 *
 *     const kin_instr *in = kin_code_at(code, offset);
 *     for (int i = 0; i < in->ndoes; i++) switch ((kin_canon)in->does[i].op) { case KIN_DO_LOAD_LOCAL: ... in->does[i].arg
 *
 * canon.def lists the operations with their operands, and says of which each opcode consists.
 */
#ifndef KIN_BYTECODE_CANON_H
#define KIN_BYTECODE_CANON_H

#include <stdbool.h>
#include <stdint.h>

typedef enum {
#define CANON(N, leaves, effect, operands) KIN_DO_##N,
#include "core/bytecode/canon.def"
    KIN_DO__COUNT
} kin_canon;

/* Operators with two operands. */
typedef enum {
#define BINARY(NAME, symbol, text) KIN_BINARY_##NAME,
#include "core/bytecode/operators.def"
    KIN_BINARY_INPLACE, /* from here on `a += b` and its like, in the same order */
    KIN_BINARY__BEFORE = KIN_BINARY_INPLACE - 1,
#define BINARY(NAME, symbol, text) KIN_BINARY_INPLACE_##NAME,
#include "core/bytecode/operators.def"
} kin_binary;

/* An operator as Python writes it, and the names it goes by: "+", "+=", "add", "iadd", "__add__", "__radd__". */
typedef struct {
    const char *symbol, *in_place_symbol, *text, *in_place, *method, *reflected;
} kin_operator;

/* NULL: there are not so many. */
const kin_operator *kin_binary_operator(unsigned op);  /* KIN_BINARY_ADD to KIN_BINARY_XOR */
const kin_operator *kin_compare_operator(unsigned op); /* Py_LT to Py_GE */
const kin_operator *kin_unary_operator(unsigned op);   /* KIN_UNARY_NEGATIVE to KIN_UNARY_INVERT */

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
