/* Unit tests of src/core/bytecode on hand-assembled code; tests/watch/tables.py compares with real code. */
#include "core/bytecode/bytecode.h"

#include "check.h"
#include <stdlib.h>

/* Native numbers by name, so that the tests read as assembly. */
static uint8_t
native(kin_py_version version, const char *name)
{
    for (int i = 0; i < 256; i++) {
        kin_op op = kin_op_from_native(version, (uint8_t)i);
        if (op != KIN_OP_NONE && strcmp(kin_op_name(op), name) == 0)
            return (uint8_t)i;
    }
    CHECK(!"no such opcode");
    return 0;
}

typedef struct {
    kin_py_version version;
    uint8_t bytes[256];
    uint32_t n;
} program;

/* Appends an instruction with its (zero) inline caches. */
static void
put(program *p, const char *name, uint8_t oparg)
{
    uint8_t number = native(p->version, name);
    p->bytes[p->n++] = number;
    p->bytes[p->n++] = oparg;
    p->n += 2 * kin_op_caches(p->version, number);
}

static kin_status
decode(kin_code *c, const program *p, const uint8_t *table, uint32_t ntable)
{
    /* An exact heap copy, so that the sanitizer sees any read past the end. */
    uint8_t *exact = malloc(p->n ? p->n : 1);
    memcpy(exact, p->bytes, p->n);
    kin_status status = kin_code_init(c, p->version, exact, p->n, table, ntable);
    free(exact);
    return status;
}

static void
test_decode_prefixes_and_caches(void)
{
    program p = {.version = KIN_PY311};
    put(&p, "RESUME", 0);
    put(&p, "EXTENDED_ARG", 1);
    put(&p, "EXTENDED_ARG", 2);
    put(&p, "LOAD_CONST", 3);
    put(&p, "LOAD_ATTR", 0);
    put(&p, "RETURN_VALUE", 0);
    kin_code c;
    CHECK_EQ(decode(&c, &p, NULL, 0), KIN_OK);
    CHECK_EQ(c.ninstr, 4);
    const kin_instr *in = kin_code_at(&c, 4);
    CHECK_EQ(in->op, KIN_OP_LOAD_CONST);
    CHECK_EQ(in->oparg, 0x10203);
    CHECK_EQ(in->offset, 2);
    CHECK_EQ(in->op_offset, 6);
    CHECK_EQ(in->next, 8);
    CHECK_EQ(kin_code_at(&c, 12)->op, KIN_OP_LOAD_ATTR);
    CHECK_EQ(kin_code_next(&c, 8), p.n - 2);
    CHECK_EQ(kin_code_depth(&c, 8), 1);
    CHECK_EQ(kin_code_depth(&c, p.n - 2), 1);
    CHECK_EQ(kin_code_depth(&c, p.n), -1);
    CHECK(kin_code_at(&c, p.n) == NULL);
    kin_code_deinit(&c);
}

static void
test_depth_along_jumps(void)
{
    program p = {.version = KIN_PY311};
    put(&p, "LOAD_FAST", 0);                  /* 0 */
    put(&p, "GET_ITER", 0);                   /* 2 */
    put(&p, "FOR_ITER", 2);                   /* 4: to 10 */
    put(&p, "STORE_FAST", 1);                 /* 6 */
    put(&p, "JUMP_BACKWARD", 3);              /* 8: to 4 */
    put(&p, "LOAD_CONST", 0);                 /* 10 */
    put(&p, "RETURN_VALUE", 0);               /* 12 */
    put(&p, "NOP", 0);                        /* 14: nothing leads here */
    kin_code c;
    CHECK_EQ(decode(&c, &p, NULL, 0), KIN_OK);
    CHECK_EQ(kin_instr_target(kin_code_at(&c, 4), KIN_PY311), 10);
    CHECK_EQ(kin_instr_target(kin_code_at(&c, 8), KIN_PY311), 4);
    CHECK_EQ(kin_instr_target(kin_code_at(&c, 0), KIN_PY311), UINT32_MAX);
    CHECK_EQ(kin_code_depth(&c, 6), 2);
    CHECK_EQ(kin_code_depth(&c, 10), 0);
    CHECK_EQ(kin_code_depth(&c, 14), -1);
    kin_code_deinit(&c);
}

static void
test_exception_table(void)
{
    program p = {.version = KIN_PY311};
    put(&p, "LOAD_FAST", 0);     /* 0 */
    put(&p, "LOAD_FAST", 0);     /* 2 */
    put(&p, "POP_TOP", 0);       /* 4 */
    put(&p, "RETURN_VALUE", 0);  /* 6 */
    put(&p, "PUSH_EXC_INFO", 0); /* 8 */
    put(&p, "RERAISE", 1);       /* 10 */
    /* code units 1..3 -> code unit 4, depth 1, with lasti; the length takes two bytes on purpose */
    const uint8_t table[] = {0x80 | 1, 0x40 | 0, 2, 4, 3};
    kin_code c;
    CHECK_EQ(decode(&c, &p, table, sizeof table), KIN_OK);
    const kin_handler *h = kin_code_handler(&c, 4);
    CHECK(h != NULL);
    CHECK_EQ(h->start, 2);
    CHECK_EQ(h->end, 6);
    CHECK_EQ(h->target, 8);
    CHECK_EQ(h->depth, 1);
    CHECK(h->lasti);
    CHECK(kin_code_handler(&c, 0) == NULL);
    CHECK(kin_code_handler(&c, 6) == NULL);
    CHECK_EQ(kin_code_depth(&c, 8), 3);
    kin_code_deinit(&c);
    for (uint32_t n = 1; n < sizeof table; n++)
        CHECK_EQ(decode(&c, &p, table, n), KIN_BREAK);
}

static void
test_bad_code_is_refused(void)
{
    kin_code c;
    program far = {.version = KIN_PY311};
    put(&far, "JUMP_FORWARD", 9);
    CHECK_EQ(decode(&c, &far, NULL, 0), KIN_BREAK);
    program before = {.version = KIN_PY311};
    put(&before, "JUMP_BACKWARD", 9);
    CHECK_EQ(decode(&c, &before, NULL, 0), KIN_BREAK);
    program under = {.version = KIN_PY311};
    put(&under, "POP_TOP", 0);
    put(&under, "RETURN_VALUE", 0);
    CHECK_EQ(decode(&c, &under, NULL, 0), KIN_BREAK);
    program unequal = {.version = KIN_PY311};
    put(&unequal, "LOAD_CONST", 0);
    put(&unequal, "JUMP_BACKWARD", 2);
    CHECK_EQ(decode(&c, &unequal, NULL, 0), KIN_BREAK);
    program prefix = {.version = KIN_PY311};
    put(&prefix, "EXTENDED_ARG", 1);
    CHECK_EQ(decode(&c, &prefix, NULL, 0), KIN_BREAK);
    program empty = {.version = KIN_PY311};
    CHECK_EQ(decode(&c, &empty, NULL, 0), KIN_BREAK);
}

/* Whatever bytes come in: refused or decoded without touching what is not there (the sanitizers watch). */
static void
test_random_bytes(void)
{
    uint32_t state = 12345, accepted = 0;
    for (int round = 0; round < 20000; round++) {
        program p = {.version = (kin_py_version)(KIN_PY311 + round % (KIN_PY_NEWEST - KIN_PY311 + 1))};
        uint8_t table[16];
        state = state * 1664525u + 1013904223u;
        p.n = state >> 24 & 62;
        for (uint32_t i = 0; i < sizeof p.bytes + sizeof table; i++) {
            state = state * 1664525u + 1013904223u;
            if (i < sizeof p.bytes)
                p.bytes[i] = i % 2 ? (uint8_t)(state >> 28) : (uint8_t)(state >> 24);
            else
                table[i - sizeof p.bytes] = (uint8_t)(state >> 24);
        }
        kin_code c;
        if (decode(&c, &p, table, round % 4 ? 0 : state % 16) != KIN_OK)
            continue;
        accepted++;
        for (uint32_t offset = 0; offset < p.n; offset++) {
            CHECK(kin_code_next(&c, offset) > offset);
            CHECK(kin_code_at(&c, offset)->offset <= offset);
        }
        kin_code_deinit(&c);
    }
    CHECK(accepted > 0);
}

static void
test_versions_agree_on_names(void)
{
    CHECK_STR(kin_op_name(kin_op_from_native(KIN_PY311, native(KIN_PY311, "PRECALL"))), "PRECALL");
    CHECK_EQ(kin_op_from_native(KIN_PY313, native(KIN_PY313, "TO_BOOL")), KIN_OP_TO_BOOL);
    CHECK_EQ(kin_op_effect(KIN_PY311, KIN_OP_CALL, 2, false), -3);
    CHECK_EQ(kin_op_effect(KIN_PY311, KIN_OP_PRECALL, 2, false), 0);
    CHECK_EQ(kin_op_effect(KIN_PY312, KIN_OP_SEND, 0, true), 0);
    CHECK_EQ(kin_op_from_native(KIN_PY314, native(KIN_PY314, "LOAD_FAST_BORROW")), KIN_OP_LOAD_FAST_BORROW);
    CHECK_EQ(kin_op_effect(KIN_PY314, KIN_OP_CALL_FUNCTION_EX, 0, false), -3);
    CHECK_STR(kin_op_name(KIN_OP_NONE), "<none>");
    for (int op = 1; op < KIN_OP__COUNT; op++)
        CHECK(kin_op_effect(KIN_PY311, (kin_op)op, 1, false) != INT32_MIN);
}

int
main(void)
{
    test_decode_prefixes_and_caches();
    test_depth_along_jumps();
    test_exception_table();
    test_bad_code_is_refused();
    test_random_bytes();
    test_versions_agree_on_names();
    return check_report("bytecode");
}
