/* C functions that call back: sorted, min and max with a key, functools.reduce (map and filter: lazy.c, ask.c). The elements must be known and the callback
 * must be a function that can be inlined; how often, in which order and with which arguments it is called then follows. The calls form a region
 * (region.c): nothing of them can be observed before the end, and an exit leaves before the whole C call.
 */
#include "py/compat/frame.h"
#include "py/compat/heap.h"
#include "py/compat/imports.h"
#include "py/iterators/consume.h"
#include "py/models/models.h"
#include "py/objects/objects.h"
#include "py/torchcalls/torchcalls.h"

/* -- elements ------------------------------------------------------------------------------------------------------- */

/* Elements of an iterable that a C function uses up; an iterator only if nobody sees afterwards how far it got. */
bool
rec_known_elements(rec *r, kin_vid vid, kin_vid **items, uint32_t *n)
{
    rec_virtual *f = VIRTUAL(r, vid);
    PyObject *obj = O(r, vid);
    *items = NULL;
    if (obj == NULL && f != NULL && (f->kind == VIRTUAL_TUPLE || (f->kind == VIRTUAL_ITER && f->given))) /* rows of a tensor, the source of a map object */
        return rec_items_of(r, vid, items, n);
    if (obj == NULL || (f != NULL && f->kind == VIRTUAL_ITER && kin_reference_count(obj) != 1))
        return false;
    return kin_is_tensor(obj) ? rec_items_of(r, vid, items, n) : rec_iterated(r, &vid, items, n);
}

/* -- calling back --------------------------------------------------------------------------------------------------- */

void
rec_await_callback(rec *r, kin_vid func)
{
    r->top->parent_for_call = rec_snapshot(r);
    r->call.active = true;
    r->call.func = O(r, func);
    r->call.func_vid = func;
}

bool
rec_call_or_refuse(rec *r, rec_args *call)
{
    bool fits = rec_bind(r, call);
    if (fits)
        rec_await_callback(r, call->callee);
    else
        rec_refuse(r);
    return fits;
}

/* Expects a call of the callback's function with these arguments behind those that come with it. */
static bool
call_with(rec *r, kin_vid func, kin_vid self, const rec_virtual *partial, const kin_vid *inputs, uint32_t width)
{
    kin_vid args[2 * CONSUMER_ARGS + 16];
    PyObject *names = partial != NULL ? partial->aux : NULL;
    uint32_t n = 0, nkw = names != NULL ? (uint32_t)PyTuple_GET_SIZE(names) : 0;
    if (self)
        args[n++] = self;
    for (uint32_t i = 1; partial != NULL && i + nkw < partial->n; i++)
        args[n++] = partial->items[i];
    memcpy(args + n, inputs, width * sizeof *args);
    n += width;
    if (nkw != 0)
        memcpy(args + n, partial->items + partial->n - nkw, nkw * sizeof *args);
    rec_args call = {.callee = func, .args = args, .npos = n, .nkw = nkw, .kwnames = names};
    return rec_call_or_refuse(r, &call);
}

/* Expects the next call, or ends. The consumer's frame is the top one. */
void
rec_next_callback(rec *r, rec_consumer *c)
{
    if (r->refused || !c->wants)
        return;
    if (c->next >= c->ninputs) {
        c->wants = false;
        c->ended = true;
        return;
    }
    kin_vid inputs[CONSUMER_ARGS + 1];
    uint32_t n = 0;
    if (c->fold)
        inputs[n++] = c->n ? c->items[c->n - 1] : c->inputs[c->next++];
    memcpy(inputs + n, c->inputs + c->next, c->width * sizeof *inputs);
    c->at = c->next;
    c->next += c->width;
    call_with(r, c->callback, c->self, c->partial ? VIRTUAL(r, c->partial) : NULL, inputs, n + c->width);
}

/* A partial object made here. */
static bool
is_partial(const rec_virtual *f)
{
    return f != NULL && f->kind == VIRTUAL_PARTIAL && f->known && f->n <= CONSUMER_ARGS;
}

bool
rec_call_back(rec *r, kin_vid callback, const kin_vid *inputs, uint32_t n)
{
    kin_vid func, self;
    const rec_virtual *partial = is_partial(VIRTUAL(r, callback)) ? VIRTUAL(r, callback) : NULL;
    return rec_find_callback(r, callback, &func, &self) && call_with(r, func, self, partial, inputs, n);
}

/* An object that is called, as a module: __call__ of its class, if it is Python, with the object as its first argument. */
static void
find_call(rec *r, kin_vid *func, kin_vid *self)
{
    PyObject *call = rec_call_in_python(r, *func);
    if (call == NULL || !rec_can_inline(r, call))
        return;
    *self = *func;
    *func = rec_call_of_instance(r, *self, call);
}

/* A function, a bound method, an object whose class has a __call__ in Python, or a partial object of one of them, that can be inlined. */
bool
rec_find_callback(rec *r, kin_vid callback, kin_vid *func, kin_vid *self)
{
    rec_virtual *f = callback ? VIRTUAL(r, callback) : NULL;
    *func = callback;
    *self = 0;
    if (callback == 0 || O(r, callback) == NULL)
        return false;
    if (f != NULL && f->kind == VIRTUAL_METHOD) {
        *func = f->items[0];
        *self = f->items[1];
    } else if (is_partial(f)) {
        *func = f->items[0];
    }
    if (*self == 0)
        find_call(r, func, self);
    PyObject *obj = O(r, *func);
    return obj != NULL && PyFunction_Check(obj) && rec_can_inline(r, obj);
}

static void
set_callback(rec *r, rec_consumer *c, kin_vid callback, kin_vid func, kin_vid self)
{
    c->callback = func;
    c->self = self;
    c->partial = is_partial(VIRTUAL(r, callback)) ? callback : 0;
}

rec_consumer *
rec_begin_callbacks(rec *r, const consumer_row *row, kin_vid callback, kin_vid *inputs, uint32_t n, uint32_t width)
{
    kin_vid func, self;
    rec_consumer *c = rec_find_callback(r, callback, &func, &self) ? rec_begin_consumer(r, NULL) : NULL;
    if (c == NULL) {
        free(inputs);
        return NULL;
    }
    c->row = row;
    set_callback(r, c, callback, func, self);
    c->inputs = inputs;
    c->ninputs = n;
    c->width = width;
    return c;
}

/* What the instruction is when the region is refused. */
void
rec_consume_as(rec *r, rec_consumer *c, const rec_args *a)
{
    c->opaque_row = rec_opaque_row(r, a->callee, a->args, a->npos + a->nkw);
    memcpy(c->args, a->args, (a->npos + a->nkw) * sizeof *a->args);
    c->call = *a;
    c->call.args = c->args;
}

/* -- sorted, min, max with a key ------------------------------------------------------------------------------------ */

static PyObject *
real_result(rec *r, rec_consumer *c)
{
    rec_frame *f = r->top;
    return kin_watch_localsplus(f->f)[f->nlocals + f->sp - c->call.ndrop];
}

/* Constants, and ints that differ between calls: sizes. */
static bool
are_sort_keys(rec *r, rec_consumer *c)
{
    for (uint32_t i = 0; i < c->n; i++) {
        PyObject *obj = O(r, c->items[i]);
        if (obj == NULL || !kin_is_exact_immutable(obj))
            return false;
        if (rec_can_const(r, c->items[i]))
            rec_need_const(r, c->items[i]);
        else if (PyLong_CheckExact(obj) && VIRTUAL(r, c->items[i]) == NULL)
            rec_need_type(r, c->items[i]);
        else
            return false;
    }
    return true;
}

static bool
comes_before(rec *r, rec_consumer *c, uint32_t a, uint32_t b)
{
    if (c->reverse) {
        uint32_t t = a;
        a = b;
        b = t;
    }
    int less = PyObject_RichCompareBool(O(r, c->items[a]), O(r, c->items[b]), Py_LT);
    if (less < 0)
        PyErr_Clear();
    return less > 0;
}

/* Whether key `a` comes before key `b` is as now, or the replay leaves. */
static void
pin_before(rec *r, rec_consumer *c, uint32_t a, uint32_t b)
{
    const kin_vid pair[2] = {c->items[c->reverse ? b : a], c->items[c->reverse ? a : b]};
    if (rec_is_const(r, pair[0]) && rec_is_const(r, pair[1]))
        return;
    bool before = comes_before(r, c, a, b);
    kin_vid answer = rec_step_out(r, KIN_STEP_COMPARE, KIN_STEP_PURE, pair, 2);
    r->t->steps.at[r->t->vals.at[answer].step].imm = Py_LT;
    r->info.at[answer].type = &PyBool_Type;
    rec_set_obj(r, answer, before ? Py_True : Py_False);
    rec_check(r, before ? KIN_CHECK_TRUE : KIN_CHECK_FALSE, answer, NULL, 0);
}

/* The inputs in the order of their keys, in place of the keys. It follows from the order of neighbours. */
static bool
sort_inputs(rec *r, rec_consumer *c)
{
    uint32_t n = c->n, *order = malloc((n + 1) * sizeof *order);
    if (order == NULL)
        return false;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t k = i;
        for (; k > 0 && comes_before(r, c, i, order[k - 1]); k--)
            order[k] = order[k - 1];
        order[k] = i;
    }
    for (uint32_t i = 1; i < n; i++)
        pin_before(r, c, order[order[i - 1] < order[i] ? i : i - 1], order[order[i - 1] < order[i] ? i - 1 : i]);
    for (uint32_t i = 0; i < n; i++)
        c->items[i] = c->inputs[order[i]];
    free(order);
    return true;
}

/* What really came out must be in that order. */
static bool
finish_sorted(rec *r, rec_consumer *c)
{
    PyObject *list = real_result(r, c);
    uint32_t n = c->n;
    if (!are_sort_keys(r, c) || n != c->ninputs || !PyList_CheckExact(list) || PyList_GET_SIZE(list) != (Py_ssize_t)n ||
        !sort_inputs(r, c))
        return false;
    for (uint32_t i = 0; i < n; i++)
        if (PyList_GET_ITEM(list, i) != O(r, c->items[i]))
            return false;
    return rec_finish_list(r, c);
}

/* list.sort(): the elements are put back in their order, as `rows[:] = sorted` would. */
static void
put_in_order(rec *r, rec_consumer *c)
{
    kin_vid list = c->args[0], args[3] = {list, 0, 0};
    PyObject *all = PySlice_New(NULL, NULL, NULL);
    if (all == NULL) {
        PyErr_Clear();
        r->status = KIN_NOMEM;
        return;
    }
    args[1] = rec_const(r, all);
    Py_DECREF(all);
    args[2] = rec_build_tuple(r, c->items, c->n, NULL);
    uint32_t s = rec_step(r, KIN_STEP_SET_SUBSCR, KIN_STEP_MUTATES, args, 3);
    r->t->steps.at[s].snap = 0;
    memcpy(VIRTUAL(r, list)->items, c->items, c->n * sizeof *c->items);
    rec_changed(r, list);
}

static bool
finish_sort(rec *r, rec_consumer *c)
{
    rec_virtual *f = VIRTUAL(r, c->args[0]);
    if (f == NULL || f->kind != VIRTUAL_LIST || !f->known || f->n != c->n || c->n != c->ninputs || !are_sort_keys(r, c) || !sort_inputs(r, c))
        return false;
    rec_drop(r, c->call.ndrop);
    rec_push(r, rec_const(r, Py_None));
    return true;
}

/* The first of the inputs that no other one comes before. */
static uint32_t
find_extreme(rec *r, rec_consumer *c)
{
    uint32_t best = 0;
    for (uint32_t i = 1; i < c->n; i++)
        if (comes_before(r, c, i, best))
            best = i;
    for (uint32_t i = 0; i < c->n; i++)
        if (i != best)
            pin_before(r, c, i < best ? best : i, i < best ? i : best);
    return best;
}

static bool
finish_extreme(rec *r, rec_consumer *c)
{
    if (c->n == 0 || !are_sort_keys(r, c))
        return false;
    uint32_t best = find_extreme(r, c);
    if (O(r, c->inputs[best]) != real_result(r, c))
        return false;
    rec_drop(r, c->call.ndrop);
    rec_push(r, c->inputs[best]);
    return true;
}

static const consumer_row sort_row = {"sort", TAKE_ALL, finish_sort, NULL, put_in_order, NULL};
const consumer_row rec_sorted_by_key = {"sorted", TAKE_ALL, finish_sorted}, rec_min_by_key = {"min", TAKE_ALL, finish_extreme},
                   rec_max_by_key = {"max", TAKE_ALL, finish_extreme};

static const consumer_row *
key_row(PyObject *callee)
{
    if (callee == PyDict_GetItemString(kin_type_dict(&PyList_Type), "sort"))
        return &sort_row;
    const consumer_row *plain = rec_consumer_row(callee);
    return plain != NULL ? plain->by_key : NULL;
}

/* `key` and, for sorted, a constant `reverse`. */
static bool
read_keywords(rec *r, const consumer_row *row, const kin_vid *values, uint32_t nkw, PyObject *kwnames, kin_vid *key,
              bool *reverse)
{
    *key = 0;
    *reverse = row == &rec_max_by_key;
    for (uint32_t i = 0; i < nkw; i++) {
        PyObject *name = PyTuple_GET_ITEM(kwnames, i);
        if (PyUnicode_CompareWithASCIIString(name, "key") == 0) {
            *key = values[i];
        } else if ((row->finish == finish_sorted || row == &sort_row) && PyUnicode_CompareWithASCIIString(name, "reverse") == 0 &&
                   PyBool_Check(O(r, values[i])) && rec_need_const(r, values[i]) != 0) {
            *reverse = O(r, values[i]) == Py_True;
        } else {
            return false;
        }
    }
    return *key != 0;
}

static bool
is_plain_list(rec *r, kin_vid vid)
{
    rec_virtual *f = VIRTUAL(r, vid);
    return f != NULL && f->kind == VIRTUAL_LIST && f->known;
}

/* The key is a C function: its answers are here before the call. */
static bool
sort_by_applied(rec *r, rec_consumer *c, kin_vid key)
{
    uint32_t start = r->t->steps.len;
    c->items = malloc((c->ninputs + 1) * sizeof *c->items);
    c->n = c->ninputs;
    bool ok = c->items != NULL && rec_apply_each(r, key, c->inputs, c->n, 1, c->items) && are_sort_keys(r, c);
    if (ok && c->row == &sort_row) {
        if ((ok = finish_sort(r, c)))
            put_in_order(r, c);
    } else if (ok && c->row->finish == finish_sorted) {
        ok = sort_inputs(r, c) && rec_finish_list(r, c);
    } else if (ok && (ok = c->n > 0)) {
        kin_vid best = c->inputs[find_extreme(r, c)];
                rec_model_value(r, &c->call, best);
    }
    if (!ok)
        rec_truncate(r, start);
    free(c->items);
    return ok;
}

static bool
call_with_key(rec *r, const rec_args *a)
{
    const consumer_row *row = a->nkw && a->npos == 1 && a->nkw <= 2 ? key_row(O(r, a->callee)) : NULL;
    kin_vid key, func, self, *inputs = NULL;
    uint32_t n;
    bool reverse;
    if (row == NULL || !read_keywords(r, row, a->args + a->npos, a->nkw, a->kwnames, &key, &reverse))
        return false;
    bool called = rec_find_callback(r, key, &func, &self);
    if ((!called && !rec_can_apply(r, key)) || (row == &sort_row && !is_plain_list(r, a->args[0])) || !rec_known_elements(r, a->args[0], &inputs, &n))
        return false;
    if (!called) {
        rec_consumer key_of = {.row = row, .inputs = inputs, .ninputs = n, .reverse = reverse, .call = *a};
        memcpy(key_of.args, a->args, a->npos * sizeof *a->args);
        key_of.call.nkw = 0;
        bool done = sort_by_applied(r, &key_of, key);
        free(inputs);
        return done;
    }
    rec_consumer *c = rec_begin_callbacks(r, row, key, inputs, n, 1);
    if (c == NULL)
        return false;
    rec_consume_as(r, c, a);
    c->reverse = reverse;
    rec_next_callback(r, c);
    return true;
}

/* -- functools.reduce ------------------------------------------------------------------------------------------------- */

static bool
finish_reduce(rec *r, rec_consumer *c)
{
    if (c->n == 0)
        return false;
    rec_drop(r, c->call.ndrop);
    rec_push(r, c->items[c->n - 1]);
    return true;
}

static const consumer_row reduce_row = {"reduce", TAKE_ALL, finish_reduce};

bool
rec_is_reduce(PyObject *callee)
{
    static PyObject *reduce;
    return callee == kin_import_once(&reduce, "functools", "reduce");
}

void
rec_fold_known(rec *r, rec_consumer *c, kin_vid *inputs, uint32_t n, kin_vid func, kin_vid self)
{
    free(c->inputs);
    c->row = &reduce_row;
    set_callback(r, c, c->args[0], func, self);
    c->inputs = inputs;
    c->ninputs = n;
    c->width = 1;
    c->next = c->at = 0;
    c->fold = c->wants = true;
    c->ended = false;
    rec_next_callback(r, c);
}

/* reduce of a C function: one call on what the last one gave. */
static bool
fold_by_applied(rec *r, const rec_args *a, const kin_vid *inputs, uint32_t n)
{
    uint32_t start = r->t->steps.len;
    kin_vid acc = inputs[0];
    for (uint32_t i = 1; acc != 0 && i < n; i++) {
        const kin_vid pair[2] = {acc, inputs[i]};
        acc = rec_apply(r, a->args[0], pair, 2);
    }
    if (acc == 0)
        rec_truncate(r, start);
    r->skip_expected = acc != 0;
    return acc != 0 && rec_model_value(r, a, acc);
}

static bool
call_reduce(rec *r, const rec_args *a)
{
    kin_vid *items = NULL, *inputs, func, self;
    uint32_t n, ninit = a->npos == 3;
    bool called = a->npos >= 2 && rec_find_callback(r, a->args[0], &func, &self);
    if (a->nkw != 0 || a->npos < 2 || a->npos > 3 || !rec_is_reduce(O(r, a->callee)) || (!called && !rec_can_apply(r, a->args[0])) ||
        !rec_known_elements(r, a->args[1], &items, &n))
        return false;
    inputs = n + ninit >= 2 ? malloc((n + ninit) * sizeof *inputs) : NULL;
    if (inputs != NULL) {
        inputs[0] = a->args[2 * ninit];
        memcpy(inputs + ninit, items, n * sizeof *items);
    }
    kin_vid only = n + ninit == 1 ? (ninit ? a->args[2] : items[0]) : 0;
    free(items);
    if (only != 0) /* the function is not called */
        return rec_model_value(r, a, only);
    if (inputs != NULL && !called) {
        bool done = fold_by_applied(r, a, inputs, n + ninit);
        free(inputs);
        return done;
    }
    rec_consumer *c = inputs ? rec_begin_callbacks(r, &reduce_row, a->args[0], inputs, n + ninit, 1) : NULL;
    if (c == NULL)
        return false;
    rec_consume_as(r, c, a);
    c->fold = true;
    rec_next_callback(r, c);
    return true;
}

/* -- defaultdict ------------------------------------------------------------------------------------------------------ */

static bool
finish_missing(rec *r, rec_consumer *c)
{
    if (c->n != 1)
        return false;
    rec_drop(r, 2);
    rec_push(r, c->items[0]);
    return true;
}

static void
put_missing(rec *r, rec_consumer *c)
{
    const kin_vid args[3] = {c->args[0], c->args[1], c->items[0]};
    uint32_t s = rec_step(r, KIN_STEP_SET_SUBSCR, KIN_STEP_MUTATES, args, 3);
    r->t->steps.at[s].snap = 0;
    rec_pairs_put(r, VIRTUAL(r, args[0]), args[1], args[2]);
    rec_changed(r, args[0]);
}

static void
ask_opaquely(rec *r, const rec_consumer *c)
{
    kin_vid out = rec_step_out(r, KIN_STEP_SUBSCR, KIN_STEP_OPAQUE | KIN_STEP_EFFECT, c->args, 2);
    if (VIRTUAL(r, c->args[0]) != NULL)
        VIRTUAL(r, c->args[0])->known = false;
    rec_forget_contents(r);
    r->skip_expected = true;
    rec_drop(r, 2);
    rec_await_result(r, out, r->t->vals.at[out].step);
}

static const consumer_row missing_row = {"__missing__", TAKE_ALL, finish_missing, NULL, put_missing, ask_opaquely};

bool
rec_consume_missing(rec *r)
{
    kin_vid dict = rec_peek(r, 1), key = rec_peek(r, 0), func, self;
    const rec_virtual *f = VIRTUAL(r, dict);
    if (f == NULL || f->kind != VIRTUAL_DICT || !f->known || f->of == 0 || !rec_is_known_key(r, key) ||
        rec_pairs_find(r, f, O(r, key)) != NULL || !rec_find_callback(r, f->of, &func, &self))
        return false;
    key = rec_need_const(r, key);
    rec_consumer *c = rec_begin_consumer(r, NULL);
    if (c == NULL)
        return false;
    c->row = &missing_row;
    c->args[0] = dict;
    c->args[1] = key;
    c->call = (rec_args){.args = c->args, .npos = 2, .ndrop = 2};
    rec_args call = {.callee = func, .args = &self, .npos = self != 0};
    rec_call_or_refuse(r, &call);
    return true;
}

bool
rec_consume_callbacks(rec *r, const rec_args *a)
{
    return a->npos + a->nkw <= 5 && (call_with_key(r, a) ||
                               call_reduce(r, a) ||
                               rec_consume_lazy(r, a) ||
                               rec_consume_asked(r, a));
}
