/* What opcodes of each CPython version do in canonical operations (src/core/bytecode/canon.def): complete, with the same effect
 * on the stack as the opcode itself, and the differences between versions gone. */
#include "core/bytecode/bytecode.h"

#include "check.h"
#include <stdlib.h>

static int
native(kin_py_version version, kin_op op)
{
    for (int i = 0; i < 256; i++)
        if (kin_op_from_native(version, (uint8_t)i) == op)
            return i;
    return -1;
}

typedef struct {
    kin_py_version version;
    uint8_t bytes[256];
    uint32_t n;
} program;

static void
put(program *p, kin_op op, uint8_t oparg)
{
    int number = native(p->version, op);
    CHECK(number >= 0);
    p->bytes[p->n] = (uint8_t)number;
    p->bytes[p->n + 1] = oparg;
    p->n += 2 + 2 * kin_op_caches(p->version, (uint8_t)number);
}

/* Instructions behind a return: nothing leads there, so any may stand there. */
static program
unreachable(kin_py_version version)
{
    program p = {.version = version};
    put(&p, KIN_OP_LOAD_CONST, 0);
    put(&p, KIN_OP_RETURN_VALUE, 0);
    return p;
}

static kin_code
decoded(const program *p)
{
    kin_code c;
    CHECK_EQ(kin_code_init(&c, p->version, p->bytes, p->n, NULL, 0), KIN_OK);
    return c;
}

/* One instruction of that version, as a copy. */
static kin_instr
one(kin_py_version version, kin_op op, uint8_t oparg)
{
    program p = unreachable(version);
    uint32_t at = p.n;
    put(&p, op, oparg);
    kin_code c = decoded(&p);
    kin_instr in = *kin_code_at(&c, at);
    kin_code_deinit(&c);
    return in;
}

static void
check_action(kin_action action, kin_canon op, uint32_t arg, uint32_t extra, unsigned flags)
{
    CHECK_STR(kin_canon_name((kin_canon)action.op), kin_canon_name(op));
    CHECK_EQ(action.arg, arg);
    CHECK_EQ(action.extra, extra);
    CHECK_EQ(action.flags, flags);
}

static bool
is_unknown(const kin_instr *in)
{
    return in->ndoes == 1 && in->does[0].op == KIN_DO_UNKNOWN;
}

/* Opargs that the compiler writes for it. */
static bool
is_written(kin_op op, uint32_t oparg)
{
    switch (op) {
    case KIN_OP_BUILD_SLICE: return oparg == 2 || oparg == 3;
    case KIN_OP_FORMAT_VALUE: return oparg < 8;
    case KIN_OP_MAKE_FUNCTION: return oparg < 16;
    case KIN_OP_RAISE_VARARGS: return oparg < 3;
    case KIN_OP_CALL_INTRINSIC_1: return oparg > 0 && oparg < 12;
    case KIN_OP_CALL_INTRINSIC_2: return oparg > 0 && oparg < 6;
    case KIN_OP_RETURN_VALUE: return false; /* 3.14 counts what the caller gets as well */
    default: return true;
    }
}

static void
test_effects_are_those_of_the_opcodes(void)
{
    for (kin_py_version v = KIN_PY311; v <= KIN_PY_NEWEST; v++)
        for (int number = 0; number < 256; number++) {
            kin_op op = kin_op_from_native(v, (uint8_t)number);
            if (op == KIN_OP_NONE || op == KIN_OP_EXTENDED_ARG)
                continue;
            for (uint32_t oparg = 0; oparg < 256; oparg += oparg < 32 ? 1 : 37) {
                kin_instr in = one(v, op, (uint8_t)oparg);
                if (is_unknown(&in) || !is_written(op, oparg))
                    continue;
                if (kin_instr_effect(&in) != kin_op_effect(v, op, oparg, false))
                    fprintf(stderr, "%s of %d with %u\n", kin_op_name(op), v, (unsigned)oparg);
                CHECK_EQ(kin_instr_effect(&in), kin_op_effect(v, op, oparg, false));
            }
        }
}

/* Every instruction that the watcher can report has a canonical form. */
static void
test_all_have_a_form(void)
{
    for (kin_py_version v = KIN_PY311; v <= KIN_PY_NEWEST; v++)
        for (int number = 0; number < 256; number++) {
            kin_op op = kin_op_from_native(v, (uint8_t)number);
            if (op == KIN_OP_NONE || op == KIN_OP_EXTENDED_ARG)
                continue;
            kin_instr in = one(v, op, 0);
            bool seen = op != KIN_OP_RETURN_GENERATOR && op != KIN_OP_INTERPRETER_EXIT && op != KIN_OP_ENTER_EXECUTOR &&
                        op != KIN_OP_EXIT_INIT_CHECK && op != KIN_OP_RESERVED;
            CHECK_EQ(is_unknown(&in), !seen);
        }
}

static void
test_one_instruction_two_actions(void)
{
    kin_instr in = one(KIN_PY313, KIN_OP_LOAD_FAST_LOAD_FAST, 0x25);
    CHECK_EQ(in.ndoes, 2);
    check_action(in.does[0], KIN_DO_LOAD_LOCAL, 2, 0, 0);
    check_action(in.does[1], KIN_DO_LOAD_LOCAL, 5, 0, 0);
    in = one(KIN_PY313, KIN_OP_STORE_FAST_LOAD_FAST, 0x31);
    check_action(in.does[0], KIN_DO_STORE_LOCAL, 3, 0, 0);
    check_action(in.does[1], KIN_DO_LOAD_LOCAL, 1, 0, 0);
    in = one(KIN_PY312, KIN_OP_RETURN_CONST, 7);
    CHECK_EQ(in.ndoes, 2);
    check_action(in.does[0], KIN_DO_LOAD_CONST, 7, 0, 0);
    check_action(kin_instr_main(&in), KIN_DO_RETURN, 0, 0, 0);
    in = one(KIN_PY311, KIN_OP_RESUME, 0);
    CHECK_EQ(in.ndoes, 0);
    CHECK_EQ(kin_instr_main(&in).op, KIN_DO__COUNT);
    CHECK_EQ(kin_instr_leaves(&in), KIN_LEAVES_NOTHING);
}

static void
test_empty_slot_of_calls(void)
{
    kin_instr in = one(KIN_PY311, KIN_OP_LOAD_GLOBAL, 3 << 1 | 1);
    check_action(in.does[0], KIN_DO_PUSH_EMPTY, 0, 0, 0);
    check_action(kin_instr_main(&in), KIN_DO_LOAD_GLOBAL, 3, 0, 0);
    CHECK_EQ(kin_instr_leaves(&in), KIN_LEAVES_PAIR);
    in = one(KIN_PY313, KIN_OP_LOAD_GLOBAL, 3 << 1 | 1);
    check_action(in.does[1], KIN_DO_PUSH_EMPTY, 0, 0, 0);
    check_action(kin_instr_main(&in), KIN_DO_LOAD_GLOBAL, 3, 0, 0);
    CHECK_EQ(kin_instr_leaves(&in), KIN_LEAVES_PAIR_EMPTY_LAST);
    in = one(KIN_PY311, KIN_OP_LOAD_METHOD, 4);
    check_action(in.does[0], KIN_DO_LOAD_METHOD, 4, 0, 0);
    in = one(KIN_PY312, KIN_OP_LOAD_ATTR, 4 << 1 | 1);
    check_action(in.does[0], KIN_DO_LOAD_METHOD, 4, 0, 0);
    CHECK_EQ(kin_instr_leaves(&in), KIN_LEAVES_PAIR);
    in = one(KIN_PY313, KIN_OP_LOAD_ATTR, 4 << 1 | 1);
    check_action(in.does[0], KIN_DO_LOAD_METHOD, 4, 0, KIN_DO_CALLABLE_FIRST);
    CHECK_EQ(kin_instr_leaves(&in), KIN_LEAVES_PAIR_EMPTY_LAST);
    in = one(KIN_PY311, KIN_OP_LOAD_ATTR, 4);
    check_action(in.does[0], KIN_DO_LOAD_ATTR, 4, 0, 0);
}

/* f(a, k=b) with the keyword names in constant 2. */
static void
test_calls(void)
{
    program p = unreachable(KIN_PY311);
    uint32_t names = p.n;
    put(&p, KIN_OP_KW_NAMES, 2);
    uint32_t precall = p.n;
    put(&p, KIN_OP_PRECALL, 2);
    uint32_t call = p.n;
    put(&p, KIN_OP_CALL, 2);
    uint32_t plain = p.n;
    put(&p, KIN_OP_PRECALL, 1);
    put(&p, KIN_OP_CALL, 1);
    kin_code c = decoded(&p);
    check_action(kin_instr_main(kin_code_at(&c, precall)), KIN_DO_UNBIND_METHOD, 2, 0, 0);
    check_action(kin_instr_main(kin_code_at(&c, call)), KIN_DO_CALL, 2, 3, 0);
    CHECK_EQ(kin_code_at(&c, precall)->resume, names);
    CHECK_EQ(kin_code_at(&c, call)->resume, names);
    CHECK_EQ(kin_code_acting(&c, names)->offset, call);
    CHECK_EQ(kin_code_at(&c, plain)->resume, plain);
    check_action(kin_instr_main(kin_code_acting(&c, plain)), KIN_DO_CALL, 1, 0, 0);
    CHECK_EQ(kin_code_acting(&c, plain)->resume, kin_code_acting(&c, plain)->offset);
    kin_code_deinit(&c);

    p = unreachable(KIN_PY312);
    names = p.n;
    put(&p, KIN_OP_KW_NAMES, 2);
    call = p.n;
    put(&p, KIN_OP_CALL, 2);
    c = decoded(&p);
    const kin_instr *in = kin_code_at(&c, call);
    CHECK_EQ(in->ndoes, 2);
    check_action(in->does[0], KIN_DO_UNBIND_METHOD, 2, 0, 0);
    check_action(kin_instr_main(in), KIN_DO_CALL, 2, 3, 0);
    CHECK_EQ(in->resume, names);
    CHECK_EQ(kin_instr_leaves(in), KIN_LEAVES_ONE);
    kin_code_deinit(&c);

    kin_instr kw = one(KIN_PY313, KIN_OP_CALL_KW, 2);
    check_action(kw.does[0], KIN_DO_UNBIND_METHOD, 3, 0, KIN_DO_CALLABLE_FIRST);
    check_action(kw.does[1], KIN_DO_CALL, 2, 0, KIN_DO_CALLABLE_FIRST | KIN_DO_NAMES_ON_STACK);
}

static void
test_operators(void)
{
    kin_instr in = one(KIN_PY312, KIN_OP_COMPARE_OP, 4 << 4);
    check_action(in.does[0], KIN_DO_COMPARE, 4, 0, 0);
    in = one(KIN_PY313, KIN_OP_COMPARE_OP, 4 << 5 | 16 | 4);
    check_action(in.does[0], KIN_DO_COMPARE, 4, 1, 0);
    in = one(KIN_PY311, KIN_OP_BINARY_OP, 13);
    check_action(in.does[0], KIN_DO_BINARY, KIN_BINARY_INPLACE_ADD, 0, 0);
    in = one(KIN_PY314, KIN_OP_BINARY_OP, 26);
    check_action(in.does[0], KIN_DO_LOAD_ITEM, 0, 0, 0);
    in = one(KIN_PY312, KIN_OP_CALL_INTRINSIC_1, 5);
    check_action(in.does[0], KIN_DO_POSITIVE, 0, 0, 0);
    in = one(KIN_PY312, KIN_OP_CALL_INTRINSIC_1, 6);
    check_action(in.does[0], KIN_DO_LIST_TO_TUPLE, 0, 0, 0);
    in = one(KIN_PY312, KIN_OP_CALL_INTRINSIC_1, 3);
    check_action(in.does[0], KIN_DO_CONVERT_STOP_ITERATION, 0, 0, 0);
    in = one(KIN_PY312, KIN_OP_CALL_INTRINSIC_2, 1);
    check_action(in.does[0], KIN_DO_JOIN_GROUP, 0, 0, 0);
    in = one(KIN_PY311, KIN_OP_FORMAT_VALUE, 6);
    check_action(in.does[0], KIN_DO_FORMAT, 2, 1, 0);
}

static void
test_special_methods(void)
{
    kin_instr in = one(KIN_PY312, KIN_OP_LOAD_SUPER_ATTR, 4 << 2 | 1);
    check_action(in.does[0], KIN_DO_LOAD_SUPER_METHOD, 4, 0, 0);
    CHECK_EQ(kin_instr_leaves(&in), KIN_LEAVES_PAIR);
    in = one(KIN_PY314, KIN_OP_LOAD_SUPER_ATTR, 4 << 2 | 2 | 1);
    check_action(in.does[0], KIN_DO_LOAD_SUPER_METHOD, 4, 1, KIN_DO_CALLABLE_FIRST);
    CHECK_EQ(kin_instr_leaves(&in), KIN_LEAVES_PAIR_EMPTY_LAST);
    in = one(KIN_PY314, KIN_OP_LOAD_SPECIAL, 1);
    check_action(in.does[0], KIN_DO_LOAD_SPECIAL, 1, 0, KIN_DO_CALLABLE_FIRST);
    in = one(KIN_PY313, KIN_OP_WITH_EXCEPT_START, 0);
    check_action(in.does[0], KIN_DO_CALL_EXIT, 4, 0, 0);
    in = one(KIN_PY314, KIN_OP_WITH_EXCEPT_START, 0);
    check_action(in.does[0], KIN_DO_CALL_EXIT, 5, 1, 0);
    in = one(KIN_PY314, KIN_OP_CALL_FUNCTION_EX, 0);
    check_action(in.does[0], KIN_DO_CALL_SPREAD, 0, 1, KIN_DO_CALLABLE_FIRST);
}

/* The handler that the compiler puts around a generator is none of the program's. */
static void
test_guarded(void)
{
    static const uint8_t around[] = {0x80, 4, 5, 1}; /* units 0 to 3 lead to unit 5, with the offset */
    for (int own = 0; own < 2; own++) {
        program p = {.version = KIN_PY312};
        put(&p, KIN_OP_RESUME, 0);
        put(&p, KIN_OP_LOAD_CONST, 0);
        put(&p, KIN_OP_YIELD_VALUE, 1);
        put(&p, KIN_OP_NOP, 0);
        put(&p, KIN_OP_RETURN_CONST, 0);
        put(&p, own ? KIN_OP_PUSH_EXC_INFO : KIN_OP_CALL_INTRINSIC_1, own ? 0 : 3);
        put(&p, KIN_OP_RERAISE, 1);
        kin_code c;
        CHECK_EQ(kin_code_init(&c, p.version, p.bytes, p.n, around, sizeof around), KIN_OK);
        CHECK(kin_code_handler(&c, 4) != NULL);
        CHECK_EQ(kin_code_is_guarded(&c, 4), own == 1);
        CHECK(!kin_code_is_guarded(&c, 8));
        kin_code_deinit(&c);
    }
}

/* `except GLOBAL:` around a yield: what passes it meets a comparison, and is raised again. `finally:` runs what it is. */
static void
test_compares(void)
{
    static const uint8_t around[] = {0x80, 3, 4, 0}; /* units 0 to 2 lead to unit 4 */
    for (int quiet = 0; quiet < 2; quiet++) {
        program p = {.version = KIN_PY311};
        put(&p, KIN_OP_LOAD_CONST, 0);
        put(&p, KIN_OP_YIELD_VALUE, 0);
        put(&p, KIN_OP_NOP, 0);
        put(&p, KIN_OP_RETURN_VALUE, 0);
        put(&p, KIN_OP_PUSH_EXC_INFO, 0);
        if (quiet) {
            put(&p, KIN_OP_LOAD_GLOBAL, 6);
            for (int i = 0; i < 5; i++)
                put(&p, KIN_OP_CACHE, 0);
            put(&p, KIN_OP_CHECK_EXC_MATCH, 0);
            put(&p, KIN_OP_POP_JUMP_FORWARD_IF_FALSE, 1);
        } else {
            put(&p, KIN_OP_LOAD_FAST, 0);
            put(&p, KIN_OP_POP_TOP, 0);
        }
        put(&p, KIN_OP_NOP, 0);
        put(&p, KIN_OP_RERAISE, 0);
        uint32_t names[2];
        kin_code c;
        CHECK_EQ(kin_code_init(&c, p.version, p.bytes, p.n, around, sizeof around), KIN_OK);
        CHECK_EQ(kin_code_compares(&c, 2, names, 2), quiet ? 1 : -1);
        CHECK(!quiet || names[0] == 3);
        CHECK_EQ(kin_code_compares(&c, 2, names, 0), -1);
        CHECK_EQ(kin_code_compares(&c, 6, names, 2), 0);
        kin_code_deinit(&c);
    }
}

/* A with statement has an instruction of its own up to 3.13, and calls what it has looked up from 3.14 on. */
static void
test_enters_block(void)
{
    program p = unreachable(KIN_PY313);
    uint32_t at = p.n;
    put(&p, KIN_OP_BEFORE_WITH, 0);
    put(&p, KIN_OP_CALL, 0);
    kin_code c = decoded(&p);
    CHECK(kin_code_enters_block(&c, at));
    CHECK(!kin_code_enters_block(&c, at + 2));
    kin_code_deinit(&c);
    for (uint8_t exit = 0; exit < 2; exit++) {
        p = unreachable(KIN_PY314);
        at = p.n;
        put(&p, KIN_OP_LOAD_SPECIAL, exit);
        put(&p, KIN_OP_CALL, 0);
        c = decoded(&p);
        CHECK(!kin_code_enters_block(&c, at));
        CHECK_EQ(kin_code_enters_block(&c, at + 2), exit == 0);
        CHECK(!kin_code_enters_block(&c, 0));
        kin_code_deinit(&c);
    }
}

static void
test_jumps(void)
{
    kin_instr in = one(KIN_PY311, KIN_OP_FOR_ITER, 3);
    CHECK_EQ(in.target, in.next + 6);
    CHECK_EQ(kin_instr_main(&in).flags, 0);
    in = one(KIN_PY312, KIN_OP_FOR_ITER, 3);
    CHECK_EQ(in.target, in.next + 8);
    in = one(KIN_PY313, KIN_OP_FOR_ITER, 3);
    CHECK_EQ(in.target, in.next + 10);
    in = one(KIN_PY314, KIN_OP_FOR_ITER, 3);
    CHECK_EQ(in.target, in.next + 8);
    CHECK_EQ(kin_instr_main(&in).flags, KIN_DO_KEEPS_ITERATOR);
    CHECK_EQ(kin_instr_leaves(&in), KIN_LEAVES_NEXT);
    in = one(KIN_PY311, KIN_OP_POP_JUMP_BACKWARD_IF_NONE, 2);
    check_action(in.does[0], KIN_DO_BRANCH, 0, 0, KIN_DO_BRANCH_ON_NONE | KIN_DO_BRANCH_JUMPS_IF);
    CHECK_EQ(in.target, in.next - 4);
    in = one(KIN_PY312, KIN_OP_POP_JUMP_IF_NOT_NONE, 2);
    check_action(in.does[0], KIN_DO_BRANCH, 0, 0, KIN_DO_BRANCH_ON_NONE);
    in = one(KIN_PY311, KIN_OP_JUMP_IF_FALSE_OR_POP, 2);
    check_action(in.does[0], KIN_DO_BRANCH, 0, 0, KIN_DO_BRANCH_KEEPS);
    in = one(KIN_PY313, KIN_OP_LOAD_CONST, 2);
    CHECK_EQ(in.target, UINT32_MAX);
}

int
main(void)
{
    test_effects_are_those_of_the_opcodes();
    test_all_have_a_form();
    test_one_instruction_two_actions();
    test_empty_slot_of_calls();
    test_calls();
    test_operators();
    test_special_methods();
    test_guarded();
    test_compares();
    test_enters_block();
    test_jumps();
    return check_report("canon");
}
