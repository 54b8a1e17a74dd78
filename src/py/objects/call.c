/* Calls: what is called, inlining of Python functions (argument binding included), and calls that stay steps. */
#include "core/diag/breaks.h"
#include "py/compat/codes.h"
#include "py/compat/heap.h"
#include "py/compat/kinds.h"
#include "py/objects/objects.h"
#include "py/torchcalls/skip.h"
#include "py/torchcalls/torchcalls.h"

enum { MAX_DEPTH = 120 };

/* -- what a function value is made of --------------------------------------------------------------------------- */

static rec_virtual *
virtual_function(rec *r, kin_vid func)
{
    rec_virtual *f = VIRTUAL(r, func);
    return f != NULL && f->kind == VIRTUAL_FUNCTION ? f : NULL;
}

kin_vid
rec_closure_cell(rec *r, kin_vid func, int i, PyObject *cell)
{
    rec_virtual *f = virtual_function(r, func);
    if (f != NULL && f->items[FN_CLOSURE]) {
        kin_vid closure = f->items[FN_CLOSURE];
        if (VIRTUAL(r, closure) && (uint32_t)i < VIRTUAL(r, closure)->n)
            return VIRTUAL(r, closure)->items[i];
    }
    kin_vid vid = rec_src(r, func, KIN_ACCESS_CLOSURE, (uint32_t)i, cell);
    r->info.at[vid].type = &PyCell_Type;
    return vid;
}

/* Fixes which code runs: the function's identity where that is stable, else its code object, so that closures that are made
 * anew in each call still fit. */
void
rec_fix_function(rec *r, kin_vid *func)
{
    PyFunctionObject *fn = (PyFunctionObject *)O(r, *func);
    if (virtual_function(r, *func) != NULL)
        return;
    kin_vid c = rec_can_const(r, *func) ? rec_need_const(r, *func) : 0;
    if (c != 0)
        *func = c;
    else
        rec_root(r, *func), rec_need_type(r, *func);
    rec_fact(r, KIN_FACT_CODE, *func, fn->func_code, 0);
}

static kin_vid
default_value(rec *r, kin_vid func, PyFunctionObject *fn, int i)
{
    rec_virtual *f = virtual_function(r, func);
    PyObject *obj = PyTuple_GET_ITEM(fn->func_defaults, i);
    if (f == NULL)
        return rec_src(r, func, KIN_ACCESS_DEFAULT, (uint32_t)i, obj);
    kin_vid d = f->items[FN_DEFAULTS];
    if (d && VIRTUAL(r, d) && (uint32_t)i < VIRTUAL(r, d)->n)
        return VIRTUAL(r, d)->items[i];
    return rec_is_const(r, d) ? rec_const(r, obj) : 0;
}

static kin_vid
kwdefault_value(rec *r, kin_vid func, PyFunctionObject *fn, PyObject *name)
{
    PyObject *obj = fn->func_kwdefaults ? PyDict_GetItemWithError(fn->func_kwdefaults, name) : NULL;
    if (obj == NULL)
        return 0;
    rec_virtual *f = virtual_function(r, func);
    if (f == NULL)
        return rec_src_key(r, func, KIN_ACCESS_KWDEFAULT, name, obj);
    rec_virtual *d = VIRTUAL(r, f->items[FN_KWDEFAULTS]);
    for (uint32_t i = 0; d && d->known && i + 1 < d->n; i += 2)
        if (PyUnicode_Compare(O(r, d->items[i]), name) == 0)
            return d->items[i + 1];
    return 0;
}

/* -- binding ------------------------------------------------------------------------------------------------------ */

kin_vid
rec_build_dict(rec *r, const kin_vid *pairs, uint32_t n)
{
    kin_vid out = rec_step_out(r, KIN_STEP_BUILD_MAP, KIN_STEP_PURE, pairs, n);
    rec_make_virtual(r, out, VIRTUAL_DICT, pairs, n, true);
    r->info.at[out].type = &PyDict_Type;
    return out;
}

static int
find_parameter(PyCodeObject *code, PyObject *name)
{
    for (int i = code->co_posonlyargcount; i < code->co_argcount + code->co_kwonlyargcount; i++) {
        PyObject *p = PyTuple_GET_ITEM(code->co_localsplusnames, i);
        if (p == name || PyUnicode_Compare(p, name) == 0)
            return i;
    }
    return -1;
}

static bool
bind_keywords(rec *r, PyCodeObject *code, kin_vid *locals, const kin_vid *values, uint32_t nkw, PyObject *kwnames,
              int kwargs_slot)
{
    kin_vid pairs[2 * 64];
    uint32_t npairs = 0;
    for (uint32_t k = 0; k < nkw; k++) {
        PyObject *name = PyTuple_GET_ITEM(kwnames, k);
        int p = find_parameter(code, name);
        if (p >= 0) {
            if (locals[p] != 0)
                return false;
            locals[p] = values[k];
        } else {
            if (kwargs_slot < 0 || npairs >= 2 * 64)
                return false;
            pairs[npairs++] = rec_const(r, name);
            pairs[npairs++] = values[k];
        }
    }
    if (kwargs_slot >= 0)
        locals[kwargs_slot] = rec_build_dict(r, pairs, npairs);
    return true;
}

static bool
bind_defaults(rec *r, kin_vid func, PyFunctionObject *fn, PyCodeObject *code, kin_vid *locals)
{
    int ndef = fn->func_defaults ? (int)PyTuple_GET_SIZE(fn->func_defaults) : 0;
    bool used = false;
    for (int i = 0; i < code->co_argcount; i++) {
        if (locals[i] != 0)
            continue;
        int d = i - (code->co_argcount - ndef);
        if (d < 0)
            return false;
        if (!used && virtual_function(r, func) == NULL)
            rec_fact(r, KIN_FACT_NDEFAULTS, func, NULL, (uint32_t)ndef);
        used = true;
        if ((locals[i] = default_value(r, func, fn, d)) == 0)
            return false;
    }
    for (int i = code->co_argcount; i < code->co_argcount + code->co_kwonlyargcount; i++)
        if (locals[i] == 0 &&
            (locals[i] = kwdefault_value(r, func, fn, PyTuple_GET_ITEM(code->co_localsplusnames, i))) == 0)
            return false;
    return true;
}

/* Binds a call as CPython does; the result is r->call.locals. False: binding is not understood (or raises). */
static bool
bind_call(rec *r, const rec_args *a)
{
    const kin_vid func = a->callee, *args = a->args;
    const uint32_t npos = a->npos;
    PyFunctionObject *fn = (PyFunctionObject *)O(r, func);
    PyCodeObject *code = (PyCodeObject *)fn->func_code;
    uint32_t n = (uint32_t)code->co_nlocalsplus;
    rec_call *c = &r->call;
    if (n > c->cap) {
        kin_vid *grown = realloc(c->locals, n * sizeof *grown);
        if (grown == NULL)
            return false;
        c->locals = grown;
        c->cap = n;
    }
    memset(c->locals, 0, n * sizeof *c->locals);
    c->nlocals = n;
    int nparams = code->co_argcount + code->co_kwonlyargcount;
    uint32_t direct = npos < (uint32_t)code->co_argcount ? npos : (uint32_t)code->co_argcount;
    memcpy(c->locals, args, direct * sizeof *args);
    int varargs = code->co_flags & CO_VARARGS ? nparams : -1;
    int kwargs = code->co_flags & CO_VARKEYWORDS ? nparams + (varargs >= 0) : -1;
    if (npos > direct && varargs < 0)
        return false;
    if (varargs >= 0)
        c->locals[varargs] = rec_build_tuple(r, args + direct, npos - direct, NULL);
    return bind_keywords(r, code, c->locals, args + npos, a->nkw, a->kwnames, kwargs) &&
           bind_defaults(r, func, fn, code, c->locals);
}

/* -- inlining ------------------------------------------------------------------------------------------------------- */

bool
rec_can_inline(rec *r, PyObject *func)
{
    if (!PyFunction_Check(func) || r->depth >= MAX_DEPTH)
        return false;
    PyFunctionObject *fn = (PyFunctionObject *)func;
    PyCodeObject *code = (PyCodeObject *)fn->func_code;
    if (!kin_function_is_plain(func))
        return false;
    if (code->co_flags & (CO_GENERATOR | CO_COROUTINE | CO_ASYNC_GENERATOR))
        return false;
    return (code->co_flags & CO_OPTIMIZED) && !rec_skips_function(func) && rec_code_of(code) != NULL;
}

bool
rec_bind(rec *r, rec_args *a)
{
    rec_fix_function(r, &a->callee);
    return bind_call(r, a);
}

/* Expects the next frame to be that of the call. The values `under` come in place of its operands; the result goes where `resume`
 * says. */
bool
rec_inline(rec *r, const rec_args *a, const kin_vid *under, int nunder, kin_resume resume, kin_vid extra)
{
    rec_args bound = *a;
    if (!rec_bind(r, &bound))
        return false;
    rec_frame *f = r->top;
    rec_snapshot(r);
    rec_drop(r, a->ndrop);
    for (int i = 0; i < nunder; i++)
        rec_push(r, under[i]);
    f->parent_for_call = rec_snapshot_of(r, f, f->offset, f->sp);
    r->t->snaps.at[f->parent_for_call].resume = (uint8_t)resume;
    r->t->snaps.at[f->parent_for_call].extra = extra;
    f->call_resume = resume;
    f->call_extra = extra;
    f->await = AWAIT_FRAME;
    r->call.active = true;
    r->call.func = O(r, bound.callee);
    r->call.func_vid = bound.callee;
    return true;
}

/* -- calls as steps ------------------------------------------------------------------------------------------------- */

static void
opaque_call(rec *r, const rec_args *a)
{
    int row = rec_opaque_row(r, a->callee, a->args, a->npos + a->nkw);
    unsigned flags = rec_opaque_flags(r, a->callee, a->args, a->npos + a->nkw);
    rec_call_step(r, a, flags, row);
}

/* -- the call itself -------------------------------------------------------------------------------------------------- */

static bool
call_with_self(rec *r, const rec_args *a, kin_vid func, kin_vid self)
{
    kin_vid all[256];
    if (a->npos + a->nkw > 250)
        return false;
    rec_args call = rec_args_behind(a, func, self, all);
    rec_do_call(r, &call);
    return true;
}

/* A C method of a container that was kept before, as `append = out.append` does: the method of its class, on the container. */
static bool
call_kept_method(rec *r, const rec_args *a)
{
    PyObject *obj = O(r, a->callee), *self = Py_IS_TYPE(obj, &PyCFunction_Type) ? PyCFunction_GET_SELF(obj) : NULL;
    PyTypeObject *tp = self != NULL ? Py_TYPE(self) : NULL;
    if (tp == NULL || VIRTUAL(r, a->callee) != NULL || rec_is_const(r, a->callee) ||
        (tp != &PyList_Type && tp != &PyDict_Type && tp != &PySet_Type && tp != &PyODict_Type && !kin_heap_type_is(tp, "collections.deque") && !kin_heap_type_is(tp, "collections.defaultdict")))
        return false;
    PyObject *name = PyUnicode_InternFromString(kin_callable_name(obj)), *method = name != NULL ? _PyType_Lookup(tp, name) : NULL;
    Py_XDECREF(name);
    PyErr_Clear();
    if (method == NULL || !kin_runs_method(obj, method))
        return false;
    rec_root(r, a->callee);
    rec_need_type(r, a->callee);
    rec_fact(r, KIN_FACT_CODE, a->callee, method, 0);
    return call_with_self(r, a, rec_const(r, method), rec_src(r, a->callee, KIN_ACCESS_METHOD_SELF, 0, self));
}

/* Bound methods are taken apart; an object of ours that compiles a function stands for that function. */
static bool
call_unwrapped(rec *r, const rec_args *a)
{
    PyObject *obj = O(r, a->callee);
    rec_virtual *f = VIRTUAL(r, a->callee);
    if (f != NULL && f->kind == VIRTUAL_METHOD)
        return call_with_self(r, a, f->items[0], f->items[1]);
    if (Py_TYPE(obj) == &PyMethod_Type && f == NULL) {
        rec_root(r, a->callee);
        rec_need_type(r, a->callee);
        kin_vid func = rec_src(r, a->callee, KIN_ACCESS_METHOD_FUNC, 0, PyMethod_GET_FUNCTION(obj));
        kin_vid self = rec_src(r, a->callee, KIN_ACCESS_METHOD_SELF, 0, PyMethod_GET_SELF(obj));
        return call_with_self(r, a, func, self);
    }
    if (call_kept_method(r, a))
        return true;
    if (f == NULL && rec_is_compiled(obj)) {
        PyObject *fn = rec_compiled_fn(obj);
        if (fn == NULL)
            return false;
        rec_root(r, a->callee);
        rec_need_type(r, a->callee);
        rec_args inner = rec_args_to(a, rec_src(r, a->callee, KIN_ACCESS_COMPILED_FUNC, 0, fn));
        rec_do_call(r, &inner);
        return true;
    }
    return false;
}

/* Keywords of a partial object and of the call: names in the order of the partial's, the call's values win. */
PyObject *
rec_join_keywords(rec *r, const kin_vid *pairs, uint32_t npairs, const kin_vid *values, uint32_t nkw, PyObject *kwnames,
                  kin_vid *joined)
{
    PyObject *names = PyList_New(0);
    uint32_t n = 0;
    bool ok = names != NULL;
    for (uint32_t i = 0; ok && i < npairs; i += 2) {
        joined[n] = pairs[i + 1];
        for (uint32_t k = 0; k < nkw; k++)
            if (PyUnicode_Compare(PyTuple_GET_ITEM(kwnames, k), O(r, pairs[i])) == 0)
                joined[n] = values[k];
        n++;
        ok = PyList_Append(names, O(r, pairs[i])) == 0;
    }
    for (uint32_t k = 0; ok && k < nkw; k++) {
        int known = PySequence_Contains(names, PyTuple_GET_ITEM(kwnames, k));
        if (known == 0) {
            joined[n++] = values[k];
            ok = PyList_Append(names, PyTuple_GET_ITEM(kwnames, k)) == 0;
        }
    }
    PyObject *tuple = ok ? PyList_AsTuple(names) : NULL;
    Py_XDECREF(names);
    PyErr_Clear();
    if (tuple != NULL)
        rec_ref(r, tuple); /* as long as the recording */
    Py_XDECREF(tuple);
    return tuple;
}

/* A partial object made here: its function, arguments and keyword values are known. */
static bool
call_virtual_partial(rec *r, const rec_args *a)
{
    rec_virtual *f = VIRTUAL(r, a->callee);
    uint32_t nown = f->aux ? (uint32_t)PyTuple_GET_SIZE(f->aux) : 0, n = f->n - 1 - nown;
    kin_vid all[256], pairs[64];
    if (!f->known || f->n + a->npos + a->nkw > 200 || nown > 32)
        return false;
    kin_vid func = f->items[0];
    for (uint32_t i = 0; i < nown; i++) {
        pairs[2 * i] = rec_const(r, PyTuple_GET_ITEM(f->aux, i));
        pairs[2 * i + 1] = f->items[1 + n + i];
    }
    memcpy(all, f->items + 1, n * sizeof *all);
    memcpy(all + n, a->args, a->npos * sizeof *a->args);
    n += a->npos;
    PyObject *names = rec_join_keywords(r, pairs, 2 * nown, a->args + a->npos, a->nkw, a->kwnames, all + n);
    if (names == NULL)
        return false;
    uint32_t nnames = (uint32_t)PyTuple_GET_SIZE(names);
    rec_do_call(r, &(rec_args){.callee = func, .args = all, .npos = n, .nkw = nnames, .kwnames = nnames ? names : NULL, .ndrop = a->ndrop});
    return true;
}

/* The parts of a functools.partial that is older than the recording, read by path and joined with more arguments: positional ones, then the values of
 * keywords, in `all`. */
bool
rec_partial_parts(rec *r, const rec_args *a, kin_vid partial, kin_vid *fn, kin_vid *all, rec_args *joined)
{
    struct { PyObject_HEAD PyObject *fn, *args, *kw; } *p = (void *)O(r, partial);
    if (VIRTUAL(r, partial) != NULL || !kin_heap_type_is(Py_TYPE(p), "functools.partial") || !PyDict_CheckExact(p->kw) ||
        !PyTuple_CheckExact(p->args) || a->npos + a->nkw + PyTuple_GET_SIZE(p->args) + PyDict_GET_SIZE(p->kw) > 200)
        return false;
    rec_root(r, partial);
    rec_need_type(r, partial);
    *fn = rec_src(r, partial, KIN_ACCESS_PARTIAL_FUNC, 0, p->fn);
    kin_vid pa = rec_src(r, partial, KIN_ACCESS_PARTIAL_ARGS, 0, p->args);
    kin_vid kw = rec_src(r, partial, KIN_ACCESS_PARTIAL_KW, 0, p->kw), *pairs = NULL;
    uint32_t n = 0, npairs = 0;
    rec_need_type(r, pa);
    rec_need_len(r, pa, PyTuple_GET_SIZE(p->args));
    if (!rec_pairs_of(r, kw, &pairs, &npairs))
        return false; /* their keys are texts: partial() has been called with them */
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(p->args); i++)
        all[n++] = rec_src(r, pa, KIN_ACCESS_TUPLE_ITEM, (uint32_t)i, PyTuple_GET_ITEM(p->args, i));
    memcpy(all + n, a->args, a->npos * sizeof *a->args);
    n += a->npos;
    PyObject *names = rec_join_keywords(r, pairs, npairs, a->args + a->npos, a->nkw, a->kwnames, all + n);
    free(pairs);
    if (names == NULL)
        return false;
    uint32_t nnames = (uint32_t)PyTuple_GET_SIZE(names);
    *joined = (rec_args){.callee = *fn, .args = all, .npos = n, .nkw = nnames, .kwnames = nnames ? names : NULL, .ndrop = a->ndrop};
    return true;
}

/* A call of a functools.partial. */
bool
rec_call_partial(rec *r, const rec_args *a)
{
    kin_vid fn, all[256];
    rec_args joined;
    if (VIRTUAL(r, a->callee) != NULL && VIRTUAL(r, a->callee)->kind == VIRTUAL_PARTIAL)
        return call_virtual_partial(r, a);
    if (!rec_partial_parts(r, a, a->callee, &fn, all, &joined))
        return false;
    rec_do_call(r, &joined);
    return true;
}

/* __call__ of the class of an instance, if it is Python code; NULL: it is not. Writes nothing. */
PyObject *
rec_call_in_python(rec *r, kin_vid obj)
{
    PyTypeObject *tp = O(r, obj) != NULL ? Py_TYPE(O(r, obj)) : NULL;
    if (tp == NULL || !(tp->tp_flags & Py_TPFLAGS_HEAPTYPE) || PyType_Check(O(r, obj)))
        return NULL;
    PyObject *call = _PyType_Lookup(tp, REC_STR("__call__"));
    return call != NULL && PyFunction_Check(call) ? call : NULL;
}

/* __call__ of the class of an instance, which is the function `call` now. */
kin_vid
rec_call_of_instance(rec *r, kin_vid obj, PyObject *call)
{
    PyTypeObject *tp = Py_TYPE(O(r, obj));
    rec_need_attrs(r, obj);
    rec_lookup(r, tp, REC_STR("__call__"));
    return rec_found(r, tp, REC_STR("__call__"), call);
}

bool
rec_call_instance(rec *r, const rec_args *a)
{
    PyObject *call = rec_call_in_python(r, a->callee);
    return call != NULL && call_with_self(r, a, rec_call_of_instance(r, a->callee, call), a->callee);
}

bool
rec_call_inlined(rec *r, const rec_args *a)
{
    return rec_can_inline(r, O(r, a->callee)) && rec_inline(r, a, NULL, 0, KIN_RESUME_PUSH, 0);
}

/* What can be a constant is one from here on; which code a function runs is a fact of its own. */
static rec_args
with_constant(rec *r, const rec_args *a)
{
    if (!PyFunction_Check(O(r, a->callee)) && rec_can_const(r, a->callee))
        return rec_args_to(a, rec_need_const(r, a->callee));
    return *a;
}

void
rec_do_call(rec *r, const rec_args *given)
{
    if (call_unwrapped(r, given))
        return;
    rec_args a = with_constant(r, given);
    unsigned kind = PyFunction_Check(O(r, a.callee)) ? REC_OF_FUNCTIONS : rec_is_const(r, a.callee) ? REC_OF_CONSTANTS : REC_OF_OTHERS;
    for (const rec_call_row *row = rec_call_rows; row->rule != NULL; row++)
        if ((row->of & kind) && row->rule(r, &a))
            return;
    opaque_call(r, &a);
}
