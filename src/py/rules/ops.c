/* One rule per canonical operation: what an instruction does to the symbolic frame. An operation without a rule ends the recording;
 * the trace up to that point stays usable, and CPython runs the rest. build.c has the rules for operations that create objects, raise.c
 * those about exceptions, match.c those about patterns.
 */
#include "core/diag/breaks.h"
#include "py/compat/kinds.h"
#include "py/iterators/iterators.h"
#include "py/models/models.h"
#include "py/objects/objects.h"
#include "py/recorder/callables.h"
#include "py/rules/rules.h"
#include "py/torchcalls/torchcalls.h"

static PyObject *
name_at(rec *r, int i)
{
    return PyTuple_GET_ITEM(r->top->code->co_names, i);
}

static PyObject *
const_at(rec *r, int i)
{
    return PyTuple_GET_ITEM(r->top->code->co_consts, i);
}

/* -- locals, constants, stack ------------------------------------------------------------------------------------- */

static void
op_load_local(rec *r)
{
    kin_vid v = r->top->slots[r->top->arg];
    if (v == 0)
        rec_stop_row(r, KIN_ROW_EXCEPTION_ESCAPED, "unbound local");
    else
        rec_push(r, v);
}

static void
op_store_local(rec *r)
{
    rec_frame *f = r->top;
    kin_vid v = rec_peek(r, 0);
    rec_before_drop(r, f->slots[f->arg]);
    f->slots[f->arg] = v;
    rec_drop(r, 1);
    if (v != 0 && r->info.at[v].graph && r->t->vals.at[v].name == 0) {
        kin_ref name = rec_ref(r, PyTuple_GET_ITEM(f->code->co_localsplusnames, f->arg));
        r->t->vals.at[v].name = name;
    }
}

static void
op_swap(rec *r)
{
    rec_frame *f = r->top;
    int top = f->nlocals + f->sp - 1, other = top - f->arg + 1;
    kin_vid a = f->slots[top], b = f->slots[other];
    f->slots[top] = b;
    f->slots[other] = a;
}

static void
op_return(rec *r)
{
    kin_vid v = rec_peek(r, 0);
    r->returned = v;
    rec_operator_return(r, v);
    rec_before_return(r);
    if (r->top->back == NULL && r->returning == 0)
        rec_step(r, KIN_STEP_RETURN, 0, &v, 1);
}

/* -- globals ---------------------------------------------------------------------------------------------------------- */

static void
load_global_name(rec *r, PyObject *name)
{
    if (!PyDict_CheckExact(O(r, rec_frame_globals(r)))) {
        rec_stop(r, "the globals of a function are not a plain dict");
        return;
    }
    kin_vid value = rec_find_global(r, name);
    if (value == 0)
        rec_stop_row(r, KIN_ROW_EXCEPTION_ESCAPED, "name is not defined");
    else
        rec_push(r, value);
}

static void
op_store_global(rec *r, bool delete)
{
    PyObject *name = name_at(r, r->top->arg);
    kin_vid args[2] = {rec_frame_globals(r), delete ? 0 : rec_peek(r, 0)};
    rec_place place = {.kind = KIN_PLACE_ITEM, .base = args[0], .key = name};
    bool followed = PyDict_CheckExact(O(r, args[0])) && rec_begin_write(r, &place);
    r->may_wait = !delete;
    uint32_t s = rec_step(r, KIN_STEP_GLOBAL_SET, KIN_STEP_EFFECT, args, 2);
    r->may_wait = false;
    rec_name_store(r, s, name);
    if (followed)
        rec_end_write(r, &place, args[1]);
    else
        rec_forget_contents(r);
    rec_drop(r, delete ? 0 : 1);
}

/* -- cells -------------------------------------------------------------------------------------------------------------- */

static void
op_load_cell(rec *r)
{
    rec_frame *f = r->top;
    kin_vid cell = f->slots[f->arg];
    PyObject *value = PyCell_GET(kin_watch_localsplus(f->f)[f->arg]);
    rec_virtual *virtual = VIRTUAL(r, cell);
    if (value == NULL) {
        rec_stop_row(r, KIN_ROW_EXCEPTION_ESCAPED, "unbound free variable");
    } else if (virtual != NULL && virtual->known) {
        rec_push(r, virtual->items[0]);
    } else if (virtual != NULL) {
        rec_push_step(r, KIN_STEP_CELL_GET, 0, &cell, 1);
    } else {
        rec_root(r, cell);
        rec_push(r, rec_src(r, cell, KIN_ACCESS_CELL, 0, value));
    }
}

/* The variable of a comprehension that is part of the function, and which a function made in it closes over. */
static void
op_make_cell(rec *r)
{
    rec_frame *f = r->top;
    f->slots[f->arg] = rec_build_cell(r, f->slots[f->arg], NULL);
}

static void
op_store_cell(rec *r, bool delete)
{
    rec_frame *f = r->top;
    kin_vid args[2] = {f->slots[f->arg], delete ? 0 : rec_peek(r, 0)};
    rec_virtual *virtual = VIRTUAL(r, args[0]);
    rec_place place = {.kind = KIN_PLACE_CELL, .base = args[0]};
    bool followed = virtual == NULL && rec_begin_write(r, &place);
    bool kills = virtual != NULL && virtual->known && rec_is_mortal(r, virtual->items[0]); /* the content dies now: the cell has to exist, and lose it */
    if (kills)
        rec_escape(r, args[0]);
    r->may_wait = !delete;
    rec_step(r, KIN_STEP_CELL_SET, virtual && !kills ? KIN_STEP_MUTATES : KIN_STEP_EFFECT, args, 2);
    r->may_wait = false;
    if (virtual != NULL) {
        virtual->items[0] = args[1];
        virtual->known = virtual->known || !virtual->escaped;
        rec_changed(r, args[0]);
    } else if (followed) {
        rec_end_write(r, &place, args[1]);
    } else {
        rec_forget_contents(r);
    }
    rec_drop(r, delete ? 0 : 1);
}

/* -- calls -------------------------------------------------------------------------------------------------------------- */

/* Where the callable and the self of a call with `n` entries above them lie; the slot of self is empty for plain calls, and in
 * one of the two orders the callable then lies where self would be. */
static void
find_callable(const rec_frame *f, int n, int *callable, int *self)
{
    int base = f->nlocals + f->sp - n - 2;
    bool first = (f->flags & KIN_DO_CALLABLE_FIRST) || f->slots[base] != 0;
    *callable = first ? base : base + 1;
    *self = first ? base + 1 : base;
}

void
rec_call_slots(const rec_frame *f, int *callable, int *self, int *args)
{
    int above = f->arg + (f->flags & KIN_DO_NAMES_ON_STACK ? 1 : 0);
    find_callable(f, above, callable, self);
    *args = f->nlocals + f->sp - above;
}

PyObject *
rec_call_names(rec *r)
{
    const rec_frame *f = r->top;
    if (f->flags & KIN_DO_NAMES_ON_STACK)
        return O(r, rec_peek(r, 0)); /* a constant; a call that raised has emptied CPython's own stack */
    return f->extra > 0 ? const_at(r, f->extra - 1) : NULL;
}

/* A call takes bound methods apart, in an instruction before it (3.11) or itself. */
static void
op_unbind_method(rec *r)
{
    rec_frame *f = r->top;
    int at, self_at;
    find_callable(f, f->arg, &at, &self_at);
    kin_vid callee = f->slots[at];
    if (f->slots[self_at] != 0 || Py_TYPE(O(r, callee)) != &PyMethod_Type)
        return;
    rec_virtual *m = VIRTUAL(r, callee);
    kin_vid func, self;
    if (m != NULL && m->kind == VIRTUAL_METHOD) {
        func = m->items[0];
        self = m->items[1];
    } else {
        PyObject *obj = O(r, callee);
        rec_root(r, callee);
        rec_need_type(r, callee);
        func = rec_src(r, callee, KIN_ACCESS_METHOD_FUNC, 0, PyMethod_GET_FUNCTION(obj));
        self = rec_src(r, callee, KIN_ACCESS_METHOD_SELF, 0, PyMethod_GET_SELF(obj));
    }
    rec_snapshot(r);
    int base = at < self_at ? at : self_at;
    f->slots[base] = func;
    f->slots[base + 1] = self;
}

static void
op_call(rec *r)
{
    const rec_frame *f = r->top;
    int n = f->arg, callable, self, first;
    rec_call_slots(f, &callable, &self, &first);
    PyObject *kwnames = rec_call_names(r);
    uint32_t nkw = kwnames ? (uint32_t)PyTuple_GET_SIZE(kwnames) : 0;
    if (n > 200) {
        rec_stop(r, "a call with too many arguments");
        return;
    }
    kin_vid args[256], callee = f->slots[callable];
    uint32_t npos = (uint32_t)n - nkw;
    if (f->slots[self] != 0) {
        args[0] = f->slots[self];
        npos++;
    }
    memcpy(args + (f->slots[self] != 0), f->slots + first, (size_t)n * sizeof *args);
    int ndrop = f->nlocals + f->sp - (callable < self ? callable : self), below = f->nlocals + f->sp - 1 - callable;
    const rec_args call = {.callee = callee, .args = args, .npos = npos, .nkw = nkw, .kwnames = kwnames, .ndrop = ndrop};
    if (!rec_drop_report(r, &call, below))
        rec_do_call(r, &call);
}

/* -- with ------------------------------------------------------------------------------------------------------------------ */

static void
op_enter_with(rec *r)
{
    kin_vid mgr = rec_peek(r, 0);
    PyTypeObject *tp = rec_need_attrs(r, mgr);
    PyObject *enter = rec_lookup(r, tp, REC_STR("__enter__")), *leave = rec_lookup(r, tp, REC_STR("__exit__"));
    bool python = enter && leave && PyFunction_Check(enter) && PyFunction_Check(leave);
    bool c = enter && leave && Py_TYPE(enter) == &PyMethodDescr_Type && Py_TYPE(leave) == &PyMethodDescr_Type;
    if (!python && !c) {
        rec_stop(r, "unsupported context manager");
        return;
    }
    kin_vid first = rec_found(r, tp, REC_STR("__enter__"), enter), parts[2] = {rec_found(r, tp, REC_STR("__exit__"), leave), mgr};
    kin_vid exit = rec_step_out(r, KIN_STEP_BUILD_METHOD, KIN_STEP_PURE, parts, 2);
    rec_make_virtual(r, exit, VIRTUAL_METHOD, parts, 2, true);
    if (python && rec_tell_profiler(r, enter, &mgr, 1)) {
        rec_drop(r, 1);
        rec_push(r, exit);
        rec_push(r, mgr);
        return;
    }
    if (python && rec_can_inline(r, enter) &&
        rec_inline(r, &(rec_args){.callee = first, .args = &mgr, .npos = 1, .ndrop = 1}, &exit, 1, KIN_RESUME_PUSH, 0))
        return;
    kin_vid args[2] = {first, mgr};
    bool known = c && rec_callable_effects(enter) & KIN_OF_FIRST; /* one that changes itself alone */
    kin_vid out = rec_step_out(r, KIN_STEP_CALL, (known ? 0u : KIN_STEP_OPAQUE) | KIN_STEP_EFFECT, args, 2);
    if (!known)
        rec_forget_contents(r);
    r->skip_expected = true;
    rec_drop(r, 1);
    rec_push(r, exit);
    rec_await_result(r, out, r->t->vals.at[out].step);
}

/* A special method as the class has it, and what it is bound to. */
static void
op_load_special(rec *r)
{
    static const char *const texts[] = {"__enter__", "__exit__", "__aenter__", "__aexit__"};
    static PyObject *names[4];
    kin_vid of = rec_peek(r, 0);
    int i = r->top->arg & 3;
    if (names[i] == NULL)
        names[i] = PyUnicode_InternFromString(texts[i]);
    PyTypeObject *tp = rec_need_attrs(r, of);
    PyObject *method = rec_lookup(r, tp, names[i]);
    if (method == NULL || !(Py_TYPE(method)->tp_flags & Py_TPFLAGS_METHOD_DESCRIPTOR)) {
        rec_stop(r, "unsupported context manager");
        return;
    }
    kin_vid found = rec_found(r, tp, names[i], method);
    rec_snapshot(r);
    rec_drop(r, 1);
    rec_push(r, found);
    rec_push(r, of);
}

/* -- imports --------------------------------------------------------------------------------------------------------------- */

/* Is __import__ the one of the interpreter? Otherwise it is user code. */
static bool
is_stock_import(rec *r)
{
    kin_vid builtins = rec_frame_builtins(r);
    PyObject *dict = O(r, builtins), *hook = NULL;
    if (PyDict_CheckExact(dict))
        hook = PyDict_GetItemWithError(dict, REC_STR("__import__"));
    if (hook == NULL || !PyCFunction_CheckExact(hook) ||
        strcmp(((PyCFunctionObject *)hook)->m_ml->ml_name, "__import__") != 0)
        return false;
    return rec_need_const(r, rec_dict_item(r, builtins, REC_STR("__import__"), hook)) != 0;
}

/* `from module import names`: a package is asked for each name, and imports a submodule for one that it lacks. Nothing
 * runs when all are there, and IMPORT_FROM makes that a fact.
 */
static bool
has_names(PyObject *module, PyObject *fromlist)
{
    if (fromlist == Py_None)
        return true;
    PyObject *dict = PyModule_Check(module) ? PyModule_GetDict(module) : NULL;
    if (dict == NULL || !PyTuple_CheckExact(fromlist))
        return false;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(fromlist); i++)
        if (PyDict_GetItemWithError(dict, PyTuple_GET_ITEM(fromlist, i)) == NULL)
            return false;
    return true;
}

static void
op_import_name(rec *r)
{
    PyObject *name = name_at(r, r->top->arg), *fromlist = rec_stack_obj(r, 0), *level = rec_stack_obj(r, 1);
    PyObject *modules = PyImport_GetModuleDict(), *module = NULL;
    if (PyDict_CheckExact(modules) && PyLong_CheckExact(level) && PyLong_AsLong(level) == 0 && is_stock_import(r)) {
        module = PyDict_GetItemWithError(modules, name);
        const char *text = kin_utf8(name), *dot = strchr(text, '.');
        if (module != NULL && fromlist == Py_None && dot != NULL) {
            rec_dict_item(r, rec_const(r, modules), name, module); /* it is there */
            PyObject *top = PyUnicode_FromStringAndSize(text, dot - text);
            module = top ? PyDict_GetItemWithError(modules, top) : NULL;
            if (module != NULL) {
                kin_vid known = rec_const(r, top); /* keeps it; may move r->info */
                name = O(r, known);
            }
            Py_XDECREF(top);
        }
    }
    PyErr_Clear();
    if (module == NULL || module == Py_None || !has_names(module, fromlist)) {
        kin_vid args[3] = {rec_peek(r, 0), 0, 0};
        args[0] = rec_peek(r, 1);
        args[1] = rec_peek(r, 0);
        args[2] = rec_frame_globals(r);
        kin_vid out = rec_step_out(r, KIN_STEP_IMPORT, KIN_STEP_OPAQUE | KIN_STEP_EFFECT, args, 3);
        kin_ref ref = rec_ref(r, name);
        r->t->steps.at[r->t->vals.at[out].step].ref = ref;
        rec_forget_contents(r);
        r->skip_expected = true;
        rec_drop(r, 2);
        rec_await_result(r, out, r->t->vals.at[out].step);
        return;
    }
    kin_vid vid = rec_dict_item(r, rec_const(r, modules), name, module);
    r->skip_expected = true;
    rec_drop(r, 2);
    rec_push(r, vid);
}

static void
op_import_from(rec *r)
{
    kin_vid module = rec_peek(r, 0);
    attr_result a;
    rec_attr_find(r, module, name_at(r, r->top->arg), &a);
    if (a.kind == ATTR_VALUE) {
        rec_push(r, a.value);
        return;
    }
    kin_vid out = rec_step_out(r, KIN_STEP_IMPORT_FROM, KIN_STEP_OPAQUE, &module, 1);
    kin_ref ref = rec_ref(r, name_at(r, r->top->arg));
    r->t->steps.at[r->t->vals.at[out].step].ref = ref;
    rec_forget_contents(r);
    r->skip_expected = true;
    rec_await_result(r, out, r->t->vals.at[out].step);
}

/* -- dispatch ---------------------------------------------------------------------------------------------------------------- */

static void
dispatch_others(rec *r)
{
    switch (r->top->op) {
    case KIN_DO_IMPORT_NAME: op_import_name(r); break;
    case KIN_DO_IMPORT_FROM: op_import_from(r); break;
    case KIN_DO_ENTER_WITH: op_enter_with(r); break;
    case KIN_DO_LOAD_SPECIAL: op_load_special(r); break;
    case KIN_DO_GET_LEN: rec_op_get_len(r); break;
    case KIN_DO_MATCH_MAPPING: rec_op_match_kind(r, Py_TPFLAGS_MAPPING); break;
    case KIN_DO_MATCH_SEQUENCE: rec_op_match_kind(r, Py_TPFLAGS_SEQUENCE); break;
    case KIN_DO_MATCH_KEYS: rec_op_match_keys(r); break;
    case KIN_DO_MATCH_CLASS: rec_op_match_class(r, r->top->arg); break;
    default:
        if (rec_op_build(r) || rec_op_exception(r))
            break;
        rec_stop_fmt(r, "unsupported opcode %s", kin_instr_name(r->top->in));
    }
}

static void
dispatch_values(rec *r)
{
    rec_frame *f = r->top;
    switch (f->op) {
    case KIN_DO_NEGATE: rec_op_binary(r, KIN_STEP_UNARY, KIN_UNARY_NEGATIVE, 1); break;
    case KIN_DO_POSITIVE: rec_op_binary(r, KIN_STEP_UNARY, KIN_UNARY_POSITIVE, 1); break;
    case KIN_DO_INVERT: rec_op_binary(r, KIN_STEP_UNARY, KIN_UNARY_INVERT, 1); break;
    case KIN_DO_NOT: rec_op_binary(r, KIN_STEP_UNARY, KIN_UNARY_NOT, 1); break;
    case KIN_DO_BINARY:
        if (!rec_consume_added(r, f->arg) && !rec_join_in_place(r, f->arg))
            rec_op_binary(r, KIN_STEP_BINARY, f->arg, 2);
        break;
    case KIN_DO_COMPARE: rec_op_compare(r); break;
    case KIN_DO_TRUTH: rec_op_truth(r); break;
    case KIN_DO_IS: rec_op_is(r, f->arg); break;
    case KIN_DO_CONTAINS: rec_op_contains(r, f->arg); break;
    case KIN_DO_LOAD_ITEM:
        if (!rec_consume_missing(r))
            rec_op_subscr(r);
        break;
    case KIN_DO_STORE_ITEM: rec_op_store_subscr(r, false); break;
    case KIN_DO_LOAD_SLICE: rec_op_load_slice(r); break;
    case KIN_DO_STORE_SLICE: rec_op_store_slice(r); break;
    case KIN_DO_DELETE_ITEM: rec_op_store_subscr(r, true); break;
    case KIN_DO_GET_ITER: rec_op_get_iter(r); break;
    case KIN_DO_NEXT: rec_op_for_iter(r); break;
    case KIN_DO_GET_YIELD_FROM_ITER: rec_op_yield_from(r); break;
    case KIN_DO_SEND: rec_op_send(r); break;
    case KIN_DO_UNPACK: rec_op_unpack(r, f->arg); break;
    case KIN_DO_UNPACK_STARRED: rec_op_unpack_ex(r, f->arg, f->extra); break;
    case KIN_DO_LOAD_ATTR: rec_op_load_attr(r, name_at(r, f->arg), false); break;
    case KIN_DO_LOAD_METHOD: rec_op_load_attr(r, name_at(r, f->arg), true); break;
    case KIN_DO_LOAD_SUPER_ATTR: rec_op_load_super(r, name_at(r, f->arg), false); break;
    case KIN_DO_LOAD_SUPER_METHOD: rec_op_load_super(r, name_at(r, f->arg), true); break;
    case KIN_DO_STORE_ATTR: rec_op_store_attr(r, name_at(r, f->arg), false); break;
    case KIN_DO_DELETE_ATTR: rec_op_store_attr(r, name_at(r, f->arg), true); break;
    case KIN_DO_BRANCH: rec_op_branch(r); break;
    default:
        dispatch_others(r);
    }
}

static void
dispatch(rec *r)
{
    rec_frame *f = r->top;
    switch (f->op) {
    case KIN_DO_LOAD_LOCAL: op_load_local(r); break;
    case KIN_DO_STORE_LOCAL: op_store_local(r); break;
    case KIN_DO_DELETE_LOCAL:
        rec_before_drop(r, f->slots[f->arg]);
        f->slots[f->arg] = 0;
        break;
    case KIN_DO_TAKE_LOCAL:
        rec_push(r, f->slots[f->arg]);
        f->slots[f->arg] = 0;
        break;
    case KIN_DO_LOAD_CONST: rec_push(r, rec_const(r, const_at(r, f->arg))); break;
    case KIN_DO_LOAD_INT: case KIN_DO_LOAD_COMMON: rec_await_const(r); break;
    case KIN_DO_POP: rec_drop(r, 1); break;
    case KIN_DO_PUSH_EMPTY: rec_push(r, 0); break;
    case KIN_DO_COPY: rec_push(r, rec_peek(r, f->arg - 1)); break;
    case KIN_DO_SWAP: op_swap(r); break;
    case KIN_DO_LOAD_GLOBAL: load_global_name(r, name_at(r, f->arg)); break;
    case KIN_DO_STORE_GLOBAL: op_store_global(r, false); break;
    case KIN_DO_DELETE_GLOBAL: op_store_global(r, true); break;
    case KIN_DO_LOAD_CELL_OBJECT: rec_push(r, f->slots[f->arg]); break;
    case KIN_DO_LOAD_CELL: op_load_cell(r); break;
    case KIN_DO_STORE_CELL: op_store_cell(r, false); break;
    case KIN_DO_DELETE_CELL: op_store_cell(r, true); break;
    case KIN_DO_MAKE_CELL: op_make_cell(r); break;
    case KIN_DO_LOAD_BUILD_CLASS: load_global_name(r, REC_STR("__build_class__")); break;
    case KIN_DO_UNBIND_METHOD: op_unbind_method(r); break;
    case KIN_DO_CALL: op_call(r); break;
    case KIN_DO_CALL_SPREAD: rec_op_call_spread(r); break;
    case KIN_DO_RETURN: op_return(r); break;
    case KIN_DO_YIELD: rec_op_yield(r); break;
    default:
        dispatch_values(r);
    }
}

void
rec_dispatch(rec *r)
{
    rec_frame *f = r->top;
    const kin_instr *in = f->in;
    if (in->ndoes == 1) {
        dispatch(r);
        return;
    }
    for (int i = 0; i < in->ndoes && !r->stopped; i++) {
        rec_set_action(f, in->does[i]);
        dispatch(r);
    }
    rec_set_action(f, kin_instr_main(in));
}
