/* Extension module `watchcheck`: runs a callable under the watcher and checks each reported instruction against what
 * the bytecode says can happen. No torch, no recorder: only src/core/bytecode and src/py/watch.
 *
 *     report = watchcheck.run(callable)
 *     {'result': ..., 'instructions': n, 'values': n, 'depths': n, 'frames': n, 'mismatches': n, 'first': [text, ...]}
 *
 * Checked: the offset begins an instruction; it is a legal successor of the last one in that frame; the static stack
 * depth is the real one where CPython saves it; frames of functions called skipped* stay silent; what the instruction had to leave on the stack is there; frames start
 * and end in order. Pointers from an earlier event are compared, never followed.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "core/base/vec.h"
#include "core/bytecode/bytecode.h"
#include "py/watch/watch.h"

#define VERSION ((kin_py_version)(PY_MAJOR_VERSION * 100 + PY_MINOR_VERSION))

enum { MAX_REPORTS = 20, MAX_SAVED = 64 };

typedef struct {
    PyCodeObject *object; /* strong, so that the address stays unique */
    kin_code code;
    uint32_t start; /* first instruction that is reported: the one after the first RESUME */
    bool usable;
} code_entry;

typedef struct {
    struct _PyInterpreterFrame *frame;
    code_entry *code;
    const kin_instr *last; /* NULL: nothing seen yet in this frame */
    bool skipped;          /* the client did not want its instructions */
    bool unknown;          /* was already running when the watch started */
    int depth;             /* stack before `last` */
    void *stack[MAX_SAVED];
    void *local;           /* LOAD_FAST: what the local held */
} frame_entry;

typedef struct {
    kin_watch watch;
    KIN_VEC(code_entry *) codes; /* open-addressed by address, length a power of two */
    uint32_t ncodes;
    KIN_VEC(frame_entry) open, suspended;
    uint64_t instructions, values, depths, frames, mismatches;
    PyObject *first;
} checker;

static void
mismatch(checker *k, const frame_entry *f, uint32_t offset, const char *what)
{
    k->mismatches++;
    if (PyList_GET_SIZE(k->first) >= MAX_REPORTS)
        return;
    const kin_instr *in = f ? kin_code_at(&f->code->code, offset) : NULL;
    PyObject *text = PyUnicode_FromFormat(
        "%U+%u %s (after %s at %d): %s", f ? f->code->object->co_qualname : Py_None, offset,
        in ? kin_op_name(in->op) : "-", f && f->last ? kin_op_name(f->last->op) : "-",
        f && f->last ? (int)f->last->offset : -1, what);
    if (text == NULL || PyList_Append(k->first, text) < 0)
        PyErr_Clear();
    Py_XDECREF(text);
}

/* ---- codes ------------------------------------------------------------------------------------------------ */

static uint32_t
slot_of(checker *k, PyCodeObject *object)
{
    uint32_t mask = k->codes.len - 1;
    uint32_t i = (uint32_t)((uintptr_t)object >> 4) * 2654435761u;
    for (i &= mask; k->codes.at[i] != NULL && k->codes.at[i]->object != object; i = (i + 1) & mask)
        ;
    return i;
}

static bool
grow_codes(checker *k)
{
    if ((k->ncodes + 1) * 2 <= k->codes.len)
        return true;
    code_entry **old = k->codes.at;
    uint32_t nold = k->codes.len;
    k->codes.len = nold ? nold * 2 : 1024;
    k->codes.at = calloc(k->codes.len, sizeof *k->codes.at);
    if (k->codes.at == NULL)
        return false;
    for (uint32_t i = 0; i < nold; i++)
        if (old[i] != NULL)
            k->codes.at[slot_of(k, old[i]->object)] = old[i];
    free(old);
    return true;
}

static bool
decode(code_entry *e)
{
    PyObject *bytes = PyCode_GetCode(e->object);
    PyObject *table = e->object->co_exceptiontable;
    kin_status status = kin_code_init(&e->code, VERSION, (const uint8_t *)PyBytes_AS_STRING(bytes),
                                      (uint32_t)PyBytes_GET_SIZE(bytes), (const uint8_t *)PyBytes_AS_STRING(table),
                                      (uint32_t)PyBytes_GET_SIZE(table));
    Py_DECREF(bytes);
    for (uint32_t i = 0; status == KIN_OK && i < e->code.ninstr; i++)
        if (e->code.instrs[i].op == KIN_OP_RESUME) {
            e->start = e->code.instrs[i].next;
            break;
        }
    return status == KIN_OK;
}

static code_entry *
code_of(checker *k, PyCodeObject *object)
{
    if (!grow_codes(k))
        abort();
    uint32_t i = slot_of(k, object);
    if (k->codes.at[i] == NULL) {
        code_entry *e = calloc(1, sizeof *e);
        if (e == NULL)
            abort();
        e->object = (PyCodeObject *)Py_NewRef((PyObject *)object);
        e->usable = decode(e);
        k->codes.at[i] = e;
        k->ncodes++;
    }
    return k->codes.at[i];
}

/* ---- successors ------------------------------------------------------------------------------------------- */

/* Instructions CPython does not report even though it passes them. */
static bool
is_silent(const checker *k, kin_op op)
{
    return op == KIN_OP_RESUME || op == KIN_OP_CACHE || (VERSION >= KIN_PY312 && op == KIN_OP_END_FOR);
}

/* Is `offset` reached from `from` by going through silent instructions only? */
static bool
leads_to(const checker *k, const kin_code *c, uint32_t from, uint32_t offset)
{
    bool after_end_for = false;
    for (int n = 0; n < 8; n++) {
        if (from == offset)
            return true;
        const kin_instr *in = kin_code_at(c, from);
        if (in == NULL)
            return false;
        bool skipped_pop = after_end_for && VERSION == KIN_PY313 && in->op == KIN_OP_POP_TOP;
        if (!is_silent(k, in->op) && !skipped_pop)
            return false;
        const kin_handler *h = kin_code_handler(c, from);
        if (h != NULL && h->target == offset)
            return true;
        after_end_for = in->op == KIN_OP_END_FOR;
        from = in->next;
    }
    return false;
}

/* throw() into a `yield from` of 3.11 whose subiterator ends: the frame goes on behind the SEND. */
static bool
is_throw_resume(const kin_code *c, const kin_instr *last, uint32_t offset)
{
    if (last->op != KIN_OP_YIELD_VALUE || last->offset < 2)
        return false;
    const kin_instr *send = kin_code_at(c, last->offset - 2);
    return send->op == KIN_OP_SEND && kin_instr_target(send, VERSION) == offset;
}

static bool
is_handler(const frame_entry *f, uint32_t offset)
{
    const kin_handler *h = kin_code_handler(&f->code->code, f->last->offset);
    return h != NULL && h->target == offset;
}

static bool
is_legal(const checker *k, const frame_entry *f, uint32_t offset)
{
    const kin_code *c = &f->code->code;
    if (f->last == NULL)
        return f->unknown || leads_to(k, c, f->code->start, offset);
    uint32_t target = kin_instr_target(f->last, VERSION);
    return (kin_op_falls_through(f->last->op) && leads_to(k, c, f->last->next, offset))
           || (target != UINT32_MAX && leads_to(k, c, target, offset)) || is_handler(f, offset)
           || is_throw_resume(c, f->last, offset);
}

/* ---- values ----------------------------------------------------------------------------------------------- */

static bool
has_len(PyObject *obj, PyTypeObject *type, Py_ssize_t len)
{
    return obj != NULL && Py_TYPE(obj) == type && Py_SIZE(obj) == len;
}

/* Is what a jump on True, False or None decided what its operand says? Other operands: no opinion. */
static bool
jump_agrees(const frame_entry *f, bool jumped, void *operand)
{
    switch ((kin_op)f->last->op) {
    case KIN_OP_POP_JUMP_FORWARD_IF_TRUE:
    case KIN_OP_POP_JUMP_BACKWARD_IF_TRUE:
    case KIN_OP_POP_JUMP_IF_TRUE:
        return (operand != Py_True || jumped) && (operand != Py_False || !jumped);
    case KIN_OP_POP_JUMP_FORWARD_IF_FALSE:
    case KIN_OP_POP_JUMP_BACKWARD_IF_FALSE:
    case KIN_OP_POP_JUMP_IF_FALSE:
        return (operand != Py_True || !jumped) && (operand != Py_False || jumped);
    case KIN_OP_POP_JUMP_FORWARD_IF_NONE:
    case KIN_OP_POP_JUMP_BACKWARD_IF_NONE:
    case KIN_OP_POP_JUMP_IF_NONE:
        return jumped == (operand == Py_None);
    case KIN_OP_POP_JUMP_FORWARD_IF_NOT_NONE:
    case KIN_OP_POP_JUMP_BACKWARD_IF_NOT_NONE:
    case KIN_OP_POP_JUMP_IF_NOT_NONE:
        return jumped == (operand != Py_None);
    default:
        return true;
    }
}

/* Entries of the old stack that the instruction leaves where they are; -1 = no statement. */
static int
kept_entries(const kin_instr *in, int depth)
{
    switch ((kin_op)in->op) {
    case KIN_OP_LOAD_CONST:
    case KIN_OP_LOAD_FAST:
    case KIN_OP_LOAD_FAST_BORROW:
    case KIN_OP_LOAD_SMALL_INT:
    case KIN_OP_LOAD_GLOBAL:
    case KIN_OP_LOAD_DEREF:
    case KIN_OP_LOAD_NAME:
    case KIN_OP_PUSH_NULL:
    case KIN_OP_COPY:
    case KIN_OP_NOP:
    case KIN_OP_JUMP_FORWARD:
    case KIN_OP_JUMP_BACKWARD:
        return depth;
    case KIN_OP_POP_TOP:
    case KIN_OP_STORE_FAST:
    case KIN_OP_LOAD_ATTR:
    case KIN_OP_UNARY_NOT:
    case KIN_OP_GET_ITER:
    case KIN_OP_RETURN_VALUE:
        return depth - 1;
    case KIN_OP_BINARY_OP:
    case KIN_OP_COMPARE_OP:
    case KIN_OP_IS_OP:
    case KIN_OP_CONTAINS_OP:
    case KIN_OP_BINARY_SUBSCR:
    case KIN_OP_STORE_ATTR:
        return depth - 2;
    case KIN_OP_CALL:
        return depth - 2 - (int)in->oparg;
    case KIN_OP_BUILD_TUPLE:
    case KIN_OP_BUILD_LIST:
    case KIN_OP_BUILD_STRING:
        return depth - (int)in->oparg;
    default:
        return -1;
    }
}

static bool
stack_is_kept(const frame_entry *f, PyObject *const *stack)
{
    int kept = kept_entries(f->last, f->depth);
    for (int i = 0; i < kept && i < MAX_SAVED; i++)
        if (f->stack[i] != stack[i])
            return false;
    return true;
}

/* Is what the last instruction pushed or stored where it should be? *known: there was something to check. */
static bool
top_agrees(const frame_entry *f, PyObject *const *locals, PyObject *const *stack, int depth, bool *known)
{
    const kin_instr *in = f->last;
    PyObject *top = depth > 0 ? stack[depth - 1] : NULL;
    int arg = (int)in->oparg;
    *known = true;
    switch ((kin_op)in->op) {
    case KIN_OP_LOAD_CONST:
        return top == PyTuple_GET_ITEM(f->code->object->co_consts, arg);
    case KIN_OP_LOAD_FAST:
    case KIN_OP_LOAD_FAST_BORROW:
        return top == f->local && top != NULL;
    case KIN_OP_LOAD_SMALL_INT:
        return top != NULL && PyLong_CheckExact(top) && PyLong_AsLong(top) == arg;
    case KIN_OP_STORE_FAST:
        return f->depth > MAX_SAVED || locals[arg] == f->stack[f->depth - 1];
    case KIN_OP_COPY:
        return top == stack[depth - 1 - arg];
    case KIN_OP_PUSH_NULL:
        return top == NULL;
    case KIN_OP_IS_OP:
    case KIN_OP_CONTAINS_OP:
    case KIN_OP_UNARY_NOT:
    case KIN_OP_TO_BOOL:
    case KIN_OP_CHECK_EXC_MATCH:
        return top == Py_True || top == Py_False;
    case KIN_OP_BUILD_TUPLE:
        return has_len(top, &PyTuple_Type, arg);
    case KIN_OP_BUILD_LIST:
        return has_len(top, &PyList_Type, arg);
    case KIN_OP_BUILD_MAP:
        return top != NULL && PyDict_CheckExact(top) && PyDict_GET_SIZE(top) <= arg;
    case KIN_OP_BUILD_STRING:
    case KIN_OP_FORMAT_VALUE:
    case KIN_OP_FORMAT_SIMPLE:
        return top != NULL && PyUnicode_Check(top);
    case KIN_OP_MAKE_FUNCTION:
        return top != NULL && PyFunction_Check(top);
    case KIN_OP_LOAD_GLOBAL:
        return (arg & 1) == 0 ? top != NULL : (top == NULL) != (stack[depth - 2] == NULL);
    case KIN_OP_BINARY_OP:
    case KIN_OP_COMPARE_OP:
    case KIN_OP_BINARY_SUBSCR:
    case KIN_OP_CALL:
    case KIN_OP_GET_ITER:
        return top != NULL;
    default:
        *known = false;
        return true;
    }
}

static void
check_values(checker *k, frame_entry *f, uint32_t offset, PyObject *const *locals, PyObject *const *stack, int depth)
{
    const kin_instr *last = f->last;
    if (is_handler(f, offset) && offset != last->next) {
        if (kin_instr_target(last, VERSION) == offset)
            return;
        PyObject *top = depth > 0 ? stack[depth - 1] : NULL;
        k->values++;
        if (top == NULL || !PyExceptionInstance_Check(top))
            mismatch(k, f, offset, "no exception on top at a handler");
        return;
    }
    uint32_t target = kin_instr_target(last, VERSION);
    void *operand = f->depth > 0 && f->depth <= MAX_SAVED ? f->stack[f->depth - 1] : NULL;
    if (target != UINT32_MAX && operand != NULL && target != last->next
        && !jump_agrees(f, leads_to(k, &f->code->code, target, offset), operand))
        mismatch(k, f, offset, "jump disagrees with its operand");
    if (target != UINT32_MAX || offset != last->next)
        return;
    bool known;
    if (!top_agrees(f, locals, stack, depth, &known))
        mismatch(k, f, offset, "wrong value");
    k->values += known;
    if (f->depth <= MAX_SAVED && !stack_is_kept(f, stack))
        mismatch(k, f, offset, "stack changed below the operands");
}

static void
check_callable(checker *k, const frame_entry *f, const kin_instr *in, PyObject *const *stack, int depth)
{
    if (in->op != KIN_OP_CALL)
        return;
    PyObject *const *base = stack + depth - 2 - (int)in->oparg;
    PyObject *callable = VERSION >= KIN_PY313 || base[0] != NULL ? base[0] : base[1];
    k->values++;
    if (callable == NULL || !PyCallable_Check(callable))
        mismatch(k, f, in->offset, "callee is not callable");
}

/* ---- the client ------------------------------------------------------------------------------------------- */

static frame_entry *
top_frame(checker *k)
{
    return k->open.len ? &k->open.at[k->open.len - 1] : NULL;
}

static bool
take_suspended(checker *k, struct _PyInterpreterFrame *frame, frame_entry *out)
{
    for (uint32_t i = 0; i < k->suspended.len; i++)
        if (k->suspended.at[i].frame == frame && k->suspended.at[i].code->object == kin_watch_code(frame)) {
            *out = k->suspended.at[i];
            k->suspended.at[i] = k->suspended.at[--k->suspended.len];
            return true;
        }
    return false;
}

/* throw() into a frame that waits in `yield from` or `await` starts the inner frame on top of the waiting one. */
static bool
is_suspended(const checker *k, const struct _PyInterpreterFrame *frame)
{
    for (uint32_t i = 0; i < k->suspended.len; i++)
        if (k->suspended.at[i].frame == frame)
            return true;
    return false;
}

static bool
on_call(void *arg, struct _PyInterpreterFrame *frame)
{
    checker *k = arg;
    frame_entry *parent = top_frame(k);
    frame_entry f = {.frame = frame};
    k->frames++;
    if (parent != NULL && kin_watch_previous(frame) != parent->frame && !is_suspended(k, kin_watch_previous(frame)))
        mismatch(k, parent, 0, "a frame starts whose caller was not seen");
    if (!PyFunction_Check(kin_watch_func(frame)))
        mismatch(k, parent, 0, "a frame without a function");
    bool generator = kin_watch_code(frame)->co_flags & (CO_GENERATOR | CO_COROUTINE | CO_ASYNC_GENERATOR);
    if (!generator || !take_suspended(k, frame, &f)) {
        f.code = code_of(k, kin_watch_code(frame));
        f.unknown = generator; /* may have been started before the watch */
        if (!f.code->usable)
            mismatch(k, NULL, 0, PyUnicode_AsUTF8(f.code->object->co_qualname));
    }
    f.skipped = !f.code->usable || strncmp(PyUnicode_AsUTF8(f.code->object->co_name), "skipped", 7) == 0;
    if (kin_vec_push(&k->open, f) != KIN_OK)
        abort();
    return !f.skipped;
}

static void
remember(frame_entry *f, const kin_instr *in, int depth, PyObject *const *locals, PyObject *const *stack)
{
    f->last = in;
    f->depth = depth;
    int n = depth < MAX_SAVED ? depth : MAX_SAVED;
    if (n > 0)
        memcpy(f->stack, stack, (size_t)n * sizeof *stack);
    f->local = in->op == KIN_OP_LOAD_FAST || in->op == KIN_OP_LOAD_FAST_BORROW ? locals[in->oparg] : NULL;
}

static void
on_instr(void *arg, struct _PyInterpreterFrame *frame, uint32_t offset)
{
    checker *k = arg;
    frame_entry *f = top_frame(k);
    k->instructions++;
    if (f == NULL || f->frame != frame) {
        mismatch(k, f, offset, "instruction of a frame that is not the innermost");
        return;
    }
    if (f->skipped) {
        mismatch(k, f, offset, "instruction of a frame that was not wanted");
        return;
    }
    const kin_instr *in = kin_code_at(&f->code->code, offset);
    if (in == NULL || in->offset != offset || in->depth < 0) {
        mismatch(k, f, offset, "no reachable instruction begins here");
        return;
    }
    PyObject *const *locals = kin_watch_localsplus(frame);
    PyObject *const *stack = locals + f->code->object->co_nlocalsplus;
    int real = kin_watch_stack_depth(frame);
    k->depths += real >= 0;
    if (real >= 0 && real != in->depth)
        mismatch(k, f, offset, "static depth is not the real one");
    bool fresh = f->last != NULL && f->last->op == KIN_OP_YIELD_VALUE && offset == f->code->start;
    if (!fresh && !is_legal(k, f, offset))
        mismatch(k, f, offset, "not a successor");
    else if (!fresh && f->last != NULL)
        check_values(k, f, offset, locals, stack, in->depth);
    check_callable(k, f, in, stack, in->depth);
    remember(f, in, in->depth, locals, stack);
    f->unknown = false;
}

/* Drops the innermost frame; keeps what is known of a generator that has only yielded. */
static void
on_ret(void *arg, struct _PyInterpreterFrame *frame, PyObject *value)
{
    checker *k = arg;
    frame_entry *f = top_frame(k);
    if (f == NULL || f->frame != frame) {
        mismatch(k, f, 0, "a frame ends that is not the innermost");
        return;
    }
    if (value != NULL && f->last != NULL) {
        bool plain = f->last->op == KIN_OP_RETURN_VALUE && f->depth > 0 && f->depth <= MAX_SAVED;
        k->values += plain;
        if (plain && f->stack[f->depth - 1] != value)
            mismatch(k, f, f->last->offset, "another value is returned than was on top");
        if (f->last->op == KIN_OP_YIELD_VALUE && kin_vec_push(&k->suspended, *f) != KIN_OK)
            abort();
    }
    k->open.len--;
}

/* ---- the module ------------------------------------------------------------------------------------------- */

static void
clear(checker *k)
{
    for (uint32_t i = 0; i < k->codes.len; i++)
        if (k->codes.at[i] != NULL) {
            if (k->codes.at[i]->usable)
                kin_code_deinit(&k->codes.at[i]->code);
            Py_DECREF(k->codes.at[i]->object);
            free(k->codes.at[i]);
        }
    kin_vec_deinit(&k->codes);
    kin_vec_deinit(&k->open);
    kin_vec_deinit(&k->suspended);
}

static PyObject *
run(PyObject *Py_UNUSED(module), PyObject *callable)
{
    checker k = {.first = PyList_New(0)};
    k.watch = (kin_watch){.client = {on_call, on_instr, on_ret}, .arg = &k};
    kin_status status = k.first ? kin_watch_start(&k.watch) : KIN_NOMEM;
    if (status != KIN_OK) {
        Py_XDECREF(k.first);
        return PyErr_Format(PyExc_RuntimeError, "the watch does not start (status %d)", (int)status);
    }
    PyObject *result = PyObject_CallNoArgs(callable);
    kin_watch_stop(&k.watch);
    if (!k.watch.lost && k.open.len != 0)
        mismatch(&k, NULL, 0, "frames without an end");
    clear(&k);
    if (result == NULL) {
        Py_DECREF(k.first);
        return NULL;
    }
    return Py_BuildValue("{sNsKsKsKsKsKsOsN}", "result", result, "instructions", k.instructions, "values", k.values,
                         "depths", k.depths, "frames", k.frames, "mismatches", k.mismatches, "lost",
                         k.watch.lost ? Py_True : Py_False, "first", k.first);
}

static PyObject *
foreign_tool(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(unused))
{
    return PyBool_FromLong(kin_watch_foreign_tool(PyThreadState_Get()));
}

/* decode(bytes, table) -> [(name, offset, op_offset, oparg, next, depth)], [(start, end, target, depth, lasti)] */
static PyObject *
decode_code(PyObject *Py_UNUSED(module), PyObject *args)
{
    code_entry e = {0};
    const char *bytes, *table;
    Py_ssize_t nbytes, ntable;
    if (!PyArg_ParseTuple(args, "y#y#", &bytes, &nbytes, &table, &ntable))
        return NULL;
    if (kin_code_init(&e.code, VERSION, (const uint8_t *)bytes, (uint32_t)nbytes, (const uint8_t *)table,
                      (uint32_t)ntable) != KIN_OK)
        return PyErr_Format(PyExc_ValueError, "code that cannot be decoded");
    PyObject *instrs = PyList_New(0), *handlers = PyList_New(0);
    for (uint32_t i = 0; i < e.code.ninstr; i++) {
        const kin_instr *in = &e.code.instrs[i];
        PyObject *row = Py_BuildValue("sIIIIi", kin_op_name(in->op), in->offset, in->op_offset, in->oparg, in->next,
                                      (int)in->depth);
        PyList_Append(instrs, row);
        Py_XDECREF(row);
    }
    for (uint32_t i = 0; i < e.code.nhandlers; i++) {
        const kin_handler *h = &e.code.handlers[i];
        PyObject *row = Py_BuildValue("IIIIi", h->start, h->end, h->target, h->depth, (int)h->lasti);
        PyList_Append(handlers, row);
        Py_XDECREF(row);
    }
    kin_code_deinit(&e.code);
    return Py_BuildValue("NN", instrs, handlers);
}

static PyObject *
effect(PyObject *Py_UNUSED(module), PyObject *args)
{
    int native, oparg, jump;
    if (!PyArg_ParseTuple(args, "iip", &native, &oparg, &jump))
        return NULL;
    kin_op op = kin_op_from_native(VERSION, (uint8_t)native);
    return Py_BuildValue("si", kin_op_name(op), kin_op_effect(VERSION, op, (uint32_t)oparg, jump));
}

static PyMethodDef methods[] = {
    {"run", run, METH_O, NULL},
    {"foreign_tool", foreign_tool, METH_NOARGS, NULL},
    {"decode", decode_code, METH_VARARGS, NULL},
    {"effect", effect, METH_VARARGS, NULL},
    {0},
};

static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, .m_name = "watchcheck", .m_methods = methods};

PyMODINIT_FUNC PyInit_watchcheck(void);

PyMODINIT_FUNC
PyInit_watchcheck(void)
{
    return PyModule_Create(&definition);
}
