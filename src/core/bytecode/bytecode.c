/* Decoding: plain bytecode to an array of instructions, and the exception table to an array of handlers. The stack
 * depths are added by depth.c. */
#include "core/bytecode/bytecode.h"

#include <stdlib.h>

#include "core/base/vec.h"
#include "core/bytecode/bytecode_priv.h"

typedef struct {
    uint16_t op;
    uint8_t caches;
} native_row;

#define NATIVE(N, number, ncaches) [number] = {KIN_OP_##N, ncaches},
static const native_row natives[][256] = {
    {
#include "core/bytecode/gen/py311.inc"
    },
    {
#include "core/bytecode/gen/py312.inc"
    },
    {
#include "core/bytecode/gen/py313.inc"
    },
    {
#include "core/bytecode/gen/py314.inc"
    },
};
#undef NATIVE

static const char *const names[] = {
    "<none>",
#define NAME(N) #N,
#include "core/bytecode/gen/names.inc"
#undef NAME
};

static const native_row *
native_of(kin_py_version version, uint8_t native)
{
    return &natives[version - KIN_PY311][native];
}

const char *
kin_op_name(kin_op op)
{
    return names[op < KIN_OP__COUNT ? op : KIN_OP_NONE];
}

kin_op
kin_op_from_native(kin_py_version version, uint8_t native)
{
    return native_of(version, native)->op;
}

unsigned
kin_op_caches(kin_py_version version, uint8_t native)
{
    return native_of(version, native)->caches;
}

/* A jump out of the range of offsets: behind the end of any code, and yet not "no jump". */
enum { NOWHERE = 0x7ffffffe };

/* Offset reached by `units` code units from `from`. */
static uint32_t
jump_offset(uint32_t from, uint32_t units, bool backward)
{
    uint64_t bytes = (uint64_t)units * 2;
    if (backward)
        return bytes <= from ? from - (uint32_t)bytes : NOWHERE;
    return from + bytes < NOWHERE ? from + (uint32_t)bytes : NOWHERE;
}

/* The jumps of all versions so far are alike: relative to the end of the instruction, caches included. */
uint32_t
kin_instr_target(const kin_instr *in, kin_py_version version)
{
    switch ((kin_op)in->op) {
    case KIN_OP_FOR_ITER:
    case KIN_OP_JUMP_FORWARD:
    case KIN_OP_JUMP_IF_FALSE_OR_POP:
    case KIN_OP_JUMP_IF_TRUE_OR_POP:
    case KIN_OP_POP_JUMP_FORWARD_IF_FALSE:
    case KIN_OP_POP_JUMP_FORWARD_IF_NONE:
    case KIN_OP_POP_JUMP_FORWARD_IF_NOT_NONE:
    case KIN_OP_POP_JUMP_FORWARD_IF_TRUE:
    case KIN_OP_POP_JUMP_IF_FALSE:
    case KIN_OP_POP_JUMP_IF_NONE:
    case KIN_OP_POP_JUMP_IF_NOT_NONE:
    case KIN_OP_POP_JUMP_IF_TRUE:
    case KIN_OP_SEND:
        return jump_offset(in->next, in->oparg, false);
    case KIN_OP_JUMP_BACKWARD:
    case KIN_OP_JUMP_BACKWARD_NO_INTERRUPT:
    case KIN_OP_POP_JUMP_BACKWARD_IF_FALSE:
    case KIN_OP_POP_JUMP_BACKWARD_IF_NONE:
    case KIN_OP_POP_JUMP_BACKWARD_IF_NOT_NONE:
    case KIN_OP_POP_JUMP_BACKWARD_IF_TRUE:
        return jump_offset(in->next, in->oparg, true);
    default:
        return UINT32_MAX;
    }
}

bool
kin_op_falls_through(kin_op op)
{
    switch (op) {
    case KIN_OP_INTERPRETER_EXIT:
    case KIN_OP_JUMP_BACKWARD:
    case KIN_OP_JUMP_BACKWARD_NO_INTERRUPT:
    case KIN_OP_JUMP_FORWARD:
    case KIN_OP_RAISE_VARARGS:
    case KIN_OP_RERAISE:
    case KIN_OP_RETURN_CONST:
    case KIN_OP_RETURN_VALUE:
        return false;
    default:
        return true;
    }
}

/* ---- instructions ---------------------------------------------------------------------------------------- */

/* Reads the instruction at in->offset: prefixes, opcode, size with caches. */
static kin_status
decode_one(kin_py_version version, const uint8_t *bytes, uint32_t nbytes, kin_instr *in)
{
    uint32_t at = in->offset;
    uint32_t oparg = 0;
    for (;; at += 2) {
        if (at + 2 > nbytes || oparg >> 24)
            return KIN_BREAK;
        oparg = oparg << 8 | bytes[at + 1];
        if (native_of(version, bytes[at])->op != KIN_OP_EXTENDED_ARG)
            break;
    }
    const native_row *row = native_of(version, bytes[at]);
    if (row->op == KIN_OP_NONE)
        return KIN_BREAK;
    in->op = row->op;
    in->native = bytes[at];
    in->oparg = oparg;
    in->op_offset = at;
    in->next = at + 2 + 2u * row->caches;
    in->depth = -1;
    in->target = UINT32_MAX;
    return in->next <= nbytes ? KIN_OK : KIN_BREAK;
}

int
kin_code_find_unknown(kin_py_version version, const uint8_t *bytes, uint32_t nbytes)
{
    for (uint32_t at = 0; at + 2 <= nbytes; at += 2 + 2u * native_of(version, bytes[at])->caches)
        if (native_of(version, bytes[at])->op == KIN_OP_NONE)
            return bytes[at];
    return -1;
}

static kin_status
decode_all(kin_code *c, const uint8_t *bytes)
{
    uint32_t units = c->nbytes / 2;
    c->instrs = malloc(units * sizeof *c->instrs);
    c->by_unit = malloc(units * sizeof *c->by_unit);
    if (c->instrs == NULL || c->by_unit == NULL)
        return KIN_NOMEM;
    for (uint32_t offset = 0; offset < c->nbytes;) {
        kin_instr *in = &c->instrs[c->ninstr];
        in->offset = offset;
        KIN_TRY(decode_one(c->version, bytes, c->nbytes, in));
        for (; offset < in->next; offset += 2)
            c->by_unit[offset / 2] = c->ninstr;
        c->ninstr++;
    }
    return KIN_OK;
}

/* ---- exception table -------------------------------------------------------------------------------------- */

typedef struct {
    const uint8_t *at, *end;
} cursor;

/* Six bits per byte, most significant first; 0x40 says that more follow, 0x80 marks the first byte of a row. */
static bool
read_varint(cursor *cur, uint32_t *out)
{
    uint32_t value = 0;
    for (int nbytes = 0; cur->at < cur->end && nbytes < 5; nbytes++) {
        uint8_t byte = *cur->at++;
        value = value << 6 | (byte & 0x3f);
        if (!(byte & 0x40)) {
            *out = value;
            return true;
        }
    }
    return false;
}

static bool
read_handler(cursor *cur, uint32_t nunits, kin_handler *h)
{
    uint32_t start, length, target, depth_lasti;
    if (!read_varint(cur, &start) || !read_varint(cur, &length) || !read_varint(cur, &target)
        || !read_varint(cur, &depth_lasti))
        return false;
    if (start > nunits || length > nunits - start || target >= nunits)
        return false;
    *h = (kin_handler){.start = start * 2,
                       .end = (start + length) * 2,
                       .target = target * 2,
                       .depth = depth_lasti >> 1,
                       .lasti = depth_lasti & 1};
    return true;
}

static kin_status
decode_handlers(kin_code *c, const uint8_t *table, uint32_t ntable)
{
    KIN_VEC(kin_handler) rows = {0};
    cursor cur = {table, table + ntable};
    kin_status status = KIN_OK;
    while (status == KIN_OK && cur.at < cur.end) {
        kin_handler h;
        status = read_handler(&cur, c->nbytes / 2, &h) ? kin_vec_push(&rows, h) : KIN_BREAK;
    }
    c->handlers = rows.at;
    c->nhandlers = rows.len;
    return status;
}

const kin_handler *
kin_code_handler(const kin_code *c, uint32_t offset)
{
    for (uint32_t i = 0; i < c->nhandlers; i++)
        if (c->handlers[i].start <= offset && offset < c->handlers[i].end)
            return &c->handlers[i];
    return NULL;
}

bool
kin_code_is_guarded(const kin_code *c, uint32_t offset)
{
    const kin_handler *h = kin_code_handler(c, offset);
    for (uint32_t n = 0; h != NULL && n < c->nhandlers; n++) {
        kin_canon op = kin_instr_main(kin_code_at(c, h->target)).op;
        if (op != KIN_DO_CLEAN_UP_THROW)
            return op != KIN_DO_CONVERT_STOP_ITERATION;
        h = kin_code_handler(c, h->target);
    }
    return h != NULL;
}

typedef struct {
    uint32_t at;                 /* of the instruction that runs next */
    const kin_handler *handler;  /* ... where it raises again: whose turn it is then */
    bool again, ok;
    uint32_t *names;
    int n, most;
} passing;

/* One action of a handler that the exception passes. */
static void
pass_action(const kin_code *c, const kin_instr *in, const kin_action *does, passing *p)
{
    switch (does->op) {
    case KIN_DO_PUSH_HANDLED: case KIN_DO_POP_HANDLED: case KIN_DO_COPY: case KIN_DO_SWAP: case KIN_DO_MATCHES_EXCEPTION:
    case KIN_DO_BUILD_TUPLE: case KIN_DO_CONVERT_STOP_ITERATION:
        return;
    case KIN_DO_LOAD_GLOBAL:
        p->ok = p->n < p->most;
        if (p->ok)
            p->names[p->n++] = (uint32_t)does->arg;
        return;
    case KIN_DO_BRANCH: /* on the answer that it is not for this handler */
        p->ok = !(does->flags & (KIN_DO_BRANCH_ON_NONE | KIN_DO_BRANCH_KEEPS));
        p->at = does->flags & KIN_DO_BRANCH_JUMPS_IF ? in->next : in->target;
        return;
    case KIN_DO_RERAISE: case KIN_DO_CLEAN_UP_THROW:
        p->again = true;
        p->handler = kin_code_handler(c, in->op_offset);
        p->at = p->handler != NULL ? p->handler->target : 0;
        return;
    default:
        p->ok = false;
    }
}

int
kin_code_compares(const kin_code *c, uint32_t offset, uint32_t *found, int most)
{
    passing p = {.handler = kin_code_handler(c, offset), .ok = true, .names = found, .most = most};
    p.at = p.handler != NULL ? p.handler->target : 0;
    for (uint32_t n = 0; p.ok && p.handler != NULL && n < c->ninstr; n++) {
        const kin_instr *in = kin_code_at(c, p.at);
        if (in == NULL)
            return -1;
        p.at = in->ndoes == 0 && in->target != UINT32_MAX ? in->target : in->next;
        p.again = false;
        for (int i = 0; i < in->ndoes && p.ok && !p.again; i++)
            pass_action(c, in, &in->does[i], &p);
    }
    return p.ok && p.handler == NULL ? p.n : -1;
}

bool
kin_code_enters_block(const kin_code *c, uint32_t offset)
{
    enum { ENTER = 0 }; /* what KIN_DO_LOAD_SPECIAL calls __enter__ */
    const kin_instr *in = kin_code_at(c, offset);
    kin_canon op = in != NULL ? kin_instr_main(in).op : KIN_DO__COUNT;
    if (op != KIN_DO_CALL || in->offset == 0)
        return op == KIN_DO_ENTER_WITH;
    kin_action before = kin_instr_main(kin_code_at(c, in->offset - 2));
    return before.op == KIN_DO_LOAD_SPECIAL && before.arg == ENTER;
}

/* ---- the whole code --------------------------------------------------------------------------------------- */

static kin_status
fill(kin_code *c, const uint8_t *bytes, const uint8_t *table, uint32_t ntable)
{
    KIN_TRY(decode_all(c, bytes));
    KIN_TRY(decode_handlers(c, table, ntable));
    kin_code_find_actions(c);
    return kin_code_compute_depths(c);
}

kin_status
kin_code_init(kin_code *c, kin_py_version version, const uint8_t *bytes, uint32_t nbytes, const uint8_t *table,
              uint32_t ntable)
{
    *c = (kin_code){.version = version, .nbytes = nbytes};
    if (version < KIN_PY311 || version > KIN_PY_NEWEST || nbytes == 0 || nbytes % 2 || nbytes >= NOWHERE)
        return KIN_BREAK;
    kin_status status = fill(c, bytes, table, ntable);
    if (status != KIN_OK)
        kin_code_deinit(c);
    return status;
}

void
kin_code_deinit(kin_code *c)
{
    free(c->instrs);
    free(c->by_unit);
    free(c->handlers);
    *c = (kin_code){0};
}
