/* Generators created and consumed inside the recorded call.
 *
 * A generator is a virtual object (BUILD_GENERATOR) whose symbolic frame the recorder keeps. A *consumer* (consume.c) resumes
 * it. The watcher reports every resumption as a call of the generator's frame, and every yield as its return.
 *
 * GENERATOR_STATE says where a generator is suspended and what its frame holds, so that an exit, or code that is not
 * watched, finds a real generator in that state. A replay that needs none creates none. One that is suspended inside try or with runs code when it is
 * closed or dropped (closing.c), unless none of the handlers around it is for GeneratorExit.
 */
#include "core/diag/breaks.h"
#include "py/compat/generator.h"
#include "py/compat/imports.h"
#include "py/compat/kinds.h"
#include "py/iterators/consume.h"
#include "py/objects/objects.h"
#include "py/torchcalls/skip.h"

/* -- the state of generators ------------------------------------------------------------------------------------- */

rec_gen *
rec_usable_generator(rec *r, kin_vid vid)
{
    rec_virtual *f = vid ? VIRTUAL(r, vid) : NULL;
    if (f == NULL || f->kind != VIRTUAL_GENERATOR || !f->known || f->escaped)
        return NULL;
    rec_gen *gen = rec_find_generator(r, vid);
    return gen != NULL && (O(r, vid) != NULL || gen->hidden) && gen->state != GEN_LOST && gen->state != GEN_RUNNING ? gen : NULL;
}

void
rec_generator_write(rec *r, rec_gen *gen)
{
    rec_frame *f = gen->frame;
    kin_vid args[256];
    uint32_t n = 0;
    kin_ref ref = 0;
    args[n++] = gen->vid;
    if (gen->state == GEN_SUSPENDED) {
        PyObject *where = Py_BuildValue("(OIi)", gen->code, (unsigned)f->offset, (int)gen->handles);
        ref = rec_ref(r, where);
        Py_XDECREF(where);
        memcpy(args + 1, f->slots, (size_t)(f->nlocals + f->sp) * sizeof *args);
        n += (uint32_t)(f->nlocals + f->sp);
        if (gen->handles)
            args[n++] = f->exc;
    }
    rec_virtual *virtual = VIRTUAL(r, gen->vid);
    for (uint32_t i = 1; virtual != NULL && i < n; i++)
        if (args[i] != 0)
            rec_virtual_push(virtual, args[i]);
    uint32_t s = rec_step(r, KIN_STEP_GENERATOR_STATE, KIN_STEP_MUTATES, args, n);
    r->t->steps.at[s].ref = ref;
    r->t->steps.at[s].snap = 0;
    gen->dirty = false;
}

void
rec_free_generators(rec *r)
{
    for (rec_frame *f = r->top; f != NULL; f = f->back)
        rec_free_consumer(f);
    while (r->gens != NULL) {
        rec_gen *gen = r->gens;
        r->gens = gen->next;
        if (gen->state == GEN_SUSPENDED || gen->state == GEN_DONE /* closed */)
            free(gen->frame);
        free(gen->locals);
        free(gen);
    }
    if (r->region != NULL)
        rec_region_free(r->region);
    r->region = NULL;
}

/* -- a new generator --------------------------------------------------------------------------------------------- */

static bool
is_generator_function(PyObject *func)
{
    PyFunctionObject *fn = (PyFunctionObject *)func;
    int flags = ((PyCodeObject *)fn->func_code)->co_flags;
    return (flags & CO_GENERATOR) && (flags & CO_OPTIMIZED) && !(flags & (CO_VARARGS | CO_VARKEYWORDS)) &&
           kin_function_is_plain(func) && !rec_skips_function(func);
}

static PyObject *
keyword_only_names(PyCodeObject *code)
{
    return code->co_kwonlyargcount ? PyTuple_GetSlice(code->co_localsplusnames, code->co_argcount,
                                                      code->co_argcount + code->co_kwonlyargcount)
                                   : NULL;
}

/* The value is a generator of the recording from now on, which has not begun: of its function and the parameters, args[0] and args[1..n). */
rec_gen *
rec_new_generator(rec *r, kin_vid vid, PyCodeObject *code, const kin_vid *args, uint32_t n)
{
    rec_gen *gen = calloc(1, sizeof *gen);
    kin_vid *locals = malloc(n * sizeof *locals);
    if (gen == NULL || locals == NULL) {
        free(gen);
        free(locals);
        r->status = KIN_NOMEM;
        return NULL;
    }
    memcpy(locals, args + 1, (n - 1) * sizeof *locals);
    rec_make_virtual(r, vid, VIRTUAL_GENERATOR, args, n, true);
    r->info.at[vid].type = &PyGen_Type;
    *gen = (rec_gen){.next = r->gens, .vid = vid, .func = args[0], .code = code, .locals = locals};
    r->gens = gen;
    return gen;
}

static kin_vid
new_generator(rec *r, const rec_args *a)
{
    PyObject *func = O(r, a->callee);
    if (!is_generator_function(func))
        return 0;
    PyCodeObject *code = (PyCodeObject *)((PyFunctionObject *)func)->func_code;
    uint32_t n = (uint32_t)(code->co_argcount + code->co_kwonlyargcount);
    rec_args bound = *a;
    if (n > 200 || code->co_nlocalsplus + code->co_stacksize > 250 || !rec_bind(r, &bound))
        return 0;
    kin_vid all[256];
    all[0] = bound.callee;
    memcpy(all + 1, r->call.locals, n * sizeof *all);
    kin_vid out = rec_step_out(r, KIN_STEP_BUILD_GENERATOR, KIN_STEP_PURE, all, n + 1);
    PyObject *names = keyword_only_names(code);
    kin_ref ref = rec_ref(r, names);
    Py_XDECREF(names);
    r->t->steps.at[r->t->vals.at[out].step].ref = ref;
    rec_new_generator(r, out, code, all, n + 1);
    return out;
}

bool
rec_generator_call(rec *r, const rec_args *a)
{
    kin_vid out = new_generator(r, a);
    if (out == 0)
        return false;
    rec_drop(r, a->ndrop);
    rec_await_result(r, out, r->t->vals.at[out].step);
    return true;
}

/* The __iter__ of an object, where that is a generator function. NULL: it is no such object. */
static PyObject *
hidden_function(rec *r, kin_vid vid)
{
    PyObject *obj = vid ? O(r, vid) : NULL;
    PyTypeObject *tp = obj != NULL ? Py_TYPE(obj) : NULL;
    if (tp == NULL || !(tp->tp_flags & Py_TPFLAGS_HEAPTYPE) || (VIRTUAL(r, vid) != NULL && VIRTUAL(r, vid)->kind != VIRTUAL_OBJECT) ||
        kin_is_tensor(obj))
        return NULL;
    PyObject *func = _PyType_Lookup(tp, REC_STR("__iter__"));
    return func != NULL && PyFunction_Check(func) && is_generator_function(func) ? func : NULL;
}

bool
rec_has_hidden_generator(rec *r, kin_vid vid)
{
    return hidden_function(r, vid) != NULL;
}

/* The generator that C code gets from such an object, and keeps to itself. 0: it is none. */
kin_vid
rec_hidden_generator(rec *r, kin_vid vid)
{
    PyObject *func = hidden_function(r, vid);
    if (func == NULL)
        return 0;
    PyTypeObject *tp = Py_TYPE(O(r, vid));
    rec_need_attrs(r, vid);
    rec_lookup(r, tp, REC_STR("__iter__"));
    kin_vid gen = new_generator(r, &(rec_args){.callee = rec_found(r, tp, REC_STR("__iter__"), func), .args = &vid, .npos = 1});
    if (gen != 0)
        rec_find_generator(r, gen)->hidden = true;
    return gen;
}

/* ... where it asks the object for its length first. *length: the __len__ in Python, or 0. */
kin_vid
rec_sized_generator(rec *r, kin_vid vid, kin_vid *length)
{
    if (hidden_function(r, vid) == NULL)
        return 0;
    PyTypeObject *tp = Py_TYPE(O(r, vid));
    PyObject *func = _PyType_Lookup(tp, REC_STR("__len__")), *hint = _PyType_Lookup(tp, REC_STR("__length_hint__"));
    bool python = func != NULL && PyFunction_Check(func);
    if ((func == NULL && hint != NULL) || (python && !rec_can_inline(r, func)) || (func != NULL && !python && Py_TYPE(func) != &PyWrapperDescr_Type))
        return 0;
    rec_need_attrs(r, vid);
    rec_lookup(r, tp, REC_STR("__len__"));
    if (func == NULL)
        rec_lookup(r, tp, REC_STR("__length_hint__"));
    *length = python ? rec_found(r, tp, REC_STR("__len__"), func) : 0;
    return rec_hidden_generator(r, vid);
}

/* -- resuming ----------------------------------------------------------------------------------------------------- */

static rec_frame *
start_frame(rec *r, rec_gen *gen, struct _PyInterpreterFrame *f)
{
    rec_frame *rf = rec_push_frame(r, f, gen->code);
    if (rf == NULL)
        return NULL;
    rf->func = gen->func;
    rf->gen = gen;
    rf->from_c = true;
    for (int i = 0; i < gen->code->co_argcount + gen->code->co_kwonlyargcount; i++)
        rf->slots[i] = gen->locals[i];
    gen->raw = f;
    gen->frame = rf;
    return rf;
}

/* The frame of a suspended generator is on top again. */
void
rec_resume_frame(rec *r, rec_gen *gen)
{
    rec_frame *rf = gen->frame;
    rf->back = r->top;
    if (!gen->handles)
        rf->exc = r->top->exc;
    r->top = rf;
    r->depth++;
    gen->state = GEN_RUNNING;
    gen->dirty = true;
}

static bool
resume(rec *r, rec_gen *gen, struct _PyInterpreterFrame *f, kin_vid sent)
{
    if (gen->state == GEN_NEW) {
        if (start_frame(r, gen, f) == NULL) {
            rec_bug(r, "no memory for a symbolic frame");
            return false;
        }
    } else {
        rec_resume_frame(r, gen);
        rec_frame *rf = gen->frame;
        rf->ran = false;
        rf->slots[rf->nlocals + rf->sp++] = sent != 0 ? sent : rec_const(r, Py_None);
    }
    gen->state = GEN_RUNNING;
    gen->dirty = true;
    return true;
}

/* It is suspended at the yield at `offset`, with these values in its locals and on its stack. */
void
rec_suspend_generator(rec *r, rec_gen *gen, struct _PyInterpreterFrame *f, uint32_t offset, const kin_vid *values, int n)
{
    rec_frame *rf = start_frame(r, gen, f);
    if (rf == NULL) {
        r->status = KIN_NOMEM;
        return;
    }
    memcpy(rf->slots, values, (size_t)n * sizeof *values);
    rf->sp = rf->sp0 = n - rf->nlocals;
    rf->in = kin_code_at(rf->kc, offset);
    rf->offset = offset;
    rf->next = rf->in->next;
    rf->exit_offset = rf->in->resume;
    rec_set_action(rf, kin_instr_main(rf->in));
    rf->started = true;
    gen->delegates = rf->sp > 0; /* perhaps: what it waits for may be that of a loop */
    rec_generator_detach(r, rf, true);
}

/* A hidden generator that has not begun is known by its function only: nothing else runs before it. */
static bool
is_frame_of(rec *r, const rec_gen *gen, struct _PyInterpreterFrame *f)
{
    if (gen->raw != NULL)
        return gen->raw == (void *)f;
    return gen->hidden ? kin_watch_code(f) == gen->code && kin_watch_func(f) == O(r, gen->func) : kin_generator_frame(O(r, gen->vid)) == f;
}

/* Somebody else has it: at replay it is a real generator, which the step that closes it closes. */
static bool
is_given_away(rec *r, const rec_gen *gen)
{
    return VIRTUAL(r, gen->vid) == NULL || VIRTUAL(r, gen->vid)->escaped;
}

void
rec_leave_open(rec *r, const rec_gen *gen)
{
    rec_cut_back(r, &gen->resumed, KIN_ROW_UNSUPPORTED_INSTRUCTION, "a generator is closed inside try or with");
}

/* A generator that is suspended inside try or with runs code when it is closed. True: that is followed. */
static bool
close_generator(rec *r, rec_gen *gen, bool *known)
{
    bool block = gen->guarded && gen->resumed.snap == 0; /* of a context manager */
    *known = true;
    if (r->skip_expected && (block || is_given_away(r, gen)))
        return false;
    if (block) {
        rec_stop(r, "a generator is closed inside try or with");
        r->failed = true;
    } else if ((gen->guarded || rec_waits_guarded(r)) && !is_given_away(r, gen) && rec_closes_dropped(r, gen)) {
        return true;
    } else if (gen->guarded && r->region != NULL) {
        r->foreign = true;
    } else if (gen->guarded) {
        rec_leave_open(r, gen);
    } else if (r->region != NULL && !is_given_away(r, gen)) {
        gen->state = GEN_DONE;
        gen->dirty = true;
    }
    return false;
}

bool
rec_leaves_generator(rec *r)
{
    for (const rec_gen *gen = r->gens; gen != NULL; gen = gen->next)
        if (gen->state == GEN_SUSPENDED && gen->guarded && gen->resumed.snap != 0 && !is_given_away(r, gen)) {
            rec_leave_open(r, gen);
            return true;
        }
    return false;
}

/* `known`: the frame is a generator of ours that is being closed. */
bool
rec_enter_from_c(rec *r, struct _PyInterpreterFrame *f, bool *known)
{
    rec_consumer *c = r->top ? r->top->consumer : NULL;
    if (c != NULL && c->wants && c->gen != NULL && is_frame_of(r, c->gen, f))
        return c->thrown != 0 ? rec_throw_into(r, c->gen, c->thrown) : resume(r, c->gen, f, c->sent);
    *known = c != NULL && c->gen != NULL && c->gen->state == GEN_NEW && is_frame_of(r, c->gen, f); /* close() of one that has not begun */
    for (rec_gen *gen = r->gens; gen != NULL; gen = gen->next)
        if (gen->state == GEN_SUSPENDED && gen->raw == (void *)f)
            return close_generator(r, gen, known);
    return false;
}

/* Does contextlib's __enter__ resume the generator, for a with statement or an ExitStack? Then it ends when the block or the stack's block does. */
static bool
enters_block(const rec_frame *f)
{
    static PyObject *enter, *stack;
    if (f == NULL || f->back == NULL || kin_import_once(&enter, "contextlib", "_GeneratorContextManager.__enter__.__code__") != (PyObject *)f->code)
        return false;
    return kin_code_enters_block(f->back->kc, f->back->offset) || kin_import_once(&stack, "contextlib", "_BaseExitStack.enter_context.__code__") == (PyObject *)f->back->code;
}

/* Do the handlers around the yield have nothing to do with GeneratorExit, which is raised there when the generator is closed? */
static bool
close_runs_no_handler(rec *r, const rec_frame *f)
{
    enum { MOST = 16 };
    uint32_t names[MOST];
    int n = kin_code_compares(f->kc, f->in->op_offset, names, MOST);
    for (int i = 0; i < n; i++) {
        kin_vid cls = rec_find_global(r, PyTuple_GET_ITEM(f->code->co_names, names[i]));
        if (r->refused || cls == 0 || !PyExceptionClass_Check(O(r, cls)) || PyErr_GivenExceptionMatches(PyExc_GeneratorExit, O(r, cls)) ||
            rec_need_const(r, cls) == 0)
            return false;
    }
    return n >= 0;
}

void
rec_op_yield(rec *r)
{
    rec_frame *f = r->top;
    bool guarded = kin_code_is_guarded(f->kc, f->offset);
    if (f->gen == NULL || r->region == NULL) {
        rec_stop(r, "unsupported yield");
        return;
    }
    guarded = guarded && !close_runs_no_handler(r, f);
    f->gen->guarded = guarded;
    f->gen->handles = f->exc != f->back->exc;
    f->gen->delegates = f->gen->sends_at == f->offset;
    f->gen->resumed = !enters_block(f->back) ? rec_region_mark(r) : (rec_raise){0};
    r->returned = rec_peek(r, 0);
    rec_drop(r, 1);
}

void
rec_generator_detach(rec *r, rec_frame *f, bool yielded)
{
    rec_gen *gen = f->gen;
    if (!yielded) {
        gen->state = GEN_DONE;
        gen->frame = NULL;
        rec_pop_frame(r);
        return;
    }
    gen->state = GEN_SUSPENDED;
    r->top = f->back;
    r->depth--;
    f->back = NULL;
}
