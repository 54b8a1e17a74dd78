/* What builtin functions and classes do with the items of a generator: one row each. */
#include "core/diag/breaks.h"
#include "py/compat/heap.h"
#include "py/compat/imports.h"
#include "py/iterators/consume.h"
#include "py/models/models.h"
#include "py/objects/objects.h"
#include "py/torchcalls/torchcalls.h"

static bool
items_constant(rec *r, rec_consumer *c)
{
    for (uint32_t i = 0; i < c->n; i++)
        if (O(r, c->items[i]) == NULL || !kin_is_exact_immutable(O(r, c->items[i])) || rec_need_const(r, c->items[i]) == 0)
            return false;
    return true;
}

static void
push_result(rec *r, rec_consumer *c, kin_vid out)
{
    rec_drop(r, c->call.ndrop);
    rec_await_result(r, out, r->t->vals.at[out].step);
}

static void
push_value(rec *r, rec_consumer *c, kin_vid value)
{
    rec_drop(r, c->call.ndrop);
    rec_push(r, value);
}

/* Specialises an operand of the call, which has ended: only atoms are sure to be there still. */
static bool
need_atom(rec *r, kin_vid arg)
{
    return (rec_is_const(r, arg) || r->info.at[arg].held) && rec_need_const(r, arg) != 0;
}

/* Numbers and strings of which some are not known, such as sizes that vary: the call is done again, with a tuple in place of what gave them. 0: not so. */
static kin_vid
call_with_items(rec *r, rec_consumer *c)
{
    kin_vid call[3] = {c->call.callee};
    for (uint32_t i = 0; i < c->n; i++) {
        if (O(r, c->items[i]) == NULL && c->held != NULL && c->asked == 0)
            r->info.at[c->items[i]].obj = c->held[i];
        PyObject *item = O(r, c->items[i]);
        if (item == NULL || !(rec_is_number(item) || PyUnicode_CheckExact(item)) || VIRTUAL(r, c->items[i]) != NULL || rec_data_of(r, c->items[i]) != REC_NO_DATA)
            return 0;
    }
    for (uint32_t i = 0; i < c->n; i++)
        rec_need_type(r, c->items[i]);
    kin_vid items = rec_build_tuple(r, c->items, c->n, NULL);
    for (uint32_t i = 0; i < c->call.npos; i++)
        call[1 + i] = c->args[i] == c->source ? items : rec_as_const(r, c->args[i]);
    return rec_step_out(r, KIN_STEP_CALL, KIN_STEP_PURE, call, c->call.npos + 1);
}

/* min, max, sum, str.join, frozenset of constants: a constant. Other arguments must be constant, too. */
static bool
finish_constant(rec *r, rec_consumer *c)
{
    for (uint32_t i = 0; i < c->call.npos; i++)
        if (c->args[i] != c->source && !need_atom(r, c->args[i]))
            return false;
    if (!items_constant(r, c)) {
        kin_vid out = c->call.npos <= 2 && c->call.nkw == 0 ? call_with_items(r, c) : 0;
        if (out != 0)
            push_result(r, c, out);
        return out != 0;
    }
    rec_drop(r, c->call.ndrop);
    rec_await_const(r);
    return true;
}

/* min() and max() of tensors: one of them. */
static bool
finish_extreme(rec *r, rec_consumer *c)
{
    for (uint32_t i = 0; c->call.npos == 1 && i < c->n; i++)
        if (O(r, c->items[i]) == NULL && c->held != NULL && c->asked == 0)
            r->info.at[c->items[i]].obj = c->held[i];
    kin_vid best = c->call.npos == 1 ? rec_choose(r, c->call.callee, c->items, c->n) : 0;
    kin_vid number = best == 0 && c->call.npos == 1 ? rec_extreme_of_sizes(r, c->call.callee, c->items, c->n) : 0;
    if (number != 0) {
        push_result(r, c, number);
        return true;
    }
    if (best == 0)
        return finish_constant(r, c);
    push_value(r, c, best);
    return true;
}

/* One number that data decides (a GradScaler's count of infinities), added to 0. Of several floats the sum is no plain addition from 3.12 on. */
static bool
finish_number(rec *r, rec_consumer *c)
{
    PyObject *number = c->held[0], *zero = PyLong_FromLong(0);
    r->info.at[c->items[0]].obj = number;
    rec_need_type(r, c->items[0]);
    kin_vid pair[2] = {rec_const(r, zero), c->items[0]};
    Py_XDECREF(zero);
    push_result(r, c, rec_step_out(r, KIN_STEP_BINARY, KIN_STEP_PURE, pair, 2));
    return true;
}

/* The last tensor up to item i, or what the sum begins with. */
static PyObject *
kind_of_sum(rec *r, const rec_consumer *c, uint32_t i)
{
    while (i > 0 && !kin_is_tensor(c->held[i]))
        i--;
    return kin_is_tensor(c->held[i]) ? c->held[i] : O(r, c->args[1]);
}

/* sum() of tensors, and of numbers among them: the additions it makes are nodes of the graph. */
static bool
finish_sum(rec *r, rec_consumer *c)
{
    bool number = c->n == 1 && c->call.npos == 1 && rec_data_of(r, c->items[0]) != REC_NO_DATA;
    if (number && (PyFloat_CheckExact(c->held[0]) || PyLong_CheckExact(c->held[0])))
        return finish_number(r, c);
    bool tensors = false, others = c->call.npos > 2;
    for (uint32_t i = 0; i < c->n; i++) {
        bool tensor = rec_is_tensor_value(r, c->items[i]);
        tensors = tensors || tensor;
        others = others || !(tensor || (rec_is_number(O(r, c->items[i])) && need_atom(r, c->items[i])));
    }
    if (others || !tensors)
        return finish_constant(r, c);
    PyObject *zero = PyLong_FromLong(0);
    kin_vid acc = c->call.npos == 2 ? c->args[1] : rec_const(r, zero);
    Py_XDECREF(zero);
    if (!c->from_tensor && !need_atom(r, acc))
        return false;
    for (uint32_t i = rec_sum_of_numbers(r, &acc, c->items, c->n); i < c->n; i++) {
        if (O(r, c->items[i]) != NULL)
            rec_need_type(r, c->items[i]);
        kin_vid pair[2] = {rec_as_const(r, acc), c->items[i]};
        acc = rec_step_out(r, KIN_STEP_BINARY, KIN_STEP_TORCH, pair, 2);
        r->info.at[acc].obj = c->held ? kind_of_sum(r, c, i) : NULL; /* of its type, and alive: the sums in between are not */
    }
    r->info.at[acc].obj = NULL;
    push_result(r, c, acc);
    return true;
}

static bool
finish_answer(rec *r, rec_consumer *c)
{
    bool stopped = !c->ended;
    bool answer = c->row->rule == TAKE_WHILE_TRUE ? !stopped : stopped;
    rec_drop(r, c->call.ndrop);
    rec_push(r, rec_const(r, answer ? Py_True : Py_False));
    return true;
}

static bool
finish_tuple(rec *r, rec_consumer *c)
{
    push_result(r, c, rec_build_tuple(r, c->items, c->n, NULL));
    return true;
}

bool
rec_finish_list(rec *r, rec_consumer *c)
{
    push_result(r, c, rec_build_list(r, c->items, c->n));
    return true;
}

/* sorted() of constants: the list it made has them in their order. */
static bool
finish_sorted(rec *r, rec_consumer *c)
{
    rec_frame *f = r->top;
    PyObject *list = kin_watch_localsplus(f->f)[f->nlocals + f->sp - c->call.ndrop];
    if (!items_constant(r, c)) {
        kin_vid out = c->call.npos == 1 ? call_with_items(r, c) : 0;
        if (out == 0)
            return false;
        rec_make_virtual(r, out, VIRTUAL_LIST, NULL, 0, false);
        r->info.at[out].type = &PyList_Type;
        push_result(r, c, out);
        return true;
    }
    if (!PyList_CheckExact(list) || PyList_GET_SIZE(list) != (Py_ssize_t)c->n)
        return false;
    for (uint32_t i = 0; i < c->n; i++)
        c->items[i] = rec_const(r, PyList_GET_ITEM(list, i));
    return rec_finish_list(r, c);
}

static bool
finish_set(rec *r, rec_consumer *c)
{
    kin_vid call[2] = {c->call.callee, 0}, out;
    if (items_constant(r, c)) {
        call[1] = rec_build_tuple(r, c->items, c->n, NULL);
        out = rec_step_out(r, KIN_STEP_CALL, KIN_STEP_PURE, call, 2);
    } else if ((out = call_with_items(r, c)) == 0) {
        return false;
    }
    rec_make_virtual(r, out, VIRTUAL_SET, NULL, 0, false);
    r->info.at[out].type = &PySet_Type;
    push_result(r, c, out);
    return true;
}

/* dict() of pairs with constant keys. */
static bool
finish_dict(rec *r, rec_consumer *c)
{
    kin_vid *pairs = malloc((2 * c->n + 1) * sizeof *pairs);
    bool ok = pairs != NULL;
    for (uint32_t i = 0; ok && i < c->n; i++) {
        rec_virtual *f = VIRTUAL(r, c->items[i]);
        ok = f != NULL && f->kind == VIRTUAL_TUPLE && f->known && f->n == 2;
        if (ok)
            memcpy(pairs + 2 * i, f->items, 2 * sizeof *pairs);
    }
        ok = ok && rec_dict_of_pairs(r, &c->call, pairs, 2 * c->n);
    free(pairs);
    return ok;
}

/* next(): the item, or the default. */
static bool
finish_next(rec *r, rec_consumer *c)
{
    if (c->ended && c->call.npos < 2)
        return false;
    push_value(r, c, c->ended ? c->args[1] : c->items[0]);
    return true;
}

/* generator.send(), throw(): what it yields next. */
bool
rec_finish_send(rec *r, rec_consumer *c)
{
    if (c->ended)
        return false;
    push_value(r, c, c->items[0]);
    return true;
}

/* generator.close(): one that is suspended outside of try and with, or has not begun, runs none of its code. */
static bool
finish_close(rec *r, rec_consumer *c)
{
    c->gen->dirty = c->gen->dirty || c->gen->state != GEN_DONE;
    c->gen->state = GEN_DONE;
    rec_drop(r, c->call.ndrop);
    rec_push(r, rec_const(r, Py_None));
    return true;
}

/* The same for `list += thing`, whose result is the list. */
bool
rec_is_operator(rec *r)
{
    return r->top->op == KIN_DO_BINARY;
}

/* list.extend(): the list is one that the recording knows, or an older one at which nothing in the region looks. */
static bool
finish_extend(rec *r, rec_consumer *c)
{
    const rec_virtual *f = VIRTUAL(r, c->args[0]);
    if (!c->grows_older && (f == NULL || f->kind != VIRTUAL_LIST || !f->known || f->escaped))
        return false;
    push_value(r, c, rec_is_operator(r) ? c->args[0] : rec_const(r, Py_None));
    return true;
}

void
rec_refuse_call(rec *r, const rec_consumer *c)
{
    if (rec_is_operator(r))
        rec_add_in_place(r, c->args, KIN_BINARY_INPLACE_ADD, c->opaque_row);
    else
        rec_call_step(r, &c->call, KIN_STEP_OPAQUE | KIN_STEP_EFFECT, c->opaque_row);
}

static void
put_behind_older(rec *r, const rec_consumer *c)
{
    const kin_vid call[3] = {rec_const(r, rec_list_extend()), c->args[0], rec_build_tuple(r, c->items, c->n, NULL)};
    uint32_t s = rec_step(r, KIN_STEP_CALL, KIN_STEP_EFFECT, call, 3);
    r->t->steps.at[s].snap = 0; /* the instruction is over */
    rec_forget_contents(r);
}

static void
put_behind(rec *r, rec_consumer *c)
{
    if (c->grows_older) {
        put_behind_older(r, c);
        return;
    }
    kin_vid args[2] = {c->args[0], rec_build_tuple(r, c->items, c->n, NULL)};
    uint32_t s = rec_step(r, KIN_STEP_LIST_EXTEND, KIN_STEP_MUTATES, args, 2);
    r->t->steps.at[s].snap = 0;
    for (uint32_t i = 0; i < c->n; i++)
        if (!rec_virtual_push(VIRTUAL(r, args[0]), c->items[i]))
            r->status = KIN_NOMEM;
    rec_changed(r, args[0]);
}

static const consumer_row rows[] = {
    {"all", TAKE_WHILE_TRUE, finish_answer, .objects = true}, {"any", TAKE_WHILE_FALSE, finish_answer, .objects = true},
    {"next", TAKE_ONE, finish_next, .takes = ITEMS_AND_MAYBE_MORE, .raises = true}, {"sum", TAKE_ALL, finish_sum, .takes = ITEMS_AND_MAYBE_MORE, .objects = true},
    {"tuple", TAKE_ALL, finish_tuple, .sized = kin_tuples_ask_length, .objects = true}, {"list", TAKE_ALL, rec_finish_list, .sized = true, .objects = true}, {"set", TAKE_ALL, finish_set, .objects = true},
    {"frozenset", TAKE_ALL, finish_constant, .objects = true}, {"dict", TAKE_ALL, finish_dict},
    {"min", TAKE_ALL, finish_extreme, .by_key = &rec_min_by_key, .objects = true}, {"max", TAKE_ALL, finish_extreme, .by_key = &rec_max_by_key, .objects = true},
    {"sorted", TAKE_ALL, finish_sorted, .sized = true, .looks = true, .by_key = &rec_sorted_by_key, .objects = true},
    {"join", TAKE_ALL, finish_constant, .sized = true, .of = &PyUnicode_Type, .takes = OBJECT_AND_ITEMS},
    {"extend", TAKE_ALL, finish_extend, .sized = true, .written = put_behind, .refused = rec_refuse_call, .of = &PyList_Type, .takes = OBJECT_AND_ITEMS, .objects = true},
    {"send", TAKE_ONE, rec_finish_send, .of = &PyGen_Type, .takes = ITEMS_AND_MORE, .raises = true},
    {"close", TAKE_ONE, finish_close, .of = &PyGen_Type}, {NULL, TAKE_ALL, NULL}};

int
rec_consumed_operand(const consumer_row *row, uint32_t npos)
{
    bool fits = npos == 1 ? row->takes == ITEMS || row->takes == ITEMS_AND_MAYBE_MORE : npos == 2 && row->takes != ITEMS;
    return fits ? row->takes == OBJECT_AND_ITEMS : -1;
}

/* The row of a builtin function, a builtin class, str.join or generator.send, found by identity. */
const consumer_row *
rec_consumer_row(PyObject *callee)
{
    static PyObject *kept[sizeof rows / sizeof *rows];
    if (!PyCFunction_Check(callee) && !PyType_Check(callee) && Py_TYPE(callee) != &PyMethodDescr_Type)
        return NULL;
    for (size_t i = 0; rows[i].name; i++) {
        PyObject *found = rows[i].of != NULL ? kin_method_once(&kept[i], rows[i].of, rows[i].name) : kin_import_once(&kept[i], "builtins", rows[i].name);
        if (found == callee)
            return &rows[i];
    }
    return NULL;
}

static bool
leads_to_tensor(PyObject *obj, int depth)
{
    if (kin_is_tensor(obj) || depth > 3 || !(PyTuple_Check(obj) || PyList_Check(obj)))
        return kin_is_tensor(obj);
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(obj); i++)
        if (leads_to_tensor(PySequence_Fast_ITEMS(obj)[i], depth + 1))
            return true;
    return false;
}

/* Is one of the call's operands a generator, of which nothing more is known? */
static bool
resumes_generator(rec *r, const kin_step *s)
{
    for (uint32_t i = 1; i < s->nargs; i++) {
        kin_vid vid = r->t->vids.at[s->args + i];
        if (vid != 0 && O(r, vid) != NULL && PyGen_CheckExact(O(r, vid)))
            return true;
    }
    return false;
}

/* list(thing), next(thing), sum(thing) ... as a step, where code of the program gave the items: if tensors have come of it, that is reported. */
void
rec_note_consumed(rec *r, kin_vid out)
{
    const kin_val *val = &r->t->vals.at[out];
    const kin_step *s = val->kind == KIN_VAL_STEP && VIRTUAL(r, out) == NULL ? &r->t->steps.at[val->step] : NULL;
    bool silent = s != NULL && s->kind == KIN_STEP_CALL && s->flags & KIN_STEP_OPAQUE && !(s->flags & (KIN_STEP_BREAK | KIN_STEP_TORCH));
    PyObject *callee = silent ? O(r, r->t->vids.at[s->args]) : NULL;
    const consumer_row *row = callee != NULL ? rec_consumer_row(callee) : NULL;
    if (row != NULL && row->takes != OBJECT_AND_ITEMS && leads_to_tensor(O(r, out), 0))
        rec_break(r, val->step, resumes_generator(r, s) ? KIN_ROW_GENERATOR : KIN_ROW_BUILTIN_CALL);
}

/* next() of an object whose __next__ is Python. */
static bool
step_once(rec *r, const rec_args *a, const consumer_row *row)
{
    const rec_virtual *f = VIRTUAL(r, a->args[0]);
    if (f != NULL && f->kind != VIRTUAL_OBJECT)
        return false;
    if (f == NULL && r->region == NULL && O(r, a->args[0]) != NULL && Py_TYPE(O(r, a->args[0]))->tp_flags & Py_TPFLAGS_HEAPTYPE)
        rec_root(r, a->args[0]);
    kin_vid next = rec_python_method(r, a->args[0], REC_STR("__next__"));
    if (next == 0)
        return false;
    if (a->npos == 1) /* what it raises goes on */
        return rec_inline(r, &(rec_args){.callee = next, .args = a->args, .npos = 1, .ndrop = a->ndrop}, NULL, 0, KIN_RESUME_PUSH, 0);
    rec_consumer *c = rec_begin_stepping(r, row, a->args[0], next);
    if (c == NULL)
        return false;
    c->source = a->args[0];
    rec_consume_as(r, c, a);
    return true;
}

/* iter() of an object whose __iter__ is Python. */
static bool
iterate_once(rec *r, const rec_args *a)
{
    static PyObject *iter;
    if (a->npos != 1 || a->nkw != 0 || O(r, a->callee) == NULL || O(r, a->callee) != kin_import_once(&iter, "builtins", "iter"))
        return false;
    const rec_virtual *f = VIRTUAL(r, a->args[0]);
    if (r->region != NULL || (f != NULL && f->kind != VIRTUAL_OBJECT) || rec_python_method(r, a->args[0], REC_STR("__iter__")) == 0)
        return false;
    if (f == NULL)
        rec_root(r, a->args[0]);
    const rec_args call = {.callee = rec_python_method(r, a->args[0], REC_STR("__iter__")), .args = a->args, .npos = 1, .ndrop = a->ndrop};
    return rec_generator_call(r, &call) || rec_inline(r, &call, NULL, 0, KIN_RESUME_PUSH, 0);
}

/* it.__next__(), thing.__iter__(): what next(it) and iter(thing) call. */
static bool
call_slot(rec *r, const rec_args *a)
{
    static PyObject *next, *iter;
    PyObject *callee = O(r, a->callee), *builtin = NULL;
    if (Py_TYPE(callee) != &PyWrapperDescr_Type || a->npos != 1 || a->nkw != 0)
        return false;
    const PyTypeObject *tp = O(r, a->args[0]) != NULL ? Py_TYPE(O(r, a->args[0])) : r->info.at[a->args[0]].type;
    const void *wrapped = ((PyWrapperDescrObject *)callee)->d_wrapped;
    if (tp != NULL && wrapped == (const void *)tp->tp_iternext)
        builtin = kin_import_once(&next, "builtins", "next");
    else if (tp != NULL && wrapped == (const void *)tp->tp_iter)
        builtin = kin_import_once(&iter, "builtins", "iter");
    if (builtin == NULL || !PyCFunction_Check(builtin)) /* the program may have put something else there */
        return false;
    const rec_args call = rec_args_to(a, rec_const(r, builtin));
    rec_do_call(r, &call);
    return true;
}

static bool
is_older_list(rec *r, kin_vid list)
{
    if (VIRTUAL(r, list) != NULL || O(r, list) == NULL || !PyList_CheckExact(O(r, list)))
        return false;
    rec_need_type(r, list);
    return true;
}

bool
rec_consume_call(rec *r, const rec_args *a)
{
    if (call_slot(r, a) || iterate_once(r, a))
        return true;
    if (rec_consume_indexed(r, a) || rec_make_lazy(r, a) || rec_make_tee(r, a) || rec_consume_mapping(r, a) || rec_consume_drained(r, a) || rec_consume_callbacks(r, a) ||
        rec_consume_iterables(r, a) || rec_consume_throw(r, a))
        return true;
    const consumer_row *row = a->nkw == 0 && a->npos <= 2 ? rec_consumer_row(O(r, a->callee)) : NULL;
    int at = row != NULL ? rec_consumed_operand(row, a->npos) : -1;
    if (at < 0)
        return false;
    bool sends = row->finish == rec_finish_send, closes = row->finish == finish_close;
    bool visible = VIRTUAL(r, a->args[at]) != NULL && VIRTUAL(r, a->args[at])->kind == VIRTUAL_GENERATOR;
    if (!visible && row->finish == finish_next && step_once(r, a, row))
        return true;
    bool through_iter = !visible && row->finish != finish_next && row->finish != finish_dict && !sends && !closes;
    kin_vid length = 0, source = visible ? a->args[at] : 0;
    if (through_iter)
        source = row->sized ? rec_sized_generator(r, a->args[at], &length) : rec_hidden_generator(r, a->args[at]);
    rec_gen *gen = source ? rec_usable_generator(r, source) : NULL;
    if (gen != NULL && sends && gen->state != GEN_SUSPENDED)
        return false; /* one that has not begun takes None alone */
    bool from_tensor = gen != NULL && a->npos == 2 && row->finish == finish_sum && kin_is_plain_tensor(O(r, a->args[1]));
    if (from_tensor)
        rec_need_type(r, a->args[1]);
    bool older = gen != NULL && row->finish == finish_extend && r->region == NULL && is_older_list(r, a->args[0]);
    rec_consumer *c = gen ? rec_begin_measured(r, gen, a->args[at], length) : NULL;
    if (c == NULL)
        return false;
    c->row = row;
    c->grows_older = older;
    if (older)
        rec_region_changes(r, a->args[0]);
    c->from_tensor = from_tensor;
    c->source = a->args[at];
    c->sent = sends ? a->args[1] : 0;
    c->wants = c->wants && !closes;
    if (closes && gen->state == GEN_SUSPENDED && gen->guarded)
        rec_close(r, c);
    rec_consume_as(r, c, a);
    return true;
}

bool
rec_consume_added(rec *r, int imm)
{
    const kin_vid args[2] = {rec_peek(r, 1), rec_peek(r, 0)};
    bool asks = imm == KIN_BINARY_INPLACE_ADD && O(r, args[0]) != NULL && O(r, args[1]) != NULL &&
                (rec_known_list(r, args[0]) != NULL || (rec_usable_generator(r, args[1]) != NULL && r->region == NULL && is_older_list(r, args[0])));
    if (!asks || rec_is_plain_value(O(r, args[1])) || kin_is_tensor(O(r, args[1])))
        return false;
    return rec_consume_call(r, &(rec_args){.callee = rec_const(r, rec_list_extend()), .args = args, .npos = 2, .ndrop = 2});
}
