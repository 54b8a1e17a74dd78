/* Iteration and unpacking: over known contents without a step that runs, over anything else by asking the iterator. */
#include "core/diag/breaks.h"
#include "py/compat/generator.h"
#include "py/compat/heap.h"
#include "py/iterators/consume.h"
#include "py/models/models.h"
#include "py/objects/objects.h"

/* Is what is gone over for a generator expression over tensors, which C code may resume? Nothing can be left in its middle. */
static bool
is_for_generator(rec *r)
{
    kin_vid below = r->top->sp > 1 ? rec_peek(r, 1) : 0;
    PyObject *fn = below != 0 ? O(r, below) : NULL;
    return r->region != NULL || (fn != NULL && PyFunction_Check(fn) && ((PyCodeObject *)((PyFunctionObject *)fn)->func_code)->co_flags & CO_GENERATOR &&
                                 (rec_function_has_tensor(r, below) || rec_holds_tensor(r, rec_peek(r, 0), 0)));
}

/* Is a range gone over for a generator expression that can get at tensors by what it closes over, or by globals: a list of them, a module? Its items are tensors of
 * the graph then, so how many there are is tested. */
static bool
counts_tensors(rec *r)
{
    kin_vid below = r->top->sp > 1 ? rec_peek(r, 1) : 0;
    PyObject *fn = below != 0 && Py_IS_TYPE(O(r, rec_peek(r, 0)), &PyRange_Type) ? O(r, below) : NULL;
    if (fn == NULL || !PyFunction_Check(fn) || !(((PyCodeObject *)PyFunction_GET_CODE(fn))->co_flags & CO_GENERATOR))
        return false;
    PyObject *closure = PyFunction_GET_CLOSURE(fn), *names = ((PyCodeObject *)PyFunction_GET_CODE(fn))->co_names;
    for (Py_ssize_t i = 0; closure != NULL && i < PyTuple_GET_SIZE(closure); i++)
        if (rec_leads_to_tensor(PyCell_GET(PyTuple_GET_ITEM(closure, i)), names))
            return true;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(names); i++)
        if (rec_leads_to_tensor(PyDict_GetItemWithError(PyFunction_GET_GLOBALS(fn), PyTuple_GET_ITEM(names, i)), names))
            return true;
    return false;
}

void
rec_op_get_iter(rec *r)
{
    kin_vid vid = rec_peek(r, 0);
    /* in a side trace, tensors of a tuple made before it are read by path once there is a new epoch, which cannot begin in the generator */
    bool apart = r->region == NULL && rec_is_step_tuple(r, vid) && !rec_is_graph_tuple(r, vid) && is_for_generator(r);
    if (rec_iter_of(r, vid, 1)) {
        if (apart)
            rec_end_epoch(r);
        return;
    }
    if ((is_for_generator(r) || counts_tensors(r)) && rec_iter_of_pinned(r, vid, 1))
        return;
    if (rec_is_indexed(r, vid)) {
        rec_push_index_iterator(r, vid, 1);
        return;
    }
    PyObject *obj = O(r, vid);
    PyTypeObject *tp = rec_need_attrs(r, vid);
    PyObject *func = tp->tp_flags & Py_TPFLAGS_HEAPTYPE ? rec_lookup(r, tp, REC_STR("__iter__")) : NULL;
    kin_vid iter = func != NULL && PyFunction_Check(func) ? rec_found(r, tp, REC_STR("__iter__"), func) : 0;
    if (iter != 0 && (rec_generator_call(r, &(rec_args){.callee = iter, .args = &vid, .npos = 1, .ndrop = 1}) ||
                      (rec_can_inline(r, func) && rec_inline(r, &(rec_args){.callee = iter, .args = &vid, .npos = 1, .ndrop = 1}, NULL, 0, KIN_RESUME_PUSH, 0))))
        return;
    bool plays = rec_plays_builtin(obj), no_code = plays || (kin_heap_type_is_static(tp) && !kin_is_tensor(obj));
    if (plays)
        rec_need_played(r, vid);
    kin_vid out = rec_step_out(r, KIN_STEP_ITER, no_code ? 0 : KIN_STEP_OPAQUE, &vid, 1);
    uint32_t s = r->t->vals.at[out].step;
    if (!no_code) {
        rec_forget_contents(r);
        r->skip_expected = true;
    }
    rec_drop(r, 1);
    rec_await_result(r, out, s);
}

/* -- the next item of a for loop ------------------------------------------------------------------------------------------ */

/* At its end an iterator leaves the stack; in some versions only an instruction further on takes it from there. */
int
rec_dropped_at_end(const rec_frame *f)
{
    return kin_instr_main(f->in).flags & KIN_DO_KEEPS_ITERATOR ? 0 : 1;
}

void
rec_op_for_iter(rec *r)
{
    rec_frame *f = r->top;
    kin_vid it = rec_peek(r, 0);
    kin_vid item;
    if (rec_consume_for(r, it))
        return;
    if (rec_is_known_iter(r, it) && rec_next_item(r, it, &item)) {
        if (item == 0) {
            rec_drop(r, rec_dropped_at_end(f));
            f->next = f->jump;
            f->jump = UINT32_MAX;
            return;
        }
        f->jump = UINT32_MAX;
        if (O(r, item) != NULL)
            rec_push(r, item);
        else
            rec_await_result(r, item, 0);
        return;
    }
    rec_ask_iter(r, it, rec_iter_row(r, it));
}

/* -- yield from --------------------------------------------------------------------------------------------------------------- */

void
rec_op_yield_from(rec *r)
{
    if (!PyGen_CheckExact(O(r, rec_peek(r, 0))))
        rec_op_get_iter(r);
}

/* Asks what a generator delegates to for its next item, or for what it returns. */
void
rec_op_send(rec *r)
{
    rec_frame *f = r->top;
    kin_vid it = rec_peek(r, 1);
    kin_vid item;
    if (f->gen != NULL)
        f->gen->sends_at = f->next;
    if (O(r, rec_peek(r, 0)) != Py_None || r->region == NULL) {
        rec_stop(r, "a value is sent into a generator");
    } else if (rec_is_known_iter(r, it) && rec_next_item(r, it, &item)) {
        bool ended = item == 0;
        item = ended ? rec_const(r, Py_None) : item;
        rec_drop(r, ended ? 1 + rec_dropped_at_end(f) : 1);
        if (ended)
            f->next = f->jump;
        f->jump = UINT32_MAX;
        if (O(r, item) != NULL)
            rec_push(r, item);
        else
            rec_await_result(r, item, 0);
    } else if (!rec_consume_send(r, it)) {
        rec_stop(r, "unsupported yield from");
    }
}

int
rec_iter_row(rec *r, kin_vid it)
{
    rec_virtual *virtual = VIRTUAL(r, it);
    bool generator = virtual ? virtual->kind == VIRTUAL_GENERATOR : PyGen_CheckExact(O(r, it));
    if (!generator && rec_steps_in_python(r, it))
        return rec_any_tensor(r, &it, 1) ? KIN_ROW_BUILTIN_CALL : -1;
    return generator && rec_generator_has_tensor(r, it) ? KIN_ROW_GENERATOR : -1;
}

/* A generator that has tensors (`row`), or gives some (rec_finish_iter), ends the graph. */
void
rec_ask_iter(rec *r, kin_vid it, int row)
{
    rec_frame *f = r->top;
    rec_virtual *virtual = VIRTUAL(r, it);
    /* A generator, or what enumerates one, may be gone already when its region is undone: it is asked without being looked at. */
    PyObject *obj = O(r, it);
    bool ours = obj == NULL || (virtual != NULL && virtual->kind == VIRTUAL_GENERATOR);
    bool generator = ours || PyGen_CheckExact(obj), no_code = !generator && kin_heap_iterator_is_plain(obj);
    if (no_code && virtual == NULL)
        rec_need_type(r, it);
    kin_vid out = rec_step_out(r, KIN_STEP_NEXT, no_code ? 0 : KIN_STEP_OPAQUE, &it, 1);
    r->info.at[out].varies = f->loop.head != 0 && f->loop.offset == f->offset; /* from round to round */
    if (row >= 0)
        rec_break(r, r->t->vals.at[out].step, row);
    if (!no_code) {
        rec_forget_contents(r);
        r->skip_expected = true;
    }
    f->await = AWAIT_ITER;
    f->await_vid = out;
}

/* A range over a number that data decides has an end which data decides; a list ends at its length. Said once for the loop. */
static void
note_end(rec *r, kin_vid out, uint32_t check)
{
    kin_vid it = r->t->vids.at[r->t->steps.at[r->t->vals.at[out].step].args];
    bool range = r->info.at[it].type == &PyRangeIter_Type || (O(r, it) != NULL && Py_TYPE(O(r, it)) == &PyRangeIter_Type);
    if (!range || rec_data_of(r, it) == REC_NO_DATA)
        return;
    rec_note_decision(r, check, (kin_check)r->t->steps.at[check].imm, out, NULL);
    r->info.at[it].data = r->info.at[out].data = REC_NO_DATA;
}

/* The iterator has answered: the value (or its end) was one of two outcomes; the check leaves to the other one. */
void
rec_finish_iter(rec *r, rec_frame *f, bool exhausted, PyObject *const *stack)
{
    kin_vid out = f->await_vid;
    int sp = f->sp;
    uint32_t other;
    if (exhausted) {
        f->slots[f->nlocals + f->sp++] = out;
        other = rec_snapshot_of(r, f, f->next, f->sp);
        f->sp = sp - rec_dropped_at_end(f);
    } else {
        other = rec_snapshot_of(r, f, f->jump, sp - rec_dropped_at_end(f));
        rec_set_obj(r, out, stack[sp]);
        f->slots[f->nlocals + f->sp++] = out;
        uint32_t s = r->t->vals.at[out].step;
        kin_vid it = r->t->vids.at[r->t->steps.at[s].args];
        bool generator = VIRTUAL(r, it) ? VIRTUAL(r, it)->kind == VIRTUAL_GENERATOR : PyGen_CheckExact(stack[sp - 1]);
        if ((generator || r->ran_below) && !(r->t->steps.at[s].flags & KIN_STEP_BREAK) && rec_any_tensor(r, &out, 1))
            rec_break(r, s, generator ? KIN_ROW_GENERATOR : KIN_ROW_BUILTIN_CALL);
    }
    kin_step check = {.kind = KIN_STEP_CHECK, .imm = exhausted ? KIN_CHECK_NULL : KIN_CHECK_NOTNULL, .nargs = 1,
                      .snap = other, .args = r->t->vids.len};
    if (kin_vec_push(&r->t->vids, out) != KIN_OK || kin_vec_push(&r->t->steps, check) != KIN_OK)
        r->status = KIN_NOMEM;
    else
        note_end(r, out, r->t->steps.len - 1);
}

/* -- unpacking ----------------------------------------------------------------------------------------------------------------- */

/* The elements of what is unpacked into `n` names, or into `least` of them and a starred one. False: not known, or stopped. */
static bool
unpacked_items(rec *r, kin_vid vid, int least, bool starred, kin_vid *local, uint32_t *count)
{
    kin_vid *items = NULL;
    PyObject *obj = O(r, vid);
    bool tensor = VIRTUAL(r, vid) == NULL && kin_is_tensor(obj);
    bool made_here = r->t->vals.at[vid].kind == KIN_VAL_STEP && VIRTUAL(r, vid) == NULL && !rec_is_const(r, vid);
    int n = least;
    if (starred && made_here && (PyTuple_Check(obj) || PyList_CheckExact(obj)))
        n = PyTuple_Check(obj) ? (int)PyTuple_GET_SIZE(obj) : (int)PyList_GET_SIZE(obj);
    bool iterator = VIRTUAL(r, vid) != NULL && VIRTUAL(r, vid)->kind == VIRTUAL_ITER;
    kin_vid rows;
    if (tensor ? rec_tensor_rows(r, vid, &items, count, &rows) : !made_here && rec_use_up(r, vid, &items, count)) {
        if (starred ? *count < (uint32_t)least || *count > 250 : *count != (uint32_t)least) {
            free(items);
            rec_stop_row(r, KIN_ROW_EXCEPTION_ESCAPED, "unpacking raises");
            return false;
        }
        memcpy(local, items, *count * sizeof *items);
        free(items);
        for (uint32_t i = 0; iterator && i < *count; i++)
            rec_step(r, KIN_STEP_NEXT, KIN_STEP_MUTATES, &vid, 1);
        r->skip_expected = tensor;
    } else if ((!made_here || n < least || n > 250 || !rec_step_items(r, vid, n, local))) {
        return false;
    } else {
        *count = (uint32_t)n;
    }
    return true;
}

/* In place of the top of the stack: the items; after < 0: none of them goes into a list. */
void
rec_push_unpacked(rec *r, const kin_vid *items, uint32_t count, int before, int after)
{
    uint32_t starred = after >= 0, middle = starred ? count - (uint32_t)(before + after) : 0;
    kin_vid rest = 0;
    if (starred)
        rest = rec_build_list(r, items + before, middle);
    rec_drop(r, 1);
    for (int i = after; i-- > 0;)
        rec_push(r, items[(uint32_t)before + middle + (uint32_t)i]);
    if (starred)
        rec_push(r, rest);
    for (int i = before; i-- > 0;)
        rec_push(r, items[i]);
}

/* Objects that the instruction has put on the real stack. */
static void
note_unpacked(rec *r, int base, const kin_vid *items, uint32_t count, int before, int after)
{
    rec_frame *f = r->top;
    PyObject *const *stack = kin_watch_localsplus(f->f) + f->nlocals + base;
    int top = before + (after < 0 ? 0 : after + 1) - 1;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t from_end = count - i;
        PyObject *obj = NULL;
        if (i < (uint32_t)before)
            obj = stack[top - (int)i];
        else if (from_end <= (uint32_t)after)
            obj = stack[from_end - 1];
        else if (PyList_CheckExact(stack[after]) && PyList_GET_SIZE(stack[after]) > (Py_ssize_t)i - before)
            obj = PyList_GET_ITEM(stack[after], (Py_ssize_t)i - before);
        if (obj != NULL && O(r, items[i]) == NULL)
            rec_set_obj(r, items[i], obj);
    }
}

bool
rec_unpack_iterator(rec *r, kin_vid it, int before, int after)
{
    kin_vid *items = NULL;
    uint32_t count = 0, least = (uint32_t)(before + (after > 0 ? after : 0));
    bool ok = rec_use_up(r, it, &items, &count) && count <= 250 && (after < 0 ? count == least : count >= least);
    if (ok) {
        note_unpacked(r, r->top->sp - 1, items, count, before, after);
        rec_push_unpacked(r, items, count, before, after);
    }
    free(items);
    return ok;
}

/* Contents that nothing is known of: tuple(thing) goes over them as the unpacking does. */
static bool
unpack_tuple_of(rec *r, kin_vid vid, int before, int after)
{
    Py_ssize_t n = rec_unknown_length(r, vid);
    int tail = after > 0 ? after : 0;
    if (n < 0 || n > UINT32_MAX || (after < 0 ? n != before : n < before + tail))
        return false;
    kin_vid all = rec_copy_to_tuple(r, vid, n), items[256];
    for (int i = 0; i < before + tail; i++)
        items[i] = rec_item_of_copy(r, all, PyLong_FromSsize_t(i < before ? i : n - tail + i - before));
    rec_drop(r, 1);
    for (int i = tail; i-- > 0;)
        rec_push(r, items[before + i]);
    if (after >= 0) {
        PyObject *from = PyLong_FromLong(before), *to = PyLong_FromSsize_t(n - tail);
        kin_vid list[2] = {rec_const(r, (PyObject *)&PyList_Type), rec_item_of_copy(r, all, PySlice_New(from, to, NULL))};
        rec_push(r, rec_step_out(r, KIN_STEP_CALL, 0, list, 2));
        Py_XDECREF(from);
        Py_XDECREF(to);
    }
    for (int i = before; i-- > 0;)
        rec_push(r, items[i]);
    return true;
}

/* Anything else is unpacked as the instruction does it, and ends the graph: what it asks may run Python code. */
static bool
unpack_step(rec *r, kin_vid vid, int before, int after)
{
    if (O(r, vid) == NULL || r->region != NULL)
        return false;
    int row = PyGen_CheckExact(O(r, vid)) ? rec_iter_row(r, vid) : -1;
    rec_unpack_opaquely(r, vid, before, after, row >= 0 ? row : KIN_ROW_OPAQUE_CALLABLE);
    return true;
}

void
rec_unpack_opaquely(rec *r, kin_vid vid, int before, int after, int row)
{
    kin_vid args[3] = {vid, rec_known_size(r, before), rec_known_size(r, after)}, items[256];
    int n = before + (after < 0 ? 0 : 1 + after);
    kin_vid all = rec_step_out(r, KIN_STEP_UNPACK, KIN_STEP_OPAQUE | KIN_STEP_EFFECT, args, 3);
    rec_break(r, r->t->vals.at[all].step, row);
    for (int i = 0; i < n; i++) /* before the epoch ends: nothing may leave in the middle of the instruction */
        items[i] = rec_item_of_copy(r, all, PyLong_FromLong(i));
    rec_forget_contents(r);
    r->skip_expected = true;
    rec_drop(r, 1);
    for (int i = n; i-- > 0;)
        rec_push(r, items[i]);
}

static void
unpack(rec *r, int before, int after)
{
    kin_vid local[256], vid = rec_peek(r, 0);
    uint32_t count = 0;
    int least = before + (after > 0 ? after : 0);
    if (least > 250)
        rec_stop(r, "unpacking too many values");
    else if (rec_consume_unpack(r, vid, before, after) || rec_consume_unpacking(r, vid, before, after) ||
             rec_consume_unpack_lazy(r, vid, before, after) || unpack_tuple_of(r, vid, before, after))
        return;
    else if (unpacked_items(r, vid, least, after >= 0, local, &count))
        rec_push_unpacked(r, local, count, before, after);
    else if (!r->stopped && !unpack_step(r, vid, before, after))
        rec_stop(r, "unpacking an iterable whose items are not known");
}

void
rec_op_unpack(rec *r, int n)
{
    unpack(r, n, -1);
}

/* a, *b, c = ...: the starred name gets a new list. */
void
rec_op_unpack_ex(rec *r, int before, int after)
{
    unpack(r, before, after);
}
