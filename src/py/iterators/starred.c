/* Starred operands that C code iterates over: f(*thing) and [*thing, x], where thing is a generator, a map or an object whose
 * __iter__ is Python code. How the items come is what unpacking into names does (consume.c, callbacks.c, iterables.c); here is what
 * becomes of them.
 *
 * A call of a Python function goes on in this function's frame while the instruction is under way. From there on nothing
 * leaves before the instruction any more, so what the call needs is found out while the items are still there to be made again.
 */
#include "py/iterators/consume.h"
#include "py/models/models.h"

/* list.extend(tuple of the items): the list that the display is building. */
static bool
extend_list(rec *r, const kin_vid *items, uint32_t n)
{
    kin_vid list = rec_peek(r, r->top->arg), args[2] = {list, rec_build_tuple(r, items, n, NULL)};
    rec_fresh *f = FRESH(r, list);
    if (f == NULL || f->kind != FRESH_LIST || f->escaped)
        return false;
    rec_step(r, KIN_STEP_LIST_EXTEND, KIN_STEP_MUTATES, args, 2);
    for (uint32_t i = 0; i < n; i++)
        if (!rec_fresh_push(FRESH(r, list), items[i]))
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
    return rec_call_torch(r, &call) || rec_call_builtin(r, &call);
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

/* The function that a call goes on to, with the object it is bound to; 0: not a Python function. */
static kin_vid
called_function(rec *r, kin_vid callee, kin_vid *self)
{
    rec_fresh *f = FRESH(r, callee);
    bool method = f != NULL && f->kind == FRESH_METHOD;
    kin_vid func = method ? f->items[0] : callee;
    *self = method ? f->items[1] : 0;
    return O(r, func) != NULL && PyFunction_Check(O(r, func)) && rec_can_inline(r, O(r, func)) && !r->stopped ? func : 0;
}

/* All items are there: the function is called next. */
void
rec_go_on_to_call(rec *r, rec_consumer *c, const kin_vid *items, uint32_t count)
{
    kin_vid all[256], self, func = r->refused ? 0 : called_function(r, c->call.callee, &self);
    uint32_t n = 0;
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
    if (!rec_inline(r, &call, NULL, 0, KIN_RESUME_PUSH, 0)) {
        r->failed = true; /* bound a moment ago, and the items cannot be put back */
        rec_stop(r, "unsupported arguments of a call");
    }
}

/* The instruction as it is. */
void
rec_refuse_starred(rec *r, const rec_consumer *c)
{
    if (c->before == INTO_CALL)
        rec_star_call_step(r);
    else
        rec_extend_step(r);
}

static bool
use_up(rec *r, kin_vid vid, int into, const rec_args *call)
{
    if (FRESH(r, vid) != NULL && FRESH(r, vid)->kind != FRESH_GENERATOR && FRESH(r, vid)->kind != FRESH_OBJECT &&
        FRESH(r, vid)->kind != FRESH_OTHER)
        return false;
    r->star = call;
    bool done = rec_consume_unpack(r, vid, into, -1) || rec_consume_unpacking(r, vid, into, -1) || rec_consume_unpack_lazy(r, vid, into, -1);
    r->star = NULL;
    return done;
}

bool
rec_extend_by(rec *r, kin_vid vid)
{
    rec_fresh *list = FRESH(r, rec_peek(r, r->top->arg));
    return list != NULL && list->kind == FRESH_LIST && list->known && !list->escaped && use_up(r, vid, INTO_LIST, NULL);
}

bool
rec_star_call(rec *r, const rec_args *call, kin_vid vid)
{
    return call->nkw <= CONSUMER_ARGS && use_up(r, vid, INTO_CALL, call);
}
