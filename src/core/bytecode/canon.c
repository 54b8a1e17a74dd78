/* Translates opcodes into canonical operations. canon.def says what an opcode does; this file handles what needs more than its own oparg: the
 * keyword names of a call, and the destinations of jumps that skip the instruction they point to. */
#include "core/bytecode/canon.h"

#include <stddef.h>

#include "core/bytecode/bytecode.h"
#include "core/bytecode/bytecode_priv.h"

static const char *const names[] = {
#define CANON(N, leaves, effect, operands) #N,
#include "core/bytecode/canon.def"
};

#define NAMES(NAME, symbol, text) {symbol, symbol "=", text, "i" text, "__" text "__", "__r" text "__"},
static const kin_operator binaries[] = {
#define BINARY NAMES
#include "core/bytecode/operators.def"
}, compares[] = {
#define COMPARE NAMES
#include "core/bytecode/operators.def"
}, unaries[] = {
#define UNARY NAMES
#include "core/bytecode/operators.def"
};
#undef NAMES
#define PICK(operators, op) ((op) < sizeof(operators) / sizeof *(operators) ? &(operators)[op] : NULL)

const kin_operator *kin_binary_operator(unsigned op) { return PICK(binaries, op); }
const kin_operator *kin_compare_operator(unsigned op) { return PICK(compares, op); }
const kin_operator *kin_unary_operator(unsigned op) { return PICK(unaries, op); }

const char *
kin_canon_name(kin_canon op)
{
    return op < KIN_DO__COUNT ? names[op] : "nothing";
}

/* ---- what an opcode does ---------------------------------------------------------------------------------- */

/* Numbers of CPython's own that appear as opargs: NB_SUBSCR of 3.14, INTRINSIC_PREP_RERAISE_STAR, and the functions with one operand. */
enum { SUBSCRIPT = 26, JOIN_GROUP = 1 };
enum {
    INTRINSIC_INVALID, INTRINSIC_PRINT, INTRINSIC_IMPORT_STAR, INTRINSIC_STOPITERATION_ERROR, INTRINSIC_ASYNC_GEN_WRAP,
    INTRINSIC_UNARY_POSITIVE, INTRINSIC_LIST_TO_TUPLE
};

enum {
    IF_FALSE = 0,
    IF_TRUE = KIN_DO_BRANCH_JUMPS_IF,
    IF_NONE = KIN_DO_BRANCH_ON_NONE | KIN_DO_BRANCH_JUMPS_IF,
    IF_NOT_NONE = KIN_DO_BRANCH_ON_NONE
};

static int
emit(kin_instr *in, kin_canon op, uint32_t arg, uint32_t extra, unsigned flags)
{
    in->does[in->ndoes++] = (kin_action){.op = (uint8_t)op, .flags = (uint8_t)flags, .arg = arg, .extra = extra};
    return 0;
}

#define AND ,
#define NOTHING 0
#define UNKNOWN emit(in, KIN_DO_UNKNOWN, 0, 0, 0)
#define WITH(op, arg, extra, flags) emit(in, KIN_DO_##op, arg, extra, flags)
#define ONE(op, arg) WITH(op, arg, 0, 0)
#define BRANCH(flags) WITH(BRANCH, 0, 0, flags)

static int
intrinsic(kin_instr *in, uint32_t number)
{
    switch (number) {
    case INTRINSIC_PRINT: return ONE(PRINT, 0);
    case INTRINSIC_IMPORT_STAR: return ONE(IMPORT_ALL, 0);
    case INTRINSIC_STOPITERATION_ERROR: return ONE(CONVERT_STOP_ITERATION, 0);
    case INTRINSIC_ASYNC_GEN_WRAP: return ONE(WRAP_ASYNC_YIELD, 0);
    case INTRINSIC_UNARY_POSITIVE: return ONE(POSITIVE, 0);
    case INTRINSIC_LIST_TO_TUPLE: return ONE(LIST_TO_TUPLE, 0);
    default: return ONE(MAKE_TYPE_PARAMETER, number);
    }
}

static void
translate(kin_instr *in, kin_py_version v)
{
    const uint32_t a = in->oparg;
    const unsigned order = v >= KIN_PY313 ? KIN_DO_CALLABLE_FIRST : 0;
    switch ((kin_op)in->op) {
#define NATIVE(N, actions)   \
    case KIN_OP_##N:         \
        (void)(actions);     \
        break;
#include "core/bytecode/canon.def"
    case KIN_OP_NONE:
    case KIN_OP__COUNT:
        break;
    }
}

/* ---- instructions ------------------------------------------------------------------------------------------ */

/* At its end an iterator is taken from the stack, and the evaluator goes on behind the instructions that are there for
 * tools that watch each instruction: END_FOR of 3.12, END_FOR and POP_TOP of 3.13, END_FOR of 3.14. */
static uint32_t
target_of(const kin_instr *in, kin_py_version v)
{
    uint32_t target = kin_instr_target(in, v);
    if (in->op == KIN_OP_FOR_ITER && v >= KIN_PY312)
        return target + (v == KIN_PY313 ? 4 : 2);
    return target;
}

static uint8_t
main_of(const kin_instr *in)
{
    uint8_t last = in->ndoes > 0 ? in->ndoes - 1 : 0;
    return last > 0 && in->does[last].op == KIN_DO_PUSH_EMPTY ? last - 1 : last;
}

/* The keyword names of a call live in the evaluator between the instruction that sets them and the call: nobody can go on in
 * between. */
typedef struct {
    uint32_t names; /* 1 + index of the constant; 0: none */
    uint32_t from;  /* offset of the instruction that set them */
} call_names;

static void
join_call(kin_instr *in, call_names *c)
{
    in->prepares = in->op == KIN_OP_KW_NAMES || in->op == KIN_OP_PRECALL;
    if (in->op == KIN_OP_KW_NAMES)
        *c = (call_names){in->oparg + 1, in->offset};
    if (c->names != 0)
        in->resume = c->from;
    if (in->op == KIN_OP_CALL)
        in->does[in->main].extra = c->names;
    if (!in->prepares)
        c->names = 0;
}

void
kin_code_find_actions(kin_code *c)
{
    call_names call = {0};
    for (uint32_t i = 0; i < c->ninstr; i++) {
        kin_instr *in = &c->instrs[i];
        in->ndoes = 0;
        translate(in, c->version);
        in->main = main_of(in);
        in->target = target_of(in, c->version);
        in->resume = in->offset;
        join_call(in, &call);
    }
}

kin_leaves
kin_instr_leaves(const kin_instr *in)
{
    static const uint8_t leaves[] = {
#define CANON(N, what, effect, operands) KIN_LEAVES_##what,
#include "core/bytecode/canon.def"
    };
    if (in->ndoes == 0)
        return in->target == UINT32_MAX ? KIN_LEAVES_NOTHING : KIN_LEAVES_MANY;
    kin_action main = kin_instr_main(in);
    if (in->ndoes == 2 && in->does[1].op == KIN_DO_PUSH_EMPTY)
        return KIN_LEAVES_PAIR_EMPTY_LAST;
    if (in->ndoes == 2 && in->does[0].op == KIN_DO_PUSH_EMPTY)
        return KIN_LEAVES_PAIR;
    if (in->ndoes > 1 && in->does[0].op != KIN_DO_UNBIND_METHOD)
        return KIN_LEAVES_MANY;
    if (leaves[main.op] == KIN_LEAVES_PAIR && main.flags & KIN_DO_CALLABLE_FIRST)
        return KIN_LEAVES_PAIR_EMPTY_LAST;
    return (kin_leaves)leaves[main.op];
}

static int
effect_of(kin_action action)
{
    const int a = (int)action.arg, e = (int)action.extra;
    const unsigned f = action.flags;
    switch ((kin_canon)action.op) {
#define CANON(N, leaves, effect, operands) \
    case KIN_DO_##N:                       \
        return effect;
#include "core/bytecode/canon.def"
    case KIN_DO__COUNT:
        break;
    }
    return INT32_MIN;
}

int
kin_instr_effect(const kin_instr *in)
{
    int sum = 0;
    for (int i = 0; i < in->ndoes; i++) {
        int one = effect_of(in->does[i]);
        if (one == INT32_MIN)
            return INT32_MIN;
        sum += one;
    }
    return sum;
}

const char *
kin_instr_name(const kin_instr *in)
{
    return kin_op_name((kin_op)in->op);
}
