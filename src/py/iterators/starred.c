/* Starred operands that C code iterates over: f(*thing) and [*thing, x], where thing is a generator, a map or an object whose
 * __iter__ is Python code. The items are obtained as in unpacking into names (consume.c, callbacks.c, iterables.c); this file says what
 * is done with them.
 *
 * A call of a Python function continues in that function's frame while the instruction is not finished. From there on nothing
 * can leave before the instruction any more, so what the call needs is computed while the items can still be produced again.
 */
#include "py/iterators/consume.h"
#include "py/models/models.h"
#include "py/objects/objects.h"
#include "py/torchcalls/torchcalls.h"

/* list.extend(tuple of the items): the list that the display is building. */
static bool
extend_list(rec *r, const kin_vid *items, uint32_t n)
{
    kin_vid list = rec_peek(r, r->top->arg), args[2] = {list, rec_build_tuple(r, items, n, NULL)};
    rec_virtual *f = VIRTUAL(r, list);
    if (f == NULL || f->kind != VIRTUAL_LIST || f->escaped)
        return false;
    rec_step(r, KIN_STEP_LIST_EXTEND, KIN_STEP_MUTATES, args, 2);
    for (uint32_t i = 0; i < n; i++)
        if (!rec_virtual_push(VIRTUAL(r, list), items[i]))
            r->status = KIN_NOMEM;
    rec_drop(r, 1);
    return true;
}

/* The call, where no Python function of its own comes in between: its result is there. */
static bool
call_c(rec *r, const rec_consumer *c, const kin_vid *items, uint32_t n)
{
    kin_vid all[256];
    rec_args call = c->call;
    if (n + call.nkw > 200 || O(r, call.callee) == NULL || PyFunction_Check(O(r, call.callee)) || !rec_can_const(r, call.callee))
        return false;
    memcpy(all, items, n * sizeof *all);
    memcpy(all + n, c->args, call.nkw * sizeof *all);
    call.callee = rec_need_const(r, call.callee);
    call.args = all;
    call.npos = n;
    return rec_call_torch(r, &call) || rec_call_constructor(r, &call) || rec_call_builtin(r, &call);
}

bool
rec_hand_over(rec *r, const rec_consumer *c, const kin_vid *items, uint32_t n, int before, int after)
{
    if (n > 250)
        return false;
    if (before == INTO_LIST)
        return extend_list(r, items, n);
    if (before == INTO_CALL)
        return c != NULL && call_c(r, c, items, n);
    rec_push_unpacked(r, items, n, before, after);
    return true;
}

/* The function that a call goes on to, with the object it is bound to; 0: not a Python function. An object, as a module, has the __call__ of its class. A class of
 * named tuples does nothing behind its __new__. */
static kin_vid
called_function(rec *r, kin_vid callee, kin_vid *self)
{
    rec_virtual *f = VIRTUAL(r, callee);
    bool method = f != NULL && f->kind == VIRTUAL_METHOD;
    PyObject *call = method ? NULL : rec_call_in_python(r, callee);
    if (call != NULL && rec_can_inline(r, call)) {
        *self = callee;
        return rec_call_of_instance(r, callee, call);
    }
    kin_vid func = method ? f->items[0] : callee, made = f == NULL ? rec_named_tuple_new(r, callee) : 0;
    *self = method ? f->items[1] : made != 0 ? rec_as_const(r, callee) : 0;
    if (made != 0)
        return made;
    return O(r, func) != NULL && PyFunction_Check(O(r, func)) && rec_can_inline(r, O(r, func)) ? func : 0;
}

/* All items are there: the function is called next. */
void
rec_go_on_to_call(rec *r, rec_consumer *c, const kin_vid *items, uint32_t count)
{
    kin_vid all[256], self = 0, made = 0, func = r->refused ? 0 : called_function(r, c->call.callee, &self);
    uint32_t n = 0;
    if (func == 0 && !r->refused && count + c->call.nkw <= 200 && VIRTUAL(r, c->call.callee) == NULL)
        self = made = rec_plain_instance(r, c->call.callee, &func);
    if (func == 0 || count + c->call.nkw > 200)
        return; /* it comes to call_c, or is refused */
    if (self != 0)
        all[n++] = self;
    memcpy(all + n, items, count * sizeof *all);
    n += count;
    memcpy(all + n, c->args, c->call.nkw * sizeof *all);
    rec_args call = rec_args_to(&c->call, func);
    call.args = all;
    call.npos = n;
    kin_vid lazy = c->lazy;
    if (!rec_bind(r, &call))
        rec_refuse(r);
    if (r->refused)
        return;
    if (lazy != 0)
        rec_lazy_used_up(r, lazy);
    if (!rec_end_consumer(r))
        return;
    if (!rec_inline(r, &call, NULL, 0, made != 0 ? KIN_RESUME_INIT : KIN_RESUME_PUSH, made)) {
        r->failed = true; /* bound a moment ago, and the items cannot be put back */
        rec_stop(r, "unsupported arguments of a call");
    }
}

static bool
use_up(rec *r, kin_vid vid, int into, const rec_args *call)
{
    if (VIRTUAL(r, vid) != NULL && VIRTUAL(r, vid)->kind != VIRTUAL_GENERATOR && VIRTUAL(r, vid)->kind != VIRTUAL_OBJECT &&
        VIRTUAL(r, vid)->kind != VIRTUAL_LAZY)
        return false;
    r->star = call;
    bool done = rec_consume_unpack(r, vid, into, -1) || rec_consume_unpacking(r, vid, into, -1) || rec_consume_unpack_lazy(r, vid, into, -1);
    r->star = NULL;
    return done;
}

/* [*vid] */
static bool
extend_by(rec *r, kin_vid vid)
{
    rec_virtual *list = VIRTUAL(r, rec_peek(r, r->top->arg));
    return list != NULL && list->kind == VIRTUAL_LIST && list->known && !list->escaped && use_up(r, vid, INTO_LIST, NULL);
}

/* f(*vid, **keywords): true when recorded. */
static bool
star_call(rec *r, const rec_args *call, kin_vid vid)
{
    return call->nkw <= CONSUMER_ARGS && use_up(r, vid, INTO_CALL, call);
}

/* -- the instructions ----------------------------------------------------------------------------------------------- */

/* [1, 2, 3] is an empty list that gets a constant tuple: one step, as it is for shorter lists, which graphs know as an argument. */
static bool
fill_new_list(rec *r, kin_vid list, kin_vid v)
{
    enum { MOST = 64 };
    kin_vid items[MOST];
    PyObject *tuple = O(r, v);
    if (!PyTuple_CheckExact(tuple) || PyTuple_GET_SIZE(tuple) > MOST || !rec_is_const(r, v) || r->t->steps.len == 0)
        return false;
    uint32_t n = (uint32_t)PyTuple_GET_SIZE(tuple);
    kin_step *last = &r->t->steps.at[r->t->steps.len - 1];
    rec_virtual *f = VIRTUAL(r, list);
    if (last->kind != KIN_STEP_BUILD_LIST || last->out != list || last->nargs != 0 || f == NULL || !f->known || f->n != 0)
        return false;
    for (uint32_t i = 0; i < n; i++)
        items[i] = rec_const(r, PyTuple_GET_ITEM(tuple, i));
    last->args = r->t->vids.len;
    last->nargs = (uint16_t)n;
    for (uint32_t i = 0; i < n; i++)
        if (!rec_virtual_push(VIRTUAL(r, list), items[i]) || kin_vec_push(&r->t->vids, items[i]) != KIN_OK)
            r->status = KIN_NOMEM;
    return true;
}

void
rec_op_list_extend(rec *r)
{
    kin_vid v = rec_peek(r, 0), list = rec_peek(r, r->top->arg);
    kin_vid args[2] = {list, v}, *items = NULL;
    uint32_t n = 0;
    if (fill_new_list(r, list, v)) {
        rec_drop(r, 1);
        return;
    }
    if (extend_by(r, v))
        return;
    rec_virtual *f = VIRTUAL(r, list);
    bool tensor = kin_is_tensor(O(r, v)) && f != NULL && f->known;
    bool known = f != NULL && f->known && (tensor ? rec_iterated(r, &args[1], &items, &n) : rec_use_up(r, v, &items, &n));
    if (!known && !rec_is_plain_value(O(r, v))) {
        rec_grow_opaquely(r, KIN_STEP_LIST_EXTEND, v, -1);
        return;
    }
    if (known)
        args[1] = rec_take_apart(r, args[1], items, n);
    rec_step(r, KIN_STEP_LIST_EXTEND, KIN_STEP_MUTATES, args, 2);
    rec_end_if_read(r, list);
    if (known)
        for (uint32_t i = 0; i < n; i++)
            rec_virtual_push(f, items[i]);
    else if (f != NULL)
        f->known = false;
    free(items);
    rec_drop(r, 1);
}

static void
call_ex_step(rec *r, kin_vid func, kin_vid pos, kin_vid kw, int ndrop)
{
    kin_vid args[3] = {func, pos, kw};
    kin_vid out = rec_step_out(r, KIN_STEP_CALL_EX, KIN_STEP_OPAQUE | KIN_STEP_EFFECT, args, 3);
    uint32_t s = r->t->vals.at[out].step;
    int row = rec_opaque_row(r, func, args + 1, 2);
    if (row >= 0)
        rec_break(r, s, row);
    rec_forget_contents(r);
    r->skip_expected = true;
    rec_drop(r, ndrop);
    rec_await_result(r, out, s);
}

/* How far below the top the callable of f(*a, **k) lies. */
static int
spread_callable(const rec *r)
{
    return r->top->extra + (r->top->flags & KIN_DO_CALLABLE_FIRST ? 2 : 1);
}

static void
star_call_step(rec *r)
{
    int place = r->top->extra;
    call_ex_step(r, rec_peek(r, spread_callable(r)), rec_peek(r, place), place ? rec_peek(r, 0) : 0, 3 + place);
}

/* The instruction as it is. */
void
rec_refuse_starred(rec *r, const rec_consumer *c)
{
    if (c->before == INTO_CALL)
        star_call_step(r);
    else
        rec_grow_opaquely(r, KIN_STEP_LIST_EXTEND, rec_peek(r, 0), -1);
}

/* f(*thing, **known) where C code iterates over thing. */
static bool
star_call_of(rec *r, kin_vid func, kin_vid pos, const kin_vid *pairs, uint32_t npairs, int ndrop)
{
    kin_vid values[64];
    if (npairs > 64 || O(r, func) == NULL)
        return false;
    PyObject *names = npairs > 0 ? PyTuple_New(npairs / 2) : NULL;
    for (uint32_t i = 0; names != NULL && i < npairs; i += 2) {
        PyTuple_SET_ITEM(names, i / 2, Py_NewRef(O(r, pairs[i])));
        values[i / 2] = pairs[i + 1];
    }
    if (names != NULL)
        rec_ref(r, names); /* as long as the recording */
    const rec_args call = {.callee = func, .args = values, .nkw = names != NULL ? npairs / 2 : 0, .kwnames = names, .ndrop = ndrop};
    Py_XDECREF(names);
    PyErr_Clear();
    return (npairs == 0 || names != NULL) && star_call(r, &call, pos);
}

void
rec_op_call_spread(rec *r)
{
    int place = r->top->extra, func_at = spread_callable(r);
    kin_vid kw = place ? rec_peek(r, 0) : 0, pos = rec_peek(r, place), func = rec_peek(r, func_at);
    int ndrop = 3 + place;
    bool has_kw = kw != 0;
    kin_vid *items = NULL, *pairs = NULL, all[256];
    uint32_t n = 0, npairs = 0;
    PyObject *kwnames = NULL;
    bool shared = false, positions = rec_items_of(r, pos, &items, &n) || (rec_lazy_items(r, pos, &items, &n, &shared) && !shared);
    bool known = (!has_kw || rec_pairs_of(r, kw, &pairs, &npairs)) && positions && n + npairs / 2 < 200;
    for (uint32_t i = 0; i < npairs; i += 2)
        if (!PyUnicode_CheckExact(O(r, pairs[i]))) { /* the call raises */
            free(pairs);
            pairs = NULL;
            npairs = 0;
            known = false;
        }
    if (!positions && (!has_kw || pairs != NULL) && star_call_of(r, func, pos, pairs, npairs, ndrop)) {
        free(pairs);
        return;
    }
    if (known && npairs) {
        kwnames = PyTuple_New(npairs / 2);
        known = kwnames != NULL;
    }
    if (!known) {
        call_ex_step(r, func, pos, kw, ndrop);
    } else {
        memcpy(all, items, n * sizeof *all);
        for (uint32_t i = 0; i < npairs; i += 2) {
            PyTuple_SET_ITEM(kwnames, i / 2, Py_NewRef(O(r, pairs[i])));
            all[n + i / 2] = pairs[i + 1];
        }
        if (kwnames != NULL)
            rec_ref(r, kwnames);
        const rec_args call = {.callee = func, .args = all, .npos = n, .nkw = npairs / 2, .kwnames = kwnames, .ndrop = ndrop};
        if (!rec_drop_report(r, &call, func_at))
            rec_do_call(r, &call);
    }
    Py_XDECREF(kwnames);
    free(items);
    free(pairs);
}
