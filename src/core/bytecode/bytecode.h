/* CPython bytecode as data: decoding, stack depths, exception handlers. Knows no Python objects; every build understands every CPython version
 * listed here.
 *
 *     kin_code c;
 *     KIN_TRY(kin_code_init(&c, KIN_PY311, bytes, nbytes, table, ntable));   // co_code, co_exceptiontable
 *     const kin_instr *in = kin_code_at(&c, offset);                         // offset as the watcher reports it
 *     for (int i = 0; i < in->ndoes; i++) ... in->does[i] ...                // canon.h
 *     offset = in->next;
 *     kin_code_deinit(&c);
 *
 * `bytes` is the plain bytecode (what `co_code` shows), never the specialised one. Nothing keeps a pointer to the
 * input. Opcode names are one enum for all versions; their numbers differ between versions, and so does their meaning.
 * So code outside this folder, py/compat and py/watch uses what instructions do (`does`), never their names.
 */
#ifndef KIN_BYTECODE_BYTECODE_H
#define KIN_BYTECODE_BYTECODE_H

#include <stdbool.h>
#include <stdint.h>

#include "core/base/status.h"
#include "core/bytecode/canon.h"

typedef enum {
    KIN_OP_NONE, /* not an opcode of this version */
#define NAME(N) KIN_OP_##N,
#include "core/bytecode/gen/names.inc"
#undef NAME
    KIN_OP__COUNT
} kin_op;

typedef enum { KIN_PY311 = 311, KIN_PY312 = 312, KIN_PY313 = 313, KIN_PY314 = 314, KIN_PY_NEWEST = KIN_PY314 } kin_py_version;

typedef struct {
    uint16_t op;        /* kin_op */
    uint8_t native;     /* number in this version */
    uint32_t oparg;     /* EXTENDED_ARG folded in */
    uint32_t offset;    /* byte offset of the first prefix, or of the opcode when there is none */
    uint32_t op_offset; /* byte offset of the opcode itself */
    uint32_t next;      /* byte offset after the inline caches */
    int32_t depth;      /* operand stack entries before it executes; -1 = unreachable */
    kin_action does[KIN_ACTIONS];
    uint8_t ndoes, main; /* main: index of the one that can fail and whose result stays; 0 without any */
    bool prepares;      /* belongs to the call behind it, which it only prepares: a frame stands at that call */
    uint32_t resume;    /* where a frame goes on to run it from its beginning: what prepares a call is done again */
    uint32_t target;    /* where it goes on when it jumps; UINT32_MAX when it is no jump */
} kin_instr;

/* One row of the exception table: offsets in [start, end) are handled at `target` with the stack cut to `depth`. */
typedef struct {
    uint32_t start, end, target;
    uint32_t depth;
    bool lasti; /* the offset that raised is pushed below the exception */
} kin_handler;

typedef struct {
    kin_py_version version;
    uint32_t ninstr, nbytes, nhandlers;
    kin_instr *instrs;
    uint32_t *by_unit; /* code unit -> index of the instruction it belongs to (prefixes and caches included) */
    kin_handler *handlers;
} kin_code;

/* KIN_BREAK: the bytes are no bytecode of that version, or depths contradict each other. `c` needs no deinit then. */
kin_status kin_code_init(kin_code *c, kin_py_version version, const uint8_t *bytes, uint32_t nbytes,
                         const uint8_t *table, uint32_t ntable) KIN_MUST_CHECK;
void kin_code_deinit(kin_code *c);
/* The number of the first opcode that the tables of that version do not have; -1: they have all. */
int kin_code_find_unknown(kin_py_version version, const uint8_t *bytes, uint32_t nbytes);

/* The instruction that the byte offset belongs to (its prefixes and caches included); NULL behind the end. */
static inline const kin_instr *
kin_code_at(const kin_code *c, uint32_t offset)
{
    return offset < c->nbytes ? &c->instrs[c->by_unit[offset / 2]] : 0;
}

/* Offset of the next instruction in the text; nbytes at the end. */
static inline uint32_t
kin_code_next(const kin_code *c, uint32_t offset)
{
    const kin_instr *in = kin_code_at(c, offset);
    return in ? in->next : c->nbytes;
}

/* Operand stack entries before the instruction at `offset`; -1 when no path leads to it. */
static inline int
kin_code_depth(const kin_code *c, uint32_t offset)
{
    const kin_instr *in = kin_code_at(c, offset);
    return in ? in->depth : -1;
}

/* Who handles an exception raised at `offset`; NULL when it leaves the frame. */
const kin_handler *kin_code_handler(const kin_code *c, uint32_t offset);

/* Is there a handler that the program has written? From 3.12 on the compiler puts one of its own around the body of each generator, which
 * only makes a RuntimeError of a StopIteration, and around each `yield from`. */
bool kin_code_is_guarded(const kin_code *c, uint32_t offset);
/* Do the handlers of an exception that is raised at `offset`, and that none of them is for, only compare it with classes that globals name? How many
 * names these are, with their numbers in `names`; -1: the handlers may do something else, or there are more than `most`. */
int kin_code_compares(const kin_code *c, uint32_t offset, uint32_t *names, int most);
/* Does the instruction call the __enter__ of a with statement? From 3.14 on an ordinary call does, behind the one that looks the method up. */
bool kin_code_enters_block(const kin_code *c, uint32_t offset);

/* The instruction that begins at the offset, behind what prepares it. */
static inline const kin_instr *
kin_code_acting(const kin_code *c, uint32_t offset)
{
    const kin_instr *in = kin_code_at(c, offset);
    while (in != 0 && in->prepares)
        in = kin_code_at(c, in->next);
    return in;
}

/* The main action; of an instruction that does nothing, an action without a meaning (KIN_DO__COUNT). */
static inline kin_action
kin_instr_main(const kin_instr *in)
{
    return in->ndoes > 0 ? in->does[in->main] : (kin_action){.op = KIN_DO__COUNT};
}

/* Is the result of the operator made a bool, as the operand of a branch has to be one? */
static inline bool
kin_instr_makes_bool(const kin_instr *in)
{
    kin_action main = kin_instr_main(in);
    return main.op == KIN_DO_COMPARE && main.extra != 0;
}

kin_leaves kin_instr_leaves(const kin_instr *in);
/* Change of the stack depth when it does not jump; INT32_MIN when unknown. */
int kin_instr_effect(const kin_instr *in);
const char *kin_instr_name(const kin_instr *in); /* as the version calls it, for people */

/* The oparg of a jump followed, as the compiler means it: FOR_ITER leads to the END_FOR that the evaluator hops over (see
 * kin_instr.target). UINT32_MAX when it is no jump. */
uint32_t kin_instr_target(const kin_instr *in, kin_py_version version);
/* Can execution go on at in->next? (false: return, raise, unconditional jump) */
bool kin_op_falls_through(kin_op op);

/* Change of the stack depth; `jump`: along the branch of kin_instr_target. INT32_MIN when unknown. */
int kin_op_effect(kin_py_version version, kin_op op, uint32_t oparg, bool jump);

const char *kin_op_name(kin_op op);
/* kin_op of a native opcode number; KIN_OP_NONE when there is none. */
kin_op kin_op_from_native(kin_py_version version, uint8_t native);
/* Code units of inline caches behind it. */
unsigned kin_op_caches(kin_py_version version, uint8_t native);

#endif
